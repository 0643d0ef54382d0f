"""`membench baseline`: name runs, to compare later runs with them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from memory.benchmarking.commands.options import add_output_dir
from memory.benchmarking.errors import EXIT_FINE


def add_parser(subparsers: Any) -> None:
    """Add `baseline` and its subcommands."""
    baseline = subparsers.add_parser("baseline", help="give a run a name to compare later runs with")
    baseline.set_defaults(execute=execute)
    commands = baseline.add_subparsers(dest="baseline_command", required=True, metavar="COMMAND")

    def command(name: str, text: str) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text)
        add_output_dir(parser)
        return parser

    parser = command("set", "Copy a run and name the copy. Replaces a baseline of the same name.")
    parser.add_argument("name", metavar="NAME")
    parser.add_argument("run", nargs="?", metavar="RUN", help="run to copy (default: the newest)")
    parser = command("list", "List the baselines.")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser = command("show", "Show the figures of a baseline.")
    parser.add_argument("name", metavar="NAME")
    parser.add_argument("--all-metrics", action="store_true", help="list every figure with its interval")
    parser.add_argument("--metric", metavar="GLOB", help="only figures whose name or path matches")
    parser.add_argument("--json", action="store_true", help="print the stored records as JSON")
    parser = command("rm", "Delete a baseline. The run that it was copied from stays.")
    parser.add_argument("name", metavar="NAME")


def execute(arguments: argparse.Namespace) -> int:
    command = {"set": _set, "list": _list, "show": _show, "rm": _remove}
    return command[arguments.baseline_command](arguments)


def _set(arguments: argparse.Namespace) -> int:
    from memory.benchmarking.model.files import find_run
    from memory.benchmarking.text.display import clean
    from memory.benchmarking.verdicts.baselines import set_baseline
    from memory.benchmarking.verdicts.runs import newest_run

    output_dir = Path(arguments.output_dir)
    run = find_run(output_dir, arguments.run) if arguments.run else newest_run(output_dir)
    baseline = set_baseline(output_dir, arguments.name, run)
    print(clean(f"{baseline.name} is now {baseline.run_id}: membench compare --baseline {baseline.name}"))
    return EXIT_FINE


def _list(arguments: argparse.Namespace) -> int:
    from memory.benchmarking.model.files import encode_json, read_run
    from memory.benchmarking.report.run_facts import revision_text
    from memory.benchmarking.text.display import NOTHING, clean, table
    from memory.benchmarking.text.terminal import print_for_machines
    from memory.benchmarking.verdicts.baselines import baseline_folder, list_baselines

    output_dir = Path(arguments.output_dir)
    found = list_baselines(output_dir)
    if arguments.json:
        print_for_machines(encode_json({"baselines": found}).decode())
        return EXIT_FINE
    if not found:
        print(clean(f"There are no baselines in {output_dir} yet. Set one: membench baseline set NAME"))
        return EXIT_FINE
    rows = []
    for baseline in found:
        run = read_run(baseline_folder(output_dir, baseline.name))
        facts = (baseline.set_at[:16].replace("T", " "), run.profile, str(len(run.results)))
        rows.append((baseline.name, baseline.run_id, *facts, revision_text(run) or NOTHING))
    print(table(rows, ("baseline", "run", "since", "profile", "benchmarks", "revision")))
    return EXIT_FINE


def _show(arguments: argparse.Namespace) -> int:
    from memory.benchmarking.commands.show import show
    from memory.benchmarking.verdicts.baselines import baseline_folder

    arguments.refs = [str(baseline_folder(Path(arguments.output_dir), arguments.name))]
    return show(arguments)


def _remove(arguments: argparse.Namespace) -> int:
    from memory.benchmarking.verdicts.baselines import remove_baseline

    remove_baseline(Path(arguments.output_dir), arguments.name)
    print(f"deleted {arguments.name}")
    return EXIT_FINE
