"""Moodle XML: a category a question, so that a quiz draws one of its variants.

Numbers are ``numerical`` questions with units, choices ``multichoice``, several answers ``cloze``; a formula is an
``essay`` with its key for the grader (STACK checks formulas). The rules were found with Moodle 4.2: ``tolerance`` is
absolute, and credit is one of ``FRACTIONS``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import chain, groupby

from symcomm.core.errors import DocumentError
from symcomm.exams.exports.item import Item, QuestionPart
from symcomm.exams.exports.markup import escaped, fill, markup, with_tex, xml_file

FRACTIONS = ("100", "90", "83.33333", "80", "75", "70", "66.66667", "60", "50", "40", "33.33333", "30", "25", "20",
             "16.66667", "14.28571", "12.5", "11.11111", "10", "5", "0")  # fmt: skip
_PICTURE = "@@PLUGINFILE@@/{}".format


def piece(title: str, item: Item) -> list[str]:
    """A question and its category. Raises ``DocumentError`` for a credit that Moodle does not know."""
    first = item.parts[0]
    kind = {"choice": "multichoice", "multi-part": "cloze"}.get(item.kind, "numerical")
    if any(part.kind == "symbolic" for part in item.parts):
        kind = "essay"
    gaps = kind == "cloze"
    text = "".join(
        without_gaps(tex(block)) if isinstance(block, str) else
        _gap(block, item) if gaps else without_gaps(tex(f"<p>{block.prompt}</p>"))
        for block in item.blocks
    )  # fmt: skip
    said = [(one.credit, tex(one.text), "", one.feedback) for one in first.options if kind == "multichoice"]
    if kind == "numerical":
        said = [(one.credit, *first.texts(one.value), one.feedback) for one in first.answers]
    answers = [(fraction(credit, item), said, off, _written(feedback)) for credit, said, off, feedback in said]
    made = fill("moodle.xml.jinja", kind=kind, title=item.title, variant=item.variant, name=item.name, text=text,
                worked=tex(item.worked), points=item.points, media=item.media, units=first.units,
                answers=answers)  # fmt: skip
    return [category(title, item), made]


def whole(title: str, pieces: Sequence[list[str]]) -> dict[str, bytes]:
    """One file with all questions."""
    return {"moodle.xml": quiz(pieces)}


def quiz(pieces: Sequence[list[str]]) -> bytes:
    """Questions below their categories."""
    groups = groupby(pieces, key=lambda one: one[0])
    texts = (text for head, group in groups for text in (head, *(one[1] for one in group)))
    made = "".join(chain(["<quiz>"], texts, ["</quiz>"])).replace("<text></text>", "<text />")
    return b"".join(xml_file([made]))


def category(title: str, item: Item) -> str:
    """The category that holds the variants of a question; a slash in a name is written twice."""
    return _category(title or "symcomm", f"{item.title} [{item.id}]")


@lru_cache(1024)
def _category(*names: str) -> str:
    return fill("category.xml.jinja", path="/".join(name.replace("/", "//") for name in names))


def tex(content: str) -> str:
    """HTML with its formulas in TeX, and pictures that travel with the question."""
    return with_tex(content, _PICTURE)


@lru_cache(4096)  # variants have the same feedback
def _written(feedback: str) -> object:
    return markup(escaped(tex(feedback)))


def fraction(credit: Fraction, item: Item) -> str:
    """A share of the points as Moodle knows it."""
    found = _percent(*credit.as_integer_ratio())
    if found is None:
        known = ", ".join(FRACTIONS)
        raise DocumentError(f"{item.id}: Moodle knows no credit of {credit}", item.span, f"percents it knows: {known}")
    return found


@lru_cache(256)
def _percent(top: int, bottom: int) -> str | None:
    credit = Fraction(top, bottom)
    return next((text for text in FRACTIONS if abs(Fraction(text) / 100 - credit) < Fraction(1, 10**6)), None)


def without_gaps(text: str) -> str:
    """HTML in which nothing reads as a gap of a cloze question.

    >>> without_gaps("{1:NUMERICAL:=2}")
    '&#123;1:NUMERICAL:=2}'
    """
    return re.sub(r"\{(?=\d*:[A-Z_]+:)", "&#123;", text)


# -- cloze ------------------------------------------------------------------------------------------


def _gap(part: QuestionPart, item: Item) -> str:
    """``{2:NUMERICAL:=2.199:0.01~%50%1.0995:0.01#why}`` behind the words that lead to it."""
    if part.points.denominator != 1:
        raise DocumentError(f"{item.id}: the parts of a cloze question have whole points, not {part.points}", item.span)

    def answer(said: str, credit: Fraction, feedback: str) -> str:
        share = "=" if credit == 1 else f"%{fraction(credit, item)}%"
        return share + said + (f"#{_quoted(feedback)}" if feedback else "")

    if part.kind == "choice":
        kind, said = "MULTICHOICE_V", [answer(_quoted(one.text), one.credit, one.feedback) for one in part.options]
    else:
        kind, said = "NUMERICAL", [
            answer(":".join(part.texts(one.value)), one.credit, one.feedback)
            for one in part.answers
        ]  # fmt: skip
    return f"<p>{without_gaps(tex(part.prompt))} {{{part.points}:{kind}:{'~'.join(said)}}}</p>"


@lru_cache(4096)
def _quoted(content: str) -> str:
    r"""HTML inside of a gap, where ``} # ~ / " \`` have a backslash before them."""
    return re.sub(r'[}#~/"\\]', r"\\\g<0>", tex(content))
