"""Measures in a worker the seconds of a matrix product, a copy, an all-reduce, or each row of a written module."""

from __future__ import annotations

import ast
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

AT_LEAST = 0.004  # seconds of one measurement: what takes less is done several times in it


def measured(spec: dict[str, Any]) -> dict[str, Any]:
    """The seconds of what is asked for, several times; ``size`` is a side of a product, or bytes."""
    import torch

    device = "cuda" if torch.cuda.is_available() and spec["ranks"] == 1 else "cpu"
    act = _ACTS[spec["kind"]](torch, spec["size"], spec["dtype"], device)
    # Other programs take the processor away for a while: what this process had of it counts, where it waits for nobody.
    now = time.process_time if device == "cpu" and spec["ranks"] == 1 else time.perf_counter

    once, times = _timer(act, now, 10_000, torch.cuda.synchronize if device == "cuda" else lambda: None)
    if spec["ranks"] > 1:
        times = _agreed(torch, times)
    name, memory = "one thread of the CPU", os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if device == "cuda":
        name, memory = torch.cuda.get_device_name(), torch.cuda.get_device_properties(0).total_memory
    return {"seconds": [once(times) for _ in range(spec["repeats"])], "device": name, "memory": memory,
            "torch": torch.__version__}  # fmt: skip


def _timer(
    act: Callable[[], Any], now: Callable[[], float], most: int, ready: Callable[[], Any] = lambda: None
) -> tuple[Callable[[int], float], int]:
    """The seconds of an act, done so many times, and how many make a measurement; ``ready`` waits for a device."""

    def once(times: int) -> float:
        ready()
        begin = now()
        for _ in range(times):
            act()
        ready()
        return (now() - begin) / times

    once(1)
    return once, max(1, min(most, round(AT_LEAST / max(once(1), 1e-7))))


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


def rows(spec: dict[str, Any], made: Any) -> dict[str, Any]:
    """The seconds of each row of the written layers, forward and backward, one after the other on the CPU."""
    import torch

    text = Path(made.module.__file__).read_text(encoding="utf-8")
    inside: dict[str, tuple[Any, Any]] = {}

    def noted(module: Any, inputs: Any) -> None:
        inside.setdefault(type(module).__name__, (module, inputs))

    for module in made.network.modules():
        if not [*module.children()]:
            module.register_forward_pre_hook(noted)
    made.network(*made.inputs)
    found, source = [], text.splitlines()
    for layer in ast.parse(text).body:
        if not isinstance(layer, ast.ClassDef) or layer.name not in inside:
            continue
        module, inputs = inside[layer.name]
        forward = next(one for one in layer.body if isinstance(one, ast.FunctionDef) and one.name == "forward")
        known = {**vars(made.module), "self": module, **dict(zip([a.arg for a in forward.args.args[1:]], inputs,
                                                                 strict=False))}  # fmt: skip
        for row in forward.body[:-1]:
            act = compile(ast.Module([row], []), "a row", "exec")
            read = {n.id for n in ast.walk(row) if isinstance(n, ast.Name) and n.id in known}
            for name in [n for n in read if torch.is_tensor(known[n]) and known[n].is_floating_point()]:
                known[name] = known[name].detach().requires_grad_()
            learns = [known[n] for n in read if torch.is_tensor(known[n]) and known[n].requires_grad]
            mine = {n.attr for n in ast.walk(row) if isinstance(n, ast.Attribute)}
            learns += [weight for name, weight in module.named_parameters() if name in mine]
            step = partial(exec, act, known)  # of the module that we wrote
            took = _least(step, spec["repeats"])
            if not isinstance(row, ast.Assign) or not isinstance(row.targets[0], ast.Name):
                continue
            result, back = known[row.targets[0].id], 0.0
            if result.requires_grad:
                ones = torch.ones_like(result)

                def both(step: Any = step, at: Any = known, name: str = row.targets[0].id, of: Any = learns,
                         ones: Any = ones) -> None:  # fmt: skip
                    step()
                    torch.autograd.grad(at[name], of, ones, allow_unused=True)

                back = max(0.0, _least(both, spec["repeats"]) - took)
            name = source[(row.end_lineno or 1) - 1].rpartition("  # ")[2].rpartition(": ")[0]
            found.append({"layer": layer.name, "name": name, "forward": took, "backward": back})
    return {"rows": found, "device": "one thread of the CPU"}


def _least(act: Callable[[], Any], repeats: int) -> float:
    """The least seconds of the processor that an act takes, of some measurements."""
    once, times = _timer(act, time.process_time, 1000)
    return min(once(times) for _ in range(repeats))
