"""Maps that reduce along an axis, written out by hand: the statistics of their rows, and the rest, point by point.

Nothing here comes from the records of ``symcomm.core.graph.ops``. A statistic of a part of a row is a part of the sum
(a mean is a sum over the length of the whole row) or the largest of the part.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from proof_reference import EPSILON_VALUE, Array, aligned

Environment = Mapping[str, Any]
Reduction = tuple[str, str, Callable[[Environment], Any]]  # its name here, how parts are put together, what is reduced


def _normal(e: Environment) -> Any:
    return (e["u"] - e["mean"]) / np.sqrt(e["variance"] + EPSILON_VALUE)


def _root(e: Environment) -> Any:
    return e["u"] / np.sqrt(e["square"] + EPSILON_VALUE)


_MAX: Reduction = ("max", "max", lambda e: e["u"])
_EXP: Reduction = ("exp", "sum", lambda e: np.exp(e["u"] - e["max"]))

# kind, and whether it is the gradient -> (operands in order, statistics in order, the rest)
WRITTEN: dict[tuple[str, bool], tuple[tuple[str, ...], tuple[Reduction, ...], Callable[[Environment], Any]]] = {
    ("softmax", False): (("u",), (_MAX, _EXP), lambda e: np.exp(e["u"] - e["max"]) / e["exp"]),
    ("softmax", True): (("dy", "y"), (("inner", "sum", lambda e: e["dy"] * e["y"]),),
                        lambda e: e["y"] * (e["dy"] - e["inner"])),
    ("sinksoftmax", False): (("u",), (_MAX, _EXP),
                             lambda e: np.exp(e["u"] - e["max"]) / (e["exp"] + np.exp(-e["max"]))),
    ("sinksoftmax", True): (("dy", "y"), (("inner", "sum", lambda e: e["dy"] * e["y"]),),
                            lambda e: e["y"] * (e["dy"] - e["inner"])),
    ("layernorm", False): (("u",), (("mean", "mean", lambda e: e["u"]),
                                    ("variance", "mean", lambda e: (e["u"] - e["mean"]) ** 2)), _normal),
    ("layernorm", True): (("dy", "u"), (("given", "mean", lambda e: e["dy"]),
                                        ("inner", "mean", lambda e: e["dy"] * _normal(e))),
                          lambda e: (e["dy"] - e["given"] - _normal(e) * e["inner"])
                          / np.sqrt(e["variance"] + EPSILON_VALUE)),
    ("batchnorm", False): (("u",), (("mean", "mean", lambda e: e["u"]),
                                    ("variance", "mean", lambda e: (e["u"] - e["mean"]) ** 2)), _normal),
    ("batchnorm", True): (("dy", "u"), (("given", "mean", lambda e: e["dy"]),
                                        ("inner", "mean", lambda e: e["dy"] * _normal(e))),
                          lambda e: (e["dy"] - e["given"] - _normal(e) * e["inner"])
                          / np.sqrt(e["variance"] + EPSILON_VALUE)),
    ("rmsnorm", False): (("u",), (("square", "mean", lambda e: e["u"] ** 2),), _root),
    ("rmsnorm", True): (("dy", "u"), (("inner", "mean", lambda e: e["dy"] * _root(e)),),
                        lambda e: (e["dy"] - _root(e) * e["inner"]) / np.sqrt(e["square"] + EPSILON_VALUE)),
    ("logsumexp", False): (("u",), (_MAX, _EXP), lambda e: np.log(e["exp"]) + e["max"]),
    ("logsumexp", True): (("dy", "u"), (), lambda e: e["dy"] * np.exp(e["u"] - e["max"]) / e["exp"]),
    ("maxpool", False): (("u",), (_MAX,), lambda e: e["max"]),
    ("maxpool", True): (("dy", "u", "y"), (), lambda e: e["dy"] * (e["u"] == e["y"])),
    ("crossentropy", False): (("u", "t"), (("right", "sum", lambda e: e["u"] * e["t"]), _MAX, _EXP),
                              lambda e: np.log(e["exp"]) + e["max"] - e["right"]),
    ("crossentropy", True): (("dy", "u", "t"), (),
                             lambda e: e["dy"] * (np.exp(e["u"] - e["max"]) / e["exp"] - e["t"])),
}  # fmt: skip


def parts(steps: Any) -> dict[str, str]:
    """The name here of each statistic that a plan makes; each map is to make what is written here, in this order."""
    made: dict[str, list[Any]] = {}
    for step in steps:
        if getattr(step, "part", "") == "statistics":
            made.setdefault(step.op.output, []).append(step)
    found: dict[str, str] = {}
    for several in made.values():
        kind = several[0].op.kind
        _, reductions, _ = WRITTEN[kind.removesuffix("_gradient"), kind.endswith("_gradient")]
        for step, (name, how, _) in zip(several, reductions, strict=True):
            assert step.makes.startswith(how)
            found[step.makes] = name
    return found


def compute_part(
    step: Any, operands: list[Array], known: Mapping[str, str], loops: Mapping[int, int], whole: Mapping[int, int]
) -> Array:
    """A part of a map on arrays; ``loops`` are the lengths of its loops here, ``whole`` those of the whole tensors."""
    op, piece = step.op, step.step
    names, reductions, rest = WRITTEN[op.kind.removesuffix("_gradient"), op.kind.endswith("_gradient")]
    said = dict(zip(op.inputs, names, strict=True)) | known
    order = sorted(loops)
    environment = {
        said[name]: aligned(array, indices, order)
        for name, array, indices in zip(step.inputs, operands, piece.indices, strict=True)
    }
    along = tuple(order.index(i) for i in op.attribute("along"))
    if step.part == "statistics":
        (how, function) = next((h, f) for n, h, f in reductions if n == known[step.makes])
        inside = np.broadcast_to(function(environment), [loops[i] for i in order])
        result = np.max(inside, axis=along) if how == "max" else np.sum(inside, axis=along)
        result = result / np.prod([whole[i] for i in op.attribute("along")]) if how == "mean" else result
        kept = [i for i in order if i not in op.attribute("along")]
    else:
        kept = [i for i in order if i in piece.output_indices]
        shape = [loops[i] if i in kept else 1 for i in order]
        result = np.broadcast_to(rest(environment), shape).reshape([loops[i] for i in kept])
    return result.transpose([kept.index(i) for i in piece.output_indices])
