"""What one rank keeps between iterations: weights, gradients and optimizer states, each where its placement says."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from symcomm import form as forms
from symcomm.derivation import Derivation
from symcomm.errors import ValuesError, nearest
from symcomm.form import Form, Num, Sym, Total, product
from symcomm.parallel.placement import place
from symcomm.parallel.strategy import Strategy, parse_strategy, resolve
from symcomm.passes.setting import Setting, Work
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
        Recipe("fp32_adam", 4, 4, 8, "Adam's two moments"),
        Recipe("fp32_momentum", 4, 4, 4, "the momentum"),
        Recipe("fp32_sgd", 4, 4, 0, "nothing"),
    )
}


def derive(setting: Setting, strategy: Strategy | str | None = None, recipe: str = "mixed_adam") -> Derivation:
    """The bytes of weights, gradients and optimizer states on one rank of a strategy (all of them without one)."""
    if recipe not in RECIPES:
        raise ValuesError(f"unknown recipe '{recipe[:40]}'", hint=nearest(recipe, [*RECIPES]))
    kept, work, graph = RECIPES[recipe], Work(setting), setting.graph
    strategy = parse_strategy(strategy) if isinstance(strategy, str) else strategy
    rules = resolve(strategy, graph) if strategy else ()
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
            cuts = place(weight, graph, rules, role)
            sizes = strategy.sizes if strategy else {}
            ways.setdefault(product(*(sizes[m] for m, _ in cuts)), []).append(
                setting.sizes([graph.axes[a].size for a in weight.axes])
            )
        elements: list[Form] = []
        for k, counts in ways.items():
            count: Form = counts[0] if len(counts) == 1 else Total(tuple(counts))
            elements.append(count if k == forms.num(1) else forms.Ratio(count, k))
        n = work.define(
            f"P_{letter}", elements[0] if len(elements) == 1 else Total(tuple(elements)), PARAMETER, "place",
            f"The {what} of one layer that one rank keeps.",
        )  # fmt: skip
        one = Num(Fraction(size), Unit.parse("byte/parameter"))
        form = product(Sym(graph.repeat), n, one) if graph.repeat else product(n, one)
        parts.append(work.define(f"M_{letter}", form, BYTE, "bytes", f"{size} bytes a parameter for {what}."))
    work.define("M", Total(tuple(parts)) if len(parts) > 1 else parts[0], BYTE, "add", "All states together.")
    return setting.derivation("State memory" + (f" under {strategy.name}" if strategy else ""), work.steps)
