"""The HTTP model with a local server: answers, streams, errors and retries, sync and async."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import time
from email.utils import formatdate
from typing import Any

import pytest
import zstandard
from chat_server import (
    CERTIFICATE,
    Act,
    ChatServer,
    answers,
    breaks_off,
    completion,
    delta,
    drips,
    drips_events,
    drips_headers,
    hangs_up,
    never_answers,
    sends_without_end,
    serving,
    streams,
)

from memory.agents import (
    AgentRuntime,
    Context,
    ContextBuilder,
    Message,
    OpenAICompatibleModel,
    Reply,
    SessionStore,
    ToolRegistry,
)
from memory.agents.errors import InvalidAgentInput, ModelError, ModelTimeout
from memory.agents.openai_compatible import UNREADABLE

both_ways = pytest.mark.parametrize("how", ["sync", "async"])
FINE = answers(completion("hello"))
LOOK = {"index": 0, "function": {"name": "look"}}


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"a": value}
    return value


def some_context() -> Context:
    with SessionStore() as store:
        session = store.create("ann", messages=[Message(role="user", content="hi")])
        return ContextBuilder(store, system_prompt="Be brief.").build(session.id)


def ask(server: ChatServer | str, how: str, **options: Any) -> Reply:
    url = server if isinstance(server, str) else server.url
    options = {"api_key": "", "backoff_seconds": 0, "timeout_seconds": 30, **options}
    with OpenAICompatibleModel(url, "m", **options) as model:
        if how == "sync":
            return model.complete(some_context())

        async def main() -> Reply:
            async with model:
                return await model.acomplete(some_context())

        return asyncio.run(main())


def problem_of(server: ChatServer | str, how: str, **options: Any) -> ModelError:
    with pytest.raises(ModelError) as caught:
        ask(server, how, **options)
    assert "\n" not in str(caught.value)
    return caught.value


# -- answers ----------------------------------------------------------------------------------


@both_ways
def test_a_plain_answer_is_returned(how: str) -> None:
    usage = {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}
    with serving(answers(completion("größe", usage=usage, reason="length"))) as server:
        reply = ask(server, how, api_key="secret", options={"temperature": 0, "stream": True})
        assert reply == Reply("größe", (), "length", {"input_tokens": 7, "output_tokens": 2})
        assert server.requests == [
            {
                "model": "m",
                "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}],
                "temperature": 0,
                "stream": False,
            }
        ]
        assert (server.paths, server.keys) == (["/v1/chat/completions"], ["Bearer secret"])


@both_ways
def test_tool_calls_are_returned(how: str) -> None:
    calls = [("look", '{"where": ["here", 1]}'), ("look", ""), ("look", '{"where": '), ("look", "[1]")]
    with serving(answers(completion(None, *calls))) as server:
        reply = ask(server, how)
    assert [call.name for call in reply.tool_calls] == ["look"] * 4
    assert [call.id for call in reply.tool_calls] == ["call 0", "call 1", "call 2", "call 3"]
    assert [call.arguments for call in reply.tool_calls] == [
        {"where": ["here", 1]},
        {},
        {UNREADABLE: '{"where": '},
        {UNREADABLE: "[1]"},
    ]


@both_ways
@pytest.mark.parametrize("depth", [250, 900, 100_000])
@pytest.mark.parametrize("stream", [False, True])
def test_arguments_that_are_nested_too_deeply_are_unreadable(how: str, depth: int, stream: bool) -> None:
    text = '{"a": ' * depth + "1" + "}" * depth
    call = {"index": 0, "id": "x", "function": {"name": "look", "arguments": text}}
    act = streams(delta(tool_calls=[call])) if stream else answers(completion(None, ("look", text)))
    with serving(act) as server:
        (found,) = ask(server, how, stream=stream).tool_calls
    assert found.arguments == {UNREADABLE: text}


@both_ways
def test_the_forms_of_other_servers_are_understood(how: str) -> None:
    parts = completion(
        [{"type": "text", "text": "one "}, {"type": "image"}, {"type": "text", "text": "two"}]
    )
    with serving(answers(parts)) as server:
        assert ask(server, how).content == "one two"
    call = {"function": {"name": "look", "arguments": {"where": "here"}}}  # no id, not JSON
    with serving(answers({"choices": [{"message": {"tool_calls": [call]}}]})) as server:
        reply = ask(server, how)
    assert reply.tool_calls[0].arguments == {"where": "here"}
    assert reply.tool_calls[0].id
    with serving(FINE) as server:  # a server that answers a stream request with one document
        passed_on: list[str] = []
        assert ask(server, how, on_text=passed_on.append).content == "hello"
        assert (passed_on, server.requests[0]["stream"]) == (["hello"], True)


STREAM = [
    delta(role="assistant"),
    delta("Grö"),
    delta("ße, \u2028 and\u0085 more"),
    delta(tool_calls=[{"index": 0, "id": "a", "function": {"name": "look", "arguments": ""}}]),
    delta(tool_calls=[{"index": 1, "id": "b", "function": {"name": "find", "arguments": '{"x'}}]),
    delta(tool_calls=[{"index": 0, "function": {"arguments": '{"where": "h'}}]),
    delta(tool_calls=[{"index": 1, "function": {"arguments": '": 1}'}}]),
    delta(tool_calls=[{"index": 0, "function": {"arguments": 'ere"}'}}]),
    delta(reason="tool_calls"),
    {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 3}},
]


@both_ways
@pytest.mark.parametrize("piece", [1, 7, 10**6])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_a_stream_is_read_wherever_it_is_cut(how: str, piece: int, line_end: str) -> None:
    passed_on: list[str] = []
    with serving(streams(*STREAM, piece=piece, line_end=line_end)) as server:
        reply = ask(server, how, on_text=passed_on.append)
    assert reply.content == "Größe, \u2028 and\u0085 more"
    assert passed_on == ["Grö", "ße, \u2028 and\u0085 more"]
    assert [(call.id, call.name, call.arguments) for call in reply.tool_calls] == [
        ("a", "look", {"where": "here"}),
        ("b", "find", {"x": 1}),
    ]
    assert (reply.finish_reason, reply.usage) == ("tool_calls", {"input_tokens": 5, "output_tokens": 3})


@both_ways
def test_a_stream_may_end_without_a_done_event(how: str) -> None:
    with serving(streams(delta("all"), delta(reason="stop"), done=False)) as server:
        assert ask(server, how, stream=True).content == "all"  # it had sent a finish_reason
    with serving(
        streams(delta("hal"), done=False), streams(delta("whole"), delta(reason="stop"))
    ) as server:
        assert ask(server, how, stream=True).content == "whole"
        assert len(server.requests) == 2


# -- errors -----------------------------------------------------------------------------------


@both_ways
@pytest.mark.parametrize(
    "fault",
    [
        hangs_up,
        breaks_off,
        answers({"error": {"message": "overloaded"}}, 500),
        answers(b"<html>", 503),
        *(answers({}, status) for status in (501, 505, 520, 529, 599)),
        answers({}, 408),
        answers({}, 429, Retry_After="0"),
        answers({}, 429, Retry_After=formatdate(0)),
        answers({}, 429, Retry_After="²"),
        answers({}, 429, Retry_After="nan"),
    ],
)
def test_temporary_errors_are_retried(how: str, fault: Act) -> None:
    with serving(fault, fault, FINE) as server:
        assert ask(server, how).content == "hello"
        assert len(server.requests) == 3
    with serving(fault) as server:
        problem_of(server, how, retries=1)
        assert len(server.requests) == 2


@both_ways
def test_a_retry_waits_as_long_as_retry_after_says(how: str) -> None:
    with serving(answers({}, 429, Retry_After="0.3"), FINE) as server:
        start = time.monotonic()
        assert ask(server, how).content == "hello"
        assert time.monotonic() - start >= 0.3


@both_ways
@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (answers({"error": {"message": "no such model"}}, 400), "answered 400: 'no such model'"),
        (answers({"error": "bad key"}, 401), "answered 401: 'bad key'"),
        (answers(b"nothing\nhere", 404), "answered 404"),
        (answers(b"", 302), "answered 302"),
        (answers(b"{garbage"), "not JSON: '{garbage'"),
        (answers(b"\xff\xfe"), "not JSON"),
        (answers(b""), "not JSON"),
        (answers(b"[" * 100_000), "not JSON"),
        (answers([1]), "not a chat completion"),
        (answers({}), "not a chat completion"),
        (answers({"error": {"message": "inside a 200"}}), "inside a 200"),
        (answers({"choices": []}), "not a chat completion"),
        (answers({"choices": [None]}), "not a chat completion"),
        (answers({"choices": [{"message": None}]}), "not a chat completion"),
        (answers({"choices": [{"message": {"content": 3}}]}), "not a chat completion"),
        (answers({"choices": [{"message": {"tool_calls": [{"id": "x"}]}}]}), "not a chat completion"),
        (answers({"choices": [{"message": {"tool_calls": 3}}]}), "not a chat completion"),
        (answers({**completion("x"), "usage": 3}), "not a chat completion"),
        (answers(completion(None, ("", "{}"))), "without a name"),
        (answers(completion(None, ("look", nested(300)))), "nested too deeply"),  # type: ignore[arg-type]
        (answers(b"not gzip", Content_Encoding="gzip"), "broke off"),
    ],
)
def test_an_invalid_answer_is_not_retried(how: str, fault: Act, message: str) -> None:
    with serving(fault) as server:
        assert message in str(problem_of(server, how, retries=0 if message == "broke off" else 2))
        assert len(server.requests) == 1


@both_ways
@pytest.mark.parametrize(
    ("events", "message"),
    [
        ([delta("a"), {"error": {"message": "overloaded"}}], "broke off: 'overloaded'"),
        (["{garbage"], "not JSON"),
        (["3"], "not a chat completion"),
        ([{"choices": 3}], "not a chat completion"),
        ([{"choices": [3]}], "not a chat completion"),
        ([delta(tool_calls=3)], "not a chat completion"),
        ([{"choices": [{"delta": {"content": 3}}]}], "not a chat completion"),
        (
            [delta(tool_calls=[{"index": 0, "function": {"arguments": {}, "name": 3}}])],
            "not a chat completion",
        ),
        ([delta(tool_calls=[{"index": 0, "function": {"arguments": "{}"}}])], "without a name"),
        *(
            ([delta(tool_calls=[{"index": index, "function": {"name": "look"}}, LOOK])], "has the index")
            for index in ("1", 1.5, True, [1], {}, -1, 10**30)
        ),
    ],
)
def test_an_invalid_stream_is_not_retried(how: str, events: list[Any], message: str) -> None:
    with serving(streams(*events)) as server:
        assert message in str(problem_of(server, how, stream=True))
        assert len(server.requests) == 1


@both_ways
def test_an_incomplete_stream_is_retried_unless_a_part_was_passed_on(how: str) -> None:
    broken = streams(delta("half an ans"), done=False, close=True)
    whole = streams(delta("whole"), delta(reason="stop"))
    with serving(broken, whole) as server:
        assert ask(server, how, stream=True).content == "whole"
    for end in (broken, streams(delta("half an ans"), done=False)):
        passed_on: list[str] = []
        with serving(end, whole) as server:
            assert "broke off" in str(problem_of(server, how, on_text=passed_on.append))
            assert (passed_on, len(server.requests)) == (["half an ans"], 1)
    with serving(streams(done=False, close=True), whole) as server:  # no text was passed on yet
        passed_on = []
        assert ask(server, how, on_text=passed_on.append).content == "whole"
        assert passed_on == ["whole"]


@both_ways
@pytest.mark.parametrize(
    ("fault", "stream"),
    [
        (never_answers, False),
        (never_answers, True),
        (drips, False),
        (drips_headers, False),
        (drips_headers, True),
        (drips_events, True),
    ],
)
def test_a_late_answer_raises_model_timeout(how: str, fault: Act, stream: bool) -> None:
    with serving(fault) as server:
        problem = problem_of(server, how, timeout_seconds=0.2, retries=1, stream=stream)
        assert isinstance(problem, ModelTimeout)
        assert "did not answer within 0.2 s" in str(problem)
        assert len(server.requests) == 2


@both_ways
def test_a_stream_that_drips_ends_at_the_limit_after_a_part_was_passed_on(how: str) -> None:
    def text_then_drips(handler: Any) -> None:
        handler.begin(200, Content_Type="text/event-stream", Transfer_Encoding="chunked")
        while not handler.server.given_up.wait(0.02):
            handler.chunk(b"data: " + json.dumps(delta("a")).encode() + b"\n\n")

    passed_on: list[str] = []
    with serving(text_then_drips) as server:
        problem = problem_of(server, how, timeout_seconds=0.3, on_text=passed_on.append)
        assert isinstance(problem, ModelTimeout)
        assert set(passed_on) == {"a"}
        assert len(server.requests) == 1


@both_ways
@pytest.mark.parametrize(
    ("piece", "stream", "headers"),
    [
        (b" " * 65_536, False, {"Content_Type": "application/json"}),
        (b"x" * 65_536, True, {"Content_Type": "text/event-stream"}),  # one line without end
        (b": a comment\n" * 1000, True, {"Content_Type": "text/event-stream"}),
        (b"data: {}\n\n" * 1000, True, {"Content_Type": "text/event-stream"}),
    ],
)
def test_an_answer_without_end_is_refused(
    how: str, piece: bytes, stream: bool, headers: dict[str, str]
) -> None:
    with serving(lambda handler: sends_without_end(handler, piece, **headers)) as server:
        problem = problem_of(server, how, stream=stream, max_answer_bytes=300_000)
        assert "larger than 300,000 bytes: raise max_answer_bytes" in str(problem)
        assert len(server.requests) == 1


@both_ways
def test_an_answer_of_exactly_the_limit_is_accepted(how: str) -> None:
    body = json.dumps(completion("hello")).encode()
    with serving(answers(body)) as server:
        assert ask(server, how, max_answer_bytes=len(body)).content == "hello"
        assert "larger than" in str(problem_of(server, how, max_answer_bytes=len(body) - 1))


@both_ways
def test_a_compressed_answer_is_limited_by_its_real_size(how: str) -> None:
    bomb = gzip.compress(b" " * 10_000_000)
    with serving(answers(bomb, Content_Encoding="gzip")) as server:
        assert "larger than" in str(problem_of(server, how, max_answer_bytes=1_000_000))
    for encoding in ("zstd", "br", "gzip, gzip"):
        with serving(answers(zstandard.compress(b" " * 10**8), Content_Encoding=encoding)) as server:
            problem = problem_of(server, how)
            assert f"content encoding {encoding!r}" in str(problem)
            assert len(server.requests) == 1


@both_ways
@pytest.mark.parametrize("scheme", ["https", "HTTPS", "hTTps"])
def test_a_certificate_that_nobody_signed_is_refused(
    how: str, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(FINE, tls=True) as server:
        url = server.url.replace("http", scheme)
        problem = problem_of(url, how, api_key="secret", retries=0)
        assert "certificate verify failed" in str(problem)
        assert server.keys == []
        # The same server with a trusted certificate: it was the check that refused it.
        monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
        assert ask(url, how, api_key="secret").content == "hello"
        assert server.keys == ["Bearer secret"]


@both_ways
def test_an_unreachable_endpoint_raises_model_error(how: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound but not listening: connections are refused
        problem = problem_of(f"http://127.0.0.1:{taken.getsockname()[1]}", how)
    assert "can't be reached" in str(problem)


def test_invalid_settings_are_refused() -> None:
    for url in ("localhost", "ftp://x", "http://", "http://x:99999", 3):
        with pytest.raises(InvalidAgentInput, match="base_url"):
            OpenAICompatibleModel(url, "m")  # type: ignore[arg-type]
    for wrong in (
        {"retries": -1},
        {"timeout_seconds": 0},
        {"backoff_seconds": -1},
        {"max_answer_bytes": 0},
    ):
        with pytest.raises(InvalidAgentInput):
            OpenAICompatibleModel("http://x", "m", **wrong)
    with pytest.raises(InvalidAgentInput) as caught:
        OpenAICompatibleModel("http://x", "m", api_key="my secret\n")
    assert "secret" not in str(caught.value)


# -- in the loop ------------------------------------------------------------------------------


@both_ways
def test_an_agent_uses_a_tool_through_http(how: str) -> None:
    registry = ToolRegistry()

    @registry.tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    usage = {"prompt_tokens": 5, "completion_tokens": 1}
    script = [
        answers(
            completion(None, ("add", '{"a": 1, "b'), usage=usage)
        ),  # cut off: the model gets an error result and corrects itself
        answers(
            completion("Let me see.", ("add", '{"a": 1, "b": 2}'), ("add", '{"a": 3, "b": 4}'), usage=usage)
        ),
        answers(completion("3 and 7", usage=usage)),
    ]
    with (
        serving(*script) as server,
        SessionStore() as store,
        OpenAICompatibleModel(server.url, "m", api_key="") as model,
    ):
        runtime = AgentRuntime("ann", model, sessions=store, tools=registry)

        async def main() -> Any:
            async with model:
                return await runtime.ainvoke("sums?")

        invocation = runtime.invoke("sums?") if how == "sync" else asyncio.run(main())
        assert (invocation.answer, invocation.stopped_by, invocation.steps) == ("3 and 7", "answer", 3)
        assert invocation.usage == {"input_tokens": 15, "output_tokens": 3}
        sent = server.requests[-1]["messages"]
        assert [message["role"] for message in sent] == [
            "user",
            "assistant",
            "tool",
            "assistant",
            "tool",
            "tool",
        ]
        assert [message["content"] for message in sent[4:]] == ["3", "7"]
        assert UNREADABLE in sent[2]["content"]
        assert server.requests[-1]["tools"][0]["function"]["name"] == "add"


def test_many_calls_run_concurrently_in_one_event_loop() -> None:
    with serving(FINE) as server, OpenAICompatibleModel(server.url, "m", api_key="") as model:

        async def main() -> list[Reply]:
            async with model:
                return await asyncio.gather(*(model.acomplete(some_context()) for _ in range(20)))

        assert [reply.content for reply in asyncio.run(main())] == ["hello"] * 20
        assert [reply.content for reply in asyncio.run(main())] == ["hello"] * 20  # another loop
        assert len(server.requests) == 40
