"""The rewrites of a program, one file each: a file of this folder with a record called ``REWRITE`` is one."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib import import_module
from itertools import pairwise
from pkgutil import iter_modules

from symcomm.core.errors import ValuesError
from symcomm.core.program.instructions import Rewrite


@cache
def rewrites() -> tuple[Rewrite, ...]:
    """All rewrites, in the order in which they run.

    >>> [rewrite.name for rewrite in rewrites()][-8:]
    ['recomputation', 'stages', 'accumulation', 'buckets', 'offloading', 'halves', 'hosted', 'activations']
    """
    return in_order(import_module(f"{__name__}.{module.name}").REWRITE for module in iter_modules(__path__))


def in_order(found: Iterable[Rewrite]) -> tuple[Rewrite, ...]:
    """Some rewrites by their ranks; raises ``ValuesError`` where two have one rank, for they do not commute."""
    made = sorted(found, key=lambda rewrite: (rewrite.rank, rewrite.name))
    for one, other in pairwise(made):
        if one.rank == other.rank:
            raise ValuesError(f"the rewrites {one.name} and {other.name} have the rank {one.rank}: which runs first?",
                              hint="give one of them a rank between its neighbours'")  # fmt: skip
    return tuple(made)
