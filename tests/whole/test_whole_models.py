"""Whole models under whole strategies: what is derived equals what PyTorch was measured to send, hold and keep."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import whole_records as runs

SENDING = [r for r in runs.RECORDS if r["strategy"] not in ("single", "ep")]
EXPERTS = [r for r in runs.RECORDS if r["strategy"] == "ep"]
HOLDING = [r for r in runs.RECORDS if not r["strategy"].startswith("fsdp2") and r["strategy"] != "ep"]


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


@pytest.mark.parametrize("record", EXPERTS, ids=lambda r: r["id"])
def test_experts_move_each_token_to_its_experts_and_back(record: dict[str, Any]) -> None:
    """Which token goes where depends on the routing, their number over all ranks does not: n_top a token.

    The run sends token counts besides (8 bytes each, one a pair of an expert and a rank that has tokens).
    """
    z, ranks = record["sizes"], record["ranks"]
    mine = runs.derived(record)[0]
    sums: Counter[tuple[str, str]] = Counter()
    for totals in record["totals_per_rank"]:
        for key, total in totals.items():
            kind, when, _ = key.split("/")
            sums[kind, when] += total["elements"]
    tokens = record["global_batch"] * z["L"] * z["top"] * z["D"]
    assert sums["all_to_all", "backward"] == 2 * z["N"] * tokens
    assert mine["all_to_all", "backward", ranks] == 2 * z["N"] * tokens
    assert sums["all_to_all", "forward"] - 2 * z["N"] * tokens == z["N"] * ranks * z["E"]
    assert mine["all_to_all", "forward", ranks] == 2 * z["N"] * tokens
    assert mine["all_reduce", "backward", ranks] == record["totals_per_rank"][0][f"all_reduce/grad_sync/{ranks}"]["elements"]


@pytest.mark.parametrize("record", HOLDING, ids=lambda r: r["id"])
def test_every_rank_holds_the_weights_that_were_measured(record: dict[str, Any]) -> None:
    stages = record.get("stages")
    each = record["params_per_rank"]
    tensor = record.get("tp", 1)
    for stage in range(len(stages or [0])):
        options = {"stage": stage} if stages else {}
        made = runs.model(record).state_memory(runs.strategy(record), recipe="fp32_sgd", **options)
        assert made.at().value == 8 * each[stage * tensor if stages else 0]


@pytest.mark.parametrize(
    "record", [r for r in HOLDING if r["model"] != "mixtral" and r["strategy"] != "dtensor.naive"], ids=lambda r: r["id"]
)
def test_the_bytes_kept_for_backward_are_those_that_were_measured(record: dict[str, Any]) -> None:
    """Token ids, positions and labels are inputs: the run lists them apart, or keeps them in a form of its own."""
    stages = record.get("stages")
    tensor = record.get("tp", 1)
    options: dict[str, Any] = {"recomputation": "full"} if record.get("checkpoint") else {}
    accounting = runs.conventions(record) | {"saved": "pytorch"}
    for stage in range(len(stages or [0])):
        if stages:
            options |= {"stage": stage, "schedule": record["strategy"].split(".")[1]}
        made = runs.model(record).activation_memory(runs.strategy(record), accounting=accounting, **options)
        theirs = record["saved_bytes_per_rank"][stage * tensor if stages else 0]["act"]
        assert made.at().value - runs.inputs(record, stage) == theirs
