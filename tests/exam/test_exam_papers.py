"""Papers of a class: the same again from file, seed and student; none alike; within bounds; and telling no answer."""

import csv
import io
import json
import os
import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from api import (
    DocumentError,
    Exam,
    Quantity,
    Student,
    csv_text,
    key_record,
    keys_csv,
    keys_json,
    main,
    numbered,
    paper_page,
    papers_of,
    parse_template,
    read_roster,
    significant_digits,
    solution_page,
    solve,
    source,
)
from api import problem_read_template as read_template
from click.testing import CliRunner

HEAD = """---
title: Quiz
draw:
  D: {multiples_of: 512, from: 2048, to: 8192}
  k: {powers_of: 2, from: 2, to: 16}
  f: {from: 1.20, to: 1.80, step: 0.01, unit: GHz}
  N: [16, 24, 32]
EXAM
---

"""
PEAK = """# Peak rate (5 points)

The clock runs at {{ f }}, with 108 SM of 512 FMA each.

```symcomm
ask: peak_rate
id: peak
clock: {{ f }}
units: 108 SM
fma: 512 FMA/clock/SM
BOUNDS
```

"""
LAYER = """# A layer (5 points)

| Computation | Input | Output |
|---|---|---|
| $A = xW$ | $x \\in \\mathbb{R}^{B \\times L \\times D}, W \\in \\mathbb{R}^{D \\times 4D}$ | $A \\in \\mathbb{R}^{B \\times L \\times 4D}$ |
| $y = AV$ | $A \\in \\mathbb{R}^{B \\times L \\times 4D}, V \\in \\mathbb{R}^{4D \\times D}$ | $y \\in \\mathbb{R}^{B \\times L \\times D}$ |

It has $D = {{ D }}$ and runs on {{ k }} ranks, tensor parallel or data parallel.

```symcomm
- {model: mlp, repeat: N_layer, values: {D: {{ D }}, N_layer: {{ N }}, B: 16, L: 1024}}
- {ask: communication, id: tp, strategy: "tensor({{ k }})", collective: all-reduce, label: tensor}
- {ask: communication, id: dp, strategy: "data(k)", given: {k: {{ k }}}, collective: all-reduce, label: data}
```

"""  # noqa: E501
RING = """# A ring (5 points)

```symcomm
- {ask: communication, id: bytes, model: mlp, strategy: "data(k)", given: {k: {{ k }}}, collective: all-reduce}
- ask: collective_time
  id: time
  algorithm: ring
  ranks: {{ k }}
  latency: 10 us
  bandwidth: 50 GB/s
  payload: {{ answer:bytes }}
```
"""


def template(exam="", bounds="", text=PEAK + LAYER):
    return parse_template((HEAD + text).replace("EXAM", exam).replace("BOUNDS", bounds), "quiz.md")


def told(paper):
    return tuple(one.text for one in paper.drawn.values())


def test_a_paper_follows_from_document_seed_and_student_alone():
    students = [Student("s1"), Student("Zoë"), Student("s3")]
    first = Exam(template(), "7").settle(students)
    again = Exam(template(), "7").settle(students[::-1])[::-1]
    assert [told(p) for p in first] == [told(p) for p in again]
    assert [p.code for p in first] == [p.code for p in again]
    alone = Exam(template(), "7").exactly(students[1], first[1].attempt)
    assert told(alone) == told(first[1])
    assert {told(p) for p in Exam(template(), "8").settle(students)} != {told(p) for p in first}


def test_a_solution_has_its_conventions_in_one_order_however_a_process_orders_its_sets(tmp_path):
    document = tmp_path / "quiz.md"
    document.write_text(
        "---\ntitle: Quiz\ndraw: {D: [64, 128]}\n---\n\n# Intensity (5 points)\n\n```symcomm\n- model: product\n"
        "  formula: '$Y = XW, X \\in \\mathbb{R}^{m \\times q}, W \\in \\mathbb{R}^{q \\times n}, "
        "Y \\in \\mathbb{R}^{m \\times n}$'\n  values: {m: 32, n: 64, q: {{ D }}}\n"
        "- {ask: intensity, model: product}\n```\n"
    )
    made = set()
    for seed in ("0", "2"):  # which order them in two ways
        folder = tmp_path / seed
        command = [sys.executable, "-m", "symcomm", "exam", str(document), "--variants", "1", "--edition", "solution"]
        order = {**os.environ, "PYTHONHASHSEED": seed}
        subprocess.run([*command, "--to", "md", "-o", str(folder)], check=True, env=order)
        made.add((folder / "001.md").read_text())
    (page,) = made
    assert page.index("A multiply-add counts") < page.index("Memory traffic")


def test_a_word_of_prose_changes_no_paper_but_a_draw_does():
    prose = template(text=PEAK.replace("The clock runs", "A clock ticks") + LAYER)
    assert told(Exam(prose, "7").paper(Student("s1"))) == told(Exam(template(), "7").paper(Student("s1")))
    assert prose.draws.digest == template().draws.digest


def test_no_two_students_have_the_same_paper_and_the_size_of_the_space_is_told():
    small = parse_template("---\ndraw: {a: [1, 2, 3]}\n---\n# Q (1 points)\n{{ a }}\n", "small.md")
    assert {told(p) for p in Exam(small).settle(numbered(3))} == {("1",), ("2",), ("3",)}
    with pytest.raises(DocumentError, match="4 students cannot have papers of their own: the draws give 3"):
        Exam(small).settle(numbered(4))
    alike = parse_template("---\ndraw: {a: [1, 2, 3]}\nexam: {alike: yes}\n---\n# Q (1 points)\n{{ a }}\n", "small.md")
    assert len(Exam(alike).settle(numbered(9))) == 9


def test_values_that_the_chosen_questions_do_not_show_make_no_other_paper():
    text = "---\ndraw: {a: [1, 2, 3, 4, 5, 6, 7, 8], b: [1, 2]}\nexam: {questions: 1}\n---\n" + (
        "# A (1 points)\n{{ a }}\n\n# B (1 points)\n{{ b }}\n"
    )
    papers = Exam(parse_template(text, "two.md")).settle(numbered(10))
    shown = [re.findall(r"^## 1. (\w)|^(\d)$", source(paper_page(Exam(parse_template(text, "two.md")), p), "md"), re.M)
             for p in papers]  # fmt: skip
    assert len({str(one) for one in shown}) == 10


@pytest.mark.long
def test_numbers_that_are_put_in_are_those_of_a_document_solved_by_itself():
    made = template("exam: {shuffle: yes}", text=PEAK + LAYER + RING)
    exam = Exam(made, "3")
    for student in numbered(12):
        paper = exam.paper(student)
        mine = {part.id: answer.quantity for part, answer in zip(paper.parts, exam.answers(paper), strict=True)}
        problem = made.problem(paper.drawn)
        alone = dict(zip(problem.ids, (answer.quantity for answer in solve(problem).answers()), strict=True))
        assert mine == alone
        D, k, N = (paper.drawn[name].quantity.value for name in "DkN")
        assert alone["dp"].value == 16 * N * D * D
        assert alone["tp"].value == 4 * N * 16 * 1024 * D
        steps = 2 * (k - 1) * (Fraction(1, 10**5) + alone["dp"].value / k / (50 * 10**9))
        assert alone["time"].value == steps


def test_bounds_are_kept_and_impossible_ones_told():
    exam = Exam(template(bounds="bounds: {at_least: 150 TFLOP/s, at_most: 170 TFLOP/s}"), "1")
    rates = [exam.answers(exam.paper(student))[0].quantity.value for student in numbered(30)]
    assert all(150 * 10**12 <= rate <= 170 * 10**12 for rate in rates)
    assert any(exam.paper(student).attempt for student in numbered(30))
    with pytest.raises(DocumentError, match=r"200 draws for s, and none keeps the bounds: .* is below 1 EFLOP/s"):
        Exam(template(bounds="bounds: {at_least: 1 EFLOP/s}")).paper(Student("s"))
    with pytest.raises(DocumentError, match="the answer is in FLOP/s, its bound in B"):
        Exam(template(bounds="bounds: {at_least: 1 GB}")).paper(Student("s"))


def test_answers_nobody_is_asked_for_can_be_required():
    fits = LAYER + "```symcomm\nrequire: {ask: parameters, model: mlp, at_most: 2000000000}\n```\n"
    exam = Exam(template(text=fits))
    for student in numbered(10):
        drawn = exam.paper(student).drawn
        assert 8 * drawn["N"].quantity.value * drawn["D"].quantity.value ** 2 <= 2 * 10**9


@pytest.mark.parametrize(("text", "digits"), [("12 GiB", 2), ("1.41 GHz", 3), ("4096", 4), ("120", 2), ("1/3", 99)])
def test_digits_are_counted_in_the_prefix_that_needs_fewest(text, digits):
    assert significant_digits(Quantity.parse(text)) == digits


def test_questions_are_chosen_and_shuffled_and_numbered_on_the_page():
    exam = Exam(template("exam: {questions: 2, shuffle: yes}", text=PEAK + LAYER + RING), "5")
    papers = exam.settle(numbered(30))
    orders = {tuple(part.id for part in paper.parts) for paper in papers}
    assert len(orders) == 6
    for paper in papers:
        numbers = [part.number for part in paper.parts]
        assert {number[0] for number in numbers} == {"1", "2"}
        page = source(paper_page(exam, paper), "md")
        assert re.findall(r"^## (\d)\.", page, re.MULTILINE) == ["1", "2"]
        assert all(f"**Answer {number}**" in page for number in numbers)


def test_questions_and_letters_are_spread_evenly_over_a_class():
    text = PEAK.replace("id: peak", "id: peak\nchoices: 4")
    text += "".join(PEAK.replace("# Peak rate", f"# Rate {n}").replace("id: peak", f"id: peak{n}") for n in range(4))
    made = template("exam: {questions: 2}", text=text)
    exam = Exam(made, "5")
    papers = exam.settle(numbered(20))
    asked = Counter(part.id for paper in papers for part in paper.parts)
    assert set(asked.values()) == {20 * 2 // 5}
    assert len({frozenset(part.id for part in paper.parts) for paper in papers}) > 5
    exam = Exam(template(text=text), "5")
    letters = [part.right for paper in exam.settle(numbered(20)) for part in paper.parts if part.choices]
    assert set(Counter(letters).values()) == {5}
    assert len({tuple(letters[n : n + 4]) for n in range(0, 20, 4)}) > 2
    letters = [part.right for paper in papers for part in paper.parts if part.choices]
    assert set(Counter(letters).values()) == {2}  # of the eight who have the question, not of all
    for paper in papers[:3]:  # alone, and in a class to which somebody was added
        assert Exam(made, "5").exactly(paper.student, paper.attempt).signature == paper.signature
    more = Exam(made, "5").settle((*numbered(20), Student("late")))
    assert [paper.signature for paper in more[:20]] == [paper.signature for paper in papers]


def test_as_many_questions_as_there_are_is_all_of_them():
    text = PEAK.replace("5 points", "4 points") + LAYER
    exam = Exam(template("exam: {questions: 2}", text=text), "5")
    exam.check_space(3)
    whole = Exam(template(text=text), "5")
    assert [[p.id for p in e.paper(Student("s")).parts] for e in (exam, whole)] == [["peak", "tp", "dp"]] * 2


@pytest.mark.parametrize("kind", ["md", "html", "typ", "tex"])
def test_a_paper_has_room_to_work_in_boxes_to_tick_and_a_box_for_points(kind):
    text = PEAK.replace("id: peak", "id: peak\nchoices: 3\nroom: 40 mm box") + LAYER
    exam = Exam(template("exam: {points_box: yes, room: 5 lines}", text=text), "7")
    page = source(paper_page(exam, exam.paper(Student("s1"))), kind, edition="paper", layout="exam")
    box, lines, tick, question = {
        "md": ("&nbsp;\n", r"\_\_\_", "- [ ] **A**", "## "),
        "html": ('class="room box" style="height: 40mm"', '<div class="rule">', 'type="checkbox"', 'class="question"'),
        "typ": ('#room("box", 40)', '#room("lines", 40)', "☐", "#whole["),
        "tex": (r"\makeemptybox{40mm}", r"\fillwithlines{40mm}", r"$\square$", r"\filbreak"),
    }[kind]
    assert page.count(box) == (5 if kind == "md" else 1)
    assert page.count(lines) == {"md": 10 * 20, "html": 10}.get(kind, 2)
    assert page.count(tick) == (1 if kind == "md" else 3)
    assert page.count(question) == 2
    assert "Grader" in page


def test_the_box_for_points_has_the_numbers_that_the_questions_have_on_the_page():
    text = PEAK.replace("# Peak", "# Question 1.3 Peak") + LAYER.replace("# A", "# 2. A") + RING
    exam = Exam(template("exam: {points_box: yes}", text=text), "7")
    assert "| Question | 1.3 | 2 | 3 | Total |" in source(paper_page(exam, exam.paper(Student("s1"))), "md")


@pytest.mark.parametrize("exam", ["shuffle: yes", "questions: 2"])
def test_a_heading_that_asks_nothing_may_not_change_places_with_questions(exam):
    text = PEAK + "# The layer\n\nIt has two matrices.\n\n" + LAYER
    with pytest.raises(DocumentError) as error:
        Exam(template(f"exam: {{{exam}}}", text=text), "7").paper(Student("s1"))
    assert "'The layer' asks nothing, but is among questions that change places" in str(error.value)
    assert "\n    # The layer\n" in str(error.value)
    assert str(error.value).endswith("hint: put it before the first question")


@pytest.mark.parametrize("room", ["much", "0 lines", "31 lines", "300 mm", "4 lines grey", "1e9 mm"])
def test_room_that_is_none_is_refused_with_its_place(room):
    with pytest.raises(DocumentError, match=f"'{room}' is no room to work in") as error:
        template(f"exam: {{room: {room}}}").problem()
    assert "6 lines, 40 mm, 40 mm box" in str(error.value)
    assert error.value.span.line


def test_a_paper_speaks_the_language_of_its_document():
    exam = Exam(template("language: de"), "5")
    page = source(paper_page(exam, exam.paper(Student("s1", "Ada", "A1"))), "md")
    assert re.search(r"Ada · Platz A1 · Bogen \w+", page)
    assert re.search(r"\*\*Antwort \w+\*\* \(\w+, mit Einheit, 3 signifikante Stellen, 2\\?\.5 Punkte\): \.{20}", page)
    assert not re.search(r"Answer|points?\b|seat|paper", page)
    exam = Exam(template("language: fr"), "5")  # words in somebody's own templates
    assert paper_page(exam, exam.paper(Student("s1", "", "A1"))).subtitle.startswith("seat A1 · paper ")


@pytest.mark.parametrize(
    ("exam", "text", "says"),
    [
        ("exam: {questions: 5}", PEAK + LAYER, "5 questions are wanted, but there are 2"),
        (
            "exam: {questions: 1}",
            PEAK.replace("5 points", "4 points") + LAYER,
            "papers with other questions have other",
        ),
        ("exam: {shuffle: yes}", PEAK, "questions are chosen and shuffled by their headings with points"),
        ("exam: {shuffle: maybe}", PEAK + LAYER, "'shuffle' is yes or no, not 'maybe'"),
        ("exam: {suffle: yes}", PEAK + LAYER, "unknown key 'suffle' in exam"),
        (
            "exam: {shuffle: yes}",
            PEAK + LAYER + RING.replace("answer:bytes", "answer:dp"),
            "may not be on the same paper",
        ),
        ("", PEAK + "The rate is {{ answer:peak }}.", "the paper would tell an answer"),
    ],
)
def test_what_no_paper_can_be_made_of_is_refused_with_its_place(exam, text, says):
    def pages():
        made = Exam(template(exam, text=text))
        made.check_space(3)
        return paper_page(made, made.paper(Student("s")))

    with pytest.raises(DocumentError, match=says) as error:
        pages()
    assert error.value.span is not None


def test_an_answer_may_be_told_where_only_the_solution_shows_it():
    made = Exam(template(text=PEAK + ":::solution\nThe rate is {{ answer:peak }}.\n:::\n"))
    paper = made.paper(Student("s"))
    assert "The rate is" not in source(paper_page(made, paper), "md", edition="paper")
    assert re.search(r"The rate is ≈ [\d.]+ TFLOP/s", source(solution_page(made, paper), "md"))


def digits(text):
    return {run.replace(" ", "") for run in re.findall(r"\d[\d  ]{4,}", text)}


@pytest.mark.parametrize("kind", ["md", "typ", "html", "tex"])
def test_the_paper_tells_nothing_of_the_answers(kind):
    exam = Exam(template("exam: {shuffle: yes}", text=PEAK + LAYER + RING), "7")
    paper = exam.paper(Student("s1", "Ada", "A1"))
    text = source(paper_page(exam, paper), kind)
    solved = source(solution_page(exam, paper), kind)
    record = key_record(exam, paper)
    for answer in record["answers"]:
        number = answer["value"].split("/")[0]
        assert number not in text.replace(" ", "").replace("\\,", "")
        for said in re.findall(r"[\d.]+ (?:GiB|GB|TFLOP|ms)", answer["answer"]):
            assert said not in text
    assert "Solution" not in text.split("<style>")[0] + text.split("</style>")[-1]
    assert len(solved) > len(text)
    for step in ("V_", "n_{", "fma2", "payload", "aligned"):
        assert step not in text.split("<main>")[-1] or kind in ("tex", "typ")


def test_the_keys_are_the_same_in_csv_and_json_and_draw_the_papers_again(tmp_path):
    made = template("exam: {shuffle: yes}", text=PEAK + LAYER + RING)
    exam = Exam(made, "7")
    papers = exam.settle([Student("s1", "=cmd()", "A1"), Student("s2", "Bo")])
    records = [key_record(exam, paper) for paper in papers]
    read = json.loads(keys_json(exam, records))
    rows = [*csv.DictReader(io.StringIO(keys_csv(records)))]
    assert [(p["student"], a["number"], a["value"]) for p in read["papers"] for a in p["answers"]] == [
        (row["student"], row["number"], row["value"]) for row in rows
    ]
    assert rows[0]["name"] == "'=cmd()"
    (tmp_path / "keys.json").write_text(keys_json(exam, records), encoding="utf-8")
    _, again = papers_of(made, tmp_path / "keys.json")
    assert [told(p) for p in again] == [told(p) for p in papers]
    with pytest.raises(DocumentError, match="differ from the ones of quiz"):
        papers_of(template(text=PEAK + "```symcomm\ndraw: {other: [1, 2]}\n```\n"), tmp_path / "keys.json")
    whole = keys_json(exam, records)
    answer = json.loads(whole)["papers"][1]["answers"][0]
    second = f"the key of {records[1]['student']} was changed: it has"
    for change, says in (
        (lambda read: read["papers"].append(read["papers"][0]), r"keys.json, paper \d+: .* has two papers"),
        (lambda read: read.update(generator="another"), "its papers were drawn by 'another', and this version draws"),
        (lambda read: read["papers"][1]["answers"][0].update(points="99"),
         f"paper 2: {second} {answer['number']}, {answer['id']}, 99, .* and the document .*"),
        (lambda read: read["papers"][1]["answers"][0].update(value="5"), f"paper 2: {second} .*, 5, and the .*"),
        (lambda read: read["papers"][1]["drawn"].update(D="7"), f"paper 2: {second} 7, .* and the document .*"),
        (lambda read: read["papers"][1]["answers"].append(answer), f"paper 2: {second} .*, and the document nothing"),
        (lambda read: read["papers"][1].update(answers=[]), f"paper 2: {second} nothing, and the document .*"),
        (lambda read: read["papers"][1].update(paper="XXXX"), "paper 2: the paper XXXX of .* is not drawn again"),
    ):  # fmt: skip
        read = json.loads(whole)
        change(read)
        (tmp_path / "keys.json").write_text(json.dumps(read), encoding="utf-8")
        with pytest.raises(DocumentError, match=says):
            papers_of(made, tmp_path / "keys.json")
    (tmp_path / "bad.json").write_text("[1, 2", encoding="utf-8")
    with pytest.raises(DocumentError, match="is no key file"):
        papers_of(made, tmp_path / "bad.json")


@pytest.mark.parametrize(
    ("text", "says", "line"),
    [
        ("name\nAda\n", "has no column id", 1),
        ("id,name\ns1,Ada\ns1,Bo\n", "the id s1 is there twice", 3),
        ("id,name\n,Ada\n", "a student without an id", 2),
        ("id\ns1\u202e\n", "the character U\\+202E", 2),
        ('id\n"s1\n', "is no CSV file", 2),
    ],
)
def test_a_roster_that_is_wrong_is_refused_with_its_line(tmp_path, text, says, line):
    path = tmp_path / "roster.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DocumentError, match=says) as error:
        read_roster(path)
    assert error.value.span.line == line


def test_cells_that_a_spreadsheet_would_run_are_marked():
    hostile = ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "＝1", "\u200b=1", "-5", "1e9", "V = 3"]
    row = next(csv.reader(io.StringIO(csv_text(hostile, []))))
    assert row == [*("'" + text for text in hostile[:7]), "-5", "1e9", "V = 3"]


# -- files ------------------------------------------------------------------------------------------


def test_files_of_students_stay_apart_on_systems_that_do_not_tell_case_and_the_command_says_so(quiz):
    roster = quiz.parent / "roster.csv"
    roster.write_text("id\ns1\nS1\nNUL\ncom1.x\nkeys\n", encoding="utf-8")
    run = CliRunner().invoke(
        main, ["exam", str(quiz), "--roster", str(roster), "--to", "md", "-o", str(quiz.parent / "o")]
    )
    assert run.exit_code == 0, run.output
    names = [path.name for path in (quiz.parent / "o").glob("*.md")]
    assert len({name.lower() for name in names}) == 5
    assert "s1.md" in names
    for name in ("S1", "NUL", "com1.x", "keys"):
        says = rf"note: the files of {name} are named {name}-[0-9a-f]{{6}}: {name} is a device or another file"
        assert re.search(says, run.output)


@pytest.fixture
def quiz(tmp_path: Path) -> Path:
    path = tmp_path / "quiz.md"
    path.write_text((HEAD + PEAK).replace("EXAM", "").replace("BOUNDS", ""), encoding="utf-8")
    return path


def run(*arguments):
    return CliRunner().invoke(main, [str(one) for one in arguments])


def test_papers_are_resumed_and_a_damaged_file_is_made_again(quiz, tmp_path):
    out = tmp_path / "out"
    command = ("exam", quiz, "--variants", 3, "--to", "md,json", "-o", out, "--processes", 1)
    assert run(*command).exit_code == 0
    files = {path.name: path.read_bytes() for path in out.iterdir()}
    assert {*files} == {"001.md", "002.md", "003.md", "keys.json", "manifest.json"}
    before = (out / "001.md").stat().st_mtime_ns
    (out / "002.md").write_text("damaged", encoding="utf-8")
    (out / "003.md").unlink()
    assert run(*command).exit_code == 0
    assert {path.name: path.read_bytes() for path in out.iterdir()} == files
    assert (out / "001.md").stat().st_mtime_ns == before
    quiz.write_text(quiz.read_text(encoding="utf-8").replace("The clock", "A clock"), encoding="utf-8")
    assert run(*command).exit_code == 0
    assert "A clock" in (out / "001.md").read_text(encoding="utf-8")


@pytest.mark.long
def test_two_processes_write_what_one_does(quiz, tmp_path):
    for count in (1, 2):
        made = run(
            "exam",
            quiz,
            "--variants",
            60,
            "--to",
            "md,html,json,csv",
            "-o",
            tmp_path / str(count),
            "--processes",
            count,
        )
        assert made.exit_code == 0, made.output
    one, two = ({p.name: p.read_bytes() for p in (tmp_path / str(n)).iterdir()} for n in (1, 2))
    assert one == two


def test_no_name_of_a_roster_leaves_the_folder(quiz, tmp_path):
    roster = tmp_path / "roster.csv"
    ids = ["../../evil", "/etc/passwd", "a/b", "a-b", "keys", "manifest", "CON", "..", "x" * 119]
    roster.write_text("id\n" + "\n".join(ids) + "\n", encoding="utf-8")
    out = tmp_path / "deep" / "out"
    made = run("exam", quiz, "--roster", roster, "--to", "md,json", "-o", out, "--processes", 1)
    assert made.exit_code == 0, made.output
    assert len([*out.glob("*.md")]) == len(ids)
    assert {p.name for p in tmp_path.iterdir()} == {"quiz.md", "roster.csv", "deep"}
    assert {p.name for p in (tmp_path / "deep").iterdir()} == {"out"}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "say how many papers: --variants 30, or --roster roster.csv"),
        (("--variants", 0), "0 papers: from 1 to 20,000 are made"),
        (("--variants", 2, "--to", "docx"), "unknown format 'docx'"),
        (("--roster", "nobody.csv"), "there is no file nobody.csv"),
        (("--variants", 12000), "12,000 students cannot have papers of their own: the draws give 61"),
    ],
)
def test_a_command_that_cannot_be_is_told_and_writes_nothing(quiz, tmp_path, arguments, says):
    text = quiz.read_text(encoding="utf-8")
    text = re.sub(r"  [DkN]: .*\n", "", text)
    quiz.write_text(text, encoding="utf-8")
    made = run("exam", quiz, "-o", tmp_path / "out", *arguments)
    assert made.exit_code == 2
    assert says in made.output
    assert not (tmp_path / "out").exists()


MIDTERM = Path(__file__).resolve().parents[2] / "examples" / "midterm" / "midterm.md"
ELSEWHERE = """---
title: A test
exam: {questions: 2, shuffle: yes}
draw:
  D: {powers_of: 2, from: 64, to: 4096}
  k: {from: 2, to: 9}
---

# First (2 points)

A model of {{ D }} columns.

```symcomm
- model: product
  formula: '$y = xW, x \\in \\mathbb{R}^{D}, W \\in \\mathbb{R}^{D \\times D}, y \\in \\mathbb{R}^{D}$'
  values: {D: {{ D }}}
- ask: parameters
```

# Second (2 points)

How many are they {{ k }} times?

```symcomm
ask: parameters
model: product
```

# Third (2 points)

```symcomm
ask: pipeline_time
want: utilisation
given: {p: {{ k }}, m: 8}
```
"""


@pytest.mark.few(4)
@pytest.mark.parametrize(
    "change",
    [
        ("", ""),
        ("A model of", "{{ m }} stages and"),
        ("# Second", "# Second of {{ D }}"),
        ("ask: parameters\nmodel", "ask: parameters\nid: q{{ k }}\nmodel"),
        ("ask: parameters\nmodel", "ask: parameters\nlabel: of {{ D }} columns\nmodel"),
        ("given: {p: {{ k }}", 'given: {"{{ word }}": {{ k }}'),
        ("m: 8}", 'm: "{{ k }}{{ k }}"}'),
    ],
)
def test_a_question_that_was_read_with_other_numbers_is_the_one_that_is_read_alone(change: tuple[str, str]) -> None:
    text = ELSEWHERE.replace(*change).replace("draw:", "draw:\n  word: [p, o]")
    exam = Exam(parse_template(text), "3", whole=True)
    for student in [Student(f"s{n}") for n in range(12)]:
        problem = exam.paper(student).problem
        alone = parse_template(text).problem(exam.paper(student).drawn)
        own = dict(zip(map(id, alone.asks), problem.asks, strict=True))
        items = [replace(item, exam=own[id(item)].exam) if id(item) in own else item for item in alone.items]
        assert problem.items == tuple(items)


@pytest.mark.long
def test_a_key_does_not_depend_on_which_paper_was_made_first():
    midterm = read_template(Path(__file__).parents[2] / "examples" / "midterm" / "midterm.md")
    students = numbered(16)
    forward, backward = Exam(midterm, "3"), Exam(midterm, "3")
    first = {s.id: key_record(forward, forward.paper(s)) for s in students}
    assert {s.id: key_record(backward, backward.paper(s)) for s in students[::-1]} == first


UNREADABLE = r"""---
exam: {questions: 1, alike: yes}
draw: {D: [512, 768], n: [16, 24], H: {is: D / n}, k: [2, 4, 8]}
---
# One (2 points)

```symcomm
{ask: pipeline_time, id: one, want: utilisation, given: {p: {{ k }}, m: 8}}
```

# Two (2 points)

```symcomm
- model: m
  formula: '$y = xW, x \in \mathbb{R}^{B \times D}, W \in \mathbb{R}^{D \times H}, y \in \mathbb{R}^{B \times H}$'
  values: {B: 8, D: {{ D }}, H: {{ H }}}
- {ask: parameters, id: two, points: 1}
- {ask: parameters, id: three, points: 1, label: again}
```
"""
NOT_WHOLE = "t.md:16: '64/3' is not a whole number"


def _drawn_papers(text: str) -> set[tuple[str, bool]]:
    """The first question of each paper and whether its H is whole, or why there is no paper."""
    exam, found = Exam(parse_template(text, "t.md"), "1"), set()
    for student in numbered(40):
        try:
            paper = exam.paper(student)
        except DocumentError as error:
            found.add((str(error).splitlines()[0], False))
        else:
            found.add((paper.parts[0].id, (paper.drawn["D"].text, paper.drawn["n"].text) != ("512", "24")))
    return found


def test_a_question_that_a_draw_makes_unreadable_stops_only_the_papers_that_ask_it():
    assert _drawn_papers(UNREADABLE) == {("one", True), ("one", False), ("two", True), (NOT_WHOLE, False)}


def test_a_question_about_a_model_that_a_draw_makes_unreadable_stops_though_it_stands_elsewhere():
    elsewhere = "# Three (2 points)\n\n```symcomm\n{ask: parameters, id: four, model: m}\n```\n"
    found = _drawn_papers(UNREADABLE + elsewhere)
    assert found == {("one", True), ("one", False), ("two", True), ("four", True), (NOT_WHOLE, False)}


BESIDE = """---
exam: {questions: 1, alike: yes}
draw: {r: [1, 2, 4]}
---
# One (2 points)

The clock of the other question runs at {{ f }}.

```symcomm
{ask: pipeline_time, id: one, want: utilisation, given: {p: 4, m: 8}}
```

# Two (2 points)

```symcomm
{ask: peak_rate, id: two, given: {f: "{{ r }} GHz", n_SM: 108 SM, n_FMA: 512 FMA/clock/SM}}
```
"""


def test_prose_tells_the_number_of_a_question_that_its_paper_does_not_ask():
    papers = [Exam(parse_template(BESIDE, "t.md"), "1").paper(student) for student in numbered(12)]
    said = {(paper.drawn["r"].text, item.markdown) for paper in papers for item in paper.problem.items
            if paper.parts[0].id == "one" and "clock" in getattr(item, "markdown", "")}  # fmt: skip
    assert len(said) > 1
    assert said == {(r, f"The clock of the other question runs at {r} 000 000 000 Hz.") for r, _ in said}


def test_an_option_that_is_said_twice_lists_both(tmp_path):
    (tmp_path / "t.md").write_text(UNREADABLE.replace("[16, 24]", "[8, 16]"), encoding="utf-8")
    words = ["exam", str(tmp_path / "t.md"), "--variants", "2", "--to", "json", "--to", "csv", "-o", str(tmp_path)]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0, result.output
    assert {path.name for path in tmp_path.iterdir()} == {"t.md", "keys.json", "keys.csv"}


def test_a_mistake_that_is_ill_described_is_refused_before_papers_are_made(tmp_path):
    own = "```symcomm\n{mistake: {name: half, says: You halved D., change: {D: D / 2}}}\n```\n"
    with pytest.raises(DocumentError, match=r"unknown key 'D' in this change\n.*\n +\^\nhint: known: accounting, drop"):
        Exam(parse_template(UNREADABLE + own)).check_space(1)
