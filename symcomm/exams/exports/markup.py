"""XHTML with MathML as each system wants it, and files that are the same for the same input.

Everything is made of elements of the standard library's ElementTree, so that no text can end the element it is in.
"""

from __future__ import annotations

import base64
import io
import re
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from html import escape
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from symcomm.core.records import dataclass
from symcomm.documents.render.prose import with_numbers, without_numbers

if TYPE_CHECKING:
    from symcomm.exams.exports.item import Item

MATHML = "http://www.w3.org/1998/Math/MathML"
_BREAK = "\ufdd0"  # refused in texts: stands where an empty element keeps MathJax from seeing a delimiter
MARK = "\ufdd2"  # refused in texts, too: stands where text of elements will
_DELIMITER = re.compile(r"\\(?=[(\[])|\$")


def element(tag: str, *inside: Element | str, **attributes: str) -> Element:
    """An element with text and elements inside; ``_`` ends an attribute that is a word of Python.

    >>> ElementTree.tostring(element("p", "a < b ", element("b", "]]>"), class_="x"))
    b'<p class="x">a &lt; b <b>]]&gt;</b></p>'
    """
    made = Element(tag, {name.rstrip("_"): value for name, value in attributes.items()})
    for one in inside:
        if isinstance(one, Element):
            made.append(one)
        elif len(made):
            made[-1].tail = (made[-1].tail or "") + one
        else:
            made.text = (made.text or "") + one
    return made


def xml(root: Element) -> bytes:
    """An element as a file."""
    return f"<?xml version='1.0' encoding='utf-8'?>\n{as_text(root)}\n".encode()


def file_of(tag: str, inside: Iterable[str]) -> bytes:
    """The same of a bare element whose elements are text already."""
    return f"<?xml version='1.0' encoding='utf-8'?>\n<{tag}>{''.join(inside)}</{tag}>\n".encode()


def as_text(root: Element) -> str:
    """An element as text, as ``ElementTree`` writes it where no names have to be declared; a class has thousands."""
    made: list[str] = []
    _write(root, made)
    return "".join(made)


_READY = "ready"  # of an element that is text already
_SPECIAL = re.compile(r'[&<>"\r\n\t]')


def _write(node: Element, made: list[str]) -> None:
    if node.tag is _READY:
        made.append(node.text or "")
        return
    made.append(f"<{node.tag}")
    for name, value in node.items():
        if _SPECIAL.search(value):
            value = escape(value, quote=False).replace('"', "&quot;")
            value = value.replace("\r", "&#13;").replace("\n", "&#10;").replace("\t", "&#09;")
        made.append(f' {name}="{value}"')
    if not node.text and not len(node):
        made.append(" />")
        return
    made.append(">")
    if node.text:
        made.append(escaped(node.text))
    for child in node:
        _write(child, made)
        if child.tail:
            made.append(escaped(child.tail))
    made.append(f"</{node.tag}>")


def flat(*texts: tuple[str, str]) -> str:
    """Elements with nothing but text in them, written down.

    >>> flat(("value", "a < b"), ("name", ""))
    '<value>a &lt; b</value><name />'
    """
    return "".join([f"<{tag}>{escaped(text)}</{tag}>" if text else f"<{tag} />" for tag, text in texts])


def escaped(text: str) -> str:
    """Text as it stands between elements; hardly any has to be changed.

    >>> escaped("a < b"), escaped("12")
    ('a &lt; b', '12')
    """
    return escape(text, quote=False) if "&" in text or "<" in text or ">" in text else text


def ready(text: str) -> Element:
    """An element that was written down before."""
    made = Element(_READY)
    made.text = text
    return made


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
    """The TeX that a formula was written in; its text where nothing is said."""
    said = next((node.text for node in maths.iter("annotation")), None)
    return " ".join((said or "".join(maths.itertext())).split())


@lru_cache(2048)  # parts of a question have the same text
def with_tex(
    html: str, picture: Callable[[str], str], maths: Callable[[str, bool], Element | str] | None = None
) -> str:
    r"""HTML with ``\(...\)`` for formulas, or what ``maths`` makes of TeX and whether it is displayed.

    ``picture`` gives the address of a picture by its name. No number changes anything.
    """
    kind, numbers = without_numbers(html)
    return with_numbers(_with_tex(kind, picture, maths), numbers)


@lru_cache(4096)  # variants share most of their text
def _with_tex(
    html: str, picture: Callable[[str], str], maths: Callable[[str, bool], Element | str] | None = None
) -> str:
    make = maths or _delimited

    def go(node: Element) -> Element:
        made = Element(node.tag, dict(node.attrib))
        if made.get("src", "").startswith("media:"):
            made.set("src", picture(made.attrib["src"][6:]))
        inside: list[Element | str] = [_broken(node.text or "")]
        for child in node:
            inside.append(make(tex_of(child), child.get("display") == "block") if child.tag == "math" else go(child))
            inside.append(_broken(child.tail or ""))
        whole = element(made.tag, *inside)
        whole.attrib.update(made.attrib)
        return whole

    written = ElementTree.tostring(go(fragment(html)), encoding="unicode", method="html")
    return written[len("<div>") : -len("</div>")].replace(_BREAK, "<span></span>")


def _delimited(tex: str, display: bool) -> str:
    return rf"\[{tex}\]" if display else rf"\({tex}\)"


def _broken(text: str) -> str:
    """Text in which nothing begins maths."""
    return _DELIMITER.sub(lambda found: found[0] + _BREAK, text)


def equation_image(tex: str, display: bool) -> Element:
    """A formula as Canvas writes it: an image that its own server draws, with the TeX beside it."""
    return element("img", class_="equation_image", title=tex, src=f"/equation_images/{quote(quote(tex, safe=''))}",
                   alt=f"LaTeX: {tex}", **{"data-equation-content": tex})  # fmt: skip


_KEPT = {"href", "src", "alt", "colspan", "rowspan", "xmlns", "display", "mathvariant", "stretchy", "columnalign",
         "width", "accent", "linethickness", "fence", "form", "separator"}  # fmt: skip
_OTHER = {"del": "span", "section": "div", "label": "span", "s": "span", "u": "span", "figure": "div",
          "figcaption": "p"}  # fmt: skip


def with_mathml(html: str, picture: Callable[[str], str]) -> list[Element | str]:
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
    inside: list[Element | str] = [root.text or ""]
    for child in list(root):
        inside += [child, child.tail or ""]
        child.tail = None
    return inside


def plain_text(html: str) -> str:
    """A text without its markup, formulas as TeX."""

    def go(node: Element) -> str:
        if node.tag == "math":
            return tex_of(node)
        return (node.text or "") + "".join(go(child) + (child.tail or "") for child in node)

    return " ".join(go(fragment(html)).split())


def carried(item: Item) -> dict[str, str]:
    """The pictures of an item as text."""
    return {medium.name: base64.b64encode(medium.data).decode("ascii") for medium in item.media}


def unpacked(pieces: Iterable[Mapping[str, Any]]) -> dict[str, bytes]:
    """The pictures that pieces carry."""
    return {name: base64.b64decode(data) for piece in pieces for name, data in piece["media"].items()}


@dataclass(frozen=True)
class Packed:
    """A file as it stands in a zip file: its bytes deflated, how many there were, and their checksum."""

    data: bytes
    size: int
    checksum: int

    @classmethod
    def of(cls, data: bytes) -> Packed:
        """A file that is packed."""
        deflate = zlib.compressobj(zlib.Z_DEFAULT_COMPRESSION, zlib.DEFLATED, -zlib.MAX_WBITS)
        return cls(deflate.compress(data) + deflate.flush(), len(data), zlib.crc32(data))

    @classmethod
    def told(cls, said: Sequence[Any]) -> Packed:
        """One that was told in JSON."""
        return cls(base64.b64decode(said[0]), *said[1:])

    @property
    def telling(self) -> list[Any]:
        """The same for JSON."""
        return [base64.b64encode(self.data).decode("ascii"), self.size, self.checksum]


def zipped(files: Mapping[str, bytes | Packed]) -> bytes:
    """A zip file: entries in order, with one date, so that the same files give the same bytes."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(files):
            entry, data = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), files[name]
            entry.compress_type, entry.create_system, entry.external_attr = zipfile.ZIP_DEFLATED, 3, 0o644 << 16
            if isinstance(data, bytes):
                archive.writestr(entry, data)
                continue
            entry.CRC, entry.compress_size, entry.file_size = data.checksum, len(data.data), data.size
            entry.header_offset = out.tell()
            out.write(entry.FileHeader() + data.data)
            archive.filelist.append(entry)
            archive.start_dir = out.tell()
    return out.getvalue()
