"""The size of one tensor in bytes."""

from __future__ import annotations

from typing import Annotated

from symcomm.core.derivation import Derivation
from symcomm.core.dtypes import element_bytes, said_bytes
from symcomm.core.form import product
from symcomm.core.quantities.declared import Meaning
from symcomm.core.quantities.options import Dtype
from symcomm.core.quantities.witnesses import elements
from symcomm.core.setting import Setting, StepWriter
from symcomm.core.units import BYTE, ELEMENT


def derive(
    setting: Setting,
    tensor: Annotated[str, Meaning("the name of the tensor")],
    dtype: Dtype | None = None,
) -> Derivation:
    """The bytes of one tensor.

    The bytes of a tensor of one layer, all members of a family together.
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
    work.define("V", product(n, size), BYTE, "bytes", f"An element takes {said_bytes(size)}.",
                witness=lambda numbers: elements(graph, found, numbers) * size.number)  # fmt: skip
    return setting.derivation(f"Size of {found.name}", work.steps)
