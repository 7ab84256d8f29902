"""The roofline plot shows every op at its own intensity, under the roofs of one machine."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from api import ValuesError, roofline_plot
from time_models import linear, product

pytest.importorskip("matplotlib")

SIZES = {"product 1": (4096, 4096, 4096), "product 2": (4096, 32, 4096), "product 3": (32, 4096, 32)}


def test_the_three_products_of_the_homework_stand_on_their_roofs() -> None:
    figure = roofline_plot({name: product(*size).roofline(device="A100-80GB-SXM") for name, size in SIZES.items()})
    (axes,) = figure.axes
    roof, *points = [line for line in axes.lines if len(line.get_xdata()) != 2]
    found = [(float(p.get_xdata()[0]), float(p.get_ydata()[0])) for p in points]
    assert [x for x, _ in found] == pytest.approx([4096 / 3, 2048 / 65, 4096 / 257])
    peak, bandwidth = 1.41e9 * 108 * 1024 * 2, 2039e9
    assert [y for _, y in found] == pytest.approx([min(peak, x * bandwidth) for x, _ in found])
    xs, ys = roof.get_xdata(), roof.get_ydata()
    assert xs[1] == pytest.approx(7796736 / 50975)
    assert (ys[1], ys[2]) == pytest.approx((peak, peak))
    assert math.log(ys[1] / ys[0]) == pytest.approx(math.log(xs[1] / xs[0]))  # a slope of one in log-log


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", ["svg", "png"])
def test_a_plot_is_written_and_the_same_twice(tmp_path: Path, kind: str) -> None:
    ops = {name: product(*size).roofline(device="A100-80GB-SXM") for name, size in SIZES.items()}
    roofline_plot(ops, tmp_path / f"a.{kind}")
    roofline_plot(ops, tmp_path / f"b.{kind}")
    written = (tmp_path / f"a.{kind}").read_bytes()
    assert written == (tmp_path / f"b.{kind}").read_bytes()
    assert written[:4] == (b"\x89PNG" if kind == "png" else b"<?xm")


def test_ops_on_different_machines_do_not_share_a_plot() -> None:
    ops = {name: product(8, 8, 8).roofline(device=name) for name in ("A100-80GB-SXM", "H100-SXM")}
    with pytest.raises(ValuesError, match="different roofs"):
        roofline_plot(ops)


def test_only_rooflines_are_plotted() -> None:
    with pytest.raises(ValuesError, match="is no roofline"):
        roofline_plot({"Y": linear().flops()})
    with pytest.raises(ValuesError, match="at least one op"):
        roofline_plot({})
