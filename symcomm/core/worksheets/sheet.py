"""A worksheet that can be asked: the lines that an answer depends on, as a derivation."""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from symcomm.core import form as forms
from symcomm.core.derivation import Derivation, Reason, Step, Witness, rational
from symcomm.core.errors import DerivationError, DocumentError, IrrationalError, SymcommError, ValuesError, nearest
from symcomm.core.files import read_text
from symcomm.core.form import Form, Num, Power, Product, Ratio, Root, Sym, Total
from symcomm.core.hardware.paths import positive
from symcomm.core.notation import Notation
from symcomm.core.records import dataclass
from symcomm.core.text.table import Cell
from symcomm.core.units import ONE, Quantity, Unit
from symcomm.core.worksheets.reader import (
    SIZE_LIMIT,
    Claim,
    SheetSymbol,
    WorksheetLine,
    WorksheetQuestion,
    WorksheetReader,
)
from symcomm.core.worksheets.runs import RUNS, witness

if TYPE_CHECKING:
    from sympy import Expr

    from symcomm.core.setting import Setting

_TOLD = r"\{(~?)([^{}]+)\}"  # a number in a sentence
_TERMS, _DEGREE = 2000, 1000  # of a line with all names written out


@dataclass(frozen=True)
class Input:
    """An option that a worksheet takes: the fields of an option of a quantity."""

    name: str
    kind: str
    meaning: str
    default: str | None = None
    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Worksheet:
    """A worksheet that was read: a quantity that needs no model, and with ``line`` one of its lines.

    >>> from symcomm.core.graph.graph import Graph
    >>> from symcomm.core.setting import Setting
    >>> text = "# Area|## Symbols|- a [count]: a side|## Lines|- A := a^2|  square: Side by side.".replace("|", chr(10))
    >>> str(parse_worksheet(text, "area.md").ask("A").derive(Setting(Graph("no model", {}, {}, ()))).at(a=3))
    '9'
    """

    read: WorksheetReader
    line: str = ""
    needs_model: bool = False

    @property
    def name(self) -> str:
        """The name that asks for it."""
        return self.line or Path(self.read.file).stem

    @property
    def summary(self) -> str:
        """What it tells, as a list of quantities says it."""
        said = self.read.about.rstrip(".")
        return said[:1].lower() + said[1:]

    @cached_property
    def options(self) -> tuple[Input, ...]:
        """What it can be told: its choices (a line has none), and the symbols that an option gives."""
        found: dict[str, Input] = {}
        for one in () if self.line else self.read.choices.values():
            known = dict.fromkeys(c for q in self.read.questions for key, c in q.chosen if key == one.name)
            found[one.name] = Input(one.name, "choice", one.meaning, one.default or None, tuple(known))
        for given in self.read.symbols.values():
            if given.option:
                kind = "size" if given.counts else "quantity"
                found.setdefault(given.option, Input(given.option, kind, given.meaning))
        return tuple(found.values())

    @property
    def _questions(self) -> tuple[WorksheetQuestion, ...]:
        """The questions, and the lines that belong to none as one."""
        return (*self.read.questions, WorksheetQuestion(self.read.title, span=self.read.span))

    def ask(self, name: str) -> Worksheet:
        """What a name asks for: all its questions, or one line. Raises ``DocumentError`` where there is none."""
        lines = [line for q in self._questions for line in (*self.read.lines, *q.lines) if line.relation == ":="]
        known = [*dict.fromkeys(line.name for line in lines), *([self.name] if self.read.questions else [])]
        if name not in known:
            raise DocumentError(f"{self.read.file} has nothing called '{name[:60]}'", hint=nearest(name, known))
        return self if name == known[-1] and self.read.questions else replace(self, line=name)

    def check(self) -> Worksheet:
        """The same, once all formulas were read. Raises ``DocumentError`` and ``FormulaError`` at a wrong one."""
        for question in self._questions[: None if self.read.lines else -1]:
            _Asked(self.read, question, {})
        return self

    def spelled(self, **words: str) -> Worksheet:
        """The same with other words for some of its words: ``spelled(multiprocessor="core")``."""
        text = re.sub("|".join(words), lambda found: words[found[0]], self.read.text)
        return parse_worksheet(text, self.read.file)

    def derive(self, setting: Setting, **options: object) -> Derivation:
        """The derivation of the question that the options choose, or of the line.

        Raises ``ValuesError`` where no question is chosen, or an option makes no difference.
        """
        said = {name: value for name, value in options.items() if value is not None}
        known = [one.name for one in self.options]
        for name in said:
            if name not in known:
                raise ValuesError(f"'{self.name}' has no option '{name[:40]}'", hint=nearest(name, known))
        if not self.line:
            return _Asked(self.read, self._question(setting, said), said).derivation(setting)
        of = next((q for q in self._questions if any(line.name == self.line for line in q.lines)), self._questions[-1])
        return _Asked(self.read, replace(of, answer=None), said, self.line).derivation(setting)

    def _question(self, setting: Setting, said: Mapping[str, object]) -> WorksheetQuestion:
        found = list(self.read.questions)
        for choice in self.read.choices.values():
            known = [*dict.fromkeys(c for q in found for key, c in q.chosen if key == choice.name)]
            picked = said.get(choice.name, choice.default or None)
            if known and picked is None:
                raise ValuesError(f"say which {choice.name}", hint=f"{choice.name}: {', '.join(known)}")
            if known and picked not in known:
                problem = f"'{str(picked)[:40]}' is no {choice.name} of '{self.name}'"
                raise ValuesError(problem, hint=nearest(str(picked), known))
            if not known and choice.name in said:
                raise ValuesError(f"{choice.name} makes no difference here", hint=f"leave {choice.name} out")
            found = [q for q in found if dict(q.chosen).get(choice.name, picked) == picked]
        found = [q for q in found if said.keys() >= {*q.given}]
        under = [q for q in found if all(getattr(setting.accounting, f) == c for f, c in q.conventions)]
        if not under:
            field = found[0].conventions[0][0]
            use = " or ".join(dict(q.conventions)[field] for q in found)
            counted = f"{field}: {getattr(setting.accounting, field)}"
            raise ValuesError(f"{self.read.title} is not derived under {counted}", hint=f"use {use}")
        return max(under, key=lambda q: len(q.given) + len(q.conventions))


class _Asked:
    """One question, or one line of it, with its formulas read by the grammar and the options that were said."""

    def __init__(
        self, sheet: WorksheetReader, question: WorksheetQuestion, said: Mapping[str, object], line: str = ""
    ) -> None:
        self.sheet, self.question, self.symbols, self.said = sheet, question, sheet.symbols, said
        self.lines = (*sheet.lines, *question.lines)
        self.forms: dict[WorksheetLine, Form] = {}
        self.runs: dict[WorksheetLine, list[Form]] = {}
        self.needs: dict[str, set[str]] = {}  # the lines that each name takes, by a formula or a reason
        self.claims: list[tuple[Claim, list[Form]]] = []
        self.read()
        asked: Mapping[str, str | None] = question.answer.groupdict() if question.answer else {}
        named = next((asked[key] for key in ("name", "cost", "of") if asked.get(key)), None)
        own = [one.name for one in question.lines if one.relation == ":="]
        self.name = line or named or (own or [*self.needs] or [""])[-1]
        self.place = asked.get("place") or asked.get("over") or ""
        self.value, self.whole = bool(asked.get("value")), bool(asked.get("whole"))
        self.greatest = "greatest" in (asked.get("how"), asked.get("value"))
        for name, known in ((self.name, [*self.needs]), (self.place or self.name, [*self.needs, *self.symbols])):
            if name not in known:
                raise DocumentError(f"'{name}' cannot be the answer here", question.span, nearest(name, known))

    def read(self) -> None:
        """Reads every formula: a line over the names before it, a comparison over all of them."""
        known = [*self.symbols]
        extent: dict[str, tuple[int, int]] = {}
        constants: dict[str, Fraction] = {}
        for line in self.lines:
            if line.written_out:
                continue
            form = self.forms[line] = self.form(line.formula, known)
            plain = _put(form, constants)
            size = _extent(plain, extent)
            if size[0] > _TERMS or size[1] > _DEGREE:
                raise DocumentError(f"{line.name} is too large with its names written out", line.span)
            if line.relation == ":=":
                if not forms.names(plain):
                    with suppress(IrrationalError):
                        constants[line.name] = forms.evaluate(plain, {})
                extent[line.name] = size
                said = {word for word in re.findall(r"`([^`]+)`", line.reason) if word in self.needs}
                self.needs[line.name] = said | ({*forms.names(form)} & self.needs.keys())
                known.append(line.name)
            self.runs[line] = [self.form(part, known) for part in line.formulas]
            for place in RUNS[line.run].symbols if line.run else ():
                if not (isinstance(moved := self.runs[line][place], Sym) and moved.name in self.symbols):
                    what = f"{line.run} moves a symbol, and '{line.formulas[place].text[:40]}' is none"
                    raise DocumentError(what, line.span, nearest(line.formulas[place].text, [*self.symbols]))
        for claim in (*self.sheet.claims, *self.question.claims):
            self.claims.append((claim, [self.form(side, known) for side in claim.sides]))
            for name in re.findall(_TOLD, claim.text):
                if name[1] not in known:
                    raise DocumentError(f"'{name[1]}' has no number to be told", claim.span, nearest(name[1], known))
        for name, _ in self.question.units:
            if name not in self.needs:
                raise DocumentError(f"'{name}' is no line that has a unit", self.question.span)

    def form(self, cell: Cell, known: Sequence[str]) -> Form:
        """A formula over known names, with the units of symbols and of numbers such as ``2 [FLOP/FMA]``."""
        from symcomm.core.graph.drafts import size_form
        from symcomm.core.text.formula import parse_answer

        numbers: dict[str, Num] = {}

        def number(found: re.Match[str]) -> str:  # read under a name that stands as long
            quantity = Quantity.written(f"{found[1]} {found[2]}")
            name = f"q_9{len(numbers)}"
            numbers[name] = Num(quantity.value, quantity.unit)
            return name.ljust(len(found[0]))

        def symbol(s: Sym) -> Form:
            one = self.symbols.get(s.name)
            return numbers.get(s.name) or (Sym(s.name, one.counts, one.unit) if one else s)

        try:
            text = re.sub(r"(\d[\d.]*) ?\[([^\]]+)\]", number, cell.text)
        except SymcommError as error:
            raise error.at(cell.span()) from None
        return forms.substitute(size_form(parse_answer(replace(cell, text=text), {*known, *numbers})), symbol)

    def derivation(self, setting: Setting) -> Derivation:
        """The derivation of the answer."""
        wanted = {self.name}
        for name in reversed(self.needs):
            wanted |= self.needs[name] if name in wanted else set()
        lines = [one for one in self.lines if one.name in wanted and (one.relation == ":=" or one.name == self.name)]
        used = {name for line in lines if line in self.forms for name in forms.names(self.forms[line])}
        for option in self.said:
            of = {s.name for s in self.symbols.values() if s.option == option}
            if of and not of & used:
                problem = f"{option} makes no difference to '{self.question.title}'"
                raise ValuesError(problem, hint=f"leave {option} out")
        numbers = {n: v for n in used & self.symbols.keys() if (v := self.number(self.symbols[n], setting)) is not None}
        steps = self.steps(lines, {name: value for name, value in numbers.items() if not value})
        over, meanings = setting.notation, {s.name: s.meaning for s in self.symbols.values()}
        given = tuple((n, numbers[n]) for n in self.symbols if numbers.get(n) and n != self.place)
        title = self.question.title if self.question.lines or self.question.answer else self.sheet.title
        notes = (*self.question.notes, *self.claimed(steps, numbers))
        touched = tuple(field for field, _ in self.question.conventions)

        def derived(shown: Sequence[Step]) -> Derivation:
            written = Notation(over.latex, {**meanings, **over.meanings})
            relations = setting.graph.relations
            return Derivation(title, setting.accounting, tuple(shown), touched, relations, (), given, written, notes)

        try:
            made = derived(steps)
        except DerivationError:
            for number, line in enumerate(lines, start=1):  # the first line that is wrong
                try:
                    derived(steps[:number])
                except DerivationError as error:
                    raise error.at(line.span) from None
            raise
        if not self.place:
            return made
        from symcomm.core.optimum.minimum import maximise, minimise
        from symcomm.core.optimum.question import Wanted
        from symcomm.core.optimum.writing import continued

        cost = replace(made, title=self.sheet.title)
        told: Wanted = "value" if self.value else "place"
        found = (maximise if self.greatest else minimise)(cost, self.place, integer=self.whole, wanted=told)
        return replace(continued(cost, found), title=title, notes=(*notes, *found.notes))

    def number(self, one: SheetSymbol, setting: Setting) -> Fraction | None:
        """The number of a symbol: that of its option, the one given with the question, or its own."""
        value = self.said.get(one.option) if one.option else None
        spelled = one.name if value is None else one.option
        value = setting.values.get(one.name, one.value or None) if value is None else value
        if value is None or (isinstance(value, str) and not re.match(r"[-+.\d]", value)):
            return None  # nothing, or the name of a symbol
        found = positive(value, spelled, str(one.unit), one.may_be_zero)
        if one.counts and found.denominator != 1:
            raise ValuesError(f"{spelled} = {value}: a whole number is needed")
        return found

    def steps(self, lines: Sequence[WorksheetLine], zeros: Mapping[str, Fraction]) -> list[Step]:
        """The lines as steps; what is zero is left out of sums."""
        made: list[Step] = []
        units: dict[str, Unit] = {}
        counted = dict(self.question.units)
        for line in lines:
            form, reason = self.forms.get(line), line.reason
            if form is None:
                form = _written_out(made[-1].form, {s.name: s.form for s in made if s.relation == ":="})
            elif gone := [name for name in forms.names(form) if name in zeros]:
                form = _put(form, zeros)
                reason += f" Left out, since zero: {', '.join(f'`{name}`' for name in gone)}."
            own = counted.get(line.name, line.unit)
            try:
                units.setdefault(line.name, forms.unit_of(form, units) if own is None else own)
            except SymcommError as error:
                raise error.at(line.span) from None
            unit = units[line.name]
            seen = self.witness(line, zeros, {one.name for one in lines}) if line.run else None
            why = Reason(line.rule, reason, witness=seen)
            made.append(Step(line.name, form, unit, why, line.relation, line.condition))
        return made

    def witness(self, line: WorksheetLine, zeros: Mapping[str, Fraction], shown: set[str]) -> Witness:
        """What bears a line out, over symbols and the names of the lines that are shown."""
        by = {one.name: form for one, form in self.forms.items() if one.relation == ":="}
        if not RUNS[line.run].written_out:
            by = {name: form for name, form in by.items() if name not in shown}
        return witness(line.run, line.name, [_put(_written_out(form, by), zeros) for form in self.runs[line]])

    def claimed(self, steps: Sequence[Step], numbers: Mapping[str, Fraction]) -> list[str]:
        """The notes that hold; raises ``ValuesError`` where something required does not."""
        if not self.claims:
            return []
        told = {name: rational(value) for name, value in numbers.items()}
        for step in steps:
            if step.relation == ":=" and (value := _worth(step.form, told)) is not None:
                told[step.name] = value
        units = {s.name: s.unit for s in self.symbols.values()} | {s.name: s.unit for s in steps}
        notes = []
        for claim, sides in self.claims:
            found = [value for side in sides if (value := _worth(side, told)) is not None]
            if len(found) < len(sides):
                continue
            text = re.sub(_TOLD, lambda m: _said(told, units, m[2], m[1]), claim.text)
            holds = not found or _HOLDS[claim.relation](_sign(found[0] - found[1]), 0)
            if claim.required and not holds:
                raise ValuesError(text, hint=claim.hint)
            notes += [text] if holds and not claim.required else []
        return notes


_HOLDS = {"<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge, "=": operator.eq, "!=": operator.ne}


def _sign(difference: Expr) -> int:
    return 0 if difference == 0 else 1 if difference.evalf(30) > 0 else -1


def _worth(form: Form, told: Mapping[str, Expr]) -> Expr | None:
    """The number of a form, of which no power is too large; None where a name has no number."""
    if not told.keys() >= {*forms.names(form)}:
        return None
    exact = {name: Fraction(int(v.p), int(v.q)) for name, v in told.items() if v.is_Rational}
    for piece in forms.walk(form):
        if isinstance(piece, Power) and exact.keys() >= {*forms.names(piece)}:
            with suppress(IrrationalError):
                forms.evaluate(piece, exact)
    return forms.value(form, told)


def _said(told: Mapping[str, Expr], units: Mapping[str, Unit], name: str, about: str) -> str:
    """A number in a sentence: exact with its unit, or about."""
    value = told.get(name)
    if value is None:
        return name
    if about or not value.is_Rational:
        return f"{float(value):.4g}"
    return str(Quantity(Fraction(int(value.p), int(value.q)), units.get(name, ONE)))


def _written_out(form: Form, by: Mapping[str, Form]) -> Form:
    """A form without the names of earlier lines."""
    return forms.substitute(form, lambda s: _written_out(by[s.name], by) if s.name in by else s)


def _put(form: Form, values: Mapping[str, Fraction]) -> Form:
    """A form with numbers for some names; what is zero is left out of sums."""
    if isinstance(form, Sym):
        return Num(values[form.name]) if form.name in values else form
    made = form.mapped(lambda part: _put(part, values))
    if isinstance(made, Total):
        return forms.total(*(term for term in made.terms if term != forms.num(0)))
    return forms.num(0) if isinstance(made, Product) and forms.num(0) in made.factors else made


def _extent(form: Form, known: Mapping[str, tuple[int, int]]) -> tuple[int, int]:
    """How many terms a form has once multiplied out, and its degree, long numbers included; capped far above."""
    high = 10**9
    match form:
        case Num(number):
            return 1, max(1, max(abs(number.numerator), number.denominator).bit_length() // 64)
        case Sym(name):
            return known.get(name, (1, 1))
        case Power(base, exponent):
            terms, degree = _extent(base, known)
            power = max((abs(n.number.__ceil__()) for n in forms.walk(exponent) if isinstance(n, Num)), default=1)
            with suppress(ValuesError):
                power = max(1, abs(forms.evaluate(exponent, {}).__ceil__()))
            return min(high, terms ** min(power, 64)), min(high, degree * power)
    parts = [_extent(part, known) for part in form.parts]
    if isinstance(form, (Product, Ratio)):
        terms = degree = 1
        for more, higher in parts:
            terms, degree = min(high, terms * more), min(high, degree + higher - 1)
        return terms, degree
    if isinstance(form, Root):
        return parts[0]
    return min(high, sum(terms for terms, _ in parts)), max(degree for _, degree in parts)


def parse_worksheet(text: str, file: str) -> Worksheet:
    """The worksheet in a text; ``file`` names it. Raises ``DocumentError`` where a line is none of a worksheet's."""
    return Worksheet(WorksheetReader(text, file))


def read_worksheet(path: str | Path, inside: str | Path | None = None) -> Worksheet:
    """The worksheet in a file, all of whose formulas were read; ``inside`` is the folder that it must lie in."""
    path = Path(path)
    if inside is not None:
        folder = Path(inside).resolve()
        if not (folder / path).resolve().is_relative_to(folder):
            raise DocumentError(f"the worksheet {path} lies outside the folder of this file", hint="put it beside it")
        path = folder / path
    return parse_worksheet(read_text(path, "the path of a worksheet", 4 * SIZE_LIMIT), path.name).check()
