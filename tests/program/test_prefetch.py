"""Weights that are fetched ahead: what the peak holds of the next layers, and what of their fetch a step hides."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

import symcomm as sc

T, D, F, N = 16, 64, 256, 6
ROWS = """Computation\tInput\tOutput
a = x W\tx [T, D], W [D, F]\ta [T, F]
u = relu(a)\ta [T, F]\tu [T, F]
y = u U\tU [F, D]\ty [T, D]
"""
LAYER = 2 * 2 * D * F  # bytes of its weights


def layers(count: int | None = N, tokens: int = T) -> sc.Model:
    known = {"T": tokens, "D": D, "F": F, **({} if count is None else {"N": count})}
    return sc.load(ROWS, repeat="N", dtype="fp16", values=known)


def peak(prefetch: str, count: int | None = N, **how: Any) -> sc.Derivation:
    strategy = how.pop("strategy", "fsdp(4)")
    return layers(count).peak_memory(strategy, recipe="2+2+0", accounting={"prefetch": prefetch, **how})


def test_a_peak_holds_the_weights_of_so_many_layers_more() -> None:
    """Each layer ahead is whole. The gradients of the layers that are still to come, a quarter each, are not there."""
    found = [peak(how).at().value for how in ("none_ahead", "one_ahead", "two_ahead")]
    kept = 2 * (T // 4) * (D + F)  # what one layer keeps for its backward pass, which is still there
    for n in (1, 2):
        assert found[n] - found[0] == pytest.approx(n * (LAYER - LAYER // 4 + kept), abs=kept)
    assert peak("none_ahead").at() == peak("as_read", gathered_weights="whole_units").at()


def test_weights_from_the_host_are_fetched_ahead_as_well() -> None:
    found = [peak(how, strategy="data(1)", offloading="model_on_host").at().value
             for how in ("none_ahead", "one_ahead", "two_ahead")]  # fmt: skip
    assert [found[1] - found[0], found[2] - found[1]] == [LAYER, LAYER]


@pytest.mark.parametrize("how", ["one_ahead", "two_ahead"])
def test_at_the_end_of_a_pass_fewer_layers_are_to_come(how: str) -> None:
    """Of two layers one is ahead of the first in either pass, however many may be; of one none is."""
    assert peak(how, 2).at() == peak("one_ahead", 2).at()
    if how == "one_ahead":
        assert peak(how, 1).at() == peak("none_ahead", 1).at()
    else:
        with pytest.raises(sc.SymcommError) as caught:
            peak(how, 1)
        said = "more layers are fetched ahead than there are\nhint: prefetch: one_ahead, or as_read"
        assert str(caught.value) == said


def test_a_peak_of_any_number_of_layers_is_the_one_of_each() -> None:
    made = peak("one_ahead", None)
    assert [made.at(N=n).value for n in (3, 5, 9)] == [peak("one_ahead", n).at().value for n in (3, 5, 9)]


# -- time ----------------------------------------------------------------------------------------------------

SPEED = Fraction(10**11)


def fetch_by_fetch(ahead: bool, net: Fraction, count: int, batches: int, latency: Fraction) -> Fraction:
    """A link and a processor: of each layer and pass three quarters of the weights come, and then it runs."""
    came = latency * 3 + Fraction(3, 4) * LAYER / net
    flops = {"F": 4 * (T // 4 // batches) * D * F, "D": 8 * (T // 4 // batches) * D * F}
    link = done = Fraction(0)
    begun: list[Fraction] = []
    for letter in ("F" * count + "D" * count) * batches:
        # Ahead, a fetch begins with the run before.
        link = max(link, begun[-1] if ahead and begun else done) + came
        begun.append(max(link, done))
        done = begun[-1] + flops[letter] / SPEED
    return done


@pytest.mark.parametrize("batches", [1, 2])
@pytest.mark.parametrize("net", [10**8, 3 * 10**9, 10**10, 10**12])
@pytest.mark.parametrize("latency", [0, 1])
def test_a_step_hides_the_fetch_of_a_layer_behind_the_one_before(net: int, batches: int, latency: int) -> None:
    """One gather for the weights of a layer: three rounds among four ranks, however many weights it has."""
    wait = Fraction(latency, 10**6)
    for how in ("none_ahead", "one_ahead"):
        made = layers().step_time(
            "fsdp(4)", microbatches=batches, peak=f"{SPEED} FLOP/s", memory="1 EB/s", network=f"{net} B/s",
            **({"latency": f"{wait} s"} if latency else {}), accounting={"prefetch": how},
        )  # fmt: skip
        made.check(deep=True)
        assert "prefetch" in made.touched
        end = N * (2 * 3 * wait + Fraction(3, 4) * LAYER / net)  # the reduction of two gradients
        expected = fetch_by_fetch(how == "one_ahead", Fraction(net), N, batches, wait)
        assert made.at().value == expected + end, how


@pytest.mark.parametrize(("options", "said"), [
    ({"accounting": {"prefetch": "two_ahead"}}, "a step that fetches two layers ahead is not timed\n"
                                                "hint: prefetch: one_ahead"),
    ({"strategy": "fsdp(2) + pipeline(2, microbatches=2)"},
     "one_ahead is timed for layers that are alike on one rank, and layer has more\n"
     "hint: take its layer, part('layer'), without a pipeline; or prefetch: as_read"),
    ({"accounting": {"prefetch": "one_ahead", "gradient_sync": "with_backward"}},
     "with_backward is not timed under one_ahead\nhint: prefetch: as_read"),
    ({"of": "exposed"}, "under one_ahead only the whole step is timed, without buckets\nhint: prefetch: as_read"),
])  # fmt: skip
def test_a_fetch_ahead_that_is_not_timed_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(sc.SymcommError) as caught:
        layers().step_time(**{"strategy": "fsdp(4)", "accounting": {"prefetch": "one_ahead"}, **options})
    assert str(caught.value) == said


def test_what_no_fetch_ahead_changes_is_told() -> None:
    for how in ("serial", "overlap"):
        strategy = "fsdp(4)" if how == "serial" else "data(4)"
        made = layers().step_time(strategy, accounting=[how, {"prefetch": "one_ahead"}])
        assert any("prefetch: one_ahead" in note for note in made.notes)
    with pytest.raises(sc.SymcommError, match="for groups of layers"):
        layers().peak_memory("fsdp(4)", recomputation="full", every=2, accounting={"prefetch": "one_ahead"})
