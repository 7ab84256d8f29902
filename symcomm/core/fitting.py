"""Least-squares fits of alpha-beta models to measured times of collectives, and whether a model explains the data.

The parameters are exact for exact data (rational normal equations, solved by SymPy); errors and confidence intervals
come from SciPy (the extra ``fit``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from math import sqrt

from symcomm.core.derivation import exact
from symcomm.core.errors import ValuesError, nearest
from symcomm.core.form import Sym, evaluate
from symcomm.core.quantities.communication.wire import wire
from symcomm.core.records import dataclass
from symcomm.core.units import ONE, Quantity, Unit

BYTE, SECOND = Unit.parse("byte"), Unit.parse("second")


@dataclass(frozen=True)
class Measurement:
    """One measured call: the bytes of its payload, its ranks, and the seconds it took."""

    size: Fraction
    ranks: int
    time: Fraction


@dataclass(frozen=True)
class Term:
    """A term of a model: a parameter, times a column that follows from size and ranks."""

    name: str
    unit: Unit
    meaning: str
    column: Callable[[Measurement, str, str], Fraction]


def _cost(m: Measurement, kind: str, algorithm: str, what: str) -> Fraction:
    cost = wire(kind, algorithm, Sym("k"))
    return evaluate(getattr(cost, what), {"k": Fraction(m.ranks)})


# One row a term.
TERMS: Mapping[str, Term] = {
    t.name: t
    for t in (
        Term("alpha", SECOND, "fixed time of a call", lambda m, kind, algorithm: Fraction(1)),
        Term("beta", SECOND / BYTE, "time for each byte of the payload", lambda m, kind, algorithm: m.size),
        Term("setup", SECOND, "fixed time of a call", lambda m, kind, algorithm: Fraction(1)),
        Term("per_rank", SECOND, "fixed time for each rank", lambda m, kind, algorithm: Fraction(m.ranks)),
        Term(
            "latency",
            SECOND,
            "time of a round of messages",
            lambda m, kind, algorithm: _cost(m, kind, algorithm, "rounds"),
        ),
        Term(
            "per_byte",
            SECOND / BYTE,
            "time for each byte that a link carries",
            lambda m, kind, algorithm: m.size * _cost(m, kind, algorithm, "path"),
        ),
    )
}


@dataclass(frozen=True)
class FittedModel:
    """A model of a call's time: a sum of terms."""

    name: str
    terms: tuple[str, ...]
    statement: str


# One row a model.
MODELS: Mapping[str, FittedModel] = {
    m.name: m
    for m in (
        FittedModel("alpha_beta", ("alpha", "beta"), "A call costs a fixed time, and its payload over a bandwidth."),
        FittedModel(
            "algorithm", ("latency", "per_byte"), "Rounds cost a latency each, and bytes on the link their bandwidth."
        ),
        FittedModel("setup", ("setup", "latency", "per_byte"), "A fixed set-up comes before the rounds and bytes."),
        FittedModel(
            "setup_per_rank", ("setup", "per_rank", "per_byte"), "A set-up that grows with the ranks, and bytes."
        ),
    )
}


@dataclass(frozen=True)
class Parameter:
    """A fitted parameter: its exact value, its standard error and its confidence interval."""

    name: str
    value: Fraction
    unit: Unit
    meaning: str
    error: float
    interval: tuple[float, float]

    @property
    def determined(self) -> bool:
        """Whether the data tell it from zero."""
        return self.interval[0] > 0


@dataclass(frozen=True)
class Fit:
    """A model fitted to measurements; ``findings`` say where it does not explain them."""

    model: FittedModel
    kind: str
    algorithm: str
    measurements: tuple[Measurement, ...]
    parameters: tuple[Parameter, ...]
    residuals: tuple[Fraction, ...]
    r_squared: Fraction
    level: Fraction

    def __getitem__(self, name: str) -> Parameter:
        for parameter in self.parameters:
            if parameter.name == name:
                return parameter
        raise KeyError(name)

    def predict(self, size: object, ranks: int) -> Fraction:
        """The time that the model gives to a call."""
        m = Measurement(_size(size), ranks, Fraction(0))
        columns = (TERMS[p.name].column(m, self.kind, self.algorithm) for p in self.parameters)
        return sum((p.value * c for p, c in zip(self.parameters, columns, strict=True)), Fraction(0))

    @property
    def bandwidth(self) -> Quantity:
        """One over the time for each byte: of the payload (algorithm bandwidth), or of what a link carries."""
        slope = next(p for p in self.parameters if p.unit == SECOND / BYTE)
        if slope.value <= 0:
            raise ValuesError(f"the fitted time for each byte is {float(slope.value):.3g} s: there is no bandwidth")
        return Quantity(1 / slope.value, BYTE / SECOND)

    def bus_bandwidth(self, ranks: int) -> Quantity:
        """The bytes a link carries in a second: the algorithm bandwidth times the share of the payload on the link."""
        if self.model.name != "alpha_beta":
            return self.bandwidth
        share = evaluate(wire(self.kind, self.algorithm, Sym("k")).path, {"k": Fraction(ranks)})
        return Quantity(self.bandwidth.value * share, BYTE / SECOND)

    def fixed_share(self, m: Measurement) -> Fraction:
        """The part of a predicted time that does not depend on the size."""
        fixed = sum(
            (p.value * TERMS[p.name].column(m, self.kind, self.algorithm)
             for p in self.parameters if p.unit == SECOND),
            Fraction(0),
        )  # fmt: skip
        whole = self.predict(m.size, m.ranks)
        return fixed / whole if whole else Fraction(0)

    @property
    def findings(self) -> tuple[str, ...]:
        """The findings against the model, a sentence each."""
        found: list[str] = []
        if self.r_squared < _EXPLAINS:
            found.append(
                f"The model explains {_percent(self.r_squared)} of the variation, less than {_percent(_EXPLAINS)}."
            )
        for p in self.parameters:
            if p.value <= 0:
                found.append(f"{p.name} is {float(p.value):.3g} {p.unit}, but a {p.meaning} is positive.")
            elif not p.determined:
                low, high = p.interval
                found.append(
                    f"{p.name} ({p.meaning}) is not determined: its {_percent(self.level)} confidence interval is "
                    f"{low:.3g} to {high:.3g} {p.unit}."
                )
        largest = max(self.measurements, key=lambda m: m.size)
        share = self.fixed_share(largest)
        if share > Fraction(1, 2):
            fixed = self.predict(0, largest.ranks)
            found.append(
                f"{float(fixed):.3g} s of fixed cost are {_percent(share)} of the time even of the largest call: "
                "this is set-up, not communication, and the bandwidth is told by the small rest only."
            )
        return tuple(found)

    @property
    def explains(self) -> bool:
        """Whether nothing speaks against the model."""
        return not self.findings

    def __str__(self) -> str:
        lines = [f"{self.model.name}: {self.model.statement}"]
        for p in self.parameters:
            low, high = p.interval
            said = _told(p.value, f"{float(p.value):.6g}")
            lines.append(f"  {p.name} {said} {p.unit} ± {p.error:.2g}  [{low:.3g}, {high:.3g}]")
        lines.append(f"  R² {_told(self.r_squared, f'{float(self.r_squared):.4f}')}")
        lines += [f"  {text}" for text in self.findings] or ["  Nothing speaks against the model."]
        return "\n".join(lines)


_EXPLAINS = Fraction(95, 100)


def _told(value: Fraction, digits: str) -> str:
    """A number with the sign that it deserves.

    >>> _told(Fraction(1, 2), "0.5"), _told(Fraction(2, 3), "0.667")
    ('= 0.5', '≈ 0.667')
    """
    return f"{'=' if Fraction(digits) == value else '≈'} {digits}"


def _percent(share: Fraction) -> str:
    return f"{float(100 * share):.3g}%"


def _amount(value: object, what: str, unit: Unit, sample: str) -> Fraction:
    quantity = Quantity.parse(value) if isinstance(value, str) else value
    if isinstance(quantity, Quantity) and quantity.unit not in (ONE, unit):
        raise ValuesError(f"{what} is given in {quantity.unit}, but it is in {unit}", hint=f"for instance {sample}")
    return exact(quantity, what)


def _size(value: object) -> Fraction:
    return _amount(value, "a size", BYTE, "10 MB")


def _time(value: object) -> Fraction:
    # A measured time is read as it is printed: 0.364509 is 364509/1000000.
    if isinstance(value, float):
        value = Fraction(repr(value)) if value == value and abs(value) != float("inf") else str(value)
    if isinstance(value, str) and re.fullmatch(r"[-+]?(nan|inf)", value):
        raise ValuesError(f"a time is {value}")
    return _amount(value, "a time", SECOND, "0.36 s")


def measurements(rows: Iterable[Sequence[object] | Measurement]) -> tuple[Measurement, ...]:
    """Measurements from rows of size, ranks and time; sizes in bytes or with a unit, times in seconds.

    Raises ``ValuesError`` naming the row that makes no sense.

    >>> measurements([("1 MB", 2, 0.364509)])[0].time
    Fraction(364509, 1000000)
    """
    made: list[Measurement] = []
    for number, row in enumerate(rows, start=1):
        if isinstance(row, Measurement):
            made.append(row)
            continue
        if not isinstance(row, Sequence) or isinstance(row, str) or len(row) != 3:
            raise ValuesError(f"row {number} is {str(row)[:60]}", hint="size, ranks and time")
        try:
            size, ranks, time = _size(row[0]), exact(row[1], "the ranks"), _time(row[2])
        except ValuesError as error:
            raise ValuesError(f"row {number}: {error.message}", hint=error.hint) from None
        if ranks.denominator != 1 or ranks < 2:
            raise ValuesError(f"row {number}: {ranks} ranks", hint="a collective has at least 2")
        if size < 0 or time <= 0:
            raise ValuesError(f"row {number}: a size of {size} B took {time} s", hint="both are positive")
        made.append(Measurement(size, int(ranks), time))
    return tuple(made)


def fit(
    rows: Iterable[Sequence[object] | Measurement],
    model: str = "alpha_beta",
    *,
    kind: str = "all-reduce",
    algorithm: str = "ring",
    level: Fraction = Fraction(95, 100),
) -> Fit:
    """The least-squares fit of a model of ``MODELS`` to rows of size, ranks and time.

    Raises ``ValuesError`` for an unknown model, too few rows, or terms that the rows cannot tell apart.

    >>> made = fit([("1 MB", 2, "2 s"), ("2 MB", 2, "3 s"), ("3 MB", 2, "4 s")])
    >>> made["alpha"].value, str(made.bandwidth)
    (Fraction(1, 1), '1 000 000 B/s = 1 MB/s')
    """
    if model not in MODELS:
        raise ValuesError(f"unknown model '{model[:40]}'", hint=nearest(model, [*MODELS]))
    data = measurements(rows)
    chosen = MODELS[model]
    terms = [TERMS[name] for name in chosen.terms]
    if len(data) <= len(terms):
        raise ValuesError(f"{len(data)} measurements cannot test a model with {len(terms)} parameters",
                          hint=f"at least {len(terms) + 1}")  # fmt: skip
    if model == "alpha_beta" and len({m.ranks for m in data}) > 1:
        counts = ", ".join(map(str, sorted({m.ranks for m in data})))
        raise ValuesError(f"alpha_beta holds for one number of ranks, but there are {counts}",
                          hint="fit each alone, or use the model algorithm, setup or setup_per_rank")  # fmt: skip
    values, covariance, residuals, r_squared = _solve(
        [[t.column(m, kind, algorithm) for t in terms] for m in data], [m.time for m in data], chosen
    )
    quantile = _quantile(float(level), len(data) - len(terms))
    parameters = []
    for term, value, variance in zip(terms, values, covariance, strict=True):
        error = sqrt(float(variance))
        interval = (float(value) - quantile * error, float(value) + quantile * error)
        parameters.append(Parameter(term.name, value, term.unit, term.meaning, error, interval))
    return Fit(chosen, kind, algorithm, data, tuple(parameters), tuple(residuals), r_squared, level)


def compare(
    rows: Iterable[Sequence[object] | Measurement], names: Sequence[str] = (), **options: str
) -> tuple[Fit, ...]:
    """The fits of several models, least residual variance first; models that cannot be fitted are left out."""
    listed = list(rows)
    found: list[Fit] = []
    for name in names or MODELS:
        try:
            found.append(fit(listed, name, **options))  # type: ignore[arg-type]
        except ValuesError:
            continue
    return tuple(sorted(found, key=lambda one: sum((r * r for r in one.residuals), Fraction(0))
                        / (len(one.measurements) - len(one.parameters))))  # fmt: skip


def _solve(
    columns: list[list[Fraction]], times: list[Fraction], model: FittedModel
) -> tuple[list[Fraction], list[Fraction], list[Fraction], Fraction]:
    """The exact least-squares solution, the variances of the parameters, the residuals and R squared."""
    from sympy.polys.domains import QQ
    from sympy.polys.matrices import DomainMatrix
    from sympy.polys.matrices.exceptions import DMNonInvertibleMatrixError

    def rational(f: Fraction) -> object:
        return QQ(f.numerator, f.denominator)

    def back(e: object) -> Fraction:
        return Fraction(int(e.numerator), int(e.denominator))  # type: ignore[attr-defined]

    a = DomainMatrix([[rational(x) for x in row] for row in columns], (len(columns), len(columns[0])), QQ)
    b = DomainMatrix([[rational(t)] for t in times], (len(times), 1), QQ)
    try:
        inverse = (a.transpose() * a).inv()
    except DMNonInvertibleMatrixError:
        raise ValuesError(
            f"the measurements cannot tell the terms of {model.name} apart: {', '.join(model.terms)}",
            hint="vary the size, or the number of ranks",
        ) from None
    x = inverse * a.transpose() * b
    values = [back(row[0]) for row in x.to_list()]
    residuals = [back(row[0]) for row in (b - a * x).to_list()]
    squares = sum((r * r for r in residuals), Fraction(0))
    freedom = len(times) - len(values)
    mean = sum(times, Fraction(0)) / len(times)
    spread = sum(((t - mean) ** 2 for t in times), Fraction(0))
    diagonal = [back(inverse.to_list()[i][i]) * squares / freedom for i in range(len(values))]
    return values, diagonal, residuals, 1 - squares / spread if spread else Fraction(0)


def _quantile(level: float, freedom: int) -> float:
    if not 0 < level < 1:
        raise ValuesError(f"a confidence level of {level}", hint="for instance 95/100")
    try:
        from scipy.stats import t
    except ImportError:
        raise ValuesError.lacking("fit", "confidence intervals need SciPy") from None
    return float(t.ppf((1 + level) / 2, freedom))
