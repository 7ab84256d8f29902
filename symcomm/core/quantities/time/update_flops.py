"""The matrix products of an update: the iterations by which Muon makes each matrix nearly orthogonal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from functools import partial

from symcomm.core.derivation import Derivation, Numbers
from symcomm.core.errors import ValuesError
from symcomm.core.form import Form, Largest, Num, Power, Smallest, Total, from_expr, num, product, value
from symcomm.core.graph.graph import Region
from symcomm.core.quantities.memory.shaped_states import ShapeChoice, WeightShape, weight_shape
from symcomm.core.quantities.options import Frozen, RecipeName
from symcomm.core.quantities.recipes import recipe_of
from symcomm.core.quantities.witnesses import number, often
from symcomm.core.records import replace
from symcomm.core.setting import Setting, StepWriter, mark, times
from symcomm.core.units import FLOP

EXTENT = "model all"


def derive(setting: Setting, recipe: RecipeName = "mixed_muon", frozen: Frozen | None = None) -> Derivation:
    """The operations of the matrix products of one update.

    Muon makes the update of each hidden matrix nearly orthogonal by iterations of Newton and Schulz. One takes three
    products: of the matrix and its transpose, of that square and itself, and of both. ``mixed_muon(iterations=6)`` says
    how many there are. Operations on single elements are not counted.

    >>> import symcomm as sc
    >>> table = "Computation\\tInput\\tOutput\\ny = x W\\tx [B, D], W [D, F]\\ty [B, F]"
    >>> sc.load(table).at(D=7, F=5).update_flops().at().value
    Fraction(4750, 1)

    Raises ``ValuesError`` for a recipe without such iterations.

    Source: K. Jordan, Muon: an optimizer for hidden layers in neural networks, 2024.
    """
    setting, kept = setting.freeze(frozen), recipe_of(recipe)
    if not any(one.iterations for one in kept.classes):
        raise ValuesError(f"an update of {kept.name} has no matrix products", hint="recipe: mixed_muon")
    work, choice = StepWriter(setting), ShapeChoice(kept, setting.graph.relations.complete(setting.values))
    parts: list[Form] = []
    every: list[tuple[Region, int, list[WeightShape]]] = []
    for region, part in zip(setting.regions, setting.parts, strict=True):
        trained = [w for w in part.graph.weights if w.name not in setting.frozen]
        shapes = [weight_shape(setting.graph, None, w, ()) for w in trained]
        found = [(choice.state_class(shape).iterations, shape) for shape in shapes]
        many = max((n for n, _ in found), default=0)
        mine = [shape for n, shape in found if n]
        if not many or not mine:
            continue
        every.append((region, many, mine))
        alike = Counter(_lying(shape) for shape in mine)
        forms = [product(num(equal), num(many), shape.many, _iteration(shape)) for shape, equal in alike.items()]
        name = "F" if not region.times else "F_layer" if len(setting.regions) == 1 else f"F_{mark(region)}"
        text = f"{many} iterations for each hidden matrix, which is transposed if it has more rows than columns."
        made = work.define(name, forms[0] if len(forms) == 1 else Total(tuple(forms)), FLOP, "three products", text,
                           witness=partial(_multiplied, [(Region(region.name), many, mine)]))  # fmt: skip
        parts.append(times(region, made))
    if not parts:
        raise ValuesError(f"{setting.graph.name} has no hidden matrix", hint="a model with layers")
    if len(parts) > 1 or any(region.times for region, *_ in every):
        form = parts[0] if len(parts) == 1 else Total(tuple(parts))
        work.define("F_update", form, FLOP, "repeat", "All layers.", witness=partial(_multiplied, every))
    return replace(setting.derivation("FLOPs of an update", work.steps), where=tuple(choice.where))


def _lying(shape: WeightShape) -> WeightShape:
    """The shape with its sides written plainly and in one order, so that a matrix equals its transpose."""
    rows, columns = sorted((from_expr(value(side)) for side in (shape.rows, shape.columns)), key=repr)
    return shape._replace(rows=rows, columns=columns)


def _iteration(shape: WeightShape) -> Form:
    """Operations of one iteration: 4 m^2 n + 2 m^3 for a matrix of m x n, m the shorter side."""
    sides = (shape.rows, shape.columns)
    short, long = Smallest(sides), Largest(sides)
    two, square = Num(Fraction(2), FLOP), Power(short, num(2))
    return Total((product(num(2), two, square, long), product(two, Power(short, num(3)))))


def _multiplied(every: Sequence[tuple[Region, int, list[WeightShape]]], numbers: Numbers) -> Fraction:
    """A multiplication and an addition for each entry and summand of the three products."""
    found = Fraction(0)
    for region, many, shapes in every:
        for shape in shapes:
            a, b, count = (number(form, numbers) for form in (shape.rows, shape.columns, shape.many))
            m, n = sorted((a, b))
            products = ((m, n, m), (m, m, m), (m, m, n))  # rows, summands, columns
            found += often(region, numbers) * many * count * sum(2 * r * s * c for r, s, c in products)
    return found
