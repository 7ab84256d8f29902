r"""A named generator of random numbers that is the same on every machine and in every version of Python.

``symcomm-draw-1`` is SHA-256 in counter mode (FIPS 180-4 says what SHA-256 is). Its key is the SHA-256 of the words
that name a stream, each as UTF-8 behind its length as eight bytes, the first of them ``symcomm-draw-1``. Word *i* of
the stream is the first eight bytes of SHA-256(key, *i* as eight bytes), all with the highest byte first. A whole number
below *n* is the next word below the largest multiple of *n* that words can reach, modulo *n*; a list is put in order
from its end (Fisher and Yates). Nothing is drawn from a float.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import TypeVar

NAME = "symcomm-draw-1"
_WORDS = 2**64
_T = TypeVar("_T")


class Stream:
    """Random numbers that follow from the words that name the stream.

    >>> stream = Stream("midterm", "7", "s001")
    >>> [stream.below(10) for _ in range(8)]
    [2, 4, 3, 1, 6, 0, 5, 1]
    """

    def __init__(self, *words: str) -> None:
        key = hashlib.sha256()
        for word in (NAME, *words):
            data = word.encode()
            key.update(len(data).to_bytes(8, "big") + data)
        self._key, self._next = key.digest(), 0

    def word(self) -> int:
        """The next 64 bits."""
        made = hashlib.sha256(self._key + self._next.to_bytes(8, "big")).digest()
        self._next += 1
        return int.from_bytes(made[:8], "big")

    def below(self, bound: int) -> int:
        """A whole number from 0 to ``bound`` - 1, each as likely as any other; ``bound`` is at most 2^64."""
        if not 0 < bound <= _WORDS:
            raise ValueError(f"no number can be drawn below {bound}")
        last = _WORDS - _WORDS % bound
        while (word := self.word()) >= last:
            pass
        return word % bound

    def choice(self, weights: Sequence[int]) -> int:
        """A place in a list of whole weights, as likely as its share of their sum."""
        left = self.below(sum(weights))
        for place, weight in enumerate(weights):
            left -= weight
            if left < 0:
                return place
        raise AssertionError("the weights sum to more than they do")

    def shuffled(self, items: Iterable[_T]) -> tuple[_T, ...]:
        """The items in a random order.

        >>> Stream("order").shuffled("abcdef")
        ('e', 'f', 'c', 'd', 'a', 'b')
        """
        made = list(items)
        for end in range(len(made) - 1, 0, -1):
            other = self.below(end + 1)
            made[end], made[other] = made[other], made[end]
        return tuple(made)
