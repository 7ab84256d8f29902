"""Shared by all pictures: their figure, their colours, and how they are written. Matplotlib is imported here alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

from symcomm.core.errors import RenderError, ValuesError, nearest
from symcomm.core.files import write_file
from symcomm.core.form import Form, Sym
from symcomm.core.notation import Notation
from symcomm.core.units import Unit
from symcomm.documents.plots.drawing import Sketch

FORMATS = ("svg", "png", "pdf")
# Okabe and Ito's colours: told apart by readers who do not see red and green.
BLUE, RED, GREEN, PINK, ORANGE, SKY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"
COLOURS = (BLUE, RED, GREEN, PINK, ORANGE, SKY, "#000000", "#8C6D31")
SOFT, GRID, IDLE = "#666666", "#dddddd", "#eeeeee"


def figure(width: float = 7.2, height: float = 4.6) -> Any:
    """An empty Matplotlib figure; its size is in inches. Raises ``RenderError`` where Matplotlib is missing."""
    try:
        import matplotlib as _  # noqa: F401  (a part of it may be there without the whole)
        from matplotlib.figure import Figure
    except ImportError:
        raise RenderError.lacking("plot", "a picture needs Matplotlib") from None
    return Figure(figsize=(width, height), layout="constrained")


def written(made: Any, kind: str) -> bytes:
    """A figure or a drawing as an ``svg``, ``png`` or ``pdf`` file: the same figure always gives the same bytes."""
    if isinstance(made, Sketch):
        return made.written(kind)
    import matplotlib as mpl

    if kind not in FORMATS:
        raise ValuesError(f"'{kind[:20]}' is no format of pictures", hint=nearest(kind, [*FORMATS]))
    # No date, no version and no random identifiers.
    metadata = {
        "svg": {"Date": None, "Creator": None},
        "png": {"Software": None},
        "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    }[kind]
    out = BytesIO()
    # A serif face as that of the page; what a plot left to the default is asked for when it is written.
    with mpl.rc_context({"svg.hashsalt": "symcomm", "svg.fonttype": "path", "pdf.fonttype": 42,
                         "font.sans-serif": ["STIXGeneral", "DejaVu Sans"], "mathtext.fontset": "stix"}):  # fmt: skip
        made.savefig(out, format=kind, dpi=160, metadata=metadata)
    return out.getvalue()


@contextmanager
def said(made: Any, say: Callable[[str], str]) -> Iterator[None]:
    """Within it a figure has its words and the numbers of its axes in another language.

    What Matplotlib's fonts may not have, such as Chinese, stays in English.
    """
    from matplotlib.text import Text
    from matplotlib.ticker import FuncFormatter

    def told(text: str) -> str:
        other = "\n".join(map(say, text.split("\n")))
        return text if any(sign > "\u2e80" for sign in other) else other

    texts = [(text, text.get_text()) for text in made.findobj(Text)]
    axes = [axis for one in made.axes for axis in (one.xaxis, one.yaxis)]
    before = [(axis, axis.get_major_formatter()) for axis in axes]
    for text, words in texts:
        text.set_text(told(words))
    if getattr(say, "decimal", ".") != ".":
        for axis, formatter in before:

            def number(at: float, position: int | None = None, axis: Any = axis, formatter: Any = formatter) -> str:
                formatter.set_locs(axis.get_majorticklocs())
                return told(formatter(at, position))

            axis.set_major_formatter(FuncFormatter(number))
    try:
        yield
    finally:
        for text, words in texts:
            text.set_text(words)
        for axis, formatter in before:
            axis.set_major_formatter(formatter)


def checked(path: str | Path) -> Path:
    """The path of a picture; raises ``ValuesError`` for a format that cannot be written."""
    target = Path(path)
    if target.suffix.lstrip(".") not in FORMATS:
        raise ValuesError(f"'{target.name}' is no picture that can be written", hint="end it with .svg, .png or .pdf")
    return target


def save(made: Any, path: str | Path | None) -> Any:
    """Writes a figure into a file that appears only when it is whole; nothing without a path. Gives the figure.

    Raises ``ValuesError`` for an unknown format, ``RenderError`` where the file cannot be written.
    """
    if path is None:
        return made
    target = checked(path)
    write_file(target, written(made, target.suffix.lstrip(".")))
    return made


def prefixed(unit: Unit) -> Any:
    """A formatter of axes that writes numbers with the prefixes of a unit, such as 20 µs."""
    from matplotlib.ticker import EngFormatter

    return EngFormatter(unit=str(unit))


def maths(form: Form, notation: Notation) -> str:
    """A formula as Matplotlib sets it; as plain text where it cannot."""
    from matplotlib.mathtext import MathTextParser

    from symcomm.core import printing

    said = f"${printing.tex(form, None, notation)}$"
    try:
        MathTextParser("path").parse(said)
    except (ValueError, RuntimeError):
        return words(printing.plain(form, None, notation))
    return said


def words(text: str) -> str:
    """A text in which Matplotlib finds no formula."""
    return text.replace("`", "").replace("$", r"\$")


def sentence(text: str, notation: Notation) -> str:
    """A sentence of ours, with the names between backticks as Matplotlib sets formulas."""
    parts = text.split("`")
    return "".join(words(part) if n % 2 == 0 else maths(Sym(part), notation) for n, part in enumerate(parts))


def below(axes: Any) -> None:
    """The legend, below the picture."""
    entries = len(axes.get_legend_handles_labels()[0])
    axes.figure.legend(
        loc="outside lower center",
        ncols=entries if entries <= 5 else -(-entries // 2),
        fontsize=8,
        frameon=False,
        handlelength=1.4,
        columnspacing=1.6,
    )
