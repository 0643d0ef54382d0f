"""A model behind any HTTP endpoint that speaks OpenAI's chat completions.

    model = OpenAICompatibleModel("http://localhost:8000/v1", "my-model")

Time-outs, retries with back-off (on connection errors, time-outs, answers that break off, 408, 409, 429 and
5xx; `Retry-After` is heeded), streaming with a callback for each piece of text. What was given to the
callback can't be taken back: after the first piece nothing is tried again.
"""

from __future__ import annotations

import asyncio
import math
import os
import random
import threading
import time
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any, Self
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

import msgspec

from memory.agents.context import Context
from memory.agents.errors import InvalidAgentInput, ModelError, ModelTimeout
from memory.agents.messages import ToolCall, checked, new_id
from memory.agents.model import Model, Reply
from memory.errors import short

_AGAIN = {408, 409, 429, *range(500, 600)}
_LONGEST_WAIT = 30.0
UNREADABLE = "unreadable JSON"
"""The only argument of a call whose arguments could not be read. No tool takes it: the model is told so."""


class _BrokeOff(ModelError):
    """The answer ended in the middle: worth another try."""


class OpenAICompatibleModel(Model):
    """Asks an endpoint. The key comes from `api_key` or the environment's OPENAI_API_KEY.

    `timeout_seconds` is for a whole answer, or, where it is streamed, for the wait for the next piece.
    `options` are further fields of the request: temperature, max_tokens, stream_options and so on.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        api_key: str | None = None,
        timeout_seconds: float = 60.0,
        retries: int = 2,
        backoff_seconds: float = 0.5,
        stream: bool = False,
        on_text: Callable[[str], object] | None = None,
        options: dict[str, Any] | None = None,
    ) -> None:
        if not _is_http(base_url):
            raise InvalidAgentInput(f"base_url is {short(base_url)}: use http://… or https://… with a host")
        if retries < 0 or not timeout_seconds > 0 or not backoff_seconds >= 0:
            raise InvalidAgentInput(
                f"retries {retries}, timeout_seconds {timeout_seconds}, backoff_seconds {backoff_seconds}: "
                "use numbers that are not negative, and a time-out above 0"
            )
        self.name = model
        self._url = base_url.rstrip("/") + "/chat/completions"
        self._key = api_key if api_key is not None else os.environ.get("OPENAI_API_KEY", "")
        if not (self._key.isascii() and (self._key.isprintable() or not self._key)):
            raise InvalidAgentInput("the API key holds characters that no header can: copy it again")
        self._timeout = timeout_seconds
        self._retries = retries
        self._backoff = backoff_seconds
        self._stream = stream or on_text is not None
        self._on_text = on_text
        self._options = options or {}
        self._client: Any = None
        self._client_lock = threading.Lock()
        # Connections belong to an event loop: one client for each, which goes with it.
        self._async_clients: MutableMapping[asyncio.AbstractEventLoop, Any] = WeakKeyDictionary()

    def complete(self, context: Context) -> Reply:
        httpx = _load_httpx()
        with self._client_lock:
            if self._client is None:
                self._client = httpx.Client(**self._settings())
            client = self._client
        body = self._body(context)
        for attempt in range(self._retries + 1):
            answer = _Answer(self._stream, self._on_text)
            deadline = None if self._stream else time.monotonic() + self._timeout
            try:
                with client.stream("POST", self._url, content=body, headers=self._headers()) as response:
                    answer.begin(response)
                    for piece in response.iter_bytes():
                        if answer.take(piece):
                            break
                        if deadline is not None and time.monotonic() > deadline:
                            raise httpx.ReadTimeout("")
                return answer.reply()
            except (httpx.HTTPError, ModelError) as problem:
                wait = self._wait(attempt, answer, problem)
                if wait is None:
                    raise self._told(problem) from None
            time.sleep(wait)
        raise AssertionError("the last attempt returns or raises")

    async def acomplete(self, context: Context) -> Reply:
        httpx = _load_httpx()
        loop = asyncio.get_running_loop()
        client = self._async_clients.get(loop)
        if client is None:
            client = self._async_clients[loop] = httpx.AsyncClient(**self._settings())
        body = self._body(context)
        for attempt in range(self._retries + 1):
            answer = _Answer(self._stream, self._on_text)
            try:
                async with (
                    asyncio.timeout(None if self._stream else self._timeout),
                    client.stream("POST", self._url, content=body, headers=self._headers()) as response,
                ):
                    answer.begin(response)
                    async for piece in response.aiter_bytes():
                        if answer.take(piece):
                            break
                return answer.reply()
            except (httpx.HTTPError, ModelError, TimeoutError) as problem:
                wait = self._wait(attempt, answer, problem)
                if wait is None:
                    raise self._told(problem) from None
            await asyncio.sleep(wait)
        raise AssertionError("the last attempt returns or raises")

    def close(self) -> None:
        """Release the connections of `complete`."""
        with self._client_lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    async def aclose(self) -> None:
        """Release the connections of `acomplete` in this event loop: call it before the loop ends."""
        client = self._async_clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _settings(self) -> dict[str, Any]:
        # Reading the certificates takes longer than a local model's answer, and plain HTTP has none.
        return {"timeout": self._timeout, "verify": self._url.startswith("https:")}

    def _body(self, context: Context) -> bytes:
        request = {"model": self.name, **context.to_openai(), **self._options, "stream": self._stream}
        return msgspec.json.encode(request)

    def _headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        return headers

    def _wait(self, attempt: int, answer: _Answer, problem: Exception) -> float | None:
        """Seconds until the next attempt; None where there is none or where it would not help."""
        refused = isinstance(problem, ModelError) and not isinstance(problem, _BrokeOff)
        if attempt >= self._retries or answer.given_out or (refused and answer.status not in _AGAIN):
            return None
        asked = _seconds_of(answer.retry_after)
        if asked is not None:
            return min(asked, _LONGEST_WAIT)
        # Half of it at random, so that many clients do not come back at the same moment.
        longest: float = min(self._backoff * 2**attempt, _LONGEST_WAIT)
        return longest * random.uniform(0.5, 1.0)

    def _told(self, problem: Exception) -> ModelError:
        if isinstance(problem, ModelError):
            return problem
        httpx = _load_httpx()
        if isinstance(problem, TimeoutError | httpx.TimeoutException):
            return ModelTimeout(f"{self._url} did not answer within {self._timeout:g} s")
        said = " ".join(str(problem).split()) or type(problem).__name__
        return ModelError(f"{self._url} can't be reached or broke off: {said}")


class _Answer:
    """What comes in from the endpoint: an error, one JSON document, or a stream of events."""

    def __init__(self, stream: bool, on_text: Callable[[str], object] | None) -> None:
        self.status = 0
        self.retry_after = ""
        self.given_out = False
        """Whether the caller has seen a part of it."""
        self._stream = stream
        self._on_text = on_text
        self._rest = bytearray()
        self._pieces = _Pieces(self._said)

    def begin(self, response: Any) -> None:
        self.status = response.status_code
        self.retry_after = response.headers.get("retry-after", "")
        # Some servers know no streams and answer in one piece.
        if self.status != 200 or response.headers.get("content-type", "").startswith("application/json"):
            self._stream = False

    def take(self, data: bytes) -> bool:
        """Some bytes; whether they were the last that matter."""
        self._rest += data
        if not self._stream:
            return False
        # Not by `splitlines`: a text in JSON may hold signs that it takes for the end of a line.
        *lines, last = self._rest.split(b"\n")
        self._rest = last
        return any([self._pieces.take(bytes(line)) for line in lines])

    def reply(self) -> Reply:
        if self.status != 200:
            raise ModelError(f"the model's endpoint answered {self.status}: {_said_of(bytes(self._rest))}")
        if self._stream:
            self._pieces.take(bytes(self._rest))
            return self._pieces.reply()
        reply = _reply_of(bytes(self._rest))
        if reply.content:
            self._said(reply.content)
        return reply

    def _said(self, text: str) -> None:
        if self._on_text is not None:
            self.given_out = True
            self._on_text(text)


@dataclass
class _Pieces:
    """A streamed answer while it comes in."""

    on_text: Callable[[str], object]
    text: list[str] = field(default_factory=list)
    calls: dict[int, dict[str, str]] = field(default_factory=dict)
    finish_reason: str = ""
    usage: dict[str, int] = field(default_factory=dict)
    ended: bool = False

    def take(self, line: bytes) -> bool:
        """One line of the event stream; whether it was the last."""
        if not line.startswith(b"data:") or self.ended:
            return self.ended
        data = line[5:].strip()
        if data == b"[DONE]":
            self.ended = True
            return True
        event = _decoded(data)
        if event.get("error"):
            raise ModelError(f"the model broke off: {_message_of(event)}")
        try:
            self._take_event(event)
        except (KeyError, IndexError, TypeError, AttributeError):
            raise ModelError(f"the answer is no chat completion: {short(event)}") from None
        return False

    def _take_event(self, event: dict[str, Any]) -> None:
        self.usage = _usage_of(event) or self.usage
        for choice in (event.get("choices") or [])[:1]:
            self.finish_reason = choice.get("finish_reason") or self.finish_reason
            delta = choice.get("delta") or {}
            for part in delta.get("tool_calls") or []:
                # Some servers send whole calls without an index.
                index = part.get("index")
                number = len(self.calls) if index is None else index
                call = self.calls.setdefault(number, {"id": "", "name": "", "arguments": ""})
                function = part.get("function") or {}
                call["id"] = part.get("id") or call["id"]
                call["name"] += function.get("name") or ""
                call["arguments"] += function.get("arguments") or ""
            text = _text_of(delta.get("content"))
            if text:
                self.text.append(text)
                self.on_text(text)

    def reply(self) -> Reply:
        if not self.ended and not self.finish_reason:
            raise _BrokeOff("the answer broke off in the middle")
        calls = tuple(_call_of(self.calls[index]) for index in sorted(self.calls))
        return Reply("".join(self.text), calls, self.finish_reason or "stop", self.usage)


def _reply_of(body: bytes) -> Reply:
    answer = _decoded(body)
    if answer.get("error") and not answer.get("choices"):
        raise ModelError(f"the model's endpoint answered: {_message_of(answer)}")
    try:
        choice = answer["choices"][0]
        message = choice["message"]
        calls = tuple(
            _call_of({"id": call.get("id"), **call["function"]}) for call in message.get("tool_calls") or []
        )
        content = _text_of(message.get("content"))
        return Reply(content, calls, str(choice.get("finish_reason") or "stop"), _usage_of(answer))
    except (KeyError, IndexError, TypeError, AttributeError):
        raise ModelError(f"the answer is no chat completion: {short(answer)}") from None


def _text_of(content: Any) -> str:
    """A text, nothing, or a list of parts of which some are text."""
    if isinstance(content, list):
        return "".join(part["text"] for part in content if part.get("type") == "text")
    if content is not None and not isinstance(content, str):
        raise TypeError
    return content or ""


def _call_of(call: dict[str, Any]) -> ToolCall:
    name = call.get("name")
    if not isinstance(name, str) or not name:
        raise ModelError(f"the model calls a tool without a name: {short(call)}")
    given = call.get("arguments") or "{}"
    try:
        arguments = msgspec.json.decode(given) if isinstance(given, str) else given
    except msgspec.DecodeError:
        arguments = None
    if not isinstance(arguments, dict):
        arguments = {UNREADABLE: given if isinstance(given, str) else repr(given)}
    id_ = call.get("id")
    try:
        return checked(lambda: ToolCall(id=str(id_) if id_ else new_id(), name=name, arguments=arguments))
    except InvalidAgentInput as problem:
        raise ModelError(f"the model's call of {short(name)} can't be used: {problem}") from None


def _usage_of(answer: dict[str, Any]) -> dict[str, int]:
    usage = answer.get("usage") or {}
    names = {"input_tokens": "prompt_tokens", "output_tokens": "completion_tokens"}
    return {ours: usage[theirs] for ours, theirs in names.items() if type(usage.get(theirs)) is int}


def _decoded(body: bytes) -> dict[str, Any]:
    try:
        answer = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise ModelError(f"the answer is not JSON: {short(body[:200].decode(errors='replace'))}") from None
    if not isinstance(answer, dict):
        raise ModelError(f"the answer is no chat completion: {short(answer)}")
    return answer


def _said_of(body: bytes) -> str:
    try:
        return _message_of(msgspec.json.decode(body))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return short(body.decode(errors="replace"))


def _message_of(answer: Any) -> str:
    """What an error's document says, in whatever of the usual forms."""
    said = answer.get("error", answer) if isinstance(answer, dict) else answer
    return short(said.get("message", said) if isinstance(said, dict) else said)


def _seconds_of(retry_after: str) -> float | None:
    """Retry-After in seconds or as a date."""
    try:
        seconds = float(retry_after)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(retry_after).timestamp() - time.time()
        except ValueError:
            return None
    return max(seconds, 0.0) if math.isfinite(seconds) else None


def _is_http(url: object) -> bool:
    try:
        parts = urlsplit(url) if isinstance(url, str) else None
        return (
            parts is not None
            and parts.scheme in ("http", "https")
            and bool(parts.hostname)
            and parts.port != 0
        )
    except ValueError:
        return False


def _load_httpx() -> Any:
    try:
        import httpx
    except ImportError:
        raise ModelError("the HTTP model needs httpx: pip install 'agentmemory-tiers[agents]'") from None
    return httpx
