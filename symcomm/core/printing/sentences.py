"""Sentences with names in backquotes: ``W^Q`` is set as maths."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from itertools import accumulate

from symcomm.core.form import Ceiling, Floor, Form, Logarithm, Num, Power, Product, Ratio, Sym, Total, negative
from symcomm.core.notation import Notation
from symcomm.core.printing.dialects import DialectName
from symcomm.core.printing.escape import html_text, markdown_text
from symcomm.core.printing.forms import DIALECTS, print_form
from symcomm.core.printing.quantities import RELATIONS

_QUOTED = re.compile(r"`([^`\n]{1,300})`|\$(?=\S)([^$\n]{1,80})(?<=\S)\$(?!\d)")
_NUMBER = re.compile(r"(\d{1,40}(?:\.\d{1,20})?)(?:\^(?:(\d{1,4})|\{(\d{1,4})\}))?")
_SIZE = re.compile(r"(\d{1,6})?([^\W\d][\w^'*,+\-\u0302-\u0307]{0,79})")

_RAISED = re.compile(r"(.+?)([²³])")
_WITHIN = re.compile(r"(⌈|⌊|log_(\d{1,3})\()(.+)[⌉⌋)]")

_SIGNS: dict[str, Callable[[Form, Form], Form]] = {  # from the loosest to the tightest
    " + ": lambda one, other: Total((*(one.terms if isinstance(one, Total) else (one,)), other)),
    " - ": lambda one, other: Total((*(one.terms if isinstance(one, Total) else (one,)), negative(other))),
    "·": lambda one, other: Product((one, other)),
    "/": Ratio,
}


def sentence(
    dialect: DialectName,
    text: str,
    escape: Callable[[str], str],
    maths: Callable[[str, str], str],
    notation: Notation | None = None,
) -> str:
    r"""A sentence whose names in backquotes are printed as maths: a reason speaks of "the gradient of `W^Q`".

    A name, a number or an equation of such between dollar signs is maths, too, as in ``$k = 8$`` and ``$10^9$``; what
    else stands between them is shown as it is.

    ``escape`` prepares the plain text between the names; ``maths`` dresses a printed name, given with its plain text.

    >>> from symcomm.core.printing.escape import tex_text
    >>> sentence("latex", "Read `W^Q` & `4D`.", tex_text, lambda printed, plain: f"${printed}$")
    'Read $W^{Q}$ \\& $4\\,D$.'
    """
    out: list[str] = []
    end = 0
    for match in _QUOTED.finditer(text):
        out.append(escape(text[end : match.start()]))
        end = match.end()
        said = match[1] or match[2]
        sides = [_form(side.strip()) for side in said.split("=")]
        if len(sides) > 2 or (match[1] and len(sides) > 1) or None in sides:
            out.append(escape(match[1] or match[0]))
            continue
        printed = [print_form(DIALECTS[dialect], side, None, notation) for side in sides if side is not None]
        out.append(maths(RELATIONS[dialect]["="].join(printed) if dialect == "mathml" else " = ".join(printed), said))
    return "".join([*out, escape(text[end:])])


def markdown_maths(latex: str) -> str:
    r"""LaTeX for ``$...$`` in Markdown, where some readers take a backslash before a comma for an escape.

    Others know no name of a thin space; all know a backslash before a blank.

    >>> markdown_maths(r"12\,884")
    '$12\\ 884$'
    """
    return "$" + latex.strip().replace(r"\,", r"\ ").replace("  ", " ") + "$"


def math_element(content: str, alt: str = "", display: bool = False) -> str:
    """MathML content in its ``math`` element; ``alt`` is read where maths is not, ``display`` makes fractions large.

    >>> math_element("<mn>7</mn>", "7")
    '<math xmlns="http://www.w3.org/1998/Math/MathML" alttext="7"><mn>7</mn></math>'
    """
    block = ' displaystyle="true"' if display else ""
    label = f' alttext="{html_text(alt)}"' if alt else ""
    return f'<math xmlns="http://www.w3.org/1998/Math/MathML"{block}{label}>{content}</math>'


def markdown_sentence(text: str, notation: Notation | None = None) -> str:
    """A sentence in Markdown.

    >>> markdown_sentence("`D` * 2")
    '$D$ \\\\* 2'
    """
    return sentence("latex", text, markdown_text, lambda printed, _: markdown_maths(printed), notation)


def html_sentence(text: str, notation: Notation | None = None) -> str:
    """A sentence in HTML.

    >>> html_sentence("1 < 2")
    '1 &lt; 2'
    """
    return sentence("mathml", text, html_text, math_element, notation)


def _form(text: str) -> Form | None:
    """A number, a power, a name with a number before it, or sums, products and ratios of such; None for all else.

    >>> _form("k·(⌈log_2(k)⌉² + 1)") is not None, _form("of k")
    (True, None)
    """
    depth = [*accumulate((char in "(⌈⌊") - (char in ")⌉⌋") for char in text)]
    if text.startswith("(") and 0 in depth and depth.index(0) == len(text) - 1:
        return _form(text[1:-1])
    for sign, joined in _SIGNS.items():
        outside = [at for at in range(len(text)) if text.startswith(sign, at) and depth[at] == 0]
        if outside:
            one, other = _form(text[: outside[-1]]), _form(text[outside[-1] + len(sign) :])
            return None if one is None or other is None else joined(one, other)
    if raised := _RAISED.fullmatch(text):
        base_of = _form(raised[1])
        return None if base_of is None else Power(base_of, Num(Fraction("²³".index(raised[2]) + 2)))
    if (within := _WITHIN.fullmatch(text)) and (inside := _form(within[3])) is not None:
        return {"⌈": Ceiling, "⌊": Floor}[within[1]](inside) if within[1] in "⌈⌊" else Logarithm(inside, int(within[2]))
    number, size = _NUMBER.fullmatch(text), _SIZE.fullmatch(text)
    if number:
        base, exponent = Num(Fraction(number[1])), number[2] or number[3]
        return Power(base, Num(Fraction(int(exponent)))) if exponent else base
    if size is None:
        return None
    return Product((Num(Fraction(int(size[1]))), Sym(size[2]))) if size[1] else Sym(size[2])
