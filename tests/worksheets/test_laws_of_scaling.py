"""Amdahl's and Gustafson's laws, against a schedule of unit tasks."""

from __future__ import annotations

from fractions import Fraction

import pytest

import symcomm as sc


def steps(serial: int, parallel: int, devices: int) -> int:
    """The steps of tasks that follow one another, and of tasks that are dealt out."""
    return serial + -(-parallel // devices)


@pytest.mark.parametrize(("serial", "parallel", "devices"), [(1, 24, 8), (5, 60, 4), (0, 12, 3), (7, 0, 5)])
def test_a_speed_up_is_the_steps_of_one_device_over_those_of_several(serial: int, parallel: int, devices: int) -> None:
    said = {"serial": f"{serial}/{serial + parallel}" if serial else 0, "devices": devices}
    gain = Fraction(serial + parallel, steps(serial, parallel, devices))
    assert sc.derive("amdahl", **said).at().value == gain
    assert sc.derive("amdahl", want="efficiency", **said).at().value == gain / devices


def test_scaled_work_takes_the_same_time() -> None:
    # 3 serial steps and 17 steps in which 8 devices each do a task: 139 tasks in the time of 20.
    made = sc.derive("amdahl", want="scaled", serial="3/20", devices=8)
    assert made.at().value == Fraction(3 + 17 * 8, 20)
    assert sc.derive("amdahl", want="limit", serial="3/20").at().value == Fraction(20, 3)


def test_without_a_serial_part_nothing_limits_the_speed_up() -> None:
    with pytest.raises(sc.SymcommError) as caught:
        sc.derive("amdahl", want="limit", serial=0)
    assert str(caught.value).startswith("amdahl.md:24: r_most divides by s, which is zero\n    - r_most := 1/s\n")


def test_a_part_is_at_most_the_whole() -> None:
    with pytest.raises(sc.SymcommError) as caught:
        sc.derive("amdahl", serial="6/5", devices=2)
    assert str(caught.value) == "serial = 1.2: a part is at most 1\nhint: such as 1/20"
