"""Floating-point operations of the forward and backward pass, from the loop indices of each op."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import Annotated, Literal

from symcomm.core import form as forms
from symcomm.core.accounting import Accounting
from symcomm.core.derivation import Derivation, Numbers
from symcomm.core.errors import AccountingError, StrategyError, ValuesError
from symcomm.core.form import Floor, Form, Ratio, Total, combined, negative, num, product
from symcomm.core.graph.axis_roles import sequence_axes
from symcomm.core.graph.gradient import trains_inputs
from symcomm.core.graph.graph import Graph, Op, Region, worded
from symcomm.core.graph.ops import MAP, operations
from symcomm.core.libraries import Expr, sp
from symcomm.core.parallel.placement import Compute
from symcomm.core.program.program import program, trained
from symcomm.core.quantities.counting.packing import lengths_of
from symcomm.core.quantities.declared import Extent, Meaning
from symcomm.core.quantities.options import Documents, Frozen, OpName
from symcomm.core.quantities.witnesses import loops, number, often, passes, size
from symcomm.core.records import dataclass, replace
from symcomm.core.setting import Setting, StepWriter, mark, slug, times
from symcomm.core.units import FLOP


def is_matrix_product(op: Op) -> bool:
    """Whether an op is a matrix product: it sums an index two operands share, and one has an index of its own.

    An outer product is one as well, whose inner size is 1: both have an index of their own. So the gradient of a matrix
    costs the same whether its input is written ``x [D]``, ``x [1, D]``, or ``x [B, D]`` with a batch of one; and so
    does a product of two vectors, with its gradients.
    """
    if op.kind == "convolution":
        return True
    if op.kind != "contraction" or op.attribute("lookup") or len(op.inputs) < 2:
        return False
    if op.attribute("elementwise"):
        return False  # a number times a tensor
    a, b = set(op.indices[0]), set(op.indices[1])
    if min(len(a), len(b)) == 0 or (a == b == {*op.summed} and len(a) == 1):
        return bool(a or b) and len(op.inputs) == 2
    own = [bool(side & set(op.output_indices)) for side in (a - b, b - a)]
    return any(own) if a & b & set(op.summed) else all(own)


def _loops(op: Op) -> tuple[list[int], list[int]]:
    """The indices an op loops over: those of its result, and those it sums."""
    window = op.attribute("window", ())
    assert isinstance(window, tuple)
    if op.kind == "convolution":  # the positions of the image follow from those of the result and the taps
        every = dict.fromkeys(i for ix in (op.output_indices, *op.indices) for i in ix if i not in window)
        return [i for i in every if i in op.output_indices], [i for i in every if i not in op.output_indices]
    return list(op.output_indices), list(op.summed)


@dataclass(frozen=True)
class Masked:
    """The loops over query and key positions of an op on masked scores; a query's window; the positions before all.

    Where a row has several ``documents``, a query sees keys of its own.
    """

    queries: int
    keys: int
    window: Expr | None
    past: Expr | None = None
    documents: tuple[int, ...] = ()

    @property
    def pair(self) -> tuple[int, int]:
        """The two loops."""
        return self.queries, self.keys


def _masked(graph: Graph, op: Op) -> Masked | None:
    """The masked scores that an op works on.

    Where no row writes a mask, all scores are taken for masked: tables seldom write one. A single query behind others
    sees all keys.
    """
    for name, indices in ((op.output, op.output_indices), *zip(op.inputs, op.indices, strict=True)):
        if graph.masked and name not in graph.masked:
            continue
        *pair, window = graph.masked[name] if graph.masked else (*(graph.pair(name) or ()), None)
        if pair:
            axes, step = graph.tensors[name].axes, graph.step
            if step is not None and step.new == 1:
                return None
            past = step.behind.get(axes[pair[1]]) if step is not None else None
            alike = graph.axes[axes[pair[0]]].size == graph.axes[axes[pair[1]]].size  # else it reads another stream
            return Masked(indices[pair[0]], indices[pair[1]], window, past, graph.documents if alike else ())
    return None


def _of_pairs(graph: Graph, op: Op) -> bool:
    """Whether an op works on pairs of a query and a key."""
    origins = (graph.tensors[name].of or name for name in (op.output, *op.inputs))
    return any(graph.pair(name) for name in origins)


def _seen(length: Expr, window: Expr | None) -> Form:
    """The pairs of a query and a position that it sees: 1 of the first query, 2 of the second, up to the window."""
    if window is None:
        size = forms.from_expr(length)
        return Ratio(product(size, Total((size, num(1)))), num(2))
    most = forms.Smallest((forms.from_expr(length), forms.from_expr(window)))
    missing = Ratio(product(most, Total((most, num(-1)))), num(2))
    return Total((product(most, forms.from_expr(length)), negative(missing)))


def _seen_last(length: Expr, window: Expr | None, parts: Form) -> Form:
    """The pairs of the last of so many equal parts of the positions: all pairs less those of the positions before."""
    size, share = forms.from_expr(length), Ratio(forms.from_expr(length), parts)
    if window is None:
        return Ratio(product(share, Total((product(num(2), size), negative(share), num(1)))), num(2))
    before = forms.from_expr(length * (1 - 1 / forms.value(parts)))
    return Total((_seen(length, window), negative(_seen(forms.value(before), window))))


def _seen_striped(length: Expr, window: Expr | None, parts: Form) -> Form:
    """The pairs of the last of so many ranks that take the positions in instruction: each query sees ``parts`` more."""
    size, share = forms.from_expr(length), Ratio(forms.from_expr(length), parts)
    if window is None:
        return Ratio(product(size, Total((share, num(1)))), num(2))
    most = forms.Smallest((size, forms.from_expr(window)))
    rising = Floor(Ratio(most, parts))
    rest = product(Total((share, negative(rising))), most)
    return Total((Ratio(product(parts, rising, Total((rising, num(1)))), num(2)), rest))


def shared_pairs(setting: Setting, graph: Graph, op: Op, cut: Mapping[str, int]) -> tuple[str, ...]:
    """The mesh axes along which ranks share the queries, or the keys, of a causal attention, whose pairs are not alike.

    The first keys are seen by as many queries as the last queries see keys. Raises ``StrategyError`` where some axes
    share queries and others keys, unless the positions are balanced.
    """
    pair = _halved(setting, graph, op)
    sides = [tuple(mesh for mesh, index in cut.items() if index == side) for side in (pair.pair if pair else ())]
    if pair is not None and pair.documents and any(sides):
        raise StrategyError(
            f"'{next(filter(None, sides))[0]}' cuts the positions of several documents: which rank works on the most "
            "pairs is not counted", hint="leave positions whole, as ulysses(k) does",
        )  # fmt: skip
    if all(sides) and len(sides) == 2 and sides[0] != sides[1] and setting.accounting.context_order != "balanced":
        raise StrategyError(
            f"'{sides[0][0]}' shares the queries of a causal attention and '{sides[1][0]}' its keys: which rank "
            "works on the most pairs is not counted", hint="context_order: balanced counts the mean",
        )  # fmt: skip
    return tuple(dict.fromkeys(mesh for side in sides for mesh in side))


def _halved(setting: Setting, graph: Graph, op: Op) -> Masked | None:
    """What ``_masked`` finds, where only unmasked pairs are counted."""
    found = _masked(graph, op)
    if found is None or (setting.accounting.attention == "windowed" and not graph.windows):
        return None  # without windows there is nothing to leave out
    return found if setting.choice("attention") == "causal_half" else None


def matrix_flops(setting: Setting, graph: Graph, op: Op, parts: Form | None = None) -> Form:
    """The operations of a matrix product, written as the convention counts them.

    Where the positions of a causal attention are cut into ``parts``, those of the last part.
    """
    sizes = graph.loops(op)
    kept, summed = _loops(op)
    pair = _halved(setting, graph, op)
    halved: tuple[Form, ...] = ()
    if pair and {*pair.pair} <= {*kept, *summed}:
        halved = (_pairs_seen(setting.accounting, sizes[pair.queries], pair, parts),)
        kept, summed = [i for i in kept if i not in pair.pair], [i for i in summed if i not in pair.pair]
    loops = [sizes[i] for i in (*kept, *summed)]
    how = setting.choice("flops")
    if how == "fma2":
        return forms.product(num(2), setting.sizes(loops), *halved)
    if how == "mac":
        return forms.product(setting.sizes(loops), *halved)
    if halved or (graph.windowed and (found := _masked(graph, op)) and found.window):
        raise AccountingError("exact additions of a masked attention depend on the row", hint="use fma2 or mac")
    inner = setting.sizes([sizes[i] for i in summed])
    outer = setting.sizes([sizes[i] for i in kept])
    return forms.product(outer, Total((product(num(2), inner), num(-1))))


def _pairs_seen(accounting: Accounting, length: Expr, pair: Masked, parts: Form | None) -> Form:
    """The pairs of some queries and what they see; behind earlier positions all pairs less those of the earlier."""
    if pair.documents:
        seen = [(n, _seen(sp.Integer(one), pair.window)) for one, n in Counter(pair.documents).items()]
        return forms.total(*(product(num(n), one) if n > 1 else one for n, one in seen))
    if pair.past is None:
        last = _seen_striped if accounting.context_order == "striped" else _seen_last
        return _seen(length, pair.window) if parts is None else last(length, pair.window, parts)
    if pair.window is None:
        size, past = forms.from_expr(length), forms.from_expr(pair.past)
        return Total((product(size, past), _seen(length, None)))
    return Total((_seen(length + pair.past, pair.window), negative(_seen(pair.past, pair.window))))


def _works(graph: Graph, op: Op) -> tuple[int, int]:
    """What an op that is no matrix product does for each element, and for each row: nothing if it moves or chooses."""
    if op.attribute("view") or op.attribute("lookup") or op.kind in ("onehot", "route", "update"):
        return 0, 0
    if op.kind == "add":
        return len(op.inputs) - 1, 0
    if op.kind == "contraction":
        return len(op.inputs) - 1 + (op.attribute("scale", 1) not in (1, -1)) + _sums(graph, op), 0
    name = op.kind.removesuffix("_gradient")
    return operations(name, op.kind.endswith("_gradient")) if name in MAP else (0, 0)


def _sums(graph: Graph, op: Op) -> bool:
    """Whether an op adds up: what has one term is no sum."""
    return any(size != 1 for index, size in graph.loops(op).items() if index in op.summed)


def _other_flops(setting: Setting, graph: Graph, op: Op, parts: Form | None = None) -> Form | None:
    """The operations of an op that is no matrix product, or None where it only moves or chooses."""
    (each, row), sizes = _works(graph, op), graph.loops(op)
    if not (each or row):
        return None
    half = _halved(setting, graph, op)

    def often(indices: Iterable[int]) -> Form:
        """How often the body of some loops runs."""
        indices = [*dict.fromkeys(indices)]
        if half is None or not {*half.pair} <= {*indices}:
            whole = setting.sizes([sizes[i] for i in indices])
            return whole if parts is None else Ratio(whole, parts)
        outer = setting.sizes([sizes[i] for i in indices if i not in half.pair])
        return product(outer, _pairs_seen(setting.accounting, sizes[half.queries], half, parts))

    every = often(i for ix in (op.output_indices, *op.indices) for i in ix)
    if op.kind == "contraction" and _sums(graph, op) and setting.choice("flops") == "exact_adds":
        return Total((product(num(each), every), negative(often(op.output_indices))))
    if row:
        along = op.attribute("along", ())
        assert isinstance(along, tuple)
        rows = often(i for i in op.indices[0] if i not in along)
        return Total((product(num(each), every), product(num(row), rows)))
    return product(num(each), every)


def counts(setting: Setting, graph: Graph, op: Op) -> bool:
    """Whether the accounting counts an op."""
    return is_matrix_product(op) or (any(_works(graph, op)) and setting.choice("operations") == "all_ops")


def counted(setting: Setting, graph: Graph, ops: Iterable[Op], parts: Form | None = None) -> list[tuple[Op, Form]]:
    """The ops that the accounting counts, each with its operations; ``parts`` are those of ``matrix_flops``."""
    found: list[tuple[Op, Form]] = []
    for op in (op for op in ops if counts(setting, graph, op)):
        if setting.accounting.attention == "left_out" and _of_pairs(graph, op):
            setting.choice("attention")
            found.append((op, num(0)))
            continue
        form = (matrix_flops if is_matrix_product(op) else _other_flops)(setting, graph, op, parts)
        found += [(op, form)] if form is not None else []
    return found


def row_totals(work: StepWriter, graph: Graph, counts: Iterable[tuple[Op, Form]], suffix: str) -> list[Form]:
    """One step a table row: the operations of its ops together."""
    setting = work.setting
    rows: dict[int, list[tuple[Op, Form]]] = {}
    for op, form in counts:
        rows.setdefault(op.row, []).append((op, form))
    targets, once = {op.row: op.output for op in setting.graph.ops}, Region(graph.name)
    names: list[Form] = []
    for row in sorted(rows):
        pieces = [one for one in rows[row] if one[1] != num(0)]
        if not pieces:
            continue
        target = targets.get(row, "sum")
        name = f"F_{slug(target)}{suffix}"
        form = combined(Total, [f for _, f in pieces])
        witness = partial(looped, setting.accounting, graph, [(once, op) for op, _ in pieces])
        reason = _reason(setting, graph, pieces)
        names.append(work.define(name, form, FLOP, "count the loops", reason, pieces[0][0], witness))
    return names


def looped(
    accounting: Accounting, graph: Graph, ops: Iterable[tuple[Region, Op]], numbers: Numbers, parts: Form | None = None
) -> Fraction:
    """The operations of some ops by their loops, as often as their regions stand.

    Where the positions of a causal attention are cut into ``parts``, those of the last part.
    """
    found = Fraction(0)
    for region, op in ops:
        if accounting.attention == "left_out" and _of_pairs(graph, op):
            continue
        lengths = loops(graph, op, numbers)
        kept, summed = _loops(op)
        if not is_matrix_product(op):
            form = _other_flops(Setting(graph, accounting), graph, op, parts)
            found += often(region, numbers) * (number(form, numbers) if form is not None else 0)
            continue
        masked = _masked(graph, op) if accounting.attention != "full" else None
        pair = masked if masked and {*masked.pair} <= {*kept, *summed} else None
        if pair and accounting.attention == "windowed" and not pair.window:
            pair = None
        rows = passes(lengths[i] for i in kept if not pair or i not in pair.pair)
        inner = passes(lengths[i] for i in summed if not pair or i not in pair.pair)
        if pair:
            window = size(pair.window, numbers) if pair.window else None
            past = size(pair.past, numbers) if pair.past is not None else Fraction(0)
            many = lengths[pair.queries]
            inner *= sum(_pairs(Fraction(one), window, accounting.attention, past) for one in pair.documents or (many,))
            if parts is not None and accounting.context_order == "striped":  # every so many queries, up to the last
                step = number(parts, numbers)
                mine = sum(min(step * j, window or many) for j in range(1, int(many / step) + 1))
                inner *= mine / _pairs(many, window, accounting.attention)
            elif parts is not None:  # the last part has what the positions before it do not have
                before = many * (1 - 1 / number(parts, numbers))
                inner -= inner / _pairs(many, window, accounting.attention) * _pairs(
                    before, window, accounting.attention)  # fmt: skip
        adds = {"fma2": inner, "mac": Fraction(0), "exact_adds": inner - 1}[accounting.flops]
        found += often(region, numbers) * rows * (inner + adds)
    return found


def _pairs(length: Fraction, window: Fraction | None, attention: str, past: Fraction = Fraction(0)) -> Fraction:
    """The pairs of positions, query by query: the first one sees one key where it is masked, the last one most.

    Before them stand ``past`` positions.
    """
    if past:
        far = min(window or length + past, length + past)
        if attention == "windowed":
            return length * far
        return sum((min(past + query, far) for query in range(1, int(length) + 1)), Fraction(0))
    far = min(window or length, length)
    if length.denominator != 1 or far.denominator != 1:
        return length * far if attention == "windowed" else far * length - far * (far - 1) / 2
    if attention == "windowed":
        return Fraction(sum(int(far) for _ in range(int(length))))
    return Fraction(sum(min(query, int(far)) for query in range(1, int(length) + 1)))


def _reason(setting: Setting, graph: Graph, pieces: list[tuple[Op, Form]]) -> str:
    op = pieces[0][0]
    what = " and ".join(dict.fromkeys(shown(graph, o) for o, _ in pieces[:4])) + (
        " and more" if len(pieces) > 4 else ""
    )
    what = what[0].upper() + what[1:]
    if is_matrix_product(op):
        how = each_entry(graph, [o for o, _ in pieces], setting.accounting.flops)
        return f"{what}: {how}." if len(pieces) == 1 else f"{what}: {how}, added up."
    return f"{what}: counted from the expression of the function."


_COUNTED = {
    "fma2": ", one multiplication and one addition each",
    "mac": ", one operation each",
    "exact_adds": ", and the additions are one fewer",
}


def each_entry(graph: Graph, ops: list[Op], counted: str) -> str:
    """Why a product of matrices takes as many operations as it does: what is summed for each entry of the result."""
    lengths = {tuple([_called(graph, o, i) for i in _loops(o)[1]]) for o in ops}
    sizes = _grouped(*lengths) if len(lengths) == 1 else []
    many = "·".join(f"({size})" if " " in size and len(sizes) > 1 else size for size in sizes)
    return f"each entry is a sum of {f'`{many}` ' if many else ''}products{_COUNTED[counted]}"


def _grouped(labels: Sequence[str]) -> list[str]:
    """Groups of query heads for each key/value head are all query heads: n_kv · n_H/n_kv is n_H."""
    rest = list(labels)
    for label in labels:
        top, _, bottom = label.partition("/")
        if bottom in rest:
            rest[rest.index(label)] = top
            rest.remove(bottom)
    return rest


def _called(graph: Graph, op: Op, index: int) -> str:
    """The size of a loop, as the author writes it; of a part of an axis its worth."""
    axis, size = graph.axes[graph.index_axes(op)[index]], graph.loops(op)[index]
    return axis.label if size == axis.size else str(size).lower()


def shown(graph: Graph, op: Op) -> str:
    output = graph.tensors[op.output]
    return f"the gradient of {worded(output.of)}" if output.of else worded(op.output)


def derive(
    setting: Setting,
    scope: Annotated[Literal["forward", "backward", "training"], Meaning("the pass that counts")] = "forward",
    op: OpName | None = None,
    frozen: Frozen | None = None,
    documents: Documents | None = None,
) -> Annotated[Derivation, Extent("model all step {scope}")]:
    """The floating-point operations of a pass, of all layers or of one row.

    ``frozen`` weights get no gradient. Where several ``documents`` are packed into each row, a token sees only its
    own document. A document of l tokens then has l(l+1)/2 pairs; padding at the end of a row has none.
    Raises ``ValuesError`` for more tokens than a row has.
    """
    setting = packed(setting.freeze(frozen), documents)
    graph, work = setting.graph, StepWriter(setting)
    chosen = setting.rows(op)
    decides = scope != "forward" and trains_inputs(graph)
    needs = (setting.choice("input_gradient") if decides else setting.accounting.input_gradient) == "needed"
    both = trained(graph, setting.accounting, setting.frozen)
    wanted = {o.row for o in chosen.ops}
    regions = chosen.regions or (Region(graph.name),)
    phases = ["forward", "backward"] if scope == "training" else [scope]
    answers: list[Form] = []
    counts: list[Region] = []
    ran: list[tuple[Region, Op]] = []
    whole = partial(looped, setting.accounting, both, ran)
    pieces = 0
    for region in regions:
        parts: list[Form] = []
        for phase in phases:
            short = {"forward": "fwd", "backward": "bwd"}[phase]
            suffix = f"^{short}" if len(phases) > 1 else ""
            ops = [
                o for o in both.ops
                if o.phase == phase and o.region == region.name and (o.row in wanted or (op is None and not o.row))
            ]  # fmt: skip
            found = counted(setting, both, ops)
            names, mine = row_totals(work, both, found, suffix), [op for op, _ in found]
            ran += [(region, op) for op in mine]
            if len(names) > 1:
                single = Region(region.name)
                once = partial(looped, setting.accounting, both, [(single, op) for op in mine])
                called = mark(region) if len(regions) > 1 else "layer" if region.times else "total"
                what = f"the {region.name}" if len(regions) > 1 else "one layer"
                text = f"The {phase} pass of {what}." if called != "total" else f"The {phase} pass."
                parts.append(work.define(f"F_{called}{suffix}", Total(tuple(names)), FLOP, "add the rows", text,
                                         witness=once))  # fmt: skip
            else:
                parts += names
        pieces += len(parts)
        if parts:
            counts.append(region)
            answers.append(times(region, combined(Total, parts)))
    if not answers:
        work.define("F", num(0), FLOP, "add", "Nothing is counted.", witness=whole)
    elif len(answers) > 1:
        work.define("F", Total(tuple(answers)), FLOP, "add the parts", "All parts of the model together.",
                    witness=whole)  # fmt: skip
    elif counts[0].times:
        work.define("F", answers[0], FLOP, "repeat", "All layers are alike.", witness=whole)
    elif pieces > 1:
        work.define("F", answers[0], FLOP, "add", "Forward and backward together.", witness=whole)
    if op is None and not needs and scope != "forward":
        _without_first_input(work, setting)
    return setting.derivation(f"{scope.capitalize()} FLOPs" + (f" of {op}" if op else ""), work.steps)


def packed(setting: Setting, documents: str | None) -> Setting:
    """The setting where a mask keeps the documents of a row apart."""
    if documents is None:
        return setting
    if setting.choice("attention") != "causal_half":
        raise AccountingError("the documents of a row change only a count of unmasked pairs",
                              hint="attention: causal_half")  # fmt: skip
    if setting.graph.step is not None or not setting.graph.attention_pairs:
        what = "a step has one document a sequence" if setting.graph.step is not None else "nothing attends"
        raise ValuesError(f"{what}, so no mask keeps documents apart", hint="leave out documents")
    every = lengths_of(documents)
    row = forms.from_expr(setting.graph.axes[sequence_axes(setting.graph)[0]].size)

    def check(values: Mapping[str, Fraction]) -> None:
        if {*forms.names(row)} <= values.keys() and sum(every) > (length := forms.evaluate(row, values)):
            raise ValuesError(f"documents of {sum(every)} tokens do not fit into a row of {length}",
                              hint="fewer documents, or a longer row")  # fmt: skip

    check(setting.values)
    made = replace(setting.graph, documents=tuple(every))
    return replace(setting, graph=made, checks=(*setting.checks, check))


def _without_first_input(work: StepWriter, setting: Setting) -> None:
    """Takes off what the first of repeated layers saves when its input needs no gradient."""
    made, every = program(setting.graph, None, setting.accounting, setting.frozen), forms.Sym(work.steps[-1].name)
    spares = [one.work.op for one in made.instructions if isinstance(one.work, Compute) and not one.every]
    found = counted(setting, made.graph, spares)
    once = partial(looped, setting.accounting, made.graph, [(Region(setting.graph.name), op) for op, _ in found])
    total = forms.value(Total(tuple(form for _, form in found) or (num(0),)))
    saved = setting.graph.relations.gather(total.expand())
    if saved == 0:
        return
    text = "The gradient of the model's input is not computed."
    spared = work.define("F_first", forms.from_expr(saved), FLOP, "first layer", text, witness=once)
    work.combine("F_needed", Total((every, forms.negative(spared))), FLOP, "subtract", "Without that gradient.")
