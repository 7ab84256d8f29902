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
