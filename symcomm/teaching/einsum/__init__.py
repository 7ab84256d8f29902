"""Einstein summation: the gradients of an einsum, and the orders of several operands."""
