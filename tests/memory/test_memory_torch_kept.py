"""What functions and norms keep in eager PyTorch where no kernel of a library does it all, and in narrow formats."""

from __future__ import annotations

import math
from typing import Any

import memory_tables as tables
import pytest

torch = pytest.importorskip("torch")
from test_memory_torch_peaks import alive_in_a_step  # noqa: E402  (needs torch)
from torch_memory import kept_bytes, split  # noqa: E402  (needs torch)

pytestmark = pytest.mark.torch
functional = torch.nn.functional

# As ``transformers.activations`` writes them.
ACTIVATIONS = {
    "gelu": functional.gelu,
    "gelu_new": lambda x: 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0)))),
    "gelu_fast": lambda x: 0.5 * x * (1.0 + torch.tanh(x * 0.7978845608 * (1.0 + 0.044715 * x * x))),
    "gelu_python": lambda x: x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0))),
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
}
ROWS = ("u = x W ; x [B,D], W [D,F] ; u [B,F]", "y = {}(u) ; - ; y [B,F]", "z = y U ; U [F,D] ; z [B,D]")


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_an_activation_that_is_written_out_keeps_what_its_expression_multiplies(name: str, dtype: str) -> None:
    width = {"fp32": torch.float32, "bf16": torch.bfloat16}[dtype]
    x, w, u = (torch.randn(s, dtype=width, requires_grad=True) for s in ((6, 16), (16, 40), (40, 16)))
    measured = kept_bytes(lambda: ACTIVATIONS[name](x @ w) @ u, (w, u))
    model = tables.load(tables.table(*(row.format(name) for row in ROWS)), dtype=dtype)
    assert model.activation_memory(accounting="pytorch").at(B=6, D=16, F=40).value == measured


def llama_norm(x: Any, gain: Any) -> Any:
    """As LlamaRMSNorm of ``transformers`` does it."""
    wide = x.to(torch.float32)
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
    return gain * wide.to(x.dtype)


@pytest.mark.parametrize("trained", [True, False], ids=["input trained", "input not trained"])
@pytest.mark.parametrize(("dtype", "width"), [("fp32", torch.float32), ("bf16", torch.bfloat16)])
@pytest.mark.parametrize("norm", ["rmsnorm", "layernorm"])
def test_a_norm_keeps_its_rows_and_its_operand_wide(norm: str, dtype: str, width: Any, trained: bool) -> None:
    """On the CPU layer norm keeps the statistics of its rows in the format of its gain, on a GPU in fp32."""
    x = torch.randn(6, 16, dtype=width, requires_grad=trained)
    g, e = (torch.randn(16, dtype=width, requires_grad=True) for _ in "ge")
    w = torch.randn(16, 8, dtype=width, requires_grad=True)
    if norm == "rmsnorm":
        measured, wide = kept_bytes(lambda: llama_norm(x, g) @ w, (g, w)), 0
    else:
        measured = kept_bytes(lambda: functional.layer_norm(x, (16,), g, e) @ w, (g, e, w))
        wide = 2 * 6 * (4 - width.itemsize)
    call = "rmsnorm(x, g)" if norm == "rmsnorm" else "layernorm(x, g, e)"
    bias = "" if norm == "rmsnorm" else ", e [D]"
    rows = (f"h = {call} ; x [B,D], g [D]{bias} ; h [B,D]", "y = h W ; W [D,F] ; y [B,F]")
    model = tables.load(tables.table(*rows), dtype=dtype)
    said = {"saved": "pytorch", "input_gradient": "needed" if trained else "not_needed"}
    assert model.activation_memory(accounting=said).at(B=6, D=16, F=8).value == measured + wide


@pytest.mark.parametrize("n", [{"B": 2, "L": 16, "D": 32, "n_h": 8, "n_k": 2, "H": 4}])
def test_a_fused_attention_keeps_the_heads_of_keys_and_values_once(n: dict[str, int]) -> None:
    rows = (
        r"$Q_i = h W_i^Q, i = 1, \dots, n_h$ ; h [B,L,D], $W_i^Q \in R^{D \times H}$ ; Q_i [B,L,H]",
        *(rf"${m}_j = h W_j^{m}, j = 1, \dots, n_k$ ; $W_j^{m} \in R^{{D \times H}}$ ; {m}_j [B,L,H]" for m in "KV"),
        *(rf"${m}'_i = Repeat({m}_j), i = 1, \dots, n_h, j = 1, \dots, n_k$ ; - ; {m}'_i [B,L,H]" for m in "KV"),
        r"$S_i = softmax(\frac{Q_i K_i'^T}{\sqrt{H}}), i = 1, \dots, n_h$ ; - ; S_i [B,L,L]",
        r"$Z_i = S_i V'_i, i = 1, \dots, n_h$ ; - ; Z_i [B,L,H]",
    )
    h = torch.randn(n["B"], n["L"], n["D"], requires_grad=True)
    ws = [torch.randn(n["D"], count * n["H"], requires_grad=True) for count in (n["n_h"], n["n_k"], n["n_k"])]

    def run() -> Any:
        q, k, v = (split(h @ w, w.shape[1] // n["H"]) for w in ws)
        return functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)

    model = tables.load(tables.table(*rows), dtype="fp32")
    said = {"saved": "pytorch", "softmax": "fused"}
    assert model.activation_memory(accounting=said).at(**n).value == kept_bytes(run, ws)


@pytest.mark.parametrize("n", [{"b": 2, "s": 64, "d": 4}, {"b": 1, "s": 32, "d": 64}, {"b": 1, "s": 48, "d": 16}])
def test_the_peak_of_a_softmax_written_by_hand_is_that_of_pytorch(n: dict[str, int]) -> None:
    """As document 002 writes it: a function of its own, in a function that still holds the scores."""
    q, k, v = (torch.randn(n["b"], n["s"], n["d"], requires_grad=True) for _ in range(3))

    def softmax(x: Any) -> Any:
        powers = torch.exp(x - torch.max(x, dim=-1, keepdim=True).values)
        return powers / torch.sum(powers, dim=-1, keepdim=True)

    def run() -> Any:
        scores = torch.einsum("bqd,bkd->bqk", q, k) / math.sqrt(n["d"])
        return (softmax(scores) @ v).mean()

    model = tables.load(tables.ATTENTION, dtype="fp32", inputs=("Q", "K", "V"), values=n)
    said = {"saved": "pytorch", "softmax": "by_hand"}
    derived = model.peak_memory(recipe="fp32_sgd", accounting=said, held="Q, K, V")
    assert 0 <= alive_in_a_step([q, k, v], run) - derived.at().value <= 8  # the loss and its gradient


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("n", [{"B": 64, "D": 4, "F": 32}, {"B": 8, "D": 16, "F": 4}])
def test_the_peak_of_an_activation_that_is_written_out_is_that_of_pytorch(name: str, n: dict[str, int]) -> None:
    rows = (*(row.format(name) for row in ROWS), "l = mean(z) ; - ; $l \\in R$")
    x = torch.randn(n["B"], n["D"])
    w, u = (torch.randn(s, requires_grad=True) for s in ((n["D"], n["F"]), (n["F"], n["D"])))
    model = tables.load(tables.table(*rows), dtype="fp32", values=n)
    said = {"saved": "pytorch", "input_gradient": "not_needed"}
    derived = model.peak_memory(recipe="fp32_sgd", accounting=said, held="x").at().value
    assert 0 <= alive_in_a_step([x, w, u], lambda: (ACTIVATIONS[name](x @ w) @ u).mean()) - derived <= 8
