"""Rewrites that a test registers: one function each, and every quantity answers for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from api import HOST, Compute, Instruction, Op, OpStep, Program, Rewrite, Send, _program, in_order, rewrites, saved
from api import run_search as search

import symcomm as sc

T, D, N = 4096, 16, 6
ROWS = """Computation\tInput\tOutput
a = x W\tx [T, D], W [D, F]\ta [T, F]
u = relu(a)\ta [T, F]\tu [T, F]
y = u U\tU [F, D]\ty [T, D]
"""
LAYER = 4 * T * (D + 4 * D)  # bytes of x and u; the gradient of relu reads u


def activations_on_host(program: Program) -> Program:
    """Each layer sends what it keeps to the host behind its forward pass, and has it back before its backward pass."""
    instructions: list[Instruction] = []
    back: dict[str, list[Instruction]] = {}
    for n, instruction in enumerate(program.instructions):
        if instruction.phase == "backward":
            instructions += back.pop(instruction.region.name, [])
        instructions.append(instruction)
        behind = [t.phase for t in program.instructions[n + 1 :] if t.region == instruction.region]
        if instruction.phase == "forward" and behind[0] != "forward":
            for item in saved(program, instruction.region.name):
                out, home = (Send(item.tensor, item.elements, phase, "it rests on the host", "copy", HOST)
                             for phase in ("forward", "backward"))  # fmt: skip
                instructions.append(Instruction(out, instruction.region, "forward"))
                back.setdefault(instruction.region.name, []).append(Instruction(home, instruction.region, "backward"))
    return Program(**{**program.__dict__, "instructions": tuple(instructions)})


def masks_drawn_again(program: Program) -> Program:
    """The random masks of dropout are dropped, and drawn again from their seed before the gradient that reads them."""
    graph, instructions = program.graph, list[Instruction]()
    masks = {name for name, tensor in graph.tensors.items() if tensor.role == "constant" and tensor.dtype == "bool"}
    for instruction in program.instructions:
        work = instruction.work
        for n, name in enumerate(work.reads if instruction.phase == "backward" and isinstance(work, Compute) else ()):
            if name in masks:
                draw = Op("draw", "draw", (), name, (), work.op.indices[n], region=work.op.region)
                made = Compute(OpStep(draw, "whole", (), (), name, work.op.indices[n]), work.cuts, (), (),
                               work.layouts[n])  # fmt: skip
                instructions.append(Instruction(made, instruction.region, "recompute"))
        instructions.append(instruction)
    both = {"dropped": program.dropped | masks, "needed": program.needed | masks, "instructions": tuple(instructions)}
    return Program(**{**program.__dict__, **both})


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Rewrite | None], None]]:
    """Registers a rewrite beside those that there are, or takes it away again."""
    known = rewrites()

    def registered(added: Rewrite | None) -> None:
        every = known if added is None else in_order((*known, added))
        monkeypatch.setattr("symcomm.core.program.program.rewrites", lambda: every)
        _program.cache_clear()

    yield registered
    _program.cache_clear()


def layers(rows: str = ROWS) -> sc.Model:
    return sc.load(rows, repeat="N", dtype="fp32", values={"T": T, "D": D, "F": 4 * D, "N": N})


RATES = {"peak": "1 PFLOP/s", "network": "1 TB/s", "memory": "1 PB/s", "latency": "0 s", "links": {"host": "1 GB/s"}}


def answers(model: sc.Model, capacity: str = "1 MB") -> dict[str, int | float]:
    found = search(model, devices=2, strategies="data", capacity=capacity, capacity_is="usable", recipe="fp32_sgd",
                   recomputation="none", microbatches="1", jobs=1, **RATES)  # fmt: skip
    return {
        "sent between ranks": int(model.communication("data(2)").at().value),
        "saved": int(model.activation_memory().at().value),
        "peak": int(model.peak_memory(recipe="fp32_sgd").at().value),
        "time": float(model.step_time("data(2)", **RATES).at().value),
        "fits": len(found.top),
    }


def test_saved_activations_on_the_host_are_one_function(register: Callable[[Rewrite | None], None]) -> None:
    """Nothing is saved between the passes; while a layer runs, its own are there. Each goes out and comes back once.

    The peak is in the first layer then, when the gradients of all others are there: two matrices of 4 D^2 each.
    """
    register(Rewrite("activations on the host", 80, activations_on_host))
    moved = answers(layers())
    register(None)
    stays = answers(layers())
    assert moved["sent between ranks"] == stays["sent between ranks"]
    assert (stays["saved"], moved["saved"]) == (N * LAYER, 0)
    assert stays["peak"] - moved["peak"] == (N - 1) * (LAYER - 4 * 2 * 4 * D**2)
    sums = N * 4 * 2 * 4 * D**2 / 1e12  # of the gradients, between two ranks
    assert moved["time"] == pytest.approx(2 * N * LAYER / 2 / 1e9 + sums)
    assert (stays["fits"], moved["fits"]) == (0, 1)


def test_masks_that_are_drawn_again_are_one_function(register: Callable[[Rewrite | None], None]) -> None:
    """Of each layer a mask of T F bytes is kept no more. At the peak the last layer has v and has made its gradient;
    its mask is not drawn yet. To draw it takes no counted operation and no message.
    """
    rows = ROWS.replace("y = u U\tU [F, D]", "v = dropout(u)\tu [T, F]\tv [T, F]\ny = v U\tU [F, D]")
    stays = answers(layers(rows), "7.5 MB")
    register(Rewrite("masks drawn again", 65, masks_drawn_again))
    drawn = answers(layers(rows), "7.5 MB")
    masks = T * 4 * D
    assert stays["saved"] - drawn["saved"] == N * masks
    assert stays["peak"] - drawn["peak"] == N * masks
    assert stays["sent between ranks"] == drawn["sent between ranks"]
    assert stays["time"] == drawn["time"]
    assert (stays["fits"], drawn["fits"]) == (0, 1)


def test_two_rewrites_of_one_rank_are_refused_because_the_order_changes_what_they_make():
    added = Rewrite("masks drawn again", 60, masks_drawn_again)
    with pytest.raises(sc.SymcommError) as error:
        in_order((*rewrites(), added))
    assert error.value.message == "the rewrites masks drawn again and offloading have the rank 60: which runs first?"
    assert [one.name for one in in_order(reversed(rewrites()))] == [one.name for one in rewrites()]
