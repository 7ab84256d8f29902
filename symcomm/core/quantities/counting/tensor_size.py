"""The size of one tensor in bytes."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Literal

from symcomm.core.derivation import Derivation, Numbers
from symcomm.core.dtypes import element_bytes, grouped, said_bytes
from symcomm.core.errors import ValuesError
from symcomm.core.form import Ceiling, Num, Ratio, Total, num, product
from symcomm.core.quantities.declared import Meaning
from symcomm.core.quantities.options import Dtype
from symcomm.core.quantities.witnesses import elements, passes
from symcomm.core.quantities.witnesses import size as length
from symcomm.core.setting import Setting, StepWriter
from symcomm.core.units import BYTE, ELEMENT


def derive(
    setting: Setting,
    tensor: Annotated[str, Meaning("the name of the tensor")],
    dtype: Dtype | None = None,
    last_group: Annotated[
        Literal["full", "short"],
        Meaning("the last group of each row of a quantised tensor: full, or short with numbers of its own beside it"),
    ] = "full",
) -> Derivation:
    """The bytes of one tensor.

    The bytes of a tensor of one layer, all members of a family together. The groups of a quantised tensor run along its
    last axis.
    """
    setting = setting.in_format(dtype)
    if dtype and "=" not in dtype:  # also for a mask, which has a format of its own
        setting = setting.in_format(f"{tensor}={dtype}")
    graph, work = setting.graph, StepWriter(setting)
    found = graph.find(tensor)
    family = ", for all members of the family" if found.shape and len(found.axes) > len(found.shape) else ""
    sizes = setting.sizes(graph.sizes(found.name))
    n = work.define("n", sizes, ELEMENT, "count the elements", f"The product of its sizes{family}.",
                    witness=lambda numbers: elements(graph, found, numbers))  # fmt: skip
    size = element_bytes(found.dtype or setting.dtype)
    parts = grouped(found.dtype or setting.dtype)
    if last_group == "short":
        if parts is None:
            raise ValuesError(f"{found.dtype or setting.dtype} has no groups", hint="int4(128 fp16), or nf4")
        element, many, _ = parts
        alone = element_bytes(element)
        *rows, row = graph.sizes(found.name)
        groups = product(setting.sizes(rows), Ceiling(Ratio(setting.written(row), num(many))))

        def laid_out(numbers: Numbers) -> Fraction:
            """The groups of all rows, each begun anew."""
            return passes(length(one, numbers) for one in rows) * len(range(0, int(length(row, numbers)), many))

        text = f"Groups of {many} in each row, the last one short."
        g = work.define("n_g", groups, ELEMENT, "count the groups", text, witness=laid_out)
        beside = Num((size.number - alone.number) * many, size.unit)
        work.define("V", Total((product(n, alone), product(g, beside))), BYTE, "bytes",
                    f"An element takes {said_bytes(alone)}, and each group {said_bytes(beside)} beside it.",
                    witness=lambda numbers: elements(graph, found, numbers) * alone.number
                    + beside.number * laid_out(numbers))  # fmt: skip
        return setting.derivation(f"Size of {found.name}", work.steps)
    work.define("V", product(n, size), BYTE, "bytes", f"An element takes {said_bytes(size)}.",
                witness=lambda numbers: elements(graph, found, numbers) * size.number)  # fmt: skip
    return setting.derivation(f"Size of {found.name}", work.steps)
