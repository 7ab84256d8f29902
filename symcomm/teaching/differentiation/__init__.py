"""Differentiation of formulas and of tensor ops: evaluation traces, forward and reverse mode, gradients as formulas."""
