"""Broadcast plans of a machine: their times, and what measured times say about its links."""

from __future__ import annotations

from typing import Annotated, Literal

from symcomm.derivation import Derivation
from symcomm.errors import ValuesError, nearest
from symcomm.hardware.broadcast import broadcast, gpu_copy, host_copy, speedup
from symcomm.quantities.declared import Meaning
from symcomm.quantities.options import Amount, NoModel, Whole

_ABOUT = ("time", "host_copy", "gpu_copy", "speedup")


def derive(
    setting: NoModel,
    about: Annotated[Literal["time", "host_copy", "gpu_copy", "speedup"], Meaning("what is asked for")] = "time",
    plan: Annotated[
        Literal["host", "serial", "relay", "pipelined"] | None, Meaning("how the tensor is passed on")
    ] = None,
    size: Annotated[Amount, Meaning("the bytes of the tensor")] = None,
    bandwidth: Annotated[Amount, Meaning("the bandwidth of a link between GPUs, one direction")] = None,
    latency: Annotated[Amount, Meaning("the latency of a message; 0 leaves it out")] = None,
    receivers: Annotated[Whole | None, Meaning("the GPUs that receive the tensor besides the first")] = None,
    chunks: Annotated[Whole | None, Meaning("the number of chunks of the pipelined plan")] = None,
    hops: Annotated[Whole | None, Meaning("the links from the host to the last GPU")] = None,
    host_bandwidth: Annotated[Amount, Meaning("the bandwidth from the host")] = None,
    host_latency: Annotated[Amount, Meaning("the latency of a message from the host")] = None,
    before: Annotated[Amount, Meaning("a measured time: of the host plan, or the slower of two")] = None,
    after: Annotated[Amount, Meaning("a measured time: of the relay, or the faster of two")] = None,
) -> Derivation:
    """The time of a broadcast from the host to all GPUs, and what measured times say about its links.

    The ``time`` of a plan, or what is solved for from measured times ``before`` and ``after``.

    ``host_copy`` takes the time ``before`` of the host plan; ``gpu_copy`` also the time ``after`` of the relay.
    """
    names = {"accounting": setting.accounting, "notation": setting.notation, "relations": setting.graph.relations}
    if about == "time":
        if plan is None:
            raise ValuesError("say which plan", hint="plan: host, serial, relay or pipelined")
        return broadcast(plan, size, bandwidth, latency, receivers, chunks, hops, host_bandwidth, host_latency, **names)  # type: ignore[arg-type]
    if about == "host_copy":
        return host_copy(before, receivers, size, **names)  # type: ignore[arg-type]
    if about == "gpu_copy":
        return gpu_copy(before, after, receivers, size, **names)  # type: ignore[arg-type]
    if about == "speedup":
        return speedup(before, after, **names)  # type: ignore[arg-type]
    raise ValuesError(f"'{about[:40]}' is nothing a broadcast tells", hint=nearest(about, [*_ABOUT]))
