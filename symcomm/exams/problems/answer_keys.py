"""What a document says of the answers students give: other names, the unit of a number, what is told apart."""

from __future__ import annotations

from symcomm.core.errors import DocumentError, Span, SymcommError
from symcomm.core.records import dataclass
from symcomm.exams.problems import blocks
from symcomm.exams.problems.blocks import Listing, Scalar, Section
from symcomm.exams.problems.keys import convention

KEYS = ("left", "in", "step", "symbols", "names", "prefixes", "conventions", "mistakes", "ruled_out", "decimal_comma")
MISTAKE_KEYS = ("name", "says", "change")
PREFIXES = "unit.GiB"  # the convention that GB may be 2^30 bytes, where a question leaves that open


@dataclass(frozen=True)
class AnswerKeys:
    """The ``answer`` key of a question.

    ``left`` is what may stand before ``=``; ``unit`` is that of a number without one (as it is written, ``GiB``);
    ``step`` names the step that is asked for; ``symbols`` are those an answer may use (None: all of the question) and
    ``names`` their other spellings. ``conventions`` and ``mistakes`` are those to tell apart (None: all that change
    something), and what is ``ruled_out`` by the prompt is wrong under a convention's name. ``open_prefixes`` says that
    the prompt does not tell GB from GiB.
    """

    left: str = ""
    unit: str = ""
    step: str = ""
    symbols: tuple[str, ...] | None = None
    names: tuple[tuple[str, tuple[str, ...]], ...] = ()
    open_prefixes: bool = False
    conventions: tuple[tuple[tuple[str, str], ...], ...] | None = None
    mistakes: tuple[str, ...] | None = None
    ruled_out: tuple[tuple[tuple[str, str], ...], ...] = ()
    decimal_comma: bool = False
    span: Span | None = None


@dataclass(frozen=True)
class SaidMistake:
    """A mistake that a teacher describes: its name, one sentence, and the change it is."""

    name: str
    says: str
    change: Section
    span: Span


def read_answer_keys(section: Section) -> AnswerKeys:
    """What ``answer`` says in a question."""
    said = section.section("answer", "answer")
    if said is None:
        return AnswerKeys()
    said.only(KEYS)
    names = said.section("names", "names")
    prefixes = said.text("prefixes", "stated")
    if prefixes not in ("open", "stated"):
        raise DocumentError(f"'prefixes' is open or stated, not '{prefixes[:40]}'", said.span_of("prefixes"))
    unit = said.text("in")
    if unit:
        _check_unit(unit, said.span_of("in"))
    return AnswerKeys(
        said.text("left"), unit, said.text("step"), said.texts("symbols") if "symbols" in said else None,
        tuple((key.text, names.texts(key.text)) for key, _ in names.entries) if names else (), prefixes == "open",
        _conventions(said, "conventions") if "conventions" in said else None,
        said.texts("mistakes") if "mistakes" in said else None, _conventions(said, "ruled_out") or (),
        said.truth("decimal_comma"), said.span,
    )  # fmt: skip


def _check_unit(text: str, span: Span) -> None:
    from symcomm.core.units import Quantity

    try:
        Quantity.parse(f"1 {text}")
    except SymcommError as error:
        raise DocumentError(error.message, span, error.hint) from None


def _conventions(said: Section, key: str) -> tuple[tuple[tuple[str, str], ...], ...]:
    """Other choices: each a convention's name, or fields with their choices that are made together."""
    value = said.get(key)
    made = []
    for item in value.items if isinstance(value, Listing) else () if value is None else (value,):
        texts = {item: item.text} if isinstance(item, Scalar) else {}
        if isinstance(item, Section):
            texts = {one: f"{name.text}={one.text}" for name, one in item.entries if isinstance(one, Scalar)}
        if not texts:
            raise blocks.wrong_type(key, "names of conventions", item)
        chosen = []
        for one, text in texts.items():
            try:
                chosen.append(("unit", "GiB") if text == PREFIXES else convention(text))
            except SymcommError as error:
                raise DocumentError(error.message, one.span, error.hint) from None
        made.append(tuple(chosen))
    return tuple(made)


def read_mistake(section: Section) -> SaidMistake:
    """A ``mistake`` block: ``{name, says, change}``."""
    said = section.section("mistake", "this mistake")
    if said is None:
        raise DocumentError("a mistake has a name, a sentence and a change", section.span)
    said.only(MISTAKE_KEYS)
    for key in MISTAKE_KEYS:
        said.need(key)
    change = said.section("change", "this change")
    assert change is not None
    return SaidMistake(said.text("name"), said.text("says"), change, said.span)
