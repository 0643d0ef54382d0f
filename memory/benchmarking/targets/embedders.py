"""The embedder of a run, as written after `--embedder`: a name, `file.py:Class`, or an address.

An address is that of an OpenAI-compatible server, up to the part before `/embeddings`:
`http://127.0.0.1:8080/v1#bge-small` asks its model `bge-small`. Without `#MODEL` it is the first model
that the server lists. A key comes from the variable OPENAI_API_KEY and is recorded nowhere.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import threading
import weakref
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from memory.benchmarking.errors import (
    BenchmarkError,
    BrokenBenchmark,
    InvalidBenchmarkConfig,
    UnknownName,
    nearest,
)
from memory.benchmarking.model.user_files import cause_of, load_file

if TYPE_CHECKING:
    from memory.embedding import ContentEmbedder, Embedder

DEFAULT_EMBEDDER = "wordllama"
_NAMES = (DEFAULT_EMBEDDER,)
_BATCH = 256
"""The most texts of one request: servers have limits, such as 2,048 of OpenAI's."""
_SECONDS = 120.0
"""How long one request may take."""


def load_embedder(text: str) -> ContentEmbedder | None:
    """Return the embedder of a run; None for the default one."""
    from memory.embedding import ContentEmbedder

    embedder = _load(text)
    return None if embedder is None else ContentEmbedder(embedder)


def embedder_label(text: str) -> str:
    """Return what a run records of its embedder, empty for the default one.

    Vectors of two embedders can't be compared, so this is a part of a run's fingerprint: the text, with
    the hash of a file, or with the model and the dimensions of a server. A wrong one is an error here,
    before anything runs.
    """
    if text in ("", *_NAMES):
        return ""
    source = text.rpartition(":")[0]
    if _is_address(text):
        server = EndpointEmbedder(text)
        return f"{text.partition('#')[0]}#{server.model}, {server.dimensions} dimensions"
    _class_of(text)
    if source.endswith(".py"):
        return f"{text}, SHA-256 {hashlib.sha256(Path(source).read_bytes()).hexdigest()[:12]}"
    return text


def _load(text: str) -> Embedder | None:
    if text in ("", *_NAMES):
        return None
    if _is_address(text):
        return EndpointEmbedder(text)
    kind = _class_of(text)
    try:
        embedder: Embedder = kind()
        missing = [name for name in ("name", "dimensions", "embed") if not hasattr(embedder, name)]
    except Exception as problem:
        raise BrokenBenchmark(f"embedder {text!r} can't be made: {cause_of(problem)}") from problem
    if missing:
        raise BrokenBenchmark(
            f"embedder {text!r} has no {missing[0]}: it needs name, dimensions and embed(texts)"
        )
    return embedder


def _is_address(text: str) -> bool:
    return text.startswith(("http://", "https://"))


def _class_of(text: str) -> Any:
    source, colon, name = text.rpartition(":")
    if not colon:
        raise UnknownName(
            f"there is no embedder {text!r}: {nearest(text, _NAMES)}; "
            "or write file.py:Class, or the address of a server, http://…/v1"
        )
    try:
        module = load_file(Path(source)) if source.endswith(".py") else import_module(source)
        return getattr(module, name)
    except BrokenBenchmark:
        raise
    except AttributeError:
        raise UnknownName(f"--embedder {text}: {source} has no class {name!r}") from None
    except (Exception, SystemExit) as problem:
        raise BrokenBenchmark(f"embedder {text!r} can't be loaded: {cause_of(problem)}") from problem


class EndpointEmbedder:
    """Vectors from an OpenAI-compatible server.

    Args:
        address: see the module's text.
    """

    def __init__(self, address: str) -> None:
        self._address, _, model = address.partition("#")
        parts = urlsplit(self._address)
        if parts.username or parts.password or parts.query:
            raise InvalidBenchmarkConfig(
                "--embedder: leave user, password and query out of the address, because results record "
                "it; a key comes from OPENAI_API_KEY"
            )
        self._secure, self._host = parts.scheme == "https", parts.netloc
        self._path = parts.path.rstrip("/")
        self._connections = threading.local()
        self._opened: list[http.client.HTTPConnection] = []
        weakref.finalize(self, _close_all, self._opened)
        self.model = model or self._first_model()
        self.name = f"{self._host}/{self.model}"
        self.dimensions = len(self._request(["dimensions"])[0])

    def embed(self, texts: Sequence[str]) -> Any:
        """Return one row for each text."""
        import numpy as np

        rows: list[list[float]] = []
        for start in range(0, len(texts), _BATCH):
            rows += self._request(texts[start : start + _BATCH])
        return np.asarray(rows, dtype=np.float32).reshape(len(texts), -1)

    def _first_model(self) -> str:
        answer = self._call("GET", "/models", None)
        try:
            return str(answer["data"][0]["id"])
        except (KeyError, IndexError, TypeError):
            raise InvalidBenchmarkConfig(
                f"--embedder {self._address}: the server lists no models: add #MODEL to the address"
            ) from None

    def _request(self, texts: Sequence[str]) -> list[list[float]]:
        # Servers refuse an empty text.
        answer = self._call(
            "POST", "/embeddings", {"model": self.model, "input": [t or " " for t in texts]}
        )
        try:
            rows = sorted(answer["data"], key=lambda row: row["index"])
            vectors = [row["embedding"] for row in rows]
        except (KeyError, TypeError):
            raise self._failed("its answer has no data with index and embedding") from None
        if len(vectors) != len(texts):
            raise self._failed(f"it returned {len(vectors)} vectors for {len(texts)} texts")
        return vectors

    def _call(self, method: str, path: str, document: Any) -> Any:
        body = None if document is None else json.dumps(document).encode()
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if key := os.environ.get("OPENAI_API_KEY"):
            headers["Authorization"] = f"Bearer {key}"
        for attempt in (1, 2):
            connection, is_new = self._connection()
            try:
                connection.request(method, f"{self._path}{path}", body, headers)
                answer = connection.getresponse()
                data = answer.read()
                break
            except (OSError, http.client.HTTPException) as problem:
                connection.close()
                del self._connections.one
                if is_new or attempt == 2:  # an old connection may have been closed by the server
                    raise self._failed(f"{type(problem).__name__}: {problem}") from problem
        if answer.status != 200:
            text = " ".join(data[:200].decode(errors="replace").split())
            raise self._failed(f"HTTP {answer.status} {answer.reason}: {text}")
        try:
            return json.loads(data)
        except ValueError:
            raise self._failed("its answer is not JSON") from None

    def _connection(self) -> tuple[http.client.HTTPConnection, bool]:
        """Return this thread's connection, and whether it is new."""
        known = getattr(self._connections, "one", None)
        if known is not None:
            return known, False
        kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        self._connections.one = kind(self._host, timeout=_SECONDS)
        self._opened.append(self._connections.one)
        return self._connections.one, True

    def _failed(self, why: str) -> BenchmarkError:
        return BenchmarkError(f"the embedder {self._address} failed: {why}")


def _close_all(connections: list[http.client.HTTPConnection]) -> None:
    for connection in connections:
        connection.close()
