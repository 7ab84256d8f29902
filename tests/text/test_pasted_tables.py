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


def beside(heading: str, cells: list[str], at: int = 0) -> str:
    """The table with one more column."""
    rows = [[*row[:at], cell, *row[at:]] for row, cell in zip(ROWS, cells, strict=True)]
    return markdown([*HEADER[:at], heading, *HEADER[at:]], rows)


def each(before: str, after: str = "", columns: int = 3) -> list[list[str]]:
    """The rows with marks around their first cells."""
    return [[*(before + cell + after for cell in row[:columns]), *row[columns:]] for row in ROWS]


def named(heading: str) -> str:
    return markdown([heading, *HEADER[1:]])


def simple(rows: list[list[str]]) -> list[str]:
    rule = "  ".join("=" * 24 for _ in rows[0])
    header, *body = ("  ".join(cell.ljust(24) for cell in row).rstrip() for row in rows)
    return [rule, header, rule, *body, rule]


def html(begin: str = "<td>", end: str = "</td>", between: str = "\n", header: list[str] = HEADER) -> str:
    rows = ["<tr>" + between.join(begin + cell + end for cell in row) for row in ROWS]
    return between.join(["<table border=1>", "<tr><th>" + "<th><b>".join(header), *rows, "</table>\n"])


WEIGHTLESS = [[cell.replace(", W1 [D, F]", "").replace(", W2 [F, D]", "") for cell in row] for row in ROWS]
LISTED = [[*row[:2], cell, row[2]] for row, cell in zip(WEIGHTLESS, ["W1 [D, F]", "-", "W2 [F, D]"], strict=True)]
SEVERAL = ["A = x W1; H = relu(A)", "x [B, L, D], W1 [D, F]", "A [B, L, F]; H [B, L, F]"]
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
    "sizes in a word": shaped("x"),
    "sizes in a word behind a domain": shaped("x").replace(":", " in R^"),
    "sizes with a cross in brackets": changed(**{"[B, L, D]": "[B×L×D]", "[D, F]": "[D × F]"}),
    "numbers of rows": beside("#", ["1", "2", "3"]),
    "names of rows": beside("Operation", ["up", "relu", "down"]),
    "numbers before formulas": changed(**{"| A =": "| 1. A =", "| H =": "| (2) H =", "| y =": "| 3) y ="}),
    "names before formulas": changed(**{"| A =": "| Layer 1: A =", "| H =": "| **ReLU:** H ="}),
    "weights beside the input": markdown(["Computation", "Input", "Weights", "Output"], LISTED),
    "parameters beside the input": markdown(["Computation", "Input", "Parameters (shape)", "Output"], LISTED),
    "numbers of parameters": beside("Parameters", ["D F", "0", "4,096"], at=3),
    "operations": named("Operation"),
    "layers": named("Layer"),
    "formulas": named("Formula"),
    "ops": named("Op"),
    "formulas of another language": named("公式"),
    "the forward pass": named("Computation (forward)"),
    "names and formulas": beside("Layer", ["up", "relu", "down"]).replace("Computation", "Formula    "),
    "bold": markdown(rows=each("**", "**")),
    "italics": markdown(rows=each("_", "_")),
    "bold math": markdown(rows=each("***$", "$***")),
    "code": markdown(rows=each("`", "`")),
    "tags": markdown(rows=each("<b><code>", "</code></b>")),
    "scripts of HTML": changed(W1="W<sub>1</sub>", W2="W<sub>2</sub>"),
    "entities of HTML": changed(**{"[B, L, D]": "&isin; &Ropf;<sup>B&times;L&nbsp;&times; D</sup>"}),
    "footnotes": markdown(rows=each("", "[^1]")),
    "footnotes of LaTeX": latex("Computation & Input & Output", *(
        rf"${row[0]}$\tnote{{a}} & {row[1]}~\cite{{v}} & {row[2]}\footnotemark[2] \\" for row in ROWS)),
    "daggers of LaTeX": latex("Computation & Input & Output", *(
        rf"${row[0]}$$^\dagger$ & {row[1]} & ${row[2]}$ $^{{\ddagger}}$ \\" for row in ROWS)),
    "bold in LaTeX": latex("Computation & Input & Output", *(
        rf"\textbf{{${row[0]}$}} & \texttt{{{row[1]}}} & {row[2]} \\" for row in ROWS)),
    "several in a row": markdown(rows=[SEVERAL, ROWS[2]]),
    "several in math": markdown(rows=[["$A = x W1$; $H = relu(A)$", *SEVERAL[1:]], ROWS[2]]),
    "several with breaks": markdown(rows=[[cell.replace(";", " <br>") for cell in SEVERAL], ROWS[2]]),
    "several lines of LaTeX": latex("Computation & Input & Output", *(
        rf"{' & '.join(row)} \\".replace(";", r" \newline ") for row in (SEVERAL, ROWS[2]))),
    "HTML": html(),
    "HTML without ends": html(end=""),
    "HTML of one line": html(between=""),
    "HTML of one line alone": html(between="").strip(),
    "HTML of many lines": html("<td\n style='a'>\n", "\n</td>"),
    "HTML with type": html("<td><p><code>", "</code></p></td>"),
    "HTML with a heading": html().replace("<tr><td>H", "<tr><td colspan=3><b>ReLU</b></td></tr><tr><td>H"),
    "HTML within HTML": f"<table><tr><td>\n{html()}</td></tr></table>",
    "a simple table of reST": "\n".join(simple([HEADER, *ROWS])),
    "an indented one": "\n".join("  " + line for line in simple([HEADER, *ROWS])),
    "one with blank lines": "\n".join(simple([HEADER, *ROWS])).replace("\nH", "\n\nH"),
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
        (markdown(["Operation", *HEADER[1:]], [["the feed-forward block", *ROWS[0][1:]]]),
         "a table here has Operation, Input, Output; call the column of formulas Computation"),
        (beside("Note", ["of n = B L", "", ""]).replace("Computation", "Formula"),
         "a table here has Note, Formula, Input, Output"),
        (markdown(rows=[["A = x W1†", *ROWS[0][1:]]]), "the mark of a footnote is written [^1], or taken off"),
        (changed(**{"W1 [D, F]": "W1 [D·F]"}), "W1 has one axis, and `×` or `,` separates several"),
        (changed(**{"W1 [D, F]": "W1: 4,096 × F"}), "`4,096` may be one number or several sizes"),
        (changed(**{"W1 [D, F]": "W1: D"}), "write [D] for a shape of one axis"),
        (changed(**{"x [B, L, D], W1 [D, F]": "[B, L, D]"}), "`[B, L, D]` has no name"),
        (markdown(rows=[[SEVERAL[0], SEVERAL[1], "H [B, L, F]"]]), "declare its shape there, too"),
        (markdown(rows=[["A = x W1", *SEVERAL[1:]]]), "this row does not compute 'H'"),
        (markdown(rows=[["A = x W1; relu(A)", *SEVERAL[1:]]]), "one computation is wanted in a row, not a list"),
        (markdown(["Computation", "Input", "Weights", "Output"], [[*LISTED[0][:2], "W1 [D, F]", "A [B, L, F]"],
                                                                 [*LISTED[1][:2], "D F", "H [B, L, F]"]]),
         "column Weights: `D F` has no shape"),
        (html().replace("<td>A =", "<td rowspan=2>A ="), "a cell over several rows or columns is not read here"),
        (html().replace("<tr><td>H", "<!-- <tr><td>H"), "a comment is in the lines of this table"),
        (html()[:-1] + html(), "a second table is in the lines of this table"),
        ("\n".join(simple([HEADER, ["A = x W1 + 0 W1 + 0 W1", *ROWS[0][1:]]])).replace("=" * 24, "=" * 20),
         "this cell is wider than its column"),
        (markdown().replace("|", " ").replace("-", "="), "put tabs or | between its cells"),
        (markdown(rows=[["H = F.relu(x)", "x [B, D]", "H [B, D]"]]), "write names and functions without a dot: relu"),
        (markdown(rows=[["H = x W", "x [B, D], W<u>1</u> [D, D]", "H [B, D]"]]), "a script ^2 or _2"),
        (markdown(["Computation time", *HEADER[1:]], [["3 ms", *ROWS[0][1:]]]),
         "a table here has Computation time, Input, Output"),
    ],
)
def test_a_table_that_is_not_read_is_refused_with_what_it_lacks(text: str, said: str) -> None:
    with pytest.raises(SymcommError) as caught:
        sc.load(text)
    assert said in str(caught.value)


def test_a_table_of_calls_beside_a_layer_table_is_none() -> None:
    calls = markdown(["Call", "Input", "Output", "Weights"], [["f(a=1)", "x: int", "y: text", "w: shared"]])
    assert str(sc.load(f"{calls}\n\n{markdown()}").parameters().expr) == "2*D*F"


def test_words_before_a_computation_are_a_name_and_said_to_be_one() -> None:
    notes = sc.load(markdown(rows=[["Each head: A = x W1", *ROWS[0][1:]]])).graph.notes
    assert "'Each head' is read as the name of row 1" in notes


def test_a_row_of_words_alone_is_a_heading_and_said_to_be_one() -> None:
    notes = sc.load(markdown(rows=[["**Feed-forward**", "", ""], *ROWS])).graph.notes
    assert "'Feed-forward' is read as a heading" in notes
    assert "is read as a heading" not in " ".join(sc.load(markdown()).graph.notes)


def test_marks_that_a_table_leaves_out_are_no_part_of_an_answer() -> None:
    made = sc.load(markdown()).parameters()
    assert sc.check("2*D*F", made).verdict == "right"
    assert sc.check(r"2*D*F \footnote{or 3*D*F}", made).verdict == "unreadable"


def test_the_text_of_a_table_reads_as_the_same_table() -> None:
    for name in ("weights beside the input", "several with breaks", "operations"):
        model = sc.load(READ[name])
        assert str(sc.load(model.tables[0]).flops().expr) == str(model.flops().expr) == "4*B*D*F*L"
