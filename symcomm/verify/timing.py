"""Times of a layer on the machine at hand: a roofline fitted to some sizes, and how far it is off for others.

The model is a roofline without overlap: a step takes its operations over a rate, the bytes that its ops move over a
bandwidth, and a fixed time for each op. Where there is a GPU it is measured, else one thread of the CPU.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from symcomm.core.accounting import Accounting
from symcomm.core.errors import ValuesError
from symcomm.core.form import evaluate
from symcomm.core.graph.axis_roles import batch_axes
from symcomm.core.model import Model
from symcomm.core.program.program import ONE_RANK
from symcomm.core.quantities.counting.load import load
from symcomm.core.records import dataclass
from symcomm.core.setting import Setting
from symcomm.verify.expected import needed_memory
from symcomm.verify.launch import Launcher, VerificationError, enough_memory
from symcomm.verify.module import torch_module
from symcomm.verify.sizes import small_sizes

# How large the batch and the other axes are, as multiples of the smallest; every third is left out of the fit.
SCALES = ((1, 8), (4, 8), (16, 8), (1, 24), (4, 24), (16, 24), (1, 48), (4, 48), (16, 48))
LEAST, REPEATS = 4, 9  # points of a fit; times of which the least is taken, as others compute, too


@dataclass(frozen=True)
class TimedSize:
    """A measured size: operations, bytes and ops of a step, the seconds it took, and those the fit says."""

    sizes: Mapping[str, int]
    flops: Fraction
    moved: Fraction
    ops: int
    measured: float
    fitted: bool
    said: float = 0.0

    @property
    def error(self) -> float:
        """How far the prediction is off, relative to what was measured."""
        return self.said / self.measured - 1


@dataclass(frozen=True)
class Timing:
    """The fit: a rate (FLOP/s), a bandwidth (B/s), seconds an op, the share of the variance that it explains."""

    model: str
    device: str
    rate: float | None
    bandwidth: float | None
    overhead: float
    r_squared: float
    points: tuple[TimedSize, ...]

    @property
    def left_out(self) -> tuple[TimedSize, ...]:
        """The sizes that the fit has not seen."""
        return tuple(point for point in self.points if not point.fitted)

    def json(self) -> dict[str, Any]:
        """The same for a program."""
        return {
            "model": self.model, "device": self.device, "rate": self.rate, "bandwidth": self.bandwidth,
            "seconds_per_op": self.overhead, "r_squared": self.r_squared,
            "points": [
                {"sizes": dict(p.sizes), "flops": int(p.flops), "bytes": int(p.moved), "ops": p.ops,
                 "measured": p.measured, "predicted": p.said, "error": p.error, "in_fit": p.fitted}
                for p in self.points
            ],
        }  # fmt: skip


def measure(model: Model, values: Mapping[str, Fraction], scales: Sequence[tuple[int, int]] = SCALES) -> Timing:
    """Measures a training step of a model at some sizes, fits most of them and predicts the others.

    ``values`` are sizes that stay as they are. Raises ``VerificationError`` where PyTorch is missing.
    """
    graph = replace(model.graph, fused=False)  # the module that runs writes attention out
    if len(scales) < LEAST + 1:
        raise ValuesError(f"a fit of three numbers needs at least {LEAST + 1} sizes")
    batch = {s.name for a in batch_axes(graph) for s in graph.axes[a].size.free_symbols}
    runs, points = [], []
    for n, (wide, large) in enumerate(scales):
        own = {name: Fraction(4 * wide) for name in batch} | dict(values)
        sizes = small_sizes(graph, own, large)
        known = {name: Fraction(size) for name, size in sizes.items()}
        enough_memory(needed_memory(graph, known, 1))
        setting = Setting(graph, Accounting.of("all_ops"), "fp32", model.notation, known)
        made = load(setting, ONE_RANK)
        times = {r.name: known[r.times] if r.times else Fraction(1) for r in graph.regions}
        flops = sum((evaluate(o.flops, known) * times[o.op.region] for o in made.ops), Fraction(0))
        moved = sum(
            (4 * evaluate(m.elements, known) * m.times * times[o.op.region] for o in made.ops for m in o.moved),
            Fraction(0),
        )
        ops = int(sum((times[o.op.region] for o in made.ops), Fraction(0)))
        written = torch_module(graph, model.name, values=sizes)
        named = {written.symbols[s]: size for s, size in sizes.items() if s in written.symbols}
        runs.append({"method": "time", "ranks": 1, "seed": 7, "sizes": named, "source_text": written.source,
                     "fixed": [], "repeats": REPEATS})  # fmt: skip
        points.append(TimedSize(sizes, flops, moved, ops, 0.0, n % 3 != 1))
    with Launcher() as launch:
        reports = [launch(one)[0] for one in runs]
    points = [replace(p, measured=r["seconds"]) for p, r in zip(points, reports, strict=True)]
    return fitted(model.name, reports[0]["device"], points)


def fitted(name: str, device: str, points: Sequence[TimedSize]) -> Timing:
    """The roofline of some measured points; errors count in relation to the times, and no part may be negative.

    >>> made = fitted("m", "cpu", [TimedSize({}, Fraction(f), Fraction(b), 1, f / 100 + b / 10 + 2, True)
    ...                            for f, b in ((100, 10), (200, 10), (400, 30), (50, 80))])
    >>> round(made.rate), round(made.bandwidth), round(made.overhead), round(made.r_squared, 6)
    (100, 10, 2, 1.0)
    """
    try:
        import numpy as np
        from scipy.optimize import nnls
    except ImportError:
        raise VerificationError.lacking("fit", "a fit needs SciPy") from None
    used = [p for p in points if p.fitted]
    weights = np.array([1 / p.measured for p in used])
    columns = np.array([[float(p.flops), float(p.moved), float(p.ops)] for p in used])
    scale = columns.max(axis=0)
    found, _ = nnls(columns / scale * weights[:, None], np.ones(len(used)))
    each = found / scale
    said = [float(np.dot(each, [float(p.flops), float(p.moved), float(p.ops)])) for p in points]
    points = [replace(p, said=t) for p, t in zip(points, said, strict=True)]
    times = np.array([p.measured for p in points if p.fitted])
    left = np.array([p.measured - p.said for p in points if p.fitted])
    spread = float(((times - times.mean()) ** 2).sum())
    explained = 1 - float((left**2).sum()) / spread if spread else 1.0
    rate, bandwidth, overhead = (float(e) for e in each)
    return Timing(name, device, 1 / rate if rate else None, 1 / bandwidth if bandwidth else None, overhead, explained,
                  tuple(points))  # fmt: skip


def text(found: Timing) -> str:
    """The fit for a terminal."""
    rate = f"{found.rate / 1e9:.2f} GFLOP/s" if found.rate else "not seen in these times"
    bandwidth = f"{found.bandwidth / 1e9:.2f} GB/s" if found.bandwidth else "not seen in these times"
    lines = [
        f"{found.model} on {found.device}: rate {rate}, bandwidth {bandwidth}, "
        f"{found.overhead * 1e6:.1f} µs an op; R² = {found.r_squared:.4f}",
        "",
        f"{'sizes':<48}{'measured':>12}{'roofline':>12}{'off':>8}",
    ]
    for p in found.points:
        sizes = " ".join(f"{name}={size}" for name, size in p.sizes.items())[:46]
        mark = "" if p.fitted else "  not in the fit"
        lines.append(f"{sizes:<48}{p.measured * 1e3:>9.2f} ms{p.said * 1e3:>9.2f} ms{p.error:>+8.0%}{mark}")
    worst = max((abs(p.error) for p in found.left_out), default=0.0)
    lines += ["", f"The roofline is off by at most {worst:.0%} at sizes that the fit has not seen."]
    return "\n".join(lines) + "\n"
