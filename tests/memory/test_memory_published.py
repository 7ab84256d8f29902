"""Published tables and formulas come out of the tables of those layers; none of them is typed in to be used."""

from __future__ import annotations

import json
from fractions import Fraction
from math import ceil

import memory_tables as tables
import pytest
from api import Model, symbol
from memory_tables import DATA
from sympy import simplify

GOLDEN = {entry["id"]: entry for entry in json.loads((DATA / "golden_memory.json").read_text(encoding="utf-8"))}
PYTORCH = {"saved": "pytorch"}
BY_HAND = {"saved": "pytorch", "softmax": "by_hand"}
s, b, h, a, t, L, v = (symbol(x) for x in ("s", "b", "h", "a", "t", "L", "v"))


def paper() -> Model:
    return tables.load(tables.PAPER, repeat="L")


# -- arXiv 2205.05198 -----------------------------------------------------------------------------------

SHARDS = {"gathered_activations": "regather"}


@pytest.mark.parametrize(
    ("strategy", "recomputation", "published"),
    [
        (None, "none", s * b * h * (34 + 5 * a * s / h)),
        ("tensor(t)", "none", s * b * h * (10 + 24 / t + 5 * a * s / (h * t))),
        ("tensor(t) + sequence", "none", s * b * h / t * (34 + 5 * a * s / h)),
        ("tensor(t)", "selective", s * b * h * (10 + 24 / t)),
        ("tensor(t) + sequence", "selective", 34 * s * b * h / t),
        (None, "full", 2 * s * b * h),
    ],
)
def test_the_activations_of_the_layer_of_2205_05198_are_those_of_its_table_2(strategy, recomputation, published):
    derived = paper().activation_memory(strategy, accounting=SHARDS, recomputation=recomputation)
    assert (derived.expr - L * published).expand() == 0


def test_a_pipeline_s_first_stage_holds_the_activations_of_all_layers_and_interleaving_adds_to_them():
    """Section 4.2.3: L layers' worth on the first stage, times 1 + (p - 1)/(p m) with m interleaved chunks."""
    layer = tables.load(tables.PAPER, repeat="L").activation_memory().at(b=16, s=8, h=16, a=2, L=1, H=8).value
    at = {"b": 16, "s": 8, "h": 16, "a": 2, "H": 8, "L": 24}
    for m in (8, 16):
        first = paper().activation_memory(f"pipeline(4, microbatches={m})").at(**at).value
        assert first == 24 * layer / m
        woven = paper().activation_memory(f"pipeline(4, microbatches={m})", schedule="interleaved", chunks=3)
        assert woven.at(**at).value == 24 * layer / m * (1 + Fraction(3, 12))


def test_the_flops_of_2205_05198_follow_from_the_layer_and_its_logits():
    model = paper().flops("training").expr + tables.load(tables.LOGITS).flops("training").expr
    assert simplify(model - 72 * b * L * s * h**2 * (1 + s / (6 * h) + v / (12 * h * L))) == 0


def test_selective_recomputation_runs_two_matrix_products_again_and_so_a_third_of_what_is_published():
    """The paper's 72BLsh^2(1 + s/3h + v/12hL) adds 12Bs^2h a layer; running scores and values again takes 4Bs^2h."""
    again = paper().recomputation("selective").expr
    assert again == 4 * L * b * s**2 * h
    logits = tables.load(tables.LOGITS).flops("training").expr
    hardware = paper().recomputation("selective", "hardware_flops").expr + logits
    assert simplify(hardware - 72 * b * L * s * h**2 * (1 + 2 * s / (9 * h) + v / (12 * h * L))) == 0
    published = 72 * b * L * s * h**2 * (1 + s / (3 * h) + v / (12 * h * L))
    model = 72 * b * L * s * h**2 * (1 + s / (6 * h) + v / (12 * h * L))
    assert simplify((published - model) / again) == 3


def test_full_recomputation_runs_the_forward_pass_again_and_makes_six_all_reduces_a_layer():
    assert paper().recomputation("full").expr == paper().flops("forward").expr
    assert paper().recomputation("full", "all-reduces", strategy="tensor(8)").at().value == 6
    assert paper().recomputation("selective", "all-reduces", strategy="tensor(8)").at().value == 4
    assert paper().recomputation("full", "bytes", strategy="tensor(8)").expr == 4 * L * b * s * h


# -- arXiv 1910.02054 -----------------------------------------------------------------------------------


def psi() -> Model:
    """A model of as many parameters as a size says."""
    return tables.load(tables.table("y = x W ; x [B,P], W [P,1] ; y [B,1]"))


# Table 1: GB per device for 7.5B, 128B and 1T parameters on N devices, stage 1, 2 and 3.
ZERO = {
    1: ((120, 120, 120), (2048, 2048, 2048), (16000, 16000, 16000)),
    4: ((52.5, 41.3, 30), (896, 704, 512), (7000, 5500, 4000)),
    16: ((35.6, 21.6, 7.5), (608, 368, 128), (4750, 2875, 1000)),
    64: ((31.4, 16.6, 1.88), (536, 284, 32), (4187, 2218, 250)),
    256: ((30.4, 15.4, 0.47), (518, 263, 8), (4046, 2054, 62.5)),
    1024: ((30.1, 15.1, 0.12), (513, 257, 2), (4011, 2013, 15.6)),
}


def test_zero_keeps_4p_and_12p_shared_then_2p_and_14p_shared_then_16p_shared():
    p, n = symbol("P"), symbol("N")
    for stage, published in ((1, 4 * p + 12 * p / n), (2, 2 * p + 14 * p / n), (3, 16 * p / n)):
        assert simplify(psi().state_memory(f"zero-{stage}(N)").expr - published) == 0


@pytest.mark.parametrize("n", ZERO)
@pytest.mark.parametrize(("column", "size"), [(0, 7_500_000_000), (1, 128_000_000_000), (2, 1_000_000_000_000)])
def test_every_cell_of_the_zero_paper_s_table_1_is_derived(n, column, size):
    """Whole cells are truncated (4187.5 is 4187), cells with decimals are rounded (21.5625 is 21.6)."""
    for stage, printed in zip((1, 2, 3), ZERO[n][column], strict=True):
        exact = psi().state_memory(f"zero-{stage}(N)").at(P=size, N=n).value / 10**9
        by_hand = {1: 2 + 2 + Fraction(12, n), 2: 2 + Fraction(14, n), 3: Fraction(16, n)}[stage] * size / 10**9
        assert exact == Fraction(ceil(by_hand * 10**9), 10**9)  # a rank holds whole bytes
        digits = len(str(printed).partition(".")[2])
        shown = int(by_hand * 10**digits + Fraction(1, 2)) if digits else int(by_hand)
        assert Fraction(shown, 10**digits) == Fraction(str(printed)), (stage, n, size)


# -- document 002 ---------------------------------------------------------------------------------------

# Table 4 as it is printed: bytes before backward in GB, by head dimension and sequence length.
TABLE_4 = {
    16: (0.038298, 0.136414, 1.149633, 4.379640, 17.282106),
    32: (0.072377, 0.138511, 1.158022, 4.396418, 17.315660),
    64: (0.073425, 0.142705, 1.174799, 4.429972, 17.382769),
    128: (0.075523, 0.151094, 1.208353, 4.497081, 17.516987),
}
LENGTHS = (256, 1024, 4096, 8192, 16384)


def attention() -> Model:
    return tables.load(tables.ATTENTION, dtype="fp32", inputs=("Q", "K", "V"))


def before_backward(workspace: str) -> object:
    return attention().allocated_memory(accounting=BY_HAND, held="O, l", workspace=workspace)


def test_every_row_of_the_table_of_un_fused_attention_is_right_to_its_last_printed_digit():
    first, later = before_backward("32 MiB"), before_backward("64 MiB")
    for width, row in TABLE_4.items():
        for length, printed in zip(LENGTHS, row, strict=True):
            # The first configuration is measured before any backward pass, so only one thread has a workspace.
            derivation = first if (width, length) == (16, 256) else later
            exact = derivation.at(b=8, s=length, d=width).value
            assert round(exact / 10**9, 6) == Fraction(str(printed)), (width, length)
            name = f"002.table4.d{width}.s{length}"
            if name in GOLDEN:
                assert exact == int(GOLDEN[name]["value"])


def test_what_attention_keeps_nearly_quadruples_when_the_sequence_doubles():
    derivation = attention().allocated_memory(accounting=BY_HAND, held="O", rounding="none")
    ratio = derivation.at(b=8, s=16384, d=16).value / derivation.at(b=8, s=8192, d=16).value
    assert ratio == Fraction(GOLDEN["002.attn.ratio"]["value"])


def test_keeping_one_score_matrix_instead_of_two_nearly_halves_what_attention_keeps():
    whole = attention().allocated_memory(accounting=BY_HAND, held="O", rounding="none").at(b=8, s=16384, d=16).value
    matrix = attention().tensor_size("S").at(b=8, s=16384).value
    assert (whole - matrix) / whole == Fraction(GOLDEN["002.attn.halve"]["value"])


SMALL = {"n_layer": "N_layer", "d_model": "D", "d_ff": "F", "vocab": "V", "k": "k", "n_block": "N", "seq": "L",
         "batch": "B", "n_head": "n_h"}  # fmt: skip


def given(name: str, **more: int) -> dict[str, int]:
    return {SMALL[key]: value for key, value in GOLDEN[name]["params"].items() if key in SMALL} | more


def language_model() -> tuple[Model, Model]:
    layer = tables.load(tables.SWIGLU_LAYER, repeat="N_layer", dtype="fp32")
    return layer, tables.load(tables.ENDS, dtype="fp32")


def states(name: str, strategy: str | None = None) -> Fraction:
    known = given(name)
    return sum((m.state_memory(strategy, recipe="fp32_adam").at(known).value for m in language_model()), Fraction(0))


@pytest.mark.parametrize("name", [n for n in GOLDEN if n.startswith("002.params")])
def test_the_models_of_document_002_have_their_number_of_parameters(name):
    total = sum(m.parameters().at(given(name)).value for m in language_model())
    assert total == int(GOLDEN[name]["value"])


@pytest.mark.parametrize("name", ["002.mem.16P", "002.shard.without_xl", "002.shard.without_27"])
def test_fp32_training_with_adam_keeps_16_bytes_a_parameter(name):
    assert states(name) == int(GOLDEN[name]["value"])


@pytest.mark.parametrize("name", ["002.shard.with_27", "002.shard.with_xl", "002.shard.zero_formula"])
def test_adam_s_states_are_sharded_and_weights_and_gradients_are_not(name):
    assert states(name, "zero-1(k)") == int(GOLDEN[name]["value"])


def test_sharding_over_two_ranks_leaves_three_times_the_weights_and_saves_one():
    whole, shared = states("002.shard.saved"), states("002.shard.saved", "zero-1(k)")
    weights = 4 * sum(m.parameters().at(given("002.shard.saved")).value for m in language_model())
    assert whole - shared == int(GOLDEN["002.shard.saved"]["value"])
    assert shared / weights == int(GOLDEN["002.shard.multiple"]["value"])


def test_single_tensors_of_document_002_have_their_sizes():
    layer, _ = language_model()
    mib = 2**20
    assert layer.tensor_size("x").at(**given("002.mem.residual")).value == 5 * mib
    assert layer.tensor_size("W^1").at(**given("002.mem.swiglu_weight")).value == 100 * mib
    assert layer.tensor_size("S").at(**given("002.mem.scores512")).value == 128 * mib
    scores = attention().tensor_size("S").at(b=8, s=16384).value
    assert scores == int(GOLDEN["002.attn.scores"]["value"]) * 2**30
    assert 2 * scores == int(GOLDEN["002.attn.scores2"]["value"]) * 2**30


def xxl() -> Model:
    return tables.load(tables.XXL, repeat="N", dtype="bf16", values={"D": 16384, "F": 53248, "N": 126})


def test_the_xxl_model_keeps_its_published_states_and_activations():
    def published(name: str) -> int:
        return int(GOLDEN[f"002.xxl.{name}"]["value"])

    whole = xxl().state_memory(recipe="fp32_adam").at().value
    assert xxl().parameters().at().value == published("params")
    assert whole == published("state_bytes") == published("state_gib") * 2**30
    assert whole / 4 == published("master") * 2**30
    token = xxl().activation_memory().at(T=1).value
    assert token == published("act_token")
    assert token / 2 == published("half_act")
    assert whole / 64 + 4096 * (token / 2 + token / 2 / 64) == published("per_device")


@pytest.mark.parametrize(
    ("name", "capacity", "meaning"),
    [
        ("h100_gb", "80 GB", "nominal_GB"),
        ("h100_gib", "80 GB", "nominal_GiB"),
        ("h100_usable", "81559 MiB", "usable"),
        ("nfsdp_gib", "95 GB", "nominal_GiB"),
    ],
)
def test_how_many_devices_hold_the_states_depends_on_what_the_capacity_means(name, capacity, meaning):
    answer = xxl().capacity("k", capacity, meaning, "zero-3(k)", include="states", recipe="fp32_adam")
    assert answer.at().value == int(GOLDEN[f"002.xxl.{name}"]["value"])


# -- document 003 ---------------------------------------------------------------------------------------


def test_bert_keeps_the_published_bytes_for_each_sample_at_the_backward_pass_of_the_loss():
    """What is saved, and three more tensors of the logits' size: logits, and the gradients on both sides of softmax."""
    sizes = {"L": 512, "D": 768, "n_h": 12, "F": 3072, "N_layer": 12, "V": 30522}
    fused = {"saved": "pytorch", "softmax": "fused"}
    parts = [tables.load(tables.BERT_LAYER, repeat="N_layer", dtype="fp32")]
    parts += [tables.load(table, dtype="fp32") for table in (tables.BERT_EMBEDDINGS, tables.BERT_HEAD)]
    kept = [part.activation_memory(accounting=fused) for part in parts]
    one, two = (sum(d.at({"B": n, **sizes}).value for d in kept) for n in (1, 2))
    logits = parts[2].tensor_size("z").at({"B": 1, **sizes}).value
    assert two - one + 3 * logits == int(GOLDEN["003.mem.slope_predicted"]["value"])


@pytest.mark.parametrize("recipe", ["sgd", "sgd_momentum", "adam"])
def test_full_sharding_of_bert_saves_the_ideal_bytes(recipe):
    entry = GOLDEN[f"003.mem.ideal_{recipe}"]
    named = {"sgd": "fp32_sgd", "sgd_momentum": "fp32_momentum", "adam": "fp32_adam"}[recipe]
    size, k = entry["params"]["params_n"], entry["params"]["k"]
    whole = psi().state_memory(recipe=named).at(P=size).value
    assert int(whole - psi().state_memory("zero-3(N)", recipe=named).at(P=size, N=k).value) == int(entry["value"])


COVERED = ("002.params.", "002.table4.", "002.xxl.", "002.shard.", "002.attn.", "002.mem.", "003.mem.")


def test_every_published_value_of_the_data_file_belongs_to_a_test():
    assert all(name.startswith(COVERED) for name in GOLDEN)
