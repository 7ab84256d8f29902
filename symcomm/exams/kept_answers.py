"""The answers of many papers of one document: derived once with symbols, then numbers are put in.

A question is derived the usual way for the first papers, and once more with no number known. Where both give the same
numbers, the second one answers for every further paper. Where it cannot be derived without numbers, one that was made
with those of another paper answers, if it says that these lead to the same; else every paper is derived by itself.
``same_pages`` says that both also read alike, step by step.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import field, replace
from fractions import Fraction
from functools import cached_property, partial
from hashlib import sha256
from typing import Any

from symcomm.core.derivation import Derivation
from symcomm.core.errors import SymcommError
from symcomm.core.form import Form, from_expr, names
from symcomm.core.model import Model
from symcomm.core.notation import Notation
from symcomm.core.parallel.strategy import Strategy
from symcomm.core.printing import tex
from symcomm.core.printing.forms import plain
from symcomm.core.records import ByIdentity, dataclass
from symcomm.core.units import Quantity
from symcomm.documents.render.document import Answer, Given
from symcomm.exams.key import Key, key_of
from symcomm.exams.problems.deriving import accounting_of, derive, no_model
from symcomm.exams.problems.keys import Known
from symcomm.exams.problems.problem import Ask, ModelBlock, Problem
from symcomm.exams.problems.solve import answer_of, known_of, load_block, used
from symcomm.exams.remembered import Remembered

_AGREED = 3  # papers on which both ways agree before one is enough: of a question; for pages, of each of its choices
_LOADED = 100  # blocks of the latest papers whose models are kept with their numbers
_READ = 2_000  # questions of the latest papers with what is known to each


@dataclass
class _Entry:
    """What is known of one question: the derivation without numbers, and how often it was right.

    ``names`` are those of the known numbers that mean something to it, ``whole`` says that they are enough.
    """

    symbolic: Derivation | None
    agreed: int = 0
    same_pages: bool = True
    names: frozenset[str] = frozenset()
    whole: bool = True
    numbered: list[Derivation] = field(default_factory=list)  # made with the numbers of papers
    quantities: Remembered[tuple[Fraction, ...], Quantity] = field(default_factory=Remembered)


class KeptAnswers:
    """Answers the questions of papers of one document; everything is derived as seldom as possible."""

    def __init__(self) -> None:
        self._models = Remembered[Hashable, Model]()
        self._loaded = Remembered[ByIdentity[ModelBlock], Model](_LOADED)
        self._reads = Remembered[tuple[ByIdentity[object], ...], _Read](_READ)
        self._entries: dict[tuple[Hashable, Hashable], _Entry] = {}
        self._agreed: Counter[Hashable] = Counter()  # how often both ways were the same, by question
        self._structures: dict[Hashable, tuple[str, ...]] = {}  # the numbers that decide what is derived, by question
        self._derived = Remembered[Hashable, Answer]()
        self._keys: dict[Hashable, Key | None] = {}
        self._numbered: dict[Hashable, list[Key]] = {}  # made with the numbers of papers
        self._forms = Remembered[ByIdentity[Derivation], Form]()
        self._formulas = Remembered[ByIdentity[Derivation], str]()
        self._tex = Remembered[tuple[ByIdentity[Form], ByIdentity[Notation]], str]()
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
        about, _ = read.same
        entry = self._entries.get(read.same)
        if entry is None:
            symbolic = self._symbolic(problem, ask, read, read.structure)
            entry = self._entries[read.same] = _Entry(symbolic, same_pages=not read.structure)  # its pages have numbers
        question = ask.exam.id or about
        agreed = entry.agreed >= (_AGREED if pages else 1) and self._agreed[question] >= _AGREED
        values = _values(read.known, read.numbers)
        same = None if pages else next((one for one in entry.numbered if one.serves(values)), None)
        if same is not None:
            return Answer(ask.label, same, (), same.at(values), ask.span, ask.quantity, points=ask.points)
        if entry.symbolic is None or (pages and not entry.same_pages) or not agreed:
            fresh = self._fresh(problem, ask, read.known, about)
            if entry.symbolic is not None and not agreed:
                self._compare(entry, fresh, read)
                self._agreed[question] += 1
                if entry.symbolic is None and (deciding := self._decide(problem, ask, read, fresh)):
                    self._structures[read.same] = deciding
                    self._reads.clear()
                    return self.answer(problem, ask, pages)
            if entry.symbolic is None and fresh.derivation.same_at is not None:
                entry.numbered.append(replace(fresh.derivation, given=()))
            if entry.symbolic is None or not entry.whole or (pages and not entry.same_pages):
                return fresh  # else the formula of every paper is the same one, whichever is made first
        return _refilled(entry, entry.symbolic, ask, read, pages)

    def model(self, problem: Problem, name: str) -> Model | None:
        """A model of a paper with its numbers."""
        block = problem.models.get(name)
        return None if block is None else self._load(block)

    def key(self, problem: Problem, ask: Ask) -> Key:
        """The question of a paper, ready to check answers; its mistakes are derived once for all papers."""
        given = dict(self.answer(problem, ask).derivation.given)  # whether numbers can be put in is known then
        read = self._read(problem, ask)
        values = _values(read.known, read.numbers)
        others = self._numbered.setdefault((read.same, _exactly(ask), ask.answer, problem.mistakes_in(ask)), [])
        for key in others:
            if key.candidates.serves(values):
                return replace(key.at(values), anew=partial(self._own_key, problem, ask, given))
        key = self._own_key(problem, ask, given)
        if self._entries[read.same].symbolic is None and key.candidates.serves(values):
            others.append(key)
        return key

    def _own_key(self, problem: Problem, ask: Ask, given: Mapping[str, Fraction]) -> Key:
        bases = self._bases(problem, ask)
        key, basis = next((key, basis) for basis in bases if (key := self._key(basis, problem, ask)))
        return key.at({**given, **_values(self._read(problem, ask).known, basis.numbers)})

    def _bases(self, problem: Problem, ask: Ask) -> Iterator[_Basis]:
        """What the key of a question may be made from, for the most papers first."""
        read, model = self._read(problem, ask), self.model(problem, ask.model)
        chosen, strategy = (ask.answer, problem.mistakes_in(ask)), dict(ask.options).get("strategy")
        if self._entries[read.same].symbolic is not None:
            # Under some convention numbers decide which stage is meant.
            staged = isinstance(strategy, Strategy) and "stage" not in dict(ask.options) and strategy.pipeline
            if not staged and read.sizes:
                yield _Basis((read.alike, chosen), (*read.numbers, *read.sizes))
            if not staged:
                yield _Basis((read.same, chosen), read.numbers)
            elif model is not None:
                sizes = [size for size in (staged.stages, staged.layers_per_stage) if size]
                counts = {region.times for region in model.graph.regions}.union(*map(names, sizes))
                known = tuple(one for one in read.known if one.name in counts)
                numbers = tuple((one.name, one.quantity.value) for one in known)
                yield _Basis((read.same, _exactly(ask), numbers, chosen), (), known)
        yield _Basis((read.same, _exactly(ask), tuple(item.quantity.value for item in read.known), chosen), ())

    def _key(self, basis: _Basis, problem: Problem, ask: Ask) -> Key | None:
        """The key of all papers with a basis; None where other numbers decide on it, too."""
        if basis.about not in self._keys:
            model, stages = self.model(problem, ask.model), basis.stages
            told = tuple(Known(one.symbol, Quantity(one.value), ask.span) for one in basis.numbers if not one.stays)
            named = {one.option: one.symbol if one.stays else None for one in basis.numbers}
            left = tuple((name, said) for name, value in ask.options if (said := named.get(name, value)) is not None)
            asked = replace(ask, options=left, given=(*ask.given, *told) if stages is None else ())
            if stages is not None and model is not None:
                block, model = problem.models[ask.model], replace(model, values=_values(stages, ()))
                items = tuple(replace(block, values=stages) if one is block else one for one in problem.items)
                problem = replace(problem, items=items)
            key = key_of(problem, asked, {ask.model: model} if model else {})
            holds = key.candidates.is_settled if stages is not None else self._is_like(key, basis, problem, ask)
            self._keys[basis.about] = key if holds else None
        return self._keys[basis.about]

    def _is_like(self, key: Key, basis: _Basis, problem: Problem, ask: Ask) -> bool:
        """Whether a key with symbols for sizes knows the same numbers as the one with this paper's own."""
        if not any(one.stays for one in basis.numbers):
            return True
        read = self._read(problem, ask)
        exact = self._key(_Basis((read.same, basis.about[1]), read.numbers), problem, ask)
        assert exact is not None
        both = (made.at(_values(read.known, basis.numbers)) for made in (key, exact))
        mine, own = ([(w.names, w.at(one.values)) for w in (*one.conventions, *one.mistakes)] for one in both)
        return mine == own

    def formula(self, derivation: Derivation) -> str:
        """The formula of an answer as text."""
        return self._formulas.once(ByIdentity(derivation), lambda: plain(self.simplified(derivation)))

    def simplified(self, derivation: Derivation) -> Form:
        """The formula of an answer as its solution has it."""
        return self._forms.once(ByIdentity(derivation), lambda: _simplified(derivation))

    def tex(self, form: Form, notation: Notation) -> str:
        """A formula of a key in TeX."""
        return self._tex.once((ByIdentity(form), ByIdentity(notation)), lambda: tex(form, None, notation))

    # -- how it is kept ------------------------------------------------------------------------

    def _read(self, problem: Problem, ask: Ask) -> _Read:
        """What is known to a question of a paper, which is asked several times."""
        of = ask, problem.models.get(ask.model), problem.values, problem.conventions
        return self._reads.once(tuple(map(ByIdentity, of)), lambda: self._read_anew(problem, ask))

    def _read_anew(self, problem: Problem, ask: Ask) -> _Read:
        known = self._known(problem, ask)
        (options, numbers, sizes), about = _options(ask), self._about(problem, ask, known)
        structure = tuple(one for one in known if one.name in self._structures.get((about, options), ()))
        if structure:  # papers with the same number share what is derived
            about = about, *((one.name, one.quantity.value) for one in structure)
        named = {one.option for one in sizes}
        alike = about, tuple((name, None if name in named else value) for name, value in options)
        return _Read(known, numbers, (about, options), sizes, alike, structure)

    def _about(self, problem: Problem, ask: Ask, known: Iterable[Known]) -> Hashable:
        """All that an answer depends on but the options of its question and the numbers that are known."""
        block = problem.models.get(ask.model)
        sheet = ask.section.text("worksheet")
        units = tuple((item.name, item.quantity.unit) for item in known)
        model = None if block is None else self._structure(block) if block.module else self._of_model(block)
        below = _divisor(ask.divided_by)
        return ask.quantity, sheet, ask.names, ask.label, model, problem.conventions, ask.conventions, units, below

    def _of_model(self, block: ModelBlock) -> Hashable:
        parts = tuple(self._of_model(part) for part in block.parts)
        named = (block.name, block.repeat, block.batch, block.dtype, block.inputs, block.weights, block.axes)
        step = (block.phase, block.new, block.past)
        return *named, *step, block.layers_before, block.module or self._identity(block.table), parts

    def _structure(self, block: ModelBlock) -> Hashable:
        """The layers that a printed module or a configuration makes, without their numbers: each paper has its own."""
        graph = self._load(block).graph
        return block.name, self._identity((graph.ops, graph.axes, graph.tensors, graph.regions, graph.relations))

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

    def _decide(self, problem: Problem, ask: Ask, read: _Read, fresh: Answer) -> tuple[str, ...]:
        """The name of a number without which another answer is derived: whether there are fewer heads of keys, say."""
        for known in () if read.structure else read.known:
            entry = _Entry(self._symbolic(problem, ask, read, (known,)))
            if entry.symbolic is not None:
                self._compare(entry, fresh, read)
            if entry.symbolic is not None:
                return (known.name,)
        return ()

    def _symbolic(self, problem: Problem, ask: Ask, read: _Read, structure: tuple[Known, ...]) -> Derivation | None:
        if ask.divided_by is not None:  # what is derived here is only above the line
            return None
        model = self.model(problem, ask.model)
        about = replace(model, values=_values(structure, ())) if model else no_model(problem.notation)
        numbers = {number.option for number in read.numbers}
        said = {name: value for name, value in ask.options if name not in numbers}
        own = tuple(name for name, _ in ask.conventions)
        try:
            chosen = accounting_of(problem.conventions, ask.conventions)
            return derive(ask.sheet or ask.quantity, about, said, chosen, _values(structure, ()), own)
        except SymcommError:  # it needs a number to be derived at all
            return None

    def _known(self, problem: Problem, ask: Ask) -> tuple[Known, ...]:
        """The numbers that are known to a question, those of a printed module as well."""
        known = known_of(problem, ask)
        model = self.model(problem, ask.model)
        names = {item.name for item in known}
        own = model.values if model else {}
        return known + tuple(Known(n, Quantity(v), ask.span) for n, v in own.items() if n not in names)

    def _fresh(self, problem: Problem, ask: Ask, known: tuple[Known, ...], about: Hashable) -> Answer:
        numbers = tuple(item.quantity.value for item in known)
        exactly = (about, _exactly(ask), numbers)
        numbered = replace(ask, answer=replace(ask.answer, formula=False))  # to compare both ways
        return self._derived.once(exactly, lambda: answer_of(problem, numbered, self.model(problem, ask.model)))

    def _compare(self, entry: _Entry, fresh: Answer, read: _Read) -> None:
        assert entry.symbolic is not None
        d, values = entry.symbolic, _values(read.known, read.numbers)
        entry.whole = fresh.quantity is not None
        for name in values:
            with suppress(SymcommError):
                d.check_names([name])
                entry.names |= {name}
        try:
            same = d.at(values) == fresh.quantity
        except SymcommError:
            same = not entry.whole
        entry.agreed += 1
        if not same:
            entry.symbolic = None
        else:
            a, b = d, fresh.derivation
            alike = (a.steps, a.notes, a.exhibits, a.title) == (b.steps, b.notes, b.exhibits, b.title)
            entry.same_pages = entry.same_pages and alike


@dataclass(frozen=True)
class _Number:
    """An option that does nothing but give a symbol its number; where it ``stays``, it may name the symbol instead."""

    option: str
    symbol: str
    text: str
    stays: bool = False

    @cached_property
    def value(self) -> Fraction:
        return Quantity.parse(self.text).value


@dataclass(frozen=True)
class _Basis:
    """What a key is made from: all that it depends on, and the options that are only numbers in it.

    With ``stages`` these numbers alone are known while it is derived.
    """

    about: tuple[Hashable, ...]
    numbers: tuple[_Number, ...]
    stages: tuple[Known, ...] | None = None


@dataclass(frozen=True)
class _Read:
    """A question of a paper: the numbers that are known, those that its options are, and what else it depends on.

    ``sizes`` are options that are numbers and may be symbols; ``alike`` is what else it depends on without them.
    ``structure`` are numbers that decide what is derived. ``answers`` are without pages and with them.
    """

    known: tuple[Known, ...]
    numbers: tuple[_Number, ...]
    same: tuple[Hashable, Hashable]
    sizes: tuple[_Number, ...]
    alike: tuple[Hashable, Hashable]
    structure: tuple[Known, ...]
    answers: dict[bool, Answer] = field(default_factory=dict)


def _options(ask: Ask) -> tuple[tuple[tuple[str, Hashable], ...], tuple[_Number, ...], tuple[_Number, ...]]:
    """Three kinds of options: what a derivation depends on, numbers of symbols, and numbers where a symbol would do.

    Mistakes are derived once for all numbers of the last kind.
    """
    from symcomm.core.quantities import QUANTITIES

    declared = ask.sheet or QUANTITIES[ask.quantity]
    sheet = getattr(declared.derive, "__self__", None)  # a worksheet, whose symbols name their options
    read = sheet.read.symbols if sheet and not declared.needs_model else {}  # those of a model come first
    called = dict(declared.names)
    symbols = {one.option: called.get(name, name) for name, one in read.items() if one.option}
    counts = {option.name for option in declared.options if option.kind == "size" and not ask.sheet}
    kept = {name: _hashable(value) for name, value in ask.options}
    numbers: list[_Number] = []
    sizes: list[_Number] = []
    for name, value in ask.options:
        if name in symbols and value not in (0, "0") and str(value)[:1].isdigit():
            numbers.append(_Number(name, symbols[name], str(value)))
            kept[name] = None
        elif name in counts and re.fullmatch(r"[1-9]\d*", str(value)):
            sizes.append(_Number(name, f"n_{name}", str(value), stays=True))
    return tuple(kept.items()), tuple(numbers), tuple(sizes)


def _exactly(ask: Ask) -> Hashable:
    return tuple((name, _hashable(value)) for name, value in ask.options)


def _divisor(below: Ask | None) -> Hashable:
    """All that the answer depends on by which another one is divided, except the model that both are of."""
    given = () if below is None else tuple((one.name, one.quantity) for one in below.given)
    return below and (below.quantity, below.section.text("worksheet"), below.conventions, _exactly(below), given)


def _hashable(value: Any) -> Hashable:
    if isinstance(value, Mapping):
        return tuple((key, _hashable(one)) for key, one in value.items())
    return tuple(map(_hashable, value)) if isinstance(value, list) else value


def _values(known: Iterable[Known], numbers: Iterable[_Number]) -> dict[str, Fraction]:
    return {item.name: item.quantity.value for item in known} | {one.symbol: one.value for one in numbers}


def _simplified(d: Derivation) -> Form:
    form, steps = d.answer.form, {step.name for step in d.steps}
    return form if steps.isdisjoint(names(form)) else from_expr(d.expr)  # names of steps are ours


def _refilled(entry: _Entry, d: Derivation, ask: Ask, read: _Read, pages: bool) -> Answer:
    values = {name: value for name, value in _values(read.known, read.numbers).items() if name in entry.names}
    told: tuple[Given, ...] = ()
    if pages:
        units = ((one, Quantity(one.value, d.symbol_unit(one.symbol))) for one in read.numbers)
        every = (*read.known, *(Known(one.symbol, quantity, ask.span) for one, quantity in units))
        told = used(d, every, [item.name for item in ask.given])
    # The numbers are of the same names: these are part of what the entry is of.
    quantity = entry.quantities.once(tuple(values.values()), lambda: d.at(values)) if entry.whole else None
    return Answer(ask.label, d, told, quantity, ask.span, ask.quantity, points=ask.points)
