"""The evaluation trace of a system of formulas: one operation a variable, numbered as the course numbers them.

Inputs ``x_1 ... x_n`` are ``v_{1-n} ... v_0``, operations ``v_1, v_2, ...``: by level (one more than the largest of the
operands'), and within a level by the first place in a left-to-right reading of the outputs. A subexpression that occurs
again is the same variable; one of constants alone is a constant.

Source: Baydin et al., Automatic differentiation in machine learning, arXiv 1502.05767, section 3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import cache, cached_property, partial
from typing import Any

from symcomm.core import form as forms
from symcomm.core.errors import FormulaError, Span, SymcommError, ValuesError, nearest
from symcomm.core.form import Form, Sym
from symcomm.core.libraries import Expr, nx, sp
from symcomm.core.records import dataclass
from symcomm.core.text.formula import parse_answer
from symcomm.core.text.spelling import plain_name
from symcomm.core.text.systems import CONSTANTS, in_order, read_point, read_system
from symcomm.core.text.tree import (
    Exponentiation,
    FunctionCall,
    Identifier,
    Multiplication,
    Node,
    Number,
    Quotient,
    Radical,
    Sum,
)
from symcomm.teaching.differentiation.operations import FUNCTIONS, OPERATION, SPELLED, Operation, guard, sign, tidy

OPERATION_LIMIT = 400
DOT, BAR = "\u0307", "\u0304"


def variable(number: int, mark: str = "") -> str:
    """The name of a variable, of its tangent or of its adjoint.

    >>> variable(-1)
    'v_-1'
    """
    return f"v{mark}_{number}"


def marked(name: str, mark: str) -> str:
    """The name of an input or an output with a dot or a bar above its letter."""
    base, _, rest = name.partition("_")
    return f"{base}{mark}_{rest}" if rest else base + mark


@dataclass(frozen=True)
class Variable:
    """One row of a trace: an input, or an operation on variables (by number) and constants (exact values)."""

    number: int
    level: int
    value: Expr
    input: str = ""
    operation: str = ""
    operands: tuple[int | Expr, ...] = ()
    span: Span | None = None

    @property
    def name(self) -> str:
        """Its name: ``v_3``."""
        return variable(self.number)

    @property
    def reads(self) -> tuple[int, ...]:
        """The numbers of the variables it is computed from, in order, one that is read twice twice."""
        return tuple(one for one in self.operands if isinstance(one, int))


@dataclass(frozen=True)
class Partial:
    """The derivative of a variable for one of its operands: written, and what it is worth."""

    of: int
    form: Form
    value: Expr


@dataclass(frozen=True)
class EvaluationTrace:
    """The variables of a system in the order of their numbers, and which of them each output is.

    >>> made = trace("y1 = (x1+x2)^2; y2 = (x1-x2)^2", {"x1": 2, "x2": 4})
    >>> [v.name for v in made.variables], [str(v.value) for v in made.variables]
    (['v_-1', 'v_0', 'v_1', 'v_2', 'v_3', 'v_4'], ['2', '4', '6', '-2', '36', '4'])
    """

    variables: tuple[Variable, ...]
    outputs: tuple[tuple[str, int], ...]

    @property
    def inputs(self) -> tuple[Variable, ...]:
        """The inputs, in order."""
        return tuple(v for v in self.variables if v.input)

    @property
    def operations(self) -> tuple[Variable, ...]:
        """The variables that are computed, in order."""
        return tuple(v for v in self.variables if not v.input)

    def __getitem__(self, number: int) -> Variable:
        return self.variables[number + len(self.inputs) - 1]

    @cached_property
    def nx(self) -> nx.DiGraph[int]:
        """The trace as a NetworkX graph: a node a variable (with ``variable``), an edge an operand that is read."""
        graph: nx.DiGraph[int] = nx.DiGraph()
        for v in self.variables:
            graph.add_node(v.number, variable=v)
            graph.add_edges_from((read, v.number) for read in v.reads)
        return graph

    def form(self, v: Variable) -> Form:
        """The formula of a variable."""
        return Sym(v.input) if v.input else OPERATION[v.operation].form(*map(operand_form, v.operands))

    def partials(self, number: int) -> tuple[Partial, ...]:
        """The derivatives of a variable for each variable it reads, in order of its operands.

        Raises ``ValuesError`` where it has none: at a kink, or where a slope is infinite.
        """
        return self._partials[number]() if number in self._partials else ()

    @cached_property
    def _partials(self) -> dict[int, Callable[[], tuple[Partial, ...]]]:
        return {v.number: cache(partial(self._derived, v)) for v in self.operations}

    def _derived(self, v: Variable) -> tuple[Partial, ...]:
        record = OPERATION[v.operation]
        values = [self.worth(one) for one in v.operands]
        problem = record.kink(*values)
        if not problem and v.operation == "pow" and isinstance(v.operands[1], int) and sign(values[0]) <= 0:
            problem = "the derivative for the exponent needs the logarithm of the base, which is not positive"
        if problem:
            shown = self.form(v)
            from symcomm.core.printing import plain as printed

            where = f"{v.name} = {printed(shown)}"
            raise ValuesError(f"{where} is not differentiable here: {problem}", v.span, "choose another point")
        known = {variable(one): self[one].value for one in v.reads} | {v.name: v.value}
        written = record.partials(*map(operand_form, v.operands), Sym(v.name))
        pairs = [(one, form) for one, form in zip(v.operands, written, strict=True) if isinstance(one, int)]
        return tuple(Partial(one, form, tidy(_valued(form, known))) for one, form in pairs)

    def worth(self, operand: int | Expr) -> Expr:
        """The value of an operand: that of the variable, or the constant itself."""
        return self[operand].value if isinstance(operand, int) else operand


def _valued(form: Form, known: Mapping[str, Expr]) -> Expr:
    if isinstance(form, forms.Called) and form.function in ("greater", "sign"):
        values = [forms.value(argument, known) for argument in form.arguments]
        return sp.Integer(sign(values[0]) if form.function == "sign" else int(sign(values[0] - values[1]) > 0))
    return forms.value(form, known)


def operand_form(operand: int | Expr) -> Form:
    """An operand as it is written."""
    return Sym(variable(operand)) if isinstance(operand, int) else forms.from_expr(operand)


def trace(text: str, point: str | Mapping[str, object], outputs: Sequence[str] = ()) -> EvaluationTrace:
    """The evaluation trace of formulas at a point.

    ``text`` holds formulas such as ``y_1 = (x_1+x_2)^2; y_2 = ln(x_1)``, ``point`` a value for each input:
    ``"x_1 = 2"`` or ``{"x_1": 2}``. Outputs are those named, or ``y``, ``y_1``, ..., or what no other formula uses.
    Raises ``FormulaError`` for an unknown name, a name with two formulas or a cycle, and ``ValuesError`` where a value
    does not exist, such as the logarithm of 0.

    >>> trace("y = x_1^3 - 2x_1 + 1", "x_1 = 3/2").outputs
    (('y', 4),)
    """
    given = read_point(point)
    if not given:
        raise ValuesError("a trace needs a point: a value for each input", hint="write x_1 = 2, x_2 = 4")
    return _TraceBuilder(text, given, tuple(map(plain_name, outputs))).trace()


def constants(said: str | Mapping[str, object]) -> dict[str, Expr]:
    """The exact numbers of a point or a direction by name.

    >>> constants("x_1 = 1/2, x_2 = ln(3)")
    {'x_1': 1/2, 'x_2': log(3)}
    """
    builder = _TraceBuilder("y = 0", {}, ())
    return {name: builder.constant(name, value) for name, value in read_point(said).items()}


@dataclass
class _Node:
    """An operation that has no number yet; operands are nodes, names of inputs, or constants."""

    record: Operation
    operands: tuple[Any, ...]
    level: int
    span: Span
    value: Expr


class _TraceBuilder:
    """Builds the operations of formulas, each distinct one once."""

    def __init__(self, text: str, point: Mapping[str, Any], outputs: tuple[str, ...]) -> None:
        self.formulas = {f.name: f for f in read_system(text, point, FUNCTIONS)}
        names = [*point]
        self.inputs = sorted(names, key=in_order) if len({in_order(n)[0] for n in names}) == 1 else names
        self.made: dict[tuple[Any, ...], _Node] = {}
        self.done: dict[str, Any] = {}
        self.open: list[str] = []
        self.point = {name: self.constant(name, value) for name, value in point.items()}
        self.outputs = self.chosen(outputs)

    def constant(self, name: str, value: Any) -> Expr:
        if isinstance(value, Fraction):
            return tidy(sp.Rational(value.numerator, value.denominator))
        found = self.build(parse_answer(value, (*CONSTANTS, "E"), functions=FUNCTIONS))
        if not isinstance(found, sp.Expr):
            raise FormulaError(f"the value of {name} is not a number", value.span(), "write x_1 = 2 or x_1 = ln(3)")
        return found

    def chosen(self, outputs: tuple[str, ...]) -> list[str]:
        """The outputs: those that are named, or ``y``s, or what no formula reads."""
        for name in outputs:
            if name not in self.formulas:
                raise FormulaError(f"no formula is called {name}", hint=nearest(name, [*self.formulas]))
        if outputs:
            return [*outputs]
        named = [name for name in self.formulas if name == "y" or (name.startswith("y_") and name[2:].isdecimal())]
        if named:
            return sorted(named, key=in_order)
        read = frozenset[str]().union(*(formula.reads for formula in self.formulas.values()))
        return [name for name in self.formulas if name not in read] or [*self.formulas]

    # -- nodes -----------------------------------------------------------------------------------------

    def named(self, name: str, span: Span) -> Any:
        """The meaning of a name: an input's name, the node of its formula, or a constant."""
        if name in self.formulas:
            if name in self.open:
                circle = " -> ".join([*self.open[self.open.index(name) :], name])
                raise FormulaError(f"{name} is defined by itself: {circle}", span, "break the circle")
            if name not in self.done:
                self.open.append(name)
                self.done[name] = self.build(self.formulas[name].tree)
                self.open.pop()
            return self.done[name]
        if name in getattr(self, "inputs", ()):
            return name
        assert name in (*CONSTANTS, "E")  # the grammar knows no other names
        return sp.pi if name == "pi" else sp.E

    def build(self, node: Node) -> Any:
        """The node, the input or the constant that a tree stands for."""
        match node:
            case Number(_, value):
                return sp.Rational(value.numerator, value.denominator)
            case Identifier(span, key):
                return self.named(plain_name(key), span)
            case Sum(span, terms, signs):
                return self.total(terms, signs, span)
            case Multiplication(span, factors):
                return self.folded("mul", [self.build(factor) for factor in factors], span)
            case Quotient(span, top, bottom):
                return self.operation("div", (self.build(top), self.build(bottom)), span)
            case Exponentiation(span, base, exponent):
                return self.operation("pow", (self.build(base), self.build(exponent)), span)
            case Radical(span, inside):
                return self.operation("sqrt", (self.build(inside),), span)
            case FunctionCall():
                return self.call(node)
        raise FormulaError("this cannot stand in a formula of a trace", node.span)  # pragma: no cover

    def total(self, terms: tuple[Node, ...], signs: tuple[int, ...], span: Span) -> Any:
        """Terms from left to right; a minus before the first one belongs to its first factor, as in ``-2 x_1``."""
        found = self.build(terms[0]) if signs[0] > 0 else self.minus(terms[0], span)
        for term, each in zip(terms[1:], signs[1:], strict=True):
            found = self.operation("add" if each > 0 else "sub", (found, self.build(term)), span)
        return found

    def minus(self, term: Node, span: Span) -> Any:
        head = span.text[span.start : term.span.start].strip("-−– $")
        whole = span.text[term.span.start :].startswith("\\")
        if not head and not whole and isinstance(term, Multiplication):
            first, *rest = term.factors
            return self.folded("mul", [self.minus(first, span), *map(self.build, rest)], term.span)
        if not head and not whole and isinstance(term, Quotient):
            return self.operation("div", (self.minus(term.top, span), self.build(term.bottom)), term.span)
        return self.operation("neg", (self.build(term),), span)

    def folded(self, name: str, operands: Sequence[Any], span: Span) -> Any:
        found = operands[0]
        for operand in operands[1:]:
            found = self.operation(name, (found, operand), span)
        return found

    def call(self, node: FunctionCall) -> Any:
        record = SPELLED[node.function]
        arguments = [self.build(argument) for argument in node.arguments]
        if record.arity == 2 and len(arguments) >= 2:
            return self.folded(record.name, arguments, node.span)
        if len(arguments) != record.arity:
            wanted = "one argument" if record.arity == 1 else "two arguments or more"
            raise FormulaError(f"{node.function} takes {wanted}, not {len(arguments)}", node.span)
        found = self.operation(record.name, tuple(arguments), node.span)
        if node.subscript is None:
            return found
        base = self.build(node.subscript)
        if record.name != "ln" or not isinstance(base, sp.Expr) or sign(base) <= 0 or base == 1:
            raise FormulaError(f"{node.function} has no such subscript", node.subscript.span, "write log_2(x)")
        return self.operation("div", (found, sp.log(base)), node.span)

    def operation(self, name: str, operands: tuple[Any, ...], span: Span) -> Any:
        """The node of an operation; a constant where all its operands are."""
        record = OPERATION[name]
        key = (name, *(id(one) if isinstance(one, _Node) else one for one in operands))
        if key in self.made:
            return self.made[key]
        values = tuple(self.value(one) for one in operands)
        try:
            guard(record, values)
            value = tidy(_computed(record, values))
        except SymcommError as error:
            error.message = f"{error.message} at this point" if "defined" in error.message else error.message
            raise error.at(span) from None
        if all(isinstance(one, sp.Expr) for one in operands):
            return value
        if len(self.made) >= OPERATION_LIMIT:
            raise FormulaError(f"more than {OPERATION_LIMIT} operations", span, "trace a part of it")
        level = 1 + max(one.level if isinstance(one, _Node) else 0 for one in operands)
        self.made[key] = _Node(record, operands, level, span, value)
        return self.made[key]

    def value(self, one: Any) -> Expr:
        return self.point[one] if isinstance(one, str) else one.value if isinstance(one, _Node) else one

    # -- numbers ---------------------------------------------------------------------------------------

    def trace(self) -> EvaluationTrace:
        """The variables with their numbers."""
        ends = [self.named(name, self.formulas[name].span) for name in self.outputs]
        for formula in self.formulas.values():  # what no output reads is read all the same, for its errors
            self.named(formula.name, formula.span)
        for name, end in zip(self.outputs, ends, strict=True):
            if isinstance(end, sp.Expr):
                raise FormulaError(f"{name} depends on no input", self.formulas[name].span, "leave it out")
        seen: dict[int, _Node] = {}

        def visit(one: Any) -> None:
            if isinstance(one, _Node) and id(one) not in seen:
                for operand in one.operands:
                    visit(operand)
                seen[id(one)] = one

        for end in ends:
            visit(end)
        ordered = sorted(seen.values(), key=lambda node: node.level)  # stable: by the first place within a level
        numbers: dict[Any, int] = {name: n + 1 - len(self.inputs) for n, name in enumerate(self.inputs)}
        numbers |= {id(node): n for n, node in enumerate(ordered, 1)}

        def read(one: Any) -> int | Expr:
            return numbers[id(one) if isinstance(one, _Node) else one] if not isinstance(one, sp.Expr) else one

        variables = [Variable(numbers[name], 0, self.point[name], input=name) for name in self.inputs]
        variables += [
            Variable(numbers[id(n)], n.level, n.value, "", n.record.name, tuple(map(read, n.operands)), n.span)
            for n in ordered
        ]
        at = [numbers[id(end) if isinstance(end, _Node) else end] for end in ends]
        return EvaluationTrace(tuple(variables), tuple(zip(self.outputs, at, strict=True)))


def _computed(record: Operation, values: tuple[Expr, ...]) -> Expr:
    if record.name in ("max", "min"):
        first = (sign(values[0] - values[1]) >= 0) == (record.name == "max")
        return values[0] if first else values[1]
    if record.name == "abs":
        return values[0] * (sign(values[0]) or 1)
    names = [f"u_{n}" for n in range(len(values))]
    return forms.value(record.form(*map(Sym, names)), dict(zip(names, values, strict=True)))


__all__ = ["EvaluationTrace", "Partial", "Variable", "marked", "operand_form", "trace", "variable"]
