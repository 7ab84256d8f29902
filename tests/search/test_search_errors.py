"""What cannot be searched is said, with what to do about it."""

import json
import sys
from pathlib import Path

import pytest
from api import SymcommError, main, options, space
from api import searching_evaluate as evaluate
from click.testing import CliRunner
from search_oracle import BLOCK, RATES, block

import symcomm as sc

LIMIT = {"capacity": "1 GB", "capacity_is": "nominal_GB"}


def refused(model=None, **options) -> str:
    given = {"devices": 4} | LIMIT | RATES | options
    with pytest.raises(SymcommError) as caught:
        sc.search(model or block(), **{name: value for name, value in given.items() if value is not None})
    return str(caught.value)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"capacity_is": None}, "what does a capacity of 1 GB mean?\nhint: say capacity_is: nominal_GB"),
        ({"capacity_is": "GB"}, "unknown meaning of a capacity 'GB'"),
        ({"capacity": None}, "no capacity is given\nhint: name a device, or say capacity: 80GB, cap"),
        ({"capacity": "1 s"}, "a capacity is in bytes, not in s"),
        ({"devices": 0}, "devices = 0: a whole number from 1 to 10,000,000"),
        ({"devices": True}, "devices = True"),
        ({"devices": 10**9}, "devices = 1000000000"),
        ({"top": 0}, "top = 0: a whole number from 1 to 1,000"),
        ({"top": 10**6}, "top = 1000000"),
        ({"jobs": 0}, "jobs = 0: a whole number from 1 to 1,000"),
        ({"microbatches": "1..x"}, "microbatches: '1..x' is no whole number and no range\nhint: write 1, 2, 4"),
        ({"microbatches": "4..1"}, "microbatches: '4..1' has no values"),
        ({"microbatches": "1..8*1"}, "microbatches: '1..8*1' has no values"),
        ({"microbatches": "0"}, "microbatches: '0' has no values"),
        ({"microbatches": "1..9999999"}, "'1..9999999' has more than 100,000 values"),
        ({"microbatches": [1.5]}, "microbatches: 1.5 is no whole number"),
        ({"microbatches": []}, "microbatches takes no value"),
        ({"microbatches": [-1]}, "microbatches takes values from 1 to 1,000,000,000, not -1 to -1"),
        ({"microbatches": 1.5}, "microbatches: 1.5 is no list of whole numbers"),
        ({"microbatches": "1," * 9000}, "microbatches: 18,000 characters"),
        ({"recomputation": "some"}, "unknown recomputation 'some'\nhint: known: full, needed, none, selective"),
        ({"recomputation": ""}, "no recomputation is named"),
        ({"recomputation": "selective"}, "has no attention scores to compute again"),
        ({"schedules": "interleaved"}, "unknown schedule 'interleaved'\nhint: known: 1f1b, gpipe"),
        ({"strategies": []}, "no strategy is named\nhint: for instance data + tensor + pipeline"),
        ({"strategies": ["dada"]}, "unknown strategy 'dada'\nhint: did you mean 'data'?"),
        ({"strategies": [sc.Data("k")]}, "strategies is a list with a Strategy, but it must be a text"),
        ({"strategies": "data(k) + tensor(k)"}, "k is the size of data and of tensor in 'data(k) + tensor(k)'"),
        ({"strategies": "data(B)"}, "B is a size of the model and of the mesh\nhint: call the degree otherwise"),
        ({"strategies": "pipeline(p, microbatches=4)"}, "a search varies the microbatches itself"),
        ({"strategies": "pipeline(layers_per_stage=2)"}, "a search varies the stages, not the layers of one"),
        ({"strategies": "expert"}, "the mesh axis 'data' has no size"),
        ({"sizes": {"tensr": "1..2"}}, "'tensr' is no axis of the mesh and no size of the model\nhint: did you"),
        ({"sizes": {"B": "6,12"}, "batch": 12}, "the batch is given twice: as batch and as B"),
        ({"buckets": "1,2"}, "buckets need the overhead of one call\nhint: for instance call_overhead='20 us'"),
        ({"call_overhead": "20 us"}, "the overhead of a call goes with buckets"),
        ({"buckets": "1,2", "call_overhead": "20 B"}, "the overhead of a call is in B, not in s"),
        ({"buckets": "1", "call_overhead": "1 us", "accounting": "with_backward"}, "buckets say when gradients"),
        ({"buckets": "1", "call_overhead": "1 us", "strategies": "tensor"}, "no gradients are reduced"),
        ({"accounting": "full_recomputation"}, "a search goes over recomputation itself\nhint: say recomputation='f"),
        ({"peek": "1 TFLOP/s"}, "a search takes no 'peek'\nhint: did you mean 'peak'?"),
        ({"memory": ["1 TB/s"]}, "memory is a list with the text '1 TB/s', but it must be a"),
        ({"network": None}, "a search needs a value for W_net\nhint: name a device, or give network"),
        ({"device": "H1000"}, "H1000"),
    ],
    ids=lambda v: str(v)[:50],
)  # fmt: skip
def test_what_cannot_be_searched_is_refused_with_a_reason(options, text):
    assert text in refused(**options)


def test_a_model_without_a_batch_or_another_number_says_which_is_missing():
    without = sc.load(BLOCK, repeat="N_layer", values={"N_layer": 6, "L": 16, "D": 24, "F": 36})
    assert "a search needs the batch\nhint: for instance batch=512" in refused(without)
    without = sc.load(BLOCK, repeat="N_layer", values={"N_layer": 6, "B": 12, "L": 16, "D": 24})
    assert "a search needs a value for F\nhint: for instance sizes: F=8" in refused(without)


def test_sizes_that_other_sizes_settle_are_not_searched():
    from search_oracle import attention

    said = refused(attention(), sizes={"D": "32,64"})
    assert "other sizes define D, so D is not free\nhint: free are B, L, N_layer" in said


def test_too_many_configurations_structures_and_seconds_are_refused(monkeypatch):
    said = refused(sizes={"L": "1..100000"}, batch="12..12000+12", microbatches="1..1000")
    assert "configurations; a search takes 100,000,000\nhint: give fewer sizes" in said
    monkeypatch.setattr(options, "MOST_STRUCTURES", 5)
    assert "there are more than 5 structures to derive\nhint: name fewer strategies" in refused()
    monkeypatch.undo()
    monkeypatch.setattr(evaluate, "CHUNK", 1)
    said = refused(seconds=0.0, strategies="data", microbatches="1..12", recomputation="none,full")
    assert "the search took longer than 0 s: 8 of 24 configurations were done\nhint: give fewer sizes" in said
    monkeypatch.setattr(space, "MOST_SHAPES", 3)
    assert "the mesh has more than 3 shapes\nhint: allow fewer sizes of its axes" in refused(devices=64)


def test_without_joblib_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "joblib", None)
    assert 'a search needs NumPy and joblib\nhint: pip install "joblib<2,>=1.3" "numpy<3,>=1.26"' in refused()


def test_the_usable_bytes_of_a_device_that_nobody_measured_are_not_guessed():
    said = refused(capacity=None, capacity_is="usable", device="V100-16GB-SXM")
    assert "the usable bytes of this device are not known" in said


def test_a_hint_on_the_command_line_has_its_options(tmp_path: Path) -> None:
    file = tmp_path / "gpt.json"
    sizes = {"vocab_size": 128, "n_positions": 64, "n_embd": 64, "n_layer": 2, "n_head": 2}
    file.write_text(json.dumps({"model_type": "gpt2"} | sizes), encoding="utf-8")
    asked = ["search", str(file), "--devices", "8", "--device", "H100-SXM"]
    told = CliRunner().invoke(main, asked).output
    assert "hint: say --capacity-is nominal_GB (10^9), nominal_GiB (2^30) or usable" in told
    assert "hint: for instance --batch 512" in CliRunner().invoke(main, [*asked, "--capacity-is", "usable"]).output
