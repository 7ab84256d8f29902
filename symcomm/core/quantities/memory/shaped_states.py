"""Bytes and operations of recipes that treat a matrix and a vector differently, as Adafactor, Muon and Shampoo do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from fractions import Fraction
from math import prod
from typing import NamedTuple

from symcomm.core import form as forms
from symcomm.core.derivation import Condition, Numbers
from symcomm.core.errors import StrategyError, ValuesError, nearest
from symcomm.core.form import Form, Num, Ratio, Total, combined, evaluate, from_expr, names, num, product
from symcomm.core.graph.axis_roles import find_vocabulary
from symcomm.core.graph.graph import Graph, Tensor
from symcomm.core.parallel.layouts import Layout
from symcomm.core.parallel.strategy import Strategy
from symcomm.core.quantities.recipes import CLASSES, Recipe, StateClass, StateTerm
from symcomm.core.quantities.witnesses import number
from symcomm.core.records import dataclass
from symcomm.core.setting import Setting, StepWriter, named_by
from symcomm.core.units import BYTE, FLOP

_PER = {
    "rc": "an element", "r": "a row", "c": "a column", "block": "for {block} elements", "rr": "a pair of rows",
    "cc": "a pair of columns", "ss": "a pair on the shorter side", "tile": "a tile of {block} x {block}",
}  # fmt: skip
_OF = {
    "weights": "weight", "matrices": "matrix", "hidden": "hidden matrix", "frozen": "frozen matrix",
    "tables": "table or head", "vectors": "vector",
}  # fmt: skip


class UnknownSideError(ValuesError):
    """No value is known for a size on which it depends what a recipe keeps."""


class WeightShape(NamedTuple):
    """A weight on one rank: so many matrices of so many rows and columns, and whether it is one inside of a model."""

    name: str
    many: Form
    rows: Form
    columns: Form
    matrix: bool
    hidden: bool


def weight_shape(graph: Graph, strategy: Strategy | None, weight: Tensor, layout: Layout) -> WeightShape:
    """The rows and columns of a weight on one rank: what a product makes, and what it sums.

    What it neither makes nor sums, such as experts, is many matrices. A table has a row for each of its classes.
    """
    op = next(op for op in graph.consumers[weight.name] if op.phase == "forward")
    mine = op.indices[op.inputs.index(weight.name)]
    others = {i for name, operand in zip(op.inputs, op.indices, strict=True) if name != weight.name for i in operand}
    sides: dict[str, list[Form]] = {"many": [], "rows": [], "columns": []}
    for position, (axis, index) in enumerate(zip(weight.axes, mine, strict=True)):
        side = "columns" if index in op.summed else "many" if index in others else "rows"
        size = from_expr(graph.axes[axis].size)
        parts = [strategy.sizes[mesh] for mesh, at in layout if at == position] if strategy is not None else []
        sides[side].append(Ratio(size, product(*parts)) if parts else size)
    matrix = bool(sides["rows"] and sides["columns"])
    if not matrix:
        every = [size for several in sides.values() for size in several]
        sides = {"many": [], "rows": every, "columns": []}
    ends = bool(op.attribute("lookup")) or not {*weight.axes}.isdisjoint(find_vocabulary(graph))
    many, rows, columns = (product(*sides[side]) if sides[side] else num(1) for side in ("many", "rows", "columns"))
    return WeightShape(weight.name, many, rows, columns, matrix, matrix and not ends)


@dataclass
class ShapeChoice:
    """The class of a weight and the states kept for it, with the conditions on sizes that decided."""

    recipe: Recipe
    setting: Setting
    where: dict[Condition, None] = field(default_factory=dict)
    values: Mapping[str, Fraction] = field(init=False)

    def __post_init__(self) -> None:
        weights = [weight.name for weight in self.setting.graph.weights]
        for said in {one.only for one in self.recipe.classes} - {*CLASSES}:
            if not any(named_by(said, name) for name in weights):
                raise ValuesError(f"no weight is called '{said[:60]}'", hint=nearest(said, [*CLASSES, *weights]))
        self.values = self.setting.graph.relations.complete(self.setting.values)

    def reaches(self, form: Form, least: int) -> bool:
        """Whether a size reaches a bound.

        Raises ``ValuesError`` where it is not known.
        """
        missing = [name for name in names(form) if name not in self.values]
        if missing:
            what = f"what {self.recipe.name} keeps depends on the sizes: no value is given for {', '.join(missing)}"
            hint = f"for instance model.at({missing[0]}=1024), or given: {{{missing[0]}: 1024}}"
            raise UnknownSideError(what, hint=hint)
        reached = evaluate(form, self.values) >= least
        if names(form):
            self.where[Condition(form, ">=", num(least)) if reached else Condition(num(least - 1), ">=", form)] = None
        return reached

    def state_class(self, shape: WeightShape) -> StateClass:
        """The first class of the recipe that a weight fits."""
        return next(one for one in self.recipe.classes if self.fits(one, shape))

    def fits(self, one: StateClass, shape: WeightShape) -> bool:
        """Whether a weight is of a class."""
        if not (self.among(one.of, shape) and self.among(one.only, shape)):
            return False
        if one.side and not all(self.reaches(side, one.side) for side in (shape.rows, shape.columns)):
            return False
        return not one.elements or self.reaches(product(shape.rows, shape.columns), one.elements)

    def among(self, of: str, shape: WeightShape) -> bool:
        """Whether a weight is one of a class of weights, or has the name."""
        found = {
            "weights": True, "matrices": shape.matrix, "hidden": shape.hidden, "vectors": not shape.matrix,
            "frozen": shape.hidden and shape.name in self.setting.frozen, "tables": shape.matrix and not shape.hidden,
        }  # fmt: skip
        return found[of] if of in found else named_by(of, shape.name)

    def kept(self, term: StateTerm, shape: WeightShape) -> Form | None:
        """How many times a term is kept of a weight."""
        both = (shape.rows, shape.columns)
        if term.block:
            parts = both if term.per == "tile" else (product(*both),)
            return product(shape.many, *(forms.Ceiling(Ratio(part, num(term.block))) for part in parts))
        sides = {"r": shape.rows, "c": shape.columns, "s": forms.Smallest(both), "l": forms.Largest(both)}
        twice = next((sides[n] for n in "rc" if term.per.count(n) > 1), None)
        if term.most and twice is not None and self.reaches(twice, term.most + 1):
            return None
        return product(shape.many, *(sides[n] for n in term.per))


def check_whole(recipe: Recipe, strategy: Strategy | None, role: str) -> None:
    """Raises ``StrategyError`` where ranks that hold whole weights share out what a recipe keeps of them by shape."""
    alone = all(
        term.per == "rc" and not one.products + one.iterated
        for one in recipe.classes for term in recipe.kept(role, one)
    )  # fmt: skip
    if strategy is not None and not alone and any(r.axis == "first" and role in r.on for _, r in strategy.rules):
        what = f"{recipe.name} keeps rows, columns or blocks of whole weights; a shard of a weight is none of them"
        raise StrategyError(what, hint="tensor(8), or a recipe of bytes a parameter, such as fp32_adam")


def kept_bytes(choice: ShapeChoice, strategy: Strategy, role: str, weight: Tensor, layout: Layout) -> Form:
    """The bytes of one weight on a rank, of its gradient or its states."""
    shape = weight_shape(choice.setting.graph, strategy, weight, layout)
    found = [(term.size, choice.kept(term, shape)) for term in choice.recipe.kept(role, choice.state_class(shape))]
    return forms.total(*(product(count, Num(Fraction(size), BYTE)) for size, count in found if count is not None))


def shaped_states(
    work: StepWriter, choice: ShapeChoice, strategy: Strategy | None, role: str, label: str, what: str,
    regions: Sequence[tuple[str, Form, Sequence[Tensor]]], layout: Callable[[Tensor, str], Layout],
) -> tuple[Form, Callable[[Numbers], Fraction]]:  # fmt: skip
    """The bytes or operations of a recipe for all weights of a rank in a role, with their witness.

    ``regions`` are names, repetitions and weights, ``what`` says what it is of which ``role``.
    """
    unit, recipe = FLOP if role in ("products", "operations") else BYTE, choice.recipe
    counts: list[Form] = []
    each: list[tuple[Form, WeightShape, Sequence[StateTerm]]] = []
    for name, times, weights in regions:
        groups: dict[StateClass, list[WeightShape]] = {}
        for weight in weights:
            shape = weight_shape(work.setting.graph, strategy, weight, layout(weight, role))
            groups.setdefault(choice.state_class(shape), []).append(shape)
        for kept, shapes in groups.items():
            every = recipe.kept(role, kept)
            each += [(times, shape, every) for shape in shapes]
            found = [(term, choice.kept(term, shape)) for shape in shapes for term in every]
            terms = [product(count, Num(Fraction(t.size), unit)) for t, count in found if count is not None and t.size]
            if not terms:
                continue
            one = "FLOP" if unit == FLOP else "byte"
            said = [f"{t.size} {one}{'s' * (t.size != 1)} {_PER[t.per].format(block=t.block)}"
                    for t in every if t.per in _PER]  # fmt: skip
            seldom = f" in one update of {kept.every}" if kept.every > 1 else ""
            many = ((kept.products, ""), (kept.iterated, f", {kept.iterations} times{seldom}"))
            made = "; ".join(f"{len(p)} products{more}" for p, more in many if unit == FLOP and p)
            texts = ", ".join([*[made] * bool(made), *said])
            of = kept.of if kept.only == "weights" else kept.only
            text = f"Each {_OF.get(of, f'`{of}`')}{name and ' of the ' + name}: {texts}."
            called = f"{label},{name.split()[0] if name else 'part'}"
            part = work.define(called, combined(Total, terms), unit, "bytes", text,
                              witness=_witness([(num(1), s, every) for s in shapes]))  # fmt: skip
            counts.append(product(times, part) if times != num(1) else part)
    form, whole = combined(Total, counts, unit), _witness(each)
    return work.define(label, form, unit, "bytes" if unit == BYTE else "add", what, witness=whole), whole


def _witness(each: Sequence[tuple[Form, WeightShape, Sequence[StateTerm]]]) -> Callable[[Numbers], Fraction]:
    """Adds up what is kept of each weight, matrix by matrix."""

    def bytes_of(numbers: Numbers) -> Fraction:
        found = Fraction(0)
        for times, shape, kept in each:
            rows, columns = number(shape.rows, numbers), number(shape.columns, numbers)
            for term in kept:
                sides = {"r": rows, "c": columns, "s": min(rows, columns), "l": max(rows, columns)}
                if term.most and any(term.per.count(n) > 1 and sides[n] > term.most for n in "rc"):
                    continue
                parts = [rows, columns] if term.per == "tile" else [rows * columns]
                count = prod(-(-p // term.block) for p in parts) if term.block else prod(sides[n] for n in term.per)
                found += number(times, numbers) * number(shape.many, numbers) * count * Fraction(term.size)
        return found

    return bytes_of
