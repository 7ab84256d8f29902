"""Exports are read back by small readers of our own: what arrives is what was drawn, and keeps the systems' rules."""

from __future__ import annotations

import base64
import csv
import html
import io
import json
import re
import shutil
import subprocess
import sys
import types
import zipfile
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import pytest
from api import (
    EXPORTERS,
    FRACTIONS,
    DocumentError,
    Exporter,
    Num,
    PictureFile,
    Power,
    Product,
    Quantity,
    QuestionOption,
    QuestionPart,
    Ratio,
    Recognised,
    Sym,
    SymcommError,
    draw_items,
    number_text,
    parse_template,
    shown_in,
)
from api import exports_register as register
from api import item_Item as Item
from hypothesis import given, settings
from hypothesis import strategies as st

DATA = Path(__file__).parents[1] / "data" / "exports"
QUIZ = r"""---
title: Quiz 2/3
draw: {k: {powers_of: 2, from: 2, to: 16}, f: {from: 1.1, to: 2.4, step: 0.1, unit: GHz}}
---

All numbers are exact; $10^9$ bytes are a GB, and a & b < c ]]> `</text>`.

| Computation | Input | Output |
|---|---|---|
| $A = xW$ | $x \in \mathbb{R}^{B \times D}, W \in \mathbb{R}^{D \times 4D}$ | $A \in \mathbb{R}^{B \times 4D}$ |
| $y = AV$ | $A \in \mathbb{R}^{B \times 4D}, V \in \mathbb{R}^{4D \times D}$ | $y \in \mathbb{R}^{B \times D}$ |

```symcomm
model: mlp
values: {B: 64, D: 1024}
```

# Peak rate (5 points)

It runs at {{ f }}, and {1:NUMERICAL:=2} is text. What is its peak rate?

```symcomm
ask: peak_rate
given: {f: {{ f }}, n_SM: 100 SM, n_FMA: 512 FMA/clock/SM}
```

# Bytes (6 points)

Data parallelism over {{ k }} ranks.

```symcomm
- {ask: communication, id: sent, label: sent, points: 4, strategy: "data({{ k }})", collective: all-reduce, model: mlp}
- {ask: parameters, id: size, label: size, points: 2, choices: 3, model: mlp}
```

# Peak rate in symbols (3 points)

For which $f$, $n_{SM}$ and $n_{FMA}$?

```symcomm
ask: peak_rate
id: formula
```
"""


@pytest.fixture(scope="module")
def items() -> tuple[Item, ...]:
    return draw_items(parse_template(QUIZ), "7", 2)


class _Words(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.words, self.tags = "", []

    def handle_data(self, data: str) -> None:
        self.words += data

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append((tag, dict(attrs)))  # type: ignore[call-overload]


def words(html: str | None) -> str:
    reader = _Words()
    reader.feed(html or "")
    reader.close()
    return reader.words


def drawn_words(html: str) -> str:
    r"""The text of our XHTML with the TeX of formulas between \( and \), by a reader of its own."""
    math = re.compile(r"<math.*?<annotation[^>]*>(.*?)</annotation>.*?</math>", re.DOTALL)
    return words(math.sub(lambda m: rf"\({m[1]}\)", html))


def body_of(item: Item) -> str:
    return "".join(drawn_words(block) for block in item.blocks if isinstance(block, str))


def accepted(part: QuestionPart) -> list[tuple[Fraction, Fraction, Fraction, str]]:
    """The numbers that earn or explain something: value, tolerance, credit, feedback."""
    every = [(part.answer, Fraction(1), ""), *((r.value, r.credit, r.feedback) for r in part.recognised)]
    return [(v, half_of_the_third_digit(v), c, drawn_words(f)) for v, c, f in every]


def half_of_the_third_digit(number: Fraction) -> Fraction:
    """Read off the digits: that of 32.175 is 0.05."""
    power = int(f"{float(number):.17e}".split("e")[1])
    return Fraction(10) ** (power - 2) / 2


def same(read: list[tuple[Fraction, Fraction, Fraction, str]], part: QuestionPart) -> None:
    wanted = accepted(part)
    assert [(one[2], one[3]) for one in read] == [(one[2], one[3]) for one in wanted]
    for (value, spread, _, _), (right, wide, _, _) in zip(read, wanted, strict=True):
        assert abs(value - right) <= wide / 100
        assert abs(spread - wide) <= wide / 100


# -- Moodle -----------------------------------------------------------------------------------------


def moodle(items: tuple[Item, ...], name: str = "moodle") -> list[ElementTree.Element]:
    (data,) = EXPORTERS[name].files("Quiz 2/3", items).values()
    return list(ElementTree.fromstring(data))


def gaps(text: str) -> list[tuple[str, str, list[tuple[str, str, str]]]]:
    """The gaps of a cloze text: weight, kind, and each answer's share, text and feedback; as Moodle splits them."""
    found = []
    for weight, kind, inside in re.findall(r"\{(\d*):([A-Z_]+):((?:\\.|[^\\}])*)\}", text):
        answers = []
        for answer in re.findall(r"(?:\\.|[^\\~])+", inside):
            share, rest = re.fullmatch(r"(=|%-?[\d.]+%|)(.*)", answer, re.DOTALL).groups()
            said, *why = [re.sub(r"\\(.)", r"\1", one) for one in re.findall(r"(?:\\.|[^\\#])+", rest)]
            answers.append((share, said, why[0] if why else ""))
        found.append((weight, kind, answers))
    return found


def test_moodle_xml_read_back_is_what_was_drawn(items):
    read = moodle(items)
    questions = [q for q in read if q.get("type") != "category"]
    assert len(questions) == len(items)
    for question, item in zip(questions, items, strict=True):
        assert question.findtext("idnumber") == item.name
        assert Fraction(question.findtext("defaultgrade")) == item.points
        text = question.findtext("questiontext/text")
        assert words(re.sub(r"\{\d+:[A-Z_]+:.*?\}(?=</p>)", "", text)).startswith(body_of(item)[:200])
        assert all(answer.get("fraction") in FRACTIONS for answer in question.iter("answer"))
        if item.kind == "numeric":
            (part,) = item.parts
            found = [
                (Fraction(a.findtext("text")), Fraction(a.findtext("tolerance")), Fraction(a.get("fraction")) / 100,
                 words(a.findtext("feedback/text")))
                for a in question.findall("answer") if a.findtext("text") != "*"
            ]  # fmt: skip
            same(found, part)
            units = {u.findtext("unit_name"): Fraction(u.findtext("multiplier")) for u in question.iter("unit")}
            one = Quantity.parse(f"1 {part.unit}").value
            for name, times in units.items():  # what is typed is divided by the multiplier
                assert one == Quantity.parse(f"1 {name}").value * times
            assert units[part.unit] == 1
            assert question.findtext("unitgradingtype") == "0"  # the prompt names the unit: a number alone is right
        if item.kind == "multi-part":
            number, choice = gaps(text)
            shares = {"=": Fraction(1)}
            told = [
                (*map(Fraction, said.split(":")), shares.get(share) or Fraction(share.strip("%")) / 100, words(why))
                for share, said, why in number[2]
            ]
            same(told, item.parts[0])
            assert (number[:2], choice[:2]) == (("4", "NUMERICAL"), ("2", "MULTICHOICE_V"))
            options = [(share == "=", words(said), words(why)) for share, said, why in choice[2]]
            assert options == [(o.right, drawn_words(o.text), drawn_words(o.feedback)) for o in item.parts[1].options]
        if item.kind == "symbolic":
            assert question.get("type") == "essay"
            assert r"\cdot 2" in question.findtext("graderinfo/text")


def test_a_number_rounded_to_three_digits_is_right_and_one_of_two_is_not(items):
    for part in (part for item in items for part in item.parts if part.kind == "numeric"):
        assert f"in {part.unit}, 3 significant digits" in drawn_words(part.prompt)
        for value in [part.answer, *(one.value for one in part.recognised)]:
            low, high = map(Fraction, part.bounds(value))
            assert low <= Fraction(f"{float(value):.3g}") <= high
            assert not low <= value + 2 * half_of_the_third_digit(value) <= high
    shares = {
        part.tolerance for item in draw_items(parse_template(QUIZ), "7", 1, Fraction(1, 1000)) for part in item.parts
    }
    assert shares == {Fraction(1, 1000)}


def test_a_prompt_is_in_the_language_of_its_document():
    prompts = [
        drawn_words(part.prompt)
        for item in draw_items(parse_template(QUIZ.replace("title:", "language: de\ntitle:", 1)), "7", 1)
        for part in item.parts
    ]  # fmt: skip
    assert any("3 signifikante Stellen):" in prompt for prompt in prompts), prompts
    assert any("eine Formel in" in prompt for prompt in prompts), prompts
    assert all(prompt.startswith("Antwort") for prompt in prompts)


def test_a_prompt_names_several_of_what_is_counted():
    text = QUIZ.replace("choices: 3, ", "")
    for language, said in (("en", " parameters,"), ("de", " parameter,")):
        document = parse_template(text.replace("title:", f"language: {language}\ntitle:", 1))
        parts = [part for item in draw_items(document, "7", 1) for part in item.parts if part.id == "size"]
        assert said in drawn_words(parts[0].prompt), parts[0].prompt


def test_the_worked_answer_is_simplified_as_on_paper(items):
    worked = {part.id: part.worked for item in items for part in item.parts}
    assert r">16\ D^{2}<" in worked["sent"]  # 2 (4 D^2 + 4 D^2)
    assert r">8\ D^{2}<" in worked["size"]


def test_a_mistake_that_three_digits_do_not_tell_from_the_answer_is_left_out():
    text = """---
title: Near
---
# Rate (1 points)

```symcomm
- mistake: {name: per_mille, says: A part in a thousand., change: {times: 1001/1000}}
- mistake: {name: per_cent, says: A part in a hundred., change: {times: 101/100}}
- {ask: peak_rate, given: {f: 1 GHz, n_SM: 100 SM, n_FMA: 512 FMA/clock/SM}}
```
"""
    (part,) = draw_items(parse_template(text), "7", 1)[0].parts
    names = [name for one in part.recognised for name in one.names]
    assert "per_cent" in names
    assert "per_mille" not in names
    (part,) = draw_items(parse_template(text), "7", 1, Fraction(1, 10_000))[0].parts
    assert "5 significant digits" in drawn_words(part.prompt)
    assert "per_mille" in [name for one in part.recognised for name in one.names]


def test_the_number_that_moodle_takes_is_worked_out_by_hand(items):
    question = moodle(items)[1]
    rate = float(re.search(r"runs at ([\d.]+) GHz", question.findtext("questiontext/text"))[1]) * 100 * 512 * 2 / 1000
    assert float(question.findtext("answer/text")) == pytest.approx(rate, rel=1e-12)
    assert question.findall("answer")[1].findtext("text") == f"{rate / 2:.12g}"
    assert next(unit.findtext("unit_name") for unit in question.iter("unit")) == "TFLOP/s"


def test_each_question_has_its_category_with_all_of_its_variants(items):
    read = moodle(items)
    kinds = [q.get("type") for q in read]
    assert kinds == ["category", "numerical", "numerical", "category", "cloze", "cloze", "category", "essay", "essay"]
    assert read[0].findtext("category/text") == "$course$/Quiz 2//3/Peak rate [peak-rate]"


def test_words_of_the_author_that_look_like_a_gap_are_none(items):
    for question in moodle(items):
        text = question.findtext("questiontext/text") or ""
        if "is text" in text:
            assert not gaps(text)
            assert "{1:NUMERICAL:=2} is text" in words(text)


def _attribute(text: str) -> str:
    """A text as the value of an attribute: XML reads the end of a line there as a space, unless it is a reference."""
    return re.sub(r"[\t\n\r]", lambda found: f"&#{ord(found[0])};", html.escape(text, quote=True))


def by_hand(text: str, kind: str = "numeric", **changes: object) -> Item:
    """An item with a text of somebody else's everywhere."""
    said = html.escape(text)
    options = (QuestionOption(said, True, Fraction(1), ""), QuestionOption("other", False, Fraction(0), said))
    form = Product((Num(Fraction(8)), Sym("b"), Power(Sym("h"), Num(Fraction(2)))))
    wrong = Recognised(("half",), Fraction(1029, 4), Ratio(form, Num(Fraction(2))), Fraction(1, 2), said)
    part = QuestionPart("a", kind, f"{said}:", Fraction(2), Fraction(1029, 2), "TFLOP", (("TFLOP", Fraction(1)),),
                Fraction(1, 1000), form, ("b", "h"), (wrong,), options if kind == "choice" else (), said)  # fmt: skip
    picture = PictureFile("ring.svg", b"<svg xmlns='http://www.w3.org/2000/svg'/>", text)
    shown = f'<p>{said}</p><p><img src="media:ring.svg" alt="{_attribute(text)}"/></p>'
    return replace(Item("a", 1, text or "x", (shown, part), (picture,)), **changes)


HOSTILE = ["]]>", "</text>", "{ } ~ # % & \\ / \" ' $ \\( \\[ $$", "{1:NUMERICAL:=2}", "<script>", "\u202eabc\u200f",
           "{{params.x}} {{{x}}}", "%50%", "&lt; &amp;", "'''\\n", "=1+1", "@@PLUGINFILE@@"]  # fmt: skip
texts = st.one_of(
    st.sampled_from(HOSTILE),
    st.text(min_size=1, max_size=12),
    st.lists(st.sampled_from(HOSTILE), min_size=1).map(" ".join),
)


@given(texts)
@settings(max_examples=40, deadline=None)
def test_hostile_texts_arrive_in_moodle_or_are_refused_with_the_place(text):
    numeric, choice = by_hand(text), by_hand(text, "choice")
    several = replace(numeric, blocks=(*numeric.blocks, choice.parts[0]))
    try:
        numeric.check()
    except DocumentError as error:
        assert re.search(r"^a, variant 1: the character U\+[0-9A-F]{4}", str(error))  # noqa: PT017  (where it is)
        return
    for item in (numeric, choice, several):
        (_, question) = moodle((item,))
        assert question.findtext("name/text") == f"{text or 'x'}, variant 1"
        body = question.findtext("questiontext/text")
        assert words(body).startswith(text)
        image = next(tag for name, tag in _tags(body) if name == "img")
        assert image == {"src": "@@PLUGINFILE@@/ring.svg", "alt": text}
        assert base64.b64decode(question.findtext("questiontext/file")) == item.media[0].data
        if item is several:
            read = gaps(body)
            assert [kind for _, kind, _ in read] == ["NUMERICAL", "MULTICHOICE_V"]
            assert words(read[0][2][1][2]) == text
        else:
            assert text in [words(answer.findtext("feedback/text")) for answer in question.iter("answer")]


def _tags(html: str) -> list[tuple[str, dict[str, str]]]:
    reader = _Words()
    reader.feed(html)
    return reader.tags


def test_a_credit_that_moodle_does_not_know_is_refused():
    item = by_hand("x")
    (part,) = item.parts
    odd = replace(part, recognised=(replace(part.recognised[0], credit=Fraction(47, 100)),))
    with pytest.raises(DocumentError, match="a: Moodle knows no credit of 47/100"):
        moodle((replace(item, blocks=(odd,)),))


# -- numbers ----------------------------------------------------------------------------------------


@given(st.fractions(min_value=-(10**12), max_value=10**12), st.integers(min_value=2, max_value=6))
@settings(max_examples=60, deadline=None)
def test_a_number_has_the_digits_that_its_tolerance_needs(value, digits):
    spread = abs(value) / 10**digits
    text = number_text(value, spread or Fraction(1))
    assert re.fullmatch(r"-?(0|[1-9]\d*)(\.\d*[1-9])?", text)
    assert text != "-0"
    assert abs(Fraction(text) - value) <= (spread or 1) / 100


@given(st.integers(1, 10**20), st.sampled_from(["byte", "FLOP", "FLOP/s", "byte/s", "parameter", "s", "layer"]))
@settings(max_examples=60, deadline=None)
def test_a_unit_is_chosen_so_that_the_number_is_neither_tiny_nor_huge(size, unit):
    quantity = Quantity(Fraction(size, 10**4), Quantity.parse(f"1 {unit}").unit)
    number, name, units = shown_in(quantity)
    assert Fraction(1, 1000) <= number < 100_000
    if "^" not in name:
        assert Quantity.parse(f"1 {name}").value * number == quantity.value
    assert all(Quantity.parse(f"1 {one}").value * times == Quantity.parse(f"1 {name}").value for one, times in units)
    assert Path(name).name  # a word


# -- STACK ------------------------------------------------------------------------------------------


def maxima_worth(text: str, values: dict[str, int]) -> Fraction:
    """A formula of ours as Maxima reads it, worked out by Python's own grammar."""
    import ast

    def go(node: ast.AST) -> Fraction:
        match node:
            case ast.BinOp(left, operation, right):
                a, b = go(left), go(right)
                sign = type(operation).__name__
                return {"Add": lambda: a + b, "Mult": lambda: a * b, "Div": lambda: a / b, "Pow": lambda: a**b}[sign]()
            case ast.UnaryOp(ast.USub(), operand):
                return -go(operand)
            case ast.Constant(number):
                return Fraction(number)
            case ast.Name(name):
                return Fraction(values[name])
        raise AssertionError(ast.dump(node))

    return go(ast.parse(text.replace("^", "**"), mode="eval").body)


def test_stack_compares_with_the_right_formula_first_and_then_with_each_mistake(items):
    items = tuple(item for item in items if item.variant == 1)
    questions = [q for q in moodle(items, "stack") if q.get("type") == "stack"]
    assert len(questions) == len(items)
    symbolic = next(q for q, item in zip(questions, items, strict=True) if item.kind == "symbolic")
    (part,) = next(item for item in items if item.kind == "symbolic").parts
    nodes = symbolic.findall("prt/node")
    assert [node.findtext("answertest") for node in nodes] == ["AlgEquiv"] * len(nodes)
    values = {"f": 7, "n_SM": 11, "n_FMA": 13}
    assert maxima_worth(nodes[0].findtext("tans"), values) == 2 * 7 * 11 * 13
    shares = [Fraction(node.findtext("truescore")) for node in nodes]
    assert shares == [1, *(one.credit for one in part.recognised)]
    said = [words(node.findtext("truefeedback/text")) for node in nodes]
    assert said == ["", *(drawn_words(one.feedback) for one in part.recognised)]
    mac = next(n for n, one in enumerate(part.recognised, start=1) if one.names == ("flops: mac",))
    assert maxima_worth(nodes[mac].findtext("tans"), values) == 7 * 11 * 13
    assert [node.findtext("falsenextnode") for node in nodes] == [*map(str, range(1, len(nodes))), "-1"]


def test_every_input_and_tree_of_stack_is_named_in_the_text_and_tested(items):
    for question in moodle(items, "stack"):
        if question.get("type") != "stack":
            continue
        text = question.findtext("questiontext/text") + question.findtext("specificfeedback/text")
        inputs = [one.findtext("name") for one in question.findall("input")]
        trees = [one.findtext("name") for one in question.findall("prt")]
        assert re.findall(r"\[\[input:(\w+)\]\]", text) == inputs == re.findall(r"\[\[validation:(\w+)\]\]", text)
        assert re.findall(r"\[\[feedback:(\w+)\]\]", text) == trees
        assert question.findtext("assumepositive") == "1"
        notes = {note.text for note in question.iter("trueanswernote")}
        tests = question.findall("qtest")
        assert {note.text for note in question.iter("expectedanswernote")} == notes
        assert all([one.findtext("name") for one in test.findall("testinput")] == inputs for test in tests)


def maxima_list(text: str) -> list[str]:
    """What stands in a list of Maxima, as it stands there."""
    assert (text[0], text[-1]) == ("[", "]")
    pieces = re.findall(r'"(?:[^"\\\\]|\\\\.)*"|[^",\[\]]+|[,\[\]]', text[1:-1])
    found, deep = [""], 0
    for one in pieces:
        deep += (one == "[") - (one == "]")
        if one == "," and not deep:
            found.append("")
        else:
            found[-1] += one
    return found


def of_seed(question: ElementTree.Element, seed: int) -> tuple[list[str], list[list[str]], list[list[str]]]:
    """The texts, nodes and tests of a STACK question whose variables have the values of a seed, by a reader of our own.

    Left out is what has a number that nobody types, since another variant recognises it.
    """
    values = {}
    for line in question.findtext("questionvariables/text").split("\n"):
        name, told = line[:-1].split(":", 1)
        chosen = re.fullmatch(r"(\[.*\])\[variant\]", told, re.DOTALL)
        values[name] = maxima_list(chosen[1])[seed - 1] if chosen else values.get(told, told)

    def castext(found: re.Match[str]) -> str:
        said = values[found[1]]
        return re.sub(r"\\(.)", r"\1", (maxima_list(said)[int(found[2]) - 1] if found[2] else said)[1:-1])

    def shown(element: ElementTree.Element, *paths: str) -> list[str]:
        found = [one.text or "" for path in paths for one in element.findall(path)]
        return [re.sub(r"\{@(\w+)(?:\[(\d+)\])?@\}", castext, values.get(text, text)) for text in found]

    nodes = [shown(node, "tans", "testoptions", "truescore", "truefeedback/text", "description")
             for node in question.findall("prt/node")]  # fmt: skip
    tests = [shown(test, "testinput/value", "expected/expectedscore", "description") for test in question.iter("qtest")]
    nodes, tests = ([one for one in some if not any(re.match("-1000000000", text) for text in one)]
                    for some in (nodes, tests))  # fmt: skip
    return shown(question, "questiontext/text", "generalfeedback/text"), nodes, tests


def test_a_seed_of_stack_is_the_variant_that_is_exported_alone():
    items = draw_items(parse_template(QUIZ), "7", 5)
    questions = [q for q in moodle(items, "stack") if q.get("type") == "stack"]
    seeds = [[int(one.text) for one in q.findall("deployedseed")] for q in questions]
    assert [seeds[0], seeds[-1], *map(len, seeds[1:-1])] == [[1, 2, 3, 4, 5]] * 2 + [5]
    assert {q.findtext("questionnote/text") for q in questions} == {"variant {@variant@}"}
    for question, item in zip(questions, items[::5], strict=True):
        for one in (one for one in items if one.id == item.id):
            alone = of_seed(moodle((one,), "stack")[1], 1)
            assert of_seed(question, one.variant) == alone
            assert len(alone[1]) == sum(len(part.options) or 1 + len(part.recognised) for part in one.parts)


def test_variants_of_stack_that_differ_in_words_are_questions_of_their_own():
    words = QUIZ.replace("draw: {k:", "draw: {what: [GPU, card], k:").replace("It runs", "The {{ what }} runs")
    items = draw_items(parse_template(words), "7", 5)
    questions = [
        q for q in moodle(items, "stack") if q.get("type") == "stack" and "Peak rate," in q.findtext("name/text")
    ]
    said = [re.search("The (GPU|card)", q.findtext("questiontext/text"))[1] for q in questions]
    assert sorted(said) == ["GPU", "card"]
    drawn = Counter(word for item in items[:5] for word in re.findall("The (GPU|card)", body_of(item)))
    assert {word: len(q.findall("deployedseed")) for word, q in zip(said, questions, strict=True)} == drawn


def test_maxima_gives_each_seed_the_numbers_of_its_variant(tmp_path):
    if not shutil.which("maxima"):
        pytest.skip("Maxima is not installed")
    items = draw_items(parse_template(QUIZ), "7", 5)
    question = next(q for q in moodle(items, "stack") if q.get("type") == "stack")
    told = question.findtext("questionvariables/text")
    nodes = [node.findtext("tans") for node in question.findall("prt/node")]
    lines = ["display2d:false$", "rand(n):=random(n)$"]
    for seed in range(1, 7):  # one more than there are variants: it is the first again
        lines += [
            f"kill(stack_seed)$ stack_seed:{seed}$",
            told.replace(";", "$"),
            f'print("got",float([{",".join(nodes)}]))$',
        ]
    lines += ["kill(stack_seed)$", told.replace(";", "$"), 'print("got",variant)$']  # an older STACK: any of them
    (tmp_path / "quiz.mac").write_text("\n".join(lines))
    command = ["maxima", "--very-quiet", "-b", str(tmp_path / "quiz.mac")]
    out = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100).stdout
    *got, any_one = re.findall(r"^got (.*)$", out, re.MULTILINE)
    assert int(any_one) in range(1, 6)
    parts = [item.parts[0] for item in items if item.id == items[0].id]
    for part, said in zip([*parts, parts[0]], got, strict=True):
        numbers = [float(one) for one in said.strip("[] ").split(",")]
        wanted = [float(part.number(one.value)) for one in part.answers]
        assert [number for number in numbers if number > -1e11] == pytest.approx(wanted)


def test_stack_takes_a_number_with_its_unit_behind_it(items):
    numeric = next(item for item in items if item.kind == "numeric")
    question = next(q for q in moodle((numeric,), "stack") if q.get("type") == "stack")
    field = question.find("input")
    assert [field.findtext(tag) for tag in ("type", "insertstars", "forbidfloat")] == ["algebraic", "4", "0"]
    put = dict(one.split("=") for one in re.findall(r"\w+=[\d/]+", question.findtext("prt/feedbackvariables/text")))
    assert {*field.findtext("allowwords").split(", ")} == {*put}
    for typed, number in (("32.175 * TFLOP / s", 32.175), ("32175 * GFLOP / s", 32.175), ("32.175", 32.175)):
        worth = maxima_worth(typed, {name: Fraction(value) for name, value in put.items()})
        assert float(worth) == pytest.approx(number, rel=1e-12)
    nodes = question.findall("prt/node")
    assert {node.findtext("answertest") for node in nodes} == {"NumAbsolute"}
    assert {node.findtext("sans") for node in nodes} == {"given1"}
    for node in nodes:
        off = Fraction(node.findtext("testoptions"))
        assert float(off) == pytest.approx(half_of_the_third_digit(Fraction(node.findtext("tans"))), rel=0.01)


def test_equal_formulas_of_several_mistakes_are_compared_once():
    text = """---
title: Equal
---
# Rate (1 points)

```symcomm
- mistake: {name: halved, says: You halved it., change: {over: 2}}
- {ask: peak_rate, id: rate, credit: {halved: 0.25}, given: {f: 2 GHz, n_SM: 8, n_FMA: 4}, answer: formula}
```
"""
    (part,) = draw_items(parse_template(text), "7", 1)[0].parts
    assert part.kind == "symbolic"
    names = [one.names for one in part.recognised]
    assert ("flops: mac",) in names  # which is half of it as well, and earns more
    assert ("halved",) not in names


def test_stack_writes_stars_between_letters_where_every_symbol_is_one():
    item = by_hand("x", "symbolic")
    (part,) = item.parts
    for symbols, stars in ((("b", "h"), "5"), (("b", "n_H"), "4")):  # 3bh and 3 b h; 3 b n_H
        made = replace(item, blocks=(replace(part, symbols=symbols),))
        assert next(q for q in moodle((made,), "stack")[1:]).findtext("input/insertstars") == stars


def test_stack_takes_a_run_of_letters_for_their_product_beside_names_of_several_letters():
    item = by_hand("x", "symbolic")
    (part,) = item.parts
    made = replace(item, blocks=(replace(part, symbols=("N", "D", "d", "o", "n_H")),))
    question = next(q for q in moodle((made,), "stack")[1:])
    put = dict(
        one.split("=")
        for one in re.search(r"subst\(\[(.*)\],ans1", question.findtext("prt/feedbackvariables/text"))[1].split(",")
    )
    values = {"N": 3, "D": 5, "d": 7, "o": 11, "n_H": 13}
    for typed, number in (("ND", 15), ("DN", 15), ("DNd", 105), ("doDN", 7 * 11 * 15)):  # 3ND: STACK writes 3*ND
        assert maxima_worth(put[typed], values) == number
    assert "do" not in put  # a word of Maxima
    assert {question.findtext("prt/node/sans"), question.findtext("input/insertstars")} == {"given1", "4"}


def test_a_name_that_stack_takes_for_a_number_is_refused():
    item = by_hand("x", "symbolic")
    (part,) = item.parts
    with pytest.raises(DocumentError, match="'pi' is no name of a symbol"):
        moodle((replace(item, blocks=(replace(part, form=Sym("pi")),)),), "stack")


# -- QTI --------------------------------------------------------------------------------------------


def unzipped(items: tuple[Item, ...], name: str) -> dict[str, bytes]:
    (data,) = EXPORTERS[name].files("Quiz 2/3", items).values()
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        entries = archive.infolist()
        assert [entry.filename for entry in entries] == sorted(entry.filename for entry in entries)
        assert {entry.date_time for entry in entries} == {(1980, 1, 1, 0, 0, 0)}
        return {entry.filename: archive.read(entry) for entry in entries}


def bare(data: bytes) -> ElementTree.Element:
    """A tree whose tags have no namespace."""
    root = ElementTree.fromstring(data)
    for node in root.iter():
        node.tag = node.tag.split("}")[-1]
    return root


def test_canvas_gets_a_group_for_each_answer_with_all_variants(items):
    files = unzipped(items, "qti12-mathjax")
    assert sorted(files) == ["imsmanifest.xml", "symcomm_quiz/assessment_meta.xml", "symcomm_quiz/symcomm_quiz.xml"]
    hrefs = {node.get("href") for node in bare(files["imsmanifest.xml"]).iter("file")}
    assert hrefs == {*files} - {"imsmanifest.xml"}
    root = bare(files["symcomm_quiz/symcomm_quiz.xml"])
    sections = root.findall("assessment/section/section")
    assert [s.findtext(".//points_per_item") for s in sections] == ["5.0", "4.0", "2.0", "3.0"]
    assert all(len(s.findall("item")) == 2 and s.findtext(".//selection_number") == "1" for s in sections)
    idents = [item.get("ident") for item in root.iter("item")]
    assert len(set(idents)) == 8
    for item in root.iter("item"):
        order = [child.tag for child in item]
        assert order[:3] == ["itemmetadata", "presentation", "resprocessing"]
        assert set(order[3:]) <= {"itemfeedback"}
        assert item.findall("resprocessing/respcondition")
        told = {node.get("ident") for node in item.findall("itemfeedback")}
        assert {node.get("linkrefid") for node in item.iter("displayfeedback")} == told
    parts = [(item, part) for first, _ in zip(items[::2], items[1::2], strict=True) for part in first.parts
             for item in items if item.id == first.id]  # fmt: skip
    for node, (item, _) in zip(root.iter("item"), parts, strict=True):
        n = int(node.get("ident")[-1]) - 1
        part = item.parts[n]
        html = node.findtext("presentation/material/mattext")
        assert words(html).startswith(body_of(item)[:150])
        if part.kind == "numeric":
            (condition,) = [c for c in node.iter("respcondition") if c.find("setvar") is not None]
            assert abs(Fraction(condition.findtext(".//varequal")) / part.answer - 1) < Fraction(1, 10**5)
            low, high = (Fraction(condition.findtext(f".//{tag}")) for tag in ("vargte", "varlte"))
            assert (high - low) / 2 == pytest.approx(half_of_the_third_digit(part.answer), rel=0.02)
            told = " ".join(f.findtext(".//mattext") for f in node.findall("itemfeedback"))
            assert part.recognised  # a list of wrong numbers would tell those who draw another variant
            assert not [one for one in part.recognised if drawn_words(one.feedback) in words(told)]
        if part.kind == "choice":
            labels = {r.get("ident"): words(r.findtext(".//mattext")) for r in node.iter("response_label")}
            assert [*labels.values()] == [drawn_words(option.text) for option in part.options]
            (condition,) = [c for c in node.iter("respcondition") if c.find("setvar") is not None]
            right = next(option for option in part.options if option.right)
            assert labels[condition.findtext(".//varequal")] == drawn_words(right.text)


def test_canvas_draws_formulas_itself_where_nothing_else_is_wanted(items):
    root = bare(unzipped(items, "qti12")["symcomm_quiz/symcomm_quiz.xml"])
    images = [tag for name, tag in _tags(root.findtext(".//mattext")) if name == "img"]
    assert images[0] == {"class": "equation_image", "title": "10^9", "src": "/equation_images/10%255E9",
                         "alt": "LaTeX: 10^9", "data-equation-content": "10^9"}  # fmt: skip


def scored(item: ElementTree.Element, answers: dict[str, str]) -> dict[str, object]:
    """What response processing of QTI 2.1 makes of answers; a small engine of its own."""
    defaults = [d for d in item.findall("outcomeDeclaration") if d.find("defaultValue") is not None]
    known: dict[str, object] = {d.get("identifier"): float(d.findtext("defaultValue/value")) for d in defaults}
    right = {d.get("identifier"): d.findtext("correctResponse/value") for d in item.findall("responseDeclaration")}

    def worth(node: ElementTree.Element) -> object:
        match node.tag:
            case "correct":
                return right[node.get("identifier")]
            case "variable":
                return answers.get(node.get("identifier"), known.get(node.get("identifier")))
            case "baseValue":
                return node.text
            case "sum":
                return sum(float(worth(child)) for child in node)
            case "isNull":
                return worth(node[0]) is None
            case "match":
                return worth(node[0]) == worth(node[1])
            case "and":
                return all(worth(child) for child in node)
            case "gte" | "lte":
                first, second = (float(worth(child)) for child in node)
                return first >= second if node.tag == "gte" else first <= second
        raise AssertionError(node.tag)

    def run(nodes: list[ElementTree.Element]) -> None:
        for node in nodes:
            if node.tag == "setOutcomeValue":
                known[node.get("identifier")] = worth(node[0])
            elif node.tag == "responseCondition":
                for branch in node:
                    if branch.tag == "responseElse" or worth(branch[0]):
                        run(list(branch)[branch.tag != "responseElse" :])
                        break
            else:
                raise AssertionError(node.tag)

    run(list(item.find("responseProcessing")))
    shown = [" ".join("".join(f.itertext()).split()) for f in item.findall("modalFeedback")
             if known.get(f.get("outcomeIdentifier")) == f.get("identifier")]  # fmt: skip
    return {"score": known["SCORE"], "shown": shown}


def test_qti_2_1_scores_the_right_answer_and_each_mistake_as_drawn(items):
    files = unzipped(items, "qti21")
    hrefs = {node.get("href") for node in bare(files["imsmanifest.xml"]).iter("file")}
    assert hrefs == {*files} - {"imsmanifest.xml"}
    for item in items:
        root = bare(files[f"items/{item.name}.xml"])
        rights = {f"R{n}": next((f"C{at}" for at, o in enumerate(p.options, 1) if o.right), None)
                  or (p.text if p.kind == "numeric" else "8*b") for n, p in enumerate(item.parts, 1)}  # fmt: skip
        whole = sum(float(part.points) for part in item.parts if part.kind != "symbolic")
        assert scored(root, rights)["score"] == whole
        assert scored(root, {})["score"] == 0
        for n, part in enumerate(item.parts, 1):
            if part.kind == "numeric":
                for one in part.recognised:
                    for off in (0.9, -0.9):
                        near = float(one.value + Fraction(off) * half_of_the_third_digit(one.value))
                        result = scored(root, {**rights, f"R{n}": repr(near)})
                        lost = float(part.points * (1 - one.credit))
                        assert result["score"] == pytest.approx(whole - lost)
                        assert drawn_words(one.feedback) in result["shown"]
                wrong = scored(
                    root, {**rights, f"R{n}": repr(float(part.answer + 3 * half_of_the_third_digit(part.answer)))}
                )
                assert wrong["score"] < whole
            if part.kind == "choice":
                for at, option in enumerate(part.options, 1):
                    result = scored(root, {**rights, f"R{n}": f"C{at}"})
                    assert result["score"] == whole - (0 if option.right else float(part.points))
                    assert option.right or drawn_words(option.feedback) in result["shown"]


def test_qti_2_1_items_have_their_children_in_order_and_only_allowed_attributes(items):
    files = unzipped(items, "qti21")
    ranks = ["responseDeclaration", "outcomeDeclaration", "itemBody", "responseProcessing", "modalFeedback"]
    for item in items:
        root = bare(files[f"items/{item.name}.xml"])
        places = [ranks.index(child.tag) for child in root]
        assert places == sorted(places)
        assert not [node.tag for node in root.iter() if {"style", "class", "columnstyle"} & {*node.attrib}]
        assert not [*root.iter("semantics"), *root.iter("annotation")]
        assert root.findall(".//math")
        declared = {d.get("identifier") for d in root.findall("responseDeclaration")}
        assert {n.get("responseIdentifier") for n in root.iter() if n.get("responseIdentifier")} == declared
        outcomes = {d.get("identifier") for d in root.findall("outcomeDeclaration")}
        assert {n.get("identifier") for n in root.iter("setOutcomeValue")} <= outcomes
    test = bare(files["test.xml"])
    assert [s.find("selection").get("select") for s in test.iter("assessmentSection")] == ["1", "1", "1"]
    assert [r.get("identifier") for r in test.iter("assessmentItemRef")] == [item.name for item in items]


@given(texts)
@settings(max_examples=25, deadline=None)
def test_hostile_texts_arrive_in_qti(text):
    item = by_hand(text)
    try:
        item.check()
    except DocumentError:
        return
    node = next(bare(unzipped((item,), "qti12")["symcomm_quiz/symcomm_quiz.xml"]).iter("item"))
    assert node.get("title") == f"{item.title}, variant 1"
    html = node.findtext("presentation/material/mattext")
    assert words(html).startswith(text)
    assert next(tag for name, tag in _tags(html) if name == "img")["alt"] == text
    root = bare(unzipped((item,), "qti21")["items/a_v0001.xml"])
    assert "".join(root.find("itemBody/div/p").itertext()) == text
    assert root.find(".//img").attrib == {"src": "../media/ring.svg", "alt": text}
    assert [*scored(root, {"R1": "257.25"}).values()] == [
        1.0,
        [" ".join(f"{text}: {text}".split()), " ".join(text.split())],
    ]


# -- PrairieLearn -----------------------------------------------------------------------------------

# What the page of PrairieLearn on info.json of a question names.
INFO = {
    "type": "object", "additionalProperties": False, "required": ["uuid", "title", "topic", "type"],
    "properties": {
        "uuid": {"type": "string", "pattern": "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"},
        "type": {"const": "v3"}, "title": {"type": "string", "minLength": 1}, "topic": {"type": "string"},
        "tags": {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
        "partialCredit": {"type": "boolean"}, "singleVariant": {"type": "boolean"},
        "comment": {"type": ["string", "array", "object"]},
    },
}  # fmt: skip


@pytest.fixture
def served(monkeypatch):
    """Runs ``server.py`` with what the documentation says of the library beside it."""
    import sympy

    library = types.ModuleType("prairielearn")

    def to_json(value):
        if not isinstance(value, sympy.Expr):
            return value
        assert not value.atoms(sympy.Float)
        assert all(s.is_positive for s in value.free_symbols)
        return {"_type": "sympy", "_value": str(value), "_variables": sorted(s.name for s in value.free_symbols)}

    def from_json(value):
        if isinstance(value, dict):
            names = {name: sympy.Symbol(name) for name in value["_variables"]}
            return sympy.parse_expr(value["_value"], local_dict=names)
        return value

    def set_weighted_score_data(data):
        scores = data["partial_scores"].values()
        data["score"] = sum(s["score"] * s["weight"] for s in scores) / sum(s["weight"] for s in scores)

    library.to_json, library.from_json = to_json, from_json
    library.set_weighted_score_data = set_weighted_score_data
    monkeypatch.setitem(sys.modules, "prairielearn", library)

    def run(files: dict[str, bytes], group: str) -> dict[str, object]:
        made: dict[str, object] = {}
        exec(compile(files[f"prairielearn/{group}/server.py"], "server.py", "exec"), made)
        return made

    return run


def graded(server, seed: int, answer, right: float = 0.0) -> dict[str, object]:
    data = {"variant_seed": seed, "params": {}, "correct_answers": {}, "feedback": {}}
    server["generate"](data)
    data = json.loads(json.dumps(data))  # PrairieLearn keeps it as JSON
    data |= {"submitted_answers": {} if answer is None else {"a1": answer},
             "partial_scores": {"a1": {"score": right, "weight": 5}}}  # fmt: skip
    server["grade"](data)
    return data


def test_a_question_folder_of_prairielearn_grades_what_was_drawn(items, served):
    files = EXPORTERS["prairielearn"].files("Quiz", items)
    groups = list(dict.fromkeys(item.group for item in items))
    assert {name.split("/")[1] for name in files} == {*groups}
    assert not [data for data in files.values() if b"import symcomm" in data or b"from symcomm" in data]
    for group in groups:
        jsonschema.validate(json.loads(files[f"prairielearn/{group}/info.json"]), INFO)
    numeric = [item for item in items if item.kind == "numeric"]
    server = served(files, numeric[0].group)
    for seed, item in enumerate(numeric):
        (part,) = item.parts
        data = graded(server, seed, float(part.answer), 1.0)
        assert data["correct_answers"]["a1"] == pytest.approx(float(part.answer), rel=1e-6)
        assert (data["score"], data["feedback"]) == (1.0, {})
        for one in part.recognised:
            data = graded(server, seed, float(one.value) + 0.9 * float(half_of_the_third_digit(one.value)))
            assert data["score"] == float(one.credit)
            assert words(data["feedback"]["a1"]) == drawn_words(one.feedback)
        assert graded(server, seed, 1.5)["score"] == 0
        assert graded(server, seed, None)["score"] == 0  # what could not be read


@pytest.mark.parametrize(("typed", "number"), [
    ("32.175 TFLOP/s", 32.175), ("32175GFLOP/s", 32.175), (" 3.2e1 TFLOP/s ", 32), ("32 TFLOP", None),
    ("1.2.3 TFLOP/s", None), ("many TFLOP/s", None),
])  # fmt: skip
def test_prairielearn_takes_a_number_with_its_unit_behind_it(items, served, typed, number):
    item = next(item for item in items if item.kind == "numeric")
    files = EXPORTERS["prairielearn"].files("Quiz", items)
    data = {"variant_seed": 0, "params": {}, "correct_answers": {}}
    server = served(files, item.group)
    server["generate"](data)
    data |= {"raw_submitted_answers": {"a1": typed}, "submitted_answers": {"a1": None}, "format_errors": {"a1": "?"}}
    server["parse"](data)
    assert data["submitted_answers"]["a1"] == (None if number is None else pytest.approx(number))
    assert ("a1" in data["format_errors"]) == (number is None)


def test_a_formula_in_prairielearn_is_compared_by_its_worth(items, served):
    item = next(item for item in items if item.kind == "symbolic")
    server = served(EXPORTERS["prairielearn"].files("Quiz", items), item.group)

    def given(text: str) -> dict[str, object]:
        return {"_type": "sympy", "_value": text, "_variables": ["f", "n_SM", "n_FMA"]}

    data = graded(server, 3, given("n_SM*f*n_FMA"))
    assert {*data["correct_answers"]["a1"]["_value"].split("*")} == {"2", "f", "n_SM", "n_FMA"}
    assert (data["score"], data["feedback"]) == (0.5, {"a1": "A multiply-add counts as one operation."})
    assert graded(server, 0, given("n_SM + f"))["score"] == 0


def test_the_page_of_prairielearn_names_every_parameter_it_shows(items, served):
    files = EXPORTERS["prairielearn"].files("Quiz", items)
    for item in items:
        page = files[f"prairielearn/{item.group}/question.html"].decode()
        variant = served(files, item.group)["VARIANTS"][item.variant - 1]["params"]
        assert set(re.findall(r"params\.(\w+)", page)) <= {*variant}
        elements = [tag["answers-name"] for _, tag in _tags(page) if "answers-name" in tag]
        assert elements == [f"a{n}" for n in range(1, len(item.parts) + 1)]
        shown = "".join(words(variant[name]) for name in variant if name.startswith("text"))
        assert shown.replace("$", "") == re.sub(r"\\[()]", "", body_of(item))


# -- all --------------------------------------------------------------------------------------------


def test_the_outline_has_a_row_for_each_answer(items):
    data = EXPORTERS["gradescope"].files("Quiz", items)["gradescope.csv"].decode()
    rows = list(csv.DictReader(io.StringIO(data)))
    assert [(row["variant"], row["question"], row["points"]) for row in rows] == [
        (v, q, p) for v in "12" for q, p in (("1", "5"), ("2.1", "4"), ("2.2", "2"), ("3", "3"))
    ]
    assert rows[0]["rubric"].startswith("5: right; 2.5: A multiply-add counts as one operation.")


def test_the_same_input_gives_the_same_bytes(items):
    again = draw_items(parse_template(QUIZ), "7", 2)
    for exporter in EXPORTERS.values():
        assert exporter.files("Quiz", items) == exporter.files("Quiz", again)


def test_a_teacher_registers_an_exporter_of_their_own(monkeypatch, items):
    monkeypatch.setattr("symcomm.exams.exports.EXPORTERS", dict(EXPORTERS))
    mine = Exporter("mine", "names", lambda title, item: item.name, lambda title, pieces: {})
    register(mine)
    with pytest.raises(DocumentError, match="there is an exporter 'mine' already"):
        register(replace(mine, says="others"))


def test_raw_html_is_refused_where_it_stands():
    with pytest.raises(SymcommError, match="</text> is raw HTML") as caught:
        draw_items(parse_template(QUIZ.replace("`</text>`", "</text>")), "7", 1)
    assert caught.value.span.line == 6


def test_a_document_without_questions_has_nothing_to_export():
    with pytest.raises(DocumentError, match="asks no question"):
        draw_items(parse_template("Nothing."), "7", 1)


def test_a_tolerance_is_a_share():
    with pytest.raises(DocumentError, match=r"a tolerance is a share of the number up to 0\.1, not 5"):
        draw_items(parse_template(QUIZ), "7", 1, Fraction(5))


# -- the command ------------------------------------------------------------------------------------


def run(*words: str) -> tuple[int, str]:
    from api import main
    from click.testing import CliRunner

    result = CliRunner().invoke(main, ["exam", *words])
    return result.exit_code, result.output


def test_the_command_writes_what_it_tells(tmp_path):
    (tmp_path / "quiz.md").write_text(QUIZ)
    out = tmp_path / "out"
    code, told = run(str(tmp_path / "quiz.md"), "--variants", "2", "--to", "moodle,prairielearn", "-o", str(out))
    assert code == 0, told
    assert "moodle.xml: 3 questions, 2 variants of each, " in told
    assert " kB\n" in told
    assert "prairielearn/ (9 files): 3 questions" in told
    assert sorted(p.name for p in out.iterdir()) == ["manifest.json", "moodle.xml", "prairielearn"]
    assert (out / "prairielearn" / "formula" / "server.py").exists()


def test_the_command_says_what_an_export_needs(tmp_path):
    (tmp_path / "quiz.md").write_text(QUIZ)
    (tmp_path / "roster.csv").write_text("id,name\na,A\n")
    code, told = run(str(tmp_path / "quiz.md"), "--roster", str(tmp_path / "roster.csv"), "--to", "moodle")
    assert (code != 0, "--variants 30 in place of --roster" in told) == (True, True)
    code, told = run(str(tmp_path / "quiz.md"), "--variants", "0", "--to", "moodle")
    assert (code != 0, "--variants is 0; at least 1 is drawn" in told) == (True, True)


def test_the_command_offers_every_exporter():
    _, told = run("--help")
    assert all(name in told for name in EXPORTERS)


def test_moodle_questions_have_the_elements_of_questions_that_moodle_accepted(items):
    choice = replace(by_hand("x", "choice"), media=())
    for name, ours in (("moodle", (*items, choice)), ("stack", items)):
        accepted = ElementTree.parse(DATA / f"{name}.xml").getroot()
        wanted = {q.get("type"): {child.tag for child in q} for q in accepted}
        for question in moodle(ours, name):
            kind = question.get("type")
            mine = {child.tag for child in question}
            optional = {"tags", "info", "idnumber", "defaultgrade", "units", "hint"}
            if kind != "category":
                assert mine - optional == wanted[kind] - optional, kind
