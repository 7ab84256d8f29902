"""A bound of time for a search or a proof: it is given up, and said to be, instead of running on."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar

from symcomm.core.errors import ValuesError

SECONDS = 60.0  # the longest that a search for an optimum takes
CROSSING = 2.0  # the same, of the processor's time, for where two costs are equal

_TRIED: ContextVar[list[str]] = ContextVar("tried")


class OverdueError(Exception):
    """The work in ``limited`` took longer than it may."""


@contextmanager
def limited(seconds: float, working: bool = False) -> Iterator[None]:
    """Ends what runs in it after some seconds with an ``OverdueError``; works in any thread, and one in another.

    ``working`` counts the processor's time for this thread only, so that a busy machine gives up no sooner.

    >>> with limited(2):
    ...     sum(range(10))
    45
    """
    ours, lock, over = threading.get_ident(), threading.Lock(), False
    clock = getattr(time, "pthread_getcpuclockid", None) if working and hasattr(time, "thread_time") else None
    began = time.thread_time() if clock else 0.0  # a browser has no such clock
    # No ``except Exception`` on its way catches it, nor another limit.
    given_up: type[BaseException] = type("GivenUp", (BaseException,), {})
    timers: list[threading.Timer] = []

    def give_up() -> None:
        with lock:
            left = seconds - (time.clock_gettime(clock(ours)) - began) if clock and not over else 0
            if left > 0:
                wait(left)
            elif not over:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ours), ctypes.py_object(given_up))

    def wait(left: float) -> None:
        timers[:] = [threading.Timer(left, give_up)]
        timers[0].daemon = True
        timers[0].start()

    try:
        try:
            with suppress(RuntimeError):  # no threads, as in a browser: the page ends the whole worker instead
                wait(seconds)
            yield
        finally:  # it may be given up even here
            with lock:
                over = True
            timers[0].cancel()
    except given_up:
        raise OverdueError(f"given up after {seconds:g} s") from None


def trying(what: str) -> None:
    """Notes what a search tries now, such as ``a closed form``: where it is given up, the error says so."""
    _TRIED.get([]).append(what)


@contextmanager
def patience(what: str, hint: str, crossing: bool = False) -> Iterator[None]:
    """Ends what runs in it after ``SECONDS`` (a ``crossing``: ``CROSSING``) with a ``ValuesError`` that says what ran.

    >>> with patience("a sum", "add less"):
    ...     sum(range(10))
    45
    """
    limit, tried = CROSSING if crossing else SECONDS, list[str]()
    before = _TRIED.set(tried)
    try:
        with limited(limit, working=crossing):
            yield
    except OverdueError:
        told = f": tried {' and '.join(dict.fromkeys(tried))}" if tried else ""
        raise ValuesError(f"{what} was given up after {limit:g} s{told}", hint=hint) from None
    finally:
        _TRIED.reset(before)
