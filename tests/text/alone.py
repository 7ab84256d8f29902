"""One cell of a table read alone, with names that are known from elsewhere."""

from collections.abc import Iterable
from typing import Any

from api import (
    Cell,
    Identifier,
    Scope,
    Target,
    _atoms,
    _distinct,
    _items,
    _with_ranges,
    read_declarations,
    read_equation,
    tree_walk,
)


def equation(text: str, names: Iterable[str] = (), sizes: Iterable[str] = (), families: Iterable[str] = ()) -> Any:
    """The computation of a cell; ``Q_i`` of ``names`` is a member of a family where its index runs."""
    context, items, ranges = _items(Cell(text, "<text>", 1, text, 0))
    indices = frozenset(one.index for one in ranges)
    tensors: dict[str, set[str]] = {}
    for name in names:
        head, _, letter = name.rpartition("_")
        key, index = (head, letter) if head and letter in indices else (name, "")
        tensors.setdefault(key, set()).add(index)
    for name in families:
        tensors.setdefault(name, set()).update(indices or {"i"})
    counts = {node.key for one in ranges for node in tree_walk(one) if isinstance(node, Identifier)}
    context.scope = Scope(tensors, frozenset(sizes) | counts, indices, None)
    return read_equation(context, items, ranges, Target(None))


def declarations(text: str, sizes: Iterable[str] | None = None) -> tuple[Any, ...]:
    """The shapes that a cell declares; ``sizes`` are those that may stand in them, None for any."""
    cell = Cell(text, "<text>", 1, text, 0)
    known = frozenset(sizes) if sizes is not None else _distinct(_atoms(cell))
    context, items, ranges = _items(cell, Scope(sizes=known))
    return tuple(_with_ranges(one, ranges, {}, {}) for one in read_declarations(context, items))
