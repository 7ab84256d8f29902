"""Parameters of a model, elements of a tensor, members of a list that dots cut short: how many there are."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import Annotated, Literal

from symcomm.core.derivation import Derivation, Exhibit, Numbers
from symcomm.core.dtypes import element_bytes, grouped, said_bytes
from symcomm.core.errors import ValuesError
from symcomm.core.form import Ceiling, Form, Num, Ratio, Sym, Total, num, product, total
from symcomm.core.graph.experts import Routing, chosen_experts
from symcomm.core.graph.graph import Graph, Region, Tensor
from symcomm.core.libraries import Expr
from symcomm.core.notation import symbol
from symcomm.core.quantities.declared import Extent, Meaning, Reads
from symcomm.core.quantities.options import Dtype, NoModel, Whole
from symcomm.core.quantities.witnesses import elements, laid_out, passes
from symcomm.core.quantities.witnesses import size as length
from symcomm.core.setting import Setting, StepWriter, mark, times
from symcomm.core.text.table import Table
from symcomm.core.units import BYTE, ELEMENT, PARAMETER, Unit


def derive_parameters(
    setting: Setting,
    of: Annotated[
        Literal["all", "active"], Meaning("all parameters, or only the ones that one token uses: a few experts")
    ] = "all",
) -> Annotated[Derivation, Extent("model all")]:
    """The number of parameters.

    Those of all layers and of what stands before and behind them; a tied weight counts once. Of the experts that a
    router chooses from, the ``active`` ones are those that a token goes to.
    """
    graph, work = setting.graph, StepWriter(setting)
    experts = chosen_experts(graph) if of == "active" else {}

    alone = len(setting.regions) == 1
    known: set[str] = set()
    parts: list[Form] = []
    every: list[tuple[Form, list[Expr], Fraction]] = []
    for region, part in zip(setting.regions, setting.parts, strict=True):
        weights = [w for w in part.graph.weights if w.name not in known
                   and (_of_layer(graph, region, w) or setting.choice("parameters") == "every_weight")]  # fmt: skip
        known |= {w.name for w in weights}
        if not weights and not alone:
            continue
        sizes = [_sizes(graph, experts, w.name, w.axes) for w in weights]
        names = ", ".join(f"`{w.name}`" for w in weights)
        one = total(*map(setting.sizes, sizes))
        text = f"The weights {names} have as many entries as the product of their sizes."
        if len(weights) == 1:
            text = f"The weight {names} has as many entries as the product of its sizes."
        text = text if weights else "The table has no weights."
        few = ", ".join(f"`{w.name}`" for w in weights if w.name in experts)
        text += f" A token uses only the part of {few} in its experts." if few else ""
        name = f"P_{mark(region)}" if not alone else "P_layer" if region.times else "P"
        one_by_one = partial(laid_out, [(num(1), lengths, Fraction(1)) for lengths in sizes])
        layer = work.define(name, one, PARAMETER, "count the weights", text, witness=one_by_one)
        parts.append(times(region, layer))
        every += [(times(region, num(1)), lengths, Fraction(1)) for lengths in sizes]
    whole = partial(laid_out, every)
    if not alone:
        listed = ", ".join(region.name for region in setting.regions)
        work.define("P", Total(tuple(parts)), PARAMETER, "add the parts", f"Together: {listed}.", witness=whole)
    elif setting.regions[0].times:
        work.define("P", parts[0], PARAMETER, "repeat", "All layers are alike.", witness=whole)
    return setting.derivation("Active parameters" if of == "active" else "Parameters", work.steps)


def _of_layer(graph: Graph, region: Region, weight: Tensor) -> bool:
    """Whether a weight is a matrix of a layer: something is summed over it, and it stands in what is repeated."""
    stacked = bool(region.times) or not any(r.times for r in graph.regions)
    return (
        stacked
        and len(weight.axes) > 1
        and any(op.summed and not op.attribute("lookup") for op in graph.consumers.get(weight.name, ()))
    )


def _sizes(graph: Graph, experts: Mapping[str, Routing], name: str, axes: Sequence[str]) -> list[Expr]:
    """The sizes of a weight; of the experts those that a token goes to."""
    sizes = [graph.axes[axis].size for axis in axes]
    if name in experts:
        sizes[experts[name].place] = experts[name].chosen
    return sizes


def derive_tensor_size(
    setting: Setting,
    tensor: Annotated[str, Meaning("the name of the tensor")],
    dtype: Dtype | None = None,
    last_group: Annotated[
        Literal["full", "short"],
        Meaning("the last group of each row of a quantised tensor: full, or short with numbers of its own beside it"),
    ] = "full",
) -> Derivation:
    """The bytes of one tensor.

    The bytes of a tensor of one layer, all members of a family together. The groups of a quantised tensor run along its
    last axis.
    """
    setting = setting.in_format(dtype)
    if dtype and "=" not in dtype:  # also for a mask, which has a format of its own
        setting = setting.in_format(f"{tensor}={dtype}")
    graph, work = setting.graph, StepWriter(setting)
    found = graph.find(tensor)
    family = ", for all members of the family" if found.shape and len(found.axes) > len(found.shape) else ""
    sizes = setting.sizes(graph.sizes(found.name))
    n = work.define("n", sizes, ELEMENT, "count the elements", f"The product of its sizes{family}.",
                    witness=lambda numbers: elements(graph, found, numbers))  # fmt: skip
    size = element_bytes(found.dtype or setting.dtype)
    parts = grouped(found.dtype or setting.dtype)
    if last_group == "short":
        if parts is None:
            raise ValuesError(f"{found.dtype or setting.dtype} has no groups", hint="int4(128 fp16), or nf4")
        element, many, _ = parts
        alone = element_bytes(element)
        *rows, row = graph.sizes(found.name)
        groups = product(setting.sizes(rows), Ceiling(Ratio(setting.written(row), num(many))))

        def laid_out(numbers: Numbers) -> Fraction:
            """The groups of all rows, each begun anew."""
            return passes(length(one, numbers) for one in rows) * len(range(0, int(length(row, numbers)), many))

        text = f"Groups of {many} in each row, the last one short."
        g = work.define("n_g", groups, ELEMENT, "count the groups", text, witness=laid_out)
        beside = Num((size.number - alone.number) * many, size.unit)
        work.define("V", Total((product(n, alone), product(g, beside))), BYTE, "bytes",
                    f"An element takes {said_bytes(alone)}, and each group {said_bytes(beside)} beside it.",
                    witness=lambda numbers: elements(graph, found, numbers) * alone.number
                    + beside.number * laid_out(numbers))  # fmt: skip
        return setting.derivation(f"Size of {found.name}", work.steps)
    work.define("V", product(n, size), BYTE, "bytes", f"An element takes {said_bytes(size)}.",
                witness=lambda numbers: elements(graph, found, numbers) * size.number)  # fmt: skip
    return setting.derivation(f"Size of {found.name}", work.steps)


COLUMNS = ("first", "second", "last")


def derive_listing(
    setting: NoModel,
    member: Annotated[str, Reads("formula"), Meaning("a member with its index: `(x_i, y_i)`")],
    index: Annotated[str, Meaning("the index that runs")] = "i",
    last: Annotated[Whole, Meaning("its last value, or a symbol")] = "N",
) -> Derivation:
    """The members of a list such as (x_1, y_1), ..., (x_N, y_N): every index goes up by one from each to the next.

    The answer is how many there are. A printed list is set beside it as a table of its first, second and last member.
    """
    plain = _plain(member)
    places = re.findall(rf"_{re.escape(index)}(?![A-Za-z0-9])", plain)
    if not re.fullmatch(r"[A-Za-z]", index) or not places:
        raise ValuesError(f"the member '{member[:60]}' has no index '{index[:20]}'", hint="such as member: (x_i, y_i)")
    end = Sym(last) if isinstance(last, str) else num(last)
    if isinstance(last, str):
        symbol(last)  # refuses what cannot be a name
    work = StepWriter(setting, end)
    work.define("n", Total((end, num(-1), num(1))), Unit.parse("element"), "from the first to the last",
                f"The index {index} runs from 1 to the last one, both counted.",
                witness=lambda n: len(range(1, 1 + int(n[last] if isinstance(last, str) else last))))  # fmt: skip
    at = rf"_{re.escape(index)}(?![A-Za-z0-9])"
    members = tuple(re.sub(at, f"_{value}", plain) for value in ("1", "2", str(last)))
    shown = tuple(_quoted(one) for one in members)
    table = Exhibit("Members of the list", COLUMNS, (shown,), beside=partial(_beside, members))
    return setting.derivation("Members of a list", work.steps, [table])


def _plain(text: str) -> str:
    """A member without LaTeX's braces and spaces."""
    return re.sub(r"[{}$\\\s]", "", text)


def _quoted(member: str) -> str:
    return re.sub(r"[A-Za-z]\w*", lambda match: f"`{match[0]}`", member).replace(",", ", ")


def _beside(members: tuple[str, ...], printed: Table) -> Exhibit:
    """The printed members that are others."""
    rows: list[tuple[str, str, str]] = []
    agreeing = 0
    for row in printed.rows:
        for cell, derived in zip(row, members, strict=False):
            told = _plain(cell.text)
            if told == derived:
                agreeing += 1
                continue
            pairs = zip(re.findall(r"[A-Za-z]\w*", told), re.findall(r"[A-Za-z]\w*", derived), strict=False)
            wrong = [f"`{b}` stands here, not `{a}`" for a, b in pairs if a != b]
            rows.append((_quoted(told), _quoted(derived), "every index goes up by one: " + ", ".join(wrong)))
    title = f"Printed and derived: {agreeing} members agree" + (", and these do not" if rows else "")
    return Exhibit(title, ("printed", "derived", "why"), tuple(rows))
