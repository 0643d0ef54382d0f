"""The other process of a check: `python -m … add|kill TARGET FOLDER` stores three memories.

It prints their ids as JSON. With `kill` it then ends like a crash, without closing the store.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from memory.benchmarking.targets import make_target
from memory.benchmarking.targets.base import Item

AGENT = "ann"
CONTENTS: list[Any] = ["the harbour has a crane", {"a": 1, "b": "two"}, "bread is sold alone"]


def main() -> None:
    act, name, folder = sys.argv[1:]
    target = make_target(name)
    target.open(Path(folder))
    ids = target.add([Item(AGENT, content) for content in CONTENTS[:2]])
    ids.append(target.add_one(Item(AGENT, CONTENTS[2])))
    print(json.dumps(ids), flush=True)
    if act == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    target.close()


if __name__ == "__main__":
    main()
