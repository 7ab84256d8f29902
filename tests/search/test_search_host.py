"""A search under offloading: what the ranks of a host keep there has to fit."""

from __future__ import annotations

import pytest
from search_oracle import RATES, block
from test_search_whole_models import whole

import symcomm as sc
from symcomm import SymcommError

WEIGHTS = 2 * 120 * 32 + 4 * (2 * 32 * 32 + 2 * 32 * 16 + 3 * 32 * 64 + 2 * 32) + 32  # of the small Llama
STATES = 12 * WEIGHTS  # an fp32 copy and two moments


def searched(accounting: str, **options: object) -> sc.SearchResult:
    given = {"devices": 2, "capacity": "1 TB", "capacity_is": "nominal_GB", "recomputation": "none", "microbatches": 1,
             "strategies": ["data", "zero-1"], "links": "host=1 GB/s"}  # fmt: skip
    return sc.search(whole("llama").at(B=8, L=16), accounting=accounting, **RATES, **(given | options))


def test_what_the_ranks_of_a_host_keep_there_has_to_fit() -> None:
    found = searched("states_on_host", host_capacity="600 kB shared by 2")
    assert [(c.strategy, c.host.value) for c in found.top] == [("zero-1(2)", STATES)]
    assert found.top[0].row[-1].endswith("On a host: 538 kB.")
    assert ("does not fit in the host's memory", 1) in found.refused
    alone = searched("states_on_host", host_capacity="600 kB shared by 1")
    assert {c.strategy: c.host.value for c in alone.top} == {"zero-1(2)": STATES / 2, "data(2)": STATES}


def test_activations_on_the_host_are_half_of_what_is_copied_out_and_back() -> None:
    found = searched("states_and_activations_on_host", host_capacity="1 TB shared by 2", strategies="data")
    copied = whole("llama").at(B=8, L=16).communication("data(2)", level="host", accounting="activations_on_host").at()
    assert found.top[0].host.value == 2 * STATES + 2 * copied.value / 2
    assert found.json()["top"][0]["host_memory"]["exact"] == str(found.top[0].host.value)


def test_a_host_that_nobody_limits_is_told() -> None:
    assert any(note.startswith("The host is supposed to have room") for note in searched("states_on_host").notes)
    assert searched("states_on_host", host_capacity="1 kB shared by 2").summary.endswith(
        "needs on a host 538 kB: 538 times the capacity."
    )


@pytest.mark.parametrize(
    ("accounting", "capacity", "told"),
    [
        ("on_device", "2 TB shared by 8", "host_capacity, but nothing is on the host"),
        ("states_on_host", "2 TB shared by x", "'x' is no number of ranks"),
        ("states_on_host", "2 TB", "nobody said how many ranks share the memory of a host"),
        ("states_on_host", "0 B shared by 2", "host_capacity = 0 B: an amount of memory"),
    ],
)
def test_a_host_that_is_not_one_is_refused(accounting: str, capacity: str, told: str) -> None:
    with pytest.raises(SymcommError) as caught:
        searched(accounting, host_capacity=capacity)
    assert told in str(caught.value)


def test_the_ranks_of_a_node_share_a_host() -> None:
    found = searched("states_on_host", host_capacity="1 TB", links="host=1 GB/s, node=2, inside=1 GB/s, between=1 GB/s")
    assert {c.host.value for c in found.top} == {STATES, 2 * STATES}


def test_gradients_of_one_microbatch_go_to_the_host_as_they_are_made() -> None:
    """Those of several microbatches are added on the device first."""
    found = searched("states_and_gradients_on_host", strategies="data", microbatches="1,2")
    assert {c.microbatches: {s.what: s.amount for s in c.held}.get("gradients") for c in found.top} == {
        1: None, 2: 2 * WEIGHTS}  # fmt: skip


def test_a_device_that_holds_nothing_is_told_without_a_part_of_its_memory() -> None:
    found = sc.search(block(), devices=2, capacity="1 TB", capacity_is="usable", recomputation="none", microbatches="1",
                      strategies="data", links="host=1 GB/s", accounting="everything_on_host", **RATES)  # fmt: skip
    assert [(c.memory.value, c.held) for c in found.top] == [(0, ())]
    assert "Memory:" not in found.top[0].why
