"""Traces made by other programs, and the four tables of the course, cell by cell."""

import json
from fractions import Fraction
from pathlib import Path
from unicodedata import normalize

import pytest
import sympy as sp
from api import (
    Accounting,
    Exhibit,
    Form,
    Related,
    adjoints,
    derive,
    forward,
    jacobian,
    no_model,
    plain,
    primal,
    reverse,
    tangents,
)

import symcomm as sc

DATA = Path(__file__).parents[1] / "data"
GOLDEN = json.loads((DATA / "golden_traces.json").read_text())
ENTRIES = {e["id"]: e for e in json.loads((DATA / "golden_differentiation.json").read_text())}
CASES = {case["id"]: case for case in GOLDEN["cases"]}
SYSTEM, POINT = "y_1 = (x_1+x_2)^2; y_2 = (x_1-x_2)^2", "x_1 = 2, x_2 = 4"


def same(found, text: str) -> bool:
    """Compared by value: the golden texts are SymPy's, with ln for the logarithm."""
    expected = sp.sympify(text, locals={"ln": sp.log})
    return bool(abs(sp.N(found - expected, 60)) < sp.Float("1e-45", 60))


def named(name: str) -> str:
    return f"{name[0]}_{name[1:]}"


def post_order(trace) -> list[int]:
    """The operations as a reading of the outputs meets them, each after its operands."""
    found: dict[int, None] = {}

    def visit(number: int) -> None:
        if number > 0 and number not in found:
            for read in trace[number].reads:
                visit(read)
            found[number] = None

    for _, number in trace.outputs:
        visit(number)
    return list(found)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_trace_has_the_variables_and_values_of_the_golden_one(case):
    made = sc.trace(case["system"], case["inputs"])
    shape = [(v.number, v.level, v.operation) for v in made.variables if not v.input]
    assert shape == [(row["v"], row["level"], row["op"]) for row in case["trace"] if "op" in row]
    assert [v.number for v in made.inputs] == [row["v"] for row in case["trace"] if "input" in row]
    assert dict(made.outputs) == {named(name): number for name, number in case["outputs"].items()}
    assert post_order(made) == case["post_order"]
    assert len(made.operations) == case["operations"]
    for v, row in zip(made.variables, case["trace"], strict=True):
        assert same(v.value, row["value"]), row
        for partial, told in zip(made.partials(v.number), row.get("partials", ()), strict=True):
            assert partial.of == told["of"], row
            assert same(partial.value, told["value"]), row
        operands = [o if isinstance(o, int) else {"const": str(o)} for o in v.operands]
        assert operands == row.get("args", [])


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_both_modes_give_the_golden_tangents_adjoints_and_rows(case):
    made = sc.trace(case["system"], case["inputs"])
    for name, told in case["tangents"].items():
        found = forward(made, named(name))
        assert all(same(found[int(number)], value) for number, value in told.items())
    for name, told in case["adjoints"].items():
        swept = reverse(made, named(name))
        assert all(same(swept.adjoints[int(number)], value) for number, value in told.items())
        for row, one in zip(swept.rows, case["reverse_rows"][name], strict=True):
            assert (row.row, row.target, row.adds) == (one["row"], one["target"], one["accumulates"])
            assert same(row.worth, one["partial"])
            assert same(row.after, one["after"])
    for mode in ("forward", "reverse"):
        for row, told in zip(jacobian(made, mode), case["jacobian"], strict=True):
            assert all(same(a, b) for a, b in zip(row, told, strict=True))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_passes_of_a_jacobian_are_counted(case):
    for mode in ("forward", "reverse"):
        options = {"formulas": case["system"], "point": _text(case["inputs"]), "mode": mode}
        made = derive("differentiation_cost", no_model(), options, Accounting(), {})
        assert made.at().value == case["passes"][mode]
    fewer = case["passes"]["fewer"]
    told = derive(
        "jacobian", no_model(), {"formulas": case["system"], "point": _text(case["inputs"])}, Accounting(), {}
    ).notes[-1]
    assert ("as many" if fewer == "equal" else f"{fewer} mode takes fewer") in told


def _text(inputs: dict[str, str]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in inputs.items())


def test_a_kink_and_a_point_outside_the_domain_are_told_and_never_silently_given_a_value():
    kink, outside = GOLDEN["edge_cases"]
    made = sc.trace(kink["system"], kink["inputs"])
    with pytest.raises(sc.SymcommError, match="kink at 0: left derivative -1, right derivative 1"):
        reverse(made, "y_1")
    with pytest.raises(sc.SymcommError, match=r"ln\(0\) is not defined"):
        sc.trace(outside["system"], outside["inputs"])


# -- the tables of the course, as they are printed -----------------------------------------------------------

TABLES = {
    "x_1": """v_-1 = x_1 | 2 | v̇_-1 = ẋ_1 | 1
v_0 = x_2 | 4 | v̇_0 = ẋ_2 | 0
v_1 = v_-1 + v_0 | 6 | v̇_1 = v̇_-1 + v̇_0 | 1
v_2 = v_-1 - v_0 | -2 | v̇_2 = v̇_-1 - v̇_0 | 1
v_3 = v_1² | 36 | v̇_3 = 2·v_1·v̇_1 | 12
v_4 = v_2² | 4 | v̇_4 = 2·v_2·v̇_2 | -4
y_1 = v_3 | 36 | ẏ_1 = v̇_3 | 12
y_2 = v_4 | 4 | ẏ_2 = v̇_4 | -4""",
    "x_2": """v_-1 = x_1 | 2 | v̇_-1 = ẋ_1 | 0
v_0 = x_2 | 4 | v̇_0 = ẋ_2 | 1
v_1 = v_-1 + v_0 | 6 | v̇_1 = v̇_-1 + v̇_0 | 1
v_2 = v_-1 - v_0 | -2 | v̇_2 = v̇_-1 - v̇_0 | -1
v_3 = v_1² | 36 | v̇_3 = 2·v_1·v̇_1 | 12
v_4 = v_2² | 4 | v̇_4 = 2·v_2·v̇_2 | 4
y_1 = v_3 | 36 | ẏ_1 = v̇_3 | 12
y_2 = v_4 | 4 | ẏ_2 = v̇_4 | 4""",
    "y_1": """v_-1 = x_1 | 2 | x̄_1 = v̄_-1 | 12
v_0 = x_2 | 4 | x̄_2 = v̄_0 | 12
v_1 = v_-1 + v_0 | 6 | v̄_-1 = v̄_-1 + v̄_1·1 | 12
 |  | v̄_0 = v̄_0 + v̄_1·1 | 12
v_2 = v_-1 - v_0 | -2 | v̄_-1 = v̄_2·1 | 0
 |  | v̄_0 = v̄_2·(-1) | 0
v_3 = v_1² | 36 | v̄_1 = v̄_3·2·v_1 | 12
v_4 = v_2² | 4 | v̄_2 = v̄_4·2·v_2 | 0
y_1 = v_3 | 36 | v̄_3 = ȳ_1 | 1
y_2 = v_4 | 4 | v̄_4 = ȳ_2 | 0""",
    "y_2": """v_-1 = x_1 | 2 | x̄_1 = v̄_-1 | -4
v_0 = x_2 | 4 | x̄_2 = v̄_0 | 4
v_1 = v_-1 + v_0 | 6 | v̄_-1 = v̄_-1 + v̄_1·1 | -4
 |  | v̄_0 = v̄_0 + v̄_1·1 | 4
v_2 = v_-1 - v_0 | -2 | v̄_-1 = v̄_2·1 | -4
 |  | v̄_0 = v̄_2·(-1) | 4
v_3 = v_1² | 36 | v̄_1 = v̄_3·2·v_1 | 0
v_4 = v_2² | 4 | v̄_2 = v̄_4·2·v_2 | -4
y_1 = v_3 | 36 | v̄_3 = ȳ_1 | 0
y_2 = v_4 | 4 | v̄_4 = ȳ_2 | 1""",
}  # the last two rows stand the other way round in the course's tables 3 and 4; the values are the same


def cells(table: Exhibit) -> list[list[str]]:
    return [[plain(c) if isinstance(c, Form) else str(c) for c in row] for row in table.rows]


@pytest.mark.parametrize("name", TABLES)
def test_every_cell_of_the_tables_of_the_course_is_derived(name):
    made = sc.trace(SYSTEM, POINT)
    table = (tangents if name.startswith("x") else adjoints)(made, name)
    printed = [[c.strip() for c in line.split("|")] for line in normalize("NFD", TABLES[name]).split("\n")]
    assert cells(table) == printed


def test_the_primal_table_is_the_left_half_of_the_others():
    made = sc.trace(SYSTEM, POINT)
    assert cells(primal(made)) == [row[:2] for row in cells(tangents(made, "x_1"))]


@pytest.mark.parametrize("entry", [e for e in ENTRIES if e.startswith("001.AD.")])
def test_the_derivatives_of_the_homework_are_answers_of_derivations(entry):
    told, name = Fraction(ENTRIES[entry]["value"]), entry.rpartition(".")[2]
    options = {"formulas": SYSTEM, "point": POINT}
    asked = []
    if name.startswith("dy"):
        of, by = f"y_{name[2]}", f"x_{name[5]}"
        asked = [
            derive(q, no_model(), {**options, "of": of, "by": by}, Accounting(), {})
            for q in ("forward_mode", "reverse_mode", "jacobian")
        ]
    else:
        asked = [derive("evaluation_trace", no_model(), {**options, "of": named(name)}, Accounting(), {})]
    for made in asked:
        assert made.at().value == told
        made.check(deep=True)


def test_the_rows_of_a_table_are_the_steps_of_its_derivation():
    made = derive("forward_mode", no_model(), {"formulas": SYSTEM, "point": POINT, "by": "x_1"}, Accounting(), {})
    said = {(step.name, step.form) for step in made.steps}
    for row in made.exhibits[0].rows:
        for cell in row[::2]:
            assert isinstance(cell, Related)
            assert (plain(cell.left), cell.right) in said
    assert made.expr == 12
