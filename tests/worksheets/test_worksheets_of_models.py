"""Worksheets that take facts from a model: what they give, what they pass on, and what is refused at its line."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest
from api import DerivationError, SymcommError, ValuesError

import symcomm as sc

HEAD = "| Computation | Input | Output |\n|---|---|---|\n"
BLOCK = HEAD + (
    "| A = xW^1 | x [B, L, D], W^1 [D, F] | A [B, L, F] |\n"
    "| A' = relu(A) | A [B, L, F] | A' [B, L, F] |\n"
    "| x' = A'W^2 | A' [B, L, F], W^2 [F, D] | x' [B, L, D] |\n"
)
SIZES = {"N": 3, "B": 2, "L": 4, "D": 8, "F": 16}
TRAINED = 3 * 3 * 2 * 2 * (2 * 4 * 8 * 16)  # layers; forward and two gradients; two products; two operations an entry


def block() -> sc.Model:
    return sc.load(BLOCK, repeat="N")


def sheet(*lines: str, symbols: str = "", options: str = "", more: str = "") -> str:
    parts = ["# A sheet", "What it tells.", "## Symbols", symbols, "## Options", options, "## Lines", *lines, more]
    return "\n\n".join(part for part in parts if part)


PRICE = "- price [dollar/(device*hour)] from price: dollars for an hour of a device"
COST = sheet(
    "- F [FLOP] from flops(scope: training, op: none, frozen: none, documents: none)\n  model FLOPs: Needed.",
    "- n [device] from devices\n  devices: All devices.",
    "- T := F/(n R)\n  time: At the peak rate.\n  run: same(T n R, F)",
    "- C := n price T/3600 [second/hour]\n  cost: Every hour of each device is paid.\n"
    "  run: same(3600 [second/hour] * C, n price T)",
    symbols=f"{PRICE}\n- R [FLOP/(second*device)] from rate: what a device does",
    options="- all of devices",
)


def test_a_sheet_of_ones_own_counts_dollars_from_the_operations_of_a_model():
    cost = sc.worksheet(COST, block())
    made = cost(strategy="data(2)", price="18 dollar/(device*hour)", rate="1 MFLOP/(s*device)")
    assert made.at(**SIZES).value == Fraction(TRAINED, 10**6) * 18 / 3600
    assert str(made.unit) == "dollar"
    made.check(deep=True)
    assert [*cost.options] == ["strategy", "price", "rate", "devices_used"]


def test_the_steps_of_a_fact_without_a_reason_are_shown_once():
    lines = ("- F from flops(scope: training, op: none, frozen: none, documents: none)",
             "- G := 2 F\n  twice: Both runs.\n  run: adds(F, F)")  # fmt: skip
    names = [step.name for step in sc.worksheet(sheet(*lines), block())().steps]
    assert len(names) > 4
    assert names[-1] == "G"
    told = lines[0] + "\n  operations: All of them."
    assert [s.name for s in sc.worksheet(sheet(told, lines[1]), block())().steps] == ["F'", "G"]


def test_names_of_a_sheet_give_way_to_those_of_the_model():
    lines = ("- F [FLOP] from flops(scope: training, op: none, frozen: none, documents: none)\n  operations: All.",
             "- T := F/D\n  time: At the rate `D`.\n  run: same(T D, F)")  # fmt: skip
    made = sc.worksheet(sheet(*lines, symbols="- D [FLOP/second] from speed: what it does"), block())(speed="2 FLOP/s")
    assert made.at(**SIZES).value == Fraction(TRAINED, 2)
    assert [step.name for step in made.steps if step.relation == ":="] == ["F'", "T"]
    assert made.steps[1].reason.text == "At the rate `D'`."


GUARDED = sheet(
    "- F [FLOP] from flops(scope: training, op: none, frozen: none, documents: none)\n  operations: All of them.",
    "- G := 3 F, with twice\n  more: Said.\n  run: same(G, 3 F)",
    "- G := 5 F, under attention: causal_half or windowed\n  less: Half.\n  run: same(G, 5 F)",
    "- G := 7 F, where F < x\n  small: Few.\n  run: same(G, 7 F)",
    "- G := 9 F\n  else: Many.\n  run: same(G, 9 F)",
    "- H := G + y, with twice\n  sum: Both.\n  run: adds(G, y)",
    "- H := G\n  alone: One.\n  run: adds(G)",
    symbols="- x [FLOP] from bound = 10 FLOP: a bound\n- y [FLOP] from twice: more",
)


@pytest.mark.parametrize(
    ("options", "factor"),
    [({"twice": "1 FLOP"}, 3), ({"accounting": {"attention": "causal_half"}}, 5), ({"bound": "1 PFLOP"}, 7), ({}, 9)],
    ids=["an option", "a convention", "a comparison", "none of them"],
)
def test_the_first_line_whose_condition_holds_defines_a_name(options, factor):
    made = sc.worksheet(GUARDED, block().at(**SIZES))(**options)
    assert made.at().value == factor * TRAINED + (1 if "twice" in options else 0)
    assert ("attention" in made.touched) == (factor != 3)  # which it asked for


def test_a_comparison_without_its_numbers_says_which_are_missing():
    with pytest.raises(SymcommError, match="F < x decides which formula holds\nhint: give numbers for B, L, D, F, N"):
        sc.worksheet(GUARDED, block())()


SPECIAL = """# Special

A sum of powers.

## Symbols

- a from share: a share
- g [count] from terms: how many

## Lines

- note where a < 1, where g = 2: two terms below {g}
- n := g, where a = 1
  all: Each is one.
  run: same(n, g)
- n := (1 - a^g)/(1 - a)
  sum: A geometric sum.
  run: same(n (1 - a), 1 - a^g)
"""


def test_an_equality_without_numbers_does_not_hold_and_is_refused_where_it_comes_to_hold_later():
    assert sc.worksheet(SPECIAL)(share=1, terms=7).at().value == 7
    assert sc.worksheet(SPECIAL)(share=2, terms=3).at().value == 1 + 2 + 4
    general = sc.worksheet(SPECIAL)()
    assert general.at(a=3, g=2).value == 1 + 3
    with pytest.raises(SymcommError, match="a = 1 is a case with its own formula\nhint: give this number when it is"):
        general.at(a=1, g=7)


OPEN = "flops(scope: training, op: none, frozen: none, documents: none)"
WRONG = {
    "a quantity": (f"- F from {OPEN.replace('flops', 'flop')}", "there is no quantity or fact 'flop'", "'flops'"),
    "an option": ("- F from flops(scop: training)", "'flops' has no option 'scop'", "'scope'"),
    "a choice": ("- F from flops(scope: trainin)", "unknown scope 'trainin'", "'training'"),
    "a required option that is left open": (
        "- S from tensor_size",
        "tensor_size needs 'tensor', which the worksheet neither fixes nor passes on",
        "- tensor under Options, or tensor_size(tensor: ...)",
    ),
    "a required option that is left out": (
        "- S from tensor_size(tensor: none)", "'tensor_size' needs the option 'tensor'", "the name of the tensor",
    ),
    "an option twice": (
        "- F from flops(scope: training, op: A, scope: forward)", "an option is given twice", "flops(scope, op)",
    ),
    "a convention": (f"- F from {OPEN}, under attentoin: full", "unknown convention field 'attentoin'", "'attention'"),
    "a choice of a convention": (f"- F from {OPEN}, under attention: fool", "'fool' is no convention", "windowed"),
    "a condition": (f"- F from {OPEN}, with sped", "'sped' is no option of this worksheet", "'speed'"),
    "a comparison": (f"- F from {OPEN}, where F", "this compares nothing", ", where A < B"),
    "a unit": (f"- F [dolar] from {OPEN}", "unknown unit 'dolar'", "'dollar'"),
    "a strategy": ("- C from communication(strategy: dat(4), op: none)", "unknown strategy 'dat'", "'data'"),
    "no quantity": ("- F from 3 x", "this names no quantity", "- F from flops(scope: training)"),
    "itself": ("- F := F/2\n  half: Of itself.", "F", ""),
    "a line that comes later": ("- F := G/2\n  half: Of another one.", "G", ""),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_a_slip_of_a_fact_is_told_with_its_line_when_the_sheet_is_read(case: str):
    line, message, hint = WRONG[case]
    text = sheet(line, symbols="- R [FLOP/second] from speed: what it does")
    with pytest.raises(SymcommError) as caught:
        sc.worksheet(text, block())
    said = str(caught.value)
    assert message in said
    assert hint in said
    assert f"worksheet:{text.splitlines().index(line.splitlines()[0]) + 1}:" in said


def test_a_row_of_a_decode_step_that_only_moves_has_a_least_time_and_no_roofline():
    small = json.loads((Path(__file__).parents[1] / "data" / "small_families.json").read_text())["LlamaForCausalLM"]
    step = sc.load(small, architecture="LlamaForCausalLM").decode()
    said = {"op": "x", "accounting": {"traffic": "weights_and_cache"}}  # the rows of the embedding that it reads
    with pytest.raises(ValuesError, match="x has no op that is counted"):
        step.roofline(**said)
    lines = ("- t_c from work(of: computing) or 0", "- t_m from work(of: memory) or 0",
             "- t := max(t_c, t_m)\n  least: The longer one.\n  run: same(t, t_m)")  # fmt: skip
    least = sc.worksheet(sheet(*lines, options="- op"), step)(**said)
    assert str(least.expr) == str(step.time(phase="forward", **said).expr)


def test_an_answer_that_there_is_not_is_told_at_its_line():
    lines = ("- n from devices\n  devices: All.", "- C := n p\n  cost: Each.\n  run: loops(n, p)")
    text = sheet(*lines, symbols="- p [dollar] from price: one of them", options="- all of devices",
                 more="## How many\n\nanswer: greatest p with C <= limt")  # fmt: skip
    with pytest.raises(SymcommError, match=r"'limt' cannot be the answer here\n    answer: greatest p with C <= limt"):
        sc.worksheet(text, block())


def test_a_note_about_a_line_that_nobody_asked_for_is_not_told():
    lines = ("- n from devices\n  devices: All.", "- C := 2 n\n  pairs: Two.\n  run: adds(n, n)",
             "- K := 3 n\n  more: Three.\n  run: adds(n, n, n)", "- note where n > 1: {n} devices, {C}, {K}.",
             "- note where n > 1: {n} devices, {C} parts.")  # fmt: skip
    asked = {name: sc.worksheet(sheet(*lines, options="- strategy"), block(), line=name) for name in ("C", "K")}
    assert asked["C"](strategy="data(4)").notes == ("4 devices, 8 parts.",)
    assert asked["K"](strategy="data(4)").notes == ()


def test_an_option_that_a_sheet_does_not_mention_keeps_its_default():
    made = sc.worksheet(sheet("- F from flops"), block())
    assert [*made.options] == []
    assert made().at(**SIZES).value == block().flops().at(**SIZES).value
    with pytest.raises(ValuesError, match="'worksheet' has no option 'frozen'"):
        made(frozen="W^1")


def test_an_option_of_the_sheet_is_none_of_a_quantity_that_has_one_of_the_same_name():
    lines = ("- T [second] from time(term: compute)\n  time: Computing.",
             "- C := T p\n  cost: Each second.\n  run: loops(T, p)")  # fmt: skip
    text = sheet(*lines, symbols="- p [dollar/second] from peak: price of a second", options="- all of time")
    asked = sc.worksheet(text, block())
    assert "peak" not in dict(asked(peak="3 dollar/s").given)
    assert dict(asked(peak="3 dollar/s").given)["p"] == 3
    with pytest.raises(SymcommError, match="peak makes no difference to 'A sheet'"):
        sc.worksheet(text, block(), line="T")(peak="3 dollar/s")


def test_an_option_that_is_passed_on_to_nothing_is_refused():
    with pytest.raises(SymcommError, match=r"worksheet:9: no line takes 'strategi'"):
        sc.worksheet(sheet(f"- F from {OPEN}", options="- strategi"), block())
    lines = ("- n from devices", "- C from communication")
    with pytest.raises(SymcommError) as caught:  # two lines take it, which is said once
        sc.worksheet(sheet(*lines, options="- strategi"), block())
    assert str(caught.value).count("'strategy'") == 1


def test_a_line_may_fix_a_strategy_whose_commas_and_brackets_are_its_own():
    lines = ("- C from communication(strategy: tensor(2) + data(4), phase: forward)",
             "- n from devices(strategy: pipeline(2, microbatches=4) + data(3))")  # fmt: skip
    asked = {name: sc.worksheet(sheet(*lines), block(), line=name) for name in "Cn"}
    assert asked["n"]().at().value == 2 * 3
    assert asked["C"]().expr == block().communication(strategy="tensor(2) + data(4)", phase="forward").expr


def test_an_option_that_no_line_of_the_question_used_is_refused_and_one_that_describes_the_situation_told():
    asked = sc.worksheet(COST, block(), line="F")
    with pytest.raises(SymcommError, match="price makes no difference to 'A sheet'\nhint: leave price out"):
        asked(price="1 dollar/(device*hour)")
    assert asked(strategy="data(2)").notes == ("Makes no difference here: `strategy`.",)


LAYER = "- M [byte] from traffic(op: none, dtype: none)\n  bytes: Each operand once."
FORWARD = "- F [FLOP] from flops(scope: forward, op: none, frozen: none, documents: none)\n  operations: All layers."
MIXED = {
    "operations of a model over bytes of a layer": (
        FORWARD, "- I := F/M\n  intensity: One over the other.\n  run: same(I M, F)",
        "`M` is of one layer and `F` is of the whole model: they do not go together",
    ),
    "the forward pass and training added": (
        FORWARD.replace("F [", "G ["),
        "- I := F + G\n  sum: Both.\n  run: adds(F, G)",
        "`G` is of the forward pass and `F` is of all of training",
    ),
    "all layers times the layers": (
        "- N [layer] from layers\n  layers: How many.", "- I := F N * 1 [1/layer]\n  all: Of all.\n  run: same(I, F N)",
        "this counts one layer of the whole model twice",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", MIXED)
def test_a_line_that_mixes_amounts_of_a_whole_and_of_a_part_is_refused(case: str):
    first, line, message = MIXED[case]
    every = "- F [FLOP] from flops(scope: training, op: none, frozen: none, documents: none)\n  all: All."
    second = LAYER if "bytes" in case else every
    with pytest.raises(SymcommError) as caught:
        sc.worksheet(sheet(first, second, line), block())()
    assert message in str(caught.value)
    assert f"worksheet:{sheet(first, second, line).splitlines().index(line.splitlines()[0]) + 1}:" in str(caught.value)


def test_bytes_of_a_layer_times_the_layers_go_with_operations_of_the_model():
    lines = (FORWARD, LAYER, "- n from layers\n  layers: How many.",
             "- I := F/(n M)\n  intensity: Of all layers.\n  run: same(I n M, F)")  # fmt: skip
    made = sc.worksheet(sheet(*lines), block())()
    moved = 2 * (2 * 2 * 4 * (8 + 16) + 2 * 8 * 16)
    assert made.at(**SIZES).value == Fraction(TRAINED // 3, 3 * moved)
    made.check(deep=True)


def test_a_fact_of_another_unit_is_refused_at_its_line():
    with pytest.raises(SymcommError, match=r"worksheet:11: F has the unit B here, but flops is in FLOP"):
        sc.worksheet(sheet(f"- F [byte] from {OPEN}\n  x: So."), block())()


AGAIN = "- F [FLOP] from recomputation(recomputation: 'none', count: flops, strategy: none, frozen: none)"


def test_a_fact_that_is_nothing_is_refused_unless_the_line_allows_it():
    rest = "- G := F + x\n  sum: Both.\n  run: adds(F, x)"
    symbols = "- x [FLOP] from more: more"
    with pytest.raises(SymcommError, match="F is 0: without recomputation: flops counts nothing here"):
        sc.worksheet(sheet(f"{AGAIN}\n  again: Twice.", rest, symbols=symbols), block())(more="3 FLOP")
    made = sc.worksheet(sheet(f"{AGAIN} or 0\n  again: Twice.", rest, symbols=symbols), block())(more="3 FLOP")
    assert made.at().value == 3
    assert made.steps[0].reason.text == "Both. Left out, since zero: `F`."


def test_a_line_without_a_run_that_leads_to_none_is_not_borne_out():
    text = sheet(f"- F [FLOP] from {OPEN}\n  x: So.", "- G := 2 F\n  twice: Both.")
    said = r"^worksheet:14: G has no run, and leads to no line that has one\n    - G := "
    with pytest.raises(SymcommError, match=said):
        sc.worksheet(text, block())


def test_a_wrong_run_of_a_line_over_facts_is_found():
    text = sheet(f"- F [FLOP] from {OPEN}\n  x: So.", "- G := 2 F\n  twice: Both.\n  run: adds(F, F, F)")
    with pytest.raises(DerivationError, match="G"):
        sc.worksheet(text, block())().check(deep=True)


def test_what_a_sheet_requires_is_asked_of_numbers_that_come_later():
    text = sheet(f"- F [FLOP] from {OPEN}\n  x: So.", "- require F < x: {F} is more than {x}\n  take less",
                 symbols="- x [FLOP] from bound: a bound")  # fmt: skip
    made = sc.worksheet(text, block())(bound="100 FLOP")
    with pytest.raises(SymcommError, match=r"36.864 kFLOP is more than 100 FLOP\nhint: take less"):
        made.at(**SIZES)


def test_a_sheet_of_ten_thousand_lines_is_refused_at_once():
    with pytest.raises(SymcommError, match=r"worksheet:\d+: a worksheet has at most"):
        sc.worksheet(sheet(*(f"- a{n} := 1\n  x: So." for n in range(10_000))), block())


@pytest.mark.parametrize(
    "more", ["- note: It is {a450}.", "- b := 2 a450, where a450 > 3\n  r: So.\n  run: adds(a450)"]
)
def test_a_long_chain_of_lines_is_refused_at_its_line(more: str):
    lines = [f"- a{n} := a{n - 1} + 1\n  r: So.\n  run: adds(a{n - 1}, 1)" for n in range(1, 451)]
    with pytest.raises(SymcommError, match=r"worksheet:\d+: a60 needs a chain of more than 60 lines"):
        sc.worksheet(sheet("- a0 := x\n  r: So.\n  run: adds(x)", *lines, more, symbols="- x from x: a number"))


def test_a_number_with_a_unit_below_one_is_read_or_refused():
    text = sheet("- a := 3 [1/layer] * x\n  r: So.\n  run: adds(3 [1/layer] * x)", symbols="- x [layer] from x: layers")
    assert sc.worksheet(text)(x=2).at().value == 6
    with pytest.raises(SymcommError, match=r"worksheet:\d+: unknown unit '\.\.2'"):
        sc.worksheet(text.replace(":= 3 [", ":= 1..2 ["))


def test_a_sheet_that_takes_facts_needs_a_model():
    with pytest.raises(SymcommError, match="worksheet takes facts from a model\nhint: worksheet"):
        sc.worksheet(COST)


def test_a_problem_file_asks_a_sheet_of_its_own_over_its_model():
    file = Path(__file__).parents[2] / "examples" / "own-worksheet"
    found = [answer.quantity.value for answer in sc.solve(sc.read_problem(file / "homework.md")).answers()]
    sizes = {"N": 48, "B": 256, "L": 2048, "D": 8192, "F": 32768}
    step = block().at(**sizes).step_time("fsdp(64)", device="DGX-A100").at().value
    hours = step * Fraction(15 * 10**8, 256 * 2048) / 3600
    assert found[3:5] == [64 * 2 * hours, Fraction(11, 10) * 64 * 400 * hours]


OWN = """# Own or rented

## Symbols

- P [dollar] from price: price of a device
- r [dollar/hour] from rent: rent of a device
- w [dollar/hour] from power: power of an own device
- h [hour] from hours: hours of work
- n [count] from devices: devices

## Lines

- C_own := n (P + w h)
  own: The price, and power for all hours.
  run: same(C_own, n P + n w h)
- C_rent := n r h
  rented: Rent for all hours.
  run: loops(n, r, h)

## Break even

"""
PRICES = {"price": "30000 dollar", "rent": "2 dollar/hour", "power": "1/2 dollar/hour"}


def test_where_two_lines_are_equal_is_an_answer_with_its_condition():
    made = sc.worksheet(OWN + "answer: h where C_own = C_rent")()
    assert [str(condition) for condition in made.where] == ["r > w"]
    found = made.at(P=30000, r=2, w=Fraction(1, 2))
    assert (found.value, str(found.unit)) == (30000 / Fraction(3, 2), "hour")  # the price over what an hour saves
    made.check(deep=True)
    with pytest.raises(ValuesError, match="the closed form holds where r > w"):
        made.at(P=30000, r=1, w=2)


def test_the_least_whole_value_on_the_side_that_holds_is_an_answer():
    priced = {**PRICES, "rent": "2.1 dollar/hour"}  # 30000 over 1.6 is 18750
    ask = sc.worksheet(OWN + "answer: least whole h with C_rent >= C_own")
    assert ask(**priced).at().value == 18750
    assert ask(**{**priced, "price": "30001 dollar"}).at().value == 18751
    down = sc.worksheet(OWN + "answer: greatest whole h with C_own >= C_rent")
    assert down(**{**priced, "price": "30001 dollar"}).at().value == 18750


@pytest.mark.parametrize(
    ("answer", "options", "said"),
    [
        ("greatest h with C_rent >= C_own", {}, "answer: least h with C_rent >= C_own"),
        ("h where C_own = C_rent", {**PRICES, "rent": "1/4 dollar/hour"}, "equal for no positive h"),
        ("k where C_own = C_rent", {}, "worksheet:22: 'k' cannot be the answer here"),
        ("h where C_own = C_rant", {}, "did you mean 'C_rent'?"),
        ("h where C_own = r", {}, "worksheet:22: C_own is in dollar, but r in dollar/hour"),
        ("h where C_own > C_rent", {}, "or least n with A >= B"),
        ("P where C_own = C_rent", PRICES, "price makes no difference to 'Break even'"),
    ],
)
def test_a_slip_of_where_two_lines_meet_is_told(answer: str, options: dict[str, str], said: str):
    with pytest.raises(SymcommError) as caught:
        sc.worksheet(OWN + f"answer: {answer}")(**options)
    assert said in str(caught.value)


PAID_OFF = sheet(
    "- F [FLOP] from flops(scope: forward, op: none, frozen: none, documents: none)\n  operations: Forward.",
    "- T_c := F/R_1\n  computing: At this rate.\n  run: same(T_c R_1, F)",
    symbols="- R_1 [FLOP/second] from rate: what it does\n- T_most [second] from most: the most\n- x from over: a name",
)


def test_a_symbol_of_the_model_is_solved_for_by_its_name_or_by_that_of_an_option():
    lines = PAID_OFF
    one = sc.worksheet(lines + "\n## Batch\n\nanswer: least B with T_c >= T_most\n", block())(
        rate="1 MFLOP/s", most="3 s"
    )
    two = sc.worksheet(lines + "\n## Any\n\nanswer: least x with T_c >= T_most\n", block())(rate="1 MFLOP/s", over="B")
    per_batch = block().flops().at(**{**SIZES, "B": 1}).value
    at = {name: value for name, value in SIZES.items() if name != "B"}
    assert one.at(**at).value == Fraction(3 * 10**6, per_batch)
    assert two.at(**at, T_most=3).value == one.at(**at).value
    with pytest.raises(ValuesError, match=r"^worksheet:23: neither cost depends on 'BB'\n    answer: least BB "):
        sc.worksheet(lines + "\n## Any\n\nanswer: least BB with T_c >= T_most\n", block())()
    with pytest.raises(ValuesError, match=r"^neither cost depends on 'Q'"):
        sc.worksheet(lines + "\n## Any\n\nanswer: least x with T_c >= T_most\n", block())(over="Q")


def test_a_root_of_a_number_with_a_unit_is_solved_for():
    text = sheet("- A := a x\n  one: It grows.\n  run: same(A, a x)", "- D := 12 [byte]/x\n  other: It shrinks.\n"
                 "  run: same(D x, 12 [byte])", symbols="- a [byte] from size: a\n- x from over: b")  # fmt: skip
    made = sc.worksheet(text + "\n## Meet\n\nanswer: least x with A >= D\n")(size="3 B")
    assert made.at().value == 2  # 3 times 2 is 12 over 2
    made.check(deep=True)
    with pytest.raises(SymcommError) as caught:
        sc.worksheet(text + f"\n## Meet\n\nanswer: x where {'A' * 60000} = D\n")
    assert len(str(caught.value)) < 500


LOADS = """# Loads

## Units

- truck, trucks: a load of a lorry

## Symbols

- N [truck] from trucks: trucks that drive
- c [dollar/truck] from fare: the price of one

## Lines

- C := N c
  fare: Each is paid.
  run: loops(N, c)
"""


def test_a_sheet_has_units_of_its_own():
    made = sc.worksheet(LOADS)(trucks="5 trucks", fare="3 dollar/truck")
    assert str(made.at()) == "15 dollars"
    assert str(sc.worksheet(LOADS)().at(N="2 trucks", c="3 dollar/truck")) == "6 dollars"
    with pytest.raises(ValuesError, match="trucks is given in GPU, but must be in truck"):
        sc.worksheet(LOADS)(trucks="5 devices")


@pytest.mark.parametrize(
    ("line", "said"),
    [("- hour, hrs: a part of a day", "worksheet:5: 'hour' is a unit already"),
     ("- GB: another", "worksheet:5: 'GB' is a unit already"),
     ("- tonne-mile: two words", "worksheet:5: this is no unit"),
     ("- lorry: another", "unknown unit 'van'")],
)  # fmt: skip
def test_a_slip_of_a_unit_is_told_with_its_line(line: str, said: str):
    other = LOADS.replace("- truck, trucks: a load of a lorry", line).replace("[truck]", "[van]")
    with pytest.raises(SymcommError) as caught:
        sc.worksheet(other)
    assert said in str(caught.value)
