"""The keys of a document on students' answers: other names, the unit of a number, what is told apart."""

from __future__ import annotations

from symcomm.core.blocks import Scalar, Section
from symcomm.core.errors import DocumentError, Span, SymcommError
from symcomm.core.keys import TEXT, TEXTS, UNIT, YES, Sort, block, keyed, one_of, or_list
from symcomm.core.records import dataclass
from symcomm.exams.problems.keys import convention

PREFIXES = "unit.GiB"  # the convention that GB may be 2^30 bytes, where a question leaves that open
Choices = tuple[tuple[tuple[str, str], ...], ...]


def _spellings(section: Section, name: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    found = section.section(name, name)
    return tuple((one, found.texts(one)) for one in found.keys) if found else ()


def _conventions(section: Section, name: str) -> Choices:
    """Other choices: each a convention's name, or fields with their choices that are made together."""
    made = []
    for item in section.items(name):
        texts = {item: item.text} if isinstance(item, Scalar) else {}
        if isinstance(item, Section):
            texts = {one: f"{field.text}={one.text}" for field, one in item.entries if isinstance(one, Scalar)}
        if not texts:
            raise item.wrong_type(name, "names of conventions")
        chosen = []
        for one, text in texts.items():
            try:
                chosen.append(("unit", "GiB") if text == PREFIXES else convention(text))
            except SymcommError as error:
                raise DocumentError(error.message, one.span, error.hint) from None
        made.append(tuple(chosen))
    return tuple(made)


_SPELLINGS = Sort(_spellings, {"type": "object"}, ())
_CONVENTIONS: Sort[Choices] = Sort(_conventions, or_list({"anyOf": [TEXT.schema, {"type": "object"}]}))


@dataclass(frozen=True)
class AnswerKeys:
    """The ``answer`` key of a question; of ``symbols``, ``conventions`` and ``mistakes`` None means the default."""

    left: str = keyed("what may stand before `=`", TEXT)
    unit: str = keyed("the unit of a number without one, which the paper names: `GiB`", UNIT, name="in")
    step: str = keyed("the step of the derivation that is asked for, where it is not the last", TEXT)
    symbols: tuple[str, ...] | None = keyed("those an answer may use; else all there are", TEXTS, default=None)
    names: tuple[tuple[str, tuple[str, ...]], ...] = keyed("other spellings of symbols, for this question", _SPELLINGS)
    prefixes: str = keyed(
        "`open` where the prompt does not tell GB from GiB", one_of(("open", "stated")), default="stated"
    )
    conventions: Choices | None = keyed("those it leaves open; default: all that change its number", _CONVENTIONS)
    mistakes: tuple[str, ...] | None = keyed("those to tell apart; default: all that change it", TEXTS, default=None)
    ruled_out: Choices = keyed("conventions the prompt excludes: their answers are mistakes", _CONVENTIONS, default=())
    formula: bool = keyed("`yes`: a formula is asked for, also where all numbers are known; or `answer: formula`", YES)
    decimal_comma: bool = keyed("`yes` where a comma in a number is a decimal comma", YES)
    span: Span | None = None


def _answer(section: Section, name: str) -> AnswerKeys:
    said = section.get(name)
    if isinstance(said, Scalar) and said.text.strip() == "formula":
        return AnswerKeys(formula=True)
    if isinstance(said, Scalar):
        raise section.error(name, f"'{said.text[:40]}' says nothing of an answer", "`answer: formula`, or keys")
    return _ANSWER_BLOCK.read(section, name)


_ANSWER_BLOCK = block(AnswerKeys, "answer")
ANSWER = Sort(_answer, {"anyOf": [{"const": "formula"}, _ANSWER_BLOCK.schema]}, AnswerKeys())


def _change(section: Section, name: str) -> Section:
    found = section.section(name, "this change")
    assert found is not None
    return found


@dataclass(frozen=True)
class SaidMistake:
    """A mistake that a teacher describes: its name, one sentence, and the change it is."""

    name: str = keyed("what it is called", TEXT, needed=True)
    says: str = keyed("one sentence, which a student is told", TEXT, needed=True)
    change: Section = keyed("what it changes in an answer", Sort(_change, {"type": "object"}), needed=True)
    everywhere: bool = keyed("`yes`: it may be made in all questions; else in those below the same heading", YES)
    below: Span | None = None  # the heading; None where it is the title, or where there is none
