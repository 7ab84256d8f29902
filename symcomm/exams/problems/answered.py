"""Words that carry numbers: answers by reference in prose, and numbers typed there that are not those given."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from symcomm.core.blocks import Scalar
from symcomm.core.derivation import Derivation
from symcomm.core.derivation.chosen import chosen
from symcomm.core.errors import DocumentError, Span, nearest
from symcomm.core.model import Model
from symcomm.core.notation import plain_name
from symcomm.core.printing import short
from symcomm.core.records import replace
from symcomm.core.units import ONE, Quantity, Unit
from symcomm.documents.render.document import Answer, Block, Heading, Only, Prose
from symcomm.exams.problems.figures import Figure
from symcomm.exams.problems.problem import Ask, ModelBlock, Problem
from symcomm.exams.problems.references import NamedValue, Reference, fill, references

_MATHS = re.compile(r"(?<!\\)\$([^$\n]+)\$")
_EQUATION = re.compile(r"\s*([A-Za-z\\][\w\\{}^]*?)\s*=\s*(\d[\d\\, ]*)\s*")


def with_answers(problem: Problem, made: Sequence[Block]) -> tuple[list[Block], tuple[Span, ...]]:
    r"""The blocks with what ``{{ answer:2.1 in GiB }}`` stands for, and where the paper would tell an answer by it.

    Raises ``DocumentError`` for an answer that is not there or has no number.
    """
    answers = dict(zip(problem.ids, (b for b in made if isinstance(b, Answer)), strict=False))
    leaks: list[Span] = []
    found: list[Block] = []
    hidden = False

    def lookup(reference: Reference) -> NamedValue | None:
        if reference.topic != "answer":
            if reference.topic:
                raise DocumentError(
                    f"nothing is referred to by '{reference.topic[:20]}:'", reference.span, "answer:2.1"
                )
            return None
        if reference.name not in answers:
            hint = nearest(reference.name, [*answers]) if answers else "no question stands in this document"
            raise DocumentError(f"there is no answer '{reference.name[:40]}'", reference.span, hint)
        quantity = answers[reference.name].quantity
        if quantity is None:
            raise DocumentError(f"the answer {reference.name} has no number", reference.span, "give all its values")
        return NamedValue.of(quantity, short(quantity))

    for block in made:
        if isinstance(block, Only):
            hidden = block.name in ("solution", "staff")
        elif isinstance(block, (Prose, Heading)) and "{{" in block.markdown:
            if not hidden:
                leaks += [r.span for r in references(block.markdown, block.span) if r.topic == "answer"]
            block = replace(block, markdown=fill(block.markdown, block.span, lookup))
        found.append(block)
    return found, tuple(leaks)


def contradictions(problem: Problem, blocks: Sequence[Block]) -> Iterator[str]:
    """Values in prose that a given symbol has not: ``$D = 4069$`` where D is 4096."""
    known: dict[str, set[Fraction]] = {}
    groups = [problem.values, *(b.values for b in problem.items if isinstance(b, ModelBlock)),
              *(ask.given for ask in problem.asks)]  # fmt: skip
    for item in (one for group in groups for one in group):
        known.setdefault(item.name, set()).add(item.quantity.value)
    for block in blocks:
        if not isinstance(block, (Prose, Heading)):
            continue
        for maths in _MATHS.finditer(block.markdown):
            equation = _EQUATION.fullmatch(maths[1])
            name = plain_name(equation[1]) if equation else ""
            if equation is None or name not in known:
                continue
            said = Fraction(int(re.sub(r"\D", "", equation[2])))
            if said not in known[name]:
                line = block.span.line + block.markdown.count("\n", 0, maths.start())
                values = " or ".join(str(v) for v in sorted(known[name]))
                yield f"line {line} says {name} = {said}, but {name} is {values}; {{{{ {name} }}}} stands for its value"


def unanswered(blocks: Sequence[Block]) -> Iterator[str]:
    """Headings with points below which nothing is asked, and no solution is written either."""
    open_ones: list[Heading] = []
    found: dict[Heading, bool] = {}
    for block in blocks:
        if isinstance(block, Heading):
            open_ones = [*(one for one in open_ones if one.level < block.level), block]
            found[block] = False
        elif isinstance(block, Answer) or (isinstance(block, Only) and block.name in ("solution", "staff")):
            found |= dict.fromkeys(open_ones, True)
    for heading, has_answer in found.items():
        if heading.points and not has_answer:
            yield (f"line {heading.span.line}: '{heading.markdown[:60]}' has {heading.points} points, but no question "
                   "below: a ```symcomm block with ask: derives an answer, :::solution holds one in words")  # fmt: skip


def unused_names(problem: Problem, answers: Sequence[Answer]) -> None:
    """Raises ``DocumentError`` for an entry of the document's ``names`` that no question has a symbol for."""
    known = frozenset(name for answer in answers for name in answer.derivation.own_names) if problem.names else ()
    for old, new, span in problem.names:
        if new not in known:
            raise DocumentError(f"no question has a symbol '{old}' to call '{new}'", span, nearest(old, sorted(known)))


def unused_values(problem: Problem, answers: Sequence[Answer], models: Iterable[Model]) -> Iterator[str]:
    """Values of a model that no question can put in: ``t: 384`` beside a table that writes T."""
    known = {name for answer in answers for name in answer.derivation.valued_names}
    known |= {r.name for b in problem.items if isinstance(b, (Prose, Heading)) for r in references(b.markdown, b.span)}
    known |= {s.name for model in models for axis in model.graph.axes.values() for s in axis.size.free_symbols}
    asked = {ask.model for ask in problem.asks}
    blocks = [one for one in problem.items if isinstance(one, ModelBlock) and one.name in asked]
    given = {item.name for one in blocks for item in one.values}
    lacking = sorted({name for answer in answers for name in answer.derivation.needs} - given)
    for item in (one for block in blocks for one in block.values if one.name not in known | {block.repeat}):
        told = f"; no value is given for {', '.join(lacking)}" if lacking else ""
        yield f"line {item.span.line}: no question has a symbol {item.name}, for which a value is given{told}"


def without_units(problem: Problem, answers: Sequence[Answer]) -> Iterator[str]:
    """Numbers given without a unit for a symbol that has one: ``o: 20`` may have meant microseconds."""
    for ask, answer in zip(problem.asks, answers, strict=False):
        for item in ask.given:
            unit = answer.derivation.symbol_unit(item.name)
            if item.quantity.unit == ONE and item.quantity.value and unit != ONE and not unit.is_count:
                read = Quantity(item.quantity.value, unit).reading
                yield f"line {item.span.line}: {item.name} is given without a unit and read as {read}"


def clashes(answers: Sequence[Answer]) -> Iterator[str]:
    """Names that two answers show with two meanings: ``b`` is a batch here and a bandwidth there."""
    first: dict[str, tuple[_Shown, int]] = {}
    told: set[str] = set()
    for answer in answers:
        for name, shown in _shown(answer.derivation):
            before, line = first.setdefault(name, (shown, answer.span.line))
            if name.rstrip("'") not in told and shown.clashes(before):
                told.add(name.rstrip("'"))
                yield (f"line {answer.span.line}: {name} is {shown.told} here, but {before.told} in line {line}; "
                       f"names: {{{name}: ...}} in one question renames it there")  # fmt: skip


@dataclass(frozen=True)
class _Shown:
    """What a name is in an answer: a symbol with its meaning, or a step, in a unit."""

    meaning: str
    unit: Unit
    step: bool

    @property
    def told(self) -> str:
        return f"'{self.meaning}'" if self.meaning else f"in {self.unit}" if self.unit != ONE else "a number"

    def clashes(self, other: _Shown) -> bool:
        if self.step == other.step and (self.step or not self.meaning or not other.meaning):
            return self.unit != other.unit and not (self.unit.is_count and other.unit.is_count)
        if self.step == other.step:
            return self.meaning.lower() != other.meaning.lower()
        symbol = other if self.step else self
        return self.unit != other.unit and bool(symbol.meaning)


def _shown(derivation: Derivation) -> Iterator[tuple[str, _Shown]]:
    """The names on the page of an answer."""
    units = {step.name: step.unit for step in derivation.steps}
    lines = chosen(derivation)
    for name in dict.fromkeys(n for line in lines for n in (line.name, *sorted(line.names))):
        unit = units.get(name) or derivation.symbol_unit(name)
        yield name, _Shown("" if name in units else derivation.notation.meaning(name), unit, name in units)


# A sentence that asks, or tells a reader to do something, in the languages that pages have.
_ASKS = re.compile(
    r"[?？]|(?:^|[.:;,]\s+|\band\s+)(?:Calculate|Compute|Derive|Determine|Draw|Estimate|Explain|Find|Give|Prove|Show|Sketch"
    r"|State|Verify|Write|Berechnen?|Bestimmen?|Erklären?|Geben|Gib|Leiten?|Schreiben?|Skizzieren?|Zeichnen?|Zeigen?)\b"
    r"|[求算]|给出|证明|推导|写出|说明",
    re.IGNORECASE | re.MULTILINE,
)


def unasked(blocks: Sequence[Block]) -> list[Block]:
    """The blocks, with those answers marked for which no sentence of the paper asks.

    A sentence asks for all that stands below it, up to the next heading, or to words behind an answer.
    """
    made: list[Block] = []
    asks = hidden = answered = False
    for block in blocks:
        match block:
            case Only(name):
                hidden = bool(name) and name != "paper"
            case Heading(_, markdown):
                asks, answered = bool(_ASKS.search(markdown)), False
            case Prose(markdown) if not hidden:
                asks, answered = bool(_ASKS.search(markdown)) or (asks and not answered), False
            case Answer():
                block, answered = replace(block, unasked=not asks), True
        made.append(block)
    return made


def options_of(ask: Ask, known: Mapping[str, Fraction]) -> tuple[tuple[str, str], ...]:
    """The options of a question as its author wrote them, and those that hold unless told."""
    from symcomm.core.quantities import QUANTITIES

    given = dict(ask.options)
    found: list[tuple[str, str]] = []
    for option in (ask.sheet or QUANTITIES[ask.quantity]).options:
        value, written = given.get(option.name, option.default), ask.section.get(option.name)
        if option.kind == "strategy" and value is not None:
            found.append((option.name, "; ".join(value.parts(known))))
        elif isinstance(written, Scalar) or isinstance(value, str):
            text = written.text.strip() if isinstance(written, Scalar) else value
            text = text.upper() if option.kind == "dtype" and "(" not in text else text
            found.append((option.name, f"`{text}`" if option.kind == "size" and text.isidentifier() else text))
    return tuple((name, text) for name, text in found if text and len(text) < 60)


def written(problem: Problem) -> tuple[str, ...]:
    """The texts of the blocks of a document and of its front matter, whose numbers are no answers."""
    sections = [*(ask.section for ask in problem.asks), *(model.section for model in problem.models.values())]
    sections += [item.section for item in problem.items if isinstance(item, Figure)]
    values = [str(known.quantity) for known in problem.values]
    told = (value for section in sections for key, value in section.entries if key.text not in ("printed", "answer"))
    return (*values, *problem.tells, *(one.text for value in told for one in value.scalars()))
