"""The page on schedules shows what the events are, and what the closed forms say."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path

import pytest
from api import SymcommError, Times, find, parse_order, timetable
from api import schedules_run as run
from api import schedules_schedules as schedules

PAGE = (Path(__file__).parents[2] / "docs" / "schedules.md").read_text(encoding="utf-8")
PICTURES = re.findall(
    r"^`([\w-]+)`, (\d+) ranks, (\d+) microbatches(?:, (\d) chunks)?:\n\n```text\n(.*?)\n```", PAGE, re.M | re.S
)


@pytest.mark.parametrize(("name", "p", "m", "v", "shown"), PICTURES, ids=[name for name, *_ in PICTURES])
def test_a_picture_on_the_page_is_the_timetable_of_its_schedule(name, p, m, v, shown):
    split = find(name).kinds - {"F", "D"}
    made = run(name, int(p), int(m), int(v) if v else None, Times(1, 1, 1 if split else 0))
    assert timetable(made) == shown


def test_every_schedule_has_a_row_and_a_picture():
    names = [
        schedule.name for schedule in schedules() if schedule.source.count("arXiv") or "DualPipe" in schedule.source
    ]
    assert sorted(name for name, *_ in PICTURES) == sorted(names)
    assert sorted(re.findall(r"^\| `([\w-]+)` \|", PAGE, re.M)) == sorted(names)


def test_the_error_on_the_page_is_the_one_that_is_told():
    with pytest.raises(SymcommError) as caught:
        parse_order("F0.0 D0.0 F0.1 D0.1\nF1.0 F1.1 D1.0 D1.1", "mine.txt")
    assert str(caught.value) in PAGE


def test_a_timetable_needs_whole_times():
    with pytest.raises(SymcommError, match="the times are no whole numbers\nhint: give them in a smaller unit"):
        timetable(run("gpipe", 2, 2, times=Times(Fraction(1, 2))))
    assert timetable(run("interleaved", 2, 2, 3)).splitlines()[0].startswith("r0 F0.0 F0.1 F2.0")
