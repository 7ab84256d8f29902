"""Convolutions over cut positions: every rank's run, exchanges of halos and all, equals the run of one machine.

A rank's part of an image begins and ends where the first and last taps of its places do, which is found here by laying
the windows out; what it does not own comes from the rank beside it, row by row, or the run fails.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Any

import numpy as np
import pytest
from api import (
    Accounting,
    Collective,
    Compute,
    Op,
    build,
    layer_tables,
    parse_layer,
    parse_strategy,
    training,
    update_ops,
    value,
)
from api import program_program_program as program
from proof_cases import Case, superfluous
from proof_ranks import Coordinates, Mesh, MissingBlockError, Ranks, RankShare
from proof_reference import Array, Sizes, outside, reach, run
from proof_tables import table
from test_proof_ranks import all_links

KINDS = ("halo-exchange", "halo-shift")


@dataclass(frozen=True)
class Slide:
    """How a convolution slides along one axis of space: where its places begin, and what they span."""

    positions: int
    places: int
    taps: int
    apart: int

    @property
    def span(self) -> int:
        return (self.taps - 1) * self.apart + 1

    @property
    def stride(self) -> int:
        assert self.positions % self.places == 0
        return self.positions // self.places

    @property
    def before(self) -> int:
        """The zeros before the first position, which is where ``reach`` puts them."""
        met = reach(self.positions, self.taps, self.places, self.apart)
        place, tap = next((p, t) for p, t in product(range(self.places), range(self.taps)) if met[p, t].any())
        return place * self.stride + tap * self.apart - int(np.argmax(met[place, tap]))

    def rows(self, part: int, parts: int) -> tuple[int, int]:
        """The first position that the places of a part read, and that behind the last; zeros outside included."""
        own = self.places // parts
        first = part * own * self.stride - self.before
        return first, first + (own - 1) * self.stride + self.span


def groups(sizes: Sizes, tensor: str, indices: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The loops behind each axis as its author wrote it."""
    held = sizes.graph.tensors[tensor].held
    starts = [sum(held[:n]) for n in range(len(held))]
    return [indices[at : at + count] for at, count in zip(starts, held, strict=True)]


class HaloRanks(Ranks):
    """Ranks that hold parts of images with the edges of their neighbours, and exchange these."""

    def part(self, rank: Coordinates, meshes: list[str]) -> tuple[int, int]:
        """Which part of an axis a rank has that several axes of the mesh cut, and how many parts there are."""
        parts = prod(self.mesh.sizes[m] for m in meshes)
        start, _ = self.mesh.part(parts, meshes, rank)
        return start, parts

    def convolution(self, image: str) -> Op:
        """The convolution of the forward pass that reads an image with its halo, or with those of further axes."""
        return next(
            o if o.kind == "convolution" else self.convolution(o.output)
            for o in self.plan.graph.ops if o.phase == "forward" and image in o.inputs
        )  # fmt: skip

    def slide(self, op: Op, dimension: int) -> Slide:
        """Along an axis of space, by the sizes of the image as it was before its halo."""
        image, kernel, result = op.inputs[0].partition("·halo")[0], op.inputs[1], op.output
        lengths = [
            prod(self.sizes.axes[a] for a in self.plan.graph.tensors[n].own_axes[2 + dimension])
            for n in (image, result, kernel)
        ]
        return Slide(lengths[0], lengths[1], lengths[2], int(op.attribute("dilation", 1)))

    def dimension(self, halo: Op) -> int:
        """The axis of space that an op widens."""
        wide = halo.output if halo.kind == "halo" else halo.inputs[0]
        own = self.plan.graph.tensors[halo.inputs[0] if halo.kind == "halo" else halo.output].axes
        position = next(n for n, axis in enumerate(self.plan.graph.tensors[wide].axes) if axis not in own)
        held = self.plan.graph.tensors[wide].held
        return next(n for n in range(len(held)) if sum(held[:n]) == position) - 2

    def halo_of(self, wide: str) -> Op:
        bare = self.plan.graph.tensors[wide].of or wide
        return next(o for o in self.plan.graph.ops if o.kind == "halo" and o.output == bare)

    def run(self, step: Compute) -> None:
        if step.op.kind in ("halo", "halo_sum"):
            self.widen(step)
        elif step.op.kind == "convolution" and step.op.attribute("tied"):
            self.convolve(step)
        else:
            super().run(step)

    def enter_for(self, op: Op) -> None:
        if op.phase != self.phase:
            self.enter(op.phase)

    def rows(self, wide: str, meshes: list[str], rank: Coordinates) -> tuple[int, int, int, int]:
        """Of an image with its halo: the rows that a rank reads, and those that it owns."""
        halo = self.halo_of(wide)
        slide = self.slide(self.convolution(halo.output), self.dimension(halo))
        part, parts = self.part(rank, meshes)
        own = slide.positions // parts
        return *slide.rows(part, parts), part * own, (part + 1) * own

    def widen(self, step: Compute) -> None:
        """A rank's own rows in their place among those that it reads; or its own of all of which it has gradients."""
        op = step.op
        self.enter_for(op)
        wide = op.output if op.kind == "halo" else op.inputs[0]
        held = self.narrow(step.reads[0], step.inputs[0], step.layouts[0])
        layout = step.output if op.kind == "halo" else step.layouts[0]
        axis = 2 + self.dimension(op)
        meshes = self.cutting(wide, layout, axis)
        results = {}
        for rank, array in held.blocks.items():
            first, last, start, stop = self.rows(wide, meshes, rank)
            place = self.place(step.inputs[0], axis)
            joined = self.joined_axis(array, step.inputs[0], axis)
            flat = np.moveaxis(joined, place, 0)
            if op.kind == "halo":
                made = np.zeros((last - first, *flat.shape[1:]))
                made[start - first : stop - first] = flat
                result = np.moveaxis(made, 0, place)
            else:
                result = np.moveaxis(flat[start - first : stop - first], 0, place)
                result = result.reshape([b - a for a, b in self.block(step.makes, step.output, rank)])
            assert result.shape == tuple(b - a for a, b in self.block(step.makes, step.output, rank)), step.makes
            results[rank] = result
        self.store[step.makes] = RankShare(step.output, results)

    def place(self, tensor: str, axis: int) -> int:
        return sum(self.plan.graph.tensors[tensor].held[:axis])

    def joined_axis(self, array: Array, tensor: str, axis: int) -> Array:
        """The array with the axes behind one of the author's own as one."""
        held, at = self.plan.graph.tensors[tensor].held, self.place(tensor, axis)
        shape = array.shape
        return array.reshape((*shape[:at], prod(shape[at : at + held[axis]]), *shape[at + held[axis] :]))

    def cutting(self, tensor: str, layout: Any, axis: int) -> list[str]:
        return [m for m, p in layout if p == self.place(tensor, axis)]

    def call(self, step: Collective) -> None:
        if step.kind in KINDS:
            self.exchange(step)
        else:
            super().call(step)

    def exchange(self, step: Collective) -> None:
        """Each row that a rank reads and does not own comes from the rank beside it; or its gradient goes there."""
        halo = self.halo_of(step.tensor)
        axis = 2 + self.dimension(halo)
        held, meshes = self.store[step.tensor], self.cutting(step.tensor, step.before, axis)
        back, place = step.tensor != halo.output, self.place(step.tensor, axis)
        self.check(step.before == step.after == held.layout and tuple(meshes) == step.meshes, step)
        made = {rank: np.moveaxis(array, place, 0).copy() for rank, array in held.blocks.items()}
        given = {rank: np.moveaxis(array, place, 0) for rank, array in held.blocks.items()}
        for group in self.mesh.groups(step.meshes):
            told = [set[int]() for _ in group]
            for n, rank in enumerate(group):
                first, last, start, stop = self.rows(step.tensor, meshes, rank)
                for row in range(first, last):
                    if start <= row < stop:
                        continue
                    other = next((m for m, r in enumerate(group) if self.rows(step.tensor, meshes, r)[2] <= row
                                  < self.rows(step.tensor, meshes, r)[3]), None)  # fmt: skip
                    if other is None:
                        assert row < 0 or row >= self.slide(self.convolution(halo.output), axis - 2).positions
                        continue  # padding
                    if abs(other - n) != 1:
                        raise MissingBlockError(f"row {row} of {step.tensor} lies beyond the neighbour")
                    at = row - self.rows(step.tensor, meshes, group[other])[0]
                    if back:
                        made[group[other]][at] += given[rank][row - first]
                    else:
                        made[rank][row - first] = given[group[other]][at]
                    told[n].add(other)
                    self.sent += given[rank][0].size
            if len(group) > 2:  # an inner rank has as many neighbours as the kind says
                self.check(max(map(len, told)) == (2 if step.kind == "halo-exchange" else 1), step)
        self.store[step.stored] = RankShare(step.after, {r: np.moveaxis(a, 0, place) for r, a in made.items()})

    def leave_out(self, step: Collective) -> None:
        if step.kind not in KINDS:
            super().leave_out(step)

    def convolve(self, step: Compute) -> None:
        """A convolution of a rank's part, whose places read rows that are all there."""
        op = step.op
        self.enter_for(op)
        part = op.attribute("part", "result")
        order = {"result": (0, 1, 2), "input": (2, 1, 0), "weight": (1, 2, 0)}[part]
        names = (*step.inputs, op.output)
        indices = (*op.indices, op.output_indices)
        axes = self.plan.graph.index_axes(op)
        forward = next(o for o in self.plan.graph.ops if (o.kind, o.phase, o.row) == (op.kind, "forward", op.row))
        held = [self.narrow(s, n, la) for s, n, la in zip(step.reads, step.inputs, step.layouts, strict=True)]
        cut: dict[int, list[str]] = {}
        for mesh, index in step.cuts:
            cut.setdefault(index, []).append(mesh)
        lengths, results = self.sizes.loops(op), {}
        spatial = [groups(self.sizes, names[n], indices[n])[2:] for n in order]
        for rank in self.mesh.ranks:
            local = {i: (lambda a, b: b - a)(*self.mesh.part(n, cut.get(i, ()), rank)) for i, n in lengths.items()}
            arguments: list[Any] = []
            mats: list[Any] = []
            for n, (w, t, p) in enumerate(zip(*spatial, strict=True)):
                slide, meshes = self.slide(forward, n), cut.get(p[0], [])
                number, parts = self.part(rank, meshes)
                wide = "·halo" in axes[w[0]]
                own, start = slide.places // parts, slide.positions // parts * number
                local[w[0]] = lengths[w[0]] // parts
                first, last = slide.rows(number, parts) if wide else (start, start + slide.positions // parts)
                met = reach(slide.positions, slide.taps, slide.places, slide.apart)
                if meshes:  # at least what the windows of its places read has to be there
                    met = np.zeros((own, slide.taps, last - first))
                    for place, tap in product(range(own), range(slide.taps)):
                        at = (number * own + place) * slide.stride + tap * slide.apart - slide.before - first
                        assert 0 <= at < last - first, "a window reads what is not there"
                        met[place, tap, at] = 1
                assert prod(local[i] for i in w) == last - first, "a rank has rows that no window reads"
                mats += [met.reshape([local[i] for i in (*p, *t, *w)]), [*p, *t, *w]]
            for n, (one, name) in enumerate(zip(held, step.inputs, strict=True)):
                array = one.blocks[rank]
                assert array.shape == tuple(local[i] for i in indices[n]), (name, array.shape)
                arguments += [array, [*indices[n]]]
            arguments += mats
            for index in {*op.output_indices} - {i for some in arguments[1::2] for i in some}:
                arguments += [np.ones(local[index]), [index]]
            results[rank] = np.einsum(*arguments, list(op.output_indices), optimize=True)
        self.store[step.makes] = RankShare(step.output, results)


@dataclass(frozen=True)
class HaloCase(Case):
    def start(self) -> Ranks:
        ranks = HaloRanks(self.plan, self.sizes, self.mesh, self.accounting)
        ranks.load(self.given)
        return ranks


def made(rows: str, strategy: str, values: dict[str, int], passes: str = "training") -> HaloCase:
    (found,) = layer_tables(rows, "images.md")
    forward = build(parse_layer(found))
    cut, accounting = parse_strategy(strategy), Accounting()
    one = program(forward, cut, accounting, input_gradient=True)
    planned = replace(one.plan, steps=(*(c for _, c in one.early), *one.works()))
    mesh = Mesh({name: int(value(size)) for name, size in planned.strategy.sizes.items()})
    sizes = Sizes(update_ops(training(forward)), values)
    given = outside(sizes)
    return HaloCase(planned, Sizes(planned.graph, values), mesh, accounting, given, run(sizes, given))


# name -> rows, sizes. Channels are few and differ, so that exchanged axes show.
IMAGES: dict[str, tuple[str, dict[str, int]]] = {
    "three by three": ("y = conv(x, W) ; x [B,c,X,Y], W [d,c,3,3] ; y [B,d,X,Y]", {"X": 8, "Y": 5}),
    "dilated": ("y = conv_{2}(x, W) ; x [B,c,X], W [d,c,3] ; y [B,d,X]", {"X": 8}),
    "an even kernel": ("y = conv(x, W) ; x [B,c,X], W [d,c,4] ; y [B,d,X]", {"X": 8}),
    "strided": ("y = conv(x, W) ; x [B,c,X], W [d,c,3] ; y [B,d,X/2]", {"X": 16}),
    "strided, dilated, more behind than before": (
        "y = conv_{3}(x, W) ; x [B,c,X,Y], W [d,c,3,2] ; y [B,d,X/2,Y]", {"X": 24, "Y": 3}),
    "one tap": ("y = conv(x, W) ; x [B,c,X], W [d,c,1] ; y [B,d,X]", {"X": 8}),
    "patches": ("y = conv(x, W) ; x [B,c,X,Y], W [d,c,2,2] ; y [B,d,X/2,Y/2]", {"X": 8, "Y": 4}),
    "taps with a stride beyond them": ("y = conv(x, W) ; x [B,c,X], W [d,c,2] ; y [B,d,X/4]", {"X": 16}),
    "a kernel a channel": ("y = conv(x, W) ; x [B,c,X,Y], W [c,1,5,3] ; y [B,c,X,Y]", {"X": 8, "Y": 3}),
    "two that read one": (
        "a = conv(x, W) ; x [B,c,X], W [d,c,3] ; a [B,d,X]@b = conv(x, V) ; V [d,c,3] ; b [B,d,X]@"
        "y = relu(a) + b ; - ; y [B,d,X]", {"X": 8}),
    "a block": (
        "h = conv(x, W^1, b^1) ; x [B,c,X,Y], W^1 [c,c,3,3], b^1 [c] ; h [B,c,X,Y]@"
        "n = batchnorm(h, g, b') ; g [c], b' [c] ; n [B,c,X,Y]@"
        "a = x + relu(n) ; - ; a [B,c,X,Y]@"
        "p = maxpool_{2}(a) ; - ; p [B,c,X/2,Y/2]@"
        "q = conv(p, W^2) ; W^2 [d,c,3,3] ; q [B,d,X/2,Y/2]@"
        "z = avgpool(q) ; - ; z [B,d]@"
        "y = z V ; V [d,e] ; y [B,e]", {"X": 16, "Y": 4}),
}  # fmt: skip
CHANNELS = {"B": 2, "c": 4, "d": 8, "e": 4}
CUTS = ("spatial(2)", "spatial(4)", "spatial(2) + spatial(2, mesh=outer)", "spatial(2) + data(2)",
        "zero-3(2) + spatial(4)", "zero-3(2, over=spatial) + spatial(2)", "tensor(2) + spatial(2)")  # fmt: skip
BOTH = ("spatial(2) + spatial(2, dim=2)", "spatial(2, dim=2) + spatial(4) + data(2)")
FLAT = [name for name, (rows, _) in IMAGES.items() if ",Y]" in rows]
PAIRED = ("a block",)


def case(image: str, strategy: str) -> HaloCase:
    rows, sizes = IMAGES[image]
    sizes = CHANNELS | sizes | ({"Y": 4} if "dim=2" in strategy else {})
    return made(table(*rows.split("@")), strategy, sizes)


CASES = [
    (image, strategy) for image in IMAGES for strategy in (*CUTS, *BOTH)
    if (image in PAIRED or "tensor" not in strategy) and (image in FLAT or "dim=2" not in strategy)
]  # fmt: skip


@pytest.mark.few(16)
@pytest.mark.parametrize(("image", "strategy"), CASES)
def test_every_rank_agrees_with_one_machine_and_no_exchange_is_superfluous(image: str, strategy: str) -> None:
    one = case(image, strategy)
    ranks = one.start()
    for _ in ranks.steps():
        pass
    known = [name for name in ranks.store if name in one.plan.graph.producers and name in one.reference]
    assert {*ranks.results()} <= {*known}
    assert ranks.differences(one.reference, known) == []
    assert ranks.sent == all_links(one)
    assert superfluous(one) == []
