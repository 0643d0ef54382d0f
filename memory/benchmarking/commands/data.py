"""`membench data`: download and check public data sets for the quality benchmarks."""

from __future__ import annotations

import argparse
from typing import Any

from memory.benchmarking.errors import EXIT_FINE


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "data",
        help="download public data sets for the quality benchmarks",
        description="Download and check public data sets for the quality benchmarks. "
        "The package contains none of them.",
        epilog="The environment variable MEMBENCH_DATA sets their folder (default: your cache folder).",
    )
    commands = parser.add_subparsers(dest="data_command", metavar="COMMAND", required=True)
    listing = commands.add_parser("list", help="list the data sets and which of them are downloaded")
    listing.set_defaults(execute=_list)
    fetching = commands.add_parser("fetch", help="download a data set and check its digest")
    fetching.add_argument("name", metavar="NAME", help="a name from `membench data list`")
    fetching.add_argument("--url", help="download from this mirror; the digest must be the same")
    fetching.set_defaults(execute=_fetch)
    checking = commands.add_parser("check", help="read a data set and print what it contains")
    checking.add_argument("data_set", help="a name, a file of LoCoMo or LongMemEval, or a BEIR folder")
    checking.set_defaults(execute=_check)


def _list(arguments: argparse.Namespace) -> int:
    from memory.benchmarking.text.display import table
    from memory.benchmarking.workloads.downloads import PUBLISHED, data_folder

    rows = [
        (each.name, each.size, each.licence, "downloaded" if (data_folder() / each.file).exists() else "")
        for each in PUBLISHED.values()
    ]
    print(table(rows, ("name", "size", "licence", "")))
    print(f"\nfolder: {data_folder()}\nfetch one: membench data fetch NAME")
    return EXIT_FINE


def _fetch(arguments: argparse.Namespace) -> int:
    from memory.benchmarking.workloads.downloads import fetch

    place = fetch(arguments.name, url=arguments.url)
    print(place)
    print(f"use it: membench run --category quality --set quality.data_sets=synthetic,{arguments.name}")
    return EXIT_FINE


def _check(arguments: argparse.Namespace) -> int:
    from collections import Counter

    from memory.benchmarking.workloads.datasets import load_data_set
    from memory.benchmarking.workloads.downloads import SCIFACT_JUDGEMENTS, resolve

    found = load_data_set(resolve(arguments.data_set))
    passages = sum(len(each.passages) for each in found.collections)
    categories = Counter(question.category for each in found.collections for question in each.questions)
    print(f"{found.name}: {found.form}, {len(found.collections)} collections, {passages:,} passages")
    for category, count in sorted(categories.items()):
        print(f"  {count:6,} questions  {category}")
    if found.judgements == SCIFACT_JUDGEMENTS:
        print("This is the complete SciFact, on which the quality metrics are checked.")
    print(f"SHA-256 {found.sha256}")
    return EXIT_FINE
