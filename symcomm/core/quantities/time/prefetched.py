"""The time of a step whose layers fetch their weights first, or the weights of the next layer while one runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from functools import partial

from symcomm.core.derivation import Numbers
from symcomm.core.errors import AccountingError
from symcomm.core.form import Form, Largest, Total, combined, num, product
from symcomm.core.libraries import sp
from symcomm.core.program.instructions import HOST, READ
from symcomm.core.quantities.communication.call import Call
from symcomm.core.quantities.counting.load import Load
from symcomm.core.quantities.time.terms import SECOND, Terms, TimeWriter
from symcomm.core.quantities.witnesses import number
from symcomm.core.records import replace
from symcomm.core.setting import Setting


def fetches(call: Call) -> bool:
    """Whether a call brings weights of a layer to a rank before a pass reads them."""
    over_links = call.kind == "all-gather" or call.meshes in (HOST, READ)
    return bool(call.what == "weight " and over_links and not call.once and call.region.times)


def fetching(setting: Setting, every: Load) -> bool:
    """Whether a step is timed fetch by fetch; raises ``SymcommError`` where it would be and cannot."""
    if setting.accounting.time != "overlap" or not any(fetches(call) for _, call in every.calls):
        return False
    how = setting.choice("prefetch")
    if how == "as_read":
        return False
    if how == "two_ahead":
        raise AccountingError("a step that fetches two layers ahead is not timed", hint="prefetch: one_ahead")
    if len(every.regions) > 1 or every.strategy.pipeline is not None:
        what = f"{how} is timed for layers that are alike on one rank, and {setting.graph.name} has more"
        raise AccountingError(what, hint="take its layer, part('layer'), without a pipeline; or prefetch: as_read")
    what = "" if setting.told else "a search"  # of many steps
    if what := what or setting.accounting.gradient_sync.replace("end_of_batch", ""):
        raise AccountingError(f"{what} is not timed under {how}", hint="prefetch: as_read")
    return True


def _together(calls: Iterable[tuple[str, Call]]) -> Iterator[tuple[str, Call]]:
    """The fetches of a pass, those over the same links as one call: all weights of a layer, as FSDP wraps them."""
    alike: dict[tuple[str, tuple[str, ...], str], list[tuple[str, Call]]] = {}
    for phase, call in calls:
        if fetches(call):
            alike.setdefault((call.kind, call.meshes, call.dtype), []).append((phase, call))
    for (phase, first), *others in alike.values():
        every = [first, *(call for _, call in others)]
        parts = tuple(part for call in every for part in call.parts)
        yield phase, replace(first, elements=sp.Add(*(call.elements for call in every)), parts=parts)


def prefetched(writer: TimeWriter, every: Load, layers: Form, m: Form) -> Form:
    """The time of all microbatches: a layer fetches its weights and then runs, or runs beside the next one's fetch.

    Behind the last layer's forward pass comes its backward pass, behind the first one's the next microbatch. Nothing
    hides the first fetch, and nothing is fetched beside the last backward pass.
    """
    (region,), none = every.regions, num(0)
    fetched: dict[str, Form] = {}
    other: dict[str, Terms] = {}
    for letter, phase in (("F", "forward"), ("D", "backward")):
        part = every.region(region.name).of(phase)
        rest = replace(part, calls=tuple(pair for pair in part.calls if not fetches(pair[1])))
        mine = replace(part, ops=(), calls=tuple(_together(part.calls)))
        fetched[letter] = writer.terms(mine, f"_fetch,{letter}").network or none
        other[letter] = writer.terms(rest, f"_{letter}")

    def beside(name: str, letter: str, fetch: Form) -> Form:
        """A pass of a layer beside a fetch."""
        sent = [one for one in (other[letter].network, fetch) if one is not None and one != none]
        units = [*other[letter].local, *([combined(Total, sent)] if sent else [])]
        text = "A layer runs beside the fetch of the next." if fetch != none else "A layer runs."
        return writer.work.combine(name, combined(Largest, units), SECOND, "prefetch", text)

    if writer.setting.accounting.prefetch == "none_ahead":
        each = [*fetched.values(), beside("t_F", "F", none), beside("t_D", "D", none)]
        parts, text = [product(m, layers, one) for one in each], "Each layer first fetches its weights, in both passes."
        return writer.work.combine("t_passes", Total(tuple(parts)), SECOND, "prefetch", text)
    others, less = product(m, Total((layers, num(-1)))), Total((m, num(-1)))
    slots = [("F", "F", fetched["F"], others), ("turn", "F", fetched["D"], m), ("D", "D", fetched["D"], others),
             ("again", "D", fetched["F"], less), ("last", "D", none, num(1))]  # fmt: skip
    parts = [fetched["F"], *(product(n, beside(f"t_{name}", at, fetch)) for name, at, fetch, n in slots if n != none)]
    return writer.work.define("t_passes", Total(tuple(parts)), SECOND, "prefetch",
                              "The first fetch; then layers run, each beside the fetch of what runs behind it.",
                              witness=partial(_followed, other, fetched, layers, m))  # fmt: skip


def _followed(
    other: dict[str, Terms], fetched: dict[str, Form], layers: Form, m: Form, numbers: Numbers
) -> Fraction:  # fmt: skip
    """When the last pass ends: links fetch for one pass while the one before it runs, and send what that makes."""
    count, batches = (int(number(one, numbers)) for one in (layers, m))
    order = (["F"] * count + ["D"] * count) * batches
    fetch = {letter: number(form, numbers) for letter, form in fetched.items()}
    start = fetch["F"]
    for letter, behind in zip(order, [*order[1:], ""], strict=True):
        ready = [start + number(form, numbers) for form in other[letter].local]
        sent = other[letter].network
        links = start + (number(sent, numbers) if sent is not None else 0) + fetch.get(behind, Fraction(0))
        start = max([*ready, links])
    return start
