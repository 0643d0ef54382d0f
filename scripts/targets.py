"""Install every built-in target in an environment of its own, and check what it promises.

    python scripts/targets.py [TARGET...]

Prints a line for each target: seconds to install, size on disk, and what the check found. The exit code is
1 if one can't be installed, 2 if one breaks a promise.
"""

from __future__ import annotations

import sys
import time

from memory.benchmarking.errors import EXIT_BROKEN, EXIT_FAILED, EXIT_FINE, BenchmarkError
from memory.benchmarking.measure.resources import disk_bytes
from memory.benchmarking.run.checking import check_target
from memory.benchmarking.targets import load_target, target_names
from memory.benchmarking.targets.building import install


def main() -> int:
    code = EXIT_FINE
    for name in sys.argv[1:] or target_names():
        kind, built = load_target(name), "here"
        try:
            if kind.requirements or kind.npm_requirements:
                start = time.perf_counter()
                lock, is_new = install(name)
                seconds = f"{time.perf_counter() - start:.0f} s" if is_new else "already installed"
                built = f"{lock.version}, {seconds}, {disk_bytes(lock.path) / 1e6:,.0f} MB"
            report = check_target(name)
        except BenchmarkError as problem:
            print(f"{name:20} {problem}", flush=True)
            code = EXIT_FAILED
            continue
        print(f"{name:20} {built}: {report.mark}", flush=True)
        for outcome in report.outcomes:
            if outcome.state == "broken":
                print(f"    {outcome.promise}: {outcome.reason} ({outcome.place})", flush=True)
                code = code or EXIT_BROKEN
    return code


if __name__ == "__main__":
    sys.exit(main())
