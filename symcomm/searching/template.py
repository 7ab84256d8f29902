"""The text of a strategy taken apart, so that a configuration can be written back with its sizes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from inspect import Parameter
from operator import or_

from symcomm.core.errors import StrategyError
from symcomm.core.form import Form, Num, Sym
from symcomm.core.parallel.strategy import Strategy, strategy_parts
from symcomm.core.records import dataclass

PIPELINE = "pipeline"  # what the stages are called among the axes of the mesh


@dataclass(frozen=True)
class TemplatePiece:
    """One part of a strategy: its name, its arguments, and the axes of the mesh it has.

    An argument is its name, its text, and the axis whose size it says (empty where it says something else).
    """

    key: str
    arguments: tuple[tuple[str, str, str], ...]
    axes: tuple[str, ...]
    strategy: Strategy
    first: str  # the argument that needs no name

    def written(self, sizes: Mapping[str, int], microbatches: int) -> str:
        """The part with its sizes, as ``parse_strategy`` reads it."""
        said = [(name, str(sizes[axis]) if axis else text) for name, text, axis in self.arguments]
        if self.strategy.pipeline is not None:
            said.append(("microbatches", str(microbatches)))
        inside = [text if name == self.first else f"{name}={text}" for name, text in said]
        return f"{self.key}({', '.join(inside)})" if inside else self.key


def pieces(text: str) -> tuple[TemplatePiece, ...]:
    """The parts of a strategy; raises ``StrategyError`` for what a search cannot vary.

    >>> [p.written({"tensor": 4, "pipeline": 2}, 8) for p in pieces("tensor(t) + sequence + pipeline")]
    ['tensor(4)', 'sequence', 'pipeline(2, microbatches=8)']
    """
    if not isinstance(text, str):
        raise StrategyError("a search takes strategies as texts", hint="for instance 'data + tensor + pipeline'")
    parts = strategy_parts(text)
    whole = reduce(or_, (made for *_, made in parts))
    found = tuple(_piece(key, {name: str(value) for name, value in given.items()}, known, made)
                  for key, given, known, made in parts)  # fmt: skip
    owners: dict[str, str] = {}
    for axis, size in degrees(whole).items():
        if isinstance(size, Sym):
            other = owners.setdefault(size.name, axis)
            if other != axis:
                hint = "call them by two names"
                raise StrategyError(f"{size.name} is the size of {other} and of {axis} in '{text}'", hint=hint)
    return found


def _piece(key: str, said: dict[str, str], known: Mapping[str, Parameter], made: Strategy) -> TemplatePiece:
    """A part of a strategy with what its arguments say; that of a number of stages is named where it is not said."""
    cut = made.pipeline
    if cut is not None:
        if cut.stages is None:
            raise StrategyError("a search varies the stages, not the layers of one", hint="write pipeline(p)")
        if "microbatches" in said:
            raise StrategyError("a search varies the microbatches itself", hint="say them beside: microbatches='1..64'")
        said.setdefault("stages", "N_PP")
    sizes = {axis: size for axis, size in made.mesh if size is not None}
    if cut is not None and cut.stages is not None:
        sizes[PIPELINE] = cut.stages
    named = {_said(size): axis for axis, size in sizes.items()}
    defaults = {n: str(p.default) for n, p in known.items() if str(p.default) in named}
    arguments = {**defaults, **said}
    ordered = [name for name in known if name in arguments]
    return TemplatePiece(
        key,
        tuple((n, arguments[n], named.get(arguments[n], "") if n not in ("axis", "mesh") else "") for n in ordered),
        tuple(axis for axis, _ in made.mesh) or ((PIPELINE,) if cut is not None else ()),
        made,
        next(iter(known), ""),
    )


def _said(size: Form) -> str:
    return size.name if isinstance(size, Sym) else str(size.number) if isinstance(size, Num) else ""


def composed(parts: tuple[TemplatePiece, ...]) -> Strategy | None:
    """The strategy of some parts; None for one device."""
    return reduce(or_, (part.strategy for part in parts)) if parts else None


def shared_axes(parts: tuple[TemplatePiece, ...]) -> tuple[str, ...]:
    """The axes of the mesh that several parts cut something along, such as that of sequence parallelism.

    With one rank the parts do nothing, but a copy that one gathers for another would still be counted.
    """
    every = [axis for part in parts for axis in part.axes]
    return tuple(dict.fromkeys(axis for axis in every if every.count(axis) > 1))


def degrees(strategy: Strategy | None) -> dict[str, Form]:
    """The size of each axis of the mesh, the stages of a pipeline among them."""
    if strategy is None:
        return {}
    found = dict(strategy.sizes)
    if strategy.pipeline is not None and strategy.pipeline.stages is not None:
        found[PIPELINE] = strategy.pipeline.stages
    return found


def written(parts: tuple[TemplatePiece, ...], sizes: Mapping[str, int], microbatches: int) -> str:
    """A strategy with its sizes; what has a size of one is left out, since it does nothing."""
    kept = [part for part in parts if any(sizes[axis] > 1 for axis in part.axes)]
    return " + ".join(part.written(sizes, microbatches) for part in kept) or "one device"
