"""Problem documents: prose, tables, headings and blocks are found, questions are derived and evaluated."""

from fractions import Fraction
from pathlib import Path

import pytest
from api import Heading, LayerTable, Prose, load_model, parse_problem, read_problem, solve
from api import pieces_pieces as pieces

EXAMPLES = Path(__file__).parents[2] / "examples"
PRODUCT = r"$Y = XW$ ; $X \in \mathbb{R}^{B \times D}, W \in \mathbb{R}^{D \times K}$ ; $Y \in \mathbb{R}^{B \times K}$"
HEADER = ("Computation", "Input", "Output")


def test_a_document_without_questions_is_not_solved_and_says_so() -> None:
    from api import DocumentError, parse_problem, solve

    text = "Computation\tInput\tOutput\n$y = xW$\tx [B, D], W [D, F]\ty [B, F]\n"
    with pytest.raises(DocumentError) as caught:
        solve(parse_problem(text, "table.txt"))
    assert str(caught.value) == (
        "table.txt asks nothing, so there is no solution to write\n"
        "hint: ask below its tables, in a fenced symcomm block with ask:, or on the command line: symcomm derive "
        "QUANTITY --model FILE"
    )


def rows(separator: str) -> list[str]:
    return [separator.join(HEADER), separator.join(PRODUCT.split(" ; "))]


def pipe_table() -> str:
    head, row = rows(" | ")
    return f"| {head} |\n|---|---|---|\n| {row} |"


def tab_table() -> str:
    return "\n".join(rows("\t"))


def csv_fence() -> str:
    return '```table\nComputation,Input,Output\n"' + '","'.join(PRODUCT.split(" ; ")) + '"\n```'


def latex_table() -> str:
    row = " & ".join(PRODUCT.split(" ; "))
    return (
        "\\begin{table}\n\\begin{tabular}{lll}\n\\toprule\nComputation & Input & Output \\\\\n\\midrule\n"
        f"{row} \\\\\n\\bottomrule\n\\end{{tabular}}\n\\caption{{A product}}\n\\end{{table}}"
    )


TABLES = {"pipe": pipe_table(), "tabs": tab_table(), "csv": csv_fence(), "latex": latex_table()}


@pytest.mark.parametrize("kind", TABLES)
def test_a_layer_table_is_found_in_any_notation_and_the_prose_around_it_is_kept_whole(kind: str):
    problem = parse_problem(f"Before.\n\n{TABLES[kind]}\n\nAfter,\non two lines.\n")
    before, table, after = problem.items
    assert isinstance(before, Prose)
    assert isinstance(table, LayerTable)
    assert isinstance(after, Prose)
    assert (before.markdown, after.markdown) == ("Before.", "After,\non two lines.")
    assert load_model(problem).flops().at(B=2, D=3, K=5).value == 60


def test_headings_lose_their_points_and_keep_their_level():
    problem = parse_problem(
        "---\ntitle: T\n---\n# Question 1 (7 points)\n\n### 1.1 Why? [5 pts]\n\nSetext (2 marks)\n---\n"
    )
    assert [(h.level, h.markdown, h.points) for h in problem.items if isinstance(h, Heading)] == [
        (1, "Question 1", 7),
        (3, "1.1 Why?", 5),
        (2, "Setext", 2),
    ]


def test_without_front_matter_a_first_heading_without_points_is_the_title():
    problem = parse_problem("# Homework 2\n\nWords.\n")
    assert problem.title == "Homework 2"
    assert [type(item).__name__ for item in problem.items] == ["Prose"]


def test_a_first_heading_that_repeats_the_title_is_the_title():
    problem = parse_problem("---\ntitle: Pipelines\n---\n# Pipelines\n\nwords\n\n## Part\n\nmore\n")
    assert problem.title == "Pipelines"
    assert [item.markdown for item in problem.items if isinstance(item, Heading)] == ["Part"]


def test_front_matter_gives_the_title_page_and_the_notation():
    problem = parse_problem(
        "---\ntitle: T\ncourse: C 101\nsubtitle: Spring\nauthors: [A, B]\ndate: 2024-03-20\nlanguage: de-CH\n"
        "symbols: {'$N_{layer}$': layers, n: {meaning: heads, value: 8, latex: 'n_H'}}\n---\n"
    )
    assert (problem.title, problem.course, problem.subtitle, problem.authors) == ("T", "C 101", "Spring", ("A", "B"))
    assert (problem.date, problem.language) == ("2024-03-20", "de-CH")
    assert problem.notation.meanings == {"N_layer": "layers", "n": "heads"}
    assert problem.notation.latex == {"N_layer": "N_{layer}", "n": "n_H"}
    assert [(k.name, k.quantity.value) for k in problem.values] == [("n", 8)]


def test_a_model_takes_the_nearest_table_before_it_or_the_one_it_names():
    other = pipe_table().replace("K", "M")
    text = f"{pipe_table()}\n\nThen:\n\n{other}\n"
    blocks = "\n```symcomm\n- {model: near}\n- {model: first, table: 1}\n```\n"
    problem = parse_problem(text + blocks)
    assert str(load_model(problem, "near").parameters().expr) == "D*M"
    assert str(load_model(problem, "first").parameters().expr) == "D*K"
    assert str(load_model(problem).parameters().expr) == "D*K"  # the last model of the file


def test_a_table_may_stand_in_the_model_and_is_then_shown_in_its_place():
    inner = "\n".join("  " + line for line in pipe_table().split("\n"))
    problem = parse_problem(f"```symcomm\nmodel: a\ntable: |\n{inner}\n```\n")
    assert [type(item).__name__ for item in problem.items] == ["LayerTable", "ModelBlock"]
    assert load_model(problem).parameters().at(D=2, K=3).value == 6
    [row] = problem.tables[0].rows
    assert row[0].span().line == 6  # its line in the file


@pytest.mark.parametrize(
    "formula",
    [
        r"$Y = XW, X \in \mathbb{R}^{4 \times 8}, W \in \mathbb{R}^{8 \times 2}, Y \in \mathbb{R}^{4 \times 2}$",
        r"$Y = X W^Q, X \in \mathbb{R}^{4 \times 8}, W^Q \in \mathbb{R}^{8 \times 2}, Y \in \mathbb{R}^{4 \times 2}$",
        r"Y = XW, X \in \mathbb{R}^{4 \times 8}, W \in \mathbb{R}^{8 \times 2}, Y \in \mathbb{R}^{4 \times 2}",
    ],
)
def test_one_formula_is_a_table_of_one_row(formula: str):
    problem = parse_problem(
        f"```symcomm\nmodel: p\nformula: '{formula}'\n```\n```symcomm\nask: intensity\ndtype: fp32\n```\n"
    )
    [answer] = solve(problem).answers()
    assert answer.quantity is not None
    # 2*4*8*2 operations over 4 bytes for each of 4*8 + 8*2 + 4*2 elements
    assert answer.quantity.value == Fraction(128, 4 * 56)


def test_a_formula_may_declare_two_operands_of_one_shape_and_leave_its_result_out():
    formula = r"$Y = X + Z, X, Z \in \mathbb{R}^{4 \times 8}$"
    problem = parse_problem(f"```symcomm\nmodel: p\nformula: '{formula}'\n```\n")
    assert [cell.text for cell in problem.models["p"].table.rows[0]] == [
        "Y = X + Z",
        r"X, Z \in \mathbb{R}^{4 \times 8}",
        "Y",
    ]


def test_an_error_in_a_formula_points_into_the_block():
    formula = r"$Y = foo(X), X \in \mathbb{R}^{4}, Y \in \mathbb{R}^{4}$"
    problem = parse_problem(f"```symcomm\nmodel: p\nformula: '{formula}'\n```\n", "q.md")
    with pytest.raises(Exception, match="foo") as caught:
        load_model(problem)
    assert (caught.value.span.file, caught.value.span.line, caught.value.span.word) == ("q.md", 3, "foo(X)")


def test_questions_gather_the_asks_below_a_heading_with_their_points():
    block = "```symcomm\n- {ask: flops, points: 4}\n- {ask: parameters, points: 6}\n```\n"
    problem = parse_problem(
        f"{pipe_table()}\n\n```symcomm\nmodel: a\n```\n\n## One (10 points)\n\n{block}\n## Two (3 points)\n\n"
        "```symcomm\nask: flops\n```\n\n## Three\n\nNothing is asked.\n"
    )
    assert [(q.heading.markdown, q.points, len(q.asks)) for q in problem.questions if q.heading] == [
        ("One", 10, 2),
        ("Two", 3, 1),
    ]


def test_a_question_has_its_own_number_format_model_and_conventions():
    text = f"{pipe_table()}\n\n```symcomm\nmodel: a\nvalues: {{B: 2, D: 3, K: 5}}\n```\n"
    ask = "\n```symcomm\n- {ask: traffic, dtype: fp32}\n- {ask: flops, accounting: mac}\n- {ask: flops}\n```\n"
    values = [answer.quantity.value for answer in solve(parse_problem(text + ask)).answers() if answer.quantity]
    assert values == [4 * (2 * 3 + 3 * 5 + 2 * 5), 2 * 3 * 5, 2 * 2 * 3 * 5]


def test_conventions_of_the_document_hold_for_all_questions_and_those_of_the_caller_come_first():
    text = f"---\naccounting: [mac]\n---\n{pipe_table()}\n\n```symcomm\nmodel: a\nvalues: {{B: 2, D: 3, K: 5}}\n```\n"
    problem = parse_problem(text + "\n```symcomm\nask: flops\n```\n")
    [answer] = solve(problem).answers()
    assert answer.quantity is not None
    assert answer.quantity.value == 30
    [answer] = solve(problem, accounting=[("flops", "exact_adds")]).answers()
    assert answer.quantity is not None
    assert answer.quantity.value == 2 * 5 * (2 * 3 - 1)


def test_an_answer_without_all_its_numbers_stays_symbolic():
    problem = parse_problem(
        f"{pipe_table()}\n\n```symcomm\nmodel: a\nvalues: {{B: 2}}\n```\n\n```symcomm\nask: flops\n```\n"
    )
    [answer] = solve(problem).answers()
    assert answer.quantity is None
    assert [given.name for given in answer.given] == ["B"]


def test_progress_is_told_before_each_question_and_at_the_end():
    problem = parse_problem(
        f"{pipe_table()}\n\n```symcomm\nmodel: a\n```\n\n```symcomm\n- ask: flops\n- ask: parameters\n```\n"
    )
    told: list[tuple[int, int, str]] = []
    solve(problem, lambda *step: told.append(step))
    assert told == [(0, 2, "flops"), (1, 2, "parameters"), (2, 2, "")]


def test_windows_line_ends_and_a_byte_order_mark_change_nothing(tmp_path):
    text = f"---\ntitle: T\n---\n{pipe_table()}\n\n```symcomm\nmodel: a\n```\n"
    path = tmp_path / "dos.md"
    path.write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    problem = read_problem(path)
    assert problem.title == "T"
    assert str(load_model(problem).parameters().expr) == "D*K"


def test_every_line_of_a_file_belongs_to_exactly_one_piece():
    text = read_homework()
    prose = "\n".join(p.markdown for p in pieces(text, "h.md") if type(p).__name__ == "Prose")
    assert "Computation" not in prose
    assert "ask:" not in prose
    for words in ("The clock of an A100", "Embeddings, positions", "GPipe schedule"):
        assert prose.count(words) == 1


def read_homework() -> str:
    return (EXAMPLES / "comp4901y-homework2" / "homework.md").read_text(encoding="utf-8")


# The homework's answers, by hand: clock x SM x FMA x 2; 2mnk over 2 bytes for each element; 12 D^2 parameters a layer.
PARAMETERS = 32 * 12 * 4096**2
ACTIVATION = 128 * 4096 * 4096
HOMEWORK = [
    ("", 1_410_000_000 * 108 * 512 * 2),
    ("Product 1", Fraction(2 * 4096**3, 2 * 3 * 4096**2)),
    ("Product 2", Fraction(2 * 4096**2 * 32, 2 * (2 * 4096 * 32 + 4096**2))),
    ("Product 3", Fraction(2 * 32**2 * 4096, 2 * (2 * 4096 * 32 + 32**2))),
    ("", 2 * PARAMETERS),
    ("Forward: activations, from stage i to stage i + 1", 2 * ACTIVATION),
    ("Backward: gradients of the activations, from stage i + 1 to stage i", 2 * ACTIVATION),
    ("", 4 * 32 * 2 * ACTIVATION),
    ("AllGather", 2 * 2 * PARAMETERS),
    ("ReduceScatter", 2 * PARAMETERS),
]


def test_the_homework_is_solved_with_the_values_worked_out_by_hand():
    document = solve(read_problem(EXAMPLES / "comp4901y-homework2" / "homework.md"))
    assert [(a.label, a.quantity and a.quantity.value) for a in document.answers()] == HOMEWORK
    assert sum(q.points or 0 for q in read_problem(document.file).questions) == 5 + 15 + 4 * 10


# The parameters of each example layer times its number of layers, counted by hand from the sizes in the file.
LAYERS = {
    "convolution": 128 * 64 * 3 * 3,
    "cross-attention": 4 * 512 * 512,
    "encoder": 12 * (4 * 768**2 + 4 * 768 + 2 * 768 + 2 * 768 * 3072 + 3072 + 768),
    "grouped-query-attention": 32 * (2 * 4096 * 32 * 128 + 2 * 4096 * 8 * 128),
    "language-model": 2 * 50257 * 256 + 2 * 256 * 1024,
    "lora": 4096**2 + 2 * 4096 * 16,
    "mixture-of-experts": 24 * (2048 * 64 + 64 * 2 * 2048 * 8192),
    "parallel-block": 28 * (4 * 4096**2 + 2 * 4096 * 16384),
    "swiglu": 32 * 3 * 4096 * 11008,
    "two-matrix-ffn": 12 * 2 * 768 * 3072,
}


def test_every_example_layer_has_a_count_here():
    assert {path.stem for path in (EXAMPLES / "layers").glob("*.md")} == set(LAYERS)


@pytest.mark.few(5)
@pytest.mark.parametrize("name", LAYERS)
def test_an_example_layer_has_the_parameters_counted_by_hand_and_all_its_questions_are_answered(name: str):
    document = solve(read_problem(EXAMPLES / "layers" / f"{name}.md"))
    first, *rest = document.answers()
    assert first.quantity is not None
    assert first.quantity.value == LAYERS[name]
    assert all(answer.quantity is not None for answer in rest)
