"""The answers and keys of many papers of one document: each is derived with as few numbers as it needs, and shared.

Whatever is derived serves some papers (``Derivation.serves``): a formula all at whose numbers its conditions hold, what
was derived with some numbers those with the same ones, and others where it says so itself. A paper gets what serves its
numbers; where nothing does, more is derived: with no number known, with those of layers and stages, with one that
decides, at last with all. The number and the pages of what is shared are compared with those of the first papers alone.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from contextlib import suppress
from dataclasses import field
from fractions import Fraction
from functools import cached_property
from hashlib import sha256
from typing import Any, Generic, Protocol, TypeVar

from symcomm.core.derivation import Derivation
from symcomm.core.errors import SymcommError
from symcomm.core.form import names
from symcomm.core.model import Model
from symcomm.core.parallel.strategy import Strategy
from symcomm.core.records import ByIdentity, dataclass, replace
from symcomm.core.units import Quantity
from symcomm.documents.render.document import Answer
from symcomm.exams.asking import serves
from symcomm.exams.key import Key, key_of
from symcomm.exams.problems.answer_keys import AnswerKeys
from symcomm.exams.problems.answered import options_of
from symcomm.exams.problems.deriving import accounting_of, derive, no_model
from symcomm.exams.problems.keys import Known
from symcomm.exams.problems.problem import Ask, ModelBlock, Problem
from symcomm.exams.problems.solve import answer_of, known_of, load_block, used
from symcomm.exams.remembered import Remembered

_AGREED = 3  # papers whose own numbers and pages are compared with what is shared before that is trusted
_LOADED = 100  # blocks of the latest papers whose models are kept with their numbers
_READ = 2_000  # questions of the latest papers with what is known to each
_LATEST = 50  # derivations of a question that serve a part of the papers
Values = Mapping[str, Fraction]


class _Serves(Protocol):
    def serves(self, values: Values, /) -> bool: ...


Made = TypeVar("Made", bound=_Serves)


@dataclass
class _Shared(Generic[Made]):
    """All that papers share of a question: ``bases`` are names of numbers to make it with; the first is in use."""

    bases: list[tuple[str, ...]]
    made: deque[Made] = field(default_factory=lambda: deque(maxlen=_LATEST))
    tried: deque[Values] = field(default_factory=lambda: deque(maxlen=_LATEST))
    agreed: bool = False  # of what has symbols for sizes: whether a paper's own is the same

    def at(self, values: Values, make: Callable[[Values], Made | None]) -> Made | None:
        """The one that serves a paper with these numbers, or is made now; None where only the paper's own will do."""
        found = next((one for one in self.made if one.serves(values)), None)
        while found is None and self.bases and (told := {n: values[n] for n in self.bases[0]}) not in self.tried:
            one = make(told)
            if one is not None and one.serves(values):
                self.made.append(found := one)
            elif self.made:
                self.tried.append(told)
            else:
                self.leave_basis()
        return found

    def leave_basis(self) -> None:
        """Forgets what was made with the numbers of the basis in use: others decide, too."""
        self.made.clear()
        self.tried.clear()
        del self.bases[0]


@dataclass
class _Formula:
    """An answer of many papers, how often it was right, and whether its pages were always the same, step by step.

    ``told`` are the numbers that it was derived with; ``whole`` says that those of a paper are enough for a number.
    """

    domain: Derivation
    told: Values
    agreed: int = 0
    same_pages: bool = True
    whole: bool = True

    def serves(self, values: Values, /) -> bool:
        """Whether it answers a paper with these numbers."""
        return serves(self.domain, self.told, values)

    @cached_property
    def derivation(self) -> Derivation:
        """The derivation without the numbers of the paper that it was made for."""
        told = self.domain.relations.complete(self.told)
        return replace(self.domain, given=tuple(one for one in self.domain.given if one[0] not in told))

    def agrees(self, own: Answer, values: Values) -> bool:
        """Whether a paper's own answer is the same: its number, or its formula; whether its pages are is remembered."""
        a, b = self.derivation, own.derivation
        alike = (a.steps, a.notes, a.exhibits, a.title) == (b.steps, b.notes, b.exhibits, b.title)
        self.whole, self.same_pages, self.agreed = own.quantity is not None, self.same_pages and alike, self.agreed + 1
        with suppress(SymcommError):
            return a.at(values) == own.quantity if self.whole else bool(a.expr == b.expr)
        return False


@dataclass(frozen=True)
class _Read:
    """A question of a paper: the numbers that are known, and all else that it depends on, which papers share."""

    asked: Ask  # options that do nothing but give a symbol its number are given like other numbers
    known: tuple[Known, ...]
    values: Values
    about: tuple[Hashable, ...]
    in_symbols: _Read | None = None  # with symbols for the sizes among its options, where a number is asked for
    answers: dict[bool, Answer] = field(default_factory=dict)  # without pages, and with them


class KeptAnswers:
    """Answers the questions of papers of one document; everything is derived as seldom as possible."""

    def __init__(self) -> None:
        self._models = Remembered[Hashable, Model]()
        self._loaded = Remembered[ByIdentity[ModelBlock], Model](_LOADED)
        self._reads = Remembered[tuple[ByIdentity[object], ...], _Read](_READ)
        self._own = Remembered[Hashable, Answer]()
        self._answers: dict[Hashable, _Shared[_Formula]] = {}
        self._keys: dict[Hashable, _Shared[Key]] = {}
        self._digests = Remembered[ByIdentity[object], str]()  # of tables

    def answer(self, problem: Problem, ask: Ask, pages: bool = False) -> Answer:
        """The answer to one question of a paper, as ``solve`` has it; with ``pages`` also its steps and notes.

        Raises what ``solve`` raises.
        """
        read = self._read(problem, ask)
        if pages not in read.answers:
            answer = self._answered(problem, ask, read, pages)
            read.answers[pages] = replace(answer, quantity=None) if ask.answer.formula else answer
        return read.answers[pages]

    def _answered(self, problem: Problem, ask: Ask, read: _Read, pages: bool) -> Answer:
        model, numbered = self.model(problem, ask.model), replace(ask, answer=replace(ask.answer, formula=False))

        def own() -> Answer:
            about = read.about, _exactly(ask), *read.values.items()
            return self._own.once(about, lambda: answer_of(problem, numbered, model))

        def make(told: Values) -> _Formula | None:
            if told == read.values:
                return _Formula(own().derivation, told, _AGREED, False, own().quantity is not None)
            about = replace(model, values=told) if model else no_model(problem.notation)
            chosen, said = accounting_of(problem.conventions, ask.conventions), tuple(n for n, _ in ask.conventions)
            with suppress(SymcommError):  # it needs other numbers to be derived at all
                asked, options = ask.sheet or ask.quantity, dict(read.asked.options)
                made = derive(asked, about, options, chosen, told, said)
                return _Formula(made, told, same_pages=not any(told.values()))
            return None

        if read.about not in self._answers:
            self._answers[read.about] = _Shared(self._bases(model, read))
        shared = self._answers[read.about]
        one = shared.at(read.values, make)
        while one is not None and one.agreed < _AGREED and not one.agrees(own(), read.values):
            shared.leave_basis()
            one = shared.at(read.values, make)
        if one is not None and (one.same_pages or not pages):
            with suppress(SymcommError):  # numbers that are refused are told with their place
                d, stated = one.derivation, [item.name for item in ask.given]
                given = used(d, read.known, stated) if pages else ()
                options = options_of(ask, d.values(read.values)) if pages else ()
                quantity = d.at(read.values) if one.whole else None
                return Answer(ask.label, d, given, quantity, ask.span, ask.quantity, points=ask.points, options=options)
        return own()

    def _bases(self, model: Model | None, read: _Read) -> list[tuple[str, ...]]:
        """The numbers with which a question may be derived, those of the most papers first."""
        every, strategy = tuple(read.values), dict(read.asked.options).get("strategy")
        if read.asked.divided_by is not None:  # what is derived here is only above the line
            return [every]
        counts: Collection[str] = ()
        if model and isinstance(strategy, Strategy) and (cut := strategy.pipeline):
            sizes = (size for size in (cut.stages, cut.layers_per_stage) if size)
            counts = {region.times for region in model.graph.regions}.union(*map(names, sizes))
        some = (), counts, *((name,) for name in every), every
        zeros = {name for name, value in read.values.items() if not value}  # what they multiply is not there
        return [*dict.fromkeys(tuple(n for n in every if n in zeros or n in base) for base in some)]

    def model(self, problem: Problem, name: str) -> Model | None:
        """A model of a paper with its numbers."""
        block = problem.models.get(name)
        return None if block is None else self._load(block)

    def key(self, problem: Problem, ask: Ask) -> Key:
        """The question of a paper, ready to check answers; its mistakes are derived once for all papers."""
        self.answer(problem, ask)  # the numbers that it needs, its key needs, too
        read = self._read(problem, ask)
        bases, symbolic = self._answers[read.about].bases, read.in_symbols
        if symbolic is None or bases[:1] != [()]:
            return self._key(problem, ask, read, read, bases)[0]
        key, shared = self._key(problem, ask, read, symbolic, bases[:1])
        if shared.made and not shared.agreed:
            model, again = self.model(problem, ask.model), replace(read.asked, answer=_asked_for(key))
            own = key_of(problem, again, {ask.model: model} if model else {}).at(read.values)
            shared.agreed = _recognised(key) == _recognised(own)
            if not shared.agreed:
                shared.leave_basis()
        if not shared.agreed:
            return self._key(problem, ask, read, read, bases)[0]
        return replace(key, spellings=tuple(said for said in key.spellings
                                            if said[1] in read.values or said[1] not in symbolic.values))  # fmt: skip

    def _key(
        self, problem: Problem, ask: Ask, read: _Read, shared_by: _Read, bases: Iterable[tuple[str, ...]]
    ) -> tuple[Key, _Shared[Key]]:
        """The key of a paper's question, and the record that papers share of it, as ``shared_by`` reads it for all."""
        model = self.model(problem, ask.model)

        def own(said: _Read = read, told: Values | None = None) -> Key:
            return key_of(problem, said.asked, {ask.model: model} if model else {}, told).at(said.values)

        def make(told: Values) -> Key | None:
            with suppress(SymcommError):  # what is wrong with all numbers is told of these
                return own(shared_by, None if told == shared_by.values else told)
            return None

        about = shared_by.about, ask.answer, problem.mistakes_in(ask)
        shared = self._keys.setdefault(about, _Shared([*bases]))
        key = shared.at(shared_by.values, make)
        made = own() if key is None else replace(key.at(shared_by.values), anew=own, asked=key.candidates.asked)
        return made, shared

    # -- how it is kept ------------------------------------------------------------------------

    def _read(self, problem: Problem, ask: Ask) -> _Read:
        """What is known to a question of a paper, which is asked several times."""
        of = ask, problem.models.get(ask.model), problem.values, problem.conventions
        return self._reads.once(tuple(map(ByIdentity, of)), lambda: self._read_anew(problem, ask))

    def _read_anew(self, problem: Problem, ask: Ask) -> _Read:
        known, symbols, model = known_of(problem, ask), _symbols(ask), self.model(problem, ask.model)
        called, own = {item.name for item in known}, model.values.items() if model else ()  # a printed module has some
        given = tuple(Known(symbols[name], Quantity.parse(str(value)), ask.span) for name, value in ask.options
                      if name in symbols)  # fmt: skip
        known += (*(Known(name, Quantity(value), ask.span) for name, value in own if name not in called), *given)
        rest = tuple((name, value) for name, value in ask.options if name not in symbols)
        asked, about = replace(ask, options=rest, given=(*ask.given, *given)), self._about(problem, ask, known)
        values = {item.name: item.quantity.value for item in known}
        more = (*symbols,), tuple(name for name, value in values.items() if not value)  # zeros leave terms out
        symbolic = None
        if sizes := {} if ask.answer.formula else _sizes(asked):
            options = tuple((name, f"n_{name}" if name in sizes else value) for name, value in asked.options)
            every = {**values, **{f"n_{name}": value for name, value in sizes.items()}}
            other = replace(asked, options=options)
            symbolic = _Read(other, known, every, (about, _exactly(other), *more))
        return _Read(asked, known, values, (about, _exactly(asked), *more), symbolic)

    def _about(self, problem: Problem, ask: Ask, known: Iterable[Known]) -> Hashable:
        """All that an answer depends on but the options of its question and the numbers that are known."""
        block = problem.models.get(ask.model)
        sheet = ask.section.text("worksheet")
        units = tuple((item.name, item.quantity.unit) for item in known)
        model = None if block is None else self._structure(block) if block.module else self._of_model(block)
        said = ask.quantity, sheet, ask.names, ask.label, problem.conventions, ask.conventions
        if (below := ask.divided_by) is None:
            return *said, model, units
        given = tuple(item.quantity for item in below.given)
        return *said, model, units, self._about(problem, below, below.given), _exactly(below), given

    def _of_model(self, block: ModelBlock) -> Hashable:
        parts = tuple(self._of_model(part) for part in block.parts)
        named = (block.name, block.repeat, block.batch, block.dtype, block.inputs, block.weights, block.axes)
        step = (block.phase, block.new, block.past)
        return *named, *step, block.layers_before, block.module or self._identity(block.table), parts

    def _structure(self, block: ModelBlock) -> Hashable:
        """The layers that a printed module or a configuration makes, without their numbers: each paper has its own."""
        model, graph = self._load(block), self._load(block).graph
        about = graph.ops, graph.axes, graph.tensors, graph.regions, graph.relations
        return block.name, model.dtype, block.phase, block.new, block.past, self._identity(about)

    def _identity(self, thing: object) -> Hashable:
        if not thing:
            return None
        return self._digests.once(ByIdentity(thing), lambda: sha256(repr(thing).encode()).hexdigest())

    def _load(self, block: ModelBlock) -> Model:
        """The model of a block with its numbers; a paper asks several questions about each."""
        return self._loaded.once(ByIdentity(block), lambda: self._with_numbers(block))

    def _with_numbers(self, block: ModelBlock) -> Model:
        values = tuple((item.name, item.quantity.value) for item in block.values)
        about = (self._of_model(block), tuple(name for name, _ in values))
        made = self._models.once(about, lambda: load_block(block))
        numbers = {**made.values, **dict(values)}
        made.graph.relations.complete(numbers)  # refuses values that contradict one another
        return replace(made, values=numbers) if made.values != numbers else made


def _symbols(ask: Ask) -> dict[str, str]:
    """The options of a question that do nothing but give a symbol its number, with these symbols."""
    from symcomm.core.quantities import QUANTITIES

    declared = ask.sheet or QUANTITIES[ask.quantity]
    sheet = getattr(declared.derive, "__self__", None)  # a worksheet, whose symbols name their options
    read = sheet.read.symbols if sheet and not declared.needs_model else {}  # those of a model come first
    called, said = dict(declared.names), dict(ask.options)
    numbers = {name for name, value in said.items() if value not in (0, "0") and str(value)[:1].isdigit()}
    return {one.option: called.get(name, name) for name, one in read.items() if one.option in numbers}


def _sizes(ask: Ask) -> dict[str, Fraction]:
    """The sizes among the options of a question; one rank has fewer mistakes than more."""
    from symcomm.core.quantities import QUANTITIES

    declared = () if ask.sheet else QUANTITIES[ask.quantity].options
    counts = {option.name for option in declared if option.kind == "size"}
    return {name: Fraction(str(value)) for name, value in ask.options
            if name in counts and re.fullmatch(r"[1-9]\d+|[2-9]", str(value))}  # fmt: skip


def _asked_for(key: Key) -> AnswerKeys:
    """The answers that are told apart, without those that asking again did not find, even with all numbers."""
    found = {name for one in key.mistakes for name in one.names}
    mistakes = tuple(one.name for one in key.candidates.mistakes
                     if one.name in found or not all(change.again for change in one.changes))  # fmt: skip
    pairs = ([name.partition(": ") for name in one.names] for one in key.conventions)
    return replace(key.spec, mistakes=mistakes, conventions=tuple(tuple((a, b) for a, _, b in one) for one in pairs))


def _recognised(key: Key) -> list[tuple[object, ...]]:
    return [(one.names, one.at(key.values)) for one in (*key.conventions, *key.mistakes)]


def _exactly(ask: Ask) -> Hashable:
    return tuple((name, _hashable(value)) for name, value in ask.options)


def _hashable(value: Any) -> Hashable:
    if isinstance(value, Mapping):
        return tuple((key, _hashable(one)) for key, one in value.items())
    return tuple(map(_hashable, value)) if isinstance(value, list) else value
