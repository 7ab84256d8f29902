"""Seconds of a collective: published values, the simulated exchange, and what is refused."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

import symcomm as sc

sys.path.insert(0, str(Path(__file__).parent))
import exchange as ex
from api import (
    AccountingError,
    Derivation,
    Quantity,
    Sym,
    SymcommError,
    Unit,
    ValuesError,
    algorithm,
    no_model,
    num,
    share,
)
from api import form_evaluate as evaluate
from test_collectives_algorithms import ITEM, LEVELED, PLAIN, SIMULATED, Setup

from symcomm import load

GOLDEN = {
    row["id"]: row
    for row in json.loads((Path(__file__).parents[1] / "data" / "golden_collectives.json").read_text(encoding="utf-8"))
}
ALPHA, WIDTH, ADDING = Fraction(1, 50_000), Fraction(10**11), Fraction(5 * 10**11)


def timed(accounting: object = None, **options: object) -> Derivation:
    return no_model().derive("collective_time", accounting=accounting, **options)


def golden(name: str) -> tuple[dict[str, int], Fraction]:
    row = GOLDEN[name]
    return row["params"], Fraction(row["value"])


# -- published values --------------------------------------------------------------------------------------


def test_the_ring_without_latency_takes_the_published_time() -> None:
    params, value = golden("001.ring.time")
    d = timed(
        {"message_cost": "bandwidth_only"}, payload=params["payload"], ranks=params["k"], bandwidth=params["link"]
    )
    assert d.at() == Quantity(value, Unit.parse("s"))
    assert [s.name for s in d.steps] == ["c", "S", "T_bw", "T", "T"]


def test_the_ring_with_latency_takes_the_published_time() -> None:
    params, value = golden("001.ring.latency")
    d = timed(payload=params["payload"], ranks=params["k"], bandwidth=params["link"], latency=params["lat"])
    assert d.at().value == value


def test_the_ring_has_the_published_steps_and_chunk() -> None:
    params, chunk = golden("001.ring.chunk")
    d = timed(payload=params["payload"], ranks=params["k"])
    values = d.values()
    by_name = {step.name: step for step in d.steps if step.relation == ":="}
    from api import from_expr

    assert evaluate(from_expr(d.worth["c"]), values) == chunk
    assert evaluate(from_expr(d.worth["R"]), values) == golden("001.ring.steps")[1]
    assert str(by_name["c"].unit) == "B"


def test_owners_that_multicast_move_the_published_words() -> None:
    params, words = golden("004.allreduce")
    part = share("all-reduce", "sent_and_received_per_rank", "owner_multicast", Sym("k"), num(1))
    assert evaluate(part, {"k": Fraction(params["p"])}) * params["n0"] == words


def test_words_sent_and_received_can_share_one_bandwidth() -> None:
    d = timed(
        {"link": "bidirectional", "message_cost": "bandwidth_only"}, algorithm="owner_multicast", payload=2 * 4194304,
        ranks=8, bandwidth=1,
    )  # fmt: skip
    assert d.at().value == 2 * golden("004.allreduce")[1]


@pytest.mark.parametrize(("kind", "factor"), [("all-reduce", Fraction(7, 4)), ("all-gather", Fraction(7, 8)),
                                              ("reduce-scatter", Fraction(7, 8)), ("broadcast", 1)])  # fmt: skip
def test_the_bus_bandwidth_is_that_of_nccl_tests(kind: str, factor: Fraction) -> None:
    """NCCL's performance page: the algorithm bandwidth times 2(n-1)/n, (n-1)/n or 1."""
    options = {"collective": kind, "payload": "3 GB", "ranks": 8, "time": "10 ms"}
    alg = no_model().derive("collective_bandwidth", **options)
    bus = no_model().derive("collective_bandwidth", accounting="busbw", **options)
    assert alg.at() == Quantity(Fraction(300 * 10**9), Unit.parse("byte/second"))
    assert bus.at().value == alg.at().value * factor
    with pytest.raises(AccountingError, match="bandwidth: algbw"):
        sc.ratio(alg, bus)


# -- the simulated exchange --------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "kind"), PLAIN)
def test_seconds_are_those_of_the_simulated_rounds_bytes_and_additions(name: str, kind: str) -> None:
    for k in (2, 5, 8, 12, 17):
        n, q = k * k + 5, 3
        setup = Setup(kind, k, n)
        SIMULATED[name, kind](setup, q=q)
        net = setup.net
        d = timed(
            {"message_cost": "alpha_beta_gamma"}, collective=kind, algorithm=name, payload=n * ITEM, ranks=k,
            latency=ALPHA, bandwidth=WIDTH, reduction=ADDING, chunks=q, dtype="fp64",
        )  # fmt: skip
        seconds = net.rounds * ALPHA + net.path / WIDTH + net.reduced / ADDING
        if name == "double_tree" and kind != "send":
            slot = 2 * ITEM * -(-n // (2 * q))
            assert d.at().value >= seconds
            assert d.at().value == net.rounds * (ALPHA + slot / WIDTH) + net.rounds // 2 * slot / ADDING
        else:
            assert d.at().value == seconds


@pytest.mark.parametrize(("name", "kind"), LEVELED)
def test_links_inside_and_between_nodes_have_their_own_times(name: str, kind: str) -> None:
    sizes = (2, 3) if len(algorithm(name).inner) == 1 else (2, 3, 2)
    k, n = 12 if len(sizes) == 3 else 6, 101
    setup = Setup(kind, k, n)
    SIMULATED[name, kind](setup, sizes=sizes)
    d = timed(
        collective=kind, algorithm=name, payload=n * ITEM, ranks=k, group=2, x_ranks=2, y_ranks=3, latency=ALPHA,
        bandwidth=WIDTH, latency_between=3 * ALPHA, bandwidth_between=WIDTH / 4, dtype="fp64",
    )  # fmt: skip
    if name != "hierarchical":
        assert d.at().value == setup.net.rounds * ALPHA + setup.net.path / WIDTH
        return
    # The rounds of the first and last level are inside a node; in one round blocks go to the other rank of a node.
    inside = [0] if kind == "all-to-all" else [
        i for i, size in enumerate(setup.net.slots) if size == ITEM * -(-n // 2)]  # fmt: skip
    outside = [i for i in range(setup.net.rounds) if i not in inside]
    path = [sum(setup.net.slots[i] for i in rounds) for rounds in (inside, outside)]
    assert d.at().value == (len(inside) * ALPHA + path[0] / WIDTH + len(outside) * 3 * ALPHA + path[1] / (WIDTH / 4))


def test_the_convention_on_rings_says_the_directions_that_are_not_given() -> None:
    both = {"rings": "both_ways"}
    call = {"payload": 8000, "ranks": 8, "latency": 1, "bandwidth": 1}
    one, two, given = timed(**call), timed(both, **call), timed(both, directions=1, **call)
    # Twice seven chunks of 1,000 bytes one way; both ways four of them go over one link and three over the other.
    assert (one.at().value, two.at().value, given.at().value) == (14 + 14_000, 8 + 8000, 14 + 14_000)
    assert "both_ways" in [c.name for c in two.conventions]
    tree = timed(both, algorithm="tree", **call)
    assert "both_ways" not in [c.name for c in (*given.conventions, *tree.conventions)]


def test_two_directions_halve_the_way_of_a_ring() -> None:
    one, two = (timed(payload=8000, ranks=8, latency=1, bandwidth=1, directions=d) for d in (1, 2))
    assert one.at().value == 14 + 14 * 1000
    assert two.at().value == 8 + 8 * 1000


def test_a_rank_symbol_of_the_author_is_kept() -> None:
    d = timed(ranks="p", payload="1 MB", latency="1 us", bandwidth="1 GB/s")
    assert d.needs == ("p",)
    assert d.at(p=4).value == timed(ranks=4, payload="1 MB", latency="1 us", bandwidth="1 GB/s").at().value


def test_latency_bandwidth_and_reduction_are_separate_steps_in_seconds() -> None:
    d = timed({"message_cost": "alpha_beta_gamma"})
    terms = {s.name: str(s.unit) for s in d.steps if s.name.startswith("T_")}
    assert terms == {"T_lat": "s", "T_bw": "s", "T_red": "s"}
    assert {s.name for s in d.expr.free_symbols} == {"n", "k", "alpha", "W", "W_red"}


def test_a_network_rate_in_bits_is_an_eighth_in_bytes() -> None:
    options = {"payload": "1 MB", "ranks": 4, "latency": "1 us"}
    assert timed(bandwidth="400 Gbps", **options).at() == timed(bandwidth="50 GB/s", **options).at()


def test_bruck_has_a_formula_for_every_number_of_ranks() -> None:
    options = {"collective": "all-to-all", "algorithm": "bruck", "payload": 36, "latency": 1, "bandwidth": 1}
    assert timed(ranks=6, **options).at().value == 3 + 7  # 0 ... 5 have 7 ones in binary
    assert timed(ranks=4, **options).at().value == 2 + 4 * 3
    assert timed(ranks=4, **options).at(k=6).value == 3 + 7
    symbolic = timed("bandwidth_only", collective="all-to-all", algorithm="bruck", dtype="fp16")
    for k in range(2, 40):
        ones = sum(bin(i).count("1") for i in range(k))
        assert symbolic.at(n=2 * k * k, k=k, W=1).value == 2 * ones
    assert r"\operatorname{ones}(k)" in symbolic.latex()


def test_an_all_to_all_on_a_ring_crosses_links_and_a_crossbar_exchanges_in_pairs() -> None:
    """8 GB, 8 ranks, 25 GB/s: 28 blocks of 125 MB one way, 8 a direction both ways, 7 over a crossbar."""
    options = {"collective": "all-to-all", "payload": "8 GB", "ranks": 8, "bandwidth": "25 GB/s"}
    assert timed("bandwidth_only", algorithm="ring", **options).at().value == Fraction(140, 1000)
    assert timed("bandwidth_only", algorithm="ring", directions=2, **options).at().value == Fraction(40, 1000)
    both = timed("both_ways", algorithm="ring", latency="1 us", **options)
    assert both.at().value == Fraction(40, 1000) + Fraction(4, 10**6)
    assert timed("bandwidth_only", algorithm="pairwise", **options).at().value == Fraction(35, 1000)
    assert timed("bandwidth_only", **options).at().value == Fraction(35, 1000)


def test_two_axes_of_a_torus_at_once_take_half_as_long_as_one_after_the_other() -> None:
    """16 GB on 4 x 4 ranks: 15/16 of each half over 25 GB/s, and twice three rounds."""
    options = {"collective": "all-gather", "algorithm": "torus_2d", "payload": "16 GB", "ranks": 16, "x_ranks": 4,
               "bandwidth": "25 GB/s", "latency": "1 us"}  # fmt: skip
    assert timed("all_axes_at_once", **options).at().value == Fraction(300, 1000) + Fraction(6, 10**6)
    assert timed(**options).at().value == Fraction(600, 1000) + Fraction(6, 10**6)
    both = {"torus": "all_axes_at_once", "rings": "both_ways"}  # the two links of an axis as well: 2/3 of that
    assert timed(both, **options).at().value == Fraction(200, 1000) + Fraction(4, 10**6)
    both_directions = timed({"torus": "all_axes_at_once", "link": "bidirectional"}, **options)
    assert both_directions.at().value == Fraction(600, 1000) + Fraction(6, 10**6)
    assert "torus: all_axes_at_once" in str(timed("all_axes_at_once", **options))


def test_the_lower_bounds_stand_beside_the_algorithm_with_their_source() -> None:
    d = timed(algorithm="tree")
    assert d.exhibits[0].columns == ("what", "this algorithm", "least possible")
    assert any("Chan" in note for note in d.notes)


# -- a model's communication under other algorithms ----------------------------------------------------------

TABLE = "Computation\tInput\tOutput\ny = xW\tx [B, D], W [D, F]\ty [B, F]\n"


def test_a_model_is_counted_under_every_algorithm_that_can_run_its_collective() -> None:
    model = load(TABLE).at(D=64, F=64, B=8)
    volume = 64 * 64 * 2
    expected = {  # by hand, for 8 ranks: bytes the busiest rank sends
        "ring": Fraction(14, 8),
        "tree": 3,
        "double_tree": 2,
        "recursive_doubling": 3,
        "halving_doubling": Fraction(14, 8),
        "chain": 2,
        "one_shot": 7,
        "two_shot": Fraction(14, 8),
        "owner_multicast": Fraction(7, 8),
        "hierarchical": Fraction(14, 8),
        "torus_2d": Fraction(14, 8),
        "torus_3d": Fraction(14, 8),
    }
    for name, part in expected.items():
        d = model.communication(
            "data(8)", "all-reduce", accounting={"communication": "sent_per_rank", "algorithm": name}
        )
        sizes = dict.fromkeys(algorithm(name).inner, 2)
        assert d.at(**sizes).value == part * volume, name
        assert ("algorithm", name) in [(c.field, c.name) for c in d.conventions]


def test_a_collective_that_the_algorithm_of_all_cannot_run_keeps_its_own_and_one_that_is_named_is_refused() -> None:
    def sent(algorithm: object) -> Derivation:
        how = {"communication": "sent_per_rank", "algorithm": algorithm}
        return load(TABLE).communication("fully-sharded(8)", accounting=how)

    kept = sent("tree")
    assert kept.expr == sent("ring").expr
    assert ("algorithm", "ring") in [(c.field, c.name) for c in kept.conventions]
    assert "Nothing here depends on `algorithm: tree`." in kept.notes
    with pytest.raises(AccountingError) as caught:
        sent({"all-gather": "tree"})
    assert "the algorithm 'tree' cannot run all-gather" in str(caught.value)
    assert "hint: these can: ring, recursive_doubling, halving_doubling, bruck, pairwise" in str(caught.value)


def test_what_a_count_says_follows_from_the_ranks_being_alike() -> None:
    def said(name: str, counted: str) -> str:
        d = load(TABLE).communication("data(8)", accounting={"communication": counted, "algorithm": name})
        return " ".join(s.reason.text for s in d.steps)

    assert "Counted for the rank that sends most." in said("tree", "sent_per_rank")
    assert "Counted for the rank that moves most." in said("owner_multicast", "sent_and_received_per_rank")
    assert "It receives as much as it sends." in said("ring", "sent_and_received_per_rank")
    assert "All k ranks do so." in said("ring", "all_links")


# -- what is refused -----------------------------------------------------------------------------------------

GOOD: dict[str, object] = {"payload": "1 MB", "ranks": 8, "latency": "20 us", "bandwidth": "100 GB/s"}
BAD = [
    ({"bandwidth": "0 GB/s"}, "the bandwidth is 0, but it must be positive"),
    ({"bandwidth": "-1 GB/s"}, "the bandwidth is -1000000000, but it must be positive"),
    ({"latency": "0 s"}, "the latency is 0, but it must be positive\nhint: to leave latency out, count under "
                         "message_cost: bandwidth_only"),
    ({"latency": "-5 us"}, "the latency is -1/200000, but it must be positive"),
    ({"payload": "0 B"}, "the payload is 0, but it must be positive"),
    ({"ranks": 1}, "one rank has nobody to exchange with: it moves 0 bytes\nhint: give at least two ranks"),
    ({"ranks": 0}, "'ranks' is 0, but it must be positive"),
    ({"ranks": Fraction(5, 2)}, "ranks is 5/2, but it must be a whole number"),
    ({"payload": 5, "ranks": 8}, "8 chunks are more than the 5 bytes that are to be cut"),
    ({"payload": 16, "ranks": 8, "dtype": "fp32"}, "8 chunks are more than the 4 elements that are to be cut"),
    ({"payload": 7, "ranks": 2, "dtype": "fp16"}, "a payload of 7 B is no whole number of fp16 elements"),
    ({"bandwidth": "100 GB"}, "the bandwidth is given in B, but it is in B/s: the bandwidth of a link in one "
                              "direction\nhint: write B/s for a rate"),
    ({"payload": "8 s"}, "the payload is given in s, but it is in B: the bytes of the full tensor"),
    ({"latency": "3 GB/s"}, "the latency is given in B/s, but it is in s: the latency of a message"),
    ({"ranks": "8 GPUs"}, "the ranks is given in GPU, but it is a plain number: the number of ranks in the collective"),
    ({"algorithm": "rnig"}, "unknown algorithm 'rnig'\nhint: did you mean 'ring'?"),
    ({"algorithm": "bruck"}, "the algorithm 'bruck' cannot run all-reduce\nhint: these can: ring, tree, double_tree"),
    ({"collective": "allreduce"}, "unknown collective 'allreduce'\nhint: did you mean 'all-reduce'"),
    ({"directions": 3}, "directions = 3: a ring runs in 1 or 2 directions"),
    ({"directions": 2, "algorithm": "tree"}, "the algorithm 'tree' runs in one direction"),
    ({"algorithm": "hierarchical", "group": 3}, "8 ranks do not divide into groups of g = 3"),
    ({"algorithm": "chain", "chunks": 2_000_000}, "2000000 chunks are more than the 1000000 bytes"),
    ({"ranks": "W"}, "'W' cannot name the ranks: it is the bandwidth of a link in one direction"),
    ({"bandwidth": 0.5}, "bandwidth is the float 0.5, but it must be a whole number or a Fraction"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "said"), BAD, ids=lambda x: x if isinstance(x, str) else "")
def test_numbers_that_make_no_sense_are_refused_with_their_reason(change: dict[str, object], said: str) -> None:
    with pytest.raises(SymcommError) as caught:
        timed(**{**GOOD, **change})
    assert said in str(caught.value)


def test_a_table_without_numbers_says_which_are_missing() -> None:
    with pytest.raises(ValuesError, match="the table of all-reduce needs a value for latency, bandwidth"):
        no_model().derive("collective_table", payload="1 MB", ranks=8)


def test_a_measured_time_must_be_positive_and_a_time() -> None:
    for text, said in (("0 s", "the time is 0, but it must be positive"), ("3 GB", "the time is given in B")):
        with pytest.raises(ValuesError, match=said):
            no_model().derive("collective_bandwidth", payload="1 GB", ranks=8, time=text)


def test_a_number_that_the_document_gives_is_checked_like_an_option() -> None:
    model = replace(no_model(), values={"k": Fraction(1)})
    with pytest.raises(ValuesError, match="one rank has nobody to exchange with"):
        model.derive("collective_time")


# -- the table -----------------------------------------------------------------------------------------------


def table(**change: object) -> Derivation:
    return no_model().derive("collective_table", **{**GOOD, **change})


def test_the_table_lists_every_algorithm_that_can_run_and_says_what_the_others_need() -> None:
    d = table(collective="all-reduce", chunks=4)
    listed = {row[0] for row in d.exhibits[0].rows}
    assert listed == {"ring", "tree", "double tree", "recursive doubling", "halving doubling", "chain",
                      "owner multicast"}  # fmt: skip
    assert "One shot is left out: its messages to all ranks share one latency." in d.notes
    lacking = "Torus 3d is left out, as these are not given: number of ranks along the first axis;"
    assert any(lacking in note for note in d.notes)


def test_the_answer_of_the_table_is_its_fastest_row() -> None:
    d = table(chunks=4)
    times = [row[3].value for row in d.exhibits[0].rows]
    assert times == sorted(times)
    assert d.at().value == times[0]
    # 8 ranks, 1 MB: doubling needs 3 rounds and 3 MB.
    assert times[0] == 3 * ALPHA + Fraction(3_000_000) / WIDTH


def test_the_payloads_in_the_table_are_those_where_the_fastest_algorithm_changes() -> None:
    rows = {row[0]: row[4] for row in table().exhibits[0].rows}
    # Doubling and halving: 3 alpha + 3 n/W = 6 alpha + 14/8 n/W, so n = 3 alpha W / (5/4) = 4.8 MB; the padding of
    # chunks moves it by some bytes, and there the two change places more than once.
    assert re.fullmatch(r"8 B to 4\.8000\d* MB, 4\.8000\d* MB", rows["recursive doubling"])
    assert re.fullmatch(r"4\.8000\d* MB to 4\.8000\d* MB, from 4\.8000\d* MB", rows["halving doubling"])
    assert rows["ring"] == rows["tree"] == "never"


def test_the_simulation_and_the_table_agree_on_rounds() -> None:
    d = table(collective="broadcast", ranks=6, payload=6000)
    rounds = {row[0]: row[1] for row in d.exhibits[0].rows}
    setup = Setup("broadcast", 6, 750)
    SIMULATED["scatter_allgather", "broadcast"](setup)
    assert rounds["scatter allgather"] == num(setup.net.rounds) == num(3 + 5)
    assert ex.power_below(6) == 4


@pytest.mark.parametrize(("time", "told"), [("75 ms", True), ("76 ms", False)])  # 7/4 of 12 GiB at 300 GB/s: 75.16 ms
def test_a_bus_bandwidth_above_its_link_is_told(time: str, told: bool) -> None:
    made = no_model().derive("collective_bandwidth", payload="12 GiB", ranks=8, time=time, bandwidth="300 GB/s")
    notes = [note for note in made.notes if "above the 300 GB/s of the link" in note]
    assert bool(notes) == told


# -- crossings with Bruck's all-to-all, whose blocks are ones of binary digits ----------------------------


def bruck_and_pairwise(n: int, k: int, alpha: Fraction) -> tuple[Fraction, Fraction]:
    """Both times of an all-to-all of n bytes at 10 GB/s, counted here."""
    block = -(-n // k**2)
    ones = sum(i.bit_count() for i in range(k))
    rounds = (k - 1).bit_length()
    return tuple(r * alpha + Fraction(blocks * block, 10**10) for r, blocks in ((rounds, ones), (k - 1, k - 1)))


def crossing(over: str, **given: object) -> Derivation:
    return no_model().derive("collective_crossover", collective="all-to-all", algorithm="bruck", other="pairwise",
                             over=over, bandwidth="10 GB/s", **given)  # fmt: skip


@pytest.mark.parametrize("k", [5, 7, 12])
def test_bruck_meets_pairwise_at_one_payload_exactly_and_at_one_latency(k: int) -> None:
    d = crossing("payload", ranks=k, latency="1 us")
    assert not any("did not try every" in note for note in d.notes)
    last, first = (bruck_and_pairwise(int(d.at().value) - less, k, Fraction(1, 10**6)) for less in (1, 0))
    assert last[0] < last[1]
    assert first[0] >= first[1]
    met = bruck_and_pairwise(10**6, k, crossing("latency", ranks=k, payload="1 MB").at().value)
    assert met[0] == met[1]


@pytest.mark.long
def test_every_number_of_ranks_is_tried_or_the_sentence_says_which_were_not() -> None:
    d = crossing("ranks", payload="1 MB", latency="1 us")
    less = [k for k in range(2, 4097) if (t := bruck_and_pairwise(10**6, k, Fraction(1, 10**6)))[0] < t[1]]
    assert less == [*range(int(d.at().value), 4097)]
    assert not any("did not try every" in note for note in d.notes)
    from api import crossover

    one, two = (timed(collective="all-to-all", algorithm=a, payload="1 MB", latency="1 us", bandwidth="10 GB/s")
                for a in ("bruck", "pairwise"))  # fmt: skip
    wide = crossover(one, two, "k", between=(2, 10**6))
    assert any("we did not try every k:" in note for note in wide.notes)
