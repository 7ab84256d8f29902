"""One call of a strategy as it is counted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from symcomm.form import Form, num
from symcomm.graph.graph import Region
from symcomm.parallel.strategy import Strategy
from symcomm.program.instructions import BETWEEN_STAGES

if TYPE_CHECKING:
    from sympy import Expr


@dataclass(frozen=True)
class Call:
    """One call as it is counted: a collective, or a message over a pipeline boundary, of one region.

    What ``finishes`` the gradient of a weight, or the weight itself, is made for every microbatch or ``once`` in a
    step; ``accumulates`` says that this is for a convention to choose. ``name`` is what moves: d(W) for ``tensor`` W.
    """

    kind: str
    tensor: str
    what: str
    elements: Expr
    meshes: tuple[str, ...]
    phase: str
    why: str
    dtype: str
    region: Region
    every_layer: bool
    finishes: bool
    once: bool
    accumulates: bool
    name: str

    def ranks(self, strategy: Strategy) -> Form:
        """The ranks between which it runs: those of a group of the mesh, or the two stages of a pipeline."""
        return num(2) if self.meshes == BETWEEN_STAGES else strategy.ranks(self.meshes)
