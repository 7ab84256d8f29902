"""The homework on serving: its answers, worked out by hand."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

from api import Exam, Student, problem_read_template, read_problem, solve

HOMEWORK = Path(__file__).parents[2] / "examples" / "serving" / "serving.md"
LAYER = 4096 * 4096 * 2 + 4096 * 1024 * 2 + 3 * 4096 * 14336  # matrices that a token multiplies with


def test_the_answers_of_the_homework_are_those_of_a_calculation_by_hand() -> None:
    found = [answer.derivation.at().value for answer in solve(read_problem(HOMEWORK)).answers()]
    token = 2 * 32 * 8 * 128 * 2  # keys and values, 32 layers, 8 heads of 128 numbers, 2 bytes
    head = 4096 * 128256
    pairs = 4 * 4096 * 8193  # scores and values of a query with 8192 positions and itself
    flops = 2 * (32 * LAYER + head) + 32 * pairs
    moved = 2 * (32 * LAYER + head) + 8193 * token + 2 * (4096 + 128256)
    weights = 2 * (32 * (LAYER + 2 * 4096) + 2 * head + 4096)
    rate, bandwidth = Fraction(98942976, 100) * 10**9, Fraction(3352) * 10**9
    assert found[:6] == [token, 8192 * token, 61 * 576 * 2, flops, moved, max(flops / rate, moved / bandwidth)]
    each = (2 * (32 * LAYER + head) + 32 * 4 * 4096 * 129) * bandwidth / rate - 129 * token - 2 * (4096 + 128256)
    assert found[6] == 2 * (32 * LAYER + head) / each
    assert found[7] == (80 * 10**9 - 2 * 10**9 - weights) // (8192 * token)
    assert found[8:10] == [1024 * token, 65 * 4096 * 2]  # two all-reduces a layer, one behind the table
    verified = 1 - Fraction(4, 5) ** 5
    assert found[10:12] == [5 * verified, 5 * verified / Fraction(6, 5)]
    gain = {q: 5 * (1 - Fraction(4, 5) ** q) / (Fraction(q - 1, 20) + 1) for q in range(1, 200)}
    assert found[12] == max(gain.values())


def test_each_paper_of_the_quiz_has_the_numbers_of_its_own_models() -> None:
    exam = Exam(problem_read_template(HOMEWORK.with_name("exam.md")), seed="3")
    for student in ("s1", "s2"):
        paper = exam.paper(Student(student, student))
        drawn = {
            name: int(paper.drawn[name].text.replace(" ", ""))
            for name in ("D", "F", "V", "c", "B", "E", "k", "n_kv", "N_layer", "N_moe", "t")
        }
        d, f, vocabulary, layers = (drawn[name] for name in ("D", "F", "V", "N_layer"))
        key, pairs = 128 * drawn["n_kv"], 4 * d * (drawn["c"] + 1)
        matrices = layers * (2 * d * d + 2 * d * key + 3 * d * f) + d * vocabulary
        token = 2 * layers * key * 2
        moved = 2 * matrices + drawn["B"] * ((drawn["c"] + 1) * token + 2 * (d + vocabulary))
        expert = 3 * 4096 * 2048
        routed = 4096 * 4096 * 2 + 4096 * 1024 * 2 + 4096 * drawn["E"] + drawn["k"] * expert
        pages = -(-drawn["c"] // 16) * 16
        weights = 2 * (matrices + vocabulary * d) / 4 + 2 * (2 * layers + 1) * d
        wanted = {
            "token": token,
            "rank": Fraction(drawn["c"] * token, drawn["t"]),
            "step": drawn["B"] * (2 * matrices + layers * pairs),
            "moved": moved,
            "fit": (76 * 10**9 - weights) // (pages * token / 4),
            "experts": 2 * drawn["B"] * (drawn["N_moe"] * (routed + 2 * 4096 * 1025) + 4096 * 32000),
        }
        found = {part.id: exam.kept.answer(paper.problem, part.ask).quantity for part in paper.parts}
        assert {name: found[name].value for name in wanted} == wanted, drawn


def test_the_mistakes_of_serving_are_recognised() -> None:
    exam = Exam(problem_read_template(HOMEWORK.with_name("exam.md")), seed="3")
    paper = exam.paper(Student("s1", "s1"))
    told = {part.id: {name for wrong in exam.kept.key(paper.problem, part.ask).mistakes for name in wrong.names}
            for part in paper.parts}  # fmt: skip
    cache = {"query_heads_for_kv_heads", "keys_without_values", "one_layer_only", "bits_for_bytes"}
    assert cache <= told["token"] & told["rank"]
    assert cache - {"bits_for_bytes"} <= told["fit"]
    assert {"prefill_for_decode", "prompt_for_operations"} <= told["step"]
    assert {"prefill_for_decode", "all_experts_for_active"} <= told["experts"]
    part = next(part for part in paper.parts if part.id == "token")
    key = exam.kept.key(paper.problem, part.ask)
    layers, heads = (int(paper.drawn[name].text) for name in ("N_layer", "n_H"))
    assert key.check(f"{2 * layers * heads * 128 * 2} B").mistakes == ("query_heads_for_kv_heads",)
    half = next(wrong for wrong in key.mistakes if wrong.names == ("keys_without_values",))
    assert half.at(key.values).value == key.number.value / 2
