"""The grammar of ``formula.lark`` and small questions about the trees it gives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Union

from lark import Token


class Branch:
    """A rule of the grammar, what it is made of, and where it is: columns of its cell, -1 where they are not known.

    Lark's own tree keeps places in an object of its own for every branch, which takes longer than the parsing.
    """

    __slots__ = ("children", "data", "start", "stop")

    def __init__(self, data: str, children: list[Part], start: int = -1, stop: int = -1) -> None:
        self.data, self.children, self.start, self.stop = data, children, start, stop

    def tokens(self) -> Iterator[Token]:
        """The tokens at the ends of the branch, from left to right."""
        waiting = self.children[::-1]
        while waiting:
            part = waiting.pop()
            if isinstance(part, Token):
                yield part
            else:
                waiting += part.children[::-1]

    def of(self, rule: str) -> Iterator[Branch]:
        """The branches of a rule in it, the inner ones first."""
        for child in self.children:
            if isinstance(child, Branch):
                yield from child.of(rule)
        if self.data == rule:
            yield self


Part = Union[Branch, Token]  # noqa: UP007  (the class is not there yet where its own annotation names it)


def start_of(part: Part) -> int:
    while isinstance(part, Branch):
        if part.start >= 0:
            return part.start
        part = part.children[0]
    return part.start_pos or 0


def stop_of(part: Part) -> int:
    while isinstance(part, Branch):
        if part.stop >= 0:
            return part.stop
        part = part.children[-1]
    return part.end_pos or 0


def branches(tree: Branch) -> list[Branch]:
    return [child for child in tree.children if isinstance(child, Branch)]


def levels(tree: Branch) -> int:
    """How many rules stand within each other, found without recursion."""
    deepest = 0
    waiting = [(tree, 1)]
    while waiting:
        branch, level = waiting.pop()
        deepest = max(deepest, level)
        waiting += [(child, level + 1) for child in branches(branch)]
    return deepest


def canonical(tree: Branch) -> str:
    """The text of a script without braces, fonts and spaces."""
    pieces: list[str] = []
    for token in tree.tokens():
        if token.type not in ("LBRACE", "RBRACE", "FONT", "SQRT", "FRAC"):
            pieces.append(f"_{token}" if token.type == "ACCENT" else str(token))
    return "".join(pieces)


def ends_transposed(tree: Branch) -> bool:
    last = None
    for token in tree.tokens():
        if token.type not in ("RBRACE",):
            last = token
    return last is not None and last.type == "TRANSPOSED"


def term_of(tree: Branch) -> list[Part] | None:
    """The parts of the one term a chain or sum consists of."""
    while tree.data in ("cell", "chain", "sum") and len(tree.children) == 1:
        inner = tree.children[0]
        if not isinstance(inner, Branch):
            return None
        tree = inner
    return list(tree.children) if tree.data == "term" else None


def only_factor(tree: Branch) -> Branch | None:
    """The one factor a tree consists of."""
    if tree.data == "factor":
        return tree
    parts = term_of(tree)
    if parts is None or len(parts) != 1 or not isinstance(parts[0], Branch):
        return None
    return parts[0]


def only_atom(tree: Branch) -> Branch | None:
    """The one atom without scripts a tree consists of."""
    if tree.data == "braces":
        cells = branches(tree)
        return only_atom(cells[0]) if cells else None
    factor = only_factor(tree)
    if factor is None or len(factor.children) != 1:
        return None
    atom = factor.children[0]
    return atom if isinstance(atom, Branch) else None


def lone_word(part: Part) -> Token | None:
    """The word a factor consists of."""
    if not isinstance(part, Branch) or part.data != "factor" or len(part.children) != 1:
        return None
    atom = part.children[0]
    if not isinstance(atom, Branch) or atom.data != "word":
        return None
    token = atom.children[0]
    return token if isinstance(token, Token) else None


def bare_atom(text: str, place: int) -> Branch:
    """A word or number made of a few letters or digits of a longer word, which stand at ``place``."""
    kind = "NUMBER" if text.isdigit() else "WORD"
    token = Token(kind, text, start_pos=place, end_pos=place + len(text))
    return Branch(kind.lower(), [token], place, place + len(text))


def leaf(text: str, place: int) -> Branch:
    """The same as a factor."""
    return Branch("factor", [bare_atom(text, place)], place, place + len(text))


def quotients(tree: Branch) -> Iterator[tuple[Branch, Branch]]:
    """The parts above and below each fraction and around each slash."""
    if all(token.type not in ("FRAC", "SLASH") for token in tree.tokens()):
        return
    for fraction in tree.of("frac"):
        top, bottom = branches(fraction)
        yield top, bottom
    for term in tree.of("term"):
        for before, sign, after in zip(term.children, term.children[1:], term.children[2:], strict=False):
            if isinstance(sign, Token) and sign.type == "SLASH" and isinstance(before, Branch):
                yield before, after if isinstance(after, Branch) else term


def letter_of(tree: Branch) -> str:
    """The single letter a tree is, or nothing."""
    atom = only_atom(tree)
    if atom is None or atom.data not in ("word", "text"):
        return ""
    text = str(atom.children[0])
    return text if is_letter(text) or (atom.data == "text" and text == "ell") else ""


def integer_of(tree: Branch) -> int | None:
    """The whole number a tree is."""
    atom = only_atom(tree)
    if atom is None or atom.data != "number":
        return None
    text = str(atom.children[0])
    return int(text) if text.isdigit() else None


def is_letter(text: str) -> bool:
    """Whether a text is one letter."""
    return len(text) == 1 and text.isalpha()


def cut_short(items: list[Branch]) -> bool:
    """Whether dots stand in a list."""
    return any(item.data == "dots" for item in items)
