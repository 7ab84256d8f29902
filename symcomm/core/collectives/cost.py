"""The cost of a collective under an algorithm: phases of rounds, and what each rank sends, receives and adds up.

An algorithm's record writes its phases for a ``Case``: a payload, a number of ranks, and a rule that cuts the payload
into equal chunks. The same record so gives the share of the payload that is sent (``share``), the steps of a time
(``collective_time``) and the columns of a sweep; only the case differs.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from symcomm.core.form import (
    BinaryOnes,
    Ceiling,
    Floor,
    Form,
    Logarithm,
    Num,
    Power,
    Product,
    Ratio,
    Sym,
    Total,
    evaluate,
    names,
    num,
    product,
)  # fmt: skip
from symcomm.core.records import dataclass

ZERO, ONE, TWO = num(0), num(1), num(2)


def times(*factors: Form) -> Form:
    """A product with one fraction bar; a factor that is above and below the bar cancels.

    >>> k = Sym("k")
    >>> times(TWO, minus(k, 1), Ratio(ONE, k)) == Ratio(Product((TWO, minus(k, 1))), k)
    True
    >>> times(Sym("q"), Ratio(ONE, Sym("q")))
    Num(number=Fraction(1, 1), unit=Unit(powers=()))
    """
    above: list[Form] = []
    below: list[Form] = []

    def take(form: Form, top: list[Form], bottom: list[Form]) -> None:
        if isinstance(form, Product):
            for part in form.factors:
                take(part, top, bottom)
        elif isinstance(form, Ratio):
            take(form.top, top, bottom)
            take(form.bottom, bottom, top)
        elif isinstance(form, Power) and form.exponent == TWO:
            top += [form.base, form.base]
        elif form != ONE:
            top.append(form)

    for factor in factors:
        take(factor, above, below)
    if ZERO in above:
        return ZERO
    for form in list(below):
        if form in above:
            above.remove(form)
            below.remove(form)
    top = product(*_squares(above)) if above else ONE
    return Ratio(top, product(*_squares(below))) if below else top


def _squares(factors: list[Form]) -> list[Form]:
    counts = {form: factors.count(form) for form in factors}
    return [
        part
        for form, count in counts.items()
        for part in ([Power(form, num(count))] if count > 1 and not isinstance(form, Num) else [form] * count)
    ]


def plus(*terms: Form) -> Form:
    """A sum without zeros; equal terms are gathered, numbers are added.

    >>> k = Sym("k")
    >>> plus(Ratio(ONE, k), ZERO, Ratio(ONE, k)) == Ratio(TWO, k)
    True
    """
    counts: dict[Form, int] = {}
    number = Fraction(0)
    for term in terms:
        # A sum that comes once is taken apart; one that comes twice is written as 2 (k - 1).
        alone = isinstance(term, Total) and terms.count(term) == 1
        for t in term.terms if alone and isinstance(term, Total) else (term,):
            if isinstance(t, Num) or (isinstance(t, Product) and all(isinstance(f, Num) for f in t.factors)):
                number += evaluate(t, {})
            else:
                counts[t] = counts.get(t, 0) + 1
    kept = [times(num(count), t) if count > 1 else t for t, count in counts.items()]
    kept += [num(number)] if number or not kept else []
    return kept[0] if len(kept) == 1 else Total(tuple(kept))


def minus(form: Form, less: int) -> Form:
    """A form less a whole number, written as that: ``8 - 1`` says more than 7."""
    return Total((form, num(-less)))


def log_up(k: Form) -> Form:
    """The rounds in which something that doubles reaches k: the logarithm to base 2, rounded up."""
    return _settled(Ceiling(Logarithm(k, 2)), k)


def log_down(k: Form) -> Form:
    """The logarithm to base 2, rounded down."""
    return _settled(Floor(Logarithm(k, 2)), k)


def power_of_two(exponent: Form) -> Form:
    """Two to a power."""
    return _settled(Power(TWO, exponent), exponent)


def binary_ones(k: Form) -> Form:
    """The ones in the binary digits of 0, 1, ..., k - 1 together: k/2 log2 k for powers of two.

    >>> binary_ones(num(6)) == num(7)
    True
    """
    return _settled(BinaryOnes(k), k)


def _settled(form: Form, on: Form) -> Form:
    return form if names(on) else Num(evaluate(form, {}))


_CHUNKS, _NODE = Sym("q"), Sym("g")


@dataclass(frozen=True)
class Case:
    """The payload ``n`` that an algorithm moves among ``k`` ranks, and how it is cut."""

    n: Form
    k: Form
    # One of so many equal chunks of something; a name of its own for a form.
    split: Callable[[Form, Form], Form] = lambda of, parts: times(of, Ratio(ONE, parts))
    let: Callable[[str, Form, str], Form] = lambda name, form, text: form
    chunks: Form = _CHUNKS  # in a pipeline
    nodes: tuple[Form, ...] = (_NODE,)  # sizes of the inner levels: ranks of a node, ranks along the first axes
    directions: int = 1  # how many ways a ring runs at once
    even: bool = False  # the number of ranks is even, so that half of them is a whole number
    at_once: bool = False  # all axes of a torus are used at once


@dataclass(frozen=True)
class Phase:
    """Rounds of one kind.

    A round lasts as long as the most bytes that one rank sends, or receives, through one port in it.
    """

    what: str
    rounds: Form
    path: Form  # these most bytes, summed over the rounds
    reduced: Form = ZERO  # the same sum for bytes that are added to others
    link: str = ""  # the name of the links, where there are several kinds


@dataclass(frozen=True)
class Exchange:
    """One collective under one algorithm: its phases in order, and the bytes counted by rank.

    Unless said otherwise all ranks are alike.
    """

    phases: tuple[Phase, ...]
    sent: Form  # of the rank that sends most, as the next two
    received: Form
    moved: Form  # sent and received together
    total: Form  # of all ranks

    @property
    def told(self) -> str:
        """How it goes, as sentences."""
        return " ".join(dict.fromkeys(p.what for p in self.phases))

    @property
    def rounds(self) -> Form:
        """The rounds of all phases."""
        return plus(*(p.rounds for p in self.phases))

    @property
    def path(self) -> Form:
        """The bytes that follow one another on the critical path."""
        return plus(*(p.path for p in self.phases))

    @property
    def reduced(self) -> Form:
        """The bytes that are added up on the critical path."""
        return plus(*(p.reduced for p in self.phases))


def alike(case: Case, *phases: Phase, sent: Form | None = None) -> Exchange:
    """An exchange in which every rank sends, and receives, the same bytes."""
    sent = plus(*(p.path for p in phases)) if sent is None else sent
    return Exchange(phases, sent, sent, product(TWO, sent), product(case.k, sent))


def after(*exchanges: Exchange) -> Exchange:
    """One exchange after another, where the rank that has most is the same in each or all are alike."""
    return Exchange(
        tuple(p for e in exchanges for p in e.phases),
        plus(*(e.sent for e in exchanges)),
        plus(*(e.received for e in exchanges)),
        plus(*(e.moved for e in exchanges)),
        plus(*(e.total for e in exchanges)),
    )
