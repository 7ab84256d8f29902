"""The peak of a pipeline's stage and of recomputation, against a walk through every op of every microbatch."""

from __future__ import annotations

import memory_tables as tables
import pytest
import whole_models as models
from api import Model, SymcommError, from_expr
from api import form_evaluate as evaluate
from walked_steps import Walk, cases

import symcomm as sc

LAYER = tables.table("u = relu(x W) ; x [T,D], W [D,F] ; u [T,F]", "y = u U ; U [F,D] ; y [T,D]")
# Many tokens and few weights, and the other way round.
SIZES = [(240, 4, 6), (12, 8, 24)]


def model(rows: int, width: int, hidden: int, layers: int, ends: bool = True) -> Model:
    values = {"T": rows, "D": width, "F": hidden, "N_layer": layers}
    if not ends:
        return tables.load(LAYER, repeat="N_layer", dtype="fp32", values=values)
    return models.whole(models.TOY_ENDS, LAYER, values)


@pytest.mark.few(6)
@pytest.mark.parametrize(("stages", "microbatches", "schedule", "chunks", "stage"), cases([1, 2, 3]))
def test_the_peak_of_a_stage_is_that_of_a_walk_through_its_schedule(stages, microbatches, schedule, chunks, stage):
    layers = 2 * stages * chunks
    for sizes in SIZES:
        walk = Walk(*sizes, layers, stages, microbatches, schedule, chunks, stage)
        derived = model(*sizes, layers).peak_memory(
            f"pipeline({stages}, microbatches={microbatches})", recipe="fp32_adam", schedule=schedule, stage=stage,
            chunks=chunks if schedule == "interleaved" else None,
        )  # fmt: skip
        assert derived.at().value == walk.run()


@pytest.mark.long
@pytest.mark.parametrize("ends", [True, pytest.param(False, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    ("schedule", "chunks"),
    [("zb-h1", 1), *(pytest.param(name, chunks, marks=pytest.mark.long)
                     for name, chunks in (("zb-h2", 1), ("zb-v", 2), ("v-half", 2), ("v-min", 2)))],
)  # fmt: skip
def test_the_peak_of_a_split_backward_is_that_of_a_walk_that_makes_the_gradients_of_weights_later(
    schedule, chunks, ends
):
    """Between the two a layer holds what its weights' gradients read: inputs, and gradients of outputs."""
    for stages, microbatches in ((1, 2), (2, 4), (3, 6)):
        layers = 2 * stages * chunks
        for sizes in (*SIZES, (480, 2, 3), (24, 40, 3), (24, 3, 40)):
            for stage in range(stages):
                walk = Walk(*sizes, layers, stages, microbatches, schedule, chunks, stage, ends=ends)
                given = f"pipeline({stages}, microbatches={microbatches})"
                derived = model(*sizes, layers, ends).peak_memory(
                    given, recipe="fp32_adam", schedule=schedule, stage=stage
                )
                assert derived.at().value == walk.run(), (stages, sizes, stage)


@pytest.mark.parametrize("ends", [True, pytest.param(False, marks=pytest.mark.long)])
@pytest.mark.parametrize(("schedule", "copies"), [("dualpipe", 2), ("dualpipev", 1)])
def test_the_peak_of_overlapped_pairs_is_that_of_a_walk_in_which_both_are_at_their_largest(schedule, copies, ends):
    stages, microbatches = 4, 8
    layers, given = 2 * stages * 2 // copies, f"pipeline({stages}, microbatches={microbatches})"
    for sizes in ((240, 4, 6), (16, 8, 24)):
        for stage in (0, 1) if ends else range(stages):
            walk = Walk(*sizes, layers, stages, microbatches, schedule, 2, stage, ends=ends, copies=copies)
            derived = model(*sizes, layers, ends).peak_memory(given, recipe="fp32_adam", schedule=schedule, stage=stage)
            assert derived.at().value == walk.run(), (sizes, stage)
    assert any("overlaps" in note for note in derived.notes)


def test_the_states_under_dualpipe_are_those_of_two_stages_on_every_rank():
    """Of 8 layers on 4 ranks a rank has two times two; the ends are on the first and the last rank, both on both."""
    layer, end = 2 * 8 * 24, 8 * 8
    for schedule, parameters in (("1f1b", 2 * layer + end), ("dualpipe", 4 * layer + 2 * end),
                                 ("dualpipev", 2 * layer + 2 * end)):  # fmt: skip
        options = {"schedule": schedule, "recipe": "fp32_adam"}
        made = model(16, 8, 24, 8).state_memory("pipeline(4, microbatches=8)", **options)
        assert made.at().value == 16 * parameters
        inner = model(16, 8, 24, 8).state_memory("pipeline(4, microbatches=8)", stage=1, **options)
        assert inner.at().value == 16 * (4 if schedule == "dualpipe" else 2) * layer


@pytest.mark.few(2)
@pytest.mark.parametrize("stage", range(4))
@pytest.mark.parametrize("each", [(1, 3, 3, 1), pytest.param((4, 1, 2, 1), marks=pytest.mark.long)])
def test_stages_with_layers_of_their_own_keep_under_dualpipe_what_a_walk_through_both_keeps(each, stage):
    """Few of what a rank has in flight are of the stage with most layers."""
    given = f"pipeline(layers={':'.join(map(str, each))}, microbatches=8)"
    ask = {"schedule": "dualpipe", "stage": stage}
    for sizes in ((240, 4, 6), (16, 8, 24)):
        walk = Walk(*sizes, sum(each), 4, 8, "dualpipe", 2, stage, copies=2, each=each)
        layers = model(*sizes, sum(each))
        kept = layers.activation_memory(given, **ask)
        assert kept.at().value == walk.saved(), sizes
        kept.check(deep=True)
        assert layers.peak_memory(given, recipe="fp32_adam", **ask).at().value == walk.run(), sizes


CHUNKED = [("interleaved", 2, 1), ("interleaved", 3, 1), ("zb-v", 2, 1), ("dualpipe", 2, 2), ("dualpipev", 2, 1)]


@pytest.mark.few(6)
@pytest.mark.parametrize("stage", range(4))
@pytest.mark.parametrize(("schedule", "chunks", "copies"), CHUNKED)
def test_what_stands_around_the_layers_is_kept_for_the_microbatches_of_its_own_chunk(schedule, chunks, copies, stage):
    """The end of a rank with several chunks is behind one of them, not behind each."""
    layers, ask = 4 * chunks // copies, {"schedule": schedule, "stage": stage}
    ask |= {"chunks": chunks} if schedule == "interleaved" else {}
    for sizes in ((240, 4, 6), (16, 8, 24), (16, 24, 8)):
        walk = Walk(*sizes, layers, 4, 8, schedule, chunks, stage, copies=copies)
        kept = model(*sizes, layers).activation_memory("pipeline(4, microbatches=8)", **ask)
        assert kept.at().value == walk.saved(), sizes


def test_numbers_that_come_later_choose_the_time_at_which_a_rank_keeps_most():
    """A rank of zb-v has 7 microbatches before its layers and 1 behind them, and 8 before them a moment later."""
    ends = models.TOY_ENDS.replace("q [T,D], A [D,D]", "q [T,E], A [E,D]")
    ask = {"strategy": "pipeline(4, microbatches=8)", "schedule": "zb-v", "stage": 0}
    given = models.whole(ends, LAYER, {"N_layer": 8}).activation_memory(**ask)
    for T, D, E in ((64, 4, 6), (64, 6, 4)):
        assert given.at(T=T, D=D, F=8, E=E).value == 4 * 8 * (8 * (D + 8) + 7 * E + max(D, E))


@pytest.mark.parametrize("schedule", ["interleaved", "zb-v"])
def test_two_kinds_of_layers_that_are_alike_are_one_kind(schedule):
    """Chunks hold layers of either kind: the first half of the model and the second half."""
    values, ask = {"T": 96, "D": 4, "F": 6}, {"schedule": schedule, "chunks": 2 if schedule == "interleaved" else None}
    around = tables.load(models.TOY_ENDS, dtype="fp32", name="ends")
    first, second = (tables.load(LAYER, repeat=n, dtype="fp32", name=n) for n in ("N_1", "N_2"))
    two = sc.model_of_parts([(around, "h"), (first, ""), (second, "")], values={**values, "N_1": 6, "N_2": 2})
    one = model(96, 4, 6, 8)
    for stage in (0, 1):
        for quantity in ("activation_memory", "peak_memory"):
            of_one, of_two = (m.derive(quantity, strategy="pipeline(2, microbatches=4)", **ask, stage=stage).at()
                              for m in (one, two))  # fmt: skip
            assert of_one == of_two, (quantity, stage)


@pytest.mark.few(2)
@pytest.mark.parametrize("schedule", ["zb-h1", "zb-v", "dualpipe", "dualpipev"])
def test_the_peak_without_a_stage_is_that_of_the_rank_that_has_most(schedule):
    """Gradients of weights that wait make later ranks hold more than the first one."""
    layers, ask = model(64, 8, 24, 8), {"strategy": "pipeline(4, microbatches=8)", "schedule": schedule}
    each = [layers.peak_memory(**ask, stage=rank).at().value for rank in range(4)]
    most = layers.peak_memory(**ask)
    assert most.at().value == max(each)
    rank = each.index(max(each))
    which = "the first one" if not rank else "the last one" if rank == 3 else f"stage {rank} (0 is the first)"
    assert f"No stage has more than {which}." in most.notes


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_uneven_stages_have_the_activations_and_the_peak_of_their_own_layers(schedule):
    """A stage of n layers is one of an even pipeline of n layers each, between the same ends."""
    given = "pipeline(layers=1:3:2, microbatches=6)"
    for stage, layers in enumerate((1, 3, 2)):
        uneven, even = (
            {ask: getattr(model(120, 4, 6, n), ask)(said, schedule=schedule, stage=stage, **more).at().value
             for ask, more in (("activation_memory", {}), ("peak_memory", {"recipe": "fp32_adam"}),
                               ("state_memory", {"recipe": "fp32_adam"}))}
            for n, said in ((6, given), (3 * layers, "pipeline(3, microbatches=6)"))
        )  # fmt: skip
        assert uneven == even


AGAIN = [{"every": 1}, {"recomputation": "full"}, {"every": 2}, {"every": 3}, {"every": 6}, {"recomputation": "u"}]


@pytest.mark.few(3)
@pytest.mark.parametrize("options", AGAIN, ids=str)
@pytest.mark.parametrize("ends", [True, False])
def test_the_peak_with_recomputation_is_that_of_a_walk_in_which_layers_run_again(options, ends):
    """A group keeps its first input and has all its activations while its backward pass runs; by ``u``, a and u."""
    named = frozenset({"a", "u"}) if options.get("recomputation") == "u" else frozenset()
    for sizes in (*SIZES, (400, 3, 40), (400, 40, 3), (3, 40, 40)):
        walk = Walk(*sizes, 6, every=0 if named else options.get("every", 1), named=named, ends=ends)
        assert model(*sizes, 6, ends).peak_memory(recipe="fp32_adam", **options).at().value == walk.run()


@pytest.mark.few(2)
@pytest.mark.parametrize("options", [{"every": 3}, {"recomputation": "u"}], ids=str)
@pytest.mark.parametrize(("schedule", "chunks"), [("gpipe", 1), ("1f1b", 1), ("interleaved", 2)])
def test_groups_are_computed_again_on_every_stage_of_a_pipeline(schedule, chunks, options):
    named = frozenset({"a", "u"}) if "recomputation" in options else frozenset()
    layers = 6 * 2 * chunks
    for sizes in SIZES:
        for stage in (0, 1):
            walk = Walk(*sizes, layers, 2, 4, schedule, chunks, stage, options.get("every", 0), named)
            derived = model(*sizes, layers).peak_memory(
                "pipeline(2, microbatches=4)", recipe="fp32_adam", schedule=schedule, stage=stage,
                chunks=chunks if chunks > 1 else None, **options,
            )  # fmt: skip
            assert derived.at().value == walk.run()


@pytest.mark.few(8)
@pytest.mark.parametrize(("stages", "microbatches", "schedule", "chunks", "stage"), cases([2, 3]))
def test_saved_activations_and_states_at_the_peak_are_those_that_are_derived_without_a_timeline(
    stages, microbatches, schedule, chunks, stage
):
    """With many tokens the peak is when most is in flight: at the first gradients, before anything is dropped."""
    layers, given = 2 * stages * chunks, f"pipeline({stages}, microbatches={microbatches})"
    options = {"schedule": schedule, "stage": stage, "chunks": chunks if schedule == "interleaved" else None}
    whole = model(1200, 4, 6, layers, ends=False)
    peak = whole.peak_memory(given, recipe="fp32_adam", **options)
    kept = whole.activation_memory(given, **options).at().value
    values = peak.values()
    assert evaluate(from_expr(peak.worth["M_A"]), values) == kept
    states = whole.state_memory(given, recipe="fp32_adam").worth
    for name in ("M_W", "M_O"):
        assert evaluate(from_expr(peak.worth[name]), values) == evaluate(from_expr(states[name]), values)


def test_the_table_shows_each_time_of_the_schedule_once_and_the_peak_among_them():
    table = model(240, 4, 6, 8).peak_memory("pipeline(4, microbatches=8)", recipe="fp32_adam", stage=1).exhibits[0]
    times = list(dict.fromkeys(row[0].split(":")[0] for row in table.rows))
    assert times == [f"{t}, 3 microbatches in flight" for t in ("warm-up", "steady state", "cool-down")] + ["optimizer"]
    assert sum("(peak)" in row[1] for row in table.rows) == 1
    assert len(table.rows) < 45


def test_a_pipeline_of_one_stage_accumulates_gradients_over_its_microbatches():
    """From the second microbatch on, the gradients of all layers are there while one more is made and added."""
    one, two = (model(2, 64, 64, 3, ends=False).peak_memory(f"pipeline(1, microbatches={m})", recipe="fp32_sgd")
                for m in (1, 2))  # fmt: skip
    token, matrix = 4 * 64, 4 * 64 * 64
    # The last gradient of all, with x, da and dx; of two, the last layer's first one, with three x and u, dy and du.
    assert one.at().value == 12 * matrix + 2 * 3 * token
    assert two.at().value == 13 * matrix + (2 * 3 + 2) * token


def test_a_tied_weight_is_on_both_end_stages_and_once_where_they_are_one():
    """Its gradient, its states and the weight itself: 16 bytes a parameter more on the last stage."""
    tied = models.TOY_ENDS.replace("h C", "h A").replace("C [D,D]", "A [D,D]")
    values = {"T": 2, "D": 64, "F": 8, "N_layer": 4}
    whole, apart = (models.whole(ends, LAYER, values) for ends in (tied, models.TOY_ENDS))

    def update(m: Model, stages: int, stage: int) -> str:
        rows = m.peak_memory(f"pipeline({stages}, microbatches=2)", recipe="fp32_adam", stage=stage).exhibits[0].rows
        return rows[-1][-1]

    assert update(whole, 2, 1) == update(apart, 2, 1) == f"{16 * (2 * 2 * 512 + 4096) / 1024:.1f}"
    assert update(whole, 1, 0) == f"{16 * (4 * 2 * 512 + 4096) / 1024:.1f}"
    assert update(apart, 1, 0) == f"{16 * (4 * 2 * 512 + 2 * 4096) / 1024:.1f}"


def test_a_weight_is_gathered_for_each_pass_and_its_gradient_is_whole_until_it_is_scattered():
    """Three matrices of 256 bytes on two ranks, one token each: at the last reduce-scatter, two gradients are done,
    the third one is there whole and as the part that is kept, and dx is on its way.
    """
    layer = tables.load(models.TOY_LAYER, repeat="N_layer", dtype="fp32", values={"T": 2, "D": 8, "N_layer": 3})
    peak = layer.peak_memory("fsdp(2)", recipe="fp32_sgd")
    assert peak.at().value == 3 * 128 + 2 * 128 + 256 + 128 + 32
    assert "the reduce-scatter of the gradient of `W`" in peak.steps[-2].reason.text


def test_a_fused_attention_never_has_its_scores():
    """The peak grows with the length, and not with its square."""
    values = {"B": 1, "D": 64, "F": 64, "n_h": 8, "n_k": 8, "N": 2}
    lengths = (1024, 2048, 3072)
    layer = tables.load(tables.LLAMA, repeat="N", values=values)
    one, two, three = (layer.at(L=n).peak_memory(accounting="fused").at().value for n in lengths)
    assert three - two == two - one
    one, two, three = (layer.at(L=n).peak_memory().at().value for n in lengths)
    assert three - two > two - one


def test_the_parts_around_the_layers_are_not_computed_again_and_the_document_says_so():
    derived = model(240, 4, 6, 4).peak_memory(recipe="fp32_sgd", recomputation="full")
    assert derived.notes == ("Only repeated layers are computed again, not the parts before and after them.",)


@pytest.mark.parametrize("how", ["none", "full"])
def test_parts_of_which_none_is_repeated_run_again_each_by_itself(how):
    """Each keeps its input, as two layers of a stack do; the walk runs them again one after the other."""
    parts = [(tables.load(LAYER, dtype="fp32", name=name), "") for name in ("first", "second")]
    for sizes in ((240, 4, 6), (400, 3, 40)):
        two = sc.model_of_parts(parts, values=dict(zip("TDF", sizes, strict=True)))
        walk = Walk(*sizes, 2, every=int(how == "full"), ends=False)
        peak, kept = two.peak_memory(recipe="fp32_adam", recomputation=how), two.activation_memory(recomputation=how)
        assert peak.at().value == walk.run()
        assert kept.at().value == 2 * 4 * sizes[0] * (sizes[1] + (sizes[2] if how == "none" else 0))
        assert not any("layers that are repeated" in note for note in (*peak.notes, *kept.notes))
        flops = two.recomputation(recomputation=how, count="hardware_flops").at().value
        assert flops == 2 * 2 * 2 * sizes[0] * sizes[1] * sizes[2] * (4 if how == "full" else 3)


STRATEGIES = ("tensor(2) + sequence", "context(2)", "zero-2(2)", "tensor(2) + fsdp(2)")


@pytest.mark.few(2)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_layer_that_is_computed_again_keeps_its_input_at_the_peak_and_gathers_its_weights_once(strategy):
    """Two layers of a group gather their weights to be computed again and for backward; one layer does so once."""
    layer = tables.load(tables.GPT, repeat="N", values={"B": 64, "L": 16, "D": 16, "F": 64, "n_h": 4, "N": 4})
    full = layer.peak_memory(strategy, accounting="pytorch", recomputation="full")
    kept = layer.activation_memory(strategy, accounting="pytorch", recomputation="full").at().value
    assert evaluate(from_expr(full.worth["M_A"]), full.values()) == kept
    assert full.at() == layer.peak_memory(strategy, accounting="pytorch", every=1).at()


# -- errors -------------------------------------------------------------------------------------------------

REFUSED = [
    ("", {"schedule": "gpipe"}, "'schedule' belongs to a pipeline"),
    ("", {"stage": 1}, "'stage' belongs to a pipeline"),
    ("", {"chunks": 2}, "'chunks' belongs to a pipeline"),
    ("pipeline(2)", {}, "no value is given for m: the schedule of a pipeline is followed step by step"),
    ("pipeline(2, microbatches=4)", {"stage": 2}, "there is no stage 2 of 2"),
    ("pipeline(2, microbatches=4)", {"stage": "first"}, "stage is first"),
    ("pipeline(2, microbatches=4)", {"stage": -1}, "stage is -1"),
    ("pipeline(2, microbatches=4)", {"schedule": "zigzag"}, "unknown schedule 'zigzag'"),
    ("pipeline(2, microbatches=4)", {"chunks": 2}, "the schedule 1f1b has no chunks"),
    ("pipeline(2, microbatches=4)", {"schedule": "interleaved"}, "the interleaved schedule needs its chunks"),
    ("pipeline(2, microbatches=3)", {"schedule": "interleaved", "chunks": 2}, "3 microbatches are no multiple of 2"),
    ("pipeline(4, microbatches=4)", {}, "6 layers are not divisible into 4 stages"),
    ("pipeline(2, microbatches=4)", {"schedule": "interleaved", "chunks": 2},
     "6 layers are not divisible into 2 stages of 2 chunks"),
    ("pipeline(2, microbatches=4)", {"schedule": "dualpipe", "every": 3}, "dualpipe runs the gradients of the weights"),
    ("pipeline(2, microbatches=4)", {"schedule": "zb-h1", "every": 3}, "zb-h1 runs the gradients of the weights apart"),
    ("pipeline(2, microbatches=4)", {"step": "forward"}, "'step: forward' is of a model that is not cut"),
    ("pipeline(2, microbatches=4)", {"held": "u"}, "'held' is of a model that is not cut"),
    ("pipeline(2, microbatches=100000)", {}, "are too many to be followed one by one"),
    ("", {"every": 4}, "6 layers are no whole number of groups of 4"),
    ("", {"every": 7}, "groups of 7 layers, but there are 6"),
    ("", {"every": 0}, "'every' is 0, but it must be positive"),
    ("", {"every": "1/2"}, "every is 1/2"),
    ("", {"every": 2, "recomputation": "selective"}, "'every' goes with full recomputation"),
    ("pipeline(2, microbatches=4)", {"every": 2}, "3 layers that run one after the other on a stage are no whole"),
    ("pipeline(2, microbatches=4)", {"every": 6}, "groups of 6 layers, but there are 3 that run one after the other"),
]  # fmt: skip


@pytest.mark.parametrize(("strategy", "options", "message"), REFUSED)
def test_options_that_do_not_fit_the_layers_or_the_stages_are_refused(strategy, options, message):
    with pytest.raises(SymcommError) as caught:
        model(24, 4, 6, 6, ends=False).peak_memory(strategy or None, **options)
    assert message in str(caught.value)


def test_one_layer_has_neither_stages_nor_groups():
    one = tables.load(LAYER, values={"T": 8, "D": 4, "F": 4})
    with pytest.raises(SymcommError, match="one layer cannot be cut into stages"):
        one.peak_memory("pipeline(2, microbatches=2)")
    with pytest.raises(SymcommError, match="every n-th layer is kept, but the model has one layer"):
        one.peak_memory(every=2)
