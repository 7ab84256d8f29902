"""Sums in a number format, bit for bit: the same number added n times, in order, by pairs, or with compensation.

``s = round(s + x)`` n times from 0. The rounding of a sum depends on its binade and on whether its last bit is even,
and on nothing else; so within a binade the sum grows by the same step (or by two steps in turn), and a binade is passed
in one stride however many additions it takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from symcomm.core.dtypes import FORMATS, NumberFormat, Value, binade, decimal
from symcomm.core.errors import ValuesError
from symcomm.core.records import dataclass

REPLAYED = 200_000  # additions that are made one by one, where no stride is known
LONGEST = 10**30
_COMMON = ("fp16", "bf16", "fp32", "fp64")  # what two formats are promoted to


def promoted(x: NumberFormat, accumulator: NumberFormat) -> NumberFormat | None:
    """The format in which a sum of two formats is computed before it is stored in the accumulator's.

    None where the accumulator's has all numbers of x's. So PyTorch computes ``s += x`` of two tensors without axes.

    >>> promoted(FORMATS["fp32"], FORMATS["fp16"]).name, promoted(FORMATS["fp16"], FORMATS["fp32"])
    ('fp32', None)
    """
    if accumulator.contains(x):
        return None
    if x.contains(accumulator):
        return x
    both = next((f for f in map(FORMATS.__getitem__, _COMMON) if f.contains(x) and f.contains(accumulator)), None)
    if both is None:
        raise ValuesError(f"no format holds all numbers of {x.name} and of {accumulator.name}",
                          hint="round x to the format of the sum")  # fmt: skip
    return both


def added(a: Value, b: Value, accumulator: NumberFormat, through: NumberFormat | None = None) -> Value:
    """The rounded sum of two numbers; ``through`` is the format it is rounded to before, where there is one.

    >>> added(Fraction(256), Fraction(1), FORMATS["bf16"])
    Fraction(256, 1)
    """
    if isinstance(a, str) or isinstance(b, str):  # an infinity stays, two of different signs are no number
        found = {v for v in (a, b) if isinstance(v, str)}
        return found.pop() if len(found) == 1 else "nan"
    total: Value = a + b
    if through is not None:
        total = through.rounded(a + b)
    return total if isinstance(total, str) else accumulator.rounded(total)


@dataclass(frozen=True)
class Stride:
    """Additions that change the sum alike: it goes from ``start`` to ``stop`` in ``additions`` equal ``steps``."""

    start: Fraction
    stop: Value
    additions: int
    steps: tuple[Fraction, ...]  # two where halves are rounded to even in turn
    spacing: Fraction  # of the binade


@dataclass(frozen=True)
class RepeatedSum:
    """The sum of x added n times, with its strides and the addition after which it changes no more."""

    x: Fraction
    result: Value
    strides: tuple[Stride, ...]
    last_change: int | None  # the last addition that changes the sum, within n or later; None where it never stops
    end: Value | None  # the sum then
    overflow_at: int | None  # the addition that leaves the format (whole numbers wrap round), within n or later
    through: NumberFormat | None


def summed(x: Fraction, n: int, accumulator: NumberFormat, x_format: NumberFormat | None = None) -> RepeatedSum:
    """x added n times in an accumulator; x is rounded to its own format first, where it has one.

    Raises ``ValuesError`` for a number of additions that is negative or too large, and for an x that its format has no
    number for.

    >>> found = summed(Fraction(1, 100), 1000, FORMATS["fp16"], FORMATS["fp16"])
    >>> found.result, found.last_change, found.end
    (Fraction(637, 64), 2798, Fraction(32, 1))
    """
    check_count(n)
    x_format = x_format or accumulator
    start = x_format.rounded(x)
    if isinstance(start, str):
        raise ValuesError(f"{x_format.name} has no number near {decimal(x)}: it becomes {start}",
                          hint=f"its largest number is {decimal(x_format.largest)}")  # fmt: skip
    through = promoted(x_format, accumulator)
    if not accumulator.floating:
        return _wrapped(start, n, accumulator, through)
    strides: list[Stride] = []
    done, end, result = 0, Fraction(0), None
    overflow: int | None = None
    for stride in _strides(start, accumulator, through):
        if done < n:
            strides.append(_cut(stride, min(stride.additions, n - done)))
            result = strides[-1].stop
        done += stride.additions
        if isinstance(stride.stop, str):
            overflow = done
        else:
            end = stride.stop
    stops = overflow is None
    return RepeatedSum(start, Fraction(0) if result is None else result, tuple(strides), done if stops else None,
                  end if stops else None, overflow, through)  # fmt: skip


def check_count(n: int) -> None:
    """Raises ``ValuesError`` for a number of additions that is negative or too large."""
    if not 0 <= n <= LONGEST:
        raise ValuesError(f"{n if n < 0 else 'so many'} additions", hint="a whole number from 0 to 10^30")


def _cut(stride: Stride, additions: int) -> Stride:
    """The first additions of a stride."""
    if additions == stride.additions:
        return stride
    whole, rest = divmod(additions, len(stride.steps))
    stop = stride.start + whole * sum(stride.steps, Fraction(0)) + sum(stride.steps[:rest], Fraction(0))
    return Stride(stride.start, stop, additions, stride.steps, stride.spacing)


def _strides(x: Fraction, accumulator: NumberFormat, through: NumberFormat | None) -> Iterator[Stride]:
    """The strides of the sum from 0 on, until it changes no more or leaves the format."""
    s = Fraction(0)
    while True:
        after = added(s, x, accumulator, through)
        spacing = accumulator.spacing(s or x)
        if after == s:
            return
        if isinstance(after, str) or s == 0 or not (pair := _pair(s, after, x, accumulator, through)):
            stride = Stride(s, after, 1, () if isinstance(after, str) else (after - s,), spacing)
        else:
            # From here on a sum may leave the binade, or the format.
            far = min(Fraction(2) ** (binade(s) + 1), accumulator.largest) - abs(x) - abs(pair[0])
            both = sum(pair, Fraction(0))
            often = max(0, -(-(far - abs(s)) // abs(both)))
            if often < 2:
                stride = Stride(s, after, 1, (after - s,), spacing)
            else:
                steps = pair[:1] if pair[0] == pair[1] else pair
                stride = Stride(s, s + often * both, 2 * int(often), steps, spacing)
        yield stride
        if isinstance(stride.stop, str):
            return
        s = stride.stop


def _pair(
    s: Fraction, after: Fraction, x: Fraction, accumulator: NumberFormat, through: NumberFormat | None
) -> tuple[Fraction, Fraction] | None:
    """Two steps after which the last bit is as before; None where they leave the binade, or it is not."""
    again = added(after, x, accumulator, through)
    if isinstance(again, str) or abs(again) + abs(x) >= Fraction(2) ** (binade(s) + 1):
        return None
    spacing = accumulator.spacing(s)
    if again == after or ((again - s) / spacing) % 2:
        return None  # the next pair begins with another last bit
    return after - s, again - after


def _wrapped(x: Fraction, n: int, accumulator: NumberFormat, through: NumberFormat | None) -> RepeatedSum:
    """Whole numbers: n x modulo the number of codes."""
    if through is not None and through.floating:
        raise ValuesError(f"numbers in {through.name} are not added up in {accumulator.name}",
                          hint="PyTorch refuses it; NumPy would cut off what is behind the point")  # fmt: skip
    result = accumulator.rounded(n * x)
    assert not isinstance(result, str)
    edge = accumulator.largest if x > 0 else accumulator.least
    fits = int(edge // x) if x else 0
    stride = (Stride(Fraction(0), result, n, (x,), Fraction(1)),) if n and n <= fits else ()
    return RepeatedSum(x, result, stride, None if x else 0, None if x else x, fits + 1 if x else None, through)


def replayed(x: Fraction, n: int, accumulator: NumberFormat) -> Fraction | None:
    """x added n times one by one, on whole numbers of the smallest spacing whose bits are cut: what a witness does.

    None where the sum leaves the format. Shares no code with ``rounded``: bits are shifted out, and the last one kept
    goes up where more than half is lost, or half and it is odd.

    >>> replayed(Fraction(1311, 2**17), 1000, FORMATS["fp16"])
    Fraction(637, 64)
    """
    if not accumulator.floating:
        s = 0
        for _ in range(n):
            s = (s + int(x) + 2**accumulator.mantissa) % 2**accumulator.bits - 2**accumulator.mantissa
        return Fraction(s)
    finest = min(accumulator.smallest_subnormal, Fraction(1, x.denominator))
    unit = int(1 / finest) if finest < 1 else 1
    least = int(accumulator.smallest_subnormal * unit)
    step, s, edge = int(x * unit), 0, int(accumulator.largest * unit)
    for _ in range(n):
        total, before = s + step, s
        size = abs(total)
        lost = max(size.bit_length() - accumulator.mantissa - 1, least.bit_length() - 1, 0)
        kept, rest = size >> lost, size & ((1 << lost) - 1)
        half = 1 << lost >> 1
        kept += rest > half or (rest == half and lost > 0 and kept & 1)
        s = kept << lost if total >= 0 else -(kept << lost)
        if abs(s) > edge:
            return None
        if s == before:
            break
    return Fraction(s, unit)


def pairwise(x: Fraction, n: int, accumulator: NumberFormat) -> Value:
    """The sum of n numbers x by halves: that of the first half and that of the second, added.

    Equal halves have equal sums, so that few different ones are needed.

    >>> pairwise(Fraction(1), 4096, FORMATS["fp16"])
    Fraction(4096, 1)
    """
    check_count(n)
    known: dict[int, Value] = {0: Fraction(0), 1: accumulator.rounded(x)}

    def of(count: int) -> Value:
        if count not in known:
            known[count] = added(of(count - count // 2), of(count // 2), accumulator)
        return known[count]

    return of(n)


def compensated(x: Fraction, n: int, accumulator: NumberFormat) -> Value:
    """The sum of n numbers x by Kahan's method: what an addition loses is taken off the next number.

    Source: Kahan, Pracniques: further remarks on reducing truncation errors, CACM 8 (1965). Raises ``ValuesError`` for
    more additions than are made one by one.

    >>> compensated(Fraction(1, 100), 1000, FORMATS["fp16"])
    Fraction(10, 1)
    """
    check_count(n)
    if n > REPLAYED:
        raise ValuesError(f"a compensated sum of {n} numbers is made one by one", hint=f"at most {REPLAYED}")
    s: Value = Fraction(0)
    lost: Value = Fraction(0)
    value = accumulator.rounded(x)
    for _ in range(n):
        y = added(value, _negative(lost), accumulator)
        t = added(s, y, accumulator)
        lost = added(added(t, _negative(s), accumulator), _negative(y), accumulator)
        s = t
        if isinstance(s, str):
            break
    return s


def _negative(value: Value) -> Value:
    if isinstance(value, str):
        return "nan" if value == "nan" else "-inf" if value == "inf" else "inf"
    return -value
