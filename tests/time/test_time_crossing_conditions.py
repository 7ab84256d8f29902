"""Where two terms of a time meet holds under a condition: beyond it no size makes them equal."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
from api import Condition, Sym, ValuesError

import symcomm as sc

CACHED = r"""| Computation | Input | Output |
|---|---|---|
| $Q = x W^Q$ | $x$ [B, T, D], $W^Q$ [D, D] | $Q$ [B, T, D] |
| $A = Q K^T$ | $K$ [B, S, D] | $A$ [B, T, S] |
| $P = softmax(A)$ | - | $P$ [B, T, S] |
| $Z = P V$ | $V$ [B, S, D] | $Z$ [B, T, D] |
| $y = Z W^O$ | $W^O$ [D, D] | $y$ [B, T, D] |
"""
ASKED = {"over": "B", "phase": "forward", "device": "H100-SXM"}


def gap(batch: Fraction, keys: int, new: int, width: int = 4096) -> Fraction:
    """Computing less memory, in seconds: 2 operations a product, 2 bytes an element, each moved once."""
    flops = 2 * batch * new * width * (2 * width + 2 * keys)
    # x, Q; Q, K, A; P, V, Z; Z, y: and two matrices.
    moved = batch * (2 * new * width + 2 * (new * width + keys * width + new * keys) + 2 * new * width) + 2 * width**2
    return flops / Fraction(989_429_760_000_000) - 2 * moved / Fraction(3_352_000_000_000)


def test_keys_of_64_earlier_positions_never_let_one_new_position_be_compute_bound():
    assert all(gap(Fraction(batch), 64, 1) < 0 for batch in (1, 10**3, 10**9))
    made = sc.load(CACHED, values={"D": 4096}).crossover("compute, memory", **ASKED)
    with pytest.raises(ValuesError) as error:
        made.at(S=64, T=1)
    assert "the closed form holds where D·T·W_mem·(D + S) > R·(D·S + 3·D·T + S·T)" in str(error.value)
    assert any("meet at no B" in note for note in made.notes)


def test_many_new_positions_are_compute_bound_from_the_batch_that_is_solved_for():
    made = sc.load(CACHED, values={"D": 4096}).crossover("compute, memory", **ASKED)
    meets = Fraction(made.at(S=64, T=1024).value)
    assert gap(meets, 64, 1024) == 0
    made.check(deep=True)


def test_where_all_sizes_are_known_the_error_says_which_term_is_always_longer():
    known = sc.load(CACHED, values={"D": 4096, "S": 64, "T": 1})
    with pytest.raises(ValuesError, match="equal for no positive B: the memory term is longer at every one"):
        known.crossover("compute, memory", **ASKED)


def test_a_crossing_that_is_always_positive_has_no_condition():
    made = sc.load(CACHED).crossover("compute, memory", over="W_mem", phase="forward")
    assert made.where == ()


def test_a_strict_condition_does_not_hold_where_both_sides_are_equal():
    more = Condition(Sym("a"), ">", Sym("b"))
    assert not more.holds({"a": Fraction(2), "b": Fraction(2)})
    assert more.holds({"a": Fraction(3), "b": Fraction(2)})
    assert str(more) == "a > b"


def test_a_crossing_of_a_whole_model_over_its_context_is_told_or_refused_in_time():
    """With the batch open a parabola of long coefficients is left, whose two roots may both be positive."""
    model = sc.load(Path(__file__).parents[2] / "examples" / "whole-models" / "gpt2.json")
    asked = {"over": "L", "phase": "microbatch", "device": "H100-SXM", "accounting": {"operations": "all_ops"}}
    with pytest.raises(ValuesError) as error:
        model.crossover("compute, memory", **asked)
    assert str(error.value) == ("the two terms are equal at 2 values of L\nhint: numbers may leave one: give B a value")
