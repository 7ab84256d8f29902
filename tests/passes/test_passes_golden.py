"""The published and hand-checked values of the transformer homework, each reproduced by a derivation from its table."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest
from api import Derivation
from api import model as sc

DATA = Path(__file__).parent.parent / "data"
GOLDEN = {entry["id"]: entry for entry in json.loads((DATA / "golden_homework.json").read_text())}
HOMEWORK = DATA / "homework2_table.tsv"
MIDTERM = DATA / "midterm_table.tsv"

# How the published entries name what the table calls otherwise.
NAMES = {"n_layer": "N_layer", "d_model": "D", "batch": "B", "seq": "L", "n_head": "n_h", "lps": "n_stage", "mb": "m",
         "tp": "t", "k": "k"}  # fmt: skip


def homework() -> sc.Model:
    return sc.load(HOMEWORK, repeat="N_layer")


def midterm() -> sc.Model:
    return sc.load(MIDTERM, repeat="N_layer", batch="B")


def product(rows: int, inner: int, cols: int) -> sc.Model:
    x, w, y = (f"\\in \\mathbb{{R}}^{{{a} \\times {b}}}" for a, b in ((rows, inner), (inner, cols), (rows, cols)))
    return sc.load(f"Computation\tInput\tOutput\n$Y = XW$\t$X {x}, W {w}$\t$Y {y}$\n")


def linear(letters: tuple[str, str, str], values: tuple[int, int, int]) -> sc.Model:
    b, i, o = letters
    table = (
        "| Computation | Input | Output |\n|---|---|---|\n"
        f"| $Y = XW$ | $X \\in \\mathbb{{R}}^{{{b} \\times {i}}}, W \\in \\mathbb{{R}}^{{{i} \\times {o}}}$ "
        f"| $Y \\in \\mathbb{{R}}^{{{b} \\times {o}}}$ |\n"
    )
    return sc.load(table, values=dict(zip(letters, values, strict=True)))


def worth(derivation: Derivation, entry: dict[str, object]) -> Fraction:
    params = entry["params"]
    assert isinstance(params, dict)
    given = {NAMES[k]: v for k, v in params.items() if k in NAMES}
    return derivation.at(**given).value


SENT, LINKS, GIVEN = "sent_per_rank", "all_links", "contributed"

CASES = {
    "000.Q1.1": lambda m: sc.peak_rate(clock="1.41 GHz", units=108, fma=512),
    "000.Q2.params": lambda m: m.parameters(),
    "000.Q2.1.payload": lambda m: m.communication("data(k)", collective="all-reduce"),
    "000.Q2.1.wire_rank": lambda m: m.communication("data(k)", accounting=SENT),
    "000.Q2.1.wire_cluster": lambda m: m.communication("data(k)", accounting=LINKS),
    "000.Q2.1.contrib": lambda m: m.communication("data(k)", accounting=GIVEN),
    "000.Q2.1.fp32grad": lambda m: m.communication("data(k)", gradient_dtype="fp32"),
    "000.Q2.2.forward": lambda m: m.communication("pipeline(layers_per_stage=4)", phase="forward"),
    "000.Q2.2.backward": lambda m: m.communication("pipeline(layers_per_stage=4)", phase="backward"),
    "000.Q2.2.boundary": lambda m: m.communication("pipeline(layers_per_stage=4)", accounting="both_directions"),
    "000.Q2.2.stages": lambda m: m.stages("pipeline(layers_per_stage=n_stage)"),
    "000.Q2.2.microbatch": lambda m: m.communication(
        "pipeline(layers_per_stage=4, microbatches=m)", phase="forward", accounting="per_microbatch"
    ),
    "000.Q2.3.payload": lambda m: m.communication("tensor(t)", collective="all-reduce"),
    "000.Q2.3.forward": lambda m: m.communication("tensor(t)", phase="forward"),
    "000.Q2.3.wire_rank": lambda m: m.communication("tensor(t)", accounting=SENT),
    "000.Q2.3.wire_cluster": lambda m: m.communication("tensor(t)", accounting=LINKS),
    "000.Q2.4.allgather_pass": lambda m: m.communication("fully-sharded(k)", collective="all-gather", phase="forward"),
    "000.Q2.4.reducescatter": lambda m: m.communication("fully-sharded(k)", collective="reduce-scatter"),
    "000.Q2.4.ag_wire_rank": lambda m: m.communication("fully-sharded(k)", collective="all-gather", accounting=SENT),
    "000.Q2.4.rs_wire_rank": lambda m: m.communication(
        "fully-sharded(k)", collective="reduce-scatter", accounting=SENT
    ),
    "000.Q2.4.over_dp": lambda m: sc.ratio(
        m.communication("fully-sharded(k)", accounting=SENT), m.communication("data(k)", accounting=SENT)
    ),
    "000.beyond.fwd_flops": lambda m: m.flops("forward"),
    "000.beyond.train_flops": lambda m: m.flops("training"),
    "000.beyond.dp_state": lambda m: m.state_memory("data(k)"),
    "000.beyond.fsdp_state": lambda m: m.state_memory("fully-sharded(k)"),
    "000.beyond.scores": lambda m: m.tensor_size("score"),
    "001.HW2.dp": lambda m: m.communication("data(k)"),
    "001.HW2.fsdp_ag": lambda m: m.communication("fully-sharded(k)", collective="all-gather"),
    "001.HW2.fsdp_rs": lambda m: m.communication("fully-sharded(k)", collective="reduce-scatter"),
    "001.HW2.pp": lambda m: m.communication("pipeline(layers_per_stage=4)", phase="forward"),
    "001.HW2.tp": lambda m: m.communication("tensor(t)"),
}
# Derived below, by tests of their own.
SEPARATE = ("000.Q1.2.", "000.beyond.6nd", "001.HW2.tp_block", "001.linear.", "001.einsum.", "001.A100.")


@pytest.mark.few(10)
@pytest.mark.parametrize("name", CASES)
def test_a_published_value_is_reproduced_by_its_derivation(name: str) -> None:
    model = midterm() if name.startswith("001") else homework()
    assert worth(CASES[name](model), GOLDEN[name]) == Fraction(GOLDEN[name]["value"])


def test_every_published_value_has_a_derivation() -> None:
    assert [name for name in GOLDEN if name not in CASES and not name.startswith(SEPARATE)] == []


@pytest.mark.parametrize("name", [n for n in GOLDEN if n.startswith("000.Q1.2.")])
def test_the_three_products_have_their_published_intensity_operations_and_bytes(name: str) -> None:
    params = GOLDEN[name]["params"]
    model = product(params["rows"], params["inner"], params["cols"])
    last = name.rsplit(".", 1)[1]
    derivation = {
        "flops": lambda: model.flops(),
        "bytes": lambda: model.traffic(),
        "exactadds": lambda: model.intensity(accounting="exact_adds"),
    }.get(last, lambda: model.intensity())()
    assert derivation.at().value == Fraction(GOLDEN[name]["value"])
    assert str(derivation.unit) == {"flops": "FLOP", "bytes": "B"}.get(last, "FLOP/B")


def test_six_times_parameters_and_tokens_misses_the_attention_scores() -> None:
    model, at = homework(), {"N_layer": 32, "B": 128, "L": 4096, "D": 4096}
    exact = model.flops("training").at(**at).value
    estimate = 6 * model.parameters().at(**at).value * at["B"] * at["L"]
    assert exact / estimate == Fraction(GOLDEN["000.beyond.6nd"]["value"])


def test_one_all_reduce_of_one_block_has_the_published_size() -> None:
    exhibit = midterm().communication("tensor(t)").exhibits[0]
    from api import Form
    from api import form_evaluate as evaluate

    sizes = set()
    for row in exhibit.rows:
        cell = row[exhibit.columns.index("elements")]
        assert isinstance(cell, Form)
        sizes.add(2 * evaluate(cell, {"B": Fraction(128), "L": Fraction(4096), "D": Fraction(4096)}))  # fp16
    assert sizes == {Fraction(GOLDEN["001.HW2.tp_block"]["value"])}


def test_the_pipeline_moves_56_gib_over_all_seven_boundaries() -> None:
    d = homework().communication("pipeline(layers_per_stage=4)", accounting="all_boundaries")
    assert d.at(N_layer=32, B=128, L=4096, D=4096).value == 56 * 2**30


def test_a_linear_layer_has_gradients_of_the_right_size_and_twice_the_forward_operations() -> None:
    from api import backward

    model = linear(("B", "D_1", "D_2"), (2, 3, 5))
    both = backward(model.graph)
    symbols = {a.label: v for a, v in zip(model.graph.axes.values(), (2, 3, 5), strict=True)}
    for name, published in (("d(Y)", "001.linear.dY"), ("d(W)", "001.linear.dW"), ("d(X)", "001.linear.dX")):
        count = 1
        for axis in both.tensors[name].axes:
            count *= symbols[both.axes[axis].label]
        assert count == int(GOLDEN[published]["value"])
    assert model.flops("forward").at().value == int(GOLDEN["001.linear.fwd"]["value"])
    assert model.flops("backward").at().value == int(GOLDEN["001.linear.bwd"]["value"])


def test_a_contraction_costs_two_operations_for_each_combination_of_its_indices() -> None:
    assert linear(("i", "k", "j"), (3, 4, 5)).flops().at().value == int(GOLDEN["001.einsum.ikkj"]["value"])


@pytest.mark.parametrize(
    ("name", "per_cycle"),
    [("FP64", 64), ("TF32", 512), ("FP16", 1024), ("INT8", 2048), ("INT4", 4096), ("INT1", 16384)],
)
def test_the_peak_rates_of_the_a100_follow_from_its_parts(name: str, per_cycle: int) -> None:
    rate = sc.peak_rate(clock="1.41 GHz", units=108, fma=per_cycle).at()
    assert rate.value == int(GOLDEN[f"001.A100.{name}"]["value"])
