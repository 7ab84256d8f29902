"""What is kept between the forward and the backward pass: what gradients read, less what is computed again."""

from __future__ import annotations

from symcomm.core import form as forms
from symcomm.core.dtypes import element_bytes
from symcomm.core.errors import ValuesError, nearest
from symcomm.core.form import Form
from symcomm.core.graph.drafts import size_form
from symcomm.core.parallel.placement import Plan
from symcomm.core.parallel.strategy import Strategy
from symcomm.core.program.autograd import Autograd, Saved
from symcomm.core.program.program import program
from symcomm.core.program.rewrites.recomputation import recomputed_ops, run_again
from symcomm.core.setting import Setting
from symcomm.core.text.formula import parse_answer


def held_outside(setting: Setting, said: str) -> Form | None:
    """The bytes of a tensor that is not the model's, from its shape and format: ``labels [B, L] int64``.

    None where no shape is said. Raises ``ValuesError`` for sizes that the model does not have.
    """
    name, bracket, rest = said.partition("[")
    if not bracket:
        return None
    shape, _, dtype = rest.partition("]")
    sizes = [size_form(parse_answer(size.strip(), None)) for size in shape.split(",")]
    unknown = [n for size in sizes for n in forms.names(size) if n not in setting.symbols]
    if unknown:
        raise ValuesError(f"{name.strip()} has the size {unknown[0]}, which the model has not",
                          hint=nearest(unknown[0], sorted(setting.symbols)))  # fmt: skip
    return forms.product(*sizes, element_bytes(dtype.strip() or setting.dtype))


def autograd(setting: Setting, plan: Plan) -> Autograd:
    """What the backward pass of a plan reads, under the conventions of a setting."""
    return Autograd(plan, setting.accounting, setting.dtype, setting.graph)


def saved_tensors(setting: Setting, strategy: Strategy | None = None, recomputation: str = "none") -> tuple[Saved, ...]:
    """What one rank keeps of one layer between its forward and its backward pass."""
    [(_, kept)] = saved_regions(setting, strategy, recomputation)
    return kept


def saved_regions(
    setting: Setting, strategy: Strategy | None = None, recomputation: str = "none"
) -> list[tuple[Setting, tuple[Saved, ...]]]:
    """What one rank keeps of one repetition of each region; of several, only repeated ones are computed again."""
    made = program(setting.graph, strategy, setting.accounting, setting.frozen)
    alone = len(setting.parts) == 1
    found = []
    for region, part in zip(setting.regions, setting.parts, strict=True):
        again = recomputation if alone or region.times else "none"
        facts = autograd(part, made.region(region.name).plan)
        kept = facts.kept(recomputed_ops(part.graph, again), run_again(part.graph, again))
        away = made.away(region.name)
        found.append((part, tuple(item for item in kept if (item.tensor, item.elements) not in away)))
    return found
