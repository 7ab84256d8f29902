"""The small models of the tests of searches, and a search by hand: each configuration derived by itself, exactly."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

from api import Model
from api import model as models

BLOCK = (
    "Computation\tInput\tOutput\n"
    "A = xW^1\tx [B, L, D], W^1 [D, F]\tA [B, L, F]\n"
    "A' = relu(A)\tA [B, L, F]\tA' [B, L, F]\n"
    "x' = A'W^2\tA' [B, L, F], W^2 [F, D]\tx' [B, L, D]\n"
)
ATTENTION = (
    "| Computation | Input | Output |\n|---|---|---|\n"
    "| $Q = xW^Q$ | $x \\in \\mathbb{R}^{B \\times L \\times D}, W^Q \\in \\mathbb{R}^{D \\times D}$ "
    "| $Q \\in \\mathbb{R}^{B \\times L \\times D}$ |\n"
    "| $[Q_1, \\dots, Q_{n_H}] = \\text{Partition}_{-1}(Q)$ | $Q \\in \\mathbb{R}^{B \\times L \\times D}$ "
    "| $Q_i \\in \\mathbb{R}^{B \\times L \\times H}, i = 1, \\dots, n_H$ |\n"
    "| $S_i = \\text{softmax}(\\frac{Q_i Q_i^T}{\\sqrt{H}}), i = 1, \\dots, n_H$ "
    "| $Q_i \\in \\mathbb{R}^{B \\times L \\times H}$ | $S_i \\in \\mathbb{R}^{B \\times L \\times L}$ |\n"
    "| $Z_i = S_i Q_i, i = 1, \\dots, n_H$ "
    "| $S_i \\in \\mathbb{R}^{B \\times L \\times L}, Q_i \\in \\mathbb{R}^{B \\times L \\times H}$ "
    "| $Z_i \\in \\mathbb{R}^{B \\times L \\times H}$ |\n"
    "| $Z = \\text{Merge}_{-1}([Z_1, \\dots, Z_{n_H}])$ "
    "| $Z_i \\in \\mathbb{R}^{B \\times L \\times H}, i = 1, \\dots, n_H$ "
    "| $Z \\in \\mathbb{R}^{B \\times L \\times D}$ |\n"
    "| $y = x + ZW^O$ | $x, Z \\in \\mathbb{R}^{B \\times L \\times D}, W^O \\in \\mathbb{R}^{D \\times D}$ "
    "| $y \\in \\mathbb{R}^{B \\times L \\times D}$ |\n"
)
RATES = {"peak": "1 TFLOP/s", "memory": "100 GB/s", "network": "20 GB/s", "latency": "0.00001 s"}


def block(**values: int) -> Model:
    """Two matrices with a function between them: 6 layers."""
    sizes = {"N_layer": 6, "B": 12, "L": 16, "D": 24, "F": 36} | values
    return models.load(BLOCK, repeat="N_layer", values=sizes, name="block")


def attention(**values: int) -> Model:
    """Attention with four heads: 4 layers."""
    sizes = {"N_layer": 4, "B": 8, "L": 16, "D": 32, "n_H": 4, "H": 8} | values
    return models.load(ATTENTION, repeat="N_layer", values=sizes, name="attention")


@dataclass(frozen=True)
class One:
    """A configuration by hand: whether it divides, and its exact seconds and bytes."""

    text: str
    microbatches: int
    recomputation: str
    divides: bool
    time: Fraction | None = None
    memory: Fraction | None = None

    @property
    def key(self) -> tuple[str, int, str]:
        return self.text, self.microbatches, self.recomputation


def meshes(devices: int) -> Iterator[tuple[int, int, int]]:
    """All sizes of data, tensor and pipeline that make up the devices, by trying every triple."""
    for d in range(1, devices + 1):
        for t in range(1, devices + 1):
            for p in range(1, devices + 1):
                if d * t * p == devices:
                    yield d, t, p


def texts(devices: int, kinds: tuple[str, ...], sequence: bool) -> Iterator[tuple[str, tuple[int, int, int]]]:
    """The strategies of a mesh, as a person would write them: nothing that has one rank only."""
    seen = set()
    for d, t, p in meshes(devices):
        for kind in kinds:
            for tail in ("", " + sequence") if sequence else ("",):
                parts = [f"{kind}({d})"] if d > 1 else []
                parts += [f"tensor({t}){tail}"] if t > 1 else []
                parts += [f"pipeline({p}, microbatches=MB)"] if p > 1 else []
                text = " + ".join(parts) or "one device"
                if text not in seen:
                    seen.add(text)
                    yield text, (d, t, p)


@cache
def _by_hand(text: str, m: int, how: str, name: str, time: str) -> tuple[Fraction, Fraction]:
    model = {"block": block, "attention": attention}[name]()
    convention = {"none": "activations_kept", "full": "full_recomputation", "selective": "selective_recomputation"}[how]
    said = None if text == "one device" else text.replace("MB", str(m))
    step = model.step_time(said, microbatches=m, accounting={"recomputation": convention, "time": time}, **RATES)
    states = model.state_memory(said, **({} if "pipeline" in text else {"microbatches": m})).at().value
    # One microbatch is alive, unless a pipeline counts its own.
    batch = int(model.values["B"]) if "pipeline" in text else Fraction(model.values["B"], m)
    whole = {"block": block, "attention": attention}[name](B=int(batch)) if batch == int(batch) else None
    assert whole is not None
    kept = whole.activation_memory(said, recomputation=how).at().value
    return step.at().value, states + kept


def by_hand(
    model: Model, devices: int, cuts: tuple[str, ...], kinds: tuple[str, ...], microbatches: tuple[int, ...],
    again: tuple[str, ...], sequence: bool = False, time: str = "overlap",
) -> list[One]:  # fmt: skip
    """Every configuration, one after the other; ``cuts`` are the sizes that tensor parallelism must divide."""
    found = []
    v = {name: int(value) for name, value in model.values.items()}
    for text, (d, t, p) in texts(devices, kinds, sequence):
        for m in microbatches:
            divides = v["B"] % (d * m) == 0 and v["N_layer"] % p == 0 and all(v[c] % t == 0 for c in cuts)
            divides = divides and ("sequence" not in text or v["L"] % t == 0)
            for how in again:
                shown = text.replace("MB", str(m))
                if not divides:
                    found.append(One(shown, m, how, False))
                else:
                    found.append(One(shown, m, how, True, *_by_hand(text, m, how, model.name, time)))
    return found
