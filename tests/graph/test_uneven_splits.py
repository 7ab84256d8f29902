"""A split that does not go up says its numbers, where it stands, and what would."""

from __future__ import annotations

from fractions import Fraction

import pytest
from api import StrategyError, check_divisible, parse_strategy

import symcomm as sc

FFN = (
    "Computation\tInput\tOutput\nu = relu(x W^1)\tx [L, B, D], W^1 [D, F]\tu [L, B, F]\n"
    "y = u W^2\tW^2 [F, D]\ty [L, B, D]\n"
)  # fmt: skip
GPT2 = {"model_type": "gpt2", "n_embd": 60, "n_layer": 2, "n_head": 6, "vocab_size": 101, "n_positions": 32}


def refused(model: sc.Model, strategy: str, **values: int) -> str:
    known = {**model.values, **{n: Fraction(v) for n, v in values.items()}}
    with pytest.raises(StrategyError) as caught:
        check_divisible(model.graph, parse_strategy(strategy), known)
    return str(caught.value)


@pytest.mark.parametrize(
    ("strategy", "text"),
    [
        ("data(8)", "Data cuts B = 12 of x (row 1) into 8 parts, but 12 is not divisible by 8\n"
                    "hint: data may be 6 or 12, the next that divide 12"),
        ("data(64)", "Data cuts B = 12 of x (row 1) into 64 parts, but 12 is not divisible by 64\n"
                     "hint: data may be 12, the next that divides 12"),
        ("data(3) + cut(B, 5, extra)",
         "Data + Cut B cuts B = 12 of x (row 1) into 15 parts, but 12 is not divisible by 15\n"
         "hint: extra × data may be 12, the next that divides 12"),
        ("tensor(7)", "Tensor cuts F = 16 of W^1 (row 1) into 7 parts, but 16 is not divisible by 7\n"
                      "hint: tensor may be 4 or 8, the next that divide 16"),
    ],
)  # fmt: skip
def test_the_numbers_the_row_and_the_next_degrees_are_said(strategy: str, text: str) -> None:
    assert refused(sc.load(FFN), strategy, B=12, L=10, D=8, F=16) == text


def test_the_region_of_a_whole_model_is_said() -> None:
    text = refused(sc.load(GPT2), "tensor(4)", B=2, L=32)
    assert "cuts n_H = 6 of" in text
    assert "of layer) into 4 parts, but 6 is not divisible by 4" in text
    assert text.endswith("hint: tensor may be 3 or 6, the next that divide 6")


def test_a_vocabulary_that_does_not_divide_is_refused() -> None:
    assert "V = 101" in refused(sc.load(GPT2, loss=True), "tensor(2)", B=2, L=32)


def test_a_size_that_is_only_known_to_be_one_says_how_to_write_it() -> None:
    text = refused(sc.load(FFN), "tensor(2)", B=12, L=10, D=8, F=1)
    assert text.endswith("hint: an axis that is always 1 is written as 1 in the table, not as F: it is not cut then")


def test_a_batch_that_microbatches_and_ranks_do_not_divide_is_refused_by_what_is_sent() -> None:
    gpt2 = {"model_type": "gpt2", "n_embd": 16, "n_layer": 4, "n_head": 2, "n_positions": 16, "vocab_size": 32}
    sent = sc.load(gpt2, values={"L": 8}).communication("data(2) + pipeline(4, microbatches=8)")
    assert sent.at(B=16).value > 0
    with pytest.raises(sc.SymcommError, match="cut the batch into 16 parts, but B = 8 is not divisible by 16"):
        sent.at(B=8)
