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

from symcomm.documents.render.prose import apart_from_numbers
from symcomm.exams.exports.item import Item, QuestionPart
from symcomm.exams.exports.markup import decimal, fill, markup, packed, unpacked, with_mathml, xml_file, zipped


def piece(title: str, item: Item) -> dict[str, Any]:
    """The file of an item, and what the manifest and the test say of it."""
    parts = {id(part): (n, part, [*_tests(part)]) for n, part in enumerate(item.parts, start=1)}
    blocks = [(_mathml(one), None, ()) if isinstance(one, str) else parts[id(one)] for one in item.blocks]
    text = fill("qti21-item.xml.jinja", item=item, parts=[*parts.values()], blocks=blocks, mathml=_mathml)
    file = packed(f"items/{item.name}.xml", xml_file([text]))
    return {"id": item.id, "group": item.group, "name": item.name, "title": item.title, "file": file,
            "media": item.media}  # fmt: skip


def whole(title: str, pieces: Sequence[dict[str, Any]]) -> dict[str, bytes]:
    """The zip file."""
    groups = [list(variants) for _, variants in groupby(pieces, key=lambda one: one["id"])]
    test = fill("qti21-test.xml.jinja", title=title or "symcomm", groups=groups)
    made = {"imsmanifest.xml": fill("qti21-manifest.xml.jinja", items=pieces), "test.xml": test}
    every = [*(item["file"] for item in pieces), *(packed(name, xml_file([text])) for name, text in made.items())]
    every += [packed(f"media/{name}", data) for name, data in unpacked(pieces).items()]
    return {"qti21.zip": zipped(every)}


def _tests(part: QuestionPart) -> Iterator[tuple[tuple[str, str] | str, str, object]]:
    """What an answer is compared with in turn, the right one first: bounds or an option, its points and feedback."""
    for one in part.answers if part.kind != "symbolic" else ():
        compared = f"C{one.value}" if part.options else part.bounds(one.value)
        points = _share(part.points, *one.credit.as_integer_ratio())
        yield compared, points, _mathml(one.feedback) if one.feedback else ""


@lru_cache(1024)
def _share(points: Fraction, top: int, bottom: int) -> str:
    return decimal(points * top / bottom)


@lru_cache(2048)  # parts of a question have the same text
def _mathml(html: str) -> object:
    """Text and elements as they are written down; a number only changes how lists are counted."""
    return markup(_of_kind(html) if "<ol" in html else apart_from_numbers(html, _of_kind))


@lru_cache(4096)  # variants differ in numbers
def _of_kind(html: str) -> str:
    return with_mathml(html, "../media/{}".format)
