"""The own links of a device join a node: beyond it a question says what joins the nodes, or names a machine."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from api import known_devices, main
from click.testing import CliRunner

import symcomm as sc

GPT3 = str(Path(__file__).parents[2] / "examples" / "search" / "gpt3.md")
NVLINK, CARD, B, F = 450 * 10**9, 50 * 10**9, 64, 1024
WEIGHTS = 2 * (F * F + F * F)  # bytes of the gradients of a layer


def layer() -> sc.Model:
    rows = ("Computation\tInput\tOutput", "h = gelu(x W)\tx [B, F], W [F, F]\th [B, F]",
            "y = h V\th [B, F], V [F, F]\ty [B, F]")  # fmt: skip
    return sc.load("\n".join(rows), repeat="N_layer", values={"B": B, "F": F, "N_layer": 4})


def sent(strategy: str, **options: Any) -> sc.Derivation:
    return layer().step_time(strategy, of="network", **options)


REFUSED = "NVLink 4 joins 8 H100-SXM, but the mesh has {} ranks on it"


@pytest.mark.parametrize(("strategy", "options", "ranks"), [
    ("data(64)", {}, 64),
    ("data(4) + tensor(4)", {}, 16),
    ("data(4) + pipeline(4, microbatches=4)", {}, 16),
    ("data(16) + tensor(4)", {"links": "tensor=450 GB/s"}, 16),  # data is still on NVLink
    ("data(16)", {"links": "node=16, between=50 GB/s"}, 16),  # a node that NVLink does not join
])  # fmt: skip
def test_more_ranks_than_nvlink_joins_are_refused_and_the_hint_says_how(
    strategy: str, options: dict[str, str], ranks: int
) -> None:
    with pytest.raises(sc.SymcommError) as caught:
        sent(strategy, device="H100-SXM", **options)
    message, hint = str(caught.value).split("\nhint: ")
    assert message == REFUSED.format(ranks)
    assert hint == (
        "say what joins the nodes: device DGX-H100, or links node=8, inside=450 GB/s, between=50 GB/s, "
        "or a network of one bandwidth for all ranks"
    )


def test_a_number_of_ranks_that_is_known_later_is_refused_then() -> None:
    made = sent("data(k)", device="H100-SXM")
    assert made.at(k=8).value == Fraction(7, 4) * 4 * WEIGHTS / NVLINK
    with pytest.raises(sc.SymcommError, match=REFUSED.format(16)):
        made.at(k=16)


def test_links_that_are_given_beyond_a_node_and_one_bandwidth_for_all_are_used() -> None:
    ring = Fraction(2 * 63, 64) * 4 * WEIGHTS
    assert sent("data(64)", device="H100-SXM", network="100 GB/s").at().value == ring / (100 * 10**9)
    assert sent("data(64)", device="H100-SXM", links="data=25 GB/s").at().value == ring / (25 * 10**9)
    assert sent("data(64)", device="H100-SXM", links="node=8, between=50 GB/s").at().value == ring / CARD


def test_a_machine_by_name_lays_the_mesh_over_its_nodes_and_is_told() -> None:
    """Tensor parallelism fills a node and sums over NVLink; gradients go over the cards."""
    made = sent("data(8) + tensor(8)", device="DGX-H100")
    inside = sent("tensor(8)", device="H100-SXM", links="tensor=450 GB/s").at().value / 8  # of an eighth of the batch
    assert made.at().value == inside + Fraction(7, 4) * 4 * WEIGHTS / 8 / CARD
    assert made.notes[:2] == (
        "DGX-H100: nodes of 8 H100-SXM, joined by NVLink 4; 8 nodes, joined by ConnectX-7 with 50 GB/s a device.",
        "A node has 8 ranks: `tensor` (8 ranks) lies inside, `data` goes between nodes.",
    )
    assert made.at() == sent("data(8) + tensor(8)", device="H100-SXM", links="node=8, between=50 GB/s").at()


def test_both_directions_of_the_cards_count_where_those_of_all_links_do() -> None:
    made = sent("data(64)", device="DGX-H100", accounting="bidirectional")
    assert made.at() == sent("data(64)", device="DGX-H100").at()  # twice the bytes, twice the bandwidth


def test_a_machine_has_no_more_ranks_than_devices() -> None:
    with pytest.raises(sc.SymcommError) as caught:
        layer().at(B=128).step_time("data(128)", device="dgx h100")
    assert str(caught.value) == (
        "DGX-H100 has 8 x 8 devices, but there are 128 ranks\n"
        "hint: a network of your own with larger levels (node 8, pod 8)"
    )


def test_one_rank_of_a_machine_is_its_device() -> None:
    assert sc.device("DGX-H100") == sc.device("H100-SXM")
    one, machine = (layer().step_time(device=name) for name in ("H100-SXM", "DGX-H100"))
    assert one.at() == machine.at()
    assert not machine.notes


@pytest.mark.parametrize(("name", "joined"), [
    ("V100-32GB-SXM", 8), ("A100-80GB-SXM", 8), ("A100-80GB-PCIe", 2), ("H100-PCIe", 2), ("H200-SXM", 8),
    ("B200-SXM", 8), ("MI300X", 8), ("TPU-v4", 4096), ("TPU-v5e", 256), ("generic", 0),
])  # fmt: skip
def test_a_device_knows_how_many_of_it_its_links_join(name: str, joined: int) -> None:
    """As printed: eight to a board, two by bridges, 4,096 and 256 chips in a pod."""
    assert known_devices()[name].link().joins == joined


def searched(*words: str) -> str:
    told = CliRunner().invoke(main, ["search", GPT3, "--devices", "64", "--capacity-is", "nominal_GB", *words])
    return told.output if told.exit_code == 0 else f"{told.exit_code}: {told.output}"


def test_a_search_does_not_put_more_ranks_on_nvlink_than_it_joins() -> None:
    said = searched("--device", "H100-SXM")
    assert said.startswith("2: error: NVLink 4 joins 8 H100-SXM, but the mesh has 64 ranks on it\nhint: say what joins")
    assert "device DGX-H100" in said


def test_a_search_on_a_machine_keeps_tensor_parallelism_inside_its_nodes() -> None:
    said = searched("--device", "DGX-H100", "--strategy", "data + tensor + sequence + pipeline",
                    "--recomputation", "none,selective", "--microbatches", "768,1536", "--top", "3")  # fmt: skip
    fastest = said.split("The fastest:\n")[1].split("\n\n")[0]
    assert " x 8 x " in fastest  # data x tensor x pipe
    assert " x 16 x " not in fastest
    assert "DGX-H100: nodes of 8 H100-SXM, joined by NVLink 4; 8 nodes" in said


def test_a_search_takes_links_of_the_axes_beyond_a_node() -> None:
    words = ("--device", "H100-SXM", "--strategy", "data + tensor", "--recomputation", "full", "--microbatches", "1536",
             "--links", "data=50 GB/s")  # fmt: skip
    assert "the mesh has 64 ranks on it" in searched(*words)
    assert "the mesh has" not in searched(*words, "--sizes", "tensor=1..8")
