"""Settings for all tests: properties are judged by their result, never by the clock of a busy machine.

The default run tries few cases of each property, the same ones each time, so that who changes nothing breaks nothing;
``HYPOTHESIS_PROFILE=other`` tries as many other ones, ``thorough`` many more.
"""

import gc
import os
from zlib import crc32

import pytest
from hypothesis import HealthCheck, settings

_PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("few", _PATIENT, max_examples=20, derandomize=True)
settings.register_profile("other", _PATIENT, max_examples=40)
settings.register_profile("thorough", _PATIENT, max_examples=400)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "few"))
os.environ.pop("COLUMNS", None)  # pytest-xdist tells its workers a width: our commands would fold their lines


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--share", default="1", help="1/8:word runs an eighth of the chosen tests, another for each word")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what is not of the share that is asked for; of tests marked ``few(n)`` all but n cases are long."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("few") and not item.get_closest_marker("long"):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for found in cases.values():
        kept = found[0].get_closest_marker("few").args[0]
        for n, item in enumerate(found):
            if n * kept % len(found) >= kept:  # of 10 cases the few(3) are those numbered 0, 4 and 7
                item.add_marker("long")
    part, _, word = config.getoption("share").partition(":")
    of = int(part.rpartition("/")[2])
    chosen = [crc32((word + item.nodeid).encode()) % of == 0 for item in items]
    config.hook.pytest_deselected(items=[item for item, mine in zip(items, chosen, strict=True) if not mine])
    items[:] = [item for item, mine in zip(items, chosen, strict=True) if mine]


def pytest_collection_finish() -> None:
    """What was imported and collected stays to the end: it is not looked through for garbage again and again."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
