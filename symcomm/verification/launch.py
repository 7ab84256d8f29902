"""Starts the processes of a run, waits for them no longer than told, and leaves none behind."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from symcomm.errors import SymcommError

TORCH = "2.13.0"  # what the conventions here were held against
RANK_LIMIT = 8
TIME_LIMIT = 120.0


class VerificationError(SymcommError):
    """A run in PyTorch that could not be made or did not end."""


def torch_version() -> str:
    """The version of PyTorch that is installed.

    Raises ``VerificationError`` where there is none, or one that is too old.
    """
    try:
        found = metadata.version("torch")
    except metadata.PackageNotFoundError:
        raise VerificationError("PyTorch is not installed", hint="pip install 'symcomm[torch]'") from None
    numbers = tuple(int(n) for n in found.split("+")[0].split(".")[:2] if n.isdigit())
    if numbers < (2, 6):
        raise VerificationError(f"PyTorch {found} is too old: fully_shard and the schedules of pipelining are missing",
                                hint="pip install -U 'symcomm[torch]'")  # fmt: skip
    return found


def free_port(port: int) -> None:
    """Raises ``VerificationError`` where a port is in use."""
    with socket.socket() as one:
        try:
            one.bind(("127.0.0.1", port))
        except OSError as error:
            raise VerificationError(
                f"port {port} is in use" if error.errno == 98 else f"port {port}: {error.strerror}",
                hint="leave --port out: the processes then meet by a file",
            ) from None


def enough_memory(needed: int) -> None:
    """Raises ``VerificationError`` where a run would take more memory than there is free."""
    try:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return
    if needed > free:
        raise VerificationError(
            f"the run needs about {needed / 1e9:.1f} GB, but {free / 1e9:.1f} GB of memory are free",
            hint="smaller sizes show the same: --at B=4,L=8",
        )


def launch(
    runs: Sequence[Mapping[str, Any]], limit: float = TIME_LIMIT, port: int | None = None,
    fault: Mapping[str, Any] | None = None,
) -> list[list[dict[str, Any]]]:  # fmt: skip
    """What all ranks counted in each of some runs, which have equally many ranks.

    ``source_text`` of a run is its written module. Raises ``VerificationError`` where a rank fails or the runs take
    longer than ``limit`` seconds; no process is left then, either.
    """
    torch_version()
    if port is not None:
        free_port(port)
    with tempfile.TemporaryDirectory(prefix="symcomm-") as place:
        folder = Path(place)
        specs = []
        for number, run in enumerate(runs):
            source = folder / f"written{number}.py"
            source.write_text(str(run["source_text"]), encoding="utf-8")
            specs.append({k: v for k, v in run.items() if k != "source_text"} | {"source": str(source)})
        meeting = f"tcp://127.0.0.1:{port}" if port is not None else f"file://{folder / 'meeting'}"
        names = ", ".join(dict.fromkeys(str(run["method"]) for run in runs))
        spec = {
            "ranks": runs[0]["ranks"],
            "launcher": os.getpid(),
            "meeting": meeting,
            "limit": limit,
            "runs": specs,
            "method": names,
        }
        reports = _ranks(folder, spec | ({"fault": dict(fault)} if fault else {}), limit)
    return [[report["runs"][n] for report in reports] for n in range(len(specs))]


def _ranks(folder: Path, spec: Mapping[str, Any], limit: float) -> list[dict[str, Any]]:
    path = folder / "spec.json"
    path.write_text(json.dumps(spec), encoding="utf-8")
    # One thread a rank, over the loopback interface. The package is found where this one was.
    home = str(Path(__file__).parents[2])
    environment = os.environ | {
        "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "PYTHONWARNINGS": "ignore",
        "PYTHONPATH": os.pathsep.join(filter(None, (home, os.environ.get("PYTHONPATH", "")))),
        "TORCH_CPP_LOG_LEVEL": "ERROR",
    }  # fmt: skip
    command = [sys.executable, "-m", "symcomm.verification.worker", str(path)]
    ranks = range(spec["ranks"])
    started: list[subprocess.Popen[bytes]] = []
    logs = [folder / f"log{rank}.txt" for rank in ranks]
    try:
        for rank in ranks:
            with logs[rank].open("wb") as log:
                started.append(subprocess.Popen(  # noqa: S603  (our own module, no shell)
                    [*command, str(rank)], env=environment, stdout=log, stderr=log, start_new_session=True,
                ))  # fmt: skip
        until = time.monotonic() + limit
        while any(process.poll() is None for process in started):
            if any(process.poll() not in (None, 0) for process in started):
                time.sleep(0.3)  # those that fail with it write why
                break
            if time.monotonic() > until:
                waiting = [str(rank) for rank, p in zip(ranks, started, strict=True) if p.poll() is None]
                raise VerificationError(
                    f"{spec['method']} on {spec['ranks']} processes did not end within {limit:g} s; "
                    f"rank {', '.join(waiting)} had not answered",
                    hint="all processes were ended; --limit gives them longer",
                )
            time.sleep(0.02)
    finally:
        for process in started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)  # its own session: what it started goes with it
        for process in started:
            process.wait()
    return [_report(folder, spec, rank, logs[rank], started[rank].returncode) for rank in _first_failure(folder, spec)]


def _first_failure(folder: Path, spec: Mapping[str, Any]) -> list[int]:
    """All ranks; one that failed by itself before those that lost it."""
    ranks = [*range(spec["ranks"])]
    lost = ("Connection closed", "Connection reset", "onnection", "recv")

    def key(rank: int) -> int:
        path = folder / f"rank{rank}.json"
        if not path.exists():
            return 1
        error = json.loads(path.read_text(encoding="utf-8")).get("error", "")
        return 2 if not error else 1 if any(word in error for word in lost) else 0

    failed = [r for r in sorted(ranks, key=key) if key(r) < 2]
    return failed or ranks


def _report(folder: Path, spec: Mapping[str, Any], rank: int, log: Path, status: int) -> dict[str, Any]:
    path = folder / f"rank{rank}.json"
    if not path.exists():
        said = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        last = said[-1][:300] if said else f"status {status}"
        killed = " (it may have run out of memory)" if status == -signal.SIGKILL else ""
        raise VerificationError(f"rank {rank} of {spec['method']} ended without an answer{killed}: {last}")
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if "error" in found:
        first = " ".join(found["error"].split())[:400]
        raise VerificationError(f"rank {rank} of {spec['method']} failed: {first}",
                                hint="the other processes were ended")  # fmt: skip
    return found
