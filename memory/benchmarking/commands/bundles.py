"""`membench results bundle`, `verify` and `schema`: results that a stranger can check."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memory.benchmarking.errors import EXIT_BROKEN, EXIT_FINE

if TYPE_CHECKING:
    from memory.benchmarking.bundles.verify import Verification

SCHEMAS = ("run", "result", "rounds", "answers", "lock", "manifest", "signature")
"""The keys of `bundles.schema.RECORDS`, repeated here because `--help` must not import that module."""

_VERIFY = """exit codes: 0 nothing was changed and every figure follows from its data, 2 something is wrong,
1 the file can't be read. A bundle can be made by anybody: a signature and --key say by whom."""


def add_parsers(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the three subcommands. `command` makes the parser of one."""
    parser = command(
        "bundle",
        "Pack runs into one file that others can verify (default: the latest run).",
        runs="RUN",
    )
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="the bundle, such as run.zip")
    parser.add_argument("--sign", metavar="KEY", help="sign it with this Ed25519 key, as ~/.ssh/id_ed25519")
    parser.add_argument("--with-names", action="store_true", help="keep names of user, host and folders")
    text = "keep the texts of the questions of data sets (default: digests of them)"
    parser.add_argument("--with-texts", action="store_true", help=text)

    parser = command(
        "verify",
        "Check bundles: their bytes, their schema, and every figure, computed again.",
        folder=False,
    )
    parser.epilog = _VERIFY
    parser.add_argument("bundles", nargs="+", metavar="FILE", help="a bundle")
    text = "public keys in OpenSSH's form; the bundle has to be signed by one of them; may be repeated"
    parser.add_argument("--key", action="append", metavar="FILE", help=text)
    parser.add_argument("--json", action="store_true", help="print what was found as JSON")

    parser = command("schema", "Print the JSON Schema of a file that a run writes.", folder=False)
    parser.add_argument("name", choices=SCHEMAS, help="which file")
    parser.add_argument(
        "--format", type=int, metavar="N", help="version of the format (default: the newest)"
    )


def bundle(arguments: argparse.Namespace) -> int:
    """Write a bundle and print its path."""
    import getpass

    from memory.benchmarking.bundles.write import make_bundle
    from memory.benchmarking.model.files import find_run, write_whole
    from memory.benchmarking.results import BenchmarkResults

    folder = BenchmarkResults(arguments.output_dir).output_dir
    data = make_bundle(
        [find_run(folder, name) for name in arguments.refs or ["latest"]],
        with_names=arguments.with_names,
        with_texts=arguments.with_texts,
        key_file=Path(arguments.sign).expanduser() if arguments.sign else None,
        ask=getpass.getpass,
    )
    write_whole(Path(arguments.output), data)
    print(arguments.output)
    return EXIT_FINE


def verify(arguments: argparse.Namespace) -> int:
    """Check bundles; the exit code is 2 if one is wrong."""
    from memory.benchmarking.bundles.signing import read_public_keys
    from memory.benchmarking.bundles.verify import verify_bundle

    trusted = None
    if arguments.key:
        trusted = {name for path in arguments.key for name in read_public_keys(Path(path))}
    found = {path: verify_bundle(Path(path), trusted) for path in arguments.bundles}
    if arguments.json:
        print(
            json.dumps({path: _as_json(each) for path, each in found.items()}, indent=1, ensure_ascii=False)
        )
    else:
        for path, each in found.items():
            _print(path, each)
    return EXIT_FINE if all(each.is_right for each in found.values()) else EXIT_BROKEN


def _as_json(found: Verification) -> dict[str, Any]:
    counts = found.counts
    return {
        "verified": found.is_right,
        "problems": [{"file": each.file, "what": each.what} for each in found.problems],
        "files": found.files,
        "from_samples": counts.from_samples,
        "from_answers": counts.from_answers,
        "from_rounds": counts.from_rounds,
        "signed_by": found.signed_by,
        "notes": found.notes,
    }


def _print(path: str, found: Verification) -> None:
    from memory.benchmarking.text.display import clean

    for problem in found.problems:
        print(clean(f"{path}: {problem}"), file=sys.stderr)
    for note in found.notes:
        print(clean(f"{path}: {note}"), file=sys.stderr)
    if not found.is_right:
        count = len(found.problems)
        print(clean(f"{path}: NOT VERIFIED, {count} problem{'s' if count > 1 else ''}"))
        return
    counts = found.counts
    by = f"signed by {found.signed_by}" if found.signed_by else "not signed"
    print(
        clean(
            f"{path}: verified, {by}: {found.files} files as bundled; computed again: "
            f"{counts.from_rounds:,} figures over rounds, {counts.from_samples:,} from raw samples, "
            f"{counts.from_answers:,} from answers"
        )
    )


def schema(arguments: argparse.Namespace) -> int:
    """Print a schema."""
    from memory.benchmarking.bundles.schema import schema_text
    from memory.benchmarking.model.records import FORMAT
    from memory.benchmarking.text.terminal import print_for_machines

    print_for_machines(
        schema_text(arguments.name, FORMAT if arguments.format is None else arguments.format)
    )
    return EXIT_FINE
