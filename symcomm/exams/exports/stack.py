"""STACK: formulas that Maxima compares, numbers within their tolerance, and a node for each recognised answer.

Every variant is a question of its own in a category; question tests travel with it, which STACK runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import cached_property
from itertools import permutations
from math import perm

from symcomm.core.records import dataclass
from symcomm.exams.exports.item import Item, QuestionPart
from symcomm.exams.exports.markup import VariantTexts
from symcomm.exams.exports.moodle import question, quiz, tex
from symcomm.exams.exports.spelled import maxima, stands_for, without_relations

_LONGEST, _RUNS = 4, 400  # letters of a run that is read as a product, and runs of one answer
_WORDS = ("do", "if", "in", "or", "and", "for", "not", "from", "next", "step", "then", "thru", "else", "mod", "pi",
          "pm")  # fmt: skip


def piece(title: str, item: Item) -> list[str]:
    """A question and its category. Raises ``DocumentError`` for names and functions that STACK does not know."""
    own = VariantTexts()
    trees = [_ResponseTree(item, part, n, own) for n, part in enumerate(item.parts, start=1)]
    fields = {id(tree.part): f" [[input:ans{tree.n}]] [[validation:ans{tree.n}]]" for tree in trees}
    text = "".join(
        _castext(block) if isinstance(block, str) else f"<p>{_castext(block.prompt)}{fields[id(block)]}</p>"
        for block in item.blocks
    )
    right = tuple(tree.answers[0] for tree in trees)
    others = ((*right[:n], one, *right[n + 1 :]) for n, tree in enumerate(trees) for one in tree.answers[1:])
    variables = "\n".join(f"ta{tree.n}:{tree.right};" for tree in trees)
    return question(
        title, item, "stack.xml.jinja", own, text, _castext(item.worked), kind="stack", castext=_castext,
        trees=tuple(tree.shown for tree in trees), cases=(right, *others), variables=own(variables),
    )  # fmt: skip


def whole(title: str, pieces: Sequence[list[str]]) -> dict[str, bytes]:
    """One file with all questions."""
    return {"stack.xml": quiz(pieces)}


def _castext(content: str) -> str:
    """HTML in which nothing is an order to STACK: ``[[...]]`` and ``{@...@}`` of the author's are only text.

    >>> _castext("[[input:ans1]] {@1/0@}")
    '&#91;[input:ans1]] &#123;@1/0@}'
    """
    text = tex(content)
    for order in ("[[", "{@", "{#"):
        text = text.replace(order, f"&#{ord(order[0])};{order[1]}")
    return text


@dataclass(frozen=True)
class _ComparedAnswer:
    """What an answer is compared with, in Maxima: its name, how far it may be off, its credit and feedback."""

    at: int  # its node, from 1 on
    name: str
    told: str
    spread: str
    credit: Fraction
    feedback: str


@dataclass(frozen=True)
class _ResponseTree:
    """One answer with the nodes that it goes through."""

    item: Item
    part: QuestionPart
    n: int
    own: VariantTexts

    @property
    def shown(self) -> tuple[object, ...]:
        """The part of it that the template shows."""
        part = self.part
        return self.n, part.kind, self.kind, self.stars, part.points, tuple(self.units), self.put, self.compared

    @cached_property
    def right(self) -> str:
        """The right answer in Maxima; of choices all of them, with which is right."""
        if self.part.kind == "symbolic":
            return maxima(self.part.form, self.item)
        if self.part.kind == "numeric":
            return self.part.text
        rows = (
            f"[{n},{'true' if option.right else 'false'},{_string(_castext(option.text))}]"
            for n, option in enumerate(self.part.options, start=1)
        )
        return f"[{','.join(rows)}]"

    @cached_property
    def units(self) -> dict[str, str]:
        """The value of each word of a unit, in the unit of the answer: in TFLOP/s a GFLOP is 1/1000 and s is 1."""
        found: dict[str, str] = {}
        for name, times in self.part.units if self.part.kind == "numeric" else ():
            first, *others = re.findall(r"[A-Za-z]+", name) if name.isascii() else [""]
            worth = 1 / times if name.startswith(first) else Fraction(1)
            found |= {first: str(worth)} if first else {}
            for word in others:
                found.setdefault(word, "1")
        return found

    @cached_property
    def kind(self) -> str:
        """The kind of its field; a number may have its unit behind it, which is a symbol to STACK."""
        kinds = {"choice": "radio", "symbolic": "algebraic", "numeric": "algebraic" if self.units else "numerical"}
        return kinds[self.part.kind]

    @cached_property
    def stars(self) -> str:
        """Where STACK writes stars: nowhere, in 3N and at spaces, or also between letters."""
        letters = self.part.kind == "symbolic" and all(len(name) == 1 for name in self.part.symbols)
        return "5" if letters else "4" if self.kind == "algebraic" else "0"

    @cached_property
    def put(self) -> str:
        """The replacements for runs of letters, for symbols that relations eliminate, and for the words of units."""
        worth = {name: maxima(form, self.item) for name, form in stands_for(self.part).items()} | self.units
        return ",".join(f"{name}={text}" for name, text in (self._runs | worth).items())

    @property
    def _runs(self) -> dict[str, str]:
        """The products that runs of letters stand for, beside names of several letters: NDF is N*D*F."""
        letters = [name for name in self.part.symbols if len(name) == 1]
        if self.part.kind != "symbolic" or self.stars == "5":
            return {}
        most = next(
            size for size in range(_LONGEST, -1, -1) if sum(perm(len(letters), n) for n in range(size + 1)) < _RUNS
        )
        runs = {"".join(some): "*".join(some) for size in range(2, most + 1) for some in permutations(letters, size)}
        return {run: said for run, said in runs.items() if run not in (*self.part.symbols, *_WORDS)}

    @cached_property
    def answers(self) -> tuple[_ComparedAnswer, ...]:
        """The possible answers, the right one first."""
        return tuple(self._compared(plain=False))

    @cached_property
    def compared(self) -> tuple[_ComparedAnswer, ...]:
        """The same without the symbols that relations eliminate."""
        if not self.part.relations:
            return self.answers
        return tuple(self._compared(plain=True))

    def _compared(self, plain: bool) -> Iterator[_ComparedAnswer]:
        for at, (name, told, spread, credit, feedback) in enumerate(self._answers(plain), start=1):
            off = self.own(spread) if spread else ""
            yield _ComparedAnswer(at, name, self.own(told), off, credit, feedback)

    def _answers(self, plain: bool) -> Iterator[tuple[str, str, str, Fraction, str]]:
        part, item = self.part, self.item
        for one in part.answers:
            name = ", ".join(one.names) or "right"
            if part.kind != "symbolic":
                off = part.spread_text(one.value) if part.kind == "numeric" else ""
                yield name, part.number(one.value), off, one.credit, one.feedback
            elif one.form is not None:
                form = without_relations(one.form, part) if plain else one.form
                yield name, maxima(form, item), "", one.credit, one.feedback


def _string(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
