"""Every convention that changes a number, by name: the vocabulary, the defaults, and what each choice means.

One record a choice, in ``CONVENTIONS``; ``Accounting`` is one choice of each. A derivation carries the accounting it
was made under, prints the fields that touched it, and refuses to be combined with one made under another.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace

from symcomm.errors import AccountingError, nearest


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
    Convention("attention", "full", "Attention scores are counted for all pairs of positions."),
    Convention("attention", "causal_half", "Only the L(L+1)/2 unmasked pairs of a causal attention are counted."),
    Convention("input_gradient", "needed", "Every layer computes the gradient of its input, the first one as well."),
    Convention("input_gradient", "not_needed", "The first layer's input needs no gradient."),
    Convention("traffic", "compulsory", "Each operand is read once and the result written once."),
    Convention(
        "communication", "payload", "Bytes are those of the full tensor a collective works on, counted once per call."
    ),
    Convention("communication", "sent_per_rank", "Bytes are those one rank sends."),
    Convention("communication", "sent_and_received_per_rank", "Bytes are those one rank sends plus those it receives."),
    Convention("communication", "all_links", "Bytes are those that all ranks together send over all links."),
    Convention("communication", "contributed", "Bytes are what all ranks together put into the collectives."),
    Convention("algorithm", "ring", "Collectives run on a ring, which is optimal in bytes sent."),
    Convention(
        "gathered_weights",
        "reshard",
        "Gathered weights are dropped after the forward pass and gathered again for backward.",
    ),
    Convention("gathered_weights", "keep", "Gathered weights are kept from the forward to the backward pass."),
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
)

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
    symcomm.errors.AccountingError: 'fma3' is no convention for flops
    hint: did you mean 'fma2'?
    """

    flops: str = "fma2"
    operations: str = "matmul_only"
    attention: str = "full"
    input_gradient: str = "needed"
    traffic: str = "compulsory"
    communication: str = "payload"
    algorithm: str = "ring"
    gathered_weights: str = "reshard"
    gathered_activations: str = "keep"
    pipeline: str = "one_direction"

    def __post_init__(self) -> None:
        for name, choice in asdict(self).items():
            if choice not in _CHOICES[name]:
                raise AccountingError(
                    f"'{choice}' is no convention for {name}", hint=nearest(choice, [*_CHOICES[name]])
                )

    @classmethod
    def of(cls, *choices: str | Accounting | None, **named: str) -> Accounting:
        """An accounting from names alone: each name says which field it belongs to.

        Raises ``AccountingError`` for an unknown name, or one that belongs to two fields.
        """
        made = cls()
        for choice in choices:
            if choice is None:
                continue
            if isinstance(choice, Accounting):
                made = choice
                continue
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
        return replace(made, **named)

    def statements(self, touched: tuple[str, ...]) -> tuple[Convention, ...]:
        """The conventions of the fields that touched a derivation, for the head of a write-up."""
        return tuple(_CHOICES[name][getattr(self, name)] for name in dict.fromkeys(touched))
