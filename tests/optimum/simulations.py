"""Schedules, event by event: nothing here shares code with the formulas it checks."""

from collections.abc import Sequence
from fractions import Fraction


def overlapped_buckets(sizes: Sequence[Fraction], o: Fraction, w: Fraction, rho: Fraction) -> Fraction:
    """Seconds after backward until the link is idle: a queue of calls, served in steps of events."""
    events = []  # (time, bytes) of buckets that become ready
    clock = Fraction(0)
    for size in sizes:
        clock += rho * size / w
        events.append((clock, size))
    backward, waiting, now, busy_until = clock, [], Fraction(0), Fraction(0)
    while events or waiting:
        if waiting and busy_until <= now:
            busy_until = now + o + waiting.pop(0) / w
            continue
        nexts = [t for t, _ in events[:1]] + ([busy_until] if busy_until > now else [])
        now = min(nexts)
        while events and events[0][0] <= now:
            waiting.append(events.pop(0)[1])
    return busy_until - backward


def pipeline(times: Sequence[Sequence[Fraction]]) -> tuple[Fraction, list[list[tuple[Fraction, Fraction]]]]:
    """The end of a pass, and when each stage works: ``times[stage][chunk]``; a stage does one chunk after the other."""
    ready = [Fraction(0)] * len(times[0])
    work: list[list[tuple[Fraction, Fraction]]] = []
    for stage in times:
        free, spans = Fraction(0), []
        for chunk, span in enumerate(stage):
            start = max(free, ready[chunk])
            free = ready[chunk] = start + span
            spans.append((start, free))
        work.append(spans)
    return ready[-1], work
