"""A search for serving: every configuration against the quantities one by one, and bounds, copies and refusals."""

import json
from fractions import Fraction
from itertools import product
from pathlib import Path

import pytest
from api import SymcommError, main
from click.testing import CliRunner

import symcomm as sc

LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 96,
         "num_hidden_layers": 3, "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 120,
         "torch_dtype": "bfloat16"}  # fmt: skip
RATES = {"peak": "1 TFLOP/s", "memory": "10 GB/s", "network": "1 GB/s"}
LIMIT = {"capacity": "1 MB", "capacity_is": "usable"}
HOW = {"traffic": "weights_and_cache", "time": "roofline"}


def step(past: int = 63) -> object:
    return sc.load(LLAMA).decode(past=past)


def searched(model=None, **options):
    given = {"devices": 8, "batch": "1..12", "accounting": HOW, "top": 1000} | LIMIT | RATES | options
    return sc.search(model or step(), **{name: value for name, value in given.items() if value is not None})


def weight_bytes(t: int) -> Fraction:
    """What a rank of tensor(t) holds, matrix by matrix: those of heads that are too few for the ranks have copies."""
    d, f, v, h, heads, kv = 64, 96, 120, 8, 8, 4
    own = Fraction(kv, min(t, kv))
    layer = 2 * d * heads * h / Fraction(t) + 2 * d * own * h / (kv // kv) + 3 * Fraction(d * f, t) + 2 * d
    return 2 * (3 * layer + 2 * Fraction(v * d, t) + d)


def by_hand(first_token: Fraction | None, per_token: Fraction | None):
    """All meshes and batches, one after another, from the quantities of one configuration each."""
    model, found = sc.load(LLAMA), {}
    for d, t, k in product((1, 2, 4, 8), repeat=3):
        if d * t * k != 8:
            continue
        parts = [f"{name}({n})" for name, n in (("data", d), ("tensor", t), ("context", k)) if n > 1]
        strategy = " + ".join(parts)
        for b in (n for n in range(1, 13) if n % d == 0):
            each = model.decode_time(strategy, 63, accounting=HOW, **RATES).at(B=b).value
            first = model.prefill_time(strategy, 16, accounting=HOW, **RATES).at(B=2 * d).value
            memory = weight_bytes(t) + model.kv_cache("batch", strategy, tokens=63).at(B=b).value
            fits = memory <= 10**6 and (first_token is None or first <= first_token)
            if fits and (per_token is None or each <= per_token):
                found[strategy, b] = (Fraction(b) / each, each, first, memory)
    return found


@pytest.mark.long
@pytest.mark.parametrize(("first", "each"), [(None, None), ("60 us", "90 us")])
def test_each_configuration_has_the_amounts_of_the_quantities_one_by_one(first, each):
    found = searched(prompt=16, prompts=2, first_token=first, per_token=each)
    wanted = by_hand(*(Fraction(text.split()[0]) / 10**6 if text else None for text in (first, each)))
    assert wanted
    got = {(c.strategy, dict(c.sizes)["B"]): (c.rate.value, c.time.value, c.first.value, c.memory.value)
           for c in found.top}  # fmt: skip
    assert got == wanted
    rates = [c.rate.value for c in found.top]
    assert rates == sorted(rates, reverse=True)
    pairs = {(rate, time) for rate, time, _, _ in wanted.values()}
    kept = {p for p in pairs if not any(q != p and q[0] >= p[0] and q[1] <= p[1] for q in pairs)}
    assert [(c.rate.value, c.time.value) for c in found.front] == sorted(kept, reverse=True)


@pytest.mark.long
def test_stages_of_a_pipeline_decode_groups_in_turn_and_the_fullest_one_counts():
    model = sc.load({**LLAMA, "num_hidden_layers": 4})
    found = searched(
        model.decode(past=63), prompt=16, prompts=2, strategies="data + tensor + pipeline", capacity="110 kB"
    )
    staged = [c for c in found.top if "pipeline" in c.strategy]
    assert {dict(c.mesh)["pipeline"] for c in staged} == {2, 4}
    assert dict(found.refused)["does not divide: N_layer by pipeline"] == 1
    assert dict(found.refused)["does not fit in the memory"] > 2
    for c in staged:
        mesh, b = dict(c.mesh), dict(c.sizes)["B"]
        d, t, p = (mesh.get(axis, 1) for axis in ("data", "tensor", "pipeline"))
        assert f"pipeline({p}, microbatches={p})" in c.strategy
        assert model.decode_time(c.strategy, 63, accounting=HOW, **RATES).at(B=b) == c.time
        alone = c.strategy.replace(f"microbatches={p}", "microbatches=1")
        assert model.prefill_time(alone, 16, accounting=HOW, **RATES).at(B=2 * d) == c.first
        layers = 4 // p * Fraction(2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 96, t) + 4 // p * 2 * 64
        ends = [Fraction(120 * 64, t), Fraction(120 * 64, t) + 64]  # the embedding, the head and its norm
        cache = Fraction(2 * 32 * 63 * b * (4 // p), d * t)
        assert c.memory.value == 2 * (layers + max(ends) + cache)
        assert sum(share.part for share in c.shares) == 1
        assert all(share.part > 0 for share in c.shares)


def test_formats_and_contexts_are_searched_as_well():
    found = searched(step("c"), formats=["", "weights=int8, cache=fp8"], sizes={"c": "63,127"}, strategies="tensor")
    assert {(c.format, dict(c.sizes)["c"]) for c in found.top} == {
        (how, c) for how in ("", "weights=int8, cache=fp8") for c in (63, 127)
    }
    first = found.top[0]
    assert (first.format, dict(first.sizes)) == ("weights=int8, cache=fp8", {"B": 12, "c": 63})
    said = {"dtype": first.format, "accounting": HOW} | RATES
    assert sc.load(LLAMA).decode_time(first.strategy, 63, **said).at(B=12) == first.time


def test_links_of_each_axis_count_where_heads_have_copies():
    links = "tensor=2 GB/s"
    found = searched(strategies="tensor", links=links, batch=4)
    asked = sc.load(LLAMA).decode_time("tensor(8)", 63, accounting=HOW, links=links, **RATES)
    assert [c.strategy for c in found.top] == ["tensor(8)"]
    assert found.top[0].time == asked.at(B=4)


def test_what_misses_a_bound_is_counted_and_the_nearest_is_told():
    found = searched(per_token="1 us")
    assert not found.feasible
    assert dict(found.refused)["takes longer than allowed for the time per token"] > 10
    least = min(c.time.value for c in found.nearest)
    assert found.nearest[0].time.value == least
    times = f"{float(least * 10**6):.4g} times the bound"
    assert times in found.summary, found.summary
    assert "Does not fit, by the least" in found.text()
    assert found.json()["limits"]["token of a sequence"]["text"] == "1 µs"


@pytest.mark.parametrize(
    ("model", "options", "text"),
    [
        (None, {"microbatches": "1,2"}, "microbatches belongs to a search for training, and a decode step has no back"),
        (None, {"recipe": "bf16_adam"}, "recipe belongs to a search for training"),
        (None, {"first_token": "1 s"}, "the time to the first token needs a prompt\nhint: for instance prompt=2"),
        (None, {"per_token": "1 GB"}, "per_token = 1 GB: a time of more than 0\nhint: for instance 50 ms"),
        (None, {"per_token": 3}, "per_token = 3: a time of more than 0"),
        (None, {"prompt": 0}, "prompt = 0: a whole number from 1 to 10,000,000"),
        (None, {"formats": "weights=int99"}, "int99"),
        (None, {"strategies": []}, "no strategy is named\nhint: for instance data + tensor"),
        (sc.load(LLAMA).prefill(), {}, "a search for serving is one of a decode step\nhint: model.decode(), and prom"),
        (sc.load(LLAMA), {"per_token": "1 s"}, "per_token belongs to a search for serving, and LlamaForCausalLM is"),
    ],
)
def test_what_belongs_to_the_other_search_is_refused(model, options, text):
    with pytest.raises(SymcommError) as caught:
        searched(model, **options)
    assert text in str(caught.value)


def test_the_front_is_drawn_over_the_time_per_token(tmp_path: Path):
    pytest.importorskip("matplotlib")
    drawn = searched().plot(tmp_path / "front.svg").axes[0]
    assert drawn.get_xlabel() == "time per token of a sequence (s)"
    assert drawn.get_ylabel() == "tokens a second of all devices"
    heights = [float(y) for y in drawn.lines[0].get_ydata()]
    assert heights == sorted(float(c.rate.value) for c in searched().front)


def test_the_command_line_searches_a_decode_step(tmp_path: Path):
    file = tmp_path / "llama.json"
    file.write_text(json.dumps(LLAMA), encoding="utf-8")
    said = [
        "--phase",
        "decode",
        "--past",
        "63",
        "--devices",
        "8",
        "--batch",
        "4,8",
        "--prompt",
        "16",
        "--capacity-is",
        "usable",
        "--peak",
        "1TFLOP/s",
    ]
    rates = ["--capacity", "1 MB", "--memory", "10 GB/s", "--network", "1 GB/s", "--per-token", "1 ms"]
    accounting = ["--accounting", "weights_and_cache", "--accounting", "roofline"]
    run = CliRunner().invoke(main, ["search", str(file), *said, *rates, *accounting])
    assert run.exit_code == 0, run.output
    best = searched(batch="4,8", prompt=16, per_token="1 ms").top[0]
    assert f"The one with the most tokens a second is {best.strategy}." in run.output
    assert "tokens/s" in run.output


def test_a_search_of_decode_steps_says_where_messages_take_no_latency():
    said = "Messages have no latency here; the small ones of a step may take most of the time with it (latency: 3 us)."
    assert said in searched(top=1).notes
    for more in ({"latency": "3 us"}, {"links": "node=4, inside=2 GB/s @ 3 us, between=1 GB/s @ 5 us"}, {"devices": 1}):
        assert said not in searched(top=1, **more).notes


@pytest.mark.parametrize("joined", [2, 4])
def test_a_search_sends_over_the_links_of_a_node_where_ranks_share_a_head(joined: int):
    links = f"node={joined}, inside=2 GB/s @ 3 us, between=1 GB/s @ 5 us"
    found = searched(links=links, network=None, sizes={"tensor": [8]}, batch=4).top[0]
    assert found.strategy == "tensor(8)"
    rates = {**RATES, "links": links} | {"network": "1 GB/s"}
    assert found.time == sc.load(LLAMA).decode_time("tensor(8)", 63, accounting=HOW, **rates).at(B=4)


def test_a_search_of_batches_says_that_the_best_is_the_last_one_tried():
    """A megabyte holds more than 12 sequences, and fewer than 400."""
    said = "The best has the largest batch that was tried, 12: a larger one may be better."
    assert searched().notes[0] == said
    assert searched(batch="12").notes[0] != said
    full = searched(batch="1..400")
    assert dict(full.top[0].sizes)["B"] < 400
    assert "largest batch" not in " ".join(full.notes)


def test_a_mesh_whose_ranks_cannot_share_the_heads_is_counted_and_the_others_are_told():
    found = searched(devices=16, batch=16, strategies="data + tensor")
    shapes = {(16, 1), (8, 2), (4, 4), (2, 8)}
    assert {tuple(n for _, n in c.mesh) for c in found.top} == shapes
    assert found.refused == (("does not divide: n_kv by tensor", 1),)


def test_links_by_the_symbol_of_a_degree_are_those_of_the_ranks_that_share_a_head():
    times = {searched(links=f"{name}=2 GB/s @ 3 us", sizes={"tensor": [8]}, batch=4, strategies="tensor").top[0].time
             for name in ("tensor", "N_TP")}  # fmt: skip
    alone = sc.load(LLAMA).decode_time("tensor(8)", 63, accounting=HOW, links="tensor=2 GB/s @ 3 us", **RATES)
    assert times == {alone.at(B=4)}


def test_a_call_over_two_axes_goes_over_the_links_of_the_one_with_ranks():
    links = {"tensor": "300 GB/s", "context": "3 GB/s", "data": "5 GB/s @ 20 us"}
    found = searched(links=links, batch=8, strategies="data + tensor(4) + context")
    assert {c.strategy for c in found.top} == {"data(2) + tensor(4)", "tensor(4) + context(2)"}
    for c in found.top:
        mine = {axis: said for axis, said in links.items() if axis in c.strategy}
        alone = sc.load(LLAMA).decode_time(c.strategy, 63, accounting=HOW, links=mine, **RATES)
        assert c.time == alone.at(B=8), c.strategy


def test_meshes_whose_axes_do_not_share_out_a_node_are_refused():
    found = searched(links="node=6, inside=2 GB/s, between=1 GB/s", batch=8, strategies="data + tensor")
    assert (found.top, found.refused) == ((), (("does not divide: the places of a node of 6 ranks", 4),))


def test_a_search_of_decode_steps_refuses_weights_on_the_host_as_a_step_does():
    with pytest.raises(SymcommError, match="does not time what goes to the host and comes back"):
        searched(accounting={**HOW, "offloading": "model_on_host"})


def test_a_window_that_ranks_of_context_cut_is_a_number_of_positions():
    """A window of 8: a cache of 3 positions over two ranks does not divide, those of 7 and 15 are 8 of them."""
    model = sc.load({**LLAMA, "model_type": "mistral", "architectures": ["MistralForCausalLM"], "sliding_window": 8})
    found = searched(model.decode(), devices=2, batch=8, sizes={"c": "2,7,15"}, strategies="context")
    assert found.refused == (("does not divide: (Min(c, L_w - 1) + 1) by context", 1),)
    told = {dict(c.sizes)["c"]: c.time for c in found.top}
    assert told == {c: model.decode_time("context(2)", c, accounting=HOW, **RATES).at(B=8) for c in (7, 15)}


@pytest.mark.parametrize("strategy", [None, "data(2)"])
def test_a_step_without_logits_still_crosses_every_layer(strategy: str | None):
    """What is left is the layers alone: four of them read four times what one does."""
    times = []
    for layers in (1, 4):
        model = sc.load({**LLAMA, "num_hidden_layers": layers})
        said = ["matrices", {"logits": "none"}]
        times.append(model.decode_time(strategy, 63, accounting=said, **RATES).at(B=8).value)
    assert times[1] == 4 * times[0]
