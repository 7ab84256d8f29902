"""The step time of whole models under every schedule, against events that are followed here from the definitions."""

from __future__ import annotations

from fractions import Fraction
from functools import cache

import pytest
from api import SymcommError, find

import symcomm as sc

LLAMA = {"model_type": "llama", "hidden_size": 8, "num_hidden_layers": 8, "num_attention_heads": 2,
         "num_key_value_heads": 1, "intermediate_size": 16, "vocab_size": 40}  # fmt: skip
DEEPSEEK = {
    "model_type": "deepseek_v2", "hidden_size": 8, "num_hidden_layers": 8, "num_attention_heads": 2,
    "num_key_value_heads": 2, "intermediate_size": 96, "moe_intermediate_size": 16, "vocab_size": 40,
    "q_lora_rank": None, "kv_lora_rank": 8, "qk_nope_head_dim": 4, "qk_rope_head_dim": 4, "v_head_dim": 4,
    "n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2, "first_k_dense_replace": 2,
}  # fmt: skip
FAST = {"peak": 10**12, "memory": 10**18, "network": 10**40}
BATCH, LENGTH = 32, 4


@cache
def model(name: str):
    return sc.load({"llama": LLAMA, "deepseek": DEEPSEEK}[name]).at(B=BATCH, L=LENGTH)


@cache
def region_time(name: str, region: str, m: int, phase: str) -> Fraction:
    """A forward or a backward of one repetition of a region, as it is timed by itself; 0 where nothing is done."""
    part = sc.load({"llama": LLAMA, "deepseek": DEEPSEEK}[name]).part(region)
    try:
        return part.time(phase=phase, **FAST).at(B=Fraction(BATCH, m), L=LENGTH).value
    except SymcommError:
        return Fraction(0)


def followed(orders, times, tails=None):
    """The end of the last event; an action waits for its rank and for what it needs, by the definitions."""
    ends: dict[tuple[str, int, int], Fraction] = {}
    last = max(a.stage for order in orders for item in order for a in item)
    free, place = [Fraction(0)] * len(orders), [0] * len(orders)
    left = sum(map(len, orders))
    while left:
        before = left
        for rank, order in enumerate(orders):
            while place[rank] < len(order):
                item = order[place[rank]]
                needs = []
                for kind, stage, i in item:
                    if kind == "F":
                        needs += [("F", stage - 1, i)] if stage else []
                    elif kind == "W":
                        needs += [("B", stage, i)]
                    else:
                        needs += [("F", stage, i), *([("B", stage + 1, i)] if stage < last else [])]
                if not all(need in ends for need in needs):
                    break
                start = max([free[rank], *(ends[need] for need in needs)])
                free[rank] = start + sum(times[kind][stage] for kind, stage, _ in item)
                for kind, stage, i in item:
                    for made in {"F": "F", "B": "B", "W": "W", "D": "BW"}[kind]:
                        ends[made, stage, i] = free[rank]
                place[rank] += 1
                left -= 1
        assert left < before, "the ranks wait for one another"
    held = [{a.stage for item in order for a in item} for order in orders]
    return max(end + sum(tails[s] if tails else 0 for s in mine) for end, mine in zip(free, held, strict=True))


def stages_of(name: str, chunks: list[dict[str, Fraction]], m: int) -> dict[str, list[Fraction]]:
    """The forward and the backward of each stage, from what it holds."""
    return {
        letter: [sum((n * region_time(name, region, m, phase) for region, n in held.items()), Fraction(0))
                 for held in chunks]
        for letter, phase in (("F", "forward"), ("D", "backward"))
    }  # fmt: skip


def sending(times, message, both):
    """The last stage has none to send its results to, the first one none for its gradients."""
    silent = {"F": len(times["F"]) - 1, "D": 0}
    return {letter: [t if n == silent[letter] else both(t, message) for n, t in enumerate(each)]
            for letter, each in times.items()}  # fmt: skip


def llama_stages(count: int, layers: list[int] | None = None) -> list[dict[str, Fraction]]:
    each = layers or [Fraction(8, count)] * count
    found = [{"layer": Fraction(n)} for n in each]
    found[0]["embedding"] = Fraction(1)
    found[-1]["head"] = Fraction(1)
    return found


def long(*case):
    return pytest.param(*case, marks=pytest.mark.long)


CASES = [
    ("gpipe", 4, 2, None), ("1f1b", 4, 2, None), ("1f1b", 4, 8, None), ("interleaved", 2, 4, 2),
    *(long("gpipe", p, m, None) for p, m in ((2, 1), (2, 4), (4, 8), (8, 4))),
    *(long("1f1b", p, m, None) for p, m in ((2, 1), (2, 4), (4, 1), (4, 4), (4, 16), (8, 4), (8, 16))),
    long("interleaved", 4, 8, 2), long("interleaved", 2, 2, 4),
]  # fmt: skip


@pytest.mark.few(2)
@pytest.mark.parametrize(("schedule", "p", "m", "chunks"), CASES)
def test_a_whole_model_takes_as_long_as_the_events_of_the_schedule_that_is_asked(schedule, p, m, chunks):
    times = stages_of("llama", llama_stages(p * (chunks or 1)), m)
    assert times["F"][-1] > times["F"][1 if p > 2 else 0]
    options = {"chunks": chunks} if chunks else {}
    step = model("llama").step_time(f"pipeline({p}, microbatches={m})", schedule=schedule, **FAST, **options)
    assert step.at().value == followed(find(schedule).ranks(p, m, chunks), times)


APART = ["zb-h1", "dualpipe", *map(long, ["zb-h2", "zb-v", "v-half", "v-min", "dualpipev"])]


@pytest.mark.parametrize("schedule", APART)
def test_gradients_of_inputs_and_weights_that_run_apart_are_timed_apart(schedule):
    p, m = 2, 8
    record = find(schedule)
    chunks = int(record.chunks / record.placement.copies(p, record.chunks))
    whole = stages_of("llama", llama_stages(p * chunks), m)
    # Each product of a forward has one of the gradient of its input and one of that of its weights, but for scores,
    # which have two of inputs; so what the weights take is counted from the parameters: 2 operations each.
    tokens = Fraction(BATCH * LENGTH, m)
    matrices = {"layer": 8 * 8 * 2 + 8 * 4 * 2 + 3 * 8 * 16, "head": 8 * 40, "embedding": 0}
    weights = [
        sum(n * 2 * tokens * matrices[region] for region, n in held.items()) / FAST["peak"]
        for held in llama_stages(p * chunks)
    ]
    times = {**whole, "W": weights, "B": [d - w for d, w in zip(whole["D"], weights, strict=True)]}
    step = model("llama").step_time(f"pipeline({p}, microbatches={m})", schedule=schedule, **FAST).at().value
    assert step == followed(record.ranks(p, m), times)


def test_schedules_of_uneven_stages_take_different_times():
    took = {
        schedule: model("llama").step_time("pipeline(4, microbatches=8)", schedule=schedule, **FAST).at().value
        for schedule in ("gpipe", "1f1b", "zb-h1")
    }
    assert len({*took.values()}) >= 2
    assert took["zb-h1"] < took["1f1b"]


def test_numbers_of_layers_that_are_given_for_each_stage_are_followed():
    layers = [1, 3, 3, 1]
    text = f"pipeline(layers={':'.join(map(str, layers))}, microbatches=8)"
    for schedule in ("gpipe", "1f1b", "zb-h2"):
        if schedule != "zb-h2":
            times = stages_of("llama", llama_stages(4, layers), 8)
            step = model("llama").step_time(text, schedule=schedule, **FAST).at().value
            assert step == followed(find(schedule).ranks(4, 8), times)
    with pytest.raises(SymcommError, match="cuts them into chunks as well"):
        model("llama").step_time(text, schedule="zb-v", **FAST)


@pytest.mark.parametrize("p", [4, long(2)])
def test_symbols_for_stages_and_microbatches_give_the_same_numbers(p):
    derived = model("llama").step_time("pipeline(p, microbatches=m)", **FAST)
    for m in (1, 2, 4, 8):
        assert derived.at(p=p, m=m).value == followed(find("1f1b").ranks(p, m), stages_of("llama", llama_stages(p), m))
    whole = model("llama").step_time(microbatches=4, **FAST)
    assert derived.at(p=1, m=4) == whole.at()  # one stage is no pipeline


TABLE = "| Computation | Input | Output |\n|---|---|---|\n| y = xW | x [B, L, D], W [D, D] | y [B, L, D] |\n"


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe", long("zb-h1")])
@pytest.mark.parametrize("rate", [10**6, 10**8, long(10**7)])
@pytest.mark.parametrize(("p", "m"), [(2, 4), (4, 8), long(2, 1), long(8, 4), long(8, 16), long(2, 8)])
def test_stages_that_are_alike_send_only_where_there_is_a_neighbour(schedule, rate, p, m):
    """What is sent adds up with the work: the events of forwards and backwards. A D is twice an F."""
    one = sc.load(TABLE, repeat="N").at(N=8, B=16, L=2, D=4)
    work, message = Fraction(8, p) * 2 * Fraction(32, m) * 16 / 10**9, Fraction(32, m) * 4 * 2 / rate
    rates = {"peak": 10**9, "memory": 10**40, "network": rate, "accounting": "serial"}
    times = {"F": [work] * p, "D": [2 * work] * p}
    if schedule == "zb-h1":
        times = {"F": [work] * p, "B": [work] * p, "W": [work] * p}
    silent = {"F": p - 1, "D": 0, "B": 0, "W": None}
    times = {letter: [t + (message if letter != "W" and n != silent[letter] else 0) for n, t in enumerate(each)]
             for letter, each in times.items()}  # fmt: skip
    exact = followed(find(schedule).ranks(p, m), times)
    number = one.step_time(f"pipeline({p}, microbatches={m})", schedule=schedule, **rates)
    symbol = one.step_time("pipeline(q, microbatches=m)", schedule=schedule, **rates)
    for step in (number.at(), symbol.at(q=p, m=m)):
        assert abs(step.value / exact - 1) < Fraction(1, 10**12)


@pytest.mark.parametrize("rate", [10**6, 10**8])
@pytest.mark.parametrize(("p", "m"), [(2, 4), (3, 8), (4, 1), (4, 8)])
def test_slots_of_whole_microbatches_are_as_long_as_what_each_stage_sends_in_them(rate, p, m):
    """A line of stages that hand microbatches on: each starts when it is free and the one before it has ended."""
    layers = 12
    one = sc.load(TABLE, repeat="N").at(N=layers, B=24, L=2, D=4)
    work, message = Fraction(layers, p) * 6 * Fraction(48, m) * 16 / 10**9, Fraction(48, m) * 4 * 2 / rate
    slots = [max(work, message * ((n > 0) + (n < p - 1))) for n in range(p)]
    free = [Fraction(0)] * p
    for _ in range(m):
        came = Fraction(0)
        for n, slot in enumerate(slots):
            came = free[n] = max(free[n], came) + slot
    rates = {"peak": 10**9, "memory": 10**40, "network": rate}
    number = one.step_time(f"pipeline({p}, microbatches={m})", **rates).at()
    symbol = one.step_time("pipeline(q, microbatches=m)", **rates).at(q=p, m=m)
    assert number.value == symbol.value == free[-1]


@pytest.mark.parametrize("convention", ["overlap", "serial"])
@pytest.mark.parametrize("rate", [10**9, long(10**8), long(10**11)])
def test_messages_are_part_of_the_pieces_of_work(convention, rate):
    p, m = 4, 8
    times = stages_of("llama", llama_stages(p), m)
    message = Fraction(BATCH * LENGTH, m) * 8 * 2 / rate
    both = max if convention == "overlap" else lambda a, b: a + b
    with_messages = sending(times, message, both)
    options = {**FAST, "accounting": convention, "network": rate}
    if convention == "serial":
        options["memory"] = 10**40  # what goes through the memory is added
    step = model("llama").step_time(f"pipeline({p}, microbatches={m})", **options).at().value
    exact = followed(find("1f1b").ranks(p, m), with_messages)
    assert step == exact if convention == "overlap" else abs(step / exact - 1) < Fraction(1, 10**15)


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
def test_gradients_that_are_reduced_beside_the_last_backward_lengthen_the_end_of_each_rank(schedule):
    p, m, rate = 4, 8, 10**9
    small = {letter: [t / 2 for t in each] for letter, each in stages_of("llama", llama_stages(p), m).items()}
    message = Fraction(BATCH * LENGTH, 2 * m) * 8 * 2 / rate
    times = sending(small, message, max)
    parameters = {"layer": 8 * 8 * 2 + 8 * 4 * 2 + 3 * 8 * 16 + 2 * 8, "head": 8 * 40 + 8, "embedding": 8 * 40}
    tails = []
    for held, backward in zip(llama_stages(p), small["D"], strict=True):
        # The reduction of each repetition runs beside its backward, so that each takes the longer of both.
        last = sum(n * max(region_time("llama", region, m, "backward") / 2, Fraction(parameters[region] * 2, rate))
                   for region, n in held.items())  # fmt: skip
        back = message if "embedding" not in held else 0
        tails.append(max(last, back) - max(backward, back))
    step = model("llama").step_time(
        f"data(2) + pipeline({p}, microbatches={m})", schedule=schedule, accounting="with_backward",
        **{**FAST, "network": rate},
    )  # fmt: skip
    assert step.at().value == followed(find(schedule).ranks(p, m), times, tails)
    assert max(tails) > 0


def test_the_last_slot_of_stages_that_are_alike_has_its_message_whatever_runs_beside_it():
    """A reduction that takes no time changes nothing."""
    table = "| Computation | Input | Output |\n|---|---|---|\n| y = xW | x [B, L, D], W [D, D] | y [B, L, D] |\n"
    one = sc.load(table, repeat="N").at(N=4, B=8, L=2, D=4)
    rates = {"peak": 10**9, "memory": 10**18, "links": "pipe=100 MB/s, data=1000000000 GB/s"}
    text = "data(2) + pipeline(2, microbatches=2)"
    for time in ("serial", "overlap"):
        beside, alone = (
            one.step_time(text, accounting={"time": time, "gradient_sync": sync}, **rates).at().value
            for sync in ("with_backward", "end_of_batch")
        )
        assert abs(beside / alone - 1) < Fraction(1, 10**6)


@pytest.mark.parametrize("name", ["llama", "deepseek"])
def test_a_pipeline_of_one_stage_is_no_pipeline(name):
    one, none = (model(name).step_time(text, microbatches=4, device="A100-80GB-SXM").at().value
                 for text in ("pipeline(1, microbatches=4)", None))  # fmt: skip
    assert one == none
    assert model(name).communication("pipeline(1, microbatches=4)").at().value == 0


def deepseek_stages(layers: list[int]) -> list[dict[str, Fraction]]:
    """A stage takes layers from the front: two dense ones, then six with experts."""
    kinds = ["dense layer"] * 2 + ["layer with experts"] * 6
    found: list[dict[str, Fraction]] = []
    for n in layers:
        mine, kinds = kinds[:n], kinds[n:]
        found.append({kind: Fraction(mine.count(kind)) for kind in dict.fromkeys(mine)})
    found[0]["embedding"] = Fraction(1)
    found[-1]["head"] = Fraction(1)
    return found


@pytest.mark.parametrize(("text", "layers"), [
    ("pipeline(2, microbatches=4)", [4, 4]), long("pipeline(4, microbatches=4)", [2] * 4),
    long("pipeline(8, microbatches=4)", [1] * 8), ("pipeline(layers=1:2:5, microbatches=4)", [1, 2, 5]),
])  # fmt: skip
def test_two_kinds_of_layers_are_cut_as_the_chain_that_they_are(text, layers):
    times = stages_of("deepseek", deepseek_stages(layers), 4)
    for schedule in ("1f1b", "gpipe"):
        step = model("deepseek").step_time(text, schedule=schedule, **FAST).at().value
        assert step == followed(find(schedule).ranks(len(layers), 4), times)


@pytest.mark.long
def test_the_stages_of_two_kinds_of_layers_hold_the_whole_model_between_them():
    deep = model("deepseek")
    for text, stages in (("pipeline(2, microbatches=4)", 2), ("pipeline(8, microbatches=4)", 8),
                         ("pipeline(layers=1:2:5, microbatches=4)", 3)):  # fmt: skip
        states = [deep.state_memory(text, stage=stage).at().value for stage in range(stages)]
        assert sum(states) == deep.state_memory().at().value
        kept = [deep.activation_memory(text, schedule="gpipe", stage=stage).at().value for stage in range(stages)]
        assert sum(kept) == deep.activation_memory().at().value  # all microbatches are in flight
        sent = deep.communication(text, accounting="all_boundaries").at().value
        assert sent == (stages - 1) * 2 * BATCH * LENGTH * 8 * 2


def test_symbolic_stages_of_two_kinds_of_layers_hold_while_the_first_one_holds_all_of_the_first_kind():
    deep = sc.load(DEEPSEEK)
    symbolic = deep.state_memory("pipeline(p, microbatches=4)", stage="first")
    for p in (2, 4):
        assert symbolic.at(p=p).value == deep.state_memory(f"pipeline({p}, microbatches=4)").at().value
    table = {**DEEPSEEK, "first_k_dense_replace": 2}
    assert sc.load(table).state_memory("pipeline(8, microbatches=4)", stage=1).at().value > 0
    with pytest.raises(SymcommError, match="8 layers are not divisible into 3 stages"):
        deep.state_memory("pipeline(3, microbatches=4)")
    with pytest.raises(SymcommError, match="cuts them into chunks as well"):
        model("deepseek").step_time("pipeline(2, microbatches=4)", schedule="interleaved", chunks=2, **FAST)


@pytest.mark.parametrize("strategy", ["data(2)", "fully-sharded(2)", "zero-2(2)"])
def test_gradients_that_are_reduced_every_microbatch_are_sent_as_often(strategy):
    table = "| Computation | Input | Output |\n|---|---|---|\n| y = xW | x [B, L, D], W [D, D] | y [B, L, D] |\n"
    one, m = sc.load(table, repeat="N").at(N=3, B=8, L=2, D=4), 4
    often = {"accumulation": "reduced_every_microbatch"}
    gathered = {"microbatches": m} if strategy == "fully-sharded(2)" else {}  # the others have nothing to do again
    once = one.communication(strategy, **gathered).at().value
    every = one.communication(strategy, microbatches=m, accounting=often).at().value
    assert every - once == (m - 1) * 3 * 4 * 4 * 2  # one payload of all gradients for each further microbatch
    # Nothing overlaps: a step is longer by the further reductions.
    serial = {"peak": 10**9, "memory": 10**40, "network": 10**6}
    reduced_once, reduced_often = (
        one.step_time(strategy, microbatches=m, accounting={"time": "serial", **how}, **serial).at().value
        for how in ({}, often)
    )
    share = Fraction(1, 2) if strategy != "data(2)" else Fraction(1)  # of a ring over two ranks
    more = (m - 1) * 3 * 4 * 4 * 2 * share / serial["network"]
    assert abs((reduced_often - reduced_once) / more - 1) < Fraction(1, 10**9)


def test_microbatches_without_an_effect_on_communication_are_refused():
    with pytest.raises(SymcommError, match="change nothing where gradients are reduced once"):
        model("llama").communication("data(2)", microbatches=4)
    with pytest.raises(SymcommError, match="a pipeline takes its microbatches from its strategy"):
        model("llama").communication("data(2) + pipeline(2, microbatches=4)", microbatches=4,
                                     accounting="reduced_every_microbatch")  # fmt: skip


def test_sharded_weights_are_gathered_for_each_microbatch():
    """D^2 weights of two bytes: two gathers a microbatch, and the gradients scattered once, or each time."""
    layer = sc.load("Computation\tInput\tOutput\ny = x W\tx [T, D], W [D, D]\ty [T, D]\n", values={"T": 64, "D": 8})
    once = 8 * 8 * 2
    for m, accounting, times in ((1, {}, 3), (4, {}, 9), (4, {"accumulation": "reduced_every_microbatch"}, 12),
                                 (4, {"gathered_weights": "keep"}, 5)):  # fmt: skip
        found = layer.communication("fsdp(8)", microbatches=m, accounting=accounting)
        assert found.at().value == times * once, (m, accounting)


def test_sharded_weights_are_gathered_for_each_microbatch_of_a_pipeline():
    layers = sc.load("Computation\tInput\tOutput\ny = x W\tx [T, D], W [D, D]\ty [T, D]\n", repeat="N",
                     values={"T": 64, "D": 8, "N": 4})  # fmt: skip
    made = layers.communication("fsdp(8) + pipeline(2, microbatches=4)", "all-gather")
    assert made.at().value == 4 * 4 * 2 * 8 * 8 * 2  # layers, microbatches, forward and backward, elements, bytes
