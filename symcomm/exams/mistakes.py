"""The mistakes that are known: one record each, a change of the question or of its derived answer.

The wrong answer is derived under the wrong choice and never given; a mistake that changes nothing in a question does
not apply to it. A teacher adds one in the problem document, in the same vocabulary (``change_of``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from symcomm.core.blocks import Section
from symcomm.core.errors import DocumentError, SymcommError, nearest
from symcomm.core.keys import YES, Sort, keyed, keys_of, read_keys
from symcomm.core.records import dataclass
from symcomm.core.sentences import SENTENCES
from symcomm.exams import changes as c
from symcomm.exams.changes import Attempt, Change
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

    def apply(self, draft: Attempt) -> Iterator[Attempt]:
        """The drafts that come of it; none where it does not apply."""
        for change in self.changes:
            yield from change.apply(draft)


_FORWARD = (c.OtherOption("phase", "forward", (None, "microbatch")), c.OtherOption("scope", "forward", ("training",)))

MISTAKES: tuple[Misconception, ...] = (
    Misconception("backward_forgotten", "The backward pass is missing.", _FORWARD),
    Misconception(
        "training_for_forward",
        "This is the whole training step, but only the forward pass is asked for.",
        (c.OtherOption("scope", "training", ("forward",)),),
    ),
    Misconception(
        "forward_for_backward",
        "This is the forward pass, but the backward pass is asked for.",
        (c.OtherOption("scope", "forward", ("backward",)), c.OtherOption("phase", "forward", ("backward",))),
    ),
    Misconception(
        "elements_for_bytes",
        "These are elements: each of them has several bytes.",
        (c.OtherRecipe("one", 0, 0), c.ElementBytes(1)),
        frozenset({"bits_for_bytes", "fp32_for_fp16", "fp16_for_fp32"}),
    ),
    Misconception(
        "bits_for_bytes",
        "Bits and bytes are confused: a byte has 8 bits.",
        (c.Bits(), c.Bits(turned=True, alone=True)),
    ),
    Misconception(
        "gb_for_gib",
        "GB and GiB are confused: 10^9 bytes are not 2^30 bytes.",
        (c.Prefixes(), c.Prefixes(turned=True, alone=True)),
    ),
    Misconception(
        "fp32_for_fp16",
        "Numbers of 16 bits have 2 bytes, not 4.",
        (c.OtherRecipe("fp32", "fp32", 1), c.ElementBytes(4, now=2)),
    ),
    Misconception(
        "fp16_for_fp32",
        "Numbers of 32 bits have 4 bytes, not 2.",
        (c.ElementBytes(2, now=4),),
    ),
    Misconception(
        "ring_for_payload",
        "What a ring sends is not asked, but how many bytes are handled, each counted once.",
        (c.RingShare(),),
    ),
    Misconception(
        "factor_2k_twice",
        "The factor of the ring is there twice: it is in the bytes already.",
        (c.RingShare(twice=True),),
    ),
    Misconception(
        "per_rank_for_total",
        "This is the share of one rank or unit, but the total is asked for.",
        (c.PerRank(), c.Put("units", "1")),
    ),
    Misconception(
        "multiplied_by_ranks",
        "This is multiplied by the number of ranks, and should not be.",
        (c.PerRank(turned=True),),
    ),
    Misconception(
        "not_divided_by_ranks", "The division by the number of ranks is missing.", (c.PerRank(forgotten=True),)
    ),
    Misconception(
        "one_gather_instead_of_two",
        "The weights are gathered twice: once for the forward pass and once for backward.",
        (c.Choose("gathered_weights", "keep", ("gathered_weights", "reshard")),),
    ),
    Misconception(
        "no_recomputation",
        "The forward pass that runs a second time is missing.",
        (c.Choose("recomputation", "activations_kept"), c.OtherOption("recomputation", "none", ("full", "selective"))),
    ),
    Misconception("matrix_of_mlp_forgotten", "One matrix of the MLP is missing.", (c.Without("mlp"),)),
    Misconception(
        "output_projection_forgotten", "The output projection of attention, W^O, is missing.", (c.Without("output"),)
    ),
    Misconception("gate_counted_once", "The gate and the up projection are two matrices.", (c.Without("gate"),)),
    Misconception("vectors_forgotten", "Biases and the vectors of norms are missing.", (c.Without("vectors"),)),
    Misconception("one_layer_only", "This is one layer; all of them are asked for.", (c.Put("layers", "1"),)),
    Misconception("n_minus_1_for_n", "n and n - 1 are confused.", (c.OneLess(),)),
    Misconception(
        "mac_as_one_flop", "A multiply-add is two operations.", (c.Choose("flops", "mac", ("flops", "fma2")),)
    ),
    Misconception(
        "mac_as_two_flops",
        "A multiply-add counts as one operation here.",
        (c.Choose("flops", "fma2", ("flops", "mac")),),
    ),
    Misconception(
        "head_dim_for_model_dim",
        "The dimension of one head is taken for that of all, or for their number.",
        (c.Put("model", "head", terms=True), c.Put("heads", "head")),
    ),
    Misconception("heads_forgotten", "The number of heads is missing.", (c.Put("heads", "1"),)),
    Misconception("optimizer_states_forgotten", "The states of the optimizer are missing.", (c.OtherRecipe(1, 1, 0),)),
    Misconception("gradients_forgotten", "The gradients are missing.", (c.OtherRecipe(1, 0, 1),)),
    Misconception(
        "all_experts_for_active",
        "A token passes a few experts, not all of them.",
        (c.OtherOption("of", "all", ("active",)),),
    ),
    Misconception(
        "active_experts_for_all",
        "All experts have parameters, not only those that a token passes.",
        (c.OtherOption("of", "active", ("all",)),),
    ),
    Misconception(
        "bubble_of_ideal_for_total",
        "This is the idle time over the ideal time, not over the total time.",
        (c.OtherOption("want", "bubble_ideal", ("bubble_total",)),),
    ),
    Misconception(
        "utilisation_for_bubble",
        "This is the busy share, not the idle one.",
        (c.OtherOption("want", "utilisation", ("bubble_total",)),),
    ),
    Misconception(
        "bubble_for_utilisation",
        "This is the idle share, not the busy one.",
        (c.OtherOption("want", "bubble_total", ("utilisation",)),),
    ),
    Misconception(
        "first_microbatch_forgotten",
        "One microbatch is missing.",
        (c.OneLess(("microbatches",), less=False),),
    ),
    Misconception(
        "microbatches_multiplied",
        "This is multiplied by the number of microbatches, and should not be.",
        (c.Multiplied("microbatches"),),
    ),
    Misconception("microbatches_forgotten", "The number of microbatches is missing.", (c.Put("microbatches", "1"),)),
    Misconception("batch_forgotten", "The batch is missing.", (c.Put("batch", "1"),)),
    Misconception(
        "sequence_squared_forgotten",
        "The scores are of all pairs of positions: their share grows with L^2.",
        (c.LowerDegree("sequence"),),
    ),
    Misconception(
        "inverse", "This is upside down: one over what is asked for, or over a factor of it.", (c.Inverted(),)
    ),
    Misconception("square_root_forgotten", "The square root is missing.", (c.Unrooted(),)),
    Misconception(
        "both_directions",
        "A link carries both directions at once: only one of them counts.",
        (
            c.Choose("link", "bidirectional", ("link", "full_duplex")),
            c.Choose("pipeline", "both_directions", ("pipeline", "one_direction")),
        ),
    ),
    Misconception(
        "all_boundaries_for_one",
        "This is over all boundaries of the pipeline, but one is asked for.",
        (c.Choose("pipeline", "all_boundaries", ("pipeline", "one_direction")),),
    ),
    Misconception(
        "reduced_every_microbatch",
        "Gradients are added on a rank first, and reduced once.",
        (c.Choose("accumulation", "reduced_every_microbatch", ("accumulation", "reduced_once")),),
    ),
    Misconception("latency_forgotten", "The latency or overhead is missing.", (c.Drop("latency"),)),
    Misconception(
        "causal_half",
        "The scores are counted for all pairs of positions here, not for half of them.",
        (c.Choose("attention", "causal_half", ("attention", "full")),),
    ),
    *(
        Misconception(slip.name, slip.says, (c.OtherOption("slip", slip.name, (None,)),))
        for slip in TRACE_MISTAKES.values()
    ),
    Misconception(
        "added_instead_of_overlapped",
        "The times overlap: the longest one counts, not their sum.",
        (c.Choose("time", "serial", ("time", "overlap")),),
    ),
    Misconception(
        "sum_in_another_format",
        "This is the sum in another number format than that of the accumulator.",
        tuple(
            c.OtherOption("accumulator", other, (own,))
            for own in ("fp16", "bf16", "fp32")
            for other in ("fp16", "bf16", "fp32")
            if other != own
        ),
    ),
    Misconception(
        "sum_not_rounded",
        "Each addition is rounded: this is as good as the exact sum.",
        (c.OtherOption("accumulator", "fp64", ("fp16", "bf16", "fp32")),),
    ),
    Misconception(
        "representation_for_accumulation",
        "The error of rounding the number once and the error of the additions are confused.",
        (
            c.OtherOption("want", "representation_error", ("accumulation_error",)),
            c.OtherOption("want", "accumulation_error", ("representation_error",)),
        ),
    ),
    Misconception(
        "epsilon_for_unit_roundoff",
        "The distance of neighbours and half of it, the error of rounding to nearest, are confused.",
        (
            c.OtherOption("want", "epsilon", ("unit_roundoff",)),
            c.OtherOption("want", "unit_roundoff", ("epsilon",)),
            c.OtherOption("want", "smallest", ("flushed_up_to",)),
        ),
    ),
    Misconception(
        "subnormals_forgotten",
        "Below the smallest normal number there are subnormal ones.",
        (
            c.OtherOption("want", "smallest_normal", ("smallest_subnormal",)),
            c.OtherOption("want", "smallest_normal", ("smallest",)),
        ),
    ),
    Misconception(
        "all_operands_at_once",
        "This takes all operands at once; two at a time is cheaper.",
        (c.OtherOption("want", "flops", ("best_order",)),),
    ),
    Misconception(
        "left_to_right_for_best",
        "This is the order from left to right, which is not the best one.",
        (c.OtherOption("want", "left_to_right", ("best_order",)),),
    ),
)
BY_NAME = {mistake.name: mistake for mistake in MISTAKES}
SENTENCES["mistakes"] = lambda: {mistake.name: mistake.says for mistake in MISTAKES}

Made = tuple[Change, ...]


def _sort(made: Callable[[Section, str], Iterable[Change]]) -> Sort[Made]:
    """Changes that a key asks for; an error without a place has that of its value."""

    def read(section: Section, name: str) -> Made:
        try:
            return tuple(made(section, name))
        except SymcommError as error:
            raise error.at(section.span_of(name)) from None

    return Sort(read, {}, ())


def _known(section: Section, name: str) -> Made:
    said = section.text(name)
    if said not in BY_NAME:
        raise section.error(name, f"no mistake is called '{said[:40]}'", nearest(said, [*BY_NAME]))
    return BY_NAME[said].changes


def _multiplied(section: Section, name: str) -> Made:
    factor = section.scalar(name, "a number, a symbol or a role")
    return (c.Multiplied(factor.text.strip(), over=name == "over"),) if factor else ()


@dataclass(frozen=True)
class SaidChange:
    """What ``change`` may hold; several changes are made one after the other."""

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

    def apply(self, draft: Attempt) -> Iterator[Attempt]:
        drafts = [draft]
        for change in sorted(self.several, key=lambda one: not one.again):
            drafts = [made for before in drafts for made in change.apply(before)]
        yield from drafts
