"""A live PyTorch module gives the counts of its own parameters, tied ones once, on the meta device as well."""

from __future__ import annotations

from typing import Any

import pytest
from api import Model, SymcommError, load_known, module_tree

import symcomm as sc

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
nn = torch.nn


def numel(module: Any) -> int:
    return sum(p.numel() for p in module.parameters())


def load(source: Any) -> Model:
    made = load_known(source, dtype="fp32")
    assert made is not None
    return made


def named(name: str, **children: Any) -> Any:
    """A module of a class called ``name``."""
    made = type(name, (nn.Module,), {})()
    for key, child in children.items():
        made.add_module(key, child)
    return made


def bert(layers: int = 3, d: int = 24, f: int = 96, v: int = 50, masked: bool = False) -> Any:
    def norm() -> Any:
        return nn.LayerNorm(d, eps=1e-12)

    def layer() -> Any:
        own = named("BertSdpaSelfAttention", query=nn.Linear(d, d), key=nn.Linear(d, d), value=nn.Linear(d, d),
                    dropout=nn.Dropout(0.1))  # fmt: skip
        out = named("BertSelfOutput", dense=nn.Linear(d, d), LayerNorm=norm(), dropout=nn.Dropout(0.1))
        return named(
            "BertLayer", attention=named("BertAttention", self=own, output=out),
            intermediate=named("BertIntermediate", dense=nn.Linear(d, f), intermediate_act_fn=nn.GELU()),
            output=named("BertOutput", dense=nn.Linear(f, d), LayerNorm=norm(), dropout=nn.Dropout(0.1)),
        )  # fmt: skip

    embeddings = named(
        "BertEmbeddings", word_embeddings=nn.Embedding(v, d), position_embeddings=nn.Embedding(16, d),
        token_type_embeddings=nn.Embedding(2, d), LayerNorm=norm(), dropout=nn.Dropout(0.1),
    )  # fmt: skip
    encoder = named("BertEncoder", layer=nn.ModuleList([layer() for _ in range(layers)]))
    if not masked:
        pooler = named("BertPooler", dense=nn.Linear(d, d), activation=nn.Tanh())
        return named("BertModel", embeddings=embeddings, encoder=encoder, pooler=pooler)
    transform = named("BertPredictionHeadTransform", dense=nn.Linear(d, d), act=nn.GELU(), LayerNorm=norm())
    decoder = nn.Linear(d, v)
    decoder.weight = embeddings.word_embeddings.weight
    head = named("BertLMPredictionHead", transform=transform, decoder=decoder)
    return named("BertForMaskedLM", bert=named("BertModel", embeddings=embeddings, encoder=encoder),
                 cls=named("BertOnlyMLMHead", predictions=head))  # fmt: skip


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("masked", [False, True])
def test_bert_is_recognised_and_has_as_many_parameters_as_torch_says(layers: int, masked: bool) -> None:
    module = bert(layers, masked=masked)
    model = load(module)
    assert model.graph.flow
    assert model.parameters().at().value == numel(module)


def test_bert_base_on_the_meta_device_has_the_published_count() -> None:
    for masked, parameters in ((False, 109_482_240), (True, 109_514_298)):
        model = load(lambda masked=masked: bert(12, 768, 3072, 50, masked=masked))
        smaller = (30522 - 50) * 768 + (512 - 16) * 768 + (30522 - 50) * masked
        assert model.parameters().at().value == parameters - smaller


def test_a_printed_module_and_the_module_itself_give_the_same_graph() -> None:
    module = bert()
    printed, live = load(str(module) + "\n"), load(module)
    assert printed.tables == live.tables
    assert printed.values == live.values


def test_a_function_that_fails_is_told_with_its_error() -> None:
    def no_model() -> None:
        raise FileNotFoundError("no weights here")

    with pytest.raises(SymcommError) as caught:
        sc.load(no_model)
    assert str(caught.value) == (
        "the function that makes the module ended in FileNotFoundError: no weights here\n"
        "hint: give one that needs no argument, such as lambda: Model(config)"
    )


def test_a_tied_weight_counts_once_and_is_told() -> None:
    model = load(bert(masked=True))
    told = "cls.predictions.decoder.weight is bert.embeddings.word_embeddings.weight (tied)"
    assert any(told in note for note in model.notes)


MODULES: list[tuple[str, Any]] = [
    ("a perceptron", lambda: nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2, bias=False))),
    ("a convolution", lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(8, 2))),
    ("groups", lambda: nn.Sequential(nn.Conv1d(4, 8, 3, groups=2), nn.GroupNorm(2, 8), nn.RMSNorm(7))),
    ("attention", lambda: nn.MultiheadAttention(8, 2)),
    ("an encoder", lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16), 3, enable_nested_tensor=False)),
    ("a recurrent net", lambda: nn.LSTM(4, 6, 2)),
    ("a parameter of a container", lambda: _with_token()),
]


def _with_token() -> Any:
    made = nn.Sequential(nn.Linear(2, 2))
    made.register_parameter("token", nn.Parameter(torch.zeros(1, 1, 5)))
    made.register_parameter("scale", nn.Parameter(torch.tensor(1.0)))
    return made


@pytest.mark.parametrize("make", [m for _, m in MODULES], ids=[n for n, _ in MODULES])
def test_any_module_has_as_many_parameters_as_torch_says(make: Any) -> None:
    for source in (make(), make):
        assert load(source).parameters().at().value == numel(make())


@pytest.mark.parametrize("make", [m for _, m in MODULES[:3]], ids=[n for n, _ in MODULES[:3]])
def test_the_print_of_a_module_of_known_layers_has_as_many_parameters(make: Any) -> None:
    assert load(str(make()) + "\n").parameters().at().value == numel(make())


def test_alike_neighbours_become_one_with_a_count() -> None:
    tree, _ = module_tree(nn.ModuleList([nn.Linear(2, 2) for _ in range(6)] + [nn.Linear(2, 3)]))
    assert [(c.name, c.count) for c in tree.children] == [("0-5", 6), ("6", 1)]


def test_data_parallelism_reduces_every_gradient_of_a_module() -> None:
    module = bert(masked=True)
    assert load(module).communication("data(2)").at().value == 4 * numel(module)


def test_a_function_that_makes_something_else_is_refused() -> None:
    with pytest.raises(SymcommError, match=r"makes a int, but a torch\.nn\.Module is needed"):
        sc.load(lambda: 3)


def test_a_module_without_weights_is_refused() -> None:
    with pytest.raises(SymcommError, match="ReLU has no weights"):
        sc.load(nn.ReLU())
