"""The models that every law is tried on: each family with and without head and loss, tables, and a printed module.

A family attends as its library does; without a head it is tried with attention written out, too, where that differs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from api import ARCHITECTURES

import symcomm as sc

ROOT = Path(__file__).parents[2]
TABLES = ("convolution", "cross-attention", "encoder", "grouped-query-attention", "lora", "mixture-of-experts",
          "parallel-block", "swiglu", "two-matrix-ffn", "language-model")  # fmt: skip
SMALL: dict[str, dict[str, Any]] = json.loads((ROOT / "tests" / "data" / "small_families.json").read_text())
_SIZES = {"B": 16, "L": 16, "N": 4, "D": 16, "n_H": 4, "n_kv": 2, "R": 3}
FUSED = {f"{row.prefix}Model" for row in ARCHITECTURES.values() if row.sdpa}  # attention is one kernel
# The strategies of the registry, and how they are combined.
STRATEGIES = (
    "data(2)", "fsdp(2)", "zero-1(2)", "zero-2(2)", "optimizer-sharded(2)", "hybrid-sharded(2, 2)", "tensor(2)",
    "tensor(2) + sequence", "context(2)", "data(2) + expert", "pipeline(2, microbatches=2)", "data(2) + tensor(2)",
    "fsdp(2) + context(2)", "tensor(2) + pipeline(2, microbatches=2)", "ring(2)", "ulysses(2)", "ring(2) + ulysses(2)",
    "fsdp(2) + ring(2)", "tensor(2) + ring(2)", "cut(B, 2)",
)  # fmt: skip
# Those of the default run; all others are long.
USUAL = ("LlamaForCausalLM with loss", "GPT2Model", "MixtralForCausalLM with loss", "homework")


def _headless(name: str) -> str:
    return "GPT2Model" if name.startswith("GPT2") else name.partition("For")[0] + "Model"


def model_names() -> Iterator[str]:
    """The names of all models, the usual ones first."""
    yield from USUAL
    for name in SMALL:
        both = [name, _headless(name)]
        both += [f"{name} with loss"] if not name.startswith("ViT") else []
        both += [f"{_headless(name)} eager"] if _headless(name) in FUSED else []
        yield from (one for one in both if one not in USUAL and not one.startswith("Gemma3Model"))  # it has images
    yield from TABLES
    yield "printed BERT"


@cache
def model(name: str) -> sc.Model:
    """The model of a name, with small numbers for all of its sizes."""
    if name in TABLES:
        made = sc.load(ROOT / "examples" / "layers" / f"{name}.md")
    elif name == "homework":
        made = sc.load(ROOT / "tests" / "data" / "homework2_table.tsv", repeat="N_layer")
        return made.at(N_layer=4, B=16, L=16, D=16, n_h=4)
    elif name == "printed BERT":
        made = sc.load(ROOT / "tests" / "data" / "bert_printed.txt")
    else:
        family, _, how = name.partition(" ")
        key = next(key for key in SMALL if family in (key, _headless(key)))
        eager = {"attn_implementation": "eager"} if how == "eager" else {}
        made = sc.load({**SMALL[key], **eager}, architecture=family, loss=how == "with loss")
    missing = {*made.flops("training").needs, *made.activation_memory().needs}
    return made.at(**{size: _SIZES.get(size, 8) for size in missing})
