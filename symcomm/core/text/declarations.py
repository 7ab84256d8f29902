r"""Declarations of shapes: ``x, y \in \mathbb{R}^{B \times D}``, ``W [D, 4D]``, ``b: (D)``."""

from __future__ import annotations

import re
from collections.abc import Sequence

from lark import Token

from symcomm.core.text.context import SHAPE_HINT, Context
from symcomm.core.text.expressions import added, read_family, read_size, read_term
from symcomm.core.text.names import find
from symcomm.core.text.scripts import check_key, only_name, scripts_of, stem_of
from symcomm.core.text.spelling import Script, latex, spelling
from symcomm.core.text.syntax import (
    Branch,
    Part,
    branches,
    canonical,
    cut_short,
    is_letter,
    leaf,
    lone_word,
    only_atom,
    start_of,
    term_of,
)
from symcomm.core.text.tree import Declaration, Identifier, Node

_DOMAINS = {"R": "R", "bbR": "R", "Z": "Z", "bbZ": "Z", "N": "Z", "bbN": "Z", "bbB": "B", "B": "B", "reals": "R"}


def read_declarations(context: Context, items: list[Branch]) -> list[Declaration]:
    """The declarations of a cell without its ranges; names before one shape share it.

    A name of a row above keeps the shape that it has there, whether or not another name's shape follows.
    """
    found: list[Declaration] = []
    waiting: list[Branch] = []
    for item in items:
        shape = _shape_of(context, item) if item.data != "dots" else None
        if shape is None:
            waiting.append(item)
            continue
        head, domain, sizes = shape
        names = _names(context, [*waiting, head])
        lent = not cut_short(waiting) and [_is_known(context, one) for one in waiting]
        waiting = []
        for name, known in zip(names, [*(lent or [False] * (len(names) - 1)), False], strict=True):
            found.append(Declaration(context.over(item), name, sizes, domain, (), known))
    waiting = [one for one in waiting if not _is_known(context, one)]
    if waiting:
        if any(str(child) == "=" for child in waiting[0].children):
            raise context.wrong("a shape is wanted here, not an equation", waiting[0], SHAPE_HINT)
        only = only_atom(waiting[0])
        lacks = "name" if only is not None and only.data in ("square", "paren") else "shape"
        raise context.wrong(f"`{context.source(waiting[0])}` has no {lacks}", waiting[0], SHAPE_HINT)
    return found


def _is_known(context: Context, item: Branch) -> bool:
    """Whether an item is the name of a tensor that a row above declares; any may be, where none are known yet."""
    found = only_name(context, item) if item.data != "dots" else None
    if found is None:
        return False
    factor, stem = found
    return context.scope.sizes is None or find(context, stem, scripts_of(context, factor)) is not None


# -- names -------------------------------------------------------------------------------------------------------------


def _names(context: Context, items: list[Branch]) -> list[Identifier]:
    """The names before a shape; a family in a list is one name."""
    if not cut_short(items):
        return [new_name(context, item) for item in items]
    family = read_family(context, items, context.over(*items)).name
    index = min(context.scope.indices, default="i")
    return [Identifier(family.span, family.key, f"{family.latex}_{index}", index)]


def new_name(context: Context, item: Branch, wanted: str = "before its shape", hint: str = SHAPE_HINT) -> Identifier:
    """A name that is being declared or computed: all of its scripts belong to it."""
    found = only_name(context, item)
    if found is None:
        raise context.wrong(f"a name is wanted {wanted}", item, hint)
    factor, stem = found
    # `^\top` in a new name is a superscript like any other.
    scripts = [Script("^", "T", one.start, one.stop) if one.kind == "T" else one for one in scripts_of(context, factor)]
    key, family, member = spelling(stem.word, scripts)
    check_key(context, key, factor)
    if member and re.search(r"\w\(", member):  # the j(i)-th of some
        hint = f"a row computes all members at once: write {family}_j, or Repeat({family}_j) in a row of its own"
        raise context.wrong(f"'{key}' is one member of a family", item, hint)
    scope, index = context.scope, ""
    if member in scope.torn - scope.indices:
        hint = f"say in this row how far it runs: {member} = 1, \\dots, n"
        raise context.wrong(f"the index {member} ran to different ends in the rows above", item, hint)
    if member and (member in scope.indices or (is_letter(member) and scope.is_family(family))):
        key, index = family, member
    return context.counted(Identifier(context.over(factor), key, latex(context.cell.text, stem, scripts), index))


# -- shapes ------------------------------------------------------------------------------------------------------------


def _shape_of(context: Context, item: Branch) -> tuple[Branch, str, tuple[Node, ...]] | None:
    """The name's part, the domain and the sizes of ``x in R^{...}``, ``x: [...]`` or ``x [...]``."""
    relations = [child for child in item.children if isinstance(child, Token)]
    sides = branches(item)
    if not relations:
        factors = term_of(sides[0]) or []
        atom = only_atom(factors[-1]) if len(factors) == 2 and isinstance(factors[-1], Branch) else None
        if atom is not None and atom.data in ("square", "paren") and isinstance(factors[0], Branch):
            return factors[0], "R", _shape(context, atom)
        return None
    if len(relations) > 1 or relations[0] not in ("in", ":"):
        return None
    domain, sizes = _domain(context, sides[1], relations[0])
    return sides[0], domain, sizes


def _domain(context: Context, side: Branch, relation: Token) -> tuple[str, tuple[Node, ...]]:
    """The domain and sizes right of a relation."""
    factors = term_of(side)
    factor = factors[0] if factors is not None and len(factors) == 1 else None
    if not isinstance(factor, Branch):
        if relation == ":" and factors is not None:
            return "R", _sizes(context, [side])
        raise context.wrong("a domain with a shape is wanted here", side, SHAPE_HINT)
    atom, *scripts = branches(factor)
    if atom.data in ("square", "paren") and not scripts:
        return "R", _shape(context, atom)
    stem = stem_of(context, atom)
    name = stem.word if stem is not None else ""
    if atom.data == "set" and canonical(atom) == "{0,1}":
        name = "bbB"
    if name not in _DOMAINS:
        hint = r"write \mathbb{R} (real) or \mathbb{Z} (whole)"
        if relation == ":":
            if len(crossed := _sizes(context, [side])) > 1:
                return "R", crossed
            hint = f"write [{context.source(atom)}] for a shape of one axis"
        raise context.wrong(f"`{context.source(atom)}` is not a domain", atom, hint)
    if not scripts:
        return _DOMAINS[name], ()
    mark, *argument = scripts[0].children
    if len(scripts) > 1 or not isinstance(mark, Token) or mark.type != "CARET":
        raise context.wrong(f"`{context.source(scripts[-1])}` cannot stand at a domain", scripts[-1], SHAPE_HINT)
    assert isinstance(argument[0], Branch)
    return _DOMAINS[name], _shape(context, argument[0])


def _shape(context: Context, atom: Branch) -> tuple[Node, ...]:
    r"""The sizes in ``{B \times L}``, ``(B, L)``, ``[B, L]`` or a single size; a table's are read once each."""
    if atom.data not in ("braces", "paren", "square"):
        if atom.data == "word":  # R^BxL
            return _sizes(context, [Branch("sum", [Branch("term", [Branch("factor", [atom])])])])
        return (read_size(context, atom),)
    if context.shapes is None:
        return _listed(context, atom)
    written = context.source(atom), context.scope.indices
    if written not in context.shapes:
        before = context.parts
        context.shapes[written] = _listed(context, atom), context.parts - before
    else:
        context.count(context.shapes[written][1])
    return context.shapes[written][0]


def _listed(context: Context, atom: Branch) -> tuple[Node, ...]:
    """The sizes between brackets."""
    cells = branches(atom)
    if not cells:
        if atom.data != "braces":
            return ()  # [] is a scalar's shape in programs
        raise context.wrong("the shape is missing between these braces", atom, SHAPE_HINT)
    if cells[0].data == "mark":
        raise context.wrong(f"`{context.source(cells[0])}` is not a shape", cells[0], SHAPE_HINT)
    items = branches(cells[0])
    if len(items) == 1:
        only = only_atom(items[0])
        if only is not None and only.data in ("braces", "paren", "square"):
            return _shape(context, only)
        if atom.data == "square":
            _refuse_spaced(context, items[0])
    for item in items:
        if item.data == "dots" or len(item.children) > 1:
            raise context.wrong("a shape lists its sizes", item, SHAPE_HINT)
    return _sizes(context, [side for item in items for side in branches(item)])


def _refuse_spaced(context: Context, item: Branch) -> None:
    """Refuse ``[B L D]``, which some write for three axes and others for a product; ``[4 D]`` is one size."""
    factors = term_of(item) or []
    words = [context.source(one) for one in factors]
    if len(words) < 2 or "".join(words) == context.source(item) or words[0][0].isdigit():
        return
    if any(isinstance(one, Token) or "x" in (lone_word(one) or "") for one in factors):
        return
    how = f"write [{', '.join(words)}] for axes, [{'*'.join(words)}] for a product"
    count = {2: "two", 3: "three", 4: "four"}.get(len(words), str(len(words)))
    raise context.wrong(f"these sizes may be {count} axes or one product", item, how)


def _sizes(context: Context, sides: list[Branch]) -> tuple[Node, ...]:
    r"""The sizes between ``\times``; ``L+1`` between two of them is one size."""
    with context.among_sizes():
        return tuple(node for side in sides for node in _axes(context, side))


def _axes(context: Context, side: Branch) -> list[Node]:
    """The axes of a sum whose terms are cut at their ``\\times``: ``B \\times L+1`` has two."""
    axes: list[list[tuple[int, list[Part]]]] = [[]]  # the terms of each axis with their signs
    sign = 1
    for child in side.children:
        if isinstance(child, Token):
            sign = -1 if child.type == "MINUS" else 1
            continue
        axes[-1].append((sign, []))
        sign = 1
        for part in _crossed(context, child.children):
            if isinstance(part, Token) and part.type == "TIMES":
                axes.append([(1, [])])
            else:
                axes[-1][-1][1].append(part)
    if not all(parts for axis in axes for _, parts in axis):
        raise context.wrong("a size is missing in this shape", side, SHAPE_HINT)
    nodes: list[Node] = []
    for axis in axes:
        terms = [read_term(context, parts) for _, parts in axis]
        span = context.over(axis[0][1][0], axis[-1][1][-1])
        nodes.append(added(context, terms, [sign for sign, _ in axis], span))
    return nodes


def _crossed(context: Context, parts: Sequence[Part]) -> list[Part]:
    """The parts of a shape, with a plain letter x between sizes read as the sign it stands for."""
    found: list[Part] = []
    for number, part in enumerate(parts):
        token = lone_word(part)
        if token is None or "x" not in token or context.scope.is_size(token):
            found.append(part)
            continue
        first, *middle, last = pieces = token.split("x")
        inner = number > 0 and isinstance(parts[number - 1], Branch)
        outer = number + 1 < len(parts) and isinstance(parts[number + 1], Branch)
        # Beside another size the x itself may begin or end the word.
        wanted = [*middle, *([first] if first or not inner else []), *([last] if last or not outer else [])]
        if not all(re.fullmatch(r"[A-Za-z]|\d+[A-Za-z]?", piece) for piece in wanted):
            found.append(part)
            continue
        place = start_of(token)
        for count, piece in enumerate(pieces):
            if count:
                found.append(Token("TIMES", "*", start_pos=place, end_pos=place + 1))
                place += 1
            for text in re.findall(r"\d+|[A-Za-z]", piece):
                found.append(leaf(text, place))
                place += len(text)
    return found
