"""A size in a table is a positive count; anything else is refused at its place."""

import pytest

import symcomm as sc

TABLE = "Computation\tInput\tOutput\ny = xW\tx [B, {size}], W [{size}, F]\ty [B, F]\n"


@pytest.mark.parametrize(
    ("size", "said"),
    [
        ("-D", "a size of -D"),
        ("D-2D", "a size of -D"),
        ("D-D", "a size of 0"),
        ("0", "a size of 0"),
        ("2.5", "a size of 5/2"),
        ("sqrt(-1)*D", "a size of I*D"),
        ("8 GB", "'GB' is a unit, and a size counts things"),
        ("D mod 8", "'mod' cannot stand in a size"),
        ("round(D)", "unknown function 'round'"),
        ("foo(D)", "unknown function 'foo'"),
        ("10**5000", "exponents go up to 1,000"),
    ],
)
def test_a_size_that_is_no_count_is_refused(size: str, said: str):
    with pytest.raises(sc.SymcommError) as caught:
        sc.load(TABLE.format(size=size))
    assert said in str(caught.value)
    assert "column Input" in str(caught.value)
    assert "^" in str(caught.value)


@pytest.mark.parametrize("size", ["4D", "n(H + 1)", "L - K + 1", "D/2", r"\lceil D/8 \rceil", "max(D, 8)", "GB"])
def test_a_size_that_may_be_a_count_is_read(size: str):
    if size == "GB":  # a name of one's own, where it is declared to be one
        size = "D"
    assert sc.load(TABLE.format(size=size)).parameters().expr is not None


@pytest.mark.parametrize("end", ["-n", "sqrt(-1) n", "n-2n", "0", "2.5"])
def test_an_index_runs_over_a_count(end: str):
    row = f"Q_i = xW_i, i = 1, \\dots, {end}\tx [B, D], W_i [D, H]\tQ_i [B, H]\n"
    with pytest.raises(sc.SymcommError, match="column Computation: a size of") as caught:
        sc.load("Computation\tInput\tOutput\n" + row)
    assert caught.value.span is not None
    assert caught.value.span.word == end


def test_a_long_chain_is_read_as_a_short_one_is():
    rows = [
        f"x_{{{n + 1}}} = x_{{{n}}} W_{{{n}}}\tx_{{{n}}} [B, D], W_{{{n}}} [D, D]\tx_{{{n + 1}}} [B, D]\n"
        for n in range(60)
    ]
    made = sc.load("Computation\tInput\tOutput\n" + "".join(rows))
    assert str(made.parameters().at(D=3)) == "540 parameters"
    broken = [*rows[:40], rows[40].replace("W_{40} [D, D]", "W_{40} [D, E]"), *rows[41:]]
    with pytest.raises(sc.SymcommError, match=r"<text>:42, column Output: x_41 is declared as B × D, but its formula"):
        sc.load("Computation\tInput\tOutput\n" + "".join(broken))


def test_blanks_without_end_are_no_module():
    from api import is_module_text

    assert not is_module_text(" " * 100_000)
    assert not is_module_text("\n" * 50_000 + " " * 50_000)
    assert is_module_text("```text\n\nNet(\n  (a): Linear(in_features=1, out_features=1)\n)\n```")
