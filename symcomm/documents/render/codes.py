"""QR codes as dark runs of modules, which every format draws in its own way."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from symcomm.core.errors import RenderError
from symcomm.core.records import dataclass


@dataclass(frozen=True)
class MatrixCode:
    """A QR code: its text, the modules of a side with the light margin, and dark runs as row, column, length.

    >>> MatrixCode("x", 4, ((0, 1, 2), (3, 0, 1))).path
    'M1 0h2v1h-2zM0 3h1v1h-1z'
    """

    text: str
    side: int
    runs: tuple[tuple[int, int, int], ...]

    @property
    def path(self) -> str:
        """The dark runs as the path of an SVG."""
        return "".join(f"M{column} {row}h{length}v1h-{length}z" for row, column, length in self.runs)

    @property
    def svg(self) -> str:
        """A picture of its own."""
        whole = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.side} {self.side}">'
        return f'{whole}<rect width="{self.side}" height="{self.side}" fill="#fff"/><path d="{self.path}"/></svg>'


def matrix_code(text: str) -> MatrixCode:
    """The QR code of a text. Raises ``RenderError`` where segno is missing, or the text is too long."""
    try:
        import segno
    except ImportError as error:
        raise RenderError.lacking("qr", "segno is missing: no QR code can be drawn") from error
    try:
        made = segno.make_qr(text, error="m")
    except ValueError as error:
        raise RenderError(f"'{text[:40]}' is too long for a QR code") from error
    rows = [[bool(module) for module in row] for row in made.matrix_iter(border=4)]
    return MatrixCode(text, len(rows), tuple(run for n, row in enumerate(rows) for run in _runs(n, row)))


def _runs(number: int, row: list[bool]) -> Iterator[tuple[int, int, int]]:
    column = 0
    for dark, modules in groupby(row):
        length = len([*modules])
        if dark:
            yield number, column, length
        column += length
