"""The calls of a training step for a reader: what each moves, over which axes, and how long that takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from fractions import Fraction
from functools import cached_property, lru_cache

from symcomm.core import form as forms
from symcomm.core.accounting import Accounting
from symcomm.core.dtypes import element_bytes
from symcomm.core.form import Form
from symcomm.core.graph.graph import Graph
from symcomm.core.libraries import sp
from symcomm.core.parallel.strategy import Strategy
from symcomm.core.program.program import program, unstaged
from symcomm.core.quantities.communication.call import STATISTICS, Call, joint
from symcomm.core.quantities.communication.links import levels, ways
from symcomm.core.quantities.counting.load import load
from symcomm.core.quantities.machine import Machine
from symcomm.core.records import dataclass
from symcomm.core.setting import Setting


@dataclass(frozen=True)
class StepCalls:
    """The calls of a step with their phases, in the setting of a microbatch, over the links of a machine."""

    setting: Setting
    strategy: Strategy
    machine: Machine
    calls: tuple[tuple[str, Call], ...]

    @classmethod
    def forward(cls, setting: Setting, strategy: Strategy, machine: Machine) -> StepCalls:
        """Those of a forward pass."""
        return cls(setting, strategy, machine, load(setting, strategy).of("forward").calls)

    @cached_property
    def told(self) -> tuple[tuple[str, bool, str, Form], ...]:
        """Each kind of call over each axis of the mesh, with its seconds in one repetition of a region.

        Behind its label stands whether it comes at the end of the batch. It is for telling, not for adding up.
        """
        found: dict[tuple[str, bool, str], list[Call]] = {}
        for phase, call in self.calls:
            if call.kind != "send" and call.ranks(self.strategy) != forms.num(1):
                label = f"{call.kind} of {_moved(call, phase)} over {joint(call.meshes)}"
                found.setdefault((label, phase == "end", call.region.name), []).append(call)
        return tuple((*key, forms.Total(tuple(self._seconds(calls)))) for key, calls in found.items())

    def apart(self, ones: Iterable[str]) -> tuple[str, ...]:
        """The axes of ``ones`` that are derived by themselves where they have one rank: closed forms are others there.

        A call over several links is as slow as the links of the axes with two ranks, statistics are only kept where
        several ranks put them together, and some algorithms count messages of one rank. What is copied from the host,
        or fetched ahead, is what a call gathers where there is one: there each axis decides what is done. And along one
        axis something else may be the cheapest where another one cuts nothing.
        """
        how = self.setting.accounting
        if how.off_device or how.prefetch != Accounting.prefetch:
            return tuple(ones)
        asked = self.setting.graph, unstaged(self.strategy), how, self.setting.frozen
        found = dict.fromkeys(axis for axis in ones if not _placed_alike(*asked, axis))
        alike = {(call.kind, call.meshes, call.what == STATISTICS): call for _, call in self.calls}
        for call in alike.values():
            links = [link for link, _ in levels(self.machine, self.strategy, call.meshes)]
            several = len(links) > 1 and not any(link.below for link in links)
            if call.what == STATISTICS or several or self._sends_alone(call):
                found |= dict.fromkeys(call.meshes)
        return tuple(found)

    def _sends_alone(self, call: Call) -> bool:
        """Whether the closed form of a call sends something where there is one rank."""
        if call.kind == "send":
            return False
        costs = ways(self.machine, self.strategy, self.setting.accounting, call, forms.num(1))
        sent = [form for _, cost in costs for form in (cost.rounds, cost.through(self.setting.accounting.link))]
        return any(forms.evaluate(form, {}) for form in sent if not {*forms.names(form)})

    def _seconds(self, calls: Iterable[Call]) -> Iterator[Form]:
        """The time of each call by itself; calls that are alike are timed together."""
        alike: dict[tuple[str, tuple[str, ...], str], list[Call]] = {}
        for call in calls:
            alike.setdefault((call.kind, call.meshes, call.dtype), []).append(call)
        how = self.setting.accounting
        for (_, _, dtype), mine in alike.items():
            elements = forms.Total(tuple(self.setting.written(call.elements) for call in mine))
            for link, cost in ways(self.machine, self.strategy, how, mine[0], mine[0].ranks(self.strategy)):
                yield forms.Ratio(forms.product(element_bytes(dtype), cost.through(how.link), elements), link.bandwidth)
                if link.latency is not None:
                    yield forms.product(Call.number(mine), cost.rounds, link.latency)


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


@lru_cache(maxsize=256)  # asked for each pipeline and each way to fill nodes
def _placed_alike(
    graph: Graph, strategy: Strategy, accounting: Accounting, frozen: frozenset[str], axis: str
) -> bool:
    """Whether the collectives along the other axes of the mesh are the same without an axis."""
    size = strategy.sizes.get(axis)
    if not isinstance(size, forms.Sym) or len(strategy.mesh) < 2:  # it has a number, or is the only one
        return True
    put = {forms.value(size): 1}

    def along(cut: Strategy) -> Counter[tuple[object, ...]]:
        plan = program(graph, cut, accounting, frozen).plan
        calls = ((c, tuple(mesh for mesh in c.meshes if mesh != axis)) for c in plan.collectives)
        return Counter((c.kind, c.tensor, c.phase, meshes, sp.expand(c.elements.xreplace(put)))
                       for c, meshes in calls if meshes)  # fmt: skip

    return along(strategy) == along(strategy.at({size.name: Fraction(1)}))
