"""The ops of a formula: each product, sum and function adds its ops to the drafts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, ClassVar

import sympy as sp

from symcomm.core import form as forms
from symcomm.core.errors import FormulaError, ShapeError, Span, nearest
from symcomm.core.graph import ops as kinds
from symcomm.core.graph.drafts import DraftTensor, TableDraft, Value
from symcomm.core.notation import Notation, axis_role
from symcomm.core.records import dataclass
from symcomm.core.text import tree


@dataclass
class Reader(TableDraft):
    """Reads formulas into ops; ``functions`` are what a function of a name gives, where that is no map."""

    functions: ClassVar[Mapping[str, Callable[[Any, tree.FunctionCall], Value]]] = {}
    subscripted: ClassVar[frozenset[str]] = frozenset()  # the functions that read their subscript
    known_weights: frozenset[str] = field(default=frozenset(), kw_only=True)  # as a first reading found them
    axes: Mapping[str, str] = field(kw_only=True)  # what sizes are said to be
    notation: Notation = field(kw_only=True)
    chains: list[tuple[DraftTensor, ...]] = field(default_factory=list, init=False)  # products of three and more
    pure: set[DraftTensor] = field(default_factory=set, init=False)  # what the rows above make of weights alone
    followed: int = field(default=0, init=False)  # how many ops were looked at for that
    marks: dict[str, None] = field(default_factory=dict, init=False)  # how subscripts were read, as notes

    def role(self, label: str, size: sp.Expr) -> str:
        """The role of an axis: as the options give it, else as its symbol usually means."""
        return self.axes.get(label, axis_role(self.notation.usual(str(size.name))) if size.is_Symbol else "")

    def scalar(self, node: tree.Node) -> sp.Expr | None:
        """The worth of a formula without tensors, or None where a tensor is in it."""
        match node:
            case tree.Number() | tree.Identifier():
                if isinstance(node, tree.Identifier) and self.find(node) is not None:
                    return None
                return forms.value(self.form(node))
            case tree.Multiplication(factors=parts) | tree.Sum(terms=parts) | tree.Hadamard(factors=parts):
                pass
            case tree.Quotient(top=top, bottom=bottom):
                parts = (top, bottom)
            case tree.Exponentiation(base=base, exponent=exponent):
                parts = (base, exponent)
            case tree.Radical(inside=inside):
                parts = (inside,)
            case _:
                return None
        if any(self.scalar(p) is None for p in parts):
            return None
        worth = forms.value(self.form(node))
        if worth.has(sp.zoo, sp.nan):
            raise FormulaError("a division by zero", node.span, "divide by a number or a size")
        return worth

    def find(self, name: tree.Identifier) -> DraftTensor | None:
        """The tensor of a name, if there is one."""
        return self.tensors.get((name.key, bool(name.index)))

    def tensor(self, node: tree.Node) -> Value:
        """The value of a formula that must be a tensor."""
        match node:
            case tree.Identifier():
                found = self.find(node)
                if found is None:
                    raise ShapeError(
                        f"{node.key} has no shape", node.span, nearest(node.key, [key for key, _ in self.tensors])
                    )
                return self.seen(found, node.span, (node.index,) if node.index else None)
            case tree.Transpose(inside=inside):
                value = self.tensor(inside)
                if len(value.places) < 2:
                    raise ShapeError("a transpose needs two axes", node.span)
                places = (*value.places[:-2], value.places[-1], value.places[-2])
                return Value(value.tensor, value.family, places, node.span)
            case tree.Multiplication(factors=factors):
                scale: sp.Expr = sp.Integer(1)
                values: list[Value] = []
                for factor in factors:
                    number = self.scalar(factor)
                    if number is not None:
                        scale *= number
                    else:
                        values.append(self.factor(factor))
                if not values:
                    raise FormulaError("a product of numbers alone", node.span, "multiply a tensor of the Input column")
                result = self.product(values, node.span)
                return result if scale == 1 else self.map("scale", result, node.span, scale=scale)
            case tree.Quotient(top=top, bottom=bottom):
                number = self.scalar(bottom)
                if number is None:
                    raise FormulaError("a division by a tensor", bottom.span, "divide by a number or a size")
                if number == 0:
                    raise FormulaError("a division by zero", bottom.span, "divide by a number or a size")
                return self.map("scale", self.tensor(top), node.span, scale=1 / number)
            case tree.Hadamard(factors=factors):
                return self.multiply([self.tensor(f) for f in factors], node.span)
            case tree.Sum(terms=terms, signs=signs):
                return self.sum(terms, signs, node.span)
            case tree.FunctionCall():
                return self.call(node)
        raise FormulaError("this is not something a layer computes", node.span)

    def sum(self, terms: Sequence[tree.Node], signs: Sequence[int], span: Span) -> Value:
        """The sum of tensors, and of a number at each of their elements: ``1 - z`` is one op."""
        numbers = [self.scalar(term) for term in terms]
        for term, number in zip(terms, numbers, strict=True):
            if number is not None and not number.is_number:
                hint = "add tensors and plain numbers; a tensor stands with its shape in the Input column"
                raise FormulaError("a size is added to a tensor", term.span, hint)
        read = [(self.tensor(t), s) for t, s, n in zip(terms, signs, numbers, strict=True) if n is None]
        if len(read) == len(terms):
            return self.add([value for value, _ in read], signs, span)
        if not read:
            raise FormulaError("this is not something a layer computes", span)
        number = sp.Add(*(n * s for n, s in zip(numbers, signs, strict=True) if n is not None))
        (value, sign), *more = read
        if more:
            value, sign = self.add([value for value, _ in read], [sign for _, sign in read], span), 1
        return self.map("shift" if sign > 0 else "minus", value, span, number=number)

    def factor(self, node: tree.Node) -> Value:
        """A factor of a product; there a vector may stand as a row."""
        if isinstance(node, tree.Transpose):
            value = self.tensor(node.inside)
            if len(value.places) == 1:
                return replace(value, row=True)
        return self.tensor(node)

    def product(self, values: list[Value], span: Span) -> Value:
        """The product of factors, from the data on: weights wait for the data that they work on.

        ``W_2 W_1 x`` is two products with x and not one of two matrices, as ``x W_1 W_2`` is.
        """
        self.chains += [tuple(v.tensor for v in values)] if len(values) > 2 else []
        start = next((n for n, v in enumerate(values) if not self.of_weights(v.tensor)), 0)
        result = values[start]
        for value in reversed(values[:start]):
            result = self.matmul(value, result, span)
        for value in values[start + 1 :]:
            result = self.matmul(result, value, span)
        return result

    def of_weights(self, tensor: DraftTensor) -> bool:
        """Whether a tensor is a weight, or made of weights alone."""
        if not self.known_weights:
            return False
        for op in self.ops[self.followed :]:
            if op.row == self.row:  # what this row makes has no name yet
                break
            self.followed += 1
            if all(self._is_pure(one) for one in op.inputs):
                self.pure.add(op.output)
        if self._is_pure(tensor):
            return True
        made = next((op for op in self.ops[self.followed :] if op.output is tensor), None)
        return made is not None and all(self.of_weights(one) for one in made.inputs)

    def _is_pure(self, tensor: DraftTensor) -> bool:
        return tensor.name in self.known_weights or tensor in self.pure

    def call(self, node: tree.FunctionCall) -> Value:
        """The result of a function: a map by its record, any other function by its own."""
        name = node.function.replace(" ", "_")
        if node.subscript is not None and name not in self.subscripted:
            self.marked(node)
        if name in self.functions:
            return self.functions[name](self, node)
        if name in kinds.SPELLED:
            self.expect(node, 1)
            return self.map(kinds.SPELLED[name].name, self.tensor(node.arguments[0]), node.span)
        known = [*{**self.functions, **kinds.SPELLED}]
        raise FormulaError(f"unknown function '{node.function}'", node.span, nearest(name, known))

    def marked(self, node: tree.FunctionCall) -> None:
        """A subscript that the function does not read: a number of softmax is the last axis, all else is a mark."""
        assert node.subscript is not None
        axis = self.scalar(node.subscript) if node.function == "softmax" and node.arguments else None
        last = {-1, len(self.tensor(node.arguments[0]).dims) - 1} if axis is not None and axis.is_number else {axis}
        if axis not in last:
            raise FormulaError(f"{node.function} works along the last axis, not along {axis}", node.subscript.span,
                               "write Permute(S) in a row before, which brings the axis to the end")  # fmt: skip
        if axis is None or not axis.is_number:
            self.marks[f"the subscript of {node.function} is a mark: it changes nothing"] = None

    def expect(self, node: tree.FunctionCall, *counts: int) -> None:
        """Raises ``FormulaError`` unless a function has one of these numbers of arguments."""
        if len(node.arguments) not in counts:
            wanted = " or ".join(str(c) for c in counts)
            raise FormulaError(
                f"{node.function} takes {wanted} argument{'s' if counts != (1,) else ''}, not {len(node.arguments)}",
                node.span,
            )

    def result(self, node: tree.FunctionCall) -> DraftTensor:
        """The row's declared result, for functions whose result shape only the table says."""
        if self.target is None or self.formula is not node:
            raise FormulaError(f"{node.function} is inside another formula", node.span, "give it a row of its own")
        return self.target
