"""The changes that mistakes make: a small vocabulary, from which the registry and a teacher's own mistakes are made.

A change takes a draft (a question and its answer so far) to the drafts that a person who makes it may end with: none
where it changes nothing. Some ask the question again (conventions, options, weights left out), the others rewrite the
answer that was derived; no formula is ever given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import field, replace
from fractions import Fraction
from functools import lru_cache, partial
from itertools import combinations
from typing import ClassVar

from symcomm.core import form as forms
from symcomm.core.collectives import algorithms
from symcomm.core.errors import SymcommError
from symcomm.core.form import Form, Num, Product, Ratio, Root, Sym, Total, num, product
from symcomm.core.libraries import Expr, sp
from symcomm.core.parallel.strategy import parse_strategy
from symcomm.core.printing.forms import plain
from symcomm.core.quantities.recipes import recipe_of
from symcomm.core.records import dataclass
from symcomm.exams.asking import ModelQuestion, worth

_BYTE = "byte"


@dataclass(frozen=True)
class ChangedAnswer:
    """A question and its answer under the changes so far; ``prefix`` is the power of 1000 that was taken for 1024."""

    question: ModelQuestion
    form: Form
    prefix: int = 0

    def put(self, form: Form) -> ChangedAnswer:
        """The same with another answer."""
        return replace(self, form=form)

    def times(self, *factors: Form) -> ChangedAnswer:
        """The answer times some factors, before it is rounded up or down."""
        return self.put(_inside(self.form, lambda form: product(*factors, form)))

    def over(self, divisor: Form) -> ChangedAnswer:
        """The answer divided by something, before it is rounded up or down."""
        return self.put(_inside(self.form, lambda form: Ratio(form, divisor)))

    def mapped(self, change: Callable[[Form], Form | None]) -> Iterator[ChangedAnswer]:
        """The answer with every piece that ``change`` knows replaced, from the outside in; none where it has none."""
        changed = _mapped(self.form, change)
        if changed != self.form:
            yield self.put(changed)


@dataclass(frozen=True)
class Change:
    """One change; ``again`` says that the question is asked again, which comes before what rewrites the answer."""

    again: ClassVar[bool] = False
    alone: bool = field(default=False, kw_only=True)  # too rare to be made together with another one

    def apply(self, draft: ChangedAnswer) -> Iterator[ChangedAnswer]:
        """The drafts that come of it."""
        raise NotImplementedError


@dataclass(frozen=True)
class Asked(Change):
    """A change of the question itself."""

    again: ClassVar[bool] = True

    def questions(self, question: ModelQuestion) -> Iterator[ModelQuestion]:
        """The changed questions."""
        raise NotImplementedError

    def apply(self, draft: ChangedAnswer) -> Iterator[ChangedAnswer]:
        """Derived again."""
        for changed in self.questions(draft.question):
            made = draft.question.derived(changed)
            if made is not None:
                yield ChangedAnswer(made, same_names(draft.question, made))


def same_names(question: ModelQuestion, again: ModelQuestion) -> Form:
    """The answer with named numbers as the first question has them: a capacity in other bytes is a multiple of it."""
    before = question.named_numbers
    now = again.named_numbers

    def one(sym: Sym) -> Form:
        if sym.name in now and sym.name in before and now[sym.name] != before[sym.name]:
            return product(num(now[sym.name] / before[sym.name]), sym)
        return sym

    return forms.substitute(again.form, one)


@dataclass(frozen=True)
class Choose(Asked):
    """Another convention; with ``only`` where another field has that choice."""

    field: str
    choice: str
    only: tuple[str, str] | None = None

    def questions(self, question: ModelQuestion) -> Iterator[ModelQuestion]:
        now = getattr(question.accounting, self.field)
        if self.only is not None and getattr(question.accounting, self.only[0]) != self.only[1]:
            return
        if now != self.choice and self.field in question.derivation.touched:  # what was not read changes nothing
            yield replace(question, accounting=replace(question.accounting, **{self.field: self.choice}))


@dataclass(frozen=True)
class OtherOption(Asked):
    """Another value of an option; ``instead`` are the values that it is taken for (none: any)."""

    name: str
    value: str
    instead: tuple[object, ...] = ()

    def questions(self, question: ModelQuestion) -> Iterator[ModelQuestion]:
        if not any(option.name == self.name for option in question.declared.options):
            return
        now = question.option(self.name)
        if now != self.value and (not self.instead or now in self.instead):
            yield question.with_option(self.name, self.value)


@dataclass(frozen=True)
class OtherRecipe(Asked):
    """Other bytes of weights, gradients and states: each part times a number, or ``fp32`` for two bytes."""

    weights: int | str = 1
    gradients: int | str = 1
    states: int | str = 1

    def questions(self, question: ModelQuestion) -> Iterator[ModelQuestion]:
        said = question.option("recipe")
        if said is None:
            return
        recipe = recipe_of(said)
        now = tuple(recipe.per_parameter(role) for role in ("weight", "gradient", "state"))
        changes = {"weights": self.weights, "gradients": self.gradients, "states": self.states}
        parts = {name: self._changed(was, change) for was, (name, change) in zip(now, changes.items(), strict=True)}
        if (*parts.values(),) != now and parts["weights"]:
            kept = ", ".join(f"{name}={value}" for name, value in parts.items() if value)
            yield question.with_option("recipe", kept)

    @staticmethod
    def _changed(now: int | Fraction, change: int | str) -> int | Fraction:
        if change == "one":
            return 1
        if change == "fp32":
            return 4 if now == 2 else now
        assert isinstance(change, int)
        return now * change


@dataclass(frozen=True)
class Without(Asked):
    """Weights that are not counted: by what they are for, or by name."""

    part: str = ""
    names: tuple[str, ...] = ()

    def questions(self, question: ModelQuestion) -> Iterator[ModelQuestion]:
        if self.names:
            known = {t.name for t in question.model.graph.weights}
            if known >= {*self.names} and not question.forgotten >= {*self.names}:
                yield replace(question, forgotten=question.forgotten | {*self.names})
            return
        for group in question.parts.get(self.part, ()):
            if not group & question.forgotten:
                yield replace(question, forgotten=question.forgotten | group)


@dataclass(frozen=True)
class KeptForgotten(Asked):
    """One of several tensors that a cache keeps, left out in all layers: keys without values."""

    def questions(self, question: ModelQuestion) -> Iterator[ModelQuestion]:
        kept = [s.name for s in question.derivation.steps if s.reason.rule == "keep"]
        alike = {name.rstrip("'"): frozenset(n for n in kept if n.rstrip("'") == name.rstrip("'")) for name in kept}
        for names in alike.values():
            if len(alike) > 1 and not names & question.forgotten:
                yield replace(question, forgotten=question.forgotten | names)


@dataclass(frozen=True)
class OtherStep(Asked):
    """A prefill of the earlier positions for a decode step behind them."""

    def questions(self, question: ModelQuestion) -> Iterator[ModelQuestion]:
        step = question.model.graph.step
        if step is not None and step.phase == "decode" and step.past != 0:
            yield replace(question, model=question.model.prefill(new=str(step.past)))


# -- rewriting the answer ---------------------------------------------------------------------------------


def _inside(form: Form, change: Callable[[Form], Form]) -> Form:
    """A change of what is rounded up or down at last, not of the rounded number."""
    return type(form)(change(form.inside)) if isinstance(form, (forms.Ceiling, forms.Floor)) else change(form)


def _mapped(form: Form, change: Callable[[Form], Form | None]) -> Form:
    found = change(form)
    return found if found is not None else form.mapped(lambda piece: _mapped(piece, change))


def _is_element_size(piece: Form) -> bool:
    powers = dict(piece.unit.powers) if isinstance(piece, Num) else {}
    return len(powers) == 2 and powers.get(_BYTE) == 1 and -1 in powers.values()


@dataclass(frozen=True)
class ElementBytes(Change):
    """Other bytes of an element or parameter, where they are ``now`` (0: whatever they are)."""

    to: int
    now: int = 0

    def apply(self, draft: ChangedAnswer) -> Iterator[ChangedAnswer]:
        def one(piece: Form) -> Form | None:
            if _is_element_size(piece) and isinstance(piece, Num) and self.now in (0, piece.number):
                return replace(piece, number=Fraction(self.to))
            return None

        if draft.question.option("recipe") is None:
            yield from draft.mapped(one)


def _factors(draft: ChangedAnswer, said: str) -> list[Form]:
    """A number, a symbol, or the symbols that play a part."""
    if said.replace("/", "").isdigit():
        return [forms.rational(Fraction(said))]
    names = (said,) if said in draft.question.symbols else draft.question.role(said)
    return [Sym(name, draft.question.symbols.get(name, True)) for name in names]


@dataclass(frozen=True)
class Multiplied(Change):
    """The answer times a number, a symbol or each symbol of a role; with ``over`` divided by it."""

    by: str
    over: bool = False

    def apply(self, draft: ChangedAnswer) -> Iterator[ChangedAnswer]:
        for factor in _factors(draft, self.by):
            yield draft.over(factor) if self.over else draft.times(factor)


@dataclass(frozen=True)
class Bits(Change):
    """Bits for bytes; ``turned`` is the other way round."""

    turned: bool = False

    def apply(self, draft: ChangedAnswer) -> Iterator[ChangedAnswer]:
        if _measures(draft.question, _BYTE):
            below = dict(draft.question.unit.powers).get(_BYTE, 1) < 0
            yield from Multiplied("8", over=below != self.turned).apply(draft)


def _measures(question: ModelQuestion, base: str) -> bool:
    """Whether a unit is in the answer, or in what it is made of."""
    units = [question.unit, *(s.unit for s in question.derivation.steps)]
    return any(base in dict(unit.powers) for unit in units)


@dataclass(frozen=True)
class BitsInSum(Change):
    """Bits for bytes in those terms of a sum that measure bytes, beside a latency say; ``turned`` is the other way."""

    turned: bool = False

    def apply(self, draft: ChangedAnswer) -> Iterator[ChangedAnswer]:
        unit = draft.question.derivation.symbol_unit

        def measures(term: Form) -> bool:
            units = (p.unit if isinstance(p, Num) else unit(p.name) for p in forms.walk(term) if type(p) in (Num, Sym))  # type: ignore[attr-defined]
            return any(_BYTE in dict(one.powers) for one in units)

        def one(piece: Form) -> Form | None:
            if not isinstance(piece, Total) or len({*map(measures, piece.terms)}) < 2:
                return None
            times = num(Fraction(1, 8) if self.turned else 8)
            return Total(tuple(product(times, term) if measures(term) else term for term in piece.terms))

        yield from draft.mapped(one)


@dataclass(frozen=True)
class OnePhase(Change):
    """One of two phases of a ring: k - 1 messages where there are 2(k - 1)."""

    def apply(self, draft: ChangedAnswer) -> Iterator[ChangedAnswer]:
        ranks = {*draft.question.role("ranks")}

        def one(piece: Form) -> Form | None:
            factors = piece.factors if isinstance(piece, Product) else ()
            less = any(OneLess._less(f) and ranks & {*forms.names(f)} for f in factors)
            if not less or num(2) not in factors:
                return None
            at = factors.index(num(2))
            return product(*factors[:at], *factors[at + 1 :])

        yield from draft.mapped(one)


@dataclass(frozen=True)
class OtherStage(Asked):
    """Another stage of ZeRO."""

    def questions(self, question: ModelQuestion) -> Iterator[ModelQuestion]:
        now = question.strategy
        sizes = list(now.sizes.values()) if now is not None else []
        if now is None or len(sizes) != 1:
            return
        stages = [parse_strategy(f"zero-{stage}({plain(sizes[0])})") for stage in (1, 2, 3)]
        if any(stage.rules == now.rules for stage in stages):
            yield from (question.with_option("strategy", one) for one in stages if one.rules != now.rules)


@dataclass(frozen=True)
class PerRank(Change):
    """Divided by the ranks, or not: ``forgotten`` leaves a division out, ``turned`` multiplies instead."""

    forgotten: bool = False
    turned: bool = False

    def apply(self, draft: ChangedAnswer) -> Iterator[ChangedAnswer]:
        ranks = [n for n in draft.question.role("ranks") if n in {*draft.question.symbols}]
        divided = [n for n in ranks if n in _divisors(draft.form)]
        syms = {n: Sym(n) for n in ranks}
        if self.forgotten:
            for size in range(1, len(divided) + 1):
                for some in combinations(divided, size):
                    yield draft.times(*(syms[n] for n in some))
                    yield draft.put(_undivided(draft.form, {syms[n] for n in some}))
        elif self.turned:
            for name in ranks:
                yield draft.times(*[syms[name]] * (2 if name in divided else 1))
        else:
            yield from (draft.over(syms[name]) for name in ranks if name not in divided)


def _undivided(form: Form, by: Set[Form]) -> Form:
    """A form without the division by some symbols where it stands: in one term of a sum alone."""

    def left_out(f: Form) -> Form | None:
        if not isinstance(f, Ratio):
            return None
        below = f.bottom.factors if isinstance(f.bottom, Product) else (f.bottom,)
        kept = [_undivided(one, by) for one in below if one not in by]
        return Ratio(_undivided(f.top, by), product(*kept)) if kept else _undivided(f.top, by)

    return _mapped(form, left_out)


@lru_cache(4096)  # several mistakes ask it of the same answer
def _divisors(form: Form) -> frozenset[str]:
    """The symbols that a form is divided by."""
    inner = form.inside if isinstance(form, (forms.Ceiling, forms.Floor)) else form
    bottom = sp.fraction(sp.cancel(sp.together(worth(inner))))[1]
    bases = (f.as_base_exp()[0] for f in sp.Mul.make_args(sp.factor_terms(bottom)))
    return frozenset(base.name for base in bases if base.is_Symbol)


@dataclass(frozen=True)
class Put(Change):
    """A number or another symbol for a symbol; with ``terms`` in each term of the answer alone as well."""

    what: str
    by: str
    terms: bool = False

    def apply(self, draft: ChangedAnswer) -> Iterator[ChangedAnswer]:
        for one in _factors(draft, self.what):
            for other in _factors(draft, self.by):
                if not isinstance(one, Sym) or one == other or one.name not in forms.names(draft.form):
                    continue
                change = {one.name: other}
                yield draft.put(_put(draft.form, change))
                if self.terms:
                    yield from self._in_terms(draft, change)

    def _in_terms(self, draft: ChangedAnswer, change: Mapping[str, Form]) -> Iterator[ChangedAnswer]:
        terms = _terms(draft.form)
        (name,) = change
        touched = [n for n, t in enumerate(terms) if name in forms.names(t)]
        if len(terms) > 1 and len(touched) <= 6:
            for n in touched:
                yield draft.put(Total(tuple(_put(t, change) if m == n else t for m, t in enumerate(terms))))


def _put(form: Form, change: Mapping[str, Form]) -> Form:
    return forms.substitute(form, lambda s: change.get(s.name, s))


@lru_cache(4096)
def _terms(form: Form) -> tuple[Form, ...]:
    """The terms of an answer that is a sum once it is multiplied out; itself where it is none."""
    if any(isinstance(piece, (forms.Ceiling, forms.Floor, Root)) for piece in forms.walk(form)):
        return (form,)
    expanded = sp.expand(worth(form))
    return tuple(forms.from_expr(t) for t in sp.Add.make_args(expanded))


@dataclass(frozen=True)
class LowerDegree(Change):
    """A square of a symbol taken for its first power, or the terms with the square left out."""

    of: str

    def apply(self, draft: ChangedAnswer) -> Iterator[ChangedAnswer]:
        for name in (f.name for f in _factors(draft, self.of) if isinstance(f, Sym)):
            terms = [worth(t) for t in _terms(draft.form)]
            degrees = [self._degree(t, name) for t in terms]
            low = min(degrees)
            high = [n for n, d in enumerate(degrees) if d > max(low, 1)] or [n for n, d in enumerate(degrees) if d > 1]
            if not high:
                continue
            x = next(s for s in terms[high[0]].free_symbols if s.name == name)
            lowered = [t / x if n in high else t for n, t in enumerate(terms)]
            yield draft.put(forms.from_expr(sp.Add(*lowered)))
            if len(high) < len(terms):
                yield draft.put(forms.from_expr(sp.Add(*(t for n, t in enumerate(terms) if n not in high))))

    @staticmethod
    def _degree(term: Expr, name: str) -> int:
        powers = {b.name: p for b, p in term.as_powers_dict().items() if b.is_Symbol}
        found = powers.get(name, 0)
        return int(found) if getattr(found, "is_Integer", True) else 0


@dataclass(frozen=True)
class OneLess(Change):
    """n - 1 for n where things stand in a row or in a group, and with ``less`` n for n - 1 (all of them, or one)."""

    rows: tuple[str, ...] = ("layers", "ranks", "stages")
    less: bool = True

    def apply(self, draft: ChangedAnswer) -> Iterator[ChangedAnswer]:
        places = [*dict.fromkeys(p for p in forms.walk(draft.form) if self._less(p))] if self.less else []
        for some in [places, *([one] for one in places if len(places) > 1)]:
            yield from draft.mapped(partial(self._more, some))
        for role in self.rows:
            for sym in _factors(draft, role):
                if isinstance(sym, Sym) and sym.name in forms.names(draft.form):
                    yield draft.put(_put(draft.form, {sym.name: Total((sym, num(-1)))}))

    @staticmethod
    def _less(piece: Form) -> bool:
        return isinstance(piece, Total) and any(isinstance(t, Num) and t.number == -1 for t in piece.terms)

    @staticmethod
    def _more(places: Sequence[Form], piece: Form) -> Form | None:
        if piece not in places or not isinstance(piece, Total):
            return None
        return forms.total(*(t for t in piece.terms if not (isinstance(t, Num) and t.number == -1)))


@dataclass(frozen=True)
class Inverted(Change):
    """One over the answer, or over a share (n - 1)/n in it."""

    def apply(self, draft: ChangedAnswer) -> Iterator[ChangedAnswer]:
        yield draft.put(_inside(draft.form, lambda form: Ratio(num(1), form)))
        whole = [n for n, is_whole in draft.question.symbols.items() if is_whole]
        for name in whole:
            less = Total((Sym(name), num(-1)))
            if less in [*forms.walk(draft.form)] and name in _divisors(draft.form):
                turned = Ratio(Product((Sym(name), Sym(name))), Product((less, less)))
                yield draft.put(product(turned, draft.form))


@dataclass(frozen=True)
class Unrooted(Change):
    """A square root that is forgotten."""

    def apply(self, draft: ChangedAnswer) -> Iterator[ChangedAnswer]:
        gathered = sp.powsimp(worth(draft.form), force=True)
        if not any(abs(p.exp) == sp.Rational(1, 2) for p in gathered.atoms(sp.Pow)):
            return
        changed = gathered.replace(lambda e: e.is_Pow and abs(e.exp) == sp.Rational(1, 2), lambda e: e**2)
        yield draft.put(forms.from_expr(changed))


@dataclass(frozen=True)
class RingShare(Change):
    """Times what one rank sends of a tensor by a ring: where the whole is asked for, or a second time."""

    collective: str = "all-reduce"
    twice: bool = False

    def apply(self, draft: ChangedAnswer) -> Iterator[ChangedAnswer]:
        question = draft.question
        touched = question.derivation.touched
        payload = "communication" in touched and question.accounting.communication == "payload"
        if payload == self.twice or not {"communication", "algorithm"} & {*touched}:
            return
        for name in question.role("ranks"):
            factor = algorithms.share(self.collective, "sent_per_rank", "ring", Sym(name), num(1))
            yield draft.put(product(factor, draft.form))


@dataclass(frozen=True)
class Prefixes(Change):
    """GB said for GiB, or (``turned``) GiB for GB, for each size of prefix."""

    sizes: tuple[int, ...] = (1, 2, 3, 4)
    turned: bool = False

    def apply(self, draft: ChangedAnswer) -> Iterator[ChangedAnswer]:
        if dict(draft.question.unit.powers) != {_BYTE: 1}:
            return
        for power in self.sizes:
            ratio = Fraction(10**3, 2**10) ** power
            yield replace(draft.put(product(num(1 / ratio if self.turned else ratio), draft.form)), prefix=power)


@dataclass(frozen=True)
class Drop(Change):
    """A symbol's terms left out: a latency, an overhead; with ``once`` counted once in all, not for each message."""

    what: str
    once: bool = False

    def apply(self, draft: ChangedAnswer) -> Iterator[ChangedAnswer]:
        for sym in _factors(draft, self.what):
            if not isinstance(sym, Sym) or sym.name not in forms.names(draft.form):
                continue
            try:
                whole, left = worth(draft.form), worth(_put(draft.form, {sym.name: num(0)}))
                one = next((s for s in whole.free_symbols if s.name == sym.name), None)
                if self.once and (one is None or whole.diff(one).has(one)):  # messages add different amounts
                    continue
                made = forms.from_expr(left + one if self.once else left)
            except (SymcommError, TypeError):
                continue
            if forms.names(made):
                yield draft.put(made)
