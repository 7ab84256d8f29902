"""Networks of several levels: golden values, messages over four levels drawn at random, and what is refused."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, product
from math import prod
from pathlib import Path
from typing import Any

import pytest
from api import known_networks, main
from click.testing import CliRunner

import symcomm as sc

GOLDEN = json.loads((Path(__file__).parents[1] / "data" / "golden_long_context.json").read_text())["cases"]
SENT = {"communication": "sent_per_rank", "input_gradient": "not_needed"}


def cases(area: str) -> list[Any]:
    return [pytest.param(case, id=case["id"]) for case in GOLDEN if case["area"] == area]


def numbers(case: dict[str, Any]) -> dict[str, Fraction]:
    return {name: Fraction(value) for name, value in case["at"].items() if not isinstance(value, list)}


def written(path: Path, levels: str, device: str = "generic") -> sc.Network:
    text = f"networks:\n  ours:\n    device: {device}\n    source: a test\n    levels:\n"
    file = path / "ours.yaml"
    file.write_text(text + "".join(f"      {line.strip()}\n" for line in levels.strip().splitlines()))
    return sc.networks(file)["ours"]


def drawn(path: Path, sizes: list[int], rates: list[Fraction], waits: list[Fraction], cards: list[int]) -> sc.Network:
    """A network of some levels, innermost first."""
    rows = [
        f"l{n}: {{size: {size}, rate: {rate * 1000} kB/s, cards: {count}" + (f", latency: {wait} s}}" if wait else "}")
        for n, (size, rate, wait, count) in enumerate(zip(sizes, [r / 10**6 for r in rates], waits, cards, strict=True))
    ]
    return written(path, "\n".join(rows), "H100-SXM")


def one_weight(parameters: int) -> sc.Model:
    """One weight of so many numbers, of one byte each where its gradient is."""
    rows = next(n for n in range(int(parameters**0.5), 0, -1) if parameters % n == 0)
    table = "Computation\tInput\tOutput\ny = x W\tx [B, D], W [D, F]\ty [B, F]"
    return sc.load(table, values={"B": 2**10 * 3**4 * 5 * 7, "D": rows, "F": parameters // rows})


def reduced(network: sc.Network, parameters: int, strategy: str, **how: str) -> Fraction:
    """Seconds of the all-reduce of the weight's gradient, a byte a number."""
    made = one_weight(parameters).time(strategy, phase="end_of_batch", term="network", device=network,
                                       gradient_dtype="int8", accounting=how)  # fmt: skip
    return made.at().value


def bytes_over(network: sc.Network, parameters: int, strategy: str, level: str, **how: str) -> Fraction:
    made = one_weight(parameters).communication(strategy, level=level, device=network,
                                                gradient_dtype="int8", accounting={**SENT, **how})  # fmt: skip
    return made.at().value


# -- golden values ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", cases("levels.axis"))
def test_where_an_axis_lies_and_what_its_flow_has_out_of_a_node(case: dict[str, Any], tmp_path: Path) -> None:
    at = {name: int(value) for name, value in case["at"].items()}
    inside, nodes, _, flow = case["value"]
    fast = Fraction(10**12)
    net = drawn(tmp_path, [at["g"], at["world"] // at["g"]], [fast, Fraction(at["W"])], [0, 0], [1, at["nics"]])
    strategy = f"cut(F, {at['stride']}, mesh=other) + data({at['size']})" if at["stride"] > 1 else f"data({at['size']})"
    weights, k = 2880 * 6912, at["size"]
    for level, expected in (("l0", Fraction(2 * (int(inside) - 1), int(inside))),
                            ("l1", Fraction(2 * (int(nodes) - 1), int(nodes) * int(inside)))):  # fmt: skip
        found = bytes_over(net, weights, strategy, level, algorithm="hierarchical")
        assert found == expected * weights / at["stride"]
    if flow != "none leaves":
        assert reduced(net, weights, strategy) == 2 * Fraction(k - 1, k) * weights / at["stride"] / Fraction(flow)


@pytest.mark.parametrize("case", cases("levels.allreduce"))
def test_an_all_reduce_over_two_levels(case: dict[str, Any], tmp_path: Path) -> None:
    at = numbers(case)
    g, m, n = int(at["g"]), int(at["m"]), int(at["n"])
    net = drawn(tmp_path, [g, m], [at["W_in"], at["W_out"]], [at["a_in"], at["a_out"]], [1, g])
    hierarchical, flat, inside, between, card = map(Fraction, case["value"])
    strategy = f"data({g * m})"
    assert reduced(net, n, strategy, algorithm="hierarchical") == hierarchical
    assert reduced(net, n, strategy) == flat
    assert bytes_over(net, n, strategy, "l0", algorithm="hierarchical") == inside
    assert bytes_over(net, n, strategy, "l1", algorithm="hierarchical") == between
    assert bytes_over(net, n, strategy, "l1") == card


@pytest.mark.parametrize("case", cases("levels.crossover"))
def test_rings_on_all_network_cards_overtake_the_hierarchical_algorithm(case: dict[str, Any], tmp_path: Path) -> None:
    """g rings with a g-th of the bytes each are one ring over all cards of a node; both times are straight lines."""
    at = numbers(case)
    g, m = int(at["g"]), int(at["m"])
    net = drawn(tmp_path, [g, m], [at["W_in"], at["W_out"]], [at["a_in"], at["a_out"]], [1, g])
    cards = f"data={g * at['W_out'] / 1000} kB/s @ {at['a_out']} s"

    def longer(n: int) -> Fraction:
        rings = one_weight(n).time(f"data({g * m})", phase="end_of_batch", term="network", gradient_dtype="int8",
                                   device="H100-SXM", links=cards)  # fmt: skip
        return rings.at().value - reduced(net, n, f"data({g * m})", algorithm="hierarchical")

    n = 2**10 * 3**4
    slope = (longer(n) - longer(2 * n)) / n
    assert n + longer(n) / slope == Fraction(case["value"])


@pytest.mark.parametrize("case", cases("levels.crossover")[:1])
def test_one_call_finds_where_rings_on_all_cards_overtake_the_hierarchical_algorithm(
    case: dict[str, Any], tmp_path: Path
) -> None:
    at = numbers(case)
    g, m, columns = int(at["g"]), int(at["m"]), 2**6 * 3**4
    net = drawn(tmp_path, [g, m], [at["W_in"], at["W_out"]], [at["a_in"], at["a_out"]], [1, g])
    how = {"phase": "end_of_batch", "term": "network", "gradient_dtype": "int8"}
    model = sc.load("Computation\tInput\tOutput\ny = x W\tx [B, D], W [D, F]\ty [B, F]",
                    values={"B": 2**10 * 3**4 * 5, "F": columns})  # fmt: skip
    nested = model.time(f"data({g * m})", device=net, accounting="hierarchical", **how)
    cards = f"data={g * at['W_out'] / 1000} kB/s @ {at['a_out']} s"
    rings = model.time(f"data({g * m})", device="H100-SXM", links=cards, **how)
    found = sc.crossover(nested, rings, over="D", between=(1, 10**6)).at().value
    rows = Fraction(case["value"]) / columns
    assert found - 1 < rows <= found or found == rows


@pytest.mark.parametrize("case", cases("levels.three"))
def test_an_all_reduce_over_three_levels(case: dict[str, Any], tmp_path: Path) -> None:
    at = case["at"]
    sizes = [int(size) for size in at["sizes"]]
    cards = [prod(sizes[:n]) for n in range(3)]
    net = drawn(tmp_path, sizes, [*map(Fraction, at["W"])], [*map(Fraction, at["a"])], cards)
    time, *sent = map(Fraction, case["value"])
    strategy, n = f"data({prod(sizes)})", int(at["n"])
    assert reduced(net, n, strategy, algorithm="hierarchical") == time
    assert [bytes_over(net, n, strategy, f"l{i}", algorithm="hierarchical") for i in range(3)] == sent


@pytest.mark.parametrize("case", cases("levels.oversubscription"))
def test_an_oversubscribed_switch_leaves_a_part_of_the_cards(case: dict[str, Any], tmp_path: Path) -> None:
    at = numbers(case)
    levels = f"""node: {{size: {at["g"]}}}
        pod: {{size: {at["m"]}, cards: {at["g"]}, rate: {at["W_out"]} B/s, oversubscription: {at["o"]}}}"""
    net, strategy = written(tmp_path, levels, "H100-SXM"), f"data({at['g'] * at['m']})"
    inside = 2 * (at["g"] - 1) / at["g"] * at["n"] / (450 * 10**9)
    assert reduced(net, int(at["n"]), strategy, algorithm="hierarchical") - inside == Fraction(case["value"])


@pytest.mark.parametrize("case", [case for case in cases("levels.torus") if "k" in case.values[0].get("at", {})])
def test_a_line_takes_as_long_both_ways_as_one_way(case: dict[str, Any], tmp_path: Path) -> None:
    """An all-reduce takes twice an all-gather."""
    at = numbers(case)
    line = "a line" in case["question"]
    net = written(
        tmp_path, f"row: {{size: {at['k']}, rate: {at['W']} B/s, line: {'yes' if line else 'no'}}}", "H100-SXM"
    )
    made = reduced(
        net, int(at["n"]), f"data({at['k']})", algorithm="hierarchical" if line else "ring", rings="both_ways"
    )
    assert made == 2 * Fraction(case["value"])


@pytest.mark.parametrize("case", [case for case in cases("levels.torus") if "shape" in case.values[0].get("at", {})])
def test_all_axes_of_a_torus_are_used_at_once(case: dict[str, Any]) -> None:
    """Half of a ring's blocks go each way, first of one row (a 16th), then of all: (1/2)(1 + 1/16) of both halves.

    The case is the limit for large axes, 1/2.
    """
    at = case["at"]
    ranks = prod(map(int, at["shape"]))
    how = {"algorithm": "torus_2d", "torus": "all_axes_at_once", "rings": "both_ways", "message_cost": "bandwidth_only"}
    made = sc.derive("collective_time", collective="all-gather", payload=f"{at['n']} B", ranks=ranks,
                     bandwidth=f"{at['W']} B/s", accounting=how)  # fmt: skip
    assert made.at(k_x=int(at["shape"][0])).value == (1 + Fraction(1, int(at["shape"][0]))) * Fraction(case["value"])


@pytest.mark.parametrize("case", [case for case in cases("levels.torus") if not case.values[0].get("at")])
def test_which_axes_of_a_slice_wrap_around(case: dict[str, Any]) -> None:
    words = case["question"].split()
    net = sc.network(f"{words[words.index('TPU') + 1]} {words[words.index('slice') - 1]}".replace("v5", "TPU-v5", 1))
    around = [level.size for level in net.levels if not level.line]
    assert around == ([int(word) for word in case["value"].split() if word.isdigit()] or [])


@pytest.mark.parametrize(("name", "around"), [
    ("TPU-v5e 16x16", [16, 16]), ("TPU-v6e 4x4", []), ("TPU-v6e 16x2", [16]), ("TPU-v5p 4x4x8", [4, 4, 8]),
    ("TPU-v4 8x8x2", []), ("tpu v4 4x4x4", [4, 4, 4]),
])  # fmt: skip
def test_an_axis_of_a_whole_pod_and_the_axes_of_whole_cubes_wrap_around(name: str, around: list[int]) -> None:
    assert [level.size for level in sc.network(name).levels if not level.line] == around


def test_a_line_of_a_slice_takes_longer_than_a_ring_and_is_shown(tmp_path: Path) -> None:
    """Both ways round a ring of 16 a block goes 8 links at most; along a line of 2 each half goes all the way."""
    times = {}
    for name in ("TPU-v5e 16x1", "TPU-v5p 2x2x1"):
        net = sc.network(name)
        made = one_weight(2880 * 6912).time(
            f"data({net.size})", phase="end_of_batch", term="network", device=net, dtype="bf16", gradient_dtype="int8",
            accounting={"algorithm": "hierarchical", "rings": "both_ways"},
        )
        times[name] = made.at().value
    assert times["TPU-v5e 16x1"] == 2 * Fraction(8, 16) * 2880 * 6912 / (50 * 10**9)
    assert times["TPU-v5p 2x2x1"] == Fraction(2, 2) * (1 + Fraction(1, 2)) * 2880 * 6912 / (100 * 10**9)
    told = CliRunner().invoke(main, ["show", "TPU-v5p 2x2x4"]).output
    assert "slice  4 planes   16       4 x ICI (3D torus) along z, a line  100 GB/s" in told


def test_a_slice_that_a_torus_does_not_have_is_refused() -> None:
    for name in ("TPU-v5e 4x4x4", "TPU-v5e 32x32"):
        with pytest.raises(sc.SymcommError) as caught:
            sc.network(name)
        assert str(caught.value) == (
            f"TPU-v5e has no slice of {name.split()[1]}\nhint: 2 axes and at most 256 devices, such as 16x16"
        )


# -- messages one by one ------------------------------------------------------------------------------------


class Messages:
    """Rounds of messages over a network: each takes its latency, and its bytes at its part of the cards on its way."""

    def __init__(self, sizes: list[int], rates: list[Fraction], waits: list[Fraction], cards: list[int]) -> None:
        self.sizes, self.rates, self.waits, self.cards = sizes, rates, waits, cards
        self.units = [prod(sizes[:n]) for n in range(len(sizes))]
        self.time = Fraction(0)
        self.sent: Counter[tuple[int, int]] = Counter()

    def level(self, a: int, b: int) -> int:
        """The level that joins two ranks: the first whose units hold both."""
        return next(
            n for n, unit in enumerate(self.units) if a // (unit * self.sizes[n]) == b // (unit * self.sizes[n])
        )

    def round(self, messages: list[tuple[int, int]], size: Fraction) -> None:
        flows: Counter[tuple[int, int]] = Counter()
        for a, b in messages:
            self.sent[a, self.level(a, b)] += size
            flows.update((n, a // self.units[n]) for n in range(1, self.level(a, b) + 1))
        longest = Fraction(0)
        for a, b in messages:
            top = self.level(a, b)
            ways = [self.rates[n] * min(Fraction(1), Fraction(self.cards[n], flows[n, a // self.units[n]]))
                    for n in range(1, top + 1)]  # fmt: skip
            longest = max(longest, self.waits[top] + size / min([self.rates[0], *ways]))
        self.time += longest

    def rings(self, groups: list[list[int]], size: Fraction) -> None:
        """All groups at once: each member sends a part of the tensor to the next one, k - 1 times."""
        for _ in range(len(groups[0]) - 1):
            self.round([(g[i], g[(i + 1) % len(g)]) for g in groups for i in range(len(g))], size / len(groups[0]))


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", range(12))
def test_a_network_of_four_levels_takes_the_time_of_its_messages(seed: int, tmp_path: Path) -> None:
    """Hierarchical and flat all-reduce of an axis that begins at some stride, over four levels drawn at random."""
    draw = random.Random(seed)
    sizes = [draw.choice([2, 3, 4]) for _ in range(4)]
    units = [prod(sizes[:n]) for n in range(4)]
    rates, waits, cards = [Fraction(draw.randint(500, 900))], [Fraction(draw.randint(0, 3))], [1]
    for unit in units[1:]:
        cards.append(draw.randint(1, unit))
        share = rates[-1] * min(1, Fraction(cards[-2], max(1, unit // sizes[units.index(unit) - 1])))
        rates.append(Fraction(draw.randint(1, max(1, int(share)))))
        waits.append(waits[-1] + draw.randint(0, 3))
    net = drawn(tmp_path, sizes, rates, waits, cards)
    world, stride = prod(sizes), draw.choice([1, *(unit for unit in units[1:3])])
    k, weights = world // stride, 2880 * 6912
    groups = [[first + stride * i for i in range(k)] for first in range(stride)]
    strategy = f"cut(F, {stride}, mesh=other) + data({k})" if stride > 1 else f"data({k})"
    payload = Fraction(weights, stride)

    flat = Messages(sizes, rates, waits, cards)
    for _ in range(2):
        flat.rings(groups, payload)
    assert reduced(net, weights, strategy) == flat.time

    nested, part = Messages(sizes, rates, waits, cards), payload
    rounds = []
    for n, unit in enumerate(units):
        if unit >= stride:
            places = sorted({(rank // (unit * sizes[n]), rank % unit) for rank in range(world)})
            rounds.append(
                ([[top * unit * sizes[n] + low + unit * i for i in range(sizes[n])] for top, low in places], part)
            )
            part /= sizes[n]
    for rings, size in [*rounds, *reversed(rounds)]:
        nested.rings(rings, size)
    assert reduced(net, weights, strategy, algorithm="hierarchical") == nested.time
    for n in range(4):
        found = bytes_over(net, weights, strategy, f"l{n}", algorithm="hierarchical")
        assert found == max(sent for (_, level), sent in [*nested.sent.items(), ((0, n), 0)] if level == n)
        found = bytes_over(net, weights, strategy, f"l{n}")
        assert found == max(sent for (_, level), sent in [*flat.sent.items(), ((0, n), 0)] if level == n)


# -- rails ------------------------------------------------------------------------------------------------


class OnRails(Messages):
    """Messages between nodes of a unit (level 1) from place to place: ``over`` the level above, or inside first."""

    over = False

    def level(self, a: int, b: int) -> int:
        found, node = super().level(a, b), self.sizes[0]
        return 2 if self.over and found == 1 and a % node != b % node else found

    def to_every_other(self, group: list[int], size: Fraction) -> None:
        """Each member sends so many bytes to each other one, in rounds of one distance on every level."""
        node, world = self.sizes[0], prod(self.sizes)
        shifts: dict[tuple[int, ...], list[tuple[int, int]]] = {}
        for a, b in product(group, group):
            at = tuple((b // unit - a // unit) % n for unit, n in zip(self.units, self.sizes, strict=True))
            shifts.setdefault(at, []).extend([(a, b)] if a != b else [])
        for messages in shifts.values():
            relays = [(a, a // node * node + b % node) for a, b in messages]
            on_rail = super().level(*messages[0]) == 1 if messages else False
            if on_rail and not self.over and relays[0][0] != relays[0][1]:
                self.round(relays, size)
                messages = [(relay, b) for (_, relay), (_, b) in zip(relays, messages, strict=True)]
            if messages:
                self.round(messages, size)
        assert world % len(group) == 0


RAILS = """
    node: {{size: {0}, rate: 900 kB/s, latency: 1 s}}
    unit: {{size: {1}, rate: 90 kB/s, cards: {0}, latency: 2 s, rails: yes}}
    pod: {{size: {2}, link: spine, oversubscription: 3, latency: 5 s}}
"""


@pytest.mark.parametrize("rails", ["changed_inside", "over_spine"])
@pytest.mark.parametrize(("sizes", "stride", "k"), [
    ([4, 2, 2], 1, 16), ([4, 2, 2], 1, 8), ([4, 3, 2], 4, 3), ([4, 2, 2], 2, 4), ([2, 4, 2], 1, 16), ([4, 2, 2], 2, 8),
])  # fmt: skip
def test_messages_to_another_place_change_rails_inside_the_node_or_over_the_spine(
    sizes: list[int], stride: int, k: int, rails: str, tmp_path: Path
) -> None:
    """All-to-all of experts over an axis of a stride, straight: each rank has 15 tokens of 64 numbers."""
    net = written(tmp_path, RAILS.format(*sizes), "H100-SXM")
    rates = [Fraction(900_000), Fraction(90_000), Fraction(90_000)]
    sim = OnRails(sizes, rates, [Fraction(1), Fraction(2), Fraction(5)], [1, sizes[0], prod(sizes[:2])])
    sim.cards[2] = Fraction(sizes[0] * sizes[1], 3)  # type: ignore[call-overload]
    sim.over = rails == "over_spine"
    model = sc.load(EXPERTS | {"num_local_experts": 48, "num_experts_per_tok": 3}, values={"B": 3 * k, "L": 5})
    strategy = f"tensor({stride}) + data({k}) + expert" if stride > 1 else f"data({k}) + expert"
    how = {**SENT, "algorithm": "all-to-all: pairwise", "rails": rails}
    payload = Fraction(15 * 3 * 64 * 2)
    for first in range(stride):
        sim.to_every_other([first + stride * i for i in range(k)], payload / k)
    for n, level in enumerate(("node", "unit", "pod")):
        made = model.communication(strategy, level=level, device=net, collective="all-to-all", accounting=how)
        assert made.at().value == 2 * 4 * sim.sent[0, n]
        made.check(deep=True)
        assert ("rails" in made.touched) == (stride < sizes[0])
    if stride == 1:
        made = model.time(strategy, phase="microbatch", term="network", device=net, accounting=how)
        assert made.at().value == 2 * 4 * sim.time


@pytest.mark.parametrize("rails", ["changed_inside", "over_spine"])
def test_a_ring_from_one_place_to_another_goes_over_the_spine_or_changes_rails_inside(
    rails: str, tmp_path: Path
) -> None:
    """Eight ranks, node by node: two nodes of a unit. One of equal places stays on its rail."""
    net, weights = written(tmp_path, RAILS.format(4, 2, 2), "H100-SXM"), 2880 * 6912
    sim = OnRails([4, 2, 2], [Fraction(900_000), Fraction(90_000), Fraction(90_000)], [1, 2, 5], [1, 4, 2])
    sim.over = rails == "over_spine"
    for _ in range(2):
        sim.rings([[*range(8)]], Fraction(weights))
    assert reduced(net, weights, "data(8)", rails=rails) == sim.time
    for n, level in enumerate(("node", "unit", "pod")):
        most = max(sim.sent[rank, n] for rank in range(8))
        found = bytes_over(net, weights, "data(8)", level, rails=rails)
        # The message over the spine passes the switch of its rail, too.
        assert found == (most if n != 1 else Fraction(2 * 7, 8) * weights)
    rail, straight = "cut(F, 4, mesh=other) + data(2)", {"rails": rails}
    made = one_weight(weights).time(rail, phase="end_of_batch", term="network", gradient_dtype="int8", device=net,
                                    accounting=straight)  # fmt: skip
    assert made.at().value == 2 * (2 + Fraction(weights, 4 * 2) / 90_000)
    assert "rails" not in made.touched


def test_rails_without_a_level_above_are_joined_inside_the_nodes_alone(tmp_path: Path) -> None:
    levels = "node: {size: 4}\nunit: {size: 2, rate: 50 GB/s, cards: 4, rails: yes}"
    with pytest.raises(sc.SymcommError) as caught:
        reduced(written(tmp_path, levels, "H100-SXM"), 2880 * 6912, "data(8)", rails="over_spine")
    assert str(caught.value) == (
        "no level is above 'unit', over which its rails are joined\nhint: rails: changed_inside"
    )


# -- tokens that go to few nodes ---------------------------------------------------------------------------

EXPERTS = {
    "model_type": "mixtral", "hidden_size": 64, "intermediate_size": 256, "num_hidden_layers": 2, "vocab_size": 256,
    "num_attention_heads": 8, "num_key_value_heads": 4, "num_local_experts": 16, "num_experts_per_tok": 4,
}  # fmt: skip


def dispatched(nested: Messages, most: int, algorithm: str, copy: Fraction) -> None:
    """Sends the tokens of one exchange: of each rank one token of so many bytes for every choice, an equal part each.

    All ways to choose so many nodes and equally many experts in each; there are two experts on a rank. A node's copy
    goes to the rank of the same place, straight or level by level, which sends one for each expert of another rank.
    """
    sizes, units, world = nested.sizes, nested.units, prod(nested.sizes)
    node, each = sizes[0], 4 // most
    choices = [[(one * node + expert // 2) for one, there in zip(nodes, chosen, strict=True) for expert in there]
               for nodes in combinations(range(world // node), most)
               for chosen in product(combinations(range(2 * node), each), repeat=most)]  # fmt: skip
    stages: list[Counter[tuple[int, int]]] = [Counter() for _ in sizes]

    def hop(stage: int, a: int, b: int) -> None:
        stages[stage][a, b] += Fraction(a != b, len(choices)) * copy

    for rank, experts in product(range(world), choices):
        for one in {expert // node for expert in experts}:
            relay, here = one * node + rank % node, rank
            for n in range(1, len(sizes)) if algorithm == "hierarchical" else ():
                there = here + (relay // units[n] % sizes[n] - here // units[n] % sizes[n]) * units[n]
                hop(n, here, there)
                here = there
            hop(1, here, relay)
        for expert in experts:
            hop(0, expert // node * node + rank % node, expert)
    for stage in stages:  # in a round all ranks send to those that are as many places further on every level
        rounds: dict[tuple[int, ...], list[tuple[int, int]]] = {}
        for a, b in (pair for pair, size in stage.items() if size):
            shift = tuple((b // unit - a // unit) % size for unit, size in zip(units, sizes, strict=True))
            rounds.setdefault(shift, []).append((a, b))
        for messages in rounds.values():
            assert len(messages) == world
            (size,) = {stage[pair] for pair in messages}
            nested.round(messages, size)


@pytest.mark.parametrize(("sizes", "most", "algorithm"), [
    ([2, 4], 2, "pairwise"), ([2, 4], 1, "hierarchical"), ([4, 2], 2, "hierarchical"), ([2, 2, 2], 2, "pairwise"),
    ([2, 2, 2], 2, "hierarchical"), ([2, 4, 1, 1], 1, "hierarchical"), ([2, 2, 2], 1, "hierarchical"),
    ([1, 2, 2, 2], 4, "hierarchical"), ([1, 2, 2, 2], 4, "pairwise"),
])  # fmt: skip
def test_tokens_go_to_the_experts_of_few_nodes(sizes: list[int], most: int, algorithm: str, tmp_path: Path) -> None:
    """Two layers with four exchanges each, of 64 numbers of two bytes for a copy; 3 sequences of 5 tokens a rank."""
    rates = [Fraction(2 ** (20 - 3 * n)) for n in range(len(sizes))]
    cards = [1, *(prod(sizes[:n]) for n in range(1, len(sizes)))]
    waits = [Fraction(n, 1000) for n in range(1, len(sizes) + 1)]
    net = drawn(tmp_path, sizes, rates, waits, cards)
    strategy, how = f"data({prod(sizes)}) + expert(nodes={most})", {**SENT, "algorithm": f"all-to-all: {algorithm}"}
    model = sc.load(EXPERTS, values={"B": 3 * prod(sizes), "L": 5})
    nested = Messages(sizes, rates, waits, cards)
    dispatched(nested, most, algorithm, Fraction(3 * 5 * 64 * 2))
    for n in range(len(sizes)):
        made = model.communication(strategy, level=f"l{n}", device=net, collective="all-to-all", accounting=how)
        assert {2 * 4 * nested.sent[rank, n] for rank in range(prod(sizes))} == {made.at().value}
        made.check(deep=True)
    made = model.time(strategy, phase="microbatch", term="network", device=net, accounting=how)
    assert made.at().value == 2 * 4 * nested.time


def test_fewer_nodes_than_experts_of_a_token_have_each_token_once() -> None:
    """DeepSeek-V3: of 8 copies at most 4 leave for other nodes, which halves their bytes (arXiv 2505.09343, 4.3)."""
    links = "node=4, inside=450 GB/s, between=50 GB/s"
    model = sc.load(EXPERTS | {"num_experts_per_tok": 8}, values={"B": 16, "L": 8})
    sent = [model.communication(f"data(16) + expert{nodes}", level="between", links=links, collective="all-to-all",
                                accounting=SENT).at().value for nodes in ("", "(nodes=4)", "(nodes=2)")]  # fmt: skip
    assert sent[0] == 2 * sent[1] == 4 * sent[2]


def test_a_limit_of_nodes_that_would_change_nothing_is_refused() -> None:
    model, links = sc.load(EXPERTS, values={"B": 16, "L": 8}), "node=4, inside=450 GB/s, between=50 GB/s"

    def refusal(strategy: str, **options: Any) -> str:
        with pytest.raises(sc.SymcommError) as caught:
            model.communication(strategy, collective="all-to-all", **options)
        return str(caught.value)

    assert refusal("data(16) + expert(nodes=2)") == (
        "a limit of nodes changes only the bytes of a level, and there is no level\n"
        "hint: level=between, links=node=8, inside=900 GB/s, between=50 GB/s"
    )
    over = {"level": "between", "links": links}
    assert refusal("data(16) + expert(nodes=2)", **over, accounting={**SENT, "algorithm": "all-to-all: ring"}) == (
        "the algorithm 'ring' does not send a token to each of its nodes once\n"
        "hint: algorithm: pairwise, or hierarchical"
    )
    few = sc.load(EXPERTS | {"num_experts_per_tok": 5}, values={"B": 16, "L": 8})
    with pytest.raises(sc.SymcommError) as caught:
        few.communication("data(16) + expert(nodes=1)", collective="all-to-all", **over, accounting=SENT)
    assert str(caught.value) == "a token goes to 5 experts, but 1 node has 4\nhint: expert(nodes=2)"
    assert few.communication("data(16) + expert(nodes=2)", **over, collective="all-to-all", accounting=SENT).at().value
    assert refusal("data(16) + expert(nodes=some)", **over) == (
        "'some' is no number of nodes\nhint: for instance expert(nodes=4)"
    )
    assert refusal("data(2) + ulysses(4, mesh=sp) + expert(4, mesh=sp, nodes=2)", **over, accounting=SENT) == (
        "every all-to-all over 'sp' has to take tokens to equally many experts\n"
        "hint: leave out nodes=, or give the experts an axis of their own"
    )
    assert refusal("expert(16, nodes=2)", **over, accounting=SENT) == (
        "each rank of 'data' has all tokens, so none travels and nodes= limits nothing\n"
        "hint: data(64) + expert(nodes=4) spreads tokens and experts"
    )
    with pytest.raises(sc.SymcommError) as caught:
        model.step_time("data(16) + expert(nodes=2)", device="H100-SXM", network="50 GB/s")
    assert str(caught.value) == (
        "the experts of a token are on 2 nodes, but the links have none\n"
        "hint: for instance node=8, inside=900 GB/s, between=50 GB/s"
    )


# -- registered at run time ----------------------------------------------------------------------------------

FOUR = """
    node: {size: 4}
    rack: {size: 2, link: IB, cards: 2, rate: 50 GB/s, latency: 2 us}
    row: {size: 4, link: leaf, oversubscription: 2, latency: 5 us}
    hall: {size: 2, link: spine, cards: 4, rate: 25 GB/s, latency: 20 us}
"""


def test_a_network_of_four_levels_is_one_record_for_every_quantity(tmp_path: Path) -> None:
    """Messages of the same levels by hand: 450 GB/s; 2 cards of 50 for 4; half of 4 such for 8; 4 of 25 for 32."""
    net = written(tmp_path, FOUR, "H100-SXM")
    assert net.told == (
        "ours: nodes of 4 H100-SXM, joined by NVLink 4; racks of 2 nodes, joined by IB with 25 GB/s a device; rows of "
        "4 racks, joined by leaf with 12.5 GB/s a device; 2 rows, joined by spine with 3.125 GB/s a device."
    )
    model = one_weight(2880 * 6912)
    step = model.step_time("data(16) + cut(F, 4, mesh=other)", device=net)
    assert "A node has 4 ranks, a rack 8, a row 32: `other` (4 ranks) lies inside, `data` (16 ranks) has 2 inside a " \
           "rack, 4 inside a row and goes between rows." in step.notes  # fmt: skip
    step.check(deep=True)
    found = sc.search(
        model, devices=64, device=net, capacity_is="nominal_GB", strategies="data + cut(F, t, mesh=other)",
        microbatches="1", recomputation="none", jobs=1, top=100,
    )  # fmt: skip
    assert len(found.top) == 7
    for one in found.top:
        assert model.step_time(one.strategy, device=net, microbatches=1).at().value == one.time.value, one.strategy


def test_the_levels_of_a_network_are_shown() -> None:
    told = CliRunner().invoke(main, ["show", "Ethernet-V100"])
    assert told.exit_code == 0
    assert told.output == (
        "Ethernet-V100: 256 V100-32GB-SXM\n"
        "level    joins            devices  links of a unit           a device has  latency\n"
        "node     8 V100-32GB-SXM  8        NVLink 2                  150 GB/s\n"
        "rack     4 nodes          32       1 x 100-gigabit Ethernet  1.5625 GB/s   10 µs\n"
        "cluster  8 racks          256      a core switch, 3:1        520.8 MB/s    20 µs\n"
        "source: a cheap cluster as many build it; no product\n"
    )


@pytest.mark.parametrize("name", known_networks())
def test_every_known_network_reduces_gradients_over_all_of_its_devices(name: str) -> None:
    net = known_networks()[name]
    made = one_weight(2880 * 6912).time(f"data({net.size})", phase="end_of_batch", term="network", device=name,
                                        dtype=[*net.device.rates][-2], accounting="hierarchical")  # fmt: skip
    assert {f"t_{level.name}" for level in net.levels} <= {*made.worth}


def test_a_network_for_a_search_comes_from_a_file(tmp_path: Path) -> None:
    written(tmp_path, FOUR, "H100-SXM")
    gpt3 = str(Path(__file__).parents[2] / "examples" / "search" / "gpt3.md")
    words = ["search", gpt3, "--devices", "128", "--device", str(tmp_path / "ours.yaml"), "--capacity-is", "nominal_GB"]
    told = CliRunner().invoke(main, words)
    assert told.output == (
        "error: ours has 2 x 4 x 2 x 4 devices, but there are 128 ranks\n"
        "hint: a network of your own with larger levels (node 4, rack 2, row 4, hall 2)\n"
    )


# -- what is refused -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("level", "said"), [
    ("node: {size: 0}", "'size' must be a positive whole number, but is '0'"),
    ("node: {size: 8}\nrack: {size: 2, rate: 900 GB/s}",
     "'rack' gives a device 900 GB/s, but its messages go through 'node' with 450 GB/s"),
    ("node: {size: 8}\nrack: {size: 2, rate: 9 GB/s, latency: 5 us}\nrow: {size: 2, latency: 2 us}",
     "a message over 'row' is sooner there than over 'rack'"),
    ("node: {size: 8}\nrack: {size: 2, rate: 9 GB/s, oversubscription: 1/2}",
     "'oversubscription' is how many times too little there is for all: a number from 1 on"),
    ("a node: {size: 8}", "'a node' is no name of a level\nhint: such as node, rack or pod"),
    ("node: {size: 8, speed: 9 GB/s}", "unknown key 'speed'"),
])  # fmt: skip
def test_a_network_that_cannot_be_is_refused_at_its_line(level: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(sc.SymcommError) as caught:
        written(tmp_path, level, "H100-SXM")
    assert said.split("\n")[0] in str(caught.value)
    assert said.split("\n")[-1] in str(caught.value)
    assert "ours.yaml:" in str(caught.value)


@pytest.mark.parametrize(("options", "said"), [
    ({"level": "node"}, "the network has no level 'node'\nhint: links: node=8, inside=..., between=..."),
    ({"level": "rack", "device": "DGX-H100", "accounting": SENT},
     "the network has no level 'rack'\nhint: its levels are node, pod, host and nvme"),
    ({"level": "pod", "device": "DGX-H100"},
     "payload counts no level: a rank sends over it, or it does not\nhint: accounting: sent_per_rank"),
    ({"device": "DGX-H100"}, "where the ranks are changes no bytes\nhint: ask for those over a level: level: between"),
    ({"level": "pod", "device": "DGX-H100", "accounting": {**SENT, "algorithm": "tree"}},
     "which messages of the algorithm 'tree' go over 'pod' is not known\nhint: algorithm: ring, or hierarchical"),
    ({"level": "node", "device": "DGX-H100", "accounting": SENT, "strategy": "data(5) + cut(F, 4, mesh=other)"},
     "the 2 places that a node of 8 ranks has for 'data' do not share out its 5 ranks evenly"),
])  # fmt: skip
def test_bytes_over_a_level_that_cannot_be_counted_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(sc.SymcommError) as caught:
        one_weight(2880 * 6912).communication(**{"strategy": "data(16)", **options})
    assert said in str(caught.value)


def test_the_level_of_the_host_counts_what_is_copied_there_and_back() -> None:
    """ZeRO-Offload: an eighth of the gradients goes there and of the weights comes back, two bytes a number."""
    weights = 2880 * 6912
    model, how = one_weight(weights), {"accounting": {"offloading": "states_on_host", **SENT}}
    assert model.communication("zero-2(8)", level="host", **how).at().value == 2 * weights / 8 * 2
    assert model.communication("zero-2(8)", level="host").at().value == 0


@pytest.mark.parametrize("case", cases("offload.zero"))
def test_zero_offload_copies_its_part_of_gradients_out_and_of_weights_in(case: dict[str, Any]) -> None:
    at = {name: int(value) for name, value in case["at"].items()}
    out, back, seconds = map(Fraction, case["value"])
    model = replace(one_weight(at["P"]), dtype="fp16")
    how = {"offloading": "states_on_host", **SENT}
    assert model.communication(f"zero-2({at['k']})", level="host", accounting=how).at().value == out + back
    made = model.time(f"zero-2({at['k']})", phase="end_of_batch", term="network", network="1 GB/s",
                      accounting="states_on_host", links={"host": f"{at['W']} B/s"})  # fmt: skip
    alone = model.time(f"zero-2({at['k']})", phase="end_of_batch", term="network", network="1 GB/s")
    assert made.at().value - alone.at().value == seconds


def test_an_unknown_network_is_told_with_those_that_are_known() -> None:
    with pytest.raises(sc.SymcommError, match="unknown network 'DGX-H1'\nhint: known: DGX-H100, DGX-A100"):
        sc.network("DGX-H1")
