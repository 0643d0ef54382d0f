"""Makes the pictures of the documents, docs/images/*.png, from real runs.

    python scripts/screenshots.py                        from a quick run that it makes
    python scripts/screenshots.py --results DIR          from the newest run in DIR

It needs Chromium or Chrome (scripts/chromium.py finds it). Every picture has at most 150 KB.
"""

from __future__ import annotations

import argparse
import io
import os
import pty
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import chromium

from memory.benchmarking.model.files import DEFAULT_FOLDER, read_run, run_folders
from memory.benchmarking.results import BenchmarkResults

IMAGES = Path(__file__).parents[1] / "docs" / "images"
MOST_BYTES = 150_000
COLOURS = (256, 128, 64, 32)
"""Numbers of colours to try in turn, until the picture is small enough."""
MEMBENCH = (sys.executable, "-m", "memory.benchmarking.cli")
SHOWN_LINES = 44
"""Lines of the terminal's picture."""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--results", type=Path, metavar="DIR", help="a folder of results with complete runs"
    )
    parser.add_argument(
        "--only", action="append", metavar="NAME", help="these pictures only: report-light, …"
    )
    options = parser.parse_args()
    path = chromium.find()
    if path is None:
        print(
            "there is no Chromium or Chrome: python scripts/chromium.py tries to install it",
            file=sys.stderr,
        )
        return 1
    IMAGES.mkdir(parents=True, exist_ok=True)
    given = options.results and options.results.resolve()
    with tempfile.TemporaryDirectory() as scratch, chromium.started(path) as browser:
        # The default folder in an empty directory, so that no picture shows a path of this machine.
        os.chdir(scratch)
        if given:
            Path(DEFAULT_FOLDER).symlink_to(given, target_is_directory=True)
        else:
            make_runs()
        for name, picture in pictures(browser):
            if not options.only or name in options.only:
                save(picture(), IMAGES / f"{name}.png")
        os.chdir("/")
    return 0


def make_runs() -> None:
    """Make a small run of all benchmarks, and one with two targets to compare."""
    small = (*MEMBENCH, "run", "--profile", "quick", "--quiet")
    targets = ("--target", "agentmemory", "--target", "sqlite-baseline")
    subprocess.run([*small, "--rounds", "4"], check=True)
    subprocess.run(
        [*small, "--rounds", "3", "--category", "storage", "--category", "retrieval", *targets], check=True
    )


def pictures(browser: Any) -> Iterator[tuple[str, Any]]:
    """Yield each picture's name, and a function that takes it."""
    results = Path(DEFAULT_FOLDER)
    manager = BenchmarkResults(results)
    alone = newest(results, targets=1)
    assert alone is not None
    report = manager.generate_report(run=alone.name, path="report.html")
    yield "report-light", lambda: page(browser, report, height=1350)
    yield "report-charts", lambda: page(browser, report, at="#retrieval", height=690)
    yield "report-dark", lambda: page(browser, report, dark=True, at="#storage", height=1100)
    yield "report-narrow", lambda: page(browser, report, width=390, at="#retrieval", height=1000)
    yield "terminal", lambda: terminal(browser, ("results", "show", alone.name))
    yield "plot", lambda: plot(manager, alone)
    both = newest(results, targets=2)
    if both is not None:
        names = [f"{both.name}@{target}" for target in read_run(both).targets]
        comparison = manager.compare_report(names, path="comparison.html")
        yield "comparison", lambda: page(browser, comparison, height=1000)
    yield "view", lambda: view(browser)


def newest(results: Path, targets: int) -> Path | None:
    """Return the newest complete run with this number of targets."""
    for folder in reversed(run_folders(results)):
        run = read_run(folder)
        if run.status == "complete" and len(run.targets) == targets:
            return folder
    if targets == 1:
        raise SystemExit(f"{results} has no complete run of one target: leave out --results to make one")
    return None


# -- taking pictures --------------------------------------------------------------------------


@contextmanager
def opened(browser: Any, address: str, width: int, height: int, dark: bool) -> Iterator[Any]:
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if dark else "light",
        reduced_motion="reduce",
    )
    try:
        page = context.new_page()
        page.goto(address)
        yield page
    finally:
        context.close()


def page(
    browser: Any, path: Path, *, width: int = 1240, height: int, dark: bool = False, at: str = ""
) -> bytes:
    """Take a picture of a page, from the top or from the element `at`."""
    with opened(browser, path.resolve().as_uri(), width, height, dark) as opened_page:
        if at:
            opened_page.evaluate("(at) => document.querySelector(at).scrollIntoView()", at)
        return bytes(opened_page.screenshot())


def terminal(browser: Any, arguments: tuple[str, ...], columns: int = 104) -> bytes:
    """Take a picture of a command's terminal output, drawn by rich."""
    from rich.console import Console
    from rich.text import Text

    shown = on_a_terminal(arguments, columns).splitlines()
    start = next(
        (n for n, line in enumerate(shown) if "vector_search_latency" in line and "file" not in line), 0
    )
    text = "\n".join(shown[max(0, start) : start + SHOWN_LINES])
    console = Console(record=True, width=columns, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(f"$ membench results show\n…\n{text}"))
    html = console.export_html(
        inline_styles=True,
        code_format=(
            '<!doctype html><meta charset="utf-8"><body style="margin:0;background:#16181d">'
            '<pre style="margin:0;padding:18px 22px;color:#e4e6ea;background:#16181d;width:max-content;'
            "font:14px/1.35 'DejaVu Sans Mono',Menlo,Consolas,monospace\">{code}</pre>"
        ),
    )
    context = browser.new_context(viewport={"width": 1100, "height": 800})
    try:
        page = context.new_page()
        page.set_content(html)
        return bytes(page.locator("pre").screenshot())
    finally:
        context.close()


def on_a_terminal(arguments: tuple[str, ...], columns: int) -> str:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(columns)}
    environment.pop("NO_COLOR", None)
    process = subprocess.Popen([*MEMBENCH, *arguments], env=environment, stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # the other side is closed
            break
        if not piece:
            break
        shown += piece
    os.close(ours)
    process.wait()
    return shown.decode().replace("\r\n", "\n")


def plot(manager: BenchmarkResults, run: Path) -> bytes:
    """Draw a Matplotlib figure."""
    files = [
        file for file in manager.list_results(run=run.name) if file.benchmark == "vector_search_latency"
    ]
    buffer = io.BytesIO()
    manager.plot_comparison(files, metric="p50_ms", x_axis="size").savefig(buffer, format="png", dpi=150)
    return buffer.getvalue()


def view(browser: Any) -> bytes:
    """Take a picture of the first page of `membench view`."""
    command = [*MEMBENCH, "view", "--no-open"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        link = process.stdout.readline().split()[-1]
        with opened(browser, link, 1240, 620, dark=False) as opened_page:
            return bytes(opened_page.screenshot())
    finally:
        process.terminate()
        process.wait()


# -- small files ------------------------------------------------------------------------------


def save(data: bytes, path: Path) -> None:
    """Write a PNG with a palette of as many colours as the size limit allows."""
    from PIL import Image

    picture = Image.open(io.BytesIO(data)).convert("RGB")
    for colours in COLOURS:
        buffer = io.BytesIO()
        small = picture.quantize(colours, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
        small.save(buffer, format="png", optimize=True)
        if buffer.tell() <= MOST_BYTES:
            break
    else:
        raise SystemExit(f"{path.name} is {buffer.tell():,} bytes: show less in it")
    path.write_bytes(buffer.getvalue())
    print(f"{path.relative_to(IMAGES.parents[1])}  {buffer.tell() / 1000:.0f} KB, {colours} colours")


if __name__ == "__main__":
    sys.exit(main())
