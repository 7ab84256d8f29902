"""Derivations as text, Markdown, LaTeX and HTML."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from fractions import Fraction

import pytest
from api import (
    BYTE,
    ONE,
    Accounting,
    Derivation,
    Exhibit,
    Num,
    Power,
    Product,
    Quantity,
    Reason,
    Root,
    Step,
    Sym,
    Unit,
    num,
    product,
)
from api import derivation_writing as writing

D2 = Power(Sym("D"), num(2))
ALL_REDUCE = Derivation(
    "bytes all-reduced",
    Accounting(),
    (
        Step("P", product(num(12), D2), Unit.parse("parameter"), Reason("weights", "Six matrices.")),
        Step(
            "V_AR",
            Product((Sym("N_layer"), Sym("P"), Num(Fraction(2), Unit.parse("byte/parameter")))),
            BYTE,
            Reason("call", "One call."),
        ),
        Step("V_AR", product(num(24), Sym("N_layer"), D2), BYTE, Reason("collect", "Collected."), "="),
        Step("V_AR", product(num(25), Sym("N_layer"), D2), BYTE, Reason("round", "Rounded."), "≈", "D is large"),
    ),
    touched=("communication",),
    exhibits=(
        Exhibit("Calls", ("tensor", "bytes"), ((Sym("W^Q"), Quantity(Fraction(5))), ("a|b_<i>", product(num(2), D2)))),
    ),
    notes=("A note with a $ and a <b>.",),
)


def test_text() -> None:
    assert writing.written(ALL_REDUCE, "text", {"N_layer": Fraction(32), "D": Fraction(4096)}) == (
        "bytes all-reduced\n"
        "  convention communication: payload. "
        "Each collective counts the bytes of its full tensor, once per call.\n"
        "\n"
        "     P = 12·D²           Six matrices.\n"
        "  V_AR = N_layer·P·2     One call.\n"
        "       = 24·N_layer·D²   Collected.\n"
        "       ≈ 25·N_layer·D²   Rounded. (if D is large)\n"
        "\n"
        "  V_AR = 24·32·4096²\n"
        "       = 12 884 901 888 B = 12 GiB ≈ 12.88 GB\n"
        "\n"
        "  Calls\n"
        "  tensor   bytes\n"
        "  -------  -----\n"
        "  W^Q      5\n"
        "  a|b_<i>  2·D²\n"
        "\n"
        "A note with a $ and a <b>."
    )
    assert "in B" in ALL_REDUCE.text()


def test_latex_is_one_align() -> None:
    text = writing.written(ALL_REDUCE.with_given(N_layer=32, D=4096), "latex")
    lines = text.splitlines()
    assert lines[0] == r"\begin{align*}"
    assert lines[1] == r"P &= 12\,D^{2} && \text{Six matrices.} \\"
    assert lines[4] == r" &\approx 25\,N_{\text{layer}}\,D^{2} && \text{Rounded. (if D is large)} \\"
    assert lines[5] == r"V_{\text{AR}} &= 24 \cdot 32 \cdot 4096^{2} && \text{with the given numbers} \\"
    assert lines[6] == r" &= 12\,884\,901\,888\ \text{B} = 12\ \text{GiB} \approx 12.88\ \text{GB}"
    assert lines[7] == r"\end{align*}"


def test_markdown() -> None:
    text = ALL_REDUCE.markdown()
    assert "| $V_{\\text{AR}}$ | $= N_{\\text{layer}}\\ P \\cdot 2$ | One call. |" in text
    assert "| a\\|b\\_\\<i\\> | $2\\ D^{2}$ |" in text
    assert "A note with a \\$ and a \\<b\\>." in text
    assert ":=" not in text


def test_html_is_well_formed() -> None:
    root = ElementTree.fromstring(ALL_REDUCE.html().replace("&nbsp;", " "))
    assert len([e for e in root.iter() if e.tag.endswith("math")]) >= 8
    assert "<b>" not in ALL_REDUCE.html()


def test_a_notebook_shows_the_formula_with_its_value_and_the_steps_when_they_are_opened() -> None:
    before, after = ALL_REDUCE.with_given(N_layer=2, D=3)._repr_html_().split("<details>")
    said = "".join(ElementTree.fromstring(f"{before}</div>").itertext())
    assert "=432B" in said  # 2 layers of 12·3² parameters, 2 bytes each
    assert "25" not in said  # the rounded formula is one of the steps
    assert "Six matrices." in after.split("</details>")[0]


def test_a_number_that_is_not_rational_is_said_exactly_and_read_as_a_decimal() -> None:
    d = Derivation(
        "side",
        Accounting(),
        (Step("a", Root(Sym("A")), ONE, Reason("root", "A square.")),),
        given=(("A", Fraction(2)),),
    )
    assert d.text().rstrip().endswith("= √(2) ≈ 1.41421")


@pytest.mark.parametrize("kind", ["text", "latex", "markdown", "html"])
def test_a_title_is_only_text(kind: writing.DerivationDialect) -> None:
    d = Derivation("<i>*x*</i> \\input{x}", Accounting(), (Step("a", Sym("A"), ONE, Reason("r", "<u> \\def $x$")),))
    text = writing.written(d, kind)
    if kind in ("markdown", "html"):
        assert "<i>" not in text.replace("\\<i", "")
        assert "<u>" not in text.replace("\\<u", "")
    if kind == "latex":
        assert r"\def" not in text
