"""The calls of a strategy as they are counted: a fold over the turns of its program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from symcomm.dtypes import row_dtype
from symcomm.form import Form, num
from symcomm.graph.graph import Region
from symcomm.parallel.placement import PARTIAL, Collective, Compute
from symcomm.parallel.strategy import Strategy
from symcomm.program.instructions import BETWEEN_STAGES, Program, Send, Turn
from symcomm.program.program import program
from symcomm.records import dataclass
from symcomm.setting import Setting

if TYPE_CHECKING:
    from sympy import Expr


@dataclass(frozen=True)
class Call:
    """One call as it is counted: a collective, or a message over a pipeline boundary, of one region.

    What ``finishes`` the gradient of a weight, or the weight itself, is made for every microbatch or ``once`` in a
    step; ``accumulates`` says that this is for a convention to choose. ``name`` is what moves: d(W) for ``tensor`` W.
    """

    kind: str
    tensor: str
    what: str
    elements: Expr
    meshes: tuple[str, ...]
    phase: str
    why: str
    dtype: str
    region: Region
    every_layer: bool
    finishes: bool
    once: bool
    accumulates: bool
    name: str
    parts: tuple[str, ...]  # what is summed of the tensor: the branch before a residual sum, not the sum with it

    @property
    def shown(self) -> str:
        """The tensor in a sentence."""
        return " + ".join(f"`{part}`" for part in self.parts)

    def ranks(self, strategy: Strategy) -> Form:
        """The ranks between which it runs: those of a group of the mesh, or the two stages of a pipeline."""
        return num(2) if self.meshes == BETWEEN_STAGES else strategy.ranks(self.meshes)


STATISTICS = "statistics "  # what moves, of rows that are cut
SHORT = {"all-reduce": "AR", "all-gather": "AG", "reduce-scatter": "RS", "all-to-all": "A2A", "send": "send"}


def joint(meshes: tuple[str, ...]) -> str:
    """How a group over some axes of the mesh is called."""
    return " × ".join(meshes)


def calls(setting: Setting, strategy: Strategy, gradient_dtype: str | None = None) -> tuple[Call, ...]:
    """Every call of one repetition of each region and training iteration; what runs again behind the rest."""
    made = program(setting.graph, strategy, setting.accounting, setting.frozen)
    found = [_counted(made, turn, turn.work, gradient_dtype, setting.dtype) for turn in made.turns
             if not isinstance(turn.work, Compute)]  # fmt: skip
    return tuple(sorted(found, key=lambda call: 2 if call.meshes == BETWEEN_STAGES else call.phase == "recompute"))


def _counted(made: Program, turn: Turn, work: Collective | Send, gradient_dtype: str | None, dtype: str) -> Call:
    tensor = made.tensor(work)
    of = made.graph.tensors.get(tensor.of, tensor)
    what = {"gradient": "gradient of ", "weight": "weight ", "activation": "activation "}.get(tensor.role, "input ")
    if isinstance(work, Send):
        what = "gradient of " if work.phase == "backward" else "activation "
    elif tensor.name.startswith("new("):
        what = "updated weight "
    wide = (gradient_dtype if made.of_weight(work) else None) or of.dtype or dtype
    if tensor.role == "statistic":
        of, what, wide = tensor, STATISTICS, row_dtype(tensor.dtype or dtype)
    parts = summed_parts(made, tensor.name, work.meshes) if what == "activation " else (of.name,)
    return Call(work.kind, of.name, what, work.elements, work.meshes, turn.phase, work.why, wide, turn.region,
                turn.every, turn.finishes, turn.once, turn.accumulates, tensor.name, parts)  # fmt: skip


def summed_parts(made: Program, name: str, meshes: Sequence[str]) -> tuple[str, ...]:
    """The tensors that are summed: of a residual sum, the branches that are incomplete."""
    step = made.plan.computed.get(name)
    if step is None or step.op.kind != "add":
        return (name,)
    pending = [n for n, layout in zip(step.inputs, step.layouts, strict=True)
               if any((mesh, PARTIAL) in layout for mesh in meshes)]  # fmt: skip
    if len(pending) in (0, len(step.inputs)):
        return (name,)
    return tuple(found for one in pending for found in summed_parts(made, one, meshes))
