"""The parts of a derivation: steps with reasons and witnesses, conditions, and tables beside them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import field
from fractions import Fraction
from textwrap import shorten
from typing import TYPE_CHECKING, Literal, Protocol

from symcomm.core import form as forms
from symcomm.core.derivation.numbers import Numbers
from symcomm.core.errors import Span
from symcomm.core.form import Form
from symcomm.core.printing.forms import plain
from symcomm.core.records import dataclass
from symcomm.core.units import ONE, Quantity, Unit

if TYPE_CHECKING:
    from symcomm.core.accounting import Convention
    from symcomm.core.libraries import Expr
    from symcomm.core.notation import Notation
    from symcomm.core.text.table import Table

Relation = Literal[":=", "=", "≈"]
# What a step must be worth at some numbers, by a brute-force run; or whether such a run bears it out.
Witness = Callable[[Numbers], Fraction | int | bool]


@dataclass(frozen=True)
class Reason:
    """Why a step holds: the rule's short name, one sentence, and the table cell it comes from, if any.

    The ``witness`` of a rule knows what the step is worth without its formula; ``check(deep=True)`` asks it.
    """

    rule: str
    text: str
    source: Span | None = None
    witness: Witness | None = field(default=None, compare=False, repr=False)

    def __reduce__(self) -> tuple[object, ...]:
        return Reason, (self.rule, self.text, self.source)  # what a witness runs stays where it was made


@dataclass(frozen=True)
class Step:
    """One line: ``name relation form`` in a unit, with its reason.

    ``:=`` a rule says so and defines the name; ``=`` algebra, checked; ``≈`` holds under ``condition`` only and
    never enters an exact answer. ``by`` are the fields of the conventions whose choice made the form what it is.
    """

    name: str
    form: Form
    unit: Unit
    reason: Reason
    relation: Relation = ":="
    condition: str = ""
    by: tuple[str, ...] = field(default=(), compare=False, repr=False)

    def __repr__(self) -> str:
        unit = "" if self.unit == ONE else f" {self.unit}"
        said = shorten(f"{self.name} {self.relation} {plain(self.form)}{unit}", 200, placeholder=" ...")
        return f"<Step {said} ({self.reason.rule})>"


Comparison = Literal["<=", ">=", "=", ">"]
RELATIONS: tuple[Comparison, ...] = ("<=", ">=", "=")
_COMPARED = {"<=": operator.le, ">=": operator.ge, "=": operator.eq, ">": operator.gt}


@dataclass(frozen=True)
class Condition:
    """A condition on the symbols under which a closed form is right: two forms with ``<=``, ``>=``, ``>`` or ``=``.

    ``refusal`` says what is so where it does not hold, ``remedy`` what would help there.

    >>> print(Condition(forms.Sym("m"), ">=", forms.product(forms.num(2), forms.Sym("p"))))
    m >= 2·p
    """

    left: Form
    relation: Comparison
    right: Form
    refusal: str = ""
    remedy: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The symbols in it."""
        return forms.names(forms.Total((self.left, self.right)))

    def holds(self, values: Mapping[str, Fraction]) -> bool:
        """Whether it holds for numbers; all names in it need one."""
        return bool(_COMPARED[self.relation](*(forms.evaluate(side, values) for side in (self.left, self.right))))

    @property
    def told(self) -> str:
        """The condition in a sentence, its sides as maths.

        >>> Condition(forms.Sym("m"), ">=", forms.product(forms.num(2), forms.Sym("p"))).told
        '`m` ≥ `2·p`'
        """
        left, right = (f"`{plain(side)}`" if forms.names(side) else plain(side) for side in (self.left, self.right))
        return f"{left} {self.relation.replace('<=', '≤').replace('>=', '≥')} {right}"

    def __str__(self) -> str:
        return f"{plain(self.left)} {self.relation} {plain(self.right)}"


@dataclass(frozen=True)
class Exhibit:
    """A small table beside the steps, such as the list of collectives; cells are text or forms."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str | Form | Quantity, ...], ...]
    # Where a page has it: before the algebra (why there is anything to count), after it, or only where all is shown.
    place: Literal["before", "after", "full"] = "after"
    laid_out: bool = False  # its rows are the steps as courses print them: a page shows it instead of the steps
    # Sets a table that a source prints beside it, where that can be done.
    beside: Callable[[Table], Exhibit] | None = field(default=None, compare=False, repr=False)


class Derived(Protocol):
    """The parts of a derivation that are written down."""

    @property
    def title(self) -> str: ...
    @property
    def steps(self) -> tuple[Step, ...]: ...
    @property
    def answer(self) -> Step: ...
    @property
    def unit(self) -> Unit: ...
    @property
    def conventions(self) -> tuple[Convention, ...]: ...
    @property
    def worth(self) -> Mapping[str, Expr]: ...
    @property
    def is_laid_out(self) -> bool: ...
    @property
    def exhibits(self) -> tuple[Exhibit, ...]: ...
    @property
    def notes(self) -> tuple[str, ...]: ...
    @property
    def lead(self) -> tuple[str, ...]: ...
    @property
    def notation(self) -> Notation: ...
    def whole(self, value: Fraction, /) -> Fraction: ...
    def values(self, several: Mapping[str, object] | None = None, /, **values: object) -> dict[str, Fraction]: ...
    def at(self, several: Mapping[str, object] | None = None, /, **values: object) -> Quantity: ...
