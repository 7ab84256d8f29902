"""The pipeline schedules, one file each: a file of this folder with a record called ``SCHEDULE`` is one."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from symcomm.core.errors import ValuesError, nearest
from symcomm.core.program.events import Execution, Times, simulate
from symcomm.core.program.order_file import read_order
from symcomm.core.program.orders import Schedule, forward_only
from symcomm.core.sentences import SENTENCES

USUAL_SCHEDULE = "1f1b"  # what a pipeline runs where nothing is said
RANK_LIMIT, EVENT_LIMIT = 256, 1_000_000


@cache
def _registry() -> dict[str, Schedule]:
    files = sorted(m.name for m in iter_modules(__path__) if not m.name.startswith("_"))
    found: list[Schedule] = [import_module(f"{__name__}.{name}").SCHEDULE for name in files]
    return {schedule.name: schedule for schedule in found}


def schedules() -> tuple[Schedule, ...]:
    """All schedules, those that are registered at run time, too.

    >>> "1f1b" in [schedule.name for schedule in schedules()]
    True
    """
    return tuple(_registry().values())


SENTENCES["schedules"] = lambda: {schedule.name: schedule.why for schedule in schedules()}


def register(schedule: Schedule) -> Schedule:
    """Makes a schedule known by its name, everywhere; raises ``ValuesError`` for a name that is taken."""
    if _registry().get(schedule.name, schedule) != schedule:
        raise ValuesError(f"there is a schedule '{schedule.name}' already", hint="choose another name")
    _registry()[schedule.name] = schedule
    return schedule


def find(said: str | Schedule) -> Schedule:
    """A schedule by its name, or from the file of an order of one's own (see ``read_order``).

    Raises ``ValuesError`` for a name that is not known.
    """
    if isinstance(said, Schedule):
        return said
    if said in _registry():
        return _registry()[said]
    if said.endswith(".txt") and Path(said).is_file():
        return read_order(said)
    hint = nearest(said, [*_registry()])
    if said.endswith(".txt"):
        hint = "there is no such file"
    raise ValuesError(f"unknown schedule '{said[:40]}'", hint=hint)


def run(
    schedule: str | Schedule, stages: int, microbatches: int, chunks: int | None = None, times: Times | None = None,
    backward: bool = True,
) -> Execution:  # fmt: skip
    """The events of a schedule (or of its name), on so many ranks (``stages``), with a rank's ``chunks``.

    ``times`` are per action, that is for one chunk of a rank. Raises ``ValuesError`` and ``StrategyError`` for what
    ``Schedule.fitting`` and ``simulate`` refuse, and for more work than can be followed.

    >>> str(run("1f1b", 4, 8).makespan)
    '33'
    """
    found = find(schedule)
    v = found.fitting(stages, microbatches, chunks)
    if stages > RANK_LIMIT or 3 * stages * microbatches * v > EVENT_LIMIT:
        raise ValuesError(
            f"{stages} stages and {microbatches} microbatches are too many to be followed one by one",
            hint=f"at most {RANK_LIMIT} stages and {EVENT_LIMIT:,} pieces of work",
        )
    orders = found.ranks(stages, microbatches, v)
    made = simulate(orders if backward else forward_only(orders), times, found.name)
    return replace(made, name=found.name)
