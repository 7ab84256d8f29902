"""Derivations: checked steps with reasons whose last expression is the answer, and how they are written down."""

from symcomm.core.derivation.derivation import Continued, Derivation, symbols, unread, whole_bytes
from symcomm.core.derivation.numbers import Numbers, worked_out
from symcomm.core.derivation.relations import Relations, exact, put, rational
from symcomm.core.derivation.steps import RELATIONS, Comparison, Condition, Exhibit, Reason, Relation, Step, Witness

__all__ = [
    "RELATIONS", "Comparison", "Condition", "Continued", "Derivation", "Exhibit", "Numbers", "Reason", "Relation",
    "Relations", "Step", "Witness", "exact", "put", "rational", "symbols", "unread", "whole_bytes", "worked_out",
]  # fmt: skip
