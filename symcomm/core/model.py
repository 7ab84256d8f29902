"""A model: its graph with number format, names and known values; the entry to every derivation."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field, replace
from difflib import SequenceMatcher
from fractions import Fraction
from functools import cached_property, lru_cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from symcomm.core import form as forms
from symcomm.core.accounting import Accounting, AccountingLike, clashes, field_of
from symcomm.core.derivation import Condition, Derivation, Reason, Relations, Step, exact, worked_out
from symcomm.core.derivation.renaming import Renaming, renamed
from symcomm.core.doors import door
from symcomm.core.dtypes import USUAL_DTYPE, autocast_of, formats
from symcomm.core.errors import AccountingError, StrategyError, SymcommError, TableError, ValuesError
from symcomm.core.files import is_path, read_text
from symcomm.core.form import Sym, evaluate, names
from symcomm.core.graph.axis_roles import meanings
from symcomm.core.graph.build import build
from symcomm.core.graph.graph import Graph
from symcomm.core.graph.stepping import again
from symcomm.core.hardware.devices import Device
from symcomm.core.identity import SECONDS, frozen
from symcomm.core.notation import Notation
from symcomm.core.parallel.copies import with_copied_heads
from symcomm.core.parallel.strategy import OF_A_HEAD, PipelineCut, Strategy, parse_strategy, with_copies
from symcomm.core.patience import OverdueError, limited
from symcomm.core.program.pipeline import layer_count, stage_count, unlike
from symcomm.core.program.schedules import find
from symcomm.core.program.vocabulary import CutVocabulary, cut_vocabulary, in_parts
from symcomm.core.quantities import QUANTITIES
from symcomm.core.quantities.declared import DeclaredQuantity
from symcomm.core.quantities.generating import step_of
from symcomm.core.quantities.kept import derived
from symcomm.core.quantities.methods import DerivedQuantities
from symcomm.core.readers.blueprint import Blueprint, PartGraph
from symcomm.core.readers.reading import Leaves, read
from symcomm.core.records import ByIdentity, dataclass
from symcomm.core.setting import OTHER_ORDER, Setting
from symcomm.core.text.finder import layer_tables, missing_table
from symcomm.core.text.formula import parse_layer
from symcomm.core.text.table import Table, as_text
from symcomm.core.units import ONE, Number
from symcomm.core.worksheets import parse_worksheet, read_worksheet

Count = int | str  # of positions: a number, or the name of a symbol


def _strategy(options: Mapping[str, object]) -> Strategy | None:
    """The strategy among the options of a question."""
    said = options.get("strategy")
    said = parse_strategy(said) if isinstance(said, str) and said else said
    return said if isinstance(said, Strategy) else None


def _whole_ranks(setting: Setting, strategy: Strategy | None) -> None:
    """Raises ``StrategyError`` where the number of ranks of a mesh axis is given as a fraction."""
    for axis, size in strategy.mesh if strategy is not None else ():
        if size is not None and {*names(size)} <= setting.values.keys():
            ranks = evaluate(size, setting.values)
            if ranks.denominator != 1:
                raise StrategyError(f"the mesh axis '{axis}' has {ranks} ranks", hint="a number of ranks is whole")


def _check_known(quantity: DeclaredQuantity, accounting: Accounting, strategy: Strategy | None) -> None:
    """Raises ``AccountingError`` for what a quantity would leave out: ways to the host, parts that are filled up."""
    if accounting.offloading != "on_device" and quantity.group == "time" and quantity.name not in OF_HOST:
        raise AccountingError(f"{quantity.name} does not time what goes to the host and comes back",
                              hint=f"offloading: on_device; {', '.join(OF_HOST)} do, and memory knows it")  # fmt: skip
    padded = accounting.shards == "padded_shards" and quantity.name not in OF_PADDED
    if padded and strategy is not None and any(rule.axis == "first" for _, rule in strategy.rules):
        raise AccountingError(f"{quantity.name} counts the mean of the parts of a weight, not parts that are filled up",
                              hint="state_memory and capacity know padded_shards")  # fmt: skip


def _telling(
    derive: Callable[..., Derivation], asked: tuple[str, ...],
    again: Callable[[Mapping[str, Fraction]], Derivation | None] | None, words: frozenset[str] | None,
    ordered: Callable[..., Derivation | None], setting: Setting, **options: Any,
) -> Derivation:  # fmt: skip
    """A derivation that tells which conventions were asked for and not used, and what it is along axes of one rank.

    ``words`` are the symbols of a vocabulary that ranks share: whose answer has them depends on how they do. Where
    numbers decide the order of products otherwise, it is what is ``ordered``.
    """
    made = derive(setting, **options)
    if orders := [one for one in made.where if one.refusal == OTHER_ORDER]:
        again = partial(ordered, orders)
    used = {s.name for s in made.expr.free_symbols} or {name for step in made.steps for name in names(step.form)}
    if words is not None and (not words or words & used):
        made = replace(made, touched=(*made.touched, *({"vocabulary"} - {*made.touched})))
    meant = setting.accounting  # an option may come before it: another algorithm
    changed = clashes(made.accounting, made.touched, meant, made.touched)
    kept = [name for name in made.touched if name not in changed]
    notes = meant.unused(asked, kept)
    return replace(made, notes=(*made.notes, *notes), otherwise=again) if notes or again else made


_SYMBOL = r"[^\W\d][\w'^]{0,39}"


def _named(declared: DeclaredQuantity, options: Mapping[str, object]) -> set[str]:
    """The names in options: degrees, and symbols that stand for numbers, but no words, keys and units."""
    found: set[str] = set()
    words = {option.name for option in declared.options if option.kind in ("choice", "dtype", "recipe", "schedule")}
    texts = {option.name for option in declared.options if option.kind == "text"}
    for name, value in options.items():
        if name == "strategy" and value:
            strategy = _strategy(options)
            found |= {n for size in (strategy.forms if strategy is not None else ()) for n in names(size)}
        elif isinstance(value, str) and name not in words:
            symbols = re.findall(_SYMBOL, re.sub(r"\w+ *=|(?<=\d) *[^\W\d][\w/]*", " ", value))
            found |= {*symbols} if name not in texts or re.fullmatch(_SYMBOL, value) else set()
    return found


def _ask(model: Model, accounting: Accounting, quantity: DeclaredQuantity, **options: Any) -> Derivation:
    """What a worksheet takes from a model."""
    return model.derive(quantity, accounting=accounting, asked=(), **options)


@lru_cache(maxsize=128, typed=True)  # True is no 1
def _once(
    model: ByIdentity[Model], quantity: str | ByIdentity[DeclaredQuantity], accounting: Accounting,
    asked: tuple[str, ...] | None, /, **options: Any,
) -> Derivation:  # fmt: skip
    """The answer to a question that is asked again, at other numbers or by a worksheet."""
    wanted = quantity.it if isinstance(quantity, ByIdentity) else quantity
    return model.it.derive_anew(wanted, accounting=accounting, asked=asked, **options)


def _degrees(strategy: Strategy | None) -> dict[str, str]:
    """What the symbols of a strategy stand for."""
    if strategy is None:
        return {}
    found = {size.name: "number of ranks in the collective" for _, size in strategy.mesh if isinstance(size, Sym)}
    cut = strategy.pipeline
    named = ((cut.stages, "number of pipeline stages"), (cut.microbatches, "number of microbatches")) if cut else ()
    return found | {size.name: meaning for size, meaning in named if isinstance(size, Sym)}


def _numbers(values: Mapping[str, object], graph: Graph) -> dict[str, Fraction]:
    """Exact numbers; raises ``ValuesError`` for one that is negative, and for a slip in the name of a size.

    Names that no size is near to may be those of a rate or a degree that a question names later.
    """
    found = {name: exact(value, name) for name, value in values.items()}
    sizes = Setting(graph).symbols
    alike: dict[str, set[str]] = {}
    for size in sizes if found.keys() - sizes else ():
        for spelled in _spelled(size):
            alike.setdefault(spelled, set()).add(size)
    for name, value in found.items():
        if value < 0 or (value == 0 and name in sizes - graph.from_zero):
            raise ValuesError(f"{name} is {value}, but it {'cannot be negative' if value else 'must be positive'}")
        close = {size for spelled in _spelled(name) for size in alike.get(spelled, ())} if name not in sizes else ()
        slip = next((size for size in sorted(close) if _slip(name, size)), "")
        if slip:
            raise ValuesError(f"{graph.name} has no size '{name[:60]}'", hint=f"did you mean '{slip}'?")
    return found


def _spelled(name: str) -> list[str]:
    """A name without what slips are made in; then with each of its letters left out: slips have one of these in common.

    >>> _spelled("N_H")
    ['nh', 'h', 'n']
    """
    word = name.casefold().replace("_", "")
    return [word, *(word[:place] + word[place + 1 :] for place in range(len(word)))]


def _slip(name: str, size: str) -> bool:
    """Whether a name is that of a size, but for upper case, lines below, or one letter of many.

    >>> _slip("N_Layer", "N_layer"), _slip("n_layers", "N_layer"), _slip("n_b", "n_H"), _slip("h", "H")
    (True, True, False, False)
    """
    a, b = _spelled(name)[0], _spelled(size)[0]
    return min(len(a), len(b)) > 1 and (a == b or SequenceMatcher(None, a, b).ratio() > 1 - 2 / len(a + b))


# What knows parts of weights that are filled up, or has no part of a weight in it.
OF_PADDED = ("state_memory", "capacity", "activation_memory", "recomputation")
# What one stage of a pipeline holds: of stages that differ, the one that has the most answers.
OF_CACHES = ("kv_cache", "serving_capacity", "cache_of_sequences")
OF_STAGES = ("state_memory", "activation_memory", "peak_memory", "capacity", *OF_CACHES)
# What times the copies to the host and back.
OF_HOST = ("time", "step_time", "throughput", "scaling")
# What asks a model for its steps; of these the time of one rank alone has no stages.
OF_SERVING = ("prefill_time", "decode_time", "decode_throughput", "request_latency")
OF_ONE_RANK = ("time", "roofline")
# What a step of generating text has: the others are of training. Each with the option that says a pass, if it has one.
OF_STEPS = {
    "parameters": "", "flops": "scope", "tensor_size": "", "traffic": "", "intensity": "", "roofline": "phase",
    "communication": "phase", "time": "phase", "step_time": "", "kv_cache": "", "prefill_time": "", "decode_time": "",
    "decode_throughput": "", "critical_batch": "", "serving_capacity": "",
    "cache_of_sequences": "", "attention_intensity": "", "memory_bound_decode": "",
}  # fmt: skip
# What the weights alone tell, where a module tree does not say what feeds what.
OF_WEIGHTS = ("parameters", "state_memory", "communication")


def _of_step(graph: Graph, quantity: DeclaredQuantity, said: dict[str, Any]) -> None:
    """Raises ``ValuesError`` for what a step of generating text does not have: a backward pass and what is of it."""
    strategy = _strategy(said)
    if graph.step is None or not quantity.needs_model:
        return
    if strategy is not None and strategy.pipeline is not None and quantity.name in OF_ONE_RANK:
        raise ValuesError(f"{quantity.name} is of one rank with all layers: it has no stages of a pipeline",
                          hint="step_time of the step, or decode_time and prefill_time of the model")  # fmt: skip
    what = f"a {graph.step.phase} step has no backward pass"
    if quantity.name not in OF_STEPS:
        hint = f"ask the model itself; a step has {', '.join(OF_STEPS)}"
        whole = any(one.name == "prompt" for one in quantity.options)  # a request is all of its steps
        said_of = "the whole model, and not of one step" if whole else f"a training step, and {what}"
        raise ValuesError(f"{quantity.name} is of {said_of}", hint=hint)
    option = OF_STEPS[quantity.name]
    if not option:
        return
    if said.get(option) not in (None, "forward"):
        raise ValuesError(f"{option}: {said[option]} is asked of {quantity.name}, and {what}", hint="forward, or none")
    if "forward" in quantity.option(option).choices:
        said[option] = "forward"


def _cut(
    graph: Graph, strategy: Strategy, accounting: Accounting, copies: Graph | None, known: Mapping[str, Fraction]
) -> tuple[Strategy, Graph, Graph]:  # fmt: skip
    """A strategy at some numbers with the graph that it cuts, evenly and with parts of a vocabulary.

    Of the key/value heads of ``copies``, where it is a graph, ranks may have copies.
    """
    placed = strategy.at(known)
    placed = placed if copies is None else with_copies(placed, copies, known)
    even, placed = with_copied_heads(graph, placed, known)
    return placed, even, in_parts(even, placed, accounting, known)


def _same_cut(
    same_at: Callable[[Mapping[str, Fraction]], bool], cutting: Callable[..., tuple[Strategy, Graph, Graph]],
    now: tuple[Strategy, Graph, Graph], known: Mapping[str, Fraction],
) -> bool:  # fmt: skip
    """Whether a strategy cuts a graph in the same way at other numbers, and these lead to the same steps."""
    placed, even, parts = cutting(known)
    return placed == now[0] and even is now[1] and parts is now[2] and same_at(known)


def _unlike(
    graph: Graph, cut: PipelineCut, schedule: object, sends: bool, known: Mapping[str, Fraction]
) -> tuple[list[int], int]:  # fmt: skip
    return unlike(graph, cut, known, find(str(schedule)) if schedule else None, sends)


def _same_stages(
    asked: Callable[[Mapping[str, Fraction]], tuple[list[int], int]], now: tuple[list[int], int],
    found: tuple[Derivation, ...], at: int, known: Mapping[str, Fraction],
) -> bool:  # fmt: skip
    """Whether the same stages of a pipeline differ at other numbers, lead to the same, and the same has the most."""
    if asked(known) != now or not all(one.serves(known) for one in found):
        return False
    amounts = [replace(one, given=()).at(known).value for one in found[1:] and found]
    return not amounts or amounts.index(max(amounts)) == at


def _shards_only(strategy: Strategy | None) -> bool:
    """Whether a strategy cuts nothing but the batch and the states of weights."""
    only = strategy is None or all(rule.axis in ("batch", "first") for _, rule in strategy.rules)
    return only and (strategy is None or strategy.pipeline is None)


@dataclass(frozen=True)
class Model(DerivedQuantities):
    r"""A graph and what its numbers depend on in addition; it has a method for each quantity that can be derived.

    >>> model = load("Computation\tInput\tOutput\ny = xW\tx [B, D], W [D, F]\ty [B, F]\n")
    >>> model.flops().expr, str(model.parameters().at(D=3, F=5))
    (2*B*D*F, '15 parameters')
    """

    graph: Graph
    name: str = "model"
    dtype: str = USUAL_DTYPE
    values: Mapping[str, Fraction] = field(default_factory=dict)
    notation: Notation = field(default_factory=Notation)
    tables: tuple[str, ...] = field(default=(), compare=False)
    literal: Model | None = field(default=None, compare=False)

    def __repr__(self) -> str:
        from symcomm.core.notebook import summary

        return f"<Model {self.name}: {summary(self)}>"

    def _repr_markdown_(self) -> str:
        from symcomm.core.notebook import markdown

        return markdown(self)

    def _repr_html_(self) -> str:
        from symcomm.core.notebook import html

        return html(self)

    @cached_property
    def _known(self) -> Mapping[str, Fraction]:
        return self.graph.relations.complete(self.values)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on everything that the reader repaired, supposed or left out."""
        return self.graph.notes

    @door
    def part(self, name: str) -> Model:
        """One region of the model (an embedding, a layer, a head) as a model of its own.

        Raises ``ValuesError`` for an unknown name.
        """
        return replace(self, graph=self.graph.region(name), name=name, tables=(), literal=None)

    @door
    def derive(self, quantity: str | DeclaredQuantity, *, accounting: AccountingLike = None,
               asked: tuple[str, ...] | None = None, **options: Any) -> Derivation:  # fmt: skip
        """The derivation of a quantity by its name, or of one of a user's own.

        ``accounting`` is a name, a mapping or an ``Accounting``.

        ``asked`` are the conventions of which a note is wanted where they change nothing; all that are not at their
        default unless told.

        Raises ``ValuesError`` for an unknown quantity or option, for a choice that there is not, and for a required
        option left out.
        """
        chosen = Accounting.given(accounting)
        wanted = quantity if isinstance(quantity, str) else ByIdentity(quantity)
        try:
            return _once(ByIdentity(self), wanted, chosen, asked, **options)
        except TypeError:  # an option that is no key
            return self.derive_anew(quantity, accounting=chosen, asked=asked, **options)

    def derive_anew(self, quantity: str | DeclaredQuantity, *, accounting: AccountingLike = None,
                    asked: tuple[str, ...] | None = None, **options: Any) -> Derivation:  # fmt: skip
        """The same, whether or not it was asked before."""
        if isinstance(quantity, str) and quantity not in QUANTITIES:
            raise ValuesError(f"'{quantity[:60]}' cannot be derived", hint=QUANTITIES.hint(quantity))
        declared = QUANTITIES[quantity] if isinstance(quantity, str) else quantity
        if declared.names:
            return self._renamed(declared, {"accounting": accounting, "asked": asked, **options})
        # One of a user's own has no group, and nothing of what is known about quantities of its name.
        wanted, quantity = quantity, declared.name if declared.group else ""
        chosen = Accounting.given(accounting)
        known = self._known
        graph = self.graph.model if quantity == "parameters" else self.graph  # a step has those of its model
        setting = Setting(graph, chosen, self.dtype, self.notation, known)
        if autocast_of(self.dtype) is not None:
            setting = setting.in_format(self.dtype)
        said = {k: v for k, v in options.items() if v is not None}
        if quantity and declared.group != "facts":  # what a worksheet takes is asked for itself
            _of_step(self.graph, declared, said)
        declared.check(said)
        ranks = _degrees(_strategy(said))
        roles = {**meanings(self.graph), **ranks}
        notation = replace(self.notation, meanings={**roles, **self.notation.meanings})
        ask = partial(_ask, self, chosen) if declared.needs_model else None
        named = frozenset(_named(declared, said))
        setting = replace(setting, named=named, degrees=frozenset(ranks), notation=notation, ask=ask)
        again: Callable[[Mapping[str, Fraction]], Derivation | None] | None = None
        shared: CutVocabulary | None = None
        staged, counts = False, set[str]()
        whole = _strategy(said) if declared.needs_model else None
        if whole is not None:
            cut = whole.pipeline
            sizes = [*(size for _, size in whole.mesh), None if cut is None else cut.stages]
            degrees = {name for size in sizes if size is not None for name in names(size)} - known.keys()
            copies = self.graph if self.graph.step is not None or quantity in (*OF_CACHES, *OF_SERVING) else None
            cutting = partial(_cut, setting.graph, whole, chosen, copies)
            placed, even, parts = cutting(known)
            said["strategy"] = placed
            shared = cut_vocabulary(even, placed)
            setting = replace(setting, graph=parts)
            same = {"accounting": accounting, "asked": asked, **options}
            sends = quantity == "communication" and chosen.communication.endswith("per_rank")
            sends &= chosen.pipeline != "all_boundaries"  # which it refuses: no rank sends over all of them
            if cut is not None and "stage" not in said and (sends or quantity in OF_STAGES):
                most = self._most(setting, placed, quantity, same)
                if isinstance(most, Derivation):
                    return most
                staged = most
                if staged and sends:
                    counts = {*names(layer_count(setting.graph)), *names(stage_count(cut, setting.graph))}
            staged = staged or quantity == "capacity"  # numbers decide how many ranks divide the sizes
            copying = any(rule.axis == "heads" for _, rule in placed.rules)
            if degrees or staged or copying or (shared is not None and setting.graph is even):
                words_shared = shared if setting.graph is even else None
                heads = whole if copying else None
                again = partial(self._anew, {}, degrees, words_shared, staged, counts, heads, wanted, same)
            if said.get("links") is not None and placed.sizes.keys() != whole.sizes.keys():
                from symcomm.core.quantities.communication.links import BELOW, HIERARCHY, PIPE, by_axis

                on = by_axis(said["links"], whole)  # an axis of one rank has no links, the ranks of a head have its own
                kept = {axis: axis.removesuffix(OF_A_HEAD) for axis in (*placed.sizes, *HIERARCHY, PIPE, *BELOW)}
                said["links"] = {axis: on[of] for axis, of in kept.items() if of in on}
        if declared.needs_model:
            _whole_ranks(setting, _strategy(said))
            if quantity:  # what a worksheet takes is checked where it is derived
                _check_known(declared, chosen, _strategy(said))
            if quantity not in OF_WEIGHTS or not _shards_only(_strategy(said)):
                self.graph.check_flow(f"{declared.name} cannot be derived")
        asked = chosen.asked if asked is None else asked
        words = None if shared is None else shared.names(even)
        asked_for = quantity if isinstance(wanted, str) else ""  # a worksheet writes down the steps of what it takes
        ordered = partial(self._ordered, again, wanted, {"accounting": accounting, "asked": asked, **options})
        made = derived(asked_for, setting, said, partial(_telling, declared.derive, asked, again, words, ordered))
        if made.same_at is not None and whole is not None:
            made = replace(made, same_at=partial(_same_cut, made.same_at, cutting, cutting(known)))
            if whole.pipeline is not None and "stage" not in said:
                asked_of = partial(_unlike, setting.graph, said["strategy"].pipeline, said.get("schedule"), False)
                made = replace(made, same_at=partial(_same_stages, asked_of, asked_of(known), (made,), 0))
        rules = said["strategy"].rules if isinstance(said.get("strategy"), Strategy) else ()
        if self.graph.step is not None and self.graph.step.behind and any(rule.rests for _, rule in rules):
            told = "The new rows of a step behind earlier ones are few: sequence parallelism cuts nothing."
            made = replace(made, notes=(*made.notes, told))
        grows = self.graph.step.behind if self.graph.step is not None else quantity in (*OF_CACHES, *OF_SERVING)
        if grows and any(rule.axis == "sequence" and not rule.rests for _, rule in rules):
            told = "The tokens of a sequence grow from step to step: each rank has the mean share of them."
            made = replace(made, notes=(*made.notes, told))
        if quantity == "communication" and staged:
            told = "Numbers decide which stage sends most; without them the first one and a boundary are counted."
            made = replace(made, notes=(*made.notes, told))
        if isinstance(wanted, str):
            made.kept.setdefault("origin", (self, wanted, said))  # what an answer is checked against is asked again
        return made

    def _renamed(self, declared: DeclaredQuantity, said: Mapping[str, Any]) -> Derivation:
        """The derivation of a quantity with other names for its own symbols and steps."""
        plain = declared.name if declared.group else replace(declared, names=())
        wanted = dict(declared.names)
        apart = {*wanted, *wanted.values()}  # numbers of these are not yet known to belong to it
        bare = replace(self, values={name: value for name, value in self.values.items() if name not in apart})
        try:
            own: Collection[str] = bare.derive(plain, **said).own_names
        except SymcommError:  # it needs numbers to be derived at all
            own = wanted
        by = Renaming({old: new for old, new in wanted.items() if old in own})
        if not by.names:
            return self.derive(plain, **said)
        known = replace(self, values=by.before(self.values), notation=by.notation_before(self.notation))
        return renamed(known.derive(plain, **said), by.names)

    def _most(
        self, setting: Setting, strategy: Strategy, quantity: str, said: Mapping[str, Any]
    ) -> Derivation | bool:  # fmt: skip
        """The derivation of the stage that has (or sends) the most; whether missing numbers decide it.

        Of what is sent, one stage may send the most whatever the numbers are.
        """
        assert strategy.pipeline is not None
        sends = quantity == "communication"
        asked = partial(_unlike, setting.graph, strategy.pipeline, said.get("schedule"), sends)
        try:
            stages, last = asked(setting.values)
        except SymcommError:  # the quantity says what is wrong
            return False
        found: list[Derivation] = []
        for stage in stages:
            found.append(self.derive(quantity, **{**said, "stage": stage}))
            if found[-1].needs and not sends:
                return True
        if not found:
            return last < 0
        several = quantity == "serving_capacity"
        fits = "S" if several else said.get("solve_for")  # the largest size that fits is the least of all stages
        if any(one.needs for one in found):
            sent = [one.expr for one in found]
            most = [n for n, mine in enumerate(sent) if all((mine - other).expand().is_nonnegative for other in sent)]
            if not most:
                return True
            at = most[0]
        else:
            amounts = [one.at().value for one in found]
            largest = any(s.name == fits for axis in self.graph.axes.values() for s in axis.size.free_symbols)
            at = amounts.index(min(amounts) if largest or several else max(amounts))
        stage, made = stages[at], found[at]
        which = "the first one" if not stage else "the last one" if stage == last else f"stage {stage} (0 is the first)"
        told = f"No stage {'sends' if sends else 'has'} more than {which}."
        if fits is not None:
            told = f"T{which[1:].replace(' one', ' stage')}" if which[0] == "t" else f"S{which[1:]}"
            told += " needs the most memory, so every other stage fits, too."
        same = partial(_same_stages, asked, (stages, last), tuple(found), at)
        return replace(made, notes=(*made.notes, told), same_at=made.same_at and same)

    def _anew(
        self, made: dict[frozenset[tuple[str, Fraction]], Derivation], degrees: Collection[str],
        shared: CutVocabulary | None, staged: bool, counts: Collection[str], copying: Strategy | None,
        quantity: str | DeclaredQuantity, said: Mapping[str, Any], known: Mapping[str, Fraction],
    ) -> Derivation | None:  # fmt: skip
        """What is derived where some degrees turn out to be one, or not to divide the words of a vocabulary.

        Nothing is cut or sent along an axis of one rank; parts of a vocabulary are whole words. ``staged`` says that
        numbers decide which stage has the most, or what divides: ``counts`` of layers and stages alone, where they can.
        Numbers may decide whether ``copying`` copies heads.
        """
        at = {name: Fraction(1) for name in degrees if known.get(name) == 1}
        if shared is not None and shared.uneven(self.graph, known):
            at |= {name: known[name] for name in (*shared.names(self.graph), *names(shared.ranks))}
        if copying is not None:
            copying = copying.at(complete := self.graph.relations.complete(known))
            staged = staged or with_copied_heads(self.graph, copying, complete)[1] is not copying
        if staged:
            missing = {name: value for name, value in known.items() if name not in self.values}
            at |= {name: value for name, value in missing.items() if name in counts} or missing
        key = frozenset(at.items())
        if at and key not in made:
            made[key] = self._knowing({**self.values, **at}).derive(quantity, **said)
        return made.get(key)

    def _ordered(
        self, otherwise: Callable[[Mapping[str, Fraction]], Derivation | None] | None,
        quantity: str | DeclaredQuantity, said: Mapping[str, Any], orders: Sequence[Condition],
        known: Mapping[str, Fraction],
    ) -> Derivation | None:  # fmt: skip
        """What is derived where numbers make another order of products the cheaper one."""
        other = otherwise(known) if otherwise is not None else None
        if other is None and not all(one.holds(known) for one in orders if {*one.names} <= known.keys()):
            return self._knowing({**known, **self.values}).derive(quantity, **said)
        return other

    def _knowing(self, values: Mapping[str, Fraction]) -> Model:
        """The same with these values."""
        graph = self.graph if self.graph.step is None else again(self.graph, Accounting(), values)
        return replace(self, values=values, graph=graph)

    def at(self, /, **values: object) -> Model:
        """The same model with more values known."""
        known = {**self.values, **_numbers(values, self.graph)}
        self.graph.check_sizes(self.graph.relations.complete(known))
        return self._knowing(known)

    @door
    def prefill(self, new: Count | None = None, past: Count = 0) -> Model:
        """The step that reads a prompt: ``new`` positions (all of the model's) behind ``past`` ones, as a model.

        Its quantities are the same methods; it has no backward pass. With ``past`` it is one chunk of a prompt.
        Raises ``ValuesError`` where a position reads later ones.

        >>> table = "y = x W\\tx [B, L, D], W [D, F]\\ty [B, L, F]\\n"
        >>> load(f"Computation\\tInput\\tOutput\\n{table}").prefill(new=8).flops().expr
        16*B*D*F
        """
        return self._step("prefill", new, past)

    @door
    def decode(self, new: Count = 1, past: Count | None = None) -> Model:
        """The step that makes a token a sequence (``new``: verifies drafts) at a context of ``past`` tokens: a model.

        ``past`` is the symbol ``c`` where it is not said. Its quantities are the same methods; it has no backward pass.
        Raises ``ValuesError`` where a position reads later ones.

        >>> table = "y = x W\\tx [B, L, D], W [D, F]\\ty [B, L, F]\\n"
        >>> load(f"Computation\\tInput\\tOutput\\n{table}").decode().flops().expr
        2*B*D*F
        """
        return self._step("decode", new, past)

    def _step(self, phase: str, new: Count | None, past: Count | None) -> Model:
        """A prefill or a step behind it; of what is a step already another one of its model."""
        self.graph.check_flow(f"a {phase} step cannot be made")
        made = step_of(Setting(self.graph.model, notation=self.notation, values=self.values), phase, new, past)
        return replace(self, graph=made.graph, name=self.name, notation=made.notation, tables=(), literal=None)

    def open_step(self) -> Model:
        """A step with symbols for its new and earlier positions, whose numbers are among the values; else the model."""
        step = self.graph.step
        if step is None:
            return self
        setting = Setting(step.origin, Accounting.of(**dict(step.choices)), notation=self.notation)
        sizes: dict[str, object] = {}
        for name, size in (("q", step.new), ("c", step.past)):
            free = next(n for n in (name, f"{name}'", f"{name}''") if n not in setting.symbols)
            sizes |= {str(size) if not size.is_number else free if size else "0": size}
        values = {name: Fraction(int(str(size))) for name, size in sizes.items() if str(size) not in ("0", name)}
        new, past = sizes
        made = step_of(replace(setting, values={**values, **self.values}), step.phase, new, past)
        return replace(self, graph=made.graph, notation=made.notation, values={**values, **self.values})


@door
def load(
    source: str | Path | Table,
    *,
    file: str | None = None,
    table: int | None = None,
    repeat: str = "",
    batch: str = "",
    dtype: str = "",
    values: Mapping[str, object] | None = None,
    inputs: Iterable[str] = (),
    weights: Iterable[str] = (),
    axes: Mapping[str, str] = MappingProxyType({}),
    notation: Notation | None = None,
    name: str = "",
) -> Model:
    """The model of a layer table: from a path, a text that holds the table, or a ``Table``.

    A text or file with several layer tables needs ``table`` (1 is the first). Numbers are in fp16 where ``dtype`` does
    not say it. Raises ``TableError`` where there is no table with the columns Computation, Input and Output, and the
    errors of ``symcomm.core.graph.build.build``.
    """
    every, named = formats(dtype or USUAL_DTYPE)
    if not isinstance(source, Table):
        if is_path(source):
            file = file or str(source)
            text = read_text(source, "the path of a problem file or a table")
        else:
            text, file = str(source).removeprefix("\ufeff"), file or "<text>"
        found = layer_tables(text, file)
        if not found:
            raise TableError(f"{file}: there is no layer table", hint=missing_table(text, file))
        if table is None and len(found) > 1:
            lines = ", ".join(str(t.line) for t in found)
            raise TableError(f"{file}: there are {len(found)} layer tables (lines {lines})", hint="say which: table=1")
        if table is not None and not 1 <= table <= len(found):
            raise TableError(f"{file}: there is no layer table {table}", hint=f"there are {len(found)}")
        source = found[(table or 1) - 1]
    known = {*(notation.meanings if notation else ()), *(values or ())}
    weights = tuple(weights)
    rows = parse_layer(source, scalars=weights)
    graph = build(
        rows, name=name or "layer", repeat=repeat, batch=batch, inputs=inputs, weights=weights, known=known, axes=axes,
        notation=notation,
    ).in_formats(named)  # fmt: skip
    given = _numbers(values or {}, graph)
    made = Model(graph, name or "layer", every or USUAL_DTYPE, given, notation or Notation(), (as_text(source),))
    graph.check_sizes(graph.relations.complete(given))  # refuses values that contradict one another
    return made


def from_blueprint(
    blueprint: Blueprint, *, dtype: str = "", values: Mapping[str, object] | None = None,
    notation: Notation | None = None,
) -> Model:  # fmt: skip
    """The model of a blueprint; ``values`` are known numbers other than those the reader found.

    Numbers are in ``dtype``, or as the blueprint says; where the two differ, a note tells so.
    """
    every, named = formats(dtype) if dtype else ("", {})
    if blueprint.dtype not in ("", every):
        said = f"asked for; the configuration says {blueprint.dtype}" if every else "the configuration says"
        said = f"numbers are in {every or blueprint.dtype}, as {said}"
        blueprint = replace(blueprint, notes=(*blueprint.notes, said))
    every = every or blueprint.dtype or USUAL_DTYPE
    base = notation or Notation()
    has = Setting(blueprint.graph).symbols | {rows for _, rows, _ in blueprint.limits}
    meant = {name: text for name, text in blueprint.meanings.items() if name in has}  # of all its family's letters
    notation = Notation(base.latex, {**meant, **base.meanings})
    known: dict[str, Fraction] = {name: Fraction(value) for name, value in blueprint.values.items()}
    known |= _numbers(values or {}, blueprint.graph)
    blueprint.graph.check_sizes(blueprint.graph.relations.complete(known))  # refuses values that do not fit
    literal = None
    if blueprint.literal is not None:
        literal = from_blueprint(blueprint.literal, dtype=every, notation=notation)
    tables = tuple(part.text for part in blueprint.parts)
    return Model(blueprint.graph.in_formats(named), blueprint.name, every, known, notation, tables, literal)


def model_of_parts(
    models: Sequence[tuple[Model, str]],
    *,
    name: str = "model",
    values: Mapping[str, object] | None = None,
    notation: Notation | None = None,
) -> Model:
    """The model whose parts are models; each with the tensor that stands for the result of the layers, or nothing.

    Raises ``ValuesError`` where their number formats or values differ, or where no row makes such a tensor.
    """
    known: dict[str, Fraction] = {}
    if not models:
        raise ValuesError("a model needs a part", hint='model_of_parts([(embedding, "x"), (layer, "y")])')
    for model, _ in models:
        if model.dtype != models[0][0].dtype:
            raise ValuesError(f"{models[0][0].name} is in {models[0][0].dtype}, but {model.name} in {model.dtype}",
                              hint="give the parts of a model one dtype")  # fmt: skip
        for size, value in model.values.items():
            if known.setdefault(size, value) != value:
                raise ValuesError(f"{size} is {known[size]} in one part and {value} in another one")
    made = tuple(PartGraph(model.name, model.graph, "\n".join(model.tables), at) for model, at in models)
    dtype = models[0][0].dtype
    return from_blueprint(Blueprint(name, made, {}), dtype=dtype, values={**known, **(values or {})}, notation=notation)


@door
def load_known(source: object, *, name: str = "", dtype: str = "", values: Mapping[str, object] | None = None,
               notation: Notation | None = None, architecture: str = "", leaves: Leaves | None = None,
               loss: bool | None = None, **other: Any) -> Model | None:  # fmt: skip
    """The model of a configuration or a module; None where the source is something else, such as a layer table.

    Raises ``ValuesError`` for options that the source cannot take, and ``TableError`` for what no model is read from.
    """
    blueprint = read(source, architecture=architecture, leaves=leaves, loss=loss)
    for option, said in (("loss", loss), ("architecture", architecture or None), ("leaves", leaves or None)):
        if blueprint is None and said is not None:
            raise ValuesError(
                f"{option} does not belong to layer tables; this is no configuration and no module",
                hint=r"a layer table has its loss as a row, such as \ell = CrossEntropy(o, r)" if loss else "",
            )
    if blueprint is None:
        if not isinstance(source, (str, Path, Table)):
            hint = "a path, a text, a Table, a configuration (a mapping) or a PyTorch module"
            raise TableError(f"a model cannot be read from a {type(source).__name__}", hint=hint)
        return None
    unknown = [key for key, value in other.items() if value]
    if unknown:
        raise ValuesError(f"{unknown[0]} belongs to layer tables; {blueprint.name} was not read from one")
    made = from_blueprint(blueprint, dtype=dtype, values=values, notation=notation)
    return replace(made, name=name) if name else made


def ratio(a: Derivation, b: Derivation, title: str = "", compared: Iterable[str] = ()) -> Derivation:
    """The quotient of two derivations, with the steps of both.

    ``compared`` names conventions in which the two may differ; the notes say both. Raises ``AccountingError`` naming
    both conventions where they differ in another one.

    >>> from symcomm.exams.problems.load import load
    >>> m = load("Computation\\tInput\\tOutput\\ny = x W\\tx [B, D], W [D, F]\\ty [B, F]\\n")
    >>> payload, sent = (m.communication("data(k)", "all-reduce", accounting=a) for a in ("payload", "sent_per_rank"))
    >>> print(ratio(sent, payload, compared=["communication"]).notes[0])
    Compared: communication sent_per_rank with payload.
    """
    from symcomm.core.optimum.cost import closed, units_of
    from symcomm.core.optimum.dimension import counted, with_units
    from symcomm.core.optimum.pair import comparable, differences

    accounting = comparable(a, b, tuple(compared))
    said = differences(a, b)
    given = dict(a.given)
    for name, value in b.given:
        if given.setdefault(name, value) != value:
            raise ValuesError(f"{name} is {given[name]} in '{a.title}', but {value} in '{b.title}'",
                              hint=f"leave {name} open, and put it in with at({name}=...)")  # fmt: skip
    relations = Relations(tuple((dict(a.relations.equations) | dict(b.relations.equations)).items()))
    taken = {s.name for made in (a, b) for s in made.expr.free_symbols}

    def free(name: str) -> str:
        return name if name not in taken else free(f"{name}'")

    top, bottom, quotient = (forms.Sym(free(name)) for name in "abr")
    if b.expr == 0:
        raise ValuesError(f"'{b.title}' is 0: nothing is divided by it")
    sides = [closed(made) for made in (a, b)]
    units = {**units_of(sides[0]), **units_of(sides[1])}
    worth = [relations.expand(forms.value(counted(side))) for side in sides]
    one, two = (with_units(forms.from_expr(expr), units) for expr in worth)
    steps = [
        Step(top.name, one, a.unit, Reason("numerator", f"{a.title}.", witness=a.again)),
        Step(bottom.name, two, b.unit, Reason("denominator", f"{b.title}.", witness=b.again)),
        Step(quotient.name, forms.Ratio(top, bottom), ONE,
             Reason("divide", "One over the other.", witness=partial(worked_out, forms.Ratio(top, bottom)))),
    ]  # fmt: skip
    try:
        with limited(SECONDS, working=True):
            whole, pieces = frozen(worth[0] / worth[1])
            neat = with_units(forms.from_expr(whole.cancel().xreplace(pieces)), units)
        steps.append(Step(quotient.name, neat, ONE, Reason("algebra", "Cancel."), "="))
    except OverdueError:
        pass  # it stands as it is
    return Derivation(
        title or f"{a.title} over {b.title}", accounting, tuple(steps),
        tuple(f for f in dict.fromkeys((*a.touched, *b.touched)) if field_of(f) not in said), relations, (),
        tuple(given.items()), a.notation, tuple(dict.fromkeys((*said.values(), *a.notes, *b.notes))),
        (*a.where, *b.where), a.sizes | b.sizes, a.named | b.named, (*a.checks, *b.checks),
    )  # fmt: skip


@door
def derive(quantity: str, *, accounting: AccountingLike = None, **given: Any) -> Derivation:
    """The derivation of a quantity that needs no model, by its name.

    ``given`` are its options, and the numbers of its symbols; symbols that are not given stay open. Raises
    ``ValuesError`` for an unknown name, for a quantity that needs a model, and as ``Model.derive`` does.

    >>> str(derive("buckets", s="33 GB", w="100 GB/s", o="2 ms", n_b=5).at())
    '0.076 s = 76 ms'
    """
    if quantity in QUANTITIES and QUANTITIES[quantity].needs_model:
        raise ValuesError(f"{quantity} needs a model", hint=f"sc.load('config.json').{quantity}()")
    options = {o.name for o in QUANTITIES[quantity].options} if quantity in QUANTITIES else {*given}
    numbers = {name: value for name, value in given.items() if name not in options}
    empty = Model(Graph("no model", {}, {}, ()), values={name: exact(value, name) for name, value in numbers.items()})
    made = empty.derive(quantity, accounting=accounting, **{n: v for n, v in given.items() if n in options})
    made.check_names(numbers)
    for name, value in numbers.items():
        made.number(name, value)  # its unit
    return made


def peak_rate(
    clock: Number | None = None, units: Number | None = None, fma: Number | None = None,
    accounting: AccountingLike = None,
) -> Derivation:  # fmt: skip
    """The peak rate of a processor.

    >>> str(peak_rate(clock="1.41 GHz", units=108, fma=512).at())
    '155 934 720 000 000 FLOP/s ≈ 155.9 TFLOP/s'
    """
    empty = Model(Graph("no model", {}, {}, ()))
    return empty.derive("peak_rate", accounting=accounting, clock=clock, units=units, fma=fma)


def balance(
    name: str | Device, dtype: str, accounting: AccountingLike = None, notation: Notation | None = None
) -> Derivation:
    """The operations a device does in the time it moves one byte of its memory: the ridge of its roofline.

    >>> balance("A100-80GB-SXM", "fp16").at().value
    Fraction(7796736, 50975)
    """
    empty = Model(Graph("no model", {}, {}, ()), notation=notation or Notation())
    return empty.derive("balance", accounting=accounting, device=name, dtype=dtype)


def broadcast(plan: str, accounting: AccountingLike = None, **options: Any) -> Derivation:
    """The time of a broadcast from the host: the plan ``host``, ``serial``, ``relay`` or ``pipelined``.

    ``options`` are those of the quantity; what is not given stays a symbol, a latency of 0 is left out.

    >>> str(broadcast("serial", size="4 GB", bandwidth="50 GB/s", latency=0, receivers=3).at())
    '0.32 s = 320 ms'
    """
    empty = Model(Graph("no model", {}, {}, ()))
    return empty.derive("broadcast", plan=plan, accounting=accounting, **options)


@dataclass(frozen=True)
class OwnQuantity:
    """A worksheet of a user's own and the model it is asked of: call it with the options of the worksheet."""

    model: Model
    declared: DeclaredQuantity

    @property
    def options(self) -> dict[str, str]:
        """The options with their meanings."""
        return {option.name: option.told for option in self.declared.options}

    def __call__(self, *, accounting: AccountingLike = None, **options: Any) -> Derivation:
        """The derivation of the question that the options choose; raises ``ValuesError`` for one that nothing uses."""
        return self.model.derive(self.declared, accounting=accounting, **options)


@door
def worksheet(source: str | Path, model: Model | None = None, *, line: str = "") -> OwnQuantity:
    """The quantity that a worksheet says, of a model where it takes facts from one; ``line`` asks one of its lines.

    ``source`` is a path, or the text of a worksheet. Raises ``DocumentError`` and ``FormulaError`` at a wrong line.

    >>> lines = ("# A square", "## Symbols", "- a: side", "## Lines", "- A := a^2", "  area: So.", "  run: loops(a, a)")
    >>> worksheet(chr(10).join(lines))().at(a=3).value
    Fraction(9, 1)
    """
    if isinstance(source, str) and "\n" in source:
        sheet = parse_worksheet(source, "worksheet").check()
    else:
        sheet = read_worksheet(source)
    declared = QUANTITIES.of_worksheet(sheet.ask(line) if line else sheet)
    if model is None and declared.needs_model:
        raise ValuesError(f"{sheet.name} takes facts from a model", hint="worksheet('cost.md', sc.load('config.json'))")
    return OwnQuantity(model or Model(Graph("no model", {}, {}, ())), declared)
