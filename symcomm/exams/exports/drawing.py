"""Draws the variants of a document's questions and writes them down as items."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from fractions import Fraction
from functools import lru_cache
from html import escape
from itertools import count
from math import ceil, log10
from typing import Any

from symcomm.core.collected import WholeNumbers
from symcomm.core.errors import DocumentError, Span, SymcommError
from symcomm.core.form import Form, names
from symcomm.core.printing import markdown_maths, markdown_sentence, markdown_text, name_in
from symcomm.core.records import ByIdentity, replace
from symcomm.core.text.table import Table
from symcomm.core.units import Unit
from symcomm.documents.editions import ONLY
from symcomm.documents.plots.figure import written
from symcomm.documents.render.document import Answer, Heading, LayerTable, Only, Prose
from symcomm.documents.render.prose import InlinePiece, convert, with_numbers
from symcomm.exams.candidates import Candidates
from symcomm.exams.exports import OURS, Exporter
from symcomm.exams.exports.item import (
    MOST_HOLES,
    SPELLINGS,
    Item,
    Kind,
    Medium,
    PatternItem,
    QuestionOption,
    QuestionPart,
    Recognised,
    filled,
    hole,
    number_text,
    opened,
    pattern_of,
    shown_in,
    spread_of,
)
from symcomm.exams.exports.markup import plain_text
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
# Refused in texts: where converted prose will stand, by its place, and each number that is put into it.
_MARK, _PUT = "\ufdd1", "\ufdd2"
_NUMBERS = re.compile(f"{_PUT}([0-9.]+)")
_MARKED = re.compile(f"{_MARK}([0-9]+)((?:{_PUT}[0-9.]+)*){_MARK}")


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
    questions = compiled(ByIdentity(exam), tolerance)
    return [questions.item(draft) for draft in questions.draw(papers)]


class CompiledExam:
    """The questions of an exam, compiled: prose is converted once, and so are the answers that are recognised.

    Variants that differ in numbers only share a pattern, of which a format is written once; each puts in its numbers.
    """

    def __init__(self, exam: Exam, tolerance: Fraction | None) -> None:
        check_prose(exam.example.items)
        self.exam, self.kept, self.tolerance = exam, exam.kept, tolerance
        self._places: dict[tuple[str, bool], int] = {}  # of texts, and of what some have in common beside numbers
        self._html: list[str] = []  # converted, by their places
        self._new: list[InlinePiece] = []  # not converted yet
        self._known: dict[Hashable, dict[int, Recognised]] = {}  # answers, without numbers
        self._tables: dict[ByIdentity[Table], str] = {}
        # With what formats make of each; of what one variant alone had so far there is none.
        self._patterns = Remembered[Hashable, tuple[Item, dict[str, Any]] | None](2_000)

    def draw(self, papers: Iterable[Paper]) -> list[Item]:
        """Drafts of the questions of some papers, with marks for prose: what is new in it is converted together."""
        drafts = [item for paper in papers for item in self._items(paper)]
        new, self._new = self._new, []
        done = convert(new, "html")
        self._html += [done[piece] for piece in new]
        for piece in new:  # from now on a text that differs from it in its numbers only is no new one
            kind, numbers = piece.apart
            html = piece.pattern("html") if numbers else None
            if html is not None and (kind, piece.inline) not in self._places:
                self._places[kind, piece.inline] = len(self._html)
                self._html.append(html)
        return drafts

    def item(self, draft: Item) -> Item:
        """A question with its prose. Raises ``DocumentError`` for a character that the formats cannot hold."""
        made = self._settled(draft)
        made.check()
        return made

    def pieces(self, draft: Item, exporters: Iterable[Exporter], title: str) -> Iterator[Any]:
        """The pieces of a question, one for each exporter; of ours they differ between variants in numbers only."""
        texts = "\0".join(_texts(draft))
        numbers: tuple[str, ...] = (str(draft.variant), f"{draft.variant:04d}", *_NUMBERS.findall(texts))
        values = [value for part in draft.parts for value in _values(part)]
        about = draft.id, _NUMBERS.sub("", texts), *map(_about, draft.parts)
        found, alone = self._patterns.get(about), None
        if found is None:
            alone = self.item(draft)
            some = alone.may_be_pattern and len(numbers) + len(SPELLINGS) * len(values) < MOST_HOLES
            if some and about in self._patterns:
                found = self._patterns[about] = self._settled(draft, len(numbers)), {}
            self._patterns.once(about, lambda: None)

        def say(place: int) -> str:
            if place < len(numbers):
                return numbers[place]
            at, spelling = divmod(place - len(numbers), len(SPELLINGS))
            return SPELLINGS[spelling](values[at], self.tolerance)

        for exporter in exporters:
            if found is None or exporter.name not in OURS or exporter.lists_numbers:
                alone = alone or self.item(draft)
                yield exporter.piece(title, alone)
                continue
            item, made = found
            if exporter.name not in made:
                made[exporter.name] = opened(exporter.piece(title, item))
            yield filled(made[exporter.name], say)

    def _settled(self, draft: Item, first: int = 0) -> Item:
        """A question with its prose, or the pattern of it: with holes for the numbers, those of answers ``first``."""
        places = map(hole, count(2))

        def text(marked: str) -> str:
            return self._converted(_NUMBERS.sub(lambda _: f"{_PUT}{next(places)}", marked) if first else marked)

        def part(one: QuestionPart, first: int) -> QuestionPart:
            prompt, worked = text(one.prompt), text(one.worked)  # feedback has no numbers of a variant
            options = tuple(replace(o, text=text(o.text), feedback=self._converted(o.feedback)) for o in one.options)
            wrong, every = (
                tuple(replace(w, feedback=self._converted(w.feedback)) for w in some)
                for some in (one.recognised, one.every)
            )
            made = replace(one, prompt=prompt, worked=worked, options=options, recognised=wrong, every=every)
            return pattern_of(made, first) if first and _values(one) else made

        title = text(draft.title)
        blocks: list[str | QuestionPart] = []
        for block in draft.blocks:
            if isinstance(block, str):
                blocks.append(text(block))
            else:
                blocks.append(part(block, first))
                first += len(_values(block)) * len(SPELLINGS) if first else 0
        title = (plain_text(title) if _MARK in draft.title else title) or draft.id
        kind, variant = (PatternItem, int(hole(0))) if first else (Item, draft.variant)
        return kind(draft.id, variant, title, tuple(one for one in blocks if one), draft.media, draft.span)

    def _converted(self, marked: str) -> str:
        return _MARKED.sub(lambda found: with_numbers(self._html[int(found[1])], _NUMBERS.findall(found[2])), marked)

    # -- drawing -----------------------------------------------------------------------------------

    def _items(self, paper: Paper) -> Iterator[Item]:
        problem, variant = paper.problem, int(paper.student.id)
        parts = dict(zip(map(id, problem.asks), self._parts(paper), strict=True))
        shown = [*_shown(problem)]
        headings = [item for item in shown if isinstance(item, Heading)]
        pointed = [item.level for item in headings if item.points is not None]
        top = min(pointed or [item.level for item in headings] or [0])
        before: list[str | Ask | Figure] = []
        for heading, group in grouped(shown, lambda heading, several: heading.level <= top):
            asks = [item for item in group if isinstance(item, Ask)]
            said = [item if isinstance(item, (Ask, Figure)) else self._block(item) for item in group]
            if not asks:
                before += [self._block(heading), *said] if heading else said  # what is said of all that follows
                continue
            title = self._say(without_number(heading.markdown), heading.span) if heading else problem.title
            blocks: list[str | QuestionPart] = []
            media: list[Medium] = []
            for one in [*before, *said]:
                if isinstance(one, Ask):
                    blocks.append(parts[id(one)])
                elif isinstance(one, Figure):
                    picture = picture_of(problem, one, self.kept.model(problem, one.model))
                    name = f"{asks[0].exam.id}-{variant}-{len(media) + 1}.svg"
                    media.append(Medium(name, written(picture.drawn, "svg"), picture.says))
                    blocks.append(f'<p><img src="media:{name}" alt="{escape(picture.says)}" /></p>')
                    blocks.append(self._say(picture.caption, one.span, False) if picture.caption else "")
                else:
                    blocks.append(one)
            span = heading.span if heading else asks[0].span
            yield Item(asks[0].exam.id, variant, title, tuple(blocks), tuple(media), span)

    def _say(self, markdown: str, span: Span, inline: bool = True) -> str:
        """Markdown that becomes XHTML: much of it is converted at once, so a mark keeps its place."""
        piece = InlinePiece(markdown, span, inline)
        kind, numbers = piece.apart
        place = self._places.get((kind, inline))
        if place is None or not numbers:
            numbers, new = [], len(self._html) + len(self._new)
            place = self._places.setdefault((markdown, inline), new)
            self._new += [piece] * (place == new)
        return f"{_MARK}{place}{''.join(_PUT + number for number in numbers)}{_MARK}"

    def _block(self, item: ProblemItem) -> str:
        match item:
            case Prose(markdown, span):
                return self._say(markdown, span, False)
            case Heading(_, markdown, _, span):
                return f"<p><strong>{self._say(markdown, span)}</strong></p>"
            case LayerTable(table):
                if ByIdentity(table) not in self._tables:
                    self._tables[ByIdentity(table)] = self._table(table)
                return self._tables[ByIdentity(table)]
        return ""

    def _table(self, table: Table) -> str:
        head = "".join(f"<th>{self._say(column, table.span)}</th>" for column in table.columns)
        rows = "".join(
            f"<tr>{''.join(f'<td>{self._say(c.text, c.span())}</td>' for c in row[: len(table.columns)])}</tr>"
            for row in table.rows
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"

    # -- answers -----------------------------------------------------------------------------------

    def _parts(self, paper: Paper) -> Iterator[QuestionPart]:
        several = {id(ask): (n, len(q.asks)) for q in paper.problem.questions for n, ask in enumerate(q.asks)}
        for part, asked, answer in self.exam.answered(paper):
            place, many = several[id(part.ask)]
            yield self._part(paper.problem, part, asked, answer, f"({letters(place)})" if many > 1 else "")

    def _part(self, problem: Problem, part: PaperPart, asked: Ask, answer: Answer, number: str) -> QuestionPart:
        ask, span, quantity, tolerance = part.ask, part.ask.span, answer.quantity, self.tolerance
        notation = answer.derivation.notation
        value, unit, units = shown_in(quantity, ask.answer.unit) if quantity is not None else (None, "", ())
        scale = quantity.value / value if quantity is not None and value else Fraction(1)
        key = self.kept.key(problem, asked)
        known, values, form = key.candidates, key.values, key.candidates.right
        every = self._recognised(known, ask, problem)
        symbols = dict.fromkeys(names(form))
        found: tuple[tuple[int, Fraction | None], ...] = ()
        first = {known.same[n]: n for n in reversed(every)}  # of equal formulas the one of most credit
        if quantity is None:
            found = tuple((n, None) for n in first.values() if not known.recognised[n].prefix)  # no number, no GB
            symbols |= dict.fromkeys(known.numbers.names)
        elif not part.choices:
            at = tuple(values.get(name) for name in known.numbers.names)
            near = ByIdentity(known), tuple(every), at, quantity.value, quantity.unit, scale, tolerance
            used, found = _told_apart(*near)
            symbols |= dict.fromkeys(used)
        kind: Kind = "choice" if part.choices else "symbolic" if value is None else "numeric"
        spoken = [markdown_text(ask.label)] if ask.label else []
        words = words_of(problem.language)
        if kind == "symbolic":
            symbols_said = ", ".join(markdown_maths(name_in("latex", name, notation)) for name in names(form))
            spoken.append(words.formula_in.replace("#", symbols_said))
        elif kind == "numeric":
            spoken += [f"{words.unit} {_unit_text(_plural(unit, problem.language))}"] if unit else []
            spoken.append(words.digits.replace("#", f"{_digits(tolerance)}"))
        lead = words.answer.replace("#", number).strip() + (f" ({', '.join(spoken)})" if spoken else "")
        shown = form if asked.answer.step else self.kept.simplified(answer.derivation)
        worked = markdown_maths(self.kept.tex(shown, notation))
        if value is not None:
            worked += f" = {number_text(value, Fraction(*spread_of(value, tolerance)))} {_unit_text(unit)}".rstrip()
        free = tuple(symbols)
        relations = tuple(_related(answer.derivation.relations.equations, free)) if value is None else ()
        allowed = tuple(dict.fromkeys((*free, *(n for left, right in relations for n in (left, *names(right))))))

        recognised = tuple(
            Recognised(one.names, worth, one.form, one.credit, one.feedback)
            for one, worth in ((every[n], worth) for n, worth in found)
        )
        worths, single = dict(found), {*first.values()}
        all_known = tuple(
            Recognised(one.names, worths.get(n), one.form, one.credit, one.feedback)
            for n, one in every.items() if n in single and kind == "numeric"
        )  # fmt: skip
        options = tuple(
            QuestionOption(self._say(markdown_text(choice.text), span), choice.right, Fraction(choice.right),
                           self._sentences(choice.says, ask, problem))
            for choice in part.choices
        )  # fmt: skip
        return QuestionPart(
            part.id, kind, self._say(f"{lead}:", span), part.points, value, unit, units, tolerance, form, allowed,
            recognised, options, self._say(worked, span), relations, all_known,
        )  # fmt: skip

    def _sentences(self, says: tuple[str, ...], ask: Ask, problem: Problem) -> str:
        told = " ".join(markdown_sentence(one, problem.notation) for one in says)
        return self._say(told, ask.span) if told else ""

    def _recognised(self, known: Candidates, ask: Ask, problem: Problem) -> dict[int, Recognised]:
        """What is recognised of a question by its place, most credit first; without numbers."""
        about = ByIdentity(known), ask.exam.id, ask.exam.credit, problem.exam.credit, (*problem.notation.latex.items(),)
        if about not in self._known:
            made = {}
            for n, one in enumerate(known.recognised):
                conventions, mistakes = (one.names, ()) if one.convention else ((), one.names)
                credit = credit_of(conventions, mistakes, ask, problem)
                made[n] = Recognised(one.names, None, one.form, credit, self._sentences(one.says, ask, problem))
            self._known[about] = dict(sorted(made.items(), key=lambda one: -one[1].credit))
        return self._known[about]


@lru_cache(4)
def compiled(exam: ByIdentity[Exam], tolerance: Fraction | None) -> CompiledExam:
    """An exam as exports have it, which its papers share."""
    return CompiledExam(exam.it, tolerance)


def _texts(draft: Item) -> Iterator[str]:
    """The texts of a draft that may have numbers of its variant, in order."""
    yield draft.title
    for block in draft.blocks:
        options = () if isinstance(block, str) else (option.text for option in block.options)
        yield from (block,) if isinstance(block, str) else (block.prompt, block.worked, *options)


def _values(part: QuestionPart) -> list[Fraction]:
    """The numbers of an answer that are written: the right one and those recognised."""
    told = () if part.options else (part.answer, *(one.value for one in part.recognised))
    return [value for value in told if value is not None]


def _about(part: QuestionPart) -> tuple[Hashable, ...]:
    """All of a part but its texts and numbers, which other variants may share."""
    return (
        part.id, part.kind, part.points, part.unit, ByIdentity(part.units), ByIdentity(part.form), part.symbols,
        tuple((one.names, ByIdentity(one.form), one.credit, one.feedback) for one in part.recognised),
        tuple((one.right, one.feedback) for one in part.options),
        tuple((name, ByIdentity(right)) for name, right in part.relations),
    )  # fmt: skip


def _shown(problem: Problem) -> Iterator[ProblemItem]:
    """What the paper shows."""
    only = ""
    for item in problem.items:
        if isinstance(item, Only):
            only = item.name
        elif (not only or "paper" in ONLY[only]) and (not isinstance(item, Figure) or item.paper):
            yield item


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


@lru_cache(maxsize=16_384)  # papers often have the numbers of a question in common
def _told_apart(
    known: ByIdentity[Candidates], order: Sequence[int], at: Sequence[Fraction | None], right: Fraction, unit: Unit,
    scale: Fraction, tolerance: Fraction | None,
) -> tuple[tuple[str, ...], tuple[tuple[int, Fraction], ...]]:  # fmt: skip
    """The names in what is near the right number, and those that differ from it and from one another.

    They do by more than both may be off: their places and numbers, divided by ``scale``.
    """

    def numbers(over: int, under: int) -> tuple[Fraction, Fraction]:
        """A number in its unit, and how far it may be off."""
        number = Fraction(over * scale.denominator, under * scale.numerator)
        return number, Fraction(*spread_of(number, tolerance))

    values = {name: number for name, number in zip(known.it.numbers.names, at, strict=True) if number is not None}
    near = {
        n: worth for n, (one, worth) in enumerate(zip(known.it.recognised, known.it.numbers.at(values), strict=True))
        if worth is not None and one.unit == unit and _is_near(worth, right)
    }  # fmt: skip
    least, most = (0.000501, 0.00501) if tolerance is None else (float(tolerance), float(tolerance))
    apart, alike = most + 1e-9, least - 1e-9
    first = right.numerator, right.denominator
    others = [(first, _rough(first))]
    found = []
    for n in order:
        if n not in near:
            continue
        a = near[n]
        x = _rough(a)
        size = abs(x)
        for b, y in others:
            gap, spread = abs(x - y), size + abs(y)
            if gap > apart * spread:
                continue
            (one, off), (other, wide) = numbers(*a), numbers(*b)
            if gap < alike * spread or abs(one - other) <= off + wide:  # floats are too near
                break
        else:
            others.append((a, x))
            found.append((n, numbers(*a)[0]))
    return tuple(dict.fromkeys(name for n in near for name in known.it.recognised[n].number.names)), tuple(found)


def _rough(number: WholeNumbers) -> float:
    try:
        return number[0] / number[1]
    except OverflowError:
        return float("nan")  # compares with nothing: exact numbers decide
