"""The options of a question that is asked with options: the right answer among wrong ones that somebody makes."""

from __future__ import annotations

import re
from fractions import Fraction

from symcomm.core.errors import DocumentError
from symcomm.core.form import Num
from symcomm.core.records import dataclass
from symcomm.core.units import ONE, Quantity, exact_text
from symcomm.documents.render.document import Answer
from symcomm.exams.candidates import Wrong
from symcomm.exams.key import Key
from symcomm.exams.problems.problem import Ask
from symcomm.exams.problems.randomness import Stream


@dataclass(frozen=True)
class OfferedAnswer:
    """One option: its text, its number, and for a wrong one the names of what leads to it, with a sentence each."""

    text: str
    quantity: Quantity
    names: tuple[str, ...] = ()
    says: tuple[str, ...] = ()

    @property
    def right(self) -> bool:
        """Whether it is the answer."""
        return not self.names


class DrawAgainError(DocumentError):
    """A drawn paper that breaks a bound, or has too few wrong answers that differ; another one is drawn."""


_FAR = 100  # times larger or smaller than the right number: what is further off, nobody believes
_SLIPS = (  # where too few mistakes are known that one could believe: a factor that is lost in any calculation
    ("twice", Fraction(2), "This is twice the answer."),
    ("half", Fraction(1, 2), "This is half of the answer."),
    ("ten_times", Fraction(10), "This is ten times the answer."),
    ("a_tenth", Fraction(1, 10), "This is a tenth of the answer."),
)
_EXACT = 10**15  # a whole number below it is written with all of its digits


def choices_of(
    key: Key, answer: Answer, ask: Ask, stream: Stream, letter: int | None = None
) -> tuple[OfferedAnswer, ...]:
    """The options of a question in a random order, one of them right; no two are equal, or read alike.

    The wrong ones are what common mistakes come to at the numbers of the paper, then other conventions and pairs of
    mistakes, then other numbers of the same mistakes and numbers that are further off, then factors that are lost in
    any calculation, at last those that nobody would believe. All are written in the unit of the right one, which stands
    at ``letter`` (from 0 on) where that is told. Raises ``DrawAgainError`` where there are too few.
    """
    right = answer.quantity
    if right is None:
        raise DocumentError("a question without a number has no options", ask.span, "leave choices out")
    values = {**dict(key.given), **key.values}
    unit = ask.answer.unit or _unit_of(right)
    picked: list[OfferedAnswer] = [OfferedAnswer(option_text(right, unit), right)]
    slips = tuple(Wrong((name,), (says,), Num(right.value * times), right.unit) for name, times, says in _SLIPS)
    for wrongs, far, again in (
        (key.mistakes, _FAR, False), (key.conventions, _FAR, False), ((), _FAR, False), (key.mistakes, _FAR**2, True),
        (slips, _FAR, True), (key.mistakes, 0, True),
    ):  # fmt: skip
        for one in stream.shuffled(wrongs or key.candidates.pairs if len(picked) < ask.exam.choices else ()):
            found = one.at(values)
            known = not again and any(one.names == other.names for other in picked)
            if len(picked) < ask.exam.choices and found is not None and not known:
                made = OfferedAnswer(option_text(found, unit), found, one.names, one.says)
                if _is_plausible(one, found, right, far) and not any(_reads_alike(made, other) for other in picked):
                    picked.append(made)
    if len(picked) < ask.exam.choices:
        said = f"{ask.exam.choices} options need {ask.exam.choices - 1} wrong answers, and there are {len(picked) - 1}"
        raise DrawAgainError(said, ask.section.span_of("choices"), "fewer choices")
    if letter is None:
        return stream.shuffled(picked)
    wrong = stream.shuffled(picked[1:])
    return (*wrong[:letter], picked[0], *wrong[letter:])


def _reads_alike(one: OfferedAnswer, other: OfferedAnswer) -> bool:
    """Whether two options could be taken for one another: the same text, or rounded numbers within a hundredth."""
    a, b = one.quantity.value, other.quantity.value
    rounded = a.denominator != 1 or b.denominator != 1 or "." in one.text + other.text
    return one.text == other.text or (rounded and abs(a - b) * 100 < max(a, b))


def _is_plausible(wrong: Wrong, found: Quantity, right: Quantity, far: int) -> bool:
    """Whether somebody could take a wrong number for the right one.

    A share of a whole stays below one, what has a unit is not upside down, a confused prefix is that of the number, and
    the two are within a factor ``far``; where that is 0, every number will do.
    """
    if found.unit != right.unit or found.value <= 0 or right.value <= 0 or not far:
        return not far and found.unit == right.unit and found.value > 0
    ratio = found.value / right.value
    natural = 0
    while right.value >= 1000 ** (natural + 1):
        natural += 1
    return (
        ratio != 1 and Fraction(1, far) <= ratio <= far
        and (right.unit != ONE or right.value >= 1 or found.value < 1)
        and (right.unit == ONE or found.value * right.value != 1)
        and wrong.prefix in (0, natural)
    )  # fmt: skip


def _unit_of(quantity: Quantity) -> str:
    """The unit, with its prefix, in which a number needs fewest digits."""
    ways = [text for relation, text in quantity.lines() if relation != "≈"]
    if len(ways) < 2 and len(ways[0]) > 12:  # an exact number that nobody writes
        ways = [quantity.reading]
    best = min(ways, key=lambda text: (len(text.replace(" ", "")), text))
    return re.sub(r"^[-\d\s./]+", "", best)


def option_text(quantity: Quantity, unit: str) -> str:
    """How an option is written in a unit: whole numbers exactly, others with four digits.

    >>> option_text(Quantity.parse("12 GiB"), "GiB"), option_text(Quantity.parse("12 GB"), "GiB")
    ('12 GiB', '11.18 GiB')
    """
    value = quantity.value / (Quantity.parse(f"1 {unit}").value if unit else 1)
    whole = value.denominator == 1 and value < _EXACT
    number = exact_text(value) if whole else Quantity(value).rounded()
    return f"{number} {Quantity.counted(value, unit)}".rstrip()
