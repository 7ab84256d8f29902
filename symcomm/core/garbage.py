"""Circles of garbage are looked for less often while much is made that stays in use."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

_OBJECTS = 4_000_000  # as many more than were let go of before the youngest are looked through; Python's own are 700
_lock = Lock()
_inside = 0
_before = (0, 0, 0)


@contextmanager
def collected_rarely() -> Iterator[None]:
    """While it lasts, in any thread, fewer looks for garbage; a caller who turned them off, or rarer, is obeyed.

    Of the time in which a table of thousands of rows is read, a third would go into looks that find nothing: the trees
    of ten thousand rows are three million objects, all of them let go of when the rows have been read.

    >>> with collected_rarely():
    ...     gc.get_threshold()[0] >= 4_000_000
    True
    """
    global _inside, _before
    with _lock:
        if not _inside:
            _before = gc.get_threshold()
            if 0 < _before[0] < _OBJECTS:
                gc.set_threshold(_OBJECTS, *_before[1:])
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                gc.set_threshold(*_before)
