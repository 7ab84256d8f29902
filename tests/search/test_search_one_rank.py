"""An axis of one rank does nothing, whatever the structure holds where it has more."""

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
