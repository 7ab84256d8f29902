"""Quantities are exact; people read decimal and binary prefixes."""

from __future__ import annotations

from fractions import Fraction

import pytest
from api import (
    BYTE,
    ONE,
    Accounting,
    AccountingError,
    Derivation,
    Quantity,
    Reason,
    Span,
    Step,
    Sym,
    SymcommError,
    Unit,
    ValuesError,
    exact,
    product,
)
from api import accounting_CONVENTIONS as CONVENTIONS
from api import errors_nearest as nearest
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("text", "value", "unit"),
    [
        ("80 GB", 80 * 10**9, "B"),
        ("80GiB", 80 * 2**30, "B"),
        ("1.41 GHz", 1_410_000_000, "cycle/second"),
        ("512 FMA/clock/SM", 512, "FMA/(cycle*SM)"),
        ("300 GB/s", 300 * 10**9, "B/s"),
        ("20 us", Fraction(1, 50_000), "s"),
        ("312 TFLOP/s", 312 * 10**12, "FLOP/s"),
        ("1/2", Fraction(1, 2), "1"),
        ("4_096", 4096, "1"),
        ("1e9", 10**9, "1"),
        ("1.5·10^-7 s", Fraction(15, 10**8), "s"),
        ("12 345 B", 12_345, "B"),
        ("1/1 024", Fraction(1, 1024), "1"),
        ("50 %", Fraction(1, 2), "1"),
        ("400 Gbit/s", 50 * 10**9, "B/s"),
        ("8 Gbps", 10**9, "B/s"),
        ("1 h", 3600, "s"),
        ("5 min", 300, "s"),
        ("2 days", 172_800, "s"),
        ("1 week", 604_800, "s"),
        ("3 μs", Fraction(3, 10**6), "s"),
        ("36 GiB/h", 36 * Fraction(2**30, 3600), "B/s"),
        ("6 FLOP/(B/(s*GPU))", 6, "FLOP*s*GPU/B"),
        ("9 B/s^2", 9, "B/(s*s)"),
    ],
)
def test_a_quantity_is_read_exactly(text: str, value: Fraction | int, unit: str) -> None:
    assert Quantity.parse(text) == Quantity(Fraction(value), Unit.parse(unit))


def worth(text: str) -> Fraction:
    """What a reading says, read with Python's own numbers."""
    number, unit = text.replace(" ", "").replace("·10^", "e"), ""
    while number and number[-1] not in "0123456789":
        number, unit = number[:-1], number[-1] + unit
    scale = {"": 1, "B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30,
             "s": 1, "min": 60, "h": 3600, "days": 86_400,
             "ms": Fraction(1, 10**3), "µs": Fraction(1, 10**6), "ns": Fraction(1, 10**9)}[unit]  # fmt: skip
    return Fraction(number) * scale


@given(st.one_of(st.integers(1, 10**12), st.integers(0, 40).map(lambda n: 2**n + 1), st.fractions(0, 10**9)),
       st.sampled_from(["byte", "second", "1"]))  # fmt: skip
def test_an_equals_sign_stands_only_where_no_digit_is_dropped(number: int | Fraction, unit: str) -> None:
    quantity = Quantity(Fraction(number), Unit.parse(unit))
    if quantity.value >= 10**12:
        return
    relations = [relation for relation, _ in quantity.lines()]
    assert relations == sorted(relations, key=["", "=", "≈"].index)
    for relation, text in quantity.lines():
        assert (worth(text) == quantity.value) == (relation != "≈")


def test_a_byte_more_than_16_mib_is_not_16_mib() -> None:
    assert str(Quantity(Fraction(2**24 + 1), BYTE)) == "16 777 217 B = 16.777217 MB ≈ 16 MiB"


def test_bytes_are_said_exactly_and_then_rounded() -> None:
    assert str(Quantity(Fraction(21 * 2**30), BYTE)) == "22 548 578 304 B = 21 GiB ≈ 22.55 GB"


def test_a_rate_is_said_in_decimal_only() -> None:
    assert str(Quantity(Fraction(300 * 10**9), Unit.parse("B/s"))) == "300 000 000 000 B/s = 300 GB/s"


def test_a_fraction_is_said_exactly_and_rounded() -> None:
    assert str(Quantity(Fraction(2048, 65), Unit.parse("FLOP/byte"))) == "2048/65 FLOP/B ≈ 31.5077 FLOP/B"


def test_a_rate_of_a_link_or_a_device_has_its_prefix_and_a_count_of_layers_none() -> None:
    assert Quantity(Fraction(25 * 10**9), Unit.parse("byte/(link*second)")).reading == "25 GB/(link·s)"
    assert Quantity(Fraction(4 * 10**14), Unit.parse("FLOP/(device*second)")).reading == "400 TFLOP/(GPU·s)"
    assert Quantity(Fraction(4 * 10**6), Unit.parse("layer")).reading == "4 000 000 layers"


def test_an_unknown_unit_is_refused_with_a_near_one() -> None:
    with pytest.raises(ValuesError) as caught:
        Quantity.parse("80 Gibyt")
    assert str(caught.value) == "unknown unit 'Gibyt'\nhint: did you mean 'byte' or 'bytes'?"


def test_what_follows_a_number_must_be_a_unit() -> None:
    with pytest.raises(ValuesError, match=r"unknown unit '\.\.2'"):
        Quantity.parse("1..2")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("5 Gb/s", "unknown unit 'Gb'\nhint: write Gbit for bits, GB for bytes"),
        ("8K", "unknown unit 'K'\nhint: write the number out: 8192, or 8000, for 8K"),
        ("1T", "unknown unit 'T'\nhint: write the number out: 1e12 for 1T"),
        ("2 $/hour", "unknown unit '$'\nhint: write dollar, such as 2 dollar/hour"),
        ("5 B/(s", "the brackets of the unit 'B/(s' do not match"),
        ("5 B)", "the brackets of the unit 'B)' do not match"),
        (
            "3 4 GB",
            "'3 4 GB' is not a number with a unit\n"
            "hint: write for instance 80 GiB, 1.41 GHz or 12 345 B, digits in groups of three",
        ),
    ],
)
def test_a_unit_or_a_number_that_can_be_read_in_two_ways_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValuesError) as caught:
        Quantity.parse(text)
    assert str(caught.value) == said


def test_an_amount_is_told_in_another_unit_of_the_same_kind_only() -> None:
    day = Unit.parse("day")
    assert Quantity.parse("36 h").within(day) == Quantity(Fraction(3, 2), day)
    assert Quantity(Fraction(3, 2), day).within(Unit.parse("hour")).value == 36
    assert Quantity.parse("36 B").within(day) == Quantity.parse("36 B")
    assert exact("2 h", "T", day) == Fraction(1, 12)


_BASES = ["1", "byte", "FLOP", "second", "day", "element", "token", "GPU*hour", "byte/second", "FLOP/byte"]
_VALUES = st.one_of(
    st.integers(0, 10**15),
    st.fractions(0, 10**6, max_denominator=4096),
    st.integers(1, 99).map(lambda n: Fraction(n, 10**7)),
)


@given(_VALUES, st.sampled_from(_BASES))
def test_what_is_said_of_a_quantity_is_read_back(value: Fraction | int, unit: str) -> None:
    quantity = Quantity(Fraction(value), Unit.parse(unit))
    for relation, text in quantity.lines():
        again = Quantity.parse(text).within(quantity.unit)
        assert again.unit == quantity.unit
        assert abs(again.value - value) <= (0 if relation == "" else abs(value) / 999), (text, again)


@pytest.mark.parametrize("text", ["", "GB", "12 34", "1 0 0 B", "1 0000", "--3", "__import__('os')", "9" * 200])
def test_what_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(ValuesError, match="is not a number with a unit"):
        Quantity.parse(text)


def test_an_error_shows_its_place_the_text_and_a_caret() -> None:
    error = SymcommError("unknown function 'foo'", Span("t.md", 7, "$y = foo(x)$", 5, 8, "column Input"), "known: relu")
    assert str(error) == (
        "t.md:7, column Input: unknown function 'foo'\n    $y = foo(x)$\n         ^^^\nhint: known: relu"
    )


def test_a_long_line_is_cut_around_the_fault() -> None:
    shown = str(SymcommError("bad", Span("t.md", 1, "x" * 5000 + "!" + "y" * 5000, 5000, 5001))).splitlines()
    assert len(shown[1]) < 200
    assert shown[1][shown[2].index("^")] == "!"


def test_a_long_message_and_a_long_hint_are_cut() -> None:
    shown = str(SymcommError("m" * 5000, None, nearest("zzz", [f"name_{n}" for n in range(900)]))).splitlines()
    assert shown[0] == "m" * 700 + " ... " + "m" * 200
    assert shown[1].startswith("hint: known: name_0, name_1, ")
    assert shown[1].endswith(", name_98, name_99")
    assert len(shown[1]) == 905


def test_near_words_are_named_and_else_all_known_ones() -> None:
    assert nearest("pipline", ["pipeline", "tensor"]) == "did you mean 'pipeline'?"
    assert nearest("zzz", ["b", "a"]) == "known: a, b"


def test_the_first_convention_of_each_field_is_its_default() -> None:
    seen: dict[str, str] = {}
    for row in CONVENTIONS:
        seen.setdefault(row.field, row.name)
    assert {name: getattr(Accounting(), name) for name in seen} == seen


def test_a_convention_may_be_named_alone_where_its_name_is_unique() -> None:
    assert Accounting.of("all_links", "causal_half").attention == "causal_half"
    with pytest.raises(AccountingError) as caught:
        Accounting.of("keep")
    assert str(caught.value) == (
        "'keep' belongs to several conventions\nhint: write gathered_weights: keep or gathered_activations: keep"
    )
    with pytest.raises(AccountingError) as caught:
        Accounting.of("payloads")
    assert str(caught.value) == "unknown convention 'payloads'\nhint: did you mean 'payload'?"


def test_a_division_by_zero_is_refused_where_a_number_is_read() -> None:
    with pytest.raises(ValuesError, match=r"'1/00 GB' divides by zero"):
        Quantity.parse("1/00 GB")


def test_a_number_beyond_any_float_is_said_as_a_power_of_ten() -> None:
    assert [text for _, text in Quantity(Fraction(10**400), BYTE).lines()][1:] == ["1·10^382 EB", "8.674·10^381 EiB"]
    assert str(Quantity(Fraction(2, 3 * 10**400))).endswith("≈ 6.66667·10^-401")


def test_a_unit_is_refused_for_a_number_of_things_and_taken_for_an_amount_beside_it() -> None:
    made = Derivation("t", Accounting(), (Step("t", product(Sym("a", False), Sym("k")), ONE, Reason("r", "t")),))
    assert made.at(a="2 s", k=3).value == 6
    with pytest.raises(ValuesError, match="k is given in s, but it is a number of things"):
        made.at(a=2, k="3 s")


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        ("999 s", "999 s"),
        ("1100 s", "≈ 18.33 min"),
        ("7200 s", "= 2 h"),
        ("30 days", "= 30 days"),
        ("5 Ms", "≈ 57.87 days"),
    ],
)
def test_a_long_time_is_said_as_people_say_it(seconds: str, said: str) -> None:
    assert str(Quantity.parse(seconds)).endswith(said)


@pytest.mark.parametrize("text", ["5 GB^1.5", "5 GB^99999999", "5 GB^x", "5 GB/s^"])
def test_a_power_of_a_unit_that_is_no_whole_number_of_one_digit_is_refused(text: str) -> None:
    with pytest.raises(ValuesError, match=r"'(GB|s)\^.*' is no power of a unit\nhint: a whole number of one digit"):
        Quantity.parse(text)
    assert Quantity.parse("5 ms^-2").value == 5_000_000
