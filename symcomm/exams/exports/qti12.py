"""QTI 1.2 as Canvas imports it: a zip with a quiz in which each question is a group that draws one of its variants.

Canvas gives a number all points or none and has no questions of several answers: a recognised answer that is worth less
than all points is a wrong one, and each part is a question of its own below the whole text. A formula is an essay.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import partial
from itertools import groupby
from typing import Any

from symcomm.exams.exports.item import Item, number_text
from symcomm.exams.exports.markup import equation_image, fill, packed, streamed, unpacked, with_tex, xml_file, zipped

_ID = "symcomm_quiz"
_PICTURE = "$IMS-CC-FILEBASE$/symcomm/{}".format
_TYPES = {"numeric": "numerical_question", "choice": "multiple_choice_question", "symbolic": "essay_question"}


def piece(title: str, item: Item, mathjax: bool = False) -> dict[str, Any]:
    r"""The parts of an item, each with its group, with formulas as images that Canvas draws itself.

    With ``mathjax`` they stand in ``\(...\)``, for a Canvas where MathJax is on.
    """
    html = partial(with_tex, picture=_PICTURE, maths=None if mathjax else equation_image)
    several = ", part {}".format if len(item.parts) > 1 else "".format
    parts = [
        {
            "worth": part.points, "points": _decimal(part.points), "ident": f"{item.group}_p{n}",
            "title": f"{item.title}{several(n)}",
            "text": fill("qti12-item.xml.jinja", item=item, part=part, n=n, html=html, text="".join(
                html(block if isinstance(block, str) else f"<p><strong>{block.prompt}</strong></p>")
                for block in item.blocks if isinstance(block, str) or block is part
            ), type=_TYPES[part.kind], points=_decimal(part.points),
                names=[f"c{at}" for at in range(1, 1 + len(part.options))],
                right=[one.value for one in part.answers if one.credit == 1 and part.kind != "symbolic"]),
        }
        for n, part in enumerate(item.parts, start=1)
    ]  # fmt: skip
    return {"id": item.id, "parts": parts, "media": item.media}


def whole(title: str, pieces: Sequence[dict[str, Any]], name: str = "qti12") -> dict[str, bytes]:
    """The zip file."""
    told, media = title or "symcomm", {f"web_resources/symcomm/{at}": data for at, data in unpacked(pieces).items()}
    groups = [
        group for _, variants in groupby(pieces, key=lambda one: one["id"])
        for group in zip(*(one["parts"] for one in variants), strict=True)
    ]  # fmt: skip
    points = _decimal(sum((group[0]["worth"] for group in groups), Fraction(0)))
    made = {
        f"{_ID}/{_ID}.xml": streamed("qti12.xml.jinja", title=told, groups=groups),
        f"{_ID}/assessment_meta.xml": streamed("qti12-meta.xml.jinja", title=told, points=points),
        "imsmanifest.xml": streamed("qti12-manifest.xml.jinja", media=sorted(media)),
    }
    files: dict[str, bytes | Iterator[bytes]] = {**media, **{at: xml_file(texts) for at, texts in made.items()}}
    return {f"{name}.zip": zipped(packed(at, data) for at, data in files.items())}


def _decimal(number: Fraction) -> str:
    text = number_text(number, Fraction(1, 10**5))
    return text if "." in text else f"{text}.0"
