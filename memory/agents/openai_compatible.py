"""A model behind any HTTP endpoint that speaks OpenAI's chat completions.

    model = OpenAICompatibleModel("http://localhost:8000/v1", "my-model")

Time-outs, retries with back-off (on connection errors, 408, 409, 429 and 5xx; `Retry-After` is heeded),
streaming with a callback for each piece of text.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from memory.agents.context import Context
from memory.agents.errors import InvalidAgentInput, ModelError, ModelTimeout
from memory.agents.messages import ToolCall, new_id
from memory.agents.model import Model, Reply
from memory.errors import short

_AGAIN = {408, 409, 429, 500, 502, 503, 504}
_LONGEST_WAIT = 30.0


class OpenAICompatibleModel(Model):
    """Asks an endpoint. The key comes from `api_key` or the environment's OPENAI_API_KEY."""

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
        if not base_url.startswith(("http://", "https://")):
            raise InvalidAgentInput(f"base_url is {short(base_url)}: it begins with http:// or https://")
        if retries < 0 or timeout_seconds <= 0 or backoff_seconds < 0:
            raise InvalidAgentInput(
                f"retries {retries}, timeout_seconds {timeout_seconds}, backoff_seconds {backoff_seconds}: "
                "use numbers that are not negative, and a time-out above 0"
            )
        self.name = model
        self._url = base_url.rstrip("/") + "/chat/completions"
        self._key = api_key if api_key is not None else os.environ.get("OPENAI_API_KEY", "")
        self._timeout = timeout_seconds
        self._retries = retries
        self._backoff = backoff_seconds
        self._stream = stream or on_text is not None
        self._on_text = on_text or (lambda text: None)
        self._options = options or {}
        self._client: Any = None
        self._async_clients: dict[int, Any] = {}

    def complete(self, context: Context) -> Reply:
        httpx = _load_httpx()
        if self._client is None:
            self._client = httpx.Client(timeout=self._timeout)
        body = self._body(context)
        for attempt in range(self._retries + 1):
            try:
                with self._client.stream(
                    "POST", self._url, content=body, headers=self._headers()
                ) as answer:
                    if answer.status_code == 200:
                        if self._stream:
                            return self._assembled(answer.iter_lines())
                        return _reply_of(answer.read())
                    answer.read()
                    problem = _status_problem(answer)
                    wait = self._wait(attempt, answer)
            except httpx.TimeoutException:
                problem, wait = self._too_late(), self._wait(attempt)
            except httpx.TransportError as cause:
                problem, wait = ModelError(f"{self._url} can't be reached: {cause}"), self._wait(attempt)
            if wait is None:
                raise problem
            time.sleep(wait)
        raise AssertionError("the last attempt returns or raises")

    async def acomplete(self, context: Context) -> Reply:
        httpx = _load_httpx()
        client = self._async_client(httpx)
        body = self._body(context)
        for attempt in range(self._retries + 1):
            try:
                async with client.stream(
                    "POST", self._url, content=body, headers=self._headers()
                ) as answer:
                    if answer.status_code == 200:
                        if self._stream:
                            return await self._aassembled(answer.aiter_lines())
                        return _reply_of(await answer.aread())
                    await answer.aread()
                    problem = _status_problem(answer)
                    wait = self._wait(attempt, answer)
            except httpx.TimeoutException:
                problem, wait = self._too_late(), self._wait(attempt)
            except httpx.TransportError as cause:
                problem, wait = ModelError(f"{self._url} can't be reached: {cause}"), self._wait(attempt)
            if wait is None:
                raise problem
            await asyncio.sleep(wait)
        raise AssertionError("the last attempt returns or raises")

    def close(self) -> None:
        """Release the connections of `complete`."""
        if self._client is not None:
            self._client.close()
            self._client = None

    async def aclose(self) -> None:
        """Release the connections of `acomplete` in this event loop."""
        client = self._async_clients.pop(id(asyncio.get_running_loop()), None)
        if client is not None:
            await client.aclose()

    def _async_client(self, httpx: Any) -> Any:
        """Connections belong to an event loop: one client for each."""
        key = id(asyncio.get_running_loop())
        if key not in self._async_clients:
            self._async_clients[key] = httpx.AsyncClient(timeout=self._timeout)
        return self._async_clients[key]

    def _body(self, context: Context) -> bytes:
        request = {"model": self.name, **context.to_openai(), **self._options}
        if self._stream:
            request["stream"] = True
        return msgspec.json.encode(request)

    def _headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        return headers

    def _wait(self, attempt: int, answer: Any = None) -> float | None:
        """Seconds until the next attempt; None where there is none or where it would not help."""
        if attempt >= self._retries or (answer is not None and answer.status_code not in _AGAIN):
            return None
        asked = answer.headers.get("retry-after", "") if answer is not None else ""
        if asked.replace(".", "", 1).isdigit():
            return min(float(asked), _LONGEST_WAIT)
        # Half of it at random, so that many clients do not come back at the same moment.
        longest: float = min(self._backoff * 2**attempt, _LONGEST_WAIT)
        return longest * random.uniform(0.5, 1.0)

    def _too_late(self) -> ModelTimeout:
        return ModelTimeout(f"{self._url} did not answer within {self._timeout:g} s")

    def _assembled(self, lines: Iterator[str]) -> Reply:
        pieces = _Pieces(self._on_text)
        for line in lines:
            if pieces.take(line):
                break
        return pieces.reply()

    async def _aassembled(self, lines: AsyncIterator[str]) -> Reply:
        pieces = _Pieces(self._on_text)
        async for line in lines:
            if pieces.take(line):
                break
        return pieces.reply()


@dataclass
class _Pieces:
    """A streamed answer while it comes in."""

    on_text: Callable[[str], object]
    text: list[str] = field(default_factory=list)
    calls: dict[int, dict[str, str]] = field(default_factory=dict)
    finish_reason: str = ""
    usage: dict[str, int] = field(default_factory=dict)
    ended: bool = False

    def take(self, line: str) -> bool:
        """One line of the event stream; whether it was the last."""
        if not line.startswith("data:"):
            return False
        data = line[5:].strip()
        if data == "[DONE]":
            self.ended = True
            return True
        event = _decoded(data.encode())
        if "error" in event:
            raise ModelError(f"the model broke off: {short(event['error'])}")
        self.usage = _usage_of(event) or self.usage
        for choice in event.get("choices", [])[:1]:
            self.finish_reason = choice.get("finish_reason") or self.finish_reason
            delta = choice.get("delta") or {}
            if delta.get("content"):
                self.text.append(delta["content"])
                self.on_text(delta["content"])
            for part in delta.get("tool_calls") or []:
                call = self.calls.setdefault(part.get("index", 0), {"id": "", "name": "", "arguments": ""})
                function = part.get("function") or {}
                call["id"] = part.get("id") or call["id"]
                call["name"] += function.get("name") or ""
                call["arguments"] += function.get("arguments") or ""
        return False

    def reply(self) -> Reply:
        if not self.ended and not self.finish_reason:
            raise ModelError("the answer broke off in the middle")
        calls = tuple(_call_of(self.calls[index]) for index in sorted(self.calls))
        return Reply("".join(self.text), calls, self.finish_reason or "stop", self.usage)


def _reply_of(body: bytes) -> Reply:
    answer = _decoded(body)
    try:
        choice = answer["choices"][0]
        message = choice["message"]
        calls = tuple(
            _call_of({"id": call.get("id") or "", **call["function"]})
            for call in message.get("tool_calls") or []
        )
    except (KeyError, IndexError, TypeError, AttributeError):
        raise ModelError(f"the answer is no chat completion: {short(answer)}") from None
    return Reply(
        message.get("content") or "", calls, choice.get("finish_reason") or "stop", _usage_of(answer)
    )


def _call_of(call: dict[str, Any]) -> ToolCall:
    text = call.get("arguments") or "{}"
    try:
        arguments = msgspec.json.decode(text)
    except msgspec.DecodeError:
        arguments = None
    if not isinstance(arguments, dict) or not call.get("name"):
        raise ModelError(f"the model's call of {short(call.get('name'))} is not JSON: {short(text)}")
    return ToolCall(id=call.get("id") or new_id(), name=call["name"], arguments=arguments)


def _usage_of(answer: dict[str, Any]) -> dict[str, int]:
    usage = answer.get("usage") or {}
    names = {"input_tokens": "prompt_tokens", "output_tokens": "completion_tokens"}
    return {ours: usage[theirs] for ours, theirs in names.items() if isinstance(usage.get(theirs), int)}


def _decoded(body: bytes) -> dict[str, Any]:
    try:
        answer = msgspec.json.decode(body)
    except msgspec.DecodeError:
        raise ModelError(f"the answer is not JSON: {short(body[:200].decode(errors='replace'))}") from None
    if not isinstance(answer, dict):
        raise ModelError(f"the answer is no chat completion: {short(answer)}")
    return answer


def _status_problem(answer: Any) -> ModelError:
    text = answer.text
    try:
        said = msgspec.json.decode(text)["error"]["message"]
    except (msgspec.DecodeError, KeyError, TypeError):
        said = text
    return ModelError(f"the model's endpoint answered {answer.status_code}: {short(said)}")


def _load_httpx() -> Any:
    try:
        import httpx
    except ImportError:
        raise ModelError("the HTTP model needs httpx: pip install 'agentmemory-tiers[agents]'") from None
    return httpx
