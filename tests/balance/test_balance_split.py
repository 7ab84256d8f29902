"""The best split of devices into two mesh axes, against every split tried by a walk that shares no code."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest
from api import Derivation, Model, ValuesError, from_expr, patience
from api import form_evaluate as evaluate
from balance_models import BOOK, OVERLAP, ROOT, block, block_products, swiglu, swiglu_products, walk, xxl

import symcomm as sc

MESH = "fsdp(X) + tensor(Y)"
RATES = {"peak": "460 TFLOP/s", "network": "180 GB/s"}
MODELS = {"block": (block, block_products), "swiglu": (swiglu, swiglu_products)}


def split(model: Model, accounting: dict[str, str] = BOOK, **options: object) -> Derivation:
    return model.derive("mesh_split", strategy=MESH, accounting=accounting, **options)


def cost(times: tuple[Fraction, ...], accounting: dict[str, str]) -> Fraction:
    return max(times[1:]) if accounting is OVERLAP else sum(times[1:], Fraction(0))


def least_batch(
    products: list[tuple[str, int, int]], at: dict[str, int], accounting: dict[str, str]
) -> Fraction | None:
    """The real batch at which computing catches up, from two points of each straight line; None where it never does."""
    one, two = (walk(products, {**at, "B": b}) for b in (0, 1))
    slopes = [b - a for a, b in zip(one, two, strict=True)]
    groups = [(one[1], slopes[1]), (one[2], slopes[2])]
    if accounting is not OVERLAP:
        groups = [(one[1] + one[2], slopes[1] + slopes[2])]
    found = Fraction(0)
    for fixed, growing in groups:
        gain = slopes[0] - growing
        if gain < 0 or (gain == 0 and fixed):
            return None
        found = max(found, fixed / gain if fixed else Fraction(0))
    return found


def options_of(devices: int) -> list[tuple[int, int]]:
    return [(x, devices // x) for x in range(1, devices + 1) if devices % x == 0]


@pytest.mark.parametrize("accounting", [BOOK, OVERLAP], ids=["added", "overlapping"])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("devices", [12, *(pytest.param(n, marks=pytest.mark.long) for n in (2, 64, 90))])
def test_no_divisor_sends_faster_than_the_best_one(model: str, devices: int, accounting: dict[str, str]) -> None:
    rng = random.Random(devices)
    make, products = MODELS[model]
    sizes = {"D": 16 * rng.randint(1, 9), "F": devices * rng.randint(1, 9), "B": devices * rng.randint(1, 90)}
    at = {**sizes, "R": 1000, "W_net": 20, "M_X": 2, "M_Y": 1}
    tried = {x: cost(walk(products(at), {**at, "X": x, "Y": y}), accounting) for x, y in options_of(devices)}
    found = split(make().at(**sizes), accounting, devices=devices, numbers="whole", links="X=2", network=20)
    best = int(found.at().value)
    assert tried[best] == min(tried.values())
    rows = {int(row[0]): row[4].value for row in found.exhibits[0].rows}
    assert rows == {x: tried[x] for x in rows}


@pytest.mark.few(2)
@pytest.mark.parametrize("accounting", [BOOK, OVERLAP], ids=["added", "overlapping"])
@pytest.mark.parametrize("model", MODELS)
def test_no_divisor_is_compute_bound_at_a_smaller_batch_than_the_best_one(
    model: str, accounting: dict[str, str]
) -> None:
    make, products = MODELS[model]
    for devices, rate in ((36, 900), (24, 3000)):
        at = {"D": 16, "F": 720 * 64, "R": rate, "W_net": 1, "M_X": 1, "M_Y": 2}
        tried = {x: least_batch(products(at), {**at, "X": x, "Y": y}, accounting) for x, y in options_of(devices)}
        # One rank along both axes or along the first sends nothing that is fixed: those have no least batch.
        able = {x: b for x, b in tried.items() if b}
        found = split(make().at(D=16, F=720 * 64), accounting, devices=devices, least="batch", numbers="whole",
                      links="Y=2", peak=rate, network=1)  # fmt: skip
        best = int(found.at().value)
        assert min(b for b in tried.values() if b is not None) == (tried[best] or 0)
        rows = {int(row[0]): getattr(row[2], "value", None) for row in found.exhibits[0].rows}
        assert {x: rows[x] for x in able if x in rows} == {x: able[x] for x in able if x in rows}


def test_the_best_split_for_a_batch_is_the_square_root_of_the_book() -> None:
    found = split(block(), devices="N", links="X=M_X, Y=M_Y")
    at = {"B": 53248, "F": 53248, "N": 64, "M_X": 2, "M_Y": 2}
    assert found.at(**at).value == 8  # sqrt(B/F · M_X/M_Y · N)
    at = {"B": 4, "F": 1, "N": 50, "M_X": 2, "M_Y": 1}
    assert found.at(**at).value == 20
    assert split(block(), OVERLAP, devices="N", links="X=M_X, Y=M_Y").expr == found.expr


def test_the_real_split_is_beaten_by_no_neighbour() -> None:
    """The walk at a fraction of the ranks: the times are straight lines in X and in 1/X."""
    for accounting in (BOOK, OVERLAP):
        found = split(block().at(F=288, D=8, B=200, N=64), accounting, devices="N", links="X=M", network=3)
        place = found.at(M=1).value

        def worth(x: Fraction, accounting: dict[str, str] = accounting) -> Fraction:
            data, tensor = 2 * 2 * 8 * 288 * x / 64 / 3, 2 * 2 * 200 * 8 / x / 3
            return max(data, tensor) if accounting is OVERLAP else data + tensor

        assert worth(place) <= min(worth(place * f) for f in (Fraction(99, 100), Fraction(101, 100)))


def test_the_split_with_the_least_batch_has_half_of_the_tensor_ranks_that_are_possible() -> None:
    found = split(xxl(), devices=64, links="X=2, Y=1", least="batch", **RATES)
    most = Fraction(53248 * 180 * 10**9, 460 * 10**12)  # F W M_Y / C
    assert found.at().value == 64 / (most / 2)
    least = evaluate(from_expr(found.worth["B^least"]), dict(found.given))
    at = {"D": 16384, "F": 53248, "R": 460 * 10**12, "W_net": 180 * 10**9, "M_X": 2}

    def batch(x: Fraction) -> Fraction:
        fixed = Fraction(4 * at["D"] * at["F"] * x, 64 * at["W_net"] * 2)
        return fixed / (Fraction(4 * at["D"] * at["F"], 64 * at["R"]) - Fraction(4 * at["D"], at["W_net"]) / x)

    assert least == batch(found.at().value)
    assert least < min(batch(found.at().value * f) for f in (Fraction(99, 100), Fraction(101, 100)))
    whole = split(xxl(), devices=64, links="X=2, Y=1", least="batch", numbers="whole", **RATES)
    assert whole.at().value == 8
    assert least < Fraction(76544000, 4613)  # X = Y = 8


def test_the_least_batch_of_overlapping_times_is_at_the_edge() -> None:
    found = split(xxl(), OVERLAP, devices=64, links="X=2, Y=1", least="batch", **RATES)
    assert found.at().value == 64 / Fraction(53248 * 180 * 10**9, 460 * 10**12)
    assert split(xxl(), OVERLAP, devices=64, links="X=2, Y=1", least="batch", numbers="whole", **RATES).at().value == 4


@pytest.mark.parametrize("accounting", [BOOK, OVERLAP], ids=["added", "overlapping"])
@pytest.mark.parametrize("numbers", ["real", "whole"])
def test_the_least_batch_of_all_splits_is_an_answer(accounting: dict[str, str], numbers: str) -> None:
    options = {"devices": 64, "links": "X=2, Y=1", "least": "batch", "numbers": numbers, **RATES}
    place, least = (split(xxl(), accounting, want=want, **options).at().value for want in ("split", "least"))
    at = {"D": 16384, "F": 53248, "R": 460 * 10**12, "W_net": 180 * 10**9, "M_X": 2}
    fixed = Fraction(4 * at["D"] * at["F"], 64 * at["W_net"] * 2) * place
    slope = Fraction(4 * at["D"] * at["F"], 64 * at["R"])
    sent = Fraction(4 * at["D"], at["W_net"]) / place
    assert least == (fixed / slope if accounting is OVERLAP else fixed / (slope - sent))


def test_the_least_time_of_all_splits_is_an_answer_on_one_axis_where_that_is_best() -> None:
    for accounting in (BOOK, OVERLAP):
        for batch in (200, 10**6, 1):  # inside, and all devices on one axis or on the other
            model = block().at(F=288, D=8, B=batch, N=64)
            found = split(model, accounting, devices="N", links="X=M", network=3, want="least").at(M=1)

            def worth(x: Fraction, accounting: dict[str, str] = accounting, batch: int = batch) -> float:
                data, tensor = 2 * 2 * 8 * 288 * x / 64 / 3, 2 * 2 * batch * 8 / x / 3
                return float(max(data, tensor) if accounting is OVERLAP else data + tensor)

            grid = [worth(1 + Fraction(63 * i, 4000)) for i in range(4001)]
            assert str(found.unit) == "s"
            assert min(grid) / float(found.value) - 1 < 1e-3
            assert float(found.value) <= min(grid) * (1 + 1e-12)


def test_no_least_batch_is_said_where_no_split_is_ever_enough() -> None:
    options = {"devices": 64, "links": "X=2, Y=1", "least": "batch", "peak": "460 PFLOP/s", "network": "18 GB/s"}
    with pytest.raises(ValuesError, match="no split of 64 devices will do"):
        split(xxl(), want="least", **options)
    late = split(block(), devices="N", least="batch", want="least")
    assert [str(condition) for condition in late.where] == ["F·W_net > R"]
    few, many = ({"D": 64, "F": f, "N": 64, "R": 100, "W_net": 1} for f in (99, 101))
    assert late.at(**many).value > 0
    with pytest.raises(ValuesError, match=r"no split of N devices will do: .*, where F = 99, W_net = 1, R = 100\n"):
        late.at(**few)


def test_a_split_beyond_the_devices_says_so() -> None:
    found = split(block().at(B=10**9, F=8), devices=64)
    assert found.at().value > 64
    assert any("above 64: the best there is has all devices on one axis" in note for note in found.notes)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "'mesh_split' needs the option 'devices'"),
        ({"devices": "X"}, "X is a symbol of the strategy"),
        ({"devices": "D"}, "D is a symbol of the model"),
        ({"devices": 64, "least": "money"}, "unknown choice 'money' of 'least'"),
        ({"devices": 64, "numbers": "odd"}, "unknown choice 'odd' of 'numbers'"),
        ({"devices": "N", "numbers": "whole"}, "the divisors of N hang on its value"),
        ({"devices": 1, "numbers": "whole"}, "1 devices cannot be split"),
        ({"devices": 10**12, "numbers": "whole"}, "is no size of a mesh axis"),
        ({"devices": 963761198400, "numbers": "whole"}, "has 6720 divisors: at most 256 are compared"),
        ({"devices": 64, "numbers": "whole"}, "the best split depends on numbers: "),
        ({"devices": 0}, "'devices' is 0, but it must be positive"),
    ],
)
def test_a_split_that_makes_no_sense_is_refused(options: dict[str, object], said: str) -> None:
    from api import SymcommError

    with pytest.raises(SymcommError) as error:
        split(block(), **options)
    assert said in str(error.value)
    assert error.value.hint


@pytest.mark.parametrize(
    "strategy", ["fsdp(X)", "fsdp(16) + tensor(4)", "fsdp(X) + tensor(X)", "data(A) + fsdp(X, mesh=b) + tensor(Y)"]
)
def test_a_mesh_without_two_free_axes_is_not_split(strategy: str) -> None:
    from api import StrategyError

    with pytest.raises(StrategyError, match="devices are split into two mesh axes"):
        block().derive("mesh_split", strategy=strategy, devices=64, accounting=BOOK)


def test_where_only_one_axis_sends_anything_there_is_nothing_to_balance() -> None:
    with pytest.raises(ValuesError, match="only the mesh axis 'tensor' sends anything"):
        block().derive("mesh_split", strategy="data(X) + tensor(Y)", devices=64, accounting=BOOK)


def test_a_layer_with_attention_and_numbers_for_all_sizes_has_a_best_split() -> None:
    layer = sc.load(ROOT / "examples/layers/grouped-query-attention.md")
    place, least = (
        split(layer, devices=64, least="batch", want=want, **RATES).at().value for want in ("split", "least")
    )
    asked = layer.derive("compute_bound", strategy=MESH, accounting=BOOK, **RATES)
    at = from_expr(asked.expr)

    def batch(x: Fraction) -> Fraction:
        return evaluate(at, {**dict(asked.given), "X": x, "Y": 64 / x})

    assert batch(place) == least
    assert least < min(batch(place * f) for f in (Fraction(9, 10), Fraction(11, 10)))


def test_where_no_split_is_compute_bound_the_refusal_says_so() -> None:
    model = block().at(D=64, F=64)
    with pytest.raises(ValuesError, match="no split of 4 devices will do"):
        model.derive("mesh_split", strategy="cut(D, X) + cut(F, Y)", devices=4, least="batch", numbers="whole",
                     accounting=BOOK, peak=10**9, network=1)  # fmt: skip


def test_a_split_whose_roots_take_too_long_is_refused_with_what_was_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    def forever(*given: object) -> None:
        while True:
            pass

    monkeypatch.setattr(patience, "CROSSING", 0.05)
    monkeypatch.setattr("symcomm.core.quantities.time.mesh_split.positive_root", forever)
    with pytest.raises(ValuesError) as caught:
        split(xxl(), OVERLAP, devices=64, links="X=2, Y=1", least="batch", **RATES)
    assert str(caught.value) == (
        "the search for the best real X was given up after 0.05 s: tried the roots of a difference in closed form\n"
        "hint: numbers: whole compares the divisors"
    )
