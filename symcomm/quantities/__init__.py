"""The passes: each derives one quantity from the graph. One file a pass, one record here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, cast

from symcomm.quantities.options import (
    CALL,
    COLLECTIVE,
    DTYPE,
    FROZEN,
    GRADIENTS,
    KINDS,
    LINKS,
    MESH_PHASE,
    MICROBATCHES,
    OP,
    PASS,
    PATHS,
    RATES,
    RATES_BUT_MEMORY,
    RECIPE,
    RECOMPUTATION,
    STAGED,
    STRATEGY,
    Option,
)

if TYPE_CHECKING:
    from symcomm.derivation import Derivation


@dataclass(frozen=True)
class Pass:
    """A quantity that can be derived; ``derive(setting, **options)`` makes the derivation."""

    name: str
    summary: str
    options: tuple[Option, ...] = ()
    needs_model: bool = True

    @property
    def group(self) -> str:
        """The folder that holds its file."""
        [file] = Path(__file__).parent.glob(f"*/{self.name}.py")
        return file.parent.name

    @cached_property
    def derive(self) -> Callable[..., Derivation]:
        """The function that derives it, imported when it is first used."""
        return cast("Callable[..., Derivation]", import_module(f"symcomm.quantities.{self.group}.{self.name}").derive)


PASSES: dict[str, Pass] = {
    p.name: p
    for p in (
        Pass("parameters", "the number of parameters"),
        Pass(
            "flops",
            "the floating-point operations of a pass",
            (Option("scope", "choice:forward|backward|training", "which pass is counted", "forward"), OP),
        ),
        Pass("traffic", "the bytes moved when each operand is read and each result written once", (OP, DTYPE)),
        Pass("intensity", "the arithmetic intensity: operations per byte moved", (OP, DTYPE)),
        Pass("tensor_size", "the bytes of one tensor", (Option("tensor", "text", "the name of the tensor"), DTYPE)),
        Pass(
            "communication",
            "the bytes that a parallel strategy moves in a training iteration",
            (
                STRATEGY,
                Option("collective", f"choice:{KINDS}", "only calls of this kind"),
                Option("phase", "choice:forward|backward|update", "only calls of this phase"),
                DTYPE,
                Option("gradient_dtype", "dtype", "the number format in which gradients of weights are reduced"),
            ),
        ),
        Pass("stages", "the number of pipeline stages", (STRATEGY,)),
        Pass(
            "state_memory",
            "the bytes of weights, gradients and optimizer states on one rank",
            (STRATEGY, RECIPE, FROZEN),
        ),
        Pass(
            "activation_memory",
            "the bytes of activations that one rank keeps for the backward pass",
            (
                STRATEGY,
                DTYPE,
                RECOMPUTATION,
                *STAGED,
                FROZEN,
            ),
        ),
        Pass(
            "recomputation",
            "what recomputation runs a second time",
            (
                RECOMPUTATION,
                Option("count", "choice:flops|hardware_flops|all-reduces|bytes", "what is counted", "flops"),
                STRATEGY,
            ),
        ),
        Pass(
            "allocated_memory",
            "the bytes that an allocator has given out when the backward pass begins",
            (
                Option("held", "text", "tensors that the program still refers to, with commas between them"),
                Option("workspace", "quantity", "what a library keeps for itself, such as 32 MiB"),
                Option("rounding", "choice:requests|blocks|none", "how the allocator rounds", "requests"),
                DTYPE,
            ),
        ),
        Pass(
            "peak_memory",
            "the most bytes alive at once on one rank in a training step, and the op during which they are",
            (
                STRATEGY,
                RECIPE,
                DTYPE,
                RECOMPUTATION,
                *STAGED,
                FROZEN,
                Option(
                    "step",
                    "choice:forward|first|later",
                    "the forward pass alone, the first step or a later one",
                    "later",
                ),
                Option("held", "text", "tensors that the program still refers to, with commas between them"),
                Option("workspace", "quantity", "what a library keeps for the thread of each pass, such as 32 MiB"),
                Option("rounding", "choice:requests|blocks|none", "how the allocator rounds", "none"),
                Option("update_copies", "size", "the fp32 copies of one weight that its update makes, such as 5"),
                Option(
                    "tables",
                    "choice:shared|per_layer",
                    "whether each layer makes its own masks and rotations",
                    "shared",
                ),
                Option("units", "choice:layer|model", "what full sharding gathers at once", "layer"),
                Option(
                    "buckets", "choice:none|copy", "whether data parallelism copies gradients to flat buckets", "none"
                ),
            ),
        ),
        Pass(
            "capacity",
            "the fewest ranks, or the largest size, with which one rank's memory fits a device",
            (
                Option("solve_for", "text", "the symbol to solve for: a degree of the strategy or a size"),
                Option("capacity", "quantity", "the memory of a device, such as 80 GB"),
                Option("capacity_is", "choice:nominal_GB|nominal_GiB|usable", "what the capacity means; must be said"),
                STRATEGY,
                RECIPE,
                Option(
                    "include",
                    "choice:states|activations|states and activations",
                    "what has to fit",
                    "states and activations",
                ),
                RECOMPUTATION,
                FROZEN,
            ),
        ),
        Pass(
            "time",
            "the time of a layer on one rank: computing, memory and network",
            (
                STRATEGY,
                PASS,
                Option("term", "choice:compute|memory|network", "only this term"),
                OP,
                DTYPE,
                GRADIENTS,
                *RATES,
            ),
        ),
        Pass(
            "roofline",
            "the rate an op can reach on a machine, and what limits it",
            (OP, PASS, STRATEGY, DTYPE, *RATES),
        ),
        Pass(
            "crossover",
            "the rate or size at which two terms of a time are equal",
            (
                Option("between", "text", "two of compute, memory and network, with a comma between them"),
                Option("over", "text", "the symbol to solve for"),
                STRATEGY,
                PASS,
                OP,
                DTYPE,
                GRADIENTS,
                *RATES,
            ),
        ),
        Pass(
            "compute_bound",
            "the batch from which on computing takes longer than the communication of a strategy",
            (
                STRATEGY,
                MESH_PHASE,
                Option("over", "text", "the symbol to solve for, where it is not the batch"),
                Option("per", "choice:total|device", "the batch of all devices, or of one", "total"),
                Option("numbers", "choice:real|whole", "over real or whole numbers", "real"),
                LINKS,
                DTYPE,
                GRADIENTS,
                *RATES_BUT_MEMORY,
            ),
        ),
        Pass(
            "mesh_split",
            "the best split of devices into the two axes of a mesh",
            (
                STRATEGY,
                Option("devices", "size", "the number of devices, or its symbol"),
                Option("least", "choice:communication|batch", "what is made small", "communication"),
                Option("numbers", "choice:real|whole", "over the real numbers, or the divisors", "real"),
                MESH_PHASE,
                LINKS,
                DTYPE,
                GRADIENTS,
                *RATES_BUT_MEMORY,
            ),
        ),
        Pass(
            "bound",
            "the least time that physics allows, or the rate that a measured time implies",
            (
                Option("of", "choice:least_time|implied_rate|implied_bandwidth", "what is asked", "least_time"),
                OP,
                Option("tensor", "text", "only writing this tensor once"),
                PASS,
                Option("measured", "quantity", "a measured time, such as 0.000222 s"),
                DTYPE,
                *RATES,
            ),
        ),
        Pass(
            "step_time",
            "the time of a training step under a strategy",
            (
                STRATEGY,
                MICROBATCHES,
                Option("of", "choice:step|exposed|hidden|network", "the step, or a part of its communication", "step"),
                DTYPE,
                GRADIENTS,
                *RATES,
            ),
        ),
        Pass(
            "throughput",
            "tokens a second, utilisation, days and device-hours of training",
            (
                STRATEGY,
                Option(
                    "of",
                    "choice:tokens_per_second|flops_per_token|mfu|hfu|days|device_hours|devices",
                    "what is asked",
                    "tokens_per_second",
                ),
                MICROBATCHES,
                Option("mfu", "text", "the model FLOP utilisation, where no time is derived, such as 1/2"),
                Option("devices_used", "size", "how many devices, where no strategy says it"),
                Option("budget", "quantity", "the tokens to train on, such as 300e9 tokens"),
                DTYPE,
                GRADIENTS,
                *RATES,
            ),
        ),
        Pass(
            "scaling",
            "the speed-up and the efficiency of more ranks",
            (
                STRATEGY,
                Option("kind", "choice:strong|weak|speedup", "at one batch, or at one batch a rank", "strong"),
                Option("over", "text", "the symbol that counts the ranks"),
                MICROBATCHES,
                DTYPE,
                GRADIENTS,
                *RATES,
            ),
        ),
        Pass(
            "balance",
            "the ops:byte ratio of a machine",
            (
                Option("clock", "quantity", "the clock rate, where the peak rate is derived"),
                Option("units", "quantity", "the number of multiprocessors"),
                Option("fma", "quantity", "multiply-adds per clock and multiprocessor"),
                *RATES[:3],
            ),
            needs_model=False,
        ),
        Pass(
            "collective_time",
            "the time of a collective under an algorithm",
            (COLLECTIVE, Option("algorithm", "text", "ring, tree, halving_doubling, ..."), *CALL),
            needs_model=False,
        ),
        Pass(
            "collective_table",
            "the fastest algorithm for a collective, and all others beside it",
            (COLLECTIVE, *CALL),
            needs_model=False,
        ),
        Pass(
            "collective_crossover",
            "where one algorithm of a collective overtakes another",
            (
                COLLECTIVE,
                Option("algorithm", "text", "the first algorithm", "ring"),
                Option("other", "text", "the second algorithm", "tree"),
                Option("over", "text", "payload, ranks, bandwidth or latency", "payload"),
                *CALL,
            ),
            needs_model=False,
        ),
        Pass(
            "collective_bandwidth",
            "the algorithm or bus bandwidth of a measured collective",
            (
                COLLECTIVE,
                Option("payload", "quantity", "the bytes of the full tensor"),
                Option("ranks", "size", "the number of ranks"),
                Option("time", "quantity", "the measured time of one call"),
            ),
            needs_model=False,
        ),
        Pass(
            "measurement",
            "what measured numbers say: a mean, a spread, a line, a comparison",
            (
                Option(
                    "want",
                    "choice:mean|deviation|sample_deviation|difference|ratio|increase|slope|intercept",
                    "what is asked for",
                    "mean",
                ),
                Option("values", "text", "numbers with their unit and commas between them, such as 0.8 s, 0.9 s"),
                Option("through", "text", "sizes and measurements, such as 16: 11 GB, 64: 38 GB"),
            ),
            needs_model=False,
        ),
        Pass(
            "peak_rate",
            "the peak rate of a processor from its clock, its units and their operations per cycle",
            (
                Option("clock", "quantity", "the clock rate, such as 1.41 GHz"),
                Option("units", "quantity", "the number of multiprocessors"),
                Option("fma", "quantity", "multiply-adds per clock and multiprocessor"),
                Option("device", "text", "a device whose clock, units and fma are used, such as A100-80GB-SXM"),
                Option("dtype", "text", "the number format of the device's rate"),
            ),
            needs_model=False,
        ),
        Pass(
            "topology",
            "what follows from how the GPUs of a machine are joined",
            (
                Option(
                    "about",
                    "choice:bandwidth|bisection|direct_links|ring|nic|numa|missing",
                    "what is asked for",
                    "bandwidth",
                ),
                Option("matrix", "text", "what nvidia-smi topo -m prints"),
                Option("between", "text", "two devices, such as GPU0, NIC0; one GPU for nic"),
                Option("device", "text", "the kind of GPU, which knows the bandwidth and number of its NVLinks"),
                Option("link_rate", "quantity", "the bandwidth of one NVLink in one direction, such as 25 GB/s"),
                Option("switch", "choice:yes|no", "whether the NVLinks lead to a switch; else the matrix tells"),
                Option("gpus", "size", "the number of GPUs, where there is no matrix"),
                Option("links", "size", "the NVLinks between two GPUs, where there is no matrix"),
                Option("kind", "text", "only missing cells of this link type"),
                *(Option(k, "quantity", f"the bandwidth of a {k.upper()} path") for k in PATHS),
            ),
            needs_model=False,
        ),
        Pass(
            "broadcast",
            "the time of a broadcast from the host to all GPUs, and what measured times say about its links",
            (
                Option("about", "choice:time|host_copy|gpu_copy|speedup", "what is asked for", "time"),
                Option("plan", "choice:host|serial|relay|pipelined", "how the tensor is passed on"),
                Option("size", "quantity", "the bytes of the tensor"),
                Option("bandwidth", "quantity", "the bandwidth of a link between GPUs, one direction"),
                Option("latency", "quantity", "the latency of a message; 0 leaves it out"),
                Option("receivers", "size", "the GPUs that receive the tensor besides the first"),
                Option("chunks", "size", "the number of chunks of the pipelined plan"),
                Option("hops", "size", "the links from the host to the last GPU"),
                Option("host_bandwidth", "quantity", "the bandwidth from the host"),
                Option("host_latency", "quantity", "the latency of a message from the host"),
                Option("before", "quantity", "a measured time: of the host plan, or the slower of two"),
                Option("after", "quantity", "a measured time: of the relay, or the faster of two"),
            ),
            needs_model=False,
        ),
        Pass(
            "buckets",
            "the gradient buckets of data parallelism: the time they leave after backward, the best number and size",
            (
                Option("want", "choice:overhead|number|whole_number|size|least", "what is asked for", "overhead"),
                Option("rho", "text", "the time to compute a bucket over that to send it, or rho for a symbol", "1"),
            ),
            needs_model=False,
        ),
        Pass(
            "bucket_cap",
            "the bucket cap that leaves the least communication after backward, for a model and a link",
            (
                Option("rho", "quantity", "the time to compute a bucket over the time to transfer it", "1"),
                Option("gradient_dtype", "dtype", "the number format of the gradients", "fp32"),
                Option("first", "quantity", "another cap of the first bucket, such as 1 MiB"),
            ),
        ),
        Pass(
            "pipeline_time",
            "the time of a pipeline's pass in chunks, the best number of chunks, and the utilisation",
            (
                Option(
                    "want",
                    "choice:time|chunks|whole_chunks|least|utilisation|full_steps",
                    "what is asked for",
                    "time",
                ),
                Option("stages", "text", "the times of uneven stages, such as 6 ms, 2 ms"),
                Option("per", "choice:batch|chunk", "whether these are for the whole batch or one chunk", "batch"),
            ),
            needs_model=False,
        ),
        Pass(
            "pipelined_broadcast",
            "the time of a broadcast along a chain in chunks, and the best number of chunks",
            (Option("want", "choice:time|chunks|whole_chunks|least", "what is asked for", "time"),),
            needs_model=False,
        ),
        Pass(
            "scaling_law",
            "the compute-optimal parameters and tokens of a fitted loss, and what follows from them",
            (
                Option(
                    "want",
                    "choice:parameters|tokens|tokens_per_parameter|exponent_parameters|exponent_tokens"
                    "|coefficient_parameters|coefficient_tokens|doubling|loss|break_even"
                    "|rule_compute|rule_tokens_per_parameter|same_compute",
                    "what is asked for",
                    "parameters",
                ),
            ),
            needs_model=False,
        ),
    )
}
