"""What runs inside of Ray on a node. It is sent by value, and imports the standard library only.

The node needs Python, Ray and the packages that membench depends on, but not membench: its code comes with
the job. Each function starts `node.py` of that code as a process, and ends it when it ends itself.
"""

from __future__ import annotations

import compileall
import io
import os
import secrets
import shutil
import subprocess
import sys
import tarfile
import tempfile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO


def root_folder() -> str:
    """Return the folder of everything that membench keeps on a node."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.environ.get("MEMBENCH_NODE") or os.path.join(cache, "agentmemory", "node")


def unpack(digest: str, data: bytes) -> str:
    """Unpack the code, unless it is there; return its folder. Code of other hashes stays for other runs.

    Its package is compiled at once. Otherwise, where PYTHONDONTWRITEBYTECODE is set, every process of every
    round would compile it again, and what a round measures of its own start would differ from a local one.
    """
    folder = os.path.join(root_folder(), "code", digest)
    if os.path.isdir(folder):
        return folder
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    partial = tempfile.mkdtemp(prefix=f"{digest}.", dir=os.path.dirname(folder))
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        tar.extractall(partial, filter="data")
    compileall.compile_dir(os.path.join(partial, "package"), quiet=2, stripdir=partial, prependdir=folder)
    try:
        os.rename(partial, folder)
    except OSError:  # another process was faster
        shutil.rmtree(partial, ignore_errors=True)
    return folder


def start(folder: str, order: bytes, log: IO[bytes]) -> subprocess.Popen[bytes]:
    """Start the program of a node and give it its order. It ends when its standard input ends."""
    environment = {**os.environ, "PYTHONPATH": os.path.join(folder, "package")}
    # The process must not use this one's Ray, nor its settings.
    environment = {name: value for name, value in environment.items() if not name.startswith("RAY_")}
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "memory.benchmarking.run.executors.node"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        env=environment,
        start_new_session=True,
    )
    assert process.stdin is not None
    order = order.replace(b"@CODE@", folder.encode()).replace(b"@NODE@", root_folder().encode())
    process.stdin.write(order + b"\n")
    process.stdin.flush()
    return process


def obey(digest: str, data: bytes, order: bytes) -> tuple[bytes, str]:
    """Run one order on this node; return the answer, and what the program printed if there is none."""
    with tempfile.TemporaryFile() as log:
        process = start(unpack(digest, data), order, log)
        try:
            assert process.stdout is not None
            answer = process.stdout.read()
        finally:
            _end(process)
        log.seek(0)
        return answer, "" if answer else log.read()[-4000:].decode(errors="replace")


def _end(process: subprocess.Popen[bytes]) -> None:
    """Close the program's standard input, and wait until it has ended."""
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class Generator:
    """A load generator on a node, as a Ray actor."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, digest: str, data: bytes, order: bytes) -> tuple[str, bytes]:
        """Start it; return the secret of its connection, and the answer with its port."""
        secret = secrets.token_hex(16)
        order = order.replace(b"@SECRET@", secret.encode())
        with open(os.devnull, "wb") as log:
            self._process = start(unpack(digest, data), order, log)
        assert self._process.stdout is not None
        output: IO[bytes] = self._process.stdout
        return secret, os.read(output.fileno(), 65536)

    def stop(self) -> None:
        """End it, and wait until it has ended."""
        if self._process is not None:
            _end(self._process)
