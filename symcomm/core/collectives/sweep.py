"""Times of many configurations at once: the closed forms as functions of NumPy arrays.

Sizes x ranks x algorithms are evaluated from the same expressions as a derivation, in float64: an overview, not an
exact answer. Chunks are exact for payloads below 2^52 bytes, since logarithms are taken from the binary exponent and
a quotient of such numbers is never rounded up to a whole one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from symcomm.core.errors import ValuesError, nearest
from symcomm.core.libraries import Expr, np, sp
from symcomm.core.records import dataclass

if TYPE_CHECKING:
    from symcomm.core.derivation import Derivation


@dataclass(frozen=True)
class Sweep:
    """Compiled costs: what each is called, the names of the numbers they need, and the function of arrays."""

    names: tuple[str, ...]
    needs: tuple[str, ...]
    function: Callable[..., Any]

    def __call__(self, **values: object) -> np.ndarray:
        """The cost of each configuration: one row a derivation, then the shape the values have together.

        Raises ``ValuesError`` for a number that is missing or not known.
        """
        missing = [name for name in self.needs if name not in values]
        if missing:
            raise ValuesError(f"the sweep needs a value for {', '.join(missing)}")
        for name in values:
            if name not in self.needs:
                raise ValuesError(f"the sweep knows no '{name[:40]}'", hint=nearest(name, [*self.needs]))
        arrays = [np.asarray(values[name], dtype=np.float64) for name in self.needs]
        for name, array in zip(self.needs, arrays, strict=True):
            if not (array > 0).all():
                raise ValuesError(f"{name} must be positive everywhere")
        shape = np.broadcast_shapes(*(a.shape for a in arrays))
        rows = self.function(*arrays)
        # Written row by row: a cost that does not depend on every value is spread over the shape.
        result = np.empty((len(self.names), *shape))
        for i, row in enumerate(rows):
            result[i] = row
        return result


def compile_sweep(costs: Mapping[str, Derivation] | Sequence[Derivation]) -> Sweep:
    """Compiles the answers of derivations; numbers that they were given stay variables.

    >>> from symcomm.core.accounting import Accounting
    >>> from symcomm.core.derivation import Derivation, Reason, Step
    >>> from symcomm.core.form import Ceiling, Ratio, Sym
    >>> from symcomm.core.units import ONE
    >>> chunk = Ceiling(Ratio(Sym("n"), Sym("k")))
    >>> d = Derivation("chunk", Accounting(), (Step("c", chunk, ONE, Reason("cut", "In equal parts.")),))
    >>> compile_sweep([d])(n=[7, 8, 9], k=8).tolist()
    [[1.0, 1.0, 2.0]]
    """
    named = dict(costs) if isinstance(costs, Mapping) else {d.title: d for d in costs}
    if not named:
        raise ValuesError("a sweep needs at least one derivation")
    expressions = [_exact_logarithms(d.expr) for d in named.values()]
    symbols = sorted({s for e in expressions for s in e.free_symbols}, key=lambda s: str(s.name))
    needs = tuple(str(s.name) for s in symbols)
    if len(set(needs)) < len(needs):
        raise ValuesError("two costs use one name for a whole number and for an amount")
    modules = [{"ceil_log2": ceil_log2, "floor_log2": floor_log2, "ones": binary_ones}, "numpy"]
    return Sweep(tuple(named), needs, sp.lambdify(symbols, expressions, modules=modules, cse=True, dummify=True))


def _exact_logarithms(expr: Expr) -> Expr:
    """``ceiling(log(k)/log(2))`` as a function of its own: the quotient of two rounded logarithms may be 29.000...4."""
    swaps: dict[Expr, Expr] = {}
    for name, rounded in (("ceil_log2", sp.ceiling), ("floor_log2", sp.floor)):
        for found in expr.atoms(rounded):
            inside = found.args[0] * sp.log(2)
            if isinstance(inside, sp.log):
                swaps[found] = sp.Function(name)(inside.args[0])
    return expr.subs(swaps) if swaps else expr


def floor_log2(x: Any) -> Any:
    _, exponent = np.frexp(x)
    return exponent - 1.0


def ceil_log2(x: Any) -> Any:
    fraction, exponent = np.frexp(x)
    return exponent - (fraction == 0.5)


def binary_ones(x: Any) -> Any:
    """The ones in the binary digits of all whole numbers below x together."""
    found, bit = np.zeros_like(np.asarray(x, dtype=np.float64)), 1.0
    while (bit < x).any() if isinstance(x, np.ndarray) else bit < x:
        found = found + x // (2 * bit) * bit + np.maximum(0, x % (2 * bit) - bit)
        bit *= 2
    return found
