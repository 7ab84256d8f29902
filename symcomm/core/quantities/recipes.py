"""Recipes of training: how many bytes a parameter takes for its weight, its gradient and its optimizer states."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Literal

from symcomm.core.errors import ValuesError, nearest
from symcomm.core.records import dataclass, replace

_BOUNDS = ("side", "elements", "block", "most", "iterations")


@dataclass(frozen=True)
class StateTerm:
    """Bytes that an optimizer keeps ``per`` element, row, column or block of a weight.

    ``per`` may be ``row_square`` or ``column_square``: a square matrix with a side of that many. ``most`` is the
    longest side for which the term is kept, ``block`` the elements that share one term.
    """

    per: Literal["element", "row", "column", "row_square", "column_square", "block"]
    size: int | Fraction
    block: int = 0
    most: int = 0


@dataclass(frozen=True)
class StateClass:
    """The states that an optimizer keeps for the weights of one class of shapes.

    ``of`` says which: all ``weights``, ``matrices``, or ``hidden`` matrices (neither a table nor a head). ``side`` is
    the least length of both sides, ``elements`` the least number of elements. A weight is of the first class it fits.
    ``iterations`` are those of Newton and Schulz that an update makes of a matrix.
    """

    terms: tuple[StateTerm, ...]
    of: Literal["weights", "matrices", "hidden"] = "weights"
    side: int = 0
    elements: int = 0
    iterations: int = 0

    def bounded(self, given: Mapping[str, int]) -> StateClass:
        """The class with other bounds, where it has them."""

        def bound(key: str, now: int) -> int:
            return given.get(key, now) if now else 0

        terms = tuple(replace(t, block=bound("block", t.block), most=bound("most", t.most)) for t in self.terms)
        return replace(self, terms=terms, side=bound("side", self.side), elements=bound("elements", self.elements),
                       iterations=bound("iterations", self.iterations))  # fmt: skip


@dataclass(frozen=True)
class Recipe:
    """Bytes per parameter of the weights and the gradients, and what is kept of the optimizer for each class of shapes.

    ``states`` says what that is.
    """

    name: str
    weight: int | Fraction
    gradient: int | Fraction
    classes: tuple[StateClass, ...]
    states: str
    source: str = ""

    @property
    def by_shape(self) -> bool:
        """Whether the states depend on the shapes of the weights."""
        return len(self.classes) > 1 or any(term.per != "element" for term in self.classes[0].terms)

    @property
    def state(self) -> int | Fraction:
        """The bytes of the optimizer's states per parameter.

        Raises ``ValuesError`` where they depend on the shapes of the weights.
        """
        if self.by_shape:
            what = f"{self.name} keeps states that depend on the shapes of the weights"
            raise ValuesError(
                what, hint="state_memory counts them; here a recipe has bytes a parameter, such as 2+2+12"
            )
        return sum(term.size for term in self.classes[0].terms)

    def changed(self, given: Mapping[str, str]) -> Recipe:
        """The recipe with other bounds: those of its classes, and ``block`` and ``most`` of their terms.

        Raises ``ValuesError`` for a bound that it does not have, and for what is no whole number.
        """
        there = {key for kept in self.classes for one in (kept, *kept.terms) for key in _BOUNDS if getattr(one, key, 0)}
        for key, text in given.items():
            if key not in there:
                raise ValuesError(f"{self.name} has no '{key[:40]}'", hint=nearest(key, sorted(there)))
            if not re.fullmatch(r"[1-9]\d{0,11}", text):
                raise ValuesError(f"{key} of {self.name} is '{text[:40]}'", hint="a whole number of at least 1")
        sizes = {key: int(text) for key, text in given.items()}
        return replace(self, classes=tuple(one.bounded(sizes) for one in self.classes))


def _each(size: int | Fraction) -> tuple[StateClass, ...]:
    return (StateClass((StateTerm("element", size),)),)


_COPY = "an fp32 copy of the weights and "
_DETTMERS = StateClass((StateTerm("element", 2), StateTerm("block", 8, block=256)), elements=4096)
_FACTORED = StateClass((StateTerm("row", 4), StateTerm("column", 4)), of="matrices", side=128)
_SHAMPOO = StateClass(
    (StateTerm("row_square", 8, most=8192), StateTerm("column_square", 8, most=8192), StateTerm("element", 4)),
    of="matrices",
)
_MUON = StateClass((StateTerm("element", 4),), of="hidden", iterations=5)
# One row an optimizer: what it keeps in fp32 beside the weights, and where that is said.
_OPTIMIZERS: Mapping[str, tuple[tuple[StateClass, ...], str, str]] = {
    "adam": (_each(8), "Adam's two moments", ""),
    "momentum": (_each(4), "the momentum", ""),
    "lion": (_each(4), "the momentum", "arXiv 2302.06675, algorithm 2"),
    "sgd": (_each(0), "nothing", ""),
    "adamw8bit": (
        (_DETTMERS, *_each(8)), "Adam's two moments in 8 bits, with two fp32 scales a block",
        "arXiv 2110.02861, section 2",
    ),
    "adafactor": ((_FACTORED, *_each(4)), "a mean for each row and each column of a matrix",
                  "arXiv 1804.04235, section 3"),
    "muon": ((_MUON, *_each(8)), "the momentum of hidden matrices, Adam's two moments of other weights",
             "K. Jordan, Muon: an optimizer for hidden layers"),
    "shampoo": ((_SHAMPOO, *_each(8)), "two square matrices with their roots and a momentum for each matrix",
                "arXiv 1802.09568, algorithm 1"),
}  # fmt: skip


def _with_copy(one: StateClass) -> StateClass:
    """The class with an fp32 copy of the weights besides."""
    size = 4 + sum(term.size for term in one.terms if term.per == "element")
    return replace(one, terms=(StateTerm("element", size), *(term for term in one.terms if term.per != "element")))


RECIPES = {
    "mixed_adam": Recipe(
        "mixed_adam", 2, 2, _each(12), _COPY + "Adam's two moments in fp32", "arXiv 1910.02054, section 3.1"
    ),
    "mixed_adam_fp32_gradients": Recipe(
        "mixed_adam_fp32_gradients", 2, 4, _each(12), _COPY + "Adam's two moments in fp32",
        "arXiv 2201.11990, section 3.1: gradients are summed in fp32",
    ),
}  # fmt: skip
RECIPES |= {f"fp32_{key}": Recipe(f"fp32_{key}", 4, 4, *row) for key, row in _OPTIMIZERS.items()}
RECIPES |= {
    f"mixed_{key}": Recipe(f"mixed_{key}", 2, 2, tuple(map(_with_copy, classes)), _COPY + states, source)
    for key, (classes, states, source) in _OPTIMIZERS.items() if key not in ("adam", "sgd")
}  # fmt: skip
# AdamW keeps what Adam keeps.
RECIPES |= {n.replace("adam", "adamw"): r for n, r in RECIPES.items() if "adam" in n and "8bit" not in n}


_PARTS = ("weights", "gradients", "master", "states")
_SIZE = re.compile(r"\d{1,4}(\.\d{1,6})?|\d{1,4}/\d{1,4}")
_HINT = "write weights=2, gradients=2, master=4, states=8, or 2+2+12: bytes of weights, gradients and states"


def recipe_of(said: str | Mapping[str, object]) -> Recipe:
    """The recipe of a name, or one of one's own; AdamW keeps what Adam keeps.

    Optimizers whose states depend on the shapes of weights take bounds: ``fp32_adamw8bit(block=2048)``.

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
    called = re.fullmatch(r"\s*(\w+)\(([^()]*)\)\s*", said)
    if called is not None and called[1] in RECIPES:
        bounds = [item.partition("=") for item in called[2].split(",")]
        return RECIPES[called[1]].changed({key.strip(): value.strip() for key, _, value in bounds})
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
    return Recipe(name, sizes["weights"], sizes["gradients"], _each(sizes["master"] + sizes["states"]), states)
