"""The number formats as data: what each holds, how it rounds, and how many bytes an element takes."""

from __future__ import annotations

import re
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Literal

from symcomm.core.errors import ValuesError, nearest
from symcomm.core.form import Num
from symcomm.core.records import dataclass
from symcomm.core.units import Unit

Special = Literal["inf", "-inf", "nan"]
Value = Fraction | Special  # what a number format holds


@dataclass(frozen=True)
class NumberFormat:
    """A number format as data; what it can hold follows.

    A floating format has bits of exponent and mantissa, and a sign; subnormals fill the gap around 0. A whole-number
    format has no exponent and wraps round.

    >>> FORMATS["fp16"].largest, FORMATS["fp16"].epsilon, FORMATS["int8"].largest
    (Fraction(65504, 1), Fraction(1, 1024), Fraction(127, 1))
    """

    name: str
    exponent: int = 0
    mantissa: int = 0
    # The codes that are no numbers: those of the largest exponent (infinities and NaN), the code of all ones (NaN, one
    # for each sign), that of minus zero (NaN), or none.
    specials: Literal["ieee", "last", "minus zero", "none"] = "ieee"
    overflow: Literal["inf", "nan", "largest", "wraps"] = "inf"  # what becomes of a number that is too large
    bias_said: int | None = None  # else 2^(exponent - 1) - 1
    stored: int = 0  # the bits that an element takes, where these are more
    source: str = ""

    @property
    def floating(self) -> bool:
        """Whether the spacing of its numbers grows with them."""
        return self.exponent > 0

    @property
    def bits(self) -> int:
        """The bits of a number: sign, exponent, mantissa."""
        return 1 + self.exponent + self.mantissa

    @property
    def bias(self) -> int:
        """The number that is taken off the stored exponent."""
        return (1 << self.exponent - 1) - 1 if self.bias_said is None else self.bias_said

    @property
    def smallest_exponent(self) -> int:
        """The exponent of the smallest normal number."""
        return 1 - self.bias

    @property
    def largest_exponent(self) -> int:
        """The exponent of the largest number."""
        return (1 << self.exponent) - 1 - self.bias - (self.specials == "ieee")

    @property
    def largest(self) -> Fraction:
        """The largest number: a mantissa of ones with the largest exponent that stands for numbers."""
        if not self.floating:
            return Fraction(2**self.mantissa - 1)
        below = 1 + (self.specials == "last")  # one code less where that of all ones is no number
        return (2 - below * self.epsilon) * power_of_two(self.largest_exponent)

    @property
    def least(self) -> Fraction:
        """The least number: that of a whole-number format is one further from 0 than its largest."""
        return -self.largest if self.floating else -self.largest - 1

    @property
    def smallest_normal(self) -> Fraction:
        """The smallest positive number with all bits of the mantissa."""
        return power_of_two(self.smallest_exponent) if self.floating else Fraction(1)

    @property
    def smallest_subnormal(self) -> Fraction:
        """The smallest positive number, and the spacing of all numbers below the smallest normal one."""
        return self.smallest_normal * self.epsilon if self.floating else Fraction(1)

    @property
    def epsilon(self) -> Fraction:
        """The distance from 1 to the next larger number; that of whole numbers is 1."""
        return Fraction(1, 2**self.mantissa) if self.floating else Fraction(1)

    @property
    def unit_roundoff(self) -> Fraction:
        """The largest relative error of rounding to nearest a number in the range of the normal ones."""
        return self.epsilon / 2

    @property
    def integers_up_to(self) -> int:
        """Every whole number up to this one is a number of the format."""
        return int(min(Fraction(2 ** (self.mantissa + 1)), self.largest)) if self.floating else int(self.largest)

    @property
    def finite_values(self) -> int:
        """How many different numbers it holds; 0 counts once."""
        if not self.floating:
            return int(2**self.bits)
        codes = 2**self.exponent * 2**self.mantissa  # of one sign, 0 among them
        codes -= {"ieee": 2**self.mantissa, "last": 1}.get(self.specials, 0)
        return int(2 * codes - 1)

    @property
    def infinity(self) -> bool:
        """Whether it has infinities."""
        return self.floating and self.specials == "ieee"

    @property
    def nan_codes(self) -> int:
        """How many codes are no numbers."""
        if not self.floating:
            return 0
        return {"ieee": 2 * ((1 << self.mantissa) - 1), "last": 2, "minus zero": 1}.get(self.specials, 0)

    @property
    def stored_bits(self) -> int:
        """The bits that an element takes."""
        return self.stored or self.bits

    @property
    def bytes(self) -> Fraction:
        """The bytes of one element."""
        return Fraction(self.stored_bits, 8)

    def decoded(self, code: int) -> Value:
        """The number that a code stands for: sign, exponent and mantissa read off its bits.

        >>> FORMATS["fp16"].decoded(0b0_01111_0000000000), FORMATS["fp8_e4m3fn"].decoded(0b0_1111_111)
        (Fraction(1, 1), 'nan')
        """
        if not self.floating:
            return Fraction(code - 2**self.bits if code >> (self.bits - 1) else code)
        minus, rest = divmod(code, 2 ** (self.bits - 1))
        exponent, mantissa = divmod(rest, 2**self.mantissa)
        ones = exponent == 2**self.exponent - 1
        if self.specials == "ieee" and ones:
            return "nan" if mantissa else "-inf" if minus else "inf"
        last = self.specials == "last" and ones and mantissa == 2**self.mantissa - 1
        if last or (self.specials == "minus zero" and minus and not rest):
            return "nan"
        lead = Fraction(mantissa, 1 << self.mantissa) + (exponent > 0)
        found: Fraction = lead * power_of_two(max(exponent, 1) - self.bias)
        return -found if minus else found

    def contains(self, other: NumberFormat) -> bool:
        """Whether every number of another format is one of this one."""
        if not self.floating:
            return not other.floating and other.bits <= self.bits
        if not other.floating:
            return -other.least <= self.integers_up_to
        return (other.mantissa <= self.mantissa and other.largest <= self.largest
                and other.smallest_subnormal >= self.smallest_subnormal)  # fmt: skip

    def spacing(self, x: Fraction) -> Fraction:
        """The distance between neighbours in the binade of a number.

        >>> FORMATS["fp16"].spacing(Fraction(10)), FORMATS["fp16"].spacing(Fraction(0))
        (Fraction(1, 128), Fraction(1, 16777216))
        """
        if not self.floating:
            return Fraction(1)
        e = max(binade(x), self.smallest_exponent) if x else self.smallest_exponent
        return power_of_two(e - self.mantissa)

    def rounded(self, x: Fraction) -> Value:
        """The nearest number, the one with an even last bit where two are as near; what is too large overflows.

        A whole-number format drops what is behind the point, and wraps, as a cast does in NumPy and PyTorch.

        >>> FORMATS["bf16"].rounded(Fraction(1, 100)), FORMATS["fp8_e4m3fn"].rounded(Fraction(1000))
        (Fraction(41, 4096), 'nan')
        >>> FORMATS["fp16"].rounded(Fraction(65520)), FORMATS["int8"].rounded(Fraction(130))
        ('inf', Fraction(-126, 1))
        """
        if not self.floating:
            half = 2**self.mantissa
            return Fraction((int(x) + half) % (2 * half) - half)
        spacing = self.spacing(x)
        found = round(x / spacing) * spacing  # Python rounds halves to even
        if abs(found) <= self.largest:
            return found
        if self.overflow == "largest":
            return self.largest if x > 0 else -self.largest
        return "nan" if self.overflow == "nan" else "inf" if x > 0 else "-inf"

    def neighbours(self, x: Fraction) -> tuple[Fraction, Fraction]:
        """The numbers on both sides of one; twice itself where the format has it. Raises ``ValuesError`` outside.

        >>> FORMATS["fp8_e5m2"].neighbours(Fraction(1, 10))
        (Fraction(3, 32), Fraction(7, 64))
        """
        if not self.least <= x <= self.largest:
            reach = f"its numbers reach from {decimal(self.least)} to {decimal(self.largest)}"
            raise ValuesError(f"{decimal(x)} is outside the range of {self.name}", hint=reach)
        spacing = self.spacing(x)
        return x // spacing * spacing, -(-x // spacing) * spacing


def decimal(x: Fraction) -> str:
    """A number as people read it, with six digits.

    >>> decimal(Fraction(65504)), decimal(Fraction(1, 3))
    ('65504', '0.333333')
    """
    if x.denominator == 1 and abs(x) < 10**9:
        return str(x)
    with localcontext(prec=6):  # a float has no numbers beyond 1.8e308
        return f"{(Decimal(x.numerator) / x.denominator).normalize():g}"


def power_of_two(e: int) -> Fraction:
    """2^e.

    >>> power_of_two(-3)
    Fraction(1, 8)
    """
    return Fraction(1 << e) if e >= 0 else Fraction(1, 1 << -e)


def binade(x: Fraction) -> int:
    """The e with 2^e <= |x| < 2^(e + 1).

    >>> binade(Fraction(10)), binade(Fraction(1, 3))
    (3, -2)
    """
    e = abs(x.numerator).bit_length() - x.denominator.bit_length()
    return e if abs(x) >= power_of_two(e) else e - 1


_OCP8 = "Micikevicius et al., arXiv 2209.05433"
_FNUZ = "Noune et al., arXiv 2206.02915"
_IEEE_LIKE = "the rules of IEEE 754-2019 with fewer bits, as in ml_dtypes"
_OCP = "OCP Microscaling Formats (MX) Specification, version 1.0"
_ROWS = (
    NumberFormat("fp64", 11, 52, source="IEEE 754-2019"),
    NumberFormat("fp32", 8, 23, source="IEEE 754-2019"),
    NumberFormat("tf32", 8, 10, stored=32, source="NVIDIA A100 white paper, 2020"),  # only products are rounded to it
    NumberFormat("bf16", 8, 7, source="Kalamkar et al., arXiv 1905.12322"),
    NumberFormat("fp16", 5, 10, source="IEEE 754-2019"),
    NumberFormat("fp8_e4m3fn", 4, 3, "last", "nan", source=_OCP8),
    NumberFormat("fp8_e5m2", 5, 2, source=_OCP8),
    NumberFormat("fp8_e4m3fnuz", 4, 3, "minus zero", "nan", 8, source=_FNUZ),
    NumberFormat("fp8_e5m2fnuz", 5, 2, "minus zero", "nan", 16, source=_FNUZ),
    NumberFormat("fp8_e4m3b11fnuz", 4, 3, "minus zero", "nan", 11, source=_FNUZ),
    NumberFormat("fp8_e3m4", 3, 4, source=_IEEE_LIKE),
    NumberFormat("fp6_e3m2fn", 3, 2, "none", "largest", source=_OCP),
    NumberFormat("fp6_e2m3fn", 2, 3, "none", "largest", source=_OCP),
    NumberFormat("fp4_e2m1", 2, 1, "none", "largest", source=_OCP),
    *(NumberFormat(f"int{n}", 0, n - 1, "none", "wraps", source="two's complement") for n in (64, 32, 16, 8, 4)),
)  # fmt: skip
FORMATS: dict[str, NumberFormat] = {row.name: row for row in _ROWS}
# What has bytes, but says nothing of its numbers: fp8 is any of its variants.
BYTES: dict[str, Fraction] = {
    **{name: row.bytes for name, row in FORMATS.items()},
    "fp8": Fraction(1),
    "bool": Fraction(1),
}

# Quantised formats by name: an element, and in brackets the size of a group and what each group has beside it.
GROUPED = {
    "nf4": "int4(64 fp8(256 fp32))",  # QLoRA, arXiv 2305.14314, section 3: scales are quantised, too
    "mxfp4": "fp4(32 fp8)",  # OCP Microscaling Formats (MX) Specification, version 1.0
    "nvfp4": "fp4(16 fp8)",  # NVIDIA, Blackwell
    "q4_0": "int4(32 fp16)",  # llama.cpp, GGUF
    "q8_0": "int8(32 fp16)",
}

USUAL_DTYPE = "fp16"  # where nothing says it


def element_bytes(dtype: str) -> Num:
    """The bytes of one element, with their unit; a quantised one has its share of what its group has beside it.

    ``int4(128 fp16)`` is int4 with an fp16 scale for each 128 numbers, ``int4(128 fp16 int4)`` has a zero point, too.
    Groups are counted as full.

    >>> element_bytes("FP16").number, 8 * element_bytes("int4(128 fp16)").number
    (Fraction(2, 1), Fraction(33, 8))
    """
    return Num(_bytes(dtype), Unit.parse("byte/element"))


def grouped(dtype: str) -> tuple[str, int, str] | None:
    """The element, the size of a group and what each group has beside it; None for a format that is not quantised so.

    >>> grouped("int4(128 fp16)"), grouped("bf16")
    (('int4', 128, 'fp16'), None)
    """
    said = GROUPED.get(dtype.strip().lower(), dtype.strip())
    found = re.fullmatch(r"(\w{1,20}) ?\(([1-9]\d{0,6}) ([\w ()]{1,60})\)", said, re.ASCII)
    return None if found is None else (found[1], int(found[2]), found[3])


def _bytes(dtype: str) -> Fraction:
    """The bytes of an element; what each group has beside it may be quantised itself."""
    said = grouped(dtype)
    if said is None:
        return BYTES[_key(dtype)]
    element, group, beside = said
    parts, depth = [""], 0
    for sign in beside:
        depth += (sign == "(") - (sign == ")")
        if sign == " " and not depth:
            parts.append("")
        else:
            parts[-1] += sign
    return BYTES[_key(element)] + sum(map(_bytes, parts), Fraction(0)) / group


def _key(dtype: str) -> str:
    key = dtype.strip().lower().removeprefix("torch.").removeprefix("np.")
    key = key.replace("bfloat", "bf").replace("float4", "fp4").replace("float6", "fp6").replace("float8", "fp8")
    key = {"half": "fp16", "double": "fp64", "float": "fp32"}.get(key, key).replace("float", "fp")
    key = {"fp8_e4m3": "fp8_e4m3fn", "e4m3": "fp8_e4m3fn", "e5m2": "fp8_e5m2", "e4m3fn": "fp8_e4m3fn"}.get(key, key)
    key = {"fp4": "fp4_e2m1", "e2m1": "fp4_e2m1", "fp4_e2m1fn": "fp4_e2m1"}.get(key, key)
    if key not in BYTES:
        groups = "int4(128 fp16), an fp16 scale for each 128 numbers; or nf4"
        hint = groups if "(" in key else nearest(key, [*BYTES])
        raise ValuesError(f"unknown number format '{dtype[:40]}'", hint=hint)
    return key


def number_format(dtype: str) -> NumberFormat:
    """The format of a name, as people, NumPy and PyTorch spell it.

    Raises ``ValuesError`` for an unknown one, and for one that has variants or holds no numbers.

    >>> number_format("torch.bfloat16").name, number_format("E4M3").name
    ('bf16', 'fp8_e4m3fn')
    """
    key = _key(dtype)
    if key not in FORMATS:
        variants = [name for name in FORMATS if name.startswith(key)]
        what = f"'{key}' has variants" if variants else f"'{key}' holds no numbers"
        raise ValuesError(f"{what}: which one is meant?" if variants else what,
                          hint=", ".join(variants) or nearest(key, [*FORMATS]))  # fmt: skip
    return FORMATS[key]


def formats(said: str) -> tuple[str, dict[str, str]]:
    """The format of all numbers, empty where there is none, and those of tensors by name.

    Raises ``ValuesError`` for an unknown format, and for two formats of the same numbers.

    >>> formats("bf16"), formats("fp16, X=fp8, Y=fp32")
    (('bf16', {}), ('fp16', {'X': 'fp8', 'Y': 'fp32'}))
    """
    if (mixed := autocast_of(said)) is not None:
        return str(mixed), {}
    every: list[str] = []
    named: dict[str, str] = {}
    for part in said.split(","):
        name, equals, dtype = (piece.strip() for piece in part.rpartition("="))
        element_bytes(dtype)  # refuses unknown formats
        if not equals:
            every.append(dtype)
        elif named.setdefault(name, dtype) != dtype:
            raise ValuesError(f"{name[:40]} has two formats: {named[name]} and {dtype}")
    if len(every) > 1:
        raise ValuesError(
            f"'{said[:60]}' gives all numbers several formats",
            hint="write one, or the names of tensors: X=fp8, W=fp8, Y=fp32",
        )
    return "".join(every), named


@dataclass(frozen=True)
class Autocast:
    """Mixed precision: ops run in a low format or in fp32, by the lists that a device has."""

    low: str
    device: str = "cuda"

    def __str__(self) -> str:
        return f"autocast({self.low}{', cpu' if self.device == 'cpu' else ''})"


def autocast_of(said: str) -> Autocast | None:
    """The formats of ``autocast(bf16)`` or ``autocast(bf16, cpu)``; None for another text.

    Raises ``ValuesError`` for a format that autocast has not, and for an unknown device.

    >>> autocast_of("autocast(bf16)"), autocast_of("bf16")
    (Autocast(low='bf16', device='cuda'), None)
    """
    text = said.strip()
    if not text.lower().startswith("autocast"):
        return None
    inside = [part.strip() for part in text[len("autocast") :].strip().removeprefix("(").removesuffix(")").split(",")]
    low, device = _key(inside[0] or "fp16"), (inside[1:] or ["cuda"])[0].lower()
    if low not in ("fp16", "bf16") or device not in ("cuda", "cpu") or len(inside) > 2:
        raise ValuesError(f"'{said[:40]}' is no autocast", hint="autocast(fp16), autocast(bf16) or autocast(bf16, cpu)")
    return Autocast(low, device)


def row_dtype(dtype: str) -> str:
    """The format of sums along a row: that of the numbers, or fp32 where theirs has 16 bits or fewer.

    >>> row_dtype("bf16"), row_dtype("fp64")
    ('fp32', 'fp64')
    """
    return "fp32" if element_bytes(dtype).number <= 2 else dtype


def said_bytes(size: Num) -> str:
    """How a person says it: ``2 bytes``."""
    if 8 % size.number.denominator:  # quantised in groups
        return f"{8 * float(size.number):.10g}/8 bytes"
    return f"{size.number} byte{'s' if size.number != 1 else ''}"
