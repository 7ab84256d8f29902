"""The questions whose answers were kept before the quantities became text, and how an answer is written down.

``python tests/worksheets/ported_answers.py`` asks all of them and writes the file: only where a change is meant.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any
from zlib import crc32

from api import SymcommError, form_evaluate, from_expr, known_devices, names, substitute, value
from sympy import Rational

import symcomm as sc

DATA = Path(__file__).parents[1] / "data"
KEPT = DATA / "ported_answers.json"
ROOT = DATA.parents[1]
SMALL = json.loads((DATA / "small_families.json").read_text())

LAYERS = ("two-matrix-ffn", "grouped-query-attention", "mixture-of-experts")
WHOLE = ("GPT2LMHeadModel", "LlamaForCausalLM")
MODELS = (*LAYERS, "homework", *WHOLE)
STRATEGIES = (None, "data(k)", "tensor(2) + data(4)", "fsdp(k)", "pipeline(2, microbatches=4)")
SPEEDS: tuple[dict[str, Any], ...] = (
    {}, {"step": "12 s"}, {"achieved": "150 TFLOP/s"}, {"mfu": "2/5"}, {"device": "A100-80GB-SXM"},
)  # fmt: skip
COUNTS: tuple[dict[str, str], ...] = (
    {}, {"model_flops": "6nd"}, {"recomputation": "full_recomputation"}, {"attention": "causal_half"},
    {"time": "serial"},
    {"flops": "mac"}, {"operations": "all_ops"}, {"traffic": "compulsory"}, {"rate": "eight_bit"},
    {"recomputation": "selective_recomputation", "softmax": "fused"}, {"experts_read": "expected"}, {"time": "per_op"},
)  # fmt: skip
GROWING = ("data(k)", "tensor(t) + data(4)", "pipeline(p, microbatches=4)")
RATES: tuple[dict[str, Any], ...] = (
    {}, {"peak": "312 TFLOP/s", "memory": "2039 GB/s"}, {"device": "H100-SXM", "utilisation": "4/5"},
)  # fmt: skip


@cache
def model(name: str) -> sc.Model:
    if name == "homework":
        return sc.load(DATA / "homework2_table.tsv", repeat="N_layer")
    if name in WHOLE:
        return sc.load(SMALL[name], architecture=name, loss=True)
    return sc.load(ROOT / "examples" / "layers" / f"{name}.md")


LATER = ("GB200",)  # devices that came after the answers were kept
_COUNTING = ("mfu", "hfu", "device_hours", "devices")


def questions() -> Iterator[tuple[str, str, dict[str, Any], dict[str, str]]]:
    """A model (or none), a quantity, its options and its conventions."""
    wanted = ("tokens_per_second", "flops_per_token", "mfu", "hfu", "days", "device_hours", "devices")
    for n, (name, strategy, of, speed) in enumerate(product(MODELS, STRATEGIES, wanted, SPEEDS)):
        more: dict[str, Any] = {"devices_used": 16} if strategy is None and n % 3 and of in _COUNTING else {}
        more |= {"budget": "300e9 tokens"} if n % 2 and of in ("days", "device_hours") else {}
        if (of in ("flops_per_token", "devices") and speed) or (of == "flops_per_token" and strategy):
            continue
        yield name, "throughput", {"strategy": strategy, "of": of, **speed, **more}, COUNTS[(n + n // 5) % 5]
    for n, (name, phase, rates, strategy) in enumerate(
        product(MODELS, ("forward", "backward"), RATES, (None, "data(k)"))
    ):
        yield name, "roofline", {"phase": phase, "strategy": strategy, **rates}, COUNTS[n % 12]
        yield name, "roofline", {"phase": phase, "op": row(name), **rates}, COUNTS[(n + 3) % 12]
    for name, counts, dtype, op in product(MODELS, COUNTS[:11], (None, "fp32"), (False, True)):
        yield name, "intensity", {"dtype": dtype, "op": row(name) if op else None}, counts
    for n, (name, of, phase, rates) in enumerate(
        product(MODELS, ("least_time", "implied_rate", "implied_bandwidth"), ("forward", "microbatch"), RATES)
    ):
        more = ({}, {"measured": "0.5 s"}, {"op": row(name)}, {"tensor": row(name)})[n % 4]
        phased = {} if "tensor" in more else {"phase": phase}  # writing a tensor has no phase
        yield name, "bound", {"of": of, **phased, **rates, **more}, COUNTS[(n + n // 12) % 12]
    for n, (name, kind, strategy) in enumerate(product(MODELS, ("strong", "weak", "speedup"), GROWING)):
        yield name, "scaling", {"strategy": strategy, "kind": kind, **RATES[n % 3]}, COUNTS[n % 4]
    for name, strategy in product(MODELS, ("pipeline(p)", "pipeline(layers_per_stage=2)", "data(k)")):
        yield name, "stages", {"strategy": strategy}, {}
    kept = [device for device in known_devices() if device not in LATER]
    for device, counts in product(kept, ({}, {"flops": "mac"})):
        for dtype in ("fp16", "fp8", "tf32"):
            yield "", "peak_rate", {"device": device, "dtype": dtype}, counts
        yield "", "balance", {"device": device}, counts
    for counts, rates in product(({}, {"flops": "mac"}, {"rate": "eight_bit"}), RATES[:2]):
        yield "", "balance", rates, counts
        yield "", "balance", {"clock": "1.41 GHz", "units": 108, "fma": 512, **rates}, counts
        yield "", "peak_rate", {"clock": "1.41 GHz", "units": 108, "fma": 512}, counts
    sizes: tuple[dict[str, Any], ...] = ({}, {"s": "5 GB", "w": "3 GB/s", "o": "1/7 s"}, {"s": 1, "w": 10, "o": 5})
    for want, rho, some in product(
        ("overhead", "number", "whole_number", "size", "least"), (None, "rho", 1, 2, "1/2", "7/3", "9/10"), sizes
    ):
        yield "", "buckets", {"want": want, "rho": rho, **some}, {}
    for want, rho in product(("overhead", "number", "whole_number", "size", "least"), (None, "1/2", "3")):
        yield "", "buckets", {"want": want, "s": 100, "w": 2, "o": 3, "rho": rho}, {}
    kinds = ("all-reduce", "all-gather", "reduce-scatter", "broadcast", "reduce", "all-to-all", "send")
    for kind, how, sizes in product(kinds, ("algbw", "busbw"), ({}, {"payload": "8 GB", "ranks": 8, "time": "1/4 s"})):
        yield "", "collective_bandwidth", {"collective": kind, **sizes}, {"bandwidth": how}


    steps = (None, "data(k)", "tensor(2)", "pipeline(2)", "pipeline(2, microbatches=2) + tensor(2)")
    for name, per, strategy, rates, past in product(
        ("homework", *WHOLE[::-1], LAYERS[1]), ("replica", "device"), steps, RATES[::2], (None, "127")
    ):
        counts: dict[str, str] = COUNTS[(0, 4, 11, 7)[len(str(strategy)) % 4]]
        yield name, "decode_throughput", {"per": per, "strategy": strategy, "past": past, **rates}, counts


def row(name: str) -> str:
    """A row of the model: what its first product makes."""
    return next(op.output for op in model(name).graph.ops if op.summed)


def number(name: str) -> int:
    """A number for a symbol, by its name alone."""
    return 2 + crc32(name.encode()) % 61


def answer(name: str, quantity: str, options: dict[str, Any], conventions: dict[str, str]) -> str:
    """What a question gives: a number at numbers for all symbols, its unit and the conventions named; or a refusal."""
    said = {key: value for key, value in options.items() if value is not None}
    try:
        asked = model(name).derive if name else sc.derive
        made = asked(quantity, accounting=conventions or None, **said)
    except SymcommError:
        return "refused"
    given, form = dict(made.given), from_expr(made.expr)
    for left, right in made.relations.equations:  # as D = n_H H: equal forms have one number
        form = substitute(form, lambda s, left=left, right=right: right if s.name == left and left not in given else s)
    numbers = {name: given.get(name, Fraction(number(name))) for name in names(form)}
    try:
        worth = float(form_evaluate(form, numbers))
    except SymcommError:  # irrational
        worth = float(value(form, {name: Rational(n) for name, n in numbers.items()}))
    return f"{worth:.10g} {made.unit} {' '.join(sorted(made.touched))}".strip()


if __name__ == "__main__":
    found = [answer(*one) for one in questions()]
    KEPT.write_text("[\n" + ",\n".join(map(json.dumps, found)) + "\n]\n", encoding="utf-8")
