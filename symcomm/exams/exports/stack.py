"""STACK: formulas that Maxima compares, numbers within their tolerance, and a node for each recognised answer.

Variants that differ in numbers alone are one question, whose seeds pick their numbers from lists; others are questions
of their own in the same category. Question tests travel with them, which STACK runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from functools import cached_property
from itertools import permutations
from math import perm
from typing import Any

from symcomm.core.records import dataclass
from symcomm.documents.render.prose import with_numbers, without_numbers
from symcomm.exams.exports.item import Item, QuestionPart
from symcomm.exams.exports.markup import fill
from symcomm.exams.exports.moodle import category, quiz, tex
from symcomm.exams.exports.spelled import maxima, stands_for, without_relations

_LONGEST, _RUNS = 4, 400  # letters of a run that is read as a product, and runs of one answer
_WORDS = ("do", "if", "in", "or", "and", "for", "not", "from", "next", "step", "then", "thru", "else", "mod", "pi",
          "pm")  # fmt: skip
_NEVER = 10**12  # below minus this are the numbers of what a variant does not recognise: nobody types them


# By place, name, credit and feedback: what is compared with, what a question test types, and how far it may be off.
_Nodes = dict[tuple[int, str, Fraction, str], tuple[str, str, str]]


@dataclass(frozen=True)
class _Variant:
    """What is shown and compared of a question in one variant; its answers by their names in Maxima."""

    head: str  # its category
    shared: dict[str, Any]
    shapes: tuple[tuple[object, ...], ...]
    number: int
    texts: tuple[str, str]
    answers: dict[str, str]
    nodes: tuple[_Nodes, ...]


def piece(title: str, item: Item) -> _Variant:
    """A question in one variant. Raises ``DocumentError`` for names and functions that STACK does not know."""
    trees = [_ResponseTree(item, part, n) for n, part in enumerate(item.parts, start=1)]
    fields = {id(tree.part): f" [[input:ans{tree.n}]] [[validation:ans{tree.n}]]" for tree in trees}
    text = "".join(
        _castext(block) if isinstance(block, str) else f"<p>{_castext(block.prompt)}{fields[id(block)]}</p>"
        for block in item.blocks
    )
    shared = {"title": item.title, "name": item.name, "media": item.media, "points": item.points}
    answers = {f"ta{tree.n}": tree.right for tree in trees}
    answers |= {f"says{tree.n}": tree.says for tree in trees if tree.part.options}
    return _Variant(category(title, item), shared, tuple(tree.shape for tree in trees), item.variant,
                    (text, _castext(item.worked)), answers, tuple(tree.nodes for tree in trees))  # fmt: skip


def whole(title: str, pieces: Sequence[_Variant]) -> dict[str, bytes]:
    """One file with all questions; variants that differ in numbers alone are one of them."""
    alike: dict[object, list[_Variant]] = {}
    for one in pieces:
        kinds = (without_numbers(text)[0] for text in one.texts)
        alike.setdefault((one.head, one.shared["media"], one.shapes, *kinds), []).append(one)
    return {"stack.xml": quiz([[some[0].head, _question(some)] for some in alike.values()])}


def _question(variants: Sequence[_Variant]) -> str:
    """One question of some variants: its seed picks their numbers from lists, in sentences as texts."""
    first, several = variants[0], len(variants)
    lists: dict[tuple[str, ...], str] = {}

    def pick(values: Iterable[str], shown: str = "{}") -> str:
        every = (*values,)
        same = len({*every}) == 1
        return every[0] if same else shown.format(lists.setdefault(every, f"drawn{len(lists) + 1}"))

    def sentence(texts: Sequence[str]) -> str:
        numbers = zip(*(without_numbers(text)[1] for text in texts), strict=True)
        shown = [some[0] if len({*some}) == 1 else pick(map(_string, some), "{{@{}@}}") for some in numbers]
        return with_numbers(without_numbers(texts[0])[0], shown)

    def nodes(every: Sequence[_Nodes]) -> Iterator[dict[str, Any]]:
        for at, key in enumerate(sorted({key for some in every for key in some}, key=lambda key: key[:2]), start=1):
            never = f"-{_NEVER + at}"
            told = zip(*(one.get(key, (never, never, "0.001")) for one in every), strict=True)
            found = dict(zip(("told", "typed", "spread"), map(pick, told), strict=True))
            yield {"at": at, "name": key[1], "credit": key[2], "feedback": key[3], **found}

    known = [[*nodes([one.nodes[n] for one in variants])] for n in range(len(first.nodes))]
    trees = [(*shape, some) for shape, some in zip(first.shapes, known, strict=True)]
    right = [some[0] for some in known]
    cases = (right, *([*right[:n], one, *right[n + 1 :]] for n, some in enumerate(known) for one in some[1:]))
    answers = [f"{name}:{pick(one.answers[name] for one in variants)};" for name in first.answers]
    text, worked = (sentence(some) for some in zip(*(one.texts for one in variants), strict=True))
    seed, said = f"{first.number}", f"{first.number}"
    if several > 1:
        seed = f"if integerp(stack_seed) then 1+mod(stack_seed-1,{several}) else 1+rand({several})"
        said += f" to {variants[-1].number}"
    picked = [f"{name}:[{','.join(some)}][variant];" for some, name in lists.items()]
    variables = "\n".join([f"variant:{seed};", *picked, *answers])
    return fill("stack.xml.jinja", kind="stack", **first.shared, variant=said, text=text, worked=worked, trees=trees,
                cases=cases, variables=variables, seeds=range(1, several + 1), castext=_castext)  # fmt: skip


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
class _ResponseTree:
    """One answer with the nodes that it goes through."""

    item: Item
    part: QuestionPart
    n: int

    @property
    def shape(self) -> tuple[object, ...]:
        """The facts that all variants of one question share."""
        part = self.part
        said = self.n, part.kind, len(part.options), self.kind
        return (*said, self.stars, part.points, tuple(self.units), self.put)

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

    @property
    def says(self) -> str:
        """The feedback of each option, the right one first."""
        return f"[{','.join(_string(_castext(one.feedback)) for one in self.part.answers)}]"

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

    @property
    def nodes(self) -> _Nodes:
        """The possible answers, the right one first; compared without the symbols that relations eliminate."""
        part, item, found = self.part, self.item, {}
        known = (part.answers[0], *(part.every or part.answers[1:]))
        for at, one in enumerate(known):
            told = typed = spread = ""
            if part.kind == "symbolic" and one.form is not None:
                told, typed = maxima(without_relations(one.form, part), item), maxima(one.form, item)
            elif one.value is not None:
                told = typed = part.number(one.value)
                spread = part.spread_text(one.value) if part.kind == "numeric" else ""
            if told:
                feedback = one.feedback if not part.options else ""
                found[at, ", ".join(one.names) or "right", one.credit, feedback] = told, typed, spread
        return found


def _string(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
