"""Any memory behind a JSON server over HTTP: `--target http=server.toml`. See docs/described-servers.md."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from memory.benchmarking.errors import InvalidBenchmarkConfig
from memory.benchmarking.targets._described_server import IDS, DescribedServerTarget, fill

_SECONDS = 60.0
"""How long a server may take for one answer."""


class HttpTarget(DescribedServerTarget):
    name = "http"
    limits = "Every memory is one request. The transport is part of every figure."

    def connect(self, folder: Path) -> None:
        server = self.description.get("server", {})
        url = urlsplit(server.get("url", ""))
        if url.scheme not in ("http", "https") or not url.hostname:
            raise InvalidBenchmarkConfig(
                f"{self.address}: [server] url is {server.get('url')!r}: use http://…"
            )
        # Secrets stay out of the file: "$NAME" is a variable of the environment.
        headers = {key: os.path.expandvars(value) for key, value in server.get("headers", {}).items()}
        self._headers = {"Content-Type": "application/json", **headers}
        self._base = url.path.rstrip("/")
        kind = HTTPSConnection if url.scheme == "https" else HTTPConnection
        self._connection = kind(url.hostname, url.port, timeout=_SECONDS)
        self._lock = threading.Lock()

    def close(self) -> None:
        super().close()
        self._connection.close()

    def discard(self, folder: Path) -> None:
        """Delete on the server what is left of this store."""
        if (folder / IDS).exists():
            self.open(folder)
            try:
                for agent_id in self.agents():
                    self.delete_all(agent_id)
            finally:
                self.close()

    def call(self, call: Mapping[str, Any], values: Mapping[str, Any]) -> Any:
        in_url = {name: quote(str(value), safe="") for name, value in values.items()}
        path = self._base + str(fill(call["path"], in_url))
        body = json.dumps(fill(call["body"], values)) if "body" in call else None
        return self._request(call.get("method", "POST" if body else "GET"), path, body)

    def transport_ms(self) -> float | None:
        """Return the fastest of some requests to `[server] ping`; None without that path."""
        path = self.description["server"].get("ping")
        return None if path is None else min(self._ping(self._base + path) for _ in range(20))

    def _ping(self, path: str) -> float:
        began = time.perf_counter()
        self._request("GET", path, None)
        return (time.perf_counter() - began) * 1000

    def _request(self, method: str, path: str, body: str | None) -> Any:
        with self._lock:
            try:
                self._connection.request(method, path, body, self._headers)
                response = self._connection.getresponse()
                answer = response.read().decode("utf-8", "replace")
            except (OSError, HTTPException) as problem:
                self._connection.close()
                raise RuntimeError(f"{method} {path}: no answer from the server: {problem!r}") from problem
        if not 200 <= response.status < 300:
            raise RuntimeError(f"{method} {path}: the server answered {response.status}: {answer[:500]}")
        try:
            return json.loads(answer) if answer else None
        except ValueError:
            return answer
