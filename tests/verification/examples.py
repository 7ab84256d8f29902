"""The models of the examples."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from symcomm.model import Model
from symcomm.problems.problem import read_problem
from symcomm.problems.solve import load_model

EXAMPLES = Path(__file__).parents[2] / "examples"
HOMEWORK = EXAMPLES / "comp4901y-homework2" / "homework.md"
LAYERS = sorted((EXAMPLES / "layers").glob("*.md"))


@cache
def model(path: Path) -> Model:
    return load_model(read_problem(path), "")


def layer(name: str) -> Model:
    return model(EXAMPLES / "layers" / f"{name}.md")
