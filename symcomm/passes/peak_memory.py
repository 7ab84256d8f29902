"""The memory of one rank over a training step, op by op: where the peak is and what it is made of."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from fractions import Fraction

import sympy as sp

from symcomm import form as forms
from symcomm.derivation import Derivation, Exhibit, Reason, Step
from symcomm.dtypes import element_bytes
from symcomm.errors import StrategyError, ValuesError
from symcomm.form import Form, Num, Sym, Total, evaluate, names, num, product
from symcomm.graph.graph import Graph, Tensor
from symcomm.parallel.placement import PARTIAL, Collective, Compute, Layout, check_divisible, place, plan
from symcomm.parallel.strategy import Strategy, parse_strategy, resolve
from symcomm.passes.activation_memory import bytes_of, named
from symcomm.passes.capacity import in_bytes
from symcomm.passes.saved import ONE_RANK, Saved, frozen_weights, keeper, storage, training_graph
from symcomm.passes.setting import Setting, Work
from symcomm.passes.state_memory import Recipe, layers, recipe_of
from symcomm.units import BYTE, Quantity

KINDS = ("weights", "gradients", "optimizer states", "saved activations", "temporaries")
_LETTERS = {"weights": "M_W", "gradients": "M_G", "optimizer states": "M_O", "saved activations": "M_A",
            "temporaries": "M_T"}  # fmt: skip


@dataclass(frozen=True)
class Moment:
    """What is alive while one op runs, by kind; ``layer`` is ``last`` or ``first`` of the stack."""

    phase: str
    layer: str
    op: str
    row: str
    parts: tuple[tuple[str, Form], ...]


@dataclass
class _Storage:
    size: Form
    kind: str
    born: int
    dies: int


@dataclass
class _Timeline:
    """The storages of one layer's plan, with the steps between which they are alive."""

    setting: Setting
    strategy: Strategy
    recipe: Recipe
    recomputation: str
    frozen: frozenset[str]
    storages: dict[tuple[str, tuple[str, ...]], _Storage] = field(default_factory=dict)

    def __post_init__(self) -> None:
        both = training_graph(self.setting, tuple(self.frozen))
        self.plan = plan(both, self.strategy, self.setting.accounting)
        self.graph = self.plan.graph
        self.kept = keeper(self.setting, self.plan, self.recomputation).collect()
        self.steps = [s for s in self.plan.steps if isinstance(s, Collective) or s.op.kind != "update"]
        self.roots = {item.tensor for item in self.kept}
        for at, step in enumerate(self.steps):
            if isinstance(step, Collective):
                self.uses(step.tensor, step.before, at)
                self.makes(step.tensor.split(" @ ")[0], step.stored, step.after, at)
                continue
            for stored, layout in zip(step.reads, step.layouts, strict=True):
                self.uses(stored, layout, at)
            self.makes(step.op.output, step.op.output, step.output, at)

    def part(self, layout: Layout) -> tuple[str, ...]:
        return tuple(sorted(mesh for mesh, position in layout if position != PARTIAL))

    def size(self, tensor: Tensor, part: tuple[str, ...], width: Form | None = None) -> Form:
        elements = self.graph.elements(tensor.name)
        for mesh in part:
            elements = elements / forms.value(self.strategy.sizes[mesh])
        dtype = tensor.dtype or (self.graph.tensors[tensor.of].dtype if tensor.of in self.graph.tensors else None)
        return product(self.setting.written(elements), width or element_bytes(dtype or self.setting.dtype))

    def key(self, stored: str, layout: Layout) -> tuple[str, tuple[str, ...]]:
        base, _, copy = stored.partition(" @ ")
        root = base if copy else storage(self.graph, base, self.setting.accounting.saved == "pytorch")
        return root, self.part(layout)

    def makes(self, name: str, stored: str, layout: Layout, at: int) -> None:
        """A new storage; a view, a virtual tensor and the gradient of a weight (which is a state) make none."""
        tensor = self.graph.tensors[name]
        if tensor.virtual or (tensor.role == "constant" and tensor.name not in self.graph.producers):
            return
        key = self.key(stored, layout)
        if key in self.storages:
            return
        weight = tensor.role == "gradient" and self.graph.tensors[tensor.of].role == "weight"
        kind = "gradients" if weight and name in self.finished else "temporaries"
        # The gradient of an input goes on to what made the input: it is there until the pass ends.
        leaves = tensor.role == "gradient" and not weight and name not in self.graph.consumers
        last = len(self.steps) if leaves else at
        self.storages[key] = _Storage(self.size(self.graph.tensors[key[0]], key[1]), kind, at, last)

    @property
    def finished(self) -> set[str]:
        return {f"d({w.name})" for w in self.graph.weights}

    def uses(self, stored: str, layout: Layout, at: int) -> None:
        base, _, copy = stored.partition(" @ ")
        tensor = self.graph.tensors[base]
        if tensor.role in ("weight", "constant") and not copy:
            return
        key = self.key(stored, layout)
        if key not in self.storages:  # it was there before the first step: an input, or the gradient of an output
            if tensor.role == "gradient":
                self.storages[key] = _Storage(self.size(tensor, key[1]), "temporaries", self.start, at)
            else:
                self.storages[key] = _Storage(self.size(self.graph.tensors[key[0]], key[1]), "temporaries", -1, at)
        # What recomputation or the counting does not keep is dropped when the forward pass ends.
        if at >= self.start and tensor.role != "gradient" and not copy and key[0] not in self.roots:
            return
        self.storages[key].dies = max(self.storages[key].dies, at)

    @property
    def start(self) -> int:
        """The first step of the backward pass."""
        return next((n for n, s in enumerate(self.steps) if _phase(s) == "backward"), len(self.steps))

    def temporaries(self, at: int) -> list[Form]:
        return [
            s.size for (root, _), s in self.storages.items()
            if s.kind == "temporaries" and s.born <= at <= s.dies and root not in self.roots
        ]  # fmt: skip

    def saved(self, at: int) -> list[Form]:
        """What is kept of this layer while a step runs."""
        found = []
        for item in self.kept:
            span = [s for (root, _), s in self.storages.items() if root == item.tensor]
            born = min((s.born for s in span), default=self.uses_of(item))
            last = max((s.dies for s in span), default=len(self.steps))
            last = len(self.steps) if last < self.start else last
            if born <= at <= last:
                found.append(bytes_of(self.setting, item))
        return found

    def uses_of(self, item: Saved) -> int:
        """When a mask, or the statistics of rows, come into being: with the first op that reads or makes them."""
        for at, step in enumerate(self.steps):
            if not isinstance(step, Collective) and (item.tensor in step.op.inputs or step.op.output == item.tensor):
                return at
        return -1

    def gradients(self, at: int) -> list[Form]:
        """The gradients of this layer's weights that are finished or being made."""
        found = []
        rules = resolve(self.strategy, self.setting.graph)
        for weight in self.graph.weights:
            name = f"d({weight.name})"
            outputs = (n for n, s in enumerate(self.steps) if isinstance(s, Compute) and s.op.output == name)
            made = next(outputs, None)
            if made is not None and made <= at:
                found.append(_bytes_of_weight(self.setting, self.strategy, weight,
                                              tuple(m for m, _ in place(weight, self.setting.graph, rules, "gradient")),
                                              self.recipe.gradient))  # fmt: skip
        return found


def _shown(graph: Graph, step: Collective | Compute) -> str:
    """What a step does, for a reader: the tensor it makes, or the collective."""
    if isinstance(step, Collective):
        base = graph.tensors[step.tensor.split(" @ ")[0]]
        of = f"the gradient of `{base.of.split('·')[0]}`" if base.of else f"`{base.name.split('·')[0]}`"
        return f"the {step.kind} of {of}"
    made = graph.tensors[step.op.output]
    return f"the gradient of `{made.of.split('·')[0]}`" if made.of else f"`{made.name.split('·')[0]}`"


def _phase(step: Collective | Compute) -> str:
    return step.phase if isinstance(step, Collective) else step.op.phase


def _bytes_of_weight(setting: Setting, strategy: Strategy, weight: Tensor, part: Iterable[str], width: int) -> Form:
    elements = setting.graph.elements(weight.name)
    for mesh in part:
        elements = elements / forms.value(strategy.sizes[mesh])
    return product(setting.written(elements), Num(Fraction(width), element_bytes("fp8").unit))


def _sum(terms: list[Form]) -> Form:
    return Total(tuple(terms)) if len(terms) > 1 else terms[0] if terms else Num(Fraction(0), BYTE)


def moments(
    setting: Setting, strategy: Strategy | None, recipe: Recipe, recomputation: str, frozen: frozenset[str]
) -> list[Moment]:
    """What is alive at every op that may be the peak: in the last layer forward, in the last and the first layer
    backward, and in the optimizer. In between, memory grows or shrinks by one layer at a time.
    """
    strategy = strategy or ONE_RANK
    line = _Timeline(setting, strategy, recipe, recomputation, frozen)
    count = layers(setting, strategy) or num(1)
    rules = resolve(strategy, setting.graph)
    held: dict[str, Form] = {}
    for role, width, kind in (("weight", recipe.weight, "weights"), ("gradient", recipe.gradient, "gradients"),
                              ("state", recipe.state, "optimizer states")):  # fmt: skip
        pieces = [
            _bytes_of_weight(setting, strategy, w, (m for m, _ in place(w, setting.graph, rules, role)), width)
            for w in setting.graph.weights
            if width and (role == "weight" or w.name not in frozen)
        ]
        held[kind] = product(count, _sum(pieces)) if pieces else Num(Fraction(0), BYTE)
    one_layer = _sum([bytes_of(setting, item) for item in line.kept])
    others = Total((count, num(-1)))
    again: list[Form] = []
    if recomputation != "none":
        every = keeper(setting, line.plan, "none").collect()
        again = [bytes_of(setting, item) for item in every if item.tensor not in line.roots]
    repeated = bool(setting.graph.repeat)
    found: list[Moment] = []
    states = (("weights", held["weights"]), ("optimizer states", held["optimizer states"]))
    zero: Form = Num(Fraction(0), BYTE)
    parts: tuple[tuple[str, Form], ...]
    targets = {op.row: op.output.split("·")[0] for op in setting.graph.ops}
    row = ""
    for at, step in enumerate(line.steps):
        name = _shown(line.graph, step)
        phase = _phase(step)
        op = line.graph.producers.get(step.op) if isinstance(step, Collective) else step.op
        row = targets.get(op.row, row) if op is not None else row
        here, passing = line.saved(at), line.temporaries(at)
        below = [product(others, one_layer)] if repeated else []
        grown = line.gradients(at)
        if phase == "forward":
            parts = (*states, ("gradients", zero), ("saved activations", _sum([*below, *here])),
                     ("temporaries", _sum(passing)))  # fmt: skip
            found.append(Moment("forward", "last", name, row, parts))
            continue
        passing = [*passing, *again]
        parts = (*states, ("gradients", _sum(grown)), ("saved activations", _sum([*below, *here])),
                 ("temporaries", _sum(passing)))  # fmt: skip
        found.append(Moment("backward", "last", name, row, parts))
        if repeated:
            layer = line.gradients(len(line.steps))
            earlier = [product(others, _sum(layer))] if layer else []
            parts = (*states, ("gradients", _sum([*earlier, *grown])), ("saved activations", _sum(here)),
                     ("temporaries", _sum(passing)))  # fmt: skip
            found.append(Moment("backward", "first", name, row, parts))
    parts = (*states, ("gradients", held["gradients"]), ("saved activations", zero), ("temporaries", zero))
    found.append(Moment("optimizer", "all", "the update", "", parts))
    return found


def derive(
    setting: Setting,
    strategy: Strategy | str | None = None,
    recipe: str = "mixed_adam",
    dtype: str | None = None,
    recomputation: str | Iterable[str] = "none",
    frozen: str | Iterable[str] | None = None,
) -> Derivation:
    """The most bytes that are alive at once on one rank in a training step, and the op during which they are.

    Gradients come into being in the backward pass and are dropped after the update. Which op is the peak depends on
    the sizes, so all of them must be known. Raises ``ValuesError`` where one is not.
    """
    strategy = parse_strategy(strategy) if isinstance(strategy, str) else strategy
    if strategy is not None and strategy.pipeline is not None:
        raise StrategyError(
            "the timeline of a pipeline has many microbatches", hint="ask for activation_memory with a schedule"
        )
    if dtype:
        setting = replace(setting, dtype=dtype)
    if strategy is not None:
        check_divisible(setting.graph, strategy, setting.values)
    again = recomputation if isinstance(recomputation, str) else ", ".join(recomputation)
    still = frozen_weights(setting.graph, named(frozen))
    found = moments(setting, strategy, recipe_of(recipe), again, still)
    values = setting.graph.relations.complete(setting.values)
    missing = [n for m in found for _, f in m.parts for n in names(f) if n not in values]
    if missing:
        raise ValuesError(
            f"which op is the peak depends on the sizes: no value is given for {', '.join(dict.fromkeys(missing))}",
            hint=f"for instance {missing[0]}=8",
        )
    worth = [{kind: evaluate(form, values) for kind, form in m.parts} for m in found]
    totals = [sum(w.values(), Fraction(0)) for w in worth]
    top = max(range(len(found)), key=lambda n: totals[n])
    peak, work = found[top], Work(setting, *(strategy.sizes.values() if strategy else ()))
    where = f"{_where(peak)}, while it makes {peak.op}" if peak.phase != "optimizer" else "update by the optimizer"
    terms: list[Form] = []
    parts = dict(peak.parts)
    for kind in KINDS:
        if worth[top][kind]:
            text = f"The {kind} that are alive at the peak: {where}."
            form = in_bytes(sp.factor_terms(setting.graph.relations.gather(sp.expand(forms.value(parts[kind])))))
            work.steps.append(Step(_free(work, _LETTERS[kind]), form, BYTE, Reason("alive", text)))
            work.known[work.steps[-1].name] = forms.value(form)
            terms.append(Sym(work.steps[-1].name))
    work.define("M_peak", _sum(terms), BYTE, "add", f"The peak is in the {where}.")
    rows = _rows(found, worth, totals, top)
    exhibit = Exhibit("The step, op by op", ("phase", "op", *KINDS, "total"), rows)
    return setting.derivation("Peak memory" + (f" under {strategy.name}" if strategy else ""), work.steps, ["saved"],
                              [exhibit])  # fmt: skip


def _free(work: Work, name: str) -> str:
    while name in work.taken or name in work.known:
        name += "'"
    return name


def _where(moment: Moment) -> str:
    return moment.phase + (f" pass of the {moment.layer} layer" if moment.phase != "optimizer" else "")


def _rows(
    found: list[Moment], worth: list[dict[str, Fraction]], totals: list[Fraction], top: int
) -> tuple[tuple[str | Form | Quantity, ...], ...]:
    """The timeline: of each table row in each phase the op with the most memory, so that a page holds it."""
    best: dict[tuple[str, str], int] = {}
    for n, moment in enumerate(found):
        key = (_where(moment), moment.row)
        if key not in best or totals[n] > totals[best[key]]:
            best[key] = n
    order = {"forward": 0, "backward": 1, "optimizer": 2}
    chosen = sorted(best.values(), key=lambda n: (order[found[n].phase], found[n].layer == "first", n))
    rows: list[tuple[str | Form | Quantity, ...]] = []
    for n in chosen:
        mark = " (peak)" if totals[n] == totals[top] and n == top else ""
        amounts = tuple(_shared(worth[n][kind], totals[top]) for kind in KINDS)
        rows.append((_where(found[n]), f"{found[n].op}{mark}", *amounts, _shared(totals[n], totals[top])))
    return tuple(rows)


def _shared(amount: Fraction, largest: Fraction) -> str:
    """A rounded amount, in the unit that suits the largest of the table."""
    unit, scale = ("MiB", 2**20) if largest >= 10 * 2**20 else ("KiB", 2**10)
    return f"{float(amount / scale):,.1f} {unit}".replace(",", " ")
