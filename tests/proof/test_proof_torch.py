"""The one machine against PyTorch: each layer written by hand, its gradients from autograd."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from proof_cases import numbers
from proof_reference import EPSILON_VALUE
from proof_tables import LAYERS, graph

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch = pytest.importorskip("torch")

functional = torch.nn.functional
pytestmark = pytest.mark.torch
Tensors = dict[str, Any]


def normed(x: Any, gain: Any = None, bias: Any = None) -> Any:
    return functional.layer_norm(x, x.shape[-1:], gain, bias, EPSILON_VALUE)


def root_mean(x: Any, gain: Any) -> Any:
    return functional.rms_norm(x, x.shape[-1:], gain, EPSILON_VALUE)


def heads(x: Any, weight: Any, bias: Any = None) -> Any:
    """``x`` times a weight of D × heads × H: batch, heads, positions, H."""
    flat = x @ weight.reshape(weight.shape[0], -1)
    if bias is not None:
        flat = flat + bias.reshape(-1)
    return flat.reshape(*flat.shape[:2], *weight.shape[1:]).transpose(1, 2)


def attention(q: Any, k: Any, v: Any, scale: float, mask: Any = None) -> Any:
    """Scaled dot-product attention; the heads are joined in the result."""
    made = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
    return made.transpose(1, 2).flatten(2)


def joined(weight: Any) -> Any:
    """A weight of ... × D as a matrix."""
    return weight.reshape(-1, weight.shape[-1])


def named(w: Tensors, start: str) -> Any:
    """The constant that the table's reader made and named after a value without a name of its own."""
    (found,) = [tensor for name, tensor in w.items() if name.startswith(start)]
    return found


def homework(w: Tensors) -> Any:
    q, k, v = (heads(w["x"], w[f"W^{n}"]) for n in "QKV")
    out = attention(q, k, v, w["x"].shape[-1] ** -0.5) @ joined(w["W^O"])
    return torch.relu(out @ w["W^1"]) @ w["W^2"]


def prenorm(w: Tensors) -> Any:
    a = w["x"] + torch.relu(normed(w["x"]) @ w["W^1"]) @ w["W^2"]
    return a + torch.relu(normed(a) @ w["W^3"]) @ w["W^4"]


def gpt(w: Tensors) -> Any:
    h = normed(w["x"], w["g"], w["b"])
    q, k, v = (heads(h, w[f"W^{n}"], w[f"b^{n}"]) for n in "QKV")
    o = attention(q, k, v, q.shape[-1] ** -0.5, named(w, "mask(S")) @ joined(w["W^O"]) + w["b^O"]
    a = w["x"] + o * w["mask(O)"]
    hidden = functional.gelu(normed(a, w["g'"], w["b'"]) @ w["W^1"] + w["b^1"])
    return a + hidden @ w["W^2"] + w["b^2"]


def turned(x: Any, cos: Any, sin: Any) -> Any:
    """Rotary positions, written with the two halves."""
    a, b = x.chunk(2, dim=-1)
    (c1, c2), (s1, s2) = cos.chunk(2, dim=-1), sin.chunk(2, dim=-1)
    return torch.cat([a * c1 - b * s1, b * c2 + a * s2], dim=-1)


def llama(w: Tensors) -> Any:
    h = root_mean(w["x"], w["g"])

    def project(weight: Any) -> Any:  # families of weights: heads first
        flat = weight.reshape(-1, *weight.shape[-2:])
        return torch.stack([h @ one for one in flat], dim=1)

    q = turned(project(w["W^Q_i"]), named(w, "cos(Q"), named(w, "sin(Q"))
    k = turned(project(w["W^K_j"]), named(w, "cos(K"), named(w, "sin(K"))
    v = project(w["W^V_j"])
    group = q.shape[1] // k.shape[1]
    k, v = (t.repeat_interleave(group, dim=1) for t in (k, v))
    a = w["x"] + attention(q, k, v, q.shape[-1] ** -0.5, named(w, "mask(S")) @ joined(w["W^O"])
    m = root_mean(a, w["g'"])
    return a + (functional.silu(m @ w["W^1"]) * (m @ w["W^3"])) @ w["W^2"]


def multi_query(w: Tensors) -> Any:
    q = torch.stack([w["x"] @ one for one in w["W^Q_i"]], dim=1)
    k, v = ((w["x"] @ w[f"W^{n}"])[:, None].expand(-1, q.shape[1], -1, -1) for n in "KV")
    return attention(q, k, v, q.shape[-1] ** -0.5) @ joined(w["W^O"])


def cross_attention(w: Tensors) -> Any:
    q, k, v = heads(w["x"], w["W^Q"]), heads(w["c"], w["W^K"]), heads(w["c"], w["W^V"])
    return w["x"] + attention(q, k, v, q.shape[-1] ** -0.5) @ joined(w["W^O"])


def parallel_block(w: Tensors) -> Any:
    h = normed(w["x"])
    q, k, v = (heads(h, w[f"W^{n}"]) for n in "QKV")
    attended = attention(q, k, v, q.shape[-1] ** -0.5) @ joined(w["W^O"])
    return w["x"] + attended + functional.gelu(h @ w["W^1"]) @ w["W^2"]


def experts(gates: Any, x: Any, k: int, slots: int, expert: Callable[[int, Any], Any]) -> Any:
    """Each token by itself through its k experts, as long as they have slots for its row."""
    rows = []
    for b in range(x.shape[0]):
        taken = [0] * gates.shape[-1]
        tokens = []
        for token in range(x.shape[1]):
            total = torch.zeros_like(x[b, token])
            for e in torch.topk(gates[b, token], k).indices.tolist():
                if taken[e] < slots:
                    total = total + gates[b, token, e] * expert(e, x[b, token])
                taken[e] += 1
            tokens.append(total)
        rows.append(torch.stack(tokens))
    return torch.stack(rows)


def mixture(w: Tensors) -> Any:
    gates = torch.softmax(w["x"] @ w["W^R"], dim=-1)
    return w["x"] + experts(gates, w["x"], 2, 2, lambda e, t: torch.relu(t @ w["W^1_e"][e]) @ w["W^2_e"][e])


def mixture_after_dense(w: Tensors) -> Any:
    h = torch.relu(w["x"] @ w["W^1"] + w["b^1"]) @ w["W^2"]
    gates = torch.softmax(h @ w["W^R"], dim=-1)

    def expert(e: int, t: Any) -> Any:
        return (functional.silu(t @ w["W^3_e"][e]) * (t @ w["W^4_e"][e])) @ w["W^5_e"][e]

    return h + experts(gates, h, 2, 2, expert)


def lora(w: Tensors) -> Any:
    return functional.linear(w["x"], (w["W"] + w["A"] @ w["C"]).T)


def lora_block(w: Tensors) -> Any:
    h = torch.relu(w["x"] @ (w["W^1"] + w["A"] @ w["C"]))
    return h @ (w["W^2"] + w["P"] @ w["S"])


def language_model(w: Tensors) -> Any:
    x = functional.embedding(w["t"], w["W^E"])
    logits = (x + torch.relu(x @ w["W^1"]) @ w["W^2"]) @ w["W^U"]
    return functional.cross_entropy(logits.flatten(0, 1), w["s"].flatten())


def positions(w: Tensors) -> Any:
    x = functional.embedding(w["t"], w["W^E"]) + functional.embedding(w["q"], w["W^R"])
    return torch.tanh(x @ w["W^1"]) @ w["W^2"]


def tied(w: Tensors) -> Any:
    logits = torch.tanh(functional.embedding(w["t"], w["W^E"]) @ w["W^1"]) @ w["W^E"].T
    return functional.cross_entropy(logits.flatten(0, 1), w["s"].flatten())


def convolutions(w: Tensors) -> Any:
    a = torch.relu(functional.conv2d(w["x"], w["W^1"], w["b"], padding=1))
    return functional.conv2d(a, w["W^2"], stride=2)


def bags(w: Tensors) -> Any:
    found = [functional.embedding_bag(t, table, mode="sum") for t, table in zip(*by_table(w), strict=True)]
    h = torch.tanh(w["x"] @ w["W^1"])
    return torch.tanh(h @ w["W^2"] + torch.cat(found, -1) @ joined(w["W^3"])) @ w["W^4"]


def by_table(w: Tensors) -> tuple[Any, Any]:
    """The ids and the tables, table by table."""
    ids, tables = w["t_i"], w["W^E_i"]
    return ids.movedim(ids.shape.index(len(tables)), 0), tables


WRITTEN: dict[str, Callable[[Tensors], Any]] = {
    "homework": homework,
    "pre-norm": prenorm,
    "sequence first": prenorm,
    "gpt": gpt,
    "llama": llama,
    "multi-query": multi_query,
    "cross-attention": cross_attention,
    "parallel block": parallel_block,
    "mixture of experts": mixture,
    "experts after a dense layer": mixture_after_dense,
    "lora": lora,
    "lora block": lora_block,
    "language model": language_model,
    "tied embeddings": tied,
    "position table": positions,
    "tables of bags": bags,
    "convolutions": convolutions,
}


@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_and_its_gradients_equal_those_of_pytorch(layer: str) -> None:
    _, given, found = numbers(layer, "training", (2,))
    tensors = {name: torch.tensor(array) for name, array in given.items()}
    wanted = [t.name for t in (*graph(layer).weights, *graph(layer).inputs)]
    for name in wanted:
        tensors[name].requires_grad_()
    result = WRITTEN[layer](tensors)
    (output,) = graph(layer).outputs
    assert np.allclose(result.detach().numpy(), found[output.name], rtol=1e-9, atol=1e-11)
    result.backward(tensors[f"d({output.name})"])
    for name in wanted:
        assert np.allclose(tensors[name].grad.numpy(), found[f"d({name})"], rtol=1e-8, atol=1e-10), name


@pytest.mark.parametrize(
    ("kind", "function"),
    [
        ("relu", torch.relu),
        ("squared_relu", lambda u: torch.relu(u) ** 2),
        ("gelu", functional.gelu),
        ("silu", functional.silu),
        ("sigmoid", torch.sigmoid),
        ("tanh", torch.tanh),
        ("exp", torch.exp),
        ("softmax", lambda u: torch.softmax(u, -1)),
        ("layernorm", normed),
        ("rmsnorm", lambda u: root_mean(u, None)),
    ],
)
def test_a_map_equals_the_function_of_pytorch(kind: str, function: Callable[[Any], Any]) -> None:
    _, given, found = numbers(f"{kind}, around", "training", (2,))
    assert np.allclose(function(torch.tensor(given["x"])).numpy(), found["h"], rtol=1e-12, atol=1e-14)
    assert np.allclose(function(torch.tensor(found["b"])).numpy(), found["y"], rtol=1e-10, atol=1e-12)
