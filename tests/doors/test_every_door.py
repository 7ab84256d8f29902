"""What is refused is refused at every door alike: in Python, in a problem file, on the command line."""

import re
from pathlib import Path

import pytest
from api import main, parse_problem
from click.testing import CliRunner

import symcomm as sc

TABLE = (
    "| Computation | Input | Output |\n|-|-|-|\n"
    r"| $h = relu(x W)$ | $x \in R^{B \times D}, W \in R^{D \times F}$ | $h \in R^{B \times F}$ |" + "\n"
    r"| $y = h V$ | $V \in R^{F \times D}$ | $y \in R^{B \times D}$ |" + "\n"
)
SIZES = {"B": 128, "D": 16, "F": 64, "N_layer": 32}
RATES = {"device": "A100-80GB-SXM", "strategy": "data(8)"}
CASES = [
    ("communication", {"strategy": "data(k)"}, {"k": -8}, r"k is -8|'-8' is not positive"),
    ("communication", {"strategy": "data(k)"}, {"k": 0}, r"k is 0|'0' is not positive"),
    ("communication", {"strategy": "data(0)"}, {}, "a mesh axis of 0 ranks(?s:.*)hint: a degree is at least 1"),
    ("communication", {"strategy": "data(k)"}, {"k": 3}, "128 is not divisible by 3"),
    ("communication", {"strategy": "data(k)"}, {"k": 8, "N_Layer": 4}, "'N_Layer'(?s:.*)hint: did you mean 'N_layer'"),
    ("communication", {"strategy": "data(k)"}, {"k": 8, "Bx": 4}, "has no symbol 'Bx'(?s:.*)hint: did you mean 'B'"),
    ("step_time", {**RATES, "microbatches": 0}, {}, "'microbatches' (is 0, but it )?must be positive"),
    ("step_time", {**RATES, "microbatches": 1000}, {}, "B = 128 is not divisible by 1000"),
    ("step_time", {**RATES, "microbatches": 32}, {}, "into 8 parts, but 4 is not divisible by 8"),
    ("step_time", {**RATES, "strategy": "pipeline(4, microbatches=3)"}, {}, "B = 128 is not divisible by 3"),
    ("activation_memory", {"every": 64}, {}, "32 is not divisible by 64(?s:.*)a divisor of 32"),
    ("activation_memory", {"every": 0}, {}, "'every' (is 0, but it )?must be positive"),
    ("activation_memory", {"strategy": "pipeline(4)", "every": 16}, {"m": 4}, "8 is not divisible by 16"),
]  # fmt: skip


def document(tmp_path: Path) -> Path:
    path = tmp_path / "layer.md"
    path.write_text(f"{TABLE}\n```symcomm\nmodel: layer\nrepeat: N_layer\nvalues: {SIZES}\n```\n".replace("'", ""))
    return path


@pytest.mark.parametrize(("quantity", "options", "given", "said"), CASES)
def test_a_number_that_makes_no_sense_is_refused_at_every_door(quantity, options, given, said, tmp_path: Path):
    path = document(tmp_path)
    with pytest.raises(sc.SymcommError, match=said):
        sc.load(path).derive(quantity, **options).at(**given)
    asked = "".join(f"{key}: {value}\n" for key, value in {"ask": quantity, **options}.items())
    question = f"## 1. Q\n\n```symcomm\n{asked}given: {given}\n```\n".replace("'", "")
    with pytest.raises(sc.SymcommError, match=said) as caught:
        [*sc.solve(parse_problem(f"{path.read_text()}\n{question}", "layer.md")).answers()]
    assert str(caught.value).startswith("layer.md:")
    words = [word for key, value in options.items() for word in (f"--{key}", str(value))]
    at = ["--at", ",".join(f"{key}={value}" for key, value in given.items())] if given else []
    run = CliRunner().invoke(main, ["derive", quantity, "--model", str(path), *words, *at])
    assert run.exit_code == 2
    assert re.search(said, run.output)


ROWS = [
    (r"y = 2 \times 3", "B", "a product of numbers alone"),
    ("y = x/0", "B", "a division by zero"),
    (r"y = x \times (1/0)", "B", "a division by zero"),
    (r"y = x/(D-D)", "B", "a division by zero"),
    ("y = relu(x)", "-D", "a size of -D"),
    ("y = relu(x)", "D-2D", "a size of -D"),
    ("y = relu(x)", "8 GB", "'GB' is a unit, and a size counts things"),
    ("y = relu(x)", r"D mod 8", "'mod' cannot stand in a size"),
    ("y = relu(x)", "round(D)", "unknown function 'round'"),
    ("y = relu(x)", "sqrt(-1)*D", r"a size of I\*D"),
    ("y = relu(x)", "10**5000", "exponents go up to 1,000"),
]


@pytest.mark.parametrize(("row", "size", "said"), ROWS)
def test_a_row_that_makes_no_sense_is_refused_with_its_place_at_every_door(row, size, said, tmp_path: Path):
    shape = rf"R^{{{size} \times D}}"
    table = rf"""| Computation | Input | Output |
|-|-|-|
| ${row}$ | $x \in {shape}$ | $y \in {shape}$ |
"""
    path = tmp_path / "layer.md"
    path.write_text(f"{table}\n```symcomm\nmodel: layer\n```\n\n```symcomm\nask: flops\n```\n")
    with pytest.raises(sc.SymcommError, match=rf"column (Computation|Input): {said}(?s:.*)\^"):
        sc.load(table)
    with pytest.raises(sc.SymcommError, match=rf"layer\.md:3, column (Computation|Input): {said}(?s:.*)\^"):
        sc.solve(sc.read_problem(path))
    for command in (["show", str(path)], ["solve", str(path), "-o", str(tmp_path / "out")]):
        run = CliRunner().invoke(main, command)
        assert run.exit_code == 2
        assert re.search(rf"layer\.md:3, column (Computation|Input): {said}", run.output)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("payload", ["1.5/2 GB", "1e3/2 GB"])
def test_a_payload_that_is_no_fraction_is_refused_at_every_door(payload: str):
    said = f"'{payload}' is not a fraction of whole numbers(?s:.*)write for instance 3/4 GB or 0.75 GB"
    with pytest.raises(sc.SymcommError, match=said):
        sc.Quantity.parse(payload)
    question = f"# Q\n\n```symcomm\nask: collective_time\npayload: {payload}\nranks: 4\n```\n"
    with pytest.raises(sc.SymcommError, match=said):
        sc.solve(parse_problem(question, "q.md"))
    run = CliRunner().invoke(main, ["derive", "collective_time", "--payload", payload, "--ranks", "4"])
    assert run.exit_code == 2
    assert re.search(said, run.output)
