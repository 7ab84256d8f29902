"""Steps of generating text: each equals the last rows of a full run, and every rank agrees with one machine."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import numpy as np
import pytest
from api import Accounting, Graph, again, parse_strategy, plan, value
from proof_cases import Case, superfluous
from proof_ranks import Mesh, same
from proof_reference import Array, Sizes, outside, run

import symcomm as sc

EVERY = 8  # positions of the full run
LLAMA = {"model_type": "llama", "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 4, "head_dim": 6,
         "num_key_value_heads": 2, "intermediate_size": 12, "vocab_size": 16,
         "architectures": ["LlamaForCausalLM"]}  # fmt: skip
LATENT = {"model_type": "deepseek_v3", "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 4,
          "qk_nope_head_dim": 6, "qk_rope_head_dim": 2, "v_head_dim": 10, "kv_lora_rank": 12, "q_lora_rank": 14,
          "first_k_dense_replace": 2, "intermediate_size": 18, "moe_intermediate_size": 4, "n_routed_experts": 2,
          "num_experts_per_tok": 1, "vocab_size": 16,
          "architectures": ["DeepseekV3ForCausalLM"]}  # fmt: skip
MODELS: dict[str, dict[str, Any]] = {
    "grouped heads": LLAMA,
    "a window": LLAMA | {"model_type": "mistral", "sliding_window": 4, "architectures": ["MistralForCausalLM"]},
    "learned positions": {"model_type": "gpt2", "n_embd": 8, "n_layer": 1, "n_head": 4, "n_inner": 12, "vocab_size": 16,
                          "n_positions": 16, "architectures": ["GPT2LMHeadModel"]},
    "latents": LATENT,
}  # fmt: skip
CACHES = ("latent", "heads", "heads_with_rope", "smallest")
STRATEGIES = ("data(2)", "tensor(2)", "context(2)", "tensor(2) + context(2)", "tensor(2) + cut(D, 2)")


@cache
def step(name: str, new: int, past: int, **said: str) -> tuple[Graph, dict[str, int]]:
    made = sc.load(json.dumps(MODELS[name])).decode(new=new, past=past)
    graph = again(made.graph, Accounting.of(**said))
    return graph, {symbol: int(number) for symbol, number in graph.relations.complete(made.values).items()} | {"B": 2}


@cache
def full(name: str) -> tuple[dict[str, Array], dict[str, Array]]:
    graph, values = step(name, EVERY, 0)
    sizes = Sizes(graph, values)
    given = outside(sizes)
    for op in (op for op in graph.ops if op.kind == "mask" and op.attribute("positions") is not None):
        near = np.tri(EVERY) - np.tri(EVERY, k=-values[str(op.attribute("positions"))])
        given[op.inputs[1]] = np.where(near > 0, 0.0, -50.0)
    return given, run(sizes, given)


def rows(sizes: Sizes, tensor: str, array: Array) -> Array:
    """The last positions of a tensor of the full run, as many as a step has of it."""
    graph = sizes.graph
    assert graph.step is not None
    for place, axis in enumerate(graph.tensors[tensor].axes):
        if axis in (*graph.step.stream, *graph.step.behind):
            array = array.take(range(EVERY - sizes.axes[axis], EVERY), axis=place)
    return array


def given_to(name: str, sizes: Sizes, new: int) -> dict[str, Array]:
    """What a step reads from outside: weights and constants of the full run, and what its earlier rows left."""
    (before, every), graph = full(name), sizes.graph
    assert graph.step is not None
    found: dict[str, Array] = {}
    held = {one.before: one.tensor for one in graph.step.kept}
    for tensor in graph.tensors:
        if tensor in graph.producers:
            continue
        if tensor.startswith("place("):
            found[tensor] = np.eye(sizes.axes[graph.tensors[tensor].axes[1]])[-new:]
        elif tensor in held:
            kept = held[tensor].replace("^heads", "")
            array, axes = every[kept], graph.tensors[tensor].axes
            for axis in axes[: len(axes) - array.ndim]:  # once for each head
                array = np.broadcast_to(array, (sizes.axes[axis], *array.shape))
            array = rows(sizes, tensor, array).copy()
            place = next(n for n, axis in enumerate(axes) if axis in graph.step.behind)
            np.moveaxis(array, place, 0)[-new:] = 0
            found[tensor] = array
        else:
            found[tensor] = rows(sizes, tensor, before[tensor])
    return found


CASES = [
    (name, new, said) for name in MODELS for new in (1, 2)
    for said in ({}, *({"cache": cache} for cache in CACHES[1:]), {"mla": "expanded"}, {"cached_keys": "plain"})
]  # fmt: skip


@pytest.mark.few(16)
@pytest.mark.parametrize(("name", "new", "said"), CASES)
def test_a_step_equals_the_last_rows_of_a_full_run(name: str, new: int, said: dict[str, str]) -> None:
    graph, values = step(name, new, EVERY - new, **said)
    sizes = Sizes(graph, values)
    found, (_, every) = run(sizes, given_to(name, sizes, new)), full(name)
    compared = [one for one in graph.producers if one in every and "·all" not in one]
    assert len(compared) > 8
    wrong = [one for one in compared if not same(found[one], rows(sizes, one, every[one]))]
    assert wrong == []


def case(name: str, strategy: str, new: int, said: dict[str, str]) -> Case:
    graph, values = step(name, new, EVERY - new, **said)
    given = given_to(name, Sizes(graph, values), new)
    made = plan(graph, parse_strategy(strategy))
    mesh = Mesh({axis: int(value(size)) for axis, size in made.strategy.sizes.items()})
    return Case(made, Sizes(made.graph, values), mesh, Accounting(), given, run(Sizes(graph, values), given))


@pytest.mark.few(16)
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(("name", "new", "said"), [one for one in CASES if one[0] != "a window" or one[1] == 1])
def test_every_rank_of_a_step_agrees_with_one_machine(name: str, new: int, said: dict[str, str], strategy: str) -> None:
    one = case(name, strategy, new, said)
    ranks = one.start()
    for _ in ranks.steps():
        pass
    made = [tensor for tensor in ranks.store if tensor in one.plan.graph.producers]
    assert {*made} == {*one.plan.graph.producers}
    assert ranks.differences(one.reference, made) == []


@pytest.mark.parametrize("strategy", STRATEGIES[1:])
@pytest.mark.parametrize("name", ["grouped heads", "latents"])
def test_no_call_of_a_step_is_superfluous(name: str, strategy: str) -> None:
    assert superfluous(case(name, strategy, 1, {})) == []
