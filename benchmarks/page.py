"""Times the page in the browser, as medians of several openings: ``python benchmarks/page.py out/page``.

``symcomm serve --build -o out/page`` makes the page; playwright (``pip install 'playwright>=1.57,<1.61'``) drives the
installed Chromium, which begins anew for each opening. The first verdict is asked for at once; the later ones come
after a student's pause, in which the page derives the mistakes. Exit status 1 where a limit is broken.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import threading
import time
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from symcomm.cli.serve import server

LIMITS = {"first verdict": 5.0, "later, right": 0.05, "later, a known mistake": 0.05, "later, not right": 0.05}
LATER = {"later, right": "2^4 N D^2", "later, a known mistake": "8 N D^2", "later, not right": "17 D N"}
PAUSE = 2.0  # seconds that a student reads
ANSWERED = """async (answer) => {
  const verdict = document.getElementById("verdict"), field = document.getElementById("answer");
  verdict.replaceChildren();
  const done = new Promise((resolve) => new MutationObserver(resolve).observe(verdict, { childList: true }));
  field.value = answer;
  const start = performance.now();
  field.form.requestSubmit();
  await done;
  return (performance.now() - start) / 1000;
}"""


def opening(play: Any, program: str, home: str) -> dict[str, float]:
    """The seconds of one opening in a browser that has kept nothing, with the processor time until it is ready."""
    browser = play.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"], timeout=150_000)
    page = browser.new_page(locale="en-GB")
    before, start = processor(), time.perf_counter()
    page.goto(home)
    while page.locator("#checking button").is_disabled():
        time.sleep(0.01)
    found = {"ready": time.perf_counter() - start}
    page.evaluate(ANSWERED, "16 N D^2")
    found["first verdict"] = time.perf_counter() - start
    found["first verdict, processor"] = processor() - before
    time.sleep(PAUSE)
    found |= {name: page.evaluate(ANSWERED, answer) for name, answer in LATER.items()}
    browser.close()
    return found


def processor() -> float:
    """The processor time of all processes below this one, in seconds."""
    children: dict[int, list[tuple[int, int]]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append((int(stat.parent.name), int(fields[11]) + int(fields[12])))
    waiting, ticks = [os.getpid()], 0
    while waiting:
        for child, spent in children.get(waiting.pop(), ()):
            waiting.append(child)
            ticks += spent
    return ticks / os.sysconf("SC_CLK_TCK")


def main() -> int:
    """Prints the table."""
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page", type=Path, help="the folder that `symcomm serve --build` wrote")
    parser.add_argument("--openings", type=int, default=5)
    asked = parser.parse_args()
    program = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if program is None or not (asked.page / "built.json").is_file():
        print("it needs Chromium (CHROMIUM names it) and a built page", file=sys.stderr)
        return 2
    with server(asked.page, 0) as running, sync_playwright() as play:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        home = f"http://127.0.0.1:{running.server_port}/"
        times = [opening(play, program, home) for _ in range(asked.openings)]
        running.shutdown()
    table = Table("median of " + str(asked.openings), "seconds", "least", "limit")
    broken = False
    for name in times[0]:
        values, limit = [one[name] for one in times], LIMITS.get(name)
        broken |= limit is not None and median(values) > limit
        table.add_row(name, f"{median(values):.3f}", f"{min(values):.3f}", "" if limit is None else f"{limit:g}")
    Console().print(table)
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    return int(broken)


if __name__ == "__main__":
    sys.exit(main())
