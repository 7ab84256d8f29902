"""Steps that a document has shown before: an answer that begins like an earlier one goes on where they part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from symcomm.derivation import Derivation
from symcomm.derivation.writing import lines

# Fewer steps than these are read again faster than they are looked up.
FEWEST = 4


@dataclass(frozen=True)
class Repeat:
    """The first ``steps`` of an answer are those of an earlier one, the ``of``-th of the document, counted from 1."""

    steps: int
    of: int

    @property
    def text(self) -> str:
        """The sentence that stands in the place of the steps."""
        return f"Steps (1) to ({self.steps}) are those of solution {self.of}."


def repeats(derivations: Sequence[Derivation]) -> tuple[Repeat | None, ...]:
    """For each answer of a document the longest beginning that an earlier answer has as well; None where it is short.

    The last step is always shown again, since it is the answer.

    >>> from symcomm.accounting import Accounting
    >>> from symcomm.derivation import Reason, Step
    >>> from symcomm.form import num
    >>> from symcomm.units import ONE
    >>> def made(*names):
    ...     steps = (Step(name, num(n), ONE, Reason("given", "so")) for n, name in enumerate(names, 1))
    ...     return Derivation("count", Accounting(), tuple(steps))
    >>> repeats([made(*"abcde"), made(*"abcdx"), made(*"abcde"), made(*"xbcde")])
    (None, Repeat(steps=4, of=1), Repeat(steps=4, of=1), None)
    """
    seen: list[list[tuple[object, ...]]] = []
    found: list[Repeat | None] = []
    for derivation in derivations:
        shown: list[tuple[object, ...]] = [
            (n.step.name, n.relation, n.form, n.reason, n.condition) for n in lines(derivation)
        ]
        best: Repeat | None = None
        for number, earlier in enumerate(seen, 1):
            pairs = zip(shown[:-1], earlier, strict=False)
            same = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(shown) - 1, len(earlier)))
            if same >= FEWEST and (best is None or same > best.steps):
                best = Repeat(same, number)
        seen.append(shown)
        found.append(best)
    return tuple(found)
