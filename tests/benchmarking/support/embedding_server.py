"""An OpenAI-compatible embedding server on loopback, whose vectors follow from the words of a text."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

DIMENSIONS = 32


def vector_of(text: str) -> list[float]:
    """Return the sum of one fixed vector for each word."""
    total = [0.001] * DIMENSIONS
    for word in text.lower().split():
        for place, byte in enumerate(hashlib.sha256(word.encode()).digest()):
            total[place] += byte / 128 - 1
    return total


class EmbeddingServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests: list[tuple[str, dict[str, Any], str | None]] = []
        """Path, document and Authorization header of each request."""
        self.broken = False
        """Whether to answer every request with an error."""

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: EmbeddingServer

    def do_GET(self) -> None:
        self.server.requests.append((self.path, {}, self.headers["Authorization"]))
        self._answer({"data": [{"id": "words-32"}, {"id": "other"}]})

    def do_POST(self) -> None:
        document = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append((self.path, document, self.headers["Authorization"]))
        rows = [{"index": n, "embedding": vector_of(text)} for n, text in enumerate(document["input"])]
        self._answer({"data": rows[::-1]})

    def _answer(self, document: dict[str, Any]) -> None:
        data = json.dumps({"error": "out of order"} if self.server.broken else document).encode()
        self.send_response(503 if self.server.broken else 200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *arguments: object) -> None:
        return


@contextmanager
def embedding_server() -> Iterator[EmbeddingServer]:
    """Run a server for the time of the block."""
    with EmbeddingServer() as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()
