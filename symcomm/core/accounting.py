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


# What each choice of a field means; the first choice is the default.
_STATEMENTS: dict[str, dict[str, str]] = {
    "flops": {
        "fma2": "A multiply-add counts as two operations.",
        "exact_adds": "A sum of n products counts n multiplications and n − 1 additions.",
        "mac": "A multiply-add counts as one operation.",
    },
    "operations": {
        "matmul_only": "Only matrix products count as operations.",
        "all_ops": "Pointwise functions, normalisations and softmax count as operations, too.",
    },
    "parameters": {
        "every_weight": "Every weight counts as a parameter: matrices, embeddings, norms and biases.",
        "layer_matrices": "Only the matrices of layers count as parameters; embeddings, norms and biases do not.",
    },
    "attention": {
        "full": "Attention computes the scores of all pairs of positions.",
        "causal_half": (
            "Causal attention counts only its L(L+1)/2 unmasked pairs; a window counts only the pairs inside it."
        ),
        "windowed": (
            "A window of w positions has L·min(L, w) pairs; where positions are cut, all keys and values are gathered."
        ),
        "left_out": "Products of queries with keys and of scores with values do not count.",
    },
    "context_order": {
        "contiguous": (
            "Each rank has neighbouring positions; under causal attention the rank with the last ones works longest."
        ),
        "balanced": "Each rank has early and late positions, so causal attention gives every rank equally many pairs.",
        "striped": "Ranks take the positions in turn; under causal attention the last rank has most.",
    },
    "input_gradient": {
        "needed": "Every layer computes the gradient of its input, including the first.",
        "not_needed": "The first layer does not compute the gradient of its input.",
    },
    "traffic": {
        "compulsory": "Memory traffic: each operand is read once, each result is written once.",
        "weights_and_reloaded_activations": (
            "Memory traffic: weights, their gradients, saved activations read again, and the buffers of collectives; "
            "the rest stays in the cache."
        ),
        "weights_and_cache": (
            "Only weights, the cache, embedding rows and logits go through memory; a step keeps all else on the chip."
        ),
        "matrices_and_cache": (
            "Matrices are read, and the cache is read and written; embedding rows and logits do not count."
        ),
        "matrices_and_cache_read": "Only the reads of matrices and of the cache count.",
        "matrices": "Only the matrices of products are read, once in a step.",
    },
    "experts_read": {
        "expected": "T tokens with k random experts of E read E(1 − (1 − k/E)^T) of them on average, to 12 decimals.",
        "at_least": "All tokens read the same k of the E experts.",
        "at_most": "T tokens read as many of the E experts as they can reach: min(E, k·T).",
        "every_expert": "All experts are read, even if there are few tokens.",
    },
    "time": {
        "overlap": "Computing, memory and network work in parallel: the longest one is the time.",
        "per_op": "Computing and memory overlap inside an op; ops and collectives run one after another.",
        "roofline": "Computing and memory overlap; the collectives come after them.",
        "serial": "Nothing overlaps: the times of computing, memory and network are added.",
    },
    "rate": {
        "of_format": "The peak rate belongs to the number format in use.",
        "eight_bit": "The peak rate is given for 8-bit numbers; a format of w bytes runs at 1/w of it.",
    },
    "link": {
        "full_duplex": "The bandwidth of a link is given per direction; both directions work at once.",
        "bidirectional": (
            "The bandwidth of a link is given for both directions together; sent and received bytes are added."
        ),
    },
    "gradient_sync": {
        "end_of_batch": "Gradients are reduced after the last backward pass.",
        "with_backward": "Gradients are reduced while the last backward pass runs.",
    },
    "accumulation": {
        "reduced_once": "A rank adds the gradients of its microbatches and reduces them once.",
        "reduced_every_microbatch": "Gradients are reduced after every microbatch.",
    },
    "gradient_buckets": {
        "in_place": "Each gradient is reduced in its own memory, without a copy.",
        "copied": "Data parallelism copies gradients into flat buckets and reduces the buckets.",
    },
    "weight_copies": {
        "while_needed": "Autocast keeps its copy of a weight until the last gradient has read it.",
        "kept_in_context": "Autocast keeps its copies of weights until its context ends, after the update.",
    },
    "offloading": {
        "on_device": "The device holds weights, gradients and optimizer states.",
        "states_on_host": (
            "The host holds the optimizer states and updates the weights (not timed); gradients go there, weights "
            "come back."
        ),
        "activations_on_host": (
            "Each layer copies the activations that it keeps to the host, and gets them back before its backward pass."
        ),
        "states_and_activations_on_host": (
            "The host holds the optimizer states, updates the weights (not timed), and holds the activations of each "
            "layer between its passes."
        ),
    },
    "recomputation": {
        "activations_kept": "Activations are kept for the backward pass, not computed again.",
        "full_recomputation": "The backward pass computes the whole forward pass of a layer again.",
        "needed_recomputation": (
            "The backward pass computes a layer's forward pass again, up to the last result it reads."
        ),
        "selective_recomputation": "The backward pass computes only the core of attention again.",
    },
    "model_flops": {
        "training_flops": "Model FLOPs are the operations of the forward and backward pass.",
        "6nd": "Model FLOPs are six operations per parameter and token.",
    },
    "capacity": {
        "unnamed": "The GB of a device may be 10⁹ or 2³⁰ bytes, so no answer may depend on it.",
        "nominal_GB": "The capacity of a device is its nominal one, in GB of 10⁹ bytes.",
        "nominal_GiB": "The capacity of a device is its nominal one, in GiB of 2³⁰ bytes.",
        "usable": "The capacity of a device is the number its driver reports.",
    },
    "communication": {
        "payload": "Each collective counts the bytes of its full tensor, once per call.",
        "sent_per_rank": "We count the bytes that one rank sends.",
        "sent_and_received_per_rank": "We count the bytes that one rank sends and receives.",
        "all_links": "We count the bytes that all ranks together send over all links.",
        "contributed": "We count the bytes that all ranks together put into the collectives.",
    },
    "algorithm": {
        "usual": "Each kind of collective uses its usual algorithm.",
        "ring": "Collectives run on a ring: a rank sends to its neighbour only.",
        "tree": "Collectives run on a binomial tree.",
        "double_tree": "Collectives run on two binary trees, each for half of the tensor.",
        "recursive_doubling": "Collectives use recursive doubling.",
        "halving_doubling": "Collectives use recursive halving and doubling.",
        "bruck": "Collectives use Bruck's algorithm.",
        "pairwise": "Ranks send to each other directly, as over a crossbar.",
        "one_shot": "In an all-reduce each rank sends its whole tensor to all others at once.",
        "two_shot": "In an all-reduce each rank sends chunks to their owners, and the sums to all others.",
        "scatter_allgather": "A broadcast scatters the tensor and gathers it again.",
        "chain": "Collectives run in chunks along a chain of ranks.",
        "owner_multicast": "Each rank owns a part of the sum, and the network multicasts it for free.",
        "hierarchical": "Collectives run on rings inside nodes of g ranks and between the nodes.",
        "torus_2d": "Collectives run on the rings along the two axes of a torus.",
        "torus_3d": "Collectives run on the rings along the three axes of a torus.",
    },
    "rings": {
        "one_way": "Chunks travel round the ring in one direction.",
        "both_ways": "Chunks go both ways round a ring of evenly many ranks, half of the tensor in each direction.",
    },
    "torus": {
        "one_axis_at_a_time": "The whole tensor uses the axes of a torus one after another.",
        "all_axes_at_once": "Parts of the tensor use all axes of a torus at once.",
    },
    "chunks": {
        "padded": "A tensor that does not divide is padded to equal chunks of whole elements.",
        "divisible": "We assume that the tensor divides into equal chunks.",
    },
    "message_cost": {
        "alpha_beta": "A message takes its latency plus its bytes over the bandwidth.",
        "alpha_beta_gamma": "A message takes its latency, its bytes over the bandwidth, and its additions.",
        "bandwidth_only": "A message takes its bytes over the bandwidth; we ignore latency.",
    },
    "bandwidth": {
        "algbw": "Algorithm bandwidth: the bytes of the tensor over the time of the collective.",
        "busbw": "Bus bandwidth: the least bytes that a rank must move, over the time of the collective.",
    },
    "gathered_weights": {
        "reshard": (
            "Gathered weights are freed after the forward pass; the backward pass gathers those again that it reads."
        ),
        "whole_units": (
            "Gathered weights are freed after the forward pass; the backward pass gathers whole modules again, with "
            "biases and embeddings."
        ),
        "keep": "Gathered weights are kept from the forward to the backward pass.",
        "layers": (
            "Layers free their gathered weights after the forward pass and gather them again; embedding and head keep "
            "theirs."
        ),
        "at_once": (
            "The whole model's weights are gathered once and kept for the step; its gradients are reduced together at "
            "the end."
        ),
    },
    "gathered_activations": {
        "regather_sequence": (
            "Only activations cut by sequence parallelism are saved as shards and gathered again for the backward pass."
        ),
        "keep": "Gathered activations are kept from the forward to the backward pass.",
        "regather": "All gathered activations are saved as shards and gathered again for the backward pass.",
    },
    "ring_gradients": {
        "shortest": "The gradients of keys and values travel k − 1 sends, home at the last.",
        "from_home": "The gradients of keys and values start at home and travel k sends (PyTorch).",
    },
    "ring_format": {
        "fp32": "Travelling gradients of keys and values are summed in FP32.",
        "as_activations": "Travelling gradients of keys and values have the activations' format.",
    },
    "pipeline": {
        "one_direction": "Pipeline traffic counts one boundary, each direction by itself.",
        "both_directions": "Pipeline traffic counts one boundary, both directions together.",
        "all_boundaries": "Pipeline traffic counts all boundaries, both directions together.",
        "per_microbatch": "Pipeline traffic counts one microbatch at one boundary.",
    },
    "shards": {
        "mean_shard": (
            "Where the ranks do not divide the parameters, we use the average share, rounded up to whole bytes."
        ),
        "padded_shards": "Each rank stores equally many whole rows of a weight; the last parts are padded.",
    },
    "norm_gradients": {
        "with_inputs": (
            "A schedule that delays weight gradients computes the gradients of a norm's gain and bias with the input "
            "gradients."
        ),
        "with_weights": "A schedule that delays weight gradients also delays the gradients of a norm's gain and bias.",
    },
    "vocabulary": {
        "largest_part": (
            "Ranks share V words in parts of ⌈V/k⌉; we count the largest part, the last one may be smaller."
        ),
        "padded_vocabulary": (
            "A vocabulary shared by k ranks is padded to a multiple of 128·k words, as in Megatron-LM."
        ),
    },
    "saved": {
        "ideal": "We keep the tensors that the gradients read; row statistics are computed again.",
        "pytorch": "We keep the tensors that eager PyTorch saves for the backward pass, each storage once.",
    },
    "softmax": {
        "as_given": "A configuration computes attention as its library does; a table computes it op by op.",
        "library": "Softmax is one function that keeps its result.",
        "by_hand": "Softmax is written by hand: it keeps the exponentials, their sums and the positions of the maxima.",
        "fused": (
            "Attention is one kernel that keeps its operands, its result and one number per row; it computes scores "
            "again."
        ),
    },
    "cache": {
        "latent": "A layer keeps the fewest numbers among what only its keys and values are made of.",
        "heads": "A layer keeps the keys and values of each key/value head.",
        "heads_with_rope": "A layer keeps keys and values of each head, and a shared rotated part once for each head.",
        "smallest": "A layer keeps the fewest numbers among all tensors that it makes of a token.",
    },
    "cached_keys": {
        "rotated": "Keys are kept after their rotation.",
        "plain": "Keys are kept before their rotation; each step rotates them.",
    },
    "window_cache": {
        "w": "A layer with a window of w positions has places for w tokens.",
        "w-1": "A layer with a window of w positions keeps the w - 1 tokens that a query reads.",
    },
    "mla": {
        "cheaper": "Latents are absorbed or expanded, whichever takes fewer operations at a long context.",
        "absorbed": (
            "Latents meet queries that were multiplied with their matrix, and are summed before they become values."
        ),
        "expanded": "Each step expands all latents to the keys and values of all heads.",
    },
    "logits": {
        "generated": "A prefill computes the logits of its last position, a later step the logits of every position.",
        "last": "Only the last position has logits.",
        "all": "Each position has logits.",
        "none": "No position has logits: the step ends before the product with the vocabulary.",
    },
}
CONVENTIONS: tuple[Convention, ...] = tuple(
    Convention(field, name, text) for field, choices in _STATEMENTS.items() for name, text in choices.items()
)

SENTENCES["conventions"] = lambda: {f"{row.field}.{row.name}": row.statement for row in CONVENTIONS}

# Those whose algorithms can be chosen one by one.
COLLECTIVES = (
    "all-reduce", "reduce-scatter", "all-gather", "all-to-all", "broadcast", "reduce", "scatter", "gather",
    "ring-pass", "ring-sum", "ring-sum-home",
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
    ring_gradients: str = "shortest"
    ring_format: str = "fp32"
    pipeline: str = "one_direction"
    shards: str = "mean_shard"
    norm_gradients: str = "with_inputs"
    vocabulary: str = "largest_part"
    saved: str = "ideal"
    softmax: str = "as_given"
    cache: str = "latent"
    cached_keys: str = "rotated"
    window_cache: str = "w"
    mla: str = "cheaper"
    logits: str = "generated"

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
        """A sentence on the conventions that were chosen but changed nothing.

        >>> Accounting.of("all_links").unused(["communication"], ["flops"])
        ('Nothing here depends on `communication: all_links`.',)
        """
        read = {*touched}
        if (ran := algorithms_of(read)) and not self._runs(ran):
            read.discard("algorithm")
        idle = [f"`{name}: {getattr(self, name)}`" for name in dict.fromkeys(asked) if name not in read]
        return (f"Nothing here depends on {' and '.join(idle)}.",) if idle else ()

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
