"""Derivations that are kept with symbols for their degrees give what deriving anew gives; so do collected formulas."""

import pickle
from dataclasses import replace
from fractions import Fraction

import pytest
from api import (
    ONE,
    QUANTITIES,
    Accounting,
    Ceiling,
    Derivation,
    Floor,
    Form,
    Largest,
    Logarithm,
    Power,
    Ratio,
    Reason,
    Root,
    Setting,
    Smallest,
    Step,
    Sym,
    SymcommError,
    Total,
    collect,
    kept,
    num,
    parse_strategy,
    product,
)
from api import form as forms
from hypothesis import given, settings
from hypothesis import strategies as st

import symcomm as sc

LLAMA = sc.load({
    "model_type": "llama", "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 8,
    "num_key_value_heads": 8, "intermediate_size": 64, "vocab_size": 96,
}).at(B=24, L=16)  # fmt: skip
LAYER = LLAMA.part("layer")
RATES = {"peak": "1 TFLOP/s", "memory": "100 GB/s", "network": "20 GB/s", "latency": "0.00001 s"}


def anew(model, quantity: str, accounting=None, **options) -> Derivation:
    """A derivation by its pass, past everything that is kept."""
    chosen = Accounting.of(**accounting) if accounting else Accounting()
    setting = Setting(model.graph, chosen, model.dtype, model.notation, model.graph.relations.complete(model.values))
    if "strategy" in options:  # an axis of one rank is none
        options["strategy"] = parse_strategy(options["strategy"]).at({})
    return QUANTITIES[quantity].derive(setting, **options)


QUESTIONS = [
    ("step_time", "data({}) + tensor({})", {**RATES, "microbatches": 2}),
    ("step_time", "tensor({}) + pipeline({}, microbatches=4)", {**RATES, "of": "exposed"}),
    ("throughput", "zero-1({}) + context({})", {**RATES, "of": "mfu"}),
    ("time", "fully-sharded({}) + tensor({}) + sequence", {**RATES, "phase": "backward"}),
    ("communication", "hybrid-sharded({}, {})", {}),
    ("communication", "data({}) + pipeline({}, microbatches=2)", {"collective": "all-reduce"}),
    ("state_memory", "fully-sharded({}) + tensor({})", {}),
    ("activation_memory", "tensor({}) + sequence + pipeline({}, microbatches=4)", {"recomputation": "full"}),
]


def told(derive) -> object:
    """A number, or the text of the error."""
    try:
        return derive().at()
    except SymcommError as error:
        return str(error)


def agrees(model, quantity: str, text: str, options, pairs) -> None:
    for a, b in pairs:
        asked = {"strategy": text.format(a, b), **options}
        stages = [{"stage": n} for n in range(b)] if (quantity, model) == ("activation_memory", LLAMA) else [{}]
        each = [told(lambda said={**asked, **stage}: anew(model, quantity, **said)) for stage in stages]
        # Without a stage, memory is that of the stage with the most.
        expected = each[0] if isinstance(each[0], str) else max(each, key=lambda found: found.value)
        assert told(lambda asked=asked: model.derive(quantity, **asked)) == expected, asked


@pytest.mark.parametrize(
    ("quantity", "text", "options"),
    [pytest.param(*one, marks=[pytest.mark.long] if n % 3 else []) for n, one in enumerate(QUESTIONS)], ids=str,
)  # fmt: skip
def test_what_is_kept_gives_the_number_of_deriving_anew(quantity, text, options):
    agrees(LAYER, quantity, text, options, ((2, 2), (4, 2), (1, 4), (2, 4), (5, 2)))


@pytest.mark.long
@pytest.mark.parametrize(("quantity", "text", "options"), QUESTIONS, ids=str)
def test_what_is_kept_of_a_whole_model_gives_the_number_of_deriving_anew(quantity, text, options):
    agrees(LLAMA, quantity, text, options, ((2, 2), (4, 2), (2, 4), (1, 4), (4, 1), (5, 2), (2, 3), (1, 1)))


@pytest.mark.long
@settings(max_examples=6, deadline=None)
@given(
    st.sampled_from([1, 2, 3, 4, 6, 8, 12]), st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 3]),
    st.sampled_from(["overlap", "serial"]), st.sampled_from(["ring", "tree"]),
)  # fmt: skip
def test_a_step_is_that_of_deriving_anew_for_all_degrees(d, t, m, time, algorithm):
    asked = {"strategy": f"data({d}) + tensor({t})", "microbatches": m, **RATES}
    how = {"time": time, "algorithm": algorithm}
    layer = LAYER.at(B=144)  # which all of them divide
    assert layer.derive("step_time", accounting=how, **asked).at() == anew(layer, "step_time", how, **asked).at()


def counted(monkeypatch, quantity: str) -> list[object]:
    calls: list[object] = []
    one = QUANTITIES[quantity]
    made = replace(one, derive=lambda setting, **options: calls.append(options) or one.derive(setting, **options))
    monkeypatch.setattr("symcomm.core.model.QUANTITIES", {**QUANTITIES, quantity: made})
    return calls


def test_many_configurations_take_two_derivations(monkeypatch):
    model = sc.load({"model_type": "gpt2", "n_embd": 32, "n_layer": 2, "n_head": 8, "n_positions": 16,
                     "vocab_size": 96}).at(L=16)  # fmt: skip
    calls = counted(monkeypatch, "state_memory")
    worth = {(d, t): model.state_memory(f"zero-1({d}) + tensor({t})").at().value for d in (2, 3, 5) for t in (2, 4, 8)}
    assert len(calls) == 2
    assert len(set(worth.values())) == 9


def test_errors_are_those_of_each_configuration():
    for _ in range(3):
        assert LAYER.step_time("data(2) + tensor(4)", **RATES).at()
        with pytest.raises(SymcommError, match=r"cuts B = 24 of .+ into 5 parts, but 24 is not divisible by 5"):
            LAYER.step_time("data(5) + tensor(4)", **RATES)
        with pytest.raises(SymcommError, match="a mesh axis of 0 ranks"):
            LAYER.step_time("data(0) + tensor(4)", **RATES)
        with pytest.raises(SymcommError, match="unknown strategy"):
            LAYER.step_time("dada(2) + tensor(4)", **RATES)
        with pytest.raises(SymcommError, match="needs a value for") as error:
            LAYER.step_time("data(4) + tensor(4)").at()
        assert {*error.value.message.partition(" for ")[2].split(", ")} == {"W_net", "R", "W_mem"}  # no inner name


def test_sizes_that_are_left_open_are_given_later():
    model = sc.load({"model_type": "llama", "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 8,
                     "intermediate_size": 64, "vocab_size": 96})  # fmt: skip
    for d in (2, 4, 8):
        expected = anew(model, "activation_memory", strategy=f"data({d})").at(B=64, L=8)
        assert model.activation_memory(f"data({d})").at(B=64, L=8) == expected


def test_what_is_not_written_yet_reads_as_what_is_written():
    said = [f"data({d}) + tensor(2)" for d in (2, 4, 8)]
    made = [LAYER.communication(text) for text in said]
    written = [anew(LAYER, "communication", strategy=text) for text in said]
    assert type(made[2]) is kept.Unwritten
    assert isinstance(made[2], Derivation)
    for one, other in zip(made, written, strict=True):
        assert (one, hash(one)) == (other, hash(other))
        assert (other == one, one.text(), one.expr) == (True, other.text(), other.expr)
        assert replace(one, title="the same") == replace(other, title="the same")
        assert pickle.loads(pickle.dumps(one)).at() == other.at()
    assert made[1] != made[2]


def test_a_pass_that_asks_whether_a_degree_is_even_is_not_kept():
    """Symbols may not give what numbers give: then every configuration is derived by itself."""

    def derive(setting, strategy, **options):
        [size] = (parse_strategy(strategy) if isinstance(strategy, str) else strategy).sizes.values()
        form = size if isinstance(size, Sym) or size.number % 2 else num(0)
        return Derivation("odd", setting.accounting, (Step("A", form, ONE, Reason("rule", "text.")),))

    graph = LAYER.graph
    setting = Setting(replace(graph), values=dict(LAYER.values))
    worth = [kept.derived("time", setting, {"strategy": f"data({d})"}, derive).at().value for d in (2, 4, 8, 3)]
    assert worth == [0, 0, 0, 3]


# -- collected formulas -----------------------------------------------------------------------------------

POINT = {"a": Fraction(3), "b": Fraction(5, 2), "c": Fraction(7)}
leaves = st.one_of(st.sampled_from([Sym(name) for name in POINT]), st.integers(1, 9).map(num))


def wider(inner: st.SearchStrategy[Form]) -> st.SearchStrategy[Form]:
    pair = st.tuples(inner, inner)
    return st.one_of(
        pair.map(Total), pair.map(lambda p: product(*p)), pair.map(lambda p: Ratio(*p)), pair.map(Largest),
        pair.map(Smallest), inner.map(Ceiling), inner.map(Floor),
        st.tuples(inner, st.integers(0, 3)).map(lambda p: Power(p[0], num(p[1]))),
        inner.map(lambda f: Ceiling(Logarithm(Total((f, num(1))), 2))),
        inner.map(lambda f: Root(product(f, f))),
    )  # fmt: skip


@given(st.recursive(leaves, wider, max_leaves=12), leaves)
def test_a_collected_formula_has_the_number_of_the_formula(form, other):
    steps = [("x", form), ("y", Total((product(Sym("x"), other), Sym("x"))))]
    try:
        expected = forms.evaluate(form, POINT)
        if expected.denominator.bit_length() > 500:
            return
        second = forms.evaluate(steps[1][1], {**POINT, "x": expected})
    except SymcommError:
        return  # a division by zero, which collecting may or may not meet
    assert collect(steps, ("x", "y")).at(POINT) == {"x": expected, "y": second}
    numbers = {"a": POINT["a"]}
    rest = {name: value for name, value in POINT.items() if name != "a"}
    assert collect(steps, ("y",), numbers).at(rest) == {"y": second}


@pytest.mark.parametrize("exponent", [-3, -1, 0, 1, 2, 5, 40])
@pytest.mark.parametrize("base", [Total((Sym("a"), Sym("b"))), Total((Sym("a"), Sym("b"), num(-2))), Sym("b"), num(3)])
def test_powers_are_worked_out_whatever_is_raised(base: Form, exponent: int):
    made = collect([("x", Power(base, num(exponent)))], ("x",))
    assert made.at(POINT) == {"x": forms.evaluate(base, POINT) ** exponent}


def test_products_of_long_sums_are_not_multiplied_out():
    sums = [Total(tuple(Sym(f"{letter}{n}") for n in range(25))) for letter in "ab"]
    values = {f"{letter}{n}": Fraction(n + 1, 1 + (letter == "b")) for letter in "ab" for n in range(25)}
    made = collect([("x", product(*sums))], ("x",))
    assert made.at(values) == {"x": Fraction(325, 2) * 325}
    assert sum(len(terms) for _, terms in made.sums) == 25


def test_what_is_zero_counts_as_zero_within_a_function():
    nothing = Total((Sym("a"), product(num(-1), Sym("a"))))
    asked = {"x": Ceiling(nothing), "y": Largest((nothing, num(-1))), "z": Smallest((nothing, Sym("b")))}
    assert collect([*asked.items()], (*asked,)).at(POINT) == {"x": 0, "y": 0, "z": 0}


def test_what_names_a_step_is_not_shared_with_other_steps():
    """One form in two collections, in which the step that it names is something else."""
    form, shared = product(Total((Sym("s"), num(1))), Sym("a")), {}
    for worth in (2, 5):
        made = collect([("s", num(worth)), ("x", form)], ("x",), shared=shared)
        assert made.at(POINT) == {"x": (worth + 1) * 3}


def test_equal_terms_are_one_monomial_and_what_is_not_needed_goes():
    a, b = Sym("a"), Sym("b")
    made = collect([("x", Total((product(a, b), product(b, a)))), ("z", Largest((a, b)))], ("x", "z"))
    assert dict(made.sums)["x"] == {(("a", 1), ("b", 1)): Fraction(2)}
    assert len(made.nodes) == 1
    assert made.only("x").nodes == ()
    assert collect([("x", Total((a, product(num(-1), a))))], ("x",)).sums == (("x", {}),)


def test_a_division_by_zero_is_refused():
    with pytest.raises(SymcommError, match="a division by zero"):
        collect([("x", Ratio(num(1), num(0)))], ("x",))
    with pytest.raises(SymcommError, match="a division by zero"):
        collect([("x", Ratio(num(1), Sym("a")))], ("x",)).at({"a": Fraction(0)})
