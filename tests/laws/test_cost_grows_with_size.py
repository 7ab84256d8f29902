"""Reading a table and deriving from it takes steps in proportion to its rows: the lines that Python runs are counted.

No clock is asked, so that a busy machine changes nothing. A scan of all ops for each op runs lines with the square of
the rows, which shows in the second difference of three counts. What SymPy keeps of earlier products is left out.
"""

import gc
import sys
from pathlib import Path

import pytest

import symcomm
from symcomm import load

OWN = str(Path(symcomm.__file__).parent)
ROWS = 24  # of the shortest table; the others have two and three times as many


def chain(rows: int) -> str:
    lines = ["Computation\tInput\tOutput"]
    for n in range(0, rows, 3):
        lines += [
            f"a{n} = y{n} W{n}\ty{n} [B, D], W{n} [D, D]\ta{n} [B, D]",
            f"r{n} = relu(a{n})\ta{n} [B, D]\tr{n} [B, D]",
            f"y{n + 3} = y{n} + r{n}\ty{n}, r{n} [B, D]\ty{n + 3} [B, D]",
        ]
    return "\n".join(lines)


def lines_run(work) -> int:
    count = 0

    def seen(frame, event, argument):
        nonlocal count
        count += event == "line"
        return seen if frame.f_code.co_filename.startswith(OWN) else None

    before = sys.gettrace()
    sys.settrace(seen)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


QUESTIONS = {
    "reading": lambda model: None,
    "parameters": lambda model: model.parameters().expr,
    "training FLOPs": lambda model: model.flops("training").expr,
    "data-parallel communication": lambda model: model.communication("data(k)").expr,
    "activation memory": lambda model: model.activation_memory().expr,
    "step time": lambda model: model.step_time("fully-sharded(k)", peak="R", network="W").expr,
    "peak memory": lambda model: model.at(B=4, D=8, k=2).peak_memory("data(k)").at(),
}


@pytest.mark.parametrize("asked", QUESTIONS)
def test_the_lines_run_grow_in_proportion_to_the_rows(asked):
    ask = QUESTIONS[asked]
    texts = [chain(rows) for rows in (ROWS // 2, ROWS, 2 * ROWS, 3 * ROWS)]
    ask(load(texts[0]))  # what is made once in a process is made
    gc.disable()
    try:
        if asked == "reading":
            counts = [lines_run(lambda text=text: load(text)) for text in texts[1:]]
        else:
            models = [load(text) for text in texts[1:]]
            counts = [lines_run(lambda model=model: ask(model)) for model in models]
    finally:
        gc.enable()
    growth = [counts[1] - counts[0], counts[2] - counts[1]]
    assert growth[1] <= 1.01 * growth[0], counts
