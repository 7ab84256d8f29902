"""Escaping, one function a language: what a stranger wrote cannot become markup."""

from __future__ import annotations

import html as _html
import re

_TEX_SPECIAL = {
    **{c: f"\\{c}" for c in "{}$&#%_"},
    "\\": r"\textbackslash{}", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\textless{}",
    ">": r"\textgreater{}", "|": r"\textbar{}", "`": r"\textasciigrave{}", "\u00a0": "~",
    '"': "''",  # written plainly: it is harmless in English text, and \textquotedbl needs T1
}  # fmt: skip


def printable(text: str) -> str:
    """The text with control and formatting characters replaced: they can reorder or end a line unseen."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\u00a0" else "\N{REPLACEMENT CHARACTER}" for c in text)


def tex_text(text: str) -> str:
    r"""Plain text for LaTeX's text mode.

    >>> tex_text("50% of $x_1$")
    '50\\% of \\$x\\_1\\$'
    """
    return "".join(_TEX_SPECIAL.get(c, c) for c in printable(text))


def typst_string(text: str) -> str:
    r"""A Typst string literal, quotes included.

    >>> typst_string('say "#"')
    '"say \\"#\\""'
    """
    return '"' + printable(text).replace("\\", "\\\\").replace('"', '\\"') + '"'


def html_text(text: str) -> str:
    """Plain text for HTML, attributes included.

    >>> html_text("<b>")
    '&lt;b&gt;'
    """
    return _html.escape(printable(text), quote=True)


def markdown_text(text: str) -> str:
    r"""Plain text for Markdown: nothing in it is markup.

    >>> markdown_text("a*b* <i> [x]")
    'a\\*b\\* \\<i\\> \\[x\\]'
    """
    return re.sub(r"([\\`*_{}\[\]<>#$|~&])", r"\\\1", printable(text))
