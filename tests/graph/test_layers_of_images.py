"""Layers of images and tables: depthwise and dilated convolutions, batch norm, pooling, bags, errors squared."""

from __future__ import annotations

import pytest

import symcomm as sc
from symcomm import SymcommError


def model(*rows: str) -> sc.Model:
    return sc.load("Computation\tInput\tOutput\n" + "\n".join(rows) + "\n")


def test_a_depthwise_convolution_has_one_kernel_a_channel() -> None:
    layer = model("y = Conv2d(x, W)\tx [N, C, X, Y], W [C, 1, R, R]\ty [N, C, X, Y]")
    sizes = {"N": 2, "C": 5, "X": 8, "Y": 6, "R": 3}
    assert layer.flops().at(**sizes).value == 2 * (2 * 5 * 8 * 6) * 9
    assert layer.parameters().at(**sizes).value == 5 * 9


def test_taps_that_lie_apart_are_no_more_operations() -> None:
    layer = model("y = Conv1d_2(x, W)\tx [N, C, X], W [O, C, 3]\ty [N, O, X - 4]")
    assert layer.flops().at(N=2, C=3, O=5, X=10).value == 2 * (2 * 5 * 6) * (3 * 3)


def test_statistics_of_a_batch_are_summed_over_the_ranks_that_share_it() -> None:
    layer = model("h = Conv2d(x, W)\tx [N, C, X, Y], W [O, C, 3, 3]\th [N, O, X, Y]",
                  "y = BatchNorm(h, g, b)\tg [O], b [O]\ty [N, O, X, Y]")  # fmt: skip
    sent = layer.communication("data(k)", phase="forward").at(N=8, C=3, O=16, X=4, Y=4, k=2)
    assert sent.value == 2 * 16 * 4  # a mean and a variance a channel, in fp32


def test_a_largest_of_a_window_keeps_its_place() -> None:
    layer = model("y = Conv1d(x, W)\tx [N, C, X], W [O, C, 3]\ty [N, O, X]", "z = MaxPool_2(y)\t-\tz [N, O, X/2]")
    kept = layer.activation_memory(accounting="pytorch").at(N=2, C=3, O=5, X=8)
    assert kept.value == 2 * (2 * 3 * 8) + 2 * (2 * 5 * 8) + 8 * (2 * 5 * 4)


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ("y = MaxPool_3(x)\tx [N, C, 8]\ty [N, C, 4]", "windows of 3 do not cut 8 into 4"),
        ("y = AvgPool(x)\tx [N, C, 7]\ty [N, C, 2]", "windows of 7/2 do not cut 7 into 2"),
        ("y = AvgPool(x)\tx [N, C]\ty [N, C]", "pooling needs batch × channels × positions"),
        ("y = BatchNorm(x)\tx [C]\ty [C]", "batchnorm needs examples × channels, and positions behind them"),
        ("y = BatchNorm(x, g)\tx [N, C], g [N, C]\ty [N, C]", "g has 2 axes"),
        ("y = EmbeddingBag(t, w)\tt [B, P], w [V]\ty [B]", "EmbeddingBag adds up rows of a table, for each bag of ids"),
        ("l = MSE(y, t)\ty [B, F], t [F]\tl [1]", "y and t have different numbers of axes"),
    ],
)
def test_what_cannot_be_read_is_named(row: str, told: str) -> None:
    with pytest.raises(SymcommError) as caught:
        model(row)
    assert told in str(caught.value)


def test_a_target_of_a_squared_error_that_is_computed_trains_what_computes_it() -> None:
    twins = model("t = x W\tx [B, D], W [D, F]\tt [B, F]", "u = x V\tV [D, F]\tu [B, F]",
                  "$l = MSE(u, t)$\tu [B, F]\t$l \\in R$")  # fmt: skip
    assert twins.gradients().at(B=2, D=3, F=5).value == 4 * (2 * 2 * 3 * 5)  # of W, of V, and of x for both


def test_probabilities_that_are_computed_are_refused_as_targets() -> None:
    with pytest.raises(SymcommError, match="t is computed, and targets get no gradient"):
        model("t = softmax(x W)\tx [B, D], W [D, F]\tt [B, F]", "l = CrossEntropy(u, t)\tu [B, F]\tl [B]")


def test_a_number_below_a_convolution_is_its_dilation_and_a_name_is_a_mark_and_both_are_told() -> None:
    rows = r"""Computation	Input	Output
$y = \mathrm{Conv}_2(x, W)$	$x$ [B, C, 32], $W$ [K, C, 3]	$y$ [B, K, 28]
$z = \mathrm{Conv}_{down}(y, U)$	$y$ [B, K, 28], $U$ [K, K, 3]	$z$ [B, K, 28]
"""
    assert sc.load(rows).graph.notes == (
        "the subscript of conv is its dilation: taps lie 2 places apart",
        "the subscript of conv is a mark: it changes nothing",
    )
