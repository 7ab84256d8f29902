"""What a document says of its questions as an exam: bounds on answers, options to choose from, points and credit."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from fractions import Fraction
from types import MappingProxyType

from symcomm.core.errors import DocumentError, Span
from symcomm.core.quantities.declared import Option
from symcomm.core.records import dataclass
from symcomm.core.units import Quantity
from symcomm.exams.problems import blocks
from symcomm.exams.problems.blocks import Listing, Scalar, Section, Value

ASK_EXAM_KEYS = ("id", "choices", "bounds", "rubric", "credit")
BOUND_KEYS = ("at_least", "at_most", "digits", "steps")
EXAM_KEYS = ("questions", "shuffle", "alike", "credit")
CHOICES_LIMIT = 10  # options of one question
# The share of the points of an answer that is right under another convention, or made by a known mistake.
CREDIT: Mapping[str, Fraction] = MappingProxyType({"other_convention": Fraction(1, 2), "mistake": Fraction(1, 2)})


Follow = tuple[str | Option, str, Span]  # a given symbol or an option, the id of an earlier answer, and where it stands


@dataclass(frozen=True)
class Bounds:
    """What a drawn question's answer has to keep to: its size, its significant digits, the steps that lead to it."""

    at_least: Quantity | None = None
    at_most: Quantity | None = None
    digits: int | None = None
    steps: int | None = None
    span: Span | None = None


@dataclass(frozen=True)
class RubricLine:
    """The points of one step: its name in the derivation, the points, and what they are for."""

    step: str
    points: Fraction
    says: str
    span: Span


@dataclass(frozen=True)
class ExamKeys:
    """What a question says of itself as a part of an exam.

    ``choices`` is the number of options it is asked with (0: none). ``follows`` are given symbols and options whose
    numbers are the answers of earlier questions, by their ids.
    """

    id: str = ""
    choices: int = 0
    bounds: Bounds = field(default_factory=Bounds)
    rubric: tuple[RubricLine, ...] = ()
    credit: tuple[tuple[str, Fraction], ...] = ()
    follows: tuple[Follow, ...] = ()


@dataclass(frozen=True)
class ExamSettings:
    """How papers are made: how many of the questions each has (0: all), whether their order differs, the credit.

    ``alike`` says that two students may have the same paper.
    """

    questions: int = 0
    shuffle: bool = False
    alike: bool = False
    credit: tuple[tuple[str, Fraction], ...] = ()


def read_settings(head: Section) -> ExamSettings:
    """The ``exam`` key of the front matter."""
    section = head.section("exam", "exam")
    if section is None:
        return ExamSettings()
    section.only(EXAM_KEYS)
    return ExamSettings(
        section.count("questions") or 0, section.truth("shuffle"), section.truth("alike"), read_credit(section)
    )


def read_exam_keys(section: Section, follows: tuple[Follow, ...] = ()) -> ExamKeys:
    """The keys of one question."""
    name = section.text("id")
    if name and not re.fullmatch(r"[\w][\w.\-]{0,39}", name):
        raise DocumentError(f"'{name[:60]}' is no id", section.span_of("id"), "letters, digits, points and hyphens")
    choices = section.count("choices") or 0
    if "choices" in section and not 2 <= choices <= CHOICES_LIMIT:
        raise DocumentError(f"a question has 2 to {CHOICES_LIMIT} choices", section.span_of("choices"))
    found = section.section("bounds", "bounds")
    bounds = Bounds() if found is None else read_bounds(found)
    return ExamKeys(name, choices, bounds, _rubric(section), read_credit(section), follows)


def read_bounds(section: Section) -> Bounds:
    """What ``bounds`` says of an answer."""
    section.only(BOUND_KEYS)
    low, high = section.quantity("at_least"), section.quantity("at_most")
    if low is not None and high is not None and low.unit == high.unit and low.value > high.value:
        raise DocumentError("no answer is within these bounds", section.span_of("at_least"))
    return Bounds(low, high, section.count("digits"), section.count("steps"), section.span)


def _rubric(section: Section) -> tuple[RubricLine, ...]:
    value = section.get("rubric")
    if value is None:
        return ()
    if not isinstance(value, Listing):
        raise blocks.wrong_type("rubric", "a list of steps with their points", value)
    made = []
    for item in value.items:
        if not isinstance(item, Section):
            raise blocks.wrong_type("rubric", "a list of {step: P, points: 4}", item)
        line = Section(item.entries, item.span, "a line of the rubric")
        line.only(("step", "points", "says"))
        line.need("step")
        line.need("points")
        points = _share(line.get("points"), "points", most=10_000)
        made.append(RubricLine(line.text("step"), points, line.text("says"), line.span_of("step")))
    total = sum((line.points for line in made), Fraction(0))
    whole = section.count("points")
    if whole is not None and total != whole:
        raise DocumentError(f"the rubric has {total} points, but the question {whole}", section.span_of("rubric"))
    return tuple(made)


def read_credit(section: Section) -> tuple[tuple[str, Fraction], ...]:
    """The share of its points that a wrong answer earns: one number for all, or one for each mistake."""
    value = section.get("credit")
    if value is None:
        return ()
    if isinstance(value, Scalar):
        share = _share(value, "credit")
        return tuple((name, share) for name in CREDIT)
    if not isinstance(value, Section):
        raise blocks.wrong_type("credit", "a share such as 0.5, or one for each mistake", value)
    return tuple((key.text.strip(), _share(item, key.text)) for key, item in value.entries)


def _share(value: Value | None, name: str, most: int = 1) -> Fraction:
    text = value.text.strip() if isinstance(value, Scalar) else ""
    if not re.fullmatch(r"\d{1,6}(\.\d{1,6}|/[1-9]\d{0,5})?", text) or not 0 <= Fraction(text) <= most:
        span = value.span if value is not None else None
        raise DocumentError(f"'{name[:60]}' is a number from 0 to {most}, not '{text[:40]}'", span)
    return Fraction(text)
