"""A bound of time for a search: it is given up, and said to be, instead of running on."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from symcomm.errors import ValuesError

SECONDS = 60.0  # the longest that a search for an optimum or a crossing takes


class _GivenUpError(BaseException):
    """Raised in a search whose time is over; no ``except Exception`` on its way catches it."""


@contextmanager
def patience(what: str, hint: str) -> Iterator[None]:
    """Ends what runs in it after ``SECONDS`` of wall time with a ``ValuesError``; works in any thread.

    >>> with patience("a sum", "add less"):
    ...     sum(range(10))
    45
    """
    ours, lock, over = threading.get_ident(), threading.Lock(), False

    def give_up() -> None:
        with lock:
            if not over:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ours), ctypes.py_object(_GivenUpError))

    limit, timer = SECONDS, threading.Timer(SECONDS, give_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    except _GivenUpError:
        raise ValuesError(f"{what} was given up after {limit:g} s", hint=hint) from None
    finally:
        with lock:
            over = True
        timer.cancel()
