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
    Misconception("backward_forgotten", "You left out the backward pass.", _FORWARD),
    Misconception(
        "training_for_forward",
        "This is the whole training step; the question asks for the forward pass.",
        (c.OtherOption("scope", "training", ("forward",)),),
    ),
    Misconception(
        "forward_for_backward",
        "This is the forward pass; the question asks for the backward pass.",
        (c.OtherOption("scope", "forward", ("backward",)), c.OtherOption("phase", "forward", ("backward",))),
    ),
    Misconception(
        "elements_for_bytes",
        "You counted elements; multiply by the bytes of an element.",
        (c.OtherRecipe("one", 0, 0), c.ElementBytes(1)),
        frozenset({"bits_for_bytes", "fp32_for_fp16", "fp16_for_fp32"}),
    ),
    Misconception(
        "bits_for_bytes",
        "You mixed up bits and bytes: a byte has 8 bits.",
        (c.Bits(), c.Bits(turned=True, alone=True), c.BitsInSum(), c.BitsInSum(turned=True, alone=True)),
    ),
    Misconception(
        "gb_for_gib",
        "You mixed up GB and GiB: 1 GB is 10⁹ bytes, 1 GiB is 2³⁰ bytes.",
        (c.Prefixes(), c.Prefixes(turned=True, alone=True)),
    ),
    Misconception(
        "fp32_for_fp16",
        "A number of 16 bits takes 2 bytes, not 4.",
        (c.OtherRecipe("fp32", "fp32", 1), c.ElementBytes(4, now=2)),
    ),
    Misconception(
        "fp16_for_fp32",
        "A number of 32 bits takes 4 bytes, not 2.",
        (c.ElementBytes(2, now=4),),
    ),
    Misconception(
        "ring_for_payload",
        "You counted what each GPU sends on a ring; the question counts each tensor once per call.",
        (c.RingShare(),),
    ),
    Misconception(
        "factor_2k_twice",
        "You applied the ring factor twice.",
        (c.RingShare(twice=True),),
    ),
    Misconception(
        "per_rank_for_total",
        "This is the share of one GPU or unit; the question asks for all of them.",
        (c.PerRank(), c.Put("units", "1")),
    ),
    Misconception(
        "multiplied_by_ranks",
        "You multiplied by the number of ranks; count it once.",
        (c.PerRank(turned=True),),
    ),
    Misconception("not_divided_by_ranks", "You did not divide by the number of ranks.", (c.PerRank(forgotten=True),)),
    Misconception(
        "one_gather_instead_of_two",
        "The weights are gathered twice: for the forward pass and again for the backward pass.",
        (c.Choose("gathered_weights", "keep", ("gathered_weights", "reshard")),),
    ),
    Misconception(
        "no_recomputation",
        "You left out the second forward pass (recomputation).",
        (c.Choose("recomputation", "activations_kept"), c.OtherOption("recomputation", "none", ("full", "selective"))),
    ),
    Misconception("matrix_of_mlp_forgotten", "You left out one matrix of the MLP.", (c.Without("mlp"),)),
    Misconception(
        "output_projection_forgotten", "You left out the output projection of attention.", (c.Without("output"),)
    ),
    Misconception(
        "gate_counted_once", "The gate and the up projection are two matrices, not one.", (c.Without("gate"),)
    ),
    Misconception(
        "vectors_forgotten", "You left out the biases and the vectors of the norms.", (c.Without("vectors"),)
    ),
    Misconception("one_layer_only", "This is one layer; the question asks for all layers.", (c.Put("layers", "1"),)),
    Misconception("n_minus_1_for_n", "You mixed up n and n − 1.", (c.OneLess(),)),
    Misconception(
        "mac_as_one_flop",
        "A multiply-add counts as two operations here.",
        (c.Choose("flops", "mac", ("flops", "fma2")),),
    ),
    Misconception(
        "mac_as_two_flops",
        "A multiply-add counts as one operation here.",
        (c.Choose("flops", "fma2", ("flops", "mac")),),
    ),
    Misconception(
        "head_dim_for_model_dim",
        "You mixed up the dimension of one head with the model dimension, or with the number of heads.",
        (c.Put("model", "head", terms=True), c.Put("heads", "head")),
    ),
    Misconception("heads_forgotten", "You left out the number of heads.", (c.Put("heads", "1"),)),
    Misconception("optimizer_states_forgotten", "You left out the optimizer states.", (c.OtherRecipe(1, 1, 0),)),
    Misconception("gradients_forgotten", "You left out the gradients.", (c.OtherRecipe(1, 0, 1),)),
    Misconception(
        "all_experts_for_active",
        "A token passes through a few experts, not all of them.",
        (c.OtherOption("of", "all", ("active",)),),
    ),
    Misconception(
        "active_experts_for_all",
        "Count the parameters of all experts, including experts that a token does not use.",
        (c.OtherOption("of", "active", ("all",)),),
    ),
    Misconception(
        "bubble_of_ideal_for_total",
        "You divided the idle time by the ideal time; divide by the total time.",
        (c.OtherOption("want", "bubble_ideal", ("bubble_total",)),),
    ),
    Misconception(
        "utilisation_for_bubble",
        "This is the utilisation; the question asks for the bubble.",
        (c.OtherOption("want", "utilisation", ("bubble_total",)),),
    ),
    Misconception(
        "bubble_for_utilisation",
        "This is the bubble; the question asks for the utilisation.",
        (c.OtherOption("want", "bubble_total", ("utilisation",)),),
    ),
    Misconception(
        "first_microbatch_forgotten",
        "You left out one microbatch.",
        (c.OneLess(("microbatches",), less=False),),
    ),
    Misconception(
        "microbatches_multiplied",
        "You multiplied by the number of microbatches; leave it out.",
        (c.Multiplied("microbatches"),),
    ),
    Misconception("microbatches_forgotten", "You left out the number of microbatches.", (c.Put("microbatches", "1"),)),
    Misconception("batch_forgotten", "You left out the batch size.", (c.Put("batch", "1"),)),
    Misconception(
        "sequence_squared_forgotten",
        "There is a score for every pair of positions, so this part grows with L².",
        (c.LowerDegree("sequence"),),
    ),
    Misconception(
        "inverse", "The answer, or one of its factors, is upside down: take the reciprocal.", (c.Inverted(),)
    ),
    Misconception("square_root_forgotten", "You left out the square root.", (c.Unrooted(),)),
    Misconception(
        "both_directions",
        "You counted both directions; a link carries them at the same time, so count one.",
        (
            c.Choose("link", "bidirectional", ("link", "full_duplex")),
            c.Choose("pipeline", "both_directions", ("pipeline", "one_direction")),
        ),
    ),
    Misconception(
        "all_boundaries_for_one",
        "You counted all boundaries of the pipeline; the question asks for one.",
        (c.Choose("pipeline", "all_boundaries", ("pipeline", "one_direction")),),
    ),
    Misconception(
        "reduced_every_microbatch",
        "A rank first adds the gradients of its microbatches, then reduces them once.",
        (c.Choose("accumulation", "reduced_every_microbatch", ("accumulation", "reduced_once")),),
    ),
    Misconception("latency_forgotten", "You left out the latency or the overhead.", (c.Drop("latency"),)),
    Misconception(
        "latency_once", "You counted the latency once; every message has it.", (c.Drop("latency", once=True),)
    ),
    Misconception(
        "one_ring_phase",
        "You counted one phase; a ring all-reduce has two, a reduce-scatter and an all-gather.",
        (c.OnePhase(),),
    ),
    Misconception(
        "zero_stages_confused",
        "This is another stage of ZeRO: 1 cuts optimizer states, 2 also gradients, 3 also weights.",
        (c.OtherStage(),),
    ),
    Misconception(
        "node_for_all_ranks",
        "You used the number of GPUs in one node; use the number of all GPUs.",
        (c.Put("ranks", "node"),),
    ),
    Misconception(
        "causal_half",
        "Here attention computes the scores of all pairs of positions, not of half of them.",
        (c.Choose("attention", "causal_half", ("attention", "full")),),
    ),
    *(
        Misconception(slip.name, slip.says, (c.OtherOption("slip", slip.name, (None,)),))
        for slip in TRACE_MISTAKES.values()
    ),
    Misconception(
        "added_instead_of_overlapped",
        "You added times that overlap; only the longest one counts.",
        (c.Choose("time", "serial", ("time", "overlap")),),
    ),
    Misconception(
        "sum_in_another_format",
        "This is the sum in another number format; use the format of the accumulator.",
        tuple(
            c.OtherOption("accumulator", other, (own,))
            for own in ("fp16", "bf16", "fp32")
            for other in ("fp16", "bf16", "fp32")
            if other != own
        ),
    ),
    Misconception(
        "sum_not_rounded",
        "You did not round after each addition.",
        (c.OtherOption("accumulator", "fp64", ("fp16", "bf16", "fp32")),),
    ),
    Misconception(
        "representation_for_accumulation",
        "You mixed up two errors: rounding the number once, and rounding every addition.",
        (
            c.OtherOption("want", "representation_error", ("accumulation_error",)),
            c.OtherOption("want", "accumulation_error", ("representation_error",)),
        ),
    ),
    Misconception(
        "epsilon_for_unit_roundoff",
        "You mixed up the spacing of neighbouring numbers and the unit roundoff, which is half of it.",
        (
            c.OtherOption("want", "epsilon", ("unit_roundoff",)),
            c.OtherOption("want", "unit_roundoff", ("epsilon",)),
            c.OtherOption("want", "smallest", ("flushed_up_to",)),
        ),
    ),
    Misconception(
        "subnormals_forgotten",
        "Below the smallest normal number there are subnormal numbers.",
        (
            c.OtherOption("want", "smallest_normal", ("smallest_subnormal",)),
            c.OtherOption("want", "smallest_normal", ("smallest",)),
        ),
    ),
    Misconception(
        "all_operands_at_once",
        "You multiplied all operands at once; contracting two at a time is cheaper.",
        (c.OtherOption("want", "flops", ("best_order",)),),
    ),
    Misconception(
        "left_to_right_for_best",
        "This is the cost from left to right; another order is cheaper.",
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
