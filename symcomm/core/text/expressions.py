"""Builds the tree of a formula: sums, products, quotients, powers and transposes, down to names, calls and families.

The functions follow the rules of ``formula.lark``: each reads one kind of branch.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from math import comb, prod
from typing import TypeVar

from lark import Token

from symcomm.core.errors import FormulaError, Span, SymcommError, nearest
from symcomm.core.form import evaluate
from symcomm.core.text.calls import BARE_FUNCTIONS, argument_list, function, is_bracket, is_call
from symcomm.core.text.context import Context
from symcomm.core.text.names import find, read_names
from symcomm.core.text.scripts import check_sign, only_name, scripts_of, stem_of
from symcomm.core.text.spelling import Script, Stem, latex, latex_word, spelling
from symcomm.core.text.syntax import (
    Branch,
    Part,
    branches,
    canonical,
    cut_short,
    lone_word,
    only_atom,
    only_factor,
    start_of,
    stop_of,
)
from symcomm.core.text.tokens import DIGITS_LIMIT, EXPONENT_LIMIT
from symcomm.core.text.tree import (
    Exponentiation,
    Family,
    FunctionCall,
    Hadamard,
    Identifier,
    Multiplication,
    Node,
    Number,
    Quoted,
    Quotient,
    Radical,
    Sum,
    Transpose,
    children,
    size_form,
)

_AnyNode = TypeVar("_AnyNode", bound=Node)
_TERM_LIMIT = 300

# -- sums, products, quotients ---------------------------------------------------------------------------------------


def read_whole(context: Context, items: list[Branch]) -> Node:
    """The one formula the items of a cell are."""
    if len(items) > 1:
        hint = "take the comma away"
        if all(context.source(item).strip().isdigit() for item in items[1:]):
            hint = "write numbers without commas: " + "".join(context.source(item).strip() for item in items)
        raise context.wrong("one formula is wanted here, not a list", items[1], hint)
    return read_chain(context, items[0])


def read_chain(context: Context, item: Branch) -> Node:
    """A formula without a relation."""
    if item.data == "dots":
        raise context.wrong("a list is cut short where one formula is wanted", item, "write the formula out")
    if len(item.children) > 1:
        relation = item.children[1]
        raise context.wrong(
            f"`{context.source(relation)}` cannot stand here", relation, "a formula without a relation is wanted"
        )
    return read_sum(context, branches(item)[0])


def read_sum(context: Context, part: Branch) -> Node:
    """Terms with their signs."""
    terms: list[Node] = []
    signs: list[int] = []
    sign = 1
    with context.deeper(part):
        for child in part.children:
            if isinstance(child, Token):
                sign = -1 if child.type == "MINUS" else 1
            else:
                terms.append(read_term(context, child.children))
                signs.append(sign)
                sign = 1
    return added(context, terms, signs, context.over(part))


def added(context: Context, terms: list[Node], signs: list[int], span: Span) -> Node:
    """The sum of terms; a single one is itself, and ``-1`` a number."""
    if len(terms) == 1:
        if signs[0] > 0:
            return terms[0]
        if isinstance(terms[0], Number):
            return Number(span, -terms[0].value)
    return context.counted(Sum(span, tuple(terms), tuple(signs)))


def read_term(context: Context, parts: Sequence[Part]) -> Node:
    r"""Factors; ``\odot`` binds them loosest."""
    groups: list[list[Part]] = [[]]
    signs: list[Token] = []
    for part in parts:
        if isinstance(part, Token) and part.type == "ODOT":
            signs.append(part)
            groups.append([])
        else:
            groups[-1].append(part)
    nodes = [_product(context, group) for group in groups]
    if not signs:
        return nodes[0]
    if context.scope.kind != "tensor":
        message = f"`{context.source(signs[0])}` multiplies tensors, not numbers"
        raise context.wrong(message, signs[0], "write `*`")
    return context.counted(Hadamard(context.over(*parts), tuple(nodes)))


def _product(context: Context, parts: Sequence[Part]) -> Node:
    """Factors side by side, with signs of multiplication or with slashes, from left to right."""
    if len(parts) == 1:
        return _multiplied(context, _factor(context, parts, 0)[0], context.over(parts[0]))
    factors: list[Node] = []
    begin = end = start_of(parts[0])
    operator: Token | None = None  # what stands before the next factor
    slash: Token | None = None  # the slash whose quotient the factors end with
    negative = after_digits = False
    number = 0
    while number < len(parts):
        part = parts[number]
        if isinstance(part, Token):
            if part.type == "MINUS":
                negative = True
            else:
                operator = part
            number += 1
            continue
        divides = operator is not None and operator.type == "SLASH"
        if operator is not None:
            slash = operator if divides else None
        nodes, used = _factor(context, parts, number)
        number += used
        stop = stop_of(parts[number - 1])
        if slash is not None and (len(nodes) > 1 if divides else not _reads_on(context, slash, end, part, nodes)):
            raise _ambiguous(context, slash, part)
        digits = branches(part)[0].data == "number"
        if operator is None and after_digits and digits:
            hint = "write `*` between them, or one number without a gap"
            raise context.wrong("two numbers stand side by side", part, hint)
        if negative:
            nodes[0] = added(context, [nodes[0]], [-1], context.over(part))
        if divides:
            top = _multiplied(context, factors, context.span(begin, end))
            factors = [context.counted(Quotient(context.span(begin, stop), top, nodes[0]))]
        else:
            factors += nodes
        operator, negative, end, after_digits = None, False, stop, digits
    return _multiplied(context, factors, context.span(begin, end))


def _multiplied(context: Context, factors: list[Node], span: Span) -> Node:
    """The product of factors; a single one is itself."""
    if len(factors) == 1:
        return factors[0]
    node = Multiplication(span, tuple(factors))
    return context.counted(node if context.scope.kind == "tensor" else _bounded(node))


def _bounded(node: _AnyNode) -> _AnyNode:
    """The node, if it can be multiplied out: a power of a sum may have millions of terms."""
    if _terms(node) > _TERM_LIMIT:
        message = f"multiplied out, this formula has more than {_TERM_LIMIT:,} terms"
        raise FormulaError(message, node.span, "write a smaller exponent, or give the sum a name")
    return node


def _reads_on(context: Context, slash: Token, end: int, part: Branch, nodes: list[Node]) -> bool:
    """Whether a factor after ``a/b``, which ends at ``end``, plainly multiplies the quotient.

    It does where a tensor follows (nothing is divided by a tensor), and where the spaces say so: ``(k-1)/k N``.
    """
    text = context.cell.text
    before, after = start_of(slash), stop_of(slash)
    spaced = text[before - 1 : before].isspace() or text[after : after + 1].isspace()
    gap = text[end : start_of(part)].isspace()
    return (gap and not spaced) or any(context.scope.is_tensor(node) for node in nodes)


def _ambiguous(context: Context, slash: Token, part: Part) -> FormulaError:
    """``a/bc`` is read in two ways by different people."""
    return context.error(
        "what stands below this `/` can be read in two ways",
        start_of(slash),
        stop_of(part),
        r"write a/(b c) or (a/b) c, or \frac{a}{b} c",
    )


# -- factors and their scripts ---------------------------------------------------------------------------------------


def _factor(context: Context, parts: Sequence[Part], number: int) -> tuple[list[Node], int]:
    """The nodes of the factor at ``parts[number]``, and how many parts were used: 2 for a function's call."""
    factor = parts[number]
    assert isinstance(factor, Branch)
    following = parts[number + 1] if number + 1 < len(parts) else None
    token = lone_word(factor)
    if token is not None and context.scope.is_size(token) and not isinstance(following, Branch):  # most are
        source = context.source(token)
        return [context.counted(Identifier(context.over(factor), str(token), latex_word(token, source)))], 1
    atom = branches(factor)[0]
    scripts = scripts_of(context, factor)
    stem = stem_of(context, atom)
    if stem is None:
        return [_scripted(context, _atom(context, atom), scripts, start_of(factor))], 1
    if isinstance(following, Branch) and is_call(context, stem, scripts, following):
        beside = parts[number + 2] if number + 2 < len(parts) else None
        return [_call(context, factor, stem, scripts, following, beside)], 2
    if isinstance(following, Branch) and (ids := _looked_up(context, following)) is not None:
        *others, table = _names(context, factor, stem, scripts)
        if context.scope.is_tensor(table):
            return [*others, context.counted(FunctionCall(context.over(factor, following), "lookup", (table, ids)))], 2
    return _names(context, factor, stem, scripts), 1


def _looked_up(context: Context, factor: Branch) -> Node | None:
    """The tensor that stands alone in square brackets without scripts: whose rows ``E[t]`` looks up."""
    square = only_atom(factor)
    if context.scope.kind != "tensor" or square is None or square.data != "square" or not branches(square):
        return None
    items = branches(branches(square)[0])
    inside = only_factor(items[0]) if len(items) == 1 and items[0].data == "chain" else None
    stem = stem_of(context, branches(inside)[0]) if inside is not None else None
    return None if inside is None or stem is None else find(context, stem, scripts_of(context, inside))


def _names(context: Context, part: Branch, stem: Stem, scripts: list[Script]) -> list[Node]:
    """The names a stem with its scripts stands for, with their exponents and transposes."""
    found = read_names(context, part, stem, scripts)
    return [_scripted(context, context.counted(one.name), one.scripts, one.start) for one in found]


def _scripted(context: Context, base: Node, scripts: Sequence[Script], start: int) -> Node:
    """Powers and transposes of a base that stands at ``start``."""
    raised = False
    for script in scripts:
        where = script.start, script.stop
        span = context.span(start, script.stop)
        if script.kind == "T" or (script.kind == "^" and script.text == "T" and context.scope.transposes(base)):
            if isinstance(base, Number) or context.scope.kind != "tensor":
                raise context.error("a number has no transpose", *where, "take it away")
            base = context.counted(Transpose(span, base))
        elif script.kind == "^":
            if raised:
                hint = "write braces: a^{b^c} or {a^b}^c"
                raise context.error("two exponents stand above each other", *where, hint)
            base, raised = _power(context, base, script, span), True
        else:
            what = "a number" if isinstance(base, Number) else "an expression"
            mark = context.cell.text[script.start : script.stop]
            raise context.error(f"{what} cannot have `{mark}`", *where, "only names have it")
    return base


def _power(context: Context, base: Node, script: Script, span: Span) -> Node:
    """``base^exponent``."""
    assert script.tree is not None
    node = Exponentiation(span, base, read_argument(context, script.tree))
    if _degree(node) > EXPONENT_LIMIT:
        message = f"exponents go up to {EXPONENT_LIMIT:,}"
        raise context.error(message, script.start, script.stop, "write a smaller exponent")
    return context.counted(_bounded(node))


def read_argument(context: Context, tree: Branch) -> Node:
    r"""The contents of a script, of a root or of a fraction."""
    check_sign(context, tree)
    # Brackets are counted where their sum is read.
    with context.deeper(tree, levels=tree.data not in ("braces", "paren")):
        stem = stem_of(context, tree)
        if stem is None or tree.data == "braces":
            return _atom(context, tree)
        return _multiplied(context, _names(context, tree, stem, []), context.over(tree))


def read_size(context: Context, tree: Branch) -> Node:
    """A size in a script, a range or a shape."""
    read = {"chain": read_chain, "sum": read_sum}.get(tree.data, read_argument)
    with context.among_sizes():
        return read(context, tree)


# -- what scripts stand at: numbers, fractions, roots, groups ---------------------------------------------------------


def _atom(context: Context, atom: Branch) -> Node:
    """A number, fraction, root or group."""
    kind, inner, span = atom.data, branches(atom), context.over(atom)
    if kind in ("number", "minus"):
        if kind == "number" and re.match(r"0\d", canonical(atom)):
            hint = "digits stand in groups of three: 12 000"
            raise context.wrong(f"a number begins with 0: `{context.source(atom)}`", atom, hint)
        return context.counted(Number(span, Fraction(canonical(atom))))
    if kind == "frac":
        top, bottom = (read_argument(context, one) for one in inner)
        return context.counted(Quotient(span, top, bottom))
    if kind == "root":
        return _root(context, atom)
    if kind in ("ceil", "floor"):
        inside = read_whole(context, branches(inner[0]))
        return context.counted(FunctionCall(span, str(kind), (inside,)))
    if kind in ("font", "accent"):
        return read_argument(context, inner[-1])
    if kind == "quoted":
        if context.scope.kind != "tensor":
            raise context.wrong("a quotation cannot stand here", atom, "write a formula without quotation marks")
        text = str(atom.children[0])
        return context.counted(Quoted(context.span(start_of(atom) + 1, stop_of(atom) - 1), text))
    if kind == "mark":
        raise context.wrong(f"`{context.source(atom)}` has nothing to stand at", atom, "write a name before it")
    if not inner:
        raise context.wrong(f"`{context.source(atom)}` is empty", atom, "write a formula between them")
    if inner[0].data == "mark":
        return _atom(context, inner[0])
    items = branches(inner[0])
    if cut_short(items) and context.scope.kind == "tensor":
        return read_family(context, items, span)
    if kind == "set":
        raise context.wrong("a set cannot stand here", atom, "write parentheses")
    if len(items) > 1 and kind == "square" and context.scope.kind == "tensor":
        comma = all(isinstance(one, Branch) or context.source(one) == "," for one in inner[0].children)
        last = Number(span, Fraction(-1)) if comma else None
        parts = tuple(read_chain(context, item) for item in items)
        return context.counted(FunctionCall(span, "concat", parts, last))
    if len(items) > 1:
        raise context.wrong(
            "this is a list, but one formula is wanted",
            atom,
            r"a list is an argument, as in \text{Concat}(A, B), or a family, as in [Q_1, \dots, Q_n]",
        )
    return read_chain(context, items[0])


def _root(context: Context, atom: Branch) -> Node:
    r"""``\sqrt{a}``, and ``\sqrt[n]{a}`` as a power."""
    inner = branches(atom)
    inside = read_argument(context, inner[-1])
    span = context.over(atom)
    if inner[0].data == "cell":
        order = read_whole(context, branches(inner[0]))
        if not isinstance(order, Number) or order.value < 1 or order.value.denominator > 1:
            raise context.wrong("the degree of a root is a whole number", inner[0], r"for example \sqrt[3]{x}")
        if order.value != 2:
            return context.counted(Exponentiation(span, inside, Number(order.span, 1 / order.value)))
    return context.counted(Radical(span, inside))


# -- calls and families ----------------------------------------------------------------------------------------------


def _call(
    context: Context, factor: Branch, stem: Stem, scripts: list[Script], following: Branch, beside: Part | None
) -> Node:
    r"""``f(x, y)``, ``f_k(x)``, ``f(x)^2``, ``f^2(x)``; ``\log N`` if nothing stands ``beside`` it."""
    called = function(context, factor, stem, scripts)
    if not is_bracket(following):
        span = context.over(factor, following)
        [inside, *more] = _factor(context, [following], 0)[0]
        if more or (isinstance(beside, Branch) and context.source(beside) not in BARE_FUNCTIONS):
            first = inside.span.word if more else context.source(following)
            rest = context.cell.text[start_of(following) + len(first) : stop_of(beside or following)].strip(" $")
            head = context.source(factor)
            ways = [f"{head}({first} {rest})", f"{head}({first}) {rest}"]
            if isinstance(inside, Number) and called.subscript is None and called.name == "log":
                ways.append(f"{head}_{first}({rest})")
            said = f"what `{head}` takes can be read in two ways"
            raise context.error(said, start_of(factor), stop_of(beside or following), "write " + " or ".join(ways))
        bare: Node = context.counted(FunctionCall(span, called.name, (inside,), called.subscript))
        return bare if called.exponent is None else _power(context, bare, called.exponent, span)
    bracket = branches(following)[0]
    arguments = _arguments(context, bracket, factor)
    span = context.over(factor, bracket)
    node: Node
    if called.name == "sqrt":
        if len(arguments) != 1:
            raise context.wrong(f"sqrt takes one argument, not {len(arguments)}", bracket, "write sqrt(x)")
        node = context.counted(Radical(span, arguments[0]))
    else:
        node = context.counted(FunctionCall(span, called.name, arguments, called.subscript))
    if called.exponent is not None:
        node = _power(context, node, called.exponent, span)
    return _scripted(context, node, scripts_of(context, following), start_of(factor))


def _arguments(context: Context, bracket: Branch, factor: Branch) -> tuple[Node, ...]:
    """The arguments of a call."""
    bracket, items = argument_list(context, bracket, factor)
    if cut_short(items):
        return (read_family(context, items, context.over(bracket)),)
    return tuple(read_chain(context, item) for item in items)


def read_family(context: Context, items: list[Branch], span: Span) -> Family:
    r"""``[Q_1, Q_2, \dots, Q_{n_h}]`` has the name ``Q`` and the last index ``n_h``."""
    name, last = _listed(context, items)
    tree = last[0].tree
    assert tree is not None
    count = read_size(context, tree) if len(last) == 1 else _plain_count(context, last)
    scope = context.scope
    if scope.kind == "tensor" and scope.tensors and not scope.is_family(name.key):
        known = [one for one, indices in scope.tensors.items() if any(indices)]
        hint = nearest(name.key, known) or f"declare its members: ${name.key}_i \\in ..., i = 1, \\dots, n$"
        raise context.wrong(f"unknown family '{name.key}'", items[0], hint)
    return context.counted(Family(span, name, count))


_FAMILY_HINT = r"write [Q_1, Q_2, \dots, Q_n]"


def _listed(context: Context, items: list[Branch]) -> tuple[Identifier, list[Script]]:
    """The name of the family that a list with dots is, and the subscripts of its last member."""
    dots = [number for number, item in enumerate(items) if item.data == "dots"]
    if dots != [len(items) - 2] or len(items) < 3:
        raise context.wrong("a family has its first members, dots, and its last member", items[dots[0]], _FAMILY_HINT)
    items = [item for item in items if item.data != "dots"]
    members = [_member(context, item) for item in items]
    stem, scripts = members[0]
    if not scripts or scripts[-1].kind != "_":
        raise context.wrong("the first member of a family has the subscript 1", items[0], _FAMILY_HINT)
    own = scripts[:-1]
    key = spelling(stem.word, own).key
    for number, (other, scripts) in enumerate(members[:-1], start=1):
        if not scripts or spelling(other.word, scripts[:-1]).key != key or scripts[-1].text != str(number):
            raise context.wrong(
                f"member {number} of this family should be {key}_{number}", items[number - 1], "members count up from 1"
            )
    other, scripts = members[-1]
    last = scripts[len(own) :]
    if spelling(other.word, scripts[: len(own)]).key != key or not last or any(one.kind != "_" for one in last):
        raise context.wrong(
            f"the last member of this family should be {key} with a subscript", items[-1], f"such as {key}_n"
        )
    span = context.span(stem.start, stem.stop(own))
    return context.counted(Identifier(span, key, latex(context.cell.text, stem, own))), last


def _plain_count(context: Context, scripts: list[Script]) -> Identifier:
    """The last index of a family whose subscript has subscripts, plainly written: ``n_h`` of ``Z_n_h``."""
    key = "_".join(script.text for script in scripts)
    start, stop = scripts[0].start + 1, scripts[-1].stop
    if context.scope.sizes is not None and key not in context.scope.sizes:
        raise context.error(f"unknown size '{key}'", start, stop, nearest(key, sorted(context.scope.sizes)))
    context.sizes_found.add(key)
    stem = Stem(scripts[0].text, scripts[0].text, start)
    return context.counted(Identifier(context.span(start, stop), key, latex(context.cell.text, stem, scripts[1:])))


def _member(context: Context, item: Branch) -> tuple[Stem, list[Script]]:
    """The stem and scripts of a name in a list."""
    found = only_name(context, item)
    if found is None:
        raise context.wrong("a family lists names", item, _FAMILY_HINT)
    factor, stem = found
    return stem, scripts_of(context, factor)


# -- how high the powers of a formula go, told before anything computes them -----------------------------------------


def _degree(node: Node) -> Fraction:
    """How high the powers in a formula go together: nested exponents multiply."""
    if isinstance(node, Exponentiation):
        exponent = _constant(node.exponent)
        below = _degree(node.base)
        return below * max(Fraction(1), abs(exponent)) if exponent is not None else below
    if isinstance(node, Number):  # a number of many digits counts for as many as it is long
        digits = max(abs(node.value.numerator), node.value.denominator).bit_length() * 0.302
        return Fraction(max(1, int(digits) // DIGITS_LIMIT))
    return max((_degree(child) for child in children(node)), default=Fraction(1))


def _terms(node: Node) -> int:
    """How many terms a formula has at most when it is multiplied out: ``(a + b + c)^2`` has six."""
    if isinstance(node, Exponentiation):
        below, exponent = _terms(node.base), _constant(node.exponent)
        power = int(abs(exponent)) if exponent is not None else 1
        return comb(below + power - 1, power) if below > 1 and power > 1 else below
    if isinstance(node, Sum):
        return sum(map(_terms, node.terms))
    if isinstance(node, (Multiplication, Quotient)):
        return prod(map(_terms, children(node)))
    return max(map(_terms, children(node)), default=1)


def _constant(node: Node) -> Fraction | None:
    """The size of a number in an exponent, or a bound that is too large; None where it has names."""
    try:  # what stands in it is bounded already
        value = evaluate(size_form(node), {})
    except SymcommError:
        return None
    small = max(abs(value.numerator), value.denominator) < 10**DIGITS_LIMIT
    return value if small else Fraction(10 * EXPONENT_LIMIT)
