"""The levels of a network: what each joins, by how many links, and the rate that is left for a device."""

from __future__ import annotations

from symcomm.core.errors import ValuesError
from symcomm.core.hardware.devices import Network
from symcomm.documents.plots.drawing import INK, LINE, MARK, SOFT, TINT, Sketch

_WIDTH, _HIGH, _DRAWN = 470.0, 46.0, 4  # units of a level that are drawn, at most


def network_levels(network: Network) -> tuple[Sketch, str]:
    """The picture of a network as a tree, and a sentence on what is in it."""
    rows = network.rows
    if len(rows) > 5:
        raise ValuesError(f"a network of {len(rows)} levels is not drawn", hint="at most 5 levels")
    drawing = Sketch(_WIDTH, 30 + _HIGH * len(rows))
    left, right = 6.0, 216.0
    for n, (name, joins, devices, links, share, latency) in enumerate(reversed(rows)):
        y, level = 8 + n * _HIGH, network.levels[len(rows) - 1 - n]
        drawing.line(left, y + 6, right, y + 6, INK, wide=2.2)
        count = min(level.size, _DRAWN)
        places = [left + (right - left) * (k + 0.5) / (count + (level.size > count)) for k in range(count)]
        for x in places:
            drawing.line(x, y + 6, x, y + 22, MARK)
            drawing.box(x - 12, y + 22, 24, 13, TINT, INK)
        drawing.text(places[0], y + 31, rows[len(rows) - 2 - n][0] if n + 1 < len(rows) else "", 7, SOFT)
        if level.size > count:
            drawing.text(right - (right - left) / (count + 1) / 2, y + 31, f"... {level.size}", 8, SOFT)
        drawing.text(right + 12, y + 8, f"{name}: {joins}, {devices} devices", 8.5, INK, "start")
        drawing.text(right + 12, y + 19, links, 7.5, SOFT, "start")
        rate = f"{share} a device" + (f", latency {latency}" if latency else "")
        drawing.text(right + 12, y + 30, rate if share else "", 7.5, MARK, "start")
        if n + 1 < len(rows):  # the first unit is what the next level draws
            drawing.line(places[0], y + 35, left, y + _HIGH + 6, LINE, dashed=True)
            drawing.line(places[0], y + 35, right, y + _HIGH + 6, LINE, dashed=True)
    drawing.text(left, 14 + _HIGH * len(rows), f"The boxes of the last level are devices: {network.device.name}.", 7.5,
                 SOFT, "start")  # fmt: skip
    return drawing, f"The levels of {network.name}, {network.size} devices in all."
