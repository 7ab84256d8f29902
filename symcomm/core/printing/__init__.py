r"""One printer for forms, names and quantities; a record a dialect: LaTeX, Typst, MathML, plain text.

What a formula says is decided once, in ``_Printer``: where a dot stands, what is put in parentheses, what is a
subtraction. A ``Dialect`` only spells these decisions. The symbolic line and the substituted line are one call with
and without ``names``, so they cannot disagree.

>>> from symcomm.core.form import Power, Sym, num, product
>>> form = product(num(24), Sym("N_layer"), Power(Sym("D"), num(2)))
>>> plain(form), plain(form, {"N_layer": 32, "D": 4096})
('24·N_layer·D²', '24·32·4096²')
>>> tex(form)
'24\\,N_{\\text{layer}}\\,D^{2}'
"""

from __future__ import annotations

from symcomm.core.printing.dialects import DialectName
from symcomm.core.printing.escape import html_text, markdown_text, tex_text, typst_string
from symcomm.core.printing.forms import PRINTERS, Names, broken, mathml, name_in, plain, tex, typst, width
from symcomm.core.printing.quantities import RELATIONS, amounts, quantity_in, said, short
from symcomm.core.printing.sentences import markdown_maths, markdown_sentence, math_element, sentence

__all__ = [
    "PRINTERS", "RELATIONS", "DialectName", "Names", "amounts", "broken", "html_text", "markdown_maths",
    "markdown_sentence", "markdown_text", "math_element", "mathml", "name_in", "plain", "quantity_in", "said",
    "sentence", "short", "tex", "tex_text", "typst", "typst_string", "width",
]  # fmt: skip
