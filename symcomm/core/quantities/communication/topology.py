"""The GPUs of a machine and their links: bandwidths, the bisection, rings, NUMA nodes, lost cells."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Literal, TypedDict, Unpack

from symcomm.core.derivation import Derivation
from symcomm.core.errors import ValuesError
from symcomm.core.hardware.devices import known_devices
from symcomm.core.hardware.paths import Wiring, wiring
from symcomm.core.hardware.topology import read_topology
from symcomm.core.quantities.declared import Meaning, OneOf
from symcomm.core.quantities.options import Amount, NoModel, Whole

_ASKED: dict[str, Callable[[Wiring, list[str], str], Derivation]] = {
    "bandwidth": lambda w, names, _: w.bandwidth(*_two(names, w)),
    "bisection": lambda w, _, __: w.bisection(),
    "direct_links": lambda w, _, __: w.direct_links(),
    "ring": lambda w, _, __: w.ring(),
    "nic": lambda w, names, _: w.nic(_one(names)),
    "numa": lambda w, _, __: w.numa(),
    "missing": lambda w, _, kind: w.missing(kind),
}


class Paths(TypedDict, total=False):
    """Bandwidths of PCIe paths by link type."""

    pix: Annotated[Amount, Meaning("the bandwidth of a PIX path")]
    pxb: Annotated[Amount, Meaning("the bandwidth of a PXB path")]
    phb: Annotated[Amount, Meaning("the bandwidth of a PHB path")]
    node: Annotated[Amount, Meaning("the bandwidth of a NODE path")]
    sys: Annotated[Amount, Meaning("the bandwidth of a SYS path")]


def derive(
    setting: NoModel,
    about: Annotated[str, OneOf(lambda: _ASKED), Meaning("the result to derive")] = "bandwidth",
    matrix: Annotated[str | None, Meaning("the output of nvidia-smi topo -m")] = None,
    between: Annotated[str | None, Meaning("two devices, such as GPU0, NIC0; one GPU for nic")] = None,
    device: Annotated[
        str | None,
        OneOf(known_devices, open=True),
        Meaning("the kind of GPU, which brings the bandwidth and number of its NVLinks"),
    ] = None,
    link_rate: Annotated[Amount, Meaning("the bandwidth of one NVLink in one direction, such as 25 GB/s")] = None,
    switch: Annotated[
        Literal["yes", "no"] | None, Meaning("whether the NVLinks lead to a switch; default: as in the matrix")
    ] = None,
    gpus: Annotated[Whole | None, Meaning("the number of GPUs, if there is no matrix")] = None,
    links: Annotated[Whole | None, Meaning("the NVLinks between two GPUs, if there is no matrix")] = None,
    kind: Annotated[str, Meaning("only missing cells of this link type")] = "",
    **pcie: Unpack[Paths],
) -> Derivation:
    """The GPUs of a machine and their links.

    One quantity of a topology; without a ``matrix`` it holds for ``n_GPU`` GPUs that are all joined alike.

    ``pix``, ``pxb``, ``phb``, ``node`` and ``sys`` are bandwidths of PCIe paths by link type.
    """
    found = read_topology(matrix, "the matrix") if matrix is not None else None
    names = [name for name in re.split(r"[\s,;]+", between or "") if name]
    rates = {key.upper(): value for key, value in pcie.items() if value is not None}
    joined = wiring(
        found, device, link_rate, rates, {"yes": True, "no": False}[switch] if switch else None,
        gpus=_count(gpus, "gpus"), links=_count(links, "links"), accounting=setting.accounting,
        notation=setting.notation, relations=setting.graph.relations,
    )  # fmt: skip
    return _ASKED[about](joined, names, kind)


def _two(names: list[str], joined: Wiring) -> tuple[str, str]:
    if not names and joined.topology is None:
        return "", ""
    if len(names) != 2:
        raise ValuesError("say which two devices", hint="for instance between: GPU0, GPU1")
    return names[0], names[1]


def _one(names: list[str]) -> str:
    if len(names) != 1:
        raise ValuesError("say which GPU", hint="for instance between: GPU5")
    return names[0]


def _count(value: object, name: str) -> int | None:
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= 100_000:
        return value
    raise ValuesError(f"{name} = {str(value)[:40]}: a positive whole number is needed")
