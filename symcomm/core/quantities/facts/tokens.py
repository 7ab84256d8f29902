"""The tokens of a batch."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Literal

from symcomm.core import form as forms
from symcomm.core.derivation import Derivation
from symcomm.core.errors import StrategyError, ValuesError
from symcomm.core.graph.axis_roles import batch_axes, sequence_axes
from symcomm.core.program.program import batch_of
from symcomm.core.quantities.declared import Meaning
from symcomm.core.quantities.generating import step_of
from symcomm.core.setting import Setting, StepWriter
from symcomm.core.units import Unit

EXTENT = "step"


def derive(
    setting: Setting,
    streams: Annotated[Literal["all", "one"], Meaning("whether a model may have several streams of tokens")] = "all",
    of: Annotated[Literal["batch", "decode"], Meaning("a batch, or the new ones of a decode step")] = "batch",
) -> Derivation:
    """The tokens of a batch: examples times positions, of all streams; examples where there are no positions.

    Raises ``ValuesError`` where ``one`` stream is wanted and the model has more.
    """
    setting = step_of(setting, "decode") if of == "decode" else setting
    graph, work = setting.graph, StepWriter(setting)
    batch = [graph.axes[a].size for a in batch_axes(graph)]
    axes: tuple[str, ...] = ()
    with suppress(StrategyError):
        axes = tuple(a for a in sequence_axes(graph) if all(a != k or a == q for q, k in graph.attention_pairs))
    if len(axes) > 1 and streams == "one":
        raise ValuesError("six operations a parameter and token count one stream of tokens; this model has more",
                          hint="say model_flops: training_flops, which counts what each token passes")  # fmt: skip
    if graph.step is not None and of == "decode":
        size = graph.axes[batch_of(graph.model)].size
        work.combine("n_new", forms.product(forms.from_expr(size), forms.from_expr(graph.step.new)),
                     Unit.parse("token"), "tokens", "One for each sequence and new position.")  # fmt: skip
        return setting.derivation("Tokens of a decode step", work.steps)
    found = [setting.sizes([*batch, graph.axes[a].size]) for a in axes] or [setting.sizes(batch)]
    count = forms.combined(forms.Total, found)
    work.combine("n_tokens", count, Unit.parse("token"), "tokens", "The tokens of one batch.")
    return setting.derivation("Tokens of a batch", work.steps)
