"""Module trees: what a printed or a live PyTorch module is made of, and the weights of its leaves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from fractions import Fraction
from math import prod
from typing import NoReturn

from symcomm.core.errors import Span, nearest
from symcomm.core.graph.graph import Axis, Graph, Op, Region, Role, Tensor
from symcomm.core.notation import symbol
from symcomm.core.readers.blueprint import Blueprint, PartGraph, ReaderError
from symcomm.core.records import dataclass

Setting = int | Fraction | str | tuple["Setting", ...]
Shapes = tuple[tuple[str, tuple[int, ...]], ...]
SIZE_LIMIT = 10**9
WEIGHT_LIMIT = 5000  # different ones; layers that repeat count once


@dataclass(frozen=True)
class Module:
    """A module: its name in its parent, its class, its settings and its children.

    ``count`` says how often it stands, for ``(0-11): 12 x BertLayer(``. ``shapes`` are those of its own weights where
    they are known (a live module); else they follow from its class and settings.
    """

    name: str
    kind: str
    settings: tuple[tuple[str, Setting], ...] = ()
    children: tuple[Module, ...] = ()
    count: int = 1
    span: Span | None = None
    shapes: Shapes | None = None

    def at(self, path: str) -> Module | None:
        """The module at a path such as ``encoder.layer.0.attention``; a repeated child stands for all of its kind."""
        here: Module | None = self
        for name in path.split("."):
            if here is None:
                return None
            here = next((c for c in here.children if c.name == name or (name == "0" and c.name.startswith("0-"))), None)
        return here

    def walk(self, times: int = 1, path: str = "") -> Iterator[tuple[str, Module, int]]:
        """Every module with its path and how often it occurs in all."""
        times *= self.count
        yield path, self, times
        for child in self.children:
            yield from child.walk(times, f"{path}.{child.name}" if path else child.name)


@dataclass(frozen=True)
class Leaf:
    """A layer whose weights are known: its class, or how its class name ends, and the shapes of its weights."""

    kind: str
    shapes: Callable[[Reading], Shapes]
    ending: bool = False


class Reading:
    """The settings of a leaf by position and name."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.named = {name: value for name, value in module.settings if name}
        self.placed = [value for name, value in module.settings if not name]

    def size(self, place: int, name: str, default: int | None = None) -> int:
        """A size: by name, or by position."""
        value = self.named.get(name, self.placed[place] if place < len(self.placed) else default)
        if value is None:
            self.fail(f"{self.module.kind} does not say its {name}")
        if not isinstance(value, int) or not 0 < value <= SIZE_LIMIT:
            self.fail(f"{name} of {self.module.kind} is {_told(value)}", "a size is a positive whole number")
        return value

    def sizes(self, place: int, name: str) -> tuple[int, ...]:
        """Several sizes."""
        value = self.named.get(name, self.placed[place] if place < len(self.placed) else None)
        found: list[int] = []
        for one in value if isinstance(value, tuple) else (value,):
            if not isinstance(one, int) or not 0 < one <= SIZE_LIMIT:
                self.fail(f"{name} of {self.module.kind} is {_told(one)}", "a size is a positive whole number")
            found.append(one)
        return tuple(found)

    def flag(self, name: str, default: bool = True) -> bool:
        """Whether a setting is on."""
        value = self.named.get(name, "True" if default else "False")
        if value not in ("True", "False"):
            self.fail(f"{name} of {self.module.kind} is {_told(value)}", "it is True or False")
        return value == "True"

    def fail(self, message: str, hint: str = "") -> NoReturn:
        """Raises an error at the module."""
        raise ReaderError(message, self.module.span, hint)


def _told(value: object) -> str:
    return str(value)[:40] if value is not None else "missing"


def _linear(r: Reading) -> Shapes:
    n, m = r.size(0, "in_features"), r.size(1, "out_features")
    return (("W", (n, m)), *((("b", (m,)),) if r.flag("bias") else ()))


def _turned(r: Reading) -> Shapes:  # transformers' Conv1D: a linear layer with its sizes the other way round
    m, n = r.size(0, "nf"), r.size(1, "nx")
    return (("W", (n, m)), ("b", (m,)))


def _embedding(r: Reading) -> Shapes:
    return (("W", (r.size(0, "num_embeddings"), r.size(1, "embedding_dim"))),)


def _layernorm(r: Reading, bias: bool = True) -> Shapes:
    if not r.flag("elementwise_affine"):
        return ()
    shape = r.sizes(0, "normalized_shape")
    return (("gamma", shape), *((("beta", shape),) if bias and r.flag("bias") else ()))


def _convolution(r: Reading) -> Shapes:
    n, m, taps = r.size(0, "in_channels"), r.size(1, "out_channels"), r.sizes(2, "kernel_size")
    groups = r.size(99, "groups", 1)
    if n % groups:
        r.fail(f"{groups} groups do not divide {n} channels")
    return (("W", (m, n // groups, *taps)), *((("b", (m,)),) if r.flag("bias") else ()))


def _batchnorm(r: Reading) -> Shapes:
    n = r.size(0, "num_features")
    return (("gamma", (n,)), ("beta", (n,))) if r.flag("affine") else ()


def _groupnorm(r: Reading) -> Shapes:
    n = r.size(1, "num_channels")
    return (("gamma", (n,)), ("beta", (n,))) if r.flag("affine") else ()


def _turned_convolution(r: Reading) -> Shapes:
    (_, (m, n, *taps)), *bias = _convolution(r)
    groups = r.size(99, "groups", 1)
    return (("W", (n * groups, m // groups, *taps)), *bias)


def _bilinear(r: Reading) -> Shapes:
    n, k, m = (r.size(place, name) for place, name in enumerate(("in1_features", "in2_features", "out_features")))
    return (("W", (m, n, k)), *((("b", (m,)),) if r.flag("bias") else ()))


def _recurrent(r: Reading) -> Shapes:
    n, m = r.size(0, "input_size"), r.size(1, "hidden_size")
    rows, ways = {"LSTM": 4, "GRU": 3}.get(r.module.kind, 1) * m, 1 + r.flag("bidirectional", False)
    out = r.size(99, "proj_size", m)
    found: list[tuple[str, tuple[int, ...]]] = []
    for layer in range(r.size(2, "num_layers", 1)):
        for way in range(ways):
            found += [(f"W_{layer}_{way}", (rows, ways * out if layer else n)), (f"U_{layer}_{way}", (rows, out))]
            found += [(f"{b}_{layer}_{way}", (rows,)) for b in "bc" if r.flag("bias")]
            found += [(f"P_{layer}_{way}", (out, m))] if "proj_size" in r.named else []
    return tuple(found)


def _nothing(r: Reading) -> Shapes:
    return ()


_WITHOUT = """
    Dropout Dropout1d Dropout2d Identity Flatten ReLU ReLU6 LeakyReLU ELU GELU SiLU Mish Tanh Sigmoid Softmax
    LogSoftmax Softplus Hardswish Hardsigmoid GELUActivation NewGELUActivation FastGELUActivation QuickGELUActivation
    PytorchGELUTanh GELUTanh SiLUActivation SwiGLU MaxPool1d MaxPool2d AvgPool1d AvgPool2d AdaptiveAvgPool1d
    AdaptiveAvgPool2d Upsample CrossEntropyLoss
"""

# One row a layer. An ending comes after the exact names.
LEAVES: tuple[Leaf, ...] = (
    Leaf("Linear", _linear),
    Leaf("NonDynamicallyQuantizableLinear", _linear),
    Leaf("Conv1D", _turned),
    Leaf("Embedding", _embedding),
    Leaf("LayerNorm", _layernorm),
    Leaf("Conv1d", _convolution),
    Leaf("Conv2d", _convolution),
    Leaf("Conv3d", _convolution),
    *(Leaf(f"ConvTranspose{n}d", _turned_convolution) for n in (1, 2, 3)),
    *(Leaf(f"{kind}Norm{n}d", _batchnorm) for kind in ("Batch", "Instance") for n in (1, 2, 3)),
    *(Leaf(name, _recurrent) for name in ("LSTM", "GRU", "RNN")),
    Leaf("EmbeddingBag", _embedding),
    Leaf("Bilinear", _bilinear),
    Leaf("PReLU", lambda r: (("a", (r.size(0, "num_parameters", 1),)),)),
    Leaf("GroupNorm", _groupnorm),
    *(Leaf(name, _nothing) for name in _WITHOUT.split()),
    Leaf("RMSNorm", lambda r: _layernorm(r, bias=False), ending=True),
    Leaf("RotaryEmbedding", _nothing, ending=True),
    Leaf("Activation", _nothing, ending=True),
    Leaf("Gelu", _nothing, ending=True),
    # Classes of one's own that are called and printed like these.
    Leaf("Linear", _linear, ending=True),
    Leaf("Embedding", _embedding, ending=True),
    Leaf("LayerNorm", _layernorm, ending=True),
)
CONTAINERS = frozenset({"ModuleList", "Sequential", "ModuleDict"})


def leaf(kind: str, declared: dict[str, Leaf] | None = None) -> Leaf | None:
    """The record of a leaf class."""
    if declared and kind in declared:
        return declared[kind]
    exact = next((one for one in LEAVES if not one.ending and one.kind == kind), None)
    return exact or next((one for one in LEAVES if one.ending and kind.endswith(one.kind)), None)


def weights(module: Module) -> Shapes:
    """The shapes of a module's own weights; raises ``ReaderError`` for a leaf class that is not known."""
    if module.shapes is not None:
        return module.shapes
    known = leaf(module.kind)
    if known is not None and not (known.ending and module.children):
        return known.shapes(Reading(module))
    if module.children or module.kind in CONTAINERS:
        return ()
    near = nearest(module.kind, [*dict.fromkeys(one.kind for one in LEAVES)])
    raise ReaderError(
        f"unknown layer class '{module.kind[:60]}'",
        module.span,
        (f"{near}; " if near.startswith("did") else "")
        + f"declare its weights: leaves={{'{module.kind[:60]}': [(768, 768), (768,)]}}, or [] if it has none",
    )


def count(module: Module) -> int:
    """The number of parameters of a module and all below it."""
    total = 0
    for _, one, times in module.walk():
        for _, shape in weights(one):
            size = times
            for n in shape:
                size *= n
            total += size
    return total


def declare(module: Module, leaves: dict[str, list[tuple[int, ...]]]) -> Module:
    """The tree with the weights of its own layer classes declared: shapes by class name."""
    shapes = module.shapes
    if shapes is None and module.kind in leaves:
        shapes = tuple((f"W{n}", tuple(shape)) for n, shape in enumerate(leaves[module.kind], start=1))
        for _, shape in shapes:
            if not shape or not all(isinstance(n, int) and 0 < n <= SIZE_LIMIT for n in shape):
                raise ReaderError(f"{module.kind} is declared with the shape {shape}", hint="sizes are positive")
    return replace(module, shapes=shapes, children=tuple(declare(c, leaves) for c in module.children))


def from_tree(module: Module, notes: tuple[str, ...] = ()) -> Blueprint:
    """The blueprint of any module tree of known leaves: its weights, each used once; what feeds what is not known.

    Weights that stand equally often make a part; a symbol says how often.
    """
    parts: dict[int, list[tuple[str, tuple[int, ...]]]] = {}
    number = 0
    for _, one, times in module.walk():
        for letter, shape in weights(one):
            number += 1
            if number > WEIGHT_LIMIT:
                hint = "repeated layers are printed as (0-11): 12 x Block("
                raise ReaderError(f"more than {WEIGHT_LIMIT:,} different weights", one.span, hint)
            kind = _LETTERS.get(letter, letter[0] if letter[0] in "Wb" else "W")
            parts.setdefault(times, []).append((f"{kind}^{{{number}}}", shape))
    if not parts:
        raise ReaderError(f"{module.kind} has no weights", module.span)
    repeats = sorted(times for times in parts if times > 1)
    symbols = {times: "N_layer" if len(repeats) == 1 else f"N_{n}" for n, times in enumerate(repeats, start=1)}
    made = tuple(
        _used_once(f"{symbols[t]} times" if t > 1 else "once", symbols.get(t, ""), some)
        for t, some in sorted(parts.items())
    )
    values = {symbol: times for times, symbol in symbols.items()}
    meanings = dict.fromkeys(symbols.values(), "how often these weights stand")
    said = "a module tree says which weights there are, not what feeds what; each is used once on a batch of its own"
    return Blueprint(module.kind, made, values, meanings, (*notes, said), flow=False, one_axis=("B",))


_LETTERS = {"gamma": r"\gamma", "beta": r"\beta", "weight": "W", "bias": "b"}


def _used_once(part: str, repeat: str, shapes: Iterable[tuple[str, tuple[int, ...]]]) -> PartGraph:
    """The graph that uses each weight once, on an operand made of one input, so that all share its batch axis.

    Of thousands of weights no table is written and read: their rows differ in names and numbers only.
    """
    from sympy import Integer

    batch = Axis("B", "B", symbol("B"), "batch")
    axes = {"B": batch, "1": Axis("1", "1", Integer(1))}
    tensors = {"z": Tensor("z", ("B", "1"), "input", "z", ("B", "1"), parts=(1, 1))}
    taken = Counter([*axes])
    ops: list[Op] = []

    def axis(size: int) -> str:
        label = str(size)
        taken[label] += 1
        name = label if taken[label] == 1 else f"{label}~{taken[label]}"
        axes[name] = Axis(name, label, Integer(size))
        return name

    def tensor(latex: str, role: Role, *of: str) -> str:
        name = latex.replace("{", "").replace("}", "").lstrip("\\")
        tensors[name] = Tensor(name, of, role, latex, tuple(axes[a].label for a in of), parts=(1,) * len(of))
        return name

    def product(left: str, right: str, latex: str) -> str:
        *_, columns = tensors[right].axes
        pointwise = len(tensors[right].axes) == 1
        made = tensor(latex, "activation", "B", columns)
        indices, written = (((0, 1), (1,)), (0, 1)) if pointwise else (((0, 1), (1, 2)), (0, 2))
        ops.append(Op(made, "contraction", (left, right), made, indices, written, row=len(ops) + 1, region=part))
        return made

    for latex, shape in shapes:
        number = latex.partition("^")[2]
        rows = axis(shape[0])
        operand = product("z", tensor(f"C^{number}", "constant", "1", rows), f"x^{number}")
        columns = (axis(prod(shape[1:])),) if len(shape) > 1 else ()
        product(operand, tensor(latex, "weight", rows, *columns), f"y^{number}")
    return PartGraph(part, Graph(part, axes, tensors, tuple(ops), regions=(Region(part, repeat),)))
