"""Draws the variants of a document's questions and writes them down as items."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Sequence
from contextlib import suppress
from fractions import Fraction
from functools import lru_cache
from html import escape
from math import ceil, log10

from symcomm.core.collected import WholeNumbers
from symcomm.core.errors import DocumentError, Span, SymcommError
from symcomm.core.form import Form, names
from symcomm.core.notation import Notation
from symcomm.core.printing import markdown_maths, markdown_sentence, markdown_text, name_in, tex
from symcomm.core.records import ByIdentity, replace
from symcomm.core.text.table import Table
from symcomm.core.units import Unit
from symcomm.documents.editions import ONLY
from symcomm.documents.plots.figure import written
from symcomm.documents.render.document import Answer, Heading, LayerTable, Only, Prose
from symcomm.documents.render.prose import InlinePiece, convert
from symcomm.exams.candidates import Candidates
from symcomm.exams.exports.item import (
    Item,
    Kind,
    PictureFile,
    QuestionOption,
    QuestionPart,
    Recognised,
    number_text,
    shown_in,
    spread_of,
)
from symcomm.exams.exports.markup import plain_text
from symcomm.exams.kept_answers import KeptAnswers
from symcomm.exams.pages import words_of
from symcomm.exams.papers import Exam, Paper, PaperPart, check_prose, without_number
from symcomm.exams.problems.figures import Figure
from symcomm.exams.problems.problem import Ask, Problem, Template, grouped, letters
from symcomm.exams.problems.problem import Item as ProblemItem
from symcomm.exams.problems.solve import picture_of
from symcomm.exams.remembered import Remembered
from symcomm.exams.roster import numbered
from symcomm.exams.rubric import credit_of

_NEAR = 10**9  # of the right number: what is further off than this many times, nobody types
_TEXTS = 50_000  # that are kept with their conversions
_MARK = "\ufdd1"  # refused in texts: where converted prose will stand
_MARKED = re.compile(f"{_MARK}[0-9]+{_MARK}")
_Wrong = tuple[tuple[int, ...], dict[int, Recognised], tuple[Recognised, ...]]


def draw_items(template: Template, seed: str, variants: int, tolerance: Fraction | None = None) -> tuple[Item, ...]:
    """All questions of a document in so many variants, question by question.

    ``tolerance`` is a share of a number; None is half a unit of its third digit. A recognised answer that is closer to
    the right one than the tolerance tells apart is left out, and one that is a billion times as large or small. Raises
    ``DocumentError`` where a document has no questions, or a paper cannot be drawn.
    """
    exam = exam_of(template, seed, tolerance)
    found = items_of(exam, exam.settle(numbered(variants)), tolerance)
    order = list(dict.fromkeys(item.id for item in found))
    return tuple(sorted(found, key=lambda item: (order.index(item.id), item.variant)))


def exam_of(template: Template, seed: str, tolerance: Fraction | None = None) -> Exam:
    """The exam whose papers have all questions.

    Raises ``DocumentError`` where there is none, and for a tolerance that is no small share.
    """
    if tolerance is not None and not 0 < tolerance <= Fraction(1, 10):
        raise DocumentError(f"a tolerance is a share of the number up to 0.1, not {float(tolerance):g}")
    exam = Exam(template, seed, whole=True)
    if not exam.example.asks:
        raise DocumentError(f"{exam.example.title or template.file} asks no question", hint="ask: parameters")
    return exam


def items_of(exam: Exam, papers: Sequence[Paper], tolerance: Fraction | None = None) -> list[Item]:
    """The questions of papers, whose students are numbers of variants; their prose is converted together."""
    prose = _prose_of(exam)
    drawn = [item for paper in papers for item in _items(exam, paper, tolerance, prose)]
    done = prose.converted()
    made = [_settled(item, done) for item in drawn]  # texts of several items are put together once
    for item in made:
        item.check()
    if len(done) > _TEXTS:
        _prose_of.cache_clear()
    return made


class _Prose:
    """Markdown that becomes XHTML: gathered first, since much of it is converted at once; a mark keeps its place."""

    def __init__(self) -> None:
        self.marks: dict[tuple[str, bool], str] = {}
        self.wanted: dict[str, InlinePiece] = {}  # by their marks
        self.done: dict[str, str] = {}
        self.sentences = Remembered[Hashable, str]()
        self.wrong = Remembered[Hashable, _Wrong]()
        self.tables = Remembered[ByIdentity[Table], str]()

    def __call__(self, markdown: str, span: Span, inline: bool = True) -> str:
        about = markdown, inline
        if about not in self.marks:
            mark = self.marks[about] = f"{_MARK}{len(self.marks)}{_MARK}"
            self.wanted[mark] = InlinePiece(markdown, span, inline)
        return self.marks[about]

    def converted(self) -> dict[str, str]:
        """The text that each mark stands for."""
        done = convert([*self.wanted.values()], "html")
        self.done |= {mark: done[piece] for mark, piece in self.wanted.items()}
        self.wanted.clear()
        return self.done


_prose_of = lru_cache(1)(lambda exam: _Prose())  # what is converted serves all papers of an exam


def _settled(item: Item, done: dict[str, str]) -> Item:
    """An item with its prose in the place of the marks; a title is plain text."""

    def text(marked: str) -> str:
        if marked not in done:
            done[marked] = _MARKED.sub(lambda found: done[found[0]], marked) if _MARK in marked else marked
        return done[marked]

    def part(one: QuestionPart) -> QuestionPart:
        options = tuple(replace(o, text=text(o.text), feedback=text(o.feedback)) for o in one.options)
        recognised = tuple(replace(wrong, feedback=text(wrong.feedback)) for wrong in one.recognised)
        return replace(one, prompt=text(one.prompt), worked=text(one.worked), options=options, recognised=recognised)

    blocks = tuple(text(block) if isinstance(block, str) else part(block) for block in item.blocks)
    title = plain_text(text(item.title)) if _MARK in item.title else item.title
    return replace(item, title=title or item.id, blocks=tuple(block for block in blocks if block))


def _items(exam: Exam, paper: Paper, tolerance: Fraction | None, prose: _Prose) -> Iterator[Item]:
    problem, variant = paper.problem, int(paper.student.id)
    check_prose(problem.items)
    parts = dict(zip(map(id, problem.asks), _parts(exam, paper, tolerance, prose), strict=True))
    shown = [*_shown(problem)]
    headings = [item for item in shown if isinstance(item, Heading)]
    pointed = [item.level for item in headings if item.points is not None]
    top = min(pointed or [item.level for item in headings] or [0])
    before: list[ProblemItem] = []
    for heading, group in grouped(shown, lambda heading, several: heading.level <= top):
        asks = [item for item in group if isinstance(item, Ask)]
        if not asks:
            before += [heading, *group] if heading else group  # what is said of all that follows
            continue
        title = prose(without_number(heading.markdown), heading.span) if heading else problem.title
        blocks: list[str | QuestionPart] = []
        media: list[PictureFile] = []
        for item in [*before, *group]:
            if isinstance(item, Ask):
                blocks.append(parts[id(item)])
            elif isinstance(item, Figure):
                picture = picture_of(problem, item, exam.kept.model(problem, item.model))
                name = f"{asks[0].exam.id}-{variant}-{len(media) + 1}.svg"
                media.append(PictureFile(name, written(picture.drawn, "svg"), picture.says))
                blocks.append(f'<p><img src="media:{name}" alt="{escape(picture.says)}" /></p>')
                blocks.append(prose(picture.caption, item.span, inline=False) if picture.caption else "")
            else:
                blocks.append(_block(item, prose))
        span = heading.span if heading else asks[0].span
        yield Item(asks[0].exam.id, variant, title, tuple(blocks), tuple(media), span)


def _shown(problem: Problem) -> Iterator[ProblemItem]:
    """What the paper shows."""
    only = ""
    for item in problem.items:
        if isinstance(item, Only):
            only = item.name
        elif (not only or "paper" in ONLY[only]) and (not isinstance(item, Figure) or item.paper):
            yield item


def _block(item: ProblemItem, prose: _Prose) -> str:
    match item:
        case Prose(markdown, span):
            return prose(markdown, span, inline=False)
        case Heading(_, markdown, _, span):
            return f"<p><strong>{prose(markdown, span)}</strong></p>"
        case LayerTable(table):
            return prose.tables.once(ByIdentity(table), lambda: _table(table, prose))
    return ""


def _table(table: Table, prose: _Prose) -> str:
    head = "".join(f"<th>{prose(column, table.span)}</th>" for column in table.columns)
    rows = "".join(
        f"<tr>{''.join(f'<td>{prose(cell.text, cell.span())}</td>' for cell in row[: len(table.columns)])}</tr>"
        for row in table.rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


# -- answers ----------------------------------------------------------------------------------------


def _parts(exam: Exam, paper: Paper, tolerance: Fraction | None, prose: _Prose) -> Iterator[QuestionPart]:
    problem = paper.problem
    several = {id(ask): (n, len(q.asks)) for q in problem.questions for n, ask in enumerate(q.asks)}
    for part, asked, answer in exam.answered(paper):
        place, count = several[id(part.ask)]
        number = f"({letters(place)})" if count > 1 else ""
        yield _part(exam.kept, problem, part, asked, answer, number, tolerance, prose)


def _part(
    kept: KeptAnswers, problem: Problem, part: PaperPart, asked: Ask, answer: Answer, number: str,
    tolerance: Fraction | None, prose: _Prose,
) -> QuestionPart:  # fmt: skip
    ask, span, quantity, notation = part.ask, part.ask.span, answer.quantity, answer.derivation.notation
    value, unit, units = shown_in(quantity, ask.answer.unit) if quantity is not None else (None, "", ())
    scale = quantity.value / value if quantity is not None and value else Fraction(1)
    key = kept.key(problem, asked)
    known, form = key.candidates, key.candidates.right
    about = ByIdentity(known), ask.exam.id, ask.exam.credit, problem.exam.credit, (*problem.notation.latex.items(),)
    order, single, formulas = prose.wrong.once(about, lambda: _all_wrong(known, ask, problem, prose))  # for some papers
    recognised = formulas if quantity is None else ()
    if quantity is not None and not part.choices:
        at = tuple(key.values.get(name) for name in known.numbers.names)
        apart = _told_apart(ByIdentity(known), order, at, quantity.value, quantity.unit, scale, tolerance)
        recognised = tuple(replace(single[n], value=number) for n, number in apart if n in single)
    options = tuple(
        QuestionOption(prose(markdown_text(choice.text), span), choice.right, Fraction(choice.right),
               _sentences(choice.says, ask, prose, problem))
        for choice in part.choices
    )  # fmt: skip
    kind: Kind = "choice" if options else "symbolic" if value is None else "numeric"
    spoken = [markdown_text(ask.label)] if ask.label else []
    words = words_of(problem.language)
    if not options and value is None:
        symbols_said = ", ".join(markdown_maths(name_in("latex", name, notation)) for name in names(form))
        spoken.append(words.formula_in.replace("#", symbols_said))
    elif not options:
        spoken += [f"{words.unit} {_unit_text(_plural(unit, problem.language))}"] if unit else []
        spoken.append(words.digits.replace("#", f"{_digits(tolerance)}"))
    lead = words.answer.replace("#", number).strip() + (f" ({', '.join(spoken)})" if spoken else "")
    shown = form if asked.answer.step else answer.derivation.answer_form
    worked = markdown_maths(_tex(ByIdentity(shown), ByIdentity(notation)))
    if value is not None:
        worked += f" = {number_text(value, Fraction(*spread_of(value, tolerance)))} {_unit_text(unit)}".rstrip()
    free = tuple(dict.fromkeys((*names(form), *known.numbers.names))) if kind == "symbolic" else ()
    relations = tuple(_related(answer.derivation.relations.equations, free)) if free else ()
    return QuestionPart(
        part.id, kind, prose(f"{lead}:", span), part.points, value, unit, units, tolerance, form,
        tuple(dict.fromkeys((*free, *(n for left, right in relations for n in (left, *names(right)))))),
        recognised, options, prose(worked, span), relations,
    )  # fmt: skip


@lru_cache(2048)  # papers share most formulas
def _tex(form: ByIdentity[Form], notation: ByIdentity[Notation]) -> str:
    return tex(form.it, None, notation.it)


def _digits(tolerance: Fraction | None) -> int:
    """The digits that a number needs to be within a tolerance of it, whatever its first one is."""
    return 3 if tolerance is None else 1 + ceil(log10(1 / (2 * tolerance)))


def _related(equations: Sequence[tuple[str, Form]], symbols: Sequence[str]) -> Iterator[tuple[str, Form]]:
    """The relations that lead from some symbols to others."""
    reached = {*symbols}
    groups = [{left, *names(right)} for left, right in equations]
    for _ in groups:
        reached.update(*(group for group in groups if group & reached))
    yield from ((left, right) for left, right in equations if left in reached)


def _is_near(wrong: WholeNumbers, right: Fraction) -> bool:
    above, below = abs(wrong[0] * right.denominator), abs(right.numerator * wrong[1])
    return not above or not below or (below < _NEAR * above and above < _NEAR * below)


@lru_cache(1024)
def _plural(unit: str, language: str) -> str:
    """A unit as a prompt in English names it: ``10^6 parameters``, ``tokens/GPU``; elsewhere as it is."""
    power, gap, name = unit.rpartition(" ")
    word = re.match(r"[a-z]{3,}", name)
    if word is None or not language.startswith("en"):
        return unit
    with suppress(SymcommError):
        if Unit.parse(f"{word[0]}s") == Unit.parse(word[0]):
            return f"{power}{gap}{word[0]}s{name[word.end() :]}"
    return unit


def _unit_text(unit: str) -> str:
    power, _, rest = unit.partition(" ")
    return f"${power.replace('^', '^{')}}}$ {markdown_text(rest)}".strip() if "10^" in power else markdown_text(unit)


def _sentences(says: tuple[str, ...], ask: Ask, prose: _Prose, problem: Problem) -> str:
    if not says:
        return ""
    about = says, ask.exam.id, (*problem.notation.latex.items(),)
    told = (markdown_sentence(one, problem.notation) for one in says)
    return prose.sentences.once(about, lambda: prose(" ".join(told), ask.span))


def _all_wrong(known: Candidates, ask: Ask, problem: Problem, prose: _Prose) -> _Wrong:
    """What is recognised of a question, without numbers.

    Its places, most credit first; by place, what has a formula of its own; what a question for a formula recognises.
    """
    made = {}
    for n, one in enumerate(known.recognised):
        conventions, mistakes = (one.names, ()) if one.convention else ((), one.names)
        credit = credit_of(conventions, mistakes, ask, problem)
        made[n] = Recognised(one.names, None, one.form, credit, _sentences(one.says, ask, prose, problem))
    order = sorted(made, key=lambda n: -made[n].credit)
    first = {known.same[n]: n for n in reversed(order)}  # of equal formulas the one of most credit
    single = {n: replace(made[n], place=at) for at, n in enumerate(filter({*first.values()}.__contains__, order), 1)}
    formulas = [made[n] for n in first.values() if not known.recognised[n].prefix]  # no number, no GB
    return tuple(order), single, tuple(replace(one, place=at) for at, one in enumerate(formulas, 1))


@lru_cache(maxsize=16_384)  # papers often have the numbers of a question in common
def _told_apart(
    known: ByIdentity[Candidates], order: Sequence[int], at: Sequence[Fraction | None], right: Fraction, unit: Unit,
    scale: Fraction, tolerance: Fraction | None,
) -> list[tuple[int, Fraction]]:  # fmt: skip
    """The places and numbers, divided by ``scale``, of what is near the right number and differs from it.

    They do from one another, too: by more than both may be off.
    """

    def number(over: int, under: int) -> tuple[float, Fraction, tuple[int, int]]:
        """A number about and in its unit, and how far it may be off."""
        exact = Fraction(over * scale.denominator, under * scale.numerator)
        return _rough((over, under)), exact, spread_of(exact, tolerance)

    values = {name: number for name, number in zip(known.it.numbers.names, at, strict=True) if number is not None}
    worths, recognised = known.it.numbers.at(values), known.it.recognised
    least, most = (0.000501, 0.00501) if tolerance is None else (float(tolerance), float(tolerance))
    apart, alike = most + 1e-9, least - 1e-9
    others = [number(right.numerator, right.denominator)]
    found = []
    for n in order:
        worth = worths[n]
        if worth is None or recognised[n].unit != unit or not _is_near(worth, right):
            continue
        x, one, off = made = number(*worth)
        for y, other, wide in others:
            gap, spread = abs(x - y), abs(x) + abs(y)
            if gap > apart * spread:
                continue
            if gap < alike * spread or abs(one - other) <= Fraction(*off) + Fraction(*wide):  # floats are too near
                break
        else:
            others.append(made)
            found.append((n, one))
    return found


def _rough(number: WholeNumbers) -> float:
    try:
        return number[0] / number[1]
    except OverflowError:
        return float("nan")  # compares with nothing: exact numbers decide
