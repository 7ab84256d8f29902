"""The topology of a machine: how its GPUs and network cards are joined, and what follows from that.

``read_topology`` reads what ``nvidia-smi topo -m`` prints. The structure (NUMA nodes, near cards, cuts, rings) is found
here; ``symcomm.core.hardware.paths`` turns it into derivations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from itertools import combinations, islice, permutations, product
from typing import Any

from symcomm.core.errors import ValuesError, nearest
from symcomm.core.hardware.matrix import PCIE, Matrix, Missing, Place, read_matrix
from symcomm.core.libraries import nx
from symcomm.core.records import dataclass

_MOST_LINKS = 18  # NVLinks of one GPU, in any generation so far
_CUT_LIMIT = 500_000  # halves that are tried
_RING_STEPS = 200_000  # steps of the search for a ring
_ALL_TOURS = 7  # GPUs whose tours a witness tries one by one


def nvlinks(kind: str) -> int:
    """The number of bonded NVLinks of a link type; zero where it is none.

    >>> nvlinks("NV18"), nvlinks("SYS")
    (18, 0)
    """
    return int(kind[2:]) if kind.startswith("NV") else 0


def rank(kind: str) -> int:
    """How near a link type joins two devices: more is nearer. NVLink comes before PCIe, a bridge before a socket."""
    return nvlinks(kind) * 10 + len(PCIE) if nvlinks(kind) else len(PCIE) - 1 - PCIE.index(kind)


@dataclass(frozen=True)
class Cut:
    """The cheapest cut into two halves: its halves, and what crosses it.

    ``crossing`` counts NVLinks; ``shared`` is the PCIe path that the halves share, where some pairs have no NVLink.
    """

    left: tuple[str, ...]
    right: tuple[str, ...]
    crossing: int
    shared: str = ""


@dataclass(frozen=True)
class Ring:
    """A closed tour of all GPUs: its order, and the poorest link type along it.

    ``best`` says that no ring has a better poorest link; otherwise the search was cut short.
    """

    order: tuple[str, ...]
    bottleneck: str
    best: bool


@dataclass(frozen=True)
class Topology:
    """The devices of a machine and how each pair of them is joined.

    >>> t = read_topology("     GPU0 GPU1 NIC0\\nGPU0  X   NV4 PIX\\nGPU1 NV4   X  SYS\\nNIC0 PIX SYS  X")
    >>> t.kind("GPU0", "GPU1"), t.near("GPU0"), t.near("GPU1")
    ('NV4', (('NIC0',), 'PIX'), (('NIC0',), 'SYS'))
    """

    matrix: Matrix

    @cached_property
    def index(self) -> dict[str, int]:
        """The position of each device by name."""
        return {place.name: i for i, place in enumerate(self.matrix.places)}

    @property
    def gpus(self) -> tuple[str, ...]:
        """The names of the GPUs, in order."""
        return tuple(p.name for p in self.matrix.places if p.is_gpu)

    @property
    def nics(self) -> tuple[str, ...]:
        """The names of the network cards, in order."""
        return tuple(p.name for p in self.matrix.places if not p.is_gpu)

    @property
    def missing(self) -> tuple[Missing, ...]:
        """The cells that the printed matrix lost."""
        return self.matrix.missing

    def place(self, name: str) -> Place:
        """A device by name. Raises ``ValuesError`` for an unknown one."""
        if name not in self.index:
            raise ValuesError(f"the topology has no device '{name[:40]}'", hint=nearest(name, [*self.index]))
        return self.matrix.places[self.index[name]]

    def kind(self, a: str, b: str) -> str:
        """The link type of two devices."""
        self.place(a), self.place(b)
        return self.matrix.kinds[self.index[a]][self.index[b]]

    @cached_property
    def graph(self) -> Any:
        """The devices as a NetworkX graph: nodes with ``role``, ``cpus``, ``numa``; edges with ``kind``, ``links``."""
        made = nx.Graph()
        for place in self.matrix.places:
            made.add_node(place.name, role="gpu" if place.is_gpu else "nic", cpus=place.cpus, numa=place.numa)
        names = [place.name for place in self.matrix.places]
        for i, row in enumerate(self.matrix.kinds):
            made.add_edges_from((names[i], names[j], {"kind": row[j], "links": nvlinks(row[j])}) for j in range(i))
        return made

    # -- NUMA nodes and network cards ------------------------------------------------------------

    @cached_property
    def nodes(self) -> dict[str, tuple[str, ...]]:
        """The NUMA nodes with their devices: GPUs by their affinity, network cards by the GPUs they are near.

        Where the matrix names no node, devices with the same CPUs are one; a card joined to every GPU by SYS has none.
        """
        found: dict[str, list[str]] = {}
        for place in self.matrix.places:
            node = place.numa or (f"CPUs {place.cpus}" if place.cpus else "")
            if place.is_gpu:
                found.setdefault(node or "unknown", []).append(place.name)
        home = {name: node for node, names in found.items() for name in names}
        for nic in self.nics:
            inside = sorted({home[g] for g in self.gpus if self.kind(nic, g) != "SYS"})
            if len(inside) == 1:
                found[inside[0]].append(nic)
        return {node: tuple(found[node]) for node in sorted(found)}

    def node(self, name: str) -> str:
        """The NUMA node of a device; empty where nothing tells it."""
        self.place(name)
        return next((node for node, names in self.nodes.items() if name in names), "")

    def near(self, gpu: str) -> tuple[tuple[str, ...], str]:
        """The network cards nearest to a GPU, and how they are joined to it."""
        if not self.place(gpu).is_gpu:
            raise ValuesError(f"{gpu} is a network card, not a GPU", hint=nearest(gpu, [*self.gpus]))
        if not self.nics:
            raise ValuesError("the topology has no network card")
        best = max((self.kind(gpu, nic) for nic in self.nics), key=rank)
        return tuple(nic for nic in self.nics if self.kind(gpu, nic) == best), best

    # -- cuts ------------------------------------------------------------------------------------

    def injection(self, gpu: str) -> int:
        """The NVLinks by which a GPU reaches its best-joined peer: all it has where they lead to a switch."""
        return max((nvlinks(self.kind(gpu, other)) for other in self.gpus if other != gpu), default=0)

    def demand(self, gpu: str) -> int:
        """The NVLinks that a GPU would need if each of its bonds were a cable of its own."""
        return sum(nvlinks(self.kind(gpu, other)) for other in self.gpus if other != gpu)

    def switched(self, links: int = 0) -> bool:
        """Whether the bonds must go through a switch: direct ones would need more links than a GPU has.

        ``links`` are those of the GPU; without them, the most that a GPU of any generation has.
        """
        return any(self.demand(gpu) > (links or _MOST_LINKS) for gpu in self.gpus)

    def bisection(self, switch: bool) -> Cut:
        """The cheapest cut of the GPUs into two halves (of sizes that differ by one at most).

        With a ``switch`` that blocks nothing, a cut costs the links of the half that has fewer; without one, the
        NVLinks between the halves. Raises ``ValuesError`` for fewer than two GPUs or too many halves.
        """
        gpus = self.gpus
        if len(gpus) < 2:
            raise ValuesError(f"a bisection needs two GPUs or more, and there {_are(len(gpus))}")
        half = len(gpus) // 2
        if switch:
            ordered = sorted(gpus, key=self.injection)
            left = tuple(sorted(ordered[:half], key=gpus.index))
            crossing = sum(map(self.injection, left))
        else:
            left, crossing = self._cheapest(half)
        right = tuple(g for g in gpus if g not in left)
        paths = [kind for a in left for b in right if not nvlinks(kind := self.kind(a, b))]
        shared = max(paths, key=rank) if paths and not (switch and crossing) else ""
        return Cut(left, right, crossing, shared)

    def crossing(self, switch: bool) -> Fraction:
        """The NVLinks that cross the cheapest cut, from the largest flow between the halves, each half that there is.

        Only some of the halves where there are many: a flow is no less than the cheapest cut of any.
        """
        gpus, joined = self.gpus, self.graph
        halves = islice(combinations(gpus, len(gpus) // 2), 200)
        flows = []
        for left in halves:
            pipes = nx.DiGraph()
            for gpu in gpus:
                pipes.add_edge(*(("from", gpu) if gpu in left else (gpu, "to")))  # without a capacity: any flow
                if switch:
                    most = max(joined.edges[gpu, other]["links"] for other in gpus if other != gpu)
                    pipes.add_edge(*((gpu, "switch") if gpu in left else ("switch", gpu)), capacity=most)
            for a in () if switch else left:
                for b in gpus:
                    if b not in left:
                        pipes.add_edge(a, b, capacity=joined.edges[a, b]["links"])
            flows.append(nx.maximum_flow_value(pipes, "from", "to"))
        return Fraction(min(flows))

    def poorest(self, order: Sequence[str], worth: Callable[[str], Any] = rank) -> str:
        """The poorest link type along a tour; of the best of all tours, where they can all be tried."""
        tours: Iterable[tuple[str, ...]] = [tuple(order)]
        if len(order) <= _ALL_TOURS:
            tours = ((order[0], *rest) for rest in permutations(order[1:]))
        kinds = (min((self.kind(a, b) for a, b in zip(tour, (*tour[1:], tour[0]), strict=True)), key=worth)
                 for tour in tours)  # fmt: skip
        return max(kinds, key=worth)

    def _cheapest(self, half: int) -> tuple[tuple[str, ...], int]:
        """The half with the fewest NVLinks to the rest; of GPUs that are joined alike, only the number counts."""
        classes = self._alike()
        sizes = [len(c) for c in classes]
        tries = 1
        for size in sizes:
            tries *= size + 1
        if tries > _CUT_LIMIT:
            raise ValuesError(
                f"{tries:,} ways to halve the GPUs are too many to try", hint=f"at most {_CUT_LIMIT:,} are tried"
            )
        between = [[nvlinks(self.kind(a[0], b[0])) if a is not b else 0 for b in classes] for a in classes]
        within = [nvlinks(self.kind(c[0], c[1])) if len(c) > 1 else 0 for c in classes]
        best: tuple[int, tuple[int, ...]] | None = None
        for counts in product(*(range(size + 1) for size in sizes)):
            if sum(counts) != half:
                continue
            cost = sum(w * n * (s - n) for w, n, s in zip(within, counts, sizes, strict=True))
            for i, n in enumerate(counts):
                if n:
                    cost += n * sum(between[i][j] * (sizes[j] - counts[j]) for j in range(len(counts)))
            # Among equal cuts, the one that keeps the first GPUs together reads best.
            if best is None or (cost, [-c for c in counts]) < (best[0], [-c for c in best[1]]):
                best = (cost, counts)
        assert best is not None
        chosen = {g for c, n in zip(classes, best[1], strict=True) for g in c[:n]}
        return tuple(g for g in self.gpus if g in chosen), best[0]

    def _alike(self) -> list[list[str]]:
        """GPUs that no cut can tell apart: the same links to every other one."""
        kinds, order = self.matrix.kinds, [self.index[g] for g in self.gpus]
        links = [[nvlinks(kinds[i][j]) if i != j else 0 for j in order] for i in order]
        found: list[list[int]] = []
        for a in range(len(order)):
            for members in found:
                b = members[0]
                within = links[members[0]][members[1]] if len(members) > 1 else links[a][b]
                others = [n for n in range(len(order)) if n not in (a, b)]
                if links[a][b] == within and all(links[a][n] == links[b][n] for n in others):
                    members.append(a)
                    break
            else:
                found.append([a])
        return [[self.gpus[i] for i in members] for members in found]

    # -- rings -----------------------------------------------------------------------------------

    def ring(self, worth: Callable[[str], Any] = rank) -> Ring:
        """A ring through all GPUs whose poorest link is as good as any ring allows.

        ``worth`` orders the link types. Raises ``ValuesError`` for fewer than two GPUs.
        """
        gpus = self.gpus
        if len(gpus) < 2:
            raise ValuesError(f"a ring needs two GPUs or more, and there {_are(len(gpus))}")
        kinds, order = self.matrix.kinds, [self.index[g] for g in gpus]
        levels = sorted({kinds[i][j] for i in order for j in order if i != j}, key=worth, reverse=True)
        best = True
        for level in levels:
            floor = worth(level)
            near = [{b for b, j in enumerate(order) if a != b and worth(kinds[i][j]) >= floor}
                    for a, i in enumerate(order)]  # fmt: skip
            tour, sure = _tour(near)
            if tour is not None:
                steps = zip(tour, (*tour[1:], tour[0]), strict=True)
                poorest = min((kinds[order[a]][order[b]] for a, b in steps), key=worth)
                return Ring(tuple(gpus[a] for a in tour), poorest, best)
            best = best and sure
        raise AssertionError("all GPUs are joined somehow")  # a matrix is complete


def _are(count: int) -> str:
    return f"is {count}" if count == 1 else f"are {count}"


def _tour(near: Sequence[Iterable[int]]) -> tuple[tuple[int, ...] | None, bool]:
    """A Hamiltonian cycle, if one is found, and whether the answer is sure.

    Where every vertex sees half of the others there is one (Dirac, 1952), and reversing stretches of any tour finds it
    (Palmer, 1997); else the necessary conditions are tried, then a bounded search.
    """
    n = len(near)
    sets = [frozenset(s) for s in near]
    if n == 2:
        return ((0, 1), True) if 1 in sets[0] else (None, True)
    if any(len(s) < 2 for s in sets):
        return None, True
    found = _palmer(sets)
    if found is not None:
        return _turned(found), True
    graph: Any = nx.Graph((a, b) for a, s in enumerate(sets) for b in s)
    if graph.number_of_nodes() < n or not nx.is_biconnected(graph):
        return None, True
    return _search(sets)


def _palmer(sets: Sequence[frozenset[int]]) -> list[int] | None:
    n = len(sets)
    tour = list(range(n))
    for _ in range(n):
        gap = next((i for i in range(n) if tour[(i + 1) % n] not in sets[tour[i]]), None)
        if gap is None:
            return tour
        tour = tour[gap + 1 :] + tour[: gap + 1]  # the gap is now between the last and the first
        first, last = tour[0], tour[-1]
        for i in range(n - 1):
            if tour[i] in sets[last] and tour[i + 1] in sets[first]:
                tour = tour[: i + 1][::-1] + tour[i + 1 :]
                break
        else:
            return None
    return None


def _search(sets: Sequence[frozenset[int]]) -> tuple[tuple[int, ...] | None, bool]:
    """Depth first from vertex 0, poorest neighbours first, for a bounded number of steps."""
    n, steps = len(sets), 0
    path, seen = [0], {0}
    waiting = [sorted(sets[0], key=lambda v: len(sets[v]), reverse=True)]
    while waiting:
        steps += 1
        if steps > _RING_STEPS:
            return None, False
        if len(path) == n and 0 in sets[path[-1]]:
            return _turned(path), True
        if waiting[-1] and len(path) < n:
            vertex = waiting[-1].pop()
            if vertex in seen:
                continue
            path.append(vertex)
            seen.add(vertex)
            waiting.append(sorted(sets[vertex] - seen, key=lambda v: len(sets[v] - seen), reverse=True))
        else:
            waiting.pop()
            seen.discard(path.pop())
    return None, True


def _turned(tour: Sequence[int]) -> tuple[int, ...]:
    """The tour from vertex 0 on, towards its smaller neighbour."""
    at = list(tour).index(0)
    turned = [*tour[at:], *tour[:at]]
    return tuple(turned if turned[1] <= turned[-1] else [turned[0], *turned[:0:-1]])


def read_topology(text: str, file: str = "<text>") -> Topology:
    """The topology that ``nvidia-smi topo -m`` printed, alone or in a document.

    See ``symcomm.core.hardware.matrix.read_matrix`` for what is repaired and what is refused.
    """
    return Topology(read_matrix(text, file))


def rate_of(kind: str, link: Fraction | None, pcie: Mapping[str, Fraction]) -> Fraction | None:
    """The bandwidth of a link type in one direction, where it is known.

    >>> rate_of("NV2", Fraction(25), {}), rate_of("PIX", None, {})
    (Fraction(50, 1), None)
    """
    if nvlinks(kind):
        return None if link is None else nvlinks(kind) * link
    return pcie.get(kind)
