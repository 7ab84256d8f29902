"""Quantities of machines as the tests ask for them."""

from typing import Any

from api import Derivation, Graph, Model, built_in

import symcomm

PLANS = ("host", "serial", "relay", "pipelined")
STATEMENTS = {dict(q.chosen).get("plan"): q.notes for q in built_in()["broadcast"].read.questions}


def asked(name: str, accounting: Any = None, **options: Any) -> Derivation:
    return Model(Graph("no model", {}, {}, ())).derive(name, accounting=accounting, **options)


def peak_rate(**options: Any) -> Derivation:
    return asked("peak_rate", **options)


def broadcast(plan: str, size=None, bandwidth=None, latency=None, receivers=None, **others: Any) -> Derivation:
    return symcomm.broadcast(plan, size=size, bandwidth=bandwidth, latency=latency, receivers=receivers, **others)


def host_copy(before: Any, receivers: Any = None, **options: Any) -> Derivation:
    return asked("broadcast", about="host_copy", before=before, receivers=receivers, **options)


def gpu_copy(before: Any, after: Any, receivers: Any = None, **options: Any) -> Derivation:
    return asked("broadcast", about="gpu_copy", before=before, after=after, receivers=receivers, **options)


def speedup(before: Any, after: Any) -> Derivation:
    return asked("broadcast", about="speedup", before=before, after=after)
