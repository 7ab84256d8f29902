"""The options of a question: what somebody could believe, written alike."""

from fractions import Fraction

import pytest
from api import Exam, Quantity, numbered, option_text, parse_template

QUIZ = """---
title: Options
draw:
  f: {from: 1.1, to: 2.4, step: 0.1, unit: GHz}
  n: {from: 60, to: 90}
  p: {from: 3, to: 12}
  m: {from: 13, to: 60}
  k: {from: 3, to: 9}
---

# Peak

```symcomm
- {ask: peak_rate, id: peak, choices: 4, given: {f: {{ f }}, n_SM: {{ n }}, n_FMA: 512}}
- {ask: pipeline_time, id: bubble, want: bubble_total, schedule: gpipe, choices: 4, given: {p: {{ p }}, m: {{ m }}}}
- {ask: pipeline_time, id: busy, want: utilisation, choices: 4, given: {p: {{ p }}, m: {{ m }}}}
- {ask: collective_time, id: ring, algorithm: ring, choices: 4, given: {k: {{ k }}, n: 6 GB, W: 25 GB/s, alpha: 20 us}}
```
"""
UNITS = {"peak": "TFLOP/s", "bubble": "", "busy": "", "ring": ("s", "ms")}


@pytest.fixture(scope="module")
def offered():
    exam = Exam(parse_template(QUIZ), "5", whole=True)
    return [(part.id, part.choices) for student in numbered(6) for part in exam.paper(student).parts]


def test_all_options_are_in_one_unit_and_short(offered):
    for name, choices in offered:
        units = {choice.text.lstrip("0123456789. ").strip() for choice in choices}
        assert len(units) == 1
        assert units <= {UNITS[name]} or units <= {*UNITS[name]}
        assert all(len(choice.text) <= 16 for choice in choices)
        assert len({choice.text for choice in choices}) == len(choices)


def test_no_option_is_upside_down_or_out_of_reach(offered):
    for name, choices in offered:
        (right,) = (choice.quantity.value for choice in choices if choice.right)
        for choice in choices:
            value = choice.quantity.value
            assert Fraction(1, 10_000) <= value / right <= 10_000
            assert name not in ("bubble", "busy") or value < 1
            assert name in ("bubble", "busy") or value * right != 1
            assert choice.right or abs(value - right) * 100 >= max(value, right)


def test_an_option_is_written_in_a_unit_with_four_digits():
    said = [option_text(Quantity.parse(text), unit) for text, unit in (
        ("12 GiB", "GiB"), ("12 GB", "GiB"), ("77199360 parameter", "parameter"), ("1/7", ""), ("0.44044 s", "ms"),
    )]  # fmt: skip
    assert said == ["12 GiB", "11.18 GiB", "77 199 360 parameters", "0.1429", "440.4 ms"]


def test_multiprocessors_are_no_ranks_and_the_idle_share_is_offered_for_the_busy_one(offered):
    said = {name: {says for n, choices in offered if n == name for choice in choices for says in choice.says}
            for name in ("peak", "busy")}  # fmt: skip
    assert "This is the share of one GPU or unit; the question asks for all of them." in said["peak"]
    assert not any("divi" in says or "multiplied" in says for says in said["peak"])
    assert "This is the bubble; the question asks for the utilisation." in said["busy"]
