"""Access rules and answers of the server of `membench view`."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from membench import membench
from result_builders import make_run
from view_server import Answer, ask, serving, viewing

from memory.benchmarking.model.records import FORMAT, Failure
from memory.benchmarking.view.server import ViewServer

RUN = "20260801_101500_ab12"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ViewServer]:
    folder = tmp_path_factory.mktemp("results")
    make_run(folder, RUN)
    (folder / "secret.txt").write_text("nobody may read this")
    with serving(folder) as running:
        yield running


# -- who may ask ------------------------------------------------------------------------------


def test_the_server_listens_on_this_machine_only(server: ViewServer) -> None:
    assert server.server_address[0] == "127.0.0.1"


def test_without_the_token_every_page_is_refused(server: ViewServer) -> None:
    for path in ("/", f"/run/{RUN}", "/history", "/?token=", "/?token=wrong", "/nowhere"):
        answer = ask(server, path, signed_in=False)
        assert answer.status == 403
        assert RUN not in answer.body
        assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    "cookie", ["", "=", "membench-1=x", "membench-{port}=wrong", "membench-{port}=é", "\x01;;"]
)
def test_a_wrong_cookie_is_no_token(server: ViewServer, cookie: str) -> None:
    sent = {"Cookie": cookie.format(port=server.server_port).encode().decode("latin-1")}
    assert ask(server, signed_in=False, headers=sent).status == 403


def test_the_link_sets_a_cookie_that_other_sites_can_not_use(server: ViewServer) -> None:
    answer = ask(server, server.link.partition(str(server.server_port))[2], signed_in=False)
    assert answer.status == 200
    name, *rules = answer.headers["set-cookie"].split("; ")
    assert name == f"membench-{server.server_port}={server.token}"
    assert {"HttpOnly", "SameSite=Strict"} <= set(rules)


def test_a_wrong_token_is_refused_even_with_a_valid_cookie(server: ViewServer) -> None:
    assert ask(server, "/?token=wrong").status == 403


def test_every_server_has_its_own_token(server: ViewServer, tmp_path: Path) -> None:
    with serving(tmp_path) as other:
        assert other.token != server.token
        assert len(other.token) >= 32
        assert other.cookie != server.cookie


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "", "localhost"]
)
def test_a_foreign_host_name_is_refused(server: ViewServer, host: str) -> None:
    """Against DNS rebinding: the browser would send the cookie, but the Host header is foreign."""
    answer = ask(server, headers={"Host": host.format(port=server.server_port)})
    assert answer.status == 403
    assert RUN not in answer.body


def test_localhost_is_accepted(server: ViewServer) -> None:
    assert ask(server, headers={"Host": f"localhost:{server.server_port}"}).status == 200


# -- what may be asked ------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "NONSENSE"])
def test_only_get_and_head_are_allowed(server: ViewServer, method: str) -> None:
    answer = ask(server, f"/run/{RUN}", method=method)
    assert answer.status == 405
    assert answer.headers["allow"] == "GET, HEAD"
    assert "Only GET and HEAD are allowed" in answer.body


def test_head_is_get_without_the_page(server: ViewServer) -> None:
    whole, head = ask(server), ask(server, method="HEAD")
    assert head.body == ""
    assert head.headers["content-length"] == whole.headers["content-length"]


@pytest.mark.parametrize(
    "path",
    [
        "/../secret.txt", "/run/..", "/run/../secret.txt", "/run/%2e%2e", "/run/%2e%2e%2fsecret.txt",
        f"/run/{RUN}/../../secret.txt", f"/run/{RUN}/log/..%2f..%2fsecret.txt", "/run//etc/passwd",
        "/run/%2fetc%2fpasswd", f"/run/{RUN}%00", "/run/", "/run/latest", "/run/ab12", "/secret.txt",
        f"/run/{RUN}/log/run.json", "/%ff%fe", "/run/%ff",
    ],
)  # fmt: skip
def test_no_address_reads_files_outside_the_runs(server: ViewServer, path: str) -> None:
    answer = ask(server, path)
    assert answer.status == 404
    assert "nobody may read this" not in answer.body
    assert "All runs" in answer.body


def test_a_log_is_shown_but_a_link_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    case = "storage.write_throughput@agentmemory"
    failures = [
        Failure(case=case, round=number, reason="crash", message="gone", log=f"logs/{name}")
        for number, name in enumerate(["good.log", "linked.log", "../run.json"])
    ]
    folder = make_run(tmp_path, RUN, failures=failures)
    (folder / "logs").mkdir()
    (folder / "logs" / "good.log").write_text("it broke <b>here</b>")
    (tmp_path / "secret.txt").write_text("nobody may read this")
    (folder / "logs" / "linked.log").symlink_to(tmp_path / "secret.txt")
    with serving(tmp_path) as server:
        page = ask(server, f"/run/{RUN}").body
        assert page.count(">log</a>") == 1
        shown = ask(server, f"/run/{RUN}/log/good.log")
        assert "it broke &lt;b&gt;here&lt;/b&gt;" in shown.body
        assert ask(server, f"/run/{RUN}/log/linked.log").status == 404


def test_an_address_of_a_thousand_fields_is_refused(server: ViewServer) -> None:
    assert ask(server, "/?" + "&".join(f"a{n}=1" for n in range(1000))).status == 400


# -- what the browser may do with it ----------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["/", f"/run/{RUN}", "/history", "/nowhere", "/style.css", "/theme.js", "/live.js"]
)
def test_every_answer_has_the_security_headers(server: ViewServer, path: str) -> None:
    answer = ask(server, path)
    rules = dict(rule.split(" ", 1) for rule in answer.headers["content-security-policy"].split("; "))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == rules["style-src"] == "'self'"
    assert rules["frame-ancestors"] == rules["base-uri"] == "'none'"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    assert "access-control-allow-origin" not in answer.headers
    assert answer.headers["server"] == "membench"


def test_an_unchanged_page_is_not_sent_again(server: ViewServer) -> None:
    first = ask(server)
    again = ask(server, headers={"If-None-Match": first.headers["etag"]})
    assert (again.status, again.body) == (304, "")


def test_a_page_with_a_bug_says_so_and_the_others_still_work(
    server: ViewServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(_: object, address: str) -> object:
        raise ZeroDivisionError("<oh>")

    with monkeypatch.context() as patch:
        patch.setattr(type(server.app), "page", broken)
        answer = ask(server)
    assert answer.status == 500
    assert "ZeroDivisionError: &lt;oh&gt;" in answer.body
    assert "membench: view: /: ZeroDivisionError" in capsys.readouterr().err
    assert ask(server).status == 200


# -- the command ------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_server_stops_at_once_even_with_an_open_connection(
    tmp_path: Path, number: signal.Signals
) -> None:
    make_run(tmp_path, RUN)
    with viewing(tmp_path) as view:
        port = int(view.link.split(":")[2].partition("/")[0])
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
            assert b"403" in connection.recv(100)
            view.process.send_signal(number)
            out, err = view.process.communicate(timeout=20)
    assert view.process.returncode == 0
    assert err == ""
    assert "Traceback" not in out


def test_viewing_changes_no_file(tmp_path: Path) -> None:
    make_run(tmp_path, RUN)
    running = make_run(tmp_path, "20260801_101501_ab13", status="running")
    (running / ".lock").touch()
    before = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in tmp_path.rglob("*")}
    with serving(tmp_path) as server:
        for path in ("/", f"/run/{RUN}", "/run/20260801_101501_ab13", "/history"):
            assert ask(server, path).status == 200
    assert before == {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in tmp_path.rglob("*")}


def test_a_port_that_is_taken_is_named(server: ViewServer, tmp_path: Path) -> None:
    done = membench("view", "--no-open", "--port", server.server_port, cwd=tmp_path)
    assert done.code == 1
    assert f"port {server.server_port} can't be used" in done.error


@pytest.mark.parametrize("port", ["-1", "65536", "http", "１"])
def test_an_invalid_port_is_named(tmp_path: Path, port: str) -> None:
    done = membench("view", "--no-open", f"--port={port}", cwd=tmp_path)
    assert done.code == 1
    assert f"{port!r} is not a port" in done.error


def test_a_file_in_place_of_the_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = membench("view", "--no-open", "--output-dir", "file", cwd=tmp_path)
    assert (done.code, "file is a file" in done.error) == (1, True)


# -- damage -----------------------------------------------------------------------------------


DAMAGES = {
    "empty": lambda run: (run / "run.json").write_text(""),
    "cut short": lambda run: os.truncate(run / "run.json", 100),
    "not JSON": lambda run: (run / "run.json").write_bytes(b"\xff\xfe\x00 not json"),
    "another thing": lambda run: (run / "run.json").write_text('{"id": 3}'),
    "of the future": lambda run: (run / "run.json").write_text(
        (run / "run.json").read_text().replace(f'"format": {FORMAT}', '"format": 99')
    ),
    "wrong inside": lambda run: (run / "run.json").write_text(
        (run / "run.json")
        .read_text()
        .replace('"complete"', '"interrupted"')
        .replace('"moments": []', '"moments": 3')
    ),
    "a folder": lambda run: ((run / "run.json").unlink(), (run / "run.json").mkdir()),
    "no results": lambda run: shutil.rmtree(run / "storage"),
    "broken result": lambda run: next((run / "storage").glob("*.json")).write_text("{"),
}
READABLE = ("no results", "broken result")


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_run_is_shown_as_such(tmp_path: Path, name: str) -> None:
    run = make_run(tmp_path, "20260802_101500_dead")
    make_run(tmp_path, RUN)
    DAMAGES[name](run)
    with serving(tmp_path) as server:
        everything, page = ask(server), ask(server, f"/run/{run.name}")
    assert everything.status == page.status == 200
    assert RUN in everything.body
    assert run.name in everything.body
    assert (">damaged<" in everything.body) == (name not in READABLE)
    if name not in READABLE:
        assert "can&#x27;t be read" in page.body
    elif name == "broken result":
        assert "Left out: " in page.body


def test_a_missing_folder_counts_as_empty(tmp_path: Path) -> None:
    with serving(tmp_path / "later") as server:
        assert "There are no runs in" in ask(server).body
        make_run(tmp_path / "later", RUN)
        assert RUN in ask(server).body


def test_the_folder_of_one_run_can_be_viewed(tmp_path: Path) -> None:
    with serving(make_run(tmp_path, RUN)) as server:
        assert RUN in ask(server).body
        assert ask(server, f"/run/{RUN}").status == 200


def test_errors_are_pages(server: ViewServer) -> None:
    answer: Answer = ask(server, "/run/nowhere")
    assert "there is no run &#x27;nowhere&#x27;" in answer.body
    assert "<title>Not found" in answer.body


def test_two_hundred_pages_at_the_same_time_are_all_served(server: ViewServer) -> None:
    """With the usual queue of five connections the system drops many, and they wait for seconds.

    The server does not accept anything until all of them have asked, so no speed decides this.
    """
    pages = ("/", f"/run/{RUN}", "/history")
    with ViewServer(server.app.index.output_dir) as other, ExitStack() as stack:
        connections = []
        for number in range(200):
            sent = f"Host: 127.0.0.1:{other.server_port}\r\nCookie: {other.cookie}={other.token}\r\n"
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", other.server_port), 20))
            request = f"GET {pages[number % 3]} HTTP/1.1\r\n{sent}Connection: close\r\n\r\n"
            connection.sendall(request.encode())
            connections.append(connection)
        thread = threading.Thread(target=other.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            answers = [connection.recv(15) for connection in connections]
        finally:
            other.shutdown()
            thread.join()
    assert answers == [b"HTTP/1.1 200 OK"] * 200
