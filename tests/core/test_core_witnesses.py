"""Each rule has a witness, and a witness notices a wrong formula: ``check(deep=True)``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from api import (
    ONE,
    QUANTITIES,
    Accounting,
    Ceiling,
    Derivation,
    DerivationError,
    Floor,
    Form,
    Largest,
    Numbers,
    Product,
    Ratio,
    Reason,
    Smallest,
    Step,
    Sym,
    Total,
    ValuesError,
    num,
    product,
    read_problem,
    solve,
)
from api import form as forms
from api import messages_run as run
from api import witnesses_passes as passes

import symcomm as sc

FOLDER = Path(__file__).parents[2] / "examples"
EXAMPLES = sorted(p for p in FOLDER.glob("**/*.md") if p.stem not in ("checkpoints", "cost"))  # worksheets
TABLE = """Computation\tInput\tOutput
h = relu(xW^1)\tx [B, L, D], W^1 [D, F]\th [B, L, F]
y = hW^2\tW^2 [F, D]\ty [B, L, D]
"""
SMALL = sc.load(TABLE, repeat="N", axes={"B": "batch", "L": "sequence"})
GIVEN = SMALL.at(B=8, L=4, D=16, F=32, N=4)
LLAMA = sc.load({"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 8,
                 "num_key_value_heads": 2, "intermediate_size": 96, "vocab_size": 128})  # fmt: skip
EXPERTS = sc.load({"model_type": "mixtral", "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 8,
                   "num_key_value_heads": 2, "intermediate_size": 96, "vocab_size": 128, "num_local_experts": 8,
                   "num_experts_per_tok": 2})  # fmt: skip
RATES = {"peak": "1 TFLOP/s", "memory": "100 GB/s", "network": "20 GB/s"}
SLOW = {"peak": "1000 TFLOP/s", "memory": "1 GB/s"}  # its memory: a utilisation of 1 would be its own reciprocal
CALL = {"payload": "8 MB", "ranks": 8, "latency": "1 us", "bandwidth": "50 GB/s"}
MATRIX = "\tGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\n" + "\n".join(
    row.replace(" ", "\t") for row in (
        "GPU0 X NV2 NV1 SYS PIX SYS 0-15 0", "GPU1 NV2 X SYS NV1 PHB SYS 0-15 0", "GPU2 NV1 SYS X NV2 SYS PXB 16-31 1",
        "GPU3 SYS NV1 NV2 X SYS NODE 16-31 1", "NIC0 PIX PHB SYS SYS X SYS", "NIC1 SYS SYS PXB NODE SYS X",
    )
)  # fmt: skip
LINK = LLAMA.at(w=10**10, o="1 us")
LAW = SMALL.at(alpha="1/3", beta="1/4", A=400, B=410, C=10**20, x="9/10")  # a smaller model that can do it
CHUNKS = SMALL.at(S=10**8, B=10**10, a="10 us", h=7)  # more than one chunk is best
PIPE = "pipeline(p, microbatches=m)"
STEPS = "pipeline(2, microbatches=4)"

SYSTEM = {"formulas": "y_1 = ln(x_1) + x_1 x_2; y_2 = max(x_1, x_2) sin(x_1)", "point": "x_1 = 2, x_2 = 5"}

# quantity -> questions, the quick ones first; each is asked of the small table.
ASKED: dict[str, list[tuple[sc.Model, dict]]] = {
    "parameters": [(SMALL, {}), (LLAMA, {}), (EXPERTS, {"of": "active"})],
    "flops": [(SMALL, {"scope": "training"}), (SMALL, {"accounting": "all_ops"}), (SMALL, {"accounting": "exact_adds"}),
              (SMALL, {"scope": "training", "accounting": "not_needed"}),
              (SMALL, {"scope": "training", "frozen": "W^1"}),
              (LLAMA, {"accounting": "causal_half"}),
              (LLAMA, {"accounting": "causal_half", "documents": "3, 2, 3"})],
    "listing": [(SMALL, {"member": "(x_i, y_i)"})],
    "evaluation_trace": [(SMALL, SYSTEM)],
    "forward_mode": [(SMALL, SYSTEM), (SMALL, {**SYSTEM, "by": "x_2", "of": "y_2"})],
    "reverse_mode": [(SMALL, SYSTEM), (SMALL, {**SYSTEM, "by": "x_2", "of": "y_2"})],
    "jacobian": [(SMALL, SYSTEM), (SMALL, {**SYSTEM, "mode": "forward"})],
    "hessian_product": [(SMALL, {**SYSTEM, "direction": "x_1 = 1, x_2 = -2"})],
    "differentiation_cost": [(SMALL, SYSTEM), (SMALL, {**SYSTEM, "want": "operations"})],
    "trace_memory": [(SMALL, SYSTEM), (SMALL, {**SYSTEM, "every": 2})],
    "checkpoint_memory": [(SMALL, {})],
    "gradients": [(SMALL, {}), (SMALL, {"want": "elements", "of": "W^1"}), (LLAMA, {})],
    "intensity": [(SMALL, {}), (LLAMA, {})],
    "traffic": [(SMALL, {}), (SMALL, {"dtype": "x=fp8, y=fp32"}), (LLAMA, {})],
    "tensor_size": [(SMALL, {"tensor": "h"})],
    "recomputation": [(SMALL, {}), (SMALL, {"count": "all-reduces", "strategy": "tensor(4)"}),
                      (SMALL, {"count": "bytes", "strategy": "tensor(4)"}), (LLAMA, {"count": "hardware_flops"})],
    "state_memory": [(SMALL, {}), (SMALL, {"strategy": "zero-1(k) + tensor(4)"}), (LLAMA, {"strategy": PIPE}),
                     (GIVEN, {"rounding": "requests"}), (GIVEN, {"rounding": "requests", "units": "model"}),
                     (GIVEN, {"strategy": "fsdp(3)", "accounting": "padded_shards", "rounding": "requests"}),
                     (SMALL, {"strategy": PIPE, "schedule": "dualpipe", "of": "weights"})],
    "activation_memory": [(SMALL, {}), (SMALL, {"strategy": PIPE}), (SMALL, {"recomputation": "full", "every": 2}),
                          (SMALL, {"strategy": "pipeline(2, microbatches=4)", "schedule": "interleaved", "chunks": 2}),
                          (SMALL, {"strategy": PIPE, "schedule": "dualpipe"}),
                          (LLAMA, {"strategy": "tensor(2) + sequence"})],
    "allocated_memory": [(SMALL, {}), (GIVEN, {"rounding": "blocks", "workspace": "8 MiB"}),
                         (SMALL, {"held": "labels [B, L] int64, y"})],
    "peak_memory": [(GIVEN, {}), (GIVEN, {"strategy": "fsdp(4)"})],
    "capacity": [(SMALL.at(L=4, D=16, F=32, N=4), {"solve_for": "B", "capacity": "80 MB", "capacity_is": "usable"}),
                 (SMALL, {"solve_for": "k", "capacity": "10 kB", "capacity_is": "usable", "strategy": "fsdp(k)",
                          "include": "states"}),
                 (SMALL.at(L=4, D=16, F=32, N=4), {"solve_for": "B", "capacity": "80 MB", "capacity_is": "usable",
                                                   "strategy": "tensor(4)", "sharded": "1/2"}),
                 (SMALL.at(B=64, L=4, D=16, F=32, N=4), {"solve_for": "k", "capacity": "80 kB",
                                                         "capacity_is": "usable", "strategy": "tensor(k)"})],
    "communication": [(SMALL, {"strategy": "data(k)"}),
                      (SMALL, {"strategy": "fsdp(k)", "accounting": "sent_per_rank"}),
                      (SMALL, {"strategy": "tensor(4) + data(2)", "accounting": "all_links"}),
                      (SMALL, {"strategy": PIPE, "accounting": {"pipeline": "all_boundaries"}}),
                      (SMALL, {"strategy": "data(k)", "accounting": "reduced_every_microbatch", "microbatches": "m"}),
                      (SMALL, {"strategy": "optimizer-sharded(k)"})],
    "collective_time": [(SMALL, {}), (SMALL, {"collective": "all-gather", "accounting": "alpha_beta_gamma"}),
                        (SMALL, {"algorithm": "tree"}), (SMALL, {"collective": "all-to-all"}),
                        (SMALL, {"algorithm": "bruck", "collective": "all-to-all"}),
                        # Axes side by side: the longer one counts, so both have to be as long for every part to show.
                        (SMALL, {"algorithm": "torus_2d", "ranks": 16, "x_ranks": 4,
                                 "accounting": {"torus": "all_axes_at_once", "chunks": "divisible"}}),
                        (SMALL, {"algorithm": "torus_2d", "ranks": 24, "x_ranks": 4, "payload": "1003 B"})],
    "collective_bandwidth": [(SMALL, {"accounting": "busbw"})],
    "collective_table": [(SMALL, CALL)],
    "collective_crossover": [(SMALL, {"other": "tree", **{k: v for k, v in CALL.items() if k != "payload"}})],
    "time": [(SMALL, {"strategy": "tensor(4)"}), (SMALL, {"accounting": "serial"})],
    "step_time": [(SMALL, {"strategy": "data(k)", **RATES}), (SMALL, {"strategy": PIPE}),
                  (SMALL, {"strategy": "data(k)", "of": "exposed", "latency": "10 us"}),
                  (SMALL, {"strategy": "data(k)", "accounting": "per_op"}),
                  (SMALL, {"strategy": "data(k)", "accounting": "with_backward"}),
                  (SMALL, {"strategy": PIPE, "schedule": "interleaved", "chunks": 2}),
                  (SMALL.at(N=8), {"strategy": "pipeline(4, microbatches=8)", "schedule": "zb-h1", "of": "exposed",
                                    "accounting": "serial"}),
                  (LLAMA, {"strategy": f"{STEPS} + data(2)",
                           "accounting": {"gradient_sync": "with_backward", "time": "serial"}}),
                  (LLAMA, {"strategy": STEPS, "schedule": "1f1b"}), (LLAMA, {"strategy": STEPS})],
    "throughput": [(SMALL, {"of": "mfu", **SLOW}), (SMALL, {"of": "hfu", "accounting": "full_recomputation", **SLOW}),
                   (SMALL, {"of": "mfu", "step": "2 ms", **SLOW}),
                   (SMALL, {"of": "tokens_per_second", "achieved": "200 TFLOP/s"}),
                   (EXPERTS, {"of": "flops_per_token", "accounting": "6nd"}),
                   (SMALL, {"of": "days", "mfu": "1/2", "budget": "1e9 tokens"}),
                   (SMALL, {"of": "device_hours", "strategy": "data(4)", "budget": "1e9 tokens", "accounting": "6nd"})],
    "training_cost": [(SMALL, {"of": of}) for of in ("dollars", "device_hours", "energy", "carbon")],
    "goodput": [(SMALL, {"of": of, "storage": "1 GB/s", **more}) for of, more in (
        ("goodput", {"strategy": "data(4)"}), ("interval", {"restart": "5 min"}), ("lost", {}))] + [
        (SMALL, {"of": of, "checkpoint_time": "7 s"}) for of in ("daly", "exact", "run_time")],
    "noise_scale_batch": [(SMALL, {"of": of}) for of in ("steps", "tokens", "time")],
    "roofline": [(SMALL, {})],
    "scaling": [(SMALL, {"strategy": "data(k)"}), (SMALL, {"strategy": "data(k)", "kind": "weak"}),
                (SMALL, {"strategy": PIPE})],
    "bound": [(SMALL, {}), (SMALL, {"tensor": "h"})],
    "balance": [(SMALL, {})],
    "compute_bound": [(SMALL, {"strategy": "fsdp(X) + tensor(Y)"}),
                      (SMALL, {"strategy": "fsdp(X) + tensor(Y)", "numbers": "whole"})],
    "mesh_split": [(SMALL, {"strategy": "fsdp(X) + tensor(Y)", "devices": "n"}),
                   (SMALL, {"strategy": "fsdp(X) + tensor(Y)", "devices": "n", "want": "least",
                            "accounting": "serial"}),
                   (SMALL, {"strategy": "fsdp(X) + tensor(Y)", "devices": "n", "want": "least", "least": "batch"})],
    "crossover": [(SMALL, {"between": "compute, memory", "over": "B"})],
    "pipeline_time": [(SMALL, {}), (SMALL, {"want": "chunks"}), (SMALL, {"stages": "6 ms, 2 ms"}),
                      (SMALL, {"schedule": "1f1b"}), (SMALL, {"want": "full_steps"})],
    "buckets": [(SMALL, {}), (SMALL, {"want": "number"}), (SMALL, {"want": "size"}), (SMALL, {"want": "least"})],
    "measurement": [(SMALL, {"want": "deviation", "values": "1 s, 2 s, 4 s"}),
                    (SMALL, {"want": "increase", "values": "2 s, 3 s"}),
                    (SMALL, {"want": "intercept", "through": "1: 3 s, 2: 5 s, 4: 8 s"})],
    "stages": [(SMALL, {"strategy": "pipeline(p, microbatches=m)"})],
    "bucket_cap": [(LINK, {"first": "1 MiB"}), (LINK, {}), (LINK.at(o="6 us"), {"rho": "1/2"})],
    "topology": [(SMALL, {"matrix": MATRIX, "between": "GPU0, GPU1"}), (SMALL, {"link_rate": "25 GB/s"}),
                 (SMALL, {"matrix": MATRIX, "between": "GPU0, NIC0", "accounting": "bidirectional"}),
                 *((SMALL, {"matrix": MATRIX, "about": about})
                   for about in ("bisection", "direct_links", "ring", "numa", "missing")),
                 (SMALL, {"matrix": MATRIX, "about": "bisection", "switch": "yes"}),
                 (SMALL, {"matrix": MATRIX, "about": "nic", "between": "GPU1"}),
                 (SMALL, {"about": "direct_links"}), (SMALL, {"about": "bisection", "switch": "no"}),
                 (SMALL, {"about": "bisection", "switch": "yes", "gpus": 8})],
    "peak_rate": [(SMALL, {}), (SMALL, {"accounting": "mac"}), (SMALL, {"device": "A100-80GB-SXM", "dtype": "fp16"})],
    "broadcast": [(SMALL, {"plan": "pipelined"}), *((SMALL, {"plan": plan}) for plan in ("host", "serial", "relay")),
                  (SMALL, {"plan": "relay", "latency": 0}), (SMALL, {"about": "gpu_copy"}),
                  (SMALL, {"about": "host_copy", "size": "4 GB"}), (SMALL, {"about": "gpu_copy", "size": "4 GB"}),
                  (SMALL, {"about": "speedup"})],
    "pipelined_broadcast": [(CHUNKS, {}), (CHUNKS, {"want": "chunks"}), (CHUNKS, {"want": "whole_chunks"}),
                            (CHUNKS, {"want": "least"})],
    "kv_cache": [(LLAMA, {}), (LLAMA, {"of": "token"}), (LLAMA, {"strategy": "tensor(2)", "of": "sequence"})],
    "prefill_time": [(LLAMA, RATES), (LLAMA, {**RATES, "strategy": "tensor(2)"})],
    "decode_time": [(LLAMA, RATES), (LLAMA, {**RATES, "new": 5})],
    "request_latency": [(LLAMA.at(B=2), {**RATES, "prompt": 32, "tokens": 8})],
    "generation_flops": [(LLAMA, {"prompt": 32, "tokens": 8})],
    "decode_throughput": [(LLAMA, RATES), (LLAMA, {**RATES, "strategy": "tensor(2)", "per": "device"})],
    "critical_batch": [(LLAMA.at(c=4), RATES), (LLAMA, {**RATES, "of": "context", "accounting": "matrices_and_cache"})],
    "cache_of_sequences": [(LLAMA, {"lengths": "3, 5, 4", "page": 4, "prefix": 6}),
                           (LLAMA, {"lengths": "3, 5", "reserved": 8, "of": "used", "strategy": "tensor(2)"})],
    "attention_intensity": [(LLAMA, {})],
    "decode_pipeline_time": [(SMALL, {"forward": "3 s, 5 s", "groups": 2, "of": of}) for of in ("gap", "rate")]
    + [(SMALL, {"forward": "3 s, 5 s", "hop": "1 s", "of": "groups"})],
    "cache_room": [
        (SMALL, {"devices": 2, "memory": "8 GB", "parameters": 10**9, "token": "1 MB", "tokens": 64}),
        (SMALL, {"want": "tokens", "memory": "8 GB", "token": "1 MB", "sequences": 4, "share": "0.9"}),
        (SMALL, {"want": "weights", "parameters": 10**9}),
        (SMALL, {"want": "left", "memory": "8 GB", "parameters": 10**9}),
    ],
    "compute_bound_batch": [(SMALL, {"peak": "989 TFLOP/s", "memory": "3 TB/s"}),
                            (SMALL, {"want": "chunk", "peak": "989 TFLOP/s", "memory": "3 TB/s", "sequences": 64})],
    "expert_hits": [(SMALL, {"experts": 8, "chosen": 2, "tokens": 3}), (SMALL, {"want": "least", "chosen": 2}),
                    (SMALL, {"want": "most", "experts": 8, "chosen": 2, "tokens": 3})],
    "memory_bound_decode": [
        *((LLAMA.decode().at(c=4), {"want": want, "accounting": "matrices", **more}) for want, more in (
            ("step", {"sequences": 4, "bandwidth": "3 TB/s"}), ("batch", {"limit": "1 s", "bandwidth": "3 GB/s"}),
            ("rate", {"limit": "1 s", "bandwidth": "3 GB/s"}))),
        (LLAMA.decode().at(c=4), {"want": "apart", "peak": "1 TFLOP/s", "bandwidth": "3 GB/s",
                                  "accounting": {"traffic": "matrices", "attention": "left_out"}}),
    ],
    "tensor_latency": [
        (SMALL, {"want": want, "weights": "14 GB", "layers": 32, "payload": "16384 B", "memory": "3 TB/s",
                 "network": "450 GB/s", "latency": "3 us", "accounting": algorithm, **more})
        for want, more in (("time", {"ranks": 8}), ("cuts", {"most_ranks": 16}), ("shortest", {}))
        for algorithm in ("ring", "recursive_doubling", "one_shot")
    ],
    "serving_capacity": [(LLAMA.at(c=64), {"capacity": "1 GB", "capacity_is": "nominal_GB", "page": 16})],
    "speculative_decoding": [
        (SMALL, {"acceptance": "4/5", "drafts": 4}),
        (SMALL, {"want": "speedup", "acceptance": "4/5", "drafts": 4, "draft_cost": "1/20"}),
        *((SMALL, {"want": want, "acceptance": "4/5", "draft_cost": "1/20"}) for want in ("positions", "greatest")),
    ],
    "parameter_server": [
        (SMALL, {"want": want, "workers": 8, "servers": 2, **more})
        for want, more in (("time", {"bandwidth": "10 GB/s"}), ("bytes", {}), ("ratio", {"bandwidth": "10 GB/s"}))
    ],
    "local_updates": [(SMALL, {"parameters": 400, "number_bytes": "4 B", "replicas": 8, "steps": 50}),
                      (SMALL, {"want": "time", "parameters": 400, "number_bytes": "4 B", "replicas": 8, "steps": 50,
                               "step": "1 s", "bandwidth": "1 GB/s"}),
                      (SMALL, {"want": "memory", "parameters": 400})],
    "compressed_gradients": [
        *((SMALL, {"want": want, "rows": 100, "columns": 400, "rank": 4, "number_bytes": "4 B", "replicas": 8})
          for want in ("power_sgd", "saving")),
        (SMALL, {"want": "top_k", "entries": 400, "number_bytes": "4 B", "index_bytes": "4 B", "replicas": 8}),
        (SMALL, {"want": "signs_part", "rows": 100, "columns": 400, "number_bytes": "4 B"}),
    ],
    "product_tiles": [
        *((SMALL, {"want": want, "rows": 400, "columns": 410, "tile_rows": 128, "tile_columns": 64, "units": 9})
          for want in ("efficiency", "waves", "last_wave")),
        (SMALL, {"want": "edges", "rows": 400, "columns": 410, "tile_rows": 128, "tile_columns": 64}),
        (SMALL, {"want": "time", "rows": 400, "columns": 410, "tile_rows": 128, "tile_columns": 64, "units": 9,
                 "summed": 16, "peak": "1 TFLOP/s"}),
    ],
    "training_run": [
        (SMALL, {"parameters": 400, "tokens": 50, "devices": 8, "peak": "1 TFLOP/s", "mfu": "2/5"}),
        (SMALL, {"want": "dollars", "hours": "70 device*hour", "price": "2 dollar/(device*hour)"}),
        (SMALL, {"want": "carbon", "hours": "70 device*hour", "power": "400 watt/device", "pue": "11/10",
                 "carbon": "0.4 kgCO2/kWh"}),
        (SMALL, {"want": "device_hours", "tokens": 50, "hours_per_trillion": "70 device*hour"}),
        (SMALL, {"want": "hours_each", "hours": "70 device*hour", "devices": 8}),
        (SMALL, {"want": "between_failures", "device_failures": "50 hour", "devices": 8}),
        (SMALL, {"want": "device_failures_seen", "seen": "50 hour", "failures": 7, "devices": 8}),
    ],
    "offload_efficiency": [
        *((SMALL, {"want": want, "intensity": "70 FLOP/byte", "peak": "1 TFLOP/s", **more}) for want, more in (
            ("efficiency", {"bandwidth": "8 GB/s"}), ("bandwidth", {"efficiency": "2/5"}))),
        *((SMALL, {"want": want, "tokens": 50}) for want in ("parameters_intensity", "states_intensity")),
        (SMALL, {"want": "checkpoints_intensity", "hidden": 16}),
        *((SMALL, {"want": want, "sequences": 2, "length": 16, "hidden": 8, **more}) for want, more in (
            ("forward", {"peak": "1 TFLOP/s"}), ("copy", {"bytes": "34 B", "bandwidth": "8 GB/s"}),
            ("hidden", {"bytes": "34 B", "peak": "1 TFLOP/s", "bandwidth": "8 GB/s"}))),
        (SMALL, {"want": "width", "bytes": "34 B", "peak": "1 TFLOP/s", "bandwidth": "8 GB/s"}),
    ],
    "adam_step": [(SMALL, {"weight": "0.5", "gradient": "0.2", "moment": "0.1", "second_moment": "0.09", "step": 2})],
    "ulysses_and_ring": [(SMALL, {"heads": 32, "kv_heads": heads}) for heads in (4, 16)],
    "packing": [(SMALL, {"lengths": "5, 3, 4, 7", "row": 9, "want": want})
                for want in ("used", "rows", "padded", "longest", "pairs", "pairs_across")],
    "update_flops": [(GIVEN, {}), (LLAMA, {"recipe": "fp32_muon(iterations=6)"}),
                     (LLAMA, {"recipe": "fp32_adafactor(side=8)", "accounting": "all_ops"})],
    "update_traffic": [(GIVEN, {}), (LLAMA, {"recipe": "fp32_shampoo"})],
    "amdahl": [
        *((SMALL, {"want": want, "serial": "1/20", "devices": 8}) for want in ("speedup", "efficiency", "scaled")),
        (SMALL, {"want": "limit", "serial": "1/20"}),
    ],
    "ring_attention": [
        (SMALL, {"ranks": 4, "compute": "3 second", "send": "2 second"}),
        *((SMALL, {"want": want, "ranks": 4, "length": 16}) for want in ("pairs", "most")),
        (SMALL, {"want": "imbalance", "ranks": 4, "length": 16, "accounting": "causal_half"}),
        (SMALL, {"want": "flops", "ranks": 4, "length": 16, "heads": 4, "head_size": 2}),
        *((SMALL, {"want": want, "ranks": 4, "length": 16, "kv_heads": 8, "head_size": 2})
          for want in ("own", "memory", "gathered")),
        (SMALL, {"want": "tokens", "peak": "989 TFLOP/s", "bandwidth": "50 GB/s", "heads": 64, "kv_heads": 8}),
    ],
    "serving_cost": [(SMALL, {"price": "2 dollar/hour", "devices": 8, "tokens_per_second": "1000 token/second"}),
                     (SMALL, {"want": "energy", "power": "700 watt", "devices": 8,
                              "tokens_per_second": "1000 token/second"})],
    "prefill_decode_balance": [(SMALL, {"prefill": "1 s", "step": "0.02 s", "sequences": 32, "generated": 512}),
                               (SMALL, {"want": "evicted", "sequences": 32, "prompt": 64, "generated": 16})],
    "scaling_law": [(LAW, {"want": want}) for want in (
        "parameters", "tokens", "tokens_per_parameter", "exponent_parameters", "exponent_tokens",
        "coefficient_parameters", "coefficient_tokens", "doubling", "loss", "break_even", "rule_compute",
        "rule_crossover", "rule_tokens_per_parameter", "same_compute")],
    "einsum": [(SMALL, {"subscripts": "bij,bjk->bik", "shapes": "[B, L, D], [B, D, F]"}),
               *((SMALL, {"subscripts": "bij,bjk,kl->bil", "shapes": "[B, L, D], [B, D, F], [F, N]", **more})
                 for more in ({"count": "mul_add"}, {"count": "opt_einsum"}, {"want": "backward"},
                              {"want": "elements"})),
               *((SMALL, {"subscripts": "ij,jk,klm->im", "shapes": "[10, 100], [100, 5], [5, 50, 3]", "want": want})
                 for want in ("best_order", "worst_order", "left_to_right", "sums_first", "largest_intermediate"))],
    "cast_copies": [(SMALL, {"dtype": "autocast(bf16)"}), (SMALL, {"dtype": "autocast(fp16)", "of": "all"})],
    "number_format": [(SMALL, {"dtype": dtype, "want": want}) for dtype, wants in (
        ("fp16", ("largest", "smallest_normal", "smallest_subnormal", "epsilon", "unit_roundoff",
                  "integers_exact_up_to", "finite_values", "nan_codes")),
        ("fp8_e4m3fn", ("largest", "finite_values", "nan_codes")), ("int8", ("largest", "finite_values")),
        ("fp8_e3m4", ("largest", "smallest_subnormal", "integers_exact_up_to"))) for want in wants],
    "rounded": [(SMALL, {"x": x, "dtype": dtype, "want": want}) for x, dtype in (
        ("1/3", "bf16"), ("2049", "fp16"), ("-0.00001", "fp16"), ("3.7", "int8"))
        for want in ("value", "error", "relative_error", *(["spacing"] if dtype != "int8" else []))],
    "accumulation": [(SMALL, {"x": "0.1", "n": 1000, "accumulator": "fp16", "want": want, **more}) for want, more in (
        ("sum", {}), ("sum", {"method": "pairwise"}), ("error", {}), ("representation_error", {}),
        ("accumulation_error", {}), ("bound", {}), ("bound", {"method": "pairwise"}), ("limit", {}),
        ("last_change", {}), ("last_change", {"x": "1e-8"}), ("overflow", {"x": "100"}),
        ("overflow", {"x": "7", "accumulator": "int8"}))],
    "loss_scaling": [(SMALL, {"dtype": "fp16", "want": want, **more}) for want, more in (
        ("smallest", {"scale": 1024}), ("smallest_normal", {"scale": 1024}), ("largest", {"scale": 1024}),
        ("flushed_up_to", {"scale": 1024}), ("least_scale", {"gradient": "1e-9"}),
        ("largest_scale", {"gradient": "7"}))],
}  # fmt: skip
ONCE = [pytest.param(name, 0, id=name) for name in ASKED]
EVERY = [pytest.param(name, n, id=f"{name}-{n}") for name in ASKED for n in range(1, len(ASKED[name]))]


def asked(name: str, number: int) -> Derivation:
    model, options = ASKED[name][number]
    return model.derive(name, **options)


def test_every_quantity_is_asked_here() -> None:
    assert {*ASKED} == {*QUANTITIES}


@pytest.mark.few(18)
@pytest.mark.parametrize(("name", "number"), ONCE)
def test_witnesses_bear_out_every_rule_of_a_quantity(name: str, number: int) -> None:
    asked(name, number).check(deep=True)


@pytest.mark.long
@pytest.mark.parametrize(("name", "number"), EVERY)
def test_witnesses_bear_out_every_rule_of_a_quantity_in_other_cases(name: str, number: int) -> None:
    asked(name, number).check(deep=True)


def wrong(form: Form) -> Iterator[Form]:
    """Formulas that a careless rule might have written instead."""
    yield product(num(2), form)
    yield Total((form, Ratio(form, num(3))))
    match form:
        case Ratio(top, bottom):
            yield Ratio(bottom, top)
        case Total(terms):
            yield Total(terms[:-1])
        case Product(factors):
            yield Product(factors[1:])
        case Largest(choices):
            yield Smallest(choices)
        case Smallest(choices):
            yield Largest(choices)
        case Ceiling(inside):
            yield Floor(inside)


def noticed(d: Derivation, at: int, other: Form) -> bool:
    """Whether anything refuses a derivation whose rule number ``at`` gave another form."""
    rules = [step for step in d.steps if step.relation == ":="]
    steps = [replace(step, form=other) if n == at else step for n, step in enumerate(rules)]
    try:  # what follows from a rule is collected from what it gave: only the rules are kept
        made = Derivation(d.title, d.accounting, tuple(steps), relations=d.relations, given=d.given, where=d.where)
        made.check(deep=True)
    except (DerivationError, ValuesError):
        return True
    return False


def survivors(d: Derivation) -> list[str]:
    """The wrong forms that nothing notices; those that are worth the same are none."""
    rules = [step for step in d.steps if step.relation == ":="]
    found = []
    for n, step in enumerate(rules):
        for other in wrong(step.form):
            known = {name: worth for name, worth in d.worth.items() if name != step.name}
            if forms.value(other, known) != forms.value(step.form, known) and not noticed(d, n, other):
                found.append(f"{step.name} = {other}")
    return found


QUICK = ("parameters", "traffic", "tensor_size", "state_memory", "communication", "collective_bandwidth", "measurement",
         "pipeline_time", "buckets", "topology", "broadcast", "peak_rate")  # fmt: skip


@pytest.mark.parametrize("name", QUICK)
def test_a_wrong_formula_of_a_rule_is_noticed(name: str) -> None:
    assert survivors(asked(name, 0)) == []


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "number"), [*(p for p in ONCE if p.values[0] not in QUICK), *EVERY]
)  # fmt: skip
def test_a_wrong_formula_of_a_rule_is_noticed_in_other_cases(name: str, number: int) -> None:
    assert survivors(asked(name, number)) == []


def test_a_wrong_formula_is_told_with_the_numbers_at_which_it_fails() -> None:
    d = SMALL.parameters()
    steps = [s if s.name != "P" else replace(s, form=product(num(2), s.form)) for s in d.steps if s.relation == ":="]
    with pytest.raises(DerivationError) as caught:
        replace(d, steps=tuple(steps)).check(deep=True)
    assert str(caught.value) == (
        "P (repeat) is 9216 at D = 12, F = 24, N = 8, but its witness counts 4608 in the derivation of Parameters"
    )


def test_a_rule_without_a_witness_is_told() -> None:
    step = Step("V", product(num(2), Sym("D")), ONE, Reason("guess", "so it seems"))
    d = Derivation("volume", Accounting(), (step,))
    with pytest.raises(DerivationError, match=r"no witness sees V \(guess\) in the derivation of volume"):
        d.check(deep=True)


def test_a_step_is_seen_by_the_witness_of_what_is_made_of_it() -> None:
    seen = Reason("double", "twice", witness=lambda numbers: 6 * numbers["D"])
    steps = (
        Step("a", product(num(3), Sym("D")), ONE, Reason("r", "t")),
        Step("b", product(num(2), Sym("a")), ONE, seen),
    )
    Derivation("d", Accounting(), steps).check(deep=True)
    wrong_a = replace(steps[0], form=product(num(4), Sym("D")))
    with pytest.raises(DerivationError, match="its witness counts"):
        Derivation("d", Accounting(), (wrong_a, steps[1])).check(deep=True)


def test_tiny_numbers_keep_the_relations_and_what_is_given() -> None:
    from api import Relations

    heads = Relations((("D", product(Sym("n_H"), Sym("H"))),))
    numbers = Numbers({"D": Fraction(4096), "n_H": Fraction(32)}, heads)
    assert numbers["H"] == 128
    made = Numbers({}, heads)
    assert made["D"] == made["n_H"] * made["H"]


@pytest.mark.parametrize("k", [2, 3, 4, 7])
def test_a_ring_passes_each_chunk_as_often_as_it_is_known_to(k: int) -> None:
    for kind, times in (("all-reduce", 2), ("all-gather", 1), ("reduce-scatter", 1)):
        made = run("ring", kind, k, Fraction(1))
        assert made is not None
        assert (made.sent, made.moved, made.rounds) == (Fraction(times * (k - 1), k), 2 * made.sent, times * (k - 1))
    assert passes([Fraction(k)] * 3) == k**3


@pytest.mark.long
@pytest.mark.parametrize("path", EXAMPLES, ids=[p.stem for p in EXAMPLES])
def test_witnesses_bear_out_the_answers_of_the_examples(path: Path) -> None:
    for answer in solve(read_problem(path)).answers():
        answer.derivation.check(deep=True)
