"""A package index on loopback that accepts a request and never answers it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def silent_index() -> Iterator[tuple[str, socket.socket]]:
    """Yield the address of the index, and the socket that its requests arrive on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)
        yield f"http://127.0.0.1:{server.getsockname()[1]}/simple", server
