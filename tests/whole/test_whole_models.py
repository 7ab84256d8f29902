"""Whole models under whole strategies: what is derived equals what PyTorch was measured to send, hold and keep."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import Any
from zlib import crc32

import pytest
import whole_records as runs
from api import Setting, gradient_sizes, partition

SENDING = [r for r in runs.RECORDS if r["strategy"] not in ("single", "ep")]
EXPERTS = [r for r in runs.RECORDS if r["strategy"] == "ep"]
SKIPPED = {r["id"] for r in EXPERTS}
HOLDING = [r for r in runs.RECORDS if not r["strategy"].startswith("fsdp2") and r["id"] not in SKIPPED]


def some(records: list[dict[str, Any]]) -> list[Any]:
    """A third of the runs of up to two ranks and of every composition by default, all of them in the long run."""

    def soon(record: dict[str, Any]) -> bool:
        return (record["ranks"] <= 2 or "dp2" in record["id"]) and crc32(record["id"].encode()) % 3 == 0

    return [pytest.param(r, id=r["id"], marks=[] if soon(r) else [pytest.mark.long]) for r in records]


@pytest.mark.few(13)
@pytest.mark.parametrize("record", some(SENDING))
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
    finished = record["totals_per_rank"][0][f"all_reduce/grad_sync/{ranks}"]
    assert mine["all_reduce", "backward", ranks] == finished["elements"]


@pytest.mark.few(8)
@pytest.mark.parametrize("record", some(HOLDING))
def test_every_rank_holds_the_weights_that_were_measured(record: dict[str, Any]) -> None:
    stages = record.get("stages")
    each = record["params_per_rank"]
    tensor = record.get("tp", 1)
    for stage in range(len(stages or [0])):
        options = {"stage": stage} if stages else {}
        made = runs.model(record).state_memory(runs.strategy(record), recipe="fp32_sgd", **options)
        assert made.at().value == 8 * each[stage * tensor if stages else 0]


SHARDED = [r for r in runs.RECORDS if r["strategy"].startswith("fsdp2")]


@pytest.mark.few(6)
@pytest.mark.parametrize("record", some(SHARDED))
def test_shards_of_rows_are_those_of_the_fullest_rank_and_their_mean_is_that_of_all(record: dict[str, Any]) -> None:
    """Ranks that do not divide the rows of a weight hold unequal parts: 4 bytes a weight, and 4 its gradient."""
    made = {said: runs.model(record).state_memory(runs.strategy(record), recipe="fp32_sgd", accounting=said).at().value
            for said in ("padded_shards", "mean_shard")}  # fmt: skip
    each = record["params_per_rank"]
    assert made == {"padded_shards": 8 * max(each), "mean_shard": 8 * Fraction(sum(each), len(each))}


@pytest.mark.few(13)
@pytest.mark.parametrize("record", some(runs.RECORDS))
def test_the_bytes_kept_for_backward_are_those_that_were_measured(record: dict[str, Any]) -> None:
    """Token ids, positions and labels are inputs: the run lists them apart, or keeps them in a form of its own.

    Of experts on several ranks the mean is compared: which rank has how many tokens depends on the routing.
    """
    stages = record.get("stages")
    tensor = record.get("tp", 1)
    options: dict[str, Any] = {"recomputation": "full"} if record.get("checkpoint") else {}
    accounting = runs.conventions(record) | {"saved": "pytorch"}
    for stage in range(len(stages or [0])):
        if stages:
            options |= {"stage": stage, "schedule": record["strategy"].split(".")[1]}
        made = runs.model(record).activation_memory(runs.strategy(record), accounting=accounting, **options)
        every = [rank["act"] for rank in record["saved_bytes_per_rank"]]
        theirs = Fraction(sum(every), len(every)) if record in EXPERTS else every[stage * tensor if stages else 0]
        more, why = runs.kept_otherwise(record, stage)
        assert made.at().value - runs.inputs(record, stage) + more == theirs, (stage, why)


def test_the_records_are_of_every_strategy_that_was_measured() -> None:
    assert len(runs.RECORDS) == 195
    assert len({r["strategy"] for r in runs.RECORDS}) == 19


BUCKETED = [r for r in runs.RECORDS if "ddp.bucket10k" in r["id"] and r["ranks"] == 2]


@pytest.mark.parametrize("record", BUCKETED, ids=lambda r: r["id"])
def test_the_gradients_of_a_whole_model_fill_as_many_buckets_as_were_sent(record: dict[str, Any]) -> None:
    """Every layer's, each expert's, and tied weights once."""
    made, cap = runs.model(record), int(record["kw"]["bucket_cap_mb"] * 2**20)
    known = made.graph.relations.complete(made.values)
    sizes = gradient_sizes(Setting(made.graph, dtype="fp32", notation=made.notation, values=known), "fp32")
    [sent] = record["totals"].values()
    assert (len(partition(sizes, cap, cap)), sum(sizes)) == (sent["calls"], sent["bytes"])
