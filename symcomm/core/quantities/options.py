"""The types of options that several quantities share: what each means, how text is read, what may be chosen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Literal, TypedDict

from symcomm.core.accounting import CONVENTIONS
from symcomm.core.hardware.devices import Device
from symcomm.core.hardware.devices import Network as DeviceNetwork
from symcomm.core.parallel.strategy import Strategy
from symcomm.core.program.schedules import USUAL_SCHEDULE
from symcomm.core.quantities.declared import Meaning, OneOf, Reads
from symcomm.core.quantities.recipes import RECIPES
from symcomm.core.setting import Setting
from symcomm.core.units import Number


def _devices() -> Iterable[str]:
    from symcomm.core.hardware.devices import known_devices, known_networks

    return [*known_devices(), *known_networks()]


def schedule_names() -> Iterable[str]:
    """The names of the pipeline schedules, those that are registered at run time, too."""
    from symcomm.core.program.schedules import schedules

    return [schedule.name for schedule in schedules()]


def _algorithms() -> Iterable[str]:
    from symcomm.core.collectives.algorithms import ALGORITHMS

    return ALGORITHMS


def _collectives() -> Iterable[str]:
    from symcomm.core.collectives.bounds import BOUNDS

    return BOUNDS


def _capacities() -> Iterable[str]:
    return (row.name for row in CONVENTIONS if row.field == "capacity" and row.name != "unnamed")


NoModel = Annotated[Setting, "no model is needed"]  # of a quantity that follows from its options alone

Whole = Annotated[int | str, Reads("size")]
Amount = Annotated[Number | None, Reads("quantity")]

StrategyOption = Annotated[
    Strategy | str, Reads("strategy"), Meaning("how the model is parallelised, such as data(k) or tensor(8) + sequence")
]
Dtype = Annotated[
    str, Reads("dtype"), Meaning("the number format, or formats of tensors: `X=fp8, Y=fp32`; default: the model's")
]
ElementDtype = Annotated[str, Reads("dtype"), Meaning("the number format of an element")]
GradientDtype = Annotated[str, Reads("dtype"), Meaning("the number format in which gradients of weights are reduced")]
OpName = Annotated[str, Meaning("only the row that computes this tensor")]
RecipeName = Annotated[
    str | Mapping[str, object],
    Reads("recipe"),
    OneOf(tuple(RECIPES), open=True),
    Meaning(
        "the bytes per parameter: a recipe, or your own as 2+2+12 (weights, gradients, states) or weights=2, "
        "gradients=2, master=4, states=2; or several: fp32_muon for hidden, fp32_adam"
    ),
]
Documents = Annotated[str, Meaning("tokens of each document of a row, which a mask keeps apart")]
Frozen = Annotated[str | Sequence[str], Meaning("frozen weights, separated by commas")]
Recomputation = Annotated[
    str | Sequence[str],
    Meaning("none, selective, full, or the tensors to compute again; default: the convention"),
]
Every = Annotated[Whole, Meaning("the layers of a group that the backward pass computes again from one input")]
ScheduleName = Annotated[
    str,
    Reads("schedule"),
    OneOf(schedule_names, open=True),
    Meaning(f"the schedule of a pipeline, or a file with your own order; default: {USUAL_SCHEDULE}"),
]
StageNumber = Annotated[int | str, Meaning("the stage of a pipeline, counted from 0; default: the stage with the most")]
Chunks = Annotated[Whole, Meaning("the chunks of layers per rank, for a schedule with several")]
Buckets = Annotated[
    Whole, Meaning("the number of gradient buckets; each is reduced as soon as the last backward pass has filled it")
]
Microbatches = Annotated[Whole, Meaning("the number of microbatches of a batch")]
CapacityIs = Annotated[str, OneOf(_capacities), Meaning("the meaning of the capacity; required")]
RankShare = Annotated[
    str | Sequence[str],
    Meaning(
        "tensors that the program still holds, separated by commas; outside the model with a shape, such as labels "
        "[B, L] int64"
    ),
]

Phase = Annotated[Literal["forward", "backward", "microbatch", "end_of_batch"], Meaning("the time to derive")]
MeshPhase = Annotated[Literal["forward", "backward", "training"], Meaning("the time to derive")]
Links = Annotated[
    str | Mapping[str, object],
    Reads("links"),
    Meaning(
        "the links of mesh axes: tensor=600 GB/s, data=50 GB/s @ 5 us; tensor=2 takes two links of the network; or "
        "node=8, inside=900 GB/s, between=50 GB/s"
    ),
]

DeviceName = Annotated[
    str | Device | DeviceNetwork,
    OneOf(_devices, open=True),
    Meaning("a device that brings its rates, such as H100-SXM; or a network of devices, such as DGX-H100"),
]
Peak = Annotated[Number | None, Meaning("the peak rate, such as 312 TFLOP/s; or the name of a symbol")]
Memory = Annotated[Number | None, Meaning("the bandwidth of the memory, such as 2039 GB/s")]
Network = Annotated[Number | None, Meaning("the bandwidth of the network, such as 300 GB/s")]
Latency = Annotated[Number | None, Meaning("the latency of one message, such as 0.00001 s; default: none")]
CallOverhead = Annotated[
    Number | None, Meaning("the overhead of a bucket's call, such as 20 us; or the name of a symbol")
]
Utilisation = Annotated[
    Number | None,
    Meaning(
        "the sustained part of the peak rate and the memory bandwidth, such as 4/5; a table for each size, such as "
        "products: 0 FLOP 1/10, 1 GFLOP 4/5; or measured, the table of the device"
    ),
]


class PeakRates(TypedDict, total=False):
    """The options for the peak rate of one device."""

    device: DeviceName
    peak: Peak


class Roofs(PeakRates, total=False):
    """The rates of one device."""

    memory: Memory


class NetworkRates(PeakRates, total=False):
    """The rates of one device and of the network that joins it to others, without the memory."""

    network: Network
    latency: Latency
    utilisation: Utilisation


class Rates(Roofs, NetworkRates, total=False):
    """The rates of a machine."""


class LinkedRates(Rates, total=False):
    """The same, and the links of mesh axes."""

    links: Links


class DeviceCount(TypedDict, total=False):
    """How many devices there are."""

    devices_used: Annotated[Whole | None, Meaning("how many devices, where no strategy says it")]


Clock = Annotated[Amount, Meaning("the clock rate, such as 1.41 GHz")]
Units = Annotated[Amount, Meaning("the number of multiprocessors")]
Fma = Annotated[Amount, Meaning("multiply-adds per clock and multiprocessor")]

CollectiveName = Annotated[str, OneOf(_collectives), Meaning("the collective")]
AlgorithmName = Annotated[str, OneOf(_algorithms), Meaning("the algorithm; default: the convention")]
Directions = Annotated[Whole, Meaning("how many ways a ring runs at once: 1 or 2")]


class Measured(TypedDict, total=False):
    """The size of a call."""

    payload: Annotated[Amount, Meaning("the bytes of the full tensor, such as 64 MiB")]
    ranks: Annotated[Whole, Meaning("the number of ranks, or its symbol")]
    bandwidth: Annotated[Amount, Meaning("the bandwidth of a link in one direction, such as 100 GB/s")]


class CallNumbers(Measured, total=False):
    """The numbers of a call, and of the links it uses."""

    latency: Annotated[Amount, Meaning("the latency of a message, such as 20 us")]
    reduction: Annotated[Amount, Meaning("the bytes that a rank adds per second, if additions count")]
    chunks: Annotated[Whole, Meaning("the chunks of a pipelined algorithm")]
    group: Annotated[Whole, Meaning("the ranks of a node, for the hierarchical algorithm")]
    latency_between: Annotated[Amount, Meaning("the latency of a message between nodes")]
    bandwidth_between: Annotated[Amount, Meaning("the bandwidth between nodes, of one rank in one direction")]
    x_ranks: Annotated[Whole, Meaning("the ranks along the first axis of a torus")]
    y_ranks: Annotated[Whole, Meaning("the ranks along the second axis of a torus")]


class ScheduleTimes(TypedDict, total=False):
    """The options for the times of a schedule."""

    chunks: Chunks
    stage: Annotated[
        int | str, Meaning("the stage whose microbatches in flight count; default: the stage with the most")
    ]
    forward: Annotated[
        str,
        Meaning(
            "the forward time of a chunk of layers: 6 ms, a list for uneven stages, or a symbol; default: t_F; in a "
            "pass the time of a stage (see 'per'), default: t"
        ),
    ]
    backward: Annotated[
        str, Meaning("the time of both gradients, in the same way: half each, or the rest if one of them is given")
    ]
    input_gradient: Annotated[str, Meaning("the time of a gradient of the input, in the same way; default: t_B")]
    weight_gradient: Annotated[str, Meaning("the time of a gradient of the weights, in the same way; default: t_W")]
    pair: Annotated[str, Meaning("the time of an overlapped forward and backward; default: the sum of both")]
    hop: Annotated[str, Meaning("the latency between two ranks, or its symbol; default: none")]
    overhead: Annotated[str, Meaning("a time added to each piece of work, or its symbol; default: none, in a pass o")]
