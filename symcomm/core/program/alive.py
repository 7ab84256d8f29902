"""The tensors alive while a program runs: a fold over what it keeps and frees.

From one repetition of a loop to the next, memory grows or shrinks by the same amount. So its peak is in the first or in
the last one, and a loop is walked at its ends only, however often it runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from fractions import Fraction
from typing import Any

from symcomm.core import form as forms
from symcomm.core.errors import ValuesError
from symcomm.core.form import Form, num
from symcomm.core.libraries import Expr
from symcomm.core.program.loops import ONCE, Loop
from symcomm.core.records import dataclass


@dataclass(frozen=True)
class Keep:
    """Pieces of memory that come into use: of what kind, how large each, and how many."""

    kind: str
    size: Form
    times: Form = ONCE


@dataclass(frozen=True)
class Free(Keep):
    """Pieces of memory that are given back."""


@dataclass(frozen=True)
class OpRun:
    """An instruction that runs: in which phase, what it makes (for a reader), in which table row, where it is."""

    phase: str
    op: str
    row: str = ""
    part: int = 0
    at: int = 0


StorageEvent = Keep | Free | OpRun | Loop[Any]
Place = tuple[tuple[str, str | int], ...]  # the loops around an instruction, with an end or a number of each
Amounts = dict[tuple[str, Form], tuple["Expr | int", Fraction]]  # pieces by kind and size: how many, and that number


@dataclass(frozen=True)
class Instant:
    """An instruction as it runs, the loops around it, and what is alive."""

    run: OpRun
    place: Place
    alive: Amounts
    bytes: Mapping[str, Fraction]


@dataclass
class Fold:
    """Adds up what a program keeps and frees, at given sizes. With ``unrolled`` loops are walked from end to end."""

    values: Mapping[str, Fraction]
    unrolled: bool = False
    alive: Amounts = field(default_factory=dict)
    bytes: dict[str, Fraction] = field(default_factory=dict)
    _worth: dict[Form, Fraction] = field(default_factory=dict)
    _changes: dict[int, tuple[Sequence[StorageEvent], Amounts]] = field(default_factory=dict)

    def worth(self, form: Form) -> Fraction:
        """The number of a form."""
        if form not in self._worth:
            self._worth[form] = forms.evaluate(form, self.values)
        return self._worth[form]

    @property
    def total(self) -> Fraction:
        """The bytes that are alive."""
        return sum(self.bytes.values(), Fraction(0))

    def at(self, alive: Amounts) -> Fold:
        """The same with something else alive."""
        made = Fold(self.values, self.unrolled, {}, {}, self._worth, self._changes)
        made.add(alive)
        return made

    def add(self, more: Amounts, often: Expr | int = 1, number: Fraction = Fraction(1)) -> None:
        """More (or, less than nothing, fewer) pieces."""
        for key, (count, counted) in more.items():
            old, had = self.alive.pop(key, (0, Fraction(0)))
            now = old + often * count
            if now != 0:
                self.alive[key] = now, had + number * counted
            kind, size = key
            self.bytes[kind] = self.bytes.get(kind, Fraction(0)) + number * counted * self.worth(size)

    def change(self, body: Sequence[StorageEvent]) -> Amounts:
        """The tensors alive after some instructions that were not before, less what no longer is."""
        if id(body) not in self._changes:
            made = self.at({})
            for one in body:
                made.skip(one)
            self._changes[id(body)] = body, made.alive
        return self._changes[id(body)][1]

    def skip(self, one: StorageEvent) -> None:
        """Runs an instruction and looks at nothing meanwhile."""
        if isinstance(one, Keep):
            sign, size, times = -1 if isinstance(one, Free) else 1, one.size, one.times
            count = int(times.number) if isinstance(times, forms.Num) else forms.value(times)
            self.add({(one.kind, size): (sign * count, sign * self.worth(times))})
        elif isinstance(one, Loop):
            self.repeat(one, one.count, self.worth(one.count))

    def repeat(self, loop: Loop[Any], count: Form, number: Fraction) -> None:
        """So many repetitions of a loop."""
        if number:
            often = int(count.number) if isinstance(count, forms.Num) else forms.value(count)
            self.add(self.change(loop.body), often, number)

    def walk(self, body: Sequence[StorageEvent], place: Place = ()) -> Iterator[Instant]:
        """Runs instructions, and gives those at which the peak may be with what is alive."""
        for one in body:
            if isinstance(one, OpRun):
                yield Instant(one, place, dict(self.alive), dict(self.bytes))
            elif isinstance(one, Loop):
                yield from self._walk_loop(one, place)
            else:
                self.skip(one)

    def _walk_loop(self, loop: Loop[Any], place: Place) -> Iterator[Instant]:
        count = self.worth(loop.count)
        if count < 0:
            raise ValuesError("more layers are fetched ahead than there are", hint="prefetch: one_ahead, or as_read")
        if not count:
            return
        if self.unrolled:
            for n in range(int(count)):
                number = int(count) - 1 - n if loop.reverse else n
                yield from self.walk(loop.body, (*place, (loop.over, loop.start + number)))
            return
        for end in loop.ends:
            here, before = self.at(self.alive), loop.index(end, count)
            if before:
                here.repeat(loop, forms.Total((loop.count, num(-1))), before)
            yield from here.walk(loop.body, (*place, (loop.over, end)))
        self.skip(loop)


def size_names(body: Iterable[StorageEvent]) -> Iterator[str]:
    """The symbols of the sizes and counts of some instructions, in order."""
    for one in body:
        if isinstance(one, Loop):
            yield from forms.names(one.count)
            yield from size_names(one.body)
        elif isinstance(one, Keep):
            yield from forms.names(one.size)
            yield from forms.names(one.times)


def counts_of(body: Iterable[StorageEvent]) -> Iterator[Form]:
    """How often the loops among some instructions run, and how many pieces come and go, in order."""
    for one in body:
        if isinstance(one, Loop):
            yield one.count
            yield from counts_of(one.body)
        elif isinstance(one, Keep):
            yield one.times


def has_all(some: Amounts, others: Amounts) -> bool:
    """Whether there are as many of each piece as of others, or more."""
    return all(piece in some and some[piece][1] >= number for piece, (_, number) in others.items())
