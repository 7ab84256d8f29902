"""The common parts of the passes about optima: symbols with units and meanings, and continued derivations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from symcomm.core.derivation import Continued, Derivation, Numbers, Reason, Step, Witness
from symcomm.core.errors import ValuesError
from symcomm.core.form import Ceiling, Floor, Form, Sym
from symcomm.core.notation import Notation
from symcomm.core.records import dataclass
from symcomm.core.units import ONE, Unit

if TYPE_CHECKING:
    from symcomm.core.setting import Setting

SECOND = Unit.parse("second")


@dataclass(frozen=True)
class Name:
    """A symbol of a pass: its name, its unit, what it means, and whether it counts something."""

    name: str
    unit: str
    meaning: str
    whole: bool = False

    @property
    def sym(self) -> Sym:
        """The symbol."""
        return Sym(self.name, self.whole, Unit.parse(self.unit) if self.unit else ONE)


def meanings(setting: Setting, rows: Sequence[Name]) -> Notation:
    """The notation of a setting with the meanings of a pass's symbols below it."""
    over = setting.notation
    return Notation(over.latex, {**{row.name: row.meaning for row in rows}, **over.meanings})


def known(setting: Setting, rows: Sequence[Name], without: Sequence[str] = ()) -> Mapping[str, object]:
    """The given numbers of a pass's symbols; raises ``ValuesError`` for a count that is no whole number."""
    found: dict[str, object] = {}
    for row in rows:
        if row.name in setting.values and row.name not in without:
            value = setting.values[row.name]
            if row.whole and value.denominator != 1:
                raise ValuesError(f"{row.name} = {value}: {row.meaning} must be a whole number")
            found[row.name] = value
    return found


def made(setting: Setting, rows: Sequence[Name], title: str, steps: Sequence[Step], **more: object) -> Derivation:
    """A derivation of a pass that needs no model."""
    given = tuple(known(setting, rows).items())
    return Derivation(
        title, setting.accounting, tuple(steps), given=given, notation=meanings(setting, rows), **more  # type: ignore[arg-type]
    )  # fmt: skip


def continued(first: Derivation, second: Derivation) -> Derivation:
    """The second derivation with the steps of the first before it."""
    return replace(second, steps=Continued.of((*first.steps, *second.steps), (first, second)))


def step(
    name: str, form: Form, unit: Unit, rule: str, text: str, relation: str = ":=", witness: Witness | None = None
) -> Step:  # fmt: skip
    """A step with its reason."""
    return Step(name, form, unit, Reason(rule, text, witness=witness), relation)  # type: ignore[arg-type]


def whole(name: str, real: Sym, unit: Unit, up: bool) -> Step:
    """The step that rounds a solution up, or down, to the last whole number on its side."""
    text = f"Round `{real.name}` {'up' if up else 'down'} to a whole number."
    last = partial(_is_last, name, real.name, up)
    return step(name, (Ceiling if up else Floor)(real), unit, "whole numbers", text, witness=last)


def _is_last(name: str, real: str, up: bool, numbers: Numbers) -> bool:
    found, at = numbers[name], numbers[real]
    return found.denominator == 1 and (found - 1 < at <= found if up else found <= at < found + 1)
