"""An einsum by itself: its operations, its gradients, the best order of its operands, and its spellings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Annotated, Any, Literal

from symcomm.core import form as forms
from symcomm.core.derivation import Derivation, Exhibit, Numbers
from symcomm.core.errors import FormulaError, ValuesError
from symcomm.core.form import Form, Sym, Total, num, product
from symcomm.core.graph.contraction_orders import LISTED, orders, path, sums_first, trees
from symcomm.core.graph.subscripts import Einsum, bound, gradients, read_subscripts
from symcomm.core.libraries import sp
from symcomm.core.quantities.declared import Meaning
from symcomm.core.quantities.options import NoModel
from symcomm.core.quantities.witnesses import number, passes
from symcomm.core.setting import Setting, StepWriter
from symcomm.core.text.formula import parse_size
from symcomm.core.text.tree import size_form
from symcomm.core.units import ELEMENT, FLOP, ONE, Quantity, Unit

Count = Literal["fma2", "mul_add", "opt_einsum"]
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_SHOWN = 15  # orders that are shown


def derive(
    setting: NoModel,
    subscripts: Annotated[str, Meaning("the indices of operands and result, such as bij,bjk->bik")],
    shapes: Annotated[str, Meaning("the operands in order, such as A [B, I, J], W [B, J, K]; or only [2, 3], [3, 4]")],
    want: Annotated[
        Literal["flops", "backward", "elements", "best_order", "worst_order", "left_to_right", "sums_first",
                "largest_intermediate"],
        Meaning("the result to derive"),
    ] = "flops",
    count: Annotated[Count, Meaning("how operations are counted")] = "fma2",
) -> Derivation:  # fmt: skip
    """The operations of an einsum, of its gradients, or of the best order of its operands.

    ``flops`` takes all operands at once, and so does ``backward``, for the gradients of all of them. ``fma2`` counts n
    operations for each combination of the indices (n operands: n - 1 products and an addition; of one operand the
    addition, where something is summed), ``mul_add`` the products and additions that there are, ``opt_einsum`` n - 1
    products and an addition where something is summed, as that library does. ``best_order``, ``worst_order`` and
    ``left_to_right`` contract two operands at a time, ``sums_first`` sums an index that one operand alone has before
    that; ``largest_intermediate`` are the elements of the largest result on the way in the best order. ``elements`` are
    those of the result.

    >>> from symcomm.core.graph.graph import Graph
    >>> setting = Setting(Graph("no model", {}, {}, ()))
    >>> derive(setting, "bij,bjk->bik", "A [B, I, J], W [B, J, K]").expr
    2*B*I*J*K
    >>> str(derive(setting, "ij,jk,kl->il", "[10, 100], [100, 5], [5, 50]", "best_order").at())
    '15 000 FLOP = 15 kFLOP'
    """
    names, sizes = _operands(shapes)
    einsum = bound(read_subscripts(subscripts), [[forms.value(size) for size in shape] for shape in sizes])
    written_as = {str(forms.value(size)): size for shape in sizes for size in shape}
    named = {symbol.name for size in einsum.sizes.values() for symbol in _expr(size).free_symbols}
    work = StepWriter(replace(setting, named=setting.named | named), *written_as.values())
    if want == "elements":
        _elements(work, einsum, written_as)
    elif want == "flops":
        _at_once(work, einsum, written_as, count)
    elif want == "backward":
        _backward(work, einsum, written_as, count)
    else:
        _ordered(work, _numbered(einsum, setting), count, want)
    exhibits = [_indices(einsum, names), _spellings(einsum, subscripts, names), _gradients(einsum, names)]
    notes = []
    if len(names) > 2 and all(_known(size, setting) is not None for size in einsum.sizes.values()):
        exhibits.append(_orders(_numbered(einsum, setting), names, count))
    if einsum.stretched:
        notes.append("Axes of length 1 are broadcast along the ellipsis and summed away in the gradients.")
    if einsum.implicit:
        notes.append(f"Without an arrow the result has the ellipsis, then the indices that occur once, in ASCII order: "
                     f"{einsum.explicit}.")  # fmt: skip
    return work.setting.derivation(f"Einsum {subscripts}", work.steps, exhibits=exhibits, notes=notes)


def _expr(size: Any) -> Any:
    return sp.Integer(size) if isinstance(size, int) else size


def _operands(said: str) -> tuple[list[str], list[list[Form]]]:
    """The names and sizes of ``A [2, 3], B [3, 4]``; raises ``FormulaError`` for another text."""
    names: list[str] = []
    shapes: list[list[Form]] = []
    rest = said.strip()
    while rest:
        head, opened, tail = rest.partition("[")
        inside, closed, rest = tail.partition("]")
        name = head.strip().lstrip(",").strip()
        if not opened or not closed or (name and not (name.isidentifier() and len(name) <= 20)) or "[" in inside:
            raise FormulaError(f"'{said[:60]}' are no shapes", hint="write A [2, 3], B [3, 4], or [2, 3], [3, 4]")
        if len(names) >= 20:
            raise FormulaError("more than 20 shapes", hint="an einsum has at most 20 operands")
        names.append(name or _LETTERS[len(names)])
        shapes.append([_size(piece.strip(), said) for piece in inside.split(",")] if inside.strip() else [])
        rest = rest.strip()
        if rest and not rest.startswith(","):
            raise FormulaError(f"'{said[:60]}': a comma is missing between two shapes", hint="A [2, 3], B [3, 4]")
    return names, shapes


def _size(text: str, said: str) -> Form:
    if not text:
        raise FormulaError(f"'{said[:60]}': a size is missing", hint="A [2, 3]; a number alone is []")
    form = size_form(parse_size(text))
    value = forms.value(form)
    if value.is_number and not (value.is_Integer and 0 < value < 10**40):
        raise FormulaError(f"a size of '{text[:40]}'", hint="sizes are positive whole numbers")
    return form


def _known(size: Any, setting: Setting) -> int | None:
    form = forms.from_expr(_expr(size))
    if not {*forms.names(form)} <= setting.values.keys():
        return None
    found = forms.evaluate(form, {name: setting.values[name] for name in forms.names(form)})
    return int(found) if found.denominator == 1 else None


def _numbered(einsum: Einsum, setting: Setting) -> Einsum:
    """The same with sizes that are numbers. Raises ``ValuesError`` for one that is not known."""
    sizes: dict[str, int] = {}
    for index, size in einsum.sizes.items():
        found = _known(size, setting)
        if found is None:
            raise ValuesError(
                f"the best order depends on the size of index {index}, {size}", hint=f"given: {{{size}: 8}}"
            )
        sizes[index] = found
    return replace(einsum, sizes=sizes)


def _sizes(einsum: Einsum, indices: Sequence[str], said: dict[str, Form]) -> Form:
    return product(*(said.get(str(_expr(einsum.sizes[i])), num(1)) for i in indices))


def _lengths(einsum: Einsum, indices: Sequence[str], numbers: Numbers) -> list[Fraction]:
    return [number(forms.from_expr(_expr(einsum.sizes[i])), numbers) for i in indices]


def _points(work: StepWriter, einsum: Einsum, said: dict[str, Form]) -> Form:
    listed = ", ".join(f"`{index}`" for index in einsum.indices)
    return work.define("P", _sizes(einsum, einsum.indices, said), ONE, "count the combinations",
                       f"One for each combination of the indices {listed}." if listed else "There is no index.",
                       witness=lambda numbers: passes(_lengths(einsum, einsum.indices, numbers)))  # fmt: skip


def _elements(work: StepWriter, einsum: Einsum, said: dict[str, Form], unit: Unit = ELEMENT) -> Form:
    return work.define("R", _sizes(einsum, einsum.output, said), unit, "count the elements",
                       "The product of the sizes of the result.",
                       witness=lambda numbers: passes(_lengths(einsum, einsum.output, numbers)))  # fmt: skip


def _at_once(work: StepWriter, einsum: Einsum, said: dict[str, Form], count: Count) -> Form:
    points, n, sums = _points(work, einsum, said), len(einsum.operands), bool(einsum.summed)
    products = max(1, n - 1) if count == "opt_einsum" else n - 1
    made = "no product" if not products else "a product" if products == 1 else f"{products} products"
    if count == "mul_add":
        results = _elements(work, einsum, said, ONE) if sums else num(0)
        parts = [product(num(products), points)] if products else []
        form = Total((*parts, points, forms.negative(results))) if sums else parts[0] if parts else num(0)
        said_so = [f"{made.capitalize()} for each combination."] if products else []
        said_so += ["A sum of n terms takes n − 1 additions."] if sums else []
        text = " ".join(said_so)
    else:
        adds = n > 1 if count == "fma2" else sums
        adds = adds or (sums and n == 1)
        form = product(num(products + adds), points) if products + adds else num(0)
        made = " and ".join([made] * bool(products) + ["an addition"] * bool(adds))
        text = f"{made.capitalize()} for each combination."
    if form == num(0):
        text = "Nothing is multiplied or added: elements are only chosen and put in order."

    def counted(numbers: Numbers) -> Fraction:
        """The operations of nested loops: products of the terms, and the additions of each result."""
        combinations = passes(_lengths(einsum, einsum.indices, numbers))
        results = passes(_lengths(einsum, einsum.output, numbers))
        if count == "mul_add":
            return (n - 1) * combinations + (results * (combinations / results - 1) if sums else 0)
        return combinations * (products + (1 if (sums if count == "opt_einsum" or n == 1 else True) else 0))

    return work.define("F", form, FLOP, "count the operations", text, witness=counted)


def _backward(work: StepWriter, einsum: Einsum, said: dict[str, Form], count: Count) -> None:
    n = len(einsum.operands)
    if count != "fma2":
        raise ValuesError(f"the gradients are counted in fma2, not in {count}", hint="count: fma2")
    if n == 1:
        work.define("F_bwd", num(0), FLOP, "gradient", "The gradient of one operand is only broadcast.",
                    witness=lambda numbers: Fraction(0))  # fmt: skip
        return
    forward = _at_once(work, einsum, said, count)
    work.define("F_bwd", product(num(n), forward), FLOP, "gradients",
                f"Each of the {n} gradients is an einsum of {n} operands over the same indices.",
                witness=lambda numbers: n * n * passes(_lengths(einsum, einsum.indices, numbers)))  # fmt: skip


def _ordered(work: StepWriter, einsum: Einsum, count: Count, want: str) -> None:
    if len(einsum.operands) < 2:
        raise ValuesError("an einsum of one operand has no order", hint="want: flops")
    before, parts = 0, list[Form]()
    if want == "sums_first":
        lean, before = sums_first(einsum)
        if before:
            alone = ", ".join(f"`{i}`" for i in einsum.indices if i not in lean.indices)
            parts.append(work.define("F_sum", num(before), FLOP, "sum first",
                                     f"One operand alone has {alone}: one addition for each of its elements.",
                                     witness=partial(_added, einsum, lean)))  # fmt: skip
            einsum = lean
    found = orders(einsum, count)
    if want == "worst_order":
        work.define("F_worst", num(found.most), FLOP, "worst order", f"The most of {found.number} orders.",
                    witness=lambda numbers: _walked(einsum, count, found.most, max))  # fmt: skip
        return
    tree: Any = found.best
    if want == "left_to_right":
        tree = 0
        for n in range(1, len(einsum.operands)):
            tree = tree, n
    steps = path(einsum, tree, count)
    largest = want == "largest_intermediate"
    for place, step in enumerate(steps, start=1):
        result = step.subscripts.partition(">")[2]
        labels = result if largest else "".join(i for i in einsum.indices if i in step.subscripts)
        points = product(*(num(einsum.sizes[i]) for i in labels))
        form: Form = points if largest else product(num(2), points) if count == "fma2" else num(step.cost)
        parts.append(work.define(f"{'M' if largest else 'F'}_{place}", form, ELEMENT if largest else FLOP, "contract",
                                 f"Contraction {place}: {step.subscripts}.",
                                 witness=partial(_looped, einsum, step.subscripts, count, largest)))  # fmt: skip
    if len(parts) < 2:
        return
    if largest:
        work.define("M", forms.Largest(tuple(parts)), ELEMENT, "largest", "The largest result on the way.",
                    witness=lambda numbers: max(step.size for step in steps))  # fmt: skip
        return
    name, text = {
        "best_order": ("best", f"No order of {found.number} costs less."),
        "left_to_right": ("order", "From left to right."),
        "sums_first": ("best", "The sums, and the best order of what is left."),
    }[want]
    told, choose = (sum(step.cost for step in steps), None) if want == "left_to_right" else (found.least, min)
    work.define(f"F_{name}", Total(tuple(parts)), FLOP, "add", text,
                witness=lambda numbers: before + _walked(einsum, count, told, choose))  # fmt: skip


def _looped(einsum: Einsum, subscripts: str, count: Count, largest: bool, numbers: Numbers) -> Fraction:
    """A contraction of two by its loops: over its result, and over all of its indices."""
    left, _, right = subscripts.partition("->")
    results = passes(Fraction(einsum.sizes[i]) for i in right)
    if largest:
        return results
    points = passes(Fraction(einsum.sizes[i]) for i in {*left} - {","})
    sums = {*left} - {","} != {*right}
    return points + (
        results * (points / results - 1) if count == "mul_add" else points if sums or count == "fma2" else 0
    )


def _added(einsum: Einsum, lean: Einsum, numbers: Numbers) -> Fraction:
    """The additions of sums over lone indices, by loops over the operands that have them."""
    found = Fraction(0)
    for labels, left in zip(einsum.operands, lean.operands, strict=True):
        found += passes(Fraction(einsum.sizes[i]) for i in {*labels}) if labels != left else 0
    return found


def _walked(einsum: Einsum, count: Count, told: int, choose: Any) -> Fraction:
    """The least or most of all orders, walked one by one where there are few."""
    if choose is None or len(einsum.operands) > LISTED:
        return Fraction(told)
    every = trees(tuple(range(len(einsum.operands))))
    return Fraction(choose(sum(step.cost for step in path(einsum, tree, count)) for tree in every))


# -- tables --------------------------------------------------------------------------------------------------------


def _indices(einsum: Einsum, names: Sequence[str]) -> Exhibit:
    rows = []
    for index in dict.fromkeys((*einsum.output, *einsum.indices)):
        where = [name for name, labels in zip(names, einsum.operands, strict=True) if index in labels]
        kind = "free" if index in einsum.output else "summed"
        twice = [name for name, labels in zip(names, einsum.operands, strict=True) if labels.count(index) > 1]
        kind += f", diagonal of `{twice[0]}`" if twice else ""
        kind += ", from the ellipsis" if index in einsum.ellipsis else ""
        rows.append(
            (f"`{index}`", forms.from_expr(_expr(einsum.sizes[index])), kind, ", ".join(f"`{name}`" for name in where))
        )
    return Exhibit("The indices", ("index", "size", "kind", "operands"), tuple(rows))


def _spellings(einsum: Einsum, said: str, names: Sequence[str]) -> Exhibit:
    result = next(letter for letter in "YZCDEFGHRSTUVWXAB" if letter not in names)
    factors: list[Form] = []
    for n, (name, labels) in enumerate(zip(names, einsum.operands, strict=True)):
        index = ",".join("1" if (n, k) in einsum.stretched else label for k, label in enumerate(labels))
        factors.append(Sym(f"{name}_{index}" if index else name))
    out = ",".join(einsum.output)
    inside = product(*factors)
    right = forms.Summed(tuple(Sym(index) for index in einsum.summed), inside) if einsum.summed else inside
    maths = forms.Related(Sym(f"{result}_{out}" if out else result), right)
    given = ", ".join(names)
    rows = (("NumPy", f'np.einsum("{said}", {given})'), ("PyTorch", f'torch.einsum("{said}", {given})'), ("sum", maths))
    return Exhibit("The same, written in three ways", ("", "written"), rows)


def _gradients(einsum: Einsum, names: Sequence[str]) -> Exhibit:
    rows = []
    for found in gradients(einsum):
        given = []
        for operand in found.operands:
            if isinstance(operand, tuple):
                given.append(f"{operand[0]}({operand[1]})")
            else:
                given.append("g" if isinstance(operand, str) else names[operand] + _squeezed(einsum, operand))
        shape = ", ".join(str(size) for size in found.shape)
        again = f", reshaped to ({shape})" if found.reshaped else ""
        rows.append((f"`{names[found.of]}`", f'einsum("{found.subscripts}", {", ".join(given)}){again}', f"({shape})"))
    return Exhibit("The gradients, from g, the gradient of the result", ("of", "einsum", "shape"), tuple(rows))


def _squeezed(einsum: Einsum, operand: int) -> str:
    axes = tuple(place for which, place in sorted(einsum.stretched) if which == operand)
    return f".squeeze({axes if len(axes) > 1 else axes[0]})" if axes else ""


def _orders(einsum: Einsum, names: Sequence[str], count: Count) -> Exhibit:
    every = [*trees(tuple(range(len(names))))] if len(names) <= LISTED else [orders(einsum, count).best]
    told = [(sum(s.cost for s in steps), max(s.size for s in steps), tree, steps)
            for tree in every for steps in [path(einsum, tree, count)]]  # fmt: skip
    told.sort(key=lambda row: row[:2])
    title = "The orders, the cheapest first" + (f" ({_SHOWN} of {len(told)})" if len(told) > _SHOWN else "")
    title = title if len(names) <= LISTED else f"The best of {orders(einsum, count).number} orders"
    rows = tuple((_named(tree, names), "; ".join(s.subscripts for s in steps), Quantity(Fraction(cost), FLOP),
                  Quantity(Fraction(size), ELEMENT)) for cost, size, tree, steps in told[:_SHOWN])  # fmt: skip
    return Exhibit(title, ("order", "contractions", "operations", "largest result"), rows)


def _named(tree: Any, names: Sequence[str]) -> str:
    return names[tree] if isinstance(tree, int) else f"({_named(tree[0], names)} {_named(tree[1], names)})"
