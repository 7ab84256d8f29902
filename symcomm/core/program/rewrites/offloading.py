"""Offloading: what rests on the host instead of the device, as a convention says, and what goes there and back."""

from __future__ import annotations

from collections.abc import Iterator

from symcomm.core.accounting import Accounting
from symcomm.core.parallel.placement import Collective, Compute
from symcomm.core.program.instructions import HOST, Instruction, Program, Rewrite, Send
from symcomm.core.records import replace


def on_host(accounting: Accounting) -> frozenset[str]:
    """The roles of the tensors that rest on the host, as the convention's row says.

    >>> sorted(on_host(Accounting.of("states_and_activations_on_host")))
    ['activation', 'state']
    """
    return accounting.row("offloading").roles


def _rewritten(program: Program) -> Program:
    """The host updates the weights whose states it has: what that reads goes there, and what it makes comes back."""
    host = on_host(program.accounting)
    if "state" not in host:
        return program
    turns: list[Instruction] = []
    for turn in program.turns:
        if isinstance(turn.work, Compute) and turn.work.op.kind == "update":
            turns += _copies(program, turn, turn.work)
        turns.append(turn)
    return replace(program, turns=tuple(turns), host=host & {"state"})


def _copies(program: Program, turn: Instruction, update: Compute) -> Iterator[Instruction]:
    """The copies of one weight: its gradient, as the update reads it, and the new weight, as that makes it.

    A weight that the first and the last stage of a pipeline share is updated on both.
    """
    gradient, weight = program.graph.tensors[update.op.inputs[1]], update.op.inputs[0]
    shared = [t.region for t in program.turns if t.between_stages and isinstance(t.work, Collective)
              and program.tensor(t.work).of == weight]  # fmt: skip
    for region in (turn.region, *shared):
        for name, layout, why in (
            (gradient.name, update.layouts[1], "the host, which has the states, reads the gradient"),
            (update.op.output, update.output, "the host updates the weight"),
        ):
            copy = Send(name, program.part(name, layout), "update", why, "copy", HOST)
            yield replace(turn, work=copy, region=region, phase="update", finishes=True, once=True)


REWRITE = Rewrite("offloading", 60, _rewritten, "offloading")
