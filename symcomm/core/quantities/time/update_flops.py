"""The operations of an update: products of matrices, as Muon's, and the rules that run for each element."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from functools import partial
from math import prod

from symcomm.core.derivation import Derivation, Numbers
from symcomm.core.errors import ValuesError
from symcomm.core.form import Form, Largest, Num, Power, Smallest, Total, from_expr, num, product, value
from symcomm.core.graph.graph import Region
from symcomm.core.quantities.memory.shaped_states import ShapeChoice, WeightShape, shaped_states, weight_shape
from symcomm.core.quantities.options import Frozen, RecipeName
from symcomm.core.quantities.recipes import StateTerm, recipe_of
from symcomm.core.quantities.witnesses import number, often
from symcomm.core.records import replace
from symcomm.core.setting import Setting, StepWriter, mark, times
from symcomm.core.units import FLOP

EXTENT = "model all"
_Multiplied = tuple[WeightShape, Counter[str]]


def derive(setting: Setting, recipe: RecipeName = "mixed_muon", frozen: Frozen | None = None) -> Derivation:
    """The operations of one update of the weights.

    Muon makes the update of each hidden matrix nearly orthogonal by iterations of Newton and Schulz. One takes three
    products: of the matrix and its transpose, of that square and itself, and of both. ``mixed_muon(iterations=6)`` says
    how many there are. Shampoo makes two squares of each gradient, and multiplies it by a root of each; finding the
    roots is not counted. Under ``all_ops`` the rules count that run for each element, row or column, such as Adam's.

    >>> import symcomm as sc
    >>> table = "Computation\\tInput\\tOutput\\ny = x W\\tx [B, D], W [D, F]\\ty [B, F]"
    >>> sc.load(table).at(D=7, F=5).update_flops().at().value
    Fraction(4750, 1)
    >>> sc.load(table).at(D=7, F=5).update_flops("fp32_adam", accounting="all_ops").at().value
    Fraction(420, 1)

    Raises ``ValuesError`` for a recipe without products, or under ``all_ops`` without rules.

    Source: K. Jordan, Muon: an optimizer for hidden layers in neural networks, 2024.
    """
    setting, kept = setting.freeze(frozen), recipe_of(recipe)
    setting.choice("operations")
    elements = setting.accounting.operations == "all_ops"
    if elements and not all(one.rules for one in kept.classes if one.terms):
        raise ValuesError(f"{kept.name} does not say how it updates a weight", hint="a named recipe, such as fp32_adam")
    if not elements and not any(one.products for one in kept.classes):
        hint = "accounting: all_ops, or recipe: mixed_muon"
        raise ValuesError(f"an update of {kept.name} has no matrix products", hint=hint)
    work, choice = StepWriter(setting), ShapeChoice(kept, setting)
    parts: list[Form] = []
    every: list[tuple[Region, list[_Multiplied]]] = []
    trained = [[w for w in part.graph.weights if w.name not in setting.frozen] for part in setting.parts]
    for region, weights in zip(setting.regions, trained, strict=True):
        shapes = [weight_shape(setting.graph, None, w, ()) for w in weights]
        mine = [(shape, _products(choice, shape)) for shape in shapes]
        mine = [(shape, found) for shape, found in mine if found]
        if not mine:
            continue
        every.append((region, mine))
        alike = Counter((_lying(shape, found), tuple(found.items())) for shape, found in mine)
        forms = [product(num(equal), shape.many, _made(shape, found)) for (shape, found), equal in alike.items()]
        name = "F" if not region.times else "F_layer" if len(setting.regions) == 1 else f"F_{mark(region)}"
        many = max(one.iterations for one in kept.classes)
        text = f"{many} iterations for each hidden matrix, which is transposed if it has more rows than columns."
        text, rule = (text, "three products") if many else ("Squares of each gradient, and its product with two roots.",
                                                            "products")  # fmt: skip
        made = work.define(name, forms[0] if len(forms) == 1 else Total(tuple(forms)), FLOP, rule, text,
                           witness=partial(_multiplied, [(Region(region.name), mine)]))  # fmt: skip
        parts.append(times(region, made))
    whole: list[Callable[[Numbers], Fraction]] = [partial(_multiplied, every)]
    if elements:
        there = [(region.name, times(region, num(1)), w) for region, w in zip(setting.regions, trained, strict=True)]
        text = "The rules of the optimizer, for each element."
        part, witness = shaped_states(work, choice, None, "operations", "F_rules", text, there, lambda *_: ())
        parts.append(part)
        whole.append(witness)
    if not parts:
        raise ValuesError(f"{setting.graph.name} has no hidden matrix", hint="a model with layers")
    if len(parts) > 1 or any(region.times for region, *_ in every):
        form = parts[0] if len(parts) == 1 else Total(tuple(parts))
        said = "All rules and products together." if elements else "All layers."
        work.define("F_update", form, FLOP, "repeat", said,
                    witness=lambda numbers: sum((one(numbers) for one in whole), Fraction(0)))  # fmt: skip
    return replace(setting.derivation("FLOPs of an update", work.steps), where=tuple(choice.where))


def _products(choice: ShapeChoice, shape: WeightShape) -> Counter[str]:
    """The products of an update of a matrix, by their three sizes; those of sides that are too long are left out."""
    one = choice.state_class(shape)
    most = max((term.most for term in one.terms), default=0)
    found: Counter[str] = Counter()
    for text in one.products:
        square = StateTerm("row_square" if text.count("r") > 1 else "column_square", 1, most=most)
        if choice.kept(square, shape) is not None:
            found["".join(sorted(text.split()))] += one.iterations or 1
    return found


def _lying(shape: WeightShape, products: Iterable[str]) -> WeightShape:
    """The shape with its sides written plainly, and in one order where the products of a transpose are the same."""
    rows, columns = (from_expr(value(side)) for side in (shape.rows, shape.columns))
    if {*"".join(products)} <= {*"sl"}:
        rows, columns = sorted((rows, columns), key=repr)
    return shape._replace(name="", rows=rows, columns=columns)


def _made(shape: WeightShape, found: Iterable[tuple[str, int]]) -> Form:
    """Two operations for each entry and summand of the products."""
    both = (shape.rows, shape.columns)
    sides = {"r": shape.rows, "c": shape.columns, "s": Smallest(both), "l": Largest(both)}
    one = [product(num(many), Num(Fraction(2), FLOP), *(_power(sides[n], text.count(n)) for n in sorted({*text})))
           for text, many in found]  # fmt: skip
    return one[0] if len(one) == 1 else Total(tuple(one))


def _power(side: Form, times: int) -> Form:
    return side if times == 1 else Power(side, num(times))


def _multiplied(every: Sequence[tuple[Region, list[_Multiplied]]], numbers: Numbers) -> Fraction:
    """A multiplication and an addition for each entry and summand of the products."""
    found = Fraction(0)
    for region, shapes in every:
        for shape, products in shapes:
            r, c, count = (number(form, numbers) for form in (shape.rows, shape.columns, shape.many))
            sides = {"r": r, "c": c, "s": min(r, c), "l": max(r, c)}
            made = sum(many * 2 * prod(sides[n] for n in text) for text, many in products.items())
            found += often(region, numbers) * count * made
    return found
