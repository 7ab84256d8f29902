"""Gradient accumulation: whether gradients are reduced for each microbatch, or once when all are added."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Accumulation:
    """A way to accumulate the gradients of microbatches, by the name of its convention."""

    name: str
    every_microbatch: bool


ACCUMULATION = {
    one.name: one
    for one in (Accumulation("reduced_once", False), Accumulation("reduced_every_microbatch", True))
}  # fmt: skip


def repeats(name: str, what: str, meshes: tuple[str, ...]) -> bool:
    """Whether a call whose size is not that of the batch runs for each microbatch: one that gathers a sharded weight
    to compute with, or reduces gradients between replicas.

    Stages that share a weight add its gradient once, and weights are updated once.

    >>> repeats("reduced_every_microbatch", "gradient of ", ("data",)), repeats("reduced_once", "weight ", ("data",))
    (True, True)
    """
    if what == "weight ":
        return True
    return ACCUMULATION[name].every_microbatch and what.startswith("gradient") and meshes != ("pipe",)
