"""One vocabulary of pipelines: stages, microbatches, chunks and times mean the same in questions, figures and given."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest
from api import SymcommError, main, parse_problem, solve
from click.testing import CliRunner

import symcomm as sc


def answers(*blocks: str) -> list[Fraction]:
    text = "---\ntitle: t\n---\n" + "".join(f"\n```symcomm\n{block.strip()}\n```\n" for block in blocks)
    return [block.quantity.value for block in solve(parse_problem(text, "t.md")).blocks if hasattr(block, "quantity")]


def drawn(block: str) -> str:
    pytest.importorskip("matplotlib")
    return str(solve(parse_problem(f"---\ntitle: t\n---\n\n```symcomm\n{block.strip()}\n```\n", "t.md")))


# Each number by hand: a pass of m microbatches through p stages of t seconds a microbatch takes (m + p - 1) t, and the
# slowest of uneven stages holds up each microbatch but the first.
SPELLINGS = [
    (54, ["stages: 6, 2, 2, 2\nper: chunk\ngiven: {m: 8}", "forward: 6, 2, 2, 2\nper: microbatch\nmicrobatches: 8",
          "forward: 6, 2, 2, 2\nper: microbatch\ngiven: {microbatches: 8}",
          "forward: 6, 2, 2, 2\nper: microbatch\nmicrobatches: M\ngiven: {M: 8, p: 4}"]),
    (Fraction(115, 10000), ["stages: 6 ms, 2 ms\ngiven: {m: 4, o: 1 ms}",
                            "forward: 6 ms, 2 ms\nmicrobatches: 4\noverhead: 1 ms"]),
    (55, ["given: {p: 4, m: 8, t: 32 s, o: 1 s}", "stages: 4\nmicrobatches: 8\nforward: 32 s\noverhead: 1 s",
          "stages: S\nmicrobatches: M\nforward: x\ngiven: {S: 4, M: 8, x: 32 s, o: 1 s}",
          "given: {stages: 4, microbatches: 8, forward: 32 s, overhead: 1 s}"]),
    (22, ["per: microbatch\nstages: 4\nmicrobatches: 8\nforward: 2 s", "per: chunk\ngiven: {p: 4, m: 8, t: 2 s}"]),
    (25, ["per: microbatch\nstages: 4\nmicrobatches: 8\nforward: 2 s\noverhead: 3/11 s"]),
    (10, ["want: whole_chunks\ngiven: {p: 4, t: 32 s, o: 1 s}",
          "want: whole_microbatches\nstages: 4\nforward: 32 s\noverhead: 1 s"]),
    (8, ["want: chunks\ngiven: {p: 3, t: 32 s, o: 1 s}", "want: microbatches\nstages: 3\nmicrobatches: M\n"
         "given: {t: 32 s, o: 1 s}"]),
    (Fraction(12, 15), ["want: utilisation\ngiven: {p: 4, m: 12}", "want: utilisation\nstages: 4\nmicrobatches: 12"]),
    (5, ["want: full_steps\nstages: 4\nmicrobatches: 8"]),
    # Under GPipe a microbatch costs 2 + 4 in a stage, and the last stage waits for three.
    (66, ["schedule: gpipe\nstages: 4\nmicrobatches: 8\nforward: 2\nbackward: 4",
          "schedule: gpipe\nforward: 2\ninput_gradient: 1\nweight_gradient: 3\ngiven: {p: 4, m: 8}",
          "schedule: gpipe\nforward: 2\nbackward: 4\nweight_gradient: 3\ngiven: {stages: 4, microbatches: 8}",
          "schedule: gpipe\nforward: 2\nbackward: 4\ninput_gradient: 3\nstages: S\nmicrobatches: 8\ngiven: {S: 4}"]),
    (22, ["schedule: gpipe\nforward: 2\nbackward: 0\nstages: 4\nmicrobatches: 8"]),
    # ZB-H1: all work, and p - 1 times F + B - W.
    (8 * 6 + 3 * 4, ["schedule: zb-h1\nforward: 2\nbackward: 4\nweight_gradient: 1\nstages: 4\nmicrobatches: 8"]),
    (8 * 6 + 3 * 2, ["schedule: zb-h1\nforward: 2\nbackward: 4\nstages: 4\nmicrobatches: 8"]),
    # Chunks of layers: 2 · 8 + 3 slots of F + B + W each.
    (19 * 6, ["schedule: interleaved\nchunks: 2\nforward: 2\nbackward: 4\nstages: 4\nmicrobatches: 8",
              "schedule: interleaved\nchunks: v\nforward: 2\nbackward: 4\ngiven: {v: 2, stages: 4, microbatches: 8}",
              "schedule: interleaved\nforward: 2\nbackward: 4\ngiven: {chunks: 2, stages: 4, microbatches: 8}"]),
]  # fmt: skip


@pytest.mark.few(4)
@pytest.mark.parametrize(("expected", "spelled"), SPELLINGS, ids=[spelled[-1][:40] for _, spelled in SPELLINGS])
def test_every_spelling_of_a_question_has_the_answer_that_was_counted_by_hand(expected, spelled):
    assert answers(*(f"ask: pipeline_time\n{block}" for block in spelled)) == [expected] * len(spelled)


def test_a_figure_takes_the_words_of_a_question():
    blocks = (
        "stages: 4\nmicrobatches: 8\nbackward: 4\nweight_gradient: 1",
        "given: {p: 4, m: 8}\ninput_gradient: 3\nweight_gradient: 1",
        "input_gradient: 3\nbackward: 4\ngiven: {stages: 4, microbatches: 8}",
        "stages: S\nmicrobatches: 8\nweight_gradient: 1\ngiven: {S: 4}",
    )
    for block in blocks:
        picture = drawn(f"figure: pipeline_schedule\nschedule: zb-h1\nforward: 2\n{block}")
        assert "Finished after 60;" in picture, block  # 8 (2 + 3 + 1) + 3 (2 + 3 - 1)


def test_python_and_the_command_line_take_the_same_words():
    assert sc.derive("pipeline_time", stages=4, microbatches=8, forward="32 s", overhead="1 s").at().value == 55
    assert sc.derive("pipeline_time", stages=4, m=8, t="32 s", o="1 s").at().value == 55
    assert sc.derive("pipeline_time", schedule="gpipe", want="bubble_total", stages="S").at(S=4, m=8).value == Fraction(
        3, 11
    )
    for given in ("p=4,m=8,t=32 s,o=1 s", "stages=4,microbatches=8,forward=32 s,overhead=1 s"):
        made = CliRunner().invoke(main, ["derive", "pipeline_time", "--at", given])
        assert "= 55 s" in made.output


REFUSED = [
    ({"stages": 4, "p": 8}, "'stages' is 4, but p = 8 is given\nhint: say one of them: 'stages' is p"),
    ({"stages": "6, 2", "forward": "3, 3"}, "'stages' is 6, 2, but it is a number of stages\nhint: forward"),
    ({"stages": "6, 2", "schedule": "1f1b"}, "'stages' is 6, 2, but it is a number of stages"),
    ({"stages": 3, "forward": "6, 2"}, "2 forward times are given for 3 stages"),
    ({"stages": 0}, "'stages' is 0\nhint: a whole number, or the name of a symbol"),
    ({"stages": 0, "schedule": "1f1b"}, "'stages' is 0\nhint: a whole number, or the name of a symbol"),
    ({"schedule": "1f1b", "per": "microbatch"}, "'per' is of a pass"),
    ({"schedule": "1f1b", "backward": "2", "input_gradient": "1", "weight_gradient": "1"},
     "'backward' is both gradients, but you also gave each of them"),
    ({"schedule": "1f1b", "backward": "2", "weight_gradient": "3"}, "'weight_gradient' is more than 'backward'"),
    ({"schedule": "1f1b", "backward": "2, 3", "weight_gradient": "1, 1, 1"},
     "2 times are given for 'backward', and 3 for 'weight_gradient'\nhint: one for each stage, or one for all"),
    ({"schedule": "1f1b", "backward": "2, 3", "weight_gradient": "w"}, "no value is given for w"),
    ({"backward": "2"}, "'backward' belongs to a schedule"),
    ({"forward": "6 ms, 0 ms"}, "a stage takes no time"),
    ({"want": "utilisation", "forward": "6, 2"}, "utilisation is derived for even stages"),
    ({"want": "microbatches", "microbatches": 4}, "'microbatches' is 4, but the question is for the best"),
    ({"want": "microbatches", "per": "microbatch"}, "the best number of microbatches needs the stages' times"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "told"), REFUSED, ids=[told[:40] for _, told in REFUSED])
def test_what_contradicts_itself_is_refused(given, told):
    with pytest.raises(SymcommError, match=f"^{re.escape(told)}"):
        sc.derive("pipeline_time", **given)


def test_a_part_of_a_backward_keeps_its_bound_until_numbers_are_given():
    made = sc.derive("pipeline_time", schedule="gpipe", backward="g", weight_gradient="w", stages=4, microbatches=8)
    assert made.at(t_F=2, g=4, w=3).value == 66
    with pytest.raises(SymcommError, match="g >= w"):
        made.at(t_F=2, g=4, w=5)


@pytest.mark.parametrize(("word", "hint"), [("stages", "p is the number of pipeline stages"),
                                            ("microbatches", "m is the number of microbatches")])  # fmt: skip
def test_a_word_for_a_symbol_hints_at_the_symbol(word, hint):
    with pytest.raises(SymcommError, match=f"no symbol '{word}'\nhint: {hint}$"):
        sc.derive("pipeline_time").at(**{word: 4})
