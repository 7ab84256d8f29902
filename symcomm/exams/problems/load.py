"""``symcomm.load``: a model from whatever a person has at hand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from symcomm.core.files import is_path
from symcomm.exams.problems.problem import parse_problem, read_problem
from symcomm.exams.problems.solve import load_model

if TYPE_CHECKING:
    from symcomm.core.model import Model


def load(source: Any, name: str = "", **options: Any) -> Model:
    """The model of a problem file, of a file or text with a layer table, or of a ``Table``.

    Also of a Hugging Face ``config.json`` (path, text or mapping), of a printed PyTorch module (text, or a path that
    ends in ``.txt``), of a live module or a function that makes one: see ``symcomm.core.readers.reading``. There,
    ``architecture`` names a class, ``leaves`` declares layers of one's own, and ``loss=False`` leaves out the
    cross-entropy of a configuration's head.

    ``name`` chooses among the models of a problem file (the last one by default). ``options`` are those of
    ``symcomm.core.model.load``: ``repeat``, ``batch``, ``dtype``, ``values``, ``inputs``, ``weights``, ``notation``.
    """
    from symcomm.core import model

    known = model.load_known(source, name=name, **options)
    if known is not None:
        return known
    options = {k: v for k, v in options.items() if k not in ("architecture", "leaves", "loss")}  # not said
    if isinstance(source, (str, Path)):
        problem = read_problem(source) if is_path(source) else parse_problem(str(source))
        if problem.models:
            values = options.pop("values", None) or {}
            made = load_model(problem, name, **options)
            return made.at(**values)
    return model.load(source, name=name, **options)
