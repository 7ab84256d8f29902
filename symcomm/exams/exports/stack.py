"""STACK: formulas that Maxima compares, numbers within their tolerance, and a node for each recognised answer.

Variants that differ in numbers alone are one question, whose seeds pick their numbers from lists; others are questions
of their own in the same category. Question tests travel with them, which STACK runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from itertools import chain, permutations, zip_longest
from math import perm
from typing import Any

from symcomm.exams.exports.item import Item, QuestionPart
from symcomm.exams.exports.markup import fill
from symcomm.exams.exports.moodle import category, quiz, tex
from symcomm.exams.exports.spelled import maxima, stands_for, without_relations

_LONGEST, _RUNS = 4, 400  # letters of a run that is read as a product, and runs of one answer
_WORDS = ("do", "if", "in", "or", "and", "for", "not", "from", "next", "step", "then", "thru", "else", "mod", "pi",
          "pm")  # fmt: skip
_NEVER = 10**12  # below minus this are the numbers of what a variant does not recognise: nobody types them
_NUMBER = re.compile(r"(\d+(?:\.\d+)?)")
# By place, name, feedback and credit: what is compared with, what a question test types, how far it may be off.
_Nodes = dict[tuple[int, str, str, int, int], tuple[str, str, str]]


def piece(title: str, item: Item) -> dict[str, Any]:
    """The texts and nodes of a question in one variant, and its answers by their names in Maxima.

    Raises ``DocumentError`` for names and functions that STACK does not know.
    """
    parts = [*enumerate(item.parts, start=1)]
    fields = {id(part): f" [[input:ans{n}]] [[validation:ans{n}]]" for n, part in parts}
    text = "".join(
        _castext(block) if isinstance(block, str) else f"<p>{_castext(block.prompt)}{fields[id(block)]}</p>"
        for block in item.blocks
    )
    answers = {f"ta{n}": _right(part, item) for n, part in parts}
    answers |= {f"says{n}": _list(_string(_castext(one.feedback)) for one in part.answers)
                for n, part in parts if part.options}  # fmt: skip
    return {
        "head": category(title, item), "shapes": tuple(_shape(item, part, n) for n, part in parts), "answers": answers,
        "shared": {"title": item.title, "name": item.name, "media": item.media, "points": item.points},
        "number": item.variant, "texts": tuple(tuple(_NUMBER.split(one)) for one in (text, _castext(item.worked))),
        "nodes": [_nodes(item, part) for _, part in parts],
    }  # fmt: skip


def whole(title: str, pieces: Sequence[dict[str, Any]]) -> dict[str, bytes]:
    """One file with all questions; variants that differ in numbers alone are one of them."""
    alike: dict[object, list[dict[str, Any]]] = {}
    for one in pieces:
        about = one["head"], one["shared"]["media"], one["shapes"], *(text[::2] for text in one["texts"])
        alike.setdefault(about, []).append(one)
    return {"stack.xml": quiz([[some[0]["head"], _question(some)] for some in alike.values()])}


def _question(variants: Sequence[dict[str, Any]]) -> str:
    """One question of some variants: its seed picks their numbers from lists, in sentences as texts."""
    first, several = variants[0], len(variants)
    lists: dict[tuple[str, ...], str] = {}

    def pick(values: Iterable[str], shown: str = "{}") -> str:
        every = (*values,)
        same = len({*every}) == 1
        return every[0] if same else shown.format(lists.setdefault(every, f"drawn{len(lists) + 1}"))

    def sentence(texts: Sequence[Sequence[str]]) -> str:
        numbers = zip(*(one[1::2] for one in texts), strict=True)
        said = (one[0] if len({*one}) == 1 else pick(map(_string, one), "{{@{}@}}") for one in numbers)
        return "".join(chain.from_iterable(zip_longest(texts[0][::2], said, fillvalue="")))

    def nodes(every: Sequence[_Nodes]) -> Iterator[dict[str, Any]]:
        keys = dict.fromkeys(key for some in every for key in some)
        for at, key in enumerate(sorted(keys, key=lambda key: key[:2]), start=1):
            never = f"-{_NEVER + at}"
            told = zip(*(one.get(key, (never, never, "0.001")) for one in every), strict=True)
            found = dict(zip(("told", "typed", "spread"), map(pick, told), strict=True))
            yield {"at": at, "name": key[1], "credit": Fraction(*key[3:]), "feedback": key[2], **found}

    known = [[*nodes([one["nodes"][n] for one in variants])] for n in range(len(first["nodes"]))]
    trees = [(*shape, some) for shape, some in zip(first["shapes"], known, strict=True)]
    right = [some[0] for some in known]
    cases = (right, *([*right[:n], one, *right[n + 1 :]] for n, some in enumerate(known) for one in some[1:]))
    answers = [f"{name}:{pick(one['answers'][name] for one in variants)};" for name in first["answers"]]
    text, worked = (sentence(some) for some in zip(*(one["texts"] for one in variants), strict=True))
    seed = said = f"{first['number']}"
    if several > 1:
        said += f" to {variants[-1]['number']}"
        seed = f"if integerp(stack_seed) then 1+mod(stack_seed-1,{several}) else 1+rand({several})"
    picked = [f"{name}:{_list(some)}[variant];" for some, name in lists.items()]
    variables = "\n".join([f"variant:{seed};", *picked, *answers])
    return fill("stack.xml.jinja", kind="stack", **first["shared"], variant=said, text=text, worked=worked, trees=trees,
                cases=cases, variables=variables, seeds=range(1, several + 1), castext=_castext)  # fmt: skip


def _castext(content: str) -> str:
    """HTML in which nothing is an order to STACK: ``[[...]]`` and ``{@...@}`` of the author's are only text.

    >>> _castext("[[input:ans1]] {@1/0@}")
    '&#91;[input:ans1]] &#123;@1/0@}'
    """
    return re.sub(r"\[\[|\{[@#]", lambda found: f"&#{ord(found[0][0])};{found[0][1]}", tex(content))


def _right(part: QuestionPart, item: Item) -> str:
    """The right answer in Maxima; of choices all of them, with which is right."""
    if part.kind != "choice":
        return maxima(part.form, item) if part.kind == "symbolic" else part.text
    return _list(
        f"[{n},{'true' if option.right else 'false'},{_string(_castext(option.text))}]"
        for n, option in enumerate(part.options, start=1)
    )


def _shape(item: Item, part: QuestionPart, n: int) -> tuple[object, ...]:
    """The facts of an answer that all variants of one question share.

    These are the kind of its field (a number may have its unit behind it, which is a symbol to STACK), where STACK
    writes stars (nowhere, in 3N and at spaces, or also between letters), and what is put in for runs of letters, for
    symbols that relations eliminate, and for the words of units.
    """
    units = _units(part) if part.kind == "numeric" else {}
    kind = "radio" if part.options else "algebraic" if part.kind == "symbolic" or units else "numerical"
    letters = part.kind == "symbolic" and all(len(name) == 1 for name in part.symbols)
    stars = "5" if letters else "4" if kind == "algebraic" else "0"
    worth = _runs(part) if part.kind == "symbolic" and not letters else {}
    worth |= {name: maxima(form, item) for name, form in stands_for(part).items()} | units
    put = ",".join(f"{name}={text}" for name, text in worth.items())
    return n, part.kind, len(part.options), kind, stars, part.points, tuple(units), put


def _units(part: QuestionPart) -> dict[str, str]:
    """The value of each word of a unit, in the unit of the answer: in TFLOP/s a GFLOP is 1/1000 and s is 1."""
    found: dict[str, str] = {}
    for name, times in part.units:
        first, *others = re.findall(r"[A-Za-z]+", name) if name.isascii() else [""]
        worth = 1 / times if name.startswith(first) else Fraction(1)
        found |= {first: str(worth)} if first else {}
        for word in others:
            found.setdefault(word, "1")
    return found


def _runs(part: QuestionPart) -> dict[str, str]:
    """The products that runs of letters stand for, beside names of several letters: NDF is N*D*F."""
    letters = [name for name in part.symbols if len(name) == 1]
    most = next(size for size in range(_LONGEST, -1, -1) if sum(perm(len(letters), n) for n in range(size + 1)) < _RUNS)
    runs = {"".join(some): "*".join(some) for size in range(2, most + 1) for some in permutations(letters, size)}
    return {run: said for run, said in runs.items() if run not in (*part.symbols, *_WORDS)}


def _nodes(item: Item, part: QuestionPart) -> _Nodes:
    """The possible answers, the right one first; compared without the symbols that relations eliminate."""
    found: _Nodes = {}
    for one in part.answers:
        told = typed = spread = ""
        if part.kind == "symbolic" and one.form is not None:
            told, typed = maxima(without_relations(one.form, part), item), maxima(one.form, item)
        elif one.value is not None:
            told, off = part.texts(one.value)
            typed, spread = told, off if part.kind == "numeric" else ""
        if told:
            name, credit = ", ".join(one.names) or "right", one.credit.as_integer_ratio()
            found[one.place, name, "" if part.options else one.feedback, *credit] = told, typed, spread
    return found


def _list(texts: Iterable[str]) -> str:
    return f"[{','.join(texts)}]"


def _string(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
