"""A dictionary of results that begins anew when it is full."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

About = TypeVar("About")
Made = TypeVar("Made")


class Remembered(dict[About, Made]):
    """Results by all that they depend on, at most so many.

    >>> squares = Remembered[int, int](most=2)
    >>> [squares.once(n, lambda: n**2) for n in (1, 2, 3)], [*squares]
    ([1, 4, 9], [3])
    """

    def __init__(self, most: int = 20_000) -> None:
        self.most = most

    def once(self, about: About, make: Callable[[], Made]) -> Made:
        """The result that is kept; else one that is made now."""
        made = self.get(about)
        if made is None:
            made = make()
            if len(self) >= self.most:
                self.clear()
            self[about] = made
        return made
