"""The search itself: structures, their grids, the work in units, and the outcome told exactly."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from fractions import Fraction
from functools import partial
from itertools import groupby, islice
from math import prod
from operator import attrgetter
from time import monotonic
from typing import Any, Literal

from symcomm.core.accounting import Accounting, AccountingLike
from symcomm.core.derivation import exact, whole_bytes
from symcomm.core.errors import StrategyError, ValuesError, nearest
from symcomm.core.form import Num, Sym
from symcomm.core.model import Model
from symcomm.core.quantities import QUANTITIES
from symcomm.core.quantities.communication.links import PIPE, Links
from symcomm.core.quantities.machine import RATES
from symcomm.core.quantities.memory.capacity import capacity_and_meaning
from symcomm.core.quantities.recipes import recipe_of
from symcomm.core.records import replace
from symcomm.core.setting import Setting
from symcomm.core.units import BYTE, Quantity
from symcomm.searching import evaluate, explain, serving
from symcomm.searching.cases import apart, cases
from symcomm.searching.options import (
    batch_symbol,
    check,
    drafts_of,
    free_sizes,
    read_sizes,
    serving_options,
    shared_memory,
)  # fmt: skip
from symcomm.searching.ranges import whole_numbers
from symcomm.searching.result import SECOND, Configuration, Outcome, SearchResult
from symcomm.searching.space import MOST_CONFIGURATIONS, Grid, grid
from symcomm.searching.structure import (
    BUCKETS,
    CONVENTION,
    MICROBATCHES,
    SHARED_MEMORY,
    Draft,
    Limit,
    Objective,
    SearchQuestion,
    Structure,
    structure,
)  # fmt: skip
from symcomm.searching.template import PIPELINE, composed, written

Progress = Callable[[int, int, str], None]
Derived = Structure | serving.ServingStructure


def search(
    model: Model,
    *,
    devices: int,
    capacity: object = None,
    capacity_is: str | None = None,
    device: object = None,
    host_capacity: object = None,
    nvme_capacity: object = None,
    batch: object = None,
    strategies: str | Sequence[str] | None = None,
    microbatches: object = None,
    recomputation: str | Sequence[str] | None = None,
    schedules: str | Sequence[str] | None = None,
    sizes: Mapping[str, object] | None = None,
    buckets: object = None,
    call_overhead: object = None,
    prompt: int | None = None,
    prompts: int = 1,
    first_token: object = None,
    per_token: object = None,
    formats: str | Sequence[str] | None = None,
    recipe: str | Mapping[str, object] = "mixed_adam",
    frozen: str | Sequence[str] | None = None,
    gradient_dtype: str | None = None,
    accounting: AccountingLike = None,
    top: int = 10,
    peaks: bool = False,
    jobs: int | None = None,
    seconds: float = 600,
    progress: Progress | None = None,
    **rates: object,
) -> SearchResult:
    """The best ways to train a model on a number of devices, or to serve it, from closed forms of time and memory.

    ``strategies`` are texts whose degrees are symbols: ``"data + tensor + pipeline"``; their mesh takes every shape
    that uses all ``devices``. ``sizes`` limits an axis of the mesh (``{"tensor": "1..8"}``) or lists values of a size
    of the model; ``microbatches`` are all divisors of the batch unless listed. ``buckets`` need the ``call_overhead``
    of one call. Rates come from a ``device``, or are given as for ``Model.step_time``. ``jobs`` processes work through
    joblib, or whatever backend ``joblib.parallel_config`` has chosen. What the memory of a device holds has to be said:
    ``capacity_is`` is ``nominal_GB``, ``nominal_GiB`` or ``usable``. ``frozen`` weights are not trained. Of what is
    offloaded a host holds ``host_capacity``, such as ``2 TB shared by 8`` ranks: by those of a node where not said; and
    its NVMe disks ``nvme_capacity``.

    Memory is that of weights, gradients, optimizer states and saved activations, and what fits is what fits by that.
    With ``peaks`` the fastest of these are held against their ``peak_memory``, too, at about a tenth of a second each;
    that may be less (not all gradients are there while most activations are), or more.

    Of a decode step (``model.decode()``) it is serving that is searched: the most tokens a second, and the front of
    that and of the time per token. ``first_token`` and ``per_token`` bound its times; a ``prompt`` has so many tokens,
    and each replica reads so many ``prompts`` at once. ``formats`` are number formats to try, such as
    ``"weights=int4(128 fp16)"``. A rank holds weights and the caches of all sequences.

    Raises ``ValuesError`` or ``StrategyError`` for what cannot be searched, and where it takes more than ``seconds``.
    """
    model.graph.check_flow("there is no time to search for")
    tell = _watched(progress, monotonic() + seconds, seconds)
    chosen = Accounting.given(accounting)
    check(devices, top, jobs, chosen, model.graph.step is not None)
    working, task, workers = _workers(jobs)
    known = None if chosen.capacity == "unnamed" else chosen.capacity
    size, meaning = capacity_and_meaning(capacity, capacity_is or known, device)
    trains = {"microbatches": microbatches, "recomputation": recomputation, "schedules": schedules, "buckets": buckets,
              "call_overhead": call_overhead, "host_capacity": host_capacity, "nvme_capacity": nvme_capacity,
              "frozen": frozen,
              "gradient_dtype": gradient_dtype, "peaks": peaks or None,
              "recipe": None if recipe == "mixed_adam" else recipe}  # fmt: skip
    bounds = serving_options(model, trains, prompt, prompts, first_token, per_token, formats)
    if bounds is None:
        goal = Objective(("time", "memory"), (Limit("memory", size, "does not fit in the memory"),))
    else:
        goal = serving.objective(size, *bounds)
    allowed, lists = read_sizes(model, batch, microbatches, sizes, buckets, call_overhead)
    varied = tuple(name for name in lists if name not in (MICROBATCHES, BUCKETS))
    if batch is not None:
        model = model.at(**{batch_symbol(model): whole_numbers(batch, "batch")[0]})
    links = Links.of(rates.pop("links", None), device, devices)
    device = links.device
    shared: list[tuple[Literal["host", "nvme"], int]] = []
    tiers: list[tuple[Literal["host", "nvme"], object, str]] = [
        ("host", host_capacity, "in the host's memory"), ("nvme", nvme_capacity, "on NVMe disks"),
    ]  # fmt: skip
    for on, room, full in tiers:
        if (there := shared_memory(room, on, chosen, links.of_a_node, devices)) is not None:
            goal = replace(goal, limits=(*goal.limits, Limit(SHARED_MEMORY[on], there[0], f"does not fit {full}")))
            shared.append((on, there[1]))
    for name, rate in rates.items():
        if name not in RATES:
            raise ValuesError(f"a search takes no '{name[:40]}'", hint=nearest(name, [*RATES, "links"]))
        QUANTITIES["step_time"].option(name).check(rate)
    given = {**rates, "device": device}
    question = SearchQuestion(
        model, varied, recipe_of(recipe).name, gradient_dtype,
        Fraction(0) if call_overhead is None else exact(call_overhead), chosen,
        tuple((name, rate) for name, rate in given.items() if rate is not None), links,
        Setting(model.graph).freeze(frozen).frozen, prompt, prompts, tuple(shared),
    )  # fmt: skip
    drafts, notes = drafts_of(model, strategies, recomputation, schedules, BUCKETS in lists, formats)
    symbols = {size.name: axis for d in drafts for axis, size in d.degrees.items() if isinstance(size, Sym)}
    links.check([one for draft in drafts if (one := composed(draft.pieces)) is not None])
    notes += [links.network.told] if links.network is not None else []
    notes += [_SUSTAINED] if device is not None and rates.get("utilisation") is None else []
    used = {chosen.tier(role) for role in chosen.off_device} - {on for on, _ in shared}
    notes += [_UNLIMITED[on] for on in sorted(used) if bounds is None]
    allowed = {symbols.get(name, name): values for name, values in allowed.items()}
    if device is not None and rates.get("network") is None:
        for draft in drafts:
            links.check_joined(_most_ranks(draft, devices, links, allowed))
    for axis in allowed:
        if not any(axis in d.axes for d in drafts):
            names = [*dict.fromkeys(a for d in drafts for a in d.axes), *free_sizes(model)]
            raise ValuesError(
                f"'{axis[:40]}' is no axis of the mesh and no size of the model", hint=nearest(axis, names)
            )
    seen: set[object] = set()
    grids = [grid(devices, draft, allowed, lists, seen) for draft in drafts]
    kept = [*cases(question, ((draft, g) for draft, g in zip(drafts, grids, strict=True) if g.size))]
    if BUCKETS in lists and not any(draft.bucketed for draft, _ in kept):
        raise StrategyError("no gradients are reduced between ranks", hint="buckets go with data parallelism")
    total = sum(g.size for _, g in kept)
    if total > MOST_CONFIGURATIONS:
        raise ValuesError(f"there are {total:,} configurations; a search takes {MOST_CONFIGURATIONS:,}",
                          hint="give fewer sizes, for instance microbatches='1..64*2'")  # fmt: skip
    most = 4 * top if peaks else top
    with working as parallel:
        made = _derived(parallel, task, question, kept, tell, workers)
        total = sum(g.size for _, g in made)
        best: evaluate.Part | None = None
        for wave in _waves(_tasks(made, goal, most), 8 * workers):
            parts = parallel(task(evaluate.evaluate)(unit) for unit in wave)
            best = evaluate.merged([*([best] if best is not None else []), *parts], most)
            tell(best.tried, total, "configurations")
    found = _outcome(question, devices, (goal, meaning), made, best, notes)
    batches = lists.get(batch_symbol(model), ()) if bounds is not None else ()
    if len(batches) > 1 and found.top and dict(found.top[0].sizes)[batch_symbol(model)] == max(batches):
        note = f"The best has the largest batch that was tried, {max(batches)}: a larger one may be better."
        found = replace(found, notes=(note, *found.notes))
    return _at_peak(found, question, top) if peaks else found


def _most_ranks(draft: Draft, devices: int, links: Links, allowed: Mapping[str, tuple[int, ...]]) -> int:
    """How many ranks a mesh may have on the device's own links: over the axes without links of their own."""
    said = dict(links.said)
    own = {PIPELINE if name == PIPE else name for name in said}
    own |= {axis for axis, size in draft.degrees.items() if isinstance(size, Sym) and size.name in said}
    most = prod(
        int(size.number) if isinstance(size, Num) else max(allowed.get(axis, (devices,)))
        for axis, size in draft.degrees.items() if axis not in own
    )  # fmt: skip
    return min(most, devices)


def _workers(jobs: int | None) -> tuple[Any, Any, int]:
    """Gives what runs tasks, what makes them of a function, and how many run at once."""
    try:
        import numpy  # noqa: F401  (what evaluates)

        if jobs in (None, 1) and "joblib" not in sys.modules:  # who has not imported it has chosen no other workers
            return nullcontext(lambda tasks: [one() for one in tasks]), partial(partial, partial), 1
        import joblib
    except ImportError:
        raise ValuesError.lacking("search", "a search needs NumPy and joblib") from None
    return joblib.Parallel(n_jobs=jobs), joblib.delayed, max(1, joblib.effective_n_jobs(jobs))


def _watched(progress: Progress | None, until: float, seconds: float) -> Progress:
    """Tells the progress, and raises ``ValuesError`` where the time is over before the work."""

    def tell(done: int, total: int, label: str) -> None:
        if progress is not None:
            progress(done, total, label)
        if monotonic() > until and done < total:
            raise ValuesError(f"the search took longer than {seconds:g} s: {done:,} of {total:,} {label} were done",
                              hint="give fewer sizes, more seconds, or more jobs")  # fmt: skip

    return tell


def structures(question: SearchQuestion, drafts: Iterable[Draft]) -> list[Derived]:
    """The closed forms of drafts; neighbours share what they have in common.

    Raises ``StrategyError`` where a strategy cannot be applied to the model, ``ValuesError`` for missing numbers.
    """
    if question.model.graph.step is not None:
        return [serving.structure(question, draft) for draft in drafts]
    made: list[Derived] = []
    for draft in drafts:
        made.append(structure(question, draft, frozenset(name for one in made for name in one.touched)))
    return made


def _derived(
    parallel: Any, delayed: Any, question: SearchQuestion, kept: list[tuple[Draft, Grid]], tell: Progress, workers: int
) -> list[tuple[Derived, Grid]]:
    """The closed forms of each structure; those that differ by their stages or recomputation are derived together."""
    made: list[tuple[Derived, Grid]] = []
    families = [
        list(group) for _, group in groupby(kept, lambda pair: [p for p in pair[0].pieces if PIPELINE not in p.axes])
    ]
    for wave in _waves(families, 4 * workers if workers > 1 else 1):
        tasks = (delayed(structures)(question, [draft for draft, _ in family]) for family in wave)
        for family, found in zip(wave, parallel(tasks), strict=True):
            for (draft, g), one in zip(family, found, strict=True):
                several = [*apart(draft, g, one.apart)]
                drafts = [inner for inner, _ in several]
                each = [one] if drafts == [draft] else structures(question, drafts)
                varied = tuple((name, name) for name in question.varied)
                for made_of, (_, some) in zip(each, several, strict=True):
                    evaluate.check_whole(made_of.core, some, (*made_of.symbols, *varied))
                    made.append((made_of, some))
        tell(len(made), len(kept), "closed forms")
    return made


def _tasks(made: list[tuple[Derived, Grid]], goal: Objective, top: int) -> Iterator[evaluate.EvaluationTask]:
    for number, (s, g) in enumerate(made):
        names = dict(s.symbols)
        order = {symbol_name: axis for axis, symbol_name in names.items()}
        pairs = tuple((order.get(variable, variable), variable) for variable in s.core.variables)
        for start, stop in g.blocks(evaluate.CHUNK):
            yield evaluate.EvaluationTask(number, s.core, pairs, g, start, stop, goal, top)


def _waves(items: Iterable[Any], size: int) -> Iterator[list[Any]]:
    rest = iter(items)
    while wave := list(islice(rest, size)):
        yield wave


def _outcome(
    question: SearchQuestion, devices: int, wanted: tuple[Objective, str], made: list[tuple[Derived, Grid]],
    known: evaluate.Part | None, notes: list[str],
) -> SearchResult:  # fmt: skip
    goal, meaning = wanted
    size = goal.limits[0].most
    serves = question.model.graph.step is not None
    configuration: Any = serving.configuration if serves else _configuration

    def told(points: evaluate.Points) -> list[Outcome]:
        return [
            configuration(*made[int(s)], int(i), question, size)
            for s, i in zip(points.structure, points.index, strict=True)
        ]

    refused: dict[str, int] = {}
    front: list[Outcome] = []
    top: list[Outcome] = []
    near: list[Outcome] = []
    if known is not None:
        for number, counts in known.refused:
            labels = [f"does not divide: {c.label}" for c in made[number][0].core.constraints]
            for label, count in zip([*labels, "the algorithm has no formula for these degrees"], counts, strict=True):
                if count:
                    refused[label] = refused.get(label, 0) + count
        refused |= {one.refusal: n for one, n in zip(goal.limits, known.too_large, strict=True) if n}
        front, top, near = told(known.front), sorted(told(known.top), key=attrgetter("order")), told(known.near)
    touched = [name for s, _ in made for name in s.touched if name != "recomputation"]
    unused = question.accounting.unused(question.accounting.asked, (*touched, "capacity")) if made else ()
    still = sorted(question.frozen)
    frozen = (f"Not trained, so without gradient and update: {', '.join(f'`{n}`' for n in still)}.",) if still else ()
    limits = [SERVED if serves else _LIMITS[0], *([] if question.links.said or devices == 1 else [_LIMITS[1]])]
    told_too = (note for s, _ in made for note in s.notes)
    if question.links.units is not None:
        limits.append("The axes of a mesh fill a node in their order, those of neighbouring ranks first.")
    decided = Setting(question.model.graph, question.accounting).accounting  # how a model attends, where it decides
    return SearchResult(
        question.model.name, devices, Quantity(size, BYTE), meaning, known.tried if known else 0,
        known.fits if known else 0, tuple(sorted(refused.items(), key=lambda pair: -pair[1])), _front(front),
        tuple(top), tuple(near), decided.statements(tuple(touched)),
        tuple(dict.fromkeys((*notes, *frozen, *unused, *told_too, *limits))),
        tuple((n.amount, Quantity(n.most, BYTE if n.amount.endswith("memory") else SECOND)) for n in goal.limits[1:]),
    )  # fmt: skip


def _front(some: Iterable[Outcome]) -> tuple[Outcome, ...]:
    """Those that no other one beats in both amounts."""
    front: list[Outcome] = []
    for one in sorted(some, key=attrgetter("order")):
        if not front or one.order[1] < front[-1].order[1]:
            front.append(one)
    return tuple(front)


def _at_peak(found: SearchResult, question: SearchQuestion, top: int) -> SearchResult:
    """The configurations that are told, with their peaks, of those that fit at it."""
    fits: dict[Outcome, Configuration] = {}
    checked: dict[tuple[object, ...], Fraction] = {}
    every = [one for one in dict.fromkeys((*found.top, *found.front)) if isinstance(one, Configuration)]
    for one in every:
        at_peak = replace(one, memory=Quantity(_peak(one, question, checked), BYTE))
        if at_peak.memory.value <= found.capacity.value:
            fits[one] = at_peak
    left = len(every) - len(fits)
    notes = [note for note in found.notes if note != _LIMITS[0]]
    kept = f"of {len(every)} configurations that fit without what is there for a moment, {len(fits)}"
    notes.append(f"Memory is that at the peak: {kept} fit at their peak, too.")
    quickest = tuple(fits[one] for one in found.top if one in fits)[:top]
    return replace(found, top=quickest, front=_front(fits.values()), feasible=found.feasible - left, notes=tuple(notes),
                   refused=(*found.refused, *([("does not fit at its peak", left)] if left else [])))  # fmt: skip


def _peak(one: Configuration, question: SearchQuestion, checked: dict[tuple[object, ...], Fraction]) -> Fraction:
    """The most that any stage holds at once."""
    sizes = {name: n for name, n in one.sizes if name != BUCKETS}
    key = one.strategy, one.microbatches, one.recomputation, one.schedule, *sizes.items()
    if key not in checked:
        model, stages = question.model.at(**sizes), dict(one.mesh).get(PIPELINE, 1)
        options: dict[str, Any] = {"recipe": question.recipe, "frozen": sorted(question.frozen) or None}
        options |= {} if stages > 1 else {"microbatches": one.microbatches}
        ends = {0, 1, stages - 1} if len(model.graph.regions) > 1 else {0}  # of equal stages the first holds most
        places = [{"schedule": one.schedule or None, "stage": n} for n in sorted(ends)]
        checked[key] = max(
            Fraction(model.derive("peak_memory", strategy=one.strategy if any(n > 1 for _, n in one.mesh) else None,
                                  accounting=one.accounting, **options, **place).at().value)
            for place in (places if stages > 1 else [{}])
        )  # fmt: skip
    return checked[key]


_UNLIMITED = {
    "host": "The host is supposed to have room for all that is there: say host_capacity, such as 2 TB shared by 8.",
    "nvme": "NVMe disks are supposed to have room for all that is there: say nvme_capacity, such as 30 TB shared by 8.",
}
_SUSTAINED = "Rates are those of the data sheet; a real run sustains less (utilisation: 1/2)."
_LIMITS = (
    "Memory is that of weights, gradients, optimizer states and saved activations; what is gathered or computed again "
    "for a moment comes on top.",
    "One bandwidth stands for all links: keep an axis within a node by a limit on its size, such as tensor: 1..8.",
)


SERVED = (
    "The memory holds weights and the caches of all sequences at their context; activations come on top. Nobody waits "
    "in a queue, and prefills and decode steps do not slow each other down."
)


def _configuration(s: Structure, g: Grid, index: int, question: SearchQuestion, capacity: Fraction) -> Configuration:
    """One configuration with exact numbers."""
    sizes = g.at(index)
    names = dict(s.symbols)
    values = {names.get(name, name): n for name, n in sizes.items()}
    values = {name: n for name, n in values.items() if name in s.core.variables}
    worth = s.at(values)
    shares, calls = explain.times(s, worth, question.accounting.time)
    held, how = explain.bytes_of(s, worth, question.accounting), (s.touched, question.accounting)
    return Configuration(
        written(s.draft.pieces, sizes, sizes[MICROBATCHES]), tuple((axis, sizes[axis]) for axis in g.axes),
        sizes[MICROBATCHES], tuple((n, sizes[n]) for n, _ in g.lists if n != MICROBATCHES), s.draft.recomputation,
        s.draft.schedule, Quantity(worth["time"], SECOND), Quantity(whole_bytes(worth["memory"], *how), BYTE),
        shares, calls, held, explain.sentence(shares, calls, held, capacity),
        replace(question.accounting, recomputation=CONVENTION[s.draft.recomputation]),
        **{on: Quantity(whole_bytes(worth[SHARED_MEMORY[on]], *how), BYTE) for on, _ in question.shared},
    )  # fmt: skip
