"""Steps of generating text through the stages of a pipeline, against groups that are followed one by one."""

from collections.abc import Sequence
from fractions import Fraction

import pytest
from inference_models import model

import symcomm as sc

LAYER = r"""Computation	Input	Output
Q = x W^Q	x [B,L,D], W^Q [D,D]	Q [B,L,D]
K = x W^K	W^K [D,D]	K [B,L,D]
V = x W^V	W^V [D,D]	V [B,L,D]
A = causalsoftmax(Q K^T)	-	A [B,L,L]
y = A V	-	y [B,L,D]
"""
RATES = {"peak": "1 TFLOP/s", "memory": "10 GB/s", "network": "1 GB/s", "latency": "2 us"}
SERIAL = {"traffic": "weights_and_cache", "time": "roofline"}


def followed(
    stages: Sequence[Fraction], hops: Sequence[Fraction], groups: int, rounds: int, apart: bool
) -> list[Fraction]:
    """When the last group is done with each of its rounds: round by round, group by group, stage by stage.

    A stage begins with a group when the group is there and the one before it has left. Where messages are sent
    ``apart`` from the work of a stage, each is a stage of its own.
    """
    times = [t for pair in zip(stages, hops, strict=True) for t in pair] if apart else [
        stage + hop for stage, hop in zip(stages, hops, strict=True)
    ]  # fmt: skip
    free, there, ends = [Fraction(0)] * len(times), [Fraction(0)] * groups, list[Fraction]()
    for _ in range(rounds):
        for group in range(groups):
            now = there[group]
            for at, time in enumerate(times):
                free[at] = now = max(now, free[at]) + time
            there[group] = now
        ends.append(there[-1])
    return ends


@pytest.mark.few(5)
@pytest.mark.parametrize("how", ["roofline", "overlap"])
@pytest.mark.parametrize(("p", "groups"), [(2, 1), (2, 2), (4, 2), (4, 4), (4, 6)])
def test_groups_of_equal_stages_follow_one_another_for_ever(how: str, p: int, groups: int):
    said = {"traffic": "weights_and_cache", "time": how}
    layers, batch = sc.load(LAYER, repeat="N", values={"N": 8, "D": 64, "c": 99}), 12
    layer = sc.load(LAYER, values={"D": 64, "c": 99}).decode_time(accounting=said, **RATES)
    stage = Fraction(8, p) * layer.at(B=Fraction(batch, groups)).value
    hop = Fraction(2, 10**6) + Fraction(2 * batch // groups * 64, 10**9)  # the next stage reads rows of bf16
    ends = followed([stage] * p, [hop] * p, groups, 50, how == "overlap")
    asked = layers.decode_time(f"pipeline({p}, microbatches={groups})", accounting=said, **RATES)
    assert asked.at(B=batch).value == ends[-1] - ends[-2]
    asked.check(deep=True)
    first = layers.prefill_time(f"pipeline({p}, microbatches={groups})", 50, accounting=said, **RATES)
    mine = sc.load(LAYER, values={"D": 64}).prefill_time(None, 50, accounting=said, **RATES)
    stage, hop = Fraction(8, p) * mine.at(B=Fraction(batch, groups)).value, Fraction(2, 10**6) + Fraction(
        2 * batch // groups * 64 * 50, 10**9)  # fmt: skip
    assert first.at(B=batch).value == followed([stage] * p, [hop] * (p - 1) + [0], groups, 1, how == "overlap")[0]
    first.check(deep=True)


def parts(b: int, c: int) -> tuple[Fraction, Fraction, Fraction]:
    """The times of Llama-3-8B's embedding, a layer and its head in a step: bytes over bandwidth, counted by hand."""
    d, kv, f, v, wide = 4096, 1024, 14336, 128256, Fraction(1, 10**10)
    layer = 2 * (2 * d * d + 2 * d * kv + 3 * d * f) + 2 * 2 * kv * b * (c + 1)
    return 2 * b * d * wide, layer * wide, 2 * (d * v + b * v) * wide


@pytest.mark.parametrize(("strategy", "layers"), [("pipeline(4, microbatches=4)", (8, 8, 8, 8)),
                                                  ("pipeline(layers=9:9:8:6, microbatches=4)", (9, 9, 8, 6)),
                                                  ("pipeline(p)", (16, 16))])  # fmt: skip
def test_the_embedding_and_the_head_are_on_the_first_and_the_last_stage(strategy: str, layers: tuple[int, ...]):
    batch, c, groups = 8, 1000, 4
    embedding, layer, head = parts(batch // groups, c)
    stages = [n * layer for n in layers]
    stages[0], stages[-1] = stages[0] + embedding, stages[-1] + head
    hop = Fraction(2, 10**6) + Fraction(2 * 4096 * batch // groups, 10**9)
    back = Fraction(2, 10**6) + Fraction(4 * batch // groups, 10**9)  # a token is a number of 32 bits
    ends = followed(stages, [hop] * (len(layers) - 1) + [back], groups, 40, apart=False)
    fast = RATES | {"peak": "100 PFLOP/s"}
    told = {"p": len(layers), "m": groups} if "(p)" in strategy else {}
    asked = model("Llama-3-8B").decode_time(strategy, accounting=SERIAL, **fast).at(B=batch, c=c, **told)
    assert asked.value == ends[-1] - ends[-2]
    rate = model("Llama-3-8B").decode_throughput(strategy, accounting=SERIAL, **fast).at(B=batch, c=c, **told)
    assert rate.value == batch / asked.value
    each = model("Llama-3-8B").decode_throughput(strategy, per="device", accounting=SERIAL, **fast)
    assert each.at(B=batch, c=c, **told).value == rate.value / len(layers)
    of_step = model("Llama-3-8B").decode().step_time(strategy, accounting=SERIAL, **fast)
    assert of_step.at(B=batch, c=c, **told) == asked


@pytest.mark.few(2)
@pytest.mark.parametrize("groups", [1, 4, 6])
@pytest.mark.parametrize("how", ["roofline", "overlap"])
def test_what_the_messages_between_stages_cost_is_the_step_with_them_less_the_step_without(how: str, groups: int):
    batch, p = 12, 4
    said, slow = {"accounting": {"traffic": "weights_and_cache", "time": how}, **RATES}, {"latency": "2 ms"}
    one = sc.load(LAYER, values={"D": 64, "c": 99}).decode_time(**said).at(B=Fraction(batch, groups)).value
    hop = Fraction(2, 1000) + Fraction(2 * batch // groups * 64, 10**9)
    with_hops, without, alone = (
        followed([stage] * p, [message] * p, groups, 50, how == "overlap" and stage != 0)
        for stage, message in ((2 * one, hop), (2 * one, Fraction(0)), (Fraction(0), hop))
    )
    step = sc.load(LAYER, repeat="N", values={"N": 8, "D": 64, "c": 99}).decode()
    strategy = f"pipeline({p}, microbatches={groups})"
    exposed, hidden, network = (
        step.step_time(strategy, of=of, **said | slow).at(B=batch).value for of in ("exposed", "hidden", "network")
    )
    assert network == alone[-1] - alone[-2]
    assert exposed == with_hops[-1] - with_hops[-2] - without[-1] + without[-2]
    assert hidden == network - exposed >= 0
    step.step_time(strategy, of="hidden", **said | slow).check(deep=True)


def test_a_request_through_stages_is_its_prefill_and_the_steps_one_by_one():
    made = model("Llama-3-8B").at(B=4)
    strategy, said = "tensor(2) + pipeline(2, microbatches=2)", {"accounting": SERIAL, **RATES}
    steps = [made.decode_time(strategy, **said).at(c=c).value for c in range(100, 104)]
    first = made.prefill_time(strategy, 100, **said).at().value
    assert made.request_latency(100, 5, strategy, **said).at().value == first + sum(steps)


@pytest.mark.parametrize("how", ["serial", "overlap"])
@pytest.mark.parametrize("what", ["layers", "model"])
def test_replicas_of_a_pipeline_each_send_back_their_own_part_of_a_batch(what: str, how: str):
    made = sc.load(LAYER, repeat="N", values={"N": 8, "D": 64}) if what == "layers" else model("Llama-3-8B")
    said = {"accounting": {"traffic": "weights_and_cache", "time": how}, **RATES, "past": 99}
    both = made.decode_time("pipeline(4, microbatches=4) + data(2)", **said)
    assert both.at(B=16) == made.decode_time("pipeline(4, microbatches=4)", **said).at(B=8)
    both.check(deep=True)


def test_under_context_parallelism_the_message_back_is_what_the_first_stage_reads_and_no_statistics():
    made = sc.load(LAYER, repeat="N", values={"N": 8, "D": 64, "c": 99})
    asked = made.decode_time("pipeline(4, microbatches=4) + context(2)", accounting=SERIAL, **RATES)
    (sent,) = (step for step in asked.steps if step.name == "n_send,fwd,pipe" and step.relation == ":=")
    assert str(asked.worth[sent.name]) == "B*D/4"  # a group of B/4 rows
    assert "One send: input `x`." in sent.reason.text


@pytest.mark.parametrize("strategy", ["tensor(2)", "pipeline(3, microbatches=2)"])
def test_latencies_are_added_up_over_the_steps_of_a_request(strategy: str):
    made = model("tiny-a").at(B=2)
    said = {"accounting": SERIAL, **RATES, "latency": "1 ms"}
    steps = [made.decode_time(strategy, **said).at(c=c).value for c in range(7, 9)]
    assert made.request_latency(7, 3, strategy, **said).at().value == (
        made.prefill_time(strategy, 7, **said).at().value + sum(steps))  # fmt: skip


@pytest.mark.parametrize("strategy", ["tensor(2)", "pipeline(3, microbatches=2)"])
def test_a_step_whose_messages_take_no_latency_says_so(strategy: str):
    """Of Llama-3-70B over eight ranks, 161 all-reduces of 14 messages each wait 6.8 ms of a step's 12.1."""
    said = "Messages have no latency here; the small ones of a step may take most of the time with it (latency: 3 us)."
    step = {**RATES, "strategy": strategy}
    assert said not in model("tiny-a").decode_time(**step).notes
    del step["latency"]
    assert said in model("tiny-a").decode_time(**step).notes
    for told in ({"strategy": "data(2)"}, {"network": None}, {"strategy": None}):
        assert said not in model("tiny-a").decode_time(**{**step, **told}).notes


@pytest.mark.parametrize(("strategy", "degrees"), [("pipeline(1)", {}), ("pipeline(p)", {"p": 1})])
def test_one_stage_is_no_pipeline(strategy: str, degrees: dict[str, int]):
    made = model("Llama-3-8B")
    alone = made.decode_time(accounting=SERIAL, **RATES).at(B=2, c=9)
    assert made.decode_time(strategy, accounting=SERIAL, **RATES).at(B=2, c=9, **degrees) == alone


@pytest.mark.parametrize(("how", "boundaries"), [({}, 1), ({"pipeline": "all_boundaries"}, 3)])
def test_a_step_sends_its_new_rows_over_each_boundary(how: dict[str, str], boundaries: int):
    sent = model("Llama-3-8B").decode().communication("pipeline(4)", accounting=how).at(B=6, c=9).value
    assert sent == boundaries * 6 * 4096 * 2


FEED_FORWARD = r"""Computation	Input	Output
h = x W^1	x [B,L,E], W^1 [E,F]	h [B,L,F]
g = gelu(h)	-	g [B,L,F]
y = g W^2	W^2 [F,E]	y [B,L,E]
"""


def test_weights_cut_along_both_axes_move_activations_with_the_root_of_the_ranks():
    """Pope et al., arXiv 2211.05102, section 3.2.2: with F = 4 E the best cut is sqrt(n)/2 by 2 sqrt(n)."""
    step = sc.load(FEED_FORWARD).decode()
    sent = step.communication("tensor(t) + cut(E, n)")
    least = {}
    for ranks in (16, 64, 256):
        each = {t: sent.at(B=8, E=4096, F=16384, t=t, n=ranks // t).value for t in (2, 4, 8, 16, 32, 64) if t <= ranks}
        least[ranks] = min(each.items(), key=lambda one: one[1])
    wide = 2 * 8 * 4096
    assert least == {16: (8, wide), 64: (16, wide // 2), 256: (32, wide // 4)}
    along = step.communication("tensor(t)").at(B=8, E=4096, F=16384, t=64).value
    assert along == wide  # however many ranks there are


@pytest.mark.parametrize("c", [8191, 8192])
def test_texts_of_any_length_are_cut_along_their_tokens(c: int):
    made = model("Llama-3-8B")
    said = {"accounting": {"traffic": "weights_and_cache"}, "peak": "100 PFLOP/s", "memory": "10 GB/s",
            "network": "100 TB/s"}  # fmt: skip
    asked = made.decode_time("context(4)", **said)
    weights = 2 * (32 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336) + 4096 * 128256)
    others = 2 * (4096 + 128256)  # a row of the embedding, and logits
    moved = weights + others + Fraction(131072 * (c + 1), 4)  # one of the ranks writes the new row
    assert asked.at(B=1, c=c).value == moved / 10**10
    assert any("each rank has the mean share" in note for note in asked.notes)
    assert made.kv_cache("sequence", "context(4)").at(c=c).value == Fraction(131072 * c, 4)
