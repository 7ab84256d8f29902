"""The least that any plan could send under the places a strategy fixes, by an integer program of its own.

The places that are fixed are read off the plan; everything else is free. All axes of the mesh are chosen at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import product
from typing import Any

import numpy as np
from api import PARTIAL, Accounting, Compute, Plan, placings, resolve, with_slots
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_matrix

WHOLE = -2
RANKS = 4
ORDER = {"forward": 0, "backward": 1, "update": 2}
State = tuple[int, ...]  # of a tensor, or the need of an operand, along each axis of the mesh
PRICE = {"all-reduce": 2.0, "reduce-scatter": 1.0, "all-gather": 1.0, "all-to-all": 1.0 / RANKS}


def paid(plan: Plan, sizes: Mapping[str, int]) -> float:
    """What a plan sends, at the sizes and ranks where plans are compared."""
    total = 0.0
    for c in plan.collectives:
        others = sum(p != PARTIAL for m, p in c.before if m not in c.meshes)
        each = PRICE[c.kind] ** (len(c.meshes) if c.kind == "all-to-all" else 1)
        total += each * sizes[c.tensor.partition(" @ ")[0]] / RANKS**others
    return total


def price(size: int, have: State, need: State) -> float:
    """The least that leads from one state to another: scatter sums, reduce the others at once, gather, exchange.

    Where several axes of the mesh cut one axis, the parts of the later lie inside those of the earlier: what changes
    the earlier has to gather the later first.
    """
    now, total = list(have), 0.0

    def local(but: Iterable[int]) -> float:
        return size / RANKS ** sum(p >= 0 for n, p in enumerate(now) if n not in but)

    def gather(n: int) -> None:
        nonlocal total
        total += local([n])
        now[n] = WHOLE

    def clear(n: int, *places: int) -> None:
        for later in reversed(range(n + 1, len(now))):
            if now[later] >= 0 and now[later] in places:
                gather(later)

    for n, (a, b) in enumerate(zip(have, need, strict=True)):
        if now[n] == a == PARTIAL and b >= 0:
            # Sums that are scattered to one axis, with nothing between that cuts it, are one call.
            end = next((m for m in range(n + 1, len(now)) if now[m] == b), len(now))
            group = [m for m in range(n, end) if now[m] == PARTIAL and need[m] == b]
            clear(n, b)
            for m in range(n):  # a part of what is whole is free, and sums inside it are smaller
                now[m] = b if now[m] == WHOLE and need[m] == b else now[m]
            total += local(group)
            for m in group:
                now[m] = b
    reduced = [n for n, b in enumerate(need) if now[n] == PARTIAL and b == WHOLE]
    if reduced:
        total += 2 * local(reduced)
        for n in reduced:
            now[n] = WHOLE
    gone: dict[int, list[int]] = {}  # what is gathered along one axis is one call
    for n in reversed(range(len(now))):
        outer = [m for m in range(n) if now[m] == now[n] and need[m] == WHOLE]
        outer += [m for m in range(n) if now[m] == WHOLE and need[m] == need[n] == now[n]]
        if now[n] >= 0 and (need[n] == WHOLE or outer):
            gone.setdefault(now[n], []).append(n)
    for group in gone.values():
        total += local(group)
        for n in group:
            now[n] = WHOLE
    leave = [n for n, b in enumerate(need) if now[n] >= 0 and b >= 0 and now[n] != b]
    for n in leave:
        for later in reversed(range(n + 1, len(now))):
            if later not in leave and now[later] >= 0 and now[later] in (now[n], need[n]):
                gather(later)
    if leave:  # what is exchanged over several axes is one call
        total += local(leave) / RANKS ** len(leave)
    return total


def touched(have: State, need: State) -> set[int]:
    """The axes of the mesh along which a copy is no longer cut as it was: what is gathered is kept so."""
    found = {n for n, (a, b) in enumerate(zip(have, need, strict=True)) if a != b}
    inside = {n for m in found for n in range(m + 1, len(have)) if have[n] >= 0 and have[n] in (have[m], need[m])}
    return found | inside


class Program:
    """Binary variables with prices, and linear constraints on them."""

    def __init__(self) -> None:
        self.cost: list[float] = []
        self.names: dict[Any, int] = {}
        self.rows: list[tuple[dict[int, float], float, float]] = []

    def variable(self, name: Any, cost: float = 0.0) -> int:
        if name not in self.names:
            self.names[name] = len(self.cost)
            self.cost.append(cost)
        return self.names[name]

    def constrain(self, low: float, high: float, *terms: tuple[int, float]) -> None:
        row: dict[int, float] = {}
        for v, factor in terms:
            row[v] = row.get(v, 0.0) + factor
        self.rows.append((row, low, high))

    def least(self) -> float:
        entries = [(n, v, f) for n, (row, _, _) in enumerate(self.rows) for v, f in row.items()]
        r, c, f = zip(*entries, strict=True)
        matrix = csr_matrix((f, (r, c)), shape=(len(self.rows), len(self.cost)))
        scale = 2.0**20  # the solver knows gaps of one in a million, and none below
        limits = LinearConstraint(matrix, [low for _, low, _ in self.rows], [high for _, _, high in self.rows])
        found = milp(np.array(self.cost) / scale, constraints=limits, integrality=np.ones(len(self.cost)),
                     bounds=Bounds(0, 1), options={"mip_rel_gap": 1e-9})  # fmt: skip
        assert found.status == 0, found.message
        return float(found.fun) * scale


class Question:
    """The tensors and steps of a plan, with what the strategy leaves free."""

    def __init__(self, plan: Plan, accounting: Accounting, sizes: Mapping[str, int]) -> None:
        self.plan, self.graph, self.accounting, self.sizes = plan, plan.graph, accounting, sizes
        self.steps = [s for s in plan.steps if isinstance(s, Compute)]
        forward = self.graph.forward()
        rules, self.slots = with_slots(resolve(plan.strategy, forward), forward)
        self.rules = rules
        # Where several axes of the mesh cut one axis, shards nest as the data do.
        every = [*(p.rule.mesh for p in rules if p.axes is None), *(p.rule.mesh for p in rules if p.axes is not None)]
        self.meshes = tuple(reversed(dict.fromkeys(reversed(every))))
        self.named = {m: {a for p in rules if p.rule.mesh == m for a in p.axes or ()} for m in self.meshes}
        self.asked = {m: {a for p in rules if p.rule.mesh == m and not p.rule.rests for a in p.axes or ()}
                      for m in self.meshes}  # fmt: skip
        self.spared = {m: {a for p in rules if p.rule.mesh == m and p.rule.rests for a in p.axes or ()}
                       for m in self.meshes}  # fmt: skip
        self.made = {s.makes: s for s in self.steps}
        self.readers: dict[str, list[tuple[int, int]]] = {}
        for n, s in enumerate(self.steps):
            for j, name in enumerate(s.inputs):
                self.readers.setdefault(name, []).append((n, j))
        sparse = {self.graph.tensors[s.op.output].axes for s in self.steps if s.op.kind == "route"}
        features = self.features = {a for t in self.graph.weights for a in t.axes}
        self.resting: dict[tuple[str, str], int] = {}
        for name in {*self.made, *self.readers}:
            tensor = self.graph.tensors[name]
            small = not features & {*tensor.axes}  # a number a token rests anywhere
            if (
                not small
                and not tensor.virtual
                and tensor.axes not in sparse
                and not name.startswith(("state(", "new("))
            ):
                for p, at in placings(tensor, self.graph, rules):
                    if p.rule.rests:
                        self.resting[name, p.rule.mesh] = at

    def phase(self, n: int) -> str:
        return "update" if self.steps[n].op.kind == "update" else self.steps[n].op.phase

    def gradient_of_weight(self, name: str) -> bool:
        tensor = self.graph.tensors[name]
        return tensor.role == "gradient" and self.graph.tensors[tensor.of].role == "weight"

    def more(self, name: str) -> bool:
        """Whether a tensor is more than a number a token: losses and statistics are not cut to save memory."""
        axes = self.graph.tensors[name].axes
        return bool(self.features & {*axes}) or len({*axes}) < len(axes)

    # A mode: for each axis of the mesh, the loop that is cut, or None, or the operands that are partial sums.
    def modes(self, n: int) -> list[tuple[Any, ...]]:
        step, op = self.steps[n], self.steps[n].op
        axes = self.graph.index_axes(op)
        ways = []
        for mesh in self.meshes:
            cut = dict(step.cuts).get(mesh)
            mine = [j for j, at in enumerate(step.layouts) if (mesh, PARTIAL) in at]
            asit = cut if cut is not None else ("sum", *mine) if mine else None
            sums = step.part == "whole" and op.kind in ("contraction", "convolution") and bool(op.summed)
            weight = self.gradient_of_weight(op.output) and sums
            meant = cut is not None and axes[cut] not in self.spared[mesh]
            if weight or op.kind == "onehot" or (sums and len(op.inputs) > 1 and meant):
                ways.append([asit])
                continue
            operands = [*zip(step.inputs, step.step.indices, strict=True), (step.makes, step.step.output_indices)]
            more = {i for name, ix in operands for i in ix if self.more(name)}
            loops = [
                i for i, a in axes.items()
                if a in self.named[mesh] and (a in self.asked[mesh] or i in more) and i not in self.tied(n, mesh)
            ]  # fmt: skip
            if op.kind == "update":  # a weight is updated where its states are, or where the strategy cuts it
                loops += [p for m, p in self.plan.placements[op.inputs[2]] if m == mesh and p not in loops]
            whole = {*step.step.whole}
            if op.kind == "route":
                whole -= {*self.tied(n, mesh).values()}
            used = {i for ix in (*step.step.indices, step.step.output_indices) for i in ix}
            ways.append([i for i in loops if i in used and i not in whole] + [None] + self.sums(step))
        return [*product(*ways)]

    def sums(self, step: Compute) -> list[tuple[Any, ...]]:
        kind = step.op.kind
        if step.part == "whole" and kind == "add":
            return [("sum", *chosen) for chosen in product(*([(), (j,)] for j in range(len(step.inputs))))
                    for chosen in [tuple(j for part in chosen for j in part)] if chosen]  # fmt: skip
        if step.part == "whole" and kind == "contraction":
            given = {i for ix in step.op.indices for i in ix}
            free = {*step.op.output_indices} <= given
            return [("sum", j) for j in range(len(step.inputs)) if free and step.inputs.count(step.inputs[j]) == 1]
        return [("sum", *step.step.linear)] if step.step.linear else []

    def tied(self, n: int, mesh: str) -> dict[int, int]:
        """The loops over slots that an axis of the mesh cuts with the tokens that fill them."""
        axes = {a: i for i, a in self.graph.index_axes(self.steps[n].op).items() if a in self.named[mesh]}
        return {axes[s]: axes[t] for s, t in self.slots.items() if s in axes and t in axes}

    def at(self, n: int, mesh: str, indices: tuple[int, ...], cut: int) -> int | None:
        if cut in indices:
            return indices.index(cut)
        return next((indices.index(s) for s, t in self.tied(n, mesh).items() if t == cut and s in indices), None)

    def need(self, n: int, mode: tuple[Any, ...], j: int) -> State:
        found = []
        for mesh, way in zip(self.meshes, mode, strict=True):
            if isinstance(way, tuple):
                found.append(PARTIAL if j in way[1:] else WHOLE)
            else:
                op = self.steps[n].op
                earlier = j == op.attribute("before") and way in op.attribute("whole")
                place = None if way is None or earlier else self.at(n, mesh, self.steps[n].step.indices[j], way)
                found.append(WHOLE if place is None else place)
        return tuple(found)

    def gives(self, n: int, mode: tuple[Any, ...]) -> State:
        found = []
        for mesh, way in zip(self.meshes, mode, strict=True):
            place = self.at(n, mesh, self.steps[n].step.output_indices, way) if isinstance(way, int) else None
            found.append(WHOLE if way is None else PARTIAL if place is None else place)
        return tuple(found)

    def fixed(self, name: str, mesh: str) -> int | None:
        """Where a tensor must rest along an axis of the mesh, or None."""
        place = dict(self.plan.placements[name]).get(mesh, WHOLE)
        tensor = self.graph.tensors[name]
        if name not in self.made or (tensor.axes and (name not in self.readers or name in self.graph.crossing)):
            return place
        if self.gradient_of_weight(name) and name == f"d({tensor.of})":
            wish = {p.rule.mesh: at for p, at in placings(tensor, self.graph, self.rules)}
            if mesh in wish:
                return wish[mesh]
            if any(p.rule.axis == "whole" and p.rule.mesh == mesh for p in self.rules):
                return WHOLE
        step = self.made[name]
        whole = step.op.kind == "contraction" and step.op.summed and len(step.inputs) > 1
        if whole and tensor.role == "activation" and not self.meant(step, mesh):
            readers = [(n, j) for n, j in self.readers[name] if self.phase(n) == "forward"]
            places = [self.need(n, w, j)[self.meshes.index(mesh)] for n, j in readers for w in self.modes(n)]
            if readers and all(place == WHOLE for place in places):
                return None
        return self.resting.get((name, mesh))

    def meant(self, step: Compute, mesh: str) -> bool:
        """Whether a rule that saves more than memory cuts a loop of a step."""
        axes = {*self.graph.index_axes(step.op).values()}
        return any(axes & {*(p.axes or ())} for p in self.rules if p.rule.mesh == mesh and not p.rule.rests)

    def keeps(self, name: str, over: Iterable[str]) -> bool:
        if self.graph.tensors[name].role == "weight":
            return self.accounting.gathered_weights == "keep"
        if self.accounting.gathered_activations == "regather_sequence":
            axes = {*self.graph.tensors[name].axes}
            return not any(
                (name, m) in self.resting or (not self.features & axes and self.spared[m] & axes) for m in over
            )
        return self.accounting.gathered_activations == "keep"

    def least(self) -> float:
        """The least that any plan of this kind sends."""
        program = Program()
        modes = [self.modes(n) for n in range(len(self.steps))]
        for n, ways in enumerate(modes):
            program.constrain(1, 1, *((program.variable(("mode", n, w)), 1) for w in ways))
        for name in {*self.made, *self.readers}:
            self.tensor(program, name, modes)
        return program.least()

    def tensor(self, program: Program, name: str, modes: list[list[tuple[Any, ...]]]) -> None:
        graph, size = self.graph, self.sizes[name]
        maker = next((n for n, s in enumerate(self.steps) if s.makes == name), None)
        needs = {(n, w): [self.need(n, w, j) for m, j in self.readers.get(name, ()) if m == n]
                 for n, _ in self.readers.get(name, ()) for w in modes[n]}  # fmt: skip
        wanted = {s for several in needs.values() for s in several}
        made = {self.gives(maker, w) for w in modes[maker]} if maker is not None else set()
        choices = []
        for k, mesh in enumerate(self.meshes):
            fixed = self.fixed(name, mesh)
            every = {s[k] for s in wanted | made} | {WHOLE, dict(self.plan.placements[name]).get(mesh, WHOLE)}
            held = {fixed} | ({PARTIAL} & {s[k] for s in made}) if fixed is not None else every
            ends = maker is None or name not in self.readers or name in graph.crossing
            if fixed is not None and (ends or self.gradient_of_weight(name)):
                held = {fixed}
            if maker is not None and self.made[name].step.reduces == "max":
                held = held - {PARTIAL}
            choices.append(sorted(held))
        rests = [*product(*choices)]
        program.constrain(1, 1, *((program.variable(("rest", name, r)), 1) for r in rests))
        if maker is not None:
            flows: dict[State, list[int]] = {}
            into: dict[State, list[int]] = {r: [] for r in rests}
            for p, r in product(made, rests):
                fits = all(b != PARTIAL or a == PARTIAL for a, b in zip(p, r, strict=True))
                cost = price(size, p, r) if fits else 0.0
                if fits and (cost == 0 or not graph.tensors[name].virtual):
                    v = program.variable(("flow", name, p, r), cost)
                    flows.setdefault(p, []).append(v)
                    into[r].append(v)
            for p in made:
                ways = [(program.variable(("mode", maker, w)), -1.0) for w in modes[maker] if self.gives(maker, w) == p]
                program.constrain(0, 0, *((v, 1.0) for v in flows.get(p, ())), *ways)
            for r, several in into.items():
                program.constrain(0, 0, (program.variable(("rest", name, r)), -1.0), *((v, 1.0) for v in several))
        copies: list[tuple[str, State, State, int]] = []
        for phase in sorted({self.phase(n) for n, _ in needs}, key=lambda p: ORDER[p]):
            # Besides what readers ask for, copies that serve several of them.
            asked = {s for (n, _), several in needs.items() if self.phase(n) == phase for s in several}
            asked |= {
                tuple(a if a == b else WHOLE for a, b in zip(s, t, strict=True))
                for s, t in product(asked, asked) if PARTIAL not in (*s, *t)
            }  # fmt: skip
            for c, r in product(sorted(asked), rests):
                moved = all((b == PARTIAL) == (a == PARTIAL) for a, b in zip(r, c, strict=True)) and r != c
                if moved and not graph.tensors[name].virtual and price(size, r, c) > 0:
                    v = program.variable(("copy", name, phase, c, r), price(size, r, c))
                    program.constrain(-1, 0, (v, 1.0), (program.variable(("rest", name, r)), -1.0))
                    copies.append((phase, c, r, v))
        for (n, w), several in needs.items():
            for need in several:
                there = [program.variable(("rest", name, r)) for r in rests if serves(r, need)]
                for phase, c, r, v in copies:
                    over = [self.meshes[k] for k in touched(r, c)]
                    early = ORDER[phase] < ORDER[self.phase(n)] and self.keeps(name, over)
                    if (phase == self.phase(n) or early) and serves(c, need):
                        there.append(v)
                mode = program.variable(("mode", n, w))
                program.constrain(-np.inf, 0, (mode, 1.0), *((v, -1.0) for v in there))


def serves(have: State, need: State) -> bool:
    """Whether a part of what is there is what is needed: parts of parts do not lie in the parts of the whole."""
    return all(
        a == b or (a == WHOLE and b != PARTIAL and b not in have[n + 1 :])
        for n, (a, b) in enumerate(zip(have, need, strict=True))
    )
