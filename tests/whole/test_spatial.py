"""Images cut over ranks, from a table to bytes, memory and time; batch norm's statistics by either convention."""

from __future__ import annotations

from fractions import Fraction

import pytest
from api import method, parse_strategy

import symcomm as sc
from symcomm import SymcommError


def model(*rows: str) -> sc.Model:
    return sc.load("Computation\tInput\tOutput\n" + "\n".join(rows) + "\n")


LAYER = model("y = Conv2d(x, W)\tx [N, C, X, Y], W [O, C, R, S]\ty [N, O, X, Y]")
SIZES = {"N": 2, "C": 3, "O": 5, "X": 16, "Y": 6, "R": 3, "S": 3}


def rows_beside(positions: int, places: int, taps: int, apart: int, ranks: int) -> list[tuple[int, int]]:
    """The positions that each rank reads before and behind its own, found by listing what each tap of it meets."""
    stride, span = positions // places, (taps - 1) * apart + 1
    before = max((places - 1) * stride + span - positions, 0) // 2
    found = []
    for rank in range(ranks):
        own = range(rank * positions // ranks, (rank + 1) * positions // ranks)
        mine = range(rank * places // ranks, (rank + 1) * places // ranks)
        met = {place * stride + tap * apart - before for place in mine for tap in range(taps)} & {*range(positions)}
        reads = range(min(met), max(met) + 1)
        found.append((max(own.start - reads.start, 0), max(reads.stop - own.stop, 0)))
    return found


def sent(of: sc.Model, strategy: str, sizes: dict[str, int], counted: str = "payload", **options: str) -> Fraction:
    made = of.communication(strategy, accounting=counted, phase="forward", **options)
    return Fraction(made.at(**{name: size for name, size in sizes.items() if name in made.needs}).value)


WINDOWS = [  # taps, how far apart, stride
    (3, 1, 1), (5, 1, 1), (3, 2, 1), (4, 1, 1), (3, 1, 2), (5, 1, 2), (7, 1, 2), (3, 3, 2), (1, 1, 1), (2, 1, 2),
    (4, 1, 4),
]  # fmt: skip


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize(("taps", "apart", "stride"), WINDOWS)
def test_all_links_carry_the_positions_that_ranks_read_and_do_not_own(
    taps: int, apart: int, stride: int, ranks: int
) -> None:
    sub = f"_{apart}" if apart > 1 else ""
    of = model(f"y = Conv1d{sub}(x, W)\tx [N, C, X], W [O, C, {taps}]\ty [N, O, X/{stride}]")
    beside, one_row = rows_beside(64, 64 // stride, taps, apart, ranks), 2 * 2 * 3  # fp16, N, C
    sizes = {"N": 2, "C": 3, "O": 4, "X": 64}
    assert sent(of, f"spatial({ranks})", sizes, "all_links") == one_row * sum(map(sum, beside))
    if ranks > 2:  # an inner rank gets as much as it sends
        assert sent(of, f"spatial({ranks})", sizes, "sent_per_rank") == one_row * max(map(sum, beside))
    kinds = {call: sent(of, f"spatial({ranks})", sizes, collective=call) for call in ("halo-exchange", "halo-shift")}
    sides = max(sum(side > 0 for side in rank) for rank in rows_beside(64, 64 // stride, taps, apart, max(ranks, 4)))
    assert [call for call, count in kinds.items() if count] == [["halo-shift"], ["halo-exchange"], []][sides - 1]


def test_a_halo_of_three_taps_is_two_rows_and_two_ranks_send_one_each() -> None:
    row = 2 * (2 * 3 * 6)  # fp16: N, C and Y
    assert str(LAYER.communication("spatial(k)", phase="forward").expr) == "2*C*N*Y*(R - 1)"
    assert [sent(LAYER, f"spatial({k})", SIZES, "sent_per_rank") for k in (2, 4)] == [row, 2 * row]
    assert [sent(LAYER, f"spatial({k})", SIZES, "all_links") for k in (2, 4)] == [2 * row, 6 * row]


def test_the_gradients_of_a_halo_go_back_as_the_halo_came_and_those_of_kernels_are_summed() -> None:
    made = {
        kind: LAYER.communication("spatial(k)", phase="backward", collective=kind).at(**SIZES).value
        for kind in ("halo-exchange", "all-reduce")
    }
    assert made == {"halo-exchange": 2 * (2 * 3 * 6 * 2), "all-reduce": 2 * (5 * 3 * 3 * 3)}


def test_both_axes_may_be_cut_and_the_second_halo_has_the_corners_of_the_first() -> None:
    made = LAYER.communication("spatial(2) + spatial(3, dim=2)", phase="forward", accounting="all_links")
    first = 2 * 3 * 2 * (6 // 3)  # N, C, two rows of a rank's columns: one boundary of each of three pairs
    second = 2 * 3 * 2 * (16 // 2 + 2)  # the rows of a rank and their halo, two columns: two boundaries, twice
    assert made.at(**SIZES).value == 2 * (first * 3 + second * 2 * 2)


def test_an_axis_may_be_cut_twice_and_its_parts_are_parts_of_one_line() -> None:
    twice, once = (
        LAYER.communication(s, accounting="all_links").at(**SIZES).value
        for s in ("spatial(2) + spatial(4, mesh=outer)", "spatial(8)")
    )
    assert twice == once


def test_two_convolutions_with_one_halo_exchange_it_once_and_add_their_gradients_before() -> None:
    of = model("a = Conv1d(x, W)\tx [N, C, X], W [O, C, 3]\ta [N, O, X]", "b = Conv1d(x, V)\tV [O, C, 3]\tb [N, O, X]",
               "y = a + relu(b)\t-\ty [N, O, X]")  # fmt: skip
    exchanged = of.communication("spatial(k)", collective="halo-exchange")
    assert exchanged.at(N=2, C=3, O=4, X=8, k=2).value == 2 * 2 * (2 * 3 * 2)


def test_pooling_side_by_side_exchanges_nothing_and_batch_norm_sums_its_statistics() -> None:
    of = model("h = Conv1d(x, W)\tx [N, C, X], W [O, C, 1]\th [N, O, X]", "n = BatchNorm(h)\t-\tn [N, O, X]",
               "y = MaxPool_2(n)\t-\ty [N, O, X/2]", "z = AvgPool_2(y)\t-\tz [N, O, X/4]")  # fmt: skip
    made = of.communication("spatial(k)", phase="forward")
    assert made.at(N=2, C=3, O=4, X=16, k=2).value == 2 * 4 * 4  # a mean and a variance a channel, in fp32
    local = of.communication("spatial(k)", phase="forward", accounting="of_each_rank")
    assert local.at(k=2).value == 0


def test_operations_are_shared_and_what_is_kept_has_the_halo() -> None:
    rates = {"peak": "1 FLOP/s", "memory": "1 EB/s", "network": "1 EB/s", "latency": "0 s"}
    of = LAYER.at(**SIZES)
    for strategy, ranks in (("spatial(2)", 2), ("spatial(4)", 4)):
        seconds = of.time(strategy, phase="forward", term="compute", **rates).at().value
        assert seconds * ranks == 2 * (2 * 5 * 16 * 6) * (3 * 3 * 3)
    assert LAYER.activation_memory("spatial(k)").at(**SIZES, k=4).value == 2 * (2 * 3 * (16 // 4 + 2) * 6)


@pytest.mark.parametrize("sizes", [{"k": 2}, {"k": 4, "R": 5}])
def test_pytorch_keeps_the_part_with_its_halo(sizes: dict[str, int]) -> None:
    """An inner rank's part put together with two edges, as a library for cut images does it."""
    torch = pytest.importorskip("torch")
    at = SIZES | sizes
    edge, part = (at["R"] - 1) // 2, at["X"] // at["k"]
    x, before, behind = (torch.ones(at["N"], at["C"], rows, at["Y"], requires_grad=True) for rows in (part, edge, edge))
    weight, kept = torch.ones(at["O"], at["C"], at["R"], at["S"], requires_grad=True), {}

    def pack(tensor: object) -> object:
        kept[tensor.data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda one: one):
        y = torch.nn.functional.conv2d(torch.cat((before, x, behind), dim=2), weight, padding=(0, 1))
    assert y.shape == (at["N"], at["O"], part, at["Y"])
    made = LAYER.activation_memory("spatial(k)", dtype="fp32", accounting="pytorch").at(**at).value
    assert made == sum(kept.values()) - weight.untyped_storage().nbytes()


def test_messages_to_both_neighbours_have_a_latency_each() -> None:
    said = {"peak": "1 EFLOP/s", "memory": "1 EB/s", "network": "1 GB/s", "latency": "1 us"}
    halo = 2 * (2 * 3 * 6 * 2)  # bytes of two rows

    def seconds(strategy: str, at: sc.Model) -> Fraction:
        return Fraction(at.time(strategy, phase="forward", term="network", **said).at().value)

    of = LAYER.at(**SIZES)
    assert seconds("spatial(4)", of) == Fraction(2, 10**6) + Fraction(halo, 10**9)
    assert seconds("spatial(2)", of) == Fraction(1, 10**6) + Fraction(halo, 2 * 10**9)


def test_the_peak_has_images_with_their_halos_and_so_has_the_gradient_of_one() -> None:
    of = model("y = Conv2d(x, W)\tx [N, C, X, Y], W [O, C, R, S]\ty [N, O, X, Y]", "z = relu(y)\t-\tz [N, O, X, Y]",
               "u = Conv2d(z, V)\tV [O, O, 3, 3]\tu [N, O, X, Y]")  # fmt: skip
    made = of.at(**SIZES).peak_memory("spatial(2)").at().value
    row, wide = 2 * 2 * 6, 16 // 2 + 2  # fp16, N and Y; the rows of a rank with one more on each side
    saved = row * (3 * wide + 5 * 8 + 5 * wide)  # x with its halo, z, z with its halo
    passing = row * (5 * 8 + 5 * wide)  # the gradient of u, and of z with its halo
    weights = 5 * 3 * 9 + 5 * 5 * 9
    assert made == saved + passing + (2 + 12) * weights + 2 * (5 * 5 * 9)  # V has its gradient then


def test_a_step_takes_the_time_of_its_halos_both_ways() -> None:
    of = LAYER.at(**SIZES)
    rates = {"peak": "1 EFLOP/s", "memory": "1 EB/s", "network": "1 GB/s", "latency": "0 s"}
    step = of.step_time("spatial(4)", **rates, accounting="serial").at().value
    halos, kernels = 2 * 2 * (2 * 3 * 6 * 2), Fraction(2 * 3, 4) * 2 * (5 * 3 * 9)
    assert abs(step - (halos + kernels) / Fraction(10**9)) < Fraction(1, 10**12)


# -- what does not fit -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "strategy", "sizes", "told"),
    [
        ("y = Conv1d(x, W)\tx [N, C, X], W [O, C, 9]\ty [N, O, X]", "spatial(8)", {"X": 24},
         "a window of y reads 4 positions of a neighbour, but of 24 of x each of 8 ranks has 3"),
        ("y = Conv1d(x, W)\tx [N, C, X], W [O, C, 3]\ty [N, O, X]", "spatial(3)", {"X": 16},
         "Spatial cuts X = 16 of x (row 1) into 3 parts, but 16 is not divisible by 3"),
        ("y = Conv1d(x, W)\tx [N, C, X], W [O, C, 3]\ty [N, O, X/2]", "spatial(4)", {"X": 20},
         "Spatial cuts X/2 = 10 of y (row 1) into 4 parts, but 10 is not divisible by 4"),
        ("y = Conv1d(x, W)\tx [N, C, X], W [O, C, 3]\ty [N, O, X - 2]", "spatial(2)", {"X": 16},
         "the X positions of x are cut, but y has X - 2 places: those without padding"),
        ("y = Conv1d(x, W)\tx [N, C, 20], W [O, C, 3]\ty [N, O, 8]", "spatial(2)", {},
         "the 20 positions of x are cut, but y has 8 places: a stride of 5/2"),
        ("y = x W\tx [N, C], W [C, O]\ty [N, O]", "spatial(2)", {}, "layer has no first axis of an image to cut"),
        ("y = Conv1d(x, W)\tx [N, C, X], W [O, C, 3]\ty [N, O, X]", "spatial(2, dim=2)", {},
         "layer has no second axis of an image to cut"),
        ("y = Conv1d(x, W)\tx [N, C, X], W [O, C, 3]\ty [N, O, X]", "spatial(2, dim=4)", {},
         "'4' is no axis of an image"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_told_with_its_number(row: str, strategy: str, sizes: dict[str, int], told: str) -> None:
    with pytest.raises(SymcommError) as caught:
        model(row).communication(strategy).at(N=2, C=2, O=2, **sizes)
    assert told in str(caught.value)


def test_a_degree_that_is_given_later_is_checked_as_well() -> None:
    made = LAYER.communication("spatial(k)")
    with pytest.raises(SymcommError, match="reads 4 positions of a neighbour, but of 16 of x each of 8 ranks has 2"):
        made.at(**{**SIZES, "R": 9}, k=8)


def test_runs_of_pytorch_over_cut_images_are_refused() -> None:
    with pytest.raises(SymcommError, match="PyTorch has no way here to run Spatial"):
        method(parse_strategy("spatial(2)"))


# -- the statistics of batch norm --------------------------------------------------------------------------------------

NORMED = model("h = Conv2d(x, W)\tx [N, C, X, Y], W [O, C, 3, 3]\th [N, O, X, Y]",
               "y = BatchNorm(h, g, b)\tg [O], b [O]\ty [N, O, X, Y]")  # fmt: skip
NORMED_SIZES = {"N": 8, "C": 3, "O": 16, "X": 4, "Y": 4, "k": 2}
WEIGHTS = 2 * (16 * 3 * 9 + 16 + 16)


@pytest.mark.parametrize(("how", "statistics"), [("of_the_batch", 2 * 2 * 16 * 4), ("of_each_rank", 0)])
def test_ranks_sum_the_statistics_of_batch_norm_or_have_their_own(how: str, statistics: int) -> None:
    """Two sums forward and two backward, of 16 channels in fp32, beside the gradients of the weights in fp16."""
    made = NORMED.communication("data(k)", accounting=how)
    assert made.at(**NORMED_SIZES).value == WEIGHTS + statistics
    assert "batch_statistics" in made.touched


def test_the_convention_is_named_only_where_it_decides() -> None:
    plain = model("y = Conv1d(x, W)\tx [N, C, X], W [O, C, 3]\ty [N, O, X]")
    assert "batch_statistics" not in plain.communication("data(k)").touched
    assert "batch_statistics" not in NORMED.communication("cut(O, k)").touched  # each rank has all of a channel
    kept = [NORMED.activation_memory("data(k)", accounting=how) for how in ("of_the_batch", "of_each_rank")]
    assert all("batch_statistics" in made.touched for made in kept)
    two = [made.at(**NORMED_SIZES).value for made in kept]
    assert two[0] - two[1] == 4 * 16 + 4 * 16  # the mean and the variance that ranks have summed are kept


def test_sums_of_the_backward_pass_over_rows_are_not_saved() -> None:
    """The statistics of a gradient are made when it is: what is saved is x, the two of the forward pass, and n."""
    norm = model("n = layernorm(x, g)\tx [B, D], g [D]\tn [B, D]", "y = n W\tW [D, F]\ty [B, F]")
    made = norm.activation_memory("cut(D, 2)").at(B=3, D=8).value
    assert made == 2 * (3 * 4) + 4 * (3 + 3) + 2 * (3 * 4)
