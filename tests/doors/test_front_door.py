"""What a newcomer does first: the README as it is typed, and a file of one's own to begin with."""

import json
import re
import tomllib
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
import shown
from api import RenderError, SymcommError, main, pandoc
from click.testing import CliRunner, Result

import symcomm as sc

ROOT = Path(__file__).parents[2]


def run(*arguments: str, status: int = 0) -> Result:
    result = CliRunner().invoke(main, [*arguments], catch_exceptions=False)
    assert result.exit_code == status, result.output
    return result


@pytest.mark.parametrize("page", shown.pages(), ids=lambda path: path.name)
def test_what_a_page_types_prints_what_stands_below_it(page: Path):
    again = shown.written_again(page)
    assert page.read_text(encoding="utf-8") == again, f"python tests/doors/shown.py {page} writes it again"


def test_the_set_up_command_installs_all_that_the_readme_uses():
    """Searches and sweeps need an extra of their own; what is only drawn or proved has its own page."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    commands = re.findall(r"^python3 -m venv.*", text, re.MULTILINE)
    assert len(commands) == 2
    assert "'.[pdf,search]'" in commands[0]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert {"pdf", "search"} <= set(extras)


# -- symcomm new ------------------------------------------------------------------------------------------


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def answers(name: str) -> list[str]:
    return [answer.derivation.at().__str__() for answer in sc.solve(sc.read_problem(name)).answers()]


def test_a_new_homework_is_solved_at_once(here: Path):
    """8 D^2 weights of 2 bytes in 24 layers; 2 FLOPs for each weight and token."""
    run("new", "homework.md")
    gradient, flops = answers("homework.md")
    assert gradient.startswith("1 610 612 736 B")
    assert flops.startswith(f"{2 * 8 * 2048**2 * 8 * 1024 * 24:,} FLOP".replace(",", " "))
    run("solve", "homework.md", "--to", "md")
    assert "symcomm check homework.md 1.1" in (here / "homework.md").read_text(encoding="utf-8")


def test_the_question_that_the_readme_adds_is_answered(here: Path):
    """One sum of B L D elements of 2 bytes forwards, one backwards, in 24 layers."""
    run("new", "homework.md")
    (added,) = re.findall(r"^````markdown\n(.*?)^````$", (ROOT / "README.md").read_text(encoding="utf-8"), re.M | re.S)
    begun = (here / "homework.md").read_text(encoding="utf-8").replace("layers (10 points)", "layers (15 points)")
    (here / "homework.md").write_text(f"{begun}\n{added}", encoding="utf-8")
    assert answers("homework.md")[2].startswith(f"{2 * 8 * 1024 * 2048 * 2 * 24:,} B".replace(",", " "))


def test_the_command_that_a_new_homework_names_is_right(here: Path):
    run("new", "week-2.md")
    assert "right" in run("check", "week-2.md", "1.1", "16 N D^2").output
    assert run("check", "week-2.md", "1.1", "16", "N", "D^2").output.startswith("right\n")  # without quotes


def test_the_list_of_commands_begins_with_the_first_one_and_cuts_no_sentence(here: Path):
    listed = run("--help").output.partition("Commands:\n")[2]
    assert [line.split()[0] for line in listed.splitlines()[:3]] == ["new", "solve", "derive"]
    assert "..." not in listed


def test_prose_without_pandoc_names_the_libraries_and_the_format_that_needs_none(monkeypatch: pytest.MonkeyPatch):
    def missing() -> str:
        raise ImportError("pypandoc")

    monkeypatch.setitem(pandoc.__globals__, "_path", missing)
    with pytest.raises(RenderError, match="pandoc is missing") as told:
        pandoc(["--version"])
    assert str(told.value).endswith("; or write --to md, which needs no pandoc")


def test_a_new_exam_passes_its_own_test_and_gives_each_student_numbers(here: Path):
    told = run("new", "midterm", "--kind", "exam").output
    assert told == "midterm.md\nnext: symcomm exam midterm.md --variants 3 -o papers\n"
    assert "every answer exists" in run("exam", "midterm.md", "--test", "--draws", "20").output
    run("exam", "midterm.md", "--variants", "3", "--to", "json", "-o", "papers")
    keys = json.loads((here / "papers" / "keys.json").read_text(encoding="utf-8"))
    assert len(keys["papers"]) == 3


def test_a_new_worksheet_comes_with_a_homework_that_asks_it(here: Path):
    """Three times 400 GB at 2 GB/s."""
    run("new", "worksheet.md")
    assert answers("worksheet-homework.md") == ["600 s"]


@pytest.mark.parametrize("kind", ["homework", "exam", "worksheet"])
def test_a_file_that_is_there_is_never_written_over(here: Path, kind: str):
    run("new", f"{kind}.md")
    (here / f"{kind}.md").write_text("mine", encoding="utf-8")
    told = run("new", f"{kind}.md", status=2).output
    assert f"error: {kind}.md is there already\nhint: choose another name, or move it away first" in told
    assert (here / f"{kind}.md").read_text(encoding="utf-8") == "mine"


def test_a_worksheet_is_not_written_beside_a_homework_that_is_there(here: Path):
    (here / "costs-homework.md").write_text("mine", encoding="utf-8")
    assert "costs-homework.md is there already" in run("new", "costs", "--kind", "worksheet", status=2).output
    assert not (here / "costs.md").exists()


def test_a_name_that_is_no_markdown_file_is_refused(here: Path):
    assert "a.txt is no name of a Markdown file\nhint: for instance a.md" in run("new", "a.txt", status=2).output
    assert "'a b' is no name for a homework" in run("new", "a b.md", status=2).output
    assert not list(here.iterdir())


# -- what is not installed --------------------------------------------------------------------------------


def test_a_hint_installs_the_libraries_themselves():
    """symcomm may come from a clone, so no hint names it as a package of an index."""
    told = RenderError.lacking("qr", "no picture of a code")
    assert isinstance(told, RenderError)
    assert str(told) == 'no picture of a code\nhint: pip install "segno<2,>=1.6"'


def test_a_hint_without_an_installation_names_the_folder(monkeypatch: pytest.MonkeyPatch):
    def requires(name: str) -> list[str]:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.requires", requires)
    assert SymcommError.lacking("qr", "x").hint == "pip install '.[qr]' in the folder of symcomm"


# -- an engineer's first search ---------------------------------------------------------------------------


def test_a_whole_model_is_searched_on_nodes_with_shapes_of_one_tensor_rank():
    """An axis of one rank fills no node: the time is the one that the strategy itself takes."""
    model = sc.load({"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
                     "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 128,
                     "max_position_embeddings": 32})  # fmt: skip
    found = sc.search(model, devices=16, device="DGX-H100", capacity_is="nominal_GB", batch=16, sizes={"L": "32"},
                      strategies=["data + tensor"], microbatches="1", recomputation=["none"], jobs=1)  # fmt: skip
    assert {"data(16)", "data(4) + tensor(4)"} <= {str(one.strategy) for one in found.top}
    for one in found.top:
        step = model.step_time(one.strategy, device="DGX-H100", accounting=one.accounting)
        assert step.at(B=16, L=32) == one.time
