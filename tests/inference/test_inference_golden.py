"""Every exact case on inference, asked through public calls: a question is a name, its options and numbers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from fractions import Fraction
from math import ceil
from pathlib import Path
from typing import Any

import pytest
from inference_models import GOLDEN, configuration, model

import symcomm as sc

Case = dict[str, Any]
CASES: dict[str, Case] = {case["id"]: case for case in GOLDEN["cases"]}
CAUSAL = {"half": "causal_half", "full": "full"}
MLA = {
    "expanded": {"mla": "expanded"}, "absorbed": {"mla": "absorbed"}, "cache expanded": {"cache": "heads"},
    "cache latent, absorbed": {"mla": "absorbed"},
    "cache latent, all latents expanded again in the step": {"mla": "expanded"},
    "prefill expanded, decode absorbed": {},
}  # fmt: skip
CONTEXT_PARTS = {"cross": "request", "self": "cache"}
CACHES = {"latent": "latent", "expanded": "heads_with_rope"}


def options(case: Case) -> dict[str, Any]:
    return case.get("options") or {}


def at(case: Case, *names: str) -> dict[str, Fraction]:
    return {name: Fraction(case["at"][name]) for name in names if name in (case["at"] or {})}


def accounting(case: Case) -> dict[str, str]:
    said, found = options(case), dict[str, str]()
    if said.get("cache") in CACHES:
        found["cache"] = CACHES[said["cache"]]
    if "window_cache" in said:
        found["window_cache"] = said["window_cache"]
    if "causal" in said:
        found["attention"] = CAUSAL[said["causal"]]
    return {**found, **MLA[said["mla"]]} if "mla" in said else found


def logits(case: Case) -> dict[str, str]:
    said = options(case).get("logits", "")
    return {"logits": said} if said in ("last", "all", "none") else {}


def bytes_of(number: str) -> str:
    return {"1": "fp8", "2": "bf16", "4": "fp32"}[number]


def cache_token(case: Case) -> Any:
    made = model(case["model"]).kv_cache("token", dtype=bytes_of(case["at"]["b"]), accounting=accounting(case))
    return made.at().value


def cache_sequence(case: Case) -> Any:
    made = model(case["model"]).kv_cache(
        "sequence", options(case).get("strategy"), dtype=bytes_of(case["at"]["b"]), accounting=accounting(case)
    )
    return made.at(**at(case, "c")).value


def cache_pipeline(case: Case) -> Any:
    strategy = options(case)["strategy"]
    return [
        model(case["model"]).kv_cache("sequence", strategy, stage=n, accounting=accounting(case))
        .at(**at(case, "c")).value for n in range(len(case["value"]))
    ]  # fmt: skip


def decode_flops(case: Case) -> Any:
    made = model(case["model"]).decode(new=int(case["at"]["q"]))
    return made.flops(accounting={"attention": "causal_half", **accounting(case)}).at(**at(case, "B", "c")).value


def prefill_flops(case: Case) -> Any:
    made = model(case["model"]).prefill(new="S")
    return made.flops(accounting={**accounting(case), **logits(case)}).at(**at(case, "B", "S")).value


EXPERTS = {"uniform": "expected", "most": "at_most", "least": "at_least"}
BYTES = {"1": "fp8", "2": "bf16"}


def formats(case: Case) -> str:
    said = options(case)
    weights, cache = (BYTES[said[role].split()[0]] for role in ("weights", "cache"))
    return f"weights={weights}, cache={cache}"


def traffic(case: Case) -> Any:
    how = {"expanded": {"cache": "heads_with_rope"}}.get(options(case).get("mla", ""), {})
    said = {"traffic": "weights_and_cache", **how}
    if "experts" in options(case):
        said["experts_read"] = EXPERTS[options(case)["experts"]]
    made = model(case["model"]).decode().traffic(dtype=formats(case), accounting=said)
    return made.at(**at(case, "B", "c")).value


def generate(case: Case) -> Any:
    made = model(case["model"]).at(**at(case, "B"))
    asked = made.generation_flops(int(case["at"]["S"]), int(case["at"]["T"]), accounting=accounting(case))
    return asked.at().value


def copies(case: Case) -> Any:
    made = model(case["model"])
    ranks, strategy = Fraction(case["at"]["t"]), options(case)["strategy"]
    of_a_rank = made.kv_cache("token", strategy)
    return of_a_rank.at().value * ranks / made.kv_cache("token").at().value


def ratio(case: Case) -> Any:
    one, other = (model(name).kv_cache("token").at().value for name in options(case)["models"])
    return one / other


def rates(case: Case) -> dict[str, str]:
    return {"peak": f"{case['at']['R']} FLOP/s", "memory": f"{case['at']['W']} B/s"}


def tpot(case: Case) -> Any:
    made = model(case["model"]).decode_time(accounting="weights_and_cache", **rates(case))
    return made.at(**at(case, "B", "c")).value


ALL_REDUCE = {"2(t-1)": "ring", "alpha +": "one_shot", "log2(t)": "recursive_doubling"}


def tensor_time(case: Case) -> Any:
    """A step under tensor parallelism, with the table of embeddings on each rank; and what of it are all-reduces."""
    numbers = case["at"]
    algorithm = next(name for text, name in ALL_REDUCE.items() if options(case)["all-reduce"].startswith(text))
    said = {"traffic": "matrices_and_cache", "time": "roofline", "algorithm": algorithm, "vocabulary": "mean_part"}
    how = {"network": f"{numbers['W_l']} B/s", "latency": f"{numbers['alpha']} s", "accounting": said, **rates(case)}
    ranks, step = f"tensor({numbers['t']}, embedding=whole)", model(case["model"]).decode()
    made = (step.decode_time(ranks, **how), step.step_time(ranks, of="network", **how))
    return [one.at(**at(case, "B", "c")).value for one in made]


OF_BITS = {"17/4": "int4(64 fp16)", "33/8": "int4(128 fp16)", "9/2": "q4_0", "17/2": "q8_0"}


def quantised_model(case: Case) -> Any:
    """The matrices of a step, those of the layers in few bits; and the table of embeddings, where it is no head."""
    made, said = model(case["model"]), {"traffic": "matrices", "experts_read": "every_expert"}
    tied = GOLDEN["models"][case["model"]].get("tied", False)
    formats = f"weights={OF_BITS[case['at']['bits']]}, {'W^E' if tied else 'W^U'}=bf16"
    read = made.decode().traffic(dtype=formats, accounting=said).at(B=1, c=1).value
    return read if tied else read + made.tensor_size("W^E", dtype="bf16").at().value


def ttft(case: Case) -> Any:
    said = {"attention": "causal_half", "traffic": "weights_and_cache"}
    made = model(case["model"]).prefill_time(
        prompt="S", peak=rates({"at": {**case["at"], "W": 1}})["peak"], utilisation=case["at"]["mfu"], accounting=said
    )
    return made.at(**at(case, "B", "S"), W_mem=10**30).value


def latency(case: Case) -> Any:
    """A prefill that reads its matrices only, the steps of a request behind its prefill, and both."""
    made, (prompt, tokens) = model(case["model"]).at(**at(case, "B")), (int(case["at"][n]) for n in "ST")
    said = {"attention": "causal_half", "traffic": "weights_and_cache"}
    whole = made.request_latency(prompt, tokens, accounting=said, **rates(case)).at().value
    once = {"traffic": "matrices", "experts_read": "every_expert"}
    first, read = (made.prefill_time(prompt=prompt, accounting={**said, **how}, **rates(case)).at().value
                   for how in (once, {}))  # fmt: skip
    return [first, whole - read, first + whole - read]


def matrices(case: Case) -> Fraction:
    """The numbers of the matrices of the layers, of the head and of the embedding, a tied one once."""
    made, said = model(case["model"]), {"traffic": "matrices", "experts_read": "every_expert"}
    read = made.decode().traffic(dtype="fp8", accounting=said).at(B=1, c=1)
    tied = GOLDEN["models"][case["model"]].get("tied", False)
    return Fraction(read.value + (0 if tied else made.tensor_size("W^E", dtype="fp8").at().value))


def even_capacity(case: Case) -> Any:
    """What fits on all ranks where they share each matrix evenly; copies of heads are in the caches only."""
    numbers, ranks = case["at"], int(case["at"]["t"])
    paged = ceil(Fraction(numbers["c"]) / int(numbers["page"])) * int(numbers["page"])
    cache = model(case["model"]).kv_cache("sequence", f"tensor({ranks})", dtype=bytes_of(numbers["b_kv"]))
    room = int(numbers["M"]) - int(options(case)["workspace"])
    weights = {"parameters": matrices(case), "bytes": f"{numbers['b']} B"}
    each = {"token": f"{ranks * cache.at(c=paged).value} B", "tokens": 1}
    return sc.derive("cache_room", devices=ranks, memory=f"{room} B", **weights, **each).at().value


def capacity(case: Case) -> Any:
    numbers, ranks = case["at"], int(case["at"]["t"])
    if ranks > GOLDEN["models"][case["model"]].get("nkv", ranks):
        return even_capacity(case)
    made = model(case["model"]).serving_capacity(
        f"{numbers['M']} B", tokens=int(numbers["c"]), capacity_is="usable", page=int(numbers["page"]),
        strategy=f"tensor({ranks})" if ranks > 1 else None, workspace=f"{options(case)['workspace']} B",
        dtype=f"weights={BYTES[numbers['b']]}, cache={BYTES[numbers['b_kv']]}",
    )  # fmt: skip
    return made.at().value


def verified(case: Case) -> Any:
    """Times of a step and of a verification, and the gain of drafts between them."""
    made, numbers = model(case["model"]), case["at"]
    counted = {"attention": "causal_half", "traffic": "weights_and_cache"}
    step, longer = (made.decode_time(new=new, accounting=counted, **rates(case))
                    .at(**at(case, "B", "c")).value for new in (1, int(numbers["g"]) + 1))  # fmt: skip
    told = {"step": f"{step} s", "verification": f"{longer} s"}
    said = {"acceptance": numbers["a"], "drafts": numbers["g"], "draft_cost": numbers["draft"]}
    return [step, longer, sc.derive("speculative_decoding", want="speedup", **said, **told).at().value]


def handed_over(case: Case) -> Any:
    """The bytes of a prompt's cache."""
    return model(case["model"]).kv_cache("sequence").at(c=int(case["at"]["S"])).value


BESIDE = {"16": "fp16", "20": "fp16 int4", "32": "fp16 fp16"}  # bits of a scale, and of a zero


def quantised_format(case: Case) -> str:
    """The format that a case has in its words: a known one, or groups with a scale and perhaps a zero."""
    known = re.search(r"NF4|MXFP4|NVFP4|Q\d_\d", case["model"].get("format", ""))
    beside = case["at"].get("bits beside a group") or re.search(r"(\d+) bits beside", case["question"])[1]  # type: ignore[index]
    return known[0].lower() if known else f"int{case['at']['bits']}({case['at']['group']} {BESIDE[beside]})"


def quantised(case: Case) -> Any:
    """The bytes of a matrix; eight numbers have as many bytes as one has bits."""
    sizes = {"rows": 8, "cols": 1, **(case["model"] if "rows" in case["model"] else {})}
    table = sc.load("Computation\tInput\tOutput\ny = x W\tx [B, L, R], W [R, C]\ty [B, L, C]\n")
    last = {"last_group": "short"} if "last group" in options(case) else {}
    return table.tensor_size("W", dtype=quantised_format(case), **last).at(R=sizes["rows"], C=sizes["cols"]).value


def cross(case: Case) -> Any:
    """The caches of an encoder's output and of the tokens."""
    made, numbers = model(case["model"]), {"c": int(case["at"]["c"]), "L_enc": int(case["at"]["S_enc"])}
    return [made.kv_cache("sequence", dtype=bytes_of(case["at"]["b"]), kept=CONTEXT_PARTS[part]).at(**numbers).value
            for part in ("cross", "self")]  # fmt: skip


LINEAR = r"""Computation	Input	Output
Q = x W^Q	x [B,L,D], W^Q [D,n P]	Q [B,L,n P]
[Q_1, \dots, Q_n] = Partition(Q)	-	Q_i [B,L,P], i = 1, \dots, n
K = x W^K	W^K [D,n P]	K [B,L,n P]
[K_1, \dots, K_n] = Partition(K)	-	K_i [B,L,P], i = 1, \dots, n
V = x W^V	W^V [D,n R]	V [B,L,n R]
[V_1, \dots, V_n] = Partition(V)	-	V_i [B,L,R], i = 1, \dots, n
A_i = K_i^T V_i	-	A_i [B,P,R]
Z_i = Q_i A_i	-	Z_i [B,L,R]
Z = Merge([Z_1, \dots, Z_n])	-	Z [B,L,n R]
y = Z W^O	W^O [n R,D]	y [B,L,D]
"""


# Mamba-2 (arXiv 2405.21060): a convolution of few taps over x, B and C, and a state of each head.
MAMBA2 = (Path(__file__).parents[1] / "data" / "mamba2.tsv").read_text()


def state_space(name: str, formats: str, allocated: bool = False) -> Any:
    """The bytes that a sequence keeps of a Mamba-2: its states, and the last rows before each convolution."""
    sizes, per_head = GOLDEN["models"][name], 64
    known = {"n": sizes["di"] // per_head, "P": per_head, "S": sizes["ds"], "G": sizes["groups"], "k": sizes["conv"]}
    made = sc.load(MAMBA2, repeat="N").at(N=sizes["N"], D=sizes["D"], **known)
    return made.kv_cache("sequence", dtype=formats, accounting={"window_cache": "w" if allocated else "w-1"})


def linear(case: Case) -> Any:
    """The state of linear attention, as a table has it; a normaliser is a value of 1 beside each token's values."""
    if "models" in options(case):
        name, other = options(case)["models"]
        room, token = state_space(name, "bf16").at().value, model(other).kv_cache("token").at().value
        fits = {"devices": 1, "memory": f"{room} B", "share": 1, "token": f"{token} B", "sequences": 1}
        return sc.derive("cache_room", want="tokens", **fits).at().value + 1  # one token more is larger
    if "normaliser" not in options(case):
        said = options(case)
        wide = {"4": "fp32", "2": "bf16"}[said["state"][0]]
        allocated = said["kept of the convolution's inputs"].startswith("kernel (")
        return state_space(case["model"], f"bf16, h={wide}", allocated).at().value
    sizes, ones = case["model"], int(options(case)["normaliser"])
    made = sc.load(LINEAR, repeat="N").kv_cache("sequence", kept="state", dtype=bytes_of(case["at"]["b"]))
    return made.at(N=sizes["layers"], n=sizes["heads"], P=sizes["d_k"], R=sizes["d_v"] + ones).value


def prefix(case: Case) -> Any:
    """Caches of several sequences whose lengths the question has in its text."""
    first, page = re.search(r"prefix of (\d+) tokens", case["question"]), options(case)["page"]
    assert first is not None
    how = ({}, {"page": page}, {"prefix_is": "copied"})
    made = model(case["model"])
    return [made.cache_of_sequences(lengths(case), prefix=first[1], **one).at().value for one in how]


def lengths(case: Case) -> str:
    return case["question"].partition("[")[2].partition("]")[0]


def waste(case: Case) -> Any:
    made, page, most = model(case["model"]), case["at"]["page"], case["at"]["L_max"]
    how = ({}, {"page": page}, {"reserved": most}, {"page": page, "of": "used"}, {"reserved": most, "of": "used"})
    return [made.cache_of_sequences(lengths(case), **one).at().value for one in how]


def chunks(case: Case) -> Any:
    numbers = case["at"]
    made = model(case["model"]).generation_flops(
        int(numbers["S"]), 1, int(numbers["chunk"]), accounting=accounting(case)
    )
    return made.at(B=1).value


def cross_step(case: Case) -> Any:
    """The operations of the rows that are computed once a request, and of a decode step beside them."""
    made, numbers = model(case["model"]), {**at(case, "B"), "L_enc": int(case["at"]["S_enc"])}
    once = (made.prefill().flops(op=row).at(**numbers).value for row in ("K^C", "V^C"))  # a layer
    return [
        sum(once) * GOLDEN["models"][case["model"]]["N"],
        made.decode().flops().at(**at(case, "c"), **numbers).value,
    ]


def absorbed(case: Case) -> Any:
    """From which context absorbing is cheaper, and from how many queries on expanding again is."""
    made, said = model(case["model"]).at(B=1), {"attention": "causal_half"}
    found = []
    for over, step in (("c", made.decode()), ("q", made.decode(new="q", past=100_000))):
        one, two = (step.flops(accounting={**said, "mla": how}) for how in ("absorbed", "expanded"))
        made_of = sc.crossover(one, two, over, compared=["mla"], between=(1, 4096))
        always = "(first) is less than forward FLOPs (second) for every c from 1" in made_of.notes[-1]
        found.append(1 if always else ceil(made_of.at().value))
    return found


HITS = {"least": ("chosen",), "expected": ("experts", "chosen", "tokens"), "most": ("experts", "chosen", "tokens")}


def hits(case: Case) -> Any:
    numbers = {"experts": case["model"]["E"], "chosen": case["model"]["k"], "tokens": case["at"]["B"]}
    return [sc.derive("expert_hits", want=want, **{n: numbers[n] for n in names}).at().value
            for want, names in HITS.items()]  # fmt: skip


def attention(case: Case) -> Any:
    made = model(case["model"]).attention_intensity(dtype=bytes_of(case["at"]["b"]), accounting=accounting(case))
    return made.at().value


def weights_bound(case: Case) -> Any:
    """The batch of a product with weights; of experts as many as the model has."""
    sizes = GOLDEN["models"][case["model"]] if case.get("model") else {}
    routed = {"experts": sizes["E"], "chosen": sizes["k"]} if sizes else {}
    return sc.derive("compute_bound_batch", bytes=f"{case['at']['b']} B", **routed, **rates(case)).at().value


READS = {"traffic": "matrices_and_cache_read"}


def cache_bound(case: Case) -> Any:
    """The batch behind a context, and the context behind which there is none."""
    left_out = "left out" in options(case)["FLOPs"]
    said = {**READS, **({"attention": "left_out"} if left_out else {})}
    made, how = model(case["model"]), {"dtype": bytes_of(case["at"]["b"]), "accounting": said, **rates(case)}
    try:
        batch = made.critical_batch(**how).at(**at(case, "c")).value
    except sc.SymcommError as error:
        batch = "never" if "no batch is compute bound" in str(error) else str(error)
    return [batch, made.critical_batch(of="context", **how).at().value]


def apart(case: Case) -> Any:
    said = {"traffic": "matrices", "attention": "left_out", "window_cache": "w-1", "experts_read": "every_expert"}
    numbers = rates(case)
    formats = f"weights={bytes_of(case['at']['b'])}, cache={bytes_of(case['at']['b_kv'])}"
    made = (
        model(case["model"])
        .decode()
        .memory_bound_decode(
            want="apart", peak=numbers["peak"], bandwidth=numbers["memory"], dtype=formats, accounting=said
        )
    )
    return made.at(**at(case, "B", "c")).value


def step_time(case: Case) -> Any:
    return apart(case) if "attention apart" in options(case)["time"] else tpot(case)


SHOTS = {"ring": "ring", "doubling": "recursive_doubling", "one-shot": "one_shot"}


def shot(case: Case) -> Any:
    """The payload from which on a ring is faster than one shot."""
    said = {"other": "one_shot", "ranks": int(case["at"]["t"]), "accounting": "divisible"}
    numbers = {"latency": f"{case['at']['alpha']} s", "bandwidth": f"{case['at']['W']} B/s"}
    if any("one shot is less than" in note for note in sc.derive("collective_crossover", **said, **numbers).notes):
        return "one-shot is always faster"
    made = sc.derive("collective_crossover", **said)
    return made.at(alpha=Fraction(case["at"]["alpha"]), W=Fraction(case["at"]["W"])).value


def best_tensor(case: Case) -> Any:
    numbers, sizes = case["at"], case["model"]
    said = {
        "weights": f"{Fraction(numbers['b']) * sizes['P']} B", "layers": sizes["N"], "payload": f"{numbers['n']} B",
        "memory": f"{numbers['W']} B/s", "network": f"{numbers['W_l']} B/s", "latency": f"{numbers['alpha']} s",
        "accounting": SHOTS[options(case)["all-reduce"]],
    }  # fmt: skip
    cuts, shortest = (sc.derive("tensor_latency", want=want, **said).at().value for want in ("cuts", "shortest"))
    return [2**cuts, shortest]


def stages(case: Case) -> Any:
    (times, hop), groups = case["model"].values(), int(case["at"]["groups"])
    said = {"forward": ", ".join(f"{one} s" for one in times), "groups": groups}
    said |= {"hop": f"{hop} s"} if hop != "0" else {}
    return [sc.derive("decode_pipeline_time", of=of, **said).at().value for of in ("gap", "rate")]


def slo(case: Case) -> Any:
    numbers = case["at"]
    said = {"traffic": "matrices", "window_cache": "w-1", "experts_read": "every_expert"}
    made = [model(case["model"]).decode().memory_bound_decode(
        want=want, limit=f"{numbers['limit']} s", bandwidth=f"{numbers['W']} B/s", accounting=said
    ) for want in ("batch", "rate")]  # fmt: skip
    return [one.at(**at(case, "c")).value for one in made]


def chunk(case: Case) -> Any:
    numbers = rates(case)
    said = {"want": "chunk", "sequences": int(case["at"]["B"]), "bytes": f"{case['at']['b']} B", **numbers}
    return sc.derive("compute_bound_batch", **said).at().value


def table(case: Case) -> Any:
    """A row of a published table: times of steps, or what fits."""
    asked = case["question"]
    found = re.search(r"of (\d+) sequences.*printed (\d+) GB and (\S+) GB", asked)
    if found is not None:
        made, heads = model(case["model"]).decode(), "of 8 heads" in asked
        said = {"sequences": int(found[1]), "weights": f"{found[2]} GB", "bandwidth": f"{case['at']['W']} B/s"}
        if heads:
            fewer = {**configuration(case["model"]), "num_key_value_heads": 8}
            made = sc.load(json.dumps(fewer)).decode()
        return [made.memory_bound_decode(cache=f"{found[3]} GB", **said).at().value,
                made.memory_bound_decode(**said).at(c=8192).value]  # fmt: skip
    devices = r"(\d+)-bit weights and cache on (\d+) devices of (\d+) GB, (\S+) parameters.*of (\d+) tokens"
    found = re.search(devices, asked)
    if found is not None:
        wide = Fraction(found[1]) / 8
        token = model(case["model"]).kv_cache("token", dtype=bytes_of(str(wide))).at().value
        of_all = {"parameters": found[4], "bytes": f"{wide} B"}
        room = {**of_all, "devices": int(found[2]), "memory": f"{found[3]} GB"}
        fits = {**room, "token": f"{token} B", "tokens": int(found[5])}
        return [sc.derive("cache_room", want=want, **said).at().value
                for want, said in (("weights", of_all), ("left", room), ("sequences", fits))]  # fmt: skip
    made = sc.derive(
        "cache_room", want="tokens", devices=case["model"]["devices"], memory="32 GiB", share="3/10",
        token=f"{case['at']['bytes a token on all devices']} B", sequences=int(case["at"]["B"]),
    )  # fmt: skip
    return made.at().value


ASKED: dict[str, Callable[[Case], Any]] = {
    "cache.token": cache_token,
    "cache.sequence": cache_sequence,
    "cache.pipeline": cache_pipeline,
    "flops.decode": decode_flops,
    "flops.prefill": prefill_flops,
    "traffic.decode": traffic,
    "flops.generate": generate,
    "cache.copies": copies,
    "cache.ratio": ratio,
    "time.tpot": step_time,
    "time.ttft": ttft,
    "time.tensor": tensor_time,
    "quantised.model": quantised_model,
    "time.latency": latency,
    "capacity": capacity,
    "speculative.derived": verified,
    "disaggregation.cache": handed_over,
    "quantised.bits": quantised,
    "cache.cross": cross,
    "cache.state": linear,
    "cache.prefix": prefix,
    "capacity.waste": waste,
    "flops.chunked": chunks,
    "flops.cross": cross_step,
    "flops.mla": absorbed,
    "traffic.experts": hits,
    "intensity.attention": attention,
    "bound.weights": weights_bound,
    "bound.cache": cache_bound,
    "time.crossover": shot,
    "time.best_tensor": best_tensor,
    "time.pipeline": stages,
    "time.slo": slo,
    "time.chunk": chunk,
    "published.table": table,
    "quantised.matrix": quantised,
}
# What is not asked yet, and what comes out otherwise; each with its reason.
MISSING: dict[str, str] = {
    "time.tensor.4": "the case takes 1/16 of W^K and W^V on a rank, but one with a whole head reads 1/8 of them",
}


# The values of an area that are quantities of ours.
PARTS: dict[str, Any] = {"time.tensor": slice(2), "time.latency": slice(3), "disaggregation.cache": 0}


def wanted(case: Case) -> Any:
    value = case["value"]["total"] if isinstance(case["value"], dict) else case["value"]
    return exact(value[PARTS[case["area"]]] if case["area"] in PARTS else value)


def exact(value: Any) -> Any:
    """A value as exact numbers."""
    if isinstance(value, list):
        return [exact(one) for one in value]
    if isinstance(value, dict):
        return {name: exact(one) for name, one in value.items()}
    try:
        return Fraction(value)
    except ValueError:
        return value


@pytest.mark.parametrize("name", [n for n, case in CASES.items() if case["area"] in ASKED and n not in MISSING])
def test_a_question_on_inference_has_its_exact_answer(name: str) -> None:
    case = CASES[name]
    assert exact(ASKED[case["area"]](case)) == wanted(case)


def test_a_rank_with_a_copy_of_a_head_holds_and_reads_the_weights_of_the_copy() -> None:
    copies = 80 * 2 * 8192 * (128 - 64) * 2  # the half of W^K and of W^V of a head that the mean leaves out, in bytes
    case = CASES["time.tensor.4"]
    assert tensor_time(case)[0] - Fraction(case["value"][0]) == Fraction(copies, int(case["at"]["W"]))
    case = CASES["capacity.4"]
    left = int(case["at"]["M"]) - int(options(case)["workspace"]) - 2 * matrices(case) / 16 - copies
    made = model(case["model"]).serving_capacity(
        "80 GB", tokens=8192, capacity_is="nominal_GB", strategy="tensor(16)", workspace="5 GB", dtype="bf16"
    )
    assert made.at().value == left // (2 * 80 * 128 * 2 * 8192) == int(case["value"]) - 1


@pytest.mark.parametrize("name", MISSING)
def test_what_comes_out_otherwise_still_does(name: str) -> None:
    case = CASES[name]
    try:
        found = exact(ASKED[case["area"]](case))
    except sc.SymcommError:
        return
    assert found != wanted(case), f"takes its place now: {MISSING[name]}"
