"""Einstein summation and the order of its operands."""
