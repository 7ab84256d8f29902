r"""How names are written: keys, scripts, and the LaTeX of a name, so that ``N_layer`` is ``N_{layer}``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from lark import Token

from symcomm.core.records import dataclass
from symcomm.core.text.syntax import Branch, bare_atom, start_of
from symcomm.core.text.vocabulary import GREEK

_UNICODE = {"bbR": r"\mathbb{R}", "bbZ": r"\mathbb{Z}", "bbN": r"\mathbb{N}", "ell": r"\ell"}


class Spelling(NamedTuple):
    """The key of a name; and, if it may be a family's member, the family's key and which member it is."""

    key: str
    family: str = ""
    member: str = ""


@dataclass(frozen=True)
class Script:
    """A script attached to a base: ``kind`` is ``_``, ``^``, ``'`` or ``T``; ``text`` its canonical spelling."""

    kind: str
    text: str
    start: int
    stop: int
    tree: Branch | None = None
    word: Token | None = None  # an unbraced word, whose tail may belong to the next name

    def cut(self, length: int) -> Script:
        """The script with only the first letters of its word."""
        assert self.word is not None
        start = start_of(self.word)
        tree = bare_atom(self.text[:length], start)
        return Script(self.kind, self.text[:length], self.start, start + length, tree, self.word)


class Stem(NamedTuple):
    """The beginning of a name: its canonical word, and its source, which begins at ``start``.

    The letters of the word may be split into several names if they stand at ``letters``.
    """

    word: str
    source: str
    start: int
    letters: int | None = None

    def stop(self, scripts: Sequence[Script]) -> int:
        """Where the name of this stem and scripts ends."""
        return scripts[-1].stop if scripts else self.start + len(self.source)


def spelling(word: str, scripts: Sequence[Script]) -> Spelling:
    """The canonical spelling of a word with its scripts."""
    primes = "".join(script.text for script in scripts if script.kind == "'")
    above = "".join(f"^{script.text}" for script in scripts if script.kind == "^")
    below = [script.text for script in scripts if script.kind == "_"]
    if "_" in word and not word.startswith("_") and not below:
        # \text{d_model} and N_layer: an underscore within the word begins its subscript all the same.
        word, *below = word.split("_")

    def key(below: Sequence[str]) -> str:
        return "_".join([word + primes, *below]) + above

    if not below:
        return Spelling(key(below))
    head, _, member = below[-1].rpartition(",")
    return Spelling(key(below), key([*below[:-1], head] if head else below[:-1]), member)


def plain_name(name: str) -> str:
    """The one spelling of a name: ``x1`` is ``x_1``.

    >>> plain_name("x1"), plain_name("x_{1}"), plain_name("w")
    ('x_1', 'x_1', 'w')
    """
    return re.sub(r"^([A-Za-z]+)(\d+)$", r"\1_\2", re.sub(r"[{}\\\s]", "", name))


def latex(text: str, stem: Stem, scripts: Sequence[Script]) -> str:
    """How the author wrote a name in a cell's text; a plain word of many letters becomes the LaTeX of the same name."""
    pieces = [latex_word(stem.word, stem.source)]
    for script in scripts:
        shown = re.sub(r"\s+", " ", text[script.start : script.stop])
        if script.kind == "'":
            pieces.append("'" * len(script.text))
        elif script.word is not None and len(script.text) > 1:
            pieces.append(f"{script.kind}{{{latex_word(script.text, script.text)}}}")
        elif shown.isascii() and shown[:1] in "_^":
            pieces.append(shown)
        else:
            pieces.append(f"{script.kind}{{{script.text}}}")
    return "".join(pieces)


def latex_word(word: str, source: str) -> str:
    """The LaTeX of a word that was written as ``source``."""
    if source.startswith("\\") or len(word) == 1:
        return source if source.isascii() else word
    if word in GREEK:
        return f"\\{word}"
    if not source.isascii():
        return _UNICODE.get(word, word)
    if source.startswith("{"):
        return source
    return "\\text{" + word.replace("_", r"\_") + "}"
