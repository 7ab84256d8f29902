"""Every convention that changes a number is shown with it: all choices, over quantities and strategies."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from api import QUANTITIES, Accounting, Derivation, SymcommError, no_model, num
from api import accounting_CONVENTIONS as CONVENTIONS

from symcomm import load

ROWS = r"""Computation	Input	Output
n = layernorm(x)	x [B, L, D]	n [B, L, D]
Q = n W^Q	n [B, L, D], W^Q [D, D]	Q [B, L, D]
K = n W^K	n [B, L, D], W^K [D, D]	K [B, L, D]
[Q_1, \dots, Q_{n_H}] = Partition_{-1}(Q)	Q [B, L, D]	Q_i [B, L, H], i = 1, \dots, n_H
[K_1, \dots, K_{n_H}] = Partition_{-1}(K)	K [B, L, D]	K_i [B, L, H], i = 1, \dots, n_H
P_i = causalsoftmax(\frac{Q_i K_i^T}{\sqrt{H}}), i = 1, \dots, n_H	Q_i [B, L, H], K_i [B, L, H]	P_i [B, L, L]
Z_i = P_i K_i, i = 1, \dots, n_H	P_i [B, L, L], K_i [B, L, H]	Z_i [B, L, H]
Z = Merge_{-1}([Z_1, \dots, Z_{n_H}])	Z_i [B, L, H], i = 1, \dots, n_H	Z [B, L, D]
o = Z W^O	Z [B, L, D], W^O [D, D]	o [B, L, D]
z = x + o	x [B, L, D], o [B, L, D]	z [B, L, D]
"""
SIZES = {"N_layer": 4, "B": 16, "L": 32, "D": 64, "n_H": 4}
MODEL = load(ROWS, repeat="N_layer", values=SIZES)
RATES = {"peak": "312 TFLOP/s", "memory": "2 TB/s", "network": "3 GB/s", "latency": "1 us"}
ROOFS = {"peak": "312 TFLOP/s", "memory": "2 TB/s"}
NETWORK = {"peak": "312 TFLOP/s", "network": "3 GB/s"}
CALL = {"bandwidth": "25 GB/s", "latency": "1 us", "reduction": "100 GB/s"}
MESHES = ("data(2)", "fsdp(2)", "tensor(2) + sequence", "context(2)", "tensor(2) + pipeline(2, microbatches=4)")

QUICK: list[tuple[str, dict[str, Any]]] = [
    ("parameters", {}),
    ("tensor_size", {"tensor": "Q"}),
    ("stages", {"strategy": "pipeline(2)"}),
    ("peak_rate", {"clock": "1.4 GHz", "units": 108, "fma": 512}),
    ("collective_bandwidth", {"payload": "8 MB", "ranks": 8, "time": "1 ms"}),
    ("collective_time", {"payload": "8000001 B", "ranks": 6, **CALL}),
    ("traffic", {"op": "n"}),
]
SLOW: list[tuple[str, dict[str, Any]]] = [
    *(("flops", {"scope": scope}) for scope in ("forward", "backward", "training")),
    ("traffic", {}), ("intensity", {}), ("recomputation", {}), ("roofline", ROOFS),
    *(("communication", {"strategy": mesh}) for mesh in (*MESHES, "zero-1(2)")),
    *(("state_memory", {"strategy": mesh}) for mesh in ("fsdp(2)", "zero-1(2)")),
    *(("activation_memory", {"strategy": mesh}) for mesh in (None, *MESHES)),
    *(("peak_memory", {"strategy": mesh}) for mesh in (None, "fsdp(2)", "tensor(2) + sequence")),
    *(("time", {**RATES, "strategy": mesh}) for mesh in (None, *MESHES[:4])),
    *(("time", {**RATES, "strategy": "tensor(2)", "term": term}) for term in ("compute", "memory", "network")),
    *(("step_time", {**RATES, "strategy": mesh}) for mesh in (None, *MESHES)),
    *(("step_time", {**RATES, "strategy": "data(2)", "of": of}) for of in ("exposed", "hidden", "network")),
    *(("throughput", {**RATES, "strategy": "data(2)", "of": of}) for of in ("mfu", "hfu", "flops_per_token")),
    *(("throughput", {**RATES, "of": of, "achieved": "1 TFLOP/s", "devices_used": 8}) for of in ("mfu", "hfu")),
    *(("scaling", {**RATES, "strategy": "data(k)", "kind": kind}) for kind in ("strong", "weak")),
    ("compute_bound", {**NETWORK, "strategy": "tensor(2)", "over": "D"}),
    ("capacity", {"capacity": "80 GB", "strategy": "fsdp(k)", "solve_for": "k"}),
    ("collective_time", {"payload": "8000001 B", "ranks": 8, "collective": "all-to-all", **CALL}),
    ("collective_time", {"payload": "8000001 B", "ranks": 16, "algorithm": "torus_2d", "x_ranks": 4, **CALL}),
    ("collective_table", {"payload": "8000001 B", "ranks": 6, **CALL}),
    ("collective_crossover", {"ranks": 6, **CALL}),
]  # fmt: skip
BASES: list[dict[str, str]] = [{}, {"time": "serial"}, {"communication": "all_links", "saved": "pytorch"},
                               {"operations": "all_ops", "recomputation": "full_recomputation"}]  # fmt: skip


def number(made: Derivation) -> object:
    try:
        return made.at(**({"k": 4} if "k" in made.needs else {})).value
    except SymcommError as error:
        return str(error)  # no number, which is as good as another one


def choices(quantity: str, options: dict[str, Any], base: dict[str, str]) -> None:
    """Derivations that differ by one choice: those whose numbers differ show it, and what changes nothing is told.

    So any two of them whose numbers differ are shown under different conventions: one of the two differs from the
    base, and shows its own choice, which the other one has not made.
    """
    model = MODEL if QUANTITIES[quantity].needs_model else no_model()
    reference = Accounting.of(**base)
    try:
        first = model.derive(quantity, accounting=reference, **options)
    except SymcommError:
        return  # refused
    worth = number(first)
    found: list[tuple[Fraction | object, tuple[object, ...]]] = [(worth, first.conventions)]
    for row in CONVENTIONS:
        if getattr(reference, row.field) == row.name:
            continue
        try:
            made = model.derive(quantity, accounting={**base, row.field: row.name}, **options)
        except SymcommError:
            continue  # refused
        shown = {(c.field.partition(" of ")[0], c.name) for c in made.conventions}  # also "algorithm of all-reduce"
        now = number(made)
        said = f"`{row.field}: {row.name}`"
        if now != worth:
            before = {c.field.partition(" of ")[0] for c in first.conventions}
            plain = {**base, row.field: getattr(Accounting(), row.field)}  # a choice may do no more than the usual one
            usual = row.field in before and now == number(model.derive(quantity, accounting=plain, **options))
            changes = f"{said} changes {quantity} {options} from {worth} to {now}"
            assert (row.field, row.name) in shown or usual, changes
        told = any(said in note and "Nothing here depends on" in note for note in made.notes)
        default = getattr(Accounting, row.field) == row.name
        assert default or told == ((row.field, row.name) not in shown), f"{said} in {quantity} {options}"
        found.append((now, made.conventions))
    for n, (a, shown_a) in enumerate(found):
        for b, shown_b in found[:n]:
            assert a == b or shown_a != shown_b


@pytest.mark.few(4)
@pytest.mark.parametrize(("quantity", "options"), QUICK, ids=lambda value: value if isinstance(value, str) else "")
def test_what_changes_a_number_is_shown_with_it(quantity: str, options: dict[str, Any]) -> None:
    choices(quantity, options, {})


@pytest.mark.long
@pytest.mark.parametrize("base", BASES, ids=str)
@pytest.mark.parametrize(("quantity", "options"), SLOW, ids=str)
def test_what_changes_a_number_is_shown_with_it_under_every_strategy(
    quantity: str, options: dict[str, Any], base: dict[str, str]
) -> None:
    if quantity == "capacity":
        base = {"capacity": "nominal_GB", **base}
    choices(quantity, options, base)


def test_a_convention_that_was_asked_for_and_not_used_is_told() -> None:
    made = MODEL.parameters(accounting=["all_links"][0])
    assert made.notes == ("Nothing here depends on `communication: all_links`.",)
    both = MODEL.parameters(accounting={"communication": "all_links", "time": "serial"})
    assert both.notes == ("Nothing here depends on `time: serial` and `communication: all_links`.",)
    assert MODEL.parameters(accounting="payload").notes == ()  # the default
    for degree in (2, 4, 8):  # a kept derivation tells it as well
        kept = load(ROWS, repeat="N_layer", values=SIZES).communication(f"data({degree})", accounting="busbw")
        assert kept.notes == ("Nothing here depends on `bandwidth: busbw`.",)


def test_communication_shows_the_conventions_that_it_depends_on_and_counts_sends_once() -> None:
    def shown(strategy: str, **options: Any) -> set[str]:
        return {c.field for c in MODEL.communication(strategy, **options).conventions}

    assert not shown("data(4)") & {"algorithm", "pipeline", "gathered_weights"}
    assert "algorithm" in shown("data(4)", accounting="all_links")
    assert "pipeline" in shown("pipeline(4, microbatches=8)")
    assert "gathered_weights" in shown("fsdp(4)")
    table = MODEL.communication("pipeline(4, microbatches=8) + data(2)").exhibits[1]
    times = {(row[1], row[-1] == num(1)) for row in table.rows}
    assert {("send", True), ("all-reduce", False)} <= times
