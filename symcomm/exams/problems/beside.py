"""Tables beside an answer: the number that a source prints, and the same answer under other conventions.

The latter are derived like the answer itself, each with one choice of its accounting changed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction

from symcomm.core import form as forms
from symcomm.core.accounting import CONVENTIONS, Accounting
from symcomm.core.derivation import Derivation, Exhibit
from symcomm.core.errors import DocumentError, SymcommError, ValuesError
from symcomm.core.form import Form, num
from symcomm.core.libraries import Expr, sp
from symcomm.core.printing import short
from symcomm.core.text.table import Table
from symcomm.core.units import ONE, Quantity, Unit, exact_text
from symcomm.documents.render.document import Answer, Block
from symcomm.exams.problems.problem import Ask, Problem

# The fields in which people count the same thing differently; the others say how something runs.
FIELDS = (
    "communication", "pipeline", "gathered_weights", "input_gradient", "flops", "operations", "attention",
    "model_flops", "accumulation",
)  # fmt: skip
_LEFT_OUT = (
    "contributed", "sent_and_received_per_rank", "layers", "whole_units", "at_once", "reduced_every_microbatch",
)  # fmt: skip
_STEPS, _ROWS = 24, 4  # of longer derivations another one takes too long


def others(
    derivation: Derivation, values: Mapping[str, Fraction], again: Callable[[Accounting], Derivation]
) -> Exhibit | None:
    """A table of the other conventions that change this number, with the factor; None where there are none.

    ``again`` derives the same under an accounting.
    """
    if len(derivation.steps) > _STEPS:
        return None
    rows: list[tuple[str | Form | Quantity, ...]] = []
    for row in CONVENTIONS:
        asked = row.field in derivation.touched and row.field in FIELDS and row.name not in _LEFT_OUT
        if not asked or getattr(derivation.accounting, row.field) == row.name:
            continue
        try:
            other = again(replace(derivation.accounting, **{row.field: row.name}))
            quantity = _at(other, values)
        except SymcommError:  # nothing of that kind can be asked here
            continue
        factor = _factor(other.expr, derivation.expr)
        if factor is None or factor == num(1) or other.unit != derivation.unit:
            continue
        number = _number(factor, values, derivation)
        told = row.statement[0].lower() + row.statement[1:].rstrip(".")
        rows.append((f"{told}: ×", factor, f"= {number}" if number else "", f"({short(quantity)})" if quantity else ""))
        if len(rows) == _ROWS:
            break
    return Exhibit("", ("counted otherwise", "factor", "", "number"), tuple(rows)) if rows else None


def _at(derivation: Derivation, values: Mapping[str, Fraction]) -> Quantity | None:
    known = derivation.values(values)
    return derivation.at(values) if all(name in known for name in derivation.needs) else None


def _factor(other: Expr, mine: Expr) -> Form | None:
    """The one over the other, where that is simpler than either of them."""
    if mine == 0 or other == 0:
        return None
    ratio = sp.cancel(other / mine) if other.is_rational_function() and mine.is_rational_function() else other / mine
    if ratio.count_ops() > 6:
        return None
    return forms.from_expr(sp.factor(ratio))


def _number(factor: Form, values: Mapping[str, Fraction], derivation: Derivation) -> str:
    """The number that a factor with symbols has, as text; empty for a plain number, and where a symbol is unknown."""
    known = derivation.values(values)
    if not forms.names(factor) or any(name not in known for name in forms.names(factor)):
        return ""
    worth = forms.evaluate(factor, known)
    return str(worth)


# -- a printed number -------------------------------------------------------------------------------------


def compare(problem: Problem, beside: list[tuple[Ask, int]], made: list[Block]) -> None:
    """Sets what a source prints beside what was derived: one table for each question, below its last such answer."""
    for question in problem.questions:
        mine = [(ask, at) for ask, at in beside if ask in question.asks]
        rows = [_beside(ask, made[at]) for ask, at in mine if ask.printed]
        for ask, at in mine:
            answer = made[at]
            if ask.beside is not None and isinstance(answer, Answer):
                made[at] = replace(answer, derivation=_with_table(ask, answer.derivation, ask.beside))
        if rows:
            columns = ("quantity", "printed", "derived", "printed less derived")
            last = made[mine[-1][1]]
            assert isinstance(last, Answer)
            table = Exhibit("Printed and derived", columns, tuple(rows))
            derivation = replace(last.derivation, exhibits=(*last.derivation.exhibits, table))
            made[mine[-1][1]] = replace(last, derivation=derivation)


def _with_table(ask: Ask, derivation: Derivation, printed: Table) -> Derivation:
    """The derivation with what of a printed table is not what was derived."""
    found = next((exhibit.beside for exhibit in derivation.exhibits if exhibit.beside), None)
    where = ask.section.span_of("printed")
    if found is None:
        problem = f"a table is printed here, but '{ask.quantity}' has none to set beside it"
        raise DocumentError(problem, where, "write the printed number, with its unit")
    with where.meant():
        table = found(printed)
    if not table.rows:
        return replace(derivation, notes=(*derivation.notes, f"{table.title}."))
    return replace(derivation, exhibits=(*derivation.exhibits, table))


def _beside(ask: Ask, answer: Block) -> tuple[str | Quantity, ...]:
    """The row of one answer: the printed number, the derived one, and their difference with its share."""
    assert isinstance(answer, Answer)
    assert ask.printed is not None
    printed, derived = ask.printed, answer.quantity
    if derived is None:
        needs = answer.derivation.needs
        message = f"a printed number is compared with a derived one, which needs a value for {', '.join(needs)}"
        raise ValuesError(message, ask.section.span_of("printed"), f"say given: {{{needs[0]}: ...}}")
    if printed.unit == ONE and derived.unit.is_count:  # 109514298 are parameters where parameters are asked for
        printed = Quantity(printed.value, derived.unit)
    printed = printed.within(derived.unit)
    if printed.unit != derived.unit:
        said = "without a unit" if printed.unit == ONE else f"in {printed.unit}"
        message = f"the printed number is {said}, but the derived one in {derived.unit}"
        raise ValuesError(message, ask.section.span_of("printed"), f"the derived number is {derived}")
    less = Quantity(printed.value - derived.value, derived.unit)
    said = less.reading
    said += f" ({float(100 * less.value / derived.value):+.2g} %)" if derived.value else ""
    if abs(less.value) * 2 <= last_digit(ask.section.text("printed"), derived.unit):
        said = "none, to the last printed digit"
    text = ask.section.text("printed")
    return ask.label or answer.derivation.title, printed.reading, _as_printed(text, derived) or derived.reading, said


_WRITTEN = re.compile(r"\s*[-+]?[\d_ ]+(?:\.(\d+))?\s*([^\d\s/].*)?")


def last_digit(text: str, unit: Unit) -> Fraction:
    """The value of one more in the last digit of a written number, in a unit.

    >>> from symcomm.core.units import BYTE
    >>> last_digit("19.412 GB", BYTE), last_digit("3", ONE)
    (Fraction(1000000, 1), Fraction(1, 1))
    """
    match = _WRITTEN.fullmatch(text)
    if match is None:  # a fraction or a power of ten is exact
        return Fraction(0)
    return Quantity.parse(f"1 {match[2] or ''}").within(unit).value / Fraction(10) ** len(match[1] or "")


def _as_printed(text: str, derived: Quantity) -> str:
    """A derived number in the unit and with the digits of a printed one; empty where that has no prefix.

    >>> from symcomm.core.units import BYTE
    >>> _as_printed("26.103 GB", Quantity(Fraction(26103150592), BYTE))
    '26.103 GB'
    """
    match = _WRITTEN.fullmatch(text)
    if match is None or not match[2] or Quantity.parse(f"1 {match[2]}").within(derived.unit).value == 1:
        return ""
    digits = len(match[1] or "")
    last = round(derived.value / last_digit(text, derived.unit))
    whole, part = divmod(abs(last), 10**digits)
    written = exact_text(Fraction(whole)) + (f".{part:0{digits}d}" if digits else "")
    return ("-" if last < 0 else "") + f"{written} {match[2].strip()}"
