"""The weights, gradients and states of one rank under several strategies, as stacked bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from symcomm.core.errors import ValuesError
from symcomm.core.printing import short
from symcomm.core.units import Quantity
from symcomm.documents.plots.drawing import INK, LINE, SOFT, Sketch

_WIDTH, _BAR, _LEFT, _RIGHT = 470.0, 10.0, 88.0, 400.0
_FILLS = {"weights": INK, "gradients": "#7d98c1", "optimizer states": "#d9a441"}


def state_bars(
    kept: Mapping[str, Sequence[Quantity]], kinds: Sequence[str] = tuple(_FILLS), says: str = "One rank keeps",
) -> tuple[Sketch, str]:  # fmt: skip
    """Bars by name, each with its parts: the bytes of weights, gradients and optimizer states, or of other ``kinds``.

    Raises ``ValuesError`` where nothing is kept.
    """
    totals = {name: sum(float(q.value) for q in parts) for name, parts in kept.items()}
    if not totals or not max(totals.values()):
        hint = "strategies: data(N); zero-1(N)" if tuple(_FILLS) == (*kinds,) else "larger sizes"
        raise ValuesError("there are no bytes to be drawn", hint=hint)
    left = min(250.0, max(_LEFT, 8 + 4.4 * max(map(len, kept))))
    scale = (_RIGHT - left) / max(totals.values())
    drawing = Sketch(_WIDTH, 18 + (_BAR + 5) * len(kept))
    x = left
    fills = dict(zip(kinds, _FILLS.values(), strict=False))
    for name, fill in fills.items():
        drawing.box(x, 3, 8, 8, fill, LINE)
        drawing.text(x + 12, 10, name, 8, SOFT, "start")
        x += 30 + 4.2 * len(name)
    said = []
    for n, (name, parts) in enumerate(kept.items()):
        top, x = 18 + n * (_BAR + 5), left
        drawing.text(left - 6, top + 8, name, 8.5, anchor="end")
        for part, fill in zip(parts, fills.values(), strict=True):
            wide = float(part.value) * scale
            drawing.box(x, top, wide, _BAR, fill, LINE)
            x += wide
        whole = Quantity(sum((q.value for q in parts), parts[0].value * 0), parts[0].unit)
        drawing.text(x + 5, top + 8, _read(whole), 8, SOFT, "start")
        said.append(f"{name} {_read(whole)}")
    return drawing, f"{says}: {', '.join(said)}."


def _read(quantity: Quantity) -> str:
    text = quantity.reading
    return text if short(quantity) == text else f"≈ {text}"
