"""The laws: each takes a model (and a strategy) and yields pairs that must be equal, with what is compared.

A law knows no formula of a quantity: it asks the public methods twice, in two ways that must agree. A number is None
where there is no answer for a reason in ``NO_ANSWER``; any other refusal is a mistake in the law or in the code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from itertools import product
from math import floor
from typing import Any

from api import accounting_CONVENTIONS as CONVENTIONS

import symcomm as sc

Pair = tuple[str, Fraction | None, Fraction | None]
NOTHING_ELSE = {"memory": "1000000 PB/s", "network": "1000000 PB/s", "latency": "0 s"}  # only computing takes time
RATES = {"peak": "1 TFLOP/s", "memory": "1 TB/s", "network": "1 GB/s", "latency": "1 us"}
OF_RANKS: Mapping[str, Mapping[str, Any]] = {
    "activation_memory": {}, "state_memory": {}, "peak_memory": {}, "step_time": RATES, "time": RATES,
    "throughput": RATES, "communication": {},
}  # fmt: skip
AGAIN = [row.name for row in CONVENTIONS if row.field == "recomputation"]
RECOMPUTATIONS = {name: name.removesuffix("_recomputation") for name in AGAIN} | {"activations_kept": "none"}


# Why a question may have no answer for a model under a strategy.
NO_ANSWER = re.compile("|".join((
    "has no experts to spread", "has no attention scores to compute again", "one layer cannot be cut into stages",
    "has no sequence axis to cut", "has no self-attention to cut", "has no pair of weights for tensor parallelism",
    "hand on different tensors, so that the boundaries between stages differ", "and no op tells them apart",
    "no value is given for k: the schedule of a pipeline is followed step by step",
    "which op is the peak depends on the sizes: no value is given for k\\b",
    "is written out in steps, which autocast runs in several formats",
    "into [24] parts, but 17 is not divisible by [24]",  # the patches of an image and its class token
    "at once, which is no ring",  # of one head of keys, both axes of the mesh gather all positions
)))  # fmt: skip


def worth(model: sc.Model, quantity: str, at: Mapping[str, int] | None = None, **options: Any) -> Fraction | None:
    """The exact number of a quantity, or None where ``NO_ANSWER`` says why there is none."""
    try:
        return Fraction(model.derive(quantity, **options).at(**(at or {})).value)
    except sc.SymcommError as error:
        if NO_ANSWER.search(str(error)):
            return None
        raise


def minus(one: Fraction | None, other: Fraction | None) -> Fraction | None:
    """Their difference, or None where one of them is."""
    return None if one is None or other is None else one - other


def differs(pair: Pair) -> bool:
    """Whether the two numbers are there and differ."""
    return None not in pair and pair[1] != pair[2]


def total(parts: list[Fraction | None]) -> Fraction | None:
    """Their sum, or None where one of them is refused."""
    return None if None in parts else sum((part for part in parts if part is not None), Fraction(0))


# -- laws of a model -----------------------------------------------------------------------------------------


def passes_add_up(model: sc.Model) -> Iterator[Pair]:
    """Forward and backward operations are those of training, however operations are counted."""
    fields = ("flops", "operations", "attention", "input_gradient")
    for said in ({}, *({row.field: row.name} for row in CONVENTIONS if row.field in fields)):
        each = [worth(model, "flops", scope=scope, accounting=said) for scope in ("forward", "backward")]
        yield f"passes {said}", total(each), worth(model, "flops", scope="training", accounting=said)


def layers_are_alike(model: sc.Model) -> Iterator[Pair]:
    """Each further layer adds what the layer costs by itself, to all that counts layers: more than nothing."""
    regions = model.graph.regions
    counts = [region.times for region in regions if region.times]
    asked = [("flops", {"scope": "forward"}), ("flops", {"scope": "training"}), ("parameters", {}),
             ("activation_memory", {}), ("state_memory", {}), ("cast_copies", {"dtype": "autocast(bf16)"}),
             ("step_time", {**RATES, "accounting": {"time": "serial"}})]  # fmt: skip
    by_themselves = ("flops", "parameters", "state_memory", "cast_copies")
    for times in (one for one in counts if one not in dict(model.graph.relations.equations)):
        others = {name: 2 for name in counts if name != times}
        parts = [region.name for region in regions if region.times == times]
        for quantity, options in asked:
            one, two, three = (worth(model.at(**others, **{times: n}), quantity, **options) for n in (2, 3, 4))
            second, third = minus(two, one), minus(three, two)
            yield f"{quantity} {options} of one more in {times}", second, third
            yield (
                f"{quantity} {options}: more with one more in {times}",
                Fraction(second is None or second > 0),
                Fraction(1),
            )
            if len(parts) == 1 < len(regions) and quantity in by_themselves:
                alone = worth(model.part(parts[0]).at(**{times: 1}), quantity, **options)
                yield f"{quantity} {options} of the part {parts[0]}", second, alone


def _weights(model: sc.Model) -> list[str]:
    return [name for name, tensor in model.graph.tensors.items() if tensor.role == "weight"]


def shared(model: sc.Model) -> bool:
    """Whether two parts have one weight, as a tied embedding and its head."""
    parts = [model.part(region.name) for region in model.graph.regions]
    return sum(len(_weights(part)) for part in parts) > len(_weights(model))


def parts_add_up(model: sc.Model) -> Iterator[Pair]:
    """The parts of a model have together what the whole has; shared weights are counted once."""
    regions = model.graph.regions
    tied = shared(model)
    for quantity, options in (("flops", {}), ("flops", {"scope": "training"}), ("parameters", {})):
        if len(regions) < 2 or (quantity == "parameters" and tied):
            continue
        parts = [worth(model.part(region.name), quantity, **options) for region in regions]
        yield f"parts {quantity} {options}", total(parts), worth(model, quantity, **options)


def rows_add_up(model: sc.Model) -> Iterator[Pair]:
    """The rows of a table have together what the table has."""
    if len(model.graph.regions) != 1:
        return
    chosen = {"operations": "all_ops"}
    rows = [op.output for op in model.graph.ops if "·" not in op.output]  # the others are steps inside a row
    each = total([worth(model, "flops", op=row, accounting=chosen) for row in rows])
    whole = worth(model.at(**{model.graph.repeat: 1}) if model.graph.repeat else model, "flops", accounting=chosen)
    yield "rows", each, whole


def work_is_counted_once(model: sc.Model) -> Iterator[Pair]:
    """The operations of a step are those of recomputation's hardware FLOPs and of the numerator of HFU."""
    for name, said in RECOMPUTATIONS.items():
        chosen = {"recomputation": name}
        flops = worth(model, "recomputation", recomputation=said, count="hardware_flops")
        step = worth(model, "step_time", peak="1 FLOP/s", **NOTHING_ELSE, accounting=chosen)
        used = worth(model, "throughput", of="hfu", peak="1 PFLOP/s", step="1 s", accounting=chosen)
        yield f"step time, {name}", step, flops
        yield f"HFU, {name}", used, None if flops is None else flops / 10**15


def symbols_then_numbers(model: sc.Model) -> Iterator[Pair]:
    """A formula with numbers put in is what is derived from numbers."""
    free = replace(model, values={})
    known = model.graph.relations.complete(model.values)
    for quantity, options in (("flops", {}), ("flops", {"scope": "training"}), ("parameters", {}),
                              ("activation_memory", {}), ("state_memory", {}), ("traffic", {})):  # fmt: skip
        formula = free.derive(quantity, **options)
        put_in = Fraction(formula.at(**{name: known[name] for name in formula.needs}).value)
        yield f"{quantity} {options}", put_in, worth(model, quantity, **options)
    counts = {region.times for region in model.graph.regions if region.times}
    if len(counts) == 1:  # the peak is a formula of the number of layers
        rest = replace(model, values={name: number for name, number in model.values.items() if name not in counts})
        put_in = worth(rest, "peak_memory", {name: int(known[name]) for name in counts})
        yield "peak_memory", put_in, worth(model, "peak_memory")


def units_multiply(model: sc.Model) -> Iterator[Pair]:
    """Twice the bytes a number, twice the bytes; half the rate, twice the time; intensity is operations over bytes."""
    for quantity in ("traffic", "state_memory"):
        options: dict[str, Any] = {"recipe": {"weights": 2, "gradients": 2, "states": 12}}
        twice: dict[str, Any] = {"recipe": {"weights": 4, "gradients": 4, "states": 24}}
        options, twice = ({"dtype": "bf16"}, {"dtype": "fp32"}) if quantity == "traffic" else (options, twice)
        single, double = (worth(model, quantity, **said) for said in (options, twice))
        if quantity == "state_memory" or all(t.dtype is None for t in model.graph.tensors.values()):
            yield f"{quantity} of wide numbers", None if single is None else 2 * single, double
    slow, fast = (worth(model, "step_time", peak=peak, **NOTHING_ELSE) for peak in ("1 GFLOP/s", "2 GFLOP/s"))
    yield "half the rate", slow, None if fast is None else 2 * fast


def repeats(model: sc.Model) -> bool:
    """Whether there are layers that stages can share."""
    return any(region.times for region in model.graph.regions)


def stages_add_up(model: sc.Model) -> Iterator[Pair]:
    """The stages of a pipeline have together the weights, gradients and states of the model."""
    if not shared(model) and repeats(model):
        pipeline = "pipeline(2, microbatches=2)"
        each = [worth(model, "state_memory", strategy=pipeline, stage=stage) for stage in (0, 1)]
        yield "stages", total(each), worth(model, "state_memory")


def names_mean_nothing(model: sc.Model) -> Iterator[Pair]:
    """A table whose sizes have other names costs the same."""
    if len(model.tables) != 1 or len(model.graph.regions) != 1:
        return
    text, sizes = model.tables[0], sorted(model.graph.relations.complete(model.values), key=len, reverse=True)
    spelled = {size: f"{size[0]}_{{{size.partition('_')[2]}z}}" for size in sizes}
    for size, new in spelled.items():
        head, _, index = size.partition("_")
        old = rf"{head}(?!_)" if not index else rf"{head}_(?:{index}|\{{{index}\}})"
        text = re.sub(rf"(?<![A-Za-z\\^_])(?<!b{{){old}(?![\w^'(])", lambda _, new=new: new, text)
    repeat = model.graph.repeat
    other = sc.load(text, repeat=repeat or "").at(
        **{spelled.get(size, size).replace("{", "").replace("}", "") if size != repeat else size: number
           for size, number in model.values.items()})  # fmt: skip
    for quantity, options in (("flops", {"scope": "training"}), ("parameters", {}), ("activation_memory", {}),
                              ("communication", {"strategy": "tensor(2) + sequence"}),
                              ("communication", {"strategy": "context(2)"})):  # fmt: skip
        yield f"{quantity} {options}", worth(other, quantity, **options), worth(model, quantity, **options)


# -- laws of a model under a strategy ------------------------------------------------------------------------


def work_is_shared(model: sc.Model, strategy: str) -> Iterator[Pair]:
    """The ranks have together the hardware FLOPs of a step, in its time and in HFU; pipelines also wait."""
    ranks = 2 ** len(re.findall(r"[( ]2\b", strategy))
    for name, said in RECOMPUTATIONS.items():
        chosen = {"recomputation": name}
        flops = worth(model, "recomputation", strategy=strategy, recomputation=said, count="hardware_flops")
        each = None if flops is None else flops / ranks
        used = {"of": "hfu", "peak": "1 PFLOP/s", "step": "1 s"}
        hfu = worth(model, "throughput", strategy=strategy, **used, accounting=chosen)
        yield f"HFU, {name}", hfu, None if each is None else each / 10**15
        if "pipeline" not in strategy:
            step = worth(model, "step_time", strategy=strategy, peak="1 FLOP/s", **NOTHING_ELSE, accounting=chosen)
            if step is not None and each is not None:  # messages take next to nothing; tensor ranks all have the router
                step = min(Fraction(floor(step)), each) if "tensor" in strategy else Fraction(floor(step))
            yield f"step time, {name}", step, each


def recomputed_bytes(model: sc.Model, strategy: str) -> Iterator[Pair]:
    """What recomputation sends again is the phase of that name in communication."""
    for name in ("full_recomputation", "selective_recomputation"):
        again = worth(model, "recomputation", strategy=strategy, count="bytes", recomputation=RECOMPUTATIONS[name])
        sent = worth(model, "communication", strategy=strategy, phase="recompute", accounting={"recomputation": name})
        yield name, again, sent


def option_is_convention(model: sc.Model, strategy: str) -> Iterator[Pair]:
    """Recomputation as an option of a question is the convention of that name."""
    for name, said in RECOMPUTATIONS.items():
        for quantity in ("activation_memory", "peak_memory"):
            chosen = worth(model, quantity, strategy=strategy, recomputation=said)
            by_name = worth(model, quantity, strategy=strategy, accounting={"recomputation": name})
            yield f"{quantity} {name}", chosen, by_name


def states_are_in_the_peak(model: sc.Model, strategy: str) -> Iterator[Pair]:
    """Wider optimizer states raise the peak by what they raise the states' memory, on each stage."""
    recipes = [{"weights": 2, "gradients": 2, "states": wide} for wide in (8, 108)]
    for stage in (0, 1) if "pipeline" in strategy else (None,):
        asked: dict[str, Any] = {"strategy": strategy} if stage is None else {"strategy": strategy, "stage": stage}
        peaks = [worth(model, "peak_memory", **asked, recipe=recipe) for recipe in recipes]
        states = [worth(model, "state_memory", **asked, recipe=recipe, of="states") for recipe in recipes]
        yield f"states of stage {stage}", minus(peaks[1], peaks[0]), minus(states[1], states[0])


def host_has_the_rest(model: sc.Model, strategy: str) -> Iterator[Pair]:
    """What disks, host and device hold is together everything; activations go there and come back once."""
    stages: tuple[dict[str, int], ...] = ({"stage": 0}, {"stage": 1}) if "pipeline" in strategy else ({},)
    for said, stage in product(("states_on_host", "model_on_host", "states_on_nvme_model_on_host"), stages):
        chosen = {"offloading": said, "accumulation": "reduced_every_microbatch"}
        parts = [worth(model, "state_memory", strategy=strategy, accounting=chosen, on=on, **stage)
                 for on in (("device", "host", "nvme") if "nvme" in said else ("device", "host"))]  # fmt: skip
        every = {"accumulation": "reduced_every_microbatch"}
        yield (
            f"{said} {stage}",
            total(parts),
            worth(model, "state_memory", strategy=strategy, accounting=every, **stage),
        )

    def copied(said: str, **chosen: str) -> Fraction | None:
        counted = {"communication": "sent_per_rank", "offloading": said, **chosen}
        return worth(model, "communication", strategy=strategy, level="host", accounting=counted, **stages[0])

    each = [copied("states_on_host"), copied("activations_on_host")]
    yield "bytes of both", total(each), copied("states_and_activations_on_host")
    yield "gradients go there once", each[0], copied("states_and_gradients_on_host")
    yield "bytes of all", total([copied("model_on_host"), each[1]]), copied("everything_on_host")
    hows = [*({"recomputation": again} for again in AGAIN), {"saved": "pytorch"}]
    for how in hows if "pipeline" not in strategy else ():  # which sends more microbatches than it holds at a time
        kept, left = (worth(model, "activation_memory", strategy=strategy, accounting={"offloading": said, **how})
                      for said in ("on_device", "activations_on_host"))  # fmt: skip
        gone = minus(kept, left)
        yield f"activations, {how}", None if gone is None else 2 * gone, copied("activations_on_host", **how)


def kinds_add_up(model: sc.Model, strategy: str) -> Iterator[Pair]:
    """Weights, gradients and states are together all that is held between steps."""
    parts = [worth(model, "state_memory", strategy=strategy, of=of) for of in ("weights", "gradients", "states")]
    yield "kinds of states", total(parts), worth(model, "state_memory", strategy=strategy)


def sums_add_up(model: sc.Model, strategy: str) -> Iterator[Pair]:
    """Phases and kinds of collectives have together the bytes of all, on each stage of a pipeline."""
    stages: tuple[dict[str, int], ...] = ({"stage": 0}, {"stage": 1}) if "pipeline" in strategy else ({},)
    for counted, stage in (("payload", {}), *(("sent_per_rank", stage) for stage in stages)):
        for again in ("activations_kept", "full_recomputation"):
            gradients = "shortest" if again == "activations_kept" else "from_home"
            said = {"communication": counted, "recomputation": again, "pipeline": "both_directions",
                    "ring_gradients": gradients}  # fmt: skip
            ask = {"strategy": strategy, "accounting": said, **stage}
            whole = worth(model, "communication", **ask)
            phases = ("forward", "recompute", "backward", "update")
            each = [worth(model, "communication", **ask, phase=phase) for phase in phases]
            yield f"phases, {counted}, {again}", total(each), whole
            kinds = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "ring-pass", "ring-sum",
                     "ring-sum-home", "halo-exchange", "halo-shift", "send")  # fmt: skip
            each = [worth(model, "communication", **ask, collective=one) for one in kinds]
            yield f"kinds, {counted}, {again}", total(each), whole


def one_rank_changes_nothing(model: sc.Model, strategy: str) -> Iterator[Pair]:
    """A mesh of one rank, given at once or later, is no mesh."""
    one, later = strategy.replace("2)", "1)").replace("(2,", "(1,"), strategy.replace("2)", "k)").replace("(2,", "(k,")
    later = later.replace("microbatches=k", "microbatches=1")
    for quantity, options in OF_RANKS.items():
        alone = Fraction(0) if quantity == "communication" else worth(model, quantity, **options)
        yield f"{quantity} on one rank", worth(model, quantity, strategy=one, **options), alone
        put_in = worth(model, quantity, {"k": 1}, strategy=later, **options)
        yield f"{quantity} at k = 1", put_in, alone


def ranks_never_add_work(model: sc.Model, strategy: str) -> Iterator[Pair]:
    """What a rank computes and holds never grows with the ranks; the pair is the larger number and the first."""
    first, _, rest = strategy.rpartition("2)")
    twice = f"{first}4){rest}"
    if "pipeline" in strategy:
        return
    asked: tuple[tuple[str, dict[str, Any]], ...] = (
        ("step_time", {"peak": "1 FLOP/s", **NOTHING_ELSE}), ("state_memory", {}), ("activation_memory", {}),
    )  # fmt: skip
    for quantity, options in asked:
        few = worth(model, quantity, strategy=strategy, **options)
        more = worth(model, quantity, strategy=twice, **options)
        alone = worth(model, quantity, **options)
        yield f"{quantity} on more ranks", None if few is None or more is None else max(few, more), few
        yield f"{quantity} on ranks", None if few is None or alone is None else max(few, alone), alone


def numbers_of_ranks(model: sc.Model, strategy: str) -> Iterator[Pair]:
    """A degree put in later is a degree given at once."""
    later = strategy.replace("2)", "k)").replace("microbatches=k", "microbatches=2").replace("(2,", "(k,")
    for quantity, options in OF_RANKS.items():
        put_in = worth(model, quantity, {"k": 2}, strategy=later, **options)
        yield f"{quantity} at k = 2", put_in, worth(model, quantity, strategy=strategy, **options)


OF_MODELS: Mapping[str, Callable[[sc.Model], Iterator[Pair]]] = {
    law.__name__: law
    for law in (passes_add_up, layers_are_alike, parts_add_up, rows_add_up, work_is_counted_once, symbols_then_numbers,
                units_multiply, stages_add_up, names_mean_nothing)
}  # fmt: skip
OF_STRATEGIES: Mapping[str, Callable[[sc.Model, str], Iterator[Pair]]] = {
    law.__name__: law
    for law in (work_is_shared, recomputed_bytes, option_is_convention, states_are_in_the_peak, host_has_the_rest,
                kinds_add_up, sums_add_up, one_rank_changes_nothing, ranks_never_add_work, numbers_of_ranks)
}  # fmt: skip
