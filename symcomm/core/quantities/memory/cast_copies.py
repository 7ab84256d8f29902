"""The copies that autocast makes, and the format of every tensor under it."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import Annotated, Literal

from symcomm.core.derivation import Derivation, Exhibit
from symcomm.core.dtypes import autocast_of, element_bytes, said_bytes
from symcomm.core.errors import ValuesError
from symcomm.core.form import Form, Num, Sym, Total, num, product
from symcomm.core.graph.graph import Graph, Op
from symcomm.core.libraries import Expr
from symcomm.core.quantities.declared import Meaning, Reads
from symcomm.core.quantities.witnesses import laid_out
from symcomm.core.setting import Setting, StepWriter, mark, slug, times
from symcomm.core.units import BYTE


def derive(
    setting: Setting,
    dtype: Annotated[
        str | None, Reads("dtype"), Meaning("the mixed precision, such as autocast(fp16); default: the model's")
    ] = None,
    of: Annotated[Literal["weights", "activations", "all"], Meaning("the tensors to copy")] = "weights",
) -> Derivation:
    """The bytes of the copies that autocast makes of fp32 weights, or of activations.

    Of all layers, for ops that run in another format. The table says the format of every tensor. The gradient of a
    tensor has the tensor's format, so that of an fp32 weight is in fp32: the gradient of its copy is cast back.
    """
    setting = setting.in_format(dtype)
    graph, work = setting.graph, StepWriter(setting)
    casts = [op for op in graph.ops if op.attribute("cast")]
    if not casts and (dtype is None or autocast_of(dtype) is None):
        raise ValuesError("the model runs in one format: nothing is copied", hint="dtype: autocast(fp16)")
    role = {"weights": ("weight",), "activations": ("activation", "input")}.get(of, ("weight", "activation", "input"))
    casts = [op for op in casts if graph.tensors[op.inputs[0]].role in role]
    parts: list[Form] = []
    every: list[tuple[Form, tuple[Expr, ...], Fraction]] = []
    for region in setting.regions:
        mine = [op for op in casts if op.region == region.name]
        copies = [_copy(work, graph, op) for op in mine]
        every += [(times(region, num(1)), graph.sizes(op.output), _width(setting, op).number) for op in mine]
        if len(copies) > 1:
            text = f"All copies of one {region.name}." if region.times else "All copies."
            name = f"V_{mark(region)}" if region.times or len(setting.regions) > 1 else "V"
            copies = [work.combine(name, Total(tuple(copies)), BYTE, "add", text)]
        parts += [times(region, one) for one in copies]
    whole = partial(laid_out, every)
    if not parts:
        work.define("V", Num(Fraction(0), BYTE), BYTE, "add", "Nothing is copied.", witness=whole)
    elif len(parts) > 1:
        work.define("V", Total(tuple(parts)), BYTE, "add the parts", "All parts of the model together.", witness=whole)
    elif not isinstance(parts[0], Sym):
        work.define("V", parts[0], BYTE, "repeat", "All layers are alike.", witness=whole)
    return setting.derivation(f"Copies of {of} under autocast", work.steps, exhibits=[_formats(setting, graph)])


def _copy(work: StepWriter, graph: Graph, op: Op) -> Form:
    """The step that counts the bytes of one copy."""
    made = graph.tensors[op.output]
    size = _width(work.setting, op)
    reader = next(o for o in graph.ops if op.output in o.inputs)
    return work.define(
        f"V_{slug(op.output)}", product(work.setting.elements(op.output), size), BYTE, "copy",
        f"`{op.inputs[0]}` in {made.dtype} for `{reader.output.split('·')[0]}`, {said_bytes(size)} an element.",
        witness=partial(laid_out, [(num(1), graph.sizes(op.output), size.number)]),
    )  # fmt: skip


def _formats(setting: Setting, graph: Graph) -> Exhibit:
    """The format of every tensor, in the order of the ops."""
    rows: list[tuple[str, str, str]] = []
    weights: dict[str, str] = {}
    for op in graph.ops:
        for name in op.inputs:
            tensor = graph.tensors[name]
            if tensor.role in ("weight", "input") and name not in weights:
                weights[name] = tensor.role
                rows.append((f"`{name}`", tensor.role, tensor.dtype or setting.dtype))
        made = graph.tensors[op.output]
        if not made.virtual and "·" not in op.output.partition(")")[0]:
            copied = (f"copy of `{op.inputs[0]}`", "copy") if op.attribute("cast") else (f"`{op.output}`", "activation")
            rows.append((*copied, made.dtype or setting.dtype))
    return Exhibit(
        "The format of every tensor; a gradient has the format of its tensor", ("tensor", "what", "format"), tuple(rows)
    )


def _width(setting: Setting, op: Op) -> Num:
    """The bytes of a number of what an op makes."""
    return element_bytes(setting.graph.tensors[op.output].dtype or setting.dtype)
