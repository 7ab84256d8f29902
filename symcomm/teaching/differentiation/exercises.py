"""Random systems of formulas for exams: a given number of operations, and whole numbers in every cell."""

from __future__ import annotations

from collections.abc import Callable

from symcomm.core.errors import SymcommError, ValuesError
from symcomm.core.records import dataclass
from symcomm.teaching.differentiation.sweeps import jacobian, reverse
from symcomm.teaching.differentiation.trace import EvaluationTrace, trace

LARGEST = 99  # of the numbers in the cells
_TRIES = 4_000
_OPERATIONS = ("+", "-", "*", "*", "^")


@dataclass(frozen=True)
class Exercise:
    """Formulas and a point, both as they stand in a document and as LaTeX."""

    formulas: str
    point: str

    @property
    def trace(self) -> EvaluationTrace:
        """Its trace."""
        return trace(self.formulas, self.point)


def exercise(below: Callable[[int], int], operations: int = 5, inputs: int = 2, outputs: int = 1) -> Exercise:
    """A random exercise; ``below(n)`` draws a whole number below n, so the same draws give the same exercise.

    It has just so many operations, each input matters to some output, some value is used several times in a way that
    matters (adding and overwriting give different answers), and all numbers are whole and have at most two digits.
    Raises ``ValuesError`` where no such exercise is found.

    >>> from random import Random
    >>> made = exercise(Random(7).randrange, operations=4)
    >>> len(made.trace.operations), made == exercise(Random(7).randrange, operations=4)
    (4, True)
    """
    if not (2 <= operations <= 12 and 1 <= inputs <= 4 and 1 <= outputs <= 3):
        raise ValuesError("an exercise has 2 to 12 operations, 1 to 4 inputs and 1 to 3 outputs")
    for _ in range(_TRIES):
        sizes = [1] * outputs
        for _ in range(operations - outputs):
            sizes[below(outputs)] += 1
        names = ["y"] if outputs == 1 else [f"y_{n}" for n in range(1, outputs + 1)]
        parts = [f"{name} = {_tree(below, size, inputs)[0]}" for name, size in zip(names, sizes, strict=True)]
        values = [(1, 2, 3, 4, 5, -1, -2, -3)[below(8)] for _ in range(inputs)]
        point = ", ".join(f"x_{n} = {value}" for n, value in enumerate(values, 1))
        made = Exercise("; ".join(parts), point)
        try:
            if _suits(made.trace, operations):
                return made
        except SymcommError:
            continue
    raise ValuesError(f"no exercise with {operations} operations and {inputs} inputs was found",
                      hint="ask for more operations, or fewer inputs")  # fmt: skip


def _suits(made: EvaluationTrace, operations: int) -> bool:
    nothing = any(v.operation == "sub" and v.operands[0] == v.operands[1] for v in made.operations)
    if len(made.operations) != operations or nothing:
        return False
    numbers = [v.value for v in made.variables]
    sweeps = [reverse(made, name) for name, _ in made.outputs]
    numbers += [value for sweep in sweeps for value in sweep.adjoints.values()]
    numbers += [p.value for v in made.operations for p in made.partials(v.number)]
    if not all(n.is_Integer and abs(n) <= LARGEST for n in numbers):
        return False
    matrix = jacobian(made)
    if not all(any(row[n] for row in matrix) for n in range(len(made.inputs))):
        return False
    return any(reverse(made, s.output, overwrite=True).adjoints != s.adjoints for s in sweeps)


def _tree(below: Callable[[int], int], size: int, inputs: int) -> tuple[str, int]:
    """A random formula with so many operations, and how tightly it binds: a sum 0, a product 1, a power 2, a name 3."""
    if size == 0:
        return f"x_{below(inputs) + 1}", 3
    sign = _OPERATIONS[below(len(_OPERATIONS))]
    if sign == "^":
        inside, binds = _tree(below, size - 1, inputs)
        return f"{inside if binds == 3 else f'({inside})'}^{2 + (below(5) == 0)}", 2
    left = below(size)
    a, first = _tree(below, left, inputs)
    if left == size - 1 and below(4) == 0:  # a constant
        b, second = str(2 + below(3)), 3
    else:
        b, second = _tree(below, size - 1 - left, inputs)
    if sign == "*":
        a, b = (a if first else f"({a})"), (b if second > 1 else f"({b})")
        return (f"{b} {a}" if b.isdigit() else f"{a} {b}"), 1
    return f"{a} {sign} {b if second else f'({b})'}", 0
