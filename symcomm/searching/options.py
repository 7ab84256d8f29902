"""The options of a search, checked, and the structures that they make."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from symcomm.core import form as forms
from symcomm.core.accounting import Accounting
from symcomm.core.derivation import exact
from symcomm.core.errors import AccountingError, StrategyError, ValuesError, nearest
from symcomm.core.graph.axis_roles import batch_axes
from symcomm.core.graph.graph import Graph
from symcomm.core.model import Model
from symcomm.core.parallel.strategy import Strategy, resolve
from symcomm.core.program import pipeline
from symcomm.core.program.closed_forms import timed_alike
from symcomm.core.program.schedules import USUAL_SCHEDULE
from symcomm.core.units import Quantity
from symcomm.searching.ranges import divisors, whole_numbers
from symcomm.searching.result import SECOND
from symcomm.searching.structure import BUCKETS, CONVENTION, MICROBATCHES, Draft
from symcomm.searching.template import PIPELINE, TemplatePiece, pieces, shared_axes

MOST_STRUCTURES = 500
MOST_TOP = 1000
LARGEST_MESH = 10**7
# What is searched where nobody says: each way to divide the states, with and without sequence parallelism.
USUAL = tuple(
    f"{data} + {tensor} + pipeline"
    for data in ("data", "zero-1", "fully-sharded")
    for tensor in ("tensor", "tensor + sequence")
)
SERVED = ("data + tensor", "data + tensor + context")


def serving_options(
    model: Model, trains: Mapping[str, object], prompt: object, prompts: object, first_token: object,
    per_token: object, formats: object,
) -> tuple[Fraction | None, Fraction | None] | None:  # fmt: skip
    """The bounds of a search for serving; None where the model is trained.

    Raises ``ValuesError`` for what belongs to the other one.
    """
    step = model.graph.step
    serves = {"prompt": prompt, "first_token": first_token, "per_token": per_token, "formats": formats}
    if step is None:
        for name in (name for name, value in serves.items() if value is not None):
            raise ValuesError(f"{name} belongs to a search for serving, and {model.name} is searched for training",
                              hint="search(model.decode(), ...), or --phase decode")  # fmt: skip
        return None
    if step.phase != "decode":
        raise ValuesError("a search for serving is one of a decode step", hint="model.decode(), and prompt=2048")
    for name in (name for name, value in trains.items() if value is not None):
        raise ValuesError(f"{name} belongs to a search for training, and a decode step has no backward pass",
                          hint=f"leave it out; serving has {', '.join(serves)}")  # fmt: skip
    for name, value in (("prompt", prompt), ("prompts", prompts)):
        if value is not None:
            _check_count(name, value, LARGEST_MESH)
    if first_token is not None and prompt is None:
        raise ValuesError("the time to the first token needs a prompt", hint="for instance prompt=2048")
    found = []
    for name, value in (("first_token", first_token), ("per_token", per_token)):
        most = Quantity.parse(value) if isinstance(value, str) else None
        if value is not None and (most is None or most.unit != SECOND or most.value <= 0):
            raise ValuesError(f"{name} = {str(value)[:40]}: a time of more than 0", hint="for instance 50 ms")
        found.append(None if most is None else most.value)
    return found[0], found[1]


def _check_count(name: str, value: object, most: int) -> None:
    """Raises ``ValuesError`` for what is no whole number from 1 on."""
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise ValuesError(f"{name} = {str(value)[:40]}: a whole number from 1 to {most:,}")


def check(devices: int, top: int, jobs: int | None, accounting: Accounting, serves: bool) -> None:
    """Raises ``ValuesError`` for numbers, and ``AccountingError`` for conventions, with which nothing is searched."""
    _check_count("devices", devices, LARGEST_MESH)
    _check_count("top", top, MOST_TOP)
    if jobs is not None:
        _check_count("jobs", jobs, 1000)
    if accounting.recomputation != "activations_kept":
        raise AccountingError("a search goes over recomputation itself", hint="say recomputation='full'")
    if serves and accounting.offloading != "on_device":
        raise AccountingError("a search of decode steps does not time what goes to the host and comes back",
                              hint="leave offloading at on_device")  # fmt: skip
    if accounting.shards == "padded_shards":
        raise AccountingError("a search counts the mean of the parts of a weight, not parts that are filled up",
                              hint="leave shards at mean_shard")  # fmt: skip
    if getattr(accounting, "rings", "one_way") != "one_way":
        raise AccountingError("rings that run both ways have no one formula for odd and even degrees",
                              hint="leave rings at one_way")  # fmt: skip


def shared_memory(
    said: object, on: str, accounting: Accounting, shared: int | None, devices: int
) -> tuple[Fraction, int] | None:  # fmt: skip
    """The bytes of a tier and the ranks that share them, such as ``2 TB shared by 8``; ``shared`` where it is not said.

    Raises ``ValuesError`` where nothing is there, and for what is no amount and no number of ranks.
    """
    if said is None:
        return None
    option, place = f"{on}_capacity", {"host": "the host", "nvme": "NVMe disks"}[on]
    if on not in {accounting.tier(role) for role in accounting.off_device}:
        raise ValuesError(f"{option}, but nothing is on {place}", hint=f"offloading: states_on_{on}")
    amount, by, ranks = (part.strip() for part in str(said).partition("shared by"))
    if by and not re.fullmatch(r"[1-9]\d{0,5}", ranks):
        raise ValuesError(f"{option}: '{ranks[:40]}' is no number of ranks", hint="2 TB shared by 8")
    if not by and shared is None:
        what = "the memory of a host" if on == "host" else place
        raise ValuesError(f"nobody said how many ranks share {what}", hint="2 TB shared by 8")
    found = exact(amount, option)
    if found <= 0:
        raise ValuesError(f"{option} = {amount[:40]}: an amount of memory", hint="2 TB shared by 8")
    return found, min(int(ranks) if by else shared or 1, devices)


def batch_symbol(model: Model) -> str:
    """The symbol of the batch."""
    (axis,) = batch_axes(model.graph)
    size = model.graph.axes[axis].size
    if not size.is_Symbol:
        raise ValuesError(
            f"the batch of {model.name} is {size}, not a symbol", hint="write it as a symbol in the table"
        )
    return str(size.name)


def free_sizes(model: Model) -> list[str]:
    """The sizes of a model that a search may go over: those that no relation ties."""
    names = {s.name for axis in model.graph.axes.values() for s in axis.size.free_symbols}
    names |= {region.times for region in model.graph.regions}
    tied = {n for name, right in model.graph.relations.equations for n in (name, *forms.names(right))}
    return sorted(names - tied - {""})


def read_sizes(
    model: Model, batch: object, microbatches: object, sizes: Mapping[str, object] | None, buckets: object,
    call_overhead: object,
) -> tuple[dict[str, tuple[int, ...]], dict[str, tuple[int, ...]]]:  # fmt: skip
    """The allowed sizes of the mesh's axes, and the lists of everything else."""
    allowed: dict[str, tuple[int, ...]] = {}
    varied: dict[str, tuple[int, ...]] = {}
    free, name = free_sizes(model), batch_symbol(model)
    graph = model.graph
    every = {s.name for axis in graph.axes.values() for s in axis.size.free_symbols} | {
        n for n, _ in graph.relations.equations
    }
    for key, said in (sizes or {}).items():
        if key in free:
            varied[key] = whole_numbers(said, key)
        elif key in every:
            equation = next((n for n, _ in graph.relations.equations), key)
            problem = f"other sizes define {equation}, so {key} is not free"
            raise ValuesError(problem, hint=f"free are {', '.join(free)}")
        else:
            allowed[key] = whole_numbers(said, key)
    if batch is not None:
        if name in varied:
            raise ValuesError(f"the batch is given twice: as batch and as {name}")
        several = whole_numbers(batch, "batch")
        if len(several) > 1:
            varied[name] = several
    batches = varied.get(name) or (whole_numbers(batch, "batch") if batch is not None else None)
    if batches is None and name in model.values:
        batches = whole_numbers(int(model.values[name]), name)
    if batches is None:
        raise ValuesError("a search needs the batch", hint="for instance batch=512")
    lists: dict[str, tuple[int, ...]] = {}
    if graph.step is not None:
        pass
    elif microbatches is None:
        lists = {MICROBATCHES: tuple(sorted({d for b in batches for d in divisors(b)}))}
    else:
        lists = {MICROBATCHES: whole_numbers(microbatches, MICROBATCHES)}
    if buckets is not None:
        if call_overhead is None:
            raise ValuesError("buckets need the overhead of one call", hint="for instance call_overhead='20 us'")
        overhead = Quantity.parse(call_overhead) if isinstance(call_overhead, str) else Quantity(exact(call_overhead))
        if overhead.unit != SECOND and isinstance(call_overhead, str):
            raise ValuesError(f"the overhead of a call is in {overhead.unit}, not in s", hint="for instance 0.00002 s")
        if overhead.value < 0:
            raise ValuesError("the overhead of a call is not negative")
        lists[BUCKETS] = whole_numbers(buckets, BUCKETS)
    elif call_overhead is not None:
        raise ValuesError("the overhead of a call goes with buckets", hint="for instance buckets='1..64*2'")
    return allowed, lists | varied


def _named(said: str | Sequence[str] | None, usual: Iterable[str], known: Iterable[str], what: str) -> tuple[str, ...]:
    if said is None:
        return tuple(usual)
    found = tuple(dict.fromkeys(p.strip() for p in (said.split(",") if isinstance(said, str) else said) if p.strip()))
    for name in found:
        if name not in known:
            raise ValuesError(f"unknown {what} '{name[:40]}'", hint=nearest(name, [*known]))
    if not found:
        raise ValuesError(f"no {what} is named", hint=", ".join(known))
    return found


def drafts_of(
    model: Model, strategies: str | Sequence[str] | None, recomputation: str | Sequence[str] | None,
    schedules: str | Sequence[str] | None, bucketed: bool, formats: str | Sequence[str] | None,
) -> tuple[list[Draft], list[str]]:  # fmt: skip
    """The structures to derive, each once: with and without its pipeline, for each recomputation and schedule."""
    # A Strategy is refused with a hint, where its parts are read.
    one = [strategies] if isinstance(strategies, (str, Strategy)) else strategies
    serves = model.graph.step is not None
    texts: tuple[Any, ...] = (SERVED if serves else USUAL) if one is None else tuple(one)
    kinds = ("",) if formats is None else tuple(dict.fromkeys([formats] if isinstance(formats, str) else formats))
    if not texts:
        raise ValuesError("no strategy is named", hint=f"for instance {(SERVED if serves else USUAL)[0]}")
    again = ("none",) if serves else _named(recomputation, CONVENTION, CONVENTION, "recomputation")
    plans = _named(schedules, (USUAL_SCHEDULE,), () if schedules is None else timed_alike(), "schedule")
    notes: list[str] = []
    if one is None and not serves and not _applicable(pieces(USUAL[0]), model.graph, []):
        raise StrategyError(f"none of the usual strategies can be applied to {model.name}", hint="name one: cut(D, k)")
    if recomputation is None and not serves and not model.graph.attention_pairs:
        again = tuple(how for how in again if how != "selective")
        notes.append(f"{model.name} has no attention scores, so that nothing is recomputed selectively.")
    found: dict[tuple[Any, ...], Draft] = {}
    for text in texts:
        parts = pieces(text) if one is not None else _applicable(pieces(text), model.graph, notes)
        for kept in _variants(parts):
            for how in again:
                for plan in plans if any(PIPELINE in p.axes for p in kept) else ("",):
                    for cut in (False, True) if bucketed else (False,):
                        for kind in kinds:
                            draft = Draft(kept, how, plan, cut, format=kind)
                            found.setdefault((tuple((p.key, p.arguments) for p in kept), how, plan, cut, kind), draft)
        if len(found) > MOST_STRUCTURES:
            raise ValuesError(
                f"there are more than {MOST_STRUCTURES} structures to derive", hint="name fewer strategies"
            )
    return list(found.values()), notes


def _variants(parts: tuple[TemplatePiece, ...]) -> dict[tuple[TemplatePiece, ...], None]:
    """A strategy without and with each of the axes that need two ranks: its stages, and what several parts share."""
    found = dict.fromkeys([parts])
    for axis in (PIPELINE, *shared_axes(parts)):
        found = {kept: None for one in found for kept in (tuple(p for p in one if axis not in p.axes), one)}
    return found


def _applicable(parts: tuple[TemplatePiece, ...], graph: Graph, notes: list[str]) -> tuple[TemplatePiece, ...]:
    """The parts of a usual strategy that a model allows; what is left out, and why, goes into the notes."""
    kept: list[TemplatePiece] = []
    for part in parts:
        try:
            resolve(part.strategy, graph)
            if PIPELINE in part.axes:
                for region in pipeline.stacked(graph):
                    pipeline.messages(graph.region(region.name))
        except StrategyError as error:
            if (note := f"No {part.key}: {error.message}.") not in notes:
                notes.append(note)
            continue
        # The axis of its own or, as that of sequence parallelism, one that it shares with another part.
        shared = any({*part.axes} & {*other.axes} for other in kept)
        if shared or PIPELINE in part.axes or any(size is not None for _, size in part.strategy.mesh):
            kept.append(part)
    return tuple(kept)
