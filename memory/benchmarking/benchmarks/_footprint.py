"""What a system needs before it does anything, measured in a new process and in the installed files."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from memory.benchmarking.bench import Bench, not_available
from memory.benchmarking.errors import BenchmarkError
from memory.benchmarking.targets import load_target, make_target
from memory.benchmarking.targets.environments import distribution_of, normalised

_PATIENCE = 300.0
"""Seconds after which the new process is ended."""
_OWN = "agentmemory-tiers"


def in_a_new_process(bench: Bench, empty: Path, filled: Path, agent: str, question: str) -> dict[str, Any]:
    """Open an empty and a filled store in a new process; return the figures of it."""
    # The first start after an installation compiles the modules. Every later one is faster, and counts.
    with bench.target_folder() as unused:
        _run_new_process(bench.target_name, unused, filled, agent, question)
    found = _run_new_process(bench.target_name, empty, filled, agent, question)
    if found["first_search_ms"] is None:
        found["first_search_ms"] = not_available(bench.no_search())
    return found


def _run_new_process(name: str, empty: Path, filled: Path, agent: str, question: str) -> dict[str, Any]:
    order = json.dumps([name, str(empty), str(filled), agent, question])
    # Without this variable, Python keeps the compiled modules, as it does for most users.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(
        [sys.executable, "-P", "-m", __name__, order],
        capture_output=True,
        text=True,
        timeout=_PATIENCE,
        stdin=subprocess.DEVNULL,
        env=environment,
    )
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise BenchmarkError(f"a new process could not open the store: {last}")
    found: dict[str, Any] = json.loads(lines[-1])
    return found


def main(order: str) -> None:
    """Run in the new process; print the figures as one line of JSON."""
    from memory.benchmarking.measure.resources import settled_ram_bytes

    name, empty, filled, agent, question = json.loads(order)
    # What a system prints must not mix with the figures.
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    before = settled_ram_bytes()
    start = time.perf_counter()
    target = make_target(name)
    target.open(Path(empty))
    first = time.perf_counter()
    target.close()
    again = time.perf_counter()
    target = make_target(name)
    target.open(Path(filled))
    opened = time.perf_counter()
    searched = None
    if target.capabilities.search:
        target.search(agent, question, 1)
        searched = (time.perf_counter() - opened) * 1e3
    grown = max(settled_ram_bytes() - before, 0)
    target.close()
    figures = {
        "first_open_ms": (first - start) * 1e3,
        "open_ms": (opened - again) * 1e3,
        "first_search_ms": searched,
        "open_rss_mb": grown / 1e6,
    }
    print(json.dumps(figures), file=answer, flush=True)
    # Not `sys.exit`: a thread that the system left behind would keep the process alive.
    os._exit(0)


def installed_size(target: str) -> dict[str, Any]:
    """Return the size and number of the packages that a target needs, in the interpreter that runs it."""
    kind = load_target(target)
    if kind.npm_requirements:
        return _npm_size()
    wanted = [distribution_of(each) for each in kind.requirements] or [_OWN]
    if kind.address_form and not kind.requirements:
        none = not_available(f"{kind.name} is a server: what is installed there is not known")
        return {"installed_mb": none, "packages": none}
    sizes = dict(_distributions(wanted))
    return {"installed_mb": sum(sizes.values()) / 1e6, "packages": len(sizes)}


def _distributions(wanted: list[str]) -> Iterator[tuple[str, int]]:
    """Yield the name and the bytes of each distribution that is wanted, and of those that it needs."""
    from importlib.metadata import PackageNotFoundError, distribution

    waiting, seen = list(wanted), set[str]()
    while waiting:
        name = normalised(waiting.pop())
        if name in seen:
            continue
        seen.add(name)
        try:
            found = distribution(name)
        except PackageNotFoundError:
            continue  # needed on other systems only, or left out (`Target.unneeded`)
        yield name, _bytes_of(found)
        for requirement in found.requires or ():
            # An extra is not installed for its own sake: another package asks for it.
            if not re.search(r";.*\bextra\b", requirement):
                waiting.append(distribution_of(requirement))


def _bytes_of(found: Any) -> int:
    total = 0
    files = found.files or ()
    if found.metadata["Name"] == _OWN:
        import memory

        files = [
            path for path in Path(memory.__file__).parent.rglob("*") if "benchmarking" not in path.parts
        ]
    for file in files:
        path = Path(found.locate_file(file))
        if path.is_file() and path.suffix != ".pyc":
            total += path.stat().st_size
    return total


def _npm_size() -> dict[str, Any]:
    """Return the size of `node_modules` of this environment."""
    folder = Path(sys.prefix) / "node_modules"
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    packages = sum(path.name == "package.json" and path.parent.parent == folder for path in files)
    return {"installed_mb": sum(path.stat().st_size for path in files) / 1e6, "packages": packages}


if __name__ == "__main__":
    main(sys.argv[1])
