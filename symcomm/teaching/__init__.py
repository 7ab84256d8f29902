"""Exercises by hand: traces of derivatives, einsum, sums and number formats."""
