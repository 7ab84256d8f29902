"""How the statistics of cut rows are called in reasons."""

import symcomm as sc


def test_statistics_of_an_unnamed_tensor_have_all_of_their_brackets():
    rows = "y = \\gamma \\odot layernorm(x)\tx [B, D], \\gamma [D]\ty [B, D]\n"
    made = sc.load("Computation\tInput\tOutput\n" + rows).communication("cut(D, 4)", phase="backward")
    assert "`mean(d(y))`, `mean(d(y) y)`" in made.steps[0].reason.text
