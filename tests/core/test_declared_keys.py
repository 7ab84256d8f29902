"""A block that is declared once is read, refused and described as its record says."""

import pytest
from api import COUNT, TEXT, TEXTS, YES, DocumentError, dataclass, keyed, one_of, read_keys, schema_of, section_of
from api import keys_block as block
from api import keys_blocks as blocks


@dataclass(frozen=True)
class Inner:
    size: int | None = keyed("how large", COUNT)


@dataclass(frozen=True)
class Row:
    step: str = keyed("which", TEXT, needed=True)
    span: object = None


@dataclass(frozen=True)
class Outer:
    title: str = keyed("what it is called", TEXT, name="name", needed=True)
    tags: tuple[str, ...] = keyed("words", TEXTS)
    fit: str = keyed("how well", one_of(("good", "fair")), default="fair")
    shown: bool = keyed("whether it is seen", YES)
    inner: Inner = keyed("a part", block(Inner, "the part"))
    rows: tuple[Row, ...] = keyed("lines", blocks(Row, "a row", "a list of rows", "a {step: P}"))
    other: int = 7


def read(text: str) -> Outer:
    return read_keys(Outer, section_of(text, "t.yaml", "this block"))


def test_a_row_of_a_record_is_read_by_its_name_with_its_default():
    made = read("name: a\ntags: one\nshown: Yes\ninner: {size: 3}\nrows: [{step: P}]")
    assert (made.title, made.tags, made.fit, made.shown, made.inner) == ("a", ("one",), "fair", True, Inner(3))
    assert [(row.step, row.span.word) for row in made.rows] == [("P", "P")]
    assert read("name: a") == Outer("a")
    assert read("name: a").inner == Inner()


def test_what_is_made_otherwise_is_not_read_and_what_is_missing_is_as_in_another_one():
    section = section_of("tags: [x]", "t.yaml")
    made = read_keys(Outer, section, (), Outer("known", ("y",), "good"), other=8)
    assert made == Outer("known", ("x",), "good", other=8)


REFUSED = [
    ("nmae: a", "nmae", "unknown key 'nmae' in this block", "did you mean 'name'?"),
    ("tags: a", "tags: a", "this block needs the key 'name'", ""),
    ("name: [a]", "[a]", "'name' must be text, but is a list", ""),
    ("name: a\nfit: god", "god", "'fit' is good or fair, not 'god'", "did you mean 'good'?"),
    ("name: a\nshown: Perhaps", "Perhaps", "'shown' is yes or no, not 'Perhaps'", ""),
    ("name: a\ninner: 3", "3", "'inner' must be a mapping, but is text", ""),
    ("name: a\ninner: {size: 3, szie: 4}", "szie", "unknown key 'szie' in the part", "did you mean 'size'?"),
    ("name: a\ninner: {size: -3}", "-3", "'size' must be a whole number, but is '-3'", ""),
    ("name: a\nrows: 3", "3", "'rows' must be a list of rows, but is text", ""),
    ("name: a\nrows: [3]", "3", "'rows' must be a {step: P}, but is text", ""),
    ("name: a\nrows: [{}]", "{}", "a row needs the key 'step'", ""),
]


@pytest.mark.parametrize(("text", "word", "said", "hint"), REFUSED, ids=[row[2] for row in REFUSED])
def test_what_the_record_does_not_say_is_refused_with_its_place(text: str, word: str, said: str, hint: str):
    with pytest.raises(DocumentError) as caught:
        read(text)
    assert (caught.value.message, caught.value.hint, caught.value.span.word) == (said, hint, word)


def test_the_schema_has_each_key_with_its_meaning():
    made = schema_of(Outer)
    assert made["required"] == ["name"]
    assert [*made["properties"]] == ["name", "tags", "fit", "shown", "inner", "rows"]
    assert made["properties"]["fit"] == {"description": "how well", "enum": ["good", "fair"]}
    assert made["properties"]["inner"]["properties"]["size"]["description"] == "how large"
    assert made["properties"]["rows"]["items"]["required"] == ["step"]
