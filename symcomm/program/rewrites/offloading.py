"""Offloading: what rests on the host instead of the device, as a convention says."""

from __future__ import annotations

from dataclasses import replace

from symcomm.accounting import Accounting
from symcomm.program.instructions import Program, Rewrite


def on_host(accounting: Accounting) -> frozenset[str]:
    """The roles of what rests on the host.

    >>> sorted(on_host(Accounting.of("states_on_host")))
    ['state']
    """
    return frozenset(["state"] if accounting.offloading == "states_on_host" else [])


def _rewritten(program: Program) -> Program:
    """The host updates the weights whose states it has."""
    return replace(program, host=on_host(program.accounting))


REWRITE = Rewrite("offloading", 6, _rewritten)
