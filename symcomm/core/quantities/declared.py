"""Quantities declared once: the signature and the docstring of a ``derive`` function, read for everyone who asks.

A file ``quantities/GROUP/NAME.py`` that defines ``derive(setting, ...) -> Derivation`` declares the quantity NAME, and
any file of a group one for each ``derive_NAME``. Its options are the parameters after the first one: ``Annotated``
types say what they mean and how text is read, ``Literal`` or ``OneOf`` what may be chosen, a default what holds where
nothing is said; without one an option is required. The command line, the keys of problem files, the methods of
``Model``, the tables of the docs and the JSON schema follow.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from fractions import Fraction
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path
from types import MappingProxyType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, Unpack, get_args, get_origin, get_type_hints

from symcomm.core.doors import check, said
from symcomm.core.errors import DocumentError, ValuesError, nearest
from symcomm.core.records import dataclass

if TYPE_CHECKING:
    from symcomm.core.derivation import Derivation
    from symcomm.core.worksheets import Worksheet

# Options that cannot be said as "unknown phase 'x'".
_NO_NOUNS = ("of", "over", "per", "want", "about", "include", "least", "other", "count", "numbers")
_WANTED = {"size": "a whole number or a symbol", "count": "a whole number", "quantity": "a number with a unit",
           "strategy": "a strategy, such as data(k)"}  # fmt: skip
# Where many quantities may be meant, a hint names these first; groups in the order in which they are listed.
USUAL = ("parameters", "flops", "communication", "activation_memory", "state_memory", "peak_memory", "step_time")
_DECLARES = re.compile(r"\ndef derive(?:_(\w+))?\(")
GROUPS = ("counting", "memory", "communication", "time", "fitting", "differentiation", "numbers")


# -- what an annotation may say -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Meaning:
    """The meaning of an option, with an example where it helps."""

    text: str


@dataclass(frozen=True)
class Reads:
    """How text is read: ``text``, ``size`` (count, symbol), ``quantity``, ``strategy``, ``schedule``, ``dtype`` ..."""

    kind: str


@dataclass(frozen=True)
class Extent:
    """How much of a model a quantity counts, beside what it returns: as ``worksheets.facts`` reads it."""

    words: str


@dataclass(frozen=True)
class OneOf:
    """The choices of an option, often the names of a registry; where it is ``open``, these are only the known ones."""

    names: Iterable[str] | Callable[[], Iterable[str]]
    open: bool = False

    @property
    def choices(self) -> tuple[str, ...]:
        """The names, as the registry has them now."""
        return tuple(self.names() if callable(self.names) else self.names)


# -- what is read -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Option:
    """An option of a quantity or of a figure; ``kind`` is that of ``Reads``, or ``choice``."""

    name: str
    kind: str
    meaning: str
    default: Any = None
    required: bool = False
    among: OneOf | None = None
    positional: bool = True
    takes: Any = None

    @property
    def choices(self) -> tuple[str, ...]:
        """The choices, or the known names of an open choice."""
        return self.among.choices if self.among else ()

    @property
    def told(self) -> str:
        """The meaning of the option, its choices and its default, as one line.

        >>> Option("per", "choice", "the batch", "total", among=OneOf(("total", "device"))).told
        'the batch (one of total, device; total unless told)'
        """
        closed = self.kind == "choice"
        notes = [f"one of {', '.join(self.choices)}"] if closed else []
        notes += ["required"] if self.required else []
        notes += [f"{self.default} unless told"] if self.default not in (None, "") else []
        return self.meaning + (f" ({'; '.join(notes)})" if notes else "")

    def check(self, value: object) -> None:
        """Raises ``ValuesError`` where a value has another type, or something else is chosen than may be."""
        if self.takes is not None and self.kind != "choice":
            check(self.name, value, self.takes)
        if self.kind == "size" and re.fullmatch(r"0+|-\d+", str(value)):
            raise ValuesError(f"'{self.name}' is {value}, but it must be positive", hint=f"{self.name}: 8")
        if self.kind == "size" and re.fullmatch(r"\d{16,}", str(value)):
            what = f"'{self.name}' has {len(str(value)):,} digits; at most 15 are read"
            raise ValuesError(what, hint=f"{self.name}: 8")
        if self.kind == "choice" and not isinstance(value, str):
            raise ValuesError(f"{self.name} is {said(value)}", hint=f"one of {', '.join(self.choices)}")
        if self.kind == "choice" and isinstance(value, str) and value not in self.choices:
            noun, of = ("choice", f" of '{self.name}'") if self.name in _NO_NOUNS else (self.name, "")
            raise ValuesError(f"unknown {noun} '{value[:60]}'{of}", hint=nearest(value, [*self.choices]))

    @property
    def may_be_number(self) -> bool:
        """Whether numbers may be given for it."""
        return self.kind in ("size", "count", "quantity", "text")

    def read(self, value: Any) -> Any:
        """The option as its quantity wants it, from plain data or from the command line.

        Raises ``DocumentError`` or ``ValuesError`` (without a place) for a wrong type or an unknown choice.

        >>> Option("degree", "size", "how many ranks").read("8")
        8
        """
        kind, name = self.kind, self.name
        wanted = _WANTED.get(kind, "text")
        if kind == "links" and isinstance(value, dict):
            return {str(axis): Option(f"{name}: {axis}", "text", "a link").read(one) for axis, one in value.items()}
        if isinstance(value, list) or (isinstance(value, dict) and kind not in ("strategy", "recipe", "formula")):
            raise DocumentError(f"'{name}' must be {wanted}, but is a {type(value).__name__}")
        if kind != "choice" and (isinstance(value, bool) or value is None):
            raise DocumentError(f"'{name}' must be {wanted}")
        text: Any = value if isinstance(value, dict) else str(value)
        match kind:
            case "strategy":
                from symcomm.core.parallel.strategy import parse_strategy

                return parse_strategy(text)
            case "recipe":
                from symcomm.core.quantities.recipes import recipe_of

                own = recipe_of(text)
                return own.name if isinstance(value, dict) else text
            case "schedule":
                from symcomm.core.program.schedules import find

                find(text)
            case "choice":
                self.check(text)
            case "dtype":
                from symcomm.core.dtypes import formats

                formats(text)  # refuses unknown ones
            case "quantity":
                from symcomm.core.units import Quantity

                Quantity.parse(text)  # kept as text, so that the quantity can check its unit
            case "size" | "count":
                text = text.strip()
                if re.fullmatch(r"\d{1,15}(\.\d{1,15})?[eE]\d{1,2}", text) and Fraction(text).denominator == 1:
                    text = str(int(Fraction(text)))  # 15e12 tokens
                if re.fullmatch(r"\d{1,40}", text):
                    if not int(text) and kind == "size":
                        raise DocumentError(f"'{name}' must be positive")
                    return int(text)
                if kind == "count" or re.match(r"[-+.\d]", text):
                    raise DocumentError(f"'{name}' must be {wanted}, but is '{text[:60]}'", hint=f"{name}: 8192")
                from symcomm.core.notation import plain_name

                return plain_name(text)
        return text


@dataclass(frozen=True)
class DeclaredQuantity:
    """A quantity that can be derived; ``derive(setting, **options)`` makes the derivation.

    ``names`` are what its symbols and steps are called instead, where it has these.
    """

    name: str
    group: str
    summary: str
    text: str
    options: tuple[Option, ...]
    needs_model: bool
    derive: Callable[..., Derivation]
    extent: str = ""  # of how much of a model it is, as ``worksheets.facts`` reads it: "{layer} rank"
    names: tuple[tuple[str, str], ...] = ()

    def json(self) -> dict[str, Any]:
        """The declaration as plain data."""
        shown = ("name", "kind", "meaning", "default", "required", "choices")
        options = [{key: getattr(option, key) for key in shown} for option in self.options]
        return {"name": self.name, "group": self.group, "summary": self.summary, "options": options,
                "needs_model": self.needs_model}  # fmt: skip

    def option(self, name: str) -> Option:
        """The option of a name; raises ``ValuesError`` for an unknown one."""
        for option in self.options:
            if option.name == name:
                return option
        hint = nearest(name, [o.name for o in self.options]) if self.options else f"'{self.name}' takes no options"
        raise ValuesError(f"'{self.name}' has no option '{name[:60]}'", hint=hint)

    def check(self, options: Mapping[str, object]) -> None:
        """Raises ``ValuesError`` for an unknown option, a choice that there is not, or a required one left out."""
        for name, value in options.items():
            self.option(name).check(value)
        for option in self.options:
            said = options.get(option.name)
            if option.required and (said is None or (isinstance(said, str) and not said)):
                raise ValuesError(f"'{self.name}' needs the option '{option.name}'", hint=option.meaning)


class Registry(Mapping[str, DeclaredQuantity]):
    """The quantities below some packages, and the worksheets, by name; each is read at its first use.

    Where a file of Python and a worksheet have one name, it is the file's quantity (which may use the worksheet). Those
    of the group ``facts`` are there for worksheets alone, and only ``with_facts``.
    """

    def __init__(self, packages: Mapping[str, list[str]], worksheets: Path, facts: bool = False) -> None:
        self.packages, self.worksheets, self.facts = packages, worksheets, facts
        self._read: dict[str, DeclaredQuantity] = {}

    def __getitem__(self, name: str) -> DeclaredQuantity:
        if name not in self._read:
            files = {package: _files(tuple(path), "py") for package, path in self.packages.items()}
            package = next((one for one, found in files.items() if name in found), None)
            if package is None:
                from symcomm.core.worksheets import built_in

                self._read[name] = self.of_worksheet(built_in()[name], self.groups[name])
            else:
                self._read[name] = _declared(package, *files[package][name], name)
        return self._read[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.groups)

    def __len__(self) -> int:
        return len(self.groups)

    def __contains__(self, name: object) -> bool:
        return name in self.groups

    def hint(self, word: str) -> str:
        """The quantities that a misspelt word may mean: names near to it, or whose meaning has the word."""
        low = word.strip().lower().rstrip("s")
        near = nearest(word.lower(), [*self])
        if near.startswith("did you mean") or len(low) < 3:
            return near if near.startswith("did you mean") else "'symcomm quantities' lists them"
        found = sorted((name for name in self if low in name), key=lambda name: not name.startswith(low))
        found = found or [name for name in self if re.search(rf"\b{re.escape(low)}", self[name].text, re.IGNORECASE)]
        named = [name for name in USUAL if name in found] + [name for name in found if name not in USUAL]
        if not named and " " in low:  # of several words, the first may be the one that is meant
            return self.hint(low.split()[0])
        if not named:
            return f"'symcomm quantities' lists them: {', '.join(USUAL)} and others"
        return "did you mean " + " or ".join(f"'{name}'" for name in named[:3]) + "? 'symcomm quantities' lists all"

    @property
    def groups(self) -> Mapping[str, str]:
        """The folder of each quantity, in order; nothing is imported for it."""
        roots = tuple(root for path in self.packages.values() for root in path)
        return _in_order(str(self.worksheets), roots, self.facts)

    @cached_property
    def with_facts(self) -> Registry:
        """The same with the facts that worksheets take from a model."""
        return Registry(self.packages, self.worksheets, facts=True)

    def of_worksheet(self, sheet: Worksheet, group: str = "") -> DeclaredQuantity:
        """The quantity that a worksheet is, or one line of it; its choices come behind the strategy that it passes on.

        Raises ``DocumentError`` at a line that takes a quantity, an option or a choice that there is not.
        """
        sheet = sheet.over(self.with_facts)
        own = [
            Option(one.name, "choice" if one.choices else one.kind, one.meaning, one.default,
                   among=OneOf(one.choices) if one.choices else None)
            for one in sheet.options
        ]  # fmt: skip
        passed = sorted(sheet.passed_on.values(), key=lambda one: not one.positional)
        first = [one for one in passed if one.kind == "strategy" and own]
        summary = sheet.summary[:1].upper() + sheet.summary[1:]
        options = (*first, *own, *(one for one in passed if one not in first))
        text = "\n\n".join((f"{summary}.", *sheet.read.more))
        return DeclaredQuantity(sheet.name, group, summary, text, options, sheet.needs_model, sheet.derive)


@cache
def _in_order(worksheets: str, path: tuple[str, ...], facts: bool) -> Mapping[str, str]:
    every = {**_files((worksheets,), "md"), **_files(path, "py")}
    found = {name: group for name, (group, _) in every.items() if facts or group != "facts"}
    order = {group: n for n, group in enumerate(GROUPS)}
    return MappingProxyType(dict(sorted(found.items(), key=lambda item: (order.get(item[1], len(order)), item))))


@cache
def _files(path: tuple[str, ...], ending: str) -> dict[str, tuple[str, str]]:
    """The group and the file of each quantity of some folders."""
    found: dict[str, tuple[str, str]] = {}
    for file in (file for root in path for file in Path(root).glob(f"*/*.{ending}")):
        names = _DECLARES.findall(file.read_text(encoding="utf-8")) if ending == "py" else [""]
        found |= dict.fromkeys((name or file.stem for name in names), (file.parent.name, file.stem))
    return found


@cache
def _declared(package: str, group: str, file: str, name: str) -> DeclaredQuantity:
    """What the signature and the docstring of a quantity's function say."""
    module = import_module(f"{package}.{group}.{file}")
    derive: Callable[..., Derivation] = getattr(module, f"derive_{name}", None) or module.derive
    hints = get_type_hints(derive, include_extras=True)
    first, *parameters = inspect.signature(derive).parameters.values()
    options: list[Option] = []
    for parameter in parameters:
        hint = hints[parameter.name]
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:  # options that several quantities share: a TypedDict
            assert get_origin(hint) is Unpack, f"{name}: **{parameter.name} needs a type such as Unpack[Rates]"
            (fields,) = get_args(hint)
            for key, inner in get_type_hints(fields, include_extras=True).items():
                options.append(_option(key, inner, None, required=False, positional=False))
        else:
            required = parameter.default is inspect.Parameter.empty
            options.append(_option(parameter.name, hint, None if required else parameter.default, required=required))
    text = inspect.cleandoc(derive.__doc__ or "")
    summary = text.partition("\n")[0].removesuffix(".")
    needs_model = get_origin(hints[first.name]) is not Annotated
    extent = next((mark.words for mark in _marks(hints["return"]) if isinstance(mark, Extent)), "")
    return DeclaredQuantity(name, group, summary, text, tuple(options), needs_model, derive, extent)


def _option(name: str, hint: Any, default: Any, *, required: bool, positional: bool = True) -> Option:
    marks = _marks(hint)
    meaning = next((mark.text for mark in reversed(marks) if isinstance(mark, Meaning)), None)
    assert meaning, f"the option '{name}' has no Meaning"
    among = next((mark for mark in reversed(marks) if isinstance(mark, OneOf)), None)
    kind = next((mark.kind for mark in reversed(marks) if isinstance(mark, Reads)), "text")
    if among is not None and not among.open:
        kind = "choice"
    return Option(name, kind, meaning, default, required, among, positional, hint)


def _marks(hint: Any) -> list[Any]:
    """What the annotations inside a type say, the outermost last; a ``Literal`` says what may be chosen."""
    if get_origin(hint) is Annotated:
        return [*_marks(hint.__origin__), *hint.__metadata__]
    if get_origin(hint) in (Union, UnionType):
        return [mark for arm in get_args(hint) for mark in _marks(arm)]
    return [OneOf(get_args(hint))] if get_origin(hint) is Literal else []
