"""Answers as a class writes them: in three languages, in LaTeX, in code, in words; the verdicts were there before."""

import pytest
from api import parse_problem
from test_one_error_one_verdict import KEYS as ONE_ERROR

import symcomm as sc

DOCUMENT = r"""---
title: More
symbols: {N_layer: {meaning: number of layers, names: [N]}}
---
# L

| Computation | Input | Output |
|---|---|---|
| A = xW | x [B, L, D], W [D, F] | A [B, L, F] |
| y = AV | A [B, L, F], V [F, D] | y [B, L, D] |

```symcomm
- {model: mlp, repeat: N_layer, dtype: fp16, values: {N_layer: 24, B: 16, L: 2048, D: 4096, F: 16384}}
- {ask: parameters, id: params, model: mlp}
- ask: communication
  id: dp
  model: mlp
  strategy: data(k)
  given: {k: 8}
  collective: all-reduce
  accounting: payload
  answer: {in: GB}
- {ask: flops, id: flops, model: mlp, scope: forward}
- {ask: pipeline_time, id: bubble, want: bubble_total, names: {m: mu}, given: {p: 4, mu: 12}}
- {ask: peak_rate, id: peak, given: {f: 1.5 GHz, n_SM: 100, n_FMA: 512}, answer: formula}
```
"""
PROBLEM = parse_problem(DOCUMENT, "more.md")
KEYS = {**ONE_ERROR, **{n: sc.key_of(PROBLEM, ask) for n, ask in zip(PROBLEM.ids, PROBLEM.asks, strict=True)}}
# 24 · 2 · 4096 · 16384 = 3,221,225,472 parameters of 2 bytes; 2 · 16 · 2048 FLOPs each; 3 of 15 slots idle. On 8 ranks
# what all contribute is as much as bits for bytes, and what has no latency is another convention.
ANSWERS = {
    "params": {
        "right": [
            "3221225472", "3.22 billion", "3.22B", "3,221,225,472 parameters", "≈ 3.2 Mrd.",
            "3,22 Milliarden Parameter", "32.2亿", "32.2 亿个参数", "3.2G", "2·24·4096·16384", "2 N D F", "$2NDF$",
            r"\(2 N D F\)", r"\[ 2\,N_{\text{layer}}\,D\,F \]", "2*N*D*F params", "2NDF weights", "2N(D·F)",
            "N⋅(D×F + F×D)", "24 × 2 × 4096 × 16384 = 3221225472", "3.22e9", "3.22 * 10^9", "3.22×10⁹",
            "about 3.2 billion parameters", "~3.2e9 parameters", "3.22 Bn params",
        ],
        "mistake": [
            "NDF", "1.61 billion", "2 D F", "134 million",
        ],
        "unreadable": [
            "three billion", "I don't know", "no idea", "keine Ahnung", "weiß ich nicht", "不知道", "je ne sais pas",
            "???", "-", "n/a", "idk",
        ],
        "different": [
            "3.22 GB",
        ],
    },
    "dp": {
        "right": [
            "6.44 GB/iter", "6.44",
            "6.44 GB", "6,44 GB", "6.44 Gigabyte", "6,44 Gigabytes", "6.44 gigabytes", "6.4 GB", "6 GiB",
            "6.00 GiB", "6442450944 Byte", "6442 MB", "6.44 吉字节", "4 N D F bytes", "4NDF", r"$4\,N D F$ B",
            "51.5 Gbit", "V = 6.44 GB", "Answer: 6.44 GB", "Antwort: 6,44 GB", "答案:6.44 GB", "6.44 GB per iteration",
            "= 6.44 GB", "`6.44 GB`", "4NDF B", "答案：6.44 GB", "约 6.44 GB", "etwa 6,4 GB", "Lösung ist 6,44 GB",
            "all-reduce volume: 6.44 GB", "Gradient all-reduce: 6.44 GB",
            "Ergebnis = 4NDF", "**6.44 GB**", "结果是6.44 GB", "2 bytes * 2NDF",
        ],
        "unreadable": [
            "per-GPU volume: 6.44 GB", "6.44 Tera", "6.44GB (payload)", "keine Ahnung, vielleicht 6.44 GB",
        ],
        "other_convention": [
            "51.5 GB",
        ],
        "mistake": [
            "3.22 GB", "12.9 GB", "2 N D F B",
        ],
    },
    "flops": {
        "right": [
            "211 TFLOP", "2.11e14", "211 TFLOPs", "211 Teraflop", "211 teraflops", "4 N B L D F", "4NBLDF",
            "2·16·2048·3221225472", "2.11·10^14 次浮点运算",
        ],
        "other_convention": [
            "106 TFLOP",
        ],
        "different": [
            "211 TFLOP/s",
        ],
        "mistake": [
            "8.8 TFLOP", "633 TFLOP",
        ],
    },
    "bubble": {
        "right": [
            "0.2", "20%", "20 %", "20 Prozent", "1/5", "3/15", "(p-1)/(mu+p-1)", r"\frac{p-1}{\mu+p-1}",
            "(4-1)/(12+4-1) = 0.2",
        ],
        "unreadable": [
            "百分之二十", "one fifth",
        ],
        "mistake": [
            "0.25", "80 %", "25%",
        ],
        "different": [
            "20",
        ],
    },
    "peak": {
        "right": [
            "2 f n_SM n_FMA", "2*f*n_SM*n_FMA", r"2 f \cdot n_{SM} \cdot n_{FMA}", "2·100·512·f",
        ],
        "other_convention": [
            "f*n_SM*n_FMA",
        ],
        "different": [
            "153.6 TFLOP/s",
        ],
    },
    "ring": {
        "right": [
            "130 ms", "130.2 Millisekunden", "130,2 ms", "130 毫秒", "0.13 seconds", "0,1302 Sekunden",
            "2(k-1)(alpha + n/(kW))", r"$2(k-1)\left(\alpha+\frac{n}{kW}\right)$", "62*(0.0001 + 0.1e9/50e9) s",
            "62·2.1ms",
        ],
        "other_convention": [
            "124 ms",
        ],
        "mistake": [
            "65.1 ms",
        ],
    },
    "zero": {
        "right": [
            "66 GB", "66e9", "66 gigabyte", "4P+12P/N", "4P + 12P/8", "48 GB + 18 GB", "61.5 GiB",
        ],
        "mistake": [
            "192 GB", "61.5 GB",
        ],
        "refused": [
            "__import__('os').system('ls')", "$(rm -rf /)", '=HYPERLINK("x")', "SELECT 1; DROP TABLE x",
        ],
    },
}  # fmt: skip


@pytest.mark.parametrize("question", ANSWERS)
def test_an_answer_gets_the_verdict_that_a_person_gave_before(question):
    got = {text: KEYS[question].check(text).verdict for some in ANSWERS[question].values() for text in some}
    assert got == {text: verdict for verdict, some in ANSWERS[question].items() for text in some}


def test_there_are_more_than_a_hundred_of_them():
    assert sum(len(some) for told in ANSWERS.values() for some in told.values()) > 100
