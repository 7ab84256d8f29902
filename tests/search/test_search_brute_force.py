"""A search against deriving every configuration by itself, exactly, from its own text."""

from fractions import Fraction
from functools import cache

import pytest
from api import SearchResult
from search_oracle import RATES, One, attention, block, by_hand

import symcomm as sc

KINDS = ("data", "zero-1", "fully-sharded")


def strategies(kinds: tuple[str, ...], sequence: bool) -> list[str]:
    tails = ("tensor", "tensor + sequence") if sequence else ("tensor",)
    return [f"{kind} + {tail} + pipeline" for kind in kinds for tail in tails]


def searched(model, devices, kinds, microbatches, again, sequence=False, **options) -> SearchResult:
    given = {"capacity": "1 TB", "capacity_is": "nominal_GB", "top": 1000} | RATES | options
    return sc.search(
        model, devices=devices, strategies=strategies(kinds, sequence), microbatches=list(microbatches),
        recomputation=list(again), **given,
    )  # fmt: skip


def agrees(found: SearchResult, expected: list[One], capacity: Fraction) -> None:
    """Counts, every time and memory, the order, and the front."""
    assert found.tried == len(expected)
    divide = [one for one in expected if one.divides]
    fit = [one for one in divide if one.memory <= capacity]
    assert found.feasible == len(fit)
    reasons = dict(found.refused)
    large = reasons.pop("does not fit in the memory", 0)
    assert sum(reasons.values()) == len(expected) - len(divide)
    assert large == len(divide) - len(fit)
    exact = {one.key: (one.time, one.memory) for one in fit}
    for c in found.top:
        assert exact[c.strategy, c.microbatches, c.recomputation] == (c.time.value, c.memory.value)
    assert len({(c.strategy, c.microbatches, c.recomputation) for c in found.top}) == len(found.top)
    ordered = sorted((one.time, one.memory) for one in fit)
    assert [(c.time.value, c.memory.value) for c in found.top] == ordered[: len(found.top)]
    # A point is on the front where no other is at least as good in both and better in one.
    points = {(one.time, one.memory) for one in fit}
    front = {a for a in points if not any(b != a and b[0] <= a[0] and b[1] <= a[1] for b in points)}
    assert [(c.time.value, c.memory.value) for c in found.front] == sorted(front)


@cache
def two_matrices() -> tuple[sc.Model, tuple[int, ...], tuple[str, ...], list[One]]:
    model, counts, again = block(), (1, 3, 5), ("none", "full")
    return model, counts, again, by_hand(model, 4, ("F",), KINDS[::2], counts, again)


def test_every_configuration_of_two_matrices_is_that_derived_by_hand():
    model, counts, again, expected = two_matrices()
    found = searched(model, 4, KINDS[::2], counts, again)
    assert len(found.top) == found.feasible > 25
    agrees(found, expected, Fraction(10**12))


@pytest.mark.long
def test_every_configuration_of_two_matrices_on_twelve_devices_is_that_derived_by_hand():
    model, counts, again = block(), (1, 2, 3, 5), ("none", "full")
    expected = by_hand(model, 12, ("F",), KINDS, counts, again)
    found = searched(model, 12, KINDS, counts, again)
    assert len(found.top) == found.feasible > 60
    agrees(found, expected, Fraction(10**12))


@pytest.mark.parametrize("part", [Fraction(1, 8), Fraction(1, 2)])
def test_what_fits_a_capacity_is_what_fits_by_hand(part):
    model, counts, again, expected = two_matrices()
    sizes = sorted(one.memory for one in expected if one.divides)
    capacity = sizes[int(len(sizes) * part)]  # exactly the memory of one of them, which therefore fits
    assert capacity.denominator == 1
    found = searched(model, 4, KINDS[::2], counts, again, capacity=f"{capacity} B", capacity_is="usable")
    assert 0 < found.feasible < len(sizes)
    agrees(found, expected, capacity)


@pytest.mark.long
def test_attention_with_selective_recomputation_is_that_derived_by_hand():
    model, counts, again = attention(), (1, 2), ("selective",)
    expected = by_hand(model, 2, ("n_H",), ("data",), counts, again, sequence=True)
    found = searched(model, 2, ("data",), counts, again, sequence=True)
    assert len(found.top) == found.feasible == 8
    agrees(found, expected, Fraction(10**12))


@pytest.mark.parametrize("time", ["serial", pytest.param("per_op", marks=pytest.mark.long)])
def test_other_ways_to_add_up_time_are_those_derived_by_hand(time):
    model, counts = block(), (3,)
    expected = by_hand(model, 4, ("F",), ("data",), counts, ("none",), time=time)
    agrees(searched(model, 4, ("data",), counts, ("none",), accounting=time), expected, Fraction(10**12))


@pytest.mark.long
def test_every_configuration_of_attention_is_that_derived_by_hand():
    model, counts, again = attention(), (1, 2), ("none", "selective", "full")
    expected = by_hand(model, 8, ("n_H",), KINDS[1:], counts, again, sequence=True)
    found = searched(model, 8, KINDS[1:], counts, again, sequence=True)
    agrees(found, expected, Fraction(10**12))


@pytest.mark.few(3)
@pytest.mark.parametrize("how", ["none", "full"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_degree_of_one_is_the_structure_without_it(kind, how):
    """Why one structure does for every shape of its mesh."""
    from api import Draft, SearchQuestion, structure
    from api import template_pieces as pieces

    question = SearchQuestion(block(), rates=tuple(RATES.items()))

    def worth(text: str, **sizes: int) -> tuple[Fraction, Fraction]:
        made = structure(question, Draft(pieces(text), how, "1f1b" if "pipeline" in text else ""))
        found = made.at({symbol: sizes.get(axis, 1) for axis, symbol in made.symbols})
        return found["time"], found["memory"]

    for m in (1, 3):
        whole = f"{kind} + tensor + pipeline"
        assert worth(whole, data=2, pipeline=3, microbatches=m) == worth(
            f"{kind} + pipeline", data=2, pipeline=3, microbatches=m
        )
        assert worth(whole, tensor=2, pipeline=3, microbatches=m) == worth(
            "tensor + pipeline", tensor=2, pipeline=3, microbatches=m
        )
        flat = f"{kind} + tensor"
        assert worth(flat, data=4, microbatches=m) == worth(kind, data=4, microbatches=m)
        assert worth(flat, microbatches=m) == worth("tensor", microbatches=m) == worth("data", microbatches=m)


def test_sequence_parallelism_over_one_rank_keeps_no_gathered_copy():
    alone = sc.search(
        block(), devices=4, strategies="data + tensor + sequence + pipeline", microbatches=[1, 3], recomputation="full",
        capacity="1 TB", capacity_is="nominal_GB", top=1000, **RATES,
    )  # fmt: skip
    expected = {one.key: one.memory for one in by_hand(block(), 4, ("F",), ("data",), (1, 3), ("full",), True)}
    assert {"data(4)", "tensor(4) + sequence", "data(2) + tensor(2) + sequence"} <= {c.strategy for c in alone.top}
    for c in alone.top:
        assert c.memory.value == expected[c.strategy, c.microbatches, c.recomputation], c.strategy


@pytest.mark.long
def test_the_shares_of_a_step_add_up_to_the_whole_under_every_convention():
    for time in ("overlap", "serial", "per_op"):
        for gradients in ("end_of_batch", "with_backward"):
            found = searched(
                block(),
                4,
                ("data", "fully-sharded"),
                (1, 3),
                ("none",),
                accounting={"time": time, "gradient_sync": gradients},
            )
            for c in found.top:
                assert sum(s.amount for s in c.shares) == c.time.value
                assert sum(s.part for s in c.shares) == 1
                network = sum(s.amount for s in c.shares if s.what == "collectives")
                assert sum(s.amount for s in c.calls) == network
                assert sum(s.amount for s in c.held) == c.memory.value
