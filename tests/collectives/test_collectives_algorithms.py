"""Each algorithm's record, against a step-by-step exchange of real arrays that counts every byte and round."""

from __future__ import annotations

import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import exchange as ex
from api import (
    ALGORITHMS,
    BOUNDS,
    COLLECTIVES,
    KINDS,
    Accounting,
    AccountingError,
    Case,
    Ceiling,
    Exchange,
    Form,
    Num,
    Ratio,
    Sym,
    SymcommError,
    algorithm,
    names,
    num,
    product,
    runs_by,
    share,
    wire,
)
from api import accounting_CONVENTIONS as CONVENTIONS
from api import form_evaluate as evaluate

ITEM = 8  # bytes of the int64 that the simulated ranks hold
EVERY = [(a.name, kind) for a in ALGORITHMS.values() for kind in a.runs]


class Setup:
    """One exchange: who has what before, and what the definition of the collective says after."""

    def __init__(self, kind: str, k: int, n: int) -> None:
        self.kind, self.k, self.n = kind, k, n
        rng = np.random.default_rng(k * 1000 + n)
        self.inputs = [rng.integers(0, 1000, n) for _ in range(k)]
        self.sum = np.sum(self.inputs, axis=0)
        self.net = ex.Network(k)

    def copies(self) -> ex.RankShare:
        return {r: x.copy() for r, x in enumerate(self.inputs)}

    def rows(self, parts: int) -> ex.RankShare:
        return {r: ex.cut(x, parts) for r, x in enumerate(self.inputs)}

    def own_rows(self) -> ex.RankShare:
        """Each rank has its own row of the first rank's tensor, and zeros."""
        full = ex.cut(self.inputs[0], self.k)
        held = {}
        for r in range(self.k):
            held[r] = np.zeros_like(full)
            held[r][r] = full[r]
        return held

    def root_rows(self, parts: int) -> ex.RankShare:
        full = ex.cut(self.inputs[0], parts)
        return {r: full.copy() if r == 0 else np.zeros_like(full) for r in range(self.k)}

    # -- what the collective means ----------------------------------------------------------------

    def everyone_has(self, expected: np.ndarray, held: ex.RankShare) -> None:
        for r in range(self.k):
            assert np.array_equal(held[r].reshape(-1)[: self.n], expected), f"rank {r}"

    def rank_i_has_row_i(self, expected: np.ndarray, held: ex.RankShare) -> None:
        rows = ex.cut(expected, self.k)
        for r in range(self.k):
            assert np.array_equal(held[r][r], rows[r]), f"rank {r}"


def whole(simulate, reduces: bool, gathers: bool, root: bool = False):
    """Algorithms that move the whole tensor in one piece."""

    def go(s: Setup, **_) -> None:
        held = s.copies()
        s.net.run(simulate(s.net, s.k, held))
        expected = s.sum if reduces else s.inputs[0]
        if gathers:
            s.everyone_has(expected, held)
        else:
            assert np.array_equal(held[0], expected)

    return go


def reduce_scatter(simulate):
    def go(s: Setup, **_) -> None:
        held = s.rows(s.k)
        s.net.run(simulate(s.net, s.k, held))
        s.rank_i_has_row_i(s.sum, held)

    return go


def all_gather(simulate):
    def go(s: Setup, **_) -> None:
        held = s.own_rows()
        s.net.run(simulate(s.net, s.k, held))
        s.everyone_has(s.inputs[0], held)

    return go


def all_to_all(simulate):
    def go(s: Setup, **_) -> None:
        k = s.k
        full = ex.cut(s.inputs[0], k * k).reshape(k, k, -1)
        held = {r: full[r].copy() for r in range(k)}
        s.net.run(simulate(s.net, k, held))
        for r in range(k):
            assert np.array_equal(held[r], full[:, r]), f"rank {r}"

    return go


def ring(simulate):
    return lambda net, k, held: simulate(net, list(range(k)), held)


def ring_all_reduce(s: Setup, **_) -> None:
    held = s.rows(s.k)
    s.net.run(ex.ring_reduce_scatter(s.net, list(range(s.k)), held))
    s.net.run(ex.ring_all_gather(s.net, list(range(s.k)), held))
    s.everyone_has(s.sum, held)


def two(first, second):
    """An algorithm that runs one after another on what the first has left."""

    def go(net, k, held):
        yield from first(net, k, held)
        yield from second(net, k, held)

    return go


def tree_scatter(s: Setup, **_) -> None:
    held = s.root_rows(s.k)
    s.net.run(ex.tree_scatter(s.net, s.k, held))
    s.rank_i_has_row_i(s.inputs[0], held)


def tree_gather(s: Setup, **_) -> None:
    held = s.own_rows()
    s.net.run(ex.tree_gather(s.net, s.k, held))
    assert np.array_equal(held[0].reshape(-1)[: s.n], s.inputs[0])


def scatter_all_gather(s: Setup, **_) -> None:
    held = s.root_rows(s.k)
    s.net.run(two(ex.tree_scatter, ring(ex.ring_all_gather))(s.net, s.k, held))
    s.everyone_has(s.inputs[0], held)


def halving_all_reduce(s: Setup, **_) -> None:
    held = s.copies()
    s.net.run(ex.halving_all_reduce(s.net, s.k, held, s.n))
    s.everyone_has(s.sum, held)


def double_tree(s: Setup, q: int, **_) -> None:
    held = s.rows(2 * q)
    s.net.run(ex.double_tree_all_reduce(s.net, s.k, held, q))
    s.everyone_has(s.sum, held)


def chain(simulate, reduces: bool, gathers: bool):
    def go(s: Setup, q: int, **_) -> None:
        held = s.rows(q) if reduces else s.root_rows(q)
        s.net.run(simulate(s.net, s.k, held))
        expected = s.sum if reduces else s.inputs[0]
        if gathers:
            s.everyone_has(expected, held)
        else:
            assert np.array_equal(held[0].reshape(-1)[: s.n], expected)

    return go


def owner_multicast(s: Setup, **_) -> None:
    held = s.rows(s.k)
    s.net.run(ex.owner_multicast_all_reduce(s.net, s.k, held))
    s.everyone_has(s.sum, held)


def two_shot(s: Setup, **_) -> None:
    held = s.rows(s.k)
    s.net.run(ex.two_shot_all_reduce(s.net, s.k, held))
    s.everyone_has(s.sum, held)


def message(s: Setup, **_) -> None:
    s.net.send(0, 1, s.inputs[0])
    assert np.array_equal(s.net.deliver()[0, 1, None], s.inputs[0])


def halo(sides: int):
    """On a line of ranks each ends with the edges of those beside it; two ranks send theirs at once."""

    def go(s: Setup, **_) -> None:
        edges = [ex.cut(one, sides) for one in s.inputs]
        ways = [(1, 0), (-1, 1)][:sides]
        for turn in [ways] if s.k == 2 else [[way] for way in ways]:
            pairs = [(r, r + step, which) for step, which in turn for r in range(s.k) if 0 <= r + step < s.k]
            for r, other, which in pairs:
                s.net.send(r, other, edges[r][which], which)
            inbox = s.net.deliver()
            assert all(np.array_equal(inbox[r, other, which], edges[r][which]) for r, other, which in pairs)

    return go


def leveled_all_to_all(s: Setup, sizes: tuple[int, ...], **_) -> None:
    full = ex.cut(s.inputs[0], s.k * s.k).reshape(s.k, s.k, -1)
    held = {r: full[r].copy() for r in range(s.k)}
    ex.leveled_all_to_all(s.net, sizes, held)
    for r in range(s.k):
        assert np.array_equal(held[r], full[:, r]), f"rank {r}"


def leveled(kind: str):
    scatters, gathers = kind != "all-gather", kind != "reduce-scatter"

    def go(s: Setup, sizes: tuple[int, ...], two_ways: bool = False, **_) -> None:
        expected = s.sum if scatters else s.inputs[0]
        if scatters:
            held = s.copies()
        else:
            # Each rank begins with the piece of pieces that its coordinates name; padding lengthens the pieces.
            held = {}
            for r in range(s.k):
                part, rest = s.inputs[0], r
                for size in sizes:
                    part, rest = ex.cut(part, size)[rest % size], rest // size
                held[r] = part.copy()
        if not scatters:
            lengths, length = [], s.n
            for size in sizes:
                lengths.append(length)
                length = -(-length // size)
            gather = ex.two_way_all_gather if two_ways else ex.ring_all_gather
            for level in reversed(range(len(sizes))):
                rows = {}
                for r in range(s.k):
                    rows[r] = np.zeros((sizes[level], len(held[r])), held[r].dtype)
                    rows[r][r // int(np.prod(sizes[:level], initial=1)) % sizes[level]] = held[r]
                s.net.run(*(gather(s.net, g, rows) for g in ex.level_groups(sizes, level)))
                held = {r: rows[r].reshape(-1)[: lengths[level]] for r in range(s.k)}
            s.everyone_has(expected, held)
            return
        ex.leveled(s.net, sizes, held, scatters, gathers, two_ways)
        if gathers:
            s.everyone_has(expected, held)
            return
        for r in range(s.k):
            part, rest = expected, r
            for size in sizes:
                part, rest = ex.cut(part, size)[rest % size], rest // size
            assert np.array_equal(held[r], part), f"rank {r}"

    return go


def pieces(simulate, kind: str):
    return {"all-gather": all_gather, "reduce-scatter": reduce_scatter, "all-to-all": all_to_all}[kind](simulate)


SIMULATED = {
    ("ring", "all-reduce"): ring_all_reduce,
    ("ring", "reduce-scatter"): pieces(ring(ex.ring_reduce_scatter), "reduce-scatter"),
    ("ring", "all-gather"): pieces(ring(ex.ring_all_gather), "all-gather"),
    ("ring", "ring-pass"): pieces(ring(ex.ring_all_gather), "all-gather"),
    ("ring", "ring-sum"): pieces(ring(ex.ring_reduce_scatter), "reduce-scatter"),
    ("ring", "ring-sum-home"): pieces(ring(ex.ring_sum_home), "reduce-scatter"),
    ("ring", "halo-exchange"): halo(2),
    ("ring", "halo-shift"): halo(1),
    ("ring", "all-to-all"): pieces(ex.ring_all_to_all, "all-to-all"),
    ("tree", "all-reduce"): whole(two(ex.tree_reduce, ex.tree_broadcast), True, True),
    ("tree", "broadcast"): whole(ex.tree_broadcast, False, True),
    ("tree", "reduce"): whole(ex.tree_reduce, True, False),
    ("tree", "scatter"): tree_scatter,
    ("tree", "gather"): tree_gather,
    ("double_tree", "all-reduce"): double_tree,
    ("recursive_doubling", "all-reduce"): whole(ex.doubling_all_reduce, True, True),
    ("recursive_doubling", "all-gather"): pieces(ex.doubling_all_gather, "all-gather"),
    ("halving_doubling", "all-reduce"): halving_all_reduce,
    ("halving_doubling", "reduce-scatter"): pieces(ex.halving_reduce_scatter, "reduce-scatter"),
    ("halving_doubling", "all-gather"): pieces(ex.doubling_all_gather, "all-gather"),
    ("bruck", "all-gather"): pieces(ex.bruck_all_gather, "all-gather"),
    ("bruck", "all-to-all"): pieces(ex.bruck_all_to_all, "all-to-all"),
    ("pairwise", "all-to-all"): pieces(ex.pairwise_all_to_all, "all-to-all"),
    ("pairwise", "reduce-scatter"): pieces(ex.pairwise_reduce_scatter, "reduce-scatter"),
    ("pairwise", "all-gather"): pieces(ex.pairwise_all_gather, "all-gather"),
    ("one_shot", "all-reduce"): whole(ex.one_shot_all_reduce, True, True),
    ("two_shot", "all-reduce"): two_shot,
    ("scatter_allgather", "broadcast"): scatter_all_gather,
    ("chain", "broadcast"): chain(ex.chain_broadcast, False, True),
    ("chain", "reduce"): chain(ex.chain_reduce, True, False),
    ("chain", "all-reduce"): chain(two(ex.chain_reduce, ex.chain_broadcast), True, True),
    ("owner_multicast", "all-reduce"): owner_multicast,
    **{
        (name, kind): leveled(kind)
        for name in ("hierarchical", "torus_2d", "torus_3d")
        for kind in ("all-reduce", "reduce-scatter", "all-gather")
    },
    ("hierarchical", "all-to-all"): leveled_all_to_all,
    **{(name, "send"): message for name in ALGORITHMS},
}


def padded(of: Form, parts: Form) -> Form:
    item = num(ITEM)
    return product(item, Ceiling(Ratio(of, product(item, parts))))


def written(name: str, kind: str, k: int, known: bool, directions: int = 1) -> Exchange:
    record = algorithm(name)
    ranks = num(k) if known else Sym("k")
    case = Case(Sym("n"), ranks, padded, nodes=tuple(Sym(s) for s in record.inner), directions=directions)
    return record.run(kind, case)


def compare(net: ex.Network, made: Exchange, values: dict[str, Fraction], slotted: bool = False) -> None:
    def worth(form: Form) -> Fraction:
        return evaluate(form, values)

    assert net.rounds == worth(made.rounds), "rounds"
    assert max(net.sent) == worth(made.sent), "sent"
    assert max(net.received) == worth(made.received), "received"
    assert max(s + r for s, r in zip(net.sent, net.received, strict=True)) == worth(made.moved), "sent and received"
    assert sum(net.sent) == worth(made.total), "all links"
    if slotted:
        assert net.path <= worth(made.path)
        assert max(net.slots) <= worth(made.path) / worth(made.rounds)
        assert net.reduced <= worth(made.reduced)
    else:
        assert net.path == worth(made.path), "critical path"
        assert net.reduced == worth(made.reduced), "reduced"


def values_of(n: int, k: int, **more: int) -> dict[str, Fraction]:
    return {name: Fraction(v) for name, v in {"n": n * ITEM, "k": k, **more}.items()}


PLAIN = [(a, kind) for a, kind in EVERY if not algorithm(a).inner]
LEVELED = [(a, kind) for a, kind in EVERY if algorithm(a).inner and kind != "send"]


@pytest.mark.few(105)
@pytest.mark.parametrize("k", range(2, 18))
@pytest.mark.parametrize(("name", "kind"), PLAIN)
def test_every_byte_and_round_is_the_one_the_record_says(name: str, kind: str, k: int) -> None:
    for n in (2 * k * k, k * k + 1, k * k + k + 3):
        for q in (1, 3, 8) if algorithm(name).chunked else (1,):
            setup = Setup(kind, k, n)
            SIMULATED[name, kind](setup, q=q)
            made = written(name, kind, k, known=True)
            compare(setup.net, made, values_of(n, k, q=q), slotted=name == "double_tree")
            symbolic = written(name, kind, k, known=False)
            compare(setup.net, symbolic, values_of(n, k, q=q), slotted=name == "double_tree")


@pytest.mark.parametrize("k", range(2, 14))
def test_an_all_to_all_both_ways_round_a_ring_crosses_the_links_of_the_shorter_ways(k: int) -> None:
    for n in (2 * k * k, 2 * k * k + 1):
        setup = Setup("all-to-all", k, n)
        full = ex.cut(setup.inputs[0], 2 * k * k).reshape(k, k, -1)
        held = {r: full[r].copy() for r in range(k)}
        setup.net.run(ex.two_way_all_to_all(setup.net, k, held))
        for r in range(k):
            assert np.array_equal(held[r], full[:, r]), f"rank {r}"
        compare(setup.net, written("ring", "all-to-all", k, known=False, directions=2), values_of(n, k))
        crossed = sum(min(i, k - i) for i in range(1, k))
        assert sum(setup.net.sent) == k * crossed * full[0][0].nbytes


@pytest.mark.parametrize("kind", ["all-reduce", "reduce-scatter", "all-gather"])
@pytest.mark.parametrize("two_ways", [False, True], ids=["one way", "both ways"])
def test_axes_of_a_torus_that_are_used_at_once_take_as_long_as_the_longest_ring_of_each_stage(
    kind: str, two_ways: bool
) -> None:
    scatter = ex.two_way_reduce_scatter if two_ways else ex.ring_reduce_scatter
    gather = ex.two_way_all_gather if two_ways else ex.ring_all_gather
    for name, sizes in (("torus_2d", (2, 4)), ("torus_2d", (4, 4)), ("torus_2d", (3, 2)), ("torus_3d", (2, 3, 2))):
        k, ways = int(np.prod(sizes)), len(sizes)
        n = 4 * ways * k
        stages: list[list[ex.Network]] = [[] for _ in range(2 * ways)]
        for first in range(ways):
            length = n // ways
            for stage in range(ways):
                axis = (first + stage) % ways
                groups = ex.level_groups(sizes, axis)
                for at, wanted, step in ((stage, kind != "all-gather", scatter),
                                         (2 * ways - 1 - stage, kind != "reduce-scatter", gather)):  # fmt: skip
                    if wanted:
                        net = ex.Network(k)
                        rows = {r: ex.cut(np.ones(length, np.int64), sizes[axis]) for r in range(k)}
                        net.run(*(step(net, g, rows) for g in groups))
                        stages[at].append(net)
                length //= sizes[axis]
        record = algorithm(name)
        case = Case(Sym("n"), Sym("k"), padded, nodes=tuple(Sym(s) for s in record.inner), at_once=True,
                    directions=1 + two_ways)  # fmt: skip
        made, values = record.run(kind, case), values_of(n, k, **dict(zip(record.inner, sizes, strict=False)))
        assert evaluate(made.rounds, values) == sum(max(x.rounds for x in nets) for nets in stages if nets)
        assert evaluate(made.path, values) == sum(max(x.path for x in nets) for nets in stages if nets)
        every = [net for nets in stages for net in nets]
        assert evaluate(made.sent, values) == sum(max(net.sent) for net in every)
        assert evaluate(made.total, values) == sum(sum(net.sent) for net in every)


def shapes(levels: int, ranks: int) -> list[tuple[int, ...]]:
    sizes = [(a, b) for a in range(1, 9) for b in range(1, 9) if 2 <= a * b <= ranks and a > 1]
    if levels == 2:
        return sizes
    return [(a, b, c) for a, b in sizes for c in range(1, 5) if a * b * c <= ranks]


@pytest.mark.few(8)
@pytest.mark.parametrize("ranks", [9, pytest.param(17, marks=pytest.mark.long)])
@pytest.mark.parametrize("two_ways", [False, True], ids=["one way", "both ways"])
@pytest.mark.parametrize(("name", "kind"), LEVELED)
def test_rings_inside_rings_move_what_their_record_says_for_every_shape(
    name: str, kind: str, two_ways: bool, ranks: int
) -> None:
    inner = algorithm(name).inner
    made = written(name, kind, 0, known=False, directions=2 if two_ways else 1)
    for sizes in shapes(len(inner) + 1, ranks):
        k = int(np.prod(sizes))
        for n in (2 * k, 3 * k + 1, 5 * k - 1):
            setup = Setup(kind, k, n)
            SIMULATED[name, kind](setup, sizes=sizes, two_ways=two_ways)
            compare(setup.net, made, values_of(n, k, **dict(zip(inner, sizes, strict=False))))


def test_the_slot_of_a_double_tree_is_used_up_once_the_pipeline_is_full() -> None:
    for k in range(4, 18):
        setup = Setup("all-reduce", k, 512)
        double_tree(setup, q=64)
        values = values_of(512, k, q=64)
        assert setup.net.path / evaluate(written("double_tree", "all-reduce", k, True).path, values) > 0.9


@pytest.mark.parametrize("name", [n for n, a in ALGORITHMS.items() if a.chunked or a.inner])
def test_a_message_is_a_message_under_every_algorithm(name: str) -> None:
    setup = Setup("send", 2, 9)
    message(setup)
    compare(setup.net, written(name, "send", 2, True), values_of(9, 2))


def test_every_collective_of_every_algorithm_is_simulated() -> None:
    assert set(EVERY) == set(SIMULATED)
    assert {"all-reduce", "broadcast", "reduce", "all-gather", "reduce-scatter", "scatter", "gather", "all-to-all",
            "ring-pass", "ring-sum", "ring-sum-home", "halo-exchange", "halo-shift", "send"} == set(KINDS)  # fmt: skip


# -- lower bounds ------------------------------------------------------------------------------------------


@pytest.mark.few(75)
@pytest.mark.parametrize("k", range(2, 18))
@pytest.mark.parametrize(("name", "kind"), [(a, kind) for a, kind in PLAIN if kind != "send"])
def test_no_algorithm_beats_the_lower_bounds_of_one_port(name: str, kind: str, k: int) -> None:
    values = values_of(k * k, k, q=4)
    made, bound = written(name, kind, k, True), BOUNDS[kind]
    assert evaluate(made.path, values) >= evaluate(bound.path(Sym("n"), Sym("k")), values)
    if name not in ("owner_multicast", "one_shot", "two_shot"):  # which reach many ranks in one round
        assert evaluate(made.rounds, values) >= evaluate(bound.rounds(Sym("k")), values)
    assert evaluate(made.reduced, values) >= evaluate(bound.reduced(Sym("n"), Sym("k")), values)


def test_each_bound_of_bytes_is_reached_by_an_algorithm() -> None:
    values = values_of(64 * 64, 64, q=1)
    for kind, bound in BOUNDS.items():
        least = min(
            evaluate(written(a.name, kind, 64, True).path, values) for a in ALGORITHMS.values()
            if kind in a.runs and not a.inner
        )  # fmt: skip
        limit = evaluate(bound.path(Sym("n"), Sym("k")), values)
        # A broadcast or reduction comes near n only in many chunks; van de Geijn's needs 2 (k-1)/k of it.
        assert least == limit or (kind in ("broadcast", "reduce") and least <= 6 * limit)


# -- shares ------------------------------------------------------------------------------------------------


@pytest.mark.few(105)
@pytest.mark.parametrize("k", range(2, 18))
@pytest.mark.parametrize(("name", "kind"), PLAIN)
def test_a_share_is_what_the_exchange_counts_where_the_payload_divides(name: str, kind: str, k: int) -> None:
    q, p = 2, ex.power_below(k)
    n = k * k * p * 2 * q
    setup = Setup(kind, k, n)
    SIMULATED[name, kind](setup, q=q)
    for counted, total in (
        ("sent_per_rank", max(setup.net.sent)),
        ("all_links", sum(setup.net.sent)),
        ("sent_and_received_per_rank", max(s + r for s, r in zip(setup.net.sent, setup.net.received, strict=True))),
    ):
        if kind == "send" and counted == "sent_and_received_per_rank":
            total *= 2  # a rank within a pipeline receives one message and sends one
        part = share(kind, counted, name, num(k), num(1))
        assert evaluate(part, {"q": Fraction(q)}) * n * ITEM == total, counted


def test_contributed_bytes_are_the_inputs_of_all_ranks() -> None:
    eight = {"k": Fraction(8)}
    assert evaluate(share("all-reduce", "contributed", "ring", Sym("k"), num(1)), eight) == 8
    assert evaluate(share("all-gather", "contributed", "ring", Sym("k"), num(1)), eight) == 1
    assert evaluate(share("reduce", "contributed", "tree", Sym("k"), num(1)), eight) == 8


def test_side_by_side_groups_count_only_over_all_links() -> None:
    assert names(share("all-reduce", "sent_per_rank", "ring", Sym("k"), Sym("groups"))) == ("k",)
    assert "groups" in names(share("all-reduce", "all_links", "ring", Sym("k"), Sym("groups")))


def test_the_blocks_of_bruck_are_counted_for_every_number_of_ranks() -> None:
    form = share("all-to-all", "sent_per_rank", "bruck", Sym("k"), num(1))
    assert evaluate(form, {"k": Fraction(8)}) == Fraction(12, 64)  # 0 ... 7 have 12 ones in binary
    for k in range(2, 70):
        ones = sum(bin(i).count("1") for i in range(k))
        assert evaluate(form, {"k": Fraction(k)}) == Fraction(ones, k * k)
    with pytest.raises(SymcommError, match="5/2 is no whole number, whose binary digits could be counted"):
        evaluate(form, {"k": Fraction(5, 2)})
    assert evaluate(share("all-to-all", "sent_per_rank", "bruck", num(6), num(1)), {}) == Fraction(7, 36)


def test_the_ring_tells_of_each_collective_what_it_does() -> None:
    told = {kind: wire(kind, "ring", Sym("k")).how for kind in algorithm("ring").runs}
    assert len(set(told.values())) == len(told)
    assert "adds its own" in told["reduce-scatter"]
    assert "adds" not in told["all-gather"]
    assert told["all-reduce"] == f"{told['reduce-scatter']} {told['all-gather']}"
    assert "crosses every link" in told["all-to-all"]


# -- words -------------------------------------------------------------------------------------------------


def test_each_algorithm_is_a_convention_and_has_a_source() -> None:
    assert {row.name for row in CONVENTIONS if row.field == "algorithm"} == {"usual", *ALGORITHMS}
    assert {*COLLECTIVES, "send"} == set(KINDS)
    for record in ALGORITHMS.values():
        for kind in record.runs:
            assert wire(kind, record.name, num(4)).how.endswith("."), (record.name, kind)
        assert any(c.isdigit() for c in record.source), record.name


@pytest.mark.parametrize(("said", "wanted"), [
    # One for each kind on a switch: rings, and messages from each rank to every other one where all exchange blocks.
    ("usual", {"all-reduce": "ring", "reduce-scatter": "ring", "all-gather": "ring", "all-to-all": "pairwise",
               "broadcast": "tree", "reduce": "tree", "scatter": "tree", "gather": "tree"}),
    # What is named holds where it can run, the others keep their own.
    ("pairwise", {"all-reduce": "ring", "reduce-scatter": "pairwise", "all-gather": "pairwise",
                  "all-to-all": "pairwise"}),
    ("tree", {"all-reduce": "tree", "all-gather": "ring", "all-to-all": "pairwise"}),
    ("hierarchical", {"all-reduce": "hierarchical", "all-to-all": "hierarchical", "broadcast": "tree"}),
    ("all-to-all: ring", {"all-to-all": "ring", "all-reduce": "ring"}),
    ("tree, all-to-all: bruck", {"all-reduce": "tree", "all-to-all": "bruck", "all-gather": "ring"}),
])  # fmt: skip
def test_each_kind_of_collective_has_one_algorithm(said: str, wanted: dict[str, str]) -> None:
    assert {kind: runs_by(said, kind) for kind in wanted} == wanted


def test_algorithms_of_single_collectives_are_laid_over_what_was_chosen_before() -> None:
    first = Accounting.of("tree", algorithm={"all-to-all": "ring"})
    both = Accounting.of(first, algorithm={"all-gather": "bruck"})
    assert both.algorithm == "tree, all-gather: bruck, all-to-all: ring"
    assert Accounting.of(first, algorithm="pairwise").algorithm == "pairwise"


@pytest.mark.parametrize(("said", "error"), [
    ({"all-to-al": "ring"}, "'all-to-al' is no collective with an algorithm\nhint: did you mean 'all-to-all'"),
    ({"all-to-all": "rign"}, "'rign' is no convention for algorithm\nhint: did you mean 'ring'?"),
    ({"send": "ring"}, "'send' is no collective with an algorithm"),
])  # fmt: skip
def test_a_slip_in_the_algorithm_of_one_collective_is_refused(said: dict[str, str], error: str) -> None:
    with pytest.raises(AccountingError) as caught:
        Accounting.of(algorithm=said)
    assert str(caught.value).startswith(error)


def test_only_algorithms_are_chosen_for_single_collectives() -> None:
    with pytest.raises(AccountingError, match="link is the name of a convention, not a dict"):
        Accounting.of(link={"all-to-all": "full_duplex"})


def test_an_algorithm_that_is_named_for_a_collective_it_cannot_run_is_refused() -> None:
    with pytest.raises(AccountingError) as caught:
        runs_by("all-to-all: tree", "all-to-all")
    assert str(caught.value) == (
        "the algorithm 'tree' cannot run all-to-all\nhint: these can: ring, bruck, pairwise, hierarchical"
    )


def test_an_algorithm_that_cannot_run_a_collective_is_refused_and_names_those_that_can() -> None:
    with pytest.raises(AccountingError) as caught:
        share("all-to-all", "sent_per_rank", "tree", Num(Fraction(4)), num(1))
    able = "ring, bruck, pairwise, hierarchical"
    assert str(caught.value) == f"the algorithm 'tree' cannot run all-to-all\nhint: these can: {able}"


def test_an_unknown_algorithm_is_refused_with_near_ones() -> None:
    with pytest.raises(AccountingError) as caught:
        algorithm("rign")
    assert str(caught.value) == "unknown algorithm 'rign'\nhint: did you mean 'ring'?"


def test_an_unknown_collective_is_refused_with_near_ones() -> None:
    with pytest.raises(AccountingError) as caught:
        algorithm("ring").run("all-reduec", Case(Sym("n"), Sym("k")))
    assert str(caught.value).startswith("unknown collective 'all-reduec'\nhint: did you mean 'all-reduce'")


def test_an_unknown_number_format_is_refused_with_a_near_one() -> None:
    from api import element_bytes

    with pytest.raises(SymcommError) as caught:
        element_bytes("fp15")
    assert "unknown number format 'fp15'" in str(caught.value)
