"""The rewrites of a program, one file each: a file of this folder with a record called ``REWRITE`` is one."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from symcomm.core.program.instructions import Rewrite


@cache
def rewrites() -> tuple[Rewrite, ...]:
    """All rewrites, in the order in which they run.

    >>> [rewrite.name for rewrite in rewrites()]
    ['fusion', 'resharding', 'recomputation', 'stages', 'accumulation', 'buckets', 'offloading', 'halves']
    """
    found: list[Rewrite] = [import_module(f"{__name__}.{module.name}").REWRITE for module in iter_modules(__path__)]
    return tuple(sorted(found, key=lambda rewrite: rewrite.rank))
