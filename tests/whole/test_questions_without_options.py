"""Questions as engineers ask them, without options, against formulas by hand; the answer names what decides it."""

from __future__ import annotations

from functools import cache
from math import ceil, floor
from pathlib import Path
from typing import Any

import pytest

import symcomm as sc

LLAMA = {"model_type": "llama", "max_position_embeddings": 8192, "vocab_size": 128256, "num_key_value_heads": 8}
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "8B": LLAMA | {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32},
    "70B": LLAMA
    | {"hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80, "num_attention_heads": 64},
    "Mixtral": {"model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
                "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32000, "num_local_experts": 8,
                "num_experts_per_tok": 2, "max_position_embeddings": 32768},
    "GPT-2": {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024,
              "vocab_size": 50257},
}  # fmt: skip
TABLE = Path(__file__).parents[1] / "data" / "homework2_table.tsv"
H100, H100_MEMORY, NVLINK = 132 * 2048 * 2 * 1.83e9, 3352e9, 450e9  # FLOP/s in 16 bits, B/s, B/s in each direction
A100, A100_LINK = 108 * 1024 * 2 * 1.41e9, 300e9


class Sizes:
    """A model of gated layers: its widths, and its weights as a person adds them up."""

    def __init__(self, name: str) -> None:
        said = CONFIGURATIONS[name]
        self.D, self.F, self.N, self.V = (
            said[key] for key in ("hidden_size", "intermediate_size", "num_hidden_layers", "vocab_size")
        )
        self.H, self.experts = said["num_attention_heads"], said.get("num_local_experts", 0)
        self.kv = self.D // self.H * said["num_key_value_heads"]
        self.fed = 3 * self.D * self.F
        attention = 2 * self.D * self.D + 2 * self.D * self.kv
        router, read = (self.D * self.experts, said["num_experts_per_tok"]) if self.experts else (0, 1)
        self.layer = attention + router + max(self.experts, 1) * self.fed
        self.rest = (2 * self.N + 1) * self.D  # gains of norms
        self.P = self.N * self.layer + self.rest + 2 * self.V * self.D  # all weights
        self.W = self.N * (attention + router + read * self.fed) + self.V * self.D  # in products with each token

    def pairs(self, batch: int, length: int) -> int:
        """Operations of scores and of their products with values, forward, for all pairs of positions."""
        return 4 * batch * length**2 * self.D * self.N

    def training(self, batch: int, length: int) -> int:
        return 3 * (2 * batch * length * self.W + self.pairs(batch, length))

    def hardware(self, batch: int, length: int) -> int:
        """With the scores that one kernel of attention computes again."""
        return self.training(batch, length) + self.pairs(batch, length) // 2

    def kept(self, batch: int, length: int) -> int:
        """Bytes kept: x, n, q, z, a, m of D each, k, v, four of F, a number a row and head; logits and two indices."""
        layer = 2 * (6 * self.D + 2 * self.kv + 4 * self.F) + 4 * self.H
        return batch * length * (self.N * layer + 2 * (2 * self.D + self.V) + 16)


SMALL, LARGE, MIXED = Sizes("8B"), Sizes("70B"), Sizes("Mixtral")
D2, N2, V2 = 768, 12, 50257
GPT2 = N2 * (12 * D2**2 + 13 * D2) + 2 * D2 + V2 * D2 + 1024 * D2
WORK = 12 * 2048**2 * 24  # weights of the homework
STEP = 3 * (2 * 64 * 1024 * WORK + 4 * 64 * 1024**2 * 2048 * 24)  # its operations with 64 sequences of 1024


@cache
def model(name: str) -> sc.Model:
    if name == "homework":
        return sc.load(TABLE, repeat="N_layer").at(N_layer=24, D=2048, n_h=16)
    return sc.load(CONFIGURATIONS[name])


# A question: the model, the quantity with its arguments, the numbers; what is right; a convention that has to be named.
QUESTIONS: list[tuple[str, str, dict[str, Any], dict[str, int], float, str]] = [
    ("Mixtral", "parameters", {"of": "active"}, {}, MIXED.W + MIXED.rest + 32000 * 4096, "every_weight"),
    ("8B", "flops", {"scope": "training"}, {"B": 8, "L": 4096}, SMALL.training(8, 4096), "full"),
    ("Mixtral", "flops", {}, {"B": 4, "L": 4096}, 2 * 4 * 4096 * MIXED.W + MIXED.pairs(4, 4096), "full"),
    ("70B", "state_memory", {"strategy": "tensor(8)"}, {}, 2 * (LARGE.P - LARGE.rest) + 16 * LARGE.rest,
     "largest_part"),
    ("70B", "state_memory", {"strategy": "fsdp(64)"}, {}, 16 * LARGE.P / 64, "mean_shard"),
    ("8B", "state_memory", {"strategy": "zero-2(8)"}, {}, SMALL.P * (2 + 14 / 8), "mean_shard"),
    ("Mixtral", "state_memory", {"strategy": "data(8) + expert"}, {},
     16 * (MIXED.P - MIXED.N * MIXED.experts * MIXED.fed * 7 / 8), "mean_shard"),
    ("GPT-2", "state_memory", {"strategy": "tensor(4)"}, {},
     16 * (N2 * (12 * D2**2 // 4 + 7 * D2 // 4 + 6 * D2) + 2 * D2 + ceil(V2 / 4) * D2 + 1024 * D2), "largest_part"),
    ("8B", "activation_memory", {}, {"B": 1, "L": 8192}, SMALL.kept(1, 8192), "fused"),
    ("70B", "activation_memory", {}, {"B": 1, "L": 8192}, LARGE.kept(1, 8192), "fused"),
    ("homework", "activation_memory", {}, {"B": 4, "L": 1024}, 24 * 2 * 4096 * (2048 * (6 + 4) + 16 * 1024), "library"),
    ("8B", "communication", {"strategy": "fsdp(8)"}, {}, 6 * SMALL.P - 2 * SMALL.V * SMALL.D, "reshard"),
    ("8B", "communication", {"strategy": "tensor(8)"}, {"B": 8, "L": 4096},
     8 * 4096 * (2 * SMALL.D * (4 * SMALL.N + 2) + 3 * 4), "payload"),
    ("Mixtral", "communication", {"strategy": "data(8) + expert"}, {"B": 64, "L": 4096},
     4 * 32 * 2 * 2 * 64 * 4096 * 4096 + 2 * (MIXED.P - MIXED.N * MIXED.experts * MIXED.fed), "payload"),
    ("8B", "step_time", {"strategy": "data(8)", "device": "H100-SXM"}, {"B": 8, "L": 4096},
     SMALL.hardware(1, 4096) / H100 + 2 * 7 / 8 * 2 * SMALL.P / NVLINK, "end_of_batch"),
    ("8B", "step_time", {"strategy": "tensor(8)", "device": "H100-SXM"}, {"B": 8, "L": 4096},  # x is summed beforehand
     SMALL.hardware(8, 4096) / 8 / H100 + 2 * 7 / 8 * 2 * 8 * 4096 * SMALL.D / NVLINK, "overlap"),
    ("homework", "step_time", {"strategy": "data(8)", "device": "A100-80GB-SXM"}, {"B": 64, "L": 1024},
     STEP / 8 / A100 + 2 * 7 / 8 * 2 * WORK / A100_LINK, "end_of_batch"),
    ("homework", "step_time", {"strategy": "pipeline(8, microbatches=16)", "device": "A100-80GB-SXM"},
     {"B": 64, "L": 1024}, STEP / 8 / A100 * 23 / 16, "overlap"),
    ("8B", "throughput", {"strategy": "fsdp(8)", "of": "mfu", "step": "1 s", "device": "H100-SXM"},
     {"B": 16, "L": 4096}, SMALL.training(16, 4096) / 8 / H100, "training_flops"),
    ("8B", "kv_cache", {"of": "sequence", "tokens": 8192}, {}, 2 * 2 * SMALL.N * SMALL.kv * 8192, ""),
    ("8B", "prefill_time", {"prompt": 8192, "device": "H100-SXM"}, {"B": 1},
     (2 * 8192 * SMALL.N * SMALL.layer + SMALL.pairs(1, 8192) + 2 * SMALL.V * SMALL.D) / H100, "generated"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "quantity", "options", "at", "right", "named"), QUESTIONS)
def test_an_answer_without_options_is_the_one_by_hand_and_names_what_decides_it(
    name: str, quantity: str, options: dict[str, Any], at: dict[str, int], right: float, named: str
) -> None:
    made = model(name).derive(quantity, **options)
    assert float(made.at(**at).value) == pytest.approx(right, rel=1e-5)
    assert not named or named in {row.name for row in made.conventions}


def test_one_token_reads_the_weights_of_the_experts_it_hits_and_little_else() -> None:
    """Compulsory traffic adds the activations of one token, below a hundredth."""
    step = model("Mixtral").decode_time(past=1, device="H100-SXM").at(B=1).value
    assert float(step) == pytest.approx(2 * MIXED.W / H100_MEMORY, rel=0.01)


def test_what_fits_is_what_the_states_leave() -> None:
    room = 80e9 - 16 * SMALL.P / 8
    found = model("8B").at(L=4096).capacity("B", "80 GB", capacity_is="nominal_GB", strategy="fsdp(8)")
    assert found.at().value == 8 * floor(room / SMALL.kept(1, 4096))
    ranks = model("70B").capacity("k", "80 GB", capacity_is="nominal_GB", strategy="fsdp(k)", include="states")
    assert ranks.at().value == ceil(16 * LARGE.P / 80e9)
