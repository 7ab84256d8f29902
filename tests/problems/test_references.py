"""References in prose and blocks stand for values; an unknown one is refused with its line."""

import pytest
from api import DocumentError, NamedValue, Prose, Quantity, parse_problem, parse_template, solve

LAYER = """| Computation | Input | Output |
|---|---|---|
| $y = xW$ | $x$ [B, D], $W$ [D, {{ F }}] | $y$ [B, {{ F }}] |
"""
ASK = """
```symcomm
model: layer
values: {B: 16, D: {{ D }}}
```

The layer has $D = {{ D }}$ columns, {{ k }} ranks and {{ M in MiB }}; $x^{{2}}$ and `{{ code }}` stay.

```symcomm
ask: communication
strategy: data({{ k }})
given: {M: 8 GiB}
```
"""
DRAWN = {"D": NamedValue.of(Quantity.parse("64"), "64"), "k": NamedValue("8"), "F": NamedValue("32")}


def prose(problem):
    return [item.markdown for item in problem.items if isinstance(item, Prose)]


def test_a_reference_stands_for_its_value_in_tables_blocks_and_prose():
    problem = parse_template(LAYER + ASK).problem(DRAWN)
    assert "$D = 64$ columns, 8 ranks and 8192 MiB; $x^{{2}}$ and `{{ code }}` stay." in prose(problem)[0]
    answer = next(solve(problem).answers())
    assert answer.quantity.value == 2 * 64 * 32


def test_a_reference_to_nothing_is_refused_with_its_line():
    with pytest.raises(DocumentError, match="nothing is called 'Dd' here") as error:
        parse_problem("---\nsymbols: {D: {meaning: columns, value: 3}}\n---\n\nThere are\n{{ Dd }} columns.")
    assert error.value.span.line == 6
    assert error.value.span.word == "{{ Dd }}"
    assert "'D'" in error.value.hint


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{{ 7*7 }}", "is no reference"),
        ("{{ D in furlong }}", "furlong"),
        ("{{ D in GiB }}", "is not measured in GiB"),
    ],
)
def test_what_is_no_reference_or_has_another_unit_is_refused(text, says):
    with pytest.raises(DocumentError, match=says):
        parse_problem(f"---\nsymbols: {{D: {{meaning: columns, value: 3}}}}\n---\n\nThere are {text}.")


def test_a_value_that_is_given_in_two_ways_is_not_told_in_prose():
    ask = "```symcomm\nask: peak_rate\ngiven: {{f: {} GHz, n_SM: 2, n_FMA: 2}}\n```\n\n"
    text = ask.format(1) + ask.format(2) + "The clock is {{ f }}."
    with pytest.raises(DocumentError, match="f is 1 GHz in line 3 and 2 GHz in line 8"):
        parse_problem(text)


def test_a_topic_is_left_for_what_knows_its_answers():
    assert prose(parse_problem("see {{ answer:2.1 in GiB }}")) == ["see {{ answer:2.1 in GiB }}"]
