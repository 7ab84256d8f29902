"""Errors that point at the text a person wrote: file, line, cell, caret and a hint."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

from symcomm.core.records import dataclass

_SHOWN = 160  # characters of a long line that an error shows around the fault
_LONGEST = 1000  # characters of a message or a hint; longer ones are cut in the middle


@dataclass(frozen=True)
class Span:
    """A piece of one line of input: ``text[start:stop]`` is the part that is meant.

    ``line`` counts from 1; ``start`` and ``stop`` are columns of ``text`` counted from 0.
    ``cell`` names the table cell the text comes from, where there is one.

    >>> Span("table.md", 3, "$Q = x W$", 1, 2).word
    'Q'
    """

    file: str
    line: int
    text: str
    start: int
    stop: int
    cell: str = ""

    @classmethod
    def in_text(cls, file: str, text: str, at: int) -> Span:
        r"""The place of a character of a text, whose line is shown without what a terminal would take for an order.

        >>> print(Span.in_text("a.md", "one\nt\x1bwo", 5).picture())
            t�wo
             ^
        """
        start = text.rfind("\n", 0, at) + 1
        line = text[start:].partition("\n")[0]
        shown = "".join(c if c.isprintable() or c == "\t" else "\ufffd" for c in line)
        return cls(file, text.count("\n", 0, at) + 1, shown, at - start, at - start + 1)

    @property
    def word(self) -> str:
        """The text of the place."""
        return self.text[self.start : self.stop]

    @contextmanager
    def meant(self) -> Iterator[None]:
        """Gives this place to an error of what is done inside, where it has none."""
        try:
            yield
        except SymcommError as error:
            raise error.at(self) from None

    @property
    def place(self) -> str:
        """``file:line``, and the cell where there is one."""
        cell = f", {self.cell}" if self.cell else ""
        return f"{self.file}:{self.line}{cell}"

    def within(self, start: int, stop: int) -> Span:
        """A narrower span of the same line; columns are counted in ``text``."""
        return Span(self.file, self.line, self.text, start, stop, self.cell)

    def picture(self) -> str:
        """The line with a caret under its part; long lines are cut around it."""
        lo = 0 if len(self.text) <= _SHOWN else max(0, self.start - _SHOWN // 2)
        hi = min(len(self.text), lo + _SHOWN)
        head, tail = ("…" if lo else ""), ("…" if hi < len(self.text) else "")
        line = head + self.text[lo:hi].replace("\t", " ") + tail
        width = max(1, min(self.stop, hi) - max(self.start, lo))
        caret = " " * (len(head) + max(self.start, lo) - lo) + "^" * width
        return f"    {line}\n    {caret}"


class SymcommError(Exception):
    """A mistake in the input, told with its place, a picture and a hint.

    Every error a user can cause is one of these; the command line prints it without a
    traceback and exits with status 2.

    >>> print(SymcommError("unknown function 'foo'", Span("t.md", 7, "$y = foo(x)$", 5, 8), "known: relu"))
    t.md:7: unknown function 'foo'
        $y = foo(x)$
             ^^^
    hint: known: relu
    """

    def __init__(self, message: str, span: Span | None = None, hint: str = "") -> None:
        self.message, self.span, self.hint = message, span, hint
        super().__init__(message)

    def __str__(self) -> str:
        lines = [f"{self.span.place}: {self.message}" if self.span else self.message]
        if self.span and self.span.text.strip():
            lines.append(self.span.picture())
        if self.hint:
            lines.append(f"hint: {self.hint}")
        return "\n".join(line if len(line) <= _LONGEST else f"{line[:700]} ... {line[-200:]}" for line in lines)

    def _render_traceback_(self) -> list[str]:
        """What a notebook shows: a mistake in the input has no use for fifty lines of Python."""
        return [f"{type(self).__name__}: {self}"]

    @classmethod
    def lacking(cls, extra: str, message: str) -> Self:
        """The error of a library that is not installed; the hint installs what an extra of symcomm names.

        >>> SymcommError.lacking("nothing", "a dance needs music").hint
        "pip install '.[nothing]' in the folder of symcomm"
        """
        from importlib.metadata import PackageNotFoundError, requires

        try:
            rows = [row.partition(";") for row in requires("symcomm") or []]
        except PackageNotFoundError:  # the sources alone
            rows = []
        found = [f'"{name.strip()}"' for name, _, when in rows if re.search(rf"extra == ['\"]{extra}['\"]", when)]
        return cls(message, hint="pip install " + (" ".join(found) or f"'.[{extra}]' in the folder of symcomm"))

    def at(self, span: Span | None) -> SymcommError:
        """The same error with a place, where it had none."""
        if self.span is None and span is not None:
            self.span = span
        return self


class FormulaError(SymcommError):
    """A formula that the grammar does not know, or that is too large."""


class TableError(SymcommError):
    """A table without the columns or cells it needs."""


class ShapeError(SymcommError):
    """Shapes that do not fit, or a size used twice with different values."""


class DocumentError(SymcommError):
    """A problem document with an unknown key, a missing value or a wrong type."""


class StrategyError(SymcommError):
    """A strategy that cannot be applied to this graph or mesh."""


class ValuesError(SymcommError):
    """Given numbers that are missing, contradict one another or break a constraint."""


class IrrationalError(ValuesError):
    """A number that exact fractions cannot say, such as the square root of 2."""


class LongNumberError(ValuesError):
    """A number with so many digits that it is worked out to 50 of them, such as 1.01 to the power 1 000 000."""


class DerivationError(SymcommError):
    """A step that is not an identity, a name used before it is defined, a unit that changed."""


class AccountingError(SymcommError):
    """An unknown convention, or two derivations under different conventions."""


class RenderError(SymcommError):
    """A document that could not be produced: a construct or a tool is missing."""


def where_given(name: str, to: str = "") -> str:
    """A hint that says at each door where a number is given; ``to`` is what takes it in Python.

    >>> where_given("B", "model.")
    'for instance model.at(B=8), --at B=8, or given: {B: 8} in a document'
    """
    return f"for instance {to}at({name}=8), --at {name}=8, or given: {{{name}: 8}} in a document"


def nearest(word: str, known: list[str]) -> str:
    """A hint that names the known words nearest to ``word``; all of them where none is near.

    >>> nearest("gelo", ["relu", "gelu", "softmax"])
    "did you mean 'gelu'?"
    >>> nearest("tensor parallel 8", ["data", "tensor"])
    "did you mean 'tensor'?"
    >>> nearest("K", ["k", "n_layer"])
    "did you mean 'k'?"
    """
    from difflib import get_close_matches

    near = [name for name in known if name.casefold() == word.casefold()]
    near = near or get_close_matches(word, known, n=3, cutoff=0.6)
    if not near and " " in word:  # several words: one of them may be meant
        parts = {part for part in word.casefold().split() if len(part) > 2}
        near = [name for name in known if parts & {*name.casefold().replace("-", "_").split("_")}][:3]
    if near:
        return "did you mean " + " or ".join(f"'{name}'" for name in near) + "?"
    return "known: " + ", ".join(sorted(known)) if known else ""
