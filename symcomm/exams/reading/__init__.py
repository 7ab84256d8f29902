"""Reads what students type: characters, numbers, units, names, formulas; nothing is evaluated as code."""
