"""Layer tables as they are pasted: which are read was decided by hand; each is the same layer of two matrices."""

from __future__ import annotations

import pytest
from api import SymcommError

import symcomm as sc

HEADER = ["Computation", "Input", "Output"]
ROWS = [
    ["A = x W1", "x [B, L, D], W1 [D, F]", "A [B, L, F]"],
    ["H = relu(A)", "A [B, L, F]", "H [B, L, F]"],
    ["y = H W2", "H [B, L, F], W2 [F, D]", "y [B, L, D]"],
]


def barred(rows: list[list[str]], bar: str = "|") -> list[str]:
    return [f"{bar} " + f" {bar} ".join(cell.ljust(24) for cell in row) + f" {bar}" for row in rows]


def markdown(header: list[str] = HEADER, rows: list[list[str]] = ROWS) -> str:
    return "\n".join([*barred([header]), "|" + "---|" * len(header), *barred(rows)])


def ruled(top: str, below: str, between: str, bar: str = "|") -> str:
    header, *rows = barred([HEADER, *ROWS], bar)
    lines = [top, header, below]
    for row in rows:
        lines += [row, between]
    return "\n".join(line for line in lines if line)


def latex(header: str, *rows: str) -> str:
    return "\n".join([r"\begin{tabular}{lll}", rf"\toprule {header} \\ \midrule", *rows, r"\end{tabular}"])


def changed(**words: str) -> str:
    text = markdown()
    for old, new in words.items():
        text = text.replace(old, new)
    return text


SHAPES = {"[B, L, D]": ": B×L×D", "[D, F]": ": D×F", "[B, L, F]": ": B×L×F", "[F, D]": ": F×D"}


def shaped(mark: str) -> str:
    text = markdown()
    for old, new in SHAPES.items():
        text = text.replace(old, new.replace("×", mark))
    return text


WIDE = "+" + "-" * 26 + "+" + "-" * 26 + "+" + "-" * 26 + "+"
READ = {
    "a box of a terminal": ruled("┌──┬──┬──┐", "├──┼──┼──┤", "", "│"),
    "a double box": ruled("╔══╦══╦══╗", "╠══╬══╬══╣", "╟──╫──╫──╢", "║"),
    "an Org table": ruled("", "|----+----+----|", ""),
    "an Org table with rules": ruled("|----+----+----|", "|----+----+----|", "|----+----+----|"),
    "a grid of reST": ruled(WIDE, WIDE.replace("-", "="), WIDE),
    "a table of a database": ruled(WIDE, WIDE, ""),
    "shapes": markdown(["Computation", "Input shape", "Output shape"]),
    "shapes in brackets": markdown(["Computation", "Inputs (shape)", "Outputs [elements]"]),
    "weights in the heading": markdown(["Computation", "Input and weights", "Output"]),
    "a footnote": markdown(["Computation[^1]", "Input", "Output¹"]),
    "German": markdown(["Berechnung", "Eingabe", "Ausgabe"]),
    "Chinese": markdown(["计算", "输入", "输出"]),
    "a size beside the output": markdown([*HEADER, "Output size (MB)"], [[*row, "12"] for row in ROWS]),
    "a heading inside": markdown(rows=[["**Feed-forward**", "", ""], *ROWS]),
    "no input": markdown(rows=[ROWS[0], ["H = relu(A)", "n/a", "H [B, L, F]"], ROWS[2]]),
    "a dash of LaTeX": markdown(rows=[ROWS[0], ["H = relu(A)", "---", "H [B, L, F]"], ROWS[2]]),
    "mathematical letters": markdown(rows=[[cell.replace("x", "𝑥").replace("A", "𝐴") for cell in row] for row in ROWS]),
    "full-width signs": markdown(rows=[[cell.translate(dict(zip(b"[],=", "［］，＝", strict=True))) for cell in row]
                                       for row in ROWS]),
    "sizes with a cross": shaped("×"),
    "sizes with a letter": shaped(" x "),
    "round brackets": changed(**{"[": "(", "]": ")"}),
    "a footnote in LaTeX": latex(r"\textbf{Computation}$^{a}$ & \textbf{Input}\footnotemark[1] & {Output}",
                                 *(" & ".join(row) + r" \\" for row in ROWS)),
    "cells of several lines": latex(r"Computation & \makecell[l]{Input} & \thead{Output}",
                                    r"A = x W1 & \makecell[l]{x [B, L, D] \\ W1 [D, F]} & A [B, L, F] \\",
                                    r"y = A W2 & \shortstack{W2 [F, D]} & y [B, L, D] \\"),
}  # fmt: skip


@pytest.mark.parametrize("name", READ)
def test_a_pasted_table_is_the_layer_that_it_prints(name: str) -> None:
    assert str(sc.load(READ[name]).parameters().expr) == "2*D*F"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (markdown(["Operation", *HEADER[1:]]), "a table here has Operation, Input, Output"),
        (markdown().replace("|", " ").replace("-", "="), "put tabs or | between its cells"),
        (markdown(rows=[["H = F.relu(x)", "x [B, D]", "H [B, D]"]]), "write names and functions without a dot: relu"),
        (markdown(rows=[["H = x W", "x [B, D], W<sup>1</sup> [D, D]", "H [B, D]"]]), "a script ^2 or _2"),
        (markdown(["Computation time", *HEADER[1:]]), "a table here has Computation time, Input, Output"),
    ],
)
def test_a_table_that_is_not_read_is_refused_with_what_it_lacks(text: str, said: str) -> None:
    with pytest.raises(SymcommError) as caught:
        sc.load(text)
    assert said in str(caught.value)
