r"""Ranges of indices in a cell: ``i = 1, \dots, n``, ``i \in \{1..n\}``, ``1 \le i \le n``."""

from __future__ import annotations

from fractions import Fraction

from lark import Token

from symcomm.core.text.context import Context
from symcomm.core.text.expressions import read_size
from symcomm.core.text.syntax import Branch, branches, integer_of, letter_of, only_atom, start_of, stop_of
from symcomm.core.text.tree import Node, Number, Range, Sum


def read_ranges(context: Context, items: list[Branch]) -> tuple[list[Branch], tuple[Range, ...]]:
    """The items of a cell that are no ranges, and the ranges."""
    kept: list[Branch] = []
    found: list[Range] = []
    number = 0
    while number < len(items):
        one, used = _range_at(context, items, number)
        if one is None:
            kept.append(items[number])
        else:
            found.append(one)
        number += used
    return kept, tuple(found)


def _range_at(context: Context, items: list[Branch], number: int) -> tuple[Range | None, int]:
    """The range that begins at an item, and how many items were looked at."""
    item = items[number]
    relations = [str(child) for child in item.children if isinstance(child, Token)] if item.data == "chain" else []
    sides = branches(item)
    if relations == ["="] and (index := letter_of(sides[0])) and integer_of(sides[1]) is not None:
        dots = number + 1
        while dots < len(items) and items[dots].data == "chain" and integer_of(items[dots]) is not None:
            dots += 1
        if dots < len(items) and items[dots].data == "dots":
            if dots + 1 == len(items):
                hint = rf"write ${index} = 1, \dots, n$"
                raise context.wrong(f"the last value of {index} is missing", items[dots], hint)
            return _range(context, index, sides[1], items[dots + 1], item), dots + 2 - number
    elif relations == ["in"] and (index := letter_of(sides[0])):
        only = only_atom(sides[1])
        inner = branches(branches(only)[0]) if only is not None and branches(only) else []
        if only is not None and only.data in ("set", "square"):
            dotted = [place for place, one in enumerate(inner) if one.data == "dots"]
            if dotted == [len(inner) - 2] and integer_of(inner[0]) is not None:
                return _range(context, index, inner[0], inner[-1], item), 1
    elif relations == ["<=", "<="] and (index := letter_of(sides[1])):
        return _range(context, index, sides[0], sides[2], item), 1
    return None, 1


def _range(context: Context, index: str, first: Branch, last: Branch, item: Branch) -> Range:
    """The range of an index from 1; one from 0 to n-1 is counted the same."""
    count = read_size(context, last)
    begin = integer_of(first)
    if begin == 0:
        count = _plus_one(count)
    elif begin != 1:
        hint = rf"write ${index} = 1, \dots, n$"
        raise context.error(f"the index {index} should begin at 1", start_of(item), stop_of(last), hint)
    return context.counted(Range(context.over(item, last), index, count))


def _plus_one(count: Node) -> Node:
    """``n`` for ``n - 1``: how many values run from 0."""
    if isinstance(count, Number):
        return Number(count.span, count.value + 1)
    if isinstance(count, Sum) and count.signs[-1] == -1:
        last, terms, signs = count.terms[-1], count.terms[:-1], count.signs[:-1]
        if isinstance(last, Number) and last.value == 1:
            return terms[0] if len(terms) == 1 and signs[0] > 0 else Sum(count.span, terms, signs)
    return Sum(count.span, (count, Number(count.span, Fraction(1))), (1, 1))
