"""ZeRO++ from records that there are: formats of gathers and reductions, and weights that each node has a copy of."""

from __future__ import annotations

from fractions import Fraction

import pytest

import symcomm as sc

LAYER = "Computation\tInput\tOutput\na = x W\tx [B, D], W [D, F]\ta [B, F]\ny = a V\ta [B, F], V [F, D]\ty [B, D]\n"
D, F = 64, 128
NUMBERS = 2 * D * F
FORMATS = {"dtype": "weights=int8(64 fp16)", "gradient_dtype": "int4(64 fp16)"}
BYTES = {"gather": 1 + Fraction(2, 64), "reduce": Fraction(1, 2) + Fraction(2, 64), "bf16": Fraction(2)}
NODES, GPUS = 8, 8
EVERYWHERE = f"fully-sharded({NODES * GPUS})"
COPY_IN_NODE = f"fully-sharded({GPUS}, mesh=gpu) + zero-2({NODES}, mesh=node)"


def layer() -> sc.Model:
    return sc.load(LAYER, dtype="bf16").at(B=64 * 64, D=D, F=F)


def sent(strategy: str, level: str | None = None, **how: str) -> Fraction:
    counted = ["sent_per_rank", "hierarchical"] if level else ["sent_per_rank"]
    options = {"level": level, "device": "DGX-H100"} if level else {}
    return Fraction(layer().communication(strategy, accounting=counted, **options, **how).at().value)


def test_gathers_in_int8_and_reductions_in_int4_send_their_bytes() -> None:
    """Weights are gathered forward and backward, where the gradients of both operands read them; gradients go once."""
    part = Fraction(NODES * GPUS - 1, NODES * GPUS) * NUMBERS
    assert sent(EVERYWHERE) == part * 3 * BYTES["bf16"]
    assert sent(EVERYWHERE, **FORMATS) == part * (2 * BYTES["gather"] + BYTES["reduce"])


@pytest.mark.parametrize(("how", "gather", "reduce"), [({}, "bf16", "bf16"), (FORMATS, "gather", "reduce")])
def test_a_copy_in_each_node_gathers_inside_and_crosses_nodes_once_each_way(
    how: dict[str, str], gather: str, reduce: str
) -> None:
    """Between nodes go an eighth of the new weights and of the gradients, to seven of eight nodes."""
    across = Fraction(NODES - 1, NODES) * NUMBERS / GPUS
    assert sent(COPY_IN_NODE, "pod", **how) == across * (BYTES[gather] + BYTES[reduce])
    assert sent(COPY_IN_NODE, "pod", **how) < sent(EVERYWHERE, "pod", **how)
    weights, states = (
        layer().state_memory(COPY_IN_NODE, of=of).at().value / NUMBERS for of in ("weights", "states")
    )
    assert (weights, states) == (Fraction(2, GPUS), Fraction(12, NODES * GPUS))
