"""How many answers are checked a second: ``python benchmarks/answers.py``; exit status 1 below the limits.

The answers are those of tests/data/answers.json, to sixteen questions, without those that are made of pieces.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import symcomm as sc
from symcomm.exams.decision import decide
from symcomm.exams.problems.solve import load_model

DATA = Path(__file__).resolve().parents[1] / "tests" / "data"
NEW, SEEN = 2_000, 20_000  # a second


def main() -> int:
    """Prints the rates; 1 where one is too low."""
    problem = sc.read_problem(DATA / "answers_questions.md")
    models = {ask.model: load_model(problem, ask.model) for ask in problem.asks if ask.model}
    start = time.process_time()
    keys = {ask.label: sc.key_of(problem, ask, models) for ask in problem.asks}
    print(f"{len(keys)} keys in {time.process_time() - start:.2f} s")
    golden = json.loads((DATA / "answers.json").read_text(encoding="utf-8"))["answers"]
    answers = [(keys[a["question"]], a["text"]) for a in golden if a.get("text") is not None]
    start = time.process_time()
    for key, text in answers:
        key.check(text)
    print(f"known answers worked out in {time.process_time() - start:.2f} s")
    rates = []
    for name, limit, check, times in (
        ("new", NEW, decide, 3), ("seen", SEEN, lambda text, key: key.check(text), 20)
    ):  # fmt: skip
        best = 0.0
        for _ in range(3):
            start = time.process_time()
            for _ in range(times):
                for key, text in answers:
                    check(text, key)
            best = max(best, times * len(answers) / (time.process_time() - start))
        rates.append(best >= limit)
        print(f"{name}: {best:,.0f} a second (at least {limit:,})")
    return 0 if all(rates) else 1


if __name__ == "__main__":
    sys.exit(main())
