"""Every convention that changes a number, by name: the vocabulary, the defaults, and what each choice means.

One record a choice, in ``CONVENTIONS``; ``Accounting`` is one choice of each. A derivation carries the accounting it
was made under, prints the fields that touched it, and refuses to be combined with one made under another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace

from symcomm.core.errors import AccountingError, nearest
from symcomm.core.records import dataclass
from symcomm.core.sentences import SENTENCES


@dataclass(frozen=True)
class Convention:
    """One choice: the field it belongs to, its name, and one sentence for the head of a write-up."""

    field: str
    name: str
    statement: str


# The first row of a field is its default.
CONVENTIONS: tuple[Convention, ...] = (
    Convention("flops", "fma2", "A multiply-add counts as two operations."),
    Convention("flops", "exact_adds", "A sum of n products counts n multiplications and n - 1 additions."),
    Convention("flops", "mac", "A multiply-add counts as one operation."),
    Convention("operations", "matmul_only", "Only matrix products are counted."),
    Convention("operations", "all_ops", "Pointwise functions, normalisations and softmax are counted, too."),
    Convention("parameters", "every_weight", "Every weight is counted: matrices, embeddings, norms and biases."),
    Convention(
        "parameters", "layer_matrices", "Only the matrices of layers are counted: no embeddings, norms and biases."
    ),
    Convention("attention", "full", "Attention scores are counted for all pairs of positions."),
    Convention(
        "attention",
        "causal_half",
        "Only the L(L+1)/2 unmasked pairs of a causal attention are counted, and of a window those in it.",
    ),
    Convention(
        "attention",
        "windowed",
        "Where attention has a window of w positions, L·min(L, w) pairs are computed and kept; keys and values are "
        "gathered whole wherever the positions are cut.",
    ),
    Convention(
        "context_order",
        "contiguous",
        "Ranks that share the positions of a causal attention have neighbouring ones: the rank with the last positions "
        "works on the most pairs, and the others wait for it.",
    ),
    Convention(
        "context_order",
        "balanced",
        "Ranks that share the positions of a causal attention have early and late ones, so that each works on as many "
        "pairs.",
    ),
    Convention("input_gradient", "needed", "Every layer computes the gradient of its input, the first one as well."),
    Convention("input_gradient", "not_needed", "The first layer's input needs no gradient."),
    Convention("traffic", "compulsory", "Each operand is read once and the result written once."),
    Convention(
        "traffic",
        "weights_and_reloaded_activations",
        "Weights are read for every product they are in, their gradients are read and written, saved activations are "
        "read again in the backward pass, and what collectives send and receive goes through memory; all else stays "
        "in the cache.",
    ),
    Convention(
        "experts_read",
        "expected",
        "Of E experts those are read that T tokens are expected to hit if each goes to any k of them alike: "
        "E(1 - (1 - k/E)^T), to 12 decimal places.",
    ),
    Convention("experts_read", "at_most", "Of E experts as many are read as T tokens hit at most: min(E, k·T)."),
    Convention("experts_read", "every_expert", "All experts are read, however few tokens there are."),
    Convention("time", "overlap", "Computing, memory and network work side by side: the longest of them is the time."),
    Convention("time", "per_op", "Computing and memory overlap within an op; ops and collectives follow one another."),
    Convention("time", "serial", "Nothing overlaps: the times of computing, memory and network add up."),
    Convention("rate", "of_format", "The peak rate is that of the number format in use."),
    Convention("rate", "eight_bit", "The peak rate is that of 8-bit numbers; a format of w bytes runs at 1/w of it."),
    Convention("link", "full_duplex", "The bandwidth of a link is that of one direction; both are used at once."),
    Convention(
        "link", "bidirectional", "The bandwidth of a link is that of both directions; bytes sent and received add up."
    ),
    Convention("gradient_sync", "end_of_batch", "Gradients of weights are reduced after the last backward pass."),
    Convention("gradient_sync", "with_backward", "Gradients of weights are reduced while the last backward pass runs."),
    Convention("accumulation", "reduced_once", "Gradients of microbatches are added on a rank, and reduced once."),
    Convention("accumulation", "reduced_every_microbatch", "Gradients are reduced for each microbatch."),
    Convention("gradient_buckets", "in_place", "The gradient of each weight is reduced where it is."),
    Convention("gradient_buckets", "copied", "Data parallelism copies gradients to flat buckets, and reduces those."),
    Convention("weight_copies", "while_needed", "Autocast's copy of a weight stays until the last gradient reads it."),
    Convention(
        "weight_copies",
        "kept_in_context",
        "Autocast's copies of weights stay in its cache until its context ends, behind the update.",
    ),
    Convention("offloading", "on_device", "Weights, gradients and optimizer states are on the device."),
    Convention(
        "offloading",
        "states_on_host",
        "Optimizer states are on the host, which updates the weights: gradients go there, new weights come back. "
        "The update itself is not timed.",
    ),
    Convention("recomputation", "activations_kept", "Activations are kept for the backward pass."),
    Convention("recomputation", "full_recomputation", "The forward pass of a layer is computed again for backward."),
    Convention(
        "recomputation",
        "needed_recomputation",
        "The forward pass of a layer is computed again for backward, up to the last result that backward reads.",
    ),
    Convention(
        "recomputation", "selective_recomputation", "The core of attention is computed again for backward, no more."
    ),
    Convention("model_flops", "training_flops", "Model FLOPs are the forward and backward operations of the graph."),
    Convention("model_flops", "6nd", "Model FLOPs are six for each parameter and token."),
    Convention("capacity", "unnamed", "What the GB of a device mean is not said, so no answer may depend on it."),
    Convention("capacity", "nominal_GB", "The capacity of a device is what it is sold with, in GB of 10⁹ bytes."),
    Convention("capacity", "nominal_GiB", "The capacity of a device is what it is sold with, in GiB of 2³⁰ bytes."),
    Convention("capacity", "usable", "The capacity of a device is what its driver reports."),
    Convention(
        "communication", "payload", "Bytes are those of the full tensor a collective works on, counted once per call."
    ),
    Convention("communication", "sent_per_rank", "Bytes are those one rank sends."),
    Convention("communication", "sent_and_received_per_rank", "Bytes are those one rank sends plus those it receives."),
    Convention("communication", "all_links", "Bytes are those that all ranks together send over all links."),
    Convention("communication", "contributed", "Bytes are what all ranks together put into the collectives."),
    Convention("algorithm", "usual", "Each kind of collective runs its usual algorithm."),
    Convention("algorithm", "ring", "Collectives run on a ring: ranks send to their neighbours only."),
    Convention("algorithm", "tree", "Collectives run on a binomial tree."),
    Convention("algorithm", "double_tree", "Collectives run on two binary trees, each for half of the tensor."),
    Convention("algorithm", "recursive_doubling", "Collectives run by recursive doubling."),
    Convention("algorithm", "halving_doubling", "Collectives run by recursive halving and doubling."),
    Convention("algorithm", "bruck", "Collectives run by Bruck's algorithm."),
    Convention("algorithm", "pairwise", "Ranks send to one another directly, as over a crossbar."),
    Convention("algorithm", "scatter_allgather", "A broadcast scatters the tensor and gathers it again."),
    Convention("algorithm", "chain", "Collectives run in chunks along a chain of ranks."),
    Convention(
        "algorithm", "owner_multicast", "Each rank owns a part of the sum, and the network multicasts it for free."
    ),
    Convention("algorithm", "hierarchical", "Collectives run on rings inside nodes of g ranks and between the nodes."),
    Convention("algorithm", "torus_2d", "Collectives run on the rings along the two axes of a torus."),
    Convention("algorithm", "torus_3d", "Collectives run on the rings along the three axes of a torus."),
    Convention("rings", "one_way", "Chunks run one way round a ring."),
    Convention(
        "rings",
        "both_ways",
        "Chunks run both ways round a ring of an even number of ranks at once, each half way: a link carries half of "
        "the tensor in each direction.",
    ),
    Convention("torus", "one_axis_at_a_time", "The axes of a torus are used one after the other, by the whole tensor."),
    Convention("torus", "all_axes_at_once", "All axes of a torus are used at once, each by a part of the tensor."),
    Convention("chunks", "padded", "A payload that does not divide is padded to equal chunks of whole elements."),
    Convention("chunks", "divisible", "The payload is taken to divide into equal chunks."),
    Convention("message_cost", "alpha_beta", "A message costs its latency, and its bytes over the bandwidth."),
    Convention("message_cost", "alpha_beta_gamma", "A message costs latency, bytes over bandwidth, and additions."),
    Convention("message_cost", "bandwidth_only", "A message costs its bytes over the bandwidth; latency is left out."),
    Convention("bandwidth", "algbw", "The bandwidth of a collective is its payload over its time."),
    Convention(
        "bandwidth",
        "busbw",
        "The bandwidth of a collective is the least share of the payload that a rank must move, over its time.",
    ),
    Convention(
        "gathered_weights",
        "reshard",
        "Gathered weights are dropped after the forward pass and gathered again for backward; what no gradient reads "
        "(embeddings, biases) is gathered once.",
    ),
    Convention(
        "gathered_weights",
        "whole_units",
        "Gathered weights are dropped after the forward pass; for backward all of them are gathered again, also those "
        "that no gradient reads (biases, embeddings), because a unit of modules is gathered as a whole.",
    ),
    Convention("gathered_weights", "keep", "Gathered weights are kept from the forward to the backward pass."),
    Convention(
        "gathered_weights",
        "layers",
        "The weights of layers are dropped after their forward pass and gathered again as a whole for backward; those "
        "before and behind the layers are kept.",
    ),
    Convention(
        "gathered_weights",
        "at_once",
        "The weights of the whole model are gathered at once, and kept for the whole step; gradients are reduced when "
        "all are there.",
    ),
    Convention(
        "gathered_activations",
        "regather_sequence",
        "Activations that sequence parallelism cuts are saved as shards and gathered again for the backward pass; "
        "other gathered activations are kept.",
    ),
    Convention("gathered_activations", "keep", "Gathered activations are kept from the forward to the backward pass."),
    Convention(
        "gathered_activations",
        "regather",
        "Activations are saved as shards and gathered again for the backward pass.",
    ),
    Convention("pipeline", "one_direction", "Pipeline traffic is that over one boundary in each direction."),
    Convention("pipeline", "both_directions", "Pipeline traffic is that over one boundary, both directions together."),
    Convention("pipeline", "all_boundaries", "Pipeline traffic is that over all boundaries, both directions together."),
    Convention("pipeline", "per_microbatch", "Pipeline traffic is that of one microbatch over one boundary."),
    Convention(
        "shards",
        "mean_shard",
        "Where the ranks do not divide the parameters, we use the average share, rounded up to whole bytes.",
    ),
    Convention(
        "shards",
        "padded_shards",
        "A weight is cut into parts of whole rows, all as large as the largest: the last ones are filled up.",
    ),
    Convention(
        "norm_gradients",
        "with_inputs",
        "Where a schedule runs the gradients of weights apart, those of a norm's gain and bias stay with its input's.",
    ),
    Convention(
        "norm_gradients",
        "with_weights",
        "Where a schedule runs the gradients of weights apart, those of a norm's gain and bias are among them.",
    ),
    Convention(
        "vocabulary",
        "largest_part",
        "Ranks share a vocabulary of V words in parts of ⌈V/k⌉; the largest part counts, the last one may be smaller.",
    ),
    Convention(
        "vocabulary",
        "padded_vocabulary",
        "A vocabulary that k ranks share is filled up to a multiple of 128·k words, as Megatron-LM does.",
    ),
    Convention("saved", "ideal", "What the derived gradients read is kept; statistics of a row are computed again."),
    Convention("saved", "pytorch", "What eager PyTorch keeps for backward is kept, each storage counted once."),
    Convention(
        "softmax",
        "as_given",
        "A configuration attends as its library does, in one kernel where there is one; a table as it is written.",
    ),
    Convention("softmax", "library", "Softmax is one function: it keeps its result."),
    Convention(
        "softmax",
        "by_hand",
        "Softmax is written by hand: exponentials, their sums and the places of the maxima are kept.",
    ),
    Convention(
        "softmax",
        "fused",
        "Attention is one kernel: it keeps its operands, its result and a number a row; scores stay inside, and are "
        "computed again for backward.",
    ),
)

SENTENCES["conventions"] = lambda: {f"{row.field}.{row.name}": row.statement for row in CONVENTIONS}

# Those whose algorithms can be chosen one by one.
COLLECTIVES = (
    "all-reduce", "reduce-scatter", "all-gather", "all-to-all", "broadcast", "reduce", "scatter", "gather",
)  # fmt: skip
OF_KIND = "algorithm of "  # which begins the name of one that ran: "algorithm of all-to-all: pairwise"

_CHOICES: dict[str, dict[str, Convention]] = {}
for _row in CONVENTIONS:
    _CHOICES.setdefault(_row.field, {})[_row.name] = _row


@dataclass(frozen=True)
class Accounting:
    """One choice of every convention; unknown names are refused with near ones.

    >>> Accounting().communication, Accounting.of("all_links").communication
    ('payload', 'all_links')
    >>> Accounting(flops="fma3")
    Traceback (most recent call last):
        ...
    symcomm.core.errors.AccountingError: 'fma3' is no convention for flops
    hint: did you mean 'fma2'?
    """

    flops: str = "fma2"
    operations: str = "matmul_only"
    parameters: str = "every_weight"
    attention: str = "full"
    context_order: str = "contiguous"
    input_gradient: str = "needed"
    traffic: str = "compulsory"
    experts_read: str = "expected"
    time: str = "overlap"
    rate: str = "of_format"
    link: str = "full_duplex"
    gradient_sync: str = "end_of_batch"
    accumulation: str = "reduced_once"
    gradient_buckets: str = "in_place"
    weight_copies: str = "while_needed"
    offloading: str = "on_device"
    recomputation: str = "activations_kept"
    model_flops: str = "training_flops"
    capacity: str = "unnamed"
    communication: str = "payload"
    algorithm: str = "usual"
    rings: str = "one_way"
    torus: str = "one_axis_at_a_time"
    chunks: str = "padded"
    message_cost: str = "alpha_beta"
    bandwidth: str = "algbw"
    gathered_weights: str = "reshard"
    gathered_activations: str = "regather_sequence"
    pipeline: str = "one_direction"
    shards: str = "mean_shard"
    norm_gradients: str = "with_inputs"
    vocabulary: str = "largest_part"
    saved: str = "ideal"
    softmax: str = "as_given"

    def __post_init__(self) -> None:
        for name, said in self.__dict__.items():
            if not isinstance(said, str):
                what = f"{name} is of the type {type(said).__name__}, but a convention is a name"
                raise AccountingError(what, hint=f"such as {next(iter(_CHOICES[name]))!r}")
            every, own = by_kind(said) if name == "algorithm" else (said, {})
            for choice in (every, *own.values()):
                if choice not in _CHOICES[name]:
                    raise AccountingError(
                        f"'{choice}' is no convention for {name}", hint=nearest(choice, [*_CHOICES[name]])
                    )
            for kind in own:
                if kind not in COLLECTIVES:
                    raise AccountingError(
                        f"'{kind[:40]}' is no collective with an algorithm", hint=nearest(kind, [*COLLECTIVES])
                    )

    @classmethod
    def of(cls, *choices: str | Accounting | None, **named: Choice) -> Accounting:
        """An accounting from names alone: each name says which field it belongs to.

        Algorithms of single collectives are laid over what was chosen before.

        Raises ``AccountingError`` for an unknown name, or one that belongs to two fields.

        >>> Accounting.of("tree", algorithm={"all-to-all": "ring"}).algorithm
        'tree, all-to-all: ring'
        """
        made = cls()
        for choice in choices:
            if choice is None:
                continue
            if isinstance(choice, Accounting):
                made = choice
                continue
            if not isinstance(choice, str):
                raise AccountingError(f"a convention is a name, not a {type(choice).__name__}", hint="such as payload")
            homes = [row.field for row in CONVENTIONS if row.name == choice]
            if not homes:
                raise AccountingError(
                    f"unknown convention '{choice}'", hint=nearest(choice, [r.name for r in CONVENTIONS])
                )
            if len(homes) > 1:
                known = " or ".join(f"{home}: {choice}" for home in homes)
                raise AccountingError(f"'{choice}' belongs to several conventions", hint=f"write {known}")
            made = replace(made, **{homes[0]: choice})
        known_fields = [f.name for f in fields(cls)]
        for name in named:
            if name not in known_fields:
                raise AccountingError(f"unknown convention field '{name}'", hint=nearest(name, known_fields))
        return replace(made, **{name: _laid(name, getattr(made, name), choice) for name, choice in named.items()})

    @classmethod
    def given(cls, said: AccountingLike) -> Accounting:
        """The accounting of a name, of fields with names, of several of these, or as it is.

        Raises ``AccountingError`` for an unknown name, and for a field of which two names are said.

        >>> Accounting.given(["sent_per_rank", {"algorithm": "pairwise"}]).asked
        ('communication', 'algorithm')
        """
        if said is None or isinstance(said, (str, Accounting)):
            return cls.of(said)
        made, known = cls(), dict[str, str]()
        for one in [said] if isinstance(said, Mapping) else said:
            made = cls.of(made, **one) if isinstance(one, Mapping) else cls.of(made, one)
            pairs = one.items() if isinstance(one, Mapping) else [(r.field, one) for r in CONVENTIONS if r.name == one]
            for name, choice in pairs:
                if isinstance(choice, str) and known.setdefault(name, choice) != choice:
                    raise AccountingError(f"{name} is both {known[name]} and {choice}", hint="name one of them")
        return made

    @property
    def asked(self) -> tuple[str, ...]:
        """The fields in which something else is chosen than the default.

        >>> Accounting.of("all_links", "serial").asked
        ('time', 'communication')
        """
        return tuple(f.name for f in fields(self) if getattr(self, f.name) != f.default)

    def unused(self, asked: Iterable[str], touched: Iterable[str]) -> tuple[str, ...]:
        """A sentence on the conventions that were asked for, but touched nothing.

        >>> Accounting.of("all_links").unused(["communication"], ["flops"])
        ('`communication: all_links` was asked for; nothing here depends on it.',)
        """
        read = {*touched}
        if (ran := algorithms_of(read)) and not self._runs(ran):
            read.discard("algorithm")
        idle = [f"`{name}: {getattr(self, name)}`" for name in dict.fromkeys(asked) if name not in read]
        several = len(idle) > 1
        said = f"{'were' if several else 'was'} asked for; nothing here depends on {'them' if several else 'it'}."
        return (f"{' and '.join(idle)} {said}",) if idle else ()

    def _runs(self, ran: Mapping[str, str]) -> bool:
        """Whether one of the algorithms that ran was asked for."""
        every, own = by_kind(self.algorithm)
        return any(own.get(kind, every) == name for kind, name in ran.items())

    def chosen(self, touched: Iterable[str]) -> dict[str, Choice]:
        """The conventions that a derivation used, by field; under ``algorithm`` the algorithms that ran.

        ``touched``: the fields that the derivation read, and a line such as ``algorithm of all-reduce: ring`` for each
        kind of collective. If all kinds ran one algorithm, its name; else a mapping from kind to name.

        >>> Accounting().chosen(["time", "algorithm", "algorithm of all-reduce: ring"])
        {'time': 'overlap', 'algorithm': 'ring'}
        """
        names = dict.fromkeys(touched)
        ran = algorithms_of(names)
        told: dict[str, Choice] = {name: getattr(self, name) for name in names if field_of(name) == name}
        return told | ({"algorithm": _told(ran, ran)} if ran else {})

    def statements(self, touched: Iterable[str]) -> tuple[Convention, ...]:
        """The conventions that touched a derivation, for the head of a write-up; of each collective where they differ.

        >>> both = ["algorithm of all-reduce: ring", "algorithm of all-to-all: pairwise"]
        >>> [row.field for row in Accounting().statements(["algorithm", *both])]
        ['algorithm of all-reduce', 'algorithm of all-to-all']
        """
        found: list[Convention] = []
        for name, choice in self.chosen(touched).items():
            if isinstance(choice, str):
                found.append(_CHOICES[name][choice])
                continue
            for kind, one in choice.items():
                found.append(replace(_CHOICES[name][one], field=f"{OF_KIND}{kind}"))
        return tuple(found)


Choice = str | Mapping[str, str]  # of a field; of algorithms also one for each kind of collective
# How conventions may be given.
AccountingLike = str | Accounting | Mapping[str, Choice] | Sequence[str | Mapping[str, Choice]] | None


def by_kind(said: str) -> tuple[str, dict[str, str]]:
    """Splits the convention ``algorithm``: the name for all collectives, and the names for single kinds.

    Where no name for all is written, it is the default, ``usual``.

    >>> by_kind("tree, all-to-all: ring")
    ('tree', {'all-to-all': 'ring'})
    """
    every, own = Accounting.algorithm, dict[str, str]()
    for piece in said.split(","):
        kind, colon, name = (part.strip() for part in piece.partition(":"))
        if colon:
            own[kind] = name
        else:
            every = kind
    return every, own


def algorithms_of(touched: Iterable[str]) -> dict[str, str]:
    """The algorithm by which each kind of collective ran, among the names that touched a derivation."""
    ran = (name.removeprefix(OF_KIND).partition(": ") for name in touched if name.startswith(OF_KIND))
    return {kind: name for kind, _, name in ran}


def field_of(touched: str) -> str:
    """The field that a name belongs to.

    >>> field_of("algorithm of all-reduce: ring"), field_of("time")
    ('algorithm', 'time')
    """
    return "algorithm" if touched.startswith(OF_KIND) else touched


def clashes(a: Accounting, of_a: Iterable[str], b: Accounting, of_b: Iterable[str]) -> dict[str, tuple[Choice, Choice]]:
    """The conventions that differ between two derivations: the field, with the choice of each.

    ``of_a`` and ``of_b``: the fields that each derivation used; no other field is compared. ``algorithm`` differs only
    if a kind of collective ran in both, by different algorithms.

    >>> clashes(Accounting(), ["time", "flops"], Accounting.of("serial", "tree"), ["time"])
    {'time': ('overlap', 'serial')}
    """
    mine, theirs = algorithms_of(of_a), algorithms_of(of_b)
    names = [name for name in dict.fromkeys((*of_a, *of_b)) if field_of(name) == name]
    found: dict[str, tuple[Choice, Choice]] = {name: (getattr(a, name), getattr(b, name)) for name in names}
    if mine and theirs:
        found["algorithm"] = (_told(mine, theirs), _told(theirs, mine))
    return {name: (one, two) for name, (one, two) in found.items() if one != two}


def _told(ran: Mapping[str, str], others: Mapping[str, str]) -> Choice:
    """The algorithms of collectives that others ran, too: one name where they are the same."""
    both = {kind: name for kind, name in ran.items() if kind in others}
    return next(iter(both.values()), "") if len({*both.values()}) < 2 else both


def _laid(field: str, before: str, said: object) -> str:
    """A choice over an earlier one: algorithms of single collectives leave those of the others as they were."""
    if field == "algorithm" and isinstance(said, Mapping):
        said = ", ".join(f"{kind}: {name}" for kind, name in said.items()) or before
    if not isinstance(said, str):
        raise AccountingError(f"{field} is the name of a convention, not a {type(said).__name__}",
                              hint=f"for instance {field}: {getattr(Accounting, field)}")  # fmt: skip
    if field != "algorithm" or not all(":" in piece for piece in said.split(",")):
        return said
    every, own = by_kind(before)
    laid = {**own, **by_kind(said)[1]}
    return ", ".join([*([] if every == Accounting.algorithm else [every]), *(f"{k}: {laid[k]}" for k in sorted(laid))])
