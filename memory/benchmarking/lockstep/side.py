"""What each of the two processes runs: the worker, at the pace of the turns, on its own side's code.

    python -P side.py HARNESS OPTIONS EVENTS ANSWERS FROM_OTHER TO_OTHER

`memory` is the first that is found where this side's modules are; `memory.benchmarking` is the one in
HARNESS whatever that is, so that one ruler measures both sides and a revision from before it existed
can be measured. This file is run by its path, and so before any of this package can be imported.
"""

from __future__ import annotations

import json
import os
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path


def use_harness(folder: Path) -> None:
    """Load `memory.benchmarking` from this folder, and `memory` from wherever it is found."""
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
    events, *wires = map(int, sys.argv[3:])
    try:
        use_harness(harness)
        from memory.benchmarking.lockstep.handicap import handicap
        from memory.benchmarking.lockstep.relay import Relay, Wires
        from memory.benchmarking.run.worker import main as work

        if "extra_work" in options:
            handicap(options["target"], options["extra_work"])
    except Exception as problem:
        # The worker is not there to tell it; its protocol is one JSON line, and 3 for an exception.
        message = f"this side's code can't be loaded: {type(problem).__name__}: {problem}"
        os.write(events, json.dumps({"event": "failed", "message": message}).encode() + b"\n")
        sys.exit(3)
    work(events, lambda tell: Relay(tell, Wires(*wires)))


if __name__ == "__main__":
    main()
