"""The program of each of the two processes: the worker, taking turns, on its own side's code.

    python -P side_process.py HARNESS OPTIONS EVENTS ANSWERS FROM_OTHER TO_OTHER

`memory` is loaded from this side's module paths. `memory.benchmarking` is always loaded from HARNESS, so
that the same benchmark code measures both sides, even a revision older than the benchmark. This file is
started by its path, before the package can be imported.
"""

from __future__ import annotations

import json
import os
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path


def use_harness(folder: Path) -> None:
    """Load `memory.benchmarking` from this folder, and `memory` from the module paths."""
    import memory

    if folder.resolve() == (Path(memory.__path__[0]) / "benchmarking").resolve():
        return
    name = "memory.benchmarking"
    spec = spec_from_file_location(name, folder / "__init__.py", submodule_search_locations=[str(folder)])
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module
    memory.benchmarking = module
    spec.loader.exec_module(module)


def main() -> None:
    harness, options = Path(sys.argv[1]), json.loads(sys.argv[2])
    events, *pipes = map(int, sys.argv[3:])
    try:
        use_harness(harness)
        from memory.benchmarking.lockstep.extra_work import add_extra_work
        from memory.benchmarking.lockstep.turn_pipes import PipeTurnControl, SidePipes
        from memory.benchmarking.run.worker import main as run_worker

        if "extra_work" in options:
            add_extra_work(options["target"], options["extra_work"])
    except Exception as problem:
        # The worker can't report this error. Report it here in the same format: one JSON line, exit code 3.
        message = f"this side's code can't be loaded: {type(problem).__name__}: {problem}"
        os.write(events, json.dumps({"event": "failed", "message": message}).encode() + b"\n")
        sys.exit(3)
    run_worker(events, lambda send: PipeTurnControl(send, SidePipes(*pipes)))


if __name__ == "__main__":
    main()
