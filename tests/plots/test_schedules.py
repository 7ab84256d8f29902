"""A pipeline's pass against the events of its schedule; times of schedules and what they hold, asked as a user does."""

from __future__ import annotations

from fractions import Fraction

import pytest
from api import Accounting, Times, derive, no_model
from api import schedules_run as run


@pytest.mark.parametrize("stages", ["6, 2, 2, 2", "1, 5, 2, 3", "1/2, 1/3, 3/4, 2"])
@pytest.mark.parametrize("m", [1, 4, 9])
def test_a_forward_pass_takes_the_time_that_pipeline_time_derives(stages: str, m: int) -> None:
    times = [Fraction(part) for part in stages.split(",")]
    made = run("gpipe", len(times), m, times=Times(times), backward=False)
    derived = derive("pipeline_time", no_model(), {"stages": stages, "per": "chunk"}, Accounting(), {"m": Fraction(m)})
    assert made.makespan == derived.at(m=m).value
