"""The site: its links, the pages that follow from registries, and a build without warnings where Sphinx is there."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from api import ALGORITHMS, ARCHITECTURES, MISTAKES, known_devices, main

import symcomm

ROOT = Path(__file__).parents[2]


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"site_{name}", ROOT / "site" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


BUILD, REFERENCE = script("build"), script("reference")


@pytest.mark.parametrize(
    ("home", "text", "made"),
    [
        ("docs/time.md", "[s](search.md#clusters)", "[s](find-a-strategy.md#clusters)"),
        ("docs/tutorials/first-homework.md", "[t](../tables.md)", "[t](../tables.md)"),
        ("docs/search.md", "[the example](../examples/search/gpt3.md)", "the example (`examples/search/gpt3.md`)"),
        ("docs/limits.md", "[SECURITY.md](../SECURITY.md)", "`SECURITY.md`"),
        ("CHANGELOG.md", "[exports](docs/exports.md)", "[exports](exports.md)"),
        ("docs/time.md", "[x](https://example.org/a.md)", "[x](https://example.org/a.md)"),
    ],
)
def test_a_link_leads_to_a_page_of_the_site_or_names_the_file(home: str, text: str, made: str):
    assert BUILD.linked(text, ROOT / home) == made


def test_the_reference_has_every_row_of_its_registries():
    pages = REFERENCE.reference()
    for name in ARCHITECTURES:
        assert f"| {name} |" in pages["architectures"]
    for one in MISTAKES:
        assert f"| {one.name} |" in pages["mistakes"]
    for one in known_devices().values():
        assert f"| `{one.name}` | {one.memory.nominal} GB, " in pages["devices"]
    assert "| `nf4` | `int4(64 fp8(256 fp32))` |" in pages["formats"]
    for name in ALGORITHMS:
        assert f"| `{name}` |" in pages["strategies"]
    for name in main.commands:
        assert f"## symcomm {name}\n" in pages["commands"]
    for name in symcomm.__all__:
        assert name == "__version__" or f"## sc.{name}\n" in pages["names"]


def test_a_docstring_is_prose_with_its_examples_as_code():
    page = REFERENCE._docstring("Gives ``x`` of a_b.\n\n>>> 1 + 1\n2\n\nA list:\n\n    kept  as it is")
    assert page == "Gives `x` of a\\_b.\n\n```pycon\n>>> 1 + 1\n2\n```\n\n```text\nA list:\n\n    kept  as it is\n```"


def test_every_page_of_docs_is_in_the_menu():
    menu = (ROOT / "site" / "index.md").read_text(encoding="utf-8").splitlines()
    for path in (ROOT / "docs").rglob("*.md"):
        name = path.relative_to(ROOT / "docs").with_name(BUILD.RENAMED.get(path.name, path.name)).with_suffix("")
        assert name.as_posix() in menu


def test_the_gallery_has_every_document_that_asks_something():
    names = {path.relative_to(ROOT).as_posix() for path in BUILD.documents("all")}
    assert "examples/midterm/midterm.md" in names
    assert "examples/own-worksheet/checkpoints.md" not in names  # a worksheet asks nothing
    assert BUILD.documents("none") == []


@pytest.mark.parametrize("path", BUILD.documents("all"), ids=lambda path: path.stem)
def test_the_source_beside_a_document_does_not_end_the_box_around_it(path: Path):
    source = path.read_text(encoding="utf-8")
    page = BUILD.beside("a", "A", source)
    code, inside = re.search(r"^(`+)markdown\n(.*?)^\1\n", page, re.MULTILINE | re.DOTALL).groups()
    fence = re.search(r"^(:+){grid-item}", page, re.MULTILINE)[1]
    assert inside == f"{source}\n"
    assert code not in source
    assert fence not in source


def test_the_site_is_built_without_a_warning_and_loads_nothing_from_elsewhere(tmp_path: Path):
    for library in ("sphinx", "myst_parser", "furo", "sphinx_design", "latex2mathml"):
        pytest.importorskip(library, reason="pip install '.[site]'")
    command = [sys.executable, str(ROOT / "site" / "build.py"), "--gallery", "none", "-o", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert (done.returncode, done.stderr) == (0, "")
    page = (tmp_path / "explanation" / "idea.html").read_text(encoding="utf-8")
    assert "<math" in page
    for one in tmp_path.rglob("*.html"):
        text = one.read_text(encoding="utf-8")
        assert 'src="http' not in text
        assert '<link rel="stylesheet" type="text/css" href="http' not in text
