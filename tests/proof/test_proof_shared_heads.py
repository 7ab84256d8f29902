"""A key and value head that all query heads share, under sequence parallelism: Megatron's calls."""

from __future__ import annotations

from collections import Counter

from api import parse_strategy, plan, training

import symcomm as sc

ROWS = r"""Computation	Input	Output
Q = x W^Q	x [B,L,D], W^Q [D,D]	Q [B,L,D]
K = x W^K	W^K [D,H]	K [B,L,H]
V = x W^V	W^V [D,H]	V [B,L,H]
[Q_1, \dots, Q_{n}] = Partition(Q)	-	Q_i [B,L,H], i = 1, \dots, n
S_i = softmax(Q_i K^T)	-	S_i [B,L,L]
Z_i = S_i V	-	Z_i [B,L,H]
Z = Merge([Z_1, \dots, Z_n])	-	Z [B,L,D]
y = Z W^O + x	W^O [D,D]	y [B,L,D]
"""


def test_a_shared_head_is_computed_from_the_gathered_input() -> None:
    """x and dy are gathered, y and dx scattered; the shared weights' gradients are summed. K and V are never moved."""
    made = plan(training(sc.load(ROWS).graph), parse_strategy("tensor(4) + sequence"))
    calls = Counter((c.kind, c.phase, str(c.elements)) for c in made.collectives)
    assert calls == {
        ("all-gather", "forward", "B*D*L"): 1,
        ("reduce-scatter", "forward", "B*D*L"): 1,
        ("all-gather", "backward", "B*D*L"): 2,
        ("reduce-scatter", "backward", "B*D*L"): 1,
        ("all-reduce", "backward", "D*H"): 2,
    }
