"""One structure of a search: its strategy with symbolic degrees, and the closed forms of its time and memory.

Nothing is counted here. The passes for a step's time, for states and for activations are asked once, with symbols for
the degrees and the microbatches; a search then only puts numbers in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import prod
from typing import TYPE_CHECKING, Any

import sympy as sp

from symcomm import form as forms
from symcomm.accounting import Accounting
from symcomm.derivation import Step
from symcomm.dtypes import element_bytes
from symcomm.errors import StrategyError, ValuesError
from symcomm.form import Form, Largest, Num, Product, Ratio, Smallest, Sym, Total, num, product
from symcomm.graph.axis_roles import batch_axes
from symcomm.notation import symbol
from symcomm.parallel.placement import cut_axes
from symcomm.parallel.strategy import Strategy
from symcomm.program.rewrites.recomputation import RERUN
from symcomm.quantities.communication import buckets
from symcomm.quantities.communication.communication import Call, joint
from symcomm.quantities.communication.wire import wire
from symcomm.quantities.counting.load import microbatched
from symcomm.quantities.memory import activation_memory, state_memory
from symcomm.quantities.setting import Setting
from symcomm.quantities.time import step_time
from symcomm.quantities.time import time as layer_time
from symcomm.searching.template import PIPELINE, Piece, composed, degrees
from symcomm.units import Unit

if TYPE_CHECKING:
    from sympy import Expr

    from symcomm.model import Model

CONVENTION = {how: name for name, how in RERUN.items()}  # none, selective, full
MICROBATCHES, BUCKETS = "microbatches", "buckets"


@dataclass(frozen=True)
class Question:
    """What all structures of a search share; ``varied`` are sizes of the model that it goes over."""

    model: Model
    varied: tuple[str, ...] = ()
    recipe: str = "mixed_adam"
    gradient_dtype: str | None = None
    call_overhead: Fraction = Fraction(0)
    accounting: Accounting = field(default_factory=Accounting)
    rates: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Draft:
    """A structure before its closed forms are derived: the parts of its strategy, and how it runs."""

    pieces: tuple[Piece, ...]
    recomputation: str = "none"
    schedule: str = ""
    bucketed: bool = False

    @property
    def degrees(self) -> dict[str, Form]:
        """The size of each axis of the mesh, the stages of a pipeline among them."""
        return degrees(composed(self.pieces))

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes of the mesh."""
        return tuple(self.degrees)


@dataclass(frozen=True)
class Constraint:
    """``divisor`` must divide ``size``: what is cut, and by what."""

    label: str
    size: Form
    divisor: Form


@dataclass(frozen=True)
class Core:
    """What is evaluated for every configuration: the steps to ``time`` and ``memory``, all numbers put in.

    ``variables`` are the symbols that are left.
    """

    variables: tuple[str, ...]
    steps: tuple[tuple[str, Form], ...]
    constraints: tuple[Constraint, ...]


@dataclass(frozen=True)
class Structure:
    """A draft with its closed forms, as the steps that derive them.

    ``symbols`` names the symbol of each varied axis, of the microbatches and of the buckets. ``network`` lists calls:
    what they are, whether they come at the end of the batch, and their seconds in one layer.
    """

    draft: Draft
    core: Core
    symbols: tuple[tuple[str, str], ...]
    steps: tuple[tuple[str, Form], ...]
    network: tuple[tuple[str, bool, Form], ...]
    known: tuple[tuple[str, Fraction], ...]
    touched: tuple[str, ...]

    def at(self, values: Mapping[str, int]) -> dict[str, Fraction]:
        """The exact number of every step in one configuration."""
        found = {**dict(self.known), **{name: Fraction(value) for name, value in values.items()}}
        for name, form in self.steps:
            found[name] = forms.evaluate(form, found)
        return found


class _Terse(Setting):
    """A setting whose steps are numbers to be: what they are worth as expressions is not worked out or written."""

    def worth(self, form: Form, known: Mapping[str, Expr]) -> Expr:
        """Nothing that anybody reads."""
        return sp.Integer(0)

    def collected(self, name: str, form: Form, unit: Unit, known: Mapping[str, Expr]) -> Step | None:
        """No second line."""
        return None


def structure(question: Question, draft: Draft) -> Structure:
    """The closed forms of a draft.

    Raises ``StrategyError`` where its strategy cannot be applied to the model, ``ValuesError`` for missing numbers.
    """
    model, strategy = question.model, composed(draft.pieces)
    accounting = replace(question.accounting, recomputation=CONVENTION[draft.recomputation])
    known = {n: v for n, v in model.graph.relations.complete(model.values).items() if n not in question.varied}
    setting = _Terse(model.graph, accounting, model.dtype, model.notation, known)
    m = _fresh("m", setting, strategy)
    rates: dict[str, object] = dict(question.rates)
    made = step_time.write(setting, strategy, m, None, question.gradient_dtype, rates)
    micro = microbatched(setting, m)
    kept = made.strategy if strategy is not None else None
    flying: dict[str, Any] = {"schedule": draft.schedule} if made.strategy.pipeline is not None else {}
    states = state_memory.derive(setting, kept, question.recipe)
    # A pipeline's pass divides the batch into microbatches itself.
    whole = setting if made.strategy.pipeline is not None else micro
    activations = activation_memory.derive(whole, kept, recomputation=draft.recomputation, **flying)
    steps = [*_named("", made.work.steps), *_named(STATES, states.steps), *_named(KEPT, activations.steps)]
    varied = [(axis, size.name) for axis, size in degrees(strategy).items() if isinstance(size, Sym)]
    varied.append((MICROBATCHES, m.name))
    time = made.time
    if draft.bucketed:
        b = _fresh("n_b", setting, strategy)
        varied.append((BUCKETS, b.name))
        steps += _bucketed(question, setting, micro, made, b, rates)
        time = Total((made.time, forms.negative(Sym(f"{BUCKET}sync")), Sym(f"{BUCKET}{_last(steps)}")))
    steps.append(("time", time))
    held = (Sym(STATES + states.answer.name), Sym(KEPT + activations.answer.name))
    steps += [("activations", held[1]), ("memory", Total(held))]
    numbers = {**known, **dict(made.writer.machine.given)}
    variables = tuple(dict.fromkeys((*(name for _, name in varied), *question.varied)))
    _check_known(steps, {*numbers, *variables})
    rules = tuple(
        Constraint(c.label, _numeric(c.size, numbers), _numeric(c.divisor, numbers))
        for c in _constraints(micro, strategy, m)
    )
    needed = _needed(steps, ("time", "memory"))
    core = Core(variables, tuple((name, _numeric(form, numbers)) for name, form in needed), rules)
    touched = tuple(dict.fromkeys((*made.fields, *activations.touched)))
    return Structure(
        draft, core, tuple(varied), tuple(steps), _network(made), tuple(numbers.items()), touched
    )  # fmt: skip


STATES, KEPT, BUCKET = "states: ", "kept: ", "buckets: "  # before the names of steps of other derivations


def _named(mark: str, steps: Iterable[Step]) -> list[tuple[str, Form]]:
    """The steps that define something, their names marked, so that those of several derivations stay apart."""
    defined = [step for step in steps if step.relation == ":="]
    own = {step.name for step in defined}

    def marked(s: Sym) -> Form:
        return Sym(mark + s.name, s.whole, s.unit) if s.name in own else s

    return [(mark + step.name, forms.substitute(step.form, marked)) for step in defined]


def _last(steps: list[tuple[str, Form]]) -> str:
    return steps[-1][0].removeprefix(BUCKET)


def _needed(steps: list[tuple[str, Form]], wanted: tuple[str, ...]) -> list[tuple[str, Form]]:
    """The steps that some names rest on."""
    names, kept = set(wanted), []
    for name, form in reversed(steps):
        if name in names:
            names |= set(forms.names(form))
            kept.append((name, form))
    return kept[::-1]


def _fresh(name: str, setting: Setting, strategy: Strategy | None) -> Sym:
    taken = {*setting.symbols, *(n for size in degrees(strategy).values() for n in forms.names(size))}
    for size in degrees(strategy).values():
        for used in forms.names(size):
            if used in setting.symbols:
                raise StrategyError(f"{used} is a size of the model and of the mesh", hint="call the degree otherwise")
    while name in taken:
        name += "'"
    return Sym(name)


def _check_known(steps: list[tuple[str, Form]], known: set[str]) -> None:
    defined = {name for name, _ in steps}
    for _, form in _needed(steps, ("time", "memory")):
        for name in forms.names(form):
            if name not in defined and name not in known:
                raise ValuesError(f"a search needs a value for {name}", hint=_where(name))


def _numeric(form: Form, numbers: Mapping[str, Fraction]) -> Form:
    """The form with all numbers put in, and what then has no name in it worked out exactly."""

    def go(f: Form) -> Form:
        if isinstance(f, Sym):
            return Num(numbers[f.name]) if f.name in numbers else f
        if isinstance(f, Num):
            return Num(f.number)
        if not any(isinstance(piece, Sym) and piece.name not in numbers for piece in forms.walk(f)):
            return Num(forms.evaluate(f, numbers))
        if isinstance(f, Product):
            parts = [go(p) for p in f.factors]
            flat = [q for p in parts for q in (p.factors if isinstance(p, Product) else (p,))]
            scale = prod((p.number for p in flat if isinstance(p, Num)), start=Fraction(1))
            return product(num(scale), *(p for p in flat if not isinstance(p, Num)))
        if isinstance(f, (Total, Largest, Smallest)):
            return type(f)(tuple(go(p) for p in f.parts))
        if isinstance(f, Ratio):
            return Ratio(go(f.top), go(f.bottom))
        return forms.substitute(f, lambda s: Num(numbers[s.name]) if s.name in numbers else s)

    return go(form)


def _where(name: str) -> str:
    rates = {"R": "peak", "R_8bit": "peak", "W_mem": "memory", "W_net": "network"}
    return f"name a device, or give {rates[name]}" if name in rates else f"for instance {name}=8"


def _constraints(micro: Setting, strategy: Strategy | None, m: Sym) -> tuple[Constraint, ...]:
    """What must divide: each named axis that the strategy cuts, the batch, and the layers."""
    graph, sizes = micro.graph, degrees(strategy)
    found: dict[tuple[Expr, Expr], Constraint] = {}

    def add(label: str, size: Expr, axes: tuple[str, ...]) -> None:
        top, bottom = sp.fraction(graph.relations.gather(size))
        divisor = sp.Mul(bottom, *(forms.value(sizes[axis]) for axis in axes))
        names = [*axes, *([MICROBATCHES] if divisor.has(forms.value(m)) else [])]
        if divisor != 1 and (top, divisor) not in found:
            label = f"{label} by {' × '.join(names)}"
            found[top, divisor] = Constraint(label, forms.from_expr(top), forms.from_expr(divisor))

    for _, axis, meshes in cut_axes(graph, strategy) if strategy is not None else ():
        add(axis.label, axis.size, meshes)
    for name in batch_axes(graph):
        # Where the strategy cuts the batch as well, that cut has said it already.
        if not any(top == sp.fraction(graph.axes[name].size)[0] for top, _ in found):
            add(graph.axes[name].label, graph.axes[name].size, ())
    if PIPELINE in sizes:
        add(graph.repeat, symbol(graph.repeat), (PIPELINE,))
    return tuple(found.values())


def _network(made: step_time.StepTime) -> tuple[tuple[str, bool, Form], ...]:
    """Each kind of call over each axis of the mesh, with its seconds in one layer; for telling, not for adding up."""
    found: dict[tuple[str, bool], list[Form]] = {}
    for phase, call in made.load.calls:
        if _ranks(made, call) is not None:
            label = f"{call.kind} of {_moved(call, phase)} over {joint(call.meshes)}"
            found.setdefault((label, phase == "end"), []).append(_seconds(made, call))
    return tuple((label, end, Total(tuple(parts))) for (label, end), parts in found.items())


def _ranks(made: step_time.StepTime, call: Call) -> Form | None:
    """How many ranks a call has; None for one rank, and for messages between stages."""
    k = None if call.kind == "send" else made.strategy.ranks(call.meshes)
    return None if k == num(1) else k


def _moved(call: Call, phase: str) -> str:
    what = call.what.strip()
    if what.startswith("updated"):
        return "updated weights"
    if what == "weight":
        return "weights"
    if what == "gradient of":
        return "weight gradients" if phase == "end" else "activation gradients"
    return "activations"


def _seconds(made: step_time.StepTime, call: Call, latency: bool = True) -> Form:
    """The time of one call by itself."""
    setting, machine = made.work.setting, made.writer.machine
    k = _ranks(made, call)
    assert k is not None
    cost = wire(call.kind, setting.accounting.algorithm, k)
    moved = product(element_bytes(call.dtype), cost.through(setting.accounting.link), forms.from_expr(call.elements))
    seconds: Form = Ratio(moved, machine.network)
    if latency and machine.latency is not None:
        seconds = Total((seconds, product(cost.rounds, machine.latency)))
    return seconds


def _bucketed(
    question: Question, setting: Setting, micro: Setting, made: step_time.StepTime, b: Sym, rates: dict[str, object]
) -> list[tuple[str, Form]]:
    """The steps to the reduction of the gradients at the end of the batch, and to what is left of it in buckets.

    The last step is what is left, beside the backward pass of the last microbatch.
    """
    calls = [c for phase, c in made.load.calls if phase == "end" and c.what.startswith("gradient")]
    calls = [c for c in calls if _ranks(made, c) is not None]
    if not calls:
        raise StrategyError("no gradients are reduced between ranks", hint="buckets go with data parallelism")
    count: Form = Sym("n_stage") if made.strategy.pipeline is not None else setting.repeat
    chosen = replace(made.strategy, pipeline=None)
    _, work, writer, terms, *_ = layer_time.write(micro, chosen, "backward", None, None, question.gradient_dtype, rates)
    one = writer.time("t", terms, "The backward pass")
    assert isinstance(one, Sym)
    steps = [
        ("sync", product(count, Total(tuple(_seconds(made, c) for c in calls)))),
        ("moved", product(count, Total(tuple(_seconds(made, c, latency=False) for c in calls)))),
    ]
    backward = _named("", work.steps)
    cost = buckets.overhead(micro, None)
    put: dict[str, Form] = {
        "s": Sym("moved"),  # seconds of transfer, at one byte a second
        "w": num(1),
        "o": num(question.call_overhead),
        "n_b": b,
        "rho": Ratio(product(count, Sym(f"back {one.name}")), Sym("moved")),
    }
    own = {name for name, _ in backward}
    steps += [(f"back {name}", _marked(form, {n: Sym(f"back {n}") for n in own})) for name, form in backward]
    left = _named("", [step for step in cost.steps if step.relation == ":="])
    steps += [(name, _marked(form, put)) for name, form in left]
    return [(BUCKET + name, _marked(form, {n: Sym(BUCKET + n) for n, _ in steps})) for name, form in steps]


def _marked(form: Form, names: Mapping[str, Form]) -> Form:
    return forms.substitute(form, lambda s: names.get(s.name, s))
