"""The blueprint of whatever a person has at hand: a configuration, a printed module tree or a live module."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from symcomm.core.files import is_path, read_text
from symcomm.core.readers.blueprint import Blueprint, ReaderError

Source = TypeVar("Source")
Leaves = Mapping[str, list[tuple[int, ...]]]


_WANTED = "the path of a problem file, a table, a configuration or a printed module"


def read(
    source: object, file: str = "", architecture: str = "", leaves: Leaves | None = None, loss: bool | None = None
) -> Blueprint | None:
    """The blueprint of a configuration, a printed module tree or a live module; None where it is none of them.

    ``source`` is a path, a text, a mapping (a configuration), or a PyTorch module or a function that makes one.
    ``architecture`` is the class name meant, over the one a configuration says; ``leaves`` declares the shapes of the
    weights of layer classes of one's own in a printed tree. ``loss`` says whether the cross-entropy of a
    configuration's head counts: that of a language model does, if not said.

    Raises ``ReaderError`` where a loss is asked for of anything else: a module says itself what it computes.
    """
    from symcomm.core.readers.config import read_config
    from symcomm.core.readers.entries import Config, is_config
    from symcomm.core.readers.live import is_live, read_live
    from symcomm.core.readers.module_text import is_module_text, module_inside, read_module_text
    from symcomm.core.text.finder import layer_tables

    if is_live(source):
        return read_live(_without_loss(source, "a module", loss))
    if isinstance(source, Mapping):
        return read_config(Config(dict(source)), architecture=architecture, loss=loss)
    if not isinstance(source, (str, Path)):
        return None
    if is_path(source) and (isinstance(source, Path) or not (is_config(source) or is_module_text(source))):
        path = Path(source)
        if path.suffix not in (".json", ".txt"):
            return None
        file, text = file or str(source), read_text(path, _WANTED)
        if path.suffix == ".json":
            return read_config(text, file, architecture, loss)
    else:
        text = str(source).removeprefix("\ufeff")
    if is_config(text):
        return read_config(text, file or "<config>", architecture, loss)
    tree = text if is_module_text(text) else None
    if tree is None and "```symcomm" not in text:
        tree = module_inside(text, file or "<text>")
        if tree is not None and layer_tables(text, file):
            return None  # a document with both is about its table
    if tree is not None:
        return read_module_text(_without_loss(tree, file or "a printed module", loss), file or "<module>", leaves)
    return None


def _without_loss(source: Source, what: str, loss: bool | None) -> Source:
    if loss:
        raise ReaderError(
            f"no loss can be added to {what}", hint="loss=True is for a configuration (config.json) with a head"
        )
    return source
