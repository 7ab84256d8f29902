"""The options of a question that is asked with options: the right answer among wrong ones that somebody makes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from symcomm.errors import DocumentError
from symcomm.exam.key import Key
from symcomm.problems.problem import Ask
from symcomm.problems.randomness import Stream
from symcomm.render.document import Answer
from symcomm.units import Quantity

if TYPE_CHECKING:
    from collections.abc import Iterable


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


def choices_of(key: Key, answer: Answer, ask: Ask, stream: Stream) -> tuple[OfferedAnswer, ...]:
    """The options of a question in a random order, one of them right; no two are equal, or read alike.

    The wrong ones are what common mistakes and other conventions come to at the numbers of the paper. Raises
    ``DrawAgainError`` where there are too few of them.
    """
    right = answer.quantity
    if right is None:
        raise DocumentError("a question without a number has no options", ask.span, "leave choices out")
    values = dict(key.given)
    wrong: dict[object, OfferedAnswer] = {}
    for one in stream.shuffled((*key.mistakes, *key.conventions)):
        found = one.at(values)
        if found is None or found.unit != right.unit or found.value == right.value or found.value <= 0:
            continue
        wrong.setdefault(found.value, OfferedAnswer("", found, one.names, one.says))
    single = sorted(wrong.values(), key=lambda choice: len(choice.names))  # mistakes alone before pairs
    picked: list[OfferedAnswer] = []
    for choice in single:
        if len(picked) + 1 < ask.exam.choices and _distinct([right, *(c.quantity for c in picked), choice.quantity]):
            picked.append(choice)
    if len(picked) + 1 < ask.exam.choices:
        said = f"{ask.exam.choices} options need {ask.exam.choices - 1} wrong answers, and there are {len(picked)}"
        raise DrawAgainError(said, ask.section.span_of("choices"), "fewer choices")
    every = [OfferedAnswer("", right), *picked]
    texts = _texts([choice.quantity for choice in every])
    return stream.shuffled(OfferedAnswer(t, c.quantity, c.names, c.says) for t, c in zip(texts, every, strict=True))


def _texts(quantities: Iterable[Quantity]) -> list[str]:
    return [option_text(quantity) for quantity in quantities]


def _distinct(quantities: list[Quantity]) -> bool:
    return len({*_texts(quantities)}) == len(quantities)


def option_text(quantity: Quantity) -> str:
    """How an option is written: in the unit that needs fewest digits.

    >>> option_text(Quantity.parse("12 GiB")), option_text(Quantity.parse("0.32 s"))
    ('12 GiB', '0.32 s')
    """
    ways = [text for relation, text in quantity.lines() if relation != "≈"] or [quantity.reading]
    return min(ways, key=lambda text: (len(text.replace(" ", "")), text))
