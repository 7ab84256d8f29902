"""Documents that are packed into one row: the pairs of attention are those of a block-diagonal mask, laid out here."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from api import SymcommError

import symcomm as sc

CONFIG = {
    "model_type": "mistral", "architectures": ["MistralModel"], "num_hidden_layers": 3, "vocab_size": 16,
    "hidden_size": 24, "head_dim": 4, "intermediate_size": 20, "num_attention_heads": 6, "num_key_value_heads": 2,
}  # fmt: skip
COUNTED = {"accounting": "causal_half"}


def row_model(window: int | None = None) -> sc.Model:
    return sc.load({**CONFIG, "sliding_window": window}).at(B=3, L=20)


def masked(documents: list[int], window: int | None) -> int:
    """The ones of a mask of 20 rows and columns: same document, not later, inside the window."""
    owner = np.repeat(np.arange(len(documents)), documents)
    at = np.arange(len(owner))
    seen = (owner[:, None] == owner) & (at[:, None] >= at)
    return int((seen & (at[:, None] - at < (window or 20))).sum())


@pytest.mark.few(5)
@pytest.mark.parametrize("window", [None, 4])
@pytest.mark.parametrize("documents", [[20], [5, 3, 12], [5, 5, 10], [1] * 20, [7, 6]])
def test_attention_counts_the_ones_of_a_block_diagonal_mask(documents: list[int], window: int | None) -> None:
    model, said = row_model(window), ", ".join(map(str, documents))
    alone, packed = model.flops(**COUNTED).at().value, model.flops(documents=said, **COUNTED).at().value
    pairs = masked([20], window) - masked(documents, window)
    assert alone - packed == 3 * 3 * 4 * 6 * 4 * pairs  # layers, rows, scores and values, heads of 4 numbers
    trained = [model.flops(scope="training", **more, **COUNTED) for more in ({}, {"documents": said})]
    assert trained[0].at().value - trained[1].at().value == 3 * Fraction(alone - packed)
    trained[1].check(deep=True)


RATES = {
    "peak": "1 FLOP/s",
    "memory": "1 GB/s",
    "network": "1 GB/s",
    "accounting": ("causal_half", "serial", "library"),
}


@pytest.mark.parametrize(("strategy", "rows"), [("data(3)", 1), ("ulysses(2)", Fraction(3, 2))])
def test_the_pairs_that_a_mask_leaves_out_take_no_time(strategy: str, rows: Fraction) -> None:
    left_out, said = masked([20], None) - masked([5, 3, 12], None), {"documents": "5, 3, 12"}
    products = 2 + 4  # scores and values, and a gradient of each operand
    asked = ({}, said)
    whole, packed = (row_model().step_time(strategy, **more, **RATES).at().value for more in asked)
    assert whole - packed == 3 * products * 2 * (6 * 4) * rows * left_out  # layers, and heads of 4 numbers
    one = [row_model().time(phase="forward", term="compute", **more, **RATES).at().value for more in asked]
    assert one[0] - one[1] == 3 * 2 * 2 * (6 * 4) * 3 * left_out  # of all layers, as in a model with a head


@pytest.mark.parametrize("strategy", ["context(2)", "ring(2)"])
def test_ranks_that_cut_documents_are_refused(strategy: str) -> None:
    with pytest.raises(SymcommError, match="cuts the positions of several documents: which rank works on the most"):
        row_model().step_time(strategy, documents="5, 3, 12", **RATES)


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"documents": "5, 3"}, "change only a count of unmasked pairs\nhint: attention: causal_half"),
        ({"documents": "9, 12", **COUNTED}, "documents of 21 tokens do not fit into a row of 20\nhint: fewer"),
        ({"documents": "9, x", **COUNTED}, "'x' is no length\nhint: whole numbers with commas"),
    ],
)
def test_documents_that_make_no_sense_are_refused(asked: dict[str, str], says: str) -> None:
    with pytest.raises(SymcommError, match=says):
        row_model().flops(**asked)


def test_a_row_that_is_known_later_is_checked_then() -> None:
    made = sc.load(CONFIG).flops(documents="9, 12", **COUNTED)
    with pytest.raises(SymcommError, match="documents of 21 tokens do not fit into a row of 20"):
        made.at(B=1, L=20)


def test_a_model_that_attends_to_nothing_and_a_step_have_no_documents_to_keep_apart() -> None:
    table = "Computation\tInput\tOutput\ny = x W\tx [B, L, D], W [D, F]\ty [B, L, F]\n"
    with pytest.raises(SymcommError, match="nothing attends, so no mask keeps documents apart"):
        sc.load(table).flops(documents="5, 3", **COUNTED)
    with pytest.raises(SymcommError, match="a step has one document a sequence"):
        row_model().prefill(new=8).flops(documents="5, 3", **COUNTED)
