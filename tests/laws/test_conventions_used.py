"""A convention changes a number if and only if it is named: whole models, every quantity, every strategy.

``UNUSED`` lists where a convention is named that changes nothing there, and has to hold exactly, so that it only gets
shorter.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest
from api import accounting_CONVENTIONS as CONVENTIONS
from law_models import ROOT, model
from laws import RATES, worth

import symcomm as sc

MODELS = ("GPT2LMHeadModel with loss", "MixtralForCausalLM with loss")
ROOFS = {key: RATES[key] for key in ("peak", "memory")}
OF_MESHES: Mapping[str, tuple[str, ...]] = {
    "communication": ("data(2)", "fsdp(2)", "tensor(2) + sequence", "context(2)", "ring(2)", "ulysses(2)",
                      "data(2) + expert", "pipeline(2, microbatches=2)"),
    "activation_memory": ("data(2)", "tensor(2) + sequence", "context(2)", "ring(2)", "pipeline(2, microbatches=2)"),
    "state_memory": ("fsdp(2)", "tensor(2)", "pipeline(2, microbatches=2)"),
    "peak_memory": ("fsdp(2)", "tensor(2) + sequence", "context(2)", "ring(2)", "pipeline(2, microbatches=2)"),
    "step_time": ("data(2)", "fsdp(2)", "tensor(2) + sequence", "context(2)", "ring(2)", "ulysses(2)",
                  "data(2) + expert", "pipeline(2, microbatches=4)"),
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
# What the host has is asked for in a setting of its own: it is on the device unless a convention says so.
AWAY = "states_and_activations_on_host"
CASES += [("communication", {"strategy": mesh, "level": "host", "accounting": {"offloading": AWAY}})
          for mesh in ("fsdp(2)", "ring(2)")]  # fmt: skip
CASES += [
    ("state_memory", {"on": "host", "accounting": {"offloading": AWAY}}),
    ("step_time", {**RATES, "links": {"host": "1 GB/s"}, "accounting": {"offloading": AWAY, "time": "serial"}}),
]
# A field that is named where no choice of it changes the number: its name, where that is (model: case), and why.
UNUSED: dict[tuple[str, str], str] = {
    ("shards", r".*: state_memory tensor\(2\)"): "parts of a tensor-parallel weight divide",
}


def said(case: tuple[str, Mapping[str, Any]]) -> str:
    """A quantity with its strategy, or what it is of."""
    quantity, options = case
    where = options.get("accounting", {}).get("offloading", "")
    return " ".join(filter(None, (quantity, options.get("strategy", ""), options.get("of", ""), where)))


def _fields(made: sc.Derivation) -> set[str]:
    """What an answer names; algorithms that differ by the kind of collective are one field."""
    return {convention.field.partition(" of ")[0] for convention in made.conventions}


def matrix(name: str, quantity: str, options: Mapping[str, Any]) -> tuple[set[str], set[str]]:
    """The fields that change the number and are not named; and those named that change neither it nor the formula."""
    options, chosen = {k: v for k, v in options.items() if k != "accounting"}, dict(options.get("accounting", {}))
    usual = model(name).derive(quantity, accounting=chosen, **options)
    number, formula = usual.at().value, usual.expr
    named = _fields(usual)
    unnamed, used = set(), set()
    for row in CONVENTIONS:
        if row.name == getattr(usual.accounting, row.field):
            continue
        try:
            made = model(name).derive(quantity, accounting={**chosen, row.field: row.name}, **options)
            other = made.at().value
        except sc.SymcommError:
            used.add(row.field)  # another answer is no longer possible: the choice matters
            continue
        if made.expr != formula:
            used.add(row.field)
        if other != number and row.field not in _fields(made) | named:
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
    listed = {field for field, where in UNUSED if re.fullmatch(where, f"{name}: {said(case)}")}
    assert not unnamed, f"{said(case)} of {name} changes with {unnamed}, and does not name it"
    assert not unused - listed, f"{said(case)} of {name} names {unused - listed}, and no choice changes its number"
    assert not listed - unused, f"{said(case)} of {name}: take {listed - unused} off the list"


@pytest.mark.parametrize("repeat", ["N_layer", ""])
def test_the_gradient_of_the_input_decides_on_one_layer_alone_and_not_on_any_of_many(repeat: str) -> None:
    layer = sc.load(ROOT / "tests" / "data" / "homework2_table.tsv", repeat=repeat).at(B=16, L=8, D=16, n_h=4)
    made = [layer.derive("time", strategy="tensor(2)", accounting={"input_gradient": said}, **RATES)
            for said in ("needed", "not_needed")]  # fmt: skip
    assert (made[0].at() == made[1].at()) == bool(repeat)
    assert all(("input_gradient" in one.touched) == (not repeat) for one in made)


@pytest.mark.parametrize(("field", "where"), UNUSED)
def test_what_is_listed_as_unused_is_somewhere(field: str, where: str) -> None:
    assert field in {row.field for row in CONVENTIONS}
    assert any(re.fullmatch(where, f"{name}: {said(case)}") for name in MODELS for case in CASES)
