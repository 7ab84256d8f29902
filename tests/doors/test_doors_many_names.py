"""Thousands of given names take no longer each than a few do, and slips among them are found as before."""

import pytest
from api import model as models
from hypothesis import given
from hypothesis import strategies as st

import symcomm as sc

NAMES = st.text("aAbB_1", min_size=1, max_size=5).filter(lambda name: name[0].isalpha())


@given(NAMES, st.sets(NAMES, max_size=8))
def test_slips_have_a_spelling_in_common(name, sizes):
    slow = {size for size in sizes if models._slip(name, size)}
    assert slow <= {size for size in sizes if {*models._spelled(name)} & {*models._spelled(size)}}


def chain(rows):
    lines = (
        f"y_{{{i}}} = x W_{{{i}}}\tx [B, D], W_{{{i}}} [D, E_{{{i}}}]\ty_{{{i}}} [B, E_{{{i}}}]" for i in range(rows)
    )
    return sc.load("Computation\tInput\tOutput\n" + "\n".join(lines))


def test_names_that_mean_nothing_are_compared_with_few_sizes(monkeypatch):
    compared = []
    slip = models._slip
    monkeypatch.setattr(models, "_slip", lambda name, size: compared.append(name) or slip(name, size))
    model = chain(60)
    model.at(**{f"quite_other_{i}": 2 for i in range(60)})
    assert len(compared) < 60
    with pytest.raises(sc.SymcommError, match="has no size 'e_7'"):
        model.at(e_7=3, quite_other=2)


def test_a_document_gives_a_thousand_numbers_one_after_the_other(monkeypatch):
    from api import keys, problem

    counted = []
    merge = keys.merge
    monkeypatch.setattr(keys, "merge", lambda *groups: counted.extend(x for g in groups for x in g) or merge(*groups))
    given_numbers = ", ".join(f"E_{i}: {i + 1}" for i in range(1000))
    block = f"```symcomm\nask: peak_rate\nclock: 1 GHz\nunits: 2\nfma: 3\ngiven: {{{given_numbers}}}\n```\n"
    read = problem.parse_problem("# One\n\n" + block)
    assert len(read.asks[0].given) == 1000
    assert len(counted) <= 1000
