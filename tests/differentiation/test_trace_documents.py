"""Traces and gradients as questions of documents: printed tables, costs, mistakes, every format."""

import json
from fractions import Fraction
from pathlib import Path
from unicodedata import normalize

import pytest
import sympy as sp
from api import (
    TRACE_MISTAKES,
    Accounting,
    derive,
    exercise,
    jacobian,
    main,
    no_model,
    parse_problem,
    parse_template,
    peak,
    solve,
)
from api import derivation as as_json
from click.testing import CliRunner

import symcomm as sc

FORWARD = """| Forward Primal | Value | Forward Tangent | Value |
|---|---|---|---|
| $v_{-1} = x_1$ | 2 | $\\dot{v}_{-1} = \\dot{x}_1$ | 1 |
| $v_0 = x_2$ | 4 | $\\dot{v}_0 = \\dot{x}_2$ | 0 |
| $v_1 = v_{-1} + v_0$ | 6 | $\\dot{v}_1 = \\dot{v}_{-1} + \\dot{v}_0$ | 1 |
| $v_2 = v_{-1} - v_0$ | -2 | $\\dot{v}_2 = \\dot{v}_{-1} - \\dot{v}_0$ | 1 |
| $v_3 = (v_1)^2$ | 36 | $\\dot{v}_3 = 2v_1\\dot{v}_1$ | 12 |
| $v_4 = (v_2)^2$ | 4 | $\\dot{v}_4 = 2v_2\\dot{v}_2$ | -4 |
| $y_1 = v_3$ | 36 | $\\dot{y}_1 = \\dot{v}_3$ | 12 |
| $y_2 = v_4$ | 4 | $\\dot{y}_2 = \\dot{v}_4$ | -4 |"""
REVERSE = """| Forward Primal | Value | Reverse Adjoint | Value |
|---|---|---|---|
| $v_{-1} = x_1$ | 2 | $\\bar{x}_1 = \\bar{v}_{-1}$ | -4 |
| $v_0 = x_2$ | 4 | $\\bar{x}_2 = \\bar{v}_0$ | 4 |
| $v_1 = v_{-1} + v_0$ | 6 | $\\bar{v}_{-1} = \\bar{v}_{-1} + \\bar{v}_1 \\times 1$ | -4 |
| | | $\\bar{v}_0 = \\bar{v}_0 + \\bar{v}_1 \\times 1$ | 4 |
| $v_2 = v_{-1} - v_0$ | -2 | $\\bar{v}_{-1} = \\bar{v}_2 \\times 1$ | -4 |
| | | $\\bar{v}_0 = \\bar{v}_2 \\times -1$ | 4 |
| $v_3 = (v_1)^2$ | 36 | $\\bar{v}_1 = \\bar{v}_3 \\times 2v_1$ | 0 |
| $v_4 = (v_2)^2$ | 4 | $\\bar{v}_2 = \\bar{v}_4 \\times 2v_2$ | -4 |
| $y_1 = v_3$ | 36 | $\\bar{y}_1 = \\bar{v}_3$ | 0 |
| $y_2 = v_4$ | 4 | $\\bar{y}_2 = \\bar{v}_4$ | 1 |"""
SYSTEM = "formulas: y_1 = (x_1+x_2)^2, y_2 = (x_1-x_2)^2\npoint: {x_1: 2, x_2: 4}\n"


def solved(ask: str, printed: str = ""):
    table = "printed: |\n" + "".join(f"  {line}\n" for line in printed.split("\n")) if printed else ""
    document = solve(parse_problem(f"```symcomm\n{ask}{table}```\n", "hw.md"))
    return next(document.answers()).derivation


def test_a_printed_table_that_is_right_agrees_in_every_cell():
    made = solved(f"ask: forward_mode\n{SYSTEM}by: x_1\n", FORWARD)
    assert made.notes[-1] == "Printed and derived: 32 cells agree."


def test_assignments_that_are_printed_the_wrong_way_round_are_told_and_their_values_agree():
    made = solved(f"ask: reverse_mode\n{SYSTEM}of: y_2\n", REVERSE)
    table = made.exhibits[-1]
    assert table.title == "Printed and derived: 34 cells agree, and these do not"
    assert [row[2] for row in table.rows] == [
        normalize("NFD", "the assignment goes the other way: `v̄_3` gets its value from `ȳ_1`"),
        normalize("NFD", "the assignment goes the other way: `v̄_4` gets its value from `ȳ_2`"),
    ]


def test_a_variable_that_the_trace_does_not_have_is_told_with_what_is_meant():
    printed = FORWARD.replace("$\\dot{y}_1 = \\dot{v}_3$", "$\\dot{v}_5 = \\frac{\\partial y_1}{\\partial x_1}$")
    made = solved(f"ask: forward_mode\n{SYSTEM}by: x_1\n", printed)
    assert [row[2] for row in made.exhibits[-1].rows] == [normalize("NFD", "the trace has no `v̇_5`; `ẏ_1` = `v̇_3`")]


@pytest.mark.parametrize(("old", "new", "says"), [
    ("| -4 |\n| $y_1", "| 4 |\n| $y_1", "the value is -4, not 4"),
    ("2v_2\\dot{v}_2", "2v_2", "the right side has this value at this point only"),
    ("$v_3 = (v_1)^2$", "$v_3 = (v_1)^3$", "the right side is 216, and the derived one 36"),
    ("2v_2\\dot{v}_2", "2 + ) 3", "the right side cannot be read"),
    ("2v_1\\dot{v}_1", "2v_9\\dot{v}_1", "the trace has no `v_9`"),
])  # fmt: skip
def test_a_wrong_cell_of_a_printed_table_is_told(old, new, says):
    printed = FORWARD.replace(old, new)
    assert printed != FORWARD
    made = solved(f"ask: forward_mode\n{SYSTEM}by: x_1\n", printed)
    assert any(str(row[2]).startswith(says) for row in made.exhibits[-1].rows)


DL = r"\frac{\partial L}{\partial \mathbf"
GRADIENTS = rf"""| gradient | shape |
|---|---|
| ${DL}{{Y}}}}$ | $\mathbb{{R}}^{{B \times H_2}}$ |
| ${DL}{{W}}}} = \mathbf{{X}}^T {DL}{{Y}}}}$ | $\mathbb{{R}}^{{B \times H_2}}$ |
| ${DL}{{X}}}} = {DL}{{Y}}}} \mathbf{{W}}^T$ | $\mathbb{{R}}^{{B \times D_1}}$ |"""
LINEAR = (
    "- model: linear\n  formula: '$Y = XW, X \\in \\mathbb{R}^{B \\times D_1}, W \\in \\mathbb{R}^{D_1 \\times D_2}, "
    "Y \\in \\mathbb{R}^{B \\times D_2}$'\n- ask: gradients\n  printed: |\n"
)


def test_printed_shapes_that_cannot_be_are_told_with_the_reason():
    text = LINEAR + "".join(f"    {line}\n" for line in GRADIENTS.split("\n"))
    made = next(solve(parse_problem(f"```symcomm\n{text}```\n", "slides.md")).answers()).derivation
    table = made.exhibits[-1]
    assert table.title == "Printed and derived shapes: 1 agree, and these cannot be"
    (dy, dw) = table.rows
    assert dy[1] == "`B` × `D_2`"
    assert dy[2] == "A gradient has the shape of `Y`. No axis here is called `H_2`."
    assert dw[1] == "`D_1` × `D_2`"
    assert "the product is `D_1` × `D_2`" in str(dw[2])
    assert "`H_2`" in str(dw[2])


def test_a_transposed_shape_is_told_as_such():
    printed = "| gradient | shape |\n|---|---|\n| $dW$ | $D_2 \\times D_1$ |"
    text = LINEAR + "".join(f"    {line}\n" for line in printed.split("\n"))
    made = next(solve(parse_problem(f"```symcomm\n{text}```\n", "slides.md")).answers()).derivation
    assert "This is the transpose." in str(made.exhibits[-1].rows[0][2])


@pytest.mark.parametrize(("text", "message"), [
    ("```symcomm\nask: peak_rate\nprinted: |\n  | a | b |\n  |---|---|\n  | 1 | 2 |\n```", "has none to set beside it"),
    (f"```symcomm\nask: forward_mode\n{SYSTEM}printed: |\n  no table\n```", "one printed table is wanted here"),
])  # fmt: skip
def test_a_printed_table_that_cannot_be_compared_is_refused(text, message):
    with pytest.raises(sc.SymcommError, match=message):
        solve(parse_problem(text, "hw.md"))


# -- costs ---------------------------------------------------------------------------------------------------


def asked(name: str, **options: object):
    return derive(name, no_model(), options, Accounting(), {})


def test_reverse_mode_is_cheaper_where_there_are_fewer_outputs_than_inputs():
    system = {"formulas": "y = x_1 x_2 x_3 x_4 + x_5", "point": "x_1=1,x_2=2,x_3=3,x_4=4,x_5=5"}
    assert asked("differentiation_cost", **system).at().value == 1
    assert asked("differentiation_cost", **system, mode="forward").at().value == 5
    reverse = asked("differentiation_cost", **system, mode="reverse", want="operations")
    forward = asked("differentiation_cost", **system, mode="forward", want="operations")
    # four operations; three products and one sum, so 6 partial derivatives that are not 1; no value is used twice
    assert reverse.at().value == 4 + 6
    assert forward.at().value == 4 + 5 * (6 + 4)
    reverse.check(deep=True)


@pytest.mark.parametrize("seed", range(4))
def test_checkpoints_keep_what_a_run_of_the_sweep_has_in_memory(seed):
    from random import Random

    made = exercise(Random(seed).randrange, 7, 2).trace
    for every in range(1, 8):
        assert peak(made, every) == _run(made, every)


def _run(made, every: int) -> int:
    """The most values that are there: by keeping sets while the segments are reversed."""
    total = len(made.operations)
    reads = {v.number: set(v.reads) for v in made.operations}
    slopes = {}
    for v in made.operations:
        slopes[v.number] = set()
        for p in made.partials(v.number):
            text = str(p.form)
            slopes[v.number] |= {w.number for w in made.variables if f"name='{w.name}'" in text}
    most = 0
    starts = list(range(1, total + 1, every))
    for n, start in reversed(list(enumerate(starts))):
        stop = min(start + every, total + 1)
        kept = set()
        for earlier in starts[: n + 1]:  # what its own and all earlier checkpoints hold
            kept |= {r for later in range(earlier, total + 1) for r in reads[later] | slopes[later] if r < earlier}
        inside = {r for op in range(start, stop) for r in slopes[op] if start <= r < stop}
        most = max(most, len(kept | inside))
    return most


def test_the_least_memory_of_a_chain_is_at_the_square_root():
    made = asked("checkpoint_memory")
    made.check(deep=True)
    values = {k: made.at(T=144, k=k).value for k in (1, 2, 3, 4, 6, 8, 9, 12, 16, 18, 24, 36, 48, 72, 144)}
    assert min(values, key=values.__getitem__) == 12
    assert values[12] == 23
    with pytest.raises(sc.SymcommError, match="the closed form holds where"):
        made.at(T=10, k=3)
    best = sc.minimise(made, over="k")
    assert "√" in str(best) or "sqrt" in str(best.expr)


# -- mistakes, exams, formats --------------------------------------------------------------------------------


def test_each_mistake_is_derived_and_not_given():
    system = {"formulas": "y = x_1 (x_1 + 2x_2)^2", "point": "x_1 = 3, x_2 = -1"}  # right: 1 + 2*3 = 7
    assert asked("forward_mode", **system, by="x_1").at().value == 7
    # the product of tangents: 1 * 2*1*1 = 2
    assert asked("forward_mode", **system, by="x_1", slip="product_rule_forgotten").at().value == 2
    # for x_2 the inner derivative is 2: 3 * 2*1*2 = 12, without it 3 * 2 = 6
    assert asked("forward_mode", **system, by="x_2").at().value == 12
    assert asked("forward_mode", **system, by="x_2", slip="inner_derivative_forgotten").at().value == 6
    # the last use of x_1 is the sum: 3 * 2*1 = 6
    assert asked("reverse_mode", **system, slip="adjoint_overwritten").at().value == 6
    assert {*TRACE_MISTAKES} == {"adjoint_overwritten", "product_rule_forgotten", "inner_derivative_forgotten"}


def test_a_wrong_answer_of_a_student_is_recognised_by_its_mistake():
    text = "```symcomm\nask: reverse_mode\nformulas: y = x_1 (x_1 + 2x_2)^2\npoint: x_1 = 3, x_2 = -1\n```\n"
    problem = parse_problem(text, "quiz.md")
    key = sc.key_of(problem, problem.asks[0])
    assert sc.check("7", key).right
    verdict = sc.check("6", key)
    assert verdict.mistakes == ("adjoint_overwritten",)
    assert "adds the adjoints of all its uses" in verdict.says[0]
    assert sc.check("5", key).verdict == "different"


def test_formulas_are_drawn_for_each_paper_and_are_the_same_for_the_same_seed():
    text = (
        "---\ndraw:\n  f: {formulas: 4, operations: 4, inputs: 2}\n---\nLet ${{ f.formulas }}$.\n"
        "```symcomm\nask: reverse_mode\nformulas: '{{ f.formulas }}'\npoint: '{{ f.point }}'\n```\n"
    )
    template = parse_template(text, "exam.md")
    drawn = [template.draws.draw("7", student) for student in ("s1", "s2", "s3", "s1")]
    assert drawn[0] == drawn[3]
    assert len({d["f.formulas"].text for d in drawn}) > 1
    document = solve(template.problem(drawn[0]))
    [answer] = document.answers()
    assert answer.quantity is not None
    assert answer.quantity.value.denominator == 1
    assert drawn[0]["f.formulas"].text in str(document.blocks[0])


@pytest.mark.parametrize(("said", "message"), [
    ("{formulas: 1}", "2 to 200 formulas"), ("{formulas: 5, operations: 40}", "2 to 12 operations"),
    ("{formulas: 5, points: 4}", "unknown key 'points'"),
])  # fmt: skip
def test_formulas_that_cannot_be_drawn_are_told(said, message):
    with pytest.raises(sc.SymcommError, match=message):
        parse_problem(f"---\ndraw:\n  f: {said}\n---\n", "exam.md")


def test_the_command_line_and_json_have_the_table():
    said = ["derive", "reverse_mode", "--formulas", "y = ln(x_1) + x_1 x_2 - sin(x_2)", "--at", "x_1=2,x_2=5"]
    shown = CliRunner().invoke(main, [*said, "--detail", "full"])
    assert shown.exit_code == 0
    assert "v̄_-1 = v̄_-1 + v̄_1·1/v_-1" in shown.output
    assert "11/2 = 5.5" in shown.output
    data = json.loads(CliRunner().invoke(main, [*said, "--to", "json"]).output)
    assert data["value"]["exact"] == "11/2"
    assert data["exhibits"][0]["rows"][0] == [
        "v_-1 = x_1",
        "2",
        "x̄_1 = v̄_-1",
        "11/2",
    ]


def test_latex_has_the_table_as_an_array():
    latex = asked("forward_mode", formulas="y = x_1^2", point="x_1 = 3").latex()
    assert r"v_{1} = v_{0}^{2} & 9 & \dot{v}_{1} = 2\,v_{0}\,\dot{v}_{0} & 6" in latex
    assert latex.count(r"\begin{array}") == latex.count(r"\end{array}") == 1


def test_an_irrational_answer_is_exact_and_its_decimals_are_marked():
    made = asked("jacobian", formulas="y = sin(x_1) cos(x_1)", point="x_1 = pi/6", mode="forward")
    assert made.at().value == Fraction(1, 2)
    made = asked("forward_mode", formulas="y = sqrt(x_1^3)", point="x_1 = 2")
    assert str(made.at()).startswith("(3/2)·√(2) ≈ 2.12") or "≈ 2.1213" in str(made.at())
    assert as_json(made)["value"]["text"] == str(made.at())


@pytest.mark.parametrize("kind", ["md", "tex", "html", "typ"])
def test_every_format_shows_the_table_with_dots_and_bars(kind):
    from api import page

    text = f"```symcomm\nask: forward_mode\n{SYSTEM}by: x_1\n```\n```symcomm\nask: reverse_mode\n{SYSTEM}of: y_1\n```\n"
    shown = str(page(solve(parse_problem(text, "hw.md")), kind, True))
    dot, bar = {"md": (r"\\dot{v}_{-1}", r"\\bar{v}_{-1}"), "tex": (r"\\dot{v}_{-1}", r"\\bar{v}_{-1}"),
                "html": ('<mover accent="true"><mi>v</mi><mo>˙</mo></mover>', "<mo>¯</mo>"),
                "typ": ("dot(v)_(- 1)", "macron(v)_(- 1)")}[kind]  # fmt: skip
    assert dot in shown
    assert bar in shown


def test_the_graph_of_a_trace_is_drawn(tmp_path: Path):
    from api import trace_plot
    from api import trace_says as says

    made = sc.trace("y_1 = ln(x_1) + x_1 x_2; y_2 = x_1 x_1", "x_1 = 2, x_2 = 5")
    trace_plot(made, tmp_path / "trace.svg")
    assert (tmp_path / "trace.svg").stat().st_size > 2_000
    assert says(made) == "The graph of the trace: 2 inputs, 4 operations, 2 outputs; `y_1` is `v_4`, `y_2` is `v_3`."
    assert [*made.nx.edges] == [(-1, 1), (-1, 2), (-1, 3), (0, 2), (1, 4), (2, 4)]


LISTING = """ask: listing
member: $(x_i, y_i)$
printed: |
  | first | second | last |
  |---|---|---|
  | $(x_1, y_1)$ | $(x_1, y_2)$ | $(x_N, y_N)$ |
"""


def test_a_list_whose_second_member_repeats_an_index_is_told():
    made = solved(LISTING)
    assert made.exhibits[-1].rows == (
        ("(`x_1`, `y_2`)", "(`x_2`, `y_2`)", "every index goes up by one: `x_2` stands here, not `x_1`"),
    )
    made.check(deep=True)
    assert str(made.expr) == "N"
    assert solved(LISTING.replace("(x_1, y_2)", "(x_2, y_2)")).notes[-1] == "Printed and derived: 3 members agree."


def test_a_member_without_its_index_is_refused():
    with pytest.raises(sc.SymcommError, match="has no index 'k'"):
        solved("ask: listing\nmember: (x_i, y_i)\nindex: k\n")


@pytest.mark.parametrize(
    ("system", "gradient"),
    [
        # Baydin et al. (2018), section 3, as it is printed there.
        (r"f(x_1, x_2) = \ln x_1 + x_1 x_2 - \sin x_2", (Fraction(11, 2), 2 - sp.cos(5))),
        (r"f(x_1, x_2) = 2g + 1; g(x_1) = x_1^2", (8, 0)),
        (r"y = x_1 \sin x_2 \cos x_2", (sp.sin(5) * sp.cos(5), 2 * (sp.cos(5) ** 2 - sp.sin(5) ** 2))),
    ],
)
def test_a_formula_is_read_as_papers_print_it(system, gradient):
    [row] = jacobian(sc.trace(system, "x_1 = 2, x_2 = 5"))
    assert [sp.simplify(mine - theirs) for mine, theirs in zip(row, gradient, strict=True)] == [0, 0]
