"""A pipeline whose number of stages turns out to be one is no pipeline."""

import pytest

import symcomm as sc

GPT2 = {"model_type": "gpt2", "n_embd": 16, "n_layer": 3, "n_head": 2, "n_positions": 8, "vocab_size": 32}
PARAMETERS = 32 * 16 + 8 * 16 + 3 * (12 * 16**2 + 13 * 16) + 2 * 16


@pytest.mark.long
def test_one_stage_holds_the_whole_model_and_sends_nothing():
    model = sc.load(GPT2, loss=True, values={"B": 4, "L": 8})
    asked = "pipeline(p, microbatches=m)"
    assert model.state_memory(asked, stage="last").at(p=1, m=2).value == 16 * PARAMETERS
    assert model.communication(asked).at(p=1, m=2).value == 0  # no messages, and no tied weight to add up
    sent = model.communication(asked).sweep(p=[1, 3], m=[2])["value"].tolist()
    assert sent == [0, 2 * (4 * 8 * 16) + 2 * (32 * 16)]  # over one boundary, and the tied weight
    kept = model.activation_memory(asked, schedule="1f1b", stage="first")
    assert kept.at(p=1, m=2).value == model.at(B=2).activation_memory().at().value
    rates = {"peak": "1 TFLOP/s", "memory": "1 TB/s", "network": "1 GB/s"}
    assert model.step_time(asked, **rates).at(p=1, m=2) == model.step_time(microbatches=2, **rates).at()


def test_a_stage_of_an_unknown_number_that_turns_out_to_be_the_last_one_is_refused():
    model = sc.load(GPT2, loss=True, values={"B": 4, "L": 8, "N_layer": 4})
    asked = model.activation_memory("pipeline(p, microbatches=2)", schedule="1f1b", stage=1)
    assert asked.at(p=4).value == model.activation_memory("pipeline(4, microbatches=2)", stage=1).at().value
    with pytest.raises(sc.SymcommError, match="holds where p >= 3, and p = 2"):  # the head is there as well
        asked.at(p=2)
