"""Recipes of training: how many bytes a parameter takes for its weight, its gradient and its optimizer states."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction

from symcomm.core.errors import ValuesError, nearest
from symcomm.core.records import dataclass, replace

_BOUNDS = ("side", "elements", "block", "most", "iterations", "every")
PARTS_KEPT = ("weight", "gradient", "state")
CLASSES = ("weights", "matrices", "hidden", "tables", "vectors")


@dataclass(frozen=True)
class StateTerm:
    """Bytes or operations for each element of a weight, for each of its sides, or for blocks of either.

    Of the sides ``r`` are rows, ``c`` columns, ``s`` the shorter and ``l`` the longer one: ``rc`` is an element, ``rr``
    an entry of a square matrix, ``rcr`` a product of three sizes.
    """

    per: str
    size: int | Fraction
    block: int = 0  # the elements, or the side of a square tile, that share one term
    most: int = 0  # the longest side of which there is a square


@dataclass(frozen=True)
class StateClass:
    """The states that an optimizer keeps for the weights of one class, and how it updates them.

    A weight is of the first class it fits: all ``weights``, ``matrices``, ``hidden`` matrices (neither a table nor a
    head), those of them that are ``frozen``, ``tables`` (and heads), or ``vectors``.
    """

    terms: tuple[StateTerm, ...]
    of: str = "weights"
    side: int = 0  # the least length of both sides
    elements: int = 0  # the least number of elements
    iterations: int = 0  # how often an update makes the iterated products, as Newton-Schulz steps
    every: int = 0  # only one in so many updates makes them
    only: str = "weights"  # what a user says: one of the classes, or the name of a weight
    weight: tuple[StateTerm, ...] = ()  # its bytes, where they are not the recipe's
    gradient: tuple[StateTerm, ...] = ()
    # Equations of an update, for each element (``rc``), row, ...; letters without such a size are known before.
    rules: tuple[tuple[str, str], ...] = ()
    each_iteration: tuple[tuple[str, str], ...] = ()
    products: tuple[str, ...] = ()  # by their rows, summed and columns
    iterated: tuple[str, ...] = ()

    def bounded(self, given: Mapping[str, int]) -> StateClass:
        """The class with other bounds, where it has them."""

        def bound(key: str, now: int) -> int:
            return given.get(key, now) if now else 0

        terms = tuple(replace(t, block=bound("block", t.block), most=bound("most", t.most)) for t in self.terms)
        return replace(self, terms=terms, side=bound("side", self.side), elements=bound("elements", self.elements),
                       iterations=bound("iterations", self.iterations), every=bound("every", self.every))  # fmt: skip


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
    copy: bool = False  # whether the states have a copy of the weights, which the update reads instead of them

    def kept(self, role: str, one: StateClass) -> tuple[StateTerm, ...]:
        """The bytes of a ``weight``, ``gradient`` or ``state`` of a class, or the ``traffic`` of an update of it.

        An update reads gradient, states and weight (or its copy), and writes weight and states. ``operations`` are
        those of its ``products``, a multiplication and an addition each, and of its rules.
        """
        if role == "traffic":
            moves = (("gradient", 1), ("state", 2), ("weight", 1 if self.copy else 2))
            sizes: dict[StateTerm, int | Fraction] = {}
            for term, n in ((t, n) for part, n in moves for t in self.kept(part, one)):
                sizes[replace(term, size=0)] = sizes.get(replace(term, size=0), 0) + n * term.size
            return tuple(replace(term, size=size) for term, size in sizes.items())
        if role in ("products", "operations"):
            most, found = max((term.most for term in one.terms), default=0), dict[str, int | Fraction]()
            once, share = Fraction(1), Fraction(one.iterations, one.every or 1)
            made = [(once, one.products), (share, one.iterated)]
            many = [("".join(sorted(text)), 2 * k) for k, texts in made for text in texts]
            if role == "operations":
                rules = [(once, one.rules), (share, one.each_iteration)]
                many += [(per, k * operations(text)) for k, some in rules for per, text in some]
            for per, more in many:
                found[per] = found.get(per, 0) + more
            return tuple(StateTerm(per, size, most=most) for per, size in found.items() if size)
        if role == "state":
            return one.terms
        size, own = (self.weight, one.weight) if role == "weight" else (self.gradient, one.gradient)
        return own or (StateTerm("rc", size),)

    def shaped(self, role: str) -> bool:
        """Whether the bytes of a weight, gradient or state depend on which weight it is."""
        every = {self.kept(role, one) for one in self.classes}
        return len(every) > 1 or any(term.per != "rc" for term in self.kept(role, self.classes[0]))

    @property
    def by_shape(self) -> bool:
        """Whether any of these depends on which weight it is."""
        return any(map(self.shaped, PARTS_KEPT))

    def per_parameter(self, role: str) -> int | Fraction:
        """The bytes of the weight, gradient or state of a parameter.

        Raises ``ValuesError`` where they depend on which weight it is.
        """
        if self.shaped(role):
            what = f"{self.name} keeps {role}s that depend on the shapes of the weights"
            raise ValuesError(
                what, hint="state_memory counts them; here a recipe has bytes a parameter, such as 2+2+12"
            )
        return sum(term.size for term in self.kept(role, self.classes[0]))

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
        called = f"{self.name}({', '.join(f'{key}={size}' for key, size in sizes.items())})"
        return replace(self, name=called, classes=tuple(one.bounded(sizes) for one in self.classes))


def operations(text: str) -> int:
    """The operations of some equations, written with all of their operators: operators and calls of functions.

    >>> operations("m = b*m + g; w = w - a*sign(m)")
    5
    """
    return len(re.findall(r"[*/+-]|\w\(", text))


def _each(size: int | Fraction, rule: str = "") -> tuple[StateClass, ...]:
    return (StateClass((StateTerm("rc", size),), rules=(("rc", rule),) if rule else ()),)


_COPY = "an fp32 copy of the weights and "
# Kingma and Ba, Adam, end of section 2: the corrections of both moments are in the rate a.
_ADAM = "m = b*m + d*g; v = c*v + f*g*g; w = w - a*m/(sqrt(v) + e)"
_DETTMERS = StateClass(
    (StateTerm("rc", 2), StateTerm("block", 8, block=256)), elements=4096,
    rules=(("rc", f"m = s*m; v = t*v; {_ADAM}; s = max(abs(m)); t = max(abs(v)); m = m/s; v = v/t"),),
)  # fmt: skip
_FACTORED = StateClass(
    (StateTerm("r", 4), StateTerm("c", 4)), of="matrices", side=128,
    rules=(("rc", "q = g*g + e; r = sum(q); c = sum(q); u = R*C*g; s = sum(u*u); w = w - a*u"),
           ("r", "V = b*V + d*r; R = 1/sqrt(V/t)"), ("c", "U = b*U + d*c; C = 1/sqrt(U)")),
)  # fmt: skip
_UNFACTORED = "v = b*v + d*(g*g + e); u = g/sqrt(v); s = sum(u*u); w = w - a*u"
_SHAMPOO = StateClass(
    (StateTerm("rr", 8, most=8192), StateTerm("cc", 8, most=8192), StateTerm("rc", 4)),
    of="matrices", products=("rcr", "crc", "rrc", "rcc"),
    rules=(("rc", "m = b*m + x; w = w - a*m"), ("rr", "L = L + p"), ("cc", "R = R + q")),
    # A root by coupled Newton iterations (Guo and Higham, 2006): T = (5 I - M)/4; X = X T; M = T^4 M, and T^4 takes two
    # products. With 10^-6 of the largest eigenvalue added, 18 come as near to it as 10^-6.
    iterations=18, every=1, iterated=("rrr",) * 4 + ("ccc",) * 4,
    each_iteration=(("rr", "T = (I - M)/p"), ("cc", "T = (I - M)/p")),
)
_MUON = StateClass(
    (StateTerm("rc", 4),), of="hidden", iterations=5, iterated=("sls", "sss", "ssl"),
    rules=(("rc", "m = b*m + g; n = sum(m*m); x = m/n; w = w - a*x"),),
    each_iteration=(("rc", "x = a*x + y"), ("ss", "B = b*A + c*D")),
)  # fmt: skip
# One row an optimizer: what it keeps in fp32 beside the weights, and where that is said.
_OPTIMIZERS: Mapping[str, tuple[tuple[StateClass, ...], str, str]] = {
    "adam": (_each(8, _ADAM), "Adam's two moments", ""),
    "momentum": (_each(4, "m = b*m + g; w = w - a*m"), "the momentum", ""),
    "lion": (_each(4, "u = sign(b*m + d*g); m = c*m + f*g; w = w - a*(u + l*w)"), "the momentum",
             "arXiv 2302.06675, algorithm 2"),
    "sgd": (_each(0, "w = w - a*g"), "nothing", ""),
    "adamw8bit": (
        (_DETTMERS, *_each(8, _ADAM)), "Adam's two moments in 8 bits, with two fp32 scales a block",
        "arXiv 2110.02861, section 2",
    ),
    "adafactor": ((_FACTORED, *_each(4, _UNFACTORED)), "a mean for each row and each column of a matrix",
                  "arXiv 1804.04235, section 3"),
    "muon": ((_MUON, *_each(8, _ADAM)), "the momentum of hidden matrices, Adam's two moments of other weights",
             "K. Jordan, Muon: an optimizer for hidden layers"),
    "shampoo": ((_SHAMPOO, *_each(8, _ADAM)), "two square matrices with their roots and a momentum for each matrix",
                "arXiv 1802.09568, algorithm 1; roots as in arXiv 2002.09018"),
}  # fmt: skip


def _with_copy(one: StateClass) -> StateClass:
    """The class with an fp32 copy of the weights besides."""
    size = 4 + sum(term.size for term in one.terms if term.per == "rc")
    return replace(one, terms=(StateTerm("rc", size), *(term for term in one.terms if term.per != "rc")))


RECIPES = {
    "mixed_adam": Recipe(
        "mixed_adam", 2, 2, _each(12, _ADAM), _COPY + "Adam's two moments in fp32",
        "arXiv 1910.02054, section 3.1", True,
    ),
    "mixed_adam_fp32_gradients": Recipe(
        "mixed_adam_fp32_gradients", 2, 4, _each(12, _ADAM), _COPY + "Adam's two moments in fp32",
        "arXiv 2201.11990, section 3.1: gradients are summed in fp32", True,
    ),
    "fp8_adam": Recipe(
        "fp8_adam", 2, 4,
        (StateClass((StateTerm("rc", 8),), of="hidden", rules=(("rc", _ADAM),),
                    weight=(StateTerm("rc", 1), StateTerm("tile", 4, block=128))), *_each(8, _ADAM)),
        _COPY + "Adam's two moments in bf16; hidden matrices are in fp8 with a scale a tile",
        "arXiv 2412.19437, section 3.3", True,
    ),
    "qlora_adam": Recipe(
        "qlora_adam", 2, 2,
        (StateClass((), of="frozen", weight=(
            StateTerm("rc", Fraction(1, 2)), StateTerm("block", 1, block=64), StateTerm("block", 4, block=2**14),
        )), *_each(8, _ADAM)),
        "Adam's two moments of trained weights; frozen matrices have 4 bits and a scale of 8 bits a block",
        "arXiv 2305.14314, section 3: of 256 scales each group has one in fp32",
    ),
}  # fmt: skip
RECIPES |= {f"fp32_{key}": Recipe(f"fp32_{key}", 4, 4, *row) for key, row in _OPTIMIZERS.items()}
RECIPES |= {
    f"mixed_{key}": Recipe(f"mixed_{key}", 2, 2, tuple(map(_with_copy, classes)), _COPY + states, source, True)
    for key, (classes, states, source) in _OPTIMIZERS.items() if key not in ("adam", "sgd")
}  # fmt: skip


def _decayed(recipe: Recipe) -> Recipe:
    """AdamW keeps what Adam keeps, and makes every weight a little smaller."""

    def rules(one: StateClass) -> tuple[tuple[str, str], ...]:
        return tuple((per, text.replace(_ADAM, f"{_ADAM}; w = l*w")) for per, text in one.rules)

    return replace(recipe, classes=tuple(replace(one, rules=rules(one)) for one in recipe.classes))


RECIPES |= {n.replace("adam", "adamw"): _decayed(r) for n, r in RECIPES.items() if "adam" in n and "8bit" not in n}
RECIPES |= {n: _decayed(r) for n, r in RECIPES.items() if "8bit" in n}


_PARTS = ("weights", "gradients", "master", "states")
_SIZE = re.compile(r"\d{1,4}(\.\d{1,6})?|\d{1,4}/\d{1,4}")
_BY_ROLE = re.compile(r",(?![^()]*\))")  # commas outside of brackets
_HINT = "write weights=2, gradients=2, master=4, states=8, or 2+2+12: bytes of weights, gradients and states"


def recipe_of(said: str | Mapping[str, object]) -> Recipe:
    """The recipe of a name, or one of one's own; AdamW keeps what Adam keeps.

    Optimizers whose states depend on the shapes of weights take bounds: ``fp32_adamw8bit(block=2048)``. Several recipes
    share the weights, each of the first that it fits: ``fp32_muon for hidden, fp32_sgd for W_g, fp32_adam``.

    One's own says the bytes a parameter takes: ``weights=2, gradients=2, master=4, states=2`` as text or as a mapping
    (what is not named takes none), or ``2+2+12``, the bytes of weights, gradients and states, in this order.

    >>> [recipe_of(said).per_parameter("state") for said in ("fp32_adamw", "2+2+16", "weights=2, master=4, states=2")]
    [8, 16, 6]

    Raises ``ValuesError`` for an unknown name, for two numbers (which of the three is left out?), and for what is no
    number of bytes.
    """
    if isinstance(said, Mapping):
        return _own({str(key): str(value) for key, value in said.items()})
    if said in RECIPES:
        return RECIPES[said]
    if " for " in said:
        return _by_role(said)
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


def _by_role(said: str) -> Recipe:
    """Recipes for some weights each, the last for all others: ``fp32_muon for hidden, fp32_adam``."""
    parts = [tuple(map(str.strip, item.partition(" for ")[::2])) for item in _BY_ROLE.split(said)]
    wrong = next((f"'{r} for {w}'" for r, w in parts[:-1] if not w), None)
    if wrong is not None or parts[-1][1]:
        what = "comes before the last recipe, but is for all weights" if wrong else "leaves weights without a recipe"
        raise ValuesError(f"the recipe '{said[:60]}' {what}", hint="such as fp32_muon for hidden, fp32_adam")
    found = [(recipe_of(name), only or "weights") for name, only in parts]
    if len({one.copy for one, _ in found}) > 1:
        raise ValuesError(f"of '{said[:60]}' only some have a copy of the weights", hint="all mixed_, or all fp32_")
    classes = tuple(
        replace(one, only=only, weight=recipe.kept("weight", one), gradient=recipe.kept("gradient", one))
        for recipe, only in found for one in recipe.classes
    )
    first = found[0][0]
    states = "; ".join(f"{one.states} ({only})" for one, only in found)
    name = ", ".join(f"{one.name} for {only}" for one, only in found[:-1]) + f", {found[-1][0].name}"
    return Recipe(name, first.weight, first.gradient, classes, states, copy=first.copy)


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
    each = _each(sizes["master"] + sizes["states"])
    return Recipe(name, sizes["weights"], sizes["gradients"], each, states, copy=bool(sizes["master"]))
