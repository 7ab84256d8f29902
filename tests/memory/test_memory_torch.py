"""What is saved for backward equals, to the byte, what eager PyTorch really keeps.

The bytes are those of the unique storages that autograd packs, without weights and without the tables that never change
(causal masks, rotations).
"""

from __future__ import annotations

from typing import Any

import memory_tables as tables
import pytest

torch = pytest.importorskip("torch")
from torch_memory import dropout, joined, kept_bytes, repeated, split, turned  # noqa: E402  (needs torch)

pytestmark = pytest.mark.torch
functional = torch.nn.functional

Weights = dict[str, Any]


def homework(x: Any, w: Weights, n: dict[str, int]) -> Any:
    q, k, v = (split(functional.linear(x, w[i]), n["n_h"]) for i in "QKV")
    scores = torch.softmax(q @ k.transpose(-2, -1) / n["H"] ** 0.5, -1)
    out = functional.linear(joined(scores @ v), w["O"])
    return functional.linear(torch.relu(functional.linear(out, w["1"])), w["2"])


def gpt(x: Any, w: Weights, n: dict[str, int]) -> Any:
    h = functional.layer_norm(x, (n["D"],), w["g"], w["e"])
    q, k, v = (split(functional.linear(h, w[i], w[f"b{i}"]), n["n_h"]) for i in "QKV")
    scores = (q @ k.transpose(-2, -1) / n["H"] ** 0.5).masked_fill(w["mask"], float("-inf"))
    z = joined(dropout(torch.softmax(scores, -1)) @ v)
    a = x + dropout(functional.linear(z, w["O"], w["bO"]))
    m = functional.layer_norm(a, (n["D"],), w["g2"], w["e2"])
    u = functional.gelu(functional.linear(m, w["1"], w["b1"]))
    return a + dropout(functional.linear(u, w["2"], w["b2"]))


def llama(x: Any, w: Weights, n: dict[str, int]) -> Any:
    h = functional.rms_norm(x, (n["D"],), w["g"])
    q, k, v = (split(functional.linear(h, w[i]), n[c]) for i, c in (("Q", "n_h"), ("K", "n_k"), ("V", "n_k")))
    q, k = turned(q, w["cos"], w["sin"]), turned(k, w["cos"], w["sin"])
    k, v = (repeated(y, n["n_h"] // n["n_k"]) for y in (k, v))
    scores = torch.softmax((q @ k.transpose(-2, -1) / n["H"] ** 0.5).masked_fill(w["mask"], float("-inf")), -1)
    a = x + functional.linear(joined(scores @ v), w["O"])
    m = functional.rms_norm(a, (n["D"],), w["g2"])
    return a + functional.linear(functional.silu(functional.linear(m, w["1"])) * functional.linear(m, w["3"]), w["2"])


def by_hand(x: Any, w: Weights, n: dict[str, int]) -> Any:
    q, k, v = x
    scores = q @ k.transpose(-2, -1) / n["d"] ** 0.5
    powers = torch.exp(scores - scores.max(-1, keepdim=True).values)
    return (powers / powers.sum(-1, keepdim=True)) @ v


def weights(n: dict[str, int]) -> Weights:
    d, f = n["D"], n.get("F", 4 * n["D"])
    narrow = n.get("n_k", n["n_h"]) * n["H"]
    shapes = {"Q": (d, d), "K": (narrow, d), "V": (narrow, d), "O": (d, d), "1": (f, d), "3": (f, d), "2": (d, f),
              **{f"b{i}": (d,) for i in "QKVO2"}, "b1": (f,), "g": (d,), "e": (d,), "g2": (d,), "e2": (d,)}  # fmt: skip
    found = {name: torch.randn(shape, requires_grad=True) for name, shape in shapes.items()}
    found["mask"] = torch.ones(n["L"], n["L"], dtype=torch.bool).triu(1)
    found["cos"], found["sin"] = torch.rand(n["L"], n["H"]), torch.rand(n["L"], n["H"])
    return found


LAYERS = {"homework": (tables.HOMEWORK, homework), "gpt": (tables.GPT, gpt), "llama": (tables.LLAMA, llama)}
SIZES = (
    {"B": 2, "L": 24, "D": 32, "n_h": 4, "H": 8, "F": 80, "n_k": 2},
    {"B": 3, "L": 40, "D": 96, "n_h": 6, "H": 16, "F": 256, "n_k": 3},
)


@pytest.mark.parametrize("sizes", SIZES, ids=["small", "larger"])
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_has_the_parameters_and_keeps_for_backward_the_bytes_of_eager_pytorch(name, sizes):
    table, run = LAYERS[name]
    lacks = {"homework": {"n_k", "F"}, "gpt": {"n_k"}, "llama": set()}[name]  # the homework's hidden axis is 4D
    n = {k: size for k, size in sizes.items() if k not in lacks}
    given = weights(n)
    x = torch.randn(n["B"], n["L"], n["D"], requires_grad=True)
    measured = kept_bytes(lambda: run(x, given, n), given.values())
    model = tables.load(table, dtype="fp32")
    assert model.activation_memory(accounting="pytorch").at(**n).value == measured
    run(x, given, n).sum().backward()
    parameters = sum(w.numel() for w in given.values() if w.grad is not None)  # those that this layer uses
    assert model.parameters().at(**n).value == parameters


@pytest.mark.parametrize("sizes", [{"b": 2, "s": 24, "d": 8}, {"b": 8, "s": 64, "d": 16}], ids=["small", "larger"])
def test_attention_with_softmax_written_by_hand_keeps_two_score_matrices_and_numbers_for_each_row(sizes):
    operands = [torch.randn(sizes["b"], sizes["s"], sizes["d"], requires_grad=True) for _ in "QKV"]
    measured = kept_bytes(lambda: by_hand(operands, {}, sizes), ())
    model = tables.load(tables.ATTENTION, dtype="fp32", inputs=("Q", "K", "V"))
    derived = model.activation_memory(accounting={"saved": "pytorch", "softmax": "by_hand"}).at(**sizes)
    assert derived.value == measured


@pytest.mark.parametrize("kind", ["relu", "gelu", "silu", "sigmoid", "tanh", "softmax", "exp"])
def test_a_function_keeps_what_its_record_says(kind):
    """One function between two products, so that its operand and its result have storages of their own."""
    rows = (
        "u = x W ; x [B,D], W [D,F] ; u [B,F]",
        f"y = {kind}(u) ; - ; y [B,F]",
        "z = y U ; U [F,D] ; z [B,D]",
    )
    sizes = {"B": 6, "D": 16, "F": 40}
    x, w, u = (torch.randn(shape, requires_grad=True) for shape in ((6, 16), (16, 40), (40, 16)))
    functions = {"gelu": functional.gelu, "silu": functional.silu, "softmax": lambda t: torch.softmax(t, -1)}
    function = functions.get(kind) or getattr(torch, kind)
    measured = kept_bytes(lambda: function(x @ w) @ u, (w, u))
    derived = tables.load(tables.table(*rows), dtype="fp32").activation_memory(accounting="pytorch")
    assert derived.at(**sizes).value == measured


def test_a_frozen_weight_needs_no_input_kept():
    """The base of LoRA is frozen: its input is kept only where an adapter reads it as well."""
    rows = ("h = relu(x W) ; x [B,D], W [D,F] ; h [B,F]", "y = h U + h A C ; U [F,D], A [F,R], C [R,D] ; y [B,D]")
    x = torch.randn(6, 16, requires_grad=True)
    w, u = torch.randn(16, 40), torch.randn(40, 16)
    a, c = torch.randn(40, 2, requires_grad=True), torch.randn(2, 16, requires_grad=True)

    def run() -> Any:
        h = torch.relu(x @ w)
        return h @ u + h @ a @ c

    measured = kept_bytes(run, (w, u, a, c))
    model = tables.load(tables.table(*rows), dtype="fp32")
    assert model.activation_memory(accounting="pytorch", frozen="W, U").at(B=6, D=16, F=40, R=2).value == measured
