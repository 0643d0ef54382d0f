"""`membench view`: the results as pages in a browser, on this machine only."""

from __future__ import annotations

import argparse
from typing import Any

from memory.benchmarking.errors import EXIT_FINE
from memory.benchmarking.model.files import DEFAULT_FOLDER

HIGHEST_PORT = 65535


def add_parser(subparsers: Any) -> None:
    text = "Look at the results in a browser: runs, comparisons, history; live while a run goes on."
    parser = subparsers.add_parser("view", help="look at the results in a browser", description=text)
    parser.add_argument(
        "--output-dir", default=DEFAULT_FOLDER, help=f"where the results are (default: {DEFAULT_FOLDER})"
    )
    parser.add_argument(
        "--port", type=_port, default=0, help="of the local server (default: any that is free)"
    )
    parser.add_argument("--no-open", action="store_true", help="print the link, and open no browser")
    parser.set_defaults(execute=execute)


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > HIGHEST_PORT:
        raise argparse.ArgumentTypeError(f"{text!r} is no port: use a number from 0 to {HIGHEST_PORT}")
    return int(text)


def execute(arguments: argparse.Namespace) -> int:
    """Serve until Ctrl-C, which is how it is meant to end: exit code 0."""
    import signal
    import threading

    from memory.benchmarking.results import BenchmarkResults
    from memory.benchmarking.view.server import ViewServer

    folder = BenchmarkResults(arguments.output_dir).output_dir
    with ViewServer(folder, arguments.port) as server:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            print(f"The results in {folder} are at {server.link}", flush=True)
            print("Ctrl-C ends it.", flush=True)
            # The first page need not wait for thousands of files.
            threading.Thread(target=server.app.index.lines, daemon=True).start()
            if not arguments.no_open:
                _open_browser(server.link)
            server.serve_forever()
        except KeyboardInterrupt:
            print()
    return EXIT_FINE


def _open_browser(link: str) -> None:
    """Where there is a screen: a browser inside of the terminal would take it away."""
    import os
    import sys
    import webbrowser

    if sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        webbrowser.open(link)
