"""A graph as the source of a PyTorch module: one class a region, one line a row, shapes in comments.

What is written runs on its own: it needs PyTorch and nothing else. ``Marks`` write the same lines with something around
operands and results, such as the calls through which a parallel run moves tensors to where a plan has them.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import field
from functools import cached_property
from typing import Any

from symcomm.core.errors import RenderError, nearest
from symcomm.core.graph.graph import Graph, Op, Region, Tensor, bare
from symcomm.core.records import dataclass
from symcomm.verify.attention import KernelError, attentions, with_kernels
from symcomm.verify.emitters import EMITTERS, HELPERS, Letter, Operand, Spelled, called

_TAKEN = frozenset({"torch", "nn", "math", "F", "self", "sizes", "layer", "dropout", "EPSILON", "example", "model"})
_LATIN = {"α": "alpha", "β": "beta", "γ": "gamma", "ℓ": "ell", "σ": "sigma"}


_UNSTORED = ("first", "place", "eye", "dropout")  # constants of which the module needs no tensor


def identifier(name: str, taken: Iterable[str] = ()) -> str:
    """A Python name for a tensor or a size, unlike those that are taken.

    >>> identifier("W^Q"), identifier("x'"), identifier("d_ff"), identifier("class"), identifier("4D")
    ('W_Q', 'x_new', 'd_ff', 'class_', 't_4D')
    """
    text = "".join(_LATIN.get(c, c) for c in bare(name)).replace("'", "_new")
    text = re.sub(r"[^A-Za-z0-9]+", "_", text.encode("ascii", "replace").decode()).strip("_")[:40] or "t"
    text = f"t_{text}" if text[0].isdigit() else text
    text = f"{text}_" if keyword.iskeyword(text) or text in _TAKEN or text in HELPERS else text
    n, free, taken = 1, text, {*taken}
    while free in taken:
        n, free = n + 1, f"{text}_{n + 1}"
    return free


@dataclass(frozen=True)
class RegionClass:
    """A region as a class: what it takes and gives, and what its weights and tables are called there."""

    region: Region
    name: str
    attribute: str
    arguments: tuple[str, ...]
    results: tuple[str, ...]
    weights: Mapping[str, str]
    tables: Mapping[str, str]
    symbols: tuple[str, ...]


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


class Marks:
    """What is written around operands and results: nothing, where a module is to be read."""

    attends = "F.scaled_dot_product_attention"

    def read(self, op: Op, name: str, text: str, before: list[str]) -> str:
        """An operand of an op; lines that must come first are added to ``before``."""
        return text

    def rest(self, name: str, text: str) -> str:
        """The result of an op."""
        return text


class RunMarks(Marks):
    """A call of each attention, through which a run sees what is added to its scores."""

    attends = "self.attend"


class PlacedMarks(RunMarks):
    """A call around each operand and each result, too, through which a run moves tensors to their places."""

    def read(self, op: Op, name: str, text: str, before: list[str]) -> str:
        """``self.read(op, tensor, value)``."""
        return f"self.read({op.output!r}, {name!r}, {text})"

    def rest(self, name: str, text: str) -> str:
        """``self.rest(tensor, value)``."""
        return f"self.rest({name!r}, {text})"


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
    return _Writer(graph.forward(), name or graph.name, marks or Marks(), values or {}, head).write()


@dataclass
class _Writer:
    graph: Graph
    title: str
    marks: Marks
    values: Mapping[str, int]
    head: str
    helpers: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        from sympy.printing.pycode import PythonCodePrinter

        found = {s.name for axis in self.graph.axes.values() for s in axis.size.free_symbols}
        for op in self.graph.ops:
            found |= {s.name for _, v in op.attributes for s in getattr(v, "free_symbols", ())}
        self.symbols: dict[str, str] = {}
        for symbol in sorted(found):
            self.symbols[symbol] = identifier(symbol, self.symbols.values())
        names = self.symbols

        class Printer(PythonCodePrinter):  # type: ignore[misc]  # SymPy has no type hints
            def _print_Symbol(self, expr: Any) -> str:  # noqa: N802  (SymPy's name)
                return prefix + names[expr.name]

        prefix = "self."
        self.printer = Printer()

        self.ops = [*self.graph.ops]
        with suppress(KernelError):  # then it is written out
            self.ops = with_kernels(self.graph.ops, attentions(self.graph))

    # -- sizes and letters --------------------------------------------------------------------

    def number(self, expression: Any) -> str:
        """A number or size in a method of the class."""
        import sympy as sp

        expression = sp.Integer(expression) if isinstance(expression, int) else expression
        return str(self.printer.doprint(expression))

    def length(self, axes: Iterable[str]) -> str:
        """The size of some axes together, as a whole number in a method of the class."""
        import sympy as sp

        over, under = sp.Mul(*(self.graph.axes[a].size for a in axes)).as_numer_denom()
        text = self.number(over)
        return text if under == 1 else f"{called(text)} // {called(self.number(under))}"

    def parts(self, tensor: Tensor, indices: tuple[int, ...]) -> list[Letter]:
        """The loops behind each axis of a tensor as it is held."""
        starts = [sum(tensor.held[:n]) for n in range(len(tensor.held))]
        return [indices[at : at + count] for at, count in zip(starts, tensor.held, strict=True)]

    def said(self, tensor: Tensor) -> str:
        """The shape for a comment."""
        import sympy as sp

        made = [sp.Mul(*(self.graph.axes[a].size for a in group)) for group in tensor.own_axes]
        relations = {str(_value(form)): name for name, form in self.graph.relations.equations}
        return " × ".join(relations.get(str(size), str(size)) for size in made) or "a number"

    # -- regions ------------------------------------------------------------------------------

    @cached_property
    def tables(self) -> Mapping[str, tuple[str, str]]:
        """Constants that the module makes itself: causal masks and the tables of rotations; and dropout's masks."""
        found: dict[str, tuple[str, str]] = {}
        for op in self.graph.ops:
            for j, name in enumerate(op.inputs):
                tensor = self.graph.tensors[name]
                if tensor.role != "constant" or name in self.graph.producers or tensor.latex:
                    continue
                if op.kind == "mask" and j == 1:
                    found[name] = ("mask", "")
                elif op.kind == "rope" and j in (1, 2):
                    found[name] = ("cos" if j == 1 else "sin", "")
                elif tensor.virtual:
                    found[name] = (name.partition("(")[0], "")
                elif tensor.dtype == "bool":
                    found[name] = ("dropout", "")
        return found

    def made_of(self, name: str) -> str:
        """What a constant is that is not stored: onehot, route, first, place, eye, dropout; else empty."""
        made = self.graph.producers.get(name)
        if made is not None and made.kind in ("onehot", "route"):
            return made.kind
        word = self.tables.get(name, ("", ""))[0]
        return word if word in _UNSTORED else ""

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
        arguments = [n for n in read if n not in weights and n not in self.tables]
        outside = {n for op in self.ops if op not in ops for n in op.inputs}
        carried = [out for out, _ in region.carried]
        results = [n for n in made if n in outside or n in carried or not self.graph.consumers.get(n)]
        results = [op.output for op in ops if op.output in results and not self.graph.tensors[op.output].virtual]
        attributes: dict[str, str] = {}
        for n in (*weights, *tables):
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
                         f"  # {_plain(n)}: {self.said(tensor)}")  # fmt: skip
        for n in tables:
            state.append(f'self.register_buffer("{attributes[n]}", {self.table(n)}, persistent=False)  # {_plain(n)}')
        later = {s for s, n in self.symbols.items() if re.search(rf"self\.{n}\b", "\n".join(body))}
        first = {s for s, n in self.symbols.items() if re.search(rf"self\.{n}\b", "\n".join(state))}
        symbols = tuple(s for s in self.symbols if s in later | first)
        times = f", which stands {region.times} times" if region.times else ""
        text = [f"class {name}(nn.Module):", f'    """{_plain(region.name).capitalize()}{times}: a line a row."""', ""]
        sized = ", ".join(self.symbols[s] for s in symbols)
        text += [f"    def __init__(self, *, {sized}, **other):" if sized else "    def __init__(self, **other):"]
        text += ["        super().__init__()"]
        if later:
            left = ", ".join(f"self.{self.symbols[s]}" for s in symbols if s in later)
            text.append(f"        {left} = {', '.join(self.symbols[s] for s in symbols if s in later)}")
        sizes_alone = re.compile(rf"self\.({'|'.join(self.symbols.values())})\b")
        text += [f"        {sizes_alone.sub(_bare_size, line)}" for line in state]
        text += ["", f"    def forward(self, {', '.join(variables[n] for n in arguments)}):", *body, ""]
        attribute = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
        return RegionClass(
            region, name, f"{attribute}s" if region.times else attribute, tuple(arguments), tuple(results),
            {n: attributes[n] for n in weights}, {n: attributes[n] for n in tables}, symbols,
        ), "\n".join(text)  # fmt: skip

    def table(self, name: str) -> str:
        groups = self.graph.tensors[name].own_axes
        sizes = [self.length(group) for group in groups]
        if self.graph.sizes(name)[-1] != self.graph.axes[groups[-1][-1]].size:
            sizes[-1] = self.number(self.graph.sizes(name)[-1])
        word = self.tables[name][0]
        if word == "mask":
            hidden = f"torch.full(({', '.join(sizes)}), float('-inf'))"
            windows = {op.attribute("positions") for op in self.graph.consumers[name]} - {None}
            early = [f" + {hidden}.tril(-{called(self.number(window))})" for window in windows]
            return f"{hidden}.triu(1){''.join(early)}"
        if len(sizes) == 1:
            sizes = ["1", *sizes]
        self.helpers.add("angles")
        return f"angles({', '.join(sizes)}).{word}()"

    # -- lines --------------------------------------------------------------------------------

    def forward_lines(self, ops: list[Op], variables: Mapping[str, str], attributes: Mapping[str, str],
                      results: list[str]) -> list[str]:  # fmt: skip
        expressions: dict[str, str] = {}
        lines: list[str] = []
        readers: dict[str, list[Op]] = {}
        for op in ops:
            for n in dict.fromkeys(op.inputs):
                readers.setdefault(n, []).append(op)
        gains = self.gains(ops, readers, results)
        folded = {n for _, names in gains.values() for n in names[:-1]}

        def value(op: Op, name: str) -> str:
            made = self.graph.producers.get(name)
            if made is not None and made.kind == "onehot":
                return value(op, made.inputs[0])
            known = f"self.{attributes[name]}" if name in attributes else variables.get(name, "")
            text = expressions.get(name, known)
            return self.marks.read(op, name, text, lines) if text and name not in folded else text

        for op in ops:
            if op.kind == "onehot" or op.output in folded:
                continue
            if op.output in gains:
                norm, (_, *chain) = gains[op.output]
                spelled = self.spelled(norm, value)
                steps = [self.graph.producers[n] for n in chain]
                spelled.operands += [Operand(value(step, step.inputs[1]), ()) for step in steps]
                text = EMITTERS[norm.kind](spelled)
            else:
                text = self.expression(op, value)
            text = self.marks.rest(op.output, text)
            tensor = self.graph.tensors[op.output]
            once = len(readers.get(op.output, ())) == 1 and op.output not in results
            inline = once and (not tensor.latex) and readers[op.output][0].row == op.row
            inline = inline and readers[op.output][0].inputs.count(op.output) == 1
            if inline and (self.made_of(op.output) != "route"):
                expressions[op.output] = text
            else:
                lines.append(f"        {variables[op.output]} = {text}  # {_plain(op.output)}: {self.said(tensor)}")
        lines.append(f"        return {', '.join(variables[n] for n in results)}")
        return lines

    def gains(
        self, ops: list[Op], readers: Mapping[str, list[Op]], results: list[str]
    ) -> dict[str, tuple[Op, list[str]]]:
        """Gains and biases of weights behind a norm whose library function has them, by what the last of them makes."""
        from symcomm.core.graph.ops import MAP

        found: dict[str, tuple[Op, list[str]]] = {}
        for op in ops:
            record = MAP.get(op.kind)
            if record is None or not record.fused_gain:
                continue
            chain, at = [], op.output
            for kind in ("contraction", "add"):
                after = readers.get(at, [])
                nexts = after[0] if len(after) == 1 and at not in results else None
                if nexts is None or nexts.kind != kind or len(nexts.inputs) != 2 or nexts.inputs[0] != at:
                    break
                weight = self.graph.tensors[nexts.inputs[1]]
                last = nexts.output_indices[-1:]
                if weight.role != "weight" or nexts.indices[1] != last or nexts.indices[0] != nexts.output_indices:
                    break
                chain.append(nexts.output)
                at = nexts.output
            if chain:
                found[chain[-1]] = (op, [op.output, *chain])
        return found

    def spelled(self, op: Op, value: Any) -> Spelled:
        """An op with its operands, in letters; operands are taken apart where that is needed."""
        tensors = [self.graph.tensors[n] for n in op.inputs]
        groups = [self.parts(t, indices) for t, indices in zip(tensors, op.indices, strict=True)]
        out = self.parts(self.graph.tensors[op.output], op.output_indices)
        for _ in range(8 if op.kind != "attention" else 0):
            every = [g for some in (*groups, out) for g in some]
            split = {i for g in every for h in every if g != h and {*g} & {*h} for i in (*g, *h)}
            if not split:
                break
            groups = [[x for g in some for x in ([(i,) for i in g] if {*g} & split else [g])] for some in groups]
            out = [x for g in out for x in ([(i,) for i in g] if {*g} & split else [g])]
        axes = self.graph.index_axes(op)
        operands: list[Operand] = []
        constant = ""
        for name, tensor, letters, indices in zip(op.inputs, tensors, groups, op.indices, strict=True):
            kind = self.made_of(name)
            constant = kind if kind in ("onehot", *_UNSTORED) else constant
            text = value(op, name) if kind not in _UNSTORED else ""
            text = (
                self.taken_apart(text, self.parts(tensor, indices), letters, axes)
                if text and kind != "onehot"
                else text
            )
            operands.append(Operand(text, tuple(letters), "ids" if kind == "onehot" else tensor.role))
        import sympy as sp

        share = sp.Mul(*(self.graph.axes[axes[i]].size for i in op.summed), op.attribute("scale", 0))
        return Spelled(
            op.kind, operands, tuple(out), dict(op.attributes),
            sizes=lambda letter: self.length(axes[i] for i in letter), number=self.number, constant=constant,
            mean=len(operands) == 1 and not out and share == 1, helpers=self.helpers, attends=self.marks.attends,
            space=lambda i: self.length([axes[i]]),
            equal=lambda w, t, p: (self.graph.axes[axes[w]].size - self.graph.axes[axes[t]].size + 1
                                   - self.graph.axes[axes[p]].size).expand() == 0,
        )  # fmt: skip

    def taken_apart(self, text: str, have: list[Letter], want: list[Letter], axes: Mapping[int, str]) -> str:
        at = 0
        for group in have:
            if group in want or not group:
                at += 1
                continue
            sizes = ", ".join(self.length([axes[i]]) for i in group)
            text = f"{called(text)}.unflatten({at}, ({sizes}))"
            at += len(group)
        return text

    def expression(self, op: Op, value: Any) -> str:
        if op.kind not in EMITTERS:
            raise RenderError(f"{op.kind} is not written in PyTorch yet", op.source, nearest(op.kind, [*EMITTERS]))
        spelled = self.spelled(op, value)
        try:
            text = EMITTERS[op.kind](spelled)
        except RenderError as error:
            raise error.at(op.source) from None
        at = 0
        for group in self.parts(self.graph.tensors[op.output], op.output_indices):
            if group in spelled.letters:
                at += 1
                continue
            text = f"{called(text)}.flatten({at}, {at + len(group) - 1})"
            at += 1
        return text

    # -- the whole ----------------------------------------------------------------------------

    def whole(self, classes: list[RegionClass], inputs: Mapping[str, str], results: tuple[str, ...]) -> str:
        """The model: its parts one after the other, repeated ones in a loop."""
        times = dict.fromkeys(c.region.times for c in classes if c.region.times)
        for symbol in times:
            self.symbols.setdefault(symbol, identifier(symbol, self.symbols.values()))
        text = ["class Model(nn.Module):", f'    """{_plain(self.title)}: its parts one after the other."""', ""]
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
        shapes = ", ".join(f"{_plain(n)}: {self.said(self.graph.tensors[n])}" for n in inputs)
        names = ", ".join(sizes)
        lines = [
            f'"""{_plain(self.title)} in PyTorch, written by symcomm from its table; it needs nothing else."""',
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
            "    sum(result.sum() for result in results).backward()",
            '    print("parameters:", sum(p.numel() for p in network.parameters()))',
            '    print("results:", *(tuple(result.shape) for result in results))', "",
        ]  # fmt: skip
        return "\n".join(lines)


def _value(form: Any) -> Any:
    from symcomm.core.form import value

    return value(form)


def _bare_size(match: re.Match[str]) -> str:
    """A size in the constructor: the argument itself."""
    return match[1]


def _plain(text: str) -> str:
    """A name of the author in a comment or a docstring: nothing in it ends either.

    >>> _plain('W^Q\\n"x')
    'W^Q  x'
    """
    return re.sub(r"[^\w ^~·'(),.:+*/<>{}=-]", " ", text)[:80]
