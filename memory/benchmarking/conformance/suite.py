"""All checks, and the program that runs them in the target's interpreter.

    python -m memory.benchmarking.conformance.suite DESCRIPTOR TARGET FOLDER CHECK...

writes one JSON line before each check, `{"began": name}`, and its `Outcome` after it.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import msgspec

from memory.benchmarking.conformance import lasting, searching, storing
from memory.benchmarking.conformance.subject import Check

CHECKS = {check.name: check for check in map(Check, (*storing.CHECKS, *searching.CHECKS, *lasting.CHECKS))}


def main() -> None:
    events, target, folder = int(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    for name in sys.argv[4:]:
        os.write(events, msgspec.json.encode({"began": name}) + b"\n")
        outcome = CHECKS[name].run(target, folder / name)
        os.write(events, msgspec.json.encode(outcome) + b"\n")
        shutil.rmtree(folder / name, ignore_errors=True)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # threads that the target left must not keep this process alive


if __name__ == "__main__":
    main()
