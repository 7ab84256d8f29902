"""A quantity is declared once: command line, problem files, methods, docs and schema say what its signature says."""

import ast
import importlib.util
import inspect
import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import jsonschema
import pytest
from api import (
    QUANTITIES,
    DeclaredQuantity,
    SymcommError,
    ValuesError,
    main,
    one_line_end,
    parse_problem,
    problem,
    schema,
)
from api import core_blocks as blocks
from api import problems_pieces as pieces
from click.testing import CliRunner
from generated import ROOT, expected

import symcomm as sc

TABLE = "Computation\tInput\tOutput\ny = xW\tx [B, D], W [D, F]\ty [B, F]\n"
DOCUMENT = "| Computation | Input | Output |\n|---|---|---|\n| y = xW | x [B, D], W [D, F] | y [B, F] |\n\n"


def one_layer() -> sc.Model:
    return sc.load(TABLE)


def asking(block: str) -> str:
    return f"{DOCUMENT}```symcomm\nmodel: product\n```\n\n```symcomm\n{block}\n```\n"


@pytest.mark.parametrize("path", expected(), ids=lambda path: path.name)
def test_what_is_written_from_the_declarations_is_up_to_date(path: Path):
    hint = "run: python tests/declared/generated.py"
    assert path.read_text(encoding="utf-8") == expected()[path], hint


def test_the_stub_of_the_methods_of_a_model_has_their_parameters():
    spec = importlib.util.spec_from_file_location("typed_methods", ROOT / "typed_methods.py")
    written = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(written)
    [described] = [node for node in ast.parse(written.stub()).body if isinstance(node, ast.ClassDef)]
    methods = {one.name: one.args for one in described.body}
    assert {*methods} == {*QUANTITIES}
    for name, given in methods.items():
        said = inspect.signature(getattr(sc.Model, name)).parameters.values()
        assert [a.arg for a in given.args] == [p.name for p in said if p.kind is p.POSITIONAL_OR_KEYWORD]
        assert [a.arg for a in given.kwonlyargs] == [p.name for p in said if p.kind is p.KEYWORD_ONLY]


@pytest.mark.parametrize("declared", QUANTITIES.values(), ids=lambda d: d.name)
def test_a_quantity_says_what_it_is_and_its_options_take_no_word_that_is_used(declared: DeclaredQuantity):
    assert re.fullmatch(r"[A-Z].{8,110}[^.]", declared.summary)
    names = [option.name for option in declared.options]
    assert len({*names}) == len(names)
    assert not {*names} & {
        *problem.ASKED,
        "name",
        "repeat",
        "batch",
        "set",
        "at",
        "to",
        "form",
        "output",
        "file",
        "settings",
    }
    for option in declared.options:
        assert option.meaning
        assert option.default in (None, "") or option.kind != "choice" or option.default in option.choices


@pytest.mark.few(4)
@pytest.mark.parametrize("name", QUANTITIES)
def test_each_place_knows_the_same_options(name: str):
    options = {option.name for option in QUANTITIES[name].options}
    parameters = inspect.signature(getattr(sc.Model, name)).parameters
    assert {*parameters} - {"self", "accounting"} == options
    command = main.commands["derive"].get_command(None, name)
    assert {p.name.removeprefix("option_") for p in command.params if p.name.startswith("option_")} == options
    asked = next(one for one in json.loads(json.dumps(schema.problem_schema()))["$defs"]["question"]["oneOf"]
                 if one["properties"]["ask"]["const"] == name)  # fmt: skip
    assert {*asked["properties"]} - {*problem.ASKED} == options


def test_a_method_has_the_signature_and_the_words_of_the_declaration():
    shown = str(inspect.signature(sc.Model.flops))
    assert shown == "(self, scope='forward', op=None, frozen=None, documents=None, *, accounting=None)"
    assert sc.Model.flops.__doc__.startswith("The floating-point operations of a pass")
    assert "scope: the pass that counts (one of forward, backward, training; forward unless told)" in (
        sc.Model.flops.__doc__
    )
    assert "communication" in dir(one_layer())
    assert one_layer().flops("training").expr == one_layer().derive("flops", scope="training").expr


REFUSED = [
    (lambda m: m.flops(scop="forward"), "'flops' has no option 'scop'\nhint: did you mean 'scope'"),
    (lambda m: m.parameters(op="y"), "'parameters' has no option 'op'\nhint: known: of"),
    (lambda m: m.flops("sideways"), "unknown scope 'sideways'\nhint: known: backward, forward, training"),
    (lambda m: m.communication(), "'communication' needs the option 'strategy'\nhint: how the model is parallelised"),
    (lambda m: m.state_memory(recipe="fp32_adan"), "unknown recipe 'fp32_adan'\nhint: did you mean 'fp32_adam'"),
    (lambda m: m.derive("flosp"), "'flosp' cannot be derived\nhint: did you mean 'flops'?"),
]  # fmt: skip


@pytest.mark.parametrize(("ask", "said"), REFUSED, ids=[said.partition("\n")[0] for _, said in REFUSED])
def test_a_slip_in_python_is_refused_with_what_there_is(ask, said: str):
    with pytest.raises(ValuesError) as caught:
        ask(one_layer())
    assert said in str(caught.value)


def test_an_argument_too_many_or_given_twice_is_told():
    says = r"flops: 5 values are too many\nhint: flops\(scope, op, frozen, documents\)"
    with pytest.raises(SymcommError, match=says):
        one_layer().flops("forward", "y", None, None, "z")
    with pytest.raises(SymcommError, match="flops: scope is given twice"):
        one_layer().flops("forward", scope="forward")


def test_a_required_option_left_out_of_a_document_is_told_where_it_is_asked():
    with pytest.raises(SymcommError) as caught:
        parse_problem(asking("ask: tensor_size"), "t.md")
    assert "t.md:10: 'tensor_size' needs the option 'tensor'" in str(caught.value)
    assert "hint: the name of the tensor" in str(caught.value)


def test_a_command_line_takes_the_options_of_its_quantity(tmp_path: Path):
    path = tmp_path / "table.tsv"
    path.write_text(TABLE, encoding="utf-8")
    asked = ["derive", "communication", "--model", str(path), "--strategy", "data(k)", "--at", "k=2,D=3,F=5"]
    answers = [
        CliRunner().invoke(main, [*asked, *more]).stdout
        for more in (["--gradient-dtype", "fp32"], ["--gradient_dtype", "fp32"], ["--set", "gradient_dtype=fp32"])
    ]
    assert answers[0] == answers[1] == answers[2]
    assert "60 B" in answers[0]
    missing = CliRunner().invoke(main, ["derive", "communication", "--model", str(path)])
    assert missing.exit_code == 2
    assert "'communication' needs the option 'strategy'" in missing.stderr


def test_the_capacity_counts_what_the_convention_of_recomputation_says():
    model = sc.load(ROOT / "examples" / "comp4901y-homework2" / "homework.md", "transformer")
    told, convention = (
        model.capacity("B", "80 GB", "nominal_GB", include="activations", **how).at(
            N_layer=32, D=4096, L=128, n_H=32, H=128).value
        for how in ({"recomputation": "full"}, {"accounting": "full_recomputation"})
    )  # fmt: skip
    # A layer keeps its input of B L D fp16 numbers: 32 layers, 80 GB.
    assert told == convention == 80 * 10**9 // (32 * 2 * 128 * 4096)


def test_telling_what_there_is_imports_no_sympy():
    for words in (["--help"], ["derive", "--help"]):
        code = (
            f"import sys; sys.argv = ['symcomm', *{words}]\n"
            "try:\n    from symcomm.cli import main; main()\nexcept SystemExit: pass\n"
            "print([m for m in ('sympy', 'networkx', 'yaml', 'symcomm.core.form') if m in sys.modules])"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.splitlines()[-1] == "[]"


DOUBLED = '''
from typing import Annotated, Literal

from symcomm.core.derivation import Derivation
from symcomm.core.form import num, product
from symcomm.core.quantities.declared import Meaning
from symcomm.core.setting import Setting, StepWriter
from symcomm.core.units import ONE


def derive(
    setting: Setting, tensor: Annotated[str, Meaning("the name of a tensor")],
    times: Annotated[Literal["two", "three"], Meaning("how many times")] = "two",
) -> Derivation:
    """The elements of a tensor, counted several times."""
    work = StepWriter(setting)
    count = product(num(2 if times == "two" else 3), setting.elements(tensor))
    work.define("n", count, ONE, "count", "Several times.")
    return setting.derivation("Elements", work.steps)
'''
ASKED = """
import json, sys
import symcomm.core.quantities
symcomm.core.quantities.__path__.append(sys.argv[1])
from click.testing import CliRunner
import symcomm as sc
from symcomm.cli import main
from symcomm.exams.problems.problem import parse_problem
from symcomm.exams.problems.schema import problem_schema
from symcomm.exams.problems.solve import solve

model = sc.load(sys.argv[2])
run = CliRunner().invoke(main, ["derive", "elements", "--model", sys.argv[2], "--tensor", "y", "--times", "three"])
document = parse_problem(open(sys.argv[3]).read())
print(json.dumps({
    "listed": "The elements of a tensor" in CliRunner().invoke(main, ["quantities"]).stdout,
    "command": run.stdout,
    "method": [str(model.elements("y").expr), sc.Model.elements.__doc__.splitlines()[0]],
    "document": [dict(ask.options) for ask in document.asks],
    "schema": next(q for q in problem_schema()["$defs"]["question"]["oneOf"]
                   if q["properties"]["ask"]["const"] == "elements")["required"],
}))
"""


SEVERAL = DOUBLED.replace("def derive(", "def derive_elements(") + "\n\n" + DOUBLED[DOUBLED.index("def derive("):]


@pytest.mark.parametrize(("file", "text"), [("elements.py", DOUBLED), ("other_elements.py", SEVERAL)])
def test_a_quantity_is_one_file_or_one_function_of_a_file(tmp_path: Path, file: str, text: str):
    """A file in a folder of its own is found by the command line, documents, methods and the schema."""
    (tmp_path / "extra").mkdir()
    (tmp_path / "extra" / file).write_text(text, encoding="utf-8")
    table, document = tmp_path / "table.tsv", tmp_path / "problem.md"
    table.write_text(TABLE, encoding="utf-8")
    document.write_text(asking("ask: elements\ntensor: y\ntimes: three"), encoding="utf-8")
    command = [sys.executable, "-c", ASKED, str(tmp_path), str(table), str(document)]
    told = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert told["listed"]
    assert "3" in told["command"]
    assert told["method"] == ["2*B*F", "The elements of a tensor, counted several times."]
    assert told["document"] == [{"tensor": "y", "times": "three"}]
    assert told["schema"] == ["ask", "tensor"]


# -- the schema -------------------------------------------------------------------------------------------

PAGES = [*sorted(ROOT.glob("examples/**/*.md")), *sorted(ROOT.glob("docs/*.md"))]


def found_in(text: str, name: str) -> list[tuple[str, object]]:
    """The front matter and the blocks of a text, as plain data."""
    text = one_line_end(text)
    front = pieces.front_matter(text, name)
    found = [("front_matter", blocks.read(*front).plain)] if front and front[0].strip() else []
    for piece in pieces.pieces(text, name):
        if isinstance(piece, pieces.BlockPiece):
            found.append(("block", blocks.read(piece.yaml, piece.source).plain))
    return [(kind, json.loads(json.dumps(value, default=float))) for kind, value in found]


@cache
def validator(kind: str) -> jsonschema.Draft202012Validator:
    whole = schema.problem_schema()
    if kind == "front_matter":
        whole |= {"anyOf": [{"$ref": "#/$defs/front_matter"}]}
    return jsonschema.Draft202012Validator(whole)


def problems_of(kind: str, value: object) -> list[str]:
    return [error.message for error in validator(kind).iter_errors(value)]


def test_the_schema_is_a_schema():
    jsonschema.Draft202012Validator.check_schema(schema.problem_schema())


@pytest.mark.few(18)
@pytest.mark.parametrize("page", PAGES, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_the_blocks_of_examples_and_pages_follow_the_schema(page: Path):
    text = page.read_text(encoding="utf-8")
    texts = (
        re.findall(r"^````markdown\n(.*?)^````", text, re.MULTILINE | re.DOTALL)
        if page.parent.name == "docs"
        else [text]
    )
    for one in texts:
        for kind, value in found_in(one, page.name):
            assert problems_of(kind, value) == [], value


BAD = [
    {"ask": "flosp"}, {"ask": "flops", "scop": "forward"}, {"ask": "flops", "scope": "sideways"},
    {"ask": "tensor_size"}, {"ask": "flops", "points": "many"}, {"ask": "flops", "accounting": "fma3"},
    {"ask": "flops", "accounting": {"flops": "fma3"}}, {"model": "m", "tabel": 1},
    {"figure": "minimum", "of": "buckets"}, {"figure": "minimum", "of": "buckets", "over": "n_b", "wnat": "least"},
    {"figure": "memory_timeline", "schedule": "1f1b"}, {"label": "nothing is asked"},
]  # fmt: skip


@pytest.mark.parametrize("block", BAD, ids=str)
def test_the_schema_refuses_what_the_reader_refuses(block: dict[str, object]):
    assert problems_of("block", block)
    with pytest.raises(SymcommError):
        parse_problem(asking(json.dumps(block)), "t.md")
