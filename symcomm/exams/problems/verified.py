"""Runs in PyTorch that a document asks for (``verify:``): their tables, read from a file beside the document.

Solving starts no process: ``symcomm verify FILE --asked`` runs what is asked for and writes the file, with the versions
it was made with. A run belongs to a table and a strategy; where one of them has changed, it has to be made again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from symcomm.core.derivation import Derivation, Exhibit
from symcomm.core.model import Model
from symcomm.exams.problems.problem import Ask


def cache_path(file: str) -> Path:
    """Where the runs of a document are kept.

    >>> cache_path("a/homework.md").as_posix()
    'a/homework.verified.json'
    """
    return Path(file).with_suffix(".verified.json")


def asked_strategy(ask: Ask) -> str:
    """The strategy that a question wants run: its own, or the one that ``verify`` names; empty where it wants none.

    Raises ``DocumentError`` where there is none that can be run.
    """
    if ask.verify.lower() not in ("", "true", "false"):
        return ask.verify
    if ask.verify.lower() != "true":
        return ""
    own = ask.section.text("strategy") if "strategy" in ask.section else ""
    if not own:
        problem = "this question has no strategy that could be run"
        raise ask.section.error("verify", problem, "name one: verify: data(2)")
    return own


def run_key(model: Model, strategy: str, softmax: str = "as_given") -> str:
    """The key of a run: the tables of a model, a strategy, and how attention is written where that was given."""
    regions = [(region.name, region.times) for region in model.graph.regions]
    form = [softmax] if softmax != "as_given" else []
    step = model.graph.step
    if step is not None:  # it has no tables of its own
        made = [f"{op.kind} {op.output} {model.graph.sizes(op.output)}" for op in model.graph.ops]
        form += [step.phase, str(step.new), str(step.past), *made]
    said = json.dumps([*model.tables, regions, strategy, *form], ensure_ascii=False)
    return hashlib.sha256(said.encode()).hexdigest()[:32]


def with_run(file: str, ask: Ask, model: Model | None, derived: Derivation, softmax: str = "as_given") -> Derivation:
    """The derivation with the table of its run in PyTorch, where the question wants one.

    ``softmax`` is the document's convention: a run with another one belongs to another question. Raises
    ``DocumentError`` where it has not been run as it stands.
    """
    strategy = asked_strategy(ask)
    if not strategy or model is None:
        return derived
    try:
        kept = json.loads(cache_path(file).read_text(encoding="utf-8"))
        run = kept["runs"][run_key(model, strategy, softmax)]
        shown = _exhibit(run, str(kept["symcomm"]))
    except (OSError, ValueError, KeyError, TypeError):
        problem = "this question has not been run in PyTorch as it stands"
        raise ask.section.error("verify", problem, f"symcomm verify {Path(file).name} --asked") from None
    return replace(derived, exhibits=(*derived.exhibits, shown))


def _exhibit(run: Mapping[str, Any], version: str) -> Exhibit:
    sizes = ", ".join(f"{name} = {size}" for name, size in run["sizes"].items())
    ranks = "one process" if run["ranks"] == 1 else f"{run['ranks']} processes"
    title = f"Run in PyTorch {run['torch']} by {run['interface']} on {ranks}, {sizes} (symcomm {version})"
    rows = tuple(
        (str(r["what"]), f"{r['derived']} {r['unit']}", f"{r['measured']} {r['unit']}", str(r["difference"]),
         ", ".join(r["explained"]).replace("_", " "))
        for r in run["rows"]
    )  # fmt: skip
    return Exhibit(title, ("what", "derived", "measured", "difference", "explained by"), rows)
