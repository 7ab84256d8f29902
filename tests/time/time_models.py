"""The small models that the tests of times share."""

from __future__ import annotations

import csv
import json
from fractions import Fraction
from pathlib import Path

from api import Accounting
from api import model as sc

DATA = Path(__file__).parent.parent / "data"
GOLDEN = {entry["id"]: entry for entry in json.loads((DATA / "golden_time.json").read_text())}

HEAD = "| Computation | Input | Output |\n|---|---|---|\n"
LINEAR = HEAD + (
    r"| $Y = XW$ | $X \in \mathbb{R}^{b \times d_{in}}, W \in \mathbb{R}^{d_{in} \times d_{out}}$ "
    r"| $Y \in \mathbb{R}^{b \times d_{out}}$ |"
    "\n"
)
BLOCK = HEAD + (
    "| A = xW^1 | x [B, L, D], W^1 [D, F] | A [B, L, F] |\n"
    "| A' = relu(A) | A [B, L, F] | A' [B, L, F] |\n"
    "| x' = A'W^2 | A' [B, L, F], W^2 [F, D] | x' [B, L, D] |\n"
)
ATTENTION = HEAD + (
    r"| $S = \text{softmax}(\frac{QK^T}{\sqrt{d}})$ | $Q, K \in \mathbb{R}^{b \times s \times d}$ "
    r"| $S \in \mathbb{R}^{b \times s \times s}$ |"
    "\n"
    r"| $O = SV$ | $S \in \mathbb{R}^{b \times s \times s}, V \in \mathbb{R}^{b \times s \times d}$ "
    r"| $O \in \mathbb{R}^{b \times s \times d}$ |"
    "\n"
)

PLACED = "cut(d_in, tp_in) + cut(d_out, tp_out) + data(dp)"
PRINTED = Accounting.of("owner_multicast", "overlap", "weights_and_reloaded_activations", "eight_bit", "bidirectional")
RATES = {"peak": "1979 TFLOP/s", "memory": "3352 GB/s", "network": "900 GB/s", "utilisation": "4/5"}
CALL = {"b": 2048**2 // 128, "d_in": 16384, "d_out": 5 * 16384, "tp_in": 8, "tp_out": 40, "dp": 32}


def linear() -> sc.Model:
    return sc.load(LINEAR)


def block(repeat: str = "N") -> sc.Model:
    return sc.load(BLOCK, repeat=repeat)


def homework() -> sc.Model:
    return sc.load(DATA / "homework2_table.tsv", repeat="N_layer")


def product(rows: int, inner: int, cols: int) -> sc.Model:
    return sc.load(HEAD + f"| Y = XW | X [{rows}, {inner}], W [{inner}, {cols}] | Y [{rows}, {cols}] |\n")


def published(name: str) -> Fraction:
    return Fraction(GOLDEN[name]["value"])


def all_reduce_times(backend: str = "nccl") -> list[tuple[str, int, str]]:
    with (DATA / "all_reduce_times.csv").open() as stream:
        rows = [row for row in csv.DictReader(stream) if row["backend"] == backend]
    return [(f"{row['size_MB']} MB", int(row["ranks"]), row["seconds"]) for row in rows]
