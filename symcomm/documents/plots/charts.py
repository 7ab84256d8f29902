"""Small charts: a sum in a number format as it grows, and what one rank keeps under several strategies as bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import pairwise

from symcomm.core.errors import ValuesError
from symcomm.core.printing import short
from symcomm.core.units import Quantity
from symcomm.documents.plots.drawing import INK, LINE, MARK, SOFT, Sketch

_WIDTH, _HEIGHT = 470.0, 124.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 46.0, 440.0, 12.0, 98.0


def rounding(points: Sequence[tuple[int, Fraction]], exact: Fraction, name: str) -> tuple[Sketch, str]:
    """The sum of a format, as ``points`` of additions and sums between which it grows evenly, and the exact line.

    Raises ``ValuesError`` where nothing is added.

    >>> rounding([(0, Fraction(0)), (256, Fraction(256)), (300, Fraction(256))], Fraction(1), "bf16")[1]
    'After 300 additions the sum in bf16 is 256; without rounding it is 300. It grows no more after 256 additions.'
    """
    last, top = points[-1][0], max(points[-1][0] * exact, *(value for _, value in points))
    if len(points) < 2 or top <= 0:
        raise ValuesError("there is no growing sum to be drawn", hint="x: 0.01, n: 1000")
    drawing = Sketch(_WIDTH, _HEIGHT)

    def at(additions: int, value: Fraction) -> tuple[float, float]:
        return _LEFT + (_RIGHT - _LEFT) * additions / last, _BOTTOM - (_BOTTOM - _TOP) * float(value / top)

    drawing.line(_LEFT, _BOTTOM, _RIGHT, _BOTTOM)
    drawing.line(_LEFT, _BOTTOM, _LEFT, _TOP)
    drawing.line(*at(0, Fraction(0)), *at(last, last * exact), LINE, dashed=True)
    for (n, value), (m, other) in pairwise(points):
        drawing.line(*at(n, value), *at(m, other), INK, wide=1.4)
        drawing.dot(*at(m, other), 1.8, MARK)
    drawing.text(_LEFT - 5, _BOTTOM + 3, "0", 7.5, SOFT, "end")
    drawing.text(_LEFT - 5, _TOP + 3, short(Quantity(top)), 7.5, SOFT, "end")
    drawing.text(_RIGHT, _BOTTOM + 12, str(last), 7.5, SOFT)
    drawing.text((_LEFT + _RIGHT) / 2, _BOTTOM + 12, "additions", 8, SOFT)
    drawing.text(_LEFT + 60, _TOP + 4, f"dashed: exact; line: in {name}; a dot where the spacing changes", 7.5, SOFT,
                 "start")  # fmt: skip
    says = f"After {last} additions the sum in {name} is {short(Quantity(points[-1][1]))}; "
    says += f"without rounding it is {short(Quantity(last * exact))}."
    still = next(n for n, value in points if value == points[-1][1])
    return drawing, says + (f" It grows no more after {still} additions." if still < last else "")


_BAR, _FIRST, _LAST = 10.0, 88.0, 400.0  # a bar's height; where the longest begins at least, and where it ends
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
    left = min(250.0, max(_FIRST, 8 + 4.4 * max(map(len, kept))))
    scale = (_LAST - left) / max(totals.values())
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
