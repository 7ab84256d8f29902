"""Pictures show what was derived: the points in them are compared with numbers worked out apart."""

from __future__ import annotations

import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from api import (
    Accounting,
    RenderError,
    SymcommError,
    Times,
    Unit,
    ValuesError,
    break_even_plot,
    crossover_plot,
    derive,
    no_model,
    optimum_plot,
    schedule_plot,
    sensitivity_plot,
    timeline,
    timeline_plot,
)
from api import figure_words as words
from api import figure_written as written
from api import schedule_says as says
from api import schedules_run as run

import symcomm as sc

pytest.importorskip("matplotlib")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Matplotlib's own imports

BUCKETS = {"s": Fraction(8 * 10**9), "w": Fraction(120 * 10**9), "o": Fraction(1, 10_000)}
LAYER = (
    "Computation\tInput\tOutput\nu = relu(x W)\tx [B, D], W [D, F]\tu [B, F]\ny = u U\tu [B, F], U [F, D]\ty [B, D]\n"
)
SIZES = {"B": 8, "D": 16, "F": 64}


def quantity(name: str, values: dict[str, Fraction] | None = None, **options: Any) -> sc.Derivation:
    return derive(name, no_model(), options, Accounting(), values or {})


def curves(figure: Any) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    (axes,) = figure.axes
    return {line.get_label(): (np.array(line.get_xdata()), np.array(line.get_ydata())) for line in axes.lines}


def notes(figure: Any) -> list[str]:
    return [text.get_text() for text in figure.axes[0].texts]


# -- schedules -------------------------------------------------------------------------------------------


def test_every_piece_of_work_is_a_box_in_its_row() -> None:
    made = run("1f1b", 3, 5)
    figure = schedule_plot(made)
    boxes = {
        (round(float(ys.mean())), float(xs.min()), float(xs.max() - xs.min()))
        for collection in figure.axes[0].collections
        for path in collection.get_paths()
        for xs, ys in [path.vertices.T]
    }
    assert len(boxes) == 30
    assert boxes == {(e.rank, float(e.start), float(e.stop - e.start)) for e in made.events()}
    assert sorted(notes(figure)) == sorted(str(m) for m in range(1, 6) for _ in range(6))
    assert figure.axes[0].get_title("left") == "Finished after 21; the stages work 5/7 ≈ 71.4 % of the time."


def test_the_caption_has_the_unit_of_the_times() -> None:
    made = run("gpipe", 2, 2, times=Times([Fraction(6, 1000), Fraction(2, 1000)]), backward=False)
    assert says(made, Unit.parse("second")) == "Finished after 14 ms; the stages work 4/7 ≈ 57.1 % of the time."


@pytest.mark.long
def test_a_schedule_of_too_many_boxes_is_not_drawn() -> None:
    with pytest.raises(ValuesError, match="8192 boxes would be too small to read"):
        schedule_plot(run("gpipe", 64, 64))


# -- optima ----------------------------------------------------------------------------------------------


def test_the_least_cost_is_where_its_two_terms_meet() -> None:
    figure = optimum_plot(quantity("buckets", BUCKETS, want="overhead"), "n_b", given=BUCKETS)
    lines = curves(figure)
    n, total = lines["Time left after backward"]
    np.testing.assert_allclose(total, n * 1e-4 + 8e9 / 120e9 / n, rtol=1e-12)
    terms = [ys for name, (xs, ys) in lines.items() if name.startswith("$")]
    np.testing.assert_allclose(sum(terms), total, rtol=1e-12)
    marked = [(x[0], y[0]) for x, y in lines.values() if len(x) == 1]
    best = (8e9 / 120e9 / 1e-4) ** 0.5  # 25.82
    assert any(x == pytest.approx(best) and y == pytest.approx(2 * best * 1e-4) for x, y in marked)
    assert {25, 26} <= {x for x, _ in marked}
    assert "best whole number, 26" in lines
    assert notes(figure) == ["least at $n_{b}$ ≈ 25.82\n5.164 ms"]


def test_a_greatest_value_is_drawn_as_well() -> None:
    from api import ONE, Reason, Step
    from api import form as forms

    n = forms.Sym("n", False)
    gain = forms.total(forms.product(forms.num(7), n), forms.negative(forms.product(n, n)))
    made = sc.Derivation("gain", Accounting(), (Step("G", gain, ONE, Reason("given", "A test.")),))
    lines = curves(optimum_plot(made, "n", sense="greatest"))
    assert any(len(x) == 1 and (x[0], y[0]) == (3.5, 12.25) for x, y in lines.values())


def test_a_crossover_is_marked_where_both_costs_are_equal() -> None:
    given = {"ranks": 8, "latency": "20 us", "bandwidth": "100 GB/s"}
    pair = [quantity("collective_time", algorithm=name, **given) for name in ("ring", "tree")]
    figure = crossover_plot(*pair, "n", labels=["ring", "tree"])
    lines = curves(figure)
    n, ring = lines["ring"]
    np.testing.assert_allclose(ring, 14 * 20e-6 + 14 / 8 * n / 1e11, rtol=1e-6)  # parts are whole bytes
    np.testing.assert_allclose(lines["tree"][1], 6 * 20e-6 + 6 * n / 1e11, rtol=1e-6)
    (point,) = [(x[0], y[0]) for x, y in lines.values() if len(x) == 1]
    assert point[0] == pytest.approx(8 * 20e-6 * 1e11 / 4.25)
    assert point[1] == pytest.approx(6 * 20e-6 + 6 * point[0] / 1e11)
    lines = curves(crossover_plot(*pair, "n", between=("1 kB", "1 MB"), labels=["ring", "tree"]))
    assert not [x for x, _ in lines.values() if len(x) == 1]  # no crossing lies in that range


def test_a_break_even_point_is_marked() -> None:
    from api import ONE, Reason, Step
    from api import form as forms

    n = forms.Sym("n", False)
    pair = [
        sc.Derivation(title, Accounting(), (Step("T", form, ONE, Reason("given", "A test.")),))
        for title, form in (("rising", forms.product(forms.num(2), n)), ("falling", forms.Ratio(forms.num(50), n)))
    ]
    lines = curves(break_even_plot(*pair, "n"))
    assert any(len(x) == 1 and (x[0], y[0]) == pytest.approx((5, 10)) for x, y in lines.values())


def test_the_bars_of_a_sensitivity_are_the_elasticities() -> None:
    """T = (t/m + o)(m + p - 1) with t = 32, o = 1, m = 8, p = 4: each elasticity is x T'/T, by hand."""
    values = {k: Fraction(v) for k, v in {"m": 8, "p": 4, "t": 32, "o": 1}.items()}
    figure = sensitivity_plot(quantity("pipeline_time", values), given=values)
    (axes,) = figure.axes
    names = [label.get_text().split("$")[1] for label in axes.get_yticklabels()]
    bars = dict(zip(names, [p.get_width() for p in axes.patches], strict=True))
    total = (32 / 8 + 1) * 11
    by_hand = {"t": 32 * 11 / 8 / total, "o": 11 / total, "p": 4 * 5 / total, "m": 8 * (5 - 32 / 64 * 11) / total}
    assert bars == pytest.approx(by_hand)
    assert names == sorted(by_hand, key=lambda name: abs(by_hand[name]))  # the longest on top
    assert [note for note in notes(figure) if "−" in note] == ["−4/55"]


# -- memory ----------------------------------------------------------------------------------------------


def test_a_timeline_of_one_layer_has_the_bytes_counted_by_hand() -> None:
    """Two matrices in fp16: 2 bytes a number, and 12 more a weight for the optimizer's states."""
    model = sc.load(LAYER, values=SIZES)
    points = timeline(model)
    weights, x, u = 2 * 16 * 64, 8 * 16, 8 * 64
    assert {p.parts["weights"] for p in points} == {2 * weights}
    assert {p.parts["optimizer states"] for p in points} == {12 * weights}
    assert [p.phase for p in points] == ["forward"] * 3 + ["backward"] * 5 + ["optimizer"]
    assert points[2].parts["saved activations"] == 2 * (x + u)
    assert points[-1].parts["gradients"] == 2 * weights
    assert "saved activations" not in points[-1].parts


@pytest.mark.few(2)
@pytest.mark.parametrize("strategy", [None, "fully-sharded(2)"])
@pytest.mark.parametrize("recomputation", ["none", "full"])
def test_a_stack_of_layers_is_drawn_layer_by_layer_up_to_the_derived_peak(
    strategy: str | None, recomputation: str
) -> None:
    """Each layer alone: the last point of layer k forward keeps k times what one layer keeps."""
    model = sc.load(LAYER, values={**SIZES, "N_layer": 5}, repeat="N_layer")
    points = timeline(model, strategy, recomputation=recomputation)
    peak = model.peak_memory(strategy, recomputation=recomputation).at().value
    assert max(p.total for p in points) == peak
    kept = model.at(N_layer=1).activation_memory(strategy, recomputation=recomputation).at().value
    for layer in range(1, 6):
        forward = [p for p in points if p.phase == "forward" and p.layer == layer]
        assert forward[-1].parts["saved activations"] == layer * kept
        smaller = timeline(model.at(N_layer=layer), strategy, recomputation=recomputation)
        mine = [p for p in smaller if p.phase == "forward" and p.layer == layer]
        assert [p.parts["saved activations"] for p in forward] == [p.parts["saved activations"] for p in mine]
        back = [p for p in points if p.phase == "backward" and p.layer == layer]
        first = [p for p in timeline(model.at(N_layer=6 - layer), strategy, recomputation=recomputation)
                 if p.phase == "backward" and p.layer == 1]  # fmt: skip
        assert [p.parts["gradients"] for p in back] == [p.parts["gradients"] for p in first]


@pytest.mark.few(2)
@pytest.mark.parametrize("every", [1, 2, 3, 6])
def test_groups_that_are_computed_again_are_drawn_up_to_the_derived_peak(every: int) -> None:
    """Forward, every group leaves its first input; backward, no layer has more than its group made again."""
    for sizes in (SIZES, {"B": 200, "D": 16, "F": 8}, {"B": 2, "D": 16, "F": 64}):
        model = sc.load(LAYER, values={**sizes, "N_layer": 6}, repeat="N_layer")
        points = timeline(model, every=every)
        assert max(p.total for p in points) == model.peak_memory(every=every).at().value
        last = next(p for p in reversed(points) if p.phase == "forward")
        assert last.parts["saved activations"] == 6 // every * 2 * sizes["B"] * 16


def test_a_timeline_is_drawn_with_its_peak_named() -> None:
    model = sc.load(LAYER, values={**SIZES, "N_layer": 32}, repeat="N_layer")
    figure = timeline_plot(model)
    (axes,) = figure.axes
    points = timeline(model)
    top = max(points, key=lambda p: p.total)
    assert axes.lines[-1].get_ydata() == [pytest.approx(float(top.total) / 2**20)]
    (said,) = [note for note in notes(figure) if note.startswith("peak")]
    assert said.startswith(f"peak {float(top.total) / 2**20:.3g} MiB: {top.phase}, layer {top.layer}, ")
    assert {"forward", "backward", "optimizer", "layer"} <= set(notes(figure))
    labels = [label.get_text() for label in axes.get_xticklabels()]
    assert labels == ["1", "4", "8", "12", "16", "20", "24", "28", "32", "28", "24", "20", "16", "12", "8", "4", "1"]


def test_a_timeline_of_a_whole_model_goes_through_its_parts() -> None:
    model = sc.load(
        '{"model_type": "gpt2", "n_embd": 32, "n_layer": 3, "n_head": 4, "vocab_size": 90, "n_positions": 16}'
    ).at(B=2, L=16)
    points = timeline(model)
    layers = [p.layer for p in points if p.phase == "forward"]
    assert [n for i, n in enumerate(layers) if i == 0 or layers[i - 1] != n] == [0, 1, 2, 3, 0]
    assert max(p.total for p in points) == model.peak_memory().at().value


# -- what goes wrong, and what is written -----------------------------------------------------------------


def pictures(path: Path | None) -> list[Any]:
    pair = [quantity("collective_time", algorithm=name, ranks=8, latency="20 us", bandwidth="1 GB/s")
            for name in ("ring", "tree")]  # fmt: skip
    return [
        lambda: schedule_plot(run("gpipe", 2, 2), path),
        lambda: optimum_plot(quantity("buckets", BUCKETS), "n_b", path, given=BUCKETS),
        lambda: crossover_plot(*pair, "n", path),
        lambda: sensitivity_plot(quantity("pipeline_time", {"m": Fraction(2), "p": Fraction(2), "t": Fraction(2),
                                                            "o": Fraction(1)}), path,
                                 given={"m": 2, "p": 2, "t": 2, "o": 1}),
        lambda: timeline_plot(sc.load(LAYER, values=SIZES), path=path),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("which", "kind"),
    [
        (0, "svg"),
        *(
            pytest.param(*one, marks=pytest.mark.long)
            for one in ((0, "pdf"), (1, "pdf"), (0, "png"), *((n, "svg") for n in (1, 2, 3, 4)))
        ),
    ],
)
def test_the_same_picture_gives_the_same_file(tmp_path: Path, which: int, kind: str) -> None:
    for name in ("a", "b"):
        pictures(tmp_path / f"{name}.{kind}")[which]()
    one, two = ((tmp_path / f"{name}.{kind}").read_bytes() for name in ("a", "b"))
    assert one == two
    assert one.startswith({"svg": b"<?xml", "pdf": b"%PDF", "png": b"\x89PNG"}[kind])
    assert b"CreationDate" not in one
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("which", range(5))
def test_a_missing_matplotlib_is_named_with_the_extra_that_brings_it(
    which: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = pictures(None)[which]
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(RenderError) as caught:
        made()
    assert str(caught.value) == 'a picture needs Matplotlib\nhint: pip install "matplotlib<4,>=3.8"'


REFUSED = [
    (lambda: schedule_plot(run("gpipe", 2, 2), "a.gif"), "'a.gif' is no picture that can be written"),
    (lambda: optimum_plot(quantity("buckets"), "n_b"), "a picture needs numbers: no value is given for "),
    (lambda: timeline_plot(sc.load(LAYER)), "which op is the peak depends on the sizes: no value is given for "),
    (lambda: timeline_plot(sc.load(LAYER, values={**SIZES, "N_layer": 4000}, repeat="N_layer")),
     "4000 layers are too many to be drawn one by one\nhint: at most 400"),
    (lambda: timeline_plot(sc.load(LAYER, values={**SIZES, "N_layer": 4}, repeat="N_layer"),
                           "pipeline(2, microbatches=4)"),
     "a pipeline runs too many microbatches to be drawn op by op\nhint: peak_memory has a table"),
    (lambda: written(None, "bmp"), "'bmp' is no format of pictures"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "told"), REFUSED, ids=[told[:25] for _, told in REFUSED])
def test_what_cannot_be_drawn_is_refused(make: Any, told: str) -> None:
    with pytest.raises(SymcommError) as caught:
        make()
    assert str(caught.value).startswith(told)


def test_a_dollar_sign_in_a_title_is_no_formula(tmp_path: Path) -> None:
    schedule_plot(run("gpipe", 2, 2), tmp_path / "a.svg", title=r"$\frac{$ costs 5 $")
    assert words("5 $") == r"5 \$"
