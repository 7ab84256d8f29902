"""The published numbers of the 220-billion-parameter model: memory, times, and the batch that keeps devices busy."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path

import pytest
from api import Derivation, from_expr
from api import form_evaluate as evaluate
from balance_models import BOOK, GOLDEN, ROOT, block, published, xxl

RATES = {"peak": "460 TFLOP/s", "network": "180 GB/s"}
MESH = {"X": 16, "Y": 4}


def bound(**options: object) -> Derivation:
    model = xxl().at(**MESH)
    return model.derive(
        "compute_bound",
        strategy="fsdp(X) + tensor(Y)",
        links="data=2, tensor=1",
        accounting=BOOK,
        **{**RATES, **options},
    )


def worth(derivation: Derivation, name: str) -> Fraction:
    return evaluate(from_expr(derivation.worth[name]), dict(derivation.given))


def test_states_and_activations_take_their_published_bytes() -> None:
    model = xxl()
    states = model.state_memory(recipe="fp32_adam").at().value
    assert model.parameters().at().value == published("params")
    assert states == published("state_bytes") == published("state_gib") * 2**30
    assert states / 4 == published("master") * 2**30
    assert model.activation_memory().at(B=1).value == published("act_token")
    assert model.at(n_block=63).activation_memory().at(B=1).value == published("half_act")


def test_half_of_the_activations_sharded_leave_each_device_its_published_bytes() -> None:
    params = GOLDEN["002.xxl.per_device"]["params"]
    shards, tokens = params["nd"], params["tokens"]
    half = xxl().at(n_block=63)
    sharded = half.activation_memory("zero-3(N)").at(N=shards, B=tokens).value
    whole = half.activation_memory().at(B=tokens).value
    states = xxl().state_memory("zero-3(N)", recipe="fp32_adam").at(N=shards).value
    assert states + sharded + whole == published("per_device")


@pytest.mark.parametrize(
    ("name", "capacity", "meaning"),
    [
        ("h100_gb", "80 GB", "nominal_GB"),
        ("h100_gib", "80 GB", "nominal_GiB"),
        ("h100_usable", "81559 MiB", "usable"),
        ("nfsdp_gib", "95 GB", "nominal_GiB"),
    ],
)
def test_the_number_of_devices_follows_from_what_a_capacity_means(name: str, capacity: str, meaning: str) -> None:
    found = xxl().capacity("N", capacity, meaning, "zero-3(N)", include="states", recipe="fp32_adam")
    assert found.at().value == published(name)


def test_the_three_times_are_the_published_ones() -> None:
    derivation = bound()
    assert worth(derivation, "tau_compute") == published("t_math")
    assert worth(derivation, "t_data") == published("t_fsdp")
    assert worth(derivation, "tau_comm") == published("t_tp")


def test_the_block_turns_compute_bound_at_the_published_batch() -> None:
    assert bound().at().value == published("batch_total") == Fraction(306176000, 12101)
    assert bound(numbers="whole").at().value == 25302
    assert bound(per="device").at().value == published("batch_device")
    assert bound(per="device", numbers="whole").at().value == 396


def test_the_formula_in_symbols_gives_the_same_batch() -> None:
    derivation = block().derive(
        "compute_bound", strategy="fsdp(X) + tensor(Y)", links="X=M_X, Y=M_Y", accounting=BOOK, peak="C", network="W"
    )
    at = {**MESH, "F": 53248, "M_X": 2, "M_Y": 1, "C": 460 * 10**12, "W": 180 * 10**9}
    assert derivation.at(**at).value == published("batch_total")
    assert {s.name for s in derivation.expr.free_symbols} == {*at}  # the width D is not among them


def test_one_matrix_on_one_device_gives_the_wrong_batch_of_the_document() -> None:
    """T_math = 2 D F B / C lacks a matrix and the 64 devices: a device then has 1/32 of its rate."""
    derivation = bound()
    slow = worth(derivation, "tau_compute") * 64 / 2
    assert worth(derivation, "t_data") / (slow - worth(derivation, "tau_comm")) == published("student")
    assert bound(peak="14.375 TFLOP/s").at().value == published("student")
    assert int(published("student")) == 642


def test_sharded_weights_alone_ask_each_device_for_the_published_operations_a_byte() -> None:
    derivation = xxl().derive("compute_bound", strategy="fsdp(X)", per="device", accounting=BOOK, **RATES)
    assert derivation.at().value == published("alpha")


def test_an_even_ring_both_ways_sends_at_the_bandwidth_of_one_direction_just_as_fast() -> None:
    one_direction = {**BOOK, "link": "full_duplex"}
    model = xxl().at(**MESH)
    found = model.derive("compute_bound", strategy="fsdp(X) + tensor(Y)", links="X=2", accounting=one_direction,
                         peak="460 TFLOP/s", network="90 GB/s")  # fmt: skip
    assert found.at().value == published("batch_total")


def test_the_example_states_the_published_answers() -> None:
    from api import read_problem, solve

    document = solve(read_problem(ROOT / "examples/communication-accounting/communication-accounting.md"))
    answers = {answer.quantity.value for answer in document.answers() if answer.quantity is not None}
    wanted = [n.removeprefix("002.xxl.") for n in GOLDEN]
    parts = {"state_gib", "master", "half_act", "per_device", "t_math", "t_fsdp", "t_tp", "alpha", "batch_total"}
    assert {published(n) for n in wanted if n not in parts} <= answers
    assert {25302, 396, 8, 38} <= answers


def test_the_page_of_the_documentation_runs_and_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/balance.md").read_text(), re.DOTALL)
    exec(code, {})
    assert capsys.readouterr().out == "25 302\n8\n"


def test_every_published_value_is_reproduced_here() -> None:
    text = Path(__file__).read_text()
    names = {n.removeprefix("002.xxl.") for n in GOLDEN}
    assert {n for n in names if re.search(rf'"{n}"|xxl\.{n}"', text)} == names


def test_along_an_axis_of_one_rank_the_formula_and_the_table_of_splits_agree() -> None:
    # Two matrices sharded over 64 devices, two links each of 180 GB/s both ways: 64 * 460e12 / (2 * 180e9) tokens.
    asked = {"strategy": "fsdp(X) + tensor(Y)", "links": "X=2, Y=1", "accounting": BOOK, **RATES}
    by_hand = Fraction(64 * 460 * 10**12, 2 * 180 * 10**9)
    assert xxl().derive("compute_bound", **asked).at(X=64, Y=1).value == by_hand
    assert xxl().at(X=64, Y=1).derive("compute_bound", **asked).at().value == by_hand
    splits = xxl().derive("mesh_split", devices="64", least="batch", numbers="whole", **asked)
    (row,) = [r for e in splits.exhibits for r in e.rows if [str(c) for c in r[:2]] == ["64", "1"]]
    assert any("81 777.8" in str(cell) for cell in row), row


@pytest.mark.parametrize("asked", [{}, {"devices": 64}, {"devices": 64, "least": "batch"}])
def test_how_times_combine_is_named_where_two_axes_send(asked: dict[str, object]) -> None:
    quantity = "mesh_split" if asked else "compute_bound"
    made = block().derive(quantity, strategy="fsdp(X) + tensor(Y)", accounting=BOOK, **asked)
    assert "time" in made.touched
    assert not any("`time: serial` was asked for" in note for note in made.notes)


def test_how_times_combine_is_not_named_where_one_axis_sends() -> None:
    made = block().derive("compute_bound", strategy="fsdp(X)", accounting={**BOOK, "time": "overlap"})
    assert "time" not in made.touched
