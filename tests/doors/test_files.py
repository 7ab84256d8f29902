"""Files are read or refused, and written whole or not at all; devices, pipes and links stay what they are."""

import os
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from api import DocumentError, RenderError, main, read_text, write_file, write_files
from click.testing import CliRunner

ROOT = Path(__file__).parents[2]
HOMEWORK = ROOT / "examples" / "comp4901y-homework2" / "homework.md"


def test_a_text_is_read_with_one_kind_of_line_end(tmp_path: Path):
    (tmp_path / "a.md").write_bytes(b"\xef\xbb\xbfone\r\ntwo\rthree")
    assert read_text(tmp_path / "a.md") == "one\ntwo\nthree"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (None, "there is no file .*a.md\nhint: give a table"),
        (b"\xff", "a.md:1: the file is not UTF-8 text: byte 0\n    �\n    \\^\nhint: it looks like Latin-1"),
        (b"a\nb\0c", r"a.md:2: the file has the control character U\+0000: it is no text\n    b�c\n     \^\nhint"),
        (b"x" * 11, "has 0.0 MB; at most 10 bytes are read"),
    ],
)
def test_a_file_that_is_no_text_is_refused(tmp_path: Path, data: bytes | None, said: str):
    path = tmp_path / "a.md"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(DocumentError, match=said):
        read_text(path, "a table", 10)


@pytest.mark.parametrize("name", [".", "a\0b", "x" * 300])
def test_a_path_that_cannot_be_a_file_is_refused(name: str):
    with pytest.raises(DocumentError):
        read_text(name)


def test_a_pipe_is_written_to_and_stays_a_pipe(tmp_path: Path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(pipe.read_bytes()))
    reader.start()
    write_file(pipe, "words")
    reader.join(10)
    assert found == [b"words"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_link_is_followed_and_stays_a_link(tmp_path: Path):
    (tmp_path / "link").symlink_to(tmp_path / "real")
    write_file(tmp_path / "link", b"words")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"words"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
def test_a_full_device_is_told_and_stays_a_device():
    with pytest.raises(RenderError, match="/dev/full cannot be written: No space left on device"):
        write_file(Path("/dev/full"), b"words")
    assert stat.S_ISCHR(Path("/dev/full").stat().st_mode)


def test_what_cannot_be_written_leaves_nothing_behind(tmp_path: Path):
    (tmp_path / "b").mkdir()
    for call in (
        lambda: write_files({"a": b"1", "b": b"2"}, tmp_path),
        lambda: write_file(tmp_path / ("x" * 300), b"1"),
        lambda: write_file(Path(), b"1"),
    ):
        with pytest.raises(RenderError):
            call()
    assert [path.name for path in tmp_path.iterdir()] == ["b"]


@pytest.mark.parametrize("name", ["solve", "show", "exam", "grade", "practice", "verify"])
def test_an_output_without_a_name_is_refused(name: str):
    made = CliRunner().invoke(main, [name, str(HOMEWORK), "-o", ""])
    assert made.exit_code == 2
    assert "no file is named; for instance: -o out" in made.output


@pytest.mark.parametrize(
    ("sent", "status"), [(signal.SIGTERM, 143), pytest.param(signal.SIGINT, 130, marks=pytest.mark.long)]
)
def test_a_signal_leaves_no_temporary_files(tmp_path: Path, sent: signal.Signals, status: int):
    temporary, out = tmp_path / "temporary", tmp_path / "out"
    temporary.mkdir()
    run = subprocess.Popen(
        [sys.executable, "-m", "symcomm", "solve", str(HOMEWORK), "-o", str(out), "--to", "pdf,md,html,tex"],
        env={**os.environ, "TMPDIR": str(temporary)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    for _ in range(600):  # until it has something of its own there: Python tries the folder with a file before
        if [*temporary.glob("symcomm-*")] or run.poll() is not None:
            break
        time.sleep(0.05)
    run.send_signal(sent)
    run.communicate()
    if run.returncode != 0:  # where it was not done already
        assert run.returncode == status
    assert not [*temporary.iterdir()]
    assert not [*out.glob(".*")]


@pytest.mark.parametrize(("encoding", "kind"), [("utf-16", "UTF-16"), ("utf-16-be", "UTF-16"), ("latin-1", "Latin-1")])
def test_a_file_in_another_encoding_is_told_how_to_save_it(encoding, kind, tmp_path):
    path = tmp_path / "table.md"
    path.write_bytes("| Computation | Input | Größe |\n".encode(encoding))
    with pytest.raises(DocumentError, match="is not UTF-8 text: byte") as error:
        read_text(path)
    assert error.value.hint == f"it looks like {kind}: save as UTF-8"


def test_a_name_of_300_letters_is_no_file(tmp_path):
    for write in (lambda p: write_file(p, "text"), lambda p: write_files({"a": b"text"}, p)):
        with pytest.raises(RenderError, match="cannot be written: File name too long"):
            write(tmp_path / ("a" * 300))
    assert [*tmp_path.iterdir()] == []
