"""An axis of one rank does nothing, whatever the structure holds where it has more."""

import pytest

import symcomm as sc

LLAMA = {
    "model_type": "llama", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 64, "vocab_size": 64,
}  # fmt: skip


def test_one_tensor_rank_keeps_no_statistics_of_the_loss():
    model = sc.load(LLAMA, loss=True, dtype="bf16", values={"L": 16})
    rates = {"peak": "1 TFLOP/s", "memory": "1 TB/s", "network": "1 GB/s"}
    found = {}
    for strategy in ("data", "data + tensor"):
        rows = sc.search(
            model, devices=4, batch=16, capacity="10 MB", capacity_is="usable", strategies=[strategy],
            microbatches="1,2", recomputation=["none", "full"], top=40, **rates,
        ).top  # fmt: skip
        found[strategy] = {(r.strategy, r.microbatches, r.recomputation): r.memory.value for r in rows}
    assert len(found["data"]) == 4
    assert found["data"].items() <= found["data + tensor"].items()


def test_one_rank_sends_no_messages_whatever_the_algorithm():
    model = sc.load(LLAMA).at(B=4, L=16)
    rates = {"peak": "1 TFLOP/s", "memory": "1 TB/s", "network": "1 GB/s", "latency": "10 us"}
    for algorithm in ("one_shot", "two_shot"):
        found = sc.search(model, devices=2, capacity="10 MB", capacity_is="usable", strategies="data + tensor",
                          microbatches="1", recomputation="none", accounting=algorithm, **rates)  # fmt: skip
        assert {c.strategy for c in found.top} == {"data(2)", "tensor(2)"}
        for c in found.top:
            assert c.time == model.step_time(c.strategy, accounting=algorithm, **rates).at(), c.strategy


SMALL = {
    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 8,
    "num_key_value_heads": 4, "vocab_size": 256, "torch_dtype": "bfloat16",
}  # fmt: skip
MIXTRAL = {**SMALL, "model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "num_local_experts": 4,
           "num_experts_per_tok": 2}  # fmt: skip


def test_what_one_axis_cuts_has_a_say_in_what_moves_along_another():
    """With one rank of `ulysses` tensors move along the others as they do without it."""
    rates = {"peak": "1e12 FLOP/s", "memory": "1e11 B/s", "network": "1e10 B/s", "latency": "1 us"}
    strategy = "zero-1 + tensor + sequence + ulysses + expert(nodes=2) + pipeline"
    nodes = {"node": 2, "inside": "1e11 B/s", "between": "1e10 B/s"}
    asked = sc.load(MIXTRAL).at(L=16)
    found = sc.search(asked, devices=16, batch=8, capacity="80 GB", top=1000, capacity_is="nominal_GB", links=nodes,
                      strategies=strategy, recomputation="none", microbatches=1,
                      sizes={"data": 4, "tensor": 2, "ulysses": "1,2", "pipeline": "1,2"}, **rates)  # fmt: skip
    assert found.top
    for c in found.top:
        assert c.time == asked.at(B=8).step_time(c.strategy, **rates, links=nodes).at(), c.strategy


def test_weights_that_no_call_gathers_come_from_the_host_twice():
    """Two ranks of tensor parallelism share the matrices; four of data have them whole.

    A layer has 2 of 64 x 64, 2 of 64 x 32 and 3 of 64 x 128, two norms of 64; the head one of 64 x 256 and a norm, as
    the embedding without one, which the backward pass does not read. Gradients go back once. All else is hidden.
    """
    model = sc.load({**SMALL, "model_type": "llama", "architectures": ["LlamaForCausalLM"]}).at(L=16)
    rates = {"peak": "1e15 FLOP/s", "memory": "1e15 B/s", "network": "1e15 B/s", "links": {"host": "1e9 B/s"}}
    found = sc.search(model, devices=8, batch=8, capacity="80 GB", capacity_is="nominal_GB", microbatches=1, top=1000,
                      accounting={"offloading": "model_on_host", "gathered_weights": "keep"},
                      strategies="hsdp + tensor(2) + ring", recomputation="none", **rates)  # fmt: skip
    matrices, words = (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 128) // 2, 64 * 256 // 2
    every = 2 * (matrices + 2 * 64) + words + 64 + words
    (time,) = (c.time.value for c in found.top if c.strategy == "hybrid-sharded(1, replicate=4) + tensor(2)")
    assert time == pytest.approx(2 * (2 * every - words + every) / 10**9, rel=1e-5)
