"""Runs the tests of the compiled core with AddressSanitizer and UndefinedBehaviorSanitizer.

The core is built with both into a copy of the package, so the installed one stays as it is. A wrong access
to memory or an undefined operation ends the tests with a report.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
TESTS = ["tests/_native"]


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "memory")
        shutil.copytree(ROOT / "memory", copy, ignore=shutil.ignore_patterns("_core*.so", "__pycache__"))
        subprocess.run(
            [sys.executable, ROOT / "build_core.py", "--root", folder, "--strict", "--sanitize"], check=True
        )
        compiler = os.environ.get("CC", "gcc")
        runtime = subprocess.run(
            [compiler, "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
        ).stdout.strip()
        environment = {
            **os.environ,
            "LD_PRELOAD": runtime,
            "PYTHONPATH": folder,
            "PYTHONMALLOC": "malloc",  # else Python's own pools hide what is freed
            "ASAN_OPTIONS": "detect_leaks=0",  # Python keeps what it has until it ends
            "AGENTMEMORY_EXPECT_CORE": str(copy),
        }
        command = [sys.executable, "-P", "-m", "pytest", "-p", "no:cacheprovider", *(sys.argv[1:] or TESTS)]
        return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
