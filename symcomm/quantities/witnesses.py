"""What witnesses of rules are made of: loops that are run, tensors that are laid out, exchanges that are simulated.

A witness is given numbers and says what a step has to be worth there. It knows the graph and the program, and none of
the formulas: counts are those of Python's own loops and NumPy's own arrays.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING

from symcomm import form as forms
from symcomm.derivation import Numbers, Witness
from symcomm.form import Form
from symcomm.graph.graph import Graph, Op, Region, Tensor

if TYPE_CHECKING:
    from sympy import Expr

_LITERAL = 5_000  # passes that are run one by one; more are multiplied


def number(form: Form, numbers: Numbers) -> Fraction:
    """What a form that was given, such as a degree or a rate, is worth."""
    return forms.evaluate(form, numbers.of(forms.names(form)))


def size(expr: Expr, numbers: Numbers) -> Fraction:
    """The length of an axis."""
    return number(forms.from_expr(expr), numbers)


def passes(lengths: Iterable[Fraction]) -> Fraction:
    """How often the body of nested loops runs.

    >>> passes([Fraction(2), Fraction(3)])
    Fraction(6, 1)
    """
    lengths, every = list(lengths), Fraction(1)
    for length in lengths:
        every *= length
    if every > _LITERAL or any(length.denominator != 1 for length in lengths):
        return every
    return Fraction(sum(1 for _ in product(*(range(int(length)) for length in lengths))))


def loops(graph: Graph, op: Op, numbers: Numbers) -> dict[int, Fraction]:
    """The length of each loop of an op."""
    return {index: size(graph.axes[axis].size, numbers) for index, axis in graph.index_axes(op).items()}


def elements(graph: Graph, tensor: Tensor, numbers: Numbers) -> Fraction:
    """The numbers in a tensor."""
    return passes(size(one, numbers) for one in graph.sizes(tensor.name))


def often(region: Region, numbers: Numbers) -> Fraction:
    """How often a region stands."""
    return numbers[region.times] if region.times else Fraction(1)


def over(above: Form, below: Form) -> Witness:
    """What is measured in parts: so much of it that the parts make up the whole.

    >>> from symcomm.derivation import Relations
    >>> from symcomm.form import Sym
    >>> over(Sym("F"), Sym("R"))(Numbers({"F": Fraction(6), "R": Fraction(4)}, Relations()))
    Fraction(3, 2)
    """
    return lambda numbers: number(above, numbers) / number(below, numbers)


def together(names: Sequence[Form]) -> Witness:
    """All of some earlier steps, one after the other."""

    def counted(numbers: Numbers) -> Fraction:
        found = Fraction(0)
        for name in names:
            found += number(name, numbers)
        return found

    return counted


def largest(names: Sequence[Form]) -> Witness:
    """The one of some earlier steps that ends last."""
    return lambda numbers: sorted(number(name, numbers) for name in names)[-1]


@lru_cache(maxsize=256)
def ring(kind: str, ranks: int) -> tuple[Fraction, Fraction, int] | None:
    """A ring of ranks that pass chunks on: the share of the payload that a rank sends, sends and receives, the rounds.

    None for what no ring does.

    >>> ring("all-reduce", 4)
    (Fraction(3, 2), Fraction(3, 1), 6)
    """
    if kind not in ("all-reduce", "all-gather", "reduce-scatter"):
        return None
    # Which ranks' parts each rank has of each chunk; a chunk is done where all parts are in it.
    whole = frozenset(range(ranks))
    gather = kind == "all-gather"
    held = [[whole if gather and chunk == rank else frozenset[int]() if gather else frozenset({rank})
             for chunk in range(ranks)] for rank in range(ranks)]  # fmt: skip
    sent = rounds = 0
    for phase in ("reduce", "gather"):
        if kind not in ("all-reduce", "reduce-scatter" if phase == "reduce" else "all-gather"):
            continue
        # In the first phase rank r ends with chunk r + 1; an all-gather begins with chunk r.
        first = 0 if phase == "reduce" or gather else 1
        for step in range(ranks - 1):
            moving = [(rank, (rank + first - step) % ranks, held[rank][(rank + first - step) % ranks])
                      for rank in range(ranks)]  # fmt: skip
            for rank, chunk, parts in moving:
                held[(rank + 1) % ranks][chunk] |= parts
            sent, rounds = sent + 1, rounds + 1
    done = [sum(parts == whole for parts in mine) for mine in held]
    assert done == [1 if kind == "reduce-scatter" else ranks] * ranks, "the ring does not do what it is to do"
    return Fraction(sent, ranks), Fraction(2 * sent, ranks), rounds
