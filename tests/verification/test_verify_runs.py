"""Real processes: what PyTorch computes, keeps and sends is what is derived; a part of the documented grid."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from api import (
    TWO,
    Launcher,
    Model,
    Verification,
    VerificationError,
    derived_peak,
    expected,
    grid,
    load_known,
    main,
    practice,
    prepare,
    torch_module,
    verify,
    write_practice,
)
from click.testing import CliRunner
from torch_source import loaded

from examples import HOMEWORK, LAYERS, LLAMA, SHARED, configured, falcon, layer, model, shared_keys, whole
from symcomm import load

pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def workers() -> list[bytes]:
    """The processes of runs that were started from here, whoever is their parent by now."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(path.read_bytes())
    return [one for one in found if b"symcomm.verify.worker" in one and tempfile.gettempdir().encode() in one]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for temporary files of this test alone, by which its processes are known."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


Run = Callable[..., Verification]


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    """Runs a model under a strategy and gives what was found, which must hold; PyTorch is imported once."""
    with Launcher() as launch:

        def made(
            of: Model, strategy: str = "", schedule: str = "1f1b", softmax: str = "as_given", **sizes: int
        ) -> Verification:
            values = {name: Fraction(size) for name, size in sizes.items()}
            prepared = prepare(of, strategy or None, values, schedule=schedule or "1f1b", softmax=softmax)
            found = prepared.compare(launch(prepared.spec, 300))
            told = [(row.what, row.expected, row.measured) for row in found.rows if row.difference]
            assert found.holds, (of.name, strategy, schedule, told, found.gradient_error)
            return found

        yield made


@pytest.mark.parametrize(("strategy", "saved"), [("", 32), ("fully-sharded(2)", 16), ("cut(D, 2)", 16)])
def test_a_table_without_weights_is_run_and_has_no_gradients_to_compare(run: Run, strategy: str, saved: int):
    found = run(load("Computation\tInput\tOutput\ny = relu(x)\tx [B, D]\ty [B, D]\n"), strategy, B=2, D=4)
    assert next(row.measured for row in found.rows if row.what == "saved for backward") == saved  # y, in fp32
    assert found.gradient_error is None


def peaks(found: Verification) -> list[int]:
    return [int(row.measured) for row in found.rows if row.what == "peak of the backward pass"]


def test_one_process_computes_and_keeps_what_is_derived_for_every_example(run: Run):
    for path in (HOMEWORK, *LAYERS):
        assert peaks(run(model(path)))


@pytest.mark.parametrize("strategy", ["data(2)", "fully-sharded(2)"])
def test_batch_norm_outside_dtensor_has_its_own_statistics_and_sends_nothing_for_them(strategy: str):
    """The gradients are those of another function than in one process."""
    of = load("Computation\tInput\tOutput\nh = Conv2d(x, W)\tx [N, C, X, Y], W [O, C, 3, 3]\th [N, O, X, Y]\n"
              "y = BatchNorm(h, g, b)\tg [O], b [O]\ty [N, O, X, Y]\n")  # fmt: skip
    prepared = prepare(of, strategy, {}, schedule="1f1b", softmax="as_given")
    with Launcher() as launch:
        found = prepared.compare(launch(prepared.spec, 300))
    assert [row.what for row in found.rows if row.difference] == []
    calls = {row.what: row.measured for row in found.rows if "over data" in row.what}
    weights = 4 * (6 * 4 * 3 * 3 + 6 + 6)  # fp32, at the small sizes that a run takes
    assert {*calls.values()} == {weights}
    assert not any("all-reduce, forward" in what for what in calls)


@pytest.mark.parametrize("name", ["mixtral", "gpt_oss", "deepseek", "t5", "vit"])
def test_experts_an_encoder_with_a_decoder_and_a_class_token_run_as_derived(run: Run, name: str):
    assert run(configured(name)).compares_saved


def test_heads_that_share_keys_and_values_are_as_derived(run: Run):
    assert peaks(run(shared_keys()))
    run(shared_keys(), "tensor(2)")
    run(shared_keys(), "data(2)")


@pytest.mark.parametrize("strategy", ["", "data(2)", "tensor(2)", "fully-sharded(2)", "pipeline(2, microbatches=4)"])
@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_attention_in_one_kernel_computes_and_keeps_what_is_derived(run: Run, name: str, strategy: str):
    found = run(whole(name), strategy)
    assert found.rows[0].what.startswith("hardware FLOPs")


@pytest.mark.parametrize("strategy", ["", "tensor(2)"])
def test_tables_that_are_asked_for_one_kernel_keep_and_hold_what_is_derived(run: Run, strategy: str):
    for of in (model(HOMEWORK), layer("cross-attention"), layer("encoder"), layer("parallel-block")):
        assert peaks(run(of, strategy, softmax="fused")), of.name
    shared = run(layer("grouped-query-attention"), strategy, softmax="fused")
    assert not peaks(shared)
    assert any("heads share" in note for note in shared.notes)


@pytest.mark.parametrize("strategy", ["", "tensor(2)", "ulysses(2)"])
def test_heads_that_are_rotated_in_part_are_copied_behind_the_kernel(run: Run, strategy: str):
    assert peaks(run(whole("neox"), strategy)) or strategy


def test_heads_that_were_exchanged_are_kept_without_those_of_other_ranks(run: Run):
    """Without an all-to-all a rank's heads are a part of all that was gathered, which would be kept with them."""
    assert run(whole("neox"), "ulysses(2)", softmax="library").compares_saved


@pytest.mark.parametrize("strategy", ["tensor(2) + sequence", "ulysses(2)"])
def test_a_layer_with_its_norms_behind_sums_runs_as_derived(run: Run, strategy: str):
    run(whole("bert"), strategy)


def test_keys_and_values_are_gathered_before_their_heads_are_repeated(run: Run):
    """Two layers of 2 sequences, 8 positions, 2 heads of keys and values with 6 features; and the loss of a token."""
    found = run(whole("llama"), "sequence(2)")
    gathered = next(row.measured for row in found.rows if row.what == "all-gather, forward, over tensor")
    assert gathered == 2 * 2 * (2 * 8 * 2 * 6) * 4 + 2 * 8 * 4


@pytest.mark.parametrize("strategy", ["context(2) + tensor(2)", "context(2) + tensor(2, embedding=whole)"])
def test_dtensor_sums_the_gradient_of_a_table_whole(run: Run, strategy: str):
    """A table of 10 words in two parts, 16 features: derived is the sum of a half."""
    found = run(whole("llama", loss=False), strategy, V=10, D=16, n_H=4, n_kv=2)
    assert "whole_tables" in found.conventions
    calls = [call["bytes"] for call in found.calls if call["tensor"] == "W^E" and call["phase"] == "backward"]
    assert calls == [4 * 10 * 16]


def test_one_head_of_one_sequence_is_repeated_without_a_copy(run: Run):
    """So a run keeps less than is derived, which holds of several heads or sequences."""
    assert not run(whole("llama"), softmax="library", n_kv=1, B=1).compares_saved
    assert run(whole("llama"), softmax="library", n_kv=1, B=2).compares_saved


def test_layer_norms_beside_one_another_get_whole_gradients_and_each_sum_its_own_gather(run: Run):
    """The derivation adds what two norms give back before it is reduced; DTensor reduces what each of them gets."""
    assert "reduced_before_product" in run(whole("neox"), "tensor(2)").conventions
    assert "gathered_for_each" in run(whole("neox"), "tensor(2) + sequence").conventions


@pytest.mark.parametrize("strategy", ["", "tensor(2)"])
def test_a_constant_that_is_added_to_scores_is_no_activation(run: Run, strategy: str):
    assert peaks(run(falcon(), strategy)) or strategy


@pytest.mark.parametrize(("name", "strategy", "words"), [("gpt2", "tensor(4)", 50), ("llama", "tensor(2)", 33)])
def test_words_that_the_ranks_do_not_divide_are_as_derived(run: Run, name: str, strategy: str, words: int):
    found = {row.what: row.measured for row in run(whole(name), strategy, V=words).rows}
    assert found["ranks unlike the first"] == 1


def test_tokens_that_were_exchanged_between_experts_lie_as_dtensor_says(run: Run):
    run(configured("deepseek"), "expert + data(2)")


@pytest.mark.parametrize("strategy", ["tensor(2)", "fully-sharded(2)"])
def test_a_mixture_keeps_what_is_derived_of_its_products(run: Run, strategy: str):
    assert run(configured("mixtral"), strategy).compares_saved
    assert run(layer("mixture-of-experts"), strategy).compares_saved
    moved = run(layer("mixture-of-experts"), "expert + data(2)")
    assert any("DTensor keeps what it gathers for experts" in note for note in moved.notes)


@pytest.mark.parametrize("name", ["gpt_oss", "deepseek"])
def test_the_peak_of_experts_under_data_parallelism_has_their_buckets_and_nothing_of_other_ranks(run: Run, name: str):
    assert peaks(run(layer("mixture-of-experts"), "data(2)"))
    assert peaks(run(configured(name), "data(2)"))


@pytest.mark.parametrize("strategy", ["tensor(2)", "tensor(2) + sequence", "tensor(2, embedding=whole)"])
def test_each_layer_of_a_decoder_brings_the_result_of_the_encoder_to_its_products(run: Run, strategy: str):
    run(configured("t5"), strategy)


@pytest.mark.parametrize(("strategy", "added", "equal"), [
    ("context(2)", 26560, False), ("ulysses(2)", 23488, False), ("tensor(2) + sequence", 20160, True),
])  # fmt: skip
def test_a_layer_of_a_decoder_adds_to_the_peak_what_it_gathers_of_the_encoder_and_keeps(
    strategy: str, added: int, equal: bool
):
    """DTensor has tensors of its own at some peaks, of which a further layer adds none."""
    sizes = {"L_enc": 8, "B": 2, "D": 4, "H": 8, "n_H": 4, "L_dec": 12}
    found = []
    with Launcher() as launch:
        for layers in (2, 3):
            values = {name: Fraction(size) for name, size in {**sizes, "N_dec": layers}.items()}
            prepared = prepare(configured("t5"), strategy, values)
            measured = launch({**prepared.spec, "peak": True})[0]["peak"]
            found.append((derived_peak(prepared.case), measured))
    (derived, measured), more = found
    assert (more[0] - derived, more[1] - measured) == (added, added)
    assert (measured == derived) == equal


@pytest.mark.parametrize("strategy", ["data(2)", "fully-sharded(2)", "zero-2(2)"])
def test_what_looks_after_the_data_takes_gradients_of_whole_tables_of_heads(run: Run, strategy: str):
    """A rank has gradients of the biases of its heads; DTensor gathers them before they are summed over the data."""
    found = run(configured("t5"), f"{strategy} + ulysses(2)", n_H=4, n_bucket=6)
    kind = "all-reduce" if strategy == "data(2)" else "reduce-scatter"
    summed = next(row for row in found.rows if row.what == f"{kind}, backward, over data")
    assert "reduced_before_scattered" in summed.explained
    assert kind == "all-reduce" or summed.expected - summed.derived == 2 * 4 * 6 * 4 / 2  # two tables, by half of each


@pytest.mark.parametrize("name", ["mixtral", "gpt_oss"])
def test_experts_whose_tokens_are_cut_between_products_run_as_derived(run: Run, name: str):
    assert "reduced_before_product" in run(configured(name), "tensor(2) + sequence").conventions


def test_one_kernel_gives_what_attention_written_out_gives(tmp_path: Path):
    import torch

    values, gradients = [], []
    for how in ("fused", "library"):
        case = expected.make_case(whole("llama"), None, {}, "1f1b", 2, how)
        written = torch_module(case.graph)
        made = loaded(written.source, tmp_path, how)
        sizes = {written.symbols[s]: v for s, v in case.sizes.items() if s in written.symbols}
        torch.manual_seed(1)
        network, inputs = made.model(**sizes), made.example(**sizes)
        value = network(*inputs)
        value.backward()
        values.append(value)
        gradients.append([p.grad for p in network.parameters()])
    assert torch.allclose(*values, rtol=1e-5)
    assert all(torch.allclose(a, b, rtol=1e-4, atol=1e-6) for a, b in zip(*gradients, strict=True))


def test_a_degree_of_one_changes_nothing(run: Run):
    one, alone = run(layer("swiglu"), "data(1)"), run(layer("swiglu"))
    assert (one.rows, one.ranks) == (alone.rows, 1)
    assert run(layer("swiglu"), "data(1) + tensor(2)").rows == run(layer("swiglu"), "tensor(2)").rows


def test_a_window_and_a_rotation_of_a_part_are_masks_and_products_that_pytorch_counts_whole():
    rows = "Computation\tInput\tOutput\nR = rope_{h}(xW)\tx [B, L, D], W [D, D]\tR [B, L, D]\n"
    rows += "P = causalsoftmax_{w}(R R^T)\tR\tP [B, L, L]\ny = P x\tP, x\ty [B, L, D]\n"
    found = verify(load(rows), values={"w": Fraction(2), "h": Fraction(2), "L": Fraction(6), "D": Fraction(4)})
    assert found.holds, [row for row in found.rows if row.difference]


@pytest.mark.parametrize(
    ("name", "sizes"),
    [("swiglu", {"D": 32, "d_ff": 2}), ("swiglu", {"D": 8, "d_ff": 64}), ("language-model", {"V": 300}),
     ("language-model", {"V": 3, "D": 64, "L": 20}), ("gpt2", {"V": 500}), ("llama", {"V": 500}),
     ("llama", {"N_layer": 1, "F": 2})],
)  # fmt: skip
def test_the_storages_alive_at_the_peak_of_the_backward_pass_are_those_of_the_timeline(
    run: Run, name: str, sizes: dict[str, int]
):
    """Few words and narrow layers have their peak in a norm that is written out, many words in the loss."""
    of = whole(name) if name in ("gpt2", "llama") else layer(name)
    assert peaks(run(of, softmax="library", **sizes))


def test_the_peak_of_a_rank_is_that_of_its_part(run: Run):
    for path in (HOMEWORK, *LAYERS):
        if path.stem not in ("mixture-of-experts", "convolution", "language-model"):  # no heads; classes that are cut
            assert peaks(run(model(path), "tensor(2)")), path
    assert peaks(run(layer("swiglu"), "data(2)"))  # its buckets are alive, too
    assert not peaks(run(layer("swiglu"), "context(2)"))  # gradients of weights are summed into tensors of their own


def test_every_strategy_on_two_processes_is_as_derived_for_the_homework(run: Run):
    for strategy, schedule in TWO:
        if "expert" not in strategy:
            run(model(HOMEWORK), strategy, schedule)


@pytest.mark.parametrize(
    ("name", "strategies"),
    [
        ("mixture-of-experts", ["expert + data(2)", "tensor(2)", "tensor(2) + sequence", "fully-sharded(2)"]),
        ("encoder", ["tensor(2) + sequence", "context(2)", "data(2)"]),
        ("parallel-block", ["tensor(2) + sequence"]),
        ("grouped-query-attention", ["tensor(2)", "context(2)"]),
        ("language-model", ["context(2)", "tensor(2) + sequence"]),
    ],
)
def test_other_layers_are_as_derived(run: Run, name: str, strategies: list[str]):
    for strategy in strategies:
        run(layer(name), strategy)


@pytest.mark.parametrize("schedule", ["1f1b", "interleaved", "zb-h1", "zb-v"])
def test_stages_are_replicated_under_every_schedule(run: Run, schedule: str):
    run(model(HOMEWORK), "data(2) + pipeline(2, microbatches=4)", schedule)


@pytest.mark.parametrize("strategy", ["pipeline(2, microbatches=4)", "data(2) + pipeline(2, microbatches=4)"])
def test_constants_without_a_batch_are_the_same_for_all_microbatches(run: Run, strategy: str):
    run(falcon(), strategy)


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_a_kernel_between_exchanges_keeps_its_result_as_it_made_it_and_as_it_is_exchanged(run: Run, name: str):
    assert run(whole(name), "ulysses(2)").compares_saved


def test_four_processes_in_two_axes_are_as_derived(run: Run):
    run(model(HOMEWORK), "fully-sharded(2) + tensor(2)")


WHOLE = [
    ("data(2)", ""), ("zero-1(2)", ""), ("fully-sharded(2)", ""), ("tensor(2)", ""), ("tensor(2) + sequence", ""),
    ("context(2)", ""), ("pipeline(2, microbatches=4)", "1f1b"), ("pipeline(2, microbatches=4)", "zb-v"),
]  # fmt: skip


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_whole_models_with_their_losses_are_as_derived(run: Run, name: str):
    for strategy, schedule in WHOLE:
        run(whole(name), strategy, schedule)


@pytest.mark.parametrize(("strategy", "words"), [("tensor(2)", 128), ("tensor(2)", 64), ("context(2)", 64)])
def test_models_without_their_losses_and_with_cut_words_are_as_derived(run: Run, strategy: str, words: int):
    made = load_known({**LLAMA, "num_key_value_heads": 4}, loss=False)
    assert made is not None
    found = run(made, strategy, V=words)
    assert not peaks(found)  # DTensor makes the gradient of a cut table whole
    assert any("the gradient of a table whose rows are cut whole" in n for n in found.notes) == strategy.startswith("t")


def test_stages_of_whole_models_may_be_cut_again_on_four_processes(run: Run):
    run(whole("gpt2"), "data(2) + tensor(2)")
    run(whole("gpt2"), "data(2) + pipeline(2, microbatches=4)")
    run(whole("gpt2"), "pipeline(2, microbatches=4) + tensor(2)")
    found = run(whole("gpt2"), "pipeline(2, microbatches=4) + tensor(2) + sequence")
    assert "reduced_each_time" in found.conventions


@pytest.mark.parametrize("name", ["homework", "gpt2"])
@pytest.mark.parametrize(
    "strategy",
    ["pipeline(2, microbatches=4) + fully-sharded(2)", "pipeline(2, microbatches=4) + data(2) + tensor(2)",
     pytest.param("pipeline(2, microbatches=4) + fully-sharded(2) + tensor(2) + sequence", marks=pytest.mark.long),
     pytest.param("hybrid-sharded(2, 2) + tensor(2)", marks=pytest.mark.long),
     pytest.param("pipeline(2, microbatches=4) + hybrid-sharded(2, 2)", marks=pytest.mark.long)],
)  # fmt: skip
def test_strategies_of_three_kinds_are_as_derived_at_once(run: Run, name: str, strategy: str):
    run(whole(name) if name == "gpt2" else model(HOMEWORK), strategy)


@pytest.mark.parametrize(
    ("name", "strategy"),
    [
        ("cross-attention", "data(2) + context(2)"),
        pytest.param("cross-attention", "context(2) + tensor(2)", marks=pytest.mark.long),
        ("mixture-of-experts", "data(2) + tensor(2)"),
        pytest.param("mixture-of-experts", "data(2) + tensor(2) + sequence", marks=pytest.mark.long),
        pytest.param("mixture-of-experts", "pipeline(2, microbatches=4) + tensor(2)", marks=pytest.mark.long),
    ],
)
def test_partial_sums_before_products_are_finished_on_two_axes_as_well(run: Run, name: str, strategy: str):
    assert "reduced_before_product" in run(layer(name), strategy).conventions


@pytest.mark.parametrize(
    ("algorithm", "strategy", "share"),
    [("ring", "fully-sharded(4)", {"all-gather": 3, "reduce-scatter": 6}), ("tree", "zero-1(2)", {"broadcast": 1})],
)
def test_the_connections_of_gloo_carry_what_its_algorithm_sends(algorithm: str, strategy: str, share: dict[str, int]):
    found = verify(model(HOMEWORK), strategy, algorithm=algorithm)
    assert found.holds, [r for r in found.rows if r.difference]
    measured = {row.what: row.measured for row in found.rows}
    carried = {what.removesuffix(": through sockets"): n for what, n in measured.items() if what.endswith("sockets")}
    assert {what.partition(",")[0] for what in carried} == {*share}
    assert all(n == share[what.partition(",")[0]] * measured[what] for what, n in carried.items())


def test_a_wrong_derivation_is_found_and_ends_with_status_1(monkeypatch: pytest.MonkeyPatch):
    right = expected._calls
    monkeypatch.setattr(expected, "_calls", lambda case: right(case)[:-1])
    result = CliRunner().invoke(main, ["verify", str(HOMEWORK), "--strategy", "data(2)", "--json"])
    assert result.exit_code == 1, result.output
    made = json.loads(result.output)
    assert not made["holds"]
    assert any(row["difference"] for row in made["rows"])


@pytest.mark.usefixtures("place")
def test_a_process_that_fails_is_told_and_the_others_are_ended():
    with pytest.raises(VerificationError) as told:
        verify(model(HOMEWORK), "data(2)", fault={"rank": 1, "what": "fail"})
    assert str(told.value) == (
        "rank 1 of ddp failed: RuntimeError: a test lets this rank fail\nhint: the other processes were ended"
    )
    assert workers() == []


@pytest.mark.usefixtures("place")
def test_a_process_that_hangs_is_ended_with_all_others():
    with pytest.raises(VerificationError, match=r"ddp on 2 processes did not end within 6 s; rank .*1 had"):
        verify(model(HOMEWORK), "data(2)", limit=6, fault={"rank": 1, "what": "hang"})
    assert workers() == []


def test_what_starts_the_ranks_may_be_ended_itself(place: Path):
    with Launcher() as launch:
        prepared = prepare(model(HOMEWORK), "data(2)")
        threading.Timer(0.2, lambda: os.kill(launch.process.pid, signal.SIGKILL)).start()
        with pytest.raises(VerificationError, match="the process that starts the ranks of ddp ended"):
            launch(prepared.spec, 60, None, {"rank": 1, "what": "hang"})
        wait_until(lambda: workers() == [])
        assert prepared.compare(launch(prepared.spec)).holds  # another one is started
    assert workers() == []
    assert not [*place.glob("symcomm-*")]


def test_no_process_outlives_one_that_was_killed_itself(place: Path):
    text = "from examples import *; from symcomm.verify.verify import verify as v; v(model(HOMEWORK), 'data(2)', "
    text += "limit=100, fault={'rank': 1, 'what': 'hang'})"
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    run = subprocess.Popen([sys.executable, "-c", text], env={**os.environ, "TMPDIR": str(place), "PYTHONPATH": path})
    try:
        wait_until(lambda: len(workers()) == 3)  # two ranks, and what they were forked from
    finally:
        run.kill()
        run.wait()
    wait_until(lambda: workers() == [])


@pytest.mark.usefixtures("place")
def test_a_cell_that_fails_is_told_in_the_grid_and_the_next_one_is_run(monkeypatch: pytest.MonkeyPatch):
    plain = Launcher.__call__

    def faulty(self: Launcher, run: Mapping[str, Any], limit: float) -> list[dict[str, Any]]:
        return plain(self, run, limit, None, {"rank": 1, "what": "fail"} if run["method"] == "ddp" else None)

    monkeypatch.setattr(Launcher, "__call__", faulty)
    first, second = grid([layer("two-matrix-ffn")], [("data(2)", ""), ("fully-sharded(2)", "")])
    assert (first.mark, first.why) == ("×", "rank 1 of ddp failed: RuntimeError: a test lets this rank fail")
    assert second.found is not None
    assert second.found.holds
    assert workers() == []


def test_a_grid_goes_on_where_it_was_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    models, kept = [layer("two-matrix-ffn")], tmp_path / "kept.jsonl"
    made = grid(models, [("data(2)", ""), ("", "")], resume=kept)
    assert [cell.mark for cell in made] == ["= (1)", "="]
    lines = kept.read_text().splitlines()
    kept.write_text(lines[0] + "\n" + lines[1][:50])  # ended while it wrote the second one
    started = []
    plain = Launcher.__call__
    monkeypatch.setattr(Launcher, "__call__", lambda *given: started.append(given[1]["method"]) or plain(*given))
    assert grid(models, [("data(2)", ""), ("", "")], resume=kept) == made
    assert started == ["single"]
    with pytest.raises(VerificationError, match="cannot be written: Is a directory"):
        grid(models, [("", "")], resume=tmp_path)


def wait_until(holds: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.1)


def test_a_written_file_runs_by_itself(tmp_path: Path):
    path = tmp_path / "model.py"
    assert CliRunner().invoke(main, ["show", str(HOMEWORK), "--to", "torch", "-o", str(path)]).exit_code == 0
    made = subprocess.run([sys.executable, "-I", str(path)], capture_output=True, text=True, timeout=100)
    assert made.returncode == 0, made.stderr
    assert made.stdout.startswith("parameters: ")


@pytest.mark.long
@pytest.mark.parametrize("name", ["dp", "fsdp"])
def test_who_trains_every_process_on_the_whole_batch_is_not_right(tmp_path: Path, name: str):
    """Its losses, its gradients and its collectives are right; each process does the work of all."""
    files = practice(model(next(path for path in LAYERS if path.stem == "swiglu")), "solution")
    cut = "        inputs, target = [part(t, rank, ranks) for t in inputs], part(target, rank, ranks)\n"
    script = f"question3_{name}.py"
    assert cut in files[script]
    write_practice({**files, script: files[script].replace(cut, "")}, tmp_path)
    command = [sys.executable, str(tmp_path / "check.py"), name]
    made = subprocess.run(command, capture_output=True, text=True, timeout=900)
    told = [line.partition(": ")[2] for line in made.stdout.splitlines()]
    assert made.returncode == 1
    assert len(told) == 2, made.stdout
    assert all(said.startswith("process 0 computes ") and said.endswith("on the whole batch") for said in told), told


@pytest.mark.long
@pytest.mark.parametrize("of", ["mixture-of-experts", "shared keys"])
def test_partial_sums_are_added_up_before_products_read_them_in_an_exercise(tmp_path: Path, of: str):
    shared = load(SHARED, repeat="N_layer")
    write_practice(practice(shared if of == "shared keys" else layer(of), "solution"), tmp_path)
    command = [sys.executable, str(tmp_path / "check.py"), "tp"]
    made = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert made.returncode == 0, made.stdout


@pytest.mark.long
def test_the_exercises_are_right_and_the_paper_is_not(tmp_path: Path):
    write_practice(practice(model(HOMEWORK), "solution"), tmp_path / "solution")
    write_practice(practice(model(HOMEWORK), "paper"), tmp_path / "paper")
    for edition, status in (("solution", 0), ("paper", 1)):
        check = tmp_path / edition / "check.py"
        made = subprocess.run([sys.executable, str(check)], capture_output=True, text=True, timeout=900)
        assert made.returncode == status, made.stdout + made.stderr
        right = made.stdout.count(": right")
        assert right == (8 if edition == "solution" else 0), made.stdout
        assert edition == "solution" or "NotImplementedError: TODO 1" in made.stdout


@pytest.mark.parametrize("pool", ["avgpool", "maxpool"])
def test_the_peak_of_pooling_over_windows_and_over_all_positions_is_that_of_pytorch(run: Run, pool: str):
    """The gradient of a mean is a tensor of its own, as large as what is pooled."""
    rows = "h = conv(x, W^1)\tx [B,C,8,4], W^1 [O,C,R,R]\th [B,O,8,4]\n" \
           f"p = {pool}_2(h)\t-\tp [B,O,4,2]\nq = conv(p, W^2)\tW^2 [O,O,1,1]\tq [B,O,4,2]\n" \
           f"z = {pool}(q)\t-\tz [B,O]\ny = z W^3\tW^3 [O,K]\ty [B,K]\n"  # fmt: skip
    found = run(load(f"Computation\tInput\tOutput\n{rows}"))
    peak = next(row for row in found.rows if row.what.startswith("peak"))
    assert peak.derived == peak.measured > 0


@pytest.mark.long
@pytest.mark.parametrize("strategy", ["context(2)", "context(4)", "ulysses(2)", "ulysses(4)"])
def test_the_homework_on_long_sequences_runs_as_derived(run: Run, strategy: str):
    run(model(str(HOMEWORK.parents[1] / "long-context" / "long-context.md")), strategy)
