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
    """How the author's LaTeX writes a name; None where it is not understood."""
    tokens = [*re.findall(r"\\[A-Za-z]+|\\.|\s+|[0-9]+|.", latex.strip().strip("$"), re.DOTALL), "\0"]
    if len(tokens) > 200:
        return None
    tokens.reverse()  # the next one stands last

    def words() -> str:
        if tokens.pop() != "{":
            raise ValueError
        text = ""
        while (mark := tokens.pop()) != "}":
            if mark in (r"\_", r"\ ", "~"):
                mark = mark[-1]
            if not (mark.isalnum() or mark in "_- .,+~"):
                raise ValueError
            text += mark.replace("~", " ")
        return text

    def atom() -> tuple[Glyph | Written, ...]:
        mark = tokens.pop()
        command = mark[1:] if mark.startswith("\\") else ""
        if mark == "{":
            inside = sequence("}")
            tokens.pop()
            return inside
        if command in _FONTS and (text := words()):
            return (Glyph(text, _FONTS[command]),)
        if command in _ACCENTS:
            return (Written(atom(), accent=_ACCENTS[command]),)
        digits = mark.isdigit() and mark.isascii()
        if command in GREEK_NAMES or command == "ell" or digits or (len(mark) == 1 and mark.isalpha()):
            return (_glyph(command or mark),)
        if len(mark) == 1 and mark in "+,-*":
            return (Glyph(mark, "sign"),)
        raise ValueError

    def one() -> Written:
        base, primes = atom(), 0
        scripts: dict[str, tuple[Glyph | Written, ...]] = {}
        while tokens[-1] in ("_", "^", "'"):
            script = tokens.pop()
            if script == "'":
                primes += 1
            elif scripts.get(script):
                raise ValueError
            else:
                scripts[script] = atom()
        return Written(base, scripts.get("_", ()), scripts.get("^", ()), primes)

    def sequence(end: str) -> tuple[Glyph | Written, ...]:
        pieces: list[Glyph | Written] = []
        while tokens[-1] != end:
            if tokens[-1].isspace():
                tokens.pop()
                continue
            piece = one()
            bare = not (piece.lower or piece.upper or piece.primes or piece.accent)
            pieces.extend(piece.base if bare else (piece,))
        return tuple(pieces)

    try:
        pieces = sequence("\0")
    except (ValueError, IndexError, RecursionError):
        return None
    if len(pieces) == 1:
        return pieces[0] if isinstance(pieces[0], Written) else Written(pieces)
    return Written(pieces) if pieces else None
