"""The result of a check: the verdict, what was read, and what to tell the student."""

from __future__ import annotations

from dataclasses import field
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal

from symcomm.core.answers.formula import Side
from symcomm.core.errors import SymcommError
from symcomm.core.notation import Notation
from symcomm.core.records import dataclass
from symcomm.core.units import ONE, Quantity

VerdictName = Literal["right", "other_convention", "mistake", "different", "unreadable", "refused", "undecided"]


@dataclass(frozen=True)
class Counterexample:
    """Numbers at which an answer and the key differ, and what each is there."""

    values: tuple[tuple[str, Fraction], ...]
    answer: Quantity
    key: Quantity

    def __str__(self) -> str:
        at = ", ".join(f"{name} = {value}" for name, value in self.values)
        where = f"at {at} " if at else ""
        return f"{where}the answer is {self.answer.reading}, but {self.key.reading} is right"


@dataclass(frozen=True)
class Verdict:
    """The verdict on one answer.

    ``conventions`` are named ``field: choice`` and ``mistakes`` by their records;
    ``alternatives`` are other ways to the same answer, each a tuple of one or two names. ``says`` is one sentence for
    each name. ``hint`` tells how to write what was not read. ``undecided`` earns neither full nor no credit by itself.

    >>> Verdict("right").right, Verdict("unreadable", hint="two units").record()["hint"]
    (True, 'two units')
    """

    verdict: VerdictName
    conventions: tuple[str, ...] = ()
    mistakes: tuple[str, ...] = ()
    alternatives: tuple[tuple[str, ...], ...] = ()
    says: tuple[str, ...] = ()
    hint: str = ""
    counterexample: Counterexample | None = None
    sides: tuple[Side, ...] = field(default=(), compare=False, repr=False)  # what was read
    notation: Notation | None = field(default=None, compare=False, repr=False)

    @cached_property
    def read(self) -> str:
        """The answer as it was read, in LaTeX; written where somebody wants to see it."""
        return " = ".join(_shown(side, self.notation) for side in self.sides)

    @property
    def right(self) -> bool:
        """Whether it earns full credit by itself."""
        return self.verdict == "right"

    def record(self) -> dict[str, Any]:
        """The same as plain data, for JSON."""
        made: dict[str, Any] = {"verdict": self.verdict, "read": self.read}
        for name in ("conventions", "mistakes", "alternatives", "says"):
            if getattr(self, name):
                made[name] = [list(one) if isinstance(one, tuple) else one for one in getattr(self, name)]
        if self.hint:
            made["hint"] = self.hint
        if self.counterexample:
            c = self.counterexample
            made["counterexample"] = {
                "values": {name: str(value) for name, value in c.values},
                "answer": str(c.answer.value), "key": str(c.key.value), "unit": str(c.key.unit),
            }  # fmt: skip
        return made

    def __str__(self) -> str:
        names = ", ".join((*self.conventions, *self.mistakes))
        said = self.verdict.replace("other_convention", "right under another convention")
        lines = [said + (f" ({names})" if names else "")]
        lines += [*self.says, self.hint, str(self.counterexample or "")]
        return "\n".join(line for line in lines if line)


def _shown(side: Side, notation: Notation | None) -> str:
    from symcomm.core.printing import tex

    try:
        text = tex(side.form, None, notation)
    except (SymcommError, TypeError, RecursionError):
        return ""
    if side.unit is None:
        return text
    if side.unit == ONE:
        return text if side.scale == 1 else rf"{text}\,\%"
    return rf"{text}\ {'' if side.scale == 1 else _scale(side.scale)}\text{{{side.unit}}}"


def _scale(scale: Fraction) -> str:
    for base in (1000, 1024):
        for power in range(1, 6):
            if scale == Fraction(base) ** power:
                return rf"\cdot 10^{{{3 * power}}}\," if base == 1000 else rf"\cdot 2^{{{10 * power}}}\,"
    top, bottom = scale.numerator, scale.denominator
    return rf"\cdot {scale}\," if bottom == 1 else rf"\cdot \frac{{{top}}}{{{bottom}}}\,"
