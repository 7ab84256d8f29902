"""Solves a problem document: every question derived, evaluated, and put between the author's own words."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from symcomm.core.derivation.renaming import renamed
from symcomm.core.errors import DocumentError, StrategyError, SymcommError, ValuesError, nearest
from symcomm.core.quantities.declared import Option
from symcomm.core.records import replace
from symcomm.core.units import Quantity
from symcomm.documents.render.document import Answer, Block, Document, Given, Picture
from symcomm.exams.problems.answered import (
    clashes,
    contradictions,
    options_of,
    unanswered,
    unasked,
    unused_names,
    unused_values,
    with_answers,
    without_units,
    written,
)
from symcomm.exams.problems.beside import compare, others
from symcomm.exams.problems.deriving import accounting_of, derive, no_model
from symcomm.exams.problems.figures import Figure, draw
from symcomm.exams.problems.grading import graded
from symcomm.exams.problems.keys import Known, check_units, merge
from symcomm.exams.problems.problem import Ask, ModelBlock, Problem
from symcomm.exams.problems.verified import with_run

if TYPE_CHECKING:
    from symcomm.core.accounting import Accounting
    from symcomm.core.derivation import Derivation
    from symcomm.core.model import Model

Progress = Callable[[int, int, str], None]


def load_model(problem: Problem, name: str = "", **reading: str) -> Model:
    """One model of a problem: the one called ``name``, or the last one.

    A file without blocks has a model for each table; ``name`` is then the table's number. ``reading`` (``repeat``,
    ``batch``, ``dtype``) says how the table is read, over what the file says.
    """
    reading = {key: text for key, text in reading.items() if text}
    if problem.models:
        if name and name not in problem.models:
            raise DocumentError(f"{problem.file} has no model '{name[:60]}'", hint=nearest(name, [*problem.models]))
        block = problem.models[name or [*problem.models][-1]]
        return load_block(replace(block, **reading))  # type: ignore[arg-type]  # the keys are fields of text
    tables = problem.tables
    if not tables:
        raise DocumentError(f"{problem.file} has no layer table", hint="its columns are Computation, Input and Output")
    if not name and len(tables) > 1:
        lines = ", ".join(str(table.line) for table in tables)
        several = f"{problem.file} has {len(tables)} layer tables, in lines {lines}"
        raise DocumentError(several, hint="say which with --name 1, 2, ...")
    if name and not (name.isdecimal() and len(name) < 7 and 1 <= int(name) <= len(tables)):
        raise DocumentError(f"{problem.file} has no table '{name[:60]}'", hint=f"its tables are 1 to {len(tables)}")
    from symcomm.core import model

    said = {key: reading.get(key, "") for key in ("repeat", "batch", "dtype")}
    return model.load(tables[int(name or 1) - 1], file=problem.file, notation=problem.notation,
                      values=_numbers(problem.values), name=Path(problem.file).stem, **said)  # fmt: skip


def _numbers(known: Iterable[Known]) -> dict[str, Any]:
    return {item.name: item.quantity.value for item in known}


def load_block(block: ModelBlock) -> Model:
    """The model of a block, or the step of it that its phase says.

    Raises the errors of what is wrong in its table, with their place.
    """
    made = _load_whole(block)
    if not block.phase:
        return made
    sizes = {name: said for name in ("new", "past") if (said := getattr(block, name))}
    with block.section.span_of("phase").meant():
        return (made.prefill if block.phase == "prefill" else made.decode)(**sizes)


def _load_whole(block: ModelBlock) -> Model:
    from symcomm.core import model

    section = block.section
    try:
        if block.parts:
            found = [(load_block(part), part.layers_before) for part in block.parts]
            if len(found) == 1:
                return replace(found[0][0].at(**_numbers(block.values)), name=block.name)
            return model.model_of_parts(found, name=block.name, values=_numbers(block.values), notation=block.notation)
        if block.module:
            known = model.load_known(
                block.module, values=_numbers(block.values), notation=block.notation, dtype=section.text("dtype"),
                loss=block.loss,
            )  # fmt: skip
            if known is None:
                raise section.error("module", "this is no printed module", "as print(model) shows it")
            return replace(known, name=block.name)
        said = {
            key: getattr(block, key) for key in ("repeat", "batch", "dtype", "inputs", "weights", "notation", "name")
        }
        made = model.load(block.table, values=_numbers(block.values), axes=dict(block.axes), **said)
    except SymcommError as error:
        key = "values" if isinstance(error, ValuesError) and "values" in section else "model"
        key = "parts" if block.parts else key
        raise error.at(section.blamed(error.message) or section.span_of(key)) from None
    for key in ("inputs", "weights"):
        for name in getattr(block, key):
            if not any(known == name or known.rpartition("_")[0] == name for known in made.graph.tensors):
                where = section.blamed(f"'{name}'") or section.span_of(key)
                raise DocumentError(
                    f"the table has no tensor '{name[:60]}'", where, nearest(name, [*made.graph.tensors])
                )
    return made


class Answering(Protocol):
    """Where the models and answers of a problem come from."""

    def model(self, problem: Problem, name: str) -> Model | None:
        """A model with its numbers."""
        ...

    def answer(self, problem: Problem, ask: Ask, pages: bool = False) -> Answer:
        """The answer to a question."""
        ...


def solve(
    problem: Problem, progress: Progress | None = None, accounting: Iterable[tuple[str, str]] = (),
    answering: Answering | None = None,
) -> Document:  # fmt: skip
    """The write-up of a problem: every question derived, and evaluated where the numbers are known.

    ``accounting`` are choices laid over those of the file. ``progress`` is called with the number of questions
    answered, their total, and the next one's name. ``answering`` knows answers of other papers of the same document.
    """
    extra = tuple(accounting)
    models: dict[str, Model] = {}
    made: list[Block] = []
    total, done = len(problem.asks), 0
    beside: list[tuple[Ask, int]] = []
    answers: list[Answer] = []
    unread: set[str] = set()  # models of which nothing has been told
    for item in problem.items:
        if isinstance(item, ModelBlock):
            made_of = answering.model(problem, item.name) if answering else None
            models[item.name] = made_of or load_block(item)
            unread.add(item.name)
        elif isinstance(item, Ask):
            if progress:
                progress(done, total, item.label or item.quantity)
            before = {name: one.quantity for name, one in zip(problem.ids, answers, strict=False)}
            asked = following(item, before)
            if answering and not extra:
                answer = answering.answer(problem, asked, pages=True)
            else:
                answer = answer_of(problem, asked, models.get(item.model), extra)
                if problem.detail != "brief":
                    answer = _with_others(problem, asked, models.get(item.model), extra, answer)
            if asked.verify:
                softmax = accounting_of(problem.conventions, asked.conventions, extra).softmax
                derived = with_run(problem.file, asked, models.get(item.model), answer.derivation, softmax)
                answer = replace(answer, derivation=derived)
            answers.append(answer)
            if item.model in unread and models[item.model].graph.reading():  # told once, where the model is first used
                answer = replace(answer, reading=f"Read as {models[item.model].graph.reading('`')}.")
            unread.discard(item.model)
            made.append(answer)
            done += 1
            beside += [(item, len(made) - 1)] if item.printed or item.beside else []
        elif isinstance(item, Figure):
            made.append(picture_of(problem, item, models.get(item.model), extra))
        else:
            made.append(item)
    if not any(isinstance(item, (Ask, Figure)) for item in problem.items):
        raise DocumentError(
            f"{problem.file} asks nothing, so there is no solution to write",
            hint="ask below its tables, in a fenced symcomm block with ask:, or on the command line: symcomm derive "
            "QUANTITY --model FILE",
        )
    if progress:
        progress(done, total, "")
    compare(problem, beside, made)
    made, leaks = with_answers(problem, graded(problem, unasked(made)))
    unused_names(problem, answers)
    told = (
        *contradictions(problem, made), *unused_values(problem, answers, models.values()),
        *without_units(problem, answers), *clashes(answers), *unanswered(made),
    )  # fmt: skip
    return Document(
        problem.title, problem.subtitle, problem.authors, problem.date, problem.language, problem.file,
        problem.notation, tuple(made), problem.course, problem.detail, problem.extra, leaks, told,
        written=written(problem),
    )  # fmt: skip


def following(ask: Ask, before: Mapping[str, Quantity | None]) -> Ask:
    """A question with the numbers that are answers of earlier ones; ``before`` has these by their ids.

    Raises ``DocumentError`` for an answer that is not there or has no number.
    """
    for target, name, span in ask.exam.follows:
        if name not in before:
            hint = nearest(name, [*before]) if before else "no question stands before this one"
            raise DocumentError(f"no question before this one is called '{name[:40]}'", span, hint)
        quantity = before[name]
        if quantity is None or not isinstance(quantity.value, Fraction):
            raise DocumentError(f"the answer of {name} has no exact number", span)
        if isinstance(target, Option):
            told = target.read(f"{quantity.value} {quantity.unit}".removesuffix(" 1"))
            ask = replace(ask, options=(*ask.options, (target.name, told)))
        else:
            ask = replace(ask, given=(*ask.given, Known(target, quantity, span)))
    return ask


def followed(problem: Problem, ask: Ask) -> Ask:
    """A question with the answers of the earlier ones that it follows; these are derived here.

    Raises ``DocumentError`` where one of them is not there or has no number.
    """
    wanted = {name for _, name, _ in ask.exam.follows}
    before: dict[str, Quantity | None] = {}
    for name, one in zip(problem.ids, problem.asks, strict=True):
        if one is ask:
            break
        model = load_model(problem, one.model) if name in wanted and one.model else None
        before[name] = answer_of(problem, followed(problem, one), model).quantity if name in wanted else None
    return following(ask, before)


def known_of(problem: Problem, ask: Ask) -> tuple[Known, ...]:
    """All numbers that are known to a question: its model's, and its own."""
    block = problem.models.get(ask.model)
    return merge(block.values if block else problem.values, ask.given)


# Where a document says what several questions share.
_SHARED = "go in a mapping: at({...})", "go in 'values' of a model or in 'symbols'"


def answer_of(
    problem: Problem, ask: Ask, model: Model | None, extra: tuple[tuple[str, str], ...] = (),
    shared: Collection[str] | None = None,
) -> Answer:  # fmt: skip
    """The answer to one question of a problem, whose model was loaded.

    Numbers given to it under a name that it has not are refused; those with a name of ``shared`` may be another's.
    """
    from symcomm.core.model import ratio

    known = known_of(problem, ask)
    chosen = accounting_of(problem.conventions, ask.conventions, extra)
    values = _numbers(known)
    try:
        asked, about = ask.sheet or ask.quantity, model or no_model(problem.notation)
        own = tuple(name for name, _ in (*ask.conventions, *extra))  # those of the document hold where they matter
        derivation = derive(asked, about, dict(ask.options), chosen, values, own)
        for old, new, _ in ask.names:
            if (old, new) not in {one[:2] for one in problem.names} and new not in derivation.own_names:
                renamed(derivation, {old: new})  # says why it cannot be
        if ask.divided_by is not None:
            below = replace(ask.divided_by, given=merge(ask.given, ask.divided_by.given))
            other = answer_of(problem, below, model, extra, {item.name for item in below.given}).derivation
            compared = [field for field, _ in (*ask.conventions, *below.conventions)]
            derivation = ratio(derivation, other, compared=compared)
        for item in ask.given:
            if item.name not in problem.told:
                try:
                    derivation.check_names([item.name], slips=shared)
                except ValuesError as error:
                    error.hint = error.hint.replace(*_SHARED)
                    raise error.at(item.span) from None
        check_units(derivation, known)
        complete = derivation.values(values)
        quantity = derivation.at(values) if all(name in complete for name in derivation.needs) else None
        quantity = None if ask.answer.formula else quantity
    except SymcommError as error:
        key = "strategy" if isinstance(error, StrategyError) else "given" if isinstance(error, ValuesError) else "ask"
        error.span = ask.section.written_at(error.span) or error.span
        for old, new, span in ask.names:
            if {f"'{old}'", f"'{new}'"} & {*re.findall(r"'[^']*'", error.message)}:
                raise error.at(span) from None
        where = ask.section.blamed(error.message) or ask.section.span_of(key if key in ask.section else "ask")
        raise error.at(where) from None
    stated = used(derivation, known, [item.name for item in ask.given])
    return Answer(ask.label, derivation, stated, quantity, ask.span, ask.quantity, points=ask.points,
                  options=options_of(ask, complete))  # fmt: skip


def _with_others(
    problem: Problem, ask: Ask, model: Model | None, extra: tuple[tuple[str, str], ...], answer: Answer
) -> Answer:  # fmt: skip
    """The answer with what it would be under other conventions."""
    values = _numbers(known_of(problem, ask))

    def again(accounting: Accounting) -> Derivation:
        return derive(ask.sheet or ask.quantity, model or no_model(problem.notation), dict(ask.options), accounting,
                      values, ())  # fmt: skip

    return replace(answer, others=others(answer.derivation, values, again))


def picture_of(
    problem: Problem, figure: Figure, model: Model | None, extra: tuple[tuple[str, str], ...] = ()
) -> Picture:
    """One figure of a problem, whose model was loaded."""
    block = problem.models.get(figure.model)
    try:
        known = merge(block.values if block else problem.values, figure.given)
        chosen = accounting_of(problem.conventions, figure.conventions, extra)
        named = {name.strip(): name.strip() for name in str(dict(figure.options).get("models", "")).split(",")}
        unknown = next((name for name in named if name and name not in problem.models), "")
        if unknown:
            raise ValuesError(f"no model is called '{unknown[:60]}'", hint=nearest(unknown, [*problem.models]))
        several = {name: load_block(problem.models[name]) for name in named if name}
        drawn, says = draw(figure, model or no_model(problem.notation), chosen, known, several)
    except SymcommError as error:
        words = re.findall(r"'(\w+)'|\ba (forward|backward) time\b", error.message)
        word = next((w for pair in words for w in pair if w in figure.section), "figure")
        raise error.at(figure.section.blamed(error.message) or figure.section.span_of(word)) from None
    span = figure.section.span_of("caption") if figure.caption else figure.span  # of its Markdown
    return Picture(drawn, figure.caption, says, figure.paper, span)


def used(derivation: Derivation, known: Iterable[Known], stated: Iterable[str] = ()) -> tuple[Given, ...]:
    """The given values that an answer depends on, or that its question ``stated``, in the order they were given."""
    wanted = {symbol.name for symbol in derivation.expr.free_symbols} | {*stated}
    found = {item.name: item.quantity for item in known if item.name in wanted}
    for name, value in derivation.given:
        if name in wanted:
            found.setdefault(name, Quantity(value, derivation.symbol_unit(name)))
    return tuple(Given(name, derivation.notation.meaning(name), quantity) for name, quantity in found.items())
