"""The counts of a rank: work, calls, saved bytes, and bytes that its connections receive."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PROBE = 840 * 117  # numbers of a tensor that goes through sockets: 2 to 8 ranks have equally many each
KINK = 1e-6  # of numbers around 1: more than their sums in fp32 differ by


class Counter:
    """The work, saved bytes and calls of a rank: ``calls`` are (kind, phase, group, elements, bytes, tensor)."""

    phases: dict[int, str]

    def __init__(self, groups: dict[tuple[int, ...], str]) -> None:
        self.groups, self.phases = groups, {}
        self.reset()

    def reset(self) -> None:
        self.phase, self.label, self.on = "forward", "", False
        self.calls: list[dict[str, Any]] = []
        self.flops: dict[str, int] = {}

    def call(self, kind: str, tensor: Any, elements: int, ranks: tuple[int, ...], unit: bool) -> None:
        if self.on and elements:
            # Between the passes of a stage messages are sent, and units of weights are gathered before they are read.
            sent = self.phases.get(tensor.data_ptr(), "backward") if kind == "send" else "backward"
            sent = "forward" if unit and kind == "all-gather" else sent
            phase = sent if self.phase == "step" else self.phase
            self.calls.append({
                "kind": kind, "phase": phase, "group": self.groups.get(ranks, f"ranks {ranks}"), "ranks": len(ranks),
                "elements": elements, "bytes": elements * tensor.element_size(), "tensor": self.label,
            })  # fmt: skip

    def mode(self) -> Any:
        """A dispatch mode that sees each op on tensors as the rank holds them, and each collective of c10d."""
        import torch
        import torch.distributed as dist
        from torch.utils._python_dispatch import TorchDispatchMode
        from torch.utils._pytree import tree_leaves
        from torch.utils.flop_counter import flop_registry

        outer = self
        placed: tuple[type, ...] = ()
        if dist.is_available():
            from torch.distributed.tensor import DTensor

            placed = (DTensor,)

        # PyTorch counts nothing for its kernel of attention on the CPU: two products forward, and five backward, as it
        # makes the scores again.
        attention: dict[Any, Callable[..., int]] = {
            torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: lambda q, k, *_, **__: 4 * _pairs(q, k),
            torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward:
                lambda g, q, k, *_, **__: 10 * _pairs(q, k),
        }  # fmt: skip

        def group_of(arguments: Any) -> tuple[int, ...]:
            for one in tree_leaves(arguments):
                if isinstance(one, str) and one in dist.distributed_c10d._world.pg_names.values():
                    return tuple(dist.get_process_group_ranks(dist.distributed_c10d._resolve_process_group(one)))
                if isinstance(one, torch.ScriptObject) and "ProcessGroup" in str(one._type()):
                    return tuple(dist.get_process_group_ranks(dist.ProcessGroup.unbox(one)))
            return ()

        # name of an op -> kind, and the place of the full tensor among its tensors in and out
        kinds = {
            "_c10d_functional.all_reduce": ("all-reduce", 0),
            "_c10d_functional.all_reduce_": ("all-reduce", 0),
            "_c10d_functional.all_gather_into_tensor": ("all-gather", -1),
            "_c10d_functional.reduce_scatter_tensor": ("reduce-scatter", 0),
            "_c10d_functional.all_to_all_single": ("all-to-all", 0),
            "_c10d_functional.broadcast": ("broadcast", 0),
            "c10d.allreduce_": ("all-reduce", 0),
            "c10d._allgather_base_": ("all-gather", 0),
            "c10d._reduce_scatter_base_": ("reduce-scatter", 1),
            "c10d.alltoall_base_": ("all-to-all", 1),
            "c10d.broadcast_": ("broadcast", 0),
            "c10d.send": ("send", 0),
        }

        class CountingMode(TorchDispatchMode):  # type: ignore[misc]  # torch has no type hints here
            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                kwargs = kwargs or {}
                if any(issubclass(t, placed) for t in types):
                    return NotImplemented
                found = func(*args, **kwargs)
                packet = func._overloadpacket
                counts = flop_registry.get(packet) or attention.get(packet)
                if outer.on and counts is not None:
                    count = counts(*args, **kwargs, out_val=found)
                    outer.flops[outer.phase] = outer.flops.get(outer.phase, 0) + int(count)
                name = str(packet)
                if name in kinds:
                    kind, at = kinds[name]
                    tensors = [t for t in tree_leaves((args, kwargs, found)) if isinstance(t, torch.Tensor)]
                    elements, ranks = int(tensors[at].numel()), group_of((args, kwargs))
                    outer.call(kind, tensors[0], elements, ranks, name.startswith("c10d."))
                return found

        return CountingMode()


def _pairs(query: Any, key: Any) -> int:
    """The multiplications of one product over all queries and keys."""
    return int(query.numel() * key.shape[-2])


@contextmanager
def saved_storages(others: Callable[[], Iterable[Any]]) -> Iterator[dict[int, int]]:
    """The bytes of unique storages that autograd keeps, by address; the ``others`` never change."""
    import torch

    found: dict[int, int] = {}
    alive: list[Any] = []

    def pack(tensor: Any) -> Any:
        kept = storage(tensor)
        if kept.data_ptr() not in {storage(one).data_ptr() for one in others()}:
            alive.append(kept)  # one that is freed would give its place to another one
            found[kept.data_ptr()] = kept.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        yield found


def local(tensor: Any) -> Any:
    """The part of a tensor that this rank has."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def storage(tensor: Any) -> Any:
    """The storage of this part."""
    held = getattr(tensor, "_local_tensor", tensor)
    return getattr(held, "elem", held).untyped_storage()  # what a collective that runs beside gives has it inside


@contextmanager
def kinks() -> Iterator[list[float]]:
    """The numbers so near to zero at ReLU that sums in another order may change their sign: no gradient to compare."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    found: list[float] = []

    class KinkRecorder(TorchDispatchMode):  # type: ignore[misc]  # torch has no type hints here
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func._overloadpacket == torch.ops.aten.relu:
                least = args[0].abs().min().item()
                found.extend([least] if least < KINK else ())
            return func(*args, **(kwargs or {}))

    with KinkRecorder():
        yield found


def received() -> int:
    """The bytes that the TCP connections of this process have received, as the kernel counts them."""
    import socket
    import struct

    total = 0
    for path in Path("/proc/self/fd").iterdir():
        try:
            if not str(path.readlink()).startswith("socket:"):
                continue
            with socket.fromfd(int(path.name), socket.AF_INET, socket.SOCK_STREAM) as one:
                total += struct.unpack_from("Q", one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256), 128)[0]
        except (OSError, struct.error):
            continue  # closed meanwhile, or none of TCP
    return total


def through_sockets(mesh: Any, calls: Iterable[dict[str, Any]]) -> dict[str, int]:
    """The share of a tensor that this rank receives, in parts of 1/(8 k), for each kind of the ``calls``.

    Gloo puts headers before what it sends, some more or less by who comes first: tensors of two sizes are sent, and
    such a part of the difference is far more than that.
    """
    import torch
    import torch.distributed as dist

    def once(kind: str, group: Any, count: int) -> int:
        ranks, whole = dist.get_process_group_ranks(group), torch.ones(count)
        part = whole[: count // len(ranks)].clone()
        dist.barrier(group)
        time.sleep(0.02)
        before = received()
        if kind == "all-reduce":
            dist.all_reduce(whole, group=group)
        elif kind == "all-gather":
            dist.all_gather_into_tensor(whole, part, group=group)
        elif kind == "reduce-scatter":
            dist.reduce_scatter_tensor(part, whole, group=group)
        else:
            dist.broadcast(whole, ranks[0], group=group)
        time.sleep(0.02)  # what is still on its way
        return received() - before

    found = {}
    for kind, axes in sorted({(call["kind"], call["group"]) for call in calls}):
        names = tuple(axes.split("+"))
        group = (mesh[names]._flatten() if len(names) > 1 else mesh[names[0]]).get_group()
        one, two = (min(once(kind, group, n * PROBE) for _ in range(3)) for n in (1, 2))
        found[f"{kind} {axes}"] = round(8 * group.size() * (two - one) / (4 * PROBE))
    return found
