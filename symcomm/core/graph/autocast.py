"""Mixed precision as a rewrite of the graph: which op runs in which format under PyTorch's autocast, and the copies.

Parameters and inputs are in fp32. An op of the low list takes low copies of its operands, one of the wide list fp32
copies; a copy is an op of its own, so that what backward keeps of it, and its gradient, follow as for any other op. The
copy of a weight is kept for all that read it, that of an activation is made anew for each reader, as PyTorch does.

Source: PyTorch 2.13, aten/src/ATen/autocast_mode.h, and the lists of torch.amp in its documentation.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Literal

from symcomm.core.dtypes import FORMATS, Autocast
from symcomm.core.errors import ValuesError
from symcomm.core.graph.graph import Graph, Op
from symcomm.core.records import dataclass

Policy = Literal["low", "wide", "widest", "first"]
WIDE = "fp32"


@dataclass(frozen=True)
class AutocastRule:
    """The policies of an op: ``low``, ``wide`` (fp32), ``widest`` of its operands, or as its ``first`` operand."""

    op: str
    cuda: Policy
    cpu: Policy


_RULES = (
    AutocastRule("product", "low", "low"),  # matmul, linear, einsum, attention's products
    AutocastRule("convolution", "low", "low"),
    AutocastRule("elementwise", "widest", "widest"),
    AutocastRule("add", "widest", "widest"),
    AutocastRule("sum", "wide", "first"),
    AutocastRule("mean", "first", "first"),
    AutocastRule("softmax", "wide", "first"),
    AutocastRule("sinksoftmax", "wide", "first"),
    AutocastRule("layernorm", "wide", "first"),
    AutocastRule("rmsnorm", "wide", "first"),
    AutocastRule("exp", "wide", "first"),
    AutocastRule("crossentropy", "wide", "wide"),
    AutocastRule("squared_relu", "wide", "first"),  # a power
)
RULES: dict[str, AutocastRule] = {rule.op: rule for rule in _RULES}


def policy(op: str, device: str) -> Policy:
    """The policy of an op; those of no list run in the format of their first operand.

    >>> policy("softmax", "cuda"), policy("softmax", "cpu"), policy("relu", "cuda")
    ('wide', 'first', 'first')
    """
    rule = RULES.get(op)
    return "first" if rule is None else rule.cpu if device == "cpu" else rule.cuda


def result_format(op: str, operands: tuple[str, ...], said: Autocast) -> str:
    """The format of an op's result, from those of its operands.

    >>> result_format("product", ("fp32", "bf16"), Autocast("bf16"))
    'bf16'
    >>> result_format("add", ("fp32", "bf16"), Autocast("bf16"))
    'fp32'
    """
    chosen = policy(op, said.device)
    if chosen in ("low", "wide"):
        return said.low if chosen == "low" else WIDE
    return operands[0] if chosen == "first" else max(operands, key=lambda dtype: FORMATS[dtype].stored_bits)


def _called(op: Op, real: int) -> str:
    """The name by which the rules know an op; ``real`` is how many of its operands are numbers."""
    if op.kind != "contraction":
        return op.kind
    if op.attribute("view") or op.attribute("lookup") or real < 1:
        return "chosen"
    if real == 1:
        several = len(op.inputs) > 1  # besides a mask
        return "chosen" if several or not op.summed else "sum" if op.attribute("scale", 1) == 1 else "mean"
    return "product" if op.summed else "elementwise"


@lru_cache(maxsize=64)
def autocast(graph: Graph, said: Autocast) -> Graph:
    """The graph as it runs under autocast: every tensor has its format, and copies are ops.

    What a repeated layer hands on to the next one has the format that it is made in. A weight that is multiplied or
    added element by element (the bias of a linear map, the gain and shift of a norm) belongs to the op before it, as in
    the library's modules. Raises ``ValuesError`` for a function that is written out in steps, each in its own format.
    """
    if any(op.attribute("cast") for op in graph.ops):
        raise ValuesError("the model runs under autocast already", hint="say autocast once")
    carried: dict[str, str] = {}
    for _ in range(3):  # until what is handed on has the format it comes in
        made = _Rewrite(graph, said, dict(carried))
        made.run()
        stacked = [region for region in graph.regions if region.times]
        again = {name: made.formats[out] for region in stacked for out, name in region.carried}
        if again == carried:
            break
        carried = again
    return made.graph()


def copies_of_weights(graph: Graph) -> list[Op]:
    """The ops that copy a weight."""
    return [op for op in graph.ops if op.attribute("cast") and graph.tensors[op.inputs[0]].role == "weight"]


class _Rewrite:
    def __init__(self, graph: Graph, said: Autocast, formats: dict[str, str]) -> None:
        self.old, self.said, self.formats = graph, said, formats
        self.tensors = dict(graph.tensors)
        self.ops: list[Op] = []
        self.copies: dict[tuple[str, str, str], str] = {}

    def format_of(self, name: str) -> str | None:
        """The format of a tensor of numbers; None for masks, ids and one-hot matrices."""
        tensor = self.old.tensors[name]
        if tensor.role == "constant" or tensor.virtual or tensor.dtype == "bool" or str(tensor.dtype).startswith("int"):
            return None
        return self.formats.setdefault(name, WIDE)

    def run(self) -> None:
        for op in self.old.ops:
            if op.attribute("cast"):
                continue
            mine = [(n, name) for n, name in enumerate(op.inputs) if self.format_of(name) is not None]
            if self.old.tensors[op.output].virtual or not mine:
                self.ops.append(op)
                continue
            self.add(op, mine)

    def add(self, op: Op, mine: list[tuple[int, str]]) -> None:
        called = _called(op, len(mine))
        if op.kind in _WRITTEN_OUT and self.said.device != "cpu":
            raise ValuesError(f"{op.kind} is written out in steps, which autocast runs in several formats",
                              hint="gelu, silu and relu are one op each")  # fmt: skip
        inputs = list(op.inputs)
        if called in ("add", "elementwise"):  # weights go with what they are added to or multiplied by
            others = [pair for pair in mine if self.old.tensors[pair[1]].role != "weight"]
            mine = others or mine
        own = tuple(self.formats[name] for _, name in mine)
        made = result_format(called, own, self.said)
        if policy(called, self.said.device) in ("low", "wide"):
            for n, name in mine:
                inputs[n] = self.copy(op, name, made)
        self.formats[op.output] = made
        self.ops.append(replace(op, inputs=tuple(inputs)))

    def copy(self, op: Op, name: str, dtype: str) -> str:
        """A tensor in another format: itself where it is in that one."""
        if self.formats[name] == dtype:
            return name
        weight = self.old.tensors[name].role == "weight"
        key = name, dtype, op.region if weight else f"{op.region} {op.output}"
        if key not in self.copies:
            count = sum(of == name for of, _, _ in self.copies)
            made = f"cast({name})" + (f"·{count + 1}" if count else "")
            self.copies[key] = made
            self.tensors[made] = replace(
                self.old.tensors[name], name=made, role="activation", latex="", source=op.source
            )
            self.formats[made] = dtype
            indices = tuple(range(len(self.old.tensors[name].axes)))
            self.ops.append(Op(made, "contraction", (name,), made, (indices,), indices, (("cast", True),), "forward",
                               op.row, op.source, op.region))  # fmt: skip
        return self.copies[key]

    def graph(self) -> Graph:
        tensors = {n: replace(t, dtype=self.formats.get(n, t.dtype)) for n, t in self.tensors.items()}
        return replace(self.old, tensors=tensors, ops=tuple(self.ops))


_WRITTEN_OUT = ("gelu_new", "gelu_fast", "gelu_python", "quick_gelu")
