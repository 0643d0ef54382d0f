"""Servers that are described in a TOML file: `--target mcp=server.toml` and `--target http=server.toml`."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from membench import HERE, membench, write

from memory.benchmarking.conformance.suite import CHECKS
from memory.benchmarking.errors import InvalidBenchmarkConfig
from memory.benchmarking.targets import load_target, make_target
from memory.benchmarking.targets.base import Item

ANN = "ann"

MCP = f"""
[capabilities]
search_by = "words"
durability = "process"

[server]
command = ["{{python}}", "{HERE / "small_mcp_server.py"}", "{{folder}}/memories.json"]

[add]
tool = "remember"
arguments = {{ user = "{{agent}}", text = "{{text}}" }}
id = "number"

[search]
tool = "find"
arguments = {{ user = "{{agent}}", words = "{{query}}", most = "{{k}}" }}
hits = "found"
id = "number"
score = "shared"
content = "text"

[get]
tool = "recall"
arguments = {{ number = "{{id}}" }}
content = "memory.text"

[delete]
tool = "forget"
arguments = {{ number = "{{id}}" }}
"""

HTTP = """
[capabilities]
search_by = "words"
threads = true

[server]
url = "http://127.0.0.1:PORT/api"
headers = { Authorization = "Bearer $SMALL_TOKEN" }
ping = "/health"

[add]
path = "/users/{agent}/memories"
body = { memory = "{content}" }
id = "id"

[search]
path = "/users/{agent}/search"
body = { query = "{query}", limit = "{k}" }
hits = "hits"
id = "id"
score = "score"
content = "memory"

[get]
path = "/users/{agent}/memories/{id}"
content = "memory"

[update]
method = "PUT"
path = "/users/{agent}/memories/{id}"
body = { memory = "{content}" }

[delete]
method = "DELETE"
path = "/users/{agent}/memories/{id}"

[delete_all]
method = "DELETE"
path = "/users/{agent}/memories"
"""


class SmallHttpServer(BaseHTTPRequestHandler):
    """A small memory behind HTTP and JSON: any JSON as content, search by shared words."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    memories: dict[str, dict[str, Any]]
    lock = threading.Lock()
    last = 0

    def log_message(self, *_: object) -> None:
        pass

    def answer(self, status: int, body: Any) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def handle_request(self) -> None:
        size = int(self.headers.get("Content-Length", 0))
        given = json.loads(self.rfile.read(size)) if size else {}
        parts = [unquote(part) for part in self.path.split("/")]
        if self.headers.get("Authorization") != "Bearer 123":
            return self.answer(401, {"error": "no token"})
        with self.lock:
            return self.answer(*self.act(parts[2:], given))

    do_GET = do_POST = do_PUT = do_DELETE = handle_request  # noqa: N815

    def act(self, parts: list[str], given: Any) -> tuple[int, Any]:
        if parts == ["health"]:
            return 200, {}
        own = self.memories.setdefault(parts[1], {})
        id_ = parts[3] if len(parts) > 3 else ""
        if parts[2] == "search":
            words = set(given["query"].split())
            hits = [
                {"id": each, "memory": memory, "score": len(words & set(as_text(memory).split()))}
                for each, memory in own.items()
            ]
            return 200, {"hits": sorted(hits, key=lambda hit: -hit["score"])[: given["limit"]]}
        if self.command == "POST":
            type(self).last += 1
            own[f"m/{self.last}"] = given["memory"]
            return 201, {"id": f"m/{self.last}"}
        if self.command == "DELETE" and not id_:
            own.clear()
            return 200, {}
        if id_ not in own:
            return 404, {"error": f"no memory {id_}"}
        if self.command == "PUT":
            own[id_] = given["memory"]
        elif self.command == "DELETE":
            del own[id_]
        return 200, {"memory": own.get(id_)}


def as_text(memory: Any) -> str:
    return memory if isinstance(memory, str) else json.dumps(memory, ensure_ascii=False)


@pytest.fixture
def http_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ThreadingHTTPServer]:
    monkeypatch.setenv("SMALL_TOKEN", "123")
    SmallHttpServer.memories = {}
    with ThreadingHTTPServer(("127.0.0.1", 0), SmallHttpServer) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def http_description(http_server: ThreadingHTTPServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    text = HTTP.replace("PORT", str(http_server.server_port))
    return write(tmp_path_factory.mktemp("http") / "server.toml", text)


@pytest.fixture
def mcp_description(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("mcp") / "server.toml", MCP)


@pytest.fixture
def described(request: pytest.FixtureRequest) -> str:
    """Return the described server as written after `--target`."""
    return f"{request.param}={request.getfixturevalue(f'{request.param}_description')}"


@pytest.mark.parametrize("check", list(CHECKS))
@pytest.mark.parametrize("described", ["mcp", "http"], indirect=True)
def test_a_described_server_keeps_its_promises(described: str, check: str, tmp_path: Path) -> None:
    outcome = CHECKS[check].run(described, tmp_path / "check")
    if outcome.state == "does not apply":
        pytest.skip(outcome.reason)
    assert outcome.state == "kept", outcome


@pytest.mark.parametrize("described", ["mcp", "http"], indirect=True)
def test_the_transport_has_a_time_of_its_own(described: str, tmp_path: Path) -> None:
    target = make_target(described)
    target.open(tmp_path)
    assert 0 < (target.transport_ms() or 0) < 1000
    target.close()


def test_a_discarded_store_leaves_nothing_on_the_server(http_description: Path, tmp_path: Path) -> None:
    target = make_target(f"http={http_description}")
    target.open(tmp_path)
    target.add([Item(ANN, "one"), Item("bob", "two")])
    target.close()
    make_target(f"http={http_description}").discard(tmp_path)
    assert not any(SmallHttpServer.memories.values())


# -- errors -----------------------------------------------------------------------------------


def test_an_error_of_the_tool_is_an_error_with_its_text(mcp_description: Path, tmp_path: Path) -> None:
    write(mcp_description, MCP.replace('"remember"', '"rember"'))
    target = make_target(f"mcp={mcp_description}")
    target.open(tmp_path)
    with pytest.raises(RuntimeError, match="the tool rember failed: KeyError: 'no tool rember'"):
        target.add([Item(ANN, "text")])
    target.close()


def test_a_server_that_ends_is_an_error_with_what_it_printed(mcp_description: Path, tmp_path: Path) -> None:
    program = write(tmp_path / "broken.py", "raise SystemExit('no database')")
    write(mcp_description, MCP.replace(str(HERE / "small_mcp_server.py"), str(program)))
    with pytest.raises(RuntimeError, match="the MCP server ended at initialize: no database"):
        make_target(f"mcp={mcp_description}").open(tmp_path)


def test_an_http_error_is_an_error_with_the_answer(
    http_description: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SMALL_TOKEN", "wrong")
    target = make_target(f"http={http_description}")
    target.open(tmp_path)
    with pytest.raises(RuntimeError, match=r'POST /api/users/.* the server answered 401: .*"no token"'):
        target.add([Item(ANN, "text")])
    target.close()


def test_an_answer_without_the_part_is_an_error_with_the_answer(
    http_description: Path, tmp_path: Path
) -> None:
    write(http_description, http_description.read_text().replace('id = "id"', 'id = "memory.id"'))
    target = make_target(f"http={http_description}")
    target.open(tmp_path)
    with pytest.raises(RuntimeError, match=r"answer to \[add\] has no id at 'memory.id': \{\"id\": \"m/"):
        target.add([Item(ANN, "text")])
    target.close()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[add", "server.toml is not valid TOML: "),
        ("", r"server.toml needs a table \[add\] with id: see docs/described-servers.md"),
        (MCP.replace('hits = "found"', ""), r"server.toml needs a table \[search\] with hits"),
        (
            MCP.replace("[capabilities]", "[capabilities]\nfast = true"),
            r"\[capabilities\] has no 'fast': use ",
        ),
    ],
)
def test_the_error_names_what_is_wrong_in_the_description(text: str, message: str, tmp_path: Path) -> None:
    file = write(tmp_path / "server.toml", text)
    with pytest.raises(InvalidBenchmarkConfig, match=message):
        load_target(f"mcp={file}")


def test_a_description_is_needed(tmp_path: Path) -> None:
    with pytest.raises(InvalidBenchmarkConfig, match=r"server.toml can't be read: No such file"):
        load_target(f"http={tmp_path / 'server.toml'}")
    with pytest.raises(InvalidBenchmarkConfig, match=r"http needs a file: --target http=server.toml"):
        make_target("http").open(tmp_path)


def test_a_described_server_is_measured_and_its_transport_apart(
    mcp_description: Path, tmp_path: Path
) -> None:
    done = membench(
        "run", "--profile", "quick", "--benchmark", "storage.read_latency",
        "--target", f"mcp={mcp_description}", cwd=tmp_path,
    )  # fmt: skip
    assert done.code == 0, done.err
    (result,) = (tmp_path / "benchmark_results").rglob("read_latency*.json")
    assert '"transport_ms"' in result.read_text()
