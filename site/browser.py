"""Builds the page that runs symcomm in a browser: ``python site/browser.py -o out/page`` (needs npm and pip).

Everything lies in one folder, and nothing is loaded from elsewhere. Serve it with
``python -m http.server -d out/page``; modules and workers do not work from ``file://``.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYODIDE = "314.0.7"  # Python 3.14
PURE = ("sympy==1.14.0", "mpmath==1.3.0", "lark==1.3.1", "markdown-it-py==4.3.0", "mdurl==0.1.2", "typeguard==4.6.0",
        "typing_extensions==4.16.0", "jinja2==3.1.6")  # fmt: skip
RUNTIME = ("pyodide.asm.wasm", "pyodide.asm.mjs", "pyodide.mjs", "pyodide-lock.json", "python_stdlib.zip")
_LEFT_OUT = re.compile(
    r"(^|/)(tests?|benchmarks|__pycache__)/|\.pyi$|\.dist-info/|^symcomm/(cli|verify|searching)/"
    r"|^sympy/(parsing/(latex|autolev|c|fortran)|physics|stats|vector|diffgeom|categories|liealgebras|crypto|galgebra)/"
)


def main() -> None:
    """Reads the command line and builds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "out" / "page")
    parser.add_argument("--questions", type=Path, default=ROOT / "symcomm" / "cli" / "starters" / "homework.md")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        build(asked.output, asked.questions, Path(folder))
    print(asked.output / "index.html")


def build(output: Path, questions: Path, folder: Path) -> None:
    """Fetches the runtime and the libraries by npm and pip, and writes the page into ``output``."""
    (output / "py").mkdir(parents=True, exist_ok=True)
    _run("npm", "pack", f"pyodide@{PYODIDE}", cwd=folder)
    with tarfile.open(next(folder.glob("pyodide-*.tgz"))) as packed:
        for name in RUNTIME:
            found = packed.extractfile(f"package/{name}")
            assert found is not None, name
            (output / "py" / name).write_bytes(found.read())
    pip = (sys.executable, "-m", "pip", "-q")
    _run(*pip, "download", "--no-deps", "--only-binary", ":all:", "--python-version", "3.14", "--platform", "any",
         "--implementation", "py", "--abi", "none", *PURE, cwd=folder)  # fmt: skip
    _run(*pip, "wheel", "--no-cache-dir", "--no-deps", "--no-binary", "pyyaml,markupsafe",
         "pyyaml==6.0.3", "markupsafe==3.0.3", cwd=folder)  # fmt: skip
    _run(*pip, "wheel", "--no-deps", str(ROOT), cwd=folder)
    bundle(sorted(folder.glob("*.whl")), output / "symcomm.zip")
    for path in (ROOT / "site" / "page").iterdir():
        shutil.copy(path, output / path.name)
    shutil.copy(questions, output / "questions.md")


def bundle(wheels: list[Path], target: Path) -> None:
    """One archive of the Python files of all wheels, without what the page never imports."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as out:
        for wheel in wheels:
            with zipfile.ZipFile(wheel) as packed:
                for one in packed.infolist():
                    if not one.is_dir() and not _LEFT_OUT.search(one.filename):
                        plain = zipfile.ZipInfo(
                            one.filename
                        )  # the same date, so that the same files give the same bytes
                        out.writestr(plain, packed.read(one), zipfile.ZIP_DEFLATED)


def _run(*command: str, cwd: Path) -> None:
    environment = {**os.environ, "PYYAML_FORCE_LIBYAML": "0", "CC": "false"}  # pure Python, not compiled
    subprocess.run(command, cwd=cwd, check=True, env=environment, stdout=subprocess.DEVNULL)  # noqa: S603  (our own)


if __name__ == "__main__":
    main()
