"""`membench view`: serve the results as web pages, to this machine only."""

from __future__ import annotations

import argparse
from typing import Any

from memory.benchmarking.commands.options import add_output_dir
from memory.benchmarking.errors import EXIT_FINE

HIGHEST_PORT = 65535


def add_parser(subparsers: Any) -> None:
    text = "Look at runs, comparisons and history in a browser. A run in progress updates by itself."
    parser = subparsers.add_parser("view", help="look at the results in a browser", description=text)
    add_output_dir(parser)
    parser.add_argument(
        "--port", type=_port, default=0, help="port of the local server (default: any free port)"
    )
    parser.add_argument("--no-open", action="store_true", help="print the link; do not open a browser")
    parser.set_defaults(execute=execute)


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > HIGHEST_PORT:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: use a number from 0 to {HIGHEST_PORT}")
    return int(text)


def execute(arguments: argparse.Namespace) -> int:
    """Serve until Ctrl-C, which is the normal end: exit code 0."""
    import signal
    import threading

    from memory.benchmarking.results import BenchmarkResults
    from memory.benchmarking.text.display import clean
    from memory.benchmarking.view.server import ViewServer

    folder = BenchmarkResults(arguments.output_dir).output_dir
    with ViewServer(folder, arguments.port) as server:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            print(clean(f"The results in {folder} are at {server.link}"), flush=True)
            print("Press Ctrl-C to stop.", flush=True)
            # Read the runs in advance, so that the first page does not wait for thousands of files.
            threading.Thread(target=server.app.index.lines, daemon=True).start()
            if not arguments.no_open:
                _open_browser(server.link)
            server.serve_forever()
        except KeyboardInterrupt:
            print()
    return EXIT_FINE


def _open_browser(link: str) -> None:
    """Open a browser if there is a display; a text browser would take over the terminal."""
    import os
    import sys
    import webbrowser

    if sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        webbrowser.open(link)
