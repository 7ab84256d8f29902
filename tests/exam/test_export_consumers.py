"""Exports are held against schemas of our own writing and given to programs that others wrote.

The schemas (RELAX NG, tests/data/exports/*.rnc) need lxml and rnc2rng. The programs are not installed with symcomm:
``pip install text2qti qti-package-maker``; chromium, node, and a folder that QTI_CONSUMERS names after
``npm install --prefix FOLDER @citolab/qti-convert @citolab/qti-components``. What is missing is skipped, and said.
"""

from __future__ import annotations

import ast
import csv
import io
import json
import os
import re
import shutil
import subprocess
import zipfile
from dataclasses import replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import pytest
from api import EXPORTERS, DocumentError, Num, Power, Product, QuestionPart, Sym, draw_items, parse_template
from api import item_Item as Item
from api import problem_read_template as read_template
from hypothesis import given, settings
from test_exports import (
    INFO,
    QUIZ,
    by_hand,
    graded,
    maxima_worth,
    moodle,
    served,  # noqa: F401  (a fixture)
    texts,
    words,
)

DATA = Path(__file__).parents[1] / "data" / "exports"
MIDTERM = Path(__file__).parents[2] / "examples" / "midterm" / "midterm.md"


@cache
def drawn(name: str) -> tuple[Item, ...]:
    source = {"quiz": lambda: parse_template(QUIZ), "midterm": lambda: read_template(MIDTERM),
              "hostile": lambda: read_template(DATA / "hostile.md")}  # fmt: skip
    return draw_items(source[name](), "7", 2)


every_document = pytest.mark.parametrize(
    "document", ["quiz", "hostile", pytest.param("midterm", marks=pytest.mark.long)]
)


# -- schemas ----------------------------------------------------------------------------------------


@cache
def schema(name: str):
    etree = pytest.importorskip("lxml.etree", reason="schemas need lxml")
    rnc2rng = pytest.importorskip("rnc2rng", reason="schemas need rnc2rng")
    return etree.RelaxNG(etree.fromstring(rnc2rng.dumps(rnc2rng.load(str(DATA / f"{name}.rnc"))).encode()))


def faults(name: str, data: bytes) -> list[str]:
    rules = schema(name)
    from lxml import etree

    return [] if rules.validate(etree.fromstring(data)) else [str(line) for line in rules.error_log]


def schema_of(file: str) -> str:
    told = {"imsmanifest.xml": "manifest", "assessment_meta.xml": "canvas_meta", "symcomm_quiz.xml": "qti12"}
    return told.get(Path(file).name, "qti21")


@pytest.mark.few(5)
@every_document
@pytest.mark.parametrize("export", ["moodle", "stack", "qti12", "qti12-mathjax", "qti21"])
def test_every_file_of_an_export_keeps_its_schema(document, export):
    (data,) = EXPORTERS[export].files("A title & <more>", drawn(document)).values()
    if export in ("moodle", "stack"):
        assert not faults("moodle", data)
        return
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        files = [name for name in archive.namelist() if name.endswith(".xml")]
        assert len(files) == (3 if "12" in export else 2 + len(drawn(document)))
        for name in files:
            assert not faults(schema_of(name), archive.read(name)), name


@every_document
def test_every_folder_of_prairielearn_has_the_information_that_its_schema_wants(document):
    files = EXPORTERS["prairielearn"].files("A title & <more>", drawn(document))
    told = [json.loads(data) for name, data in files.items() if name.endswith("info.json")]
    assert len(told) == len({item.id for item in drawn(document)})
    for one in told:
        jsonschema.validate(one, INFO)
    assert len({one["uuid"] for one in told}) == len(told)


def test_the_schemas_take_what_the_systems_took_and_refuse_what_they_refused():
    for name in ("accepted_choice", "accepted_number"):
        assert not faults("qti21", (DATA / f"{name}.xml").read_bytes())
    assert not faults("moodle", (DATA / "stack.xml").read_bytes())
    item = (DATA / "accepted_number.xml").read_text()
    for good, bad in (("<p>(a)", '<p style="x">(a)'), ('tolerance="0.1 0.1"', 'tolerance="0.1"'),
                      ('expectedLength="10"', 'expectedLength="ten"'), ("<p>(b)", "<div>(b)<p>"),
                      ("<itemBody>", "<itemBody>text")):  # fmt: skip
        changed = item.replace(good, bad, 1).replace("<div>(b)<p>", '<ol start="3"><li>b</li></ol><p>')
        assert changed != item
        assert faults("qti21", changed.encode()), bad
    question = (DATA / "stack.xml").read_text()
    assert faults("moodle", question.replace(">AlgEquiv<", ">Algequiv<", 1).encode())


def test_a_list_that_begins_elsewhere_keeps_its_numbers_in_qti_2_1():
    item = by_hand("x")
    listed = '<ol start="3"><li>three</li><li><p>four</p></li></ol>'
    root = ElementTree.fromstring(_unzipped(replace(item, blocks=(listed, *item.blocks[1:])))["items/a_v0001.xml"])
    said = ["".join(node.itertext()) for node in root.iter() if node.tag.endswith("}li")]
    assert said == ["3. three", "4. four"]


def _unzipped(item: Item, export: str = "qti21") -> dict[str, bytes]:
    (data,) = EXPORTERS[export].files("Quiz", (item,)).values()
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


# -- relations --------------------------------------------------------------------------------------

D, N_H, H, B = (Sym(name) for name in ("D", "n_H", "H", "B"))


def with_relation() -> Item:
    """An item whose answer is 8 B D^2 where D = n_H H; a mistake forgets the square."""
    (part,) = by_hand("x", "symbolic").parts
    right = Product((Num(Fraction(8)), B, Power(D, Num(Fraction(2)))))
    wrong = replace(part.recognised[0], form=Product((Num(Fraction(8)), B, D)), value=None)
    part = replace(part, form=right, symbols=("B", "D", "n_H", "H"), recognised=(wrong,),
                   relations=(("D", Product((N_H, H))),))  # fmt: skip
    return replace(by_hand("x"), blocks=("<p>x</p>", part), media=())


def test_prairielearn_takes_an_answer_that_is_equal_where_relations_hold(served):  # noqa: F811
    server = served(EXPORTERS["prairielearn"].files("Quiz", (with_relation(),)), "a")

    def given(text: str) -> tuple[object, object]:
        told = {"_type": "sympy", "_value": text, "_variables": ["B", "D", "n_H", "H"]}
        data = graded(server, 0, told)
        return data["score"], words(data["feedback"].get("a1", ""))

    for right in ("8*B*D**2", "8*B*n_H**2*H**2", "8*B*D*n_H*H", "B*(2*n_H*H)*(4*D)"):
        assert given(right) == (1.0, "")
    for wrong in ("8*B*D", "8*B*H*n_H"):
        assert given(wrong) == (0.5, "x")
    for other in ("8*B*n_H**2", "8*B*D**2*H", "0", "B"):
        assert given(other) == (0, "")


def test_stack_takes_an_answer_that_is_equal_where_relations_hold():
    question = next(q for q in moodle((with_relation(),), "stack") if q.get("type") == "stack")
    put = question.findtext("prt/feedbackvariables/text")
    assert put.startswith("given1:subst([")
    assert put.endswith(",D=(n_H*H)],ans1);")  # after what runs of letters stand for: BD is B*D
    nodes = question.findall("prt/node")
    assert {node.findtext("sans") for node in nodes} == {"given1"}
    values = {"B": 3, "n_H": 5, "H": 7}
    for node, worth in zip(nodes, (8 * 3 * 35**2, 8 * 3 * 35), strict=True):
        assert maxima_worth(node.findtext("tans"), values) == worth
    tested = [test.findtext("testinput/value") for test in question.findall("qtest")]
    assert [maxima_worth(text, {**values, "D": 35}) for text in tested] == [8 * 3 * 35**2, 8 * 3 * 35]


def test_a_document_gives_its_relations_to_the_questions_they_are_about():
    item = next(item for item in drawn("quiz") if item.kind == "symbolic")
    assert not item.parts[0].relations
    found = {part.relations[0][0] for item in draw_items(parse_template(ATTENTION), "7", 1) for part in item.parts}
    assert found == {"D"}


ATTENTION = r"""---
title: Heads
draw: {k: {powers_of: 2, from: 2, to: 16}}
---

| Computation | Input | Output |
|---|---|---|
| $Q = xW^Q$ | $x \in \mathbb{R}^{B \times L \times D}, W^Q \in \mathbb{R}^{D \times D}$ | $Q \in \mathbb{R}^{B \times L \times D}$ |
| $[Q_1, Q_2, \dots, Q_{n_H}] = \text{Partition}_{-1}(Q)$ | $Q \in \mathbb{R}^{B \times L \times D}$ | $Q_i \in \mathbb{R}^{B \times L \times H}, i = 1, \dots, n_H$ |

```symcomm
model: m
```

# Parameters (5 points)

Of {{ k }}.

```symcomm
ask: parameters
model: m
```
"""  # noqa: E501


# -- hostile texts ----------------------------------------------------------------------------------


def _is_refused(item: Item) -> bool:
    try:
        item.check()
    except DocumentError as error:
        assert re.search(r"^a, variant 1: the character U\+[0-9A-F]{4}", str(error))  # noqa: PT017  (where it is)
        return True
    return False


@given(texts)
@settings(max_examples=25)
def test_hostile_texts_arrive_in_stack(text):
    if _is_refused(by_hand(text)):
        return
    for kind in ("numeric", "symbolic", "choice"):
        (_, question) = moodle((by_hand(text, kind),), "stack")
        body = question.findtext("questiontext/text")
        assert words(body).startswith(text)
        assert [order for order in re.findall(r"\[\[(\w+)", body) if order not in ("input", "validation")] == []
        assert re.findall(r"\[\[(?:input|validation):(\w+)\]\]", body) == ["ans1", "ans1"]
        assert "{@" not in body and "{#" not in body  # noqa: PT018
        if kind == "choice":
            maxima = question.findtext("questionvariables/text")
            assert words(_strings(maxima)[0]) == text
        else:
            assert words(question.findall("prt/node")[1].findtext("truefeedback/text")) == text


def _strings(maxima: str) -> list[str]:
    return [re.sub(r"\\(.)", r"\1", one, flags=re.DOTALL)
            for one in re.findall(r'"((?:\\.|[^"\\])*)"', maxima, re.DOTALL)]  # fmt: skip


@given(texts)
@settings(max_examples=25)
def test_hostile_texts_arrive_in_prairielearn(text):
    if _is_refused(by_hand(text)):
        return
    for kind in ("numeric", "symbolic", "choice"):
        files = EXPORTERS["prairielearn"].files(text, (by_hand(text, kind),))
        folder = next(name.rsplit("/", 1)[0] for name in files if name.endswith("info.json"))
        told = json.loads(files[f"{folder}/info.json"])
        jsonschema.validate(told, INFO)
        assert told["title"] == (text or "x")
        tree = ast.parse(files[f"{folder}/server.py"])  # text cannot leave its string
        (variants,) = (node.value for node in tree.body if isinstance(node, ast.Assign) and
                       getattr(node.targets[0], "id", "") == "VARIANTS")  # fmt: skip
        (variant,) = (json.loads(one.value) for one in variants.generators[0].iter.elts)
        assert words(variant["params"]["text0"]).startswith(text)
        known = variant["params"]["options1"] if kind == "choice" else variant["params"]["recognised"]["a1"]
        assert text in [words(one["feedback"]) for one in known]
        page = files[f"{folder}/question.html"].decode()
        assert not text.strip() or len(text) < 9 or text not in page  # it is no template of the author's


@given(texts)
@settings(max_examples=25)
def test_hostile_texts_arrive_in_the_outline_and_no_cell_is_a_formula(text):
    if _is_refused(by_hand(text)):
        return
    for kind in ("numeric", "choice"):
        data = EXPORTERS["gradescope"].files("Quiz", (by_hand(text, kind),))["gradescope.csv"].decode()
        (row,) = csv.DictReader(io.StringIO(data, newline=""))
        assert " ".join(row["title"].lstrip("'").split()) == " ".join((text or "x").lstrip("'").split())
        assert not [cell for cell in row.values() if cell[:1] in ("=", "+", "-", "@", "\t", "\r")]
        assert " ".join(text.split()) in row["rubric" if kind == "numeric" else "answer"] + " "


# -- other people's programs ------------------------------------------------------------------------


@pytest.mark.long
@every_document
@pytest.mark.parametrize("export", ["qti12-mathjax", "qti21"])
def test_another_package_maker_finds_every_reference_in_its_package(document, export, tmp_path):
    integrity = pytest.importorskip(
        "qti_package_maker.common.package_integrity", reason="pip install qti-package-maker"
    )
    (data,) = EXPORTERS[export].files("Quiz", drawn(document)).values()
    (tmp_path / "quiz.zip").write_bytes(data)
    assert integrity.check_package(str(tmp_path / "quiz.zip")) == []


@pytest.mark.long
def test_the_schema_of_canvas_takes_what_text2qti_writes(tmp_path):
    pytest.importorskip("text2qti", reason="pip install text2qti")
    from text2qti.config import Config
    from text2qti.qti import QTI
    from text2qti.quiz import Quiz

    text = "Quiz title: T\n1. 2+3?\na) 6\n*c) 5\n2. How many?\n= 1.4142 +- 0.0001\n3. Explain.\n____\n"
    QTI(Quiz(text, config=Config())).save(str(tmp_path / "t.zip"))
    with zipfile.ZipFile(tmp_path / "t.zip") as archive:
        (name,) = (n for n in archive.namelist() if "meta" not in n and "manifest" not in n and n.endswith(".xml"))
        assert not faults("qti12", archive.read(name))
        assert not faults("manifest", archive.read("imsmanifest.xml"))


def node_folder() -> Path:
    """Where @citolab's programs are; skips the test where there are none, or no browser."""
    folder = Path(os.environ.get("QTI_CONSUMERS", "/nowhere"))
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if not (folder / "node_modules/@citolab/qti-components").exists() or not shutil.which("node") or not browser:
        pytest.skip("QTI_CONSUMERS names no folder with @citolab/qti-convert and qti-components, or there is no "
                    "node or chromium")  # fmt: skip
    return folder


ENGINE = """<!DOCTYPE html><html><head><meta charset="utf-8"><script src="CODE"></script></head><body>
<div id="all"></div><pre id="out"></pre><script>
const given = GIVEN;
const sleep = ms => new Promise(done => setTimeout(done, ms));
const find = node => { for (const one of [node, ...node.querySelectorAll('*')]) {
  if (one.tagName === 'QTI-ASSESSMENT-ITEM') return one;
  const inside = one.shadowRoot && find(one.shadowRoot); if (inside) return inside; } };
const type = (field, value) => { const input = field.shadowRoot.querySelector('input, textarea');
  input.value = value; for (const kind of ['input', 'keyup', 'change'])
    input.dispatchEvent(new Event(kind, {bubbles: true})); };
(async () => { const out = []; try { for (const {xml, cases} of given) {
  const all = document.getElementById('all');
  const results = []; let shown = {};
  for (const answers of cases) {
    all.innerHTML = '<qti-item><item-container></item-container></qti-item>';
    await sleep(100); all.querySelector('item-container').itemXML = xml;
    let item; while (!(item = find(all))) await sleep(5);
    await sleep(100);
    for (const [name, value] of Object.entries(answers)) {
      const field = item.querySelector(`[response-identifier="${name}"]`);
      if (field.tagName === 'QTI-CHOICE-INTERACTION') item.querySelector(`[identifier="${value}"]`).click();
      else type(field, value);
    }
    await sleep(10); item.processResponse(); await sleep(10);
    const value = name => (item.variables.find(v => v.identifier === name) || {}).value;
    results.push({score: Number(value('SCORE')), shown: [...item.querySelectorAll('qti-modal-feedback')]
      .filter(f => f.showStatus === 'on').map(f => f.getAttribute('outcome-identifier') + f.identifier)});
    const wide = node => node.getBoundingClientRect().width > 0;
    const body = item.querySelector('qti-item-body');
    shown = {maths: [...item.querySelectorAll('qti-item-body math')]
      .filter(node => !node.closest('qti-rubric-block')).every(wide), height: body.getBoundingClientRect().height,
             pictures: [...item.querySelectorAll('img')].length};
  }
  out.push({results, shown}); } } catch (error) { out.push(String(error) + error.stack); }
  document.getElementById('out').textContent = JSON.stringify(out);
})();
</script></body></html>"""


@pytest.mark.long
@every_document
def test_a_qti_engine_in_a_browser_renders_and_scores_each_item_as_drawn(document, tmp_path):
    folder, items = node_folder(), drawn(document)[::2]
    (data,) = EXPORTERS["qti21"].files("Quiz", drawn(document)).values()
    (tmp_path / "quiz.zip").write_bytes(data)
    convert = folder / "node_modules/@citolab/qti-convert/dist/qti-convert-pkg.mjs"
    run = subprocess.run(["node", str(convert), "quiz.zip"], cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert (tmp_path / "quiz-qti3.zip").exists(), run.stdout + run.stderr
    with zipfile.ZipFile(tmp_path / "quiz-qti3.zip") as archive:
        converted = {item.name: archive.read(f"items/{item.name}.xml").decode() for item in items}
    cases = [(item, [*_cases(item)]) for item in items]
    told = [{"xml": converted[item.name], "cases": [answers for answers, _, _ in some]} for item, some in cases]
    code = folder / "node_modules/@citolab/qti-components/cdn/index.global.js"
    page = ENGINE.replace("CODE", code.as_uri()).replace("GIVEN", json.dumps(told).replace("</", "<\\/"))
    (tmp_path / "page.html").write_text(page)
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    seen = subprocess.run(
        [browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files",
         f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=600000", "--dump-dom",
         (tmp_path / "page.html").as_uri()], capture_output=True, text=True, timeout=280,
    )  # fmt: skip
    found = re.search(r'<pre id="out">(.*?)</pre>', seen.stdout, re.DOTALL)
    made = json.loads(words(found[1]))
    assert len(made) == len(items), made[-1]
    for (item, some), one in zip(cases, made, strict=True):
        assert one["shown"]["maths"] and one["shown"]["height"] > 50  # noqa: PT018
        assert one["shown"]["pictures"] == len(item.media)
        for (answers, score, feedback), result in zip(some, one["results"], strict=True):
            assert result["score"] == pytest.approx(float(score), abs=1e-4), (item.name, answers)
            assert {*result["shown"]} == {"WORKEDWORKED", *feedback}, (item.name, answers)


def _cases(item: Item):
    """Answers to an item, the points for them and the feedback that is shown."""
    rights = {f"R{n}": _right(part) for n, part in enumerate(item.parts, 1)}
    whole = sum((part.points for part in item.parts if part.kind != "symbolic"), Fraction(0))
    yield rights, whole, []
    yield {}, 0, []
    for n, part in enumerate(item.parts, 1):
        if part.kind == "numeric":
            yield {**rights, f"R{n}": repr(float(part.answer) * 1.3333)}, whole - part.points, []
            yield {**rights, f"R{n}": repr(float(part.answer) * 1.0005)}, whole, []
            for at, one in enumerate(part.recognised, 1):
                said = [f"FEEDBACK{n}F{at}"] if one.feedback else []
                yield {**rights, f"R{n}": part.number(one.value)}, whole - part.points * (1 - one.credit), said
        if part.kind == "choice":
            after = [option for option in part.options if not option.right]
            for at, option in enumerate(part.options, 1):
                if not option.right:
                    said = [f"FEEDBACK{n}F{after.index(option) + 1}"] if option.feedback else []
                    yield {**rights, f"R{n}": f"C{at}"}, whole - part.points * (1 - option.credit), said


def _right(part: QuestionPart) -> str:
    if part.kind == "numeric":
        return part.text
    return next((f"C{at}" for at, option in enumerate(part.options, 1) if option.right), "8 b h^2")
