"""NVMe disks behind the host: what they read and write, what rests there, how long it takes, what does not fit."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

import symcomm as sc

T, D, F, N = 8, 64, 256, 6
ROWS = """Computation\tInput\tOutput
a = x W\tx [T, D], W [D, F]\ta [T, F]
u = relu(a)\ta [T, F]\tu [T, F]
y = u U\tU [F, D]\ty [T, D]
"""
P = N * 2 * D * F
SLOW: dict[str, Any] = {"peak": "1 EFLOP/s", "network": "1 EB/s", "memory": "1 EB/s"}
ON_HOST = {
    "states_on_nvme": "states_on_host", "states_and_gradients_on_nvme": "states_and_gradients_on_host",
    "activations_on_nvme": "activations_on_host", "states_on_nvme_model_on_host": "model_on_host",
    "states_on_nvme_rest_on_host": "everything_on_host", "model_on_nvme": "model_on_host",
    "model_on_nvme_activations_on_host": "everything_on_host", "everything_on_nvme": "everything_on_host",
}  # fmt: skip


def layers() -> sc.Model:
    return sc.load(ROWS, repeat="N", dtype="fp16", values={"T": T, "D": D, "F": F, "N": N})


def copied(strategy: str, offloading: str, level: str = "nvme", **options: Any) -> list[Fraction]:
    """The bytes of a rank over a link in the forward pass, the backward pass and the update."""
    asked = {"level": level, "accounting": {"offloading": offloading}, **options}
    return [layers().communication(strategy, phase=phase, **asked).at().value
            for phase in ("forward", "backward", "update")]  # fmt: skip


KEPT = 2 * N * T * (D + F)  # of all tokens: x and u


@pytest.mark.parametrize(("offloading", "forward", "backward", "update"), [
    ("states_on_nvme", 0, 0, 24 * P),
    ("states_on_nvme_model_on_host", 0, 0, 24 * P),
    ("states_and_gradients_on_nvme", 0, 2 * P, 2 * P + 24 * P),
    ("model_on_nvme", 2 * P, 2 * P + 2 * P, 2 * P + 24 * P + 2 * P),
    ("everything_on_nvme", 2 * P + KEPT, 4 * P + KEPT, 28 * P),
    ("activations_on_nvme", KEPT, KEPT, 0),
])  # fmt: skip
@pytest.mark.parametrize(("strategy", "ranks"), [("data(1)", 1), ("fsdp(4)", 4)])
def test_disks_read_and_write_what_rests_there_where_it_is_needed(
    offloading: str, forward: int, backward: int, update: int, strategy: str, ranks: int
) -> None:
    """Weights for each pass, gradients when made and for the update, 12 bytes of states there and back, new weights."""
    assert copied(strategy, offloading) == [Fraction(n, ranks) for n in (forward, backward, update)]


@pytest.mark.parametrize(("deeper", "plain"), ON_HOST.items())
@pytest.mark.parametrize("strategy", ["data(1)", "zero-1(4)", "fsdp(4)"])
def test_all_that_goes_to_disks_passes_the_link_of_the_host(deeper: str, plain: str, strategy: str) -> None:
    assert copied(strategy, deeper, "host") == copied(strategy, plain, "host")
    here, there = (layers().peak_memory(strategy, accounting=how).at() for how in (deeper, plain))
    assert here == there


def test_the_recipe_says_how_many_bytes_of_states_disks_read_and_write() -> None:
    """16 bytes a parameter, read and written: the 32 P of ZeRO-Infinity (arXiv 2104.07857, section 4.1)."""
    assert copied("data(1)", "states_on_nvme", recipe="2+2+16")[2] == 32 * P
    assert copied("data(1)", "states_on_nvme", recipe="fp32_sgd") == [0, 0, 0]
    made = layers().communication("data(1)", level="nvme", accounting="states_on_nvme")
    made.check(deep=True)
    assert any("bytes of the states (mixed_adam) of `W`, `U`" in step.reason.text for step in made.steps)
    for recipe, how, said in (
        ("fp32_adam", "states_on_host", "a recipe changes only what disks read and write, and no states are there\n"
                                        "hint: offloading: states_on_nvme"),
        ("fp32_adafactor", "states_on_nvme", "what disks read and write of fp32_adafactor is not counted\n"
                                        "hint: a recipe of bytes a parameter, such as fp32_adam"),
    ):  # fmt: skip
        with pytest.raises(sc.SymcommError) as caught:
            layers().communication("data(1)", level="nvme", accounting=how, recipe=recipe)
        assert str(caught.value) == said


def test_ranks_of_a_node_share_its_disks_and_reading_may_be_faster_than_writing() -> None:
    """Of four ranks each reads at a quarter of 8 GB/s and writes at a quarter of 4 GB/s, and copies at 1 GB/s."""
    links = {"host": "1 GB/s", "nvme": "8 GB/s shared by 4", "nvme_write": "4 GB/s shared by 4"}
    made = layers().step_time("fsdp(4)", accounting=["model_on_nvme", "serial"], links=links, **SLOW)
    read, written, over = (2 + 2 + 2 + 12) * P // 4, (2 + 12 + 2) * P // 4, (2 + 2 + 2) * P // 4
    seconds = Fraction(read, 2 * 10**9) + Fraction(written, 10**9) + Fraction(over, 10**9)
    assert made.at().value == pytest.approx(seconds, rel=1e-6)
    made.check(deep=True)
    alike = layers().step_time("fsdp(4)", accounting=["model_on_nvme", "serial"], **SLOW,
                               links={"host": "1 GB/s", "nvme": "8 GB/s shared by 4"})  # fmt: skip
    assert alike.at().value == pytest.approx(Fraction(read + written, 2 * 10**9) + Fraction(over, 10**9), rel=1e-6)


def test_a_rate_of_disks_that_nobody_said_is_a_symbol() -> None:
    made = layers().step_time("fsdp(4)", accounting="states_on_nvme", **SLOW)
    assert {"W_nvme", "W_host"} <= {symbol.name for symbol in made.expr.free_symbols}


@pytest.mark.parametrize("offloading", ON_HOST)
def test_each_tensor_rests_on_one_tier(offloading: str) -> None:
    """16 bytes a parameter under mixed Adam, wherever they are: 2 and 2 of weights and gradients, 12 of states."""
    found = {}
    for on in ("device", "host", "nvme"):
        try:
            made = layers().state_memory("fsdp(4)", on=on, accounting=offloading)
        except sc.SymcommError as error:
            assert str(error).startswith("nothing is on"), error  # noqa: PT017  # tiers that nothing rests on
            continue
        made.check(deep=True)
        found[on] = made.at().value
    assert sum(found.values()) == 16 * P // 4
    states = {"activations_on_nvme": 0, "states_on_nvme": 12, "states_and_gradients_on_nvme": 14}
    states |= dict.fromkeys(("states_on_nvme_model_on_host", "states_on_nvme_rest_on_host"), 12)
    assert found.get("nvme", 0) == states.get(offloading, 16) * P // 4


def test_ranks_of_a_node_have_to_find_room_on_its_disks() -> None:
    asked: dict[str, Any] = {"strategy": "zero-1(4)", "on": "nvme", "accounting": "states_on_nvme", "per_host": 8}
    assert layers().state_memory(**asked, nvme_capacity="5 MB").at().value == 12 * P * 8 // 4
    for options, said in (
        ({"nvme_capacity": "4 MB"}, "8 ranks keep 4 718 592 B = 4.718592 MB = 4.5 MiB on NVMe disks, which have "
         "4 000 000 B = 4 MB ≈ 3.815 MiB\nhint: cut more of the model, put less there, or let fewer ranks share it"),
        ({"host_capacity": "4 MB"}, "'host_capacity' is not of the memory that counts\nhint: on: host, or on: nvme"),
        ({"of": "weights"}, "the weights are on the device\nhint: on: device"),
        ({"accounting": "states_on_host"}, "nothing is on NVMe disks\nhint: offloading: states_on_nvme"),
        ({"on": "device"}, "'per_host', 'host_capacity' and 'nvme_capacity' are of what a host has\n"
                           "hint: on: host, or on: nvme"),
    ):  # fmt: skip
        with pytest.raises(sc.SymcommError) as caught:
            layers().state_memory(**{**asked, **options})
        assert str(caught.value) == said


def test_a_search_fits_what_rests_on_disks_and_takes_their_time() -> None:
    asked: dict[str, Any] = {
        "devices": 4, "strategies": ["zero-1", "data"], "capacity": "1 GB", "capacity_is": "usable", "jobs": 1,
        "recomputation": "none", "microbatches": "1", "links": "host=1 GB/s, nvme=2 GB/s shared by 4",
        "accounting": "states_on_nvme_rest_on_host", **SLOW,
    }  # fmt: skip
    found = sc.search(layers(), host_capacity="1 GB shared by 4", nvme_capacity="3 MB shared by 4", **asked)
    (best,) = found.top
    assert (best.strategy, best.nvme.value) == ("zero-1(4)", 12 * P)
    assert best.host.value == 4 * (2 * P + 2 * P) + KEPT  # whole weights and gradients of each, and of all tokens
    assert ("does not fit on NVMe disks", 1) in found.refused
    moved = {one.what for one in best.calls}
    assert {"copy of optimizer states over nvme", "copy of optimizer states over nvme_write"} <= moved
    assert best.row[-1].endswith(" On its disks: 2.359 MB.")
    step = layers().step_time("zero-1(4)", accounting="states_on_nvme_rest_on_host", **SLOW, links=asked["links"])
    assert best.time.value == step.at().value
    assert any(note.startswith("NVMe disks are supposed to have room") for note in sc.search(layers(), **asked).notes)
    with pytest.raises(sc.SymcommError) as caught:
        sc.search(layers(), nvme_capacity="3 MB shared by 4", **{**asked, "accounting": "states_on_host"})
    assert str(caught.value) == "nvme_capacity, but nothing is on NVMe disks\nhint: offloading: states_on_nvme"
