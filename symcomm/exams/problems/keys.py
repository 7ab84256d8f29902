"""The keys of problem documents that need more than their type: symbols, values, conventions, options."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from symcomm.core.accounting import CONVENTIONS, Accounting
from symcomm.core.dtypes import formats
from symcomm.core.errors import DocumentError, Span, SymcommError, ValuesError
from symcomm.core.notation import Notation
from symcomm.core.quantities.declared import Option
from symcomm.core.records import dataclass
from symcomm.core.text.table import PlacedText
from symcomm.core.units import Quantity
from symcomm.exams.problems import blocks
from symcomm.exams.problems.blocks import Listing, Scalar, Section

if TYPE_CHECKING:
    from symcomm.core.derivation import Derivation

SYMBOL_KEYS = ("meaning", "value", "latex", "names")


@dataclass(frozen=True)
class Known:
    """A number the author gave, and where."""

    name: str
    quantity: Quantity
    span: Span


def plain_name(text: str) -> str:
    r"""The plain spelling of a symbol written plainly or in LaTeX.

    >>> plain_name(r"$N_{\text{layer}}$"), plain_name("n_H")
    ('N_layer', 'n_H')
    """
    text = re.sub(r"\\(?:text|mathrm|mathit|operatorname)\s*\{([^{}]*)\}", r"\1", text.strip().strip("$").strip())
    text = re.sub(r"[{}\s]", "", text)
    return text.removeprefix("\\")


def symbol_name(key: Scalar) -> str:
    """The name of a symbol as a key spells it."""
    from symcomm.core import notation

    name = plain_name(key.text)
    try:
        notation.symbol(name)
    except SymcommError as error:
        raise DocumentError(error.message, key.span, error.hint) from None
    return name


def symbol_key(section: Section, key: str) -> str:
    """The name of a symbol that a key gives."""
    value = section.get(key)
    if value is None:
        return ""
    if not isinstance(value, Scalar):
        raise blocks.wrong_type(key, "the name of a symbol", value)
    return symbol_name(value)


def read_symbols(section: Section, over: Notation) -> tuple[Notation, tuple[Known, ...]]:
    """What ``symbols`` says: meanings, spellings, and the values that stand beside them."""
    symbols = section.section("symbols", "symbols")
    if symbols is None:
        return over, ()
    latex, meanings, spellings = dict(over.latex), dict(over.meanings), dict(over.spellings)
    known: list[Known] = []
    for key, value in symbols.entries:
        name = symbol_name(key)
        if name != key.text:
            latex[name] = key.text.strip().strip("$").strip()
        if isinstance(value, Listing):
            raise blocks.wrong_type(name, "a meaning, or a mapping with meaning, value and latex", value)
        if isinstance(value, Scalar):
            meanings[name] = value.text.strip()
            continue
        inner = replace(value, what=f"the symbol {name}")
        inner.only(SYMBOL_KEYS)
        if "meaning" in inner:
            meanings[name] = inner.text("meaning")
        if "latex" in inner:
            latex[name] = inner.text("latex").strip("$")
        if "names" in inner:
            spellings[name] = inner.texts("names")
        quantity = inner.quantity("value")
        if quantity is not None:
            known.append(Known(name, quantity, inner.span_of("value")))
    return Notation(latex, meanings, spellings), tuple(known)


def read_values(section: Section, key: str, read: Callable[[Scalar], Quantity]) -> tuple[Known, ...]:
    """The numbers that a mapping of symbols to numbers gives; ``read`` says which numbers make sense."""
    values = section.section(key, key)
    if values is None:
        return ()
    known: dict[str, Known] = {}
    for name_key, value in values.entries:
        name = symbol_name(name_key)
        if not isinstance(value, Scalar):
            raise blocks.wrong_type(name, "a number with a unit", value)
        if value.is_nothing:
            raise DocumentError(f"'{name}' has no value", name_key.span)
        new = Known(name, read(value), value.span)
        [known[name]] = merge([known[name]] if name in known else [], [new])
    return tuple(known.values())


def merge(*groups: Iterable[Known]) -> tuple[Known, ...]:
    """All given numbers together. Raises ``ValuesError`` naming both places where one has two different values."""
    found: dict[str, Known] = {}
    for group in groups:
        for item in group:
            before = found.setdefault(item.name, item)
            if before is not item and before.quantity != item.quantity:
                raise ValuesError(
                    f"{item.name} is {item.span.word or item.quantity} here, but "
                    f"{before.span.word or before.quantity} in {before.span.place}",
                    item.span,
                    "give each symbol one value",
                )
    return tuple(found.values())


def check_units(derivation: Derivation, known: Iterable[Known]) -> None:
    """Raises ``ValuesError`` at the first given number whose unit is not that of its symbol."""
    for item in known:
        try:
            derivation.number(item.name, item.quantity)
        except ValuesError as error:
            raise error.at(item.span) from None


def read_conventions(section: Section) -> tuple[tuple[str, str], ...]:
    """The choices that ``accounting`` makes, by field: a name, a list of names, or fields with their choices.

    Algorithms may be chosen for single collectives: ``algorithm: {all-to-all: ring}``.
    """
    value = section.get("accounting")
    if value is None:
        return ()
    made: list[tuple[str, str]] = []
    if isinstance(value, Section):
        for key, item in value.entries:
            own = item.entries if isinstance(item, Section) and key.text == "algorithm" else ()
            for kind, name in own or ((None, item),):
                if not isinstance(name, Scalar):
                    raise blocks.wrong_type(key.text, "the name of a convention", name)
                made.append(_choice(f"{key.text}={f'{kind.text}: ' if kind else ''}{name.text}", kind or key, name))
        return tuple(made)
    for item in value.items if isinstance(value, Listing) else (value,):
        if not isinstance(item, Scalar):
            raise blocks.wrong_type("accounting", "the name of a convention", item)
        made.append(_choice(item.text, item, item))
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


def given_options(section: Section, options: Mapping[str, Option]) -> Section:
    """A block in which numbers that ``given`` has under the names of ``options`` are these options.

    A number is the same wherever it is said: ``given: {stages: 4}`` is ``stages: 4``. Where the block has the option,
    its name is that of a symbol.
    """
    given = section.get("given")
    if not isinstance(given, Section):
        return section
    takes = [name for name, option in options.items() if option.kind in NUMBERED and name not in section]
    moved = tuple((key, value) for key, value in given.entries if key.text in takes)
    kept = replace(given, entries=tuple(entry for entry in given.entries if entry not in moved))
    rest = [(key, kept if value is given else value) for key, value in section.entries]
    return replace(section, entries=(*rest, *moved)) if moved else section


NUMBERED = ("size", "count", "quantity", "text")  # the kinds of options that numbers may be


def read_option(section: Section, option: Option) -> Any:
    """One option of a quantity, as the type that its kind asks for."""
    value = section.get(option.name)
    assert value is not None
    if option.kind == "formula" and isinstance(value, Scalar):
        return PlacedText.at(value.text.strip("\n"), value.span)
    try:
        return convert(blocks.plain(value), option)
    except SymcommError as error:
        raise DocumentError(error.message, blocks.blamed(value, error.message) or value.span, error.hint) from None


def convert(value: Any, option: Option) -> Any:
    """An option as its quantity wants it, from plain data or from the command line.

    Raises ``DocumentError`` or ``ValuesError`` (without a place) for a wrong type or an unknown choice.

    >>> convert("8", Option("degree", "size", "how many ranks"))
    8
    """
    kind, name = option.kind, option.name
    if kind == "strategy":
        from symcomm.core.parallel.strategy import parse_strategy

        if not isinstance(value, (str, dict)):
            raise DocumentError(f"'{name}' must be a strategy, such as data(k)")
        return parse_strategy(value)
    if kind == "choice":
        option.check(str(value))
        return str(value)
    if kind == "recipe":
        from symcomm.core.quantities.recipes import recipe_of

        own = recipe_of(value if isinstance(value, dict) else str(value))
        return own.name if isinstance(value, dict) else str(value)
    if kind == "schedule":
        from symcomm.core.program.schedules import find

        find(str(value))
        return str(value)
    if kind == "formula" and isinstance(value, dict):
        return value
    if kind == "links" and isinstance(value, dict):
        return {str(axis): convert(one, Option(f"{name}: {axis}", "text", "a link")) for axis, one in value.items()}
    if isinstance(value, (list, dict)):
        raise DocumentError(f"'{name}' must be {_KINDS.get(kind, 'text')}, but is a {type(value).__name__}")
    if isinstance(value, bool) or value is None:
        raise DocumentError(f"'{name}' must be {_KINDS.get(kind, 'text')}")
    if kind == "dtype":
        formats(str(value))  # refuses unknown ones
        return str(value)
    if kind == "quantity":
        Quantity.parse(str(value))  # kept as text, so that the quantity can check its unit
        return str(value)
    if kind in ("size", "count"):
        text = str(value).strip()
        if re.fullmatch(r"\d{1,40}", text):
            if not int(text) and kind == "size":
                raise DocumentError(f"'{name}' must be positive")
            return int(text)
        if kind == "count" or re.match(r"[-+.\d]", text):
            raise DocumentError(f"'{name}' must be {_KINDS[kind]}, but is '{text[:60]}'")
        return plain_name(text)
    return str(value)


_KINDS = {"size": "a whole number or a symbol", "count": "a whole number", "quantity": "a number with a unit"}
