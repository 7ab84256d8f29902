"""A model of several parts (an embedding, layers that are repeated, a head); its quantities are sums over them.

No derivation grows with the number of layers: each part is one graph, and its ``repeat`` says how often it stands.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from symcomm import form as forms
from symcomm.accounting import Accounting
from symcomm.derivation import Derivation, Exhibit, Reason, Relations, Step, exact
from symcomm.dtypes import element_bytes
from symcomm.errors import StrategyError, ValuesError, nearest
from symcomm.form import Form, Sym, Total
from symcomm.model import Model, read_text
from symcomm.notation import Notation
from symcomm.parallel.strategy import Strategy, parse_strategy
from symcomm.readers.blueprint import Blueprint, PartGraph

if TYPE_CHECKING:
    from symcomm.graph.graph import Graph
    from symcomm.quantities.memory.stretches import Stretch

# Quantities of a whole model that are the sums of those of its parts. (Traffic is counted for one layer.)
ADDED = ("parameters", "flops", "communication", "state_memory", "activation_memory", "recomputation")
# What the weights alone tell, where a module tree does not say what feeds what.
OF_WEIGHTS = ("parameters", "state_memory", "communication")


@dataclass(frozen=True)
class Parts(Model):
    r"""A model whose parts have a graph each; ``graph`` is that of the part that is repeated.

    >>> model = from_blueprint(read('{"model_type": "llama", "hidden_size": 8, "num_hidden_layers": 3, '
    ...     '"num_attention_heads": 2, "intermediate_size": 16, "vocab_size": 100}'))
    >>> str(model.parameters().at()), [graph.name for graph in model.graphs]
    ('3576 parameter', ['embedding and head', 'layer'])
    """

    blueprint: Blueprint = field(default_factory=lambda: Blueprint("model", (), {}))

    @property
    def graphs(self) -> tuple[Graph, ...]:
        """The graph of each part."""
        return self.blueprint.graphs

    @property
    def notes(self) -> tuple[str, ...]:
        """What the reader repaired, supposed or left out."""
        return self.blueprint.notes

    @property
    def literal(self) -> Parts | None:
        """The model of a damaged text as it literally stands, where it was repaired."""
        if self.blueprint.literal is None:
            return None
        return from_blueprint(self.blueprint.literal, dtype=self.dtype, notation=self.notation)

    def part(self, name: str) -> Model:
        """One part as a model of its own; raises ``ValuesError`` for an unknown name."""
        for graph in self.graphs:
            if graph.name == name:
                return Model(graph, name, self.dtype, self.values, self.notation)
        raise ValuesError(f"the model has no part '{name[:60]}'", hint=nearest(name, [g.name for g in self.graphs]))

    def derive(self, quantity: str, *, accounting: str | Accounting | Mapping[str, str] | None = None,
               **options: Any) -> Derivation:  # fmt: skip
        """The derivation of a quantity of the whole model: those of its parts, and their sum.

        Raises ``ValuesError`` for a quantity that is no sum of its parts'.
        """
        chosen = {k: v for k, v in options.items() if v is not None}
        named = chosen.get("op") or chosen.get("tensor")
        if named:
            for graph in self.graphs:
                if named in graph.tensors or f"{named}_i" in graph.tensors:
                    return self.part(graph.name).derive(quantity, accounting=accounting, **chosen)
        if quantity in ("peak_memory", "capacity") and self.blueprint.flow:
            relations = Relations(tuple(dict(e for g in self.graphs for e in g.relations.equations).items()))
            whole = Model(replace(self.graph, relations=relations), self.name, self.dtype, self.values, self.notation)
            chosen |= {"stretches": self.stretches} if quantity == "peak_memory" else {"graphs": self.graphs}
            return whole.derive(quantity, accounting=accounting, **chosen)
        if quantity not in ADDED:
            names = " or ".join(f"part('{g.name}')" for g in self.graphs[:3])
            raise ValuesError(
                f"'{quantity[:60]}' of the model is no sum over its parts", hint=f"ask a part for it: {names}"
            )
        strategy = chosen.get("strategy")
        if isinstance(strategy, str):
            strategy = chosen["strategy"] = parse_strategy(strategy)
        if not self.blueprint.flow and (quantity not in OF_WEIGHTS or not _shards_only(strategy)):
            raise ValuesError(
                f"{quantity} cannot be derived: the module tree of {self.name} says which weights there are, but not "
                "what feeds what",
                hint="give a config.json or a layer table; parameters and (fully sharded) data parallelism are known",
            )  # fmt: skip
        if isinstance(strategy, Strategy) and strategy.pipeline is not None:
            raise StrategyError(
                "a pipeline puts the embedding and the head on its end stages, so ranks differ",
                hint=f"ask a part: part('{self.graph.name}').{quantity}(...)",
            )
        found = []
        for graph in self.graphs:
            try:
                found.append(self.part(graph.name).derive(quantity, accounting=accounting, **chosen))
            except StrategyError as error:
                others = [g.name for g in self.graphs if g is not graph]
                error.hint = f"this is the part '{graph.name}'; ask another one: part('{others[-1]}')" if others else ""
                raise
        return added(found, [(part.name, part.mark) for part in self.blueprint.parts], self.notes)

    @property
    def stretches(self) -> tuple[Stretch, ...]:
        """The parts in the order they run: what stands before the layers, the layers, and what stands behind them."""
        from symcomm.quantities.memory.stretches import Stretch, split

        before: list[Stretch] = []
        after: list[Stretch] = []
        for part, graph in zip(self.blueprint.parts, self.graphs, strict=True):
            if part.layers_before:
                first, last = split(graph, part.layers_before, ("embedding", "head"))
                before.append(first)
                after.append(last)
        middle = zip(self.blueprint.parts, self.graphs, strict=True)
        return (*before, *(Stretch(g.name, g) for part, g in middle if not part.layers_before), *after)

    @property
    def tables(self) -> tuple[str, ...]:
        """The layer tables of the parts, as text."""
        return tuple(part.text for part in self.blueprint.parts)


def _shards_only(strategy: object) -> bool:
    """Whether a strategy cuts nothing but the batch and the states of weights."""
    return not isinstance(strategy, Strategy) or all(rule.axis in ("batch", "first") for _, rule in strategy.rules)


def added(derivations: list[Derivation], parts: list[tuple[str, str]], notes: tuple[str, ...] = ()) -> Derivation:
    """The sum of derivations with the steps of all; a name that several parts have gets the part's mark behind it.

    ``parts`` are the name and the mark of each part. Raises ``AccountingError`` where accountings differ.
    """
    first = derivations[0]
    names = [name for name, _ in parts]
    if len(derivations) == 1:
        return replace(first, notes=(*first.notes, *notes))
    symbols: set[str] = set()
    equations: dict[str, Form] = {}
    given: dict[str, Fraction] = {}
    for d in derivations:
        first.same_accounting(d)
        own = {step.name for step in d.steps}
        symbols |= {n for step in d.steps for n in forms.names(step.form) if n not in own}
        symbols |= {n for name, right in d.relations.equations for n in (name, *forms.names(right))}
        equations.update(d.relations.equations)
        given.update(d.given)
    steps: list[Step] = []
    exhibits: list[Exhibit] = []
    answers: list[Form] = []
    taken = set(symbols)
    own_names = [{step.name for step in d.steps} for d in derivations]
    shared = {name for names_in in own_names for name in names_in if sum(name in other for other in own_names) > 1}
    for d, (part, mark) in zip(derivations, parts, strict=True):
        called: dict[str, str] = {}
        for step in d.steps:
            if step.relation == ":=":
                name = step.name
                while name in taken or (name in shared and name == step.name):
                    name += ("," if "_" in name or "^" in name else "_") + mark
                called[step.name] = name
                taken.add(name)

        def renamed(s: Sym, called: dict[str, str] = called) -> Form:
            return replace(s, name=called[s.name]) if s.name in called else s

        steps += [replace(s, name=called[s.name], form=forms.substitute(s.form, renamed)) for s in d.steps]
        exhibits += [
            replace(e, title=f"{e.title} ({part})", rows=tuple(
                tuple(forms.substitute(cell, renamed) if isinstance(cell, Form) else cell for cell in row)
                for row in e.rows
            ))
            for e in d.exhibits
        ]  # fmt: skip
        answers.append(Sym(called[d.answer.name]))
    total = derivations[0].answer.name.split("_")[0].split("^")[0] + "_all"
    while total in taken:
        total += ",all"
    listed = ", ".join(names[:-1]) + " and " + names[-1]
    steps.append(Step(total, Total(tuple(answers)), first.unit, Reason("add the parts", f"The {listed} together.")))
    touched = tuple(dict.fromkeys(t for d in derivations for t in d.touched))
    said = tuple(dict.fromkeys((*(n for d in derivations for n in d.notes), *notes)))
    relations = Relations(tuple(equations.items()))
    return Derivation(
        first.title, first.accounting, tuple(steps), touched, relations, tuple(exhibits),
        tuple(relations.complete(given).items()), first.notation, said,
    )  # fmt: skip


def from_blueprint(
    blueprint: Blueprint, *, dtype: str = "fp16", values: Mapping[str, object] | None = None,
    notation: Notation | None = None,
) -> Parts:  # fmt: skip
    """The model of a blueprint; ``values`` are known numbers besides those the reader found."""
    element_bytes(dtype)
    base = notation or Notation()
    notation = Notation(base.latex, {**blueprint.meanings, **base.meanings})
    known: dict[str, Fraction] = {name: Fraction(value) for name, value in blueprint.values.items()}
    for name, value in (values or {}).items():
        known[name] = exact(value, name)
    main = next((g for g in reversed(blueprint.graphs) if g.repeat), blueprint.graphs[-1])
    for graph in blueprint.graphs:
        graph.relations.complete(known)  # refuses values that contradict one another
    return Parts(main, blueprint.name, dtype, known, notation, blueprint)


def model_of_parts(
    models: Sequence[tuple[Model, str]],
    *,
    name: str = "model",
    values: Mapping[str, object] | None = None,
    notation: Notation | None = None,
) -> Parts:
    """The model whose parts are models; each with the tensor that stands for the result of the layers, or nothing.

    Raises ``ValuesError`` where their number formats or values differ, or where no row makes such a tensor.
    """
    from symcomm.quantities.memory.stretches import split

    known: dict[str, Fraction] = {}
    for model, at in models:
        if model.dtype != models[0][0].dtype:
            raise ValuesError(f"{models[0][0].name} is in {models[0][0].dtype}, but {model.name} in {model.dtype}",
                              hint="give the parts of a model one dtype")  # fmt: skip
        if at:
            split(model.graph, at, ("embedding", "head"))  # refuses a tensor that is not there
        for size, value in model.values.items():
            if known.setdefault(size, value) != value:
                raise ValuesError(f"{size} is {known[size]} in one part and {value} in another one")
    made = tuple(
        PartGraph(model.name, model.graph, mark=re.split(r"\W+", model.name)[0] or str(n), layers_before=at)
        for n, (model, at) in enumerate(models)
    )
    dtype = models[0][0].dtype
    return from_blueprint(Blueprint(name, made, {}), dtype=dtype, values={**known, **(values or {})}, notation=notation)


Leaves = Mapping[str, list[tuple[int, ...]]]


def read(source: object, file: str = "", architecture: str = "", leaves: Leaves | None = None) -> Blueprint | None:
    """The blueprint of a configuration, a printed module tree or a live module; None where it is none of them.

    ``source`` is a path, a text, a mapping (a configuration), or a PyTorch module or a function that makes one.
    ``architecture`` is the class name meant, over the one a configuration says; ``leaves`` declares the shapes of the
    weights of layer classes of one's own in a printed tree.
    """
    from symcomm.readers.config import Config, is_config, read_config
    from symcomm.readers.live import is_live, read_live
    from symcomm.readers.module_text import is_module_text, read_module_text

    if is_live(source):
        return read_live(source)
    if isinstance(source, Mapping):
        return read_config(Config(dict(source)), architecture=architecture)
    if not isinstance(source, (str, Path)):
        return None
    if isinstance(source, Path) or ("\n" not in source and len(source) < 1000 and not is_config(source)):
        path = Path(source)
        if path.suffix not in (".json", ".txt"):
            return None
        file, text = file or str(source), read_text(path)
        if path.suffix == ".json":
            return read_config(text, file, architecture)
    else:
        text = source.removeprefix("\ufeff")
    if is_config(text):
        return read_config(text, file or "<config>", architecture)
    if is_module_text(text):
        return read_module_text(text, file or "<module>", leaves)
    return None


def load_parts(source: object, *, name: str = "", dtype: str = "fp16", values: Mapping[str, object] | None = None,
               notation: Notation | None = None, architecture: str = "", leaves: Leaves | None = None,
               **other: Any) -> Parts | None:  # fmt: skip
    """The model of whatever ``read`` knows; None where it is something else, such as a layer table."""
    blueprint = read(source, architecture=architecture, leaves=leaves)
    if blueprint is None:
        return None
    unknown = [key for key, value in other.items() if value]
    if unknown:
        raise ValuesError(f"{unknown[0]} belongs to layer tables; {blueprint.name} was not read from one")
    made = from_blueprint(blueprint, dtype=dtype, values=values, notation=notation)
    return replace(made, name=name) if name else made
