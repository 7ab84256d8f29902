"""The setting of every pass: the graph, the conventions, the number format and the names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from fractions import Fraction
from functools import lru_cache, partial
from math import gcd, lcm
from typing import Protocol

from symcomm.core import form as forms
from symcomm.core.accounting import CONVENTIONS, Accounting
from symcomm.core.collectives.algorithms import runs_by, told
from symcomm.core.derivation import Condition, Derivation, Exhibit, Reason, Relations, Step, Witness, unread, worked_out
from symcomm.core.dtypes import autocast_of, formats, grouped
from symcomm.core.errors import SymcommError, ValuesError, nearest
from symcomm.core.form import Form, Num, Ratio, Sym, num, product
from symcomm.core.graph.autocast import WIDE, autocast
from symcomm.core.graph.graph import Graph, Op, Region, bare
from symcomm.core.graph.stepping import again, chosen
from symcomm.core.libraries import Expr, sp
from symcomm.core.notation import Notation
from symcomm.core.parallel.halo import check_halos
from symcomm.core.parallel.placement import check_cuts, cut_axes
from symcomm.core.parallel.strategy import Strategy
from symcomm.core.program.pipeline import check_divisible, check_stages
from symcomm.core.records import ByIdentity, dataclass, replace
from symcomm.core.units import Unit

OTHER_ORDER = "another order of the products with what is kept is cheaper"


@dataclass(frozen=True)
class Setting:
    """The graph with everything a number depends on in addition."""

    graph: Graph
    accounting: Accounting = field(default_factory=Accounting)
    dtype: str = "fp16"
    notation: Notation = field(default_factory=Notation)
    values: Mapping[str, Fraction] = field(default_factory=dict)
    frozen: frozenset[str] = frozenset()
    named: frozenset[str] = frozenset()  # what the options of a question name
    degrees: frozenset[str] = frozenset()  # those of its strategy
    keeps: str | Mapping[str, object] = "mixed_adam"  # the recipe of the states that disks read and write
    checks: tuple[Callable[[Mapping[str, Fraction]], None], ...] = field(default=(), compare=False)  # of later numbers
    read: dict[str, None] = field(default_factory=dict, compare=False)  # the conventions read for the next step
    settled: frozenset[str] = field(default=frozenset(), compare=False)  # conventions that are known to be read
    told: bool = True  # whether somebody reads the steps: a search only puts numbers into them
    ask: Callable[..., Derivation] | None = field(default=None, compare=False)  # other quantities of the same model

    def __post_init__(self) -> None:
        if self.graph.step is not None and self.graph.step.choices != chosen(self.accounting):
            object.__setattr__(self, "graph", again(self.graph, self.accounting))
        wanted = self.accounting.attention == "windowed" and bool(self.graph.windows)
        if self.graph.windowed != wanted:
            object.__setattr__(self, "graph", replace(self.graph, windowed=wanted))
        if self.accounting.softmax == "as_given":
            softmax = "fused" if self.graph.fused else "library"
            object.__setattr__(self, "accounting", replace(self.accounting, softmax=softmax))

    def choice(self, convention: str) -> str:
        """The choice of a convention; the next step names it.

        A rule reads it where another choice would give something else, and ``accounting`` where none would.
        """
        self.read[convention] = None
        return str(getattr(self.accounting, convention))

    def decided(self, conventions: Iterable[str], outcome: Callable[[Setting], object]) -> None:
        """Reads each convention whose choice is not the usual one, where another choice has another outcome."""
        for name in conventions:
            chosen = getattr(self.accounting, name)
            others = [row.name for row in CONVENTIONS if row.field == name and row.name != chosen]
            for other in others if chosen != getattr(Accounting, name) else ():
                tried = replace(self.accounting, **{name: other})
                with suppress(SymcommError):  # what a model cannot have is no choice
                    # What is read on trial decides nothing here.
                    if outcome(replace(self, accounting=tried, read={})) != outcome(self):
                        self.choice(name)
                        break

    def runs_by(self, kind: str) -> str:
        """The name of the algorithm of a kind of collective; the next step names this convention."""
        self.read.update(dict.fromkeys(told(self.accounting.algorithm, [kind])))
        return runs_by(self.accounting.algorithm, kind)

    def taken(self) -> tuple[str, ...]:
        """The conventions that were read since this was asked last."""
        names = tuple(self.read)
        self.read.clear()
        return names

    def freeze(self, said: str | Iterable[str] | None) -> Setting:
        """The same with weights that are not trained; ``W*`` means all whose names begin with W.

        Raises ``ValuesError`` for a name that no weight has, and where nothing is left to train.
        """
        if said is None:
            return self
        weights = [t.name for t in self.graph.weights]
        found: set[str] = set()
        for name in named(said):
            mine = [w for w in weights if named_by(name, w)]
            if not mine:
                raise ValuesError(f"no weight is called '{name[:60]}'", hint=nearest(name, weights))
            found.update(mine)
        if found and len(found) == len(weights):
            raise ValuesError("all weights are frozen: there is nothing to train", hint="leave out some of 'frozen'")
        return replace(self, frozen=frozenset(found))

    def divided(self, strategy: Strategy) -> Setting:
        """The same with the degrees of a strategy held against the sizes that they divide, now and in its derivations.

        Raises ``StrategyError`` where one does not divide a size, both known.
        """
        check_divisible(self.graph, strategy, self.values)
        return replace(self, checks=(*self.checks, partial(_check_sizes, self.graph, strategy)))

    def in_parts(self, size: Form, parts: Form, what: str) -> Setting:
        """The same where a size falls into so many whole parts, now and in its derivations; ``what`` says who cuts it.

        Raises ``ValuesError`` where it does not, both known.
        """
        check = partial(_check_parts, size, parts, what)
        check(self.values)
        return replace(self, checks=(*self.checks, check))

    def in_format(self, dtype: str | None) -> Setting:
        """The same in other number formats: one for all, ``X=fp8, Y=fp32``, or mixed, ``autocast(bf16)``.

        As it is where none is said. Raises ``ValuesError`` where the formats of a model under autocast are said again.
        """
        if not dtype:
            return self
        every, named = formats(dtype)
        if every and any(op.attribute("cast") for op in self.graph.ops):
            raise ValuesError(f"the model runs under autocast, which says the formats: {every} is no other one",
                              hint="leave out dtype here, or autocast in the model")  # fmt: skip
        if (mixed := autocast_of(every)) is not None:
            return replace(self, dtype=WIDE, graph=autocast(self.graph, mixed))
        return replace(self, dtype=every or self.dtype, graph=_in_formats(self.graph, tuple(named.items())))

    @property
    def product_dtype(self) -> str:
        """The format in which products are computed: that of the operands of the forward pass.

        An operand that is quantised in groups is turned into the format of the other one.
        Raises ``ValuesError`` where they are in several, which machines multiply at different rates.
        """
        return _product_dtype(self.graph, self.dtype)

    @property
    def symbols(self) -> frozenset[str]:
        """The symbols of the model, which no step may be named by."""
        return _symbols(self.graph)

    @property
    def regions(self) -> tuple[Region, ...]:
        """The regions of the graph, in order."""
        return self.graph.regions or (Region(self.graph.name),)

    @property
    def parts(self) -> tuple[Setting, ...]:
        """The same setting for each region alone."""
        if len(self.graph.regions) < 2:
            return (self,)
        return tuple(replace(self, graph=self.graph.region(region.name)) for region in self.graph.regions)

    @property
    def repeat(self) -> Form:
        """How often the graph is repeated."""
        return Sym(self.graph.repeat) if self.graph.repeat else num(1)

    def written(self, expr: Expr) -> Form:
        """An expression as a form, with sizes gathered: ``n_H H`` becomes ``D``."""
        return _written(ByIdentity(self.graph.relations), expr)

    def elements(self, tensor: str) -> Form:
        """The number of elements of a tensor, written."""
        return self.written(self.graph.elements(tensor))

    def sizes(self, sizes: Sequence[Expr]) -> Form:
        """A product of sizes as written: factors that together make up a whole axis are written as that axis."""
        return _sizes(ByIdentity(self.graph.relations), tuple(sizes))

    def rows(self, op: str | None) -> Graph:
        """The forward graph, or its ops of the row that computes one tensor.

        Raises ``ValuesError`` where no row computes it.
        """
        if op is None:
            return self.graph
        found = self.graph.producers[self.graph.find(op, made=True).name]
        ops = tuple(o for o in self.graph.ops if o.row == found.row)
        return replace(self.graph, ops=ops, regions=(Region(found.region),))

    def derivation(
        self, title: str, steps: Sequence[Step], exhibits: Iterable[Exhibit] = (), notes: Sequence[str] = (),
    ) -> Derivation:  # fmt: skip
        """A derivation with this setting's conventions, relations and names."""
        if self.frozen:
            listed = ", ".join(f"`{t.name}`" for t in self.graph.weights if t.name in self.frozen)
            notes = (*notes, f"Not trained, so without gradient and update: {listed}.")
        steps = tuple(steps)
        used = dict.fromkeys((*rests_on(steps), *self.taken(), *self._of_step()))
        steps = steps if self.told else unread(steps, self.graph.relations)
        return Derivation(
            title, self.accounting, steps, tuple(used), self.graph.relations, tuple(exhibits if self.told else ()),
            tuple(self.values.items()), self.notation, tuple(notes), tuple(self._of_orders()),
            sizes=self.symbols | self.degrees, named=self.named,
            checks=(self.graph.check_sizes, *self.checks), from_zero=self.graph.from_zero,
        )  # fmt: skip

    def _of_step(self) -> Iterable[str]:
        """The conventions that decide what a step of generating text computes."""
        plain = self.accounting.operations == "matmul_only"  # a rotation is no product
        by = self.graph.step.by if self.graph.step is not None else ()
        return (name for name in by if not plain or name != "cached_keys")

    def _of_orders(self) -> Iterable[Condition]:
        """Under which conditions the products of a step with what is kept stand in the cheaper order."""
        for saved, taken in self.graph.step.orders if self.graph.step is not None else ():
            terms = sp.Add.make_args(next(f for f in sp.Mul.make_args(sp.factor_terms(saved)) if f.is_Add))
            more, less = (forms.from_expr(sp.Add(*(sign * t for t in terms if sign * t.as_coeff_Mul()[0] > 0)))
                          for sign in (1, -1))  # fmt: skip
            remedy = f"give numbers to the model: model.at({forms.names(forms.Total((more, less)))[0]}=...)"
            yield Condition(more, ">" if taken else "<=", less, OTHER_ORDER, remedy)

    def collected(self, name: str, form: Form, unit: Unit, known: Mapping[str, Expr]) -> Step | None:
        """The step that writes a form's value collected; None where that is how it is written already."""
        neat = _neat(ByIdentity(self.graph.relations), form, known[name])
        return None if neat is None else Step(name, neat, unit, Reason("algebra", "Collect equal terms."), "=")


@lru_cache(maxsize=256)
def cuts(graph: Graph, strategy: Strategy) -> tuple[tuple[Form, tuple[Form, ...]], ...]:
    """The sizes that a strategy cuts, each with the degrees that must divide it."""
    found: dict[tuple[Form, tuple[Form, ...]], None] = {}
    for _, axis, meshes in cut_axes(graph, strategy):
        found[forms.from_expr(axis.size), tuple(strategy.sizes[mesh] for mesh in meshes)] = None
    return tuple(found)


def _check_sizes(graph: Graph, strategy: Strategy, known: Mapping[str, Fraction]) -> None:
    """Raises ``StrategyError`` where a degree does not divide a size, both known."""
    if strategy.pipeline is not None:
        check_stages(graph, strategy.pipeline, known)
    for size, parts in cuts(graph, strategy):
        form = Ratio(size, product(*parts))
        if {*forms.names(form)} <= known.keys() and forms.evaluate(form, known).denominator != 1:
            check_cuts(graph, strategy, known)  # says which tensor it is
    check_halos(graph, strategy, known)


def _check_parts(size: Form, parts: Form, what: str, known: Mapping[str, Fraction]) -> None:
    """Raises ``ValuesError`` where a size is not divisible by a number, both known."""
    if {*forms.names(size), *forms.names(parts)} <= known.keys():
        length, count = forms.evaluate(size, known), forms.evaluate(parts, known)
        if length % count:
            shown = f"{size.name} = {length}" if isinstance(size, Sym) else str(length)
            raise ValuesError(f"{what.format(count)}, but {shown} is not divisible by {count}",
                              hint=f"choose a divisor of {length}")  # fmt: skip


@lru_cache(maxsize=64)
def _in_formats(graph: Graph, named: tuple[tuple[str, str], ...]) -> Graph:
    return graph.in_formats(dict(named))


@lru_cache(maxsize=4096)
def _written(held: ByIdentity[Relations], expr: Expr) -> Form:
    return forms.from_expr(held.it.gather(expr))


@lru_cache(maxsize=256)
def _product_dtype(graph: Graph, dtype: str) -> str:
    products = [op for op in graph.ops if op.kind in ("contraction", "convolution") and op.summed
                and len(op.inputs) > 1 and not op.attribute("lookup")]  # fmt: skip
    found: dict[str, str] = {}
    for name in (n for op in products for n in op.inputs if graph.tensors[n].dtype != "bool"):
        if not grouped(own := graph.tensors[name].dtype or dtype):
            found.setdefault(own, name)
    if len(found) > 1:
        (one, first), (two, second) = list(found.items())[:2]
        problem = f"products have operands in {one} ({first}) and in {two} ({second}), which run at different rates"
        raise ValuesError(problem, hint="one format for all operands; groups of weights, weights=int8(128 fp16); "
                          "or peak and memory in place of a device")  # fmt: skip
    return next(iter(found), dtype)


@lru_cache(maxsize=256)
def _symbols(graph: Graph) -> frozenset[str]:
    found = {s.name for axis in graph.axes.values() for s in axis.size.free_symbols}
    found |= {s.name for size in graph.counts for s in size.free_symbols}
    for name, right in graph.relations.equations:
        found |= {name, *forms.names(right)}
    return frozenset({*found, *(region.times for region in graph.regions if region.times)})


@lru_cache(maxsize=4096)
def _sizes(held: ByIdentity[Relations], sizes: tuple[Expr, ...]) -> Form:
    rest = list(sizes)
    for size in sizes:  # groups of query heads over one key/value head: n_kv (n_H / n_kv) is n_H
        top, bottom = sp.fraction(size)
        if bottom != 1 and bottom in rest:
            rest[rest.index(bottom)] = top
            rest.remove(size)
    for name, right in held.it.equations:
        parts = list(sp.Mul.make_args(forms.value(right)))
        while all(rest.count(p) >= parts.count(p) for p in parts):
            at = rest.index(parts[0])
            for p in parts:
                rest.remove(p)
            rest.insert(min(at, len(rest)), forms.value(Sym(name)))
    # A size such as 4D stays one factor, so that a reader recognises the axis.
    return (
        forms.Product(tuple(forms.from_expr(s) for s in rest))
        if len(rest) > 1
        else product(*(forms.from_expr(s) for s in rest))
    )


def _pieces(form: Form) -> list[str]:
    """The factors of a product or the terms of a sum, nested products taken apart, in an order of their own.

    A collected form has no units, so those of names are left out.
    """
    if isinstance(form, Sym):
        return [form.name]
    if isinstance(form, forms.Product):
        return sorted(piece for factor in form.factors for piece in _pieces(factor))
    if isinstance(form, forms.Total):
        return sorted("+" + "·".join(_pieces(term)) for term in form.terms)
    return [repr(forms.substitute(form, lambda s: Sym(s.name, s.whole)))]


@lru_cache(maxsize=4096)  # the rows of a table are alike, and are asked for under other conventions and numbers
def _neat(held: ByIdentity[Relations], form: Form, worth: Expr) -> Form | None:
    """A form with the terms of its worth collected; None where it is written so.

    What holds the largest of several keeps its shape and names.
    """
    from sympy.core.function import AppliedUndef

    if worth.has(sp.Max, sp.Min, AppliedUndef):
        return None
    neat = _collected_form(held, worth)
    return None if _pieces(neat) == _pieces(form) else neat  # the same in another order needs no line


@lru_cache(maxsize=4096)
def _collected_form(held: ByIdentity[Relations], expr: Expr) -> Form:
    return forms.from_expr(_collected(expr, held.it.gather))


def _collected(expr: Expr, gather: Callable[[Expr], Expr]) -> Expr:
    """A value as people write it: one fraction, common factors outside the sums; cheap, unlike ``factor``."""
    if expr.has(sp.Max, sp.Min, sp.ceiling, sp.floor):
        return expr
    divided = any(power.exp.could_extract_minus_sign() for power in expr.atoms(sp.Pow))
    top, bottom = sp.fraction(_together(expr)) if divided else (expr, sp.Integer(1))
    coefficient, bottom = bottom.as_coeff_Mul()
    whole = top / coefficient
    top = gather(sp.expand(whole))
    if top.is_Add and len(top.args) <= 50:
        top = _common_factor(top)
        # (k - 1)(D V + D^2 + ...) is read more easily than its terms multiplied out.
        factors = [gather(sp.expand(f)) if f.is_Add else f for f in sp.Mul.make_args(whole)]
        if sum(f.is_Add for f in factors) > 1 and _terms(factors) <= _terms(sp.Mul.make_args(top)):
            top = sp.Mul(*(_common_factor(f) if f.is_Add else f for f in factors))
    return top if bottom == 1 else top / bottom


def _together(expr: Expr) -> Expr:
    """One fraction, common factors outside: SymPy's ``together`` takes ten times as long."""
    if expr.is_Mul:
        return sp.Mul(*(_together(factor) for factor in expr.args))
    if expr.is_Pow and expr.exp.is_Integer:
        return sp.Pow(_together(expr.base), expr.exp)
    return _common_factor(sp.Add(*(_together(term) for term in expr.args))) if expr.is_Add else expr


def _terms(factors: Iterable[Expr]) -> int:
    """How many terms the sums among some factors have."""
    flat = (piece for factor in factors for piece in sp.Mul.make_args(factor))
    return sum(len(piece.args) for piece in flat if piece.is_Add)


def _common_factor(total: Expr) -> Expr:
    """An expanded sum with what all its terms share put outside; SymPy's ``factor_terms`` takes ten times as long."""
    terms = [term.as_coeff_Mul() for term in total.args]
    if not (total.is_Add and all(coefficient.is_Rational for coefficient, _ in terms)):
        return total
    content = sp.Rational(
        gcd(*(int(coefficient.p) for coefficient, _ in terms)), lcm(*(int(coefficient.q) for coefficient, _ in terms))
    )
    powers = [rest.as_powers_dict() for _, rest in terms]
    shared = {
        base: min(p.get(base, 0) for p in powers)  # of what stands in a denominator the highest power
        for base in dict.fromkeys(base for p in powers for base in p)
        if not base.is_Number and all(p.get(base, sp.S.Zero).is_Integer for p in powers)
    }
    outside = [base**power for base, power in shared.items() if power]
    if content == 1 and not outside:
        return total
    divisor = sp.Mul(content, *outside)
    inside = sp.Add(*(coefficient * rest / divisor for coefficient, rest in terms))
    return sp.Mul(*([] if content == 1 else [content]), *outside, inside, evaluate=False)


def named(said: str | Iterable[str] | None) -> tuple[str, ...]:
    """Names in a list, or in a text with commas between them.

    >>> named("W, b"), named("z, r [B, L] int64"), named(["W"]), named(None)
    (('W', 'b'), ('z', 'r [B, L] int64'), ('W',), ())
    """
    if said is None:
        return ()
    found = re.split(r",(?![^\[]*\])", said) if isinstance(said, str) else [str(name) for name in said]
    return tuple(name.strip() for name in found if name.strip())


def named_by(said: str, name: str) -> bool:
    """Whether a person means a weight: by its name, with its region's mark or not, or by how the name begins.

    >>> named_by("W*", "head:W^U"), named_by("W", "W^U")
    (True, False)
    """
    return any(said == one or (said.endswith("*") and one.startswith(said[:-1])) for one in (name, bare(name)))


class StepWriter:
    """The steps of a derivation while they are written down."""

    def called(self, name: str, form: Form, unit: Unit, rule: str, text: str) -> Form:
        """A form under a name; a symbol has one already."""
        return form if isinstance(form, Sym) else self.combine(name, form, unit, rule, text)

    def combine(self, name: str, form: Form, unit: Unit, rule: str, text: str) -> Form:
        """A step that is made of numbers and of other steps: its witness works the form out from what those count."""
        return self.define(name, form, unit, rule, text, witness=partial(worked_out, form))

    def take(self, name: str, made: Derivation, rule: str, text: str, by: Iterable[str] = ()) -> Form:
        """A step that is the answer of another derivation, and rests on the conventions of that."""
        form = forms.from_expr(made.expr)
        return self.define(name, form, made.unit, rule, text, witness=made.again, by=(*by, *made.touched))

    def as_written(self, name: str, form: Form, unit: Unit, rule: str, text: str, witness: Witness | None = None,
                   by: tuple[str, ...] = ()) -> Form:  # fmt: skip
        """A step whose terms stay apart, for a reader looks for them; a name that is taken gets primes."""
        while name in self.taken or name in self.known:
            name += "'"
        self.steps.append(Step(name, form, unit, Reason(rule, text, witness=witness), by=by))
        self.known[name] = forms.value(form)
        return Sym(name)

    def __init__(self, setting: Setting, *forms_in_use: Form) -> None:
        self.setting = setting
        self.taken = setting.symbols | {name for form in forms_in_use for name in forms.names(form)}
        self.steps: list[Step] = []
        self.known: dict[str, Expr] = {}

    @property
    def rests_on(self) -> tuple[str, ...]:
        """The conventions that decided what its steps are."""
        return rests_on(self.steps)

    def define(
        self, name: str, form: Form, unit: Unit, rule: str, text: str, op: Op | None = None,
        witness: Witness | None = None, by: Iterable[str] = (),
    ) -> Form:  # fmt: skip
        """A step ``name := form`` and, where it helps, a second one with the terms collected; gives the name.

        It rests on the conventions that were read since the last step, and on those that it is made ``by`` besides. A
        name that is a symbol of the model (``F``, ``V``) or of an earlier step is changed until it is free.
        """
        while name in self.taken or name in self.known:
            name += "'" if "_" in name or "^" in name else "_total"
        reason = Reason(rule, text, op.source if op else None, witness)
        self.steps.append(Step(name, form, unit, reason, by=tuple(dict.fromkeys((*self.setting.taken(), *by)))))
        self.known[name] = forms.value(form, self.known) if self.setting.told else sp.S.Zero
        if self.setting.told and not isinstance(form, (Num, Sym)):
            neat = self.setting.collected(name, form, unit, self.known)
            if neat is not None:
                self.steps.append(neat)
        return Sym(name)


class Decided(Protocol):
    """A fact that was decided ``by`` the choice of some conventions."""

    @property
    def by(self) -> Iterable[str]: ...


def rests_on(members: Iterable[Decided]) -> tuple[str, ...]:
    """The conventions that decided what some members of an amount are."""
    return tuple(dict.fromkeys(name for member in members for name in member.by))


def mark(region: Region) -> str:
    """A mark that tells the steps of two regions apart."""
    return region.name.split()[0]


def times(region: Region, form: Form) -> Form:
    """A count of one repetition for all of them."""
    return product(Sym(region.times), form) if region.times else form


def slug(name: str) -> str:
    """A tensor's name as part of a step's name: ``score_i`` becomes ``score``, ``W^Q`` becomes ``WQ``.

    >>> slug("score_i"), slug("A'"), slug("W_up^Q")
    ('score', "A'", 'W,upQ')
    """
    base = name.split("·")[0].rpartition(":")[2].replace("d(", "d").replace(")", "")
    head, _, index = base.rpartition("_")
    base = head if head and len(index) == 1 and index.islower() else base
    return re.sub(r"[^\w',]", "", base.replace("_", ","))
