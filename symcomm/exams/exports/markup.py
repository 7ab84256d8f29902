"""XHTML with MathML as each system wants it, and files that are the same for the same input.

Files are templates of ``templates/exports``, in which every value is escaped: no text can end the element it is in.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from fractions import Fraction
from functools import cache, lru_cache
from html import escape
from itertools import chain
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from symcomm.documents.render.environment import TEMPLATES
from symcomm.documents.render.prose import apart_from_numbers
from symcomm.exams.exports.item import decimal_text, number_text

if TYPE_CHECKING:
    from jinja2 import Environment

MATHML = "http://www.w3.org/1998/Math/MathML"
Packed = tuple[zipfile.ZipInfo, bytes]
_BREAK = "\ufdd0"  # refused in texts: stands where an empty element keeps MathJax from seeing a delimiter
_DELIMITER = re.compile(r"\\(?=[(\[])|\$")


def fill(template: str, **shown: object) -> str:
    """A template of ``templates/exports`` filled in: every value is escaped that is no ``Markup``."""
    return _templates().get_template(template).render(shown)


def streamed(template: str, **shown: object) -> Iterator[str]:
    """The same bit by bit: the quiz of a class has hundreds of megabytes."""
    made = _templates().get_template(template).stream(shown)
    made.enable_buffering(64)
    return iter(made)


@cache
def _templates() -> Environment:
    from jinja2 import Environment, FunctionLoader, StrictUndefined
    from markupsafe import Markup

    def source(name: str) -> str:
        text = (TEMPLATES / "exports" / name).read_text(encoding="utf-8")
        return re.sub(r"\s*\n\s*", "", text) if ".xml" in name else text  # nothing is written between elements

    made = Environment(  # noqa: S701  (finalize escapes: a class has millions of values, most of them numbers)
        loader=FunctionLoader(source), undefined=StrictUndefined, keep_trailing_newline=True, trim_blocks=True,
        finalize=lambda value: value if value.__class__ is Markup else escaped(str(value)), lstrip_blocks=True,
        block_start_string="<%", block_end_string="%>", variable_start_string="<<", variable_end_string=">>",
        comment_start_string="<#", comment_end_string="#>",
    )  # fmt: skip
    made.filters["quoted"] = lambda text: Markup(escape(text).replace("&#x27;", "'"))  # noqa: S704  (in an attribute)
    made.filters["decimal"], made.globals["number_text"] = decimal, number_text
    return made


def decimal(number: Fraction | int) -> str:
    """Points, or a share of them."""
    return decimal_text(number.numerator, number.denominator, 1, 10**5)


def escaped(text: str) -> str:
    """Text as it is between elements; hardly any has to be changed.

    >>> escaped("a < b"), escaped("12")
    ('a &lt; b', '12')
    """
    return escape(text, quote=False) if "&" in text or "<" in text or ">" in text else text


def markup(text: str) -> object:
    """Text that a template writes as it is."""
    from markupsafe import Markup

    return Markup(text)  # noqa: S704  (escaped where it was made)


def xml_file(texts: Iterable[str]) -> Iterator[bytes]:
    """An element, told in texts one after the other, as a file."""
    return (text.encode() for text in chain(["<?xml version='1.0' encoding='utf-8'?>\n"], texts, ["\n"]))


def fragment(html: str) -> Element:
    """A ``div`` with our own XHTML inside; maths keeps its namespace as an attribute."""
    root = ElementTree.fromstring(f"<div>{html.replace('&nbsp;', chr(160))}</div>")  # noqa: S314  (written by us)
    for node in root.iter():
        if node.tag.startswith("{"):
            space, node.tag = node.tag[1:].split("}")
            if node.tag == "math":
                node.set("xmlns", space)
    return root


def tex_of(maths: Element) -> str:
    """The TeX that a formula was written in; its text where it has none."""
    said = next((node.text for node in maths.iter("annotation")), None)
    return " ".join((said or "".join(maths.itertext())).split())


@lru_cache(2048)  # parts of a question have the same text
def with_tex(
    html: str, picture: Callable[[str], str], maths: Callable[[str, bool], dict[str, str] | str] | None = None
) -> str:
    r"""HTML with ``\(...\)`` for formulas, or what ``maths`` makes of TeX and whether it is displayed.

    That is text, or the attributes of an image. ``picture`` gives the address of a picture by its name. No number
    changes anything.
    """
    return apart_from_numbers(html, lambda kind: _with_tex(kind, picture, maths))


@lru_cache(4096)  # variants share most of their text
def _with_tex(
    html: str, picture: Callable[[str], str], maths: Callable[[str, bool], dict[str, str] | str] | None = None
) -> str:
    make = maths or _delimited

    def go(node: Element) -> None:
        if node.get("src", "").startswith("media:"):
            node.set("src", picture(node.attrib["src"][6:]))
        node.text = _broken(node.text or "")
        for child in node:
            child.tail = _broken(child.tail or "")
            if child.tag != "math":
                go(child)
                continue
            made = make(tex_of(child), child.get("display") == "block")
            child[:], child.text = [], made if isinstance(made, str) else ""
            # ElementTree writes the text alone of what has no tag.
            child.tag, child.attrib = (None, {}) if isinstance(made, str) else ("img", made)  # type: ignore[assignment]

    root = fragment(html)
    go(root)
    written = ElementTree.tostring(root, encoding="unicode", method="html")
    return written[len("<div>") : -len("</div>")].replace(_BREAK, "<span></span>")


def _delimited(tex: str, display: bool) -> str:
    return rf"\[{tex}\]" if display else rf"\({tex}\)"


def _broken(text: str) -> str:
    """Text in which nothing begins maths."""
    return _DELIMITER.sub(lambda found: found[0] + _BREAK, text)


def equation_image(tex: str, display: bool) -> dict[str, str]:
    """A formula as Canvas writes it: an image that its own server draws, with the TeX beside it."""
    return {"class": "equation_image", "title": tex, "src": f"/equation_images/{quote(quote(tex, safe=''))}",
            "alt": f"LaTeX: {tex}", "data-equation-content": tex}  # fmt: skip


_KEPT = {"href", "src", "alt", "colspan", "rowspan", "xmlns", "display", "mathvariant", "stretchy", "columnalign",
         "width", "accent", "linethickness", "fence", "form", "separator"}  # fmt: skip
_OTHER = {"del": "span", "section": "div", "label": "span", "s": "span", "u": "span", "figure": "div",
          "figcaption": "p"}  # fmt: skip


def with_mathml(html: str, picture: Callable[[str], str]) -> str:
    """The text and elements of XHTML that QTI 2.1 allows, with Presentation MathML."""
    root = fragment(html)
    for node in root.iter():
        if node.tag == "input":
            node.tag, node.text, node.attrib = "span", "☑ " if "checked" in node.attrib else "☐ ", {}
        if node.tag == "ol" and "start" in node.attrib:  # a list there begins with one: the numbers are said
            node.tag = "ul"
            for number, one in enumerate(node, start=int(node.attrib["start"])):
                first = one[0] if len(one) and one[0].tag == "p" and not (one.text or "").strip() else one
                first.text = f"{number}. {first.text or ''}"
        node.tag = _OTHER.get(node.tag, node.tag)
        for name in [name for name in node.attrib if name not in _KEPT]:
            del node.attrib[name]
        if node.tag == "math" and len(node) and node[0].tag == "semantics":
            node[:] = [node[0][0]]
            node[0].tail = None
        if node.get("src", "").startswith("media:"):
            node.set("src", picture(node.attrib["src"][6:]))
    return ElementTree.tostring(root, encoding="unicode").removesuffix(" />")[len("<div>") :].removesuffix("</div>")


@lru_cache(4096)  # variants have the same feedback
def plain_text(html: str) -> str:
    """A text without its markup, formulas as TeX."""

    def go(node: Element) -> str:
        if node.tag == "math":
            return tex_of(node)
        return (node.text or "") + "".join(go(child) + (child.tail or "") for child in node)

    return " ".join(go(fragment(html)).split())


def unpacked(pieces: Iterable[Mapping[str, Any]]) -> dict[str, bytes]:
    """The pictures that pieces carry."""
    return {medium.name: medium.data for piece in pieces for medium in piece["media"]}


def packed(name: str, data: bytes | Iterable[bytes]) -> Packed:
    """A file as it is in a zip file, with one date, so that the same files give the same bytes."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
        entry.compress_type, entry.create_system, entry.external_attr = zipfile.ZIP_DEFLATED, 3, 0o644 << 16
        with archive.open(entry, "w") as file:
            file.writelines([data] if isinstance(data, bytes) else data)
        return entry, out.getvalue()  # no list of files is behind it yet


def zipped(files: Iterable[Packed]) -> bytes:
    """A zip file of files that are packed already, maybe in other processes, in the order of their names."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for entry, data in sorted(files, key=lambda one: one[0].filename):
            entry.header_offset = out.tell()
            out.write(data)
            archive.filelist.append(entry)
            archive.start_dir = out.tell()
    return out.getvalue()
