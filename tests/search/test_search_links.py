"""Links of mesh axes in a search: every configuration against its own step time, and what is refused."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from api import SymcommError
from api import run_search as search
from search_oracle import RATES, attention, block

import symcomm as sc

LINKS = {"tensor": "200 GB/s", "data": "5 GB/s @ 20 us", "pipe": "1 GB/s"}
ASKED = {"devices": 4, "capacity": "1 GB", "capacity_is": "nominal_GB", "recomputation": "none", "jobs": 1, "top": 100}


def named(text: str) -> dict[str, str]:
    """The links of the axes that a configuration has."""
    return {axis: said for axis, said in LINKS.items() if ("pipeline" if axis == "pipe" else axis) in text}


@pytest.mark.parametrize("time", ["overlap", "serial"])
def test_each_configuration_takes_the_time_that_its_links_say(time: str) -> None:
    model = block()
    found = search(model, strategies="data + tensor + pipeline", microbatches="2", links=LINKS, accounting=time,
                   **ASKED, **RATES)  # fmt: skip
    assert len(found.top) == 4
    for one in found.top:
        alone = model.step_time(one.strategy, microbatches=2, accounting=time, links=named(one.strategy), **RATES)
        assert alone.at().value == one.time.value, one.strategy
    plain = search(model, strategies="data + tensor + pipeline", microbatches="2", accounting=time, **ASKED, **RATES)
    assert plain.top[0].time != found.top[0].time
    assert any("One bandwidth stands for all links" in note for note in plain.notes)
    assert not any("One bandwidth stands for all links" in note for note in found.notes)


NODES = {"node": 6, "inside": "200 GB/s @ 2 us", "between": "5 GB/s @ 20 us"}


@pytest.mark.parametrize("algorithm", ["ring", pytest.param("hierarchical", marks=pytest.mark.long)])
def test_the_axes_of_each_mesh_fill_nodes_as_they_do_by_themselves(algorithm: str) -> None:
    model, how = block(B=48, N_layer=4, F=48, D=48), {"algorithm": algorithm}
    asked = {**ASKED, "devices": 12}
    found = search(model, strategies="data + tensor + pipeline", microbatches="1", links=NODES, accounting=how,
                   **asked, **RATES)  # fmt: skip
    for one in found.top:
        alone = model.step_time(one.strategy, microbatches=1, accounting=how, links=NODES, **RATES)
        assert alone.at().value == one.time.value, one.strategy
    shapes = [(t, d, 12 // t // d) for t in range(1, 13) for d in range(1, 13) if 12 % (t * d) == 0]
    even = [shape for shape in shapes if 4 % shape[2] == 0 and _even(6, shape)]
    assert len(found.top) == len(even)
    assert dict(found.refused)["does not divide: the places of a node of 6 ranks"] == sum(
        4 % shape[2] == 0 and not _even(6, shape) for shape in shapes
    )
    assert any("fill a node" in note for note in found.notes)


@pytest.mark.long
def test_a_model_with_a_vocabulary_fills_nodes_as_a_table_does() -> None:
    """Where words are cut, a mesh without tensor parallelism is derived by itself."""
    config = {"model_type": "llama", "hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 4,
              "num_attention_heads": 4, "vocab_size": 96}  # fmt: skip
    model, links = sc.load(config).at(B=8, L=8), {**NODES, "node": 2}
    found = search(model, strategies="data + tensor + pipeline", microbatches="1", links=links, **ASKED, **RATES)
    assert len(found.top) == 6
    for one in found.top:
        alone = model.step_time(one.strategy, microbatches=1, links=links, **RATES)
        assert alone.at().value == one.time.value, one.strategy


def _even(left: int, shape: tuple[int, ...]) -> bool:
    for size in shape:
        if left > 1 and left % size and size % left:
            return False
        left = left // size if left > size else 1
    return True


def test_a_call_over_two_axes_is_as_slow_as_those_with_two_ranks() -> None:
    model, links = attention(B=48, N_layer=8), {"data": "1 GB/s", "context": "100 GB/s @ 50 us"}
    found = search(
        model, strategies="data + context", microbatches="1", links=links, **{**ASKED, "devices": 8}, **RATES
    )
    assert len(found.top) == 4
    for one in found.top:
        mine = {axis: said for axis, said in links.items() if axis in one.strategy}
        assert model.step_time(one.strategy, links=mine, **RATES).at().value == one.time.value, one.strategy


def test_the_calls_that_are_told_go_over_their_own_links() -> None:
    found = search(attention(), strategies="tensor", microbatches="1", links="tensor=1 GB/s", **ASKED, **RATES)
    slow = search(attention(), strategies="tensor", microbatches="1", **{**RATES, "network": "1 GB/s"}, **ASKED)
    assert found.top[0].calls == slow.top[0].calls
    assert found.top[0].time == slow.top[0].time


def test_links_go_by_the_symbol_of_a_degree_and_as_text() -> None:
    one = search(block(), strategies="tensor(t)", microbatches="1", links="t=200 GB/s", **ASKED, **RATES)
    other = search(block(), strategies="tensor", microbatches="1", links={"tensor": "200 GB/s"}, **ASKED, **RATES)
    assert one.top[0].time == other.top[0].time


@pytest.mark.parametrize(
    ("links", "text"),
    [
        ("tensr=1 GB/s", "no strategy has an axis 'tensr' for links\nhint: did you mean 'tensor'?"),
        ("node=x, inside=900 GB/s, between=50 GB/s", "'x' is no number of ranks of a node"),
        ("inside=900 GB/s, between=50 GB/s", "but not how many ranks a node has"),
        ("tensor=5 GB", "tensor is given in B, but the bandwidth along `tensor` is in B/s"),
    ],
)
def test_links_that_a_search_cannot_take_are_refused(links: str, text: str) -> None:
    with pytest.raises(SymcommError) as caught:
        search(block(), strategies="data + tensor", microbatches="2", links=links, **ASKED, **RATES)
    assert text in str(caught.value)


def test_a_convention_that_a_search_does_not_use_is_told() -> None:
    found = search(block(), strategies="tensor", microbatches="1", accounting="busbw", **ASKED, **RATES)
    assert "Nothing here depends on `bandwidth: busbw`." in found.notes
