"""Parameter servers, local updates, compressed gradients: golden values and messages one by one."""

from __future__ import annotations

import json
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from api import messages_run

import symcomm as sc

GOLDEN = json.loads((Path(__file__).parents[1] / "data" / "golden_long_context.json").read_text())["cases"]


def cases(area: str) -> list[Any]:
    return [pytest.param(case, id=case["id"]) for case in GOLDEN if case["area"] == area]


def worth(sheet: str, **options: object) -> Fraction:
    found = sc.derive(sheet, **options).at().value
    assert isinstance(found, Fraction | int)
    return Fraction(found)


@pytest.mark.parametrize("case", cases("local.bytes"))
def test_local_updates_send_a_part_of_the_bytes(case: dict[str, Any]) -> None:
    at = case["at"]
    said = {"parameters": int(at["P"]), "number_bytes": f"{at['b']} B", "replicas": int(at["k"]), "steps": int(at["H"])}
    bytes_a_step, part = map(Fraction, case["value"])
    assert worth("local_updates", **said) == bytes_a_step
    assert worth("local_updates", want="ratio", **said) == part
    ring = messages_run("ring", "all-reduce", int(at["k"]), Fraction(at["P"]) * int(at["b"]))
    assert ring is not None
    assert ring.sent == bytes_a_step * int(at["H"])
    late = worth("local_updates", want="time", step="1 s", bandwidth="1 GB/s", **said)
    assert late == 1 + bytes_a_step / 10**9
    assert worth("local_updates", want="memory", parameters=int(at["P"])) == 8 * int(at["P"])


@pytest.mark.parametrize(("workers", "servers"), [(8, 2), (4, 4), (6, 3), (5, 1)])
def test_the_link_of_a_server_carries_a_part_for_every_worker(workers: int, servers: int) -> None:
    part = Fraction(1200, servers)
    received: Counter[int] = Counter()
    for _ in range(workers):
        for server in range(servers):
            received[server] += part
    said = {"n": 1200, "workers": workers, "servers": servers}
    assert worth("parameter_server", want="bytes", **said) == max(received.values())
    time = worth("parameter_server", bandwidth="10 B/s", **said)
    assert time == 2 * max(received.values()) / 10
    ring = messages_run("ring", "all-reduce", workers, Fraction(1200))
    assert ring is not None
    assert worth("parameter_server", want="ratio", **said, bandwidth="10 B/s") == time / (ring.path / 10)
    same = worth("parameter_server", want="servers", workers=workers)
    assert 2 * workers * 1200 / same == ring.path


def test_compressed_gradients_send_factors_or_entries() -> None:
    ring = messages_run("ring", "all-reduce", 8, Fraction(4 * 2 * (100 + 300)))
    entries = messages_run("ring", "all-gather", 8, Fraction(8 * 50 * (4 + 4)))
    whole = messages_run("ring", "all-reduce", 8, Fraction(4 * 100 * 300))
    assert ring is not None
    assert entries is not None
    assert whole is not None
    said = {"rows": 100, "columns": 300, "rank": 2, "number_bytes": "4 B", "replicas": 8}
    assert worth("compressed_gradients", **said) == ring.sent
    assert worth("compressed_gradients", want="saving", **said) == whole.sent / ring.sent
    largest = {"entries": 50, "number_bytes": "4 B", "index_bytes": "4 B"}
    assert worth("compressed_gradients", want="top_k", replicas=8, **largest) == entries.sent
    # 600 replicas: 599 times 400 bytes, and 2 599/600 of 120,000.
    assert worth("compressed_gradients", want="replicas", rows=100, columns=300, **largest) == 600
