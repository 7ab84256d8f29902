"""A law: the number that symcomm prints for a question is right when a student types it, in every printed spelling."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
from api import (
    Quantity,
    Unit,
    amounts,
    answer_of,
    following,
    key_of,
    load_model,
    main,
    parse_problem,
    quantity_in,
    short,
)
from api import measures_measure as measure
from api import shared_read_template as read_template
from click.testing import CliRunner

import symcomm as sc

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(path for path in ROOT.glob("examples/**/*.md") if path.stem not in ("checkpoints", "cost"))  # sheets
SLOW = {"bert", "collectives", "communication-accounting", "linear-layer", "midterm", "peak"}


def spellings(quantity):
    """All ways in which the text, the page and the LaTeX source show a number; mathematical spaces as copied."""
    said = [text for _, text in amounts("text", quantity)]
    said += [quantity_in("text", quantity), quantity.reading, short(quantity), str(quantity)]
    said += [text.replace(" ", "\u202f") for text in said]
    said += [f"${text}$" for _, text in amounts("latex", quantity)] + [f"${quantity_in('latex', quantity)}$"]
    return dict.fromkeys(said)


def numbered(problem):
    """Each question whose answer is a number: its id, its key and that number."""
    models, before = {}, {}
    for name, ask in zip(problem.ids, problem.asks, strict=True):
        asked = following(ask, before)
        if asked.model and asked.model not in models:
            models[asked.model] = load_model(problem, asked.model)
        quantity = before[name] = answer_of(problem, asked, models.get(asked.model)).quantity
        if quantity is not None:
            yield name, key_of(problem, asked, models), quantity


def complaints(problem):
    """What is not as it should be: a printed number that is not right, or twice the number that is."""
    for name, key, quantity in numbered(problem):
        for text in spellings(quantity):
            if not (verdict := key.check(text)).right:
                yield f"{name}: {text!r} is printed, and called {verdict}"
        twice = Quantity(2 * quantity.value, quantity.unit)
        if quantity.value and key.check(amounts("text", twice)[0][1]).right:
            yield f"{name}: twice the number is called right"


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "path", [pytest.param(p, marks=pytest.mark.long if p.stem in SLOW else (), id=p.stem) for p in EXAMPLES]
)
def test_every_number_that_is_printed_for_an_example_is_right_when_it_is_typed(path):
    assert [*complaints(read_template(path).problem())] == []


def test_the_examples_ask_for_some_two_hundred_numbers():
    asked = [ask for path in EXAMPLES for ask in read_template(path).problem().asks]
    assert len(asked) > 200


# -- what had to be mended for it -------------------------------------------------------------------------


HOMEWORK = read_template(ROOT / "examples/comp4901y-homework2/homework.md").problem()


def test_numbers_that_are_given_as_options_are_given():
    """The first question of the README's own file: 2 · 108 · 512 · 1.41 GHz."""
    key = key_of(HOMEWORK, HOMEWORK.asks[0])
    assert (key.values["f"], key.values["n_SM"]) == (1_410_000_000, 108)
    assert key.check("155.9 TFLOP/s").right
    assert key.check("156 934 720 000 000 FLOP/s").verdict == "different"


TABLE = """| Computation | Input | Output |
|---|---|---|
| A = xW^1 | x [B, D], W^1 [D, F] | A [B, F] |
| y = AW^2 | A [B, F], W^2 [F, D] | y [B, D] |

```symcomm
model: m
repeat: N_layer
values: {N_layer: 8, B: 4, D: 16, F: 64}
```
"""


def asked(*questions):
    blocks = "\n".join(f"```symcomm\n{text}\n```\n" for text in questions)
    return parse_problem(f"{TABLE}\n{blocks}", "t.md")


def checked(answer, question):
    problem = asked(question)
    return key_of(problem, problem.asks[0]).check(answer)


@pytest.mark.few(5)
@pytest.mark.parametrize(("text", "verdict"), [
    ("2048 B", "right"), ("512 B", "mistake"), ("2056 B", "different"), ("4096/2 B", "right"), ("512*B", "right"),
    ("4096/8 B", "unreadable"),  # bytes, or over 8 B?
    ("1024 B + 1024 B", "right"), ("256 B + 256 B", "mistake"), ("1024 B + 1 KiB", "right"),
    ("2 B D + 2 B D", "mistake"),
    ("2040 B + 8", "right"), ("64 N_layer B", "right"), ("2 N_layer B D + 2 N_layer B D", "right"),
    ("2048 s", "different"), ("2 B/s", "different"), ("2048 F", "different"),
])  # fmt: skip
def test_a_letter_behind_a_number_is_its_unit_unless_only_the_symbol_is_right(text, verdict):
    """What 8 layers add up over the ranks, forward and backward: 2 · 8 · 4 · 16 · 2 bytes; B is the batch of 4.

    512 bytes is what comes of it without the batch.
    """
    assert checked(text, "ask: communication\nstrategy: tensor(2)").verdict == verdict


@pytest.mark.parametrize(("text", "verdict"), [
    ("25 304", "right"), ("25\u202f304", "right"), (r"$25\,304$", "right"), ("25 304.0 B", "right"),
    ("50 608/2", "right"), (r"\frac{50\,608}{2}", "right"), ("25 305", "different"), ("25 304 D", "unreadable"),
    ("25 30", "unreadable"), ("2 25 304", "unreadable"), ("025 304", "unreadable"), ("25 304^2", "unreadable"),
])  # fmt: skip
def test_two_groups_of_digits_are_one_number_where_nothing_else_can_be_meant(text, verdict):
    """4 N_layer B D = 4 · 6326, as above."""
    problem = asked("ask: communication\nstrategy: tensor(2)")
    sizes = {"N_layer": Fraction(1), "B": Fraction(1), "D": Fraction(6326)}
    assert key_of(problem, problem.asks[0]).at(sizes).check(text).verdict == verdict


def test_every_unit_that_is_printed_can_be_typed():
    for name in ("byte", "FLOP", "operation", "second", "cycle", "SM", "link", "message", "word", "sample", "device"):
        unit = Unit.parse(name)
        for quantity in (Quantity(Fraction(7), unit), Quantity(Fraction(8_000), unit)):
            for _, text in amounts("text", quantity):
                typed = measure(text.split()[-1])
                assert typed is not None, text


def test_micro_is_read_in_latex():
    assert checked(r"$64\ \mu\text{s}$", "ask: collective_time\nalgorithm: ring\ngiven: "
                   "{k: 2, n: 3.2 MB, W: 100 GB/s, alpha: 16 us}").right  # 2 · (16 µs + 1.6 MB / 100 GB/s)  # fmt: skip


def test_a_ratio_of_two_answers_is_checked_as_the_ratio():
    """A ring of 4 sends 2 · 3/4 of the payload."""
    problem = asked("ask: communication\nstrategy: data(4)\naccounting: sent_per_rank\n"
                    "divided_by: {accounting: payload}")  # fmt: skip
    key = key_of(problem, problem.asks[0])
    assert key.check("3/2").right
    assert key.check("1.5").right
    assert key.check("2(4-1)/4").right
    assert not key.check("2").right


def test_a_question_that_follows_an_earlier_answer_is_checked_on_the_command_line(tmp_path):
    """The gradients: 2 · 2 · 16 · 64 · 8 = 32 768 bytes; 1 µs for each of 4 buckets, and the last one at 10 GB/s."""
    file = tmp_path / "t.md"
    problem = (
        TABLE
        + """
```symcomm
- {ask: communication, id: sent, strategy: data(4)}
- {ask: buckets, id: last, given: {s: {{ answer:sent }}, w: 10 GB/s, o: 1 us, n_b: 4}}
```
"""
    )
    file.write_text(problem, encoding="utf-8")
    done = CliRunner().invoke(main, ["check", str(file), "last", "4.8192 us"])
    assert (done.exit_code, done.output.splitlines()[0]) == (0, "right")


def test_a_derivation_with_numbers_is_checked_by_its_number():
    d = sc.peak_rate(clock="1.41 GHz", units=108, fma=512)
    assert sc.check("155.9 TFLOP/s", d).right


ENERGY = """ask: training_cost
of: energy
strategy: data(2)
device: A100-80GB-SXM
step: 1 s
power: 400 watt
budget: 14400 tokens"""


@pytest.mark.parametrize(("text", "verdict"), [
    ("880 Wh", "right"), ("0.88 kWh", "right"), ("880 watt*hour", "right"), ("52800 watt*min", "right"),
    ("0.88 Wh", "different"), ("880 watt", "different"), ("880 s", "different"),
])  # fmt: skip
def test_energy_is_read_in_any_unit_of_time(text, verdict):
    """14,400 tokens in steps of 4 take 3,600 s; two devices of 400 W, and a tenth more for cooling."""
    assert checked(text, ENERGY).verdict == verdict
