"""Drawings of the op graph: rails in text, boxes in SVG."""

import re

import pytest
from api import Box, Drawing, Graph, RenderError, as_svg, rails
from api import core_drawing as drawing
from api import model_load as load


def boxes(names: str) -> tuple[Box, ...]:
    """``x y z``: a box a letter; capital letters are inputs."""
    return tuple(Box(n, n, "op", "D", "input" if n.isupper() else "function") for n in names.split())


def art(names: str, edges: str) -> list[str]:
    pairs = tuple((e[0], e[1], "") for e in edges.split())
    return [line.rsplit(f"  {name}", 1)[0].split("  " + name)[0].rstrip() for line, name in
            zip(rails(Drawing("", boxes(names), pairs)), names.split(), strict=True)]  # fmt: skip


def test_a_chain_is_one_rail():
    assert art("X a b", "Xa ab") == ["○", "●", "●"]


def test_a_tensor_read_twice_keeps_its_rail_until_its_last_reader():
    # X goes to a and b; both go to c
    assert art("X a b c", "Xa Xb ac bc") == ["○", "├─●", "● │", "●─╯"]


def test_a_rail_that_only_passes_is_not_joined():
    # a is read by d only, while b reads X and c reads b
    assert art("X a b c d", "Xa Xb bc ad cd") == ["○", "├─●", "● │", "● │", "●─╯"]


def test_two_inputs_stand_beside_each_other():
    assert art("X Y a", "Xa Ya") == ["○", "│ ○", "●─╯"]


def test_every_rail_that_starts_ends():
    lines = art("X Y a b c d e", "Xa Xb Yc ad bd ce de")
    assert sum(line.count("○") + line.count("●") for line in lines) == 7
    assert "│" not in lines[-1]


LINE = "y{0} = relu(x{0})\tx{0} [B, D]\ty{0} [B, D]"


def graph(rows: int) -> Graph:
    """Rows that have nothing to do with one another."""
    text = "\n".join(["Computation\tInput\tOutput", *(LINE.format(n) for n in range(rows))])
    return load(text, inputs=[f"x{n}" for n in range(rows)]).graph


def test_a_graph_too_large_for_a_picture_is_refused_with_another_way_to_draw_it():
    large = graph(201)
    with pytest.raises(RenderError, match="a picture of 402 ops cannot be read; at most 400") as caught:
        drawing.svg(large)
    assert caught.value.hint == "use --to dot and Graphviz, or --to text"
    assert drawing.dot(large).count("->") == 201


def test_parts_of_a_graph_that_do_not_hang_together_stand_side_by_side():
    picture = drawing.svg(graph(2))
    tops = re.findall(r'<text class="name" x="([\d.-]+)" y="([\d.-]+)">([xy]\d)<', picture)
    place = {name: (float(x), float(y)) for x, y, name in tops}
    assert place["x0"][1] == place["x1"][1]
    assert place["x0"][0] != place["x1"][0]
    assert place["y0"][1] > place["x0"][1]


def test_subscripts_and_superscripts_are_set_small_and_the_line_goes_on_where_it_was():
    levels = [int(n) for n in re.findall(r'dy="(-?\d+)"', as_svg._words("W_up^Q: n_H × D"))]
    assert sum(levels[:3]) == 0  # up, down, back for W_up^Q
    assert as_svg._words("W^1_e:").count("<tspan") == 3
    assert as_svg._words("a < b") == "a &lt; b"
