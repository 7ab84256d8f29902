"""The public door: what a caller hands to a public function is checked once, before any of it is used.

``symcomm.NAME`` is the function of that name behind its door: an unknown option or a value of the wrong type is a
``SymcommError`` that says what would be right, wherever in the function it would have failed.
"""

from __future__ import annotations

import inspect
from abc import ABCMeta
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from functools import cache, wraps
from numbers import Integral
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from symcomm.core.errors import ValuesError, nearest
from symcomm.core.garbage import collected_rarely

Made = TypeVar("Made")


def door(function: Callable[..., Made]) -> Callable[..., Made]:
    """The same function with its arguments checked against its signature.

    Raises ``ValuesError`` for an unknown, repeated or missing argument and for one of another type.

    >>> def area(width: int, height: int = 1) -> int:
    ...     return width * height
    >>> door(area)(3, height="2")
    Traceback (most recent call last):
    ...
    symcomm.core.errors.ValuesError: area: height is the text '2', but it must be a whole number
    """

    @wraps(function)
    def checked(*given: Any, **named: Any) -> Made:
        signature, hints = _signature(function)
        try:
            bound = signature.bind(*given, **named)
        except TypeError as error:
            raise _unbound(function.__name__, signature, len(given), named, str(error)) from None
        for name, value in bound.arguments.items():
            if name in hints and signature.parameters[name].kind not in (
                inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL
            ):  # fmt: skip
                check(f"{function.__name__}: {name}", value, hints[name])
        with collected_rarely():
            return function(*given, **named)

    return checked


@cache
def _signature(function: Callable[..., Any]) -> tuple[inspect.Signature, dict[str, Any]]:
    local: dict[str, Any] = {}
    if any("Expr" in str(hint) for hint in getattr(function, "__annotations__", {}).values()):
        from sympy import Expr  # which most modules import for type checkers only

        local["Expr"] = Expr
    hints: dict[str, Any] = {}
    for name, hint in getattr(function, "__annotations__", {}).items():
        with suppress(NameError):  # another name that only type checkers import
            hints |= get_type_hints(_Holder({name: hint}, function), localns=local, include_extras=True)
    return inspect.signature(function), hints


class _Holder:
    """One annotation by itself, as ``get_type_hints`` takes it."""

    def __init__(self, annotations: dict[str, Any], function: Callable[..., Any]) -> None:
        self.__annotations__ = annotations
        self.__globals__ = getattr(function, "__globals__", {})


def _unbound(name: str, signature: inspect.Signature, given: int, named: dict[str, Any], error: str) -> ValuesError:
    known = [p.name for p in signature.parameters.values()]
    unknown = [key for key in named if key not in known]
    if unknown:
        return ValuesError(f"{name} has no option '{unknown[0][:60]}'", hint=nearest(unknown[0], known))
    required = [p.name for p in signature.parameters.values() if p.default is p.empty and p.kind < p.VAR_POSITIONAL]
    missing = [key for key in required[given:] if key not in named]
    if missing:
        return ValuesError(f"{name} needs {', '.join(map(repr, missing))}", hint=f"{name}({', '.join(known)})")
    return ValuesError(f"{name}: {error}", hint=f"{name}({', '.join(known)})")


def check(what: str, value: object, hint: Any) -> None:
    """Raises ``ValuesError`` where a value is not of a type; ``what`` names it.

    >>> check("k", 3, int | str)
    """
    if isinstance(value, Integral) and not isinstance(value, bool):
        value = int(value)  # NumPy's integers are whole numbers, too
    if _plainly(value, hint):
        return
    if get_origin(hint) is Iterable and isinstance(value, Iterable) and not isinstance(value, (str, Iterator)):
        for one in value:  # typeguard looks at no member of what could run out
            check(f"{what}: one of them", one, get_args(hint)[0])
        return
    from typeguard import CollectionCheckStrategy, ForwardRefPolicy, TypeCheckError, check_type

    try:
        check_type(
            value, hint, forward_ref_policy=ForwardRefPolicy.IGNORE,
            collection_check_strategy=CollectionCheckStrategy.ALL_ITEMS,
        )  # fmt: skip
    except TypeCheckError:
        exact = f'write "{value!r}" as text or a Fraction' if isinstance(value, float) else ""
        raise ValuesError(f"{what} is {said(value)}, but it must be {_wanted(hint)}", hint=exact) from None
    except RecursionError:
        raise ValuesError(f"{what} is nested too deeply") from None


def _plainly(value: object, hint: Any) -> bool:
    """Whether a value is of a type that a look is enough for; of others, typeguard knows, which takes long to import.

    >>> _plainly(("a", "b"), tuple[str, ...] | None), _plainly(("a", 1), tuple[str, ...]), _plainly(3, str)
    (True, False, False)
    """
    origin, of = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _plainly(value, of[0])
    if origin is Union or origin is UnionType:
        return any(_plainly(value, arm) for arm in of)
    if origin is None:
        return type(hint) in (type, ABCMeta) and isinstance(value, hint)  # no protocol, no dictionary with types
    if isinstance(value, dict) and origin in (dict, Mapping):
        return all(_plainly(key, of[0]) and _plainly(held, of[1]) for key, held in value.items())
    one = of[:1] if origin in (list, Sequence, Iterable) else of[:1] if of[1:] == (...,) else ()
    listed = one and type(value) in (list, tuple) and isinstance(value, origin)
    return bool(listed) and all(_plainly(v, *one) for v in value)  # type: ignore[attr-defined]  # it is a list


_WORDS = {
    "int": "a whole number", "str": "a text", "float": "a number", "bool": "True or False", "Fraction": "a Fraction",
    "NoneType": "None", "Mapping": "a mapping", "dict": "a mapping", "Sequence": "a list", "list": "a list",
    "tuple": "a tuple", "Iterable": "several of them", "Callable": "a function", "Path": "a Path",
}  # fmt: skip


def said(value: object) -> str:
    """A value as an error tells it: short, and with its kind."""
    kind = type(value).__name__
    if isinstance(value, (list, tuple)) and value:
        return f"{'a list' if isinstance(value, list) else 'a tuple'} with {said(value[0])}"
    if value is None or isinstance(value, bool):
        return str(value)
    if isinstance(value, str):
        return f"the text {value[:40]!r}"
    if isinstance(value, Fraction):
        return str(value)[:40]
    if isinstance(value, (int, float)):
        return f"the {'number' if isinstance(value, int) else 'float'} {str(value)[:40]}"
    return f"a {kind}" if kind[:1] not in "aeiouAEIOU" else f"an {kind}"


def _wanted(hint: Any) -> str:
    """A type in words."""
    if get_origin(hint) is Annotated:
        return _wanted(hint.__origin__)
    if get_origin(hint) is Union or type(hint).__name__ == "UnionType":
        words = list(dict.fromkeys(_wanted(arm) for arm in get_args(hint) if arm is not type(None)))
        return " or ".join(words)
    if type(hint).__name__ == "_LiteralGenericAlias":
        return "one of " + ", ".join(str(choice) for choice in get_args(hint))
    if get_origin(hint) in (Sequence, list) and get_args(hint) == (str,):
        return "a list of texts"
    name = getattr(get_origin(hint) or hint, "__name__", str(hint))
    return _WORDS.get(name, f"a {name}" if name[:1] not in "AEIOU" else f"an {name}")
