"""Times against code that shares nothing with them: the printed class, plain loops, and a simulation of events."""

from __future__ import annotations

import heapq
from fractions import Fraction
from pathlib import Path

import pytest
from api import Derivation
from hypothesis import given, settings
from hypothesis import strategies as st
from time_models import CALL, PLACED, PRINTED, block, linear

import symcomm as sc


class PrintedLayer:
    """The class of the notebook, transcribed; its arithmetic is that of Python, here of fractions or floats."""

    def __init__(self, d_in, d_out, tp_in, tp_out, dp, bytewidth):
        self.tp_in, self.tp_out, self.dp, self.bytewidth = tp_in, tp_out, dp, bytewidth
        self.d_in_local = d_in / tp_in
        self.d_out_local = d_out / tp_out
        self.n_local = self.d_in_local * self.d_out_local


class PrintedDevice:
    def __init__(self, flop_per_sec_8bit, global_bps, net_bps, base_util):
        self.flop, self.memory, self.net, self.util = flop_per_sec_8bit, global_bps, net_bps, base_util

    @staticmethod
    def all_reduce(n, p):
        return 3 * (p - 1) * n / p

    def forward_backward(self, layer, b):
        b_local = b / layer.dp
        flop, memory, net = 0, 0, 0
        memory += layer.n_local
        flop += 2 * layer.n_local * b_local
        net += self.all_reduce(layer.d_out_local * b_local, layer.tp_in)
        memory += self.all_reduce(layer.d_out_local * b_local, layer.tp_in)
        memory += layer.d_in_local * b_local
        flop += 2 * layer.n_local * b_local
        memory += 2 * layer.n_local
        memory += layer.n_local
        flop += 2 * layer.n_local * b_local
        net += self.all_reduce(layer.d_in_local * b_local, layer.tp_out)
        memory += self.all_reduce(layer.d_in_local * b_local, layer.tp_out)
        return (
            (flop * layer.bytewidth) / (self.util * self.flop),
            (memory * layer.bytewidth) / (self.util * self.memory),
            (net * layer.bytewidth) / self.net,
        )

    def end_of_batch(self, layer):
        io = self.all_reduce(layer.n_local, layer.dp)
        return max((io * layer.bytewidth) / (self.util * self.memory), (io * layer.bytewidth) / self.net)


def test_the_printed_class_itself_gives_the_printed_float() -> None:
    layer = PrintedLayer(16384, 5 * 16384, 8, 40, 32, 2)
    assert max(PrintedDevice(1979e12, 3352e9, 900e9, 0.8).forward_backward(layer, 2048**2 / 128)) == (
        3.2554072481051035e-05
    )


DERIVED: dict[str, Derivation] = {}


def derived(name: str, **options: object) -> Derivation:
    if name not in DERIVED:
        DERIVED[name] = linear().time(PLACED, accounting=PRINTED, utilisation="eta", **options)
    return DERIVED[name]


sizes, degrees, speeds = st.integers(1, 10**5), st.integers(1, 64), st.integers(1, 10**15)


@given(b=sizes, d_in=sizes, d_out=sizes, tp_in=degrees, tp_out=degrees, dp=degrees, R_8bit=speeds, W_mem=speeds,
       W_net=speeds, eta=st.fractions(Fraction(1, 10), 1, max_denominator=10))  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_every_term_is_that_of_the_printed_class_at_any_sizes_and_rates(**at: int) -> None:
    for size, degree in (("b", "dp"), ("d_in", "tp_in"), ("d_out", "tp_out")):  # what is cut divides
        at[size] *= at[degree]
    layer = PrintedLayer(*(Fraction(at[n]) for n in ("d_in", "d_out", "tp_in", "tp_out", "dp")), Fraction(2))
    device = PrintedDevice(*(Fraction(at[n]) for n in ("R_8bit", "W_mem", "W_net", "eta")))
    terms = device.forward_backward(layer, Fraction(at["b"]))
    for name, wanted in zip(("compute", "memory", "network"), terms, strict=True):
        assert derived(name, term=name).at(**at).value == wanted
    assert derived("time").at(**at).value == max(terms)
    if at["dp"] > 1:
        assert derived("end", phase="end_of_batch").at(**at).value == device.end_of_batch(layer)


# -- properties -----------------------------------------------------------------------------------------


@given(factor=st.fractions(1, 100, max_denominator=7), which=st.sampled_from(["R_8bit", "W_mem", "W_net"]))
@settings(max_examples=20, deadline=None)
def test_a_faster_machine_never_takes_longer(factor: Fraction, which: str) -> None:
    at: dict[str, object] = {**CALL, "R_8bit": 1979 * 10**12, "W_mem": 3352 * 10**9, "W_net": 900 * 10**9, "eta": "4/5"}
    before = derived("time").at(**at).value
    at[which] = Fraction(str(at[which])) * factor
    assert derived("time").at(**at).value <= before


@pytest.mark.few(2)
@pytest.mark.parametrize("strategy", ["data(k)", "tensor(k)", "fully-sharded(k)", None])
def test_overlapping_is_never_slower_than_one_op_after_the_other_and_that_never_slower_than_serial(
    strategy: str | None,
) -> None:
    rates = {"peak": 10**12, "memory": 10**11, "network": 10**10}
    at = {"N": 4, "B": 8, "L": 16, "D": 64, "F": 256, "k": 4}
    overlap, per_op, serial = (
        block().step_time(strategy, accounting=choice, **rates).at(at).value
        for choice in ("overlap", "per_op", "serial")
    )
    assert overlap <= per_op <= serial
    exposed, hidden, network = (
        block().step_time(strategy, of=of, **rates).at(at).value if strategy else 0
        for of in ("exposed", "hidden", "network")
    )
    assert 0 <= exposed <= network
    assert exposed + hidden == network
    if strategy:
        assert block().step_time(strategy, of="hidden", accounting="serial", **rates).at(**at).value == 0


# -- plain loops ----------------------------------------------------------------------------------------


def kernels(b: int, d: int, f: int) -> list[tuple[int, int]]:
    """Operations and elements of every product of a two-matrix block: forward, then two gradients each."""
    products = [(b, d, f), (b, f, d)]
    shapes = [*products, *((m, n, k) for m, k, n in products), *((k, m, n) for m, k, n in products)]
    return [(2 * m * k * n, m * k + k * n + m * n) for m, k, n in shapes]


@pytest.mark.parametrize(("b", "d", "f"), [(32, 64, 256), (4, 256, 1024), (4096, 16, 16)])
@pytest.mark.parametrize("choice", ["overlap", "per_op", "serial"])
def test_the_time_of_a_block_is_that_of_its_products_listed_by_hand(b: int, d: int, f: int, choice: str) -> None:
    flops, bandwidth = Fraction(10**12), Fraction(10**11)
    times = [(done / flops, 2 * moved / bandwidth) for done, moved in kernels(b, d, f)]
    wanted = {
        "overlap": max(sum(t for t, _ in times), sum(t for _, t in times)),
        "per_op": sum(max(pair) for pair in times),
        "serial": sum(sum(pair) for pair in times),
    }[choice]
    derivation = block("").time(accounting=choice, peak=flops, memory=bandwidth)
    assert derivation.at(B=1, L=b, D=d, F=f).value == wanted


# -- a simulation of events -----------------------------------------------------------------------------


def simulate(stages: int, microbatches: int, forward: Fraction, backward: Fraction) -> Fraction:
    """GPipe, event by event: a stage runs one microbatch at a time, forwards first, then backwards."""
    done: dict[tuple[str, int, int], Fraction] = {}
    free = [Fraction(0)] * stages
    waiting = [(Fraction(0), 0, "f", 0, m) for m in range(microbatches)]
    heapq.heapify(waiting)
    while waiting:
        ready, _, kind, stage, m = heapq.heappop(waiting)
        start = max(ready, free[stage])
        end = start + (forward if kind == "f" else backward)
        free[stage], done[kind, stage, m] = end, end
        if kind == "f" and stage + 1 < stages:
            heapq.heappush(waiting, (end, 0, "f", stage + 1, m))
        elif kind == "f" and len([key for key in done if key[:2] == ("f", stages - 1)]) == microbatches:
            for back in range(microbatches):  # all forwards are through
                heapq.heappush(waiting, (end, 1, "b", stages - 1, back))
        elif kind == "b" and stage:
            heapq.heappush(waiting, (end, 1, "b", stage - 1, m))
    return max(done.values())


@pytest.mark.parametrize(("stages", "microbatches"), [(1, 1), (2, 3), (4, 8), (4, 2)])
def test_a_pipelined_step_ends_when_the_last_event_of_a_simulation_does(stages: int, microbatches: int) -> None:
    at = {"N": 8, "B": 24, "L": 8, "D": 32, "F": 128}
    rates = {"peak": 10**12, "memory": 10**15, "network": 10**18}
    step = block().step_time(f"pipeline({stages}, microbatches={microbatches})", **rates).at(**at).value
    layer = block().at(**{**at, "B": Fraction(24, microbatches)})
    forward = layer.time(phase="forward", **rates).at().value * 8 / stages
    backward = layer.time(phase="backward", **rates).at().value * 8 / stages
    assert step == simulate(stages, microbatches, forward, backward)


def run_queues(tasks: list[tuple[str, Fraction]], side_by_side: bool) -> Fraction:
    """The end of a list of tasks on units that work side by side, or one after the other."""
    busy: dict[str, Fraction] = {}
    now = Fraction(0)
    for unit, length in tasks:
        start = busy.get(unit, Fraction(0)) if side_by_side else now
        busy[unit] = now = start + length
    return max(busy.values())


@pytest.mark.parametrize("choice", ["overlap", "serial"])
@pytest.mark.parametrize("strategy", ["data(4)", "tensor(4)", "fully-sharded(4)"])
def test_a_step_ends_when_its_tasks_are_through(choice: str, strategy: str) -> None:
    at = {"N": 3, "B": 12, "L": 8, "D": 32, "F": 128}
    rates = {"peak": 10**12, "memory": 10**11, "network": 10**10}
    layers, microbatches = 3, 3
    layer = block().at(**{**at, "B": 4})

    def term(name: str, phase: str) -> Fraction:
        from api import ValuesError

        try:
            return layer.time(strategy, phase=phase, term=name, **rates).at().value
        except ValuesError:
            return Fraction(0)

    inner = [(name, term(name, "microbatch")) for name in ("compute", "memory", "network")]
    end = [(name, term(name, "end_of_batch")) for name in ("memory", "network")]
    wanted = run_queues(inner * layers * microbatches, choice == "overlap")
    wanted += run_queues(end * layers, choice == "overlap")
    step = block().step_time(strategy, microbatches=microbatches, accounting=choice, **rates).at(**at)
    assert step.value == wanted


def test_reducing_gradients_beside_the_backward_pass_hides_what_computing_covers() -> None:
    at = {"N": 3, "B": 12, "L": 8, "D": 32, "F": 128}
    rates = {"peak": 10**10, "memory": 10**15, "network": 10**12}
    after, beside = (
        block().step_time("data(4)", accounting={"gradient_sync": choice}, **rates).at(**at).value
        for choice in ("end_of_batch", "with_backward")
    )
    network = block().step_time("data(4)", of="network", **rates).at(**at).value
    assert after - beside == network
    exposed = block().step_time("data(4)", of="exposed", accounting="with_backward", **rates).at(**at)
    assert exposed.value == 0


def test_more_microbatches_shrink_the_bubble_as_the_formula_of_gpipe_says() -> None:
    at = {"N": 8, "B": 64, "L": 8, "D": 32, "F": 128}
    rates = {"peak": 10**12, "memory": 10**15, "network": 10**18}
    ideal = block().step_time(**rates).at(**at).value / 4
    for m in (1, 4, 16):
        step = block().step_time(f"pipeline(4, microbatches={m})", **rates).at(**at).value
        assert ideal / step == Fraction(m, m + 3)


def test_recomputation_adds_a_forward_pass_and_two_all_reduces_a_layer() -> None:
    at = {"B": 8, "L": 16, "D": 64, "F": 256}
    kept, again = (
        {
            name: block().time("tensor(4)", term=name, accounting=choice, peak=1, memory=1, network=1).at(**at).value
            for name in ("compute", "network")
        }
        for choice in ("activations_kept", "full_recomputation")
    )
    assert again["compute"] * 3 == kept["compute"] * 4
    assert again["network"] * 2 == kept["network"] * 3  # this block needs one all-reduce in each pass


def test_hardware_utilisation_is_four_thirds_of_model_utilisation_under_full_recomputation() -> None:
    at = {"N": 2, "B": 8, "L": 16, "D": 64, "F": 256}
    rates = {"peak": 10**12, "memory": 10**12}
    for numerator in ("training_flops", "6nd"):
        choices = {"recomputation": "full_recomputation", "model_flops": numerator}
        mfu, hfu = (block().throughput(of=of, accounting=choices, **rates).at(**at).value for of in ("mfu", "hfu"))
        assert hfu / mfu == Fraction(4, 3)
        assert hfu <= 1


def test_six_for_each_parameter_and_token_is_what_a_block_without_attention_needs() -> None:
    at = {"N": 2, "B": 8, "L": 16, "D": 64, "F": 256}
    rates = {"peak": 10**12, "memory": 10**12}
    exact, estimate = (
        block().throughput(of="mfu", accounting=choice, **rates).at(**at).value for choice in ("training_flops", "6nd")
    )
    assert exact == estimate


def test_days_and_device_hours_follow_from_tokens_a_second() -> None:
    at = {"N": 2, "B": 8, "L": 16, "D": 64, "F": 256, "k": 4}
    rates = {"peak": 10**12, "memory": 10**12, "network": 10**10}
    asked = {"budget": "1e9 tokens"}
    speed, days, hours = (
        block().throughput("data(k)", of=of, **budget, **rates).at(**at)
        for of, budget in (("tokens_per_second", {}), ("days", asked), ("device_hours", asked))
    )
    assert days.value == 10**9 / speed.value / 86400
    assert hours.value == 4 * 24 * days.value
    assert (str(days.unit), str(hours.unit)) == ("day", "GPU·hour")


@pytest.mark.long
def test_scaling_is_perfect_without_communication_and_weak_scaling_is_better_than_strong() -> None:
    at = {"N": 2, "B": 8, "L": 16, "D": 64, "F": 256, "k": 4}
    fast = {"peak": 10**12, "memory": 10**15, "network": 10**30}
    slow = {**fast, "network": 10**9}
    assert block().scaling("data(k)", "strong", **fast).at(**at).value == pytest.approx(1, rel=1e-9)
    strong, weak = (block().scaling("data(k)", kind, **slow).at(**at).value for kind in ("strong", "weak"))
    assert strong < weak < 1
    assert block().scaling("data(k)", "speedup", **slow).at(**at).value == 4 * strong


def test_a_latency_counts_once_for_each_round_of_the_ring() -> None:
    at = {"b": 8, "d_in": 16, "d_out": 4, "p": 4}
    rates = {"network": 10**9, "latency": "0.001 s"}
    with_rounds = linear().time("cut(d_in, p)", phase="forward", term="network", **rates).at(**at).value
    without = linear().time("cut(d_in, p)", phase="forward", term="network", network=10**9).at(**at).value
    assert with_rounds - without == 6 * Fraction(1, 1000)


@pytest.mark.parametrize("rates", [{}, {"device": "A100-80GB-SXM", "network": "25 GB/s"}], ids=["symbols", "a device"])
def test_the_ratio_of_two_step_times_is_their_quotient(rates):
    model = sc.load(Path(__file__).parents[2] / "examples/comp4901y-homework2/homework.md")
    times = [model.step_time(placed, **rates) for placed in ("data(8)", "pipeline(8, microbatches=16)")]
    made = sc.ratio(*times)
    values = {"B": 16, "L": 2048, "D": 4096, "n_H": 32, "N_layer": 32}
    values |= {} if rates else {"R": 10**14, "W_mem": 10**12, "W_net": 10**10}
    one, other = (time.at(**values).value for time in times)
    assert made.at(**values).value == one / other
    made.check(deep=True)


GPT2 = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 768, "n_layer": 12, "n_head": 12,
        "vocab_size": 50257, "n_positions": 1024}  # fmt: skip
MIXTRAL = {"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "hidden_size": 4096,
           "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
           "vocab_size": 32000, "num_local_experts": 8, "num_experts_per_tok": 2}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("config", [GPT2, MIXTRAL], ids=["gpt2", "mixtral"])
def test_the_ratio_of_the_step_times_of_whole_models_has_no_unit(config: dict[str, object]):
    model = sc.load(config, dtype="bf16")
    placed = ("data(8)", "tensor(2) + pipeline(4, microbatches=8)")
    times = [model.step_time(strategy, device="H100-SXM", network="50 GB/s") for strategy in placed]
    made = sc.ratio(*times)
    one, other = (time.at(B=64, L=1024).value for time in times)
    assert made.at(B=64, L=1024).value == one / other
    assert not made.unit.powers
    assert [str(step.unit) for step in made.steps[:2]] == ["s", "s"]


@pytest.mark.parametrize("choice", ["overlap", "per_op", "serial"])
def test_the_time_of_a_whole_model_counts_each_layer_whatever_adds_up(choice: str):
    """Forward and backward are all that one device does in a step whose update takes no time."""
    rates = {"peak": "1 TFLOP/s", "memory": "100 GB/s", "network": "1 GB/s", "accounting": {"time": choice}}
    model = sc.load({**GPT2, "n_layer": 4}, dtype="bf16").at(B=2, L=16)
    assert model.time(**rates).at().value == model.step_time(**rates).at().value
