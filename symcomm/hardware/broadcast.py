"""Broadcast plans: how a tensor gets from the host to every GPU of a machine, and how long each plan takes.

One record a plan. A message of ``s`` bytes over a link takes its latency plus ``s`` over the bandwidth; the messages of
one link follow one another. ``n`` GPUs receive the tensor besides the first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

from symcomm import form as forms
from symcomm.accounting import Accounting
from symcomm.derivation import Derivation, Reason, Relations, Step
from symcomm.errors import ValuesError, nearest
from symcomm.form import Form, Product, Ratio, Sym, Total, num, product
from symcomm.hardware.paths import positive
from symcomm.notation import Notation
from symcomm.units import ONE, Quantity, Unit

_SECOND = Unit.parse("second")
_BYTE = Unit.parse("byte")
_RATE = Unit.parse("byte/second")

MEANINGS = {
    "S": "size of the tensor",
    "w": "bandwidth of a link in one direction",
    "w_host": "bandwidth from the host to a GPU",
    "alpha": "latency of a message",
    "alpha_host": "latency of a message from the host",
    "n": "number of GPUs that receive the tensor besides the first",
    "c": "number of chunks",
    "h": "number of links in the chain from the host to the last GPU",
    "t_1": "measured time of the copies from the host",
    "t_2": "measured time of the relay",
}


@dataclass(frozen=True)
class Transfer:
    """A kind of message in a plan: its step's name, its size as a share of the tensor, and which link it takes."""

    name: str
    share: Callable[[], Form]
    host: bool
    text: str


@dataclass(frozen=True)
class BroadcastPlan:
    """A way to broadcast: its messages, and the time as a form in the times of those messages."""

    name: str
    statement: str
    transfers: tuple[Transfer, ...]
    time: Form
    why: str
    symbols: tuple[str, ...]


_WHOLE = Transfer("t_copy", lambda: num(1), False, "One copy of the whole tensor.")
_HOST = Transfer("t_host", lambda: num(1), True, "One copy of the whole tensor from the host to a GPU.")
_CHUNK = Transfer("t_chunk", lambda: Ratio(num(1), Sym("c")), False, "One chunk over one link.")
_n, _c, _h = Sym("n"), Sym("c"), Sym("h")

PLANS: Mapping[str, BroadcastPlan] = {
    plan.name: plan
    for plan in (
        BroadcastPlan(
            "host",
            "The host copies the tensor to every GPU, one after another.",
            (_HOST,),
            Product((Total((num(1), _n)), Sym("t_host"))),
            "The copies leave the host over one path, one after another: one for the first GPU and one for each other.",
            ("n",),
        ),
        BroadcastPlan(
            "serial",
            "The tensor is staged on one GPU, which then copies it to the others, one after another, over equal links.",
            (_WHOLE,),
            Product((Total((num(1), _n)), Sym("t_copy"))),
            "One transfer from the host to the first GPU, then one to each of the others; none overlap.",
            ("n",),
        ),
        BroadcastPlan(
            "relay",
            "The host copies the tensor to one GPU, which copies it to the others, one after another.",
            (_HOST, _WHOLE),
            Total((Sym("t_host"), Product((_n, Sym("t_copy"))))),
            "One slow copy from the host, then fast ones between GPUs; none overlap.",
            ("n",),
        ),
        BroadcastPlan(
            "pipelined",
            "The tensor is cut into chunks, which follow one another along the links; every link is busy at once.",
            (_CHUNK,),
            Product((Total((_h, num(-1), _c)), Sym("t_chunk"))),
            "The first chunk crosses all links; each of the others arrives one chunk time after the one before.",
            ("c", "h"),
        ),
    )
}


def broadcast(
    plan: str,
    size: object = None,
    bandwidth: object = None,
    latency: object = None,
    receivers: object = None,
    chunks: object = None,
    hops: object = None,
    host_bandwidth: object = None,
    host_latency: object = None,
    accounting: Accounting | None = None,
    notation: Notation | None = None,
    relations: Relations | None = None,
) -> Derivation:
    """The time of a plan: ``host``, ``serial``, ``relay`` or ``pipelined``. What is not given stays a symbol.

    A latency of 0 leaves the term out. Raises ``ValuesError`` for an unknown plan and numbers that make no sense.

    >>> broadcast("serial", size="4 GB", bandwidth="50 GB/s", latency=0, receivers=3).at().value
    Fraction(8, 25)
    >>> broadcast("pipelined", "4 GB", "50 GB/s", "20 us", chunks=32, hops=2).at().value
    Fraction(2079, 25000)
    """
    chosen = _plan(plan)
    numbers = {
        "S": None if size is None else positive(size, "size", "byte"),
        "w": None if bandwidth is None else positive(bandwidth, "bandwidth", "byte/second"),
        "alpha": None if latency is None else positive(latency, "latency", "second", zero=True),
        "w_host": None if host_bandwidth is None else positive(host_bandwidth, "host_bandwidth", "byte/second"),
        "alpha_host": None if host_latency is None else positive(host_latency, "host_latency", "second", zero=True),
        "n": None if receivers is None else _whole(receivers, "receivers"),
        "c": None if chunks is None else _whole(chunks, "chunks"),
        "h": None if hops is None else _whole(hops, "hops"),
    }
    steps: list[Step] = []
    used: set[str] = set(chosen.symbols)
    for transfer in chosen.transfers:
        suffix = "_host" if transfer.host else ""
        share = transfer.share()
        sent: Form = Ratio(
            Sym("S", whole=False, unit=_BYTE),
            product(*([share.bottom] if isinstance(share, Ratio) else []), Sym(f"w{suffix}", whole=False, unit=_RATE)),
        )
        used |= {"S", f"w{suffix}"}
        text = transfer.text
        if numbers[f"alpha{suffix}"] == 0:
            text += " Latency is left out."
        else:
            sent = Total((Sym(f"alpha{suffix}", whole=False, unit=_SECOND), sent))
            used.add(f"alpha{suffix}")
        steps.append(Step(transfer.name, sent, _SECOND, Reason("latency and bandwidth", text)))
    steps.append(Step("T", chosen.time, _SECOND, Reason("one after another", chosen.why)))
    unused = {"receivers": "n", "chunks": "c", "hops": "h"}
    for option, symbol in unused.items():
        if numbers[symbol] is not None and symbol not in used:
            raise ValuesError(f"{option} makes no difference to the plan '{plan}'", hint=chosen.statement)
    given = tuple((name, value) for name, value in numbers.items() if value is not None and name in used)
    return Derivation(
        f"Time of the broadcast, {chosen.name} plan", accounting or Accounting(), tuple(steps), (),
        relations or Relations(), (), given, _written(notation), (chosen.statement,),
    )  # fmt: skip


def host_copy(
    measured: object = None, receivers: object = None, size: object = None, notation: Notation | None = None,
    accounting: Accounting | None = None, relations: Relations | None = None,
) -> Derivation:  # fmt: skip
    """The time of one copy from the host, from the measured time of the ``host`` plan; with a ``size``, its bandwidth.

    >>> host_copy("8 s", 3).at().value
    Fraction(2, 1)
    """
    steps = [_solved("t_host", "t_1", PLANS["host"], frozenset())]
    given = _measured({"t_1": measured}, receivers)
    return _inverse("Time of one copy from the host", steps, given, size, (accounting, notation, relations))


def gpu_copy(
    measured_host: object = None, measured_relay: object = None, receivers: object = None, size: object = None,
    notation: Notation | None = None, accounting: Accounting | None = None, relations: Relations | None = None,
) -> Derivation:  # fmt: skip
    """The time of one copy between GPUs, from the measured times of the ``host`` and the ``relay`` plan.

    Raises ``ValuesError`` where the relay took no longer than one copy from the host: the plans do not explain that.
    """
    steps = [
        _solved("t_host", "t_1", PLANS["host"], frozenset()),
        _solved("t_copy", "t_2", PLANS["relay"], frozenset({"t_host"})),
    ]
    given = _measured({"t_1": measured_host, "t_2": measured_relay}, receivers)
    made = _inverse("Time of one copy between GPUs", steps, given, size, (accounting, notation, relations))
    if {"t_1", "t_2", "n"} <= dict(given).keys():
        known = dict(given)
        for step in made.steps[:2]:
            known[step.name] = forms.evaluate(step.form, known)
        if known["t_copy"] <= 0:
            raise ValuesError(
                f"the relay took {Quantity(known['t_2'], _SECOND)}, but one copy from the host alone takes "
                f"{Quantity(known['t_host'], _SECOND)}",
                hint="the two plans do not explain these times; are they in the right order?",
            )
    return made


def speedup(
    before: object = None, after: object = None, notation: Notation | None = None,
    accounting: Accounting | None = None, relations: Relations | None = None,
) -> Derivation:  # fmt: skip
    """How many times faster one measured plan is than another: the first time over the second.

    >>> speedup("3 s", "2 s").at().value
    Fraction(3, 2)
    """
    t = [Sym(name, whole=False, unit=_SECOND) for name in ("t_before", "t_after")]
    step = Step("r", Ratio(t[0], t[1]), ONE, Reason("divide", "One time over the other."))
    written = _written(notation, {"t_before": "measured time before", "t_after": "measured time after"})
    given = _measured({"t_before": before, "t_after": after}, None)
    return Derivation(
        "Speed-up", accounting or Accounting(), (step,), (), relations or Relations(), (), given, written
    )  # fmt: skip


# -- helpers ----------------------------------------------------------------------------------------


def _plan(name: str) -> BroadcastPlan:
    if name not in PLANS:
        raise ValuesError(f"unknown broadcast plan '{name[:40]}'", hint=nearest(name, [*PLANS]))
    return PLANS[name]


def _whole(value: object, name: str) -> Fraction:
    number = positive(value, name, "1")
    if number.denominator != 1:
        raise ValuesError(f"{name} = {value}: a whole number is needed")
    return number


def _written(notation: Notation | None, more: Mapping[str, str] | None = None) -> Notation:
    over = notation or Notation()
    return Notation(over.latex, {**MEANINGS, **(more or {}), **over.meanings})


def _measured(times: Mapping[str, object], receivers: object) -> tuple[tuple[str, Fraction], ...]:
    given = [(name, positive(value, name, "second")) for name, value in times.items() if value is not None]
    return (*given, *([("n", _whole(receivers, "receivers"))] if receivers is not None else []))


@cache
def _solved(name: str, measured: str, plan: BroadcastPlan, earlier: frozenset[str]) -> Step:
    """The step that solves a plan's time for the time of one of its messages."""
    import sympy as sp

    from symcomm.notation import amount

    known = {transfer.name: amount(transfer.name) for transfer in plan.transfers}
    equation = forms.value(plan.time, known) - amount(measured)
    solutions = sp.solve(equation, known[name])
    assert len(solutions) == 1, plan.name
    top, bottom = sp.fraction(sp.together(solutions[0]))

    def one(s: Sym) -> Form:
        seconds = s.name in (measured, *known)
        return Sym(s.name, whole=not seconds or s.name in earlier, unit=_SECOND if seconds else ONE)

    form = forms.substitute(Ratio(_ordered(top, measured), forms.from_expr(bottom)), one)
    text = f"The time of the plan '{plan.name}', solved for one copy. {plan.why}"
    return Step(name, form, _SECOND, Reason("solve", text))


def _ordered(top: object, first: str) -> Form:
    form = forms.from_expr(top)
    if isinstance(form, Total):
        terms = sorted(form.terms, key=lambda t: first not in forms.names(t))
        return Total(tuple(terms))
    return form


def _inverse(
    title: str, steps: list[Step], given: tuple[tuple[str, Fraction], ...], size: object,
    setting: tuple[Accounting | None, Notation | None, Relations | None],
) -> Derivation:  # fmt: skip
    accounting, notation, relations = setting
    if size is not None:
        over = Ratio(Sym("S", whole=False, unit=_BYTE), Sym(steps[-1].name))
        steps = [*steps, Step("w_copy", over, _RATE, Reason("bandwidth", "The bytes over the time."))]
        given = (*given, ("S", positive(size, "size", "byte")))
        title = title.replace("Time of one", "Bandwidth of one")
    return Derivation(
        title, accounting or Accounting(), tuple(steps), (), relations or Relations(), (), given, _written(notation)
    )
