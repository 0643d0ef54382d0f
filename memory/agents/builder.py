"""What a model gets to see: system prompt, memories, other sessions, history and tools, within a budget.

    system prompt │ what the memory knows of the question │ recent sessions │ history … newest message
    ───────────────────────────────── tokens ≤ budget ─────────────────────────────────── + tools

The order never changes. A message is in or out, never cut; a tool's result never stands without its call,
nor a call without its results. The user's newest message is always in; if there is no room for all that
came after it, the newest of that is. What was left out is told in `left_out`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import lru_cache
from heapq import heappush, heappushpop
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import msgspec

from memory.agents.context import Context, LeftOut
from memory.agents.errors import BudgetTooSmall, InvalidAgentInput
from memory.agents.history import History, MessageGroup, newest_that_fit
from memory.agents.messages import Message
from memory.agents.sessions import SessionStore
from memory.agents.tools import Tool, ToolRegistry

if TYPE_CHECKING:
    from memory.entry import Hit
    from memory.system import AgentMemorySystem

TOKEN_BUDGET = 8000
MESSAGE_TOKENS = 4
"""What a message costs besides its text."""
_LINE_TOKENS = 3
"""What a line of the system text costs besides its text: "- " and the line's end."""
_MEMORIES = "What you remember:"
_SESSIONS = "Other conversations:"
_RECENCY_SHARE = 0.2
_IMPORTANCE_SHARE = 0.2
_DAY = 24 * 3600.0
_MOST_SESSIONS_CACHED = 256
_MOST_COUNTS_CACHED = 8192
_LONGEST_COUNT_CACHED = 4096  # characters
_MOST_LOOKED_AT = 16
"""Hits at most for each memory that is wanted: question, tool result and answer often say the same."""
_CHUNK = 64


class _Line(msgspec.Struct, frozen=True):
    """A line of the system text, and what it is about: a hit of the memory, or another session."""

    text: str
    tokens: int
    about: Any


class _Block(msgspec.Struct, frozen=True):
    """A heading and its lines, as a part of the system text."""

    text: str = ""
    tokens: int = 0
    lines: tuple[_Line, ...] = ()


_NOTHING = _Block()


class _Found(msgspec.Struct, frozen=True):
    """What memory and sessions had to say to one message of the user."""

    question_id: str
    agent_id: str
    memories: tuple[_Line, ...]
    sessions: tuple[_Line, ...]


class _Cached(History):
    """What is kept of a session from one context to the next."""

    found: _Found | None = None


class ContextBuilder:
    """Builds contexts for an agent's sessions; may be used by several threads.

    Only the end of a history is read, as far as the budget reaches, and each message once: after one new
    message only that one is read and counted. What the memory and the other sessions say is looked up anew
    for each message of the user, and stays for the tool calls that follow it.
    """

    def __init__(
        self,
        sessions: SessionStore,
        memory: AgentMemorySystem | None = None,
        tools: ToolRegistry | None = None,
        *,
        system_prompt: str = "",
        token_budget: int = TOKEN_BUDGET,
        memories: int = 5,
        recent_sessions: int = 0,
        memory_share: float = 0.25,
        count_tokens: Callable[[str], int] | None = None,
    ) -> None:
        if token_budget < 1 or memories < 0 or recent_sessions < 0 or not 0 <= memory_share <= 1:
            raise InvalidAgentInput(
                f"token_budget {token_budget}, memories {memories}, recent_sessions {recent_sessions}, "
                f"memory_share {memory_share}: use a budget ≥ 1, counts ≥ 0 and a share from 0 to 1"
            )
        self.system_prompt = system_prompt
        self.token_budget = token_budget
        self.sessions = sessions
        self.memory = memory
        self.tools = ToolRegistry() if tools is None else tools
        self._most_memories = memories
        self._most_sessions = recent_sessions
        self._memory_share = memory_share
        self._count = _default_counter() if count_tokens is None else _remembering(count_tokens)
        self._lock = threading.Lock()
        self._cached: dict[str, _Cached] = {}
        self._prompt_tokens: tuple[str, int] | None = None
        self._tool_tokens: tuple[tuple[object, ...], tuple[Tool, ...], int] | None = None
        self._session_lines: dict[str, tuple[object, _Line]] = {}

    def build(self, session_id: str, agent_id: str | None = None) -> Context:
        """The context for the next step of a session."""
        with self._lock:
            cached = self._cached.pop(session_id, None)  # so that no other thread changes it meanwhile
        cached = self._brought_up_to_date(session_id, cached)
        context = self._assembled(session_id, agent_id, cached)
        with self._lock:
            while len(self._cached) >= _MOST_SESSIONS_CACHED:
                del self._cached[next(iter(self._cached))]
            self._cached[session_id] = cached  # at the end: the one that was used last is dropped last
        return context

    def _assembled(self, session_id: str, agent_id: str | None, cached: _Cached) -> Context:
        tools, tool_tokens = self._tool_part()
        fixed = self._prompt_part() + tool_tokens
        usable = [unit for unit in cached.units if unit.whole]
        must = [cached.question] if cached.question is not None else []
        if usable and usable[-1] is not cached.question:
            must.append(usable[-1])
        must_tokens = sum([unit.tokens for unit in must])
        room = self.token_budget - fixed - must_tokens
        if room < 0:
            raise BudgetTooSmall(
                f"token_budget is {self.token_budget}: the system prompt, the tools, the newest question "
                f"and the newest message take {fixed + must_tokens}"
            )
        memories, others = self._system_parts(session_id, agent_id, cached, usable, room)
        chosen = newest_that_fit(
            usable, must, room - memories.tokens - others.tokens, whole_session=not cached.first
        )
        messages = tuple(chain.from_iterable([unit.messages for unit in chosen]))
        found = cached.found
        return Context(
            system="\n\n".join([part for part in (self.system_prompt, memories.text, others.text) if part]),
            messages=messages,
            tools=tools,
            tokens=fixed + memories.tokens + others.tokens + sum([unit.tokens for unit in chosen]),
            left_out=LeftOut(
                cached.known - len(messages),
                len(found.memories) - len(memories.lines) if found else 0,
                len(found.sessions) - len(others.lines) if found else 0,
            ),
            memories=tuple([line.about for line in memories.lines]),
        )

    def forget(self, session_id: str) -> None:
        """Drop what is cached of a session."""
        with self._lock:
            self._cached.pop(session_id, None)
            self._session_lines.pop(session_id, None)

    # -- the history --------------------------------------------------------------------------

    def _brought_up_to_date(self, session_id: str, cached: _Cached | None) -> _Cached:
        if cached is not None:
            created_at, new = self.sessions.news(session_id, cached.known)
            if created_at != cached.created_at or (cached.first and cached.tokens < self.token_budget):
                cached = None  # another session with the same id; or the budget has grown
            else:
                cached.take(new, self._message_tokens)
        if cached is None:
            cached = self._read(session_id)
        cached.shed(self.token_budget)
        return cached

    def _read(self, session_id: str) -> _Cached:
        """From the end backwards, until the budget is spent and a message of the user is among it."""
        written = self.sessions.just_written(session_id, 0)
        if written is not None:
            cached = _Cached(written[0], 0)
            cached.take(written[1], self._message_tokens)
            return cached
        session = self.sessions.get(session_id)
        first, chunk = session.message_count, _CHUNK
        messages: list[Message] = []
        cached = _Cached(session.created_at, first)
        while first and (
            cached.tokens < self.token_budget or cached.question is None or messages[0].role == "tool"
        ):
            start = max(0, first - chunk)
            messages[:0] = self.sessions.messages(session_id, start=start, stop=first)
            first, chunk = start, chunk * 4
            cached = _Cached(session.created_at, first)
            cached.take(messages, self._message_tokens)
        return cached

    def _message_tokens(self, message: Message) -> int:
        tokens = MESSAGE_TOKENS + self._count(message.content)
        for call in message.tool_calls:
            tokens += MESSAGE_TOKENS + self._count(
                f"{call.name} {msgspec.json.encode(call.arguments).decode()}"
            )
        return tokens

    # -- the other parts ----------------------------------------------------------------------

    def _prompt_part(self) -> int:
        known = self._prompt_tokens
        if known is None or known[0] != self.system_prompt:
            known = (self.system_prompt, MESSAGE_TOKENS + self._count(self.system_prompt))
            self._prompt_tokens = known
        return known[1]

    def _tool_part(self) -> tuple[tuple[Tool, ...], int]:
        state = self.tools.state
        known = self._tool_tokens
        if known is None or known[0] != state:
            tools = tuple(self.tools.tools())
            schemas = (
                f"{tool.name} {tool.description} {msgspec.json.encode(tool.parameters).decode()}"
                for tool in tools
            )
            known = (state, tools, sum(MESSAGE_TOKENS + self._count(schema) for schema in schemas))
            self._tool_tokens = known
        return known[1], known[2]

    def _system_parts(
        self,
        session_id: str,
        agent_id: str | None,
        cached: _Cached,
        usable: Sequence[MessageGroup],
        room: int,
    ) -> tuple[_Block, _Block]:
        """What is known to the question, as far as its share of the room goes."""
        asks_memory = self.memory is not None and self._most_memories
        if cached.question is None or not (asks_memory or self._most_sessions):
            cached.found = None
            return _NOTHING, _NOTHING
        share = int(room * self._memory_share)
        question = cached.question.messages[0]
        found = cached.found
        if found is None or found.question_id != question.id or agent_id not in (None, found.agent_id):
            agent = agent_id or self.sessions.get(session_id).agent_id
            visible = newest_that_fit(
                usable, [cached.question], room - share, whole_session=not cached.first
            )
            seen = {message.id for unit in visible for message in unit.messages}
            found = _Found(
                question.id,
                agent,
                self._memory_lines(agent, question.content, seen),
                self._other_sessions(agent, session_id),
            )
            cached.found = found
        memories = self._block(_MEMORIES, found.memories, share)
        return memories, self._block(_SESSIONS, found.sessions, share - memories.tokens)

    def _memory_lines(self, agent_id: str, question: str, seen: set[str]) -> tuple[_Line, ...]:
        """The best memories: each text once, and nothing that the history shows anyway."""
        wanted = self._most_memories
        if self.memory is None or not wanted or not question.strip():
            return ()
        now = self.memory.clock.now()
        said = {_as_text(question)}
        fresh: list[tuple[float, str, Hit]] = []
        best: list[float] = []  # a heap of the weights of those that will be chosen, as it looks so far
        for hit in self.memory.iter_search(agent_id, question, wanted * _MOST_LOOKED_AT):
            # Hits come best score first: none that follows can weigh more than this one could.
            if len(best) == wanted and hit.score + _RECENCY_SHARE + _IMPORTANCE_SHARE < best[0]:
                break
            text = _as_text(hit.entry.content)
            if text not in said and hit.id not in seen:
                weight = _weight(hit, now)
                fresh.append((weight, text, hit))
                if len(best) < wanted:
                    heappush(best, weight)
                else:
                    heappushpop(best, weight)
            said.add(text)
        fresh.sort(key=itemgetter(0), reverse=True)
        return tuple([self._line(text, hit) for _, text, hit in fresh[:wanted]])

    def _other_sessions(self, agent_id: str, current: str) -> tuple[_Line, ...]:
        """The newest message of each of the sessions that were used last; read again if it is another."""
        if not self._most_sessions:
            return ()
        rows = self.sessions.recent(agent_id, self._most_sessions + 1)
        others = [row for row in rows if row[0] != current][: self._most_sessions]
        with self._lock:
            known = [(row, self._session_lines.get(row[0])) for row in others]
        lines = {row[0]: about for row, about in known if about is not None and about[0] == row}
        missing = [row for row in others if row[0] not in lines]
        last = self.sessions.last_messages([row[0] for row in missing]) if missing else {}
        for row in missing:
            id, title, *_ = row
            if id in last:
                lines[id] = (row, self._line(f"{title or id}: {_as_text(last[id].content)}", id))
        with self._lock:
            kept = self._session_lines
            for id, about in lines.items():
                kept.pop(id, None)
                kept[id] = about  # at the end: the one that was used last is dropped last
            while len(kept) > max(_MOST_SESSIONS_CACHED, 2 * self._most_sessions):
                del kept[next(iter(kept))]
        return tuple([lines[row[0]][1] for row in others if row[0] in lines])

    def _line(self, text: str, about: Any) -> _Line:
        return _Line(f"- {text}", self._count(text) + _LINE_TOKENS, about)

    def _block(self, head: str, lines: Sequence[_Line], room: int) -> _Block:
        """The first ones first; one that is too long does not keep out the shorter ones after it."""
        if not lines:
            return _NOTHING
        tokens = self._count(head) + 2  # and the empty line before it
        kept = []
        for line in lines:
            if tokens + line.tokens <= room:
                tokens += line.tokens
                kept.append(line)
        if not kept:
            return _NOTHING
        return _Block("\n".join([head, *[line.text for line in kept]]), tokens, tuple(kept))


def _weight(hit: Hit, now: float) -> float:
    """Its score first of all; recency and importance decide between like ones.

    A score is a sum of standard scores, of words and of meaning: each of the two adds up to a fifth of one.
    """
    recency: float = 0.5 ** (max(now - hit.entry.created_at, 0.0) / _DAY)
    importance = min(hit.entry.importance / 5, 1.0)
    return hit.score + _RECENCY_SHARE * recency + _IMPORTANCE_SHARE * importance


def _as_text(content: Any) -> str:
    """A memory or a message as a part of one line; whole."""
    text = content if isinstance(content, str) else msgspec.json.encode(content).decode()
    return " ".join(text.split())


def _remembering(count: Callable[[str], int]) -> Callable[[str], int]:
    """Messages come back as memories: their tokens need not be counted again."""
    remembered = lru_cache(maxsize=_MOST_COUNTS_CACHED)(count)

    def counted(text: str) -> int:
        return (remembered if len(text) <= _LONGEST_COUNT_CACHED else count)(text)

    return counted


@lru_cache(maxsize=1)
def _default_counter() -> Callable[[str], int]:
    """One for all builders: what a text costs does not depend on who asks."""
    from memory.embedding import count_tokens

    return _remembering(count_tokens)
