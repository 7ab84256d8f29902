"""What a search tells: ties, what cannot be, buckets, sizes of the model, documents, and the same from any worker."""

import gc
import json
import re
import sys
import tracemalloc
from fractions import Fraction
from math import ceil

import joblib
import pytest
from api import AccountingError, Limit, Objective, ValuesError, divisors, main, whole_numbers
from api import searching_evaluate as evaluate
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from search_oracle import BLOCK, RATES, attention, block

import symcomm as sc

HUGE = {"capacity": "1 TB", "capacity_is": "nominal_GB"}


def searched(model=None, **options):
    return sc.search(model or block(), **({"devices": 4, "recomputation": "none"} | HUGE | RATES | options))


def test_where_nothing_fits_the_nearest_miss_is_told():
    found = searched(capacity="1 kB", capacity_is="usable", strategies="data + tensor", microbatches=3)
    least = sc.load(BLOCK, repeat="N_layer", values={"N_layer": 6, "B": 4, "L": 16, "D": 24, "F": 36})
    # By hand: the two matrices are cut four ways, the activations of a third of the batch as well.
    states = least.state_memory("tensor(4)").at().value + least.activation_memory("tensor(4)").at().value
    assert (found.feasible, found.front, found.top) == (0, (), ())
    assert found.nearest[0].memory.value == states
    assert found.nearest[0].strategy == "tensor(4)"
    assert found.summary.startswith("3 configurations of block on 4 devices of 1")
    assert "none fits. The nearest, tensor(4) with 3 microbatches, needs" in found.summary
    assert f"{float(states / 1000):.4g} times the capacity" in found.summary
    assert dict(found.refused) == {"does not fit in the memory": 3}
    with pytest.raises(sc.SymcommError, match="no configuration fits, so there is no front to draw"):
        found.plot()


def test_where_no_shape_uses_all_devices_there_are_no_configurations():
    found = searched(devices=7, strategies="data + tensor", sizes={"data": "2..6"})
    assert (found.tried, found.feasible, found.top) == (0, 0, ())
    assert "there are none. No shape of the mesh uses all devices" in found.summary


def test_where_nothing_divides_it_says_so():
    found = searched(devices=7, strategies="tensor")
    assert found.tried == 6
    assert dict(found.refused) == {"does not divide: F by tensor": 6}
    assert "none can run, for none divides evenly" in found.summary


def test_each_reason_is_counted_once_and_names_what_is_cut():
    found = searched(attention(), devices=8, strategies="tensor + sequence + pipeline", microbatches="3")
    # 8 = t p: four heads take 1, 2, 4; four layers take 1, 2, 4; a batch of eight never takes three microbatches.
    assert sum(n for _, n in found.refused) == found.tried == 4
    assert {why for why, _ in found.refused} == {
        "does not divide: n_H by tensor", "does not divide: B by microbatches",
    }  # fmt: skip


def test_an_axis_of_one_rank_is_no_configuration_of_its_own():
    found = searched(strategies=["data + tensor", "zero-1 + tensor", "data", "tensor"], microbatches=1)
    assert sorted(c.strategy for c in found.top) == [
        "data(2) + tensor(2)", "data(4)", "tensor(4)", "zero-1(2) + tensor(2)", "zero-1(4)",
    ]  # fmt: skip
    assert searched(devices=1, strategies="data + tensor", microbatches=1).top[0].strategy == "one device"


def test_fixed_degrees_and_limits_of_an_axis_are_kept():
    found = searched(devices=8, strategies=["data + tensor(2)", "fully-sharded(k) + tensor(t)"],
                     sizes={"tensor": "2,4"}, batch=24, microbatches=1)  # fmt: skip
    assert sorted(c.strategy for c in found.top) == [
        "data(4) + tensor(2)", "fully-sharded(2) + tensor(4)", "fully-sharded(4) + tensor(2)",
    ]  # fmt: skip


def test_a_degree_may_be_called_by_its_symbol_or_by_its_axis():
    one = searched(devices=12, strategies="data + tensor(t)", sizes={"t": "1..3"})
    other = searched(devices=12, strategies="data + tensor(t)", sizes={"tensor": [1, 2, 3]})
    assert told(one) == told(other)
    assert {dict(c.mesh)["tensor"] for c in one.top} == {1, 2, 3}


def test_a_strategy_may_be_called_by_any_of_its_names():
    whole, short = (searched(strategies=said) for said in ("Tensor parallelism + data_parallel", "tp + data"))
    assert whole.top == short.top


def test_of_the_usual_strategies_those_that_a_model_does_not_allow_are_left_out_aloud():
    one_matrix = sc.load("Computation\tInput\tOutput\ny = xW\tx [B, D], W [D, F]\ty [B, F]\n",
                         values={"B": 4, "D": 8, "F": 8})  # fmt: skip
    found = sc.search(one_matrix, devices=4, **HUGE, **RATES)
    assert {c.strategy for c in found.top} == {"data(4)", "zero-1(4)", "fully-sharded(4)"}
    assert [note[:14] for note in found.notes if note.startswith("No ")] == [
        "No tensor: lay",
        "No pipeline: o",
        "No sequence: l",
    ]


def test_ties_are_ordered_by_memory_and_the_front_has_one_of_them():
    # Without a network to wait for, computing bounds every one of them: the times are all equal.
    found = searched(strategies="tensor", devices=2, microbatches="1,2,3,6", peak="1 GFLOP/s", network="1000 TB/s",
                     memory="1000 TB/s", latency=None)  # fmt: skip
    assert len({c.time.value for c in found.top}) == 1
    assert [c.microbatches for c in found.top] == [6, 3, 2, 1]
    assert [c.microbatches for c in found.front] == [6]


def test_sizes_of_the_model_and_the_batch_are_varied():
    found = searched(strategies="data", devices=2, sizes={"L": "16,32"}, batch="12,24", microbatches=2)
    assert {(dict(c.sizes)["L"], dict(c.sizes)["B"]) for c in found.top} == {(16, 12), (16, 24), (32, 12), (32, 24)}
    for c in found.top:
        sizes = dict(c.sizes)
        exact = block(**sizes).step_time(c.strategy, microbatches=2, **RATES).at()
        assert c.time.value == exact.value


def test_the_number_of_layers_is_a_size_that_stages_divide():
    found = searched(strategies="data + pipeline", devices=4, sizes={"N_layer": "4,6", "D": "8,24"}, microbatches=3)
    assert {(dict(c.sizes)["N_layer"], dict(c.mesh).get("pipeline", 1)) for c in found.top} == {
        (4, 1), (4, 2), (4, 4), (6, 1), (6, 2),
    }  # fmt: skip
    for c in found.top:
        model = block(**dict(c.sizes))
        assert c.time.value == model.step_time(c.strategy, microbatches=3, **RATES).at().value
        assert [s.amount for s in c.held if s.what == "weights"] == [
            2 * Fraction(dict(c.sizes)["N_layer"], dict(c.mesh).get("pipeline", 1)) * 2 * dict(c.sizes)["D"] * 36
        ]


def test_buckets_leave_what_a_simulated_queue_of_calls_leaves():
    overhead, d, m = Fraction(1, 50_000), 4, 3
    found = searched(strategies="data", buckets="1..5", call_overhead="20 us", microbatches=m)
    by_buckets = {dict(c.sizes).get("buckets", 0): c.time.value for c in found.top}
    assert set(by_buckets) == {0, 1, 2, 3, 4, 5}
    # By hand: two matrices of 24 x 36 a layer, six layers, two bytes a gradient, on a ring of four.
    moved = Fraction(6 * 2 * 24 * 36 * 2 * 2 * (d - 1), d * 20 * 10**9)
    reduced = moved + 6 * 2 * 2 * (d - 1) * Fraction(1, 100_000)
    backward = 6 * block(B=12 // m).time("data(4)", phase="backward", **RATES).at().value
    for n in range(1, 6):
        free = Fraction(0)
        for bucket in range(n):  # a call starts when its bucket is ready and the one before has ended
            free = max(free, backward * (bucket + 1) / n) + overhead + moved / n
        assert by_buckets[n] == by_buckets[0] - reduced + (free - backward)


@pytest.mark.long
def test_the_strategy_of_a_configuration_is_a_text_that_derives_the_same():
    found = searched(
        devices=12, strategies="zero-1 + tensor + pipeline", microbatches="1,2", schedules="gpipe,1f1b",
        recomputation="full", top=100,
    )  # fmt: skip
    assert {c.schedule for c in found.top} == {"", "gpipe", "1f1b"}
    model = block()
    for c in found.top[::5]:
        step = model.step_time(c.strategy, microbatches=c.microbatches, accounting=c.accounting, **RATES)
        assert step.at().value == c.time.value
        if c.schedule:
            kept = model.activation_memory(c.strategy, schedule=c.schedule, accounting=c.accounting).at().value
            assert kept + model.state_memory(c.strategy).at().value == c.memory.value


@pytest.mark.parametrize("name", ["tree", "recursive_doubling", "halving_doubling", "owner_multicast"])
def test_every_algorithm_of_collectives_is_that_of_a_number_of_ranks(name):
    # A symbol for the ranks takes floors of logarithms; six ranks by name take none.
    found = searched(devices=6, strategies="data", microbatches=1, accounting={"algorithm": name})
    exact = block().step_time("data(6)", accounting={"algorithm": name}, **RATES).at().value
    assert [c.time.value for c in found.top] == [exact]


@pytest.mark.parametrize(("text", "time"), [("zero-1 + tensor + sequence + pipeline", "overlap"), ("data", "per_op")])
def test_what_is_evaluated_at_once_is_the_exact_number_to_twelve_digits(text, time):
    import numpy as np
    from api import Draft, Grid, SearchQuestion, structure
    from api import template_pieces as pieces

    rates = tuple(RATES.items())
    question = SearchQuestion(attention(), ("B", "L"), rates=rates, accounting=sc.Accounting(time=time))
    draft = Draft(pieces(text), "selective", "1f1b" if "pipeline" in text else "")
    made = structure(question, draft)
    shapes = [(d, t, p)[: len(draft.axes)] for d in (1, 3, 8, 4096) for t in (2, 6) for p in (2, 5)]
    lists = (("microbatches", (1, 7, 96)), ("B", (8, 10**6)), ("L", (16, 10**5)))
    grid = Grid(draft.axes, tuple(dict.fromkeys(shapes)), lists)
    _, columns = grid.block(0, grid.size)
    symbols = {**dict(made.symbols), "B": "B", "L": "L"}
    known = {symbols[name]: column.astype(float) for name, column in columns.items()}
    found = made.core.collected.evaluated(known, evaluate.summed, evaluate.arrays)
    flat = {name: np.broadcast_to(values, grid.lengths).ravel() for name, values in found.items()}
    for index in range(0, grid.size, 5):
        exact = made.at({symbols[name]: n for name, n in grid.at(index).items()})
        for name, values in flat.items():
            assert abs(Fraction(values[index]) - exact[name]) <= exact[name] / 10**12


def below(capacity: int) -> Objective:
    return Objective(("time", "memory"), (Limit("memory", Fraction(capacity), "too large"),))


def test_what_has_no_value_is_refused_and_not_ranked():
    from api import Core, Grid, Ratio, Sym, Total, collect, num

    k = Sym("k")
    seconds = Ratio(num(1), Total((k, num(-2))))
    core = Core(("k",), collect([("time", seconds), ("memory", Ratio(num(8), k))], ("time", "memory")), ())
    grid = Grid(("data",), ((1,), (2,), (3,), (4,)), ())
    part = evaluate.evaluate(evaluate.EvaluationTask(0, core, (("data", "k"),), grid, 0, 4, below(2), 9))
    # One has a negative time and two an infinite one; 8/3 bytes are too many, 8/4 are just enough.
    assert (part.tried, part.fits, part.too_large, part.refused) == (4, 1, (1,), ((0, (2,)),))
    assert part.top.index.tolist() == [3]


@pytest.mark.long
def test_the_arrays_of_a_block_are_let_go_of_without_a_look_for_garbage():
    from api import Ceiling, Core, Grid, Largest, Ratio, Sym, Total, collect, num

    k, m = Sym("k"), Sym("m")
    whole = Largest((Ceiling(Ratio(k, m)), Total((k, num(3)))))  # nodes and sums, each with arrays of its own
    steps = [("time", Total((whole, m))), ("memory", Total((whole, k)))]
    core = Core(("k", "m"), collect(steps, ("time", "memory")), ())
    grid = Grid(("data",), tuple((n,) for n in range(1, 301)), (("microbatches", tuple(range(1, 301))),))
    task = evaluate.EvaluationTask(
        0, core, (("data", "k"), ("microbatches", "m")), grid, 0, grid.size, below(10**6), 9
    )  # fmt: skip
    evaluate.evaluate(task)
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        part = evaluate.evaluate(task)
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
        gc.enable()
    assert part.tried == 90_000
    assert held < 8 * part.tried / 4  # one array of the block has 8 bytes for each configuration


# -- the same from any worker -----------------------------------------------------------------------------


def told(found) -> str:
    return json.dumps(found.json())


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr(evaluate, "CHUNK", 7)


def test_small_units_of_work_tell_the_same(monkeypatch):
    whole = told(searched(devices=12, strategies="data + tensor + pipeline", microbatches="1..12"))
    monkeypatch.setattr(evaluate, "CHUNK", 7)
    assert told(searched(devices=12, strategies="data + tensor + pipeline", microbatches="1..12")) == whole


def test_threads_tell_the_same(small_chunks):
    alone = told(searched(devices=12, strategies="data + tensor"))
    with joblib.parallel_config("threading", n_jobs=2):
        assert told(searched(devices=12, strategies="data + tensor")) == alone


def test_one_job_needs_no_workers(small_chunks, monkeypatch):
    by_joblib = told(searched(devices=12, strategies="data + tensor"))
    monkeypatch.delitem(sys.modules, "joblib")
    assert told(searched(devices=12, strategies="data + tensor")) == by_joblib
    assert told(searched(devices=12, strategies="data + tensor", jobs=1)) == by_joblib
    assert "joblib" not in sys.modules


NORMED = "Computation\tInput\tOutput\nn = layernorm(x)\tx [B, D]\tn [B, D]\nx' = gelu(nW)\tW [D, D]\tx' [B, D]\n"


def test_a_search_rests_on_the_conventions_of_each_of_its_strategies():
    model = sc.load(NORMED, repeat="N_layer", values={"N_layer": 6, "B": 12, "D": 24})
    texts, again = ("data", "zero-1"), ("none", "full")
    asked = [searched(model, strategies=text, recomputation=how) for text in texts for how in again]
    both = searched(model, strategies=texts, recomputation=again)
    assert {c.field for c in both.conventions} == {c.field for one in asked for c in one.conventions}
    assert "saved" in {c.field for c in both.conventions}


@pytest.mark.long
def test_two_processes_tell_the_same(small_chunks):
    alone = told(searched(devices=12, strategies="data + tensor"))
    assert told(searched(devices=12, strategies="data + tensor", jobs=1)) == alone
    assert told(searched(devices=12, strategies="data + tensor", jobs=2)) == alone


def functions_of_a_worker() -> int:
    import sys

    return int("symcomm.searching.evaluate" in sys.modules)


@pytest.mark.long
@pytest.mark.filterwarnings("default")  # what Dask and its own libraries warn of is theirs
@pytest.mark.parametrize("processes", [False, True])
def test_a_local_dask_cluster_tells_the_same(small_chunks, processes):
    from dask.distributed import Client, LocalCluster

    alone = told(searched(devices=12, strategies="data + tensor"))
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=processes, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        with joblib.parallel_config("dask"):
            found = searched(devices=12, strategies="data + tensor")
        compiled = client.run(functions_of_a_worker)
    assert told(found) == alone
    assert len(compiled) == 2
    assert sum(compiled.values()) > 0  # it was the workers that evaluated


# -- how it is told ---------------------------------------------------------------------------------------


def test_tables_and_json_say_the_same_as_the_result():
    found = searched(strategies="data + tensor", top=3)
    made = json.loads(told(found))
    assert made["format"] == 1
    assert (made["tried"], made["feasible"]) == (found.tried, found.feasible)
    assert Fraction(made["top"][0]["time"]["exact"]) == found.top[0].time.value
    assert made["capacity"] == {"exact": "1000000000000", "unit": "B", "is": "nominal_GB"}
    shown = found.markdown()
    assert f"| {found.top[0].strategy} | {found.top[0].microbatches} |" in shown
    assert "overlap. Computing, memory and network work in parallel" in shown
    html = found._repr_html_()
    assert html.count("<tr>") == 2 + 3 + len(found.front) + (1 + len(found.refused) if found.refused else 0)
    assert str(found) == found.text()
    assert found._repr_markdown_() == shown


def test_a_sentence_says_what_limits_and_what_fills_the_memory():
    slow = searched(
        strategies="data", devices=2, microbatches=1, network="1 GB/s", capacity="1 MB", capacity_is="usable"
    )
    assert slow.top[0].why.startswith("Limited by the collectives: ")
    assert "most of it all-reduce of weight gradients over data" in slow.top[0].why
    busy = searched(strategies="pipeline", devices=6, microbatches=2, peak="1 GFLOP/s")
    # Two microbatches in seven slots: five of them are bubble.
    assert busy.top[0].why.startswith("Limited by the pipeline bubble: 71 % of the step; computing 29 %")
    memory = searched(strategies="data", devices=2, microbatches=1, memory="1 MB/s")
    assert memory.top[0].why.startswith("Limited by memory traffic: 100 % of the step.")
    link = searched(strategies="pipeline", devices=6, microbatches=12, network="1 kB/s")
    assert link.top[0].why.startswith("Limited by pipeline messages:")


def test_the_picture_of_the_front_is_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    found = searched(devices=12, strategies="data + tensor")
    found.plot(tmp_path / "front.svg")
    first = (tmp_path / "front.svg").read_bytes()
    found.plot(tmp_path / "front.svg")
    assert (tmp_path / "front.svg").read_bytes() == first
    with pytest.raises(sc.SymcommError, match="no picture that can be written"):
        found.plot(tmp_path / "front.gif")


def test_the_command_line_searches(tmp_path):
    table = tmp_path / "block.md"
    rows = "".join("| " + " | ".join(r.split("\t")) + " |\n" for r in BLOCK.splitlines()[1:])
    block = "\n```symcomm\nmodel: block\nrepeat: N_layer\nvalues: {N_layer: 6, L: 16, D: 24, F: 36}\n```\n"
    table.write_text(f"| Computation | Input | Output |\n|---|---|---|\n{rows}{block}")
    words = ["search", str(table), "--devices", "4", "--batch", "12", "--strategy", "data + tensor", "--sizes",
             "tensor=1,2", "--recomputation", "none", "--peak", "1 TFLOP/s", "--memory", "100 GB/s", "--network",
             "20 GB/s", "--capacity-is", "nominal_GB", "--capacity"]  # fmt: skip
    shown = CliRunner().invoke(main, [*words, "1 GB"])
    assert shown.exit_code == 0, shown.output
    assert "12 configurations of block on 4 devices of 1 GB (nominal_GB) each" in shown.output
    table = shown.output.split("The fastest:\n")[1].splitlines()
    assert table[0].split("  ")[-1] == "takes the time"
    assert re.search(r"(4 x 1 x 1|2 x 2 x 1) +\d+  none +\w", table[1])
    assert "named by --detail full" in shown.output
    narrow = CliRunner().invoke(main, [*words, "1 GB"], env={"COLUMNS": "80"}).output
    assert max(map(len, narrow.splitlines())) < max(map(len, shown.output.splitlines()))
    assert "\nAll: " in narrow
    assert "recomputation none" in narrow.replace("\n", " ")
    assert "Computing, memory and network work in parallel" not in shown.output
    full = CliRunner().invoke(main, [*words, "1 GB", "--detail", "full"]).output
    assert "Computing, memory and network work in parallel" in full
    made = CliRunner().invoke(main, [*words, "1 GB", "--json", "-o", str(tmp_path / "out.json")])
    assert made.exit_code == 0
    assert json.loads((tmp_path / "out.json").read_text())["devices"] == 4
    none = CliRunner().invoke(main, [*words[:-3], "--capacity-is", "usable", "--capacity", "1 kB"])
    assert none.exit_code == 1
    assert "none fits. The nearest" in none.output
    wrong = CliRunner().invoke(main, [*words, "1 GB", "--sizes", "tensor"])
    assert wrong.exit_code == 2
    assert "--sizes: 'tensor' gives no values" in wrong.output
    unsaid = CliRunner().invoke(main, [*words[:-3], "--capacity", "1 GB"])
    assert unsaid.exit_code == 2
    assert "what does a capacity of 1 GB mean?" in unsaid.output


# -- ranges -------------------------------------------------------------------------------------------------


@settings(max_examples=50)
@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=20))
def test_a_list_of_numbers_is_read_as_it_is_written(numbers):
    assert (
        whole_numbers(", ".join(map(str, numbers)), "m") == tuple(sorted(set(numbers))) == whole_numbers(numbers, "m")
    )


@given(st.integers(1, 3000))
def test_divisors_are_what_divides(n):
    assert divisors(n) == tuple(d for d in range(1, n + 1) if n % d == 0)


def test_weights_that_are_not_trained_are_searched_as_they_are_derived():
    """Against the quantities of each configuration by itself; with nothing to train there is nothing to search."""
    table = (
        "Computation\tInput\tOutput\nu = relu(x W^1)\tx [B, D], W^1 [D, F]\tu [B, F]\n"
        "z = u W^2\tu [B, F], W^2 [F, D]\tz [B, D]\ny = x + z\tx [B, D], z [B, D]\ty [B, D]\n"
    )
    model = sc.load(table, repeat="N_layer").at(N_layer=8, D=64, F=128)
    asked = {
        "devices": 4, "batch": 64, "device": "H100-SXM", "capacity": "1 GB", "capacity_is": "usable",
        "strategies": ["data", "tensor"], "recomputation": "none", "microbatches": 1,
    }  # fmt: skip
    with pytest.raises(ValuesError, match="all weights are frozen: there is nothing to train"):
        sc.search(model, **asked, frozen="W*")
    frozen, found, at = "W^1", sc.search(model, **asked, frozen="W^1"), model.at(B=64)
    assert "Not trained, so without gradient and update: `W^1`." in found.notes
    assert len(found.top) == 2
    for one in found.top:
        time = at.step_time(one.strategy, device="H100-SXM", microbatches=1, frozen=frozen)
        held = (at.state_memory(one.strategy, frozen=frozen), at.activation_memory(one.strategy, frozen=frozen))
        assert one.time.value == time.at().value
        assert one.memory.value == sum(part.at().value for part in held)


def test_a_search_refuses_parts_of_weights_that_are_filled_up():
    model = sc.load("Computation\tInput\tOutput\ny = x W\tx [B, D], W [D, F]\ty [B, F]\n")
    with pytest.raises(AccountingError, match="a search counts the mean of the parts of a weight, not parts that"):
        sc.search(model, devices=4, batch=64, device="H100-SXM", capacity_is="usable", accounting="padded_shards")


def test_with_peaks_those_that_are_told_fit_at_their_peak():
    """One that fits without what is there for a moment, and not with it, is left out and counted."""
    options = {"strategies": "fsdp + pipeline", "microbatches": "2,3", "recomputation": "none"}
    every = searched(**options, top=100)
    found = searched(**options, top=100, peaks=True)
    assert len(found.top) == len(every.top) > 2
    for one in found.top:
        stages = {"schedule": one.schedule} if one.schedule else {"microbatches": one.microbatches}
        assert one.memory == block().peak_memory(one.strategy, **stages).at()
    summed = {(c.strategy, c.microbatches): c.memory.value for c in every.top}
    most = max(found.top, key=lambda c: c.memory.value - summed[c.strategy, c.microbatches])
    assert most.memory.value > summed[most.strategy, most.microbatches]
    less = searched(**options, top=100, peaks=True, capacity=f"{most.memory.value - 1} B", capacity_is="usable")
    assert most.strategy not in {c.strategy for c in less.top if c.microbatches == most.microbatches}
    refused = dict(less.refused)
    gone = refused["does not fit at its peak"] + refused.get("does not fit in the memory", 0)
    assert (gone, less.feasible) == (len(every.top) - len(less.top), len(less.top))
    assert any("fit at their peak, too" in note for note in less.notes)
    assert not any("comes on top" in note for note in less.notes)


@pytest.mark.parametrize("ranks", [3, 7, 9])
@pytest.mark.parametrize(("strategy", "cut"), [("zero1", "o"), ("zero2", "go"), ("fsdp", "wgo")])
def test_memory_is_told_in_whole_bytes_as_the_quantities_tell_it(strategy, cut, ranks):
    made = sc.load("Computation\tInput\tOutput\ny = x W + b\tx [B, L, D], W [D, F], b [F]\ty [B, L, F]\n")
    made = made.at(D=15, F=7, L=5, B=63)
    rates = {"peak": "100 TFLOP/s", "memory": "1 TB/s", "network": "1 GB/s", "capacity": "1 GB"}
    found = sc.search(made, devices=ranks, capacity_is="usable", strategies=strategy, microbatches=1, **rates).top[0]
    whole = {"weights": 2 * 112, "gradients": 2 * 112, "optimizer states": 12 * 112}  # 15 * 7 + 7 parameters
    mean = {what: Fraction(n, ranks if what[0] in cut else 1) for what, n in whole.items()}
    parts = {share.what: share.amount for share in found.held}
    assert parts == {"activations": 2 * 63 // ranks * 5 * 15} | {what: ceil(n) for what, n in mean.items()}
    assert found.memory.value == ceil(sum(mean.values())) + parts["activations"]
    assert found.memory.value == (made.state_memory(found.strategy).at().value
                                  + made.activation_memory(found.strategy).at().value)  # fmt: skip
    for what, of in (("weights", "weights"), ("gradients", "gradients"), ("optimizer states", "states")):
        assert parts[what] == made.state_memory(found.strategy, of=of).at().value


def test_a_search_for_serving_tells_whole_bytes_of_weights_that_ranks_share():
    config = {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 20, "intermediate_size": 25,
        "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 31,
    }  # fmt: skip
    made = sc.load(config, dtype="bf16").at(c=9, B=7)
    weights = 2 * 31 * 20 + 2 * 20 * 20 + 2 * 20 * 10 + 3 * 20 * 25 + 3 * 20
    rates = {"peak": "100 TFLOP/s", "memory": "1 TB/s", "network": "1 GB/s", "capacity": "1 MB"}
    [best] = sc.search(made.decode(), devices=7, capacity_is="usable", strategies="fsdp", **rates).top
    assert (weights, ceil(Fraction(2 * weights, 7))) == (4000, 1143)
    assert [(share.what, share.amount) for share in best.held] == [("weights", 1143), ("cache", 9 * 2 * 10 * 2)]
    assert best.memory.value == 1143 + 360
    assert made.state_memory("fsdp(7)", of="weights").at().value == 1143


def test_the_repr_of_a_result_is_its_summary():
    found = searched()
    assert repr(found) == f"<SearchResult: {found.summary}>"


def test_rates_of_a_data_sheet_are_told_unless_a_utilisation_is_given():
    rates = {"device": "H100-SXM", "batch": 8, "capacity": None, "capacity_is": "nominal_GB"}
    told = "Rates are those of the data sheet; a real run sustains less (utilisation: 1/2)."
    assert told in sc.search(block(), devices=2, **rates).notes
    assert told not in sc.search(block(), devices=2, utilisation="1/2", **rates).notes
