r"""Reads formulas: computations, declarations of shapes, sizes, answers, and the rows of a layer table.

Nothing here evaluates a formula. A name is a key in a tree, whatever Python or SymPy would make of it, and
every bound (length, nesting, parts, digits, exponents) is checked before any heavy work.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from symcomm.errors import FormulaError, Span, TableError
from symcomm.text.cells import CellReader, Target
from symcomm.text.reader import Scope
from symcomm.text.syntax import Branch
from symcomm.text.table import Cell, Table, as_layer_table, layer_columns, single
from symcomm.text.tree import Declaration, Equation, Name, Node, Range, bare, children

ANSWER_FUNCTIONS = frozenset({"sqrt", "min", "max", "ceil", "floor", "log"})
_NOTHING = {"", "-", "–", "—", "$-$", "none", "None"}


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


def parse_equation(
    cell: Cell | str,
    names: Iterable[str] = (),
    sizes: Iterable[str] = (),
    functions: frozenset[str] | None = None,
    families: Iterable[str] = (),
) -> Equation:
    r"""Read one computation; ``names`` and ``sizes`` are the keys that may stand in it.

    A name with an index that runs in the cell (``Q_i``, ``i = 1, \dots, n_h``) is known by its key in
    ``families`` or by ``Q_i`` in ``names``. With ``functions``, any other function is refused.

    >>> equation = parse_equation("$Q = xW^Q$", names={"x", "W^Q"})
    >>> [factor.key for factor in equation.formula.factors]
    ['x', 'W^Q']
    """
    cell = single(cell) if isinstance(cell, str) else cell
    scope = Scope(sizes=None, functions=functions)
    reader = CellReader(cell, scope)
    items, ranges = reader.ranges(reader.parse())
    indices = frozenset(one.index for one in ranges)
    for name in names:
        head, _, letter = name.rpartition("_")
        if head and letter in indices:
            scope.tensors.setdefault(head, set()).add(letter)
        else:
            scope.tensors.setdefault(name, set()).add("")
    for name in families:
        scope.tensors.setdefault(name, set()).update(indices or {"i"})
    scope.sizes, scope.indices = frozenset(sizes) | frozenset(_keys(ranges)), indices
    return reader.equation(items, tuple(ranges), Target(None))


def parse_declarations(cell: Cell | str, sizes: Iterable[str] | None = None) -> tuple[Declaration, ...]:
    r"""Read the shapes a cell declares; ``sizes`` are the sizes that may stand in them, None for any.

    >>> [d.name.key for d in parse_declarations(r"$x \in \mathbb{R}^{B \times D}, W^Q \in \mathbb{R}^{D \times D}$")]
    ['x', 'W^Q']
    >>> [len(d.sizes) for d in parse_declarations("x [B, L, D]")]
    [3]
    """
    cell = single(cell) if isinstance(cell, str) else cell
    known = frozenset(sizes) if sizes is not None else _distinct(_atoms(cell))
    reader = CellReader(cell, Scope(sizes=known))
    items, ranges = reader.ranges(reader.parse())
    reader.scope.indices = frozenset(one.index for one in ranges)
    return tuple(_with_ranges(one, ranges, {}) for one in reader.declarations(items))


def parse_size(text_or_cell: Cell | str, known: Iterable[str] | None = None) -> Node:
    """Read one size, such as ``4D`` or ``n_h H``; ``known`` are the names that may stand in it, None for any.

    >>> parse_size("4D", {"D"}).factors[1].key
    'D'
    """
    cell = single(text_or_cell) if isinstance(text_or_cell, str) else text_or_cell
    reader = CellReader(cell, Scope(sizes=None if known is None else frozenset(known), kind="size"))
    return reader.whole(reader.parse())


def parse_answer(text: str | Cell, known: Iterable[str]) -> Node:
    r"""Read a scalar formula over ``known`` names: what a person answers, ``24 N_layer D^2``.

    >>> answer = parse_answer(r"\frac{2(k-1)}{k} N", {"k", "N"})
    >>> answer.factors[1].key
    'N'
    """
    cell = single(text, "answer") if isinstance(text, str) else text
    scope = Scope(sizes=frozenset(known), functions=ANSWER_FUNCTIONS, kind="answer")
    reader = CellReader(cell, scope)
    return reader.whole(reader.parse())


def parse_layer(
    table: Table, known_sizes: Iterable[str] | None = None, functions: frozenset[str] | None = None
) -> tuple[LayerRow, ...]:
    r"""Read the rows of a layer table.

    A size is known by standing in a shape, unless ``known_sizes`` says which there are. What a row declares is
    known in the rows below it. The range of an index may stand in any cell of the row.

    >>> from symcomm.text.table import read_tables
    >>> text = "Computation\tInput\tOutput\n$y = xW$\tx [B, D], W [D, D]\ty [B, D]"
    >>> [row] = parse_layer(read_tables(text, "t.txt")[0])
    >>> row.equation.target.key, [one.name.key for one in row.inputs]
    ('y', ['x', 'W'])
    """
    return _Layer(as_layer_table(table), known_sizes, functions).rows()


class _Layer:
    def __init__(self, table: Table, known_sizes: Iterable[str] | None, functions: frozenset[str] | None) -> None:
        self.table, self.functions = table, functions
        self.given = frozenset(known_sizes) if known_sizes is not None else None
        self.columns = layer_columns(table.columns)
        self.tensors: dict[str, set[str]] = {}
        self.running: dict[str, Range] = {}  # key of a family -> the range its members were declared with
        self.sizes: frozenset[str] = frozenset()

    def rows(self) -> tuple[LayerRow, ...]:
        if not self.table.rows:
            raise TableError("this layer table has no rows", self.table.span, "write a row for each computation")
        cells = [{name: row[place] for name, place in self.columns.items()} for row in self.table.rows]
        self.sizes = self.given if self.given is not None else self.sizes_of(cells)
        return tuple(self.row(number, row) for number, row in enumerate(cells, start=1))

    def sizes_of(self, rows: list[dict[str, Cell]]) -> frozenset[str]:
        """Every size in a shape or range of the table; a word of known letters is their product."""
        found: set[str] = set()
        for row in rows:
            for column in ("Input", "Output"):
                if row[column].text not in _NOTHING:
                    found |= _atoms(row[column])
            found |= _range_sizes(row["Computation"])
        return _distinct(found)

    def scope(self, ranges: tuple[Range, ...]) -> Scope:
        indices = frozenset(one.index for one in ranges)
        return Scope(self.tensors, self.sizes, indices, self.functions)

    def row(self, number: int, cells: dict[str, Cell]) -> LayerRow:
        readers: dict[str, CellReader] = {}
        items = {}
        ranges: tuple[Range, ...] = ()
        for name in ("Computation", "Input", "Output"):
            cell = cells[name]
            if cell.text in _NOTHING and not (name == "Input" and cell.text):
                raise TableError(f"row {number} has no {name}", cell.span(), _MISSING[name])
            if cell.text in _NOTHING:
                continue  # a dash says that nothing is declared anew
            reader = CellReader(cell, self.scope(()))
            items[name], found = reader.ranges(reader.parse())
            readers[name] = reader
            ranges = _merged(ranges, found)
        declared: dict[str, tuple[Declaration, ...]] = {"Input": ()}
        for name in ("Input", "Output"):
            if name in readers:
                readers[name].scope = self.scope(ranges)
                declared[name] = self.declared(readers[name], items[name], ranges)
        for one in (*declared["Input"], *declared["Output"]):
            self.learn(one)
        reader = readers["Computation"]
        reader.scope = self.scope(ranges)
        target = Target([one.name for one in declared["Output"]])
        equation = reader.equation(items["Computation"], ranges, target)
        equation = replace(equation, ranges=self.all_ranges(equation, ranges, declared))
        return LayerRow(
            number, equation, declared["Input"], declared["Output"], tuple(target.notes), cells["Computation"].span()
        )

    def declared(self, reader: CellReader, items: list[Branch], ranges: tuple[Range, ...]) -> tuple[Declaration, ...]:
        found = reader.declarations(items)
        if not found:
            raise FormulaError("this cell declares no shape", reader.cell.span(), reader.expects())
        return tuple(_with_ranges(one, ranges, self.running) for one in found)

    def learn(self, one: Declaration) -> None:
        self.tensors.setdefault(one.name.key, set()).add(one.name.index)
        if one.name.index and one.ranges:
            self.running[one.name.key] = one.ranges[0]

    def all_ranges(
        self, equation: Equation, ranges: tuple[Range, ...], declared: dict[str, tuple[Declaration, ...]]
    ) -> tuple[Range, ...]:
        """The row's ranges, and those of indices that earlier rows gave a range."""
        found = list(ranges)
        names = [node for node in _walk(equation) if isinstance(node, Name)]
        names += [one.name for cell in declared.values() for one in cell]
        for name in names:
            if name.index and name.key in self.running and all(one.index != name.index for one in found):
                found.append(replace(self.running[name.key], index=name.index))
        return tuple(found)


_MISSING = {
    "Computation": "write the computation, such as $Q = xW^Q$",
    "Input": r"write the shapes of what goes in, such as $x \in \mathbb{R}^{B \times L \times D}$; or `-` for none new",
    "Output": r"write the shape of the result, such as $Q \in \mathbb{R}^{B \times L \times D}$",
}


def _walk(node: Node) -> Iterable[Node]:
    yield node
    for child in children(node):
        yield from _walk(child)


def _keys(nodes: Iterable[Node]) -> set[str]:
    return {one.key for node in nodes for one in _walk(node) if isinstance(one, Name)}


def _atoms(cell: Cell) -> set[str]:
    """The sizes a cell's shapes and ranges name."""
    reader = CellReader(cell, Scope(sizes=None))
    items, ranges = reader.ranges(reader.parse())
    reader.scope.indices = frozenset(one.index for one in ranges)
    reader.declarations(items)
    return reader.sizes_found


def _range_sizes(cell: Cell) -> set[str]:
    """The sizes in the ranges of a computation, whose names are not known yet."""
    if cell.text in _NOTHING:
        return set()
    reader = CellReader(cell, Scope(sizes=None))
    reader.ranges(reader.parse())
    return reader.sizes_found


def _distinct(sizes: set[str]) -> frozenset[str]:
    """The sizes without those that are letters of others side by side, as LaTeX writes a product."""
    return frozenset(size for size in sizes if len(size) == 1 or not (size.isalpha() and set(size) <= sizes))


def _merged(ranges: tuple[Range, ...], more: list[Range]) -> tuple[Range, ...]:
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


def _with_ranges(one: Declaration, ranges: Iterable[Range], running: dict[str, Range]) -> Declaration:
    """The declaration with the range of its own index."""
    index = one.name.index
    if not index:
        return one
    own = [other for other in ranges if other.index == index]
    if not own and one.name.key in running:
        own = [replace(running[one.name.key], index=index)]
    return replace(one, ranges=tuple(own))


__all__ = [
    "ANSWER_FUNCTIONS",
    "LayerRow",
    "parse_answer",
    "parse_declarations",
    "parse_equation",
    "parse_layer",
    "parse_size",
]
