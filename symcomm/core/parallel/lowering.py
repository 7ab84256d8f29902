"""Maps that reduce along an axis, taken apart: statistics of the rows, and what lies between them, point by point.

The record of a map says what is summed, averaged or maximised along its axis. Each such reduction is a step of its
own that a cut axis leaves as a partial result; equal ones are shared, also between a map and its gradient.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from functools import cache
from typing import Any, Literal

from symcomm.core.graph.axis_roles import whole_indices
from symcomm.core.graph.graph import Graph, Op, Tensor
from symcomm.core.graph.ops import MAP, REDUCTIONS, AlongMax, AlongMean, AlongSum, Chosen, Rotate, dy, y
from symcomm.core.records import dataclass

Part = Literal["whole", "statistics", "pointwise"]
_WORDS = {AlongMax: "max", AlongSum: "sum", AlongMean: "mean"}


@dataclass(frozen=True)
class OpStep:
    """A step of an op: all of it, or of a map that is taken apart one of its statistics, or the rest."""

    op: Op
    part: Part
    inputs: tuple[str, ...]  # these four are of the step, in the loops of the op
    indices: tuple[tuple[int, ...], ...]
    output: str
    output_indices: tuple[int, ...]
    linear: tuple[int, ...] = ()  # the operands that it is linear in, taken together
    reduces: Literal["sum", "max"] = "sum"  # how the parts of a cut row are put together

    @property
    def alike(self) -> object:
        """All of a step but the names of its tensors and its place: equal for steps that do the same."""
        op = self.op
        loops = op.indices, op.output_indices, self.indices, self.output_indices
        return op.kind, op.attributes, loops, self.part, self.linear, self.reduces

    @property
    def whole(self) -> tuple[int, ...]:
        """The loop indices that the step needs whole, of all its operands."""
        # A norm of examples that is not taken apart has the statistics of what a rank has.
        own = getattr(MAP.get(self.op.kind.removesuffix("_gradient")), "examples", False)
        return whole_indices(self.op) if self.part == "whole" and self.before is None and not own else ()

    @property
    def before(self) -> int | None:
        """The operand that is read one position earlier: whole, wherever the positions of the others are cut."""
        found = self.op.attribute("before")
        assert found is None or isinstance(found, int)
        return found


@dataclass(frozen=True)
class Reduction:
    """One reduction of a map: its symbol in what follows, the word for it, and what is reduced."""

    symbol: Any
    word: str
    inside: Any
    shown: Any


@cache
def reducible(kind: str) -> bool:
    """Whether a map is made of reductions along its axis and steps point by point, and of nothing else."""
    record = MAP.get(kind)
    return record is not None and record.expression.has(*REDUCTIONS) and not record.expression.has(Rotate, Chosen)


@cache
def reductions(kind: str, backward: bool) -> tuple[tuple[Reduction, ...], Any]:
    """The reductions of a map, or of the map and then its gradient, innermost first; and the rest of it.

    >>> [r.word for r in reductions("softmax", False)[0]], [str(r.shown) for r in reductions("softmax", True)[0]][2:]
    (['max', 'sum'], ['dy*y'])
    """
    record = MAP[kind]
    found: dict[Any, Reduction] = {}

    def visit(e: Any) -> Any:
        if not e.args or not e.has(*REDUCTIONS):
            return e
        if e in found:
            return found[e].symbol
        inside = [visit(a) for a in e.args]
        if not isinstance(e, REDUCTIONS):
            return e.func(*inside)
        # Any symbol that no operand has will do: a free one of the record's own kind, numbered.
        symbol = y.func(f"s{len(found)}", real=True)
        shown = e.args[0].subs(record.expression, y) if backward else e.args[0]
        found[e] = Reduction(symbol, _WORDS[type(e)], inside[0], shown)
        return symbol

    rest = visit(record.expression)
    if backward:
        rest = visit(record.derivative)
    return tuple(found.values()), rest


def op_steps(graph: Graph, apart: Container[str]) -> tuple[tuple[OpStep, ...], Mapping[str, Tensor]]:
    """The steps of a graph's ops in order, and the statistics among what they make.

    ``apart`` names the outputs of the forward maps that are taken apart; their gradients are as well.
    """
    found: list[OpStep] = []
    statistics: dict[str, Tensor] = {}
    shared: dict[tuple[str, ...], dict[Any, str]] = {}  # of a map: where its statistics are
    for op in graph.ops:
        backward = op.kind.endswith("_gradient")
        kind = op.kind.removesuffix("_gradient")
        forward = op if not backward else _forward(graph, op, kind)
        if not reducible(kind) or forward is None or forward.output not in apart:
            found.append(_whole(op))
            continue
        record = MAP[kind]
        names = ("dy", *record.gradient_reads) if backward else ("u", *record.operands)
        operand = dict(zip(names, zip(op.inputs, op.indices, strict=True), strict=True))
        every, rest = reductions(kind, backward)
        before = len(reductions(kind, False)[0]) if backward else 0
        known = shared.setdefault((forward.output,), {})
        full = op.output_indices if backward else op.indices[0]
        row = tuple(i for i in full if i not in whole_indices(op))
        arriving = {dy}

        def reads(e: Any, operand: Mapping[str, Any] = operand, known: Mapping[Any, str] = known,
                  row: tuple[int, ...] = row) -> dict[Any, tuple[str, tuple[int, ...]]]:  # fmt: skip
            free = e.free_symbols
            mine = {e: operand[e.name] for e in sorted(free, key=str) if e.name in operand}
            return mine | {s: (known[s], row) for s in known if s in free}

        for number, reduction in enumerate(every):
            if number < before:
                continue  # the forward pass has made it
            used = reads(reduction.inside)
            if backward and arriving & reduction.inside.free_symbols:
                arriving.add(reduction.symbol)
            shown = _said(graph, reduction, {k: v for k, (v, _) in operand.items()}, forward.output, every, known)
            name = shown
            while name in statistics:
                name += "'"
            axes = graph.index_axes(op)
            of = graph.tensors[op.inputs[0]]
            statistics[name] = Tensor(name, tuple(axes[i] for i in row), "statistic", dtype=of.dtype, of=op.output)
            known[reduction.symbol] = name
            linear = tuple(n for n, s in enumerate(used) if s in arriving) if backward else ()
            how: Literal["sum", "max"] = "max" if reduction.word == "max" else "sum"
            read, at = tuple(n for n, _ in used.values()), tuple(i for _, i in used.values())
            found.append(OpStep(op, "statistics", read, at, name, row, linear, how))
        used = reads(rest)
        linear = tuple(n for n, s in enumerate(used) if s in arriving) if backward else ()
        if not set(op.output_indices) <= set(op.indices[0]):
            linear = ()  # a sum that is still spread is smaller before it is repeated along an axis
        found.append(
            OpStep(op, "pointwise", tuple(n for n, _ in used.values()), tuple(i for _, i in used.values()), op.output,
                  op.output_indices, linear)
        )  # fmt: skip
    return tuple(found), statistics


def _whole(op: Op) -> OpStep:
    """An op as one step; a map is linear where its record says so, a gradient of a map in what arrives."""
    kind = op.kind.removesuffix("_gradient")
    linear: tuple[int, ...] = ()
    of_map = kind in MAP and (kind != op.kind or MAP[kind].linear) and set(op.output_indices) <= set(op.indices[0])
    if of_map or op.kind in ("halo", "halo_sum"):
        linear = (0,)
    return OpStep(op, "whole", op.inputs, op.indices, op.output, op.output_indices, linear)


def _forward(graph: Graph, op: Op, kind: str) -> Op | None:
    """The map whose gradient an op computes."""
    of = graph.tensors[op.output].of
    mine = [o for o in graph.consumers.get(of, ()) if o.kind == kind and o.phase == "forward"]
    return next((o for o in mine if o.row == op.row and o.output in _near(graph, op)), mine[0] if mine else None)


def _near(graph: Graph, op: Op) -> set[str]:
    return {graph.tensors[op.inputs[0]].of, *op.inputs}


def _said(graph: Graph, reduction: Reduction, operands: Mapping[str, str], result: str, every: tuple[Reduction, ...],
          known: Mapping[Any, str]) -> str:  # fmt: skip
    """A statistic as a person writes it: ``sum(exp(S - max(S)))``."""
    names = {"y": result, **operands}
    shown = reduction.inside if reduction.shown.has(*REDUCTIONS) else reduction.shown
    for other in every:
        if other.symbol in known:
            names[other.symbol.name] = known[other.symbol]
    for word, name in names.items():
        made = graph.producers.get(name)
        chosen = f"onehot({made.inputs[0]})" if made is not None and made.kind == "onehot" else name
        names[word] = re.sub(r"·[^)]*", "", chosen)
    return f"{reduction.word}({_formula(shown, names)})"


def _formula(e: Any, names: Mapping[str, str], inner: bool = False) -> str:
    if e.is_Symbol:
        return names.get(e.name, e.name)
    if e.is_Number:
        return str(e)
    if e.is_Add:
        # What is taken off stands behind.
        terms = sorted(e.args, key=lambda a: (a.could_extract_minus_sign(), str(a)))
        text = _formula(terms[0], names)
        for term in terms[1:]:
            minus = term.could_extract_minus_sign()
            text += f" {'-' if minus else '+'} {_formula(-term if minus else term, names)}"
        return f"({text})" if inner else text
    if e.is_Mul:
        return " ".join(_formula(a, names, True) for a in e.args)
    if e.is_Pow:
        return f"{_formula(e.args[0], names, True)}^{_formula(e.args[1], names, True)}"
    return f"{e.func.__name__}({', '.join(_formula(a, names) for a in e.args)})"
