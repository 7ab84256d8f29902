"""One record a dialect: how LaTeX, Typst, MathML and plain text spell what a formula says."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Literal

from symcomm.core.notation import GREEK_NAMES
from symcomm.core.printing.escape import html_text, printable, tex_text, typst_string
from symcomm.core.printing.names import Glyph
from symcomm.core.records import dataclass

DialectName = Literal["latex", "typst", "mathml", "text"]
_SUPERSCRIPT = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


def _plain_power(base: str, exponent: str) -> str:
    if re.fullmatch(r"-?\d{1,4}", exponent):
        return base + exponent.translate(_SUPERSCRIPT)
    return f"{base}^({exponent})" if not re.fullmatch(r"[A-Za-z0-9]+", exponent) else f"{base}^{exponent}"


_UNIT_POWER = re.compile(r"\^(-?\d+)")


def _raised(unit: str) -> str:
    return _UNIT_POWER.sub(lambda m: m[1].translate(_SUPERSCRIPT), unit)


@dataclass(frozen=True)
class Dialect:
    """How one language spells the printer's decisions, as plain text does where it says nothing else.

    ``space`` stands between a number and its ``unit``. ``flat`` languages write everything on one line.
    """

    name: str
    digits: Callable[[Sequence[str]], str] = lambda groups: " ".join(groups)
    glyph: Callable[[Glyph], str] = lambda g: printable(g.text)
    scripts: Callable[[str, str, str, int, str], str] = lambda base, lower, upper, primes, accent: base
    dot: str = "·"
    gap: str = "·"
    plus: str = " + "
    minus: str = " - "
    sign: str = "-"
    comma: str = ", "
    parens: Callable[[str, bool], str] = lambda inside, tall: f"({inside})"
    opening: Callable[[bool], str] = lambda tall: "("
    closing: Callable[[bool], str] = lambda tall: ")"
    fraction: Callable[[str, str], str] = lambda top, bottom: f"{top}/{bottom}"
    summation: Callable[[str], str] = lambda below: f"Σ_{{{below}}} "
    slash: Callable[[str, str], str] = lambda top, bottom: f"{top}/{bottom}"
    power: Callable[[str, str], str] = _plain_power
    power_of_ten: Callable[[str], str] = lambda exponent: "10" + exponent.translate(_SUPERSCRIPT)
    unit: Callable[[str], str] = lambda unit: _raised(printable(unit))
    space: str = " "
    root: Callable[[str], str] = lambda inside: f"√({inside})"
    ceiling: Callable[[str], str] = lambda inside: f"⌈{inside}⌉"
    floor: Callable[[str], str] = lambda inside: f"⌊{inside}⌋"
    function: Callable[[str], str] = lambda name: name
    based: Callable[[str, str], str] = lambda name, base: f"{name}_{base}"
    apply: str = ""
    odot: str = " ⊙ "
    transposed: Callable[[str], str] = lambda inside: f"{inside}ᵀ"
    fenced: Callable[[str, str, str], str] = lambda left, inside, right: f"{left}{inside}{right}"
    relations: Mapping[str, str] = field(default_factory=lambda: {"=": " = ", ">": " > ", "≈": " ≈ ", "∈": " ∈ "})
    flat: bool = False


_FUNCTIONS = ("max", "min", "ln", "log", "sin", "cos", "tan", "exp", "tanh")  # what LaTeX and Typst have commands for


_TEX_STYLES = {
    "bold": "mathbf", "calligraphic": "mathcal", "blackboard": "mathbb", "sans": "mathsf", "mono": "mathtt",
    "italic": "mathit",
}  # fmt: skip


def _tex_glyph(g: Glyph) -> str:
    if g.style == "greek":  # these capitals and omicron-likes are all defined by LaTeX itself
        return f"\\{g.text} "
    if g.style == "ell":
        return "\\ell "
    if g.style in ("digits", "sign") or (g.style == "italic" and len(g.text) == 1):
        return g.text
    if g.style in _TEX_STYLES:
        letters = re.sub(r"[^A-Za-z0-9]", "", g.text)
        return f"\\{_TEX_STYLES[g.style]}{{{letters}}}"
    return f"\\text{{{tex_text(g.text)}}}"


def _tex_scripts(base: str, lower: str, upper: str, primes: int, accent: str) -> str:
    base = base.rstrip() if lower or upper or primes else base
    if accent:
        base = f"\\{accent}{{{base.strip()}}}"
    out = base + (f"_{{{lower.strip()}}}" if lower else "")
    if upper:
        return out + f"^{{{upper.strip()}" + "\\prime" * primes + "}"
    return out + "'" * primes


def tex_unit(unit: str) -> str:
    r"""A unit in LaTeX maths; signs stand outside of ``\text``, since ``$`` in it would end Markdown's maths.

    >>> tex_unit("FLOP/(B·s)"), tex_unit("µs^2")
    ('\\text{FLOP/(B}\\cdot\\text{s)}', '\\mu\\text{s}^{2}')
    """
    known = {"·": r"\cdot", "µ": r"\mu", "": ""}
    return "".join(
        f"^{{{part[1:]}}}" if _UNIT_POWER.fullmatch(part) else known.get(part, rf"\text{{{tex_text(part)}}}")
        for part in re.split(r"([·µ]|\^-?\d+)", unit)
    )


_TYPST_STYLES = {
    "bold": "bold", "calligraphic": "cal", "blackboard": "bb", "sans": "sans", "mono": "mono", "italic": "italic",
}  # fmt: skip


def _typst_glyph(g: Glyph) -> str:
    letter = g.text if len(g.text) == 1 and g.text.isascii() and g.text.isalnum() else typst_string(g.text)
    if g.style == "greek":
        return GREEK_NAMES[g.text]
    if g.style in ("digits", "sign"):
        return g.text
    if g.style == "ell":
        return "ell"
    if g.style == "italic" and len(g.text) == 1 and g.text.isascii():
        return letter
    return f"{_TYPST_STYLES[g.style]}({letter})" if g.style in _TYPST_STYLES else typst_string(g.text)


def _typst_scripts(base: str, lower: str, upper: str, primes: int, accent: str) -> str:
    if accent:
        base = {"hat": "hat", "bar": "macron", "tilde": "tilde", "dot": "dot"}[accent] + f"({base})"
    upper = " ".join(p for p in (upper, " ".join(["prime"] * primes)) if p)
    return base + (f"_({lower})" if lower else "") + (f"^({upper})" if upper else "")


_NARROW = "\N{NARROW NO-BREAK SPACE}"


# MathML Core knows no mathvariant but "normal"; styled letters are characters of their own: where the capitals begin,
# where the small ones, and what stands elsewhere.
_LETTERS: dict[str, tuple[int, int, dict[str, str]]] = {
    "bold": (0x1D400, 0x1D41A, {}),
    "calligraphic": (0x1D49C, 0x1D4B6, dict(zip("BEFHILMRego", "ℬℰℱℋℐℒℳℛℯℊℴ", strict=True))),
    "blackboard": (0x1D538, 0x1D552, dict(zip("CHNPQRZ", "ℂℍℕℙℚℝℤ", strict=True))),
    "sans": (0x1D5A0, 0x1D5BA, {}),
    "mono": (0x1D670, 0x1D68A, {}),
}


def _styled(letter: str, style: str) -> str:
    upper, lower, holes = _LETTERS[style]
    if letter in holes or not (letter.isascii() and letter.isalpha()):
        return holes.get(letter, letter)
    return chr(upper + ord(letter) - ord("A") if letter.isupper() else lower + ord(letter) - ord("a"))


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
    return f"<mi>{html_text(''.join(_styled(letter, g.style) for letter in g.text))}</mi>"


def _mathml_scripts(base: str, lower: str, upper: str, primes: int, accent: str) -> str:
    if accent:
        mark = {"hat": "^", "bar": "¯", "tilde": "~", "dot": "˙"}[accent]
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


LATEX = Dialect(
    name="latex",
    digits=lambda groups: r"\,".join(groups),
    glyph=_tex_glyph,
    scripts=_tex_scripts,
    dot=r" \cdot ",
    gap=r"\,",
    comma=r",\, ",
    parens=lambda inside, tall: rf"\left({inside}\right)" if tall else f"({inside})",
    opening=lambda tall: r"\Bigl(" if tall else "(",
    closing=lambda tall: r"\Bigr)" if tall else ")",
    summation=lambda below: rf"\sum_{{{below.strip()}}} ",
    fraction=lambda top, bottom: rf"\frac{{{top.strip()}}}{{{bottom.strip()}}}",
    slash=lambda top, bottom: f"{top.strip()}/{bottom.strip()}",
    power=lambda base, exponent: f"{base.strip()}^{{{exponent.strip()}}}",
    power_of_ten=lambda exponent: f"10^{{{exponent}}}",
    unit=tex_unit,
    space=r"\ ",
    root=lambda inside: rf"\sqrt{{{inside.strip()}}}",
    ceiling=lambda inside: rf"\left\lceil {inside} \right\rceil ",
    floor=lambda inside: rf"\left\lfloor {inside} \right\rfloor ",
    function=lambda name: f"\\{name}" if name in _FUNCTIONS else rf"\operatorname{{{name}}}",
    based=lambda name, base: f"\\{name}_{{{base}}}",
    odot=r" \odot ",
    transposed=lambda inside: f"{inside.strip()}^{{\\top}}",
    fenced=lambda left, inside, right: rf"\left{left}{inside}\right{right}",
    relations={"=": " = ", ">": " > ", "≈": r" \approx ", "∈": r" \in "},
)

TYPST = Dialect(
    name="typst",
    digits=lambda groups: " thin ".join(groups),
    glyph=_typst_glyph,
    scripts=_typst_scripts,
    dot=" dot.c ",
    gap=" thin ",
    # Escaped, since the two stand in different lines; given the height that their contents would give them.
    opening=lambda tall: "lr(size: #2.3em, \\()" if tall else "\\(",
    closing=lambda tall: " lr(size: #2.3em, \\))" if tall else "\\)",
    summation=lambda below: f"sum_({below}) ",
    fraction=lambda top, bottom: f"frac({top}, {bottom})",
    slash=lambda top, bottom: f"{top} \\/ {bottom}",
    power=lambda base, exponent: f"{base}^({exponent})",
    power_of_ten=lambda exponent: f"10^({exponent})",
    unit=lambda unit: typst_string(_raised(unit)),
    space=" med ",
    root=lambda inside: f"sqrt({inside})",
    ceiling=lambda inside: f"ceil({inside})",
    floor=lambda inside: f"floor({inside})",
    function=lambda name: name if name in _FUNCTIONS else f'op("{name}")',
    based=lambda name, base: f"{name}_({base})",
    apply=" ",
    odot=" dot.o ",
    transposed=lambda inside: f"{inside.strip()}^top",
    fenced=lambda left, inside, right: f"lr({left} {inside} {right})",
    relations={"=": " = ", ">": " > ", "≈": " approx ", "∈": " in "},
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
    summation=lambda below: f"<munder><mo>∑</mo>{_row(below)}</munder>",
    fraction=lambda top, bottom: f"<mfrac>{_row(top)}{_row(bottom)}</mfrac>",
    slash=lambda top, bottom: f"{top}<mo>/</mo>{bottom}",
    power=lambda base, exponent: f"<msup>{_row(base)}{_row(exponent)}</msup>",
    power_of_ten=lambda exponent: f"<msup><mn>10</mn><mn>{exponent.replace('-', '−')}</mn></msup>",
    unit=lambda unit: f"<mtext>{html_text(_raised(unit))}</mtext>",
    space='<mspace width="0.25em"></mspace>',
    root=lambda inside: f"<msqrt>{inside}</msqrt>",
    ceiling=lambda inside: f"<mrow><mo>⌈</mo>{inside}<mo>⌉</mo></mrow>",
    floor=lambda inside: f"<mrow><mo>⌊</mo>{inside}<mo>⌋</mo></mrow>",
    function=lambda name: f"<mi>{name}</mi>",
    based=lambda name, base: f"<msub><mi>{name}</mi><mn>{base}</mn></msub>",
    apply="<mo>&#x2061;</mo>",
    odot="<mo>⊙</mo>",
    transposed=lambda inside: f"<msup>{_row(inside)}<mo>⊤</mo></msup>",
    fenced=lambda left, inside, right: f"<mrow><mo>{left}</mo>{inside}<mo>{right}</mo></mrow>",
    relations={"=": "<mo>=</mo>", ">": "<mo>&gt;</mo>", "≈": "<mo>≈</mo>", "∈": "<mo>∈</mo>"},
)

PLAIN = Dialect(name="text", flat=True)
