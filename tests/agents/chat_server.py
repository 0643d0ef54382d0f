"""A local HTTP server with the chat completions interface, which can also fail in given ways."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Act = Callable[["Handler"], None]
CERTIFICATE = Path(__file__).with_name("self_signed.pem")


class Handler(BaseHTTPRequestHandler):
    """Answers each request with the next act of the server's list; the last one is repeated."""

    protocol_version = "HTTP/1.1"
    server: ChatServer

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            number = len(self.server.requests)
            self.server.requests.append(body)
            self.server.paths.append(self.path)
            self.server.keys.append(self.headers.get("Authorization", ""))
        acts = self.server.acts
        acts[min(number, len(acts) - 1)](self)

    def begin(self, status: int, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def whole(self, status: int, body: bytes, **headers: str) -> None:
        self.begin(status, Content_Length=str(len(body)), **{"Content_Type": "application/json", **headers})
        self.wfile.write(body)

    def chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def hang_up(self) -> None:
        self.close_connection = True
        self.wfile.flush()
        self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, *_: object) -> None:
        pass


class ChatServer(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, acts: list[Act], *, tls: bool = False) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(CERTIFICATE)
            # The handshake is made with the first read, in the thread of the connection.
            self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        self.acts = acts
        self.lock = threading.Lock()
        self.requests: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.keys: list[str] = []
        self.given_up = threading.Event()
        """Set at the end of the test; acts that make the client wait then end."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"

    def handle_error(self, *_: object) -> None:
        """Ignore clients that closed the connection."""


@contextmanager
def serving(*acts: Act, tls: bool = False) -> Iterator[ChatServer]:
    server = ChatServer(list(acts), tls=tls)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.given_up.set()
        server.shutdown()
        server.server_close()
        thread.join()


# -- acts -------------------------------------------------------------------------------------


def completion(
    content: Any = None, *calls: tuple[str, str], usage: Any = None, reason: str = "stop"
) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if calls:
        message["tool_calls"] = [
            {"id": f"call {number}", "type": "function", "function": {"name": name, "arguments": arguments}}
            for number, (name, arguments) in enumerate(calls)
        ]
    return {"choices": [{"index": 0, "message": message, "finish_reason": reason}], "usage": usage}


def answers(document: Any, status: int = 200, **headers: str) -> Act:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return lambda handler: handler.whole(status, body, **headers)


def streams(
    *events: Any, piece: int = 10**6, done: bool = True, line_end: str = "\n", close: bool = False
) -> Act:
    """Send server-sent events in pieces of `size` bytes; `close` breaks the connection at the end."""
    lines = [
        f"data: {event if isinstance(event, str) else json.dumps(event, ensure_ascii=False)}"
        for event in events
    ]
    if done:
        lines.append("data: [DONE]")
    stream = "".join(f": a comment{line_end}{line}{line_end * 2}" for line in lines).encode()

    def act(handler: Handler) -> None:
        handler.begin(200, Content_Type="text/event-stream", Transfer_Encoding="chunked")
        for start in range(0, len(stream), piece):
            handler.chunk(stream[start : start + piece])
        if close:
            handler.hang_up()
        else:
            handler.chunk(b"")

    return act


def delta(content: str | None = None, *, reason: str | None = None, **more: Any) -> dict[str, Any]:
    inner = more if content is None else {"content": content, **more}
    return {"choices": [{"index": 0, "delta": inner, "finish_reason": reason}]}


def hangs_up(handler: Handler) -> None:
    handler.hang_up()


def breaks_off(handler: Handler) -> None:
    handler.begin(200, Content_Length="1000", Content_Type="application/json")
    handler.wfile.write(b'{"choices": [')
    handler.hang_up()


def never_answers(handler: Handler) -> None:
    handler.server.given_up.wait()
    handler.close_connection = True


def drips(handler: Handler) -> None:
    """Send a byte from time to time, without end."""
    handler.begin(200, Content_Type="application/json", Transfer_Encoding="chunked")
    while not handler.server.given_up.wait(0.02):
        handler.chunk(b" ")


def drips_headers(handler: Handler) -> None:
    """Send a byte of a header from time to time, without end."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
    handler.wfile.flush()
    while not handler.server.given_up.wait(0.02):
        handler.wfile.write(b"x")


def drips_events(handler: Handler) -> None:
    """Send comments and empty deltas of a stream from time to time, without end."""
    handler.begin(200, Content_Type="text/event-stream", Transfer_Encoding="chunked")
    while not handler.server.given_up.wait(0.02):
        handler.chunk(b": still there\n\ndata: " + json.dumps(delta("")).encode() + b"\n\n")


def sends_without_end(handler: Handler, piece: bytes, **headers: str) -> None:
    handler.begin(200, Transfer_Encoding="chunked", **headers)
    while not handler.server.given_up.is_set():
        handler.chunk(piece)
