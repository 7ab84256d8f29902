r"""Reads formulas: computations, declarations of shapes, sizes, answers, and the rows of a layer table.

Nothing here evaluates a formula. A name is a key in a tree, whatever Python or SymPy would make of it, and
every bound (length, nesting, parts, digits, exponents) is checked before any heavy work.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from fractions import Fraction

from lark import Token

from symcomm.core.errors import FormulaError, Span, TableError
from symcomm.core.form import Form
from symcomm.core.records import dataclass, replace
from symcomm.core.text.calls import COMMON_FUNCTIONS
from symcomm.core.text.context import Context, ReadShapes, Scope
from symcomm.core.text.declarations import read_declarations
from symcomm.core.text.equations import Target, computations, read_equation
from symcomm.core.text.expressions import read_size, read_whole
from symcomm.core.text.parsing import forget, parse
from symcomm.core.text.scripts import lone_name
from symcomm.core.text.syntax import Branch, branches, integer_of, letter_of, only_atom, quotients, start_of, stop_of
from symcomm.core.text.table import Cell, Table, as_layer_table, cut, layer_places, single
from symcomm.core.text.tree import Declaration, Equation, Identifier, Node, Number, Range, Sum, bare, size_form, walk
from symcomm.core.text.vocabulary import GREEK

ANSWER_FUNCTIONS = frozenset({"sqrt", "min", "max", "ceil", "floor", "log"})
# Words before a computation, which name it; a formula has none of what they lack.
_LABEL = re.compile(r"(?:[*_]*[^\W\d_][^=:;^$\\|()\[\]{}]{0,60}:[*_]*\s+)+(?=[^=]*=)")
_NOTHING = {"", "-", "--", "---", "–", "—", "$-$", "/", "n/a", "N/A", "none", "None", "0"}


@dataclass(frozen=True)
class LayerRow:
    """One row of a layer table: the computation, and the shapes of what goes in and out.

    ``number`` counts rows from 1; ``notes`` say how something was read that was not written exactly so.
    """

    number: int
    equation: Equation
    inputs: tuple[Declaration, ...]
    outputs: tuple[Declaration, ...]
    notes: tuple[str, ...]
    span: Span


def parse_size(text_or_cell: Cell | str, known: Iterable[str] | None = None) -> Node:
    """Read one size, such as ``4D`` or ``n_h H``; ``known`` are the names that may stand in it, None for any.

    >>> parse_size("4D", {"D"}).factors[1].key
    'D'
    """
    cell = single(text_or_cell) if isinstance(text_or_cell, str) else text_or_cell
    context = Context(cell, Scope(sizes=None if known is None else frozenset(known), kind="size"))
    return read_whole(context, parse(context))


def parse_answer(
    text: str | Cell,
    known: Iterable[str] | None,
    also: Iterable[str] = (),
    functions: frozenset[str] = ANSWER_FUNCTIONS,
) -> Node:
    r"""Read a scalar formula over ``known`` names and ``functions``: what a person answers, ``24 N_layer D^2``.

    With None any name may stand in it; ``also`` are names that it is known to be about, so that ``nw`` is a product
    where both are. A ``\log`` without a base is the natural logarithm.

    >>> answer = parse_answer(r"\frac{2(k-1)}{k} N", {"k", "N"})
    >>> answer.factors[1].key
    'N'
    >>> [factor.key for factor in parse_answer("nw", None, {"n", "w"}).factors]
    ['n', 'w']
    """
    cell = single(text, "answer") if isinstance(text, str) else text
    names = frozenset(known) if known is not None else _names(cell, frozenset(also))
    context = Context(cell, Scope(sizes=names, functions=functions, kind="answer"))
    return read_whole(context, parse(context))


def read_form(text: str | Cell, known: Iterable[str] | None, also: Iterable[str] = ()) -> Form:
    """The form of a formula, read as ``parse_answer`` reads it.

    >>> read_form("k", {"k"}).name
    'k'
    """
    return size_form(parse_answer(text, known, also))


def _names(cell: Cell, also: frozenset[str]) -> frozenset[str]:
    """The names of a formula in which any may stand; a word that known names make up is their product."""
    context = Context(cell, Scope(sizes=None, functions=ANSWER_FUNCTIONS, kind="answer"))
    read_whole(context, parse(context, also))
    names = _distinct(context.sizes_found | also)
    return also | {name for name in names - COMMON_FUNCTIONS if not _joined(name, also)}


def _joined(word: str, names: Iterable[str]) -> bool:
    """Whether a word is names side by side."""
    ends = {0}
    for place in range(len(word)):
        if place in ends:
            ends |= {place + len(name) for name in names if word.startswith(name, place)}
    return len(word) in ends


def parse_layer(table: Table, scalars: Iterable[str] = ()) -> tuple[LayerRow, ...]:
    r"""Read the rows of a layer table.

    ``scalars`` are tensors of one number, where no row declares a shape for them.

    A name in a shape is a size. The rows below know what a row declares. The range of an index may stand in any cell of
    the row.

    >>> from symcomm.core.text.finder import read_tables
    >>> text = "Computation\tInput\tOutput\n$y = xW$\tx [B, D], W [D, D]\ty [B, D]"
    >>> [row] = parse_layer(read_tables(text, "t.txt")[0])
    >>> row.equation.target.key, [one.name.key for one in row.inputs]
    ('y', ['x', 'W'])
    """
    return _Layer(as_layer_table(table), scalars).rows()


class _Layer:
    def __init__(self, table: Table, scalars: Iterable[str]) -> None:
        self.table, self.scalars = table, frozenset(scalars)
        self.columns = layer_places(table)
        self.tensors: dict[str, set[str]] = {}
        self.running: dict[str, Range] = {}  # key of a family -> the range its members were declared with
        self.letters: dict[str, Range] = {}  # index -> the one range that it had in the rows above
        self.torn: set[str] = set()  # indices that had several
        self.sizes: frozenset[str] = frozenset()
        self.numbers: frozenset[str] = frozenset()  # what stands in fractions and has no shape
        self.shapes: ReadShapes = {}  # of the rows above

    def rows(self) -> tuple[LayerRow, ...]:
        try:
            return self.read()
        finally:
            forget()

    def read(self) -> tuple[LayerRow, ...]:
        if not self.table.rows:
            raise TableError("this layer table has no rows", self.table.span, "write a row for each computation")
        cells = [{name: row[place] for name, place in self.columns.items()} for row in self.table.rows]
        for row in cells:
            if label := _LABEL.match((cell := row["Computation"]).text):
                row["Computation"] = cut(cell, label.end(), len(cell.text))
        self.sizes, declared = self.sizes_of(cells)
        self.tensors = {name: {""} for name in self.scalars - declared - self.sizes}
        near = frozenset(name.lower() for name in declared | self.scalars | self.sizes)
        self.numbers = frozenset(name for row in cells for name in self.numbers_of(row["Computation"], near))
        self.sizes |= self.numbers
        return tuple(one for number, row in enumerate(cells, start=1) for one in self.row(number, row))

    def sizes_of(self, rows: list[dict[str, Cell]]) -> tuple[frozenset[str], frozenset[str]]:
        """Every size in a shape or range of the table; a word of known letters is their product. And every tensor."""
        found: set[str] = set()
        declared: set[str] = set()
        shapes: ReadShapes = {}
        for row in rows:
            for column in ("Input", "Weights", "Output"):
                if column in row and row[column].text not in _NOTHING:
                    found |= _atoms(row[column], shapes, declared)
            found |= _items(cell)[0].sizes_found if (cell := row["Computation"]).text not in _NOTHING else set()
        return _distinct(found), frozenset(declared)

    def numbers_of(self, cell: Cell, near: frozenset[str]) -> set[str]:
        """The names of a computation that can only be numbers, as nothing is divided by a tensor. Small Greek letters
        alone above numbers are such, too. A name that differs from a known one in case alone is neither: ``near`` are
        these in small letters.
        """
        if cell.text in _NOTHING:
            return set()
        context, items, _ = _items(cell)
        found: set[str] = set()
        for top, bottom in (pair for item in items for pair in quotients(item)):
            found |= {name for name in [lone_name(context, bottom)] if name and name.lower() not in near}
            name = lone_name(context, top)
            words = {str(token) for token in bottom.tokens() if token.type in ("WORD", "TEXT")}
            if name in GREEK and name.islower() and name not in near and words <= self.sizes | found:
                found.add(name)
        return found

    def row(self, number: int, cells: dict[str, Cell]) -> Iterator[LayerRow]:
        contexts: dict[str, Context] = {}
        items: dict[str, list[Branch]] = {}
        ranges: tuple[Range, ...] = ()
        for name, cell in cells.items():
            if cell.text in _NOTHING and name != "Weights" and not (name == "Input" and cell.text):
                raise TableError(f"row {number} has no {name}", cell.span(), _MISSING[name])
            if cell.text in _NOTHING:
                continue  # a dash says that nothing is declared anew
            contexts[name], items[name], found = _items(cell, Scope(self.tensors, self.sizes))
            ranges = _merged(ranges, found)
        indices = _indices(ranges) | self.letters.keys()  # what runs in a row above runs here, too
        scope = Scope(self.tensors, self.sizes, frozenset(indices), torn=frozenset(self.torn))
        for context in contexts.values():
            context.scope, context.shapes = scope, self.shapes  # a range may stand in another cell of the row
        given, outputs = (
            tuple(one for name in names if name in contexts
                  for one in self.declared(contexts[name], items[name], ranges))
            for names in (("Input", "Weights"), ("Output",))
        )  # fmt: skip
        for one in (*given, *outputs):
            self.learn(one)
        written = self.table.rows[number - 1][self.columns["Computation"]]
        label = written.text.removesuffix(cells["Computation"].text).strip(" :*_")
        headings = self.table.headings if number == 1 else ()
        declares = [one.name for one in outputs]
        several = computations(items["Computation"])
        for part in several:
            target = Target(declares, _SAME_NAME if len(several) == 1 else _SHAPE_TOO)
            equation = read_equation(contexts["Computation"], part, ranges, target)
            computed = tuple(one for one in outputs if one.name.key in _keys([equation.target]))
            if (every := self.all_ranges(equation, ranges, (*given, *computed))) != equation.ranges:
                equation = replace(equation, ranges=every)
            numbers = sorted(self.numbers & _keys([equation])) if self.numbers else []
            notes = [f"{key} is read as a number, for it has no shape" for key in numbers]
            if part is several[0]:
                notes += [f"'{heading}' is read as a heading" for heading in headings]
                notes += [f"'{label}' is read as the name of row {number}"] if label else []
            span = cells["Computation"].span() if len(several) == 1 else equation.span
            yield LayerRow(number, equation, given, computed, (*target.notes, *notes), span)
            given, outputs = (), tuple(one for one in outputs if one not in computed)
        if outputs:
            hint = "write its computation beside it, too, or its shape in the row that computes it"
            raise FormulaError(f"this row does not compute '{outputs[0].name.key}'", outputs[0].span, hint)

    def declared(self, context: Context, items: list[Branch], ranges: tuple[Range, ...]) -> tuple[Declaration, ...]:
        found = read_declarations(context, items)
        if not found and not items:
            raise FormulaError("this cell declares no shape", context.cell.span(), context.expects())
        return tuple(_with_ranges(one, ranges, self.running, self.letters) for one in found)

    def learn(self, one: Declaration) -> None:
        self.tensors.setdefault(one.name.key, set()).add(one.name.index)
        if one.name.index and one.ranges:
            own = self.running[one.name.key] = one.ranges[0]
            before = self.letters.setdefault(own.index, own)
            if own.index in self.torn or bare(before.count) != bare(own.count):
                self.torn.add(own.index)
                del self.letters[own.index]

    def all_ranges(
        self, equation: Equation, ranges: tuple[Range, ...], declared: tuple[Declaration, ...]
    ) -> tuple[Range, ...]:
        """The row's ranges, and those of indices that earlier rows gave a range."""
        if not (self.running or self.letters):
            return ranges
        found = list(ranges)
        names = [node for node in walk(equation) if isinstance(node, Identifier)]
        names += [one.name for one in declared]
        for name in names:
            known = self.running.get(name.key) or self.letters.get(name.index)
            if name.index and known is not None and all(one.index != name.index for one in found):
                found.append(replace(known, index=name.index))
        return tuple(found)


_SAME_NAME, _SHAPE_TOO = "give both the same name", "declare its shape there, too, or write it into the next formula"
_MISSING = {
    "Computation": "write the computation, such as $Q = xW^Q$",
    "Input": r"write the shapes of what goes in, such as $x \in \mathbb{R}^{B \times L \times D}$; or `-` for none new",
    "Output": r"write the shape of the result, such as $Q \in \mathbb{R}^{B \times L \times D}$",
}


def _keys(nodes: Iterable[Node]) -> set[str]:
    return {one.key for node in nodes for one in walk(node) if isinstance(one, Identifier)}


def _indices(ranges: Iterable[Range]) -> frozenset[str]:
    return frozenset(one.index for one in ranges)


_OPEN = Scope(sizes=None)  # any name may be a size, and nothing else is known


def _items(cell: Cell, scope: Scope = _OPEN) -> tuple[Context, list[Branch], tuple[Range, ...]]:
    """The items of a cell and its ranges, whose indices run in the context."""
    context = Context(cell, scope)
    items, ranges = read_ranges(context, parse(context))
    context.scope = replace(scope, indices=_indices(ranges)) if ranges else scope
    return context, items, ranges


def _atoms(cell: Cell, shapes: ReadShapes | None = None, declared: set[str] | None = None) -> set[str]:
    """The sizes a cell's shapes and ranges name; those of ``shapes`` are known already, and more are added there.

    The names of its tensors are added to ``declared``.
    """
    context, items, _ = _items(cell)
    context.shapes = shapes
    found = read_declarations(context, items)
    if declared is not None:
        declared |= {one.name.key for one in found}
    return context.sizes_found


def _distinct(sizes: set[str]) -> frozenset[str]:
    """The sizes without those that are letters of others side by side, as LaTeX writes a product."""
    return frozenset(size for size in sizes if len(size) == 1 or not (size.isalpha() and set(size) <= sizes))


def _merged(ranges: tuple[Range, ...], more: tuple[Range, ...]) -> tuple[Range, ...]:
    found = list(ranges)
    for one in more:
        same = [other for other in found if other.index == one.index]
        if not same:
            found.append(one)
        elif bare(same[0].count) != bare(one.count):
            raise FormulaError(
                f"the index {one.index} runs to two different ends in this row: "
                f"{same[0].count.span.word} and {one.count.span.word}",
                one.span,
                "give both the same end, or use another index",
            )
    return tuple(found)


def _with_ranges(
    one: Declaration, ranges: Iterable[Range], running: dict[str, Range], letters: dict[str, Range]
) -> Declaration:
    """The declaration with the range of its own index."""
    index = one.name.index
    if not index:
        return one
    own = [other for other in ranges if other.index == index]
    known = running.get(one.name.key) or letters.get(index)
    if not own and known is not None:
        own = [replace(known, index=index)]
    return replace(one, ranges=tuple(own))


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
