"""pgbouncer in transaction mode between the tests and a server."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp

from postgres_servers import Server

PROGRAM = shutil.which("pgbouncer") or shutil.which("/usr/sbin/pgbouncer")


@contextmanager
def running_pooler(server: Server, size: int = 3) -> Iterator[str]:
    """Start pgbouncer before a server. Yield the folder of its socket.

    size: connections to the server; fewer than clients, so that the pooler must share them
    """
    assert PROGRAM is not None
    folder = Path(mkdtemp(prefix="pb"))
    (folder / "users.txt").write_text('"postgres" ""\n')
    (folder / "ini").write_text(
        f"""[databases]
postgres = host={server.folder} user=postgres dbname=postgres
[pgbouncer]
unix_socket_dir = {folder}
listen_port = 5432
auth_type = any
auth_file = {folder / "users.txt"}
pool_mode = transaction
default_pool_size = {size}
max_client_conn = 100
"""
    )
    if os.geteuid() == 0:
        shutil.chown(folder, "nobody")
        user = ["setpriv", "--reuid=nobody", "--clear-groups", "--pdeathsig", "INT"]
    else:
        user = []
    log = (folder / "log").open("wb")
    process = subprocess.Popen(
        [*user, PROGRAM, str(folder / "ini")], stdin=subprocess.DEVNULL, stdout=log, stderr=log
    )
    try:
        while not _answers(folder):
            if process.poll() is not None:
                raise RuntimeError(f"pgbouncer did not start: {(folder / 'log').read_text()[-500:]}")
            time.sleep(0.01)
        yield str(folder)
    finally:
        process.terminate()
        process.wait()
        log.close()
        shutil.rmtree(folder, ignore_errors=True)


def _answers(folder: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(folder / ".s.PGSQL.5432"))
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        return True
