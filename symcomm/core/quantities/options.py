"""The types of options that several quantities share: what each means, how text is read, what may be chosen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Literal, TypedDict

from symcomm.core.accounting import CONVENTIONS
from symcomm.core.hardware.devices import Device
from symcomm.core.parallel.strategy import Strategy
from symcomm.core.program.schedules import USUAL_SCHEDULE
from symcomm.core.quantities.declared import Meaning, OneOf, Reads
from symcomm.core.quantities.recipes import RECIPES
from symcomm.core.setting import Setting
from symcomm.core.units import Number


def _devices() -> Iterable[str]:
    from symcomm.core.hardware.devices import known_clusters, known_devices

    return [*known_devices(), *known_clusters()]


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
    str, Reads("dtype"), Meaning("the number format, where it is not the model's, or those of tensors: `X=fp8, Y=fp32`")
]
ElementDtype = Annotated[str, Reads("dtype"), Meaning("the number format of an element")]
GradientDtype = Annotated[str, Reads("dtype"), Meaning("the number format in which gradients of weights are reduced")]
OpName = Annotated[str, Meaning("only the row that computes this tensor")]
RecipeName = Annotated[
    str | Mapping[str, object],
    Reads("recipe"),
    OneOf(RECIPES, open=True),
    Meaning(
        "the bytes that are kept for each parameter: a recipe, or one of one's own such as 2+2+12 (weights, gradients, "
        "states) or weights=2, gradients=2, master=4, states=2"
    ),
]
Frozen = Annotated[str | Sequence[str], Meaning("weights that are not trained, with commas between them")]
Recomputation = Annotated[
    str | Sequence[str],
    Meaning(
        "none, selective, full, or the tensors that are computed again; what the convention says where it is left out"
    ),
]
Every = Annotated[Whole, Meaning("the layers of a group that is computed again from its first input")]
ScheduleName = Annotated[
    str,
    Reads("schedule"),
    OneOf(schedule_names, open=True),
    Meaning(f"the schedule of a pipeline, or the file of an order of one's own; {USUAL_SCHEDULE} where none is named"),
]
StageNumber = Annotated[
    int | str, Meaning("the stage of a pipeline, the first one is 0; where none is named, the one that has the most")
]
Chunks = Annotated[Whole, Meaning("the chunks of layers per rank, for a schedule that has several")]
Buckets = Annotated[
    Whole, Meaning("how many buckets of gradients are reduced, each as soon as it is there in the last backward pass")
]
Microbatches = Annotated[Whole, Meaning("how many microbatches a batch is cut into")]
CapacityIs = Annotated[str, OneOf(_capacities), Meaning("what the capacity means; must be said")]
RankShare = Annotated[
    str | Sequence[str],
    Meaning(
        "tensors that the program still refers to, with commas between them; of one outside the model its shape, such "
        "as labels [B, L] int64"
    ),
]

Phase = Annotated[Literal["forward", "backward", "microbatch", "end_of_batch"], Meaning("what is timed")]
MeshPhase = Annotated[Literal["forward", "backward", "training"], Meaning("what is timed")]
Links = Annotated[
    str | Mapping[str, object],
    Reads("links"),
    Meaning(
        "the links of mesh axes, such as tensor=600 GB/s, data=50 GB/s @ 5 us; tensor=2: so many of the network's; or "
        "node=8, inside=900 GB/s, between=50 GB/s"
    ),
]

DeviceName = Annotated[
    str | Device,
    OneOf(_devices, open=True),
    Meaning("a device whose rates are used, such as H100-SXM; or nodes of them, such as DGX-H100"),
]
Peak = Annotated[Number | None, Meaning("the peak rate, such as 312 TFLOP/s; or the name of a symbol")]
Memory = Annotated[Number | None, Meaning("the bandwidth of the memory, such as 2039 GB/s")]
Network = Annotated[Number | None, Meaning("the bandwidth of the network, such as 300 GB/s")]
Latency = Annotated[
    Number | None, Meaning("the latency of one message, such as 0.00001 s; left out where it is not named")
]
CallOverhead = Annotated[
    Number | None, Meaning("what a bucket's call costs beside its transfer, such as 20 us; or the name of a symbol")
]
Utilisation = Annotated[
    Number | None, Meaning("the part of the peak rate and the memory bandwidth that is sustained, such as 4/5")
]


class PeakRates(TypedDict, total=False):
    """What says the peak rate of one device."""

    device: DeviceName
    peak: Peak


class Roofs(PeakRates, total=False):
    """The rates of one device."""

    memory: Memory


class Rates(Roofs, total=False):
    """The rates of a machine."""

    network: Network
    latency: Latency
    utilisation: Utilisation


class LinkedRates(Rates, total=False):
    """The same, and the links of mesh axes."""

    links: Links


class NetworkRates(TypedDict, total=False):
    """The same without the memory."""

    device: DeviceName
    peak: Peak
    network: Network
    latency: Latency
    utilisation: Utilisation


class DeviceCount(TypedDict, total=False):
    """How many devices there are."""

    devices_used: Annotated[Whole | None, Meaning("how many devices, where no strategy says it")]


Clock = Annotated[Amount, Meaning("the clock rate, such as 1.41 GHz")]
Units = Annotated[Amount, Meaning("the number of multiprocessors")]
Fma = Annotated[Amount, Meaning("multiply-adds per clock and multiprocessor")]

CollectiveName = Annotated[str, OneOf(_collectives), Meaning("the collective")]
AlgorithmName = Annotated[str, OneOf(_algorithms), Meaning("the algorithm; that of the accounting where none is named")]
Directions = Annotated[Whole, Meaning("how many ways a ring runs at once: 1 or 2")]


class Measured(TypedDict, total=False):
    """The size of a call."""

    payload: Annotated[Amount, Meaning("the bytes of the full tensor, such as 64 MiB")]
    ranks: Annotated[Whole, Meaning("the number of ranks, or its symbol")]
    bandwidth: Annotated[Amount, Meaning("the bandwidth of a link in one direction, such as 100 GB/s")]


class CallNumbers(Measured, total=False):
    """The numbers of a call, and of the links it uses."""

    latency: Annotated[Amount, Meaning("the latency of a message, such as 20 us")]
    reduction: Annotated[Amount, Meaning("the bytes a rank adds per second, where additions are counted")]
    chunks: Annotated[Whole, Meaning("the chunks of a pipelined algorithm")]
    group: Annotated[Whole, Meaning("the ranks of a node, for the hierarchical algorithm")]
    latency_between: Annotated[Amount, Meaning("the latency of a message between nodes")]
    bandwidth_between: Annotated[Amount, Meaning("the bandwidth between nodes, of one rank in one direction")]
    x_ranks: Annotated[Whole, Meaning("the ranks along the first axis of a torus")]
    y_ranks: Annotated[Whole, Meaning("the ranks along the second axis of a torus")]


class ScheduleTimes(TypedDict, total=False):
    """What takes time under a schedule."""

    chunks: Chunks
    stage: Annotated[int | str, Meaning("the stage whose microbatches in flight count; else the most on any")]
    forward: Annotated[
        str,
        Meaning(
            "the time of a forward of a chunk of layers: 6 ms, a list for uneven stages, or a symbol; t_F unless said; "
            "in a pass that of a stage, as 'per' says, and t unless said"
        ),
    ]
    backward: Annotated[
        str, Meaning("the time of both gradients, in the same way: half each, or what the one that is said leaves")
    ]
    input_gradient: Annotated[str, Meaning("the time of a gradient of the input, in the same way; t_B unless said")]
    weight_gradient: Annotated[str, Meaning("the time of a gradient of the weights, in the same way; t_W unless said")]
    pair: Annotated[str, Meaning("the time of an overlapped forward and backward; the sum of both unless said")]
    hop: Annotated[str, Meaning("the latency between two ranks, or its symbol; none unless said")]
    overhead: Annotated[
        str, Meaning("a time that is added to each piece of work, or its symbol; none unless said, o in a pass")
    ]
