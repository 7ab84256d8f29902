"""Amounts that are made of one another: a table says what each one is, and steps tell those that an answer needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from symcomm.core import form as forms
from symcomm.core.form import Form
from symcomm.core.records import dataclass
from symcomm.core.setting import StepWriter
from symcomm.core.units import Unit


@dataclass(frozen=True)
class DerivedAmount:
    """An amount made of others, which its form names; the rule it is made by, and the sentence that tells it."""

    name: str
    form: Form
    unit: Unit
    rule: str
    text: str


class DerivedAmounts:
    """Amounts by name: each is written down, behind those it is made of, when it is asked for.

    ``given`` are forms that are there already, or what writes them down. What is made of several gets them in the order
    of ``given`` and ``rows``; the last one of several rows of a name counts.
    """

    def __init__(
        self, work: StepWriter, rows: Iterable[DerivedAmount], given: Mapping[str, Form | Callable[[], Form]]
    ) -> None:
        self.work, self.rows = work, {row.name: row for row in rows}
        self.known = dict(given)
        self.order = [*given, *self.rows]

    def __call__(self, name: str) -> Form:
        """The amount, as a name that a form can use."""
        if name not in self.known:
            row = self.rows[name]
            parts = {n: self(n) for n in self.order if n in forms.names(row.form)}
            form = forms.substitute(row.form, lambda symbol: parts.get(symbol.name, symbol))
            self.known[name] = self.work.combine(name, form, row.unit, row.rule, row.text)
        found = self.known[name]
        if not isinstance(found, Form):
            found = self.known[name] = found()
        return found
