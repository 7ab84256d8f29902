"""Answers as a template sees them: what a person would write of a derivation; several that are alike are one table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from symcomm.core import form as forms
from symcomm.core import printing
from symcomm.core.accounting import Convention
from symcomm.core.derivation import Exhibit, tables, writing
from symcomm.core.derivation.chosen import ChosenLine, chosen
from symcomm.core.form import Form, Num, Power, Product, Ratio, Sym
from symcomm.core.irrational import Irrational
from symcomm.core.notation import Notation
from symcomm.core.records import ByIdentity
from symcomm.core.units import Quantity, decimals, exact_text
from symcomm.documents.editions import Detail
from symcomm.documents.render.document import Answer, Given
from symcomm.documents.render.page import AnswerView, ConventionView, GivenView, RowView, StepView
from symcomm.documents.render.questions import Questions, Wording
from symcomm.documents.render.writer import ChainPiece, Kind, PageWriter, table_view, writer_of

if TYPE_CHECKING:
    from markupsafe import Markup

# Widths in em of the text's font, on A4 with the margins of our templates.
PAGE_WIDTH = 42.0
_NUMBER, _RELATION, _REASON, _GAP = 2.2, 1.6, 14.5, 1.0
_LIST = 7  # more lines than these are read as a table
_WIDE = 24.0  # em: a wider form gives way to its number
_CELL, _COLUMNS = 11.0, 44.0  # em: what a cell and a row of a table of answers hold


class AnswerWriter:
    """Writes the answers of one document, without repeating a sentence of an earlier answer."""

    def __init__(
        self, writer: PageWriter, detail: Detail, head: Mapping[str, Convention], answers: int, graders: bool = False
    ) -> None:
        self.page, self.detail, self.head, self.graders = writer, detail, head, graders
        self.answers = answers
        self.meant: dict[str, str] = {}  # the meaning of a name that was told last
        self.seen: list[frozenset[ChosenLine]] = []
        self.shown: set[Exhibit] = set()
        self.told: set[str] = set()
        self.here: dict[str, Convention] = {}  # the conventions that were told last below this heading
        self.referred = answers > 1 and detail != "brief"

    # -- one answer ----------------------------------------------------------------------------

    def one(self, answer: Answer, row: Wording, heading: str) -> AnswerView:
        """One answer: what is cut or counted, its lines, and the box below them."""
        d, writer = answer.derivation, self.of(answer)
        every = self.lines(answer)
        constants = [line for line in every if _constant(line, answer)]
        lines = [line for line in every if line not in constants]
        known = self.known(answer)
        last = lines[-1]
        shown, before = self.repeated(lines)
        lead = list(d.lead)
        listed: list[Exhibit] = []
        if self.detail == "brief":
            shown = []
        elif len(shown) > _LIST:
            listed, shown = [_listed(shown, d.notation, known, answer)], []
        elif len(last.forms) == 1 and shown and self.boxed(last, writer):
            shown = shown[:-1]
            lead += [last.reason] if last.reason and last.reason not in lead else []
        steps, lefts, right_width = self.steps(shown, writer, last, known, answer)
        box = self.box(answer, last, writer, known)
        fresh = self.fresh(d.exhibits)
        places = {place: [e for e in fresh if e.place == place] for place in ("before", "after")}
        if not (shown or before or listed or forms.names(last.last)):  # a number that was read from its tables
            places = {"before": places["before"] + places["after"], "after": []}
        return self.view(
            [answer], writer, heading, self.lead(lead, d.lead, row, writer),
            (*self.given((*answer.given, *_stated(constants, d)), writer), *self.open(last, known, writer)),
            [*places["before"], *listed], places["after"], answer.mistakes,
            before=writer.sentence(before), steps=steps, lefts=lefts, box=box, right_width=right_width,
        )  # fmt: skip

    def view(
        self, run: Sequence[Answer], writer: PageWriter, heading: str, lead: tuple[Markup, ...],
        given: tuple[GivenView, ...], reasons: Iterable[Exhibit], exhibits: Iterable[Exhibit], mistakes: Iterable[str],
        **parts: Any,
    ) -> AnswerView:  # fmt: skip
        """One answer, or several as one, with all that belongs to it; in brief the tables and notes are left out."""
        made = AnswerView(
            number=str(len(self.seen)) if self.referred else "", label=writer.own(heading), lead=lead, given=given,
            conventions=self.conventions(run), grading=self.grading(run, writer), **parts,
        )  # fmt: skip
        alone = run[0] if len(run) == 1 else None
        if alone is not None:
            of = str(alone.derivation.unit)
            unit = "" if alone.quantity is not None or of == "1" else Quantity.counted(Fraction(2), of)
            made = replace(made, points=alone.points, unit=unit)
        if self.detail == "brief":
            return made
        return replace(
            made, reasons=tuple(map(writer.table, reasons)), exhibits=tuple(map(writer.table, exhibits)),
            others=table_view(alone.others, writer) if alone is not None and alone.others else None,
            mistakes=tuple(map(writer.sentence, mistakes)), notes=self.notes(run, writer),
        )  # fmt: skip

    def question(self, run: Sequence[Answer], asked: Questions) -> Markup:
        """The question for some answers, with the numbers that are given with all of them."""
        writer = self.of(run[0])
        given = [g for g in run[0].given if all(g in one.given for one in run)]
        text = writer.own(asked.question(run))
        told = [g.equation + (writer.markup(f" ({g.meaning})") if g.meaning else "") for g in self.given(given, writer)]
        return text + writer.markup(f" {asked.words['given']} {', '.join(told)}.") if told else text

    def lead(self, told: Sequence[str], derived: Sequence[str], row: Wording, writer: PageWriter) -> tuple[Markup, ...]:
        """The sentences before an answer; where its derivation says none, the one of its row comes first.

        One that the document has told already is told again only where there would be none.
        """
        why = row.why if not derived and not (told and row.why in self.told) else ""
        self.told |= {why}
        return (*((writer.own(why),) if why else ()), *(writer.sentence(text) for text in told))

    def noted(self, answer: Answer) -> tuple[str, ...]:
        """The notes of an answer; how its table was read is for those who grade."""
        reading = (answer.reading,) if self.graders and answer.reading else ()
        return (*answer.derivation.notes, *reading)

    def notes(self, run: Sequence[Answer], writer: PageWriter) -> tuple[Markup, ...]:
        """The notes that the document has not told yet."""
        new = [note for note in dict.fromkeys(n for a in run for n in self.noted(a)) if note not in self.told]
        self.told |= {*new}
        return tuple(writer.sentence(note) for note in new)

    def fresh(self, exhibits: Iterable[Exhibit]) -> list[Exhibit]:
        """The tables that the document has not shown yet."""
        new = [e for e in exhibits if e not in self.shown]
        self.shown |= {*new}
        return new

    def of(self, answer: Answer) -> PageWriter:
        """A writer with the names of an answer."""
        own, document = ByIdentity(answer.derivation.notation), ByIdentity(self.page.notation)
        return _writer(own, document, self.page.kind, self.page.say)

    def known(self, answer: Answer) -> Mapping[str, Fraction]:
        """The numbers that are known with an answer."""
        return writing.numbers(answer.derivation, {g.name: g.quantity.value for g in answer.given})

    def lines(self, answer: Answer) -> tuple[ChosenLine, ...]:
        """The lines of an answer, as many as the detail asks for."""
        d = answer.derivation
        if d.is_laid_out:  # its table stands for the steps
            return (ChosenLine(d.answer.name, (("=", d.answer.form),), "", "", ()),)
        return chosen(d)

    def repeated(self, lines: Sequence[ChosenLine]) -> tuple[list[ChosenLine], str]:
        """The lines that no answer before has shown, and the sentence that stands for the others."""
        mine = frozenset(lines[:-1])
        best = max(self.seen, key=lambda other: len(other & mine), default=frozenset())
        same = best & mine
        number = self.seen.index(best) + 1 if best in self.seen else 0
        self.seen.append(mine)
        if len(same) < 2 or self.detail == "brief":
            return [*lines], ""
        told = [line.name for line in lines[:-1] if line in same]
        text = f"{', '.join(f'`{name}`' for name in told)} as in solution {number}."
        return [line for line in lines if line.name not in told], text

    def steps(
        self, shown: Sequence[ChosenLine], writer: PageWriter, last: ChosenLine, known: Mapping[str, Fraction],
        answer: Answer,
    ) -> tuple[tuple[StepView, ...], tuple[Markup, ...], float]:  # fmt: skip
        """Lines with their reasons; the box says the last form of the last line."""
        if not shown:
            return (), (), 8.0
        left = max(writer.width(Sym(line.name)) for line in shown)
        room = PAGE_WIDTH - left - _RELATION - _GAP
        beside = room - _REASON - _GAP
        made: list[StepView] = []
        taken = 8.0
        for line in shown:
            links = self.links(line, writer, room, known, answer, line is last)
            wide = sum(link.width + _RELATION for link in links) - _RELATION
            alone = max(link.width for link in links) > beside or (wide > beside and not line.reason)
            row = writer.kept_chain(line.name, tuple(links), room if alone else beside)
            taken = taken if alone else max(taken, min(wide, beside))
            why, condition = writer.sentence(line.reason), writer.sentence(line.condition)
            made.append(StepView("", row, why, "", condition, alone))
        lefts = tuple(dict.fromkeys(step.row.left for step in made))
        return tuple(made), lefts, round(min(beside, taken + 1.5), 1)

    def links(
        self, line: ChosenLine, writer: PageWriter, room: float, known: Mapping[str, Fraction], answer: Answer,
        last: bool,
    ) -> list[ChainPiece]:  # fmt: skip
        """The forms of a line; a form wider than the line gives way to its number."""
        formulas, whole = _formulas(writer, ByIdentity(line), room, last)
        if whole or last or line.name not in known:
            return [*formulas]
        unit = next(s.unit for s in answer.derivation.steps if s.name == line.name)
        return [*formulas, *writer.links(Quantity(known[line.name], unit))[:2]]

    def box(
        self, answer: Answer, last: ChosenLine, writer: PageWriter, known: Mapping[str, Fraction]
    ) -> tuple[RowView, ...]:
        """The answer: its formula, the numbers put in, and what they make; or all that was asked, a line each."""
        before: list[RowView] = []
        for one in answer.derivation.results:
            if isinstance(one, str):
                form = next(step.form for step in answer.derivation.steps if step.name == one)
                before.append(writer.chain(one, [writer.link("=", form, PAGE_WIDTH)], PAGE_WIDTH))
            else:
                equation, number = one
                worth = writer.links(number) if isinstance(number, Quantity) else [writer.link("=", number, PAGE_WIDTH)]
                before.append(
                    writer.chain(equation.left, [writer.link("=", equation.right, PAGE_WIDTH), *worth], PAGE_WIDTH)
                )
        if any(not isinstance(one, str) for one in answer.derivation.results):
            return tuple(before)
        room = _room(last, writer)
        form, quantity = self.boxed(last, writer) or last.last, answer.quantity
        narrow = writer.width(form) <= room and bool(forms.names(form))
        links: list[ChainPiece] = []
        if narrow or quantity is None:
            links.append(writer.link("=", form, room))
        if quantity is not None:
            used = {name: known[name] for name in forms.names(form) if name in known}
            told = all(_legible(number) for number in used.values()) and len(used) == len(forms.names(form))
            if narrow and used and told and not isinstance(form, Sym):
                put_in = writer.link("=", form, room, {name: _readable(number) for name, number in used.items()})
                links += [put_in] if put_in.width <= room else []
            numbers = [*writer.links(quantity)]
            measured = "second" in dict(quantity.unit.powers) and len(decimals(quantity.value)) > 6
            if len(numbers) > 1 and (measured or not (_legible(quantity.value) or isinstance(quantity, Irrational))):
                numbers = numbers[1:]  # nobody reads a fraction of so many digits
            else:
                numbers[0] = replace(numbers[0], relation=quantity.relation or "=")
            links += numbers
        return (*before, writer.chain(last.name, links, room))

    def boxed(self, last: ChosenLine, writer: PageWriter) -> Form | None:
        """The last form of the answer that a box has room for; None where there is none."""
        fits = [f for r, f in last.forms if r != "≈" and writer.width(f) <= _room(last, writer)]
        return next((f for f in reversed(fits) if f is last.last or forms.names(f)), None)

    # -- several answers -----------------------------------------------------------------------

    def alike(self, run: Sequence[Answer]) -> Exhibit | None:
        """The table of answers of one kind; None where they are not so much alike."""
        if self.detail != "normal" and self.detail != "brief":
            return None
        every = [self.lines(a) for a in run]
        columns = [tuple(line.name for line in lines) for lines in every]
        if len(run) < 2 or len({*columns}) > 1 or any(a.quantity is None for a in run) or len(columns[0]) > _LIST:
            return None
        if any(line.condition for lines in every for line in lines) or len({a.derivation.unit for a in run}) > 1:
            return None
        if len({a.label for a in run}) < len(run):
            return None
        differ = [name for n, name in enumerate(columns[0]) if len({lines[n].forms for lines in every}) > 1]
        known = [*map(self.known, run)]
        return self.table(run, every, known, differ, self.of(run[0]))

    def together(self, run: Sequence[Answer], made: Exhibit, row: Wording, heading: str) -> AnswerView:
        """Answers of one kind as one derivation and one table."""
        every = [self.lines(a) for a in run]
        writer = self.of(run[0])
        known = [*map(self.known, run)]
        common = [_common([lines[n] for lines in every]) for n in range(len(every[0]))]
        lines = [line for line in common if line and not _constant(line, run[0])]
        differ = [line.name for line, shown in zip(every[0], common, strict=True) if not shown]
        shown, before = self.repeated(lines) if lines else ([], "")
        if not lines:
            self.seen.append(frozenset())
        lead = list(dict.fromkeys(text for a in run for text in a.derivation.lead))
        if self.detail == "brief":
            shown = []
        every_last = every[0][-1]
        steps, lefts, right = self.steps(shown, writer, ChosenLine("", (), "", "", ()), known[0], run[0])
        why = {name: [next(one.reason for one in lines if one.name == name) for lines in every] for name in differ}
        said = [f"`{name}`: {reasons[0]}" for name, reasons in why.items() if len({*reasons}) == 1 and reasons[0]]
        said += [reason for name, reasons in why.items() if len({*reasons}) > 1 and name == every_last.name
                 for reason in dict.fromkeys(reasons) if reason]  # fmt: skip
        same = [g for g in run[0].given if all(g in a.given for a in run)]
        exhibits = [e for a in run for e in a.derivation.exhibits if e.place != "full"]
        shared = self.fresh(dict.fromkeys(exhibits))
        return self.view(
            run, writer, heading, self.lead([*lead, *([] if self.detail == "brief" else said)], lead, row, writer),
            self.given(same, writer), [e for e in shared if e.place == "before"],
            [e for e in shared if e.place == "after"], [m.rpartition(" (")[0] or m for m in run[0].mistakes],
            before=writer.sentence(before), steps=steps, lefts=lefts, together=table_view(made, writer),
            right_width=right,
        )  # fmt: skip

    def table(
        self, run: Sequence[Answer], every: Sequence[Sequence[ChosenLine]], known: Sequence[Mapping[str, Fraction]],
        differ: Sequence[str], writer: PageWriter,
    ) -> Exhibit | None:  # fmt: skip
        """A row for each answer: what differs in its values and its lines, and its number."""
        last = every[0][-1].name
        columns: list[tuple[str, list[object]]] = [("", [f"*{a.label}*"[1:-1] for a in run])]
        given = list(dict.fromkeys(g.name for a in run for g in a.given))
        for name in given:
            cells = [next((g.quantity for g in a.given if g.name == name), "") for a in run]
            if len({*map(str, cells)}) > 1:
                columns.append((f"`{name}`", list(cells)))
        for name in differ:
            at = next(i for i, line in enumerate(every[0]) if line.name == name)
            lasts = [lines[at].last for lines in every]
            unit = next(s.unit for s in run[0].derivation.steps if s.name == name)
            wide = any(writer.width(f) > _CELL or _long_fraction(f) for f in lasts)
            plain = not any(forms.names(f) for f in lasts)
            if name == last and (plain or wide):
                continue
            if plain or (wide and all(name in k for k in known)):
                columns.append((f"`{name}`", [Quantity(k[name], unit) for k in known]))
            elif not wide:
                columns.append((f"`{name}`", list(lasts)))
        columns.append(
            (f"`{last}`" if f"`{last}`" not in [c for c, _ in columns] else "number", [a.quantity for a in run])
        )
        if any(a.points is not None for a in run):
            columns.append(("points", ["" if a.points is None else str(a.points) for a in run]))
        rows = [
            tuple(c if isinstance(c, (str, Form)) else _cell(c) for c in row)
            for row in zip(*(cells for _, cells in columns), strict=True)
        ]
        taken = sum(max(_em(row[i], writer) for row in rows) + 1.2 for i in range(len(columns)))
        return Exhibit("", tuple(name for name, _ in columns), tuple(rows)) if taken <= _COLUMNS else None

    # -- what stands around them ---------------------------------------------------------------

    def given(self, values: Iterable[Given], writer: PageWriter) -> tuple[GivenView, ...]:
        """Given values; the meaning of a name comes once, and again where it has another."""
        made = []
        for g in values:
            meaning = "" if self.meant.get(g.name) == g.meaning else g.meaning
            self.meant |= {g.name: meaning} if meaning else {}
            made.append(GivenView(writer.stated(g.name, g.quantity), writer.meaning(meaning)))
        return tuple(made)

    def open(self, last: ChosenLine, known: Mapping[str, Fraction], writer: PageWriter) -> tuple[GivenView, ...]:
        """Symbols of an answer that have no number, with their meanings, once each."""
        meanings = writer.notation.meanings
        found = {n: meanings.get(n, "") for n in forms.names(last.last) if n not in known}
        fresh = [name for name, meaning in found.items() if meaning and self.meant.get(name) != meaning]
        self.meant |= {name: found[name] for name in fresh}
        return tuple(GivenView(writer.form(Sym(name)), writer.meaning(meanings[name])) for name in fresh)

    def conventions(self, run: Sequence[Answer]) -> tuple[ConventionView, ...]:
        """The conventions of some answers, without those that the document or its question has told."""
        own = (c for a in run for c in a.derivation.conventions if self.head.get(c.field) != c)
        told = [c for c in dict.fromkeys(own) if self.here.get(c.field) != c]
        self.here |= {c.field: c for c in told}
        return tuple(ConventionView(c.field, c.name.replace("_", " "), self.page.say(c.statement)) for c in told)

    def grading(self, run: Sequence[Answer], writer: PageWriter) -> tuple[tuple[Markup, Fraction], ...]:
        """The points of the steps of some answers, for those who grade."""
        if not self.graders:
            return ()
        several = len(run) > 1
        return tuple(
            (writer.sentence(f"{a.label}: {p.what}" if several and a.label else p.what), p.points)
            for a in run for p in a.grading
        )  # fmt: skip


class FullWriter(AnswerWriter):
    """Writes every step of every derivation."""

    def one(self, answer: Answer, row: Wording, heading: str) -> AnswerView:
        """One answer with all of its steps, numbered, and all that is known beside them."""
        d, writer = answer.derivation, self.of(answer)
        lines = writing.lines(d)
        left = max(writer.width(Sym(line.name)) for line in lines if line.name)
        room = PAGE_WIDTH - _NUMBER - left - _RELATION - _GAP
        beside = room - _REASON - _GAP
        steps = [_full_step(line, writer, beside, room) for line in lines]
        known = self.known(answer)
        taken = max((w for line in lines if (w := writer.width(line.form)) <= beside), default=8.0)
        last = ChosenLine(d.answer.name, (("=", d.answer.form),), "", "", ())
        self.seen.append(frozenset())
        return self.view(
            [answer], writer, heading, self.lead(d.lead, d.lead, row, writer), self.given(answer.given, writer),
            [e for e in d.exhibits if e.place == "before"], [e for e in d.exhibits if e.place != "before"],
            answer.mistakes, steps=tuple(steps), box=self.box(answer, last, writer, known),
            lefts=tuple(dict.fromkeys(step.row.left for step in steps if step.row.left)),
            right_width=round(min(beside, max(8.0, taken + 1.5)), 1),
        )  # fmt: skip

    def notes(self, run: Sequence[Answer], writer: PageWriter) -> tuple[Markup, ...]:
        """The notes of an answer, also where the document has told them."""
        return tuple(writer.sentence(note) for answer in run for note in self.noted(answer))


@lru_cache(maxsize=512)
def _writer(own: ByIdentity[Notation], page: ByIdentity[Notation], kind: Kind, say: Callable[[str], str]) -> PageWriter:
    """The writer with the names of a derivation and of its document, whose own come first."""
    latex, meanings = own.it.latex | page.it.latex, own.it.meanings | page.it.meanings
    return writer_of(kind, tuple(latex.items()), tuple(meanings.items()), say)


@lru_cache(maxsize=4096)  # the papers of a class share their lines
def _formulas(
    writer: PageWriter, held: ByIdentity[ChosenLine], room: float, last: bool
) -> tuple[list[ChainPiece], bool]:
    """The forms of a line that are not too wide, and whether these are all; the last form of the last one is boxed."""
    forms = held.it.forms[:-1] if last and len(held.it.forms) > 1 else held.it.forms
    narrow = [(r, f) for r, f in forms if writer.width(f) <= _WIDE]
    kept = narrow or [min(forms, key=lambda rf: writer.width(rf[1]))]
    return [writer.link(r.lstrip(":"), f, room) for r, f in kept], len(kept) == len(forms)


def _full_step(line: writing.PrintedLine, writer: PageWriter, beside: float, room: float) -> StepView:
    wide = writer.width(line.form) > beside
    row = writer.row(line.name, line.relation, line.form, room if wide else beside)
    return StepView(
        f"({line.number})", row, writer.sentence(line.reason), line.rule, writer.sentence(line.condition), wide
    )


def _legible(number: Fraction) -> bool:
    """Whether a number is read as it is: a decimal, or a fraction of at most four digits above and below."""
    return not ("/" in exact_text(number) and max(abs(number.numerator), number.denominator) >= 10**4)


def _long_fraction(form: Form) -> bool:
    """Whether a number would be written as a fraction of many digits."""
    return isinstance(form, Ratio) and not forms.names(form) and not _legible(forms.evaluate(form, {}))


def _readable(number: Fraction) -> Form:
    """A number as it is put into a formula: a large round one as 1.41 · 10⁹."""
    if number.denominator != 1 or abs(number) < 10**7:
        return Num(number)
    exponent = (len(str(abs(number.numerator))) - 1) // 3 * 3
    exponent -= 3 if (number / 10**exponent * 100).denominator != 1 else 0
    lead = number / 10**exponent
    if (lead * 100).denominator != 1:
        return Num(number)
    power = Power(Num(Fraction(10)), Num(Fraction(exponent)))
    return power if lead == 1 else Product((Num(lead), power))


def _room(last: ChosenLine, writer: PageWriter) -> float:
    """How wide a form of an answer may be in a box, in em."""
    return PAGE_WIDTH - writer.width(Sym(last.name)) - _RELATION - 4


def _common(lines: Sequence[ChosenLine]) -> ChosenLine | None:
    """A line of several answers as far as it is the same in all: whole, or its formula without the numbers put in."""
    if len({line.forms for line in lines}) == 1:
        return lines[0]
    formula = lines[0].forms[:1]
    same = len({line.forms[:1] for line in lines}) == 1 and forms.names(formula[0][1])
    return replace(lines[0], forms=formula) if same else None


def _constant(line: ChosenLine, answer: Answer) -> bool:
    """Whether a line only says a number that was given: the capacity of a device."""
    return len(line.forms) == 1 and isinstance(line.last, Num) and line.name != answer.derivation.answer.name


def _stated(constants: Sequence[ChosenLine], derivation: object) -> tuple[Given, ...]:
    units = {step.name: step.unit for step in derivation.steps}  # type: ignore[attr-defined]
    return tuple(
        Given(line.name, line.reason.rstrip("."), Quantity(line.last.number, units[line.name]))
        for line in constants
        if isinstance(line.last, Num)
    )


def _listed(lines: Sequence[ChosenLine], notation: Notation, known: Mapping[str, Fraction], answer: Answer) -> Exhibit:
    """Many lines as a table: what each is, what it is worth, and why."""
    units = {step.name: step.unit for step in answer.derivation.steps}
    numbers = all(line.name in known for line in lines)
    rows: list[tuple[str | Form | Quantity, ...]] = []
    for line in lines:
        narrow = [f for _, f in line.forms if printing.width(f, None, notation) <= 16.0]
        form = (
            narrow[-1] if narrow else min((f for _, f in line.forms), key=lambda f: printing.width(f, None, notation))
        )
        row: tuple[str | Form | Quantity, ...] = (f"`{line.name}`", form)
        row += (_cell(Quantity(known[line.name], units[line.name])),) if numbers else ()
        rows.append((*row, line.reason))
    columns = ("", "formula", "number", "why") if numbers else ("", "formula", "why")
    return Exhibit("", columns, tuple(rows))


def _cell(quantity: object) -> str | Quantity:
    """A number in a cell, said in one way."""
    return tables.Short(quantity.value, quantity.unit) if isinstance(quantity, Quantity) else str(quantity)


def _em(cell: object, writer: PageWriter) -> float:
    if isinstance(cell, Form):
        return writer.width(cell)
    return 0.5 * len(printing.short(cell) if isinstance(cell, Quantity) else str(cell))
