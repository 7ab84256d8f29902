"""Each algorithm's bytes, against a step-by-step exchange of real data between simulated ranks."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from symcomm.collectives.algorithms import ALGORITHMS, share
from symcomm.errors import SymcommError
from symcomm.form import Sym, evaluate, num


class Wires:
    """Ranks that hold arrays and count what each sends."""

    def __init__(self, k: int) -> None:
        self.sent = [0] * k

    def send(self, source: int, data: np.ndarray) -> np.ndarray:
        self.sent[source] += data.size
        return data.copy()


def ring_reduce_scatter(wires: Wires, held: list[np.ndarray]) -> list[np.ndarray]:
    """k - 1 rounds in which every rank passes one chunk on; rank r ends with chunk r + 1 summed."""
    k = len(held)
    chunks = [np.array_split(h.copy(), k) for h in held]
    for step in range(k - 1):
        moving = [wires.send(r, chunks[r][(r - step) % k]) for r in range(k)]
        for r in range(k):
            chunks[(r + 1) % k][(r - step) % k] += moving[r]
    return [chunks[r][(r + 1) % k] for r in range(k)]


def ring_all_gather(wires: Wires, parts: list[np.ndarray]) -> list[np.ndarray]:
    """k - 1 rounds in which every rank passes on what it got last."""
    k = len(parts)
    known: list[dict[int, np.ndarray]] = [{r: parts[r]} for r in range(k)]
    for step in range(k - 1):
        moving = [wires.send(r, known[r][(r - step) % k]) for r in range(k)]
        for r in range(k):
            known[(r + 1) % k][(r - step) % k] = moving[r]
    return [np.concatenate([known[r][i] for i in range(k)]) for r in range(k)]


def exchange(kind: str, k: int, n: int) -> Wires:
    wires, rng = Wires(k), np.random.default_rng(7)
    held = [rng.integers(0, 100, n) for _ in range(k)]
    if kind in ("all-reduce", "reduce-scatter"):
        parts = ring_reduce_scatter(wires, held)
        expected = np.array_split(sum(held), k)
        for r in range(k):
            assert np.array_equal(parts[r], expected[(r + 1) % k])
        if kind == "all-reduce":
            for got in ring_all_gather(wires, parts):
                assert np.array_equal(np.sort(got), np.sort(sum(held)))
    elif kind == "all-gather":
        parts = np.array_split(held[0], k)
        for got in ring_all_gather(wires, parts):
            assert np.array_equal(got, held[0])
    elif kind == "all-to-all":
        mine = np.array_split(held[0], k)
        for r in range(k):
            for other in range(k):
                if other != r:
                    wires.send(r, np.array_split(mine[r], k)[other])
    else:
        wires.send(0, held[0])
    return wires


@pytest.mark.parametrize("k", range(2, 10))
@pytest.mark.parametrize("kind", [*ALGORITHMS["ring"].sent])
def test_every_rank_sends_what_the_record_says(kind: str, k: int) -> None:
    n = k * k * 6
    wires = exchange(kind, k, n)
    expected = evaluate(share(kind, "sent_per_rank", "ring", Sym("k"), num(1)), {"k": Fraction(k)}) * n
    senders = wires.sent if kind != "send" else wires.sent[:1]
    assert {Fraction(s) for s in senders} == {expected}
    everything = evaluate(share(kind, "all_links", "ring", Sym("k"), num(1)), {"k": Fraction(k)}) * n
    assert sum(wires.sent) == everything


def test_contributed_bytes_are_the_inputs_of_all_ranks() -> None:
    eight = {"k": Fraction(8)}
    assert evaluate(share("all-reduce", "contributed", "ring", Sym("k"), num(1)), eight) == 8
    assert evaluate(share("all-gather", "contributed", "ring", Sym("k"), num(1)), eight) == 1


def test_an_unknown_number_format_is_refused_with_a_near_one() -> None:
    from symcomm.dtypes import element_bytes

    with pytest.raises(SymcommError) as caught:
        element_bytes("fp15")
    assert "unknown number format 'fp15'" in str(caught.value)
