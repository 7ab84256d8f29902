"""A table that a source prints, set beside the derived one: cell by cell, with the reason of each difference."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any
from unicodedata import normalize

from symcomm.core import form as forms
from symcomm.core.derivation import Exhibit
from symcomm.core.errors import SymcommError
from symcomm.core.form import Form, Related, Sym
from symcomm.core.libraries import mpmath
from symcomm.core.printing import plain as printed_form
from symcomm.core.text.table import Cell, Table
from symcomm.core.units import Quantity
from symcomm.teaching.differentiation import numeric
from symcomm.teaching.differentiation.trace import constants

COLUMNS = ("printed", "derived", "why")
_ACCENTED = re.compile(
    r"(?:\\(?P<mark>dot|bar|overline)\s*(?:\{\s*(?P<braced>[A-Za-z])\s*\}|(?P<bare>[A-Za-z]))"
    r"|(?<![A-Za-z\\])(?P<plain>[A-Za-z][\u0304\u0307]?))"
    r"_\s*(?:\{\s*(?P<group>-?\s*\d+)\s*\}|(?P<digits>-?\d+))"
)
_NAME = re.compile(r"[A-Za-z][\u0304\u0307]?_-?\d+")
_PARTIAL = re.compile(
    r"\\frac\s*\{\s*\\partial\s*([A-Za-z])_\{?(\d+)\}?\s*\}\s*\{\s*\\partial\s*([A-Za-z])_\{?(\d+)\}?\s*\}"
)
_MARK = {"dot": "\u0307", "bar": "\u0304", "overline": "\u0304"}


def beside_trace(rows: Sequence[tuple[Any, ...]], printed: Table) -> Exhibit:
    """A printed table of a trace beside the rows of the derived one.

    Each equation is worked out with the derived numbers; what differs is told, with a name that the trace does not
    have and an assignment that is printed the wrong way round.
    """
    width = len(rows[0])
    found: list[tuple[str | Form, ...]] = []
    agreeing, used = 0, [0] * len(rows)
    values = _values(rows)
    for row in printed.rows:
        cells = list(row[:width])
        for place in range(0, min(width, len(cells)), 2):
            equation, value = cells[place], cells[place + 1] if place + 1 < len(cells) else None
            if not equation.text.strip("$ "):
                continue
            mine, trouble = _matching(rows, used, place, equation)
            if mine is None:
                found.append((_shown(equation), "–", _quoted(trouble)))
                continue
            problems = [trouble] if trouble else _differences(rows[mine][place], equation, values)
            number = rows[mine][place + 1]
            if value is not None and value.text.strip("$ ") and not _close(_number(value), _worth(number)):
                problems.append(f"the value is {_said(number)}, not {value.text.strip('$ ')}")
            agreeing += 2 - len(problems)
            found += [(_shown(equation), rows[mine][place], _quoted(problem)) for problem in problems]
    title = f"Printed and derived: {agreeing} cells agree" + (", and these do not" if found else "")
    return Exhibit(title, COLUMNS, tuple(found))


def _shown(cell: Cell) -> str:
    """A printed cell as a sentence: its names as maths, the rest as it is read."""
    text = _PARTIAL.sub(r"∂\1_\2/∂\3_\4", cell.text.strip().strip("$"))
    text = re.sub(r"\\(?:times|cdot)\s*", "· ", _named(text))
    return _quoted(re.sub(r"[{}\\]", "", text))


def _quoted(text: str) -> str:
    return _NAME.sub(lambda match: f"`{match[0]}`", text).replace("``", "` `")


def _named(text: str) -> str:
    """The text with names in one spelling: a dot or a bar above a letter, its number behind an underscore."""

    def one(match: re.Match[str]) -> str:
        letter = match["plain"] or (match["braced"] or match["bare"]) + _MARK[match["mark"]]
        return f"{letter}_{(match['group'] or match['digits']).replace(' ', '')}"

    return _ACCENTED.sub(one, normalize("NFD", text).strip().strip("$").replace("−", "-"))


def _matching(rows: Sequence[tuple[Any, ...]], used: list[int], place: int, cell: Cell) -> tuple[int | None, str]:
    """The derived row that a printed equation stands for, and what is wrong with how it is written."""
    left, _, right = (_named(part).strip() for part in _PARTIAL.sub(_slope, cell.text).partition("="))
    for number, row in enumerate(rows):
        one = row[place]
        if isinstance(one, Related) and printed_form(one.left) == left and not used[number] & (1 << place):
            used[number] |= 1 << place
            return number, ""
    for number, row in enumerate(rows):
        one = row[place]
        ends = isinstance(one, Related) and isinstance(one.right, Sym)
        if ends and (printed_form(one.right), printed_form(one.left)) == (left, right):
            used[number] |= 1 << place
            return number, f"the assignment goes the other way: {right} gets its value from {left}"
    ends_are = [printed_form(row[place]) for row in rows if isinstance(row[place], Related)]
    end = [one for one in ends_are if one.startswith(f"{right} = ")]
    said = f"the trace has no {left}"
    return None, said + (f"; {end[0]}" if end else "")


def _slope(match: re.Match[str]) -> str:
    """A derivative as the tangent of the output that it is the value of."""
    return f"{match[1]}\u0307_{match[2]}"


def _values(rows: Sequence[tuple[Any, ...]]) -> dict[str, Fraction]:
    """The numbers of all names of a table; of an adjoint that is added up, the last one: that of its first row."""
    found: dict[str, Fraction] = {}
    for row in rows:
        for place in range(0, len(row), 2):
            if isinstance(row[place], Related):
                found.setdefault(printed_form(row[place].left), _worth(row[place + 1]))
    for row in rows:  # a name that only stands on the right has the value of what it gives
        for place in range(0, len(row), 2):
            one = row[place]
            if isinstance(one, Related) and isinstance(one.right, Sym):
                found.setdefault(printed_form(one.right), _worth(row[place + 1]))
    return found


def _differences(derived: Related, cell: Cell, values: Mapping[str, Fraction]) -> list[str]:
    """Whether the right side of a printed equation is the derived one: for other numbers of all names as well."""
    right = _named(_PARTIAL.sub(_slope, cell.text).partition("=")[2])
    unknown = [name for name in _NAME.findall(right) if name not in values]
    if unknown:
        return [f"the trace has no {unknown[0]}"]
    other = {name: 1 + Fraction(n * n + 3, 2 * n + 7) for n, name in enumerate(sorted(values))}
    try:
        printed, told = ([_evaluate(side, known) for known in (values, other)]
                         for side in (right, printed_form(derived.right)))  # fmt: skip
    except SymcommError as error:
        return [f"the right side cannot be read: {error.message}"]
    if _close(printed[1], told[1]):
        return []
    if _close(printed[0], told[0]):
        return ["the right side has this value at this point only"]
    return [f"the right side is {_decimal(printed[0])}, and the derived one {_decimal(told[0])}"]


def _evaluate(text: str, known: Mapping[str, Fraction]) -> Fraction:
    """The number of a formula with the numbers of the names of a trace, read as those of a point are."""
    for name in sorted(known, key=len, reverse=True):
        text = text.replace(name, f"({known[name]})")
    for sign, word in ((r"\times", "*"), ("×", "*"), ("·", "*"), (r"\cdot", "*"), ("²", "^2"), ("√", "sqrt")):
        text = text.replace(sign, word)
    text = re.sub(r"\*\s*-\s*(\d+)", r"*(-\1)", text)
    return numeric.fraction(numeric.number(constants({"y": text})["y"]))


def _number(cell: Cell) -> Fraction:
    return _evaluate(cell.text.strip("$ ").replace("−", "-").rpartition("≈")[2].rpartition(r"\approx")[2], {})


def _worth(cell: Quantity | Form) -> Fraction:
    return cell.value if isinstance(cell, Quantity) else forms.evaluate(cell, {})


def _close(a: Fraction, b: Fraction) -> bool:
    """Whether two numbers are equal, to five digits where one was printed as a decimal."""
    return 10**5 * abs(a - b) <= max(Fraction(1), abs(b))


def _said(cell: Quantity | Form) -> str:
    return printed_form(cell) if isinstance(cell, Form) else str(cell)


def _decimal(number: Fraction) -> str:
    return str(mpmath.nstr(mpmath.mpf(number.numerator) / number.denominator, 6)).removesuffix(".0")
