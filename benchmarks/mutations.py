"""A mutation run: small faults are put into a module one at a time; its tests have to notice each of them.

    python benchmarks/mutations.py                  a sample of every module below
    python benchmarks/mutations.py identity form    all faults of some modules (--sample 30: so many of each)

Works on a copy in a temporary folder. What survived the last run, and why, is in mutations.txt beside this file.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
# The tests that are to notice a fault, quick ones first.
TESTS = {
    "identity": ["tests/core/test_core_identity.py", "tests/core/test_core_derivation.py"],
    "derivation/derivation": ["tests/core/test_core_derivation.py", "tests/core/test_core_units.py",
                              "tests/render/test_printing_derivations.py", "tests/passes"],
    "form": ["tests/core/test_core_derivation.py", "tests/render/test_printing_forms.py", "tests/text"],
    "units": ["tests/core/test_core_units.py", "tests/text", "tests/render/test_printing_derivations.py"],
    "collected": ["tests/core/test_core_kept.py"],
    "printing/forms": ["tests/render/test_printing_forms.py", "tests/render/test_printing_derivations.py"],
    "printing/quantities": ["tests/render/test_printing_derivations.py", "tests/core/test_core_units.py"],
    "parallel/placement": ["tests/proof/test_proof_ranks.py", "tests/proof/test_proof_expectations.py"],
    "quantities/counting/flops": ["tests/passes"],
    "quantities/communication/communication": ["tests/passes", "tests/proof/test_proof_expectations.py"],
    "quantities/time/terms": ["tests/time/test_time_golden.py", "tests/time/test_time_oracle.py",
                              "tests/time/test_time_links.py", "tests/core/test_core_witnesses.py"],
    "quantities/memory/saved": ["tests/passes", "tests/memory/test_memory_published.py",
                                "tests/memory/test_memory_asked.py", "tests/memory/test_memory_strategies.py"],
    "optimum/whole_number": ["tests/optimum/test_minimise.py"],
    "optimum/closed_form": ["tests/optimum/test_minimise.py", "tests/optimum/test_hard_costs.py"],
}  # fmt: skip

_SWAPPED: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Add, ast.Pow: ast.Mult, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip


def sites(tree: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """Places of a module that can be changed, each with the field that is; annotations are left alone."""
    for name, value in ast.iter_fields(tree):
        if name in ("annotation", "returns"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from sites(child)
    if isinstance(tree, ast.Compare):
        yield tree, "ops"
    elif isinstance(tree, (ast.BinOp, ast.BoolOp)) and type(tree.op) in _SWAPPED:
        yield tree, "op"
    elif isinstance(tree, ast.Constant) and type(tree.value) in (int, bool):
        yield tree, "value"
    elif isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.Not):
        yield tree, "not"


def changed(source: str, number: int) -> tuple[str, str]:
    """The source with one fault, and what the fault is."""
    tree = ast.parse(source)
    node, field = list(sites(tree))[number]
    before = ast.unparse(node)
    if field == "ops":
        node.ops[0] = _SWAPPED[type(node.ops[0])]()
    elif field == "op":
        node.op = _SWAPPED[type(node.op)]()
    elif field == "not":
        node.op, node.operand = ast.Not(), ast.UnaryOp(ast.Not(), node.operand)
    else:
        node.value = not node.value if isinstance(node.value, bool) else node.value + 1
    ast.fix_missing_locations(tree)
    return ast.unparse(tree), f"line {node.lineno}: {before}  ->  {ast.unparse(node)}"


def noticed(folder: Path, tests: list[str]) -> bool:
    """Whether a test fails; one that does not end has failed."""
    # What does not hold a fault in memory does not count: no cache, and a hash that never varies.
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    try:
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, timeout=600, check=False)  # noqa: S603
    except subprocess.TimeoutExpired:
        return True
    return done.returncode != 0


def main() -> None:
    """Runs the chosen modules and says what survived."""
    arguments = argparse.ArgumentParser(description="Puts faults into modules and counts those that tests notice.")
    arguments.add_argument("modules", nargs="*", choices=[*TESTS, []])
    arguments.add_argument("--sample", type=int, default=0, help="so many faults of each module")
    arguments.add_argument("--seed", type=int, default=1)
    chosen = arguments.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        for part in ("symcomm", "tests", "examples", "docs", "pyproject.toml", "README.md", "CONTRIBUTING.md"):
            copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
            copy(ROOT / part, folder / part)
        # Compiled once; what is changed no longer has the hash, and is compiled anew.
        compiled = ["-m", "compileall", "-q", "--invalidation-mode", "checked-hash", str(folder)]
        subprocess.run([sys.executable, *compiled], check=True)  # noqa: S603
        for module in chosen.modules or TESTS:
            path = folder / "symcomm" / "core" / f"{module}.py"
            source = path.read_text(encoding="utf-8")
            numbers = range(len(list(sites(ast.parse(source)))))
            size = chosen.sample or (len(numbers) if chosen.modules else 20)
            some = sorted(random.Random(chosen.seed).sample(numbers, min(size, len(numbers))))  # noqa: S311
            survived = []
            for number in some:
                text, what = changed(source, number)
                path.write_text(text, encoding="utf-8")
                if not noticed(folder, TESTS[module]):
                    survived.append(what)
                    print(f"{module}: survived, {what}", flush=True)
            path.write_text(source, encoding="utf-8")
            print(f"{module}: {len(some) - len(survived)} of {len(some)} noticed, {len(numbers)} places", flush=True)


if __name__ == "__main__":
    main()
