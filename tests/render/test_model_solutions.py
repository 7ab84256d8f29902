"""What has to be on the page of an answer, as one would grade it: the content, not the wording of a sentence."""

from __future__ import annotations

import json
import re
from fractions import Fraction
from functools import cache
from pathlib import Path

import pytest
from api import Answer, DocumentError, RenderError, contents, main, parse_problem, render, solve, source, with_mistakes
from click.testing import CliRunner

import symcomm as sc

ROOT = Path(__file__).parents[2] / "examples"
LONG = pytest.mark.long


@cache
def page(example: str) -> str:
    return source(sc.solve(sc.read_problem(ROOT / example)), "md")


def part(example: str, heading: str) -> str:
    """What stands below one heading, up to the next one that is no solution's, in one line and without thin spaces."""
    text = page(example).split(heading, 1)[1].split("\n", 1)[1]
    found = re.split(r"\n#+ (?!Solution)", text)[0]
    return re.sub(r"\s+", " ", re.sub(r"\\ (?!\\text\b)|\\,", " ", found).replace("\\\\", " "))


HOMEWORK, ZERO = "comp4901y-homework2/homework.md", "zero-table/zero.md"
BALANCE, BERT = "communication-accounting/communication-accounting.md", "bert-ddp-vs-fsdp/bert.md"
# Ten answers, each with what a grader looks for.
ANSWERS = [
    (HOMEWORK, "1.1 Peak rate", [r"f n_{\text{SM}} n_{\text{FMA}} \cdot 2", "1.41 \\cdot 10^{9}", r"\approx 155.9",
                                 "a multiply-add is two operations"]),
    (HOMEWORK, "1.2 Arithmetic", ["1365.33", "1365", "31.5077", "31.5", "15.9377", "15.9", "square compute bound",
                                  "short inner axis memory bound"]),
    (HOMEWORK, "2.1 Data", ["sum over all of $B$", "only its part", "k = 8", r"12 D^{2}", r"24 N_{\text{layer}} D^{2}",
                            r"12\ \text{GiB}", "7/4", "21 GiB", "14", "168 GiB"]),
    (HOMEWORK, "2.2 Pipeline", ["sends only what the next one reads", "reads $x'$ as its $x$", "gradient goes back",
                                r"2 B L D", "GiB"]),
    (HOMEWORK, "2.3 Tensor", ["$W^{Q}$, $W^{K}$, $W^{V}$ and $W^{1}$ are cut by columns", "$W^{O}$ and $W^{2}$ by rows",
                              "computes softmax and relu on its part", r"$\text{Out}$ = Σ over $n_{H}$ of $Z$ $W^{O}$",
                              "$x'$ = Σ over $4 D$", "added locally first", "Gradients of the cut weights need none",
                              r"8 N_{\text{layer}} B L D", r"512\ \text{GiB}", "127/128", "7/4", "896 GiB"]),
    (HOMEWORK, "2.4 Fully", ["its own part of $B$", "one part in $k$", "gathered before use", "6 AllGather",
                             r"24\ \text{GiB}", "keeps its share of the sum", "6 ReduceScatter", r"12\ \text{GiB}",
                             "7/8"]),
    (ZERO, "What does one device keep?", ["4 P + 12 P/N", "2 P + 14 P/N", "16 P/N", "31.40625", "16.640625", "1.875"]),
    (ZERO, "How many devices", [r"\frac{16 P}{C}", "32", "500"]),
    pytest.param(BALANCE, "In numbers", [r"\frac{t_{\text{data}}}", r"\tau_{\text{compute}} - \tau_{\text{comm}}",
                                         "at least as long as the sum of the communication", "25 302"], marks=LONG),
    pytest.param(BERT, "How many parameters", [r"N_{\text{layer}} P_{\text{layer}}", "109 514 298"], marks=LONG),
]  # fmt: skip


@pytest.mark.few(4)
@pytest.mark.parametrize(("example", "heading", "content"), ANSWERS)
def test_an_answer_has_what_a_grader_looks_for(example: str, heading: str, content: list[str]) -> None:
    text = part(example, heading)
    missing = [piece for piece in content if piece not in text.replace("\\.", ".")]
    assert not missing, text


@pytest.mark.parametrize("example", [HOMEWORK, ZERO, pytest.param(BALANCE, marks=LONG), pytest.param(BERT, marks=LONG)])
def test_collecting_terms_is_no_step_of_a_page(example: str) -> None:
    assert "Collect equal terms" not in page(example)


def test_full_detail_shows_every_step_and_brief_none() -> None:
    text = (ROOT / ZERO).read_text(encoding="utf-8")
    full = source(solve(parse_problem(text.replace("language: en", "language: en\ndetail: full"))), "md")
    brief = source(solve(parse_problem(text.replace("language: en", "language: en\ndetail: brief"))), "md")
    assert full.count("Collect equal terms") > 10
    assert r"\text{(1)}" in full
    assert r"\text{(1)}" not in page(ZERO)
    assert len(brief) < len(page(ZERO)) < len(full)
    assert "500" in brief


# -- pages of the examples ------------------------------------------------------------------------------


def pages(pdf: bytes) -> int:
    return len(re.findall(rb"/Type\s*/Page\b", pdf))


@pytest.mark.parametrize(("example", "most"), [(HOMEWORK, 4), (ZERO, 1), pytest.param(BALANCE, 8, marks=LONG),
                                              pytest.param(BERT, 7, marks=LONG),
                                              pytest.param("ddp-buckets/ddp-buckets.md", 5, marks=LONG),
                                              pytest.param("pipeline-chunks/pipeline-chunks.md", 6, marks=LONG),
                                              pytest.param("autodiff-traces/autodiff-traces.md", 4, marks=LONG),
                                              pytest.param("peak-memory/peak.md", 3, marks=LONG)])  # fmt: skip
def test_a_solution_is_as_long_as_a_person_would_write_it(example: str, most: int) -> None:
    document = sc.solve(sc.read_problem(ROOT / example))
    pdf = contents(document, ["pdf"])["pdf"]
    import io

    import pypdf

    assert len(pypdf.PdfReader(io.BytesIO(pdf)).pages) <= most
    assert contents(document, ["pdf"])["pdf"] == pdf


# -- editions -------------------------------------------------------------------------------------------

QUIZ = ROOT / "professor" / "quiz.md"
TEMPLATE = ROOT / "professor" / "template"


@cache
def quiz() -> sc.Document:
    return sc.solve(sc.read_problem(QUIZ))


def test_each_edition_has_what_is_for_its_readers_and_no_more() -> None:
    texts = {e: source(quiz(), "md", edition=e) for e in ("paper", "solution", "key", "graders")}
    assert "805 306 368" not in texts["paper"].replace("\\ ", " ")
    assert "Solution" not in texts["paper"]
    assert "(3 points)" in texts["paper"]
    assert "two bytes for each of the 805 306 368" in texts["solution"]
    assert "Half of the points" not in texts["solution"]
    assert "Half of the points for 1.61061 GB" in texts["graders"]
    assert "$n_{\\text{AR}}$ (3 points) · $V_{\\text{AR}}$ (4 points)" in texts["graders"]
    rows = [line for line in texts["key"].splitlines() if line.startswith("| ")]
    assert [row.split(" | ")[0] for row in rows[2:]] == ["| 1\\. Parameters", "| 2\\. Data parallelism"] or len(
        rows
    ) == 4
    assert "1\\.5 GiB" in texts["key"]


def test_a_professors_template_is_ten_lines_and_its_logo_reaches_pdf_latex_and_html(tmp_path: Path) -> None:
    assert len((TEMPLATE / "solution.typ.jinja").read_text(encoding="utf-8").splitlines()) <= 12
    made = render(quiz(), ("pdf", "tex", "html"), tmp_path, templates=TEMPLATE, name="quiz")
    assert {p.name for p in tmp_path.iterdir()} == {"quiz.pdf", "quiz.tex", "quiz.html", "logo.png"}
    assert "logo.png" in next(p for p in made if p.suffix == ".tex").read_text(encoding="utf-8")
    assert "data:image/png;base64," in next(p for p in made if p.suffix == ".html").read_text(encoding="utf-8")
    assert "Prof. A. Turing" in source(quiz(), "typ", templates=TEMPLATE)


def test_the_json_edition_has_every_step_with_form_latex_value_unit_and_reason() -> None:
    made = json.loads(contents(quiz(), ["json"])["json"])
    answer = made["answers"][1]
    assert answer["quantity"]["exact"] == "1610612736"
    step = answer["derivation"]["steps"][0]
    assert {"name", "unit", "reason", "latex"} <= step.keys()
    assert [line["name"] for line in answer["lines"]][-1] == "V_AR"
    assert json.loads(contents(quiz(), ["json"], edition="paper")["json"])["answers"] == []


def test_graders_see_mistakes_with_the_numbers_they_give() -> None:
    text = source(with_mistakes(quiz(), sc.read_problem(QUIZ)), "md", edition="graders")
    assert "A number of 16 bits takes 2 bytes, not 4 (3 GiB)" in text


# -- what is refused ------------------------------------------------------------------------------------

PEAK = "```symcomm\nask: peak_rate\nclock: 1 GHz\nunits: 2 SM\nfma: 3 FMA/clock/SM\n```\n"


def refused(text: str) -> str:
    with pytest.raises((DocumentError, RenderError)) as found:
        render(solve(parse_problem(text, "t.md")), ("md",), Path("/nonexistent-folder/below"), name="t")
    return str(found.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"---\nlogo: crest.png\n---\n{PEAK}", "there is no logo 'crest.png'"),
        (f"---\nlogo: ../../etc/passwd\n---\n{PEAK}", "there is no logo '../../etc/passwd'"),
        (f"---\nlanguage: xx\n---\n{PEAK}", "there are no words in the language 'xx'"),
        (f"# 1 Peak\n\n{PEAK}\nIt is {{{{ answer:2 }}}}.\n", "there is no answer '2'"),
        (f"# 1 (5 points)\n\n## 1.1 A (2 points)\n\n{PEAK}\n## 1.2 B (2 points)\n\nWhy?\n", "the parts have 4 points"),
        (f"# 1 (5 points)\n\n{PEAK[:-4]}rubric: [{{step: R, points: 4}}]\n```\n", "the steps have 4 points together"),
        (f"---\ndetail: short\n---\n{PEAK}", "'detail' is brief, normal or full, not 'short'"),
        (f":::solution\nWords.\n\n{PEAK}", "within ':::solution'"),
        (f"{PEAK}\n:::solution\nWords.\n", "':::solution' never ends"),
        (f"{PEAK}\n:::solutoin\nWords.\n:::\n", "':::solutoin' is no edition"),
        (f"{PEAK}\nWords.\n:::\n", "this ends what never began"),
        (f"---\ntitel: T\n---\n{PEAK}", "unknown key 'titel'"),
    ],
)
def test_a_slip_is_refused_and_nothing_is_written(text: str, said: str) -> None:
    assert said in refused(text)


def test_a_template_with_a_block_that_replaces_nothing_is_refused(tmp_path: Path) -> None:
    template = '<% extends "symcomm/solution.md.jinja" %>\n<% block hedder %>x<% endblock %>\n'
    (tmp_path / "solution.md.jinja").write_text(template, encoding="utf-8")
    with pytest.raises(RenderError, match=r"line 2: .* has no block 'hedder'(.|\n)*header"):
        source(quiz(), "md", templates=tmp_path)


def test_a_paper_that_would_tell_an_answer_is_refused_at_the_reference(tmp_path: Path) -> None:
    document = solve(parse_problem(f"# 1 Peak\n\n{PEAK}\nIt is {{{{ answer:1 }}}}.\n", "t.md"))
    assert "It is 12 GFLOP/s." in source(document, "md")
    with pytest.raises(RenderError, match="the paper would tell an answer"):
        render(document, ("md",), tmp_path, editions=("paper",), name="t")
    assert not [*tmp_path.iterdir()]


def test_a_number_in_prose_that_is_not_the_given_one_is_told(tmp_path: Path) -> None:
    text = QUIZ.read_text(encoding="utf-8").replace("How many parameters", "With $D = 4096$, how many parameters")
    (tmp_path / "template").mkdir()
    (tmp_path / "template" / "logo.png").write_bytes((TEMPLATE / "logo.png").read_bytes())
    path = tmp_path / "quiz.md"
    path.write_text(text, encoding="utf-8")
    result = CliRunner().invoke(main, ["solve", str(path), "--to", "md", "-o", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    assert "says D = 4096, but D is 2048" in result.output


@pytest.mark.parametrize(("language", "word"), [("de", "Lösung"), ("zh", "解答"), ("en-GB", "Solution")])
def test_a_page_has_the_words_of_its_language(language: str, word: str) -> None:
    document = solve(parse_problem(f"---\nlanguage: {language}\n---\n# 1 Peak (3 points)\n\n{PEAK}", "t.md"))
    assert word in source(document, "md")


def test_the_points_of_a_heading_are_shared_by_its_answers_and_their_steps() -> None:
    text = """# Three (10 points)

```symcomm
- {ask: pipeline_time, label: a, want: utilisation, given: {p: 4, m: 12}}
- {ask: peak_rate, label: b, given: {f: 1 GHz, n_SM: 10, n_FMA: 64}, points: 5}
- {ask: peak_rate, label: c, given: {f: 2 GHz, n_SM: 10, n_FMA: 64}}
```
"""
    blocks = solve(parse_problem(text)).blocks
    shares = [[step.points for step in block.grading] for block in blocks if isinstance(block, Answer)]
    assert [sum(steps) for steps in shares] == [Fraction(5, 2), 5, Fraction(5, 2)]


def test_a_convention_of_one_question_stands_with_it_and_those_of_several_at_the_beginning() -> None:
    flops, send = "```symcomm\nask: flops\n```\n", "```symcomm\nask: communication\nstrategy: data(4)\n```\n"
    table = "| Computation | Input | Output |\n|---|---|---|\n| $Y = XW$ | X [B, D], W [D, F] | Y [B, F] |\n"
    model = "```symcomm\nmodel: m\nvalues: {B: 8, D: 64, F: 32}\n```\n"
    text = f"# T\n\n# 1 A\n\n{table}\n{model}\n{flops}\n# 2 B\n\n{flops}\n# 3 C\n\n{send}\nAnd\n\n{send}"
    said = source(solve(parse_problem(text, "t.md")), "md")
    head, _, rest = said.partition("1 A")
    assert head.count("A multiply-add counts as two operations.") == 1
    assert "tensor" not in head  # of question 3 alone
    assert "A multiply-add" not in rest
    assert rest.partition("3 C")[2].count("*Convention:*") == 1  # once for its two answers
