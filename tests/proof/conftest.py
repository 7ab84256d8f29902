"""The helpers of the proof stand beside its tests; at the end of a session, how much was proved."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

_counted: dict[tuple[str, str], int] = {}


def _add(cases: Any) -> None:
    for kind, strategy, times in cases:
        _counted[kind, strategy] = _counted.get((kind, strategy), 0) + times


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hands the cases of a worker of pytest-xdist to the process that prints the summary."""
    ran = sys.modules.get("proof_cases")
    cases = [(kind, strategy, times) for (kind, strategy), times in ran.RAN.items()] if ran else []
    output = getattr(session.config, "workeroutput", None)
    if output is None:
        _add(cases)
    else:
        output["proof"] = cases


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Takes the cases of a worker."""
    _add(getattr(node, "workeroutput", {}).get("proof", ()))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Prints how many op kinds ran under how many strategies."""
    if _counted:
        kinds, strategies = {k for k, _ in _counted}, {s for _, s in _counted}
        terminalreporter.write_line(
            f"the proof: {len(_counted)} pairs of {len(kinds)} op kinds and {len(strategies)} strategies, "
            f"{sum(_counted.values())} runs of an op kind on every rank"
        )
