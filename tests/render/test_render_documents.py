"""Whole documents in every format: what is written, what is refused, and that nothing half-written is left."""

from __future__ import annotations

import builtins
import re
import shutil
from dataclasses import replace
from fractions import Fraction
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from api import (
    BYTE,
    ONE,
    Accounting,
    Answer,
    Block,
    Cell,
    Derivation,
    Document,
    Exhibit,
    Form,
    Given,
    Heading,
    LayerTable,
    Notation,
    Num,
    Power,
    Product,
    Prose,
    Quantity,
    Ratio,
    Reason,
    RenderError,
    Span,
    Step,
    Sym,
    Table,
    Total,
    Unit,
    contents,
    num,
    product,
    render,
    safe_name,
    source,
)
from api import pdf as pdf_module
from api import prose as prose_module
from api import write_files as write

KINDS = ("md", "tex", "html", "typ")
FORMATS = ("md", "tex", "html", "pdf")


def span(text: str, line: int = 1) -> Span:
    return Span("homework.md", line, text.splitlines()[0] if text else "", 0, len(text.splitlines()[0]) if text else 0)


def prose(text: str, line: int = 1) -> Prose:
    return Prose(text, span(text, line))


def heading(text: str, level: int = 1, points: int | None = None) -> Heading:
    return Heading(level, text, points, span(text))


def document(*blocks: Block, **changes: Any) -> Document:
    fields: dict[str, Any] = {
        "title": "Homework 2",
        "subtitle": "Parallel training",
        "authors": ("A. Teacher",),
        "date": "2024-03-20",
        "language": "en",
        "file": "homework.md",
        "notation": Notation(),
    }
    return Document(**(fields | changes), blocks=blocks)


def all_reduce(title: str = "bytes all-reduced", reason: str = "One all-reduce a weight.") -> Derivation:
    d2 = Power(Sym("D"), num(2))
    cells: tuple[str | Form | Quantity, ...] = (
        Sym("W^Q"),
        "all-reduce",
        product(num(2), d2),
        Quantity(Fraction(2**25), BYTE),
    )
    return Derivation(
        title,
        Accounting(),
        (
            Step(
                "P_layer",
                product(num(12), d2),
                Unit.parse("parameter"),
                Reason("weights", "Four D × D and two D × 4D."),
            ),
            Step(
                "V_AR",
                Product((Sym("N_layer"), Sym("P_layer"), Num(Fraction(2), Unit.parse("byte/parameter")))),
                BYTE,
                Reason("all-reduce", reason),
            ),
            Step("V_AR", product(num(24), Sym("N_layer"), d2), BYTE, Reason("collect", "Numbers are collected."), "="),
        ),
        touched=("communication",),
        exhibits=(Exhibit("Collectives", ("tensor", "call", "bytes", "at the given values"), (cells,)),),
        notes=("Each rank holds the sum afterwards.",),
    )


def long() -> Derivation:
    terms = Total(tuple(Product((num(i + 2), Sym("N_layer"), Sym("B"), Sym("L"), Sym(f"D_{i}"))) for i in range(9)))
    names = Product((Sym("N_layer"), Total(tuple(Ratio(t, Sym("k")) for t in terms.terms))))
    return Derivation(
        "a long sum",
        Accounting(),
        (
            Step(
                "T",
                Ratio(Product((Sym("N_layer"), terms)), Sym("k")),
                ONE,
                Reason("sum", "All the calls, one after the other."),
            ),
            Step("T", names, ONE, Reason("split", "Each term on its own."), "="),
            Step("T", terms, ONE, Reason("limit", "For one rank a layer."), "≈", "k = N_layer"),
        ),
    )


def answer(d: Derivation | None = None, label: str = "", **values: int) -> Answer:
    d = d or all_reduce()
    values = values or {"N_layer": 32, "D": 4096}
    known = {name: Fraction(v) for name, v in values.items()}
    given = tuple(Given(n, "number of layers" if n == "N_layer" else "", Quantity(v)) for n, v in known.items())
    quantity = d.at(**values) if all(n in values for n in d.needs) else None
    return Answer(label, d, given, quantity, span("x"))


def table() -> LayerTable:
    columns = ("Computation", "Input", "Output")
    cells = (
        r"$\text{Score}_i = \text{softmax}(\frac{Q_i K_i^T}{\sqrt{D}}), i = 1, \dots, n_h$",
        r"$Q_i, K_i \in \mathbb{R}^{B \times L \times H}$",
        "1. $x$",
    )
    return LayerTable(
        Table(
            "homework.md",
            4,
            columns,
            (tuple(Cell(c, "homework.md", 5, c, 0, h) for c, h in zip(cells, columns, strict=True)),),
        )
    )


def everything() -> Document:
    long_values = {"N_layer": 32, "B": 128, "L": 4096, "k": 8} | {f"D_{i}": 4096 for i in range(9)}
    return document(
        heading("Question 1. *GPU* performance", 1, 20),
        prose(
            "Given $D = n_H \\times H$:\n\n- **1.41** GHz;\n- `a_b`\n\n"
            "$$\\begin{aligned} a &= b \\\\ &= c \\end{aligned}$$\n\n| a | b |\n|--:|---|\n| $x^2$ | 2 |\n"
        ),
        table(),
        heading("1.1 How many bytes?", 2, 5),
        answer(),
        heading("1.2 A long one", 2, 15),
        answer(long(), "forward", **long_values),
        Answer("without values", all_reduce(), (), None, span("x")),
    )


@pytest.fixture(scope="module")
def written() -> dict[str, str]:
    return {kind: source(everything(), kind) for kind in KINDS}


class Balanced(HTMLParser):
    """Raises where an element is closed that was not opened last."""

    EMPTY = frozenset({"meta", "br", "wbr", "hr", "col", "img", "input", "link"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        assert not [name for name, _ in attrs if name.startswith("on")]
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.EMPTY:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open
        assert self.open.pop() == tag


def balanced(html: str) -> Balanced:
    parser = Balanced()
    parser.feed(html)
    parser.close()
    assert not parser.open
    return parser


def test_markdown(written: dict[str, str]) -> None:
    text = written["md"]
    assert "## Question 1. *GPU* performance (20 points)" in text
    assert r"\boxed{\begin{aligned}" in text
    assert r"12\,884\,901\,888\ \text{B} = 12\ \text{GiB} \approx 12.88\ \text{GB}" in text
    assert r"24 \cdot 32 \cdot 4096^{2}" in text
    assert "| tensor | call | bytes | at the given values |" in text
    assert "*(if k = N\\_layer)*" in text
    assert "Each collective counts the bytes of" in text


def test_html_is_well_formed_and_self_contained(written: dict[str, str]) -> None:
    seen = balanced(written["html"]).seen
    assert {"math", "table", "caption", "th", "main", "h1", "h2"} <= seen
    assert not seen & {"script", "link", "img", "iframe"}
    assert "prefers-color-scheme: dark" in written["html"]
    assert "@media print" in written["html"]


def test_typst_describes_every_formula(written: dict[str, str]) -> None:
    assert '#eq("x^2")[$x^2$]' in written["typ"]
    assert '"V_AR = 24·N_layer·D²"' in written["typ"]


def test_pdf_is_tagged_and_the_same_twice() -> None:
    first = contents(everything(), ["pdf"])["pdf"]
    prose_module._written.clear()
    assert contents(everything(), ["pdf"])["pdf"] == first
    assert first.startswith(b"%PDF-")
    assert b"pdfuaid" in first
    assert b"Homework 2" in first or b"H\0o\0m" in first or b"\xfe\xff\0H\0o" in first


@pytest.mark.parametrize("kind", ["tex", "html", "typ", "md"])
def test_the_paper_has_no_answers(kind: str) -> None:
    text = source(everything(), kind, edition="paper")
    assert "Numbers are collected" not in text
    assert "884" not in text
    assert "How many bytes" in text


def test_an_empty_document_is_set() -> None:
    assert contents(document(title="", subtitle="", authors=(), date=""), ["md", "tex", "html"])
    assert contents(document(subtitle="", authors=(), date="spring", language="en-GB"), ["pdf"])


def test_headings_without_gaps_for_readers() -> None:
    assert contents(document(heading("a", 3), heading("b", 1), heading("c", 4), prose("# Big\n\ntext")), ["pdf"])


def test_files_are_written_and_named(tmp_path: Path) -> None:
    paths = render(everything(), set(FORMATS), tmp_path / "out", name="../../home work/2")
    assert [p.name for p in paths] == [f"home-work-2.{f}" for f in FORMATS]
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == sorted(p.name for p in paths)
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("name", ["", "..", "/", "a/../../b", "\0", ".hidden", "con\n", "x" * 999])
def test_safe_names(name: str) -> None:
    safe = safe_name(name)
    assert re.fullmatch(r"[\w][\w.\-]*", safe)
    assert ".." not in safe
    assert len(safe) <= 120


# -- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["tex", "html", "pdf"])
@pytest.mark.parametrize(
    ("text", "named"),
    [
        (r"Let $a \foo{x}$ be", r"\foo"),
        (r"\begin{tabular}{c} a \end{tabular}", r"\begin{tabular}"),
        (r"see \input{/etc/passwd}", r"\input"),
        (r"$\input{/etc/passwd}$", r"\input"),
        (r"$\newcommand{\a}{\b\b} \a$", r"\newcommand"),
        (r"$\label{x} y$", r"\label"),
        ("a <b>bold</b> word", "<b>"),
        ("<script>alert(1)</script>", "<script>"),
        ("![picture](/etc/passwd)", "/etc/passwd"),
        ("$x % y$", "x % y"),
    ],
)
def test_a_construct_that_cannot_be_shown_is_named(form: str, text: str, named: str, tmp_path: Path) -> None:
    doc = document(prose("fine", 3), prose(text, 7))
    with pytest.raises(RenderError) as caught:
        render(doc, {"md", form}, tmp_path, name="x")
    assert named in caught.value.message
    assert caught.value.span is not None
    assert caught.value.span.place.startswith("homework.md:7")
    assert list(tmp_path.iterdir()) == []


def test_the_span_of_a_cell_is_told() -> None:
    cell = Cell(r"$\frob x$", "homework.md", 12, r"| $\frob x$ |", 2, "Input")
    doc = document(LayerTable(Table("homework.md", 10, ("Input",), ((cell,),))))
    with pytest.raises(RenderError) as caught:
        source(doc, "typ")
    assert "homework.md:12, column Input" in str(caught.value)
    assert r"\frob" in str(caught.value)


def test_comments_are_dropped() -> None:
    assert "secret" not in source(document(prose("a <!-- secret --> b\n\n<!-- secret -->\n\nc")), "html")


def test_everything_markdown_has() -> None:
    text = '```\ncode   block\n```\n\n> quote\n\nnote[^1] ~~gone~~ "quoted" -- <https://example.org/a_b//c>\n\n'
    text += "[^1]: The note with $x$.\n\n- [x] done\n\n---\n\n1. one\n   - two\n\n| a |\n|:-:|\n| $x$ |\n"
    doc = document(prose(text))
    assert contents(doc, ["pdf", "tex", "md"])
    balanced(source(doc, "html"))


def test_notes_stand_below_their_own_text_in_html() -> None:
    """Pandoc writes the notes of all pieces behind the last one."""
    page = source(
        document(prose("One[^1].\n\n[^1]: First."), prose("Two[^1].\n\n[^1]: Second $x$."), prose("Three.")), "html"
    )
    places = [page.index(words) for words in ("One<sup>1</sup>", "First.", "Two<sup>1</sup>", "Second", "Three.")]
    assert places == sorted(places)
    assert "#fn" not in page


EVIL = [
    "<script>alert(1)</script>",
    r"\input{/etc/passwd} $x$ % & # _ ^ ~ { }",
    '#read("/etc/passwd") *b* ] [ " \\',
    "// comment /* x */ @label <tag> = head",
    "<< 7*7 >> {{ 7*7 }} <% include 'x' %>",
    "1. item\n# head",
    "\u202egnp.exe",
]


@pytest.mark.parametrize("text", EVIL)
def test_nothing_is_injected_through_plain_text(text: str) -> None:
    d = all_reduce(title=text, reason=text)
    meant = Given("N_layer", text, Quantity(Fraction(32)))
    found = Answer(text, d, (meant, Given("D", text, Quantity(Fraction(8)))), d.at(N_layer=32, D=8), span(text))
    doc = document(found, title=text, subtitle=text, authors=(text,), date=text)
    assert not balanced(source(doc, "html")).seen & {"script", "tag", "b"}
    assert contents(doc, ["pdf"])["pdf"].startswith(b"%PDF-")
    tex = source(doc, "tex")
    assert r"\input" not in tex
    assert ("7*7" in source(doc, "typ")) == ("7*7" in text)
    assert "<script" not in source(doc, "md").replace("\\<script", "")


def test_code_in_prose_stays_text() -> None:
    text = (
        '`#read("x")` and `</code><script>` and\n\n```{=html}\n<script>x</script>\n```\n\n``` {=typst}\n#panic()\n```\n'
    )
    doc = document(prose(text))
    assert "script" not in balanced(source(doc, "html")).seen
    assert contents(doc, ["pdf"])


def test_links_lead_only_to_the_web() -> None:
    html = source(document(prose("[a](javascript:alert(1)) [b](https://example.org) [c](file:///etc/passwd)")), "html")
    assert re.findall(r'href="([^"]*)"', html) == ["https://example.org"]


def test_pieces_do_not_reach_into_one_another() -> None:
    html = source(
        document(prose("```\nopen"), heading("1. x"), prose("[r]: https://example.org"), prose("see [r]")), "html"
    )
    assert "1. x</h2>" in html
    assert "see [r]" in html


def test_language_and_format_are_checked(tmp_path: Path) -> None:
    with pytest.raises(RenderError, match="not a language"):
        source(document(language="en-US-x"), "html")
    with pytest.raises(RenderError, match="unknown format 'pfd'"):
        render(document(), {"pfd"}, tmp_path, name="x")
    with pytest.raises(RenderError, match="unknown engine"):
        render(document(), {"pdf"}, tmp_path, name="x", engine="word")  # type: ignore[arg-type]


# -- tools --------------------------------------------------------------------------------------


def without(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    real = builtins.__import__

    def refuse(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == module:
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)


def test_missing_typst(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    without(monkeypatch, "typst")
    with pytest.raises(RenderError) as caught:
        render(everything(), {"md", "pdf"}, tmp_path, name="x")
    assert 'pip install "matplotlib<4,>=3.8" "pypandoc-binary<2,>=1.13" "typst<0.16,>=0.14"' in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_missing_pandoc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    prose_module._written.clear()
    prose_module._path.cache_clear()
    without(monkeypatch, "pypandoc")
    monkeypatch.setattr(prose_module, "find_spec", lambda name: None)
    with pytest.raises(RenderError) as caught:
        render(everything(), {"html"}, tmp_path, name="x")
    assert 'pip install "matplotlib<4,>=3.8" "pypandoc-binary<2,>=1.13" "typst<0.16,>=0.14"' in str(caught.value)
    assert render(everything(), {"md"}, tmp_path, name="x")  # Markdown needs no tool


def test_missing_latex(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(RenderError) as caught:
        render(everything(), {"pdf"}, tmp_path, name="x", engine="latex")
    assert "texlive-latex-extra" in str(caught.value)
    assert "latexmk" in str(caught.value)


def test_a_failed_write_leaves_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "x.md").write_text("old")
    (tmp_path / "blocked").mkdir()
    (tmp_path / "blocked" / "inside").write_text("")
    with pytest.raises(RenderError, match="cannot be written"):
        write({"blocked": b"a directory is in the way"}, tmp_path)
    with pytest.raises(RenderError):
        render(document(prose(r"$\foo$")), {"md", "html"}, tmp_path, name="x")
    with pytest.raises(RenderError, match="cannot be written"):
        write({"a": b""}, tmp_path / "x.md")
    assert (tmp_path / "x.md").read_text() == "old"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["blocked", "x.md"]


# -- templates of one's own -----------------------------------------------------------------------


def test_a_template_of_ones_own_replaces_ours(tmp_path: Path) -> None:
    (tmp_path / "solution.md.jinja").write_text("mine: << page.title >> <% if page.solutions %>yes<% endif %>")
    assert source(document(title="a*b"), "md", templates=tmp_path) == "mine: a\\*b yes"
    (tmp_path / "macros.typ.jinja").write_text(
        "<% macro table(t) %>replaced<% endmacro %><% macro answer(a) %>- mine<% endmacro %>"
    )
    assert "replaced" in source(document(table()), "typ", templates=tmp_path)
    assert "<h1>" in source(document(), "html", templates=tmp_path)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a\n<% if %>", "solution.md.jinja, line 2"),
        ("a\n\n<< page.nothing >>", "solution.md.jinja, line 3"),
        ("<< nothing >>", "'nothing' is undefined"),
        ("<% include 'absent' %>", "absent"),
        ("<< ''.__class__.__mro__ >>", "unsafe"),
        ("<% for i in range(10 ** 9) %>x<% endfor %>", "Range too big"),
        ("a\n<% for i in range(90000) %><% for j in range(90000) %><% endfor %><% endfor %>", "line 2: this takes"),
        ("<< 'ab' * 10 ** 9 >>", "this takes too long, or makes too much"),
        ("<< 10 ** (10 ** 9) >>", "this takes too long, or makes too much"),
        ("<< '%999999999d' % 1 >>", "this takes too long, or makes too much"),
        ("<< 'a'.ljust(10 ** 9) >>", "unsafe"),
        ("<< 'a'|center(10 ** 9) >>", "No filter named 'center'"),
        ("<% set a = 'a' * 99999 %>" + "<% set a = a ~ a %>" * 20, "this takes too long, or makes too much"),
        ("<< 10 ** 5000 >>", "line 1: a number has more than 4,300 digits"),
        ("<< '{:>99999999}'.format(1) >>", "unsafe"),
        ("<< kept(page.title.upper, page) >>", "kept takes a macro and what it writes"),
        ("<% macro f(n) %><< f(n+1) >><% endmacro %><< f(0) >>", "macros, loops or included files nest too deep"),
    ],
)
def test_a_wrong_template_is_told_with_its_line(text: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "solution.md.jinja").write_text(text)
    with pytest.raises(RenderError, match=re.escape(told)):
        source(document(), "md", templates=tmp_path)


WASTEFUL = [  # each more than 20 MB, or more than 400,000 turns
    "<< 'a' * 99999999 >>",
    "<% set a = 'a' * 9999999 %><% for i in range(9) %><< a >><% endfor %>",
    "<% for i in range(990) %><% for j in range(990) %><< 'ab' * 100 >><% endfor %><% endfor %>",
    "<% for i in range(990) %><% for j in range(990) %>a text of its own<% endfor %><% endfor %>",
    "<< (range(99999)|list * 900)|length >>",
    "<< ('a' * 9999,) * 9999 >>",
    "<< [[1] * 9999] * 9999 >>",
    "<% macro f(n) %><% if n < 30 %><< f(n+1) >><< f(n+1) >><% endif %><% endmacro %><< f(0) >>",
    "<< ('a' * 99999)|replace('a', 'b' * 99999) >>",
    "<< ('a' * 99999)|list|join('b' * 99999) >>",
    "<< range(99999)|map('string')|join('b' * 999) >>",
    "<< ('%s' * 100000) % ((('a' * 1000),) * 100000) >>",
    "<% set ns = namespace(a=['a']) %><% for i in range(60) %><% set ns.a = [ns.a, ns.a] %><% endfor %><< ns.a >>",
    "<% for i in range(99999) %><% set x = range(99999)|sort %><% endfor %>",
    "<< [1]|batch(99999999, 'x')|list >>",
    "<% macro f(t) %><< 'a' * 99999 >><% endmacro %><% for i in range(999) %><< kept(f, page) >><% endfor %>",
]


@pytest.mark.few(3)
@pytest.mark.parametrize("text", WASTEFUL)
def test_a_template_is_stopped_before_it_makes_too_much(text: str, tmp_path: Path) -> None:
    (tmp_path / "solution.md.jinja").write_text(text)
    with pytest.raises(RenderError, match="this takes too long, or makes too much"):
        source(document(), "md", templates=tmp_path)


def test_a_template_may_run_90000_turns_and_use_filters(tmp_path: Path) -> None:
    text = "<% for i in range(300) %><% for j in range(300) %>x<% endfor %><% endfor %><< ['a', 'b']|join('-')|upper >>"
    (tmp_path / "solution.md.jinja").write_text(text)
    assert source(document(), "md", templates=tmp_path) == "x" * 90000 + "A-B"


def test_what_a_macro_writes_of_a_thing_is_kept_for_this_very_thing(tmp_path: Path) -> None:
    macro = "<% macro f(t) %><% set ns.times = ns.times + 1 %><< t.title >><% endmacro %>"
    text = "<% set ns = namespace(times=0) %>" + macro + "<< kept(f, page) >> << kept(f, page) >> << ns.times >>"
    (tmp_path / "solution.md.jinja").write_text(text)
    assert source(document(title="one"), "md", templates=tmp_path) == "one one 1"
    assert source(document(title="two"), "md", templates=tmp_path) == "two two 1"


def test_a_missing_folder_of_templates(tmp_path: Path) -> None:
    with pytest.raises(RenderError, match="no folder of templates"):
        source(document(), "md", templates=tmp_path / "absent")


def test_typst_cannot_leave_its_folder_and_ends() -> None:
    with pytest.raises(RenderError):
        pdf_module.typst_pdf('#read("/etc/passwd")')
    with pytest.raises(RenderError, match=r"line 2: #while"):
        pdf_module.typst_pdf("\n#while true {}")


# -- LaTeX ----------------------------------------------------------------------------------------

needs_latex = pytest.mark.skipif(shutil.which("latexmk") is None, reason="latexmk is not installed")


@pytest.mark.latex
@needs_latex
def test_latex_sets_everything_without_complaint() -> None:
    data, log = pdf_module.latex_run(source(everything(), "tex"))
    assert data.startswith(b"%PDF-")
    complaints = [
        line for line in log.splitlines() if re.search(r"Overfull|undefined|multiply defined|Missing character", line)
    ]
    assert complaints == []
    assert pdf_module.latex_run(source(everything(), "tex"))[0] == data


@pytest.mark.latex
@needs_latex
@pytest.mark.parametrize("text", EVIL)
def test_latex_sets_any_plain_text(text: str) -> None:
    d = all_reduce(title=text, reason=text + " αβ ≤ × ·")
    doc = document(heading("a"), Answer(text, d, (), None, span(text)), title=text, authors=(text,))
    assert contents(doc, ["pdf"], engine="latex")["pdf"].startswith(b"%PDF-")


@pytest.mark.latex
@needs_latex
def test_latex_reports_its_fault() -> None:
    with pytest.raises(RenderError, match=r"Undefined control sequence.*line 3: \\frob"):
        pdf_module.latex_pdf("\\documentclass{article}\n\\begin{document}\n\\frob\n\\end{document}\n")


# -- names in our own sentences -------------------------------------------------------------------


def test_names_in_backquotes_are_maths() -> None:
    d = all_reduce(reason="The gradient of `W^Q` is cut along `4D`, not along `]#panic()[`.")
    doc = document(Answer("`V_AR`", d, (), None, span("x")))
    assert "The gradient of $W^{Q}$ is cut along $4\\ D$" in source(doc, "md")
    assert "The gradient of $W^{Q}$ is cut along $4\\,D$" in source(doc, "tex")
    assert 'cut along ";#eq("4D")[$4 thin D$]' in source(doc, "typ")
    assert '<math xmlns="http://www.w3.org/1998/Math/MathML" alttext="W^Q">' in source(doc, "html")
    assert "The gradient of W^Q is cut along 4D, not along ]#panic()[." in d.text()
    assert contents(doc, ["pdf"])


def test_prose_that_was_converted_before_is_there_when_what_is_kept_is_emptied(monkeypatch):
    monkeypatch.setattr(prose_module, "_written", {})
    monkeypatch.setattr(prose_module, "_KEPT", 1)
    monkeypatch.setattr(prose_module, "_AT_ONCE", 2)
    monkeypatch.setattr(prose_module, "_convert", lambda pieces, target: [p.markdown.upper() for p in pieces])
    a, b, c, d = (prose_module.InlinePiece(word, Span("t.md", 1, word, 0, 1)) for word in "abcd")
    assert prose_module.convert([a, b], "html") == {a: "A", b: "B"}
    assert prose_module.convert([a, c, d, c], "html") == {a: "A", c: "C", d: "D"}


def test_a_meaning_is_told_once_and_again_where_the_name_means_something_else() -> None:
    from api import parse_problem, solve

    text = """# Pipeline

```symcomm
- {ask: pipeline_time, label: a, want: utilisation, given: {p: 4, m: 12}}
- model: product
  formula: '$Y = XW, X \\in R^{m \\times q}, W \\in R^{q \\times n}, Y \\in R^{m \\times n}$'
  symbols: {m: rows of the result}
  values: {m: 64, n: 16, q: 32}
- {ask: flops, label: b, model: product}
- {ask: intensity, label: c, model: product}
```
"""
    page = source(solve(parse_problem(text, "two.md")), "md")
    assert page.count("$m = 12$ (number of microbatches") == 1
    assert page.count("$m = 64$ (rows of the result)") == 1


def test_no_line_of_a_pdf_breaks_inside_of_a_unit() -> None:
    doc = document(prose("It has 25 GB/s and 512 FMA/clock/SM and/or more."))
    assert "25 #box[GB/s] and 512 #box[FMA/clock/SM] and/or more" in " ".join(source(doc, "typ").split())
    assert "25 GB/s" in source(doc, "html")


def test_html_breaks_answers_before_a_relation_and_never_before_a_comma() -> None:
    html = source(document(prose("With $a$, $b$; all.")), "html")
    assert html.count("</math>,</span>") == 1
    assert html.count("</math>;</span>") == 1
    boxed = source(document(answer(N_layer=32, D=8)), "html").split('<table class="answer">')[1].split("</table>")[0]
    assert boxed.count("</math><wbr><math") >= 2
    assert 'alttext="= ' in boxed


def pages_of(data: bytes) -> list[str]:
    import io

    import pypdf

    return [page.extract_text() for page in pypdf.PdfReader(io.BytesIO(data)).pages]


def test_a_box_to_tick_has_no_bullet_before_it() -> None:
    made = document(prose("Which?\n\n- [ ] **A** one\n- [ ] **B** two"))
    (page,) = pages_of(contents(made, ["pdf"])["pdf"])
    assert re.search(r"☐\s*A one", page), page
    assert "•" not in page
    assert 'ul class="task-list"' in source(made, "html")


def test_the_points_of_a_heading_of_any_length_stay_on_one_line() -> None:
    headings = [heading("How many bytes are sent" + " to all" * n, 2, 5) for n in range(2, 24)]
    assert " ".join(pages_of(contents(document(*headings), ["pdf"])["pdf"])).count("(5 points)") == len(headings)


def test_a_power_copied_from_a_pdf_keeps_its_caret() -> None:
    (page,) = pages_of(contents(document(prose("A square $D^2$ and a name $W^Q_i$.")), ["pdf"])["pdf"])
    assert "𝐷^2" in page.replace("\n", "")
    assert "^𝑄" in page.replace("\n", "")


@pytest.mark.parametrize(("tex", "told"), [
    (r"24 N D^2", "24 N D^2"),
    (r"\frac{a+1}{\sqrt{d_k}}", "(a + 1)/√d_k"),
    (r"X \in \mathbb{R}^{m \times k}", "X ∈ ℝ^(m × k)"),
    (r"\mathrm{softmax}\left(x'\right)", "softmax (x′)"),
])  # fmt: skip
def test_a_screen_reader_says_a_formula_of_the_prose_without_tex(tex: str, told: str) -> None:
    assert f'#eq("{told}")' in source(document(prose(f"Here ${tex}$.")), "typ")


def test_a_short_answer_does_not_go_over_to_the_next_page() -> None:
    filled = [prose("x\n\n" * 34)]  # the box would fit on the first page, its notes would not
    first, second = pages_of(contents(document(*filled, answer(N_layer=32, D=8), prose("y\n\n" * 9)), ["pdf"])["pdf"])
    assert "AR" not in first
    assert "AR" in second


def test_a_heading_and_a_short_text_go_with_the_answer_below_them() -> None:
    filled = prose("x\n\n" * 33)  # the heading and the text would fit on the first page, the answer would not
    blocks = filled, heading("Bytes of a layer"), prose("How many bytes?"), answer(N_layer=32, D=8), prose("y\n\n" * 9)
    first, second = pages_of(contents(document(*blocks), ["pdf"])["pdf"])
    assert "Bytes of a layer" not in first
    assert "How many bytes?" not in first
    assert second.index("Bytes of a layer") < second.index("How many bytes?") < second.index("AR")


@pytest.mark.parametrize(("lines", "whole"), [(14, True), (34, False)])
def test_an_answer_of_half_a_page_stays_on_one_page_and_a_longer_one_breaks(lines: int, whole: bool) -> None:
    made = answer(N_layer=32, D=8)
    notes = tuple(f"Line {n} of the answer stays {'so ' * 20}on." for n in range(lines))
    made = replace(made, derivation=replace(made.derivation, notes=notes))
    pages = pages_of(contents(document(prose("x\n\n" * 24), made, prose("y\n\n" * 8)), ["pdf"])["pdf"])
    parts = [page for page in pages if "of the answer stays" in page]
    assert (len(parts) == 1) is whole


def test_a_last_page_with_little_on_it_is_pulled_in() -> None:
    made = document(prose("x\n\n" * 46))
    assert len(pages_of(pdf_module.typst_pdf(source(made, "typ")))) == 2
    assert len(pages_of(contents(made, ["pdf"])["pdf"])) == 1


def test_no_sign_of_a_formula_is_smaller_than_six_points() -> None:
    import io

    import pypdf

    sizes: dict[float, str] = {}

    def see(text: str, matrix: list[float], placed: list[float], _: object, size: float) -> None:
        if text.strip() not in ("", "^"):  # a caret that is copied, but not seen
            sizes[round(abs(size * placed[3] * matrix[3]), 2)] = text

    nested = prose(r"A power $e^{x^{y^2}}$ and a share $\frac{a}{b_{c_d}}$ in a line, $\sum_{i=1}^{n_{H_k}} x_i$.")
    for page in pypdf.PdfReader(io.BytesIO(contents(document(nested, *everything().blocks), ["pdf"])["pdf"])).pages:
        page.extract_text(visitor_text=see)
    assert min(sizes) >= 6, sizes
    assert max(sizes) > 14
