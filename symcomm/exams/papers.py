"""The papers of a class: every student's own values, questions and order, from one problem document.

A paper follows from the document's draws, the seed, the student's id and the attempt. Where it breaks a bound, or an
earlier student has the same, the next attempt is drawn. Each student of a class begins with attempts of their own, so
that questions and letters of options are spread evenly over the class. The attempt is told with the key, and each paper
can be made again alone.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import field
from fractions import Fraction
from functools import cached_property
from math import comb, gcd

from symcomm.core.errors import DocumentError
from symcomm.core.records import ByIdentity, dataclass, replace
from symcomm.core.units import Quantity
from symcomm.documents.editions import ONLY
from symcomm.documents.render.document import Answer, Heading, Only, Prose
from symcomm.exams.choices import DrawAgainError, OfferedAnswer, choices_of
from symcomm.exams.kept_answers import KeptAnswers
from symcomm.exams.mistakes import own_mistake
from symcomm.exams.problems.drawing_values import Drawn
from symcomm.exams.problems.exam_keys import Bounds
from symcomm.exams.problems.grading import points_of
from symcomm.exams.problems.problem import PIECES, Ask, Item, ModelBlock, Problem, Template, grouped, letters
from symcomm.exams.problems.randomness import Stream
from symcomm.exams.problems.references import references
from symcomm.exams.problems.solve import following
from symcomm.exams.remembered import Remembered
from symcomm.exams.roster import Student
from symcomm.exams.rubric import check_credit

ATTEMPTS = 200  # draws for one student before it is said that none keeps the bounds
_TURN = 100_000  # attempts of each place of a class; those below it are of no class


@dataclass(frozen=True)
class PaperPart:
    """One answer of a paper: its number on the page, its id in the document, its points and the options it offers."""

    number: str
    id: str
    ask: Ask
    points: Fraction
    choices: tuple[OfferedAnswer, ...] = ()

    @property
    def right(self) -> str:
        """The letter of the right option; empty for a question without options."""
        return next((letters(n).upper() for n, choice in enumerate(self.choices) if choice.right), "")


@dataclass(frozen=True)
class Paper:
    """One student's paper: a problem of its own with its questions in order, and the parts that are answered."""

    student: Student
    seed: str
    attempt: int
    code: str
    drawn: Drawn = field(repr=False)
    problem: Problem = field(repr=False)
    parts: tuple[PaperPart, ...] = field(repr=False)
    signature: tuple[object, ...] = field(repr=False)

    @property
    def settled(self) -> AssignedPaper:
        """The paper's name, in few words."""
        return AssignedPaper(self.student, self.attempt, hashlib.sha256(repr(self.signature).encode()).hexdigest())


@dataclass(frozen=True)
class AssignedPaper:
    """The paper of a student: the attempt, and one word for what makes it differ from others."""

    student: Student
    attempt: int
    signature: str


class Exam:
    """The papers of one template: ``paper`` makes one, ``settle`` finds for a class which differ from one another.

    With ``whole``, every paper has all questions in the order of the document.
    """

    def __init__(self, template: Template, seed: str = "0", whole: bool = False) -> None:
        self.template, self.seed, self.whole, self.kept = template, seed, whole, KeptAnswers()
        self._with_names = Remembered[tuple[ByIdentity[Ask], str], Ask](ATTEMPTS * 100)

    @property
    def example(self) -> Problem:
        """The problem with the values of an example."""
        return self.template.example

    def settle(self, students: Sequence[Student]) -> tuple[Paper, ...]:
        """A paper for each student, no two alike.

        Raises ``DocumentError`` with the number of different papers where these are fewer than the students, unless
        the document says that they may be.
        """
        self.check_space(len(students))
        first = [self.paper(student, self.first_attempt(n)) for n, student in enumerate(students)]
        chosen = self.settled([paper.settled for paper in first])
        return tuple(
            paper if paper.attempt == one.attempt else self.exactly(one.student, one.attempt)
            for paper, one in zip(first, chosen, strict=True)
        )

    def first_attempt(self, place: int) -> int:
        """The first attempt of a student, by the place in the class; 0 where nothing is spread over the class."""
        spread = self._fewer or any(ask.exam.choices for ask in self.example.asks)
        return (place + 1) * _TURN if spread and not self.whole else 0

    @cached_property
    def _fewer(self) -> int:
        """How many of the questions a paper has; 0 where it has all."""
        wanted = self.example.exam.questions
        return wanted if not self.whole and wanted < self._many else 0

    def settled(self, first: Sequence[AssignedPaper]) -> tuple[AssignedPaper, ...]:
        """The same where the first paper of each student is known."""
        students = [paper.student for paper in first]
        taken: dict[str, str] = {}
        made: dict[str, AssignedPaper] = {}
        for paper in sorted(first, key=lambda p: p.student.id):  # whatever the order of the roster
            student = paper.student
            while not self.example.exam.alike and taken.get(paper.signature):
                place, number = divmod(paper.attempt, _TURN)
                if not place and number >= ATTEMPTS * 10:
                    said = f"the draws give no paper of their own to {len(students):,} students: {len(taken):,} found"
                    raise DocumentError(said, hint="draw from more values, or say exam: {alike: yes}")
                # Where few values go with the questions of a place, others are asked.
                again = 0 if place and number >= ATTEMPTS else paper.attempt + 1
                paper = self.paper(student, again).settled
            taken[paper.signature] = student.id
            made[student.id] = paper
        return tuple(made[student.id] for student in students)

    def check_space(self, students: int) -> None:
        """Raises ``DocumentError`` where there are too few different papers, or an own mistake cannot be read."""
        check_credit(self.example, self.template.head)
        for said in self.example.mistakes:
            own_mistake(said)
        settings, space = self.example.exam, self.template.draws.space
        if settings.questions > self._many:
            what = f"{settings.questions} questions are wanted, but there are {self._many}"
            raise DocumentError(what, self.template.head.span_of("exam"), "count the headings that have points")
        if settings.alike or space is None:
            return
        space *= comb(self._many, self._fewer)
        if space < students:
            raise DocumentError(
                f"{students:,} students cannot have papers of their own: the draws give {space:,}",
                hint="draw from more values, or say exam: {alike: yes}",
            )

    def paper(self, student: Student, attempt: int = 0) -> Paper:
        """The first paper from an attempt on that keeps the bounds of the document.

        Raises ``DocumentError`` where none of many does, with what was broken.
        """
        broken = ""
        for number in range(attempt, attempt + ATTEMPTS):
            try:
                return self.exactly(student, number)
            except DrawAgainError as error:
                broken, last = broken or str(error.message), error
        raise DocumentError(f"{ATTEMPTS} draws for {student.id}, and none keeps the bounds: {broken}", last.span,
                            "wider bounds, or draws that keep them")  # fmt: skip

    def exactly(self, student: Student, attempt: int) -> Paper:
        """The paper of one attempt. Raises ``DrawAgainError`` where it breaks a bound."""
        draws = self.template.draws
        place, number = divmod(attempt, _TURN)
        drawn = draws.draw(self.seed, student.id, number)
        words = (draws.digest, self.seed, student.id, str(number))
        chosen = self._chosen(Stream(*words, "", "questions"), place)
        beside = frozenset(n for n, at in enumerate(self._places) if at >= 0 and at not in chosen)
        problem, numbers = self._arranged(self.template.problem(drawn, beside), chosen)
        options = self._options(problem, Stream(*words, "", "options"), place, chosen)
        code = hashlib.sha256("\0".join((*words, *[str(place)] * (place > 0))).encode()).hexdigest()[:8]
        used = frozenset().union(*(self._names[n] for n in (-1, *chosen)))
        told = tuple(drawn[name].text for name in drawn if name in used)
        worth = points_of(problem)
        parts = tuple(
            PaperPart(numbers[id(ask)], ask.exam.id, ask, worth[id(ask)], options.get(ask.exam.id, ()))
            for ask in problem.asks
        )
        return Paper(student, self.seed, attempt, code, drawn, problem, parts, (told, *sorted(chosen)))

    # -- which questions, in which order -------------------------------------------------------

    @cached_property
    def _top(self) -> int:
        """The level of the headings that are questions: the highest that has points."""
        headings = (part for part in self.template.parts if isinstance(part, Heading))
        return min((heading.level for heading in headings if heading.points is not None), default=0)

    def _begins(self, heading: Heading, several: bool) -> bool:
        """Whether a heading begins a question; behind one, also a part of the exam without points of its own."""
        return heading.level <= self._top and (heading.points is not None or several)

    @cached_property
    def _places(self) -> tuple[int, ...]:
        """The question that each part of the document belongs to; -1 before the first one."""
        found, at = [], -1
        for part in self.template.parts:
            if isinstance(part, Heading) and self._begins(part, at >= 0):
                at += 1
            found.append(at)
        return tuple(found)

    @cached_property
    def _names(self) -> dict[int, frozenset[str]]:
        """The drawn names that each question refers to; those of what stands before them under -1."""
        found: dict[int, set[str]] = {-1: set()}
        for at, part in zip(self._places, self.template.parts, strict=True):
            words = repr(part) if not isinstance(part, PIECES) else getattr(part, "markdown", "")
            mine = found.setdefault(at, set())
            mine |= {name for name in self.template.draws.names if name in words}
        return {at: frozenset(names) for at, names in found.items()}

    @cached_property
    def _many(self) -> int:
        """How many questions there are to choose from."""
        return len(grouped(self.example.items, self._begins)) - 1

    def _evenly(self, many: int, picked: int, place: int, what: str) -> list[int]:
        """What the student in a place of the class, from 1 on, gets of so many: all are picked equally often.

        Of fifteen, three students have ten each, and each two of them; then they are shuffled anew.
        """
        cycle = many // gcd(many, picked)
        order = Stream(self.template.draws.digest, self.seed, what, str((place - 1) // cycle)).shuffled(range(many))
        return [order[((place - 1) % cycle * picked + n) % many] for n in range(picked)]

    def _turn(self, question: int, place: int) -> int:
        """How many students up to a place of the class, from 1 on, have a question, where each has only some."""
        shared = gcd(self._many, self._fewer)
        begun = (place - 1) // (self._many // shared)
        rest = range(begun * (self._many // shared) + 1, place + 1)
        having = (question in self._evenly(self._many, self._fewer, one, "questions") for one in rest)
        return begun * (self._fewer // shared) + sum(having)

    def _chosen(self, order: Stream, place: int) -> tuple[int, ...]:
        """The questions of one paper, in its order."""
        settings = self.example.exam
        if self.whole or (not self._fewer and not settings.shuffle):
            return tuple(n for n in self._names if n >= 0)
        if self._many < 2:
            raise DocumentError(
                "questions are chosen and shuffled by their headings with points, and there are fewer than two",
                self.template.head.span_of("exam"), "## Data parallelism (10 points)",
            )  # fmt: skip
        many = self._fewer or self._many
        spread = self._evenly(self._many, many, place, "questions") if place and self._fewer else range(self._many)
        chosen = order.shuffled(spread)
        return tuple(chosen[:many]) if settings.shuffle else tuple(sorted(chosen[:many]))

    def _arranged(self, problem: Problem, chosen: tuple[int, ...]) -> tuple[Problem, dict[int, str]]:
        """The problem with the questions of one paper in its order, and the number of each ask on the page."""
        settings = problem.exam
        (_, before), *groups = grouped(problem.items, self._begins)
        ids = dict(zip(map(id, problem.asks), problem.ids, strict=True))

        def named(item: Item) -> Item:
            return self._named(item, ids[id(item)]) if isinstance(item, Ask) else item

        if self.whole or (not self._fewer and not settings.shuffle):
            problem = replace(problem, items=tuple(named(item) for item in problem.items))
            return problem, {id(ask): ask.exam.id for ask in problem.asks}
        for heading, below in groups:
            if heading and heading.points is None and not any(isinstance(item, Ask) for item in below):
                raise DocumentError(f"'{heading.markdown}' asks nothing, but is among questions that change places",
                                    heading.span, "put it before the first question")  # fmt: skip
        if self._fewer and len({heading and heading.points for heading, _ in groups}) > 1:
            told = ", ".join(str(heading and heading.points) for heading, _ in groups)
            raise DocumentError(f"papers with other questions have other points: {told}",
                                self.template.head.span_of("exam"), "give all questions the same")  # fmt: skip
        items: list[Item] = [item for item in problem.items if isinstance(item, ModelBlock)]
        items += [named(item) for item in before if not isinstance(item, ModelBlock)]
        numbers: dict[int, str] = {}
        for place, at in enumerate(chosen, start=1):
            heading, below = groups[at]
            assert heading is not None
            items.append(replace(heading, markdown=f"{place}. {without_number(heading.markdown)}"))
            mine = [named(item) for item in below if not isinstance(item, ModelBlock)]
            asks = [item for item in mine if isinstance(item, Ask)]
            known = {ask.exam.id for ask in asks}
            for ask in asks:
                for _, name, span in ask.exam.follows:
                    if name not in known:
                        raise DocumentError(f"the answer of {name} may not be on the same paper", span,
                                            "put both under one heading")  # fmt: skip
            numbers |= {id(ask): f"{place}{letters(n) * (len(asks) > 1)}" for n, ask in enumerate(asks)}
            items += mine
        return replace(problem, items=tuple(items)), numbers

    def _named(self, ask: Ask, name: str) -> Ask:
        """An ask with its name in the document; one that several papers share stays one."""
        if ask.exam.id == name:
            return ask
        return self._with_names.once((ByIdentity(ask), name), lambda: replace(ask, exam=replace(ask.exam, id=name)))

    # -- what is answered ----------------------------------------------------------------------

    def _options(
        self, problem: Problem, stream: Stream, place: int, chosen: Sequence[int]
    ) -> dict[str, tuple[OfferedAnswer, ...]]:
        """The options that questions offer, by their ids. Raises ``DrawAgainError`` where a paper breaks a bound."""
        bounded = {ask.exam.id for ask in problem.asks if ask.exam.choices or ask.exam.bounds != Bounds()}
        groups = grouped(problem.items, self._begins)[1:]
        questions = {id(item): at for at, (_, some) in zip(chosen, groups, strict=False) for item in some}
        for ask in reversed(problem.asks):  # what a bounded answer follows from has to be known, too
            bounded |= {name for _, name, _ in ask.exam.follows if ask.exam.id in bounded}
        found: dict[str, Quantity | None] = {}
        offering: list[tuple[Ask, Ask, Answer]] = []
        for ask in problem.asks:
            if ask.exam.id in bounded:
                asked = following(ask, found)
                answer = self.kept.answer(problem, asked)
                found[ask.exam.id] = answer.quantity
                keep_bounds(ask, answer)
                offering += [(ask, asked, answer)] * bool(ask.exam.choices)
        for ask in problem.required:
            keep_bounds(ask, self.kept.answer(problem, ask))
        made: dict[str, tuple[OfferedAnswer, ...]] = {}
        for ask, asked, answer in offering:  # most papers that are drawn again break a bound, which is told sooner
            turn = self._turn(questions[id(ask)], place) if place and self._fewer else place
            letter = self._evenly(ask.exam.choices, 1, turn, ask.exam.id)[0] if turn else None
            made[ask.exam.id] = choices_of(self.kept.key(problem, asked), answer, ask, stream, letter)
        return made

    def answered(self, paper: Paper, ids: Container[str] | None = None) -> Iterator[tuple[PaperPart, Ask, Answer]]:
        """The parts of a paper, or some of them: each with its question, in which earlier answers stand, and answer."""
        found: dict[str, Quantity | None] = {}
        for part in paper.parts:
            if ids is None or part.id in ids:
                ask = following(part.ask, found)
                answer = self.kept.answer(paper.problem, ask)
                found[part.id] = answer.quantity
                yield part, ask, answer

    def answers(self, paper: Paper) -> tuple[Answer, ...]:
        """The answers of a paper, in order."""
        return tuple(answer for _, _, answer in self.answered(paper))


def keep_bounds(ask: Ask, answer: Answer) -> None:
    """Raises ``DrawAgainError`` where an answer breaks a bound of its question."""
    bounds, quantity = ask.exam.bounds, answer.quantity
    if bounds == Bounds():
        return
    if quantity is None:
        raise DocumentError("an answer without a number has no bounds", bounds.span)
    for bound, sign, word in ((bounds.at_least, -1, "below"), (bounds.at_most, 1, "above")):
        if bound is None:
            continue
        if bound.unit != quantity.unit and not (bound.unit.is_count and quantity.unit.is_count):
            raise DocumentError(f"the answer is in {quantity.unit}, its bound in {bound.unit}", bounds.span)
        if sign * (quantity.value - bound.value) > 0:
            raise DrawAgainError(f"{quantity.reading} is {word} {bound.reading}", bounds.span)
    if bounds.digits is not None and significant_digits(quantity) > bounds.digits:
        raise DrawAgainError(f"{quantity.reading} has more than {bounds.digits} significant digits", bounds.span)
    if bounds.steps is not None and len(answer.derivation.steps) > bounds.steps:
        raise DrawAgainError(f"{len(answer.derivation.steps)} steps are more than {bounds.steps}", bounds.span)


def significant_digits(quantity: Quantity) -> int:
    """The digits that a quantity needs, in the prefix that needs fewest; 99 where no number of them is enough.

    >>> significant_digits(Quantity.parse("12 GiB")), significant_digits(Quantity.parse("1.41 GHz"))
    (2, 3)
    """

    def digits(value: Fraction) -> int:
        for _ in range(60):
            if value.denominator == 1:
                return len(str(value.numerator).strip("-0")) or 1
            value *= 10
        return 99

    if not isinstance(quantity.value, Fraction):
        return 99
    powers = range(5) if "byte" in dict(quantity.unit.powers) else range(1)
    return min(digits(quantity.value / 1024**power) for power in powers)


def check_prose(items: Iterable[Item]) -> None:
    """Raises ``DocumentError`` where prose that a paper shows refers to an answer, which it would tell."""
    only = ""
    for item in items:
        only = item.name if isinstance(item, Only) else only
        if isinstance(item, (Prose, Heading)) and (not only or "paper" in ONLY[only]):
            for reference in references(item.markdown, item.span):
                if reference.topic == "answer":
                    raise DocumentError("the paper would tell an answer", reference.span, "leave it to the solution")


def without_number(heading: str) -> str:
    """A heading without the number that the author gave it."""
    return re.sub(r"^\s*(?:(?:Question|Problem|Exercise|Task)\s+)?\d+(?:\.\d+)*[.:)]?\s*", "", heading) or heading
