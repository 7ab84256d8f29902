"""Measures in a worker the seconds of a matrix product, a copy, or an all-reduce with other processes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

AT_LEAST = 0.004  # seconds of one measurement: what takes less is done several times in it


def measured(spec: dict[str, Any]) -> dict[str, Any]:
    """The seconds of what is asked for, several times; ``size`` is a side of a product, or bytes."""
    import torch

    device = "cuda" if torch.cuda.is_available() and spec["ranks"] == 1 else "cpu"
    act = _ACTS[spec["kind"]](torch, spec["size"], spec["dtype"], device)
    # Other programs take the processor away for a while: what this process had of it counts, where it waits for nobody.
    now = time.process_time if device == "cpu" and spec["ranks"] == 1 else time.perf_counter

    def once(times: int) -> float:
        if device == "cuda":
            torch.cuda.synchronize()
        begin = now()
        for _ in range(times):
            act()
        if device == "cuda":
            torch.cuda.synchronize()
        return (now() - begin) / times

    once(1)
    times = max(1, min(10_000, round(AT_LEAST / max(once(1), 1e-7))))
    if spec["ranks"] > 1:
        times = _agreed(torch, times)
    name, memory = "one thread of the CPU", os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if device == "cuda":
        name, memory = torch.cuda.get_device_name(), torch.cuda.get_device_properties(0).total_memory
    return {"seconds": [once(times) for _ in range(spec["repeats"])], "device": name, "memory": memory,
            "torch": torch.__version__}  # fmt: skip


def _product(torch: Any, side: int, dtype: str, device: str) -> Callable[[], Any]:
    a, b = (torch.rand(side, side, device=device).to(getattr(torch, dtype)) for _ in range(2))
    return lambda: a @ b


def _copy(torch: Any, size: int, dtype: str, device: str) -> Callable[[], Any]:
    """Half of the bytes are read, half are written."""
    a = torch.zeros(max(1, size // 8), device=device)
    b = torch.empty_like(a)
    return lambda: b.copy_(a)


def _message(torch: Any, size: int, dtype: str, device: str) -> Callable[[], Any]:
    import torch.distributed as dist

    tensor = torch.zeros(max(1, size // 4))
    return lambda: dist.all_reduce(tensor)


def _agreed(torch: Any, times: int) -> int:
    """The same number in all processes, the least of theirs."""
    import torch.distributed as dist

    found = torch.tensor([times])
    dist.all_reduce(found, op=dist.ReduceOp.MIN)
    return int(found)


_ACTS: dict[str, Callable[[Any, int, str, str], Callable[[], Any]]] = {
    "products": _product, "memory": _copy, "messages": _message,
}  # fmt: skip
