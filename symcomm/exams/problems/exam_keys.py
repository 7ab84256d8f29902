"""The keys of an exam's questions: bounds on answers, options to choose from, points and credit."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from types import MappingProxyType

from symcomm.core.blocks import Scalar, Section, Value
from symcomm.core.errors import DocumentError, Span
from symcomm.core.keys import (
    COUNT,
    MANY,
    QUANTITY,
    TEXT,
    WORD,
    YES,
    Sort,
    block,
    blocks,
    keyed,
    mapping_of,
    read_keys,
)
from symcomm.core.quantities.declared import Option
from symcomm.core.records import dataclass, replace
from symcomm.core.units import Quantity

CHOICES_LIMIT = 10  # options of one question
# The share of the points of an answer that is right under another convention, or made by a known mistake.
CREDIT: Mapping[str, Fraction] = MappingProxyType({"other_convention": Fraction(1, 2), "mistake": Fraction(1, 2)})

Follow = tuple[str | Option, str, Span]  # a given symbol or an option, the id of an earlier answer, and where it stands
Credit = tuple[tuple[str, Fraction], ...]


# -- kinds of values ----------------------------------------------------------------------------------------


def _share(value: Value | None, name: str, most: int = 1) -> Fraction:
    text = value.text.strip() if isinstance(value, Scalar) else ""
    if not re.fullmatch(r"\d{1,6}(\.\d{1,6}|/[1-9]\d{0,5})?", text) or not 0 <= Fraction(text) <= most:
        span = value.span if value is not None else None
        raise DocumentError(f"'{name[:60]}' is a number from 0 to {most}, not '{text[:40]}'", span)
    return Fraction(text)


def _credit(section: Section, name: str) -> Credit:
    """The share of its points that a wrong answer earns: one number for all, or one for each mistake."""
    value = section.get(name)
    if isinstance(value, Scalar):
        return tuple(dict.fromkeys(CREDIT, _share(value, name)).items())
    if not isinstance(value, Section):
        raise (value or section).wrong_type(name, "a share such as 0.5, or one for each mistake")
    return tuple((key.text.strip(), _share(item, key.text)) for key, item in value.entries)


def _id(section: Section, name: str) -> str:
    said = section.text(name)
    if said and not re.fullmatch(r"[\w][\w.\-]{0,39}", said):
        raise section.error(name, f"'{said[:60]}' is no id", "letters, digits, points and hyphens")
    return said


def _choices(section: Section, name: str) -> int:
    many = section.count(name) or 0
    if not 2 <= many <= CHOICES_LIMIT:
        raise section.error(name, f"a question has 2 to {CHOICES_LIMIT} choices")
    return many


def _room(section: Section, name: str) -> tuple[str, int]:
    """Room to work in: ``6 lines``, ``40 mm`` (left blank), ``40 mm box``, ``6 lines blank``."""
    said = section.text(name)
    found = re.fullmatch(r"([1-9]\d{0,2})\s*(lines?|mm)(?:\s+(lines|box|blank))?", said)
    height = int(found[1]) * (1 if found[2] == "mm" else _LINE) if found else 0
    if found is None or height > _PAGE:
        hint = f"6 lines, 40 mm, 40 mm box, 40 mm lines, 6 lines blank; at most {_PAGE} mm, a page"
        raise section.error(name, f"'{said[:40]}' is no room to work in", hint)
    return found[3] or ("blank" if found[2] == "mm" else "lines"), height


_LINE, _PAGE = 8, 240  # millimetres of a line, and of what fits on a page
_ROOM: Sort[tuple[str, int] | None] = Sort(_room, WORD.schema)
_ID = Sort(_id, WORD.schema, "")
_CHOICES = Sort(_choices, {"type": "integer", "minimum": 2, "maximum": CHOICES_LIMIT}, 0)
_A_SHARE = {"type": ["number", "string"]}
_CREDIT: Sort[Credit] = Sort(_credit, {"anyOf": [_A_SHARE, mapping_of(_A_SHARE)]}, ())
_POINTS = Sort(lambda section, name: _share(section.get(name), name, most=10_000), _A_SHARE)


# -- blocks -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bounds:
    """The bounds of a drawn question's answer."""

    at_least: Quantity | None = keyed("the least it may be", QUANTITY)
    at_most: Quantity | None = keyed("the most it may be", QUANTITY)
    digits: int | None = keyed("its significant digits at most", COUNT)
    steps: int | None = keyed("the steps of its derivation at most", COUNT)
    span: Span | None = None


def read_bounds(section: Section) -> Bounds:
    """The bounds that ``bounds`` gives an answer."""
    made = read_keys(Bounds, section)
    low, high = made.at_least, made.at_most
    if low is not None and high is not None and low.unit == high.unit and low.value > high.value:
        raise section.error("at_least", "no answer is within these bounds")
    return made


@dataclass(frozen=True)
class RubricLine:
    """The points of one step."""

    step: str = keyed("its name in the derivation", TEXT, needed=True)
    points: Fraction = keyed("its points", _POINTS, needed=True)
    says: str = keyed("what they are for", TEXT)
    span: Span | None = None


_LINES = blocks(
    RubricLine, "a line of the rubric", "a list of steps with their points", "a list of {step: P, points: 4}"
)


def _rubric(section: Section, name: str) -> tuple[RubricLine, ...]:
    made = _LINES.read(section, name)
    total, whole = sum((line.points for line in made), Fraction(0)), section.count("points")
    if whole is not None and total != whole:
        raise section.error(name, f"the rubric has {total} points, but the question {whole}")
    return made


_RUBRIC = replace(_LINES, read=_rubric)


@dataclass(frozen=True)
class ExamKeys:
    """The keys of a question that is a part of an exam.

    ``choices`` is the number of options it is asked with (0: none). ``follows`` are given symbols and options whose
    numbers are the answers of earlier questions, by their ids.
    """

    id: str = keyed("what answer sheets and references call it; else the number or the words of its heading", _ID)
    choices: int = keyed("ask with so many options; the wrong ones come of mistakes and other conventions", _CHOICES)
    bounds: Bounds = keyed("what the answer of a drawn question has to keep to", block(Bounds, "bounds", read_bounds))
    rubric: tuple[RubricLine, ...] = keyed("the points of steps: `[{step: n, points: 4, says: parameters}]`", _RUBRIC)
    credit: Credit = keyed("the share of its points that a wrong answer earns, for all or for each mistake", _CREDIT)
    room: tuple[str, int] | None = keyed("room to work in on the paper: `6 lines`, `40 mm`, `40 mm box`", _ROOM)
    follows: tuple[Follow, ...] = ()


@dataclass(frozen=True)
class ExamSettings:
    """How papers are made: how many of the questions each has (0: all), whether their order differs, the credit."""

    questions: int = keyed("how many of the questions each paper has; all unless told", MANY)
    shuffle: bool = keyed("whether papers have them in different orders", YES)
    alike: bool = keyed("whether two students may have the same paper", YES)
    credit: Credit = keyed("the share of its points that a wrong answer earns, in all questions", _CREDIT)
    room: tuple[str, int] | None = keyed("room to work in below each question, where it says no other", _ROOM)
    points_box: bool = keyed("whether the paper has boxes for the points of its questions and for who grades", YES)
