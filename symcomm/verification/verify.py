"""A strategy run in real PyTorch processes, and what is counted there beside what is derived."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from math import lcm, prod
from typing import Any

from symcomm.accounting import Accounting
from symcomm.errors import StrategyError
from symcomm.form import evaluate, from_expr, value
from symcomm.graph.gradient import gradient_name
from symcomm.graph.graph import Graph, Op
from symcomm.model import Model
from symcomm.parallel.placement import PARTIAL, Compute, Plan
from symcomm.parallel.strategy import Strategy, parse_strategy
from symcomm.program import pipeline
from symcomm.program.program import ONE_RANK, program
from symcomm.program.schedules import USUAL_SCHEDULE, find
from symcomm.quantities.communication.communication import calls
from symcomm.quantities.counting.flops import is_matrix_product
from symcomm.quantities.counting.load import load
from symcomm.setting import Setting
from symcomm.verification.conventions import CONVENTIONS, Context, Entry
from symcomm.verification.launch import RANK_LIMIT, TIME_LIMIT, VerificationError, enough_memory, launch
from symcomm.verification.methods import SCHEDULES, Method, batch_meshes, method, shard_rules
from symcomm.verification.module import Placed, TorchModule, torch_module
from symcomm.verification.sizes import small_sizes

TOLERANCE = 2e-4  # of gradients in fp32, against one process
WIDTH = 4  # bytes of fp32


@dataclass(frozen=True)
class Row:
    """One thing that is derived and measured; ``explained`` names the conventions that lie between the two.

    ``expected`` is what is derived, after those conventions.
    """

    what: str
    unit: str
    derived: Fraction
    expected: Fraction
    measured: Fraction
    explained: tuple[str, ...] = ()

    @property
    def difference(self) -> Fraction:
        """What no convention explains."""
        return self.measured - self.expected


@dataclass(frozen=True)
class Verification:
    """What a run showed: a row each for operations, parameters, saved bytes and each kind of call."""

    model: str
    strategy: str
    interface: str
    ranks: int
    sizes: Mapping[str, int]
    rows: tuple[Row, ...]
    gradient_error: float
    torch: str
    calls: tuple[Mapping[str, Any], ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether nothing is different, and all ranks learn what one process learns."""
        return all(row.difference == 0 for row in self.rows) and self.gradient_error <= TOLERANCE

    @property
    def conventions(self) -> tuple[str, ...]:
        """The conventions that explain something."""
        return tuple(dict.fromkeys(name for row in self.rows for name in row.explained))

    def json(self) -> dict[str, Any]:
        """The same for a program."""
        rows = [{k: _plain(v) for k, v in asdict(r).items()} | {"difference": _plain(r.difference)} for r in self.rows]
        return {
            "model": self.model, "strategy": self.strategy, "interface": self.interface, "ranks": self.ranks,
            "sizes": dict(self.sizes), "torch": self.torch, "holds": self.holds, "rows": rows,
            "gradient_error": self.gradient_error, "calls": [dict(c) for c in self.calls], "notes": list(self.notes),
            "conventions": {name: CONVENTIONS[name].statement for name in self.conventions},
        }  # fmt: skip


def _plain(number: Any) -> Any:
    return int(number) if isinstance(number, Fraction) and number.denominator == 1 else str(number) if isinstance(number, Fraction) else number


@dataclass(frozen=True)
class _Case:
    """A model, a strategy and numbers, ready to be derived and run."""

    model: Model
    strategy: Strategy
    method: Method
    sizes: Mapping[str, int]
    mesh: Mapping[str, int]
    schedule: str
    stages: int
    chunks: int
    microbatches: int
    accounting: Accounting

    @property
    def graph(self) -> Graph:
        return self.model.graph

    @property
    def known(self) -> dict[str, Fraction]:
        return {n: Fraction(v) for n, v in self.sizes.items()}

    @property
    def ranks(self) -> int:
        return prod(self.mesh.values())

    @property
    def inside(self) -> Strategy:
        """The strategy without its pipeline."""
        return replace(self.strategy, pipeline=None)

    def number(self, expression: Any) -> Fraction:
        return evaluate(from_expr(expression), self.known)

    @property
    def setting(self) -> Setting:
        return Setting(self.graph, self.accounting, "fp32", self.model.notation, self.known)

    @property
    def plan(self) -> Plan:
        return program(self.graph, self.inside if self.strategy.mesh else ONE_RANK, self.accounting).plan


def _case(model: Model, strategy: Strategy | str | None, values: Mapping[str, Fraction], schedule: str, chunks: int) -> _Case:
    strategy = parse_strategy(strategy) if isinstance(strategy, str) and strategy else strategy or ONE_RANK
    assert isinstance(strategy, Strategy)
    used = method(strategy)
    known = {n: v for n, v in values.items()}
    mesh = {axis: int(evaluate(size, known)) for axis, size in strategy.sizes.items()} if _has(strategy, known) else {}
    mesh = {axis: mesh[axis] for axis in reversed(strategy.mesh_order)}
    stages = microbatches = 1
    cut = strategy.pipeline
    if cut is not None:
        if cut.layers or cut.stages is None:
            raise StrategyError("PyTorch runs here a pipeline of stages that are all alike", hint="pipeline(2, microbatches=4)")
        stages, microbatches = (int(evaluate(f, known)) for f in (cut.stages, cut.microbatches))
        if schedule not in SCHEDULES:
            raise StrategyError(f"torch.distributed.pipelining has no schedule '{schedule[:40]}' here", hint="known: " + ", ".join(SCHEDULES))
        record = find(schedule)
        chunks = record.fitting(stages, microbatches, chunks if record.chunks is None else None)
        mesh = {"pipe": stages, **mesh}
    ranks = prod(mesh.values())
    if ranks > RANK_LIMIT:
        raise VerificationError(f"{strategy.name} takes {ranks} processes; at most {RANK_LIMIT} are started",
                                hint="smaller degrees show the same")  # fmt: skip
    degrees = {s.name for form in strategy.forms for s in value(form).free_symbols}
    own = {n: v for n, v in values.items() if n not in degrees}
    sizes = small_sizes(model.graph, own, max(2, lcm(*mesh.values()), ranks), microbatches, max(2, stages * chunks))
    accounting = Accounting.of(**dict(used.accounting))
    stacked = any(region.times for region in model.graph.regions)
    if used.name.startswith("fsdp2"):
        accounting = replace(accounting, gathered_weights="layers" if stacked and _resharded(strategy) else "keep")
    made = _Case(model, strategy, used, sizes, mesh, schedule, stages, chunks, microbatches, accounting)
    pipeline.check_divisible(model.graph, strategy, made.known)
    return made


def _has(strategy: Strategy, known: Mapping[str, Fraction]) -> bool:
    from symcomm.form import names

    missing = [n for form in strategy.forms for n in names(form) if n not in known]
    if missing:
        raise StrategyError(f"{missing[0]} of {strategy.name} has no number", hint=f"--at {missing[0]}=2")
    return True


def _resharded(strategy: Strategy) -> bool:
    return all("weight" in rule.on for rule in shard_rules(strategy))


# -- derived ---------------------------------------------------------------------------------------------


def _derived_calls(case: _Case) -> list[Entry]:
    """Every call that one rank makes in a step, those of a pipeline for all ranks together."""
    found: list[Entry] = []
    setting = case.setting
    for c in calls(setting, case.strategy if case.strategy.pipeline is None else case.inside, None) if case.strategy.mesh else ():
        ranks = prod(case.mesh.get(m, 1) for m in c.meshes)
        times = int(case.known[c.region.times]) if c.region.times else 1
        times -= not c.every_layer
        if ranks == 1 or not times:
            continue
        group = "+".join(m for m in case.mesh if m in c.meshes)
        found.append(Entry(c.kind, "backward" if c.phase == "recompute" else c.phase, group, c.tensor,
                           case.number(c.elements), times, times, c.region.name))  # fmt: skip
    if case.strategy.pipeline is None:
        return found
    # Of a pipeline the calls of all ranks together: weights are on one stage each.
    others = case.ranks // case.stages
    found = [replace(e, elements=e.elements * others) for e in found]
    boundaries = case.stages * case.chunks - 1
    boundaries -= sum(1 for s in range(boundaries) if _home(case, s) == _home(case, s + 1))
    sent = [c for c in calls(setting, case.strategy, None) if c.kind == "send"]
    for c in sent:
        elements = case.number(c.elements) * others * boundaries
        found.append(Entry("send", c.phase, "pipe", c.tensor, elements, others * boundaries * case.microbatches))
    return found


def _home(case: _Case, stage: int) -> int:
    placement = find(case.schedule).placement
    places = {placement.stage(rank, chunk, case.stages): rank for rank in range(case.stages) for chunk in range(case.chunks)}
    return places[stage]


def _derived_flops(case: _Case) -> dict[str, Fraction]:
    """The operations of a rank by phase; of a pipeline those of all ranks together."""
    strategy = case.inside if case.strategy.mesh else ONE_RANK
    made = load(case.setting, strategy)
    found: dict[str, Fraction] = {"forward": Fraction(0), "backward": Fraction(0)}
    times = {region.name: case.known[region.times] if region.times else Fraction(1) for region in case.graph.regions}
    for one in made.ops:
        found[one.phase] = found.get(one.phase, Fraction(0)) + evaluate(one.flops, case.known) * times.get(one.op.region, Fraction(1))
    return found


def _derived_parameters(case: _Case) -> Fraction:
    """The parameters of all ranks together."""
    total = Fraction(0)
    times = {r.name: case.known[r.times] if r.times else Fraction(1) for r in case.graph.regions}
    for weight in case.graph.weights:
        count = case.number(case.graph.volume(weight.name)) * times.get(case.graph.consumers[weight.name][0].region, Fraction(1))
        for mesh, position in case.plan.placements.get(weight.name, ()) if case.strategy.mesh else ():
            count = count / case.mesh[mesh] if position != PARTIAL else count
        total += count * (case.ranks // case.stages)
    return total


def _derived_saved(case: _Case) -> Fraction:
    said = {"saved": "pytorch", "gathered_activations": case.accounting.gathered_activations}
    strategy = case.inside if case.strategy.mesh else None
    model = replace(case.model, dtype="fp32", values={})
    made = model.derive("activation_memory", accounting=said, strategy=strategy)
    return made.at(**{n: v for n, v in case.known.items() if n in {*map(str, made.expr.free_symbols)}}).value


def _routing_flops(case: _Case) -> Fraction:
    """The products that bring tokens to experts, forward and backward, on one rank."""
    total = Fraction(0)
    routes = {op.output for op in case.graph.ops if op.kind == "route"}
    if not routes:
        return total
    made = program(case.graph, case.inside if case.strategy.mesh else ONE_RANK, case.accounting).plan
    cuts = made.cuts
    times = {r.name: case.known[r.times] if r.times else Fraction(1) for r in case.graph.regions}
    for op in made.graph.ops:
        if op.kind == "contraction" and op.attribute("lookup") and len(op.inputs) == 2:
            axes = made.graph.index_axes(op)
            every = {i for ix in (op.output_indices, *op.indices) for i in ix}
            count = 2 * prod((case.number(made.graph.axes[axes[i]].size) for i in every), start=Fraction(1))
            for mesh in cuts.get(op.output, {}):
                count /= case.mesh[mesh]
            total += count * times.get(op.region, Fraction(1))
    return total


def _handed_on(case: _Case) -> dict[str, int]:
    """For each sum, how many of its operands were reduced and cut just before it."""
    cut = {c.stored for c in case.plan.collectives if c.kind == "reduce-scatter" and c.phase == "forward"}
    return {op.output: n for op in case.graph.ops if op.kind == "add" for n in [len(cut & {*op.inputs})] if n > 1}


def _product(op: Op, graph: Graph) -> bool:
    """Whether the written module does an op as a matrix product: those that bring tokens to experts are, too."""
    if op.kind != "contraction" or len(op.inputs) < 2:
        return False
    made = [graph.producers.get(name) for name in op.inputs]
    ids = any(one is not None and one.kind == "onehot" for one in made)
    return is_matrix_product(op) or (bool(op.attribute("lookup")) and not ids and not op.attribute("slice"))


def _early(case: _Case) -> tuple[tuple[Entry, ...], frozenset[tuple[str, str, str, str]]]:
    """The calls that would finish partial sums before products read them, and those that are not needed then."""
    plan, graph = case.plan, case.plan.graph
    made: dict[tuple[str, str], Entry] = {}
    carried: set[tuple[str, str]] = set()  # (tensor, mesh): partial only because a product passed the sum on
    spared: set[tuple[str, str, str, str]] = set()
    times = {r.name: int(case.known[r.times]) if r.times else 1 for r in case.graph.regions}
    for step in plan.steps:
        if isinstance(step, Compute):
            for name, stored, layout in zip(step.inputs, step.reads, step.layouts, strict=True):
                for mesh in (m for m, p in layout if p == PARTIAL):
                    if (stored, mesh) not in carried and _product(step.op, graph):
                        elements = case.number(graph.volume(name))
                        for m, p in layout:
                            elements = elements / case.mesh[m] if p != PARTIAL else elements
                        count = times.get(step.op.region, 1)
                        of = graph.tensors[name].of or name
                        made.setdefault((stored, mesh), Entry("all-reduce", step.op.phase, mesh, of, elements, count, count))
                    if (stored, mesh) in carried or _product(step.op, graph):
                        carried |= {(step.makes, m) for m, p in step.output if m == mesh and p == PARTIAL}
        elif any((step.tensor, m) in carried for m in step.meshes):
            group = "+".join(m for m in case.mesh if m in step.meshes)
            name = step.tensor.split(" @ ")[0]
            spared.add((step.kind, step.phase, group, graph.tensors[name].of or name))
    return tuple(made.values()), frozenset(spared)


# -- what a rank is told ---------------------------------------------------------------------------------


def _shapes(case: _Case) -> dict[str, tuple[int, ...]]:
    """The shapes of weights as the written module holds them."""
    found = {}
    for weight in case.graph.weights:
        counts = weight.parts if sum(weight.parts) == len(weight.axes) else (1,) * len(weight.axes)
        sizes, at = [], 0
        for count in counts:
            sizes.append(int(prod(case.number(case.graph.axes[a].size) for a in weight.axes[at : at + count])))
            at += count
        found[weight.name] = tuple(sizes)
    return found


def placed_axis(graph: Graph, name: str, position: int) -> int:
    """The axis of a tensor as it is held behind an axis of the graph.

    Raises ``StrategyError`` where that is the inner part of an axis, which PyTorch cannot cut by itself.
    """
    tensor = graph.tensors[name]
    counts = tensor.parts if sum(tensor.parts) == len(tensor.axes) else (1,) * len(tensor.axes)
    at = 0
    for n, count in enumerate(counts):
        if at == position:
            return n
        if at < position < at + count:
            raise StrategyError(f"{name} is cut inside an axis of the table, which a DTensor cannot hold")
        at += count
    raise AssertionError(position)


def _placed(case: _Case, meshes: list[str]) -> dict[str, Any]:
    """Where a plan has operands and results, for the axes of the mesh that DTensor looks after."""
    plan, graph = case.plan, case.plan.graph
    rests: dict[str, list[Any]] = {}
    for name, layout in plan.placements.items():
        tensor = graph.tensors.get(name)
        if tensor is None or tensor.of or tensor.role == "gradient" or tensor.role == "statistic":
            continue
        places = dict(layout)
        rests[name] = [
            None if m not in places else "any" if places[m] == PARTIAL else placed_axis(graph, name, places[m])
            for m in meshes
        ]
    reads: dict[str, dict[str, list[Any]]] = {}
    for step in plan.steps:
        if not isinstance(step, Compute) or step.op.phase != "forward" or step.op.kind == "update":
            continue
        if step.part != "whole":
            raise StrategyError(f"{step.op.output} is reduced along a cut axis, which DTensor does another way")
        cuts = dict(step.cuts)
        if step.op.kind == "route" and step.op.output_indices[-3] in cuts.values():
            raise StrategyError("each rank would route its part of a sequence by itself, which one process does not do",
                                hint="cut the batch: data(2)")  # fmt: skip
        for name, indices, layout in zip(step.op.inputs, step.op.indices, step.layouts, strict=True):
            partial = {m for m, p in layout if p == PARTIAL}
            said = [
                "any" if m in partial else None if m not in cuts or cuts[m] not in indices
                else placed_axis(graph, name, indices.index(cuts[m])) for m in meshes
            ]  # fmt: skip
            made = graph.producers.get(name)
            if made is not None and made.kind == "onehot":
                name, said = made.inputs[0], [p if p != len(graph.tensors[name].axes) - 1 else None for p in said]
            reads.setdefault(step.op.output, {})[name] = said
    passing = [
        graph.tensors[name].of for name, layout in plan.placements.items()
        if name == gradient_name(graph.tensors[name].of) and any(m in meshes and p == PARTIAL for m, p in layout)
    ]
    return {"rests": rests, "reads": reads, "passing": passing}


def _spec(case: _Case, written: TorchModule, source: str, used: str) -> dict[str, Any]:
    plan, graph = case.plan, case.graph
    named = {written.symbols[s]: v for s, v in case.sizes.items() if s in written.symbols}
    shapes = []
    for name in written.results:
        tensor = graph.tensors[name]
        counts = tensor.parts if sum(tensor.parts) == len(tensor.axes) else (1,) * len(tensor.axes)
        sizes, at = [], 0
        for count in counts:
            sizes.append(int(prod((case.number(graph.axes[a].size) for a in tensor.axes[at : at + count]), start=Fraction(1))))
            at += count
        shapes.append(sizes)
    spec: dict[str, Any] = {
        "method": used, "ranks": case.ranks, "sizes": named, "seed": 7,
        "mesh": [*case.mesh.items()], "results": shapes, "source_text": source,
    }  # fmt: skip
    if used == "single":
        return spec
    meshes = [m for m in case.mesh if m in batch_meshes(case.strategy)]

    def batch(name: str) -> int | None:
        tensor = graph.tensors[name]
        from symcomm.graph.axis_roles import batch_axes

        axes = batch_axes(graph)
        found = [n for n, a in enumerate(tensor.axes) if a in axes]
        return placed_axis(graph, name, found[0]) if found else None

    spec["batch"] = {"inputs": [batch(n) for n in written.inputs], "results": [batch(n) for n in written.results]}
    spec["batch_meshes"] = meshes
    sharded = [rule.mesh for rule in shard_rules(case.strategy)]
    spec["shard_meshes"] = [m for m in case.mesh if m in sharded or m in meshes]
    spec["reshard"] = _resharded(case.strategy)
    if "dtensor" in used:
        inner = [m for m in case.mesh if "+" not in used or m not in spec["shard_meshes"]]
        spec["placed_meshes"] = inner
        spec |= _placed(case, inner)
        spec["inputs"] = [*written.inputs]
        paths: dict[str, str] = {}
        for c in written.classes:
            prefix = f"{c.attribute}.*." if c.region.times and written.stacked else f"{c.attribute}." if written.stacked else ""
            for tensor, attribute in {**c.weights, **c.tables}.items():
                paths[f"{prefix}{attribute}"] = tensor
        weights = {t for c in written.classes for t in c.weights}
        spec["parameters"] = {p: t for p, t in paths.items() if t in weights}
        spec["tied"] = [t for t in weights if sum(t == other for other in paths.values()) > 1]
        for t in weights:
            spec["rests"].setdefault(t, [None] * len(inner))
    if used == "pipelining":
        name, several = SCHEDULES[case.schedule]
        layers = int(prod(case.known[r.times] for r in pipeline.stacked(graph)))
        if len(graph.regions) > 1:
            raise StrategyError("only the layers of one table are run as stages", hint="verify one part: --name")
        stages = case.stages * case.chunks
        if layers % stages:
            raise StrategyError(f"{layers} layers are not divisible into {stages} stages")
        spec |= {
            "schedule": name, "several": several, "chunks": case.chunks, "microbatches": case.microbatches,
            "layers": [layers // stages] * stages, "vee": find(case.schedule).placement.name == "V",
        }  # fmt: skip
    del plan
    return spec


def plan_of(model: Model, strategy: str, values: Mapping[str, Fraction]) -> Plan:
    """The plan of a strategy on a model, as the cases here are planned."""
    return _case(model, strategy, values, USUAL_SCHEDULE, 2).plan


def derived_bytes(
    model: Model, strategy: str, values: Mapping[str, Fraction], accounting: Mapping[str, str], *, plain: bool
) -> dict[str, Fraction]:
    """The elements that each kind of call moves in a step; not ``plain``: as PyTorch moves them by its conventions."""
    case = _case(model, strategy, values, USUAL_SCHEDULE, 2)
    case = replace(case, accounting=Accounting.of(case.accounting, **accounting))
    entries, grouped, _ = expected_calls(case, _context(case))
    found: dict[str, Fraction] = {}
    for (kind, _, _), (elements, _) in (_grouped(entries) if plain else grouped).items():
        found[kind] = found.get(kind, Fraction(0)) + elements
    return found


# -- side by side ----------------------------------------------------------------------------------------


def _rows(case: _Case, reports: list[dict[str, Any]]) -> list[Row]:
    used = case.method
    context = _context(case)
    together = case.method.name == "pipelining"
    rows: list[Row] = []
    flops = _derived_flops(case)
    routed = ("routing_by_product",) if context.routing_flops else ()
    measured: dict[str, int] = {}
    for report in reports if together else reports[:1]:
        for phase, count in report["flops"].items():
            measured[phase] = measured.get(phase, 0) + count
    total = sum(flops.values(), Fraction(0)) * (case.ranks // case.stages if together else 1)
    expected = total + context.routing_flops
    rows.append(Row("FLOPs" + (", all ranks" if together else ""), "FLOP", total, expected, Fraction(sum(measured.values())), routed))
    parameters = _derived_parameters(case)
    held, why = parameters, ()
    for name in used.conventions:
        other = CONVENTIONS[name].parameters(held, context)
        held, why = other, (name,) if other != held else why
    rows.append(Row("parameters, all ranks", "parameters", parameters, held, Fraction(sum(r["parameters"] for r in reports)), why))
    if reports[0]["saved"] is not None and not context.routing_flops:
        saved = _derived_saved(case)
        rows.append(Row("saved for backward", "B", saved, saved, Fraction(reports[0]["saved"])))
    if not together:
        odd = [r for r in reports if (r["flops"], _bytes(r)) != (reports[0]["flops"], _bytes(reports[0]))]
        rows.append(Row("ranks that do otherwise than the first", "ranks", Fraction(0), Fraction(0), Fraction(len(odd))))
    entries, grouped, explained = expected_calls(case, context)
    plain = _grouped(entries)
    found: dict[tuple[str, str, str], list[int]] = {}
    for report in reports if together else reports[:1]:
        for c in report["calls"]:
            key = (c["kind"], c["phase"], c["group"])
            found.setdefault(key, [0, 0])
            found[key][0] += c["bytes"]
            found[key][1] += 1
    for key in dict.fromkeys((*grouped, *found)):
        kind, phase, group = key
        size, count = grouped.get(key, (Fraction(0), 0))
        known = plain.get(key, (Fraction(0), 0))
        got = found.get(key, [0, 0])
        names = tuple(dict.fromkeys(explained.get(key, ())))
        title = f"{kind}, {phase}, over {group}"
        rows.append(Row(title, "B", known[0] * WIDTH, size * WIDTH, Fraction(got[0]), names))
        if count is not None:
            rows.append(Row(f"{title}: calls", "calls", Fraction(known[1] or 0), Fraction(count), Fraction(got[1]), names))
    return rows


def _bytes(report: Mapping[str, Any]) -> list[tuple[str, str, str, int]]:
    return [(c["kind"], c["phase"], c["group"], c["bytes"]) for c in report["calls"]]


_Key = tuple[str, str, str]


def expected_calls(
    case: _Case, context: Context
) -> tuple[list[Entry], dict[_Key, tuple[Fraction, int | None]], dict[_Key, list[str]]]:
    """What is derived, what PyTorch makes of it by its conventions, and which of them changed what."""
    derived = entries = _derived_calls(case)
    explained: dict[_Key, list[str]] = {}
    for name in case.method.conventions:
        made = CONVENTIONS[name].rewrite(entries, context)
        before, after = _grouped(entries), _grouped(made)
        for key in (key for key in after if before.get(key) != after[key]):
            explained.setdefault(key, []).append(name)
        entries = made
    return derived, _grouped(entries), explained


def _context(case: _Case) -> Context:
    shards = prod(case.mesh[rule.mesh] for rule in shard_rules(case.strategy))
    early, spared = _early(case)
    return Context(_shapes(case), case.mesh, shards, _routing_flops(case), _handed_on(case), early, spared)


def _grouped(entries: list[Entry]) -> dict[tuple[str, str, str], tuple[Fraction, int | None]]:
    found: dict[tuple[str, str, str], tuple[Fraction, int | None]] = {}
    for e in entries:
        key = (e.kind, e.phase, e.group)
        size, count = found.get(key, (Fraction(0), 0))
        found[key] = (size + e.total, None if count is None or e.calls is None else count + e.calls)
    return found


def verify(
    model: Model, strategy: Strategy | str | None = None, values: Mapping[str, Fraction] | None = None, *,
    schedule: str = USUAL_SCHEDULE, chunks: int = 2, limit: float = TIME_LIMIT, port: int | None = None,
    fault: Mapping[str, Any] | None = None,
) -> Verification:  # fmt: skip
    """Runs a model under a strategy in real processes and sets what they count beside what is derived.

    ``values`` are sizes and degrees; small numbers stand for those that are left out. Everything is in fp32 on the
    CPU. ``fault`` makes a rank fail or hang, for tests. Raises ``StrategyError`` for what PyTorch has no way to run,
    ``VerificationError`` where a process fails, hangs for ``limit`` seconds or cannot be started.
    """
    prepared = prepare(model, strategy, values, schedule=schedule, chunks=chunks)
    (reports,) = launch([prepared.spec], limit, port, fault)
    return prepared.compare(reports)


@dataclass(frozen=True)
class Prepared:
    """A run that is ready to be started: its case and what the ranks are told."""

    case: _Case
    spec: Mapping[str, Any]

    def compare(self, reports: list[dict[str, Any]]) -> Verification:
        """What the ranks counted, beside what is derived."""
        case = self.case
        failed = next((r["failed"] for r in reports if "failed" in r), None)
        if failed:
            raise VerificationError(f"{case.method.interface} failed: {failed.splitlines()[0][:300]}")
        error = max(r["gradient_error"] for r in reports)
        name = case.strategy.name if case.strategy is not ONE_RANK else "one process"
        return Verification(
            case.model.name, name, case.method.interface, case.ranks, {**case.mesh, **case.sizes},
            tuple(_rows(case, reports)), error, reports[0]["torch"], tuple(reports[0]["calls"]),
        )  # fmt: skip


def prepare(
    model: Model, strategy: Strategy | str | None = None, values: Mapping[str, Fraction] | None = None, *,
    schedule: str = USUAL_SCHEDULE, chunks: int = 2,
) -> Prepared:  # fmt: skip
    """A run that is ready to be started; raises ``StrategyError`` for what PyTorch has no way to run."""
    case = _case(model, strategy, values or {}, schedule, chunks)
    numbers = sum(case.number(case.graph.volume(t)) for t in case.graph.tensors)
    enough_memory(int(case.ranks * (numbers * WIDTH * 24 + 3 * 10**8)))
    written = torch_module(case.graph, model.name, Placed() if "dtensor" in case.method.name else None)
    return Prepared(case, _spec(case, written, written.source, case.method.name))
