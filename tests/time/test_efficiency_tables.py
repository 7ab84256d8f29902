"""Tables of efficiency: each op at the share that its table says, against sums over products made by hand."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import symcomm as sc

ROWS = "Computation\tInput\tOutput\nh = x W\tx [B, D], W [D, F]\th [B, F]\ny = h U\tU [F, E]\ty [B, E]\n"
SIZES = {"B": 64, "D": 128, "F": 512, "E": 16}
RATES: dict[str, Any] = {"peak": "1 TFLOP/s", "memory": "100 GB/s", "network": "10 GB/s"}
TABLE = "products: 0 FLOP 1/10, 8 MFLOP 1/2; memory: 0 B 1/4, 512 kB 3/4; messages: 0 B 1/2, 128 kB 4/5"
PRODUCTS = [(0, Fraction(1, 10)), (8 * 10**6, Fraction(1, 2))]
MEMORY = [(0, Fraction(1, 4)), (512_000, Fraction(3, 4))]
MESSAGES = [(0, Fraction(1, 2)), (128_000, Fraction(4, 5))]


def model() -> sc.Model:
    return sc.load(ROWS, dtype="fp32").at(**SIZES)


def share(rows: list[tuple[int, Fraction]], amount: Fraction | int) -> Fraction:
    return [part for start, part in rows if start <= amount][-1]


def products(parts: int = 1) -> list[tuple[int, int, int]]:
    """The products of a training step, each with the rows of a rank."""
    b, d, f, e = SIZES["B"] // parts, SIZES["D"], SIZES["F"], SIZES["E"]
    forward = [(b, d, f), (b, f, e)]
    return [*forward, *((m, n, k) for m, k, n in forward), *((k, m, n) for m, k, n in forward)]


def by_hand(every: list[tuple[int, int, int]]) -> tuple[list[Fraction], list[Fraction]]:
    done = [2 * m * k * n for m, k, n in every]
    moved = [4 * (m * k + k * n + m * n) for m, k, n in every]
    return ([Fraction(one, 10**12) / share(PRODUCTS, one) for one in done],
            [Fraction(one, 10**11) / share(MEMORY, one) for one in moved])  # fmt: skip


@pytest.mark.parametrize(("how", "together"), [
    ("serial", lambda a, b: sum(a) + sum(b)),
    ("overlap", lambda a, b: max(sum(a), sum(b))),
    ("per_op", lambda a, b: sum(map(max, a, b))),
])  # fmt: skip
def test_each_op_achieves_the_share_of_its_size(how: str, together: Any) -> None:
    made = model().step_time(utilisation=TABLE, accounting=how, **RATES)
    made.check(deep=True)
    assert made.at().value == together(*by_hand(products()))
    assert made.notes[-3:] == (
        "Shares of the peak rate: 0.5 from 8 MFLOP, 0.1 below.",
        "Shares of the bandwidth of the memory: 0.75 from 512 kB, 0.25 below.",
        "Shares of the bandwidth of a link: 0.8 from 128 kB, 0.5 below.",
    )


def test_each_call_achieves_the_share_of_its_bytes() -> None:
    """Half of a gradient goes over the link there, and half back."""
    made = model().step_time("data(2)", utilisation=TABLE, accounting="serial", **RATES)
    made.check(deep=True)
    sent = [4 * SIZES["D"] * SIZES["F"], 4 * SIZES["F"] * SIZES["E"]]
    network = sum(Fraction(one, 10**10) / share(MESSAGES, one) for one in sent)
    assert made.at().value == sum(map(sum, by_hand(products(2)))) + network


@pytest.mark.parametrize("how", ["serial", "overlap", "per_op"])
def test_one_utilisation_is_a_table_of_one_row(how: str) -> None:
    times = [model().step_time("data(2)", utilisation=said, accounting=how, **RATES).at().value
             for said in ("4/5", "products: 0 FLOP 4/5; memory: 0 B 4/5")]  # fmt: skip
    assert times[0] == times[1]


def test_layers_of_a_model_have_the_shares_of_one_layer_each() -> None:
    layer = sc.load("Computation\tInput\tOutput\ny = x W\tx [B, D], W [D, D]\ty [B, D]\n", repeat="N", dtype="fp32")
    made = layer.at(B=64, D=256, N=3).step_time(utilisation=TABLE, accounting="serial", **RATES)
    done, moved = by_hand([(64, 256, 256)] * 3)
    assert made.at().value == 3 * (sum(done) + sum(moved))


def test_a_search_takes_the_times_of_the_table() -> None:
    found = sc.search(model(), devices=2, capacity="1 GB", capacity_is="usable", utilisation=TABLE, latency="0 s",
                      strategies="data + tensor", microbatches="1", recomputation="none", jobs=1, recipe="fp32_sgd",
                      **RATES)  # fmt: skip
    assert len(found.top) == 2
    for one in found.top:
        again = model().step_time(one.strategy, microbatches=1, utilisation=TABLE, latency="0 s", **RATES)
        assert one.time.value == again.at().value


def test_tables_with_other_rows_are_other_functions() -> None:
    """SymPy takes functions of one name for the same one."""
    times = {model().time(phase="forward", utilisation=f"products: 0 FLOP {part}", term="compute", **RATES).at().value
             for part in ("1/2", "1/4")}  # fmt: skip
    assert len(times) == 2


OURS = """devices:
  mine:
    source: a test
    rates: {fp32: {published: 1 TFLOP/s}, bf16: {published: 2 TFLOP/s}}
    memory: {kind: DDR5, nominal: 16 GB, bandwidth: 100 GB/s}
    efficiency:
      source: a stopwatch
      date: 2026-11-23
      products: {fp32: "0 FLOP 1/10, 8 MFLOP 1/2"}
      memory: 0 B 1/4, 512 kB 3/4
"""


def test_a_device_has_the_table_that_was_measured_on_it(tmp_path: Path) -> None:
    (tmp_path / "ours.yaml").write_text(OURS)
    mine = sc.devices(tmp_path / "ours.yaml")["mine"]
    made = model().step_time(device=mine, utilisation="measured", accounting="serial")
    assert made.at().value == sum(map(sum, by_hand(products())))
    assert made.notes[-1] == "Measured: a stopwatch; 2026-11-23."
    with pytest.raises(sc.SymcommError) as caught:
        model().step_time(device=mine, utilisation="measured", dtype="bf16")
    assert str(caught.value).startswith("the table of products knows no bf16")


@pytest.mark.parametrize(("said", "told"), [
    ("products: 1 GFLOP 1/2",
     "the table of products begins at 1 GFLOP, but 8.388608 MFLOP are asked for\nhint: a first row from 0 FLOP"),
    ("measured", "utilisation: measured, but no device is named\n"
     "hint: utilisation: products: 0 FLOP 1/2, 1 GFLOP 4/5; or symcomm measure"),
    ("products: 0 B 1/2", "'0 B 1/2' is no row of a table of products: it begins at FLOP\n"),
    ("products: many", "'many' is no row of a table of products\n"),
    ("products: 0 FLOP 3/2", "the share 3/2 of the peak rate is above 0 and at most 1\n"),
    ("memory: 1 kB 1/2, 1 B 1/3", "the row '1 B 1/3' does not begin above the one before it\n"),
    ("disk: 0 B 1/2", "'disk' is no table of efficiency\n"),
    ("memory: 0 B 1/2; memory: 0 B 1/3", "the table of memory is named twice\n"),
])  # fmt: skip
def test_tables_that_cannot_be_are_refused(said: str, told: str) -> None:
    with pytest.raises(sc.SymcommError) as caught:
        model().time(phase="forward", utilisation=said, **RATES).at()
    assert str(caught.value).startswith(told)


def test_an_unmeasured_device_has_no_table() -> None:
    with pytest.raises(sc.SymcommError, match="nobody has measured what H100-SXM achieves"):
        model().time(device="H100-SXM", dtype="fp16", utilisation="measured")


@pytest.mark.parametrize(("quantity", "more"), [
    ("roofline", {"op": "h"}), ("crossover", {"between": "compute, memory", "over": "B"}),
    ("bound", {"tensor": "h"}),
])  # fmt: skip
def test_a_quantity_without_single_ops_refuses_a_table(quantity: str, more: dict[str, Any]) -> None:
    rates = {key: RATES[key] for key in ("peak", "memory")}
    with pytest.raises(sc.SymcommError) as caught:
        model().derive(quantity, utilisation=TABLE, **rates, **more)
    assert str(caught.value) == (
        "a table of efficiency is of single ops and calls, not of this quantity\n"
        "hint: step_time and time read it; here give one number, such as 4/5"
    )


def test_a_rate_that_a_measured_time_implies_needs_no_table() -> None:
    made = model().bound(of="implied_rate", measured="1 s", utilisation=TABLE)
    assert made.expr == model().bound(of="implied_rate", measured="1 s").expr
    assert made.notes == ("Makes no difference here: `utilisation`.",)


@pytest.mark.parametrize(("line", "told"), [
    ("speed: 0 B 1/2", "unknown key 'speed'"),
    ("memory: 0 B 2", "the share 2 of the bandwidth of the memory is above 0 and at most 1"),
])  # fmt: skip
def test_a_table_in_a_file_is_refused_at_its_place(line: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "ours.yaml").write_text(OURS.replace("memory: 0 B 1/4, 512 kB 3/4", line))
    with pytest.raises(sc.SymcommError) as caught:
        sc.devices(tmp_path / "ours.yaml")
    assert told in str(caught.value)
    assert "ours.yaml:" in str(caught.value)
