"""A question as it can be asked again under another choice: what is derived, from what, and what its symbols are for.

Its ``form`` is the answer written out in symbols and numbers, with the units that its steps gave them, so that a change
can find the bytes of an element or the ranks that something was divided by.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from contextlib import suppress
from dataclasses import field
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from symcomm.core import form as forms
from symcomm.core.accounting import Accounting
from symcomm.core.errors import SymcommError
from symcomm.core.form import Form, Num, Sym
from symcomm.core.graph.graph import Graph, Op
from symcomm.core.libraries import Expr
from symcomm.core.notation import Notation, axis_role
from symcomm.core.quantities.declared import DeclaredQuantity
from symcomm.core.records import ByIdentity, dataclass, replace
from symcomm.core.units import Unit
from symcomm.exams.problems.deriving import derive
from symcomm.exams.remembered import Remembered

if TYPE_CHECKING:
    from symcomm.core.derivation import Derivation
    from symcomm.core.model import Model
    from symcomm.core.parallel.strategy import Strategy

# What a symbol is, as its meaning says it.
_ROLES = {
    "ranks": re.compile(
        r"number of (?:\w+ )?(?:ranks|workers|devices|GPUs|processors|nodes)|"
        r"parallel(?:ism)? degree|\bparts of the\b|degree of", re.IGNORECASE),
    "units": re.compile(r"number of (?:\w+ )*(?:multiprocessors|cores)", re.IGNORECASE),
    "stages": re.compile(r"ranks of the pipeline|pipeline stages|number of stages", re.IGNORECASE),
    "microbatches": re.compile(r"number of microbatches", re.IGNORECASE),
    "layers": re.compile(r"number of (?:\w+ )*(?:layers|blocks)", re.IGNORECASE),
    "heads": re.compile(r"number of (?:\w+ )*heads", re.IGNORECASE),
    "query_heads": re.compile(r"number of (?:attention|query) heads", re.IGNORECASE),
    "kv_heads": re.compile(r"number of key/value heads", re.IGNORECASE),
    "kv_width": re.compile(r"key/value heads times head dimension", re.IGNORECASE),
    "experts": re.compile(r"^number of (?:routed )?experts$", re.IGNORECASE),
    "active_experts": re.compile(r"experts (?:that )?each token", re.IGNORECASE),
    "head": re.compile(r"\bhead(?:'s)? (?:dimension|size|width)|(?:dimension|size|width) of (?:a|each|one) head",
                       re.IGNORECASE),
    "node": re.compile(r"(?:ranks|workers|devices|GPUs) (?:per|(?:in|of) (?:a|each|one)) (?:node|host|server|machine)",
                       re.IGNORECASE),
    "latency": re.compile(r"\blatency\b|overhead", re.IGNORECASE),
}  # fmt: skip


_WIDTHS = ("query_heads", "kv_heads", "kv_width", "experts", "active_experts")  # roles of the sizes of axes

# What is asked of a derivation alone has no name and no options.
_NOTHING = DeclaredQuantity("", "", "", "", (), False, derive)


@dataclass(frozen=True)
class ModelQuestion:
    """A question to a model, with its options, conventions and numbers.

    ``forgotten`` are weights, or steps, that are left out of what is counted. ``step`` names the step that is the
    answer, where it is not the last.
    """

    asked: str | DeclaredQuantity
    model: Model
    options: tuple[tuple[str, Any], ...]
    accounting: Accounting
    values: tuple[tuple[str, Fraction], ...]
    forgotten: frozenset[str] = frozenset()
    step: str = ""
    notation: Notation | None = None
    told: frozenset[str] | None = None  # the names of the numbers that it is derived with; None: of all
    # The changed questions, None where one has no answer: all that are made of one question share them.
    changed: dict[Hashable, ModelQuestion | None] = field(default_factory=dict, repr=False, compare=False)

    def option(self, name: str) -> Any:
        """The value of an option; its default where it is not given, None where there is none."""
        given = dict(self.options)
        if name in given:
            return given[name]
        return next((o.default for o in self.declared.options if o.name == name), None)

    @cached_property
    def declared(self) -> DeclaredQuantity:
        """The quantity of the question."""
        if not isinstance(self.asked, str):
            return self.asked
        from symcomm.core.quantities import QUANTITIES

        return QUANTITIES[self.asked] if self.asked else _NOTHING

    def with_option(self, name: str, value: object) -> ModelQuestion:
        """The same question with another option."""
        return replace(self, options=(*(o for o in self.options if o[0] != name), (name, value)))

    @cached_property
    def derivation(self) -> Derivation:
        """The derivation; raises a ``SymcommError`` where there is none."""
        return self._at({**self.model.values, **dict(self.values)})

    @cached_property
    def open(self) -> Derivation:
        """The derivation from no other numbers than ``told`` names."""
        about = replace(self._counted, values=self.known)
        return derive(self.asked, about, dict(self.options), self.accounting, self.known, ())

    def _at(self, values: Mapping[str, Fraction]) -> Derivation:
        """The derivation at some numbers: where a few of them decide on another one, that one serves many papers."""
        if self.told is None or self.open.otherwise is None:
            return self.open
        known = self.open.relations.complete(values)
        other = self.open.otherwise(known)
        return self.open if other is None or len(other.given) == len(known) else other

    @cached_property
    def known(self) -> dict[str, Fraction]:
        """The numbers that it is derived with."""
        every = {**self.model.values, **dict(self.values)}
        return {name: value for name, value in every.items() if self.told is None or name in self.told}

    def serves(self, values: Mapping[str, Fraction]) -> bool:
        """Whether the derivation, or its answer where a few numbers decide on it, is the same at other numbers."""
        if self.derivation is self.open:
            return serves(self.open, self.known, values)
        with suppress(SymcommError):
            made = self._at(values)
            if made is not self.open and serves(made, dict(made.given), values):
                return self._forms.once(ByIdentity(made), lambda: self._form(made)) == self.form
        return False

    @cached_property
    def _forms(self) -> Remembered[ByIdentity[Derivation], Form]:
        return Remembered()

    @property
    def _counted(self) -> Model:
        if not self.forgotten:
            return self.model
        return replace(self.model, graph=_without(ByIdentity(self.model.graph), self.forgotten))

    @cached_property
    def form(self) -> Form:
        """The answer in symbols and numbers, as the rules wrote it; a step that only names a number stays a symbol."""
        return self._form(self.derivation)

    def _form(self, made: Derivation) -> Form:
        graph = self.model.graph
        left_out = {op.source for op in graph.ops if self.forgotten & {*op.inputs} and op.source is not None}
        known: dict[str, Form] = {}
        for step in made.steps:
            if step.relation != ":=":
                continue
            form = forms.substitute(step.form, lambda s: known.get(s.name, s))
            forgotten = step.reason.rule == "keep" and step.name in self.forgotten
            if forgotten or (step.reason.source is not None and step.reason.source in left_out):
                form = Num(Fraction(0), step.unit)
            if isinstance(step.form, Num) and step.form.number > 1:
                form = Sym(step.name, step.form.number.denominator == 1, step.unit)
            known[step.name] = form
        found = known[self.step] if self.step in known else known[made.answer.name]
        free = {s.name for s in worth(found).free_symbols}  # what cancels may be one
        if self.step not in known:  # of a sum over a size it cancels in the collected answer alone
            free &= {*known, *(s.name for s in made.expr.free_symbols)}
        return forms.substitute(found, lambda s: s if s.name in free else Num(Fraction(1)))

    @cached_property
    def unit(self) -> Unit:
        """The unit of the answer."""
        steps = self.derivation.steps
        return next((s.unit for s in reversed(steps) if s.name == self.step), self.derivation.unit)

    @cached_property
    def named_numbers(self) -> dict[str, Fraction]:
        """The steps that only name a number: the capacity of a device."""
        return {
            s.name: s.form.number for s in self.derivation.steps
            if s.relation == ":=" and isinstance(s.form, Num) and s.form.number > 1
        }  # fmt: skip

    @cached_property
    def symbols(self) -> dict[str, bool]:
        """The symbols of the question, and whether each counts something whole."""
        derivation = self.derivation
        defined = {s.name for s in derivation.steps if s.relation == ":="}
        found = {
            piece.name: piece.whole
            for s in derivation.steps for piece in forms.walk(s.form)
            if isinstance(piece, Sym) and piece.name not in defined
        }  # fmt: skip
        relations = derivation.relations.equations
        others = {*derivation.sizes, *(n for left, right in relations for n in (left, *forms.names(right)))}
        others |= {name for name, _ in self.values} | {*self._degrees}
        for name in (*sorted(others), *self.named_numbers):
            found.setdefault(name, True)
        return found

    # -- what the symbols are for --------------------------------------------------------------------------

    @cached_property
    def _meanings(self) -> dict[str, str]:
        own = self.notation or Notation()
        return {name: own.meanings.get(name) or self.derivation.notation.usual(name) for name in self.symbols}

    def role(self, role: str) -> tuple[str, ...]:
        """The symbols with a part to play: ranks, layers, batch, sequence, model, heads, head, stages, microbatches."""
        graph = self.model.graph
        if role in ("batch", "sequence"):
            sized = {n for a in graph.axes.values() if a.role == role for n in (s.name for s in a.size.free_symbols)}
            whole = (n for n in self.symbols if self.symbols[n] and not self._is(n, "microbatches"))
            said = [n for n in whole if axis_role(self._meanings[n]) == role]
            return tuple(dict.fromkeys((*said, *(n for n in sized if n in self.symbols))))
        if role == "layers":
            times = tuple(region.times for region in graph.regions if region.times)
            return times or self._said("layers")
        if role == "ranks":
            return self._degrees or tuple(n for n in self._said("ranks") if not self._is(n, "stages"))
        if role == "model":
            return tuple(left for left, right in self.derivation.relations.equations if self._heads(right))
        if role in ("heads", "head"):
            found = self._said(role)
            products = [right for _, right in self.derivation.relations.equations if self._heads(right)]
            return tuple(n for n in found if any(n in forms.names(right) for right in products)) or found
        axes = set() if role in _WIDTHS else {s.name for a in graph.axes.values() for s in a.size.free_symbols}
        return tuple(n for n in self._said(role) if n not in axes)

    @property
    def strategy(self) -> Strategy | None:
        """The strategy that is asked about."""
        from symcomm.core.parallel.strategy import Strategy, parse_strategy

        said = self.option("strategy")
        said = parse_strategy(said) if isinstance(said, str) and said else said
        return said if isinstance(said, Strategy) else None

    @property
    def _degrees(self) -> tuple[str, ...]:
        """The symbols of the degrees of a strategy."""
        sizes = self.strategy.sizes.values() if self.strategy is not None else ()
        return tuple(n for size in sizes for n in forms.names(size))

    def _is(self, name: str, role: str) -> bool:
        return _ROLES[role].search(self._meanings[name]) is not None

    def _said(self, role: str) -> tuple[str, ...]:
        return tuple(name for name in self.symbols if role in _ROLES and self._is(name, role))

    def _heads(self, right: Form) -> bool:
        return any(self._is(n, "head") or self._is(n, "heads") for n in forms.names(right) if n in self.symbols)

    # -- its weights ---------------------------------------------------------------------------------------

    @cached_property
    def parts(self) -> dict[str, tuple[frozenset[str], ...]]:
        """The weights that are forgotten together, by what they are for: output, mlp, gate, vectors.

        The output projection is the first weight behind the softmax of attention; the matrices of the MLP are those of
        the same regions that attention does not need; a gate is one of two whose results are multiplied.
        """
        graph = self.model.graph
        repeated = {region.name for region in graph.regions if region.times} or {r.name for r in graph.regions}
        forward = [op for op in graph.ops if op.phase == "forward" and (not op.region or op.region in repeated)]
        matrices = [op for op in forward if op.summed and self._weights(graph, op)]
        if len(matrices) < 2:
            return {}
        made = {op.output: op for op in forward}
        reads: dict[str, list[Op]] = {}
        for op in forward:
            for name in op.inputs:
                reads.setdefault(name, []).append(op)
        scores = [op for op in forward if op.kind == "softmax"  # that of a router reads a product with a weight
                  and any(o.summed and o not in matrices for o in self._before(made, matrices, op))]  # fmt: skip
        output = [op for op in matrices if any(o in scores for o in self._before(made, matrices, op))]
        attention = {n for op in output for o in (op, *self._before(made, [], op)) for n in self._weights(graph, o)}
        mlp = [op for op in matrices if op not in output and not attention & self._weights(graph, op)]
        gates = [
            op for op in mlp for product in forward
            if product.kind == "elementwise product"
            or (product.kind != "add" and not product.summed and len(product.inputs) == 2)
            if op in (back := {*self._before(made, matrices, product)}) and len(back & {*mlp}) == 2
        ]  # fmt: skip
        vectors = frozenset(t.name for t in graph.weights if len(t.axes) == 1)
        found = {
            "output": self._with_bias(graph, reads, output),
            "mlp": self._with_bias(graph, reads, mlp),
            "gate": tuple(self._weights(graph, op) for op in dict.fromkeys(gates)),
            "vectors": (vectors,) if vectors else (),
        }
        return {name: some for name, some in found.items() if some}

    @staticmethod
    def _weights(graph: Graph, op: Op) -> frozenset[str]:
        return frozenset(n for n in op.inputs if graph.tensors[n].role == "weight")

    def _before(self, made: dict[str, Op], matrices: list[Op], op: Op) -> list[Op]:
        """The ops that lead to one without a weight's product in between, and those products."""
        found: list[Op] = []
        todo = [made[n] for n in op.inputs if n in made]
        while todo:
            one = todo.pop()
            if one in found:
                continue
            found.append(one)
            if one not in matrices:
                todo += [made[n] for n in one.inputs if n in made]
        return found

    def _with_bias(self, graph: Graph, reads: dict[str, list[Op]], ops: list[Op]) -> tuple[frozenset[str], ...]:
        """The weights of each product, alone and with the bias that is added to it."""
        found: dict[frozenset[str], None] = {}
        for op in ops:
            alone = self._weights(graph, op)
            bias = {n for after in reads.get(op.output, ()) for n in self._weights(graph, after) if
                    len(graph.tensors[n].axes) == 1 and not after.summed}  # fmt: skip
            found |= {alone: None, alone | bias: None}
        return tuple(found)

    def derived(self, changed: ModelQuestion) -> ModelQuestion | None:
        """A changed question with its answer, None where it has none; what was asked before is not derived again."""
        about = ByIdentity(changed.model), changed.accounting, changed.forgotten, changed.options
        try:
            if about not in self.changed:
                ways = dict.fromkeys((changed.told, None))  # some need a number to be asked at all
                tried = (replace(changed, told=told) for told in ways)
                self.changed[about] = next((one for one in tried if one._has_answer()), None)
            return self.changed[about]
        except TypeError:  # an option that is no key
            return changed if changed._has_answer() else None

    def _has_answer(self) -> bool:
        try:
            self.form  # noqa: B018  (derived here, so that no one else has to ask)
        except SymcommError:
            return False
        return True


def serves(derivation: Derivation, told: Mapping[str, Fraction], values: Mapping[str, Fraction]) -> bool:
    """Whether a derivation has the same steps at some numbers: at those it was ``told``, or where it says so itself."""
    if any(values.get(name) != value for name, value in told.items()):
        return derivation.serves(values)
    if derivation.otherwise is None and not derivation.where:
        return True
    try:
        known = derivation.relations.complete(values)
        derivation.holds(known)
        return derivation.otherwise is None or derivation.otherwise(known) is None
    except SymcommError:
        return False


@lru_cache(maxsize=256)  # what is kept of a graph is kept of it without these weights, too
def _without(held: ByIdentity[Graph], forgotten: frozenset[str]) -> Graph:
    graph = held.it
    tensors = {n: replace(t, role="constant") if n in forgotten else t for n, t in graph.tensors.items()}
    return replace(graph, tensors=tensors)


def worth(form: Form) -> Expr:
    """A form as a SymPy expression."""
    return forms.value(form)
