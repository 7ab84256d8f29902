"""Exercises by hand: traces of derivatives, sums and number formats."""
