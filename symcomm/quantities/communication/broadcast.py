"""Broadcast plans of a machine: their times, and what measured times say about its links."""

from __future__ import annotations

from symcomm.derivation import Derivation
from symcomm.errors import ValuesError, nearest
from symcomm.hardware.broadcast import broadcast, gpu_copy, host_copy, speedup
from symcomm.quantities.setting import Setting

_ABOUT = ("time", "host_copy", "gpu_copy", "speedup")


def derive(
    setting: Setting, about: str = "time", plan: str | None = None, size: object = None, bandwidth: object = None,
    latency: object = None, receivers: object = None, chunks: object = None, hops: object = None,
    host_bandwidth: object = None, host_latency: object = None, before: object = None, after: object = None,
) -> Derivation:  # fmt: skip
    """The ``time`` of a plan, or what is solved for from measured times ``before`` and ``after``.

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
