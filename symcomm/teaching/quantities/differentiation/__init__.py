"""Quantities of a trace of formulas, and of the gradients of tensor ops."""
