"""Quantities of a trace of formulas."""
