"""STACK: formulas that Maxima compares, numbers within their tolerance, and a node for each recognised answer.

Every variant is a question of its own in a category; question tests travel with it, which STACK runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import lru_cache
from xml.etree.ElementTree import Element

from symcomm.exams.exports.item import Item, QuestionPart, number_text
from symcomm.exams.exports.markup import as_text, element, flat, ready, with_tex
from symcomm.exams.exports.moodle import PICTURE, category, head, quiz, worked
from symcomm.exams.exports.spelled import maxima, stands_for, without_relations

_VERSION = "2026010500"
_OPTIONS = (("decimals", "."), ("scientificnotation", "*10"), ("multiplicationsign", "dot"), ("sqrtsign", "1"),
            ("complexno", "i"), ("inversetrig", "cos-1"), ("logicsymbol", "lang"), ("matrixparens", "["),
            ("isbroken", "0"), ("variantsselectionseed", ""))  # fmt: skip


def piece(title: str, item: Item) -> list[str]:
    """A question and its category. Raises ``DocumentError`` for names and functions that STACK does not know."""
    return [as_text(category(title, item)), as_text(_question(item))]


def whole(title: str, pieces: Sequence[list[str]]) -> dict[str, bytes]:
    """One file with all questions."""
    return {"stack.xml": quiz(pieces)}


def _question(item: Item) -> Element:
    parts = {id(part): n for n, part in enumerate(item.parts, start=1)}
    pieces = [_castext(with_tex(b, PICTURE)) if isinstance(b, str) else _field(b, parts[id(b)]) for b in item.blocks]
    made = head(item, "".join(pieces), "", "stack")
    _set(made, "generalfeedback", _castext(with_tex(worked(item), PICTURE)))
    made.append(element("stackversion", element("text", _VERSION)))
    variables = "\n".join(f"ta{n}:{_right(part, item)};" for n, part in enumerate(item.parts, start=1))
    made.append(element("questionvariables", element("text", variables)))
    feedback = " ".join(f"[[feedback:prt{n}]]" for n in parts.values())
    made.append(_text("specificfeedback", feedback))
    made.append(_text("questionnote", f"variant {item.variant}"))
    made.append(_text("questiondescription", ""))
    for tag, said in (("questionsimplify", "1"), ("assumepositive", "1"), ("assumereal", "1")):
        made.append(element(tag, said))
    for tag, said in (("prtcorrect", "Right."), ("prtpartiallycorrect", "Partly right."), ("prtincorrect", "Wrong.")):
        made.append(_text(tag, said))
    for tag, said in _OPTIONS:
        made.append(element(tag, said))
    for n, part in enumerate(item.parts, start=1):
        made.append(ready(_input(part, n)))
    for n, part in enumerate(item.parts, start=1):
        made.append(_tree(part, n, item))
    for seed in ("1",):  # a variant draws nothing more
        made.append(element("deployedseed", seed))
    made.extend(_tests(item))
    return made


def _castext(text: str) -> str:
    """HTML in which nothing is an order to STACK: ``[[...]]`` and ``{@...@}`` of the author's are only text.

    >>> _castext("[[input:ans1]] {@1/0@}")
    '&#91;[input:ans1]] &#123;@1/0@}'
    """
    for order in ("[[", "{@", "{#"):
        text = text.replace(order, f"&#{ord(order[0])};{order[1]}")
    return text


def _text(tag: str, text: str) -> Element:
    return element(tag, element("text", text), format="html")


def _set(made: Element, tag: str, text: str) -> None:
    found = made.find(f"{tag}/text")
    assert found is not None
    found.text = text


def _field(part: QuestionPart, n: int) -> str:
    return f"<p>{_castext(with_tex(part.prompt, PICTURE))} [[input:ans{n}]] [[validation:ans{n}]]</p>"


def _string(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _right(part: QuestionPart, item: Item) -> str:
    """The right answer in Maxima; of choices all of them, with which is right."""
    if part.kind == "symbolic":
        return maxima(part.form, item)
    if part.kind == "numeric":
        return part.text
    rows = (
        f"[{n},{'true' if option.right else 'false'},{_string(_castext(with_tex(option.text, PICTURE)))}]"
        for n, option in enumerate(part.options, start=1)
    )
    return f"[{','.join(rows)}]"


# Where STACK writes stars: nowhere, in 3N and at spaces, and also between letters.
_NO_STARS, _STARS, _STARS_BETWEEN_LETTERS = "0", "4", "5"


def _input(part: QuestionPart, n: int) -> str:
    """The field of an answer; a number may have its unit behind it, which is a symbol to STACK."""
    formula, radio = part.kind == "symbolic", part.kind == "choice"
    units = _unit_words(part)
    shown = "radio" if radio else "algebraic" if formula or units else "numerical"
    letters = formula and all(len(name) == 1 for name in part.symbols)
    stars = _STARS_BETWEEN_LETTERS if letters else _STARS if formula or units else _NO_STARS
    told = (("name", f"ans{n}"), ("type", shown), ("tans", f"ta{n}"), ("boxsize", "20"), ("strictsyntax", "1"),
            ("insertstars", stars), ("syntaxhint", ""), ("syntaxattribute", "0"),
            ("forbidwords", ""), ("allowwords", ", ".join(units)), ("forbidfloat", "1" if formula else "0"),
            ("requirelowestterms", "0"), ("checkanswertype", "1" if formula else "0"),
            ("mustverify", "0" if radio else "1"), ("showvalidation", "0" if radio else "1"),
            ("options", ""))  # fmt: skip
    return f"<input>{flat(*told)}</input>"


def _unit_words(part: QuestionPart) -> dict[str, str]:
    """What each word of a unit is worth, in the unit of the answer: in TFLOP/s a GFLOP is 1/1000 and s is 1."""
    found: dict[str, str] = {}
    for name, times in part.units if part.kind == "numeric" else ():
        first, *others = re.findall(r"[A-Za-z]+", name) if name.isascii() else [""]
        worth = 1 / times if name.startswith(first) else Fraction(1)
        found |= {first: str(worth)} if first else {}
        for word in others:
            found.setdefault(word, "1")
    return found


def _answers(part: QuestionPart, item: Item, plain: bool = False) -> Iterator[tuple[str, str, Fraction, str]]:
    """What is compared with: a name, its text in Maxima, the credit, the feedback; the right one first.

    ``plain`` is without the symbols that relations eliminate.
    """
    if part.kind == "choice":
        order = sorted(enumerate(part.options, start=1), key=lambda one: not one[1].right)
        yield from (("option", str(n), option.credit, option.feedback) for n, option in order)
        return
    yield "right", maxima(without_relations(part.form, part), item) if plain else _right(part, item), Fraction(1), ""
    for one in part.recognised:
        assert one.form is not None
        form = without_relations(one.form, part) if plain else one.form
        told = maxima(form, item) if part.kind == "symbolic" else part.number(one.value)
        yield ", ".join(one.names), told, one.credit, one.feedback


@lru_cache(4096)  # variants have the same ones
def _feedback(tag: str, feedback: str) -> str:
    return as_text(_text(tag, _castext(with_tex(feedback, PICTURE))))


@lru_cache(256)
def _score(credit: Fraction) -> str:
    return number_text(credit, Fraction(1, 10**5))


def _tree(part: QuestionPart, n: int, item: Item) -> Element:
    stands = stands_for(part)
    answers = list(_answers(part, item, plain=bool(stands)))
    worth = {name: maxima(form, item) for name, form in stands.items()} | _unit_words(part)
    put = ",".join(f"{name}={text}" for name, text in worth.items())
    variables, given = (f"given{n}:subst([{put}],ans{n});", f"given{n}") if put else ("", f"ans{n}")
    test = {"symbolic": "AlgEquiv", "numeric": "NumAbsolute", "choice": "AlgEquiv"}[part.kind]
    values = (part.answer, *(one.value for one in part.recognised))
    options = [part.spread_text(one) for one in values] if part.kind == "numeric" else [""] * len(answers)
    made = element(
        "prt", element("name", f"prt{n}"), element("value", number_text(part.points, Fraction(1, 10**5))),
        element("autosimplify", "1"), element("feedbackstyle", "1"),
        element("feedbackvariables", element("text", variables)),
    )  # fmt: skip
    for at, ((name, told, credit, feedback), spread) in enumerate(zip(answers, options, strict=True)):
        before, after = _node(n, at, name, test, given, spread, _score(credit), credit == 1)
        made.append(ready(f"<node>{before}{flat(('tans', told))}{after}{_feedback('truefeedback', feedback)}"
                          f"{_otherwise(n, at, at + 1 == len(answers))}</node>"))  # fmt: skip
    return made


@lru_cache(4096)  # variants have the same ones
def _node(n: int, at: int, name: str, test: str, given: str, options: str, score: str, right: bool) -> tuple[str, str]:
    """What stands in a node before the answer that it compares with, and what follows up to the feedback."""
    before = flat(("name", str(at)), ("description", name), ("answertest", test), ("sans", given))
    after = flat(
        ("testoptions", options), ("quiet", "1"), ("truescoremode", "="), ("truescore", score),
        ("truepenalty", "" if right else "0"), ("truenextnode", "-1"), ("trueanswernote", f"prt{n}-{at + 1}-T"),
    )  # fmt: skip
    return before, after


@lru_cache(4096)
def _otherwise(n: int, at: int, last: bool) -> str:
    """What a node does with another answer."""
    told = flat(
        ("falsescoremode", "="), ("falsescore", "0"), ("falsepenalty", ""),
        ("falsenextnode", "-1" if last else str(at + 1)), ("falseanswernote", f"prt{n}-{at + 1}-F"),
    )  # fmt: skip
    return told + _feedback("falsefeedback", "")


def _tests(item: Item) -> Iterator[Element]:
    """Question tests: the right answers, and each recognised one of each part with the right ones of the others."""
    every = [list(_answers(part, item)) for part in item.parts]
    cases = [(0,) * len(every)]
    cases += [
        tuple(at if n == place else 0 for n in range(len(every)))
        for place, answers in enumerate(every) for at in range(1, len(answers))
    ]  # fmt: skip
    given = [
        [f"<testinput>{flat(('name', f'ans{n}'), ('value', text))}</testinput>" for _, text, _, _ in answers]
        for n, answers in enumerate(every, start=1)
    ]
    expected = [
        [_expected(n, at, _score(credit)) for at, (_, _, credit, _) in enumerate(answers)]
        for n, answers in enumerate(every, start=1)
    ]
    for number, case in enumerate(cases, start=1):
        names = "; ".join([answers[at][0] for answers, at in zip(every, case, strict=True)])
        described = flat(("testcase", str(number)), ("description", names))
        told = "".join([texts[at] for texts, at in (*zip(given, case, strict=True), *zip(expected, case, strict=True))])
        yield ready(f"<qtest>{described}{told}</qtest>")


@lru_cache(4096)  # variants have the same ones
def _expected(n: int, at: int, score: str) -> str:
    told = flat(("name", f"prt{n}"), ("expectedscore", score), ("expectedpenalty", "0"),
                ("expectedanswernote", f"prt{n}-{at + 1}-T"))  # fmt: skip
    return f"<expected>{told}</expected>"
