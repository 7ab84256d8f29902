"""Sentences with names in backquotes: ``W^Q`` is set as maths."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction

from symcomm.form import Form, Num, Product, Sym
from symcomm.notation import Notation
from symcomm.printing.dialects import DialectName
from symcomm.printing.forms import DIALECTS, print_form

_QUOTED = re.compile(r"`([^`\n]{1,80})`")
_SIZE = re.compile(r"(\d{1,6})?([^\W\d][\w^'*,+\-]{0,79})")


def sentence(
    dialect: DialectName,
    text: str,
    escape: Callable[[str], str],
    maths: Callable[[str, str], str],
    notation: Notation | None = None,
) -> str:
    r"""A sentence whose names in backquotes are printed as maths: a reason speaks of "the gradient of `W^Q`".

    ``escape`` prepares the plain text between the names; ``maths`` dresses a printed name, given with its plain text.

    >>> from symcomm.printing.escape import tex_text
    >>> sentence("latex", "Read `W^Q` & `4D`.", tex_text, lambda printed, plain: f"${printed}$")
    'Read $W^{Q}$ \\& $4\\,D$.'
    """
    out: list[str] = []
    end = 0
    for match in _QUOTED.finditer(text):
        out.append(escape(text[end : match.start()]))
        end = match.end()
        size = _SIZE.fullmatch(match[1])
        if size is None:
            out.append(escape(match[1]))
            continue
        form: Form = Sym(size[2])
        if size[1]:
            form = Product((Num(Fraction(int(size[1]))), form))
        out.append(maths(print_form(DIALECTS[dialect], form, None, notation), match[1]))
    return "".join([*out, escape(text[end:])])
