"""What a pass can be told, and the options that several passes share."""

from __future__ import annotations

from dataclasses import dataclass

from symcomm.program.schedules import USUAL_SCHEDULE


@dataclass(frozen=True)
class Option:
    """An option of a pass. ``kind`` is text, size, quantity, strategy, schedule, dtype or ``choice:a|b|c``."""

    name: str
    kind: str
    meaning: str
    default: str | None = None


STRATEGY = Option("strategy", "strategy", "how the model is parallelised, such as data(k) or tensor(8) + sequence")
DTYPE = Option("dtype", "dtype", "the number format, where it is not the model's")
OP = Option("op", "text", "only the row that computes this tensor")
RECIPES = "choice:mixed_adam|mixed_adam_fp32_gradients|fp32_adam|fp32_adamw|fp32_momentum|fp32_sgd"
RECIPE = Option("recipe", RECIPES, "what is kept", "mixed_adam")
FROZEN = Option("frozen", "text", "weights that are not trained, with commas between them")
RECOMPUTATION = Option("recomputation", "text", "none, selective, full, or the tensors that are computed again", "none")
SCHEDULE = Option(
    "schedule", "schedule", "the schedule of a pipeline, or the file of an order of one's own", USUAL_SCHEDULE
)
CHUNKS = Option("chunks", "size", "the chunks of layers per rank, for a schedule that has several")
STAGED = (
    Option("every", "size", "the layers of a group that is computed again from its first input"),
    SCHEDULE,
    Option("stage", "text", "the stage of a pipeline, the first one is 0", "0"),
    CHUNKS,
)
SCHEDULE_TIMES = (
    Option("forward", "text", "the time of a forward of a chunk: 6 ms, a list for uneven stages, or a symbol", "t_F"),
    Option("input_gradient", "text", "the time of a gradient of the input, in the same way", "t_B"),
    Option("weight_gradient", "text", "the time of a gradient of the weights, in the same way", "t_W"),
    Option("pair", "text", "the time of an overlapped forward and backward; the sum of both unless said"),
    Option("hop", "text", "the latency between two ranks, or its symbol; none unless said"),
    Option("overhead", "text", "a time that is added to each piece of work, or its symbol; none unless said"),
)
PATHS = ("pix", "pxb", "phb", "node", "sys")
KINDS = "all-reduce|all-gather|reduce-scatter|all-to-all|send"

RATES = (
    Option("device", "text", "a device whose rates are used, such as H100-SXM"),
    Option("peak", "text", "the peak rate, such as 312 TFLOP/s; or the name of a symbol"),
    Option("memory", "text", "the bandwidth of the memory, such as 2039 GB/s"),
    Option("network", "text", "the bandwidth of the network, such as 300 GB/s"),
    Option("latency", "text", "the latency of one message, such as 0.00001 s; left out where it is not named"),
    Option("utilisation", "text", "the part of the peak rate and the memory bandwidth that is sustained, such as 4/5"),
)
RATES_BUT_MEMORY = tuple(rate for rate in RATES if rate.name != "memory")
PASS = Option("phase", "choice:forward|backward|microbatch|end_of_batch", "what is timed")
MESH_PHASE = Option("phase", "choice:forward|backward|training", "what is timed", "forward")
LINKS = Option(
    "links",
    "links",
    "the links of mesh axes, such as tensor=600 GB/s, data=50 GB/s @ 5 us; tensor=2: so many of the network's; "
    "or node=8, inside=900 GB/s, between=50 GB/s",
)
GRADIENTS = Option("gradient_dtype", "dtype", "the number format in which gradients of weights are reduced")
MICROBATCHES = Option("microbatches", "size", "how many microbatches a batch is cut into")

COLLECTIVE = Option("collective", "text", "all-reduce, all-gather, broadcast, ...", "all-reduce")
CALL = (
    DTYPE,
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
