"""YAML with places: every key and value knows its line and column; only plain data is read.

The tree is built from PyYAML's events, so nothing is constructed, no alias is ever followed and no depth is trusted.
Scalars keep the text the author wrote: ``B: 010`` is ten and ``no: 3`` gives the symbol ``no`` a value.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, TypeVar

from symcomm.core.errors import DocumentError, Span, SymcommError, nearest
from symcomm.core.records import dataclass
from symcomm.core.units import Quantity
from symcomm.exams.problems.references import BRACES, Lookup, fill

SIZE_LIMIT = 100_000  # characters of one block
DEPTH_LIMIT = 12  # lists and mappings inside one another
_EVENT_LIMIT = 20_000

_HUGE = 10**60  # no size and no rate comes near it

_NOTHING = frozenset({"", "~", "null", "Null", "NULL"})
_TRUTH = frozenset({"true", "True", "TRUE", "false", "False", "FALSE"})


@dataclass(frozen=True)
class Scalar:
    """Text as written, and where. ``style`` is YAML's: empty for plain text, else the quote or the block mark."""

    text: str
    span: Span
    style: str = ""

    @property
    def is_nothing(self) -> bool:
        """Whether the author wrote nothing, or ``null``."""
        return not self.style and self.text in _NOTHING


@dataclass(frozen=True)
class Listing:
    """A YAML list."""

    items: tuple[Value, ...]
    span: Span


@dataclass(frozen=True)
class Section:
    """A YAML mapping whose keys are known; ``what`` names it in errors.

    >>> section = section_of("B: 128", "t.md")
    >>> section.text("B"), section.span_of("B").word
    ('128', '128')
    """

    entries: tuple[tuple[Scalar, Value], ...]
    span: Span
    what: str = "a block"

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
        """Where the value of a key stands; the section's own place where the key is missing."""
        value = self.get(name)
        return self.span if value is None else value.span

    def only(self, known: Sequence[str]) -> None:
        """Raises ``DocumentError`` for a key that is not known, with the nearest known ones."""
        for key, _ in self.entries:
            if key.text not in known:
                raise DocumentError(
                    f"unknown key '{key.text[:60]}' in {self.what}", key.span, nearest(key.text, [*known])
                )

    def need(self, name: str) -> None:
        """Raises ``DocumentError`` where a key is missing."""
        if name not in self:
            raise DocumentError(f"{self.what} needs the key '{name}'", self.span)

    def text(self, name: str, default: str = "") -> str:
        """The text of a key, on one line or several."""
        value = self.get(name)
        if value is None:
            return default
        return _scalar(value, name, "text").text.strip()

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of texts; a single text is a list of one."""
        value = self.get(name)
        if value is None:
            return ()
        items = value.items if isinstance(value, Listing) else (value,)
        return tuple(_scalar(item, name, "text or a list of texts").text.strip() for item in items)

    def section(self, name: str, what: str) -> Section | None:
        """A mapping below this one."""
        value = self.get(name)
        if value is None:
            return None
        if not isinstance(value, Section):
            raise wrong_type(name, "a mapping", value)
        return Section(value.entries, value.span, what)

    def pairs(self, name: str) -> tuple[tuple[str, str], ...]:
        """A mapping of texts to texts."""
        found = self.section(name, name)
        entries = found.entries if found else ()
        return tuple((key.text.strip(), _scalar(value, key.text, "text").text.strip()) for key, value in entries)

    def count(self, name: str) -> int | None:
        """A whole number, zero or more."""
        value = self.get(name)
        if value is None:
            return None
        scalar = _scalar(value, name, "a whole number")
        if not re.fullmatch(r"\d{1,9}", scalar.text.strip()):
            raise DocumentError(f"'{name}' must be a whole number, but is '{scalar.text[:60]}'", scalar.span)
        return int(scalar.text)

    def truth(self, name: str) -> bool:
        """Yes or no; no where the key is missing."""
        text = self.text(name, "no").lower()
        if text not in ("yes", "no", "true", "false"):
            raise DocumentError(f"'{name}' is yes or no, not '{text[:40]}'", self.span_of(name))
        return text in ("yes", "true")

    def quantity(self, name: str) -> Quantity | None:
        """A positive number with its unit."""
        value = self.get(name)
        return None if value is None else quantity(_scalar(value, name, "a number with a unit"))


Value = Scalar | Listing | Section
_Kind = TypeVar("_Kind")


def quantity(scalar: Scalar) -> Quantity:
    """The positive number, with its unit, that a scalar says.

    >>> str(quantity(Scalar("8 GiB", Span("t.md", 1, "8 GiB", 0, 5))).value)
    '8589934592'
    """
    try:
        found = Quantity.parse(scalar.text)
    except SymcommError as error:
        raise DocumentError(error.message, scalar.span, error.hint) from None
    if found.value <= 0:
        raise DocumentError(f"'{scalar.text[:60]}' is not positive", scalar.span)
    if not Fraction(1, _HUGE) < found.value < _HUGE:
        raise DocumentError(f"'{scalar.text[:60]}' is out of range", scalar.span, "between 10^-60 and 10^60")
    return found


def whole(scalar: Scalar) -> Quantity:
    """The same, where only a whole number makes sense: a size or a count."""
    found = quantity(scalar)
    if found.value.denominator != 1:
        raise DocumentError(f"'{scalar.text[:60]}' is not a whole number", scalar.span)
    if not found.unit.is_count:
        raise DocumentError(f"'{scalar.text[:60]}' is in {found.unit}, but a size is a whole number", scalar.span)
    return found


def plain(value: Value) -> Any:
    """The value as plain Python data: text, whole numbers, exact fractions, lists and dicts.

    >>> plain(section_of("pipeline: {microbatches: 16}", "t.md"))
    {'pipeline': {'microbatches': 16}}
    """
    if isinstance(value, Listing):
        return [plain(item) for item in value.items]
    if isinstance(value, Section):
        return {key.text: plain(item) for key, item in value.entries}
    if value.is_nothing:
        return None
    if not value.style and value.text in _TRUTH:
        return value.text.lower() == "true"
    if not value.style and re.fullmatch(r"-?\d{1,40}", value.text):
        return int(value.text)
    if not value.style and re.fullmatch(r"-?\d{1,40}\.\d{1,40}", value.text):
        return Fraction(value.text)
    return value.text.strip()


def filled(value: Value, lookup: Lookup) -> Value:
    """The value with what its references stand for; every place is that of the reference.

    >>> from symcomm.exams.problems.references import Told, of_values
    >>> plain(filled(section_of("strategy: tensor({{ k }})", "t.md"), of_values({"k": Told("8")})))
    {'strategy': 'tensor(8)'}
    """
    if isinstance(value, Scalar):
        return replace(value, text=fill(value.text, value.span, lookup)) if "{{" in value.text else value
    if isinstance(value, Listing):
        items = tuple(filled(item, lookup) for item in value.items)
        return value if all(map(operator.is_, items, value.items)) else replace(value, items=items)
    entries = tuple((_filled_key(k, lookup), filled(v, lookup)) for k, v in value.entries)
    same = all(k is old_k and v is old for (k, v), (old_k, old) in zip(entries, value.entries, strict=True))
    return value if same else replace(value, entries=entries)


def _filled_key(key: Scalar, lookup: Lookup) -> Scalar:
    return replace(key, text=fill(key.text, key.span, lookup)) if "{{" in key.text else key


def blamed(value: Value, message: str) -> Span | None:
    """The place of the word that a message quotes, if it stands in the value.

    >>> blamed(section_of("pipeline: {stage: 4}", "t.md"), "pipeline has no 'stage'").word
    'stage'
    """
    if isinstance(value, Scalar):
        return value.span if value.text.strip() and f"'{value.text.strip()}'" in message else None
    return next((span for part in _inside(value) if (span := blamed(part, message))), None)


def written_at(value: Value, span: Span | None) -> Span | None:
    """The place in the document of a piece of an option's text, where that stands in the value as it was read.

    >>> option = section_of("subscripts: ij,jk->il", "t.md")
    >>> written_at(option, Span("<text>", 1, "ij,jk->il", 8, 9)).place
    't.md:1'
    """
    if span is None or span.file != "<text>":
        return None
    if isinstance(value, Scalar):
        at = value.span.text.find(span.text, value.span.start) if value.text == span.text and span.text else -1
        return None if at < 0 else value.span.within(at + span.start, at + span.stop)
    return next((found for part in _inside(value) if (found := written_at(part, span))), None)


def _inside(value: Listing | Section) -> Iterable[Value]:
    """The items of a list, or the keys and values of a mapping."""
    return value.items if isinstance(value, Listing) else (part for entry in value.entries for part in entry)


def wrong_type(name: str, wanted: str, value: Value) -> DocumentError:
    """The error for a value of another type than wanted."""
    names = {Scalar: "text", Listing: "a list", Section: "a mapping"}
    return DocumentError(f"'{name}' must be {wanted}, but is {names[type(value)]}", value.span)


def _scalar(value: Value, name: str, wanted: str) -> Scalar:
    if not isinstance(value, Scalar):
        raise wrong_type(name, wanted, value)
    return value


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


def section_of(text: str, file: str, what: str = "a block") -> Section:
    """The mapping that a YAML text of its own holds."""
    value = read(text, Source(file, 1, tuple(text.split("\n"))), what)
    if not isinstance(value, Section):
        raise DocumentError(f"{what} must be a mapping of keys to values", value.span)
    return value


def read(text: str, source: Source, what: str = "a block") -> Value:
    """The tree of a YAML text.

    Raises ``DocumentError`` for text that is not YAML, an alias, a tag, a key written twice, or a tree too large.

    >>> read("a: [1, 2]", Source("t.md", 1, ("a: [1, 2]",))).keys
    ('a',)
    """
    import yaml

    if len(text) > SIZE_LIMIT:
        raise DocumentError(
            f"{what} has {len(text):,} characters; at most {SIZE_LIMIT:,} are read", source.span(0, 0, 3)
        )
    try:  # braces of a reference are no mapping of YAML: they are read as a word that takes the same room
        hidden: list[str] = []
        text = BRACES.sub(lambda found: _word(hidden, found[0]), text)
        value = _build(yaml.parse(text, Loader=yaml.SafeLoader), source, what, hidden)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        span = source.span(mark.line, mark.column, mark.column + 1) if mark else source.span(0, 0, 1)
        raise DocumentError(
            f"{what} is not YAML: {error.problem or error.context}", span, _hint(error.problem)
        ) from None
    except yaml.YAMLError as error:
        reason = getattr(error, "reason", None) or "it cannot be read"
        raise DocumentError(f"{what} is not YAML: {reason}", source.span(0, 0, 1)) from None
    if value is None:
        raise DocumentError(f"{what} is empty", source.span(0, 0, 3))
    return value


_WORD = re.compile("\u02a0([0-9]+)\u02a0")


def _word(hidden: list[str], reference: str) -> str:
    hidden.append(reference)
    return f"\u02a0{len(hidden) - 1:0{len(reference) - 2}d}\u02a0"


def _shown(text: str, hidden: Sequence[str]) -> str:
    """A text of YAML with its references as they were written."""
    return _WORD.sub(lambda w: hidden[int(w[1])] if int(w[1]) < len(hidden) else w[0], text) if hidden else text


def _hint(problem: str | None) -> str:
    problem = problem or ""
    if "escape" in problem:
        return "write a formula in single quotes: in double quotes YAML reads \\ as the start of an escape"
    if "\\t" in problem:
        return "indent with spaces, not with tabs"
    if "expected ',' or '}'" in problem:
        return "inside of braces a name has none of its own: write n_KV for n_{KV}"
    if "mapping values" in problem:
        return "put text with a colon in quotes"
    if "cannot start any token" in problem:
        return "put the text in single quotes"
    return ""


class _Open:
    """A list or mapping that is being read."""

    def __init__(self, start: Any, mapping: bool) -> None:
        self.start, self.mapping = start, mapping
        self.values: list[Value] = []


def _build(events: Iterator[Any], source: Source, what: str, hidden: Sequence[str] = ()) -> Value | None:
    import yaml

    stack: list[_Open] = []
    root: Value | None = None
    documents = 0
    for number, event in enumerate(events):
        if number > _EVENT_LIMIT:
            raise DocumentError(
                f"{what} has more than {_EVENT_LIMIT:,} values", source.between(event.start_mark, event.end_mark)
            )
        if isinstance(event, (yaml.StreamStartEvent, yaml.StreamEndEvent, yaml.DocumentEndEvent)):
            continue
        span = source.between(event.start_mark, event.end_mark)
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise DocumentError(f"{what} holds a second YAML document", span, "start another block instead")
            continue
        if isinstance(event, yaml.AliasEvent) or event.__dict__.get("anchor"):
            raise DocumentError(f"{what} has a YAML anchor or alias, which is refused", span, "write the value out")
        if event.__dict__.get("tag") and not (isinstance(event, yaml.ScalarEvent) and event.tag == "!"):
            raise DocumentError(f"{what} has the YAML tag {event.tag}, which is refused", span, "write plain values")
        done: Value
        if isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            if len(stack) >= DEPTH_LIMIT:
                raise DocumentError(f"{what} is nested more than {DEPTH_LIMIT} deep", span)
            stack.append(_Open(event.start_mark, isinstance(event, yaml.MappingStartEvent)))
            continue
        if isinstance(event, yaml.ScalarEvent):
            done = Scalar(_shown(event.value, hidden), span, event.style or "")
            strange = next((c for c in done.text if not c.isprintable() and c not in "\n\t"), "")
            if strange:
                raise DocumentError(f"{what} has the character U+{ord(strange):04X}, which cannot be shown", span)
        else:
            closed = stack.pop()
            done = _close(closed, source.between(closed.start, event.end_mark), what)
        if stack:
            stack[-1].values.append(done)
        else:
            root = done
    return root


def _close(closed: _Open, span: Span, what: str) -> Value:
    if not closed.mapping:
        return Listing(tuple(closed.values), span)
    entries: list[tuple[Scalar, Value]] = []
    seen: dict[str, Scalar] = {}
    for key, value in zip(closed.values[::2], closed.values[1::2], strict=True):
        if not isinstance(key, Scalar):
            raise DocumentError(f"a key of {what} is a list or a mapping: keys are plain names", key.span)
        if key.text in seen:
            raise DocumentError(
                f"the key '{key.text[:60]}' stands twice in {what}",
                key.span,
                f"first in line {seen[key.text].span.line}",
            )
        seen[key.text] = key
        entries.append((key, value))
    return Section(tuple(entries), span, what)
