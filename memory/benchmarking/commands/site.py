"""`membench site`: a static site of bundles."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from memory.benchmarking.errors import EXIT_BROKEN, EXIT_FINE

_EPILOG = """Bundles that are wrong are left out and named; the others are shown. Runs of different
machines, versions or profiles get leagues of their own. Serve the folder with any web server, or with
GitHub Pages: examples/ci/league-site.yml takes bundles by pull request.

exit codes: 0 every bundle is on the site, 2 a bundle is wrong and was left out, 1 bad input"""


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "site",
        help="build a static site of bundles: leagues by machine, systems, bundles",
        description="Verify all bundles of a folder, and build a static site of them.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", metavar="FOLDER", help="has the bundles, as *.zip")
    parser.add_argument("-o", "--output", required=True, metavar="OUT", help="folder of the site")
    text = "public keys in OpenSSH's form: show only bundles that one of them signed; may be repeated"
    parser.add_argument("--key", action="append", metavar="FILE", help=text)
    parser.set_defaults(execute=execute)


def execute(arguments: argparse.Namespace) -> int:
    from memory.benchmarking.bundles.signing import read_public_keys
    from memory.benchmarking.site.build import build_site
    from memory.benchmarking.text.display import clean

    trusted = None
    if arguments.key:
        trusted = {name for path in arguments.key for name in read_public_keys(Path(path))}
    site = build_site(Path(arguments.folder), Path(arguments.output), trusted)
    for bundle in site.refused:
        for problem in bundle.found.problems:
            print(clean(f"left out: {bundle.path}: {problem}"), file=sys.stderr)
    shown = len(site.bundles) - len(site.refused)
    print(clean(f"{Path(arguments.output) / 'index.html'}: {shown} bundles, {len(site.groups)} leagues"))
    return EXIT_BROKEN if site.refused else EXIT_FINE
