"""The number formats and how many bytes an element takes."""

from __future__ import annotations

from fractions import Fraction

from symcomm.errors import ValuesError, nearest
from symcomm.form import Num
from symcomm.units import Unit

BYTES: dict[str, Fraction] = {
    "fp64": Fraction(8),
    "fp32": Fraction(4),
    "tf32": Fraction(4),  # stored as fp32; only the products are rounded
    "bf16": Fraction(2),
    "fp16": Fraction(2),
    "fp8": Fraction(1),
    "int64": Fraction(8),
    "int32": Fraction(4),
    "int8": Fraction(1),
    "bool": Fraction(1),
    "int4": Fraction(1, 2),
}

USUAL_DTYPE = "fp16"  # where nothing says it


def element_bytes(dtype: str) -> Num:
    """The bytes of one element, with their unit.

    >>> element_bytes("FP16").number
    Fraction(2, 1)
    """
    key = dtype.strip().lower().replace("bfloat", "bf").replace("float", "fp").replace("half", "fp16")
    if key not in BYTES:
        raise ValuesError(f"unknown number format '{dtype[:40]}'", hint=nearest(key, [*BYTES]))
    return Num(BYTES[key], Unit.parse("byte/element"))


def formats(said: str) -> tuple[str, dict[str, str]]:
    """The format of all numbers, empty where there is none, and those of tensors by name.

    Raises ``ValuesError`` for an unknown format, and for two formats of the same numbers.

    >>> formats("bf16"), formats("fp16, X=fp8, Y=fp32")
    (('bf16', {}), ('fp16', {'X': 'fp8', 'Y': 'fp32'}))
    """
    every: list[str] = []
    named: dict[str, str] = {}
    for part in said.split(","):
        name, equals, dtype = (piece.strip() for piece in part.rpartition("="))
        element_bytes(dtype)  # refuses unknown formats
        if not equals:
            every.append(dtype)
        elif named.setdefault(name, dtype) != dtype:
            raise ValuesError(f"the format of {name[:40]} is said twice: {named[name]} and {dtype}")
    if len(every) > 1:
        raise ValuesError(
            f"'{said[:60]}' gives all numbers several formats",
            hint="write one, or the names of tensors: X=fp8, W=fp8, Y=fp32",
        )
    return "".join(every), named


def row_dtype(dtype: str) -> str:
    """The format of sums along a row: that of the numbers, or fp32 where theirs has 16 bits or fewer.

    >>> row_dtype("bf16"), row_dtype("fp64")
    ('fp32', 'fp64')
    """
    return "fp32" if element_bytes(dtype).number <= 2 else dtype


def said_bytes(size: Num) -> str:
    """How a person says it: ``2 bytes``."""
    return f"{size.number} byte{'s' if size.number != 1 else ''}"
