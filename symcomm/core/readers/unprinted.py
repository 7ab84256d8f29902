"""The facts that a print leaves out: weights that are one tensor, weights that are no modules, further sizes.

What a known class makes certain is put into the tree, with a note; what stays open is said by name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from symcomm.core.readers.architectures import ARCHITECTURES
from symcomm.core.readers.blueprint import ReaderError
from symcomm.core.readers.modules import Module, Shapes, leaf, weights

# Further families of transformers whose head is the word embedding unless their configuration says otherwise.
_TIED = ("Mamba", "Bloom", "GPTNeo", "GPTBigCode", "Mpt", "Starcoder2", "SmolLM3", "Cohere", "Gemma3")
_HEADS = ("ForCausalLM", "LMHeadModel", "ForMaskedLM", "ForConditionalGeneration")
_GPT2_PRODUCTS = {"c_attn": (3, 1), "c_fc": (4, 1)}  # outputs and inputs, in widths of the model


def _mamba(module: Module) -> Shapes:
    """``A_log`` and ``D`` of a selective state space (arXiv 2312.00752): x_proj makes a rank and two states."""
    projection, rank = (_only(module, name, "W") for name in ("x_proj", "dt_proj"))
    return (("W1", (projection[0], (projection[1] - rank[0]) // 2)), ("W2", (projection[0],)))


def _fused_projections(module: Module) -> Shapes:
    """PyTorch's own attention: queries, keys and values in one matrix, as wide as the output's."""
    made = next((dict(weights(one)) for one in module.children if one.name == "out_proj"), {})
    rows, columns = made.get("W", (0, 0))
    if not rows:
        raise ReaderError(f"{module.kind} has no out_proj", module.span, "is the text cut?")
    return (("W", (3 * rows, columns)), *((("b", (3 * rows,)),) if "b" in made else ()))


def _scale(module: Module) -> Shapes:
    return (("W", (1,)),)


# Weights that classes hold besides their modules, where the modules say how large they are.
_OWN: dict[str, tuple[str, Callable[[Module], Shapes]]] = {
    "MultiheadAttention": ("in_proj_weight and in_proj_bias", _fused_projections),
    "MambaMixer": ("A_log and D", _mamba),
    "CLIPVisionEmbeddings": ("class_embedding", lambda module: (("W", (_only(module, "patch_embedding", "W")[0],)),)),
    "CLIPModel": ("logit_scale", _scale),
}
# Such weights whose size no module says.
_UNSEEN = {
    "Gemma3MultiModalProjector": "mm_input_projection_weight",
    "SiglipMultiheadAttentionPoolingHead": "probe",
    "ViTEmbeddings": "cls_token and position_embeddings",
    "DeiTEmbeddings": "cls_token, distillation_token and position_embeddings",
    "Dinov2Embeddings": "cls_token, mask_token and position_embeddings",
}
_WITHOUT_WEIGHTS = {"OlmoLayerNorm"}


def completed(module: Module) -> tuple[Module, tuple[str, ...]]:
    """The tree with what its known classes hold other than what is printed, and notes on that.

    Raises ``ReaderError`` for experts and routers, whose weights no print shows.
    """
    notes: dict[str, None] = {}
    tables = [dict(weights(one))["W"] for _, one, _ in module.walk() if _is(one, "Embedding") and not one.children]
    table = max(tables, default=None)  # of words there are more than of positions
    ties = _ties(module, table, notes)

    def go(one: Module, parent: Module | None, path: str) -> Module:
        known = leaf(one.kind) if not one.children else None
        if known is not None and known.ending and known.kind in ("Linear", "Embedding", "LayerNorm"):
            notes[f"{one.kind} is read as a {known.kind}, like which it is called and printed"] = None
        if path in ties:
            return replace(one, shapes=tuple(pair for pair in weights(one) if pair[0] != "W"))
        children = tuple(go(child, one, f"{path}.{child.name}" if path else child.name) for child in one.children)
        return replace(one, children=children, shapes=_shapes(one, parent, table, notes))

    made = go(module, None, "")
    return made, tuple(notes)


def _shapes(one: Module, parent: Module | None, table: tuple[int, ...] | None, notes: dict[str, None]) -> Shapes | None:
    """The weights of a module that it does not print, or what was known of them before."""
    kind = one.kind
    if one.shapes is not None:
        return one.shapes
    if kind in _OWN:
        names, shapes = _OWN[kind]
        notes[f"{names} of {kind} are no modules: they are not printed, but counted"] = None
        return shapes(one)
    if kind in _UNSEEN:
        notes[f"{_UNSEEN[kind]} of {kind} are no modules: a print does not show them, and they are NOT counted"] = None
    if kind.endswith(("Experts", "Router")) and not any(weights(m) for _, m, _ in one.walk() if m is not one):
        raise ReaderError(
            f"a print shows none of the weights of {kind}", one.span,
            f"give the config.json or the module itself, or declare them: leaves={{'{kind}': [(8, 768)]}}",
        )  # fmt: skip
    if kind in _WITHOUT_WEIGHTS:
        return ()
    if one.children or one.settings or table is None:
        return None
    width = table[1]
    if kind == "Conv1D" and parent is not None and parent.kind.startswith("GPT2"):
        m, n = _GPT2_PRODUCTS.get(one.name, (1, 4 if parent.kind.endswith("MLP") else 1))
        notes["Conv1D is printed without its sizes: a feed-forward block is supposed to be 4 times as wide"] = None
        return (("W", (n * width, m * width)), ("b", (m * width,)))
    if kind.endswith("Norm") and not kind.startswith(("LayerNorm", "RMSNorm")) and one.name not in ("q_norm", "k_norm"):
        notes[f"{kind} is printed without its size: a scale as wide as the embedding, {width}"] = None
        return (("gamma", (width,)),)
    return None


def _ties(module: Module, table: tuple[int, ...] | None, notes: dict[str, None]) -> set[str]:
    """The paths of the weights that are the word embedding, where the class ties them; else a note on which may be."""
    if table is None:
        return set()
    same = [
        path for path, one, times in module.walk()
        if times == 1 and not one.children and not any(name.isdigit() for name in path.split("."))
        and (_is(one, "Linear") or _is(one, "Embedding"))
        and sorted(dict(weights(one)).get("W", ())) == sorted(table)
    ]  # fmt: skip
    first, same = [path.rpartition(".")[2] for path in same[:1]], same[1:]
    if not same:
        return set()
    record = next((a for a in ARCHITECTURES.values() if module.kind in (a.prefix + s for s in a.heads)), None)
    tied = record.tied if record else module.kind in {prefix + head for prefix in _TIED for head in _HEADS}
    tied = tied or first == ["shared"]  # the table of an encoder and a decoder, and of the head behind them
    names = " and ".join(same)
    if tied:
        notes[f"{names}: a print does not show whether this is the word embedding (tied); read as one tensor, which "
              f"{module.kind} has unless its configuration says otherwise"] = None  # fmt: skip
        return set(same)
    notes[f"{names}: a print does not show whether this is the word embedding (tied); counted as a tensor of its own"
          ] = None  # fmt: skip
    return set()


def _is(module: Module, kind: str) -> bool:
    known = leaf(module.kind)
    return known is not None and known.kind == kind


def _only(module: Module, child: str, letter: str) -> tuple[int, ...]:
    """The shape of a child's weight."""
    found = next((one for one in module.children if one.name == child), None)
    if found is None:
        raise ReaderError(f"{module.kind} has no {child}", module.span, "is the text cut?")
    return dict(weights(found))[letter]
