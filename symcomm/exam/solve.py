"""Solves a problem document: every question derived, evaluated, and put between the author's own words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from symcomm.accounting import Accounting
from symcomm.errors import DocumentError, SymcommError, ValuesError, nearest
from symcomm.exam.keys import Known, merge
from symcomm.exam.problem import Ask, ModelBlock, Problem
from symcomm.render.document import Answer, Block, Document, Given

if TYPE_CHECKING:
    from symcomm.derivation import Derivation
    from symcomm.model import Model

Progress = Callable[[int, int, str], None]


def load_model(problem: Problem, name: str = "") -> Model:
    """One model of a problem: by its name, or the last one. A file without blocks has the model of its last table."""
    if not problem.models:
        if not problem.tables:
            raise DocumentError(
                f"{problem.file} has no layer table", hint="its columns are Computation, Input and Output"
            )
        from symcomm import model

        return model.load(
            problem.tables[-1], file=problem.file, notation=problem.notation, values=_numbers(problem.values)
        )
    if name and name not in problem.models:
        raise DocumentError(f"{problem.file} has no model '{name[:60]}'", hint=nearest(name, [*problem.models]))
    return _load(problem.models[name or [*problem.models][-1]])


def _numbers(known: Iterable[Known]) -> dict[str, Any]:
    return {item.name: item.quantity.value for item in known}


def _load(block: ModelBlock) -> Model:
    from symcomm import model

    section = block.section
    try:
        made = model.load(
            block.table,
            repeat=block.repeat,
            batch=block.batch,
            dtype=block.dtype,
            values=_numbers(block.values),
            inputs=block.inputs,
            weights=block.weights,
            notation=block.notation,
        )
    except ValuesError as error:
        raise error.at(section.span_of("values" if "values" in section else "model")) from None
    except SymcommError as error:
        key = next(
            (k for k in ("dtype", "repeat", "batch") if k in section and section.text(k) in error.message), "model"
        )
        raise error.at(section.span_of(key)) from None
    return replace(made, name=block.name)


def accounting_of(*layers: Iterable[tuple[str, str]]) -> Accounting:
    """The accounting of several layers of choices; a later one comes before an earlier one."""
    return Accounting.of(**{name: choice for layer in layers for name, choice in layer})


def solve(problem: Problem, progress: Progress | None = None, accounting: Iterable[tuple[str, str]] = ()) -> Document:
    """The write-up of a problem: every question derived, and evaluated where the numbers are known.

    ``accounting`` are choices laid over those of the file. ``progress`` is called with the number of questions
    answered, their total, and the next one's name.
    """
    extra = tuple(accounting)
    models: dict[str, Model] = {}
    made: list[Block] = []
    total, done = len(problem.asks), 0
    for item in problem.items:
        if isinstance(item, ModelBlock):
            models[item.name] = _load(item)
        elif isinstance(item, Ask):
            if progress:
                progress(done, total, item.label or item.quantity)
            made.append(_answer(problem, item, models.get(item.model), extra))
            done += 1
        else:
            made.append(item)
    if progress:
        progress(done, total, "")
    return Document(
        problem.title,
        problem.subtitle,
        problem.authors,
        problem.date,
        problem.language,
        problem.file,
        problem.notation,
        tuple(made),
    )


def _answer(problem: Problem, ask: Ask, model: Model | None, extra: tuple[tuple[str, str], ...]) -> Answer:
    block = problem.models.get(ask.model)
    known = merge(block.values if block else problem.values, ask.given)
    chosen = accounting_of(problem.conventions, ask.conventions, extra)
    if model is not None and ask.given:
        model = replace(model, values={**model.values, **_numbers(known)})
    try:
        derivation = derive(ask.quantity, model, dict(ask.options), chosen)
        quantity = None
        values = _numbers(known)
        complete = derivation.relations.complete(dict(derivation.given) | values)
        if all(name in complete for name in derivation.needs):
            quantity = derivation.at(**values)
    except SymcommError as error:
        raise error.at(ask.span) from None
    return Answer(ask.label, derivation, used(derivation, known, block), quantity, ask.span)


def derive(name: str, model: Model | None, options: Mapping[str, Any], accounting: Accounting) -> Derivation:
    """Runs one pass by name; ``accounting`` goes to it where it takes one."""
    from symcomm.passes import PASSES

    wanted = PASSES[name]
    arguments = dict(options)
    if any(option.name == "accounting" for option in wanted.options):
        arguments["accounting"] = accounting
    made: Derivation = wanted.derive(model, **arguments) if wanted.needs_model else wanted.derive(**arguments)
    return made


def used(derivation: Derivation, known: Iterable[Known], block: ModelBlock | None = None) -> tuple[Given, ...]:
    """The given values that an answer depends on, in the order they were given."""
    wanted = {symbol.name for symbol in derivation.expr.free_symbols}
    meaning = (block.notation if block else derivation.notation).meaning
    return tuple(Given(item.name, meaning(item.name), item.quantity) for item in known if item.name in wanted)
