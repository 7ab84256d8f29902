r"""When a word is a function, and what its call consists of: ``softmax(S)``, ``\log_2 N``, ``TopK_k(g)``.

A word before parentheses may also be a size or several tensors beside a group; what is known decides.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import NamedTuple

from symcomm.core.errors import nearest
from symcomm.core.text.context import Context
from symcomm.core.text.names import find, readings
from symcomm.core.text.spelling import Script, Stem, latex_word
from symcomm.core.text.syntax import Branch, branches, cut_short, only_atom, start_of, stop_of
from symcomm.core.text.tokens import NAME_LIMIT
from symcomm.core.text.tree import Identifier, Node, Number
from symcomm.core.text.vocabulary import words

# Words that are functions when parentheses follow, even where single letters would spell them.
COMMON_FUNCTIONS = frozenset(
    words(
        "sqrt min max ceil ceiling floor log log2 ln exp tanh softmax relu gelu silu swish sigmoid layernorm rmsnorm "
        "dropout concat merge partition split mask embed embedding conv repeat rope einsum"
    )
)
_SIZE_FUNCTIONS = {"sqrt", "min", "max", "ceil", "floor", "log"}
BARE_FUNCTIONS = {rf"\{name}" for name in words("log ln exp tanh sin cos tan")}  # \log N needs no parentheses
_SAME_FUNCTION = {"sigma": "sigmoid", "ceiling": "ceil", "ln": "log"}
_BRACKETS = ("paren", "square", "set")


class FunctionSyntax(NamedTuple):
    """A function before its arguments: ``f_k^2`` has the subscript ``k`` and the exponent ``2``."""

    name: str
    subscript: Node | None
    exponent: Script | None


def is_bracket(factor: Branch) -> bool:
    """Whether arguments may stand in this factor as in parentheses."""
    return branches(factor)[0].data in _BRACKETS


def is_call(context: Context, stem: Stem, scripts: list[Script], following: Branch) -> bool:
    """Whether a word with what follows it is a function's call."""
    if not is_bracket(following) and stem.source not in BARE_FUNCTIONS:
        return False
    if any(script.kind in "'T" for script in scripts):
        return False
    scope, word = context.scope, stem.word.lower()
    if scope.kind == "size":  # n(H + 1) is a product even before n is known
        plain = stem.letters is not None and len(stem.word) > 2 and stem.word.isalpha()  # it can only be a function
        return _is_size_function(word) or (plain and not readings(context, stem, scripts))
    if scope.sizes is None and scope.kind == "answer":
        return word in COMMON_FUNCTIONS
    if find(context, stem, scripts) is not None:
        return False
    return word in COMMON_FUNCTIONS or word in (scope.functions or ()) or not readings(context, stem, scripts)


def _is_size_function(word: str) -> bool:
    return _SAME_FUNCTION.get(word, word) in _SIZE_FUNCTIONS


def function(context: Context, factor: Branch, stem: Stem, scripts: list[Script]) -> FunctionSyntax:
    """The function that a word with its scripts is."""
    word = stem.word
    below = [script for script in scripts if script.kind == "_"]
    above = [script for script in scripts if script.kind == "^"]
    if below and below[0].word is not None and len(below[0].text) > 1:
        word, below = f"{word}_{below[0].text}", below[1:]  # layer_norm(x), plainly written
    if len(below) > 1 or len(above) > 1:
        extra = (below[1:] or above[1:])[0]
        raise context.error("a function has one subscript", extra.start, extra.stop, "take it away")
    word = "layernorm" if word == "LN" and context.scope.kind == "tensor" else word  # where ln is the logarithm
    name = re.sub(r"[_\-\s.]", "", word).lower()
    name = _SAME_FUNCTION.get(name, name) if context.scope.kind != "size" else name
    subscript = _subscript(context, below[0]) if below else None
    if name == "log2" and subscript is None:
        name, subscript = "log", Number(context.over(factor), Fraction(2))
    functions = context.scope.functions
    if context.scope.kind == "size" and not _is_size_function(stem.word.lower()):
        functions = frozenset(_SIZE_FUNCTIONS)
    if functions is not None and name not in functions:
        raise context.wrong(f"unknown function '{stem.word}'", branches(factor)[0], nearest(name, sorted(functions)))
    return FunctionSyntax(name, subscript, above[0] if above else None)


def _subscript(context: Context, script: Script) -> Node:
    """A function's subscript: a number, or a name that need not be declared."""
    assert script.tree is not None
    span = context.span(script.start + 1, script.stop)
    if re.fullmatch(r"[+-]?\d{1,40}(\.\d{1,40})?", script.text):
        return context.counted(Number(span, Fraction(script.text)))
    if len(script.text) > NAME_LIMIT:
        raise context.error("this subscript is too long", script.start, script.stop, "write a name or a number")
    source = context.cell.text[start_of(script.tree) : stop_of(script.tree)].strip("{} ")
    return context.counted(Identifier(span, script.text, latex_word(script.text, source)))


def argument_list(context: Context, bracket: Branch, factor: Branch) -> tuple[Branch, list[Branch]]:
    """The bracket with the arguments, and these; a list in brackets that is the only one stands for its members."""
    if not branches(bracket):
        raise context.wrong(f"'{context.source(factor)}' is called without an argument", bracket, "write f(x)")
    items = branches(branches(bracket)[0])
    if cut_short(items):
        return bracket, items
    only = only_atom(items[0]) if len(items) == 1 else None
    if only is not None and only.data in _BRACKETS and branches(only):
        return argument_list(context, only, factor)
    for item in items:
        if len(item.children) > 1:
            relation = item.children[1]
            raise context.wrong(
                f"`{context.source(relation)}` cannot stand in an argument",
                relation,
                "write the value only, or leave it out: Dropout(x)",
            )
    return bracket, items
