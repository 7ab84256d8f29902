"""The syntax tree of a table cell: what a row computes, and the shapes it declares."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from fractions import Fraction
from types import MappingProxyType

from symcomm.core import form as forms
from symcomm.core.errors import FormulaError, Span
from symcomm.core.form import Form
from symcomm.core.records import dataclass


@dataclass(frozen=True)
class Node:
    """A piece of a formula; ``span`` is where it is."""

    span: Span


@dataclass(frozen=True)
class Number(Node):
    """An exact number: ``4``, ``0.5`` (read as 1/2)."""

    value: Fraction


@dataclass(frozen=True)
class Identifier(Node):
    r"""A symbol or tensor: ``W^Q``, ``\text{Out}``, ``A'``, ``N_{layer}``, ``Q_i``.

    ``key`` is the canonical plain spelling, the same for LaTeX and plain text: ``W^Q``, ``Out``, ``A'``,
    ``N_layer``, ``alpha``, ``d_ff``, ``W^1``, ``W_up^Q``. ``index`` is the family index where the last subscript
    is one (``Q_i`` with ``i = 1, \dots, n_h`` has key ``Q`` and index ``i``).
    ``latex`` is how the author wrote it.
    """

    key: str
    latex: str
    index: str = ""


@dataclass(frozen=True)
class Multiplication(Node):
    r"""Juxtaposition, ``\times``, ``\cdot`` or ``*`` between factors, in order."""

    factors: tuple[Node, ...]


@dataclass(frozen=True)
class Hadamard(Node):
    r"""Elementwise product, ``\odot``."""

    factors: tuple[Node, ...]


@dataclass(frozen=True)
class Sum(Node):
    """Terms with signs: ``a + b - c`` has signs ``(1, 1, -1)``."""

    terms: tuple[Node, ...]
    signs: tuple[int, ...]


@dataclass(frozen=True)
class Quotient(Node):
    r"""``\frac{a}{b}`` or ``a / b``."""

    top: Node
    bottom: Node


@dataclass(frozen=True)
class Exponentiation(Node):
    """``base^exponent`` where the exponent is a number or size, not part of a name."""

    base: Node
    exponent: Node


@dataclass(frozen=True)
class Radical(Node):
    r"""``\sqrt{a}``."""

    inside: Node


@dataclass(frozen=True)
class Transpose(Node):
    r"""``K^T``, ``K^\top``, ``K^{T}``: the last two axes change places."""

    inside: Node


@dataclass(frozen=True)
class FunctionCall(Node):
    r"""A named function with arguments: ``\text{relu}(A)``, ``\text{Partition}_{-1}(Q)``, ``TopK_k(g)``.

    ``function`` is the lower-case name; ``subscript`` is what stands below it (``-1``, ``k``), or None.
    """

    function: str
    arguments: tuple[Node, ...]
    subscript: Node | None = None


@dataclass(frozen=True)
class Quoted(Node):
    """A text between quotation marks, which a function reads itself: the subscripts of ``einsum("ij,jk->ik", A, B)``.

    ``span`` is that of the text without the marks.
    """

    text: str


@dataclass(frozen=True)
class Family(Node):
    r"""A listed family ``[Q_1, Q_2, \dots, Q_{n_h}]``: ``name`` without an index, ``count`` its last index."""

    name: Identifier
    count: Node


@dataclass(frozen=True)
class Range(Node):
    r"""``i = 1, \dots, n_h``: the index and its last value."""

    index: str
    count: Node


@dataclass(frozen=True)
class Equation(Node):
    """One computation: ``target = formula`` with the ranges of its indices."""

    target: Node  # Identifier or Family
    formula: Node
    ranges: tuple[Range, ...]


@dataclass(frozen=True)
class Declaration(Node):
    r"""``x \in \mathbb{R}^{B \times L \times D}``: a name and its sizes; families carry ``ranges`` of the cell.

    ``domain`` is ``R`` (real), ``Z`` (whole numbers, e.g. token ids) or ``B`` (0/1 masks).
    A scalar (``\ell \in \mathbb{R}``) has no sizes. ``lent`` sizes are those of the name behind it in a list, where a
    row above declares this one.
    """

    name: Identifier
    sizes: tuple[Node, ...]
    domain: str
    ranges: tuple[Range, ...]
    lent: bool = False


def children(node: Node) -> tuple[Node, ...]:
    """The nodes right below a node, in the order they are written.

    >>> from symcomm.core.errors import Span
    >>> span = Span("t.md", 1, "x^2", 0, 3)
    >>> square = Exponentiation(span, Identifier(span, "x", "x"), Number(span, Fraction(2)))
    >>> [type(child).__name__ for child in children(square)]
    ['Identifier', 'Number']
    """
    found: list[Node] = []
    for value in vars(node).values():
        if isinstance(value, Node):
            found.append(value)
        elif isinstance(value, tuple):
            found += [one for one in value if isinstance(one, Node)]
    return tuple(found)


def walk(node: Node) -> Iterator[Node]:
    """A node and all below it, in the order in which they are written."""
    yield node
    for child in children(node):
        yield from walk(child)


def bare(node: object) -> object:
    """The node without places and without the author's spelling, so that trees of different texts compare.

    >>> from symcomm.core.errors import Span
    >>> here, there = Span("a.md", 1, "x", 0, 1), Span("b.md", 9, "  x", 2, 3)
    >>> one, other = Identifier(here, "x", "x"), Identifier(there, "x", "x")
    >>> one == other, bare(one) == bare(other)
    (False, True)
    """
    if isinstance(node, tuple):
        return tuple(bare(one) for one in node)
    if isinstance(node, Node):
        kept = [getattr(node, field.name) for field in fields(node) if field.name not in ("span", "latex")]
        return (type(node).__name__, *(bare(one) for one in kept))
    return node


def size_form(node: Node, aliases: Mapping[str, str] = MappingProxyType({})) -> Form:
    """A size or scalar of a table as a form; raises ``FormulaError`` for what is no size.

    ``aliases`` gives the name a symbol is declared by, where the table spells it otherwise.
    """
    match node:
        case Number(value=number):
            return forms.rational(number)
        case Identifier(key=key):
            return forms.Sym(aliases.get(key, key))
        case Multiplication(factors=factors) | Hadamard(factors=factors):
            return forms.product(*(size_form(f, aliases) for f in factors))
        case Sum(terms=terms, signs=signs):
            written = [size_form(t, aliases) for t in terms]
            return forms.Total(tuple(t if s > 0 else -t for t, s in zip(written, signs, strict=True)))
        case Quotient(top=top, bottom=bottom):
            return forms.Ratio(size_form(top, aliases), size_form(bottom, aliases))
        case Exponentiation(base=base, exponent=exponent):
            return forms.Power(size_form(base, aliases), size_form(exponent, aliases))
        case Radical(inside=inside):
            return forms.Root(size_form(inside, aliases))
        case FunctionCall(function="ceil" | "floor" | "log" as function, arguments=(inside,), subscript=None):
            return forms.called(function, size_form(inside, aliases))
        case FunctionCall(function="max" | "min" as function, arguments=choices, subscript=None) if choices:
            return forms.called(function, *(size_form(c, aliases) for c in choices))
        case FunctionCall(function="log", arguments=(inside,), subscript=Number(_, base)) if base.denominator == 1:
            return forms.Logarithm(size_form(inside, aliases), int(base))
    hint = "a size is made of numbers and symbols, such as 4D or n_h × H"
    raise FormulaError("this is not a size", node.span, hint)
