"""Brute-force runs that bear out the lines of worksheets: ``run: NAME(formula, ...)`` behind a reason.

A run knows what a line is worth, or whether its number is right, without the line's formula: messages that follow one
another, a search for the least, a slope over a small step, or the number put back into what it was solved from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from functools import lru_cache, partial
from itertools import product
from typing import TYPE_CHECKING

from symcomm.core import form as forms
from symcomm.core.derivation import Numbers, Witness, worked_out
from symcomm.core.errors import ValuesError
from symcomm.core.form import Form, Sym
from symcomm.core.libraries import mpmath, sp
from symcomm.core.records import dataclass

if TYPE_CHECKING:
    from mpmath import mpf

_EVENTS = 1_000_000  # of a run that is made one by one
_HAIR = Fraction(1, 10**8)  # of a place, to both sides of it
_NEAR = Fraction(1, 10**15)  # of a number that a search or a small step finds
_DIGITS, _TURNS = 120, 120  # of a search for the least


def chain(chunks: Fraction, links: Fraction, size: Fraction, rate: Fraction, latency: Fraction) -> Fraction:
    """When the last chunk has crossed the last link: a chunk waits for the link, and a link for the chunk.

    >>> chain(Fraction(2), Fraction(3), Fraction(8), Fraction(4), Fraction(1))
    Fraction(8, 1)
    """
    free = [Fraction(0)] * _whole(links, "links", chunks)
    arrived = Fraction(0)
    for _ in range(_whole(chunks, "chunks")):
        arrived = Fraction(0)
        for link, idle in enumerate(free):
            free[link] = arrived = max(arrived, idle) + latency + size / chunks / rate
    return arrived


def queued(buckets: Iterable[tuple[Fraction, Fraction]]) -> Fraction:
    """The communication left after backward, from the times to compute and to send each bucket, one after the other.

    A call starts when its bucket is there and the link is free.

    >>> queued([(Fraction(1), Fraction(2)), (Fraction(1), Fraction(2))])
    Fraction(3, 1)
    """
    ready = free = Fraction(0)
    for each, call in buckets:
        ready += each
        free = max(ready, free) + call
    return free - ready


def copies(*groups: Fraction) -> Fraction:
    """When the last message is there, one after another: groups of how many, their bytes, their rate, their latency.

    >>> copies(*map(Fraction, (1, 8, 2, 0, 3, 8, 4, 1)))
    Fraction(13, 1)
    """
    clock = Fraction(0)
    for many, size, rate, latency in zip(*[iter(groups)] * 4, strict=True):
        for _ in range(_whole(many, "copies")):
            clock += latency + size / rate
    return clock


def loops(*lengths: Fraction) -> Fraction:
    """How often the body of nested loops runs; lengths that are too large or no whole numbers are multiplied.

    >>> loops(Fraction(2), Fraction(3))
    Fraction(6, 1)
    """
    every = Fraction(1)
    for length in lengths:
        every *= length
    if every > _EVENTS / 100 or any(length.denominator != 1 for length in lengths):
        return every
    return Fraction(sum(1 for _ in product(*(range(int(length)) for length in lengths))))


def fits(room: Fraction, each: Fraction) -> Fraction:
    """How many of a size fit into a room: twice as many until they do not, then halfway between.

    >>> fits(Fraction(7), Fraction(2))
    Fraction(3, 1)
    """
    if each <= 0:
        raise ValuesError(f"{each} is no size: any number of them fits")
    least, most = 0, 1
    while most * each <= room:
        least, most = most, 2 * most
    while most - least > 1:
        half = (least + most) // 2
        least, most = (half, most) if half * each <= room else (least, half)
    return Fraction(least)


def adds(*terms: Fraction) -> Fraction:
    """Terms added up one by one."""
    found = Fraction(0)
    for term in terms:
        found += term
    return found


def pairs_seen(parts: Fraction, length: Fraction, each: Fraction) -> Fraction:
    """The pairs of a causal mask that each of some equal parts has, counted query by query, at so much a pair.

    >>> pairs_seen(Fraction(2), Fraction(4), Fraction(1))
    Fraction(5, 1)
    """
    return sum((Fraction(query) for query in range(1, _whole(length, "positions") + 1)), Fraction(0)) * each / parts


def hits(experts: Fraction, chosen: Fraction, tokens: Fraction) -> Fraction:
    """The experts that tokens hit on average: of those that are left each token hits its share.

    >>> hits(Fraction(8), Fraction(2), Fraction(2))
    Fraction(7, 2)
    """
    hit = Fraction(0)
    for _ in range(_whole(tokens, "tokens")):
        hit += (experts - hit) * chosen / experts
    return hit


def causal_pairs(order: Fraction, length: Fraction, ranks: Fraction, rank: Fraction) -> Fraction:
    """The pairs of one rank under a causal mask, query by query: zigzag (0), contiguous (1) or striped (2).

    >>> [causal_pairs(Fraction(n), Fraction(8), Fraction(2), Fraction(1)) for n in range(3)]
    [Fraction(18, 1), Fraction(26, 1), Fraction(20, 1)]
    """
    many, k, r = _whole(length, "positions"), int(ranks), int(rank)
    if order == 0 and many % (2 * k):  # a half of a part is no whole number: all ranks have as many
        return pairs_seen(ranks, length, Fraction(1))
    half = many // (2 * k)
    mine = {
        0: (*range(r * half, (r + 1) * half), *range((2 * k - 1 - r) * half, (2 * k - r) * half)),
        1: range(r * many // k, (r + 1) * many // k),
        2: range(r, many, k),
    }[int(order)]
    return Fraction(sum(query + 1 for query in mine))


def ring(ranks: Fraction, own: Fraction, block: Fraction, behind: Fraction, send: Fraction) -> Fraction:
    """When the last rank has worked on all blocks: each is passed on as soon as it is there and its place is free.

    A rank has two places. It works on a block of a rank before it for one time, on one from ``behind`` for another.

    >>> ring(*map(Fraction, (4, 3, 3, 3, 2)))
    Fraction(12, 1)
    """
    k = _whole(ranks, "ranks")
    there = [[Fraction(0)] * k for _ in range(k)]  # when a rank has the block of each step
    done = [[own] * k for _ in range(k)]  # when it has worked on it
    for step in range(1, k):
        for rank in range(k):
            before = (rank - 1) % k
            free = max(done[rank][step - 2], there[(rank + 1) % k][step - 1]) if step > 1 else Fraction(0)
            there[rank][step] = max(there[before][step - 1], there[rank][step - 1], free) + send
        for rank in range(k):
            earlier = step <= rank  # the block is of a rank before it
            done[rank][step] = max(done[rank][step - 1], there[rank][step]) + (block if earlier else behind)
    return max(one[-1] for one in done)


def _whole(many: Fraction, what: str, times: Fraction = Fraction(1)) -> int:
    if many.denominator != 1 or many * times > _EVENTS:
        raise ValuesError(f"{many} {what} cannot be followed one by one")
    return int(many)


def same(_: Fraction, numbers: Numbers, left: Form, right: Form) -> bool:
    """Whether both formulas have one number, where what was solved for is put in."""
    a, b = worked_out(left, numbers), worked_out(right, numbers)
    return abs(a - b) * 10**30 <= abs(a)


def slope(found: Fraction, numbers: Numbers, cost: Form, over: Form) -> bool:
    """Whether the number is the slope of a formula over a symbol: its difference over a small step."""
    name = _name(over)
    step = numbers[name] / 10**9
    up, down = (worked_out(cost, numbers.moved(name, numbers[name] + way * step)) for way in (1, -1))
    measured = (up - down) / (2 * step)
    return abs(measured - found) <= (abs(found) + abs(measured)) / 10**9


def _lowest(numbers: Numbers, cost: Form, over: Form, other: Form, held: Form) -> tuple[mpf, mpf]:
    """Where a formula is least, and how little that is, while ``other`` is what ``held`` says."""
    name, bound = _name(over), _name(other)
    form = forms.substitute(cost, lambda s: held if s.name == bound else s)
    return _valley(form, name, tuple((n, numbers[n]) for n in forms.names(form) if n != name))


@lru_cache(maxsize=64)
def _valley(form: Form, name: str, numbers: tuple[tuple[str, Fraction], ...]) -> tuple[mpf, mpf]:
    """The place of the least of a formula over a symbol, and its worth, by dividing in three."""
    symbols = {s.name: s for s in forms.value(form).free_symbols}
    others = [n for n in symbols if n != name]
    run: Callable[..., mpf] = sp.lambdify([symbols[name], *(symbols[n] for n in others)], forms.value(form), "mpmath")
    with mpmath.workdps(_DIGITS):
        known = [mpmath.mpf(dict(numbers)[n].numerator) / dict(numbers)[n].denominator for n in others]

        def worth(x: mpf) -> mpf:
            return run(x, *known)

        low, high = mpmath.mpf(-1000), mpmath.mpf(1000)  # powers of e: along them the formula has one valley
        for _ in range(_TURNS):
            third = (high - low) / 3
            left, right = low + third, high - third
            if worth(mpmath.exp(left)) <= worth(mpmath.exp(right)):
                high = right
            else:
                low = left
        place = mpmath.exp(low)
        return +place, +worth(place)


def _near(found: Fraction, measured: mpf) -> bool:
    with mpmath.workdps(60):
        near = Fraction(str(measured)) if measured else Fraction(0)
    return abs(near - found) <= _NEAR * abs(found)


def least_at(found: Fraction, numbers: Numbers, *search: Form) -> bool:
    """Whether a formula is least there, of one symbol while another one is held to what a third formula says."""
    return _near(found, _lowest(numbers, *search)[0])


def least(found: Fraction, numbers: Numbers, *search: Form) -> bool:
    """Whether a formula is never less, in the same search."""
    return _near(found, _lowest(numbers, *search)[1])


def exponent(found: Fraction, numbers: Numbers, *search: Form) -> bool:
    """Whether the place of the least grows as this power of a symbol: it is looked for once more, at twice as much."""
    *asked, of = search
    twice = numbers.moved(_name(of), 2 * numbers[_name(of)])
    with mpmath.workdps(_DIGITS):
        grown = _lowest(twice, *asked)[0] / _lowest(numbers, *asked)[0]
        return _near(found, mpmath.log(grown, 2))


def best(_: Fraction, numbers: Numbers, cost: Form, over: Form, place: Form) -> bool:
    """Whether a formula is least at a place of a symbol that is at least one: it is no less a little beside it."""
    at = worked_out(place, numbers)
    beside = (max(Fraction(1), at * (1 + way)) for way in (0, -_HAIR, _HAIR))
    here, *others = (worked_out(cost, numbers.moved(_name(over), one)) for one in beside)
    return at >= 1 and here * (1 - _HAIR**3) <= min(others)


def lambert(found: Fraction, numbers: Numbers, cost: Form, between: Form) -> bool:
    """Whether e^((t + d)/M) (1 - t/M) = 1 nearly holds: the expected time of work between failures is least there."""
    d, m = (worked_out(form, numbers) for form in (cost, between))
    with mpmath.workdps(60):
        delta = mpmath.mpf(d.numerator) / d.denominator * m.denominator / m.numerator
        exact = 1 + mpmath.lambertw(-mpmath.exp(-1 - delta)).real
        near = mpmath.mpf(found.numerator) / found.denominator * m.denominator / m.numerator
        return bool(abs(near - exact) <= (2 * delta) ** 3 / 10**4)


def repeated(found: Fraction, numbers: Numbers, work: Form, cost: Form, restart: Form, between: Form) -> bool:
    """Whether work that starts again after every failure nearly takes so long: e^(R/M) (e^((t + d)/M) - 1) M/t."""
    t, d, r, m = (worked_out(form, numbers) for form in (work, cost, restart, between))
    with mpmath.workdps(_DIGITS):
        x, y, share = (mpmath.mpf(one.numerator) / one.denominator for one in ((t + d) / m, r / m, m / t))
        exact = mpmath.exp(y) * mpmath.expm1(x) * share
        near = mpmath.mpf(found.numerator) / found.denominator
        return bool(abs(exact - near) <= (x**4 / 700 + y**3 / 10) * exact)


def _name(form: Form) -> str:
    assert isinstance(form, Sym)
    return form.name


@dataclass(frozen=True)
class LineRun:
    """A run: how many formulas it takes (of a group that may come again), at which places symbols stand, and itself.

    ``counts`` are given numbers and say what a line is worth; others are given its number and formulas to work out,
    ``written_out`` those whose symbols it moves.
    """

    run: Callable[..., Fraction | bool]
    formulas: int
    again: bool = False
    symbols: tuple[int, ...] = ()
    counts: bool = True
    written_out: bool = False


RUNS: dict[str, LineRun] = {
    "chain": LineRun(chain, 5),
    "copies": LineRun(copies, 4, again=True),
    "loops": LineRun(loops, 1, again=True),
    "fits": LineRun(fits, 2),
    "adds": LineRun(adds, 1, again=True),
    "queued": LineRun(lambda many, each, call: queued([(each, call)] * _whole(many, "buckets")), 3),
    "hits": LineRun(hits, 3),
    "pairs_seen": LineRun(pairs_seen, 3),
    "causal_pairs": LineRun(causal_pairs, 4),
    "ring": LineRun(ring, 5),
    "best": LineRun(best, 3, symbols=(1,), counts=False, written_out=True),
    "same": LineRun(same, 2, counts=False),
    "lambert": LineRun(lambert, 2, counts=False),
    "repeated": LineRun(repeated, 4, counts=False),
    "slope": LineRun(slope, 2, symbols=(1,), counts=False, written_out=True),
    "least_at": LineRun(least_at, 4, symbols=(1, 2), counts=False, written_out=True),
    "least": LineRun(least, 4, symbols=(1, 2), counts=False, written_out=True),
    "exponent": LineRun(exponent, 5, symbols=(1, 2, 4), counts=False, written_out=True),
}


def witness(name: str, line: str, args: Callable[[], Sequence[Form]]) -> Witness:
    """The witness that a run is of a line; ``args`` are its formulas, written out when somebody checks it."""
    record = RUNS[name]

    def seen(numbers: Numbers) -> Fraction | bool:
        if record.counts:
            return record.run(*(worked_out(form, numbers) for form in args()))
        return partial(record.run, numbers[line], numbers)(*args())

    return seen
