"""Writes the JSON Schemas of the newest file format into the package (memory/benchmarking/schemas/)."""

from __future__ import annotations

import json
from pathlib import Path

import memory.benchmarking
from memory.benchmarking.bundles.schema import RECORDS, make_schema
from memory.benchmarking.model.records import FORMAT


def main() -> None:
    folder = Path(memory.benchmarking.__path__[0]) / "schemas" / f"format-{FORMAT}"
    folder.mkdir(parents=True, exist_ok=True)
    for name in RECORDS:
        path = folder / f"{name}.schema.json"
        path.write_text(
            json.dumps(make_schema(name), indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
        )
        print(path)


if __name__ == "__main__":
    main()
