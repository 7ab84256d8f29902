"""The small models that the tests of compute and communication share, and a program that walks them by hand."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

from api import model as sc

ROOT = Path(__file__).parents[2]
GOLDEN = {e["id"]: e for e in json.loads((ROOT / "tests/data/golden_balance.json").read_text())}
BOOK = {"time": "serial", "rings": "both_ways", "link": "bidirectional"}  # the Scaling Book's conventions
OVERLAP = {**BOOK, "time": "overlap"}

HEAD = "| Computation | Input | Output |\n|---|---|---|\n"
BLOCK = HEAD + "| h = xU | x [B, D], U [D, F] | h [B, F] |\n| y = hW | h [B, F], W [F, D] | y [B, D] |\n"
SWIGLU = HEAD + (
    "| g = silu(xG) | x [B, D], G [D, F] | g [B, F] |\n"
    "| u = xU | x [B, D], U [D, F] | u [B, F] |\n"
    r"| a = g \odot u | g [B, F], u [B, F] | a [B, F] |" + "\n"
    "| y = aW | a [B, F], W [F, D] | y [B, D] |\n"
)


def block() -> sc.Model:
    return sc.load(BLOCK, dtype="bf16", repeat="n_block")


def swiglu() -> sc.Model:
    return sc.load(SWIGLU, dtype="bf16")


def xxl() -> sc.Model:
    return block().at(n_block=126, D=16384, F=53248)


def published(name: str) -> Fraction:
    return Fraction(GOLDEN[f"002.xxl.{name}"]["value"])


# -- a walk through the products, without a formula -----------------------------------------------------


def passed_on(elements: Fraction, ranks: int, both_ways: bool) -> Fraction:
    """Elements that one link carries while a tensor is gathered (or reduced and scattered) on a ring, step by step."""
    carried, chunk = Fraction(0), elements / ranks
    for _ in range(ranks // 2 if both_ways else ranks - 1):
        carried += 2 * chunk if both_ways else chunk  # both directions of the link, or its busier one
    return carried if ranks > 1 else Fraction(0)


def walk(products: list[tuple[str, int, int]], at: dict[str, int], both_ways: bool = True) -> tuple[Fraction, ...]:
    """Times of computing, of the data axis and of the tensor axis for the forward pass over products of matrices.

    A product is (``columns`` or ``rows``, inputs, outputs): which side of its matrix the tensor axis cuts. 2 bytes an
    element.
    """
    x, y = at["X"], at["Y"]
    operations, gathered, reduced = Fraction(0), Fraction(0), Fraction(0)
    for cut, inputs, outputs in products:
        tokens, mine = Fraction(at["B"], x), Fraction(inputs * outputs, y)
        operations += 2 * tokens * mine
        gathered += passed_on(mine, x, both_ways)
        if cut == "rows":  # every rank has a partial sum of the outputs: reduce and scatter, then gather
            reduced += 2 * passed_on(tokens * outputs, y, both_ways)
    network = at["W_net"]
    return (
        operations / at["R"],
        2 * gathered / (at.get("M_X", 1) * network),
        2 * reduced / (at.get("M_Y", 1) * network),
    )


def block_products(at: dict[str, int]) -> list[tuple[str, int, int]]:
    return [("columns", at["D"], at["F"]), ("rows", at["F"], at["D"])]


def swiglu_products(at: dict[str, int]) -> list[tuple[str, int, int]]:
    return [("columns", at["D"], at["F"]), *block_products(at)]
