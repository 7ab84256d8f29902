"""The replay of every line of storage: whatever an instruction reads is there, and what is kept is what is alive."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import memory_tables as tables
import pytest
from api import ONE_RANK, SAVED, Accounting, Line, Setting, StepOptions, StepRun, parse_strategy, recipe_of, step_of

import symcomm as sc

FEW = {"hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 4,
       "intermediate_size": 96, "vocab_size": 128}  # fmt: skip
CONFIGS = {
    "gpt2": {"model_type": "gpt2", "n_embd": 64, "n_layer": 4, "n_head": 8, "n_inner": 128, "vocab_size": 128,
             "n_positions": 64},
    "llama": {"model_type": "llama", **FEW},
    "mixtral": {"model_type": "mixtral", **FEW, "num_local_experts": 4, "num_experts_per_tok": 2},
    "t5": {"model_type": "t5", "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 4, "num_heads": 4,
           "vocab_size": 96, "relative_attention_num_buckets": 8, "dropout_rate": 0.1},
}  # fmt: skip
STRATEGIES = ("", "fsdp(2)", "tensor(2) + sequence", "context(2)", "data(2) + expert")
CONVENTIONS = ({}, {"softmax": "fused"}, {"saved": "pytorch"}, {"saved": "pytorch", "softmax": "fused"})
LAYERS = Path(__file__).parents[2] / "examples" / "layers"


def model(name: str) -> sc.Model:
    if name in CONFIGS:
        return sc.load(CONFIGS[name], loss=True, values={"B": 8, "L": 32})
    if name == "homework":
        return tables.load(tables.HOMEWORK, repeat="N_layer")
    return sc.load(LAYERS / f"{name}.md")


def lines(name: str, strategy: str) -> Iterator[tuple[str, Line]]:
    """The line of storage of each region, under each convention and each recomputation."""
    graph = model(name).graph
    if "expert" in strategy and not any(op.kind == "route" for op in graph.ops):
        return
    placed = parse_strategy(strategy) if strategy else ONE_RANK
    for said in CONVENTIONS:
        for again in ("none", "selective", "full"):
            run = StepRun(placed, recipe_of("mixed_adam"), StepOptions(again))
            for part in step_of(Setting(graph, Accounting(**said)), run).parts:
                if again != "selective" or part.graph.attention_pairs:
                    yield f"{part.region.name} {said} {again}", part.line
                if again == "none":
                    yield f"{part.region.name} {said} in halves", part.timeline("none", split=True)


@pytest.mark.few(3)
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", [*CONFIGS, "homework", "grouped-query-attention", "mixture-of-experts"])
def test_no_instruction_reads_what_is_not_there(name, strategy):
    """Before the first step there are the region's inputs, and before backward the gradients of its outputs."""
    for told, line in lines(name, strategy):
        made = {op.output for op in line.graph.ops}
        assert {key[0] for key in line.unborn} & made == set(), told
        kept = {item.key for item in line.kept if item.key not in line.given and item.tensor not in line.shared}
        alive = {life.key for life in line.lives if life.kind == SAVED and line.counts(life)}
        assert alive == kept, told
