"""The steps of a derivation that a person would write: it keeps all of its steps, the page chooses.

Collecting happens on the line that is collected, a name that is used once is put in where it is used, and what the
answer does not need is left out. Nothing is worked out here but what the steps have proved.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import field
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import islice

from symcomm.core import form as forms
from symcomm.core.derivation.steps import Derived
from symcomm.core.form import Form, Num, Power, Product, Ratio, Sym, Total
from symcomm.core.libraries import sp
from symcomm.core.printing.forms import plain, width
from symcomm.core.records import dataclass, replace

LINES = 5  # so many lines of algebra are read without effort
_WIDE = 19.0  # em: what is put in may make a line no wider
_REASON = 150  # characters of the reasons that share a line
_ROOM = 28.0  # em: a form that one line holds
_PUT_IN = 8.0  # em: a form so short is read where it is used
_TINY, _SMALL = 3.0, 5.5  # em: what is so short is put in where the line stays short
_MANY = 4  # lines that a sum adds up
_LARGE = 10**6  # a number that is no longer the product of what a reader knows


@dataclass(frozen=True)
class ChosenLine:
    """A line as a person writes it: ``name = form = form ≈ form``, with its reason.

    ``forms`` are what is worth the same, each with the relation before it; ``steps`` the numbers of the derivation's
    steps that the line stands for, and do not tell lines apart.
    """

    name: str
    forms: tuple[tuple[str, Form], ...]
    reason: str
    condition: str
    steps: tuple[int, ...] = field(compare=False)

    @property
    def last(self) -> Form:
        """The form that leads to other lines: the last exact one."""
        return next(form for relation, form in reversed(self.forms) if relation != "≈")

    @cached_property
    def names(self) -> frozenset[str]:
        """The names in its forms."""
        return frozenset(name for _, form in self.forms for name in forms.names(form))


def chosen(derivation: Derived, limit: int = LINES) -> tuple[ChosenLine, ...]:
    """The lines that lead to the answer, at most ``limit`` where names can be put in so that it is so.

    >>> from symcomm.core.accounting import Accounting
    >>> from symcomm.core.derivation import Derivation, Reason, Step
    >>> from symcomm.core.form import num, product
    >>> from symcomm.core.units import ONE
    >>> n = Step("n", product(Sym("D"), Sym("D")), ONE, Reason("size", "D by D."))
    >>> twice = Step("V", product(num(2), Sym("n")), ONE, Reason("bytes", "Two each."))
    >>> neat = Step("V", product(num(2), Power(Sym("D"), num(2))), ONE, Reason("algebra", "Collect."), "=")
    >>> from symcomm.core.printing import plain
    >>> for line in chosen(Derivation("bytes", Accounting(), (n, twice, neat))):
    ...     print(line.name, *(f"{relation} {plain(form)}" for relation, form in line.forms), "|", line.reason)
    V = 2·D·D = 2·D² | D by D. Two each.
    """
    return _chosen(_SameSteps(derivation), limit)


@dataclass(frozen=True, eq=False)
class _SameSteps:
    """A derivation as a key: the lines follow from its very steps, whatever numbers and notes a copy has with them."""

    derivation: Derived

    def __hash__(self) -> int:
        return id(self.derivation.steps)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _SameSteps) and other.derivation.steps is self.derivation.steps


@lru_cache(maxsize=512)  # the papers of a class share their derivations
def _chosen(held: _SameSteps, limit: int) -> tuple[ChosenLine, ...]:
    derivation = held.derivation
    lines = _lines(derivation)
    answer = derivation.answer.name
    order = [_physical(line, derivation) for line in _needed(lines, answer)]
    order = _put_in_trivial(_once(_put_in_trivial(_renamed(order, answer), answer), answer), answer)
    while (shorter := _shorter(order, answer, len(order) > limit)) is not None:
        order = shorter
    worth = {line.name: line.last for line in order}
    return tuple(_factored(_tidy(_written_out(line, worth)), worth) for line in order)


def _needed(lines: list[ChosenLine], answer: str) -> list[ChosenLine]:
    """The lines that lead to the answer: those it names; where it names none, the last one before it with names.

    A number that was found by search stands below the formula that was searched.
    """
    known, needed = {line.name for line in lines}, {answer}
    for at in range(len(lines) - 1, -1, -1):
        line = lines[at]
        if line.name in needed:
            used = {name for _, form in line.forms for name in forms.names(form)} & known
            needed |= used
            found = line.name == answer and isinstance(line.forms[0][1], Num)
            if not used and (found or forms.names(line.last)) and not needed & {b.name for b in lines[:at]}:
                told = (b.name for b in reversed(lines[:at]) if not found or b.names)
                needed |= {*islice(told, 1)}
    return [line for line in lines if line.name in needed]


def _lines(derivation: Derived) -> list[ChosenLine]:
    """One line for each name: its definition, and its last exact form."""
    found: dict[str, ChosenLine] = {}
    for number, step in enumerate(derivation.steps, 1):
        before = found.get(step.name)
        if before is None:
            found[step.name] = ChosenLine(step.name, (("=", step.form),), step.reason.text, step.condition, (number,))
            continue
        kept = before.forms
        if step.relation == "=" and len(kept) > 1 and kept[-1][0] == "=":
            if width(step.form) > _ROOM >= width(kept[-1][1]):
                continue  # its names say more than what they are worth
            kept = kept[:-1]  # of rewrites the last one is what goes on
        why = before.reason if step.reason.rule == "algebra" else f"{before.reason} {step.reason.text}".strip()
        condition = step.condition or before.condition
        made = (*kept, (step.relation, step.form))
        found[step.name] = replace(before, forms=made, reason=why, condition=condition, steps=(*before.steps, number))
    return list(found.values())


def _renamed(order: list[ChosenLine], answer: str) -> list[ChosenLine]:
    """Without the lines that the next one says again under another name."""
    kept: list[ChosenLine] = []
    for line in order:
        before = kept[-1] if kept else None
        if before is not None and len(line.forms) == 1 and line.last == before.last and forms.names(line.last):
            users = [one for one in order if one is not before and before.name in forms.names(one.forms[0][1])]
            if not users:
                kept[-1] = replace(line, forms=before.forms, reason=_both(before.reason, line.reason),
                                   steps=(*before.steps, *line.steps))  # fmt: skip
                continue
        kept.append(line)
    return kept


def _once(order: list[ChosenLine], answer: str) -> list[ChosenLine]:
    """Without the lines that say of another name what was said of one before."""
    while True:
        seen: dict[tuple[object, ...], ChosenLine] = {}
        for line in order:
            key = (tuple((r, _sorted(f)) for r, f in line.forms), line.condition)
            both = {line.name, seen[key].name} if key in seen else set()
            saying = (form for other in order if both <= other.names for _, form in other.forms)
            beside = any(both <= {*forms.names(form)} for form in saying)
            if both and answer not in both and not beside and forms.names(line.last):
                first = seen[key]
                same = replace(first, forms=(("=", Sym(first.name)),))
                named = replace(same, name=line.name)
                others = [other for other in order if other is not line]
                order = [_put(other, named, False) if line.name in other.names else other for other in others]
                break
            seen.setdefault(key, line)
        else:
            return order


def _uses(order: list[ChosenLine], name: str) -> list[int]:
    return [i for i, line in enumerate(order) if name in line.names]


def _put(line: ChosenLine, what: ChosenLine, reason: bool, known: Collection[str] = ()) -> ChosenLine:
    """A line with a name put in, and the reasons of both where there is room; ``known`` are the names of lines."""

    definition = what.forms[0][1]
    piece = definition if any(name in known for name in forms.names(definition)) else what.last

    def one(symbol: Sym) -> Form:
        return piece if symbol.name == what.name else symbol

    made: list[tuple[str, Form]] = []
    for relation, form in line.forms:
        new = forms.substitute(form, one)
        new = _flat(new) if _nested(new) else new
        if not made or made[-1][1] != new:
            made.append((relation, new))
    said = line.reason
    if reason and what.reason and what.reason not in said:
        said = _both(what.reason, said)
    if line.forms[0][1] == Sym(what.name):  # only another name of it
        made = [*what.forms, *((r, f) for r, f in line.forms[1:] if f != what.last)]
    return replace(line, forms=tuple(made), reason=said, steps=(*dict.fromkeys((*what.steps, *line.steps)),))


def _both(first: str, then: str) -> str:
    """Two reasons where there is room for both, else the later one; lists that begin alike are one list.

    >>> _both("Read by the forward pass: `W`.", "Read by the forward pass: `X`. All of it.")
    'Read by the forward pass: `W`, `X`. All of it.'
    """
    head = first.partition(": ")[0] + ": "
    alike = then.startswith(head) and ". " not in first
    both = f"{first[:-1]}, {then.removeprefix(head)}" if alike else f"{first} {then}".strip()
    return both if len(both) <= _REASON else then


def _put_in_trivial(order: list[ChosenLine], answer: str) -> list[ChosenLine]:
    """Without the lines that only give another name to a symbol or a product of few, where they are used once."""
    for line in list(order):
        at = next((i for i, one in enumerate(order) if one is line), -1)
        uses = [i for i in _uses(order, line.name) if i != at] if at >= 0 else []
        renamed = len(uses) == 1 and order[uses[0]].forms[0][1] == Sym(line.name)
        # Whether a line says no more than a symbol, perhaps over another one: ``P/N``.
        form = _plain(line.last)
        parts = (form.top, form.bottom) if isinstance(form, Ratio) else (form,)
        tiny = all(isinstance(part, Sym) for part in parts)
        if line.name == answer or not uses or line.condition:
            continue
        if not (tiny or (len(uses) == 1 and (len(line.forms) == 1 or renamed))):
            continue
        if any(_parts(order[use], {one.name for one in order}) for use in uses):
            continue
        if tiny or renamed or isinstance(line.last, Sym) or _factors(line.last):
            for use in uses:
                order[use] = _put(order[use], line, True, {one.name for one in order})
            order = [one for i, one in enumerate(order) if i != at]
    return order


def _factors(form: Form) -> bool:
    """Whether a form is a product of symbols that needs no line of its own."""
    factors = form.factors if isinstance(form, Product) else ()
    few = all(isinstance(f, (Sym, Num)) or (isinstance(f, Power) and isinstance(f.exponent, Num)) for f in factors)
    return 0 < len(factors) <= 4 and few and bool(forms.names(form))


def _shorter(order: list[ChosenLine], answer: str, many: bool) -> list[ChosenLine] | None:
    """One line fewer: the first name that makes no line too wide is put in; None where there is none.

    Where there are not too ``many`` lines, only what is small is put in.
    """
    known = {line.name for line in order}
    for at, line in enumerate(order):
        uses = [i for i in _uses(order, line.name) if i != at]
        number = isinstance(line.last, Num)
        if line.name == answer or len(uses) != 1 or line.condition or number or any(r == "≈" for r, _ in line.forms):
            continue
        user = order[uses[0]]
        if _parts(user, known) or _solved(user):
            continue
        short = many or (width(line.last) <= _TINY and not isinstance(user.forms[0][1], Ratio))
        if short and width(_put(user, line, False, known).forms[0][1]) <= (_WIDE if many else _SMALL):
            made = [_put(user, line, True, known) if one is user else one for one in order]
            return [*made[:at], *made[at + 1 :]]
    return None


def _parts(line: ChosenLine, known: Collection[str]) -> bool:
    """Whether a line adds up many lines, which are better read as a list than as one sum."""
    form = line.forms[0][1]
    return isinstance(form, Total) and sum(isinstance(t, Sym) and t.name in known for t in form.terms) >= _MANY


def _solved(line: ChosenLine) -> bool:
    """Whether a line divides by a sum: an equation that was solved, which is read by the names in it."""
    form = line.forms[0][1]
    return isinstance(form, Ratio) and isinstance(form.bottom, Total)


def _flat(form: Form) -> Form:
    """A form without fractions within fractions and products of fractions."""
    form = form.mapped(_flat)
    if isinstance(form, Product) and any(isinstance(f, Ratio) for f in form.factors):
        top = forms.product(*(f.top if isinstance(f, Ratio) else f for f in form.factors))
        return Ratio(top, forms.product(*(f.bottom for f in form.factors if isinstance(f, Ratio))))
    if isinstance(form, Ratio):
        top, bottom = form.top, form.bottom
        above, below = (top.top, top.bottom) if isinstance(top, Ratio) else (top, forms.num(1))
        over, under = (bottom.top, bottom.bottom) if isinstance(bottom, Ratio) else (bottom, forms.num(1))
        return Ratio(forms.product(above, under), forms.product(over, below))
    return form


def _nested(form: Form) -> bool:
    """Whether a fraction stands within a fraction, which nobody likes to read."""

    def fraction(piece: Form) -> bool:
        return isinstance(piece, Ratio) and not isinstance(piece.top, Num)

    tops = (p for p in forms.walk(form) if isinstance(p, Ratio))
    return any(isinstance(inner, Ratio) for r in tops for part in r.parts for inner in forms.walk(part)) or any(
        fraction(f) for p in forms.walk(form) if isinstance(p, Product) for f in p.factors
    )


def _written_out(line: ChosenLine, worth: dict[str, Form]) -> ChosenLine:
    """A line whose definition has short forms in the place of the names before it: ``N · 12 D² · 2``, not ``N n · 2``.

    Where that is the last form already, nothing is said twice.
    """

    def one(symbol: Sym) -> Form:
        form = worth.get(symbol.name)
        short = form is not None and width(form) <= _PUT_IN and not _nested(form) and not isinstance(form, Num)
        return form if short and form is not None and symbol.name != line.name else symbol

    (relation, first), *rest = line.forms
    if len(line.forms) < 2 or isinstance(first, (Ratio, Sym)):
        return line
    new = forms.substitute(first, one)
    new = _flat(new) if _nested(new) else new
    return line if width(new) > _WIDE else replace(line, forms=((relation, new), *rest))


def _tidy(line: ChosenLine) -> ChosenLine:
    """A line without a form that only orders the factors of the one before it, and without what nobody recognises.

    The last is a fraction that was divided by a large number: bytes over a capacity.
    """
    (relation, first), *rest = ((relation, _plain(form)) for relation, form in line.forms)
    if rest and _cancels(first):
        (relation, first), *rest = rest
    kept = [(relation, first)]
    for relation, form in rest:
        if _alike(form, kept[-1][1]) and relation == "=":
            kept[-1] = (kept[-1][0], form)
        elif relation != "=" or not _large(form) - _large(kept[-1][1]) or not forms.names(form):
            kept.append((relation, form))
    return replace(line, forms=tuple(kept))


def _cancels(form: Form) -> bool:
    """Whether a symbol stands above and below in one fraction."""

    def factors(side: Form) -> set[Form]:
        return {f for f in (side.factors if isinstance(side, Product) else (side,)) if isinstance(f, Sym)}

    return isinstance(form, Ratio) and bool(factors(form.top) & factors(form.bottom))


def _plain(form: Form) -> Form:
    """A form without factors of one."""
    form = form.mapped(_plain)
    if isinstance(form, Total):  # four of one size are four times that size
        counted = {term: form.terms.count(term) for term in form.terms}
        many = [forms.product(forms.num(n), term) if n > 1 else term for term, n in counted.items()]
        return many[0] if len(many) == 1 else Total(tuple(many))
    return forms.product(*form.factors) if isinstance(form, Product) else form


def _large(form: Form) -> set[Fraction]:
    return {p.number for p in forms.walk(form) if isinstance(p, Num) and abs(p.number) >= _LARGE}


def _alike(a: Form, b: Form) -> bool:
    return _sorted(a) == _sorted(b) or plain(a) == plain(b)


def _sorted(form: Form) -> tuple[str, ...]:
    """The factors or terms of a form, without units, in an order of their own."""
    if isinstance(form, Product):
        return ("·", *sorted(piece for factor in form.factors for piece in _sorted(factor) if piece != "·"))
    if isinstance(form, Total):
        return ("+", *sorted(" ".join(_sorted(term)) for term in form.terms))
    if isinstance(form, Ratio):
        return ("·", f"{' '.join(_sorted(form.top))} / {' '.join(_sorted(form.bottom))}")
    if isinstance(form, Num):
        return ("·", repr(form.number)) if form.number != 1 else ("·",)
    return ("·", repr(forms.substitute(form, lambda s: Sym(s.name))))


def _factored(line: ChosenLine, worth: dict[str, Form]) -> ChosenLine:
    """A line whose last form was multiplied out as what its definition says, where that is shorter: ``2 (k - 1) a``."""
    first, last = line.forms[0][1], line.last
    if len(line.forms) < 2 or not isinstance(last, Total):
        return line

    def one(symbol: Sym) -> Form:
        return (
            forms.substitute(worth[symbol.name], one) if symbol.name in worth and symbol.name != line.name else symbol
        )

    told = _plain(forms.substitute(first, one))
    told = _flat(told) if _nested(told) else told
    if width(told) >= width(last) or len(told.terms if isinstance(told, Total) else ()) < 2:
        return line
    return replace(line, forms=tuple((r, told if f == last else f) for r, f in line.forms))


def _physical(line: ChosenLine, derivation: Derived) -> ChosenLine:
    """A sum that was brought over one denominator, as the sum of its parts: ``4 P + 12 P/N``, not ``4 P (N + 3)/N``."""
    first, last = line.forms[0][1], line.last
    if len(line.forms) < 2 or not (isinstance(first, Total) and _gathered(last)):
        return line
    worth = {name: expr for name, expr in derivation.worth.items() if name != line.name}
    value = forms.value(first, worth)
    split = sp.Add(*(sp.expand(forms.value(term, worth)) for term in first.terms))
    terms = sp.Add.make_args(split)
    if not 1 < len(terms) <= 4 or sp.expand(value) != sp.expand(split):
        return line
    told = forms.Total(
        tuple(forms.from_expr(term) for term in sorted(terms, key=lambda t: len(sp.fraction(t)[1].args)))
    )
    whole = tuple(t for t in told.terms if not isinstance(t, Ratio))
    told = Total((*whole, *(t for t in told.terms if isinstance(t, Ratio))))
    return replace(line, forms=tuple((r, told if f == last else f) for r, f in line.forms))


def _gathered(form: Form) -> bool:
    """Whether a sum stands in a fraction's top."""
    return any(isinstance(p, Ratio) and any(isinstance(q, Total) for q in forms.walk(p.top)) for p in forms.walk(form))
