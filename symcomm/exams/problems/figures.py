"""Figures of problem documents: one record a kind, what it needs, and the code that draws it.

A ``figure:`` block is read and checked like a question. Matplotlib (the extra ``plot``) is needed when it is drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from symcomm.core.accounting import Accounting
from symcomm.core.blocks import Section
from symcomm.core.derivation.writing import numbers
from symcomm.core.errors import DocumentError, Span, ValuesError, nearest
from symcomm.core.form import Form, evaluate, names
from symcomm.core.keys import TEXT, YES, keyed, keys_of, read_keys
from symcomm.core.quantities import QUANTITIES
from symcomm.core.quantities.declared import OneOf, Option
from symcomm.core.quantities.options import schedule_names
from symcomm.core.records import dataclass
from symcomm.core.setting import Setting
from symcomm.core.units import ONE, Quantity, Unit
from symcomm.documents.plots import rings, schedule
from symcomm.documents.plots.charts import rounding, state_bars
from symcomm.documents.plots.roofline import roofline_plot, small_roofline
from symcomm.documents.plots.strategies import mesh, network_levels, parallel_block
from symcomm.documents.plots.throughput_front import throughput_front
from symcomm.documents.plots.timelines import offload_timeline, sharded_timeline
from symcomm.exams.problems.deriving import derive
from symcomm.exams.problems.keys import (
    CONVENTIONS_MADE,
    GIVEN,
    Known,
    check_units,
    given_options,
    model_of,
    read_option,
)

if TYPE_CHECKING:
    from symcomm.core.derivation import Derivation
    from symcomm.core.model import Model
    from symcomm.core.program.instructions import Program

_DOTS = 6  # of a model in a roofline
_ROOM = "1000000 TB"  # every model fits into it
FIGURE_LIMIT = 100  # of a document: each takes some tenths of a second


@dataclass(frozen=True)
class Figure:
    """A ``figure:`` block: the kind, its options, and the numbers given with it."""

    section: Section
    options: tuple[tuple[str, Any], ...]
    kind: str = keyed("the kind", TEXT, name="figure", needed=True)
    caption: str = keyed("Markdown below the picture, before what symcomm says about it", TEXT)
    model: str = keyed("the model it is about; the last one defined unless told", TEXT)
    given: tuple[Known, ...] = keyed("further numbers, with units: `{k: 8}`", GIVEN)
    conventions: tuple[tuple[str, str], ...] = keyed("conventions for this one", CONVENTIONS_MADE, name="accounting")
    paper: bool = keyed("`yes`: the paper shows it as well, and not the solution only", YES)

    @property
    def span(self) -> Span:
        """Where the block is."""
        return self.section.span_of("figure")


@dataclass(frozen=True)
class Request:
    """The model, options and numbers of a figure."""

    model: Model
    options: Mapping[str, Any]
    given: tuple[Known, ...]
    accounting: Accounting
    models: Mapping[str, Model] = field(default_factory=dict)

    @property
    def values(self) -> dict[str, Fraction]:
        """The given numbers without their units."""
        return {item.name: item.quantity.value for item in self.given}

    def derive(self, name: str, **changed: Any) -> Derivation:
        """A derivation of a quantity, under the options that belong to it."""
        known = {option.name for option in QUANTITIES[name].options}
        options = {key: value for key, value in self.options.items() if key in known} | changed
        made = derive(name, self.model, options, self.accounting, self.values, ())
        check_units(made, self.given)
        needed = {symbol.name for symbol in made.expr.free_symbols}
        known_too = {symbol: value for symbol, value in self.values.items() if symbol in needed}
        return replace(made, given=tuple({**dict(made.given), **known_too}.items()))

    def size(self, name: str, default: int | str | None = None) -> int:
        """A whole number: as written, or the value of the symbol that is named."""
        said = self.options.get(name, default)
        value = self.values.get(said, self.model.values.get(said)) if isinstance(said, str) else said
        if value is None:
            raise ValuesError(f"'{name}' is {said}, which has no value", hint=f"given: {{{said}: 4}}")
        if Fraction(value).denominator != 1:
            raise ValuesError(f"'{name}' is {value}, but a whole number is needed")
        return int(value)

    def size_of(self, form: Form) -> int:
        """A size with the given numbers put in."""
        try:
            found = evaluate(form, {**self.model.values, **self.values})
        except ValuesError as error:
            missing = ", ".join(sorted({*names(form)} - {*self.values}))
            raise ValuesError(f"{missing} has no value", hint=f"given: {{{missing}: 4}}") from error
        return int(found)


@dataclass(frozen=True)
class Kind:
    """A kind of figure: ``draw`` gives the picture and a sentence that says what is in it."""

    name: str
    summary: str
    options: tuple[Option, ...]
    needed: tuple[str, ...]  # options that have to be there
    draw: Callable[[Request], tuple[Any, str]]
    of: str = ""  # the quantity that it is about, or "of" where that option names it
    only: tuple[str, ...] = ()  # the options of the quantity that it takes; all, where none is named


# -- the kinds ------------------------------------------------------------------------------------------


def _times(text: str, name: str, stages: int) -> tuple[list[Fraction], Unit]:
    """The times of a stage, or of each, from text, and their unit."""
    found = [Quantity.parse(part) for part in text.split(",")]
    units = {q.unit for q in found if q.value}
    if len(units) > 1 or units - {ONE, Unit.parse("second")}:
        raise ValuesError(f"'{name}' mixes units or is no time", hint=f"{name}: 6 ms, 2 ms")
    if any(q.value < 0 for q in found):
        raise ValuesError(f"a {name} time is negative", hint=f"{name}: 6 ms")
    times = [q.value for q in found] * (stages if len(found) == 1 else 1)
    if len(times) != stages:
        raise ValuesError(f"'{name}' has {len(times)} times for {stages} stages", hint="one for each, or one for all")
    return times, next(iter(units), ONE)


def _pipeline_schedule(request: Request) -> tuple[Any, str]:
    from symcomm.core.quantities.time.pipelines import GRADIENTS, of_stages

    stages, options = request.size("stages", "p"), {"forward": "1", **request.options}
    named = [name for name in ("forward", "backward", *GRADIENTS) if name in options]
    read = {name: _times(options[name], name, stages) for name in named}
    single = {name: _times(options[name], name, 1) for name in ("overhead", "hop", "pair") if name in options}
    said = {unit for times, unit in [*read.values(), *single.values()] if any(times)}
    if len(said) > 1:
        raise ValuesError("some times of the stages have a unit and some have none", hint="give all of them in seconds")
    made, halved = of_stages(
        options["schedule"], stages, request.size("microbatches", "m"),
        request.size("chunks") if "chunks" in options else None, {name: times for name, (times, _) in read.items()},
        **{name: times[0] for name, (times, _) in single.items()},
    )  # fmt: skip
    unit = next(iter(said), ONE)
    text = schedule.says(made, unit) + (" Half of a backward is the gradient of the weights." if halved else "")
    return schedule.schedule_plot(made, unit=unit, title=""), text


def _best(sense: str) -> Callable[[Request], tuple[Any, str]]:
    def draw(request: Request) -> tuple[Any, str]:
        from symcomm.documents.plots import optimum

        cost, over = request.derive(request.options["of"]), request.options["over"]
        picture = optimum.optimum_plot(cost, over, sense=sense)  # type: ignore[arg-type]
        best = "minimum" if sense == "least" else "maximum"
        return picture, f"{cost.title} over `{over}`; the point marks the {best}, {picture.get_label()}."

    return draw


def _costs(request: Request) -> tuple[Derivation, Derivation, list[str]]:
    """Two derivations of a quantity that differ in one option."""
    options = request.options
    name, key = options["of"], options["compare"]
    kinds = {option.name: option for option in QUANTITIES[name].options}
    if key not in kinds:
        raise DocumentError(f"'{name}' has no option '{key[:60]}'", hint=nearest(key, [*kinds]))
    both = [part.strip() for part in options["with"].split(",") if part.strip()]
    if len(both) != 2:
        raise DocumentError("'with' names two choices", hint="such as with: ring, tree")
    made = [request.derive(name, **{key: kinds[key].read(one)}) for one in both]
    return made[0], made[1], both


def _titles(a: Derivation, b: Derivation) -> str:
    return a.title if a.title == b.title else f"{a.title} and {b.title[:1].lower()}{b.title[1:]}"


def _crossover(request: Request) -> tuple[Any, str]:
    from symcomm.documents.plots import optimum

    a, b, names = _costs(request)
    over, said = request.options["over"], request.options.get("between")
    ends = None if said is None else [part.strip() for part in said.split(",")]
    if ends is not None and len(ends) != 2:
        raise DocumentError("'between' names two ends", hint="such as between: 1 kB, 1 GB")
    picture = optimum.crossover_plot(a, b, over, between=(ends[0], ends[1]) if ends else None, labels=names)
    return picture, f"{_titles(a, b)} over `{over}`; the points mark where they are equal: {picture.get_label()}."


def _break_even(request: Request) -> tuple[Any, str]:
    from symcomm.documents.plots import optimum

    a, b, names = _costs(request)
    over = request.options["over"]
    picture = optimum.break_even_plot(a, b, over, labels=names)
    return picture, f"{_titles(a, b)} over `{over}`; the point marks where they are equal: {picture.get_label()}."


def _sensitivity(request: Request) -> tuple[Any, str]:
    from symcomm.documents.plots import optimum

    cost = request.derive(request.options["of"])
    return optimum.sensitivity_plot(cost), f"{cost.title}: its change in per cent when a number grows by one per cent."


def _roofline(request: Request) -> tuple[Any, str]:
    if {"over", "at"} & request.options.keys() and not {"models", "over", "at"} <= request.options.keys():
        raise ValuesError("'over' and 'at' put several dots of a model: they go together, and with 'models'",
                          hint="models: step, over: B, at: 1, 64, 512")  # fmt: skip
    if "models" in request.options:
        return _roofline_of_models(request)
    if "ops" not in request.options:
        raise ValuesError("the figure 'roofline' needs the key 'ops' or 'models'", hint="ops: y, or models: a, b")
    ops = [part.strip() for part in request.options["ops"].split(",") if part.strip()]
    return roofline_plot({op: request.derive("roofline", op=op) for op in ops}), "The roofline, and the ops below it."


def _roofline_of_models(request: Request) -> tuple[Any, str]:
    """One dot for each model, or for each value of ``over``."""
    points: dict[str, tuple[float, float]] = {}
    ridge = peak = Fraction(0)
    options = {key: value for key, value in request.options.items() if key not in ("models", "over", "at")}
    for name, model, given in _points(request):
        made = replace(request, model=model, given=given, options=options).derive("roofline")
        known = numbers(made)
        ridge = known["I_machine"]
        rate = made.at().value
        points[name] = (float(known["I"]), float(rate))
        peak = max(peak, rate, rate * ridge / min(known["I"], ridge))
    return small_roofline(points, float(ridge), float(peak))


def _points(request: Request) -> Iterator[tuple[str, Model, tuple[Known, ...]]]:
    """The name of each dot of a roofline, its model and the numbers given."""
    over = request.options.get("over")
    if over is None:
        yield from ((name, model, ()) for name, model in request.models.items())
        return
    values = _values(request, over)
    for name, model in request.models.items():
        for value in values:
            here = Known(over, Quantity.parse(value), Span("", 0, "", 0, 0))
            yield f"{name} {over}={value}", model, (*(one for one in request.given if one.name != over), here)


def _ring(request: Request) -> tuple[Any, str]:
    return rings.ring(request.options.get("collective", "all-reduce"), request.size("ranks"))


def _ring_steps(request: Request) -> tuple[Any, str]:
    how = request.accounting
    return rings.ring_steps(how.context_order, request.size("ranks"), how.attention == "causal_half")


def _causal_balance(request: Request) -> tuple[Any, str]:
    return rings.causal_balance(request.size("length"), request.size("ranks"))


def _network_levels(request: Request) -> tuple[Any, str]:
    from symcomm.core.hardware.devices import network

    made = network(request.options["network"])
    return network_levels(made.name, made.device.name, [level.size for level in made.levels], made.rows)


def _mesh(request: Request) -> tuple[Any, str]:
    """The mesh of a strategy with the sizes that are given."""
    strategy = request.options["strategy"]
    sizes = {axis: request.size_of(size) for axis, size in strategy.sizes.items()}
    return mesh(_program(request), sizes)


def _rounding(request: Request) -> tuple[Any, str]:
    """The sum of a number format as the table of its derivation has it."""
    made = request.derive("accumulation")
    options, rows = request.options, [row[:3] for row in made.exhibits[0].rows] if made.exhibits else []
    x, n = Fraction(options["x"]), int(options["n"])
    numbers = [tuple(q.value for q in row if isinstance(q, Quantity)) for row in rows]
    if any(len(row) < 3 for row in numbers) or not numbers or numbers[0][0]:
        raise ValuesError("the sum has too many spacings to be drawn", hint="n: a smaller number")
    points = [(0, Fraction(0))]
    for _, stop, more in numbers:
        points.append((points[-1][0] + int(more), stop))
    points += [(n, points[-1][1])] if points[-1][0] < n else []
    return rounding(points, x, options["accumulator"])


def _state_bars(request: Request) -> tuple[Any, str]:
    """A bar a strategy, from three derivations each."""
    kinds = ("weights", "gradients", "states")
    strategies = _by_strategy(request)
    return state_bars({name: [mine.derive("state_memory", of=of).at() for of in kinds] for name, mine in strategies})


def _program(request: Request) -> Program:
    from symcomm.core.program.program import program

    return program(request.model.graph, request.options.get("strategy"), request.accounting)


# What changes how a step runs; what an allocator adds is no line over the ops.
_STEP = ("strategy", "recipe", "dtype", "recomputation", "every", "frozen", "step", "tables")


def _memory_timeline(request: Request) -> tuple[Any, str]:
    from symcomm.documents.plots.timeline import timeline_plot

    options = {key: value for key, value in request.options.items() if key in _STEP}
    picture = timeline_plot(request.model, accounting=request.accounting, values=request.values, **options)
    said = "The bytes in use on one rank during a training step, by kind"
    return picture, f"{said}; the peak is {picture.get_label()}."


def _cache_bars(request: Request) -> tuple[Any, str]:
    """A bar a context: the weights, and the caches of the batch."""
    options = {key: value for key, value in request.options.items() if key != "at"}
    found: dict[str, list[Quantity]] = {}
    for tokens in _values(request, "tokens"):
        made = replace(request, options=options).derive("kv_cache", tokens=tokens).at()
        room = replace(request, options=options, given=()).derive(
            "serving_capacity", tokens=tokens, capacity=_ROOM, capacity_is="usable"
        )
        found[f"{tokens} tokens"] = [Quantity(numbers(room)["W"], made.unit), made]
    return state_bars(found, ("weights", "cache"))


def _request_bars(request: Request) -> tuple[Any, str]:
    """A bar a strategy: the time to the first token, and the steps behind it."""
    model = request.model.at(**request.values)
    found: dict[str, list[Quantity]] = {}
    for name, mine in _by_strategy(replace(request, model=model, given=())):
        made = mine.derive("request_latency")
        first = Quantity(numbers(made)["t_prefill"], made.unit)
        found[name] = [first, Quantity(made.at().value - first.value, made.unit)]
    return state_bars(found, ("prefill", "decode steps"), "A request takes")


def _by_strategy(request: Request) -> Iterator[tuple[str, Request]]:
    """What is asked under each of the strategies; of one device where none is named."""
    option = next(option for option in QUANTITIES["decode_time"].options if option.name == "strategy")
    options = {key: value for key, value in request.options.items() if key != "strategies"}
    named = [part.strip() for part in request.options.get("strategies", "").split(";")]
    for name in filter(None, named) if any(named) else [""]:
        said = options | ({"strategy": option.read(name)} if name else {})
        yield name or "one device", replace(request, options=said)


def _throughput_front(request: Request) -> tuple[Any, str]:
    """A point for each batch and strategy: the time of a decode step, and the tokens a second."""
    over, per = request.options.get("over", "B"), request.options.get("per", "replica")
    batches = _values(request, over, 64)
    curves: dict[str, list[tuple[str, Quantity, Quantity]]] = {}
    for name, mine in _by_strategy(request):
        step, rate = mine.derive("decode_time"), mine.derive("decode_throughput")
        curves[name] = [(b, step.at(**{over: b}), rate.at(**{over: b})) for b in batches]
    return throughput_front(curves, over, per)


def _values(request: Request, what: str, most: int = _DOTS) -> list[str]:
    values = [part.strip() for part in request.options.get("at", "").split(",") if part.strip()]
    if not 1 <= len(values) <= most:
        raise ValuesError(f"'at' has {len(values)} values of {what[:40]}", hint=f"1 to {most}, such as at: 1, 64, 512")
    return values


def _trace(request: Request) -> tuple[Any, str]:
    from symcomm.documents.plots import trace
    from symcomm.teaching.quantities.differentiation.traces import traced

    options = request.options
    setting = Setting(request.model.graph, values={**request.model.values, **request.values})
    made = traced(setting, options["formulas"], options.get("point"), options.get("outputs"))
    return trace.trace_plot(made), trace.says(made)


_OF = Option("of", "choice", "the quantity, with the options that belong to it", among=OneOf(QUANTITIES))
_OVER = Option("over", "text", "the symbol on the axis")
_RANKS = Option("ranks", "size", "the number of ranks, or its symbol")
_TWO = (_OF, Option("compare", "text", "the option in which the two costs differ"),
        Option("with", "text", "its two choices, such as ring, tree"), _OVER)  # fmt: skip

FIGURES: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("pipeline_schedule",
             "who works when in a pipeline: a row a stage, a box a forward or backward of a microbatch",
             (Option("schedule", "schedule", "the order of the work", among=OneOf(schedule_names, open=True)),
              Option("stages", "size", "the number of stages, or its symbol", "p"),
              Option("microbatches", "size", "the number of microbatches, or its symbol", "m"),
              Option("forward", "text", "the time of a microbatch in a stage, or in each: 6 ms, 2 ms", "1"),
              Option("backward", "text", "both gradients, as forward; 0 leaves them out; twice forward unless said"),
              Option("input_gradient", "text", "the part of a backward for the input; half of it where not said"),
              Option("weight_gradient", "text", "the part of a backward for the weights; half of it where not said"),
              Option("pair", "text", "the time of a forward and a backward that overlap; the sum where not said"),
              Option("hop", "text", "the latency between two stages", "0"),
              Option("overhead", "text", "a time that is added to each box", "0"),
              Option("chunks", "size", "the chunks of layers of a stage, for a schedule that has several")),
             ("schedule",), _pipeline_schedule),
        Kind("minimum", "a cost over a variable with its terms, its least value and the whole numbers beside it",
             (_OF, _OVER), ("of", "over"), _best("least"), "of"),
        Kind("maximum", "the same for the greatest value", (_OF, _OVER), ("of", "over"), _best("greatest"), "of"),
        Kind("crossover", "two costs over a variable, and where one overtakes the other",
             (*_TWO, Option("between", "text", "the ends of the axis, such as 1 kB, 1 GB")),
             ("of", "compare", "with", "over"), _crossover, "of"),
        Kind("break_even", "two costs over a variable that are equal at one point, which has a closed form",
             _TWO, ("of", "compare", "with", "over"), _break_even, "of"),
        Kind("sensitivity", "by what share an answer moves with each of its parameters", (_OF,), ("of",), _sensitivity,
             "of"),
        Kind("roofline", "the roofs of a machine, and ops below them",
             (Option("ops", "text", "rows of the table, by the tensors they make, with commas between them"),
              Option("models", "text", "models of one product or one pass each, with commas between them"),
              Option("over", "text", "a size in which the dots of a model differ, such as the batch B"),
              Option("at", "text", "the values of that size, with commas between them: 1, 64, 512")),
             (), _roofline, "roofline"),
        Kind("parallel_block", "a layer under a strategy: what is cut, and where ranks communicate",
             (), ("strategy",), lambda request: parallel_block(_program(request)), "communication", ("strategy",)),
        Kind("sharded_timeline", "when weights are gathered and gradients reduced, beside computing",
             (), ("strategy",), lambda request: sharded_timeline(_program(request)), "communication", ("strategy",)),
        Kind("ring", "a collective on a ring: what each rank holds before, between and after its rounds",
             (Option("collective", "text", "all-reduce, reduce-scatter or all-gather", "all-reduce"),
              _RANKS), ("ranks",), _ring),
        Kind("mesh", "the ranks of a mesh with the rings along its axes, and the calls that run on them",
             (), ("strategy",), _mesh, "communication", ("strategy",)),
        Kind("ring_steps", "the steps of ring attention: the block that each rank reads, and the part left by the mask",
             (_RANKS,), ("ranks",), _ring_steps),
        Kind("causal_balance", "the pairs of a causal mask in three orders of positions, by the rank that has them",
             (Option("length", "size", "the number of positions, or its symbol; small, as each is drawn"), _RANKS),
             ("length", "ranks"), _causal_balance),
        Kind("network_levels", "the levels of a network: what each joins, its links, and the rate of a device",
             (Option("network", "text", "a network of devices, such as DGX-H100"),), ("network",), _network_levels),
        Kind("offload_timeline", "when a rank copies to its host and back, beside computing",
             (), (), lambda request: offload_timeline(_program(request)), "communication", ("strategy",)),
        Kind("rounding", "a number that is added again and again in a number format, beside the exact sum",
             (), ("x", "n", "accumulator"), _rounding, "accumulation", ("x", "n", "accumulator", "x_format")),
        Kind("state_bars", "the weights, gradients and optimizer states of one rank, a bar a strategy",
             (Option("strategies", "text", "strategies with semicolons between them: data(8); zero-1(8)"),),
             ("strategies",), _state_bars, "state_memory", ("recipe", "frozen")),
        Kind("cache_bars", "the weights and the caches of one rank while text is generated, a bar a context",
             (Option("at", "text", "the tokens of a sequence, with commas between them: 1024, 8192, 32768"),),
             ("at",), _cache_bars, "kv_cache", ("strategy", "dtype")),
        Kind("request_bars", "the prefill and the decode steps of a request, a bar a strategy",
             (Option("strategies", "text", "strategies with semicolons between them: tensor(2); tensor(8)"),),
             ("prompt", "tokens"), _request_bars, "request_latency"),
        Kind("throughput_front", "tokens a second against the time between two tokens, a curve a strategy",
             (Option("strategies", "text", "strategies with semicolons between them: tensor(2); tensor(8)"),
              Option("over", "text", "the symbol of the batch; B unless told"),
              Option("at", "text", "batches, with commas between them: 1, 8, 64, 512")),
             ("at",), _throughput_front, "decode_throughput"),
        Kind("evaluation_trace", "the graph of an evaluation trace: a node a variable, an arrow an operand",
             (), ("formulas",), _trace, "evaluation_trace", ("formulas", "point", "outputs")),
        Kind("memory_timeline", "the memory of a training step, op by op and by kind, with its peak",
             (), (), _memory_timeline, "peak_memory", _STEP),
    )
}  # fmt: skip


# -- reading and drawing -----------------------------------------------------------------------------------


def read_figure(section: Section, models: Mapping[str, object]) -> Figure:
    """A ``figure:`` block. Raises ``DocumentError`` for an unknown kind or key, and for what is missing."""
    name = section.text("figure")
    if name not in FIGURES:
        raise section.error("figure", f"unknown figure '{name[:60]}'", nearest(name, [*FIGURES]))
    kind = FIGURES[name]
    kinds = {option.name: option for option in kind.options}
    about = kind.of
    if about == "of" and "of" in section:
        about = read_option(section, _OF)
    if about in QUANTITIES:
        of_quantity = {option.name: option for option in QUANTITIES[about].options if option.name != "op"}
        kinds = {name: option for name, option in of_quantity.items() if not kind.only or name in kind.only} | kinds
    for needed in kind.needed:
        if needed not in section:
            means = kinds[needed].meaning
            raise section.error("figure", f"the figure '{name}' needs the key '{needed}'", means)
    section.only([*keys_of(Figure), *kinds])
    section = given_options(section, kinds)
    model = model_of(section, models, about in QUANTITIES and QUANTITIES[about].needs_model)
    options = tuple((key, read_option(section, kinds[key])) for key in section.keys if key in kinds)
    return read_keys(Figure, section, kinds, section=section, options=options, model=model)


def draw(
    figure: Figure, model: Model, accounting: Accounting, given: tuple[Known, ...],
    models: Mapping[str, Model] | None = None,
) -> tuple[Any, str]:  # fmt: skip
    """The picture of a figure, and a sentence that says what is in it; ``models`` are those that it names."""
    return FIGURES[figure.kind].draw(Request(model, dict(figure.options), given, accounting, models or {}))
