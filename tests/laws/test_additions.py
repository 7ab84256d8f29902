"""What can be added in one place: a test registers one at run time, and all that reads its table answers for it.

A quantity in a file of its own is tried in ``tests/declared``, a rewrite in ``tests/program``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest
import sympy as sp
from api import (
    EMITTERS,
    EXPORTERS,
    HOST,
    STRATEGIES,
    Convention,
    Exporter,
    Instruction,
    Program,
    Rewrite,
    Rule,
    Schedule,
    Send,
    _program,
    accounting,
    main,
    ops,
    parse_strategy,
    saved,
    torch_module,
)
from api import accounting_CONVENTIONS as CONVENTIONS
from api import orders_Item as Task
from api import orders_passes as passes
from api import program_program as program
from api import program_schedules as schedules
from click.testing import CliRunner

import symcomm as sc

T, D, F, N = 48, 4, 10, 4
SIZES = {"T": T, "D": D, "F": F}
ONLY_COMPUTING = {"peak": "1 FLOP/s", "memory": "1000000 PB/s", "network": "1000000 PB/s", "latency": "0 s"}
SCHEDULED = {"strategy": "pipeline(2, microbatches=3)", "schedule": "in instruction"}


def rows(function: str) -> str:
    return ("Computation\tInput\tOutput\n"
            "a = x W\tx [T, D], W [D, F]\ta [T, F]\n"
            f"u = {function}(a)\ta [T, F]\tu [T, F]\n"
            "y = u U\tU [F, D]\ty [T, D]\n")  # fmt: skip


def layers(function: str = "relu", repeat: str = "N") -> sc.Model:
    return sc.load(rows(function), repeat=repeat, dtype="fp32", values={**SIZES, **({"N": N} if repeat else {})})


def run(*words: str | Path) -> str:
    result = CliRunner().invoke(main, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


# -- a schedule -----------------------------------------------------------------------------------------------


def one_after_the_other(rank: int, p: int, m: int, v: int) -> list[Task]:
    return [item for i in range(m) for item in passes("F", [i]) + passes("D", [i])]


@pytest.fixture
def in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    known = dict(schedules._registry())
    monkeypatch.setattr(schedules, "_registry", lambda: known)
    schedules.register(Schedule("in instruction", "One microbatch at a time.", one_after_the_other, "this test"))


@pytest.mark.usefixtures("in_turn")
def test_a_schedule_is_one_record() -> None:
    """One microbatch is on its way at a time: stages wait for one another, and each keeps what one microbatch needs."""
    model = layers()
    alone = model.step_time(**ONLY_COMPUTING).at().value
    assert model.step_time(**SCHEDULED, **ONLY_COMPUTING).at().value == alone
    kept = N // 2 * 4 * T // 3 * (D + F)  # x and u of half of the layers and a third of the rows
    assert model.activation_memory(**SCHEDULED, stage=0).at().value == kept
    usual = {**SCHEDULED, "schedule": "1f1b"}
    saved = model.peak_memory(**usual, stage=0).at().value - model.peak_memory(**SCHEDULED, stage=0).at().value
    assert saved == kept  # of the second microbatch that 1F1B has on the first of two stages


@pytest.mark.usefixtures("in_turn")
def test_a_schedule_is_known_at_every_door(tmp_path: Path) -> None:
    table, document = tmp_path / "table.tsv", tmp_path / "problem.md"
    table.write_text(rows("relu"))
    options = ("--strategy", SCHEDULED["strategy"], "--schedule", "in instruction", "--stage", "0", "--dtype", "fp32")
    at = f"T={T},D={D},F={F},N={N}"
    shown = run("derive", "activation_memory", "--model", table, "--repeat", "N", *options, "--at", at)
    assert str(N // 2 * 4 * T // 3 * (D + F)) in re.sub(r"\s", "", shown)
    document.write_text("""---
title: A schedule
---

```symcomm
- figure: pipeline_schedule
  schedule: in instruction
  stages: 2
  microbatches: 3
```
""")
    run("solve", document, "--to", "html", "-o", tmp_path)
    assert "<svg" in (tmp_path / "problem.html").read_text()


# -- an op ----------------------------------------------------------------------------------------------------


@pytest.fixture
def mish(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = ops.MapKind("mish", ("mish",), lambda: ops.u * sp.tanh(sp.log(1 + sp.exp(ops.u))), source="arXiv 1908.08681")
    monkeypatch.setitem(ops.MAP, "mish", kind)
    monkeypatch.setitem(ops.SPELLED, "mish", kind)
    monkeypatch.setitem(EMITTERS, "mish", lambda spelled: f"F.mish({spelled.operands[0].text})")


@pytest.mark.usefixtures("mish")
def test_an_op_is_one_record() -> None:
    """Mish is an exponential, a sum, a logarithm, a tangent and a product, relu a comparison; all else is alike."""
    ours, relu = layers("mish"), layers()
    every = {"accounting": "all_ops"}
    assert ours.flops(**every).at().value - relu.flops(**every).at().value == N * (5 - 1) * T * F
    assert ours.flops("training").at().value == relu.flops("training").at().value
    # Its gradient reads its operand, that of relu the result, which the product keeps anyway.
    assert ours.activation_memory().at().value - relu.activation_memory().at().value == N * 4 * T * F
    for strategy in ("tensor(2)", "data(2)", "fsdp(2)"):
        assert ours.communication(strategy).at().value == relu.communication(strategy).at().value
        ours.communication(strategy).check(deep=True)
    assert ours.step_time(**ONLY_COMPUTING).at().value == relu.step_time(**ONLY_COMPUTING).at().value
    assert "tanh" in layers("mish", "").derive("gradients").text()
    assert "F.mish(a)" in torch_module(layers("mish", "").graph).source


# -- an export ------------------------------------------------------------------------------------------------

QUIZ = """---
title: Quiz
draw: {n: {from: 2, to: 40}}
---

# Peak rate (5 points)

It has {{ n }} processors.

```symcomm
ask: peak_rate
id: peak
given: {f: 1.41 GHz, n_SM: {{ n }} SM, n_FMA: 512 FMA/clock/SM}
```
"""


def test_an_export_is_one_record(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mine = Exporter("names", "names of items", lambda title, item: item.name,
                    lambda title, pieces: {"names.txt": "\n".join(pieces).encode()})  # fmt: skip
    monkeypatch.setitem(EXPORTERS, "names", mine)
    (tmp_path / "quiz.md").write_text(QUIZ)
    told = run("exam", tmp_path / "quiz.md", "--variants", "2", "--to", "names", "-o", tmp_path / "out")
    assert "names.txt: 1 question, 2 variants of each" in told
    assert (tmp_path / "out" / "names.txt").read_text() == "peak_v0001\npeak_v0002"
    assert "names" in run("exam", "--help")


# -- a convention ---------------------------------------------------------------------------------------------


def logged(program: Program) -> Program:
    """Under the convention, what a layer keeps is copied to the host, where somebody looks at it."""
    if program.accounting.offloading != "kept_is_logged":
        return program
    instructions: list[Instruction] = []
    for instruction, after in zip(program.instructions, (*program.instructions[1:], None), strict=True):
        instructions.append(instruction)
        if instruction.phase == "forward" and (after is None or after.phase != "forward"):
            copies = (Send(item.tensor, item.elements, "forward", "somebody looks at it", "copy", HOST)
                      for item in saved(program, instruction.region.name))  # fmt: skip
            instructions += [Instruction(copy, instruction.region, "forward") for copy in copies]
    return Program(**{**program.__dict__, "instructions": tuple(instructions)})


@pytest.fixture
def kept_is_logged(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    row = Convention("offloading", "kept_is_logged", "What is kept for backward is copied to the host and looked at.")
    monkeypatch.setattr(accounting, "CONVENTIONS", (*CONVENTIONS, row))
    monkeypatch.setitem(accounting._CHOICES["offloading"], row.name, row)
    known = program.rewrites()
    monkeypatch.setattr(program, "rewrites", lambda: (*known, Rewrite("logging", 9, logged, "offloading")))
    _program.cache_clear()
    yield
    _program.cache_clear()


@pytest.mark.usefixtures("kept_is_logged")
def test_a_convention_is_one_record_and_the_rewrite_that_reads_it() -> None:
    """Each layer keeps x and u, 4 bytes a number; a link of 1 GB/s carries them to the host."""
    rates = {**ONLY_COMPUTING, "links": {"host": "1 GB/s"}}
    chosen = ["kept_is_logged", "serial"]
    made = layers().step_time(**rates, accounting=chosen)
    usual = layers().step_time(**rates, accounting="serial")
    assert made.at().value - usual.at().value == Fraction(N * 4 * T * (D + F), 10**9)
    assert ("offloading", "kept_is_logged") in [(row.field, row.name) for row in made.conventions]
    with pytest.raises(sc.SymcommError, match="hint: did you mean 'kept_is_logged'"):
        layers().step_time(**rates, accounting="kept_is_loged")


# -- a strategy that says where a rule holds ------------------------------------------------------------------


def turned(size: int | str, mesh: str = "turned") -> sc.Strategy:
    """Attention is cut along the batch, and everything else along the sequence."""
    on = frozenset({"input", "activation"})
    rules = ((3, Rule("batch", mesh, on, where="across")), (3, Rule("sequence", mesh, on)))
    mesh_of = parse_strategy(f"data({size})").mesh
    return sc.Strategy("Turned", rules, ((mesh, mesh_of[0][1]),), "Each sequence is attended to on one rank.")


def test_a_strategy_with_where_is_one_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """An all-to-all for Q, K, V and the output, forward and backward: half of what each of two ranks has goes out."""
    monkeypatch.setitem(STRATEGIES, "turned", turned)
    config = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 3,
              "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 128}  # fmt: skip
    model = sc.load(config, architecture="LlamaModel").at(B=2, L=16)
    sent = {kind: model.communication("turned(2)", collective=kind, accounting="sent_per_rank").at().value
            for kind in ("all-to-all", "all-gather", "reduce-scatter")}  # fmt: skip
    numbers = 2 * 8 * (64 + 32 + 32 + 64)  # B L/2 (Q, K, V, output)
    assert sent == {"all-to-all": 3 * 2 * 2 * numbers // 2, "all-gather": 0, "reduce-scatter": 0}
    model.communication("turned(2)").check(deep=True)
    assert model.activation_memory("turned(2)").at().value < model.activation_memory().at().value
    assert model.peak_memory("turned(2)").at().value < model.peak_memory().at().value
    rates = {**ONLY_COMPUTING, "network": "1 GB/s", "peak": "1000000 PFLOP/s"}
    gradients = model.communication("turned(2)", collective="all-reduce", accounting="sent_per_rank").at().value
    step = model.step_time("turned(2)", accounting="serial", **rates).at().value
    assert float(step) == pytest.approx(float(sent["all-to-all"] + gradients) / 1e9, rel=1e-4)
    found = sc.search(model, devices=2, strategies="turned(k)", capacity="1 GB", capacity_is="usable", jobs=1,
                      recomputation="none", microbatches="1", accounting="serial", **rates)  # fmt: skip
    assert found.top[0].time.value == step
