"""Writes formulas, numbers, sentences and tables in a template's language."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Literal

from symcomm.core import printing
from symcomm.core.derivation import Exhibit, tables
from symcomm.core.form import Form, Sym
from symcomm.core.notation import Notation
from symcomm.core.printing import DialectName
from symcomm.core.records import ByIdentity, dataclass
from symcomm.core.units import Quantity
from symcomm.documents.render.environment import ESCAPES
from symcomm.documents.render.page import RowView, TableView

if TYPE_CHECKING:
    from markupsafe import Markup

Kind = Literal["md", "tex", "html", "typ"]
_DIALECT: dict[str, DialectName] = {"md": "latex", "tex": "latex", "html": "mathml", "typ": "typst"}

# Widths in em of the text's font, on A4 with the margins of our templates.
_TABLE_CHARACTERS, _TABLE_ROWS = 100, 30  # more than these and a table has to be broken
_RELATION = 1.6
_UNIT = re.compile(r'(\\ \\text\{|</mspace><mtext>|med ")([a-z]{4,}(?:/[A-Za-z]+)?)')  # behind a number
_EXAMPLE = re.compile(r", (?:such as|etwa) \d[^,;]*|，(?:例如|如) \d[^，；]*")  # for authors
_KEPT = 4096  # forms and sentences that a writer keeps as it wrote them


@dataclass(frozen=True)
class ChainPiece:
    """A piece of a chain of equations: its relation, its lines, its spoken text, its width and whether it is high."""

    relation: str
    lines: tuple[str, ...]
    said: str
    width: float
    tall: bool


@lru_cache(maxsize=256)
def writer_of(
    kind: Kind, latex: tuple[tuple[str, str], ...], meanings: tuple[tuple[str, str], ...],
    say: Callable[[str], str] = str,
) -> PageWriter:  # fmt: skip
    """The writer of a notation, the same one for all pages: what it wrote before it need not write again."""
    return PageWriter(kind, Notation(dict(latex), dict(meanings)), say)


class PageWriter:
    """Writes formulas, numbers and names inline in one format."""

    def __init__(self, kind: Kind, notation: Notation, say: Callable[[str], str] = str) -> None:
        from markupsafe import Markup

        self.say, self.decimal, self.translated = say, getattr(say, "decimal", "."), bool(getattr(say, "sentences", ()))
        self.kind, self.notation, self.dialect = kind, notation, _DIALECT[kind]
        self.markup: Callable[[str], Markup] = Markup
        self.sentence = lru_cache(maxsize=_KEPT)(lambda text: self._sentence(self.say(text)))
        self.meaning = lru_cache(maxsize=_KEPT)(lambda text: self._sentence(_EXAMPLE.sub("", self.say(text))))
        self.own = lru_cache(maxsize=_KEPT)(self._sentence)  # of a text in the language of the page
        self.width = lru_cache(maxsize=_KEPT)(partial(printing.width, names=None, notation=notation))
        self._plain_link = lru_cache(maxsize=_KEPT)(self._link)
        # What the papers of a class share: lines of formulas, tables, and numbers that are drawn again and again.
        self.kept_chain = lru_cache(maxsize=_KEPT)(self.chain)
        self._kept_table = lru_cache(maxsize=_KEPT)(lambda held: table_view(held.it, self))
        self._kept_links = lru_cache(maxsize=_KEPT)(lambda value, unit: self._links(Quantity(value, unit)))
        self._kept_given = lru_cache(maxsize=_KEPT)(lambda name, *amount: self._stated(Sym(name), Quantity(*amount)))

    def maths(self, content: str, alt: str) -> Markup:
        """Inline maths in the format; an empty formula is empty."""
        if not content:
            return self.markup("")
        content = self.numbers(content)
        match self.kind:
            case "md":
                text = printing.markdown_maths(content)
            case "tex":
                text = f"${content}$"
            case "html":
                text = printing.math_element(content, alt)
            case _:
                text = f"#eq({printing.typst_string(alt)})[${content}$]"
        return self.markup(text)

    def numbers(self, content: str) -> str:
        """Maths with its numbers and the words of units as the language has them: 12,88 Token in German."""
        if not self.translated:
            return content
        content = _UNIT.sub(lambda match: match[1] + self.say(match[2]), content)
        if self.decimal == ".":
            return content
        mark = {"html": self.decimal, "typ": f'"{self.decimal}"'}.get(self.kind, f"{{{self.decimal}}}")
        found = r"(?<=<mn>)([\d\s]+)\.(\d)" if self.kind == "html" else r"(\d)\.(\d)(?!\d*em)"
        return re.sub(found, rf"\g<1>{mark}\g<2>", content)

    def bare(self, content: str, alt: str) -> Markup:
        """Maths that the template puts between dollar signs, together with its neighbours."""
        content = self.numbers(content)
        if self.kind != "html":
            return self.markup(content)
        return self.markup(printing.math_element(content, alt, display=True) if content else "")

    def _sentence(self, text: str) -> Markup:
        """A sentence with its names as maths."""
        if not text:
            return self.markup("")
        begun = False

        def escape(piece: str) -> str:
            nonlocal begun
            inside, begun = begun, True  # what only a line's beginning makes special needs no escape within
            return printing.markdown_text(piece) if inside and self.kind == "md" else ESCAPES[self.kind](piece)

        def dressed(printed: str, alt: str) -> str:
            return str(self.maths(printed, alt))

        return self.markup(printing.sentence(self.dialect, text, escape, dressed, self.notation))

    def form(self, form: Form, names: printing.Names | None = None) -> Markup:
        return self.maths(printing.PRINTERS[self.dialect](form, names, self.notation), printing.plain(form, names))

    def stated(self, name: str, quantity: Quantity) -> Markup:
        """``f = 1.41 GHz``: a given number in its shortest exact way."""
        plain = type(quantity) is Quantity
        return self._kept_given(name, quantity.value, quantity.unit) if plain else self._stated(Sym(name), quantity)

    def _stated(self, left: Form, quantity: Quantity) -> Markup:
        ways = [way for way in self.links(quantity) if way.relation != "≈"]
        other = len(ways[0].said) > 9 or 0 < quantity.value < Fraction(1, 100)
        best = min(ways[1:] or ways, key=lambda way: len(way.said)) if other else ways[0]
        head = printing.PRINTERS[self.dialect](left, None, self.notation)
        sign = printing.RELATIONS[self.dialect]["="]
        return self.maths(f"{head} {sign} {best.lines[0]}", f"{printing.plain(left)} = {best.said}")

    def row(self, name: str, relation: str, form: Form, limit: float, names: printing.Names | None = None) -> RowView:
        said = printing.plain(form, names)
        broken = printing.broken(self.dialect, form, limit, names, self.notation)
        right = tuple(self.bare(line, "continued" if i else said) for i, line in enumerate(broken.lines))
        left = printing.name_in(self.dialect, name, self.notation) if name else ""
        sign = printing.RELATIONS[self.dialect][relation]
        mark = relation.lstrip(":")
        alt = f"{name} {mark} {said}".strip()
        tall = broken.tall if len(broken.lines) == 1 else "frac" in broken.lines[0]
        return RowView(self.bare(left, name), self.bare(sign, mark), right, alt, tall)

    def link(self, relation: str, form: Form, limit: float, names: printing.Names | None = None) -> ChainPiece:
        """A form as a piece of a chain, in lines of at most ``limit`` em."""
        return self._link(relation, form, limit, names) if names else self._plain_link(relation, form, limit)

    def _link(self, relation: str, form: Form, limit: float, names: printing.Names | None = None) -> ChainPiece:
        made = printing.broken(self.dialect, form, limit, names, self.notation)
        return ChainPiece(relation, made.lines, printing.plain(form, names), made.width, made.tall)

    def links(self, quantity: Quantity) -> tuple[ChainPiece, ...]:
        """The ways to say a quantity as pieces of a chain."""
        plain = type(quantity) is Quantity  # equal ones of other kinds are said in other ways
        return self._kept_links(quantity.value, quantity.unit) if plain else self._links(quantity)

    def _links(self, quantity: Quantity) -> tuple[ChainPiece, ...]:
        ways = zip(printing.amounts(self.dialect, quantity), printing.said(quantity),
                   printing.amounts("text", quantity), strict=True)  # fmt: skip
        return tuple(
            ChainPiece(way.relation or "=", (text,), said, 0.52 * len(said), bool(way.below))
            for (_, text), way, (_, said) in ways
        )

    def chain(self, name: str | Form, links: Sequence[ChainPiece], limit: float) -> RowView:
        """``name = form = form ≈ number``, a new line wherever the next piece has no room."""
        space = "" if self.kind == "html" else " "
        lines: list[list[tuple[str, str]]] = []
        used, tall = limit, False
        for n, link in enumerate(links):
            sign = printing.RELATIONS[self.dialect][link.relation]
            first = f"{sign}{space}{link.lines[0]}" if lines else link.lines[0]
            said = f"{link.relation} {link.said}" if n else link.said
            if lines and len(link.lines) == 1 and used + _RELATION + link.width <= limit:
                lines[-1].append((first, said))
                used += _RELATION + link.width
            else:
                lines += [[(first, said)], *([(line, "continued")] for line in link.lines[1:])]
                used = link.width if len(link.lines) == 1 else limit
            tall = tall or (link.tall and len(lines) == 1)
        plain = printing.plain(name) if isinstance(name, Form) else name
        said = f"{plain} {' '.join(f'{link.relation} {link.said}' for link in links)}".strip()
        right = tuple(self._line(line) for line in lines)
        head = (
            printing.PRINTERS[self.dialect](name, None, self.notation)
            if isinstance(name, Form)
            else printing.name_in(self.dialect, name, self.notation)
        )
        left = self.bare(head, plain) if name else self.markup("")
        sign = self.bare(printing.RELATIONS[self.dialect][links[0].relation], links[0].relation)
        return RowView(left, sign, right, said, tall)

    def _line(self, pieces: Sequence[tuple[str, str]]) -> Markup:
        """A line of a chain: pieces with what they say; in HTML it may be broken before each relation."""
        if self.kind == "html":
            return self.markup("<wbr>".join(self.bare(text, said) for text, said in pieces))
        return self.bare(" ".join(text for text, _ in pieces), "")

    def table(self, exhibit: Exhibit) -> TableView:
        """A table of a derivation, which the papers of a class share."""
        return self._kept_table(ByIdentity(exhibit))


def shares(longest: Sequence[int], needed: Sequence[int] = ()) -> tuple[float, ...]:
    """How the width is shared among columns with cells of these lengths, whose longest words need so much."""
    least = needed or [0] * len(longest)
    weights = [max(8.0, 1.5 * word + 3.5, min(45.0, n)) for n, word in zip(longest, least, strict=True)]
    return tuple(round(w / sum(weights), 3) for w in weights)


def _together(text: str) -> str:
    """A number in a cell with gaps at which no line is broken."""
    return text.replace(" ", "\u00a0") if tables.NUMBER.fullmatch(text) else text


def table_view(exhibit: Exhibit, writer: PageWriter) -> TableView:
    """A table with its cells written."""

    def cell(value: str | Form | Quantity) -> str | Markup:
        found = tables.cell_maths(writer.dialect, value, writer.notation)
        if found is None:
            return writer.sentence(_together(str(value)))
        maths = writer.maths(found, tables.cell_maths("text", value) or "")
        # LaTeX seldom finds a place to break a formula in a narrow column; there it is set smaller.
        fitted = wide and writer.kind == "tex" and isinstance(value, Form)
        return writer.markup(rf"\fit{{{maths}}}") if fitted else maths

    def lengths(value: str | Form | Quantity) -> tuple[int, int]:
        """Characters of the whole cell, and of its longest part that cannot be broken."""
        if isinstance(value, Form):
            characters = int(1.9 * writer.width(value)) + 1
            return characters, min(24, characters)
        text = tables.cell_maths("text", value) or _together(writer.say(str(value))).replace("`", "")
        parts = text.split(" = ") if isinstance(value, Quantity) else text.split(" ")
        return len(text), max(map(len, parts), default=0)

    exhibit = tables.in_one_unit(exhibit)
    columns = list(zip(exhibit.columns, *exhibit.rows, strict=True))
    measured = [[lengths(c) for c in column] for column in columns]
    longest = [max(whole for whole, _ in column) for column in measured]
    wide = sum(longest) + 3 * len(columns) > _TABLE_CHARACTERS or len(exhibit.rows) > _TABLE_ROWS
    rows = tuple(tuple(cell(c) for c in row) for row in exhibit.rows)
    needed = [max(part for _, part in column) for column in measured]
    right = tables.to_the_right(exhibit)
    columns_told = tuple(writer.sentence(c) for c in exhibit.columns)
    return TableView(writer.sentence(exhibit.title), columns_told, rows, wide, shares(longest, needed), right)
