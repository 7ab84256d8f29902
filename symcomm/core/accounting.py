"""Every convention that changes a number, by name: the vocabulary, the defaults, and what each choice means.

``conventions.md`` says all choices; ``Accounting`` is one choice of each. A derivation carries the accounting it
was made under, prints the fields that touched it, and refuses to be combined with one made under another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Literal

from symcomm.core.errors import AccountingError, nearest
from symcomm.core.records import dataclass
from symcomm.core.sentences import SENTENCES


@dataclass(frozen=True)
class Convention:
    """One choice: the field it belongs to, its name, and one sentence for the head of a write-up.

    ``roles`` name the tensors that it moves off the device to the host (``state``, ``activation``), ``deeper`` the ones
    that go on to NVMe disks.
    """

    field: str
    name: str
    statement: str
    roles: frozenset[str] = frozenset()
    deeper: frozenset[str] = frozenset()


_DEEPER = " on nvme"


def _conventions(text: str) -> Iterator[Convention]:
    """The choices that a text lists: ``## FIELD``, and below it ``- NAME (ROLES): STATEMENT`` of each.

    A role that goes on to disks stands there as ``state on nvme``.
    """
    for section in text.split("\n## ")[1:]:
        home, *rows = section.split("\n- ")
        for row in rows:
            head, _, statement = row.partition(": ")
            name, _, roles = head.rstrip(")").partition(" (")
            moved = frozenset(role.removesuffix(_DEEPER) for role in filter(None, roles.split(", ")))
            deeper = frozenset(role for role in moved if role + _DEEPER in roles.split(", "))
            yield Convention(home.strip(), name, " ".join(statement.split()), moved, deeper)


CONVENTIONS = tuple(_conventions(Path(__file__).with_name("conventions.md").read_text(encoding="utf-8")))

SENTENCES["conventions"] = lambda: {f"{row.field}.{row.name}": row.statement for row in CONVENTIONS}

# Those whose algorithms can be chosen one by one.
COLLECTIVES = (
    "all-reduce", "reduce-scatter", "all-gather", "all-to-all", "broadcast", "reduce", "scatter", "gather",
    "ring-pass", "ring-sum", "ring-sum-home", "halo-exchange", "halo-shift",
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
    prefetch: str = "as_read"
    recomputation: str = "activations_kept"
    model_flops: str = "training_flops"
    capacity: str = "unnamed"
    communication: str = "payload"
    algorithm: str = "usual"
    rings: str = "one_way"
    torus: str = "one_axis_at_a_time"
    rails: str = "changed_inside"
    chunks: str = "padded"
    message_cost: str = "alpha_beta"
    bandwidth: str = "algbw"
    gathered_weights: str = "reshard"
    gathered_activations: str = "regather_sequence"
    ring_gradients: str = "shortest"
    ring_format: str = "fp32"
    batch_statistics: str = "of_the_batch"
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
        made = _USUAL
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
                    f"unknown convention '{choice[:60]}'", hint=nearest(choice, [r.name for r in CONVENTIONS])
                )
            if len(homes) > 1:
                known = " or ".join(f"{home}: {choice}" for home in homes)
                raise AccountingError(f"'{choice}' belongs to several conventions", hint=f"write {known}")
            made = replace(made, **{homes[0]: choice})
        if not named:
            return made
        known_fields = [f.name for f in fields(cls)]
        for name in named:
            if name not in known_fields:
                raise AccountingError(f"unknown convention field '{name[:60]}'", hint=nearest(name, known_fields))
        return replace(made, **{name: _laid(name, getattr(made, name), choice) for name, choice in named.items()})

    @classmethod
    def given(cls, said: AccountingLike) -> Accounting:
        """The accounting of a name, of fields with names, of several of these, or as it is.

        Raises ``AccountingError`` for an unknown name, and for a field of which two names are said.

        >>> Accounting.given(["sent_per_rank", {"algorithm": "pairwise"}]).asked
        ('communication', 'algorithm')
        """
        if isinstance(said, Accounting):
            return said
        if said is None or isinstance(said, str):
            return cls.of(said)
        made, known = cls(), dict[str, str]()
        for one in [said] if isinstance(said, Mapping) else said:
            made = cls.of(made, **one) if isinstance(one, Mapping) else cls.of(made, one)
            pairs = one.items() if isinstance(one, Mapping) else [(r.field, one) for r in CONVENTIONS if r.name == one]
            for name, choice in pairs:
                if isinstance(choice, str) and known.setdefault(name, choice) != choice:
                    raise AccountingError(f"{name} is both {known[name]} and {choice}", hint="name one of them")
        return made

    def row(self, name: str) -> Convention:
        """The convention that is chosen for a field.

        >>> Accounting().row("communication").name
        'payload'
        """
        return _CHOICES[name][getattr(self, name)]

    @property
    def off_device(self) -> frozenset[str]:
        """The roles of the tensors that rest on the host or its disks."""
        return self.row("offloading").roles

    def tier(self, role: str) -> Literal["device", "host", "nvme"]:
        """The memory in which tensors of a role rest: of the device, of its host, or NVMe disks.

        >>> [Accounting.of("states_on_nvme_model_on_host").tier(role) for role in ("weight", "state", "activation")]
        ['host', 'nvme', 'device']
        """
        row = self.row("offloading")
        return "nvme" if role in row.deeper else "host" if role in row.roles else "device"

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


_USUAL = Accounting()  # the choice of each field where none is said
