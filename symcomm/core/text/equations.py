"""The one computation of a row: both sides of its `=`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from lark import Token

from symcomm.core.errors import FormulaError, Span
from symcomm.core.text.context import Context
from symcomm.core.text.declarations import new_name
from symcomm.core.text.expressions import read_family, read_sum
from symcomm.core.text.syntax import Branch, branches, cut_short, is_letter, only_atom, start_of, stop_of
from symcomm.core.text.tree import Equation, Family, Identifier, Node, Range

_EQUATION_HINT = "write the result, `=`, and what it is computed from: $Q = xW^Q$"


def computations(items: list[Branch]) -> list[list[Branch]]:
    """The items of each computation of a cell, which all but the last one end with their `=`."""
    ends = [place + 1 for place, item in enumerate(items) if any(str(child) == "=" for child in item.children)]
    return [items[start:stop] for start, stop in pairwise([0, *ends[:-1], len(items)])]


def read_equation(context: Context, items: list[Branch], ranges: tuple[Range, ...], target: Target) -> Equation:
    """The cell's one computation."""
    place = next((number for number, item in enumerate(items) if any(str(one) == "=" for one in item.children)), None)
    if place is None:
        raise _no_equation(context, items)
    item = items[place]
    if len(item.children) > 3:
        hint = "write one computation in a row"
        raise context.wrong("this computation has more than one relation", item.children[3], hint)
    if place + 1 < len(items):
        hint = "write a row for each of them"
        raise context.wrong("one computation is wanted in a row, not a list", items[place + 1], hint)
    left, right = branches(item)
    result = target.read(context, [*items[:place], left])
    return Equation(context.over(items[0], item), result, read_sum(context, right), ranges)


def _no_equation(context: Context, items: list[Branch]) -> FormulaError:
    """What stands in the cell instead of a computation."""
    other = next((child for item in items for child in item.children if isinstance(child, Token)), None)
    if other is not None and other.type == "RELATION":
        return context.wrong(
            f"`{context.source(other)}` stands where the computation's `=` belongs",
            other,
            "write a computation such as $Q = xW^Q$; shapes stand in the columns Input and Output",
        )
    start, stop = (start_of(items[0]), stop_of(items[-1])) if items else (0, len(context.cell.text))
    return context.error("this computation has no `=`", start, stop, _EQUATION_HINT)


class Target:
    """How the left side of an equation is read: against the names its row puts out.

    ``notes`` say which name was read as another; without ``outputs`` any name may stand there. ``hint`` is for a name
    that they lack.
    """

    def __init__(self, outputs: Sequence[Identifier] | None, hint: str = "") -> None:
        self.outputs, self.hint = outputs, hint
        self.notes: list[str] = []

    def read(self, context: Context, parts: list[Branch]) -> Node:
        """The name or family that is computed."""
        items = parts
        only = only_atom(parts[0]) if len(parts) == 1 else None
        if only is not None and only.data in ("square", "paren", "set", "braces") and branches(only):
            items = branches(branches(only)[0])
        span = context.over(*parts)
        if cut_short(items):
            return self._family(context, items, span)
        if len(items) > 1:
            raise FormulaError(
                "a row computes one result, not several",
                span,
                r"write a row for each of them, or a family [Q_1, \dots, Q_n]",
            )
        name = new_name(context, items[0], "left of `=`", _EQUATION_HINT)
        return name if self.outputs is None else self._output(name, self.outputs)

    def _family(self, context: Context, items: list[Branch], span: Span) -> Family:
        with context.within(replace(context.scope, tensors={})):  # the target need not be known before
            family = read_family(context, items, span)
        if self.outputs is None:
            return family
        name = family.name
        families = {output.key for output in self.outputs if output.index}
        if name.key in families:
            return family
        near = [key for key in families if key.casefold() == name.key.casefold()]
        if len(near) == 1:
            self._note(name.key, near[0])
            return Family(family.span, Identifier(name.span, near[0], name.latex), family.count)
        raise self._missing(f"the family {name.key}", span)

    def _output(self, name: Identifier, outputs: Sequence[Identifier]) -> Identifier:
        """The name as the Output cell declares it: plain, or a member of a family."""
        written = [(name.key, name.index)]
        head, _, letter = name.key.rpartition("_")
        if not name.index and head:
            written.append((head, letter))
        for key, index in written:
            for output in outputs:
                if output.key == key and (output.index == index or (index and output.index and is_letter(index))):
                    return Identifier(name.span, key, name.latex, index)
        for key, index in written:
            near = [
                one.key for one in outputs if one.key.casefold() == key.casefold() and bool(one.index) == bool(index)
            ]
            if len(near) == 1:
                self._note(key, near[0])
                return Identifier(name.span, near[0], name.latex, index)
        raise self._missing(f"'{_shown(name)}'", name.span)

    def _note(self, written: str, declared: str) -> None:
        self.notes.append(f"'{written}' is read as '{declared}', which the Output cell declares")

    def _missing(self, what: str, span: Span) -> FormulaError:
        *others, last = [f"'{_shown(name)}'" for name in self.outputs or ()] or ["no result"]
        declares = f"{', '.join(others)} and {last}" if others else last
        return FormulaError(
            f"this row computes {what}, but its Output cell declares {declares}", span, self.hint
        )


def _shown(name: Identifier) -> str:
    return f"{name.key}_{name.index}" if name.index else name.key
