"""What the commands and the Python of a page print, set below them.

    python tests/doors/shown.py README.md docs/tutorials/first-homework.md

runs each ``sh`` and ``python`` block of a page, in one empty folder with the examples, and writes what is printed into
the ``text`` block that follows. A block that ends with a line of three dots shows the first lines only. A ``csv`` or
``json`` block is saved under the name that stands before it.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))
_BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)
_SAVED = re.compile(r"`([\w-]+\.(csv|json))`[^`]*(?:`[^`\n]*`[^`]*)*?\n\n```\2\n(.*?)^```", re.MULTILINE | re.DOTALL)
_MORE = "...\n"


def pages() -> list[Path]:
    """The pages whose blocks are run: README, the tutorials and the explanation."""
    docs = ROOT / "docs"
    return [ROOT / "README.md", docs / "audits.md", *docs.glob("tutorials/*.md"), *docs.glob("explanation/*.md")]


def written_again(page: Path) -> str:
    """The text of a page with what its blocks print now."""
    text = page.read_text(encoding="utf-8")
    scope: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "examples").symlink_to(ROOT / "examples")
        for name, _, saved in _SAVED.findall(text):
            (Path(folder) / name).write_text(saved, encoding="utf-8")
        before = Path.cwd()
        os.chdir(folder)
        try:
            return _BLOCK.sub(lambda block: _with_output(block, scope), text)
        finally:
            os.chdir(before)


def _with_output(block: re.Match[str], scope: dict[str, object]) -> str:
    kind, code, shown = block.groups()
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        if kind == "python":
            exec(compile(code, "page", "exec"), scope)
        else:
            for line in code.replace("\\\n", "").splitlines():
                _command(line)
    if shown is None:
        return block[0]
    printed = "".join(f"{line.rstrip()}\n" for line in out.getvalue().rstrip().splitlines())
    if shown.endswith(_MORE):
        printed = "".join(printed.splitlines(keepends=True)[: shown.count("\n") - 1]) + _MORE
    return f"```{kind}\n{code}```\n\n```text\n{printed}```\n"


def _command(line: str) -> None:
    """Runs a command as it is typed; what installs or sets up is run by .ci/run."""
    words = shlex.split(line, comments=True)
    if not words or words[0] in ("python3", "pip", ".", "git"):
        return
    assert words[0] == "symcomm", f"a page types {line!r}"
    run(words[1:])


def run(words: list[str]) -> None:
    """Runs a command of symcomm, which has to succeed; a check may also find an answer wrong."""
    from api import main

    status: object = 0
    try:
        main.main(words, prog_name="symcomm")
    except SystemExit as end:
        status = end.code
    assert not status or (words[0] == "check" and status == 1), f"symcomm {shlex.join(words)} ends with {status}"


if __name__ == "__main__":
    for name in sys.argv[1:] or map(str, pages()):
        path = Path(name).resolve()
        path.write_text(written_again(path), encoding="utf-8")
