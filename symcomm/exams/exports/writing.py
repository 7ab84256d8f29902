"""Writes the questions of an exam for other systems: in parallel, every file whole or not there.

A process draws some variants and hands back what each format needs of them. The files of a format are put together
from all pieces; the manifest tells them by their SHA-256, so that a format that is finished is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from hashlib import sha256
from itertools import chain
from math import ceil
from pathlib import Path
from typing import Any

from symcomm.core.errors import DocumentError
from symcomm.core.files import write_files
from symcomm.core.garbage import collected_rarely
from symcomm.core.records import dataclass, replace
from symcomm.exams.exports import EXPORTERS, OURS
from symcomm.exams.exports.drawing import exam_of, items_of
from symcomm.exams.manifest import Line, fingerprint, is_whole, read_manifest, write_manifest
from symcomm.exams.pages import has_words
from symcomm.exams.papers import AssignedPaper
from symcomm.exams.problems.problem import Template
from symcomm.exams.processes import Pool, exam_here
from symcomm.exams.roster import Student, numbered

_CHUNK = 20  # variants that one process draws at a time
Progress = Callable[[int, int, str], None]
_Pieces = dict[str, list[tuple[str, Any]]]  # of a variant by format, each with the name of its question


@dataclass(frozen=True)
class WrittenExport:
    """The files of one format: the first of them by its name, the questions, the bytes, and what is to be told."""

    path: Path
    files: int
    questions: int
    size: int
    notes: tuple[str, ...] = ()


@collected_rarely()  # by its processes, too
def export(
    template: Template, names: Sequence[str], variants: int, seed: str, output: Path, *,
    tolerance: Fraction | None = None, version: str = "", processes: int | None = None,
    progress: Progress | None = None,
) -> list[WrittenExport]:  # fmt: skip
    """Writes all questions of a document in so many variants for some systems; what is there already is kept.

    Raises ``DocumentError`` for a document without questions and for what a format cannot hold, ``RenderError`` where
    the folder cannot be written.
    """
    if variants < 1:
        raise DocumentError(f"--variants is {variants}; at least 1 is drawn")
    exam = exam_of(template, seed, tolerance)
    exam.check_space(variants)
    tell = progress or (lambda done, total, label: None)
    title, told = exam.example.title, read_manifest(output)
    words = [version, template.digest, seed, str(variants), str(tolerance)]
    marks = {name: fingerprint([*words, name]) for name in names}
    missing = [name for name in names if not _is_there(output, told, marks[name])]
    drawn: list[tuple[AssignedPaper, _Pieces]] = []
    if missing:
        with Pool(exam, processes, ceil(variants / _CHUNK), {*missing} - OURS or None) as pool:
            draw = partial(_draw, title=title, names=missing, tolerance=tolerance)
            begun = [(student, 0) for student in numbered(variants)]
            drawn = pool.papers(draw, begun, _CHUNK, lambda done: tell(done, variants + _CHUNK, "drawing"))
    for name in missing:
        found: dict[str, list[Any]] = {}
        for question, piece in chain.from_iterable(pieces.pop(name) for _, pieces in drawn):
            found.setdefault(question, []).append(piece)
        files = EXPORTERS[name].whole(title, [piece for pieces in found.values() for piece in pieces])
        write_files(files, output)
        told = {file: line for file, line in told.items() if line.get("from") != marks[name]}
        told |= {
            file: {"file": file, "from": marks[name], "sha256": sha256(data).hexdigest(), "questions": str(len(found))}
            for file, data in files.items()
        }
        write_manifest(output, told)
    language = exam.example.language
    note = f"the words around the questions are English: there are none in '{language[:40]}'"
    made = [_written(output, [line for line in told.values() if line.get("from") == marks[name]]) for name in names]
    return made if has_words(language) else [replace(one, notes=(note,)) for one in made]


def _is_there(output: Path, told: dict[str, Line], mark: str) -> bool:
    lines = [line for line in told.values() if line.get("from") == mark]
    return bool(lines) and all(is_whole(output / line["file"], line, mark) for line in lines)


def _written(output: Path, lines: Sequence[Line]) -> WrittenExport:
    first = min(line["file"] for line in lines)
    path = output / (first if len(lines) == 1 else first.split("/")[0])
    size = sum((output / line["file"]).stat().st_size for line in lines)
    return WrittenExport(path, len(lines), int(lines[0]["questions"]), size)


def _draw(
    variants: Sequence[tuple[Student, int]], title: str, names: Sequence[str], tolerance: Fraction | None
) -> list[tuple[AssignedPaper, _Pieces]]:
    exam = exam_here()
    papers = [exam.paper(student, attempt) for student, attempt in variants]
    drawn: list[tuple[AssignedPaper, _Pieces]] = [(paper.settled, {name: [] for name in names}) for paper in papers]
    by_variant = {int(paper.student.id): pieces for paper, pieces in drawn}
    for item in items_of(exam, papers, tolerance):
        for name in names:
            by_variant[item.variant][name].append((item.id, EXPORTERS[name].piece(title, item)))
    return drawn
