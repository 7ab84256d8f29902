"""Tables of exhibits: readings instead of long fractions, numbers to the right; and small points of spelling."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
from api import (
    BYTE,
    Exhibit,
    Notation,
    Num,
    Product,
    Quantity,
    Ratio,
    RenderError,
    Sym,
    Total,
    Unit,
    num,
    parse_problem,
    printing,
    product,
    quantity_in,
    render,
    solve,
    to_the_right,
    typst_pdf,
)
from api import derivation_writing as writing
from api import write_files as write

SECOND = Unit.parse("second")
TIMES = Exhibit(
    "Times",
    ("B", "cut over", "part", "time"),
    (
        ("25301", "tensor", Ratio(Sym("F"), Sym("Y")), Quantity(Fraction(84201728, 28076171875), SECOND)),
        ("302", "data", Ratio(product(num(2), Sym("B")), Sym("X")), Quantity(Fraction(1, 2), SECOND)),
    ),
)


def test_a_long_fraction_is_its_reading_and_a_fraction_of_symbols_stands_on_the_line() -> None:
    assert writing.markdown_table(TIMES, Notation())[2:] == [
        "| B | cut over | part | time |",
        "| ---: | --- | --- | ---: |",
        r"| $25\ 301$ | tensor | $F/Y$ | $\approx 2.999\ \text{ms}$ |",
        r"| 302 | data | $2\ B/X$ | $500\ \text{ms}$ |",
    ]


def test_columns_of_numbers_are_set_to_the_right_in_html() -> None:
    page = writing.html_table(TIMES, Notation())
    assert page.count('<td style="text-align:right">') == 4  # two columns of two rows
    assert "<mfrac>" not in page


def test_a_column_with_words_or_with_several_readings_stays_to_the_left() -> None:
    rows = (("never", Quantity(Fraction(10**9), BYTE)), ("22 020.7", Quantity(Fraction(10**6), BYTE)))
    assert to_the_right(Exhibit("", ("least", "bytes"), rows)) == (False, False)


def test_a_leading_factor_of_one_is_not_written() -> None:
    sums = Total((Sym("B"), Sym("D")))
    assert printing.plain(Product((Num(Fraction(1)), Sym("B"), Sym("L")))) == "B·L"
    assert printing.tex(Product((Num(Fraction(1)), sums))) == "B + D"
    assert printing.plain(Product((Num(Fraction(1)), Num(Fraction(4))))) == "1·4"  # a value that was put in


@pytest.mark.parametrize(
    ("unit", "tex"),
    [("second", r"15\ \mu\text{s}"), ("FLOP/(byte*second)", r"\text{FLOP/(B}\cdot\text{s)}")],
)
def test_a_unit_in_tex_has_no_dollar_inside_which_would_end_the_maths_of_markdown(unit: str, tex: str) -> None:
    value = Fraction(15, 10**6) if unit == "second" else Fraction(15)
    written = quantity_in("latex", Quantity(value, Unit.parse(unit)))
    assert tex in written
    assert "$" not in written


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("for $10^9$ bytes", "for $10^{9}$ bytes"),
        ("$10^{23}$", "$10^{23}$"),
        ("$k = 8$", "$k = 8$"),
        ("$5 and $6", r"\$5 and \$6"),
        (r"$\alpha$", r"\$\\alpha\$"),
    ],
)
def test_a_label_may_hold_simple_maths_between_dollars(text: str, said: str) -> None:
    assert printing.markdown_sentence(text) == said


def test_a_character_that_no_font_has_is_named() -> None:
    source = '#set document(title: "t")\n#set text(lang: "en")\nA \u2c00 sign'
    with pytest.raises(RenderError, match=r"no font on this machine has .* \(U\+2C00\)") as error:
        typst_pdf(source)
    assert "--to html" in error.value.hint


def test_a_file_where_the_folder_should_be_and_a_folder_where_a_file_should_be_are_told(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(RenderError, match="taken cannot be written: it is a file"):
        write({"a.md": b""}, tmp_path / "taken")
    (tmp_path / "a.md").mkdir()
    with pytest.raises(RenderError, match=r"a\.md cannot be written: it is a folder"):
        write({"b.md": b"", "a.md": b""}, tmp_path)
    assert not (tmp_path / "b.md").exists()


def test_a_label_with_maths_is_written_in_the_heading_that_names_its_solution(tmp_path: Path) -> None:
    table = "| Computation | Input | Output |\n|---|---|---|\n| y = xW | x [B, D], W [D, F] | y [B, F] |\n"
    text = table + "\n```symcomm\nmodel: m\n```\n\n```symcomm\nask: flops\nlabel: 'of $B = 4$ & \"more\"'\n```\n"
    (path,) = render(solve(parse_problem(text)), ("html",), tmp_path, name="p")
    page = path.read_text(encoding="utf-8")
    assert 'aria-labelledby="solution-1-label"' in page
    heading = page.split('id="solution-1-label">')[1].split("</h")[0]
    assert "<mn>4</mn>" in heading
    assert "&amp; &quot;more&quot;" in heading
