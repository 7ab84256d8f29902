"""Frozen dataclasses whose methods are made late behave as those of ``dataclasses`` do."""

import copy
import dataclasses
import gc
import inspect
import pickle
import weakref
from dataclasses import field
from functools import cached_property
from threading import Thread
from typing import ClassVar

import pytest
from api import collected_rarely, dataclass, replace


def classes(made):
    """The same classes by one decorator or the other."""

    @made(frozen=True)
    class Base:
        """The base."""

        kind: ClassVar[str] = "none"
        a: int
        b: tuple[int, ...] = (1,)

    @made(frozen=True)
    class Sub(Base):
        """More fields."""

        c: list = field(default_factory=list, compare=False)
        d: str = field(default="d", repr=False)
        e: int = field(default=3, kw_only=True)
        f: int = field(default=0, init=False)

        def __post_init__(self):
            if self.a < 0:
                raise ValueError("a is negative")

        @cached_property
        def twice(self):
            return 2 * self.a

    @made(frozen=True)
    class Own:
        """Says itself what is equal."""

        a: int

        def __eq__(self, other):
            return True

        def __hash__(self):
            return 7

        def __repr__(self):
            return "own"

    @made(frozen=True)
    class Nothing:
        """No fields."""

    @made(frozen=True, eq=False)
    class Itself:
        """Equal to itself alone."""

        a: int

    return Base, Sub, Own, Nothing, Itself


OURS, THEIRS = classes(dataclass), classes(dataclasses.dataclass)


def outcome(do, made):
    try:
        return repr(do(*made))
    except Exception as error:
        return type(error).__name__, str(error)


@pytest.mark.parametrize(
    "do",
    [
        lambda base, sub, own, none, itself: base(1),
        lambda base, sub, own, none, itself: sub(1, (2,), [3], "x", e=4),
        lambda base, sub, own, none, itself: sub(1, (2,), [3], "x", 4),
        lambda base, sub, own, none, itself: sub(),
        lambda base, sub, own, none, itself: sub(-1),
        lambda base, sub, own, none, itself: sub(1, f=2),
        lambda base, sub, own, none, itself: sub(1).c is not sub(1).c,
        lambda base, sub, own, none, itself: (sub(1).f, sub(1).d, sub(1).e, sub(1).twice, sub.kind),
        lambda base, sub, own, none, itself: (sub(1) == sub(1), sub(1) == sub(2), sub(1, c=[4]) == sub(1)),
        lambda base, sub, own, none, itself: (base(1) == sub(1), base(1) == 1, base(1) != base(1)),
        lambda base, sub, own, none, itself: hash(base(1)) == hash((1, (1,))),
        lambda base, sub, own, none, itself: hash(sub(1, c=[1])) == hash(sub(1, c=[2])) == hash((1, (1,), "d", 0, 3)),
        lambda base, sub, own, none, itself: hash(base([])),
        lambda base, sub, own, none, itself: (own(1), own(1) == own(2), hash(own(1))),
        lambda base, sub, own, none, itself: (none(), none() == none(), hash(none()) == hash(())),
        lambda base, sub, own, none, itself: (itself(1) == itself(1), len({itself(1), itself(1)})),
        lambda base, sub, own, none, itself: dataclasses.replace(sub(1), a=2, e=5),
        lambda base, sub, own, none, itself: dataclasses.replace(sub(1), g=2),
        lambda base, sub, own, none, itself: dataclasses.replace(sub(1), f=2),
        lambda base, sub, own, none, itself: dataclasses.asdict(sub(1, e=9)),
        lambda base, sub, own, none, itself: [f.name for f in dataclasses.fields(sub)],
        lambda base, sub, own, none, itself: setattr(base(1), "a", 2),
        lambda base, sub, own, none, itself: setattr(base(1), "z", 2),
        lambda base, sub, own, none, itself: delattr(sub(1), "a"),
        lambda base, sub, own, none, itself: setattr(type("Plain", (base,), {})(1), "a", 2),
        lambda base, sub, own, none, itself: setattr(type("Plain", (base,), {})(1), "z", 2),
        lambda base, sub, own, none, itself: copy.deepcopy(sub(1, c=[[2]])),
        lambda base, sub, own, none, itself: base.__match_args__ + sub.__match_args__,
        lambda base, sub, own, none, itself: [*inspect.signature(sub).parameters],
        lambda base, sub, own, none, itself: inspect.signature(base),
        lambda base, sub, own, none, itself: inspect.signature(type("P", (base,), {"__init__": lambda self, q: None})),
        lambda base, sub, own, none, itself: (base.__init__.__name__, base.__init__.__qualname__),
    ],
)  # fmt: skip
def test_a_record_does_what_a_frozen_dataclass_does(do):
    fresh = outcome(do, classes(dataclass))
    assert fresh == outcome(do, OURS) == outcome(do, THEIRS)


def test_a_record_that_holds_itself_is_shown():
    parts = []
    made = OURS[1](1, c=parts)
    parts.append(made)
    assert "..." in repr(made)


def replaced(base, sub, own, none, itself, other):
    """A copy has the fields of a record with some of them changed, and nothing that was cached in it."""

    class Holder(base):
        """A subclass of its own."""

        def __init__(self, a):
            super().__init__(a, (9,))

    made = sub(1, c=[3], e=5)
    assert made.twice == 2
    found = [other(made, a=4).twice, other(made, a=4), other(base(1, (5,)), a=2), hash(other(base(1), a=2))]
    for record, changes in ((base(1), {"z": 2}), (sub(1), {"f": 2}), (Holder(1), {"a": 2}), (none(), {}), (sub(1), {})):
        found.append(outcome(lambda: other(record, **changes), ()))  # noqa: B023  (called at once)
    return found


def test_a_record_is_replaced_as_a_frozen_dataclass_is():
    assert replaced(*OURS, replace) == replaced(*OURS, dataclasses.replace)
    assert repr(replaced(*OURS, replace)) == repr(replaced(*THEIRS, dataclasses.replace))


def test_records_are_pickled():
    from api import Span

    span = Span("f", 1, "text", 0, 2)
    assert pickle.loads(pickle.dumps(span)) == span


def test_a_default_that_all_would_share_is_refused():
    with pytest.raises(ValueError, match="mutable default"):

        @dataclass(frozen=True)
        class Shared:
            """Never made."""

            a: list = []  # noqa: RUF012


def test_garbage_is_looked_for_as_before_when_the_last_of_several_threads_is_done():
    before = gc.get_threshold()
    seen = []

    def inside():
        with collected_rarely():
            seen.append(gc.get_threshold()[0])

    with collected_rarely():
        threads = [Thread(target=inside) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert gc.get_threshold()[0] == 4_000_000
    assert seen == [4_000_000] * 4
    assert gc.get_threshold() == before


@pytest.mark.parametrize("own", [(0, 10, 10), (5_000_000, 5, 5)])
def test_who_turned_the_looks_for_garbage_off_is_obeyed(own):
    before = gc.get_threshold()
    try:
        gc.set_threshold(*own)
        with collected_rarely():
            assert gc.get_threshold() == own
        assert gc.get_threshold() == own
    finally:
        gc.set_threshold(*before)


@pytest.fixture
def usual_garbage():
    """Python's own thresholds; those of the tests are rarer, and commands that ended here have set objects aside."""
    before = gc.get_threshold()
    gc.unfreeze()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*before)


def test_circles_of_garbage_are_found_once_there_are_many_new_objects(monkeypatch, usual_garbage):
    monkeypatch.setattr("symcomm.core.garbage._OBJECTS", 2_000)
    monkeypatch.setattr("symcomm.core.garbage._unseen", 0)
    gc.collect()
    circle = Thread()
    circle.__dict__["itself"], seen, kept = circle, weakref.ref(circle), []
    del circle
    gone = []
    for _ in range(5):
        with collected_rarely():
            kept += [[] for _ in range(900)]
        gone.append(seen() is None)
    assert gone == [False, False, True, True, True]


def test_the_young_are_not_looked_at_when_the_last_door_is_left(usual_garbage):
    looks = []
    gc.callbacks.append(lambda phase, info: looks.append(phase))
    try:
        with collected_rarely():
            kept = [[] for _ in range(200_000)]
        kept += [[] for _ in range(100)]
    finally:
        gc.callbacks.pop()
    assert looks == []
