"""The ops of a graph as lines of PyTorch: a line a row, with its shape in a comment."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import field
from functools import cached_property
from typing import Any

from symcomm.core.errors import RenderError, nearest
from symcomm.core.form import value
from symcomm.core.graph.graph import Graph, Op, Tensor, bare
from symcomm.core.graph.ops import MAP
from symcomm.core.libraries import sp
from symcomm.core.records import dataclass
from symcomm.verify.attention import KernelError, attentions, with_kernels
from symcomm.verify.emitters import EMITTERS, HELPERS, Letter, Operand, Spelled, called

_UNSTORED = ("first", "last", "place", "eye", "dropout")  # constants of which the module needs no tensor
_TAKEN = frozenset({"torch", "nn", "math", "F", "self", "sizes", "layer", "dropout", "EPSILON", "example", "model"})
_LATIN = {"α": "alpha", "β": "beta", "γ": "gamma", "ℓ": "ell", "σ": "sigma"}


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


class Marks:
    """The text around operands and results: empty where a module is to be read."""

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


@dataclass
class Lines:
    """Writes the ops of a graph as lines, with ``marks`` around operands and results.

    ``symbols`` are the names of sizes in the module, ``helpers`` the functions that the lines call.
    """

    graph: Graph
    marks: Marks
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
        expression = sp.Integer(expression) if isinstance(expression, int) else expression
        return str(self.printer.doprint(expression))

    def length(self, axes: Iterable[str], before: bool = False) -> str:
        """The size of some axes together, as a whole number in a method of the class; of positions those ``before``."""
        behind = self.graph.step.behind if before and self.graph.step is not None else {}
        over, under = sp.Mul(*(behind.get(a, self.graph.axes[a].size) for a in axes)).as_numer_denom()
        text = self.number(over)
        return text if under == 1 else f"{called(text)} // {called(self.number(under))}"

    def parts(self, tensor: Tensor, indices: tuple[int, ...]) -> list[Letter]:
        """The loops behind each axis of a tensor as it is held."""
        starts = [sum(tensor.held[:n]) for n in range(len(tensor.held))]
        return [indices[at : at + count] for at, count in zip(starts, tensor.held, strict=True)]

    def said(self, tensor: Tensor) -> str:
        """The shape for a comment."""
        made = [sp.Mul(*(self.graph.axes[a].size for a in group)) for group in tensor.own_axes]
        relations = {str(value(form)): name for name, form in self.graph.relations.equations}
        return " × ".join(relations.get(str(size), str(size)) for size in made) or "a number"

    # -- constants --------------------------------------------------------------------------------

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
        """The kind of a constant that is not stored: onehot, route, first, last, place, eye, dropout; else empty."""
        made = self.graph.producers.get(name)
        if made is not None and made.kind in ("onehot", "route"):
            return made.kind
        word = self.tables.get(name, ("", ""))[0]
        return word if word in _UNSTORED else ""

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
            grows = op.attribute("append") is not None
            inline = once and (tensor.virtual or not tensor.latex) and readers[op.output][0].row == op.row and not grows
            inline = inline and readers[op.output][0].inputs.count(op.output) == 1
            if inline and (self.made_of(op.output) != "route"):
                expressions[op.output] = text
            else:
                lines.append(f"        {variables[op.output]} = {text}  # {plain(op.output)}: {self.said(tensor)}")
            if grows:
                lines.append(f"        self.{attributes[op.inputs[0]]} = {variables[op.output]}")
        lines.append(f"        return {', '.join(variables[n] for n in results)}")
        return lines

    def gains(
        self, ops: list[Op], readers: Mapping[str, list[Op]], results: list[str]
    ) -> dict[str, tuple[Op, list[str]]]:
        """Gains and biases of weights behind a norm whose library function has them, by what the last of them makes."""
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
                last = nexts.output_indices[1:2] if record.examples else nexts.output_indices[-1:]
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
        for _ in range(8 if op.kind not in ("attention", "maxpool") else 0):
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
        share = sp.Mul(*(self.graph.axes[axes[i]].size for i in op.summed), op.attribute("scale", 0))
        return Spelled(
            op.kind, operands, tuple(out), dict(op.attributes),
            sizes=lambda letter: self.length(axes[i] for i in letter), number=self.number, constant=constant,
            mean=len(operands) == 1 and share == 1, helpers=self.helpers, attends=self.marks.attends,
            size=lambda letter: sp.Mul(*(self.graph.axes[axes[i]].size for i in letter)),
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


def plain(text: str) -> str:
    """A name of the author in a comment or a docstring: nothing in it ends either.

    >>> plain('W^Q\\n"x')
    'W^Q  x'
    """
    return re.sub(r"[^\w ^~·'(),.:+*/<>{}=-]", " ", text)[:80]
