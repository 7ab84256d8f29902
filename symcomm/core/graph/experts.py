"""The weights of experts that a router chooses from, and how many of them some tokens read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import ROUND_HALF_EVEN, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from typing import Any

from symcomm.core.form import Applied, Form, NumericFunction, Power, Ratio, Smallest, Total, negative, num, product
from symcomm.core.graph.graph import Graph, Op, Tensor
from symcomm.core.libraries import Expr, np
from symcomm.core.records import dataclass
from symcomm.core.units import ONE, Unit

DECIMALS, FEW = 12, 256  # of an expected number of experts: exact ones have digits for each token, for few of them


@dataclass(frozen=True)
class Routing:
    """How a weight of experts is used: its axis of experts, how many of these a token goes to, and of how many tokens.

    ``place`` is that of the axis in the weight.
    """

    axis: str
    place: int
    chosen: Expr
    tokens: tuple[Expr, ...]


@lru_cache(maxsize=256)
def chosen_experts(graph: Graph) -> dict[str, Routing]:
    """The weights of experts, each with how tokens are routed to them.

    An axis of experts is one along which a router spreads tokens; what is computed from them keeps it, until their
    results are added up.
    """
    found: dict[str, Routing] = {}
    routed: dict[str, dict[int, Op]] = {}  # of a tensor, the places of such axes, each with what routed its tokens
    for op in (op for op in graph.ops if op.phase == "forward"):
        along: dict[int, Op] = {}
        for name, indices in zip(op.inputs, op.indices, strict=True):
            made = graph.producers.get(name)
            if made is not None and made.kind == "route":
                along[indices[-2]] = made  # the last axis of a route are the slots of an expert
            along |= {indices[place]: route for place, route in routed.get(name, {}).items()}
        for name, indices in zip(op.inputs, op.indices, strict=True):
            tensor = graph.tensors[name]
            for place, index in enumerate(indices):
                if tensor.role == "weight" and index in along:
                    route = along[index]
                    tokens = tuple(graph.axes[axis].size for axis in graph.tensors[route.output].axes[:-2])
                    chosen: Expr = route.attribute("k")
                    found.setdefault(name, Routing(tensor.axes[place], place, chosen, tokens))
        routed[op.output] = {place: along[i] for place, i in enumerate(op.output_indices) if i in along}
    return found


def routed(graph: Graph, tensor: Tensor) -> Op | None:
    """The op that routed the tokens of a tensor to the slots of experts; None for a tensor without such slots."""
    return next((op for op in graph.routes if graph.tensors[op.output].axes[-1] in tensor.axes), None)


@dataclass(frozen=True)
class ExpectedExperts(NumericFunction):
    """How many of E experts T tokens are expected to hit, each going to any k of them alike: E(1 - (1 - k/E)^T).

    Of more than 256 tokens rounded to 12 decimal places.

    >>> ExpectedExperts().number((Fraction(8), Fraction(2), Fraction(4)))
    Fraction(175, 32)
    """

    name: str = "experts_read"
    unit: Unit = ONE

    def number(self, arguments: tuple[Fraction, ...]) -> Fraction:
        """The number of experts, at most all of them."""
        experts, chosen, tokens = arguments
        return rounded_experts(experts, max(Fraction(0), 1 - chosen / experts), tokens)

    def numbers(self, arguments: Sequence[Any]) -> Any:
        """The same of arrays."""
        experts, chosen, tokens = arguments
        return experts * (1 - np.maximum(0, 1 - chosen / experts) ** tokens)

    def written(self, arguments: tuple[Form, ...]) -> Form:
        """The formula."""
        experts, chosen, tokens = arguments
        missed = Power(Total((num(1), negative(Ratio(chosen, experts)))), tokens)
        return product(experts, Total((num(1), negative(missed))))


def rounded_experts(experts: Fraction, missed: Fraction, tokens: Fraction) -> Fraction:
    """The experts that are hit: each token misses one with a probability; of many to 12 decimal places.

    >>> [int(rounded_experts(Fraction(8), Fraction(3, 4), Fraction(tokens))) for tokens in (1, 10**9)]
    [2, 8]
    """
    if tokens.denominator == 1 and tokens <= FEW:
        return experts * (1 - missed ** int(tokens))
    with localcontext(prec=60):
        rest = (Decimal(missed.numerator) / missed.denominator) ** (Decimal(tokens.numerator) / tokens.denominator)
        hit = Decimal(experts.numerator) / experts.denominator * (1 - rest)
        return Fraction(hit.quantize(Decimal(1).scaleb(-DECIMALS), ROUND_HALF_EVEN))


# One row a convention: how many of E experts are read, k chosen by each of T tokens.
EXPERTS_READ: dict[str, Callable[[Form, Form, Form], Form]] = {
    "expected": lambda experts, chosen, tokens: Applied(ExpectedExperts(), (experts, chosen, tokens)),
    "at_least": lambda experts, chosen, tokens: Smallest((experts, chosen)),
    "at_most": lambda experts, chosen, tokens: Smallest((experts, product(chosen, tokens))),
    "every_expert": lambda experts, chosen, tokens: experts,
}
