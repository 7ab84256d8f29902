"""What is worked out once for a whole class is what each student's own paper gives alone."""

from __future__ import annotations

import csv
import random
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest
from api import (
    Answer,
    Candidates,
    Ceiling,
    Exam,
    Form,
    FormNumber,
    FormNumbers,
    Largest,
    Num,
    Power,
    Product,
    QuestionPart,
    Ratio,
    Root,
    Student,
    Sym,
    Total,
    answer_of,
    exam_of,
    following,
    grade,
    items_of,
    kept_answers,
    key_of,
    number_of,
    number_text,
    numbered,
    parse_template,
    read_roster,
    read_sheets,
    self_test,
    solve,
)
from api import exports_drawing as drawing
from api import problem_read_template as read_template
from hypothesis import given
from hypothesis import strategies as st

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


@given(
    st.lists(st.recursive(leaves, _built, max_leaves=6), min_size=1, max_size=4),
    st.tuples(*[st.fractions(0, 9, max_denominator=4)] * 3), st.booleans(),
)  # fmt: skip
def test_forms_that_are_worked_out_together_have_the_numbers_of_each_alone(several, at, missing):
    values = dict(zip("abc", at, strict=True))
    if missing:
        del values["b"]
    together = FormNumbers(tuple(map(FormNumber, several))).at(values)
    found = [None if number is None else Fraction(*number) for number in together]
    assert found == [number_of(form, values) for form in several]


def test_a_digit_that_cancels_within_one_form_is_no_number_of_another():
    half = FormNumber(Ratio(Sym("a"), Sym("b")))
    irrational = FormNumber(Product((Num(Fraction(3)), Root(Sym("a")))))
    none = FormNumber(Ratio(Sym("a"), Total((Sym("a"), Product((Num(Fraction(-1)), Sym("a")))))))
    values = {"a": Fraction(2), "b": Fraction(4)}
    exact, near, missing = FormNumbers((half, irrational, none)).at(values)
    assert Fraction(*exact) == Fraction(1, 2)
    assert abs(Fraction(*near) ** 2 - 18) < Fraction(1, 10**40)
    assert missing is None


@given(st.fractions(-(10**6), 10**6, max_denominator=10**4), st.sampled_from([Fraction(1, 1000), Fraction(1, 30)]))
def test_the_bounds_of_a_number_are_written_as_their_fractions_are(value, tolerance):
    part = QuestionPart("q", "numeric", "", Fraction(1), value, "", (), tolerance, Num(value), (), (), (), "")
    spread = abs(value) * tolerance or Fraction(1, 10**9)
    assert part.spread(value) == spread
    assert part.bounds(value) == (number_text(value - spread, spread), number_text(value + spread, spread))
    assert part.texts(value) == (number_text(value, spread / 10), number_text(spread, spread))


@given(st.fractions(Fraction(1, 10**6), 10**9, max_denominator=10**6), st.integers(-30, 30))
def test_a_number_may_be_off_by_half_a_unit_of_its_third_digit(value, power):
    for number in (value, Fraction(10) ** power):
        part = QuestionPart("q", "numeric", "", Fraction(1), number, "", (), None, Num(number), (), (), (), "")
        exponent = int(f"{Decimal(number.numerator) / Decimal(number.denominator):.20e}".split("e")[1])
        assert part.spread(number) == Fraction(501, 1000) * Fraction(10) ** (exponent - 2)


STRUCTURES = r"""---
title: Structures
exam: {alike: yes}
draw:
  t: {powers_of: 2, from: 2, to: 16}
  s: {powers_of: 2, from: 1, to: 4}
  N: {multiples_of: 8, from: 8, to: 32}
  D: {multiples_of: 256, from: 256, to: 2048}
  B: {multiples_of: 16, from: 16, to: 64}
  w: {from: 1.5, to: 9.5, step: 0.5, unit: GB/s}
symbols: {B: batch size, L: sequence length, D: model dimension, N: number of layers}
---

A stack of {{ N }} layers with $D = {{ D }}$ and batches of {{ B }}, and links of {{ w }}.

| Computation | Input | Output |
|---|---|---|
| $h = x W^1$ | $x \in \mathbb{R}^{B \times L \times D}, W^1 \in \mathbb{R}^{D \times 4D}$ | $h \in \mathbb{R}^{B \times L \times 4D}$ |
| $y = h W^2$ | $h \in \mathbb{R}^{B \times L \times 4D}, W^2 \in \mathbb{R}^{4D \times D}$ | $y \in \mathbb{R}^{B \times L \times D}$ |

```symcomm
model: mlp
repeat: N
dtype: fp16
values: {N: {{ N }}, B: {{ B }}, L: 512, D: {{ D }}}
```

# Tensor parallelism (10 points)

```symcomm
ask: communication
id: tp
model: mlp
strategy: "tensor({{ t }})"
collective: all-reduce
bounds: {at_most: 800 MB}
```

# Layers a stage (4 points)

```symcomm
{ask: communication, id: pp, model: mlp, strategy: {pipeline: {layers_per_stage: {{ s }}}}, phase: forward, choices: 4}
```

# Buckets (5 points)

```symcomm
{ask: buckets, id: buckets, want: size, given: {s: {{ t }} GB, w: {{ w }}, o: 100 µs}}
```
"""  # noqa: E501


PEAKS = STRUCTURES[: STRUCTURES.index("# Tensor")] + """# Peaks (10 points)

```symcomm
{ask: peak_memory, id: peak, model: mlp, choices: 4}
```

# Peaks of shards (10 points)

```symcomm
{ask: peak_memory, id: shards, model: mlp, strategy: "fsdp(4)", recomputation: full}
```
"""


def _class(seed: str, count: int, text: str = STRUCTURES):
    """The exam with what it learned from some papers, and the items of the next ones."""
    exam = exam_of(parse_template(text, "t.md"), seed)
    students = numbered(count + 8)
    items_of(exam, [*map(exam.paper, students[:8])])
    return exam, students[8:]


def _each_alone(exam, students, text: str = STRUCTURES):
    """Whether the items of each paper are those of an exam that knows no other paper."""
    papers = [*map(exam.paper, students)]
    together = items_of(exam, papers)
    for paper in papers:
        alone = exam_of(parse_template(text, "t.md"), exam.seed)
        own = alone.paper(paper.student)
        mine = [item for item in together if item.variant == int(paper.student.id)]
        yield own.attempt == paper.attempt and mine == items_of(alone, [own])


def _peaks(seed: str, count: int, name: str) -> list:
    exam = exam_of(parse_template(PEAKS, "t.md"), seed)
    papers = [*map(exam.paper, numbered(count))]
    return [exam.kept.key(paper.problem, next(a for a in paper.problem.asks if a.exam.id == name)) for paper in papers]


@pytest.mark.parametrize("seed", ["1", *(pytest.param(str(n), marks=pytest.mark.long) for n in range(2, 8))])
def test_a_peak_is_the_one_that_is_derived_alone_wherever_the_numbers_put_it(seed):
    assert all(_each_alone(*_class(seed, 4, PEAKS), PEAKS))


@pytest.mark.parametrize(("name", "several"), [("peak", False), ("shards", True)])
def test_papers_share_what_is_recognised_where_their_numbers_lead_to_the_same(name, several):
    keys = _peaks("1", 12, name)
    assert 1 + several <= len({id(key.candidates) for key in keys}) < 8
    assert len({key.number for key in keys}) > 8


def test_a_shared_key_that_asks_more_is_made_anew_where_the_numbers_decide_on_that(monkeypatch):
    key = next(key for key in _peaks("1", 12, "peak") if key.anew is not None)
    own = key.anew()
    told, asked = own.check(str(own.number)), []
    monkeypatch.setattr(Candidates, "serves", lambda candidates, values: False)
    shared = replace(key, anew=lambda: asked.append("anew") or own, asked=-1)
    assert shared.check(str(own.number)) == told
    assert asked == ["anew"]


@pytest.mark.parametrize("seed", ["1", *(pytest.param(str(n), marks=pytest.mark.long) for n in range(2, 12))])
def test_a_variant_is_the_one_that_is_derived_alone(seed):
    assert all(_each_alone(*_class(seed, 4)))


def test_an_answer_that_is_kept_for_other_numbers_is_seen(monkeypatch):
    exam, students = _class("1", 4, PEAKS)
    monkeypatch.setattr(kept_answers, "serves", lambda *about: True)
    assert not all(_each_alone(exam, students, PEAKS))


def test_recognised_answers_that_are_kept_for_other_values_are_seen(monkeypatch):
    kept = {}
    told = drawing._told_apart
    monkeypatch.setattr(drawing, "_told_apart", lambda known, *about: kept.setdefault(known, told(known, *about)))
    assert not all(_each_alone(*_class("1", 2)))


@pytest.mark.parametrize("settled", [True, False])
def test_papers_with_the_same_kinds_of_stages_share_what_is_recognised_unless_other_numbers_decide(
    monkeypatch, settled
):
    if not settled:  # as where numbers other than those of layers and stages say which stage has the most
        monkeypatch.setattr(Candidates, "serves", lambda candidates, values: False)
    text = STRUCTURES.replace("{{ s }}", "2").replace("N: {multiples_of: 8, from: 8, to: 32}", "N: [4, 8, 16]")
    exam = exam_of(parse_template(text, "t.md"), "1")
    found, layers = [], set()
    for paper in map(exam.paper, numbered(8)):
        ask = next(ask for ask in paper.problem.asks if ask.exam.id == "pp")
        key, alone = exam.kept.key(paper.problem, ask), key_of(paper.problem, ask)
        told = [[(one.names, one.at(made.values)) for one in made.candidates.recognised] for made in (key, alone)]
        assert told[0] == told[1]
        found.append(key.candidates)
        layers.add(paper.drawn["N"].text)
    assert layers == {"4", "8", "16"}
    assert len({*map(id, found)}) == (2 if settled else 8)  # of two stages no one is between others


SIZES = """---
exam: {alike: yes}
draw: {k: [2, 4, 8, 16, 32]}
---
# A ring (2 points)

```symcomm
{ask: collective_time, id: q, algorithm: ring, ranks: {{ k }}, given: {n: 8 GB, W: 100 GB/s, alpha: 2 µs}}
```
"""


@pytest.mark.long
def test_the_mistakes_of_all_sizes_are_derived_once_and_have_the_numbers_of_each_alone(monkeypatch):
    derived = []
    monkeypatch.setattr(kept_answers, "key_of", lambda *about: derived.append(about) or key_of(*about))
    exam = exam_of(parse_template(SIZES, "t.md"), "1")
    sizes = set()
    for paper in map(exam.paper, numbered(12)):
        (ask,) = paper.problem.asks
        key = exam.kept.key(paper.problem, ask)
        known, values = key.candidates, key.values
        alone = key_of(paper.problem, ask)
        told = [(one.names, one.at(alone.values)) for one in (*alone.conventions, *alone.mistakes)]
        assert [(one.names, one.at(values)) for one in known.recognised] == told
        sizes.add(dict(ask.options)["ranks"])
    assert len(sizes) > 3
    assert len(derived) == 2  # with the number of the first paper, too: both are to say the same


EDGES = r"""---
exam: {alike: yes}
draw: {k: [1, 2, 4], alpha: [0 s, 2 µs], D: [64, 128], p: [1, 2], s: {powers_of: 2, from: 2, to: 8}}
---

| Computation | Input | Output |
|---|---|---|
| $h = x W$ | $x \in \mathbb{R}^{B \times D}, W \in \mathbb{R}^{D \times D}$ | $h \in \mathbb{R}^{B \times D}$ |

```symcomm
- {model: mlp, repeat: N, values: {N: 8, B: 64, D: {{ D }}}}
- {ask: communication, id: data, strategy: data(k), collective: all-reduce, accounting: payload, given: {k: {{ k }}}}
- {ask: communication, id: sharded, strategy: fsdp(k), given: {k: {{ k }}}}
- {ask: communication, id: stages, strategy: pipeline(p), accounting: sent_and_received_per_rank, given: {p: {{ p }}}}
- {ask: collective_time, id: ring, algorithm: ring, given: {n: 8 GB, k: {{ s }}, W: 100 GB/s, alpha: 2 µs}}
- {ask: broadcast, id: copies, plan: serial, size: 8 GB, bandwidth: 1 GB/s, latency: {{ alpha }}, receivers: {{ s }}}
```
"""


@pytest.mark.parametrize("name", ["data", "sharded", "stages", "ring", "copies"])
def test_a_key_is_that_of_its_paper_alone_where_a_number_is_zero_or_one(name):
    exam, seen = exam_of(parse_template(EDGES, "t.md"), "1"), set()
    for paper in map(exam.paper, numbered(24)):
        ask = next(ask for ask in paper.problem.asks if ask.exam.id == name)
        key, alone = exam.kept.key(paper.problem, ask), key_of(paper.problem, ask)
        assert exam.kept.answer(paper.problem, ask).quantity == key.number == alone.number
        told = [[(one.names, one.at(made.values)) for one in made.candidates.recognised] for made in (key, alone)]
        assert told[0] == told[1]
        seen.add((paper.drawn["k"].text, paper.drawn["alpha"].text, paper.drawn["p"].text))
    assert len(seen) > 6


def test_the_solution_of_each_paper_names_the_options_and_given_numbers_as_it_does_alone():
    exam = exam_of(parse_template(EDGES, "t.md"), "1")
    for paper in map(exam.paper, numbered(12)):
        together, alone = solve(paper.problem, answering=exam.kept), solve(paper.problem)
        for mine, own in zip(together.blocks, alone.blocks, strict=True):
            if isinstance(own, Answer):
                assert (mine.options, mine.given, mine.quantity) == (own.options, own.given, own.quantity)
                assert [step.form for step in mine.derivation.steps] == [step.form for step in own.derivation.steps]


def test_an_algorithm_that_runs_none_of_the_collectives_otherwise_is_not_derived_again():
    exam = exam_of(parse_template(SIZES.replace("algorithm: ring, ", ""), "t.md"), "1")
    (ask,) = exam.example.asks
    question = key_of(exam.example, ask).candidates.question
    asked = {accounting.algorithm for _, accounting, *_ in question.changed}
    assert {"tree", "two_shot"} <= asked  # which run an all-reduce
    assert not {"ring", "bruck", "pairwise"} & asked


RATIOS = r"""---
draw: {k: [2, 4, 8], D: {from: 1, to: 3}}
---

| Computation | Input | Output |
|---|---|---|
| $y = x W$ | $x \in \mathbb{R}^{B \times 8}, W \in \mathbb{R}^{8 \times D}$ | $y \in \mathbb{R}^{B \times D}$ |

```symcomm
- {model: one, values: {B: 8, D: {{ D }}}}
- {ask: state_memory, id: ratio, divided_by: {strategy: "fsdp({{ k }})"}}
- {ask: state_memory, id: whole}
```
"""


def test_what_an_answer_is_divided_by_tells_it_from_that_of_another_paper_and_question():
    exam = exam_of(parse_template(RATIOS, "t.md"), "1")
    for paper in map(exam.paper, numbered(12)):
        degree, width = (int(paper.drawn[name].text) for name in ("k", "D"))
        keys = [exam.kept.key(paper.problem, ask) for ask in paper.problem.asks]
        found = [exam.kept.answer(paper.problem, ask).quantity.value for ask in paper.problem.asks]
        assert found == [key.number.value for key in keys] == [degree, 8 * width * 16]  # bytes a parameter


GROUPED = """---
draw: {n_kv: {powers_of: 2, from: 2, to: 8}, N: {from: 4, to: 40}}
---
# A cache (2 points)

```symcomm
- model: Llama
  config: {model_type: llama, architectures: [LlamaForCausalLM], hidden_size: 1024, intermediate_size: 2048,
           num_hidden_layers: {{ N }}, num_attention_heads: 16, num_key_value_heads: {{ n_kv }},
           vocab_size: 4096, torch_dtype: bfloat16}
- {ask: kv_cache, id: q, of: token}
```
"""


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", ["1", "2", "3"])
def test_a_question_whose_formula_a_number_decides_is_derived_once_for_each_such_number(monkeypatch, seed):
    derived = []
    monkeypatch.setattr(kept_answers, "key_of", lambda *about: derived.append(about) or key_of(*about))
    exam = exam_of(parse_template(GROUPED, "t.md"), seed)
    for paper in map(exam.paper, numbered(16)):
        layers, heads = int(paper.drawn["N"].text), int(paper.drawn["n_kv"].text)
        (ask,) = paper.problem.asks
        key = exam.kept.key(paper.problem, ask)
        assert key.number.value == exam.kept.answer(paper.problem, ask).quantity.value
        assert key.number.value == sum(2 * heads * 64 * 2 for _ in range(layers))  # keys and values of 64 numbers
    assert len(derived) == 3  # one for each number of heads


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


@pytest.mark.long
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


def test_bounds_decide_on_a_draw_wherever_their_question_stands():
    text = """---
draw: {f: {from: 1.1, to: 2.4, step: 0.1, unit: GHz}}
---

```symcomm
{ask: peak_rate, id: peak, given: {f: {{ f }}, n_SM: 10 SM, n_FMA: 512 FMA/clock/SM}, bounds: {at_least: 18 TFLOP/s}}
```
"""
    for above in ("", "# Peak\n\n", "# Peak (3 points)\n\n"):
        exam = Exam(parse_template(text.replace("```symcomm", f"{above}```symcomm"), "t.md"), "1", whole=True)
        rates = [exam.answers(exam.paper(student))[0].quantity.value for student in numbered(8)]
        assert min(rates) >= 18 * 10**12, above


def test_a_shared_key_at_other_numbers_is_made_anew_at_these(monkeypatch):
    key = next(key for key in _peaks("1", 12, "peak") if key.anew is not None)
    monkeypatch.setattr(Candidates, "serves", lambda candidates, values: False)
    assert key.at({"B": Fraction(32)}).anew().values["B"] == 32
    assert key.anew().values == key.values
