"""Collective algorithms: what each rank sends and receives, in how many rounds. One record an algorithm.

The payload is the full tensor a call works on: the reduced tensor, the gathered one, the one before it is scattered
or exchanged (each rank then holds 1/k of it), the one that is broadcast. ``share`` is the one rule by which bytes are
counted; the phases of the same records become seconds in ``symcomm.core.quantities.communication.collective_time``.

An algorithm that doubles what it knows needs a power of two of ranks. Where there are r more than the largest power of
two p, they are *folded*: each of the r hands its data to a partner first and gets the result from it last, and p ranks
run the algorithm in between. ``ceil(log2 k) - floor(log2 k)`` is 1 where something has to be folded and 0 otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import field, replace

from symcomm.core.accounting import CONVENTIONS, OF_KIND, Convention, algorithms_of, by_kind
from symcomm.core.collectives.cost import (
    ONE,
    TWO,
    ZERO,
    Case,
    Exchange,
    Phase,
    after,
    alike,
    binary_ones,
    log_down,
    log_up,
    minus,
    plus,
    power_of_two,
    times,
)  # fmt: skip
from symcomm.core.errors import AccountingError, nearest
from symcomm.core.form import Floor, Form, Largest, Num, Power, Ratio, Smallest, Sym, Total, num, product
from symcomm.core.records import dataclass

Run = Callable[[Case], Exchange]


@dataclass(frozen=True)
class Algorithm:
    """An algorithm: for each collective it can run, what a ``Case`` of it costs; the phases say how it goes."""

    name: str
    runs: Mapping[str, Run]
    source: str
    inner: tuple[str, ...] = ()  # the sizes it needs besides the number of ranks
    chunked: bool = False  # its tensor is cut into q chunks
    one_port: bool = True  # a rank uses one link at a time in each direction
    at_once: bool = False  # a rank sends to many others with one latency
    notes: Mapping[str, str] = field(default_factory=dict)  # by collective: where a count is a limit

    def uses_at_once(self, torus: str) -> bool:
        """Whether it uses all axes of a torus at once, by the convention of that name."""
        return not self.one_port and torus == "all_axes_at_once"

    def run(self, kind: str, case: Case) -> Exchange:
        """The cost of running a collective; raises ``AccountingError`` where it cannot run it."""
        return self.running(kind).runs[kind](case)

    def running(self, kind: str) -> Algorithm:
        """Itself; raises ``AccountingError`` where it cannot run a collective."""
        if kind not in self.runs:
            able = ", ".join(name for name, other in ALGORITHMS.items() if kind in other.runs)
            if not able:
                raise AccountingError(f"unknown collective '{kind[:40]}'", hint=nearest(kind, [*KINDS]))
            raise AccountingError(f"the algorithm '{self.name}' cannot run {kind}", hint=f"these can: {able}")
        return self


def _message(case: Case) -> Exchange:
    return Exchange((Phase("A message goes from one rank to the next.", ONE, case.n),), case.n, case.n, case.n, case.n)


# -- ring --------------------------------------------------------------------------------------------


def _ring(reduces: bool) -> Run:
    """Round the ring: chunks that are added up on their way, or passed on as they are."""

    def run(case: Case) -> Exchange:
        k, chunk = case.k, case.split(case.n, case.k)
        rounds = times(minus(k, 1), chunk)
        if case.directions == 2:
            # Chunks travel both ways, so half the way is enough; a round moves a chunk over each of the two ports.
            half = Ratio(k, TWO) if case.even else Floor(Ratio(k, TWO))
            what = "Each rank passes chunks to both neighbours at once, each half way round the ring" + (
                "; the receiver adds its own." if reduces else "."
            )
            phase = Phase(what, half, times(half, chunk), rounds if reduces else ZERO)
            return alike(case, phase, sent=rounds)
        what = (
            "Each rank passes a chunk to its neighbour, which adds its own and passes the sum on, round the ring."
            if reduces
            else "Each rank passes on the chunk that it received last, until each has been round the ring."
        )
        return alike(case, Phase(what, minus(k, 1), rounds, rounds if reduces else ZERO))

    return run


def _then(*runs: Run) -> Run:
    return lambda case: after(*(run(case) for run in runs))


def _ring_pass(case: Case) -> Exchange:
    what = "Each rank works on the block it has and passes it on; k − 1 sends bring every block by."
    return alike(case, Phase(what, minus(case.k, 1), times(minus(case.k, 1), case.split(case.n, case.k))))


def _ring_sum(home: bool) -> Run:
    def run(case: Case) -> Exchange:
        hops = case.k if home else minus(case.k, 1)
        what = (
            "The sum for a block starts at its own rank and goes all round: every rank adds its part, k sends."
            if home
            else "The sum for a block starts one rank further; every rank adds its part, its own rank last: "
            "k − 1 sends."
        )
        path = times(hops, case.split(case.n, case.k))
        return alike(case, Phase(what, hops, path, times(minus(case.k, 1), case.split(case.n, case.k))))

    return run


def _halo(sides: int) -> Run:
    def run(case: Case) -> Exchange:
        # Between its two neighbours an inner rank sends all edges; of two ranks each has one neighbour.
        some, edge = Smallest((minus(case.k, 1), TWO)), case.split(case.n, num(sides))
        phase = Phase("Each rank sends one edge of its part to one neighbour.", ONE, edge)
        if sides == 2:
            phase = Phase("Each rank sends the edges of its part to its neighbours.", some, times(some, edge))
        return Exchange((phase,), phase.path, phase.path, times(num(sides), some, edge),
                        times(num(sides), minus(case.k, 1), edge))  # fmt: skip

    return run


def _ring_all_to_all(case: Case) -> Exchange:
    # Each rank holds 1/k of the tensor and has a block of 1/k of that for each other rank, which crosses every link on
    # its way: a rank passes on k - 1, k - 2, ..., 1 blocks.
    k = case.k
    if case.directions == 2:
        # By the shorter way i or k - i links; half of a block for the opposite rank goes either way.
        half = case.split(case.n, times(TWO, Power(k, TWO)))
        rounds = Ratio(k, TWO) if case.even else Floor(Ratio(k, TWO))
        crossed: Form = Ratio(Power(k, TWO), num(4))
        path = times(crossed if case.even else Floor(crossed), half)
        what = "Each block travels the shorter way round; the block for the opposite rank goes half each way."
        return alike(case, Phase(what, rounds, path), sent=times(TWO, path))
    block = case.split(case.n, Power(k, TWO))
    what = "Each rank passes on all blocks that have not arrived yet: a block crosses every link on its way."
    return alike(case, Phase(what, minus(k, 1), times(Ratio(product(k, minus(k, 1)), TWO), block)))


def _pairwise_all_to_all(case: Case) -> Exchange:
    # Each rank holds 1/k of the tensor and sends 1/k of that to each other rank.
    block = case.split(case.n, Power(case.k, TWO))
    what = "In round i each rank sends a block to the rank i places further."
    return alike(case, Phase(what, minus(case.k, 1), times(minus(case.k, 1), block)))


def _pairwise(reduces: bool) -> Run:
    def run(case: Case) -> Exchange:
        bytes_sent = times(minus(case.k, 1), case.split(case.n, case.k))
        what = "In round i each rank sends its chunk" + (
            " for the rank i places further, which adds it." if reduces else " to the rank i places further."
        )
        return alike(case, Phase(what, minus(case.k, 1), bytes_sent, bytes_sent if reduces else ZERO))

    return run


# -- all at once -------------------------------------------------------------------------------------


def _one_shot_all_reduce(case: Case) -> Exchange:
    path = times(minus(case.k, 1), case.n)
    what = "Each rank sends its whole tensor to all others at once; each adds up what arrives."
    return alike(case, Phase(what, ONE, path, path))


def _two_shot_all_reduce(case: Case) -> Exchange:
    path = times(minus(case.k, 1), case.split(case.n, case.k))
    return alike(
        case,
        Phase("Each rank sends every other rank its chunk at once; each adds up the chunk it owns.", ONE, path, path),
        Phase("Each rank sends its sum to all others at once.", ONE, path),
    )


# -- trees -------------------------------------------------------------------------------------------


def _tree_broadcast(case: Case) -> Exchange:
    deep, n = log_up(case.k), case.n
    what = "In each round every rank that has the tensor sends it to one that has not."
    phase = Phase(what, deep, times(deep, n))
    return Exchange((phase,), times(deep, n), n, times(deep, n), times(minus(case.k, 1), n))


def _tree_reduce(case: Case) -> Exchange:
    deep, n = log_up(case.k), case.n
    what = "In each round half of the remaining ranks send their sums to the other half."
    phase = Phase(what, deep, times(deep, n), times(deep, n))
    return Exchange((phase,), n, times(deep, n), times(deep, n), times(minus(case.k, 1), n))


def _tree_all_reduce(case: Case) -> Exchange:
    up, down = _tree_reduce(case), _tree_broadcast(case)
    # The root receives most on the way up and sends most on the way down.
    return replace(after(up, down), sent=down.sent, received=up.received)


def _tree_scatter(case: Case) -> Exchange:
    k, deep, chunk = case.k, log_up(case.k), case.split(case.n, case.k)
    root = times(minus(k, 1), chunk)
    # The root's largest subtrees hold what is above the last power of two, and half of that power.
    last = power_of_two(minus(deep, 1))
    subtree = Largest((Total((k, times(num(-1), last))), power_of_two(minus(deep, 2))))
    phase = Phase("Each rank sends the half of its chunks that the other half of its ranks needs.", deep, root)
    return Exchange((phase,), root, times(subtree, chunk), root, times(binary_ones(case.k), chunk))


def _tree_gather(case: Case) -> Exchange:
    back = _tree_scatter(case)
    phase = replace(back.phases[0], what="Each rank sends the chunks of its half of the ranks to the other half.")
    return replace(back, phases=(phase,), sent=back.received, received=back.sent)


def _double_tree_all_reduce(case: Case) -> Exchange:
    k, deep, q = case.k, log_up(case.k), case.chunks
    chunk = case.split(case.n, product(TWO, q))
    rounds = Total((deep, q, num(-1)))
    slot = times(TWO, chunk)
    up = Phase("Each half of the chunks goes up its own tree; a rank receives from two children per round.",
               rounds, times(rounds, slot), times(rounds, slot))  # fmt: skip
    down = Phase("The sums come down the same trees.", rounds, times(rounds, slot))
    # A rank with two children in one tree is a leaf of the other one; so many children need four ranks.
    sent = times(Smallest((k, num(4))), q, chunk)
    return Exchange((up, down), sent, sent, product(TWO, sent), times(num(4), minus(k, 1), q, chunk))


# -- doubling and halving ----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Fold:
    """The ranks that double (``p``), their logarithm, the extra ranks, and 1 where there are any."""

    p: Form
    deep: Form
    extra: Form
    any: Form


def _fold(case: Case, cuts: bool = True) -> _Fold:
    """``cuts``: the tensor is cut into p parts, so that p has a name in what is written of the time."""
    k = case.k
    deep = case.let("l", log_down(k), "the rounds in which whole powers of two of ranks can double")
    p = power_of_two(deep)
    p = case.let("p", p, "the ranks that double, the largest power of two") if cuts else p
    extra = plus(k, times(num(-1), p))
    some = case.let("f", plus(log_up(k), times(num(-1), deep)), "1 where extra ranks are folded, 0 for powers of two")
    return _Fold(p, deep, extra, some)


def _doubling_all_reduce(case: Case) -> Exchange:
    fold, n = _fold(case, cuts=False), case.n
    phases = (
        Phase("Each extra rank sends its tensor to a partner, which adds it.", fold.any, times(fold.any, n),
              times(fold.any, n)),
        Phase("Ranks 1, 2, 4, ... apart exchange their sums and add them.", fold.deep, times(fold.deep, n),
              times(fold.deep, n)),
        Phase("Each extra rank gets the result.", fold.any, times(fold.any, n)),
    )  # fmt: skip
    busiest = times(log_up(case.k), n)
    everyone = plus(times(fold.p, fold.deep, n), times(TWO, fold.extra, n))
    return Exchange(phases, busiest, busiest, product(TWO, busiest), everyone)


def _halving_all_reduce(case: Case) -> Exchange:
    fold, n = _fold(case), case.n
    inside = times(minus(fold.p, 1), case.split(n, fold.p))
    whole = times(fold.any, n)
    phases = (
        Phase("Each extra rank sends its tensor to a partner, which adds it.", fold.any, whole, whole),
        Phase("Ranks exchange halves of their part and add them, until each has one chunk.", fold.deep, inside, inside),
        Phase("Ranks exchange all that they have, until each has all chunks.", fold.deep, inside),
        Phase("Each extra rank gets the result.", fold.any, whole),
    )
    busiest = plus(times(TWO, inside), whole)
    everyone = plus(times(TWO, fold.p, inside), times(TWO, fold.extra, n))
    return Exchange(phases, busiest, busiest, product(TWO, busiest), everyone)


def _doubling_all_gather(case: Case) -> Exchange:
    fold, k, chunk = _fold(case), case.k, case.split(case.n, case.k)
    # Of the 2^j ranks that know the same after j rounds, the first group holds min(2^j, r) folded chunks besides:
    # their sum over the rounds is 2^m - 1 + (l - m) r with m = ceil(log2 r).
    folded: Form = ZERO
    if fold.extra != ZERO:
        m = log_up(Num(max(ONE.number, fold.extra.number)) if isinstance(fold.extra, Num)
                   else Largest((fold.extra, ONE)))  # fmt: skip
        m = case.let("m", m, "the rounds after which a group has all its folded chunks")
        folded = plus(power_of_two(m), num(-1), times(plus(fold.deep, times(num(-1), m)), fold.extra))
    inner = case.let("N_c", plus(minus(fold.p, 1), folded), "the chunks the busiest rank sends while ranks double")
    doubling = times(inner, chunk)
    phases = (
        Phase("Each extra rank sends its chunk to a partner.", fold.any, times(fold.any, chunk)),
        Phase("Ranks 1, 2, 4, ... apart exchange all that they have.", fold.deep, doubling),
        Phase("Each extra rank gets what it lacks.", fold.any, times(fold.any, minus(k, 1), chunk)),
    )
    got = times(minus(k, 1), chunk)
    sent = plus(doubling, times(fold.any, minus(k, 1), chunk))
    return Exchange(phases, sent, got, plus(sent, got), times(k, minus(k, 1), chunk))


def _halving_reduce_scatter(case: Case) -> Exchange:
    # The rounds of the all-gather backwards: what was received is sent, and each chunk that arrives is added.
    forth = _doubling_all_gather(case)
    said = (
        "Each extra rank sends all chunks but its own to a partner, which adds them.",
        "Ranks exchange the half of their chunks that the other half of the ranks needs, and add them.",
        "Each extra rank gets its chunk and adds it to its own.",
    )
    backward = zip(said, reversed(forth.phases), strict=True)
    phases = tuple(replace(p, what=text, reduced=p.path) for text, p in backward)
    return replace(forth, phases=phases, sent=forth.received, received=forth.sent)


def _bruck_all_gather(case: Case) -> Exchange:
    what = "In round j each rank sends the chunks it has to a rank twice as far away as in the round before."
    return alike(case, Phase(what, log_up(case.k), times(minus(case.k, 1), case.split(case.n, case.k))))


def _bruck_all_to_all(case: Case) -> Exchange:
    block = case.split(case.n, Power(case.k, TWO))
    what = "In round j each rank sends the blocks whose distance has a one at binary digit j, 2^j ranks further. "
    what += "There are ones(k) of them: the ones in all numbers below k."
    return alike(case, Phase(what, log_up(case.k), times(binary_ones(case.k), block)))


# -- compositions ------------------------------------------------------------------------------------


def _chain(reduces: bool) -> Run:
    def run(case: Case) -> Exchange:
        k, q = case.k, case.chunks
        chunk = case.split(case.n, q)
        rounds = Total((k, q, num(-2)))
        path = times(rounds, chunk)
        what = "Each rank adds its own chunk and passes it on" if reduces else "Each rank passes on each chunk"
        phase = Phase(f"{what}; q chunks follow one another.", rounds, path, path if reduces else ZERO)
        once = times(q, chunk)
        # Only ranks with two neighbours both receive and send.
        return Exchange((phase,), once, once, times(Smallest((minus(k, 1), TWO)), once), times(minus(k, 1), once))

    return run


def _chain_all_reduce(case: Case) -> Exchange:
    both = after(_chain(True)(case), _chain(False)(case))
    once = times(Smallest((minus(case.k, 1), TWO)), case.chunks, case.split(case.n, case.chunks))
    return replace(both, sent=once, received=once)


def _owner_multicast_all_reduce(case: Case) -> Exchange:
    k, chunk = case.k, case.split(case.n, case.k)
    part = times(minus(k, 1), chunk)
    phases = (
        Phase("Each rank sends every chunk to its owner, which adds it.", minus(k, 1), part, part),
        Phase(
            "Each owner hands its sum to the network, which multicasts it; the copies do not count as sent.", ONE, part
        ),
    )
    return Exchange(phases, part, times(TWO, part), times(num(3), part), product(k, part))


def _levels(named: tuple[str, ...] = ()) -> Callable[[bool, bool], Run]:
    """Rings inside rings: reduce-scatter from the innermost level out, all-gather from the outermost in.

    The last level holds the ranks that the others leave, and works on what the inner levels have left of the tensor.
    """

    def make(scatters: bool, gathers: bool) -> Run:
        def run(case: Case) -> Exchange:
            names = named or level_names(len(case.nodes) + 1)
            inner = case.nodes[: len(names) - 1]
            outer = case.let(_OUTER.get((len(names), names[0]), "m"), times(case.k, Ratio(ONE, product(*inner))),
                             f"the ranks of the last level, {names[-1]}")  # fmt: skip
            sizes = [*inner, outer]
            ways = len(sizes) if case.at_once else 1
            # Where all axes are used at once, each part of the tensor takes them in an order of its own.
            part = case.split(case.n, num(ways)) if ways > 1 else case.n
            scatter: list[list[Exchange]] = [[] for _ in sizes]
            gather: list[list[Exchange]] = [[] for _ in sizes]
            for first in range(ways):
                payload = part
                for stage in range(len(sizes)):
                    name, size = names[(first + stage) % len(names)], sizes[(first + stage) % len(sizes)]
                    level = replace(case, n=payload, k=size)
                    for wanted, ring, found in (
                        (scatters, _ring(True), scatter),
                        (gathers, _ring(False), gather),
                    ):
                        if wanted:
                            made = ring(level)
                            (phase,) = made.phases
                            what = f"{name.capitalize()}: {phase.what}"
                            found[stage].append(replace(made, phases=(replace(phase, what=what, link=name),)))
                    payload = case.split(payload, size)
            made = after(*(_beside(stage) for stage in (*scatter, *reversed(gather)) if stage))
            return replace(made, total=product(case.k, made.sent))

        return run

    return make


def _beside(exchanges: list[Exchange]) -> Exchange:
    """Exchanges on links of their own that run at once: they are over when the longest of them is."""
    if len(exchanges) == 1:
        return exchanges[0]
    phases = [phase for exchange in exchanges for phase in exchange.phases]

    def longest(forms: Iterable[Form]) -> Form:
        every = tuple(dict.fromkeys(forms))
        return every[0] if len(every) == 1 else Largest(every)

    what = "Each part of the tensor along an axis of its own, at once. " + " ".join(sorted(p.what for p in phases))
    reduced = [p.reduced for p in phases if p.reduced != ZERO]
    phase = Phase(what, longest(p.rounds for p in phases), longest(p.path for p in phases),
                  longest(reduced) if reduced else ZERO)  # fmt: skip
    return replace(after(*exchanges), phases=(phase,))


def _hierarchical_all_to_all(case: Case) -> Exchange:
    names, inner = level_names(len(case.nodes) + 1), product(*case.nodes)
    outer = case.let("m", times(case.k, Ratio(ONE, inner)), f"the ranks of the last level, {names[-1]}")
    block = case.split(case.n, Power(case.k, TWO))
    phases: list[Phase] = []
    for at, (name, size) in enumerate(zip(names, (*case.nodes, outer), strict=True)):
        others = [form for n, form in enumerate((*case.nodes, outer)) if n != at]
        what = "between nodes: ranks of the same place exchange the blocks of their nodes."
        if at == 0:
            what = f"{name}: each rank sends every other rank the blocks for that rank's place in all nodes."
        elif name != BETWEEN:
            what = f"{name}: ranks of the same place exchange the blocks that the other levels do not tell apart."
        what = what[0].upper() + what[1:]
        phases.append(Phase(what, minus(size, 1), times(minus(size, 1), *others, block), link=name))
    return alike(case, *phases)


def level_names(count: int) -> tuple[str, ...]:
    """The names of the levels of a hierarchy, the innermost first.

    >>> level_names(2), level_names(3)
    (('inside a node', 'between nodes'), ('inside a node', 'on level 2', 'on level 3'))
    """
    return (INSIDE, BETWEEN) if count == 2 else (INSIDE, *(f"on level {n}" for n in range(2, count + 1)))


_OUTER = {(2, "inside a node"): "m", (2, "along x"): "k_y", (3, "along x"): "k_z"}
INSIDE, BETWEEN = "inside a node", "between nodes"


def _level_runs(names: tuple[str, ...] = ()) -> dict[str, Run]:
    make = _levels(names)
    return {"all-reduce": make(True, True), "reduce-scatter": make(True, False), "all-gather": make(False, True)}


# -- the records -------------------------------------------------------------------------------------

_RECORDS = (
    Algorithm(
        "ring",
        {
            "all-reduce": _then(_ring(True), _ring(False)),
            "reduce-scatter": _ring(True),
            "all-gather": _ring(False),
            "all-to-all": _ring_all_to_all,
            "ring-pass": _ring_pass,
            "ring-sum": _ring_sum(False),
            "ring-sum-home": _ring_sum(True),
            "halo-exchange": _halo(2),
            "halo-shift": _halo(1),
        },
        "Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations, 2009",
    ),
    Algorithm(
        "tree",
        {
            "all-reduce": _tree_all_reduce,
            "broadcast": _tree_broadcast,
            "reduce": _tree_reduce,
            "scatter": _tree_scatter,
            "gather": _tree_gather,
        },
        "Thakur, Rabenseifner and Gropp, Optimization of collective communication operations in MPICH, 2005",
    ),
    Algorithm(
        "double_tree",
        {"all-reduce": _double_tree_all_reduce},
        "Sanders, Speck and Träff, Two-tree algorithms for full bandwidth broadcast, reduction and scan, 2009",
        chunked=True,
        notes={"all-reduce": "A round is as long as two chunks, though near the roots a rank may have one child only."},
    ),
    Algorithm(
        "recursive_doubling",
        {"all-reduce": _doubling_all_reduce, "all-gather": _doubling_all_gather},
        "Thakur, Rabenseifner and Gropp, Optimization of collective communication operations in MPICH, 2005",
    ),
    Algorithm(
        "halving_doubling",
        {
            "all-reduce": _halving_all_reduce,
            "reduce-scatter": _halving_reduce_scatter,
            "all-gather": _doubling_all_gather,
        },
        "Rabenseifner, Optimization of collective reduction operations, 2004",
    ),
    Algorithm(
        "bruck",
        {"all-gather": _bruck_all_gather, "all-to-all": _bruck_all_to_all},
        "Bruck, Ho, Kipnis, Upfal and Weathersby, Efficient algorithms for all-to-all communications, 1997",
        notes={
            "all-to-all": "ones(`k`) counts the binary ones of 0, 1, ..., `k` − 1: a block is sent once for each of "
            "its ones. For powers of two that is half of `k` log₂ `k`."
        },
    ),
    Algorithm(
        "pairwise",
        {
            "all-to-all": _pairwise_all_to_all,
            "reduce-scatter": _pairwise(True),
            "all-gather": _pairwise(False),
        },
        "Thakur, Rabenseifner and Gropp, Optimization of collective communication operations in MPICH, 2005",
    ),
    *(
        Algorithm(
            name,
            {"all-reduce": run},
            "TensorRT-LLM, custom all-reduce kernels, 2024",
            at_once=True,
            notes={
                "all-reduce": "The messages to all ranks leave at once: a round has one latency, and the bytes of "
                "all its messages share one port. The lower bound of the rounds is for one message at a time."
            },
        )
        for name, run in (("one_shot", _one_shot_all_reduce), ("two_shot", _two_shot_all_reduce))
    ),
    Algorithm(
        "scatter_allgather",
        {"broadcast": _then(_tree_scatter, _ring(False))},
        "Barnett, Gupta, Payne, Shuler, van de Geijn and Watts, Interprocessor collective communication library, 1994",
    ),
    Algorithm(
        "chain",
        {"broadcast": _chain(False), "reduce": _chain(True), "all-reduce": _chain_all_reduce},
        "Chan, Heimlich, Purkayastha and van de Geijn, Collective communication: theory, practice, experience, 2007",
        chunked=True,
    ),
    Algorithm(
        "owner_multicast",
        {"all-reduce": _owner_multicast_all_reduce},
        "Graham et al., Scalable hierarchical aggregation protocol (SHArP), 2016, with multicast in the network",
    ),
    Algorithm(
        "hierarchical",
        {**_level_runs(), "all-to-all": _hierarchical_all_to_all},
        "Mikami et al., Massively distributed SGD, 2018 (arXiv 1811.05233)",
        notes={"all-to-all": "Hwang et al., Tutel: adaptive mixture-of-experts at scale, 2023 (arXiv 2206.03382)."},
        inner=("g",),
    ),
    Algorithm(
        "torus_2d",
        _level_runs(("along x", "along y")),
        "Ying et al., Image classification at supercomputer scale, 2018 (arXiv 1811.06992)",
        inner=("k_x",),
        one_port=False,
    ),
    Algorithm(
        "torus_3d",
        _level_runs(("along x", "along y", "along z")),
        "Jouppi et al., TPU v4: an optically reconfigurable supercomputer, 2023 (arXiv 2304.01433)",
        inner=("k_x", "k_y"),
        one_port=False,
    ),
)
# A message between two ranks is a message under every algorithm.
ALGORITHMS: Mapping[str, Algorithm] = {a.name: replace(a, runs={**a.runs, "send": _message}) for a in _RECORDS}
KINDS = tuple(dict.fromkeys(kind for a in ALGORITHMS.values() for kind in a.runs))


def algorithm(name: str) -> Algorithm:
    """The record of an algorithm; raises ``AccountingError`` with near names for an unknown one.

    >>> algorithm("ring").name
    'ring'
    """
    if name not in ALGORITHMS:
        raise AccountingError(f"unknown algorithm '{name[:40]}'", hint=nearest(name, [*ALGORITHMS]))
    return ALGORITHMS[name]


# -- which one runs ----------------------------------------------------------------------------------

# On a switch every rank reaches every other one, and blocks for all of them need no way round a ring.
_USUAL = {"all-to-all": "pairwise", **dict.fromkeys(("broadcast", "reduce", "scatter", "gather"), "tree")}


def usual(kind: str) -> str:
    """The algorithm by which a kind of collective runs unless another one is named.

    >>> usual("all-reduce"), usual("all-to-all"), usual("broadcast")
    ('ring', 'pairwise', 'tree')
    """
    return _USUAL.get(kind, "ring")


def runs_by(said: str, kind: str) -> str:
    """The name of the algorithm that runs a kind of collective under the convention ``algorithm``.

    An algorithm named for this kind comes first. One named for all collectives runs the kinds it can; every other kind
    runs its usual algorithm. Raises ``AccountingError`` if the algorithm named for this kind cannot run it.

    >>> runs_by("pairwise", "all-gather"), runs_by("pairwise", "all-reduce"), runs_by("all-to-all: ring", "all-to-all")
    ('pairwise', 'ring', 'ring')
    """
    every, own = by_kind(said)
    if kind in own:
        return algorithm(own[kind]).running(kind).name
    return every if every in ALGORITHMS and kind in ALGORITHMS[every].runs else usual(kind)


def told(said: str, kinds: Iterable[str]) -> list[str]:
    """The conventions of an answer in which collectives of some kinds run: the field, and the algorithm of each kind.

    Of sums that travel round a ring the choice of their sends does, too.

    >>> told("usual", ["send", "all-to-all"])
    ['algorithm', 'algorithm of all-to-all: pairwise']
    """
    ran = [kind for kind in dict.fromkeys(kinds) if kind != "send"]
    home = ["ring_gradients"] if {*ran} & {"ring-sum", "ring-sum-home"} else []
    return ["algorithm", *home, *(f"{OF_KIND}{kind}: {runs_by(said, kind)}" for kind in ran)] if ran else []


def alternatives(touched: Collection[str]) -> list[Convention]:
    """The choices that may change an answer, by what touched it; an algorithm has to run some collective anew.

    >>> [row.name for row in alternatives(["algorithm", "algorithm of all-to-all: pairwise"])]
    ['ring', 'bruck', 'hierarchical']
    """
    ran = algorithms_of(touched)

    def anew(name: str) -> bool:
        return not ran or any(runs_by(name, kind) != other for kind, other in ran.items())

    return [row for row in CONVENTIONS if row.field in touched and (row.field != "algorithm" or anew(row.name))]


# -- how bytes are counted ---------------------------------------------------------------------------

# What all ranks together put in, as a share of the payload: a partial sum each, or a part each.
_PARTIAL_SUMS = frozenset({"all-reduce", "reduce-scatter", "reduce", "ring-sum", "ring-sum-home"})


@dataclass(frozen=True)
class Counting:
    """The count of one call under an accounting: a form in the exchange of the payload's share, ranks and groups."""

    name: str
    count: Callable[[str, Exchange, Form, Form], Form]


# One row a counting: (collective, its exchange for a payload of 1, ranks, groups side by side) -> share of the payload.
COUNTINGS: Mapping[str, Counting] = {
    c.name: c
    for c in (
        Counting("payload", lambda kind, made, k, groups: num(1)),
        Counting("sent_per_rank", lambda kind, made, k, groups: made.sent),
        Counting(
            "sent_and_received_per_rank",
            # A message has one end on each rank, but every rank of a pipeline both sends and receives.
            lambda kind, made, k, groups: product(num(2), made.sent) if kind == "send" else made.moved,
        ),
        Counting("all_links", lambda kind, made, k, groups: product(groups, made.total)),
        Counting("contributed", lambda kind, made, k, groups: product(
            groups, k if kind in _PARTIAL_SUMS else made.total if kind.startswith("halo") else num(1))),
    )
}


def share(kind: str, counted: str, algorithm: str, k: Form, groups: Form) -> Form:
    """The share of the payload that an accounting counts for one call.

    ``groups`` is the number of groups of ranks that run the call side by side on a mesh of several axes; only
    countings over all ranks multiply by it. Raises ``AccountingError`` where the algorithm cannot run the collective.

    >>> from symcomm.core.form import Sym, evaluate
    >>> from fractions import Fraction
    >>> evaluate(share("all-reduce", "sent_per_rank", "ring", Sym("k"), num(1)), {"k": Fraction(8)})
    Fraction(7, 4)
    """
    record = _named(algorithm)
    case = Case(num(1), k, nodes=tuple(Sym(name) for name in record.inner))
    return COUNTINGS[counted].count(kind, record.run(kind, case), k, groups)


_named = algorithm
