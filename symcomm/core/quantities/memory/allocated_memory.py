"""The bytes that an allocator has given out before the backward pass: saved tensors, those still held, workspaces."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from typing import Annotated, Literal

from symcomm.core.derivation import Derivation, Numbers, exact
from symcomm.core.dtypes import element_bytes
from symcomm.core.errors import ValuesError, nearest
from symcomm.core.form import Ceiling, Form, Num, Ratio, Total, combined, evaluate, names, product, value
from symcomm.core.libraries import Expr
from symcomm.core.program.autograd import saved, storage
from symcomm.core.program.program import program
from symcomm.core.quantities.declared import Meaning
from symcomm.core.quantities.memory.activation_memory import bytes_of
from symcomm.core.quantities.memory.asked import read_choices, saved_differs
from symcomm.core.quantities.options import Amount, Dtype, RankShare
from symcomm.core.quantities.witnesses import size as length
from symcomm.core.setting import Setting, StepWriter, named, slug
from symcomm.core.text.formula import read_form
from symcomm.core.units import BYTE

MIB = 2**20
# PyTorch's caching allocator (c10/cuda/CUDACachingAllocator.cpp): every request is rounded up to 512 bytes; one of
# 10 MiB or more gets a segment in steps of 2 MiB, which is not split where 1 MiB or less would be left.
REQUEST, LARGE, SEGMENT, REMAINDER = 512, 10 * MIB, 2 * MIB, MIB


def block(size: Fraction, rounding: str = "blocks") -> Fraction:
    """The bytes a request of ``size`` bytes takes.

    >>> block(Fraction(4)), block(Fraction(25 * 2**20)) / 2**20, block(Fraction(25 * 2**20), "requests") / 2**20
    (Fraction(512, 1), Fraction(26, 1), Fraction(25, 1))
    """
    if rounding == "none":
        return size
    rounded = -(-size // REQUEST) * REQUEST
    segment = -(-rounded // SEGMENT) * SEGMENT
    whole = rounding == "blocks" and rounded >= LARGE and segment - rounded <= REMAINDER
    return Fraction(segment if whole else rounded)


def derive(
    setting: Setting,
    held: RankShare | None = None,
    workspace: Annotated[Amount, Meaning("a library's own buffers, such as 32 MiB")] = None,
    rounding: Annotated[Literal["requests", "blocks", "none"], Meaning("how the allocator rounds")] = "requests",
    dtype: Dtype | None = None,
) -> Derivation:
    """The bytes that an allocator has given out when the backward pass begins.

    ``held`` are tensors that the program still refers to (results, the loss), ``workspace`` the bytes that a library
    keeps for itself, ``rounding`` how the allocator rounds: ``requests``, ``blocks`` (needs all sizes) or ``none``.
    """
    setting = setting.in_format(dtype)
    graph, work = setting.graph, StepWriter(setting)
    made = program(graph, None, setting.accounting, setting.frozen, recomputation="none")
    kept = saved(made, setting.regions[0].name, setting.dtype)
    parts: list[Form] = []
    asked: list[tuple[Expr, Num]] = []
    for n, item in enumerate(kept):
        text = f"{item.what}, kept for the gradient of {', '.join(f'`{r}`' for r in item.readers[:4])}"
        name = "A_" + slug(item.tensor) + ("" if item.tensor not in [k.tensor for k in kept[:n]] else f",{n}")
        said = f"`{item.tensor.split('·')[0]}`: {text}."
        parts.append(_given(work, name, bytes_of(setting, item), rounding, said))
        asked.append((item.elements, element_bytes(item.dtype)))
    roots = {item.tensor for item in kept}
    for name in named(held):
        outside = held_outside(setting, name)
        if outside is not None:
            called = slug(name.partition("[")[0].strip())
            text = f"`{name}`: not part of the model, but the program holds it."
            parts.append(_given(work, f"H_{called}", outside, rounding, text))
            asked.append((value(outside), Num(Fraction(1))))
            continue
        tensor = graph.find(name)
        root = storage(graph, tensor.name, setting.accounting)
        if root in roots:
            continue
        roots.add(root)
        size = product(setting.elements(tensor.name), element_bytes(tensor.dtype or setting.dtype))
        text = f"`{tensor.name}`: no gradient reads it, but the program still holds it."
        parts.append(_given(work, f"H_{slug(tensor.name)}", size, rounding, text))
        asked.append((graph.elements(tensor.name), element_bytes(tensor.dtype or setting.dtype)))
    if workspace is not None:
        size = Num(exact(workspace, "workspace"), BYTE)
        parts.append(work.define("M_work", size, BYTE, "workspace", "A library's own buffers."))
    if not parts:
        raise ValuesError(f"{graph.name} keeps nothing for backward", hint="name what is held: held=y")
    work.define("M", combined(Total, parts), BYTE, "add", "All that is given out.",
                witness=partial(_given_out, asked, rounding, exact(workspace or 0, "workspace")))  # fmt: skip
    notes = ("The allocator gives out multiples of 512 bytes.",) if rounding == "requests" else ()
    read_choices(setting, [graph], made, "")
    if saved_differs(setting, made):
        setting.choice("saved")
    return setting.derivation("Memory before backward", work.steps, notes=notes)


def _given(work: StepWriter, name: str, size: Form, rounding: str, text: str) -> Form:
    values = work.setting.values
    if rounding == "none":
        return work.define(name, size, BYTE, "bytes", text)
    if rounding == "blocks":
        missing = [n for n in names(size) if n not in values]
        if missing:
            raise ValuesError(f"the size of a block depends on the value of {missing[0]}", hint=f"give {missing[0]}")
        taken = block(evaluate(size, values))
        return work.define(name, Num(taken, BYTE), BYTE, "block", text)
    whole = Num(Fraction(REQUEST), BYTE)
    # A reader looks for the bytes of the tensor and for the 512 they are rounded to.
    return work.as_written(name, product(whole, Ceiling(Ratio(size, whole))), BYTE, "round up", text)


def _given_out(
    asked: Sequence[tuple[Expr, Num]], rounding: str, besides: Fraction, numbers: Numbers
) -> Fraction:  # fmt: skip
    """Every request in turn, each rounded up to what the allocator gives."""
    out = besides
    for elements, wide in asked:
        want = length(elements, numbers) * wide.number
        if rounding == "requests":
            want = Fraction(-(-want // REQUEST) * REQUEST)
        out += block(want) if rounding == "blocks" else want
    return out


def held_outside(setting: Setting, said: str) -> Form | None:
    """The bytes of a tensor that is not the model's, from its shape and format: ``labels [B, L] int64``.

    None where no shape is said. Raises ``ValuesError`` for sizes that the model does not have.
    """
    name, bracket, rest = said.partition("[")
    if not bracket:
        return None
    shape, _, dtype = rest.partition("]")
    sizes = [read_form(size.strip(), None) for size in shape.split(",")]
    unknown = [n for size in sizes for n in names(size) if n not in setting.symbols]
    if unknown:
        raise ValuesError(f"{name.strip()} has the size {unknown[0]}, which the model has not",
                          hint=nearest(unknown[0], sorted(setting.symbols)))  # fmt: skip
    return product(*sizes, element_bytes(dtype.strip() or setting.dtype))
