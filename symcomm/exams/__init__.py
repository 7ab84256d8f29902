"""Checking answers: what a student typed, against a derivation and what comes of it under other choices.

The shape, for those who build on it (papers, rubrics, grading, solutions):

- ``key_of(problem, ask, models=None) -> Key`` prepares a question of a problem document once: its derivation, the same
  question under other conventions, and under every misconception (``mistakes``) that changes something. It is symbolic.
- ``Key.at(values) -> Key`` puts other given numbers in; nothing is derived again.
- ``Key.check(answer) -> Verdict`` and ``check(answer, question, ...) -> Verdict`` decide an answer.
- ``mistakes_of(key) -> tuple[Wrong, ...]`` are the mistakes that apply, each with names, one sentence (``says``), the
  wrong expression (``expr``) and ``at(values)``, its number: distractors, and the "common mistakes" of solutions.
  ``Key.conventions`` are the same for other conventions.
- ``Verdict`` is a record of text, names and numbers; ``Verdict.record()`` is the same as plain JSON data.
"""
