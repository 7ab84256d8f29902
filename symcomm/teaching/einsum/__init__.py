"""Einstein summation: what subscripts say, their gradients, the orders of several operands, and their spellings."""

from symcomm.core.graph.subscripts import Einsum, Subscripts, bound, read_subscripts
from symcomm.teaching.einsum.gradients import EinsumGradient, gradients
from symcomm.teaching.einsum.orders import COUNTS, Orders, count_at_once, orders

__all__ = [
    "COUNTS", "Einsum", "EinsumGradient", "Orders", "Subscripts", "bound", "count_at_once", "gradients", "orders",
    "read_subscripts",
]  # fmt: skip
