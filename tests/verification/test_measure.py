"""``symcomm measure``: rows between measured sizes, a file that is read again, and a run on the processor."""

from __future__ import annotations

from datetime import date
from fractions import Fraction
from pathlib import Path

import pytest
from api import MachineTable, MeasuredSize, RowTimes, TimedRow, by_op, by_op_text, device_yaml, main, measured_text
from click.testing import CliRunner

import symcomm as sc

# A processor that takes 1 us for each product, and 1 us for a million operations.
PRODUCTS = [MeasuredSize("products", "fp32", n, 2 * n**3, 1e-6 + 2 * n**3 / 1e12, 0.02) for n in (16, 64, 256, 1024)]
COPIES = [MeasuredSize("memory", "", n, n, 1e-6 + n / 1e11, 0.02) for n in (4096, 2**20, 2**26)]
CALLS = [MeasuredSize("messages", "", n, n, 1e-4 + n / 1e9, 0.02) for n in (2**10, 2**24)]
LEFT = MeasuredSize("products", "fp32", 384, 2 * 384**3, 1e-6 + 2 * 384**3 / 1e12, 0.02)
FOUND = MachineTable("a processor", 16 * 2**30, "2.13.0", (*PRODUCTS, *COPIES, *CALLS), (LEFT,), date(2026, 11, 23))


def test_a_share_holds_half_the_way_to_the_next_size() -> None:
    starts, shares = zip(*FOUND.rows("products", "fp32"), strict=True)
    assert starts == (0, 65536, 4194304, 268435456)  # 2 n^3 of 32, 128, 512: geometric means of neighbours
    assert shares[-1] == 1
    assert list(shares) == sorted(shares)
    assert abs(FOUND.predicted(LEFT) / LEFT.seconds - 1) < 0.05


def test_the_file_is_read_again_as_a_device_with_its_table(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(device_yaml(FOUND, "my-machine"))
    mine = sc.devices(tmp_path / "mine.yaml")["my-machine"]
    assert mine.efficiency is not None
    assert mine.efficiency.told == (
        "symcomm measure: PyTorch 2.13.0, a processor, fastest of 9 runs; 2026-11-23; "
        "the median is 2.0% above the fastest run"
    )
    n = 384
    model = sc.load("Computation\tInput\tOutput\ny = x W\tx [N, N], W [N, N]\ty [N, N]\n", dtype="fp32").at(N=n)
    made = model.time(phase="forward", device=mine, utilisation="measured", term="compute")
    assert float(made.at().value) == pytest.approx(FOUND.predicted(LEFT), rel=5e-3)
    assert "nominal: 16 GiB" in device_yaml(FOUND, "my-machine")  # of what was measured, not of the machine of the test
    assert mine.link().bandwidth("one").value == Fraction(994 * 10**6)


def test_the_terminal_is_told_how_well_a_product_is_predicted() -> None:
    told = measured_text(FOUND).splitlines()
    assert told[0] == "a processor, PyTorch 2.13.0"
    # A product of 256 takes 1/33.6 of its time to start, so 384 is said to take as much longer.
    assert told[-1] == "The table says 0.12 ms of a product of 384 x 384 x 384 in fp32; it took 0.11 ms (+2%)."
    assert next(line for line in told if "not in the table" in line).split()[:3] == ["products", "fp32", "384"]


@pytest.mark.parametrize(("words", "told"), [
    (["--formats", "fp7"], "error: products are not measured in 'fp7'\nhint: known: fp32, bf16, fp16, fp64\n"),
    (["--largest", "500"], "error: --largest is 500: a product of 384 is predicted from smaller and larger ones\n"
     "hint: --largest 768, or more\n"),
    (["--name", "7 up"], "error: '7 up' is no name of a device\nhint: a letter, then letters, digits, - or _\n"),
])  # fmt: skip
def test_what_cannot_be_measured_is_refused(words: list[str], told: str) -> None:
    made = CliRunner().invoke(main, ["measure", *words])
    assert (made.exit_code, made.output) == (2, told)


@pytest.mark.torch
@pytest.mark.long
def test_a_machine_is_measured(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    made = CliRunner().invoke(
        main, ["measure", "--formats", "fp32", "--largest", "768", "-o", str(tmp_path / "m.yaml")]
    )
    assert made.exit_code == 0, made.output
    assert "The table says" in made.output
    mine = sc.devices(tmp_path / "m.yaml")["this-machine"]
    assert mine.efficiency is not None
    assert [*mine.efficiency.products] == ["fp32"]
    assert mine.efficiency.messages is not None


def test_the_term_that_is_off_is_named_and_the_row_that_is_furthest_off() -> None:
    rows = (
        TimedRow("Y", "forward", {"compute": 1e-3, "memory": 1e-5}, 1e-3, 1.1e-3),
        TimedRow("A", "forward", {"compute": 1e-6, "memory": 1e-4}, 1e-4, 4e-4),
        TimedRow("Z", "forward", {}, 0.0, 2e-6),
    )
    told = by_op_text(RowTimes("m", "mine", "a processor", {"B": 4}, rows)).splitlines()
    assert told[0] == "m on a processor, by the table of mine; fp32, B=4"
    assert told[3].split() == ["Y", "forward", "1000.0", "µs", "1100.0", "µs", "-9%", "computing"]
    assert told[4].split() == ["A", "forward", "100.0", "µs", "400.0", "µs", "-75%", "memory,", "which", "is", "off"]
    assert told[5].split() == ["Z", "forward", "0.0", "µs", "2.0", "µs", "no", "work"]
    assert told[7].split() == ["computing", "1000.0", "µs", "1100.0", "µs", "(-9%)"]
    assert told[-1] == (
        "Most of the difference is in A, forward: memory of 100.0 µs is derived, 400.0 µs were measured."
    )


TWO = "Computation\tInput\tOutput\nh = relu(x W)\tx [B, D], W [D, F]\th [B, F]\ny = h V\tV [F, D]\ty [B, D]\n"


@pytest.mark.torch
def test_each_row_is_timed_and_derived_from_the_table_of_the_device(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "mine.yaml").write_text(device_yaml(FOUND, "my-machine"))
    mine = sc.devices(tmp_path / "mine.yaml")["my-machine"]
    found = by_op(sc.load(TWO, dtype="fp32"), {"B": Fraction(8), "D": Fraction(16), "F": Fraction(16)}, mine)
    assert [(r.name, r.phase) for r in found.rows] == [(n, p) for n in "hy" for p in ("forward", "backward")]
    assert all(r.measured > 0 for r in found.rows)
    # A product of 8 x 16 x 16 has 4096 FLOPs; the first row of the table is the share of 16 x 16 x 16 at 10^12 FLOP/s.
    share, best = FOUND.rows("products", "fp32")[0][1], FOUND.best("products", "fp32")
    assert found.rows[2].terms["compute"] == pytest.approx(4096 / (share * best), rel=5e-3)
    assert found.rows[3].terms["compute"] == pytest.approx(2 * 4096 / (share * best), rel=5e-3)
    # It moves 3 arrays, 512 floats: 2048 bytes, which take longer at the share of 4096 and fewer bytes.
    share, best = FOUND.rows("memory")[0][1], FOUND.best("memory")
    assert found.rows[2].terms["memory"] == pytest.approx(2048 / (share * best), rel=5e-3)
    assert found.rows[2].term == "memory"


@pytest.mark.torch
def test_a_row_of_large_products_is_as_long_as_its_products(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "mine.yaml").write_text(device_yaml(FOUND, "my-machine"))
    mine = sc.devices(tmp_path / "mine.yaml")["my-machine"]
    found = by_op(sc.load(TWO, dtype="fp32"), dict.fromkeys("BDF", Fraction(384)), mine)
    assert [row.term for row in found.rows] == ["compute"] * 4
    assert found.rows[2].derived == pytest.approx(FOUND.predicted(LEFT), rel=5e-3)


@pytest.mark.parametrize(("words", "told"), [
    (["--device", "H100-SXM"], "--device is for --time\nhint: symcomm verify FILE --time --device mine.yaml"),
    (["--time", "--device", "H1000"], "unknown device 'H1000'"),
    (["--time", "--device", "two.yaml"], "two.yaml has 2 devices, not one\nhint: a file for each"),
])  # fmt: skip
def test_a_device_that_nothing_is_held_against_is_refused(
    words: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    second = device_yaml(FOUND, "b").partition("\n")[2]
    (tmp_path / "two.yaml").write_text(device_yaml(FOUND, "a") + second)
    (tmp_path / "two.txt").write_text(TWO)
    made = CliRunner().invoke(main, ["verify", "two.txt", *words])
    assert made.exit_code == 2
    assert told in made.output


def test_derive_reads_the_file_of_a_measured_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(device_yaml(FOUND, "my-machine"))
    (tmp_path / "two.txt").write_text(TWO)
    words = ["derive", "step_time", "--model", "two.txt", "--device", "mine.yaml", "--utilisation", "measured"]
    made = CliRunner().invoke(main, [*words, "--dtype", "fp32", "--at", "B=384,D=384,F=384", "--to", "json"])
    assert made.exit_code == 0, made.output
    mine, model = sc.devices("mine.yaml")["my-machine"], sc.load(TWO).at(B=384, D=384, F=384)
    asked = model.step_time(device=mine, utilisation="measured", dtype="fp32").at()
    # Six products, each as long as the table predicts: two forward, and two gradients of each.
    assert float(asked.value) == pytest.approx(6 * FOUND.predicted(LEFT), rel=0.05)
    assert f"{float(asked.value):.4g}"[:4] in made.output
