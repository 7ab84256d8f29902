"""Prefill and decode as one transformation of the graph: what is kept, what runs, and what is refused by name."""

from __future__ import annotations

import json
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from api import ARCHITECTURES, batch_axes, class_names, expert_axes, paired_axes
from inference_models import model

import symcomm as sc

SMALL: dict[str, Any] = json.loads((Path(__file__).parents[1] / "data" / "small_families.json").read_text())
ENCODERS = ("BertForMaskedLM", "RobertaForMaskedLM", "DistilBertForMaskedLM", "ViTForImageClassification")
# What a layer of each kind keeps, by hand: rotated keys, values; a latent and its rotated key; once a request.
KEPT = {
    "GPT2LMHeadModel": ["K_i", "V_i"], "OPTForCausalLM": ["K_i", "V_i"],
    "GPTJForCausalLM": ["S_i", "V_i"], "GPTNeoXForCausalLM": ["S_i", "V_i"],
    "DeepseekV2ForCausalLM": ["f", "k"] * 2, "DeepseekV3ForCausalLM": ["f", "k"] * 2,
    "T5ForConditionalGeneration": ["K_i", "V_i", "K^C_i", "V^C_i"],
    "Gemma2ForCausalLM": ["S_j", "V_j"] * 2, "GptOssForCausalLM": ["S_j", "V_j"] * 2,
}  # fmt: skip
HEADER = "Computation\tInput\tOutput\n"
# Queries of each head, keys that all heads share and values made of them: no layer of a family is so.
VARIANT = (
    HEADER
    + r"""Q = x W^Q	x [B,L,D], W^Q [D,n H]	Q [B,L,n H]
[Q_1, \dots, Q_{n}] = Partition(Q)	-	Q_i [B,L,H], i = 1, \dots, n
K = x W^K	W^K [D,H]	K [B,L,H]
V = K W^V	W^V [H,n H]	V [B,L,n H]
[V_1, \dots, V_{n}] = Partition(V)	-	V_i [B,L,H], i = 1, \dots, n
S_i = causalsoftmax(Q_i K^T)	-	S_i [B,L,L]
Z_i = S_i V_i	-	Z_i [B,L,H]
Z = Merge([Z_1, \dots, Z_n])	-	Z [B,L,n H]
y = Z W^O + x	W^O [n H,D]	y [B,L,D]
"""
)
LINEAR = (
    HEADER
    + r"""Q = x W^Q	x [B,L,D], W^Q [D,H]	Q [B,L,H]
K = x W^K	W^K [D,H]	K [B,L,H]
V = x W^V	W^V [D,F]	V [B,L,F]
S = einsum("blh,blf->bhf", K, V)	-	S [B,H,F]
y = Q S	-	y [B,L,F]
"""
)


def small(name: str) -> sc.Model:
    return sc.load(json.dumps(SMALL[name]), architecture=name)


@pytest.mark.parametrize("name", [name for name in SMALL if name not in ENCODERS])
def test_every_decoder_keeps_what_later_positions_read(name: str) -> None:
    step = small(name).decode().graph.step
    assert step is not None
    assert [one.tensor.rpartition(":")[2] for one in step.kept] == KEPT.get(name, ["S_j", "V_j"])
    assert {one.role for one in step.kept} == ({"cache", "request"} if name.startswith("T5") else {"cache"})


@pytest.mark.parametrize("name", ENCODERS)
@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_an_encoder_is_refused_with_the_row_that_reads_later_positions(name: str, phase: str) -> None:
    with pytest.raises(sc.SymcommError, match=r"the row that computes `P_i` reads later positions"):
        getattr(small(name), phase)()


OF_SERVING: dict[str, Any] = {
    "kv_cache": {"tokens": 9}, "decode_time": {"past": 9, "device": "H100-SXM"},
    "prefill_time": {"prompt": 9, "device": "H100-SXM"}, "decode_throughput": {"past": 9, "device": "H100-SXM"},
    "serving_capacity": {"capacity": "1 GB", "capacity_is": "usable", "tokens": 9}, "attention_intensity": {},
    "request_latency": {"prompt": 5, "tokens": 4, "device": "H100-SXM"},
    "generation_flops": {"prompt": 5, "tokens": 4},
}  # fmt: skip


@pytest.mark.few(1)
@pytest.mark.parametrize("name", SMALL)
def test_every_architecture_answers_what_servers_ask_or_says_which_row_reads_later_positions(name: str) -> None:
    made = small(name).at(B=2)
    if name.startswith("T5"):
        made = made.at(L_enc=4)
    for quantity, options in OF_SERVING.items():
        ask = partial(getattr(made, quantity), **options)
        if name in ENCODERS:
            with pytest.raises(sc.SymcommError, match=r"the row that computes `P_i` reads later positions"):
                ask()
        else:
            assert ask().at(c=9).value > 0 if quantity == "attention_intensity" else ask().at().value > 0
    if name not in ENCODERS:
        steps = [made.decode_time(past=c, device="H100-SXM").at().value for c in (5, 6, 7)]
        first = made.prefill_time(prompt=5, device="H100-SXM").at().value
        request = made.request_latency(prompt=5, tokens=4, device="H100-SXM").at().value
        assert request == first + sum(steps)
        fit = made.serving_capacity("1 GB", tokens=9, capacity_is="usable").at().value
        weights = 2 * made.parameters().at().value
        assert fit == (10**9 - weights) // made.kv_cache("sequence", tokens=9).at().value


def test_every_architecture_of_the_readers_has_a_small_model_here() -> None:
    assert {class_names()[name][0].model_type for name in SMALL} == {*ARCHITECTURES}


@pytest.mark.few(2)
@pytest.mark.parametrize("name", [name for name in SMALL if name not in ENCODERS])
def test_operations_traffic_and_cache_of_a_step_are_those_of_loops(name: str) -> None:
    made = small(name)
    for step in (made.decode(), made.decode(new=3), made.prefill(new=4, past="c"), made.prefill()):
        step.flops(accounting="causal_half").check(deep=True)
        step.traffic().check(deep=True)
        step.kv_cache().check(deep=True)


@pytest.mark.few(2)
@pytest.mark.parametrize("name", ["GPT2LMHeadModel", "LlamaForCausalLM", "MistralForCausalLM", "MixtralForCausalLM"])
def test_a_prefill_is_a_sum_of_decode_steps(name: str) -> None:
    made, many = small(name), 5
    choices = {"attention": "causal_half", "logits": "all"}
    whole = made.prefill(new=many).flops(accounting=choices).at(B=2).value
    assert whole == sum(made.decode(past=c).flops(accounting=choices).at(B=2).value for c in range(many))
    assert whole == sum(
        made.prefill(new=n, past=c).flops(accounting=choices).at(B=2).value for c, n in ((0, 2), (2, 3))
    )


def test_a_window_is_kept_and_read_no_further_than_a_query_sees() -> None:
    step = small("MistralForCausalLM").at(L_w=4).decode()
    scores = [step.flops(op="P").at(B=1, c=c).value for c in (0, 2, 3, 9)]
    assert [one / scores[0] for one in scores] == [1, 3, 4, 4]


def test_an_attention_of_ones_own_gets_its_cache() -> None:
    made = sc.load(VARIANT)
    step = made.decode().graph.step
    assert step is not None
    assert [one.tensor for one in step.kept] == ["K"]  # the values are made of it
    assert made.kv_cache("token").at(H=8, n=4).value == 8 * 2
    assert made.kv_cache("token", accounting={"cache": "heads"}).at(H=8, n=4).value == (8 + 4 * 8) * 2


def test_a_raw_input_that_is_key_and_value_is_kept() -> None:
    made = sc.load(HEADER + "S = causalsoftmax(x x^T)\tx [B,L,D]\tS [B,L,L]\ny = S x\t-\ty [B,L,D]\n")
    assert made.kv_cache("sequence", tokens=100).at(D=8).value == 100 * 8 * 2
    step = made.decode().flops()
    assert step.at(B=3, D=8, c=99).value == 2 * (2 * 3 * 8 * 100)  # scores and sums over 100 positions
    step.check(deep=True)
    made.decode().traffic().check(deep=True)


def test_new_and_earlier_positions_never_share_a_symbol() -> None:
    step = sc.load(VARIANT).decode(new="c").graph.step
    assert step is not None
    assert (str(step.new), str(step.past)) == ("c", "c_past")


def test_a_state_does_not_grow() -> None:
    made = sc.load(LINEAR)
    kept = made.kv_cache("sequence", tokens=1000)
    assert kept.at(H=3, F=5).value == 3 * 5 * 2
    made.decode().flops().check(deep=True)
    # the queries, keys and values of a token, its part of the state, and what the query reads of that
    assert made.decode().flops().at(B=1, D=7, H=3, F=5).value == 2 * (7 * 3 + 7 * 3 + 7 * 5 + 3 * 5 + 3 * 5)


def test_what_axes_mean_is_read_in_the_model() -> None:
    """After the product with a latent is turned round, heads look like experts."""
    made = small("DeepseekV3ForCausalLM")
    step = made.decode().graph
    assert expert_axes(step) == expert_axes(made.graph)
    assert paired_axes(step) == paired_axes(made.graph)
    assert batch_axes(step) == batch_axes(made.graph)


def test_strategies_need_no_formula_of_their_own() -> None:
    step = model("Llama-3-8B").decode()
    B, D, N, heads = 4, 4096, 32, 32
    for strategy, moved in {
        "data(2)": 0,
        "tensor(8)": (2 * N + 1) * B * D * 2,
        "tensor(16)": (2 * N + 1) * B * D * 2,
        # the largest score and the sum of each head in fp32, and the values that are summed
        "context(4)": N * (2 * B * heads * 4 + B * D * 2),
    }.items():
        assert step.communication(strategy).at(B=B, c=1023).value == moved, strategy


def test_sequence_parallelism_cuts_nothing_of_a_few_new_rows_and_says_so() -> None:
    step = model("DeepSeek-V3").decode()
    plain, beside = step.communication("tensor(8)"), step.communication("tensor(8) + sequence")
    assert plain.expr == beside.expr
    assert any("sequence parallelism cuts nothing" in note for note in beside.notes)


def test_the_cache_of_a_latent_has_no_heads_to_cut() -> None:
    made = model("DeepSeek-V3")
    whole = made.kv_cache("sequence").at(c=64).value
    assert made.kv_cache("sequence", "tensor(8)").at(c=64).value == whole
    assert made.kv_cache("sequence", "context(8)").at(c=63).value == whole / 8 / 64 * 63


def test_no_earlier_position_is_a_number_that_may_be_asked_for() -> None:
    step = model("Llama-3-8B").decode()
    assert step.flops().at(B=1, c=0).value == model("Llama-3-8B").decode(past=0).flops().at(B=1).value
    assert step.at(c=0).flops().at(B=1).value == step.flops().at(B=1, c=0).value


@pytest.mark.parametrize(
    ("ask", "told"),
    [
        (lambda m: m.decode().flops("training"), "scope: training is asked of flops, and a decode step has no"),
        (lambda m: m.prefill().time(phase="backward"), "a prefill step has no backward pass"),
        (lambda m: m.decode().activation_memory(), "activation_memory is of a training step"),
        (lambda m: m.decode().throughput("data(2)"), "throughput is of a training step"),
        (lambda m: m.decode().request_latency(9, 2), "request_latency is of the whole model, and not of one step"),
        (lambda m: m.decode().generation_flops(9, 2), "generation_flops is of the whole model, and not of one step"),
        (lambda m: m.decode().crossover(over="B"), "crossover is of a training step"),
        (lambda m: m.decode(new=0), "new is 0\nhint: at least 1, or a symbol"),
        (lambda m: m.prefill(new=0), "new is 0\nhint: at least 1, or a symbol"),
        (lambda m: m.decode(past=-1), "past is -1"),
        (lambda m: m.decode(past="c+1"), r"past is c\+1\nhint: a number of positions, or a symbol for it"),
        (lambda m: m.decode(new=10**40), "new is 10000"),
        (lambda m: m.kv_cache("batch", "tensor(24)"), "hint: the ranks of tensor that share a key/value head may be 2"),
        (lambda m: m.decode(past=100).kv_cache(tokens=7), "the step says how many tokens there are"),
        (lambda m: m.kv_cache("sequence", "tensor(12)"), "8 is not divisible by 12"),
        (lambda m: m.kv_cache("sequence", dtype="int3"), "int3"),
    ],
)  # fmt: skip
def test_what_a_step_does_not_have_is_refused_by_name(ask: Any, told: str) -> None:
    with pytest.raises(sc.SymcommError, match=told):
        ask(model("Llama-3-8B"))


def test_a_step_behind_the_table_of_positions_is_refused() -> None:
    made = small("GPT2LMHeadModel")
    rows = int(made.values["n_pos"])
    made.decode(past=rows - 1)
    with pytest.raises(
        sc.SymcommError, match=f"ends at position {rows + 1}, but the table of positions ends at {rows}"
    ):
        made.decode(past=rows)
    for ask in (
        lambda: made.decode().flops().at(B=1, c=rows),
        lambda: made.decode_time(past=rows, device="H100-SXM"),
        lambda: made.prefill_time(prompt=rows + 1, device="H100-SXM"),
    ):
        with pytest.raises(sc.SymcommError, match="the table of positions ends"):
            ask()


def test_a_text_behind_the_table_of_positions_is_refused_by_every_quantity_of_serving() -> None:
    made, rates = small("GPT2LMHeadModel").at(B=1), {"device": "H100-SXM"}
    rows = int(made.values["n_pos"])
    # The last step of a request reads all tokens but the one that it makes.
    made.generation_flops(rows - 4, 5).at()
    made.request_latency(rows - 4, 5, **rates).at()
    made.kv_cache("sequence", tokens=rows).at()
    for ask in (
        lambda: made.generation_flops(rows - 4, 6),
        lambda: made.request_latency(rows - 4, 6, **rates),
        lambda: made.kv_cache("sequence", tokens=rows + 1),
        lambda: made.serving_capacity("80 GB", tokens=rows + 1, capacity_is="nominal_GB"),
        lambda: made.cache_of_sequences(f"3, {rows + 1}"),
        lambda: made.kv_cache("sequence", tokens="S").at(S=rows + 1),
        lambda: made.generation_flops("S", 6).at(S=rows - 4),
    ):
        with pytest.raises(sc.SymcommError) as caught:
            ask()
        told = f"the text ends at position {rows + 1}, but the table of positions ends at {rows}\nhint: choose fewer"
        assert told in str(caught.value)


def test_a_window_is_no_bound_on_the_length_of_a_text() -> None:
    made = small("MistralForCausalLM").at(B=1)
    window = int(made.values["L_w"])
    assert made.kv_cache("sequence", tokens=10**6).at() == made.kv_cache("sequence", tokens=window).at()


@pytest.mark.parametrize(
    ("ask", "told"),
    [
        (lambda: small("BertForMaskedLM").decode(new=5), "cannot be run position by position: the row that computes"),
        (lambda: small("BertForMaskedLM").generation_flops(8, 4), "reads later positions, which no mask hides"),
        (lambda: small("LlamaForCausalLM").kv_cache(dtype="cache=fp3"), "unknown number format 'fp3'\nhint: did you"),
        (lambda: small("LlamaForCausalLM").decode_time("tensor(3)"), "hint: tensor may be 2 or 4, the next that divi"),
        (lambda: small("LlamaForCausalLM").kv_cache(strategy="tensor(6)"), "4 is not divisible by 6\nhint: tensor may"),
    ],
)  # fmt: skip
def test_bad_input_of_serving_says_what_would_work(ask: Any, told: str) -> None:
    with pytest.raises(sc.SymcommError) as caught:
        ask()
    assert told in str(caught.value)


def test_a_weight_with_a_row_for_each_position_is_refused() -> None:
    table = HEADER + "y = x W + P\tx [B, L, D], W [D, F], P [L, F]\ty [B, L, F]\n"
    with pytest.raises(sc.SymcommError, match="`P` has a row for each of the positions"):
        sc.load(table, weights=["P"]).decode()


def test_a_table_without_masks_is_read_as_causal_with_a_note() -> None:
    made = sc.load(VARIANT.replace("causalsoftmax", "softmax"))
    assert any("no row writes a mask" in note for note in made.decode().notes)
    assert made.kv_cache("token").at(H=8, n=4).value == 16


def test_conventions_of_a_step_are_told_where_they_decide() -> None:
    latent = small("DeepseekV3ForCausalLM")
    assert {"cache", "mla"} <= {*latent.decode().flops().touched}
    assert not {"cache", "mla", "logits"} & {*small("LlamaForCausalLM").decode().flops().touched}
    assert "logits" in small("LlamaForCausalLM").prefill().flops().touched
    told = small("LlamaForCausalLM").decode().flops(accounting={"mla": "expanded"}).notes
    assert any("Nothing here depends on `mla: expanded`" in note for note in told)


@pytest.mark.parametrize("how", ["matrices", "weights_and_cache"])
def test_a_prefill_with_latents_reads_no_gain_of_the_norm_before_its_cache(how: str) -> None:
    """Sizes of tiny-mla; a dense layer, three with five experts and a shared one, a head, and one row of words."""
    attention = 9 * 7 + 7 * 3 * 6 + 9 * 8 + 6 * 3 * 9 + 3 * 5 * 9
    matrices = 4 * attention + 3 * 9 * 11 + 3 * (9 * 5 + 6 * 3 * 9 * 3) + 9 * 19
    moved = {"matrices": 0, "weights_and_cache": 3 * 9 + 3 * 4 * 8 + 19}[how]  # of three words; latents, and logits
    said = {"traffic": how, "experts_read": "every_expert"}
    made = model("tiny-mla").prefill(new=3).traffic(dtype="fp8", accounting=said)
    assert made.at(B=1).value == matrices + moved
    made.check(deep=True)


def test_the_traffic_of_a_step_behind_an_encoder_may_have_a_number_of_earlier_positions() -> None:
    """Four attention matrices, queries and outputs of cross-attention, a feed-forward of 3072; head of 32,128 words."""
    matrices = 12 * (6 * 768**2 + 2 * 768 * 3072) + 768 * 32128
    step = model("T5-base").decode(past=3)
    assert step.traffic(dtype="fp8", accounting="matrices").at(B=2, L_enc=5).value == matrices


@pytest.mark.parametrize("past", [3, 7, 1023])
def test_a_number_of_earlier_positions_places_collectives_as_a_symbol_for_it_does(past: int) -> None:
    """Each of two layers sums two numbers (fp32) a head and D values (bf16): each rank sends all of them, three times.

    Weights cut along both axes were placed for 2^16 sequences, where a symbol stands for 2^13 positions of eight.
    """
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
             "num_key_value_heads": 2, "vocab_size": 256}  # fmt: skip
    llama = sc.load({"model_type": "llama", "torch_dtype": "bfloat16", "architectures": ["LlamaForCausalLM"], **sizes})
    said: dict[str, Any] = {"peak": "1e15 FLOP/s", "memory": "1e15 B/s", "network": "1e9 B/s", "latency": "1 us",
                            "accounting": "recursive_doubling"}  # fmt: skip
    sent = 2 * (2 * 4 * 2 * 4 + 2 * 2 * 64)
    assert llama.decode_time("context(2)", past=past, **said).at(B=2).value == Fraction(6000 + sent, 10**9)
    assert llama.decode_time("context(2)", **said).at(B=2, c=past).value == Fraction(6000 + sent, 10**9)
    (told,) = (note for note in llama.decode().communication("context(2)").notes if "fewest" in note)
    assert "while 7 < c" in told  # two numbers of four bytes twice, or c + 1 of two bytes once
    both = "tensor(2) + cut(D, 2)"
    number = llama.decode(past=past).communication(both).at(B=2)
    assert number == llama.decode().communication(both).at(B=2, c=past)
    chunk = llama.prefill(new=8, past=past).communication(both).at(B=2)
    assert chunk == llama.prefill(new="S", past="c").communication(both).at(B=2, S=8, c=past)


def test_a_chunk_behind_a_window_meets_the_keys_that_are_kept() -> None:
    """Six queries behind ten positions, window 4: three keys are kept; two heads of four numbers, scores and values."""
    sizes = {"hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
             "num_key_value_heads": 1, "vocab_size": 32, "sliding_window": 4}  # fmt: skip
    mistral = sc.load({"model_type": "mistral", "architectures": ["MistralForCausalLM"], **sizes})
    chunk = mistral.prefill(new=6, past=10)
    others = chunk.flops(accounting="left_out").at(B=1).value
    pairs = {how: (chunk.flops(accounting=how).at(B=1).value - others) / (2 * 2 * 2 * 4) for how in
             ("full", "windowed", "causal_half")}  # fmt: skip
    assert pairs == {"full": 6 * (3 + 6), "windowed": 6 * 4, "causal_half": 6 * 4}
    assert "all keys that are there" in chunk.flops().markdown()


@pytest.mark.parametrize("strategy", [None, "tensor(2)", "ulysses(2)", "context(2)"])
@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_the_order_of_absorbed_products_does_not_hang_on_when_numbers_are_given(phase: str, strategy: str) -> None:
    made = model("DeepSeek-V2-Lite")

    def asked(step: sc.Model, **numbers: int) -> list[Fraction]:
        found = [step.time(strategy, device="H100-SXM"), step.flops()]
        found += [step.communication(strategy)] if strategy else []
        return [one.at(B=4, **numbers).value for one in found]

    late = getattr(made, phase)(new="q", past="c")
    for new in (8, 200):
        early = asked(getattr(made, phase)(new=new, past=8))
        assert asked(late, q=new, c=8) == early
        assert asked(late.at(q=new), c=8) == early


def test_a_chunk_absorbs_its_latents_up_to_the_positions_where_heads_are_cheaper_at_a_long_context() -> None:
    made, latent, nope, value, heads, layers, past = model("DeepSeek-V3"), 512, 128, 128, 128, 61, 100
    assert nope * latent // (latent - nope) == 170  # q (512 - 128) < 128 * 512: operations of each cached position
    step = made.prefill(new="q", past="c")
    ways = {how: made.prefill(new="q", past="c").flops(accounting={"mla": how}) for how in ("absorbed", "expanded")}
    for new in (2, 170, 171, 1000):
        both = new + past
        absorbed = new * (nope + value) * latent + 2 * new * both * latent
        expanded = both * (nope + value) * latent + new * both * (nope + value)
        at = {"B": 1, "q": new, "c": past}
        more = ways["absorbed"].at(at).value - ways["expanded"].at(at).value
        assert more == 2 * layers * heads * (absorbed - expanded)
        assert step.flops().at(at) == ways["absorbed" if new < 171 else "expanded"].at(at)
        assert made.prefill(new=new, past=past).flops().at(B=1) == step.flops().at(at)
        timed = made.prefill_time(prompt="q", past="c", device="H100-SXM").at(at)
        assert timed == made.prefill_time(prompt=new, past=past, device="H100-SXM").at(B=1)
    assert "This holds where `q·H_V + r_KV·H_V` ≤ `q·r_KV` and `q·H + r_KV·H` ≤ `q·r_KV`." in step.flops().notes
    assert not made.decode().flops().notes  # one position is always cheaper absorbed


@pytest.mark.parametrize("strategy", ["context(2)", "ulysses(2)", "ring(2)", "tensor(2) + sequence"])
def test_a_prompt_of_one_position_is_cut_no_more_than_others_that_ranks_do_not_divide(strategy: str) -> None:
    made, told = model("Llama-3-8B"), "of x (row 1 of embedding) into 2 parts, but 1 is not divisible by 2\nhint: "
    axis = strategy.partition("(")[0]
    for asked in (
        lambda: made.prefill(new=1).communication(strategy), lambda: made.at(S=1).prefill("S").communication(strategy),
        lambda: made.prefill("S").communication(strategy).at(B=4, S=1),
        lambda: made.prefill_time(strategy, prompt=1, device="H100-SXM"),
    ):  # fmt: skip
        with pytest.raises(sc.SymcommError) as caught:
            asked()
        assert told + f"{axis} may be 1, the next that divides 1" in str(caught.value)
