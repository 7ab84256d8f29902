"""QTI 2.1: a package of items and a test whose sections draw one variant of each question.

Formulas are Presentation MathML. What is recognised earns its credit and shows its feedback. A formula as an answer is
a text that a person scores, with the key in a rubric for scorers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import groupby
from typing import Any

from symcomm.core.records import dataclass
from symcomm.documents.render.prose import apart_from_numbers
from symcomm.exams.exports.item import Item, QuestionPart
from symcomm.exams.exports.markup import fill, markup, stream, unpacked, with_mathml, xml_file, zipped


def piece(title: str, item: Item) -> dict[str, Any]:
    """The file of an item, and what the manifest and the test say of it."""
    places = {id(part): n for n, part in enumerate(item.parts, start=1)}
    text = fill("qti21-item.xml.jinja", item=item, parts=[(part, [*_tests(part)]) for part in item.parts],
                place=lambda part: places[id(part)], mathml=_mathml)  # fmt: skip
    return {"id": item.id, "group": item.group, "name": item.name, "title": item.title, "text": text,
            "media": item.media}  # fmt: skip


def whole(title: str, pieces: Sequence[dict[str, Any]]) -> dict[str, bytes]:
    """The zip file."""
    groups = [list(variants) for _, variants in groupby(pieces, key=lambda one: one["id"])]
    made = {f"items/{item['name']}.xml": xml_file([item["text"]]) for item in pieces}
    made["imsmanifest.xml"] = xml_file(stream("qti21-manifest.xml.jinja", items=pieces))
    made["test.xml"] = xml_file(stream("qti21-test.xml.jinja", title=title or "symcomm", groups=groups))
    return {"qti21.zip": zipped({**made, **{f"media/{name}": data for name, data in unpacked(pieces).items()}})}


@dataclass(frozen=True)
class _ScoredAnswer:
    """What an answer is compared with: a number or the name of an option, its credit and its feedback."""

    at: int
    value: Fraction | None
    option: str
    credit: Fraction
    feedback: str


def _tests(part: QuestionPart) -> Iterator[_ScoredAnswer]:
    """What is asked of an answer in turn, the right one first."""
    if part.kind == "choice":
        order = sorted(enumerate(part.options), key=lambda one: not one[1].right)
        for at, (place, option) in enumerate(order):
            yield _ScoredAnswer(at, None, f"C{place + 1}", option.credit, "" if option.right else option.feedback)
    if part.kind == "numeric":
        for at, one in enumerate(part.answers):
            yield _ScoredAnswer(at, one.value, "", one.credit, one.feedback)


def _mathml(html: str) -> object:
    return markup(_written(html))


@lru_cache(2048)  # parts of a question have the same text
def _written(html: str) -> str:
    """Text and elements as they are written down; a number only changes how lists are counted."""
    return _of_kind(html) if "<ol" in html else apart_from_numbers(html, _of_kind)


@lru_cache(4096)  # variants differ in numbers
def _of_kind(html: str) -> str:
    return with_mathml(html, "../media/{}".format)
