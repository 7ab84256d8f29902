"""Reading a long chain: each row takes as much work as the one before."""

import sys
from types import FrameType

import symcomm as sc


def calls(ops: int) -> int:
    """The functions that reading a chain of matrix products calls, and the steps of their generators."""
    rows = [f"y{n + 1} = y{n} W{n + 1}\ty{n} [B, D], W{n + 1} [D, D]\ty{n + 1} [B, D]" for n in range(ops)]
    made = 0

    def count(frame: FrameType, event: str, of: object) -> None:
        nonlocal made
        made += event == "call" and "symcomm" in frame.f_code.co_filename

    sys.setprofile(count)
    try:
        sc.load("\n".join(["Computation\tInput\tOutput", *rows]))
    finally:
        sys.setprofile(None)
    return made


def test_the_calls_to_read_a_chain_grow_by_the_same_for_each_row():
    calls(2)  # what is read once for all tables
    first, second, third = (calls(ops) for ops in (110, 160, 210))
    assert abs((third - second) - (second - first)) < 500  # one look at each row above would be 2,500 more
