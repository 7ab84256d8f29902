"""Reads systems of formulas, ``y_1 = (x_1 + x_2)^2; y_2 = ln(x_1)``, and the point at which they are worked out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from itertools import pairwise

from symcomm.core.errors import FormulaError, Span, ValuesError, nearest
from symcomm.core.records import dataclass
from symcomm.core.text.context import Context, Scope
from symcomm.core.text.expressions import read_sum
from symcomm.core.text.parsing import parse
from symcomm.core.text.spelling import plain_name
from symcomm.core.text.syntax import Branch, branches, term_of
from symcomm.core.text.table import Cell, PlacedText
from symcomm.core.text.tree import Identifier, Node, walk

FORMULA_LIMIT = 60  # formulas of one system
CONSTANTS = ("pi", "e")


@dataclass(frozen=True)
class Formula:
    """One formula of a system: the name on its left, the tree on its right, and where it is."""

    name: str
    tree: Node
    span: Span

    @property
    def reads(self) -> frozenset[str]:
        """The names on its right side."""
        return frozenset(plain_name(node.key) for node in walk(self.tree) if isinstance(node, Identifier))


def in_order(name: str) -> tuple[str, int]:
    """By what names are sorted: x_2 comes before x_10."""
    base, _, number = name.partition("_")
    return (base, int(number)) if number.isdecimal() else (name, 0)


def read_system(text: str, known: Iterable[str], functions: frozenset[str]) -> tuple[Formula, ...]:
    """The formulas of a text, with semicolons, commas or line ends between them; ``known`` are the inputs.

    Raises ``FormulaError`` for a name that is neither an input nor defined, a name defined twice or by itself.

    >>> [f.name for f in read_system("a = x1^2; y = sin(a)", ["x1"], frozenset({"sin"}))]
    ['a', 'y']
    """
    cells = [cell for cell in PlacedText.cells_of(text) if cell.text.strip("$ ")]
    if len(cells) > FORMULA_LIMIT:
        raise FormulaError(f"more than {FORMULA_LIMIT} formulas", cells[FORMULA_LIMIT].span(), "write fewer")
    pairs = [pair for cell in cells for pair in _sides(cell, functions)]
    if not pairs:
        raise FormulaError("there is no formula", hint="write y_1 = (x_1 + x_2)^2")
    inputs = [plain_name(name) for name in known]
    first: dict[str, Span] = {}
    for name, _, span, _, _ in pairs:
        if name in inputs:
            raise FormulaError(f"{name} is an input with a value and has a formula as well", span, "take one away")
        if name in first:
            raise FormulaError(f"{name} has two formulas", span, "give one of them another name")
        first[name] = span
    names = {*inputs, *first}
    every = frozenset({*names, *(re.sub(r"_(\d+)$", r"\1", n) for n in names), *CONSTANTS})
    called = {name for name, _, _, _, of in pairs if of}
    found = []
    for name, right, span, cell, of in pairs:
        if strange := [one for one in of if one not in names]:
            hint = f"give it a value in the point, or a formula; {nearest(strange[0], sorted(names))}"
            raise FormulaError(f"{name} depends on '{strange[0]}', which is not known", span, hint)
        context = Context(cell, Scope(sizes=every, functions=functions, kind="answer"))
        parse(context)
        _refuse_calls(context, right, called)
        try:
            found.append(Formula(name, read_sum(context, right), span))
        except FormulaError as error:
            if error.message.startswith("unknown name"):
                error.hint = f"give it a value in the point, or a formula; {nearest('', sorted(names))}"
            raise
    return tuple(found)


def _sides(cell: Cell, functions: frozenset[str]) -> list[tuple[str, Branch, Span, Cell, tuple[str, ...]]]:
    """The name, the tree of the right side, the place and the cell of each formula in a cell, and what it is said to
    depend on.
    """
    context = Context(cell, Scope(sizes=None, functions=functions, kind="answer"))
    found = []
    for item in parse(context):
        parts = item.children
        if item.data == "dots" or len(parts) != 3 or context.source(parts[1]).strip() != "=":
            raise context.wrong("a formula has a name, an equals sign and a right side", item, "write y_1 = x_1 x_2")
        head, of = _name_of(context, branches(item)[0])
        left = read_sum(context, head)
        if not isinstance(left, Identifier) or plain_name(left.key) in CONSTANTS:
            raise context.wrong("the left side of a formula is a name", branches(item)[0], "write y_1 = x_1 x_2")
        found.append((plain_name(left.key), branches(item)[1], context.over(branches(item)[0]), cell, of))
    return found


def _name_of(context: Context, left: Branch) -> tuple[Branch, tuple[str, ...]]:
    """The tree of the name of a formula, ``y`` or ``f(x_1, x_2)``, and the names that stand in its parentheses."""
    parts = [part for part in term_of(left) or () if isinstance(part, Branch)]
    if len(parts) == 2 and branches(parts[1])[0].data == "paren":
        of = [one.strip("()$ ") for one in context.source(parts[1]).split(",")]
        if all(re.fullmatch(r"[A-Za-z][\w{}]*", one) for one in of):
            return Branch("sum", [Branch("term", [parts[0]])]), tuple(map(plain_name, of))
    return left, ()


def _refuse_calls(context: Context, right: Branch, called: set[str]) -> None:
    """Where ``g(x) = x^2`` is a formula, ``g(x)`` elsewhere is no product of g and x."""
    for term in right.of("term"):
        parts = branches(term)
        for one, following in pairwise(parts):
            if plain_name(context.source(one).strip("$ ")) in called and branches(following)[0].data == "paren":
                name = context.source(one)
                raise FormulaError(
                    f"{name} has a formula of its own, which is not called with other values",
                    context.over(one, following), f"write {name} alone for its value",
                )  # fmt: skip


def read_point(said: str | Mapping[str, object]) -> dict[str, Cell | Fraction]:
    """The values of a point by name: ``x_1 = 2, x_2 = ln(3)``; a mapping of names to numbers is one as well.

    >>> {name: cell.text for name, cell in read_point("x1 = 2, x_2 = ln 3").items()}
    {'x_1': '2', 'x_2': 'ln 3'}
    """
    if not isinstance(said, str):
        return {plain_name(name): _number(name, value) for name, value in said.items()}
    found: dict[str, Cell | Fraction] = {}
    for cell in PlacedText.cells_of(said):
        for part in re.finditer(r"(?:[^,()]|\([^()]*\))+", cell.text):
            name, equals, value = part[0].partition("=")
            where = cell.span(part.start(), part.end())
            if not equals or not re.fullmatch(r"\s*\$?[A-Za-z][\w{}\\]*\s*", name) or not value.strip("$ "):
                raise FormulaError("a point gives each input a value", where, "write x_1 = 2, x_2 = 4")
            key = plain_name(name.replace("$", ""))
            if key in found:
                raise FormulaError(f"{key} has two values", where, "give it one")
            start = part.start() + len(name) + 1
            offset = start + len(value) - len(value.lstrip())
            inner = value.strip().rstrip("$").strip()
            found[key] = Cell(inner, cell.file, cell.line, cell.line_text, cell.start + offset)
    return found


def _number(name: str, value: object) -> Cell | Fraction:
    if isinstance(value, str):
        return Cell(value, "<point>", 1, value, 0)
    if isinstance(value, bool) or not isinstance(value, (int, Fraction)):
        raise ValuesError(f"{name} is {value!r}, which is not exact", hint='write it as text: "0.5" or "ln(3)"')
    return Fraction(value)
