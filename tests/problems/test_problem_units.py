"""Numbers with the unit of something else, fractions of whole things, and where the error stands."""

from __future__ import annotations

from pathlib import Path

import pytest
from api import StrategyError, SymcommError, ValuesError, parse_problem, render, solve

import symcomm as sc

TABLE = """| Computation | Input | Output |
|---|---|---|
| $Y = XW$ | $X \\in \\mathbb{R}^{B \\times D}, W \\in \\mathbb{R}^{D \\times K}$ | $Y \\in \\mathbb{R}^{B \\times K}$ |
"""
MODEL = "model: product\nvalues: {D: 3, K: 5}"


def document(*blocks: str) -> str:
    """The first block's first key stands in line 6, that of a second one behind ``MODEL`` in line 11."""
    return TABLE + "".join(f"\n```symcomm\n{block}\n```\n" for block in blocks)


SCHEDULE = "figure: pipeline_schedule\nschedule: gpipe\nstages: 2\nmicrobatches: 4\n"

MISTAKES = [
    ("bytes in seconds", ("ask: buckets\ngiven: {s: 5 s, w: 1 GB/s, o: 1 us, n_b: 8}",),
     7, "5 s", "s is given in s, but it is in B"),
    ("a rate in bytes", ("ask: buckets\ngiven: {s: 5, w: 120 GB, o: 1 us, n_b: 8}",),
     7, "120 GB", "w is given in B, but it is in B/s"),
    ("a batch in bytes", (MODEL, "ask: flops\ngiven: {B: 80 GB}"),
     12, "80 GB", "B is given in B, but it is a number of things"),
    ("a size in bytes", ("model: product\nvalues: {D: 80 GB}",),
     7, "80 GB", "'80 GB' is in B, but a size is a whole number"),
    ("half a sequence", (MODEL, "ask: flops\ngiven: {B: 1/2}"),
     12, "{B: 1/2}", "B is 1/2, but a size is a whole number"),
    ("half a rank", (MODEL, "ask: communication\nstrategy: data(k)\ngiven: {k: 1/2, B: 4}"),
     12, "data(k)", "the mesh axis 'data' has 1/2 ranks"),
    ("no unit", (MODEL, "ask: communication\nstrategy: data(2)\nprinted: 30"),
     13, "30", "the printed number is without a unit, but the derived one in B"),
    ("a division by zero", (MODEL, "ask: flops\ngiven: {B: 1/0}"),
     12, "1/0", "'1/0' divides by zero"),
    ("a figure's bytes in seconds", ("figure: minimum\nof: buckets\nover: n_b\ngiven: {s: 5 s, w: 1 GB/s, o: 1 us}",),
     9, "5 s", "s is given in s"),
    ("a figure's negative time", (SCHEDULE + "forward: -1",),
     10, "-1", "a forward time is negative"),
    ("a figure's choice", ("figure: minimum\nof: bucket\nover: n_b",),
     7, "bucket", "unknown choice 'bucket' of 'of'"),
]  # fmt: skip


@pytest.mark.parametrize(("blocks", "line", "word", "said"), [m[1:] for m in MISTAKES], ids=[m[0] for m in MISTAKES])
def test_a_number_that_makes_no_sense_is_refused_where_it_stands(
    blocks: tuple[str, ...], line: int, word: str, said: str
) -> None:
    with pytest.raises(SymcommError) as caught:
        solve(parse_problem(document(*blocks), "p.md"))
    assert said in caught.value.message
    assert caught.value.span is not None
    assert (caught.value.span.line, caught.value.span.word) == (line, word)


def test_units_that_fit_and_bare_numbers_are_taken() -> None:
    made = solve(parse_problem(document("ask: buckets\ngiven: {s: 8 GB, w: 120 GB/s, o: 100 us, n_b: 8}")))
    bare = solve(parse_problem(document("ask: buckets\ngiven: {s: 8e9, w: 120e9, o: 1/10000, n_b: 8}")))
    assert next(made.answers()).quantity == next(bare.answers()).quantity


def test_a_size_with_a_unit_is_refused_in_python_as_well() -> None:
    model = sc.load("Computation\tInput\tOutput\ny = xW\tx [B, D], W [D, F]\ty [B, F]\n")
    with pytest.raises(ValuesError, match="B is given in B, but it is a number of things"):
        model.flops().at(B="80 GB", D=2, F=3)
    with pytest.raises(StrategyError, match="the mesh axis 'data' has 3/2 ranks"):
        model.at(k="1.5").communication("data(k)")


def test_the_problem_file_itself_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "p.md"
    path.write_text(document(MODEL, "ask: flops"), encoding="utf-8")
    before = path.read_bytes()
    from api import read_problem

    solved = solve(read_problem(path))
    with pytest.raises(SymcommError, match="is the problem file itself, which would be overwritten"):
        render(solved, ("tex", "md"), tmp_path, name="p")
    assert [file.name for file in tmp_path.iterdir()] == ["p.md"]
    assert path.read_bytes() == before


def test_a_rate_of_an_option_is_shown_with_its_unit() -> None:
    ask = "ask: time\nphase: forward\nterm: compute\nstrategy: data(1)\npeak: 312 TFLOP/s\ngiven: {B: 4}"
    given = next(solve(parse_problem(document(MODEL, ask))).answers()).given
    assert "312 TFLOP/s" in " ".join(str(one.quantity) for one in given)
