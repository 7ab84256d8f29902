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
    """Whether a call that finishes something runs for each microbatch: one that reduces gradients between replicas.

    Stages that share a weight add its gradient once, and weights are updated once.

    >>> repeats("reduced_every_microbatch", "gradient of ", ("data",))
    True
    """
    return ACCUMULATION[name].every_microbatch and what.startswith("gradient") and meshes != ("pipe",)
