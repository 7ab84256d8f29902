"""A convention is named where a rule read it: the step that it decided says so, and so does what rests on that step."""

from __future__ import annotations

from api import ONE, Graph, Setting, StepWriter, num

import symcomm as sc

TABLE = "Computation\tInput\tOutput\ny = relu(x W)\tx [B, D], W [D, F]\ty [B, F]\n"
LAYER = sc.load(TABLE)
RATES = {"peak": "1 TFLOP/s", "memory": "1 TB/s", "network": "10 GB/s"}
GPT2 = {"model_type": "gpt2", "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32, "vocab_size": 32}


def _named(made: sc.Derivation) -> set[str]:
    return {convention.field.partition(" ")[0] for convention in made.conventions}


def test_a_choice_belongs_to_the_step_that_is_made_next_and_no_other():
    setting = Setting(Graph("no model", {}, {}, ()))
    work = StepWriter(setting)
    work.define("a", num(1), ONE, "r", "t")
    assert setting.choice("flops") == "fma2"
    work.define("b", num(2), ONE, "r", "t", by=["time"])
    work.define("c", num(3), ONE, "r", "t")
    assert [step.by for step in work.steps] == [(), ("flops", "time"), ()]
    assert setting.derivation("all", work.steps).touched == ("flops", "time")
    assert setting.derivation("the last", work.steps[2:]).touched == ()


def test_a_term_names_what_its_own_steps_rest_on():
    terms = {term: LAYER.time("data(2)", term=term, phase="end_of_batch" if term == "network" else "forward", **RATES)
             for term in ("compute", "memory", "network")}  # fmt: skip
    assert _named(terms["compute"]) == {"flops"}
    assert _named(terms["memory"]) == {"traffic"}
    assert _named(terms["network"]) == {"algorithm", "link"}


def test_token_ids_have_no_gradient_that_a_convention_could_leave_out():
    assert "input_gradient" in _named(LAYER.flops("training"))
    model = sc.load(GPT2)
    for made in (model.flops("training"), model.activation_memory(), model.communication("tensor(2)")):
        assert "input_gradient" not in _named(made)


def test_gathers_that_a_convention_takes_out_of_a_pass_are_not_called_idle():
    kept = LAYER.communication("fsdp(k)", phase="backward", accounting={"gathered_weights": "keep"})
    assert not [note for note in kept.notes if "asked for" in note]
    assert "gathered_weights" in _named(kept)
    idle = LAYER.communication("data(k)", accounting={"gathered_weights": "keep"})
    assert "Nothing here depends on `gathered_weights: keep`." in idle.notes
