"""Autocast against PyTorch: what it keeps for backward on a CPU, and in which formats its ops run."""

from __future__ import annotations

from typing import Any

import pytest
from api import Autocast, result_format

import symcomm as sc

torch: Any = pytest.importorskip("torch")
from torch_memory import kept_bytes  # noqa: E402

pytestmark = pytest.mark.torch
N = {"B": 6, "L": 10, "D": 16, "F": 24, "C": 8}
HEAD = "| Computation | Input | Output |\n|---|---|---|\n"


def rows(*lines: tuple[str, str, str]) -> str:
    return HEAD + "".join(f"| {a} | {b} | {c} |\n" for a, b, c in lines)


MLP = rows(
    ("h = linear(x, W^1, b^1)", "x [B, D], $W^1$ [D, F], $b^1$ [F]", "h [B, F]"),
    ("r = relu(h)", "-", "r [B, F]"),
    ("n = layernorm(r, g, s)", "g [F], s [F]", "n [B, F]"),
    ("y = linear(n, W^2, b^2)", "$W^2$ [F, C], $b^2$ [C]", "y [B, C]"),
)
TWICE = rows(
    ("p = linear(x, W^1)", "x [B, D], $W^1$ [D, F]", "p [B, F]"),
    ("q = silu(linear(x, W^2))", "$W^2$ [D, F]", "q [B, F]"),
    (r"h = p \odot q", "-", "h [B, F]"),
    ("y = x + linear(h, W^3)", "$W^3$ [F, D]", "y [B, D]"),
)
ATTENTION = rows(
    ("Q = x W^Q", "x [B, L, D], $W^Q$ [D, D]", "Q [B, L, D]"),
    ("K = x W^K", "$W^K$ [D, D]", "K [B, L, D]"),
    ("S = Q K^T", "-", "S [B, L, L]"),
    ("P = softmax(S)", "-", "P [B, L, L]"),
    ("y = P K", "-", "y [B, L, D]"),
)


def run(name: str) -> tuple[Any, list[Any], Any]:
    shape = (N["B"], N["D"]) if name != "attention" else (N["B"], N["L"], N["D"])
    leaf = torch.randn(*shape, requires_grad=True)
    x = leaf * 1.0  # an activation, whose copies are not kept for the next reader, as that of a leaf would be
    F = torch.nn.functional
    if name == "mlp":
        one, two, norm = torch.nn.Linear(N["D"], N["F"]), torch.nn.Linear(N["F"], N["C"]), torch.nn.LayerNorm(N["F"])
        return lambda: two(norm(F.relu(one(x)))), [*one.parameters(), *two.parameters(), *norm.parameters()], x
    if name == "twice":
        one, two = (torch.nn.Linear(N["D"], N["F"], bias=False) for _ in "ab")
        three = torch.nn.Linear(N["F"], N["D"], bias=False)
        every = [p for layer in (one, two, three) for p in layer.parameters()]
        return lambda: x + three(one(x) * F.silu(two(x))), every, x
    q, k = (torch.nn.Linear(N["D"], N["D"], bias=False) for _ in "qk")

    def attend() -> Any:
        keys = k(x)
        return F.softmax(q(x) @ keys.transpose(-1, -2), -1) @ keys

    return attend, [*q.parameters(), *k.parameters()], x


@pytest.mark.parametrize("low", ["fp16", "bf16"])
@pytest.mark.parametrize(("name", "text"), [("mlp", MLP), ("twice", TWICE), ("attention", ATTENTION)])
def test_what_is_kept_under_autocast_is_what_pytorch_keeps(name: str, text: str, low: str) -> None:
    call, parameters, _ = run(name)

    def inside() -> Any:
        with torch.autocast("cpu", dtype=torch.float16 if low == "fp16" else torch.bfloat16):
            return call()

    theirs = kept_bytes(inside, parameters)
    ours = sc.load(text).activation_memory(dtype=f"autocast({low}, cpu)", accounting={"saved": "pytorch"})
    assert ours.at(**{n: v for n, v in N.items() if n in ours.needs}).value == theirs


OPS = {
    "product": lambda a, w: a @ w, "elementwise": lambda a, w: a * w, "add": lambda a, w: a + w,
    "relu": lambda a, w: torch.relu(a), "gelu": lambda a, w: torch.nn.functional.gelu(a),
    "silu": lambda a, w: torch.nn.functional.silu(a), "sigmoid": lambda a, w: torch.sigmoid(a),
    "tanh": lambda a, w: torch.tanh(a), "softmax": lambda a, w: torch.softmax(a, -1), "exp": lambda a, w: torch.exp(a),
    "layernorm": lambda a, w: torch.nn.functional.layer_norm(a, (4,)), "sum": lambda a, w: a.sum(),
    "rmsnorm": lambda a, w: torch.nn.functional.rms_norm(a, (4,)), "mean": lambda a, w: a.mean(),
    "squared_relu": lambda a, w: torch.relu(a).pow(2),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("device", ["cuda", "cpu"])
@pytest.mark.parametrize("name", OPS)
def test_ops_run_in_the_formats_that_pytorch_dispatches_them_in(name: str, device: str) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode  # no GPU is needed for its dispatch

    kinds = {"fp16": torch.float16, "fp32": torch.float32}
    with FakeTensorMode(allow_non_fake_inputs=True):
        for pair in (("fp32", "fp32"), ("fp16", "fp16"), ("fp16", "fp32"), ("fp32", "fp16")):
            a, w = (torch.empty(4, 4, dtype=kinds[one], device=device) for one in pair)
            torch.set_autocast_enabled(device, True)
            torch.set_autocast_dtype(device, torch.float16)
            try:
                made = OPS[name](a, w).dtype
            finally:
                torch.set_autocast_enabled(device, False)
            operands = pair if name in ("product", "elementwise", "add") else pair[:1]
            assert kinds[result_format(name, operands, Autocast("fp16", device))] == made, pair
