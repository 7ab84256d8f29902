"""Memory that a document asks for besides the plain counts: rounded and padded shards, what is held, what is shared."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

import memory_tables as tables
import pytest
from api import Derivation, SymcommError, ValuesError

import symcomm as sc

XXL = {"D": 16384, "F": 53248, "N_layer": 126}
P = 126 * 2 * 16384 * 53248
BATCH = 4096
KEPT = 2 * 126 * BATCH * (16384 + 53248)  # x and h of every block in BF16


def xxl(**values: int) -> sc.Model:
    return tables.load(tables.XXL.replace("relu(x W^1)", "x W^1"), repeat="N_layer", dtype="bf16", values=XXL | values)


def fits(capacity: int, share: Fraction) -> int:
    """The least number of devices that divides the batch, tried one after another."""

    def held(n: int) -> Fraction:
        return Fraction(16 * P, n) + share * Fraction(KEPT, n) + (1 - share) * KEPT

    return next(n for n in range(1, 10**4) if BATCH % n == 0 and held(n) <= capacity)


@pytest.mark.parametrize("share", [Fraction(1, 2), Fraction(1, 3), Fraction(1)])
def test_activations_may_be_sharded_in_part(share: Fraction) -> None:
    """Document 002, communication_accounting (b): every second block's activations are sharded."""
    made = xxl(T=BATCH).capacity(
        "N", "95 GB", "nominal_GB", "zero-3(N)", recipe="fp32_adam", sharded=str(share)
    )  # fmt: skip
    assert made.at().value == fits(95 * 10**9, share)


def test_what_64_devices_hold_with_half_of_the_activations_is_the_published_number() -> None:
    made = xxl(T=BATCH).capacity("N", "95 GB", "nominal_GB", "zero-3(N)", recipe="fp32_adam", sharded="1/2")
    parts = [step.name for step in made.steps if step.name.startswith("M_")]
    assert {"M_state", "M_act", "M_whole"} <= {*parts}
    whole = Fraction(16 * P, 64) + Fraction(KEPT, 2 * 64) + Fraction(KEPT, 2)
    assert whole == 91460468736  # golden 002.xxl.per_device


@pytest.mark.parametrize(("share", "strategy"), [("3/2", "zero-3(N)"), ("-1", "zero-3(N)")])
def test_a_share_that_is_none_is_refused(share: str, strategy: str) -> None:
    with pytest.raises(ValuesError, match="a share of the activations is from 0 to 1"):
        xxl(T=BATCH).capacity("N", "95 GB", "nominal_GB", strategy, sharded=share)


SMALL = tables.table("h = x W ; x [B,D], W [D,F] ; h [B,F]", "y = h U + b ; U [F,D], b [D] ; y [B,D]")
AT = {"D": 10, "F": 7, "N": 2}


def blocks(*bytes_of: Fraction | int) -> int:
    return sum(512 * ceil(Fraction(size, 512)) for size in bytes_of)


@pytest.mark.parametrize("units", ["weight", "model"])
def test_an_allocator_rounds_every_shard_up_to_512_bytes(units: str) -> None:
    model = tables.load(SMALL, repeat="N", dtype="fp32", values={**AT, "D": 100, "F": 70})
    made = model.state_memory("fsdp(4)", recipe="mixed_adam", rounding="requests", units=units)
    each = [Fraction(n, 4) for n in (100 * 70, 70 * 100, 100)]
    tensors = [2 * sum(each)] if units == "model" else each * 2
    # An fp16 weight and gradient, and three fp32 tensors of states.
    assert made.at().value == sum(blocks(2 * n, 2 * n, 4 * n, 4 * n, 4 * n) for n in tensors)
    states = model.state_memory("fsdp(4)", recipe="mixed_adam", rounding="requests", units=units, of="states")
    assert states.at().value == sum(3 * blocks(4 * n) for n in tensors)


def test_an_unknown_choice_is_refused_with_a_near_one() -> None:
    with pytest.raises(ValuesError, match="unknown choice 'moments' of 'of'"):
        tables.load(SMALL).state_memory(of="moments")
    with pytest.raises(ValuesError, match="the recipe fp32_sgd keeps no states"):
        tables.load(SMALL, dtype="fp32").state_memory(recipe="fp32_sgd", of="states")


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_padded_shards_are_whole_rows_all_as_large_as_the_largest(ranks: int) -> None:
    model = tables.load(SMALL, repeat="N", dtype="fp32", values=AT)
    mean, padded = (
        model.state_memory(f"fsdp({ranks})", recipe="fp32_sgd", accounting=said).at().value
        for said in (None, "padded_shards")
    )

    def sizes(k: int) -> int:
        return 8 * 2 * (ceil(7 / k) * 10 + ceil(10 / k) * 7 + ceil(10 / k))

    assert mean == 8 * 2 * Fraction(10 * 7 + 7 * 10 + 10, ranks)
    # A product's weight is stored with what it makes as rows: 7 rows of 10, 10 of 7, and 10 biases.
    assert padded == sizes(ranks)
    asked = {"strategy": "fsdp(k)", "recipe": "fp32_sgd", "include": "states", "accounting": "padded_shards"}
    fits = [model.capacity("k", f"{padded - less} bytes", "usable", **asked) for less in (0, 1)]
    assert fits[0].at().value == min(k for k in range(1, 11) if sizes(k) <= padded)
    assert fits[1].at().value == min(k for k in range(1, 11) if sizes(k) < padded)
    assert not any("Nothing here depends on" in note for note in fits[0].notes)
    for quantity in ("communication", "peak_memory"):
        with pytest.raises(SymcommError, match=f"{quantity} counts the mean of the parts of a weight, not parts that"):
            model.derive(quantity, strategy="fsdp(3)", accounting="padded_shards")


def test_a_tensor_outside_the_model_is_held_by_its_shape_and_format() -> None:
    model = tables.load(SMALL, dtype="fp32", values=AT | {"B": 6})
    plain, more = (model.peak_memory(recipe="fp32_sgd", held=h).at().value for h in (None, "labels [B, F] int64"))
    assert more - plain == 8 * 6 * 7
    said = {"saved": "pytorch"}
    kept, held = (
        model.allocated_memory(held=h, rounding="none", accounting=said).at().value for h in ("y", "y, r [B] int64")
    )
    assert held - kept == 8 * 6
    with pytest.raises(SymcommError, match="labels has the size V, which the model has not"):
        model.peak_memory(held="labels [B, V] int64")


def test_labels_are_there_from_the_first_op_of_a_step_to_the_end_of_its_backward_pass() -> None:
    """They are read by the loss only; the program holds them like the token ids: 8 bytes each."""
    config = {"model_type": "llama", "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
              "num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": 4}  # fmt: skip
    values = {"B": 3, "L": 8}
    plain, labelled = (
        sc.load(config, dtype="fp32", loss=loss, values=values).peak_memory(recipe="fp32_sgd") for loss in (False, True)
    )

    def layers(derived: Derivation, phase: str) -> list[float]:
        rows = [row for row in derived.exhibits[0].rows if row[0] == f"{phase}, last layer"]
        return [float(str(row[list(derived.exhibits[0].columns).index("saved")])) for row in rows]

    # In KiB with one digit: 3 x 8 labels of 8 bytes are 0.1875 of them.
    assert all(round(b - a, 1) in (0.1, 0.2) for a, b in
               zip(layers(plain, "forward"), layers(labelled, "forward"), strict=True))  # fmt: skip
    assert all(round(b - a, 1) in (0.1, 0.2) for a, b in
               zip(layers(plain, "backward"), layers(labelled, "backward"), strict=True))  # fmt: skip


PAIR = tables.table("h = x W ; x [B,D], W [D,F] ; h [B,F]", "y = h U ; U [F,D] ; y [B,D]")


def test_numbers_that_come_later_have_to_be_divided_as_well() -> None:
    """Shards that only rest are padded; what is computed in parts has to be even."""
    model = tables.load(PAIR)
    told = "into 4 parts, but 7 is not divisible by 4"
    for made in (
        model.state_memory("tensor(k)"),
        model.capacity("B", "1 MB", "usable", "tensor(k)", include="activations"),
        model.capacity("B", "1 MB", "usable", "tensor(k)"),
    ):
        with pytest.raises(SymcommError, match=told):
            made.at(B=4, D=5, F=7, k=4)
    assert model.state_memory("fsdp(k)").at(D=5, F=7, k=4).value == 16 * 2 * 5 * 7 // 4
    assert model.state_memory("tensor(k)").at(D=5, F=8, k=4).value == 16 * 2 * 5 * 8 // 4


def test_a_slip_in_the_name_of_a_size_is_refused_where_a_model_is_given_numbers() -> None:
    model = tables.load(PAIR, repeat="N_layer")
    said = "has no size 'N_Layer'\nhint: did you mean 'N_layer'\\?"
    with pytest.raises(ValuesError, match=said):
        model.at(N_Layer=3)
    with pytest.raises(ValuesError, match=said):
        tables.load(PAIR, repeat="N_layer", values={"N_Layer": 3})
    config = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 8,
              "intermediate_size": 96, "vocab_size": 128}  # fmt: skip
    with pytest.raises(ValuesError, match="did you mean 'N_layer'"):
        sc.load(config, values={"n_layers": 3})
    assert model.at(d=3, n_b=4, w="25 GB/s").values["d"] == 3  # names of rates and degrees that questions have


EMBEDDED = """Computation\tInput\tOutput
x = Embed(t, W)\tt \\in \\mathbb{Z}^{B \\times L}, W [V, D]\tx [B, L, D]
y = gelu(x U)\tU [D, F]\ty [B, L, F]
"""


@pytest.mark.parametrize(
    ("strategy", "share"),
    [("cut(V, 4)", 1), ("cut(L, 4)", 4), ("data(2)", 2), ("data(2) + cut(V, 4)", 2), ("data(2) + cut(L, 4)", 8)],
)
def test_a_rank_keeps_the_ids_of_its_own_tokens_whatever_it_has_of_the_vocabulary(strategy: str, share: int) -> None:
    model = sc.load(EMBEDDED, axes={"B": "batch", "L": "sequence"})
    n = {"B": 8, "L": 4, "V": 12, "D": 3, "F": 5}
    kept = model.activation_memory(strategy, accounting="pytorch").at(**n).value
    assert kept == Fraction(8 * 4 * (8 + 2 * 3 + 2 * 5), share)  # ids in int64, x and the operand of gelu in fp16


def test_what_comes_from_outside_stands_first_in_the_list_of_what_is_kept() -> None:
    rows = sc.load(EMBEDDED).activation_memory(accounting="pytorch").exhibits[0].rows
    assert [row[0] for row in rows] == ["`t`", "`x`", "a value on the way to `y`"]
    two = """Computation\tInput\tOutput
c = relu(p W)\tp [B, D], W [D, F]\tc [B, F]
y = c U + q X\tU [F, H], q [B, K], X [K, H]\ty [B, H]
"""
    rows = sc.load(two, inputs=["p", "q"]).activation_memory(accounting="not_needed").exhibits[0].rows
    assert [row[0] for row in rows] == ["`p`", "`q`", "`c`"]
