"""The printer of forms: where a dot is, what is put in parentheses, where a long line breaks."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from symcomm.core import form as forms
from symcomm.core.errors import ValuesError
from symcomm.core.form import (
    Applied,
    BinaryOnes,
    Called,
    Ceiling,
    Elementwise,
    Floor,
    Form,
    Largest,
    Logarithm,
    Num,
    Power,
    Product,
    Ratio,
    Related,
    Root,
    Smallest,
    Summed,
    Sym,
    Total,
    Transposed,
)
from symcomm.core.notation import Notation
from symcomm.core.printing.dialects import LATEX, MATHML, PLAIN, TYPST, Dialect, DialectName
from symcomm.core.printing.escape import printable
from symcomm.core.printing.names import Glyph, Written, written
from symcomm.core.records import dataclass
from symcomm.core.units import ONE, decimals, endless, group

# How tightly a piece binds, loosest first: what binds less than its surroundings is put in parentheses.
_SUM, _PRODUCT, _RATIO, _POWER, _ATOM = range(5)

Names = Mapping[str, "str | int | Fraction | Form"]


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
    """The factors of nested products; one byte an element, and a leading 1 before a symbol, are not written."""
    out: list[Form] = []
    for f in factors:
        if isinstance(f, Product) and f.factors and not _split_sign(f)[0]:
            out.extend(_flat_factors(f.factors))
        else:
            out.append(f)
    told = [f for f in out if not (isinstance(f, Num) and f.number == 1 and f.unit != ONE)]
    while len(told) > 1 and isinstance(told[0], Num) and told[0].number == 1 and not isinstance(told[1], Num):
        told = told[1:]
    return told or out[:1]


class _Printer:
    """Prints one form in one dialect."""

    def __init__(self, dialect: Dialect, names: Names | None, notation: Notation | None) -> None:
        self.d = dialect
        self.names = names or {}
        self.latex = notation.latex if notation else {}
        self.limit = float("inf")
        self.flat = dialect.flat

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
            text = re.sub(r"_([^_^']*,[^_^']*)", r"_{\1}", printable(name))
            marked = not (text.isidentifier() or text.isdigit())
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
        if endless(value):
            raise ValuesError("a number of the formula has more than 4,300 digits", hint="give smaller numbers")
        behind = decimals(value)
        groups = group(str(int(value) if behind else value.numerator)).split()
        if behind:
            groups[-1] += f".{behind}"
        width = sum(0.5 * len(g) + 0.17 for g in groups)
        top = _Out(d.digits(groups), _ATOM, True, width=width)
        if value.denominator == 1 or behind:
            return top
        bottom = self.number(Fraction(value.denominator))
        return self.ratio(top, bottom)

    def ratio(self, top: _Out, bottom: _Out) -> _Out:
        d = self.d
        if self.flat:
            numeric = top.numeric and top.level >= _PRODUCT
            left = top if top.level >= _PRODUCT and top.level != _RATIO else self.wrapped(top)
            right = bottom if bottom.level >= _POWER else self.wrapped(bottom)
            return _Out(d.slash(left.text, right.text), _RATIO, numeric, False, left.width + right.width + 0.5)
        width = max(top.width, bottom.width) + 0.3
        return _Out(d.fraction(top.text, bottom.text), _RATIO, top.numeric, True, width)

    def wrapped(self, out: _Out) -> _Out:
        return _Out(self.d.parens(out.text, out.tall), _ATOM, False, out.tall, out.width + 0.8)

    def at_least(self, out: _Out, level: int) -> _Out:
        return out if out.level >= level else self.wrapped(out)

    def factors(self, parts: Sequence[Form]) -> list[tuple[str, _Out]]:
        """Each factor with what comes before it."""
        printed: list[tuple[str, _Out]] = []
        flat = _flat_factors(parts)
        for i, f in enumerate(flat):
            out = self.go(f)
            last = i == len(flat) - 1
            weak = out.level < _PRODUCT or (self.flat and out.level == _RATIO and not last)
            weak |= isinstance(f, Elementwise) and any(not isinstance(one, Num) for one in flat if one is not f)
            out = self.wrapped(out) if weak else out
            joint = "" if not i else self.d.dot if out.numeric else self.d.gap
            printed.append((joint, out))
        return printed

    def terms(self, parts: Sequence[Form]) -> list[tuple[str, Form, bool]]:
        """Each term without its sign, with what comes before it."""
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
                level = _RATIO if self.flat and printed[-1][1].level == _RATIO else _PRODUCT
                return _Out(text, level, printed[0][1].numeric, any(o.tall for _, o in printed), width)
            case Ratio(top, bottom):
                minus, positive = _split_sign(form) if self.flat else (False, form)
                if minus:
                    out = self.go(positive)
                    return _Out(d.sign + out.text, _SUM, False, out.tall, out.width + 0.8)
                return self.ratio(self.go(top), self.go(bottom))
            case Power(base, exponent):
                below, above = self.at_least(self.go(base), _ATOM), self.small(exponent)
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
                return self.call(d.function("max" if isinstance(form, Largest) else "min"), choices)
            case Logarithm(inside, base):
                made = self.call(d.based("log", str(base)) if base else d.function("ln"), (inside,), 2.0)
                return replace(made, level=_POWER)
            case Applied(rule, arguments) if (formula := rule.written(arguments)) is not None:
                return self.go(formula)
            case Applied(rule, arguments):
                return self.call(self.go(Sym("T_" + "".join(filter(str.isalnum, rule.name)))).text, arguments)
            case Called(name, ()):
                return self.name(name)
            case Called(name, arguments):
                return self.called(name, arguments)
            case Transposed(inside):
                out = self.at_least(self.go(inside), _ATOM)
                return _Out(d.transposed(out.text), _POWER, False, out.tall, out.width + 0.5)
            case Elementwise(factors):
                outs_ = [self.at_least(self.go(f), _RATIO if isinstance(f, Product) else _PRODUCT) for f in factors]
                text = d.odot.join(o.text for o in outs_)
                return _Out(text, _PRODUCT, False, any(o.tall for o in outs_), sum(o.width + 1.4 for o in outs_))
            case Summed(indices, inside):
                under = d.comma.join(self.go(one).text for one in indices)
                out = self.at_least(self.go(inside), _PRODUCT)
                return _Out(d.summation(under) + out.text, _PRODUCT, False, True, out.width + 1.4)
            case Related(left, right, relation):
                a, b = self.go(left), self.go(right)
                text = a.text + d.relations[relation] + b.text
                return _Out(text, _SUM, False, a.tall or b.tall, a.width + b.width + 1.6)
            case BinaryOnes(inside):
                return self.call(d.function("ones"), (inside,))
        raise TypeError(f"no printing of {type(form).__name__}")

    def call(self, head: str, arguments: Sequence[Form], wide: float = 2.4) -> _Out:
        """The name of a function before its parentheses, with its width and its arguments."""
        d, outs = self.d, [self.go(one) for one in arguments]
        tall = any(o.tall for o in outs)
        text = head + d.apply + d.parens(d.comma.join(o.text for o in outs), tall)
        return _Out(text, _ATOM if d.flat else _POWER, False, tall, sum(o.width + 0.5 for o in outs) + wide)

    def called(self, name: str, arguments: Sequence[Form]) -> _Out:
        """A function with its arguments: ``|x|``, ``[a > b]``, or the name before parentheses."""
        d = self.d
        if name in ("abs", "greater"):
            outs = [self.go(one) for one in arguments]
            pair = ("|", "|") if name == "abs" else ("[", "]")
            text = d.fenced(pair[0], d.relations[">"].join(o.text for o in outs), pair[1])
            return _Out(text, _ATOM, False, any(o.tall for o in outs), sum(o.width + 0.5 for o in outs) + 2.0)
        head = self.spell(written("sigma")) if name == "sigmoid" and not d.flat else d.function(name)
        if "_" in name and not d.flat:  # what is summed over stands below the sum
            head = self.spell(written(name))
        return self.call(head, arguments, 1.0 + 0.5 * len(name))

    def small(self, form: Form) -> _Out:
        """The form in small type, where a fraction is written with a slash to stay readable."""
        before, self.flat = self.flat, True
        out = self.go(form)
        self.flat = before
        return out

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


def print_form(dialect: Dialect, form: Form, names: Names | None, notation: Notation | None) -> str:
    printer = _Printer(dialect, names, notation)
    return printer.go(printer.resolved(form)).text.strip()


def tex(form: Form, names: Names | None = None, notation: Notation | None = None) -> str:
    r"""LaTeX maths of a form, without dollar signs; ``names`` are substituted, ``notation`` says how names look.

    >>> from symcomm.core.form import Sym, num, product
    >>> tex(product(Sym("k"), num(2)), {"k": 8})
    '8 \\cdot 2'
    """
    return print_form(LATEX, form, names, notation)


def typst(form: Form, names: Names | None = None, notation: Notation | None = None) -> str:
    """Typst maths of a form, without dollar signs.

    >>> from symcomm.core.form import Sym, num, product
    >>> typst(product(num(2), Sym("N_layer")))
    '2 thin N_("layer")'
    """
    return print_form(TYPST, form, names, notation)


def mathml(form: Form, names: Names | None = None, notation: Notation | None = None) -> str:
    """MathML of a form, without the ``math`` element around it.

    >>> from symcomm.core.form import Sym, num, product
    >>> mathml(Sym("N_layer"))
    '<msub><mi>N</mi><mi>layer</mi></msub>'
    """
    return print_form(MATHML, form, names, notation)


def plain(form: Form, names: Names | None = None, notation: Notation | None = None) -> str:
    """Unicode text of a form on one line.

    >>> from symcomm.core.form import Ratio, Sym, Total, num, product
    >>> plain(Ratio(product(num(2), Total((Sym("k"), num(-1)))), Sym("k")))
    '2·(k - 1)/k'
    """
    return print_form(PLAIN, form, names, notation)


def inline(dialect: DialectName, form: Form, notation: Notation | None = None) -> str:
    """The form with its fractions on the line, for the cells of a table.

    >>> from symcomm.core.form import Ratio, Sym, num, product
    >>> inline("latex", Ratio(product(num(2), Sym("D")), Sym("k")))
    '2\\\\,D/k'
    """
    return _Printer(DIALECTS[dialect], None, notation).small(form).text.strip()


PRINTERS: dict[str, Callable[..., str]] = {"latex": tex, "typst": typst, "mathml": mathml, "text": plain}
DIALECTS = {d.name: d for d in (LATEX, TYPST, MATHML, PLAIN)}


def name_in(dialect: DialectName, name: str, notation: Notation | None = None) -> str:
    """A name alone, in a dialect.

    >>> name_in("latex", "W_up^Q"), name_in("text", "W_up^Q")
    ('W_{\\\\text{up}}^{Q}', 'W_up^Q')
    """
    return print_form(DIALECTS[dialect], Sym(name), None, notation)


def width(form: Form, names: Names | None = None, notation: Notation | None = None) -> float:
    """A generous estimate of how wide a form is set, in em.

    >>> from symcomm.core.form import num
    >>> 0.4 < width(num(2)) < 1
    True
    """
    printer = _Printer(LATEX, names, notation)
    return printer.go(printer.resolved(form)).width


@dataclass(frozen=True)
class BrokenForm:
    """A form in lines: how wide it is in one line, in em, and whether it is then higher than a line of text."""

    lines: tuple[str, ...]
    width: float
    tall: bool


def broken(
    dialect: DialectName, form: Form, limit: float, names: Names | None = None, notation: Notation | None = None
) -> BrokenForm:
    """The form in lines of at most ``limit`` em where its sums and products allow it, broken at the outermost place.

    >>> from symcomm.core.form import Sym, Total
    >>> broken("text", Total(tuple(Sym(f"a_{i}") for i in range(6))), 10).lines
    ('a_0 + a_1 + a_2', '+ a_3 + a_4 + a_5')
    """
    printer = _Printer(DIALECTS[dialect], names, notation)
    form = printer.resolved(form)
    whole = printer.go(form)
    if whole.width <= limit:
        return BrokenForm((whole.text.strip(),), whole.width, whole.tall)
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
    return BrokenForm(tuple(lines), whole.width, whole.tall)
