"""A worksheet that can be asked: the lines that an answer depends on, as a derivation."""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from fractions import Fraction
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from symcomm.core import form as forms
from symcomm.core.derivation import Continued, Derivation, Exhibit, Reason, Step, Witness, rational, unread
from symcomm.core.derivation.relations import readable
from symcomm.core.errors import DerivationError, DocumentError, IrrationalError, SymcommError, ValuesError, nearest
from symcomm.core.files import read_text
from symcomm.core.form import Form, Num, Power, Product, Ratio, Root, Sym, Total
from symcomm.core.hardware.paths import positive
from symcomm.core.libraries import Expr
from symcomm.core.notation import Notation
from symcomm.core.records import ByIdentity, dataclass
from symcomm.core.text.table import Cell
from symcomm.core.units import ONE, Quantity, Unit
from symcomm.core.worksheets.facts import Quantities, cited, derived, extent_of, mixed, passed_on
from symcomm.core.worksheets.reader import (
    SIZE_LIMIT,
    Claim,
    Guards,
    SheetSymbol,
    WorksheetLine,
    WorksheetQuestion,
    WorksheetReader,
)
from symcomm.core.worksheets.runs import RUNS, witness

if TYPE_CHECKING:
    from symcomm.core.setting import Setting

_TOLD = r"\{(~?)([^{}]+)\}"  # a number in a sentence
_DEEP = 60  # lines that stand on one another
_TERMS, _DEGREE = 2000, 1000  # of a line with all names written out
_OF_FACT = (2, 2)  # terms and degree of a fact, whatever the model is
_OWN = "*"  # marks a symbol of the sheet among those of a model
_TELLS = ("strategy", "dtype")  # options that describe a situation, as rates do: one without effect is only told


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
    """A worksheet that was read: a quantity, and with ``line`` one of its lines.

    It needs a model where it takes facts from one; ``quantities`` are those that it takes them from.

    >>> from symcomm.core.graph.graph import Graph
    >>> from symcomm.core.setting import Setting
    >>> text = "# Area|## Symbols|- a [count]: a side|## Lines|- A := a^2|  square: Side by side.".replace("|", chr(10))
    >>> str(parse_worksheet(text, "area.md").ask("A").derive(Setting(Graph("no model", {}, {}, ()))).at(a=3))
    '9'
    """

    read: WorksheetReader
    line: str = ""
    quantities: Quantities = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def needs_model(self) -> bool:
        """Whether it takes something from a model."""
        taken = (self.quantities.get(line.source.quantity) for line in self._lines if line.source)
        return any(one is None or one.needs_model for one in taken)

    @property
    def _lines(self) -> list[WorksheetLine]:
        """All lines: those that its questions share, and their own."""
        return [*self.read.lines, *(line for question in self.read.questions for line in question.lines)]

    @property
    def name(self) -> str:
        """The name that asks for it."""
        return self.line or Path(self.read.file).stem

    @property
    def summary(self) -> str:
        """Its result, as a list of quantities says it."""
        said = self.read.about.rstrip(".")
        return said[:1].lower() + said[1:]

    @cached_property
    def passed_on(self) -> Mapping[str, Any]:
        """The options of quantities that it passes on; raises ``DocumentError`` where a line takes an unknown one."""
        return passed_on(self.read, self._lines, self.quantities)

    @cached_property
    def options(self) -> tuple[Input, ...]:
        """The options of its own: its choices (a line has none), and the symbols that an option gives."""
        found: dict[str, Input] = {}
        for one in () if self.line else self.read.choices.values():
            known = dict.fromkeys(c for q in self.read.questions for key, c in q.chosen if key == one.name)
            found[one.name] = Input(one.name, "choice", one.meaning, one.default or None, tuple(known))
        for given in self.read.symbols.values():
            if given.option:
                kind = "size" if given.counts else "text" if given.put_in else "quantity"
                found.setdefault(given.option, Input(given.option, kind, given.meaning))
        return tuple(found.values())

    @cached_property
    def _questions(self) -> tuple[WorksheetQuestion, ...]:
        """The questions, and the lines that belong to none as one."""
        return (*self.read.questions, WorksheetQuestion(self.read.title, span=self.read.span))

    def ask(self, name: str) -> Worksheet:
        """The questions behind a name: all its questions, or one line. Raises ``DocumentError`` where there is none."""
        lines = [line for q in self._questions for line in (*self.read.lines, *q.lines) if line.relation == ":="]
        known = [*dict.fromkeys(line.name for line in lines), self.name]
        if name not in known:
            raise DocumentError(f"{self.read.file} has nothing called '{name[:60]}'", hint=nearest(name, known))
        return self if name == self.name else replace(self, line=name)

    def over(self, quantities: Quantities) -> Worksheet:
        """The same with the quantities that it takes facts from; raises ``DocumentError`` at a line that is wrong."""
        made = replace(self, quantities=quantities)
        _ = made.passed_on
        return made

    def check(self) -> Worksheet:
        """The same, once all formulas were read. Raises ``DocumentError`` and ``FormulaError`` at a wrong one.

        Wrong is a line, too, that no run bears out, neither its own nor one of a line of the answer that takes it.
        """
        every = [self._asked(question) for question in self._questions[: None if self.read.lines else -1]]
        for one in every:
            for line in one.lines:
                one.run(line)
        answers = every[: len(self.read.questions) or None]
        unborne = [line for asked in answers for line in asked.unborne(asked.reached)]
        used = {line for asked in answers for line in asked.lines if line.name in asked.reached}
        unborne += [line for asked in every for line in asked.unborne({*asked.needs}) if line not in used]
        for line in unborne:
            problem = f"{line.name} has no run, and leads to no line that has one"
            raise DocumentError(problem, line.span, f"run: same({line.name}, ...), on a line below its reason")
        return self

    def _asked(self, question: WorksheetQuestion, line: str = "") -> _Asked:
        """A question, or one of its lines, with its formulas read once."""
        if (question, line) not in self._read_once:
            self._read_once[question, line] = _Asked(self, question, line)
        return self._read_once[question, line]

    @cached_property
    def forms_read(self) -> dict[tuple[Cell, tuple[str, ...]], Form]:
        """The formulas that were read, by the names that were known."""
        return {}

    @cached_property
    def _read_once(self) -> dict[tuple[WorksheetQuestion, str], _Asked]:
        return {}

    def spelled(self, **words: str) -> Worksheet:
        """The same with other words for some of its words: ``spelled(multiprocessor="core")``."""
        text = re.sub("|".join(words), lambda found: words[found[0]], self.read.text)
        return parse_worksheet(text, self.read.file)

    def derive(self, setting: Setting, **options: object) -> Derivation:
        """The derivation of the question that the options choose, or of the line.

        Raises ``ValuesError`` where no question is chosen, or an option makes no difference.
        """
        said = {name: value for name, value in options.items() if value is not None}
        known = [*(one.name for one in self.options), *self.passed_on]
        for name in said:
            if name not in known:
                raise ValuesError(f"'{self.name}' has no option '{name[:40]}'", hint=nearest(name, known))
        if not self.line:
            return _Asking(self._asked(self._question(setting, said)), setting, said).derivation()
        of = next((q for q in self._questions if any(line.name == self.line for line in q.lines)), self._questions[-1])
        return _Asking(self._asked(of, self.line), setting, said).derivation()

    def _question(self, setting: Setting, said: Mapping[str, object]) -> WorksheetQuestion:
        found = list(self.read.questions) or [self._questions[-1]]
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
        under = [q for q in under if not q.guards or _Asking(self._asked(q), setting, said).holds(q.guards, [])]
        return max(under, key=lambda q: len(q.given) + len(q.conventions) + bool(q.guards))


class _Asked:
    """One question, or one line of it, with its formulas read by the grammar."""

    def __init__(self, sheet: Worksheet, question: WorksheetQuestion, line: str = "") -> None:
        self.sheet, self.question, self.symbols, self.of = sheet.read, question, sheet.read.symbols, sheet
        self.lines = (*sheet.read.lines, *question.lines)
        self.forms: dict[WorksheetLine, Form] = {}
        self.known: dict[WorksheetLine, tuple[str, ...]] = {}  # the names that a run of a line may take
        self.needs: dict[str, set[str]] = {}  # the lines that each name takes, by a formula or a reason
        self.claims: list[tuple[Claim, list[Form]]] = []
        self.compared: dict[Cell, Form] = {}  # the sides of comparisons in guards, and the formulas of tables
        self.read()
        answer = None if line else question.answer
        asked: Mapping[str, str | None] = answer.groupdict() if answer else {}

        def said(*keys: str) -> str:
            return next((found for key in keys if (found := asked.get(key))), "")

        own = [one.name for one in question.lines if one.relation == ":="]
        self.name = line or said("name", "cost", "of", "left", "one") or (own or [*self.needs] or [""])[-1]
        self.place, self.against = said("place", "over", "met", "reached"), said("right", "other")
        self.value, self.whole = bool(said("value")), bool(said("whole", "each", "round"))
        self.most, self.edge, self.side = said("most", "end"), said("edge"), said("side")
        self.greatest = "greatest" in (asked.get("how"), asked.get("value"))
        lines = [*self.needs]
        names = [*lines, *self.symbols]
        checked = [(self.name, names if self.against else lines), (self.most or self.name, names)]
        if not (self.against and sheet.needs_model):  # a symbol of the model
            checked.append((self.place or self.name, names))
        for name, known in (*checked, (self.against or self.name, names)):
            if name not in known:
                raise DocumentError(f"'{name[:40]}' cannot be the answer here", question.answered or question.span,
                                    nearest(name, known))

    def read(self) -> None:
        """Reads every formula: a line over the names before it, a comparison over all of them."""
        known = [*self.symbols]
        extent: dict[str, tuple[int, int]] = {}
        constants: dict[str, Fraction] = {}
        deep: dict[str, int] = {}
        for line in self.lines:
            if line.written_out:
                self.known[line] = tuple(known)
                continue
            form = self.forms[line] = Sym(line.name) if line.source else self.form(line.formula, known)
            plain = _put(form, constants)
            size = _OF_FACT if line.source else _extent(plain, extent)
            if size[0] > _TERMS or size[1] > _DEGREE:
                raise DocumentError(f"{line.name} is too large with its names written out", line.span)
            self.compare(line.guards, known)
            if line.relation == ":=":
                if not forms.names(plain) and not line.guards:
                    with suppress(IrrationalError):
                        constants[line.name] = forms.evaluate(plain, {})
                terms, degree = extent.get(line.name, (0, 0))
                extent[line.name] = max(size[0], terms), max(size[1], degree)
                said = {word for word in re.findall(r"`([^`]+)`", line.reason) if word in self.needs}
                takes = said | ({*forms.names(form)} & self.needs.keys())
                sides = [self.compared[side] for left, _, right in line.guards.compared for side in (left, right)]
                used = sides if line.source else [form, *sides]
                if line.name in self.behind({name for one in used for name in forms.names(one)}):
                    problem = f"{line.name} is defined by itself, through an earlier line of that name"
                    raise DocumentError(problem, line.span, "give one of the two another name")
                deep[line.name] = 1 + max((deep[name] for name in takes), default=0)
                if deep[line.name] > _DEEP:
                    raise DocumentError(f"{line.name} needs a chain of more than {_DEEP} lines", line.span)
                self.needs[line.name] = self.needs.get(line.name, set()) | takes - {line.name}
                known.append(line.name)
            self.known[line] = tuple(known)
        for claim in (*self.sheet.claims, *self.question.claims):
            self.claims.append((claim, [self.form(side, known) for side in claim.sides]))
            self.compare(claim.guards, known)
            for name in re.findall(_TOLD, claim.text):
                if name[1] not in known:
                    raise DocumentError(f"'{name[1]}' has no number", claim.span, nearest(name[1], known))
        self.compare(self.question.guards, known)
        for cell in (cell for table in self.sheet.tables for row in table.rows for cell in row):
            if isinstance(cell, Cell):
                self.compared[cell] = self.form(cell, [*self.symbols], lines=False)
        for name, _ in self.question.units:
            if name not in self.needs:
                raise DocumentError(f"'{name}' is no line that has a unit", self.question.span)

    def run(self, line: WorksheetLine) -> list[Form]:
        """The formulas of the run of a line, read when somebody asks for them."""
        found = [self.form(part, self.known[line]) for part in line.formulas]
        for place in RUNS[line.run].symbols if line.run else ():
            if not (isinstance(moved := found[place], Sym) and moved.name in self.symbols):
                part = line.formulas[place]
                what = f"{line.run} moves a symbol, and '{part.text[:40]}' is none"
                raise DocumentError(what, part.span(), nearest(part.text, [*self.symbols]))
        return found

    @property
    def reached(self) -> set[str]:
        """The names of the lines that the answer takes, by formulas or reasons."""
        return self.behind({self.name, self.against})

    def behind(self, names: set[str]) -> set[str]:
        """Those of some names that lines define, and the names that these take."""
        found, todo = set[str](), names & self.needs.keys()
        while todo:
            found |= todo
            todo = {name for line in todo for name in self.needs[line]} - found
        return found

    def unborne(self, among: set[str]) -> list[WorksheetLine]:
        """The lines of some names that no run bears out: none of their own, and none of a line that takes them."""
        taken, found = set[str](), []
        for line in (one for one in reversed(self.lines) if one.relation == ":=" and one.name in among):
            if line.run or line.source or line.name in taken:
                taken |= {name for form in (self.forms[line], *self.run(line)) for name in forms.names(form)}
            elif line.rule:
                found.append(line)
        return found[::-1]

    def compare(self, guards: Guards, known: Sequence[str]) -> None:
        """Reads the sides of comparisons."""
        for left, _, right in (*guards.compared, *guards.told):
            self.compared |= {side: self.form(side, known) for side in (left, right)}
        for side in (side for left, _, right in guards.told for side in (left, right)):
            for name in forms.names(self.compared[side]):
                if name not in self.symbols or not self.symbols[name].put_in:
                    hint = f"- {name} = 1 put in: below Symbols, or ', where' instead of ', if'"
                    raise DocumentError(f"no number is put in for {name}: it decides nothing", side.span(), hint)

    def form(self, cell: Cell, known: Sequence[str], lines: bool = True) -> Form:
        """A formula over known names, of ``lines`` or not; where questions share a line, its formula is read once."""
        key, kept = (cell, tuple(known)), self.of.forms_read
        if key not in kept:
            kept[key] = self.parsed(cell, known)
        return kept[key]

    def parsed(self, cell: Cell, known: Sequence[str]) -> Form:
        """A formula over known names, with the units of symbols and of numbers such as ``2 [FLOP/FMA]``."""
        from symcomm.core.text.formula import read_form

        numbers: dict[str, Num] = {}

        def number(found: re.Match[str]) -> str:  # read under a name that stands as long
            over = found[2].startswith("1/")  # 1 [1/layer]
            quantity = Quantity(Quantity.written(found[1]).value, Unit.parse(found[2])) if over else Quantity.written(
                f"{found[1]} {found[2]}")  # fmt: skip
            name = f"q_9{len(numbers)}"
            numbers[name] = Num(quantity.value, quantity.unit)
            return name.ljust(len(found[0]))

        def symbol(s: Sym) -> Form:
            one = self.symbols.get(s.name)
            return numbers.get(s.name) or (one.form if one else s)

        with cell.span().meant():
            text = re.sub(r"(\d[\d.]*) ?\[([^\]]+)\]", number, cell.text)
        try:
            form = read_form(replace(cell, text=text), {*known, *numbers})
        except SymcommError as error:
            later = error.span.word if error.span else ""
            if later in self.needs or all(one.name != later for one in self.lines):
                raise
            problem = f"{later} is not defined before this line"
            raise DocumentError(problem, error.span, "a line takes names of lines above it, and never itself") from None
        return forms.substitute(form, symbol)


class _Asking:
    """A question that is asked of a setting, with the options that were said."""

    def __init__(self, asked: _Asked, setting: Setting, said: Mapping[str, object]) -> None:
        self.asked, self.setting, self.said = asked, setting, said
        self.sheet, self.question, self.symbols = asked.sheet, asked.question, asked.symbols
        self.facts: dict[WorksheetLine, Derivation] = {}
        self.made: tuple[Step, ...] = ()
        self.used: set[str] = set()
        self.units: dict[str, Unit] = {}  # of the steps
        self.passed = {name: value for name, value in said.items() if name in asked.of.passed_on}
        self.numbers = {n: v for n, one in self.symbols.items() if (v := self.number(one)) is not None}
        put_in = {n for n, one in self.symbols.items() if one.put_in and self.spelled(n) not in setting.values}
        self.fixed = {name: readable(number, self.symbols[name].option or name, 100)  # rewrites are proved with it
                      for name, number in self.numbers.items() if name in put_in}  # fmt: skip
        self.picked: dict[str, WorksheetLine] = {}
        self.special: list[tuple[str, list[Form]]] = []  # equalities that numbers did not decide
        self.lines = self.chosen()
        for name in (n for line in self.lines for form in asked.run(line) for n in forms.names(form)):
            self.pick(name)  # a run may take what the answer does not

    def chosen(self) -> list[WorksheetLine]:
        """The lines that the answer takes: of several that define a name, the first one whose guards hold."""
        self.pick(self.asked.name)
        self.pick(self.asked.against)
        found: list[WorksheetLine] = []
        for line in self.asked.lines:
            before = next((one for one in reversed(found) if one.name == line.name), None)
            algebra = line.relation != ":=" and line.name == self.asked.name and before is not None
            other = algebra and before is not None and before.relation == line.relation and bool(before.guards)
            if self.picked.get(line.name) is line or (algebra and not other and self.holds(line.guards, self.special)):
                found.append(line)
        return found

    def pick(self, name: str) -> None:
        """Chooses the line that defines a name, and those that it takes."""
        if name in self.picked or name not in self.asked.needs:
            return
        several = [one for one in self.asked.lines if one.name == name and one.relation == ":="]
        for line in several:
            if self.holds(line.guards, self.special):
                self.picked[name] = line
                if line.source:
                    of = self.asked.of
                    self.facts[line] = derived(line, of.quantities, self.setting, self.passed, of.passed_on)
                    return
                said = (word for word in re.findall(r"`([^`]+)`", line.reason) if word != name)
                for other in dict.fromkeys((*forms.names(self.asked.forms[line]), *said)):  # always in one order
                    self.pick(other)
                return
        wanted = " or ".join(dict.fromkeys(option for one in several for group in one.guards.given for option in group))
        hint = f"give {wanted}" if wanted else "one line must hold without a condition"
        raise ValuesError(f"no line of {self.sheet.file} says what {name} is here", hint=hint)

    def holds(self, guards: Guards, special: list[tuple[str, list[Form]]]) -> bool:
        """Whether the options, conventions and numbers are those of a line; ``special`` gets open equalities."""
        if not all(any(option in self.said for option in group) for group in guards.given):
            return False
        for convention, choices in guards.conventions:
            if self.setting.choice(convention) not in choices:
                return False
        for left, relation, right in guards.told:
            worth = [_worth(_put(self.asked.compared[cell], self.fixed), {}) for cell in (left, right)]
            if worth[0] is None or worth[1] is None or not _HOLDS[relation](_sign(worth[0] - worth[1]), 0):
                return False
        for left, relation, right in guards.compared:
            sides = [self.asked.compared[cell] for cell in (left, right)]
            for name in (n for side in sides for n in forms.names(side)):
                self.pick(name)
            known = self.known()
            values = [_worth(self.plain(side), known) for side in sides]
            if None in values and relation == "=":  # a special case: not the general one
                special.append((f"{left.text} = {right.text}", sides))
                return False
            if values[0] is None or values[1] is None:
                lacking = dict.fromkeys(n for side in sides for n in forms.names(self.plain(side)) if n not in known)
                raise ValuesError(f"{left.text} {relation} {right.text} decides which formula holds",
                                  hint=f"give numbers for {', '.join(lacking)}".replace(_OWN, ""))  # fmt: skip
            if not _HOLDS[relation](_sign(values[0] - values[1]), 0):
                return False
        return True

    def plain(self, form: Form) -> Form:
        """A form in symbols alone: what was picked is written out. The sheet's own symbols end in a mark."""

        def worth(s: Sym) -> Form:
            line = self.picked.get(s.name)
            if line in self.facts:
                return forms.from_expr(self.facts[line].expr)
            return replace(s, name=s.name + _OWN) if line is None else self.plain(self.asked.forms[line])

        return forms.substitute(form, worth)

    def known(self) -> dict[str, Expr]:
        """The numbers of symbols that are known: the model's, those of its facts, and the sheet's, with their mark."""
        known = dict(self.setting.values)
        known |= {name: value for made in self.facts.values() for name, value in made.given}
        known |= {name + _OWN: value for name, value in self.numbers.items()}
        return {name: rational(value) for name, value in known.items()}

    def taken(self) -> set[str]:
        """The options that decide something."""
        asked = self.asked
        used = {n for line in self.lines if line in asked.forms for n in forms.names(asked.forms[line])}
        used |= {asked.name, asked.against}
        used |= {n for guards in (self.question.guards, *(line.guards for line in self.lines))
                 for left, _, right in (*guards.compared, *guards.told)
                 for cell in (left, right) for n in forms.names(asked.compared[cell])}  # fmt: skip
        own_claims = {*self.question.claims, *(() if self.sheet.questions else self.sheet.claims)}
        used |= {n for claim, sides in asked.claims if claim in own_claims or not claim.required
                 for side in sides for n in forms.names(side)}  # fmt: skip
        taken = {one.option for name, one in self.symbols.items() if name in used and name != asked.place}
        if asked.place in self.symbols and self.spelled(asked.place) != asked.place:
            taken.add(self.symbols[asked.place].option)  # the name to solve for, and no number
        for line in self.facts:
            assert line.source is not None
            fixed = dict(line.source.fixed)
            options = {one.name for one in asked.of.quantities[line.source.quantity].options}
            taken |= (options & asked.of.passed_on.keys()) - fixed.keys()
        return taken | ({*self.bounding(asked.most).said} if asked.most else set())

    def unused(self) -> list[str]:
        """Notes of what an option describes that no line used; raises ``ValuesError`` for another one."""
        asked, title, taken = self.asked, self.question.title, self.taken()
        own = {one.option for one in self.symbols.values()}
        idle = [name for name in self.said if name not in taken and (name in own or name in asked.of.passed_on)]
        told = []
        for option in idle:
            declared = asked.of.passed_on.get(option)
            if declared is None or (declared.positional and declared.kind not in _TELLS):
                raise ValuesError(f"{option} makes no difference to '{title}'", hint=f"leave {option} out")
            told.append(f"`{option}`")
        return [f"Makes no difference here: {', '.join(told)}."] if told else []

    def derivation(self) -> Derivation:
        """The derivation of the answer."""
        asked, setting, numbers = self.asked, self.setting, self.numbers
        told = self.unused()
        self.name_facts()
        nothing = {line.name: Fraction(0) for line, made in self.facts.items() if made.expr == 0}
        kept = self.written(nothing | {name: value for name, value in numbers.items() if not value} | self.fixed)
        facts = [*self.facts.values()]
        over, meanings = setting.notation, {self.called(s.name): s.meaning for s in self.symbols.values()}
        for made in facts:
            meanings = {**made.notation.meanings, **meanings}
        given = {n: v for made in facts for n, v in made.given}
        given |= setting.values if asked.of.needs_model else {}
        given |= {self.called(n): numbers[n] for n in self.symbols
                  if numbers.get(n) and n != asked.place and self.called(n) in kept.used}  # fmt: skip
        title = self.question.title if self.question.lines or self.question.answer else self.sheet.title
        strategy = getattr(self.said.get("strategy"), "name", "")
        title += f" of {self.passed['op']}" if "op" in self.passed else ""
        title += f" under {strategy.lower()}" if strategy else ""
        notes = (*self.question.notes, *self.claimed({}), *told, *(note for made in facts for note in made.notes))
        touched = (*(f for f, _ in self.question.conventions), *(f for made in facts for f in made.touched))
        where = dict.fromkeys(condition for made in facts for condition in made.where)
        checks = [check for made in facts for check in made.checks]
        if self.special or any(claim.required for claim, _ in asked.claims):
            checks.append(self.required)
        named = {n for made in facts for n in made.named}
        exhibits = tuple(dict.fromkeys((*kept.tables, *(one for made in facts for one in made.exhibits))))

        def proved(shown: tuple[Step, ...]) -> Derivation:
            written = Notation(over.latex, {**meanings, **over.meanings})
            return Derivation(
                title, setting.accounting, shown, tuple(dict.fromkeys((*touched, *setting.taken()))),
                setting.graph.relations, exhibits, tuple(given.items()), written, tuple(dict.fromkeys(notes)),
                tuple(where), setting.symbols, setting.named | named, tuple(checks),
            )  # fmt: skip

        if not setting.told:
            return proved(unread(kept.made, setting.graph.relations))
        try:
            made = proved(kept.made)
        except DerivationError:
            for line, number in kept.ends.items():  # the first line that is wrong
                with line.span.meant():
                    proved(tuple(kept.made[:number]))
            raise
        kept.made = made.steps  # what they are worth is known
        if asked.against:
            return self.reached(made, title)
        if not asked.place:
            return made
        from symcomm.core.optimum.minimum import maximise, minimise
        from symcomm.core.optimum.question import Wanted
        from symcomm.core.optimum.writing import continued

        cost, place = replace(made, title=self.sheet.title), self.called(asked.place)
        wanted: Wanted = "value" if asked.value else "place"
        most = self.bound(asked.most, dict(made.given)) if asked.most else None
        zero = asked.whole and asked.place in self.symbols and self.symbols[asked.place].may_be_zero
        least = 0 if zero else None
        search = maximise if asked.greatest else minimise
        found = search(cost, place, integer=asked.whole, lower=least, upper=most, wanted=wanted)
        return replace(continued(cost, found), title=title, notes=(*made.notes, *found.notes))

    def reached(self, made: Derivation, title: str) -> Derivation:
        """The value at which one line is equal to another, or the last one on the side where it is more."""
        from symcomm.core.optimum.cost import derived as cost_of
        from symcomm.core.optimum.crossover import crossovers
        from symcomm.core.optimum.writing import whole

        asked, over = self.asked, self.called(self.spelled(self.asked.place))
        sides = []
        for name in (asked.name, asked.against):
            form = self.renamed(self.symbols[name].form if name in self.symbols else Sym(name))
            at = [i for i, step in enumerate(made.steps, 1) if Sym(step.name) == form]
            alone = replace(made, steps=made.steps[: at[-1]]) if at else replace(cost_of(form), given=made.given)
            sides.append(replace(alone, title=f"`{name}`", notes=(), where=()))
        one, other = sides
        if one.unit != other.unit:
            problem = f"{asked.name} is in {one.unit}, but {asked.against} in {other.unit}"
            raise DocumentError(problem, self.question.answered)
        try:
            found = crossovers(one, other, over, compared=(), real=True)
        except SymcommError as error:
            raise error.at(self.question.answered if over == asked.place else None) from None
        if found.less and len(found.crossings) != 1:
            many = f"at {len(found.crossings)} values of {over}" if found.crossings else f"at no {over}"
            raise ValuesError(f"{asked.name} and {asked.against} are equal {many}", hint=found.derivation.notes[-1])
        rising, steps = found.rises, [*made.steps, *found.derivation.steps[3:]]
        claim = f"{asked.name} {asked.side} {asked.against}"
        if asked.edge and rising is None:
            hint = f"give numbers, or ask for {asked.place} where {asked.name} = {asked.against}"
            raise ValuesError(f"numbers decide whether {claim} holds for a large {over}", hint=hint)
        if asked.edge and rising != ((asked.edge == "least") == (asked.side == ">=")):
            edge = "greatest" if asked.edge == "least" else "least"
            problem = f"there is no {asked.edge} {over} with {claim}: it holds on the other side"
            raise ValuesError(problem, hint=f"answer: {edge} {asked.place} with {claim}")
        if asked.whole:
            last = Sym(steps[-1].name, False, steps[-1].unit)
            steps.append(whole(f"{over}^whole", last, last.unit, asked.edge == "least"))
        where = tuple(dict.fromkeys((*made.where, *found.derivation.where)))
        given = tuple((name, value) for name, value in made.given if name != over)
        notes = (*made.notes, *(found.derivation.notes if rising is None else ()))
        return replace(made, title=title, steps=tuple(steps), given=given, where=where, notes=notes)

    def bound(self, line: str, known: Mapping[str, Fraction]) -> Fraction:
        """The number of a line up to which an answer is looked for."""
        made = self.bounding(line).derivation()
        return made.at(**known).value

    def bounding(self, line: str) -> _Asking:
        """The question for that line, with those options that decide it."""
        asked = replace(self.asked.of, line=line)._asked(self.question, line)
        taken = _Asking(asked, self.setting, {}).taken()
        return _Asking(asked, self.setting, {name: value for name, value in self.said.items() if name in taken})

    def number(self, one: SheetSymbol) -> Fraction | None:
        """The number of a symbol: that of its option, the one given with the question, or its own."""
        value = self.said.get(one.option) if one.option else None
        spelled, name = one.name if value is None else one.option, self.spelled(one.name)
        model = self.setting.symbols if self.asked.of.needs_model else ()
        given = self.setting.values.get(name) if name not in model else None  # which is another one
        if value is None:
            value = (one.value or None) if given is None else given
        elif isinstance(value, str) and not re.match(r"[-+.\d]", value):
            value = given  # of the symbol that it names
        if value is None:
            return None
        found = positive(value, spelled, str(one.unit), one.may_be_zero)
        if one.counts and found.denominator != 1:
            raise ValuesError(f"{spelled} = {value}: a whole number is needed")
        return found

    # -- steps ---------------------------------------------------------------------------------

    def name_facts(self) -> None:
        """Takes the steps of the facts, and finds names for the sheet's own lines and symbols: they give way."""
        self.shown: dict[str, Step] = {}
        self.alias: dict[str, Form] = {}
        taken = {*self.setting.symbols} if self.facts else set()
        for line, made in self.facts.items():
            taken |= {n for step in made.steps for n in forms.names(step.form)}
            if not line.reason:
                taken |= {step.name for step in made.steps}
        self.names: dict[str, str] = {}
        unnamed = {line.name for line, made in self.facts.items() if not line.reason or made.expr == 0}
        for name in (n for n in (*self.picked, *self.symbols) if n not in unnamed):
            free = self.spelled(name)
            if self.asked.against and name == self.asked.place:
                continue  # it may be a symbol of the model
            if free != name and free in taken:
                raise ValuesError(f"{free} is a symbol of the model", hint=f"name {name} otherwise")
            while free in taken or (free == name and self.facts and free in self.setting.named):
                free += "'"
            self.names[name] = free

    def spelled(self, name: str) -> str:
        """A name, or the symbol that stands for it where an option names one: ``step: T``."""
        said = self.said.get(self.symbols[name].option) if name in self.symbols and self.symbols[name].option else None
        return said.strip() if isinstance(said, str) and re.fullmatch(r"[^\W\d]\w{0,39}", said.strip()) else name

    def called(self, name: str) -> str:
        """The name of a symbol or line of the sheet among the names of the model."""
        return self.names.get(name, name)

    def renamed(self, form: Form) -> Form:
        """A form over the names that the steps have."""

        def symbol(s: Sym) -> Form:
            return self.alias.get(s.name) or (replace(s, name=self.called(s.name)) if s.name in self.names else s)

        return forms.substitute(form, symbol)

    @cached_property
    def tables(self) -> list[Exhibit]:
        """The tables whose symbols are left in the answer."""
        found = []
        for table in self.sheet.tables:
            first = (name for row in table.rows for name in re.findall(r"`([^`]+)`", str(row[0])))
            if all(self.called(name) in self.used for name in first if name in self.symbols):
                rows = [[self.renamed(self.asked.compared[c]) if isinstance(c, Cell) else c for c in row]
                        for row in table.rows]  # fmt: skip
                found.append(Exhibit(table.title, table.head, tuple(map(tuple, rows))))
        return found

    def written(self, zeros: Mapping[str, Fraction]) -> _Asking:
        """The first question of its shape, with its steps: other numbers in the same lines change nothing in them."""
        relations = self.setting.graph.relations
        self.zeros, self.shape = zeros, (
            self.asked, *self.lines, frozenset(self.picked.values()), frozenset(zeros.items()), *self.names.items(),
            self.setting.told, ByIdentity(relations) if relations.equations else None,
            *((d.title, d.touched, d.answer.form if _is_name(line, d) else ByIdentity(d.steps))  # of one question each
              for line, d in self.facts.items()),
        )  # fmt: skip
        kept = _first(self)
        self.units, self.alias, self.names = kept.units, kept.alias, kept.names
        return kept

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Asking) and other.shape == self.shape

    def __hash__(self) -> int:
        return hash(self.shape)

    def steps(self) -> list[Step]:
        """The lines as steps with numbers for some names; what is zero is left out of sums."""
        asked, zeros = self.asked, self.zeros
        made: list[Step] = []
        self.ends: dict[WorksheetLine, int] = {}
        self.units = {}
        extents = {s.name: of for s in self.symbols.values() if (of := extent_of("", s.unit))}
        counted = dict(self.question.units)
        for line in self.lines:
            if line.source:
                made += [] if line.name in zeros else self.fact(line, extents)
                self.ends[line] = len(made)
                continue
            form, reason = asked.forms.get(line), line.reason or ("Substitute the names." if line.written_out else "")
            if form is not None and line.relation == ":=" and self.facts:
                with line.span.meant():
                    of = mixed(form, extents)
                extents |= {line.name: of} if of else {}
            if isinstance(form, Sym) and not line.rule:  # another name
                self.alias[line.name] = self.renamed(form)
                continue
            if form is None:
                form = _written_out(made[-1].form, {s.name: s.form for s in made if s.relation == ":="})
                if self.facts:  # all terms of a model: collected, where that helps
                    worth = {made[-1].name: forms.value(form)}
                    neat = self.setting.collected(made[-1].name, made[-1].form, made[-1].unit, worth)
                    made += [] if neat is None else [neat]
                    continue
            else:
                put = [name for name in forms.names(form) if name in zeros]
                form = _put(form, zeros)
                if gone := [name for name in put if not zeros[name]]:
                    if any(isinstance(piece, Ratio) and piece.bottom == forms.num(0) for piece in forms.walk(form)):
                        raise ValuesError(f"{line.name} divides by {' and '.join(gone)}, which is zero", line.span)
                    reason += f" Left out, since zero: {', '.join(f'`{name}`' for name in gone)}."
                form = self.renamed(form)
            name = self.called(line.name)
            own = counted.get(line.name, line.unit)
            with line.span.meant():
                self.units.setdefault(name, forms.unit_of(form, self.units) if own is None else own)
            seen = self.witness(line, zeros, {one.name for one in self.lines}) if line.run else None
            reason = re.sub(r"`([^`]+)`", lambda m: f"`{self.called(m[1])}`", reason)
            reason = re.sub(_TOLD, lambda m: str(zeros.get(m[2], f"`{self.called(m[2])}`")), reason)
            why = Reason(line.rule or "algebra", reason, witness=seen)
            made.append(Step(name, form, self.units[name], why, line.relation, line.condition))
            self.ends[line] = len(made)
        return made

    def fact(self, line: WorksheetLine, extents: dict[str, Unit]) -> list[Step]:
        """The steps of a fact: one with the sheet's reason, or all of its own that are not shown yet."""
        assert line.source is not None
        made, quantity = self.facts[line], self.asked.of.quantities[line.source.quantity]
        unit = made.unit if line.unit is None else line.unit
        unit = dict(self.question.units).get(line.name, unit)
        if unit != made.unit and not (unit / made.unit).is_count:
            problem = f"{line.name} has the unit {unit} here, but {quantity.name} is in {made.unit}"
            raise DocumentError(problem, line.span)
        said = {**{o.name: o.default for o in quantity.options}, **self.passed, **dict(line.source.fixed)}
        of = extent_of(quantity.extent, unit, self.setting, said)
        extents |= {line.name: of} if of else {}
        clash = any(step.name in self.shown and self.shown[step.name].form != step.form
                    for step in made.steps if step.relation == ":=")  # fmt: skip
        if _is_name(line, made):
            self.alias[line.name] = made.answer.form
            return []
        if line.reason or clash:
            name = self.called(line.name)
            while name in self.shown:
                name += "'"
            self.names[line.name], self.units[name] = name, unit
            why = Reason(line.rule or "taken", line.reason or f"{made.title}.", witness=made.again)
            step = Step(name, cited(made, unit), unit, why, by=made.touched)
            self.shown[name] = step
            return [step]
        new = [step for step in made.steps if step.name not in self.shown]
        self.shown |= {step.name: step for step in new if step.relation == ":="}
        self.units |= {step.name: step.unit for step in made.steps}
        self.alias[line.name] = Sym(made.answer.name)
        return new

    def witness(self, line: WorksheetLine, zeros: Mapping[str, Fraction], shown: set[str]) -> Witness:
        """The witness of a line, over symbols and the names of the lines that are shown."""

        def args() -> list[Form]:
            known = {n: one for n, one in self.picked.items() if n != line.name and one in self.asked.forms}
            by = {n: self.asked.forms[one] for n, one in known.items() if not one.source}
            if not RUNS[line.run].written_out:
                by = {name: form for name, form in by.items() if name not in shown}
            return [self.renamed(_put(_written_out(form, by), zeros)) for form in self.asked.run(line)]

        return witness(line.run, self.called(line.name), args)

    def required(self, known: Mapping[str, Fraction]) -> None:
        """Raises ``ValuesError`` where numbers that come later break what is required."""
        self.claimed(known)

    def claimed(self, later: Mapping[str, Fraction]) -> list[str]:
        """The notes that hold; raises ``ValuesError`` where something required does not, at these numbers, too."""
        away = self.asked.needs.keys() - self.picked.keys()  # a sentence about a line that nobody asked for is not told
        claims = [
            (claim, sides) for claim, sides in self.asked.claims
            if self.holds(claim.guards, [])
            and (claim.required or not away & {n for _, n in re.findall(_TOLD, claim.text)})
        ]  # fmt: skip
        if not claims and not self.special:
            return []
        known = self.known() | {name: rational(value) for name, value in later.items()}
        known |= {n + _OWN: known[new] for n in self.symbols if (new := self.called(n)) in later}
        for text, sides in self.special:
            values = [_worth(self.plain(side), known) for side in sides]
            if None not in values and values[0] == values[1]:
                raise ValuesError(f"{text} is a case with its own formula", hint="give this number when it is derived")
        for name, line in self.picked.items():
            self.units.setdefault(name, line.unit or self.units.get(self.called(name), ONE))
        units = {s.name: s.unit for s in self.symbols.values()} | self.units
        notes = []
        for claim, sides in claims:
            plain = [self.plain(side) for side in sides]
            if not known.keys() >= {name for side in plain for name in forms.names(side)}:
                continue
            found = [value for side in plain if (value := _worth(side, known)) is not None]
            holds = not found or _HOLDS[claim.relation](_sign(found[0] - found[1]), 0)
            if holds == claim.required:
                continue
            said = {name for _, name in re.findall(_TOLD, claim.text)}
            told = {name: value for name in said if (value := _worth(self.plain(Sym(name)), known)) is not None}
            text = re.sub(_TOLD, partial(_said, told, units), claim.text)
            if claim.required:
                raise ValuesError(text, hint=claim.hint)
            notes.append(text)
        return notes


def _is_name(line: WorksheetLine, made: Derivation) -> bool:
    """Whether a fact is a symbol under another name: a rate that is known, or is not."""
    return not line.reason and len(made.steps) == 1 and isinstance(made.answer.form, Sym)


@lru_cache(maxsize=128)
def _first(asking: _Asking) -> _Asking:
    """The question itself, once its steps are written."""
    asking.made = Continued.of(asking.steps(), asking.facts.values())
    asking.used = {n for step in asking.made for n in forms.names(step.form)}
    asking.used |= {asking.called(name) for name in (asking.asked.name, asking.asked.against)}
    return asking


_HOLDS = {"<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge, "=": operator.eq, "!=": operator.ne}


def _sign(difference: Expr) -> int:
    return 0 if difference == 0 else 1 if difference.evalf(30) > 0 else -1


def _worth(form: Form, told: Mapping[str, Expr]) -> Expr | None:
    """The number of a form, of which no power is too large; None where a name has no number."""
    if not told.keys() >= {*forms.names(form)}:
        return None
    exact = {name: Fraction(int(v.p), int(v.q)) for name, v in told.items() if v.is_Rational}
    if exact.keys() >= {*forms.names(form)}:
        with suppress(IrrationalError):
            return rational(forms.evaluate(form, exact))
    for piece in forms.walk(form):
        if isinstance(piece, Power) and exact.keys() >= {*forms.names(piece)}:
            with suppress(IrrationalError):
                forms.evaluate(piece, exact)
    return forms.value(form, told)


def _said(told: Mapping[str, Expr], units: Mapping[str, Unit], found: re.Match[str]) -> str:
    """A number in a sentence: with its unit as a table shows it, or about."""
    about, name = found.groups()
    value = told.get(name)
    if value is None:
        return name
    if about or not value.is_Rational:
        near = float(value)
        return f"{near:,.0f}".replace(",", " ") if 1e4 <= abs(near) < 1e12 else f"{near:.4g}"
    quantity = Quantity(Fraction(int(value.p), int(value.q)), units.get(name, ONE))
    return quantity.reading if quantity.unit.powers else str(quantity)


def _written_out(form: Form, by: Mapping[str, Form]) -> Form:
    """A form without the names of earlier lines."""
    return forms.substitute(form, lambda s: _written_out(by[s.name], by) if s.name in by else s)


def _put(form: Form, values: Mapping[str, Fraction]) -> Form:
    """A form with numbers for some names; what is zero is left out of sums, and a factor that is one."""
    if isinstance(form, Sym):
        return Num(values[form.name]) if form.name in values else form
    if not values.keys() & {*forms.names(form)}:
        return form
    made = form.mapped(lambda part: _put(part, values))
    if isinstance(made, (Total, Product)) and all(isinstance(p, Num) and p.unit.is_count for p in made.parts):
        return forms.rational(forms.evaluate(made, {}))
    if isinstance(made, Total):
        return forms.total(*(term for term in made.terms if term != forms.num(0)))
    if isinstance(made, Product):
        return forms.num(0) if forms.num(0) in made.factors else forms.product(*made.factors)
    if isinstance(made, Ratio) and made.bottom != forms.num(0):
        return made.top if made.bottom == forms.num(1) or made.top == forms.num(0) else made
    return made


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
