"""Small drawings of our own as SVG, in the fonts of the page and without a background; no library draws them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import field, replace
from html import escape

from symcomm.core.errors import RenderError
from symcomm.core.files import temporary_folder
from symcomm.core.records import dataclass

FONT = "New Computer Modern, Latin Modern Roman, STIX Two Text, Georgia, serif"
INK, SOFT, LINE, TINT, MARK = "#1f3a5f", "#666666", "#9aa3b0", "#eef2f8", "#b3541e"
Say = Callable[[str], str]
_NAME = re.compile(r"`([^`]*)`")
_SCRIPTS = re.compile(r"(\^|_)(?:\{([^}]*)\}|((?<=\^)[^\W_]+|\w+))")  # W^1_e has two


@dataclass
class Sketch:
    """Shapes on a canvas; sizes are in points of a page that is 470 wide.

    >>> drawing = Sketch(100, 20)
    >>> drawing.text(50, 12, "`W^Q`")
    >>> b"dy=" in drawing.svg()
    True
    """

    width: float
    height: float
    parts: list[str | Callable[[Say], str]] = field(default_factory=list)  # texts are written in a language
    say: Say = str

    def line(self, x: float, y: float, to_x: float, to_y: float, colour: str = LINE, *, arrow: bool = False,
             dashed: bool = False, wide: float = 1.0) -> None:  # fmt: skip
        """A straight line, perhaps with an arrow's head at its end."""
        dash = ' stroke-dasharray="3 2.5"' if dashed else ""
        self.parts.append(f'<path d="M{x:g} {y:g}L{to_x:g} {to_y:g}" fill="none" stroke="{colour}" '
                          f'stroke-width="{wide:g}"{dash}/>')  # fmt: skip
        if arrow:
            dx, dy = to_x - x, to_y - y
            length = (dx * dx + dy * dy) ** 0.5 or 1
            ux, uy = dx / length * 5, dy / length * 5
            a, b = (to_x - ux - uy * 0.5, to_y - uy + ux * 0.5), (to_x - ux + uy * 0.5, to_y - uy - ux * 0.5)
            self.parts.append(f'<path d="M{to_x:.4g} {to_y:.4g}L{a[0]:.4g} {a[1]:.4g}L{b[0]:.4g} {b[1]:.4g}Z" '
                              f'fill="{colour}"/>')  # fmt: skip

    def box(self, x: float, y: float, width: float, height: float, fill: str = TINT, stroke: str = INK) -> None:
        """A rectangle by its upper left corner."""
        self.parts.append(f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="2" fill="{fill}" '
                          f'stroke="{stroke}" stroke-width="0.8"/>')  # fmt: skip

    def dot(self, x: float, y: float, radius: float, fill: str = MARK, stroke: str = "none") -> None:
        """A disc by its centre."""
        self.parts.append(f'<circle cx="{x:g}" cy="{y:g}" r="{radius:g}" fill="{fill}" stroke="{stroke}"/>')

    def text(
        self, x: float, y: float, text: str, size: float = 9, colour: str = "#1b1b1b", anchor: str = "middle"
    ) -> None:
        """A line of text; what is in backquotes is set as the name of a tensor or symbol."""
        self.parts.append(lambda say: (
            f'<text x="{x:g}" y="{y:g}" font-family="{FONT}" font-size="{size:g}" fill="{colour}" '
            f'text-anchor="{anchor}">{_spans(say(text), size)}</text>'))  # fmt: skip

    def said(self, say: Say) -> Sketch:
        """The same drawing with its words in another language."""
        return replace(self, say=say)

    def svg(self) -> bytes:
        """The picture."""
        head = (f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width:g}pt" height="{self.height:g}pt" '
                f'viewBox="0 0 {self.width:g} {self.height:g}">')  # fmt: skip
        parts = [part if isinstance(part, str) else part(self.say) for part in self.parts]
        return "\n".join([head, *parts, "</svg>"]).encode()

    def written(self, kind: str) -> bytes:
        """The bytes of a picture in a format: ``svg``, or ``pdf`` and ``png``, which Typst makes of it."""
        if kind == "svg":
            return self.svg()
        try:
            import typst
        except ImportError as error:
            raise RenderError.lacking("pdf", f"a drawing as {kind} needs Typst") from error
        with temporary_folder() as folder:
            (folder / "drawing.svg").write_bytes(self.svg())
            source = folder / "main.typ"
            source.write_text('#set page(width: auto, height: auto, margin: 0pt)\n#image("drawing.svg")\n')
            made: object = typst.compile(
                str(source), root=str(folder), format="pdf" if kind == "pdf" else "png", ignore_system_fonts=True,
                timestamp=0,
            )  # fmt: skip
        if not isinstance(made, bytes):
            raise RenderError(f"Typst made no {kind}")
        return made


def _spans(text: str, size: float) -> str:
    out, end = [], 0
    for match in _NAME.finditer(text):
        out += [escape(text[end : match.start()]), _name(match[1], size)]
        end = match.end()
    return "".join([*out, escape(text[end:])])


def _name(name: str, size: float) -> str:
    """A name with its scripts raised and lowered."""
    base = _SCRIPTS.split(name)[0]
    upright = len(base) > 1
    style = "" if upright else ' font-style="italic"'
    out = [f"<tspan{style}>{escape(base.replace(chr(39), '′'))}</tspan>"]
    for match in _SCRIPTS.finditer(name):
        shift = -0.35 if match[1] == "^" else 0.22
        script = escape(match[2] or match[3])
        out.append(f'<tspan dy="{shift * size:g}" font-size="{0.7 * size:g}">{script}</tspan>'
                   f'<tspan dy="{-shift * size:g}" font-size="{size:g}">\u200b</tspan>')  # fmt: skip
    rest = _SCRIPTS.sub("", name)[len(base) :]
    return "".join(out) + (escape(rest.replace("'", "′")) if rest else "")
