"""Peaks of whole models: published ones to the byte, small ones counted by hand, and what measurements say of them."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from functools import cache
from math import isclose
from pathlib import Path

import memory_tables as tables
import pytest
import whole_models as models
from api import Case, Sym, ValuesError, algorithm, load_model, model_of_parts, no_model, num, read_problem
from api import allocated_memory_block as block
from api import form_evaluate as evaluate

ENTRIES = json.loads((tables.DATA / "golden_memory_measured.json").read_text(encoding="utf-8"))
GOLDEN = {entry["id"]: entry for entry in ENTRIES}
MIB = 2**20


def published(name: str) -> Fraction:
    return Fraction(GOLDEN[name]["value"])


def given(name: str, key: str) -> Fraction:
    return Fraction(GOLDEN[name]["params"][key])


def measured(want: str, *values: object, unit: str = "B") -> Fraction:
    said = ", ".join(f"{Fraction(str(v))} {unit}" for v in values)
    return no_model().derive("measurement", want=want, values=said).at().value


# -- document 002, table 3: a 2.7B model with a hand-written layer -----------------------------------------

HAND = {"saved": "pytorch", "softmax": "by_hand"}
ALLOCATOR = {"recipe": "fp32_adam", "accounting": HAND, "workspace": "32 MiB", "rounding": "blocks",
             "tables": "per_layer"}  # fmt: skip
PRINTED = {"forward": {128: 19.412, 256: 26.103, 512: 42.708}, "full": {128: 55.246, 256: 55.267, 512: 55.306}}


@cache
def forward(length: int) -> Fraction:
    """The forward pass, and the labels: the program holds them, but no op of the forward pass reads them."""
    held = "labels [B, L] int64"
    return models.language_model(L=length).peak_memory(step="forward", held=held, **ALLOCATOR).at().value


@cache
def whole_step(length: int, step: str = "first"):
    return models.language_model(L=length).peak_memory(step=step, held="head:z", update_copies=5, **ALLOCATOR)


@pytest.mark.parametrize("length", [128, 256])
def test_the_forward_pass_of_the_2_7b_model_peaks_at_the_published_byte(length):
    assert forward(length) == published(f"002.table3.forward{length}")


@pytest.mark.parametrize("length", [128, 256, 512])
def test_the_first_step_of_the_2_7b_model_peaks_at_the_published_byte_when_the_head_is_updated(length):
    derived = whole_step(length)
    assert derived.at().value == published(f"002.table3.full{length}")
    assert "optimizer, in update of `W^U`" in derived.steps[-2].reason.text
    assert derived.exhibits[0].rows[-1][1] == "the update of `W^U` (peak)"


@pytest.mark.parametrize("length", [128, 256, 512])
def test_all_six_printed_peaks_are_derived_within_what_their_digits_and_the_allocator_leave_open(length):
    """The forward pass to the printed megabyte; the full step within the 2.1 MB that nothing explains."""
    assert round(forward(length) / 10**9, 3) == Fraction(str(PRINTED["forward"][length]))
    assert 0 < Fraction(str(PRINTED["full"][length])) * 10**9 - whole_step(length).at().value < 2_600_000


@pytest.mark.parametrize(("length", "published_rounding"), [(128, 135430144), (256, 135921664), (512, 134938624)])
def test_the_rounding_is_that_of_the_blocks_of_weights_and_logits(length, published_rounding):
    """128 matrices of 25 MiB in blocks of 26, the embedding, the head and, up to 256 positions, the logits."""
    logits = Fraction(4 * 4 * length * 10000)
    ends = 2 * (block(Fraction(102_400_000)) - 102_400_000) + block(logits) - logits
    assert 128 * MIB + ends == published_rounding == GOLDEN[f"002.table3.full{length}"]["params"]["blk"]
    assert whole_step(length).worth["M_round"] == published_rounding


def test_a_later_step_would_peak_elsewhere_because_the_states_are_there_while_activations_are():
    """With 512 positions, 12 bytes a parameter and all activations are more than 16 bytes a parameter."""
    peak = whole_step(512, "later")
    assert "(peak)" in next(row for row in peak.exhibits[0].rows if row[0] == "backward, last layer")[1]
    assert peak.at().value > 69 * 10**9


def test_the_largest_weight_is_not_the_one_whose_update_is_the_peak_of_a_whole_step():
    """W^1 is larger than the head, but while it is updated the states of the head are not there yet."""
    first, later = (whole_step(128, step) for step in ("first", "later"))
    assert later.at().value - first.at().value == 5 * 4 * 2560 * (10240 - 10000)
    assert "update of `W^1`" in later.steps[-2].reason.text


def test_mixed_precision_costs_an_eighth_and_adam_two_numbers_a_parameter():
    name = "002.mem.mixed_pct"
    assert measured("increase", given(name, "before"), given(name, "after"), unit="GB") == published(name)
    weight = tables.load(tables.table("y = x W ; x [B,P], W [P,1] ; y [B,1]"))
    adam, sgd = (weight.state_memory(recipe=r).at(P=1).value for r in ("fp32_adam", "fp32_sgd"))
    assert (adam - sgd) / 4 == published("002.mem.adam_floats")


# -- document 003: BERT under DDP and FSDP -------------------------------------------------------------------

FUSED = {"saved": "pytorch", "softmax": "fused"}
COMMON = {"recipe": "fp32_adam", "accounting": FUSED, "held": "z", "workspace": "32 MiB"}
# Besides what is published: the positions and token types of 512 tokens.
BUFFERS = 2 * 8 * 512
P, K = 109_514_298, 4


@cache
def ddp(batch: int) -> Fraction:
    """Every rank works on the whole batch, so that the batch of all ranks is four times as large."""
    said = COMMON | {"accounting": FUSED | {"gradient_buckets": "copied"}}
    return models.bert(B=K * batch).peak_memory("data(4)", **said).at().value


@cache
def fsdp(batch: int) -> Fraction:
    said = COMMON | {"accounting": FUSED | {"gathered_weights": "at_once"}}
    return models.bert(B=K * batch).peak_memory("fsdp(4)", **said).at().value


def leak() -> Fraction:
    """AdamW's two moments of one rank's shard, each rounded up as the allocator does it."""
    shard = -(-P // K)
    return 2 * block(Fraction(4 * shard), "requests")


def test_bert_has_the_published_number_of_parameters():
    assert models.bert().parameters().at().value == P


@pytest.mark.parametrize("batch", [16, 64])
def test_the_peak_under_ddp_is_where_the_loss_is_differentiated_and_all_buckets_are_there(batch):
    assert ddp(batch) - BUFFERS == published(f"003.mem.ddp_predicted{batch}")


def test_the_peak_under_fsdp_as_one_unit_is_the_published_one_once_the_leak_is_added():
    assert fsdp(64) - BUFFERS + leak() == published("003.mem.fsdp_predicted64")


def test_a_sample_takes_the_published_bytes_at_the_peak():
    assert (ddp(64) - ddp(16)) / 48 == (fsdp(64) - fsdp(16)) / 48 == published("003.mem.slope_predicted")


def test_one_unit_saves_nine_bytes_a_parameter_and_not_twelve():
    assert ddp(64) - fsdp(64) == 9 * P == published("003.mem.single_unit")


@pytest.mark.parametrize("how", ["ddp", "fsdp"])
def test_slope_and_intercept_are_those_of_the_line_through_two_means(how):
    name = f"003.mem.slope_{how}"
    through = ", ".join(f"{given(name, n)} sample: {given(name, y)} B" for n, y in (("n0", "lo"), ("n1", "hi")))
    slope, intercept = (no_model().derive("measurement", want=want, through=through) for want in ("slope", "intercept"))
    assert slope.at().value == published(name)
    assert str(slope.unit) == "B/sample"
    assert intercept.at().value == published(f"003.mem.intercept_{how}")
    # The derived slope is within a ten-thousandth of the measured one; the intercepts within 4 MB of 16 and 9 P.
    assert abs(slope.at().value / published("003.mem.slope_predicted") - 1) < Fraction(1, 10_000)
    fixed = 16 * P if how == "ddp" else 7 * P + leak()
    assert abs(intercept.at().value - fixed - 64 * MIB) < 4_400_000


@pytest.mark.parametrize("batch", [16, 64])
def test_the_measured_savings_are_the_derived_one_less_the_leak(batch):
    name = f"003.mem.saving{batch}"
    saving = measured("difference", given(name, "ddp"), given(name, "fsdp"))
    assert saving == published(name)
    assert abs(saving - (9 * P - leak())) < 2_000_000


def test_the_saving_of_the_first_seed_is_recovered_by_adding_the_leak():
    name = "003.mem.first_seed"
    assert given(name, "leak") == leak() == 219_029_504
    assert measured("difference", given(name, "ddp"), given(name, "fsdp")) + leak() == published(name)


def test_the_leak_alone_gives_the_printed_standard_deviation_to_its_last_digit():
    derived = no_model().derive("measurement", want="deviation", values=f"0 B, {leak()} B, {2 * leak()} B").at()
    assert isclose(derived.value, float(GOLDEN["003.mem.std"]["value"]), rel_tol=1e-15)
    assert isclose(derived.value, published("003.mem.std"), rel_tol=1e-15)
    one_block = no_model().derive("measurement", want="deviation", values="0 B, 0 B, 512 KiB").at()
    assert isclose(one_block.value, published("003.mem.std_ddp"), rel_tol=1e-15)


@pytest.mark.parametrize("how", ["ddp", "fsdp"])
def test_a_quarter_of_the_batch_takes_more_than_a_quarter_because_of_the_intercept(how):
    name = f"003.mem.quarter_{how}"
    ratio = measured("ratio", given(name, "lo"), given(name, "hi"))
    assert ratio == published(name)
    share = published(f"003.mem.intercept_{how}") / given(name, "hi")
    assert ratio - Fraction(1, 4) == Fraction(3, 4) * share


# -- restated measurements ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["002.ddp.comm_fraction", "002.ddp.flat_fraction", "002.ddp.overlap", "002.shard.speed"]
)
def test_a_ratio_of_two_printed_times_is_restated(name):
    assert measured("ratio", given(name, "t0"), given(name, "t1"), unit="s") == published(name)


@pytest.mark.parametrize("name", [n for n in GOLDEN if n.startswith("003.thr.")])
def test_a_throughput_is_samples_over_the_mean_time_of_a_step(name):
    ranks = given(name, "k") if name == "003.thr.true" else 1
    values = f"{ranks * given(name, 'batch')} sample, {given(name, 't0')} s"
    derived = no_model().derive("measurement", want="ratio", values=values).at()
    assert str(derived.unit) == "sample/s"
    assert derived.value == published(name)


def test_printed_steps_a_second_are_samples_a_second_over_the_batch():
    name = "003.pipe.samples"
    values = f"{given(name, 'batch')} sample, {1 / given(name, 'rate')} s"
    assert no_model().derive("measurement", want="ratio", values=values).at().value == published(name)
    name = "003.pipe.microbatch"
    assert measured("ratio", given(name, "batch"), given(name, "mb"), unit="sample") == published(name)


def test_a_fourth_stage_saves_a_twelfth_of_the_weights():
    name = "003.pipe.weights_saving"
    layers = tables.load(tables.table("y = x W ; x [B,P], W [P,P] ; y [B,P]"), repeat="N", dtype="fp32")
    three, four = (layers.state_memory(f"pipeline({n})", recipe="fp32_sgd") for n in (3, 4))
    saved = (three.worth["M_W"] - four.worth["M_W"]) / layers.parameters().expr
    assert saved * given(name, "params_n") == published(name)


def test_all_reduce_and_broadcast_move_half_as_much_again_as_reduce_scatter_and_all_gather():
    def all_links(name: str, kind: str) -> Fraction:
        return evaluate(algorithm(name).run(kind, Case(num(1), Sym("k"))).total, {"k": Fraction(2)})

    apart = all_links("ring", "all-reduce") + all_links("tree", "broadcast")
    sharded = all_links("ring", "reduce-scatter") + all_links("ring", "all-gather")
    assert apart / sharded == published("002.shard.comm_ratio")


# -- peaks counted by hand ----------------------------------------------------------------------------------

TOKENS, WEIGHT = 4 * 1000 * 8, 4 * 8 * 8  # the bytes of one tensor of the toy, and of one of its five matrices


def test_the_forward_pass_of_a_toy_holds_what_is_kept_and_the_last_result():
    """Kept are q, the inputs of three layers, and h; y is made."""
    peak = models.toy().peak_memory(recipe="fp32_sgd", step="forward").at().value
    assert peak == 5 * WEIGHT + 6 * TOKENS


def test_the_step_of_a_toy_peaks_at_its_first_gradient_of_a_weight():
    """All five kept tensors, the gradients of y and h, and that of C; a held y is one tensor more."""
    peak = models.toy().peak_memory(recipe="fp32_sgd")
    assert peak.at().value == 6 * WEIGHT + 7 * TOKENS
    assert any("backward pass of the head" in step.reason.text for step in peak.steps)
    held = models.toy().peak_memory(recipe="fp32_sgd", held="head:y").at().value
    assert held == 6 * WEIGHT + 8 * TOKENS


def test_the_update_of_a_toy_with_few_tokens_is_its_peak():
    """One token: 16 bytes a parameter, and q with two gradients while the last one of a weight is made; in a first
    step, the copies of the matrix that comes last.
    """
    few = models.toy(T=1)
    assert few.peak_memory(recipe="fp32_adam").at().value == 4 * 5 * WEIGHT + 3 * 4 * 8
    assert few.peak_memory(recipe="fp32_adam", step="first", update_copies=3).at().value == (4 * 5 + 3) * WEIGHT


def test_one_unit_has_all_weights_and_all_gradients_whole_at_the_end_of_the_backward_pass():
    """Half of five matrices, five gathered, five gradients; and q with two gradients, of one of two tokens each."""
    peak = models.toy(T=2).peak_memory("fsdp(2)", accounting="at_once", recipe="fp32_sgd").at().value
    assert peak == (Fraction(5, 2) + 5 + 5) * WEIGHT + 3 * 4 * 8


def test_recomputation_and_frozen_weights_of_a_whole_model_belong_to_its_parts():
    """Full recomputation keeps the inputs of layers, which are all that the toy keeps; A needs q no longer."""
    whole = models.toy().peak_memory(recipe="fp32_sgd").at().value
    assert models.toy().peak_memory(recipe="fp32_sgd", recomputation="full").at().value == whole
    with pytest.raises(ValuesError, match="no weight is called 'X'"):
        models.toy().peak_memory(frozen="X")


def test_a_tied_weight_is_one_tensor_whose_second_gradient_is_added_to_the_first():
    """A weight and its states are there once; its two gradients are both there while the second one is made."""
    tied = models.TOY_ENDS.replace("h C", "h A").replace("C [D,D]", "A [D,D]")
    apart, shared = (
        models.whole(ends, models.TOY_LAYER, {"T": 1, "D": 8, "N_layer": 3}).peak_memory(recipe="fp32_adam").at().value
        for ends in (models.TOY_ENDS, tied)
    )
    assert apart - shared == (4 + 8) * 64


# -- errors -------------------------------------------------------------------------------------------------


def test_a_peak_of_any_size_is_told_in_its_table():
    table = models.toy(T=1).peak_memory(recipe="fp32_adam", workspace="1e400").markdown()
    assert str(2 * 10**400 // 2**20) in "".join(table.split())  # for each of two threads, in MiB


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"step": "second"}, "unknown step 'second'"),
        ({"rounding": "pages"}, "unknown rounding 'pages'"),
        ({"tables": "none"}, "unknown tables 'none'"),
        ({"held": "loss"}, "there is no tensor 'loss'"),
        ({"update_copies": "1/2"}, "update_copies is 1/2"),
        ({"update_copies": 1000}, "update_copies is 1000"),
        ({"workspace": -1}, "a workspace of -1 B"),
    ],
)
def test_bad_options_of_a_peak_are_refused_by_name(options, message):
    with pytest.raises(ValuesError, match=message):
        models.toy().peak_memory(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"want": "median"}, "unknown choice 'median' of 'want'"),
        ({"want": "mean"}, "the mean takes 'values' and nothing else"),
        ({"want": "slope", "values": "1 s, 2 s"}, "the slope takes 'through' and nothing else"),
        ({"want": "mean", "values": "1 s, 2 B"}, "one value is in s, but another one in B"),
        ({"want": "ratio", "values": "1 s"}, "the ratio needs 2 numbers, but there are 1"),
        ({"want": "ratio", "values": "1 s, 0 s"}, "nothing is divided by 0"),
        ({"want": "increase", "values": "0 s, 1 s"}, "an increase from 0 is no part of it"),
        ({"want": "sample_deviation", "values": "1 s"}, "the sample_deviation needs 2 numbers, but there are 1"),
        ({"want": "slope", "through": "1 = 2 s"}, "a point has a number, a colon and another number"),
        ({"want": "slope", "through": "1: 2 s"}, "the line needs 2 numbers, but there are 1"),
        ({"want": "slope", "through": "1: 2 s, 1: 3 s"}, "all points are at 1: they fit no single line"),
        ({"want": "mean", "values": ",".join(["1 s"] * 101)}, "there are 101 numbers; at most 100 are read"),
        ({"want": "mean", "values": "fast"}, "'fast' is not a number with a unit"),
    ],
)
def test_measurements_that_do_not_go_together_are_refused(options, message):
    with pytest.raises(ValuesError, match=message):
        no_model().derive("measurement", **options)


def test_a_line_through_three_points_has_the_least_squares_and_a_sample_deviation_divides_by_one_less():
    through = "1: 1 s, 2: 3 s, 4: 8 s"
    slope = no_model().derive("measurement", want="slope", through=through).at().value
    intercept = no_model().derive("measurement", want="intercept", through=through).at().value

    def squares(a: Fraction, b: Fraction) -> Fraction:
        return sum(((y - a * x - b) ** 2 for x, y in ((1, 1), (2, 3), (4, 8))), Fraction(0))

    least = squares(slope, intercept)
    steps = (Fraction(-1, 1000), Fraction(0), Fraction(1, 1000))
    assert min(squares(slope + i, intercept + j) for i in steps for j in steps) == least
    derived = no_model().derive("measurement", want="sample_deviation", values="2 s, 4 s, 9 s").at()
    assert isclose(derived.value, 13**0.5, rel_tol=1e-12)  # the mean is 5: (9 + 1 + 16) / 2


def test_parts_of_a_model_have_one_format_and_one_value_for_a_size():
    ends, layer = (tables.load(t, dtype=d) for t, d in ((models.TOY_ENDS, "fp32"), (models.TOY_LAYER, "bf16")))
    with pytest.raises(ValuesError, match=r"is in fp32, but .* in bf16"):
        model_of_parts([(ends, "h"), (layer, "")])
    layer = tables.load(models.TOY_LAYER, dtype="fp32", values={"D": 8})
    with pytest.raises(ValuesError, match="D is 4 in one part and 8 in another one"):
        model_of_parts([(ends.at(D=4), "h"), (layer, "")])
    with pytest.raises(ValuesError, match="no row of ends computes 'k'"):
        model_of_parts([(tables.load(models.TOY_ENDS, dtype="fp32", name="ends"), "k"), (layer, "")])


COVERED = (
    "002.table3.", "002.mem.mixed_pct", "002.mem.adam_floats", "002.ddp.", "002.shard.comm_ratio", "002.shard.speed",
    "003.thr.", "003.pipe.samples", "003.pipe.microbatch", "003.pipe.weights_saving", "003.mem.slope_", "003.mem.std",
    "003.mem.intercept_", "003.mem.saving", "003.mem.single_unit", "003.mem.first_seed", "003.mem.ddp_predicted",
    "003.mem.fsdp_predicted64", "003.mem.quarter_",
)  # fmt: skip


def test_every_published_value_of_the_data_file_belongs_to_a_test():
    assert [name for name in GOLDEN if not name.startswith(COVERED)] == []


def test_the_conventions_that_move_the_peak_are_named_with_it():
    layer = tables.load(tables.table("h = relu(x W) ; x [B,D], W [D,F] ; h [B,F]"))
    sizes = {"B": 8, "D": 64, "F": 256}
    told = {c.field for c in layer.at(**sizes).peak_memory("fsdp(4)").conventions}
    assert told == {"saved", "input_gradient", "gathered_weights"}
    assert {c.field for c in layer.at(**sizes).peak_memory("data(4)").conventions} == {"input_gradient"}


def test_autograd_has_both_gradients_of_a_product_before_it_drops_a_factor():
    """Beside two weights of 2 x 2: q, both factors, the gradient that arrives and both that are made, 100 x 2 each."""
    text = tables.table(
        "g = q A ; q [T,D], A [D,D] ; g [T,D]", "u = q C ; C [D,D] ; u [T,D]", "h = g \\odot u ; - ; h [T,D]"
    )
    model = tables.load(text, dtype="fp32", values={"T": 100, "D": 2})
    peak = model.peak_memory(recipe="fp32_sgd", accounting={"saved": "pytorch"}, step="backward")
    assert peak.at().value == 4 * (2 * 4 + 6 * 200)


# -- what is written out in several ops -----------------------------------------------------------------------

EAGER = {"recipe": "fp32_sgd", "accounting": {"saved": "pytorch"}, "step": "backward"}


@pytest.mark.parametrize("residual", [False, True])
def test_the_peak_of_a_norm_is_in_the_gradient_of_its_squares(residual):
    """x, the gradient so far, and 4 tensors: the share of the mean, x, 2 x and their product; that of n is gone."""
    rows = ["n = rmsnorm(x) ; x [T,D] ; n [T,D]", "h = n W ; W [D,F] ; h [T,F]"]
    rows += ["o = h U ; U [F,D] ; o [T,D]", "y = x + o ; - ; y [T,D]"] if residual else []
    made = tables.load(tables.table(*rows), dtype="fp32", values={"T": 8, "D": 16, "F": 1}).peak_memory(**EAGER)
    weights = 16 * (2 if residual else 1)
    assert made.at().value == 4 * (6 * 8 * 16 + 2 * weights)
    assert "gradient of `x`" in made.steps[-2].reason.text or "gradient of `x`" in made.steps[-1].reason.text


def test_the_gradient_of_the_losses_is_gone_when_that_of_the_logits_is_made():
    rows = ["l = crossentropy(u W, z) ; u [T,D], W [D,V], z [T] ; l [T]"]
    made = tables.load(tables.table(*rows), dtype="fp32", values={"T": 8, "D": 2, "V": 64}).peak_memory(**EAGER)
    assert made.at().value == 4 * (3 * 8 * 64 + 8 * 2 + 2 * 64) + 8 * 8  # and the labels, of 8 bytes


def test_a_gathered_gradient_may_be_added_to_others():
    path = Path(__file__).parents[2] / "examples" / "layers" / "encoder.md"
    sizes = {n: Fraction(v) for n, v in {"B": 2, "L": 8, "n_H": 4, "H": 4, "D": 16, "F": 64, "N_layer": 2}.items()}
    model = replace(load_model(read_problem(path), ""), values=sizes)
    one, two = (model.derive("peak_memory", strategy=s, **EAGER).at().value for s in (None, "tensor(2) + sequence"))
    assert one / 2 < two < one


@pytest.mark.few(3)
@pytest.mark.parametrize(("recomputation", "strategy"), [("none", ""), ("full", ""), ("none", "fsdp(2)")])
@pytest.mark.parametrize("ends", [False, True])
def test_the_peak_of_any_number_of_layers_is_one_formula(recomputation, strategy, ends):
    """It says from two layers on what is derived for each number of them by itself."""
    sizes = {"T": 24, "D": 4, "F": 40}
    layer = tables.table("a = x W ; x [T,D], W [D,F] ; a [T,F]", "u = relu(a) ; a [T,F] ; u [T,F]",
                         "y = u U ; U [F,D] ; y [T,D]")  # fmt: skip
    model = models.whole(models.TOY_ENDS, layer, sizes) if ends else tables.load(layer, repeat="N_layer", values=sizes)
    asked = {"recipe": "fp32_sgd", "recomputation": recomputation, **({"strategy": strategy} if strategy else {})}
    made = model.peak_memory(**asked)
    assert str(made.where[0]) == "N_layer >= 2"
    for count in (2, 3, 4, 7, 50, 1000):
        by_itself = model.at(N_layer=count).peak_memory(**asked)
        assert made.at(N_layer=count).value == by_itself.at().value, count
    with pytest.raises(ValuesError, match="N_layer"):
        made.at(N_layer=1)


def test_with_more_layers_the_peak_may_be_somewhere_else():
    """Few layers are largest while the head works on 200 words for each token; each further one keeps T D numbers by
    then, but D^2 by the end, when it has a gradient instead: the second line is steeper by D^2 - T D.
    """
    ends = tables.table("x = q A ; q [T,D], A [D,D] ; x [T,D]", "h = x ; x [T,D] ; h [T,D]",
                        "y = h C ; C [D,V] ; y [T,V]")  # fmt: skip
    model = models.whole(ends, models.TOY_LAYER, {"T": 10, "D": 20, "V": 200})
    made = model.peak_memory(recipe="fp32_sgd")
    first, second = sorted((made.at(N_layer=n + 1).value - made.at(N_layer=n).value) / 4 for n in (2, 500))
    assert (first, second - first) == (20**2 + 10 * 20, 20**2 - 10 * 20)
    for count in (2, 10, 11, 12, 20, 30, 100):
        assert made.at(N_layer=count).value == model.at(N_layer=count).peak_memory(recipe="fp32_sgd").at().value
