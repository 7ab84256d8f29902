"""Writes the papers of a class: in parallel, resumable, every file whole or not there.

A manifest beside the files says what each was made from and what its SHA-256 is. What is there with both the same is
kept; everything else is made again.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from symcomm.editions import Edition
from symcomm.exam.key_files import key_record, keys_csv, keys_json
from symcomm.exam.pages import paper_page, solution_page
from symcomm.exam.papers import Exam, Paper
from symcomm.exam.roster import Student
from symcomm.files import write_files
from symcomm.problems.problem import Template
from symcomm.render import Engine, safe_name
from symcomm.render.document import Document
from symcomm.render.view import prepare

PAGES = ("pdf", "md", "html", "tex")
MANIFEST = "manifest.json"
_CHUNK = 25  # papers that one process makes at a time
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Order:
    """What is to be made for each paper: the formats of its pages, the edition, and the template folder.

    With ``qr`` the first page has a QR code of the paper and its student. Files of another ``version`` of the program
    are made again.
    """

    formats: tuple[str, ...]
    edition: Edition
    templates: Path | None = None
    engine: Engine = "typst"
    version: str = ""
    qr: bool = False


@dataclass(frozen=True)
class _Made:
    """What a process hands back for one paper."""

    paper: Paper
    record: dict[str, Any]


def make(
    template: Template, students: Sequence[Student], seed: str, order: Order, output: Path, *,
    processes: int | None = None, progress: Progress | None = None,
) -> list[Path]:  # fmt: skip
    """Makes the papers of a class and their keys in a folder; the paths that are there then.

    Raises ``DocumentError`` and ``RenderError``; a file is whole or not there, and what was finished is kept.
    """
    exam = Exam(template, seed)
    exam.check_space(len(students))
    names = _file_names(students)
    warm = exam.paper(students[0])  # what all processes need is known before they start
    key_record(exam, warm)
    tell = progress or (lambda done, total, label: None)
    chunks = [students[n : n + _CHUNK] for n in range(0, len(students), _CHUNK)]
    count = processes or min(multiprocessing.cpu_count(), len(chunks))
    pages = tuple(f for f in order.formats if f in PAGES)
    whole = len(students) * (1 + bool(pages))
    with _pool(count, exam) as run:
        found: list[_Made] = []
        for made in run(_draw, chunks):
            found += made
            tell(len(found), whole, "drawing")
        first = {one.paper.student.id: one for one in found}
        papers = exam.settle(students, {name: one.paper for name, one in first.items()})
        records = [
            first[p.student.id].record if first[p.student.id].paper.attempt == p.attempt else key_record(exam, p)
            for p in papers
        ]
        files: dict[str, bytes] = {}
        if "json" in order.formats:
            files["keys.json"] = keys_json(exam, records).encode()
        if "csv" in order.formats:
            files["keys.csv"] = keys_csv(records).encode()
        kept = _kept(output)
        wanted = []
        paths: list[Path] = []
        for paper, name in zip(papers, names, strict=True):
            mark = _fingerprint(exam, paper, order)
            stems = [f"{name}.{form}" for form in pages]
            if all(_is_whole(output / stem, kept.get(stem), mark) for stem in stems):
                paths += [output / stem for stem in stems]
            else:
                wanted.append((paper.student, paper.attempt, name, mark))
        told = dict(kept)
        done = len(students) * 2 - len(wanted)
        if pages:
            output.mkdir(parents=True, exist_ok=True)
            groups = [wanted[n : n + _CHUNK] for n in range(0, len(wanted), _CHUNK)]
            for lines in run(partial(_write_pages, order=order, output=output), groups):
                told |= {name: line for line in lines for name in [line["file"]]}
                paths += [output / line["file"] for line in lines]
                write_files({MANIFEST: _manifest(told)}, output)
                done += len({line["paper"] for line in lines})
                tell(done, whole, "writing")
    paths += write_files(files, output)
    tell(whole, whole, "")
    return sorted(set(paths))


# -- in a process -----------------------------------------------------------------------------------

_exam: list[Exam] = []  # of this process; a fork has what its parent derived


def _start(template: Template, seed: str) -> None:
    if not _exam:
        _exam.append(Exam(template, seed))


class _pool:  # noqa: N801  (it reads as a function)
    """Runs work on chunks in several processes, or in this one where one is enough."""

    def __init__(self, processes: int, exam: Exam) -> None:
        self.executor: ProcessPoolExecutor | None = None
        _exam[:] = [exam]
        if processes > 1:
            way = "fork" if sys.platform == "linux" else None
            context = multiprocessing.get_context(way)
            self.executor = ProcessPoolExecutor(processes, context, _start, (exam.template, exam.seed))

    def __enter__(self) -> Callable[[Callable[[Any], Any], Sequence[Any]], Iterator[Any]]:
        return self.executor.map if self.executor else map

    def __exit__(self, *error: object) -> None:
        if self.executor:
            self.executor.shutdown(cancel_futures=True)
        _exam.clear()


def _draw(students: Sequence[Student]) -> list[_Made]:
    exam = _exam[0]
    papers = [exam.paper(student) for student in students]
    return [_Made(paper, key_record(exam, paper)) for paper in papers]


def _write_pages(wanted: Sequence[tuple[Student, int, str, str]], order: Order, output: Path) -> list[dict[str, str]]:
    from symcomm.render import contents, pictures

    exam = _exam[0]
    documents = []
    for student, attempt, _, _ in wanted:
        paper = exam.exactly(student, attempt)
        code = f"{paper.code} {student.id}" if order.qr else ""
        documents.append(replace(document_of(exam, paper, order.edition), code=code))
    edition = order.edition
    for form in order.formats:
        if form in PAGES:
            kind = ("tex" if order.engine == "latex" else "typ") if form == "pdf" else form
            prepare(documents, kind, edition)  # type: ignore[arg-type]  # one of the formats
    lines = []
    for document, (student, _, name, mark) in zip(documents, wanted, strict=True):
        forms = [form for form in order.formats if form in PAGES]
        made = contents(
            document, forms, templates=order.templates, engine=order.engine, edition=edition, name=name, layout="exam"
        )
        files = {f"{name}.{form}": data for form, data in made.items()}
        for form in ("md", "tex"):
            if form in forms:
                files |= pictures.files(document, form, name, edition)
        write_files(files, output)
        lines += [
            {"file": file, "paper": student.id, "from": mark, "sha256": hashlib.sha256(data).hexdigest()}
            for file, data in files.items()
        ]
    return lines


def document_of(exam: Exam, paper: Paper, edition: Edition) -> Document:
    """One paper in one edition."""
    return paper_page(exam, paper) if edition == "paper" else solution_page(exam, paper)


# -- what is there already --------------------------------------------------------------------------


def _fingerprint(exam: Exam, paper: Paper, order: Order) -> str:
    """What a file is made from: the document, the paper, the edition, our version."""
    student = paper.student
    words = [order.version, exam.template.digest, exam.seed, student.id, student.name, student.seat, str(paper.attempt)]
    words += [order.edition, order.engine, *["qr"] * order.qr]
    if order.templates is not None:
        words += [hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(order.templates.glob("*")) if p.is_file()]
    return hashlib.sha256("\0".join(words).encode()).hexdigest()


def _kept(output: Path) -> dict[str, dict[str, str]]:
    """The lines of a manifest; nothing where there is none that can be read."""
    try:
        read = json.loads((output / MANIFEST).read_text(encoding="utf-8"))
        return {line["file"]: line for line in read["files"]}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _is_whole(path: Path, line: dict[str, str] | None, mark: str) -> bool:
    if line is None or line.get("from") != mark:
        return False
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest() == line["sha256"]
    except OSError:
        return False


def _manifest(told: dict[str, dict[str, str]]) -> bytes:
    lines = ",\n".join(json.dumps(told[name], ensure_ascii=False) for name in sorted(told))
    return f'{{"files": [\n{lines}\n]}}\n'.encode()


def _file_names(students: Iterable[Student]) -> list[str]:
    """A name for each student's files that stays in the folder and is nobody else's."""
    made: dict[str, str] = {}
    for student in students:
        name = safe_name(student.id)
        if name in made.values() or name in ("keys", "manifest"):
            name = f"{name}-{hashlib.sha256(student.id.encode()).hexdigest()[:6]}"
        made[student.id] = name
    return [*made.values()]
