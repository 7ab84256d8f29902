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


def test_blanks_without_end_are_no_module():
    from symcomm.readers.module_text import is_module_text

    assert not is_module_text(" " * 100_000)
    assert not is_module_text("\n" * 50_000 + " " * 50_000)
    assert is_module_text("```text\n\nNet(\n  (a): Linear(in_features=1, out_features=1)\n)\n```")
