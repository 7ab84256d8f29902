"""The cost of a derivative: passes and operations of both modes, and the memory of a trace with checkpoints."""

from __future__ import annotations

from symcomm.core import form as forms
from symcomm.core.form import Num
from symcomm.core.records import dataclass
from symcomm.teaching.differentiation.sweeps import reverse
from symcomm.teaching.differentiation.trace import EvaluationTrace


@dataclass(frozen=True)
class PassCost:
    """The operations of one pass: multiplications by partial derivatives that are not 1 or -1, and additions."""

    multiplications: int
    additions: int

    @property
    def operations(self) -> int:
        """Both together."""
        return self.multiplications + self.additions


def forward_cost(trace: EvaluationTrace) -> PassCost:
    """The operations of the tangents of one pass of forward mode; those of the primals come once in addition.

    >>> from symcomm.teaching.differentiation.trace import trace
    >>> forward_cost(trace("y_1 = (x_1+x_2)^2; y_2 = (x_1-x_2)^2", "x_1 = 2, x_2 = 4"))
    PassCost(multiplications=2, additions=2)
    """
    return PassCost(_products(trace), sum(max(0, len(v.reads) - 1) for v in trace.operations))


def reverse_cost(trace: EvaluationTrace) -> PassCost:
    """The operations of the adjoints of one pass of reverse mode: one addition wherever a value had an adjoint."""
    rows = reverse(trace, trace.outputs[0][0]).rows
    return PassCost(_products(trace), sum(row.adds for row in rows))


def _products(trace: EvaluationTrace) -> int:
    partials = [p for v in trace.operations for p in trace.partials(v.number)]
    return sum(not (isinstance(p.form, Num) and abs(p.form.number) == 1) for p in partials)


def kept_values(trace: EvaluationTrace) -> tuple[int, ...]:
    """The variables whose values a reverse sweep reads: those that stand in partial derivatives.

    >>> from symcomm.teaching.differentiation.trace import trace
    >>> kept_values(trace("y = (x_1 + x_2) x_3", "x_1 = 1, x_2 = 2, x_3 = 3"))
    (0, 1)
    """
    names = {v.name: v.number for v in trace.variables}
    partials = (p for v in trace.operations for p in trace.partials(v.number))
    read = {names[name] for p in partials for name in forms.names(p.form)}
    return tuple(sorted(read))


@dataclass(frozen=True)
class Segment:
    """Operations between two checkpoints: what is kept while they are reversed, and what is computed again."""

    first: int
    last: int
    checkpoints: tuple[int, ...]
    again: tuple[int, ...]

    @property
    def values(self) -> int:
        """The values in memory while the segment is reversed."""
        return len(self.checkpoints) + len(self.again)


def segments(trace: EvaluationTrace, every: int) -> tuple[Segment, ...]:
    """The segments of a trace with a checkpoint before every so many operations, from the first to the last.

    A checkpoint holds the values before it that are read behind it. Segments are reversed from the last one on: its
    values are computed again from its checkpoint, those of later segments are gone; what no partial derivative reads is
    passed on and not counted.

    Source: Griewank and Walther, Evaluating Derivatives, 2nd edition, chapter 12; Chen et al., arXiv 1604.06174.
    """
    total = len(trace.operations)
    names = {v.name: v.number for v in trace.variables}
    written = {v.number: {names[n] for p in trace.partials(v.number) for n in forms.names(p.form)}
               for v in trace.operations}  # fmt: skip
    reads = {v.number: written[v.number] | {*v.reads} for v in trace.operations}
    found: list[Segment] = []
    held: set[int] = set()
    for first in range(1, total + 1, every):
        last = min(first + every - 1, total)
        inside = range(first, last + 1)
        held |= {read for number in range(first, total + 1) for read in reads[number] if read < first}
        again = {read for number in inside for read in written[number] if first <= read <= last}
        found.append(Segment(first, last, tuple(sorted(held)), tuple(sorted(again - held))))
    return tuple(found)


def peak(trace: EvaluationTrace, every: int) -> int:
    """The most values in memory during a reverse sweep with checkpoints before every so many operations."""
    return max((segment.values for segment in segments(trace, every)), default=0)
