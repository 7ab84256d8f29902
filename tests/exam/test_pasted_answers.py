"""Answers as they are pasted from LaTeX, Word, a chat or code.

Whether one is right or readable was decided by hand before it was tried; which kind of wrong it is, for some only
after.
"""

import pytest
from test_answers_golden import QUESTIONS, key
from test_fresh_answers import KEYS

# 24 N D^2 are 12.9 GB, 2 bytes each of 12 N D^2 weights. Where B is a symbol, it is that before it is a byte: a batch
# of four makes 16 n_H L^2 and 4 B n_H L^2 one number, but the B behind the first is no unit then.
ANSWERS = {
    "dp_payload": {
        "right": [
            r"\mathbf{24} N D^2", r"\mathbf{24 N D^2}", r"\mathrm{24 N D^2}", r"\boldsymbol{24 N D^2}",
            r"\boxed{24 N D^2}", r"\boxed{\mathbf{24 N D^2}}", r"$\boxed{24ND^2}$", r"\textbf{24 N D^2}",
            r"\bm{24ND^2}", "{24ND^2}", r"\fbox{24ND^2}", r"\mathbf{V} = 24 N D^2", r"V = \boxed{24 N D^2}",
            r"$$V = 24\,N\,D^{2}\ \text{bytes}$$", r"\SI{12.9}{GB}", r"\qty{12.9}{\giga\byte}",
            r"\SI{12.9}{\giga\byte}", r"\num{1.29e10}", r"\num{1.29e10}\,\text{B}", r"\num{12884901888}",
            r"\SI[round-mode=places]{12.9}{\giga\byte}", r"\qty{12}{\gibi\byte}", r"\SI{12.9e9}{B}",
            r"\qty{1.29e10}{\byte}", r"\num{12.9}\,\si{GB}", r"12.9\,\unit{\giga\byte}",
            r"$\SI{12.9}{\giga\byte}$", "12.9 e9", "1.29 e10", "1.29 E10", "1.29 e+10 bytes", "12.9e9 B",
            "1.29 × 10^10", "1.29×10¹⁰ B", "12.9·10^9", "12.9⋅10⁹ bytes", "1.29*10**10", "1.29*10^{10}",
            r"1.29\times10^{10}", r"1.29 \cdot 10^{10}\,\mathrm{B}", "1.29e+10", "1.29e10 bytes", "≈ 12.9 GB",
            "= 12.9 GB", "= 12.9GB", "V ≈ 12.9 GB", "V=24ND^2", "V = 24 N D^2 bytes", "answer: 12.9GB",
            "Answer is 12.9 GB", "12.9GB", "12.9 GBytes", "12.9 gigabytes", "12.88 GB", "12 GiB", "12GiB",
            "12.9 GB.", "12,9 GB", "12\u202f884\u202f901\u202f888", "12'884'901'888 B", "12,884,901,888 bytes",
            "12.884.901.888 B", "12 884 901 888 B", "12_884_901_888", "12\u2009884\u2009901\u2009888 bytes",
            "24·N·D²", "24ND²", "24 N D²", "24 N D² bytes", "24⋅N⋅D^2", "24 × N × D²", "24\u00a0N\u00a0D²",
            "24*N*D*D", "24*N*D**2", "24N(D)^2", r"24\left(N D^2\right)", r"24 N \cdot D^{2}", r"24\,N\,D^2",
            "24~N~D^2", "24 N_{layer} D^2", r"24 N_\text{layer} D^2",
            r"24 \cdot N_{\mathrm{layer}} \cdot d_{\text{model}}^2", "24 n_layer d_model²",
            "24 n_layer * d_model^2", "2 * 12 N D^2", "2·12·N·D²", "2 bytes * 12 N D^2", "2 bytes × 12ND²",
            "12 N D^2 * 2 bytes", "12ND² · 2 B", "12 N D^2 × 2 Bytes", r"2\,\text{bytes} \times 12 N D^2",
            "2 bytes/param * 12 N D^2 params", "2 bytes * 12 * 32 * 4096^2", "32·12·4096²·2 = 12.9 GB",
            "32*12*4096^2*2 bytes", "(4+8)·D²·N·2", "(4D²+8D²)·2N", "2N(4D^2 + 4D^2 + 4D^2)", "𝟐𝟒 𝑁 𝐷²", "24 𝑁𝐷^2",
            "24\u2062N\u2062D²", "**24 N D²**", "`24 N D^2`", r"\( 24 N D^2 \)", r"\[24ND^2\]", "$24ND^2$ bytes",
            "$24ND^2$ B", "24ND^2 (bytes)", "24ND^2 [B]", "24 N D^2 bytes per iteration", "24 N D^2 ≈ 12.9 GB",
            "24ND^2 = 24*32*4096^2 = 12884901888", "24ND^2 = 12.9 × 10⁹ bytes", "V = 24·N·D² = 12.88 GB",
            r"12.9 \text{ GB}", r"12.9\,\mathrm{GB}", r"12.9~\mathrm{GB}", r"\approx 12.9\,\text{GB}",
            r"$\approx 12.9$ GB", "12{,}884{,}901{,}888", r"12\,884\,901\,888", "−(−24 N D²)", "24 N D² – 0",
            "3·8·N·D²", r"24 N D^2 \;", "the answer is 24 N D^2", "Total: 12.9 GB", "total = 24ND^2", "24ND²;",
        ],
        "different": [
            r"2\ \text{B} \cdot 12 N D^2", "2 B × 12 × 32 × 4096²", "24 N D", "24 N D^2 L", r"\SI{12.9}{MB}",
            r"\qty{12.9}{\mega\byte}", "12.9 e8", "24 N^2 D", "12.9 MB", r"\mathbf{23} N D^2", "12.9 s",
            "-24 N D²", "– 24 N D²", "24 N D^-2", "2 GB * 12 N D^2", "24 N D^2 GB", "2 bytes + 12 N D^2",
            "12.9 GB/s", "24 N D ^ 3", r"\qty{12.9}{\tera\byte}",
        ],
        "mistake": [
            "12 N D^2", "24 D^2", "12ND² · 4 B", "2 bytes * 12 D^2", r"\mathbf{12} N D^2", r"\SI{12.9}{\giga\bit}",
        ],
        "other_convention": [
            r"\SI{103}{GB}", "24 N D² k",
        ],
        "unreadable": [
            "2 bytes * 2 bytes * 12 N D^2", "2 bytes * 12 N D^2 GB", "24 N D^2 / s", "12 N D^2 · 2 B/s",
            "2 B 12 N D^2", "12.9 e9 e", "2 bytes / 12 N D^2", "24 N D^2 (weights only)", "24 N D^2 (per layer)",
            "24ND^2 per GPU and step",
        ],
    },
    "scores_mem": {
        "different": [
            "16 n_H L^2 B", "4 n_H L^2 B^2", "16 n_H L² B", r"16\,n_H L^2\,B", "$16 n_H L^2$ B", "32 B",
        ],
        "mistake": [
            "4 n_H L^2",
        ],
        "unreadable": [
            "16 n_H L^2 [B]x",
        ],
        "right": [
            "4 B n_H L^2", "4 n_H L^2 B", "4 n_HL²B", "128 MiB", "134217728 B", "128", r"\SI{128}{\mebi\byte}",
            r"\qty{134.2}{\mega\byte}", r"\qty{128}{MiB}", "4 bytes * B n_H L^2", "4 bytes * B * n_H * L^2",
            "n_H L² B · 4 bytes", "4B · n_H L^2", "128MiB", "B·n_H·L²·4 bytes",
            r"4 \cdot B \cdot n_{H} \cdot L^{2}", "16 n_H L^2 bytes", "16 n_H L^2",
        ],
    },
    "forward_flops": {
        "right": [
            "N B (24 L D^2 + 4 L^2 D)", r"N B \left(24 L D^2 + 4 L^2 D\right)",
            r"N\,B\,\left( 24\,L\,D^{2} + 4\,L^{2}\,D \right)", "4NBLD(6D+L)", "4·N·B·L·D·(6D + L) FLOP",
            r"\mathbf{4NBLD(6D+L)}", "7.88e15", "7.88 PFLOP", "7.88×10¹⁵", "7881 TFLOP", r"\qty{7.88e15}{FLOP}",
            r"\num{7.88e15}", r"7.88 \times 10^{15}\,\text{FLOPs}", "7.88 e15 FLOPs", "24 N B L D² + 4 N B L² D",
            "24NBLD² + 4NBL²D",
        ],
        "different": [
            "7.88 PFLOP/s", "7.88e14", "24 N B L D² – 4 N B L² D",
        ],
        "mistake": [
            "24NBLD²",
        ],
    },
    "ring_time": {
        "right": [
            "75.2 ms", r"\SI{75.2}{ms}", r"\SI{75.2}{\milli\second}", r"\qty{0.0752}{\second}", "0.0752 s",
            "2(k−1)n/(kW)", r"\frac{2(k-1)n}{kW}", r"\frac{2(k-1)}{k}\cdot\frac{n}{W}",
            r"2\,\frac{k-1}{k}\,\frac{n}{W}", r"\dfrac{2\left(k-1\right)\,n}{k\,W}", "2 (k–1)/k · n/W", "75,2 ms",
            "75.2e-3 s", "75.2 e-3 s", "7.52·10⁻² s", "7.52×10^-2 s", "7.52*10**-2",
            r"7.52 \times 10^{-2}\,\text{s}", "t = 75.2 ms", "T = 2(k-1)n/(kW) = 75.2ms", "75.2 msec", "75160 µs",
            "75160 μs", r"75160\,\mu\text{s}", r"\qty{75160}{\micro\second}", r"\qty{75.2}{\ms}",
        ],
        "different": [
            "75.2 s", "37.6 ms", "75.2", "75.2 GB",
        ],
        "unreadable": [
            "75.2 m", "2(k-1)n/k W", "2(k-1)/kn W",
        ],
    },
    "intensity": {
        "right": [
            "31.5 FLOP/B", "31.5", "31.5 FLOPs/byte", r"\qty{31.5}{FLOP/B}", r"\frac{mnq}{mq+qn+mn}",
            "mnq/(mq+nq+mn)", r"\frac{2 m n q}{2(m q + q n + m n)}", "2mnq/(2(mq + qn + mn))",
            r"31.5 \text{ FLOP/B}", "2048/65",
        ],
    },
    "bubble": {
        "right": [
            "27.3%", "27.3 %", r"27.3\,\%", r"27.3\%", "0.273", "3/11", "(p-1)/(m+p-1)", r"\frac{p-1}{m+p-1}",
            "(p − 1)/(m + p − 1)", "(p–1) / (p–1+m)", r"\SI{27.3}{\percent}", r"\qty{27.3}{\%}", "≈27%", "~ 27 %",
            "27 percent", r"\mathbf{\frac{p-1}{m+p-1}}",
        ],
    },
    "lm_params": {
        "right": [
            "3.41 B", "3.41B", "3.41 billion", "3.41e9", "3.41 × 10^9", "3406809600", "3,406,809,600", "3.41 bn",
            "3.41·10^9 parameters", r"\num{3.41e9}", r"\num{3406809600}", r"\qty{3.41e9}{parameters}",
            "2VD + D + N(4D^2 + 2D + 3DF)", r"2VD + D + N\left(4D^2 + 2D + 3DF\right)",
            r"\boxed{2VD + D + N(4D^2+2D+3DF)}", "3.41B params", "≈ 3.4 billion", "3.41 e9 params",
            "3\u202f406\u202f809\u202f600", "3 406 809 600 parameters",
        ],
        "unreadable": [
            "3.41B (weights only)", "2VD + D + N(4D^2 + 2D + 3DF) (weights only)", "3.41e9 (without biases)",
            "3.41e9 - weights only",
        ],
    },
    "f.params": {
        "unreadable": [
            "2NDF (weights only)", "2NDF (without biases)", "2NDF (fp16)", "2NDF weights only",
        ],
    },
    "bucket_size": {
        "right": [
            r"\sqrt{s w o}", r"\sqrt{s\,w\,o}", "√(swo)", "(s w o)^{1/2}", "sqrt(s*w*o)",
            r"\sqrt{s \cdot w \cdot o}", "310 MB", "309.8 MB", "295 MiB", r"\SI{310}{MB}",
        ],
    },
    "f.dp": {
        "right": [
            "2 bytes * 2NDF", "2NDF * 2 bytes", "2NDF · 2 B", "4NDF B", "2 bytes × 2 N D F",
            "2 bytes/weight * 2NDF", "6.44 GB", r"\SI{6.44}{GB}", r"\qty{6.44}{\giga\byte}",
            "2NDF parameters * 2 bytes", "2NDF params × 2 bytes/param", "3221225472 * 2 bytes", "3.22e9 * 2 B",
            "3.22e9 params * 2 bytes", "2 bytes * 3.22e9", "2 * 3.22 GB", "3.22 GB * 2", "2 × 3.22 GB = 6.44 GB",
        ],
        "different": [
            "2 B * 2NDF", r"\num{6.44e9}", "6.44 e9", "2NDF parameters", "2NDF params * 2",
        ],
        "mistake": [
            "2 bytes * 2NDF * 8", "4 bytes * 2NDF", "2 bits * 2NDF",
        ],
        "unreadable": [
            "2 bytes * 2NDF bytes", "vv", "3.22 GB * 2 GB",
        ],
    },
    "f.ring": {
        "right": [
            "2(k-1)(alpha + n/(kW))", r"2(k-1)\left(\alpha + \frac{n}{kW}\right)", "2(k−1)·(α + n/(k·W))",
            "62·(100 µs + 2 ms)", "62 * 2.1 ms", "130.2 ms", "62 × (0.1 ms + 2 ms)", "2·31·(0.1 + 2) ms",
            r"\SI{130.2}{\milli\second}", "6.2 ms + 124 ms", "2 * 31 * 2.1 ms",
        ],
    },
}  # fmt: skip


@pytest.mark.parametrize("question", ANSWERS)
def test_an_answer_as_it_was_pasted_gets_the_verdict_of_a_person(question):
    asked = key(question) if question in QUESTIONS else KEYS[question.removeprefix("f.")]
    got = {text: asked.check(text).verdict for some in ANSWERS[question].values() for text in some}
    assert got == {text: verdict for verdict, some in ANSWERS[question].items() for text in some}


@pytest.mark.parametrize(
    ("question", "answer", "verdict", "hint"),
    [
        ("lm_params", "3.41B (weights only)", "unreadable", "leave out the remark in brackets"),
        ("dp_payload", "24 N DD", "right", "DD was read as D*D"),
        ("scores_mem", "32 B", "different", "B was read as a unit, not as the symbol"),
        ("dp_payload", "2 B * 12 N D^2", "different",
         "B is a symbol here: write the unit in full, or * before a symbol"),
        ("dp_payload", "2 bytes * 12 N D^2 GB", "unreadable", "two units"),
        ("dp_payload", "2 bytes N D^2", "unreadable", "words after the unit"),
    ],
)  # fmt: skip
def test_what_is_not_clear_is_said(question, answer, verdict, hint):
    found = key(question).check(answer)
    assert (found.verdict, found.hint) == (verdict, hint)
