"""The buckets of a model's gradients by their cap, and the cap that leaves least communication after backward.

Tensors are not split: gradients become ready in reverse order, and a bucket is closed as soon as it holds at least its
cap, the last tensor included. Where ``bucket_cap_mb`` is not set, it is 25, and the first bucket is closed at 1 MiB, so
that communication starts early; where it is set, it holds for the first bucket, too. Source: PyTorch,
``torch/csrc/distributed/c10d/reducer.cpp``, ``compute_bucket_assignment_by_size``, and
``torch/nn/parallel/distributed.py``, ``_BucketCapacityConfig``.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from itertools import groupby
from typing import Annotated

from symcomm.core import form as forms
from symcomm.core.derivation import Derivation, Exhibit, Numbers, exact
from symcomm.core.dtypes import element_bytes
from symcomm.core.errors import ValuesError
from symcomm.core.form import Form, Num, Ratio, Sym, product
from symcomm.core.graph.experts import chosen_experts
from symcomm.core.optimum.writing import SECOND, Name, known, meanings, step
from symcomm.core.printing import short
from symcomm.core.quantities.declared import Meaning
from symcomm.core.quantities.options import Amount, Dtype
from symcomm.core.quantities.witnesses import elements, often
from symcomm.core.records import dataclass
from symcomm.core.setting import Setting
from symcomm.core.units import BYTE, Quantity, exact_text
from symcomm.core.worksheets.runs import queued

MIB = 2**20
FIRST = MIB  # PyTorch's caps of the first bucket and of all others, where nothing is set
USUAL = 25 * MIB
ROWS = (
    Name("w", "byte/second", "algorithm bandwidth of the all-reduce"),
    Name("o", "second", "overhead of one call"),
)
_MOST = 5000  # tensors
_TRIED = 40  # tensors next to one another whose sums are tried as caps by a witness
_HAIR = Fraction(1, 10**8)  # of a bucket


def partition(sizes: Sequence[int], cap: int, first: int = FIRST) -> tuple[tuple[int, ...], ...]:
    """Buckets of tensor sizes, in the order in which gradients become ready; the last one may stay below its cap.

    >>> partition([4, 4, 4, 4, 4], cap=8, first=1)
    ((4,), (4, 4), (4, 4))
    """
    buckets = assignment([(size, "") for size in sizes], cap, first)
    return tuple(tuple(sizes[i] for i in bucket) for bucket in buckets)


def assignment(tensors: Sequence[tuple[int, str]], cap: int, first: int = FIRST) -> tuple[tuple[int, ...], ...]:
    """Buckets of the places of tensors, each told by its bytes and number format; a bucket holds one format.

    Each format has a first bucket of its own. The buckets are in the order of their first tensors.

    >>> assignment([(4, "fp32"), (2, "fp16"), (4, "fp32"), (4, "fp32"), (4, "fp32")], cap=8, first=4)
    ((0,), (1,), (2, 3), (4,))
    """
    if cap < 1 or first < 1:
        raise ValuesError("a bucket's cap must be at least one byte")
    closed: list[tuple[int, ...]] = []
    held: dict[str, list[int]] = {}
    filled: dict[str, int] = {}
    limits: dict[str, int] = {}
    for i, (size, kind) in enumerate(tensors):
        held.setdefault(kind, []).append(i)
        filled[kind] = filled.get(kind, 0) + size
        if filled[kind] >= limits.get(kind, min(first, cap)):
            closed.append(tuple(held.pop(kind)))
            filled[kind], limits[kind] = 0, cap
    return tuple(sorted([*closed, *(tuple(left) for left in held.values())]))


@dataclass(frozen=True)
class Caps:
    """All caps, from ``low`` to ``high`` bytes (None: any more), that give the same buckets."""

    low: int
    high: int | None
    buckets: tuple[tuple[int, ...], ...]


def all_partitions(sizes: Sequence[int], first: int = FIRST) -> tuple[Caps, ...]:
    """Every partition that some cap gives, with its caps, growing.

    >>> [(c.low, c.high, len(c.buckets)) for c in all_partitions([4, 4, 4], first=1)]
    [(1, 4, 3), (5, None, 2)]
    """
    found: list[Caps] = []
    low = 1
    while True:
        buckets = partition(sizes, low, first)
        # A higher cap first matters where it exceeds the smallest bucket that the cap closed.
        closed = [sum(b) for i, b in enumerate(buckets) if sum(b) >= low and (i or low <= first)]
        if not closed:
            if found and found[-1].buckets == buckets:
                low = found.pop().low
            found.append(Caps(low, None, buckets))
            return tuple(found)
        high = min(min(closed), first) if low <= first < min(closed) else min(closed)
        if found and found[-1].buckets == buckets:
            low = found.pop().low
        found.append(Caps(low, high, buckets))
        low = high + 1


def exposed(buckets: Sequence[Sequence[int]], o: Fraction, w: Fraction, rho: Fraction = Fraction(1)) -> Fraction:
    """Seconds from the end of backward to the end of the last call, calls one after the other.

    >>> exposed([[8], [8]], Fraction(1), Fraction(8))
    Fraction(3, 1)
    """
    return queued((rho * sum(bucket) / w, o + sum(bucket) / w) for bucket in buckets)


def gradient_sizes(setting: Setting, dtype: str) -> tuple[int, ...]:
    """The bytes of each gradient tensor, in the reverse order of the weights; needs all sizes.

    That of a weight that several regions have is there once, with the last of them in backward. Each expert has weights
    of its own, those of one after those of another.
    """
    size = int(element_bytes(dtype).number)
    every: list[int] = []
    known: set[str] = set()

    def number(form: Form, what: str = "sizes of the gradients need") -> int:
        missing = [name for name in forms.names(form) if name not in setting.values]
        if missing:
            raise ValuesError(f"the {what} a value for {', '.join(missing)}")
        return int(forms.evaluate(form, dict(setting.values)))

    for region, part in zip(setting.regions, setting.parts, strict=True):
        weights = [w for w in part.graph.weights if w.name not in known]
        known |= {w.name for w in weights}
        experts, axes = chosen_experts(part.graph), part.graph.axes
        once: list[int] = []
        for axis, group in groupby(weights, lambda w: experts[w.name].axis if w.name in experts else ""):  # noqa: B023
            each = [size * number(setting.sizes([axes[a].size for a in w.axes if a != axis])) for w in group]
            once += each * (number(setting.sizes([axes[axis].size])) if axis else 1)
        times = number(Sym(region.times), "gradients of all layers need") if region.times else 1
        if len(every) + times * len(once) > _MOST:
            raise ValuesError(f"{len(every) + times * len(once)} gradients: at most {_MOST} are put into buckets")
        every += once * times
    if not every:
        raise ValuesError("the model has no weights, so it has no gradients")
    return tuple(reversed(every))


def derive(
    setting: Setting,
    rho: Annotated[Amount, Meaning("the time to compute a bucket over the time to transfer it")] = 1,
    gradient_dtype: Annotated[Dtype, Meaning("the number format of the gradients")] = "fp32",
    first: Annotated[Amount, Meaning("another cap of the first bucket, such as 1 MiB")] = None,
) -> Derivation:
    """The bucket cap that leaves the least communication after backward, for a model and a link.

    The ``bucket_cap_mb`` (in MiB, as PyTorch counts it) with the least time left after backward, for a link.

    Needs ``w`` and ``o`` among the given values; ``first`` is another cap of the first bucket, in bytes.
    """
    numbers = known(setting, ROWS)
    for row in ROWS:
        if row.name not in numbers:
            raise ValuesError(f"a value for {row.name} is needed: {row.meaning}", hint=f"given: {{{row.name}: ...}}")
    w, o = Fraction(str(numbers["w"])), Fraction(str(numbers["o"]))
    share = exact(rho, "rho")
    sizes = gradient_sizes(setting, gradient_dtype)
    start = sum(sizes) if first is None else int(exact(first, "first", BYTE))  # a cap that is set holds for all buckets
    if share <= 0 or start < 1:
        raise ValuesError("rho and the first bucket's cap must be positive")
    groups, left = all_partitions(sizes, start), partial(exposed, o=o, w=w, rho=share)
    timed = sorted(((left(g.buckets), g.low, g) for g in groups), key=lambda item: item[:2])
    best_time, _, best = timed[0]
    cap, said = _said_cap(best)
    s_name = Sym("s")
    steps = [
        step("s", Num(Fraction(sum(sizes)), BYTE), BYTE, "add up",
             f"The gradients of {len(sizes)} tensors in {gradient_dtype}; the last layer's come first.",
             witness=lambda numbers: _laid_out(setting, gradient_dtype, numbers)),
        step("b_equal", forms.Root(Ratio(product(s_name, *(r.sym for r in ROWS)), forms.rational(share)))
             if share != 1 else forms.Root(product(s_name, *(r.sym for r in ROWS))), BYTE, "equal buckets",
             "The best size if tensors could be split, and buckets were equal"
             + ("." if share <= 1 else "; computing is slower here, which moves it."),
             witness=lambda numbers: _no_gap_is_least(numbers, share)),
        step("V", Num(best_time, SECOND), SECOND, "compare",
             f"All {len(groups)} partitions that some cap gives were timed; the best has {len(best.buckets)} buckets "
             "and leaves this after backward.", witness=lambda numbers: _followed(sizes, start, numbers, share)),
        step("b_cap", Num(Fraction(cap), BYTE), BYTE, "recommend", f"{said} All caps of its row give these buckets.",
             witness=lambda numbers: _left(sizes, int(numbers["b_cap"]), start, numbers, share) == numbers["V"]),
    ]  # fmt: skip
    shown = sorted({*(g for _, _, g in timed[:4]), *_spread(groups)}, key=lambda g: g.low)
    rows = tuple(
        (
            f"{exact_text(Fraction(g.low))} B", f"{exact_text(Fraction(g.high))} B" if g.high else "any more",
            str(len(g.buckets)), short(Quantity(left(g.buckets), SECOND)), "best" if g is best else "",
        )
        for g in shown
    )  # fmt: skip
    usual = partition(sizes, USUAL)
    without = (
        "A cap that is set holds for the first bucket, too. Where none is set, PyTorch closes the first one at 1 MiB "
        f"and the others at 25 MiB: {len(usual)} buckets, which leave {Quantity(left(usual), SECOND).lines()[-1][1]}."
    )
    title = "Caps and the buckets they give" + (
        "" if len(shown) == len(groups) else f" ({len(shown)} of {len(groups)})"
    )
    return Derivation(
        "Recommended bucket cap", setting.accounting, tuple(steps), relations=setting.graph.relations,
        exhibits=(Exhibit(title, ("cap from", "to", "buckets", "left after backward", ""), rows),),
        given=tuple(setting.values.items()), notation=meanings(setting, ROWS),
        notes=(said, without if first is None else f"The first bucket is closed at {start} bytes."),
    )  # fmt: skip


def _laid_out(setting: Setting, dtype: str, numbers: Numbers) -> Fraction:
    """The bytes of all gradients, tensor by tensor and layer by layer."""
    found, known = Fraction(0), set[str]()
    for region, part in zip(setting.regions, setting.parts, strict=True):
        mine = [w for w in part.graph.weights if w.name not in known]
        known |= {w.name for w in mine}
        each = [elements(part.graph, weight, numbers) * element_bytes(dtype).number for weight in mine]
        for _ in range(int(often(region, numbers))):
            found += sum(each)
    return found


def _left(sizes: Sequence[int], cap: int, first: int, numbers: Numbers, rho: Fraction) -> Fraction:
    """What a cap leaves after backward, followed gradient by gradient."""
    limit, held, computed, link = min(first, cap), 0, Fraction(0), Fraction(0)
    for place, size in enumerate(sizes, start=1):
        held += size
        computed += rho * size / numbers["w"]
        if held >= limit or place == len(sizes):
            link = max(link, computed) + numbers["o"] + held / numbers["w"]
            held, limit = 0, cap
    return link - computed


def _followed(sizes: Sequence[int], first: int, numbers: Numbers, rho: Fraction) -> bool:
    """Whether no cap leaves less than ``V``, and one leaves that: caps that sums of neighbours close exactly."""
    few = sizes[: 2 * _TRIED]
    sums = {sum(few[a:b]) for a in range(_TRIED) for b in range(a + 1, a + 1 + _TRIED) if a < len(few)}
    left = [_left(sizes, cap, first, numbers, rho) for cap in sorted({*sums, sum(sizes)})]
    least = min(left)
    return numbers["V"] == least if len(sizes) <= _TRIED else numbers["V"] <= least


def _no_gap_is_least(numbers: Numbers, rho: Fraction) -> bool:
    """Whether equal buckets of this size leave less than those a little larger or smaller, calls without a gap."""
    size, total = numbers["b_equal"], numbers["s"]

    def left(bucket: Fraction) -> Fraction:
        calls = total / bucket  # the first bucket is computed, and then the link has no rest
        return rho * bucket / numbers["w"] + calls * numbers["o"] + total / numbers["w"] - rho * total / numbers["w"]

    return left(size) <= min(left(size * (1 + hair)) for hair in (_HAIR, -_HAIR))


def _said_cap(caps: Caps) -> tuple[int, str]:
    """A cap of the group that is easy to say: whole MiB where there are some."""
    mib = -(-caps.low // MIB)
    if caps.high is None or mib * MIB <= caps.high:
        return mib * MIB, f"Set bucket_cap_mb={mib}."
    high = caps.high
    for digits in range(1, 8):
        scaled = -(-caps.low * 10**digits // MIB)
        cap = scaled * MIB // 10**digits
        if caps.low <= cap <= high:
            return cap, f"Set bucket_cap_mb={scaled / 10**digits:.{digits}f}."
    return high, f"Set bucket_cap_mb={high / MIB}."


def _spread(groups: Sequence[Caps]) -> list[Caps]:
    """Some of the partitions, from the smallest cap to the largest."""
    if len(groups) <= 8:
        return list(groups)
    return [groups[0], groups[-1], *(g for g in groups if any(
        g.low <= mib * MIB and (g.high is None or mib * MIB <= g.high) for mib in (1, 10, 25, 100, 1000)))]  # fmt: skip
