"""The measured runs of whole models, and what symcomm derives for the same model, strategy and conventions.

The measured numbers were taken in PyTorch (one process a rank); ``golden_whole_models.json`` holds them. What PyTorch's
libraries or Megatron do otherwise than the least that is needed is told by name in ``EXPLAINED``, with its size worked
out here from the shapes alone.
"""

from __future__ import annotations

import json
from collections import Counter
from fractions import Fraction
from functools import cache
from math import ceil
from pathlib import Path
from typing import Any

from api import Accounting, Setting, calls, parse_strategy
from api import form as forms

import symcomm as sc

RECORDS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "data" / "golden_whole_models.json").read_text(encoding="utf-8")
)
Key = tuple[str, str, int]  # kind, phase, ranks of the group (0 for messages)


def config(record: dict[str, Any]) -> dict[str, Any]:
    """The configuration of a record's model."""
    z, kind = record["sizes"], record["model"].split(".")[0]
    if kind == "gpt2":
        return {
            "attn_implementation": "eager",  # scores were kept
            "model_type": "gpt2", "n_embd": z["D"], "n_layer": z["N"], "n_head": z["nh"], "n_inner": z["F"],
            "vocab_size": z["V"], "n_positions": z["T"], "tie_word_embeddings": record["model"] == "gpt2.tied",
            "embd_pdrop": 0.0, "attn_pdrop": 0.0, "resid_pdrop": 0.0, "activation_function": "gelu_pytorch_tanh",
        }  # fmt: skip
    experts = {"num_local_experts": z["E"], "num_experts_per_tok": z["top"]} if kind == "mixtral" else {}
    return {
        "attn_implementation": "eager",  # scores were kept
        "model_type": kind, "hidden_size": z["D"], "num_hidden_layers": z["N"], "num_attention_heads": z["nh"],
        "num_key_value_heads": z["nkv"], "intermediate_size": z["F"], "vocab_size": z["V"], "head_dim": z["H"],
        "tie_word_embeddings": False, **experts,
    }  # fmt: skip


def model(record: dict[str, Any]) -> sc.Model:
    """The whole model with its loss, in fp32, all sizes known."""
    values = {"B": record["global_batch"], "L": record["sizes"]["L"]}
    return sc.load(config(record), dtype="fp32", loss=True, values=values)


def degrees(record: dict[str, Any]) -> tuple[int, int]:
    """The ranks of data and of tensor parallelism."""
    data = record.get("dp", 1)
    stages = len(record.get("stages", [1]))
    return data, record.get("tp", record["ranks"] // data // stages)


def strategy(record: dict[str, Any]) -> str | None:
    """The strategy as a person writes it."""
    said, ranks = record["strategy"], record["ranks"]
    data, tensor = degrees(record)
    if said == "single":
        return None
    if said in ("ddp", "cp", "ep"):
        return {"ddp": f"data({ranks})", "cp": f"context({ranks})", "ep": f"data({ranks}) + expert"}[said]
    if said.startswith("fsdp2") and "x" not in said:
        return f"fsdp({ranks})"
    parts = [f"fsdp({data})" if said.startswith("fsdp2") else f"data({data})"] if data > 1 else []
    if not said.startswith("pp.") or said.endswith((".tp", ".sp")):
        parts.append(f"tensor({tensor})")
    if "sp" in said.replace("fsdp", ""):
        parts.append("sequence")
    if said.startswith("pp."):
        parts.append(f"pipeline(layers={':'.join(map(str, record['stages']))}, microbatches={record['m']})")
    return " + ".join(parts)


def conventions(record: dict[str, Any]) -> dict[str, str]:
    """What of the run is a choice that symcomm has a name for."""
    said, found = record["strategy"], {}
    if said.startswith("fsdp2"):
        found["gathered_weights"] = {"keep": "keep", "all": "whole_units"}.get(said.split(".")[1], "layers")
    if said in ("megatron.sp_keep", "dtensor.sp", "fsdp2.reshardxsp"):
        found["gathered_activations"] = "keep"
    if record.get("checkpoint"):
        found["recomputation"] = "needed_recomputation" if "False" in record["checkpoint"] else "full_recomputation"
    return found


def derived(record: dict[str, Any]) -> list[Counter[Key]]:
    """The elements of every kind of call on one rank of each stage, over one step."""
    made, said = model(record), strategy(record)
    setting = Setting(made.graph, Accounting.of(**conventions(record)), "fp32", made.notation,
                      made.graph.relations.complete(made.values))  # fmt: skip
    placed = parse_strategy(said or "data(1)")
    values = dict(setting.values)
    stages = record.get("stages", [record["sizes"]["N"]])
    found: list[Counter[Key]] = []
    every = calls(setting, placed)
    last = len(stages) - 1
    for n, layers in enumerate(stages):
        mine: Counter[Key] = Counter()
        regions = {"layer"} | ({"embedding"} if n == 0 else set()) | ({"head"} if n == last else set())
        for call in every:
            size = forms.evaluate(forms.from_expr(call.elements), values)
            if call.kind == "send":
                if (call.phase == "forward" and n < last) or (call.phase == "backward" and n > 0):
                    mine["send", call.phase, 0] += size
                continue
            tie = call.meshes == ("pipe",)
            if (tie and n in (0, last)) or (not tie and call.region.name in regions):
                ranks = int(forms.evaluate(call.ranks(placed), values))
                times = layers if call.region.times else 1
                if ranks > 1:
                    mine[call.kind.replace("-", "_"), phase(call.phase), ranks] += size * times
        found.append(mine)
    return found


def phase(name: str) -> str:
    """Gradients may be finished while backward runs or after it; both are called backward here."""
    return "backward" if name in ("grad_sync", "optimizer", "update") else name


def measured(record: dict[str, Any]) -> list[Counter[Key]]:
    """The same as it was measured: of the first rank of each stage (tensor neighbours stand first)."""
    stages = record.get("stages")
    every = record.get("totals_per_rank") or [record["totals"]]
    if stages and len(every) > 1:
        tensor = record.get("tp", 1)
        every = [every[n * tensor] for n in range(len(stages))]
    elif stages:
        every = every * len(stages)
    found: list[Counter[Key]] = []
    for totals in every if stages else every[:1]:
        mine: Counter[Key] = Counter()
        for key, total in totals.items():
            kind, when, ranks = key.split("/")
            if kind != "recv":
                mine[kind, phase(when), 0 if kind == "send" else int(ranks)] += total["elements"]
        found.append(mine)
    return found


# -- what another system does otherwise, from the shapes alone ------------------------------------------------


@cache
def shapes(kind: str, sizes: tuple[tuple[str, int], ...], tensor: int = 1) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """The weights of a model as (region, shape), from the table of the measurements; cut over ``tensor`` ranks."""
    z = dict(sizes)
    d, f, v, a, kv = z["D"], z["F"], z["V"], z["nh"] * z["H"], z["nkv"] * z["H"]
    t = tensor
    norms = 2 if kind.startswith("gpt2") else 1
    layer: list[tuple[int, ...]] = [(d,)] * (2 * norms)
    layer += [(a // t, d), (kv // t, d), (kv // t, d), (d, a // t)]
    if kind.startswith("gpt2"):
        layer += [(a // t,), (kv // t,), (kv // t,), (d,), (f // t, d), (f // t,), (d, f // t), (d,)]
    elif kind == "llama":
        layer += [(f // t, d), (f // t, d), (d, f // t)]
    else:
        layer += [(z["E"], d)] + [(f, d), (f, d), (d, f)] * z["E"]
    ends: list[tuple[int, ...]] = [(v // t, d)] + [(d,)] * norms
    ends += [(z["T"], d)] if kind.startswith("gpt2") else []
    ends += [] if kind == "gpt2.tied" else [(v // t, d)]
    return tuple([("ends", s) for s in ends] + [("layer", s) for s in layer for _ in range(z["N"])])


def padding(record: dict[str, Any], ranks: int, tensor: int, where: tuple[str, ...] = ("ends", "layer")) -> int:
    """What FSDP's padding adds: the first axis of every shard is rounded up to the same length on all ranks."""
    extra = 0
    for region, shape in shapes(record["model"], tuple(record["sizes"].items()), tensor):
        if region in where:
            rest = shape[1] if len(shape) > 1 else 1
            extra += (ceil(shape[0] / ranks) * ranks - shape[0]) * rest
    return extra


def explained(record: dict[str, Any], stage: int) -> tuple[Counter[Key], list[str]]:
    """What the measured run has more (or less), by the choice that makes it."""
    z, said = record["sizes"], record["strategy"]
    data, t = degrees(record)
    tokens = record["global_batch"] // data * z["L"]
    more: Counter[Key] = Counter()
    why: list[str] = []
    gpt2 = record["model"].startswith("gpt2")
    first = stage == 0
    layers = record.get("stages", [z["N"]])[stage]
    if said.startswith("fsdp2"):
        ranks = data if "x" in said else record["ranks"]
        tensor = t if "x" in said else 1
        pad, layer = padding(record, ranks, tensor), padding(record, ranks, tensor, ("layer",))
        again = {"keep": 0, "all": pad}.get(said.split(".")[1], layer)
        more["all_gather", "forward", ranks] += pad
        more["reduce_scatter", "backward", ranks] += pad
        more["all_gather", "backward", ranks] += again
        if pad:
            why.append("shards are padded")
    if said == "dtensor.naive":
        gated = record["model"] != "gpt2" and not gpt2
        more["all_reduce", "backward", t] += z["N"] * tokens * z["D"] * (2 + gated)
        why.append("the gradients of one input are reduced for each product by itself")
    if "sp" in said.replace("fsdp", "") and gpt2:
        if said.startswith(("megatron", "pp")):
            if first:  # the sum of embeddings is finished before positions are added on the whole sequence
                more["reduce_scatter", "forward", t] -= tokens * z["D"]
                more["all_reduce", "forward", t] += tokens * z["D"]
                more["all_reduce", "backward", t] -= z["T"] * z["D"]
                why.append("positions are added to the whole sequence")
        else:
            shards = data if said.startswith("fsdp2") else 1  # what is left of a gradient once it is scattered
            more["all_reduce", "backward", t] -= Fraction(2 * layers * z["D"], shards)
            more["all_reduce", "backward", t] += (ceil(Fraction(z["T"], shards)) - Fraction(z["T"], shards)) * z["D"]
            why.append("gradients of biases are summed from the gathered gradient")
    if said == "fsdp2.reshardxsp":
        norms = (2 * z["N"] + 1) * (2 if gpt2 else 1) * z["D"]
        more["all_reduce", "backward", t] += norms * (1 - Fraction(1, data))
        why.append("gradients of norms are summed over the tensor ranks before they are scattered over the data")
    if "sp" in said.replace("fsdp", "") and record["model"] == "mixtral":
        scores = layers * tokens * z["E"]
        more["all_gather", "forward", t] -= scores
        if not said.endswith("keep"):  # its gradient is summed from the gathered tokens that are kept anyway
            more["reduce_scatter", "backward", t] -= scores
        why.append("the router runs on the gathered tokens, its scores are not stored in parts")
    return more, why


def inputs(record: dict[str, Any], stage: int) -> int | Fraction:
    """The bytes that are derived as kept, and that the run counts apart: ids, positions and labels, 8 bytes each.

    Megatron's vocabulary-parallel embedding and loss keep which tokens are theirs (a byte each) and shifted ids in
    their place, and no mean of the loss.
    """
    z, said = record["sizes"], record["strategy"]
    data, t = degrees(record)
    stages = record.get("stages", [1])
    batches = record.get("m", 1)
    # Of 1F1B, as many microbatches are in flight as stages follow; of GPipe all are.
    flying = min(batches, len(stages) - stage) if "1f1b" in said else batches
    ranks = record["ranks"] if said in ("ddp", "cp", "ep") or (said.startswith("fsdp2") and "x" not in said) else data
    tokens = record["global_batch"] * z["L"] * flying // ranks // batches
    first, last = stage == 0, stage == len(stages) - 1
    positions = Fraction(8, t if "sp" in said else 1) if record["model"].startswith("gpt2") else Fraction(0)
    found = tokens * ((8 + positions if first else 0) + (8 if last else 0))
    if said.startswith("megatron") or (said.endswith((".tp", ".sp")) and said.startswith("pp")):
        found -= 9 * tokens * (first + last) - (4 * flying if last else 0)
    return found


def kept_otherwise(record: dict[str, Any], stage: int) -> tuple[Fraction, list[str]]:
    """The bytes that a rank of a stage keeps more than is derived, and why, by name."""
    z, said = record["sizes"], record["strategy"]
    if record["model"] != "mixtral":
        return Fraction(0), []
    _, tensor = degrees(record)
    stages, batches = record.get("stages", [z["N"]]), record.get("m", 1)
    flying = min(batches, len(stages) - stage) if "1f1b" in said else batches
    # Sequences of one rank: those of the step over the data ranks; of context parallelism a part of each.
    share = record["ranks"] if said in ("ddp", "cp", "ep") or said.startswith("fsdp2") else degrees(record)[0]
    tokens = Fraction(record["global_batch"] * z["L"] * flying, share * batches) * stages[stage]
    more, why = tokens * 4 * (z["top"] + 1), ["the chosen weights are divided by their sum, and both are kept"]
    if "sp" in said.replace("fsdp", "") and not said.endswith("keep"):
        more += tokens * 4 * (z["D"] + z["E"]) * (1 - Fraction(1, tensor))
        why.append("the router runs on the gathered tokens, which are kept whole, as its scores are")
    return more, why


def joint_apart(found: Counter[Key], data: int, tensor: int) -> Counter[Key]:
    """A call over the joint group of data and tensor ranks as the two calls that some systems make of it."""
    split: Counter[Key] = Counter()
    for (kind, when, ranks), size in found.items():
        if data > 1 and tensor > 1 and ranks == data * tensor:
            split[kind, when, data] += size
            split[kind, when, tensor] += size
        else:
            split[kind, when, ranks] += size
    return split


def whole(number: Fraction | int) -> int | Fraction:
    """An int where it is one."""
    made = Fraction(number)
    return int(made) if made.denominator == 1 else made
