"""What autograd really keeps, and the pieces of eager PyTorch modules that the tests build."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

# Collected for its doctests also where there is no PyTorch.
torch: Any = pytest.importorskip("torch")


def kept_bytes(run: Callable[[], Any], without: Iterable[Any]) -> int:
    """The bytes of the unique storages that autograd keeps while ``run`` runs."""
    found: dict[int, int] = {}
    alive = []  # a storage that is freed would give its address to another one

    def pack(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        alive.append(storage)
        found[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        alive.append(run())
    for tensor in without:
        found.pop(tensor.untyped_storage().data_ptr(), None)
    return sum(found.values())


def dropout(x: Any, rate: float = 0.1) -> Any:
    """The dropout of GPUs, which keeps a mask of one byte an element; at the rate 0 it does nothing."""
    return torch.native_dropout(x, rate, True)[0] if rate else x


def split(x: Any, n: int) -> Any:
    """The heads of a tensor, before its positions."""
    return x.view(*x.shape[:2], n, -1).transpose(1, 2)


def joined(z: Any) -> Any:
    """The heads side by side again."""
    return z.transpose(1, 2).reshape(z.shape[0], z.shape[2], -1)


def turned(x: Any, cos: Any, sin: Any) -> Any:
    """Rotary positions."""
    one, two = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-two, one], dim=-1) * sin


def repeated(y: Any, groups: int) -> Any:
    """Each key/value head for all query heads of its group."""
    b, n, s, h = y.shape
    return y[:, :, None].expand(b, n, groups, s, h).reshape(b, n * groups, s, h)
