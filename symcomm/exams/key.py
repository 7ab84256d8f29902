"""A key: a question with its derivation, the same under other conventions, and under every mistake.

Residues of all known answers at random points are kept in tables, and most answers are decided by one look.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from fractions import Fraction
from typing import TYPE_CHECKING

from symcomm.core import form as forms
from symcomm.core.accounting import CONVENTIONS, Accounting
from symcomm.core.answers.formula import as_spellings
from symcomm.core.collectives import algorithms
from symcomm.core.derivation import Derivation
from symcomm.core.errors import DocumentError, nearest
from symcomm.core.records import dataclass, replace
from symcomm.core.units import BYTE, ONE, Quantity, Unit
from symcomm.exams.asking import ModelQuestion
from symcomm.exams.candidates import AnswerKey, Candidates, Choices, Wrong
from symcomm.exams.changes import ChangedAnswer, Prefixes, same_names
from symcomm.exams.decision import decide
from symcomm.exams.mistakes import BY_NAME, MISTAKES, Misconception, own_mistake
from symcomm.exams.problems.answer_keys import AnswerKeys
from symcomm.exams.problems.deriving import accounting_of, no_model
from symcomm.exams.problems.problem import Ask, Problem
from symcomm.exams.problems.solve import answer_of, known_of, load_model

if TYPE_CHECKING:
    from symcomm.core.model import Model
    from symcomm.exams.verdict import Verdict

_OPEN = ("unit: GiB", "GB was taken for 2^30 bytes, or GiB for 10^9.")
_ELEMENTS = ("word", "element")


@dataclass(frozen=True)
class Key(AnswerKey):
    """A question that is ready to check answers; made by ``key_of``, and quick for thousands of answers."""

    seen: dict[str, Verdict] = field(default_factory=dict, repr=False, compare=False)
    # Makes the key anew from these numbers, where it was made from others: they may decide what is asked only now.
    anew: Callable[[], Key] | None = field(default=None, repr=False, compare=False)
    asked: int = 0  # how often its question had been asked again when it was found to serve these numbers

    def serves(self, values: Mapping[str, Fraction], /) -> bool:
        """Whether it is the key of a paper with these numbers, too."""
        return self.candidates.serves(values)

    def at(self, values: Mapping[str, Fraction]) -> Key:
        """The same question with other given numbers; nothing is derived again."""
        given = {**dict(self.given), **values}
        for left, right in self.relations.equations:  # other numbers now imply another value
            needed = {*forms.names(right)}
            if left not in values and needed & values.keys() and needed <= given.keys():
                given.pop(left, None)
        made = self.anew
        anew = None if made is None else lambda: made().at(values)
        return replace(self, given=tuple(given.items()), seen={}, anew=anew)

    def check(self, answer: str) -> Verdict:
        """The verdict on an answer; one that was seen before is not decided again."""
        found = self.seen.get(answer)
        if found is None:
            found = decide(answer, self)
            if self.anew and self.candidates.asked > self.asked and not self.serves(dict(self.given)):
                found = decide(answer, self.anew())
            if len(self.seen) < 100_000 and len(answer) < 4_000:
                self.seen[answer] = found
        return found


def key_of(
    problem: Problem, ask: Ask, models: Mapping[str, Model] | None = None, told: Iterable[str] | None = None
) -> Key:
    """The key of one question of a problem document; ``models`` are those already loaded, by name.

    Where ``told`` names numbers, it is derived with these alone.

    Raises ``DocumentError`` for an unknown name in ``answer``, and what deriving the question raises.
    """
    model = (models or {}).get(ask.model) or (
        load_model(problem, ask.model) if ask.model else no_model(problem.notation)
    )
    block = problem.models.get(ask.model)
    notation = block.notation if block else problem.notation
    own = tuple(own_mistake(said) for said in problem.mistakes_in(ask))
    chosen = accounting_of(problem.conventions, ask.conventions)
    values = tuple((known.name, known.quantity.value) for known in known_of(problem, ask))
    earlier = {old: new for old, new, _ in ask.names if old not in (*notation.meanings, *dict(values))}
    if ask.divided_by is not None:
        question = _derived(answer_of(problem, ask, model).derivation, model, chosen, values)
        return _key(question, ask.answer, dict(notation.spellings), own, (), earlier)
    question = ModelQuestion(ask.sheet or ask.quantity, model, ask.options, chosen, values,
                      step=ask.answer.step, notation=notation,
                      told=None if told is None else frozenset(told))  # fmt: skip
    return _key(question, ask.answer, dict(notation.spellings), own, earlier=earlier)


def key_for(derivation: Derivation, **values: object) -> Key:
    """The key of a derivation alone.

    What a model derived can be asked again, under other conventions and options; of another derivation only those
    mistakes are known that rewrite its answer.
    """
    given = tuple(derivation.values(**values).items())
    if "origin" in derivation.kept:
        model, quantity, options = derivation.kept["origin"]
        question = ModelQuestion(quantity, model, tuple(options.items()), derivation.accounting, given)
        question.__dict__["open"] = derivation  # which is cached, and derived again in a changed question
        return _key(question, AnswerKeys(), dict(model.notation.spellings), ())
    model = no_model(derivation.notation)
    question = _derived(derivation, model, derivation.accounting, given)
    return _key(question, AnswerKeys(), dict(derivation.notation.spellings), (), conventions=())


def _derived(
    derivation: Derivation, model: Model, accounting: Accounting, given: tuple[tuple[str, Fraction], ...]
) -> ModelQuestion:
    """A question of which only the derivation is known, such as the ratio of two answers."""
    question = ModelQuestion("", model, (), accounting, given)
    question.__dict__["open"] = derivation
    return question


def _key(
    question: ModelQuestion, spec: AnswerKeys, spellings: dict[str, tuple[str, ...]], own: tuple[Misconception, ...],
    conventions: Choices | None = None, earlier: Mapping[str, str] | None = None,
) -> Key:  # fmt: skip
    steps = {step.name for step in question.derivation.steps}
    if spec.step and spec.step not in steps:
        raise DocumentError(f"there is no step '{spec.step[:40]}'", spec.span, nearest(spec.step, sorted(steps)))
    scale, unit = _counted(question, spec)
    chosen = conventions if conventions is not None else spec.conventions
    known = {**BY_NAME, **{mistake.name: mistake for mistake in own}}
    if spec.mistakes is None:
        mistakes = tuple(known.values()) if question.asked else tuple(m for m in MISTAKES if not m.again)
    else:
        for name in spec.mistakes:
            if name not in known:
                raise DocumentError(f"no mistake is called '{name[:40]}'", spec.span, nearest(name, [*known]))
        mistakes = tuple(known[name] for name in spec.mistakes)
    right = question.form if scale == 1 else forms.product(forms.num(scale), question.form)
    open_prefixes = spec.prefixes == "open" or (chosen is not None and (("unit", "GiB"),) in chosen)
    others = tuple(_others(question, chosen, scale, unit))
    made = Candidates(question, right, scale, unit, (), mistakes, others)
    made.conventions = made._new([*(w for _, w in others), *(_prefixes(question, unit) if open_prefixes else ())])
    if spec.ruled_out:
        ruled = [replace(w, convention=False) for _, w in _others(question, spec.ruled_out, scale, unit)]
        made.singles = (*made._new(ruled), *made.singles)
    symbols = spec.symbols or tuple(question.symbols)
    extra = dict(spec.names)
    spelled = as_spellings((name, (*spellings.get(name, ()), *extra.get(name, ()))) for name in symbols)
    short = _short(symbols, spelled)
    # A paper need not show a new name of a symbol: its usual one is still read, where nothing else is called so.
    short |= {old: new for old, new in (earlier or {}).items() if new in symbols and old not in spelled}
    given = {**dict(question.derivation.given), **dict(question.values)}  # options give numbers, too
    return Key(made, spec, tuple({**spelled, **short}.items()), tuple(given.items()), supposed=frozenset(short))


def _short(symbols: Iterable[str], spelled: Mapping[str, str]) -> dict[str, str]:
    """Letters that can only mean one symbol, of which nobody said another name: N for N_layer."""
    bases: dict[str, list[str]] = {}
    for name in symbols:
        base, _, index = name.partition("_")
        bases.setdefault(base, []).append(name if len(index) > 1 else "")
    told = {name for said, name in spelled.items() if said != name}
    return {
        base: names[0] for base, names in bases.items()
        if len(names) == 1 and names[0] and names[0] not in told and base not in spelled and base.isupper()
    }  # fmt: skip


def _counted(question: ModelQuestion, spec: AnswerKeys) -> tuple[Fraction, Unit]:
    """What the answer is multiplied by and its unit, where it counts words or elements instead of bytes."""
    unit = Quantity.parse(f"1 {spec.unit}").unit if spec.unit else question.unit
    if unit == question.unit or question.unit != BYTE or str(unit) not in _ELEMENTS:
        return Fraction(1), question.unit if question.unit != ONE else unit
    from symcomm.core.dtypes import element_bytes

    said = question.option("dtype") or question.model.dtype
    return 1 / element_bytes(said).number, unit


def _others(
    question: ModelQuestion, chosen: Choices | None, scale: Fraction, unit: Unit
) -> Iterator[tuple[ModelQuestion, Wrong]]:
    """The answers under other choices: those named, or all of the fields that touched this one."""
    if chosen is None:
        chosen = tuple(((row.field, row.name),) for row in algorithms.alternatives(question.derivation.touched))
    statements = {(row.field, row.name): row.statement for row in CONVENTIONS}
    for some in chosen:
        changed = {name: choice for name, choice in some if getattr(question.accounting, name, choice) != choice}
        other = replace(question, accounting=replace(question.accounting, **changed))
        again = question.derived(other) if changed else None
        if again is not None and not any(_cuts_one(step.form) for step in again.derivation.steps):
            form = same_names(question, again)
            form = form if scale == 1 else forms.product(forms.num(scale), form)
            names = tuple(f"{name}: {choice}" for name, choice in changed.items())
            yield again, Wrong(names, tuple(statements[pair] for pair in changed.items()), form, unit, True)


def _cuts_one(form: forms.Form) -> bool:
    """Whether one thing is cut into parts that are rounded up: rows of a weight that has one row."""
    rounded = (piece.inside for piece in forms.walk(form) if isinstance(piece, forms.Ceiling))
    return any(isinstance(inside, forms.Ratio) and not forms.names(inside.top) and forms.evaluate(inside.top, {}) == 1
               for inside in rounded)  # fmt: skip


def _prefixes(question: ModelQuestion, unit: Unit) -> tuple[Wrong, ...]:
    right = ChangedAnswer(question, question.form)
    changed = [one for turned in (False, True) for one in Prefixes(turned=turned).apply(right)]
    return tuple(Wrong((_OPEN[0],), (_OPEN[1],), one.form, unit, True, one.prefix) for one in changed)


def mistakes_of(key: Key) -> tuple[Wrong, ...]:
    """The mistakes that change the answer of a question, each with its wrong expression."""
    return key.mistakes


def check(answer: str, question: Key | Derivation, *, decimal_comma: bool | None = None, **values: object) -> Verdict:
    """The verdict on an answer to a derivation or a prepared key; ``values`` are further numbers.

    Of a derivation alone the answer itself is known, and mistakes that rewrite it; a key from a problem document
    (``key_of``) knows other conventions and all mistakes.

    >>> import symcomm as sc
    >>> d = sc.peak_rate()
    >>> check("2 f n_SM n_FMA", d).verdict, check(r"\\frac{f \\cdot n_{SM}}{2} n_{FMA}", d).verdict
    ('right', 'different')
    >>> print(check("1/(2 f n_SM n_FMA)", d))
    mistake (inverse)
    The answer, or one of its factors, is upside down: take the reciprocal.
    """
    if isinstance(question, Key):
        key = question.at(question.derivation.values(**values)) if values else question
    elif values:
        key = key_for(question, **values)
    else:
        key = question.kept.get("key") or question.kept.setdefault("key", key_for(question))
    if decimal_comma is not None and decimal_comma != key.spec.decimal_comma:
        key = replace(key, spec=replace(key.spec, decimal_comma=decimal_comma), seen={})
    return key.check(answer)
