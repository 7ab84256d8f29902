"""Tables of every format: found among prose, cut into the right cells, refused with the right words."""

from __future__ import annotations

import csv
import io
from contextlib import suppress
from pathlib import Path

import pytest
from api import (
    CELL_LIMIT,
    ROW_LIMIT,
    TEXT_LIMIT,
    SymcommError,
    Table,
    TableError,
    as_layer_table,
    layer_tables,
    read_tables,
)
from hypothesis import given
from hypothesis import strategies as st

DATA = Path(__file__).parent.parent / "data"
HEADER = ("Computation", "Input", "Output")


def texts(table: Table) -> list[list[str]]:
    return [[cell.text for cell in row] for row in table.rows]


def only(text: str, file: str = "t.md") -> Table:
    [table] = read_tables(text, file)
    for row in table.rows:  # whatever the format: the span of a cell on one line shows exactly its text
        for cell in row:
            if "\n" not in cell.text and not cell.jumps:
                assert cell.span().word == cell.text
    return table


def refused(text: str, file: str = "t.md") -> str:
    with pytest.raises(TableError) as caught:
        layer_tables(text, file)
    return str(caught.value)


@pytest.mark.parametrize("name", ["homework2_table.tsv", "midterm_table.tsv"])
def test_the_course_tables_are_read_with_all_rows(name: str) -> None:
    table = only((DATA / name).read_text(), name)
    assert table.columns == HEADER
    assert len(table.rows) == 13
    assert table.rows[0][0].text == "$Q = xW^Q$"
    assert table.rows[-1][2].text.startswith("$x' \\in")


def test_a_tab_separated_table_is_found_among_prose() -> None:
    table = (DATA / "homework2_table.tsv").read_text()
    prose = (
        "Each layer of computation is summarized below:\n\n"
        + table
        + "\nLet us ignore the rest.\n\nDate\tTopic\n1\t2\n"
    )
    first, second = read_tables(prose, "homework.txt", first_line=10)
    assert first.line == 12
    assert first.rows[0][1].line == 13
    assert len(first.rows) == 13
    assert second.columns == ("Date", "Topic")
    assert len(layer_tables(prose, "homework.txt")) == 1


def test_a_row_that_begins_with_an_empty_cell_belongs_to_its_table() -> None:
    assert texts(only("a\tb\n1\t2\n\t3\n")) == [["1", "2"], ["", "3"]]


def test_an_indented_line_begins_no_table() -> None:
    assert read_tables("\t- one\n\t- two\n", "t.md") == []


def test_a_row_that_lost_its_tabs_is_not_dropped() -> None:
    table = only("Computation\tInput\tOutput\n$y = x$\t$x$\t$y$\n$z = y$\n")
    assert texts(table)[1] == ["$z = y$", "", ""]


def test_prose_below_a_tab_separated_table_ends_it() -> None:
    assert len(only("Computation\tInput\tOutput\n$y = x$\t$x$\t$y$\nLet us go on.\n").rows) == 1


def test_a_markdown_table_is_read_without_its_ruler() -> None:
    table = only(
        "text\n\n| Computation | Input | Output |\n| --- | :-: | ---: |\n| $y = x$ | $x$ | $y$ |\n\nmore | text\n"
    )
    assert table.columns == HEADER
    assert texts(table) == [["$y = x$", "$x$", "$y$"]]


def test_a_markdown_table_may_lack_its_outer_pipes() -> None:
    assert texts(only("a | b\n--|--\n1 | 2\n")) == [["1", "2"]]


def test_a_pipe_inside_math_does_not_split_a_cell() -> None:
    table = only("| a | b |\n|---|---|\n| $P(x|y)$ | $\\|x\\|$ |\n")
    assert texts(table) == [["$P(x|y)$", "$\\|x\\|$"]]


def test_an_escaped_pipe_and_one_in_backticks_do_not_split_a_cell() -> None:
    assert texts(only("| a | b |\n|---|---|\n| x \\| y | `a|b` |\n")) == [["x \\| y", "`a|b`"]]


def test_an_unpaired_dollar_sign_protects_no_pipe() -> None:
    assert texts(only("| a | b |\n|---|---|\n| 5 $ | 6 |\n")) == [["5 $", "6"]]


def test_emphasis_in_a_header_is_taken_off() -> None:
    assert only("| **Computation** | _Input_ | `Output` |\n|---|---|---|\n| a | b | c |").columns == HEADER


def test_a_csv_file_is_one_table() -> None:
    table = only('Computation,Input,Output\n$y = xW$,"$x \\in R^{B}, W \\in R^{D}$",$y$\n', "t.csv")
    assert texts(table) == [["$y = xW$", "$x \\in R^{B}, W \\in R^{D}$", "$y$"]]


def test_a_csv_table_is_found_in_a_document_by_its_header() -> None:
    text = 'Some prose, with commas.\n\nComputation,Input,Output\na,"b, c",d\n\nMore, prose.\n'
    assert texts(only(text)) == [["a", "b, c", "d"]]


def test_commas_in_math_may_stand_without_quotes_where_the_row_then_fits() -> None:
    table = only("Computation,Input,Output\n$y = f(x, w)$,$x, w$,$y$\n", "t.csv")
    assert texts(table) == [["$y = f(x, w)$", "$x, w$", "$y$"]]


def test_semicolons_separate_where_the_header_has_them() -> None:
    assert texts(only("Computation;Input;Output\na, b;c;d\n", "t.csv")) == [["a, b", "c", "d"]]


def test_a_doubled_quote_keeps_the_places_right() -> None:
    cell = only('a,b\n"say ""x"" now",2\n', "t.csv").rows[0][0]
    assert cell.text == 'say "x" now'
    assert cell.span(8, 11).word == "now"
    assert cell.span(5, 6).word == "x"
    assert cell.span(0, 3).word == "say"


def test_a_csv_cell_may_run_over_lines() -> None:
    cell = only('a,b\n"one\ntwo",2\n', "t.csv").rows[0][0]
    assert cell.text == "one\ntwo"
    assert (cell.span(4, 7).line, cell.span(4, 7).word) == (3, "two")
    assert (cell.span(0, 3).line, cell.span(0, 3).word) == (2, "one")


TABULAR = r"""
\begin{table}
\caption{A layer}
\begin{tabular}{lp{3cm}l}
  \toprule
  \textbf{Computation} & Inputs & Output \\ \midrule
  $y = x W$ & $x$, % 5 & 6 \\
    $W$ & $y$ \\[2pt]
  \hline
  \multicolumn{3}{l}{Second block} \\
  a \& b & $\begin{array}{c} 1 & 2 \\ 3 & 4 \end{array}$ & c \\
  \bottomrule
\end{tabular}
\end{table}
"""


def test_a_latex_tabular_is_read_without_rules_comments_and_headings() -> None:
    table = only(TABULAR, "t.tex")
    assert table.columns == ("Computation", "Inputs", "Output")
    assert texts(table) == [
        ["$y = x W$", "$x$, \n    $W$", "$y$"],
        [r"a \& b", r"$\begin{array}{c} 1 & 2 \\ 3 & 4 \end{array}$", "c"],
    ]
    cell = table.rows[0][1]
    assert (cell.line, cell.span(1, 2).word) == (7, "x")
    at = cell.text.index("W")
    assert (cell.span(at, at + 1).line, cell.span(at, at + 1).word) == (8, "W")


@pytest.mark.parametrize(
    "begin",
    [r"\begin{tabularx}{\textwidth}{|l|X|}", r"\begin{tabular*}{5cm}{ll}", r"\begin{longtable}[c]{ll}"],
)
def test_every_kind_of_tabular_is_read(begin: str) -> None:
    end = begin[6 : begin.index("}") + 1]
    table = only(f"{begin}\na & b \\\\\n\\hline\n1 & 2\n\\end{end}\n", "t.tex")
    assert (table.columns, texts(table)) == (("a", "b"), [["1", "2"]])


def test_a_tabular_named_in_backticks_is_prose() -> None:
    assert read_tables("Write `\\begin{tabular}` for a table.\n", "t.md") == []


def test_code_in_a_fence_is_no_table_but_a_table_fence_is() -> None:
    assert read_tables("```\na\tb\n1\t2\n```\n", "t.md") == []
    assert texts(only("```csv\na,b\n1,2\n```\n")) == [["1", "2"]]


def test_windows_line_ends_are_not_part_of_a_cell() -> None:
    assert texts(only("a\tb\r\n1\t2\r\n")) == [["1", "2"]]


@pytest.mark.parametrize(
    "header",
    ["OUTPUT\tinputs\tComputations\tRemark", "Remark\tComputation\tInput\tOutput", "input\tOutputs\tcomputation"],
)
def test_layer_columns_may_stand_in_any_order_and_case(header: str) -> None:
    row = "\t".join("1" for _ in header.split("\t"))
    assert len(layer_tables(f"{header}\n{row}\n", "t.tsv")) == 1


def test_other_tables_are_no_layer_tables() -> None:
    assert layer_tables("Input\tOutput\n1\t2\n\nDate\tTopic\n1\t2\n", "t.txt") == []


def test_a_layer_table_without_a_column_says_which() -> None:
    assert refused("Computation\tInput\tOuput\n$y$\t$x$\t$y$\n", "t.txt") == (
        "t.txt:1: this table lacks the column Output of a layer table\n"
        "    Computation Input Ouput\n"
        "    ^^^^^^^^^^^^^^^^^^^^^^^\n"
        "hint: its columns are Computation, Input, Ouput; is 'Ouput' meant for Output?"
    )
    [table] = read_tables("Date\tTopic\n1\t2\n", "t.txt")
    with pytest.raises(TableError) as caught:
        as_layer_table(table)
    assert str(caught.value) == (
        "t.txt:1: this table lacks the columns Computation, Input and Output of a layer table\n"
        "    Date Topic\n"
        "    ^^^^^^^^^^\n"
        "hint: its columns are Date, Topic"
    )


def test_a_row_wider_than_its_header_is_refused() -> None:
    assert refused("| Computation | Input | Output |\n|---|---|---|\n| a | b | c | d |\n") == (
        "t.md:3: this row has 4 cells, the header has 3\n"
        "    | a | b | c | d |\n"
        "                  ^\n"
        "hint: a separator inside a formula must stand within $...$ (or in quotes in CSV)"
    )


def test_a_quote_that_is_never_closed_is_pointed_at() -> None:
    assert refused('Computation,Input,Output\na,"b,c\n', "t.csv") == (
        't.csv:2: this quote is never closed\n    a,"b,c\n      ^\nhint: a quote inside a quoted cell is doubled: `""`'
    )


def test_a_tabular_that_is_never_closed_is_pointed_at() -> None:
    assert refused("\n\\begin{tabular}{ll}\na & b\n", "t.tex") == (
        "t.tex:2: this `\\begin{tabular}` is never closed\n"
        "    \\begin{tabular}{ll}\n"
        "    ^^^^^^^^^^^^^^^\n"
        "hint: write `\\end{tabular}` after it"
    )


def test_ten_megabytes_are_refused() -> None:
    text = "a\tb\n" * 2_500_000
    assert refused(text, "big.tsv") == (
        f"the input big.tsv has 10,000,000 characters; at most {TEXT_LIMIT:,} are read\n"
        "hint: give the file with the layer table, not a data set"
    )


def test_a_cell_that_is_too_long_is_refused() -> None:
    message = refused("a\tb\n1\t" + "x" * (CELL_LIMIT + 1) + "\n", "t.tsv")
    assert message.startswith("t.tsv:2, column b: this cell has 2,001 characters; at most 2,000 are read\n")
    assert len(read_tables("a\tb\n1\t" + "x" * CELL_LIMIT + "\n", "t.tsv")) == 1


@pytest.mark.long
def test_a_table_with_too_many_rows_is_refused() -> None:
    assert refused("a\tb\n" + "1\t2\n" * (ROW_LIMIT + 1), "t.tsv").startswith(
        "t.tsv:20002: this table has more than 20,000 rows\n"
    )
    assert len(only("a\tb\n" + "1\t2\n" * ROW_LIMIT, "t.tsv").rows) == ROW_LIMIT


@pytest.mark.few(4)
@pytest.mark.parametrize(
    "piece",
    [
        "a\tb\nc\td\n\n",
        "|a|b|\n|-|-|\n|$|`|\n",
        "```csv\na,b\n```\n",
        "```\n",
        "`````\n```\n",
        "Computation,Input,Output\n1,2,3\n\n",
        "\\begin{tabular}{l}\na\\\\\n\\end{tabular}\n",
        "`\\begin{tabular}",
        "$" * 999 + "|" + "\n|-|-|\n",
        "|" * 60 + "-\n",
        "<table>\n",
        "<table><tr><td>Input<td>Output</table>",
        "<table><tr><td>Input<td>Output<tr><td>\n</table>\n",
        "==  ==\n",
        "=====  ======\nInput  Output\n=====  ======\n1      2\n",
        "|Input|Output|a|\n|-|-|-|\n|x [|y [|" + "_" * 900 + "1. =|\n",
    ],
)
def test_many_small_or_broken_tables_are_read_or_refused(piece: str) -> None:
    text = (piece * (TEXT_LIMIT // len(piece)))[:100_000]
    with suppress(SymcommError):
        read_tables(text, "t.md")


FIELD = st.text(alphabet='ab "$,\\\n;', max_size=12)


@given(st.lists(st.lists(FIELD, min_size=2, max_size=2), min_size=1, max_size=5))
def test_what_the_csv_module_writes_is_read_back(rows: list[list[str]]) -> None:
    rows = [["h1", "h2"], *([*row[:1], row[1] + "."] for row in rows)]
    written = io.StringIO()
    csv.writer(written, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows(rows)
    table = only(written.getvalue(), "t.csv")
    assert texts(table) == [[field.strip() for field in row] for row in rows[1:]]
    for row in table.rows:
        for cell in row:
            for place, char in enumerate(cell.text):
                if char not in '\n"':
                    assert cell.span(place, place + 1).word == char


@given(st.text(alphabet='|-: ab$`\\\t\n,";%&{}[]', max_size=200), st.sampled_from(["t.md", "t.csv", "t.tsv", "t.tex"]))
def test_any_text_is_read_or_refused_in_our_words(text: str, file: str) -> None:
    with suppress(SymcommError):
        read_tables(text, file)


@given(
    st.lists(st.sampled_from([
        *"\n =&;ax", "==  ==\n", "Input", "Output", "<table>", "</table>", "<tr>", "<td>", "</td>", "<td rowspan=2>",
        "<table", "<sub>", "</sub>", "&times;", "[^1]", "**", "1. ",
    ]), max_size=40)
)  # fmt: skip
def test_any_html_or_rst_is_read_or_refused_in_our_words(pieces: list[str]) -> None:
    text = "<table><tr><td>Input<td>Output<td>Computation<tr>" + "".join(pieces)
    for written in (text, text + "</table>", "".join(pieces)):
        with suppress(SymcommError):
            for table in layer_tables(written, "t.md"):
                assert all(cell.span().picture() for row in table.rows for cell in row)


@given(
    st.lists(
        st.sampled_from([r"\begin{tabular}", r"\end{tabular}", "{ll}", "&", r"\\", "$", "%", "\n", "a"]), max_size=40
    )
)
def test_any_latex_is_read_or_refused_in_our_words(pieces: list[str]) -> None:
    with suppress(SymcommError):
        for table in read_tables("".join(pieces), "t.tex"):
            for row in table.rows:
                for cell in row:
                    cell.span(0, 1)
                    assert cell.span().picture()
