"""The characters and commands of formulas: which token each is, LaTeX and plain spellings alike."""

from __future__ import annotations

import unicodedata

from symcomm.core import notation


def words(text: str) -> list[str]:
    """The words of a text."""
    return text.split()


_VARIANTS = words("varepsilon vartheta varpi varrho varsigma varphi")
GREEK = frozenset([*notation.GREEK_NAMES, "omicron", *_VARIANTS])
GREEK_LETTERS = notation.GREEK_LETTERS | {
    "ε": "varepsilon", "ϵ": "epsilon", "φ": "varphi", "ϕ": "phi", "ϑ": "vartheta", "ϱ": "varrho", "ς": "varsigma",
    "ο": "omicron",
}  # fmt: skip

# Spaces of any width, and what shows nothing.
SPACES = "".join([
    " \t\n\r\f\v~\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f",
    "\u3000\u200b\u200c\u200d\u2060\ufeff\u00ad\u2061\u2063\u2064",
])  # fmt: skip
# Commands that change only how the formula looks, and the borders of inline math.
SPACING_COMMANDS = [" ", "\n", *words(
    "left right bigl bigr Bigl Bigr biggl biggr Biggl Biggr big Big bigg Bigg middle quad qquad displaystyle textstyle "
    "scriptstyle limits nolimits mathstrut strut enspace thinspace medspace thickspace negthinspace notag nonumber "
    "mathopen mathclose mathbin mathrel mathord allowbreak nobreak hfill par noindent , ; : ! > / ( ) [ ]"
)]  # fmt: skip
TEXT_FONTS = words(
    "text textrm textnormal textit textbf textsf texttt textsc mathrm mathsf mathtt mathit operatorname mbox "
    "operatorname* textup mathop"
)
FONTS = words("mathbf boldsymbol bm pmb mathnormal bf rm mathbfit symbf")
LETTER_FONTS = {"mathbb": "bb", "mathcal": "cal", "mathfrak": "frak", "mathscr": "scr", "Bbb": "bb"}
_ACCENTS = words("hat tilde bar dot ddot vec check breve")
COMMANDS: dict[str, tuple[str, str]] = {
    **{name: ("FONT", name) for name in FONTS}, **{name: ("ACCENT", name) for name in _ACCENTS},
    "widehat": ("ACCENT", "hat"), "widetilde": ("ACCENT", "tilde"), "overline": ("ACCENT", "bar"),
} | {
    name: (kind, value)
    for kind, value, names in (
        ("FRAC", "", "frac dfrac tfrac"),
        ("SQRT", "", "sqrt"),
        ("TIMES", "*", "times"),
        ("DOT", "*", "cdot ast cdotp *"),
        ("ODOT", "o", "odot circ"),
        ("SLASH", "/", "div"),
        ("RELATION", "in", "in"),
        ("RELATION", "<=", "le leq leqslant"),
        ("RELATION", "=", "gets leftarrow coloneqq"),
        ("RELATION", ":", "colon"),
        ("DOTS", "...", "dots ldots cdots dotsc dotsb"),
        ("PRIME", "'", "prime"),
        ("TRANSPOSED", "T", "top intercal transpose"),
        ("LCEIL", "(", "lceil"),
        ("RCEIL", ")", "rceil"),
        ("LFLOOR", "(", "lfloor"),
        ("RFLOOR", ")", "rfloor"),
        ("LSET", "{", "lbrace {"),
        ("RSET", "}", "rbrace }"),
        ("LSQUARE", "[", "lbrack"),
        ("RSQUARE", "]", "rbrack"),
        ("TEXT", "bbR", "Re R reals"),
        ("TEXT", "bbZ", "Z"),
        ("TEXT", "bbN", "N"),
        ("AND", ",", "newline forall \\"),
        ("UNDER", "_", "_"),
        ("CARET", "^", "^"),
    )
    for name in words(names)
}  # fmt: skip
# Commands with a meaning that no cell can have here; they are named so that nobody takes them for functions.
REFUSED_COMMANDS = {
    name: hint
    for hint, names in (
        ("write the computation on one line", "begin end"),
        (r"write the sum out, or as a function such as \text{Combine}(Y_e, M)", "sum"),
        ("write the product out", "prod"),
        ("a layer has no integrals", "int"),
        (r"for an elementwise product write \odot, for a matrix product nothing", "otimes"),
        ("write `+`", "oplus"),
        ("a table states the forward computation; gradients are derived", "partial nabla"),
        ("write the formula without the brace", "underbrace overbrace"),
        ("write the formula without it", "not overset underset"),
        (r"write \frac{a}{b}", "over"),
        ("write `=`", "stackrel"),
        ("separate arguments with commas", "mid vert"),
        ("norms are not read", "| lVert"),
        ("macros are not read: write them out", "def newcommand"),
        ("a cell reads no files", "input include"),
        ("a cell writes no files", "write"),
    )
    for name in words(names)
}
CHARACTERS: dict[str, tuple[str, str]] = {
    name: (kind, value)
    for kind, value, names in (
        ("PLUS", "+", "+ ﹢"),
        ("MINUS", "-", "- − – — ‒ ― ﹣"),
        ("DOT", "*", "* · ⋅ ∙ • ∗ \u2062 @"),
        ("TIMES", "*", "× ⨯ ✕"),
        ("SLASH", "/", "/ ÷ ∕ ⁄"),
        ("ODOT", "o", "⊙ ∘"),
        ("RELATION", "=", "= := ≔ ←"),
        ("RELATION", "in", "∈"),
        ("RELATION", ":", ":"),
        ("RELATION", "<=", "<= ≤"),
        ("COMMA", ",", ", ;"),
        ("UNDER", "_", "_"),
        ("CARET", "^", "^ **"),
        ("PRIME", "'", "' ’ ′"),
        ("PRIME", "''", "″"),
        ("TRANSPOSED", "T", "ᵀ ⊤"),
        ("DOTS", "...", "… ⋯"),
        ("SQRT", "", "√"),
        ("TEXT", "bbR", "ℝ"),
        ("TEXT", "bbZ", "ℤ"),
        ("TEXT", "bbN", "ℕ"),
        ("TEXT", "ell", "ℓ"),
        ("LPAREN", "(", "("),
        ("RPAREN", ")", ")"),
        ("LSQUARE", "[", "["),
        ("RSQUARE", "]", "]"),
        ("LBRACE", "{", "{"),
        ("RBRACE", "}", "}"),
        ("LCEIL", "(", "⌈"),
        ("RCEIL", ")", "⌉"),
        ("LFLOOR", "(", "⌊"),
        ("RFLOOR", ")", "⌋"),
    )
    for name in words(names)
}
# Letters of mathematical alphabets and full-width signs are the plain ones.
VARIANTS = {n: plain for n in (0x210E, *range(0xFF01, 0xFF5F), *range(0x1D400, 0x1D800))
            if len(plain := unicodedata.normalize("NFKC", chr(n))) == 1 and plain != chr(n)}  # fmt: skip
RAISED = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁻ⁿᵏ", "0123456789-nk", strict=True))
LOWERED = dict(zip("₀₁₂₃₄₅₆₇₈₉ᵢⱼₖₗₘₙₑₕ", "0123456789ijklmneh", strict=True))
# What to write instead of a character that means nothing here.
CHARACTER_HINTS = {
    "|": "separate arguments with commas; an absolute value is written abs(x), where it can be read",
    "!": "factorials are not read",
    "&": "write one computation in a cell",
    "#": "names have letters, digits and scripts",
    "%": "write a fraction: 5/100",
    '"': "write the name without quotes",
    ">": "a range is written i = 1, \\dots, n",
    "<": "a range is written i = 1, \\dots, n, and a script ^2 or _2",
    **dict.fromkeys("†‡", "the mark of a footnote is written [^1], or taken off; a transposed matrix is W^T"),
}
