"""The options that all quantities of memory have: a strategy, a format, recomputation, a pipeline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from symcomm.core.accounting import Accounting
from symcomm.core.errors import StrategyError, ValuesError
from symcomm.core.graph.gradient import trains_inputs
from symcomm.core.graph.graph import SOFTMAXES, Graph, Region
from symcomm.core.parallel.strategy import SHARDS, Strategy, parse_strategy
from symcomm.core.program.autograd import saved
from symcomm.core.program.instructions import Program
from symcomm.core.program.program import program
from symcomm.core.program.rewrites.recomputation import RECOMPUTED
from symcomm.core.records import replace
from symcomm.core.setting import Setting

LAYERS_AGAIN = "Only repeated layers are computed again, not the parts before and after them."


def told_again(regions: Iterable[Region]) -> tuple[str, ...]:
    """The note on parts of a model that run again: of parts of which none is repeated all do."""
    return (LAYERS_AGAIN,) if {bool(region.times) for region in regions} == {True, False} else ()


def placed(strategy: Strategy | str | None, **of_pipeline: object) -> Strategy | None:
    """The strategy; ``of_pipeline`` are options that only a pipeline has.

    Raises ``StrategyError`` where an option does not belong to the strategy.
    """
    made = parse_strategy(strategy) if isinstance(strategy, str) else strategy
    if made is None or made.pipeline is None:
        for option, said in of_pipeline.items():
            if said is not None:
                raise StrategyError(f"'{option}' belongs to a pipeline", hint="such as pipeline(8, microbatches=32)")
    return made


def computed(strategy: Strategy, activations: bool) -> Strategy:
    """The axes of a strategy that have to divide sizes: shards at rest are padded, the batch cuts activations alone."""
    rules = tuple(
        (at, rule) for at, rule in strategy.rules
        if not rule.on <= SHARDS and (activations or rule.axis not in ("batch", "sequence"))
    )  # fmt: skip
    return replace(strategy, rules=rules)


def of_step(
    setting: Setting, strategy: Strategy | None, dtype: str | None, frozen: str | Iterable[str] | None,
    again: str | Iterable[str] | None, every: object,
) -> tuple[Setting, str]:  # fmt: skip
    """The setting of a step with its format and what is not trained, and what runs again, as ``recomputed_ops`` has it.

    Raises ``StrategyError`` where a degree of the strategy does not divide what it cuts, ``ValuesError`` for weights
    that there are not and for groups of layers that do not go with the rest.
    """
    if strategy is not None:
        setting = setting.divided(strategy)
    setting = setting.in_format(dtype).freeze(frozen)
    if again is None:  # the accounting may say so for every question
        again = RECOMPUTED[setting.accounting.recomputation]
    said = again if isinstance(again, str) else ", ".join(again)
    if every is not None:
        if said not in ("none", "full"):
            raise ValuesError("'every' goes with full recomputation", hint="leave one of the two out")
        if not any(region.times for region in setting.regions):
            raise ValuesError("every n-th layer is kept, but the model has one layer", hint="say 'repeat: N_layer'")
    return setting, said


def other_saved(setting: Setting) -> Accounting:
    """The accounting under which the other tensors are kept: what gradients read, or what eager PyTorch keeps."""
    return replace(setting.accounting, saved="ideal" if setting.accounting.saved == "pytorch" else "pytorch")


def saved_differs(setting: Setting, made: Program) -> bool:
    """Whether gradients read other numbers of bytes than eager PyTorch keeps."""
    again = made.recomputation
    other = program(setting.graph, made.strategy, other_saved(setting), setting.frozen, recomputation=again)

    def kept(made: Program) -> list[Counter[tuple[object, str]]]:
        return [Counter((item.elements, item.dtype) for item in saved(made, region.name, setting.dtype))
                for region in setting.regions]  # fmt: skip

    return kept(made) != kept(other)


def read_choices(setting: Setting, graphs: Sequence[Graph], made: Program, recomputation: object) -> None:
    """Reads the conventions that what is kept rests on; the ``recomputation`` that is asked for, or None."""
    if "activation" in setting.accounting.off_device and any(region.times for region in setting.regions):
        setting.choice("offloading")
    if recomputation is None and setting.accounting.recomputation != Accounting.recomputation:
        setting.choice("recomputation")
    if not setting.graph.repeat and trains_inputs(setting.graph):
        setting.choice("input_gradient")
    if any(op.kind in SOFTMAXES for graph in graphs for op in graph.ops):
        setting.choice("softmax")
    if setting.accounting.attention != "causal_half" and any(graph.windows for graph in graphs):
        setting.choice("attention")
    if any("gathered_activations" in instruction.by for instruction in made.instructions):
        setting.choice("gathered_activations")
    summed = replace(setting.accounting, batch_statistics="of_the_batch")
    again = program(setting.graph, made.strategy, summed, setting.frozen, recomputation=made.recomputation)
    if summed.saved == "ideal" and any("batch_statistics" in instruction.by for instruction in again.instructions):
        setting.choice("batch_statistics")  # statistics that ranks have summed are kept
