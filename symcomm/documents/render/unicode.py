"""Characters that plain LaTeX does not know, with what it writes for them."""

from __future__ import annotations

import re

from symcomm.core.notation import GREEK_LETTERS

_SIGNS: dict[str, str] = dict(re.findall(r"(\S) (\S+)", r"""
    ≤ \leq  ≥ \geq  ≈ \approx  ≠ \neq  ≡ \equiv  ≪ \ll  ≫ \gg  ∈ \in  ∉ \notin  → \to  ← \leftarrow
    ↔ \leftrightarrow  ⇒ \Rightarrow  ∞ \infty  ∑ \sum  ∏ \prod  √ \surd  ∂ \partial  ∇ \nabla  ∝ \propto  ∀ \forall
    ∃ \exists  ⊂ \subset  ⊆ \subseteq  ∪ \cup  ∩ \cap  ⊙ \odot  ⊗ \otimes  ⊕ \oplus  ⌈ \lceil  ⌉ \rceil  ⌊ \lfloor
    ⌋ \rfloor  − -  × \times  · \cdot  ℝ \mathbb{R}  ℓ \ell  ⊤ \top  … \ldots  ′ '  ⋅ \cdot  ∥ \parallel
    ✓ \checkmark  ᵀ ^{\mathsf{T}}
"""))
_SCRIPTS = {c: f"^{{{i}}}" for i, c in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")} | {c: f"_{{{i}}}" for i, c in enumerate("₀₁₂₃₄₅₆₇₈₉")}
_SPACES = {"\N{THIN SPACE}": "\\,", "\N{NARROW NO-BREAK SPACE}": "\\,", "\N{REPLACEMENT CHARACTER}": "?"}


def latex_characters() -> tuple[tuple[str, str], ...]:
    r"""Each character with the LaTeX that sets it in text and in maths.

    >>> dict(latex_characters())["≤"]
    '\\ensuremath{\\leq}'
    """
    maths = _SIGNS | _SCRIPTS | {"⁻": "^{-}"} | {letter: f"\\{name}" for letter, name in GREEK_LETTERS.items()}
    return tuple((c, f"\\ensuremath{{{tex}}}") for c, tex in maths.items()) + tuple(_SPACES.items())
