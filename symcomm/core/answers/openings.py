"""The words that people write around an answer: ``So the total is``, ``Speicher:``, ``答案是``.

They are left out where they say nothing of it. A word such as ``per``, ``only`` or ``twice`` does, and a unit with a
prefix.
"""

from __future__ import annotations

import re

from symcomm.core.answers import UnreadError
from symcomm.core.answers.measures import measure
from symcomm.core.text.vocabulary import words

_FILLERS = frozenset(words(
    "so thus hence therefore then which that this it we i you they the my a final get gets have need needs take takes "
    "give gives is are equals answer ans result solution total overall altogether about around approximately approx ca "
    "circa roughly almost "
    "also somit daher das es wir ich die der sind ist ergibt macht dauert braucht brauchen beträgt lautet antwort "
    "lösung ergebnis insgesamt gesamt zusammen etwa ungefähr rund"
))  # fmt: skip
_TELLING = frozenset(words(
    "per pro je each every only just without not no non if when or and than minus times plus half twice double third "
    "less more least most at nur ohne nicht und oder halb doppelt mindestens höchstens"
))  # fmt: skip
_CHINESE = re.compile("[\u4e00-\u9fff]*(?:答案|答|结果|共|总计|共计|所以|因此|约|是|为|等于|需要|得到)")
_CHINESE_TELLING = re.compile("[每不无仅只半倍最]")

_FILLER = re.compile(r"\s*([^\W\d_]+)(?:['’]s)?[.,:：]*(?=[\s\d$\\(*≈~=]|$)")
_LABEL = re.compile(
    r"\A\s*([^\W\d_]\w*(?:(?:\s+|-(?=\w\w))[^\W\d_]\w*){0,7})(\^?\*|\^\{\*\})?\s*"
    r"(?:[:：](?=\s|[^\x00-\x7f])|：|=|≈|(?<=\s)(?:is|are|equals|ist|sind|beträgt)(?=\s))"
)
_CLOSING = re.compile(r"[\s,]+(?:in total|total|overall|altogether|insgesamt|zusammen)[\s.]*\Z", re.IGNORECASE)
_PIECE = re.compile(r"(\A|[=≈])([^=≈]*)")


def opened(text: str, names: frozenset[str]) -> str:
    """The text without the words before it, behind its equals signs and at its end that say nothing.

    >>> [opened(text, frozenset({"N"})) for text in ("So the total size is 12 GB", "24 N = about 12", "per GPU: 12")]
    [' 12 GB', '24 N = 12', 'per GPU: 12']
    """
    text, before = _CLOSING.sub("", text), ""
    if not (text.lstrip()[:1].isalpha() or "=" in text or "≈" in text):
        return text
    while text != before:
        before = text
        text = _LABEL.sub(lambda found: found[0] if _tells(found, names) else "", text)
        text = _PIECE.sub(lambda found: found[1] + _unfilled(found[2], names), text)
    return text


def _tells(label: re.Match[str], names: frozenset[str]) -> bool:
    """Whether a label says something of the answer, or may be a formula; one name is left to the grammar."""
    said = label[1].replace("-", " ").split()
    if len(said) == 1 and label[1].isascii() and not label[2] and label[0].endswith(("=", "≈")):
        return True
    return any(
        word in names or names.issuperset(word) or word.lower() in _TELLING or _CHINESE_TELLING.search(word)
        or is_scaled(word)
        for word in said
    )  # fmt: skip


def is_scaled(word: str) -> bool:
    """Whether a word is a unit that changes a number: GB and bits, but not bytes."""
    try:
        found = measure(word)
    except UnreadError:  # Gb
        return True
    return found is not None and found[0] != 1


def _unfilled(text: str, names: frozenset[str]) -> str:
    place = 0
    while (found := _FILLER.match(text, place)) is not None and found[1] not in names:
        chinese = _CHINESE.fullmatch(found[1]) is not None and _CHINESE_TELLING.search(found[1]) is None
        if found[1].lower() not in _FILLERS and not chinese:
            break
        place = found.end()
    return text[place:]
