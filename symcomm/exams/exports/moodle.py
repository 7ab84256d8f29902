"""Moodle XML: a category a question, so that a quiz draws one of its variants.

Numbers are ``numerical`` questions with units, choices ``multichoice``, several answers ``cloze``; a formula is an
``essay`` with its key for the grader (STACK checks formulas). The rules were found with Moodle 4.2: ``tolerance`` is
absolute, and credit is one of ``FRACTIONS``.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import groupby
from xml.etree.ElementTree import Element

from symcomm.core.errors import DocumentError
from symcomm.exams.exports.item import Item, QuestionOption, QuestionPart, Recognised, number_text
from symcomm.exams.exports.markup import as_text, element, file_of, ready, with_tex

FRACTIONS = ("100", "90", "83.33333", "80", "75", "70", "66.66667", "60", "50", "40", "33.33333", "30", "25", "20",
             "16.66667", "14.28571", "12.5", "11.11111", "10", "5", "0")  # fmt: skip
PICTURE = "@@PLUGINFILE@@/{}".format


def piece(title: str, item: Item) -> list[str]:
    """A question and its category. Raises ``DocumentError`` for a credit that Moodle does not know."""
    return [as_text(category(title, item)), as_text(_question(item))]


def whole(title: str, pieces: Sequence[list[str]]) -> dict[str, bytes]:
    """One file with all questions."""
    return {"moodle.xml": quiz(pieces)}


def quiz(pieces: Sequence[list[str]]) -> bytes:
    """Questions below their categories."""
    return file_of("quiz", (text for head, group in groupby(pieces, key=lambda one: one[0])
                            for text in (head, *(question for _, question in group))))  # fmt: skip


def category(title: str, item: Item) -> Element:
    """The category that holds the variants of a question; a slash in a name is written twice."""
    path = "/".join(name.replace("/", "//") for name in (title or "symcomm", f"{item.title} [{item.id}]"))
    return element("question", element("category", element("text", f"$course$/{path}")), type="category")


def html(tag: str, content: str) -> Element:
    """An element with HTML text in it."""
    return element(tag, element("text", with_tex(content, PICTURE)), format="html")


@lru_cache(4096)  # variants have the same ones; shared, and never changed after
def _feedback(content: str) -> Element:
    return ready(as_text(html("feedback", content)))


def head(item: Item, body: str, feedback: str, kind: str) -> Element:
    """A question with its name, text, pictures and general feedback; ``body`` is ready HTML."""
    text = element("questiontext", element("text", body), format="html")
    for medium in item.media:
        data = base64.b64encode(medium.data).decode("ascii")
        text.append(element("file", data, name=medium.name, path="/", encoding="base64"))
    return element(
        "question", element("name", element("text", f"{item.title}, variant {item.variant}")), text,
        html("generalfeedback", feedback), element("defaultgrade", number_text(item.points, Fraction(1, 10**5))),
        element("penalty", "0.1"), element("hidden", "0"), element("idnumber", item.name), type=kind,
    )  # fmt: skip


def fraction(credit: Fraction, item: Item) -> str:
    """A share of the points as Moodle knows it."""
    found = _percent(credit)
    if found is None:
        known = ", ".join(FRACTIONS)
        raise DocumentError(f"{item.id}: Moodle knows no credit of {credit}", item.span, f"percents it knows: {known}")
    return found


@lru_cache(256)
def _percent(credit: Fraction) -> str | None:
    return next((text for text in FRACTIONS if abs(Fraction(text) / 100 - credit) < Fraction(1, 10**6)), None)


def worked(item: Item) -> str:
    """The solutions of all parts."""
    return "".join(f"<p>{part.prompt} {part.worked}</p>" for part in item.parts)


def _question(item: Item) -> Element:
    if any(part.kind == "symbolic" for part in item.parts):
        return _essay(item)
    if item.kind == "multi-part":
        body = "".join(
            without_gaps(with_tex(block, PICTURE)) if isinstance(block, str) else _gap(block, item)
            for block in item.blocks
        )
        return head(item, body, worked(item), "cloze")
    (part,) = item.parts
    return _multichoice(item, part) if part.kind == "choice" else _numerical(item, part)


def text_of(item: Item) -> str:
    """The text of a question, with the words that stand before each answer."""
    pieces = (block if isinstance(block, str) else f"<p>{block.prompt}</p>" for block in item.blocks)
    return without_gaps("".join(with_tex(piece, PICTURE) for piece in pieces))


def without_gaps(text: str) -> str:
    """HTML in which nothing reads as a gap of a cloze question.

    >>> without_gaps("{1:NUMERICAL:=2}")
    '&#123;1:NUMERICAL:=2}'
    """
    return re.sub(r"\{(?=\d*:[A-Z_]+:)", "&#123;", text)


def _numerical(item: Item, part: QuestionPart) -> Element:
    made = head(item, text_of(item), worked(item), "numerical")
    for one in (Recognised((), part.answer, None, Fraction(1), ""), *part.recognised):
        made.append(
            _answer(fraction(one.credit, item), part.number(one.value), part.spread_text(one.value), one.feedback)
        )
    made.append(_answer("0", "*", "0", ""))
    if part.units:
        made.append(ready(_units(part.units)))
    for tag, said in (("unitgradingtype", "0"), ("unitpenalty", "0.1"),  # a number alone is right: its unit is named
                      ("showunits", "0" if part.units else "3"), ("unitsleft", "0")):  # fmt: skip
        made.append(element(tag, said))
    return made


def _answer(share: str, number: str, spread: str, feedback: str) -> Element:
    """An answer with its feedback, written down: of numbers, there are hundreds in a variant."""
    return ready(f'<answer fraction="{share}" format="moodle_auto_format"><text>{number}</text>'
                 f"<tolerance>{spread}</tolerance>{_feedback(feedback).text}</answer>")  # fmt: skip


@lru_cache(256)
def _units(units: tuple[tuple[str, Fraction], ...]) -> str:
    """The units of an answer with what its number is multiplied by."""
    return as_text(element("units", *(
        element("unit", element("multiplier", number_text(times, times / 10**7)), element("unit_name", name))
        for name, times in units
    )))  # fmt: skip


def _multichoice(item: Item, part: QuestionPart) -> Element:
    made = head(item, text_of(item), worked(item), "multichoice")
    for tag, said in (("single", "true"), ("shuffleanswers", "true"), ("answernumbering", "ABCD"),
                      ("showstandardinstruction", "0")):  # fmt: skip
        made.append(element(tag, said))
    for tag in ("correctfeedback", "partiallycorrectfeedback", "incorrectfeedback"):
        made.append(html(tag, ""))
    for option in part.options:
        answer = html("answer", option.text)
        answer.set("fraction", fraction(option.credit, item))
        answer.append(_feedback(option.feedback))
        made.append(answer)
    return made


def _essay(item: Item) -> Element:
    made = head(item, text_of(item), worked(item), "essay")
    for tag, said in (("responseformat", "editor"), ("responserequired", "1"), ("responsefieldlines", "10"),
                      ("attachments", "0"), ("attachmentsrequired", "0")):  # fmt: skip
        made.append(element(tag, said))
    made.append(html("graderinfo", worked(item)))
    made.append(html("responsetemplate", ""))
    return made


# -- cloze ------------------------------------------------------------------------------------------


def _gap(part: QuestionPart, item: Item) -> str:
    """``{2:NUMERICAL:=2.199:0.01~%50%1.0995:0.01#why}`` behind the words that lead to it."""
    if part.points.denominator != 1:
        raise DocumentError(f"{item.id}: the parts of a cloze question have whole points, not {part.points}", item.span)
    if part.kind == "choice":
        kind, answers = "MULTICHOICE_V", [_choice(option, item) for option in part.options]
    else:
        right = Recognised((), part.answer, None, Fraction(1), "")
        kind, answers = "NUMERICAL", [_number(one, part, item) for one in (right, *part.recognised)]
    lead = without_gaps(with_tex(part.prompt, PICTURE))
    return f"<p>{lead} {{{part.points}:{kind}:{'~'.join(answers)}}}</p>"


def _number(one: Recognised, part: QuestionPart, item: Item) -> str:
    said = f"{part.number(one.value)}:{part.spread_text(one.value)}"
    return _share(one.credit, item) + said + _because(one.feedback)


def _choice(option: QuestionOption, item: Item) -> str:
    return _share(option.credit, item) + _quoted(option.text) + _because(option.feedback)


def _share(credit: Fraction, item: Item) -> str:
    return "=" if credit == 1 else f"%{fraction(credit, item)}%"


def _because(feedback: str) -> str:
    return f"#{_quoted(feedback)}" if feedback else ""


def _quoted(content: str) -> str:
    r"""HTML inside of a gap, where ``} # ~ / " \`` have a backslash before them."""
    return re.sub(r'[}#~/"\\]', r"\\\g<0>", with_tex(content, PICTURE))
