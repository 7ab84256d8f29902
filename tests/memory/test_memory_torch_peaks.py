"""Whole models and peaks against PyTorch: what is kept of a hand-written model, and what is alive at the peak."""

from __future__ import annotations

from typing import Any

import memory_tables as tables
import pytest
import whole_models as models
from api import form_evaluate as evaluate
from api import from_expr

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


def alive_in_a_step(tensors: list[Any], run: Any) -> int:
    """The most bytes alive in a step, its loss and the gradient of that left out."""
    count = Alive()
    for tensor in tensors:
        count.add(tensor, count.reference)
    with count.mode():
        run().backward()
    return count.peak


def allocated_in_a_step(tensors: list[Any], run: Any) -> int:
    """The same by the allocator's own events: seen from Python, gradients of one weight are not added in place."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        run().backward()
    sizes: list[tuple[int, int]] = []
    queue = [*seen.profiler.kineto_results.experimental_event_tree()]
    while queue:
        event = queue.pop()
        queue += event.children
        if event.name == "[memory]":
            sizes.append((event.start_time_ns, event.extra_fields.alloc_size))
    now = most = sum(tensor.untyped_storage().nbytes() for tensor in tensors)
    for _, size in sorted(sizes, key=lambda pair: pair[0]):
        now += size
        most = max(most, now)
    return most


LAYER = tables.table("u = relu(x W) ; x [T,D], W [D,F] ; u [T,F]", "y = u U ; U [F,D] ; y [T,D]")
ENDS = tables.table("x = q A ; q [T,D], A [D,D] ; x [T,D]", "h = x ; x [T,D] ; h [T,D]",
                    "l = mean(h C) ; h [T,D], C [D,D] ; $l \\in R$")  # fmt: skip


@pytest.mark.parametrize("every", [0, 1, 2, 4])
@pytest.mark.parametrize(("rows", "width", "hidden"), [(512, 8, 12), (64, 32, 64), (256, 8, 64), (16, 48, 96)])
def test_groups_under_checkpoint_have_the_storages_of_the_timeline_alive_at_the_peak(every, rows, width, hidden):
    """Groups of n layers in a function each, which PyTorch runs again when the backward pass comes to it."""
    from torch.utils.checkpoint import checkpoint

    layers = 4
    q = torch.randn(rows, width)
    a, c = (torch.randn(width, width, requires_grad=True) for _ in "AC")
    pairs = [(torch.randn(width, hidden, requires_grad=True), torch.randn(hidden, width, requires_grad=True))
             for _ in range(layers)]  # fmt: skip

    def group(x: Any, mine: Any) -> Any:
        for w, u in mine:
            x = torch.relu(x @ w) @ u
        return x

    def run() -> Any:
        x = q @ a
        for n in range(0, layers, every or layers):
            mine = pairs[n : n + (every or layers)]
            x = checkpoint(group, x, mine, use_reentrant=False) if every else group(x, mine)
        return (x @ c).mean()

    values = {"T": rows, "D": width, "F": hidden, "N_layer": layers}
    derived = models.whole(ENDS, LAYER, values).peak_memory(
        recipe="fp32_sgd", accounting={"saved": "pytorch", "input_gradient": "not_needed"}, every=every or None
    )
    assert 0 <= alive_in_a_step([q, a, c, *(w for p in pairs for w in p)], run) - derived.at().value <= 8


@pytest.mark.parametrize(("rows", "width"), [(64, 8), (8, 64), (2, 64)])
def test_the_gradients_of_a_weight_that_is_used_three_times_are_added_as_they_are_made(rows, width):
    text = ("u = relu(q A) ; q [T,D], A [D,D] ; u [T,D]", "v = relu(u A) ; - ; v [T,D]", "y = relu(v A) ; - ; y [T,D]",
            "l = mean(y W) ; W [D,D] ; $l \\in R$")  # fmt: skip
    derived = tables.load(tables.table(*text), dtype="fp32", values={"T": rows, "D": width}).peak_memory(
        recipe="fp32_sgd", accounting={"saved": "pytorch", "input_gradient": "not_needed"}
    )
    q = torch.randn(rows, width)
    a, w = (torch.randn(width, width, requires_grad=True) for _ in "AW")

    def run() -> Any:
        return (torch.relu(torch.relu(torch.relu(q @ a) @ a) @ a) @ w).mean()

    assert 0 <= allocated_in_a_step([q, a, w], run) - derived.at().value <= 8


@pytest.mark.parametrize(("rows", "width"), [(64, 8), (4, 64)])
def test_a_weight_tied_between_the_ends_has_a_second_gradient_only_until_it_is_added(rows, width):
    ends = ENDS.replace("mean(h C)", "mean(h A)").replace("C [D,D]", "A [D,D]")
    values = {"T": rows, "D": width, "F": 2 * width, "N_layer": 2}
    derived = models.whole(ends, LAYER, values).peak_memory(
        recipe="fp32_sgd", accounting={"saved": "pytorch", "input_gradient": "not_needed"}
    )
    q, a = torch.randn(rows, width), torch.randn(width, width, requires_grad=True)
    pairs = [(torch.randn(width, 2 * width, requires_grad=True), torch.randn(2 * width, width, requires_grad=True))
             for _ in range(2)]  # fmt: skip

    def run() -> Any:
        x = q @ a
        for w, u in pairs:
            x = torch.relu(x @ w) @ u
        return (x @ a).mean()

    assert 0 <= allocated_in_a_step([q, a, *(w for p in pairs for w in p)], run) - derived.at().value <= 8


@pytest.mark.parametrize("selective", [False, True])
@pytest.mark.parametrize(("batch", "length", "width"), [(2, 64, 8), (2, 16, 32), (1, 128, 16)])
def test_attention_under_checkpoint_has_the_storages_of_the_timeline_alive(selective, batch, length, width):
    """One head per layer; its scores and their softmax run again when the gradient of the values asks for them.

    PyTorch's function holds its three arguments until all of it is done, one of which no gradient reads any longer.
    """
    from torch.utils.checkpoint import checkpoint

    layer = tables.table(
        "Q = x W^Q ; x [B,L,D], W^Q [D,D] ; Q [B,L,D]", "K = x W^K ; W^K [D,D] ; K [B,L,D]",
        "V = x W^V ; W^V [D,D] ; V [B,L,D]", "S = softmax(Q K^T) ; - ; S [B,L,L]", "Z = S V ; - ; Z [B,L,D]",
        "y = Z W^O ; W^O [D,D] ; y [B,L,D]",
    )  # fmt: skip
    ends = tables.table("x = q A ; q [B,L,D], A [D,D] ; x [B,L,D]", "h = x ; x [B,L,D] ; h [B,L,D]",
                        "l = mean(h C) ; h [B,L,D], C [D,D] ; $l \\in R$")  # fmt: skip
    values = {"B": batch, "L": length, "D": width, "N_layer": 3}
    derived = models.whole(ends, layer, values).peak_memory(
        recipe="fp32_sgd", accounting={"saved": "pytorch", "input_gradient": "not_needed"},
        recomputation="selective" if selective else "none",
    )  # fmt: skip
    q = torch.randn(batch, length, width)
    a, c = (torch.randn(width, width, requires_grad=True) for _ in "AC")
    weights = [[torch.randn(width, width, requires_grad=True) for _ in "QKVO"] for _ in range(3)]

    def attention(q: Any, k: Any, v: Any) -> Any:
        return torch.softmax(q @ k.transpose(1, 2), dim=-1) @ v

    def run() -> Any:
        x = q @ a
        for mine in weights:
            three = [x @ w for w in mine[:3]]
            z = checkpoint(attention, *three, use_reentrant=False) if selective else attention(*three)
            x = z @ mine[3]
        return (x @ c).mean()

    found = alive_in_a_step([q, a, c, *(w for ws in weights for w in ws)], run)
    assert 0 <= found - derived.at().value <= 8 + (4 * q.numel() if selective else 0)
