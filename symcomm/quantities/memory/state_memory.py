"""What one rank keeps between iterations: weights, gradients and optimizer states, each where its placement says."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from symcomm import form as forms
from symcomm.derivation import Derivation
from symcomm.errors import ValuesError, nearest
from symcomm.form import Form, Num, Ratio, Sym, Total, product
from symcomm.parallel import pipeline
from symcomm.parallel.placement import place
from symcomm.parallel.strategy import Strategy, parse_strategy, resolve
from symcomm.quantities.memory.saved import frozen_weights
from symcomm.quantities.setting import Setting, Work
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
    strategy: Strategy | str | None = None,
    recipe: str = "mixed_adam",
    frozen: str | Iterable[str] | None = None,
) -> Derivation:
    """The bytes of weights, gradients and optimizer states on one rank of a strategy (all of them without one).

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
