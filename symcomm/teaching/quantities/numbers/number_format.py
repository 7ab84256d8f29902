"""The numbers of a number format: its largest and smallest ones, its spacing, how many there are."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Annotated, Literal

from symcomm.core.derivation import Derivation, Exhibit, Numbers
from symcomm.core.dtypes import FORMATS, NumberFormat, Value, number_format
from symcomm.core.errors import ValuesError
from symcomm.core.form import Form, num
from symcomm.core.quantities.declared import Meaning, OneOf, Reads
from symcomm.core.quantities.options import NoModel
from symcomm.core.setting import StepWriter
from symcomm.core.units import ONE, Quantity

FormatName = Annotated[str, Reads("dtype"), OneOf(FORMATS, open=True), Meaning("the number format, such as bf16")]
_TWO = num(2)


def derive(
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
    >>> str(derive(Setting(Graph("no model", {}, {}, ())), "fp16", "largest").at())
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
