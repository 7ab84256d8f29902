"""Sizes at which the prices of plans are compared: numbers that keep the relations of a model.

Real systems assume fewer features than tokens on a rank, and fewer tokens than entries of a vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, prod

from symcomm.core import form as forms
from symcomm.core.graph.graph import Graph, Tensor
from symcomm.core.libraries import Expr, Symbol, sp

# Powers of two: features of one axis, tokens of all their axes together, entries of a vocabulary; and what is counted,
# such as experts and what heads are shared by.
FEATURES, TOKENS, VOCABULARY, COUNT = 10, 16, 20, 3
RANKS = 4  # of each axis of the mesh, where prices are compared
ROW = 3  # of the tokens, those along the first axis: sequences


def reference(graph: Graph, tokens: int = TOKENS, vocabulary: int = VOCABULARY) -> dict[str, int]:
    """The bytes of each tensor at reference sizes.

    ``tokens`` and ``vocabulary`` are the powers of two at which those sizes are taken.
    """
    opened = graph.step.lengths if graph.step is not None else {}  # positions are as many, whatever numbers are put in
    size = {name: graph.relations.expand(opened.get(name, axis.size)) for name, axis in graph.axes.items()}
    values = _values(graph, size, tokens, vocabulary)
    lengths = {
        name: RANKS if axis.role == "copies" else int(max(1, ceil(size[name].xreplace(values))))
        for name, axis in graph.axes.items()
    }
    return {
        name: prod(lengths[a] for a in t.axes) * width(t)
        for name, t in graph.tensors.items()
    }


def width(tensor: Tensor) -> int:
    """The bytes of a number where prices are compared."""
    return 4 if tensor.role == "statistic" else 2


# Other powers of two for tokens and vocabulary: ever fewer tokens, ever more, and ever fewer entries of a vocabulary.
VARIATIONS = (
    tuple((tokens, VOCABULARY) for tokens in range(TOKENS - 4, 0, -4)),
    tuple((tokens, VOCABULARY) for tokens in range(TOKENS + 4, 2 * TOKENS, 4)),
    tuple((TOKENS, vocabulary) for vocabulary in range(VOCABULARY - 5, 0, -5)),
)


def _values(graph: Graph, size: Mapping[str, Expr], tokens: int, vocabulary: int) -> dict[Symbol, Expr]:
    """A power of two for each symbol, by what the axes of its size do."""
    weights = {axis for t in graph.weights for axis in t.axes}
    forward = [op for op in graph.ops if op.phase == "forward"]
    classes: dict[str, int] = {}  # what a lookup chooses from, and by how many axes of choices
    counts: set[Symbol] = {s for expr in size.values() for s in sp.fraction(expr)[1].free_symbols}
    slots: set[Symbol] = set()
    for op in forward:
        axes = graph.index_axes(op)
        if op.kind == "onehot":
            (chosen,) = {*op.output_indices} - {*op.indices[0]}
            classes[axes[chosen]] = len(op.indices[0])
        elif op.kind == "route":
            slots |= size[axes[op.output_indices[-1]]].free_symbols
            counts |= size[axes[op.output_indices[-2]]].free_symbols
    rows = max(classes.values(), default=0)
    along = [a for t in graph.tensors.values() if t.role in ("input", "activation") for a in t.axes]
    free = [a for a in dict.fromkeys(along) if a not in weights and a not in classes]
    inner = {s for a in weights - classes.keys() for s in size[a].free_symbols}
    stream = [s for s in dict.fromkeys(s for a in free for s in sorted(size[a].free_symbols, key=str))
              if s not in inner and s not in counts and s not in slots]  # fmt: skip
    power = dict.fromkeys(slots, tokens - ROW + 1 - COUNT)
    power |= dict.fromkeys(stream, tokens - ROW)
    if stream:
        power[stream[0]] = ROW if len(stream) > 1 else tokens
    for axis, choices in classes.items():
        for s in size[axis].free_symbols:
            power.setdefault(s, vocabulary if choices == rows else tokens - ROW)
    power |= dict.fromkeys(counts, COUNT)
    for _, form in graph.relations.equations:
        parts = sorted(forms.value(form).free_symbols - power.keys(), key=str)
        power |= {s: FEATURES // len(parts) for s in parts}
    for s in {s for expr in size.values() for s in expr.free_symbols}:
        power.setdefault(s, FEATURES)
    return {s: sp.Integer(2) ** max(0, p) for s, p in power.items()}
