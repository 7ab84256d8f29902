"""Reads a whole cell: ranges of indices, declarations of shapes, and the one computation of a row."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction

from lark import Token, Tree

from symcomm.errors import FormulaError, Span
from symcomm.text.reader import SHAPE_HINT, SIZE, Reader, Script, spellings
from symcomm.text.syntax import (
    Branch,
    Part,
    branches,
    canonical,
    has_relation,
    integer_of,
    is_letter,
    leaf,
    letter_of,
    lone_word,
    only_atom,
    only_factor,
    start_of,
    stop_of,
    term_of,
)
from symcomm.text.tree import Declaration, Equation, Family, Name, Node, Number, Range, Sum

_DOMAINS = {"R": "R", "bbR": "R", "Z": "Z", "bbZ": "Z", "N": "Z", "bbN": "Z", "bbB": "B", "B": "B", "reals": "R"}


class CellReader(Reader):
    """Reads one cell of a table."""

    # -- ranges ----------------------------------------------------------------------------------------------------

    def ranges(self, items: list[Branch]) -> tuple[list[Branch], list[Range]]:
        r"""The other items, and the ranges: ``i = 1, \dots, n``, ``i \in \{1..n\}``, ``1 \le i \le n``."""
        kept: list[Branch] = []
        found: list[Range] = []
        number = 0
        while number < len(items):
            one, used = self.range_at(items, number)
            if one is None:
                kept.append(items[number])
                number += 1
            else:
                found.append(one)
                number += used
        return kept, found

    def range_at(self, items: list[Branch], number: int) -> tuple[Range | None, int]:
        """The range that begins at an item, and how many items it takes."""
        item = items[number]
        relations = [str(child) for child in item.children if isinstance(child, Token)] if item.data == "chain" else []
        sides = branches(item)
        if relations == ["="] and (index := letter_of(sides[0])) and integer_of(sides[1]) is not None:
            dots = number + 1
            while dots < len(items) and items[dots].data == "chain" and integer_of(items[dots]) is not None:
                dots += 1
            if dots >= len(items) or items[dots].data != "dots":
                return None, 0
            if dots + 1 >= len(items):
                raise self.wrong(
                    f"the last value of {index} is missing", items[dots], rf"write ${index} = 1, \dots, n$"
                )
            first, last = integer_of(sides[1]), items[dots + 1]
            return self.range(index, first, last, item), dots + 2 - number
        if relations == ["in"] and (index := letter_of(sides[0])):
            only = only_atom(sides[1])
            if only is None or only.data not in ("set", "square") or not branches(only):
                return None, 0
            inner = branches(branches(only)[0])
            cut = [place for place, one in enumerate(inner) if one.data == "dots"]
            if len(cut) == 1 and cut[0] == len(inner) - 2 and integer_of(inner[0]) is not None:
                return self.range(index, integer_of(inner[0]), inner[-1], item), 1
        if relations == ["<=", "<="] and (index := letter_of(sides[1])):
            return self.range(index, integer_of(sides[0]), sides[2], item), 1
        return None, 0

    def range(self, index: str, first: int | None, last: Branch, item: Branch) -> Range:
        """The range of an index from 1; one from 0 to n-1 is counted the same."""
        count = self.size(last)
        span = self.span(start_of(item), stop_of(last))
        if first == 0:
            count = _plus_one(count)
        elif first != 1:
            hint = rf"write ${index} = 1, \dots, n$"
            raise self.error(f"the index {index} should begin at 1", start_of(item), stop_of(last), hint)
        node = self.counted(Range(span, index, count))
        assert isinstance(node, Range)
        return node

    # -- declarations ----------------------------------------------------------------------------------------------

    def declarations(self, items: list[Branch]) -> list[Declaration]:
        r"""``x, y \in \mathbb{R}^{B \times D}, W [D, 4D]``, without the ranges."""
        found: list[Declaration] = []
        waiting: list[Branch] = []
        for item in items:
            if item.data == "dots":
                waiting.append(item)
                continue
            shape = self.shape_of(item)
            if shape is None:
                waiting.append(item)
                continue
            head, domain, sizes = shape
            names = self.declared([*waiting, head])
            waiting = []
            found += [Declaration(self.span(start_of(item), stop_of(item)), name, sizes, domain, ()) for name in names]
        if waiting:
            item = waiting[0]
            what = self.source(waiting[-1]) if len(waiting) == 1 else self.source(item)
            if any(str(child) == "=" for child in item.children):
                raise self.wrong("a shape is wanted here, not an equation", item, SHAPE_HINT)
            raise self.wrong(f"`{what}` has no shape", item, SHAPE_HINT)
        return found

    def declared(self, items: list[Branch]) -> list[Name]:
        """The names before a shape; a family in a list is one name."""
        if any(item.data == "dots" for item in items):
            family = self.family(items, self.over(items))
            index = sorted(self.scope.indices)[0] if self.scope.indices else "i"
            return [Name(family.name.span, family.name.key, f"{family.name.latex}_{index}", index)]
        return [self.new_name(item) for item in items]

    def new_name(self, item: Branch) -> Name:
        """A name that is being declared: all of its scripts belong to it."""
        factor = item if item.data == "factor" else only_factor(item)
        atom = factor.children[0] if factor is not None else None
        base = self.base(atom) if isinstance(atom, Tree) else None
        if factor is None or base is None:
            raise self.wrong("a name is wanted before its shape", item, SHAPE_HINT)
        scripts = [Script("^", "T", one.start, one.stop) if one.kind == "T" else one for one in self.scripts(factor)]
        key, without, letter = spellings(base.word, scripts)
        self.check_key(key, factor)
        index = ""
        if letter and (letter in self.scope.indices or (is_letter(letter) and self.scope.is_family(without))):
            key, index = without, letter
        name = Name(self.over([factor]), key, self.latex(base.word, base.source, scripts), index)
        self.counted(name)
        return name

    def shape_of(self, item: Branch) -> tuple[Branch, str, tuple[Node, ...]] | None:
        """The name's part, the domain and the sizes of ``x in R^{...}``, ``x: [...]`` or ``x [...]``."""
        relations = [child for child in item.children if isinstance(child, Token)]
        sides = branches(item)
        if not relations:
            factors = term_of(sides[0])
            if factors is not None and len(factors) == 2 and all(isinstance(one, Tree) for one in factors):
                head, shape = factors
                assert isinstance(head, Tree)
                assert isinstance(shape, Tree)
                atom = shape.children[0]
                if isinstance(atom, Tree) and atom.data in ("square", "paren") and len(shape.children) == 1:
                    return head, "R", self.shape(atom)
            return None
        if len(relations) > 1 or relations[0].value not in ("in", ":"):
            return None
        domain, sizes = self.domain(sides[1], relations[0])
        return sides[0], domain, sizes

    def domain(self, side: Branch, relation: Token) -> tuple[str, tuple[Node, ...]]:
        """The domain and sizes right of a relation."""
        factors = term_of(side)
        factor = factors[0] if factors is not None and len(factors) == 1 else None
        if isinstance(factor, Tree):
            atom = factor.children[0]
            assert isinstance(atom, Tree)
            scripts = branches(factor)[1:]
            if atom.data in ("square", "paren") and not scripts:
                return "R", self.shape(atom)
            base = self.base(atom)
            name = base.word if base is not None else ""
            if atom.data == "set" and re.fullmatch(r"\{0,1\}", re.sub(r"\s", "", canonical(atom))):
                name = "bbB"
            if name not in _DOMAINS:
                raise self.wrong(
                    f"`{self.source(atom)}` is not a domain", atom, r"write \mathbb{R} (real) or \mathbb{Z} (whole)"
                )
            if not scripts:
                return _DOMAINS[name], ()
            script = scripts[0]
            mark = script.children[0]
            if len(scripts) > 1 or not isinstance(mark, Token) or mark.type != "CARET":
                raise self.wrong(f"`{self.source(scripts[-1])}` cannot stand at a domain", scripts[-1], SHAPE_HINT)
            argument = script.children[1]
            assert isinstance(argument, Tree)
            return _DOMAINS[name], self.shape(argument)
        if relation.value == ":" and factors is not None:
            return "R", self.sizes([side])
        raise self.wrong("a domain with a shape is wanted here", side, SHAPE_HINT)

    def shape(self, atom: Branch) -> tuple[Node, ...]:
        r"""The sizes in ``{B \times L}``, ``(B, L)``, ``[B, L]`` or a single size."""
        if atom.data not in ("braces", "paren", "square"):
            return (self.size(atom),)
        cells = branches(atom)
        if not cells:
            if atom.data == "square" or atom.data == "paren":
                return ()  # [] is a scalar's shape in programs
            raise self.wrong("the shape is missing between these braces", atom, SHAPE_HINT)
        if cells[0].data == "mark":
            raise self.wrong(f"`{self.source(cells[0])}` is not a shape", cells[0], SHAPE_HINT)
        items = branches(cells[0])
        if len(items) == 1:
            only = only_atom(items[0])
            if only is not None and only.data in ("braces", "paren", "square"):
                return self.shape(only)
            factors = term_of(items[0]) or []
            words = [self.source(one) for one in factors]
            if atom.data == "square" and len(words) > 1 and "".join(words) != self.source(items[0]):
                self.apart_or_product(items[0], factors, words)
        for item in items:
            if item.data == "dots" or len(item.children) > 1:
                raise self.wrong("a shape lists its sizes", item, SHAPE_HINT)
        return self.sizes([side for item in items for side in branches(item)])

    def apart_or_product(self, item: Branch, factors: list[Part], words: list[str]) -> None:
        """Refuse ``[B L D]``, which some write for three axes and others for a product; ``[4 D]`` is one size."""
        if all(isinstance(one, Tree) for one in factors) and not words[0][0].isdigit():
            lone = [token for one in factors if (token := lone_word(one)) is not None and "x" in token]
            if not lone:
                how = f"write [{', '.join(words)}] for axes, [{'*'.join(words)}] for a product"
                count = {2: "two", 3: "three", 4: "four"}.get(len(words), str(len(words)))
                raise self.wrong(f"these sizes may be {count} axes or one product", item, how)

    def sizes(self, sides: list[Branch]) -> tuple[Node, ...]:
        r"""The sizes between ``\times``; ``L+1`` between two of them is one size."""
        kind, self.scope.kind = self.scope.kind, SIZE
        tensors, self.scope.tensors = self.scope.tensors, {}
        try:
            return tuple(node for side in sides for node in self.axes(side))
        finally:
            self.scope.kind, self.scope.tensors = kind, tensors

    def axes(self, side: Branch) -> list[Node]:
        axes: list[list[tuple[int, list[Part]]]] = [[]]
        sign = 1
        for child in side.children:
            if isinstance(child, Token):
                sign = -1 if child.type == "MINUS" else 1
                continue
            pieces: list[list[Part]] = [[]]
            for part in self.crossed(child.children):
                if isinstance(part, Token) and part.type == "TIMES":
                    pieces.append([])
                else:
                    pieces[-1].append(part)
            for number, piece in enumerate(pieces):
                if not piece:
                    raise self.wrong("a size is missing in this shape", side, SHAPE_HINT)
                if number:
                    axes.append([])
                axes[-1].append((sign if number == 0 else 1, piece))
            sign = 1
        nodes: list[Node] = []
        for axis in axes:
            terms = [self.term(piece) for _, piece in axis]
            parts = [axis[0][1][0], axis[-1][1][-1]]
            nodes.append(self.added(terms, [one for one, _ in axis], self.over(parts)))
        return nodes

    def crossed(self, parts: Sequence[Part]) -> list[Part]:
        """The parts of a shape, with a plain letter x between sizes read as the sign it stands for."""
        found: list[Part] = []
        for number, part in enumerate(parts):
            token = lone_word(part)
            inner = number > 0 and isinstance(parts[number - 1], Tree)
            if token is None or "x" not in token or (self.scope.sizes is not None and token in self.scope.sizes):
                found.append(part)
                continue
            pieces = str(token).split("x")
            outer = number + 1 < len(parts) and isinstance(parts[number + 1], Tree)
            fits = all(re.fullmatch(r"[A-Za-z]|\d+[A-Za-z]?", piece) for piece in pieces[1:-1]) and all(
                re.fullmatch(r"[A-Za-z]|\d+[A-Za-z]?", piece) or (not piece and beside)
                for piece, beside in ((pieces[0], inner), (pieces[-1], outer))
            )
            if not fits:
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

    # -- equations -------------------------------------------------------------------------------------------------

    def equation(self, items: list[Branch], ranges: tuple[Range, ...], target: Target) -> Equation:
        """The cell's one computation."""
        place = next((number for number, item in enumerate(items) if has_relation(item, "=")), None)
        if place is None:
            other = next((child for item in items for child in item.children if isinstance(child, Token)), None)
            if other is not None and other.type == "RELATION":
                raise self.wrong(
                    f"`{self.source(other)}` stands where the computation's `=` belongs",
                    other,
                    "write a computation such as $Q = xW^Q$; shapes stand in the columns Input and Output",
                )
            raise self.error(
                "this computation has no `=`",
                start_of(items[0]) if items else 0,
                stop_of(items[-1]) if items else len(self.cell.text),
                "write the result, `=`, and what it is computed from: $Q = xW^Q$",
            )
        item = items[place]
        if len(item.children) > 3:
            raise self.wrong(
                "this computation has more than one relation", item.children[3], "write one computation in a row"
            )
        if place + 1 < len(items):
            raise self.wrong(
                "one computation is wanted in a row, not a list", items[place + 1], "write a row for each of them"
            )
        left, _, right = item.children
        assert isinstance(left, Tree)
        result = target(self, [*items[:place], left])
        formula = self.sum(right)
        return Equation(self.over([items[0], items[-1]]), result, formula, ranges)


class Target:
    """How the left side of an equation is read: against the names its row puts out."""

    def __init__(self, outputs: Sequence[Name] | None) -> None:
        self.outputs = outputs
        self.notes: list[str] = []

    def __call__(self, reader: CellReader, parts: list[Branch]) -> Node:
        span = reader.over(parts)
        items = parts
        if len(parts) == 1:
            only = only_atom(parts[0])
            if only is not None and only.data in ("square", "paren", "set", "braces") and branches(only):
                items = branches(branches(only)[0])
        if any(item.data == "dots" for item in items):
            return self.family(reader, items, span)
        if len(items) > 1:
            raise reader.error(
                "a row computes one result, not several",
                start_of(parts[0]),
                stop_of(parts[-1]),
                r"write a row for each of them, or a family [Q_1, \dots, Q_n]",
            )
        return self.name(reader, items[0])

    def family(self, reader: CellReader, items: list[Branch], span: Span) -> Family:
        tensors, reader.scope.tensors = reader.scope.tensors, {}  # the target need not be known before
        family = reader.family(items, span)
        reader.scope.tensors = tensors
        if self.outputs is None:
            return family
        families = {name.key: name for name in self.outputs if name.index}
        if family.name.key in families:
            return family
        near = [key for key in families if key.casefold() == family.name.key.casefold()]
        if len(near) == 1:
            self.note(family.name.key, near[0])
            name = family.name
            return Family(family.span, Name(name.span, near[0], name.latex), family.count)
        raise self.missing(f"the family {family.name.key}", span)

    def name(self, reader: CellReader, item: Branch) -> Name:
        item = item if item.data in ("factor",) else (only_factor(item) or item)
        try:
            name = reader.new_name(item)
        except FormulaError as error:
            if error.message.startswith("a name is wanted"):
                error.message = "a name is wanted left of `=`"
                error.hint = "write the result, `=`, and what it is computed from: $Q = xW^Q$"
                raise FormulaError(error.message, error.span, error.hint) from None
            raise
        if self.outputs is None:
            return name
        spellings = [(name.key, name.index)]
        head, _, letter = name.key.rpartition("_")
        if not name.index and head:
            spellings.append((head, letter))
        for key, index in spellings:
            for output in self.outputs:
                if output.key == key and (output.index == index or (index and output.index and is_letter(index))):
                    return Name(name.span, key, name.latex, index)
        for key, index in spellings:
            near = [
                output
                for output in self.outputs
                if output.key.casefold() == key.casefold() and bool(output.index) == bool(index)
            ]
            if len(near) == 1:
                self.note(key, near[0].key)
                return Name(name.span, near[0].key, name.latex, index)
        shown = f"{name.key}_{name.index}" if name.index else name.key
        raise self.missing(f"'{shown}'", name.span)

    def note(self, written: str, declared: str) -> None:
        self.notes.append(f"'{written}' is read as '{declared}', which the Output cell declares")

    def missing(self, what: str, span: Span) -> FormulaError:
        assert self.outputs is not None
        names = [f"{name.key}_{name.index}" if name.index else name.key for name in self.outputs]
        listed = " and ".join([", ".join(f"'{one}'" for one in names[:-1]), f"'{names[-1]}'"] if len(names) > 1 else [])
        declares = listed or f"'{names[0]}'"
        return FormulaError(
            f"this row computes {what}, but its Output cell declares {declares}",
            span,
            "give both the same name",
        )


def _plus_one(count: Node) -> Node:
    """``n`` for ``n - 1``: how many values run from 0."""
    if isinstance(count, Number):
        return Number(count.span, count.value + 1)
    one = Number(count.span, Fraction(1))
    if isinstance(count, Sum) and count.signs[-1] == -1 and isinstance(count.terms[-1], Number):
        rest = count.terms[-1].value
        if rest == 1:
            terms, signs = count.terms[:-1], count.signs[:-1]
            return terms[0] if len(terms) == 1 and signs[0] > 0 else Sum(count.span, terms, signs)
    return Sum(count.span, (count, one), (1, 1))
