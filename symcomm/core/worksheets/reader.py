"""Reads worksheets: text files of formulas with reasons, as a teacher writes them. docs/worksheets.md shows every line.

A worksheet is a Markdown file. Its title is a heading of one mark, its first paragraph says what it tells. Then come
sections of lists, each item on lines of its own; an indented line goes on. ``Units``, ``Symbols``, ``Choices`` and
``Options`` say what it takes, ``Lines`` define names and prove algebra, ``Answers`` are questions that need no lines of
their own, and ``Table: TITLE`` is shown where all symbols are left that its first column names.

Every other section is a question with lines of its own. It takes the lines before it that its formulas name, and those
that their reasons name in backticks. Of several lines that define a name the first one counts whose conditions hold.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import cast

from symcomm.core.accounting import Accounting
from symcomm.core.derivation import Relation
from symcomm.core.errors import DocumentError, Span, SymcommError, nearest
from symcomm.core.form import Sym
from symcomm.core.records import dataclass
from symcomm.core.text.table import Cell
from symcomm.core.units import ONE, Unit, declare
from symcomm.core.worksheets.runs import RUNS

SIZE_LIMIT, LINE_LIMIT = 100_000, 500  # characters and items of one worksheet
_LISTS = ("Units", "Symbols", "Choices", "Options", "Lines", "Answers")
_NAME = r"[^\W\d][\w^*']*"
_SYMBOL = re.compile(rf"({_NAME})\s*(?:\[([^\]]*)\])?\s*(?:from (\w+))?\s*(or 0)?\s*(?:= ([^:]+?))?( put in)?: (.+)")
_CHOICE = re.compile(r"(\w+)\s*(?:= (\w+))?: (.+)")
_ASKED = re.compile(r"(\w+) = ([^:]+?)(?: \[([^\]]*)\])?: (.+)")
_LINE = re.compile(rf"({_NAME})\s*(?:\[([^\]]*)\])?\s*(:=|=|≈|from\b)\s*(.+)")
_FACT = re.compile(r"(\w+)\s*(?:\((.*)\))?\s*(or 0)?")
_GUARD = re.compile(r",\s+(with|under|where|if)\s+")
_CLAIM = re.compile(r"(.+?)\s(<=|>=|!=|<|>|=)\s(.+)")
_ANSWER = re.compile(
    rf"(?P<name>{_NAME})"
    rf"|(?P<whole>whole )?(?P<place>{_NAME})(?: up to (?P<most>{_NAME}))? that makes (?P<cost>{_NAME}) "
    r"(?P<how>least|greatest)"
    rf"|(?P<value>least|greatest) (?P<of>{_NAME}) over (?P<each>whole )?(?P<over>{_NAME})(?: up to (?P<end>{_NAME}))?"
    rf"|(?P<met>{_NAME}) where (?P<left>{_NAME}) = (?P<right>{_NAME})"
    rf"|(?P<edge>least|greatest) (?P<round>whole )?(?P<reached>{_NAME}) with (?P<one>{_NAME}) (?P<side>[<>]=) "
    rf"(?P<other>{_NAME})"
)


@dataclass(frozen=True)
class SheetSymbol:
    """A symbol: what it means, in which unit, which option gives it, and its value where it has one."""

    name: str
    meaning: str
    unit: Unit = ONE
    counts: bool = False
    option: str = ""
    may_be_zero: bool = False
    value: str = ""
    put_in: bool = False

    @property
    def form(self) -> Sym:
        """The symbol in a formula."""
        return Sym(self.name, self.counts, self.unit)


@dataclass(frozen=True)
class Guards:
    """When a line holds: one option of each group is given, a convention is one of some, a comparison holds.

    What is ``told`` holds where numbers that are put in say so, and what is ``compared`` with any numbers.
    """

    given: tuple[tuple[str, ...], ...] = ()
    conventions: tuple[tuple[str, tuple[str, ...]], ...] = ()
    compared: tuple[tuple[Cell, str, Cell], ...] = ()
    told: tuple[tuple[Cell, str, Cell], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.given or self.conventions or self.compared or self.told)


NO_GUARDS = Guards()


@dataclass(frozen=True)
class FactSource:
    """The quantity that a fact is taken from, with options that are fixed; None leaves one out."""

    quantity: str
    fixed: tuple[tuple[str, str | None], ...] = ()
    may_be_zero: bool = False


@dataclass(frozen=True, eq=False)  # a key of many tables: one is itself
class WorksheetLine:
    """``name relation formula`` with its rule and reason; without a unit it has that of its formula.

    One with a ``source`` is a fact of the model, and has no formula of its own.
    """

    name: str
    relation: Relation
    formula: Cell
    unit: Unit | None
    rule: str
    reason: str
    condition: str
    span: Span
    run: str = ""
    formulas: tuple[Cell, ...] = ()
    guards: Guards = NO_GUARDS
    source: FactSource | None = None

    @property
    def written_out(self) -> bool:
        """Whether it is the line before, without the names of lines."""
        return self.formula.text == "..."


@dataclass(frozen=True, eq=False)
class Claim:
    """A comparison of two formulas (or none) and what is said where it holds, or fails if it is ``required``."""

    sides: tuple[Cell, ...]
    relation: str
    text: str
    hint: str
    required: bool
    span: Span
    guards: Guards = NO_GUARDS


@dataclass(frozen=True)
class WorksheetTable:
    """A table beside an answer: its title, its head, and rows of words and of formulas."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str | Cell, ...], ...]


@dataclass(frozen=True, eq=False)
class WorksheetQuestion:
    """A heading with what asks for it, its own lines, what is noted, and its answer as written."""

    title: str
    span: Span
    chosen: tuple[tuple[str, str], ...] = ()
    given: tuple[str, ...] = ()
    conventions: tuple[tuple[str, str], ...] = ()
    answer: re.Match[str] | None = None
    answered: Span | None = None
    units: tuple[tuple[str, Unit], ...] = ()
    lines: tuple[WorksheetLine, ...] = ()
    claims: tuple[Claim, ...] = ()
    notes: tuple[str, ...] = ()
    guards: Guards = NO_GUARDS


@dataclass(frozen=True)
class WorksheetChoice:
    """An option with its choices, the default and what it means."""

    name: str
    default: str
    meaning: str
    span: Span | None = None


@dataclass(frozen=True)
class _Item:
    """A list item or paragraph: its first line, and the lines that go on, with their places."""

    text: str
    more: str
    span: Span
    listed: bool
    spans: tuple[Span, ...] = ()

    def place(self, text: str) -> Span:
        """The line that has a piece of the item; the first one for what runs over several."""
        return next((span for span in (self.span, *self.spans) if text in span.text), self.span)


def read_unit(text: str | None, span: Span) -> Unit:
    """The unit in square brackets; none is a plain number."""
    try:
        return ONE if not text or text == "count" else Unit.parse(text)
    except SymcommError as error:
        raise DocumentError(error.message, span, error.hint) from None


class WorksheetReader:
    """The sections of one file, read in order."""

    def __init__(self, text: str, file: str) -> None:
        if len(text) > SIZE_LIMIT:
            *before, last = text[:SIZE_LIMIT].split("\n")
            problem = f"a worksheet has at most {SIZE_LIMIT:,} characters, not {len(text):,}"
            raise DocumentError(problem, Span(file, len(before) + 1, last[:80], 0, len(last[:80])))
        self.text, self.file, self.title, self.about = text, file, "", ""
        self.symbols: dict[str, SheetSymbol] = {}
        self.choices: dict[str, WorksheetChoice] = {}
        self.passed: dict[str, Span] = {}  # options of quantities, and "all of" those of one
        self.lines: tuple[WorksheetLine, ...] = ()
        self.claims: tuple[Claim, ...] = ()
        self.questions: list[WorksheetQuestion] = []
        self.tables: list[WorksheetTable] = []
        sections = list(self.sections(text))
        if not sections or not sections[0][0].text:
            where = Span(file, 1, text.split("\n")[0], 0, 1)
            raise DocumentError("a worksheet starts with its title", where, "# The time of a broadcast")
        every = [item for _, items in sections for item in items]
        if len(every) > LINE_LIMIT:
            raise DocumentError(f"a worksheet has at most {LINE_LIMIT} lines", every[LINE_LIMIT].span)
        (head, about), *rest = sections
        self.span = head.span
        self.title, self.about = head.text, next((item.text for item in about), "")
        self.more = tuple(item.text for item in about[1:])
        for heading, items in rest:
            self.section(heading, items)
        for choice in self.choices.values():
            known = [c for question in self.questions for key, c in question.chosen if key == choice.name]
            if not known:
                raise DocumentError(f"no question is asked by '{choice.name}'", choice.span, f"{choice.name}: ...")
            if choice.default and choice.default not in known:
                problem = f"no question has {choice.name}: {choice.default}"
                raise DocumentError(problem, choice.span, nearest(choice.default, known))

    def sections(self, text: str) -> Iterator[tuple[_Item, list[_Item]]]:
        """Every heading with the items below it."""
        heading: _Item | None = None
        items: list[_Item] = []
        goes_on = False
        for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), start=1):
            words = line.strip()
            span = Span(self.file, number, line, len(line) - len(line.lstrip()), len(line.rstrip()))
            marks = re.fullmatch(r"#{1,6} +(.+?)", words)
            if marks or heading is None:
                if heading is not None:
                    yield heading, items
                heading, items = _Item(marks[1] if marks else "", "", span, False), []
                goes_on = False
            elif words.startswith("|"):
                items.append(_Item(words, "", span, False))
            elif words.startswith("- "):
                items.append(_Item(words[2:].strip(), "", span, True))
                goes_on = True
            elif words and goes_on and items[-1].listed and line[0].isspace():
                more, spans = f"{items[-1].more} {words}".strip(), (*items[-1].spans, span)
                items[-1] = replace(items[-1], more=more, spans=spans)
            elif words and goes_on and not items[-1].listed and not _header(items[-1].text):
                items[-1] = replace(items[-1], text=f"{items[-1].text} {words}")
            elif words:
                items.append(_Item(words, "", span, False))
                goes_on = True
            else:
                goes_on = False
        if heading is not None:
            yield heading, items

    def section(self, heading: _Item, items: list[_Item]) -> None:
        """One section."""
        listed = [item for item in items if item.listed]
        stray = next((i for i in items if not i.listed and (heading.text in _LISTS or ":=" in i.text)), None)
        if stray:
            raise DocumentError("this line is in no list", stray.span, "begin the line with a dash")
        match heading.text:
            case "Units":
                for item in listed:
                    self.unit(item)
            case "Symbols":
                for item in listed:
                    self.symbol(item)
            case "Choices":
                self.choices |= {c.name: c for c in map(self.choice, listed)}
            case "Options":
                for item in listed:
                    self.passed |= dict.fromkeys((name.strip() for name in item.text.split(",")), item.span)
            case "Lines":
                self.lines, self.claims = self.read(listed, ())
            case "Answers":
                for item in listed:
                    self.add(self.answer(item))
            case title if title.startswith("Table: "):
                self.tables.append(self.table(title.removeprefix("Table: "), heading, items))
            case title:
                try:
                    self.add(self.question(heading, items))
                except DocumentError as error:
                    if (near := nearest(title, [*_LISTS])).startswith("did you mean"):
                        raise DocumentError(f"'{title}' is read as a question", heading.span, near) from error
                    raise

    def add(self, made: WorksheetQuestion) -> None:
        asked = [(q.chosen, q.given, q.conventions, q.guards) for q in self.questions]
        if (made.chosen, made.given, made.conventions, made.guards) in asked:
            raise DocumentError("this question is the same as an earlier one", made.span)
        self.questions.append(made)

    def unit(self, item: _Item) -> None:
        words = [word.strip() for word in item.text.partition(":")[0].split(",")]
        if not all(re.fullmatch(r"[^\W\d_]\w{0,39}", word) for word in words):
            raise DocumentError("this is no unit", item.span, "- truck, trucks: a load of a lorry")
        with item.span.meant():
            declare(words)

    def symbol(self, item: _Item) -> None:
        found = _SYMBOL.fullmatch(f"{item.text} {item.more}".strip())
        if not found:
            raise DocumentError("this is no symbol", item.span, "- S [byte] from size: bytes of the tensor")
        name, unit, option, zero, value, put_in, meaning = found.groups()
        if name in self.symbols:
            raise DocumentError(f"{name} is a symbol twice", item.span)
        if put_in and not (option or value):
            what = f"nothing gives the number of {name} that is put in"
            raise DocumentError(what, item.span, f"- {name} = 1 put in: ...")
        counts, of = unit == "count", read_unit(unit, item.span)
        self.symbols[name] = SheetSymbol(name, meaning, of, counts, option or "", bool(zero), (value or "").strip(),
                                         bool(put_in))  # fmt: skip

    def choice(self, item: _Item) -> WorksheetChoice:
        found = _CHOICE.fullmatch(f"{item.text} {item.more}".strip())
        if not found:
            raise DocumentError("this is no choice", item.span, "- plan = serial: how the tensor is passed on")
        return WorksheetChoice(found[1], found[2] or "", found[3], item.span)

    def answer(self, item: _Item) -> WorksheetQuestion:
        """A question in one line."""
        found = _ASKED.fullmatch(f"{item.text} {item.more}".strip())
        said, guards = self.guards(found[2], item) if found else ("", NO_GUARDS)
        answer = _ANSWER.fullmatch(said)
        if not found or not answer:
            raise DocumentError("this is no answer", item.span, "- time = T: Time of a copy")
        if not self.choices:
            self.choices["want"] = WorksheetChoice("want", found[1], "what is asked for")
        units = ((answer[0], read_unit(found[3], item.span)),) if found[3] else ()
        chosen = ((next(reversed(self.choices)), found[1]),)
        return WorksheetQuestion(found[4], item.span, chosen, answer=answer, answered=item.span, units=units,
                                 guards=guards)  # fmt: skip

    def table(self, title: str, heading: _Item, items: list[_Item]) -> WorksheetTable:
        """A table of words and formulas."""
        rows = [[cell.strip() for cell in item.text.strip("|").split("|")] for item in items]
        if len(rows) < 3 or any(len(row) != len(rows[0]) for row in rows) or set("".join(rows[1])) - set("-: "):
            hint = "| where | how long |, |---|---| and rows with as many cells"
            raise DocumentError("this is no table", heading.span, hint)
        cells = [
            tuple(self.cell(text[2:], item) if text.startswith("= ") else text for text in row)
            for row, item in zip(rows[2:], items[2:], strict=True)
        ]
        return WorksheetTable(title, tuple(rows[0]), tuple(cells))

    def question(self, heading: _Item, items: list[_Item]) -> WorksheetQuestion:
        headers = [(h, item.span) for item in items if not item.listed and (h := _header(item.text))]
        chosen, given, conventions, units, answer, answered = [], [], [], [], None, heading.span
        for (key, said), span in headers:
            if key == "answer":
                answer, answered = _ANSWER.fullmatch(said), span
                if not answer:
                    hint = "answer: T, c that makes T least, n where A = B, or least n with A >= B"
                    raise DocumentError("this is no answer", span, hint)
            elif key == "with" and self.takes(said):
                given.append(said)
            elif key == "under":
                field, names = _convention(said, span)
                if len(names) > 1:
                    raise DocumentError("a question is asked under one choice", span, f"under: {field}: {names[0]}")
                conventions.append((field, names[0]))
            elif key == "unit" and (counted := re.fullmatch(rf"({_NAME}) \[(.+)\]", said)):
                units.append((counted[1], read_unit(counted[2], span)))
            elif key in self.choices:
                chosen.append((key, said))
            else:
                known = ["answer", "with", "under", "unit", *self.choices]
                if key in known:
                    raise DocumentError(f"'{said[:40]}' is nothing that '{key}' takes", span)
                raise DocumentError(f"'{key}' is nothing that asks for an answer", span, nearest(key, known))
        lines, claims = self.read([item for item in items if item.listed], self.lines)
        notes = tuple(item.text for item in items if not item.listed and not _header(item.text))
        return WorksheetQuestion(
            heading.text, heading.span, tuple(chosen), tuple(given), tuple(conventions), answer,
            answered, tuple(units), lines, claims, notes,
        )  # fmt: skip

    def read(
        self, items: list[_Item], before: tuple[WorksheetLine, ...]
    ) -> tuple[tuple[WorksheetLine, ...], tuple[Claim, ...]]:
        """The lines and claims of a section; a name is defined once."""
        lines: list[WorksheetLine] = []
        claims: list[Claim] = []
        for item in items:
            word = re.match(r"(require|note)\b(?! *(?::=|=|≈|\[))", item.text)
            if word:
                claims.append(self.claim(item, word[1] == "require"))
                continue
            line = self.line(item)
            defined = {one.name: bool(one.guards) for one in (*before, *lines) if one.relation == ":="}
            again = line.name in self.symbols or not defined.get(line.name, True)  # behind a line that always holds
            if line.relation == ":=" and again:
                raise DocumentError(f"{line.name} is defined twice", item.span)
            if line.relation != ":=" and line.name not in defined:
                raise DocumentError(f"{line.name} is not defined before this line", item.span, "define it with :=")
            lines.append(line)
        return tuple(lines), tuple(claims)

    def line(self, item: _Item) -> WorksheetLine:
        found = _LINE.fullmatch(item.text)
        if not found:
            raise DocumentError("this is no line of a worksheet", item.span, "- T [second] := S / w")
        name, unit, relation, formula = found.groups()
        condition = ""
        if relation == "≈":
            formula, _, condition = formula.partition(" where ")
            if not condition:
                hint = "- T ≈ S / w where alpha is small"
                raise DocumentError("an approximation says where it holds", item.span, hint)
        formula, guards = self.guards(formula, item) if relation != "≈" else (formula, NO_GUARDS)
        rule, colon, reason = item.more.partition(": ")
        alias = relation == ":=" and re.fullmatch(r"[^\W\d]\w*'*", formula)  # another name for something
        bare = not colon or rule == "run"
        if bare and (item.more or not (relation == "from" or alias or formula == "...")):
            raise DocumentError(f"{name} has no reason", item.span, "indent it below: a rule, a colon and a sentence")
        told = None if unit is None else read_unit(unit, item.span)
        source = self.source(formula, item) if relation == "from" else None
        cell, how = self.cell(formula, item), cast("Relation", ":=" if source else relation)
        said, ran, run = reason.partition(" run: ")
        made = WorksheetLine(name, how, cell, told, rule, said.strip(), condition.strip(), item.span, guards=guards,
                             source=source)  # fmt: skip
        return self.running(made, run.strip(), item) if ran else made

    def source(self, text: str, item: _Item) -> FactSource:
        """Where a fact comes from: ``flops(scope: training, op: none)``; a choice that is called so is ``'none'``."""
        found = _FACT.fullmatch(text.strip())
        pairs = [pair.partition(":") for pair in _parts(found[2])] if found and found[2] else []
        if not found or not all(colon for _, colon, _ in pairs):
            hint = "- F from flops(scope: training), or - M from traffic(op: none)"
            raise DocumentError("this names no quantity", item.span, hint)
        fixed = {key.strip(): None if value.strip() == "none" else value.strip(" '") for key, _, value in pairs}
        if len(fixed) < len(pairs):
            raise DocumentError("an option is given twice", item.span, f"{found[1]}({', '.join(fixed)})")
        return FactSource(found[1], tuple(fixed.items()), bool(found[3]))

    def takes(self, option: str) -> bool:
        """Whether an option is one of a symbol, or is passed on."""
        return option in self.passed or any(option == one.option for one in self.symbols.values())

    def guards(self, text: str, item: _Item) -> tuple[str, Guards]:
        """A formula or comparison, and when it holds."""
        head, *parts = _GUARD.split(text)
        given, conventions = [], []
        compared: dict[str, list[tuple[Cell, str, Cell]]] = {"where": [], "if": []}
        for word, said in zip(parts[::2], parts[1::2], strict=True):
            if word == "under":
                conventions.append(_convention(said, item.span))
            elif word == "with":
                given.append(tuple(option.strip() for option in said.split(" or ")))
                for option in given[-1]:
                    if not self.takes(option):
                        known = [*self.passed, *(one.option for one in self.symbols.values() if one.option)]
                        raise DocumentError(f"'{option[:40]}' is no option of this worksheet", item.span,
                                            nearest(option, known))  # fmt: skip
            elif sides := _CLAIM.fullmatch(said):
                compared[word].append((self.cell(sides[1], item), sides[2], self.cell(sides[3], item)))
            else:
                raise DocumentError("this compares nothing", item.span, f", {word} A < B")
        where, told = map(tuple, compared.values())
        return head.strip(), Guards(tuple(given), tuple(conventions), where, told)

    def running(self, line: WorksheetLine, text: str, item: _Item) -> WorksheetLine:
        """The line with the run that bears it out."""
        found, span = re.fullmatch(r"(\w+)\((.*)\)", text), item.place("run: ")
        if not found:
            raise DocumentError(f"'{text[:40]}' is no run", span, "run: same(a x, b)")
        record = RUNS.get(found[1])
        if record is None:
            raise DocumentError(f"there is no run '{found[1][:40]}'", span, nearest(found[1], [*RUNS]))
        parts = _parts(found[2])
        if len(parts) % record.formulas if record.again else len(parts) != record.formulas:
            many = f"{record.formulas} formulas" + (", or a multiple of that," if record.again else "")
            raise DocumentError(f"{found[1]} takes {many} and not {len(parts)}", span)
        if found[1] == "same" and len({part.strip() for part in parts}) == 1:
            raise DocumentError("this compares a formula with itself: it bears out any line", span, "same(a x, b)")
        return replace(line, run=found[1], formulas=tuple(self.cell(part, item, span) for part in parts))

    def claim(self, item: _Item, required: bool) -> Claim:
        head, colon, text = item.text.partition(": ")
        if not colon:
            raise DocumentError("this says nothing", item.span, "- require x < 1: x = {x}: it must be smaller")
        head, guards = self.guards(head, item)
        body = head.removeprefix("require").removeprefix("note").strip().removeprefix("where ").strip()
        sides = _CLAIM.fullmatch(body)
        if not sides and (body or required):
            raise DocumentError("this compares nothing", item.span, "write two formulas with <, >, <=, >=, = or !=")
        made = (self.cell(sides[1], item), self.cell(sides[3], item)) if sides else ()
        text, hint = (text, item.more) if required else (f"{text} {item.more}".strip(), "")
        return Claim(made, sides[2] if sides else "", text, hint, required, item.span, guards)

    def cell(self, formula: str, item: _Item, near: Span | None = None) -> Cell:
        """A formula with its place: in its line, or ``near`` where it runs over several."""
        formula, span = formula.strip(), near or item.span
        span = span if formula in span.text else item.place(formula)
        return Cell(formula, self.file, span.line, span.text, max(0, span.text.rfind(formula)))


def _convention(text: str, span: Span) -> tuple[str, tuple[str, ...]]:
    """``field: choice or choice``; raises ``AccountingError`` at its place for what is no convention."""
    field, _, names = (part.strip() for part in text.partition(":"))
    chosen = tuple(name.strip() for name in names.split(" or "))
    with span.meant():
        for name in chosen:
            Accounting.of(**{field: name})
    return field, chosen


def _parts(text: str) -> list[str]:
    """Formulas between commas that stand in no brackets.

    >>> _parts("max(a, b), c")
    ['max(a, b)', 'c']
    """
    parts, depth = [""], 0
    for mark in text:
        depth += (mark in "([{") - (mark in ")]}")
        if mark == "," and not depth:
            parts.append("")
        else:
            parts[-1] += mark
    return [part.strip() for part in parts]


def _header(text: str) -> tuple[str, str] | None:
    """``key: choice``, if a line below a heading is one."""
    found = re.fullmatch(r"([a-z]\w*): (.+)", text)
    return (found[1], found[2].strip()) if found else None
