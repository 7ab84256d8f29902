"""Collectives run message by message are what the records say, and a record that says otherwise is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import pytest
from api import Case, Derivation, DerivationError, Exchange, algorithms, no_model, num, plus, times
from api import messages_run as run

RUN = [(a.name, kind) for a in algorithms.ALGORITHMS.values() for kind in a.runs if kind != "send"]
LEVELS = {"hierarchical": [{"group": 2, "ranks": 6}],
          "torus_2d": [{"x_ranks": 2, "ranks": 6}, {"x_ranks": 3, "ranks": 9}],
          "torus_3d": [{"x_ranks": 2, "y_ranks": 2, "ranks": 12}]}  # fmt: skip


def asked(name: str, kind: str, sizes: dict[str, int], accounting: str | None = None) -> Derivation:
    options = {"chunks": 3} if algorithms.algorithm(name).chunked else {}
    return no_model().derive(
        "collective_time", algorithm=name, collective=kind, payload="997 B", latency="1 us", bandwidth="1 GB/s",
        accounting=accounting, **sizes, **options,
    )  # fmt: skip


def wrong() -> dict[str, Callable[[Case, Exchange], Exchange]]:
    """Slips of a careless record: a factor, a term that is missing, one too many."""

    def first(made: Exchange, **changed: object) -> Exchange:
        return replace(made, phases=(replace(made.phases[0], **changed), *made.phases[1:]))  # type: ignore[arg-type]

    return {
        "twice the bytes": lambda case, made: first(made, path=times(num(2), made.phases[0].path)),
        "half the bytes": lambda case, made: first(made, path=times(made.phases[0].path, num(Fraction(1, 2)))),
        "one round more": lambda case, made: first(made, rounds=plus(made.phases[0].rounds, num(1))),
        "one chunk too few": lambda case, made: first(
            made, path=plus(made.phases[0].path, times(num(-1), case.split(case.n, case.k)))
        ),
        "without its last stage": lambda case, made: replace(made, phases=made.phases[:-1]),
        "a busiest rank that sends less": lambda case, made: replace(made, sent=times(made.sent, num(Fraction(2, 3)))),
        "ranks that together send more": lambda case, made: replace(made, total=plus(made.total, case.n)),
    }


@pytest.mark.parametrize(("name", "kind"), RUN)
def test_what_a_record_says_is_what_messages_take(name: str, kind: str) -> None:
    for sizes in LEVELS.get(name, [{"ranks": 5}, {"ranks": 8}]):
        asked(name, kind, sizes).check(deep=True)


@pytest.mark.parametrize("name", ["torus_2d", "torus_3d"])
def test_all_axes_of_a_torus_at_once_are_run_too(name: str) -> None:
    for kind in ("all-reduce", "all-gather", "reduce-scatter"):
        for sizes in LEVELS[name]:
            asked(name, kind, sizes, "all_axes_at_once").check(deep=True)


@pytest.mark.few(40)
@pytest.mark.parametrize("slip", wrong())
@pytest.mark.parametrize(("name", "kind"), RUN)
def test_a_record_with_a_slip_is_refused(name: str, kind: str, slip: str, monkeypatch: pytest.MonkeyPatch) -> None:
    record = algorithms.algorithm(name)
    right = record.runs[kind]
    case = Case(num(997), num(8))
    if slip == "without its last stage" and len(right(replace(case, nodes=(num(2), num(2)))).phases) == 1:
        pytest.skip("it has one stage")

    def slipped(case: Case) -> Exchange:
        return wrong()[slip](case, right(case))

    made = replace(record, runs={**record.runs, kind: slipped})
    monkeypatch.setattr(algorithms, "ALGORITHMS", {**algorithms.ALGORITHMS, name: made})
    with pytest.raises(DerivationError):
        asked(name, kind, LEVELS.get(name, [{"ranks": 6}])[0]).check(deep=True)


def test_a_run_that_adds_a_part_twice_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from api import messages

    def again(k: int, p: int, apart: int, names: object, adds: bool) -> list[messages.Message]:
        return [(rank, (rank + 1) % p, ["t"], adds, 0) for rank in range(p)]

    monkeypatch.setattr(messages, "_pairs", again)
    with pytest.raises(AssertionError, match="adds a part of t twice"):
        run.__wrapped__("recursive_doubling", "all-reduce", 4, Fraction(1))


def test_very_many_ranks_are_not_run() -> None:
    assert run("ring", "all-gather", 100_000, Fraction(1)) is None
    assert run("ring", "all-to-all", 1000, Fraction(1)) is None
