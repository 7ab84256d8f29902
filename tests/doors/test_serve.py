"""``symcomm serve``: the folder of the page, what is told where it cannot be built, and how it is served."""

import gzip
import importlib.util
import io
import json
import socket
import tarfile
import threading
import urllib.error
import urllib.request
from pathlib import Path
from types import ModuleType

import pytest
from api import TEMPLATES, main, page_build, server
from click.testing import CliRunner

ROOT = Path(__file__).parents[2]
RUNTIME = ("pyodide.asm.wasm", "pyodide.asm.mjs", "pyodide.mjs", "pyodide-lock.json", "python_stdlib.zip")


def told(*arguments: str, status: int = 2) -> str:
    result = CliRunner().invoke(main, ["serve", *arguments], catch_exceptions=False)
    assert result.exit_code == status, result.output
    return result.output


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an archive named as Pyodide's, and a Node that only writes its last file."""
    monkeypatch.chdir(tmp_path)
    with tarfile.open(tmp_path / "runtime.tgz", "w:gz") as out:
        for name, data in {"package.json": b'{"version": "314.0.7"}', **dict.fromkeys(RUNTIME, b"-")}.items():
            entry = tarfile.TarInfo(f"package/{name}")
            entry.size = len(data)
            out.addfile(entry, io.BytesIO(data))
    (tmp_path / "bin").mkdir()
    node = tmp_path / "bin" / "node"
    node.write_text('#!/bin/sh\nset -e\ntest -s "$3"\necho kept > "$2/memory.bin"\n', encoding="utf-8")
    node.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/bin:/usr/bin")
    return tmp_path


def test_the_page_is_built_once_and_another_homework_needs_neither_node_nor_internet(
    here: Path, monkeypatch: pytest.MonkeyPatch
):
    assert told("--build", "-o", "page", "--runtime", "runtime.tgz", status=0).endswith("page/index.html\n")
    page = here / "page"
    assert {path.name for path in (page / "py").iterdir() if path.suffix != ".gz"} == set(RUNTIME)
    for name in ("page.mjs", "worker.mjs", "words.mjs", "plot.mjs", "page.css", "answers.py", "memory.bin"):
        assert (page / name).is_file()
    assert not (page / "build.mjs").exists()
    monkeypatch.setenv("PATH", "")
    folder = ROOT / "examples" / "own-worksheet"
    page_build(page, folder / "homework.md")
    shipped = json.loads((page / "questions.json").read_text(encoding="utf-8"))
    assert [*shipped] == ["homework.md", "checkpoints.md", "cost.md"]
    assert shipped["cost.md"] == (folder / "cost.md").read_text(encoding="utf-8")


def test_a_build_that_failed_is_done_again(here: Path):
    node = here / "bin" / "node"
    works = node.read_text(encoding="utf-8")
    node.write_text("#!/bin/sh\necho 'Error: no memory' >&2\nexit 1\n", encoding="utf-8")
    assert "error: node failed: Error: no memory" in told("--build", "-o", "page", "--runtime", "runtime.tgz")
    node.write_text(works, encoding="utf-8")
    told("--build", "-o", "page", "--runtime", "runtime.tgz", status=0)
    assert (here / "page" / "memory.bin").is_file()


def test_what_is_missing_is_told_with_a_way_out(here: Path, monkeypatch: pytest.MonkeyPatch):
    (here / "notes.md").write_text("# Notes\n", encoding="utf-8")
    assert "error: notes.md asks no question\nhint: `symcomm new homework.md`" in told("notes.md")
    (here / "other.tgz").write_bytes(b"no archive")
    assert "error: other.tgz is not Pyodide 314.0.7\nhint: npm pack pyodide@314.0.7" in told("--runtime", "other.tgz")
    monkeypatch.setenv("PATH", "")
    assert "error: npm is missing: the page is built once with Node.js 20" in told("--build", "-o", "new")
    assert "error: node is missing" in told("--build", "-o", "new", "--runtime", "runtime.tgz")
    assert not (here / "new" / "built.json").exists()


def test_a_folder_that_cannot_be_written_or_has_another_page_is_told_and_kept(here: Path):
    (here / "file").write_text("mine", encoding="utf-8")
    for output in ("file", "file/page"):
        told_so = told("--build", "-o", output, "--runtime", "runtime.tgz")
        assert f"error: {output} cannot be written: Not a directory\nhint: name a folder with -o" in told_so
    (here / "own").mkdir()
    (here / "own" / "index.html").write_text("mine", encoding="utf-8")
    said = told("--build", "-o", "own", "--runtime", "runtime.tgz")
    assert "error: own has another index.html, which stays as it is\nhint: name a new folder with -o" in said
    assert [path.name for path in (here / "own").iterdir()] == ["index.html"]
    assert (here / "own" / "index.html").read_text(encoding="utf-8") == "mine"


def test_a_page_whose_last_file_was_half_written_is_built_again(here: Path):
    told("--build", "-o", "page", "--runtime", "runtime.tgz", status=0)
    (here / "page" / "built.json").write_text('{"runti', encoding="utf-8")
    told("--build", "-o", "page", "--runtime", "runtime.tgz", status=0)
    assert json.loads((here / "page" / "built.json").read_text(encoding="utf-8"))["runtime"]


def test_a_question_file_that_is_not_there_is_broken_or_too_large_is_told(here: Path):
    assert "File 'none/homework.md' does not exist" in told("none/homework.md")
    (here / "big.md").write_bytes(b"x" * 10**7)
    assert "error: big.md has 10.0 MB; at most 2 MB are read" in told("big.md", "--build")
    (here / "bad.md").write_text("```symcomm\nask: nonsense\n```\n", encoding="utf-8")
    assert "error: bad.md:2: unknown quantity 'nonsense'" in told("bad.md", "--build")
    assert not (here / "symcomm-page").exists()


def test_it_serves_this_computer_alone_with_a_policy(here: Path):
    told("--build", "-o", "page", "--runtime", "runtime.tgz", status=0)
    with server(here / "page", 0) as running:
        assert running.server_address[0] == "127.0.0.1"
        threading.Thread(target=running.serve_forever, daemon=True).start()
        home = f"http://127.0.0.1:{running.server_port}"
        for name, kind in (
            ("", "text/html"),
            ("page.mjs", "text/javascript"),
            ("py/pyodide.asm.wasm", "application/wasm"),
        ):
            with urllib.request.urlopen(f"{home}/{name}") as answer:
                assert answer.headers["Content-Type"] == kind
                policy = answer.headers["Content-Security-Policy"]
        packed = urllib.request.Request(f"{home}/py/pyodide.mjs", headers={"Accept-Encoding": "gzip"})
        with urllib.request.urlopen(packed) as answer:
            assert answer.headers["Content-Type"] == "text/javascript"
            assert answer.headers["Content-Encoding"] == "gzip"
            assert gzip.decompress(answer.read()) == b"-"
        assert "default-src 'none'" in policy
        assert "http" not in policy
        for outside in ("py/", "../runtime.tgz", "%2e%2e/runtime.tgz"):
            with pytest.raises(urllib.error.HTTPError, match="404"):
                urllib.request.urlopen(f"{home}/{outside}")
        running.shutdown()


def test_a_port_that_is_taken_is_told(here: Path):
    told("--build", "-o", "page", "--runtime", "runtime.tgz", status=0)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert f"error: port {port} is taken\nhint: --port 0" in told("-o", "page", "--port", port)


def test_no_file_of_the_page_names_another_host():
    for path in (TEMPLATES / "page").iterdir():
        if path.is_file():
            text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
            assert "http://" not in text, path
            assert "https://" not in text, path


# -- what the page asks -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def answers() -> ModuleType:
    spec = importlib.util.spec_from_file_location("page_answers", TEMPLATES / "page" / "answers.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def called(answers: ModuleType, name: str, *arguments: object) -> object:
    return json.loads(answers.call(name, json.dumps(arguments)))


@pytest.fixture(scope="module")
def desk(answers: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    page = tmp_path_factory.mktemp("page")
    CliRunner().invoke(main, ["new", str(page / "homework.md")])
    assert called(answers, "open", str(page / "homework.md"))[0]["name"] == "1.1"
    return answers


def test_a_question_is_shown_in_its_words_with_what_is_given(desk: ModuleType):
    one, two = desk.DESK[0].questions()
    assert one["words"] == "1.1 How many bytes does an all-reduce add up over 8 GPUs in data parallelism?"
    assert one["given"] == "N = 24, D = 2048, B = 8, L = 1024"
    assert two["words"].startswith("1.2 ")


@pytest.mark.parametrize(
    ("language", "says"),
    [("en", "You counted elements"), ("de", "Hier sind Elemente gezählt"), ("zh", "这里数的是元素")],
)
def test_a_mistake_is_named_in_the_language_of_the_page_and_the_answer_is_not(
    desk: ModuleType, language: str, says: str
):
    found = called(desk, "check", "1.1", "8 N D^2", language)
    assert found["verdict"] == "mistake"
    assert found["says"][0].startswith(says)
    assert {"16", "1.611", "1,611", "1 610 612 736"}.isdisjoint(json.dumps(found))
    assert set(found) == {"verdict", "says", "hint", "read"}


def test_choosing_a_question_derives_its_mistakes_before_an_answer_is_typed(desk: ModuleType):
    assert called(desk, "warm", "1.2") == "different"
    assert "singles" in vars(desk.DESK[0].key("1.2").candidates)


def test_a_german_number_has_a_comma(desk: ModuleType):
    assert called(desk, "check", "1.1", "1,611 GB", "de")["verdict"] == "right"
    assert "<mtext>GB</mtext>" in called(desk, "check", "1.1", "1,611 GB", "de")["read"]
    assert called(desk, "check", "1.1", "1,611 GB", "en")["verdict"] == "unreadable"


TABLE = "| Computation | Input | Output |\n|---|---|---|\n| y = xW | x [B, D], W [D, F] | y [B, F] |\n"


def test_sliders_set_the_numbers_of_a_derivation(desk: ModuleType):
    """D F weights of 2 bytes: 2 · 100 · 300."""
    made = called(desk, "derive", TABLE, "communication", "data(k)", "en")
    assert [one["name"] for one in made["symbols"]] == ["D", "F"]
    assert made["symbols"][0]["places"][:3] == ["1", "2", "4"]
    found = called(desk, "at", {"D": "100", "F": "300"}, "D", ["100", "200"], "en")
    assert [point["y"] for point in found["points"]] == [60000, 120000]
    assert found["y"] == 60000
    assert "60\u202f000" in found["number"]


def test_a_number_that_breaks_a_rule_is_told_and_left_out_of_the_plot(desk: ModuleType):
    called(desk, "derive", TABLE, "communication", "data(k)", "en")
    assert called(desk, "at", {"D": "100", "F": "many"}, "D", [], "en")["error"].startswith("'many' is no number for F")
    found = called(desk, "at", {"D": "-4", "F": "3"}, "D", ["-4", "4"], "en")
    assert found["why"]
    assert "number" not in found
    assert [point["x"] for point in found["points"]] == [4]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [((TABLE, "communication", "tensro(8)"), "tensor"), (("{", "flops", ""), "this is no JSON"),
     (("nothing", "flops", ""), "table"), ((TABLE, "peak_memory", ""), "the page does not derive 'peak_memory'"),
     (("[" * 50_000, "flops", ""), "table"), (('{"a":' * 50_000, "flops", ""), "nested too deep")],
)  # fmt: skip
def test_what_cannot_be_derived_is_told(desk: ModuleType, arguments: tuple[str, ...], says: str):
    assert says in called(desk, "derive", *arguments, "en")["error"]


def test_a_derivation_is_told_in_german(desk: ModuleType):
    made = called(desk, "derive", TABLE, "communication", "data(8)", "de")["html"]
    assert "Konvention" in made
    assert "convention" not in made.lower().replace("konvention", "")


def test_an_unreadable_question_file_is_told(answers: ModuleType, tmp_path: Path):
    before = list(answers.DESK)
    (tmp_path / "bad.md").write_text("---\nlanguage: [\n---\n", encoding="utf-8")
    assert "bad.md" in called(answers, "open", str(tmp_path / "bad.md"))["error"]
    assert before == answers.DESK
