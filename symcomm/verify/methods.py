"""The part of PyTorch that carries out a strategy: one record a way, and what it takes from the plan.

A pipeline is run around any way that trains what its stages hold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from symcomm.core.errors import StrategyError
from symcomm.core.parallel.strategy import SHARDS, Rule, Strategy
from symcomm.core.records import dataclass
from symcomm.verify.conventions import FINISHED

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


def _replicated(strategy: Strategy) -> bool:
    return _batch_only(strategy) and len(batch_meshes(strategy)) == 1


def shard_rules(strategy: Strategy) -> tuple[Rule, ...]:
    """The rules that shard weights or what belongs to them over the data."""
    return tuple(rule for rule in _rules(strategy) if rule.axis == "first")


def batch_meshes(strategy: Strategy) -> tuple[str, ...]:
    """The mesh axes that cut the batch, outermost first."""
    return tuple(dict.fromkeys(rule.mesh for rule in _rules(strategy) if rule.axis == "batch"))


def _shards(strategy: Strategy, on: frozenset[str]) -> bool:
    return bool(shard_rules(strategy)) and all(rule.on == on for rule in shard_rules(strategy))


def _graded(strategy: Strategy) -> bool:
    """Whether gradients are cut like the states of the optimizer, but weights are whole between the passes."""
    return any("gradient" in rule.on for rule in shard_rules(strategy))


_STATE = frozenset({"state"})
_FSDP = ("units", "padded_rows")
_DTENSOR = ("reduced_before_product", "gathered_for_exchange", "gathered_for_each", "axis_by_axis", "whole_tables")
_KEPT = (("gathered_activations", "keep"),)
_OWN = (("batch_statistics", "of_each_rank"),)  # BatchNorm2d outside DTensor


def _apart(strategy: Strategy) -> bool:
    """Whether the batch alone is cut over the axes of the data: what stands around DTensor can look after them."""
    apart = {*batch_meshes(strategy), *(rule.mesh for rule in shard_rules(strategy))}
    others = {rule.mesh for rule in _rules(strategy) if rule.axis not in ("batch", "first")}
    return 1 <= len(apart) <= 2 and not others & apart


# One row a way to train what a stage holds; the first one that applies is taken. Of a rank with several stages
# DistributedDataParallel fails or adds up gradients twice: its buckets are built anew, and backward comes in halves.
METHODS: tuple[Method, ...] = (
    Method("single", "one process", lambda s: not s.mesh),
    Method("zero1", "ZeroRedundancyOptimizer around DistributedDataParallel",
           lambda s: _batch_only(s) and _shards(s, _STATE),
           ("buckets", "tables_sent", "whole_gradients", "broadcast_by_owner"), _OWN),
    Method("fsdp2", "fully_shard", lambda s: _batch_only(s) and _shards(s, SHARDS), _FSDP, _OWN),
    Method("fsdp2", "fully_shard", lambda s: _batch_only(s) and _graded(s),
           (*_FSDP, "gathered_when_read"), _OWN),
    Method("ddp", "DistributedDataParallel",
           lambda s: s.pipeline is None and _replicated(s), ("buckets", "tables_sent"), _OWN),
    Method("replicate", "replicate", _replicated, ("units",), _OWN),
    Method("fsdp2+dtensor", "fully_shard around DTensor", lambda s: _apart(s) and _shards(s, SHARDS),
           (*_DTENSOR, "reduced_before_scattered", *_FSDP), _KEPT),
    Method("fsdp2+dtensor", "fully_shard around DTensor", lambda s: _apart(s) and _graded(s),
           (*_DTENSOR, "reduced_before_scattered", *_FSDP, "gathered_when_read"), _KEPT),
    Method("replicate+dtensor", "replicate around DTensor",
           lambda s: _apart(s) and not shard_rules(s) and len(batch_meshes(s)) == 1,
           (*_DTENSOR, "reduced_before_scattered", "units"), _KEPT),
    Method("dtensor", "DTensor", lambda s: not shard_rules(s), _DTENSOR, _KEPT),
)  # fmt: skip


# A step with its cache: in one process, or placed by DTensor.
STEPS = (
    Method("cached", "one process with a cache", lambda _: True),
    Method("cached+dtensor", "DTensor with a cache", lambda _: True, _DTENSOR, _KEPT),
)  # fmt: skip


def _staged(inside: Method) -> Method:
    """A pipeline of stages that are each trained in some way."""
    of = f" of {inside.interface}" if inside.name != "single" else ""
    return Method("+".join(dict.fromkeys(("pipelining", *inside.name.split("+")))).removesuffix("+single"),
                  f"torch.distributed.pipelining{of}", inside.applies,
                  tuple(sorted(("gathered_once", *inside.conventions, "reduced_each_time"),
                               key=lambda name: name != FINISHED)),
                  (("pipeline", "both_directions"), *inside.accounting))  # fmt: skip


def method(strategy: Strategy, step: object = None) -> Method:
    """The way of PyTorch's that carries out a strategy, of training or of a ``step`` that generates text.

    Raises ``StrategyError`` where it has none.

    >>> from symcomm.core.parallel.strategy import parse_strategy
    >>> [method(parse_strategy(s)).name for s in ("data(2)", "zero-1(2)", "fsdp(2)", "tensor(2) + sequence")]
    ['ddp', 'zero1', 'fsdp2', 'dtensor']
    >>> method(parse_strategy("pipeline(2) + data(2) + tensor(2)")).name
    'pipelining+replicate+dtensor'
    """
    staged = strategy.pipeline is not None
    if step is not None:
        cut = any(rule.axis == "sequence" and not rule.rests for rule in _rules(strategy))
        if staged or cut or shard_rules(strategy):
            raise StrategyError(f"PyTorch has no way here to run a step under {strategy.name}",
                                hint="tensor(2), data(2), data(2) + tensor(2)")  # fmt: skip
        return STEPS[bool(strategy.mesh)]
    if any(rule.where == "lookups" for rule in _rules(strategy)):
        raise StrategyError(
            f"PyTorch has no way here to run {strategy.name}: TorchRec, which spreads tables, is not run",
            hint="data(2), which sums the gradients of all tables",
        )
    exchanged = {rule.mesh for rule in _rules(strategy) if rule.where}
    if exchanged and any(r.axis in ("sequence", "paired") and r.mesh not in exchanged for r in _rules(strategy)):
        raise StrategyError(
            f"PyTorch has no way here to run {strategy.name}: DTensor does not exchange parts of parts",
            hint="ulysses(2), or data(2) + ulysses(2)",
        )
    if any(rule.passes for rule in _rules(strategy)):
        raise StrategyError(
            f"PyTorch has no way here to run {strategy.name}: DTensor gathers keys and values, it has no ring",
            hint="context(2) sends as many bytes in the forward pass",
        )
    space = any(rule.axis.endswith(" axis") for rule in _rules(strategy))  # of images: no halos are exchanged here
    inside = next((one for one in METHODS if one.applies(strategy) and not space), None)
    if any(rule.on == _STATE for rule in shard_rules(strategy)) and (staged or inside is None):
        raise StrategyError(
            f"PyTorch has no way here to run {strategy.name}: ZeroRedundancyOptimizer deals out whole weights that are "
            "the same on all ranks", hint="zero-2 or fully-sharded are run beside others"
        )  # fmt: skip
    if inside is not None:
        return _staged(inside) if staged else inside
    raise StrategyError(
        f"PyTorch has no way here to run {strategy.name}", hint="docs/verification.md lists what is run"
    )
