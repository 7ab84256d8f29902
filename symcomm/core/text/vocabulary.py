"""The characters and commands of formulas: which token each is, LaTeX and plain spellings alike."""

from __future__ import annotations


def words(text: str) -> list[str]:
    """The words of a text."""
    return text.split()


GREEK = words(
    "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi omicron pi varpi rho "
    "varrho sigma varsigma tau upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi "
    "Omega"
)
GREEK_LETTERS = dict(
    zip(
        "αβγδεζηθικλμνξοπρστυφχψωΓΔΘΛΞΠΣΥΦΨΩϵϑϕϱς",
        words(
            "alpha beta gamma delta varepsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho sigma tau "
            "upsilon varphi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega epsilon vartheta "
            "phi varrho varsigma"
        ),
        strict=True,
    )
)

# Commands that change only how the formula looks.
SPACING_COMMANDS = words(
    "left right bigl bigr Bigl Bigr biggl biggr Biggl Biggr big Big bigg Bigg middle quad qquad displaystyle textstyle "
    "scriptstyle limits nolimits mathstrut strut enspace thinspace medspace thickspace negthinspace notag nonumber "
    "mathopen mathclose mathbin mathrel mathord allowbreak nobreak hfill par noindent"
)
TEXT_FONTS = words(
    "text textrm textnormal textit textbf textsf texttt textsc mathrm mathsf mathtt mathit operatorname mbox "
    "operatorname* textup mathop"
)
FONTS = words("mathbf boldsymbol bm pmb mathnormal bf rm mathbfit symbf")
LETTER_FONTS = {"mathbb": "bb", "mathcal": "cal", "mathfrak": "frak", "mathscr": "scr", "Bbb": "bb"}
ACCENTS = {name: name for name in words("hat tilde bar dot ddot vec check breve")} | {
    "widehat": "hat",
    "widetilde": "tilde",
    "overline": "bar",
}
COMMANDS: dict[str, tuple[str, str]] = {
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
}
# Commands with a meaning that no cell can have here; they are named so that nobody takes them for functions.
REFUSED_COMMANDS = {
    "begin": "write the computation on one line",
    "end": "write the computation on one line",
    "sum": r"write the sum out, or as a function such as \text{Combine}(Y_e, M)",
    "prod": "write the product out",
    "int": "a layer has no integrals",
    "otimes": r"for an elementwise product write \odot, for a matrix product nothing",
    "oplus": "write `+`",
    "partial": "a table states the forward computation; gradients are derived",
    "nabla": "a table states the forward computation; gradients are derived",
    "underbrace": "write the formula without the brace",
    "overbrace": "write the formula without the brace",
    "not": "write the formula without it",
    "over": r"write \frac{a}{b}",
    "stackrel": "write `=`",
    "overset": "write the formula without it",
    "underset": "write the formula without it",
    "mid": "separate arguments with commas",
    "vert": "separate arguments with commas",
    "|": "norms are not read",
    "lVert": "norms are not read",
    "def": "macros are not read: write them out",
    "newcommand": "macros are not read: write them out",
    "input": "a cell reads no files",
    "include": "a cell reads no files",
    "write": "a cell writes no files",
}
CHARACTERS: dict[str, tuple[str, str]] = {
    name: (kind, value)
    for kind, value, names in (
        ("PLUS", "+", "+"),
        ("MINUS", "-", "- − –"),
        ("DOT", "*", "* · ⋅ ∙ @"),
        ("TIMES", "*", "× ⨯"),
        ("SLASH", "/", "/ ÷"),
        ("ODOT", "o", "⊙ ∘"),
        ("RELATION", "=", "= ≔ ←"),
        ("RELATION", "in", "∈"),
        ("RELATION", ":", ":"),
        ("RELATION", "<=", "≤"),
        ("COMMA", ",", ", ;"),
        ("UNDER", "_", "_"),
        ("CARET", "^", "^"),
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
RAISED = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-", strict=True))
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
    "<": "a range is written i = 1, \\dots, n",
}
