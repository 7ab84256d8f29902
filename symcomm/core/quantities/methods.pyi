# Written by tests/declared/generated.py from the declarations of the quantities.
from collections.abc import Mapping, Sequence
from typing import Literal

from symcomm.core.accounting import Accounting
from symcomm.core.derivation import Derivation
from symcomm.core.parallel.strategy import Strategy

_Accounting = str | Accounting | Mapping[str, str] | Sequence[str | Mapping[str, str]] | None

class DerivedQuantities:
    def einsum(
        self,
        subscripts: object,
        shapes: object,
        want: Literal["flops", "backward", "elements", "best_order", "worst_order", "left_to_right", "sums_first", "largest_intermediate"] = "flops",
        count: Literal["fma2", "mul_add", "opt_einsum"] = "fma2",
        *,
        accounting: _Accounting = None,
    ) -> Derivation:
        """The operations of an einsum, of its gradients, or of the best order of its operands."""

    def flops(
        self,
        scope: Literal["forward", "backward", "training"] = "forward",
        op: object = None,
        frozen: object = None,
        *,
        accounting: _Accounting = None,
    ) -> Derivation:
        """The floating-point operations of a pass, of all layers or of one row."""

    def intensity(
        self,
        op: object = None,
        dtype: str | None = None,
        *,
        accounting: _Accounting = None,
    ) -> Derivation:
        """The arithmetic intensity: operations per byte moved."""

    def listing(
        self,
        member: str,
        index: object = "i",
        last: int | str = "N",
        *,
        accounting: _Accounting = None,
    ) -> Derivation:
        """The members of a list such as (x_1, y_1), ..., (x_N, y_N): every index goes up by one from each to the next."""

    def parameters(
        self,
        of: Literal["all", "active"] = "all",
        *,
        accounting: _Accounting = None,
    ) -> Derivation:
        """The number of parameters."""

    def recomputation(
        self,
        recomputation: object = "full",
        count: Literal["flops", "hardware_flops", "all-reduces", "bytes"] = "flops",
        strategy: Strategy | str | None = None,
        frozen: object = None,
        *,
        accounting: _Accounting = None,
    ) -> Derivation:
        """What recomputation runs a second time."""

    def tensor_size(
        self,
        tensor: object,
        dtype: str | None = None,
        *,
        accounting: _Accounting = None,
    ) -> Derivation:
        """The bytes of one tensor."""

    def traffic(
        self,
        op: object = None,
        dtype: str | None = None,
        *,
        accounting: _Accounting = None,
    ) -> Derivation:
        """The bytes moved when each operand is read and each result written once."""

    def activation_memory(
        self,
        strategy: Strategy | str | None = None,
        dtype: str | None = None,
        recomputation: object = None,
        every: int | str | None = None,
        schedule: str | None = None,
        stage: object = None,
        chunks: int | str | None = None,
        frozen: object = None,
        *,
        accounting: _Accounting = None,
    ) -> Derivation:
        """The bytes of activations that one rank keeps for the backward pass."""

    def allocated_memory(
        self,
        held: object = None,
        workspace: object = None,
        rounding: Literal["requests", "blocks", "none"] = "requests",
        dtype: str | None = None,
        *,
        accounting: _Accounting = None,
    ) -> Derivation:
        """The bytes that an allocator has given out when the backward pass begins."""

    def capacity(
        self,
        solve_for: object,
        capacity: object,
        capacity_is: str | None = None,
        strategy: Strategy | str | None = None,
        recipe: str | Mapping[str, object] = "mixed_adam",
        include: Literal["states", "activations", "states and activations"] = "states and activations",
        recomputation: object = None,
        frozen: object = None,
        sharded: object = None,
        stage: object = None,
        *,
        accounting: _Accounting = None,
    ) -> Derivation:
        """The fewest ranks, or the largest size, with which one rank's memory fits a device."""

    def cast_copies(
        self,
        dtype: str | None = None,
        of: Literal["weights", "activations", "all"] = "weights",
        *,
        accounting: _Accounting = None,
    ) -> Derivation:
        """The bytes of the copies that autocast makes of fp32 weights, or of activations."""

    def peak_memory(
        self,
        strategy: Strategy | str | None = None,
        recipe: str | Mapping[str, object] = "mixed_adam",
        dtype: str | None = None,
        recomputation: object = None,
        every: int | str | None = None,
        schedule: str | None = None,
        stage: object = None,
        chunks: int | str | None = None,
        frozen: object = None,
        microbatches: int | str | None = None,
        step: Literal["forward", "backward", "first", "later"] = "later",
        held: object = None,
        workspace: object = None,
        rounding: Literal["requests", "blocks", "none"] = "none",
        update_copies: int | str = 0,
        tables: Literal["shared", "per_layer"] = "shared",
        *,
        accounting: _Accounting = None,
    ) -> Derivation:
        """The most bytes alive at once on one rank in a training step, and the op during which they are."""

    def state_memory(
        self,
        strategy: Strategy | str | None = None,
        recipe: str | Mapping[str, object] = "mixed_adam",
        frozen: object = None,
        stage: object = None,
        schedule: str | None = None,
        of: Literal["all", "weights", "gradients", "states"] = "all",
        rounding: Literal["requests", "none"] = "none",
        units: Literal["weight", "model"] = "weight",
        microbatches: int | str | None = None,
        on: Literal["device", "host"] = "device",
        *,
        accounting: _Accounting = None,
    ) -> Derivation:
        """The bytes of weights, gradients and optimizer states on one rank, or on its host where they are offloaded."""

    def broadcast(
        self,
        about: Literal["time", "host_copy", "gpu_copy", "speedup"] = "time",
        plan: Literal["host", "serial", "relay", "pipelined"] | None = None,
        size: object = None,
        bandwidth: object = None,
        latency: object = None,
        receivers: int | str | None = None,
        chunks: int | str | None = None,
        hops: int | str | None = None,
        host_bandwidth: object = None,
        host_latency: object = None,
        before: object = None,
        after: object = None,
        *,
        accounting: _Accounting = None,
    ) -> Derivation:
        """The time of a broadcast from the host to all GPUs, and what measured times say about its links."""

    def bucket_cap(
        self,
        rho: object = 1,
        gradient_dtype: str = "fp32",
        first: object = None,
        *,
        accounting: _Accounting = None,
    ) -> Derivation:
        """The bucket cap that leaves the least communication after backward, for a model and a link."""

    def buckets(
        self,
        want: Literal["overhead", "number", "whole_number", "size", "least"] = "overhead",
        rho: object = None,
        *,
        accounting: _Accounting = None,
    ) -> Derivation:
        """The gradient buckets of data parallelism: the time they leave after backward, the best number and size."""

    def collective_bandwidth(
        self,
        collective: str = "all-reduce",
        time: object = None,
        *,
        payload: object = None,
        ranks: int | str | None = None,
        bandwidth: object = None,
        accounting: _Accounting = None,
    ) -> Derivation:
        """The algorithm or bus bandwidth of a measured collective."""

    def collective_crossover(
        self,
        collective: str = "all-reduce",
        algorithm: str = "ring",
        other: str = "tree",
        over: Literal["payload", "ranks", "bandwidth", "latency"] = "payload",
        dtype: str | None = None,
        directions: int | str | None = None,
        *,
        payload: object = None,
        ranks: int | str | None = None,
        bandwidth: object = None,
        latency: object = None,
        reduction: object = None,
        chunks: int | str | None = None,
        group: int | str | None = None,
        latency_between: object = None,
        bandwidth_between: object = None,
        x_ranks: int | str | None = None,
        y_ranks: int | str | None = None,
        accounting: _Accounting = None,
    ) -> Derivation:
        """Where one algorithm of a collective overtakes another."""

    def collective_table(
        self,
        collective: str = "all-reduce",
        dtype: str | None = None,
        directions: int | str | None = None,
        *,
        payload: object = None,
        ranks: int | str | None = None,
        bandwidth: object = None,
        latency: object = None,
        reduction: object = None,
        chunks: int | str | None = None,
        group: int | str | None = None,
        latency_between: object = None,
        bandwidth_between: object = None,
        x_ranks: int | str | None = None,
        y_ranks: int | str | None = None,
        accounting: _Accounting = None,
    ) -> Derivation:
        """The fastest algorithm for a collective, and all others beside it."""

    def collective_time(
        self,
        collective: str = "all-reduce",
        algorithm: str | None = None,
        dtype: str | None = None,
        directions: int | str | None = None,
        *,
        payload: object = None,
        ranks: int | str | None = None,
        bandwidth: object = None,
        latency: object = None,
        reduction: object = None,
        chunks: int | str | None = None,
        group: int | str | None = None,
        latency_between: object = None,
        bandwidth_between: object = None,
        x_ranks: int | str | None = None,
        y_ranks: int | str | None = None,
        accounting: _Accounting = None,
    ) -> Derivation:
        """The time of a collective under an algorithm."""

    def communication(
        self,
        strategy: Strategy | str,
        collective: str | None = None,
        phase: Literal["forward", "recompute", "backward", "microbatch", "update"] | None = None,
        dtype: str | None = None,
        gradient_dtype: str | None = None,
        stage: object = None,
        frozen: object = None,
        microbatches: int | str | None = None,
        *,
        accounting: _Accounting = None,
    ) -> Derivation:
        """The bytes that a parallel strategy moves in a training iteration."""

    def pipelined_broadcast(
        self,
        want: Literal["time", "chunks", "whole_chunks", "least"] = "time",
        *,
        accounting: _Accounting = None,
    ) -> Derivation:
        """The time of a broadcast along a chain in chunks, and the best number of chunks."""

    def topology(
        self,
        about: str = "bandwidth",
        matrix: object = None,
        between: object = None,
        device: object = None,
        link_rate: object = None,
        switch: Literal["yes", "no"] | None = None,
        gpus: int | str | None = None,
        links: int | str | None = None,
        kind: object = "",
        *,
        pix: object = None,
        pxb: object = None,
        phb: object = None,
        node: object = None,
        sys: object = None,
        accounting: _Accounting = None,
    ) -> Derivation:
        """What follows from how the GPUs of a machine are joined."""

    def balance(
        self,
        clock: object = None,
        units: object = None,
        fma: object = None,
        *,
        device: object = None,
        peak: object = None,
        memory: object = None,
        accounting: _Accounting = None,
    ) -> Derivation:
        """The ops:byte ratio of a machine."""

    def bound(
        self,
        of: Literal["least_time", "implied_rate", "implied_bandwidth"] = "least_time",
        op: object = None,
        tensor: object = None,
        phase: Literal["forward", "backward", "microbatch", "end_of_batch"] = "forward",
        measured: object = None,
        dtype: str | None = None,
        *,
        device: object = None,
        peak: object = None,
        memory: object = None,
        network: object = None,
        latency: object = None,
        utilisation: object = None,
        accounting: _Accounting = None,
    ) -> Derivation:
        """The least time that physics allows, or the rate that a measured time implies."""

    def compute_bound(
        self,
        strategy: Strategy | str,
        phase: Literal["forward", "backward", "training"] = "forward",
        over: object = None,
        per: Literal["total", "device"] = "total",
        numbers: Literal["real", "whole"] = "real",
        links: str | None = None,
        dtype: str | None = None,
        gradient_dtype: str | None = None,
        *,
        device: object = None,
        peak: object = None,
        network: object = None,
        latency: object = None,
        utilisation: object = None,
        accounting: _Accounting = None,
    ) -> Derivation:
        """The batch from which on computing takes longer than the communication of a strategy."""

    def crossover(
        self,
        between: object,
        over: object,
        strategy: Strategy | str | None = None,
        phase: Literal["forward", "backward", "microbatch", "end_of_batch"] = "microbatch",
        op: object = None,
        dtype: str | None = None,
        gradient_dtype: str | None = None,
        *,
        device: object = None,
        peak: object = None,
        memory: object = None,
        network: object = None,
        latency: object = None,
        utilisation: object = None,
        links: str | None = None,
        accounting: _Accounting = None,
    ) -> Derivation:
        """The rate or size at which two terms of a time are equal."""

    def mesh_split(
        self,
        strategy: Strategy | str,
        devices: int | str,
        least: Literal["communication", "batch"] = "communication",
        want: Literal["split", "least"] = "split",
        numbers: Literal["real", "whole"] = "real",
        phase: Literal["forward", "backward", "training"] = "forward",
        links: str | None = None,
        dtype: str | None = None,
        gradient_dtype: str | None = None,
        *,
        device: object = None,
        peak: object = None,
        network: object = None,
        latency: object = None,
        utilisation: object = None,
        accounting: _Accounting = None,
    ) -> Derivation:
        """The best split of devices into the two axes of a mesh."""

    def peak_rate(
        self,
        clock: object = None,
        units: object = None,
        fma: object = None,
        device: object = None,
        dtype: object = None,
        *,
        accounting: _Accounting = None,
    ) -> Derivation:
        """The peak rate of a processor from its clock, its units and their operations per cycle."""

    def pipeline_time(
        self,
        want: str = "time",
        stages: object = None,
        per: Literal["batch", "microbatch", "chunk"] = "batch",
        schedule: str | None = None,
        microbatches: int | str | None = None,
        *,
        chunks: int | str | None = None,
        stage: object = None,
        forward: object = None,
        backward: object = None,
        input_gradient: object = None,
        weight_gradient: object = None,
        pair: object = None,
        hop: object = None,
        overhead: object = None,
        accounting: _Accounting = None,
    ) -> Derivation:
        """The time of a pipeline's pass in microbatches, or of a step under a schedule, its bubbles and what is in flight."""

    def roofline(
        self,
        op: object = None,
        phase: Literal["forward", "backward", "microbatch", "end_of_batch"] = "forward",
        strategy: Strategy | str | None = None,
        dtype: str | None = None,
        frozen: object = None,
        *,
        device: object = None,
        peak: object = None,
        memory: object = None,
        network: object = None,
        latency: object = None,
        utilisation: object = None,
        accounting: _Accounting = None,
    ) -> Derivation:
        """The rate an op can reach on a machine, and what limits it."""

    def scaling(
        self,
        strategy: Strategy | str,
        kind: Literal["strong", "weak", "speedup"] = "strong",
        over: object = "",
        microbatches: int | str | None = None,
        dtype: str | None = None,
        gradient_dtype: str | None = None,
        schedule: str | None = None,
        chunks: int | str | None = None,
        *,
        device: object = None,
        peak: object = None,
        memory: object = None,
        network: object = None,
        latency: object = None,
        utilisation: object = None,
        links: str | None = None,
        accounting: _Accounting = None,
    ) -> Derivation:
        """The speed-up and the efficiency of more ranks."""

    def stages(
        self,
        strategy: Strategy | str,
        *,
        accounting: _Accounting = None,
    ) -> Derivation:
        """The number of pipeline stages."""

    def step_time(
        self,
        strategy: Strategy | str | None = None,
        microbatches: int | str | None = None,
        of: Literal["step", "exposed", "hidden", "network"] = "step",
        dtype: str | None = None,
        gradient_dtype: str | None = None,
        schedule: str | None = None,
        chunks: int | str | None = None,
        frozen: object = None,
        buckets: int | str | None = None,
        call_overhead: object = None,
        *,
        device: object = None,
        peak: object = None,
        memory: object = None,
        network: object = None,
        latency: object = None,
        utilisation: object = None,
        links: str | None = None,
        accounting: _Accounting = None,
    ) -> Derivation:
        """The time of a training step under a strategy."""

    def throughput(
        self,
        strategy: Strategy | str | None = None,
        of: Literal["tokens_per_second", "flops_per_token", "mfu", "hfu", "days", "device_hours", "devices"] = "tokens_per_second",
        microbatches: int | str | None = None,
        step: object = None,
        achieved: object = None,
        mfu: object = None,
        devices_used: int | str | None = None,
        budget: object = None,
        dtype: str | None = None,
        gradient_dtype: str | None = None,
        frozen: object = None,
        schedule: str | None = None,
        chunks: int | str | None = None,
        buckets: int | str | None = None,
        call_overhead: object = None,
        *,
        device: object = None,
        peak: object = None,
        memory: object = None,
        network: object = None,
        latency: object = None,
        utilisation: object = None,
        links: str | None = None,
        accounting: _Accounting = None,
    ) -> Derivation:
        """Tokens a second, utilisation, days and device-hours of training."""

    def time(
        self,
        strategy: Strategy | str | None = None,
        phase: Literal["forward", "backward", "microbatch", "end_of_batch"] = "microbatch",
        term: Literal["compute", "memory", "network"] | None = None,
        op: object = None,
        dtype: str | None = None,
        gradient_dtype: str | None = None,
        frozen: object = None,
        *,
        device: object = None,
        peak: object = None,
        memory: object = None,
        network: object = None,
        latency: object = None,
        utilisation: object = None,
        links: str | None = None,
        accounting: _Accounting = None,
    ) -> Derivation:
        """The time of a layer on one rank: computing, memory and network."""

    def measurement(
        self,
        want: str = "mean",
        values: object = None,
        through: object = None,
        *,
        accounting: _Accounting = None,
    ) -> Derivation:
        """What measured numbers say: a mean, a spread, a line, a comparison."""

    def scaling_law(
        self,
        want: Literal["parameters", "tokens", "tokens_per_parameter", "exponent_parameters", "exponent_tokens", "coefficient_parameters", "coefficient_tokens", "doubling", "loss", "break_even", "rule_compute", "rule_crossover", "rule_tokens_per_parameter", "same_compute"] = "parameters",
        *,
        accounting: _Accounting = None,
    ) -> Derivation:
        """The compute-optimal parameters and tokens of a fitted loss, and what follows from them."""

    def checkpoint_memory(
        self,
        operations: int | str = "T",
        every: int | str = "k",
        *,
        accounting: _Accounting = None,
    ) -> Derivation:
        """The most values in memory while a chain of operations is reversed with checkpoints at equal distances."""

    def differentiation_cost(
        self,
        formulas: str,
        point: str | None = None,
        mode: Literal["forward", "reverse", "cheaper"] = "cheaper",
        want: Literal["passes", "operations"] = "passes",
        outputs: object = None,
        *,
        accounting: _Accounting = None,
    ) -> Derivation:
        """The passes or the operations of a whole Jacobian: forward mode takes a pass an input, reverse mode one an output."""

    def evaluation_trace(
        self,
        formulas: str,
        point: str | None = None,
        of: object = None,
        outputs: object = None,
        *,
        accounting: _Accounting = None,
    ) -> Derivation:
        """The evaluation trace of formulas: inputs v_{1-n} to v_0, then one operation a row, and the outputs."""

    def forward_mode(
        self,
        formulas: str,
        point: str | None = None,
        by: object = None,
        of: object = None,
        outputs: object = None,
        slip: Literal["adjoint_overwritten", "product_rule_forgotten", "inner_derivative_forgotten"] | None = None,
        *,
        accounting: _Accounting = None,
    ) -> Derivation:
        """The derivatives of formulas for an input by forward mode, as a table of primals and tangents."""

    def gradients(
        self,
        op: object = None,
        of: object = "",
        want: Literal["flops", "elements"] = "flops",
        frozen: object = None,
        *,
        accounting: _Accounting = None,
    ) -> Derivation:
        """The gradients of a row, or of all rows, as matrix formulas with their shapes, what they read and what they cost."""

    def hessian_product(
        self,
        formulas: str,
        direction: str,
        point: str | None = None,
        of: object = None,
        by: object = None,
        outputs: object = None,
        *,
        accounting: _Accounting = None,
    ) -> Derivation:
        """The Hessian of an output times a vector, without the Hessian: forward mode over reverse mode."""

    def jacobian(
        self,
        formulas: str,
        point: str | None = None,
        of: object = None,
        by: object = None,
        mode: Literal["forward", "reverse"] = "reverse",
        outputs: object = None,
        *,
        accounting: _Accounting = None,
    ) -> Derivation:
        """The Jacobian of formulas at a point: a row an output, a column an input."""

    def reverse_mode(
        self,
        formulas: str,
        point: str | None = None,
        of: object = None,
        by: object = None,
        outputs: object = None,
        slip: Literal["adjoint_overwritten", "product_rule_forgotten", "inner_derivative_forgotten"] | None = None,
        *,
        accounting: _Accounting = None,
    ) -> Derivation:
        """The derivatives of an output of formulas by reverse mode, as a table of primals and adjoints."""

    def trace_memory(
        self,
        formulas: str,
        point: str | None = None,
        every: int | str = 0,
        outputs: object = None,
        *,
        accounting: _Accounting = None,
    ) -> Derivation:
        """The most values in memory while a trace is reversed, whole or with checkpoints."""

    def accumulation(
        self,
        x: object,
        n: int | str,
        accumulator: str,
        x_format: str | None = None,
        method: Literal["in_order", "pairwise", "compensated"] = "in_order",
        want: Literal["sum", "error", "representation_error", "accumulation_error", "bound", "last_change", "limit", "overflow"] = "sum",
        *,
        accounting: _Accounting = None,
    ) -> Derivation:
        """The sum of a number added n times in a number format."""

    def loss_scaling(
        self,
        dtype: str = "fp16",
        scale: object = 65536,
        gradient: object = None,
        want: Literal["smallest", "flushed_up_to", "smallest_normal", "largest", "least_scale", "largest_scale"] = "smallest",
        *,
        accounting: _Accounting = None,
    ) -> Derivation:
        """Which gradients a number format keeps when the loss is multiplied by a scale."""

    def number_format(
        self,
        dtype: str,
        want: Literal["largest", "smallest_normal", "smallest_subnormal", "epsilon", "unit_roundoff", "integers_exact_up_to", "finite_values", "nan_codes"] = "largest",
        *,
        accounting: _Accounting = None,
    ) -> Derivation:
        """What a number format holds, from its bits of exponent and mantissa."""

    def rounded(
        self,
        x: object,
        dtype: str,
        want: Literal["value", "error", "relative_error", "spacing"] = "value",
        *,
        accounting: _Accounting = None,
    ) -> Derivation:
        """What a number becomes in a number format, rounded to the nearest, ties to even."""
