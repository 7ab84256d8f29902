"""Frozen dataclasses whose methods are made when they are first called: hundreds of classes are ready in no time.

What ``dataclasses.dataclass(frozen=True)`` makes takes half a millisecond a class, nearly all of it to compile methods
that most runs never call. Everything else (``fields``, ``asdict``, matching) is that of ``dataclasses``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, FrozenInstanceError, fields
from functools import partial
from inspect import signature
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
    from dataclasses import replace as replace
    from inspect import Signature
else:

    def dataclass(cls: Any = None, /, *, frozen: bool = False, eq: bool = True, repr: bool = True, **said: Any) -> Any:  # noqa: A002
        """A dataclass, as that of ``dataclasses``; a frozen one must not be mixed with frozen ones from there.

        >>> @dataclass(frozen=True)
        ... class Point:
        ...     "A place."
        ...     x: int
        ...     y: int = 0
        >>> Point(1), Point(1) == Point(x=1), len({Point(1), Point(1, 0)}), dataclasses.replace(Point(1), y=2)
        (Point(x=1, y=0), True, 1, Point(x=1, y=2))
        """
        if cls is None:
            return partial(dataclass, frozen=frozen, eq=eq, repr=repr, **said)
        if not frozen or said:
            return dataclasses.dataclass(cls, frozen=frozen, eq=eq, repr=repr, **said)
        return _frozen(cls, eq, repr)

    def replace(record: Any, /, **changes: Any) -> Any:
        """The same with other values of some fields, as that of ``dataclasses``; what was cached is left behind.

        A record that is made of its fields alone is copied: a tenth of the time where there are many of them.
        """
        names = _PLAIN.get(record.__class__)
        if not names or not changes.keys() <= names.keys():
            return dataclasses.replace(record, **changes)
        made, held = object.__new__(record.__class__), record.__dict__
        made.__dict__.update(held if len(held) == len(names) else {name: held[name] for name in names}, **changes)
        if hasattr(made, "__post_init__"):
            made.__post_init__()
        return made


_PLAIN: dict[Any, dict[str, None]] = {}  # the fields of the classes that are made of nothing else


Kept = TypeVar("Kept")
Said = TypeVar("Said")


class _SignatureOfInit:
    """What ``inspect.signature`` asks a class for: that of the method, which may not be made yet."""

    def __get__(self, instance: object, owner: type) -> Signature:
        if instance is not None:
            raise AttributeError("__signature__")
        init = owner.__init__  # type: ignore[misc]  # no instance is at hand
        found = signature(getattr(init, "made", lambda: init)())
        return found.replace(parameters=[*found.parameters.values()][1:])


_SIGNATURE = _SignatureOfInit()


def _frozen(cls: Any, eq: bool, shown: bool) -> Any:
    own = dict(cls.__dict__)
    if own.get("__hash__") is None and "__eq__" in own:
        own.pop("__hash__", None)  # Python's own mark of a class that only says what is equal
    dataclasses.dataclass(init=False, repr=False, eq=False)(cls)
    if "__init__" not in own:
        _later(cls, "__init__", _init)
        cls.__signature__ = _SIGNATURE
        if all(f.init for f in fields(cls)):
            _PLAIN[cls] = dict.fromkeys(f.name for f in fields(cls))
    if shown and "__repr__" not in own:
        _later(cls, "__repr__", _shown)
    if eq and "__eq__" not in own:
        _later(cls, "__eq__", _equal)
    if eq and "__hash__" not in own:
        _later(cls, "__hash__", _hash)

    def assign(self: object, name: str, value: object) -> None:
        if type(self) is cls or name in cls.__dataclass_fields__:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def delete(self: object, name: str) -> None:
        if type(self) is cls or name in cls.__dataclass_fields__:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    cls.__setattr__, cls.__delattr__ = assign, delete
    return cls


def _later(cls: Any, name: str, write: Callable[[Any], tuple[str, str, dict[str, Any]]]) -> None:
    """Puts a method into a class that is compiled when it is first called."""

    def made() -> Any:
        arguments, body, scope = write(cls)
        exec(f"def {name}(self{arguments}):\n{body}", scope)  # noqa: S102  (of names of fields, as dataclasses does)
        method = recursive_repr()(scope[name]) if name == "__repr__" else scope[name]
        method.__module__, method.__qualname__ = cls.__module__, f"{cls.__qualname__}.{name}"
        if name == "__init__":
            method.__annotations__ = {f.name: f.type for f in fields(cls) if f.init} | {"return": None}
        setattr(cls, name, method)
        return method

    def first(self: object, *given: Any, **named: Any) -> Any:
        return made()(self, *given, **named)

    first.made = made  # type: ignore[attr-defined]
    first.__name__, first.__qualname__ = name, f"{cls.__qualname__}.{name}"
    setattr(cls, name, first)


def _init(cls: Any) -> tuple[str, str, dict[str, Any]]:
    scope: dict[str, Any] = {"_missing": MISSING}
    plain: list[str] = []
    named: list[str] = []
    lines: list[str] = [" _held = self.__dict__\n"]
    for f in fields(cls):
        value, made = f.name, f.default_factory is not MISSING
        if made:
            scope[f"_make_{f.name}"] = f.default_factory
            value = f"_make_{f.name}()" + (f" if {f.name} is _missing else {f.name}" if f.init else "")
        elif f.default is not MISSING:
            scope[f"_default_{f.name}"] = f.default
        if f.init:
            default = "=_missing" if made else f"=_default_{f.name}" if f.default is not MISSING else ""
            (named if f.kw_only else plain).append(f.name + default)
        if f.init or made:
            lines.append(f" _held[{f.name!r}] = {value}\n")
    if hasattr(cls, "__post_init__"):
        lines.append(" self.__post_init__()\n")
    arguments = [*plain, *(["*", *named] if named else [])]
    return "".join(f", {one}" for one in arguments), "".join(lines), scope


def _equal(cls: Any) -> tuple[str, str, dict[str, Any]]:
    names = [f.name for f in fields(cls) if f.compare]
    body = (
        " if other.__class__ is self.__class__:\n"
        f"  return {_tuple('self', names)} == {_tuple('other', names)}\n"
        " return NotImplemented"
    )
    return ", other", body, {}


def _hash(cls: Any) -> tuple[str, str, dict[str, Any]]:
    def counts(f: Field[Any]) -> bool:
        return f.compare if f.hash is None else f.hash

    return "", f" return hash({_tuple('self', [f.name for f in fields(cls) if counts(f)])})", {}


def _tuple(of: str, names: list[str]) -> str:
    return "(" + "".join(f"{of}.{name}," for name in names) + ")"


def _shown(cls: Any) -> tuple[str, str, dict[str, Any]]:
    parts = ", ".join(f"{f.name}={{self.{f.name}!r}}" for f in fields(cls) if f.repr)
    return "", f" return self.__class__.__qualname__ + f'({parts})'", {}


@dataclass(frozen=True, eq=False)
class ByIdentity(Generic[Kept]):
    """A value as the key of a cache: the very same one, not one that is equal."""

    it: Kept

    def __hash__(self) -> int:
        return id(self.it)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ByIdentity) and other.it is self.it


class ReadLater(Mapping[str, Kept], Generic[Said, Kept]):
    """Things by name that are read from what stands for them, each when it is first asked for.

    >>> counted = ReadLater({"a": "1", "b": "two"}, lambda name, said: int(said))
    >>> [*counted], counted["a"]
    (['a', 'b'], 1)
    """

    def __init__(self, said: Mapping[str, Said], read: Callable[[str, Said], Kept]) -> None:
        self._said, self._read = said, read
        self._made: dict[str, Kept] = {}

    def __getitem__(self, name: str) -> Kept:
        if name not in self._made:
            self._made[name] = self._read(name, self._said[name])
        return self._made[name]

    def __contains__(self, name: object) -> bool:
        return name in self._said

    def __iter__(self) -> Iterator[str]:
        return iter(self._said)

    def __len__(self) -> int:
        return len(self._said)
