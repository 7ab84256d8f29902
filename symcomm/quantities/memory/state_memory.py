"""What one rank keeps between iterations: weights, gradients and optimizer states, each where its placement says."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from symcomm import form as forms
from symcomm.derivation import Derivation
from symcomm.errors import StrategyError, ValuesError
from symcomm.form import Form, Num, Ratio, Total, product
from symcomm.graph.graph import Tensor
from symcomm.parallel import pipeline
from symcomm.parallel.placement import place
from symcomm.parallel.strategy import Placed, Strategy, parse_strategy, resolve
from symcomm.quantities.memory.saved import frozen_weights
from symcomm.quantities.options import Frozen, RecipeName, StageNumber, StrategyOption
from symcomm.quantities.recipes import Recipe as Recipe
from symcomm.quantities.recipes import recipe_of as recipe_of
from symcomm.quantities.setting import Setting, Work, mark
from symcomm.units import BYTE, PARAMETER, Unit


def derive(
    setting: Setting,
    strategy: StrategyOption | None = None,
    recipe: RecipeName = "mixed_adam",
    frozen: Frozen | None = None,
    stage: StageNumber | None = None,
) -> Derivation:
    """The bytes of weights, gradients and optimizer states on one rank.

    ``frozen`` weights have neither a gradient nor a state. ``stage`` is that of a pipeline, 0 is the first one.
    """
    from symcomm.quantities.memory.activation_memory import named

    kept, work, graph = recipe_of(recipe), Work(setting), setting.graph
    strategy = parse_strategy(strategy) if isinstance(strategy, str) else strategy
    rules = resolve(strategy, graph) if strategy else ()
    still = frozen_weights(graph, named(frozen))
    cut = strategy.pipeline if strategy else None
    if stage is not None and cut is None:
        raise StrategyError("'stage' belongs to a pipeline", hint="such as pipeline(8, microbatches=32)")
    held = pipeline.held(graph, cut, stage, setting.values)
    alone = len(held.regions) == 1
    parts: list[Form] = []
    rows = (
        ("weight", kept.weight, "W", "weights"),
        ("gradient", kept.gradient, "G", "gradients"),
        ("state", kept.state, "O", f"optimizer states ({kept.states})"),
    )
    for role, size, letter, what in rows:
        counts: list[Form] = []
        for region, weights in held.weights(graph) if size else ():
            elements = _elements(setting, strategy, rules, role, [w for w in weights if role == "weight" or
                                                                  w.name not in still])  # fmt: skip
            if elements is None:
                continue
            whose = " of one layer" if region.times and alone else f" of the {region.name}" if not alone else ""
            text = f"The {what}{whose} that one rank keeps"
            text += "; frozen weights have none." if still and role != "weight" else "."
            name = f"P_{letter}" if alone else f"P_{letter},{mark(region)}"
            n = work.define(name, elements, PARAMETER, "place", text)
            counts.append(product(held.times(region), n) if region.times else n)
        if counts:
            one = Num(Fraction(size), Unit.parse("byte/parameter"))
            form = product(counts[0] if len(counts) == 1 else Total(tuple(counts)), one)
            parts.append(work.define(f"M_{letter}", form, BYTE, "bytes", f"{size} bytes a parameter for {what}."))
    if not parts:
        raise ValuesError(f"{graph.name} has no weights", hint="only weights have states")
    work.define("M", Total(tuple(parts)) if len(parts) > 1 else parts[0], BYTE, "add", "All states together.")
    title = "State memory" + (f" under {strategy.name}" if strategy else "")
    return replace(setting.derivation(title, work.steps, notes=held.notes), where=held.where)


def _elements(
    setting: Setting, strategy: Strategy | None, rules: tuple[Placed, ...], role: str, weights: list[Tensor]
) -> Form | None:
    """The elements of some weights on one rank, those with the same cuts together."""
    ways: dict[Form, list[Form]] = {}
    sizes = strategy.sizes if strategy else {}
    for weight in weights:
        cuts = product(*(sizes[m] for m, _ in place(weight, setting.graph, rules, role)))
        ways.setdefault(cuts, []).append(setting.sizes([setting.graph.axes[a].size for a in weight.axes]))
    found: list[Form] = []
    for k, counts in ways.items():
        count: Form = counts[0] if len(counts) == 1 else Total(tuple(counts))
        found.append(count if k == forms.num(1) else Ratio(count, k))
    return Total(tuple(found)) if len(found) > 1 else found[0] if found else None
