"""One call of a strategy as it is counted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from symcomm.form import Form, num
from symcomm.graph.graph import Region
from symcomm.parallel.strategy import Strategy

if TYPE_CHECKING:
    from sympy import Expr


@dataclass(frozen=True)
class Call:
    """One call as it is counted: a collective, or a message over a pipeline boundary, of one region."""

    kind: str
    tensor: str
    what: str
    elements: Expr
    meshes: tuple[str, ...]
    phase: str
    why: str
    dtype: str
    region: Region
    every_layer: bool = True
    op: str = ""
    finishes: bool = False
    name: str = ""

    def ranks(self, strategy: Strategy) -> Form:
        """The ranks between which it runs: those of a group of the mesh, or the two stages of a pipeline."""
        return num(2) if self.meshes == ("pipe",) else strategy.ranks(self.meshes)
