"""Damaged inputs at every door: a clean error or an answer, nothing raw, nothing endless, nothing written."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from fuzzed import DOORS, damaged

import symcomm as sc

BATCH = 25


@contextmanager
def at_most(seconds: int) -> Iterator[None]:
    """Ends a run that would go on without end; far above what any input takes."""

    def stop(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def passed(door: str, seeds: range) -> None:
    opened, good = DOORS[door]
    for seed in seeds:
        text = damaged(good, seed)
        try:
            with at_most(30):
                opened(text)
        except sc.SymcommError as error:
            assert str(error).strip(), repr(text)  # noqa: PT017  (most of them are errors)
        except BaseException as error:
            raise AssertionError(f"seed {seed}: {type(error).__name__}: {error} for {text!r}") from error


@pytest.mark.parametrize("door", DOORS)
def test_the_input_that_is_damaged_is_good(door: str):
    opened, good = DOORS[door]
    assert opened(good)


@pytest.mark.few(27)
@pytest.mark.parametrize("first", range(0, 225, BATCH))
@pytest.mark.parametrize("door", DOORS)
def test_a_damaged_input_is_refused_or_read(door: str, first: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    passed(door, range(first, first + BATCH))
    assert not [*tmp_path.iterdir()]


@pytest.mark.long
@pytest.mark.parametrize("first", range(1000, 6600, 200))
@pytest.mark.parametrize("door", DOORS)
def test_many_damaged_inputs_are_refused_or_read(
    door: str, first: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    passed(door, range(first, first + 200))
    assert not [*tmp_path.iterdir()]
