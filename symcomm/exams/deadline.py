"""A bound of the time that one answer may take, whatever it is: bounds of its size come first and nearly always do."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class TimeUpError(BaseException):
    """The time is up; no ``Exception``, so that nothing on the way takes it for a fault of its own."""


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Raises ``TimeUpError`` in what runs longer.

    A signal does it, which only the main thread of a process gets, and Windows does not have: elsewhere nothing is
    stopped. A timer that somebody else set is set again afterwards.

    >>> with deadline(60):
    ...     done = True
    """
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise TimeUpError

    before = signal.signal(signal.SIGALRM, stop)
    left, again = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if left:
            signal.setitimer(signal.ITIMER_REAL, left, again)
