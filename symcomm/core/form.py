r"""How a formula is written, kept apart from what it is worth.

SymPy turns ``2(k-1)/k`` into ``(2k-2)/k`` and sorts factors; a reader needs the form that shows where each factor
comes from. A form is a small tree; ``value`` gives its SymPy expression and ``evaluate`` its exact number, so a form
and its value cannot disagree. ``from_expr`` writes a SymPy expression as a form, so every printer knows forms only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from functools import cache, lru_cache, partial, reduce
from itertools import count
from math import ceil, floor, isqrt, prod
from operator import mul, truediv
from typing import Any, Generic, TypeVar, cast

from symcomm.core import notation
from symcomm.core.errors import DerivationError, IrrationalError, LongNumberError, ValuesError, where_given
from symcomm.core.libraries import Expr, np, sp
from symcomm.core.records import dataclass
from symcomm.core.units import ONE, Unit

Worth = TypeVar("Worth")
Rule = Callable[[Any, Any], Worth]  # of a node, and of what is called with its parts to work them out


@dataclass(frozen=True)
class Form:
    """A piece of a written formula.

    Python's operators write it as they stand, with sums and products flattened.

    >>> Sym("N") / (Sym("k") - 1) == Ratio(Sym("N"), Total((Sym("k"), num(-1))))
    True
    """

    @property
    def parts(self) -> tuple[Form, ...]:
        """The forms it is made of, in the order they are written."""
        found: list[Form] = []
        for field in self.__dict__.values():
            if isinstance(field, Form):
                found.append(field)
            elif isinstance(field, tuple):
                found += field
        return tuple(found)

    def mapped(self, change: Callable[[Form], Form]) -> Form:
        """The same piece with each of its parts changed.

        >>> Ratio(Sym("a"), num(2)).mapped(lambda part: num(1)) == Ratio(num(1), num(1))
        True
        """
        fields = self.__dict__.values()
        changed = (
            change(f) if isinstance(f, Form) else tuple(map(change, f)) if isinstance(f, tuple) else f for f in fields
        )
        return type(self)(*changed)

    def __add__(self, other: Form | Fraction | int) -> Form:
        return total(self, _form(other))

    def __sub__(self, other: Form | Fraction | int) -> Form:
        return total(self, negative(_form(other)))

    def __mul__(self, other: Form | Fraction | int) -> Form:
        return product(self, _form(other))

    def __truediv__(self, other: Form | Fraction | int) -> Form:
        return Ratio(self, _form(other))

    def __floordiv__(self, other: Form | Fraction | int) -> Form:
        return Floor(self / other)

    def __pow__(self, other: Form | Fraction | int) -> Form:
        return Power(self, _form(other))

    def __neg__(self) -> Form:
        return negative(self)


@dataclass(frozen=True)
class Num(Form):
    """An exact number, with a unit where it carries one (2 bytes an element)."""

    number: Fraction
    unit: Unit = ONE


@dataclass(frozen=True)
class Sym(Form):
    """A symbol of the model or of the question, or the name of an earlier step.

    ``whole`` is false for a measured amount (a clock rate, a bandwidth), which need not be an integer, and has a unit.
    """

    name: str
    whole: bool = True
    unit: Unit = ONE


@dataclass(frozen=True)
class Total(Form):
    """A sum, in the order it is written."""

    terms: tuple[Form, ...]


@dataclass(frozen=True)
class Product(Form):
    """A product, in the order it is written."""

    factors: tuple[Form, ...]


@dataclass(frozen=True)
class Ratio(Form):
    """A fraction."""

    top: Form
    bottom: Form


@dataclass(frozen=True)
class Power(Form):
    """A power."""

    base: Form
    exponent: Form


@dataclass(frozen=True)
class Root(Form):
    """A square root."""

    inside: Form


@dataclass(frozen=True)
class Ceiling(Form):
    """The least whole number that is not smaller."""

    inside: Form


@dataclass(frozen=True)
class Floor(Form):
    """The greatest whole number that is not larger."""

    inside: Form


@dataclass(frozen=True)
class BinaryOnes(Form):
    """The ones in the binary digits of 0, 1, ..., n - 1 together: n/2 log2 n where n is a power of two.

    There is no closed form for other n. Source: Delange, Sur la fonction sommatoire de la fonction somme des chiffres,
    1975.
    """

    inside: Form


@dataclass(frozen=True)
class Largest(Form):
    """The largest of several; kept as a form because SymPy's ``Max`` of many is quadratic."""

    choices: tuple[Form, ...]


@dataclass(frozen=True)
class Smallest(Form):
    """The smallest of several."""

    choices: tuple[Form, ...]


@dataclass(frozen=True)
class Logarithm(Form):
    """The natural logarithm, or the logarithm to a whole base."""

    inside: Form
    base: int = 0


@dataclass(frozen=True)
class NumericFunction:
    """A rule for the number of a function that has no formula; two that are equal are the same function."""

    name: str
    unit: Unit

    @property
    def key(self) -> str:
        """Its name for SymPy, which takes functions of one name for the same one."""
        return self.name

    def number(self, arguments: tuple[Fraction, ...]) -> Fraction:
        """The exact number of the function."""
        raise NotImplementedError

    def numbers(self, arguments: Sequence[Any]) -> Any:
        """Its numbers for arrays of floating-point arguments, all of one length."""
        return np.array([float(self.number(tuple(map(Fraction, row)))) for row in zip(*arguments, strict=True)])

    def written(self, arguments: tuple[Form, ...]) -> Form | None:
        """How people write it; None where there is nothing but its name."""
        return None


@dataclass(frozen=True)
class Applied(Form):
    """A function without a formula, of some arguments: its numbers are exact all the same."""

    rule: NumericFunction
    arguments: tuple[Form, ...]


# What a function of real numbers is worth, by its name; ``pi`` and ``e`` are functions of nothing.
FUNCTIONS: dict[str, Callable[..., Expr]] = {
    **{name: lambda u, name=name: getattr(sp, name)(u) for name in ("sin", "cos", "tan", "exp", "tanh")},
    "abs": lambda u: sp.Abs(u),
    "sigmoid": lambda u: 1 / (1 + sp.exp(-u)),
    "sign": lambda u: sp.sign(u),
    "greater": lambda a, b: sp.Heaviside(a - b, 0),
    "pi": lambda: sp.pi,
    "e": lambda: sp.E,
}


@dataclass(frozen=True)
class Called(Form):
    """A function by its name: one of ``FUNCTIONS``, ``[a > b]`` (``greater``), or one of tensors (``softmax``).

    >>> value(Called("abs", (num(-2),)))
    2
    """

    function: str
    arguments: tuple[Form, ...] = ()


@dataclass(frozen=True)
class Transposed(Form):
    """A matrix whose last two axes have changed places; it is worth something to tensors only."""

    inside: Form


@dataclass(frozen=True)
class Elementwise(Form):
    """A product of tensors element by element; it is worth something to tensors only."""

    factors: tuple[Form, ...]


@dataclass(frozen=True)
class Summed(Form):
    """A sum over indices of the form behind them, as a cell of a table; it is not worth a number."""

    indices: tuple[Form, ...]
    inside: Form


@dataclass(frozen=True)
class Related(Form):
    """Two forms with a relation between them, as a cell of a table; it is not worth a number."""

    left: Form
    right: Form
    relation: str = "="


@lru_cache(maxsize=1024)
def num(value: int | Fraction, unit: Unit = ONE) -> Num:
    """A number as a form."""
    return Num(Fraction(value), unit)


def _form(value: Form | Fraction | int) -> Form:
    return value if isinstance(value, Form) else num(value)


_KINDS: dict[str, Callable[..., Form]] = {
    "sqrt": Root, "ceil": Ceiling, "floor": Floor, "ln": Logarithm, "log": Logarithm,
    "log2": partial(Logarithm, base=2), "log10": partial(Logarithm, base=10),
    "max": lambda *choices: Largest(choices), "min": lambda *choices: Smallest(choices),
}  # fmt: skip


def called(name: str, *arguments: Form) -> Form:
    """A function of some forms by the name that formulas have for it, such as ``sqrt``, ``log2``, ``max`` and ``sin``.

    >>> called("max", Sym("a"), num(1)) == Largest((Sym("a"), num(1))), called("exp", Sym("a")).function
    (True, 'exp')
    """
    return _KINDS[name](*arguments) if name in _KINDS else Called(name, arguments)


def product(*factors: Form) -> Form:
    """A product without needless ones and nesting; one factor stays itself.

    >>> product(num(1), Sym("D"))
    Sym(name='D', whole=True, unit=Unit(powers=()))
    """
    flat = [f for factor in factors for f in (factor.factors if isinstance(factor, Product) else (factor,))]
    kept = tuple(f for f in flat if f != num(1))
    return kept[0] if len(kept) == 1 else Product(kept) if kept else num(1)


def total(*terms: Form) -> Form:
    """A sum; equal neighbours are gathered (``D^2 + D^2`` stays apart only where a caller builds ``Total``)."""
    flat = [t for term in terms for t in (term.terms if isinstance(term, Total) else (term,))]
    return flat[0] if len(flat) == 1 else Total(tuple(flat)) if flat else num(0)


def combined(of: Callable[[tuple[Form, ...]], Form], parts: Sequence[Form], unit: Unit = ONE) -> Form:
    """The sum, or another form ``of`` some parts: one part is itself, and none at all are zero in a unit."""
    return of(tuple(parts)) if len(parts) > 1 else parts[0] if parts else Num(Fraction(0), unit)


def negative(form: Form) -> Form:
    """The same with the opposite sign."""
    return Num(-form.number, form.unit) if isinstance(form, Num) else Product((num(-1), form))


def walk(form: Form) -> Iterator[Form]:
    """The form and all its pieces."""
    stack = [form]
    while stack:
        piece = stack.pop()
        yield piece
        stack.extend(reversed(piece.parts))


def names(form: Form) -> tuple[str, ...]:
    """The names it uses, in the order they appear.

    >>> names(product(Sym("N"), Sym("D"), Sym("N")))
    ('N', 'D')
    """
    found: dict[str, None] = {}
    stack: list[Any] = [form]
    while stack:  # asked more often than anything else
        piece = stack.pop()
        if isinstance(piece, Sym):
            found[piece.name] = None
        elif isinstance(piece, tuple):
            stack.extend(reversed(piece))
        elif isinstance(piece, Form) and type(piece) is not Num:
            stack.extend(reversed(piece.__dict__.values()))
    return tuple(found)


class Algebra(Generic[Worth]):
    """The worth of forms in one domain, such as fractions, residues, arrays or units; it is called with a form.

    ``rules`` has a function for each kind of node, of the node and of what works out its parts: the algebra itself, or
    ``go`` where there is one (a cache, or what knows more than forms). ``other`` is that of all other kinds.

    >>> size = Algebra({Sym: lambda sym, go: 1, **of_parts({Product: sum, Ratio: lambda top, bottom: top + bottom})})
    >>> size(Ratio(product(Sym("a"), Sym("b")), Sym("c")))
    3
    """

    def __init__(self, rules: Mapping[type[Form], Rule[Worth]], other: Rule[Worth] | None = None) -> None:
        self.rules = rules
        self.other: Rule[Worth] = other or refused("value")

    def __call__(self, form: Form, go: Any = None) -> Worth:
        return self.rules.get(type(form), self.other)(form, self if go is None else go)

    def named(self, name: Rule[Worth]) -> Algebra[Worth]:
        """The same with another rule for names."""
        return Algebra({**self.rules, Sym: name}, self.other)


def of_parts(functions: Mapping[type[Form], Callable[..., Any]]) -> dict[type[Form], Rule[Any]]:
    """Rules from functions of a node's fields, every form in them worked out."""

    def rule(function: Callable[..., Any], form: Form, go: Callable[[Form], Any]) -> Any:
        return function(*[
            go(f) if isinstance(f, Form) else [go(part) for part in f] if type(f) is tuple else f
            for f in form.__dict__.values()
        ])  # fmt: skip

    return {kind: partial(rule, function) for kind, function in functions.items()}


def refused(what: str, error: type[Exception] = TypeError) -> Rule[Any]:
    """The rule of nodes that are worth nothing in an algebra: it raises an error."""

    def refuse(form: Form, go: object) -> Any:
        raise error(f"no {what} for {type(form).__name__}")

    return refuse


# What is worked out by Python's own operators, of fractions, floating-point numbers, intervals and arrays alike.
OPERATORS: dict[type[Form], Callable[..., Any]] = {
    Total: sum, Product: prod, Ratio: truediv, Power: pow, Largest: max, Smallest: min,
}  # fmt: skip


def value(form: Form, known: Mapping[str, Expr] | None = None) -> Expr:
    """The SymPy expression a form is worth; ``known`` gives the worth of step names.

    >>> value(Ratio(product(num(2), Sym("k")), Sym("k")))
    2
    """
    known = known or {}

    def name(sym: Sym, go: object) -> Expr:
        return known[sym.name] if sym.name in known else (notation.symbol if sym.whole else notation.amount)(sym.name)

    return _expressions().named(name)(form)


@cache
def _expressions() -> Algebra[Any]:
    return Algebra(of_parts({
        **OPERATORS,
        Num: lambda number, _: _exact(number),
        Total: lambda terms: sp.Add(*terms), Product: lambda factors: sp.Mul(*factors),
        Root: sp.sqrt, Ceiling: sp.ceiling, Floor: sp.floor,
        BinaryOnes: sp.Function(_ONES, integer=True, nonnegative=True),
        Largest: lambda choices: extreme(sp.Max, choices),
        Smallest: lambda choices: extreme(sp.Min, choices),
        Logarithm: lambda inside, base: sp.log(inside, base) if base else sp.log(inside),
        Applied: lambda rule, arguments: _function(rule)(*arguments),
        Called: _called,
    }))  # fmt: skip


def _called(function: str, arguments: Sequence[Expr]) -> Expr:
    if function not in FUNCTIONS:
        raise TypeError("no value for Called")
    return FUNCTIONS[function](*arguments)


@cache
def _function(rule: NumericFunction) -> Callable[..., Expr]:
    """What SymPy calls a function that it knows nothing of; it carries its rule."""
    from sympy.core.function import AppliedUndef, UndefinedFunction

    made = UndefinedFunction(rule.key, (AppliedUndef,), {"rule": rule}, nonnegative=True)
    return cast("Callable[..., Expr]", made)


def extreme(kind: type[Expr], choices: list[Expr]) -> Expr:
    """The largest (or smallest) of several, without those that another exceeds term by term.

    SymPy factors every difference of two choices to learn its sign, which takes most of the time of a derivation.
    """
    if all(c.is_number for c in choices):  # roots and logarithms of numbers, too: which one it is can be said
        if sp.zoo in choices:
            return sp.zoo  # SymPy compares nothing with 1/0
        return _by_far(kind, choices) or kind(*choices)
    flat = dict.fromkeys(inner for c in choices for inner in (c.args if isinstance(c, kind) else (c,)))
    kept: list[Expr] = []
    for c in flat:
        signs = [(other, _sign(c, other)) for other in kept]
        better = 1 if kind is sp.Max else -1
        if all(sign != -better for _, sign in signs):
            kept = [other for other, sign in signs if sign != better] + [c]
    return kept[0] if len(kept) == 1 else kind(*kept, evaluate=False)


def _by_far(kind: type[Expr], numbers: list[Expr]) -> Expr | None:
    """The largest (or smallest) of several numbers where floats of 15 digits tell it; SymPy takes ten times as long."""
    with suppress(TypeError, ValueError, ArithmeticError):  # one alone, not real, or too large
        (first, at), (second, _), *_ = sorted(zip(map(float, numbers), count()), reverse=kind is sp.Max)
        if abs(first - second) > 1e-9 * max(abs(first), abs(second)) and first and second:
            return numbers[at]
    return None


def _sign(left: Expr, right: Expr) -> int | None:
    """The sign of a difference whose terms all have the same one; None where that does not tell."""
    terms = dict(left.as_coefficients_dict())
    for rest, coefficient in right.as_coefficients_dict().items():
        terms[rest] = terms.get(rest, 0) - coefficient
    signs = {coefficient > 0 for coefficient in terms.values() if coefficient}
    if len(signs) != 1 or not all(rest.is_nonnegative for rest, coefficient in terms.items() if coefficient):
        return None
    return 1 if signs.pop() else -1


def evaluate(form: Form, values: Mapping[str, Fraction]) -> Fraction:
    """The exact number of a form where every name has a value.

    Raises ``ValuesError`` for a name without a value, a division by zero, or a number that is not rational.

    >>> evaluate(Ratio(num(1), Sym("k")), {"k": Fraction(8)})
    Fraction(1, 8)
    """

    def name(sym: Sym, go: object) -> Fraction:
        if sym.name not in values:
            raise ValuesError(f"no value is given for {sym.name}", hint=where_given(sym.name))
        found = values[sym.name]
        return found if type(found) is Fraction else Fraction(found)

    return _FRACTIONS.named(name)(form)


def degree(form: Form) -> Fraction:
    """A bound of the power that anything in a form is raised to."""
    if isinstance(form, Power):
        exponent = evaluate(form.exponent, {}) if not names(form.exponent) else Fraction(1)
        return max(degree(form.base), Fraction(1)) * abs(exponent) + (degree(form.exponent) if exponent == 1 else 0)
    if isinstance(form, Product):
        return sum((max(degree(f), Fraction(0)) for f in form.factors if not isinstance(f, (Num, Sym))), Fraction(0))
    if isinstance(form, (Num, Sym)):
        return Fraction(1) if isinstance(form, Sym) else Fraction(0)
    return max((degree(f) for f in form.parts), default=Fraction(0))


def _ratio(top: Fraction, bottom: Fraction) -> Fraction:
    if not bottom:
        raise ValuesError("a division by zero")
    return top / bottom


def _ceiling(form: Ceiling, go: Callable[[Form], Fraction]) -> Fraction:
    match form.inside:  # the logarithm of 6 is not rational, but its floor and ceiling are exact whole numbers
        case Logarithm(argument, base) if base > 1:
            return Fraction(-_floor_logarithm(1 / _positive(go(argument)), base))
    return Fraction(ceil(go(form.inside)))


def _floor(form: Floor, go: Callable[[Form], Fraction]) -> Fraction:
    match form.inside:
        case Logarithm(argument, base) if base > 1:
            return Fraction(_floor_logarithm(_positive(go(argument)), base))
    return Fraction(floor(go(form.inside)))


def _exact(number: Fraction) -> Expr:
    return sp.Rational(number.numerator, number.denominator)


def _rational(function: str, number: Expr) -> Fraction:
    if not number.is_Rational:
        raise IrrationalError(f"{function} gives {number}, which is not a rational number")
    return Fraction(int(number.p), int(number.q))


_ONES = "ones"


def settled(expr: Expr) -> Expr:
    """An expression in which the ones of the binary digits of known numbers are counted.

    >>> n = value(BinaryOnes(Sym("n")))
    >>> n.subs(next(iter(n.free_symbols)), 12), settled(n.subs(next(iter(n.free_symbols)), 12))
    (ones(12), 20)
    """
    counted = {
        e: sp.Integer(_binary_ones(Fraction(int(e.args[0]))))
        for e in expr.atoms(sp.core.function.AppliedUndef) if str(e.func) == _ONES and e.args[0].is_Integer
    }  # fmt: skip
    return expr.xreplace(counted)


def _binary_ones(number: Fraction) -> int:
    if number.denominator != 1 or number < 0:
        raise ValuesError(f"{number} is no whole number, whose binary digits could be counted")
    n, found, bit = int(number), 0, 1
    while bit < n:  # the digit is one in every other run of so many numbers
        found += n // (2 * bit) * bit + max(0, n % (2 * bit) - bit)
        bit *= 2
    return found


_LONGEST = 1 << 18  # digits of two of an exact power: to cancel longer ones takes seconds
_FINEST = 1000  # above and below the line of a root's exponent: SymPy takes 2^(1001/1002) apart into 2^1001


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator == 1:
        if not base and exponent < 0:
            raise ValuesError("a division by zero")
        if abs(exponent) * (base.numerator.bit_length() + base.denominator.bit_length() - 2) > _LONGEST:
            raise LongNumberError(f"a power with the exponent {exponent} is too large")
        return base ** int(exponent)
    if exponent.denominator == 2 and base >= 0:
        top, bottom = isqrt(base.numerator), isqrt(base.denominator)
        if top * top == base.numerator and bottom * bottom == base.denominator:
            return Fraction(top, bottom) ** int(exponent.numerator)
    if max(abs(exponent.numerator), exponent.denominator) > _FINEST and base > 0:
        raise LongNumberError(f"a power with the exponent {exponent} is too large")
    raise IrrationalError(f"{base} to the power {exponent} is not a rational number")


def _positive(argument: Fraction) -> Fraction:
    if argument <= 0:
        raise ValuesError(f"the logarithm of {argument} is not a number")
    return argument


def _floor_logarithm(argument: Fraction, base: int) -> int:
    """The greatest whole ``x`` with ``base**x <= argument``, by exact comparison."""
    bits = argument.numerator.bit_length() - argument.denominator.bit_length()
    x = bits // base.bit_length() - 1 if bits > 0 else bits - 1
    while Fraction(base) ** (x + 1) <= argument:
        x += 1
    return x


def _whole_logarithm(argument: Fraction, base: int) -> Fraction:
    if base > 1 and argument.denominator == 1 and argument > 0:
        n, power = int(argument), 0
        while n % base == 0:
            n, power = n // base, power + 1
        if n == 1:
            return Fraction(power)
    raise IrrationalError(f"the logarithm of {argument} is not a rational number")


_FRACTIONS: Algebra[Fraction] = Algebra({Num: lambda num, go: num.number, Ceiling: _ceiling, Floor: _floor, **of_parts({
    **OPERATORS, Ratio: _ratio, Power: _power, Root: lambda inside: _power(inside, Fraction(1, 2)),
    Total: lambda terms: sum(terms, Fraction(0)), Product: lambda factors: prod(factors, start=Fraction(1)),
    BinaryOnes: lambda inside: Fraction(_binary_ones(inside)),
    Logarithm: _whole_logarithm,
    Applied: lambda rule, arguments: rule.number(tuple(arguments)),
    Called: lambda function, arguments: _rational(function, _called(function, [_exact(one) for one in arguments])),
})})  # fmt: skip


def unit_of(form: Form, units: Mapping[str, Unit]) -> Unit:
    """The unit of a form, from the units of the names and numbers in it.

    Raises ``DerivationError`` where terms of different units are added or compared.

    >>> str(unit_of(product(Sym("n"), Num(Fraction(2), Unit.parse("byte/element"))), {"n": Unit.parse("element")}))
    'B'
    """

    return _UNITS.named(lambda sym, go: units.get(sym.name, sym.unit))(form)


def _same_unit(form: Form, go: Callable[[Form], Unit]) -> Unit:
    found = [go(p) for p in form.parts if not (isinstance(p, Num) and p.unit == ONE and not p.number)]
    for other in found[1:]:
        if other != found[0]:
            raise DerivationError(f"terms of different units are added: {found[0]} and {other}")
    return found[0] if found else ONE


def _unit_of_power(form: Power, go: Callable[[Form], Unit]) -> Unit:
    unit = go(form.base)
    if unit == ONE:
        return ONE
    power = None if names(form.exponent) else evaluate(form.exponent, {})
    if power is None or any((p * power).denominator != 1 for _, p in unit.powers):
        raise DerivationError(f"a quantity in {unit} is raised to a power that is not a whole number")
    return Unit(tuple((b, int(p * power)) for b, p in unit.powers if power))


def _unit_of_root(unit: Unit) -> Unit:
    if any(p % 2 for _, p in unit.powers):
        raise DerivationError(f"a square root of {unit}")
    return Unit(tuple((b, p // 2) for b, p in unit.powers))


_UNITS: Algebra[Unit] = Algebra({
    **of_parts({Product: lambda factors: reduce(mul, factors, ONE), Ratio: truediv, Root: _unit_of_root}),
    **dict.fromkeys((Ceiling, Floor), lambda form, go: go(form.inside)),
    Num: lambda number, go: number.unit, Power: _unit_of_power, Applied: lambda applied, go: applied.rule.unit,
    **dict.fromkeys((Logarithm, BinaryOnes, Called), lambda form, go: ONE),
    **dict.fromkeys((Total, Largest, Smallest), _same_unit),
}, refused("unit"))  # fmt: skip


def substitute(form: Form, replace: Callable[[Sym], Form]) -> Form:
    """The same form with every name replaced.

    >>> evaluate(substitute(product(num(2), Sym("D")), lambda s: num(3)), {})
    Fraction(6, 1)
    """

    def go(f: Form) -> Form:
        return replace(f) if isinstance(f, Sym) else f.mapped(go)

    return go(form)


# Counts and degrees come before sizes, as courses write them: 24 N_layer B L D^2.
_ORDER = {
    name: i for i, name in enumerate(["N_layer", "B", "n_h", "n_H", "n_kv", "L", "D", "H", "F", "d_ff", "V", "E"])
}


def _rank(name: str) -> tuple[int, str]:
    return (_ORDER.get(name, len(_ORDER) if name[0].isupper() else -1), name)


@lru_cache(maxsize=1024)  # the same expressions are asked again, at other numbers
def from_expr(expr: Expr) -> Form:
    """A SymPy expression as a form, in the field's usual order of symbols.

    Raises ``TypeError`` for a function that no form knows, ``ValuesError`` for a division by zero.

    >>> value(from_expr(value(product(Sym("D"), num(24), Sym("N_layer"), Sym("D")))))
    24*D**2*N_layer
    """

    def go(e: Expr) -> Form:
        if e.is_Rational:
            return rational(Fraction(int(e.p), int(e.q)))
        if e.is_Symbol:
            return Sym(e.name, bool(e.is_integer))
        if e.is_Add:
            return Total(tuple(go(t) for t in sorted(e.args, key=_term_key)))
        if e.is_Mul:
            top, bottom = sp.fraction(e)
            # SymPy writes a logarithm to base 2 as log(k)/log(2).
            above = [f for f in sp.Mul.make_args(top) if isinstance(f, sp.log)]
            below = [f for f in sp.Mul.make_args(bottom) if isinstance(f, sp.log) and f.args[0].is_Integer]
            if above and below:
                logarithm = Logarithm(go(above[0].args[0]), int(below[0].args[0]))
                return product(go(e * below[0] / above[0]), logarithm)
            if bottom != 1:
                return Ratio(go(top), go(bottom))
            return product(*(go(f) for f in sorted(e.args, key=_factor_key)))
        if e.is_Pow:
            base, exponent = e.as_base_exp()
            if exponent == sp.Rational(1, 2):
                return Root(go(base))
            if exponent.could_extract_minus_sign():
                return Ratio(num(1), go(base**-exponent))
            return Power(go(base), go(exponent))
        for kind, made in ((sp.Max, Largest), (sp.Min, Smallest)):
            if isinstance(e, kind):
                return made(tuple(go(a) for a in e.args))
        for kind, rounded in ((sp.ceiling, Ceiling), (sp.floor, Floor), (sp.log, Logarithm)):
            if isinstance(e, kind):
                return rounded(go(e.args[0]))
        if e in (sp.pi, sp.E):
            return Called("pi" if e == sp.pi else "e")
        if isinstance(e, (sp.sin, sp.cos, sp.tan, sp.exp, sp.tanh, sp.Abs, sp.sign)):
            return Called(type(e).__name__.lower(), tuple(go(a) for a in e.args))
        if (rule := getattr(e.func, "rule", None)) is not None:
            return Applied(rule, tuple(go(a) for a in e.args))
        if e.is_Function and str(e.func) == _ONES:
            return BinaryOnes(go(e.args[0]))
        if e.has(sp.zoo, sp.nan, sp.oo):
            raise ValuesError("a division by zero")
        if e.has(sp.I):
            raise ValuesError("the square root of a negative number")
        raise TypeError(f"no form for {type(e).__name__}")

    return go(expr)


def rational(number: Fraction) -> Form:
    """An exact number: a fraction is written as one."""
    return num(number) if number.denominator == 1 else Ratio(num(number.numerator), num(number.denominator))


def _factor_key(e: Expr) -> tuple[int, tuple[int, str]]:
    if e.is_Number:
        return (0, (0, ""))
    base = e.as_base_exp()[0]
    return (1, _rank(base.name)) if base.is_Symbol else (2, (0, str(e)))


def _term_key(e: Expr) -> tuple[int, tuple[tuple[str, int], ...]]:
    rest = e.as_coeff_Mul()[1]
    powers = [(b, p) for b, p in rest.as_powers_dict().items() if not b.is_Number]
    degree = sum(int(p) if p.is_Integer else 0 for _, p in powers)
    names = sorted((b.name if b.is_Symbol else str(b), int(p) if p.is_Integer else 0) for b, p in powers)
    return (-degree, tuple(names))
