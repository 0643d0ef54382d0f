"""Measures `membench view` with many runs: first paint in a real browser, and the server's memory.

    make view-speed
    python scripts/view_speed.py --runs 1000 5000 --repeat 5

The script makes runs as large as real ones, and uses the browser of the browser tests. Several times for
each number of runs, it starts the view, opens it in a new profile, and filters the list. It prints medians.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import chromium
import psutil

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "benchmarking" / "support"))  # the tests' helpers make the runs

from many_runs import make_many_runs  # noqa: E402
from view_server import viewing  # noqa: E402

PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"
CASE = "/history?case=storage.write_throughput@agentmemory"


def main() -> int:
    parser = argparse.ArgumentParser(description="First paint and memory of `membench view`.")
    parser.add_argument("--runs", type=int, nargs="+", default=[1000, 5000])
    parser.add_argument("--repeat", type=int, default=5)
    arguments = parser.parse_args()
    path = chromium.find()
    if path is None:
        print("view_speed: no Chromium or Chrome is installed", file=sys.stderr)
        return 1
    print("| runs | first byte | first paint | filtered | history of 60 runs | memory | after 100 pages |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for count in arguments.runs:
        with tempfile.TemporaryDirectory() as folder, chromium.started(path) as browser:
            make_many_runs(Path(folder), count)
            rows = [_measure(browser, Path(folder)) for _ in range(arguments.repeat)]
        middle = [statistics.median(column) for column in zip(*rows, strict=True)]
        times = " | ".join(f"{value:,.0f} ms" for value in middle[:4])
        sizes = " | ".join(f"{value / 1e6:,.0f} MB" for value in middle[4:])
        print(f"| {count:,} | {times} | {sizes} |", flush=True)
    return 0


def _measure(browser: Any, folder: Path) -> list[float]:
    with viewing(folder) as view, _page(browser) as page:
        address = view.link.partition("/?")[0]
        page.goto(view.link)
        paint = _paint(page)
        answered = page.evaluate("performance.getEntriesByType('navigation')[0].responseStart")
        server = psutil.Process(view.process.pid)
        memory = server.memory_info().rss
        filtered = _filter(page)
        page.goto(address + CASE)
        history = _paint(page)
        for number in range(100):
            page.request.get(f"{address}/?page={number % 20 + 1}&text=storage")
        return [answered, paint, filtered, history, memory, server.memory_info().rss]


def _paint(page: Any) -> float:
    page.wait_for_function(f"() => ({PAINT}) !== null")
    return float(page.evaluate(PAINT))


def _filter(page: Any) -> float:
    """Return the milliseconds from typing to the filtered list."""
    start = time.perf_counter()
    page.fill("#text", "no such run")
    page.wait_for_function("() => document.querySelector('#count').textContent.startsWith('0 of')")
    return 1000 * (time.perf_counter() - start)


@contextmanager
def _page(browser: Any) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    try:
        yield context.new_page()
    finally:
        context.close()


if __name__ == "__main__":
    sys.exit(main())
