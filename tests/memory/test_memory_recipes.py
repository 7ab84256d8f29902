"""Recipes of one's own: what a parameter takes, in Python, on the command line and in a problem file."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
from api import ValuesError, main, recipe_of
from click.testing import CliRunner

import symcomm as sc

TABLE = "Computation\tInput\tOutput\ny = xW\tx [B, D], W [D, F]\ty [B, F]\n"


@pytest.mark.parametrize(
    ("said", "bytes_of_each"),
    [
        ("2+2+16", 20),
        ("2 + 2 + 12", 16),
        ("weights=2, states=8", 10),
        ("weights=2, gradients=2, master=4, states=2", 10),  # Adam with states of 8 bits
        ({"weights": 2, "gradients": 2, "states": 16}, 20),
        ({"weights": Fraction(1, 2), "master": 4}, Fraction(9, 2)),
        ("weights=0.5, gradients=2, states=1/2", 3),
    ],
)
def test_a_parameter_takes_the_bytes_of_the_recipe(said: object, bytes_of_each: Fraction) -> None:
    model = sc.load(TABLE)
    assert model.state_memory(recipe=said).at(D=3, F=5).value == 15 * bytes_of_each  # type: ignore[arg-type]


def test_named_recipes_are_the_same_as_their_bytes() -> None:
    model = sc.load(TABLE, dtype="fp32")
    for name, own in (("mixed_adam", "2+2+12"), ("fp32_adamw", "4+4+8"), ("fp32_sgd", "4+4+0")):
        peaks = [model.at(B=4, D=30, F=50).peak_memory(recipe=one).at().value for one in (name, own)]
        assert peaks[0] == peaks[1]


def test_what_the_states_are_is_said() -> None:
    steps = sc.load(TABLE).state_memory(recipe="weights=2, gradients=2, master=4, states=2").markdown()
    assert "4 bytes for a copy of the weights and 2 bytes for the optimizer's states" in steps


def test_sharded_states_of_a_recipe_of_ones_own_are_divided() -> None:
    sharded = sc.load(TABLE).state_memory("zero1(4)", recipe="2+2+16").at(D=4, F=4).value
    assert sharded == 16 * (2 + 2) + 16 * 16 // 4


def test_a_recipe_on_the_command_line_and_in_a_problem_file(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    for written in ("2+2+16", "{weights: 2, gradients: 2, states: 16}"):
        page.write_text(
            "# A page\n\n```symcomm\nmodel: m\ntable: |\n"
            + "".join(f"  {line}\n" for line in TABLE.splitlines())
            + f"```\n\n```symcomm\nask: state_memory\nmodel: m\nrecipe: {written}\ngiven: {{D: 3, F: 5}}\n```\n"
        )
        answers = sc.solve(sc.read_problem(page)).answers()
        assert [a.quantity.value for a in answers if a.quantity is not None] == [300]
    table = tmp_path / "t.tsv"
    table.write_text(TABLE)
    run = CliRunner().invoke(
        main, ["derive", "state_memory", "--model", str(table), "--recipe", "2+2+16", "--at", "D=3,F=5"]
    )
    assert run.exit_code == 0, run.output
    assert "300" in run.output


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("2+8", "the recipe '2+8' can be read in two ways"),
        ("2+2+4+8", "'2+2+4+8' is no recipe: it has 4 of three numbers"),
        ("16", "'16' is no recipe: it has 1 of three numbers"),
        ("mixed_adm", "unknown recipe 'mixed_adm'"),
        ("weights=2, moments=8", "a recipe has no 'moments'"),
        ("weights=-2", "weights of a recipe is '-2', but a number of bytes is needed"),
        ("weights=2, weights=4", "names a part twice"),
        ("gradients=2", "a recipe says how many bytes a weight takes"),
        ("weights=1/0", "weights of a recipe is '1/0'"),
    ],
)
def test_a_recipe_that_is_none_is_refused_with_words(said: str, message: str) -> None:
    with pytest.raises(ValuesError) as caught:
        recipe_of(said)
    assert message in str(caught.value)
    assert caught.value.hint


def test_two_numbers_name_both_readings() -> None:
    with pytest.raises(ValuesError) as caught:
        sc.load(TABLE).state_memory(recipe="2+8")
    assert caught.value.hint == "write weights=2, states=8 (no gradient is kept), or weights=2, gradients=8"
