"""What is worked out once for a whole class is what each student's own paper gives alone."""

from __future__ import annotations

import csv
import random
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from symcomm.exam.grading import grade
from symcomm.exam.numbers import FormNumber, number_of
from symcomm.exam.papers import Exam
from symcomm.exam.roster import Student, read_roster
from symcomm.exam.self_test import self_test
from symcomm.exam.sheets import read_sheets
from symcomm.form import Ceiling, Form, Largest, Num, Power, Product, Ratio, Root, Sym, Total
from symcomm.problems.problem import parse_template, read_template
from symcomm.problems.solve import answer_of, following

MIDTERM = Path(__file__).parents[2] / "examples" / "midterm"
GRADES = Path(__file__).parents[1] / "data" / "midterm_grades.csv"

numbers = st.fractions(-5, 5, max_denominator=6)
leaves = st.one_of(st.sampled_from([Sym("a"), Sym("b"), Sym("c")]), numbers.map(Num))


def _built(inside: st.SearchStrategy[Form]) -> st.SearchStrategy[Form]:
    some = st.lists(inside, min_size=2, max_size=3).map(tuple)
    return st.one_of(
        some.map(Total), some.map(Product), some.map(Largest), st.builds(Ratio, inside, inside), inside.map(Ceiling),
        inside.map(Root), st.builds(Power, inside, st.integers(-3, 5).map(lambda n: Num(Fraction(n)))),
    )  # fmt: skip


@given(
    st.recursive(leaves, _built, max_leaves=8), st.tuples(*[st.fractions(0, 9, max_denominator=4)] * 3), st.booleans()
)
def test_a_form_that_was_collected_has_the_number_that_its_pieces_give(form, at, missing):
    values = dict(zip("abc", at, strict=True))
    if missing:
        del values["b"]
    assert FormNumber(form).at(values) == number_of(form, values)


def _fresh(template, exam, students):
    """Each answer as the class has it, and as it is when its own paper alone is read and derived."""
    for student in students:
        paper = exam.paper(student)
        alone = Exam(parse_template(template, exam.template.file), exam.seed).exactly(student, paper.attempt)
        found = {}
        for mine, own in zip(paper.parts, alone.parts, strict=True):
            ask = following(mine.ask, found)
            answer = exam.kept.answer(paper.problem, ask)
            found[mine.id] = answer.quantity
            assert (mine.id, mine.ask) == (own.id, own.ask)
            model = exam.kept.model(paper.problem, ask.model)
            yield mine.id, answer.quantity, answer_of(alone.problem, following(own.ask, found), model).quantity


@pytest.mark.parametrize("count", [1, pytest.param(40, marks=pytest.mark.long)])
def test_the_numbers_of_a_random_sample_of_papers_are_those_derived_anew(count):
    template = read_template(MIDTERM / "midterm.md")
    exam = Exam(template, "sample")
    chosen = random.Random(14).sample(range(500), 6 + count)
    for n in chosen[:6]:  # from here on numbers are only put in
        exam.answers(exam.paper(Student(f"s{n}")))
    text = (MIDTERM / "midterm.md").read_text(encoding="utf-8")
    for name, kept, fresh in _fresh(text, exam, [Student(f"s{n}") for n in chosen[6:]]):
        assert kept == fresh, name


def test_what_is_rounded_up_is_right_on_every_paper():
    """A number that is put in keeps its ceiling: the loop over the rounds of the tree knows nothing of formulas."""
    text = """---
title: T
draw: {k: {from: 2, to: 40}, a: {from: 1, to: 9}, w: {from: 1, to: 9}}
exam: {alike: yes}
---

# Broadcast along a tree (1 point)

```symcomm
ask: collective_time
id: tree
collective: broadcast
algorithm: tree
given: {n: 8 GB, k: {{ k }}, alpha: "{{ a }} s", W: "{{ w }} GB/s"}
```
"""
    exam = Exam(parse_template(text), "7")
    for n in range(60):
        paper = exam.paper(Student(f"s{n}"))
        k, latency, rate = (int(paper.drawn[name].text) for name in ("k", "a", "w"))
        have = rounds = 0
        while have < k - 1:  # everyone who has the message sends it on
            have, rounds = 2 * have + 1, rounds + 1
        (answer,) = exam.answers(paper)
        assert answer.quantity.value == rounds * (latency + Fraction(8, rate)), (k, latency, rate)


@pytest.mark.long
def test_three_hundred_draws_of_the_midterm_are_sound():
    report = self_test(read_template(MIDTERM / "midterm.md"), "0", 300)
    assert report.problems == (), report.text
    assert {spread.question for spread in report.spreads} >= {"peak", "dp", "tp", "mesh", "ridge", "buckets", "module"}


@pytest.mark.long
def test_the_class_of_the_midterm_gets_the_points_that_were_looked_at():
    exam = Exam(read_template(MIDTERM / "midterm.md"), "7")
    grades = grade(exam, exam.settle(read_roster(MIDTERM / "roster.csv")), read_sheets(MIDTERM / "answers.csv"))
    found = {
        (one.student, one.part.number): (one.part.id, str(one.mark.points), one.mark.verdict, " ".join(one.mark.names))
        for one in grades.graded
    }
    with GRADES.open(encoding="utf-8", newline="") as file:
        kept = {(row[0], row[1]): tuple(row[2:]) for row in csv.reader(file)}
    assert found == kept
