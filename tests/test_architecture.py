"""Data flows one way: each module imports only from lower floors. The public names and the docs are real."""

import ast
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import networkx as nx
import pytest

import symcomm

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "symcomm"

# The floor of each module or folder; the longest matching name counts.
FLOORS = {
    "symcomm.core": 0,
    "symcomm.core.errors": 0,
    "symcomm.core.units": 0,
    "symcomm.core.files": 0,
    "symcomm.core.doors": 0,
    "symcomm.core.garbage": 0,
    "symcomm.core.libraries": 0,
    "symcomm.core.records": 0,
    "symcomm.core.elimination": 0,
    "symcomm.core.sentences": 0,
    "symcomm.core.accounting": 0,
    "symcomm.core.patience": 1,
    "symcomm.core.notation": 1,
    "symcomm.core.form": 1,
    "symcomm.core.collected": 1,
    "symcomm.core.real_numbers": 1,
    "symcomm.core.irrational": 1,
    "symcomm.core.text": 1,
    "symcomm.core.identity": 2,
    "symcomm.core.dtypes": 2,
    "symcomm.core.sweep": 2,
    "symcomm.core.derivation": 2,
    "symcomm.core.printing": 2,
    "symcomm.core.answers": 3,
    "symcomm.core.graph": 3,
    "symcomm.core.readers": 3,
    "symcomm.core.setting": 4,
    "symcomm.core.parallel": 4,
    "symcomm.core.collectives": 4,
    "symcomm.core.hardware": 4,
    "symcomm.core.program": 4,
    "symcomm.core.quantities": 5,
    "symcomm.core.worksheets": 5,
    "symcomm.core.optimum": 5,
    "symcomm.core.fitting": 5,
    "symcomm.core.model": 6,
    "symcomm.core.notebook": 6,
    "symcomm.core.report": 6,
    "symcomm.core.timeline": 6,
    "symcomm.core.drawing": 6,
    "symcomm.documents.editions": 0,
    "symcomm.teaching": 5,
    "symcomm.teaching.sums": 2,
    "symcomm.teaching.differentiation": 4,
    "symcomm.documents": 6,
    "symcomm.exams": 6,
    "symcomm.searching": 6,
    "symcomm.verify": 6,
    "symcomm.cli": 7,
    "symcomm.__main__": 7,
    "symcomm": 7,
}
MODULES = sorted(path.relative_to(ROOT) for path in PACKAGE.rglob("*.py"))


def module_name(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def floor(name: str) -> int:
    known = [prefix for prefix in FLOORS if name == prefix or (prefix != "symcomm" and name.startswith(prefix + "."))]
    assert known, f"{name} has no floor: add it to FLOORS and to the map in the docs"
    return FLOORS[max(known, key=len)]


@cache
def text_of(path: Path) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


# To parse every module takes seconds; where an import, a class or a suspicious word begins, the line tells.
IMPORT = re.compile(r"^ *(?:from +([\w.]+) +import +(\([^)]*\)|.+)|import +(.+))", re.MULTILINE)
TYPED = re.compile(r"^( *)if (?:\w+\.)?TYPE_CHECKING:\n(?:\1 +.*\n?|\n)+", re.MULTILINE)


def calls(words: str) -> list[tuple[Path, ast.Call]]:
    """The calls in the modules that have one of some words before a bracket or a dot."""
    found = []
    for path in MODULES:
        if re.search(rf"\b(?:{words})\b *[(.]", text_of(path)):
            found += [(path, node) for node in ast.walk(ast.parse(text_of(path))) if isinstance(node, ast.Call)]
    return found


@cache
def imports(path: Path, types: bool = False) -> set[str]:
    """The symcomm modules a file imports, anywhere in it; those for type checkers only where ``types`` count."""
    return imported(text_of(path), str(path), types)


def imported(text: str, path: str, types: bool) -> set[str]:
    known = {module_name(module) for module in MODULES}
    found: set[str] = set()
    for module, names, plain in IMPORT.findall(text if types else TYPED.sub("", text)):
        assert not module.startswith("."), f"{path}: a relative import"
        words = re.findall(r"(?:^|,)\s*([\w.]+)", re.sub(r"#.*", "", names or plain).strip("() \n"))
        for word in words:
            found.add((f"{module}.{word}" if f"{module}.{word}" in known else module) if module else word)
    return {name for name in found if name == "symcomm" or name.startswith("symcomm.")}


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_a_module_imports_only_from_its_own_floor_or_lower_ones(path: Path):
    name = module_name(path)
    for other in imports(path) - {name}:
        if other != "symcomm":
            assert floor(other) <= floor(name), f"{name} (floor {floor(name)}) imports {other} (floor {floor(other)})"


def circles(edges: Iterable[tuple[str, str]]) -> list[list[str]]:
    """The groups of names that lead to one another."""
    graph = nx.DiGraph((a, b) for a, b in edges if a != b)
    return [sorted(group) for group in nx.strongly_connected_components(graph) if len(group) > 1]


def every_import() -> set[tuple[str, str]]:
    return {(module_name(path), other) for path in MODULES for other in imports(path, types=True)}


def test_no_modules_import_one_another_in_a_circle():
    """Imports inside functions and those for type checkers count, too."""
    assert circles(every_import()) == []


def test_no_folders_import_one_another_in_a_circle():
    def folder(name: str) -> str:
        parts = name.split(".")
        return ".".join(parts[:4] if "quantities" in parts[2:3] and len(parts) > 4 else parts[:3])

    assert circles((folder(a), folder(b)) for a, b in every_import()) == []


# The packages, and which others each may import from: core none.
MAY_IMPORT: dict[str, set[str]] = {
    "core": set(),
    "teaching": {"core"},
    "documents": {"core", "teaching"},
    "searching": {"core", "documents"},
    "verify": {"core", "documents"},
    "exams": {"core", "documents", "teaching"},
    "cli": {"core", "documents", "exams", "searching", "teaching", "verify"},
}
# The top of the package names what is public of each.
TOP = {"symcomm", "symcomm.__main__"}
LIBRARIES = "symcomm.core.libraries"  # whose names are those of SymPy, NumPy and others, of no package


def package(name: str) -> str:
    return name.split(".")[1]


def test_a_package_imports_only_from_those_that_it_may():
    wrong = {
        (a, b)
        for a, b in every_import()
        if not TOP & {a, b} and package(a) != package(b) and package(b) not in MAY_IMPORT[package(a)]
    }
    assert wrong == set()
    assert {package(name) for names in every_import() for name in names if name not in TOP} == set(MAY_IMPORT)


# How many names each package takes from another: limits that only go down, to 60 at most.
WIDTH = {
    ("cli", "core"): 20,
    ("cli", "documents"): 5,
    ("cli", "exams"): 28,
    ("cli", "searching"): 1,
    ("cli", "verify"): 10,
    ("documents", "core"): 60,
    ("documents", "teaching"): 3,
    ("exams", "core"): 133,
    ("exams", "documents"): 51,
    ("exams", "teaching"): 3,
    ("searching", "core"): 60,
    ("searching", "documents"): 1,
    ("teaching", "core"): 58,
    ("verify", "core"): 43,
    ("verify", "documents"): 1,
}


def test_no_border_of_a_package_gets_wider():
    across: dict[tuple[str, str], set[str]] = {}
    for path in MODULES:
        for module, names, _ in IMPORT.findall(text_of(path)):
            if {module, module_name(path)} & {*TOP, LIBRARIES} or not module.startswith("symcomm."):
                continue
            own, other = package(module_name(path)), package(f"{module}.")
            if own != other:
                words = re.findall(r"(?:^|,)\s*(\w+)", re.sub(r"#.*", "", names).strip("() \n"))
                across.setdefault((own, other), set()).update(f"{module}.{word}" for word in words)
    assert {pair: len(found) for pair, found in across.items() if len(found) > WIDTH.get(pair, 0)} == {}


def test_tests_take_inner_names_from_one_file():
    """A module that moves, or a name that changes, is one row of ``tests/api.py``."""
    for path in (ROOT / "tests").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if path.name != "api.py" and "symcomm." in text:
            found = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)]
            names = [getattr(node, "module", None) or node.names[0].name for node in found]
            assert not [name for name in names if name.startswith("symcomm.")], path


def test_a_circle_is_seen_whatever_the_import():
    lazy = "def f():\n    from symcomm.core.units import ONE\n    return ONE"
    typed = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from symcomm.core.form import Form"
    assert imported(lazy, "a.py", types=False) == {"symcomm.core.units"}
    assert imported(typed, "a.py", types=False) == set()
    assert imported(typed, "a.py", types=True) == {"symcomm.core.form"}
    assert circles([("a", "b"), ("b", "c"), ("c", "a"), ("c", "d")]) == [["a", "b", "c"]]


def test_no_name_of_a_class_is_used_twice():
    found: dict[str, list[str]] = {}
    for path in MODULES:
        for name in re.findall(r"^ *class (\w+)", text_of(path), re.MULTILINE):
            found.setdefault(name, []).append(str(path))
    twice = {name: sorted(paths) for name, paths in found.items() if len(paths) > 1}
    assert twice == {}, "rename one of them"


def test_only_the_program_asks_the_placement_and_the_gradients():
    """Quantities and pictures read the turns of a program. Verification runs the plan itself."""
    asked = re.compile(r"(?<![\w.])plan\.steps\b|\.plan\.steps\b|(?<![\w.])(?:training|place)\(")
    said = {str(path) for path in MODULES for line in text_of(path).splitlines()
            if asked.search(line) and not line.lstrip().startswith("def ")}  # fmt: skip
    homes = ("symcomm/core/program/", "symcomm/core/parallel/", "symcomm/core/graph/", "symcomm/verify/")
    assert {path for path in said if not path.startswith(homes)} == set()


def test_only_the_notation_makes_symbols():
    """Two symbols of one name with different assumptions are different, so they are made in one place.

    Op kinds are expressions in placeholder symbols of their own, which never meet those of a model.
    """
    made = r"(sp\.|sympy\.)?(Symbol|symbols|Dummy)"
    makers = {str(path) for path, call in calls("Symbol|symbols|Dummy") if re.fullmatch(made, ast.unparse(call.func))}
    assert makers <= {"symcomm/core/notation.py", "symcomm/core/graph/ops.py"}


def test_no_module_evaluates_text_as_code():
    forbidden = r"(sp\.|sympy\.)?(sympify|parse_expr|simplify|S)|eval|exec|yaml\.(load|unsafe_load)|pickle\..*"
    for path, call in calls(r"sympify|parse_expr|simplify|S|eval|exec|yaml\.load|yaml\.unsafe_load|pickle"):
        name = ast.unparse(call.func)
        if (path.as_posix(), name) == (
            "symcomm/core/records.py",
            "exec",
        ):  # methods made of the names of a class's fields
            continue
        assert not re.fullmatch(forbidden, name), f"{path}:{call.lineno} calls {name}"


# -- public names -----------------------------------------------------------------------------------------


def test_every_public_name_exists_and_has_a_docstring():
    for name in symcomm.__all__:
        found = getattr(symcomm, name)
        assert name in dir(symcomm)
        if name != "__version__":
            assert found.__doc__, name


def test_the_table_of_lazy_names_is_what_all_lists():
    assert sorted([*symcomm._HOMES, "__version__"]) == symcomm.__all__


def test_an_unknown_public_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'symcomm' has no attribute 'nothing'"):
        _ = symcomm.nothing


PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_every_name_a_page_takes_from_symcomm_exists(page: Path):
    text = page.read_text(encoding="utf-8")
    for name in set(re.findall(r"\bsc\.([A-Za-z_]\w*)", text)):
        assert name in symcomm.__all__, f"{page.name} uses sc.{name}"
    for name in set(re.findall(r"`(symcomm(?:\.\w+)+)`", text)):
        path = ROOT / Path(*name.split("."))
        parent = path.parent
        assert path.is_dir() or path.with_suffix(".py").exists() or parent.with_suffix(".py").exists(), name


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_every_link_of_a_page_to_a_file_leads_somewhere(page: Path):
    for target in re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", [p for p in PAGES if p.parent.name != "tutorials"], ids=lambda p: p.name)
def test_the_python_of_a_page_runs(page: Path, monkeypatch: pytest.MonkeyPatch):
    """Tutorials are run in a folder of their own by ``tests/doors``, with what they print."""
    monkeypatch.chdir(ROOT)
    scope: dict[str, object] = {}
    for code in re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        exec(compile(code, page.name, "exec"), scope)


@pytest.mark.parametrize("page", [p for p in PAGES if p.name != "README.md"], ids=lambda p: p.name)
def test_the_problem_blocks_of_a_page_are_understood(page: Path):
    """A page shows blocks inside a fence of four marks: each is a document that can be solved.

    README adds its block to the starter, as ``tests/doors`` does.
    """
    from api import parse_problem, solve

    for text in re.findall(r"^````markdown\n(.*?)^````", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        solve(parse_problem(text, page.name))
