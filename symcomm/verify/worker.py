"""The ranks of runs in PyTorch: ``python -m symcomm.verify.worker FOLDER``, which forks them for each run.

A rank reads a specification (JSON), takes part in a few training steps, counts the last one, and writes what it counted
(JSON). It is a process of its own, so that nothing of a run is left when it ends; PyTorch is imported before. How a
rank runs is in ``ways``, what it counts in ``counters``.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

from symcomm.verify.counters import kinks, local, through_sockets
from symcomm.verify.peak import peak_of_backward
from symcomm.verify.runs import Cached, OneProcess, losses, modules, run_of

STEPS = 3  # the first ones have set-up traffic: shapes of messages, buckets that are rebuilt


def run(spec: dict[str, Any], rank: int) -> dict[str, Any]:
    """The counts of a rank in the last of a few steps."""
    if spec["method"] == "measure":
        from symcomm.verify.stopwatch import measured

        return measured(spec)
    if spec["method"] == "rows":
        from symcomm.verify.stopwatch import rows

        return rows(spec, OneProcess(spec, 0))
    if "kept" in spec:
        return decoded(spec, rank)
    for seed in range(spec["seed"], spec["seed"] + 20):
        spec = {**spec, "seed": seed}
        alone = OneProcess({**spec, "ranks": 1, "batch_meshes": [], "units": ""}, 0)
        alone.prepare()
        with kinks() as near:
            alone.step()
        if not near:
            break
    reference = alone.gradients()
    made = run_of(spec["method"])(spec, rank)
    made.prepare()
    with made.counter.mode(), losses(spec):
        saved = [made.step() for _ in range(STEPS)][-1]
    # Some gradients are zero but for rounding, as those of the keys' bias before a softmax.
    largest = max((g.abs().max().item() for g in reference.values()), default=0.0)
    errors = [
        (gradient - reference[name]).abs().max().item() / max(largest / 100, reference[name].abs().max().item())
        for name, gradient in made.gradients().items()
    ]
    found = counted(made, max(errors, default=None)) | {"saved": saved}
    if spec["peak"]:
        with losses(spec):
            found["peak"] = peak_of_backward(made)
    return found


def decoded(spec: dict[str, Any], rank: int) -> dict[str, Any]:
    """The counts of a rank in a step behind a prompt, and how far its results are from one pass over the whole text."""
    import torch

    made = run_of(spec["method"])(spec, rank)
    assert isinstance(made, Cached)
    with torch.no_grad(), made.counter.mode():
        made.prepare()
        before = [(one, name, getattr(one, name)) for one, name, *_ in made.kept()]
        for _ in range(2):  # in the first one DTensor works out shapes, by the same ops
            made.counter.reset()
            for one, name, cache in before:
                setattr(one, name, cache)
            made.counter.on = True
            results = made.forward()
            made.counter.on = False
        error = made.error(results)
    return counted(made, error) | {"cache": sum(local(cache).nbytes for *_, cache in before)}


def counted(made: OneProcess, error: float | None) -> dict[str, Any]:
    """The counts of a rank; ``error`` is the difference of its results or gradients from a run in one process."""
    import torch

    received = {"received": through_sockets(made.mesh, made.counter.calls)} if made.spec.get("sockets") else {}
    return received | {
        "calls": made.counter.calls, "flops": made.counter.flops, "gradient_error": error, "torch": torch.__version__,
        "parameters": sum(local(p).numel() for p in made.network.parameters()),
    }  # fmt: skip


def take_part(spec: dict[str, Any], rank: int) -> dict[str, Any]:
    """The counts of a rank in a run with the others."""
    import torch

    torch.set_num_threads(1)
    if spec["ranks"] > 1:
        from datetime import timedelta

        import torch.distributed as dist

        limit = timedelta(seconds=spec["limit"])
        dist.init_process_group("gloo", init_method=spec["meeting"], rank=rank, world_size=spec["ranks"], timeout=limit)
    fault = spec["fault"]
    if fault and rank == fault["rank"]:  # what tests ask for
        if fault["what"] == "hang":
            time.sleep(3600)
        raise RuntimeError("a test lets this rank fail")
    found = run(spec, rank)
    if spec["ranks"] > 1:
        dist.barrier()
        dist.destroy_process_group()
    return found


def _with(parent: int) -> None:
    """Ends this rank when what has forked it is gone, however that ended."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def _rank(folder: Path, spec: dict[str, Any], rank: int, parent: int) -> None:
    """Takes part as a rank; what went wrong is written where the launcher finds it."""
    log = os.open(folder / f"log{rank}.txt", os.O_WRONLY | os.O_CREAT)
    for number, target in enumerate((os.open(os.devnull, os.O_RDONLY), log, log)):
        os.dup2(target, number)
    threading.Thread(target=_with, args=(parent,), daemon=True).start()
    found: dict[str, Any]
    try:
        found = take_part(spec, rank)
    except BaseException as error:
        found = {"error": f"{type(error).__name__}: {error}"[:2000], "trace": traceback.format_exc()[-6000:]}
    part = folder / f"rank{rank}.part"
    part.write_text(json.dumps(found), encoding="utf-8")
    part.replace(folder / f"rank{rank}.json")
    sys.stdout.flush()
    os._exit("error" in found)  # threads of PyTorch's may still wait for other ranks


def _forked(folder: Path, spec: dict[str, Any]) -> dict[str, Any]:
    """Forks the ranks of a run and tells how each ended; when one fails or time is up, all others are ended."""
    waiting: dict[int, int] = {}
    parent = os.getpid()
    for rank in range(spec["ranks"]):
        pid = os.fork()
        if not pid:
            try:
                _rank(folder, spec, rank, parent)
            finally:
                os._exit(1)
        waiting[pid] = rank
    statuses = [0] * spec["ranks"]
    late: list[int] = []
    until = time.monotonic() + spec["limit"]
    while waiting:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid:
            rank = waiting.pop(pid)
            statuses[rank] = os.waitstatus_to_exitcode(status)
            if statuses[rank]:
                until = min(until, time.monotonic() + 0.3)  # those that fail with it write why
        elif select.select([0], [], [], 0.01)[0] or time.monotonic() > until:  # the launcher is gone, or time is up
            late = late or ([] if any(statuses) else sorted(waiting.values()))
            for pid in waiting:
                os.kill(pid, signal.SIGKILL)
    return {"statuses": statuses, "waiting": late}


def main() -> None:
    """Reads the folders of runs, a line each, and answers with a line when all ranks of one have ended."""
    import torch.distributed as dist

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    for line in sys.stdin:  # ends with the launcher
        folder = Path(line.rstrip("\n"))
        spec = json.loads((folder / "spec.json").read_text(encoding="utf-8"))
        for name in modules(spec["method"]) if dist.is_available() else ():
            importlib.import_module(name)  # once for all ranks
        print(json.dumps(_forked(folder, spec)), file=answers, flush=True)


if __name__ == "__main__":
    main()
