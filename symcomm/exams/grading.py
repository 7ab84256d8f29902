"""Grades a class: each answer is checked against its student's own key, with what follows from earlier answers."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from pathlib import Path

from symcomm.core.answers import UnreadError
from symcomm.core.answers.formula import Side
from symcomm.core.errors import DocumentError, Span, SymcommError, nearest
from symcomm.core.form import evaluate, from_expr
from symcomm.core.quantities import QUANTITIES
from symcomm.core.real_numbers import number_of
from symcomm.core.records import replace
from symcomm.core.units import BYTE, ONE, Quantity, Unit
from symcomm.exams.choices import OfferedAnswer
from symcomm.exams.key import Key
from symcomm.exams.papers import Exam, Paper, PaperPart
from symcomm.exams.problems.problem import Problem, read_template
from symcomm.exams.problems.solve import following
from symcomm.exams.processes import Pool, exam_here, shared_here
from symcomm.exams.remembered import Remembered
from symcomm.exams.roster import numbered, read_roster
from symcomm.exams.rubric import Mark, mark_of
from symcomm.exams.sheets import Sheet, check_columns, papers_of, read_sheets
from symcomm.exams.summary import Decision, Graded, Grades, read_decisions
from symcomm.exams.verdict import Verdict

Progress = Callable[[int, int, str], None]
_Marks = dict[tuple[str, str], tuple[str, Mark, str]]
_LETTERED = re.compile(r"\s*(?:option\s+)?\(?([A-Ja-j])(?:\s*[).:]+\s*(.*)|()\s*)", re.IGNORECASE | re.DOTALL)
LINES = re.compile(r"\s*[;\n]\s*")  # what stands between a student's intermediate values and the answer


def grade(
    file: str | Path, answers: str | Path, *, keys: str | Path | None = None, roster: str | Path | None = None,
    variants: int | None = None, seed: str | int = "0", decisions: str | Path | None = None,
    progress: Progress | None = None, processes: int | None = 1,
) -> Grades:  # fmt: skip
    """The grades of a class: answer sheets (CSV, or JSON of forms) against the papers drawn from a problem document.

    The papers are those of ``keys`` (the ``keys.json`` beside them), or of a ``roster`` or so many ``variants`` with
    their ``seed``. ``decisions`` is a ``look-at.csv`` with points filled in. Several ``processes`` (None: one for each
    core) share the questions. In a notebook the grades show as tables; ``frame`` gives them to pandas. Nothing is
    written.

    Raises ``DocumentError`` where it is not said which papers, and for a file that cannot be read.

    ``symcomm.grade("midterm.md", "answers.csv", keys="out/keys.json").frame("questions")``
    """
    if sum(given is not None for given in (keys, roster, variants)) != 1:
        raise DocumentError("say which papers: keys (out/keys.json), or the roster or variants they were made with",
                            hint="one of the three")  # fmt: skip
    template, sheets = read_template(Path(file)), read_sheets(Path(answers))
    decided = read_decisions(Path(decisions)) if decisions is not None else ()
    if keys is not None:
        exam, papers = papers_of(template, Path(keys))
    else:
        exam = Exam(template, str(seed))
        papers = exam.settle(read_roster(Path(roster)) if roster is not None else numbered(variants or 0))
    return grade_papers(exam, papers, sheets, decided, progress, processes)


def grade_papers(
    exam: Exam, papers: Sequence[Paper], sheets: Iterable[Sheet], decisions: Iterable[Decision] = (),
    progress: Progress | None = None, processes: int | None = 1,
) -> Grades:  # fmt: skip
    """The marks of a class.

    ``decisions`` come before everything else, where question and answer are the same. Several ``processes`` (None: one
    for each core) share the questions. Raises ``DocumentError`` for a sheet of nobody and an answer to no question.
    """
    by_student = {sheet.student: sheet for sheet in sheets}
    check_columns(by_student.values(), papers)
    decided = {(one.question, _same(one.answer)): one for one in decisions}
    together, asks = _together(exam.example), dict(zip(exam.example.ids, exam.example.asks, strict=True))

    def effort(ids: frozenset[str]) -> int:
        """How many options their quantities have: most of the work is to derive all that students may mean."""
        return sum(len((asks[one].sheet or QUANTITIES[asks[one].quantity]).options) for one in ids)

    found: _Marks = {}
    with Pool(exam, processes, len(together), (papers, by_student, decided)) as pool:
        for done, marks in enumerate(pool.run(_marks, together, effort)):
            if progress:
                progress(done, len(together), "questions")
            found |= marks
    parts = ((paper.student.id, part) for paper in papers for part in paper.parts)
    return Grades(tuple(papers), tuple(Graded(name, part, *found[name, part.id]) for name, part in parts))


def _together(problem: Problem) -> list[frozenset[str]]:
    """The ids of the questions, together where one follows from the answer to another."""
    found: list[frozenset[str]] = []
    for name, ask in zip(problem.ids, problem.asks, strict=True):
        tied = frozenset((name, *(before for _, before, _ in ask.exam.follows)))
        found = [*(one for one in found if not one & tied), tied.union(*(one for one in found if one & tied))]
    return found


def _marks(ids: frozenset[str]) -> _Marks:
    """The answers to some questions of a class with their marks and keys, by student and question."""
    papers, by_student, decided = shared_here()
    grader, nothing = Grader(exam_here()), Sheet("", {}, Span("", 0, "", 0, 0))
    made = (grader.paper(paper, by_student.get(paper.student.id, nothing), decided, ids) for paper in papers)
    return {(one.student, one.part.id): (one.text, one.mark, one.key) for marks in made for one in marks}


class Grader:
    """Marks papers of one exam; what was decided once is not decided again."""

    def __init__(self, exam: Exam) -> None:
        self.exam = exam
        self.seen = Remembered[tuple[object, ...], Verdict](100_000)

    def paper(
        self, paper: Paper, sheet: Sheet, decided: Mapping[tuple[str, str], Decision], ids: Container[str]
    ) -> list[Graded]:
        """The marks of some questions of one paper."""
        right: dict[str, Quantity | None] = {}
        own: dict[str, Quantity] = {}  # the numbers the student got where they are not the key's
        told: dict[str, str] = {}
        made = []
        for part, ask, keyed in self.exam.answered(paper, ids):
            text = sheet.answer(part.number, part.id)
            right[part.id] = keyed.quantity
            told[part.id] = part.number
            key = self.exam.kept.key(paper.problem, ask)
            decision = decided.get((part.id, _same(text)))
            if decision is not None:
                mark = Mark(min(decision.points, part.points), part.points, "decided", (), decision.says)
            else:
                mark = self.mark(paper, part, text, key, right, own, told)
            if mark.verdict != "right" or mark.follows:
                number = _number(LINES.split(text)[-1], key, keyed.derivation.unit) if text else None
                if number is not None:  # bytes and things are counted, whatever digits were typed
                    counted = number.unit == BYTE or (number.unit.is_count and number.unit != ONE)
                    whole = round(number.value) or (1 if number.value > 0 else 0)
                    own[part.id] = replace(number, value=Fraction(whole)) if counted else number
            shown = str(keyed.quantity) if keyed.quantity is not None else str(keyed.derivation.expr)
            made.append(Graded(paper.student.id, part, text, mark, part.right or shown))
        return made

    def mark(
        self, paper: Paper, part: PaperPart, text: str, key: Key, right: Mapping[str, Quantity | None],
        own: Mapping[str, Quantity], told: Mapping[str, str],
    ) -> Mark:  # fmt: skip
        """The mark of one answer."""
        ask, problem = part.ask, paper.problem
        if not text:
            return Mark(Fraction(0), part.points, "none", (), "no answer")
        if part.choices:
            return _chosen(part, text, key, lambda verdict: mark_of(verdict, ask, problem, part.points))
        *before, last = LINES.split(text)
        verdict = self.verdict(key, last)
        if not verdict.right:
            follows = [(name, own[name]) for _, name, _ in ask.exam.follows if name in own]
            if follows:  # the same question, from the student's own earlier numbers
                with suppress(SymcommError):  # from the student's numbers it may have no answer
                    again = self.exam.kept.key(problem, following(ask, {**right, **dict(follows)}))
                    if self.verdict(again, last).right:
                        return mark_of(Verdict("right"), ask, problem, part.points, (), told[follows[0][0]])
        reached = self.reached(part, [*before, last], key) if ask.exam.rubric else ()
        return mark_of(verdict, ask, problem, part.points, reached)

    def verdict(self, key: Key, text: str) -> Verdict:
        """The verdict on one line, decided once."""
        about = (key.derivation.title, id(key.derivation), key.given, text)
        return self.seen.once(about, lambda: key.check(text))

    def reached(self, part: PaperPart, lines: Sequence[str], key: Key) -> tuple[str, ...]:
        """The steps of the rubric whose values stand in some line."""
        d, values = key.derivation, dict(key.given)
        units = {step.name: step.unit for step in d.steps}
        found = []
        for line in part.ask.exam.rubric:
            if line.step not in d.worth:
                known = nearest(line.step, [*d.worth])
                raise DocumentError(f"the derivation has no step '{line.step[:40]}'", line.span, known)
            try:
                worth = Quantity(
                    evaluate(from_expr(d.worth[line.step]), d.relations.complete(values)), units[line.step]
                )
            except SymcommError:  # without a number there is nothing to compare
                continue
            if any(_is(text, worth, key) for text in lines):
                found.append(line.step)
        return tuple(found)


def _last_side(text: str, key: Key) -> Side | None:
    """The last side of a chain of equalities; None where it cannot be read."""
    try:
        return key.reader.read(re.split(r"[=≈]", text)[-1])[-1]
    except UnreadError:
        return None


def _scale(side: Side, key: Key, unit: Unit) -> Fraction:
    """What a number is multiplied by, which has no unit or its own."""
    bare = key.bare[0] if side.literal is not None and unit == key.unit else Fraction(1)
    return bare if side.unit is None else side.scale


def _number(text: str, key: Key, unit: Unit) -> Quantity | None:
    """The number that an answer comes to at the key's values, in a unit; None where it cannot be read."""
    side = _last_side(text, key)
    worth = None if side is None else number_of(side.form, key.values)
    if side is None or worth is None:
        return None
    own = unit if side.unit is None or side.unit.is_count else side.unit
    return Quantity(worth * _scale(side, key, unit), own)


def _is(text: str, worth: Quantity, key: Key) -> bool:
    """Whether a line says a number, to the digits that it has (at least three)."""
    found, side = _number(text, key, worth.unit), _last_side(text, key)
    if side is None or found is None or found.unit != worth.unit:
        return False
    literal = side.literal and side.literal.times(_scale(side, key, worth.unit))
    return found == worth or (literal is not None and literal.digits > 2 and literal.says(worth.value))


def _same(text: str) -> str:
    """An answer without what makes no difference to a reader."""
    return re.sub(r"\s+", "", text).strip("$")


def _chosen(part: PaperPart, text: str, key: Key, problem_share: Callable[[Verdict], Mark]) -> Mark:
    """The mark of a chosen option, told by its letter, its text, or both."""
    said = _LETTERED.fullmatch(text)
    at = ord(said[1].upper()) - ord("A") if said else -1
    rest = said[2] or "" if said and at < len(part.choices) else text
    found = _options(part, rest, key) if rest else [*part.choices[at : at + 1]]
    if len(found) != 1 or (rest != text and found[0] is not part.choices[at]):
        hint = f"answer with one letter, A to {chr(64 + len(part.choices))}, or with the text of one option"
        return problem_share(Verdict("unreadable", hint=hint))
    choice = found[0]
    if choice.right:
        return problem_share(Verdict("right"))
    mark = problem_share(Verdict("different", says=choice.says))
    return replace(mark, verdict="mistake", names=choice.names)  # recognised, and worth nothing: it was offered


def _options(part: PaperPart, text: str, key: Key) -> list[OfferedAnswer]:
    """The options with a text, or with its number: 12.0 GiB and 12 are the option 12 GiB."""
    alike = [choice for choice in part.choices if _same(choice.text) == _same(text)]
    try:
        side = key.reader.read(text)[-1]
    except UnreadError:
        return alike
    if alike or side.literal is None:
        return alike
    unit = re.sub(r"^[-\d\s.]+", "", part.choices[0].text)
    scale = Quantity.parse(f"1 {unit}").value if side.unit is None and unit else side.scale
    return [choice for choice in part.choices if side.literal.times(scale).says(choice.quantity.value)]
