"""What one rank keeps between iterations: weights, gradients and optimizer states, each where its placement says."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from symcomm import form as forms
from symcomm.derivation import Derivation
from symcomm.errors import StrategyError, ValuesError, nearest
from symcomm.form import Form, Num, Ratio, Total, product
from symcomm.graph.graph import Tensor
from symcomm.parallel import pipeline
from symcomm.parallel.placement import place
from symcomm.parallel.strategy import Placed, Strategy, parse_strategy, resolve
from symcomm.quantities.memory.saved import frozen_weights
from symcomm.quantities.setting import Setting, Work, mark
from symcomm.units import BYTE, PARAMETER, Unit


@dataclass(frozen=True)
class Recipe:
    """Bytes per parameter of the weights, the gradients and the optimizer states, with what the states are."""

    name: str
    weight: int
    gradient: int
    state: int
    states: str
    source: str = ""


RECIPES = {
    r.name: r
    for r in (
        Recipe(
            "mixed_adam",
            2,
            2,
            12,
            "an fp32 copy of the weights and Adam's two moments in fp32",
            "arXiv 1910.02054, section 3.1",
        ),
        Recipe(
            "mixed_adam_fp32_gradients",
            2,
            4,
            12,
            "an fp32 copy of the weights and Adam's two moments in fp32",
            "arXiv 2201.11990, section 3.1: gradients are summed in fp32",
        ),
        Recipe("fp32_adam", 4, 4, 8, "Adam's two moments"),
        Recipe("fp32_momentum", 4, 4, 4, "the momentum"),
        Recipe("fp32_sgd", 4, 4, 0, "nothing"),
    )
}


def recipe_of(name: str) -> Recipe:
    """The recipe of a name; AdamW keeps what Adam keeps.

    >>> recipe_of("fp32_adamw").state
    8
    """
    key = name.replace("adamw", "adam")
    if key not in RECIPES:
        raise ValuesError(f"unknown recipe '{name[:40]}'", hint=nearest(name, [*RECIPES]))
    return RECIPES[key]


def derive(
    setting: Setting,
    strategy: Strategy | str | None = None,
    recipe: str = "mixed_adam",
    frozen: str | Iterable[str] | None = None,
    stage: object = None,
) -> Derivation:
    """The bytes of weights, gradients and optimizer states on one rank of a strategy (all of them without one).

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
    return setting.derivation(title, work.steps, notes=held.notes)


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
