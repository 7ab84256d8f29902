"""Lines that say the same of many names: a page of them takes no longer than their number."""

import pytest
from api import chosen

import symcomm as sc

KINDS = 24  # the steps of a line that was doubled with each of them would be 16 million


@pytest.mark.long
def test_lines_that_say_the_same_stand_once_and_count_no_step_twice():
    rows = [f"y_{{{n}}} = y_{{{n - 1}}} W_{{{n}}}\ty_{{{n - 1}}} [B, D], W_{{{n}}} [D, D]\ty_{{{n}}} [B, D]" if n else
            "y_{0} = x W_{0}\tx [B, D], W_{0} [D, D]\ty_{0} [B, D]" for n in range(KINDS)]  # fmt: skip
    model = sc.load("Computation\tInput\tOutput\n" + "\n".join(rows) + "\n")
    made = model.step_time("data(2)", peak="1 TFLOP/s", memory="1 TB/s", network="1 GB/s", accounting="per_op")
    for line in chosen(made):
        assert len({*line.steps}) == len(line.steps) <= len(made.steps)
