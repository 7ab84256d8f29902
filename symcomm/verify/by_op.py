"""Each row of a table timed in PyTorch, beside the time that its device's table of efficiency says, term by term."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from symcomm.core.errors import ValuesError
from symcomm.core.graph.axis_roles import batch_axes
from symcomm.core.model import Model
from symcomm.core.records import dataclass
from symcomm.verify.expected import needed_memory
from symcomm.verify.launch import Launcher, enough_memory
from symcomm.verify.measure import REPEATS, device_yaml, measure
from symcomm.verify.module import torch_module
from symcomm.verify.sizes import small_sizes

if TYPE_CHECKING:
    from symcomm import Device

_WIDE, _LARGE = 4, 24  # how large the batch and the other axes are, as multiples of the smallest
_BOOK = {"time": "per_op", "operations": "all_ops"}  # an op takes the longer of its terms, and each op counts
_TERMS = {"compute": "computing", "memory": "memory"}
_NEAR = 0.25  # of what was measured: a row that is not further off has no term that is off


@dataclass(frozen=True)
class TimedRow:
    """A row in one pass: the seconds that its terms and the row take by the device's table, and those measured."""

    name: str
    phase: str
    terms: Mapping[str, float]
    derived: float
    measured: float

    @property
    def term(self) -> str:
        """The term that the derived time is: the longer one; none of what only looks at a tensor in another way."""
        return max(self.terms, key=self.terms.__getitem__) if self.derived else "no work"

    @property
    def off(self) -> float:
        """How far the derived time is off, relative to what was measured."""
        return self.derived / self.measured - 1 if self.measured else 0.0


@dataclass(frozen=True)
class RowTimes:
    """All rows of a model at some sizes, on the machine at hand and by the table of a device."""

    model: str
    device: str
    machine: str
    sizes: Mapping[str, int]
    rows: tuple[TimedRow, ...]

    def json(self) -> dict[str, Any]:
        """The same for a program."""
        rows = [{"row": r.name, "phase": r.phase, "derived": r.derived, "measured": r.measured, "off": r.off,
                 "term": r.term, "terms": dict(r.terms)} for r in self.rows]  # fmt: skip
        return {"model": self.model, "device": self.device, "machine": self.machine, "sizes": dict(self.sizes),
                "rows": rows}  # fmt: skip


def at_hand() -> Device:
    """The machine at hand, measured now: products in fp32, and copies."""
    from symcomm import devices

    with TemporaryDirectory(prefix="symcomm-") as folder:
        file = Path(folder) / "mine.yaml"
        file.write_text(device_yaml(measure(("fp32",), processes=1), "this-machine"), encoding="utf-8")
        return devices(file)["this-machine"]


def by_op(model: Model, values: Mapping[str, Fraction], device: Device | None = None) -> RowTimes:
    """Times each row of a model's layers, and derives its time from the device's rates and its table.

    ``values`` are sizes that stay as they are; the others are small. Without a ``device`` the machine at hand is
    measured. Raises ``ValuesError`` for a step without a backward pass, ``VerificationError`` where PyTorch is missing.
    """
    model.graph.check_trains("times are measured of training steps")
    device = device or at_hand()
    graph = replace(model.graph, fused=False)  # the module that runs writes attention out
    batch = {s.name: Fraction(4 * _WIDE) for a in batch_axes(graph) for s in graph.axes[a].size.free_symbols}
    sizes = small_sizes(graph, batch | dict(values), _LARGE)
    known = {name: Fraction(size) for name, size in sizes.items()}
    enough_memory(needed_memory(graph, known, 1))
    written = torch_module(graph, model.name, values=sizes)
    with Launcher() as launch:
        found = launch({"method": "rows", "ranks": 1, "seed": 7, "source_text": written.source, "fixed": [],
                        "sizes": {written.symbols[s]: n for s, n in sizes.items() if s in written.symbols},
                        "repeats": REPEATS})[0]  # fmt: skip
    said: dict[str, Any] = {"device": device, "dtype": "fp32", "accounting": _BOOK}
    said |= {"utilisation": "measured"} if device.efficiency is not None else {}
    at, rows = model.at(**known), []
    regions = {one.name: one.region.name.split()[0] for one in written.classes}
    took: dict[str, Counter[str]] = {}
    for row in found["rows"]:  # what a row of the table makes on its way is written in lines of its own
        where = f"{regions[row['layer']]}:" if len(regions) > 1 else ""
        took.setdefault(where + row["name"].rpartition(":")[2].partition("·")[0], Counter()).update(
            forward=row["forward"], backward=row["backward"]
        )
    for named, seconds in took.items():
        for phase in ("forward", "backward"):
            try:
                mine = {**said, "op": named, "phase": phase}
                derived = float(at.time(**mine).at().value)
                terms = {term: float(at.time(**mine, term=term).at().value) for term in _TERMS}  # type: ignore[arg-type]
            except ValuesError as error:
                if not error.message.startswith(("there is nothing to time", "no row computes")):  # a view, a flat copy
                    raise
                derived, terms = 0.0, {}
            rows.append(TimedRow(named, phase, terms, derived, seconds[phase]))
    return RowTimes(model.name, device.name, found["device"], sizes, tuple(rows))


def text(found: RowTimes) -> str:
    """The rows for a terminal, the sums of each term, and the row that is furthest off."""
    sizes = " ".join(f"{name}={size}" for name, size in found.sizes.items())
    lines = [f"{found.model} on {found.machine}, by the table of {found.device}; fp32, {sizes}", "",
             f"{'row':<14}{'pass':<10}{'derived':>11}{'measured':>11}{'off':>8}  limited by"]  # fmt: skip
    for r in found.rows:
        off = f"{r.off:>+8.0%}" if r.derived else f"{'':>8}"
        limit = _TERMS.get(r.term, r.term) + (", which is off" if r.derived and abs(r.off) > _NEAR else "")
        lines.append(f"{r.name:<14}{r.phase:<10}{r.derived * 1e6:>8.1f} µs{r.measured * 1e6:>8.1f} µs{off}  {limit}")
    lines += [""]
    for term in (*_TERMS, "no work"):
        derived, took = (
            sum(getattr(r, part) for r in found.rows if r.term == term) for part in ("derived", "measured")
        )
        if took:
            off = f" ({derived / took - 1:+.0%})" if derived else ""
            lines.append(f"{_TERMS.get(term, term):<14}{'':<10}{derived * 1e6:>8.1f} µs{took * 1e6:>8.1f} µs{off}")
    far = max(found.rows, key=lambda r: abs(r.derived - r.measured))
    lines += ["", f"Most of the difference is in {far.name}, {far.phase}: {_TERMS.get(far.term, far.term)} of "
              f"{far.derived * 1e6:.1f} µs is derived, {far.measured * 1e6:.1f} µs were measured."]  # fmt: skip
    return "\n".join(lines) + "\n"
