"""Blocks of YAML declared once: a record whose fields are keys, each with the sort of its values and what it means.

Reading (places, near keys, wrong types), the JSON schema and the key tables of the docs follow from the record, so a
new key is one row::

    caption: str = keyed("Markdown below the picture", TEXT)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, fields
from functools import cache
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from symcomm.core.blocks import Listing, Section
from symcomm.core.errors import SymcommError, nearest
from symcomm.core.records import dataclass, replace
from symcomm.core.units import Quantity

Schema = dict[str, Any]
Made = TypeVar("Made")
Other = TypeVar("Other")
_OWN: Any = object()


@dataclass(frozen=True)
class Sort(Generic[Made]):
    """The kind of value of a key: how its section gives it, its JSON schema, and the value without the key."""

    read: Callable[[Section, str], Made]
    schema: Schema
    default: Any = None

    def like(self, **schema: Any) -> Sort[Made]:
        """The same with another schema."""
        return replace(self, schema=schema)


@dataclass(frozen=True)
class BlockKey:
    """A key of a block."""

    name: str
    field: str
    meaning: str
    sort: Sort[Any]
    needed: bool = False


def keyed(meaning: str, sort: Sort[Made], *, name: str = "", default: Any = _OWN, needed: bool = False) -> Made:
    """A field that a key gives; ``name`` is that of the key where the field has another one."""
    held = sort.default if default is _OWN else default
    made: Made = field(default_factory=lambda: held, metadata={"key": BlockKey(name, "", meaning, sort, needed)})
    return made


@cache
def keys_of(record: Any) -> Mapping[str, BlockKey]:
    """The keys that a record declares, by name."""
    declared = [(f.name, f.metadata["key"]) for f in fields(record) if "key" in f.metadata]
    return MappingProxyType({k.name or name: replace(k, name=k.name or name, field=name) for name, k in declared})


def read_keys(
    record: type[Made], section: Section, also: Iterable[str] = (), like: Made | None = None, /, **made: Any
) -> Made:
    """The record that a section says; ``made`` are fields that are known otherwise.

    Keys that are ``also`` allowed are not read. What is missing is as in the record that it is ``like``. A field
    ``span`` is the place of the block: of its first needed key, where it has one.

    Raises ``DocumentError`` for an unknown key, with near ones, a missing one, and a value of another type.

    >>> from symcomm.core.blocks import section_of
    >>> @dataclass(frozen=True)
    ... class Bounds:
    ...     digits: int | None = keyed("significant digits", COUNT)
    >>> read_keys(Bounds, section_of("digits: 3", "t.md"))
    Bounds(digits=3)
    """
    known = keys_of(record)  # type: ignore[arg-type]  # a class can be a key
    section.only([*known, *also])
    if any(f.name == "span" for f in fields(record)):  # type: ignore[arg-type]  # a dataclass
        first = next((one.name for one in known.values() if one.needed and one.name in section), "")
        made.setdefault("span", section.span_of(first) if first else section.span)
    if like is None:
        section.need(*(one.name for one in known.values() if one.needed))
    for one in known.values():
        if one.name in section and one.field not in made:
            made[one.field] = one.sort.read(section, one.name)
        elif like is not None:
            made.setdefault(one.field, getattr(like, one.field))
    return record(**made)


# -- schemas ------------------------------------------------------------------------------------------------


def object_of(properties: Schema, needed: Iterable[str] = ()) -> Schema:
    """The schema of a mapping with these keys and no others."""
    required = {"required": [*needed]} if needed else {}
    return {"type": "object", "additionalProperties": False, "properties": properties, **required}


def properties_of(keys: Iterable[BlockKey]) -> Schema:
    """The schemas of keys by their names."""
    return {one.name: {"description": one.meaning, **one.sort.schema} for one in keys}


def schema_of(record: type) -> Schema:
    """The schema of what a record declares."""
    keys = keys_of(record).values()
    return object_of(properties_of(keys), [one.name for one in keys if one.needed])


def mapping_of(schema: Schema) -> Schema:
    """The schema of a mapping with any keys."""
    return {"type": "object", "additionalProperties": schema}


def or_list(schema: Schema) -> Schema:
    """The schema of one value or a list of them."""
    return {"anyOf": [schema, {"type": "array", "items": schema}]}


# -- sorts --------------------------------------------------------------------------------------------------


RAW: Sort[Any] = Sort(Section.get, {})  # what is read where it is known what it means
TEXT: Sort[str] = Sort(Section.text, {"type": ["string", "number"]}, "")
WORD = TEXT.like(type="string")
TEXTS: Sort[tuple[str, ...]] = Sort(Section.texts, or_list(TEXT.schema), ())
PAIRS: Sort[tuple[tuple[str, str], ...]] = Sort(Section.pairs, mapping_of(WORD.schema), ())
COUNT: Sort[int | None] = Sort(Section.count, {"type": "integer", "minimum": 0})
MANY: Sort[int] = Sort(lambda section, name: section.count(name) or 0, {"type": "integer", "minimum": 0}, 0)
POSITIVE: Sort[int] = Sort(lambda section, name: section.count(name, 1) or 0, {"type": "integer", "minimum": 1}, 0)
QUANTITY: Sort[Quantity | None] = Sort(Section.quantity, TEXT.schema)


def one_of(names: Iterable[Other]) -> Sort[Other]:
    """One of several words."""
    known = [*map(str, names)]

    def read(section: Section, name: str) -> Any:
        said = section.text(name)
        if said not in known:
            wanted = f"{', '.join(known[:-1])} or {known[-1]}"
            raise section.error(name, f"'{name}' is {wanted}, not '{said[:60]}'", near(said))
        return said

    def near(said: str) -> str:
        found = nearest(said, known)
        return found if found.startswith("did you mean") else ""

    return Sort(read, {"enum": known}, known[0])


def _yes(section: Section, name: str) -> bool:
    said = section.text(name)
    if said.lower() not in ("yes", "no", "true", "false"):
        raise section.error(name, f"'{name}' is yes or no, not '{said[:40]}'")
    return said.lower() in ("yes", "true")


def _unit(section: Section, name: str) -> str:
    said = section.text(name)
    try:
        Quantity.parse(f"1 {said}")
    except SymcommError as error:
        raise section.error(name, error.message, error.hint) from None
    return said


UNIT: Sort[str] = Sort(_unit, TEXT.schema, "")
YES: Sort[bool] = Sort(_yes, {"enum": ["yes", "no", "true", "false", True, False]}, False)


def block(record: type[Other], what: str, read: Callable[[Section], Other] | None = None) -> Sort[Other]:
    """A block within a block, with its defaults where it is missing; ``what`` names it in errors."""

    def inside(section: Section, name: str) -> Other:
        found = section.section(name, what)
        assert found is not None
        return read(found) if read else read_keys(record, found)

    needed = any(one.needed for one in keys_of(record).values())  # type: ignore[arg-type]
    return Sort(inside, schema_of(record), None if needed else record())


def blocks(record: type[Other], what: str, wanted: str, shape: str) -> Sort[tuple[Other, ...]]:
    """A list of blocks; ``what`` names one of them in errors, ``wanted`` the list and ``shape`` its items."""

    def inside(section: Section, name: str) -> tuple[Other, ...]:
        value = section.get(name)
        if value is not None and not isinstance(value, Listing):
            raise value.wrong_type(name, wanted)
        return tuple(read_keys(record, one.as_section(name, what, shape)) for one in section.items(name))

    return Sort(inside, {"type": "array", "items": schema_of(record)}, ())
