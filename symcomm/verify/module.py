"""A graph as the source of a PyTorch module: one class a region, one line a row, shapes in comments.

What is written runs on its own: it needs PyTorch and nothing else. ``Marks`` write the same lines with something around
operands and results, such as the calls through which a parallel run moves tensors to where a plan has them.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from symcomm.core.errors import RenderError
from symcomm.core.graph.graph import Graph, Op, Region, bare
from symcomm.core.records import dataclass
from symcomm.verify.emitters import HELPERS, called
from symcomm.verify.lines import Lines, Marks, identifier, plain


@dataclass(frozen=True)
class RegionClass:
    """A region as a class: what it takes and gives, and what its weights, tables and cache are called there."""

    region: Region
    name: str
    attribute: str
    arguments: tuple[str, ...]
    results: tuple[str, ...]
    weights: Mapping[str, str]
    tables: Mapping[str, str]
    symbols: tuple[str, ...]
    kept: Mapping[str, str]


@dataclass(frozen=True)
class TorchModule:
    """The source of a module, and the names in it.

    ``symbols`` are the sizes that it takes, by symbol; ``inputs`` the tensors that its ``forward`` takes, in order;
    ``ids`` tells for those that are class numbers how many classes there are, as an expression.
    """

    source: str
    symbols: Mapping[str, str]
    inputs: Mapping[str, str]
    results: tuple[str, ...]
    classes: tuple[RegionClass, ...]
    stacked: bool


def torch_module(
    graph: Graph, name: str = "", marks: Marks | None = None, values: Mapping[str, int] | None = None, head: str = ""
) -> TorchModule:
    """The PyTorch module of a graph; ``values`` are the sizes that stand in the file, ``head`` lines below its imports.

    Raises ``RenderError`` for what has no spelling in PyTorch here.

    >>> from symcomm.core.model import load
    >>> model = load("Computation\\tInput\\tOutput\\ny = relu(xW)\\tx [B, D], W [D, F]\\ty [B, F]\\n")
    >>> made = torch_module(model.graph)
    >>> print([line.strip() for line in made.source.splitlines() if line.strip().startswith("y =")][0])
    y = torch.relu(x @ self.W)  # y: B × F
    """
    if not graph.flow:
        raise RenderError(f"of {graph.name} it is known which weights there are, but not what feeds what")
    for kept in graph.step.kept if graph.step is not None else ():
        if kept.role == "state":
            raise RenderError(f"a step that updates a state (`{bare(kept.tensor)}`) is not written in PyTorch yet",
                              hint="steps that keep keys and values are; and the model itself, whole")  # fmt: skip
    for result, states in graph.states.items():
        raise RenderError(f"a loop over positions, which hands on `{bare(states[0])}`, is not written in PyTorch yet",
                          graph.tensors[result].source, "torch.nn.LSTM and torch.nn.GRU are such loops")  # fmt: skip
    return _Writer(graph.forward(), marks or Marks(), set(), name or graph.name, head, values or {}).write()


@dataclass
class _Writer(Lines):
    """The classes of a module, one a region, and the file."""

    title: str = ""
    head: str = ""
    values: Mapping[str, int] = field(default_factory=dict)

    # -- regions ------------------------------------------------------------------------------

    def write(self) -> TorchModule:
        regions = self.graph.regions or (Region(self.graph.name),)
        classes: list[RegionClass] = []
        bodies: list[str] = []
        taken = {"Model"}
        for region in regions:
            ops = [op for op in self.ops if len(regions) == 1 or op.region == region.name]
            if not ops:
                continue
            words = re.findall(r"[A-Za-z0-9]+", region.name.encode("ascii", "replace").decode())
            wanted = "".join(w[:1].upper() + w[1:] for w in words)[:40] or "Layer"
            wanted = f"Layer{wanted}" if wanted[0].isdigit() or keyword.iskeyword(wanted) else wanted
            name = identifier(wanted, taken)
            taken.add(name)
            made, body = self.region_class(region, ops, name)
            classes.append(made)
            bodies.append(body)
        stacked = len(classes) > 1 or bool(classes[0].region.times)
        results = tuple(t.name for t in self.graph.outputs)
        inputs: dict[str, str] = {}
        for c in classes:
            for tensor in c.arguments:
                if (
                    tensor not in self.graph.producers
                    and tensor not in inputs
                    and self.graph.tensors[tensor].role != "weight"
                ):
                    inputs[tensor] = identifier(tensor, inputs.values())
        if stacked:
            bodies.append(self.whole(classes, inputs, results))
        return TorchModule(
            self.file(classes, bodies, inputs, stacked), self.symbols, inputs, results, tuple(classes), stacked
        )

    def region_class(self, region: Region, ops: list[Op], name: str) -> tuple[RegionClass, str]:
        made = {op.output for op in ops}
        read = dict.fromkeys(n for op in ops for n in op.inputs if n not in made)
        weights = [n for n in read if self.graph.tensors[n].role == "weight"]
        tables = [n for n in read if n in self.tables and self.tables[n][0] in ("mask", "cos", "sin")]
        step = self.graph.step
        kept = [n for n in read if step is not None and n in {one.before for one in step.kept}]
        arguments = [n for n in read if n not in (*weights, *kept) and n not in self.tables]
        outside = {n for op in self.ops if op not in ops for n in op.inputs}
        carried = [out for out, _ in region.carried]
        results = [n for n in made if n in outside or n in carried or not self.graph.consumers.get(n)]
        results = [op.output for op in ops if op.output in results and not self.graph.tensors[op.output].virtual]
        attributes: dict[str, str] = {}
        for n in (*weights, *tables, *kept):
            attributes[n] = identifier(n, (*attributes.values(), *self.symbols.values()))
        variables: dict[str, str] = {}
        for n in (*arguments, *(op.output for op in ops)):
            variables[n] = identifier(n, variables.values())
        body = self.forward_lines(ops, variables, attributes, results)
        state: list[str] = []
        if any("self.dropout" in line for line in body):
            state.append("self.dropout = 0.0")
        for n in weights:
            tensor = self.graph.tensors[n]
            sizes = [self.length(group) for group in tensor.own_axes]
            fan = sizes[-2] if len(sizes) > 1 else sizes[0] if sizes else "1"
            state.append(f"self.{attributes[n]} = nn.Parameter(torch.randn({', '.join(sizes)}) / math.sqrt({fan}))"
                         f"  # {plain(n)}: {self.said(tensor)}")  # fmt: skip
        for n in tables:
            state.append(f'self.register_buffer("{attributes[n]}", {self.table(n)}, persistent=False)  # {plain(n)}')
        for n in kept:
            shape = ", ".join(self.length(group, before=True) for group in self.graph.tensors[n].own_axes)
            buffer = f'"{attributes[n]}", torch.randn({shape}), persistent=False'
            state.append(f"self.register_buffer({buffer})  # {plain(n)}, kept")
        later = {s for s, n in self.symbols.items() if re.search(rf"self\.{n}\b", "\n".join(body))}
        first = {s for s, n in self.symbols.items() if re.search(rf"self\.{n}\b", "\n".join(state))}
        symbols = tuple(s for s in self.symbols if s in later | first)
        times = f", which stands {region.times} times" if region.times else ""
        text = [f"class {name}(nn.Module):", f'    """{plain(region.name).capitalize()}{times}: a line a row."""', ""]
        sized = ", ".join(self.symbols[s] for s in symbols)
        text += [f"    def __init__(self, *, {sized}, **other):" if sized else "    def __init__(self, **other):"]
        text += ["        super().__init__()"]
        if later:
            left = ", ".join(f"self.{self.symbols[s]}" for s in symbols if s in later)
            text.append(f"        {left} = {', '.join(self.symbols[s] for s in symbols if s in later)}")
        sizes_alone = re.compile(rf"self\.({'|'.join(self.symbols.values())})\b")
        text += [f"        {sizes_alone.sub(lambda size: size[1], line)}" for line in state]
        text += ["", f"    def forward(self, {', '.join(variables[n] for n in arguments)}):", *body, ""]
        attribute = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
        return RegionClass(
            region, name, f"{attribute}s" if region.times else attribute, tuple(arguments), tuple(results),
            {n: attributes[n] for n in weights}, {n: attributes[n] for n in tables}, symbols,
            {n: attributes[n] for n in kept},
        ), "\n".join(text)  # fmt: skip

    def table(self, name: str) -> str:
        groups = self.graph.tensors[name].own_axes
        sizes = [self.length(group) for group in groups]
        if self.graph.sizes(name)[-1] != self.graph.axes[groups[-1][-1]].size:
            sizes[-1] = self.number(self.graph.sizes(name)[-1])
        word, step = self.tables[name][0], self.graph.step
        if word == "mask":
            hidden = f"torch.full(({', '.join(sizes)}), float('-inf'))"
            windows: set[Any] = {op.attribute("positions") for op in self.graph.consumers[name]} - {None}
            before = step.behind.get(groups[-1][-1], 0) if step is not None else 0
            early = [f" + {hidden}.tril({self.number(before - window)})" for window in windows]
            return f"{hidden}.triu({self.number(before + 1)}){''.join(early)}"
        if len(sizes) == 1:
            sizes = ["1", *sizes]
        self.helpers.add("angles")
        rows = f"angles({', '.join(sizes)})"
        if step is not None and len(groups) > 1:  # the last of all positions
            rows = f"angles({self.number(step.past + step.new)}, {sizes[1]})[-{called(sizes[0])}:]"
        return f"{rows}.{word}()"

    # -- the whole ----------------------------------------------------------------------------

    def whole(self, classes: list[RegionClass], inputs: Mapping[str, str], results: tuple[str, ...]) -> str:
        """The model: its parts one after the other, repeated ones in a loop."""
        times = dict.fromkeys(c.region.times for c in classes if c.region.times)
        for symbol in times:
            self.symbols.setdefault(symbol, identifier(symbol, self.symbols.values()))
        text = ["class Model(nn.Module):", f'    """{plain(self.title)}: its parts one after the other."""', ""]
        text.append(f"    def __init__(self, *, {''.join(self.symbols[t] + ', ' for t in times)}**sizes):")
        text.append("        super().__init__()")
        homes: dict[str, str] = {}
        for c in classes:
            made = f"{c.name}(**sizes)"
            if c.region.times:
                made = f"nn.ModuleList({made} for _ in range({self.symbols[c.region.times]}))"
            text.append(f"        self.{c.attribute} = {made}")
            for n, attribute in c.weights.items():
                if n in homes:
                    text.append(f"        self.{c.attribute}.{attribute} = {homes[n]}  # one weight")
                homes.setdefault(n, f"self.{c.attribute}.{attribute}")
        variables: dict[str, str] = dict(inputs)
        for c in classes:
            for n in (*c.arguments, *c.results):
                variables.setdefault(n, identifier(n, (*variables.values(),)))
        text += ["", f"    def forward(self, {', '.join(inputs.values())}):"]
        for c in classes:
            out = ", ".join(variables[n] for n in c.results)
            into = {target: source for source, target in c.region.carried}
            if not c.region.times:
                text.append(f"        {out} = self.{c.attribute}({', '.join(variables[n] for n in c.arguments)})")
                continue
            starts = [n for n in c.arguments if n in into]
            if not starts or {into[n] for n in starts} != {*c.results}:
                raise RenderError(
                    f"{c.region.name} is repeated, but what one layer hands to the next is not all that it gives"
                )
            for n in starts:
                text.append(f"        {variables[into[n]]} = {variables[n]}")
            text.append(f"        for layer in self.{c.attribute}:")
            text.append(f"            {out} = layer({', '.join(variables[into.get(n, n)] for n in c.arguments)})")
        text += [f"        return {', '.join(variables[n] for n in results if n in variables)}", ""]
        return "\n".join(text)

    def file(self, classes: list[RegionClass], bodies: list[str], inputs: Mapping[str, str], stacked: bool) -> str:
        top = "Model" if stacked else classes[0].name
        sizes = {self.symbols[s]: self.values.get(s, 4) for s in self.symbols}
        sized = ", ".join(f"{name}={size}" for name, size in sizes.items())
        given = []
        for n in inputs:
            tensor = self.graph.tensors[n]
            shape = ", ".join(self.length(group).replace("self.", "") for group in tensor.own_axes)
            classes_of = [
                self.graph.tensors[op.output].axes[-1] for op in self.graph.consumers.get(n, ()) if op.kind == "onehot"
            ]
            shape = f"({shape},)" if shape and "," not in shape else f"({shape})"
            if classes_of:
                given.append(f"torch.randint({self.length([classes_of[0]]).replace('self.', '')}, {shape})")
            else:
                given.append(f"torch.randn({shape})")
        shapes = ", ".join(f"{plain(n)}: {self.said(self.graph.tensors[n])}" for n in inputs)
        names = ", ".join(sizes)
        lines = [
            f'"""{plain(self.title)} in PyTorch, written by symcomm from its table; it needs nothing else."""',
            "", "import math", "", "import torch", "from torch import nn", "from torch.nn import functional as F", "",
            f"SIZES = dict({sized})  # choose your own", "EPSILON = 1e-5  # of norms",
            *([self.head] if self.head else []), "", "",
        ]  # fmt: skip
        for helper in sorted(self.helpers):
            lines += [HELPERS[helper], ""]
        for body in bodies:
            lines += [body, ""]
        lines += [
            f"def model({names}):", '    """The model with so large axes."""',
            f"    return {top}({', '.join(f'{n}={n}' for n in sizes)})", "", "",
            f"def example({names}):", f'    """Inputs made on the spot. {shapes}."""',
            f"    return ({', '.join(given)},)", "", "",
            'if __name__ == "__main__":',
            "    network = model(**SIZES)",
            "    results = network(*example(**SIZES))",
            "    results = results if isinstance(results, tuple) else (results,)",
            *(["    sum(result.sum() for result in results).backward()"] if self.graph.step is None else []),
            '    print("parameters:", sum(p.numel() for p in network.parameters()))',
            '    print("results:", *(tuple(result.shape) for result in results))', "",
        ]  # fmt: skip
        return "\n".join(lines)
