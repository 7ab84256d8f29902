"""What one rank keeps between iterations: weights, gradients and optimizer states, each where its placement says."""

from __future__ import annotations

from fractions import Fraction

from symcomm import form as forms
from symcomm.derivation import Derivation
from symcomm.errors import ValuesError
from symcomm.form import Form, Num, Ratio, Sym, Total, product
from symcomm.parallel import pipeline
from symcomm.parallel.placement import place
from symcomm.parallel.strategy import Strategy, parse_strategy, resolve
from symcomm.quantities.memory.saved import frozen_weights
from symcomm.quantities.options import Frozen, RecipeName, StrategyOption
from symcomm.quantities.recipes import Recipe as Recipe
from symcomm.quantities.recipes import recipe_of as recipe_of
from symcomm.quantities.setting import Setting, Work
from symcomm.units import BYTE, PARAMETER, Unit


def layers(setting: Setting, strategy: Strategy | None) -> Form | None:
    """The layers that one rank holds: all of them, or those of its stage. None for a graph that is not repeated."""
    repeat = setting.graph.repeat
    if not repeat:
        return None
    cut = strategy.pipeline if strategy else None
    if cut is None:
        return Sym(repeat)
    return cut.layers_per_stage or Ratio(Sym(repeat), pipeline.stage_count(cut, repeat))


def derive(
    setting: Setting,
    strategy: StrategyOption | None = None,
    recipe: RecipeName = "mixed_adam",
    frozen: Frozen | None = None,
) -> Derivation:
    """The bytes of weights, gradients and optimizer states on one rank.

    ``frozen`` weights have neither a gradient nor a state.
    """
    from symcomm.quantities.memory.activation_memory import named

    kept, work, graph = recipe_of(recipe), Work(setting), setting.graph
    strategy = parse_strategy(strategy) if isinstance(strategy, str) else strategy
    rules = resolve(strategy, graph) if strategy else ()
    still = frozen_weights(graph, named(frozen))
    mine = layers(setting, strategy)
    parts: list[Form] = []
    rows = (
        ("weight", kept.weight, "W", "weights"),
        ("gradient", kept.gradient, "G", "gradients"),
        ("state", kept.state, "O", f"optimizer states ({kept.states})"),
    )
    for role, size, letter, what in rows:
        if not size:
            continue
        ways: dict[Form, list[Form]] = {}
        for weight in graph.weights:
            if role != "weight" and weight.name in still:
                continue
            cuts = place(weight, graph, rules, role)
            sizes = strategy.sizes if strategy else {}
            ways.setdefault(product(*(sizes[m] for m, _ in cuts)), []).append(
                setting.sizes([graph.axes[a].size for a in weight.axes])
            )
        if not ways:
            continue
        elements: list[Form] = []
        for k, counts in ways.items():
            count: Form = counts[0] if len(counts) == 1 else Total(tuple(counts))
            elements.append(count if k == forms.num(1) else Ratio(count, k))
        text = f"The {what}{' of one layer' if mine is not None else ''} that one rank keeps"
        text += "; frozen weights have none." if still and role != "weight" else "."
        n = work.define(
            f"P_{letter}", elements[0] if len(elements) == 1 else Total(tuple(elements)), PARAMETER, "place", text,
        )  # fmt: skip
        one = Num(Fraction(size), Unit.parse("byte/parameter"))
        form = product(mine, n, one) if mine is not None else product(n, one)
        parts.append(work.define(f"M_{letter}", form, BYTE, "bytes", f"{size} bytes a parameter for {what}."))
    if not parts:
        raise ValuesError(f"{graph.name} has no weights", hint="only weights have states")
    work.define("M", Total(tuple(parts)) if len(parts) > 1 else parts[0], BYTE, "add", "All states together.")
    return setting.derivation("State memory" + (f" under {strategy.name}" if strategy else ""), work.steps)
