"""Practice scripts: the same small model trained with data, fully sharded, pipeline and tensor parallelism.

Each exercise is a script with its launcher; a check compares its losses with those of one process, its collectives and
the work of each process with what is derived. The paper has gaps to be filled in, the solution is complete.
"""

from __future__ import annotations

import ast
import json
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

from symcomm.core.accounting import Accounting
from symcomm.core.errors import RenderError, StrategyError
from symcomm.core.graph.graph import Graph, Op
from symcomm.core.model import Model
from symcomm.core.parallel.placement import PARTIAL, Collective, Compute, Plan
from symcomm.core.program.schedules import USUAL_SCHEDULE
from symcomm.documents.render.environment import fill
from symcomm.verify import expected
from symcomm.verify.conventions import CONVENTIONS
from symcomm.verify.lines import Marks
from symcomm.verify.module import TorchModule, torch_module
from symcomm.verify.sizes import small_sizes

Edition = Literal["paper", "solution"]
RANKS = (2, 4)
STEPS, RATE, MICROBATCHES, TOLERANCE, LIMIT = 10, 0.05, 4, 1e-5, 120
EXERCISES: Mapping[str, str] = {
    "dp": "data({k})",
    "fsdp": "fully-sharded({k})",
    "pp": f"pipeline({{k}}, microbatches={MICROBATCHES})",
    "tp": "tensor({k})",
}


class _Megatron(Marks):
    """``copied`` where a whole tensor meets weights that are cut, ``reduced`` where their parts are added up.

    Parts are added up before a product of activations reads them, as DTensor does it: its gradients need the sum.
    """

    def __init__(self, case: expected.RunCase) -> None:
        plan, run = case.plan, replace(case, early=True).program(case.inside)
        self.reduced: set[str] = set()
        for call in run.works():
            if isinstance(call, Collective) and call.phase == "forward" and call.kind == "all-reduce":
                self.reduced.add(call.tensor)
            elif isinstance(call, Collective) and call.phase == "forward":
                raise RenderError(
                    f"tensor parallelism of this model needs {call.kind} in its forward pass; the script has none"
                )
        self.meets: set[tuple[str, str]] = set()
        for step in plan.steps:
            if isinstance(step, Compute) and step.op.phase == "forward":
                cut = {index for _, index in step.cuts}
                for name, indices in zip(step.op.inputs, step.op.indices, strict=True):
                    if cut and not cut & {*indices} and plan.graph.tensors[name].role in ("input", "activation"):
                        self.meets.add((step.op.output, name))

    def read(self, op: Op, name: str, text: str, before: list[str]) -> str:
        if (op.output, name) not in self.meets:
            return text
        if not text.isidentifier():
            return f"copied({text})"
        line = f"        {text}_copied = copied({text})  # the same in all processes"
        if line not in before:
            before.append(line)
        return f"{text}_copied"

    def rest(self, name: str, text: str) -> str:
        return f"reduced({text})" if name in self.reduced else text


def practice(model: Model, edition: Edition = "solution") -> dict[str, str]:
    """The files of the exercises by name.

    Raises ``RenderError`` or ``StrategyError`` where the model cannot have one of them.
    """
    model.graph.check_trains("the exercises train a model")
    model = replace(model, graph=replace(model.graph, fused=False))  # the exercises write attention out
    graph = expected.batch_first(model.graph)
    stacked = [region for region in graph.regions if region.times]
    if len(graph.regions) != 1 or not stacked or len(graph.carried) != 1:
        raise RenderError(f"the exercises train a stack of layers; {model.name} is none", hint="say 'repeat: N_layer'")
    unit = max(RANKS)
    sizes = small_sizes(graph, {}, unit, MICROBATCHES, unit)
    known = {n: Fraction(v) for n, v in sizes.items()}
    written = torch_module(graph, model.name, values=sizes)
    cut = expected.make_case(model, EXERCISES["tp"].format(k=2), known, USUAL_SCHEDULE, 2)
    plan = cut.plan
    parallel = torch_module(graph, model.name, _Megatron(cut), sizes,
                            head="copied = reduced = None  # set by question3_tp.py")  # fmt: skip
    found = {
        name: {str(k): _derived(model, strategy.format(k=k), known, name) for k in RANKS}
        for name, strategy in EXERCISES.items()
    }
    derived, work = ({name: {k: one[n] for k, one in each.items()} for name, each in found.items()} for n in (0, 1))
    result = graph.outputs[0]
    ending = [op for op in graph.ops if op.output == result.name]
    context: dict[str, object] = {
        "title": model.name, "solution": edition == "solution", "steps": STEPS, "rate": _code(repr(RATE)),
        "tolerance": _code(repr(TOLERANCE)), "limit": LIMIT, "microbatches": MICROBATCHES,
        "losses": any(op.kind == "crossentropy" for op in ending),
        "layers": [_code(c.attribute) for c in written.classes],
        "target": _code(_target(graph, result.name, written)), "derived": _code(json.dumps(derived, indent=4)),
        "cut": _code(repr(_cut(plan, written))),
        "work": _code(json.dumps(work, indent=4)),
        "divided": [_code(written.symbols[s]) for s in _divided(plan, written)],
    }  # fmt: skip
    files = {"model.py": written.source, "tensor_parallel_model.py": parallel.source}
    for name in ("training", *(f"question3_{e}" for e in EXERCISES), "check"):
        files[f"{name}.py"] = fill("py", f"practice/{name}.py.jinja", None, context)
    for name in EXERCISES:
        script = {"script": _code(f"question3_{name}.py")}
        files[f"question3_{name}.sh"] = fill("sh", "practice/launch.sh.jinja", None, script)
    for name, text in files.items():
        if name.endswith(".py"):
            ast.parse(text)
    return files


def write_practice(files: Mapping[str, str], folder: Path) -> list[Path]:
    """Writes the files into a folder, all of them or none; launchers may be run.

    Raises ``RenderError`` where they cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".practice") as place:
            for name, text in files.items():
                path = Path(place, name)
                path.write_text(text, encoding="utf-8")
                path.chmod(0o755 if name.endswith(".sh") else 0o644)
            for name in files:
                shutil.move(Path(place, name), folder / name)
    except OSError as error:
        raise RenderError(f"{folder} cannot be written: {error.strerror}") from None
    return [folder / name for name in files]


def _code(text: str) -> Any:
    """Text that is code already: made here, and not escaped again."""
    from markupsafe import Markup

    return Markup(text)  # noqa: S704  (numbers and names that were made here)


def _derived(model: Model, strategy: str, known: Mapping[str, Fraction], name: str) -> tuple[dict[str, int], int]:
    """The bytes that each kind of call moves in a step, and the FLOPs of one process in matrix products.

    The bytes are as PyTorch moves them, but in a pipeline, where the script does; its FLOPs are of all processes.
    """
    case = expected.make_case(model, strategy, known, USUAL_SCHEDULE, 2)
    trained = replace(case, accounting=Accounting.of(case.accounting, input_gradient="not_needed"))
    moving = trained if name == "tp" else case
    derived, moved, _ = expected.expected_calls(moving, expected.context_of(moving))
    found: dict[str, Fraction] = {}
    for (kind, _, _), (elements, _) in (derived if name == "pp" else moved).items():
        found[kind] = found.get(kind, Fraction(0)) + elements * expected.WIDTH
    flops, context = expected.derived_flops(trained), expected.context_of(trained)
    for convention in ("routing_by_product", "reduced_before_product"):
        flops = CONVENTIONS[convention].flops(flops, context)
    return {kind: int(count) for kind, count in found.items() if count}, int(flops)


def _target(graph: Graph, result: str, written: TorchModule) -> str:
    tensor = graph.tensors[result]
    names = {s: f'SIZES["{n}"]' for s, n in written.symbols.items()}
    sizes = []
    for axes in tensor.own_axes:
        factors = [str(graph.axes[a].size) for a in axes]
        if any(f not in names for f in factors):
            raise RenderError(f"{result} has an axis that is no size by itself", hint="give it a symbol of its own")
        sizes.append(" * ".join(names[f] for f in factors))
    return ", ".join(sizes)


def _cut(plan: Plan, written: TorchModule) -> dict[str, int]:
    """The axis of each weight that is cut, by its name in the module."""
    found = {}
    for c in written.classes:
        for tensor, attribute in c.weights.items():
            places = [p for _, p in plan.placements.get(tensor, ()) if p != PARTIAL]
            if places:
                found[attribute] = expected.placed_axis(plan.graph, tensor, places[0])
    return found


def _divided(plan: Plan, written: TorchModule) -> tuple[str, ...]:
    """The sizes in the methods of a layer that are those of a part where tensor parallelism cuts.

    Raises ``StrategyError`` where no choice of them makes all axes what they are on one process.
    """
    graph = plan.graph
    cut = {
        graph.index_axes(step.op)[index]
        for step in plan.steps if isinstance(step, Compute) and step.op.phase == "forward" for _, index in step.cuts
    }  # fmt: skip
    split = {
        a for op in graph.ops if op.attribute("view") and op.phase == "forward"
        for n in (*op.inputs, op.output) for axes in graph.tensors[n].own_axes if len(axes) > 1 for a in axes
    }  # fmt: skip
    symbols = sorted({s.name for a in split for s in graph.axes[a].size.free_symbols} & {*written.symbols})
    two = 2
    for count in range(len(symbols) + 1):
        for chosen in combinations(symbols, count):

            def scaled(a: str, chosen: tuple[str, ...] = chosen) -> Any:
                size = graph.axes[a].size
                return size.subs({s: s / two for s in size.free_symbols if s.name in chosen}) / size

            if all(scaled(a) == (Fraction(1, two) if a in cut else 1) for a in split):
                return chosen
    raise StrategyError("a part has the same sizes as the whole layer, so the script could not tell them apart")
