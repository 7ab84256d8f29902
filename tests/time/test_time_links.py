"""Links of each mesh axis and of a hierarchy: times worked out by hand, the same answers as one network, and errors."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path

import pytest
from api import (
    Answer,
    Derivation,
    StrategyError,
    SymcommError,
    ValuesError,
    by_axis,
    from_expr,
    parse_strategy,
    read_problem,
    solve,
)
from api import form_evaluate as evaluate
from hypothesis import given, settings
from hypothesis import strategies as st
from time_models import block

# Two products, x [B, L, D] times W^1 [D, F] and W^2 [F, D], in fp16.
SIZES = {"B": 32, "L": 128, "D": 256, "F": 1024, "N": 6}
RATES = {"peak": "1 TFLOP/s", "memory": "1 TB/s"}
TOKENS, WEIGHTS = 2 * 32 * 128 * 256, 2 * 2 * 256 * 1024  # bytes of x, and of both weights
MICROSECOND, GB = Fraction(1, 10**6), 10**9


def timed(strategy: str, links: object, quantity: str = "time", **options: object) -> Derivation:
    return block().at(**SIZES).derive(quantity, strategy=strategy, links=links, **{**RATES, **options})


def network(strategy: str, links: object, phase: str = "microbatch", **options: object) -> Fraction:
    return timed(strategy, links, term="network", phase=phase, **options).at().value


def ring(payload: int | Fraction, ranks: int) -> Fraction:
    """The bytes of an all-reduce that follow one another on a link."""
    return 2 * payload * Fraction(ranks - 1, ranks)


# -- by hand ---------------------------------------------------------------------------------------------


def test_tensor_parallelism_runs_on_its_fast_links_and_the_gradients_on_the_slow_ones_of_the_data() -> None:
    links = "tensor=600 GB/s @ 2 us, data=50 GB/s"
    inside = 2 * ring(Fraction(TOKENS, 4), 8) / (600 * GB) + 2 * 14 * 2 * MICROSECOND
    across = ring(Fraction(WEIGHTS, 8), 4) / (50 * GB)
    assert network("data(4) + tensor(8)", links) == inside
    assert network("data(4) + tensor(8)", links, "end_of_batch") == across
    assert network("data(4) + tensor(8)", links, "end_of_batch", latency="5 us") == across + 12 * 5 * MICROSECOND
    step = timed("data(4) + tensor(8)", links, "step_time", of="network")
    assert step.at().value == 6 * (inside + across)
    assert dict(step.given)["W_tensor"] == 600 * GB
    assert dict(step.given)["alpha_tensor"] == 2 * MICROSECOND


def test_what_is_not_named_goes_over_the_network_and_the_calls_of_a_rank_follow_one_another() -> None:
    # Sequence parallelism gathers x and scatters the sum: over two links the bytes of an all-reduce.
    both = timed("tensor(8) + sequence + data(2)", "tensor=2", term="network", network="100 GB/s", phase="forward")
    assert both.at().value == ring(TOKENS // 2, 8) / (200 * GB)
    sync = timed("data(4) + tensor(8)", "tensor=600 GB/s", "step_time", of="network", network="25 GB/s",
                 accounting={"gradient_sync": "with_backward"})  # fmt: skip
    assert sync.at().value == 6 * (2 * ring(TOKENS // 4, 8) / (600 * GB) + ring(WEIGHTS // 8, 4) / (25 * GB))


def test_a_layer_with_calls_over_two_axes_adds_the_times_of_both_links() -> None:
    strategy, links = "fsdp(4) + tensor(8)", "data=50 GB/s, tensor=600 GB/s @ 2 us"
    gathers = 2 * Fraction(WEIGHTS, 8) * Fraction(3, 4)  # both weights, forward and again backward
    found = timed(strategy, links, term="network")
    reduces = 2 * ring(TOKENS // 4, 8) / (600 * GB) + 28 * 2 * MICROSECOND
    assert found.at().value == gathers / (50 * GB) + reduces
    assert {"V_data", "V_tensor", "t_data", "t_tensor", "r_tensor", "t_latency_tensor"} <= {*found.worth}
    assert "r_data" not in found.worth


def test_the_messages_of_a_pipeline_go_over_the_links_between_stages() -> None:
    links = "pipe=25 GB/s @ 10 us, tensor=600 GB/s"
    step = timed("tensor(8) + pipeline(2, microbatches=4)", links, "step_time")
    sent = sum(evaluate(from_expr(step.worth[f"t_network_send,{way}"]), step.values()) for way in "FD")
    assert sent == 2 * (Fraction(TOKENS, 4) / (25 * GB) + 10 * MICROSECOND)  # an activation there, a gradient back


def test_a_call_over_several_axes_takes_the_slowest_of_their_links() -> None:
    strategy, phase = "data(4) + context(2)", "end_of_batch"
    whole = ring(WEIGHTS, 8)
    links = "data=600 GB/s @ 1 us, context=300 GB/s @ 2 us"
    assert network(strategy, links, phase) == whole / (300 * GB) + 2 * 14 * 2 * MICROSECOND
    assert network(strategy, "data=3, context=2", phase, network="10 GB/s") == whole / (20 * GB)
    assert network(strategy, "data=30 GB/s", phase, network="10 GB/s") == whole / (10 * GB)


def test_a_hierarchical_call_over_two_axes_uses_the_links_of_each() -> None:
    strategy, links = "data(4) + context(2)", "data=50 GB/s @ 5 us, context=300 GB/s @ 2 us"
    inner, outer = ring(WEIGHTS, 2) / (300 * GB), ring(Fraction(WEIGHTS, 2), 4) / (50 * GB)
    rounds = 2 * (2 * 2 + 6 * 5) * MICROSECOND
    assert network(strategy, links, "end_of_batch", accounting="hierarchical") == inner + outer + rounds


HIERARCHY = "node=8, inside=900 GB/s, between=50 GB/s, latency_inside=1 us, latency_between=5 us"


def test_tensor_parallelism_lies_inside_a_node_and_data_partly_so_that_it_goes_at_the_speed_between_nodes() -> None:
    inside = 2 * ring(Fraction(TOKENS, 16), 4) / (900 * GB) + 2 * 6 * MICROSECOND
    across = ring(Fraction(WEIGHTS, 4), 16) / (50 * GB) + 2 * 30 * 5 * MICROSECOND
    assert network("data(16) + tensor(4)", HIERARCHY) == inside
    assert network("data(16) + tensor(4)", HIERARCHY, "end_of_batch") == across
    assert network("data(2) + tensor(4)", HIERARCHY, "end_of_batch") == (
        ring(Fraction(WEIGHTS, 4), 2) / (900 * GB) + 2 * 2 * MICROSECOND
    )
    found = timed("data(16) + tensor(4)", HIERARCHY)
    assert found.notes[0] == (
        "A node has 8 ranks: `tensor` (4 ranks) lies inside, `data` (16 ranks) has 2 ranks inside and goes between "
        "nodes."
    )


def test_an_axis_that_lies_partly_inside_a_node_runs_the_hierarchical_algorithm_when_asked() -> None:
    # 2 of the 16 ranks in each of 8 nodes: all of it inside, half of it between.
    payload = Fraction(WEIGHTS, 4)
    inside = ring(payload, 2) / (900 * GB) + 2 * 2 * MICROSECOND
    between = ring(payload / 2, 8) / (50 * GB) + 2 * 14 * 5 * MICROSECOND
    links = HIERARCHY
    assert network("data(16) + tensor(4)", links, "end_of_batch", accounting="hierarchical") == inside + between
    assert network("data(16) + tensor(4)", links, accounting="hierarchical") == network("data(16) + tensor(4)", links)


def test_the_messages_of_a_pipeline_stay_inside_a_node_only_where_all_its_stages_do() -> None:
    for ranks, rate, latency in ((4, 900, 1), (8, 50, 5)):
        step = timed(f"tensor({ranks}) + pipeline(2, microbatches=4)", HIERARCHY, "step_time")
        sent = sum(evaluate(from_expr(step.worth[f"t_network_send,{way}"]), step.values()) for way in "FD")
        assert sent == 2 * (Fraction(TOKENS, 4) / (rate * GB) + latency * MICROSECOND)


def test_in_a_hierarchy_an_answer_holds_for_the_degrees_it_was_laid_out_for() -> None:
    found = block().at(**SIZES, k=16, t=4).derive("time", strategy="data(k) + tensor(t)", links=HIERARCHY, **RATES)
    assert found.at().value == timed("data(16) + tensor(4)", HIERARCHY).at().value
    with pytest.raises(ValuesError, match="holds where k = 16"):
        found.at(k=32)
    with pytest.raises(ValuesError, match="the number of k decides where the axes of the mesh lie in a node"):
        block().at(**SIZES, k=16).crossover("network, compute", "k", "data(k) + tensor(4)", links=HIERARCHY)


@pytest.mark.parametrize(
    ("strategy", "order"),
    [
        ("data(2) + context(2) + tensor(2) + sequence", ("tensor", "context", "data")),
        ("data(2) + expert(4, mesh=expert) + tensor(2)", ("tensor", "expert", "data")),
        ("hybrid-sharded(8, 4)", ("shard", "replicate")),
        ("data(2) + cut(D, 2, mesh=x) + cut(F, 2, mesh=y)", ("x", "y", "data")),
    ],
)
def test_the_axes_of_a_mesh_fill_a_node_in_the_order_in_which_they_send(strategy: str, order: tuple[str, ...]) -> None:
    assert parse_strategy(strategy).mesh_order == order


# -- the same as one network -----------------------------------------------------------------------------


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "convention", ["overlap", *(pytest.param(c, marks=pytest.mark.long) for c in ("serial", "per_op"))]
)
@pytest.mark.parametrize(
    "strategy", ["data(4) + tensor(8)", "fsdp(4) + tensor(8) + sequence", "data(2) + context(4)", "hsdp(2, 4)"]
)
def test_links_that_are_all_alike_are_one_network(strategy: str, convention: str) -> None:
    alike = dict.fromkeys(parse_strategy(strategy).sizes, "70 GB/s @ 3 us")
    one = {"network": "70 GB/s", "latency": "3 us"}
    levels = "node=4, inside=70 GB/s @ 3 us, between=70 GB/s @ 3 us"
    expected = timed(strategy, None, "step_time", accounting=convention, **one).at().value
    for links in (alike, levels):
        assert timed(strategy, links, "step_time", accounting=convention).at().value == expected
    ones = dict.fromkeys(alike, 1)
    assert timed(strategy, ones, "step_time", accounting=convention, **one).at().value == expected


@pytest.fixture(scope="module")
def step() -> Derivation:
    links = "tensor=1 GB/s @ 1 us, data=1 GB/s @ 1 us"
    return timed("data(4) + tensor(8)", links, "step_time", of="network")


@settings(deadline=None)
@given(st.integers(1, 900), st.integers(1, 900), st.integers(0, 9), st.integers(0, 9))
def test_the_time_of_a_step_is_that_of_the_bytes_of_each_axis_over_its_bandwidth(
    step: Derivation, fast: int, slow: int, near: int, far: int
) -> None:
    rates = {"W_tensor": fast * GB, "W_data": slow * GB}
    late = {"alpha_tensor": near * MICROSECOND, "alpha_data": far * MICROSECOND}
    tensor = 2 * ring(TOKENS // 4, 8) / (fast * GB) + 28 * near * MICROSECOND
    data = ring(WEIGHTS // 8, 4) / (slow * GB) + 12 * far * MICROSECOND
    assert step.at(**rates, **late).value == 6 * (tensor + data)


# -- other quantities ------------------------------------------------------------------------------------


def test_computing_is_compared_with_each_axis_at_its_own_bandwidth() -> None:
    options = {"phase": "forward", "peak": "C", "accounting": "serial"}
    own = block().derive("compute_bound", strategy="fsdp(4) + tensor(8)", links="data=50 GB/s, tensor=150 GB/s",
                         **options)  # fmt: skip
    threefold = block().derive("compute_bound", strategy="fsdp(4) + tensor(8)", links="tensor=3", network="50 GB/s",
                               **options)  # fmt: skip
    at = {"C": 10**14, "L": 8, "D": 4096, "F": 16384}
    assert own.at(**at).value == threefold.at(**at).value > 0


def test_the_best_split_knows_the_bandwidth_of_each_axis() -> None:
    options = {"strategy": "fsdp(X) + tensor(Y)", "devices": 64}
    for numbers in ("real", "whole"):
        own = block().at(**SIZES).derive("mesh_split", links="X=50 GB/s, Y=150 GB/s", numbers=numbers, **options)
        same = block().at(**SIZES).derive("mesh_split", links="Y=3", network="50 GB/s", numbers=numbers, **options)
        assert own.at().value == same.at().value


def test_the_bandwidth_of_one_axis_is_solved_for_beside_the_time_of_the_others() -> None:
    strategy, links = "fsdp(4) + tensor(8)", "data=500 GB/s, tensor=600 GB/s @ 2 us"
    found = timed(strategy, links, "crossover", between="network, compute", over="W_data", peak="0.1 TFLOP/s")
    computing = timed(strategy, links, term="compute", peak="0.1 TFLOP/s").at().value
    tensor = 2 * ring(TOKENS // 4, 8) / (600 * GB) + 56 * MICROSECOND
    assert found.at().value == Fraction(3 * WEIGHTS, 16) / (computing - tensor)
    assert str(found.unit) == "B/s"


def test_more_ranks_on_slower_links_scale_less_well() -> None:
    def scaled(links: object) -> Derivation:
        return block().at(**SIZES).scaling("data(k)", over="k", links=links, network="900 GB/s", **RATES)

    one, slow = scaled(None), scaled("k=9 GB/s")
    assert slow.at(k=8).value < one.at(k=8).value
    assert scaled("k=900 GB/s").at(k=8).value == one.at(k=8).value
    many = block().at(**SIZES, k=16).scaling("data(k)", links="node=8, inside=900 GB/s, between=9 GB/s", **RATES)
    assert many.at().value == slow.at(k=16).value
    with pytest.raises(ValuesError, match="holds where k = 16"):
        many.at(k=4)


def test_a_throughput_takes_the_links_of_its_step() -> None:
    strategy, links = "data(4) + tensor(8)", "tensor=600 GB/s, data=50 GB/s"
    step = timed(strategy, links, "step_time").at().value
    assert timed(strategy, links, "throughput").at().value == 32 * 128 / step


# -- how they are said -----------------------------------------------------------------------------------


def test_text_and_mapping_say_the_same_by_the_name_of_an_axis_or_the_symbol_of_its_size() -> None:
    placed = parse_strategy("fsdp(X) + tensor(Y)")
    assert by_axis("X=2, tensor=600 GB/s @ 2 us", placed) == {"data": "2", "tensor": "600 GB/s @ 2 us"}
    texts = ["tensor=600 GB/s @ 2 us, data=2", {"tensor": "600 GB/s @ 2 us", "data": 2}]
    first, second = (timed("data(4) + tensor(8)", links, "step_time").expr for links in texts)
    assert first == second


def test_a_symbol_of_the_model_is_not_taken_for_a_bandwidth() -> None:
    model = block().at(**SIZES)
    found = model.derive("time", strategy="cut(F, W_F)", links="F=5 GB/s", term="network")
    assert dict(found.given)["W_F'"] == 5 * GB


def test_a_problem_file_may_write_the_links_as_a_mapping(tmp_path: Path) -> None:
    table = "| Y = XW | X [B, D], W [D, F] | Y [B, F] |"
    file = tmp_path / "p.md"
    file.write_text(
        "---\ntitle: T\n---\n\n| Computation | Input | Output |\n|---|---|---|\n" + table + "\n\n"
        "```symcomm\nmodel: layer\n```\n\n```symcomm\nask: time\nstrategy: data(4)\nphase: end_of_batch\n"
        "links: {data: 50 GB/s @ 5 us}\ngiven: {D: 1000, F: 1000}\n```\n"
    )
    (answer,) = [piece for piece in solve(read_problem(file)).blocks if isinstance(piece, Answer)]
    assert answer.quantity is not None
    assert answer.quantity.value == ring(2 * 10**6, 4) / (50 * GB) + 6 * 5 * MICROSECOND


def test_the_example_of_the_page_runs(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    root = Path(__file__).parents[2]
    monkeypatch.chdir(root)
    code = next(c for c in re.findall(r"```python\n(.*?)```", (root / "docs/time.md").read_text(), re.DOTALL)
                if "links" in c)  # fmt: skip
    exec(compile(code, "time.md", "exec"), {})
    one, other, notes = capsys.readouterr().out.splitlines()
    assert one == other
    assert "`tensor` (8 ranks) lies inside, `data` goes between nodes" in notes


# -- told and refused ------------------------------------------------------------------------------------


def test_links_that_nothing_goes_over_are_told() -> None:
    said = "Nothing in this answer is sent {}: `links` changes nothing there."
    assert timed("data(4) + tensor(8)", "data=50 GB/s", phase="forward").notes == (said.format("along `data`"),)
    assert timed("data(4) + tensor(8)", "data=50 GB/s, tensor=2", term="compute").notes == (
        said.format("along `data` or along `tensor`"),
    )
    assert timed("data(4)", HIERARCHY, phase="end_of_batch").notes[1:] == (said.format("between nodes"),)
    told = ("Makes no difference here: `links`, `memory`.",)
    assert timed("data(4)", "data=5 GB/s", "throughput", mfu="1/2").notes == told
    assert not timed("data(4) + tensor(8)", "data=50 GB/s, tensor=2", "step_time").notes


@pytest.mark.parametrize(
    ("links", "said", "hint"),
    [
        ("tensr=600 GB/s", "the mesh has no axis 'tensr'", "did you mean 'tensor'?"),
        ("pipe=25 GB/s", "the mesh has no axis 'pipe'", "known: "),
        ("tensor=600 GB", "tensor is given in B, but the bandwidth along `tensor` is in B/s", "600 GB/s"),
        ("tensor=600 XB/s", "unknown unit 'XB'", ""),
        ("tensor=0 GB/s", "tensor = 0 GB/s: the bandwidth along `tensor` must be positive", "600 GB/s"),
        ("tensor=600 GB/s @ 2 GB", "the latency of tensor is given in B", "2 us"),
        ("tensor=600 GB/s @ -2 us", "the latency of a message along `tensor` must be positive", "2 us"),
        ("tensor=2.5", "'2.5' is no number of links of 'tensor'", "a bandwidth such as 600 GB/s"),
        ("tensor", "'tensor' says no number of links and no bandwidth", "tensor=600 GB/s"),
        ("tensor=2, tensor=3", "the links of the mesh axis 'tensor' are given twice", ""),
        ("tensor=D", "D is a symbol of the model", "name the links otherwise"),
        ("tensor=5 GB/s @ k", "k is a symbol of the strategy", "name the links otherwise"),
        ("node=8", "links say how many ranks a node has, but not how fast", "inside=900 GB/s"),
        ("inside=900 GB/s", "links say how fast it is inside or between nodes, but not how many ranks", "node=8"),
        ("node=8 GB, inside=900 GB/s", "'8 GB' is no number of ranks of a node", "node=8"),
        ("node=0, inside=900 GB/s", "'0' is no number of ranks of a node", "node=8"),
        ("node=12, inside=9 GB/s", "the 12 places that a node of 12 ranks has for 'tensor' do not share out its 8", ""),
        ("node=16, inside=9 GB/s", "whether 'data' lies inside a node of 16 ranks depends on its size", "give numbers"),
        ("node=8, inside=9 GB/s @ 1 us, latency_inside=2 us", "the latency inside a node is given twice", ""),
    ],
)
def test_links_that_make_no_sense_are_refused(links: str, said: str, hint: str) -> None:
    with pytest.raises(ValuesError) as error:
        timed("data(k) + tensor(8)", links)
    assert said in error.value.message
    assert hint in (error.value.hint or "")


def test_a_degree_below_one_fills_no_node() -> None:
    with pytest.raises(StrategyError, match="the mesh axis 'tensor' has 0 ranks"):
        block().at(t=0).derive("time", strategy="tensor(t)", links=HIERARCHY)


def test_a_hierarchical_call_over_three_kinds_of_links_uses_each() -> None:
    """Two ranks on each: all of the gradients is cut into halves three times, there and back."""
    links = "data=1 GB/s, context=2 GB/s, other=3 GB/s"
    strategy = "data(2) + context(2) + cut(L, 2, mesh=other)"
    found = timed(strategy, links, phase="end_of_batch", accounting="hierarchical", term="network")
    parts = [Fraction(1, size) / rate for size, rate in ((1, 3), (2, 2), (4, 1))]
    assert found.at().value == WEIGHTS * sum(parts) / GB


@pytest.mark.parametrize("quantity", ["balance", "bound"])
def test_a_quantity_that_times_no_network_takes_no_links(quantity: str) -> None:
    with pytest.raises(SymcommError, match=r"has no option 'links'|the mesh has no axis 'data'"):
        block().derive(quantity, links="data=5 GB/s")
