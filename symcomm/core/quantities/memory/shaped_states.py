"""The states of optimizers that keep other things of a matrix than of a vector, such as Adafactor, Muon, Shampoo."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from fractions import Fraction
from typing import NamedTuple

from symcomm.core.derivation import Condition, Numbers
from symcomm.core.errors import StrategyError, ValuesError
from symcomm.core.form import Ceiling, Form, Num, Ratio, Total, evaluate, from_expr, names, num, product, total
from symcomm.core.graph.axis_roles import find_vocabulary
from symcomm.core.graph.graph import Graph, Tensor
from symcomm.core.parallel.layouts import Layout
from symcomm.core.parallel.strategy import Strategy
from symcomm.core.quantities.recipes import Recipe, StateClass, StateTerm
from symcomm.core.quantities.witnesses import number
from symcomm.core.records import dataclass
from symcomm.core.setting import Setting, StepWriter
from symcomm.core.units import BYTE

_PER = {
    "element": "an element", "row": "a row", "column": "a column", "block": "for {block} elements",
    "row_square": "a pair of rows", "column_square": "a pair of columns",
}  # fmt: skip
_OF = {"weights": "weight", "matrices": "matrix", "hidden": "hidden matrix"}


class WeightShape(NamedTuple):
    """A weight on one rank: so many matrices of so many rows and columns, and whether it is one inside of a model."""

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
    cuts = {position: mesh for mesh, position in layout}
    sides: dict[str, list[Form]] = {"many": [], "rows": [], "columns": []}
    for position, (axis, index) in enumerate(zip(weight.axes, mine, strict=True)):
        side = "columns" if index in op.summed else "many" if index in others else "rows"
        size = from_expr(graph.axes[axis].size)
        mesh = cuts.get(position)
        sides[side].append(Ratio(size, strategy.sizes[mesh]) if strategy is not None and mesh is not None else size)
    matrix = bool(sides["rows"] and sides["columns"])
    if not matrix:
        every = [size for several in sides.values() for size in several]
        sides = {"many": [], "rows": every, "columns": []}
    ends = bool(op.attribute("lookup")) or not {*weight.axes}.isdisjoint(find_vocabulary(graph))
    many, rows, columns = (product(*sides[side]) if sides[side] else num(1) for side in ("many", "rows", "columns"))
    return WeightShape(many, rows, columns, matrix, matrix and not ends)


@dataclass
class ShapeChoice:
    """The class of a weight and the states kept for it, with the conditions on sizes that decided."""

    recipe: Recipe
    values: Mapping[str, Fraction]
    where: dict[Condition, None] = field(default_factory=dict)

    def reaches(self, form: Form, least: int) -> bool:
        """Whether a size reaches a bound.

        Raises ``ValuesError`` where it is not known.
        """
        missing = [name for name in names(form) if name not in self.values]
        if missing:
            what = f"what {self.recipe.name} keeps depends on the sizes: no value is given for {', '.join(missing)}"
            raise ValuesError(what, hint=f"for instance model.at({missing[0]}=1024), or given: {{{missing[0]}: 1024}}")
        reached = evaluate(form, self.values) >= least
        if names(form):
            self.where[Condition(form, ">=", num(least)) if reached else Condition(num(least - 1), ">=", form)] = None
        return reached

    def state_class(self, shape: WeightShape) -> StateClass:
        """The first class of the recipe that a weight fits."""
        return next(one for one in self.recipe.classes if self.fits(one, shape))

    def fits(self, one: StateClass, shape: WeightShape) -> bool:
        """Whether a weight is of a class."""
        if (one.of == "matrices" and not shape.matrix) or (one.of == "hidden" and not shape.hidden):
            return False
        if one.side and not all(self.reaches(side, one.side) for side in (shape.rows, shape.columns)):
            return False
        return not one.elements or self.reaches(product(shape.rows, shape.columns), one.elements)

    def kept(self, term: StateTerm, shape: WeightShape) -> Form | None:
        """How many times a term is kept of a weight."""
        side = shape.columns if term.per.startswith("column") else shape.rows
        if term.most and self.reaches(side, term.most + 1):
            return None
        if term.per == "element":
            return product(shape.many, shape.rows, shape.columns)
        if term.per == "block":
            return product(shape.many, Ceiling(Ratio(product(shape.rows, shape.columns), num(term.block))))
        return product(shape.many, side, side) if term.per.endswith("square") else product(shape.many, side)


def check_whole(recipe: Recipe, strategy: Strategy | None) -> None:
    """Raises ``StrategyError`` where states are sharded over ranks that hold whole weights: a shard is no matrix."""
    if strategy is not None and any(r.axis == "first" and "state" in r.on for _, r in strategy.rules):
        what = f"{recipe.name} keeps rows, columns or blocks of whole weights; a shard of a weight is none of them"
        raise StrategyError(what, hint="tensor(8), or a recipe of bytes a parameter, such as fp32_adam")


def state_bytes(graph: Graph, choice: ShapeChoice, strategy: Strategy, weight: Tensor, layout: Layout) -> Form:
    """The bytes that an optimizer keeps of one weight on a rank."""
    shape = weight_shape(graph, strategy, weight, layout)
    found = [(term.size, choice.kept(term, shape)) for term in choice.state_class(shape).terms]
    return total(*(product(count, Num(Fraction(size), BYTE)) for size, count in found if count is not None))


def shaped_states(
    setting: Setting, work: StepWriter, recipe: Recipe, strategy: Strategy | None,
    regions: Sequence[tuple[str, Form, Sequence[Tensor]]], layout: Callable[[Tensor, str], Layout],
) -> tuple[Form, Callable[[Numbers], Fraction], tuple[Condition, ...]]:  # fmt: skip
    """The bytes of the states on one rank, their witness, and the sizes for which they hold.

    ``regions`` are names, repetitions and weights.

    Raises ``StrategyError`` where states are sharded over ranks that hold whole weights: a shard is no matrix.
    """
    choice = ShapeChoice(recipe, setting.graph.relations.complete(setting.values))
    check_whole(recipe, strategy)
    counts: list[Form] = []
    each: list[tuple[Form, WeightShape, StateClass]] = []
    for name, times, weights in regions:
        groups: dict[StateClass, list[WeightShape]] = {}
        for weight in weights:
            shape = weight_shape(setting.graph, strategy, weight, layout(weight, "state"))
            groups.setdefault(choice.state_class(shape), []).append(shape)
        for kept, shapes in groups.items():
            each += [(times, shape, kept) for shape in shapes]
            found = [(term, choice.kept(term, shape)) for shape in shapes for term in kept.terms]
            terms = [product(count, Num(Fraction(term.size), BYTE)) for term, count in found if count is not None]
            if not terms:
                continue
            texts = ", ".join(f"{t.size} bytes {_PER[t.per].format(block=t.block)}" for t in kept.terms)
            text = f"Each {_OF[kept.of]}{name and ' of the ' + name}: {texts}."
            label = f"M_O,{name.split()[0]}" if name else "M_O,part"
            form = terms[0] if len(terms) == 1 else Total(tuple(terms))
            one = work.define(label, form, BYTE, "bytes", text, witness=_witness([(num(1), s, kept) for s in shapes]))
            counts.append(product(times, one) if times != num(1) else one)
    form = counts[0] if len(counts) == 1 else Total(tuple(counts))
    whole = _witness(each)
    part = work.define("M_O", form, BYTE, "bytes", f"Optimizer states: {recipe.states}.", witness=whole)
    return part, whole, tuple(choice.where)


def _witness(each: Sequence[tuple[Form, WeightShape, StateClass]]) -> Callable[[Numbers], Fraction]:
    """Adds up what is kept of each weight, matrix by matrix."""

    def bytes_of(numbers: Numbers) -> Fraction:
        found = Fraction(0)
        for times, shape, kept in each:
            rows, columns = number(shape.rows, numbers), number(shape.columns, numbers)
            worth = {
                "element": rows * columns, "row": rows, "column": columns,
                "row_square": rows**2, "column_square": columns**2,
            }  # fmt: skip
            for term in kept.terms:
                side = columns if term.per.startswith("column") else rows
                if not term.most or side <= term.most:
                    count = -(-rows * columns // term.block) if term.block else worth[term.per]
                    found += number(times, numbers) * number(shape.many, numbers) * count * Fraction(term.size)
        return found

    return bytes_of
