"""Compulsory memory traffic: every operand of an op read once, its result written once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Annotated

from symcomm.core.derivation import Derivation, Numbers
from symcomm.core.dtypes import element_bytes
from symcomm.core.errors import ValuesError
from symcomm.core.form import Form, Num, Total, product, total
from symcomm.core.graph.experts import Routing, chosen_experts
from symcomm.core.graph.graph import Graph, Op, Region, worded
from symcomm.core.libraries import Expr
from symcomm.core.quantities.counting.load import elements_moved, moves, sizes_moved, uses
from symcomm.core.quantities.declared import Extent
from symcomm.core.quantities.options import Dtype, OpName
from symcomm.core.quantities.witnesses import experts_hit, often, passes, size
from symcomm.core.setting import Setting, StepWriter, slug, times
from symcomm.core.units import BYTE


def op_bytes(setting: Setting, graph: Graph, op: Op) -> Form:
    """The bytes of an op: its operands and its result, each in its own format."""
    moved = uses(setting, graph, op)
    names = [n for n, (_, times) in moved.items() for _ in range(times)]
    if not names:
        return Num(Fraction(0), BYTE)
    formats = [graph.tensors[n].dtype or setting.dtype for n in names]
    sizes = [elements_moved(setting, graph, op, n) for n in names]
    if len(set(formats)) == 1:
        return product(element_bytes(formats[0]), Total(tuple(sizes)))
    return Total(tuple(product(element_bytes(f), s) for f, s in zip(formats, sizes, strict=True)))


def write_down(work: StepWriter, op: str | None) -> Form:
    """The steps that count the bytes; gives the name of the total."""
    setting = work.setting
    names: list[Form] = []
    chosen = setting.rows(op)
    ops = [o for o in chosen.ops if moves(setting, setting.graph, o)]
    if op is not None and not ops:
        ops = [_one_kernel(chosen)]
        setting.taken()  # a row that is asked for is counted either way
    regions = {r.name: r for r in chosen.regions} if len(chosen.regions) > 1 else {}
    whole = partial(_moved, setting, [(regions.get(o.region, Region(o.region)), o) for o in ops])
    for one in ops:
        name = "M" if len(ops) == 1 else f"M_{slug(one.output)}"
        moved = uses(setting, setting.graph, one)
        read = " and ".join(worded(n) for n in moved if n != one.output)
        said = [f"Read {read}" if read else "", f"write {worded(one.output)}, each once" if one.output in moved else ""]
        text = ", ".join(filter(None, said)) + "." if moved else "Everything stays in the cache."
        names.append(
            work.define(
                name,
                op_bytes(setting, setting.graph, one),
                BYTE,
                "move each once",
                text,
                one,
                partial(_moved, setting, [(Region(one.region), one)]),
            )
        )
    if not names:
        return work.define("M", Num(Fraction(0), BYTE), BYTE, "nothing moves", "No op is counted.", witness=whole)
    if len(chosen.regions) > 1:
        text = "All parts of the model together."
        # Counts of ops as terms of a sum over the regions of a graph, each as often as the region stands.
        found: list[Form] = []
        for region in chosen.regions:
            mine = tuple(count for op, count in zip(ops, names, strict=True) if op.region == region.name)
            if mine:
                found.append(times(region, total(*mine)))
        return work.define("M", Total(tuple(found)), BYTE, "add the parts", text, witness=whole)
    return (
        names[0]
        if len(names) == 1
        else work.define("M", Total(tuple(names)), BYTE, "add", "All ops together.", witness=whole)
    )


def _moved(setting: Setting, ops: Sequence[tuple[Region, Op]], numbers: Numbers) -> Fraction:
    """The bytes of operands and results, laid out one by one."""
    graph, found, experts = setting.graph, Fraction(0), chosen_experts(setting.graph)
    for region, op in ops:
        for name, (_, count) in uses(setting, graph, op).items():
            tensor = graph.tensors[name]
            wide = element_bytes(tensor.dtype or setting.dtype).number
            every = passes(size(one, numbers) for one in sizes_moved(graph, op, name))
            if name in experts and name != op.output:
                every *= _part_read(setting, experts[name], graph.sizes(name)[experts[name].place], numbers)
            found += often(region, numbers) * count * wide * every
    return found


def _part_read(setting: Setting, routing: Routing, axis: Expr, numbers: Numbers) -> Fraction:
    """The part of the experts that is read: routed token by token."""
    every, chosen = size(axis, numbers), size(routing.chosen, numbers)
    tokens = passes(size(one, numbers) for one in routing.tokens)
    return experts_hit(setting.accounting.experts_read, every, chosen, tokens) / every


def _one_kernel(row: Graph) -> Op:
    """A row without a product (a norm and its gain, a rotation, a repetition) as one op: it reads what others make.

    What the ops of the row hand to one another is not moved.
    """
    if any(o.kind == "onehot" for o in row.ops):
        name = row.ops[-1].output
        raise ValuesError(f"`{name}` is looked up: how much of the table is read, the indices say",
                          hint=f"tensor_size gives the bytes of `{name}`, which are at least written")  # fmt: skip
    made = {o.output for o in row.ops}
    operands = {n: ix for o in row.ops for n, ix in zip(o.inputs, o.indices, strict=True) if n not in made}
    last = row.ops[-1]
    return replace(last, inputs=tuple(operands), indices=tuple(operands.values()))


def derive(
    setting: Setting, op: OpName | None = None, dtype: Dtype | None = None
) -> Annotated[Derivation, Extent("{layer} all step forward")]:  # fmt: skip
    """The bytes moved when each operand is read and each result written once.

    The counted ops of the forward pass: of one layer, of all parts of a model, or of one row. A row without a product
    (a norm, a rotation, a repetition) is one op that reads its operands and writes its result. Keys and values that
    several heads share are read once.
    """
    setting = setting.in_format(dtype)
    work = StepWriter(setting)
    write_down(work, op)
    return setting.derivation("Compulsory traffic" + (f" of {op}" if op else ""), work.steps)
