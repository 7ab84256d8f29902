"""Devices: derived rates against data sheets, conventions that must be named, and files that are refused."""

from __future__ import annotations

import re
import sys
from fractions import Fraction
from pathlib import Path

import pytest
from api import (
    Accounting,
    AccountingError,
    Device,
    DocumentError,
    Model,
    Quantity,
    SymcommError,
    Unit,
    ValuesError,
    balance,
    device,
    devices,
    known_devices,
    known_networks,
    networks,
    no_model,
    parse_problem,
    solve,
)

sys.path.insert(0, str(Path(__file__).parent))
from asked import peak_rate

EVERY = list(known_devices().values())
RATES = [(d, r) for d in EVERY for r in d.rates.values()]


@pytest.mark.few(24)
@pytest.mark.parametrize(("owner", "rate"), RATES, ids=[f"{d.name}-{r.dtype}" for d, r in RATES])
def test_a_derived_rate_is_the_published_one_within_its_rounding(owner: Device, rate: object):
    assert rate.agrees is not False, f"{owner.name}: {rate.derived} derived, {rate.dense} published"
    assert rate.peak.value > 0


@pytest.mark.parametrize("owner", EVERY, ids=lambda d: d.name)
def test_every_number_of_a_device_has_a_source(owner: Device):
    assert owner.source
    assert owner.maker
    assert owner.memory.source
    assert owner.memory.bandwidth.source
    for rate in owner.rates.values():
        assert rate.published is not None or rate.parts is not None
        assert all(part.source for part in (rate.published, rate.parts) if part is not None)
    for link in owner.links.values():
        assert link.rate.source


@pytest.mark.parametrize("owner", EVERY, ids=lambda d: d.name)
def test_the_links_of_a_device_add_up_to_the_published_total(owner: Device):
    for link in owner.links.values():
        if link.published is not None:
            total = link.count * link.rate.quantity.value * (2 if link.published_direction == "both" else 1)
            assert total == link.published.quantity.value
        assert link.bandwidth("both").value == 2 * link.bandwidth("one").value


def test_devices_that_are_read_one_by_one_are_those_of_the_whole_file(tmp_path: Path):
    ours = Path(sys.modules[Device.__module__].__file__).with_name("devices.yaml").read_text(encoding="utf-8")
    head, _, below = ours.partition("networks:\n")
    (tmp_path / "devices.yaml").write_text(head, encoding="utf-8")
    (tmp_path / "networks.yaml").write_text(f"networks:\n{below}", encoding="utf-8")
    assert devices(tmp_path / "devices.yaml") == dict(known_devices())
    assert networks(tmp_path / "networks.yaml") == dict(known_networks())
    assert [*known_devices()] == re.findall(r"^  (\S+):$", head, re.MULTILINE)


# Totals as the vendors print them: NVLink of both directions, memory bandwidth.
@pytest.mark.parametrize(
    ("name", "link", "memory"),
    [
        ("V100-16GB-SXM", "300 GB/s", "900 GB/s"),
        ("A100-40GB-PCIe", "600 GB/s", "1555 GB/s"),
        ("A100-80GB-SXM", "600 GB/s", "2039 GB/s"),
        ("A100-80GB-PCIe", "600 GB/s", "1935 GB/s"),
        ("H100-SXM", "900 GB/s", "3352 GB/s"),
        ("H200", "900 GB/s", "4.8 TB/s"),
        ("B200", "1.8 TB/s", "8 TB/s"),
        ("MI300X", "896 GB/s", "5.3 TB/s"),
        ("TPU v5p", "1200 GB/s", "2765 GB/s"),
    ],
)
def test_the_bandwidths_of_a_device_are_those_that_its_vendor_prints(name: str, link: str, memory: str):
    found = device(name)
    assert found.link().bandwidth("both") == Quantity.parse(link)
    assert found.memory.bandwidth.quantity == Quantity.parse(memory)


def test_a_device_is_found_whatever_the_case_spaces_and_hyphens():
    assert (
        device("a100 80gb_sxm")
        is device("A100-80GB-SXM")
        is device("A100-SXM4-80GB")
        is device(device("A100-80GB-SXM"))
    )


def test_an_unknown_device_is_refused_with_near_names():
    with pytest.raises(ValuesError) as caught:
        device("H10-SXM")
    assert str(caught.value).startswith("unknown device 'H10-SXM'\nhint: did you mean 'H100-SXM'")
    with pytest.raises(ValuesError, match="known: A100-40GB-PCIe, A100-40GB-SXM"):
        device("abacus")


def test_a_name_that_several_devices_share_is_refused_with_all_of_them():
    with pytest.raises(ValuesError) as caught:
        device("A100")
    assert str(caught.value) == (
        "'A100' may be one of several devices\n"
        "hint: say which: A100-40GB-SXM, A100-40GB-PCIe, A100-80GB-SXM, A100-80GB-PCIe"
    )


def test_a_number_format_that_a_device_does_not_compute_is_refused_with_near_ones():
    with pytest.raises(ValuesError) as caught:
        device("V100-32GB-SXM").peak("bf16")
    assert str(caught.value).splitlines() == [
        "V100-32GB-SXM has no peak rate for 'bf16'",
        "hint: did you mean 'fp16'?",
    ]
    with pytest.raises(ValuesError) as caught:
        device("H100-SXM").peak("int4")
    assert str(caught.value).splitlines() == [
        "H100-SXM has no peak rate for 'int4'",
        "hint: for weights alone weights=int4(128 fp16); did you mean 'int8'?",
    ]


def test_an_unknown_link_or_direction_is_refused():
    with pytest.raises(ValuesError, match="H100-SXM has no link 'NVLnk'"):
        device("H100-SXM").link("NVLnk")
    with pytest.raises(ValuesError, match="'up' is no direction of a link"):
        device("H100-SXM").link().bandwidth("up")


# -- capacity -------------------------------------------------------------------------------------------------


def test_what_80_gb_means_is_asked_for_and_never_guessed():
    with pytest.raises(AccountingError) as caught:
        device("H100-SXM").capacity()
    assert str(caught.value) == (
        "the capacity is ambiguous: H100-SXM is sold with 80 GB, which may be 80 000 000 000 or 85 899 345 920 bytes, "
        "or what the driver reports\nhint: name one: nominal_GB, nominal_GiB, usable"
    )
    with pytest.raises(AccountingError, match="the capacity is ambiguous"):
        device("H100-SXM").capacity(Accounting())


def test_each_convention_of_capacity_has_its_own_bytes():
    h100 = device("H100-SXM")
    assert h100.capacity("nominal_GB").value == 80 * 10**9
    assert h100.capacity("nominal_GiB").value == 80 * 2**30
    assert h100.capacity(Accounting.of("usable")).value == 81559 * 2**20


def test_a_capacity_that_nobody_knows_is_refused():
    with pytest.raises(AccountingError, match="the usable memory of MI300X is not known"):
        device("MI300X").capacity("usable")
    with pytest.raises(AccountingError, match="'nominal' is no convention for capacity"):
        device("MI300X").capacity("nominal")


# -- peak rates -----------------------------------------------------------------------------------------------


def test_the_pass_takes_its_numbers_from_a_device_and_says_how_the_data_sheet_agrees():
    made = peak_rate(device="A100-80GB-SXM", dtype="fp16")
    assert made.at().value == 2 * 1410 * 10**6 * 108 * 1024
    assert made.notes[0].startswith("The derived rate agrees with the published 312 TFLOP/s, rounded to 1 TFLOP/s")
    text = "# Q\n\n```symcomm\nask: peak_rate\ndevice: A100 80GB SXM\ndtype: fp16\n```\n"
    answer = next(iter(solve(parse_problem(text)).answers()))
    assert answer.quantity == made.at()


def test_whole_numbers_are_counted_in_operations_and_floating_point_in_flop():
    assert peak_rate(device="A100-80GB-SXM", dtype="int8").unit == Unit.parse("operation/second")
    assert peak_rate(device="A100-80GB-SXM", dtype="fp16").unit == Unit.parse("FLOP/second")


def test_a_rate_with_sparsity_is_halved():
    made = peak_rate(device="H200", dtype="fp8")
    assert made.at().value == Fraction(3958, 2) * 10**12
    assert "with sparsity, which counts twice the operations" in made.steps[0].reason.text


def test_a_multiply_add_can_count_once():
    once = Accounting.of("mac")
    for name in ("A100-80GB-SXM", "H200"):
        full = peak_rate(device=name, dtype="fp16").at().value
        assert peak_rate(device=name, dtype="fp16", accounting=once).at().value * 2 == full


def test_a_device_and_numbers_of_ones_own_do_not_mix():
    with pytest.raises(ValuesError, match="a device brings its clock, units and fma"):
        peak_rate(clock="1 GHz", device="H100-SXM", dtype="fp16")
    with pytest.raises(ValuesError, match="a peak rate of H100-SXM needs a number format"):
        peak_rate(device="H100-SXM")
    with pytest.raises(ValuesError, match="a number format needs a device"):
        peak_rate(dtype="fp16")


def test_the_balance_of_a_device_is_its_rate_over_its_memory_bandwidth():
    made = balance("MI300X", "fp16")
    assert made.at().value == Fraction(2 * 2100 * 10**6 * 304 * 1024, 5300 * 10**9)
    assert made.unit == Unit.parse("FLOP/byte")


def test_the_pass_without_a_device_is_symbolic_as_before():
    from api import Graph

    empty = Model(Graph("no model", {}, {}, ()))
    assert str(empty.derive("peak_rate").expr) == "2*f*n_FMA*n_SM"
    with pytest.raises(ValuesError, match="clock is given in B/s"):
        empty.derive("peak_rate", clock="3 GB/s")


# -- a user's own file ----------------------------------------------------------------------------------------

OWN = """devices:
  mine:
    source: my own measurements
    parts: {clock: 2 GHz, units: 10, unit: SM}
    rates:
      fp16: {fma: 100}
    memory: {kind: DDR5, nominal: 64 GB, bandwidth: 100 GB/s}
    links:
      Ethernet: {name: 100 GbE, count: 1, rate: 12.5 GB/s}
"""


def own(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "devices.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_user_adds_devices_in_a_file_of_their_own(tmp_path: Path):
    found = devices(
        own(tmp_path, OWN + "  bigger:\n    like: mine\n    memory: {kind: D, nominal: 128 GB, bandwidth: 1 TB/s}\n")
    )
    assert found["mine"].peak("fp16").value == 2 * 2 * 10**9 * 10 * 100
    assert found["bigger"].peak("fp16") == found["mine"].peak("fp16")
    assert found["bigger"].capacity("nominal_GB").value == 128 * 10**9
    assert device("Mine", found) is found["mine"]
    assert device("A100-80GB-SXM", found).maker == "NVIDIA"


def test_two_devices_of_one_name_have_the_rates_of_each(tmp_path):
    several = []
    for gb in (1000, 2000):
        text = f"devices:\n  ours:\n    like: H100-SXM\n    memory: {{kind: D, nominal: 80 GB, bandwidth: {gb} GB/s}}\n"
        several.append(devices(own(tmp_path, text))["ours"])
    found = [no_model().derive("balance", device=one).at().value for one in (*several, *several)]
    assert found == [found[0], found[0] / 2] * 2


def test_a_user_s_device_may_be_like_a_known_one(tmp_path: Path):
    found = devices(own(tmp_path, "devices:\n  ours:\n    like: H100-SXM\n    aliases: [the big one]\n"))
    assert found["ours"].peak("fp8") == device("H100-SXM").peak("fp8")
    assert device("The Big One", found).name == "ours"


BROKEN = {
    "an unknown key": (
        OWN.replace("memory:", "memroy:"),
        "7: unknown key 'memroy' in 'mine'\n"
        "        memroy: {kind: DDR5, nominal: 64 GB, bandwidth: 100 GB/s}\n"
        "        ^^^^^^\nhint: did you mean 'memory'?",
    ),
    "a capacity for a bandwidth": (
        OWN.replace("bandwidth: 100 GB/s", "bandwidth: 100 GB"),
        "7: 'bandwidth' is given in B, but must be in B/s\n"
        "        memory: {kind: DDR5, nominal: 64 GB, bandwidth: 100 GB}\n"
        "                                                        ^^^^^^",
    ),
    "a bandwidth of zero": (OWN.replace("100 GB/s", "0 GB/s"), "'0 GB/s' is not positive"),
    "a negative clock": (OWN.replace("2 GHz", "-2 GHz"), "'-2 GHz' is not positive"),
    "a rate without a unit": (OWN.replace("2 GHz", "2"), "'clock' is given without a unit, but must be in Hz"),
    "an unknown unit": (OWN.replace("2 GHz", "2 Ghertz"), "unknown unit 'Ghertz'"),
    "a list for a text": (OWN.replace("my own measurements", "[a, b]"), "'source' must be text, but is a list"),
    "a text for a mapping": (OWN.replace("{fma: 100}", "fast"), "'fp16' must be a mapping, but is text"),
    "a fraction of a unit": (
        OWN.replace("units: 10", "units: 2.5"),
        "'units' must be a positive whole number, but is '2.5'",
    ),
    "no unit by that name": (OWN.replace("unit: SM", "unit: wheel"), "'unit' is SM, CU, MXU or core, not 'wheel'"),
    "no number format": (OWN.replace("fp16", "half"), "'half' is no number format"),
    "a missing key": (OWN.replace("source: my own measurements", "maker: me"), "'mine' needs the key 'source'"),
    "an empty name": (OWN.replace("    source:", "    aliases: [it, '']\n    source:"), "'aliases' has no value"),
    "an unknown key of a link": (
        OWN.replace("rate: 12.5 GB/s", "rate: 12.5 GB/s, published: 12.5 GB/s, directoin: one"),
        "unknown key 'directoin' in 'Ethernet'",
    ),
    "an unknown key of a rate": (OWN.replace("{fma: 100}", "{fma: 100, publishd: 1 B}"), "unknown key 'publishd' in"),
    "an empty value": (OWN.replace("my own measurements", ""), "'source' has no value"),
    "a rate of nothing": (OWN.replace("{fma: 100}", "{}"), "'fp16' needs fma, or a published rate"),
    "parts without rates": (
        "devices:\n  b:\n    like: H100-SXM\n    parts: {clock: 1 GHz, units: 1, unit: SM}\n",
        "'parts' needs 'rates'",
    ),
    "a taken name": (OWN.replace("  mine:", "  H100-SXM5:"), "'H100-SXM5' is already a name of H100-SXM"),
    "no name": (OWN.replace("  mine:", "  7 of 9:"), "'7 of 9' is no name of a device"),
    "an unknown model": ("devices:\n  b: {like: H10-SXM}\n", "'H10-SXM' is no device before this one"),
    "a link that does not add up": (
        OWN.replace("rate: 12.5 GB/s", "rate: 12.5 GB/s, published: 12.5 GB/s, direction: both"),
        "1 x 12.5 GB/s are 25 000 000 000 B/s = 25 GB/s in both directions, not 12.5 GB/s",
    ),
    "a total without a direction": (
        OWN.replace("rate: 12.5 GB/s", "rate: 12.5 GB/s, published: 12.5 GB/s"),
        "'published' and 'direction' belong together",
    ),
    "a memory in bytes": (OWN.replace("64 GB", "64000000000 B"), "'nominal' is what the seller prints, in GB or GiB"),
    "a key twice": (
        OWN.replace("    source:", "    maker: a\n    maker: b\n    source:"),
        "the key 'maker' is there twice",
    ),
    "an alias bomb": (
        "a: &a [x, x]\nb: &b [*a, *a]\ndevices: {m: *b}\n",
        "1: this file has a YAML anchor or alias, which is refused\n    a: &a [x, x]\n       ^^^^\nhint: write",
    ),
    "a tag": ("devices: !!python/object:os.system {}\n", "this file has the YAML tag tag:yaml.org,2002:python/object"),
    "no YAML": ("devices: {a: [}\n", "1: this file is not YAML"),
    "a list": ("- a\n", "a file of devices is a mapping that starts with devices:"),
    "nothing": ("", "this file is empty"),
    "another mapping": ("machines: {}\n", "unknown key 'machines' in this file"),
    "a deep file": ("devices: " + "{a: " * 40 + "1" + "}" * 40 + "\n", "nested more than 12 deep"),
    "a number out of range": (OWN.replace("2 GHz", "2e300 GHz"), "'2e300 GHz' is out of range"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_file_of_devices_is_refused_with_its_line(tmp_path: Path, what: str):
    text, message = BROKEN[what]
    with pytest.raises(DocumentError) as caught:
        devices(own(tmp_path, text))
    assert f"{tmp_path / 'devices.yaml'}:" in str(caught.value)
    assert message in str(caught.value)


def test_a_missing_or_binary_file_of_devices_is_refused(tmp_path: Path):
    with pytest.raises(SymcommError, match=r"there is no file .*none\.yaml"):
        devices(tmp_path / "none.yaml")
    path = tmp_path / "bytes.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SymcommError, match="is not UTF-8 text"):
        devices(path)


def test_a_file_of_too_many_devices_is_refused(tmp_path: Path):
    text = "devices:\n" + "".join(f"  d{n}: {{like: generic}}\n" for n in range(1001))
    with pytest.raises(DocumentError, match="1,001 devices; at most 1,000 are read"):
        devices(own(tmp_path, text))
