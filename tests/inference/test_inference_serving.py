"""What serving asks of steps: times, sums over tokens, batches and what fits, against sums made one by one."""

from __future__ import annotations

import subprocess
import sys
from fractions import Fraction
from math import ceil
from pathlib import Path
from typing import Any

import pytest
from inference_models import GOLDEN, model

import symcomm as sc

RATES = {"peak": "1000 FLOP/s", "memory": "10 B/s"}
SAID = {"attention": "causal_half", "traffic": "weights_and_cache"}


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("name", "prompt", "tokens", "rates"),
    [
        ("tiny-a", 4, 9, RATES),
        ("tiny-b", 1, 9, RATES),  # a window of 4 is full on the way
        ("tiny-b", 2, 30, {"peak": "60 FLOP/s", "memory": "40 B/s"}),
        ("tiny-a", 3, 200, {"peak": "40 FLOP/s", "memory": "40 B/s"}),  # first computing limits, then the memory
        ("tiny-mla", 5, 12, RATES),
    ],
)
def test_a_request_takes_as_long_as_its_steps_one_by_one(name: str, prompt: int, tokens: int, rates: Any) -> None:
    made = model(name).at(B=2)
    asked = made.request_latency(prompt, tokens, accounting=SAID, **rates)
    step = made.decode_time(accounting=SAID, **rates)
    steps = [step.at(c=c).value for c in range(prompt, prompt + tokens - 1)]
    assert asked.at().value == made.prefill_time(prompt=prompt, accounting=SAID, **rates).at().value + sum(steps)
    if name == "tiny-b":
        asked.check(deep=True)


def test_missing_numbers_of_a_request_are_named_in_one_order():
    layer = sc.load("Computation\tInput\tOutput\ny = x W\tx [B, L, D], W [D, F]\ty [B, L, F]")
    with pytest.raises(sc.SymcommError, match=r"depend on B, D, F, R, W_mem\n"):
        layer.request_latency(16, 4)


def test_a_request_of_a_model_without_attention_takes_as_long_as_its_steps_one_after_another():
    layer = sc.load("Computation\tInput\tOutput\ny = x W\tx [B, L, D], W [D, F]\ty [B, L, F]")
    said = {"accounting": {"time": "serial"}}
    numbers = {"B": 2, "D": 4, "F": 8, "R": 7, "W_mem": 11}
    prefill, step = layer.prefill_time(prompt=16, **said), layer.decode_time(**said)
    asked = layer.request_latency(16, 4, **said)
    assert asked.at(**numbers).value == prefill.at(**numbers).value + 3 * step.at(**numbers).value
    asked.check(deep=True)


def test_a_request_whose_times_are_added_up_takes_as_long_as_its_steps_for_every_batch() -> None:
    made, said = model("tiny-a"), {"attention": "causal_half", "time": "serial"}
    asked, step = made.request_latency(4, 9, accounting=said, **RATES), made.decode_time(accounting=said, **RATES)
    first = made.prefill_time(prompt=4, accounting=said, **RATES)
    for batch in (1, 3):
        steps = [step.at(B=batch, c=c).value for c in range(4, 12)]
        assert asked.at(B=batch).value == first.at(B=batch).value + sum(steps)


def test_the_keys_of_an_encoder_are_cached_in_the_format_of_the_cache() -> None:
    table = (Path(__file__).parents[2] / "examples" / "layers" / "cross-attention.md").read_text(encoding="utf-8")
    B, S, D = sc.symbols("B S D")
    assert sc.load(table).kv_cache(dtype="cache=fp8").expr == 2 * B * S * D  # a byte for each of K and V


def test_a_prefill_without_attention_computes_its_last_position_alone() -> None:
    table = (Path(__file__).parents[2] / "examples" / "layers" / "language-model.md").read_text(encoding="utf-8")
    B, D, F, V = sc.symbols("B D F V")
    made = sc.load(table)
    for step in (made.prefill(), made.decode()):  # 2 for each entry of both matrices and the head
        assert (step.flops().expr - 2 * B * D * (2 * F + V)).expand() == 0


@pytest.mark.few(2)
@pytest.mark.parametrize("name", ["tiny-a", "tiny-b", "tiny-moe", "tiny-mla"])
def test_operations_of_a_request_are_those_of_its_steps(name: str) -> None:
    made = model(name).at(B=2)
    asked = made.generation_flops(3, 7, accounting="causal_half")
    step = made.decode().flops(accounting="causal_half")
    steps = [step.at(c=c).value for c in range(3, 9)]
    assert asked.at().value == made.prefill(new=3).flops(accounting="causal_half").at().value + sum(steps)


def test_a_sum_in_symbols_holds_for_numbers() -> None:
    asked = model("tiny-a").generation_flops("S", "T", accounting="causal_half")
    asked.check(deep=True)
    given = model("tiny-a").generation_flops(5, 4, accounting="causal_half").at(B=3).value
    assert asked.at(B=3, S=5, T=4).value == given


def test_at_the_critical_batch_computing_takes_as_long_as_the_memory() -> None:
    made = model("Llama-3-8B")
    asked = made.critical_batch(device="H100-SXM", accounting="weights_and_cache")
    asked.check(deep=True)
    for context in (0, 100, 300):
        batch = asked.at(c=context).value
        step = made.decode(past=context)
        moved = [step.traffic(accounting="weights_and_cache").at(B=n).value for n in (1, 2)]
        each = moved[1] - moved[0]
        rate, bandwidth = Fraction(989_429_760_000_000), Fraction(3_352_000_000_000)
        assert batch * step.flops().at(B=1).value / rate == (moved[0] - each + batch * each) / bandwidth


@pytest.mark.parametrize(
    ("ask", "told"),
    [
        (lambda m: m.critical_batch(past=8192, device="H100-SXM"), "no batch is compute bound"),
        (lambda m: m.critical_batch(device="H100-SXM").at(c=8192), "(?s)from c = .*hint: a shorter context"),
        (lambda m: m.critical_batch(past="B", device="H100-SXM"), "earlier positions are B, and the batch B is solved"),
        (lambda m: m.critical_batch(of="context", accounting="matrices"), "(?s)counts no cache.*matrices_and_cache"),
        (lambda m: m.request_latency(10, 5, **RATES), "depend on B"),
        (lambda m: m.at(B=2).request_latency(10, 5, **RATES).at(B=3), "added up at B = 2"),
        (lambda m: m.prefill().decode_time(**RATES), "and the model is the prefill of a prompt"),
        (lambda m: m.decode(past=3).decode_time(past=4, **RATES), "the step says already how many positions"),
        (lambda m: m.serving_capacity("8 GB", capacity_is="nominal_GB"), "into 8 GB: they take 16.06 GB a device\n"),
        (lambda m: m.decode().time("pipeline(4)", **RATES), "of one rank with all layers: it has no stages of a pip"),
        (lambda m: m.prefill().roofline(strategy="pipeline(4)", **RATES), "roofline is of one rank with all lay"),
        (lambda m: m.decode().step_time("pipeline(4)", schedule="gpipe", **RATES), "the groups of a decode follow one"),
        (lambda m: m.serving_capacity("80 GB"), "what does a capacity of 80 GB mean"),
    ],
)  # fmt: skip
def test_what_has_no_answer_is_told(ask: Any, told: str) -> None:
    with pytest.raises(sc.SymcommError, match=told):
        ask(model("Llama-3-8B"))


def test_the_last_context_has_a_batch_below_it_and_none_behind_it() -> None:
    made = model("Llama-3-8B")
    last, bandwidth = made.critical_batch(of="context"), 3 * 10**12
    for rate in (2 * 10**14, 5 * 10**14, 9 * 10**14):
        context = last.at(R=rate, W_mem=bandwidth).value
        assert made.critical_batch().at(c=int(context) - 1, R=rate, W_mem=bandwidth).value > 0
        with pytest.raises(sc.SymcommError, match="no batch is compute bound"):
            made.critical_batch().at(c=int(context) + 1, R=rate, W_mem=bandwidth)
    with pytest.raises(sc.SymcommError, match=r"however short the context is, where .*\nhint: a faster memory"):
        last.at(R=10**17, W_mem=bandwidth)
    with pytest.raises(sc.SymcommError, match=r"a batch is compute bound at every context, where .*\nhint: of: batch"):
        last.at(R=10**10, W_mem=bandwidth)


def test_experts_that_hang_on_the_batch_have_no_critical_batch_in_closed_form() -> None:
    with pytest.raises(sc.SymcommError, match="each sequence does not add as much"):
        model("Mixtral-8x7B").critical_batch(device="H100-SXM")


@pytest.mark.parametrize("c", [20, 63, 64, 5000])
def test_a_window_bounds_what_each_sequence_adds_to_the_critical_batch(c: int) -> None:
    made, rates = model("Mistral-7B-v0.1").at(L_w=64), {"peak": "1000 TFLOP/s", "memory": "3000 GB/s"}
    asked = made.critical_batch(accounting={"traffic": "weights_and_cache"}, **rates).at(c=c)
    d, kv, f, v, layers, seen = 4096, 1024, 14336, 32000, 32, min(c, 63)
    weights = layers * (2 * d * d + 2 * d * kv + 3 * d * f) + d * v
    operations = 2 * weights + layers * 4 * d * (seen + 1)
    moved = 2 * d + 2 * v + layers * 2 * 2 * kv * (seen + 1)  # the token's row, logits, and what is read and written
    assert asked.value == 2 * weights / (Fraction(3, 1000) * operations - moved)


def test_tokens_a_second_are_the_batch_over_a_step() -> None:
    made = model("Llama-3-8B")
    step = made.decode_time("tensor(8)", device="H100-SXM", network="450 GB/s").at(B=16, c=1023).value
    of_all = made.decode_throughput("tensor(8)", device="H100-SXM", network="450 GB/s")
    of_one = made.decode_throughput("tensor(8)", per="device", device="H100-SXM", network="450 GB/s")
    assert of_all.at(B=16, c=1023).value == 16 / step
    assert of_one.at(B=16, c=1023).value == 2 / step
    of_all.check(deep=True)


def test_caches_are_given_out_in_pages_beside_a_shared_prefix() -> None:
    made, page, tokens, prefix = model("Llama-3-8B"), 16, 1001, 100
    asked = made.serving_capacity("80 GB", tokens, "nominal_GB", page=page, shared=prefix, workspace="2 GB")
    token, weights = 131_072, 2 * int(made.parameters().at().value)
    own = (ceil(tokens / page) - prefix // page) * page * token
    assert asked.at().value == (80 * 10**9 - weights - 2 * 10**9 - prefix // page * page * token) // own
    asked.check(deep=True)


def test_of_the_stages_of_a_pipeline_that_one_counts_on_which_the_fewest_fit() -> None:
    made = model("Llama-3-8B")
    fits = [made.serving_capacity("24 GB", 8192, "nominal_GB", "pipeline(2)", stage=n).at().value for n in (0, 1)]
    assert made.serving_capacity("24 GB", 8192, "nominal_GB", "pipeline(2)").at().value == min(fits)


SMALL = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 16, "intermediate_size": 24,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 32,
}  # fmt: skip


def test_room_that_is_reserved_is_given_out_in_whole_pages():
    model = sc.load(SMALL, dtype="bf16")
    token = 2 * 2 * 2 * 4 * 2  # keys and values of two heads of four numbers in two layers, two bytes each
    assert model.cache_of_sequences(lengths="100, 30", reserved=200).at().value == 2 * 200 * token
    assert model.cache_of_sequences(lengths="100, 30", reserved=200, page=16).at().value == 2 * 208 * token


def test_a_shared_prefix_that_there_is_not_is_refused():
    with pytest.raises(sc.SymcommError) as caught:
        sc.load(SMALL).cache_of_sequences(lengths="100, 30", prefix_is="copied")
    assert str(caught.value) == "prefix_is changes nothing without a prefix\nhint: prefix: 512"


@pytest.mark.parametrize("option", ["prompt", "tokens", "chunk"])
def test_a_size_of_very_many_digits_is_refused(option: str):
    said = {"prompt": 8, "tokens": 2, "chunk": 4, option: "9" * 5000}
    with pytest.raises(sc.SymcommError) as caught:
        sc.load(SMALL).generation_flops(**said)
    assert str(caught.value) == f"'{option}' has 5,000 digits; at most 15 are read\nhint: {option}: 8"


def test_chunks_of_a_window_need_no_number_of_sequences() -> None:
    table = model("Mistral-7B-v0.1")
    made = table.generation_flops(9000, 1, 4096, accounting="causal_half")
    pairs = sum(min(position + 1, 4096) for position in range(9000))
    sizes = GOLDEN["models"]["Mistral-7B-v0.1"]
    d, n, f = sizes["D"], sizes["nkv"] * sizes["H"], sizes["F"]
    layers = sizes["N"] * (9000 * 2 * (2 * d * d + 2 * d * n + 3 * d * f) + 4 * d * pairs)
    assert made.at(B=3).value == 3 * (layers + 2 * d * sizes["V"])


def test_the_first_question_about_a_decode_step_waits_for_no_library_of_graphs() -> None:
    config = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 8,
              "num_key_value_heads": 2, "intermediate_size": 96, "vocab_size": 128}  # fmt: skip
    code = (
        f"import sys, symcomm as sc; sc.load({config}).decode_throughput(device='H100-SXM').markdown()\n"
        "print([name for name in ('networkx', 'sympy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "['sympy']"


@pytest.mark.parametrize("ranks", ["2", "t"])
def test_a_step_shares_an_uneven_vocabulary_as_its_model_does(ranks: str) -> None:
    """Of 257 words a rank has 129 in the embedding and in the head, and half of two layers; norms whole; in bf16.

    A sequence of 64 tokens has a key and a value of a head of 16 numbers on a rank, in two layers.
    """
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
             "num_key_value_heads": 2, "vocab_size": 257}  # fmt: skip
    llama = sc.load({"model_type": "llama", "torch_dtype": "bfloat16", "architectures": ["LlamaForCausalLM"], **sizes})
    layer = (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 128) // 2 + 2 * 64
    room = 10**7 - 2 * (2 * layer + 2 * 129 * 64 + 64)
    given = {"t": 2} if ranks == "t" else {}
    for asked in (llama, llama.decode(), llama.prefill(new=64)):
        fit = asked.serving_capacity("10 MB", tokens=64, capacity_is="usable", strategy=f"tensor({ranks})")
        assert fit.at(**given).value == room // (2 * 64 * 2 * 16 * 2)


WHOLE, TOKEN = 16_060_522_496, 131_072  # of Llama-3-8B in bf16: 8 030 261 248 weights, and 32 layers of 2 x 8 x 128


def too_large(made: Any) -> list[str]:
    return [note for note in made.notes if "this cannot run" in note]


def test_a_time_tells_that_weights_and_cache_do_not_fit_the_named_device() -> None:
    asked, rates = model("Llama-3-8B"), {"device": "H100-SXM", "accounting": {"capacity": "nominal_GB"}}
    assert (80 * 10**9 - WHOLE) // (8192 * TOKEN) == 59  # sequences that fit
    most, more = asked.at(B=59, c=8192), asked.at(B=60, c=8192)
    assert not too_large(most.decode_time(**rates))
    told = [
        "The weights and the cache take 80.49 GB on a device, and H100-SXM has 80 GB: this cannot run. It would take "
        "more ranks, fewer bytes a number, or fewer sequences or tokens."
    ]  # 16 060 522 496 + 60 * 8192 * 131 072 = 80 485 031 936
    for made in (
        more.decode_time(**rates), more.decode_throughput(**rates), more.decode().time(**rates),
        more.decode().step_time(**rates), more.prefill_time(prompt=8192, **rates),
    ):  # fmt: skip
        assert too_large(made) == told
        assert told[0] in made.text()
        assert "cannot run" in made.html()
        assert "cannot run" in made.markdown()
    for made in (
        more.decode_time("tensor(2)", **rates), more.decode_time(dtype="fp8", **rates),
        more.decode_time(past=8000, **rates),
        more.decode_time(**{**rates, "accounting": "weights_and_cache"}),  # 80 GB may be 80 * 2**30
        asked.at(B=60).decode_time(**rates), more.decode_time(peak="989 TFLOP/s", memory="3.35 TB/s"),
    ):  # fmt: skip
        assert not too_large(made)


def test_weights_alone_that_do_not_fit_are_told_as_such_and_the_fullest_stage_counts() -> None:
    asked = model("Llama-3-70B").at(B=1, c=8192)
    assert too_large(asked.decode_time(device="H100-SXM")) == [
        "The weights alone take 141.1 GB on a device, and H100-SXM has 80 GB: this cannot run. It would take "
        "more ranks or fewer bytes a number."
    ]  # 70 553 706 496 weights
    layer = 2 * 8192 * 8192 + 2 * 8192 * 1024 + 3 * 8192 * 28672 + 2 * 8192
    ends = 128256 * 8192  # the embedding; the last stage has the head, and a norm
    assert 2 * (80 * layer + 2 * ends + 8192) == 141_107_412_992
    for first, fits in ((50, False), (40, True)):
        stages = f"pipeline(layers={first}:{80 - first}, microbatches=1)"
        assert (2 * (first * layer + ends) < 80 * 2**30) == fits
        assert (not too_large(asked.decode_time(stages, device="H100-SXM"))) == fits


def test_a_request_tells_of_its_last_token_whether_its_cache_fits() -> None:
    rates = {"device": "H100-SXM", "accounting": {**SAID, "capacity": "nominal_GB"}}
    asked = model("Llama-3-8B").at(B=64)
    assert (80 * 10**9 - WHOLE) // (64 * TOKEN) == 7622
    assert not too_large(asked.request_latency(7000, 623, **rates))  # the last token is made, and not read
    [told] = too_large(asked.request_latency(7000, 624, **rates))
    assert told.startswith("The weights and the cache take 80.01 GB on a device")  # 7623 tokens of 64 sequences
    [told] = too_large(asked.at(P=7700).request_latency("P", 100, **rates))
    assert told.startswith("The weights and the cache take 81.48 GB")  # 7799 tokens, and not the 7700 of the prompt


def test_what_a_search_refuses_for_its_memory_is_what_a_time_tells() -> None:
    step = model("Llama-3-8B").at(c=8192).decode()
    rates = {"device": "H100-SXM", "accounting": {**SAID, "capacity": "nominal_GB"}}
    found = sc.search(step, devices=1, batch="56..63", **rates)
    assert (found.feasible, dict(found.top[0].sizes)["B"]) == (4, 59)
    told = [batch for batch in range(56, 64) if too_large(step.at(B=batch).time(**rates))]
    assert told == [60, 61, 62, 63]
