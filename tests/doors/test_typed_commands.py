"""The commands that pages and helps type: each exists, and those of the other pages run beside the examples."""

import json
import re
import shlex
from pathlib import Path

import click
import pytest
import shown
from api import QUANTITIES, DocumentError, ValuesError, main
from click.testing import CliRunner

import symcomm as sc

ALL = [shown.ROOT / "README.md", *sorted((shown.ROOT / "docs").rglob("*.md"))]
PAGES = [page for page in ALL if page not in shown.pages()]  # test_front_door runs the others
_FENCED = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^symcomm (.*)", re.MULTILINE)
_EXAMPLE = re.compile(r"^ *symcomm (.*)", re.MULTILINE)
_INLINE = re.compile(r"`symcomm ([^`]+)`")

# What a fresh machine cannot run. The words and options of these are read all the same.
LACKING = {
    "verify": "needs PyTorch; tests/verification runs strategies",
    "measure": "needs PyTorch, and takes minutes",
    "serve": "needs Node.js and the internet, and serves until it is ended",
}
NO_COMMAND_OF_OURS = {"python scripts/check.py"}  # needs PyTorch; tests/verification runs the scripts
SLOW = {"exams", "exports", "search"}  # 40 students of a midterm, six exports of it, two searches


def typed(text: str) -> list[list[str]]:
    """The words of each command in the blocks of a page."""
    return [words_of(line) for line in _COMMAND.findall(_code(text))]


def _code(text: str) -> str:
    return "".join(_FENCED.findall(text)).replace("\\\n", "")


def words_of(line: str) -> list[str]:
    """The words behind ``symcomm``, without a remark and without the file that takes the output."""
    words = shlex.split(line, comments=True)
    return words[: next((n for n, word in enumerate(words) if word.startswith(">")), None)]


def read(words: list[str]) -> None:
    """Reads a command line as click does, down to the command that would run, and runs nothing."""
    command: click.Command | None = main
    context: click.Context | None = None
    try:
        while command is not None:
            context = command.make_context(command.name, [*words], parent=context)
            words = [*context._protected_args, *context.args]
            if not isinstance(command, click.Group) or not words:
                return
            _, command, words = command.resolve_command(context, words)
    except click.exceptions.Exit:  # --help
        return
    except DocumentError as wrong:  # a worksheet is read to know its options
        if not str(wrong).startswith("there is no file"):
            raise
    except click.BadParameter as wrong:  # a file that is not here
        if isinstance(wrong, click.MissingParameter) or not isinstance(wrong.param.type, click.Path):
            raise


@pytest.mark.parametrize("page", ALL, ids=lambda page: page.stem)
def test_a_command_that_a_page_types_and_its_options_exist(page: Path):
    text = page.read_text(encoding="utf-8")
    for words in typed(text):
        read(words)
    for line in _INLINE.findall(text):
        line = re.sub(r"^derive (QUANTITY|\.\.\.)", "derive communication", line).replace("...", "")
        try:
            read(shlex.split(line.strip("[]")))
        except (click.MissingParameter, click.exceptions.NoArgsIsHelpError):
            continue  # prose may name a command alone


@pytest.mark.parametrize("name", main.commands)
def test_an_example_in_the_help_of_a_command_exists(name: str):
    for line in _EXAMPLE.findall(main.commands[name].help or ""):
        read(words_of(line))


@pytest.mark.few(3)
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.long if page.stem in SLOW else (), id=page.stem)
        for page in PAGES
        if any(words[0] not in LACKING for words in typed(page.read_text(encoding="utf-8")))
    ],
)
def test_the_commands_of_a_page_run_as_they_are_typed(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "examples").symlink_to(shown.ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    for words in typed(page.read_text(encoding="utf-8")):
        if words[0] not in LACKING:
            shown.run(words)


def test_what_is_not_run_stands_on_a_page_and_nothing_else_is_left_out():
    """A command that no page types any more needs no reason; a block of another name would be read by no test."""
    texts = [page.read_text(encoding="utf-8") for page in PAGES]
    assert not [text for text in texts if re.search(r"^ *```(bash|shell|console)|^ +```sh", text, re.MULTILINE)]
    lines = {line for text in texts for line in _code(text).splitlines()}
    assert {line for line in lines if not line.startswith("symcomm ")} == NO_COMMAND_OF_OURS
    first = {words[0] for text in texts for words in typed(text)}
    assert first >= LACKING.keys()
    assert {page.stem for page in PAGES} >= SLOW


@pytest.mark.parametrize("name", [*QUANTITIES])
def test_no_option_of_a_quantity_is_on_its_command_twice(name: str) -> None:
    command = main.get_command(click.Context(main), "derive").get_command(click.Context(main), name)  # type: ignore[attr-defined, union-attr]
    flags = [flag for option in command.params for flag in option.opts]
    assert len(flags) == len({*flags})


def test_a_decode_step_takes_its_past_and_tells_what_a_number_lacks(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
    config.write_text(json.dumps({"model_type": "llama", "vocab_size": 128, **sizes}))
    asked = ["derive", "decode_time", "--model", str(config), "--device", "H100-SXM", "--past", "100"]
    found = CliRunner().invoke(main, [*asked, "--at", "B=1"])
    assert found.exit_code == 0
    assert "≈" in found.stdout
    cache = CliRunner().invoke(main, ["derive", "kv_cache", "--model", str(config), "--at", "B=1,L=8"]).stdout
    assert "  A number needs a value of c." in cache


def test_letters_of_other_architectures_mean_nothing_to_a_model() -> None:
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
    model = sc.load({"model_type": "llama", "vocab_size": 128, **sizes})
    with pytest.raises(ValuesError, match="has no symbol 'E'") as refused:  # experts, of which it has none
        model.flops().at(B=1, L=8, E=8)
    assert "known: B, D, F, H, L, N_layer, V, n_H;" in refused.value.hint
