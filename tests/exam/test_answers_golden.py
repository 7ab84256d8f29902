"""Answers as students type them, with the verdicts of an independent program, to questions that are derived here."""

import json
from functools import cache
from pathlib import Path

import pytest
from api import load_model

import symcomm as sc

DATA = Path(__file__).parents[1] / "data"
GOLDEN = json.loads((DATA / "answers.json").read_text(encoding="utf-8"))
PROBLEM = sc.read_problem(DATA / "answers_questions.md")
QUESTIONS = {question["id"]: question for question in GOLDEN["questions"]}
# The conventions of answers.json, as they are called here.
CONVENTIONS = {
    "comm.contrib": {"communication: contributed"},
    "comm.wire_cluster": {"communication: all_links"},
    "comm.wire_rank_send": {"communication: sent_per_rank"},
    "comm.wire_rank_sendrecv": {"communication: sent_and_received_per_rank"},
    "comm.payload": {"communication: payload"},
    "tp.edge_exact": {"input_gradient: not_needed"},
    "flop.causal_half": {"attention: causal_half"},
    "flop.mac": {"flops: mac"},
    "flop.exact": {"flops: exact_adds"},
    "capacity:nominal_GiB": {"capacity: nominal_GiB"},
    "params.layer_table": {"parameters: layer_matrices"},
    "unit.GiB": {"unit: GiB"},
}
BY_OWNERS = {"comm.wire_rank_send": {"communication: sent_per_rank", "algorithm: ring"},
             "comm.wire_rank_sendrecv": {"algorithm: ring"}}  # fmt: skip


@cache
def models():
    return {ask.model: load_model(PROBLEM, ask.model) for ask in PROBLEM.asks if ask.model}


@cache
def key(name):
    return sc.key_of(PROBLEM, next(ask for ask in PROBLEM.asks if ask.label == name), models())


def text_of(answer):
    if answer.get("text") is not None:
        return answer["text"]
    return "".join(piece * times for piece, times in answer["generator"])


def complaint(answer):
    """What is wrong with the verdict on an answer; None where it is as expected."""
    verdict = key(answer["question"]).check(text_of(answer))
    shown = f"{answer['question']}: {text_of(answer)[:80]!r} is {answer['verdict']}, but was called {verdict}"
    if verdict.verdict != answer["verdict"]:
        return None if verdict.verdict in answer.get("also_allowed", ()) else shown
    if verdict.verdict == "mistake" and not any({*verdict.mistakes} == {*one} for one in answer["mistakes"]):
        return shown
    known = CONVENTIONS | (BY_OWNERS if answer["question"] == "net_words" else {})
    if verdict.verdict == "other_convention" and {*verdict.conventions} not in [
        known[name] for name in answer["conventions"]
    ]:
        return shown
    return None


@pytest.mark.parametrize("name", QUESTIONS)
def test_the_questions_are_derived_as_an_independent_program_has_them(name):
    """The document derives every number; none is typed."""
    number = key(name).number
    assert float(number.value) == pytest.approx(eval_fraction(QUESTIONS[name]["number"]), rel=1e-15)


def eval_fraction(text):
    top, _, bottom = text.partition("/")
    return float(top) / float(bottom or 1)


@pytest.mark.long
def test_all_mistakes_that_a_question_names_change_something():
    for name, question in QUESTIONS.items():
        applied = {one for wrong in sc.mistakes_of(key(name)) for one in wrong.names}
        assert {*question["mistakes"]} == applied, name


SOME = [name for name in QUESTIONS if name in ("dp_payload", "intensity", "bucket_size")]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in SOME else pytest.mark.long) for name in QUESTIONS]
)
def test_every_answer_gets_its_verdict_its_convention_and_its_mistake(name):
    complaints = [complaint(answer) for answer in GOLDEN["answers"] if answer["question"] == name]
    assert [said for said in complaints if said] == []


@pytest.mark.long
def test_nothing_wrong_is_called_right():
    wrong = [a for a in GOLDEN["answers"] if a["verdict"] != "right"]
    assert [a for a in wrong if key(a["question"]).check(text_of(a)).right] == []
