"""Run Python in another process, for tests of limits, permissions and kills."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

SUPPORT = Path(__file__).parent
PATIENCE = 60  # seconds; a process or thread that runs longer fails the test

_OPEN = """
import json, os, sys
from small_embedder import small_embedder
from memory import AgentMemorySystem, MemoryConfig

def open_memory(path, stm=None, im=None, **settings):
    config = MemoryConfig(**{"maintenance": "manual", **settings})
    config.ltm_config.db_path = str(path)
    for part, fields in ((config.stm_config, stm), (config.im_config, im)):
        for name, value in (fields or {}).items():
            setattr(part, name, value)
    return AgentMemorySystem(config, embedder=small_embedder())
"""


def start_python(
    script: str, *arguments: object, before: tuple[str, ...] = (), **options: Any
) -> subprocess.Popen[str]:
    """Start a script with `open_memory(path, stm={...}, ...)` defined, and `arguments` in sys.argv[1:].

    `before` is a command that runs Python as its argument, such as `("unshare", "--mount")`.
    """
    return subprocess.Popen(
        [
            *before,
            sys.executable,
            "-W",
            "error",
            "-c",
            _OPEN + textwrap.dedent(script),
            *map(str, arguments),
        ],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(SUPPORT), os.environ.get("PYTHONPATH", "")])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def run_python(script: str, *arguments: object, before: tuple[str, ...] = (), **options: Any) -> str:
    """Run a script and return what it printed; fail if it exits with an error or writes to stderr."""
    process = start_python(script, *arguments, before=before, **options)
    try:
        output, stderr = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, stderr) == (0, ""), f"exit code {process.returncode}\n{stderr}"
    return output
