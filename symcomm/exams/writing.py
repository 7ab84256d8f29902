"""Writes the papers of a class: in parallel, resumable, every file whole or not there.

A manifest beside the files says what each was made from and what its SHA-256 is. What is there with both the same is
kept; everything else is made again.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from math import ceil
from pathlib import Path
from typing import Any

from symcomm.core.files import write_files
from symcomm.core.form import Form
from symcomm.core.garbage import collected_rarely
from symcomm.core.printing.forms import plain
from symcomm.core.records import ByIdentity, dataclass, replace
from symcomm.documents.editions import Edition
from symcomm.documents.render import Engine, safe_name
from symcomm.documents.render.view import prepare
from symcomm.exams.manifest import fingerprint, is_whole, read_manifest, write_manifest
from symcomm.exams.pages import paper_page, solution_page
from symcomm.exams.papers import AssignedPaper, Exam, Paper
from symcomm.exams.problems.problem import Template
from symcomm.exams.problems.randomness import NAME
from symcomm.exams.problems.solve import solve
from symcomm.exams.processes import Pool, exam_here
from symcomm.exams.roster import Student, csv_text

PAGES = ("pdf", "md", "html", "tex")
_DEVICE = re.compile(r"(?:con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])(?:\..*)?", re.IGNORECASE)  # to Windows
_CHUNK = 25  # papers that one process makes at a time
Progress = Callable[[int, int, str], None]
COLUMNS = ("student", "name", "seat", "paper", "attempt", "number", "id", "points", "choice", "answer", "value",
           "unit", "formula")  # fmt: skip


@lru_cache(2048)  # papers share most formulas
def _plain(form: ByIdentity[Form]) -> str:
    return plain(form.it)


def key_record(exam: Exam, paper: Paper) -> dict[str, Any]:
    """The key of one paper as plain data."""
    answers = []
    for part, _, answer in exam.answered(paper):
        quantity, formula = answer.quantity, _plain(ByIdentity(answer.derivation.answer_form))
        record: dict[str, Any] = {
            "number": part.number, "id": part.id, "points": str(part.points),
            "answer": formula if quantity is None else str(quantity),
            "value": "" if quantity is None else str(quantity.value), "unit": str(answer.derivation.unit),
            "formula": formula,
        }  # fmt: skip
        if part.choices:
            record |= {"choice": part.right, "options": [choice.text for choice in part.choices]}
        answers.append(record)
    student = paper.student
    return {
        "student": student.id, "name": student.name, "seat": student.seat, "paper": paper.code,
        "attempt": paper.attempt, "drawn": {name: told.text for name, told in paper.drawn.items()},
        "answers": answers,
    }  # fmt: skip


def keys_json(exam: Exam, records: Iterable[dict[str, Any]]) -> str:
    """All keys as one JSON file."""
    head = {"file": exam.example.title, "seed": exam.seed, "generator": NAME, "draws": exam.template.draws.digest}
    lines = ",\n".join(json.dumps(record, ensure_ascii=False) for record in records)
    return json.dumps(head, ensure_ascii=False)[:-1] + f', "papers": [\n{lines}\n]}}\n'


def keys_csv(records: Iterable[dict[str, Any]]) -> str:
    """All keys as CSV: one row an answer."""
    rows = []
    for record in records:
        head = [record[key] for key in COLUMNS[:5]]
        rows += [[*head, *(answer.get(key, "") for key in COLUMNS[5:])] for answer in record["answers"]]
    return csv_text(COLUMNS, rows)


@dataclass(frozen=True)
class Order:
    """The files to make for each paper: the formats of its pages, the edition, and the template folder.

    With ``qr`` the first page has a QR code of the paper and its student. Files of another ``version`` of the program
    are made again.
    """

    formats: tuple[str, ...]
    edition: Edition
    templates: Path | None = None
    engine: Engine = "typst"
    version: str = ""
    qr: bool = False

    def notes(self, students: Sequence[Student]) -> list[str]:
        """A line for each student whose files have another name than their id."""
        pairs = zip(students, _file_names(students), strict=True) if {*self.formats} & {*PAGES} else ()
        return [
            f"the files of {one.id} are named {name}: {one.id} is a device or another file on Windows or macOS"
            for one, name in pairs if name != safe_name(one.id)
        ]  # fmt: skip


@collected_rarely()  # by its processes, too
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
    tell = progress or (lambda done, total, label: None)
    begun = [(student, exam.first_attempt(n)) for n, student in enumerate(students)]
    pages = tuple(f for f in order.formats if f in PAGES)
    if pages and order.edition == "paper":
        from symcomm.documents.render import contents

        contents(solve(exam.example), (), edition="paper")  # refused where its words tell an answer
    whole = len(students) * (1 + bool(pages))
    with Pool(exam, processes, ceil(len(begun) / _CHUNK)) as pool:
        draw = partial(_draw, keys=bool({*order.formats} & {"json", "csv"}))
        drawn = pool.papers(draw, begun, _CHUNK, lambda done: tell(done, whole, "drawing"))
        records = [record for _, record in drawn]
        files: dict[str, bytes] = {}
        if "json" in order.formats:
            files["keys.json"] = keys_json(exam, records).encode()
        if "csv" in order.formats:
            files["keys.csv"] = keys_csv(records).encode()
        told = read_manifest(output)
        wanted = []
        paths: list[Path] = []
        for (paper, _), name in zip(drawn, names, strict=True):
            mark = _mark(exam, paper, order)
            stems = [f"{name}.{form}" for form in pages]
            if all(is_whole(output / stem, told.get(stem), mark) for stem in stems):
                paths += [output / stem for stem in stems]
            else:
                wanted.append((paper.student, paper.attempt, name, mark))
        done = len(students) * 2 - len(wanted)
        if pages and wanted:
            output.mkdir(parents=True, exist_ok=True)
            groups = [wanted[n : n + _CHUNK] for n in range(0, len(wanted), _CHUNK)]
            for lines in pool.run(partial(_write_pages, order=order, output=output), groups):
                told |= {line["file"]: line for line in lines}
                paths += [output / line["file"] for line in lines]
                write_manifest(output, told)
                done += len({line["paper"] for line in lines})
                tell(done, whole, "writing")
    paths += write_files(files, output)
    tell(whole, whole, "")
    return sorted(set(paths))


# -- in a process -----------------------------------------------------------------------------------


def _draw(students: Sequence[tuple[Student, int]], keys: bool) -> list[tuple[AssignedPaper, dict[str, Any]]]:
    exam = exam_here()
    papers = [exam.paper(student, attempt) for student, attempt in students]
    return [(paper.settled, key_record(exam, paper) if keys else {}) for paper in papers]


def _write_pages(wanted: Sequence[tuple[Student, int, str, str]], order: Order, output: Path) -> list[dict[str, str]]:
    from symcomm.documents.render import contents, pictures

    exam = exam_here()
    documents = []
    for student, attempt, _, _ in wanted:
        paper = exam.exactly(student, attempt)
        code = f"{paper.code} {student.id}" if order.qr else ""
        page = paper_page if order.edition == "paper" else solution_page
        documents.append(replace(page(exam, paper), code=code))
    edition, forms = order.edition, [form for form in order.formats if form in PAGES]
    for form in forms:
        kind = ("tex" if order.engine == "latex" else "typ") if form == "pdf" else form
        prepare(documents, kind, edition)  # type: ignore[arg-type]  # one of the formats
    lines = []
    for document, (student, _, name, mark) in zip(documents, wanted, strict=True):
        made = contents(
            document, forms, templates=order.templates, engine=order.engine, edition=edition, name=name, layout="exam"
        )
        files = {f"{name}.{form}": data for form, data in made.items()}
        for form in sorted({"md", "tex"} & {*forms}):
            files |= pictures.files(document, form, name, edition)
        write_files(files, output)
        lines += [
            {"file": file, "paper": student.id, "from": mark, "sha256": hashlib.sha256(data).hexdigest()}
            for file, data in files.items()
        ]
    return lines


# -- what is there already --------------------------------------------------------------------------


def _mark(exam: Exam, paper: AssignedPaper, order: Order) -> str:
    """What a file is made from: the document, the paper, the edition, our version."""
    student = paper.student
    words = [order.version, exam.template.digest, exam.seed, student.id, student.name, student.seat, str(paper.attempt)]
    words += [order.edition, order.engine, *["qr"] * order.qr]
    if order.templates is not None:
        words += [hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(order.templates.glob("*")) if p.is_file()]
    return fingerprint(words)


def _file_names(students: Iterable[Student]) -> list[str]:
    """A name for each student's files that stays in the folder and is nobody else's, on Windows and macOS as well."""
    made: list[str] = []
    taken = {"keys", "manifest"}
    for student in students:
        name = safe_name(student.id)
        if name.casefold() in taken or _DEVICE.fullmatch(name):
            name = f"{name}-{hashlib.sha256(student.id.encode()).hexdigest()[:6]}"
        taken.add(name.casefold())
        made.append(name)
    return made
