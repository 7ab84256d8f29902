"""How a model shows itself: a line, tables and drawing in a notebook, frames for its regions."""

import base64
import json
import re
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from api import SymcommError, main
from api import core_drawing as drawing
from click.testing import CliRunner

import symcomm as sc

TABLE = "Computation\tInput\tOutput\ny = relu(xW)\tx [B, D], W [D, F]\ty [B, F]\n"
SQUARE = TABLE.replace("F", "D")  # a layer that can follow itself
BACK = "Computation\tInput\tOutput\ny = relu(xW)\tx [B, D], W [D, D]\ty [B, D]\n"
GPT2 = {
    "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 768, "n_layer": 12, "n_head": 12,
    "n_positions": 1024, "vocab_size": 50257,
}  # fmt: skip


@pytest.fixture(scope="module")
def whole() -> sc.Model:
    return sc.load(GPT2, loss=True)


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(GPT2), encoding="utf-8")
    return str(path)


def test_a_model_is_one_short_line(whole: sc.Model):
    # embedding: 2 one-hot, 2 lookups, sum, dropout; layer: 2 norms of 3, 4 projections of 2, 3 splits, 4 for the
    # softmax, dropout, product, merge, dropout, sum, 3 + 2 of the feed-forward, dropout, sum; head: norm of 3, logits,
    # 3 of the loss
    ops = 6 + (6 + 8 + 3 + 4 + 3 + 2 + 5 + 2) + 7
    assert repr(whole) == f"<Model GPT2LMHeadModel: embedding, 12 × layer, head; {ops} ops, 124 439 808 parameters>"
    assert repr(sc.load(TABLE)) == "<Model layer: layer; 2 ops, D·F parameters>"
    assert repr(sc.load(SQUARE, repeat="N", values={"N": 3, "D": 4})).endswith("3 × layer; 2 ops, 48 parameters>")
    assert repr(sc.load(SQUARE, repeat="N").graph) == "<Graph layer: N × layer; 2 ops, 4 tensors>"


def test_a_notebook_gets_the_layer_tables_and_the_drawing_as_markdown(whole: sc.Model):
    shown = whole._repr_markdown_()
    assert "*embedding, head*" in shown
    assert "*12 × layer*" in shown
    assert r"| $n = \operatorname{layernorm}(x, \gamma^{1}, \beta^{1})$ | $x [B, L, D]$, $\gamma^{1} [D]$, " in shown
    assert "- the cross-entropy of the logits is counted" in shown
    assert drawing.text(whole.graph) in shown


def test_a_loaded_table_keeps_its_cells_as_they_were_written():
    cells = r"| $y = xW$ | $x \in \mathbb{R}^{B \times D}, W [D, F]$ | $y \in \mathbb{R}^{B \times F}$ |"
    made = sc.load("| Computation | Input | Output |\n|---|---|---|\n" + cells + "\n")
    assert made.tables == ("Computation\tInput\tOutput\n" + cells.strip("| ").replace(" | ", "\t") + "\n",)
    assert cells in made._repr_markdown_()
    assert sc.load(made.tables[0]).graph.weights[0].axes == ("D", "F")


def test_the_html_is_well_formed_and_its_picture_stands_alone(whole: sc.Model):
    page = ElementTree.fromstring(whole._repr_html_())
    assert [caption.text for caption in page.iter("caption")] == ["embedding, head", "12 × layer"]
    [image] = page.iter("img")
    picture = ElementTree.fromstring(base64.b64decode(image.attrib["src"].partition(",")[2]))
    words = "".join(picture.itertext())
    assert all(name in words for name in ("embedding", "layer", "head", "softmax"))
    assert not [*page.iter("style")]  # it would hold for the whole notebook


def test_the_html_sets_its_formulas_without_a_library_and_opens_the_rest():
    page = ElementTree.fromstring(sc.load(TABLE)._repr_html_())
    computed = page.find(".//td")
    assert computed is not None
    assert "".join(computed.itertext()).replace("\u2061", "") in ("𝑦=relu(𝑥𝑊)", "y=relu(xW)")
    assert "$" not in "".join(page.itertext())
    assert [summary.text for summary in page.iter("summary")] == ["op graph"]  # one layer is seen at once


def test_a_prime_of_a_name_with_an_index_is_no_letter():
    shown = sc.load("examples/layers/grouped-query-attention.md")._repr_html_()
    assert "K'" not in re.sub(r'alttext="[^"]*"', "", shown)


def test_names_in_the_html_are_text():
    made = sc.load(TABLE, name="<script>alert(1)</script>")
    assert "<script>" not in made._repr_html_()
    ElementTree.fromstring(made._repr_html_())


def test_the_text_has_a_frame_for_each_region_and_says_what_flows_between_them():
    made = sc.model_of_parts([(sc.load(SQUARE, name="up", repeat="N"), ""), (sc.load(BACK, name="down"), "")])
    assert drawing.text(made.graph).splitlines() == [
        "╭─ up × N",
        "│ ○  x  input           B × D",
        "│ ●  y  matrix product  B × D  W: D × D",
        "│ ●  y  relu            B × D  → x of the next up",
        "╰─▶ y  B × D  to down",
        "╭─ down",
        "│ ○  y  from up         B × D",
        "│ ●  y  matrix product  B × D  W: D × D",
        "│ ●  y  relu            B × D",
        "╰─",
    ]


def test_what_a_repetition_hands_on_is_told_and_marks_of_regions_are_not(whole: sc.Model):
    shown = drawing.text(whole.graph)
    assert re.search(r"y +add +B × L × D +→ x of the next layer", shown)
    assert "head:" not in shown
    assert "γ^F: D" in shown
    assert re.search(r"r +indices +B × L\n", shown)
    assert len(re.findall(r" dropout ", shown)) == 4


def _frames(svg: str) -> list[tuple[float, float, float, float]]:
    rects = [e.attrib for e in ElementTree.fromstring(svg.encode()).iter() if e.attrib.get("class") == "frame"]
    sides = [tuple(float(r[side]) for side in ("x", "y", "width", "height")) for r in rects]
    return [(x, y, x + width, y + height) for x, y, width, height in sides]


def _boxes(svg: str) -> list[tuple[float, float, float, float]]:
    groups = [g for g in ElementTree.fromstring(svg.encode()).iter() if g.tag.endswith("}g")]
    sides = [tuple(float(g[0].attrib[side]) for side in ("x", "y", "width", "height")) for g in groups]
    return [(x, y, x + width, y + height) for x, y, width, height in sides]


@pytest.mark.parametrize("config", [GPT2, {
    "model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32000,
    "num_local_experts": 8, "num_experts_per_tok": 2, "max_position_embeddings": 32768,
}], ids=["gpt2", "mixtral"])  # fmt: skip
def test_in_the_picture_each_box_is_in_one_frame_and_nothing_overlaps(config: dict[str, object]):
    svg = drawing.svg(sc.load(config).graph)
    frames, boxes = _frames(svg), _boxes(svg)
    assert len(frames) == 3
    for above, below in pairwise(frames):
        assert above[3] < below[1]
    for n, (left, top, right, bottom) in enumerate(boxes):
        assert sum(f[0] < left and f[1] < top and right < f[2] and bottom < f[3] for f in frames) == 1
        for other in boxes[n + 1 :]:
            assert right <= other[0] or other[2] <= left or bottom <= other[1] or other[3] <= top


def test_a_size_that_is_a_product_is_told_with_its_sign():
    rows = "y = xW\tx [B, 2 n H], W [2 n H, 4D]\ty [B, 4D]\n"
    shown = drawing.text(sc.load("Computation\tInput\tOutput\n" + rows).graph)
    assert "B × 2H·n" in shown
    assert "W: 2H·n × 4D" in shown


def test_dot_has_a_cluster_for_each_region(whole: sc.Model):
    drawn = drawing.dot(whole.graph)
    assert re.findall(r'subgraph cluster_\d \{ label="(.*?)"', drawn) == ["embedding", "layer × N_layer", "head"]
    assert drawn.count("{") == drawn.count("}")


# -- the command line, and the loss -----------------------------------------------------------------------


def run(*command: str, status: int = 0) -> str:
    result = CliRunner().invoke(main, command)
    assert result.exit_code == status, result.output
    return result.output


def test_show_tells_regions_axes_and_the_loss_of_a_configuration(config: str):
    shown = run("show", config, "--loss")
    assert "axes: batch B; sequence L; vocabulary V; cut by tensor parallelism V, n_H, F" in shown
    assert "crossentropy" in shown
    assert shown.replace(" (loss: false leaves it out)", "") == run("show", config).replace(
        " (loss: false leaves it out)", ""
    )
    assert "crossentropy" not in run("show", config, "--no-loss")
    made = json.loads(run("show", config, "--loss", "--to", "json"))
    assert [r["name"] for r in made["regions"]] == ["embedding", "layer", "head"]
    rows = [op["row"] for op in made["ops"]]
    assert rows == sorted(rows)
    assert {*rows} == {*range(1, rows[-1] + 1)}  # no row is missed out
    assert {op["region"]: op["name"] for op in made["ops"]} == {"embedding": "x", "layer": "y", "head": "ell"}


def test_derive_takes_the_loss_in(config: str):
    at = ("--at", "B=2,L=4", "--set", "scope=forward", "--accounting", "all_ops", "--to", "json")
    with_loss, without = (
        int(json.loads(run("derive", "flops", "--model", config, *more, *at))["value"]["exact"])
        for more in ((), ("--no-loss",))
    )
    assert with_loss > without


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("loss", True, r"hint: a layer table has its loss as a row, such as \ell = CrossEntropy(o, r)"),
        (
            "architecture",
            "BertModel",
            "architecture does not belong to layer tables; this is no configuration and no module",
        ),
        ("leaves", {"Mixer": [(8,)]}, "leaves does not belong to layer tables; this is no configuration and no module"),
    ],
)
def test_what_belongs_to_configurations_is_refused_of_a_table(option: str, value: object, said: str):
    with pytest.raises(SymcommError) as caught:
        sc.load(TABLE, **{option: value})
    assert said in str(caught.value)


def test_a_loss_is_refused_of_a_module_and_of_a_head_without_logits(tmp_path: Path):
    with pytest.raises(SymcommError, match="no loss can be added to a printed module"):
        sc.load("Net(\n  (a): Linear(in_features=4, out_features=8, bias=True)\n)", loss=True)
    with pytest.raises(SymcommError, match="the class GPT2Model has no logits over a vocabulary"):
        sc.load(GPT2, architecture="GPT2Model", loss=True)
    path = tmp_path / "table.tsv"
    path.write_text(TABLE, encoding="utf-8")
    assert "loss does not belong to layer tables" in run("show", str(path), "--loss", status=2)


def test_a_row_that_only_names_a_tensor_leaves_it_in_the_graph():
    rows = "z = xW\tx [B, D], W [D, D]\tz [B, D]\nh = z\tz [B, D]\th [B, D]\ny = z + h\tz [B, D], h [B, D]\ty [B, D]\n"
    made = sc.load("Computation\tInput\tOutput\n" + rows)
    assert not made.notes
    assert [(op.output, op.inputs) for op in made.graph.ops] == [("z", ("x", "W")), ("h", ("z",)), ("y", ("z", "h"))]
    assert not any("declared" in note for note in sc.load(GPT2).notes)


def test_families_and_functions_with_subscripts_are_maths_in_html() -> None:
    homework = Path(__file__).parents[1] / "examples" / "comp4901y-homework2" / "homework.md"
    shown = sc.load(homework)._repr_html_()
    assert "<code>" not in shown
    assert "\\text{Partition}" not in re.sub(r'alttext="[^"]*"', "", shown)
    assert shown.count("…") == 4
