"""A mistake gets the same name as a formula and as its number, and a convention is offered where the model has it."""

from fractions import Fraction

import pytest
from api import number_text, parse_problem, plain, share_of
from api import shared_read_template as read_template
from test_printed_numbers import EXAMPLES, SLOW, numbered

import symcomm as sc

DOCUMENT = r"""---
title: One error
---
# Memory

```symcomm
- model: all
  formula: '$y = xW, x \in \mathbb{R}^{B \times P}, W \in \mathbb{R}^{P \times 1}, y \in \mathbb{R}^{B \times 1}$'
  values: {P: 12 000 000 000}
- {ask: state_memory, id: zero, strategy: "zero-1(N)", given: {N: 8}}
- {ask: state_memory, id: zero-3, strategy: "zero-3(N)", given: {N: 8}}
- {ask: communication, id: sent, strategy: "data(k)", given: {k: 32}, accounting: sent_per_rank}
- {ask: collective_time, id: ring, algorithm: ring, given: {n: 3.2 GB, k: 32, alpha: 100 µs, W: 50 GB/s}}
- {ask: collective_time, id: tree, algorithm: tree, given: {n: 1 GB, k: 16, alpha: 1 ms, W: 50 GB/s}}
- ask: collective_time
  id: nodes
  algorithm: hierarchical
  given: {n: 6.4 GB, k: 64, g: 8, alpha: 1 µs, W: 800 GB/s, alpha_out: 1 µs, W_out: 50 GB/s}
```
"""
PROBLEM = parse_problem(DOCUMENT, "one.md")
KEYS = {name: sc.key_of(PROBLEM, ask) for name, ask in zip(PROBLEM.ids, PROBLEM.asks, strict=True)}


@pytest.mark.parametrize(
    ("question", "mistake", "formula", "number"),
    [
        # Mixed precision: 2 P of weights, 2 P of gradients, 12 P of states, for 12 billion parameters on 8 ranks.
        ("zero", "not_divided_by_ranks", "16 P", "192 GB"),
        ("zero", "zero_stages_confused", "2P + 14P/N", "45 GB"),
        ("zero", "zero_stages_confused", "16 P/N", "24 GB"),
        ("zero-3", "zero_stages_confused", "4P + 12P/N", "66 GB"),
        ("zero-3", "zero_stages_confused", "2P + 14P/N", "45 GB"),
        # 62 messages of 100 MB: 2 ms each, and 0.1 ms latency.
        ("ring", "one_ring_phase", "(k-1) (alpha + n/(k W))", "65.1 ms"),
        ("ring", "latency_once", "alpha + 2(k-1) n/(k W)", "124.1 ms"),
        ("ring", "bits_for_bytes", "2(k-1) (alpha + 8 n/(k W))", "998.2 ms"),
        ("ring", "bits_for_bytes", "2(k-1) (alpha + ⌈n/k⌉/(8 W))", "21.7 ms"),
        # 8 messages of 1 GB: 20 ms each, and 1 ms latency.
        ("tree", "latency_once", "alpha + 2 ⌈log2(k)⌉ n/W", "161 ms"),
        ("tree", "bits_for_bytes", "2 ⌈log2(k)⌉ (alpha + 8n/W)", "1.288 s"),
    ],
)
def test_a_mistake_has_one_name_as_a_formula_and_as_a_number(question, mistake, formula, number):
    for text in (formula, number):
        verdict = KEYS[question].check(text)
        assert (verdict.verdict, verdict.conventions, verdict.mistakes) == ("mistake", (), (mistake,)), (text, verdict)
        assert len(verdict.says) == 1


def test_a_formula_may_leave_out_a_rounding_that_the_given_numbers_do_not_need():
    # 3.2 GB are cut into 32 whole parts, but not into 30: there the formula is another convention.
    text = "2(k-1) (alpha + n/(k W))"
    assert KEYS["ring"].check(text).verdict == "right"
    uneven = KEYS["ring"].at({"k": Fraction(30)})
    assert uneven.check(text).conventions == ("chunks: divisible",)
    assert uneven.check("(k-1) (alpha + n/(k W))").conventions == ("chunks: divisible",)
    asked = parse_problem(DOCUMENT.replace("id: ring,", "id: ring, answer: formula,"), "one.md")
    verdict = sc.key_of(asked, asked.asks[3]).check(text)
    assert (verdict.verdict, verdict.conventions) == ("other_convention", ("chunks: divisible",))


def test_right_answers_are_still_right():
    for question, formula, number in (
        ("zero", "4P + 12P/N", "66 GB"), ("zero-3", "16P/N", "24 GB"), ("sent", "4P (k-1)/k", "46.5 GB"),
        ("ring", "2(k-1) (alpha + ⌈n/k⌉/W)", "130.2 ms"), ("tree", "2 ⌈log2(k)⌉ (alpha + n/W)", "168 ms"),
    ):  # fmt: skip
        assert KEYS[question].check(formula).right, question
        assert KEYS[question].check(number).right, question


def test_half_of_what_a_ring_sends_is_another_algorithm_before_it_is_one_phase():
    for text in ("2 P (k-1)/k", "23.25 GB"):
        assert KEYS["sent"].check(text).conventions == ("algorithm: owner_multicast",)
    assert ("one_ring_phase",) in {wrong.names for wrong in KEYS["sent"].mistakes}


def test_the_ranks_of_a_node_for_all_ranks_are_recognised():
    known = {wrong.names for wrong in KEYS["nodes"].mistakes}
    assert ("node_for_all_ranks",) in known
    assert ("node_for_all_ranks",) not in {wrong.names for wrong in KEYS["ring"].mistakes}
    # Inside a node 2 * 7/8 of the tensor at 800 GB/s in 14 messages; nothing is left to send between nodes.
    verdict = KEYS["nodes"].check("14.014 ms")
    assert "node_for_all_ranks" in (*verdict.mistakes, *(name for names in verdict.alternatives for name in names))


def test_rows_are_padded_where_a_weight_has_rows():
    assert not [wrong for wrong in KEYS["zero"].conventions if "shards" in wrong.names[0]]
    text = DOCUMENT.replace(r"P \times 1}, y", r"P \times D}, y").replace(r"B \times 1}", r"B \times D}")
    problem = parse_problem(text.replace("{P: 12", "{D: 30, P: 12"), "rows.md")
    assert [wrong.names for wrong in sc.key_of(problem, problem.asks[0]).conventions] == [("shards: padded_shards",)]


def test_of_two_mistakes_that_a_rounded_number_may_be_the_nearest_is_named_first():
    # 30 billion parameters on 40 ranks: 129 GB are right, 120.1 GiB; without optimizer states 120.
    verdict = KEYS["zero"].at({"P": Fraction(30 * 10**9), "N": Fraction(40)}).check("120 GB")
    assert (verdict.mistakes, verdict.alternatives) == (("optimizer_states_forgotten",), (("gb_for_gib",),))


def test_the_right_number_without_its_unit_is_no_mistake_however_it_is_rounded():
    # 130.2 ms. Bare numbers are in seconds, and 130 s are near to 1,024 times that, as if 32 ranks multiplied twice.
    for text in ("130", "130.2", "0.000130", "130000"):
        assert KEYS["ring"].check(text).verdict == "different", text
    assert KEYS["ring"].check("133 s").mistakes == ("multiplied_by_ranks",)
    for text in ("130 ms", "0.13", "0.13 s", "1.3e5 us"):  # two digits are right
        assert KEYS["ring"].check(text).right, text


def test_a_number_that_two_mistakes_come_to_earns_no_less_than_the_formula_of_either():
    # Bytes counted on all of 8 ranks are as many as bits on one: 8 times 2 · 7/8 · 8 GB over 100 GB/s.
    block = """
ask: collective_time
algorithm: ring
accounting: [divisible, bandwidth_only]
given: {n: 8 GB, k: 8, W: 100 GB/s}
credit: {bits_for_bytes: 0.25, not_divided_by_ranks: 0.75}
"""
    problem = parse_problem(f"# Ring\n```symcomm{block}```\n", "t.md")
    (ask,) = problem.asks
    key = sc.key_of(problem, ask)
    shares = [share_of(key.check(text), ask, problem) for text in ("2(k-1) n/W", "8 · 2 (k-1) n/(k W)", "1.12 s")]
    assert shares == [Fraction(3, 4), Fraction(1, 4), Fraction(3, 4)]


def apart(problem):
    """Recognised answers whose number is told other than their formula: how they are typed, and both verdicts."""
    asks = dict(zip(problem.ids, problem.asks, strict=True))
    for name, key, right in numbered(problem):
        for wrong in (*key.conventions, *key.mistakes):
            found = wrong.at(key.values)
            if found is None or found.value <= 0 or wrong.prefix or abs(found.value - right.value) < 1e-9 * right.value:
                continue  # a number of which nothing can be told
            number = f"{number_text(found.value, found.value / 10**12)} {found.unit if found.unit.powers else ''}"
            formula, typed = key.check(plain(wrong.form)), key.check(number)
            if formula.verdict == "unreadable" or key.spec.formula:
                continue  # a name that only paper can show
            said = {(*typed.conventions, *typed.mistakes), *typed.alternatives}
            ask = asks[name]
            fair = share_of(typed, ask, problem) >= share_of(formula, ask, problem)
            if (*formula.conventions, *formula.mistakes) not in said or not fair:
                yield name, plain(wrong.form), str(formula), number, str(typed)


@pytest.mark.few(3)
@pytest.mark.parametrize(
    "path", [pytest.param(p, marks=pytest.mark.long if p.stem in SLOW else (), id=p.stem) for p in EXAMPLES]
)
def test_the_number_of_every_recognised_answer_is_told_as_its_formula_is(path):
    # Where numbers coincide (8 ranks, and 8 bits of a byte), the number names the formula's mistake among others.
    assert [*apart(read_template(path).problem())] == []
