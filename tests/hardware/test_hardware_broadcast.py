"""Broadcast plans against an event simulation, and what measured times say about links."""

from __future__ import annotations

import sys
from collections import defaultdict
from fractions import Fraction
from pathlib import Path

import pytest
from api import SymcommError, Unit, parse_problem, solve
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))
from asked import PLANS, STATEMENTS, broadcast, gpu_copy, host_copy, speedup

# A message: (sender, receiver, chunk, bytes, latency, bandwidth). It starts once its sender holds the chunk and the
# sender's port is free; messages of one port leave in the order of the list.
Message = tuple[str, str, int, Fraction, Fraction, Fraction]


def simulate(messages: list[Message], ports: dict[str, str] | None = None) -> tuple[Fraction, dict[str, set[int]]]:
    """Event by event: the time when the last message has arrived, and the chunks that each device then holds."""
    holds: dict[str, dict[int, Fraction]] = defaultdict(dict)
    for _, _, chunk, *_ in messages:
        holds["host"][chunk] = Fraction(0)
    free: dict[str, Fraction] = defaultdict(Fraction)
    clock = Fraction(0)
    waiting = list(messages)
    while waiting:
        # The first message of each port whose chunk is there may start.
        seen: set[str] = set()
        for message in waiting:
            sender, receiver, chunk, size, latency, rate = message
            port = (ports or {}).get(sender, sender)
            if port in seen:
                continue
            seen.add(port)
            if chunk not in holds[sender]:
                continue
            start = max(free[port], holds[sender][chunk])
            end = start + latency + size / rate
            free[port] = end
            holds[receiver][chunk] = end
            clock = max(clock, end)
            waiting.remove(message)
            break
        else:
            raise AssertionError("no message can start")
    return clock, {name: set(chunks) for name, chunks in holds.items()}


numbers = st.fractions(Fraction(1, 1000), 1000, max_denominator=1000)
small = st.integers(1, 6)


@given(small, numbers, numbers, numbers)
@settings(deadline=None)
def test_the_host_plan_takes_what_its_messages_take(n: int, size: Fraction, rate: Fraction, alpha: Fraction):
    plan = [("host", f"g{i}", 0, size, alpha, rate) for i in range(n + 1)]
    end, holds = simulate(plan)
    assert all(holds[f"g{i}"] == {0} for i in range(n + 1))
    made = broadcast("host", size, receivers=n, host_bandwidth=rate, host_latency=alpha)
    assert made.at().value == end


@given(small, numbers, numbers, numbers)
@settings(deadline=None)
def test_the_serial_plan_takes_what_its_messages_take(n: int, size: Fraction, rate: Fraction, alpha: Fraction):
    plan = [("host", "g0", 0, size, alpha, rate), *(("g0", f"g{i}", 0, size, alpha, rate) for i in range(1, n + 1))]
    end, holds = simulate(plan)
    assert all(holds[f"g{i}"] == {0} for i in range(n + 1))
    assert broadcast("serial", size, rate, alpha, n).at().value == end


@given(small, numbers, numbers, numbers, numbers, numbers)
@settings(deadline=None)
def test_the_relay_takes_what_its_messages_take(
    n: int, size: Fraction, slow: Fraction, fast: Fraction, a: Fraction, b: Fraction
):
    plan = [("host", "g0", 0, size, a, slow), *(("g0", f"g{i}", 0, size, b, fast) for i in range(1, n + 1))]
    end, _ = simulate(plan)
    made = broadcast("relay", size, fast, b, n, host_bandwidth=slow, host_latency=a)
    assert made.at().value == end


@given(small, st.integers(1, 9), numbers, numbers, numbers)
@settings(deadline=None)
def test_the_pipeline_takes_what_its_chunks_take(h: int, c: int, size: Fraction, rate: Fraction, alpha: Fraction):
    stops = ["host", *(f"g{i}" for i in range(h))]
    plan = [(stops[i], stops[i + 1], chunk, size / c, alpha, rate) for chunk in range(c) for i in range(h)]
    end, holds = simulate(plan)
    assert all(holds[stop] == set(range(c)) for stop in stops)
    assert broadcast("pipelined", size, rate, alpha, chunks=c, hops=h).at().value == end


def test_the_simulation_knows_a_plan_that_never_delivers():
    with pytest.raises(AssertionError, match="no message can start"):
        simulate([("g1", "g0", 0, Fraction(1), Fraction(0), Fraction(1))])


@pytest.mark.parametrize("name", PLANS)
def test_every_plan_is_a_time_in_symbols(name: str):
    made = broadcast(name)
    assert made.unit == Unit.parse("second")
    assert {"S"} < {s.name for s in made.expr.free_symbols}
    assert STATEMENTS[name] == made.notes
    assert all(made.notation.meaning(symbol) for symbol in made.needs)


def test_the_formulas_of_the_plans_are_those_that_are_written_down():
    assert str(broadcast("serial", latency=0).expr) == "S*(n + 1)/w"
    assert str(broadcast("pipelined", latency=0).expr) == "S*(c + h - 1)/(c*w)"
    assert str(broadcast("relay", latency=0, host_latency=0).expr) == "S*n/w + S/w_host"


def test_one_chunk_over_two_links_is_a_relay_to_one_receiver():
    pipe = broadcast("pipelined", "4 GB", "50 GB/s", "20 us", chunks=1, hops=2)
    assert pipe.at() == broadcast("serial", "4 GB", "50 GB/s", "20 us", receivers=1).at()


# -- measured times -------------------------------------------------------------------------------------------


@given(small, numbers, numbers)
@settings(deadline=None)
def test_measured_plans_give_back_the_copies_they_were_made_of(n: int, host: Fraction, copy: Fraction):
    before, after = (1 + n) * host, host + n * copy
    assert host_copy(before, n).at().value == host
    assert gpu_copy(before, after, n).at().value == copy
    assert gpu_copy(before, after, n, size=Fraction(7)).at().value == 7 / copy
    assert speedup(before, after).at().value == before / after


WRONG = {
    "no such plan": (lambda: broadcast("relais"), "unknown plan 'relais'\nhint: did you mean 'relay'?"),
    "a bandwidth of zero": (lambda: broadcast("serial", bandwidth="0 GB/s"), "bandwidth = 0 GB/s: it must be positive"),
    "a negative bandwidth": (
        lambda: broadcast("serial", bandwidth="-1 GB/s"),
        "bandwidth = -1 GB/s: it must be positive",
    ),
    "a negative latency": (lambda: broadcast("serial", latency="-1 s"), "latency = -1 s: it must be positive"),
    "GB for GB/s": (
        lambda: broadcast("serial", bandwidth="50 GB"),
        "bandwidth is given in B, but must be in B/s\nhint: such as 25 GB/s",
    ),
    "GB/s for GB": (
        lambda: broadcast("serial", size="4 GB/s"),
        "size is given in B/s, but must be in B\nhint: such as 4 GB",
    ),
    "FLOPs": (lambda: broadcast("serial", size="4 GFLOP"), "size is given in FLOP, but must be in B"),
    "no seconds": (lambda: host_copy("4 GB", 3), "before is given in B, but must be in s"),
    "half a chunk": (lambda: broadcast("pipelined", chunks="1/2"), "chunks = 1/2: a whole number is needed"),
    "no chunk": (lambda: broadcast("pipelined", chunks=0), "'chunks' is 0, but it must be positive"),
    "chunks of a serial plan": (
        lambda: broadcast("serial", chunks=3),
        "chunks makes no difference to 'Time of the broadcast, serial plan'",
    ),
    "a relay faster than its first copy": (
        lambda: gpu_copy("4 s", "1/2 s", 3),
        "the relay took 500 ms, but one copy from the host alone takes 1 s",
    ),
    "a float": (
        lambda: broadcast("serial", bandwidth=50e9),
        "bandwidth is the float 50000000000.0, which is not exact",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_makes_no_sense_is_refused(what: str):
    derive, message = WRONG[what]
    with pytest.raises(SymcommError) as caught:
        derive()
    assert str(caught.value).startswith(message)


def test_a_problem_file_asks_for_plans_and_copies():
    text = """# Q

```symcomm
- {ask: broadcast, plan: serial, size: 4 GB, bandwidth: 50 GB/s, latency: 0, receivers: 3}
- {ask: broadcast, about: host_copy, before: 8 s, receivers: 3}
- {ask: broadcast, about: gpu_copy, before: 8 s, after: 5 s, receivers: 3}
- {ask: broadcast, about: speedup, before: 8 s, after: 5 s}
```
"""
    found = [a.quantity and a.quantity.value for a in solve(parse_problem(text)).answers()]
    assert found == [Fraction(8, 25), 2, 1, Fraction(8, 5)]


def test_a_problem_file_without_a_plan_is_refused():
    with pytest.raises(SymcommError, match="say which plan"):
        solve(parse_problem("# Q\n\n```symcomm\nask: broadcast\n```\n"))
