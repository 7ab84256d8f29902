"""The passes: each derives one quantity from the graph. One file a pass, one record here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from symcomm.derivation import Derivation


@dataclass(frozen=True)
class Option:
    """An option of a pass. ``kind`` is text, size, quantity, strategy, dtype or ``choice:a|b|c``."""

    name: str
    kind: str
    meaning: str
    default: str | None = None


@dataclass(frozen=True)
class Pass:
    """A quantity that can be derived; ``derive(setting, **options)`` makes the derivation."""

    name: str
    summary: str
    options: tuple[Option, ...] = ()
    needs_model: bool = True

    @property
    def derive(self) -> Callable[..., Derivation]:
        """The function that derives it, imported when it is first used."""
        return cast("Callable[..., Derivation]", import_module(f"symcomm.passes.{self.name}").derive)


_STRATEGY = Option("strategy", "strategy", "how the model is parallelised, such as data(k) or tensor(8) + sequence")
_DTYPE = Option("dtype", "dtype", "the number format, where it is not the model's")
_OP = Option("op", "text", "only the row that computes this tensor")
_KINDS = "all-reduce|all-gather|reduce-scatter|all-to-all|send"

PASSES: dict[str, Pass] = {
    p.name: p
    for p in (
        Pass("parameters", "the number of parameters"),
        Pass(
            "flops",
            "the floating-point operations of a pass",
            (Option("scope", "choice:forward|backward|training", "which pass is counted", "forward"), _OP),
        ),
        Pass("traffic", "the bytes moved when each operand is read and each result written once", (_OP, _DTYPE)),
        Pass("intensity", "the arithmetic intensity: operations per byte moved", (_OP, _DTYPE)),
        Pass("tensor_size", "the bytes of one tensor", (Option("tensor", "text", "the name of the tensor"), _DTYPE)),
        Pass(
            "communication",
            "the bytes that a parallel strategy moves in a training iteration",
            (
                _STRATEGY,
                Option("collective", f"choice:{_KINDS}", "only calls of this kind"),
                Option("phase", "choice:forward|backward|update", "only calls of this phase"),
                _DTYPE,
                Option("gradient_dtype", "dtype", "the number format in which gradients of weights are reduced"),
            ),
        ),
        Pass("stages", "the number of pipeline stages", (_STRATEGY,)),
        Pass(
            "state_memory",
            "the bytes of weights, gradients and optimizer states on one rank",
            (
                _STRATEGY,
                Option("recipe", "choice:mixed_adam|fp32_adam|fp32_momentum|fp32_sgd", "what is kept", "mixed_adam"),
            ),
        ),
        Pass(
            "peak_rate",
            "the peak rate of a processor from its clock, its units and their operations per cycle",
            (
                Option("clock", "quantity", "the clock rate, such as 1.41 GHz"),
                Option("units", "quantity", "the number of multiprocessors"),
                Option("fma", "quantity", "multiply-adds per clock and multiprocessor"),
            ),
            needs_model=False,
        ),
    )
}
