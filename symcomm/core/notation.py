r"""Every symbol is made here: its SymPy symbol, how it is written, what it means and in which unit.

A SymPy symbol is its name *and* its assumptions; two symbols of one name with different assumptions are
different symbols that print alike. So no other module calls ``sympy.Symbol``.
"""

from __future__ import annotations

import re
from dataclasses import field
from functools import cache
from typing import Literal

from symcomm.core.errors import ValuesError
from symcomm.core.libraries import Symbol, sp
from symcomm.core.records import dataclass

_NAME = re.compile(r"[^\W\d][\w^'*,+\-]{0,79}")
_GREEK_ORDER = re.findall(  # in the order of their code points
    r"\w+",
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho final sigma tau upsilon "
    "phi chi psi omega",
)
_NO_LATIN = re.findall(r"\w+", "Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega")
GREEK_NAMES = {  # those that LaTeX has commands for
    name: chr((0x3B1 if name[0].islower() else 0x391) + place)
    for place, lower in enumerate(_GREEK_ORDER)
    for name in (lower, lower.capitalize())
    if (name.islower() or name in _NO_LATIN) and name not in ("omicron", "final")
}
GREEK_LETTERS = {letter: name for name, letter in GREEK_NAMES.items()}

# What the usual names often mean. They are read so where a role must be told, and never explained so: C may be classes.
USUAL: dict[str, str] = {
    "N_layer": "number of layers",
    "B": "batch size in sequences",
    "L": "sequence length",
    "D": "model dimension",
    "n_H": "number of attention heads",
    "n_h": "number of attention heads",
    "n_kv": "number of key/value heads",
    "H": "head dimension",
    "F": "hidden dimension of the feed-forward block",
    "d_ff": "hidden dimension of the feed-forward block",
    "V": "vocabulary size",
    "E": "number of experts",
    "C": "capacity of an expert in tokens",
    "k": "number of ranks in the collective",
    "m": "number of microbatches",
}


def plain_name(text: str) -> str:
    r"""The plain spelling of a symbol written plainly or in LaTeX.

    >>> plain_name(r"$N_{\text{layer}}$"), plain_name("n_H")
    ('N_layer', 'n_H')
    """
    text = re.sub(r"\\(?:text|mathrm|mathit|operatorname)\s*\{([^{}]*)\}", r"\1", text.strip().strip("$").strip())
    text = re.sub(r"[{}\s]", "", text)
    return text.removeprefix("\\")


@cache
def symbol(name: str) -> Symbol:
    """The SymPy symbol of a name: a positive integer, since sizes, counts and degrees are.

    >>> symbol("D") is symbol("D"), symbol("lambda").name
    (True, 'lambda')
    """
    if not _NAME.fullmatch(name):
        raise ValuesError(f"'{name[:60]}' cannot be the name of a symbol", hint="a letter, then letters, digits or _")
    return sp.Symbol(name, positive=True, integer=True)


@cache
def amount(name: str) -> Symbol:
    """The SymPy symbol of a measured, positive quantity (a bandwidth, a clock rate): not an integer."""
    if not _NAME.fullmatch(name):
        raise ValuesError(f"'{name[:60]}' cannot be the name of a symbol", hint="a letter, then letters, digits or _")
    return sp.Symbol(name, positive=True)


def whole(name: str) -> Symbol:
    """A whole number of any sign that stands for a piece of a formula while it is proved; no name of a model.

    >>> whole("floor 0").is_integer, whole("floor 0").is_positive
    (True, None)
    """
    return sp.Symbol(name, integer=True)


def split_name(name: str) -> tuple[str, str, str, str]:
    """The base, subscript, superscript and primes of a plain name.

    >>> split_name("W_up^Q"), split_name("V^past_j"), split_name("A'")
    (('W', 'up', 'Q', ''), ('V', 'j', 'past', ''), ('A', '', '', "'"))
    """
    body = name.rstrip("'")
    primes = name[len(body) :]
    body, _, upper = body.partition("^")
    base, _, lower = body.partition("_")
    if not lower:
        upper, _, lower = upper.partition("_")
    if not base:  # a name such as __import__ has no base before its underscore
        base, lower = body, ""
    return base, lower, upper, primes


AxisRole = Literal["", "batch", "sequence"]
_BATCH = re.compile(r"batch(?!es)|number of (sequences|examples|samples|images)", re.IGNORECASE)
_SEQUENCE = re.compile(r"sequen[cz]|positions?\b|context length", re.IGNORECASE)


def axis_role(meaning: str) -> AxisRole:
    """The axis of the data that a symbol measures, as its meaning says it; empty where it says neither.

    >>> axis_role("batch size in sequences"), axis_role("sequence length"), axis_role("model dimension")
    ('batch', 'sequence', '')
    """
    return "batch" if _BATCH.search(meaning) else "sequence" if _SEQUENCE.search(meaning) else ""


@dataclass(frozen=True)
class Notation:
    """How a document writes and explains its names.

    ``latex`` and ``meanings`` map plain names to what the author wrote and said, ``spellings`` to other names that an
    answer may use.

    >>> Notation().meaning("C"), Notation(meanings={"C": "number of classes"}).meaning("C")
    ('', 'number of classes')
    """

    latex: dict[str, str] = field(default_factory=dict)
    meanings: dict[str, str] = field(default_factory=dict)
    spellings: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def meaning(self, name: str) -> str:
        """The meaning of a name; empty where nobody said."""
        return self.meanings.get(name, "")

    def usual(self, name: str) -> str:
        """The meaning of a name, or its usual one: to find a role by, not to be shown."""
        return self.meaning(name) or USUAL.get(name, "")
