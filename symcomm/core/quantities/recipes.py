"""Recipes of training: how many bytes a parameter takes for its weight, its gradient and its optimizer states."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction

from symcomm.core.errors import ValuesError, nearest
from symcomm.core.records import dataclass


@dataclass(frozen=True)
class Recipe:
    """Bytes per parameter of the weights, the gradients and the optimizer states, with what the states are."""

    name: str
    weight: int | Fraction
    gradient: int | Fraction
    state: int | Fraction
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


_PARTS = ("weights", "gradients", "master", "states")
_SIZE = re.compile(r"\d{1,4}(\.\d{1,6})?|\d{1,4}/\d{1,4}")
_HINT = "write weights=2, gradients=2, master=4, states=8, or 2+2+12: bytes of weights, gradients and states"


def recipe_of(said: str | Mapping[str, object]) -> Recipe:
    """The recipe of a name, or one of one's own; AdamW keeps what Adam keeps.

    One's own says the bytes a parameter takes: ``weights=2, gradients=2, master=4, states=2`` as text or as a mapping
    (what is not named takes none), or ``2+2+12``, the bytes of weights, gradients and states, in this order.

    >>> recipe_of("fp32_adamw").state, recipe_of("2+2+16").state, recipe_of("weights=2, master=4, states=2").state
    (8, 16, 6)

    Raises ``ValuesError`` for an unknown name, for two numbers (which of the three is left out?), and for what is no
    number of bytes.
    """
    if isinstance(said, Mapping):
        return _own({str(key): str(value) for key, value in said.items()})
    if said in RECIPES:
        return RECIPES[said]
    if "=" in said:
        pairs = [item.partition("=") for item in said.split(",")]
        named = {key.strip(): value.strip() for key, _, value in pairs}
        if len(named) < len(pairs):
            raise ValuesError(f"the recipe '{said[:60]}' names a part twice", hint=_HINT)
        return _own(named)
    numbers = [one.strip() for one in said.split("+")]
    if all(_SIZE.fullmatch(one) for one in numbers):
        if len(numbers) == 3:
            return _own(dict(zip(("weights", "gradients", "states"), numbers, strict=True)))
        if len(numbers) == 2:
            a, b = numbers
            raise ValuesError(
                f"the recipe '{said[:40]}' can be read in two ways",
                hint=f"write weights={a}, states={b} (no gradient is kept), or weights={a}, gradients={b}",
            )
        raise ValuesError(f"'{said[:40]}' is no recipe: it has {len(numbers)} of three numbers", hint=_HINT)
    near = nearest(said, [*RECIPES])
    raise ValuesError(f"unknown recipe '{said[:40]}'", hint=f"{near}; or {_HINT}")


def _own(named: Mapping[str, str]) -> Recipe:
    """A recipe of one's own, called by what it says."""
    sizes: dict[str, int | Fraction] = dict.fromkeys(_PARTS, 0)
    for key, text in named.items():
        if key not in sizes:
            raise ValuesError(f"a recipe has no '{key[:40]}'", hint=nearest(key, [*_PARTS]))
        if not _SIZE.fullmatch(text) or text.endswith("/0"):
            raise ValuesError(f"{key} of a recipe is '{text[:40]}', but a number of bytes is needed", hint=_HINT)
        size = Fraction(text)
        sizes[key] = size.numerator if size.denominator == 1 else size
    if not sizes["weights"]:
        raise ValuesError("a recipe says how many bytes a weight takes", hint=_HINT)
    kept = (("a copy of the weights", sizes["master"]), ("the optimizer's states", sizes["states"]))
    states = " and ".join(f"{size} bytes for {what}" for what, size in kept if size) or "nothing"
    name = ", ".join(f"{key}={value}" for key, value in sizes.items() if value)
    return Recipe(name, sizes["weights"], sizes["gradients"], sizes["master"] + sizes["states"], states)
