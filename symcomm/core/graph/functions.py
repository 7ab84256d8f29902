"""The functions a table may use whose shape rule is not that of a map: one record each.

A map (relu, softmax, layernorm) keeps the shape of its operand and has its record in ``symcomm.core.graph.ops``. The
functions here split, join, look up, route or slide; each record names its spellings and the code that adds its ops.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import sympy as sp

from symcomm.core.errors import FormulaError, ShapeError, Span
from symcomm.core.graph import ops as kinds
from symcomm.core.graph.drafts import Dim, DraftTensor, Label, Value
from symcomm.core.graph.subscripts import bound, read_subscripts
from symcomm.core.records import dataclass
from symcomm.core.text import tree
from symcomm.core.text.table import Cell

if TYPE_CHECKING:
    from symcomm.core.graph.formulas import Reader


@dataclass(frozen=True)
class Function:
    """A function of tables: its spellings, what it does, and the code that adds its ops."""

    name: str
    spellings: tuple[str, ...]
    summary: str
    add: Callable[[Reader, tree.FunctionCall], Value]
    below: bool = False  # whether it reads its subscript


def _norm(reader: Reader, node: tree.FunctionCall) -> Value:
    reader.expect(node, 1, 2, 3)
    value = reader.map(kinds.SPELLED[node.function].name, reader.tensor(node.arguments[0]), node.span)
    if len(node.arguments) > 1:
        value = reader.multiply([value, reader.tensor(node.arguments[1])], node.span)
    if len(node.arguments) > 2:
        value = reader.add([value, reader.tensor(node.arguments[2])], (1, 1), node.span)
    return value


def _crossentropy(reader: Reader, node: tree.FunctionCall) -> Value:
    reader.expect(node, 2)
    logits, targets = reader.tensor(node.arguments[0]), reader.tensor(node.arguments[1])
    chosen = targets
    if len(targets.dims) < len(logits.dims):
        for a, b in zip(logits.dims, targets.dims, strict=False):
            reader.join(a, b, node.span, f"{logits.tensor.name} and {targets.tensor.name}")
        chosen = reader.onehot(targets, logits.dims[-1], node.span)
    elif any(op.output is targets.tensor for op in reader.ops):
        raise FormulaError(f"{targets.tensor.name} is computed, and targets get no gradient", node.arguments[1].span,
                           "targets that are given: ids, or a probability for each class")  # fmt: skip
    value = reader.map("crossentropy", logits, node.span, chosen)
    scalar = reader.target is not None and not reader.target.dims
    return reader.reduce(value, node.span, mean=True) if scalar else value


def _squared_error(reader: Reader, node: tree.FunctionCall) -> Value:
    """The mean of the squares of what predictions and targets differ by."""
    reader.expect(node, 2)
    value, targets = reader.tensor(node.arguments[0]), reader.tensor(node.arguments[1])
    if len(targets.dims) != len(value.dims):
        raise ShapeError(f"{value.tensor.name} and {targets.tensor.name} have different numbers of axes", node.span,
                         "a target for each prediction")  # fmt: skip
    return reader.reduce(reader.map("squared_error", value, node.span, targets), node.span, mean=True)


def _max(reader: Reader, node: tree.FunctionCall) -> Value:
    reader.expect(node, 2)
    for one, other in (node.arguments, reversed(node.arguments)):
        if reader.scalar(one) == 0:
            return reader.map("relu", reader.tensor(other), node.span)
    raise FormulaError("the larger one of two tensors", node.span, r"read is \max(0, x), which is relu(x)")


def _min(reader: Reader, node: tree.FunctionCall) -> Value:
    reader.expect(node, 2)
    for one, other in (node.arguments, reversed(node.arguments)):
        number = reader.scalar(one)
        if number is not None and number.is_number:
            return reader.map("at_most", reader.tensor(other), node.span, number=number)
    raise FormulaError("the smaller one of two tensors", node.span, r"read is \min(x, 7), with a number")


def _clamp(reader: Reader, node: tree.FunctionCall) -> Value:
    reader.expect(node, 1)
    number = reader.scalar(node.subscript) if node.subscript is not None else None
    if number is None or not number.is_number or not number.is_positive:
        raise FormulaError("clamp says how far from 0 its result is at most", node.span, "clamp_{7}(x)")
    return reader.map("clamp", reader.tensor(node.arguments[0]), node.span, number=number)


def _topsoftmax(reader: Reader, node: tree.FunctionCall) -> Value:
    reader.expect(node, 1)
    number = _some(reader, node, "number", "how many of a row are chosen")
    if not number:
        raise FormulaError("topsoftmax says how many of a row are chosen", node.span, "topsoftmax_{k}(g)")
    return reader.map("topsoftmax", reader.tensor(node.arguments[0]), node.span, **number)


def _rope(reader: Reader, node: tree.FunctionCall) -> Value:
    reader.expect(node, 1)
    value = reader.tensor(node.arguments[0])
    where = value.dims[-2:] if len(value.dims) > 1 else value.dims
    tables = [reader.constant(f"{f}({value.tensor.name})", where, node.span) for f in ("cos", "sin")]
    return reader.map("rope", value, node.span, *tables, **_some(reader, node, "features", "how many features turn"))


def _linear(reader: Reader, node: tree.FunctionCall) -> Value:
    reader.expect(node, 2, 3)
    value = reader.matmul(reader.tensor(node.arguments[0]), reader.tensor(node.arguments[1]), node.span)
    return (
        value if len(node.arguments) == 2 else reader.add([value, reader.tensor(node.arguments[2])], (1, 1), node.span)
    )


def _transpose(reader: Reader, node: tree.FunctionCall) -> Value:
    reader.expect(node, 1)
    return reader.tensor(tree.Transpose(node.span, node.arguments[0]))


def _permute(reader: Reader, node: tree.FunctionCall) -> Value:
    """The axes in the order of the row's result: each is the one axis of the operand with its size."""
    reader.expect(node, 1)
    value, target = reader.tensor(node.arguments[0]), reader.result(node)
    of, labels = reader.fresh_labels(value)
    out: list[tuple[Label, Dim]] = []
    for wanted in target.dims[len(target.indices) :]:
        sizes = wanted.root().size
        fits = [pair for pair in zip(labels, value.dims, strict=True) if reader.same(pair[1].root().size, sizes)]
        if len(fits) != 1:
            raise ShapeError(
                f"{value.tensor.name} has {len(fits) or 'no'} axes of size {wanted.root().label}",
                node.span,
                f"Permute gives the axes of {value.tensor.name} another order; sizes tell which is which",
            )
        out += fits
    if len(out) != len(value.dims):
        raise ShapeError(f"{target.name} does not have the axes of {value.tensor.name}", node.span, "keep all of them")
    kept = reader.letters_of((value, of))
    return reader.emit("contraction", (value,), (value.labels(of, labels),), kept, out, node.span, view=True)


def _einsum(reader: Reader, node: tree.FunctionCall) -> Value:
    """Operands contracted over the indices their subscripts name, two by two from left to right.

    A diagonal is a contraction with an identity that is never stored: its axes stay two axes.
    """
    said, *arguments = node.arguments
    if not isinstance(said, tree.Quoted):
        raise FormulaError("einsum begins with its subscripts", said.span, 'einsum("bij,bjk->bik", A, B)')
    span = said.span
    cell = Cell(said.text, span.file, span.line, span.text, span.start, span.cell.removeprefix("column "))
    subscripts, values = read_subscripts(cell), [reader.tensor(argument) for argument in arguments]
    relations = reader.relations()
    shapes = [[relations.expand(dim.root().size) for dim in value.dims] for value in values]
    einsum = bound(subscripts, shapes)
    loops: dict[str, Label] = {index: reader.fresh() for index in einsum.indices}
    axes: dict[str, Dim] = {}
    parts: list[tuple[Value, dict[str, Label], list[Label], list[str]]] = []
    for n, value in enumerate(values):
        of, labels = reader.fresh_labels(value)
        if parts:
            reader.share_families(parts[0][0], parts[0][1], value, of)
        twice: list[tuple[int, int]] = []
        seen: dict[str, int] = {}
        for place, (index, dim) in enumerate(zip(einsum.operands[n], value.dims, strict=True)):
            if (n, place) in einsum.stretched:
                continue  # an axis of length 1 that is summed away
            if index in seen:
                twice.append((seen[index], place))
                continue
            seen[index] = place
            labels[place] = loops[index]
            reader.join(axes.setdefault(index, dim), dim, subscripts.place(n, index), f"the index {index}")
        for one, again in reversed(twice):  # the last axis first, so that the places of the others stay
            value, labels = _diagonal(reader, value, of, labels, (one, again), node.span)
        parts.append((value, of, labels, [*seen]))
    whole = [(loops[index], axes[index]) for index in einsum.output]
    value, of, labels, mine = parts[0]
    for n, (right, of_right, others, indices) in enumerate(parts[1:], start=1):
        later = {index for part in parts[n + 1 :] for index in part[3]} | {*einsum.output}
        mine = [index for index in dict.fromkeys((*mine, *indices)) if index in later]
        last = n == len(parts) - 1
        out = whole if last else [(loops[index], axes[index]) for index in mine]
        value = reader.emit("contraction", (value, right), (value.labels(of, labels), right.labels(of_right, others)),
                            reader.letters_of((value, of), (right, of_right)), out, node.span)  # fmt: skip
        of, labels = {**of_right, **of}, [label for label, _ in out]
    if len(parts) == 1:
        moved = {"view": True} if len(whole) == len(labels) else {}  # nothing is summed: axes change places
        return reader.emit("contraction", (value,), (value.labels(of, labels),), reader.letters_of((value, of)), whole,
                           node.span, **moved)  # fmt: skip
    return value


def _diagonal(
    reader: Reader, value: Value, of: dict[str, Label], labels: list[Label], pair: tuple[int, int], span: Span
) -> tuple[Value, list[Label]]:
    """The elements of a value whose places along two axes are equal, and the labels of the axes that are left."""
    one, again = pair
    name = f"eye({value.tensor.name},{one + 1},{again + 1})"
    eye = reader.constant(name, (value.dims[one], value.dims[again]), span)
    eye.tensor.virtual = True
    kept = [place for place in range(len(labels)) if place != again]
    made = reader.emit(
        "contraction", (value, eye), (value.labels(of, labels), (labels[one], labels[again])),
        reader.letters_of((value, of)), [(labels[k], value.dims[k]) for k in kept], span, lookup=True, slice=True,
    )  # fmt: skip
    return made, [labels[k] for k in kept]


def _mean(reader: Reader, node: tree.FunctionCall) -> Value:
    reader.expect(node, 1)
    return reader.reduce(reader.tensor(node.arguments[0]), node.span, mean=True)


def _sum(reader: Reader, node: tree.FunctionCall) -> Value:
    reader.expect(node, 1)
    return reader.reduce(reader.tensor(node.arguments[0]), node.span, mean=False)


def _first(reader: Reader, node: tree.FunctionCall) -> Value:
    reader.expect(node, 1)
    value = reader.tensor(node.arguments[0])
    if len(value.dims) < 2:
        raise ShapeError("First takes the first position of a sequence: it needs two axes", node.span)
    of, labels = reader.fresh_labels(value)
    where = reader.constant(f"first({value.tensor.name})", value.dims[-2:-1], node.span)
    where.tensor.virtual = True  # a slice: nothing is stored or multiplied
    kept = [*zip(labels[:-2], value.dims[:-2], strict=True), (labels[-1], value.dims[-1])]
    return reader.emit(
        "contraction", (value, where), (value.labels(of, labels), (labels[-2],)), reader.letters_of((value, of)), kept,
        node.span, lookup=True, slice=True,
    )  # fmt: skip


def _dropout(reader: Reader, node: tree.FunctionCall) -> Value:
    reader.expect(node, 1, 2)
    value = reader.tensor(node.arguments[0])
    mask = DraftTensor(
        f"mask({value.tensor.name})",
        "",
        value.tensor.indices,
        value.tensor.dims,
        tuple(d.root().label for d in value.tensor.dims),
        "B",
        node.span,
        role="constant",
        dtype="bool",
    )
    reader.tensors[mask.name, False] = mask
    hidden = Value(mask, value.family, value.places, node.span)
    return reader.multiply([value, hidden], node.span)


def _mask(reader: Reader, node: tree.FunctionCall) -> Value:
    reader.expect(node, 1)
    value = reader.tensor(node.arguments[0])
    if len(value.dims) < 2:
        raise ShapeError("a mask hides pairs of positions: it needs two axes", node.span)
    mask = reader.constant(f"mask({value.tensor.name})", value.dims[-2:], node.span)
    said = _some(reader, node, "positions", "the positions of its window")
    return reader.map("mask", value, node.span, mask, **said)


def _some(reader: Reader, node: tree.FunctionCall, name: str, what: str) -> dict[str, sp.Expr]:
    """The attribute that a function's subscript says, a count; nothing without one."""
    if node.subscript is None:
        return {}
    count = reader.scalar(node.subscript)
    if count is None or count.is_positive is False or count.is_integer is False:
        raise FormulaError(f"the subscript of {node.function} says {what}", node.subscript.span,
                           "a number from 1 on, or a symbol of its own")  # fmt: skip
    return {name: count}


def _partition(reader: Reader, node: tree.FunctionCall) -> Value:
    reader.expect(node, 1)
    value, target = reader.tensor(node.arguments[0]), reader.result(node)
    if len(target.indices) != 1 or len(target.dims) != len(value.dims) + 1:
        raise ShapeError(
            f"Partition of {value.tensor.name} makes a family of tensors with as many axes", node.span,
            "write [Q_1, \\dots, Q_{n_h}] on its left",
        )  # fmt: skip
    at = _axis_argument(reader, node, len(value.dims))
    heads, parts = target.dims[0], target.dims[1:]
    reader.split(value.dims[at], (heads, parts[at]), node.span)
    of, labels = reader.fresh_labels(value)
    kept = [parts[i] if i == at else value.dims[i] for i in range(len(parts))]
    out = [((labels[i], 1) if i == at else labels[i], kept[i]) for i in range(len(parts))]
    letters = [*reader.letters_of((value, of)), (target.indices[0], (labels[at], 0), heads)]
    return reader.emit("contraction", (value,), (value.labels(of, labels),), letters, out, node.span, view=True)


def _joined(reader: Reader, node: tree.FunctionCall) -> Value:
    """Tensors side by side along one axis: each is put at its place, the places of the others left empty.

    What puts it there is never stored, nor is a part in its place; nothing is multiplied or added.
    """
    values = [reader.tensor(argument) for argument in node.arguments]
    names = ", ".join(value.tensor.name for value in values)
    count = len(values[0].dims)
    fits = [
        at for at in range(count)
        if all(len(v.dims) == count and reader.same(v.dims[n].root().size, values[0].dims[n].root().size)
               for v in values for n in range(count) if n != at)
    ]  # fmt: skip
    if node.subscript is not None:
        fits = [at for at in fits if at == _axis_argument(reader, node, count)]
    if len(fits) != 1 or any(v.family for v in values) or any(len(v.dims) != count for v in values):
        if len(fits) < 2:
            raise ShapeError(f"shapes do not fit: {names} side by side", node.span,
                             "their sizes are equal in all axes but the one along which they are joined")  # fmt: skip
        ways = " and ".join(f"along axis {at}" for at in fits)
        raise ShapeError(f"{names} can be joined in two ways: {ways}", node.span,
                         f"say which: Concat_{{{fits[0]}}}({names}) or Concat_{{{fits[-1]}}}({names})")  # fmt: skip
    [at] = fits
    whole = reader.dim(sp.Add(*(v.dims[at].root().size for v in values)))
    parts: list[Value] = []
    for value in values:
        of, labels = reader.fresh_labels(value)
        where = reader.constant(f"place({value.tensor.name})·{reader.fresh()}", (value.dims[at], whole), node.span)
        where.tensor.virtual = True
        loop = reader.fresh()
        out = [(loop, whole) if n == at else (labels[n], value.dims[n]) for n in range(count)]
        part = reader.emit("contraction", (value, where), (value.labels(of, labels), (labels[at], loop)),
                           (), out, node.span, lookup=True, slice=True)  # fmt: skip
        part.tensor.virtual = True
        parts.append(part)
    made = reader.add(parts, (1,) * len(parts), node.span)
    reader.ops[-1].attributes |= {"lookup": True, "joined": at - count}
    return made


def _merge(reader: Reader, node: tree.FunctionCall) -> Value:
    if len(node.arguments) > 1:
        return _joined(reader, node)
    reader.expect(node, 1)
    argument = node.arguments[0]
    if isinstance(argument, tree.Family):
        found = reader.tensors.get((argument.name.key, True))
        if found is None:
            raise ShapeError(f"{argument.name.key} is no family of tensors", argument.span)
        value = reader.seen(found, argument.span)
    else:
        value = reader.tensor(argument)
    target = reader.result(node)
    if len(value.family) != 1 or len(target.dims) != len(value.dims):
        raise ShapeError(
            "Merge joins a family of tensors into one with as many axes",
            node.span,
            "write Merge([Z_1, \\dots, Z_{n_h}])",
        )
    at = _axis_argument(reader, node, len(value.dims))
    heads = value.tensor.dims[value.family[0][1]]
    reader.split(target.dims[at], (heads, value.dims[at]), node.span)
    whole = reader.fresh()
    labels: list[Label] = [(whole, 1) if i == at else reader.fresh() for i in range(len(value.dims))]
    out = [(whole if i == at else labels[i], (target if i == at else value).dims[i]) for i in range(len(labels))]
    read = value.labels({value.family[0][0]: (whole, 0)}, labels)
    return reader.emit("contraction", (value,), (read,), (), out, node.span, view=True)


def _axis_argument(reader: Reader, node: tree.FunctionCall, count: int) -> int:
    at = -1
    if node.subscript is not None:
        number = reader.scalar(node.subscript)
        if number is None or not number.is_Integer or not -count <= int(number) < count:
            raise FormulaError(f"{node.function} has no such axis", node.subscript.span, f"-{count} to {count - 1}")
        at = int(number)
    return at % count


def _repeat(reader: Reader, node: tree.FunctionCall) -> Value:
    reader.expect(node, 1)
    value, target = reader.tensor(node.arguments[0]), reader.result(node)
    if len(value.family) != 1 or len(target.indices) != 1 or len(target.dims) != len(value.tensor.dims):
        raise ShapeError(
            "Repeat makes a larger family of key/value heads from a smaller one", node.span,
            "write K'_i = Repeat(K_j), with ranges for i and j",
        )  # fmt: skip
    few, many = value.tensor.dims[value.family[0][1]], target.dims[0]
    group = reader.dim(many.root().size / few.root().size)
    reader.split(many, (few, group), node.span)
    whole = reader.fresh()
    labels = [reader.fresh() for _ in value.dims]
    read = value.labels({value.family[0][0]: (whole, 0)}, labels)
    out = list(zip(labels, value.dims, strict=True))
    return reader.emit("contraction", (value,), (read,), [(target.indices[0], whole, many)], out, node.span, view=True)


def _bag(reader: Reader, node: tree.FunctionCall) -> Value:
    """The rows of a table that the ids of a bag name, added up: the ids of a bag are the last axis."""
    reader.expect(node, 2)
    ids, table = reader.tensor(node.arguments[0]), reader.tensor(node.arguments[1])
    if len(table.dims) != 2 or not ids.dims:
        raise ShapeError("EmbeddingBag adds up rows of a table, for each bag of ids", node.span,
                         r"write W \in R^{V \times D}, and t \in \mathbb{Z}^{B \times P}, P ids a bag")  # fmt: skip
    chosen = reader.onehot(ids, table.dims[0], node.span)
    of, labels = reader.fresh_labels(chosen)
    of_table, of_row = {letter: reader.fresh() for letter, _ in table.family}, (labels[-1], reader.fresh())
    reader.share_families(chosen, of, table, of_table)
    out = [*zip(labels[:-2], chosen.dims[:-2], strict=True), (of_row[1], table.dims[1])]
    return reader.emit(
        "contraction", (chosen, table), (chosen.labels(of, labels), table.labels(of_table, of_row)),
        reader.letters_of((chosen, of), (table, of_table)), out, node.span, lookup=True,
    )  # fmt: skip


def _embed(reader: Reader, node: tree.FunctionCall) -> Value:
    reader.expect(node, 2)
    indices, table = reader.tensor(node.arguments[0]), reader.tensor(node.arguments[1])
    if len(table.dims) not in (1, 2):
        raise ShapeError("an embedding table has two axes, or one", node.arguments[1].span,
                         "write W \\in R^{V \\times D}")  # fmt: skip
    value = reader.matmul(reader.onehot(indices, table.dims[0], node.span), table, node.span)
    reader.ops[-1].attributes["lookup"] = True
    return value


def _lookup(reader: Reader, node: tree.FunctionCall) -> Value:
    """``E[t]``: the rows of a table that token ids name."""
    reader.expect(node, 2)
    table, ids = node.arguments
    one, other = (reader.tensor(argument).tensor for argument in node.arguments)
    if other.domain != "Z":
        raise ShapeError(
            f"{one.name}[{other.name}] can be read in two ways: as rows of {one.name}, and as a product with "
            f"{other.name}", node.span,
            rf"token ids are declared as {other.name} \in \mathbb{{Z}}^{{B \times L}}; a product is "
            f"{one.name} {other.name}",
        )  # fmt: skip
    return _embed(reader, tree.FunctionCall(node.span, "embed", (ids, table)))


def _topk(reader: Reader, node: tree.FunctionCall) -> Value:
    reader.expect(node, 1)
    gates, target = reader.tensor(node.arguments[0]), reader.result(node)
    if len(target.dims) != len(gates.dims) + 1 or target.indices:
        raise ShapeError(
            f"TopK gives each token slots in its experts: {target.name} needs one axis more than {gates.tensor.name}",
            node.span,
            "write M \\in R^{B \\times L \\times E \\times C} with C slots for each expert",
        )
    of, labels = reader.fresh_labels(gates)
    slots = (reader.fresh(), target.dims[-1])
    out = list(zip(labels, gates.dims, strict=True))
    chosen = reader.scalar(node.subscript) if node.subscript is not None else sp.Integer(1)
    route = reader.emit(
        "route", (gates,), (gates.labels(of, labels),), (), [*out, slots], node.span,
        k=chosen, whole=tuple(labels[1:]),
    )  # fmt: skip
    route.tensor.virtual, route.tensor.role, route.tensor.dtype = True, "constant", "bool"
    reader.routes[target] = route.tensor
    of, labels = reader.fresh_labels(gates)
    out = [*zip(labels, gates.dims, strict=True), (reader.fresh(), target.dims[-1])]
    return reader.emit(
        "contraction",
        (gates, route),
        (gates.labels(of, labels), tuple(label for label, _ in out)),
        (),
        out,
        node.span,
    )


def _routed(reader: Reader, node: tree.FunctionCall, argument: tree.Node) -> tuple[Value, DraftTensor]:
    value = reader.tensor(argument)
    if value.tensor not in reader.routes:
        raise ShapeError(
            f"{value.tensor.name} does not say which expert gets which token", argument.span, "make it with TopK"
        )
    return value, reader.routes[value.tensor]


def _dispatch(reader: Reader, node: tree.FunctionCall) -> Value:
    reader.expect(node, 2)
    tokens, target = reader.tensor(node.arguments[0]), reader.result(node)
    _, route = _routed(reader, node, node.arguments[1])
    of, labels = reader.fresh_labels(tokens)
    expert, slot = reader.fresh(), reader.fresh()
    grouped = len(target.dims) == len(tokens.dims) + 1  # the experts keep the batch axis
    if len(target.indices) != 1 or len(target.dims) not in (3, len(tokens.dims) + 1):
        raise ShapeError("Dispatch makes a family: the tokens of each expert", node.span, "write X_e = Dispatch(x, M)")
    # The route's expert axis and the experts' own are one size under two names: the router is not cut with them.
    _fits(reader, route.dims[-2], target.dims[0], node.span, "the number of experts")
    out = [(labels[0], tokens.dims[0])] if grouped else []
    out += [(slot, route.dims[-1]), (labels[-1], tokens.dims[-1])]
    reader.join(route.dims[-1], target.dims[-2], node.span, "the slots of an expert")
    return reader.emit(
        "contraction", (tokens, route), (tokens.labels(of, labels), (*labels[:-1], expert, slot)),
        [(target.indices[0], expert, target.dims[0])], out, node.span, lookup=True,
    )  # fmt: skip


def _combine(reader: Reader, node: tree.FunctionCall) -> Value:
    reader.expect(node, 2)
    results, (gates, route) = reader.tensor(node.arguments[0]), _routed(reader, node, node.arguments[1])
    if len(results.family) != 1:
        raise ShapeError("Combine adds up a family: the results of the experts", node.span, "write Combine(Y_e, M)")
    expert = results.tensor.dims[results.family[0][1]]
    _fits(reader, route.dims[-2], expert, node.span, "the number of experts")
    labels = [reader.fresh() for _ in route.dims]
    of = {results.family[0][0]: labels[-2]}
    inner: list[Label] = [labels[-1], reader.fresh()]
    reader.join(route.dims[-1], results.dims[-2], node.span, "the slots of an expert")
    if len(results.dims) == 3:
        inner.insert(0, labels[0])
        reader.join(route.dims[0], results.dims[0], node.span, "the batch")
    out = [*zip(labels[:-2], route.dims[:-2], strict=True), (inner[-1], results.dims[-1])]
    return reader.emit(
        "contraction", (results, gates), (results.labels(of, inner), tuple(labels)), (), out, node.span, lookup=True
    )


def _fits(reader: Reader, a: Dim, b: Dim, span: Span, what: str) -> None:
    if not reader.same(a.root().size, b.root().size):
        raise ShapeError(f"shapes do not fit: {what} ({a.root().label} against {b.root().label})", span)


def _conv(reader: Reader, node: tree.FunctionCall) -> Value:
    reader.expect(node, 2, 3)
    image, kernel = reader.tensor(node.arguments[0]), reader.tensor(node.arguments[1])
    target = reader.result(node)
    n = len(kernel.dims) - 2
    if n < 1 or len(image.dims) != n + 2 or len(target.dims) != n + 2:
        raise ShapeError(
            "a convolution needs X of batch × channels × positions and W of channels out × channels in × kernel",
            node.span,
        )
    reader.join(kernel.dims[0], target.dims[1], node.span, "the channels of W and the result")
    reader.join(image.dims[0], target.dims[0], node.span, "the batch of X and the result")
    b, ci, co, read = (reader.fresh() for _ in range(4))
    if reader.same(kernel.dims[1].root().size, sp.Integer(1)) and reader.same(
        image.dims[1].root().size, kernel.dims[0].root().size
    ):
        reader.join(image.dims[1], kernel.dims[0], node.span, "the channels of X and W")
        co = ci  # depthwise: each channel has a kernel of its own
    else:
        reader.join(image.dims[1], kernel.dims[1], node.span, "the channels of X and W")
        read = ci
    apart, dilated = reader.scalar(node.subscript) if node.subscript is not None else None, {}
    if apart is not None and apart.is_number:
        dilated = _some(reader, node, "dilation", "how far its taps lie apart")
        reader.marks[f"the subscript of {node.function} is its dilation: taps lie {apart} places apart"] = None
    elif node.subscript is not None:
        reader.marked(node)  # a name, such as that of a layer
    window, taps, places = ([reader.fresh() for _ in range(n)] for _ in range(3))
    out = [(b, target.dims[0]), (co, target.dims[1]), *zip(places, target.dims[2:], strict=True)]
    value = reader.emit(
        "convolution", (image, kernel), ((b, ci, *window), (co, read, *taps)), (), out, node.span,
        window=tuple(window), whole=(*window, *taps, *places), **dilated,
    )  # fmt: skip
    return value if len(node.arguments) == 2 else _a_channel(reader, value, node.arguments[2], signs=(1, 1))


def _a_channel(reader: Reader, value: Value, node: tree.Node, **attributes: tuple[int, int]) -> Value:
    """A number for each channel, the second axis, multiplied or (with signs) added."""
    numbers = reader.tensor(node)
    of, labels = reader.fresh_labels(value)
    if len(numbers.dims) != 1:
        raise ShapeError(f"{numbers.tensor.name} has {len(numbers.dims)} axes", node.span, "a number for each channel")
    reader.join(value.dims[1], numbers.dims[0], node.span, "the channels")
    out = list(zip(labels, value.dims, strict=True))
    kind = "add" if attributes else "contraction"
    return reader.emit(kind, (value, numbers), (value.labels(of, labels), (labels[1],)), (), out, node.span,
                       **attributes)  # fmt: skip


def _batchnorm(reader: Reader, node: tree.FunctionCall) -> Value:
    reader.expect(node, 1, 2, 3)
    value = reader.tensor(node.arguments[0])
    if len(value.dims) < 2 or value.family:
        raise ShapeError("batchnorm needs examples × channels, and positions behind them", node.span,
                         r"write x \in R^{N \times C \times X \times Y}")  # fmt: skip
    of, labels = reader.fresh_labels(value)
    out = list(zip(labels, value.dims, strict=True))
    along = tuple(label for n, label in enumerate(labels) if n != 1)
    value = reader.emit("batchnorm", (value,), (value.labels(of, labels),), (), out, node.span, along=along)
    for argument, signs in zip(node.arguments[1:], ({}, {"signs": (1, 1)}), strict=False):
        value = _a_channel(reader, value, argument, **signs)
    return value


def _pool(reader: Reader, node: tree.FunctionCall) -> Value:
    """The largest or the mean of each window of positions; windows lie side by side, and sizes say how large."""
    reader.expect(node, 1)
    value, target = reader.tensor(node.arguments[0]), reader.result(node)
    if len(value.dims) < 3 or value.family or len(target.dims) not in (2, len(value.dims)):
        raise ShapeError("pooling needs batch × channels × positions", node.span,
                         "its result has fewer positions, or none: batch × channels")  # fmt: skip
    said = _some(reader, node, "window", "how many positions a window has")
    _, labels = reader.fresh_labels(value)
    out, along = list(zip(labels[:2], value.dims[:2], strict=True)), []
    for label, dim, few in zip(
        labels[2:], value.dims[2:], (*target.dims[2:], *(None,) * len(value.dims)), strict=False
    ):
        window = dim.root().size / (few.root().size if few is not None else 1)
        if (window.is_number and not window.is_Integer) or not reader.same(window, said.get("window", window)):
            raise ShapeError(f"windows of {said.get('window', window)} do not cut {dim.root().label} into "
                             f"{few.root().label if few is not None else 1}", node.span,
                             "windows lie side by side: they do not overlap")  # fmt: skip
        if few is None:
            along.append(label)
            continue
        reader.split(dim, (few, reader.dim(window)), node.span)
        out.append(((label, 0), few))
        along.append((label, 1))
    if node.function.startswith("max"):
        return reader.emit("maxpool", (value,), (tuple(labels),), (), out, node.span, along=tuple(along))
    share = sp.Mul(*(d.root().size for d in target.dims[2:])) / sp.Mul(*(d.root().size for d in value.dims[2:]))
    return reader.emit("contraction", (value,), (tuple(labels),), (), out, node.span, scale=share)


def _causalconv(reader: Reader, node: tree.FunctionCall) -> Value:
    """Each channel with a few taps of its own: a position reads itself and those right before it."""
    reader.expect(node, 2, 3)
    value, kernel = reader.tensor(node.arguments[0]), reader.tensor(node.arguments[1])
    fits = [
        n for n, d in enumerate(kernel.dims) if value.dims and reader.same(d.root().size, value.dims[-1].root().size)
    ]
    if len(value.dims) < 2 or len(kernel.dims) != 2 or not fits:
        raise ShapeError(
            "a causal convolution needs x of positions × channels and W of channels × taps", node.span,
            "each channel has taps of its own, such as x [B, L, D] and W [D, 4]; conv(X, W) mixes channels",
        )  # fmt: skip
    at = fits[0]
    of, labels = reader.fresh_labels(value)
    of_kernel, taps = reader.fresh_labels(kernel)
    reader.share_families(value, of, kernel, of_kernel)
    taps[at] = labels[-1]
    reader.join(value.dims[-1], kernel.dims[at], node.span, "the channels of x and W")
    place, window, tap = reader.fresh(), labels[-2], taps[1 - at]
    out = [*zip(labels[:-2], value.dims[:-2], strict=True), (place, value.dims[-2]), (labels[-1], value.dims[-1])]
    made = reader.emit(
        "convolution", (value, kernel), (value.labels(of, labels), kernel.labels(of_kernel, taps)),
        reader.letters_of((value, of)), out, node.span,
        window=(window,), whole=(window, tap, place), reach=kernel.dims[1 - at].root().size,
    )  # fmt: skip
    bias = [reader.tensor(one) for one in node.arguments[2:]]
    return reader.add([made, *bias], (1, 1), node.span) if bias else made


def _scan(reader: Reader, node: tree.FunctionCall) -> Value:
    """``scan(a, u)``: what was there one position before, times ``a``, and ``u`` of the position."""
    reader.expect(node, 2)
    decay, value = (reader.tensor(argument) for argument in node.arguments)
    if node.subscript is not None:
        said = reader.scalar(node.subscript)
        fits = [n for n, d in enumerate(value.dims) if said is not None and reader.same(d.root().size, said)]
    else:
        fits = [n for n, d in enumerate(value.dims) if reader.role(d.root().label, d.root().size) == "sequence"]
    if len(fits) != 1:
        raise ShapeError(
            f"scan goes along the positions of {value.tensor.name}, and {'several' if fits else 'none'} of its axes "
            + ("have that size" if node.subscript is not None else "are known as positions"), node.span,
            "say along which size: scan_L(a, u), with u [B, L, D]",
        )  # fmt: skip
    [along] = fits
    of, labels = reader.fresh_labels(value)
    of_decay, mine = reader.fresh_labels(decay)
    reader.share_families(value, of, decay, of_decay)
    positions = any(reader.same(d.root().size, value.dims[along].root().size) for d in decay.dims)
    start = 0 if positions else len(value.dims) - len(decay.dims)  # a decay of weights belongs to the last axes
    if start < 0 or len(decay.dims) > len(value.dims) or not {*dict(decay.family)} <= {*dict(value.family)}:
        raise ShapeError(f"{decay.tensor.name} has axes that {value.tensor.name} lacks", node.span,
                         "in scan(a, u) it is u that has all axes of the result")  # fmt: skip
    for n, dim in enumerate(decay.dims, start):
        if dim.root().size != 1 or value.dims[n].root().size == 1:
            mine[n - start] = labels[n]
            reader.join(value.dims[n], dim, node.span, f"{value.tensor.name} and {decay.tensor.name}")
    return reader.emit(
        "scan", (value, decay), (value.labels(of, labels), decay.labels(of_decay, mine)),
        reader.letters_of((value, of)), [*zip(labels, value.dims, strict=True)], node.span, along=labels[along],
    )  # fmt: skip


def _cell(reader: Reader, node: tree.FunctionCall, gates: int) -> tuple[list[Value], Value]:
    """The products and biases that the gates of a cell are made of, and h one position before."""
    reader.expect(node, 3, 4, 5)
    x, w, u, *biases = (reader.tensor(argument) for argument in node.arguments)
    span, wide = node.span, f"of {gates} gates"
    for matrix in (w, u):
        if len(matrix.dims) != 2 or not x.dims or len(x.dims) < 2:
            raise ShapeError(f"a cell {wide} reads x, W and U, and at most two biases", span,
                             f"with x [B, L, D], W [D, {gates} H], U [H, {gates} H] and b [{gates} H]")  # fmt: skip
    size = u.dims[0].root().size
    for one in (w, u, *biases):
        whole = one.dims[-1] if one.dims else reader.dim(sp.Integer(1))
        if not reader.same(whole.root().size, gates * size):
            raise ShapeError(f"{one.tensor.name} has {whole.root().label} columns {wide}, but U has "
                             f"{u.dims[0].root().label} rows", span,
                             f"each gate has as many columns as h: {gates} {u.dims[0].root().label}")  # fmt: skip
        reader.split(whole, (reader.dim(sp.Integer(gates)), reader.dim(size)), span)
        one.tensor.role = one.tensor.role or "weight"
        if one is not w:
            reader.join(w.dims[-1], whole, span, f"the gates of W and {one.tensor.name}")
    hidden, along = w.dims[-1].root().parts[1], x.dims[-2].root().label
    reader.marks[f"{node.function} is a loop over {along}: what its steps send is {along} calls, and their bytes are "
                 "told together"] = None  # fmt: skip
    h = reader.carried("h", (*x.dims[:-1], hidden), span)
    of, labels = reader.fresh_labels(h)
    out = [*zip(labels, (*x.dims[:-1], u.dims[0]), strict=True)]  # a matrix reads all of it
    all_h = reader.emit("contraction", (h,), (h.labels(of, labels),), (), out, span, view=True)
    return [reader.matmul(x, w, span), reader.matmul(all_h, u, span), *biases], h


def _gates(reader: Reader, value: Value, span: Span) -> list[Value]:
    """The gates that stand side by side in the last axis: nothing is stored or multiplied."""
    made: list[Value] = []
    every, hidden = value.dims[-1].root().parts
    for _ in range(int(every.root().size)):
        of, labels = reader.fresh_labels(value)
        where = reader.constant(f"gate({value.tensor.name})·{reader.fresh()}", (every,), span)
        where.tensor.virtual = True
        out = [*zip(labels[:-1], value.dims[:-1], strict=True), ((labels[-1], 1), hidden)]
        made.append(reader.emit("contraction", (value, where), (value.labels(of, labels), ((labels[-1], 0),)), (), out,
                                span, lookup=True, slice=True, gate=True))  # fmt: skip
    return made


def _lstm(reader: Reader, node: tree.FunctionCall) -> Value:
    """Hochreiter and Schmidhuber with forget gates; the columns of W belong to i, f, g and o, as in PyTorch."""
    span = node.span
    parts, h = _cell(reader, node, 4)
    i, f, g, o = _gates(reader, reader.add(parts, (1,) * len(parts), span), span)
    i, f, o = (reader.map("sigmoid", one, span) for one in (i, f, o))
    before = reader.carried("c", h.dims, span)
    kept, new = reader.multiply([f, before], span), reader.multiply([i, reader.map("tanh", g, span)], span)
    c = reader.becomes(reader.add([kept, new], (1, 1), span), before, span)
    return reader.stack(reader.becomes(reader.multiply([o, reader.map("tanh", c, span)], span), h, span), span)


def _gru(reader: Reader, node: tree.FunctionCall) -> Value:
    """Cho et al. with the reset gate behind the product, as in PyTorch; the columns of W belong to r, z and n."""
    span = node.span
    (x, u, *biases), h = _cell(reader, node, 3)
    added = [reader.add([one, bias], (1, 1), span) for one, bias in zip((x, u), biases, strict=False)]
    x, u = (*added, *(x, u)[len(added) :])
    (r, z, n), (s, y, m) = _gates(reader, x, span), _gates(reader, u, span)
    r, z = (reader.map("sigmoid", reader.add(pair, (1, 1), span), span) for pair in ([r, s], [z, y]))
    n = reader.map("tanh", reader.add([n, reader.multiply([r, m], span)], (1, 1), span), span)
    new = reader.multiply([reader.map("minus", z, span, number=sp.Integer(1)), n], span)
    made = reader.add([new, reader.multiply([z, h], span)], (1, 1), span)
    return reader.stack(reader.becomes(made, h, span), span)


# One row a function. Those that are maps as well (norms, cross-entropy, RoPE) take more than one operand.
FUNCTIONS: tuple[Function, ...] = (
    Function("partition", ("partition", "split"), "splits the last axis into heads", _partition, below=True),
    Function(
        "merge", ("merge", "concat"), "joins the heads into the last axis, or tensors side by side", _merge, below=True
    ),
    Function("transpose", ("transpose",), "exchanges the last two axes", _transpose),
    Function("permute", ("permute",), "gives the axes the order of the result's", _permute),
    Function("repeat", ("repeat",), "repeats key/value heads for the query heads that share them", _repeat),
    Function("linear", ("linear",), "a matrix product, with a bias where one is given", _linear),
    Function("einsum", ("einsum",), "contracts tensors over the indices that its subscripts name", _einsum),
    Function("first", ("first",), "takes the first position of a sequence", _first),
    Function("dropout", ("dropout",), "multiplies by a random 0/1 mask", _dropout),
    Function(
        "mask",
        ("mask", "causalmask", "causal_mask"),
        "hides the positions after the query's own, and those before its last w as `mask_w`",
        _mask,
        below=True,
    ),
    Function(
        "causalsoftmax",
        ("causalsoftmax", "causal_softmax"),
        "softmax over the positions up to the query's, or the last w of them as `causalsoftmax_w`",
        lambda reader, node: reader.map("softmax", _mask(reader, node), node.span),
        below=True,
    ),
    Function("embed", ("embed", "embedding"), "looks rows of a table up", _embed),
    Function("lookup", ("lookup",), "looks rows of a table up, as E[t] does", _lookup),
    Function("topk", ("topk", "top_k"), "chooses k experts for each token and a slot in each", _topk, below=True),
    Function("dispatch", ("dispatch",), "sends tokens to the slots of experts", _dispatch),
    Function("combine", ("combine",), "adds up the experts' results, weighted by the router", _combine),
    Function(
        "conv",
        ("conv", "convolution", "conv1d", "conv2d", "conv3d"),
        "slides a kernel over the last axes, its taps d apart as `conv_d`; one a channel where W has one channel in",
        _conv,
        below=True,
    ),
    Function(
        "batchnorm",
        kinds.MAP["batchnorm"].spellings,
        "normalises each channel over the examples; scale and shift may follow",
        _batchnorm,
    ),
    Function("maxpool", kinds.MAP["maxpool"].spellings, "the largest of each window", _pool, below=True),
    Function(
        "avgpool", ("avgpool", "avgpool1d", "avgpool2d", "avgpool3d"), "the mean of each window", _pool, below=True
    ),
    Function("embeddingbag", ("embeddingbag", "embedding_bag"), "adds up the rows of a table that a bag names", _bag),
    Function(
        "squared_error", kinds.MAP["squared_error"].spellings, "the mean squared error against targets", _squared_error
    ),
    Function(
        "causalconv",
        ("causalconv", "causal_conv", "causalconv1d", "causal_conv1d"),
        "slides taps of its own over each channel, from positions before to the position itself",
        _causalconv,
    ),
    Function("lstm", ("lstm",), "a loop over positions with four gates and two states, h and c", _lstm),
    Function("gru", ("gru",), "a loop over positions with three gates and a state, h", _gru),
    Function(
        "scan",
        kinds.MAP["scan"].spellings,
        "at each position `a` times the result one position before, and `u`; along L as `scan_L`",
        _scan,
        below=True,
    ),
    Function("max", ("max",), "of 0 and a tensor: relu", _max),
    Function("min", ("min",), "of a number and a tensor: at most so much", _min),
    Function("clamp", ("clamp",), "between -c and c as `clamp_c`", _clamp, below=True),
    Function(
        "topsoftmax",
        kinds.MAP["topsoftmax"].spellings,
        "softmax over the k largest of a row as `topsoftmax_k`; the others are 0",
        _topsoftmax,
        below=True,
    ),
    Function("mean", ("mean",), "the mean over all axes", _mean),
    Function("sum", ("sum",), "the sum over all axes", _sum),
    Function(
        "layernorm", kinds.MAP["layernorm"].spellings, "normalises the last axis; scale and shift may follow", _norm
    ),
    Function("rmsnorm", kinds.MAP["rmsnorm"].spellings, "divides by the root mean square; a scale may follow", _norm),
    Function(
        "rope",
        kinds.MAP["rope"].spellings,
        "rotates pairs of features by their position, or those among the first h as `rope_h`",
        _rope,
        below=True,
    ),
    Function(
        "crossentropy", kinds.MAP["crossentropy"].spellings, "the loss of logits against token ids", _crossentropy
    ),
)
FUNCTION: dict[str, Function] = {spelling: f for f in FUNCTIONS for spelling in f.spellings}
