"""YAML files of hardware: plain data whose every key and value knows its line; a wrong one is shown with a caret.

The tree is PyYAML's own, composed by its safe loader; nothing is constructed, and aliases and tags are refused first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from fractions import Fraction

import yaml

from symcomm.core.errors import DocumentError, Span, SymcommError, nearest
from symcomm.core.records import dataclass
from symcomm.core.units import Quantity, Unit

SIZE_LIMIT = 1_000_000  # characters of one file
_EVENT_LIMIT = 50_000
_DEPTH_LIMIT = 8
_TEXT_LIMIT = 2_000
_HUGE = 10**30


@dataclass(frozen=True)
class Entry:
    """One value of a YAML file: its node, the name of its key, and the lines it stands in.

    >>> entry = read("memory: {nominal: 80 GB}", "t.yaml")
    >>> str(entry["memory"]["nominal"].quantity("byte").value), entry["memory"]["nominal"].span.word
    ('80000000000', '80 GB')
    """

    node: yaml.Node
    key: str
    file: str
    lines: tuple[str, ...]

    @property
    def span(self) -> Span:
        """Where it stands; its first line where there are several."""
        return self._span(self.node)

    def _span(self, node: yaml.Node) -> Span:
        start, end = node.start_mark, node.end_mark
        text = self.lines[start.line] if start.line < len(self.lines) else ""
        stop = end.column if end.line == start.line else len(text.rstrip())
        return Span(self.file, start.line + 1, text, start.column, max(stop, start.column))

    def error(self, message: str, hint: str = "") -> DocumentError:
        """An error that points at this value."""
        return DocumentError(message, self.span, hint)

    # -- mappings ------------------------------------------------------------------------------

    @property
    def items(self) -> tuple[tuple[str, Entry], ...]:
        """The keys and values of a mapping, in order."""
        if not isinstance(self.node, yaml.MappingNode):
            raise self.error(f"'{self.key}' must be a mapping of keys to values")
        found: dict[str, Entry] = {}
        for key, value in self.node.value:
            if not isinstance(key, yaml.ScalarNode) or not key.value.strip():
                raise DocumentError(f"a key of '{self.key}' is no plain name", self._span(key))
            if key.value in found:
                raise DocumentError(f"the key '{key.value[:60]}' stands twice", self._span(key))
            found[key.value] = Entry(value, key.value, self.file, self.lines)
        return tuple(found.items())

    def only(self, known: Sequence[str], needed: Sequence[str] = ()) -> None:
        """Raises ``DocumentError`` for an unknown key, with the nearest known ones, and for a missing one."""
        names = [name for name, _ in self.items]
        assert isinstance(self.node, yaml.MappingNode)
        for key, _ in self.node.value:
            if key.value not in known:
                raise DocumentError(
                    f"unknown key '{key.value[:60]}' in '{self.key}'", self._span(key), nearest(key.value, [*known])
                )
        for name in needed:
            if name not in names:
                raise self.error(f"'{self.key}' needs the key '{name}'")

    def get(self, name: str) -> Entry | None:
        """The value of a key, if it is there."""
        return next((value for key, value in self.items if key == name), None)

    def __getitem__(self, name: str) -> Entry:
        found = self.get(name)
        if found is None:
            raise self.error(f"'{self.key}' needs the key '{name}'")
        return found

    # -- values --------------------------------------------------------------------------------

    @property
    def text(self) -> str:
        """A text of one line."""
        if not isinstance(self.node, yaml.ScalarNode):
            kind = "a list" if isinstance(self.node, yaml.SequenceNode) else "a mapping"
            raise self.error(f"'{self.key}' must be text, but is {kind}")
        value = self.node.value.strip()
        if not value or (not self.node.style and value in ("~", "null")):
            raise self.error(f"'{self.key}' has no value")
        if len(value) > _TEXT_LIMIT:
            raise self.error(f"'{self.key}' has {len(value):,} characters; at most {_TEXT_LIMIT:,} are read")
        return " ".join(value.split())

    @property
    def texts(self) -> tuple[str, ...]:
        """A list of texts; one text is a list of one."""
        if isinstance(self.node, yaml.SequenceNode):
            return tuple(Entry(item, self.key, self.file, self.lines).text for item in self.node.value)
        return (self.text,)

    def choice(self, known: Sequence[str]) -> str:
        """One of several words."""
        if self.text not in known:
            raise self.error(f"'{self.text[:60]}' is no {self.key}", nearest(self.text, [*known]))
        return self.text

    def quantity(self, *units: str) -> Quantity:
        """A positive quantity in one of the units; a number without a unit is refused where one is needed."""
        try:
            found = Quantity.parse(self.text)
        except SymcommError as error:
            raise self.error(error.message, error.hint) from None
        wanted = [Unit.parse(unit) for unit in units]
        if found.unit not in wanted:
            said = " or ".join(str(unit) for unit in wanted)
            given = f"in {found.unit}" if found.unit.powers else "without a unit"
            raise self.error(f"'{self.key}' is given {given}, but must be in {said}")
        if found.value <= 0:
            raise self.error(f"'{self.key}' is {self.text}: it must be positive")
        if not Fraction(1, _HUGE) < found.value < _HUGE:
            raise self.error(f"'{self.key}' is out of range", "between 10^-30 and 10^30")
        return found

    @property
    def count(self) -> int:
        """A positive whole number."""
        if not re.fullmatch(r"\d{1,9}", self.text) or not int(self.text):
            raise self.error(f"'{self.key}' must be a positive whole number, but is '{self.text[:60]}'")
        return int(self.text)


def read(text: str, file: str, ours: bool = False) -> Entry:
    """The mapping that a YAML text holds; ``ours`` is a file of this package, which needs no guard.

    Raises ``DocumentError`` for text that is not YAML, an alias, a tag, or a tree that is too large or too deep.
    """
    lines = tuple(text.split("\n"))
    top = Span(file, 1, lines[0], 0, max(1, len(lines[0])))
    if len(text) > SIZE_LIMIT:
        raise DocumentError(f"this file has {len(text):,} characters; at most {SIZE_LIMIT:,} are read", top)
    try:
        if not ours:
            _refuse(yaml.parse(text, Loader=yaml.SafeLoader), file, lines)
        fast = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # it says less of what is wrong
        node = yaml.compose(text, Loader=fast if ours else yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = min(mark.line, len(lines) - 1) if mark else 0
        column = min(mark.column, len(lines[line])) if mark else 0
        span = Span(file, line + 1, lines[line], column, column + 1)
        raise DocumentError(f"this is not YAML: {error.problem or error.context}", span) from None
    except yaml.YAMLError as error:
        raise DocumentError(f"this is not YAML: {getattr(error, 'reason', 'it cannot be read')}", top) from None
    if not isinstance(node, yaml.MappingNode):
        raise DocumentError("a file of devices is a mapping that starts with devices:", top)
    return Entry(node, "the file", file, lines)


def _refuse(events: Iterator[yaml.Event], file: str, lines: tuple[str, ...]) -> None:
    depth = 0
    for number, event in enumerate(events):
        mark = event.start_mark
        text = lines[mark.line] if mark and mark.line < len(lines) else ""
        column = mark.column if mark else 0
        span = Span(file, mark.line + 1 if mark else 1, text, column, max(column + 1, len(text.rstrip())))
        if number > _EVENT_LIMIT:
            raise DocumentError(f"this file has more than {_EVENT_LIMIT:,} values", span)
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise DocumentError("YAML anchors and aliases are refused", span, "write the value out, or use like:")
        if getattr(event, "tag", None) not in (None, "!"):
            raise DocumentError("YAML tags are refused", span, "write plain values")
        if isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            depth += 1
            if depth > _DEPTH_LIMIT:
                raise DocumentError(f"this file is nested more than {_DEPTH_LIMIT} deep", span)
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            depth -= 1
