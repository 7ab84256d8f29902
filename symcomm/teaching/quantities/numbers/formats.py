"""Number formats: what they hold, how they round, and which gradients a loss scale keeps."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Annotated, Literal

from symcomm.core.derivation import Derivation, Exhibit, Numbers, exact
from symcomm.core.dtypes import FORMATS, NumberFormat, Value, binade, decimal, number_format
from symcomm.core.errors import ValuesError
from symcomm.core.form import Form, num
from symcomm.core.quantities.declared import Meaning, OneOf, Reads
from symcomm.core.quantities.options import NoModel
from symcomm.core.setting import StepWriter
from symcomm.core.units import ONE, Quantity

FormatName = Annotated[str, Reads("dtype"), OneOf(FORMATS, open=True), Meaning("the number format, such as bf16")]
_TWO = num(2)


def derive_number_format(
    setting: NoModel,
    dtype: FormatName,
    want: Annotated[
        Literal["largest", "smallest_normal", "smallest_subnormal", "epsilon", "unit_roundoff", "integers_exact_up_to",
                "finite_values", "nan_codes"],
        Meaning("the result to derive"),
    ] = "largest",
) -> Derivation:  # fmt: skip
    """The numbers of a number format, from its bits of exponent and mantissa.

    ``epsilon`` is the distance from 1 to the next number, ``unit_roundoff`` half of it: the largest relative error of
    rounding to nearest.

    >>> from symcomm.core.graph.graph import Graph
    >>> from symcomm.core.setting import Setting
    >>> str(derive_number_format(Setting(Graph("no model", {}, {}, ())), "fp16", "largest").at())
    '65 504'
    """
    f, work = number_format(dtype), StepWriter(setting)
    title = f"{want.replace('_', ' ').capitalize()} of {f.name}"
    notes = (f"{f.name.replace('_', ' ')}: {described(f)}.", *((f"Source: {f.source}.",) if f.source else ()))
    if not f.floating:
        if want not in ("largest", "finite_values"):
            raise ValuesError(f"{f.name} is a format of whole numbers: it has no {want.replace('_', ' ')}",
                              hint="want: largest, or finite_values")  # fmt: skip
        codes = _TWO ** (f.bits if want == "finite_values" else f.bits - 1)
        form: Form = codes if want == "finite_values" else codes - 1
        text = (
            "Each code is a number." if want == "finite_values" else "One bit is the sign, and 0 is among the others."
        )
        top = 2 ** (f.bits - 1) - 1
        if want == "largest":
            work.define("x_max", form, ONE, "codes", text, witness=first_number(f, top))
        else:
            work.define("N", form, ONE, "codes", text, witness=lambda numbers: 2 * top + 2)
        return setting.derivation(title, work.steps, notes=notes)
    _floating(work, f, want)
    return setting.derivation(title, work.steps, exhibits=[_table(f)], notes=notes)


def described(f: NumberFormat) -> str:
    """The bits of a format, and what its special codes are.

    >>> described(FORMATS["fp8_e4m3fn"])
    '1 bit of sign, 4 of exponent, 3 of mantissa; no infinity, 2 codes of NaN; too large numbers become NaN'
    """
    if not f.floating:
        return f"whole numbers of {f.bits} bits in two's complement; too large numbers wrap round"
    special = f"{'infinities' if f.infinity else 'no infinity'}, {f.nan_codes or 'no'} codes of NaN"
    large = {"inf": "infinite", "nan": "NaN", "largest": "the largest number"}[f.overflow]
    return (f"1 bit of sign, {f.exponent} of exponent, {f.mantissa} of mantissa; {special}; "
            f"too large numbers become {large}")  # fmt: skip


def first_number(f: NumberFormat, code: int) -> Callable[[Numbers], Fraction]:
    """The number of a code, or of the first one below it that is a number."""

    def read(numbers: Numbers) -> Fraction:
        at = code
        while isinstance(found := f.decoded(at), str):
            at -= 1 if f.specials != "ieee" else max(1, (at & (2**f.mantissa - 1)) or 1)
        return found

    return read


def _number(value: Value) -> Fraction:
    assert not isinstance(value, str)
    return value


def _floating(work: StepWriter, f: NumberFormat, want: str) -> None:
    """The steps to what is asked of a floating format."""
    e, m = num(f.exponent), num(f.mantissa)
    one_code = f.bias << f.mantissa
    if f.bias_said is None:
        usual: Form = _TWO ** (e - 1) - 1
        bias_text = f"Half of the {2**f.exponent} codes of the exponent stand for exponents below 0."
    else:
        usual, bias_text = num(f.bias_said), "The format says its bias."

    def bias() -> Form:
        return work.define("b", usual, ONE, "bias", bias_text, witness=lambda numbers: one_code >> f.mantissa)

    def epsilon() -> Form:
        return work.define("epsilon", _TWO**-m, ONE, "spacing",
                           f"{f.mantissa} bits follow the leading 1: the next number sets the last one.",
                           witness=lambda numbers: _number(f.decoded(one_code + 1)) - 1)  # fmt: skip

    def smallest() -> Form:
        return work.define("x_normal", _TWO ** (num(1) - bias()), ONE, "smallest exponent",
                           "The exponent code 0 is for subnormal numbers; 1 is the first of the normal ones.",
                           witness=lambda numbers: _number(f.decoded(1 << f.mantissa)))  # fmt: skip

    if want == "largest":
        below = 2 if f.specials == "ieee" else 1
        said = {
            "ieee": "The last exponent code is for infinities and NaN.",
            "last": "Only the code of all ones is NaN.",
        }
        text = said.get(f.specials, "No exponent code is taken for specials.")
        exponents = _TWO**e - below - bias()
        top = work.define("E_max", exponents, ONE, "largest exponent", text,
                          witness=lambda numbers: f.largest_exponent)  # fmt: skip
        gap: Form = epsilon()
        text = "The mantissa is all ones."
        if f.specials == "last":
            gap, text = _TWO * gap, "The mantissa is the last but one: all ones would be NaN."
        work.define("x_max", (_TWO - gap) * _TWO**top, ONE, "largest", text,
                    witness=first_number(f, 2 ** (f.bits - 1) - 1))  # fmt: skip
    elif want == "epsilon":
        epsilon()
    elif want == "unit_roundoff":
        gap = epsilon()
        work.define("u", gap / _TWO, ONE, "round to nearest", "A number lies at most half a spacing away.",
                    witness=lambda numbers: (_number(f.decoded(one_code + 1)) - 1) / 2)  # fmt: skip
    elif want == "smallest_normal":
        smallest()
    elif want == "smallest_subnormal":
        normal = smallest()
        work.define("x_min", epsilon() * normal, ONE, "smallest number",
                    "Below it the numbers keep the spacing that they have there.",
                    witness=lambda numbers: _number(f.decoded(1)))  # fmt: skip
    elif want == "integers_exact_up_to":
        form: Form = _TWO ** (m + 1)
        text = "With the leading one there are m + 1 bits; the first number that needs one more is odd."
        if f.integers_up_to < 2 ** (f.mantissa + 1):
            form, text = num(f.integers_up_to), "The format ends before whole numbers fall out."
        work.define("n_exact", form, ONE, "whole numbers", text, witness=lambda numbers: _counted(f))
    elif want == "nan_codes":
        forms: dict[str, Form] = {
            "ieee": _TWO * (_TWO**m - 1),
            "last": num(2),
            "minus zero": num(1),
        }
        work.define("n_NaN", forms.get(f.specials, num(0)), ONE, "special codes", described(f).split("; ")[1] + ".",
                    witness=lambda numbers: _specials(f, "nan"))  # fmt: skip
    else:
        taken = {"ieee": _TWO**m, "last": num(1)}.get(f.specials)
        codes: Form = _TWO ** (e + m)
        codes = codes - taken if taken else codes
        positive = 2 ** (f.bits - 1) - _specials(f, "nan", "inf", positive=True)
        plus = work.define("n_plus", codes, ONE, "codes", "The codes of one sign that are numbers, including 0.",
                           witness=lambda numbers: positive)  # fmt: skip
        work.define("n", _TWO * plus - 1, ONE, "both signs", "Plus 0 and minus 0 are one number.",
                    witness=lambda numbers: 2 * positive - 1)  # fmt: skip


def _specials(f: NumberFormat, *kinds: str, positive: bool = False) -> int:
    """How many codes are infinities or NaN, found by reading them, the last exponent's and that of minus 0."""
    top = (2**f.exponent - 1) << f.mantissa
    if f.mantissa <= 16:
        found = [f.decoded(top + k) for k in range(2**f.mantissa)]
        ones = sum(value in kinds for value in found)
    else:  # too many to be read: the first is infinite, the others are NaN
        ones = ("inf" in kinds) + ("nan" in kinds) * (2**f.mantissa - 1)
        assert (f.decoded(top), f.decoded(top + 1)) == ("inf", "nan")
    return ones if positive else 2 * ones + (f.decoded(1 << (f.bits - 1)) in kinds)


def _counted(f: NumberFormat) -> int:
    """The largest whole number up to which all are numbers of the format, tried at powers of two and next to them."""
    n = 1
    while f.rounded(Fraction(2 * n)) == 2 * n and f.rounded(Fraction(2 * n - 1)) == 2 * n - 1:
        n *= 2
    while f.rounded(Fraction(n + 1)) == n + 1:
        n += 1
    return n


def _table(f: NumberFormat) -> Exhibit:
    rows: list[tuple[str, Quantity]] = [
        ("largest", Quantity(f.largest, ONE)), ("smallest normal", Quantity(f.smallest_normal, ONE)),
        ("smallest subnormal", Quantity(f.smallest_subnormal, ONE)), ("epsilon", Quantity(f.epsilon, ONE)),
        ("whole numbers exact up to", Quantity(Fraction(f.integers_up_to), ONE)),
        ("numbers", Quantity(Fraction(f.finite_values), ONE)),
    ]  # fmt: skip
    return Exhibit(f"The format {f.name.replace('_', ' ')}", ("", "value"), tuple(rows))


Number = Annotated[object, Reads("quantity"), Meaning("the number, such as 0.01 or 1/3")]


def derive_rounded(
    setting: NoModel,
    x: Number,
    dtype: FormatName,
    want: Annotated[Literal["value", "error", "relative_error", "spacing"], Meaning("the result to derive")] = "value",
) -> Derivation:
    """A number in a number format, rounded to the nearest, ties to even.

    ``error`` is what it becomes less what it is, ``relative_error`` that over the number; ``spacing`` is the distance
    of neighbours there. Raises ``ValuesError`` where it is too large for the format.

    >>> from symcomm.core.graph.graph import Graph
    >>> from symcomm.core.setting import Setting
    >>> str(derive_rounded(Setting(Graph("no model", {}, {}, ())), "0.1", "bf16").at())
    '205/2048 ≈ 0.100098'
    """
    f, given = number_format(dtype), exact(x, "x")
    work = StepWriter(setting)
    if want == "spacing":
        spacing = f.spacing(given)
        text = f"Neighbours in the binade of {decimal(given)} are this far apart."
        work.define("d", num(spacing), ONE, "spacing", text,
                    witness=lambda numbers: apart(f, given))  # fmt: skip
        return setting.derivation(f"Spacing of {f.name}", work.steps)
    near = round_step(work, given, f)
    exhibits = [_neighbours(f, given)] if f.least <= given <= f.largest else []
    if want != "value":
        less = near - given
        error = work.define("delta", less, ONE, "subtract", "The rounded number minus the number.",
                            witness=lambda numbers: numbers["x_r"] - given)  # fmt: skip
        if want == "relative_error":
            if not given:
                raise ValuesError("0 is rounded without an error: there is no relative one")
            work.define("delta_rel", error / abs(given), ONE, "divide", "Divided by the number itself.",
                        witness=lambda numbers: (numbers["x_r"] - given) / abs(given))  # fmt: skip
    return setting.derivation(f"{decimal(given)} in {f.name}", work.steps, exhibits=exhibits)


def round_step(work: StepWriter, x: Fraction, f: NumberFormat) -> Form:
    """The step that rounds a number. Raises ``ValuesError`` where it is none of the format's any more."""
    found = f.rounded(x)
    if isinstance(found, str):
        large = f"its largest number is {decimal(f.largest)}"
        raise ValuesError(f"{decimal(x)} in {f.name} becomes {found}", hint=large)
    if found == x:
        text = f"{decimal(x)} is a number of {f.name}."
    elif not f.floating:
        text = f"{f.name} has whole numbers only: fractions are cut off, and too large numbers wrap round."
    elif abs(x) > f.largest:
        text = f"A number that is too large becomes the largest number of {f.name}."
    else:
        low, high = f.neighbours(x)
        tie = (
            f", as near as {told(high if found == low else low)}, whose last bit is odd" if 2 * x == low + high else ""
        )
        text = f"{decimal(x)} lies between {told(low)} and {told(high)} in {f.name}; {told(found)} is nearest{tie}."
    return work.define(
        "x_r", num(found), ONE, "round to nearest", text, witness=lambda numbers: _nearest(f, x, numbers)
    )


def told(x: Fraction) -> str:
    """A number as it is named in a sentence: as a fraction where that is short.

    >>> told(Fraction(3, 8)), told(Fraction(5368709, 536870912))
    ('3/8', '5368709/536870912')
    """
    return str(x) if len(str(x)) <= 24 else decimal(x)


def _nearest(f: NumberFormat, x: Fraction, numbers: Numbers) -> Fraction:
    """The nearest number by bisection over the codes, which are in order of size."""
    if not f.floating:
        return Fraction((int(x) + 2**f.mantissa) % 2**f.bits - 2**f.mantissa)
    low, high = 0, 2 ** (f.bits - 1) - 1
    while isinstance(f.decoded(high), str):
        high -= 1 if f.mantissa < 12 else max(1, high & (2**f.mantissa - 1))
    size = abs(x)
    while high - low > 1:
        middle = (low + high) // 2
        value = f.decoded(middle)
        assert not isinstance(value, str)
        low, high = (middle, high) if value <= size else (low, middle)
    below, above = f.decoded(low), f.decoded(high)
    assert not isinstance(below, str)
    assert not isinstance(above, str)
    nearer = abs(size - below), abs(above - size)
    best = below if nearer[0] < nearer[1] or (nearer[0] == nearer[1] and low % 2 == 0) else above
    return best if x >= 0 else -best


def apart(f: NumberFormat, x: Fraction) -> Fraction:
    """The distance of two neighbours around a number, by going to the next ones on both sides."""
    found = f.rounded(x)
    if isinstance(found, str):
        raise ValuesError(f"{decimal(x)} in {f.name} becomes {found}")
    low, high = f.neighbours(found + f.spacing(x) / 4 if abs(found) <= abs(x) else x)
    return high - low


def _neighbours(f: NumberFormat, x: Fraction) -> Exhibit:
    low, high = f.neighbours(x)
    rows = tuple(
        (side, Quantity(value, ONE), Quantity(value - x, ONE)) for side, value in (("below", low), ("above", high))
    )
    return Exhibit(f"The numbers of {f.name} next to it", ("", "number", "away"), rows)


def derive_loss_scaling(
    setting: NoModel,
    dtype: Annotated[str, Reads("dtype"), Meaning("the number format of the gradients")] = "fp16",
    scale: Annotated[object, Reads("quantity"), Meaning("the factor of the loss, such as 65536")] = 65536,
    gradient: Annotated[object, Reads("quantity"), Meaning("the gradient to keep, for the scale")] = None,
    want: Annotated[
        Literal["smallest", "flushed_up_to", "smallest_normal", "largest", "least_scale", "largest_scale"],
        Meaning("the result to derive"),
    ] = "smallest",
) -> Derivation:
    """The gradients that a number format keeps when the loss is multiplied by a scale.

    The gradients are multiplied by it, too (they are linear in the loss), and divided by it before the update.
    ``smallest`` is the smallest gradient that is a number of the format then, ``flushed_up_to`` the largest that
    becomes 0, ``smallest_normal`` the smallest that keeps all bits, ``largest`` the largest that does not overflow.
    ``least_scale`` is the least power of two under which a ``gradient`` does not become 0, ``largest_scale`` the
    largest under which it does not overflow. Source: Micikevicius et al., arXiv 1710.03740.

    >>> from symcomm.core.graph.graph import Graph
    >>> from symcomm.core.setting import Setting
    >>> setting = Setting(Graph("no model", {}, {}, ()))
    >>> str(derive_loss_scaling(setting, "fp16", 1024, want="smallest").at())
    '≈ 5.82077·10^-11'
    >>> str(derive_loss_scaling(setting, "fp16", gradient="0.00000001", want="least_scale").at())
    '4'
    """
    f, work = number_format(dtype), StepWriter(setting)
    if not f.floating:
        raise ValuesError(f"gradients are not kept in {f.name}", hint="a floating format, such as fp16")
    title = f"Loss scaling in {f.name}"
    if want.endswith("scale"):
        if gradient is None:
            raise ValuesError(f"the {want.replace('_', ' ')} is that for a gradient", hint="gradient: 0.00000001")
        _scale(work, f, abs(exact(gradient, "gradient")), want)
        return setting.derivation(title, work.steps)
    by = exact(scale, "scale")
    if by <= 0:
        raise ValuesError(f"the loss is multiplied by {by}", hint="a positive scale, such as 65536")
    bound, text = {
        "smallest": (f.smallest_subnormal, "the smallest number of the format, a subnormal one"),
        "flushed_up_to": (f.smallest_subnormal / 2, "half of the smallest number, which is rounded to the even 0"),
        "smallest_normal": (f.smallest_normal, "the smallest number with all bits of the mantissa"),
        "largest": (f.largest, "the largest number of the format"),
    }[want]
    edge = work.define("x", num(bound), ONE, "format", f"This is {text}.", witness=partial(_edge, f, want))
    work.define("g", edge / by, ONE, "divide by the scale", "The gradient that the scale brings to this "
                                                                       "number.",
                witness=lambda numbers: _edge(f, want, numbers) / by)  # fmt: skip
    return setting.derivation(title, work.steps)


def _edge(f: NumberFormat, want: str, numbers: Numbers) -> Fraction:
    """The same read off the codes."""
    codes = {"smallest": 1, "flushed_up_to": 1, "smallest_normal": 1 << f.mantissa}
    if want == "largest":
        return first_number(f, 2 ** (f.bits - 1) - 1)(numbers)
    found = f.decoded(codes[want])
    assert not isinstance(found, str)
    return found / 2 if want == "flushed_up_to" else found


def _scale(work: StepWriter, f: NumberFormat, g: Fraction, want: str) -> None:
    if not g:
        raise ValuesError("a gradient of 0 is kept under every scale", hint="gradient: 0.00000001")
    if want == "least_scale":
        half = f.smallest_subnormal / 2
        exponent = binade(half / g)  # 2^e g <= half < 2^(e + 1) g
        exponent += 1
        text = f"The power of two that brings {decimal(g)} above half of the smallest number, {decimal(half)}."
    else:
        exponent = binade(f.largest / g)
        text = f"The power of two that keeps {decimal(g)} at most at the largest number, {decimal(f.largest)}."
    power = work.define("S", num(exponent), ONE, "power of two", text,
                        witness=lambda numbers: _fits(f, g, int(numbers["S"]), want))  # fmt: skip
    text = "A power of two changes no bit of a mantissa."
    work.define("scale", num(2) ** power, ONE, "scale", text,
                witness=lambda numbers: Fraction(2) ** int(numbers["S"]))  # fmt: skip


def _fits(f: NumberFormat, g: Fraction, exponent: int, want: str) -> bool:
    """Whether the power of two does it, and the next one does not."""
    if want == "least_scale":
        return f.rounded(g * Fraction(2) ** exponent) != 0 and f.rounded(g * Fraction(2) ** (exponent - 1)) == 0
    return g * Fraction(2) ** exponent <= f.largest < g * Fraction(2) ** (exponent + 1)
