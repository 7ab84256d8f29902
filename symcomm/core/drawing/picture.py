"""Draws the op graph: as text for a terminal, as DOT for Graphviz, as SVG for a page.

All three draw the same picture: a box (or a line) an op, an edge a tensor that flows, a frame a region with how often
it stands. Weights stand with the op that reads them; drawn as nodes they would hide what matters, as would constants.
"""

from __future__ import annotations

from symcomm.core.graph.graph import Graph, Op, Region, bare
from symcomm.core.notation import GREEK_NAMES
from symcomm.core.records import dataclass

# What an op is to a reader: the name of the group, and its colours (line, fill); chosen to differ for the colour-blind.
GROUPS: dict[str, tuple[str, str]] = {
    "input": ("#52606d", "#ffffff"),
    "weighted product": ("#1f5fa8", "#e8f0fa"),
    "product": ("#7a4d9e", "#f3ecf8"),
    "view": ("#8a94a0", "#f5f6f8"),
    "sum": ("#8a6d1c", "#faf5e3"),
    "function": ("#b3541e", "#fdf0e7"),
}


@dataclass(frozen=True)
class Box:
    """A node of the picture: a tensor that an op makes, or one that comes from outside."""

    key: str
    name: str
    what: str
    shape: str
    group: str
    weights: tuple[str, ...] = ()
    next: str = ""  # what the tensor becomes when the graph is repeated
    region: str = ""


@dataclass(frozen=True)
class Drawing:
    """Boxes in an order in which they can run, and edges as pairs of their keys with the tensor that flows.

    ``regions`` are those that get a frame: all, or none where there is one that stands once.
    """

    title: str
    boxes: tuple[Box, ...]
    edges: tuple[tuple[str, str, str], ...]
    regions: tuple[Region, ...] = ()

    @property
    def frames(self) -> tuple[tuple[Region | None, Drawing], ...]:
        """The picture of each region by itself; of the whole where no region has a frame."""
        return tuple((r, self.inside(r.name)) for r in self.regions) or ((None, self),)

    def inside(self, region: str) -> Drawing:
        """The picture of one region, without the edges that leave it."""
        boxes = tuple(box for box in self.boxes if box.region == region)
        keys = {box.key for box in boxes}
        return Drawing(region, boxes, tuple(e for e in self.edges if e[0] in keys and e[1] in keys))

    @property
    def between(self) -> tuple[tuple[Box, Box, str], ...]:
        """The edges from one region to another one."""
        at = {box.key: box for box in self.boxes}
        pairs = ((at[a], at[b], name) for a, b, name in self.edges)
        return tuple((a, b, name) for a, b, name in pairs if a.region != b.region)


def shown_name(name: str) -> str:
    """The name of a tensor for a reader: without its region's mark; what is computed on the way to it has its name.

    >>> shown_name("score_i·7"), shown_name("head:o"), shown_name("gamma^1")
    ('score_i', 'o', 'γ^1')
    """
    shown = bare(name).partition("·")[0]
    letters = shown.rstrip("'").partition("_")[0].partition("^")[0]
    return GREEK_NAMES.get(letters, letters) + shown.removeprefix(letters)


def shape_text(graph: Graph, name: str) -> str:
    """The shape of a tensor as its author wrote it: ``B × L × 4D``; ``scalar`` for a number."""
    tensor = graph.tensors[name]
    labels = tuple(graph.axes[axis].label for axis in tensor.axes)
    # A family has its axis before the shape in the table; where an axis was split, the table's own size is shown.
    family = len(tensor.shape) < len(labels) and labels[len(labels) - len(tensor.shape) :] == tensor.shape
    return " × ".join(labels if family else tensor.shape or labels) or "scalar"


def kind_text(graph: Graph, op: Op) -> str:
    """The work of an op, in a word or two."""
    if op.attribute("view"):
        return "view"
    if op.attribute("does"):
        return str(op.attribute("does"))
    if op.kind != "contraction":
        return op.kind.replace("_", " ")
    if op.attribute("lookup"):
        return "lookup" if any(graph.tensors[n].role == "weight" for n in op.inputs) else "routing"
    if any(graph.tensors[n].dtype == "bool" and n not in graph.producers for n in op.inputs):
        return "dropout"
    if not op.summed:
        return "scale" if len(op.inputs) == 1 else "elementwise product"
    return "sum" if len(op.inputs) == 1 else "matrix product"


def group_of(graph: Graph, op: Op) -> str:
    """The group of an op, which gives its box a colour."""
    kind = kind_text(graph, op)
    if kind in ("view", "lookup", "routing") or op.attribute("does"):
        return "view"
    if kind == "sum" or op.kind == "add":
        return "sum"
    if op.kind in ("contraction", "convolution"):
        return "weighted product" if any(graph.tensors[n].role == "weight" for n in op.inputs) else "product"
    return "function"


def picture(graph: Graph) -> Drawing:
    """The boxes and arrows of a graph's forward pass."""
    boxes: list[Box] = []
    edges: list[tuple[str, str, str]] = []
    home: dict[tuple[str, str], str] = {}  # where in a region a tensor comes from
    handed = {made: into for region in graph.regions if region.times for made, into in region.carried}
    place = {region.name: n for n, region in enumerate(graph.regions)}
    for op in sorted((op for op in graph.ops if op.phase == "forward"), key=lambda op: place.get(op.region, 0)):
        weights: list[str] = []
        ids = all(graph.tensors[n].role in ("constant", "weight") and n not in graph.producers for n in op.inputs)
        for name in dict.fromkeys(op.inputs):
            tensor, shape, maker = graph.tensors[name], shape_text(graph, name), graph.producers.get(name)
            where = (op.region, name)
            if tensor.role == "weight":
                weights.append(f"{shown_name(name)}: {shape}")
            elif where not in home and (maker is not None or tensor.role == "input" or ids):
                home[where] = f"in {op.region} {name}"
                what = f"from {maker.region}" if maker else "indices" if op.kind == "onehot" else tensor.role
                boxes.append(Box(home[where], shown_name(name), what, shape, "input", region=op.region))
                if maker is not None:
                    edges.append((home[maker.region, name], home[where], name))
            if where in home:
                edges.append((home[where], f"op {op.output}", name))
        home[op.region, op.output] = f"op {op.output}"
        boxes.append(Box(
            f"op {op.output}", shown_name(op.output), kind_text(graph, op), shape_text(graph, op.output),
            group_of(graph, op), tuple(weights), shown_name(handed.get(op.output, "")), op.region,
        ))  # fmt: skip
    framed = graph.regions if len(graph.regions) > 1 or graph.repeat else ()
    return Drawing(graph.name, tuple(boxes), tuple(edges), framed)


def graph_title(region: Region) -> str:
    return f"{region.name} × {region.times}" if region.times else region.name


def small_print(box: Box) -> list[tuple[str, str]]:
    """The lines below the name of a box, each with its style."""
    lines = [("what", box.what), ("shape", box.shape), *(("weight", w) for w in box.weights)]
    return [*lines, ("what", f"→ {box.next} of the next {box.region}")] if box.next else lines
