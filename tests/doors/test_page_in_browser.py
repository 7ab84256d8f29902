"""The page that runs symcomm in a browser, driven in headless Chromium and Firefox; its folder is named by PAGE_FOLDER.

symcomm serve --build -o out/page
PAGE_FOLDER=out/page pytest tests/doors/test_page_in_browser.py
"""

import json
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from api import TEMPLATES, server
from api import patience as patience_module

BROWSERS = {
    "chromium": os.environ.get("CHROMIUM") or shutil.which("chromium"),
    "firefox": os.environ.get("FIREFOX") or shutil.which("firefox-esr") or shutil.which("firefox"),
}
FOLDER = os.environ.get("PAGE_FOLDER", "")
EXAMPLES = Path(__file__).parents[2] / "examples"
WAIT = 150  # seconds for a busy machine


@pytest.fixture(scope="module")
def home() -> Iterator[str]:
    if not FOLDER:
        pytest.skip("PAGE_FOLDER names no built page")
    running = server(Path(FOLDER), 0)
    threading.Thread(target=running.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{running.server_port}/"
    running.shutdown()
    running.server_close()


@pytest.fixture(scope="module", params=BROWSERS)
def browser(request: pytest.FixtureRequest, home: str) -> Iterator[Any]:
    """An installed browser; playwright's own Firefox is not needed, as it speaks WebDriver BiDi with any."""
    program = BROWSERS[request.param]
    if not program:
        pytest.skip(f"there is no {request.param}")
    sync_api = pytest.importorskip("playwright.sync_api", reason="pip install 'playwright>=1.57,<1.61'")
    only = {"chromium": {"args": ["--no-sandbox", "--disable-gpu"]}, "firefox": {"channel": "moz-firefox"}}
    with sync_api.sync_playwright() as play:
        made = getattr(play, request.param).launch(executable_path=program, timeout=WAIT * 1000, **only[request.param])
        yield made
        made.close()


def opened(browser: Any, home: str, **options: Any) -> Any:
    """A page of a phone, in English, with the addresses that it asks for and its errors."""
    made = browser.new_page(**{"viewport": {"width": 390, "height": 844}, "locale": "en-GB", **options})
    made.set_default_timeout(WAIT * 1000)
    made.requested, made.errors = [], []
    made.on("request", lambda request: made.requested.append(request.url))
    made.on("pageerror", lambda error: made.errors.append(str(error)))
    return made


@pytest.fixture(scope="module")
def page(browser: Any, home: str) -> Iterator[Any]:
    made = opened(browser, home)
    made.goto(home)
    seen(made, "#state", "Ready")
    yield made
    assert made.errors == []


def seen(page: Any, where: str, words: str) -> str:
    """Waits for words; the page's policy forbids playwright's own way to wait."""
    for _ in range(WAIT * 10):
        if words in (text := page.inner_text(where)):
            return str(text)
        page.wait_for_timeout(100)
    raise AssertionError(page.inner_text(where))


def checked(page: Any, answer: str) -> str:
    """The verdict on an answer; an earlier one is taken away first."""
    page.evaluate("document.getElementById('verdict').replaceChildren()")
    page.fill("#answer", answer)
    page.press("#answer", "Enter")
    for _ in range(WAIT * 10):
        if text := page.inner_text("#verdict"):
            return str(text)
        page.wait_for_timeout(100)
    raise AssertionError(answer)


def test_an_answer_is_checked_and_a_wrong_one_does_not_get_the_answer(page: Any):
    assert checked(page, "16 N D^2").startswith("right\n\nRead as")
    told = checked(page, "8 N D^2")
    assert told.startswith("mistake\n\nYou counted elements")
    assert "16" not in told
    assert "1.611" not in told


HOSTILE = [
    "9^9^9^9^9", "(" * 400, "__import__('os')", "<img src=x onerror=alert(1)>", "D^900^2", "D^" + "9" * 400,
    "1/0", "0/0", "sqrt(" * 200, "+".join(f"D^{n}" for n in range(1100)), "\\frac{" * 90, "D" * 5000,
    "'; DROP TABLE x; --", "\u202e16 N D^2", "\x00", "𝟙𝟞ND²" * 300, "a/b" * 500, "{{7*7}}", "log(0)", "!" * 999,
]  # fmt: skip


@pytest.mark.parametrize("answer", HOSTILE)
def test_a_hostile_answer_gets_words(page: Any, answer: str):
    told = checked(page, answer)
    assert told.split("\n")[0] in ("I could not read this", "not accepted", "not right", "undecided", "mistake")
    assert "bug" not in told
    assert page.locator("#verdict img").count() == 0


def test_a_table_a_strategy_and_a_slider_give_formula_number_and_plot(page: Any):
    """ZeRO-1 of 8 D^2 weights: 4 bytes of weights and gradients each, and 12 of the optimizer shared by k ranks."""
    page.click("#deriving button")
    seen(page, "#number", "B")
    for name, value in (("D", 64), ("k", 4)):
        page.fill(f"#value-{name}", str(value))
        page.press(f"#value-{name}", "Enter")
    share = 8 * 64**2 * (4 + 12 // 4)
    seen(page, "#number", f"{share:,}".replace(",", "\u202f"))
    assert page.locator("#plot circle").count() > 5
    page.focus("#slide-k")
    page.keyboard.press("ArrowRight")
    assert page.input_value("#value-k") == "8"
    seen(page, "#number", f"{8 * 64**2 * 11 // 2:,}".replace(",", "\u202f"))
    assert "k = 8" in page.get_attribute("#slide-k", "aria-valuetext")
    assert "memory of the states over k: 1: " in page.get_attribute("#plot", "aria-label")


def test_a_misspelt_strategy_and_a_broken_table_are_told(page: Any):
    page.fill("#strategy", "tensro(8)")
    page.press("#strategy", "Enter")
    assert "tensor" in seen(page, "#derivation", "hint")
    assert not page.is_visible("#moving")
    page.fill("#strategy", "data(8)")
    page.fill("#table", "no table")
    page.click("#deriving button")
    seen(page, "#derivation", "table")
    page.fill("#table", '{"model_type": ')
    page.click("#deriving button")
    seen(page, "#derivation", "this is no JSON")


def test_a_table_of_10_megabytes_is_refused_and_stays(page: Any):
    page.evaluate("document.getElementById('table').value = 'x'.repeat(10e6)")
    page.press("#strategy", "Enter")
    assert "more than 200,000 characters" in seen(page, "#derivation", "characters")
    assert page.evaluate("document.getElementById('table').value.length") == 10**7


def test_a_phone_needs_no_sideways_scroll_and_every_field_has_a_label(page: Any):
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    bare = "[...document.querySelectorAll('input, select, textarea')].filter(e => !e.labels.length && !e.ariaLabel)"
    assert page.evaluate(f"{bare}.map(e => e.id)") == []


def test_the_page_speaks_german_and_chinese(page: Any):
    page.select_option("#language", "de")
    assert "richtig" in checked(page, "16 N D^2")
    assert "Hier sind Elemente gezählt" in checked(page, "8 N D^2")
    page.select_option("#language", "zh")
    assert checked(page, "16 N D^2").startswith("正确")
    assert page.evaluate("document.documentElement.lang") == "zh"
    page.select_option("#language", "en")


def test_the_words_of_the_page_are_there_in_each_language(page: Any):
    keys = page.evaluate(
        "import('./words.mjs').then(m => Object.values(m.WORDS).map(w => Object.keys(w).sort().join()))"
    )
    assert len(keys) == 3
    assert len(set(keys)) == 1


def test_a_link_brings_back_what_was_typed(page: Any, browser: Any, home: str):
    other = opened(browser, home)
    state = {"language": "de", "question": "1.2", "answer": "2 x", "strategy": "tensor(4)", "values": {"D": "128"},
             "quantity": "communication"}  # fmt: skip
    other.goto(f"{home}#{json.dumps(state).replace(' ', '%20')}")
    seen(other, "#state", "Bereit")
    assert [other.input_value(f"#{name}") for name in ("question", "answer", "strategy")] == ["1.2", "2 x", "tensor(4)"]
    seen(other, "#number", "B")
    assert other.input_value("#value-D") == "128"
    other.click("#share")
    assert "Link" in seen(other, "#shared", "Link")  # beside the button, where a reader looks
    assert json.loads(other.evaluate("decodeURIComponent(location.hash.slice(1))"))["values"]["D"] == "128"
    other.close()


@pytest.mark.parametrize(
    "fragment", ["%7Bdamaged", "%", "null", "7", '{"language":"xx"}', '{"table":{"a":1},"values":3}']
)
def test_a_damaged_link_is_told_and_the_page_works(page: Any, browser: Any, home: str, fragment: str):
    other = opened(browser, home)
    other.goto(f"{home}#{fragment}")
    seen(other, "#state", "loading")
    told = other.inner_text("#derivation")
    assert ("The link is damaged" in told) == ("values" not in fragment)
    assert other.input_value("#table").startswith("| Computation")
    assert other.errors == []
    other.close()


def test_a_browser_without_web_assembly_is_told(page: Any, browser: Any, home: str):
    other = opened(browser, home)
    other.add_init_script("delete window.WebAssembly")
    other.goto(home)
    assert "This browser cannot run the page" in seen(other, "#state", "browser")
    other.close()


def test_a_question_file_without_questions_is_told_and_the_rest_works(page: Any, browser: Any, home: str):
    other = opened(browser, home)
    other.route("**/questions.json", lambda route: route.fulfill(json={"notes.md": "# Notes\n"}))
    other.goto(home)
    seen(other, "#state", "Ready")
    assert "cannot be used" in other.inner_text("#verdict")
    assert not other.is_disabled("#deriving button")
    other.close()


@pytest.mark.parametrize(
    ("locale", "ready", "says"),
    [("en-GB", "Ready", "took longer than 20 s and was given up"),
     ("de-DE", "Bereit", "dauerte länger als 20 s und wurde abgebrochen"), ("zh-CN", "就绪", "计算超过 20 秒，已中止")],
)  # fmt: skip
def test_what_takes_longer_than_20_seconds_is_given_up_and_the_page_starts_again(
    page: Any, browser: Any, home: str, locale: str, ready: str, says: str
):
    other = opened(browser, home, locale=locale)
    other.clock.install()
    other.route("**/answers.py", lambda route: route.fulfill(body=SLEEPS))
    other.goto(home)
    seen(other, "#state", ready)
    other.fill("#answer", "16 N D^2")
    other.press("#answer", "Enter")
    other.clock.fast_forward(21_000)
    assert says in seen(other, "#verdict", "20 ")
    assert other.input_value("#answer") == "16 N D^2"
    seen(other, "#state", ready)
    other.close()


SLEEPS = """
import json, time
def call(name, arguments):
    if name != "open":
        time.sleep(600)
    return json.dumps([{"name": "1", "words": "1", "given": ""}])
"""


WORKED = """
_call = call
def call(name, arguments):
    if name != "worked":
        return _call(name, arguments)
    return json.dumps([as_html(DESK[0].key(*json.loads(arguments)).derivation, "en")])
"""
ASK = """async ([name, args]) => {
  const id = (window.asked = (window.asked ?? 0) + 1);
  window.other ??= new Worker("worker.mjs", { type: "module" });
  return await new Promise((done) => {
    window.other.addEventListener("message", ({ data }) => { if (data.id === id) done(data.result ?? data.broken); });
    window.other.postMessage({ id, name, args });
  });
}"""


@pytest.mark.long
def test_every_question_of_the_examples_is_answered_as_it_is_natively(
    browser: Any, home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Derivations byte for byte, and the verdicts on a wrong answer, one with a unit and one that is hostile."""
    examples = {path.relative_to(EXAMPLES).as_posix().replace("/", "--"): path for path in EXAMPLES.rglob("*.md")}
    asking = {name: path for name, path in examples.items() if "ask:" in path.read_text(encoding="utf-8")}
    sheets = {path.name: path for path in (EXAMPLES / "own-worksheet").glob("c*.md")}
    files = {name: path.read_text(encoding="utf-8") for name, path in {**asking, **sheets}.items()}
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    source = (TEMPLATES / "page" / "answers.py").read_text(encoding="utf-8") + WORKED
    native: dict[str, Any] = {"__name__": "page_answers"}
    exec(compile(source, "answers.py", "exec"), native)
    page = opened(browser, home)
    page.route("**/questions.json", lambda route: route.fulfill(json=files))
    page.route("**/answers.py", lambda route: route.fulfill(body=source))
    page.goto(home)
    seen(page, "#state", "Ready")
    count = 0
    for name in asking:
        questions = json.loads(native["call"]("open", json.dumps([name])))
        assert page.evaluate(ASK, ["open", [name]]) == questions
        for question in questions if isinstance(questions, list) else ():
            count += 1
            calls = [("check", [question["name"], answer, "en"]) for answer in ("8 D", "12.88 GB", "9^9^9")]
            for call in (("worked", [question["name"]]), *calls):
                assert page.evaluate(ASK, [*call]) == json.loads(native["call"](call[0], json.dumps(call[1]))), (
                    name,
                    call,
                )
    assert count >= 209
    assert not any(url.endswith("rest.bin") for url in page.requested)
    page.close()


def test_nothing_is_asked_of_another_host_and_less_than_20_megabytes_go_over_the_wire(page: Any, home: str):
    assert all(url.startswith((home, "data:")) for url in page.requested)
    asked = {url.removeprefix(home) or "index.html" for url in page.requested if url.startswith(home)}
    assert {"index.html", "memory.bin", "py/pyodide.asm.wasm", "symcomm.json"} <= asked
    assert asked.isdisjoint({"late.bin", "rest.bin"})
    asked.add("late.bin")  # which some questions need
    sent = [
        next(path for path in (Path(FOLDER) / f"{name}.gz", Path(FOLDER) / name) if path.is_file()) for name in asked
    ]
    assert sum(path.stat().st_size for path in sent) < 20e6


@pytest.mark.parametrize(
    ("imports", "rest"), [("import networkx, sympy.physics.units", []), ("import networkx, wave", ["rest.bin"])]
)
def test_what_few_questions_need_is_fetched_when_it_is_imported(
    page: Any, browser: Any, home: str, imports: str, rest: list[str]
):
    other = opened(browser, home)
    source = (Path(FOLDER) / "answers.py").read_text(encoding="utf-8")
    other.route(
        "**/answers.py",
        lambda route: route.fulfill(body=source.replace("import json\n", f"import json\n{imports}\n", 1)),
    )
    other.goto(home)
    seen(other, "#state", "Ready")
    fetched = [url.removeprefix(home) for url in other.requested if url.endswith(".bin")]
    assert fetched == ["memory.bin", "late.bin", *rest]
    other.close()


def test_a_machine_without_threads_works_without_a_limit(monkeypatch: pytest.MonkeyPatch):
    def start(self: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    with patience_module.limited(1):
        assert sum(range(10)) == 45
