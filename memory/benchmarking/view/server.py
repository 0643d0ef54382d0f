"""The local web server of `membench view`, and its access rules.

- It listens on the loopback interface only, so other machines can't reach it.
- A request needs the random token of the link, or the cookie that the link sets.
- Other web sites can't send requests through the user's browser: the cookie is SameSite=Strict, and the
  check of the Host header prevents DNS rebinding.
- It writes nothing: it accepts only GET and HEAD.

It uses Python's http.server, because one user on one machine needs no framework.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import socketserver
import sys
import threading
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from memory.benchmarking.errors import InvalidBenchmarkConfig
from memory.benchmarking.report.markup import asset
from memory.benchmarking.text.display import clean
from memory.benchmarking.view.app import MOST_FIELDS, App
from memory.benchmarking.view.layout import Page, document, problem_page, stylesheet

HOST = "127.0.0.1"
TOKEN = "token"
"""The name of the query field with the token."""
IDLE_SECONDS = 60
"""An idle connection is closed after this many seconds."""
MOST_PAGES = 4
"""Pages that are built at the same time. More would take turns: Python runs one thread at a time."""
_ASSETS = {
    "/style.css": ("text/css", stylesheet),
    "/theme.js": ("text/javascript", lambda: asset("theme.js")),
    "/charts.js": ("text/javascript", lambda: asset("charts.js")),
    "/live.js": ("text/javascript", lambda: asset("../view/live.js")),
    "/league.css": ("text/css", lambda: asset("../league/league.css")),
    "/league.js": ("text/javascript", lambda: asset("../league/league.js")),
}
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class ViewServer(ThreadingHTTPServer):
    """Serves one folder of results until it is shut down."""

    daemon_threads = True
    block_on_close = False  # a browser keeps connections open; stopping must not wait for them
    # Connections that wait to be accepted. With the base class's 5, the system drops further ones, and a
    # browser tries again only after 1, 3 and 7 seconds.
    request_queue_size = 1024

    def __init__(self, output_dir: Path, port: int = 0) -> None:
        self.app = App(output_dir)
        self.building = threading.BoundedSemaphore(MOST_PAGES)
        self.token = secrets.token_urlsafe(24)
        try:
            super().__init__((HOST, port), _Handler)
        except OSError as problem:
            raise InvalidBenchmarkConfig(
                f"port {port} can't be used: {problem.strerror or problem}; use another --port, or none"
            ) from problem

    def server_bind(self) -> None:
        # Skip the base class's look-up of the machine's name, which can take seconds.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = HOST, self.server_address[1]

    @property
    def link(self) -> str:
        """The address to open, with the token."""
        return f"http://{HOST}:{self.server_port}/?{TOKEN}={self.token}"

    @property
    def cookie(self) -> str:
        """The name of the cookie. It includes the port, because all ports of a host share their cookies."""
        return f"membench-{self.server_port}"

    def is_own_host(self, host: str) -> bool:
        """Return whether a Host header names this server. The check prevents DNS rebinding."""
        return host in (f"{HOST}:{self.server_port}", f"localhost:{self.server_port}")

    def is_valid(self, token: str) -> bool:
        return hmac.compare_digest(token.encode("utf-8", "replace"), self.token.encode())

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore broken connections. Any other error is a bug: print it in one line."""
        problem = sys.exception()
        if not isinstance(problem, ConnectionError | TimeoutError):
            print(clean(f"membench: view: {type(problem).__name__}: {problem}"), file=sys.stderr)


class _Handler(BaseHTTPRequestHandler):
    server: ViewServer
    protocol_version = "HTTP/1.1"
    timeout = IDLE_SECONDS

    def do_GET(self) -> None:
        if not self.server.is_own_host(self.headers.get("Host", "")):
            text = "Open the link that membench view printed."
            self._send_page(problem_page(403, "Wrong address", text))
            return
        path = urlsplit(self.path).path
        if path in _ASSETS:  # no token needed: they hold no results, and the "not valid" page uses them
            kind, read = _ASSETS[path]
            self._send(200, kind, read().encode())
            return
        token = self._token_in_link()
        if not self.server.is_valid(token if token is not None else self._token_in_cookie()):
            text = "Open the link that membench view printed when it started."
            self._send_page(problem_page(403, "This link is not valid", text))
            return
        try:
            with self.server.building:
                page = self.server.app.page(self.path)
        except Exception as problem:  # a bug in one page must not stop the server
            what = f"{type(problem).__name__}: {problem}"
            print(clean(f"membench: view: {self.path}: {what}"), file=sys.stderr)
            text = f"{what}. The other pages still work; please report this one."
            page = problem_page(500, "This page has a bug", text)
        self._send_page(page, sign_in=token is not None)

    do_HEAD = do_GET  # noqa: N815 - the base class looks for this name

    def _token_in_link(self) -> str | None:
        try:
            query = parse_qs(urlsplit(self.path).query, max_num_fields=MOST_FIELDS)
        except ValueError:
            return None
        return query[TOKEN][-1] if TOKEN in query else None

    def _token_in_cookie(self) -> str:
        try:
            found = SimpleCookie(self.headers.get("Cookie", "")).get(self.server.cookie)
        except CookieError:
            return ""
        return found.value if found is not None else ""

    def _send_page(self, page: Page, *, sign_in: bool = False) -> None:
        headers = {}
        if sign_in:
            value = f"{self.server.cookie}={self.server.token}; Path=/; HttpOnly; SameSite=Strict"
            headers["Set-Cookie"] = value
        self._send(page.status, "text/html", document(page), headers)

    def _send(self, status: int, kind: str, body: bytes, headers: dict[str, str] | None = None) -> None:
        tag = f'"{hashlib.sha256(body).hexdigest()[:24]}"'
        if status == 200 and self.headers.get("If-None-Match") == tag and not headers:
            status, body = HTTPStatus.NOT_MODIFIED, b""
        self.send_response(status)
        for name, value in {**_HEADERS, **(headers or {}), "ETag": tag}.items():
            self.send_header(name, value)
        if status != HTTPStatus.NOT_MODIFIED:
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
        if status == HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET, HEAD")
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer requests that the base class refuses: unknown methods and malformed requests."""
        self.close_connection = True  # the rest of the request is not read
        if code == HTTPStatus.NOT_IMPLEMENTED:
            code = HTTPStatus.METHOD_NOT_ALLOWED
        if not hasattr(self, "headers"):
            self.headers = self.MessageClass()
        text = "Only GET and HEAD are allowed." if code == 405 else message or HTTPStatus(code).phrase
        self._send_page(problem_page(code, "Bad request", text))

    def version_string(self) -> str:
        return "membench"

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: the terminal shows only the link."""
