"""The keys of problem documents that need more than their type: symbols, values, conventions, options."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from symcomm.core.accounting import CONVENTIONS, Accounting
from symcomm.core.blocks import Listing, Scalar, Section
from symcomm.core.errors import DocumentError, Span, SymcommError, ValuesError, nearest
from symcomm.core.keys import QUANTITY, TEXT, TEXTS, WORD, Sort, keyed, mapping_of, read_keys, schema_of
from symcomm.core.notation import Notation
from symcomm.core.quantities.declared import Option
from symcomm.core.records import dataclass, replace
from symcomm.core.text.table import PlacedText
from symcomm.core.units import Quantity

if TYPE_CHECKING:
    from symcomm.core.derivation import Derivation


@dataclass(frozen=True)
class Known:
    """A number the author gave, and where."""

    name: str
    quantity: Quantity
    span: Span


def symbol_name(key: Scalar) -> str:
    """The name of a symbol as a key spells it."""
    from symcomm.core import notation

    name = notation.plain_name(key.text)
    try:
        notation.symbol(name)
    except SymcommError as error:
        raise DocumentError(error.message, key.span, error.hint) from None
    return name


def _symbol(section: Section, name: str) -> str:
    """The name of a symbol that a key gives."""
    said = section.scalar(name, "the name of a symbol")
    return symbol_name(said) if said else ""


@dataclass(frozen=True)
class Described:
    """The meaning and spellings of a symbol."""

    meaning: str | None = keyed("what it means", TEXT, default=None)
    value: Quantity | None = keyed("its value", QUANTITY)
    latex: str | None = keyed("how it is written in LaTeX", TEXT, default=None)
    names: tuple[str, ...] | None = keyed("other spellings of it", TEXTS, default=None)


def read_symbols(section: Section, over: Notation) -> tuple[Notation, tuple[Known, ...]]:
    """The contents of ``symbols``: meanings, spellings, and the values that stand beside them."""
    symbols = section.section("symbols", "symbols")
    latex, meanings, spellings = dict(over.latex), dict(over.meanings), dict(over.spellings)
    known: list[Known] = []
    for key, value in symbols.entries if symbols else ():
        name = symbol_name(key)
        if name != key.text:
            latex[name] = key.text.strip().strip("$").strip()
        match value:
            case Listing():
                raise value.wrong_type(name, "a meaning, or a mapping with meaning, value and latex")
            case Scalar(text):
                meanings[name] = text.strip()
            case Section():
                said = read_keys(Described, replace(value, what=f"the symbol {name}"))
                meanings |= {} if said.meaning is None else {name: said.meaning}
                latex |= {} if said.latex is None else {name: said.latex.strip("$")}
                spellings |= {} if said.names is None else {name: said.names}
                known += [] if said.value is None else [Known(name, said.value, value.span_of("value"))]
    return (Notation(latex, meanings, spellings), tuple(known)) if symbols else (over, ())


def read_values(section: Section, name: str, read: Callable[[Scalar], Quantity]) -> tuple[Known, ...]:
    """The numbers that a mapping of symbols to numbers gives; ``read`` says which numbers make sense."""
    values = section.section(name, name)
    known: list[Known] = []
    for key, value in values.entries if values else ():
        symbol = symbol_name(key)
        said = value.as_scalar(symbol, "a number with a unit")
        if said.is_nothing:
            raise DocumentError(f"'{symbol}' has no value", key.span)
        known.append(Known(symbol, read(said), said.span))
    return merge(known)


def merge(*groups: Iterable[Known]) -> tuple[Known, ...]:
    """All given numbers together. Raises ``ValuesError`` naming both places where one has two different values."""
    found: dict[str, Known] = {}
    for group in groups:
        for item in group:
            before = found.setdefault(item.name, item)
            if before is not item and before.quantity != item.quantity:
                here, there = (one.span.word or one.quantity for one in (item, before))
                said = f"{item.name} is {here} here, but {there} in {before.span.place}"
                raise ValuesError(said, item.span, "give each symbol one value")
    return tuple(found.values())


def check_units(derivation: Derivation, known: Iterable[Known]) -> None:
    """Raises ``ValuesError`` at the first given number whose unit is not that of its symbol."""
    for item in known:
        with item.span.meant():
            derivation.number(item.name, item.quantity)


def _conventions(section: Section, name: str) -> tuple[tuple[str, str], ...]:
    """The choices that a key makes, by field: a name, a list of names, or fields with their choices.

    Algorithms may be chosen for single collectives: ``algorithm: {all-to-all: ring}``.
    """
    value = section.get(name)
    made: list[tuple[str, str]] = []
    if isinstance(value, Section):
        for key, item in value.entries:
            own = item.entries if isinstance(item, Section) and key.text == "algorithm" else ()
            for kind, one in own or ((None, item),):
                said = one.as_scalar(key.text, "the name of a convention")
                made.append(_choice(f"{key.text}={f'{kind.text}: ' if kind else ''}{said.text}", kind or key, said))
        return tuple(made)
    for one in section.items(name):
        said = one.as_scalar(name, "the name of a convention")
        made.append(_choice(said.text, said, said))
    return tuple(made)


def _choice(text: str, key: Scalar, value: Scalar) -> tuple[str, str]:
    try:
        return convention(text)
    except SymcommError as error:
        at = key if "field" in error.message or "collective" in error.message else value
        raise DocumentError(error.message, at.span, error.hint) from None


@lru_cache(maxsize=1024)
def convention(text: str) -> tuple[str, str]:
    """The field and the choice of a convention written as its name, or as ``field=name``.

    >>> convention("sent_per_rank"), convention("pipeline=per_microbatch")
    (('communication', 'sent_per_rank'), ('pipeline', 'per_microbatch'))
    """
    name, equals, choice = (part.strip() for part in text.partition("="))
    if equals:
        Accounting.of(**{name: choice})
        return name, choice
    Accounting.of(name)  # refuses an unknown name, and one that belongs to several fields
    return next((row.field, name) for row in CONVENTIONS if row.name == name)


def _renamed(section: Section, name: str) -> tuple[Renamed, ...]:
    """The symbols of a quantity with what they are called instead, and where that is said."""
    said = section.section(name, name)
    pairs = ((key, value.as_scalar(key.text, "the name of a symbol")) for key, value in (said.entries if said else ()))
    return tuple((symbol_name(key), symbol_name(value), value.span) for key, value in pairs)


Renamed = tuple[str, str, Span]
_NUMBERS = mapping_of(TEXT.schema)
NAMES: Sort[tuple[Renamed, ...]] = Sort(_renamed, mapping_of(WORD.schema), ())
SYMBOL = Sort(_symbol, WORD.schema, "")
CONVENTIONS_MADE = Sort(_conventions, {"$ref": "#/$defs/accounting"}, ())
GIVEN = Sort(lambda section, name: read_values(section, name, Scalar.quantity), _NUMBERS, ())
SIZES = Sort(lambda section, name: read_values(section, name, Scalar.whole), _NUMBERS, ())
SYMBOLS = Sort(lambda section, _: read_symbols(section, Notation())[0],
               mapping_of({"anyOf": [TEXT.schema, schema_of(Described)]}), Notation())  # fmt: skip


def model_of(section: Section, models: Mapping[str, object], needed: bool) -> str:
    """The model that a block is about: the one it names, or the last one where one is needed."""
    model, what = section.text("model"), section.what
    if model and model not in models:
        near = nearest(model, [*models]) if models else f"no model is defined before {what}"
        raise section.error("model", f"unknown model '{model[:60]}'", near)
    if needed and not model and not models:
        word = "figure" if "figure" in section else "ask"
        raise section.error(word, f"'{section.text(word)}' needs a model, and none is defined before {what}",
                            "add a symcomm block with model: and the name of the model")  # fmt: skip
    return model or ([*models][-1] if needed else "")


def given_options(section: Section, options: Mapping[str, Option]) -> Section:
    """A block in which numbers that ``given`` has under the names of ``options`` are these options.

    A number is the same wherever it is said: ``given: {stages: 4}`` is ``stages: 4``. Where the block has the option,
    its name is that of a symbol.
    """
    given = section.get("given")
    if not isinstance(given, Section):
        return section
    takes = [name for name, option in options.items() if option.may_be_number and name not in section]
    moved = tuple((key, value) for key, value in given.entries if key.text in takes)
    kept = replace(given, entries=tuple(entry for entry in given.entries if entry not in moved))
    rest = [(key, kept if value is given else value) for key, value in section.entries]
    return replace(section, entries=(*rest, *moved)) if moved else section


def read_option(section: Section, option: Option) -> Any:
    """One option of a quantity, as the type that its kind asks for."""
    value = section.get(option.name)
    assert value is not None
    if option.kind == "formula" and isinstance(value, Scalar):
        return PlacedText.at(value.text.strip("\n"), value.span)
    try:
        return option.read(value.plain)
    except SymcommError as error:
        raise DocumentError(error.message, value.blamed(error.message) or value.span, error.hint) from None
