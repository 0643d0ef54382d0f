"""A model behind any HTTP endpoint with OpenAI's chat completions interface.

    model = OpenAICompatibleModel("http://localhost:8000/v1", "my-model")

A call is retried after connection errors, timeouts, incomplete answers and the HTTP status codes 408, 409,
429 and 5xx. The wait before a retry grows exponentially, or is the time in `Retry-After`. A streamed answer
is passed to a callback piece by piece. After the first piece, there is no retry, because the callback can't
undo that piece.

The endpoint is not trusted. The time and the size of an answer are limited, certificates are always
checked, and an answer of the wrong form raises ModelError.
"""

from __future__ import annotations

import asyncio
import math
import os
import random
import ssl
import threading
import time
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any, Self
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

import msgspec

from memory.agents.context import Context
from memory.agents.errors import InvalidAgentInput, ModelError, ModelTimeout
from memory.agents.messages import ToolCall, checked, new_id, too_deep
from memory.agents.model import Model, Reply
from memory.errors import short

_RETRIED_STATUS = {408, 409, 429, *range(500, 600)}
"""HTTP status codes after which the same request can succeed."""
_MAX_WAIT_SECONDS = 30.0
"""The longest wait before a retry, even if `Retry-After` is longer: a caller waits for the answer."""
_MAX_ANSWER_BYTES = 64 * 2**20
"""The default size limit of an answer: a stream of 100,000 tokens takes about 25 MB."""
_ENCODINGS = ("", "identity", "gzip", "deflate")
"""The accepted content encodings. Decompression makes them at most about 1,000 times larger. A few
bytes of zstd or brotli can become gigabytes before the size can be checked."""
_MAX_INDEX = 10_000  # The highest `index` of a tool call in a stream: far more calls than any model makes
UNREADABLE = "unreadable JSON"
"""The name of the only argument of a call whose arguments are not valid JSON, or nested too deeply. No tool
has a parameter of that name, so the model gets an error result with its own text."""


class _IncompleteAnswer(ModelError):
    """The answer ended in the middle. A retry may succeed."""


class OpenAICompatibleModel(Model):
    """A model behind an HTTP endpoint. Several threads and event loops may share it.

    Args:
        base_url: the URL without "/chat/completions", such as "http://localhost:8000/v1".
        model: the name of the model at that endpoint.
        api_key: sent as a bearer token; by default the environment variable OPENAI_API_KEY.
        timeout_seconds: the time limit of a whole answer, streamed or not. Each retry has the same limit.
            The DNS lookup of the host is not limited.
        retries: how often a failed call is repeated at most.
        backoff_seconds: the longest wait before the first retry. This wait doubles with each further retry.
        stream: whether to stream the answer. With `on_text`, the answer is always streamed.
        on_text: called with each piece of the answer's text.
        options: further fields of the request, such as temperature or max_tokens.
        max_answer_bytes: a larger answer is refused with a ModelError; 64 MiB by default.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        api_key: str | None = None,
        timeout_seconds: float = 120.0,
        retries: int = 2,
        backoff_seconds: float = 0.5,
        stream: bool = False,
        on_text: Callable[[str], object] | None = None,
        options: dict[str, Any] | None = None,
        max_answer_bytes: int = _MAX_ANSWER_BYTES,
    ) -> None:
        if not _is_http(base_url):
            raise InvalidAgentInput(
                f"base_url is {short(base_url)}: use a URL such as http://localhost:8000/v1"
            )
        if retries < 0 or not timeout_seconds > 0 or not backoff_seconds >= 0:
            raise InvalidAgentInput(
                f"retries {retries}, timeout_seconds {timeout_seconds}, backoff_seconds {backoff_seconds}: "
                "use numbers ≥ 0, and a timeout above 0"
            )
        if max_answer_bytes < 1:
            raise InvalidAgentInput(f"max_answer_bytes is {short(max_answer_bytes)}: use a number ≥ 1")
        self.name = model
        self._url = base_url.rstrip("/") + "/chat/completions"
        self._key = api_key if api_key is not None else os.environ.get("OPENAI_API_KEY", "")
        if not (self._key.isascii() and (self._key.isprintable() or not self._key)):
            raise InvalidAgentInput(
                "api_key has characters that an HTTP header can't hold: copy the key again"
            )
        self._timeout = timeout_seconds
        self._retries = retries
        self._backoff = backoff_seconds
        self._stream = stream or on_text is not None
        self._on_text = on_text
        self._options = options or {}
        self._max_bytes = max_answer_bytes
        self._client: Any = None
        self._client_lock = threading.Lock()
        # A connection can only be used in its own event loop, so each loop has a client.
        self._async_clients: MutableMapping[asyncio.AbstractEventLoop, Any] = WeakKeyDictionary()

    def complete(self, context: Context) -> Reply:
        """Return the reply, or raise ModelError or ModelTimeout."""
        httpx = _load_httpx()
        with self._client_lock:
            if self._client is None:
                self._client = httpx.Client(**self._settings())
                _limit_reads(self._client)
            client = self._client
        body = self._body(context)
        for attempt in range(self._retries + 1):
            answer = self._new_answer()
            try:
                with (
                    _deadline(self._timeout) as left,
                    client.stream("POST", self._url, content=body, headers=self._headers()) as response,
                ):
                    answer.begin(response)
                    for piece in response.iter_bytes():
                        if answer.take(piece):
                            break
                        if left() <= 0:
                            raise httpx.ReadTimeout("")
                return answer.reply()
            except (httpx.HTTPError, ModelError) as problem:
                wait = self._seconds_to_retry(attempt, answer, problem)
                if wait is None:
                    raise self._as_model_error(problem) from None
            time.sleep(wait)
        raise AssertionError("the last attempt returns or raises")

    async def acomplete(self, context: Context) -> Reply:
        """Return the reply, or raise ModelError or ModelTimeout."""
        httpx = _load_httpx()
        loop = asyncio.get_running_loop()
        client = self._async_clients.get(loop)
        if client is None:
            client = self._async_clients[loop] = httpx.AsyncClient(**self._settings())
        body = self._body(context)
        for attempt in range(self._retries + 1):
            answer = self._new_answer()
            try:
                async with (
                    asyncio.timeout(self._timeout),
                    client.stream("POST", self._url, content=body, headers=self._headers()) as response,
                ):
                    answer.begin(response)
                    async for piece in response.aiter_bytes():
                        if answer.take(piece):
                            break
                return answer.reply()
            except (httpx.HTTPError, ModelError, TimeoutError) as problem:
                wait = self._seconds_to_retry(attempt, answer, problem)
                if wait is None:
                    raise self._as_model_error(problem) from None
            await asyncio.sleep(wait)
        raise AssertionError("the last attempt returns or raises")

    def close(self) -> None:
        """Close the connections of `complete`."""
        with self._client_lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    async def aclose(self) -> None:
        """Close the connections of `acomplete` in this event loop. Call it before the loop ends."""
        client = self._async_clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _settings(self) -> dict[str, Any]:
        # Plain HTTP needs no certificates, and loading them can take longer than a local model's answer.
        # The empty context trusts no certificate, so a TLS connection without a check is not possible.
        is_https = urlsplit(self._url).scheme == "https"  # urlsplit makes the scheme lower case
        return {
            "timeout": self._timeout,
            "verify": True if is_https else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
        }

    def _new_answer(self) -> _Answer:
        return _Answer(self._stream, self._on_text, self._max_bytes)

    def _body(self, context: Context) -> bytes:
        request = {"model": self.name, **context.to_openai(), **self._options, "stream": self._stream}
        return msgspec.json.encode(request)

    def _headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Accept-Encoding": "gzip, deflate"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        return headers

    def _seconds_to_retry(self, attempt: int, answer: _Answer, problem: Exception) -> float | None:
        """Return the seconds until the next attempt, or None if there must be no other attempt."""
        refused = isinstance(problem, ModelError) and not isinstance(problem, _IncompleteAnswer)
        is_final = refused and answer.status not in _RETRIED_STATUS
        if attempt >= self._retries or answer.passed_on or is_final:
            return None
        requested = _retry_after_seconds(answer.retry_after)
        if requested is not None:
            return min(requested, _MAX_WAIT_SECONDS)
        # Half of the wait is random, so that many clients do not retry at the same time.
        longest: float = min(self._backoff * 2**attempt, _MAX_WAIT_SECONDS)
        return longest * random.uniform(0.5, 1.0)

    def _as_model_error(self, problem: Exception) -> ModelError:
        if isinstance(problem, ModelError):
            return problem
        httpx = _load_httpx()
        if isinstance(problem, TimeoutError | httpx.TimeoutException):
            return ModelTimeout(f"{self._url} did not answer within {self._timeout:g} s")
        reason = " ".join(str(problem).split()) or type(problem).__name__
        return ModelError(f"{self._url} can't be reached or broke off: {reason}")


class _Answer:
    """The response of the endpoint: an error, one JSON document, or a stream of events."""

    def __init__(self, stream: bool, on_text: Callable[[str], object] | None, max_bytes: int) -> None:
        self.status = 0
        self.retry_after = ""
        self.passed_on = False
        """Whether a part of the answer was passed to `on_text`."""
        self._stream = stream
        self._on_text = on_text
        self._max_bytes = max_bytes
        self._read_bytes = 0
        self._unread = bytearray()
        self._streamed = _StreamedAnswer(self._pass_on)

    def begin(self, response: Any) -> None:
        """Read the status and the headers."""
        encoding = response.headers.get("content-encoding", "").strip().lower()
        if encoding not in _ENCODINGS:
            raise ModelError(
                f"the answer has the content encoding {short(encoding)}: only gzip and deflate were offered"
            )
        self.status = response.status_code
        self.retry_after = response.headers.get("retry-after", "")
        # Some servers do not support streams and answer with one document.
        if self.status != 200 or response.headers.get("content-type", "").startswith("application/json"):
            self._stream = False

    def take(self, data: bytes) -> bool:
        """Read some bytes of the body. Return whether the answer is complete."""
        self._read_bytes += len(data)
        if self._read_bytes > self._max_bytes:
            self._unread.clear()
            # A retry would most likely return the same answer, so set a status that is not retried.
            self.status = 200
            raise ModelError(f"the answer is larger than {self._max_bytes:,} bytes: raise max_answer_bytes")
        self._unread += data
        if not self._stream or b"\n" not in data:
            return False
        # Not `splitlines`: it also splits at other line separators, which a JSON text may contain.
        *lines, last = self._unread.split(b"\n")
        self._unread = last
        return any([self._streamed.take(bytes(line)) for line in lines])

    def reply(self) -> Reply:
        """Return the reply in the body, or raise ModelError."""
        if self.status != 200:
            message = _error_text(bytes(self._unread))
            raise ModelError(f"the model's endpoint answered {self.status}: {message}")
        if self._stream:
            self._streamed.take(bytes(self._unread))
            return self._streamed.reply()
        reply = _reply_of(bytes(self._unread))
        if reply.content:
            self._pass_on(reply.content)
        return reply

    def _pass_on(self, text: str) -> None:
        if self._on_text is not None:
            self.passed_on = True
            self._on_text(text)


@dataclass
class _StreamedAnswer:
    """The parts of a streamed answer that were read so far."""

    on_text: Callable[[str], object]
    text: list[str] = field(default_factory=list)
    calls: dict[int, dict[str, str]] = field(default_factory=dict)
    finish_reason: str = ""
    usage: dict[str, int] = field(default_factory=dict)
    ended: bool = False

    def take(self, line: bytes) -> bool:
        """Read one line of the event stream. Return whether the answer is complete."""
        if not line.startswith(b"data:") or self.ended:
            return self.ended
        data = line[5:].strip()
        if data == b"[DONE]":
            self.ended = True
            return True
        event = _decode_object(data)
        if event.get("error"):
            raise ModelError(f"the model broke off: {_error_message(event)}")
        try:
            self._take_event(event)
        except (KeyError, IndexError, TypeError, AttributeError):
            raise ModelError(f"the answer is not a chat completion: {short(event)}") from None
        return False

    def _take_event(self, event: dict[str, Any]) -> None:
        self.usage = _usage_of(event) or self.usage
        for choice in (event.get("choices") or [])[:1]:
            self.finish_reason = str(choice.get("finish_reason") or self.finish_reason)
            delta = choice.get("delta") or {}
            for part in delta.get("tool_calls") or []:
                # Some servers send complete calls without an index.
                index = part.get("index")
                number = len(self.calls) if index is None else index
                if type(number) is not int or not 0 <= number <= _MAX_INDEX:
                    raise ModelError(
                        f"a tool call of the answer has the index {short(number)}: it must be a whole "
                        f"number from 0 to {_MAX_INDEX:,}"
                    )
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
            raise _IncompleteAnswer("the answer broke off in the middle")
        calls = tuple(_call_of(self.calls[index]) for index in sorted(self.calls))
        return Reply("".join(self.text), calls, self.finish_reason or "stop", self.usage)


def _reply_of(body: bytes) -> Reply:
    answer = _decode_object(body)
    if answer.get("error") and not answer.get("choices"):
        raise ModelError(f"the model's endpoint answered: {_error_message(answer)}")
    try:
        choice = answer["choices"][0]
        message = choice["message"]
        calls = tuple(
            _call_of({"id": call.get("id"), **call["function"]}) for call in message.get("tool_calls") or []
        )
        content = _text_of(message.get("content"))
        return Reply(content, calls, str(choice.get("finish_reason") or "stop"), _usage_of(answer))
    except (KeyError, IndexError, TypeError, AttributeError):
        raise ModelError(f"the answer is not a chat completion: {short(answer)}") from None


def _text_of(content: Any) -> str:
    """Return the text of a content, which is a string, null, or a list of parts."""
    if isinstance(content, list):
        return "".join(part["text"] for part in content if part.get("type") == "text")
    if content is not None and not isinstance(content, str):
        raise TypeError
    return content or ""


def _call_of(call: dict[str, Any]) -> ToolCall:
    name = call.get("name")
    if not isinstance(name, str) or not name:
        raise ModelError(f"the model called a tool without a name: {short(call)}")
    encoded = call.get("arguments") or "{}"
    try:
        arguments = msgspec.json.decode(encoded) if isinstance(encoded, str) else encoded
    except (msgspec.DecodeError, RecursionError):
        arguments = None
    if too_deep(arguments):
        if not isinstance(encoded, str):
            raise ModelError(f"the arguments of the model's call of {short(name)} are nested too deeply")
        arguments = None
    if not isinstance(arguments, dict):
        arguments = {UNREADABLE: encoded if isinstance(encoded, str) else short(encoded)}
    id_ = call.get("id")
    try:
        return checked(lambda: ToolCall(id=str(id_) if id_ else new_id(), name=name, arguments=arguments))
    except InvalidAgentInput as problem:
        raise ModelError(f"the model's call of {short(name)} is not valid: {problem}") from None


def _usage_of(answer: dict[str, Any]) -> dict[str, int]:
    usage = answer.get("usage") or {}
    names = {"input_tokens": "prompt_tokens", "output_tokens": "completion_tokens"}
    return {ours: usage[theirs] for ours, theirs in names.items() if type(usage.get(theirs)) is int}


def _decode_object(body: bytes) -> dict[str, Any]:
    try:
        answer = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise ModelError(f"the answer is not JSON: {short(body[:200].decode(errors='replace'))}") from None
    if not isinstance(answer, dict):
        raise ModelError(f"the answer is not a chat completion: {short(answer)}")
    return answer


def _error_text(body: bytes) -> str:
    """Return the message in the body of an error response, or the body itself."""
    try:
        return _error_message(msgspec.json.decode(body))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return short(body.decode(errors="replace"))


def _error_message(answer: Any) -> str:
    """Return the message of an error document, in any of the usual forms."""
    error = answer.get("error", answer) if isinstance(answer, dict) else answer
    return short(error.get("message", error) if isinstance(error, dict) else error)


def _retry_after_seconds(retry_after: str) -> float | None:
    """Return the seconds of a Retry-After header, which holds seconds or a date; None if it is invalid."""
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
        parts = urlsplit(url if isinstance(url, str) else "")
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


# -- the time limit of calls that are not async -----------------------------------------------
#
# httpx limits each single read. A server that sends single bytes slowly would never reach that limit, not
# even in the headers. So the limit of each read and write is the time that is left for the whole answer.

_deadlines = threading.local()
_WRITE_BYTES = 65_536  # The most bytes of one write, so that the deadline is checked between writes


@contextmanager
def _deadline(seconds: float) -> Iterator[Callable[[], float]]:
    """Set a deadline for the connections of this thread. Yield a function that returns the seconds left."""
    end = _deadlines.end = time.monotonic() + seconds
    try:
        yield lambda: end - time.monotonic()
    finally:
        _deadlines.end = None


def _left(timeout: float | None, error: type[Exception]) -> float | None:
    """Return the time limit of one operation. Raise `error` if the deadline of this thread has passed."""
    end = getattr(_deadlines, "end", None)
    if end is None:
        return timeout
    seconds: float = end - time.monotonic()
    if seconds <= 0:
        raise error("")
    return seconds if timeout is None else min(timeout, seconds)


def _limit_reads(client: Any) -> None:
    """Make the connections of an `httpx.Client` respect `_deadline`.

    httpx has no public setting for this, so the code uses private attributes. If another version of httpx
    does not have them, the deadline is only checked after each piece of a body.
    """
    import httpcore

    class TimedStream(httpcore.NetworkStream):
        def __init__(self, stream: httpcore.NetworkStream) -> None:
            self._stream = stream

        def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
            return self._stream.read(max_bytes, _left(timeout, httpcore.ReadTimeout))

        def write(self, buffer: bytes, timeout: float | None = None) -> None:
            for start in range(0, len(buffer), _WRITE_BYTES):
                piece = buffer[start : start + _WRITE_BYTES]
                self._stream.write(piece, _left(timeout, httpcore.WriteTimeout))

        def close(self) -> None:
            self._stream.close()

        def start_tls(
            self,
            ssl_context: ssl.SSLContext,
            server_hostname: str | None = None,
            timeout: float | None = None,
        ) -> httpcore.NetworkStream:
            left = _left(timeout, httpcore.ConnectTimeout)
            return TimedStream(self._stream.start_tls(ssl_context, server_hostname, left))

        def get_extra_info(self, info: str) -> Any:
            return self._stream.get_extra_info(info)

    class TimedBackend(httpcore.NetworkBackend):
        def __init__(self, backend: httpcore.NetworkBackend) -> None:
            self._backend = backend

        def connect_tcp(
            self, host: str, port: int, timeout: float | None = None, *more: Any, **options: Any
        ) -> httpcore.NetworkStream:
            left = _left(timeout, httpcore.ConnectTimeout)
            return TimedStream(self._backend.connect_tcp(host, port, left, *more, **options))

        def connect_unix_socket(
            self, path: str, timeout: float | None = None, *more: Any, **options: Any
        ) -> httpcore.NetworkStream:
            left = _left(timeout, httpcore.ConnectTimeout)
            return TimedStream(self._backend.connect_unix_socket(path, left, *more, **options))

        def sleep(self, seconds: float) -> None:
            self._backend.sleep(seconds)

    # `_mounts` holds the transports of the proxies that environment variables set.
    for transport in (client._transport, *client._mounts.values()):
        pool: Any = getattr(transport, "_pool", None)
        backend = getattr(pool, "_network_backend", None)
        if backend is not None:
            pool._network_backend = TimedBackend(backend)


def _load_httpx() -> Any:
    try:
        import httpx
    except ImportError:
        raise ModelError("httpx is not installed: run `pip install 'agentmemory-tiers[agents]'`") from None
    return httpx
