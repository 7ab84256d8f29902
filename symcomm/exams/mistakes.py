"""The mistakes that are known: one record each, a change of the question or of its derived answer.

The wrong answer is derived under the wrong choice and never given; a mistake that changes nothing in a question does
not apply to it. A teacher adds one in the problem document, in the same vocabulary (``change_of``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import permutations

from symcomm.core.blocks import Section
from symcomm.core.errors import DocumentError, nearest
from symcomm.core.keys import YES, Sort, keyed, keys_of, read_keys
from symcomm.core.records import dataclass
from symcomm.core.sentences import SENTENCES
from symcomm.exams import changes as c
from symcomm.exams.changes import Change, ChangedAnswer
from symcomm.exams.problems.answer_keys import SaidMistake
from symcomm.exams.problems.keys import convention
from symcomm.teaching.differentiation.mistakes import TRACE_MISTAKES


@dataclass(frozen=True)
class Misconception:
    """A mistake: its name, one sentence for the student, and the changes each of which is a way to make it."""

    name: str
    says: str
    changes: tuple[Change, ...]
    never_with: frozenset[str] = frozenset()  # mistakes that exclude it: it cannot be made twice

    @property
    def again(self) -> bool:
        """Whether some way to make it asks the question again."""
        return any(change.again for change in self.changes)

    def apply(self, draft: ChangedAnswer) -> Iterator[ChangedAnswer]:
        """The drafts that come of it; none where it does not apply."""
        for change in self.changes:
            yield from change.apply(draft)


def _record(name: str, says: str, *changes: Change, never_with: frozenset[str] = frozenset()) -> Misconception:
    return Misconception(name, says, changes, never_with)


_FORWARD = (c.OtherOption("phase", "forward", (None, "microbatch")), c.OtherOption("scope", "forward", ("training",)))

MISTAKES: tuple[Misconception, ...] = (
    _record("backward_forgotten", "You left out the backward pass.", *_FORWARD),
    _record("training_for_forward", "This is the whole training step; the question asks for the forward pass.",
            c.OtherOption("scope", "training", ("forward",))),
    _record("forward_for_backward", "This is the forward pass; the question asks for the backward pass.",
            c.OtherOption("scope", "forward", ("backward",)), c.OtherOption("phase", "forward", ("backward",))),
    _record("elements_for_bytes", "You counted elements; multiply by the bytes of an element.",
            c.OtherRecipe("one", 0, 0), c.ElementBytes(1),
            never_with=frozenset({"bits_for_bytes", "fp32_for_fp16", "fp16_for_fp32"})),
    _record("bits_for_bytes", "You mixed up bits and bytes: a byte has 8 bits.",
            c.Bits(), c.Bits(turned=True, alone=True), c.BitsInSum(), c.BitsInSum(turned=True, alone=True)),
    _record("gb_for_gib", "You mixed up GB and GiB: 1 GB is 10⁹ bytes, 1 GiB is 2³⁰ bytes.",
            c.Prefixes(), c.Prefixes(turned=True, alone=True)),
    _record("fp32_for_fp16", "A number of 16 bits takes 2 bytes, not 4.",
            c.OtherRecipe("fp32", "fp32", 1), c.ElementBytes(4, now=2)),
    _record("fp16_for_fp32", "A number of 32 bits takes 4 bytes, not 2.", c.ElementBytes(2, now=4)),
    _record("ring_for_payload",
            "You counted what each GPU sends on a ring; the question counts each tensor once per call.",
            c.RingShare()),
    _record("factor_2k_twice", "You applied the ring factor twice.", c.RingShare(twice=True)),
    _record("per_rank_for_total", "This is the share of one GPU or unit; the question asks for all of them.",
            c.PerRank(), c.Put("units", "1")),
    _record("multiplied_by_ranks", "You multiplied by the number of ranks; count it once.", c.PerRank(turned=True)),
    _record("not_divided_by_ranks", "You did not divide by the number of ranks.", c.PerRank(forgotten=True)),
    _record("one_gather_instead_of_two",
            "The weights are gathered twice: for the forward pass and again for the backward pass.",
            c.Choose("gathered_weights", "keep", ("gathered_weights", "reshard"))),
    _record("no_recomputation", "You left out the second forward pass (recomputation).",
            c.Choose("recomputation", "activations_kept"),
            c.OtherOption("recomputation", "none", ("full", "selective"))),
    _record("matrix_of_mlp_forgotten", "You left out one matrix of the MLP.", c.Without("mlp")),
    _record("output_projection_forgotten", "You left out the output projection of attention.", c.Without("output")),
    _record("gate_counted_once", "The gate and the up projection are two matrices, not one.", c.Without("gate")),
    _record("vectors_forgotten", "You left out the biases and the vectors of the norms.", c.Without("vectors")),
    _record("one_layer_only", "This is one layer; the question asks for all layers.", c.Put("layers", "1")),
    _record("n_minus_1_for_n", "You are off by one: you counted n instead of n − 1, or the reverse.", c.OneLess()),
    _record("mac_as_one_flop", "A multiply-add counts as two operations here.",
            c.Choose("flops", "mac", ("flops", "fma2"))),
    _record("mac_as_two_flops", "A multiply-add counts as one operation here.",
            c.Choose("flops", "fma2", ("flops", "mac"))),
    _record("head_dim_for_model_dim",
            "You mixed up the dimension of one head with the model dimension, or with the number of heads.",
            c.Put("model", "head", terms=True), c.Put("heads", "head")),
    _record("heads_forgotten", "You left out the number of heads.", c.Put("heads", "1")),
    _record("optimizer_states_forgotten", "You left out the optimizer states.", c.OtherRecipe(1, 1, 0)),
    _record("gradients_forgotten", "You left out the gradients.", c.OtherRecipe(1, 0, 1)),
    _record("all_experts_for_active", "A token passes through a few experts, not all of them.",
            c.OtherOption("of", "all", ("active",)),
            c.Choose("experts_read", "every_expert", ("experts_read", "expected")),
            c.Put("active_experts", "experts")),
    _record("query_heads_for_kv_heads",
            "Several query heads share one key/value head; the cache has the key/value heads alone.",
            c.Put("kv_width", "model"), c.Put("kv_heads", "query_heads")),
    _record("keys_without_values", "The cache keeps keys and values; you left one out.", c.KeptForgotten()),
    _record("prefill_for_decode", "You computed the whole prompt; a decode step computes one new position.",
            c.OtherStep()),
    _record("active_experts_for_all",
            "Count the parameters of all experts, including experts that a token does not use.",
            c.OtherOption("of", "active", ("all",))),
    _record("bubble_of_ideal_for_total", "You divided the idle time by the ideal time; divide by the total time.",
            c.OtherOption("want", "bubble_ideal", ("bubble_total",))),
    _record("bubble_of_total_for_ideal", "You divided the idle time by the total time; divide by the ideal time.",
            c.OtherOption("want", "bubble_total", ("bubble_ideal",))),
    _record("utilisation_for_bubble", "This is the utilisation; the question asks for the bubble.",
            c.OtherOption("want", "utilisation", ("bubble_total", "bubble_ideal"))),
    _record("bubble_for_utilisation", "This is the bubble; the question asks for the utilisation.",
            c.OtherOption("want", "bubble_total", ("utilisation",))),
    _record("first_microbatch_forgotten", "You left out one microbatch.", c.OneLess(("microbatches",), less=False)),
    _record("microbatches_multiplied", "You multiplied by the number of microbatches; leave it out.",
            c.Multiplied("microbatches")),
    _record("microbatches_forgotten", "You left out the number of microbatches.", c.Put("microbatches", "1")),
    _record("batch_forgotten", "You left out the batch size.", c.Put("batch", "1")),
    _record("sequence_squared_forgotten", "There is a score for every pair of positions, so this part grows with L².",
            c.LowerDegree("sequence")),
    _record("inverse", "The answer, or one of its factors, is upside down: take the reciprocal.", c.Inverted()),
    _record("square_root_forgotten", "You left out the square root.", c.Unrooted()),
    _record("both_directions", "You counted both directions; a link carries them at the same time, so count one.",
            c.Choose("link", "bidirectional", ("link", "full_duplex")),
            c.Choose("pipeline", "both_directions", ("pipeline", "one_direction"))),
    _record("all_boundaries_for_one", "You counted all boundaries of the pipeline; the question asks for one.",
            c.Choose("pipeline", "all_boundaries", ("pipeline", "one_direction"))),
    _record("reduced_every_microbatch",
            "A rank first adds the gradients of its microbatches, then reduces them once.",
            c.Choose("accumulation", "reduced_every_microbatch", ("accumulation", "reduced_once"))),
    _record("latency_forgotten", "You left out the latency or the overhead.", c.Drop("latency")),
    _record("latency_once", "You counted the latency once; every message has it.", c.Drop("latency", once=True)),
    _record("one_ring_phase", "You counted one phase; a ring all-reduce has two, a reduce-scatter and an all-gather.",
            c.OnePhase()),
    _record("zero_stages_confused",
            "This is another stage of ZeRO: 1 cuts optimizer states, 2 also gradients, 3 also weights.",
            c.OtherStage()),
    _record("node_for_all_ranks", "You used the number of GPUs in one node; use the number of all GPUs.",
            c.Put("ranks", "node")),
    _record("causal_half", "Here attention computes the scores of all pairs of positions, not of half of them.",
            c.Choose("attention", "causal_half", ("attention", "full"))),
    *(_record(slip.name, slip.says, c.OtherOption("slip", slip.name, (None,))) for slip in TRACE_MISTAKES.values()),
    _record("added_instead_of_overlapped", "You added times that overlap; only the longest one counts.",
            c.Choose("time", "serial", ("time", "overlap"))),
    _record("sum_in_another_format", "This is the sum in another number format; use the format of the accumulator.",
            *(c.OtherOption("accumulator", other, (own,)) for own, other in permutations(("fp16", "bf16", "fp32"), 2))),
    _record("sum_not_rounded", "You did not round after each addition.",
            c.OtherOption("accumulator", "fp64", ("fp16", "bf16", "fp32"))),
    _record("representation_for_accumulation",
            "You mixed up two errors: rounding the number once, and rounding every addition.",
            c.OtherOption("want", "representation_error", ("accumulation_error",)),
            c.OtherOption("want", "accumulation_error", ("representation_error",))),
    _record("epsilon_for_unit_roundoff",
            "You mixed up the spacing of neighbouring numbers and the unit roundoff, which is half of it.",
            c.OtherOption("want", "epsilon", ("unit_roundoff",)),
            c.OtherOption("want", "unit_roundoff", ("epsilon",)),
            c.OtherOption("want", "smallest", ("flushed_up_to",))),
    _record("subnormals_forgotten", "Below the smallest normal number there are subnormal numbers.",
            c.OtherOption("want", "smallest_normal", ("smallest_subnormal",)),
            c.OtherOption("want", "smallest_normal", ("smallest",))),
    _record("all_operands_at_once", "You multiplied all operands at once; contracting two at a time is cheaper.",
            c.OtherOption("want", "flops", ("best_order",))),
    _record("left_to_right_for_best", "This is the cost from left to right; another order is cheaper.",
            c.OtherOption("want", "left_to_right", ("best_order",))),
)  # fmt: skip
BY_NAME = {mistake.name: mistake for mistake in MISTAKES}
SENTENCES["mistakes"] = lambda: {mistake.name: mistake.says for mistake in MISTAKES}

Made = tuple[Change, ...]


def _sort(made: Callable[[Section, str], Iterable[Change]]) -> Sort[Made]:
    """Changes that a key asks for; an error without a place has that of its value."""

    def read(section: Section, name: str) -> Made:
        with section.span_of(name).meant():
            return tuple(made(section, name))

    return Sort(read, {}, ())


def _known(section: Section, name: str) -> Made:
    said = section.text(name)
    if said not in BY_NAME:
        raise section.error(name, f"no mistake is called '{said[:40]}'", nearest(said, [*BY_NAME]))
    return BY_NAME[said].changes


def _multiplied(section: Section, name: str) -> Made:
    factor = section.scalar(name, "a number, a symbol or a role")
    said = factor.text.strip() if factor else ""
    is_number = re.fullmatch(r"[1-9]\d{0,14}(/[1-9]\d{0,14})?", said, re.ASCII)
    if factor and not is_number and not any(map(str.isalpha, said)):
        raise section.error(name, f"'{said[:40]}' is no factor", "such as 2 or 1/3, a symbol, or a role")
    return (c.Multiplied(said, over=name == "over"),) if factor else ()


@dataclass(frozen=True)
class SaidChange:
    """The changes that ``change`` may hold; several are made one after the other."""

    accounting: Made = keyed("another convention: `all_links`",
                             _sort(lambda at, key: (c.Choose(*convention(one)) for one in at.texts(key))))  # fmt: skip
    option: Made = keyed("another value of an option of the quantity: `{scope: training}`",
                         _sort(lambda at, key: (c.OtherOption(*pair) for pair in at.pairs(key))))  # fmt: skip
    times: Made = keyed("times a number, a symbol, or those of a role: `batch`", _sort(_multiplied))
    over: Made = keyed("over a number, a symbol, or those of a role: `3`", _sort(_multiplied))
    replace: Made = keyed("a symbol or a number for a symbol or a role: `{D: H}`",
                          _sort(lambda at, key: (c.Put(*pair) for pair in at.pairs(key))))  # fmt: skip
    without: Made = keyed("weights that are not counted: `[W^O]`",
                          _sort(lambda at, key: (c.Without(names=at.texts(key)),)))  # fmt: skip
    drop: Made = keyed("a symbol whose terms are left out: `alpha`", _sort(lambda at, key: (c.Drop(at.text(key)),)))
    inverse: Made = keyed("`yes`: one over the answer", _sort(lambda at, key: (c.Inverted(),) * YES.read(at, key)))
    element_bytes: Made = keyed("another size of an element: `4`",
                                _sort(lambda at, key: (c.ElementBytes(at.count(key) or 1),)))  # fmt: skip
    like: Made = keyed("what a known mistake changes: `one_layer_only`", _sort(_known))


def own_mistake(said: SaidMistake) -> Misconception:
    """A mistake that a teacher describes in a problem document."""
    return Misconception(said.name, said.says, change_of(said.change))


def change_of(section: Section) -> tuple[Change, ...]:
    """The changes that ``change`` says, made one after the other where there are several.

    Raises ``DocumentError`` for an unknown word.
    """
    said = read_keys(SaidChange, section)
    made = [one for key in section.keys for one in getattr(said, key)]
    if not made:
        raise DocumentError("this change changes nothing", section.span, "known: " + ", ".join(keys_of(SaidChange)))
    return (made[0],) if len(made) == 1 else (_Together(tuple(made)),)


@dataclass(frozen=True)
class _Together(Change):
    """Several changes, one after the other; those that ask again come first."""

    several: tuple[Change, ...]

    @property
    def again(self) -> bool:  # type: ignore[override]
        """Whether one of them asks the question again."""
        return any(change.again for change in self.several)

    def apply(self, draft: ChangedAnswer) -> Iterator[ChangedAnswer]:
        drafts = [draft]
        for change in sorted(self.several, key=lambda one: not one.again):
            drafts = [made for before in drafts for made in change.apply(before)]
        yield from drafts
