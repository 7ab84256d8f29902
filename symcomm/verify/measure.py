"""The table of efficiency of the machine at hand: products, copies and all-reduces of some sizes, as a device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from datetime import date
from itertools import pairwise
from math import sqrt
from statistics import median
from typing import Any

from symcomm.core.errors import ValuesError
from symcomm.core.records import dataclass
from symcomm.verify.launch import Launcher

SIDES = (16, 32, 64, 128, 256, 384, 512, 768, 1024, 1536)
LEFT_OUT = 384  # a product that the table predicts
COPIES = tuple(2**n for n in range(12, 28, 3))
MESSAGES = tuple(4**n for n in range(5, 12))
REPEATS = 9  # of which the fastest counts, as others compute, too
FORMATS = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16", "fp64": "float64"}


@dataclass(frozen=True)
class MeasuredSize:
    """A measured size: its FLOPs or bytes, the least of the seconds that it took, and how much longer the median is."""

    kind: str
    dtype: str
    size: int
    amount: int
    seconds: float
    spread: float

    @property
    def rate(self) -> float:
        """FLOPs or bytes a second."""
        return self.amount / self.seconds


@dataclass(frozen=True)
class MachineTable:
    """The sizes that were measured on a device, with the bytes of its memory and the version of PyTorch.

    ``left_out`` are products that its table does not know.
    """

    device: str
    memory: int
    torch: str
    points: tuple[MeasuredSize, ...]
    left_out: tuple[MeasuredSize, ...] = ()
    on: date = field(default_factory=date.today)

    def of(self, kind: str, dtype: str = "") -> tuple[MeasuredSize, ...]:
        """The points of a kind, by amount; of products those in one format."""
        found = [p for p in self.points if p.kind == kind and dtype in ("", p.dtype)]
        return tuple(sorted(found, key=lambda p: p.amount))

    def best(self, kind: str, dtype: str = "") -> float:
        """The highest rate of a kind."""
        return max(p.rate for p in self.of(kind, dtype))

    def rows(self, kind: str, dtype: str = "") -> tuple[tuple[int, float], ...]:
        """The steps of a table: a share holds half the way to its neighbours, the first one from 0 on.

        >>> points = [MeasuredSize("memory", "", n, n, n / rate, 0) for n, rate in ((100, 10), (400, 40))]
        >>> MachineTable("cpu", 0, "", tuple(points)).rows("memory")
        ((0, 0.25), (200, 1.0))
        """
        points, best = self.of(kind, dtype), self.best(kind, dtype)
        starts = [0, *(round(sqrt(a.amount * b.amount)) for a, b in pairwise(points))]
        return tuple((start, max(0.001, round(p.rate / best, 3))) for start, p in zip(starts, points, strict=True))

    def predicted(self, point: MeasuredSize) -> float:
        """The seconds that the table says of a product that it does not know."""
        share = [part for start, part in self.rows(point.kind, point.dtype) if start <= point.amount][-1]
        return point.amount / (share * self.best(point.kind, point.dtype))

    @property
    def formats(self) -> tuple[str, ...]:
        """The formats of the products."""
        return tuple(dict.fromkeys(p.dtype for p in self.points if p.kind == "products"))


def measure(
    formats: Sequence[str] = ("fp32", "bf16"), largest: int = 1024, processes: int = 2,
    told: Callable[[int, int, str], None] = lambda done, total, label: None,
) -> MachineTable:  # fmt: skip
    """Measures products up to a side of ``largest``, copies, and all-reduces between processes on this machine.

    Raises ``ValuesError`` for an unknown format, and ``VerificationError`` where PyTorch is missing.
    """
    unknown = next((one for one in formats if one not in FORMATS), None)
    if unknown is not None or not formats:
        raise ValuesError(f"products are not measured in '{unknown}'", hint=f"known: {', '.join(FORMATS)}")
    if largest < 2 * LEFT_OUT:
        raise ValuesError(f"--largest is {largest}: a product of {LEFT_OUT} is predicted from smaller and larger ones",
                          hint=f"--largest {2 * LEFT_OUT}, or more")  # fmt: skip
    asked = [("products", dtype, side, 2 * side**3) for dtype in formats for side in SIDES if side <= largest]
    asked += [("memory", "", size, size) for size in COPIES]
    # In an all-reduce of a ring each process sends the tensor less a part, and gets as much.
    asked += [("messages", "", size, 2 * (processes - 1) * size // processes) for size in MESSAGES if processes > 1]
    points: list[MeasuredSize] = []
    first: dict[str, Any] = {}
    with Launcher() as launch:
        for done, (kind, dtype, size, amount) in enumerate(asked):
            told(done, len(asked), kind)
            ranks = processes if kind == "messages" else 1
            report = launch({"method": "measure", "kind": kind, "ranks": ranks, "size": size, "repeats": REPEATS,
                             "dtype": FORMATS.get(dtype, ""), "seed": 0, "source_text": ""})[0]  # fmt: skip
            times = report["seconds"]
            best = min(times)
            first = first or report  # of a product: all-reduces run on the processor, whatever computes
            points.append(MeasuredSize(kind, dtype, size, amount, best, median(times) / best - 1))
    known = [p for p in points if p.kind != "products" or p.size != LEFT_OUT]
    left_out = tuple(p for p in points if p not in known)
    return MachineTable(first["device"], first["memory"], first["torch"], tuple(known), left_out)


def device_yaml(found: MachineTable, name: str) -> str:
    """A file of devices with the machine: its best rates, and the shares that smaller sizes achieve."""
    spread = median(p.spread for p in found.points)
    copies = _short(found.best("memory"))
    source = f"symcomm measure: PyTorch {found.torch}, {found.device}, fastest of {REPEATS} runs"

    def rows(kind: str, unit: str, dtype: str = "") -> str:
        return ", ".join(f"{start} {unit} {share:g}" for start, share in found.rows(kind, dtype))

    lines = [
        "devices:", f"  {name}:", f"    source: '{source}'", "    rates:",
        *(f"      {dtype}: {{published: {_short(found.best('products', dtype))}FLOP/s}}" for dtype in found.formats),
        f"    memory: {{kind: measured, nominal: {found.memory / 2**30:.0f} GiB, bandwidth: {copies}B/s}}",
    ]  # fmt: skip
    if found.of("messages"):
        rate = _short(found.best("messages"))
        lines += ["    links:", f"      processes: {{name: gloo between processes, count: 1, rate: {rate}B/s}}"]
    lines += ["    efficiency:", f"      source: '{source}'", f"      date: {found.on.isoformat()}",
              f"      spread: the median is {spread:.1%} above the fastest run", "      products:",
              *(f"        {dtype}: {rows('products', 'FLOP', dtype)}" for dtype in found.formats),
              f"      memory: {rows('memory', 'B')}",
              *([f"      messages: {rows('messages', 'B')}"] if found.of("messages") else [])]  # fmt: skip
    return "\n".join(lines) + "\n"


def _short(rate: float) -> str:
    """Three digits of a rate with a prefix.

    >>> _short(38_240_000_000.0)
    '38.2 G'
    """
    prefix, scale = next((p, s) for p, s in _PREFIXES.items() if rate >= s or s == 1)
    return f"{rate / scale:.3g} {prefix}" if rate / scale < 100 else f"{rate / scale:.0f} {prefix}"


_PREFIXES: Mapping[str, float] = {"T": 1e12, "G": 1e9, "M": 1e6, "k": 1e3, "": 1}


def text(found: MachineTable) -> str:
    """The measured sizes for a terminal, and how well the table predicts the ones it does not know."""
    lines = [f"{found.device}, PyTorch {found.torch}", "",
             f"{'':<10}{'format':<8}{'size':>10}{'time':>12}{'rate':>14}{'share':>8}{'spread':>8}"]  # fmt: skip
    for p in (*found.points, *found.left_out):
        unit = "FLOP/s" if p.kind == "products" else "B/s"
        mark = "" if p in found.points else "  not in the table"
        lines.append(f"{p.kind:<10}{p.dtype:<8}{p.size:>10}{p.seconds * 1e6:>9.1f} µs{_short(p.rate) + unit:>14}"
                     f"{p.rate / found.best(p.kind, p.dtype):>8.0%}{p.spread:>8.0%}{mark}")  # fmt: skip
    lines += [""]
    for p in found.left_out:
        said, side = found.predicted(p), p.size
        lines.append(f"The table says {said * 1e3:.2f} ms of a product of {side} x {side} x {side} in {p.dtype}; "
                     f"it took {p.seconds * 1e3:.2f} ms ({said / p.seconds - 1:+.0%}).")  # fmt: skip
    return "\n".join(lines) + "\n"
