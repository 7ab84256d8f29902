"""The peak of memory of a backward pass in PyTorch: the storages that are alive at once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from symcomm.verify.counters import local, storage
from symcomm.verify.runs import OneProcess


def peak_of_backward(made: OneProcess) -> int:
    """The most bytes of storages that are alive at once in the backward pass, without tables.

    What the run itself would hold is made where the pass needs it: inputs come from a function, and the gradients of
    the results from one that stands behind them.
    """
    import torch
    from torch.multiprocessing.reductions import StorageWeakRef
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    seen: dict[int, tuple[Any, int]] = {}
    added = False  # the engine adds gradients in place where Python does not look on: what an addition leaves counts
    tables = {storage(b)._cdata for b in made.network.buffers()}
    peak = 0

    def add_all(tensors: Iterable[Any]) -> None:
        for held in map(storage, tensors):
            if held._cdata not in tables:
                seen[held._cdata] = (StorageWeakRef(held), held.nbytes())

    def count() -> None:
        nonlocal peak
        for key in [k for k, (ref, _) in seen.items() if ref.expired()]:
            del seen[key]
        constants = {storage(one)._cdata for one in made.constants}
        peak = max(peak, sum(size for key, (_, size) in seen.items() if key not in constants))

    class Alive(TorchDispatchMode):  # type: ignore[misc]  # torch has no type hints here
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            nonlocal added
            if added:
                count()
            found = func(*args, **(kwargs or {}))
            add_all(t for t in tree_leaves(found) if isinstance(t, torch.Tensor))
            added = func._overloadpacket == torch.ops.aten.add
            if not added:
                count()
            return found

    class Begin(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, switch: Any, *given: Any) -> Any:
            return tuple(t.clone() for t in given)

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            return (None,) * (len(gradients) + 1)

    class End(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, *results: Any) -> Any:
            ctx.like = [(tuple(r.shape), getattr(r, "placements", None)) for r in results]
            return local(results[0]).new_empty(0)

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            nonlocal peak
            out = made.arriving(ctx.like)
            peak = 0
            return tuple(out)

    add_all(made.network.parameters())
    given, switch = made.given, torch.empty(0, requires_grad=True)
    plain = [t.detach() for t in given if t.requires_grad]
    passes: list[int] = []
    # What stays, such as buckets, has been seen in the first step. A thread of gloo may let a tensor go a moment late.
    for _ in range(2 if made.spec["ranks"] == 1 else 4):
        made.clear()
        with Alive():
            floats = iter(Begin.apply(switch, *plain))
            made.given = [next(floats) if t.requires_grad else t for t in given]
            del floats
            add_all(made.given)
            results = made.forward()
            made.given = []
            end = End.apply(*results)
            del results
            torch.autograd.backward([end], [torch.empty(0)])
        made.given = given
        passes.append(peak)
    return min(passes[1:])
