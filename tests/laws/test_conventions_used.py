"""A convention changes a number if and only if it is named: whole models, every quantity, every strategy.

``UNNAMED`` and ``UNUSED`` list what does not hold yet, by quantity and field; without a strategy each entry has to
fail, so that the lists only get shorter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from law_models import model
from laws import RATES, worth

import symcomm as sc
from symcomm.core.accounting import CONVENTIONS

MODELS = ("GPT2LMHeadModel with loss", "MixtralForCausalLM with loss")
ROOFS = {key: RATES[key] for key in ("peak", "memory")}
OF_MESHES: Mapping[str, tuple[str, ...]] = {
    "communication": ("data(2)", "fsdp(2)", "tensor(2) + sequence", "context(2)", "data(2) + expert",
                      "pipeline(2, microbatches=2)"),
    "activation_memory": ("data(2)", "tensor(2) + sequence", "context(2)", "pipeline(2, microbatches=2)"),
    "state_memory": ("fsdp(2)", "tensor(2)", "pipeline(2, microbatches=2)"),
    "peak_memory": ("fsdp(2)", "tensor(2) + sequence", "context(2)", "pipeline(2, microbatches=2)"),
    "step_time": ("data(2)", "fsdp(2)", "tensor(2) + sequence", "context(2)", "data(2) + expert",
                  "pipeline(2, microbatches=4)"),
    "throughput": ("data(2)", "pipeline(2, microbatches=4)"),
    "recomputation": ("tensor(2)",),
}  # fmt: skip
ALONE: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("parameters", {}), ("flops", {"scope": "training"}), ("traffic", {}), ("activation_memory", {}),
    ("state_memory", {}), ("peak_memory", {}), ("step_time", ROOFS), ("recomputation", {}),
    ("throughput", {**ROOFS, "of": "mfu"}), ("throughput", {**ROOFS, "of": "hfu"}),
)  # fmt: skip
CASES: list[tuple[str, dict[str, Any]]] = [(quantity, dict(options)) for quantity, options in ALONE]
CASES += [
    (quantity, {"strategy": mesh, **(RATES if quantity in ("step_time", "throughput") else {})})
    for quantity, meshes in OF_MESHES.items() for mesh in meshes
]  # fmt: skip
# What changes the number without being named, and what is named where no choice of it changes the number.
UNNAMED: dict[tuple[str, str], str] = {}
_IDS = "a language model reads ids, which have no gradient; the field is named wherever there is a backward pass"
UNUSED: dict[tuple[str, str], str] = {
    ("flops", "input_gradient"): _IDS, ("activation_memory", "input_gradient"): _IDS,
    ("peak_memory", "input_gradient"): _IDS, ("step_time", "input_gradient"): _IDS,
    ("throughput", "input_gradient"): _IDS, ("communication", "input_gradient"): _IDS,
    ("communication", "communication"): "a boundary between stages has one sender and one receiver",
    ("state_memory", "shards"): "parts of a tensor-parallel weight divide; the field is named wherever weights are cut",
}  # fmt: skip


def said(case: tuple[str, Mapping[str, Any]]) -> str:
    """A quantity with its strategy, or what it is of."""
    quantity, options = case
    return " ".join(filter(None, (quantity, options.get("strategy", ""), options.get("of", ""))))


def matrix(name: str, quantity: str, options: Mapping[str, Any]) -> tuple[set[str], set[str]]:
    """The fields that change the number without being named, and those named that no choice changes the formula of."""
    usual = model(name).derive(quantity, **options)
    number, formula = usual.at().value, usual.expr
    named = {convention.field for convention in usual.conventions}
    unnamed, used = set(), set()
    for row in CONVENTIONS:
        if row.name == getattr(sc.Accounting(), row.field):
            continue
        try:
            made = model(name).derive(quantity, accounting={row.field: row.name}, **options)
            other = made.at().value
        except sc.SymcommError:
            used.add(row.field)  # another answer is no longer possible: the choice matters
            continue
        if made.expr != formula:
            used.add(row.field)
        if other != number and row.field not in {convention.field for convention in made.conventions} | named:
            unnamed.add(row.field)
    return unnamed, named - used


@pytest.mark.long
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("case", CASES, ids=said)
def test_a_convention_is_named_where_it_changes_the_number(case: tuple[str, dict[str, Any]], name: str) -> None:
    quantity, options = case
    if worth(model(name), quantity, **options) is None:
        pytest.skip("refused")
    unnamed, unused = matrix(name, quantity, options)
    new = {field for field in unnamed if (quantity, field) not in UNNAMED}
    idle = {field for field in unused if (quantity, field) not in UNUSED}
    if "strategy" not in options:  # there what is on the list is still true
        assert {field for one, field in UNUSED if one == quantity and options.get("of") != "hfu"} <= unused
        assert {field for one, field in UNNAMED if one == quantity} <= unnamed
    assert not new, f"{said(case)} of {name} changes with {new}, and does not name it"
    assert not idle, f"{said(case)} of {name} names {idle}, and no choice changes its number"
