"""Recipes of training: how many bytes a parameter takes for its weight, its gradient and its optimizer states."""

from __future__ import annotations

from dataclasses import dataclass

from symcomm.errors import ValuesError, nearest


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
RECIPES |= {name.replace("adam", "adamw"): r for name, r in RECIPES.items() if "adam" in name}  # it keeps the same


def recipe_of(name: str) -> Recipe:
    """The recipe of a name; AdamW keeps what Adam keeps. Raises ``ValuesError`` for an unknown one.

    >>> recipe_of("fp32_adamw").state
    8
    """
    if name not in RECIPES:
        raise ValuesError(f"unknown recipe '{name[:40]}'", hint=nearest(name, [*RECIPES]))
    return RECIPES[name]
