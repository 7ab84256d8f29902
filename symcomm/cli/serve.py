"""``symcomm serve``: the page that checks formulas and derives costs in a browser, served from this computer."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import re
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from symcomm.cli.shared import PATH, read_template

if TYPE_CHECKING:
    from http.server import ThreadingHTTPServer
    from io import BytesIO

PYODIDE = "314.0.7"  # Python 3.14
_RUNTIME = ("pyodide.asm.wasm", "pyodide.asm.mjs", "pyodide.mjs", "pyodide-lock.json", "python_stdlib.zip")
_LIBRARIES = (
    "symcomm", "sympy", "mpmath", "lark", "markdown_it", "mdurl", "yaml", "typeguard", "typing_extensions", "jinja2",
    "markupsafe", "networkx",
)  # fmt: skip
_DATA = (".py", ".lark", ".yaml", ".jinja", ".css", ".json", ".csv", ".txt", ".md")
_LEFT_OUT = re.compile(  # what only commands use: papers and grades of a class, exports, runs in PyTorch
    r"(^|/)(tests?|testing|benchmarks|__pycache__)/|^symcomm/(cli|verify|searching|exams/exports)/"
    r"|^symcomm/exams/(grading|kept_answers|manifest|pages|papers|processes|roster|rubric|self_test|sheets|summary|writing)"
    r"|^symcomm/templates/(page|exports|practice)/"
    r"|^sympy/(parsing/(latex|autolev|c|fortran)|stats|vector|diffgeom|categories|liealgebras|crypto)/"
    r"|^sympy/physics/(?!__init__|matrices|units)"
)
_HOME = Path(__file__).parents[1]  # an installed package has its templates inside, a clone beside it
_TEMPLATES = _HOME / "templates" if (_HOME / "templates").is_dir() else _HOME.parent / "templates"
_STARTER = Path(__file__).parent / "starters" / "homework.md"
_POLICY = (
    "default-src 'none'; connect-src 'self'; worker-src 'self'; img-src data:; style-src 'self' 'unsafe-inline'; "
    "script-src 'self' 'wasm-unsafe-eval'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {"Content-Security-Policy": _POLICY, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
            "Cache-Control": "no-cache"}  # fmt: skip


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=False)
@click.option("-o", "--output", type=PATH, default="symcomm-page", show_default=True, help="The folder of the page.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0 takes a free one.")
@click.option("--build", "only_build", is_flag=True, help="Write the folder, and serve nothing.")
@click.option("--runtime", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help=f"A pyodide-{PYODIDE}.tgz that was fetched before, for a computer without internet.")  # fmt: skip
@click.option("--no-browser", is_flag=True, help="Open no browser.")
def serve(file: Path | None, output: Path, port: int, only_build: bool, runtime: Path | None, no_browser: bool) -> None:
    """Open a page in the browser to check answers on.

    It derives costs, too, and has the questions of FILE.

    \b
    symcomm serve homework.md                    # http://127.0.0.1:8000/, for this computer alone
    symcomm serve homework.md --build -o page    # a folder for any web server

    The first time, the page is built: that needs Node.js 20 or later and the internet, for Pyodide from npm. Later it
    needs neither. Everything runs in the browser; nothing that is typed leaves it. FILE goes with the page, and whoever
    has it can derive its answers: use it for practice.
    """
    build(output, file, runtime)
    if only_build:
        click.echo(str(output / "index.html"))
        return
    with server(output, port) as running:
        address = f"http://127.0.0.1:{running.server_port}/"
        click.echo(f"{address}\nCtrl-C ends it.")
        if not no_browser:
            import webbrowser

            webbrowser.open(address)
        with contextlib.suppress(KeyboardInterrupt):
            running.serve_forever()


def build(output: Path, file: Path | None = None, runtime: Path | None = None) -> None:
    """Writes the page for a problem file into a folder, or for our starter; what is there and the same is kept.

    Raises ``RenderError`` where the file asks nothing, where Node.js or Pyodide cannot be had, and where the folder
    cannot be written or holds another page, which stays as it is.
    """
    questions = json.dumps(_questions(file), ensure_ascii=False)
    with tempfile.TemporaryDirectory() as made:
        plain = Path(made) / "plain.zip"
        _bundle(plain, _TEMPLATES)
        stamp = hashlib.sha256(plain.read_bytes() + (_TEMPLATES / "page" / "build.mjs").read_bytes()).hexdigest()
        _laid_out(output, questions)
        built = output / "built.json"
        now = {"runtime": PYODIDE, "symcomm": stamp}
        before = {}
        if built.is_file():
            with contextlib.suppress(ValueError):  # half written: the page is built again
                before = json.loads(built.read_text(encoding="utf-8"))
        if now == before:
            return
        built.unlink(missing_ok=True)
        if before.get("runtime") != PYODIDE:
            _unpack(runtime or _fetched(Path(made)), output / "py")
        click.echo("building the page; this takes a minute", err=True)
        _run(["node", str(_TEMPLATES / "page" / "build.mjs"), str(output.resolve()), str(plain)], output)
        built.write_text(json.dumps(now), encoding="utf-8")


def _laid_out(output: Path, questions: str) -> None:
    """Writes what needs no building."""
    from symcomm.core.errors import RenderError

    ours = [path for path in (_TEMPLATES / "page").iterdir() if path.is_file() and path.name != "build.mjs"]
    try:
        theirs = [path.name for path in ours if (output / path.name).exists() and not (output / "py").is_dir()]
        if theirs:
            told = f"{output} has another {min(theirs)}, which stays as it is"
            raise RenderError(told, hint="name a new folder with -o")
        (output / "py").mkdir(parents=True, exist_ok=True)
        for path in ours:
            shutil.copyfile(path, output / path.name)
        (output / "questions.json").write_text(questions, encoding="utf-8")
    except OSError as error:
        raise RenderError(f"{output} cannot be written: {error.strerror}", hint="name a folder with -o") from error


def _questions(file: Path | None) -> dict[str, str]:
    """The texts of a problem file and of its worksheets, by their names."""
    from symcomm.core.errors import RenderError

    if file is None:
        text = _STARTER.read_text(encoding="utf-8")
        return {"homework.md": text.replace("FILE", "homework.md").replace("STEM", "homework")}
    problem = read_template(file).problem()
    if not problem.asks:
        raise RenderError(f"{file} asks no question", hint="`symcomm new homework.md` writes a file with two of them")
    sheets = dict.fromkeys(ask.worksheet for ask in problem.asks if ask.worksheet)
    return {path.name: path.read_text(encoding="utf-8") for path in (file, *(file.parent / name for name in sheets))}


def _bundle(target: Path, templates: Path) -> None:
    """One archive of the Python files of symcomm and its libraries as they are installed here."""
    with zipfile.ZipFile(target, "w") as out:
        found = [
            *_files(),
            *((f"symcomm/templates/{p.relative_to(templates).as_posix()}", p) for p in templates.rglob("*")),
        ]
        for name, path in sorted(dict(found).items()):
            if path.suffix in _DATA and path.is_file() and not _LEFT_OUT.search(name):
                out.writestr(zipfile.ZipInfo(name), path.read_bytes())  # the same bytes for the same files


def _files() -> Iterator[tuple[str, Path]]:
    for library in _LIBRARIES:
        spec = importlib.util.find_spec(library)
        assert spec is not None
        assert spec.origin is not None
        home = Path(spec.origin)
        if home.name != "__init__.py":
            yield home.name, home
        else:
            for path in home.parent.rglob("*"):
                yield f"{library}/{path.relative_to(home.parent).as_posix()}", path


def _fetched(folder: Path) -> Path:
    """Pyodide's package, by npm."""
    _run(["npm", "pack", f"pyodide@{PYODIDE}"], folder)
    return next(folder.glob("pyodide-*.tgz"))


def _unpack(packed: Path, target: Path) -> None:
    import gzip
    import tarfile

    from symcomm.core.errors import RenderError

    try:
        with tarfile.open(packed) as archive:
            found = {name: archive.extractfile(f"package/{name}") for name in ("package.json", *_RUNTIME)}
            texts = {name: file.read() for name, file in found.items() if file is not None}
        if json.loads(texts.pop("package.json"))["version"] != PYODIDE:
            raise KeyError(packed)
        for name in _RUNTIME:
            (target / name).write_bytes(texts[name])
            if not name.endswith(".zip"):
                (target / f"{name}.gz").write_bytes(gzip.compress(texts[name], mtime=0))
    except (tarfile.TarError, KeyError, ValueError) as error:
        raise RenderError(f"{packed} is not Pyodide {PYODIDE}", hint=f"npm pack pyodide@{PYODIDE}") from error


def _run(command: Sequence[str], folder: Path) -> None:
    from symcomm.core.errors import RenderError

    needed = "the page is built once with Node.js 20 or later and the internet"
    program = shutil.which(command[0])
    if program is None:
        raise RenderError(f"{command[0]} is missing: {needed}", hint="https://nodejs.org, or apt install nodejs npm")
    try:
        done = subprocess.run(  # noqa: S603  (our own command)
            [program, *command[1:]], cwd=folder, capture_output=True, text=True, check=False, timeout=600
        )
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
    except subprocess.TimeoutExpired:
        said = ["it took more than 10 minutes"]
    else:
        if done.returncode == 0:
            return
    hint = f"on another computer `npm pack pyodide@{PYODIDE}`, and here --runtime pyodide-{PYODIDE}.tgz"
    why = next((line for line in reversed(said) if "rror" in line), said[-1] if said else "it said nothing")
    raise RenderError(f"{command[0]} failed: {why[:300]}", hint=hint if command[0] == "npm" else needed)


def server(folder: Path, port: int) -> ThreadingHTTPServer:
    """A server of a folder, for this computer alone; raises ``RenderError`` where the port is taken."""
    from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

    from symcomm.core.errors import RenderError

    class Handler(SimpleHTTPRequestHandler):
        """The files of the folder, with the page's policy; no lists of what is in it."""

        extensions_map = {  # noqa: RUF012  (as the class above has it)
            **SimpleHTTPRequestHandler.extensions_map, ".mjs": "text/javascript", ".wasm": "application/wasm",
        }  # fmt: skip

        def end_headers(self) -> None:
            for header in _HEADERS.items():
                self.send_header(*header)
            super().end_headers()

        def send_head(self) -> BytesIO | BinaryIO | None:
            packed = Path(f"{self.translate_path(self.path)}.gz")
            if "gzip" not in self.headers.get("Accept-Encoding", "") or not packed.is_file():
                return super().send_head()
            self.send_response(200)
            self.send_header("Content-Type", self.guess_type(self.path))
            self.send_header("Content-Encoding", "gzip")
            self.send_header("Content-Length", str(packed.stat().st_size))
            self.end_headers()
            return packed.open("rb")

        def list_directory(self, path: object) -> None:
            self.send_error(404)

        def log_message(self, *args: object) -> None:
            pass

    try:
        return ThreadingHTTPServer(("127.0.0.1", port), partial(Handler, directory=str(folder.resolve())))
    except OSError as error:
        raise RenderError(f"port {port} is taken", hint="--port 0 takes a free one") from error
