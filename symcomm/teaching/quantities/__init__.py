"""The quantities of teaching."""
