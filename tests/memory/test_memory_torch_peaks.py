"""Whole models and peaks against PyTorch: what is kept of a hand-written model, and what is alive at the peak."""

from __future__ import annotations

from typing import Any

import memory_tables as tables
import pytest
import whole_models as models

from symcomm.form import evaluate, from_expr

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

SIZES = {"B": 2, "L": 24, "D": 32, "F": 96, "n_h": 4, "N_layer": 3, "V": 50}


class Alive:
    """Counts the bytes of all storages that are alive, after each op; ``peak`` is the most there was."""

    def __init__(self) -> None:
        from torch.multiprocessing.reductions import StorageWeakRef
        from torch.utils._python_dispatch import TorchDispatchMode
        from torch.utils._pytree import tree_leaves

        outer = self
        self.peak, self.seen = 0, {}

        class Mode(TorchDispatchMode):
            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                found = func(*args, **(kwargs or {}))
                for tensor in tree_leaves(found):
                    if isinstance(tensor, torch.Tensor):
                        outer.add(tensor, StorageWeakRef)
                outer.seen = {k: (ref, size) for k, (ref, size) in outer.seen.items() if not ref.expired()}
                outer.peak = max(outer.peak, sum(size for _, size in outer.seen.values()))
                return found

        self.mode, self.reference = Mode, StorageWeakRef

    def add(self, tensor: Any, reference: Any) -> None:
        storage = tensor.untyped_storage()
        self.seen[storage._cdata] = (reference(storage), storage.nbytes())


def norm(x: Any, gain: Any) -> Any:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * gain


def turned(x: Any, cos: Any, sin: Any) -> Any:
    """Rotates pairs with tables of half the width, which each call takes for itself."""
    one, two = x[..., 0::2], x[..., 1::2]
    return torch.stack((cos * one - sin * two, sin * one + cos * two), dim=-1).flatten(-2)


def softmax(x: Any) -> Any:
    powers = torch.exp(x - x.max(-1, keepdim=True)[0])
    return powers / powers.sum(-1, keepdim=True)


def hand_written(ids: Any, w: dict[str, Any], n: dict[str, int], angles: Any) -> Any:
    width = n["D"] // n["n_h"]

    def split(y: Any) -> Any:
        return y.view(n["B"], n["L"], n["n_h"], width).transpose(1, 2)

    x = w["E"][ids]
    for i in range(n["N_layer"]):
        h = norm(x, w[f"g{i}"])
        q, k = (turned(split(h @ w[f"{m}{i}"]), angles.cos(), angles.sin()) for m in "QK")
        mask = torch.arange(n["L"])[:, None] >= torch.arange(n["L"])[None, :]
        scores = torch.where(mask, q @ k.transpose(-2, -1) / width**0.5, float("-inf"))
        z = (softmax(scores) @ split(h @ w[f"V{i}"])).transpose(1, 2).reshape(n["B"], n["L"], n["D"])
        a = x + z @ w[f"O{i}"]
        m = norm(a, w[f"k{i}"])
        gate = m @ w[f"1{i}"]
        x = a + (gate * torch.sigmoid(gate) * (m @ w[f"3{i}"])) @ w[f"2{i}"]
    return norm(x, w["g"]) @ w["U"]


def test_a_hand_written_model_keeps_what_its_tables_say_with_masks_and_rotations_of_every_layer():
    n, d, f = SIZES, SIZES["D"], SIZES["F"]
    shapes = {"E": (n["V"], d), "U": (d, n["V"]), "g": (d,)}
    for i in range(n["N_layer"]):
        shapes |= {f"{m}{i}": (d, d) for m in "QKVO"} | {f"1{i}": (d, f), f"3{i}": (d, f), f"2{i}": (f, d)}
        shapes |= {f"g{i}": (d,), f"k{i}": (d,)}
    weights = {name: torch.randn(shape, requires_grad=True) for name, shape in shapes.items()}
    kept: dict[int, int] = {}
    alive = []

    def pack(tensor: Any) -> Any:
        alive.append(tensor.untyped_storage())
        kept[alive[-1].data_ptr()] = alive[-1].nbytes()
        return tensor

    angles = torch.rand(n["L"], d // n["n_h"] // 2)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        alive.append(hand_written(torch.randint(n["V"], (n["B"], n["L"])), weights, n, angles))
    for weight in weights.values():
        kept.pop(weight.untyped_storage().data_ptr(), None)
    peak = models.language_model(**n).peak_memory(
        recipe="fp32_adam", accounting={"saved": "pytorch", "softmax": "by_hand"}, step="forward", tables="per_layer"
    )
    assert evaluate(from_expr(peak.worth["M_A"]), peak.values()) == sum(kept.values())


@pytest.mark.parametrize(("tokens", "width"), [(512, 8), (64, 64)])
def test_the_storages_alive_at_the_peak_of_a_step_are_those_of_the_timeline(tokens, width):
    """Three matrices and relu between them; of q no gradient is asked for. The loss and its gradient are 8 bytes."""
    rows = (
        "u = relu(q A) ; q [T,D], A [D,D] ; u [T,D]",
        "v = relu(u C) ; C [D,D] ; v [T,D]",
        "y = v W ; W [D,D] ; y [T,D]",
        "l = mean(y) ; - ; $l \\in R$",
    )
    derived = tables.load(tables.table(*rows), dtype="fp32", values={"T": tokens, "D": width}).peak_memory(
        recipe="fp32_sgd", accounting={"saved": "pytorch", "input_gradient": "not_needed"}
    )
    q = torch.randn(tokens, width)
    weights = [torch.randn(width, width, requires_grad=True) for _ in "ACW"]
    count = Alive()
    for tensor in (q, *weights):
        count.add(tensor, count.reference)
    with count.mode():
        loss = (torch.relu(torch.relu(q @ weights[0]) @ weights[1]) @ weights[2]).mean()
        loss.backward()
    assert 0 <= count.peak - derived.at().value <= 8
