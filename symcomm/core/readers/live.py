"""Reads a live PyTorch module, or a function that makes one (called on the meta device, where nothing is stored)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from symcomm.core.readers.blueprint import Blueprint, ReaderError
from symcomm.core.readers.modules import Module, count, from_tree
from symcomm.core.readers.recognise import recognise
from symcomm.core.readers.writer import ATTENTION

_SIZES = ("in_features", "out_features", "num_embeddings", "embedding_dim", "nf", "nx")  # what recognising asks for


def is_live(source: object) -> bool:
    """Whether something is a PyTorch module or a function; torch is not imported to find out.

    >>> is_live("BertModel("), is_live(lambda: None)
    (False, True)
    """
    return _is_module(source) or (callable(source) and not isinstance(source, type) and not hasattr(source, "read"))


def _is_module(source: object) -> bool:
    return any(f"{c.__module__}.{c.__name__}" == "torch.nn.modules.module.Module" for c in type(source).__mro__)


def read_live(source: Any) -> Blueprint:
    """The blueprint of a live module; each weight counts once, wherever else it is used again (tied)."""
    if not _is_module(source):
        source = _made(source)
    tree, tied = module_tree(source)
    expected = sum(parameter.numel() for parameter in source.parameters())
    if count(tree) != expected:  # pragma: no cover - the tree holds the same parameters
        raise ReaderError(f"{tree.kind} has {expected} parameters, but its tree holds {count(tree)}")
    notes = tuple(f"{again} is {first} (tied): it is one tensor, counted once" for again, first in tied)
    known = None
    config = getattr(source, "config", None)
    if config is not None and hasattr(config, "to_dict"):
        attends = getattr(config, "_attn_implementation", None)
        said = {"attn_implementation": attends} if attends in ATTENTION else {}
        known = recognise(tree, {**config.to_dict(), **said})
    known = known or recognise(tree)
    if known is not None:
        return replace(known, notes=(*notes, *known.notes))
    return from_tree(tree, notes=notes)


def _made(function: Callable[[], Any]) -> Any:
    """What a function makes, on the meta device."""
    try:
        import torch
    except ImportError:
        raise ReaderError.lacking("torch", "PyTorch is needed to call this function") from None
    with torch.device("meta"):
        try:
            made = function()
        except Exception as error:  # it is the user's own, and may end in anything
            said = f"{type(error).__name__}: {error}"
            hint = "give one that needs no argument, such as lambda: Model(config)"
            raise ReaderError(f"the function that makes the module ended in {said[:200]}", hint=hint) from None
    if not _is_module(made):
        raise ReaderError(f"the function makes a {type(made).__name__}, but a torch.nn.Module is needed")
    return made


def module_tree(source: Any) -> tuple[Module, list[tuple[str, str]]]:
    """The tree of a live module with the shapes of its weights, and the pairs of names that are one tensor.

    Neighbours that are alike become one module with a count, as PyTorch prints them.
    """
    seen: dict[int, str] = {}
    tied: list[tuple[str, str]] = []

    def go(module: Any, name: str, path: str) -> Module:
        shapes = []
        for key, parameter in module._parameters.items():
            if parameter is None:
                continue
            full = f"{path}.{key}" if path else key
            if id(parameter) in seen:
                tied.append((full, seen[id(parameter)]))
                continue
            seen[id(parameter)] = full
            shapes.append((key, tuple(int(n) for n in parameter.shape) or (1,)))
        children: list[Module] = []
        for key, child in module.named_children():
            made = go(child, key, f"{path}.{key}" if path else key)
            last = children[-1] if children else None
            if last is not None and key.isdigit() and replace(last, name="", count=1) == replace(made, name=""):
                first = last.name.split("-")[0]
                children[-1] = replace(last, name=f"{first}-{key}", count=last.count + 1)
            else:
                children.append(made)
        settings = tuple((key, vars(module)[key]) for key in _SIZES if isinstance(vars(module).get(key), int))
        rate = getattr(module, "p", None)
        if isinstance(rate, float):
            settings += (("p", str(rate)),)
        return Module(name, type(module).__name__, settings, tuple(children), shapes=tuple(shapes))

    return go(source, "", ""), tied
