"""The state of reading one cell: the names around it, its depth and size, and its errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import field
from functools import cached_property
from typing import Literal, TypeVar

from symcomm.core.errors import FormulaError, Span
from symcomm.core.records import dataclass, replace
from symcomm.core.text.spelling import Spelling
from symcomm.core.text.syntax import Part, is_letter, start_of, stop_of
from symcomm.core.text.table import Cell
from symcomm.core.text.tokens import DEPTH_LIMIT
from symcomm.core.text.tree import (
    FunctionCall,
    Hadamard,
    Identifier,
    Multiplication,
    Node,
    Radical,
    Sum,
    Transpose,
    children,
)

NODE_LIMIT = 500
SHAPE_HINT = r"write $x \in \mathbb{R}^{B \times L \times D}$, or x [B, L, D]"

_AnyNode = TypeVar("_AnyNode", bound=Node)
# Shapes that were read before, as written and with the indices around them: the sizes, and how many parts they have.
ReadShapes = dict[tuple[str, frozenset[str]], tuple[tuple[Node, ...], int]]


@dataclass(frozen=True)
class Scope:
    """The names that a formula may use."""

    tensors: dict[str, set[str]] = field(default_factory=dict)  # by key: the indices it was declared with, "" for none
    sizes: frozenset[str] | None = frozenset()  # None: any name may be a size
    indices: frozenset[str] = frozenset()  # those that run in this row
    functions: frozenset[str] | None = None
    kind: Literal["tensor", "size", "answer"] = "tensor"  # what the formula computes
    torn: frozenset[str] = frozenset()  # letters that ran to several ends in the rows above

    @cached_property
    def among_sizes(self) -> Scope:
        """The scope of a size that is in it."""
        return replace(self, tensors={}, kind="size" if self.kind == "tensor" else self.kind)

    def is_family(self, key: str) -> bool:
        """Whether members of a family of this key were declared."""
        return any(self.tensors.get(key, ()))

    def is_size(self, key: str) -> bool:
        """Whether this key is a size by declaration, not only because any name may be one."""
        return self.sizes is not None and key in self.sizes

    def is_tensor(self, node: Node) -> bool:
        """Whether a name in the node was declared as a tensor."""
        if isinstance(node, Identifier):
            return node.key in self.tensors
        passing = isinstance(node, (Transpose, Radical, Multiplication, Hadamard, Sum, FunctionCall))
        return passing and any(self.is_tensor(child) for child in children(node))

    def transposes(self, base: Node) -> bool:
        """Whether ``^T`` transposes this base; it is a power where T is a size and the base no tensor."""
        return self.is_tensor(base) or not (self.is_size("T") or (self.sizes is None and self.kind == "answer"))

    def find(self, name: Spelling) -> tuple[str, str] | None:
        """The key and index a spelling stands for, if it is known as a whole or as a member of a family."""
        if "" in self.tensors.get(name.key, ()):
            return name.key, ""
        if name.member and self.is_family(name.family) and (name.member in self.indices or is_letter(name.member)):
            return name.family, name.member
        return (name.key, "") if self.is_size(name.key) else None

    def known(self) -> list[str]:
        """Every known name as a person writes it."""
        names = {
            f"{key}_{index}" if index else key for key, indices in self.tensors.items() for index in sorted(indices)
        }
        return sorted(names | (self.sizes or frozenset()))


class Context:
    """The cell that is read, the scope it is in, and how much of its limits is used up.

    ``sizes_found`` collects the sizes that stand in the cell where any name may be one; ``shapes`` keeps the shapes of
    the table's other cells, so that each is read once.
    """

    def __init__(self, cell: Cell, scope: Scope) -> None:
        self.cell, self.scope = cell, scope
        self.sizes_found: set[str] = set()
        self.shapes: ReadShapes | None = None
        self.parts = self._depth = 0

    # -- places and errors -----------------------------------------------------------------------------------------

    def span(self, start: int, stop: int) -> Span:
        """Columns of the cell as a span of its line."""
        return self.cell.span(start, stop)

    def over(self, *parts: Part) -> Span:
        """From the first part's begin to the last one's end."""
        return self.span(start_of(parts[0]), stop_of(parts[-1]))

    def source(self, part: Part) -> str:
        """The text of a part as it was written."""
        return self.cell.text[start_of(part) : stop_of(part)]

    def error(self, message: str, start: int, stop: int, hint: str = "") -> FormulaError:
        """An error at columns of the cell."""
        return FormulaError(message, self.span(start, stop), hint)

    def wrong(self, message: str, part: Part, hint: str = "") -> FormulaError:
        """An error at a part of the formula."""
        return FormulaError(message, self.over(part), hint)

    def expects(self) -> str:
        """A hint at the right contents of this cell."""
        column = self.cell.column.casefold().removesuffix("s")
        if column in ("input", "output"):
            return SHAPE_HINT
        if self.scope.kind == "tensor":
            return "write a computation such as $Q = xW^Q$"
        return "write a formula such as 24 N_layer D^2"

    # -- limits ----------------------------------------------------------------------------------------------------

    def counted(self, node: _AnyNode) -> _AnyNode:
        """The node, once there is room for it."""
        self.count(1)
        return node

    def count(self, parts: int) -> None:
        """Takes room for some parts."""
        self.parts += parts
        if self.parts > NODE_LIMIT:
            raise FormulaError(
                f"this formula has more than {NODE_LIMIT} parts", self.cell.span(), "split it into several rows"
            )

    @contextmanager
    def deeper(self, part: Part, levels: int = 1) -> Iterator[None]:
        """While a part within another is read."""
        self._depth += levels
        if self._depth > DEPTH_LIMIT:
            raise self.deep(part)
        yield
        self._depth -= levels

    def deep(self, part: Part) -> FormulaError:
        """A formula within a formula within a formula."""
        hint = "name a part of it in a row of its own"
        return self.wrong(f"this formula is nested more than {DEPTH_LIMIT} deep", part, hint)

    @contextmanager
    def within(self, scope: Scope) -> Iterator[None]:
        """While a part is read in a scope of its own."""
        outer, self.scope = self.scope, scope
        try:
            yield
        finally:
            self.scope = outer

    def among_sizes(self) -> AbstractContextManager[None]:
        """While a size in a script, a range or a shape is read: no tensor can stand there."""
        return self.within(self.scope.among_sizes)
