"""Fork a program while its threads are busy with the memory, and count the runs that hang: `make forks`.

    python scripts/forks.py [--runs 200] [--forks 40] [--limit 200]

One run is one program. Two threads store, search and read, and a maintenance thread moves memories. The
main thread forks 40 times. Each child reads, stores and searches, and ends. The run hangs if it takes
longer than the limit. Then the stacks of all threads of the program and of its child are printed.

Exit code 0: every run ended by itself, and every memory was there. Exit code 1: one did not.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path

from _small_memory import open_small


def run_forks(path: Path, forks: int) -> None:
    """Fork while two threads and the maintenance thread use the memory; check what the children stored."""
    warnings.simplefilter("ignore", DeprecationWarning)  # forking with threads is the purpose
    memory = open_small(path, stm=5, maintenance="background", transition_batch=2, busy_timeout_seconds=20)
    memory.add("ann", "first", id="first")
    done = threading.Event()

    def busy() -> None:
        while not done.is_set():
            memory.add("bob", "busy")
            memory.search("bob", "busy")
            memory.get("ann", "first")
            memory.recent("bob", 5)

    threads = [threading.Thread(target=busy) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for number in range(forks):
            pid = os.fork()
            if pid == 0:
                code = 1
                try:
                    assert memory.get("ann", "first") is not None
                    memory.add("ann", "child", id=f"child {number}")
                    assert len(memory.search("ann", "child", k=1000)) == number + 2
                    code = 0
                finally:
                    os._exit(code)
            if os.waitpid(pid, 0)[1] != 0:
                raise SystemExit(f"child {number} failed")
    finally:
        done.set()
        for thread in threads:
            thread.join()
    memory.close()
    with open_small(path) as again:
        found = {entry.id for entry in again.recent("ann", 10_000)}
    if found != {"first", *(f"child {number}" for number in range(forks))}:
        raise SystemExit(f"{len(found)} memories instead of {forks + 1}")


def _one_run(folder: Path, forks: int, limit: float) -> str | None:
    """Run one program. Return what went wrong, or None."""
    process = subprocess.Popen(
        [sys.executable, __file__, "--program", str(folder / "memory.db"), "--forks", str(forks)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGUSR1)  # both processes print their stacks
        time.sleep(1)
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        return f"no result within {limit:g} s\n{output}"
    return None if process.returncode == 0 else f"exit code {process.returncode}\n{output}"


def main() -> None:
    parser = argparse.ArgumentParser(description="fork while threads use the memory")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--forks", type=int, default=40, help="forks in one run")
    parser.add_argument("--limit", type=float, default=200.0, help="seconds after which a run hangs")
    parser.add_argument("--program", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.program is not None:
        faulthandler.register(signal.SIGUSR1, all_threads=True)
        run_forks(options.program, options.forks)
        return
    failed, longest = 0, 0.0
    for number in range(options.runs):
        with tempfile.TemporaryDirectory() as folder:
            start = time.monotonic()
            problem = _one_run(Path(folder), options.forks, options.limit)
            longest = max(longest, time.monotonic() - start)
        if problem is not None:
            failed += 1
            print(f"run {number + 1}: {problem}", flush=True)
        if (number + 1) % 20 == 0:
            print(f"{number + 1} runs, {failed} failed, the longest took {longest:.1f} s", flush=True)
    print(f"{options.runs} runs of {options.forks} forks: {failed} failed; longest {longest:.1f} s")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
