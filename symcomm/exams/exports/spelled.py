"""Formulas as other programs read them: Maxima's text, and a tree of lists that a server builds SymPy from."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from symcomm.core import form as forms
from symcomm.core.errors import DocumentError
from symcomm.core.form import Form, Num, Sym, names
from symcomm.exams.exports.item import Item, QuestionPart

# What is no symbol in Maxima or in PrairieLearn.
_TAKEN = frozenset({
    "e", "i", "j", "pi", "E", "I", "inf", "infinity", "oo", "gamma", "beta", "zeta", "sin", "cos", "tan", "sec", "csc",
    "cot", "asin", "acos", "atan", "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh", "exp", "log", "ln", "sqrt",
    "abs", "min", "max", "sgn", "factorial", "floor", "ceiling",
})  # fmt: skip
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:_[A-Za-z0-9]+)?")


def check_names(form: Form, item: Item) -> tuple[str, ...]:
    """The symbols of a form. Raises ``DocumentError`` for one that students cannot type there."""
    for name in names(form):
        if name in _TAKEN or not _NAME.fullmatch(name):
            said = f"{item.id}: '{name[:40]}' is no name of a symbol where the exam is held"
            raise DocumentError(said, item.span, "give it another name: letters and digits, one _")
    return names(form)


def stands_for(part: QuestionPart) -> dict[str, Form]:
    """The symbols on the left of relations, in terms of the others: formulas are compared without them."""
    found: dict[str, Form] = {}
    for name, right in part.relations:
        found[name] = forms.substitute(right, lambda symbol: found.get(symbol.name, symbol))
    return found


def without_relations(form: Form, part: QuestionPart) -> Form:
    """A formula in those symbols that no relation eliminates."""
    found = stands_for(part)
    return forms.substitute(form, lambda symbol: found.get(symbol.name, symbol))


def tree(form: Form, item: Item) -> list[Any]:
    """A form as nested lists: ``["times", ["number", 8, 1], ["symbol", "b"]]``.

    Raises ``DocumentError`` for what has no counterpart there.
    """

    def refuse(form: Form, go: object) -> list[Any]:
        raise DocumentError(f"{item.id}: that format asks for no formula with {type(form).__name__}", item.span)

    algebra: forms.Algebra[list[Any]] = forms.Algebra({
        **forms.of_parts(_HEADS),
        Num: lambda num, go: ["number", num.number.numerator, num.number.denominator],
        Sym: lambda sym, go: ["symbol", sym.name],
    }, refuse)  # fmt: skip
    return algebra(form)


def _logarithm(inside: list[Any], base: int) -> list[Any]:
    log = ["log", inside]
    return ["over", log, ["log", ["number", base, 1]]] if base else log


_HEADS: dict[type[Form], Callable[..., list[Any]]] = {
    forms.Total: lambda terms: ["plus", *terms], forms.Product: lambda factors: ["times", *factors],
    forms.Ratio: lambda *parts: ["over", *parts], forms.Power: lambda *parts: ["power", *parts],
    forms.Root: lambda inside: ["sqrt", inside], forms.Ceiling: lambda inside: ["ceiling", inside],
    forms.Floor: lambda inside: ["floor", inside], forms.Largest: lambda choices: ["max", *choices],
    forms.Smallest: lambda choices: ["min", *choices], forms.Logarithm: _logarithm,
}  # fmt: skip
_SIGNS = {"plus": "+", "times": "*", "over": "/", "power": "^"}


def maxima(form: Form, item: Item) -> str:
    """A form as Maxima reads it, every operation in brackets of its own."""
    check_names(form, item)

    def go(node: list[Any]) -> str:
        kind, *parts = node
        if kind == "number":
            top, bottom = parts
            text = str(top) if bottom == 1 else f"{top}/{bottom}"
            return f"({text})" if bottom != 1 or top < 0 else text
        if kind == "symbol":
            return str(parts[0])
        inside: Callable[[str], str] = lambda sign: sign.join(map(go, parts))  # noqa: E731
        return f"({inside(_SIGNS[kind])})" if kind in _SIGNS else f"{kind}({inside(',')})"

    return go(tree(form, item))
