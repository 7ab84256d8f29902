"""The copies that autocast makes, and the format of every tensor under it."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import Annotated, Literal

from symcomm.derivation import Derivation, Exhibit, Numbers
from symcomm.dtypes import autocast_of, element_bytes, said_bytes
from symcomm.errors import ValuesError
from symcomm.form import Total, num, product
from symcomm.graph.graph import Graph, Op, Tensor
from symcomm.quantities.declared import Meaning, Reads
from symcomm.quantities.witnesses import elements, together
from symcomm.setting import Setting, Work, slug
from symcomm.units import BYTE


def derive(
    setting: Setting,
    dtype: Annotated[
        str | None, Reads("dtype"), Meaning("the mixed precision, where it is not the model's: autocast(fp16)")
    ] = None,
    of: Annotated[Literal["weights", "activations", "all"], Meaning("what is copied")] = "weights",
) -> Derivation:
    """The bytes of the copies that autocast makes of fp32 weights, or of activations.

    Of one layer, for ops that run in another format. The table says the format of every tensor. The gradient of a
    tensor has the tensor's format, so that of an fp32 weight is in fp32: the gradient of its copy is cast back.
    """
    setting = setting.in_format(dtype)
    graph, work = setting.graph, Work(setting)
    casts = [op for op in graph.ops if op.attribute("cast")]
    if not casts and (dtype is None or autocast_of(dtype) is None):
        raise ValuesError("the model runs in one format: nothing is copied", hint="dtype: autocast(fp16)")
    role = {"weights": ("weight",), "activations": ("activation", "input")}.get(of, ("weight", "activation", "input"))
    parts = []
    for op in casts:
        copied, made = graph.tensors[op.inputs[0]], graph.tensors[op.output]
        if copied.role not in role:
            continue
        size = element_bytes(made.dtype or setting.dtype)
        reader = next(o for o in graph.ops if op.output in o.inputs)
        parts.append(work.define(
            f"V_{slug(op.output)}", product(setting.elements(op.output), size), BYTE, "copy",
            f"`{copied.name}` in {made.dtype} for `{reader.output.split('·')[0]}`, {said_bytes(size)} an element.",
            witness=partial(_copied, graph, made, size.number),
        ))  # fmt: skip
    if not parts:
        work.define("V", num(0), BYTE, "add", "Nothing is copied.", witness=lambda numbers: 0)
    elif len(parts) > 1:
        work.define("V", Total(tuple(parts)), BYTE, "add", "All copies.", witness=together(parts))
    return setting.derivation(f"Copies of {of} under autocast", work.steps, exhibits=[_formats(setting, graph)])


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
            rows.append((f"`{op.output}`" if not op.attribute("cast") else f"copy of `{op.inputs[0]}`", _kind(op),
                         made.dtype or setting.dtype))  # fmt: skip
    return Exhibit(
        "The format of every tensor; a gradient has that of its tensor", ("tensor", "what", "format"), tuple(rows)
    )


def _copied(graph: Graph, tensor: Tensor, width: Fraction, numbers: Numbers) -> Fraction:
    return elements(graph, tensor, numbers) * width


def _kind(op: Op) -> str:
    return "copy" if op.attribute("cast") else "activation"
