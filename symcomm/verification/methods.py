"""Which part of PyTorch carries out a strategy: one record a way, and what it takes from the plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from symcomm.errors import StrategyError
from symcomm.parallel.strategy import SHARDS, Rule, Strategy
from symcomm.records import dataclass

# Our schedules, and the class of torch.distributed.pipelining that follows each; whether it takes several stages.
SCHEDULES: Mapping[str, tuple[str, bool]] = {
    "gpipe": ("ScheduleGPipe", False),
    "1f1b": ("Schedule1F1B", False),
    "interleaved": ("ScheduleInterleaved1F1B", True),
    "zb-h1": ("ScheduleInterleavedZeroBubble", True),
    "zb-v": ("ScheduleZBVZeroBubble", True),
}


@dataclass(frozen=True)
class Method:
    """A way of PyTorch's to run a strategy: the worker's name for it, its interface, conventions and accounting."""

    name: str
    interface: str
    applies: Callable[[Strategy], bool]
    conventions: tuple[str, ...] = ()
    accounting: tuple[tuple[str, str], ...] = ()


def _rules(strategy: Strategy) -> tuple[Rule, ...]:
    return tuple(rule for _, rule in strategy.rules)


def _batch_only(strategy: Strategy) -> bool:
    return all(rule.axis in ("batch", "first", "whole") for rule in _rules(strategy))


def shard_rules(strategy: Strategy) -> tuple[Rule, ...]:
    """The rules that shard weights or what belongs to them over the data."""
    return tuple(rule for rule in _rules(strategy) if rule.axis == "first")


def batch_meshes(strategy: Strategy) -> tuple[str, ...]:
    """The mesh axes that cut the batch, outermost first."""
    return tuple(dict.fromkeys(rule.mesh for rule in _rules(strategy) if rule.axis == "batch"))


def _shards(strategy: Strategy, on: frozenset[str]) -> bool:
    return bool(shard_rules(strategy)) and all(rule.on == on for rule in shard_rules(strategy))


_STATE = frozenset({"state"})
_FSDP = ("units", "padded_rows")
_DTENSOR = ("reduced_before_product", "gathered_for_exchange", "gathered_for_each")
# One row a way; the first one that applies is taken.
METHODS: tuple[Method, ...] = (
    Method("single", "one process", lambda s: not s.mesh and s.pipeline is None),
    Method("pipelining", "torch.distributed.pipelining",
           lambda s: s.pipeline is not None and not shard_rules(s) and _batch_only(s), ("buckets",),
           (("pipeline", "both_directions"),)),
    Method("pipelining+dtensor", "torch.distributed.pipelining of DTensor",
           lambda s: s.pipeline is not None and not shard_rules(s) and not batch_meshes(s),
           (*_DTENSOR, "axis_by_axis", "reduced_each_time"),
           (("pipeline", "both_directions"), ("gathered_activations", "keep"))),
    Method("zero1", "ZeroRedundancyOptimizer around DistributedDataParallel",
           lambda s: s.pipeline is None and _batch_only(s) and _shards(s, _STATE),
           ("buckets", "tables_sent", "whole_gradients", "broadcast_by_owner")),
    Method("fsdp2", "fully_shard", lambda s: s.pipeline is None and _batch_only(s) and _shards(s, SHARDS), _FSDP),
    Method("fsdp2", "fully_shard", lambda s: s.pipeline is None and _batch_only(s) and bool(shard_rules(s)),
           (*_FSDP, "gathered_when_read")),
    Method("ddp", "DistributedDataParallel",
           lambda s: s.pipeline is None and _batch_only(s) and len(batch_meshes(s)) == 1, ("buckets", "tables_sent")),
    Method("fsdp2+dtensor", "fully_shard around DTensor",
           lambda s: s.pipeline is None and _shards(s, SHARDS) and len(shard_rules(s)) == 1,
           (*_DTENSOR, "reduced_before_scattered", *_FSDP),
           (("gathered_activations", "keep"),)),
    Method("dtensor", "DTensor", lambda s: s.pipeline is None and not shard_rules(s),
           (*_DTENSOR, "axis_by_axis"),
           (("gathered_activations", "keep"),)),
)  # fmt: skip


def method(strategy: Strategy) -> Method:
    """The way of PyTorch's that carries out a strategy.

    Raises ``StrategyError`` where it has none.

    >>> from symcomm.parallel.strategy import parse_strategy
    >>> [method(parse_strategy(s)).name for s in ("data(2)", "zero-1(2)", "fsdp(2)", "tensor(2) + sequence")]
    ['ddp', 'zero1', 'fsdp2', 'dtensor']
    """
    for one in METHODS:
        if one.applies(strategy):
            return one
    raise StrategyError(
        f"PyTorch has no way here to run {strategy.name}", hint="docs/verification.md lists what is run"
    )
