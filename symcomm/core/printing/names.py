"""How a name is written: its base, scripts, accents and primes, from plain text or the author's LaTeX."""

from __future__ import annotations

import re
from functools import lru_cache

from symcomm.core.notation import GREEK_LETTERS, GREEK_NAMES, split_name
from symcomm.core.records import dataclass


@dataclass(frozen=True)
class Glyph:
    """Letters in one style: ``italic``, ``upright``, ``greek``, ``digits``, ``sign`` or a font's name."""

    text: str
    style: str = "italic"


@dataclass(frozen=True)
class Written:
    """How a name is written: a base with what is below and above it, primes and an accent."""

    base: tuple[Glyph | Written, ...]
    lower: tuple[Glyph | Written, ...] = ()
    upper: tuple[Glyph | Written, ...] = ()
    primes: int = 0
    accent: str = ""


_FONTS = {
    **dict.fromkeys(("text", "mathrm", "textrm", "operatorname"), "upright"), "mathit": "italic",
    **dict.fromkeys(("mathbf", "boldsymbol", "textbf"), "bold"), "mathcal": "calligraphic", "mathbb": "blackboard",
    "mathsf": "sans", "mathtt": "mono",
}  # fmt: skip
_ACCENTS = {"hat": "hat", "widehat": "hat", "bar": "bar", "overline": "bar", "tilde": "tilde", "widetilde": "tilde"}
_ACCENTS["dot"] = "dot"
_COMBINING = {"\u0307": "dot", "\u0304": "bar", "\u0302": "hat", "\u0303": "tilde"}


def _glyph(word: str) -> Glyph:
    if word in GREEK_NAMES:
        return Glyph(word, "greek")
    if word == "ell":
        return Glyph("ℓ", "ell")
    if word in GREEK_LETTERS:
        return Glyph(GREEK_LETTERS[word], "greek")
    if word.isascii() and word.isdigit():
        return Glyph(word, "digits")
    return Glyph(word, "italic" if len(word) == 1 and word.isascii() and word.isalpha() else "upright")


def _script(text: str) -> tuple[Glyph, ...]:
    parts = [p for p in re.split(r"([+,*-])", text) if p]
    return tuple(Glyph(p, "sign") if p in "+,*-" else _glyph(p) for p in parts)


@lru_cache(maxsize=4096)
def written(name: str, latex: str = "") -> Written:
    r"""How a name is written, from its plain spelling, or from the author's LaTeX where that is understood.

    Only letters, digits, scripts, fonts and accents are understood, so that no other LaTeX passes through a name.

    >>> written("W^Q") == written("anything", "W^{Q}")
    True
    """
    if latex:
        found = _read_latex_name(latex)
        if found is not None:
            return found
    base, lower, upper, primes = split_name(name)
    accent = _COMBINING.get(base[-1:], "")  # v with a dot above it is a letter and a mark
    base = base[:-1] if accent else base
    return Written((_glyph(base or name),), _script(lower), _script(upper), len(primes), accent)


def _read_latex_name(latex: str) -> Written | None:
    tokens = re.findall(r"\\[A-Za-z]+|\\.|\s+|.", latex.strip().strip("$"), re.DOTALL)
    if len(tokens) > 200:
        return None
    place = 0

    def peek() -> str:
        return tokens[place] if place < len(tokens) else ""

    def take() -> str:
        nonlocal place
        place += 1
        return tokens[place - 1] if place <= len(tokens) else ""

    def words() -> str:
        if take() != "{":
            raise ValueError
        text = ""
        while (mark := take()) != "}":
            if mark in (r"\_", r"\ ", "~"):
                mark = mark[-1]
            if not mark or not (mark.isalnum() or mark in "_- .,+~") or mark.startswith("\\"):
                raise ValueError
            text += mark.replace("~", " ")
        return text

    def atom() -> tuple[Glyph | Written, ...]:
        mark = take()
        if mark == "{":
            inside = sequence("}")
            take()
            return inside
        if mark.startswith("\\") and mark[1:] in GREEK_NAMES:
            return (Glyph(mark[1:], "greek"),)
        if mark == r"\ell":
            return (Glyph("ℓ", "ell"),)
        if mark.startswith("\\") and mark[1:] in _FONTS:
            text, style = words(), _FONTS[mark[1:]]
            if not text:
                raise ValueError
            return (Glyph(text, style),)
        if mark.startswith("\\") and mark[1:] in _ACCENTS:
            return (Written(atom(), accent=_ACCENTS[mark[1:]]),)
        if len(mark) == 1 and mark.isdigit() and mark.isascii():
            while len(peek()) == 1 and peek().isdigit() and peek().isascii():
                mark += take()
            return (Glyph(mark, "digits"),)
        if len(mark) == 1 and mark.isalpha():
            return (_glyph(mark),)
        if len(mark) == 1 and mark in "+,-*":
            return (Glyph(mark, "sign"),)
        raise ValueError

    def one() -> Written:
        base = atom()
        lower: tuple[Glyph | Written, ...] = ()
        upper: tuple[Glyph | Written, ...] = ()
        primes = 0
        while peek() in ("_", "^", "'"):
            script = take()
            if script == "'":
                primes += 1
            elif script == "_" and not lower:
                lower = atom()
            elif script == "^" and not upper:
                upper = atom()
            else:
                raise ValueError
        return Written(base, lower, upper, primes)

    def sequence(end: str) -> tuple[Glyph | Written, ...]:
        pieces: list[Glyph | Written] = []
        while peek() != end:
            if not peek():
                raise ValueError
            if peek().isspace():
                take()
                continue
            piece = one()
            bare = not (piece.lower or piece.upper or piece.primes or piece.accent)
            pieces.extend(piece.base if bare else (piece,))
        return tuple(pieces)

    tokens.append("\0")
    try:
        pieces = sequence("\0")
    except (ValueError, RecursionError):
        return None
    if len(pieces) == 1:
        return pieces[0] if isinstance(pieces[0], Written) else Written(pieces)
    return Written(pieces) if pieces else None
