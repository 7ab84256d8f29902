"""The passes: each derives one quantity from the graph. One file a pass, one record here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from symcomm.derivation import Derivation


@dataclass(frozen=True)
class Option:
    """An option of a pass. ``kind`` is text, size, quantity, strategy, dtype or ``choice:a|b|c``."""

    name: str
    kind: str
    meaning: str
    default: str | None = None


@dataclass(frozen=True)
class Pass:
    """A quantity that can be derived; ``derive(setting, **options)`` makes the derivation."""

    name: str
    summary: str
    options: tuple[Option, ...] = ()
    needs_model: bool = True

    @property
    def derive(self) -> Callable[..., Derivation]:
        """The function that derives it, imported when it is first used."""
        return cast("Callable[..., Derivation]", import_module(f"symcomm.passes.{self.name}").derive)


_STRATEGY = Option("strategy", "strategy", "how the model is parallelised, such as data(k) or tensor(8) + sequence")
_DTYPE = Option("dtype", "dtype", "the number format, where it is not the model's")
_OP = Option("op", "text", "only the row that computes this tensor")
_RECIPES = "choice:mixed_adam|mixed_adam_fp32_gradients|fp32_adam|fp32_adamw|fp32_momentum|fp32_sgd"
_RECIPE = Option("recipe", _RECIPES, "what is kept", "mixed_adam")
_FROZEN = Option("frozen", "text", "weights that are not trained, with commas between them")
_RECOMPUTATION = Option(
    "recomputation", "text", "none, selective, full, or the tensors that are computed again", "none"
)
_PATHS = ("pix", "pxb", "phb", "node", "sys")
_KINDS = "all-reduce|all-gather|reduce-scatter|all-to-all|send"

_RATES = (
    Option("device", "text", "a device whose rates are used, such as H100-SXM"),
    Option("peak", "text", "the peak rate, such as 312 TFLOP/s; or the name of a symbol"),
    Option("memory", "text", "the bandwidth of the memory, such as 2039 GB/s"),
    Option("network", "text", "the bandwidth of the network, such as 300 GB/s"),
    Option("latency", "text", "the latency of one message, such as 0.00001 s; left out where it is not named"),
    Option("utilisation", "text", "the part of the peak rate and the memory bandwidth that is sustained, such as 4/5"),
)
_RATES_BUT_MEMORY = tuple(rate for rate in _RATES if rate.name != "memory")
_PASS = Option("phase", "choice:forward|backward|microbatch|end_of_batch", "what is timed")
_MESH_PHASE = Option("phase", "choice:forward|backward|training", "what is timed", "forward")
_LINKS = Option("links", "text", "the links of each mesh axis, such as data=2, tensor=1; one where it is not said")
_GRADIENTS = Option("gradient_dtype", "dtype", "the number format in which gradients of weights are reduced")
_MICROBATCHES = Option("microbatches", "size", "how many microbatches a batch is cut into")

_COLLECTIVE = Option("collective", "text", "all-reduce, all-gather, broadcast, ...", "all-reduce")
_CALL = (
    _DTYPE,
    Option("payload", "quantity", "the bytes of the full tensor, such as 64 MiB"),
    Option("ranks", "size", "the number of ranks, or its symbol"),
    Option("latency", "quantity", "the latency of a message, such as 20 us"),
    Option("bandwidth", "quantity", "the bandwidth of a link in one direction, such as 100 GB/s"),
    Option("reduction", "quantity", "the bytes a rank adds per second, where additions are counted"),
    Option("chunks", "size", "the chunks of a pipelined algorithm"),
    Option("group", "size", "the ranks of a node, for the hierarchical algorithm"),
    Option("latency_between", "quantity", "the latency of a message between nodes"),
    Option("bandwidth_between", "quantity", "the bandwidth between nodes, of one rank in one direction"),
    Option("x_ranks", "size", "the ranks along the first axis of a torus"),
    Option("y_ranks", "size", "the ranks along the second axis of a torus"),
    Option("directions", "size", "how many ways a ring runs at once: 1 or 2"),
)

PASSES: dict[str, Pass] = {
    p.name: p
    for p in (
        Pass("parameters", "the number of parameters"),
        Pass(
            "flops",
            "the floating-point operations of a pass",
            (Option("scope", "choice:forward|backward|training", "which pass is counted", "forward"), _OP),
        ),
        Pass("traffic", "the bytes moved when each operand is read and each result written once", (_OP, _DTYPE)),
        Pass("intensity", "the arithmetic intensity: operations per byte moved", (_OP, _DTYPE)),
        Pass("tensor_size", "the bytes of one tensor", (Option("tensor", "text", "the name of the tensor"), _DTYPE)),
        Pass(
            "communication",
            "the bytes that a parallel strategy moves in a training iteration",
            (
                _STRATEGY,
                Option("collective", f"choice:{_KINDS}", "only calls of this kind"),
                Option("phase", "choice:forward|backward|update", "only calls of this phase"),
                _DTYPE,
                Option("gradient_dtype", "dtype", "the number format in which gradients of weights are reduced"),
            ),
        ),
        Pass("stages", "the number of pipeline stages", (_STRATEGY,)),
        Pass(
            "state_memory",
            "the bytes of weights, gradients and optimizer states on one rank",
            (_STRATEGY, _RECIPE, _FROZEN),
        ),
        Pass(
            "activation_memory",
            "the bytes of activations that one rank keeps for the backward pass",
            (
                _STRATEGY,
                _DTYPE,
                _RECOMPUTATION,
                Option("every", "size", "the layers of a group that is computed again from its first input"),
                Option("schedule", "choice:gpipe|1f1b|interleaved", "the schedule of a pipeline", "1f1b"),
                Option("stage", "text", "the stage of a pipeline, the first one is 0", "0"),
                Option("chunks", "size", "the chunks of layers per rank of an interleaved schedule"),
                _FROZEN,
            ),
        ),
        Pass(
            "recomputation",
            "what recomputation runs a second time",
            (
                _RECOMPUTATION,
                Option("count", "choice:flops|hardware_flops|all-reduces|bytes", "what is counted", "flops"),
                _STRATEGY,
            ),
        ),
        Pass(
            "allocated_memory",
            "the bytes that an allocator has given out when the backward pass begins",
            (
                Option("held", "text", "tensors that the program still refers to, with commas between them"),
                Option("workspace", "quantity", "what a library keeps for itself, such as 32 MiB"),
                Option("rounding", "choice:requests|blocks|none", "how the allocator rounds", "requests"),
                _DTYPE,
            ),
        ),
        Pass(
            "peak_memory",
            "the most bytes alive at once on one rank in a training step, and the op during which they are",
            (
                _STRATEGY,
                _RECIPE,
                _DTYPE,
                _RECOMPUTATION,
                _FROZEN,
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
                _STRATEGY,
                _RECIPE,
                Option(
                    "include",
                    "choice:states|activations|states and activations",
                    "what has to fit",
                    "states and activations",
                ),
                _RECOMPUTATION,
                _FROZEN,
            ),
        ),
        Pass(
            "time",
            "the time of a layer on one rank: computing, memory and network",
            (
                _STRATEGY,
                _PASS,
                Option("term", "choice:compute|memory|network", "only this term"),
                _OP,
                _DTYPE,
                _GRADIENTS,
                *_RATES,
            ),
        ),
        Pass(
            "roofline",
            "the rate an op can reach on a machine, and what limits it",
            (_OP, _PASS, _STRATEGY, _DTYPE, *_RATES),
        ),
        Pass(
            "crossover",
            "the rate or size at which two terms of a time are equal",
            (
                Option("between", "text", "two of compute, memory and network, with a comma between them"),
                Option("over", "text", "the symbol to solve for"),
                _STRATEGY,
                _PASS,
                _OP,
                _DTYPE,
                _GRADIENTS,
                *_RATES,
            ),
        ),
        Pass(
            "compute_bound",
            "the batch from which on computing takes longer than the communication of a strategy",
            (
                _STRATEGY,
                _MESH_PHASE,
                Option("over", "text", "the symbol to solve for, where it is not the batch"),
                Option("per", "choice:total|device", "the batch of all devices, or of one", "total"),
                Option("numbers", "choice:real|whole", "over real or whole numbers", "real"),
                _LINKS,
                _DTYPE,
                _GRADIENTS,
                *_RATES_BUT_MEMORY,
            ),
        ),
        Pass(
            "mesh_split",
            "the best split of devices into the two axes of a mesh",
            (
                _STRATEGY,
                Option("devices", "size", "the number of devices, or its symbol"),
                Option("least", "choice:communication|batch", "what is made small", "communication"),
                Option("numbers", "choice:real|whole", "over the real numbers, or the divisors", "real"),
                _MESH_PHASE,
                _LINKS,
                _DTYPE,
                _GRADIENTS,
                *_RATES_BUT_MEMORY,
            ),
        ),
        Pass(
            "bound",
            "the least time that physics allows, or the rate that a measured time implies",
            (
                Option("of", "choice:least_time|implied_rate|implied_bandwidth", "what is asked", "least_time"),
                _OP,
                Option("tensor", "text", "only writing this tensor once"),
                _PASS,
                Option("measured", "quantity", "a measured time, such as 0.000222 s"),
                _DTYPE,
                *_RATES,
            ),
        ),
        Pass(
            "step_time",
            "the time of a training step under a strategy",
            (
                _STRATEGY,
                _MICROBATCHES,
                Option("of", "choice:step|exposed|hidden|network", "the step, or a part of its communication", "step"),
                _DTYPE,
                _GRADIENTS,
                *_RATES,
            ),
        ),
        Pass(
            "throughput",
            "tokens a second, utilisation, days and device-hours of training",
            (
                _STRATEGY,
                Option(
                    "of",
                    "choice:tokens_per_second|flops_per_token|mfu|hfu|days|device_hours|devices",
                    "what is asked",
                    "tokens_per_second",
                ),
                _MICROBATCHES,
                Option("mfu", "text", "the model FLOP utilisation, where no time is derived, such as 1/2"),
                Option("devices_used", "size", "how many devices, where no strategy says it"),
                Option("budget", "quantity", "the tokens to train on, such as 300e9 tokens"),
                _DTYPE,
                _GRADIENTS,
                *_RATES,
            ),
        ),
        Pass(
            "scaling",
            "the speed-up and the efficiency of more ranks",
            (
                _STRATEGY,
                Option("kind", "choice:strong|weak|speedup", "at one batch, or at one batch a rank", "strong"),
                Option("over", "text", "the symbol that counts the ranks"),
                _MICROBATCHES,
                _DTYPE,
                _GRADIENTS,
                *_RATES,
            ),
        ),
        Pass(
            "balance",
            "the ops:byte ratio of a machine",
            (
                Option("clock", "quantity", "the clock rate, where the peak rate is derived"),
                Option("units", "quantity", "the number of multiprocessors"),
                Option("fma", "quantity", "multiply-adds per clock and multiprocessor"),
                *_RATES[:3],
            ),
            needs_model=False,
        ),
        Pass(
            "collective_time",
            "the time of a collective under an algorithm",
            (_COLLECTIVE, Option("algorithm", "text", "ring, tree, halving_doubling, ..."), *_CALL),
            needs_model=False,
        ),
        Pass(
            "collective_table",
            "the fastest algorithm for a collective, and all others beside it",
            (_COLLECTIVE, *_CALL),
            needs_model=False,
        ),
        Pass(
            "collective_crossover",
            "where one algorithm of a collective overtakes another",
            (
                _COLLECTIVE,
                Option("algorithm", "text", "the first algorithm", "ring"),
                Option("other", "text", "the second algorithm", "tree"),
                Option("over", "text", "payload, ranks, bandwidth or latency", "payload"),
                *_CALL,
            ),
            needs_model=False,
        ),
        Pass(
            "collective_bandwidth",
            "the algorithm or bus bandwidth of a measured collective",
            (
                _COLLECTIVE,
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
                *(Option(k, "quantity", f"the bandwidth of a {k.upper()} path") for k in _PATHS),
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
