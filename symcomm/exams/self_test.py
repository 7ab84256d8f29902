"""The self-test of a template: hundreds of draws, each answered twice, with a report of the spread of the answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field

from symcomm.core.errors import SymcommError
from symcomm.core.printing.forms import plain
from symcomm.core.records import dataclass
from symcomm.core.units import Quantity
from symcomm.exams.key import Key
from symcomm.exams.papers import Exam, Paper
from symcomm.exams.problems.problem import Template
from symcomm.exams.problems.solve import answer_of
from symcomm.exams.roster import Student

Progress = Callable[[int, int, str], None]
_EVERY = 10  # draws of which one is derived anew, to see that the numbers that were put in are right


@dataclass
class Spread:
    """How the answers of one question are spread over the draws."""

    question: str
    values: list[Quantity] = field(default_factory=list)
    steps: int = 0
    formula: str = ""  # where one is asked for
    mistakes: Counter[str] = field(default_factory=Counter)
    own: dict[str, None] = field(default_factory=dict)  # the author's mistakes that belong to it

    @property
    def text(self) -> str:
        """One line of the report."""
        steps, known = f"{self.steps} step{'s' * (self.steps != 1)}", len(self.mistakes)
        behind = f"{steps}; {known or 'no'} mistake{'s' * (known != 1)}{' known' * (not known)}"
        if self.formula:
            return f"{self.question}: the formula {self.formula}; {behind}"
        found = sorted(self.values, key=lambda q: q.value)
        kinds = len({q.value for q in found})
        middle = found[len(found) // 2].reading
        told = f"{self.question}: {len(found)} answers, {kinds} different, {found[0].reading} to {found[-1].reading}"
        most = Counter(q.value for q in found).most_common(1)[0][1]
        return f"{told}, middle {middle}; most frequent {100 * most // len(found)} %; {behind}"


@dataclass(frozen=True)
class Report:
    """The findings of a self-test; without ``problems`` the template is sound as far as it was drawn."""

    draws: int
    space: int | None
    refused: int
    spreads: tuple[Spread, ...]
    problems: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The report as a person reads it."""
        space = "more papers than are counted" if self.space is None else f"{self.space:,} different papers"
        lines = [f"{self.draws} draws of {space}; {self.refused} drawn again to keep the bounds"]
        lines += [spread.text for spread in self.spreads if spread.values or spread.formula]
        lines += [f"problem: {problem}" for problem in self.problems] or [
            "every answer exists, apart from its mistakes"
        ]
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join(lines)


def self_test(template: Template, seed: str = "0", draws: int = 300, progress: Progress | None = None) -> Report:
    """Draws a template many times: each answer has to exist, keep its bounds, and differ from every mistake.

    Raises ``DocumentError`` where a draw is impossible or a question cannot be derived at all.
    """
    exam = Exam(template, seed)
    exam.check_space(1)
    spreads: dict[str, Spread] = {}
    problems: Counter[str] = Counter()
    refused = 0
    for number in range(draws):
        if progress:
            progress(number, draws, "")
        try:
            paper = exam.paper(Student(f"test {number}"), exam.first_attempt(number))
            refused += paper.attempt - exam.first_attempt(number)
            _one(exam, paper, spreads, problems, anew=number % _EVERY == 0)
        except SymcommError as error:
            problems[f"{error}"] += 1
            if sum(problems.values()) > draws // 4 + 3:
                break
    told = tuple(f"{text} ({count} draws)" if count > 1 else text for text, count in problems.most_common(20))
    found = tuple(spreads[name] for name in sorted(spreads))
    return Report(draws, template.draws.space, refused, found, told, tuple(_left_out(found)))


def _left_out(spreads: Sequence[Spread]) -> Iterator[str]:
    """The author's mistakes that have no meaning in a question which they belong to."""
    for name in dict.fromkeys(name for spread in spreads for name in spread.own):
        idle = [one.question for one in spreads if name in one.own and name not in one.mistakes]
        if idle:
            yield f"the mistake '{name}' changes nothing in {', '.join(idle)}, and is left out there"


def _one(exam: Exam, paper: Paper, spreads: dict[str, Spread], problems: Counter[str], anew: bool) -> None:
    problem = paper.problem
    for part, ask, answer in exam.answered(paper):
        quantity = answer.quantity
        spread = spreads.setdefault(part.id, Spread(part.id))
        spread.steps = max(spread.steps, len(answer.derivation.steps))
        spread.own |= dict.fromkeys(said.name for said in problem.mistakes_in(ask))
        if ask.answer.formula:
            spread.formula = plain(answer.derivation.answer_form)
        elif quantity is None:
            known = exam.kept.key(problem, ask).values
            lost = ", ".join(name for name in answer.derivation.needs if name not in known)
            problems[f"{part.id}: the answer needs a value for {lost}, or say answer: formula"] += 1
            continue
        else:
            spread.values.append(quantity)
            if quantity.value <= 0:
                problems[f"{part.id}: the answer is {quantity.reading}"] += 1
        if anew and quantity is not None:
            again = answer_of(problem, ask, exam.kept.model(problem, ask.model))
            if again.quantity != quantity:
                problems[f"{part.id}: {quantity.reading} with numbers put in, {again.quantity} derived anew"] += 1
        _mistakes(exam.kept.key(problem, ask), quantity, spread, problems, part.id)


def _mistakes(key: Key, right: Quantity | None, spread: Spread, problems: Counter[str], name: str) -> None:
    """Whether a mistake comes to the right number at these values, though it is another formula."""
    values = {**dict(key.given), **key.values}
    for wrong in key.mistakes:
        worth = wrong.at(values) if right is not None else None
        if right is not None and worth is None:
            continue
        told = " and ".join(wrong.names)
        spread.mistakes[told] += 1
        same = right is not None and worth is not None and (worth.unit, worth.value) == (right.unit, right.value)
        if same and len(wrong.names) == 1:
            problems[f"{name}: the mistake '{told}' gives the right number"] += 1
