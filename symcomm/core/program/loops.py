"""The loops of a program: instructions that run so often, for each microbatch, each layer of a rank, each group.

A program lists its instructions once. ``training_step`` puts them into the loops that repeat them on one rank, and
what is a sum over the step (bytes, calls, time) is added up over these loops. Memory walks loops of what is kept and
freed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from itertools import groupby
from typing import Generic, Literal, TypeVar

from symcomm.core.form import Form, Total, num
from symcomm.core.program.instructions import Instruction, Program, Send
from symcomm.core.program.pipeline import RankShare
from symcomm.core.records import dataclass

T = TypeVar("T")
End = Literal["first", "last"]
ONCE = num(1)


@dataclass(frozen=True, eq=False)
class Loop(Generic[T]):
    """Instructions that run ``count`` times: of each microbatch, of each layer, of each group."""

    over: str
    count: Form
    body: tuple[T | Loop[T], ...]
    ends: tuple[End, ...] = ("last",)  # where the peak of memory may be, in the order in which they run
    reverse: bool = False  # the last one runs first
    start: int = 0  # the number of the first repetition, for a reader
    first: tuple[T, ...] | None = None  # the part of the body that the first repetition runs, where it is not all

    def index(self, end: End, count: Fraction) -> Fraction:
        """The number of an end's repetition, counted in the order in which they run."""
        return Fraction(0) if (end == "first") != self.reverse else count - 1


def training_step(
    made: Program, held: RankShare, microbatches: Form = ONCE
) -> tuple[Instruction | Loop[Instruction], ...]:
    """The step of a rank: what is done early, the passes of each microbatch, what finishes gradients and weights."""
    weights = {weight.name for _, some in held.weights(made.graph) for weight in some}
    mine = [instruction for instruction in made.instructions if _takes_part(made, instruction, held, weights)]
    early, passes, late = (
        tuple(_layers(held, [one for one in mine if _part(one) == part])) for part in ("early", "pass", "late")
    )
    return (*early, Loop("microbatch", microbatches, passes), *late)


def _takes_part(made: Program, instruction: Instruction, held: RankShare, weights: set[str]) -> bool:
    """Whether a rank with some regions has an instruction: stages send all the same, and add up weights of both."""
    if instruction.between_stages:
        return isinstance(instruction.work, Send) or made.tensor(instruction.work).of in weights  # type: ignore[arg-type]  # no op
    return instruction.region.name in held.regions or not made.graph.regions


def _part(instruction: Instruction) -> str:
    return "early" if instruction.early else "late" if instruction.once or instruction.phase == "update" else "pass"


def _layers(held: RankShare, instructions: Iterable[Instruction]) -> Iterator[Instruction | Loop[Instruction]]:
    """Turns in the loops over the layers that a rank has; one layer alone does without what the first one spares."""
    for (region, between), some in groupby(instructions, lambda one: (one.region, one.between_stages)):
        body = tuple(some)
        first = tuple(instruction for instruction in body if instruction.every or not held.begins)
        if between:
            yield from body
        elif region.times:
            yield Loop("layer", held.times(region), body, first=first if len(first) < len(body) else None)
        else:
            yield from first


Repeats = tuple[tuple[str, Form], ...]


def repeats(body: Iterable[T | Loop[T]], around: Repeats = ()) -> Iterator[tuple[T, Repeats]]:
    """Each instruction with the loops around it, from the outside, and how often it runs in each of them.

    >>> step = Loop("microbatch", num(4), ("head", Loop("layer", num(12), ("layer",))))
    >>> [(name, [f"{count.number} x {over}" for over, count in loops]) for name, loops in repeats([step])]
    [('head', ['4 x microbatch']), ('layer', ['4 x microbatch', '12 x layer'])]
    """
    for one in body:
        if not isinstance(one, Loop):
            yield one, around
            continue
        early = None if one.first is None else {id(instruction) for instruction in one.first}
        for inner, loops in repeats(one.body):
            often = one.count if early is None or id(inner) in early else Total((one.count, num(-1)))
            yield inner, (*around, (one.over, often), *loops)
