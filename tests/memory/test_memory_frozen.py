"""Weights that are not trained: fewer operations, no gradients to send, and the time that follows from both."""

from __future__ import annotations

from fractions import Fraction

import memory_tables as tables
import pytest
from api import ValuesError

import symcomm as sc

# A layer with an adapter of low rank (LoRA, arXiv 2106.09685) beside its frozen weight, and what follows it.
LORA = tables.table(
    "h = x W + x A C ; x [B,D], W [D,F], A [D,R], C [R,F] ; h [B,F]",
    "y = relu(h) U ; U [F,D] ; y [B,D]",
)
SIZES = {"B": 12, "D": 8, "F": 16, "R": 2}
B, D, F, R = SIZES.values()
FORWARD = 2 * B * (D * F + D * R + R * F + F * D)
# Of every product the gradients of both operands; not those of W and U.
BACKWARD = 2 * FORWARD - 2 * B * D * F - 2 * B * F * D


def lora() -> sc.Model:
    return tables.load(LORA, values=SIZES, dtype="fp32")


def test_frozen_weights_have_no_gradient_to_compute() -> None:
    assert lora().flops("training").at().value == 3 * FORWARD
    assert lora().flops("training", frozen="W, U").at().value == FORWARD + BACKWARD
    assert lora().flops("backward", frozen=["W", "U"]).at().value == BACKWARD
    assert lora().flops("forward", frozen="W, U").at().value == FORWARD


def test_frozen_weights_leave_the_second_forward_pass_as_it_is() -> None:
    assert lora().recomputation(frozen="W, U").at().value == FORWARD
    assert lora().recomputation(count="hardware_flops", frozen="W, U").at().value == 2 * FORWARD + BACKWARD


@pytest.mark.parametrize(("strategy", "sent"), [
    ("data(4)", 4 * (D * R + R * F)),
    # Sharded weights are gathered for the products of both passes, but only A and C have a gradient to scatter.
    ("fsdp(4)", 2 * 4 * (D * F + D * R + R * F + F * D) + 4 * (D * R + R * F)),
])  # fmt: skip
def test_frozen_weights_have_no_gradient_to_send(strategy: str, sent: int) -> None:
    assert lora().communication(strategy, frozen="W, U").at().value == sent


def test_the_time_of_a_step_is_that_of_what_is_computed_and_sent() -> None:
    rates = {"peak": "1 TFLOP/s", "memory": "100000 TB/s", "network": "1 MB/s"}
    computing = lora().time("data(4)", frozen="W, U", term="compute", **rates).at().value
    assert computing == Fraction(FORWARD + BACKWARD, 4 * 10**12)
    said = {"time": "serial", "communication": "payload", "message_cost": "bandwidth_only"}
    every, trained = (
        lora().step_time("data(4)", accounting=said, of="network", frozen=f, **rates).at().value for f in (None, "W, U")
    )
    assert trained / every == Fraction(D * R + R * F, D * F + D * R + R * F + F * D)


def test_a_solution_says_which_weights_are_not_trained() -> None:
    noted = lora().flops("training", frozen="W, U").notes
    assert noted == ("Not trained, so without gradient and update: `W`, `U`.",)
    assert lora().flops("training").notes == ()


def test_all_weights_frozen_and_an_unknown_one_are_refused_for_every_quantity() -> None:
    with pytest.raises(ValuesError, match="all weights are frozen: there is nothing to train"):
        lora().communication("data(2)", frozen="W, A, C, U")
    with pytest.raises(ValuesError, match="no weight is called 'V'"):
        lora().flops("training", frozen="V")


def test_a_tied_frozen_weight_of_a_pipeline_is_not_reduced_between_the_ends() -> None:
    config = {"model_type": "gpt2", "n_embd": 16, "n_layer": 4, "n_head": 2, "vocab_size": 64, "n_positions": 8}
    model = sc.load(config, values={"B": 8, "L": 8})
    every, frozen = (
        model.communication("data(2) + pipeline(2, microbatches=4)", collective="all-reduce", frozen=f).at().value
        for f in (None, "W^E")
    )
    embedding = 2 * 64 * 16
    assert every - frozen == 3 * embedding  # the data ranks of both ends, and the two ends
