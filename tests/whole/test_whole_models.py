"""Whole models under whole strategies: what is derived equals what PyTorch was measured to send, hold and keep."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import whole_records as runs

SENDING = [r for r in runs.RECORDS if r["strategy"] not in ("single", "ep")]
EXPERTS = [r for r in runs.RECORDS if r["strategy"] == "ep"]


@pytest.mark.parametrize("record", SENDING, ids=lambda r: r["id"])
def test_every_collective_is_derived_or_told_by_name(record: dict[str, Any]) -> None:
    data, tensor = runs.degrees(record)
    for stage, (mine, theirs) in enumerate(zip(runs.derived(record), runs.measured(record), strict=True)):
        more, why = runs.explained(record, stage)
        expected: Counter[runs.Key] = Counter(mine)
        for key, size in more.items():
            expected[key] += size
        left, right = (runs.joint_apart(c, data, tensor) for c in (expected, theirs))
        assert {k: runs.whole(v) for k, v in left.items() if v} == {k: v for k, v in right.items() if v}, (stage, why)
