"""Starts the processes of runs, waits for them no longer than told, and leaves none behind."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import Any

from symcomm.core.errors import SymcommError

TORCH = "2.13.0"  # what the conventions here were held against
RANK_LIMIT = 8
TIME_LIMIT = 120.0
STARTING = 120.0  # seconds in which PyTorch is imported, beside other work


class VerificationError(SymcommError):
    """A run in PyTorch that could not be made or did not end."""


def torch_version() -> str:
    """The version of PyTorch that is installed.

    Raises ``VerificationError`` where there is none, or one that is too old.
    """
    try:
        found = metadata.version("torch")
    except metadata.PackageNotFoundError:
        raise VerificationError.lacking("torch", "PyTorch is not installed") from None
    numbers = tuple(int(n) for n in found.split("+")[0].split(".")[:2] if n.isdigit())
    if numbers < (2, 6):
        old = f"PyTorch {found} is too old: fully_shard and the schedules of pipelining are missing"
        raise VerificationError.lacking("torch", old)
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


def free_memory() -> int | None:
    """The bytes that processes may still take of the machine, and of the control group they are in; None: not told."""
    found = []
    with suppress(OSError, ValueError, IndexError):
        said = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines())
        found.append(int(said["MemAvailable"].split()[0]) * 1024)
    with suppress(OSError, ValueError):
        group = Path("/sys/fs/cgroup")
        found.append(int((group / "memory.max").read_text()) - int((group / "memory.current").read_text()))
    with suppress(OSError, ValueError):
        found = found or [os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    return min(found, default=None)


def enough_memory(needed: int) -> None:
    """Raises ``VerificationError`` where a run would take more memory than there is free."""
    free = free_memory()
    if free is not None and needed > free:
        raise VerificationError(
            f"the run needs about {needed / 1e9:.1f} GB, but {free / 1e9:.1f} GB of memory are free",
            hint="smaller sizes show the same: --at B=4,L=8",
        )


class Launcher:
    """Runs one after the other, all ranks of which are forked from one process that has imported PyTorch once.

    As a context: whichever way the block ends, no process is left. Entering it raises ``VerificationError`` where
    PyTorch is missing or too old.
    """

    def __enter__(self) -> Launcher:
        self.torch = torch_version()
        self.count = 0
        self.place = tempfile.TemporaryDirectory(prefix="symcomm-")
        self.folder = Path(self.place.name)
        self.process: subprocess.Popen[bytes] | None = None
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end()
        self.place.cleanup()

    def __call__(
        self, run: Mapping[str, Any], limit: float = TIME_LIMIT, port: int | None = None,
        fault: Mapping[str, Any] | None = None,
    ) -> list[dict[str, Any]]:  # fmt: skip
        """What each rank of a run counted; ``source_text`` of the run is its written module.

        Raises ``VerificationError`` where a rank fails or the run takes longer than ``limit`` seconds; none of its
        processes is left then, and another run may follow.
        """
        if port is not None:
            free_port(port)
        self.count += 1
        folder = self.folder / str(self.count)
        folder.mkdir()
        source = folder / "written.py"
        source.write_text(str(run["source_text"]), encoding="utf-8")
        meeting = f"tcp://127.0.0.1:{port}" if port is not None else f"file://{folder / 'meeting'}"
        spec = {k: v for k, v in run.items() if k != "source_text"} | {
            "source": str(source), "meeting": meeting, "limit": limit, "fault": dict(fault or {}),
        }  # fmt: skip
        (folder / "spec.json").write_text(json.dumps(spec), encoding="utf-8")
        ended = self._ended(folder, spec, limit)
        if ended["waiting"]:
            raise VerificationError(
                f"{spec['method']} on {spec['ranks']} processes did not end within {limit:g} s; "
                f"rank {', '.join(map(str, ended['waiting']))} had not answered",
                hint="all processes were ended; --limit gives them longer",
            )
        return [_report(folder, spec, rank, ended["statuses"][rank]) for rank in _first_failure(folder, spec)]

    def _ended(self, folder: Path, spec: Mapping[str, Any], limit: float) -> dict[str, Any]:
        """How the ranks of a run ended: the status of each, and those that had not answered in time."""
        process = self.process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        line, late = b"", False
        with suppress(BrokenPipeError):  # it has ended, and its log tells why
            process.stdin.write(f"{folder}\n".encode())
            process.stdin.flush()
            late = not select.select([process.stdout], [], [], limit + STARTING)[0]
            line = b"" if late else process.stdout.readline()
        if line:
            found: dict[str, Any] = json.loads(line)
            return found
        self._end()
        said = (self.folder / "log.txt").read_text(encoding="utf-8", errors="replace").strip().splitlines()
        raise VerificationError(
            f"the process that starts the ranks of {spec['method']} "
            + (f"did not answer within {limit + STARTING:g} s" if late else "ended")
            + (f": {said[-1][:300]}" if said else " (it may have run out of memory)"),
            hint="does it run by itself? python -c 'import torch.distributed'",
        )

    def _start(self) -> subprocess.Popen[bytes]:
        # One thread a rank, over the loopback interface. The package is found where this one was.
        home = str(Path(__file__).parents[2])
        environment = os.environ | {
            "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "PYTHONWARNINGS": "ignore",
            "PYTHONPATH": os.pathsep.join(filter(None, (home, os.environ.get("PYTHONPATH", "")))),
            "TORCH_CPP_LOG_LEVEL": "ERROR",
        }  # fmt: skip
        with (self.folder / "log.txt").open("wb") as log:
            self.process = subprocess.Popen(  # noqa: S603  (our own module, no shell)
                [sys.executable, "-m", "symcomm.verify.worker", str(self.folder)],
                env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True,
            )  # fmt: skip
        return self.process

    def _end(self) -> None:
        if self.process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)  # a session of its own: its ranks go with it
        self.process.communicate()
        self.process = None


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


def _report(folder: Path, spec: Mapping[str, Any], rank: int, status: int) -> dict[str, Any]:
    path, log = folder / f"rank{rank}.json", folder / f"log{rank}.txt"
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
