"""Decides what the words of a formula are (names, functions, families, domains) and builds its tree."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

from lark import Token, Tree, UnexpectedInput, UnexpectedToken

from symcomm.errors import FormulaError, Span, nearest
from symcomm.text.bounds import degree
from symcomm.text.syntax import (
    Branch,
    Part,
    bare_atom,
    branches,
    canonical,
    ends_transposed,
    grammar,
    is_letter,
    levels,
    only_atom,
    only_factor,
    placed,
    start_of,
    stop_of,
)
from symcomm.text.table import Cell
from symcomm.text.tokens import DEPTH_LIMIT, EXPONENT_LIMIT, GREEK, NAME_LIMIT, Scanner, words
from symcomm.text.tree import (
    Call,
    Family,
    Hadamard,
    Name,
    Node,
    Number,
    Power,
    Product,
    Quotient,
    Root,
    Sum,
    Transpose,
)

NODE_LIMIT = 500
# A bracket is seven rules of the grammar within each other.
_LEVEL_LIMIT = 8 * DEPTH_LIMIT

# Words that are functions when parentheses follow, even where single letters would spell them.
_COMMON_FUNCTIONS = frozenset(
    words(
        "sqrt min max ceil ceiling floor log exp tanh softmax relu gelu silu swish sigmoid layernorm rmsnorm dropout "
        "concat merge partition split mask embed embedding conv repeat rope"
    )
)
_SIZE_FUNCTIONS = {"sqrt", "min", "max", "ceil", "floor", "log"}
_BARE_FUNCTIONS = {r"\log", r"\ln", r"\exp", r"\tanh"}  # \log N needs no parentheses
_SAME_FUNCTION = {"sigma": "sigmoid", "ceiling": "ceil", "ln": "log"}
SHAPE_HINT = r"write $x \in \mathbb{R}^{B \times L \times D}$, or x [B, L, D]"
_TENSOR, SIZE, _ANSWER = "tensor", "size", "answer"


@dataclass
class Scope:
    """What is known where a formula stands.

    ``tensors`` has, for each key, the indices it was declared with (``""`` for a plain name); ``sizes`` is None
    where any name may be a size. ``indices`` are those that run in this row.
    """

    tensors: dict[str, set[str]] = field(default_factory=dict)
    sizes: frozenset[str] | None = frozenset()
    indices: frozenset[str] = frozenset()
    functions: frozenset[str] | None = None
    kind: str = _TENSOR

    def is_family(self, key: str) -> bool:
        """Whether members of a family of this key were declared."""
        return any(self.tensors.get(key, ()))

    def find(self, key: str, without: str, letter: str) -> tuple[str, str] | None:
        """The key and index a spelling stands for: ``key`` as it is, or ``without`` its last subscript ``letter``."""
        if "" in self.tensors.get(key, ()):
            return key, ""
        if letter and self.is_family(without) and (letter in self.indices or is_letter(letter)):
            return without, letter
        if self.sizes is not None and key in self.sizes:
            return key, ""
        return None

    def known(self) -> list[str]:
        """Every known name as a person writes it."""
        names = {
            f"{key}_{index}" if index else key for key, indices in self.tensors.items() for index in sorted(indices)
        }
        return sorted(names | (self.sizes or frozenset()))


@dataclass(frozen=True)
class Script:
    """What is attached to a base: ``kind`` is ``_``, ``^``, ``'`` or ``T``; ``text`` its canonical spelling."""

    kind: str
    text: str
    start: int
    stop: int
    tree: Branch | None = None
    word: Token | None = None  # an unbraced word, whose tail may belong to the next name

    def cut(self, length: int) -> Script:
        """The script with only the first letters of its word."""
        assert self.word is not None
        start = start_of(self.word)
        tree = bare_atom(self.text[:length], start)
        return Script(self.kind, self.text[:length], self.start, start + length, tree, self.word)


class _Base(NamedTuple):
    """What a name begins with: its canonical word, and its source, which stands at ``start``.

    The letters of the word may be ``split`` into several names; they stand at ``letters``.
    """

    word: str
    source: str
    start: int
    split: bool = False
    letters: int = 0


class _Reading:
    """One way to split a run of letters into names: the nodes, and how they were found."""

    def __init__(self, nodes: tuple[Node, ...]) -> None:
        self.nodes = nodes


class Reader:
    """Reads one cell; the public functions of :mod:`symcomm.text.formula` are its methods with a scope."""

    def __init__(self, cell: Cell, scope: Scope) -> None:
        self.cell, self.scope = cell, scope
        self.depth = self.count = 0
        self.sizes_found: set[str] = set()

    # -- places and errors ---------------------------------------------------------------------------------------

    def span(self, start: int, stop: int) -> Span:
        """Columns of the cell as a span of its line."""
        return self.cell.span(start, stop)

    def over(self, parts: Sequence[Part]) -> Span:
        """From the first part's begin to the last one's end."""
        return self.span(start_of(parts[0]), stop_of(parts[-1]))

    def error(self, message: str, start: int, stop: int, hint: str = "") -> FormulaError:
        """An error at columns of the cell."""
        return FormulaError(message, self.span(start, stop), hint)

    def wrong(self, message: str, part: Part, hint: str = "") -> FormulaError:
        """An error at a part of the formula."""
        return self.error(message, start_of(part), stop_of(part), hint)

    def source(self, part: Part) -> str:
        """The text of a part as it was written."""
        return self.cell.text[start_of(part) : stop_of(part)]

    def counted(self, node: Node) -> Node:
        """The node, once there is room for it."""
        self.count += 1
        if self.count > NODE_LIMIT:
            raise FormulaError(
                f"this formula has more than {NODE_LIMIT} parts", self.cell.span(), "split it into several rows"
            )
        return node

    # -- from text to the grammar's tree ---------------------------------------------------------------------------

    def parse(self) -> list[Branch]:
        """The items of the cell, which commas separate."""
        tokens = Scanner(self.cell, words_join=self.scope.kind == _TENSOR).tokens()
        if not tokens:
            what = f"the cell {self.cell.column} is empty" if self.cell.column else "there is nothing to read"
            raise FormulaError(what, self.cell.span(), self.expects())
        try:
            tree = grammar().parse(tokens)  # a custom lexer takes any input
        except UnexpectedToken as error:
            raise self.translated(error, tokens) from None
        except UnexpectedInput:  # pragma: no cover - a custom lexer meets no characters
            raise FormulaError("this formula is not understood", self.cell.span(), self.expects()) from None
        if levels(tree) > _LEVEL_LIMIT:  # \hat\hat\hat x nests without a bracket
            raise self.deep(tree)
        return branches(tree)

    def expects(self) -> str:
        """What would be right in this cell."""
        column = self.cell.column.casefold().removesuffix("s")
        if column in ("input", "output"):
            return SHAPE_HINT
        if self.scope.kind == _TENSOR:
            return "write a computation such as $Q = xW^Q$"
        return "write a formula such as 24 N_layer D^2"

    def translated(self, error: UnexpectedToken, tokens: list[Token]) -> FormulaError:
        """Lark's error in words about the formula."""
        token = error.token
        starts = bool({"WORD", "NUMBER"} & set(error.expected))
        place = next((number for number, one in enumerate(tokens) if one is token), len(tokens))
        before = self.source(tokens[place - 1]) if place else ""
        if token.type == "COMMA" and start_of(token) == stop_of(token):
            token = tokens[place + 1]  # this comma was only understood: name what stands there
        if token.type == "$END":
            last = tokens[-1]
            return self.wrong(f"something is missing after `{self.source(last)}`", last, _after(last.type))
        shown = self.source(token) or token.value
        if token.type == "DOTS":
            hint = r"a list is cut short like Q_1, Q_2, \dots, Q_n or i = 1, \dots, n"
            return self.wrong(f"`{shown}` cannot stand here", token, hint)
        if starts and place:
            hint = _after(tokens[place - 1].type)
            return self.wrong(f"something is missing between `{before}` and `{shown}`", token, hint)
        if starts:
            return self.wrong(f"the formula cannot begin with `{shown}`", token, self.expects())
        return self.wrong(f"`{shown}` cannot stand after `{before}`", token, "is an operator missing between them?")

    def deep(self, part: Part) -> FormulaError:
        """A formula within a formula within a formula."""
        hint = "name a part of it in a row of its own"
        return self.wrong(f"this formula is nested more than {DEPTH_LIMIT} deep", part, hint)

    # -- sums, products, quotients -------------------------------------------------------------------------------

    def whole(self, items: list[Branch]) -> Node:
        """The one formula the items are."""
        if len(items) > 1:
            raise self.wrong("one formula is wanted here, not a list", items[1], self.list_hint(items))
        return self.chain(items[0])

    def list_hint(self, items: list[Branch]) -> str:
        """Why there may be a comma."""
        if all(self.source(item).strip().isdigit() for item in items[1:]):
            return "write numbers without commas: " + "".join(self.source(item).strip() for item in items)
        return "take the comma away"

    def chain(self, item: Branch) -> Node:
        """A formula without a relation."""
        if item.data == "dots":
            raise self.wrong("a list is cut short where one formula is wanted", item, "write the formula out")
        if len(item.children) > 1:
            relation = item.children[1]
            raise self.wrong(
                f"`{self.source(relation)}` cannot stand here",
                relation,
                "a formula without a relation is wanted",
            )
        return self.sum(item.children[0])

    def sum(self, part: Part) -> Node:
        """Terms with their signs."""
        assert isinstance(part, Tree)
        self.depth += 1
        if self.depth > DEPTH_LIMIT:
            raise self.deep(part)
        terms: list[Node] = []
        signs: list[int] = []
        sign = 1
        for child in part.children:
            if isinstance(child, Token):
                sign = -1 if child.type == "MINUS" else 1
            else:
                terms.append(self.term(child.children))
                signs.append(sign)
                sign = 1
        self.depth -= 1
        return self.added(terms, signs, self.over([part]))

    def added(self, terms: list[Node], signs: list[int], span: Span) -> Node:
        """The sum of terms; a single one is itself, and ``-1`` a number."""
        if len(terms) == 1:
            if signs[0] > 0:
                return terms[0]
            if isinstance(terms[0], Number):
                return Number(span, -terms[0].value)
        return self.counted(Sum(span, tuple(terms), tuple(signs)))

    def term(self, parts: Sequence[Part]) -> Node:
        r"""Factors; ``\odot`` binds them loosest."""
        groups: list[list[Part]] = [[]]
        for part in parts:
            if isinstance(part, Token) and part.type == "ODOT":
                groups.append([])
            else:
                groups[-1].append(part)
        nodes = [self.product(group) for group in groups]
        if len(nodes) == 1:
            return nodes[0]
        if self.scope.kind != _TENSOR:
            sign = next(part for part in parts if isinstance(part, Token) and part.type == "ODOT")
            raise self.wrong(f"`{self.source(sign)}` multiplies tensors, not numbers", sign, "write `*`")
        return self.counted(Hadamard(self.over(parts), tuple(nodes)))

    def product(self, parts: Sequence[Part]) -> Node:
        """Factors side by side, with signs of multiplication or with slashes, from left to right."""
        factors: list[Node] = []
        begin = start_of(parts[0])
        end = begin
        slash: Token | None = None  # the slash before the factor read last
        negative = divide = joined = False
        number = 0
        while number < len(parts):
            part = parts[number]
            if isinstance(part, Token):
                if part.type == "SLASH":
                    slash, divide = part, True
                elif part.type == "MINUS":
                    negative = True
                else:
                    slash = None
                joined = part.type != "MINUS" or joined
                number += 1
                continue
            nodes, used = self.factor(parts, number)
            stop = stop_of(parts[number + used - 1])
            if divide:
                if len(nodes) > 1:
                    raise self.ambiguous(slash, part)
                bottom = self.signed(nodes[0], negative, part)
                top = self.multiplied(factors, self.span(begin, end))
                factors = [self.counted(Quotient(self.span(begin, stop), top, bottom))]
            else:
                if slash is not None and not self.reads_on(slash, end, part, nodes):
                    raise self.ambiguous(slash, part)
                if not joined and factors and isinstance(nodes[0], Number):
                    self.apart(factors[-1], part)
                first = self.signed(nodes[0], negative, part)
                factors += [first, *nodes[1:]]
            negative = divide = joined = False
            end = stop
            number += used
        return self.multiplied(factors, self.span(begin, end))

    def apart(self, before: Node, part: Part) -> None:
        """Two numbers side by side are neither a product nor one number."""
        if isinstance(before, Number):
            raise self.wrong(
                "two numbers stand side by side", part, "write `*` between them, or one number without a gap"
            )

    def signed(self, node: Node, negative: bool, part: Part) -> Node:
        """The node, or its negative."""
        return self.added([node], [-1], self.over([part])) if negative else node

    def multiplied(self, factors: list[Node], span: Span) -> Node:
        """The product of factors; a single one is itself."""
        if len(factors) == 1:
            return factors[0]
        return self.counted(Product(span, tuple(factors)))

    def reads_on(self, slash: Token, end: int, part: Branch, nodes: list[Node]) -> bool:
        """Whether a factor after ``a/b`` plainly multiplies the quotient.

        It does where a tensor follows (nothing is divided by a tensor), and where the spaces say so: ``(k-1)/k N``.
        """
        text = self.cell.text
        spaced = (
            text[start_of(slash) - 1 : start_of(slash)].isspace() or text[stop_of(slash) : stop_of(slash) + 1].isspace()
        )
        between = text[end : start_of(part)]
        gap = between != "" and not between.strip()
        return (gap and not spaced) or any(self.is_tensor(node) for node in nodes)

    def is_tensor(self, node: Node) -> bool:
        """Whether a name in the node was declared as a tensor."""
        if isinstance(node, Name):
            return node.key in self.scope.tensors
        if isinstance(node, (Transpose, Root)):
            return self.is_tensor(node.inside)
        if isinstance(node, (Product, Hadamard)):
            return any(self.is_tensor(one) for one in node.factors)
        if isinstance(node, Sum):
            return any(self.is_tensor(one) for one in node.terms)
        if isinstance(node, Call):
            return any(self.is_tensor(one) for one in node.arguments)
        return False

    def ambiguous(self, slash: Token | None, part: Part) -> FormulaError:
        """``a/bc`` is read in two ways by different people."""
        assert slash is not None
        return self.error(
            "what stands below this `/` can be read in two ways",
            start_of(slash),
            stop_of(part),
            r"write a/(b c) or (a/b) c, or \frac{a}{b} c",
        )

    # -- factors ---------------------------------------------------------------------------------------------------

    def factor(self, parts: Sequence[Part], number: int) -> tuple[list[Node], int]:
        """The nodes of the factor at ``parts[number]``, and how many parts were used: 2 for a function's call."""
        part = parts[number]
        assert isinstance(part, Tree)
        following = parts[number + 1] if number + 1 < len(parts) else None
        atom = part.children[0]
        assert isinstance(atom, Tree)
        scripts = self.scripts(part)
        base = self.base(atom)
        if base is not None:
            if isinstance(following, Tree) and self.calls(base, scripts, following):
                return [self.call(part, base, scripts, following)], 2
            return self.names(part, base, scripts), 1
        inside = self.atom(atom)
        return [self.scripted(inside, scripts, part)], 1

    def base(self, atom: Branch) -> _Base | None:
        """Canonical text, source and whether letters may be split, if the atom can begin a name."""
        if atom.data == "word":
            return _Base(str(atom.children[0]), self.source(atom), start_of(atom), True, start_of(atom))
        if atom.data == "text":
            return _Base(str(atom.children[0]), self.source(atom), start_of(atom))
        if atom.data == "accent":
            inner = branches(atom)[0]
            accented = canonical(inner)
            if not re.fullmatch(r"[A-Za-z0-9_^']+", accented):
                raise self.wrong("an accent stands over a name", atom, r"for example \hat{x}")
            return _Base(f"{accented}_{atom.children[0]}", self.source(atom), start_of(atom))
        if atom.data in ("font", "braces") and branches(atom):
            inner = branches(atom)[-1]
            only = inner if atom.data == "font" and inner.data != "braces" else only_atom(inner)
            if only is not None and only.data in ("word", "text", "accent", "font"):
                found = self.base(only)
                return found and found._replace(source=self.source(atom), start=start_of(atom))
        return None

    def scripts(self, part: Branch) -> list[Script]:
        """What is attached to a factor, in order."""
        found: list[Script] = []
        for script in branches(part)[1:]:
            mark = script.children[0]
            assert isinstance(mark, Token)
            start, stop = start_of(script), stop_of(script)
            if mark.type == "PRIME":
                found.append(Script("'", str(mark), start, stop))
            elif mark.type == "TRANSPOSED":
                found.append(Script("T", "T", start, stop))
            else:
                tree = script.children[1]
                assert isinstance(tree, Tree)
                text = canonical(tree)
                if len(text) > NAME_LIMIT and self.base(tree) is not None:
                    raise self.wrong(f"this script has more than {NAME_LIMIT} characters", tree, "shorten the name")
                word = tree.children[0] if tree.data == "word" else None
                if mark.type == "CARET" and text and not text.strip("'"):
                    found.append(Script("'", text, start, stop))
                elif mark.type == "CARET" and ends_transposed(tree):
                    if text[:-1]:  # ^{Q\top}: a name's superscript, then a transpose
                        found.append(Script("^", text[:-1], start, stop, tree))
                    found.append(Script("T", "T", start, stop))
                elif text:
                    kind = "_" if mark.type == "UNDER" else "^"
                    found.append(Script(kind, text, start, stop, tree, word if isinstance(word, Token) else None))
        return found

    def scripted(self, inside: Node, scripts: list[Script], part: Branch) -> Node:
        """Powers and transposes of something that is not a name."""
        start = start_of(part)
        raised = False
        for script in scripts:
            span = self.span(start, script.stop)
            if script.kind == "T" or (script.kind == "^" and script.text == "T" and not self.is_size("T", inside)):
                if isinstance(inside, Number) or self.scope.kind != _TENSOR:
                    raise self.error("a number has no transpose", script.start, script.stop, "take it away")
                inside = self.counted(Transpose(span, inside))
            elif script.kind == "^":
                inside = self.power(inside, script, span, raised)
                raised = True
            else:
                what = "a number" if isinstance(inside, Number) else "an expression"
                mark = self.cell.text[script.start : script.stop]
                raise self.error(f"{what} cannot have `{mark}`", script.start, script.stop, "only names have it")
        return inside

    def is_size(self, key: str, base: Node) -> bool:
        """Whether ``^T`` over this base is a power: T is a size, and the base a number or scalar."""
        return self.scope.sizes is not None and key in self.scope.sizes and not self.is_tensor(base)

    def power(self, base: Node, script: Script, span: Span, doubled: bool = False) -> Node:
        """``base^exponent``."""
        assert script.tree is not None
        if doubled:
            raise self.error(
                "two exponents stand above each other", script.start, script.stop, "write braces: a^{b^c} or {a^b}^c"
            )
        exponent = self.argument(script.tree)
        node = Power(span, base, exponent)
        if degree(node) > EXPONENT_LIMIT:
            raise self.error(
                f"exponents go up to {EXPONENT_LIMIT:,}", script.start, script.stop, "write a smaller exponent"
            )
        return self.counted(node)

    def atom(self, atom: Branch) -> Node:
        """A number, fraction, root or group."""
        kind = atom.data
        if kind == "number":
            return self.number(atom)
        if kind == "minus":
            number = self.number(branches(atom)[0])
            sign = atom.children[0]
            assert isinstance(number, Number)
            assert isinstance(sign, Token)
            return Number(self.over([atom]), -number.value if sign.type == "MINUS" else number.value)
        if kind == "frac":
            top, bottom = (self.argument(one) for one in branches(atom))
            return self.counted(Quotient(self.over([atom]), top, bottom))
        if kind == "root":
            return self.root(atom)
        if kind in ("ceil", "floor"):
            inside = self.whole(branches(branches(atom)[0]))
            return self.counted(Call(self.over([atom]), str(kind), (inside,)))
        if kind in ("font", "accent"):
            return self.argument(branches(atom)[-1])
        if kind == "mark":
            raise self.wrong(f"`{self.source(atom)}` has nothing to stand at", atom, "write a name before it")
        cells = branches(atom)
        if not cells:
            raise self.wrong(f"nothing stands in `{self.source(atom)}`", atom, "write what is meant between them")
        if cells[0].data == "mark":
            return self.atom(cells[0])
        items = branches(cells[0])
        if any(item.data == "dots" for item in items) and self.scope.kind == _TENSOR:
            return self.family(items, self.over([atom]))
        if kind == "set":
            raise self.wrong("a set cannot stand here", atom, "write parentheses")
        if len(items) > 1:
            raise self.wrong(
                "a list stands where one formula is wanted",
                atom,
                r"a list is an argument, as in \text{Concat}(A, B), or a family, as in [Q_1, \dots, Q_n]",
            )
        return self.chain(items[0])

    def number(self, atom: Branch) -> Node:
        """An exact number."""
        text = str(atom.children[0])
        return self.counted(Number(self.over([atom]), Fraction(text)))

    def root(self, atom: Branch) -> Node:
        r"""``\sqrt{a}``, and ``\sqrt[n]{a}`` as a power."""
        children = branches(atom)
        inside = self.argument(children[-1])
        if children[0].data == "cell":
            degree = self.whole(branches(children[0]))
            if not isinstance(degree, Number) or degree.value < 1 or degree.value.denominator > 1:
                raise self.wrong("the degree of a root is a whole number", children[0], r"for example \sqrt[3]{x}")
            if degree.value != 2:
                over = Number(degree.span, 1 / degree.value)
                return self.counted(Power(self.over([atom]), inside, over))
        return self.counted(Root(self.over([atom]), inside))

    def argument(self, tree: Branch) -> Node:
        r"""What stands in a script, below a root or in a fraction."""
        bare = tree.data not in ("braces", "paren")  # brackets are counted where their sum is read
        self.depth += bare
        if self.depth > DEPTH_LIMIT:
            raise self.deep(tree)
        base = self.base(tree)
        node: Node
        if base is not None and tree.data != "braces":
            nodes = self.names(tree, base, [])
            node = self.multiplied(nodes, self.over([tree]))
        else:
            node = self.atom(tree)
        self.depth -= bare
        return node

    # -- functions -------------------------------------------------------------------------------------------------

    def calls(self, base: _Base, scripts: list[Script], following: Branch) -> bool:
        """Whether a word with what follows it is a function's call."""
        atom = following.children[0]
        bracket = isinstance(atom, Tree) and atom.data in ("paren", "square", "set")
        if not bracket and base.source not in _BARE_FUNCTIONS:
            return False
        if any(script.kind in "'T" for script in scripts):
            return False
        word, splittable = base.word, base.split
        if self.scope.kind == SIZE:  # n(H + 1) is a product even before n is known
            return _SAME_FUNCTION.get(word.lower(), word.lower()) in _SIZE_FUNCTIONS
        if self.whole_name(word, scripts) is not None:
            return False
        if splittable and not (word.lower() in _COMMON_FUNCTIONS or word.lower() in (self.scope.functions or ())):
            return not self.readings(base, scripts)
        return True

    def call(self, part: Branch, base: _Base, scripts: list[Script], following: Branch) -> Node:
        r"""``f(x, y)``, ``f_k(x)``, ``f(x)^2``, ``f^2(x)``."""
        word = base.word
        below = [script for script in scripts if script.kind == "_"]
        above = [script for script in scripts if script.kind == "^"]
        if below and below[0].word is not None and len(below[0].text) > 1:
            word, below = f"{word}_{below[0].text}", below[1:]  # layer_norm(x), plainly written
        if len(below) > 1 or len(above) > 1:
            extra = (below[1:] or above[1:])[0]
            raise self.error("a function has one subscript", extra.start, extra.stop, "take it away")
        function = re.sub(r"[_\-\s.]", "", word).lower()
        function = _SAME_FUNCTION.get(function, function) if self.scope.kind != SIZE else function
        subscript = self.below(below[0]) if below else None
        if function == "log2" and subscript is None:
            function, subscript = "log", Number(self.over([part]), Fraction(2))
        functions = self.scope.functions
        if functions is not None and function not in functions:
            raise self.wrong(f"unknown function '{base.word}'", part.children[0], nearest(function, sorted(functions)))
        atom = following.children[0]
        assert isinstance(atom, Tree)
        if atom.data not in ("paren", "square", "set"):
            argument = self.multiplied(self.factor([following], 0)[0], self.over([following]))
            return self.counted(Call(self.over([part, following]), function, (argument,), subscript))
        arguments = self.arguments(atom, part)
        span = self.span(start_of(part), stop_of(atom))
        node: Node
        if function == "sqrt":
            if len(arguments) != 1:
                raise self.wrong(f"sqrt takes one argument, not {len(arguments)}", atom, "write sqrt(x)")
            node = self.counted(Root(span, arguments[0]))
        else:
            node = self.counted(Call(span, function, arguments, subscript))
        if above:
            node = self.power(node, above[0], span)
        both = placed(Tree("factor", [part, following]), start_of(part), stop_of(following))
        return self.scripted(node, self.scripts(following), both)

    def below(self, script: Script) -> Node:
        """A function's subscript: a number, or a name that need not be declared."""
        assert script.tree is not None
        span = self.span(script.start + 1, script.stop)
        if re.fullmatch(r"[+-]?\d{1,40}(\.\d{1,40})?", script.text):
            return self.counted(Number(span, Fraction(script.text)))
        if len(script.text) > NAME_LIMIT:
            raise self.error("this subscript is too long", script.start, script.stop, "write a name or a number")
        source = self.cell.text[start_of(script.tree) : stop_of(script.tree)].strip("{} ")
        return self.counted(Name(span, script.text, _latex_word(script.text, source)))

    def arguments(self, atom: Branch, part: Branch) -> tuple[Node, ...]:
        """The arguments in parentheses; a list in brackets that is the only one stands for its members."""
        cells = branches(atom)
        if not cells:
            raise self.wrong(f"'{self.source(part)}' is called without an argument", atom, "write f(x)")
        items = branches(cells[0])
        if any(item.data == "dots" for item in items):
            return (self.family(items, self.over([atom])),)
        if len(items) == 1:
            only = only_atom(items[0])
            if only is not None and only.data in ("square", "set", "paren") and branches(only):
                return self.arguments(only, part)
        for item in items:
            if len(item.children) > 1:
                relation = item.children[1]
                raise self.wrong(
                    f"`{self.source(relation)}` cannot stand in an argument",
                    relation,
                    "write the value only, or leave it out: Dropout(x)",
                )
        return tuple(self.chain(item) for item in items)

    # -- names -----------------------------------------------------------------------------------------------------

    def whole_name(self, word: str, scripts: list[Script]) -> tuple[str, str] | None:
        """Key and index, if the base with all its scripts is one known name."""
        if any(script.kind == "T" for script in scripts):
            return None
        return self.scope.find(*spellings(word, scripts))

    def names(self, part: Branch, base: _Base, scripts: list[Script]) -> list[Node]:
        """The names a run of letters and scripts stands for, in order."""
        readings = self.readings(base, scripts)
        if len(readings) > 1:
            ways = " or ".join("`" + " ".join(_shown(node) for node in reading.nodes) + "`" for reading in readings[:2])
            raise self.wrong(f"'{self.source(part)}' may be {ways}", part, "put spaces between the names")
        if readings:
            nodes = list(readings[0].nodes)
            for node in nodes:
                self.counted(node)
            return nodes
        if self.scope.sizes is None and self.scope.kind == SIZE:
            return [self.counted(self.open_size(part, base, scripts))]
        raise self.unknown(part, base, scripts)

    def open_size(self, part: Branch, base: _Base, scripts: list[Script]) -> Node:
        """A size that nobody declared: sizes are declared by being used in a shape."""
        word, source, start = base.word, base.source, base.start
        above = scripts[-1] if scripts and scripts[-1].kind == "^" else None
        if any(script.kind == "T" for script in scripts):
            raise self.wrong("a size has no transpose", part, "write a size such as 4D")
        power = above is not None and re.fullmatch(r"\d+", above.text) is not None
        own = scripts[:-1] if power else scripts
        key, _, _ = spellings(word, own)
        self.check_key(key, part)
        stop = own[-1].stop if own else stop_of(part.children[0] if part.data == "factor" else part)
        name = Name(self.span(start, stop), key, self.latex(word, source, own))
        self.sizes_found.add(key)
        if power and above is not None:
            return self.power(name, above, self.over([part]))
        return name

    def check_key(self, key: str, part: Part) -> None:
        """Names are short."""
        if len(key) > NAME_LIMIT:
            raise self.wrong(
                f"this name has {len(key)} characters; names have at most {NAME_LIMIT}", part, "shorten the name"
            )

    def unknown(self, part: Branch, base: _Base, scripts: list[Script]) -> FormulaError:
        """A name that nothing declares."""
        plain = [script for script in scripts if script.kind != "T" and script.text != "T"]
        key, without, letter = spellings(base.word, plain)
        self.check_key(key, part)
        kind = "size" if self.scope.kind == SIZE else "name"
        if letter and self.scope.is_family(without):
            index = sorted(self.scope.tensors[without] - {""})[0]
            return self.wrong(
                f"'{key}' is one member of the family {without}_{index}",
                part,
                f"a row computes all members at once: write {without}_{index}",
            )
        hint = nearest(key, self.scope.known())
        if self.scope.kind == _TENSOR and not hint.startswith("did you mean"):
            hint = f"declare it among the inputs of this row, or above it; {hint}" if hint else "declare it first"
        return self.wrong(f"unknown {kind} '{key}'", part, hint)

    def readings(self, base: _Base, scripts: list[Script]) -> list[_Reading]:
        """The ways to read a run; at most two are looked for. One whole name wins over any split."""
        word = base.word
        single = self.attached(word, base.source, scripts, base.start)
        if single is not None:
            return [_Reading((single,))]
        if not base.split:
            return self.divided(word, base.source, scripts, base.start)
        if len(word) + sum(len(script.text) for script in scripts if script.word is not None) > 3 * NAME_LIMIT:
            return []
        return self.split(word, scripts, base.letters)

    def split(self, word: str, scripts: list[Script], start: int) -> list[_Reading]:
        """Splits of a word into known names; its last name takes the scripts."""
        memo: dict[tuple[int, int], list[_Reading]] = {}

        def rest(word: str, scripts: list[Script], start: int) -> list[_Reading]:
            key = (start, len(scripts))
            if key not in memo:
                memo[key] = []  # no reading needs itself
                found: list[_Reading] = []
                for length in range(1, len(word)):
                    head = self.attached(word[:length], word[:length], [], start)
                    if head is not None:
                        found += [
                            _Reading((head, *tail.nodes)) for tail in rest(word[length:], scripts, start + length)
                        ]
                    if len(found) > 1:
                        break
                last = self.attached(word, word, scripts, start)
                if last is not None:
                    found.append(_Reading((last,)))
                else:
                    found += ends(word, scripts, start)
                memo[key] = found[:2]
            return memo[key]

        def ends(word: str, scripts: list[Script], start: int) -> list[_Reading]:
            """The whole word with its scripts, the tail of one of which begins the next name."""
            found: list[_Reading] = []
            for number, script in enumerate(scripts):
                if script.word is None:
                    continue
                for length in range(1, len(script.text)):
                    head = self.attached(word, word, [*scripts[:number], script.cut(length)], start)
                    if head is None:
                        continue
                    after = start_of(script.word) + length
                    tails = rest(script.text[length:], scripts[number + 1 :], after)
                    found += [_Reading((head, *tail.nodes)) for tail in tails]
                    if len(found) > 1:
                        return found
            return found

        return rest(word, scripts, start)

    def divided(self, word: str, source: str, scripts: list[Script], start: int) -> list[_Reading]:
        """The same for a word that is whole, such as a Greek letter: only its scripts may have a tail."""
        found: list[_Reading] = []
        for number, script in enumerate(scripts):
            if script.word is None:
                continue
            for length in range(1, len(script.text)):
                head = self.attached(word, source, [*scripts[:number], script.cut(length)], start)
                if head is not None:
                    after = start_of(script.word) + length
                    tails = self.split(script.text[length:], scripts[number + 1 :], after)
                    found += [_Reading((head, *tail.nodes)) for tail in tails]
                if len(found) > 1:
                    return found[:2]
        return found

    def attached(self, word: str, source: str, scripts: list[Script], start: int) -> Node | None:
        """One known name with all scripts; the last one may be a transpose or an exponent."""
        stop = scripts[-1].stop if scripts else start + len(source)
        span = self.span(start, stop)
        found = self.whole_name(word, scripts)
        if found is not None:
            return Name(span, found[0], self.latex(word, source, scripts), found[1])
        if not scripts or scripts[-1].kind not in "^T":
            return None
        last, own = scripts[-1], scripts[:-1]
        inner = self.attached(word, source, own, start) if last.kind == "T" else None
        if inner is not None:
            if self.scope.kind != _TENSOR:
                raise self.error("a number has no transpose", last.start, last.stop, "take it away")
            return Transpose(span, inner)
        found = self.whole_name(word, own)
        if found is None or last.kind == "T":
            return None
        stop = own[-1].stop if own else start + len(source)
        name = Name(self.span(start, stop), found[0], self.latex(word, source, own), found[1])
        if last.text == "T" and not self.is_size("T", name):
            if self.scope.kind != _TENSOR:
                raise self.error("a number has no transpose", last.start, last.stop, "take it away")
            return Transpose(span, name)
        if last.word is not None and (self.scope.sizes is None or last.text not in self.scope.sizes):
            return None
        return self.power(name, last, span)

    def latex(self, word: str, source: str, scripts: list[Script]) -> str:
        """How the author wrote a name; a plain spelling of many letters becomes the LaTeX of the same name."""
        text = self.cell.text
        pieces = [_latex_word(word, source)]
        for script in scripts:
            shown = re.sub(r"\s+", " ", text[script.start : script.stop])
            if script.kind == "'":
                pieces.append("'" * len(script.text))
            elif script.word is not None and len(script.text) > 1:
                pieces.append(f"{script.kind}{{{_latex_word(script.text, script.text)}}}")
            elif shown.isascii() and shown[:1] in "_^":
                pieces.append(shown)
            else:
                pieces.append(f"{script.kind}{{{script.text}}}")
        return "".join(pieces)

    # -- families and sizes ---------------------------------------------------------------------------------------

    def family(self, items: list[Branch], span: Span) -> Family:
        r"""``Q_1, Q_2, \dots, Q_{n_h}``."""
        members = [item for item in items if item.data != "dots"]
        hint = r"write [Q_1, Q_2, \dots, Q_n]"
        dots = [number for number, item in enumerate(items) if item.data == "dots"]
        if len(dots) != 1 or dots[0] == 0 or dots[0] != len(items) - 2:
            raise self.wrong(
                "a family has its first members, dots, and its last member", items[dots[0]] if dots else items[0], hint
            )
        parsed = [self.member(item) for item in members]
        first_word, first_source, first_scripts, first_start = parsed[0]
        if not first_scripts or first_scripts[-1].kind != "_":
            raise self.wrong("the first member of a family has the subscript 1", members[0], hint)
        own = first_scripts[:-1]
        key, _, _ = spellings(first_word, own)
        for number, ((word, _, scripts, _), item) in enumerate(zip(parsed[:-1], members, strict=False), start=1):
            if not scripts or spellings(word, scripts[:-1])[0] != key or scripts[-1].text != str(number):
                raise self.wrong(
                    f"member {number} of this family should be {key}_{number}", item, "members count up from 1"
                )
        word, _, scripts, _ = parsed[-1]
        last = scripts[len(own) :]
        if spellings(word, scripts[: len(own)])[0] != key or not last or any(one.kind != "_" for one in last):
            raise self.wrong(
                f"the last member of this family should be {key} with a subscript", members[-1], f"such as {key}_n"
            )
        count = self.last_index(last, members[-1])
        stop = own[-1].stop if own else first_start + len(first_source)
        name = Name(self.span(first_start, stop), key, self.latex(first_word, first_source, own))
        self.counted(name)
        if self.scope.kind == _TENSOR and self.scope.tensors and not self.scope.is_family(key):
            known = [one for one, indices in self.scope.tensors.items() if any(indices)]
            raise self.wrong(
                f"unknown family '{key}'",
                members[0],
                nearest(key, known) or f"declare its members: ${key}_i \\in ..., i = 1, \\dots, n$",
            )
        node = self.counted(Family(span, name, count))
        assert isinstance(node, Family)
        return node

    def member(self, item: Branch) -> tuple[str, str, list[Script], int]:
        """The parts of a name in a list."""
        factor = only_factor(item)
        atom = factor.children[0] if factor is not None else None
        base = self.base(atom) if isinstance(atom, Tree) else None
        if factor is None or base is None:
            raise self.wrong("a family lists names", item, r"write [Q_1, Q_2, \dots, Q_n]")
        return base.word, base.source, self.scripts(factor), start_of(factor)

    def last_index(self, scripts: list[Script], item: Branch) -> Node:
        """How many members there are: the last one's subscript."""
        if len(scripts) == 1:
            tree = scripts[0].tree
            assert tree is not None
            return self.size(tree)
        key = "_".join(script.text for script in scripts)  # Z_n_h, plainly written
        start, stop = scripts[0].start + 1, scripts[-1].stop
        latex = self.latex(scripts[0].text, scripts[0].text, scripts[1:])
        if self.scope.sizes is not None and key not in self.scope.sizes:
            raise self.error(f"unknown size '{key}'", start, stop, nearest(key, sorted(self.scope.sizes)))
        self.sizes_found.add(key)
        return self.counted(Name(self.span(start, stop), key, latex))

    def size(self, tree: Branch) -> Node:
        """A size in a script, a range or a shape."""
        kind, self.scope.kind = self.scope.kind, (SIZE if self.scope.kind == _TENSOR else self.scope.kind)
        tensors, self.scope.tensors = self.scope.tensors, {}
        try:
            return self.argument(tree) if tree.data not in ("chain", "sum") else self.size_chain(tree)
        finally:
            self.scope.kind, self.scope.tensors = kind, tensors

    def size_chain(self, tree: Branch) -> Node:
        return self.chain(tree) if tree.data == "chain" else self.sum(tree)


def _after(kind: str) -> str:
    """What belongs behind a token of a kind."""
    if kind in ("UNDER", "CARET"):
        return "a script is a letter, a number, or a group in braces"
    if kind in ("FRAC", "SQRT", "ACCENT", "FONT"):
        return r"give its argument in braces: \frac{a}{b}, \sqrt{a}, \hat{x}"
    if kind == "RELATION":
        return "a formula or a shape belongs there"
    return "a name, a number or a group belongs there"


# -- spellings of names --------------------------------------------------------------------------------------------


def spellings(word: str, scripts: Sequence[Script]) -> tuple[str, str, str]:
    """The key of a name; its key without the last part of the last subscript; and that part."""
    primes = "".join(script.text for script in scripts if script.kind == "'")
    above = "".join(f"^{script.text}" for script in scripts if script.kind == "^")
    below = [script.text for script in scripts if script.kind == "_"]
    if "_" in word and not word.startswith("_") and not below:
        # \text{d_model} and N_layer: an underscore within the word begins its subscript all the same.
        word, *below = word.split("_")
    key = word + primes + "".join(f"_{one}" for one in below) + above
    if not below:
        return key, "", ""
    head, _, letter = below[-1].rpartition(",")
    rest = [*below[:-1], head] if head else below[:-1]
    return key, word + primes + "".join(f"_{one}" for one in rest) + above, letter


def _latex_word(word: str, source: str) -> str:
    if source.startswith("\\") or len(word) == 1:
        return source if source.isascii() else word
    if word in GREEK:
        return f"\\{word}"
    if not source.isascii():
        return {"bbR": r"\mathbb{R}", "bbZ": r"\mathbb{Z}", "bbN": r"\mathbb{N}", "ell": r"\ell"}.get(word, word)
    if source.startswith("{"):
        return source
    return "\\text{" + word.replace("_", r"\_") + "}"


def _shown(node: Node) -> str:
    if isinstance(node, Name):
        return f"{node.key}_{node.index}" if node.index else node.key
    if isinstance(node, Transpose):
        return f"{_shown(node.inside)}^T"
    if isinstance(node, Power):
        return f"{_shown(node.base)}^..."
    return node.span.word
