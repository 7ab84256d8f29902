"""Rewrites that a test registers: one function each, and every quantity answers for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import symcomm as sc
from symcomm.core.program.autograd import saved
from symcomm.core.program.instructions import HOST, Program, Rewrite, Send, Turn
from symcomm.core.program.program import _program
from symcomm.core.program.rewrites import rewrites
from symcomm.searching.run import search

T, D, N = 4096, 16, 6
ROWS = """Computation\tInput\tOutput
a = x W\tx [T, D], W [D, F]\ta [T, F]
u = relu(a)\ta [T, F]\tu [T, F]
y = u U\tU [F, D]\ty [T, D]
"""
LAYER = 4 * T * (D + 4 * D)  # bytes of x and u; the gradient of relu reads u


def activations_on_host(program: Program) -> Program:
    """Each layer sends what it keeps to the host behind its forward pass, and has it back before its backward pass."""
    turns: list[Turn] = []
    back: dict[str, list[Turn]] = {}
    for n, turn in enumerate(program.turns):
        if turn.phase == "backward":
            turns += back.pop(turn.region.name, [])
        turns.append(turn)
        behind = [t.phase for t in program.turns[n + 1 :] if t.region == turn.region]
        if turn.phase == "forward" and behind[0] != "forward":
            for item in saved(program, turn.region.name):
                out, home = (Send(item.tensor, item.elements, phase, "it rests on the host", "copy", HOST)
                             for phase in ("forward", "backward"))  # fmt: skip
                turns.append(Turn(out, turn.region, "forward"))
                back.setdefault(turn.region.name, []).append(Turn(home, turn.region, "backward"))
    return Program(**{**program.__dict__, "turns": tuple(turns)})


@pytest.fixture
def on_host(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    known = rewrites()
    added = Rewrite("activations on the host", 8, activations_on_host)
    monkeypatch.setattr("symcomm.core.program.program.rewrites", lambda: (*known, added))
    _program.cache_clear()
    yield
    _program.cache_clear()


def layers() -> sc.Model:
    return sc.load(ROWS, repeat="N", dtype="fp32", values={"T": T, "D": D, "F": 4 * D, "N": N})


RATES = {"peak": "1 PFLOP/s", "network": "1 TB/s", "memory": "1 PB/s", "latency": "0 s", "links": {"host": "1 GB/s"}}


def answers() -> dict[str, int | float]:
    model = layers()
    found = search(model, devices=2, strategies="data", capacity="1 MB", capacity_is="usable", recipe="fp32_sgd",
                   recomputation="none", microbatches="1", jobs=1, **RATES)  # fmt: skip
    return {
        "sent between ranks": int(model.communication("data(2)").at().value),
        "saved": int(model.activation_memory().at().value),
        "peak": int(model.peak_memory(recipe="fp32_sgd").at().value),
        "time": float(model.step_time("data(2)", **RATES).at().value),
        "fits in 1 MB": len(found.top),
    }


def test_saved_activations_on_the_host_are_one_function(on_host: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is saved between the passes; while a layer runs, its own are there. Each goes out and comes back once.

    The peak is in the first layer then, when the gradients of all others are there: two matrices of 4 D^2 each.
    """
    moved = answers()
    monkeypatch.undo()
    _program.cache_clear()
    stays = answers()
    assert moved["sent between ranks"] == stays["sent between ranks"]
    assert (stays["saved"], moved["saved"]) == (N * LAYER, 0)
    assert stays["peak"] - moved["peak"] == (N - 1) * (LAYER - 4 * 2 * 4 * D**2)
    sums = N * 4 * 2 * 4 * D**2 / 1e12  # of the gradients, between two ranks
    assert moved["time"] == pytest.approx(2 * N * LAYER / 2 / 1e9 + sums)
    assert (stays["fits in 1 MB"], moved["fits in 1 MB"]) == (0, 1)
