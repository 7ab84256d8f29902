"""Subscripts such as ``bij,bjk->bik``: read with their places, and bound to the shapes of operands.

An index of several operands multiplies them element by element; one that the result has not is summed. Without ``->``
the result has the dimensions of the ellipsis and then the indices that occur once, in ASCII order: upper case before
lower. An index twice in one operand takes its diagonal.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from string import ascii_letters, ascii_lowercase, ascii_uppercase
from typing import Any

from symcomm.core.errors import FormulaError, ShapeError, Span
from symcomm.core.records import dataclass
from symcomm.core.text.table import Cell, single

DOTS = "..."
LENGTH_LIMIT, OPERAND_LIMIT = 500, 20
_HINT = 'write for instance "bij,bjk->bik": letters for axes, commas between operands, `->` before the result'


@dataclass(frozen=True)
class Subscripts:
    """Subscripts as written: the labels of each operand and of the result (None where ``->`` is left out), with places.

    A label is a letter, or ``...`` for the axes that have none.
    """

    operands: tuple[tuple[str, ...], ...]
    output: tuple[str, ...] | None
    spans: tuple[tuple[Span, ...], ...]
    span: Span

    def place(self, operand: int, label: str) -> Span:
        """The place of the last index of a label in an operand."""
        labels = self.operands[operand]
        return next(
            (s for one, s in zip(labels[::-1], self.spans[operand][::-1], strict=True) if one == label), self.span
        )


def read_subscripts(text: str | Cell) -> Subscripts:
    """Reads subscripts. Raises ``FormulaError``, pointing at the character.

    >>> read_subscripts("bij, bjk -> bik").output
    ('b', 'i', 'k')
    """
    cell = single(text) if isinstance(text, str) else text
    text = cell.text
    if len(text) > LENGTH_LIMIT:
        raise FormulaError(f"these subscripts have {len(text)} characters; at most {LENGTH_LIMIT} are read",
                           cell.span(0, 20), "name a part of it in a row of its own")  # fmt: skip
    sides: list[list[tuple[str, Span]]] = [[]]
    arrow = None
    for found in re.finditer(r"->|\.\.\.|\s+|.", text, re.DOTALL):
        word, span = found.group(), cell.span(found.start(), found.end())
        if word == "->":
            if arrow is not None:
                raise FormulaError("a second `->`", span, _HINT)
            arrow = len(sides)
            sides.append([])
        elif word == ",":
            if arrow is not None:
                raise FormulaError("an einsum has one result, but a comma follows `->`", span, _HINT)
            sides.append([])
        elif word == DOTS and any(label == DOTS for label, _ in sides[-1]):
            raise FormulaError(
                "a second ellipsis among the indices of one tensor", span, "one ellipsis covers all such axes"
            )
        elif word == DOTS or word in ascii_letters:
            sides[-1].append((word, span))
        elif not word.isspace():
            what = "a `.` that is no ellipsis `...`" if word == "." else f"'{word}' is no letter"
            raise FormulaError(what, span, _HINT)
    result = sides.pop() if arrow is not None else None
    if len(sides) > OPERAND_LIMIT:
        raise FormulaError(f"an einsum of {len(sides)} operands; at most {OPERAND_LIMIT} are read", cell.span())
    made = Subscripts(
        tuple(tuple(label for label, _ in side) for side in sides),
        None if result is None else tuple(label for label, _ in result),
        tuple(tuple(span for _, span in side) for side in sides),
        cell.span(),
    )
    for n, (label, span) in enumerate(result or ()):
        if label in (made.output or ())[:n]:
            raise FormulaError(f"index {label} twice in the output", span, "an index occurs once in the result")
        if label != DOTS and all(label not in side for side in made.operands):
            raise FormulaError(
                f"index {label} of the output is in no operand", span, "an index of the result comes from one"
            )
    return made


@dataclass(frozen=True)
class Einsum:
    """An einsum with the sizes of its indices; the ellipsis has letters, and the result is written out."""

    operands: tuple[tuple[str, ...], ...]  # the labels of each operand's axes
    output: tuple[str, ...]  # those of the result
    sizes: Mapping[str, Any]  # whole numbers or SymPy expressions
    implicit: bool = False
    ellipsis: tuple[str, ...] = ()  # the letters that stand for it
    # Axes of length 1 that the ellipsis stretches: they have the label of what they are stretched to.
    stretched: frozenset[tuple[int, int]] = frozenset()

    @property
    def explicit(self) -> str:
        """The subscripts written out."""
        return ",".join("".join(labels) for labels in self.operands) + "->" + "".join(self.output)

    @property
    def indices(self) -> tuple[str, ...]:
        """All indices, in the order they appear."""
        return tuple(dict.fromkeys(label for labels in self.operands for label in labels))

    @property
    def summed(self) -> tuple[str, ...]:
        """The indices that the result has not."""
        return tuple(label for label in self.indices if label not in self.output)

    @property
    def diagonals(self) -> tuple[int, ...]:
        """The operands with an index that occurs twice."""
        return tuple(n for n, labels in enumerate(self.operands) if len(set(labels)) < len(labels))

    def squeezed(self, operand: int) -> tuple[str, ...]:
        """The labels of an operand without those it is stretched along."""
        labels = self.operands[operand]
        return tuple(label for n, label in enumerate(labels) if (operand, n) not in self.stretched)

    def shape(self, operand: int) -> tuple[Any, ...]:
        """The shape of an operand as it was given."""
        labels = self.operands[operand]
        return tuple(1 if (operand, n) in self.stretched else self.sizes[label] for n, label in enumerate(labels))

    @property
    def output_shape(self) -> tuple[Any, ...]:
        """The shape of the result."""
        return tuple(self.sizes[label] for label in self.output)

    def fresh(self, count: int) -> list[str]:
        """Letters that it does not use; raises ``ShapeError`` where there are no more."""
        free = [letter for letter in ascii_uppercase + ascii_lowercase if letter not in self.sizes]
        if count > len(free):
            raise ShapeError("an einsum of more than 52 indices", hint="there are no more letters")
        return free[:count]


def _number_of(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"


def bound(subscripts: Subscripts, shapes: Sequence[Sequence[Any]]) -> Einsum:
    """The einsum of operands of these shapes. Raises ``ShapeError`` where they do not fit, pointing at the index.

    >>> made = bound(read_subscripts("...ij,...jk"), [(7, 1, 2, 3), (5, 3, 4)])
    >>> made.explicit, made.output_shape
    ('ABij,Bjk->ABik', (7, 5, 2, 4))
    """
    if len(shapes) != len(subscripts.operands):
        raise ShapeError(f"{len(subscripts.operands)} subscripts for {_number_of(len(shapes), 'operand')}",
                         subscripts.span, "each operand has its own, with commas between them")  # fmt: skip
    ranks: list[int] = []
    for n, (labels, shape) in enumerate(zip(subscripts.operands, shapes, strict=True)):
        named = len([label for label in labels if label != DOTS])
        if named != len(shape) if DOTS not in labels else named > len(shape):
            span = subscripts.spans[n][0] if subscripts.spans[n] else subscripts.span
            told = f"{'at least ' if DOTS in labels else ''}{named}"
            raise ShapeError(f"operand {n + 1} has {_number_of(len(shape), 'dimension')}, its subscripts name {told}",
                             span, "a letter for each axis, or `...` for several")  # fmt: skip
        ranks.append(len(shape) - named if DOTS in labels else 0)
    letters = {label for labels in subscripts.operands for label in labels} - {DOTS}
    free = [letter for letter in ascii_uppercase + ascii_lowercase if letter not in letters]
    if max(ranks, default=0) > len(free):
        raise ShapeError("an einsum of more than 52 indices", subscripts.span)
    dots = tuple(free[: max(ranks, default=0)])
    output = subscripts.output
    if dots and output is not None and DOTS not in output:
        raise ShapeError("the operands have an ellipsis, the result has none", subscripts.span,
                         "write `...` behind `->`, or letters for axes to be summed: "
                         "PyTorch sums over the ellipsis, NumPy refuses it")  # fmt: skip
    sizes: dict[str, Any] = {}
    first: dict[str, int] = {}
    operands: list[tuple[str, ...]] = []
    ones: list[tuple[int, int, str]] = []
    for n, (labels, shape) in enumerate(zip(subscripts.operands, shapes, strict=True)):
        at = labels.index(DOTS) if DOTS in labels else 0
        mine = (*labels[:at], *dots[len(dots) - ranks[n] :], *labels[at + 1 :]) if DOTS in labels else labels
        operands.append(tuple(mine))
        for place, (label, size) in enumerate(zip(mine, shape, strict=True)):
            if label in dots and size == 1:
                ones.append((n, place, label))
            elif sizes.setdefault(label, size) != size:
                _refuse(subscripts, label if label not in dots else DOTS, first[label], sizes[label], n, size)
            first.setdefault(label, n)
    for _, _, label in ones:
        sizes.setdefault(label, 1)
    if output is None:
        every = [label for labels in operands for label in labels if label not in dots]
        written = (*dots, *sorted(label for label in set(every) if every.count(label) == 1))
    else:
        written = tuple(one for label in output for one in (dots if label == DOTS else (label,)))
    stretched = frozenset((n, place) for n, place, label in ones if sizes[label] != 1)
    return Einsum(tuple(operands), written, sizes, output is None, dots, stretched)


def _refuse(subscripts: Subscripts, label: str, one: int, size: Any, two: int, other: Any) -> None:
    """Raises ``ShapeError`` for an index of two sizes."""
    what = "the ellipsis" if label == DOTS else f"index {label}"
    hint = "all axes of one index have one size"
    if 1 in (size, other) and one != two:
        hint = "only the ellipsis stretches an axis of length 1 here (NumPy and PyTorch stretch named ones, too)"
    here = (
        f"in operand {one + 1} and {other} in operand {two + 1}" if one != two else f"and {other} in operand {one + 1}"
    )
    raise ShapeError(f"{what} is {size} {here}", subscripts.place(two, label), hint)


@dataclass(frozen=True)
class EinsumGradient:
    """The gradient by one operand: subscripts, and what goes in."""

    of: int
    subscripts: str
    operands: tuple[str | int | tuple[str, Any], ...]  # "g", numbers of other operands, ("ones", size), ("eye", size)
    shape: tuple[Any, ...]  # of the operand, and so of the result
    squeezed: tuple[int, ...] = ()  # operands from which stretched axes of length 1 are taken away
    reshaped: bool = False  # such axes have to be put back into the result


def gradients(einsum: Einsum) -> tuple[EinsumGradient, ...]:
    """The gradient of an einsum by each operand: again an einsum.

    In ``sum over all indices of g[output] a[..] b[..]`` the operands are alike, so the gradient of one is the einsum of
    ``g`` and the others, with that operand's indices as the result. Ones stand for an index that only it has; a
    diagonal gets a second index and an identity matrix.

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
