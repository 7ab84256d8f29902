"""YAML with places: every key and value knows its line and column; only plain data is read.

The tree is built from PyYAML's events, so nothing is constructed, no alias is ever followed and no depth is trusted.
Scalars keep the text the author wrote: ``B: 010`` is ten and ``no: 3`` gives the symbol ``no`` a value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any, ClassVar

from symcomm.core.errors import DocumentError, Span, SymcommError, nearest
from symcomm.core.records import dataclass, replace
from symcomm.core.units import Quantity

SIZE_LIMIT = 100_000  # characters of one block
DEPTH_LIMIT = 12  # lists and mappings inside one another
BRACES = re.compile(r"\{\{([^{}\n]{0,120})\}\}")  # of a reference, which is no mapping of YAML

_HUGE = 10**60  # no size and no rate comes near it

_NOTHING = frozenset({"", "~", "null", "Null", "NULL"})
_TRUTH = frozenset({"true", "True", "TRUE", "false", "False", "FALSE"})


class _Placed:
    """A value with its place: a text, a list or a mapping."""

    span: Span
    kind: ClassVar[str]

    @property
    def plain(self) -> Any:
        """The value as plain Python data: text, whole numbers, exact fractions, lists and dicts.

        >>> section_of("pipeline: {microbatches: 16}", "t.md").plain
        {'pipeline': {'microbatches': 16}}
        """
        raise NotImplementedError

    def scalars(self) -> Iterator[Scalar]:
        """Every text that is in it, keys too, in order."""
        raise NotImplementedError

    def blamed(self, message: str) -> Span | None:
        """The place of the word that a message quotes, if it is there.

        >>> section_of("pipeline: {stage: 4}", "t.md").blamed("pipeline has no 'stage'").word
        'stage'
        """
        words = ((one.text.strip(), one.span) for one in self.scalars())
        return next((span for word, span in words if word and f"'{word}'" in message), None)

    def written_at(self, span: Span | None) -> Span | None:
        """The place in the document of a piece of an option's text, where that is in the value as it was read.

        >>> option = section_of("subscripts: ij,jk->il", "t.md")
        >>> option.written_at(Span("<text>", 1, "ij,jk->il", 8, 9)).place
        't.md:1'
        """
        if span is None or span.file != "<text>" or not span.text:
            return None
        for one in self.scalars():
            at = one.span.text.find(span.text, one.span.start) if one.text == span.text else -1
            if at >= 0:
                return one.span.within(at + span.start, at + span.stop)
        return None

    def wrong_type(self, name: str, wanted: str) -> DocumentError:
        """The error where a key has it and a value of another type is wanted."""
        return DocumentError(f"'{name}' must be {wanted}, but is {self.kind}", self.span)

    def as_scalar(self, name: str, wanted: str = "text") -> Scalar:
        """The value of a key that must be a text."""
        raise self.wrong_type(name, wanted)

    def as_section(self, name: str, what: str, wanted: str = "a mapping") -> Section:
        """The value of a key that must be a mapping; ``what`` names it in errors."""
        raise self.wrong_type(name, wanted)


@dataclass(frozen=True)
class Scalar(_Placed):
    """Text as written, and where. ``style`` is YAML's: empty for plain text, else the quote or the block mark."""

    text: str
    span: Span
    style: str = ""
    kind = "text"

    @property
    def is_nothing(self) -> bool:
        """Whether the author wrote nothing, or ``null``."""
        return not self.style and self.text in _NOTHING

    @property
    def plain(self) -> Any:
        if self.is_nothing:
            return None
        if not self.style and self.text in _TRUTH:
            return self.text.lower() == "true"
        if not self.style and re.fullmatch(r"-?\d{1,40}", self.text):
            return int(self.text)
        if not self.style and re.fullmatch(r"-?\d{1,40}\.\d{1,40}", self.text):
            return Fraction(self.text)
        return self.text.strip()

    def scalars(self) -> Iterator[Scalar]:
        yield self

    def as_scalar(self, name: str, wanted: str = "text") -> Scalar:
        return self

    def quantity(self) -> Quantity:
        """The positive number, with its unit, that it says.

        >>> str(Scalar("8 GiB", Span("t.md", 1, "8 GiB", 0, 5)).quantity().value)
        '8589934592'
        """
        try:
            found = Quantity.parse(self.text)
        except SymcommError as error:
            raise DocumentError(error.message, self.span, error.hint) from None
        if found.value <= 0:
            raise DocumentError(f"'{self.text[:60]}' is not positive", self.span)
        if not Fraction(1, _HUGE) < found.value < _HUGE:
            raise DocumentError(f"'{self.text[:60]}' is out of range", self.span, "between 10^-60 and 10^60")
        return found

    def whole(self) -> Quantity:
        """The same, where only a whole number makes sense: a size or a count."""
        found = self.quantity()
        if found.value.denominator != 1:
            raise DocumentError(f"'{self.text[:60]}' is not a whole number", self.span)
        if not found.unit.is_count:
            raise DocumentError(f"'{self.text[:60]}' is in {found.unit}, but a size is a whole number", self.span)
        return found


@dataclass(frozen=True)
class Listing(_Placed):
    """A YAML list."""

    items: tuple[Value, ...]
    span: Span
    kind = "a list"

    @property
    def plain(self) -> Any:
        return [item.plain for item in self.items]

    def scalars(self) -> Iterator[Scalar]:
        return (text for item in self.items for text in item.scalars())


@dataclass(frozen=True)
class Section(_Placed):
    """A YAML mapping whose keys are known; ``what`` names it in errors.

    >>> section = section_of("B: 128", "t.md")
    >>> section.text("B"), section.span_of("B").word
    ('128', '128')
    """

    entries: tuple[tuple[Scalar, Value], ...]
    span: Span
    what: str = "a block"
    kind = "a mapping"

    @property
    def plain(self) -> Any:
        return {key.text: item.plain for key, item in self.entries}

    def scalars(self) -> Iterator[Scalar]:
        return (text for entry in self.entries for part in entry for text in part.scalars())

    def as_section(self, name: str, what: str, wanted: str = "a mapping") -> Section:
        return replace(self, what=what)

    def __contains__(self, key: object) -> bool:
        return any(name.text == key for name, _ in self.entries)

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys, in order."""
        return tuple(name.text for name, _ in self.entries)

    def key(self, name: str) -> Scalar | None:
        """The key itself, with its place."""
        return next((key for key, _ in self.entries if key.text == name), None)

    def get(self, name: str) -> Value | None:
        """The value of a key, if it is there. Raises ``DocumentError`` where the key has no value."""
        for key, value in self.entries:
            if key.text == name:
                if isinstance(value, Scalar) and value.is_nothing:
                    raise DocumentError(f"'{name}' has no value", key.span)
                return value
        return None

    def span_of(self, name: str) -> Span:
        """Where the value of a key is; the section's own place where the key is missing."""
        value = self.get(name)
        return self.span if value is None else value.span

    def error(self, name: str, message: str, hint: str = "") -> DocumentError:
        """An error that points at the value of a key."""
        return DocumentError(message, self.span_of(name), hint)

    def only(self, known: Sequence[str]) -> None:
        """Raises ``DocumentError`` for a key that is not known, with the nearest known ones."""
        for key, _ in self.entries:
            if key.text not in known:
                raise DocumentError(
                    f"unknown key '{key.text[:60]}' in {self.what}", key.span, nearest(key.text, [*known])
                )

    def need(self, *names: str) -> None:
        """Raises ``DocumentError`` where a key is missing."""
        for name in names:
            if name not in self:
                raise DocumentError(f"{self.what} needs the key '{name}'", self.span)

    def scalar(self, name: str, wanted: str = "text") -> Scalar | None:
        """The text of a key, with its place; ``wanted`` is what it must be."""
        value = self.get(name)
        return None if value is None else value.as_scalar(name, wanted)

    def text(self, name: str, default: str = "") -> str:
        """The text of a key, on one line or several."""
        said = self.scalar(name)
        return default if said is None else said.text.strip()

    def items(self, name: str) -> tuple[Value, ...]:
        """The items of a list; a single value is a list of one."""
        value = self.get(name)
        return value.items if isinstance(value, Listing) else () if value is None else (value,)

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of texts; a single text is a list of one."""
        return tuple(one.as_scalar(name, "text or a list of texts").text.strip() for one in self.items(name))

    def section(self, name: str, what: str) -> Section | None:
        """A mapping below this one."""
        value = self.get(name)
        return None if value is None else value.as_section(name, what)

    def sections(self) -> Iterator[tuple[Scalar, Section]]:
        """The keys of a mapping whose values are mappings, each named by its key in errors."""
        return ((key, value.as_section(key.text, f"'{key.text}'")) for key, value in self.entries)

    def pairs(self, name: str) -> tuple[tuple[str, str], ...]:
        """A mapping of texts to texts."""
        found = self.section(name, name)
        entries = found.entries if found else ()
        return tuple((key.text.strip(), value.as_scalar(key.text).text.strip()) for key, value in entries)

    def count(self, name: str, least: int = 0) -> int | None:
        """A whole number: ``least`` or more, which is 0 or 1."""
        said = self.scalar(name, "a whole number")
        if said is None:
            return None
        if not re.fullmatch(r"\d{1,9}", said.text.strip()) or int(said.text) < least:
            kind = "a positive whole number" if least else "a whole number"
            raise DocumentError(f"'{name}' must be {kind}, but is '{said.text[:60]}'", said.span)
        return int(said.text)

    def quantity(self, name: str) -> Quantity | None:
        """A positive number with its unit."""
        said = self.scalar(name, "a number with a unit")
        return None if said is None else said.quantity()


Value = Scalar | Listing | Section


# -- reading ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Source:
    """The lines of a YAML text and where they stand: line ``n`` of the text is ``lines[n]`` of the file.

    ``shifts`` are the characters that Markdown took off the front of each line (a block in a list is indented).
    """

    file: str
    first_line: int
    lines: tuple[str, ...]
    shifts: tuple[int, ...] = ()

    def span(self, line: int, start: int, stop: int) -> Span:
        """The place of some columns of one line of the YAML text."""
        line = min(max(line, 0), max(0, len(self.lines) - 1))
        text = self.lines[line] if self.lines else ""
        shift = self.shifts[line] if line < len(self.shifts) else 0
        start = min(start + shift, len(text))
        return Span(self.file, self.first_line + line, text, start, min(max(stop + shift, start), len(text)))

    def between(self, start: Any, end: Any) -> Span:
        """The place of two marks of PyYAML; the first line only where they are lines apart."""
        line = self.lines[start.line] if start.line < len(self.lines) else ""
        shift = self.shifts[start.line] if start.line < len(self.shifts) else 0
        stop = end.column if end.line == start.line else len(line.rstrip()) - shift
        return self.span(start.line, start.column, max(stop, start.column))


def section_of(text: str, file: str, what: str = "a block", **limits: Any) -> Section:
    """The mapping that a YAML text of its own holds; ``limits`` are as in ``read``."""
    value = read(text, Source(file, 1, tuple(text.split("\n"))), what, **limits)
    if not isinstance(value, Section):
        raise DocumentError(f"{what} must be a mapping of keys to values", value.span)
    return value


def read(text: str, source: Source, what: str = "a block", size: int = SIZE_LIMIT, ours: bool = False) -> Value:
    """The tree of a YAML text of at most ``size`` characters; ``ours`` is a file of this package, which has no slips.

    Raises ``DocumentError`` for text that is not YAML, an alias, a tag, a key written twice, or a tree too large.

    >>> read("a: [1, 2]", Source("t.md", 1, ("a: [1, 2]",))).keys
    ('a',)
    """
    import yaml

    if len(text) > size:
        raise DocumentError(f"{what} has {len(text):,} characters; at most {size:,} are read", source.span(0, 0, 3))
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader) if ours else yaml.SafeLoader  # fast, but says less
    try:  # braces of a reference are no mapping of YAML: they are read as a word that takes the same room
        hidden: list[str] = []
        text = BRACES.sub(lambda found: _word(hidden, found[0]), text)
        found = _Tree(yaml.parse(text, Loader=loader), source, what, hidden, size // 5).values()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        span = source.span(mark.line, mark.column, mark.column + 1) if mark else source.span(0, 0, 1)
        problem, hint = error.problem or str(error.context), ""
        first = mark is not None and ":" not in text.split("\n")[mark.line][: mark.column]
        if "but found '<block" in problem or (first and "mapping values" in problem):
            problem = "this line is indented otherwise than those above it"
            hint = "keys of one level begin in one column"
        hint = hint or next((hint for words, hint in _HINTS.items() if words in problem), "")
        raise DocumentError(f"{what} is not YAML: {problem}", span, hint) from None
    except yaml.YAMLError as error:
        reason = getattr(error, "reason", None) or "it cannot be read"
        raise DocumentError(f"{what} is not YAML: {reason}", source.span(0, 0, 1)) from None
    if not found:
        raise DocumentError(f"{what} is empty", source.span(0, 0, 3))
    return found[0]


_WORD = re.compile("\u02a0([0-9]+)\u02a0")


def _word(hidden: list[str], reference: str) -> str:
    hidden.append(reference)
    return f"\u02a0{len(hidden) - 1:0{len(reference) - 2}d}\u02a0"


def _shown(text: str, hidden: Sequence[str]) -> str:
    """A text of YAML with its references as they were written."""
    return _WORD.sub(lambda w: hidden[int(w[1])] if int(w[1]) < len(hidden) else w[0], text) if hidden else text


# What PyYAML says is wrong, and what helps.
_HINTS = {
    "escape": "write a formula in single quotes: in double quotes YAML reads \\ as the start of an escape",
    "\\t": "indent with spaces, not with tabs",
    "'<stream end>'": "close the bracket or the brace",
    "expected ',' or '}', but got ':'": "put a comma between two values",
    "expected ',' or '}'": "inside of braces a name has none of its own: write n_KV for n_{KV}",
    "mapping values": "put text with a colon in quotes",
    "cannot start any token": "put the text in single quotes",
}


@dataclass(frozen=True)
class _Tree:
    """The events of a text as values; what is no plain data is refused before it is built."""

    events: Iterator[Any]
    source: Source
    what: str
    hidden: Sequence[str]
    limit: int

    def checked(self) -> Iterator[Any]:
        """The events that make values, each with its place."""
        import yaml

        documents = 0
        for number, event in enumerate(self.events):
            span = self.source.between(event.start_mark, event.end_mark)
            said = event.__dict__
            documents += isinstance(event, yaml.DocumentStartEvent)
            if number > self.limit:
                raise DocumentError(f"{self.what} has more than {self.limit:,} values", span)
            if documents > 1:
                raise DocumentError(f"{self.what} holds a second YAML document", span, "start another block instead")
            if isinstance(event, yaml.AliasEvent) or said.get("anchor"):
                refused = "has a YAML anchor or alias, which is refused"
                raise DocumentError(f"{self.what} {refused}", span, "write the value out")
            if said.get("tag") and not (isinstance(event, yaml.ScalarEvent) and event.tag == "!"):
                raise DocumentError(f"{self.what} has the YAML tag {event.tag}, which is refused", span,
                                    "write plain values")  # fmt: skip
            if isinstance(event, yaml.NodeEvent | yaml.CollectionEndEvent):
                yield event, span

    def values(self) -> list[Value]:
        """The values of the text: one, or none."""
        return self.inside(self.checked(), 0)[0]

    def inside(self, events: Iterator[Any], depth: int) -> tuple[list[Value], Any]:
        """The values up to the end of the list or mapping that is open, and its mark."""
        import yaml

        made: list[Value] = []
        for event, span in events:
            if isinstance(event, yaml.CollectionEndEvent):
                return made, event.end_mark
            if isinstance(event, yaml.ScalarEvent):
                text = _shown(event.value, self.hidden)
                if strange := next((c for c in text if not c.isprintable() and c not in "\n\t"), ""):
                    problem = f"{self.what} has the character U+{ord(strange):04X}, which cannot be shown"
                    raise DocumentError(problem, span)
                made.append(Scalar(text, span, event.style or ""))
                continue
            if depth >= DEPTH_LIMIT:
                raise DocumentError(f"{self.what} is nested more than {DEPTH_LIMIT} deep", span)
            values, end = self.inside(events, depth + 1)
            whole = self.source.between(event.start_mark, end)
            if isinstance(event, yaml.MappingStartEvent):
                made.append(Section(self.entries(values), whole, self.what))
            else:
                made.append(Listing(tuple(values), whole))
        return made, None

    def entries(self, values: Sequence[Value]) -> tuple[tuple[Scalar, Value], ...]:
        """Keys and values in turn, as pairs."""
        seen: dict[str, tuple[Scalar, Value]] = {}
        for key, value in zip(values[::2], values[1::2], strict=True):
            if not isinstance(key, Scalar):
                problem = f"a key of {self.what} is a list or a mapping: keys are plain names"
                raise DocumentError(problem, key.span)
            if key.text in seen:
                first = f"first in line {seen[key.text][0].span.line}"
                raise DocumentError(f"the key '{key.text[:60]}' is there twice in {self.what}", key.span, first)
            seen[key.text] = key, value
        return tuple(seen.values())
