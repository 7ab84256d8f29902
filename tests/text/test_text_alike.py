"""Cells that differ in digits alone are taken apart once; each is read as if it were the only one."""

import re

from api import Branch, Cell, Context, Scope, SymcommError, parsing, start_of, stop_of
from hypothesis import given
from hypothesis import strategies as st

PIECES = (
    "x_{1}", "x_1", "W1", "W_{12}^{3}", "2D", "4 D", "12 345", "12{,}345", "0.5", ".5", "1e3", "2e10", "3E4", "x^2",
    "x²", r"\frac12", r"\frac{1}{2}", r"\frac1D", r"\sqrt2", r"\sqrt{10}", r"\text{Out 1}", r"\text{Out1}", '"row 7"',
    "'a1'", r"\mathbf{1}", "[B, 4D]", "(1, 2)", "i = 1, \\dots, 8", "=", "+", "-", "/", "*", ",", r"\in", "and", "T",
    r"\mathbb{R}^{4 \times D}", "a10b", "007", "00", "1 2", "\\top", "x_{i,1}", "x₁", "10^{12}", "e5", "1e", "1..8",
    "1 ... 8",
)  # fmt: skip
TEXTS = st.lists(st.sampled_from(PIECES), min_size=1, max_size=5).map(" ".join)


def plain(part):
    if isinstance(part, Branch):
        return str(part.data), start_of(part), stop_of(part), [plain(child) for child in part.children]
    return part.type, str(part), part.start_pos, part.end_pos


def read(text):
    scope = Scope(sizes=frozenset({"e", "D"}))
    try:
        return [plain(item) for item in parsing.parse(Context(Cell(text, "t.md", 1, text, 0), scope))]
    except SymcommError as error:
        return str(error)


@given(TEXTS, st.lists(st.integers(0, 9), min_size=40, max_size=40))
def test_a_cell_is_read_alike_after_one_with_other_digits(text, digits):
    turns = iter(digits)
    other = re.sub("[0-9]", lambda match: str(next(turns, 3)), text)
    parsing.forget()
    alone = read(other)
    parsing.forget()
    read(text)
    assert read(other) == alone


def test_alike_cells_are_taken_apart_once_however_many_there_are(monkeypatch):
    parsing.forget()
    taken = []

    class Counting(parsing.Scanner):
        def tokens(self):
            taken.append(self.text)
            return super().tokens()

    monkeypatch.setattr(parsing, "Scanner", Counting)
    for number in range(1000, 1400):
        read(f"x_{{{number}}} = x_{{{number - 1}}} w_{{{number % 7}}}".replace("999", "0999"))
    assert len(taken) == 1
    parsing.forget()
