"""Building blocks for witnesses of rules: loops that run, tensors that are laid out, exchanges that are simulated.

A witness is given numbers and says what a step has to be worth there. It knows the graph and the program, and none of
the formulas: counts are those of Python's own loops and NumPy's own arrays.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from heapq import heappop, heappush
from itertools import product
from math import comb, prod

from symcomm.core import form as forms
from symcomm.core.accounting import Accounting
from symcomm.core.collectives.algorithms import algorithm
from symcomm.core.collectives.messages import ExchangeCost, run
from symcomm.core.derivation import Numbers
from symcomm.core.form import Form
from symcomm.core.graph.experts import DECIMALS, FEW, rounded_experts
from symcomm.core.graph.graph import Graph, Op, Region, Tensor
from symcomm.core.libraries import Expr

_FEW_TOKENS = 1_000
_LITERAL = 5_000  # passes that are run one by one; more are multiplied


def number(form: Form, numbers: Numbers) -> Fraction:
    """The number of a given form, such as a degree or a rate."""
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


def laid_out(tensors: Iterable[tuple[Form, Iterable[Expr], Fraction]], numbers: Numbers) -> Fraction:
    """The bytes of tensors, one by one: each as often as it is there, with its sizes and the bytes of a number."""
    found = Fraction(0)
    for times, sizes, wide in tensors:
        found += number(times, numbers) * passes(size(one, numbers) for one in sizes) * wide
    return found


def experts_hit(convention: str, every: Fraction, chosen: Fraction, tokens: Fraction) -> Fraction:
    """The experts that tokens read, token by token: each goes to one of the sets of so many experts, all alike.

    >>> experts_hit("expected", Fraction(8), Fraction(2), Fraction(2))
    Fraction(7, 2)
    """
    if convention == "every_expert":
        return every
    if convention == "at_least":
        return min(every, chosen)
    if convention == "at_most":
        return min(every, chosen * tokens)
    if chosen >= every:
        return every
    sets = all(number.denominator == 1 for number in (every, chosen))
    without = Fraction(comb(int(every) - 1, int(chosen)), comb(int(every), int(chosen))) if sets else 1 - chosen / every
    if tokens.denominator != 1 or tokens > _FEW_TOKENS:
        return rounded_experts(every, without, tokens)
    missed = Fraction(1)
    for _ in range(int(tokens)):
        missed *= without
    found = every * (1 - missed)
    return found if tokens <= FEW else round(found, DECIMALS)


def often(region: Region, numbers: Numbers) -> Fraction:
    """How often a region occurs."""
    return numbers[region.times] if region.times else Fraction(1)


def in_turn(times: Sequence[Fraction], groups: int, rounds: int, hop: Fraction = Fraction(0)) -> list[Fraction]:
    """When the last of several groups leaves the last of several stages, round by round, event by event.

    A group begins its next round when it has ended one; each stage serves groups as they arrive.

    >>> in_turn([Fraction(3), Fraction(5)], 2, 3)
    [Fraction(13, 1), Fraction(23, 1), Fraction(33, 1)]
    """
    arriving = [(Fraction(0), group, 0) for group in range(groups)]
    free, ends = [Fraction(0)] * len(times), list[Fraction]()
    while len(ends) < rounds:
        now, group, stage = heappop(arriving)
        free[stage] = end = max(now, free[stage]) + times[stage]
        if stage == len(times) - 1 and group == groups - 1:
            ends.append(end)
        heappush(arriving, (end + hop, group, (stage + 1) % len(times)))
    return ends


def between_tokens(times: Sequence[Fraction], groups: int, hop: Fraction = Fraction(0)) -> Fraction:
    """The time between two tokens of a group, where all of them follow one another through stages for ever.

    >>> between_tokens([Fraction(3), Fraction(5)], 2)
    Fraction(10, 1)
    """
    ends = in_turn(times, groups, 3 * groups + 3, hop)  # gaps are alike once all groups are spread out
    return ends[-1] - ends[-2]


def ran(
    kind: str, name: str, ranks: Fraction, numbers: Numbers, both: bool = False, torus: str = Accounting.torus
) -> ExchangeCost | None:  # fmt: skip
    """A call with a payload of one, run message by message under its algorithm; None for what is not run so.

    ``both`` ways round a ring are used at once, the axes of a ``torus`` as its convention says.

    >>> from symcomm.core.derivation import Relations
    >>> made = ran("all-reduce", "ring", Fraction(4), Numbers({}, Relations()))
    >>> made.sent, made.moved, made.rounds
    (Fraction(3, 2), Fraction(3, 1), 6)
    """
    record = algorithm(name)
    sizes = [numbers[name] for name in record.inner]
    sizes += [ranks / prod(sizes)] if sizes else []
    whole = all(size.denominator == 1 for size in (ranks, *sizes))
    if not whole or (both and ranks % 2):
        return None
    return run(record.name, kind, int(ranks), Fraction(1), None, 1, tuple(map(int, sizes)), both,
               record.uses_at_once(torus))  # fmt: skip
