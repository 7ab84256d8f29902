"""Circles of garbage are looked for less often while much is made that stays in use."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

_OBJECTS = 4_000_000  # as many more than were let go of before they are looked through; Python's own are 700
_lock = Lock()
_inside = 0
_before = (0, 0, 0)
_unseen = 0  # objects made and kept since all were looked through


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
            if gc.isenabled() and 0 < _before[0] < _OBJECTS:
                gc.set_threshold(_OBJECTS, *_before[1:])
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                if gc.get_threshold() != _before:
                    _grow_old()
                gc.set_threshold(*_before)


def _grow_old() -> None:
    """Counts many young objects among the old, of which all are looked through when there are many new ones.

    Left young, every one would be looked at as soon as Python's own threshold holds again.
    """
    global _unseen
    young = gc.get_count()[0]
    if young < _OBJECTS // 40:
        return  # a short look; and to ask how many were set aside takes as long as there are
    _unseen += young
    if _unseen >= _OBJECTS:
        gc.collect()
        _unseen = 0
    elif not gc.get_freeze_count():  # else others have set objects aside, which would be mixed with ours
        gc.freeze()
        gc.unfreeze()
