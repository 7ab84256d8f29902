"""Packing, tiles, offloading, checkpoints, cost, compression, Muon: golden values, each asked by a public call."""

from __future__ import annotations

import ast
import json
import random
from fractions import Fraction
from math import exp, log
from pathlib import Path
from typing import Any

import pytest

import symcomm as sc

DATA = json.loads((Path(__file__).parents[1] / "data" / "golden_long_context.json").read_text())
ONE = "Computation\tInput\tOutput\ny = x W\tx [B, D], W [D, F]\ty [B, F]\n"


def cases(*areas: str) -> list[Any]:
    return [pytest.param(case, id=case["id"]) for case in DATA["cases"] if case["area"] in areas]


def worth(sheet: str, **options: object) -> Fraction:
    found = sc.derive(sheet, **options).at().value
    assert isinstance(found, Fraction | int)
    return Fraction(found)


@pytest.mark.parametrize("case", cases("tiles"))
def test_tiles_and_waves_leave_a_part_of_the_peak_rate(case: dict[str, Any]) -> None:
    at = {name: int(value) for name, value in case["at"].items()}
    said = {"rows": at["M"], "columns": at["N"], "tile_rows": at["tm"], "tile_columns": at["tn"]}
    units = {"units": at["sms"]}
    found = [worth("product_tiles", want="tiles", **said), worth("product_tiles", want="waves", **said, **units),
             worth("product_tiles", want="edges", **said), worth("product_tiles", want="last_wave", **said, **units),
             worth("product_tiles", **said, **units)]  # fmt: skip
    assert found == [*map(Fraction, case["value"])]
    time = worth("product_tiles", want="time", summed=at["K"], peak="1 FLOP/s", **said, **units)
    assert time == 2 * at["M"] * at["N"] * at["K"] / found[-1]


@pytest.mark.parametrize("case", cases("efficiency"))
def test_each_op_takes_the_longer_of_computing_and_memory_at_the_rates_that_it_achieves(case: dict[str, Any]) -> None:
    """A product and a sum with the case's ratios: 100 times the FLOPs, and a hundredth of the bytes, of the other."""
    peak, bandwidth = 2 * 5000**3, 3 * 2 * 50000**2  # a second for the FLOPs of one op, or for the bytes of the other
    layer = "Computation\tInput\tOutput\nY = A W\tA [M, K], W [K, N]\tY [M, N]\nZ = U + V\tU [P, P], V [P, P]\tZ [P, P]"
    model = sc.load(layer, inputs=["A", "U", "V"], values={"M": 5000, "K": 5000, "N": 5000, "P": 50000})
    said = ast.literal_eval(case["question"].split("]: ")[1].split(";")[0])
    (flops, few, most, near), (ops, many, half, far) = ([*map(Fraction, op)] for op in said)
    assert (flops / ops, many / few) == (2 * 5000**3 / 50000**2, 50000**2 / 5000**2)
    assert (flops, many) == (int(case["at"]["R"]), int(case["at"]["W"]))
    how = {"time": "per_op", "operations": "all_ops"}
    table = f"products: 0 FLOP {half}, 1 GFLOP {most}; memory: 0 B {near}, 1 GB {far}"
    made = model.time(phase="forward", peak=f"{peak} FLOP/s", memory=f"{bandwidth} B/s", utilisation=table,
                      accounting=how)  # fmt: skip
    assert made.at().value == Fraction(case["value"][0])
    assert model.flops("forward", accounting=how).at().value / peak / made.at().value == Fraction(case["value"][1])


@pytest.mark.parametrize("case", cases("packing"))
def test_sequences_are_packed_into_rows(case: dict[str, Any]) -> None:
    said = {"lengths": case["question"].split("[")[1].split("]")[0], "row": int(case["at"]["cap"])}
    wants = ("rows", "used", "padded", "longest", "pairs", "pairs_across")
    assert [worth("packing", want=want, **said) for want in wants] == [*map(Fraction, case["value"])]


def test_packed_sequences_fit_and_each_is_in_the_first_row_that_had_room() -> None:
    draw = random.Random(1)
    for _ in range(20):
        lengths = [draw.randint(1, 40) for _ in range(draw.randint(1, 12))]
        room: list[int] = []
        for length in sorted(lengths, reverse=True):
            for n, free in enumerate(room):
                if free >= length:
                    room[n] -= length
                    break
            else:
                room.append(40 - length)
        assert worth("packing", want="rows", lengths=", ".join(map(str, lengths)), row=40) == len(room)


def test_pairs_of_a_very_long_sequence_are_borne_out_at_once() -> None:
    made = sc.derive("packing", lengths="100000000000, 3", row=10**11, want="pairs")
    made.check(deep=True)
    assert made.at().value == 10**11 * (10**11 + 1) // 2 + 6


@pytest.mark.parametrize(("lengths", "row", "said"), [
    ("5, 12", 9, "a sequence of 12 tokens does not fit into a row of 9\nhint: row: 12, or more"),
    ("5, 1.5", 9, "'1.5' is no length\nhint: whole numbers with commas, such as 512, 100, 900"),
    ("", 9, "'packing' needs the option 'lengths'"),
    ("1," * 3000 + "1", 9, "3,001 sequences; at most 2,000"),
])  # fmt: skip
def test_what_does_not_fit_into_a_row_is_refused(lengths: str, row: int, said: str) -> None:
    with pytest.raises(sc.SymcommError) as caught:
        sc.derive("packing", lengths=lengths, row=row)
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize("case", cases("offload.infinity"))
def test_bytes_and_bandwidths_of_offloading(case: dict[str, Any]) -> None:
    at = {name: int(value) for name, value in case["at"].items()}
    if "nl" in at:
        rows = "y = x W\tx [T, D], W [D, E]\ty [T, E]\nz = y U\tU [E, D]\tz [T, D]\n"
        sizes = {"T": at["bsz"] * at["seq"], "D": at["hd"], "E": 6 * at["hd"], "N": at["nl"]}
        layer = sc.load(f"Computation\tInput\tOutput\n{rows}", repeat="N", dtype="fp16", values=sizes)
        # States of 16 bytes: weight, gradient and two moments in fp32.
        how = {"recomputation": "full_recomputation", "gathered_weights": "each_run"}
        rest = {"offloading": "states_on_nvme_model_on_host", **how}
        every = layer.communication("data(1)", level="host", accounting={**how, "offloading": "everything_on_host"})
        weights = layer.communication("data(1)", level="host", accounting=rest).at().value
        states = layer.communication("data(1)", level="nvme", recipe="2+2+16", accounting=rest).at().value
        flops = layer.flops("training").at().value + layer.recomputation("full", count="flops").at().value
        assert [weights, states, every.at().value - weights, flops] == [*map(Fraction, case["value"])]
        twice = layer.communication("data(1)", level="host", accounting={**rest, "gathered_weights": "reshard"})
        assert twice.at().value == weights * 3 / 4  # one copy for both that the backward pass runs
        assert "gathered_weights" in twice.touched
        return
    said = {"hidden": at["hd"], "interval": at["ci"]} if "hd" in at else {"tokens": at["bsz"] * at["seq"]}
    kind = next(word for word in ("parameters", "states", "checkpoints") if word in case["question"])
    asked = worth("offload_efficiency", want=f"{kind}_intensity", **said)
    part = Fraction(case["question"].split("efficiency of ")[1].split("]")[0])
    rate = worth("offload_efficiency", want="bandwidth", intensity=f"{asked} FLOP/byte", peak=f"{at['peak']} FLOP/s",
                 efficiency=str(part))  # fmt: skip
    assert [asked, rate] == [*map(Fraction, case["value"])]
    back = worth("offload_efficiency", intensity=f"{asked} FLOP/byte", peak=f"{at['peak']} FLOP/s",
                 bandwidth=f"{rate} B/s")  # fmt: skip
    assert back == part


@pytest.mark.parametrize("case", cases("offload.activations"))
def test_the_copy_of_a_layer_hides_behind_its_forward_pass(case: dict[str, Any]) -> None:
    at = {name: int(value) for name, value in case["at"].items()}
    bytes_each = case["question"].split("copy ")[1].split(" B L D")[0]
    sizes = {"sequences": at["B"], "length": at["L"], "hidden": at["D"]}
    peak, copied = {"peak": f"{at['R']} FLOP/s"}, {"bytes": f"{bytes_each} B", "bandwidth": f"{at['W']} B/s"}
    sheet = "offload_efficiency"
    found = [worth(sheet, want="forward", **sizes, **peak), worth(sheet, want="copy", **sizes, **copied),
             worth(sheet, want="hidden", **sizes, **peak, **copied),
             worth(sheet, want="width", **peak, **copied)]  # fmt: skip
    assert found == [*map(Fraction, case["value"])]


@pytest.mark.parametrize(("before", "decay"), [((0.5, 0.2, 0.0, 0.0, 1), 0), ((0.5, 0.2, 0.1, 0.04, 3), 0.01),
                                               ((2.0, 0.001, 0.5, 0.3, 100), 0.1)])  # fmt: skip
def test_a_step_of_adam_is_that_of_pytorch(before: tuple[float, float, float, float, int], decay: float) -> None:
    torch = pytest.importorskip("torch")
    weight, gradient, first, second, step = before
    one = torch.nn.Parameter(torch.tensor([weight], dtype=torch.float64))
    optimizer = torch.optim.AdamW([one], lr=1e-3, weight_decay=decay)
    one.grad = torch.tensor([gradient], dtype=torch.float64)
    optimizer.state[one] = {"step": torch.tensor(float(step - 1)), "exp_avg": torch.tensor([first]).double(),
                            "exp_avg_sq": torch.tensor([second]).double()}  # fmt: skip
    optimizer.step()
    said = {"weight": weight, "gradient": gradient, "moment": first, "second_moment": second, "step": step}
    made = sc.derive("adam_step", weight_decay=str(decay), **{name: str(value) for name, value in said.items()})
    assert float(made.at().value) == pytest.approx(one.item(), rel=1e-7)
    made.check(deep=True)


@pytest.mark.parametrize("case", cases("ulysses.crossover"))
def test_ulysses_sends_less_from_so_many_ranks_on(case: dict[str, Any]) -> None:
    said = {"heads": int(case["at"]["n_H"]), "kv_heads": int(case["at"]["n_kv"])}
    if case["value"] == "none":
        with pytest.raises(sc.SymcommError, match="with one head of keys Ulysses never sends fewer bytes than a ring"):
            worth("ulysses_and_ring", **said)
        return
    least = worth("ulysses_and_ring", **said)
    assert least == int(case["value"])
    heads, shared = said["heads"], said["kv_heads"]
    # Numbers per position and head: queries and output, keys and values of k heads at least; over those on a ring.
    sent = [Fraction(2 * heads + 2 * max(shared, k), k) / (2 * shared) for k in (int(least), int(least) - 1)]
    assert sent[0] < 1 <= sent[1]


@pytest.mark.parametrize("case", cases("goodput.interval"))
def test_the_best_interval_between_checkpoints(case: dict[str, Any]) -> None:
    cost, between, restart = (int(case["at"][name]) for name in ("d", "M", "R"))
    said = {"strategy": "data(1)", "checkpoint_time": f"{cost} s", "device_failures": f"{Fraction(between, 3600)} h"}

    def asked(of: str, **more: object) -> float:
        return float(sc.load(ONE).derive("goodput", of=of, **said, **more).at().value)

    young, lost, daly, best, run = (float(Fraction(value)) for value in case["value"])
    assert asked("interval") == young
    assert asked("lost", restart=f"{restart} s", interval=f"{young} s") == pytest.approx(lost)
    assert asked("daly") == pytest.approx(daly, rel=1e-6)
    assert 10**6 * asked("run_time", restart=f"{restart} s", interval=f"{young} s") == pytest.approx(run, rel=1e-4)
    found = asked("exact")
    assert found == pytest.approx(best, rel=1e-6)
    # Work takes this long for each second where failures are exponential: least at the exact interval.
    cost_of = [(exp((t + cost) / between) - 1) / t for t in (found - 0.1, found, found + 0.1)]
    assert cost_of[1] < min(cost_of[0], cost_of[2])
    assert abs(log(1 - found / between) + (found + cost) / between) < 1e-8


@pytest.mark.parametrize("case", cases("goodput.mtbf"))
def test_the_time_between_failures_of_all_devices_and_of_one(case: dict[str, Any]) -> None:
    if case.get("at"):
        said = {"device_failures": f"{case['at']['M1']} s", "devices": int(case["at"]["n"])}
        assert worth("training_run", want="between_failures", **said) == Fraction(case["value"])
        return
    seen = {"failures": 419, "seen": f"{54 * 24} h"}
    found = [worth("training_run", want="between_failures", **seen),
             worth("training_run", want="device_failures_seen", devices=16384, **seen)]  # fmt: skip
    assert [one / 3600 for one in found] == [*map(Fraction, case["value"])]


@pytest.mark.parametrize("case", cases("cost.training", "cost.energy"))
def test_the_cost_of_a_run_that_was_published(case: dict[str, Any]) -> None:
    at, value = case.get("at") or {}, case["value"]
    if "price" in at:
        paid = {"hours": f"{at['hours']} device*hour", "price": f"{at['price']} dollar/(device*hour)"}
        assert worth("training_run", want="dollars", **paid) == int(value)
    elif "W" in at:
        used = {"hours": f"{at['hours']} device*hour", "power": f"{at['W']} watt/device"}
        energy = worth("training_run", want="energy", **used)
        carbon = worth("training_run", want="carbon", carbon=f"{float(Fraction(at['kg']))} kgCO2/kWh", **used)
        assert [energy / 1000, carbon / 1000] == [*map(Fraction, value)]
    elif "P" in at:
        sizes = {"parameters": int(at["P"]), "tokens": int(at["tokens"])}
        run = {"devices": int(at["n"]), "peak": f"{at['R']} FLOP/s", "mfu": at["mfu"], **sizes}
        found = [worth("training_run", want="flops", **sizes), worth("training_run", want="time", **run),
                 worth("training_run", **run)]  # fmt: skip
        assert found == [*map(Fraction, value)]
    else:
        rate = {"hours_per_trillion": "180000 device*hour"}
        hours = worth("training_run", tokens=148 * 10**11, **rate)
        days = worth("training_run", want="hours_each", tokens=10**12, devices=2048, **rate) / 24
        assert [hours, days] == [*map(Fraction, value)]


@pytest.mark.parametrize("case", cases("compression"))
def test_compressed_gradients_take_a_part_of_the_bytes(case: dict[str, Any]) -> None:
    at = {name: int(value) for name, value in case["at"].items()}
    value = [*map(Fraction, case["value"])]
    if "kept" in at:
        said = {"entries": at["kept"], "number_bytes": f"{at['value']} B", "index_bytes": f"{at['index']} B",
                "replicas": at["k"]}  # fmt: skip
        whole = worth("compressed_gradients", want="top_k_part", rows=at["n"], columns=1, **said)
        assert [worth("compressed_gradients", want="top_k", **said), whole] == value
    elif "r" in at:  # a ring of two replicas sends each number once
        said = {"rows": at["R"], "columns": at["C"], "rank": at["r"], "number_bytes": "1 B", "replicas": 2}
        assert [worth("compressed_gradients", want=want, **said) for want in ("power_sgd", "saving")] == value
    else:
        said = {"rows": at["n"], "columns": 1, "block": at["block"]}
        part = worth("compressed_gradients", want="signs_part", number_bytes="4 B", **said)
        assert [8 * worth("compressed_gradients", want="signs", **said), part] == value


@pytest.mark.parametrize("case", cases("optimizer.newton_schulz"))
def test_the_products_of_an_update_of_muon(case: dict[str, Any]) -> None:
    at = case["at"]
    recipe = f"mixed_muon(iterations={at['T']})"
    if "model" in case:
        sizes = DATA["models"][case["model"]]
        model = sc.load({
            "model_type": "llama", "hidden_size": sizes["D"], "vocab_size": sizes["V"], "head_dim": sizes["H"],
            "intermediate_size": sizes["F"], "num_hidden_layers": sizes["N"], "num_attention_heads": sizes["nh"],
            "num_key_value_heads": sizes["nkv"],
        })  # fmt: skip
        assert model.update_flops(recipe=recipe).at().value == int(case["value"])
    elif "rows" in at:
        made = sc.load(ONE).at(D=int(at["rows"]), F=int(at["cols"])).update_flops(recipe=recipe)
        made.check(deep=True)
        assert made.at().value == int(case["value"])
    else:
        square = sc.load(ONE).at(D=int(at["m"]), F=int(at["m"]), B=int(at["B"]))
        products = square.flops("training", accounting="needed").at().value
        assert square.update_flops(recipe=recipe).at().value / products == Fraction(case["value"])


def test_an_update_without_products_is_refused() -> None:
    with pytest.raises(sc.SymcommError) as caught:
        sc.load(ONE).update_flops(recipe="mixed_adam")
    assert str(caught.value) == (
        "an update of mixed_adam has no matrix products\nhint: accounting: all_ops, or recipe: mixed_muon"
    )
    with pytest.raises(sc.SymcommError, match="no hidden matrix"):
        sc.load("Computation\tInput\tOutput\ny = x + g\tx [B, D], g [D]\ty [B, D]\n").update_flops()
