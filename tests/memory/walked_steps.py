"""A training step walked op by op with a set of what is alive, for models whose ops are written down by hand.

It shares nothing with the passes: it knows three programs (before the layers, one layer, behind them), runs them for
every layer and every microbatch as a schedule says, and drops each tensor after the last op that reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from api import find

FLOAT = 4
# Each op: what it makes, how wide that is (w and A are gradients of weights), and which tensors it reads.
LAYER = [("a", "F", ("x",)), ("u", "F", ("a",)), ("y", "D", ("u",))]
LAYER_BACK = [("du", "F", ("dy",)), ("dU", "w", ("dy", "u")), ("da", "F", ("du", "u")), ("dx", "D", ("da",)),
              ("dW", "w", ("da", "x"))]  # fmt: skip
BEFORE, BEFORE_BACK = [("y", "D", ("x",))], [("dx", "D", ("dy",)), ("dA", "A", ("dy", "x"))]
BEHIND, BEHIND_BACK = [("y", "D", ("x",))], [("dx", "D", ("dy",)), ("dC", "A", ("dy", "x"))]


@dataclass
class Walk:
    """One stage of a pipeline (or all of a model, with one stage)."""

    rows: int
    width: int
    hidden: int
    layers: int
    stages: int = 1
    microbatches: int = 1
    schedule: str = "gpipe"
    chunks: int = 1
    stage: int = 0
    every: int = 0
    named: frozenset[str] = frozenset()
    ends: bool = True
    state: int = 8
    copies: int = 1  # ranks on which each stage is
    each: tuple[int, ...] = ()  # the layers of each stage, where they are not all as many
    live: dict[tuple[object, ...], int] = field(default_factory=dict)
    kept: dict[tuple[object, ...], int] = field(default_factory=dict)
    peak: int = 0
    places: list[int] = field(default_factory=list)  # the stage of the model that each chunk is

    def sizes(self, code: str) -> int:
        rows = self.rows // self.microbatches
        return FLOAT * {"D": rows * self.width, "F": rows * self.hidden, "w": self.width * self.hidden,
                        "A": self.width**2}[code]  # fmt: skip

    def count(self, chunk: int) -> int:
        """The layers of a chunk."""
        if self.each:
            return self.each[self.places[chunk]]
        return self.layers * self.copies // (self.stages * self.chunks)

    def saved(self) -> int:
        """The most that is kept for backward at once: of a layer x and u, of each end its input."""
        order = find(self.schedule).rank(self.stage, self.stages, self.microbatches, self.chunks)
        self.places = sorted({stage for item in order for _, stage, _ in item})
        token, hidden, last = self.sizes("D"), self.sizes("F"), self.stages * self.chunks // self.copies - 1
        held: dict[tuple[int, int], int] = {}
        most = 0
        for item in order:
            for kind, stage, microbatch in item:
                if kind == "F":
                    ends = self.ends * ((stage == 0) + (stage == last)) * token
                    held[stage, microbatch] = self.count(self.places.index(stage)) * (token + hidden) + ends
            most = max(most, sum(held.values()))
            for kind, stage, microbatch in item:
                if kind in "DW":
                    del held[stage, microbatch]
        assert not held
        return most

    def program(self, chunk: int) -> tuple[list[tuple], list[tuple]]:
        """The ops of a chunk, forward and backward; a tensor is (layer, name), and each reads tensors."""
        count = self.count(chunk)
        blocks = [("layer", n) for n in range(count)]
        if self.ends and self.places[chunk] == 0:
            blocks = [("before", -1), *blocks]
        if self.ends and self.places[chunk] == self.stages * self.chunks // self.copies - 1:
            blocks = [*blocks, ("behind", count)]
        texts = {"layer": (LAYER, LAYER_BACK), "before": (BEFORE, BEFORE_BACK), "behind": (BEHIND, BEHIND_BACK)}
        names = {"x": lambda n: (n - 1, "y"), "dy": lambda n: (n + 1, "dx")}

        def called(n: int, name: str) -> tuple:
            return names[name](n) if name in names else (n, name)

        forward = [((n, out), code, tuple(called(n, r) for r in reads)) for kind, n in blocks
                   for out, code, reads in texts[kind][0]]  # fmt: skip
        again: dict[tuple, tuple] = {}
        backward: list[tuple] = []
        for kind, n in reversed(blocks):
            repeats: list[tuple] = []
            if self.every and kind == "layer" and (n + 1) % self.every == 0:
                group = range(n + 1 - self.every, n + 1)
                repeats = [op for op in forward if op[0][0] in group and op[0] != (n, "y")]
            if self.named and kind == "layer":
                repeats = [op for op in forward if op[0][0] == n and op[0][1] in self.named]
            steps = [((n, out), code, tuple(called(n, r) for r in reads)) for out, code, reads in texts[kind][1]]
            mine = {out: (*out, "again") for out, _, _ in repeats}
            again |= mine
            redone = [(again[out], code, tuple(again.get(r, r) for r in reads)) for out, code, reads in repeats]
            if self.named and redone:  # just before the first gradient that reads it
                first = next(k for k, (_, _, reads) in enumerate(steps) if any(r in mine for r in reads))
                steps[first:first] = redone
            else:
                steps = redone + steps
            backward += [(out, code, tuple(again.get(r, r) for r in reads)) for out, code, reads in steps]
        return forward, backward

    def weights(self, chunk: int) -> int:
        count = self.count(chunk)
        first = self.ends and self.places[chunk] == 0
        last = self.ends and self.places[chunk] == self.stages * self.chunks // self.copies - 1
        return count * 2 * self.width * self.hidden + (first + last) * self.width**2

    def run(self) -> int:
        """The most bytes alive at once."""
        order = find(self.schedule).rank(self.stage, self.stages, self.microbatches, self.chunks)
        self.places = sorted({stage for item in order for _, stage, _ in item})
        parameters = sum(self.weights(c) for c in range(self.chunks))
        always = (FLOAT + self.state) * parameters
        done: set[int] = set()
        spare = 0  # what the forward pass of a pair has more at its largest than when it is done
        for place, (kind, stage, microbatch) in ((n, one) for item in order for n, one in enumerate(item)):
            chunk = self.places.index(stage)
            piece = (microbatch, chunk)
            forward, backward = self.program(chunk)
            before = always + sum(self.live.values()) + sum(self.kept.values())
            most, beside = before, spare if place else 0
            if kind in "BW":
                late = [op for op in backward if op[1] in ("w", "A")]  # gradients of weights, after all others
                backward = [op for op in backward if op[1] not in ("w", "A")] + late
                middle = len(forward) + len(backward) - len(late)
            last = {r: n for n, (_, _, reads) in enumerate(forward + backward) for r in reads}
            if kind == "W":
                ops, start = backward[middle - len(forward) :], middle
            elif kind == "F":
                ops, start = forward, 0
                entry = min(n for (n, _), _, _ in forward) - 1
                self.live[(*piece, (entry, "y"))] = self.sizes("D")
            else:
                ops, start = backward[: middle - len(forward)] if kind == "B" else backward, len(forward)
                entry = max(n for (n, _), _, _ in forward) + 1
                self.live[(*piece, (entry, "dx"))] = self.sizes("D")
            for n, (out, code, _) in enumerate(ops, start):
                gradient = code in ("w", "A")
                if gradient and chunk not in done:
                    self.kept[(chunk, out)] = self.sizes(code)
                else:
                    self.live[(*piece, out)] = self.sizes(code)
                now = always + sum(self.live.values()) + sum(self.kept.values())
                self.peak, most = max(self.peak, now + beside), max(most, now)
                leaving = (min(n for (n, _), _, _ in forward), "dx")
                for key in [k for k in self.live if k[:2] == piece]:
                    if key[2] != leaving and last.get(key[2], -1) <= n:
                        del self.live[key]
            spare = most - before - sum(size for key, size in self.live.items() if key[:2] == piece)
            if kind == "B":
                self.live.pop((*piece, leaving), None)
            elif kind in "DW":
                done.add(chunk)
                assert not [k for k in self.live if k[:2] == piece and k[2] != leaving]
                self.live.pop((*piece, leaving), None)
        assert not self.live
        assert sum(self.kept.values()) == FLOAT * parameters
        return max(self.peak, always + FLOAT * parameters)


def cases(stages: Sequence[int]) -> list[tuple[int, int, str, int, int]]:
    """Stages, microbatches, schedule, chunks and stage, for every stage of every schedule."""
    found = []
    for p in stages:
        for m in (1, 2 * p):
            for name, chunks in (("gpipe", 1), ("1f1b", 1), ("interleaved", 2), ("interleaved", 3)):
                if name != "interleaved" or m % p == 0:
                    found += [(p, m, name, chunks, s) for s in range(p)]
    return found
