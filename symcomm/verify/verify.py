"""A strategy run in real PyTorch processes, and what is counted there beside what is derived."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from fractions import Fraction
from math import prod
from typing import Any

from symcomm.core.collectives.algorithms import share
from symcomm.core.errors import StrategyError
from symcomm.core.form import evaluate, num
from symcomm.core.graph.axis_roles import batch_axes
from symcomm.core.graph.gradient import gradient_name
from symcomm.core.graph.graph import Op
from symcomm.core.model import Model
from symcomm.core.parallel.placement import PARTIAL, Collective, Compute
from symcomm.core.parallel.strategy import Strategy
from symcomm.core.program.program import ONE_RANK
from symcomm.core.program.schedules import USUAL_SCHEDULE
from symcomm.core.records import dataclass
from symcomm.verify.attention import attentions
from symcomm.verify.conventions import CONVENTIONS, FINISHED, RunContext, is_product
from symcomm.verify.expected import (
    WIDTH,
    RunCase,
    context_of,
    cut_classes,
    derived_cache,
    derived_flops,
    derived_parameters,
    derived_peak,
    derived_saved,
    expected_calls,
    make_case,
    needed_memory,
    outside,
    placed_axis,
    resharded,
    why_no_peak,
    why_no_saved,
    with_products,
    without_dropout,
)
from symcomm.verify.launch import TIME_LIMIT, TORCH, Launcher, enough_memory
from symcomm.verify.lines import PlacedMarks, RunMarks
from symcomm.verify.methods import SCHEDULES, batch_meshes
from symcomm.verify.module import TorchModule, torch_module

Changes = Sequence[tuple[str, Callable[[Fraction], Fraction]]]  # conventions by name: what they make of a number
TOLERANCE = 2e-4  # of gradients in fp32, against one process


@dataclass(frozen=True)
class ComparedRow:
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
        """The difference that no convention explains."""
        return self.measured - self.expected


@dataclass(frozen=True)
class Verification:
    """The result of a run: a row each for operations, parameters, saved bytes and each kind of call.

    ``gradient_error`` is None where no weight has a gradient.
    """

    model: str
    strategy: str
    interface: str
    ranks: int
    sizes: Mapping[str, int]
    rows: tuple[ComparedRow, ...]
    gradient_error: float | None
    torch: str
    calls: tuple[Mapping[str, Any], ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether nothing is different, and all ranks learn what one process learns."""
        return all(row.difference == 0 for row in self.rows) and (self.gradient_error or 0) <= TOLERANCE

    @property
    def compares_saved(self) -> bool:
        """Whether the bytes that are saved for backward are among what is compared."""
        return any(row.what == "saved for backward" for row in self.rows)

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
    if not isinstance(number, Fraction):
        return number
    return int(number) if number.denominator == 1 else str(number)


# -- what a rank is told ---------------------------------------------------------------------------------


def _places(case: RunCase, meshes: list[str]) -> dict[str, Any]:
    """Where a plan has operands and results, for the axes of the mesh that DTensor looks after."""
    plan, graph = case.plan, case.plan.graph
    early = {(one.work.tensor, mesh) for one in replace(case, early=True).program(case.inside).instructions
             if FINISHED in one.by and isinstance(one.work, Collective) for mesh in one.work.meshes}  # fmt: skip
    for step in reversed(plan.steps):  # what is only seen otherwise by the product is finished before that
        if isinstance(step, Compute) and len(step.reads) == 1:
            early |= {(step.reads[0], m) for m in case.mesh if (step.makes, m) in early}
    routes = any(op.kind == "route" for op in graph.ops)
    uncut = {step.makes: {*case.mesh} - {m for m, _ in step.cuts} for step in plan.steps
             if isinstance(step, Compute) and step.op.phase == "backward"}  # fmt: skip
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
        if step.op.kind == "crossentropy" and step.part != "whole" and len(meshes) == 1:
            if step.op.output in reads:
                continue  # the other passes read what the first one does
        elif step.part != "whole":
            raise _cut_reduction(step.op)
        cuts = dict(step.cuts)
        if step.op.attribute("slice") and {*cuts.values()} & {*step.op.summed}:
            raise StrategyError(
                f"{step.op.output} takes one place of an axis that is cut: DTensor gathers the axis, where the place "
                "alone is derived", hint="cut the batch or the heads: data(2), tensor(2)"
            )  # fmt: skip
        experts = routes and step.op.attribute("lookup")
        operands = [*zip(step.op.inputs, step.op.indices, strict=True)] if experts else []
        if any(i not in at and m in uncut.get(gradient_name(n), ()) for n, at in operands for m, i in step.cuts):
            raise StrategyError(
                f"{step.op.output} is cut, and autograd cuts the gradients of what it reads from experts, too: here "
                "they are derived for all tokens", hint="tensor(2) + sequence, or data(2)"
            )  # fmt: skip
        if step.op.kind == "route" and step.op.output_indices[-3] in cuts.values():
            raise StrategyError("each rank would route its part of a sequence by itself, which one process does not do",
                                hint="cut the batch: data(2)")  # fmt: skip
        for name, stored, indices, layout in zip(
            step.op.inputs, step.reads, step.op.indices, step.layouts, strict=True
        ):
            partial = {m for m, p in layout if p == PARTIAL and (stored, m) not in early}
            said = [
                "any" if m in partial else None if m not in cuts or cuts[m] not in indices
                else placed_axis(graph, name, indices.index(cuts[m])) for m in meshes
            ]  # fmt: skip
            twice = {at for at in said if said.count(at) > 1} - {"any", None, 0}
            weights = {n for n in step.op.inputs if graph.tensors[n].role == "weight"}
            if twice and is_product(step.op, graph) and weights - {name}:
                raise StrategyError(
                    f"{step.op.output} is a product of rows that two axes of the mesh cut behind another axis: DTensor "
                    "flattens them with the axes before them, and cannot split them again",
                    hint="one of the two: context(2), or tensor(2) + sequence"
                )  # fmt: skip
            made = graph.producers.get(name)
            if made is not None and made.kind == "onehot":
                name, said = made.inputs[0], [p if p != len(graph.tensors[name].axes) - 1 else None for p in said]
            reads.setdefault(step.op.output, {})[name] = said
    for kernel in attentions(graph):
        reads[kernel.op.output] = {o.name: reads[o.reader.output][o.name] for o in kernel.operands}
    passing = [
        graph.tensors[name].of
        for name, layout in plan.placements.items()
        if name == gradient_name(graph.tensors[name].of)
        and any(m in meshes and p == PARTIAL for m, p in layout)
        and not any((name, m) in early for m in meshes)
    ]
    return {"rests": rests, "reads": reads, "passing": passing}


def _cut_reduction(op: Op) -> StrategyError:
    """Why a reduction along a cut axis is not run."""
    if op.kind == "crossentropy":
        return StrategyError(
            f"{op.output} is a loss over cut classes, which loss_parallel takes on a mesh of one axis only",
            hint="https://docs.pytorch.org/docs/stable/distributed.tensor.parallel.html",
        )
    return StrategyError(
        f"{op.output} is reduced along a cut axis: DTensor gathers the axis, where statistics are derived",
        hint="https://docs.pytorch.org/docs/stable/distributed.tensor.html",
    )


def _spec(case: RunCase, written: TorchModule) -> dict[str, Any]:
    """What the ranks of a run are told."""
    graph, used = case.graph, case.method.name
    apart = outside(case)
    meshes = [m for m in case.mesh if m in apart and m in batch_meshes(case.strategy)]
    spec: dict[str, Any] = {
        "method": used, "ranks": case.ranks, "seed": 7, "mesh": [*case.mesh.items()], "source_text": written.source,
        "sizes": {written.symbols[s]: v for s, v in case.sizes.items() if s in written.symbols},
        "results": [case.shape(graph.tensors[name]) for name in written.results], "batch_meshes": meshes,
        "fixed": [n for n, name in enumerate(written.inputs) if graph.tensors[name].role == "constant"],
        "shard_meshes": [m for m in case.mesh if m in apart - {"pipe"}],
        "units": next((one for one in ("fsdp2", "replicate") if one in used), ""), "inputs": [*written.inputs],
        "reshard": resharded(case.strategy) and not case.pipelined, "peak": not why_no_peak(case),
    }  # fmt: skip
    if case.graph.step is not None:
        spec |= _cached_spec(case, written)
    batch = batch_axes(graph) if meshes or case.pipelined else ()

    def batch_axis(name: str) -> int | None:
        found = [n for n, a in enumerate(graph.tensors[name].axes) if a in batch]
        return placed_axis(graph, name, found[0]) if found else None

    spec["batch"] = {"inputs": [*map(batch_axis, written.inputs)], "results": [*map(batch_axis, written.results)]}
    if "dtensor" in used:
        spec |= _placed_spec(case, written, [m for m in case.mesh if m not in apart])
    if case.pipelined:
        spec |= _staged_spec(case, written)
    return spec


def _cached_spec(case: RunCase, written: TorchModule) -> dict[str, Any]:
    """What a step is told: its cache, the sizes of what runs before it, and where positions are in what it reads."""
    graph, step = case.graph, case.graph.step
    assert step is not None

    def along(name: str) -> list[tuple[int, bool]]:
        found = [(n, axis in step.stream) for n, axis in enumerate(graph.tensors[name].axes)
                 if axis in {*step.stream, *step.behind}]  # fmt: skip
        return [(placed_axis(graph, name, n), new) for n, new in found]

    kept = {f"{c.attribute}.{'*.' * bool(c.region.times)}{name}": tensor
            for c in written.classes for tensor, name in c.kept.items()}  # fmt: skip
    return {
        "kept": {path: (tensor, along(tensor)) for path, tensor in kept.items()},
        "positions": [*map(along, written.inputs)], "new": written.symbols[str(step.new)],
        "past": written.symbols[str(step.past)] if step.behind else "",
    }  # fmt: skip


def _staged_spec(case: RunCase, written: TorchModule) -> dict[str, Any]:
    """What a pipeline is told: what each part takes from the part before it, and how many parts are a stage."""
    classes = written.classes
    repeated = [n for n, c in enumerate(classes) if c.region.times]
    if len(repeated) != 1:
        raise StrategyError("a pipeline runs one stack of layers, with the parts before and behind it",
                            hint="verify one part: --name")  # fmt: skip
    chain: list[dict[str, Any]] = []
    flow = classes[0].arguments[0]
    for c in classes:
        into = {target: source for source, target in c.region.carried}
        taken = [n for n in c.arguments if n in into or n == flow]
        strange = [n for n in c.arguments if n not in taken and n not in written.inputs]
        if len(taken) != 1 or len(c.results) != 1 or strange:
            raise StrategyError(f"{c.region.name} takes or gives more than one tensor, which a stage cannot hand on",
                                hint="verify one part: --name")  # fmt: skip
        named = [None if n in taken else written.inputs[n] for n in c.arguments]
        chain.append({"attribute": c.attribute, "takes": taken[0], "gives": c.results[0], "arguments": named})
        flow = c.results[0]
    (at,) = repeated
    name, several = SCHEDULES[case.schedule]
    stages, layers = case.stages * case.chunks, int(case.times(classes[at].region.name))
    if layers % stages:
        raise StrategyError(f"{layers} layers are not divisible into {stages} chunks of layers",
                            hint=f"{classes[at].region.times} is {layers}")  # fmt: skip
    weights = [tensor for c in classes for tensor in c.weights]
    units = any(one in case.method.name for one in ("fsdp2", "replicate"))
    if units and len({*weights}) < len(weights) and case.ends == 1:
        raise StrategyError("the first and the last stage share a weight on one rank, of which their units make two",
                            hint="a schedule with the two of them on different ranks: 1f1b")  # fmt: skip
    parts = [layers // stages] * stages
    parts[0], parts[-1] = parts[0] + at, parts[-1] + len(classes) - 1 - at
    return {
        "schedule": name, "several": several or case.chunks > 1, "microbatches": case.microbatches,
        "chain": chain, "parts": parts, "homes": case.homes,
        "names": [*written.inputs.values()], "last": chain[-1]["gives"],
    }  # fmt: skip


def _placed_spec(case: RunCase, written: TorchModule, meshes: list[str]) -> dict[str, Any]:
    """What a run with DTensor is told besides: where weights are in the module, and where tensors are to be."""
    weights: dict[str, str] = {}
    for c in written.classes:
        stands = f"{c.attribute}.*." if c.region.times else f"{c.attribute}."
        weights |= {f"{stands if written.stacked else ''}{name}": tensor for tensor, name in c.weights.items()}
    places = _places(case, meshes)
    for tensor in weights.values():
        places["rests"].setdefault(tensor, [None] * len(meshes))
    tied = [t for t in dict.fromkeys(weights.values()) if [*weights.values()].count(t) > 1]
    return {**places, "placed_meshes": meshes, "parameters": weights, "tied": tied, "loss_parallel": cut_classes(case)}


# -- side by side ----------------------------------------------------------------------------------------


def _row(what: str, unit: str, derived: Fraction, measured: Fraction | int, changes: Changes = (),
         times: int = 1) -> ComparedRow:  # fmt: skip
    """A row whose derived number some conventions change one after the other; those that do explain it."""
    expected, names = derived, list[str]()
    for name, change in changes:
        before, expected = expected, change(expected)
        names += [name] if expected != before else []
    return ComparedRow(what, unit, derived * times, expected * times, Fraction(measured), tuple(names))


def _rows(case: RunCase, reports: list[dict[str, Any]]) -> list[ComparedRow]:
    used, context = case.method.conventions, context_of(case)
    together = case.pipelined  # its stages do not do the same: all ranks are counted together
    counted = reports if together else reports[:1]
    flops = ("hardware FLOPs" if case.graph.fused else "FLOPs") + (", all ranks" if together else "")

    def here(change: Callable[[Fraction, RunContext], Fraction]) -> Callable[[Fraction], Fraction]:
        return lambda number: change(number, context)

    computed = [(name, here(CONVENTIONS[name].flops)) for name in ("routing_by_product", *used)]
    held = [(name, here(CONVENTIONS[name].parameters)) for name in used]
    parameters = sum(r["parameters"] for r in reports)
    rows = [
        _row(flops, "FLOP", derived_flops(case), sum(sum(r["flops"].values()) for r in counted), computed,
             case.ranks // case.stages if together else 1),
        _row("parameters, all ranks", "parameters", derived_parameters(case), parameters, held),
    ]  # fmt: skip
    if case.graph.step is not None and case.graph.step.behind:
        rows.append(_row("cache that is read, one rank", "B", derived_cache(case), reports[0]["cache"]))
    elif case.graph.step is None and not why_no_saved(case):
        plain = without_dropout(case.graph)
        kept: Changes = [("dropout_off", lambda _: derived_saved(case, plain)),
                         ("routing_by_product", lambda _: derived_saved(case, with_products(plain)))]  # fmt: skip
        rows.append(_row("saved for backward", "B", derived_saved(case, case.graph), reports[0]["saved"], kept))
        if "peak" in reports[0]:
            rows.append(_row("peak of the backward pass", "B", derived_peak(case), reports[0]["peak"]))
    if not together:
        odd = [r for r in reports if (r["flops"], _bytes(r)) != (reports[0]["flops"], _bytes(reports[0]))]
        rows.append(_row("ranks unlike the first", "ranks", Fraction(case.smaller), len(odd)))
    derived, expected, explained = expected_calls(case, context)
    found: dict[tuple[str, str, str], list[int]] = {}
    for kind, phase, group, size in (one for report in counted for one in _bytes(report)):
        found.setdefault((kind, phase, group), []).append(size)
    for key in dict.fromkeys((*expected, *found)):
        elements, count = expected.get(key, (Fraction(0), 0))
        before, calls_before = derived.get(key, (Fraction(0), 0))
        names, title = tuple(explained.get(key, ())), "{}, {}, over {}".format(*key)
        got = found.get(key, [])
        rows.append(ComparedRow(title, "B", before * WIDTH, elements * WIDTH, Fraction(sum(got)), names))
        if count is not None:
            rows.append(ComparedRow(f"{title}: calls", "calls", Fraction(calls_before or 0), Fraction(count),
                            Fraction(len(got)), names))  # fmt: skip
    return rows


# By which algorithm gloo runs a collective.
GLOO: Mapping[str, str] = {"all-reduce": "ring", "all-gather": "ring", "reduce-scatter": "ring", "broadcast": "tree"}


def _asked(case: RunCase, algorithm: str) -> str:
    """The algorithm whose bytes are to be compared; raises ``StrategyError`` where none can be."""
    if not algorithm:
        return ""
    able = sorted({*GLOO.values()})
    if algorithm not in able:
        raise StrategyError(f"gloo, which carries these runs, does not send by '{algorithm[:40]}'",
                            hint=f"it has {' and '.join(able)}")  # fmt: skip
    if case.pipelined or case.ranks == 1:
        raise StrategyError("messages between stages are sent as they are, and one process sends none",
                            hint="leave --algorithm out")  # fmt: skip
    return algorithm


def _socket_rows(case: RunCase, algorithm: str, reports: list[dict[str, Any]]) -> list[ComparedRow]:
    """The bytes that go through sockets for the calls that the algorithm asked for carries, of all ranks of a group."""
    if not algorithm:
        return []
    rows, measured = [], dict[tuple[str, str, str], Fraction]()
    for report in reports:
        for kind, phase, group, size in _bytes(report):
            parts = 8 * prod(case.mesh[m] for m in group.split("+"))
            carried = Fraction(size * report["received"][f"{kind} {group}"], parts)
            measured[kind, phase, group] = measured.get((kind, phase, group), Fraction(0)) + carried
    derived, expected, explained = expected_calls(case, context_of(case))
    for key in dict.fromkeys((*expected, *measured)):
        kind, ranks = key[0], prod(case.mesh[m] for m in key[2].split("+"))
        if GLOO.get(kind) != algorithm:
            continue
        runs = "all-reduce" if kind == "reduce-scatter" else kind
        asked, run = (evaluate(share(k, "all_links", algorithm, num(ranks), num(1)), {}) for k in (kind, runs))
        names = (*explained.get(key, ()), *(("scattered_from_sum",) if runs != kind else ()))
        before, after = (made.get(key, (Fraction(0),))[0] * WIDTH for made in (derived, expected))
        rows.append(ComparedRow("{}, {}, over {}: through sockets".format(*key), "B", before * asked, after * run,
                                measured.get(key, Fraction(0)) * ranks / case.ranks, names))  # fmt: skip
    return rows


def _bytes(report: Mapping[str, Any]) -> list[tuple[str, str, str, int]]:
    return [(c["kind"], c["phase"], c["group"], c["bytes"]) for c in report["calls"]]


def verify(
    model: Model, strategy: Strategy | str | None = None, values: Mapping[str, Fraction] | None = None, *,
    schedule: str = USUAL_SCHEDULE, chunks: int = 2, limit: float = TIME_LIMIT, port: int | None = None,
    fault: Mapping[str, Any] | None = None, algorithm: str = "", softmax: str = "as_given",
) -> Verification:  # fmt: skip
    """Runs a model under a strategy in real processes and sets what they count beside what is derived.

    ``values`` are sizes and degrees; small numbers stand for those that are left out. Everything is in fp32 on the
    CPU. Attention runs as one kernel where it is derived so, or where ``softmax`` is "fused". With an ``algorithm`` the
    bytes that gloo's connections carry for its collectives are counted, too. ``fault`` makes a rank fail or hang, for
    tests. Raises ``StrategyError`` for what PyTorch has no way to run, ``VerificationError`` where a process fails,
    hangs for ``limit`` seconds or cannot be started.
    """
    prepared = prepare(model, strategy, values, schedule=schedule, chunks=chunks, algorithm=algorithm, softmax=softmax)
    with Launcher() as launch:
        return prepared.compare(launch(prepared.spec, limit, port, fault))


def _notes(case: RunCase, torch: str = TORCH) -> list[str]:
    """What was not compared, and why; and whether conventions were held against another version of PyTorch."""
    found = []
    if why_no_saved(case):
        found.append(f"Saved bytes are not compared: {why_no_saved(case)}.")
    if case.graph.step is None and why_no_peak(case):
        found.append(f"The peak is not compared: {why_no_peak(case)}.")
    if case.written_out:
        found.append(f"Attention is written out and derived so, not as one kernel: {case.written_out}.")
    if case.graph.step is not None and any(op.kind == "route" for op in case.graph.ops):
        found.append("Small sizes send each token to all experts: full ones would leave out others than in one pass.")
    own = {n: v for n, v in case.model.values.items() if n in case.sizes and v != case.sizes[n]}
    if own:
        at = ",".join(f"{name}={value}" for name, value in sorted(own.items()))
        found.append(f"The model's own sizes are not run, small ones are; --at {at} runs them.")
    if torch.partition("+")[0] != TORCH:
        other = "another version may move otherwise"
        found.append(f"PyTorch {torch}: the conventions here were held against {TORCH}; {other}.")
    return found


@dataclass(frozen=True)
class Prepared:
    """A run that is ready to start: its case and the message to its ranks."""

    case: RunCase
    spec: Mapping[str, Any]
    algorithm: str = ""

    def compare(self, reports: list[dict[str, Any]]) -> Verification:
        """The counts of the ranks beside the derived numbers."""
        case = self.case
        error = max((e for r in reports if (e := r["gradient_error"]) is not None), default=None)
        name = case.strategy.name if case.strategy is not ONE_RANK else "one process"
        return Verification(
            case.model.name, name, case.method.interface, case.ranks, {**case.mesh, **case.sizes},
            (*_rows(case, reports), *_socket_rows(case, self.algorithm, reports)), error, reports[0]["torch"],
            tuple(reports[0]["calls"]), tuple(_notes(case, reports[0]["torch"])),
        )  # fmt: skip


def prepare(
    model: Model, strategy: Strategy | str | None = None, values: Mapping[str, Fraction] | None = None, *,
    schedule: str = USUAL_SCHEDULE, chunks: int = 2, algorithm: str = "", softmax: str = "as_given",
) -> Prepared:  # fmt: skip
    """A run that is ready to be started; raises ``StrategyError`` for what PyTorch has no way to run."""
    case = make_case(model, strategy, values or {}, schedule, chunks, softmax)
    enough_memory(needed_memory(case.graph, case.known, case.ranks))
    marks = PlacedMarks() if "dtensor" in case.method.name else RunMarks()
    spec = _spec(case, torch_module(case.graph, model.name, marks))
    return Prepared(case, spec | {"sockets": bool(_asked(case, algorithm))}, algorithm)
