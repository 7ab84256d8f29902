"""Forms, names and quantities in every dialect, against lines written by hand."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from fractions import Fraction

import pytest
from api import (
    BYTE,
    GREEK_NAMES,
    ONE,
    Ceiling,
    Floor,
    Form,
    Largest,
    Logarithm,
    Notation,
    Num,
    Power,
    Product,
    Quantity,
    Ratio,
    Root,
    Smallest,
    Sym,
    Total,
    Unit,
    ValuesError,
    inline,
    num,
    printing,
    product,
)
from api import form as forms
from hypothesis import given
from hypothesis import strategies as st

D, K, N = Sym("D"), Sym("k"), Sym("N_layer")

EXPECTED: list[tuple[Form, str, str, str]] = [
    (
        product(num(24), N, Power(D, num(2))),
        r"24\,N_{\text{layer}}\,D^{2}",
        '24 thin N_("layer") thin D^(2)',
        "24·N_layer·D²",
    ),
    (
        Product((N, num(12), Power(D, num(2)), num(2))),
        r"N_{\text{layer}} \cdot 12\,D^{2} \cdot 2",
        "",
        "N_layer·12·D²·2",
    ),
    (num(12884901888), r"12\,884\,901\,888", "12 thin 884 thin 901 thin 888", "12 884 901 888"),
    (num(4096), "4096", "4096", "4096"),
    (num(Fraction(-3, 4)), r"-\frac{3}{4}", "-frac(3, 4)", "-3/4"),
    (Total((D, Product((num(-1), K)))), "D - k", "D - k", "D - k"),
    (Total((Product((num(-3), K)), num(-1))), r"-3\,k - 1", "-3 thin k - 1", "-3·k - 1"),
    (Total((D, Total((K, num(1))))), "D + (k + 1)", "D + (k + 1)", "D + (k + 1)"),
    (Total((D, Product((num(-1), Total((K, num(1))))))), "D - (k + 1)", "D - (k + 1)", "D - (k + 1)"),
    (Product((D, num(-2))), r"D\,(-2)", "D thin (-2)", "D·(-2)"),
    (Product((num(2), Ratio(Total((K, num(-1))), K), D)), r"2\,\frac{k - 1}{k}\,D", "", "2·((k - 1)/k)·D"),
    (Product((D, Ratio(num(1), num(3)))), r"D \cdot \frac{1}{3}", "", "D·1/3"),
    (Ratio(num(1), Ratio(num(1), num(3))), r"\frac{1}{\frac{1}{3}}", "", "1/(1/3)"),
    (Ratio(Ratio(D, K), N), "", "", "(D/k)/N_layer"),
    (Ratio(D, Product((K, N))), r"\frac{D}{k\,N_{\text{layer}}}", "", "D/(k·N_layer)"),
    (Power(num(-2), num(3)), "(-2)^{3}", "(-2)^(3)", "(-2)³"),
    (Power(Total((D, num(1))), K), "(D + 1)^{k}", "(D + 1)^(k)", "(D + 1)^k"),
    (Power(num(2), Total((K, num(-1)))), "2^{k - 1}", "2^(k - 1)", "2^(k - 1)"),
    (Power(Sym("W^Q"), num(2)), "(W^{Q})^{2}", "(W^(Q))^(2)", "(W^Q)²"),
    (Power(Power(D, K), num(2)), "(D^{k})^{2}", "", "(D^k)²"),
    (Power(Ratio(D, K), num(2)), r"\left(\frac{D}{k}\right)^{2}", "", "(D/k)²"),
    (Root(D), r"\sqrt{D}", "sqrt(D)", "√(D)"),
    (Ceiling(Ratio(D, K)), r"\left\lceil \frac{D}{k} \right\rceil", "ceil(frac(D, k))", "⌈D/k⌉"),
    (Floor(D), r"\left\lfloor D \right\rfloor", "floor(D)", "⌊D⌋"),
    (Largest((D, K)), r"\max(D,\, k)", "max (D, k)", "max(D, k)"),
    (Smallest((D, Ratio(num(1), K))), r"\min\left(D,\, \frac{1}{k}\right)", "", "min(D, 1/k)"),
    (Logarithm(K, 2), r"\log_{2}(k)", "log_(2) (k)", "log_2(k)"),
    (Logarithm(K), r"\ln(k)", "ln (k)", "ln(k)"),
    (Total(()), "0", "0", "0"),
    (Product(()), "1", "1", "1"),
]


@pytest.mark.parametrize(("form", "tex", "typst", "plain"), EXPECTED, ids=lambda x: x if isinstance(x, str) else "")
def test_form(form: Form, tex: str, typst: str, plain: str) -> None:
    assert printing.plain(form) == plain
    if tex:
        assert printing.tex(form) == tex
    if typst:
        assert printing.typst(form) == typst
    well_formed(printing.mathml(form))


def well_formed(content: str) -> ElementTree.Element:
    return ElementTree.fromstring(printing.math_element(content))


def test_mathml_by_hand() -> None:
    assert printing.mathml(Ratio(num(2), K)) == "<mfrac><mn>2</mn><mi>k</mi></mfrac>"
    assert printing.mathml(Power(D, num(2))) == "<msup><mi>D</mi><mn>2</mn></msup>"
    assert printing.mathml(Sym("W_up^Q")) == "<msubsup><mi>W</mi><mi>up</mi><mi>Q</mi></msubsup>"
    assert "12\N{NARROW NO-BREAK SPACE}884" in printing.mathml(num(12884))


def test_substituted_line_is_the_same_function() -> None:
    form = Product((N, num(12), Power(D, num(2)), num(2)))
    names = {"N_layer": 32, "D": Fraction(4096)}
    assert printing.plain(form, names) == "32·12·4096²·2"
    assert printing.tex(form, names) == r"32 \cdot 12 \cdot 4096^{2} \cdot 2"
    assert printing.plain(form, {"D": "H"}) == "N_layer·12·H²·2"
    assert printing.plain(form, {"D": Total((K, num(1)))}) == "N_layer·12·(k + 1)²·2"
    assert printing.plain(Power(D, num(2)), {"D": Fraction(-1, 2)}) == "(-1/2)²"
    assert printing.plain(Total((K, D)), {"D": -3}) == "k - 3"


NAMES: list[tuple[str, str, str]] = [
    ("D", "D", "D"),
    ("N_layer", r"N_{\text{layer}}", 'N_("layer")'),
    ("n_H", "n_{H}", "n_(H)"),
    ("W_up^Q", r"W_{\text{up}}^{Q}", 'W_("up")^(Q)'),
    ("alpha", r"\alpha", "α"),
    ("α", r"\alpha", "α"),
    ("lambda", r"\lambda", "λ"),
    ("A'", "A'", "A^(prime)"),
    ("A''", "A''", "A^(prime prime)"),
    ("W^Q'", r"W^{Q\prime}", "W^(Q prime)"),
    ("Out", r"\text{Out}", '"Out"'),
    ("payload", r"\text{payload}", '"payload"'),
    ("local", r"\text{local}", '"local"'),
    ("E", "E", "E"),
    ("S", "S", "S"),
    ("__import__", r"\text{\_\_import\_\_}", '"__import__"'),
    ("D_i+1", "D_{i+1}", "D_(i + 1)"),
    ("d_t_p", r"d_{\text{t\_p}}", 'd_("t_p")'),
    ("W^1", "W^{1}", "W^(1)"),
]


@pytest.mark.parametrize(("name", "tex", "typst"), NAMES)
def test_names(name: str, tex: str, typst: str) -> None:
    assert printing.name_in("latex", name) == tex
    assert printing.name_in("typst", name) == typst
    assert printing.name_in("text", name) == name
    well_formed(printing.name_in("mathml", name))


@pytest.mark.parametrize("name", sorted(GREEK_NAMES))
def test_greek(name: str) -> None:
    assert printing.name_in("latex", name) == f"\\{name}"
    letter = printing.name_in("typst", name)
    assert len(letter) == 1
    assert printing.name_in("mathml", name) == f"<mi>{letter}</mi>"


@pytest.mark.parametrize(
    ("latex", "expected"),
    [
        (r"D_{tp}", "D_{tp}"),
        (r"D_{\text{tp}}", r"D_{\text{tp}}"),
        (r"\mathcal{L}_1", r"\mathcal{L}_{1}"),
        (r"\hat{x}", r"\hat{x}"),
        (r"\ell", r"\ell"),
        (r"W^{Q}_{i}", "W_{i}^{Q}"),
        (r"$x'$", "x'"),
    ],
)
def test_the_authors_own_latex(latex: str, expected: str) -> None:
    notation = Notation(latex={"x": latex})
    assert printing.name_in("latex", "x", notation) == expected
    well_formed(printing.name_in("mathml", "x", notation))
    assert printing.name_in("typst", "x", notation)


@pytest.mark.parametrize(
    "latex",
    [
        r"\input{/etc/passwd}",
        r"x}\write18{ls}{",
        r"\def\x{}",
        "x$y",
        r"\text{\input{a}}",
        "x%",
        r"\text{a}}",
        "{" * 500,
        "",
        r"x\\y",
        "#1",
    ],
)
def test_latex_that_is_not_a_name_is_not_used(latex: str) -> None:
    assert printing.name_in("latex", "x", Notation(latex={"x": latex})) == "x"


EVIL = [
    "a#b",
    "a&b",
    "a$b",
    "a_b_c",
    "\\input{x}",
    "x}\\write18{ls}",
    '"); #read("/etc/passwd")',
    "]#panic()[",
    "</math><script>alert(1)</script>",
    "a`b",
    "a|b",
    "%x",
    "~^",
    "x\ny",
    "\u202eevil",
    "{{ x }}",
    "<< x >>",
]


@pytest.mark.parametrize("name", EVIL)
def test_nothing_is_injected_through_a_name(name: str) -> None:
    tex = printing.tex(Sym(name))
    assert not re.search(r"(?<!\\)[#$%&]", tex)
    assert not re.search(r"\\(input|write)", tex)
    assert tex.replace(r"\{", "").replace(r"\}", "").count("{") == tex.replace(r"\{", "").replace(r"\}", "").count("}")
    typst = printing.typst(Sym(name))
    outside = re.sub(r'"(?:[^"\\]|\\.)*"', "", typst)  # what Typst reads as code or maths
    assert re.fullmatch(r"[A-Za-z0-9_^() ]*", outside)
    root = well_formed(printing.mathml(Sym(name)))
    assert {e.tag.rpartition("}")[2] for e in root.iter()} <= {
        "math",
        "mi",
        "mo",
        "mn",
        "msub",
        "msup",
        "msubsup",
        "mrow",
    }
    assert "\n" not in printing.plain(Sym(name))
    assert "\u202e" not in printing.plain(Sym(name))


def test_quantities() -> None:
    q = Quantity(Fraction(12 * 2**30), BYTE)
    assert printing.quantity_in("text", q) == "12 884 901 888 B = 12 GiB ≈ 12.88 GB"
    assert printing.quantity_in("latex", q) == r"12\,884\,901\,888\ \text{B} = 12\ \text{GiB} \approx 12.88\ \text{GB}"
    written = printing.quantity_in("typst", q)
    assert written == '12 thin 884 thin 901 thin 888 med "B" = 12 med "GiB" approx 12.88 med "GB"'
    well_formed(printing.quantity_in("mathml", q))
    third = Quantity(Fraction(-4096, 3), Unit.parse("FLOP/byte"))
    assert printing.quantity_in("latex", third) == r"-\frac{4096}{3}\ \text{FLOP/B} \approx -1365.33\ \text{FLOP/B}"
    assert printing.quantity_in("text", third) == "-4096/3 FLOP/B ≈ -1365.33 FLOP/B"
    assert printing.quantity_in("latex", Quantity(Fraction(10**17, 7))).endswith(r"\approx 1.42857 \cdot 10^{16}")
    assert printing.quantity_in("text", Quantity(Fraction(2), Unit.parse("byte") ** 2)) == "2 B²"
    assert printing.quantity_in("latex", Quantity(Fraction(2), Unit.parse("byte") ** 2)) == r"2\ \text{B}^{2}"
    assert printing.quantity_in("text", Quantity(Fraction(7), ONE)) == "7"


@pytest.mark.parametrize("dialect", ["latex", "typst", "mathml", "text"])
@pytest.mark.parametrize("limit", [5, 10, 20, 40])
def test_broken_lines_are_narrow_and_complete(dialect: printing.DialectName, limit: int) -> None:
    terms = Total(tuple(Product((num(i), N, Sym(f"a_{i}"))) for i in range(2, 30)))
    for form in (terms, Product((N, terms)), Ratio(Product((N, terms)), K)):
        lines = printing.broken(dialect, form, limit).lines
        assert len(lines) > 1
        whole = "".join(lines)
        for i in range(2, 30):
            assert re.search(rf"\b{i}\b", whole)
    assert all(len(line) < 2.5 * limit + 20 for line in printing.broken("text", terms, limit).lines)


def test_a_short_form_is_not_broken() -> None:
    assert printing.broken("latex", Total((D, K)), 40).lines == ("D + k",)


A = [Sym(f"a_{i}") for i in range(8)]


@pytest.mark.parametrize(
    ("form", "em"),
    [  # a digit is half an em and a group of digits a thin space wider, a letter 0.55 em, an index seven tenths of it
        (num(2), 0.67),
        (num(12345), 5 * 0.5 + 2 * 0.17),
        (num(Fraction(7, 2)), 0.67 + 0.3),  # a fraction is as wide as its wider half, and its bar
        (num(Fraction(1, 128)), 3 * 0.5 + 0.17 + 0.3),
        (D, 0.6),
        (A[0], 0.6 + 0.7 * 0.55),
        (num(-2), 0.8 + 0.67),  # a sign is 0.8 em, one between two terms with its spaces 1.6
        (Product((num(-1), D)), 0.8 + 0.6),
        (Ratio(Product((num(-1), D)), K), 0.8 + 0.6 + 0.3),
        (Total((D, K)), 2 * (0.6 + 1.6)),
        (Product((num(2), D)), 0.67 + 0.6 + 2 * 0.17),
        (Product((D, num(2))), 0.17 + 0.6 + 0.67 + 0.7),
        (Root(D), 1.6),
        (Ceiling(D), 1.5),
        (Largest((D, K)), 2 * (0.6 + 0.5) + 2.4),
        (Logarithm(D, 2), 0.6 + 2.5),
        (Power(D, num(2)), 0.6 + 0.7 * 0.67),
        (Power(D, Ratio(Product((num(-1), K)), D)), 0.6 + 0.7 * (0.8 + 0.6 + 0.6 + 0.5)),
    ],
)
def test_widths_are_added_up_from_those_of_the_signs(form: Form, em: float) -> None:
    assert printing.width(form) == pytest.approx(em)


def lines(form: Form, limit: float) -> list[str]:
    return [*printing.broken("text", form, limit).lines]


def test_a_line_holds_as_many_terms_as_fit() -> None:
    # Three characters are 1.65 em, and a sign before them 1.6.
    three = 1.65 + 2 * (1.6 + 1.65)
    assert lines(Total((*A[:5],)), three + 0.001) == ["a_0 + a_1 + a_2", "+ a_3 + a_4"]
    assert lines(Total((*A[:5],)), three - 0.001) == ["a_0 + a_1", "+ a_2 + a_3", "+ a_4"]
    minus = (Product((num(-1), A[0])), *A[1:5])  # a sign at the beginning is 0.8 em
    assert lines(Total(minus), three + 0.801) == ["-a_0 + a_1 + a_2", "+ a_3 + a_4"]
    assert lines(Total(minus), three + 0.799) == ["-a_0 + a_1", "+ a_2 + a_3", "+ a_4"]
    factors = 4 * 1.65 + 3 * 0.7  # a dot is 0.7 em
    assert lines(Product((*A[:5],)), factors + 0.001) == ["a_0·a_1·a_2·a_3", "· a_4"]
    assert lines(Product((*A[:5],)), factors - 0.001) == ["a_0·a_1·a_2", "· a_3·a_4"]


def test_a_long_form_is_broken_at_the_outermost_place() -> None:
    left, right = Product((K, Total((*A[:3],)))), Product((D, Total((*A[4:8],))))
    deep = Total((left, A[3], right))
    assert lines(deep, 24) == ["k·(a_0 + a_1 + a_2) + a_3", "+ D·(a_4 + a_5 + a_6 + a_7)"]
    assert lines(deep, 14) == ["k·(a_0 + a_1 + a_2)", "+ a_3 + D", "· (a_4 + a_5 + a_6 + a_7)"]
    inside = Product((K, Total((A[0], Product((D, Total((*A[1:7],)))), A[7]))))
    assert lines(inside, 16) == ["k·(a_0 + D·(a_1 + a_2 + a_3", "+ a_4 + a_5 + a_6) + a_7)"]
    assert lines(inside, 12) == ["k·(a_0 + D", "· (a_1 + a_2 + a_3", "+ a_4 + a_5 + a_6)", "+ a_7)"]
    assert lines(Total((A[0], Product((K, A[1])), A[2])), 6.2) == ["a_0 + k·a_1", "+ a_2"]


def test_a_fraction_is_broken_where_its_bottom_is_short_and_its_top_long() -> None:
    top = Total((*A[:5],))
    assert lines(Ratio(top, K), 12) == ["(1/k)·(a_0 + a_1 + a_2", "+ a_3 + a_4)"]
    assert lines(Ratio(Total((*A[:2],)), K), 4) == ["(1/k)", "· (a_0 + a_1)"]  # a short sum stays in one line
    whole = ["(a_0 + a_1 + a_2 + a_3 + a_4)/(a_5 + a_6 + a_7)"]
    assert lines(Ratio(top, Total((*A[5:8],))), 12) == whole  # the bottom takes more than half of the line
    assert lines(Ratio(Product((*A[:2],)), K), 4) == ["(1/k)", "· a_0", "· a_1"]
    assert lines(Ratio(A[0], Total((*A[1:4],))), 4) == ["a_0/(a_1 + a_2 + a_3)"]  # one piece stands above


@pytest.mark.parametrize(
    ("form", "tex"),
    [
        (Product((num(2), Ratio(D, K))), r"2\,D/k"),
        (Product((num(2), Ratio(Product((num(3), D)), K))), r"2 \cdot 3\,D/k"),
        (Product((num(2), Ratio(num(3), K))), r"2 \cdot 3/k"),
        (Product((num(2), Ratio(Total((num(3), D)), K))), r"2\,(3 + D)/k"),
        (Product((Ratio(D, K), D)), r"(D/k)\,D"),
        (Product((Ratio(D, K), num(3))), r"(D/k) \cdot 3"),
        (Ratio(D, Ratio(K, D)), "D/(k/D)"),
        (Ratio(Ratio(D, K), D), "(D/k)/D"),
        (Ratio(Product((num(-1), D)), K), "-D/k"),
        (Ratio(D, Product((K, D))), r"D/(k\,D)"),
        (Ratio(D, Power(K, num(2))), "D/k^{2}"),
        (Power(Ratio(D, K), num(2)), "(D/k)^{2}"),
    ],
)
def test_fractions_on_the_line_keep_what_they_divide(form: Form, tex: str) -> None:
    assert inline("latex", form) == tex


def test_functions_are_set_upright_and_what_a_sum_is_over_below_it() -> None:
    x = (Sym("x"),)
    assert printing.tex(forms.Called("sin", x)) == r"\sin(x)"
    assert printing.tex(forms.Called("relu", x)) == r"\operatorname{relu}(x)"
    assert printing.tex(forms.Called("sum_i", x)) == r"\text{sum}_{i}(x)"
    assert printing.plain(forms.Called("sum_i", x)) == "sum_i(x)"


def test_a_base_of_several_letters_is_kept_together() -> None:
    notation = Notation({"d": r"\Delta x_{i}", "e": r"{AB}_{c}"})
    assert printing.tex(Power(Sym("d"), num(2)), None, notation) == r"(\Delta x_{i})^{2}"
    assert printing.tex(Power(Sym("e"), num(2)), None, notation) == "({AB}_{c})^{2}"
    assert printing.typst(Sym("e"), None, notation) == "(A B)_(c)"
    assert printing.tex(Power(Sym("dx_i"), num(2))) == r"\text{dx}_{i}^{2}"


# -- what is printed is what is meant -------------------------------------------------------------

NUMBERS = st.one_of(
    st.integers(-20, 20).map(num), st.fractions(min_value=-5, max_value=5, max_denominator=7).map(lambda f: Num(f))
)
LEAVES = st.one_of(NUMBERS, st.sampled_from([Sym(n) for n in ("B", "D", "n_H", "x")]))
FORMS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=4).map(lambda t: Total(tuple(t))),
        st.lists(inner, min_size=1, max_size=4).map(lambda t: Product(tuple(t))),
        st.tuples(inner, inner).map(lambda t: Ratio(*t)),
        st.tuples(inner, st.integers(-3, 4)).map(lambda t: Power(t[0], num(t[1]))),
        inner.map(Ceiling),
        inner.map(Floor),
        st.lists(inner, min_size=2, max_size=3).map(lambda t: Largest(tuple(t))),
        st.lists(inner, min_size=2, max_size=3).map(lambda t: Smallest(tuple(t))),
    ),
    max_leaves=12,
)
VALUES = {"B": Fraction(3), "D": Fraction(7, 2), "n_H": Fraction(5), "x": Fraction(2, 3)}


class Reader:
    """Reads what the plain printer writes, by the usual rules of precedence; shares no code with the printer."""

    def __init__(self, text: str) -> None:
        self.tokens = re.findall(
            r"\d+(?: \d{3})*(?:\.\d+)?|[A-Za-z_]+|[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+|.", text.replace(" + ", "+").replace(" - ", "-")
        )
        self.at = 0

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self, *wanted: str) -> str:
        token = self.peek()
        assert not wanted or token in wanted, (token, wanted, self.tokens)
        self.at += 1
        return token

    def total(self) -> Fraction:
        sign = -1 if self.peek() == "-" else 1
        if sign < 0:
            self.take()
        value = sign * self.term()
        while self.peek() in ("+", "-"):
            value = value + self.term() if self.take() == "+" else value - self.term()
        return value

    def term(self) -> Fraction:
        value = self.power()
        while self.peek() in ("·", "/"):
            if self.take() == "·":
                value *= self.power()
            else:
                below = self.power()
                if not below:
                    raise ZeroDivisionError
                value /= below
        return value

    def power(self) -> Fraction:
        base = self.atom()
        if self.peek() and self.peek()[0] in "⁻⁰¹²³⁴⁵⁶⁷⁸⁹":
            exponent = int(self.take().translate(str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")))
            return base**exponent
        return base

    def atom(self) -> Fraction:
        token = self.take()
        if token[0].isdigit():
            return Fraction(token.replace(" ", ""))
        if token in ("max", "min"):
            self.take("(")
            values = [self.total()]
            while self.peek() == ",":
                self.take()
                self.take(" ")
                values.append(self.total())
            self.take(")")
            return max(values) if token == "max" else min(values)
        if token in "(⌈⌊":
            value = self.total()
            self.take({"(": ")", "⌈": "⌉", "⌊": "⌋"}[token])
            if token == "(":
                return value
            return Fraction(-((-value).__floor__())) if token == "⌈" else Fraction(value.__floor__())
        return VALUES[token]


@given(FORMS)
def test_plain_text_reads_back_to_the_same_number(form: Form) -> None:
    try:
        worth = forms.evaluate(form, VALUES)
    except ValuesError:
        return
    if max(abs(worth.numerator), worth.denominator) > 10**60:
        return
    reader = Reader(printing.plain(form))
    assert reader.total() == worth, printing.plain(form)
    assert not reader.peek()


@given(FORMS)
def test_every_dialect_prints_every_form(form: Form) -> None:
    well_formed(printing.mathml(form))
    for text in (printing.tex(form), *printing.broken("latex", form, 10).lines):
        plain_braces = text.replace(r"\{", "").replace(r"\}", "")
        assert plain_braces.count("{") == plain_braces.count("}")
    assert printing.tex(form).count(r"\left") == printing.tex(form).count(r"\right")
    for line in printing.broken("mathml", form, 10).lines:
        well_formed(line)


@given(st.text(max_size=12).filter(bool))
def test_any_text_is_a_safe_name(name: str) -> None:
    root = well_formed(printing.mathml(Sym(name)))
    assert root is not None
    outside = re.sub(r'"(?:[^"\\]|\\.)*"', "", printing.typst(Sym(name)))
    assert not set(outside) & set('#$[]{}\\`;"')
    printing.tex(Sym(name)).encode("utf-8", "strict")


def test_a_factor_that_is_only_a_unit_is_not_written() -> None:
    square = product(Num(Fraction(1), BYTE), Power(Sym("D"), num(2)))
    assert printing.plain(square) == "D²"
    assert printing.tex(Total((square, Num(Fraction(1), BYTE)))) == "D^{2} + 1"
    # A number that was put in is shown, also where it is one.
    assert printing.plain(product(num(2), Sym("B")), {"B": 1}) == "2·1"


def test_what_follows_a_small_exponent_has_its_usual_size() -> None:
    small = Total((Power(Sym("x"), Ratio(Sym("a"), Sym("b"))), Ratio(Sym("a"), Sym("b"))))
    assert printing.tex(small) == r"x^{a/b} + \frac{a}{b}"


def test_a_size_in_backquotes_may_be_a_sum_or_a_ratio():
    assert printing.markdown_sentence("`(c + 1)` and `n_H/n_kv`") == r"$c + 1$ and $\frac{n_{H}}{n_{\text{kv}}}$"
    assert printing.markdown_sentence("`a / + b`") == "a / + b"  # no size: as it was written
