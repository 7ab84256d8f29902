"""Models that ``transformers`` makes: their parameters and FLOPs are ours, live, printed and from a configuration."""

from __future__ import annotations

import json
from typing import Any

import pytest
from api import _HEADS, _TIED, ARCHITECTURES, SymcommError, _misspelled, class_names, load_known, read_config
from family_cases import FAMILIES, SMALL

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
flop_counter = pytest.importorskip("torch.utils.flop_counter")
UNKNOWN_THERE = {"moe_layer_freq", "num_nextn_predict_layers"}  # keys of checkpoints that their own code reads


def made(name: str, entries: dict[str, Any], device: str = "meta") -> Any:
    kind = getattr(transformers, name)
    said = {k: v for k, v in entries.items() if k not in {"model_type", "architectures", *UNKNOWN_THERE}}
    if kind.config_class.model_type == "phi3":
        said["pad_token_id"] = 0
    config = kind.config_class(**said, attn_implementation="eager", experts_implementation="eager")
    with torch.device(device):
        return kind(config)


def numel(module: Any) -> int:
    return sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize("row", FAMILIES, ids=[row["name"] for row in FAMILIES])
def test_the_numbers_that_are_written_down_are_those_of_transformers(row: dict[str, Any]) -> None:
    assert numel(made(row["config"]["architectures"][0], row["config"])) == row["parameters"]


@pytest.mark.parametrize("name", [n for n in class_names() if hasattr(transformers, n)])
def test_every_class_has_as_many_parameters_as_its_small_model(name: str) -> None:
    family = class_names()[name][0]
    entries = next(e for n, e in SMALL.items() if class_names()[n][0] is family)
    config = {**entries, "model_type": family.model_type, "architectures": [name], "num_labels": 3}
    assert read_config(json.dumps(config)).count() == numel(made(name, config))


@pytest.mark.parametrize("name", SMALL)
def test_a_live_model_is_recognised_with_all_its_parameters(name: str) -> None:
    module = made(name, SMALL[name])
    model = load_known(module, dtype="fp32")
    assert model is not None
    assert model.parameters().at().value == numel(module)
    assert model.graph.flow


@pytest.mark.parametrize("name", [name for name in SMALL if not name.startswith("T5")])
def test_the_flops_of_a_forward_pass_are_those_that_pytorch_counts(name: str) -> None:
    module = made(name, SMALL[name], "cpu").eval()
    image = name.startswith("ViT")
    data = {"pixel_values": torch.randn(2, 3, 32, 32)} if image else {"input_ids": torch.randint(3, 100, (2, 16))}
    with torch.no_grad(), flop_counter.FlopCounterMode(display=False) as counted:
        module(**data)
    model = load_known({"architectures": [name], **SMALL[name]})
    assert model is not None
    ours = model.flops().at(**({"B": 2} if image else {"B": 2, "L": 16})).value
    class_token = 2 * 2 * 64 * (3 * 8 * 8) if image else 0  # read as one more patch, which a note tells
    assert ours - class_token == counted.get_total_flops()


# What a print shows of none: routers and experts hold their weights themselves.
ROUTED = ("Mixtral", "Qwen2Moe", "Qwen3Moe", "GptOss", "DeepseekV2", "DeepseekV3")


@pytest.mark.parametrize("name", SMALL)
def test_a_print_has_all_parameters_or_names_what_it_does_not_show(name: str) -> None:
    module = made(name, SMALL[name])
    if name.startswith(ROUTED):
        with pytest.raises(SymcommError, match=r"a print shows none of the weights of \w+(Experts|Router)"):
            load_known(str(module))
        return
    model = load_known(str(module))
    assert model is not None
    unseen = 64 * (1 + 17) if name.startswith("ViT") else 0
    assert model.parameters().at().value == numel(module) - unseen
    if unseen:
        assert any("cls_token and position_embeddings of ViTEmbeddings" in note for note in model.notes)


@pytest.mark.parametrize("name", ["MambaForCausalLM", "CLIPModel", "BloomForCausalLM", "GPTNeoForCausalLM",
                                  "CohereForCausalLM", "Starcoder2ForCausalLM", "GPTBigCodeForCausalLM",
                                  "StableLmForCausalLM", "OlmoForCausalLM", "MptForCausalLM"])  # fmt: skip
def test_a_print_of_a_family_without_a_record_has_all_parameters(name: str) -> None:
    module = made(name, {})
    model = load_known(str(module))
    assert model is not None
    assert model.parameters().at().value == numel(module)


def test_families_that_are_said_to_tie_their_head_do_so() -> None:
    classes = [n for n in (p + h for p in _TIED for h in _HEADS) if hasattr(transformers, n)]
    kinds = {getattr(transformers, n).config_class for n in classes if n not in class_names()}
    tied = {kind.__name__: getattr(kind(), "tie_word_embeddings", None) for kind in kinds}
    assert {name for name, value in tied.items() if not value} == set()


def test_no_family_of_transformers_is_taken_for_a_misspelling() -> None:
    names = {*transformers.models.auto.configuration_auto.CONFIG_MAPPING_NAMES} - {*ARCHITECTURES}
    assert {name: said for name in names if (said := _misspelled(name, "")).startswith("did")} == {}
