"""The command line: what it prints, what it writes, and how it ends."""

import gc
import json
import re
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from api import QUANTITIES, main
from click.testing import CliRunner, Result

import symcomm

ROOT = Path(__file__).parents[1]
HOMEWORK = str(ROOT / "examples" / "comp4901y-homework2" / "homework.md")
TABLE = r"""| Computation | Input | Output |
|---|---|---|
| $Y = XW$ | $X \in \mathbb{R}^{B \times D}, W \in \mathbb{R}^{D \times K}$ | $Y \in \mathbb{R}^{B \times K}$ |
"""


def run(*arguments: str, status: int = 0) -> Result:
    result = CliRunner().invoke(main, [*arguments], catch_exceptions=False)
    assert result.exit_code == status, result.output
    return result


@pytest.fixture
def table(tmp_path: Path) -> str:
    path = tmp_path / "table.md"
    path.write_text(TABLE, encoding="utf-8")
    return str(path)


# -- derive ---------------------------------------------------------------------------------------------


def test_derive_prints_the_steps_and_the_exact_number():
    shown = run(
        "derive", "communication", "--model", HOMEWORK, "--strategy", "data", "--at", "N_layer=32,D=4096"
    ).output
    assert "24·N_layer·D²" in shown
    assert "12 884 901 888 B = 12 GiB ≈ 12.88 GB" in shown


def test_derive_is_brief_and_fits_the_terminal_and_has_every_step_on_request(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "72")
    command = ("derive", "communication", "--model", HOMEWORK, "--strategy", "tensor(8)")
    brief, full = run(*command).output, run(*command, "--detail", "full").output
    assert "V = 8·N_layer·B·L·D" in brief
    assert "conventions: communication payload, input_gradient needed" in brief
    assert brief.count("AllReduce") == 4
    assert "Collect equal terms." not in brief
    assert max(map(len, brief.splitlines())) <= 72
    assert full.count("Collect equal terms.") == 5


def test_derive_is_brief_and_says_what_each_line_is_worth_in_its_unit(tmp_path: Path):
    config = {"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
              "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
              "torch_dtype": "bfloat16", "architectures": ["LlamaForCausalLM"]}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    asked = ("--model", str(tmp_path / "config.json"), "--at", "B=1")
    request = ("derive", "request_latency", *asked, "--prompt", "1000", "--tokens", "200", "--device", "H100-SXM")
    shown = run(*request, "--accounting", "weights_and_cache").output
    # A prompt of 1000 tokens meets 218,103,808 numbers in each of 32 layers and itself, and the head once.
    products = 2 * (1000 * 32 * (218103808 + 2 * 4096 * 1000) + 128256 * 4096)
    assert f" ≈ {products / 989.4e12 * 1000:.2f} ms\n" in shown
    capacity = ("derive", "serving_capacity", *asked[:2], "--capacity", "80 GB", "--tokens", "8192")
    shown = run(*capacity, "--accounting", "nominal_GB").output
    assert "  M_device = 80 GB\n" in shown


def test_a_hint_of_a_quantity_names_its_options_as_they_are_typed(table: str):
    asked = run("derive", "capacity", "--model", table, "--solve-for", "B", "--capacity", "80 GB", status=2)
    assert "hint: say --capacity-is nominal_GB (10^9), nominal_GiB (2^30) or usable" in asked.output


def test_derive_as_json_gives_exact_numbers_as_text_with_units_and_steps(table: str):
    made = json.loads(run("derive", "intensity", "--model", table, "--at", "B=32,D=4096,K=32", "--to", "json").output)
    assert made["format"] == 1
    assert made["value"]["exact"] == "4096/257"
    assert (made["unit"], made["needs"]) == ("FLOP/B", [])
    assert made["given"] == {"B": "32", "D": "4096", "K": "32"}
    assert {"name", "relation", "form", "latex", "unit", "reason"} <= set(made["steps"][0])
    assert made["steps"][0]["reason"]["source"]["line"] == 3


def test_derive_without_all_numbers_says_in_json_which_are_missing(table: str):
    made = json.loads(run("derive", "flops", "--model", table, "--at", "B=2", "--to", "json").output)
    assert made["value"] is None
    assert sorted(made["needs"]) == ["D", "K"]
    assert made["expression"] == "2*B*D*K"


@pytest.mark.parametrize("form", ["text", "latex", "markdown", "html"])
def test_derive_writes_each_form_to_a_file(table: str, tmp_path: Path, form: str):
    target = tmp_path / "new" / "answer"
    run("derive", "flops", "--model", table, "--to", form, "-o", str(target))
    assert "2" in target.read_text(encoding="utf-8")
    assert [p.name for p in target.parent.iterdir()] == ["answer"]  # no half-written file beside it


def test_a_pass_without_a_model_takes_its_options_with_units():
    shown = run("derive", "peak_rate", "--set", "clock=1.41 GHz", "--set", "units=108", "--set", "fma=512").output
    assert "≈ 155.9 TFLOP/s" in shown


def test_a_number_that_is_not_read_and_a_symbol_of_another_question_have_a_hint():
    told = run("derive", "serving_cost", "--devices", "8K", status=2).output
    assert told == "error: 'devices' must be a whole number or a symbol, but is '8K'\nhint: --devices 8192\n"
    told = run("derive", "decode_pipeline_time", "--forward", "1 s, 2 s", "--at", "B=8", status=2).output
    assert told.endswith("has no symbol 'B'\nhint: numbers of several questions go in a mapping: at({...})\n")


def test_large_whole_numbers_are_read_with_an_exponent():
    sizes = ("--parameters", "8e9", "--tokens", "1.5e13")
    shown = run("derive", "training_run", *sizes, "--want", "flops").output
    assert "6·8 000 000 000·15 000 000 000 000\n    = 720·10²¹ FLOP" in shown
    told = run("derive", "training_run", "--parameters", "8.15e1", "--tokens", "1", "--want", "flops", status=2).output
    assert told.startswith("error: 'parameters' must be a whole number or a symbol, but is '8.15e1'\n")


def test_conventions_are_named_on_the_command_line_by_name_or_by_field():
    command = ("derive", "communication", "--model", HOMEWORK, "--strategy", "data(8)", "--to", "json", "--accounting")
    values = {name: json.loads(run(*command, name).output)["value"]["exact"] for name in ("payload", "all_links")}
    assert values == {"payload": str(12 * 2**30), "all_links": str(8 * 21 * 2**30)}
    assert json.loads(run(*command, "communication=sent_per_rank").output)["value"]["exact"] == str(21 * 2**30)


# -- show -----------------------------------------------------------------------------------------------


def test_show_prints_ops_totals_and_the_graph():
    shown = run("show", HOMEWORK).output
    assert "B × L × 4D" in shown
    assert "read as data: x; weights: W^Q, W^K, W^V, W^O, W^1, W^2" in shown
    assert "6 442 450 944 parameter" in shown
    assert "●─╯" in shown  # rails that join: scores and values
    assert "╭─ transformer × N_layer" in shown
    assert "→ x of the next transformer" in shown


def test_show_counts_each_op_as_loops_would(table: str):
    made = json.loads(run("show", table, "--to", "json").output)
    [op] = made["ops"]
    assert (op["row"], op["op"], op["kind"], op["shape"]) == (1, "Y", "matrix product", "B × K")
    assert (op["parameters"], op["flops"]) == ("D·K", "2·B·D·K")
    assert made["totals"]["flops"]["value"] is None


def test_show_draws_svg_that_is_well_formed_and_dot_with_every_op(tmp_path: Path):
    target = tmp_path / "graph.svg"
    run("show", HOMEWORK, "--to", "svg", "-o", str(target))
    words = "".join(ElementTree.parse(target).getroot().itertext())
    for name in ("softmax", "relu", "transformer"):
        assert name in words
    drawn = run("show", HOMEWORK, "--to", "dot").output
    assert drawn.startswith('digraph "transformer" {')
    # x feeds 3 projections, each is split (3), 2 into the scores, 2 on to the softmax, 2 into Z_i, then a chain of 5
    assert drawn.count("->") == 3 + 3 + 2 + 2 + 2 + 5


def test_names_with_markup_are_escaped_in_every_drawing(table: str, tmp_path: Path):
    path = tmp_path / "evil.md"
    path.write_text(TABLE + '\n```symcomm\nmodel: \'<script>alert("x")</script> & \\ "\'\n```\n', encoding="utf-8")
    svg = run("show", str(path), "--to", "svg").output
    assert "<script>" not in svg
    assert "&lt;script&gt;" in svg
    ElementTree.fromstring(svg.encode())
    assert r'digraph "<script>alert(\"x\")</script> & \\ \"" {' in run("show", str(path), "--to", "dot").output
    assert "<script>" in run("show", str(path)).output  # plain text is shown as it is


def test_show_reads_a_bare_table_and_the_repetition_from_the_command_line(table: str):
    Path(table).write_text(TABLE.replace("K", "D"), encoding="utf-8")  # a layer that can follow itself
    made = json.loads(run("show", table, "--repeat", "N", "--to", "json").output)
    assert (made["repeat"], made["totals"]["parameters"]["expression"]) == ("N", "D**2*N")


def test_show_asks_which_table_is_meant_where_there_are_several(tmp_path: Path):
    path = tmp_path / "two.md"
    path.write_text(TABLE + "\nand\n\n" + TABLE.replace("K", "M"), encoding="utf-8")
    assert "2 layer tables, in lines 1, 7" in run("show", str(path), status=2).stderr
    assert "D·M" in run("show", str(path), "--name", "2").output


# -- solve ----------------------------------------------------------------------------------------------


def test_solve_writes_each_format_and_prints_the_paths(tmp_path: Path):
    shown = run("solve", HOMEWORK, "--to", "md,tex,html", "-o", str(tmp_path / "out")).output
    names = sorted(path.name for path in (tmp_path / "out").iterdir() if "-figure-" not in path.name)
    assert names == ["homework.html", "homework.md", "homework.tex"]
    assert len(shown.splitlines()) == 3 + 2 * 4  # and the four pictures, for Markdown and for LaTeX
    assert "155.9" in (tmp_path / "out" / "homework.md").read_text(encoding="utf-8")


def test_solve_takes_several_files_and_refuses_two_of_one_name(tmp_path: Path):
    other = tmp_path / "zero.md"
    other.write_text("# A heading\n")
    files = (str(ROOT / "examples/zero-table/zero.md"), str(ROOT / "examples/layers/lora.md"))
    shown = run("solve", *files, "--to", "md", "-o", str(tmp_path / "out")).output
    assert [Path(line).name for line in shown.split() if line.endswith(".md")] == ["zero.md", "lora.md"]
    twice = run("solve", files[0], str(other), "-o", str(tmp_path / "out"), status=2)
    assert "two files are called zero, and so would their solutions" in twice.stderr


def test_help_names_no_exceptions_of_python():
    for name in ("communication", "einsum", "capacity", "collective_time", "measurement", "update_flops"):
        assert not re.search(r"Raises|Error'|>>>|sc\.|Fraction\(", run("derive", name, "--help").output), name


def test_solve_under_another_convention_changes_the_numbers(tmp_path: Path):
    run("solve", HOMEWORK, "--to", "md", "-o", str(tmp_path), "--accounting", "exact_adds,sent_per_rank", status=2)
    run("solve", HOMEWORK, "--to", "md", "-o", str(tmp_path), "--accounting", "mac")
    assert "77.97" in (tmp_path / "homework.md").read_text(encoding="utf-8")


# -- mistakes -------------------------------------------------------------------------------------------

MISTAKES = [
    (["derive", "flop"], "unknown quantity 'flop'", "did you mean 'flops'?"),
    (["derive", "flops"], "'flops' needs a model", "--model FILE"),
    (["derive", "flops", "--model", "none.md"], "there is no file none.md", ""),
    (["derive", "flops", "--model", HOMEWORK, "--strategy", "data"], "No such option", "--strategy"),
    (["derive", "flops", "--model", HOMEWORK, "--scope", "all"], "unknown scope 'all'", "forward"),
    (["derive", "flops", "--model", HOMEWORK, "--at", "D"], "--at: 'D' gives no value", "N_layer=32"),
    (["derive", "flops", "--model", HOMEWORK, "--at", "D=many"], "'many' is not a number", ""),
    (["derive", "flops", "--model", HOMEWORK, "--at", "D=0"], "--at: D is 0, which is not positive", ""),
    (["derive", "flops", "--model", HOMEWORK, "--at", "B=80 GB"], "B is given in B, but it is a number", "B: 8"),
    (["derive", "buckets", "--at", "s=5 s"], "s is given in s, but it is in B", "write it in B"),
    (["derive", "flops", "--model", HOMEWORK, "--at", "D=1,D=2"], "--at: D is given twice, as 1 and as 2", ""),
    (["derive", "flops", "--model", HOMEWORK, "--accounting", "fma3"], "unknown convention 'fma3'", "fma2"),
    (["derive", "flops", "--model", HOMEWORK, "--name", "transfomer"], "has no model 'transfomer'", "transformer"),
    (["derive", "flops", "--model", HOMEWORK, "--set", "op"], "--set: 'op' gives no value", "NAME=VALUE"),
    (["derive", "communication", "--model", HOMEWORK, "--strategy", "dta"], "unknown strategy 'dta'", "data"),
    (["show", "none.md"], "there is no file none.md", ""),
    (["show", "x" * 300], "cannot be read: File name too long", ""),
]


@pytest.mark.parametrize(("command", "said", "hint"), MISTAKES, ids=[m[1] for m in MISTAKES])
def test_a_mistake_ends_with_status_2_and_a_message_without_a_traceback(command: list[str], said: str, hint: str):
    result = run(*command, status=2)
    assert said in result.stderr
    assert hint in result.stderr
    assert "Traceback" not in result.output
    assert result.stdout == ""


def test_a_table_of_headings_alone_is_shown_as_it_is(tmp_path: Path):
    path = tmp_path / "empty.md"
    ask = "\n```symcomm\n- model: a\n- ask: parameters\n```\n"
    path.write_text("| Computation | Input | Output |\n|---|---|---|\n\nWords\n\n" + TABLE + ask, encoding="utf-8")
    run("solve", str(path), "--to", "md,tex", "-o", str(tmp_path / "out"))
    assert (tmp_path / "out" / "empty.md").read_text(encoding="utf-8").count("Computation") == 2


def test_nothing_is_written_for_bad_input(tmp_path: Path):
    path = tmp_path / "bad.md"
    path.write_text(TABLE + "\n```symcomm\nmodel: a\nrepeet: N\n```\n", encoding="utf-8")
    before = sorted(tmp_path.rglob("*"))
    result = run("solve", str(path), "--to", "md", "-o", str(tmp_path / "out"), status=2)
    assert f"{path}:7: unknown key 'repeet' in this model" in result.stderr
    assert "    repeet: N\n    ^^^^^^" in result.stderr
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("command", [["derive", "parameters", "--model"], ["show"], ["show", "--to", "json"]])
def test_the_file_of_the_model_is_never_overwritten(table: str, command: list[str]):
    result = run(*command, table, "-o", table, status=2)
    assert "is the file of the model, which would be overwritten" in result.stderr
    assert "hint: choose another name" in result.stderr
    assert Path(table).read_text(encoding="utf-8") == TABLE


def test_an_unknown_format_is_refused_before_anything_is_read():
    assert "unknown format 'pfd'" in run("solve", "none.md", "--to", "pfd", status=2).stderr


def test_a_bug_says_that_it_is_one_and_how_to_see_the_traceback(table: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("symcomm.exams.problems.solve.load_model", lambda *_, **__: 1 / 0)
    result = run("show", table, status=1)
    assert "internal error: ZeroDivisionError: division by zero" in result.stderr
    assert "This is a bug in symcomm" in result.stderr
    assert "--debug" in result.stderr
    with pytest.raises(ZeroDivisionError):
        CliRunner().invoke(main, ["--debug", "show", table], catch_exceptions=False)


# -- the command itself ---------------------------------------------------------------------------------


def test_help_imports_nothing_heavy():
    code = (
        "import sys; sys.argv = ['symcomm', '--help']\n"
        "try:\n    from symcomm.cli import main; main()\nexcept SystemExit: pass\n"
        "print([m for m in ('sympy', 'rich', 'jinja2', 'networkx', 'lark', 'yaml') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("command", ["solve", "derive", "quantities", "schema", "show", "completion"])
def test_every_command_has_help_with_its_options_explained(command: str):
    shown = run(command, "--help").output
    assert "Usage:" in shown
    assert "TODO" not in shown


def test_the_command_quantities_lists_every_quantity_and_the_options_of_one():
    listed = run("quantities").output
    assert re.findall(r"^  (\w+)", listed, re.MULTILINE) == [*QUANTITIES]
    assert run("passes").output == listed
    told = " ".join(run("quantities", "communication").output.split())
    assert "only calls of this kind (one of all-reduce, all-gather, reduce-scatter, all-to-all, ring-pass, " in told
    assert [one["name"] for one in json.loads(run("quantities", "--json").output)] == [*QUANTITIES]
    assert "only the ones that one token uses" in run("quantities", "parameters").output
    wrong = run("quantities", "comunication", status=2)
    assert "error: unknown quantity 'comunication'" in wrong.output
    assert "hint: did you mean 'communication'" in wrong.output


def test_the_version_is_that_of_the_project():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert run("--version").output == f"symcomm, version {version}\n"
    assert symcomm.__version__ == version


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_the_shell(shell: str):
    assert "_SYMCOMM_COMPLETE" in run("completion", shell).output


def test_the_module_runs_as_the_command():
    done = subprocess.run([sys.executable, "-m", "symcomm", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("symcomm, version")


def test_a_command_ends_without_a_last_look_for_garbage(table: str):
    """Python looks through all objects once more when it ends, which takes a tenth of a short command's time."""
    gc.unfreeze()
    run("derive", "parameters", "--model", table)
    assert gc.get_freeze_count() > 0


def test_output_into_a_closed_pipe_is_no_bug():
    command = f"'{sys.executable}' -m symcomm show '{HOMEWORK}' --to json | head -c 10"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert done.stderr == ""
