"""A method for each declared quantity: ``model.flops("training")`` is ``model.derive("flops", scope="training")``.

A stub beside this file tells type checkers and editors the same: ``typed_methods.py`` writes it when symcomm is built.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from types import MethodType
from typing import TYPE_CHECKING, Any

from symcomm.core.errors import ValuesError
from symcomm.core.quantities import QUANTITIES
from symcomm.core.quantities.declared import Option

if TYPE_CHECKING:
    from symcomm.core.derivation import Derivation


class _Method:
    """A method that reads its signature and its docstring when somebody asks for it."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, model: object, owner: type) -> Callable[..., Any]:
        function = _function(self.name)
        return function if model is None else MethodType(function, model)


class DerivedQuantities:
    """An object that derives quantities by name in ``derive``, with a method for each."""

    if TYPE_CHECKING:  # where the stub was not written

        def __getattr__(self, name: str) -> Callable[..., Derivation]: ...


for _name in QUANTITIES:
    setattr(DerivedQuantities, _name, _Method(_name))


@cache
def _function(name: str) -> Callable[..., Any]:
    declared = QUANTITIES[name]
    signature = inspect.Signature(
        [
            inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD),
            *(_parameter(option) for option in declared.options),
            inspect.Parameter("accounting", inspect.Parameter.KEYWORD_ONLY, default=None),
        ]
    )

    def method(self: Any, *args: Any, accounting: Any = None, **options: Any) -> Any:
        try:
            placed = dict(signature.bind_partial(self, *args).arguments)
        except TypeError:
            known = ", ".join(option.name for option in declared.options)
            raise ValuesError(f"{name}: {len(args)} values are too many", hint=f"{name}({known})") from None
        twice = [key for key in placed if key in options]
        if twice:
            raise ValuesError(f"{name}: {twice[0]} is given twice")
        del placed["self"]
        return self.derive(name, accounting=accounting, **placed, **options)

    method.__name__ = name
    method.__qualname__ = f"{DerivedQuantities.__qualname__}.{name}"
    method.__doc__ = f"{declared.text}\n\n{''.join(f'{o.name}: {o.told}{chr(10)}' for o in declared.options)}"
    method.__signature__ = signature  # type: ignore[attr-defined]  # what help() and inspect show
    return method


def _parameter(option: Option) -> inspect.Parameter:
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD if option.positional else inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(option.name, kind, default=inspect.Parameter.empty if option.required else option.default)
