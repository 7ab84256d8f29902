"""The write-up of an optimum: its steps, tables and notes, gathered while the optimum is found."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from symcomm.core import form as forms
from symcomm.core.derivation import Condition, Derivation, Exhibit, Reason, Step
from symcomm.core.errors import IrrationalError
from symcomm.core.form import Form, Sym
from symcomm.core.optimum.cost import Cost
from symcomm.core.optimum.question import CostQuestion
from symcomm.core.optimum.witnesses import of_optimum
from symcomm.core.units import ONE, Quantity, Unit

if TYPE_CHECKING:
    from symcomm.core.derivation import Relation


class Working:
    """The working of one question, from the cost (the step ``f``) to the optimum."""

    def __init__(self, question: CostQuestion) -> None:
        self.question = question
        self.cost: Cost = question.cost
        self.steps: list[Step] = []
        self.exhibits: list[Exhibit] = []
        self.notes: list[str] = []
        self.where: list[Condition] = [*question.cost.where]
        self.place = ""  # the names of the steps that say where the optimum is, and what it is worth there
        self.value = ""
        cost = self.cost
        text = f"{cost.title}, a function of `{cost.over}`.{cost.said}"
        self.f = self.define("f", cost.form, cost.unit, "the cost", text)

    def step(self, name: str, form: Form, unit: Unit, rule: str, text: str, relation: Relation = ":=") -> str:
        """Adds a step; its name."""
        said = [s.name for s in self.steps]
        witness = of_optimum(self.question, name, said, rule) if relation == ":=" else None
        self.steps.append(Step(name, form, unit, Reason(rule, text, witness=witness), relation))
        return name

    def define(self, name: str, form: Form, unit: Unit, rule: str, text: str) -> str:
        """Adds a step under a free name; the name."""
        return self.step(self.cost.free(name, *(s.name for s in self.steps)), form, unit, rule, text)

    def rewrite(self, name: str, form: Form, unit: Unit, text: str) -> None:
        """Adds another way to write a step."""
        self.steps.append(Step(name, form, unit, Reason("algebra", text), "="))

    def put(self, place: str) -> Form:
        """The cost at the place that a step names."""
        at = Sym(place, False, self.cost.x_unit)
        return forms.substitute(self.cost.form, lambda s: at if s.name == self.cost.over else s)

    def at(self, n: int) -> Quantity | str:
        """The cost at a whole number, all other numbers known."""
        cost = self.cost
        written = forms.from_expr(cost.numbers)
        try:
            return Quantity(forms.evaluate(written, {cost.over: Fraction(n)}), cost.unit)
        except IrrationalError:
            import sympy as sp

            return f"≈ {sp.N(forms.value(written).subs(cost.x, n), 8)} {cost.unit if cost.unit != ONE else ''}".strip()

    def finish(self, place: str) -> Derivation:
        """The derivation whose last step is what was wanted: the place of the optimum, or the cost there."""
        cost, question = self.cost, self.question
        last = self.steps[-1]
        if question.wanted == "value":
            if place != self.place or last.name != self.value:
                text = f"The cost at `{place}`."
                self.define("f^best", self.put(place), cost.unit, question.words[1], text)
        elif last.name != place:
            step = next(s for s in reversed(self.steps) if s.name == place)
            self.step(place, step.form, step.unit, "answer", f"There the cost is {question.words[0]}.", "=")
        kind = f"Best {'whole' if question.domain.whole else 'real'} `{cost.over}`"
        kind = f"{question.words[0].capitalize()} cost" if question.wanted == "value" else kind
        strict = {str(c) for c in self.where if c.relation == ">"}
        where = tuple(c for c in self.where if str(c).replace(">=", ">") not in strict or c.relation == ">")
        if where:
            beside = " and ".join(condition.told for condition in where)
            self.steps[-1] = replace(self.steps[-1], condition=beside)
        return replace(cost, where=where).derivation(
            f"{kind}: {cost.title}", self.steps, exhibits=tuple(self.exhibits), notes=tuple(self.notes)
        )
