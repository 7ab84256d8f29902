"""Derivations that are kept: one with symbols for the degrees answers for every mesh of the same strategy.

The second time that a quantity is asked of one model and strategy, it is derived with a symbol for each degree above
one; from then on only numbers are put in. The steps of a question, with its own degrees in them, are written down when
somebody reads them. A degree of one is none of these: it may leave out a step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import field, fields, replace
from fractions import Fraction
from functools import cached_property, lru_cache, partial
from math import prod
from typing import Any

from symcomm.core.accounting import Accounting
from symcomm.core.derivation import Derivation
from symcomm.core.errors import SymcommError
from symcomm.core.form import Form, Num, Sym, evaluate, names
from symcomm.core.graph.graph import Graph
from symcomm.core.parallel.strategy import Strategy, degree, parse_strategy
from symcomm.core.program.pipeline import check_stages
from symcomm.core.program.program import unstaged
from symcomm.core.records import dataclass
from symcomm.core.setting import Setting, cuts
from symcomm.core.units import Quantity

# What is derived from the degrees as forms; it neither compares them nor solves for them.
BY_FORMS = frozenset({"step_time", "throughput", "time", "communication", "state_memory", "activation_memory"})
# What asks the stages and microbatches for their numbers: a schedule fits some of them only.
BY_NUMBERS = frozenset({"schedule", "chunks", "stage"})
Derive = Callable[..., Derivation]
Options = dict[str, Any]
SYMBOL = "k_{}''''"  # of a degree: no name that a person gives has four primes


@dataclass
class _Kept:
    """What is known of a quantity under one strategy: who derived it first, and how it is with symbols.

    ``by_symbols`` is None until it is asked for a second time, and where symbols do not give the same.
    """

    first: Derivation | None = None
    degrees: dict[str, Fraction] = field(default_factory=dict)
    by_symbols: Derivation | None = None
    settled: bool = False


class Unwritten(Derivation):
    """A derivation whose steps are written when they are read; its number is that of the one with symbols."""

    _by_symbols: Derivation
    _degrees: Mapping[str, Fraction]
    _write: Callable[[], Derivation]

    # Copies of it, and what it is compared with, are plain derivations.
    __class__ = property(lambda self: Derivation)
    same_at = None  # of numbers it has none of its own

    def __init__(
        self, by_symbols: Derivation, degrees: Mapping[str, Fraction], write: Callable[[], Derivation]
    ) -> None:
        # What a frozen dataclass holds besides its fields is put where cached properties are.
        self.__dict__.update(_by_symbols=by_symbols, _degrees=degrees, _write=write, kept={})

    def __reduce__(self) -> tuple[object, ...]:
        return Unwritten, (self._by_symbols, self._degrees, self._write)

    @cached_property
    def written(self) -> Derivation:
        """The same with its steps."""
        return self._write()

    def at(self, several: Mapping[str, object] | None = None, /, **values: object) -> Quantity:
        """The exact quantity at given numbers, as ``Derivation.at`` has it."""
        try:
            return self._by_symbols.at(several, **values, **self._degrees)
        except SymcommError:
            return self.written.at(several, **values)  # says what is missing by the names of this question


def _read(name: str) -> property:
    return property(lambda unwritten: getattr(unwritten.written, name))


for _field in fields(Derivation):
    if _field.init and _field.name not in vars(Unwritten):  # what others keep of it is its own
        setattr(Unwritten, _field.name, _read(_field.name))


def derived(quantity: str, setting: Setting, options: Options, derive: Derive) -> Derivation:
    """The derivation of a quantity by its pass, or by one that is kept.

    Raises what the pass raises.
    """
    try:
        symbolic, degrees = _symbolic(options) if quantity in BY_FORMS else (options, {})
        sound = degrees and setting.accounting.rings == "one_way"  # rings both ways ask whether a degree is even
        known = _known(
            setting.graph, setting.accounting, setting.dtype, tuple(setting.values.items()), quantity,
            tuple(symbolic.items()),
        ) if sound else None  # fmt: skip
    except (SymcommError, TypeError):  # no strategy: the pass says so; an option that is no key is not kept
        known = None
    if known is None or not _divides(setting, symbolic["strategy"], degrees):
        return derive(setting, **options)
    if known.first is None:
        known.first, known.degrees = derive(setting, **options), degrees
        return known.first
    if not known.settled:
        known.settled = True
        with suppress(SymcommError):  # a node of so many ranks, for one, needs the number of each degree
            found = derive(replace(setting, named=setting.named | degrees.keys(), checks=()), **symbolic)
            known.by_symbols = found if _agree(known.first, found, known.degrees) else None
    if known.by_symbols is None:
        return derive(setting, **options)
    return Unwritten(known.by_symbols, degrees, partial(derive, setting, **options))


@lru_cache(maxsize=256)
def _known(graph: Graph, accounting: Accounting, dtype: str, values: tuple[tuple[str, Fraction], ...],
           quantity: str, options: tuple[tuple[str, Any], ...]) -> _Kept:  # fmt: skip
    return _Kept()


def _symbolic(options: Options) -> tuple[Options, dict[str, Fraction]]:
    """Options with a symbol for each degree above one, and what the symbols stand for."""
    degrees: dict[str, Fraction] = {}

    def symbol(size: Form | None) -> Any:
        if not isinstance(size, Num) or size.number <= 1:
            return size
        name = SYMBOL.format(len(degrees))
        degrees[name] = size.number
        return Sym(name)

    strategy = options.get("strategy")
    strategy = parse_strategy(strategy) if isinstance(strategy, str) else strategy
    if not isinstance(strategy, Strategy) or not BY_NUMBERS.isdisjoint(options):
        return options, {}
    cut = strategy.pipeline
    if cut is not None:
        stages = cut.stages if cut.layers else symbol(cut.stages)
        cut = replace(cut, stages=stages, microbatches=symbol(cut.microbatches))
    mesh = tuple((axis, symbol(size)) for axis, size in strategy.mesh)
    made = {**options, "strategy": replace(strategy, mesh=mesh, pipeline=cut)}
    count = options.get("microbatches")
    if count is not None and not isinstance(count, bool):
        made["microbatches"] = symbol(degree(count))
    return made, degrees


@lru_cache(maxsize=256)
def _cuts(
    graph: Graph, strategy: Strategy, values: tuple[tuple[str, Fraction], ...]
) -> tuple[tuple[Fraction, tuple[Form, ...]], ...]:
    """The known sizes that a strategy cuts, each with the degrees that must divide it."""
    known = dict(values)
    sizes = ((size, parts) for size, parts in cuts(graph, strategy) if {*names(size)} <= known.keys())
    return tuple(dict.fromkeys((evaluate(size, known), parts) for size, parts in sizes))


def _divides(setting: Setting, strategy: Strategy, degrees: Mapping[str, Fraction]) -> bool:
    """Whether every degree divides what it cuts, as far as both are known; the pass tells what does not."""
    known = {**setting.values, **degrees}
    try:
        if strategy.pipeline is not None:
            check_stages(setting.graph, strategy.pipeline, known)
        cuts = _cuts(setting.graph, unstaged(strategy), tuple(setting.values.items()))
        for size, sizes in cuts:
            degrees_known = {name for part in sizes for name in names(part)} <= known.keys()
            if degrees_known and (size / prod(evaluate(part, known) for part in sizes)).denominator != 1:
                return False
    except SymcommError:
        return False
    return True


def _agree(first: Derivation, found: Derivation, degrees: Mapping[str, Fraction]) -> bool:
    """Whether the derivation with symbols gives the number of the first question; sizes left open are made up."""
    made_up = {name: 5040 * (n + 1) for n, name in enumerate(first.needs)}
    try:
        return first.at(**made_up) == found.at(**made_up, **degrees)
    except SymcommError:
        return False
