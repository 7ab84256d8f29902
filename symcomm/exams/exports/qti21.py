"""QTI 2.1: a package of items and a test whose sections draw one variant of each question.

Formulas are Presentation MathML. What is recognised earns its credit and shows its feedback. A formula as an answer is
a text that a person scores, with the key in a rubric for scorers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import lru_cache
from html import escape
from itertools import groupby
from typing import Any
from xml.etree.ElementTree import Element

from symcomm.documents.render.prose import with_numbers, without_numbers
from symcomm.exams.exports.item import Item, Medium, QuestionPart, number_text
from symcomm.exams.exports.markup import Packed, as_text, carried, element, ready, unpacked, with_mathml, xml, zipped

_SPACE = "http://www.imsglobal.org/xsd/imsqti_v2p1"
_PACKAGE = "http://www.imsglobal.org/xsd/imscp_v1p1"
_XSI = "http://www.w3.org/2001/XMLSchema-instance"
_TYPES = {"numeric": "float", "choice": "identifier", "symbolic": "string"}


def piece(title: str, item: Item) -> dict[str, Any]:
    """The file of an item, and what the manifest and the test say of it."""
    return {"id": item.id, "variant": item.variant, "title": item.title, "file": Packed.of(xml(_item(item))).telling,
            "media": carried(item)}  # fmt: skip


def whole(title: str, pieces: Sequence[dict[str, Any]]) -> dict[str, bytes]:
    """The zip file."""
    media = unpacked(pieces)
    items = [
        Item(one["id"], one["variant"], one["title"], (), tuple(Medium(name, media[name], "") for name in one["media"]))
        for one in pieces
    ]
    made = {f"items/{item.name}.xml": Packed.told(one["file"]) for item, one in zip(items, pieces, strict=True)}
    told = {"imsmanifest.xml": xml(_manifest(items)), "test.xml": xml(_test(title, items))}
    return {"qti21.zip": zipped({**told, **made, **{f"media/{name}": data for name, data in media.items()}})}


def _root(tag: str, *inside: Element, **attributes: str) -> Element:
    schema = f"{_SPACE} http://www.imsglobal.org/xsd/qti/qtiv2p1/imsqti_v2p1p1.xsd"
    return element(tag, *inside, xmlns=_SPACE, **{"xmlns:xsi": _XSI, "xsi:schemaLocation": schema}, **attributes)


def _manifest(items: Sequence[Item]) -> Element:
    test = element("resource", element("file", href="test.xml"),
                   *(element("dependency", identifierref=item.name) for item in items),
                   identifier="symcomm_test", type="imsqti_test_xmlv2p1", href="test.xml")  # fmt: skip
    resources = element("resources", test)
    for item in items:
        href = f"items/{item.name}.xml"
        used = (element("file", href=f"media/{medium.name}") for medium in item.media)
        resources.append(element("resource", element("file", href=href), *used, identifier=item.name,
                                 type="imsqti_item_xmlv2p1", href=href))  # fmt: skip
    head = element("metadata", element("schema", "QTIv2.1 Package"), element("schemaversion", "1.0.0"))
    schema = f"{_PACKAGE} http://www.imsglobal.org/xsd/qti/qtiv2p1/qtiv2p1_imscpv1p2_v1p0.xsd"
    return element("manifest", head, element("organizations"), resources, xmlns=_PACKAGE, identifier="MANIFEST-symcomm",
                   **{"xmlns:xsi": _XSI, "xsi:schemaLocation": schema})  # fmt: skip


def _test(title: str, items: Sequence[Item]) -> Element:
    sections = []
    for _, variants in groupby(items, key=lambda item: item.id):
        every = list(variants)
        references = (element("assessmentItemRef", identifier=i.name, href=f"items/{i.name}.xml") for i in every)
        sections.append(element("assessmentSection", element("selection", select="1"), *references,
                                identifier=f"S_{every[0].group}", title=every[0].title, visible="true"))  # fmt: skip
    part = element("testPart", *sections, identifier="P1", navigationMode="nonlinear", submissionMode="simultaneous")
    whole = element("sum", element("testVariables", variableIdentifier="SCORE"))
    outcome = element("outcomeProcessing", element("setOutcomeValue", whole, identifier="SCORE"))
    score = element("outcomeDeclaration", identifier="SCORE", cardinality="single", baseType="float")
    return _root("assessmentTest", score, part, outcome, identifier="symcomm_test", title=title or "symcomm")


def _item(item: Item) -> Element:
    places = {id(part): n for n, part in enumerate(item.parts, start=1)}
    made = _root("assessmentItem", identifier=item.name, title=f"{item.title}, variant {item.variant}",
                 adaptive="false", timeDependent="false")  # fmt: skip
    for part in item.parts:
        declared = element("responseDeclaration", identifier=f"R{places[id(part)]}", cardinality="single",
                           baseType=_TYPES[part.kind])  # fmt: skip
        if part.kind != "symbolic":
            declared.append(element("correctResponse", element("value", _right(part))))
        made.append(declared)
    for name, number in (("SCORE", Fraction(0)), ("MAXSCORE", item.points)):
        value = element("defaultValue", element("value", _decimal(number)))
        made.append(element("outcomeDeclaration", value, identifier=name, cardinality="single", baseType="float"))
    feedback = [("WORKED", "WORKED", "".join(f"<p>{part.prompt} {part.worked}</p>" for part in item.parts))]
    processing = element("responseProcessing", ready(_set("WORKED", _value("identifier", "WORKED"))))
    for part in item.parts:
        n = places[id(part)]
        unanswered = element("responseIf", element("isNull", element("variable", identifier=f"R{n}")))
        condition = element("responseCondition", unanswered)  # some engines compare nothing with a number, and fail
        for at, (test, credit, said) in enumerate(_tests(part, n)):
            earned = _value("float", _decimal(part.points * credit))
            then = _set("SCORE", f'<sum><variable identifier="SCORE" />{earned}</sum>')
            if said:
                then += _set(f"FEEDBACK{n}", _value("identifier", f"F{at}"))
                feedback.append((f"FEEDBACK{n}", f"F{at}", f"<p>{said}</p>"))
            condition.append(ready(f"<responseElseIf>{test}{then}</responseElseIf>"))
        if len(condition) > 1:
            processing.append(condition)
    for outcome in dict.fromkeys(name for name, _, _ in feedback):
        made.append(element("outcomeDeclaration", identifier=outcome, cardinality="single", baseType="identifier"))
    body = element("itemBody")
    for block in item.blocks:
        body.append(_div(block) if isinstance(block, str) else _field(block, places[id(block)]))
    for part in item.parts:
        if part.kind == "symbolic":
            body.append(element("rubricBlock", _div(f"<p>{part.prompt} {part.worked}</p>"), view="scorer"))
    made.extend([body, processing])
    for outcome, name, said in feedback:
        made.append(element("modalFeedback", _div(said), outcomeIdentifier=outcome, identifier=name, showHide="show"))
    return made


def _decimal(number: Fraction) -> str:
    return number_text(number, Fraction(1, 10**5))


def _div(html: str) -> Element:
    return ready(f"<div>{_written(html)}</div>")


@lru_cache(2048)  # parts of a question have the same text
def _written(html: str) -> str:
    """Text and elements as they are written down; a number only changes how lists are counted."""
    kind, numbers = (html, []) if "<ol" in html else without_numbers(html)
    return with_numbers(_of_kind(kind), numbers)


@lru_cache(4096)  # variants differ in numbers
def _of_kind(html: str) -> str:
    return "".join(
        escape(one, quote=False) if isinstance(one, str) else as_text(one)
        for one in with_mathml(html, "../media/{}".format)
    )


def _field(part: QuestionPart, n: int) -> Element:
    prompt = ready(_written(part.prompt))
    if part.kind == "choice":
        choices = (
            element("simpleChoice", ready(_written(option.text)), identifier=_choice(at))
            for at, option in enumerate(part.options)
        )
        return element("choiceInteraction", element("prompt", prompt), *choices, responseIdentifier=f"R{n}",
                       shuffle="true", maxChoices="1")  # fmt: skip
    if part.kind == "symbolic":
        return element("extendedTextInteraction", element("prompt", prompt), responseIdentifier=f"R{n}",
                       expectedLines="2")  # fmt: skip
    entry = element("textEntryInteraction", responseIdentifier=f"R{n}", expectedLength="15")
    return element("p", prompt, " ", entry, f" {part.unit}".rstrip())


def _choice(at: int) -> str:
    return f"C{at + 1}"


def _right(part: QuestionPart) -> str:
    if part.kind == "numeric":
        return part.text
    return next(_choice(at) for at, option in enumerate(part.options) if option.right)


# Of words of ours and numbers, written down as text: there are hundreds in an item.


def _value(kind: str, text: str) -> str:
    return f'<baseValue baseType="{kind}">{text}</baseValue>'


def _set(name: str, value: str) -> str:
    return f'<setOutcomeValue identifier="{name}">{value}</setOutcomeValue>'


def _tests(part: QuestionPart, n: int) -> Iterator[tuple[str, Fraction, str]]:
    """What is asked of an answer in turn, each with its credit and feedback; the right one first."""
    given = f'<variable identifier="R{n}" />'
    if part.kind == "choice":
        yield f'<match><correct identifier="R{n}" />{given}</match>', Fraction(1), ""
        for at, option in enumerate(part.options):
            if not option.right:
                yield f"<match>{_value('identifier', _choice(at))}{given}</match>", option.credit, option.feedback
    if part.kind == "numeric":
        yield _around(part, part.answer, given), Fraction(1), ""
        for one in part.recognised:
            yield _around(part, one.value, given), one.credit, one.feedback


def _around(part: QuestionPart, value: Fraction | None, given: str) -> str:
    """Between two bounds: not every engine knows the tolerance of ``equal``."""
    low, high = part.bounds(value)
    return f"<and><gte>{given}{_value('float', low)}</gte><lte>{given}{_value('float', high)}</lte></and>"
