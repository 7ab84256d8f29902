"""The sum of a number added n times in a number format, bit for bit, and where it stops growing."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Annotated, Literal

from symcomm.core.derivation import Derivation, Exhibit, Numbers, exact
from symcomm.core.dtypes import NumberFormat, Value, decimal, number_format
from symcomm.core.errors import ValuesError
from symcomm.core.form import Form, Related, Sym, Total, called, num
from symcomm.core.quantities.declared import Meaning, OneOf, Reads
from symcomm.core.quantities.options import NoModel
from symcomm.core.setting import StepWriter
from symcomm.core.units import ONE, Quantity
from symcomm.teaching import sums
from symcomm.teaching.quantities.numbers.formats import Number, apart, round_step, told

_ROWS = 40  # binades that are shown
_REPLAYED = 2_000  # additions that a witness makes one by one
_METHODS = {"in_order": "one after the other", "pairwise": "by halves", "compensated": "with compensation (Kahan)"}
_S, _C, _X, _Y, _T = map(Sym, ("s", "c", "x_r", "y", "t"))


def _rounded(*terms: Form) -> Form:
    return called("round", Total(terms))


_ADDED = {
    method: Exhibit("One addition", ("computed", "meaning"), tuple((Related(a, b), told) for a, b, told in rows),
                    place="before")
    for method, rows in {
        "pairwise": [(_S, _rounded(Sym("s_left"), Sym("s_right")), "the sums of both halves, added and rounded")],
        "compensated": [(_Y, _rounded(_X, -_C), "the addend without what was added too much before"),
                        (_T, _rounded(_S, _Y), "the new sum"),
                        (_C, _rounded(_rounded(_T, -_S), -_Y), "what this addition added too much")],
    }.items()
}  # fmt: skip
Accumulator = Annotated[str, Reads("dtype"), Meaning("the number format of the sum")]


def derive(
    setting: NoModel,
    x: Number,
    n: Annotated[int, Reads("count"), Meaning("the number of additions")],
    accumulator: Accumulator,
    x_format: Annotated[
        str | None, Reads("dtype"), Meaning("the number format of the addends; default: the format of the sum")
    ] = None,
    method: Annotated[str, OneOf(tuple(_METHODS)), Meaning("the order of the additions")] = "in_order",
    want: Annotated[
        Literal[
            "sum", "error", "representation_error", "accumulation_error", "bound", "last_change", "limit", "overflow"
        ],
        Meaning("the result to derive"),
    ] = "sum",
) -> Derivation:
    """The sum of a number added n times in a number format.

    From 0, x is rounded to its own format once and each sum to that of the accumulator, to nearest, ties to even. The
    ``error`` against n x is that of rounding x (``representation_error``) and that of the additions
    (``accumulation_error``) together. ``last_change`` is the number of the last addition that changes the sum (perhaps
    after n), ``limit`` the sum that it stops at, ``overflow`` the addition at which it leaves the format. ``bound`` is
    what the accumulation error can be at most for n numbers of this size.

    >>> from symcomm.core.graph.graph import Graph
    >>> from symcomm.core.setting import Setting
    >>> setting = Setting(Graph("no model", {}, {}, ()))
    >>> str(derive(setting, "0.01", 1000, "fp16").at())
    '637/64 ≈ 9.95312'
    >>> str(derive(setting, "0.01", 1000, "fp32", "fp16", want="accumulation_error").at())
    '0'
    """
    f, own, given = number_format(accumulator), number_format(x_format or accumulator), exact(x, "x")
    if x_format and own is not f and method != "in_order":
        raise ValuesError(f"numbers in {own.name} are added {_METHODS[method]} in their own format here",
                          hint="leave out x_format, or add in order")  # fmt: skip
    found = sums.summed(given, n, f, own)
    work = StepWriter(setting)
    start = round_step(work, given, own)
    title = f"{decimal(given)} added {n} times in {f.name}"
    notes = _notes(found, own, f, n, method)
    exhibits = [_strides(found)] if method == "in_order" and found.strides else []
    exhibits += [_ADDED[method]] if want == "sum" and method in _ADDED else []
    if want in ("last_change", "limit", "overflow"):
        _ends(work, found, f, want, method)
    elif want == "representation_error":
        _representation(work, start, given, n)
    elif want == "bound":
        _bound(work, start, f, n, method)
    else:
        value = _sum(work, found, f, n, method, "" if found.x == given else f" ({decimal(given)} in {own.name})")
        if want == "accumulation_error":
            _accumulation(work, value, start, n)
        elif want == "error":
            one, other = _representation(work, start, given, n), _accumulation(work, value, start, n)
            work.define("E", one + other, ONE, "add", "Both errors together: the sum minus n x.",
                        witness=lambda numbers: numbers["s_n"] - n * given)  # fmt: skip
    return setting.derivation(title, work.steps, exhibits=exhibits, notes=notes)


def _notes(found: sums.RepeatedSum, own: NumberFormat, f: NumberFormat, n: int, method: str) -> list[str]:
    notes = []
    if found.through is not None:
        told = "it goes through" if found.through.name == own.name else "both go through"
        notes.append(
            f"{own.name} is not contained in {f.name}: {told} {found.through.name}, and each sum is rounded twice."
        )
    if method != "in_order":
        return notes
    if found.overflow_at is not None and found.overflow_at <= n:
        what = "leaves the format" if f.floating else "wraps round"
        notes.append(f"Addition {found.overflow_at} is the first at which the sum {what}.")
    elif found.last_change is not None and found.last_change < n:
        notes.append(f"The last {n - found.last_change} additions change nothing: "
                     f"{decimal(found.x)} is at most half of the spacing there.")  # fmt: skip
    return notes


def _sum(work: StepWriter, found: sums.RepeatedSum, f: NumberFormat, n: int, method: str, own: str) -> Form:
    value: Value = found.result
    if method != "in_order":
        value = (sums.pairwise if method == "pairwise" else sums.compensated)(found.x, n, f)
    if isinstance(value, str):
        at = f" at addition {found.overflow_at}" if method == "in_order" else ""
        raise ValuesError(f"the sum becomes {value}{at}", hint="want: overflow")
    text = f"{n} additions of {told(found.x)}{own} {_METHODS[method]}, each rounded to {f.name}."
    return work.define("s_n", num(value), ONE, "add and round", text,
                       witness=partial(_again, found, f, n, method))  # fmt: skip


def _again(
    found: sums.RepeatedSum, f: NumberFormat, n: int, method: str, numbers: Numbers
) -> Fraction | bool:  # fmt: skip
    """The sum made again one by one; of many additions the first ones, and that the end is as far off as may be."""
    few, x, claimed = min(n, _REPLAYED), found.x, numbers["s_n"]
    near = abs(claimed - n * x) <= _depth(n, method) * f.unit_roundoff * n * abs(x)
    if method == "compensated":
        return abs(claimed - n * x) <= max(f.spacing(claimed), 4 * n * n * f.unit_roundoff**2 * abs(x))
    if method == "pairwise":
        return _told(_halved([x] * n, f)) if n <= _REPLAYED else near
    if found.through is None:
        s = sums.replayed(x, few, f)
        if few == n or s == sums.replayed(x, few - 1, f):  # whole, or nothing is added any more
            return _told(s)
        return near and s == sums.summed(x, few, f, None).result
    one: Value = Fraction(0)
    for _ in range(few):
        one = sums.added(one, x, f, found.through)
    return _told(one) if few == n else near and one == sums.summed(x, few, f, found.through).result


def _told(value: Value | None) -> Fraction | bool:
    """A sum as a witness says it: one that leaves the format bears nothing out."""
    return value if isinstance(value, Fraction) else False


def _halved(numbers: list[Fraction], f: NumberFormat) -> Fraction | None:
    if len(numbers) < 2:
        return numbers[0] if numbers else Fraction(0)
    middle = len(numbers) - len(numbers) // 2
    parts = [_halved(numbers[:middle], f), _halved(numbers[middle:], f)]
    if None in parts:
        return None
    made = f.rounded(sum((part for part in parts if part is not None), Fraction(0)))
    return None if isinstance(made, str) else made


def _representation(work: StepWriter, start: Form, x: Fraction, n: int) -> Form:
    return work.define("E_x", num(n) * (start - x), ONE, "representation",
                       "Error from rounding the number itself, n times; no accumulator can undo it.",
                       witness=lambda numbers: n * numbers["x_r"] - n * x)  # fmt: skip


def _accumulation(work: StepWriter, value: Form, start: Form, n: int) -> Form:
    return work.define("E_s", value + num(-n) * start, ONE, "accumulation",
                       "The sum minus n times the rounded number: the error of the additions.",
                       witness=lambda numbers: numbers["s_n"] - n * numbers["x_r"])  # fmt: skip


def _bound(work: StepWriter, start: Form, f: NumberFormat, n: int, method: str) -> None:
    """What the additions can lose at most.

    Sources: for sums in any order Jeannerod and Rump, Improved error bounds for inner products in floating-point
    arithmetic, SIAM J. Matrix Anal. Appl. 34 (2013); Higham, Accuracy and Stability of Numerical Algorithms, 2002, 4.2.
    """
    if not f.floating:
        raise ValuesError(f"sums in {f.name} are exact until they wrap round", hint="want: overflow")
    if method == "compensated":
        raise ValuesError("the bound of a compensated sum has terms of higher order that are not exact",
                          hint="about 2 u n x; ask for in_order or pairwise")  # fmt: skip
    text = f"Half the distance from 1 to the next number of {f.name}."
    u = work.define("u", num(f.unit_roundoff), ONE, "unit roundoff", text,
                    witness=lambda numbers: f.spacing(Fraction(1)) / 2)  # fmt: skip
    rounds = max(n - 1, 0) if method == "in_order" else max(n - 1, 0).bit_length()
    text = {"in_order": "The first addition (to 0) is exact; each later one is off by at most u times the sum.",
            "pairwise": "A number goes through as many additions as n can be halved."}[method]  # fmt: skip
    depth = work.define("h", num(rounds), ONE, "additions on the way", text, witness=lambda numbers: _depth(n, method))
    size = start if work.known["x_r"] >= 0 else num(-1) * start
    work.define("E_max", depth * u * n * size, ONE, "error bound",
                "Each rounding is off by at most u times the partial sum, which never exceeds the whole sum.",
                witness=lambda numbers: _depth(n, method) * f.epsilon * n * abs(numbers["x_r"]) / 2)  # fmt: skip


def _depth(n: int, method: str) -> int:
    if method == "in_order":
        return max(n - 1, 0)
    levels = 0
    while n > 1:
        n, levels = n - n // 2, levels + 1
    return levels


def _ends(work: StepWriter, found: sums.RepeatedSum, f: NumberFormat, want: str, method: str) -> None:
    if method != "in_order":
        raise ValuesError(f"{want} is asked of a sum in order", hint="method: in_order")
    if want == "overflow":
        if found.overflow_at is None:
            raise ValuesError(f"the sum never leaves {f.name}: it stops at {_shown(found.end)}",
                              hint="want: limit, or last_change")  # fmt: skip
        what = "leaves the format" if f.floating else "wraps round"
        work.define("k", num(found.overflow_at), ONE, "overflow", f"The first addition at which the sum {what}.",
                    witness=partial(_overflows, found, f))  # fmt: skip
        return
    if found.end is None or isinstance(found.end, str) or found.last_change is None:
        raise ValuesError(f"the sum does not stop growing: it leaves {f.name} at addition {found.overflow_at}",
                          hint="want: overflow")  # fmt: skip
    last, end = found.last_change, found.end
    stays = f"{decimal(end)} + {decimal(found.x)} is rounded to {decimal(end)}."

    def kept(value: Fraction) -> bool:
        return sums.added(value, found.x, f, found.through) == value

    def ends(numbers: Numbers) -> bool:
        """Whether nothing is added to the last sum any more, but to its neighbours on the way there."""
        value = numbers["s_end"]
        return kept(value) and (not value or not kept(_before(f, value)))

    def stops(numbers: Numbers) -> bool:
        """Whether that addition changes the sum, and the next one does not."""
        k = numbers["k"]
        if k > _REPLAYED or found.through is not None:
            return k == last and kept(end)
        one, two, three = (sums.replayed(found.x, int(k) + more, f) for more in (-1, 0, 1))
        return k == int(k) and two == three and (not k or one != two)

    if want == "limit":
        work.define("s_end", num(end), ONE, "stops", f"There {stays}", witness=ends)
    else:
        if f.floating and end:
            gap = work.define("d", num(f.spacing(end)), ONE, "spacing",
                              f"Neighbours in the binade of {decimal(end)} are this far apart.",
                              witness=lambda numbers: apart(f, end))  # fmt: skip
            work.combine("h", gap / 2, ONE, "round to nearest",
                         "A number lies at most half a spacing away.")  # fmt: skip
        work.define("k", num(last), ONE, "stops", f"The sum is {decimal(end)} then: {stays}", witness=stops)


def _before(f: NumberFormat, value: Fraction) -> Fraction:
    """The neighbour of a number that is nearer to 0."""
    low, high = f.neighbours(value * Fraction(2**f.bits - 1, 2**f.bits))
    return low if value > 0 else high


def _overflows(found: sums.RepeatedSum, f: NumberFormat, numbers: Numbers) -> bool:
    at = numbers["k"]
    if at > _REPLAYED or at != int(at):
        return at == found.overflow_at
    if not f.floating:
        return abs(at * found.x) > f.largest and f.least <= (at - 1) * found.x <= f.largest
    return sums.replayed(found.x, int(at), f) is None and sums.replayed(found.x, int(at) - 1, f) is not None


def _strides(found: sums.RepeatedSum) -> Exhibit:
    """The additions gathered by what they add."""
    joined: list[sums.Stride] = []
    for s in found.strides:  # what grows alike in one binade is one row
        last = joined[-1] if joined else None
        if last is not None and (last.steps, last.spacing) == (s.steps, s.spacing) and len(s.steps) == 1:
            joined[-1] = replace(last, stop=s.stop, additions=last.additions + s.additions)
        else:
            joined.append(s)
    rows = [(_value(s.start), _value(s.stop), Quantity(Fraction(s.additions), ONE),
             _steps(s.steps), Quantity(s.spacing, ONE)) for s in joined]  # fmt: skip
    title = "The additions, grouped by the growth of the sum"
    if len(rows) > _ROWS:
        title += f" (the last {_ROWS} of {len(rows)})"
    return Exhibit(title, ("from", "to", "additions", "each adds", "spacing"), tuple(rows[-_ROWS:]))


def _shown(value: Value | None) -> str:
    return decimal(value) if isinstance(value, Fraction) else str(value)


def _value(value: Value) -> str | Quantity:
    return value if isinstance(value, str) else Quantity(value, ONE)


def _steps(steps: tuple[Fraction, ...]) -> str | Quantity:
    if len(steps) == 2:
        return f"{decimal(steps[0])} and {decimal(steps[1])} in turn"
    return Quantity(steps[0], ONE) if steps else ""
