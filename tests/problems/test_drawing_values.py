"""Values that papers draw: the same on every machine, distinct, and within what is required."""

import hashlib
from collections import Counter
from fractions import Fraction
from itertools import product

import pytest
from api import DocumentError, Stream, parse_template, read_draws, solve
from api import core_blocks as blocks


def draws(text):
    return read_draws([blocks.section_of(text, "t.md")])


def every(made):
    """Every combination of the groups of draws."""
    groups = product(*(group.combinations for group in made._groups))
    return [{name: told for part, _ in parts for name, told in part.items()} for parts in groups]


def words(*names):
    """The documented generator, written a second time."""
    key = hashlib.sha256()
    for name in ("symcomm-draw-1", *names):
        key.update(len(name.encode()).to_bytes(8, "big") + name.encode())
    for number in range(100):
        yield int.from_bytes(hashlib.sha256(key.digest() + number.to_bytes(8, "big")).digest()[:8], "big")


def test_the_generator_is_sha_256_in_counter_mode_as_it_says():
    stream = Stream("a", "ü")
    assert [stream.word() for _ in range(100)] == [*words("a", "ü")]
    assert Stream("a", "bc").word() != Stream("ab", "c").word()


def test_every_number_below_a_bound_is_drawn_about_equally_often():
    stream = Stream("even")
    counted = Counter(stream.below(7) for _ in range(7000))
    assert {*counted} == {*range(7)}
    assert all(880 < count < 1120 for count in counted.values())
    orders = Counter(Stream("order", str(n)).shuffled("abc") for n in range(1200))
    assert len(orders) == 6
    assert all(150 < count < 250 for count in orders.values())


def test_draws_are_pinned_so_that_no_version_changes_a_paper():
    made = draws("draw: {D: {multiples_of: 64, from: 512, to: 4096}, k: {powers_of: 2, from: 2, to: 64}, w: [a, b]}")
    assert [tuple(t.text for t in made.draw("7", s).values()) for s in ("s1", "s2", "Zoë")] == PINNED


PINNED = [("640", "8", "b"), ("704", "8", "a"), ("512", "64", "a")]


def test_what_is_required_holds_for_every_draw_and_the_space_is_counted_exactly():
    made = draws(
        "draw: {D: {multiples_of: 64, from: 64, to: 640}, n: {powers_of: 2, from: 1, to: 32}, k: [2, 4, 8], "
        "w: [a, b, c]}\n"
        "require: [n divides D, D/n >= 16, 'k != n']"
    )
    allowed = {
        (D, n, k)
        for D, n, k in product(range(64, 641, 64), (1, 2, 4, 8, 16, 32), (2, 4, 8))
        if D % n == 0 and D / n >= 16 and k != n
    }
    assert made.space == 3 * len(allowed)
    seen = {tuple(int(told[n].text) for n in "Dnk") for told in (made.draw("1", str(i)) for i in range(900))}
    assert seen <= allowed
    assert len(seen) > 0.9 * len(allowed)
    assert {tuple(int(told[n].text) for n in "Dnk") for told in every(made)} == allowed


def test_a_number_uniform_in_its_logarithm_falls_into_each_decade_equally_often():
    made = draws("draw: {f: {log_uniform: [1, 990], digits: 2, unit: GHz}}")
    values = [made.draw("1", str(i))["f"].quantity.value / 10**9 for i in range(3000)]
    decades = Counter(len(str(int(value))) for value in values)
    assert {1, 2, 3} == {*decades}
    assert all(850 < count < 1150 for count in decades.values())
    assert all(value == Fraction(f"{float(value):.2g}") for value in values)


def test_a_record_is_drawn_as_a_whole_and_a_value_may_follow_from_others():
    made = draws(
        "draw:\n  gpu: [{name: A100, clock: 1.41 GHz, units: 108}, {name: H100, clock: 1.83 GHz, units: 132}]\n"
        "  n: [2, 3]\n  all: {is: n * gpu.units}\nrequire: all != 216"
    )
    told = [{name: t.text for name, t in one.items()} for one in every(made)]
    assert {(one["gpu.name"], one["n"], one["all"]) for one in told} == {
        ("A100", "3", "324"), ("H100", "2", "264"), ("H100", "3", "396"),
    }  # fmt: skip
    assert {one["gpu.clock"] for one in told if one["gpu.name"] == "A100"} == {"1.41 GHz"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("draw: {a: 3}", "'a' has one value, so nothing is drawn"),
        ("draw: {a: [1, 1]}", "'a' has one value twice"),
        ("draw: {a: [1, 2]}\nrequire: a > 5", "none of 2 combinations of a satisfies: a > 5"),
        ("draw: {a: {form: 3}}", "'a' does not say what is drawn"),
        ("draw: {a: {from: 1, to: 1000000}}", "more than 10,000 values to draw from"),
        ("draw: {a: [x, y]}\nrequire: a > 5", "'a' is drawn as a text, which has no number"),
        ("draw: {a: [1, 2]}\nrequire: b > 5", "unknown name 'b'"),
        ("draw: {a: [1, 2]}\nrequire: a b", "this is no comparison"),
        ("draw: {a: [1 GB, 2 furlong]}", "unknown unit 'furlong'"),
        ("draw: {a: {powers_of: 1, to: 8}}", "powers are drawn of a number above 1"),
        ("draw: {a: {from: 1, to: 8, step: 0}}", "steps and bases are positive"),
        ("draw: {a: [1, x]}", "'a' is a number in one choice and a text in another"),
        ("draw: {a: [1, 2]}\nrequire: 1/(a-1) > 0", "a division by zero"),
        ("draw: {a: [1, '{{ b }}']}", "a value to draw cannot refer to another one"),
        ("draw: {a b: [1, 2]}", "'a b' is no name that can be drawn"),
        ("draw: {a: [{b: 1}, {c: 2}]}", "the choices of 'a' have different keys"),
        ("draw: {a: {log_uniform: [1]}}", "'log_uniform' has two ends"),
        ("draw: {a: []}", "'a' has no values to draw from"),
        ("draw: {a: [1, 2], b: {is: [a]}}", "'is' must be text, but is a list"),
        ("draw: {a: [1, 2], b: {is: 7}}", "'b' follows from nothing that is drawn"),
        ("draw: {a: [1, 2], b: {is: a, unit: furlong}}", "unknown unit 'furlong'"),
        ("draw: {a: {from: 1, to: 4, steps: 1}}", "unknown key 'steps' in a block"),
    ],
)
def test_a_draw_that_cannot_be_is_refused_with_its_place(text, says):
    with pytest.raises(DocumentError, match=says.replace("(", r"\(")) as error:
        draws(text).draw("1", "1")
    assert error.value.span.line >= 1


def test_a_name_is_drawn_once_in_a_document():
    text = "---\ndraw: {D: [1, 2]}\n---\n\n```symcomm\ndraw: {D: [3, 4]}\n```\n"
    with pytest.raises(DocumentError, match="'D' is drawn twice"):
        _ = parse_template(text).draws


def test_an_answer_is_given_to_a_later_question():
    text = (
        "```symcomm\nask: peak_rate\nid: peak\ngiven: {f: 1 GHz, n_SM: 2, n_FMA: 3}\n```\n\n"
        "```symcomm\nask: peak_rate\ngiven: {f: {{ answer:%s }}, n_SM: 2, n_FMA: 3}\n```\n"
    )
    with pytest.raises(DocumentError, match="no question before this one is called 'paek'") as error:
        solve(parse_template(text % "paek").problem())
    assert "'peak'" in error.value.hint
    assert error.value.span.line == 9
