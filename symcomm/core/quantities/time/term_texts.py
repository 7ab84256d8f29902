"""Sentences on the terms of a time: the conventions and tensors it counts, and a table of the ops."""

from __future__ import annotations

from symcomm.core.derivation import Exhibit
from symcomm.core.errors import ValuesError
from symcomm.core.form import Form, Ratio, product
from symcomm.core.graph.graph import worded
from symcomm.core.quantities.communication.call import Call
from symcomm.core.quantities.counting.flops import shown
from symcomm.core.quantities.counting.load import Load, Moved
from symcomm.core.quantities.machine import Machine
from symcomm.core.setting import Setting

LINK_TEXTS = {
    "full_duplex": ("one direction", "The busier direction of the link counts."),
    "bidirectional": ("both directions", "Add sent and received bytes."),
}
USE_TEXTS = {
    "weight": ("W", "load weights"),
    "activation": ("x", "load activations"),
    "cache": ("C", "load the cache"),
    "embedding": ("E", "load rows"),
    "saved": ("saved", "reload activations"),
    "gradient": ("dx", "load gradients"),
    "result": ("y", "write results"),
    "logits": ("z", "write logits"),
    "weight_gradient": ("dW", "accumulate gradients"),
}


def listed(words: list[str]) -> str:
    quoted = [f"`{w}`" for w in words]
    return quoted[0] if len(quoted) == 1 else ", ".join(quoted[:-1]) + f" and {quoted[-1]}"


def moved_text(use: str, phase: str, times: int, members: list[Moved]) -> str:
    names = [*dict.fromkeys(worded(m.tensor) for m in members)]
    what = ", ".join(names[:6]) + (" and more" if len(names) > 6 else "")
    when = {"fwd": "the forward pass", "bwd": "the backward pass", "again": "the recomputation"}[phase]
    done = {"result": "Written", "logits": "Written", "weight_gradient": "Written", "saved": "Read once more"}.get(
        use, "Read"
    )
    if use == "weight_gradient" and times == 2:
        return f"Read and written by {when}, which adds to it: {what}."
    return f"{done} by {when}: {what}."


def call_text(members: list[Call]) -> str:
    first = members[0]
    names = ", ".join(list(dict.fromkeys(c.shown for c in members))[:6])
    head = f"{len(members)} calls of {first.kind}" if len(members) > 1 else f"One {first.kind}"
    same = {c.what.strip() for c in members}
    of = f"{same.pop()} {names}" if len(same) == 1 else names
    why = {c.why.replace(f"`{c.tensor}`", "it") for c in members}
    said = f" {next(iter(why))[0].upper()}{next(iter(why))[1:]}." if len(why) == 1 else ""
    return f"{head}: {of}.{said}"


def sustained(text: str, machine: Machine) -> str:
    if machine.efficiency is not None:
        return f"{text}, each op with the share that the table says."
    return f"{text}, of which a part is sustained." if machine.utilisation is not None else f"{text}."


def exhibit(setting: Setting, load: Load) -> Exhibit:
    """The share of one rank: the part of each axis that a strategy cuts, and the ops it is cut in."""
    rows: dict[tuple[str, str, Form], list[str]] = {}
    for one in load.ops:
        axes = load.graph.index_axes(one.op)
        cuts: dict[int, list[str]] = {}
        for index, mesh in one.cuts:
            cuts.setdefault(index, []).append(mesh)
        for index, meshes in cuts.items():
            axis = load.graph.axes[axes[index]]
            part = Ratio(setting.written(axis.size), product(*(load.strategy.sizes[m] for m in meshes)))
            rows.setdefault(
                (f"`{axis.label}`", ", ".join(f"`{m}`" if "_" in m else m for m in meshes), part), []
            ).append(shown(load.graph, one.op))
    every = list(dict.fromkeys(shown(load.graph, one.op) for one in load.ops))
    return Exhibit(
        "What one rank computes",
        ("axis", "cut over", "part of a rank", "in the ops"),
        tuple(
            (axis, mesh, part, "all" if list(dict.fromkeys(ops)) == every else ", ".join(dict.fromkeys(ops)))
            for (axis, mesh, part), ops in rows.items()
        ),
    )


def need(found: Form | None, what: str) -> Form:
    """The form, or the error that there is nothing to time. Raises ``ValuesError``."""
    if found is None:
        raise ValuesError(f"there is nothing to time in {what}", hint="choose another phase or strategy")
    return found
