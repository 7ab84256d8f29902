"""Grades: points for steps, for known mistakes, for what follows from a wrong answer; and what a person has to see."""

import csv
import io
import json
from fractions import Fraction
from pathlib import Path

import pytest
from api import (
    Decision,
    DocumentError,
    Exam,
    Sheet,
    Student,
    Verdict,
    feedback,
    grade,
    grades_csv,
    html,
    key_record,
    look_at,
    look_csv,
    main,
    mark_of,
    paper_page,
    parse_template,
    read_decisions,
    read_sheets,
    self_test,
    share_of,
    summary,
)
from api import summary_markdown as markdown
from click.testing import CliRunner

QUIZ = """---
title: Quiz
draw:
  b: [4, 8, 16]
  L: {powers_of: 2, from: 1024, to: 8192}
  k: [4, 8]
exam: {credit: {mistake: 0.4}}
---

# Peak (6 points)

```symcomm
ask: peak_rate
id: peak
given: {f: 1.4 GHz, n_SM: 100, n_FMA: 512}
credit: {mac: 0.9}
```

# A ring (10 points)

| Computation | Input | Output |
|---|---|---|
| $P = Q K^T$ | $Q \\in \\mathbb{R}^{b \\times L \\times H}, K \\in \\mathbb{R}^{b \\times L \\times H}$ | $P \\in \\mathbb{R}^{b \\times L \\times L}$ |

```symcomm
- {model: head, dtype: fp16, inputs: [Q, K], values: {b: {{ b }}, L: {{ L }}, H: 64}}
- {ask: tensor_size, id: bytes, tensor: P, points: 4, rubric: [{step: n, points: 3, says: elements}, {step: V, points: 1}]}
- {ask: collective_time, id: time, points: 6, algorithm: ring, given: {n: {{ answer:bytes }}, k: {{ k }}, alpha: 10 µs, W: 50 GB/s}}
```

# Options (4 points)

```symcomm
{ask: peak_rate, id: chosen, choices: 3, given: {f: 2 GHz, n_SM: {{ L }}, n_FMA: 512}}
```
"""  # noqa: E501


@pytest.fixture(scope="module")
def quiz():
    exam = Exam(parse_template(QUIZ, "quiz.md"), "1")
    return exam, exam.settle([Student("s1", "Ada"), Student("s2", "Bo"), Student("s3", "=Cy()")])


def marks(quiz, answers, student=0, decisions=()):
    exam, papers = quiz
    sheet = Sheet(papers[student].student.id, answers, None)
    made = grade(exam, papers[student : student + 1], [sheet], decisions)
    return {one.part.id: one.mark for one in made.graded}


def numbers(paper):
    return {name: paper.drawn[name].quantity.value for name in ("b", "L", "k")}


def time_of(size, k):
    return 2 * (k - 1) * (Fraction(1, 10**5) + Fraction(size) / k / (50 * 10**9))


def test_right_answers_earn_all_points_in_numbers_formulas_and_letters(quiz):
    paper = quiz[1][0]
    size = 2 * numbers(paper)["b"] * numbers(paper)["L"] ** 2
    seconds = float(time_of(size, numbers(paper)["k"]))
    letter = paper.parts[-1].right.lower()
    found = marks(quiz, {"peak": "R = 2 f n_SM n_FMA", "bytes": f"{size} bytes", "time": f"{seconds * 1e3:.6g} ms",
                         "chosen": f"({letter})"})  # fmt: skip
    assert {name: (mark.points, mark.verdict) for name, mark in found.items()} == {
        "peak": (6, "right"), "bytes": (4, "right"), "time": (6, "right"), "chosen": (4, "right"),
    }  # fmt: skip


def test_an_option_is_told_by_its_letter_its_text_or_both(quiz):
    part = quiz[1][0].parts[-1]
    right = next(choice for choice in part.choices if choice.right)
    number, unit = right.text.rsplit(" ", 1)
    number = number.replace(" ", "")
    for text in (
        part.right,
        f"Option {part.right}",
        f"{part.right}) {right.text}",
        f"{number}{unit}",
        number,
        f"${number}$ {unit}",
    ):
        assert marks(quiz, {"chosen": text})["chosen"].verdict == "right", text
    wrong = next(choice for choice in part.choices if not choice.right)
    for text in (f"{part.right}: {wrong.text}", "J", f"{number} bytes", "the first"):  # two options, or none
        mark = marks(quiz, {"chosen": text})["chosen"]
        assert (mark.verdict, mark.open) == ("unreadable", True)
        assert "answer with one letter, A to C, or with the text of one option" in mark.says


@pytest.mark.parametrize("deep", ["√" * 900 + "2", r"\frac1" * 400 + "2", "'" * 1200 + "2" + "'" * 1200])
@pytest.mark.parametrize("name", ["peak", "bytes", "chosen"])
def test_an_answer_that_is_nested_too_deep_is_seen_by_a_person_whatever_the_field(quiz, name, deep):
    for text in (deep, f"n = 3\n{deep}\n{deep}"):
        mark = marks(quiz, {name: text})[name]
        assert (mark.points, mark.open) == (0, True)


FORMULAS = """---
title: Formulas
draw: {k: [4, 8]}
---
# Peak (6 points)

```symcomm
{ask: peak_rate, id: peak, given: {f: 2 GHz, n_SM: {{ k }}, n_FMA: 512}, answer: formula}
```

# Rate (4 points)

```symcomm
{ask: peak_rate, id: rate, answer: {formula: yes, left: R}}
```
"""


def test_a_formula_that_is_asked_for_is_right_and_its_number_is_not():
    exam = Exam(parse_template(FORMULAS, "f.md"), "1")
    papers = exam.settle([Student("s1")])
    for text, verdict in (("2 f n_SM n_FMA", "right"), ("f n_SM*1024", "right"), ("f n_SM n_FMA", "other_convention")):
        assert marks((exam, papers), {"peak": text})["peak"].verdict == verdict
    k = papers[0].drawn["k"].quantity.value
    mark = marks((exam, papers), {"peak": f"{k * 2048} GFLOP/s"})["peak"]
    assert (mark.verdict, mark.points) == ("different", 0)
    assert "this is a number: write the formula, in f, n_SM, n_FMA" in mark.says
    assert marks((exam, papers), {"rate": "R = 2 f n_SM n_FMA"})["rate"].points == 4
    for answer in key_record(exam, papers[0])["answers"]:
        assert (answer["answer"], answer["value"], answer["unit"]) == ("f·n_SM·n_FMA·2", "", "FLOP/s")
    assert paper_page(exam, papers[0]).blocks[1].markdown.startswith("**Answer peak** (Formula):")


def test_the_field_of_an_answer_names_the_unit_of_a_number_without_one():
    text = FORMULAS.replace("n_FMA: 512}, answer: formula", "n_FMA: 512}, answer: {in: GFLOP/s}")
    exam = Exam(parse_template(text, "f.md"), "1")
    papers = exam.settle([Student("s1")])
    assert (
        paper_page(exam, papers[0]).blocks[1].markdown.startswith("**Answer peak** (in GFLOP/s, 3 significant digits):")
    )
    k = papers[0].drawn["k"].quantity.value
    assert marks((exam, papers), {"peak": f"{k * 2048}"})["peak"].verdict == "right"


@pytest.mark.parametrize(
    ("language", "told"),
    [("en", "with its unit, 3 significant digits"), ("de", "mit Einheit, 3 signifikante Stellen"),
     ("zh", "带单位, 保留 3 位有效数字")],
)  # fmt: skip
def test_where_no_unit_is_named_a_paper_asks_for_one_and_always_for_digits(language, told):
    text = FORMULAS.replace("n_FMA: 512}, answer: formula", "n_FMA: 512}")
    text = (
        text.replace("title:", f"language: {language}\ntitle:")
        + """
# Stages (4 points)

```symcomm
{ask: pipeline_time, id: idle, want: utilisation, given: {p: 4, m: 12}}
```
"""
    )
    exam = Exam(parse_template(text, "f.md"), "1")
    fields = [getattr(block, "markdown", "") for block in paper_page(exam, exam.settle([Student("s1")])[0]).blocks]
    assert any(f"peak** ({told})" in field for field in fields), fields
    assert any(f"idle** ({told.split(', ', 1)[1]})" in field for field in fields), fields  # a share has no unit


def test_the_self_test_shows_the_formula_and_asks_for_numbers_only_where_none_is_wanted():
    report = self_test(parse_template(FORMULAS, "f.md"), draws=4)
    assert report.problems == ()
    assert "peak: the formula f·n_SM·n_FMA·2; 1 step; " in report.text
    report = self_test(parse_template(FORMULAS.replace("{formula: yes, left: R}", "{left: R}"), "f.md"), draws=4)
    assert report.problems == ("rate: the answer needs a value for f, n_FMA, n_SM, or say answer: formula (4 draws)",)
    with pytest.raises(DocumentError, match="'formal' says nothing of an answer"):
        parse_template(FORMULAS.replace("answer: formula", "answer: formal"), "f.md").problem()


def test_what_is_refused_is_looked_at_by_a_person(quiz):
    exam, papers = quiz
    made = grade(exam, papers[:1], [Sheet("s1", {"peak": "$(id)"}, None)])
    assert [row[:3] for row in look_at(made)] == [("peak", "$(id)", "refused")]
    assert "a person looks at it" in made.graded[0].mark.says


@pytest.mark.parametrize("written", ["{} bytes", r"${}\,\text{{B}}$", "'{} Bytes'", "b L^2 = {} B"])
def test_what_follows_from_a_wrong_answer_earns_its_points(quiz, written):
    paper = quiz[1][0]
    n = numbers(paper)
    wrong = n["b"] * n["L"] ** 2  # elements for bytes
    seconds = float(time_of(wrong, n["k"]))
    found = marks(quiz, {"bytes": written.format(wrong), "time": f"{seconds:.6g} s"})
    assert found["bytes"].verdict == "mistake"
    assert "elements_for_bytes" in found["bytes"].names
    assert (found["time"].points, found["time"].follows) == (6, True)
    assert "follows from the answer to bytes" in found["time"].says
    alone = marks(quiz, {"time": f"{seconds:.6g} s"})  # nothing that it follows from
    assert alone["time"].points < 6


def test_steps_that_were_reached_earn_their_points(quiz):
    n = numbers(quiz[1][0])
    found = marks(quiz, {"bytes": f"n = {n['b'] * n['L'] ** 2}\n77 GB"})
    assert found["bytes"].points == 3
    assert "reached: elements (3 points)" in found["bytes"].says
    assert marks(quiz, {"bytes": "b L^2; 77 GB"})["bytes"].points == 3
    assert marks(quiz, {"bytes": "77 GB"})["bytes"].points == 0


def test_a_mistake_earns_the_credit_of_the_question_before_that_of_the_document(quiz):
    rate = 14 * 10**8 * 100 * 512
    assert marks(quiz, {"peak": f"{rate} FLOP/s"})["peak"].points == 6 * Fraction(9, 10)
    inverse = marks(quiz, {"peak": "1/(2 f n_SM n_FMA)"})["peak"]
    assert (inverse.verdict, inverse.points) == ("mistake", 6 * Fraction(4, 10))


def test_the_credit_of_two_mistakes_is_the_product_of_both():
    problem = parse_template(QUIZ, "quiz.md").problem()
    ask = problem.asks[0]
    both = Verdict("mistake", conventions=("flops: mac",), mistakes=("inverse",))
    assert share_of(both, ask, problem) == Fraction(9, 10) * Fraction(4, 10)
    convention = Verdict("other_convention", conventions=("flops: exact_adds",))
    assert share_of(convention, ask, problem) == Fraction(1, 2)
    for verdict in ("different", "unreadable", "refused", "undecided"):
        assert share_of(Verdict(verdict), ask, problem) == 0
        assert mark_of(Verdict(verdict), ask, problem, Fraction(6)).open == (verdict != "different")


def test_a_credit_for_a_mistake_that_is_not_known_is_refused():
    wrong = parse_template(QUIZ.replace("mac: 0.9", "invers: 0.9"), "quiz.md")
    with pytest.raises(DocumentError, match="no mistake or convention is called 'invers'") as error:
        Exam(wrong).check_space(1)
    assert "'inverse'" in error.value.hint
    assert error.value.span.word == "invers"


def test_a_wrong_option_tells_the_mistake_behind_it(quiz):
    paper = quiz[1][0]
    part = paper.parts[-1]
    assert len({choice.text for choice in part.choices}) == 3
    assert sum(choice.right for choice in part.choices) == 1
    wrong = next(n for n, choice in enumerate(part.choices) if not choice.right)
    mark = marks(quiz, {"chosen": "ABC"[wrong]})["chosen"]
    assert (mark.points, mark.verdict, mark.names) == (0, "mistake", part.choices[wrong].names)
    assert marks(quiz, {"chosen": "Z"})["chosen"].open
    assert marks(quiz, {"chosen": part.choices[wrong].text})["chosen"].names == part.choices[wrong].names


def test_several_processes_give_the_grades_of_one(quiz):
    exam, papers = quiz
    n = numbers(papers[0])
    wrong = n["b"] * n["L"] ** 2  # what the time follows from
    said = {"bytes": f"{wrong} bytes", "time": f"{float(time_of(wrong, n['k'])):.6g} s"}
    sheets = [
        Sheet("s1", {"peak": "f n_SM n_FMA", **said}, None),
        Sheet("s2", {"peak": "17 TFLOP/s", "chosen": "B"}, None),
    ]
    told: list[tuple[int, int]] = []
    one, two = (grade(exam, papers, sheets, (), lambda *at: told.append(at[:2]), count) for count in (1, 2))
    assert one.graded == two.graded
    assert [mark.mark.follows for mark in two.by_student["s1"]].count(True) == 1
    assert told[-1] == (len(told) // 2 - 1, len(told) // 2)


def test_hostile_answers_are_refused_and_harmless_in_what_goes_out(quiz):
    exam, papers = quiz
    hostile = ["=HYPERLINK(\"http://evil\")", "__import__('os').system('ls')", "9^{9^{9^9}}", "\\input{/etc/passwd}",
               "(" * 100_000, "-" * 10_000 + "1", "\u202e12", "{{ answer:peak }}", "%s{0}$(ls)"]  # fmt: skip
    for text in hostile:
        mark = marks(quiz, {"peak": text, "bytes": text, "chosen": text})["peak"]
        assert mark.points == 0
        assert mark.verdict in ("refused", "unreadable", "different", "undecided")
    sheets = [Sheet("s1", {"peak": hostile[0]}, None), Sheet("s2", {"peak": hostile[1]}, None)]
    made = grade(exam, papers, sheets)
    for text in (grades_csv(made), look_csv(made)):
        for row in csv.reader(io.StringIO(text)):
            assert not any(cell[:1] in ("=", "+", "@") for cell in row)
    assert "<script" not in html(grade(exam, papers, [Sheet("s1", {"peak": "<script>alert(1)</script>"}, None)]))


def test_a_person_sees_what_is_open_and_wrong_answers_that_many_gave(quiz, tmp_path):
    exam, papers = quiz
    sheets = [Sheet(p.student.id, {"peak": "17 TFLOP/s", "bytes": "see the back"}, None) for p in papers]
    made = grade(exam, papers, sheets)
    rows = look_at(made)
    assert [(q, text, verdict, count) for q, text, verdict, count, _ in rows] == [
        ("bytes", "see the back", "unreadable", 3), ("peak", "17 TFLOP/s", "different", 3),
    ]  # fmt: skip
    path = tmp_path / "look.csv"
    path.write_text(look_csv(made).replace("s1 s2 s3,,", "s1 s2 s3,2.5,half right"), encoding="utf-8")
    again = grade(exam, papers, sheets, read_decisions(path))
    assert {one.mark.points for one in again.graded if one.part.id in ("peak", "bytes")} == {Fraction(5, 2)}
    assert look_at(again) == ()
    assert marks(quiz, {"peak": "1 7"}, decisions=[Decision("peak", "17", Fraction(99))])["peak"].points == 6
    for points in ("many", "1e999999999", "1/0"):
        path.write_text(f"question,answer,points\npeak,17,{points}\n", encoding="utf-8")
        with pytest.raises(DocumentError, match=f"'{points}' are no points\n.*\n.*\nhint: such as 2, 0.5") as error:
            read_decisions(path)
        assert error.value.span.line == 2


def test_the_summary_counts_each_verdict_and_mistake_and_the_points_agree(quiz):
    exam, papers = quiz
    rate = 14 * 10**8 * 100 * 512
    texts = ["2 f n_SM n_FMA", f"{rate} FLOP/s", "17 TFLOP/s"]
    made = grade(exam, papers, [Sheet(p.student.id, {"peak": t}, None) for p, t in zip(papers, texts, strict=True)])
    line = next(line for line in summary(made) if line.question == "peak")
    assert dict(line.verdicts) == {"right": 1, "mistake": 1, "different": 1} or "other_convention" in dict(
        line.verdicts
    )
    assert line.average == (6 + 6 * Fraction(9, 10)) / 3 or line.average > 2
    rows = [*csv.DictReader(io.StringIO(grades_csv(made)))]
    assert [float(row["points"]) for row in rows] == [float(made.points(p.student.id)) for p in papers]
    assert rows[2]["name"] == "'=Cy()"
    told = feedback(made.by_student["s3"])
    assert "peak: 0 of 6, not right" in told
    assert "(key: 143 360 000 000 000 FLOP/s" in told
    assert "| peak | 3 |" in markdown(made)
    assert made._repr_html_().startswith("<table>")


def test_the_self_test_finds_what_is_wrong_with_a_template():
    report = self_test(parse_template(QUIZ, "quiz.md"), draws=12)
    assert report.problems == ()
    assert {spread.question for spread in report.spreads} == {"peak", "bytes", "time", "chosen"}
    assert "12 draws of 24 different papers" in report.text
    lost = QUIZ.replace("n_SM: 100,", "")
    report = self_test(parse_template(lost, "quiz.md"), draws=12)
    assert any("peak: the answer needs a value for n_SM" in problem for problem in report.problems)
    # Two ranks: of two boundaries' neighbours one is all, so a mistake comes to the right number.
    same = (
        QUIZ.replace("n_SM: 100", "n_SM: 1")
        .replace("f: 1.4 GHz", "f: 1 Hz")
        .replace("n_FMA: 512}\ncredit", "n_FMA: 1/2}\ncredit")
    )
    report = self_test(parse_template(same, "quiz.md"), draws=12)
    assert any("gives the right number" in problem for problem in report.problems)


# -- files ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.csv", "name,peak\nAda,3\n", "has no column id"),
        ("a.csv", "id,peak,peak\ns1,3,4\n", "the column peak is there twice"),
        ("a.csv", "id,peak\ns1,3\ns1,4\n", "two answer sheets of s1"),
        ("a.csv", "id,peak\n,3\n", "an answer sheet without a student"),
        ("a.csv", "id,peak\ns1,50,331,648 B\n", "the row of s1 has 4 cells, but the header has 2"),
        ("a.json", "[{", "is no JSON"),
        ("a.json", '[{"answers": {}}]', "a form without a student"),
        ("a.json", '[{"id": "s1", "answers": {"peak": [1]}}]', "the answer to peak is neither text nor a number"),
        ("a.json", "[]", "has no answers"),
    ],
)
def test_answer_sheets_that_are_wrong_are_refused(tmp_path: Path, name, text, says):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DocumentError, match=says):
        read_sheets(path)


@pytest.mark.parametrize(("name", "text", "where"), [
    ("a.csv", "id,question,answer\ns1,peak,3\ns1,ridge,4\n", "line 2"),
    ("a.json", '[{"id": "s1", "answers": {"peak": "3"}}, {"id": "s1", "answers": {"ridge": "4"}}]', "a.json, form 1"),
])  # fmt: skip
def test_a_student_with_two_rows_is_told_that_one_has_all_questions(tmp_path, monkeypatch, name, text, where):
    monkeypatch.chdir(tmp_path)
    Path(name).write_text(text, encoding="utf-8")
    with pytest.raises(DocumentError) as error:
        read_sheets(Path(name))
    assert error.value.hint == f"first in {where}; each student has one, with all questions in it"


def test_an_answer_with_commas_is_graded_where_it_is_quoted_and_empty_cells_at_the_end_are_nothing(tmp_path):
    (tmp_path / "a.csv").write_text('id,peak\ns1,"50,331,648 B",,\n', encoding="utf-8")
    assert [sheet.answers for sheet in read_sheets(tmp_path / "a.csv")] == [{"peak": "50,331,648 B"}]
    (tmp_path / "a.csv").write_text("id,peak\ns0,1\ns1,50,331,648 B\n", encoding="utf-8")
    with pytest.raises(DocumentError) as error:
        read_sheets(tmp_path / "a.csv")
    assert (error.value.span.line, error.value.hint) == (
        3, 'put an answer with commas in quotation marks: "50,331,648 B"')  # fmt: skip


def test_forms_in_json_are_the_sheets_of_the_csv(tmp_path):
    (tmp_path / "a.csv").write_text("id;peak;1\ns1;12,5 TFLOP/s;7\n", encoding="utf-8")
    forms = [{"student": "s1", "time": "2026-01-01", "answers": {"peak": "12,5 TFLOP/s", "1": 7}}]
    (tmp_path / "a.json").write_text(json.dumps(forms), encoding="utf-8")
    assert [(s.student, s.answers) for s in read_sheets(tmp_path / "a.csv")] == [
        (s.student, s.answers) for s in read_sheets(tmp_path / "a.json")
    ]


def test_the_command_grades_against_the_keys_and_writes_whole_files(tmp_path):
    (tmp_path / "quiz.md").write_text(QUIZ, encoding="utf-8")
    (tmp_path / "answers.csv").write_text("id,peak,bytes\n001,2 f n_SM n_FMA,\n002,,nothing\n", encoding="utf-8")
    run = CliRunner()

    def told(*arguments):
        return run.invoke(main, [str(one) for one in arguments])

    made = told(
        "exam", tmp_path / "quiz.md", "--variants", 2, "--edition", "key", "-o", tmp_path / "k", "--processes", 1
    )
    assert made.exit_code == 0, made.output
    assert {p.name for p in (tmp_path / "k").iterdir()} == {"keys.json"}
    command = [
        "grade",
        tmp_path / "quiz.md",
        "--keys",
        tmp_path / "k" / "keys.json",
        "--answers",
        tmp_path / "answers.csv",
    ]
    made = told(*command, "-o", tmp_path / "g")
    assert made.exit_code == 0, made.output
    assert "1 answers have to be looked at" in made.output
    names = {"grades.csv", "grades.json", "summary.csv", "summary.md", "summary.svg", "look-at.csv"}
    assert {p.name for p in (tmp_path / "g").iterdir()} == names
    (tmp_path / "answers.csv").write_text("id,peek\n001,3\n", encoding="utf-8")
    made = told(*command, "-o", tmp_path / "h")
    assert made.exit_code == 2
    assert "no paper has a question peek" in made.output
    assert "'peak'" in made.output
    (tmp_path / "answers.csv").write_text("id,peak\n009,3\n", encoding="utf-8")
    assert "no paper was made for 009" in told(*command, "-o", tmp_path / "h").output
    assert not (tmp_path / "h").exists()
