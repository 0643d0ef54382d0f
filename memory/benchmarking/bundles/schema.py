"""The JSON Schemas of all files of a run and of a bundle: made from the records, shipped in `schemas/`.

`schemas/format-1/` is what version 0.2 wrote. A format that was released never changes; `make docs` writes
the newest one again, and a test compares it with the records.
"""

from __future__ import annotations

from importlib import resources
from typing import Any

import msgspec

from memory.benchmarking.bundles.manifest import Manifest, Signature
from memory.benchmarking.errors import UnknownName, nearest
from memory.benchmarking.model.answers import AnswersFile
from memory.benchmarking.model.records import FORMAT, Result, Run
from memory.benchmarking.model.rounds_file import RoundsFile
from memory.benchmarking.targets.environments import Lock

DIALECT = "https://json-schema.org/draft/2020-12/schema"
RECORDS: dict[str, tuple[type, str]] = {
    "run": (Run, "run.json of a run's folder"),
    "result": (Result, "<benchmark>_<timestamp>.json: the figures of one benchmark on one target"),
    "rounds": (RoundsFile, "*.rounds.json.gz, decompressed: what each round returned"),
    "answers": (AnswersFile, "*.answers.json.gz, decompressed: the answer to each question"),
    "lock": (Lock, "targets/*.lock.json of a bundle: what a target's environment contains"),
    "manifest": (Manifest, "manifest.json of a bundle"),
    "signature": (Signature, "signature.json of a bundle"),
}
"""By name: the record, and the file that it describes."""


def make_schema(name: str) -> dict[str, Any]:
    """Return the schema of the newest format, from the record itself."""
    record, what = RECORDS[name]
    schema = msgspec.json.schema(record)
    title = f"membench {name}, format {FORMAT}"
    return {
        "$schema": DIALECT,
        "$id": f"membench/format-{FORMAT}/{name}",
        "$comment": what,
        "title": title,
        **schema,
    }


def schema_text(name: str, format: int = FORMAT) -> str:
    """Return a schema as it is shipped with the package.

    Args:
        name: one of `RECORDS`.
        format: the version of the file format, 1 or newer.
    """
    if name not in RECORDS:
        raise UnknownName(f"there is no schema {name!r}: {nearest(name, RECORDS)}")
    folder = resources.files("memory.benchmarking") / "schemas" / f"format-{format}"
    file = folder / f"{name}.schema.json"
    if not file.is_file():
        raise UnknownName(f"there is no schema {name!r} of format {format}: the newest format is {FORMAT}")
    return file.read_text(encoding="utf-8")
