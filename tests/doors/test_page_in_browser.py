"""The page that runs symcomm in a browser, driven in headless Chromium; its folder is named by PAGE_FOLDER.

python site/browser.py -o out/page
PAGE_FOLDER=out/page pytest tests/doors/test_page_in_browser.py
"""

import os
import shutil
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from api import patience as patience_module

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium")
FOLDER = os.environ.get("PAGE_FOLDER", "")


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        """Nothing is printed for a request."""


@pytest.fixture(scope="module")
def page() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    if not FOLDER or not CHROMIUM:
        pytest.skip("PAGE_FOLDER names no built page, or there is no chromium")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(Path(FOLDER).resolve())))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with sync_api.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        made = browser.new_page(viewport={"width": 390, "height": 844})
        made.requested = []
        made.on("request", lambda request: made.requested.append(request.url))
        made.home = f"http://127.0.0.1:{server.server_port}/index.html"
        made.goto(made.home)
        seen(made, "#state", "Ready")
        yield made
        browser.close()
    server.shutdown()


def seen(page: Any, where: str, words: str) -> str:
    """Waits for words; the page's policy forbids playwright's own way to wait."""
    for _ in range(600):
        if words in (text := page.inner_text(where)):
            return str(text)
        page.wait_for_timeout(200)
    raise AssertionError(page.inner_text(where))


def test_an_answer_is_checked_and_a_wrong_one_does_not_get_the_answer(page: Any):
    page.fill("#answer", "16 N D^2")
    page.press("#answer", "Enter")
    assert seen(page, "#verdict", "right") == "right"
    page.fill("#answer", "8 N D^2")
    page.press("#answer", "Enter")
    told = seen(page, "#verdict", "mistake")
    assert "16" not in told
    assert "1.611" not in told


@pytest.mark.parametrize("answer", ["9^9^9^9^9", "(" * 400, "__import__('os')", "<img src=x onerror=alert(1)>", ""])
def test_a_hostile_answer_gets_words(page: Any, answer: str):
    page.fill("#answer", answer)
    page.press("#answer", "Enter")
    assert seen(page, "#verdict", "re")
    assert page.locator("#verdict img").count() == 0


def test_a_table_and_a_strategy_give_a_derivation(page: Any):
    """All weights, 8 D^2 of them with 2 bytes each."""
    page.click("#deriving button:not([type])")
    assert "16" in seen(page, "#derivation", "D")
    page.fill("#strategy", "tensro(8)")
    page.press("#strategy", "Enter")
    assert "tensor" in seen(page, "#derivation", "hint")


def test_a_link_brings_back_what_was_typed_and_a_damaged_one_is_told(page: Any):
    page.fill("#strategy", "tensor(4)")
    page.click("#share")
    link = page.evaluate("location.href")
    page.goto("about:blank")
    page.goto(link)
    seen(page, "#state", "Ready")
    assert page.input_value("#strategy") == "tensor(4)"
    page.goto("about:blank")
    page.goto(page.home + "#%7Bdamaged")
    seen(page, "#state", "Ready")
    assert "The link is damaged" in page.inner_text("#derivation")


def test_a_long_table_is_told_and_a_phone_needs_no_sideways_scroll(page: Any):
    page.fill("#table", "x" * 200_001)
    page.press("#strategy", "Enter")
    assert "more than 200,000 characters" in seen(page, "#derivation", "characters")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_nothing_is_asked_of_another_host(page: Any):
    assert page.requested
    assert all(url.startswith(page.home.rpartition("/")[0]) or url == "about:blank" for url in page.requested)


def test_a_machine_without_threads_works_without_a_limit(monkeypatch: pytest.MonkeyPatch):
    def start(self: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    with patience_module.limited(1):
        assert sum(range(10)) == 45
