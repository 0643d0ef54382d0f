"""A proxy between a client and a server's socket that can lose the server's reply."""

from __future__ import annotations

import select
import socket
import threading
from pathlib import Path


class Proxy:
    """Listens on a socket in `folder`, and passes all bytes on to the socket in another folder."""

    def __init__(self, folder: Path, server_folder: Path) -> None:
        self._server = str(server_folder / ".s.PGSQL.5432")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / ".s.PGSQL.5432"))
        self._listener.listen(64)
        self._lose_after: bytes | None = None
        self.lost = 0
        """Replies that were lost."""
        self._closed = False
        threading.Thread(target=self._accept, daemon=True).start()

    def lose_reply_to(self, part: bytes) -> None:
        """Lose the reply to the next message of a client that contains `part`, and break its connection."""
        self._lose_after = part

    def close(self) -> None:
        self._closed = True
        self._listener.close()

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.socket(socket.AF_UNIX) as server:
            server.connect(self._server)
            while True:
                ready, _, _ = select.select([client, server], [], [])
                if client in ready:
                    sent = client.recv(1 << 20)
                    if not sent:
                        return
                    wanted = self._lose_after
                    server.sendall(sent)
                    if wanted is not None and wanted in sent:
                        self._lose_after = None
                        while not server.recv(1 << 20).endswith((b"I", b"T", b"E")):
                            pass  # until the server is ready for the next message: it has committed
                        self.lost += 1
                        return
                if server in ready:
                    reply = server.recv(1 << 20)
                    if not reply:
                        return
                    client.sendall(reply)
