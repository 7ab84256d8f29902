"""The calls of a strategy as they are counted: a fold over the instructions of its program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from fractions import Fraction

from symcomm.core import form as forms
from symcomm.core.dtypes import row_dtype
from symcomm.core.errors import StrategyError, ValuesError
from symcomm.core.form import Form, from_expr, num, product, total
from symcomm.core.graph.experts import routed
from symcomm.core.graph.graph import Region
from symcomm.core.libraries import Expr
from symcomm.core.parallel.halo import HALO_MARK
from symcomm.core.parallel.placement import PARTIAL, Collective, Compute
from symcomm.core.parallel.strategy import Strategy
from symcomm.core.program.instructions import BETWEEN_STAGES, COPIES, Instruction, Program, Send
from symcomm.core.program.loops import ONCE, repeats, training_step
from symcomm.core.program.pipeline import RankShare, kinds
from symcomm.core.program.program import program
from symcomm.core.quantities.recipes import recipe_of
from symcomm.core.records import dataclass, replace
from symcomm.core.setting import Setting


@dataclass(frozen=True)
class Call:
    """One call as it is counted: a collective, or a message over a pipeline boundary, of one region."""

    kind: str
    tensor: str
    what: str
    elements: Expr
    meshes: tuple[str, ...]
    phase: str
    why: str
    dtype: str
    region: Region
    layers: Form  # so many layers make it
    every: bool  # else all of them but the model's first
    microbatches: Form  # a layer makes it for so many: one, where each moves its part of a batch
    finishes: bool  # it completes the gradient of a weight, or the weight
    once: bool  # in a step, not for every microbatch
    accumulates: bool  # a convention chooses between once and every microbatch
    name: str  # what moves: d(W) for the tensor W
    half: str
    parts: tuple[str, ...]  # what is summed of the tensor: the branch before a residual sum, not the sum with it
    by: tuple[str, ...] = field(default=(), compare=False)  # the conventions by which it is there
    copies: Form | None = None  # of each token, one for each of its experts
    positions: Form = ONCE  # of a loop, each of which sends its part of the elements

    @property
    def shown(self) -> str:
        """The tensor in a sentence."""
        return " + ".join(f"`{part}`" for part in self.parts)

    @property
    def times(self) -> Form:
        """How often so many bytes are moved."""
        return self.layers if self.microbatches == ONCE else product(self.microbatches, self.layers)

    @staticmethod
    def number(found: Sequence[Call]) -> Form:
        """How many calls some are: a loop makes one at each position."""
        looped = [call.positions for call in found if call.positions != ONCE]
        return total(*[num(len(found) - len(looped))] * (len(looped) < len(found)), *looped)

    def ranks(self, strategy: Strategy) -> Form:
        """The ranks between which it runs: of a group of the mesh, two stages of a pipeline, a rank and its host."""
        return num(2) if self.meshes in (BETWEEN_STAGES, *COPIES) else strategy.ranks(self.meshes)


def keeping(setting: Setting, recipe: str | Mapping[str, object] | None) -> Setting:
    """The setting with the recipe whose states disks read and write; raises ``ValuesError`` where none are there."""
    if recipe is None:
        return setting
    if setting.accounting.tier("state") != "nvme":
        raise ValuesError("a recipe changes only what disks read and write, and no states are there",
                          hint="offloading: states_on_nvme")  # fmt: skip
    return replace(setting, keeps=recipe)


TAKES_OUT = ("input_gradient", "gathered_weights", "batch_statistics")  # conventions by which a call is not there
STATISTICS = "statistics "  # what moves, of rows that are cut
SHORT = {"all-reduce": "AR", "all-gather": "AG", "reduce-scatter": "RS", "all-to-all": "A2A", "ring-pass": "pass",
         "ring-sum": "sum", "ring-sum-home": "home", "halo-exchange": "halo", "halo-shift": "edge",
         "send": "send"}  # fmt: skip


def joint(meshes: tuple[str, ...]) -> str:
    """How a group over some axes of the mesh is called."""
    return " × ".join(meshes)


def calls(
    setting: Setting, strategy: Strategy, gradient_dtype: str | None = None, held: RankShare | None = None,
    microbatches: Form = ONCE, copies: bool = False, made: Program | None = None,
) -> tuple[Call, ...]:  # fmt: skip
    """Every call of the training step of a rank, by what it holds of the model; what runs again behind the rest.

    ``copies`` between a rank and its host are no calls between ranks; with it they are there, too. The step may be one
    ``made`` of that program.
    """
    made = made or program(setting.graph, strategy, setting.accounting, setting.frozen)
    held = held or kinds(setting.graph, None)["only"]
    limited = {rule.mesh for _, rule in strategy.rules if rule.nodes}
    found = [_counted(made, one, one.work, dict(loops), held, gradient_dtype, setting)
             for one, loops in repeats(training_step(made, held, microbatches))
             if not isinstance(one.work, Compute) and (copies or one.work.meshes not in COPIES)]  # fmt: skip
    if alone := limited - {rule.mesh for _, rule in strategy.rules if not rule.nodes}:
        raise StrategyError(f"each rank of '{min(alone)}' has all tokens, so none travels and nodes= limits nothing",
                            hint="data(64) + expert(nodes=4) spreads tokens and experts")  # fmt: skip
    few = [call for call in found if call.kind == "all-to-all" and limited & {*call.meshes}]
    if few and (few[0].copies is None or any(call.copies != few[0].copies for call in few)):
        what = "every all-to-all over '" + joint(few[0].meshes) + "' has to take tokens to equally many experts"
        raise StrategyError(what, hint="leave out nodes=, or give the experts an axis of their own")
    return tuple(sorted(found, key=lambda call: 2 if call.meshes == BETWEEN_STAGES else call.phase == "recompute"))


def _counted(
    made: Program, instruction: Instruction, work: Collective | Send, loops: Mapping[str, Form], held: RankShare,
    gradient_dtype: str | None, setting: Setting,
) -> Call:  # fmt: skip
    dtype, keeps = setting.dtype, recipe_of(setting.keeps)
    tensor = made.tensor(work)
    of = made.graph.tensors.get(tensor.of, tensor)
    what = {"gradient": "gradient of ", "weight": "weight ", "activation": "activation "}.get(tensor.role, "input ")
    if isinstance(work, Send) and work.meshes == BETWEEN_STAGES:
        what = "gradient of " if work.phase == "backward" else "activation "
    elif tensor.name.startswith("new("):
        what = "updated weight "
    wide = (gradient_dtype if made.of_weight(work) else getattr(work, "dtype", None)) or of.dtype or dtype
    if tensor.role == "statistic":
        of, what, wide = tensor, STATISTICS, row_dtype(tensor.dtype or dtype)
    elements = work.elements
    if work.meshes in COPIES and tensor.name.startswith("state("):
        if keeps.shaped("state"):
            raise ValuesError(f"what disks read and write of {keeps.name} is not counted",
                              hint="a recipe of bytes a parameter, such as fp32_adam")  # fmt: skip
        states = forms.rational(Fraction(keeps.per_parameter("state")))
        what, wide, elements = f"bytes of the states ({keeps.name}) of ", "int8", forms.value(states) * elements
    of = made.graph.tensors[of.name.partition(HALO_MARK)[0]]  # the edges of an image are a part of it
    if isinstance(work, Collective) and of.axes in made.graph.routed:  # places that are filled, as in memory
        elements = elements * made.graph.elements(of.name) / made.graph.volume(of.name)
    parts = summed_parts(made, of.name, work.meshes) if what == "activation " else (of.name,)
    route = routed(made.graph, of)
    copies = None if route is None else from_expr(route.attribute("k"))
    layers, parted = loops.get("layer", ONCE), not (tensor.role == "weight" or made.of_weight(work))
    microbatches = ONCE if parted else loops.get("microbatch", ONCE)
    positions = made.graph.looped.get(tensor.name)
    region, times = instruction.region, ONCE if positions is None else from_expr(positions)
    return Call(work.kind, of.name, what, elements, work.meshes, instruction.phase, work.why, wide, region, layers,
                instruction.between_stages or layers == held.times(region), microbatches, instruction.finishes,
                instruction.once, instruction.accumulates, tensor.name, instruction.half, parts, instruction.by, copies,
                times)  # fmt: skip


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
