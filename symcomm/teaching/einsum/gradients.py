"""The gradient of an einsum by each operand: again an einsum.

In ``sum over all indices of g[output] a[..] b[..]`` the operands are alike, so the gradient of one is the einsum of
``g`` and the others, with that operand's indices as the result. Ones stand for an index that only it has; a diagonal
gets a second index and an identity matrix.
"""

from __future__ import annotations

from typing import Any

from symcomm.core.graph.subscripts import Einsum
from symcomm.core.records import dataclass


@dataclass(frozen=True)
class EinsumGradient:
    """The gradient by one operand: subscripts, and what goes in.

    ``operands`` are ``g``, numbers of other operands from 0, and ``("ones", size)`` or ``("eye", size)``. ``squeezed``
    are the operands from which axes of length 1 that were stretched are taken away; ``reshaped`` says that they have to
    be put back into the result, whose ``shape`` is that of the operand.
    """

    of: int
    subscripts: str
    operands: tuple[str | int | tuple[str, Any], ...]
    shape: tuple[Any, ...]
    squeezed: tuple[int, ...] = ()
    reshaped: bool = False


def gradients(einsum: Einsum) -> tuple[EinsumGradient, ...]:
    """The gradient by each operand.

    >>> from symcomm.core.graph.subscripts import bound, read_subscripts
    >>> [g.subscripts for g in gradients(bound(read_subscripts("ik,kj->ij"), [(3, 4), (4, 5)]))]
    ['ij,kj->ik', 'ij,ik->kj']
    >>> trace = gradients(bound(read_subscripts("ii->"), [(4, 4)]))[0]
    >>> trace.subscripts, trace.operands
    (',iA->iA', ('g', ('eye', 4)))
    """
    return tuple(_gradient(einsum, n) for n in range(len(einsum.operands)))


def _gradient(einsum: Einsum, n: int) -> EinsumGradient:
    mine = einsum.squeezed(n)
    others = [k for k in range(len(einsum.operands)) if k != n]
    spare = iter(einsum.fresh(len(mine) - len({*mine})))
    target: list[str] = []
    eyes: list[tuple[str, str]] = []
    for label in mine:
        second = next(spare) if label in target else label
        eyes += [(label, second)] if second != label else []
        target.append(second)
    read = [einsum.output, *(einsum.squeezed(k) for k in others), *eyes]
    given = {label for labels in read for label in labels}
    ones = [label for label in target if label not in given]
    operands: list[str | int | tuple[str, Any]] = ["g", *others]
    operands += [("eye", einsum.sizes[label]) for label, _ in eyes]
    operands += [("ones", einsum.sizes[label]) for label in ones]
    left = ",".join("".join(labels) for labels in [*read, *ones])
    squeezed = tuple(k for k in others if einsum.squeezed(k) != einsum.operands[k])
    return EinsumGradient(n, f"{left}->{''.join(target)}", tuple(operands), einsum.shape(n), squeezed,
                    mine != einsum.operands[n])  # fmt: skip
