r"""One printer for forms, names, quantities and derivations; a record a dialect: LaTeX, Typst, MathML, plain text.

What a formula says is decided once, in ``_Printer``: where a dot stands, what is put in parentheses, what is a
subtraction. A ``Dialect`` only spells these decisions. The symbolic line and the substituted line are one call with
and without ``names``, so they cannot disagree.

>>> from symcomm.form import Power, Sym, num, product
>>> form = product(num(24), Sym("N_layer"), Power(Sym("D"), num(2)))
>>> plain(form), plain(form, {"N_layer": 32, "D": 4096})
('24·N_layer·D²', '24·32·4096²')
>>> tex(form)
'24\\,N_{\\text{layer}}\\,D^{2}'
"""

from __future__ import annotations

import html as _html
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from symcomm import form as forms
from symcomm.errors import ValuesError
from symcomm.form import (
    Ceiling,
    Floor,
    Form,
    Largest,
    Logarithm,
    Num,
    Power,
    Product,
    Ratio,
    Root,
    Smallest,
    Sym,
    Total,
)
from symcomm.notation import GREEK, Notation, split_name
from symcomm.units import Quantity

if TYPE_CHECKING:
    from symcomm.derivation import Derivation, Exhibit, Step

DialectName = Literal["latex", "typst", "mathml", "text"]
DerivationDialect = Literal["latex", "markdown", "text", "html"]
Names = Mapping[str, "str | int | Fraction | Form"]

# -- escaping, one function a language ---------------------------------------------------------

_TEX_SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "`": r"\textasciigrave{}",
    '"': r"\textquotedbl{}",
}


def printable(text: str) -> str:
    """The text with control and formatting characters replaced: they can reorder or end a line unseen."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def tex_text(text: str) -> str:
    r"""Plain text for LaTeX's text mode.

    >>> tex_text("50% of $x_1$")
    '50\\% of \\$x\\_1\\$'
    """
    # The quotation mark is written plainly: it is harmless in English text and \textquotedbl needs T1.
    return "".join(_TEX_SPECIAL.get(c, c) if c != '"' else "''" for c in printable(text))


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


# -- names -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Glyph:
    """Letters in one style: ``italic``, ``upright``, ``greek``, ``digits``, ``sign`` or a font's name."""

    text: str
    style: str = "italic"


@dataclass(frozen=True)
class Written:
    """How a name is written: a base with what stands below and above it, primes and an accent."""

    base: tuple[Glyph | Written, ...]
    lower: tuple[Glyph | Written, ...] = ()
    upper: tuple[Glyph | Written, ...] = ()
    primes: int = 0
    accent: str = ""


_GREEK_ORDER = re.findall(  # in the order of their code points
    r"\w+",
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho final sigma tau upsilon "
    "phi chi psi omega",
)
GREEK_NAMES = {
    name: chr((0x3B1 if name[0].islower() else 0x391) + place)
    for place, lower in enumerate(_GREEK_ORDER)
    for name in (lower, lower.capitalize())
    if name in GREEK
}
GREEK_LETTERS = {letter: name for name, letter in GREEK_NAMES.items()}
_FONTS = {
    "text": "upright",
    "mathrm": "upright",
    "textrm": "upright",
    "operatorname": "upright",
    "mathit": "italic",
    "mathbf": "bold",
    "boldsymbol": "bold",
    "textbf": "bold",
    "mathcal": "calligraphic",
    "mathbb": "blackboard",
    "mathsf": "sans",
    "mathtt": "mono",
}
_ACCENTS = {"hat": "hat", "widehat": "hat", "bar": "bar", "overline": "bar", "tilde": "tilde", "widetilde": "tilde"}


def _glyph(word: str) -> Glyph:
    if word in GREEK:
        return Glyph(word, "greek")
    if word in GREEK_LETTERS:
        return Glyph(GREEK_LETTERS[word], "greek")
    if word.isascii() and word.isdigit():
        return Glyph(word, "digits")
    return Glyph(word, "italic" if len(word) == 1 and word.isascii() and word.isalpha() else "upright")


def _script(text: str) -> tuple[Glyph, ...]:
    parts = [p for p in re.split(r"([+,*-])", text) if p]
    return tuple(Glyph(p, "sign") if p in "+,*-" else _glyph(p) for p in parts)


@lru_cache(maxsize=4096)
def written(name: str, latex: str = "") -> Written:
    r"""How a name is written, from its plain spelling, or from the author's LaTeX where that is understood.

    Only letters, digits, scripts, fonts and accents are understood, so that no other LaTeX passes through a name.

    >>> written("W^Q") == written("anything", "W^{Q}")
    True
    """
    if latex:
        found = _read_latex_name(latex)
        if found is not None:
            return found
    base, lower, upper, primes = split_name(name)
    return Written((_glyph(base or name),), _script(lower), _script(upper), len(primes))


def _read_latex_name(latex: str) -> Written | None:
    tokens = re.findall(r"\\[A-Za-z]+|\\.|\s+|.", latex.strip().strip("$"), re.DOTALL)
    if len(tokens) > 200:
        return None
    place = 0

    def peek() -> str:
        return tokens[place] if place < len(tokens) else ""

    def take() -> str:
        nonlocal place
        place += 1
        return tokens[place - 1] if place <= len(tokens) else ""

    def words() -> str:
        if take() != "{":
            raise ValueError
        text = ""
        while (mark := take()) != "}":
            if mark in (r"\_", r"\ ", "~"):
                mark = mark[-1]
            if not mark or not (mark.isalnum() or mark in "_- .,+~") or mark.startswith("\\"):
                raise ValueError
            text += mark.replace("~", " ")
        return text

    def atom() -> tuple[Glyph | Written, ...]:
        mark = take()
        if mark == "{":
            inside = sequence("}")
            take()
            return inside
        if mark.startswith("\\") and mark[1:] in GREEK:
            return (Glyph(mark[1:], "greek"),)
        if mark == r"\ell":
            return (Glyph("ℓ", "ell"),)
        if mark.startswith("\\") and mark[1:] in _FONTS:
            text, style = words(), _FONTS[mark[1:]]
            if not text:
                raise ValueError
            return (Glyph(text, style),)
        if mark.startswith("\\") and mark[1:] in _ACCENTS:
            return (Written(atom(), accent=_ACCENTS[mark[1:]]),)
        if len(mark) == 1 and mark.isdigit() and mark.isascii():
            while len(peek()) == 1 and peek().isdigit() and peek().isascii():
                mark += take()
            return (Glyph(mark, "digits"),)
        if len(mark) == 1 and mark.isalpha():
            return (_glyph(mark),)
        if len(mark) == 1 and mark in "+,-*":
            return (Glyph(mark, "sign"),)
        raise ValueError

    def one() -> Written:
        base = atom()
        lower: tuple[Glyph | Written, ...] = ()
        upper: tuple[Glyph | Written, ...] = ()
        primes = 0
        while peek() in ("_", "^", "'"):
            script = take()
            if script == "'":
                primes += 1
            elif script == "_" and not lower:
                lower = atom()
            elif script == "^" and not upper:
                upper = atom()
            else:
                raise ValueError
        return Written(base, lower, upper, primes)

    def sequence(end: str) -> tuple[Glyph | Written, ...]:
        pieces: list[Glyph | Written] = []
        while peek() != end:
            if not peek():
                raise ValueError
            if peek().isspace():
                take()
                continue
            piece = one()
            bare = not (piece.lower or piece.upper or piece.primes or piece.accent)
            pieces.extend(piece.base if bare else (piece,))
        return tuple(pieces)

    tokens.append("\0")
    try:
        pieces = sequence("\0")
    except (ValueError, RecursionError):
        return None
    if len(pieces) == 1:
        return pieces[0] if isinstance(pieces[0], Written) else Written(pieces)
    return Written(pieces) if pieces else None


# -- dialects ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Dialect:
    """How one language spells the printer's decisions. ``flat`` languages write everything on one line."""

    name: str
    digits: Callable[[Sequence[str]], str]
    glyph: Callable[[Glyph], str]
    scripts: Callable[[str, str, str, int, str], str]
    dot: str
    gap: str
    plus: str
    minus: str
    sign: str
    comma: str
    parens: Callable[[str, bool], str]
    opening: Callable[[bool], str]
    closing: Callable[[bool], str]
    fraction: Callable[[str, str], str]
    power: Callable[[str, str], str]
    root: Callable[[str], str]
    ceiling: Callable[[str], str]
    floor: Callable[[str], str]
    function: Callable[[str], str]
    based: Callable[[str, str], str]
    apply: str
    flat: bool = False


def _tex_glyph(g: Glyph) -> str:
    match g.style:
        case "greek":
            # These capitals and omicron-likes are all defined by LaTeX itself.
            return f"\\{g.text} "
        case "ell":
            return "\\ell "
        case "italic" if len(g.text) == 1:
            return g.text
        case "italic":
            return f"\\mathit{{{_tex_math_words(g.text)}}}"
        case "digits":
            return g.text
        case "sign":
            return g.text if g.text in ",-" else {"+": "+", "*": "*"}[g.text]
        case "bold":
            return f"\\mathbf{{{_tex_math_words(g.text)}}}"
        case "calligraphic":
            return f"\\mathcal{{{_tex_math_words(g.text)}}}"
        case "blackboard":
            return f"\\mathbb{{{_tex_math_words(g.text)}}}"
        case "sans":
            return f"\\mathsf{{{_tex_math_words(g.text)}}}"
        case "mono":
            return f"\\mathtt{{{_tex_math_words(g.text)}}}"
    return f"\\text{{{tex_text(g.text)}}}"


def _tex_math_words(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9]", "", text)


def _tex_scripts(base: str, lower: str, upper: str, primes: int, accent: str) -> str:
    base = base.rstrip() if lower or upper or primes else base
    if accent:
        base = f"\\{accent}{{{base.strip()}}}"
    out = base + (f"_{{{lower.strip()}}}" if lower else "")
    if upper:
        return out + f"^{{{upper.strip()}" + "\\prime" * primes + "}"
    return out + "'" * primes


def _typst_glyph(g: Glyph) -> str:
    letter = g.text if len(g.text) == 1 and g.text.isascii() and g.text.isalnum() else typst_string(g.text)
    match g.style:
        case "greek":
            return GREEK_NAMES[g.text]
        case "ell":
            return "ell"
        case "italic":
            return letter if len(g.text) == 1 and g.text.isascii() else f"italic({letter})"
        case "digits":
            return g.text
        case "sign":
            return {"*": "*", "-": "-", "+": "+", ",": ","}[g.text]
        case "bold":
            return f"bold({letter})"
        case "calligraphic":
            return f"cal({letter})"
        case "blackboard":
            return f"bb({letter})"
        case "sans":
            return f"sans({letter})"
        case "mono":
            return f"mono({letter})"
    return typst_string(g.text)


def _typst_scripts(base: str, lower: str, upper: str, primes: int, accent: str) -> str:
    if accent:
        base = {"hat": "hat", "bar": "macron", "tilde": "tilde"}[accent] + f"({base})"
    upper = " ".join(p for p in (upper, " ".join(["prime"] * primes)) if p)
    return base + (f"_({lower})" if lower else "") + (f"^({upper})" if upper else "")


_NARROW = "\N{NARROW NO-BREAK SPACE}"


def _styled(text: str, style: str) -> str:
    # MathML Core knows no mathvariant but "normal"; styled letters are characters of their own.
    starts = {"bold": (0x1D400, 0x1D41A), "calligraphic": (0x1D49C, 0x1D4B6), "blackboard": (0x1D538, 0x1D552)}
    holes = {
        "calligraphic": dict(zip("BEFHILMRego", "ℬℰℱℋℐℒℳℛℯℊℴ", strict=True)),
        "blackboard": dict(zip("CHNPQRZ", "ℂℍℕℙℚℝℤ", strict=True)),
        "sans": {},
        "mono": {},
    }
    starts |= {"sans": (0x1D5A0, 0x1D5BA), "mono": (0x1D670, 0x1D68A)}
    upper, lower = starts[style]

    def one(c: str) -> str:
        if c in holes.get(style, {}):
            return holes[style][c]
        if "A" <= c <= "Z":
            return chr(upper + ord(c) - ord("A"))
        return chr(lower + ord(c) - ord("a")) if "a" <= c <= "z" else c

    return "".join(one(c) for c in text)


def _mathml_glyph(g: Glyph) -> str:
    match g.style:
        case "greek":
            return f"<mi>{GREEK_NAMES[g.text]}</mi>"
        case "digits":
            return f"<mn>{g.text}</mn>"
        case "sign":
            return "<mo>−</mo>" if g.text == "-" else f"<mo>{html_text(g.text)}</mo>"
        case "italic" | "ell":
            return f"<mi>{html_text(g.text)}</mi>"
        case "upright":
            # One upright letter would be set in italics without the attribute.
            normal = ' mathvariant="normal"' if len(g.text) == 1 else ""
            return f"<mi{normal}>{html_text(g.text)}</mi>"
    return f"<mi>{html_text(_styled(g.text, g.style))}</mi>"


def _mathml_scripts(base: str, lower: str, upper: str, primes: int, accent: str) -> str:
    if accent:
        mark = {"hat": "^", "bar": "¯", "tilde": "~"}[accent]
        base = f'<mover accent="true">{_row(base)}<mo>{mark}</mo></mover>'
    upper += f"<mo>{'′' * primes}</mo>" if primes else ""
    if lower and upper:
        return f"<msubsup>{_row(base)}{_row(lower)}{_row(upper)}</msubsup>"
    if lower:
        return f"<msub>{_row(base)}{_row(lower)}</msub>"
    return f"<msup>{_row(base)}{_row(upper)}</msup>" if upper else base


def _row(content: str) -> str:
    single = re.fullmatch(r"<(mi|mn|mo)[^>]*>[^<]*</\1>", content)
    return content if single else f"<mrow>{content}</mrow>"


_SUPERSCRIPT = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


def _plain_power(base: str, exponent: str) -> str:
    if re.fullmatch(r"-?\d{1,4}", exponent):
        return base + exponent.translate(_SUPERSCRIPT)
    return f"{base}^({exponent})" if not re.fullmatch(r"\w+", exponent) else f"{base}^{exponent}"


LATEX = Dialect(
    name="latex",
    digits=lambda groups: r"\,".join(groups),
    glyph=_tex_glyph,
    scripts=_tex_scripts,
    dot=r" \cdot ",
    gap=r"\,",
    plus=" + ",
    minus=" - ",
    sign="-",
    comma=r",\, ",
    parens=lambda inside, tall: rf"\left({inside}\right)" if tall else f"({inside})",
    opening=lambda tall: r"\Bigl(" if tall else "(",
    closing=lambda tall: r"\Bigr)" if tall else ")",
    fraction=lambda top, bottom: rf"\frac{{{top.strip()}}}{{{bottom.strip()}}}",
    power=lambda base, exponent: f"{base.strip()}^{{{exponent.strip()}}}",
    root=lambda inside: rf"\sqrt{{{inside.strip()}}}",
    ceiling=lambda inside: rf"\left\lceil {inside} \right\rceil ",
    floor=lambda inside: rf"\left\lfloor {inside} \right\rfloor ",
    function=lambda name: f"\\{name}",
    based=lambda name, base: f"\\{name}_{{{base}}}",
    apply="",
)

TYPST = Dialect(
    name="typst",
    digits=lambda groups: " thin ".join(groups),
    glyph=_typst_glyph,
    scripts=_typst_scripts,
    dot=" dot.c ",
    gap=" thin ",
    plus=" + ",
    minus=" - ",
    sign="-",
    comma=", ",
    parens=lambda inside, tall: f"({inside})",
    # Escaped, since the two stand in different lines; given the height that their contents would give them.
    opening=lambda tall: "lr(size: #2.3em, \\()" if tall else "\\(",
    closing=lambda tall: "lr(size: #2.3em, \\))" if tall else "\\)",
    fraction=lambda top, bottom: f"frac({top}, {bottom})",
    power=lambda base, exponent: f"{base}^({exponent})",
    root=lambda inside: f"sqrt({inside})",
    ceiling=lambda inside: f"ceil({inside})",
    floor=lambda inside: f"floor({inside})",
    function=lambda name: name,
    based=lambda name, base: f"{name}_({base})",
    apply=" ",
)

MATHML = Dialect(
    name="mathml",
    digits=lambda groups: f"<mn>{_NARROW.join(groups)}</mn>",
    glyph=_mathml_glyph,
    scripts=_mathml_scripts,
    dot="<mo>·</mo>",
    gap='<mspace width="0.167em"></mspace>',
    plus="<mo>+</mo>",
    minus="<mo>−</mo>",
    sign='<mo form="prefix">−</mo>',
    comma='<mo separator="true">,</mo>',
    parens=lambda inside, tall: f"<mrow><mo>(</mo>{inside}<mo>)</mo></mrow>",
    opening=lambda tall: "<mo>(</mo>",
    closing=lambda tall: "<mo>)</mo>",
    fraction=lambda top, bottom: f"<mfrac>{_row(top)}{_row(bottom)}</mfrac>",
    power=lambda base, exponent: f"<msup>{_row(base)}{_row(exponent)}</msup>",
    root=lambda inside: f"<msqrt>{inside}</msqrt>",
    ceiling=lambda inside: f"<mrow><mo>⌈</mo>{inside}<mo>⌉</mo></mrow>",
    floor=lambda inside: f"<mrow><mo>⌊</mo>{inside}<mo>⌋</mo></mrow>",
    function=lambda name: f"<mi>{name}</mi>",
    based=lambda name, base: f"<msub><mi>{name}</mi><mn>{base}</mn></msub>",
    apply="<mo>&#x2061;</mo>",
)

PLAIN = Dialect(
    name="text",
    digits=lambda groups: " ".join(groups),
    glyph=lambda g: printable(g.text),
    scripts=lambda base, lower, upper, primes, accent: base,
    dot="·",
    gap="·",
    plus=" + ",
    minus=" - ",
    sign="-",
    comma=", ",
    parens=lambda inside, tall: f"({inside})",
    opening=lambda tall: "(",
    closing=lambda tall: ")",
    fraction=lambda top, bottom: f"{top}/{bottom}",
    power=_plain_power,
    root=lambda inside: f"√({inside})",
    ceiling=lambda inside: f"⌈{inside}⌉",
    floor=lambda inside: f"⌊{inside}⌋",
    function=lambda name: name,
    based=lambda name, base: f"{name}_{base}",
    apply="",
    flat=True,
)

# -- the printer -------------------------------------------------------------------------------

_SUM, _PRODUCT, _RATIO, _POWER, _ATOM = range(5)


@dataclass(frozen=True)
class _Out:
    """A printed piece: its text, how tightly it binds, whether it begins with a digit, its height and width (em)."""

    text: str
    level: int
    numeric: bool = False
    tall: bool = False
    width: float = 0.0


@dataclass(frozen=True)
class _Piece:
    """A part of a line that stays together; ``penalty`` 0 forbids a break before it."""

    text: str
    fresh: str  # the text where it starts a line
    width: float
    penalty: int


def _groups(n: int) -> list[str]:
    digits = str(n)
    if len(digits) <= 4:
        return [digits]
    head = len(digits) % 3
    return ([digits[:head]] if head else []) + [digits[i : i + 3] for i in range(head, len(digits), 3)]


def _split_sign(form: Form) -> tuple[bool, Form]:
    """Whether a term is subtracted, and the term without its sign."""
    match form:
        case Num(number, unit) if number < 0:
            return True, Num(-number, unit)
        case Product(factors) if factors and isinstance(factors[0], Num) and factors[0].number < 0:
            first = factors[0]
            rest = factors[1:]
            kept = rest if first.number == -1 and rest else (Num(-first.number, first.unit), *rest)
            return True, kept[0] if len(kept) == 1 else Product(kept)
        case Ratio(top, bottom):
            minus, positive = _split_sign(top)
            return minus, Ratio(positive, bottom)
    return False, form


def _flat_factors(factors: Sequence[Form]) -> list[Form]:
    out: list[Form] = []
    for f in factors:
        if isinstance(f, Product) and f.factors and not _split_sign(f)[0]:
            out.extend(_flat_factors(f.factors))
        else:
            out.append(f)
    return out


class _Printer:
    """Prints one form in one dialect."""

    def __init__(self, dialect: Dialect, names: Names | None, notation: Notation | None) -> None:
        self.d = dialect
        self.names = names or {}
        self.latex = notation.latex if notation else {}
        self.limit = float("inf")

    def resolved(self, form: Form) -> Form:
        """The form with its names substituted."""
        if not self.names:
            return form

        def one(s: Sym) -> Form:
            if s.name not in self.names:
                return s
            new = self.names[s.name]
            if isinstance(new, Form):
                return new
            return Sym(new) if isinstance(new, str) else Num(Fraction(new))

        return forms.substitute(form, one)

    # names

    def name(self, name: str) -> _Out:
        w = written(name, self.latex.get(name, ""))
        if self.d.flat:
            text = printable(name)
            marked = not text.isidentifier()
            return _Out(text, _POWER if marked else _ATOM, text[:1].isdigit(), width=0.55 * len(text))
        marked = bool(w.upper or w.primes or len(w.base) > 1)
        return _Out(self.spell(w), _POWER if marked else _ATOM, width=_name_width(w))

    def spell(self, w: Written) -> str:
        def run(pieces: tuple[Glyph | Written, ...]) -> str:
            joint = " " if self.d.name == "typst" else ""
            return joint.join(self.d.glyph(p) if isinstance(p, Glyph) else self.spell(p) for p in pieces)

        base = run(w.base)
        if len(w.base) > 1 and (w.lower or w.upper) and self.d.name in ("latex", "typst"):
            base = f"{{{base}}}" if self.d.name == "latex" else f"({base})"
        return self.d.scripts(base, run(w.lower), run(w.upper), w.primes, w.accent)

    # forms

    def number(self, value: Fraction) -> _Out:
        d = self.d
        if value < 0:
            out = self.number(-value)
            return _Out(d.sign + out.text, _SUM, False, out.tall, out.width + 0.8)
        groups = _groups(value.numerator)
        width = sum(0.5 * len(g) + 0.17 for g in groups)
        top = _Out(d.digits(groups), _ATOM, True, width=width)
        if value.denominator == 1:
            return top
        bottom = self.number(Fraction(value.denominator))
        return self.ratio(top, bottom)

    def ratio(self, top: _Out, bottom: _Out) -> _Out:
        d = self.d
        if d.flat:
            numeric = top.numeric and top.level >= _PRODUCT
            left = top if top.level >= _PRODUCT and top.level != _RATIO else self.wrapped(top)
            right = bottom if bottom.level >= _POWER else self.wrapped(bottom)
            return _Out(d.fraction(left.text, right.text), _RATIO, numeric, False, left.width + right.width + 0.5)
        width = max(top.width, bottom.width) + 0.3
        return _Out(d.fraction(top.text, bottom.text), _RATIO, top.numeric, True, width)

    def wrapped(self, out: _Out) -> _Out:
        return _Out(self.d.parens(out.text, out.tall), _ATOM, False, out.tall, out.width + 0.8)

    def at_least(self, out: _Out, level: int) -> _Out:
        return out if out.level >= level else self.wrapped(out)

    def factors(self, parts: Sequence[Form]) -> list[tuple[str, _Out]]:
        """Each factor with what stands before it."""
        printed: list[tuple[str, _Out]] = []
        flat = _flat_factors(parts)
        for i, f in enumerate(flat):
            out = self.go(f)
            last = i == len(flat) - 1
            weak = out.level < _PRODUCT or (self.d.flat and out.level == _RATIO and not last)
            out = self.wrapped(out) if weak else out
            joint = "" if not i else self.d.dot if out.numeric else self.d.gap
            printed.append((joint, out))
        return printed

    def terms(self, parts: Sequence[Form]) -> list[tuple[str, Form, bool]]:
        """Each term without its sign, with what stands before it."""
        out: list[tuple[str, Form, bool]] = []
        for i, t in enumerate(parts):
            minus, positive = _split_sign(t)
            joint = (self.d.minus if minus else self.d.plus) if i else (self.d.sign if minus else "")
            out.append((joint, positive, minus))
        return out

    def go(self, form: Form) -> _Out:
        d = self.d
        match form:
            case Num(number):
                return self.number(number)
            case Sym(name):
                return self.name(name)
            case Total(terms):
                if not terms:
                    return self.number(Fraction(0))
                if len(terms) == 1:
                    return self.go(terms[0])
                outs = [(j, self.at_least(self.go(t), _PRODUCT)) for j, t, _ in self.terms(terms)]
                text = "".join(j + o.text for j, o in outs)
                return _Out(text, _SUM, False, any(o.tall for _, o in outs), sum(o.width + 1.6 for _, o in outs))
            case Product(factors):
                minus, positive = _split_sign(form)
                if minus:
                    out = self.at_least(self.go(positive), _PRODUCT)
                    return _Out(d.sign + out.text, _SUM, False, out.tall, out.width + 0.8)
                printed = self.factors(factors)
                if not printed:
                    return self.number(Fraction(1))
                if len(printed) == 1:
                    return self.go(_flat_factors(factors)[0])
                text = "".join(j + o.text for j, o in printed)
                width = sum(o.width + (0.7 if j == d.dot else 0.17) for j, o in printed)
                # A product that ends in a flat fraction binds like one: a*b/c.
                level = _RATIO if d.flat and printed[-1][1].level == _RATIO else _PRODUCT
                return _Out(text, level, printed[0][1].numeric, any(o.tall for _, o in printed), width)
            case Ratio(top, bottom):
                minus, positive = _split_sign(form) if d.flat else (False, form)
                if minus:
                    out = self.go(positive)
                    return _Out(d.sign + out.text, _SUM, False, out.tall, out.width + 0.8)
                return self.ratio(self.go(top), self.go(bottom))
            case Power(base, exponent):
                below, above = self.at_least(self.go(base), _ATOM), self.go(exponent)
                text = d.power(below.text, above.text)
                return _Out(text, _POWER, below.numeric, below.tall, below.width + 0.7 * above.width)
            case Root(inside):
                out = self.go(inside)
                level = _POWER if d.flat else _ATOM
                return _Out(d.root(out.text), level, False, out.tall, out.width + 1.0)
            case Ceiling(inside) | Floor(inside):
                out = self.go(inside)
                text = (d.ceiling if isinstance(form, Ceiling) else d.floor)(out.text)
                return _Out(text, _ATOM, False, out.tall, out.width + 0.9)
            case Largest(choices) | Smallest(choices):
                outs_ = [self.go(c) for c in choices]
                tall = any(o.tall for o in outs_)
                inside_text = d.comma.join(o.text for o in outs_)
                text = d.function("max" if isinstance(form, Largest) else "min") + d.apply + d.parens(inside_text, tall)
                return _Out(text, _ATOM if d.flat else _POWER, False, tall, sum(o.width + 0.5 for o in outs_) + 2.4)
            case Logarithm(inside, base):
                out = self.go(inside)
                head = d.based("log", str(base)) if base else d.function("ln")
                return _Out(head + d.apply + d.parens(out.text, out.tall), _POWER, False, out.tall, out.width + 2.5)
        raise TypeError(f"no printing of {type(form).__name__}")

    # lines

    def pieces(self, form: Form, depth: int = 0) -> list[_Piece]:
        """The form as pieces between which a long line may be broken."""
        d = self.d
        match form:
            case Total(terms) if len(terms) > 1:
                out: list[_Piece] = []
                for i, (joint, term, _) in enumerate(self.terms(terms)):
                    nested = self.pieces(term, depth + 1)
                    if isinstance(term, Total) and len(term.terms) > 1:
                        nested = self.enclosed(nested, self.go(term).tall)
                    first = nested[0]
                    fresh = _at_start(d, joint) if i else joint
                    penalty = (2 * depth + 1) if i else 0
                    width = first.width + (1.6 if i else 0.8 if joint else 0)
                    out.append(_Piece(joint + first.text, fresh + first.fresh, width, penalty))
                    out.extend(nested[1:])
                return out
            case Product(factors) if len(factors) > 1 and not _split_sign(form)[0]:
                flat = _flat_factors(factors)
                made: list[_Piece] = []
                for i, ((joint, printed), factor) in enumerate(zip(self.factors(factors), flat, strict=True)):
                    penalty = (2 * depth + 2) if i else 0
                    gap = 0.0 if not i else 0.7 if joint == d.dot else 0.17
                    fresh = _at_start(d, d.dot) if i else ""
                    if isinstance(factor, Total) and len(factor.terms) > 1 and printed.width > 12:
                        nested = self.enclosed(self.pieces(factor, depth + 1), printed.tall)
                        first = nested[0]
                        made.append(_Piece(joint + first.text, fresh + first.fresh, first.width + gap, penalty))
                        made.extend(nested[1:])
                    else:
                        made.append(_Piece(joint + printed.text, fresh + printed.text, printed.width + gap, penalty))
                return made
            case Ratio(top, bottom):
                whole = self.go(form)
                if whole.width > self.limit and self.go(bottom).width < 0.5 * self.limit and len(self.pieces(top)) > 1:
                    # A fraction cannot be broken; the same as a factor can.
                    return self.pieces(Product((Ratio(Num(Fraction(1)), bottom), top)), depth)
        whole = self.go(form)
        return [_Piece(whole.text, whole.text, whole.width, 0)]

    def enclosed(self, pieces: list[_Piece], tall: bool) -> list[_Piece]:
        """The pieces in parentheses that may stand in different lines."""
        opening, closing = self.d.opening(tall), self.d.closing(tall)
        first = pieces[0]
        pieces[0] = _Piece(opening + first.text, opening + first.fresh, first.width + 0.5, first.penalty)
        last = pieces[-1]
        pieces[-1] = _Piece(last.text + closing, last.fresh + closing, last.width + 0.5, last.penalty)
        return pieces


def _at_start(d: Dialect, joint: str) -> str:
    """A sign between two operands where it starts a line, spaced as if the first one were still there."""
    match d.name:
        case "latex":
            return "{}" + joint
        case "typst":
            return joint.strip() + " med "
        case "mathml":
            return joint.replace("<mo>", '<mo form="infix">')
    return joint.strip() + " "


def _name_width(w: Written) -> float:
    def run(pieces: tuple[Glyph | Written, ...]) -> float:
        return sum(0.55 * len(p.text) if isinstance(p, Glyph) else _name_width(p) for p in pieces)

    return run(w.base) + 0.7 * max(run(w.lower), run(w.upper)) + 0.3 * w.primes + 0.05


def _print(dialect: Dialect, form: Form, names: Names | None, notation: Notation | None) -> str:
    printer = _Printer(dialect, names, notation)
    return printer.go(printer.resolved(form)).text.strip()


def tex(form: Form, names: Names | None = None, notation: Notation | None = None) -> str:
    r"""LaTeX maths of a form, without dollar signs; ``names`` are substituted, ``notation`` says how names look.

    >>> from symcomm.form import Sym, num, product
    >>> tex(product(Sym("k"), num(2)), {"k": 8})
    '8 \\cdot 2'
    """
    return _print(LATEX, form, names, notation)


def typst(form: Form, names: Names | None = None, notation: Notation | None = None) -> str:
    """Typst maths of a form, without dollar signs.

    >>> from symcomm.form import Sym, num, product
    >>> typst(product(num(2), Sym("N_layer")))
    '2 thin N_("layer")'
    """
    return _print(TYPST, form, names, notation)


def mathml(form: Form, names: Names | None = None, notation: Notation | None = None) -> str:
    """MathML of a form, without the ``math`` element around it.

    >>> from symcomm.form import Sym, num, product
    >>> mathml(Sym("N_layer"))
    '<msub><mi>N</mi><mi>layer</mi></msub>'
    """
    return _print(MATHML, form, names, notation)


def plain(form: Form, names: Names | None = None, notation: Notation | None = None) -> str:
    """Unicode text of a form on one line.

    >>> from symcomm.form import Ratio, Sym, Total, num, product
    >>> plain(Ratio(product(num(2), Total((Sym("k"), num(-1)))), Sym("k")))
    '2·(k - 1)/k'
    """
    return _print(PLAIN, form, names, notation)


PRINTERS: dict[str, Callable[..., str]] = {"latex": tex, "typst": typst, "mathml": mathml, "text": plain}
_DIALECTS = {d.name: d for d in (LATEX, TYPST, MATHML, PLAIN)}


def name_in(dialect: DialectName, name: str, notation: Notation | None = None) -> str:
    """A name alone, in a dialect.

    >>> name_in("latex", "W_up^Q"), name_in("text", "W_up^Q")
    ('W_{\\\\text{up}}^{Q}', 'W_up^Q')
    """
    return _print(_DIALECTS[dialect], Sym(name), None, notation)


def width(form: Form, names: Names | None = None, notation: Notation | None = None) -> float:
    """A generous estimate of how wide a form is set, in em.

    >>> from symcomm.form import num
    >>> 0.4 < width(num(2)) < 1
    True
    """
    printer = _Printer(LATEX, names, notation)
    return printer.go(printer.resolved(form)).width


def tall(form: Form, names: Names | None = None, notation: Notation | None = None) -> bool:
    """Whether a form is set higher than a line of text.

    >>> from symcomm.form import Ratio, num
    >>> tall(Ratio(num(1), num(2)))
    True
    """
    printer = _Printer(LATEX, names, notation)
    return printer.go(printer.resolved(form)).tall


def broken(
    dialect: DialectName, form: Form, limit: float, names: Names | None = None, notation: Notation | None = None
) -> tuple[str, ...]:
    """The form in lines of at most ``limit`` em where its sums and products allow it, broken at the outermost place.

    >>> from symcomm.form import Sym, Total
    >>> broken("text", Total(tuple(Sym(f"a_{i}") for i in range(6))), 10)
    ('a_0 + a_1 + a_2', '+ a_3 + a_4 + a_5')
    """
    printer = _Printer(_DIALECTS[dialect], names, notation)
    form = printer.resolved(form)
    whole = printer.go(form)
    if whole.width <= limit:
        return (whole.text.strip(),)
    printer.limit = limit
    rest = printer.pieces(form)
    lines: list[str] = []
    while rest:
        used, fitting = 0.0, 0
        while fitting < len(rest) and (used + rest[fitting].width <= limit or not fitting):
            used += rest[fitting].width
            fitting += 1
        if fitting < len(rest):
            allowed = [i for i in range(1, fitting + 1) if rest[i].penalty]
            # A break at an outer place is better, unless it leaves the line nearly empty.
            full = [i for i in allowed if sum(p.width for p in rest[:i]) > 0.4 * min(limit, used)] or allowed
            cut = (
                min(full, key=lambda i: (rest[i].penalty, -i))
                if full
                else next((i for i in range(fitting, len(rest)) if rest[i].penalty), len(rest))
            )
        else:
            cut = len(rest)
        lines.append((rest[0].fresh + "".join(p.text for p in rest[1:cut])).strip())
        rest = rest[cut:]
    return tuple(lines)


# -- sentences ---------------------------------------------------------------------------------

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
        out.append(maths(_print(_DIALECTS[dialect], form, None, notation), match[1]))
    return "".join([*out, escape(text[end:])])


# -- quantities --------------------------------------------------------------------------------

_QUANTITY = re.compile(r"(-?)(\d+(?:\s\d{3})*)(\.\d+)?(?:/(\d+(?:\s\d{3})*))?(?:·10\^(-?\d+))?(?: (.*))?")


@dataclass(frozen=True)
class Said:
    """One way to say a quantity: the relation before it, and its parts as they are read."""

    relation: str
    minus: bool
    groups: tuple[str, ...]
    decimals: str
    below: tuple[str, ...]
    exponent: str
    unit: str


def said(quantity: Quantity) -> tuple[Said, ...]:
    """The ways to say a quantity, taken apart for the printers.

    >>> from symcomm.units import BYTE
    >>> [s.unit for s in said(Quantity(Fraction(3 * 2**30), BYTE))]
    ['B', 'GB', 'GiB']
    """
    out: list[Said] = []
    for relation, text in quantity.lines():
        match = _QUANTITY.fullmatch(text.strip())
        if match is None:  # a text this pattern does not know is shown as it is
            out.append(Said(relation, False, (), "", (), "", text))
            continue
        minus, whole, decimals, below, exponent, unit = match.groups()
        groups = tuple(re.findall(r"\d+", whole))
        lower = tuple(re.findall(r"\d+", below or ""))
        out.append(Said(relation, bool(minus), groups, decimals or "", lower, exponent or "", unit or ""))
    return tuple(out)


_UNIT_POWER = re.compile(r"\^(-?\d+)")


def _amount_tex(s: Said) -> str:
    number = r"\,".join(s.groups) + s.decimals
    if s.below:
        number = LATEX.fraction(number, LATEX.digits(s.below))
    if s.exponent:
        number += rf" \cdot 10^{{{s.exponent}}}"
    parts = [tex_text_unit(p) for p in _UNIT_POWER.split(s.unit)[::2]]
    powers = _UNIT_POWER.findall(s.unit)
    unit = "".join(
        (rf"\text{{{p}}}" if p else "") + (f"^{{{powers[i]}}}" if i < len(powers) else "") for i, p in enumerate(parts)
    )
    space = r"\ " if number and unit else ""
    return ("-" if s.minus else "") + number + space + unit


def tex_text_unit(unit: str) -> str:
    r"""A unit's name for LaTeX's text mode, inside maths.

    >>> tex_text_unit("FLOP/(B·s)")
    'FLOP/(B$\\cdot$s)'
    """
    return tex_text(unit).replace("·", r"$\cdot$").replace("µ", r"$\mu$")


def _amount_typst(s: Said) -> str:
    number = " thin ".join(s.groups)
    if s.decimals:
        # A dot between digits is one number only where the digits touch it.
        number = " thin ".join([*s.groups[:-1], s.groups[-1] + s.decimals])
    if s.below:
        number = f"frac({number}, {' thin '.join(s.below)})"
    if s.exponent:
        number += f" dot.c 10^({s.exponent})"
    unit = typst_string(_superscripts(s.unit)) if s.unit else ""
    return ("-" if s.minus else "") + " med ".join(p for p in (number, unit) if p)


def _superscripts(unit: str) -> str:
    return _UNIT_POWER.sub(lambda m: m[1].translate(_SUPERSCRIPT), unit)


def _amount_mathml(s: Said) -> str:
    number = f"<mn>{_NARROW.join(s.groups)}{s.decimals}</mn>" if s.groups else ""
    if s.below:
        number = f"<mfrac>{number}<mn>{_NARROW.join(s.below)}</mn></mfrac>"
    if s.exponent:
        number += f"<mo>·</mo><msup><mn>10</mn><mn>{s.exponent.replace('-', '−')}</mn></msup>"
    unit = f"<mtext>{html_text(_superscripts(s.unit))}</mtext>" if s.unit else ""
    space = '<mspace width="0.25em"></mspace>' if number and unit else ""
    return ('<mo form="prefix">−</mo>' if s.minus else "") + number + space + unit


def _amount_text(s: Said) -> str:
    number = " ".join(s.groups) + s.decimals + (f"/{' '.join(s.below)}" if s.below else "")
    number += f"·10{s.exponent.translate(_SUPERSCRIPT)}" if s.exponent else ""
    return ("-" if s.minus else "") + " ".join(p for p in (number, _superscripts(printable(s.unit))) if p)


_AMOUNT: dict[str, Callable[[Said], str]] = {
    "latex": _amount_tex,
    "typst": _amount_typst,
    "mathml": _amount_mathml,
    "text": _amount_text,
}
RELATIONS: dict[str, dict[str, str]] = {
    "latex": {"=": "=", ":=": "=", "≈": r"\approx", "": ""},
    "typst": {"=": "=", ":=": "=", "≈": "approx", "": ""},
    "mathml": {"=": "<mo>=</mo>", ":=": "<mo>=</mo>", "≈": "<mo>≈</mo>", "": ""},
    "text": {"=": "=", ":=": "=", "≈": "≈", "": ""},
}


def amounts(dialect: DialectName, quantity: Quantity) -> tuple[tuple[str, str], ...]:
    """The ways to say a quantity in a dialect, each with its printed relation.

    >>> from symcomm.units import BYTE
    >>> amounts("latex", Quantity(Fraction(2**30), BYTE))[2]
    ('=', '1\\\\ \\\\text{GiB}')
    """
    return tuple((RELATIONS[dialect][s.relation], _AMOUNT[dialect](s)) for s in said(quantity))


def quantity_in(dialect: DialectName, quantity: Quantity) -> str:
    """A quantity in all its ways on one line.

    >>> from symcomm.units import BYTE
    >>> quantity_in("text", Quantity(Fraction(12 * 2**30), BYTE))
    '12 884 901 888 B = 12.88 GB = 12 GiB'
    """
    joint = "" if dialect == "mathml" else " "
    return joint.join(p for pair in amounts(dialect, quantity) for p in pair if p)


def quantity_tex(quantity: Quantity) -> str:
    r"""A quantity in LaTeX maths.

    >>> quantity_tex(Quantity(Fraction(12345)))
    '12\\,345'
    """
    return quantity_in("latex", quantity)


def quantity_typst(quantity: Quantity) -> str:
    """A quantity in Typst maths.

    >>> quantity_typst(Quantity(Fraction(12345)))
    '12 thin 345'
    """
    return quantity_in("typst", quantity)


def quantity_mathml(quantity: Quantity) -> str:
    """A quantity in MathML.

    >>> quantity_mathml(Quantity(Fraction(7)))
    '<mn>7</mn>'
    """
    return quantity_in("mathml", quantity)


def quantity_plain(quantity: Quantity) -> str:
    """A quantity in plain text.

    >>> quantity_plain(Quantity(Fraction(1, 3)))
    '1/3 ≈ 0.333333'
    """
    return quantity_in("text", quantity)


# -- derivations -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Line:
    """One line of a derivation: ``name`` is empty where the line above has the same left side.

    ``number`` counts the steps from 1; ``names`` is what is substituted in the form, if anything.
    """

    number: int
    name: str
    relation: str
    form: Form
    reason: str
    rule: str
    condition: str
    step: Step


def lines(derivation: Derivation) -> tuple[Line, ...]:
    """The steps as numbered lines, continuations without their left side."""
    out: list[Line] = []
    last = ""
    for i, step in enumerate(derivation.steps, 1):
        name = "" if step.name == last else step.name
        last = step.name
        reason = step.reason
        out.append(Line(i, name, step.relation, step.form, reason.text, reason.rule, step.condition, step))
    return tuple(out)


def numbers(derivation: Derivation, values: Mapping[str, Fraction] | None = None) -> dict[str, Fraction]:
    """All numbers known at the given values: the values, what relations imply, and the steps that follow.

    A step whose number is unknown or irrational is left out.
    """
    known = derivation.values(**(values or {}))
    for step in derivation.steps:
        if step.relation == ":=":
            try:
                known[step.name] = forms.evaluate(step.form, known)
            except ValuesError:
                continue
    return known


def result(
    derivation: Derivation, values: Mapping[str, Fraction] | None = None
) -> tuple[dict[str, Fraction], Quantity] | None:
    """The numbers and the exact quantity of the answer, or None where a value is missing."""
    known = numbers(derivation, values)
    form = derivation.answer.form
    if any(name not in known for name in forms.names(form)):
        return None
    try:
        return known, Quantity(forms.evaluate(form, known), derivation.unit)
    except ValuesError:
        return None


def substituted(derivation: Derivation, known: Mapping[str, Fraction]) -> dict[str, Fraction] | None:
    """The names of the answer with their numbers; None where the answer's form has no names (nothing to show)."""
    used = {name: known[name] for name in forms.names(derivation.answer.form) if name in known}
    return used or None


def derivation(d: Derivation, dialect: DerivationDialect = "text", values: Mapping[str, Fraction] | None = None) -> str:
    """A derivation as a person writes it: title, conventions, steps with reasons, exhibits, and the number.

    The number needs all values, given in the derivation or in ``values``.
    """
    return {"text": _as_text, "latex": _as_latex, "markdown": _as_markdown, "html": _as_html}[dialect](d, values)


def _cell(dialect: DialectName, cell: object, notation: Notation) -> str:
    if isinstance(cell, Form):
        return PRINTERS[dialect](cell, None, notation)
    return quantity_in(dialect, cell) if isinstance(cell, Quantity) else _plain_sentence(str(cell))


def _reason(line: Line) -> str:
    return line.reason + (f" (if {line.condition})" if line.condition else "")


def _plain_sentence(text: str) -> str:
    return sentence("text", text, printable, lambda _, name: printable(name))


def _tex_sentence(text: str, notation: Notation) -> str:
    return sentence("latex", text, tex_text, lambda printed, _: f"${printed}$", notation)


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


def _as_text(d: Derivation, values: Mapping[str, Fraction] | None) -> str:
    out = [_plain_sentence(d.title)]
    out += [f"  convention {c.field}: {c.name}. {c.statement}" for c in d.conventions]
    out.append("")
    shown = [
        (name_in("text", line.name) if line.name else "", line.relation.lstrip(":"), plain(line.form), _reason(line))
        for line in lines(d)
    ]
    left = max(len(n) for n, *_ in shown)
    right = min(48, max(len(f) for _, _, f, _ in shown))
    for name, relation, formula, reason in shown:
        body = f"  {name:>{left}} {relation} {formula}"
        gap = right - len(formula)
        beside = " " * gap + "   " if gap >= 0 else "\n" + " " * (left + 7)
        out.append(body + beside + _plain_sentence(reason))
    found = result(d, values)
    if found:
        known, quantity = found
        used = substituted(d, known)
        pad = f"  {'':>{left}} "
        out.append("")
        head = f"  {name_in('text', d.answer.name):>{left}} "
        if used:
            out.append(f"{head}= {plain(d.answer.form, used)}")
            head = pad
        out.append(f"{head}= {quantity_plain(quantity)}")
    elif str(d.unit) != "1":
        out.append(f"  {'':>{left}}   in {d.unit}")
    for exhibit in d.exhibits:
        out += ["", *_text_table(exhibit, d.notation)]
    out += ["", *(_plain_sentence(n) for n in d.notes)] if d.notes else []
    return "\n".join(line.rstrip() for line in out)


def _text_table(e: Exhibit, notation: Notation) -> list[str]:
    rows = [list(e.columns)] + [[_cell("text", c, notation) for c in row] for row in e.rows]
    widths = [max(len(r[i]) for r in rows) for i in range(len(e.columns))]
    lined = ["  " + "  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)) for r in rows]
    return [f"  {_plain_sentence(e.title)}", lined[0], "  " + "  ".join("-" * w for w in widths), *lined[1:]]


def _equations(
    d: Derivation, dialect: DialectName, values: Mapping[str, Fraction] | None
) -> list[tuple[str, str, str, str]]:
    """Rows of (left, relation, right, reason) with the substituted line and the quantity at the end."""
    rel = RELATIONS[dialect]
    rows = [
        (
            name_in(dialect, line.name, d.notation) if line.name else "",
            rel[line.relation],
            PRINTERS[dialect](line.form, None, d.notation),
            _reason(line),
        )
        for line in lines(d)
    ]
    found = result(d, values)
    if found:
        known, quantity = found
        used = substituted(d, known)
        approximate = d.steps[-1].relation == "≈"
        left = name_in(dialect, d.answer.name, d.notation) if approximate else ""
        if used:
            rows.append((left, rel["="], PRINTERS[dialect](d.answer.form, used, d.notation), "with the given numbers"))
            left = ""
        rows.append((left, rel["="], quantity_in(dialect, quantity), ""))
    return rows


def _as_latex(d: Derivation, values: Mapping[str, Fraction] | None) -> str:
    rows = [
        f"{left} &{relation} {right}" + (rf" && \text{{{_tex_sentence(reason, d.notation)}}}" if reason else "")
        for left, relation, right, reason in _equations(d, "latex", values)
    ]
    return "\\begin{align*}\n" + " \\\\\n".join(rows) + "\n\\end{align*}"


def markdown_maths(latex: str) -> str:
    r"""LaTeX for ``$...$`` in Markdown, where some readers take a backslash before a comma for an escape.

    >>> markdown_maths(r"12\,884")
    '$12\\thinspace 884$'
    """
    return "$" + latex.replace(r"\,", r"\thinspace ").replace("  ", " ").strip() + "$"


def _as_markdown(d: Derivation, values: Mapping[str, Fraction] | None) -> str:
    out = [f"**{markdown_sentence(d.title, d.notation)}**", ""]
    if d.conventions:
        for c in d.conventions:
            out.append(f"- *{markdown_text(f'{c.field}: {c.name}.')}* {markdown_text(c.statement)}")
        out.append("")
    out += ["| | | reason |", "|---:|:---|:---|"]
    for left, relation, right, reason in _equations(d, "latex", values):
        lhs = markdown_maths(left) if left else ""
        out.append(f"| {lhs} | {markdown_maths(relation + ' ' + right)} | {markdown_sentence(reason, d.notation)} |")
    for e in d.exhibits:
        out += ["", *markdown_table(e, d.notation)]
    out += [""] + [markdown_sentence(n, d.notation) for n in d.notes] if d.notes else []
    return "\n".join(out)


def markdown_table(e: Exhibit, notation: Notation) -> list[str]:
    """An exhibit as the lines of a Markdown pipe table under its title."""

    def maths(cell: object) -> str:
        if isinstance(cell, (Form, Quantity)):
            return markdown_maths(_cell("latex", cell, notation))
        return markdown_sentence(str(cell), notation)

    out = [f"*{markdown_sentence(e.title, notation)}*", ""] if e.title else []
    out += ["| " + " | ".join(markdown_text(c) for c in e.columns) + " |", "|" + " --- |" * len(e.columns)]
    return out + ["| " + " | ".join(maths(c) for c in row) + " |" for row in e.rows]


def math_element(content: str, alt: str = "", display: bool = False) -> str:
    """MathML content in its ``math`` element; ``alt`` is read where maths is not, ``display`` makes fractions large.

    >>> math_element("<mn>7</mn>", "7")
    '<math xmlns="http://www.w3.org/1998/Math/MathML" alttext="7"><mn>7</mn></math>'
    """
    block = ' displaystyle="true"' if display else ""
    label = f' alttext="{html_text(alt)}"' if alt else ""
    return f'<math xmlns="http://www.w3.org/1998/Math/MathML"{block}{label}>{content}</math>'


def _as_html(d: Derivation, values: Mapping[str, Fraction] | None) -> str:
    rows: list[str] = []
    mathml_rows = _equations(d, "mathml", values)
    plain_rows = _equations(d, "text", values)
    for (left, relation, right, reason), said_row in zip(mathml_rows, plain_rows, strict=True):
        said_name, said_relation, said_form, _ = said_row
        name = math_element(left, said_name) if left else ""
        formula = math_element(relation + right, f"{said_relation} {said_form}")
        rows.append(
            f'<tr><td style="text-align:right">{name}</td><td style="text-align:left">{formula}</td>'
            f'<td style="text-align:left">{html_sentence(reason, d.notation)}</td></tr>'
        )
    conventions = "".join(
        f"<li><em>{html_text(c.field)}: {html_text(c.name)}.</em> {html_text(c.statement)}</li>" for c in d.conventions
    )
    head = f"<p><strong>{html_sentence(d.title, d.notation)}</strong></p>" + (
        f"<ul>{conventions}</ul>" if conventions else ""
    )
    tables = "".join(html_table(e, d.notation) for e in d.exhibits)
    notes = "".join(f"<p>{html_sentence(n, d.notation)}</p>" for n in d.notes)
    steps = '<table class="symcomm-steps"><thead><tr><th></th><th>step</th><th>reason</th></tr></thead>'
    return f'<div class="symcomm">{head}{steps}<tbody>{"".join(rows)}</tbody></table>{tables}{notes}</div>'


def html_table(e: Exhibit, notation: Notation) -> str:
    """An exhibit as an HTML table with a caption and column headers."""

    def cell(c: object) -> str:
        if isinstance(c, Form):
            return math_element(mathml(c, None, notation), plain(c))
        if isinstance(c, Quantity):
            return math_element(quantity_mathml(c), quantity_plain(c))
        return html_sentence(str(c), notation)

    head = "".join(f'<th scope="col">{html_text(c)}</th>' for c in e.columns)
    body = "".join("<tr>" + "".join(f"<td>{cell(c)}</td>" for c in row) + "</tr>" for row in e.rows)
    return (
        f'<table class="exhibit"><caption>{html_sentence(e.title, notation)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )
