"""Compulsory memory traffic: every operand of an op read once, its result written once."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from symcomm.derivation import Derivation
from symcomm.dtypes import element_bytes
from symcomm.form import Form, Num, Total, num, product
from symcomm.graph.graph import Graph, Op
from symcomm.quantities.counting.flops import counted, touched
from symcomm.quantities.counting.load import uses
from symcomm.quantities.options import Dtype, OpName
from symcomm.quantities.setting import Setting, Work, slug, times
from symcomm.units import BYTE


def op_bytes(setting: Setting, graph: Graph, op: Op) -> Form:
    """The bytes of an op: its operands and its result, each in its own format."""
    moved = uses(setting, graph, op)
    names = [n for n, (_, times) in moved.items() for _ in range(times)]
    if not names:
        return Num(Fraction(0), BYTE)
    formats = [graph.tensors[n].dtype or setting.dtype for n in names]
    sizes = [setting.sizes([graph.axes[a].size for a in graph.tensors[n].axes]) for n in names]
    if len(set(formats)) == 1:
        return product(element_bytes(formats[0]), Total(tuple(sizes)))
    return Total(tuple(product(element_bytes(f), s) for f, s in zip(formats, sizes, strict=True)))


def write_down(work: Work, op: str | None) -> Form:
    """The steps that count the bytes; gives the name of the total."""
    setting = work.setting
    names: list[Form] = []
    chosen = setting.rows(op)
    ops = [o for o, _ in counted(setting, setting.graph, chosen.ops)]
    for one in ops:
        name = "M" if len(ops) == 1 else f"M_{slug(one.output)}"
        moved = uses(setting, setting.graph, one)
        read = " and ".join(f"`{n}`" for n in moved if n != one.output)
        said = [f"Read {read}" if read else "", f"write `{one.output}`, each once" if one.output in moved else ""]
        text = ", ".join(filter(None, said)) + "." if moved else "Everything stays in the cache."
        names.append(work.define(name, op_bytes(setting, setting.graph, one), BYTE, "move each once", text, one))
    if not names:
        return work.define("M", num(0), BYTE, "nothing moves", "No op is counted.")
    if len(chosen.regions) > 1:
        text = "All parts of the model together."
        return work.define("M", Total(per_region(chosen, ops, names)), BYTE, "add the parts", text)
    return names[0] if len(names) == 1 else work.define("M", Total(tuple(names)), BYTE, "add", "All ops together.")


def per_region(graph: Graph, ops: Sequence[Op], counts: Sequence[Form]) -> tuple[Form, ...]:
    """Counts of ops as terms of a sum over the regions of a graph, each as often as the region stands."""
    found: list[Form] = []
    for region in graph.regions:
        mine = tuple(count for op, count in zip(ops, counts, strict=True) if op.region == region.name)
        if mine:
            found.append(times(region, Total(mine) if len(mine) > 1 else mine[0]))
    return tuple(found)


def derive(setting: Setting, op: OpName | None = None, dtype: Dtype | None = None) -> Derivation:
    """The bytes moved when each operand is read and each result written once.

    The counted ops of the forward pass: of one layer, of all parts of a model, or of one row.
    """
    setting = setting.in_format(dtype)
    work = Work(setting)
    write_down(work, op)
    fields = [f for f in touched(setting, setting.graph, setting.rows(op).ops) if f == "operations"] + ["traffic"]
    return setting.derivation("Compulsory traffic" + (f" of {op}" if op else ""), work.steps, fields)
