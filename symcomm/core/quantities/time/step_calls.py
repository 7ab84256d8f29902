"""The calls of a training step for a reader: what each moves, over which axes, and how long that takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from symcomm.core import form as forms
from symcomm.core.dtypes import element_bytes
from symcomm.core.form import Form
from symcomm.core.quantities.communication.call import STATISTICS, Call, joint
from symcomm.core.quantities.communication.links import levels
from symcomm.core.quantities.time.step_time import StepTime


def calls_told(made: StepTime) -> Iterator[tuple[str, bool, str, Form]]:
    """Each kind of call over each axis of the mesh, with its seconds in one repetition of a region.

    It is for telling, not for adding up.
    """
    found: dict[tuple[str, bool, str], list[Call]] = {}
    for phase, call in made.load.calls:
        if _ranks(made, call) is not None:
            label = f"{call.kind} of {_moved(call, phase)} over {joint(call.meshes)}"
            found.setdefault((label, phase == "end", call.region.name), []).append(call)
    for key, calls in found.items():
        yield *key, forms.Total(tuple(_seconds(made, calls)))


def calls_apart(made: StepTime) -> tuple[str, ...]:
    """The axes whose closed forms do not hold for one rank.

    A call over several links is as slow as the links of the axes with two ranks, and statistics are only kept where
    several ranks put them together.
    """
    found: dict[str, None] = {}
    for _, call in made.load.calls:
        links = [link for link, _ in levels(made.writer.machine, made.strategy, call.meshes)]
        if call.what == STATISTICS or (len(links) > 1 and not any(link.below for link in links)):
            found |= dict.fromkeys(call.meshes)
    return tuple(found)


def _ranks(made: StepTime, call: Call) -> Form | None:
    """How many ranks a call has; None for one rank, and for messages between stages."""
    k = None if call.kind == "send" else call.ranks(made.strategy)
    return None if k == forms.num(1) else k


def _moved(call: Call, phase: str) -> str:
    what = call.what.strip()
    if what.startswith("updated"):
        return "updated weights"
    if what == "weight":
        return "weights"
    if what.startswith("bytes of the states"):
        return "optimizer states"
    if what == "gradient of":
        return "weight gradients" if phase == "end" else "activation gradients"
    return "activations"


def _seconds(made: StepTime, calls: Iterable[Call]) -> Iterator[Form]:
    """The time of each call by itself; calls that are alike are timed together."""
    alike: dict[tuple[str, tuple[str, ...], str], list[Call]] = {}
    for call in calls:
        alike.setdefault((call.kind, call.meshes, call.dtype), []).append(call)
    setting = made.work.setting
    for (_, _, dtype), mine in alike.items():
        k = _ranks(made, mine[0])
        assert k is not None
        elements = forms.Total(tuple(setting.written(call.elements) for call in mine))
        for link, cost in made.writer.over(mine[0], k):
            yield forms.Ratio(
                forms.product(element_bytes(dtype), cost.through(setting.accounting.link), elements), link.bandwidth
            )
            if link.latency is not None:
                yield forms.product(Call.number(mine), cost.rounds, link.latency)
