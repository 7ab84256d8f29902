"""QTI 1.2 as Canvas imports it: a zip with a quiz in which each question is a group that draws one of its variants.

Canvas gives a number all points or none and has no questions of several answers: credit for a recognised answer is
told in the feedback, and each part is a question of its own below the whole text. A formula is an essay question.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import groupby
from typing import Any
from xml.etree.ElementTree import Element

from symcomm.exams.exports.item import Item, QuestionPart, number_text
from symcomm.exams.exports.markup import (
    MARK,
    as_text,
    carried,
    element,
    equation_image,
    escaped,
    ready,
    unpacked,
    with_tex,
    xml,
    zipped,
)

_XSI = "http://www.w3.org/2001/XMLSchema-instance"
_ID = "symcomm_quiz"
_PICTURE = "$IMS-CC-FILEBASE$/symcomm/{}".format


def piece(title: str, item: Item, mathjax: bool = False) -> dict[str, Any]:
    r"""The parts of an item, each with its group, with formulas as images that Canvas draws itself.

    With ``mathjax`` they stand in ``\(...\)``, for a Canvas where MathJax is on.
    """
    parts = [[str(part.points), as_text(_group(item, n)), as_text(_item(item, n, mathjax))]
             for n, part in enumerate(item.parts)]  # fmt: skip
    return {"id": item.id, "parts": parts, "media": carried(item)}


def whole(title: str, pieces: Sequence[dict[str, Any]], name: str = "qti12") -> dict[str, bytes]:
    """The zip file."""
    inside: list[str] = []
    points = Fraction(0)
    for _, group in groupby(pieces, key=lambda one: one["id"]):
        variants = list(group)
        for n, (worth, head, _) in enumerate(variants[0]["parts"]):
            points += Fraction(worth)
            start, end = head.rsplit("</", 1)  # variants stand at the end of their group
            inside += [start, *(one["parts"][n][2] for one in variants), f"</{end}"]
    return {f"{name}.zip": _package(title, "".join(inside), points, unpacked(pieces))}


def _package(title: str, questions: str, points: Fraction, pictures: Mapping[str, bytes]) -> bytes:
    root = element("section", MARK, ident="root_section")
    quiz = element(
        "questestinterop",
        element("assessment",
                element("qtimetadata", _field("qtimetadatafield", "cc_maxattempts", "1")), root,
                ident=_ID, title=title or "symcomm"),
        xmlns="http://www.imsglobal.org/xsd/ims_qtiasiv1p2",
        **_located("http://www.imsglobal.org/xsd/ims_qtiasiv1p2", "http://www.imsglobal.org/xsd/ims_qtiasiv1p2p1.xsd"),
    )  # fmt: skip
    media = {f"web_resources/symcomm/{name}": data for name, data in pictures.items()}
    told = xml(quiz).replace(MARK.encode(), questions.encode())
    return zipped({
        f"{_ID}/{_ID}.xml": told, f"{_ID}/assessment_meta.xml": xml(_meta(title, points)),
        "imsmanifest.xml": xml(_manifest(sorted(media))), **media,
    })  # fmt: skip


def _located(space: str, schema: str) -> dict[str, str]:
    return {"xmlns:xsi": _XSI, "xsi:schemaLocation": f"{space} {schema}"}


def _meta(title: str, points: Fraction) -> Element:
    space = "http://canvas.instructure.com/xsd/cccv1p0"
    told = (("title", title or "symcomm"), ("description", ""), ("quiz_type", "assignment"),
            ("points_possible", _decimal(points)), ("allowed_attempts", "1"))  # fmt: skip
    return element("quiz", *(element(tag, said) for tag, said in told), identifier=_ID, xmlns=space,
                   **_located(space, "https://canvas.instructure.com/xsd/cccv1p0.xsd"))  # fmt: skip


def _manifest(media: Sequence[str]) -> Element:
    space = "http://www.imsglobal.org/xsd/imsccv1p1/imscp_v1p1"
    resources = element(
        "resources",
        element("resource", element("file", href=f"{_ID}/{_ID}.xml"),
                element("dependency", identifierref=f"{_ID}_meta"), identifier=_ID, type="imsqti_xmlv1p2"),
        element("resource", element("file", href=f"{_ID}/assessment_meta.xml"), identifier=f"{_ID}_meta",
                type="associatedcontent/imscc_xmlv1p1/learning-application-resource",
                href=f"{_ID}/assessment_meta.xml"),
        *(element("resource", element("file", href=name), identifier=f"media_{n}", type="webcontent", href=name)
          for n, name in enumerate(media, start=1)),
    )  # fmt: skip
    head = element("metadata", element("schema", "IMS Content"), element("schemaversion", "1.1.3"))
    return element("manifest", head, element("organizations"), resources, identifier=f"man_{_ID}", xmlns=space,
                   **_located(space, "http://www.imsglobal.org/xsd/imscp_v1p1.xsd"))  # fmt: skip


def _group(item: Item, n: int) -> Element:
    part = item.parts[n]
    several = f", part {n + 1}" if len(item.parts) > 1 else ""
    selection = element("selection", element("selection_number", "1"),
                        element("selection_extension", element("points_per_item", _decimal(part.points))))  # fmt: skip
    return element("section", element("selection_ordering", selection), ident=f"{item.group}_p{n + 1}",
                   title=f"{item.title}{several}")  # fmt: skip


def _decimal(number: Fraction) -> str:
    text = number_text(number, Fraction(1, 10**5))
    return text if "." in text else f"{text}.0"


def _field(tag: str, label: str, entry: str) -> Element:
    return element(tag, element("fieldlabel", label), element("fieldentry", entry))


_TYPES = {"numeric": "numerical_question", "choice": "multiple_choice_question", "symbolic": "essay_question"}


def _item(item: Item, n: int, mathjax: bool) -> Element:
    part = item.parts[n]

    def material(content: str) -> Element:
        return _material([content], mathjax)

    pieces = [b if isinstance(b, str) else f"<p><strong>{b.prompt}</strong></p>" for b in item.blocks
              if isinstance(b, str) or b is part]  # fmt: skip
    fields = [("question_type", _TYPES[part.kind]), ("points_possible", _decimal(part.points))]
    presentation = element("presentation", _material(pieces, mathjax))
    conditions: list[Element] = []
    feedback = {"general_fb": f"<p>{part.worked}</p>"}
    if part.kind == "choice":
        names = [f"c{at}" for at in range(1, len(part.options) + 1)]
        fields.append(("original_answer_ids", ",".join(names)))
        choices = element("render_choice", *(
            element("response_label", material(option.text), ident=name)
            for name, option in zip(names, part.options, strict=True)
        ))  # fmt: skip
        presentation.append(element("response_lid", choices, ident="response1", rcardinality="Single"))
        for name, option in zip(names, part.options, strict=True):
            if option.feedback:
                feedback[f"{name}_fb"] = f"<p>{option.feedback}</p>"
                conditions.append(_shows(_equals(name), f"{name}_fb"))
        right = [_equals(name) for name, option in zip(names, part.options, strict=True) if option.right]
    else:
        label = element("response_label", ident="answer1", **({"rshuffle": "No"} if part.kind == "symbolic" else {}))
        blank = element("render_fib", label, **({"fibtype": "Decimal"} if part.kind == "numeric" else {}))
        presentation.append(element("response_str", blank, ident="response1", rcardinality="Single"))
        right = [*_numbers(part)] if part.kind == "numeric" else []
        if part.kind == "numeric" and part.recognised:
            feedback["general_incorrect_fb"] = _explained(part)
    conditions += [ready(_otherwise(name)) for name in feedback if name.startswith("general")]
    for one in right:
        score = element("setvar", "100", action="Set", varname="SCORE")
        conditions.append(element("respcondition", element("conditionvar", one), score, continue_="No"))
    if part.kind == "symbolic":
        conditions.append(element("respcondition", element("conditionvar", element("other")), continue_="No"))
    scores = element("decvar", maxvalue="100", minvalue="0", varname="SCORE", vartype="Decimal")
    metadata = ready(_metadata(tuple(fields)))
    return element(
        "item", metadata, presentation, element("resprocessing", element("outcomes", scores), *conditions),
        *(element("itemfeedback", element("flow_mat", material(said)), ident=name) for name, said in feedback.items()),
        ident=f"{item.name}_p{n + 1}", title=f"{item.title}, variant {item.variant}",
    )  # fmt: skip


def _material(pieces: Sequence[str], mathjax: bool) -> Element:
    html = "".join([with_tex(piece, _PICTURE, None if mathjax else equation_image) for piece in pieces])
    return ready(f'<material><mattext texttype="text/html">{escaped(html)}</mattext></material>' if html else _EMPTY)


_EMPTY = '<material><mattext texttype="text/html" /></material>'


@lru_cache(1024)  # variants have the same ones
def _metadata(fields: tuple[tuple[str, str], ...]) -> str:
    made = (_field("qtimetadatafield", *field) for field in fields)
    return as_text(element("itemmetadata", element("qtimetadata", *made)))


@lru_cache(64)
def _otherwise(name: str) -> str:
    """What shows feedback whatever is answered."""
    return as_text(_shows(element("other"), name))


def _equals(text: str) -> Element:
    return element("varequal", text, respident="response1")


def _shows(condition: Element, name: str) -> Element:
    return element("respcondition", element("conditionvar", condition),
                   element("displayfeedback", feedbacktype="Response", linkrefid=name), continue_="Yes")  # fmt: skip


def _numbers(part: QuestionPart) -> Iterator[Element]:
    """The numbers that earn all points: the exact one, or what lies around it."""
    for value in (part.answer, *(one.value for one in part.recognised if one.credit == 1)):
        low, high = part.bounds(value)
        around = f'<vargte respident="response1">{low}</vargte><varlte respident="response1">{high}</varlte>'
        exact = f'<varequal respident="response1">{part.number(value)}</varequal>'
        yield ready(f"<or>{exact}<and>{around}</and></or>")


def _explained(part: QuestionPart) -> str:
    """What recognised answers come of, and what a grader gives for them."""
    lines = (
        f"<li>{part.number(one.value)} {part.unit} ({number_text(one.credit * 100, Fraction(1))} %): "
        f"{one.feedback}</li>"
        for one in part.recognised if one.credit != 1
    )  # fmt: skip
    return f"<ul>{''.join(lines)}</ul>"
