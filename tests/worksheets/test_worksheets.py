"""Worksheets: what is read, which lines an answer takes, what is proved, and a teacher's own in a problem file."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path

import pytest
from api import (
    QUANTITIES,
    RUNS,
    Accounting,
    Derivation,
    DerivationError,
    DocumentError,
    Graph,
    Setting,
    SymcommError,
    Unit,
    ValuesError,
    Worksheet,
    built_in,
    form_evaluate,
    parse_worksheet,
    read_problem,
    read_worksheet,
    solve,
)
from hypothesis import given, settings
from hypothesis import strategies as st

import symcomm as sc

EMPTY = Graph("no model", {}, {}, ())


def setting(accounting: Accounting | None = None, **values: object) -> Setting:
    return Setting(EMPTY, accounting or Accounting(), values={k: Fraction(v) for k, v in values.items()})


def names(made: Derivation) -> list[str]:
    return [f"{s.name} {s.relation}" for s in made.steps]


# -- those that come with symcomm ------------------------------------------------------------------------------

# What a sheet on decoding is asked of, and under which conventions.
STEP = sc.load({
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 96,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100,
}).decode()  # fmt: skip
OF_A_STEP = {"memory_bound_decode": {"traffic": "matrices", "attention": "left_out"}}
QUESTIONS = [(name, q) for name, sheet in built_in().items() for q in sheet.read.questions]


@pytest.mark.parametrize(("name", "question"), QUESTIONS, ids=[f"{n}: {q.title}" for n, q in QUESTIONS])
def test_every_question_of_every_worksheet_is_proved_with_reasons_and_meanings(name, question):
    said = {**dict(question.chosen), **dict.fromkeys(question.given, "4 GB")}
    counted = Accounting.of(**dict(question.conventions))
    if name in OF_A_STEP:
        asked = STEP.derive(name, accounting=OF_A_STEP[name], **said)
        asked.check(deep=True)
    elif built_in()[name].needs_model:
        made = sc.load("examples/layers/two-matrix-ffn.md").derive(name, accounting=counted, **said)
        made.check(deep=True)
    else:
        bounded = question.answer is not None and any(question.answer[key] for key in ("most", "end"))
        symbols = built_in()[name].read.symbols.values() if bounded else ()
        known = {one.name: Fraction(1, 2) for one in symbols if not one.counts}
        made = built_in()[name].derive(setting(counted, **known), **said)
        assert made.needs or bounded
        assert all(step.reason.rule and step.reason.text.endswith((".", "`x`")) for step in made.steps)
        assert all(made.notation.meaning(symbol) for symbol in made.needs)


@pytest.mark.parametrize("name", built_in())
def test_a_worksheet_stands_in_the_folder_of_its_group_and_is_a_quantity(name: str):
    built_in()[name].check()
    folder = next(Path(symcomm_folder()).glob(f"*/{name}.md")).parent.name
    assert folder in ("counting", "memory", "communication", "time", "fitting")
    assert QUANTITIES[name].summary.lower() == built_in()[name].summary.lower()
    assert built_in()[name].needs_model or not QUANTITIES[name].needs_model  # the facts alone may need none


def symcomm_folder() -> Path:
    return Path(__file__).parents[2] / "symcomm" / "core" / "worksheets"


def chain(hops: int, chunks: int, size: Fraction, rate: Fraction, latency: Fraction) -> Fraction:
    """Message by message along a chain: a device passes on what it holds, first come first served, one at a time."""
    held = [[(Fraction(0), chunk) for chunk in range(chunks)]]
    for _ in range(hops):
        free, arrived = Fraction(0), []
        for there, chunk in sorted(held[-1]):
            free = max(free, there) + latency + size / chunks / rate
            arrived.append((free, chunk))
        held.append(arrived)
    assert {chunk for _, chunk in held[-1]} == {*range(chunks)}
    return max(time for time, _ in held[-1])


amounts = st.fractions(Fraction(1, 100), 100, max_denominator=100)


@given(st.integers(1, 6), st.integers(1, 9), amounts, amounts, amounts)
@settings(deadline=None)
def test_the_chain_takes_what_its_messages_take(h, c, size, rate, latency):
    made = built_in()["pipelined_broadcast"].derive(setting(h=h, c=c, S=size, B=rate, a=latency))
    assert made.at().value == chain(h, c, size, rate, latency)


@pytest.mark.long
def test_the_best_number_of_chunks_is_that_of_the_simulated_chain():
    sheet = built_in()["pipelined_broadcast"]
    for h, size, latency in ((3, 1000, "1/2"), (5, 300, 2), (2, 64, 1)):
        best = min(range(1, 200), key=lambda c: chain(h, c, Fraction(size), Fraction(50), Fraction(latency)))
        given = setting(h=h, S=size, B=50, a=latency)
        assert sheet.derive(given, want="whole_chunks").at().value == best


def test_a_peak_rate_counts_what_the_processor_does_cycle_by_cycle():
    done = sum(2 for _cycle in range(7) for _unit in range(3) for _fma in range(4))
    sheet = built_in()["peak_rate"]
    assert sheet.derive(setting(), clock="7 Hz", units=3, fma=4).at().value == done
    once = setting(Accounting.of(flops="mac"))
    assert sheet.derive(once, clock="7 Hz", units=3, fma=4).at().value * 2 == done
    with pytest.raises(ValuesError, match="Peak rate is not derived under flops: exact_adds\n"):
        sheet.derive(setting(Accounting.of(flops="exact_adds")))


# -- which lines are taken -------------------------------------------------------------------------------------

POOL = """# A pool

How long a pool takes to fill.

Source: a garden.

## Symbols

- V [byte] from size: what goes in
- w [byte/second] from pipe: what comes in a second
- o [second] from tap or 0 = 2 ms: what it takes to open the tap
- n [count] from pools: pools that are filled
- x: a share

## Choices

- want = one: the result to derive

## Lines

- T := V/w + o
  fill: All of it comes through the tap.
  run: adds(V/w, o)
- unused := n^2
  square: Nobody needs it.
  run: loops(n, n)
- why := x
  story: It is told, but no formula takes it.
  run: adds(x)

## Answers

- fill = T [second]: Filling
- square = unused: A square that nobody needs

## One pool

want: one

- T_1 := T
  one: As `why` says.
  run: adds(T)
- T_1 ≈ V/w where the tap opens at once
  drop: Without `o`.
- require V > w * 1 [second]: {V} is too little for {w}
  fill a larger one
- note where V >= 4 w * 1 [second]: It takes {T}.
- note: Water is wet.

## All pools

want: all

They are filled one after another.

- T_n [second] := n T
  add up: One after another.
  run: loops(n, T)
- T_n = n V/w + n o
  algebra: Multiply out.
- T_n = ...
  algebra: Put in.

## Least time

want: least
with: pools

- T_c := n o + T/n
  share: Taps are opened one after another.
  run: adds(n o, T/n)

## The best number

want: number
answer: whole n that makes T_b least

Two taps never run at once.

- T_b := n o + V/(n w)
  share: Each tap fills its share.
  run: adds(n o, V/(n w))

## The least time

want: value
answer: least T_b over n

- T_b := n o + V/(n w)
  share: Each tap fills its share.
  run: adds(n o, V/(n w))
"""


def pool() -> Worksheet:
    return parse_worksheet(POOL, "pool.md").check()


def test_an_answer_takes_the_lines_that_its_formulas_and_reasons_name():
    one = pool().derive(setting(), size="8 GB", pipe="2 GB/s")
    assert names(one) == ["T :=", "why :=", "T_1 :=", "T_1 ≈"]
    assert one.at().value == Fraction(4002, 1000)
    assert one.notes == ("It takes 4.002 s.", "Water is wet.")
    assert one.steps[-1].condition == "the tap opens at once"
    every = pool().derive(setting(n=3), want="all")
    assert names(every) == ["T :=", "T_n :=", "T_n =", "T_n ="]
    assert every.title == "All pools"
    assert every.notes == ("They are filled one after another.",)
    assert str(every.at(V=8, w=4, o=1)) == "9 s"


def test_an_answer_in_one_line_is_a_question_and_without_choices_the_first_one_is_what_is_wanted():
    fill = pool().derive(setting(V=4, w=2, o=1), want="fill")
    assert (fill.title, names(fill), str(fill.at())) == ("Filling", ["T :="], "3 s")
    alone = parse_worksheet(POOL.partition("## Choices")[0] + "## Lines" + POOL.partition("## Lines")[2], "pool.md")
    assert alone.derive(setting(V=4, w=2, o=1)).title == "Filling"
    want = alone.options[0]
    assert (want.name, want.default, want.choices[:2]) == ("want", "fill", ("fill", "square"))
    counted = parse_worksheet(POOL.replace("- fill = T [second]", "- fill = unused [device]"), "pool.md")
    assert counted.derive(setting(n=3), want="fill").unit == Unit.parse("device")


def test_a_symbol_has_its_own_value_until_another_is_given():
    assert pool().derive(setting(V=4, w=2)).at().value == 2 + Fraction(2, 1000)
    assert pool().derive(setting(V=4, w=2, o=1)).at().value == 3
    assert pool().derive(setting(V=4, w=2, o=1), tap="5 s").at().value == 7


def test_what_is_zero_is_left_out_and_told():
    made = pool().derive(setting(V=4, w=2), tap=0)
    assert str(made.expr) == "V/w"
    assert made.steps[0].reason.text == "All of it comes through the tap. Left out, since zero: `o`."


def test_units_follow_from_the_formulas_and_are_kept():
    assert pool().derive(setting()).unit == Unit.parse("second")
    wrong = POOL.replace("- T := V/w + o", "- T [byte] := V/w + o")
    with pytest.raises(SymcommError, match=r"^pool.md:\d+: T has the unit B, but its form is in s"):
        parse_worksheet(wrong, "pool.md").derive(setting())


def test_a_required_comparison_is_told_with_its_numbers():
    with pytest.raises(ValuesError, match=r"^1 B is too little for 2 B/s\nhint: fill a larger one$"):
        pool().derive(setting(V=1, w=2))


def test_the_best_place_and_the_value_there_are_found():
    best = pool().derive(setting(V=100, w=1, o=1), want="number")
    assert best.title == "The best number"
    assert best.notes[0] == "Two taps never run at once."
    assert best.at().value == min(range(1, 99), key=lambda n: n + Fraction(100, n)) == 10
    assert pool().derive(setting(V=100, w=1, o=1), want="value").at().value == 20


def test_a_line_is_asked_by_its_name_and_the_whole_by_the_name_of_the_file():
    assert names(pool().ask("unused").derive(setting())) == ["unused :="]
    assert names(pool().ask("T_n").derive(setting()))[-1] == "T_n ="
    assert names(pool().ask("pool").derive(setting(), want="all"))[-1] == "T_n ="
    with pytest.raises(DocumentError, match=r"^pool.md has nothing called 'T_m'\nhint: did you mean"):
        pool().ask("T_m")


# -- numbers that are put in, and tables -----------------------------------------------------------------------

FERRY = """# A ferry

How long cars wait for a ferry.

## Symbols

- n [count]: cars
- t [second]: time of one crossing
- k from load = 1 put in: cars of a crossing

## Lines

- T := n t/k
  crossings: One crossing after another, {k} cars in each.
  run: same(T k, n t)
- T = n t, if k = 1
  algebra: One car in each.
- T = t n/k
  algebra: All of them.
- w := (1 - k) t + n t, if k <= 1
  wait: No car waits for another one.
  run: adds(n t, t, -k t)
- w := T + t
  wait: For one crossing more.
  run: adds(n t/k, t)

## Table: Which crossing

| where | how long | said |
|---|---|---|
| `k` is 1 | = n t | alone |
| `k` is more | = n t/k | `n` together |

## Answers

- time = T: Time of all
- wait = w, if k <= 1: Wait of one
- wait = w: Wait of several
"""


def ferry(**said: object) -> Derivation:
    return parse_worksheet(FERRY, "ferry.md").check().derive(setting(), **said)


def test_a_number_that_is_put_in_stands_in_the_formulas_and_decides_which_line_and_which_answer_holds():
    one, two = ferry(), ferry(load="2")
    assert [(str(made.expr), made.needs) for made in (one, two)] == [("n*t", ("n", "t")), ("n*t/2", ("n", "t"))]
    assert names(one) == names(two) == ["T :=", "T ="]
    assert [made.steps[-1].reason.text for made in (one, two)] == ["One car in each.", "All of them."]
    assert two.steps[0].reason.text == "One crossing after another, 2 cars in each."
    for made in (one, two, ferry(load="k"), ferry(want="wait"), ferry(want="wait", load=3)):
        made.check(deep=True)
    assert (ferry(want="wait").title, str(ferry(want="wait").expr)) == ("Wait of one", "n*t")
    assert (ferry(want="wait", load=3).title, ferry(want="wait", load=3).at(n=6, t=1).value) == ("Wait of several", 3)


def test_a_symbol_for_a_number_that_is_put_in_has_the_line_that_always_holds_and_the_table_of_all_cases():
    made = ferry(load="k")
    assert made.steps[0].reason.text == "One crossing after another, `k` cars in each."
    assert [made.at(n=6, t=1, k=k).value for k in (1, 2, 3)] == [6, 3, 2]
    (table,) = made.exhibits
    assert (table.title, table.columns) == ("Which crossing", ("where", "how long", "said"))
    assert [form_evaluate(row[1], {"n": 6, "t": 2, "k": 3}) for row in table.rows] == [12, 4]
    assert [row[2] for row in table.rows] == ["alone", "`n` together"]
    assert not ferry(load="2").exhibits
    assert ferry(load="c").needs == ("n", "t", "c")  # its name, and a number that is given with the question
    assert parse_worksheet(FERRY, "ferry.md").derive(setting(c=3, n=6, t=1), load="c").at().value == 2


TABLES = {
    "no rows": ("| `k` is 1 | = n t | alone |\n| `k` is more | = n t/k | `n` together |\n", "", "this is no table"),
    "no rule": ("|---|---|---|", "| a | b | c |", "this is no table"),
    "a cell too few": ("| = n t | alone |", "| = n t |", "this is no table\n    ## Table: Which crossing\n"),
    "an unknown name": ("= n t/k |", "= n t/p |", "unknown name 'p'\n    | `k` is more | = n t/p | `n` together |\n"),
    "a name of a line": ("= n t/k |", "= T |", "unknown name 'T'\n    | `k` is more | = T | `n` together |\n"),
    "a number that is not put in": (
        ", if k <= 1\n  wait", ", if n <= 1\n  wait",
        "no number is put in for n: it decides nothing\n    - w := (1 - k) t + n t, if n <= 1\n",
    ),
    "a number that nothing gives": (
        "- k from load = 1 put in:", "- k put in:",
        "nothing gives the number of k that is put in\n    - k put in: cars",
    ),
    "no comparison": (", if k = 1", ", if k", "this compares nothing\n    - T = n t, if k\n"),
    "an unknown name in a condition": (", if k = 1", ", if p = 1", "unknown name 'p'\n    - T = n t, if p = 1\n"),
}


@pytest.mark.parametrize("case", TABLES)
def test_a_slip_in_a_table_or_a_condition_is_told_with_its_line(case: str):
    right, wrong, message = TABLES[case]
    with pytest.raises(SymcommError, match=rf"^ferry.md:\d+: {re.escape(message)}"):
        parse_worksheet(FERRY.replace(right, wrong, 1), "ferry.md").check()


# -- errors ----------------------------------------------------------------------------------------------------

OPTIONS = {
    "no such choice": (
        {"want": "two"}, "'two' is no want of 'pool'\nhint: known: all, fill, least, number, one, square, value",
    ),
    "no such option": ({"pip": "2 GB/s"}, "'pool' has no option 'pip'\nhint: did you mean 'pipe'"),
    "another unit": ({"pipe": "2 GB"}, "pipe is given in B, but must be in B/s"),
    "a unit of a count": ({"pools": "2 GB"}, "pools is given in B, but is a plain number"),
    "a negative number": ({"pipe": "-2 GB/s"}, "pipe = -2 GB/s: it must be positive"),
    "half a pool": ({"want": "all", "pools": "1/2"}, "pools = 1/2: a whole number is needed"),
    "idle": ({"pools": 3}, "pools makes no difference to 'One pool'\nhint: leave pools out"),
}


@pytest.mark.parametrize("case", OPTIONS)
def test_an_option_that_makes_no_sense_is_refused(case: str):
    said, message = OPTIONS[case]
    with pytest.raises(ValuesError) as caught:
        pool().derive(setting(), **said)
    assert str(caught.value).startswith(message)


USELESS = "- unused := n^2\n  square: Nobody needs it.\n  run: loops(n, n)"
RUN = "- unused := n^3\n  cube: Nobody needs it.\n  run: "

LINES = {
    "an unknown name": (
        "- T := V/w + o", "- T := V/w + p",
        "pool.md:{line}: unknown name 'p'\n    - T := V/w + p\n                 ^\nhint: ",
    ),
    "code": ("- T := V/w + o", "- T := __import__(V)", "pool.md:{line}: "),
    "two readings": (
        "- T := V/w + o", "- T := V / w n",
        "pool.md:{line}: what stands below this `/` can be read in two ways\n    - T := V / w n\n             ^^^^^\n",
    ),
    "a false line": (
        "- T_n = n V/w + n o", "- T_n = n V/w + o",
        "pool.md:{line}: T_n: n*(V/w + o) is not V*n/w + o in the derivation of All pools\n    - T_n = n V/w + o\n",
    ),
    "a line before its names": (
        "- unused := n^2", "- unused := T_n", "pool.md:{line}: unknown name 'T_n'\n    - unused := T_n\n",
    ),
    "a second definition": ("- unused :=", "- T :=", "pool.md:{line}: T is defined twice\n    - T := n^2\n"),
    "a symbol defined": ("- unused :=", "- x :=", "pool.md:{line}: x is defined twice\n"),
    "algebra on nothing": ("- T_n [second] :=", "- T_n =", "pool.md:{line}: T_n is not defined before this line\n"),
    "no reason": (
        "  square: Nobody needs it.\n", "",
        "pool.md:{line}: unused has no reason\n    - unused := n^2\n    ^^^^^^^^^^^^^^^\nhint: indent it below",
    ),
    "no formula": ("- unused := n^2", "- unused", "pool.md:{line}: this is no line of a worksheet\n    - unused\n"),
    "no condition": (" where the tap opens at once", "", "pool.md:{line}: an approximation says where it holds\n"),
    "no symbol": ("- x: a share", "- x a share", "pool.md:{line}: this is no symbol\n    - x a share\n"),
    "a symbol twice": ("- x: a share", "- n: a share", "pool.md:{line}: n is a symbol twice\n"),
    "an unknown unit": ("- w [byte/second]", "- w [bite/second]", "pool.md:{line}: unknown unit 'bite'\n"),
    "an unknown unit of a number": ("4 w * 1 [second]", "4 w * 1 [secnd]", "pool.md:{line}: unknown unit 'secnd'\n"),
    "no choice": ("- want = one:", "- want is one", "pool.md:{line}: this is no choice\n"),
    "an unknown header": ("want: all", "wnat: all", "pool.md:{line}: 'wnat' is nothing that asks for an answer\n"),
    "no answer": ("answer: least T_b over n", "answer: the least", "pool.md:{line}: this is no answer\n"),
    "an answer that is no line": (
        "answer: least T_b", "answer: least T_c",
        "pool.md:{line}: 'T_c' cannot be the answer here\n    answer: least T_c",
    ),
    "no comparison": ("- require V > w * 1 [second]:", "- require V w:", "pool.md:{line}: this compares nothing\n"),
    "says nothing": ("- note: Water is wet.", "- note", "pool.md:{line}: this says nothing\n"),
    "no convention": (
        "with: pools", "under: flops: many",
        "pool.md:{line}: 'many' is no convention for flops\n    under: flops: many\n",
    ),
    "a line in no list": ("- why := x\n", "why := x\n", "pool.md:{line}: this line is in no list\n    why := x\n"),
    "a line of a question in no list": ("- T_1 := T\n", "T_1 := T\n", "pool.md:{line}: this line is in no list\n"),
    "an option that no symbol has": (
        "with: pools", "with: taps", "pool.md:{line}: 'taps' is nothing that 'with' takes\n",
    ),
    "one question twice": (
        "## Least time\n\nwant: least\nwith: pools", "## Again\n\nwant: all",
        "pool.md:{line}: this question is the same as an earlier one\n    ## Again\n",
    ),
    "a number that nothing has": (
        "It takes {T}.", "It takes {t}.", "pool.md:{line}: 't' has no number\n",
    ),
    "a unit of nothing": (
        "## The least time\n\nwant: value\n", "## Wrong\n\nwant: value\nunit: T_x [second]\n",
        "pool.md:{line}: 'T_x' is no line that has a unit\n    ## Wrong\n",
    ),
    "no answer in one line": (
        "- fill = T [second]: Filling", "- fill: T",
        "pool.md:{line}: this is no answer\n    - fill: T\n    ^^^^^^^^^\nhint: - time = T: Time of a copy",
    ),
    "an answer in one line that is no line": (
        "- fill = T [second]:", "- fill = T_0:",
        "pool.md:{line}: 'T_0' cannot be the answer here\n    - fill = T_0: Filling",
    ),
    "an answer twice": (
        "- square = unused", "- fill = unused",
        "pool.md:{line}: this question is the same as an earlier one\n    - fill = unused",
    ),
    "an unknown unit of an answer": (
        "T [second]: Filling", "T [secnd]: Filling",
        "pool.md:{line}: unknown unit 'secnd'\n    - fill = T [secnd]: Filling",
    ),
    "no title": ("# A pool\n", "A pool\n", "pool.md:{line}: a worksheet starts with its title\n    A pool\n    ^\n"),
    "no run": (
        USELESS, f"{RUN}n^2",
        "pool.md:{run}: 'n^2' is no run\n      run: n^2\n      ^^^^^^^^\nhint: ",
    ),
    "a run that there is not": (
        USELESS, f"{RUN}loop(n, n)",
        "pool.md:{run}: there is no run 'loop'\n      run: loop(n, n)\n      ^^^^^^^^^^^^^^^\nhint: did you mean",
    ),
    "a run with too few formulas": (
        USELESS, f"{RUN}copies(n, V)",
        "pool.md:{run}: copies takes 4 formulas, or a multiple of that, and not 2\n",
    ),
    "a run that compares a formula with itself": (
        USELESS, f"{RUN}same(n^2, n^2)",
        "pool.md:{run}: this compares a formula with itself: it bears out any line\n      run: same(n^2, n^2)\n",
    ),
    "a run over what is no symbol": (
        USELESS, f"{RUN}slope(n^2, 2 n)",
        "pool.md:{run}: slope moves a symbol, and '2 n' is none\n      run: slope(n^2, 2 n)\n"
        "                      ^^^\n",
    ),
    "a run with an unknown name": (
        USELESS, f"{RUN}loops(n, many)",
        "pool.md:{run}: unknown name 'many'\n      run: loops(n, many)\n                    ^^^^\n",
    ),
    "a run in place of a reason": (
        USELESS, "- unused := n^2\n  run: loops(n, n)",
        "pool.md:{before}: unused has no reason\n    - unused := n^2\n",
    ),
    "no run at all": (
        USELESS, "- unused := n^2 + 1\n  square: Nobody needs it.",
        "pool.md:{line}: unused has no run, and leads to no line that has one\n    - unused := n^2 + 1\n"
        "    ^^^^^^^^^^^^^^^^^^^\nhint: run: same(unused, ...), on a line below its reason",
    ),
    "no run of an answer": (
        "  add up: One after another.\n  run: loops(n, T)\n- T_n = n V/w", "  add up: In turn.\n- T_n = n V/w",
        "pool.md:{line}: T_n has no run, and leads to no line that has one\n    - T_n [second] := n T\n",
    ),
    "a line that takes itself": (
        "- T := V/w + o", "- T := V/w + T",
        "pool.md:{line}: T is not defined before this line\n    - T := V/w + T\n                 ^\nhint: a line takes",
    ),
    "a line that takes an earlier one of its name": (
        USELESS, "- unused := n^2, with pools\n  square: One.\n  run: loops(n, n)\n"
        "- part := 2 unused\n  twice: Two.\n  run: adds(unused, unused)\n"
        "- unused := 3 part\n  thrice: Three.\n  run: loops(3, part)",
        "pool.md:{third}: unused is defined by itself, through an earlier line of that name\n    - unused := 3 part\n",
    ),
    "a condition on its own name": (
        USELESS, "- unused := n^2, with pools\n  square: One.\n  run: loops(n, n)\n"
        "- unused := n, where unused < 3\n  few: Two.\n  run: adds(n)",
        "pool.md:{second}: unused is defined by itself, through an earlier line of that name\n    - unused := n, where",
    ),
    "lines in a circle": (
        "- T := V/w + o", "- T := V/w + why",
        "pool.md:{line}: why is not defined before this line\n    - T := V/w + why\n                 ^^^\n",
    ),
    "a default that no question has": (
        "- want = one:", "- want = once:",
        "pool.md:{line}: no question has want: once\n    - want = once: the result to derive\n"
        "    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\nhint: did you mean 'one'",
    ),
    "a choice that no question asks for": (
        "- want = one:", "- way: how\n- want = one:",
        "pool.md:{line}: no question is asked by 'way'\n    - way: how\n    ^^^^^^^^^^\nhint: way: ...",
    ),
    "a section whose name is misspelt": (
        "## Answers", "## Answer",
        "pool.md:{line}: 'Answer' is read as a question\n    ## Answer\n    ^^^^^^^^^\nhint: did you mean 'Answers'?",
    ),
    "bytes and seconds": (
        "- T := V/w + o", "- T := V + o",
        "pool.md:{line}: terms of different units are added: B and s\n    - T := V + o\n",
    ),
}  # fmt: skip


def every(sheet: Worksheet) -> None:
    for want in ("one", "all", "number"):
        sheet.derive(setting(), want=want)


@pytest.mark.parametrize("case", LINES)
def test_a_slip_is_told_with_its_line(case: str):
    right, wrong, message = LINES[case]
    text = POOL.replace(right, wrong, 1)
    pairs = zip(POOL.split("\n"), text.split("\n"), strict=False)
    line = next(n for n, (old, new) in enumerate(pairs, 1) if old != new)
    line -= right.startswith("  ")  # of a line that goes, the one before is wrong
    with pytest.raises(SymcommError) as caught:
        every(parse_worksheet(text, "pool.md").check())
    places = {"line": 0, "run": 2, "before": -1, "second": 3, "third": 6}
    for name, number in {name: line + more for name, more in places.items()}.items():
        message = message.replace(f"{{{name}}}", str(number))
    assert str(caught.value).startswith(message)


# -- hostile input ---------------------------------------------------------------------------------------------


def sheet_of(*lines: str) -> str:
    written = "\n".join(f"- {line}\n  rule: A reason." for line in lines)
    return f"# Hostile\n\n## Symbols\n\n- x: one\n- y: two\n\n## Lines\n\n{written}\n"


HOSTILE = {
    "a tower of powers": ("a := 9^9^9^9", "two exponents stand above each other"),
    "a tower of lines": ("a := x^900", "b := a^900", "b is too large with its names written out"),
    "a tower of numbers": ("a := 9^900", "b := a^900", "b is too large with its names written out"),
    "an exponent of its own": ("a := 10^9", "b := 9^a", "b is too large with its names written out"),
    "an exponent in a sum": ("a := 2^(x + 100000)", "a is too large with its names written out"),
    "terms that double": (
        "a := x + y", *(f"a{'b' * n} := a{'b' * (n - 1)} a{'b' * (n - 1)}" for n in range(1, 9)),
        "abbbb is too large with its names written out",
    ),
    "a wide power": ("a := (x + y)^500", "multiplied out, this formula has more than 300 terms"),
    "many nodes": ("a := " + "+".join(["x"] * 600), "this formula has more than 500 parts"),
    "deep": ("a := " + "(" * 200 + "x" + ")" * 200, "nested more than"),
    "long": ("a := " + "x" * 3000, "this formula has 3,000 characters"),
    "many lines": (*(f"a_{n} := x" for n in range(600)), "at most 500 lines"),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_what_would_take_for_ever_is_refused(case: str):
    *lines, message = HOSTILE[case]
    with pytest.raises(SymcommError, match=message.replace("(", r"\(")):
        parse_worksheet(sheet_of(*lines), "h.md").check()


def test_a_large_number_behind_an_irrational_one_is_refused():
    made = parse_worksheet(sheet_of("a := sqrt(x) * 9^y"), "h.md").ask("a").derive(setting(x=2, y=10**9))
    with pytest.raises(ValuesError, match="a power with the exponent 1000000000 is too large"):
        made.at()


def test_a_long_file_is_refused():
    with pytest.raises(DocumentError, match=r"long\.md:2: a worksheet has at most 100,000 characters, not 200,"):
        parse_worksheet("# Long\n" + "x" * 200_000, "long.md")
    with pytest.raises(DocumentError, match=r"many\.md:503: a worksheet has at most 500 lines"):
        parse_worksheet("# Long\n\n" + "- a := 1\n" * 600, "many.md")


def test_a_file_outside_the_folder_missing_or_unreadable_is_refused(tmp_path: Path):
    inside = tmp_path / "course"
    inside.mkdir()
    (tmp_path / "secret.md").write_text("# Secret\n", encoding="utf-8")
    (inside / "link.md").symlink_to(tmp_path / "secret.md")
    (inside / "bytes.md").write_bytes(b"# \xff\xfe")
    (inside / "large.md").write_text("x" * 500_000, encoding="utf-8")
    for path in ("../secret.md", str(tmp_path / "secret.md"), "link.md"):
        with pytest.raises(DocumentError, match=r"lies outside the folder of this file\nhint: put it beside it"):
            read_worksheet(path, inside=inside)
    for path, message in (
        ("no.md", "there is no file .*no.md\nhint: give the path of a worksheet"), (".", "course is a folder"),
        ("bytes.md", "bytes.md:1: the file is not UTF-8 text"),
        ("large.md", "large.md has 0.5 MB; at most 400,000 bytes"),
    ):  # fmt: skip
        with pytest.raises(DocumentError, match=message):
            read_worksheet(path, inside=inside)


# -- in a problem file -----------------------------------------------------------------------------------------


def problem(folder: Path, block: str, sheet: str = POOL) -> Path:
    (folder / "pool.md").write_text(sheet, encoding="utf-8")
    path = folder / "homework.md"
    path.write_text(f"# Homework\n\n## 1. Pools (3 points)\n\n```symcomm\n{block}\n```\n", encoding="utf-8")
    return path


def test_a_teacher_asks_an_own_worksheet_in_a_problem_file(tmp_path: Path):
    block = (
        "- {ask: T, worksheet: pool.md, size: 8 GB, given: {w: 2 GB/s}}\n"
        "- {ask: pool, worksheet: pool.md, want: all, size: 8 GB, pipe: 2 GB/s, pools: 3}"
    )
    answers = list(solve(read_problem(problem(tmp_path, block))).answers())
    assert [a.quantity.value for a in answers] == [Fraction(4002, 1000), Fraction(12006, 1000)]
    told = {g.name: g.meaning for g in answers[0].given}
    assert told == {"V": "what goes in", "w": "what comes in a second", "o": "what it takes to open the tap"}


PROBLEMS = {
    "no such file": ("ask: T\nworksheet: pol.md", 7, "there is no file {folder}/pol.md", "pol.md"),
    "no such line": ("ask: U\nworksheet: pool.md", 6, "pool.md has nothing called 'U'", "U"),
    "no such option": ("ask: T\nworksheet: pool.md\nwant: all", 8, "unknown key 'want' in this question", "want"),
    "a wrong unit": ("ask: T\nworksheet: pool.md\npipe: 3 s", 6, "pipe is given in s, but must be in B/s", "T"),
}


@pytest.mark.parametrize("case", PROBLEMS)
def test_a_slip_in_the_question_is_told_at_the_question(tmp_path: Path, case: str):
    block, line, message, word = PROBLEMS[case]
    with pytest.raises(SymcommError) as caught:
        solve(read_problem(problem(tmp_path, block)))
    assert caught.value.message == message.replace("{folder}", str(tmp_path))
    assert caught.value.span is not None
    assert (caught.value.span.line, caught.value.span.word) == (line, word)


def test_a_slip_in_the_worksheet_is_told_in_the_worksheet(tmp_path: Path):
    path = problem(tmp_path, "ask: T\nworksheet: pool.md", POOL.replace("V/w + o", "V/w + p"))
    with pytest.raises(SymcommError, match=r"^pool.md:\d+: unknown name 'p'\n    - T := "):
        read_problem(path)


def test_the_example_of_checkpoints_agrees_with_a_run_that_is_counted_second_by_second():
    example = Path(__file__).parents[2] / "examples" / "own-worksheet" / "homework.md"
    lost, best, written, *_ = (a.quantity.value for a in solve(read_problem(example)).answers())
    assert written == 1120 / 20
    assert lost == Fraction(56, 1800) + Fraction(1800, 2 * 10800)

    def cost(interval: int) -> float:
        """Of a long run: each interval a write, each failure half an interval on average, failures evenly spread."""
        redone = sum(range(interval)) / interval + 1 / 2
        return 56 / interval + redone / 10800

    nearest = min(range(100, 4000), key=cost)
    assert abs(float(best) - nearest) < 1


# -- runs that bear lines out ----------------------------------------------------------------------------------


RUNS_OF_LINES = [
    ("a^2", "a^3", "run: loops(a, a)"),
    ("3 a", "4 a", "run: adds(a, a, a)"),
    ("floor(S/w)", "ceil(S/w)", "run: fits(S, w)"),
    ("2 a + 1", "a + 2", "run: same(A - a, a + 1)"),
    ("2 b + 3 b^2", "2 b + 2 b^2", "run: slope(b^2 (1 + b), b)"),
    ("n", "n + 1", "run: least_at(b + n^2/b, b, a, 1)"),
    ("2 n", "n", "run: least(b + a n^2/b, b, a, 1)"),
    ("1/2", "1", "run: exponent(b + a/b, b, n, 1, a)"),
    ("n (S/w + l)", "n S/w + l", "run: copies(n, S, w, l)"),
    ("(n + a - 1)(S/(n w) + l)", "n (S/(n w) + l)", "run: chain(n, a, S, w, l)"),
]


@pytest.mark.parametrize(("right", "wrong", "run"), RUNS_OF_LINES, ids=[run for _, _, run in RUNS_OF_LINES])
def test_a_run_bears_out_the_right_formula_and_no_wrong_one(right: str, wrong: str, run: str):
    symbols = "- a [count]: a\n- b: b\n- n [count]: n\n- S [byte]: S\n- w [byte/second]: w\n- l [second]: l\n"
    for formula, holds in ((right, True), (wrong, False)):
        text = f"# Sheet\n\n## Symbols\n\n{symbols}\n## Lines\n\n- A := {formula}\n  rule: It is so.\n  {run}\n"
        made = parse_worksheet(text, "sheet.md").ask("A").derive(setting())
        assert made.steps[0].reason.text == "It is so."
        if holds:
            made.check(deep=True)
            continue
        with pytest.raises(DerivationError, match=r"its witness counts|no run bears that out"):
            made.check(deep=True)


def test_the_docs_list_every_run_with_the_formulas_that_it_takes():
    table = Path("docs/worksheets.md").read_text(encoding="utf-8").partition("| run | what it does |")[2]
    rows = table.partition("\n\n")[0]
    listed = {name: said.split(", ") for name, said in re.findall(r"`(\w+)\(([^()]*)\)`", rows)}
    assert listed.keys() == RUNS.keys()
    assert [n for n, run in RUNS.items() if not run.again and len(listed[n]) != run.formulas] == []
    assert [n for n, run in RUNS.items() if run.again != ("..." in listed[n])] == []


def test_the_same_lines_at_other_numbers_are_the_same_steps_and_a_zero_has_steps_of_its_own():
    text = "# Ride\n\n## Symbols\n\n- n [count]: n\n- t [second]: t\n- l [second] or 0: l\n\n## Lines\n\n"
    sheet = parse_worksheet(f"{text}- T := n t + l\n  sum: So.\n  run: copies(n, t, 1, 0, 1, l, 1, 0)\n", "ride.md")
    first, other, none = (sheet.derive(setting(n=n, t=t, l=late)) for n, t, late in ((2, 3, 4), (5, 7, 1), (5, 7, 0)))
    assert first.steps is other.steps
    assert none.steps is not other.steps
    assert [made.at().value for made in (first, other, none)] == [10, 36, 35]
    assert [str(made.expr) for made in (first, other, none)] == ["l + n*t", "l + n*t", "n*t"]


def test_a_line_without_a_run_is_told_by_a_deep_check():
    text = "# Sheet\n\n## Symbols\n\n- a [count]: a\n\n## Lines\n\n- A := a^2\n  rule: It is so.\n"
    made = parse_worksheet(text, "sheet.md").ask("A").derive(setting())
    with pytest.raises(DerivationError, match=r"no witness sees A \(rule\) in the derivation of Sheet"):
        made.check(deep=True)
    with pytest.raises(DocumentError, match=r"^sheet.md:9: A has no run, and leads to no line that has one\n    - A"):
        parse_worksheet(text, "sheet.md").check()
