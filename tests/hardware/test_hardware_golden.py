"""Published and hand-checked values about machines, each reproduced by a derivation."""

from __future__ import annotations

import json
import sys
from fractions import Fraction
from pathlib import Path

import pytest
from api import Wiring, balance, read_problem, read_topology, solve, wiring

sys.path.insert(0, str(Path(__file__).parent))
from asked import broadcast, gpu_copy, host_copy, peak_rate, speedup

DATA = Path(__file__).parent.parent / "data"
EXAMPLE = Path(__file__).parents[2] / "examples" / "gpu-topology-broadcast" / "topology.md"
GOLDEN = {entry["id"]: entry for entry in json.loads((DATA / "golden_hardware.json").read_text(encoding="utf-8"))}
TEXT = (DATA / "topology_damaged.md").read_text(encoding="utf-8")


def machine(p: dict[str, object]) -> Wiring:
    """The damaged matrix, with the rate of one link as the entry gives it."""
    return wiring(read_topology(TEXT), link_rate=p.get("rate"))


def amount(value: object, unit: str) -> str:
    return f"{value} {unit}"


CASES = {
    "003.topo.links": lambda p: machine(p).bandwidth("GPU0", "GPU7"),
    "003.topo.direct_links": lambda p: machine(p).direct_links(),
    "003.topo.bisection": lambda p: machine(p).bisection(),
    "003.topo.missing": lambda p: machine(p).missing("NV18"),
    "003.bcast.ratio12": lambda p: speedup(amount(p["t1"], "s"), amount(p["t2"], "s")),
    "003.bcast.ratio13": lambda p: speedup(amount(p["t1"], "s"), amount(p["t3"], "s")),
    # The entries count all the GPUs that receive the tensor; a plan, those besides the first.
    "003.bcast.h2d": lambda p: host_copy(amount(p["t1"], "s"), p["nd"] - 1),
    "003.bcast.d2d": lambda p: gpu_copy(amount(p["t1"], "s"), amount(p["t2"], "s"), p["nd"] - 1),
    "003.bcast.pipe": lambda p: broadcast(
        "pipelined", p["size"], p["link"], amount(p["lat"], "s"), chunks=p["chunks"], hops=p["hops"]
    ),
    "003.bcast.serial": lambda p: broadcast("serial", p["size"], p["link"], 0, p["nd"]),
    **{
        f"001.A100.{name}": lambda p, name=name: peak_rate(device="A100-80GB-SXM", dtype=name.lower())
        for name in ("FP64", "TF32", "FP16", "INT8", "INT4", "INT1")
    },
    "001.roofline.balance": lambda p: balance("A100-80GB-SXM", "fp16"),
}


def test_every_published_value_has_a_derivation():
    assert set(CASES) == set(GOLDEN)


@pytest.mark.parametrize("name", CASES)
def test_a_published_value_is_reproduced_exactly(name: str):
    entry = GOLDEN[name]
    assert CASES[name](entry["params"]).at().value == Fraction(entry["value"])


@pytest.mark.parametrize("name", [n for n in CASES if n.startswith("001.A100")])
def test_the_parts_of_a_published_rate_are_those_of_the_device(name: str):
    given = dict(CASES[name]({}).given)
    assert [given["f"], given["n_SM"], given["n_FMA"]] == [*GOLDEN[name]["params"].values()]


def test_the_example_answers_the_published_questions():
    document = solve(read_problem(EXAMPLE))
    found = [answer.quantity and answer.quantity.value for answer in document.answers()]

    def value(name: str) -> Fraction:
        return Fraction(GOLDEN[name]["value"])

    # By hand: 7 NV18 and one NODE are lost; 2 NUMA nodes; the card's path has no given rate; 4 x 4 x 18 cables cross.
    assert found == [
        8,
        2,
        None,
        value("003.topo.links"),
        value("003.topo.direct_links"),
        value("003.topo.bisection"),
        4 * 4 * 18 * 25 * 10**9,
        value("003.topo.links"),
        value("003.bcast.ratio12"),
        value("003.bcast.ratio13"),
        value("003.bcast.h2d"),
        4 * 10**9 / value("003.bcast.h2d"),
        value("003.bcast.d2d"),
        4 * 10**9 / value("003.bcast.d2d"),
        value("003.bcast.pipe"),
        value("003.bcast.serial"),
    ]
