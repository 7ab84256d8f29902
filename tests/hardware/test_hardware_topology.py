"""Topologies: matrices are read and repaired, and what follows is checked by brute force and by NetworkX flows."""

from __future__ import annotations

import itertools
from fractions import Fraction
from pathlib import Path

import networkx as nx
import pytest
from api import (
    LEGEND,
    Accounting,
    DocumentError,
    SymcommError,
    TableError,
    Topology,
    ValuesError,
    nvlinks,
    parse_problem,
    rank,
    read_topology,
    solve,
    wiring,
)
from hypothesis import given, settings
from hypothesis import strategies as st

DAMAGED = (Path(__file__).parent.parent / "data" / "topology_damaged.md").read_text(encoding="utf-8")

# A machine of four GPUs and two cards, as the tool prints it: tabs, a blank corner, underlined headers.
FOUR = (
    "\t\x1b[4mGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
    "GPU0\t X \tNV2\tNV1\tSYS\tPIX\tSYS\t0-15,32-47\t0\t\tN/A\n"
    "GPU1\tNV2\t X \tSYS\tNV1\tPHB\tSYS\t0-15,32-47\t0\t\tN/A\n"
    "GPU2\tNV1\tSYS\t X \tNV2\tSYS\tPXB\t16-31,48-63\t1\t\tN/A\n"
    "GPU3\tSYS\tNV1\tNV2\t X \tSYS\tNODE\t16-31,48-63\t1\t\tN/A\n"
    "NIC0\tPIX\tPHB\tSYS\tSYS\t X \tSYS\t\t\t\t\n"
    "NIC1\tSYS\tSYS\tPXB\tNODE\tSYS\t X \t\t\t\t\n"
    "\nLegend:\n\n  X    = Self\n  SYS  = Over the sockets\n\nNIC Legend:\n\n  NIC0: mlx5_0\n  NIC1: mlx5_1\n"
)


def printed(kinds: list[list[str]]) -> str:
    """A matrix of GPUs as the tool prints it."""
    names = [f"GPU{i}" for i in range(len(kinds))]
    rows = ["  ".join(["    ", *names]), *("  ".join([name, *row]) for name, row in zip(names, kinds, strict=True))]
    return "\n".join(rows)


def symmetric(size: int, upper: list[str]) -> list[list[str]]:
    kinds = [["X"] * size for _ in range(size)]
    for (i, j), kind in zip(itertools.combinations(range(size), 2), upper, strict=True):
        kinds[i][j] = kinds[j][i] = kind
    return kinds


@st.composite
def matrices(draw: st.DrawFn, kinds: tuple[str, ...] = ("NV1", "NV2", "PIX", "SYS"), most: int = 6) -> list[list[str]]:
    size = draw(st.integers(2, most))
    pairs = size * (size - 1) // 2
    return symmetric(size, draw(st.lists(st.sampled_from(kinds), min_size=pairs, max_size=pairs)))


# -- reading --------------------------------------------------------------------------------------------------


def test_the_tool_s_own_print_is_read_with_affinities_cards_and_legend():
    t = read_topology(FOUR)
    assert (t.gpus, t.nics, t.missing) == (("GPU0", "GPU1", "GPU2", "GPU3"), ("NIC0", "NIC1"), ())
    assert t.kind("GPU1", "GPU3") == t.kind("GPU3", "GPU1") == "NV1"
    assert (t.place("GPU2").cpus, t.place("GPU2").numa) == ("16-31,48-63", "1")
    assert (t.place("NIC1").model, t.place("NIC1").cpus, t.place("NIC1").numa) == ("mlx5_1", "", "")
    assert t.matrix.legend == {**LEGEND, "SYS": "Over the sockets"}
    assert t.nodes == {"0": ("GPU0", "GPU1", "NIC0"), "1": ("GPU2", "GPU3", "NIC1")}
    assert (t.node("NIC1"), t.near("GPU0"), t.near("GPU3")) == ("1", (("NIC0",), "PIX"), (("NIC1",), "NODE"))


def test_the_graph_has_a_node_for_each_device_and_an_edge_for_each_pair():
    graph = read_topology(FOUR).graph
    assert isinstance(graph, nx.Graph)
    assert (len(graph), graph.number_of_edges()) == (6, 15)
    assert graph.nodes["GPU3"] == {"role": "gpu", "cpus": "16-31,48-63", "numa": "1"}
    assert graph.edges["GPU0", "GPU1"] == {"kind": "NV2", "links": 2}
    assert graph.edges["NIC0", "GPU1"] == {"kind": "PHB", "links": 0}


def test_an_older_print_names_its_cards_by_their_driver_and_has_no_numa_column():
    t = read_topology(
        "        GPU0    GPU1    mlx4_0  CPU Affinity\nGPU0     X      PIX     PHB     0-9,20-29\n"
        "GPU1    PIX      X      PHB     0-9,20-29\nmlx4_0  PHB     PHB      X\n"
    )
    assert t.nodes == {"CPUs 0-9,20-29": ("GPU0", "GPU1", "mlx4_0")}


@given(matrices())
def test_a_whole_matrix_is_read_as_it_stands(kinds: list[list[str]]):
    t = read_topology(f"Some words.\n\n```\n{printed(kinds)}\n```\n\nGPU0 is the first.")
    assert [list(row) for row in t.matrix.kinds] == kinds
    assert not t.missing


# -- repair ---------------------------------------------------------------------------------------------------


def test_a_damaged_matrix_is_repaired_from_its_complete_row_and_says_which_cells_were_lost():
    t = read_topology(DAMAGED)
    assert [(m.row, m.column, m.kind) for m in t.missing] == [
        *((f"GPU{i}", "GPU7", "NV18") for i in range(7)),
        ("NIC0", "GPU7", "NODE"),
    ]
    assert {t.kind(a, b) for a in t.gpus for b in t.gpus if a != b} == {"NV18"}
    assert [t.kind("NIC0", g) for g in t.gpus] == ["SYS"] * 4 + ["NODE", "PIX", "NODE", "NODE"]
    # Row GPU6 has all its cells before the diagonal, so there it is certain; in row GPU0 any of seven may be the one.
    assert [m.certain for m in t.missing] == [False] * 6 + [True] * 2
    assert t.missing[0].sentence == (
        "row GPU0, column GPU7: the cell is missing; row GPU7 says NV18; it may as well be an equal cell beside it"
    )
    assert t.missing[7].sentence == (
        "row NIC0, column GPU7: the cell prints X, which only the diagonal can be; row GPU7 says NODE"
    )
    assert t.place("GPU7").numa == "1"
    assert t.missing[0].span.line == 5


@given(matrices(), st.data())
def test_what_is_repaired_is_the_truth_and_what_cannot_be_told_is_refused(kinds: list[list[str]], data: st.DataObject):
    size = len(kinds)
    cells = [(i, j) for i in range(size) for j in range(size) if i != j]
    lost = data.draw(st.lists(st.sampled_from(cells), max_size=4, unique=True))
    rows = [[kind for j, kind in enumerate(row) if (i, j) not in lost] for i, row in enumerate(kinds)]
    if len({i for i, _ in lost}) > 1:
        try:
            t = read_topology(printed(rows))
        except TableError:
            return
    else:
        t = read_topology(printed(rows))  # a single damaged row is always told by the others
    assert [list(row) for row in t.matrix.kinds] == kinds
    assert len(t.missing) == len(lost)
    assert sorted(m.row for m in t.missing) == sorted(f"GPU{i}" for i, _ in lost)
    certain = {(int(m.row[3:]), int(m.column[3:])) for m in t.missing if m.certain}
    assert certain <= set(lost)


def test_a_pair_whose_cells_are_both_missing_is_refused():
    kinds = symmetric(3, ["NV1", "SYS", "NV2"])
    rows = [[k for j, k in enumerate(row) if {i, j} != {0, 1}] for i, row in enumerate(kinds)]
    with pytest.raises(TableError, match=r"which are missing|both missing"):
        read_topology(printed(rows))


# -- what is refused ------------------------------------------------------------------------------------------

GOOD = "      GPU0  GPU1  GPU2\nGPU0  X     NV4   SYS\nGPU1  NV4   X     PIX\nGPU2  SYS   PIX   X\n"
BROKEN = {
    "inconsistent link types": (
        GOOD.replace("GPU2  SYS", "GPU2  NV4"),
        "t.md:4: inconsistent link types: GPU2-GPU0 is NV4 in line 4, but GPU0-GPU2 is SYS in line 2\n"
        "    GPU2  NV4   PIX   X\n          ^^^\nhint: line 2: GPU0  X     NV4   SYS",
    ),
    "inconsistent types in a row that lost cells": (
        "      GPU0  GPU1  GPU2\nGPU0  X     NV4   SYS\nGPU1  NV4   X     PIX\nGPU2  NV2   X\n",
        "t.md:4: the cell says NV2, but its mirror in the column's own row says SYS: a link has one type\n"
        "    GPU2  NV2   X\n          ^^^",
    ),
    "a row that fits nowhere": (
        "      GPU0  GPU1  GPU2\nGPU0  X     NV4   SYS\nGPU1  NV4   X     PIX\nGPU2  X     PIX\n",
        "t.md:4: the row has 2 of 3 cells, and they fit the complete rows in no way",
    ),
    "an unknown link type": (
        GOOD.replace("PIX", "PIY", 1),
        "t.md:3: 'PIY' is no link type\n    GPU1  NV4   X     PIY\n                      ^^^\nhint: did you mean 'PIX'",
    ),
    "a bond of nothing": (GOOD.replace("NV4", "NV0", 1), "t.md:2: 'NV0' is no link type"),
    "a diagonal": (GOOD.replace("X     PIX", "NV4   PIX"), "t.md:3: GPU1 is NV4 to itself: the diagonal must be X"),
    "too many cells": (GOOD.replace("X     NV4   SYS", "X NV4 SYS SYS"), "t.md:2: the row GPU0 has more than 3 cells"),
    "a row too few": (GOOD.rsplit("GPU2", 1)[0], "t.md:1: the matrix has a column GPU2, but no row of that name"),
    "a row too many": (GOOD + "GPU3  SYS   PIX   X\n", "t.md:5: the row GPU3 has no column"),
    "a row twice": (GOOD + "GPU2  SYS   PIX   X\n", "t.md:5: the row GPU2 is there twice"),
    "a column twice": (GOOD.replace("GPU2\n", "GPU1\n", 1), "t.md:1: GPU1 heads two columns of the matrix"),
    "an unknown column": (
        GOOD.replace("GPU2\n", "GPU2  CPU Affinity  Colour\n", 1),
        "t.md:1: 'Colour' is no column of a topology matrix",
    ),
    "two matrices": (GOOD + "\n" + GOOD, "t.md:6: there are 2 topology matrices, in lines 1, 6"),
    "no matrix": ("Dear students,\nno matrix here.", "t.md:1: there is no topology matrix here\n    Dear students,"),
    "nothing": ("", "t.md:1: there is no topology matrix here"),
    "numbers": ("1 2 3\n4 5 6\n", "t.md:1: there is no topology matrix here"),
    "too many devices": (
        " ".join(f"GPU{i}" for i in range(1001)),
        "t.md:1: a matrix of 1,001 devices; at most 1,000 are read",
    ),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_matrix_that_makes_no_sense_is_refused_with_its_line(what: str):
    text, message = BROKEN[what]
    with pytest.raises(TableError) as caught:
        read_topology(text, "t.md")
    assert str(caught.value).startswith(message)


def test_a_row_that_lost_nearly_everything_is_refused():
    kinds = symmetric(20, ["NV1"] * 190)
    kinds[0] = ["X", "NV1"]
    with pytest.raises(TableError, match="the row lost 18 of 20 cells; at most 16 can be put back"):
        read_topology(printed(kinds))


@pytest.mark.parametrize("n", [200, pytest.param(1000, marks=pytest.mark.long)])
def test_very_many_devices_are_read_cut_and_toured(n: int):
    names = [f"GPU{i}" for i in range(n)]
    rows = ["\t".join([name, *("X" if i == j else "NV18" for j in range(n))]) for i, name in enumerate(names)]
    t = read_topology("\n".join(["\t".join(["", *names]), *rows]))
    assert t.bisection(switch=True).crossing == n // 2 * 18
    assert t.bisection(switch=False).crossing == (n // 2) ** 2 * 18
    assert t.ring().order == tuple(names)


def test_an_unknown_device_is_refused_with_near_names():
    with pytest.raises(ValuesError) as caught:
        read_topology(FOUR).kind("GPU0", "GPU9")
    assert str(caught.value).startswith("the topology has no device 'GPU9'\nhint: did you mean 'GPU3'")
    with pytest.raises(ValuesError, match="NIC0 is a network card, not a GPU"):
        read_topology(FOUR).near("NIC0")
    with pytest.raises(ValuesError, match="the topology has no network card"):
        read_topology(GOOD).near("GPU0")


# -- cuts and rings, against brute force ----------------------------------------------------------------------


@given(matrices(kinds=("NV1", "NV2", "NV4", "SYS"), most=7))
def test_no_half_has_fewer_links_to_the_rest_than_the_bisection(kinds: list[list[str]]):
    t = read_topology(printed(kinds))
    size = len(kinds)
    least = min(
        sum(nvlinks(kinds[i][j]) for i in left for j in range(size) if j not in left)
        for left in itertools.combinations(range(size), size // 2)
    )
    cut = t.bisection(switch=False)
    assert cut.crossing == least
    assert sum(nvlinks(t.kind(a, b)) for a in cut.left for b in cut.right) == least
    assert (len(cut.left), len(cut.right)) == (size // 2, size - size // 2)


@given(matrices(kinds=("NV1", "NV2", "NV4"), most=6))
@settings(max_examples=60, deadline=None)
def test_the_bisection_of_a_switch_is_the_least_flow_between_halves_of_a_star(kinds: list[list[str]]):
    t = read_topology(printed(kinds))
    size = len(kinds)
    star = nx.DiGraph()
    for i in range(size):
        capacity = max(nvlinks(kinds[i][j]) for j in range(size) if j != i)
        star.add_edge(i, "switch", capacity=capacity)
        star.add_edge("switch", i, capacity=capacity)
    flows = []
    for left in itertools.combinations(range(size), size // 2):
        whole = star.copy()
        for i in range(size):
            if i in left:
                whole.add_edge("source", i)
            else:
                whole.add_edge(i, "sink")
        flows.append(nx.maximum_flow_value(whole, "source", "sink"))
    assert t.bisection(switch=True).crossing == min(flows)


@given(matrices(kinds=("NV1", "NV2", "PIX", "PHB", "SYS"), most=7))
def test_no_ring_has_a_better_poorest_link(kinds: list[list[str]]):
    t = read_topology(printed(kinds))
    size = len(kinds)

    def poorest(order: tuple[int, ...]) -> str:
        return min((kinds[a][b] for a, b in zip(order, (*order[1:], order[0]), strict=True)), key=rank)

    best = max((poorest((0, *rest)) for rest in itertools.permutations(range(1, size))), key=rank)
    ring = t.ring()
    order = tuple(int(name[3:]) for name in ring.order)
    assert sorted(order) == list(range(size))
    assert order[0] == 0
    assert ring.best
    assert ring.bottleneck == best == poorest(order)


def test_the_ring_of_the_hybrid_cube_mesh_avoids_pcie():
    """Eight V100s: two fully meshed fours, each GPU joined to its twin; no pair across is joined otherwise."""
    # The print-out of a DGX-1 with V100s.
    upper = {
        (0, 1): 1,
        (0, 2): 1,
        (0, 3): 2,
        (1, 2): 2,
        (1, 3): 1,
        (2, 3): 2,
        (0, 4): 2,
        (1, 5): 2,
        (2, 6): 1,
        (3, 7): 1,
        (4, 5): 1,
        (4, 6): 1,
        (4, 7): 2,
        (5, 6): 2,
        (5, 7): 1,
        (6, 7): 2,
    }
    kinds = [f"NV{upper[p]}" if p in upper else "SYS" for p in itertools.combinations(range(8), 2)]
    t = read_topology(printed(symmetric(8, kinds)))
    assert not t.switched(6)
    assert all(t.demand(gpu) == 6 for gpu in t.gpus)
    ring = t.ring()
    assert (ring.bottleneck, ring.best) == ("NV2", True)
    assert ring.order == ("GPU0", "GPU3", "GPU2", "GPU1", "GPU5", "GPU6", "GPU7", "GPU4")
    assert t.bisection(switch=False).crossing == 6  # between the fours: 2 + 2 + 1 + 1


def test_a_machine_of_two_halves_without_nvlink_between_them_shares_one_path():
    kinds = symmetric(4, ["NV2", "SYS", "SYS", "SYS", "SYS", "NV2"])
    t = read_topology(printed(kinds))
    cut = t.bisection(switch=False)
    assert (cut.crossing, cut.shared, cut.left) == (0, "SYS", ("GPU0", "GPU1"))
    d = wiring(t, switch=False, pcie={"SYS": "16 GB/s"}).bisection()
    assert d.at().value == 16 * 10**9
    assert "the halves share one path" in d.steps[0].reason.text


def test_one_nvlink_across_the_cut_carries_beside_the_path_that_the_halves_share():
    """GPU0 and GPU1, GPU2 and GPU3 are pairs; one NVLink of 25 GB/s joins GPU1 and GPU2, all others go by SYS."""
    kinds = symmetric(4, ["NV2", "SYS", "SYS", "NV1", "SYS", "NV2"])
    t = read_topology(printed(kinds))
    cut = t.bisection(switch=False)
    assert (cut.crossing, cut.shared) == (1, "SYS")
    both = wiring(t, switch=False, link_rate="25 GB/s", pcie={"SYS": "16 GB/s"}).bisection()
    assert both.at().value == (25 + 16) * 10**9
    both.check(deep=True)
    alone = wiring(t, switch=False, link_rate="25 GB/s").bisection()
    assert alone.at().value == 25 * 10**9
    assert alone.notes == ("The halves also share a SYS path, whose bandwidth is not given: it is not counted.",)
    all_joined = read_topology(printed(symmetric(4, ["NV2"] * 6)))
    assert wiring(all_joined, switch=False, link_rate="25 GB/s", pcie={"SYS": "16 GB/s"}).bisection().at().value == (
        4 * 2 * 25 * 10**9
    )


# -- derivations ----------------------------------------------------------------------------------------------


def damaged(**options: object):
    return wiring(read_topology(DAMAGED), **options)


def test_the_bandwidth_of_a_pair_stays_a_formula_without_the_rate_of_a_link():
    assert str(damaged().bandwidth("GPU0", "GPU7").expr) == "n_NV*w_NV"
    assert str(damaged().bandwidth("GPU0", "NIC0").expr) == "w_SYS"
    assert damaged(device_name="H100-SXM").bandwidth("GPU0", "GPU7").at().value == 450 * 10**9
    assert damaged(pcie={"PIX": "64 GB/s"}).bandwidth("NIC0", "GPU5").at().value == 64 * 10**9


def test_both_directions_count_twice_under_that_convention():
    both = damaged(device_name="H100-SXM", accounting=Accounting.of("bidirectional"))
    for one, two in (
        (damaged(device_name="H100-SXM").bisection(), both.bisection()),
        (damaged(device_name="H100-SXM").bandwidth("GPU0", "GPU1"), both.bandwidth("GPU0", "GPU1")),
        (damaged(device_name="H100-SXM").ring(), both.ring()),
    ):
        assert two.at().value == 2 * one.at().value
        assert two.touched == ("link",)


def test_without_a_switch_more_links_cross_than_a_gpu_could_have():
    direct = damaged(device_name="H100-SXM", switch=False).bisection()
    assert direct.at().value == 4 * 4 * 18 * 25 * 10**9
    needed = damaged(device_name="H100-SXM").direct_links()
    assert needed.at().value == 7 * 18
    assert "so the bonds lead to a switch" in needed.notes[0]


def test_the_symbolic_bisection_agrees_with_the_one_of_a_matrix():
    for switch in (True, False):
        symbolic = wiring(switch=switch).bisection()
        for n in range(2, 9):
            t = read_topology(printed(symmetric(n, ["NV6"] * (n * (n - 1) // 2))))
            exact = wiring(t, link_rate="25 GB/s", switch=switch).bisection().at().value
            assert symbolic.at(n_GPU=n, n_NV=6, w_NV=25 * 10**9).value == exact


def test_uneven_bonds_are_added_up_for_the_gpu_that_needs_most():
    t = read_topology(printed(symmetric(3, ["NV1", "NV2", "NV4"])))
    assert wiring(t).direct_links().at().value == 2 + 4
    with pytest.raises(ValuesError, match="no two GPUs of this topology are joined by NVLink"):
        wiring(read_topology(printed(symmetric(3, ["PIX", "SYS", "SYS"])))).direct_links()


def test_a_ring_is_chosen_by_the_given_rates_where_they_are_all_known():
    # PCIe at 64 GB/s is better than one NVLink at 25 GB/s, so the ring over PCIe wins.
    kinds = symmetric(4, ["NV1", "PIX", "PIX", "PIX", "PIX", "NV1"])
    t = read_topology(printed(kinds))
    slow = wiring(t).ring()
    fast = wiring(t, link_rate="25 GB/s", pcie={"PIX": "64 GB/s"}).ring()
    assert str(slow.expr) == "w_PIX"
    assert fast.at().value == 64 * 10**9


def test_the_nodes_cards_and_lost_cells_are_told_in_tables():
    numa, card, lost = damaged().numa(), damaged().nic("GPU5"), damaged().missing()
    assert numa.at().value == 2
    assert numa.exhibits[0].rows == (("0", "GPU0-GPU3", "none"), ("1", "GPU4-GPU7", "NIC0"))
    assert str(card.expr) == "w_PIX"
    assert card.exhibits[0].rows[6] == ("GPU6", "NIC0", "NODE", "1")
    assert lost.at().value == 8
    assert [damaged().missing(kind).at().value for kind in ("NV18", "NODE", "SYS")] == [7, 1, 0]
    assert "symmetry with the complete rows puts them back" in numa.notes[-1]


def test_a_whole_matrix_has_lost_nothing():
    assert wiring(read_topology(FOUR)).missing().at().value == 0


WRONG = {
    "a bandwidth of zero": (lambda: damaged(link_rate="0 GB/s"), "link_rate = 0 GB/s: it must be positive"),
    "a negative bandwidth": (lambda: damaged(link_rate="-25 GB/s"), "link_rate = -25 GB/s: it must be positive"),
    "GB for GB/s": (
        lambda: damaged(link_rate="25 GB"),
        "link_rate is given in B, but must be in B/s\nhint: such as 25 GB/s",
    ),
    "a float": (lambda: damaged(link_rate=2.5), "link_rate is the float 2.5, which is not exact"),
    "an unknown device": (lambda: damaged(device_name="H10-SXM"), "unknown device 'H10-SXM'\nhint: did you mean"),
    "an unknown path": (
        lambda: damaged(pcie={"PIY": "1 GB/s"}),
        "'PIY' is no PCIe link type\nhint: did you mean 'PIX'",
    ),
    "one device twice": (lambda: damaged().bandwidth("GPU0", "GPU0"), "GPU0 is one device, not two"),
    "one device": (lambda: damaged().bandwidth("GPU0"), "say which two devices"),
    "no topology": (lambda: wiring().ring(), "this needs a topology"),
    "no word about a switch": (
        lambda: wiring().bisection(),
        "a bisection needs a topology, or whether there is a switch",
    ),
    "one GPU": (
        lambda: wiring(read_topology("GPU0 CPU Affinity\nGPU0 X 0-7")).ring(),
        "a ring needs two GPUs or more, and there is 1",
    ),
    "half of one GPU": (
        lambda: wiring(read_topology("GPU0 CPU Affinity\nGPU0 X 0-7")).bisection(),
        "a bisection needs two GPUs or more",
    ),
    "no such cells": (lambda: damaged().missing("NVL"), "'NVL' is no link type"),
    "no affinity": (lambda: wiring(read_topology(GOOD)).numa(), "the matrix says no affinity for GPU0-GPU2"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_makes_no_sense_is_refused(what: str):
    derive, message = WRONG[what]
    with pytest.raises(SymcommError) as caught:
        derive()
    assert str(caught.value).startswith(message)


def test_too_many_ways_to_halve_are_refused():
    # A path of 40 GPUs: no two are joined alike.
    kinds = [f"NV{1 + (i * 7 + j * 3) % 12}" for i, j in itertools.combinations(range(40), 2)]
    t = read_topology(printed(symmetric(40, kinds)))
    with pytest.raises(ValuesError, match="ways to halve the GPUs are too many to try"):
        t.bisection(switch=False)


# -- problem files --------------------------------------------------------------------------------------------


def asked(block: str) -> Fraction:
    answer = next(iter(solve(parse_problem(f"# Q\n\n```symcomm\nask: topology\n{block}\n```\n")).answers()))
    assert answer.quantity is not None
    return answer.quantity.value


# The header line begins with blanks, so YAML must be told the indentation.
MATRIX = "matrix: |2\n" + "\n".join("  " + line for line in GOOD.strip("\n").split("\n"))


def test_a_problem_file_asks_about_a_matrix():
    assert asked(f"about: bandwidth\nbetween: GPU0, GPU1\nlink_rate: 25 GB/s\n{MATRIX}") == 100 * 10**9
    assert asked(f"about: ring\nsys: 10 GB/s\nlink_rate: 25 GB/s\npix: 20 GB/s\n{MATRIX}") == 10 * 10**9
    assert asked("about: direct_links\ngpus: 8\nlinks: 18") == 126
    assert asked("about: bisection\nswitch: yes\ngpus: 9\nlinks: 2\nlink_rate: 25 GB/s") == 4 * 2 * 25 * 10**9


def test_a_slip_in_a_problem_file_is_refused_at_its_line():
    with pytest.raises(SymcommError, match="link_rate is given in B, but must be in B/s"):
        asked("about: bandwidth\nlink_rate: 25 GB\nlinks: 2")
    with pytest.raises(DocumentError, match="unknown choice 'bisect' of 'about'"):
        asked("about: bisect")
    with pytest.raises(SymcommError, match="inconsistent link types: GPU2-GPU0 is NV4"):
        asked("about: ring\n" + MATRIX.replace("GPU2  SYS", "GPU2  NV4"))


def test_a_topology_is_a_value():
    assert read_topology(FOUR) == read_topology(FOUR)
    assert isinstance(read_topology(FOUR), Topology)
