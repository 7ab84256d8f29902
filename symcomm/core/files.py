"""Text files that are read, and files that are written whole or not at all."""

from __future__ import annotations

import contextlib
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from symcomm.core.errors import DocumentError, RenderError, Span

PROBLEM = "the file with the layer table and the questions, not a data set"
LARGEST = 2_000_000  # bytes of one file
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\x80-\x84\x86-\x9f]")


def one_line_end(text: str) -> str:
    """The text with plain line ends, so that all counts of lines agree."""
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def is_path(source: object) -> bool:
    """Whether a source is the path of a file rather than its text: one short line, and no table in HTML.

    >>> is_path("layer.md"), is_path("| Computation |\\n|---|"), is_path("<table><tr>...")
    (True, False, False)
    """
    return isinstance(source, Path) or (isinstance(source, str) and len(source) < 1000 and not {"\n", "<"} & {*source})


def read_text(path: str | Path, what: str = "", limit: int = LARGEST) -> str:
    """The text of a file, with one kind of line end; a file that is too large is refused before it is read.

    ``what`` says which file is wanted. Raises ``DocumentError`` for a file that is missing, too large, or not UTF-8.
    """
    path, hint = Path(path), f"give {what}" if what else ""
    name = _short(path)
    try:
        if path.is_dir():
            raise DocumentError(f"{name} is a folder, not a file", hint=hint)
        with path.open("rb") as stream:
            data = stream.read(limit + 1)
        size = max(len(data), path.stat().st_size)
    except FileNotFoundError:
        raise DocumentError(f"there is no file {name}", hint=hint) from None
    except (OSError, ValueError) as error:  # a name with a null byte is a ValueError
        said = getattr(error, "strerror", None) or error
        raise DocumentError(f"{name!a} cannot be read: {said}".replace("'", ""), hint=hint) from None
    if len(data) > limit:
        most = f"{limit / 1e6:.0f} MB" if limit >= 10**6 else f"{limit:,} bytes"
        raise DocumentError(f"{name} has {size / 1e6:.1f} MB; at most {most} are read", hint=hint)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        wide = data.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\x00" in data[:4]
        kind = "UTF-16" if wide else "another encoding" if b"\x00" in data else "Latin-1"
        hint = f"it looks like {kind}: save as UTF-8" if kind != "another encoding" else hint
        before = one_line_end(data[: error.start].decode(errors="replace"))
        place = Span.in_text(name, before + data[error.start : error.start + 80].decode(errors="replace"), len(before))
        raise DocumentError(f"the file is not UTF-8 text: byte {error.start}", place, hint) from None
    text = one_line_end(text)
    control = _CONTROL.search(text)
    if control:
        what = f"the file has the control character U+{ord(control[0]):04X}: it is no text"
        raise DocumentError(what, Span.in_text(name, text, control.start()), hint or "leave it out")
    return text


def write_files(files: Mapping[str, bytes], folder: Path) -> list[Path]:
    """Writes all files into a folder, each under its name only when all of them are complete.

    Raises ``RenderError`` where the folder cannot be written; then nothing is left behind.
    """
    try:
        is_file = folder.exists() and not folder.is_dir()
    except OSError as error:  # a name that is too long
        raise RenderError(f"{_short(folder)} cannot be written: {error.strerror}", hint="name a folder") from None
    if is_file:
        raise RenderError(f"{folder} cannot be written: it is a file", hint="name a folder")
    return _written([(folder / name, data) for name, data in files.items()], folder)


def write_file(path: Path, data: bytes | str) -> Path:
    """Writes one file, whole or not at all; a device or a pipe is written to, a link is followed.

    Raises ``RenderError`` where it cannot be written; then nothing is left behind.
    """
    if not path.name:
        raise RenderError("no file is named", hint="for instance -o result.md")
    (made,) = _written([(path, data.encode() if isinstance(data, str) else data)], path)
    return made


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """A private folder that is gone afterwards, also where a signal ends the program while it is made.

    >>> with temporary_folder() as folder:
    ...     _ = (folder / "words").write_text("words")
    >>> folder.exists()
    False
    """
    folder = Path(tempfile.gettempdir()) / f"symcomm-{secrets.token_hex(8)}"
    try:
        folder.mkdir(mode=0o700)
        yield folder
    finally:
        try:
            shutil.rmtree(folder, ignore_errors=True)
        except BaseException:  # a signal while it is taken away
            shutil.rmtree(folder, ignore_errors=True)
            raise


def _short(path: Path) -> str:
    """A path as an error names it."""
    return str(path) if len(str(path)) <= 200 else f"{str(path)[:200]}..."


def _written(files: list[tuple[Path, bytes]], told: Path) -> list[Path]:
    """Writes files; ``told`` is what an error names."""
    waiting: list[tuple[Path, Path]] = []
    try:
        for path, data in files:
            target = path.resolve() if path.is_symlink() else path
            if target.is_dir():
                raise RenderError(f"{path} cannot be written: it is a folder")
            if target.exists() and not stat.S_ISREG(target.stat().st_mode):
                with target.open("wb") as device:  # /dev/stdout, a FIFO: there is nothing to replace
                    device.write(data)
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            part = target.with_name(f".{target.name[:80]}.{secrets.token_hex(8)}.tmp")
            waiting.append((part, target))
            with part.open("xb") as file:
                file.write(data)
        for part, target in waiting:
            part.replace(target)
    except (OSError, ValueError) as error:
        raise RenderError(f"{_short(told)} cannot be written: {getattr(error, 'strerror', None) or error}") from None
    finally:
        for part, _ in waiting:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)
    return [path for path, _ in files]
