"""Work on the papers of one exam in several processes, which share what was derived before they were started."""

from __future__ import annotations

import gc
import multiprocessing
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import chain
from typing import Any, TypeVar

from symcomm.exams.papers import AssignedPaper, Exam
from symcomm.exams.problems.problem import Template
from symcomm.exams.roster import Student

Task = TypeVar("Task")
Made = TypeVar("Made")

_here: list[tuple[Exam, Any]] = []  # of this process; a fork has what its parent derived, and what else is shared


def exam_here() -> Exam:
    """The exam that this process works on."""
    return _here[0][0]


def shared_here() -> Any:
    """The data of this process beside the exam."""
    return _here[0][1]


def _start(template: Template, seed: str, whole: bool) -> None:
    gc.freeze()  # what is there stays, and is not looked through again
    if not _here:
        _here.append((Exam(template, seed, whole), None))


class Pool:
    """Runs a function on tasks in several processes, or in this one where one is enough.

    The processes begin with the first task, with all that was derived until then where the platform can fork. What is
    ``shared`` besides goes to forks alone: with it, one process works where there are none.
    """

    def __init__(self, exam: Exam, processes: int | None, tasks: int, shared: object = None) -> None:
        self.exam, self.shared, self.count = exam, shared, min(processes or multiprocessing.cpu_count(), tasks)
        if shared is not None and sys.platform != "linux":
            self.count = 1
        self.executor: ProcessPoolExecutor | None = None

    def __enter__(self) -> Pool:
        _here[:] = [(self.exam, self.shared)]
        return self

    def run(
        self, work: Callable[[Task], Made], tasks: Iterable[Task], effort: Callable[[Task], int] = lambda task: 0
    ) -> Iterator[Made]:
        """The result of each task, whichever is finished first; several processes begin with the longest."""
        todo: Sequence[Task] = [*tasks]
        if self.count < 2 or len(todo) < 2:
            yield from map(work, todo)
            return
        way = "fork" if sys.platform == "linux" else None
        if self.executor is None:
            about = (self.exam.template, self.exam.seed, self.exam.whole)
            self.executor = ProcessPoolExecutor(self.count, multiprocessing.get_context(way), _start, about)
        begun = [self.executor.submit(work, task) for task in sorted(todo, key=effort, reverse=True)]
        yield from (done.result() for done in as_completed(begun))

    def papers(
        self, draw: Callable[[Sequence[tuple[Student, int]]], Iterable[tuple[AssignedPaper, Made]]],
        students: Sequence[tuple[Student, int]], size: int, tell: Callable[[int], None],
    ) -> list[tuple[AssignedPaper, Made]]:  # fmt: skip
        """The paper of each student from an attempt on, no two alike, and its result; so many are drawn at a time.

        The first are drawn before the processes begin: what all need is derived with them.
        """
        chunks = [students[n : n + size] for n in range(0, len(students), size)]
        found: dict[str, tuple[AssignedPaper, Made]] = {}
        for made in chain([draw(chunks[0])], self.run(draw, chunks[1:])):
            found |= {one[0].student.id: one for one in made}
            tell(len(found))
        first = [found[student.id][0] for student, _ in students]
        settled = self.exam.settled(first)
        again = [(new.student, new.attempt) for new, old in zip(settled, first, strict=True) if new != old]
        found |= {one[0].student.id: one for one in draw(again)}
        return [found[student.id] for student, _ in students]

    def __exit__(self, *error: object) -> None:
        if self.executor:
            self.executor.shutdown(cancel_futures=True)
        _here.clear()
