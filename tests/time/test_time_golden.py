"""The published and hand-checked times, bounds and utilisations, each reproduced by a derivation from a table."""

from __future__ import annotations

from fractions import Fraction

import pytest
from api import Derivation, ValuesError, from_expr, judge
from api import form_evaluate as evaluate
from api import model as sc
from time_models import ATTENTION, CALL, GOLDEN, PLACED, PRINTED, RATES, homework, linear, product, published


def worth(derivation: Derivation, name: str) -> Fraction:
    """The number of a step of the linear layer at the printed call."""
    return evaluate(from_expr(derivation.worth[name]), derivation.values(**CALL))


def layer(**options: object) -> Derivation:
    return linear().time(PLACED, accounting=PRINTED, **{**RATES, **options})


@pytest.mark.parametrize(
    ("name", "term"), [("004.t_flop", "compute"), ("004.t_global", "memory"), ("004.t_net", "network")]
)
def test_each_term_of_the_linear_layer_has_its_published_time(name: str, term: str) -> None:
    assert layer(term=term).at(**CALL).value == published(name)


def test_the_time_of_the_linear_layer_is_the_printed_float_bit_for_bit() -> None:
    time = layer().at(**CALL)
    assert time.value == Fraction(3145728, 96630859375) == published("004.time")
    assert float(time.value) == 3.2554072481051035e-05
    assert repr(float(time.value)) == GOLDEN["004.time"]["document_answer"]


def test_the_end_of_the_batch_takes_its_published_time() -> None:
    time = layer(phase="end_of_batch").at(**CALL)
    assert time.value == Fraction(3968, 146484375) == published("004.end_of_batch")


def test_the_amounts_behind_the_terms_are_the_published_operations_and_words() -> None:
    derivation = layer()
    assert worth(derivation, "F") == published("004.words.flop")
    assert worth(derivation, "M") / 2 == published("004.words.global")
    assert worth(derivation, "V") / 2 == published("004.words.net")


def test_one_all_reduce_by_owners_moves_the_published_words() -> None:
    params = GOLDEN["004.allreduce"]["params"]
    model = linear().at(b=params["n0"], d_in=params["p"], d_out=1)  # Y has n0 words, summed over p devices
    derivation = model.time("cut(d_in, p)", phase="forward", term="network", accounting=PRINTED)
    words = evaluate(from_expr(derivation.worth["c_AR,fwd"]), derivation.values(p=params["p"]))
    assert words == published("004.allreduce")


@pytest.mark.parametrize(
    ("name", "between", "over"),
    [
        ("004.cross.net", "network, compute", "W_net"),
        ("004.cross.flop8", "network, compute", "R_8bit"),
        ("004.cross.b_net_global", "network, memory", "b"),
    ],
)
def test_each_crossover_of_the_linear_layer_is_where_it_was_published(name: str, between: str, over: str) -> None:
    derivation = linear().crossover(between, over, PLACED, accounting=PRINTED, **RATES)
    given = {symbol: value for symbol, value in CALL.items() if symbol != over}
    assert derivation.at(**given).value == published(name)


def test_the_bandwidth_at_which_the_network_takes_over_depends_neither_on_tokens_nor_on_the_format() -> None:
    for dtype in ("fp8", "fp16", "fp32"):
        derivation = linear().crossover(
            "network, compute", "W_net", PLACED, accounting=PRINTED, dtype=dtype, utilisation="eta"
        )
        assert {s.name for s in derivation.expr.free_symbols} == {"eta", "R_8bit", "d_in", "d_out", "tp_in", "tp_out"}


def test_the_linear_layer_uses_its_published_number_of_devices() -> None:
    assert linear().throughput(PLACED, of="devices").at(**CALL).value == published("004.devices")


def test_tokens_and_inputs_of_one_device_are_in_the_published_proportion() -> None:
    (exhibit,) = layer().exhibits
    part = {row[0]: row[2] for row in exhibit.rows}
    values = layer().values(**CALL)
    assert evaluate(part["`b`"], values) / evaluate(part["`d_in`"], values) == published("004.assumption")  # type: ignore[arg-type]


def test_a_layer_limited_by_computing_has_the_sustained_part_of_the_peak_as_its_utilisation() -> None:
    derivation = layer()
    done = worth(derivation, "F") / worth(derivation, "R_fp16")
    assert done / derivation.at(**CALL).value == published("004.mfu")


def test_counting_the_busier_direction_by_itself_lets_the_network_limit() -> None:
    choices = {"link": "full_duplex"}
    accounting = PRINTED.of(PRINTED, **choices)
    derivation = linear().time(PLACED, accounting=accounting, **{**RATES, "network": "450 GB/s"})
    both = layer(term="network").at(**CALL).value
    assert derivation.at(**CALL).value == both * Fraction(4, 3) > layer().at(**CALL).value


def test_the_ops_byte_ratio_of_an_a100_is_the_published_one() -> None:
    params = GOLDEN["001.roofline.balance"]["params"]
    derivation = sc.Model(linear().graph).derive(
        "balance", clock="1.41 GHz", units=params["sms"], fma=params["fma"], memory="2039 GB/s"
    )
    assert derivation.at().value == published("001.roofline.balance")
    assert str(derivation.unit) == "FLOP/B"
    by_name = linear().derive("balance", device="A100-80GB-SXM", dtype=None)
    assert by_name.at().value == published("001.roofline.balance")


@pytest.mark.parametrize(
    ("sizes", "intensity", "limit"),
    [
        ((4096, 4096, 4096), Fraction(4096, 3), "computing"),
        ((4096, 32, 4096), Fraction(2048, 65), "the memory"),
        ((32, 4096, 32), Fraction(4096, 257), "the memory"),
    ],
)
def test_the_first_product_of_the_homework_is_limited_by_computing_and_the_others_by_memory(
    sizes: tuple[int, int, int], intensity: Fraction, limit: str
) -> None:
    derivation = product(*sizes).roofline(device="A100-80GB-SXM")
    assert evaluate(from_expr(derivation.worth["I"]), {}) == intensity
    assert derivation.notes[0].endswith(f": {limit} limits.")
    ridge, peak = Fraction(7796736, 50975), 1410000000 * 108 * 1024 * 2
    assert derivation.at().value == min(Fraction(peak), peak * intensity / ridge)


def test_training_takes_the_published_operations_a_token() -> None:
    params = GOLDEN["001.mfu.flops_per_token"]["params"]
    derivation = homework().throughput(of="flops_per_token")
    at = {"N_layer": params["n_layer"], "D": params["d_model"], "L": params["seq"], "B": 128}
    assert derivation.at(**at).value == published("001.mfu.flops_per_token")


def test_eight_a100_at_half_utilisation_have_the_published_throughput() -> None:
    params = GOLDEN["001.mfu.throughput"]["params"]
    peak = sc.peak_rate(clock="1.41 GHz", units=params["sms"], fma=params["fma"]).at()
    derivation = homework().throughput(mfu=params["util"], devices_used=params["k"], peak=peak)
    at = {"N_layer": params["n_layer"], "D": params["d_model"], "L": params["seq"], "B": 128}
    assert derivation.at(**at).value == published("001.mfu.throughput")


def test_a_forward_pass_of_attention_below_the_time_to_write_its_scores_is_impossible() -> None:
    params = GOLDEN["002.attn.fwd_floor"]["params"]
    model = sc.load(ATTENTION, dtype="fp32", values={"b": params["batch"], "s": params["seq"], "d": 128})
    floor = model.bound(tensor="S", memory="3.35 TB/s")
    assert floor.at().value == published("002.attn.fwd_floor")
    verdict = judge(floor, "0.000222 s")
    assert not verdict.possible
    assert verdict.bound.value == published("002.attn.fwd_floor")
    assert "impossible" in verdict.text
    assert "2.564 ms" in verdict.text
    told = "222 µs is impossible: it takes at least 2.564 ms. Something else was timed, such as an asynchronous launch."
    assert model.bound(tensor="S", memory="3.35 TB/s", measured="0.000222 s").notes == (told,)
    assert model.bound(tensor="S", memory="3.35 TB/s", measured="0.106797 s").notes == (
        "106.797 ms is possible: the bound is 2.564 ms.",
    )
    with pytest.raises(ValuesError, match="phase makes no difference to 'Least time'"):
        model.bound(tensor="S", phase="backward")
    assert judge(floor, "0.106797 s").possible


def test_a_measured_time_of_attention_implies_the_published_rate() -> None:
    params = GOLDEN["002.attn.fwd_flops_implied"]["params"]
    model = sc.load(ATTENTION, dtype="fp32", values={"b": params["batch"], "s": params["seq"], "d": params["d_head"]})
    rate = model.bound("implied_rate", measured="0.000222 s")
    assert rate.at().value == published("002.attn.fwd_flops_implied")


def test_every_published_time_is_reproduced_by_a_test() -> None:
    import re
    from pathlib import Path

    text = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    shown = {name for name in GOLDEN if re.search(re.escape(name.rstrip("246")), text)}
    assert shown == set(GOLDEN)
