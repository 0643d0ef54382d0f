"""Run all checks of `membench check` on targets with one fault each: `make promises`.

    python scripts/faults.py [FAULT...]

The faults are in faulty_targets.py and further_faults.py in tests/benchmarking/support/. Their tables say
which checks must call a promise broken; all others must not. A check that this machine can't try does not
count. Takes about 25 s a fault.

Exit code 0: every fault is found by its checks and by no others. Exit code 1: the lines say what differs.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from memory.benchmarking.promises.suite import all_checks, run_check

_SUPPORT = Path(__file__).parents[1] / "tests" / "benchmarking" / "support"
sys.path.insert(0, str(_SUPPORT))
import faulty_targets  # noqa: E402 - files of the tests
import further_faults  # noqa: E402

FOUND_BY = {**faulty_targets.FOUND_BY, **further_faults.FURTHER}
"""For each fault, the checks that must find it."""
_FILES = {
    **dict.fromkeys(faulty_targets.FOUND_BY, faulty_targets.__file__),
    **dict.fromkeys(further_faults.FURTHER, further_faults.__file__),
}


def broken_checks(fault: str) -> tuple[dict[str, str], set[str]]:
    """Return the evidence of each check that calls a promise broken, and the checks that were not tried."""
    found: dict[str, str] = {}
    not_tried: set[str] = set()
    with tempfile.TemporaryDirectory(prefix="faults-") as scratch:
        for check in all_checks().values():
            target = f"{_FILES[fault]}:{fault}"
            outcome = run_check(check, target, Path(scratch), "quick", seed=1)
            if outcome.status == "broken":
                found[check.name] = outcome.evidence
            elif outcome.status == "not tried":
                not_tried.add(check.name)
    return found, not_tried


def main() -> int:
    faults = sys.argv[1:] or list(FOUND_BY)
    unknown = [name for name in faults if name not in FOUND_BY]
    if unknown:
        print(f"there is no fault {unknown[0]!r}: use {', '.join(FOUND_BY)}", file=sys.stderr)
        return 1
    differences = 0
    print(f"{'fault':22} {'found by':>8} {'missed':>7} {'false alarms':>13} {'seconds':>8}")
    for fault in faults:
        start = time.perf_counter()
        found, not_tried = broken_checks(fault)
        expected = FOUND_BY[fault] - not_tried
        missed, false_alarms = sorted(expected - found.keys()), sorted(found.keys() - expected)
        differences += len(missed) + len(false_alarms)
        seconds = time.perf_counter() - start
        right = len(expected) - len(missed)
        print(f"{fault:22} {right:>8} {len(missed):>7} {len(false_alarms):>13} {seconds:>8.0f}", flush=True)
        for name in missed:
            print(f"    missed: {name}", flush=True)
        for name in false_alarms:
            print(f"    false alarm: {name}: {found[name]}", flush=True)
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
