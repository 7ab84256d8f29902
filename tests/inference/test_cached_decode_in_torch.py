"""A cached decode in PyTorch: its cache, its operations, and what two ranks of tensor parallelism send, counted.

The model is the one of the transformers library with its own cache; the two ranks run a decode that is written here on
slices of its weights, and must give the same logits.
"""

from __future__ import annotations

import socket
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import symcomm as sc  # noqa: E402

pytestmark = pytest.mark.torch
BATCH, PROMPT, STEPS = 3, 7, 4
SIZES = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 8,
         "num_key_value_heads": 4, "vocab_size": 120}  # fmt: skip


def torch_model(**other: Any) -> Any:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**SIZES, **other, attn_implementation="eager")
    return transformers.LlamaForCausalLM(config).eval()


def derived() -> sc.Model:
    return sc.load({"model_type": "llama", "architectures": ["LlamaForCausalLM"], **SIZES, "torch_dtype": "float32"})


def ids() -> Any:
    return torch.randint(0, SIZES["vocab_size"], (BATCH, PROMPT + STEPS), generator=torch.Generator().manual_seed(1))


def cache_bytes(cache: Any) -> int:
    return sum(t.numel() * t.element_size() for layer in cache.layers for t in (layer.keys, layer.values))


def counted(run: Any) -> tuple[int, Any]:
    from torch.utils.flop_counter import FlopCounterMode

    with torch.no_grad(), FlopCounterMode(display=False) as flops:
        made = run()
    return flops.get_total_flops(), made


def test_the_cache_and_the_operations_of_each_step_are_those_that_pytorch_counts() -> None:
    theirs, mine, tokens = torch_model(), derived(), ids()
    cache = transformers.DynamicCache()
    flops, _ = counted(lambda: theirs(tokens[:, :PROMPT], past_key_values=cache, logits_to_keep=1))
    assert mine.prefill(PROMPT).flops().at(B=BATCH).value == flops
    for at in range(PROMPT, PROMPT + STEPS):
        assert mine.kv_cache("batch", tokens=at).at(B=BATCH).value == cache_bytes(cache)
        flops, _ = counted(lambda at=at: theirs(tokens[:, at : at + 1], past_key_values=cache))
        assert mine.decode(past=at).flops().at(B=BATCH).value == flops
    drafts = PROMPT + STEPS - 3
    cache.crop(-3)
    flops, _ = counted(lambda: theirs(tokens[:, drafts:], past_key_values=cache))  # three drafted tokens at once
    assert mine.decode(new=3, past=drafts).flops().at(B=BATCH).value == flops


# -- two ranks, each with half the heads, half of the wide matrices, and half of the words -------------------------


def rotated(x: Any, at: int, head: int) -> Any:
    turns = 1 / 10000 ** (torch.arange(0, head, 2) / head)
    angles = torch.cat([torch.arange(at, at + x.shape[2])[:, None] * turns] * 2, -1)
    low, high = x.chunk(2, -1)
    return x * angles.cos() + torch.cat([-high, low], -1) * angles.sin()


class RankOfTwo:
    """What one rank has of the weights, its part of the cache, and what it has sent."""

    def __init__(self, rank: int) -> None:
        self.rank, self.sent, self.model = rank, list[tuple[str, int]](), torch_model().model
        self.head = torch_model().lm_head.weight.chunk(2)[rank]
        self.cache: list[tuple[Any, Any]] = []

    def mine(self, linear: Any, axis: int) -> Any:
        return linear.weight.chunk(2, axis)[self.rank]

    def added(self, x: Any) -> Any:
        torch.distributed.all_reduce(x := x.contiguous())
        self.sent.append(("all-reduce", x.numel() * x.element_size()))
        return x

    def step(self, tokens: Any, at: int) -> Any:
        half = SIZES["vocab_size"] // 2
        words, own = self.mine(self.model.embed_tokens, 0), tokens - self.rank * half
        inside = ((own >= 0) & (own < half))[..., None]
        x = self.added(words[own.clamp(0, half - 1)] * inside)
        before, self.cache = self.cache, []
        for number, layer in enumerate(self.model.layers):
            n = layer.input_layernorm(x)
            size = SIZES["hidden_size"] // SIZES["num_attention_heads"]
            q, k, v = (
                (n @ self.mine(one, 0).T).unflatten(-1, (-1, size)).transpose(1, 2)
                for one in (layer.self_attn.q_proj, layer.self_attn.k_proj, layer.self_attn.v_proj)
            )
            q, k = rotated(q, at, size), rotated(k, at, size)
            if before:
                k, v = (torch.cat([old, new], 2) for old, new in zip(before[number], (k, v), strict=True))
            self.cache.append((k, v))
            group = q.shape[1] // k.shape[1]
            scores = q @ k.repeat_interleave(group, 1).transpose(2, 3) / size**0.5
            hidden = torch.arange(k.shape[2]) > torch.arange(at, at + q.shape[2])[:, None]
            z = scores.masked_fill(hidden, float("-inf")).softmax(-1) @ v.repeat_interleave(group, 1)
            x = x + self.added(z.transpose(1, 2).flatten(2) @ self.mine(layer.self_attn.o_proj, 1).T)
            n, mlp = layer.post_attention_layernorm(x), layer.mlp
            wide = torch.nn.functional.silu(n @ self.mine(mlp.gate_proj, 0).T) * (n @ self.mine(mlp.up_proj, 0).T)
            x = x + self.added(wide @ self.mine(mlp.down_proj, 1).T)
        return self.model.norm(x[:, -1:]) @ self.head.T


def two_ranks(rank: int, port: int, found: Any) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    one, tokens = RankOfTwo(rank), ids()
    with torch.no_grad():
        one.step(tokens[:, :PROMPT], 0)
        held, one.sent = sum(t.numel() * t.element_size() for pair in one.cache for t in pair), []
        flops, logits = counted(lambda: one.step(tokens[:, PROMPT : PROMPT + 1], PROMPT))
    found.put((rank, held, flops, one.sent, logits.tolist()))
    torch.distributed.destroy_process_group()


def test_two_ranks_of_tensor_parallelism_hold_compute_and_send_what_is_derived() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = torch.multiprocessing.get_context("spawn")
    found = context.SimpleQueue()
    ranks = [context.Process(target=two_ranks, args=(rank, port, found)) for rank in range(2)]
    for one in ranks:
        one.start()
    told = sorted(found.get() for _ in ranks)
    for one in ranks:
        one.join()
    cache = transformers.DynamicCache()
    with torch.no_grad():
        torch_model()(ids()[:, :PROMPT], past_key_values=cache)
        wanted = torch_model()(ids()[:, PROMPT : PROMPT + 1], past_key_values=cache).logits
    torch.testing.assert_close(torch.cat([torch.tensor(logits) for *_, logits in told], -1), wanted)
    mine = derived()
    step = mine.decode(past=PROMPT)
    for _, held, flops, sent, _ in told:
        assert held == mine.kv_cache("batch", "tensor(2)", tokens=PROMPT).at(B=BATCH).value
        assert 2 * flops == step.flops().at(B=BATCH).value
        assert {kind for kind, _ in sent} == {"all-reduce"}
        assert sum(size for _, size in sent) == step.communication("tensor(2)").at(B=BATCH).value
        assert len(sent) == 2 * SIZES["num_hidden_layers"] + 1
