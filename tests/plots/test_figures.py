"""Figures of problem documents: in every format, with names of our own, and refused where they make no sense."""

from __future__ import annotations

import re
import sys
from io import BytesIO
from pathlib import Path
from xml.etree import ElementTree

import pytest
from api import (
    FIGURES,
    ORDERS,
    Picture,
    SymcommError,
    causal_balance,
    contents,
    main,
    parse_problem,
    read_problem,
    render,
    ring_steps,
    solve,
    source,
)
from click.testing import CliRunner

import symcomm as sc

pytest.importorskip("matplotlib")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Matplotlib's own imports

SCHEDULE = "figure: pipeline_schedule\nschedule: gpipe\nstages: p\nmicrobatches: 4\ngiven: {p: 4}\n"
PASS = SCHEDULE + "backward: 0\n"
BUCKETS = "of: buckets\ngiven: {s: 8 GB, w: 120 GB/s, o: 0.0001 s}\n"
PAIR = (
    "of: collective_time\ncompare: algorithm\nwith: ring, tree\nover: n\nranks: 8\nlatency: 20 us\nbandwidth: 1 GB/s\n"
)
TABLE = """| Computation | Input | Output |
|---|---|---|
| $Y = XW$ | $X \\in \\mathbb{R}^{B \\times D}, W \\in \\mathbb{R}^{D \\times D}$ | $Y \\in \\mathbb{R}^{B \\times D}$ |

```symcomm
model: product
values: {B: 64, D: 1024}
```

"""
# One of each kind, so that a new record needs a row here.
KINDS = {
    "pipeline_schedule": SCHEDULE,
    "minimum": f"figure: minimum\nwant: overhead\nover: n_b\n{BUCKETS}",
    "maximum": "figure: maximum\nof: pipeline_time\nwant: utilisation\nover: p\ngiven: {m: 4}\n",
    "crossover": f"figure: crossover\n{PAIR}",
    "break_even": f"figure: break_even\nwant: overhead\ncompare: rho\nwith: 1/2, 1\nover: n_b\n{BUCKETS}",
    "sensitivity": f"figure: sensitivity\nwant: least\n{BUCKETS}",
    "roofline": "figure: roofline\nops: Y\ndevice: H100-SXM\n",
    "memory_timeline": "figure: memory_timeline\nstrategy: fully-sharded(8)\n",
    "parallel_block": "figure: parallel_block\nstrategy: cut(D, 8)\n",
    "evaluation_trace": "figure: evaluation_trace\nformulas: y_1 = (x_1 + x_2)^2\npoint: x_1 = 1, x_2 = 2\n",
    "ring": "figure: ring\nranks: 4\n",
    "state_bars": "figure: state_bars\nstrategies: data(8); zero-3(8)\n",
    "cache_bars": "figure: cache_bars\nat: 8, 64\ngiven: {B: 2}\n",
    "request_bars": "figure: request_bars\nprompt: 8\ntokens: 4\ndevice: H100-SXM\ngiven: {B: 2}\n",
    "throughput_front": "figure: throughput_front\nat: 1, 8, 64\npast: 8\ndevice: H100-SXM\n",
    "mesh": "figure: mesh\nstrategy: fully-sharded(8)\n",
    "rounding": "figure: rounding\nx: 0.01\nn: 1000\naccumulator: fp16\n",
    "sharded_timeline": "figure: sharded_timeline\nstrategy: fully-sharded(8)\n",
    "ring_steps": "figure: ring_steps\nranks: 4\naccounting: causal_half\n",
    "causal_balance": "figure: causal_balance\nranks: 2\nlength: 8\n",
    "network_levels": "figure: network_levels\nnetwork: DGX-H100-SuperPOD\n",
    "offload_timeline": "figure: offload_timeline\nstrategy: data(4)\naccounting: states_on_host\n",
}


OF_SERVING = ("cache_bars", "request_bars", "throughput_front")  # they ask a model with positions


def document(*figures: str, table: bool = False) -> str:
    blocks = "\n".join(f"```symcomm\n{figure}```\n" for figure in figures)
    return f"---\ntitle: Pictures\n---\n\n{TABLE if table else ''}{blocks}"


def solved(*figures: str, table: bool = False):  # type: ignore[no-untyped-def]
    return solve(parse_problem(document(*figures, table=table), "t.md"))


def served(figure: str):  # type: ignore[no-untyped-def]
    block = figure.rstrip().replace("\n", "\n  ")
    return solve(parse_problem(f"{STEPS.partition('- figure')[0]}- {block}\n  model: Llama\n```\n", "t.md"))


@pytest.mark.few(3)
@pytest.mark.parametrize("kind", FIGURES)
def test_each_kind_of_figure_is_drawn_or_says_what_it_lacks(kind: str) -> None:
    made = served(KINDS[kind]) if kind in OF_SERVING else solved(KINDS[kind], table=True)
    text = source(made, "html")
    assert text.count("<svg") == 1
    assert "Figure 1:" in text
    ElementTree.fromstring(text[text.index("<svg") : text.index("</svg>") + 6].replace("xlink:", ""))  # well-formed


def test_a_figure_stands_in_every_format(tmp_path: Path) -> None:
    made = solved(SCHEDULE + "caption: GPipe with $p = 4$ stages\n", PASS)
    paths = render(made, ["md", "tex", "html", "pdf"], tmp_path, name="../a b")
    names = {path.name for path in paths}
    assert names == {*(f"a-b.{form}" for form in ("md", "tex", "html", "pdf")),
                     *(f"a-b-figure-{n}.{kind}" for n in (1, 2) for kind in ("svg", "pdf"))}  # fmt: skip
    text = (tmp_path / "a-b.md").read_text(encoding="utf-8")
    assert re.findall(r"!\[.*?\]\((.*?)\)", text) == ["a-b-figure-1.svg", "a-b-figure-2.svg"]
    assert "*Figure 1:* GPipe with $p = 4$ stages Finished after 21; the stages work 4/7 ≈ 57.1 % of the time." in text
    tex = (tmp_path / "a-b.tex").read_text(encoding="utf-8")
    assert re.findall(r"\\includegraphics\[.*?\]\{(.*?)\}", tex) == ["a-b-figure-1.pdf", "a-b-figure-2.pdf"]
    for name in names:
        start = {".svg": b"<?xml", ".pdf": b"%PDF"}.get(Path(name).suffix, b"")
        assert (tmp_path / name).read_bytes().startswith(start)


def test_identifiers_of_several_pictures_on_a_page_are_told_apart() -> None:
    page = source(solved(SCHEDULE, PASS, SCHEDULE), "html")
    found = re.findall(r'\bid="([^"]+)"', page)
    assert len(found) == len(set(found))
    for target in re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)|aria-labelledby="([^"]+)"', page):
        assert "".join(target) in found
    assert "<metadata" not in page
    assert page.count("<style") == 1  # that of the page; those of pictures would hold for all of it


def test_a_figure_of_the_pdf_has_a_text_for_readers_who_do_not_see_it() -> None:
    pypdf = pytest.importorskip("pypdf")
    made = solved(PASS + "caption: The **pass** of $m$ chunks\n")
    data = contents(made, ["pdf"])["pdf"]
    root = pypdf.PdfReader(BytesIO(data)).trailer["/Root"]["/StructTreeRoot"]
    texts: list[str] = []

    def walk(node: object) -> None:
        node = node.get_object() if hasattr(node, "get_object") else node
        if isinstance(node, dict):
            texts.extend([str(node["/Alt"])] if "/Alt" in node else [])
            for child in [node.get("/K", [])] if not isinstance(node.get("/K"), list) else node["/K"]:
                walk(child)
        elif isinstance(node, list):
            for child in node:
                walk(child)

    walk(root)
    said = "The pass of m chunks Finished after 7; the stages work 4/7 ≈ 57.1 % of the time."
    assert said in [" ".join(t.split(" ")) for t in texts]
    assert contents(made, ["pdf"])["pdf"] == data


def test_the_paper_shows_only_the_figures_that_belong_to_it() -> None:
    made = solved(SCHEDULE, PASS + "paper: yes\n")
    paper = contents(made, ["md"], edition="paper", name="paper")["md"].decode()
    assert re.findall(r"\((paper-.*?)\)", paper) == ["paper-figure-1.svg"]
    assert "Finished after 7;" in paper


def test_times_with_a_unit_are_drawn_with_it() -> None:
    made = solved("figure: pipeline_schedule\nschedule: gpipe\nstages: 2\nmicrobatches: 4\nforward: 6 ms, 2 ms\n"
                  "backward: 0\noverhead: 1 ms\n")  # fmt: skip
    # 7 ms four times on the first stage, and 3 ms for the last microbatch on the second.
    assert "Finished after 31 ms" in source(made, "md")


REFUSED = [
    ("figure: pie_chart\n", "t.md:6: unknown figure 'pie_chart'", "known: break_even, cache_bars"),
    ("figure: pipeline_schedule\nstages: 4\nmicrobatches: 4\n", "needs the key 'schedule'", "the order of the work"),
    (SCHEDULE + "speed: 3\n", "unknown key 'speed' in this figure", ""),
    (SCHEDULE.replace("gpipe", "gpip"), "unknown schedule 'gpip'", "did you mean 'gpipe'?"),
    (SCHEDULE.replace("{p: 4}", "{m: 4}"), "'stages' is p, which has no value", "given: {p: 4}"),
    (SCHEDULE.replace("{p: 4}", "{p: 4.5}"), "'stages' is 9/2, but a whole number is needed", ""),
    (SCHEDULE.replace("{p: 4}", "{p: 1000000}"), "1000000 stages are too many to be drawn", ""),
    (SCHEDULE + "forward: 1, 2\n", "'forward' has 2 times for 4 stages", "one for each, or one for all"),
    (SCHEDULE + "forward: 1 GB\n", "'forward' mixes units or is no time", ""),
    (SCHEDULE + "forward: 1 s\nbackward: 2\n", "some times of the stages have a unit and some have none", ""),
    (SCHEDULE + "chunks: 2\n", "the schedule gpipe has no chunks", ""),
    (SCHEDULE + "paper: maybe\n", "'paper' is yes or no, not 'maybe'", "paper: maybe"),
    (SCHEDULE + "model: other\n", "unknown model 'other'", "no model is defined before this figure"),
    ("figure: memory_timeline\n", "'memory_timeline' needs a model, and none is defined before", "add a symcomm block"),
    ("figure: minimum\nover: n\n", "the figure 'minimum' needs the key 'of'", ""),
    ("figure: minimum\nof: bucket\nover: n\n", "unknown choice 'bucket' of 'of'", "did you mean 'buckets'"),
    ("figure: minimum\nof: buckets\nover: n_b\n", "a picture needs numbers: no value is given for", ""),
    (f"figure: crossover\n{PAIR}".replace("ring, tree", "ring"), "'with' names two choices", "such as"),
    (f"figure: crossover\n{PAIR}".replace("compare: algorithm", "compare: colour"),
     "'collective_time' has no option 'colour'", ""),
    (f"figure: crossover\n{PAIR}between: 1 kB\n", "'between' names two ends", ""),
    ("figure: rounding\nx: 0.01\nn: 10\naccumulator: fp15\n", "unknown number format 'fp15'", ""),
    ("figure: rounding\nx: 60000\nn: 10\naccumulator: fp16\n", "the sum becomes inf at addition 2", ""),
    ("figure: rounding\nx: 0.01\naccumulator: fp16\n", "the figure 'rounding' needs the key 'n'", ""),
    ("figure: mesh\nstrategy: data(4)\n", "'mesh' needs a model, and none is defined before", ""),
]  # fmt: skip


@pytest.mark.parametrize(("block", "told", "hint"), REFUSED, ids=[told[:40] for _, told, _ in REFUSED])
def test_a_figure_that_makes_no_sense_is_refused_at_its_place(block: str, told: str, hint: str) -> None:
    with pytest.raises(SymcommError) as caught:
        solved(block)
    assert told in str(caught.value)
    assert hint in str(caught.value)
    assert str(caught.value).startswith("t.md:")


def test_a_document_has_a_bounded_number_of_figures() -> None:
    with pytest.raises(SymcommError, match="more than 100 figures in one document"):
        parse_problem(document(*[PASS] * 101), "t.md")


def test_every_kind_of_figure_is_in_the_documentation() -> None:
    page = (Path(__file__).parents[2] / "docs" / "problem-files.md").read_text(encoding="utf-8")
    for kind in FIGURES.values():
        row = next(line for line in page.splitlines() if line.startswith("|") and f"`{kind.name}`" in line)
        for option in kind.options:
            assert f"`{option.name}`" in page, f"{kind.name}: {option.name}"
        assert row


def test_without_matplotlib_nothing_is_written_and_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "t.md").write_text(document(SCHEDULE), encoding="utf-8")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    result = CliRunner().invoke(main, ["solve", str(tmp_path / "t.md"), "--to", "md", "-o", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert "a picture needs Matplotlib" in result.output
    assert 'hint: pip install "matplotlib<4,>=3.8"' in result.output
    assert not (tmp_path / "out").exists()


@pytest.mark.latex
def test_a_figure_is_set_by_tex() -> None:
    assert contents(solved(SCHEDULE), ["pdf"], engine="latex")["pdf"].startswith(b"%PDF-")


@pytest.mark.parametrize(
    ("collective", "k"), [("all-reduce", 3), ("all-reduce", 8), ("reduce-scatter", 4), ("all-gather", 5)]
)
def test_a_ring_that_is_drawn_ends_as_its_collective_says(collective: str, k: int) -> None:
    from api import _run

    *_, (title, held, _) = _run(collective, k)
    everyone = frozenset(range(k))
    whole = [[chunk == everyone for chunk in rank] for rank in held]
    rounds = (2 if collective == "all-reduce" else 1) * (k - 1)
    assert title == f"after {rounds} rounds"
    if collective == "reduce-scatter":  # one sum a rank, each on one of them
        assert [sum(row) for row in whole] == [1] * k == [sum(column) for column in zip(*whole, strict=True)]
    else:
        assert all(map(all, whole))


@pytest.mark.parametrize(("strategy", "told"), [
    ("fsdp(X) + tensor(2)", "X has no value"), ("data(1)", "a mesh of 0 axes is not drawn"),
])  # fmt: skip
def test_a_mesh_that_cannot_be_drawn_is_refused_at_its_place(strategy: str, told: str) -> None:
    with pytest.raises(SymcommError, match=re.escape(told)) as caught:
        solved(f"figure: mesh\nstrategy: {strategy}\n", table=True)
    assert caught.value.span is not None


def test_a_mesh_says_which_calls_run_on_which_rings() -> None:
    drawn = solved("figure: mesh\nstrategy: data(4) + cut(D, 2)\n", table=True)
    picture = next(block for block in drawn.blocks if isinstance(block, Picture))
    across, along = picture.says.split("`D`")
    assert "rings of 4 ranks, for AllReduce of gradients." in across
    assert along.startswith(": pairs of ranks, for ReduceScatter of activations")
    assert picture.drawn.svg().count(b"<circle") == 8


def test_a_sum_that_is_drawn_is_the_one_of_another_program() -> None:
    np = pytest.importorskip("numpy")
    drawn = solved("figure: rounding\nx: 0.01\nn: 4000\naccumulator: fp16\n")
    picture = next(block for block in drawn.blocks if isinstance(block, Picture))
    total, changed = np.float16(0), 0
    for n in range(1, 4001):
        new = np.float16(total + np.float16(0.01))
        total, changed = new, n if new != total else changed
    assert f"the sum in fp16 is {float(total):g}; without rounding it is 40." in picture.says
    assert f"It grows no more after {changed} additions." in picture.says


def test_weights_are_gathered_while_the_layer_behind_is_differentiated() -> None:
    drawn = solved("figure: sharded_timeline\nstrategy: fsdp(4)\n", table=True)
    picture = next(block for block in drawn.blocks if isinstance(block, Picture))
    lefts: dict[str, list[float]] = {}
    for found in re.finditer(r'<text x="([\d.]+)"[^>]*>([A-Z]+ \d)</text>', picture.drawn.svg().decode()):
        lefts.setdefault(found[2], []).append(float(found[1]))
    # as in PyTorch: the next gather is asked for before a backward, its reduction after it
    assert lefts["B 3"][0] - 25 < lefts["AG 2"][-1] < lefts["B 3"][0] + 25
    assert lefts["AG 3"][-1] < lefts["AG 2"][-1] < lefts["RS 3"][0] < lefts["AG 1"][-1] < lefts["RS 2"][0]
    assert picture.says.endswith("AG 2 runs while B 3 computes.")


def test_the_bars_of_states_are_as_long_as_what_a_rank_keeps() -> None:
    drawn = solved("figure: state_bars\nstrategies: data(8); zero-3(8)\nrecipe: mixed_adam\n", table=True)
    picture = next(block for block in drawn.blocks if isinstance(block, Picture))
    # 4 · 1024² parameters of 16 bytes, and an eighth of it
    assert picture.says.count("MB") == 2
    wide = [float(w) for w in re.findall(rb'width="([\d.]+)" height="10"', picture.drawn.svg())]
    assert sum(wide[:3]) == pytest.approx(8 * sum(wide[3:]), rel=1e-3)
    assert wide[2] == pytest.approx(6 * wide[0], rel=1e-3)


STEPS = """---
title: Steps
---

```symcomm
- model: Llama
  config: {model_type: llama, architectures: [LlamaForCausalLM], hidden_size: 64, intermediate_size: 128,
           num_hidden_layers: 2, num_attention_heads: 4, vocab_size: 100, torch_dtype: bfloat16}
- model: step
  of: Llama
  phase: decode
- figure: roofline
  models: step
  over: B
  at: VALUES
  device: H100-SXM
  given: {c: 8}
```
"""


def test_a_roofline_has_a_dot_for_each_batch_of_a_decode_step() -> None:
    (picture,) = [b for b in solve(parse_problem(STEPS.replace("VALUES", "1, 4"), "t.md")).blocks if hasattr(b, "says")]
    assert picture.says == "On this machine: step B=1 memory bound, step B=4 memory bound."


@pytest.mark.parametrize(("values", "told"), [("1, 2, 3, 4, 5, 6, 7", "'at' has 7 values of B"), ("''", "'at' has 0")])
def test_a_roofline_with_too_many_values_or_none_is_refused(values: str, told: str) -> None:
    with pytest.raises(SymcommError, match=told):
        solve(parse_problem(STEPS.replace("VALUES", values), "t.md"))


@pytest.mark.parametrize("line", ["  over: B\n", "  at: VALUES\n", "  models: step\n"])
def test_several_dots_want_a_model_a_symbol_and_its_values(line: str) -> None:
    with pytest.raises(SymcommError, match="'over' and 'at' put several dots of a model"):
        solve(parse_problem(STEPS.replace(line, "").replace("VALUES", "1, 4"), "t.md"))


SERVING = (
    STEPS.partition("- figure")[0]
    + """- figure: cache_bars
  model: Llama
  at: 100, 1000
  given: {B: 4}
- figure: request_bars
  model: Llama
  prompt: 100
  tokens: 3
  strategies: tensor(2); pipeline(2, microbatches=1)
  peak: 1 TFLOP/s
  memory: 1 GB/s
  network: 1 GB/s
  given: {B: 1}
```
"""
)


def test_bars_of_serving_are_as_long_as_the_cache_and_the_times_of_a_request() -> None:
    document = parse_problem(SERVING, "t.md")
    pictures = [b for b in solve(document).blocks if hasattr(b, "says")]
    bars = [[float(w) for w in re.findall(rb'width="([\d.]+)" height="10"', p.drawn.svg())] for p in pictures]
    weights = 2 * (2 * (4 * 64 * 64 + 3 * 64 * 128 + 2 * 64) + 2 * 100 * 64 + 64)
    token = 2 * 2 * 64 * 2  # keys and values of two layers
    wanted = [weights, 4 * 100 * token, weights, 4 * 1000 * token]
    assert [w / bars[0][0] for w in bars[0]] == pytest.approx([w / weights for w in wanted], rel=1e-2)
    assert len(bars[1]) == 4  # of each strategy the prefill and the steps
    assert pictures[1].says.startswith("A request takes: tensor(2) ")


FRONT = (
    STEPS.partition("- figure")[0]
    + """- figure: throughput_front
  model: Llama
  at: 1, 4, 40
  past: 99
  strategies: tensor(2); pipeline(2, microbatches=1)
  peak: 1 TFLOP/s
  memory: 1 GB/s
  network: 1 GB/s
  latency: 1 ms
  accounting: {traffic: weights_and_cache}
```
"""
)


def test_the_front_over_the_batch_has_each_point_that_none_beats() -> None:
    (picture,) = [b for b in solve(parse_problem(FRONT, "t.md")).blocks if hasattr(b, "says")]
    (axes,), batches, bytes_each = picture.drawn.axes, (1, 4, 40), 2
    weights = bytes_each * (2 * (4 * 64 * 64 + 3 * 64 * 128) + 100 * 64)
    curves = {line.get_label(): (line.get_xdata(), line.get_ydata()) for line in axes.lines if line.get_marker() == "o"}
    times, rates = curves["pipeline(2, microbatches=1)"]
    for b, time, rate in zip(batches, times, rates, strict=True):
        moved = weights + bytes_each * b * (2 * 2 * 64 * 100 + 64 + 100)  # caches, a row of the table, logits
        messages = 2 * 1e-3 + (2 * 64 * b + 4 * b) / 1e9  # a token there, its number back
        assert time == pytest.approx(moved / 1e9 + messages, rel=1e-3)
        assert rate == pytest.approx(b / time)
    assert "tensor(2) B" not in picture.says  # four more messages of 1 ms in each layer


def test_experts_are_cut_along_their_axis_and_their_names_have_two_scripts() -> None:
    path = Path(__file__).parents[2] / "examples/layers/mixture-of-experts.md"
    (picture,) = [b for b in solve(read_problem(path)).blocks if hasattr(b, "says")]
    drawn = picture.drawn.svg().decode()
    assert drawn.count(">along <") == 2
    assert "1_e" not in drawn


def test_the_text_of_a_picture_says_the_numbers_that_are_seen() -> None:
    def says(block: str) -> str:
        made = solve(parse_problem(f"{TABLE}```symcomm\n{block}```\n", "t.md"))
        return next(picture.says for picture in made.blocks if hasattr(picture, "says"))

    # sqrt(8 GB / (100 us * 120 GB/s)) = 25.82 buckets leave 2 sqrt(100 us * 8 GB / (120 GB/s)) = 5.164 ms.
    bucket = "figure: minimum\nof: buckets\nwant: overhead\nover: n_b\ngiven: {s: 8 GB, o: 100 us, w: 120 GB/s}\n"
    assert says(bucket).endswith("over `n_b`; the point marks the minimum, 5.164 ms at `n_b` ≈ 25.82.")
    # Two ranks: a ring and a tree send alike. Eight: 14 n/8 + 14 a = 6 n + 6 a at n = 8 a/4.25 W = 37.65 kB.
    met = says(f"figure: crossover\n{PAIR}accounting: divisible\n")
    assert met.endswith("; the points mark where they are equal: `n` ≈ 37.65 kB.")
    # 1024² weights in FP16 with their gradients and AdamW's 12 bytes each: 2 + 2 + 12 bytes of 2^20 are 16 MiB.
    memory = says("figure: memory_timeline\nmodel: product\n")
    assert re.search(r"by kind; the peak is 16\.\d MiB \((backward|optimizer), .*`W`.*\)\.$", memory), memory


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("order", ["contiguous", "balanced", "striped"])
def test_the_pairs_of_a_drawn_mask_are_those_of_a_loop_and_of_the_worksheet(order: str, ranks: int) -> None:
    length, said = 8 * ranks, causal_balance(8 * ranks, ranks)[1]
    part = length // (2 * ranks)
    mine = {
        "contiguous": lambda p: p // (2 * part),
        "balanced": lambda p: min(p // part, 2 * ranks - 1 - p // part),
        "striped": lambda p: p % ranks,
    }[order]
    pairs = [sum(p + 1 for p in range(length) if mine(p) == rank) for rank in range(ranks)]
    assert f"{max(pairs) * ranks / sum(pairs):.2f} ({ORDERS[order]})" in said
    book = {"attention": "causal_half", "context_order": order}
    made = sc.derive("ring_attention", want="imbalance", length=length, ranks=ranks, accounting=book).at()
    assert made.value * sum(pairs) == max(pairs) * ranks


def test_each_rank_of_a_drawn_ring_reads_every_block_once() -> None:
    drawing, _ = ring_steps("contiguous", 4, True)
    read = re.findall(r">K V (\d)<", drawing.svg().decode())
    assert [sorted(read[4 * rank : 4 * rank + 4]) for rank in range(4)] == [["1", "2", "3", "4"]] * 4
    assert [read[4 * rank] for rank in range(4)] == ["1", "2", "3", "4"]  # its own block first
    assert [float(one) for one in re.findall(r">(\d\.\d\d)<", drawing.svg().decode())] == [0.26, 0.75, 1.25, 1.74]


def test_a_drawn_network_has_the_levels_of_its_record() -> None:
    html = source(solved("figure: network_levels\nnetwork: Ethernet-V100\n"), "html")
    for words in ("cluster: 8 racks, 256 devices", "rack: 4 nodes, 32 devices", "1.5625 GB/s a device, latency 10 us"):
        assert words in html.replace("µs", "us")


def test_what_the_host_holds_is_copied_when_the_program_copies_it() -> None:
    def words(offloading: str) -> list[str]:
        block = f"figure: offload_timeline\nstrategy: data(4)\naccounting: {offloading}\n"
        return re.findall(r">(F \d|B \d|new W|G|[WGA] \d)<", source(solved(block, table=True), "html"))

    assert words("states_on_host") == ["F 1", "F 2", "F 3", "B 3", "B 2", "B 1", "G", "new W"]
    # A weight comes before each pass that reads it; a gradient leaves behind its layer.
    assert words("model_on_host") == ["W 1", "F 1", "W 2", "F 2", "W 3", "F 3",
                                      "W 3", "B 3", "G 3", "W 2", "B 2", "G 2", "W 1", "B 1", "G 1"]  # fmt: skip


@pytest.mark.parametrize(
    ("block", "told", "hint"),
    [
        ("figure: ring_steps\nranks: 9\n", "a ring of 9 ranks is not drawn", "2 to 8"),
        ("figure: causal_balance\nranks: 4\nlength: 12\n", "12 positions of 4 ranks are not drawn", "multiple of 8"),
        ("figure: network_levels\nnetwork: DGX-H1000\n", "unknown network 'DGX-H1000'", "DGX-H100"),
        ("figure: offload_timeline\nstrategy: data(4)\n", "nothing is copied to the host", "states_on_host"),
    ],
)  # fmt: skip
def test_a_picture_of_a_cluster_that_cannot_be_drawn_is_refused_at_its_place(block: str, told: str, hint: str) -> None:
    with pytest.raises(SymcommError, match=re.escape(told)) as caught:
        solved(block, table=True)
    assert hint in str(caught.value)
    assert str(caught.value).startswith("t.md:1")
