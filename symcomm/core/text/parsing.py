"""From the text of a cell to the grammar's tree, and what the grammar refuses in words about the formula."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from lark import Token, UnexpectedInput, UnexpectedToken

from symcomm.core.errors import FormulaError
from symcomm.core.text.context import Context
from symcomm.core.text.grammars import FORMULA
from symcomm.core.text.syntax import Branch, Part, branches, levels, start_of, stop_of
from symcomm.core.text.table import ROW_LIMIT, Cell
from symcomm.core.text.tokens import DEPTH_LIMIT, Scanner

# A bracket is seven rules of the grammar within each other.
_LEVEL_LIMIT = 8 * DEPTH_LIMIT
_KEPT_TOKENS = 100


def _tree(tokens: list[Token]) -> Branch:
    tree: object = FORMULA.parser().parse(tokens)  # our lexer takes tokens
    assert isinstance(tree, Branch)
    return tree


def parsed(tokens: list[Token]) -> Branch:
    """The tree of tokens, which is kept for few of the same kinds; Lark's error where there is none."""
    shape = _shape(tuple(token.type for token in tokens)) if len(tokens) <= _KEPT_TOKENS else None
    return _tree(tokens) if shape is None else shape.tree(tokens)


def parse(context: Context, also: Iterable[str] = ()) -> list[Branch]:
    """The items of the cell, which commas separate; ``also`` are names other than those of the scope."""
    cell = context.cell
    scope = context.scope
    tokens, tree, depth, hangs = _read(cell, scope.kind == "tensor", frozenset())
    if hangs:
        known = frozenset(name for name in (*scope.tensors, *(scope.sizes or ()), *also) if name in cell.text)
        tokens, tree, depth, hangs = _read(cell, scope.kind == "tensor", known)
    if not tokens:
        what = f"the cell {cell.column} is empty" if cell.column else "there is nothing to read"
        raise FormulaError(what, cell.span(), context.expects())
    if isinstance(tree, UnexpectedToken):
        raise _translated(context, tree, tokens)
    if isinstance(tree, UnexpectedInput):  # pragma: no cover - a custom lexer meets no characters
        raise FormulaError("this formula is not understood", cell.span(), context.expects())
    if depth > _LEVEL_LIMIT:  # \hat\hat\hat x nests without a bracket
        raise context.deep(tree)
    return branches(tree)


@lru_cache(maxsize=3 * ROW_LIMIT)  # a cell is asked for its sizes first, and then for what it says
def _read(
    cell: Cell, words_join: bool, known: frozenset[str]
) -> tuple[list[Token], Branch | UnexpectedInput, int, bool]:
    """The tokens of a cell, its tree or what was wrong with it, how deep that is, and whether that hangs on names."""
    key = cell.text.translate(_ONE_DIGIT), words_join
    if key in _alike:
        pieces, shape = _alike[key]
        tokens = _respelled(pieces, cell.text)
        return tokens, shape.tree(tokens), shape.levels, False
    scanner = Scanner(cell, words_join, known)
    tokens = scanner.tokens()
    if not tokens:
        return tokens, Branch("cell", []), 0, False
    found = _shape(tuple(token.type for token in tokens))
    if found is not None:
        pieces = tuple((t.type, "" if _DIGIT.search(t) else str(t), start_of(t), stop_of(t)) for t in tokens)
        if not scanner.hangs and _respelled(pieces, cell.text) == tokens:  # no value is made of digits otherwise
            if len(_alike) >= _ALIKE_LIMIT:
                _alike.clear()
            _alike[key] = pieces, found
        return tokens, found.tree(tokens), found.levels, scanner.hangs
    try:
        tree = _tree(tokens)
    except UnexpectedInput as error:
        return tokens, error.with_traceback(None), 0, scanner.hangs
    return tokens, tree, levels(tree), scanner.hangs


def forget() -> None:
    """Lets go of the cells of a table that has been read."""
    _read.cache_clear()
    _alike.clear()


class _Shape(NamedTuple):
    """The tree of a row of tokens, whatever they say, from its ends up to its root.

    Each branch has its rule, its first and last token, and what it is made of: places among the tokens and, counted on
    from there, the branches before it.
    """

    branches: tuple[tuple[str, int, int, tuple[int, ...]], ...]
    levels: int

    def tree(self, tokens: list[Token]) -> Branch:
        """The tree of tokens."""
        made: list[Part] = [*tokens]
        for rule, first, last, parts in self.branches:
            children = [made[parts[0]]] if len(parts) == 1 else [made[place] for place in parts]
            made.append(Branch(rule, children, tokens[first].start_pos or 0, tokens[last].end_pos or 0))
        root = made[-1]
        assert isinstance(root, Branch)
        return root


@lru_cache(maxsize=2048)  # the cells of a long table look alike
def _shape(kinds: tuple[str, ...]) -> _Shape | None:
    """The tree of tokens of these kinds; None where the grammar has none, or it is too deep."""
    try:
        tree = _tree([Token(kind, "", start_pos=place) for place, kind in enumerate(kinds)])
    except UnexpectedInput:
        return None
    deep = levels(tree)
    if deep > _LEVEL_LIMIT // 3:
        return None
    found: list[tuple[str, int, int, tuple[int, ...]]] = []

    def go(branch: Branch) -> tuple[int, int, int]:
        """The place of a branch, its first token and its last one."""
        parts = [go(one) if isinstance(one, Branch) else (one.start_pos or 0,) * 3 for one in branch.children]
        found.append((str(branch.data), parts[0][1], parts[-1][2], tuple(place for place, _, _ in parts)))
        return len(kinds) + len(found) - 1, parts[0][1], parts[-1][2]

    go(tree)
    return _Shape(tuple(found), deep)


# What cells have in common that differ in digits alone: the kinds, values and places of their tokens.
_Pieces = tuple[tuple[str, str, int, int], ...]


def _respelled(pieces: _Pieces, text: str) -> list[Token]:
    """The tokens of a cell of this text; one without a value is spelled as it stands in the cell."""
    return [Token(kind, value or text[start:stop], start_pos=start, end_pos=stop)
            for kind, value, start, stop in pieces]  # fmt: skip


_DIGIT = re.compile("[0-9]")
_ONE_DIGIT = str.maketrans("123456789", "0" * 9)  # no token begins or ends elsewhere where a digit is another one
_ALIKE_LIMIT = 2048
_alike: dict[tuple[str, bool], tuple[_Pieces, _Shape]] = {}


def _translated(context: Context, error: UnexpectedToken, tokens: list[Token]) -> FormulaError:
    """Lark's error in words about the formula."""
    token = error.token
    starts = bool({"WORD", "NUMBER"} & set(error.expected))
    place = next((number for number, one in enumerate(tokens) if one is token), len(tokens))
    before = context.source(tokens[place - 1]) if place else ""
    if token.type == "COMMA" and start_of(token) == stop_of(token):
        token = tokens[place + 1]  # this comma was only understood: name what stands there
    if token.type == "$END":
        last = tokens[-1]
        return context.wrong(f"something is missing after `{context.source(last)}`", last, _after(last.type))
    shown = context.source(token) or token.value
    if token.type == "DOTS":
        hint = r"a list is cut short like Q_1, Q_2, \dots, Q_n or i = 1, \dots, n"
        return context.wrong(f"`{shown}` cannot stand here", token, hint)
    if starts and place:
        hint = _after(tokens[place - 1].type)
        return context.wrong(f"something is missing between `{before}` and `{shown}`", token, hint)
    if starts:
        return context.wrong(f"the formula cannot begin with `{shown}`", token, context.expects())
    return context.wrong(f"`{shown}` cannot stand after `{before}`", token, "is an operator missing between them?")


def _after(kind: str) -> str:
    """What belongs behind a token of a kind."""
    if kind in ("UNDER", "CARET"):
        return "a script is a letter, a number, or a group in braces"
    if kind in ("FRAC", "SQRT", "ACCENT", "FONT"):
        return r"give its argument in braces: \frac{a}{b}, \sqrt{a}, \hat{x}"
    if kind == "RELATION":
        return "a formula or a shape belongs there"
    return "a name, a number or a group belongs there"
