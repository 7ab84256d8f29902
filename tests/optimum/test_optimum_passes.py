"""Buckets, chunks and scaling laws: against event simulations, brute force and published or computed values."""

import json
import random
import sys
from fractions import Fraction as F  # noqa: N817
from pathlib import Path

import pytest
from api import (
    QUANTITIES,
    Graph,
    Power,
    Ratio,
    Setting,
    Sym,
    ValuesError,
    bucket_cap,
    built_in,
    identical,
    minimise,
    num,
    pipelines,
    product,
    total,
)

sys.path.insert(0, str(Path(__file__).parent))
from simulations import overlapped_buckets, pipeline

GOLDEN = json.loads((Path(__file__).parents[1] / "data" / "golden_optima.json").read_text(encoding="utf-8"))


def setting(**values) -> Setting:
    return Setting(Graph("no model", {}, {}, ()), values={k: F(v) for k, v in values.items()})


def chinchilla(want, **more):
    constants = {"alpha": F(17, 50), "beta": F(7, 25), "A": F(2032, 5), "B": F(4107, 10)}
    return built_in()["scaling_law"].derive(setting(**constants, **more), want=want)


def buckets(numbers, want, rho=None):
    return built_in()["buckets"].derive(numbers, want=want, rho=rho)


def bucket(want, p):
    return buckets(
        setting(s=p["size"], w=p["bwid"], o=p["ovh"], **({"n_b": p["nb"]} if "nb" in p else {})), want
    )


def pipe(want, p):
    names = {"mb": "m", "p": "p", "t0": "t", "ovh": "o"}
    return pipelines.derive_pipeline_time(setting(**{names[k]: v for k, v in p.items() if k in names}), want)


def broadcast(want, p):
    names = {"chunks": "c", "hops": "h", "lat": "a", "size": "S", "link": "B"}
    return built_in()["pipelined_broadcast"].derive(setting(**{names[k]: v for k, v in p.items()}), want=want)


def derived(name: str, p: dict) -> F:
    """The number that symcomm derives for a golden value."""
    if name.startswith("001.chinchilla."):
        wants = {"a": "exponent_parameters", "b": "exponent_tokens", "coefN": "coefficient_parameters",
                 "coefD": "coefficient_tokens", "doubling": "doubling"}  # fmt: skip
        short = name.removeprefix("001.chinchilla.")
        if short in wants:
            return chinchilla(wants[short]).at().value
        about_rules = {"consistency": "rule_compute", "tokens_per_param": "rule_tokens_per_parameter"}
        if short in about_rules:
            return chinchilla(about_rules[short], q_N=p["q_n"], q_D=p["q_d"]).at().value
        if short == "same_compute":
            return chinchilla("same_compute", N_1=p["n_big"], N_2=p["n_small"]).at().value
        return chinchilla("parameters" if short[0] == "N" else "tokens", C=p["budget"]).at().value
    match name:
        case "002.bucket.overhead" | "002.bucket.nb" | "002.bucket.size" | "002.bucket.min":
            wants = {"overhead": "overhead", "nb": "number", "size": "size", "min": "least"}
            return bucket(wants[name.rpartition(".")[2]], p).at().value
        case "003.pipe.full_steps":
            return pipe("full_steps", p).at().value
        case "003.pipe.time":
            return pipe("time", p).at().value
        case "003.pipe.mopt":
            return pipe("chunks", p).at().value
        case "003.pipe.slow_stage":
            stages = ", ".join(str(p[f"t{i}"]) for i in range(1, 5))
            return pipelines.derive_pipeline_time(setting(m=p["mb"]), "time", stages, "chunk").at().value
        case "003.pipe.ratio43" | "003.pipe.ratio42":
            # Throughput over p stages grows with p times the utilisation.
            return (p["p"] * pipe("utilisation", {"p": p["p"], "mb": p["mb"]}).at().value
                    / (p["p0"] * pipe("utilisation", {"p": p["p0"], "mb": p["mb"]}).at().value))  # fmt: skip
        case "003.bcast.pipe":
            return broadcast("time", p).at().value
        case "003.bcast.copt":
            return broadcast("chunks", p).at().value
    assert name.startswith("003.pipe.util.")
    return pipe("utilisation", p).at().value


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_a_golden_value_is_derived(name):
    golden = GOLDEN[name]
    found = derived(name, golden["params"])
    if isinstance(golden["value"], str):
        assert found == F(golden["value"])
    else:
        assert abs(float(found) / golden["value"] - 1) < 1e-12


# -- buckets ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rho", [F(1, 3), F(1), F(3, 2), F(7)])
def test_the_overhead_of_equal_buckets_is_that_of_an_event_simulation(rho):
    made = buckets(setting(), "overhead", rho)
    for count in (1, 2, 3, 10, 57):
        for o in (F(1, 50), F(1, 3), F(4)):
            s, w = F(90), F(7)
            simulated = overlapped_buckets([s / count] * count, o, w, rho)
            assert made.at(n_b=count, s=s, w=w, o=o).value == simulated


@pytest.mark.long
def test_the_best_number_of_buckets_is_best_in_the_simulation_in_both_regimes():
    rng = random.Random(4)
    for rho in (F(1, 2), F(1), F(5, 4), F(3)):
        for _ in range(1):
            values = {"s": F(rng.randint(20, 99)), "w": F(rng.randint(2, 9)), "o": F(rng.randint(6, 20), 4)}
            times = {n: overlapped_buckets([values["s"] / n] * n, values["o"], values["w"], rho) for n in range(1, 90)}
            whole = int(buckets(setting(**values), "whole_number", rho).at().value)
            assert times[whole] == min(times.values())
            real = float(buckets(setting(**values), "number", rho).at().value)
            assert abs(real - whole) <= 1 or real < 1


def test_the_overhead_with_a_symbol_for_rho_is_that_of_the_event_simulation_in_both_regimes():
    rng = random.Random(12)
    made = buckets(setting(), "overhead", "rho")
    assert "rho" in made.needs
    seen = set()
    for _ in range(150):
        rho, o, w = F(rng.randint(1, 40), 10), F(rng.randint(1, 60), 8), F(rng.randint(1, 9))
        s, count = F(rng.randint(1, 200)), rng.randint(1, 24)
        simulated = overlapped_buckets([s / count] * count, o, w, rho)
        assert made.at(n_b=count, s=s, w=w, o=o, rho=rho).value == simulated
        seen.add((rho > 1, count >= (rho - 1) * s / (o * w)))
    assert seen == {(False, True), (True, True), (True, False)}


def test_each_piece_of_the_overhead_holds_where_its_row_says():
    from api import form_evaluate as evaluate

    rng = random.Random(13)
    table = buckets(setting(), "overhead", "rho").exhibits[0]
    assert [row[0] for row in table.rows] == [
        "`rho` at most 1: computing is no slower than the link",
        "`rho` above 1, from there on: the calls still have no gap",
        "`rho` above 1, fewer buckets: the link waits for the last one",
    ]
    for _ in range(60):
        values = {"rho": F(rng.randint(1, 40), 10), "o": F(rng.randint(1, 60), 8), "w": F(2)}
        values |= {"s": F(rng.randint(1, 99)), "n_b": F(rng.randint(1, 24))}
        meet = evaluate(table.rows[1][1], values)
        row = 0 if values["rho"] <= 1 else 1 if values["n_b"] >= meet else 2
        sizes = [values["s"] / values["n_b"]] * int(values["n_b"])
        simulated = overlapped_buckets(sizes, values["o"], values["w"], values["rho"])
        assert evaluate(table.rows[row][2], values) == simulated


@pytest.mark.long
def test_the_best_number_with_a_symbol_for_rho_is_beside_the_best_one_of_the_simulation():
    rng = random.Random(14)
    number, least, size = (buckets(setting(), want, "rho") for want in ("number", "least", "size"))
    for _ in range(25):
        values = {"rho": F(rng.randint(1, 30), 10), "o": F(rng.randint(4, 40), 8), "w": F(rng.randint(1, 4)),
                  "s": F(rng.randint(9, 60))}  # fmt: skip
        rho, o, w, s = values.values()
        real = number.at(**values).value
        times = {n: overlapped_buckets([s / n] * n, o, w, rho) for n in range(1, int(real) + 30)}
        best = [n for n, t in times.items() if t == min(times.values())]
        assert any(abs(float(real) - n) <= 1 for n in best)
        assert real >= 1
        assert least.at(**values).value <= min(times.values()) + F(1, 10**20)
        assert abs(size.at(**values).value * real - s) < F(1, 10**20)


def test_a_symbol_for_rho_may_have_a_number_among_the_given_values():
    values = {"s": 100, "w": 1, "o": 1}
    assert buckets(setting(rho=2, **values), "whole_number", "rho").at().value == 100
    assert buckets(setting(rho=2, **values), "number").at().value == 100
    with pytest.raises(ValuesError, match="rho = -2: it must be positive"):
        buckets(setting(rho=-2), "overhead", "rho")
    with pytest.raises(ValuesError, match="give numbers for o, rho, s, w"):
        buckets(setting(), "whole_number", "rho")


def test_uneven_stages_keep_their_unit_in_the_least_time_and_the_best_number():
    second = pipelines.SECOND
    least = pipelines.derive_pipeline_time(setting(), "least", "6, 2, 2, 2")
    assert least.unit == second
    assert least.steps[3].unit == second
    # (12 + 6 (m - 1))/m + (m + 3)/2 = 7.5 + 6/m + m/2 is least at m = sqrt(12), where it is 7.5 + sqrt(12)
    found = pipelines.derive_pipeline_time(setting(o=F(1, 2)), "least", "6, 2, 2, 2").at()
    assert abs((found.value - F(15, 2)) ** 2 - 12) < F(1, 10**25)
    assert str(found).endswith("10.9641 s")


def test_the_course_case_gives_the_number_the_size_and_the_least_overhead():
    from api import plain

    said = {want: [plain(step.form) for step in buckets(setting(), want).steps] for want in
            ("number", "size", "least")}  # fmt: skip
    assert said["number"][-1] == "max(1, n_b^*)"
    assert "√(s/(o·w))" in said["number"]
    assert said["size"][-2:] == ["√(s·w·o)", "min(s, b^*)"]
    assert "2·√(o·s/w)" in said["least"]


def test_the_smaller_of_two_given_numbers_is_said_where_one_is_a_root():
    made = buckets(setting(s=15 * 10**9, w=20 * 10**9, o=F(4, 10**4)), "size").at()  # sqrt(12 10^16) bytes
    assert str(made) == "200 000 000·√(3) B ≈ 346.4 MB ≈ 330.4 MiB"


def test_a_compute_bound_model_takes_the_larger_of_two_numbers():
    made = buckets(setting(s=100, w=1, o=1), "number", 2)
    assert made.at().value == 100
    assert made.answer.name == "n_b^*"
    assert buckets(setting(s=100, w=1, o=1), "least", 2).at().value == 2
    assert buckets(setting(s=100, w=1, o=1), "size", 2).at().value == 1


def test_tensors_are_put_into_buckets_in_order_until_a_cap_is_reached():
    assert bucket_cap.partition([5, 1, 1, 8, 2], cap=7, first=4) == ((5,), (1, 1, 8), (2,))
    with pytest.raises(ValuesError, match="at least one byte"):
        bucket_cap.partition([1], cap=0)


def test_every_cap_gives_the_partition_that_is_listed_for_it():
    rng = random.Random(8)
    for _ in range(100):
        sizes, first = [rng.randint(1, 12) for _ in range(rng.randint(1, 9))], rng.randint(1, 8)
        last = 0
        for caps in bucket_cap.all_partitions(sizes, first):
            assert caps.low == last + 1
            last = caps.high or caps.low + 20
            for cap in range(caps.low, last + 1):
                assert bucket_cap.partition(sizes, cap, first) == caps.buckets


def test_the_time_of_real_buckets_is_that_of_the_event_simulation():
    rng = random.Random(9)
    for _ in range(100):
        sizes = [rng.randint(1, 30) for _ in range(rng.randint(1, 12))]
        rho, o, w = F(rng.randint(1, 12), 4), F(rng.randint(0, 9), 2), F(rng.randint(1, 5))
        made = bucket_cap.partition(sizes, rng.randint(1, 40), 3)
        assert bucket_cap.exposed(made, o, w, rho) == overlapped_buckets([F(sum(b)) for b in made], o, w, rho)


TABLE = "Computation\tInput\tOutput\ny = x U\tx [B, D], U [D, F]\ty [B, F]\nz = y W\ty [B, F], W [F, D]\tz [B, D]\n"


def model(**values):
    from api import model_load as load

    return load(TABLE, repeat="N_layer", values={"D": 1024, "F": 4096, "N_layer": 12, **values})


def test_the_recommended_cap_is_the_best_of_all_caps_of_a_model():
    made = model().at(w=10**10, o=F(1, 1000)).derive("bucket_cap")
    sizes = (1024 * 4096 * 4,) * 24

    def left(cap: int) -> F:
        return bucket_cap.exposed(bucket_cap.partition(sizes, cap, cap), F(1, 1000), F(10**10))

    cap = int(made.at().value)
    assert left(cap) == min(left(mib * 2**20) for mib in range(1, 400))
    assert "Where none is set, PyTorch closes the first one at 1 MiB" in made.notes[1]
    assert cap % 2**20 == 0
    assert f"Set bucket_cap_mb={cap // 2**20}." in made.steps[-1].reason.text


def test_a_cap_needs_the_link_and_all_sizes():
    with pytest.raises(ValuesError, match="a value for w is needed: algorithm bandwidth"):
        model().derive("bucket_cap")
    from api import model_load as load

    with pytest.raises(ValuesError, match="the sizes of the gradients need a value for D, F"):
        load(TABLE, values={"w": 1, "o": 1}).derive("bucket_cap")
    with pytest.raises(ValuesError, match="rho has more than 100 digits\nhint: sizes, rates and times have a few"):
        buckets(setting(), "overhead", "1e999")
    with pytest.raises(ValuesError, match="rho = -1"):
        buckets(setting(), "overhead", -1)


# -- pipelines ---------------------------------------------------------------------------------------------


def test_the_time_and_utilisation_of_a_pipeline_are_those_of_its_schedule():
    wanted = ("time", "utilisation", "full_steps")
    time, busy, full = (pipelines.derive_pipeline_time(setting(), want) for want in wanted)
    for p in (1, 2, 4, 7):
        for m in (1, 3, 4, 9):
            t, o = F(32), F(1)
            end, work = pipeline([[t / m + o] * m for _ in range(p)])
            assert time.at(p=p, m=m, t=t, o=o).value == end
            assert busy.at(p=p, m=m).value == sum(b - a for row in work for a, b in row) / (p * end)
            slot = t / m + o
            steps = [k for k in range(m + p) if all(any(a <= k * slot < b for a, b in row) for row in work)]
            assert full.at(p=p, m=m).value == len(steps)


def test_uneven_stages_wait_for_the_slowest_one():
    rng = random.Random(6)
    for _ in range(10):
        times = [F(rng.randint(1, 9)) for _ in range(rng.randint(1, 5))]
        text = ", ".join(str(t) for t in times)
        m, o = rng.randint(1, 9), F(rng.randint(1, 4), 2)
        each = {"forward": text} if len(times) > 1 else {"forward": text, "stages": 1}
        made = pipelines.derive_pipeline_time(setting(m=m, o=o), "time", **each)
        assert made.at().value == pipeline([[t / m + o] * m for t in times])[0]
        assert (
            pipelines.derive_pipeline_time(setting(m=m), per="microbatch", **each).at().value
            == pipeline([[t] * m for t in times])[0]
        )


def test_the_best_number_of_chunks_is_that_of_brute_force():
    rng = random.Random(7)
    made = pipelines.derive_pipeline_time(setting(), "whole_chunks")
    for _ in range(12):
        p, t, o = rng.randint(1, 9), F(rng.randint(1, 60)), F(rng.randint(2, 12), 4)
        times = {m: pipeline([[t / m + o] * m for _ in range(p)])[0] for m in range(1, 40)}
        assert times[int(made.at(p=p, t=t, o=o).value)] == min(times.values())
    uneven = pipelines.derive_pipeline_time(setting(o=F(1, 2)), "whole_chunks", "6, 2, 2, 2")
    times = {m: pipeline([[F(t, m) + F(1, 2)] * m for t in (6, 2, 2, 2)])[0] for m in range(1, 40)}
    assert times[int(uneven.at().value)] == min(times.values())


def test_a_pipelined_broadcast_is_a_pipeline_of_links():
    made = built_in()["pipelined_broadcast"].derive(setting(), want="time")
    for c, h in ((1, 1), (4, 3), (32, 2)):
        end = pipeline([[F(40, 5 * c) + F(1, 3)] * c for _ in range(h)])[0]
        assert made.at(c=c, h=h, a=F(1, 3), S=40, B=5).value == end


def test_wrong_stages_are_refused():
    with pytest.raises(ValuesError, match="is no time for 'forward'"):
        pipelines.stage_times("6 GB")
    with pytest.raises(ValuesError, match="for the whole batch"):
        pipelines.derive_pipeline_time(setting(o=1), "chunks", "6, 2", "chunk")
    with pytest.raises(ValuesError, match="derived for even stages"):
        pipelines.derive_pipeline_time(setting(), "utilisation", "6, 2")
    with pytest.raises(ValuesError, match="must be a whole number"):
        pipelines.derive_pipeline_time(setting(p=F(5, 2)), "time")


# -- scaling laws ------------------------------------------------------------------------------------------


def test_lagrange_and_the_minimum_along_the_budget_give_one_optimum():
    names = {n: Sym(n, False) for n in ("N", "A", "B", "C", "alpha", "beta")}
    N, A, B, C, alpha, beta = names.values()
    loss = total(Ratio(A, Power(N, alpha)), product(B, Power(Ratio(product(num(6), N), C), beta)))
    along = minimise(loss, "N", integer=False)
    lagrange = built_in()["scaling_law"].derive(setting(), want="parameters")
    for values in ({"alpha": F(17, 50), "beta": F(7, 25)}, {"alpha": F(1, 2), "beta": F(1, 3)}):
        point = {"A": F(2032, 5), "B": F(4107, 10), "C": F(10**21), **values}
        a, b = along.at(**point).value, lagrange.at(**point).value
        assert abs(float(a / b) - 1) < 1e-12


def test_the_loss_is_higher_on_both_sides_of_the_optimum():
    def loss(size: float) -> float:
        return 406.4 / size**0.34 + 410.7 / (1e21 / (6 * size)) ** 0.28

    best = float(chinchilla("parameters", C=10**21).at().value)
    assert loss(best) < min(loss(best * 1.01), loss(best / 1.01))
    assert abs(float(chinchilla("loss", C=10**21, E=F(169, 100)).at().value) - 1.69 - loss(best)) < 1e-9


def test_constants_with_unequal_exponents_do_not_give_the_square_root_rule_and_it_is_said():
    made = chinchilla("parameters", C=10**21)
    assert "These constants do not give equal exponents" in made.notes[0]
    assert "14/31" in made.notes[0]
    equal = built_in()["scaling_law"].derive(setting(alpha=F(1, 3), beta=F(1, 3)), want="exponent_parameters")
    assert equal.at().value == F(1, 2)
    assert "equally" in equal.notes[0]


def test_tokens_per_parameter_are_tokens_over_parameters():
    values = {"C": 10**21}
    tokens, size = (chinchilla(want, **values).at().value for want in ("tokens", "parameters"))
    assert abs(float(chinchilla("tokens_per_parameter", **values).at().value / (tokens / size)) - 1) < 1e-12
    assert abs(float(6 * tokens * size / 10**21) - 1) < 1e-12


def test_over_training_pays_from_the_tokens_at_which_both_models_cost_the_same():
    made = chinchilla("break_even", C=10**21, x=F(1, 2))
    served = float(made.at().value)
    size, tokens = (float(chinchilla(want, C=10**21).at().value) for want in ("parameters", "tokens"))
    target = 406.4 / size**0.34 + 410.7 / tokens**0.28
    small = size / 2
    needed = (410.7 / (target - 406.4 / small**0.34)) ** (1 / 0.28)
    assert abs((6 * small * needed + 2 * small * served) / (6 * size * tokens + 2 * size * served) - 1) < 1e-9


@pytest.mark.parametrize("share", [F(1, 2), F(3, 4), F(1, 4)])
def test_over_training_is_dearer_below_the_break_even_and_cheaper_above_it(share):
    """The tokens for the same loss by bisection of the loss itself, costs added up run by run."""

    def loss(size: float, tokens: float) -> float:
        return 1.69 + 406.4 / size**0.34 + 410.7 / tokens**0.28

    budget = 1e22
    sizes = [10 ** (8 + i / 2000) for i in range(10000)]
    best = min(sizes, key=lambda size: loss(size, budget / (6 * size)))
    for _ in range(60):  # the grid is moved to its best point
        sizes = [best * (1 + (i - 5) * 10**-4) for i in range(11)]
        best = min(sizes, key=lambda size: loss(size, budget / (6 * size)))
    tokens = budget / (6 * best)
    small, low, high = best * float(share), tokens, tokens * 1e6
    while high / low > 1 + 1e-13:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if loss(small, middle) > loss(best, tokens) else (low, middle)
    served = float(chinchilla("break_even", C=10**22, x=share).at().value)

    def cost(size: float, trained: float, inferred: float) -> float:
        return 6 * size * trained + 2 * size * inferred

    assert cost(small, high, served * 0.99) > cost(best, tokens, served * 0.99)
    assert cost(small, high, served * 1.01) < cost(best, tokens, served * 1.01)


def test_a_model_too_small_never_reaches_the_loss():
    with pytest.raises(ValuesError, match="never reaches the loss"):
        chinchilla("break_even", C=10**21, x=F(1, 1000))
    with pytest.raises(ValuesError, match="must be smaller than the compute-optimal one"):
        chinchilla("break_even", C=10**21, x=2)


def test_every_choice_of_these_passes_can_be_derived_without_numbers():
    for name in ("buckets", "pipeline_time", "pipelined_broadcast", "scaling_law"):
        option = next(o for o in QUANTITIES[name].options if o.name == "want")
        for want in option.choices:
            made = QUANTITIES[name].derive(setting(), want=want)
            assert made.needs
            assert identical(made.expr, made.expr)
