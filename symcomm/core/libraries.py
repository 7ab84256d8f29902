"""Libraries that take long to load, each loaded at its first use: no command waits for what it does not need.

``sp`` is SymPy, ``np`` NumPy, ``nx`` NetworkX. The classes of SymPy that stand here are for type hints.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = ["Expr", "Poly", "Symbol", "mpmath", "np", "nx", "sp"]

if TYPE_CHECKING:
    import mpmath
    import networkx as nx
    import numpy as np
    import sympy as sp
    from sympy import Expr, Poly, Symbol
else:

    class _Library:
        """A library that is loaded when one of its names is asked for; it keeps each name that was."""

        def __init__(self, name: str) -> None:
            self._name = name

        def __getattr__(self, name: str) -> Any:
            found = getattr(import_module(self.__dict__["_name"]), name)
            if not name.startswith("_"):
                setattr(self, name, found)
            return found

    mpmath, nx, np, sp = map(_Library, ("mpmath", "networkx", "numpy", "sympy"))
    Expr = Poly = Symbol = Any
