"""Inputs made from good ones by small damage, for every door through which text comes in."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

from api import parse_problem

import symcomm as sc

ROOT = Path(__file__).parents[2]
TABLE = (
    "Computation\tInput\tOutput\n"
    "$h = relu(x W^1 + b)$\tx [B, D], W^1 [D, 4D], b [4D]\th [B, 4D]\n"
    "y = h W^2\tW^2 [4D, D]\ty [B, D]\n"
)
LATEX = (
    "| Computation | Input | Output |\n|---|---|---|\n"
    r"| $Q_i = xW_i^Q, i = 1, \dots, n_h$ "
    r"| $x \in \mathbb{R}^{B \times L \times D}, W_i^Q \in \mathbb{R}^{D \times H}$ "
    r"| $Q_i \in \mathbb{R}^{B \times L \times H}$ |" + "\n"
)
CONFIGURATION = {
    "model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 128, "n_positions": 32,
}  # fmt: skip
MODULE = (
    "Net(\n  (embed): Embedding(10, 8)\n  (layers): ModuleList(\n"
    "    (0-1): 2 x Linear(in_features=8, out_features=8)\n  )\n)"
)
PROBLEM = f"""---
title: A homework
symbols:
  D: {{meaning: model dimension, value: 64}}
  B: {{meaning: batch size, value: 8}}
  L: {{meaning: sequence length, value: 16}}
  n_h: {{value: 4}}
  H: {{value: 16}}
accounting: {{communication: payload}}
---

Prose with $D$ in it.

{LATEX.strip()}

```symcomm
model: layer
```

## 1. A question (3 points)

```symcomm
ask: communication
strategy: data(4)
collective: all-reduce
```
"""
COST = "n*o + \\frac{s}{n*w} + 3"
PIECES = (
    "\0", "\\", "{", "}", "$", "|", "\t", "\n", " ", "  ", "^", "_", "(", ")", "[", "]", ":", "- ", "#", "0", "-1",
    "1e9", "10**5000", "9^{9^{9^9}}", "\\frac{a}{", "\\sqrt", "sqrt(-1)", "__import__('os')",
    "\\input{/etc/passwd}",
    "{{ 7*7 }}", "<% raise %>", "\u202e", "\u200b", "é", "Σ", "×", "½", "nan", "inf", "None", "null", "true", "[]",
    "{}",
    "GB", "8 GB", "mod", "round(D)", "tensor(3)", "pipeline(0)", "data(k) + data(k)", "../../x", "/dev/full", "B", "D",
    "n_KV", "N_Layer", "x" * 300, "(" * 100,
)  # fmt: skip


def table(text: str) -> object:
    model = sc.load(text)
    return model.flops("training").expr, model.communication("data(k)").expr


def configuration(text: str) -> object:
    return sc.load(text).parameters().at()


def module(text: str) -> object:
    return sc.load(text).parameters().at()


def problem(text: str) -> object:
    return [str(answer.quantity) for answer in sc.solve(parse_problem(text, "fuzzed.md")).answers()]


def cost(text: str) -> object:
    return sc.minimise(text, over="n", given={"o": 1, "s": 5, "w": 2}).expr


def strategy(text: str) -> object:
    return str(sc.parse_strategy(text))


def number(text: str) -> object:
    return str(sc.Quantity.parse(text))


def answer(text: str) -> object:
    return sc.check(text, KEY).verdict or "unread"


KEY = sc.load(TABLE).communication("data(k)")
DOORS: dict[str, tuple[Callable[[str], object], str]] = {
    "table": (table, TABLE),
    "latex": (table, LATEX),
    "configuration": (configuration, json.dumps(CONFIGURATION)),
    "module": (module, MODULE),
    "problem": (problem, PROBLEM),
    "cost": (cost, COST),
    "strategy": (strategy, "data(2) + tensor(4) + sequence + pipeline(2, microbatches=8)"),
    "number": (number, "12 345.5 GiB/s"),
    "answer": (answer, r"V = 2\cdot 8 D^2 + 8 D \text{ bytes}"),
}


def damaged(good: str, seed: int) -> str:
    """A text with one to four small faults."""
    chance = random.Random(seed)
    text = good
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(text) + 1)
        to = min(len(text), at + chance.choice((1, 1, 2, 5, 20)))
        kind = chance.randrange(5)
        if kind == 0:
            text = text[:at] + text[to:]
        elif kind == 1:
            text = text[:at] + chance.choice(PIECES) + text[at:]
        elif kind == 2:
            text = text[:at] + chance.choice(PIECES) + text[to:]
        elif kind == 3:
            text = text[:at] + text[at:to] * chance.choice((2, 3, 50)) + text[to:]
        else:
            other = chance.randrange(len(text) + 1)
            text = text[:at] + text[other : other + 8] + text[to:]
    return text
