"""Builds the context of a model call within a token budget.

    system prompt │ <recalled> matching memories │ other sessions </recalled> │ history … newest message
    ─────────────────────────────────── tokens ≤ budget ─────────────────────────────────── + tools

Memories are data, not instructions. They are in a block outside the system prompt, each with its origin.
Their text can't end this block (see `memory/agents/recalled.py`).

The order is always the same. A message is never cut. A tool's result is never shown without its call, nor
a call without its results. The newest message, and the newest message of the user, are always included.
The context's `left_out` counts the parts that did not fit.
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
from memory.agents.recalled import NOTE, fenced, memory_line, one_line, session_line
from memory.agents.sessions import SessionStore
from memory.agents.tools import Tool, ToolRegistry

if TYPE_CHECKING:
    from memory.entry import Hit
    from memory.system import AgentMemorySystem

TOKEN_BUDGET = 8000
"""The default budget in tokens: fits the context window of nearly every current model."""
MESSAGE_TOKENS = 4
"""Tokens of a message besides its text, as in OpenAI's chat format."""
_LINE_TOKENS = 2
"""Tokens of a line of the recalled block besides its text: one for the newline, and one in reserve."""
_MEMORIES = "Memories:"
_SESSIONS = "Other conversations:"
_RECENCY_SHARE = 0.2  # The most that recency adds to a search score (see `_weight`)
_IMPORTANCE_SHARE = 0.2  # The most that importance adds to a search score
_DAY = 24 * 3600.0  # The half-life of recency in seconds
_HITS_PER_MEMORY = 16
"""The most search hits read for each wanted memory: many hits repeat the question or each other."""
_MAX_IRRELEVANT = 8
"""The lookup ends after this many hits in a row with too little confidence. Confidence falls with the rank,
but not strictly. In 1,143 lookups, 343 of them of LoCoMo, no shown memory came after such a row."""
_FIRST_READ = 64
"""The number of messages in the first read from a session's end. Each further read is 4 times as large."""
# Limits on RAM; round numbers.
_MAX_CACHED_SESSIONS = 256
_MAX_CACHED_COUNTS = 8192  # Token counts
_MAX_CACHED_CHARACTERS = 4096  # Characters of a text whose token count is cached


class _Line(msgspec.Struct, frozen=True):
    """A line of the recalled block, and its source: a hit of the memory, or the id of a session."""

    text: str
    tokens: int
    source: Any


class _Block(msgspec.Struct, frozen=True):
    """A part of the recalled block: a heading and its lines."""

    text: str = ""
    tokens: int = 0
    lines: tuple[_Line, ...] = ()


_NO_BLOCK = _Block()


class _Retrieved(msgspec.Struct, frozen=True):
    """The memories and other sessions that were looked up for one message of the user."""

    question_id: str
    agent_id: str
    memories: tuple[_Line, ...]
    sessions: tuple[_Line, ...]


class _CachedSession(History):
    """A session's history, and the memories and sessions that were found for its newest question."""

    retrieved: _Retrieved | None = None


class ContextBuilder:
    """Builds contexts for an agent's sessions. Several threads may share one builder.

    The builder reads only the end of a history, as much as fits into the budget. Messages that it has read
    before are cached with their token counts. It looks up memories and other sessions once for each message
    of the user, and uses them again after the tool calls.

    Args:
        sessions: holds the histories.
        memory: is searched for the newest question; None for no memories.
        tools: the tools that the model may call; None for none.
        system_prompt: the text that each context starts with. May be changed later.
        token_budget: the most tokens of a context, tools included. May be changed later.
        memories: how many memories a context shows at most.
        recent_sessions: how many of the agent's other sessions a context mentions at most.
        memory_share: the share of the free tokens, from 0 to 1, that memories and other sessions may use.
        min_confidence: the lowest confidence, from 0 to 1, of a memory that a context shows.
        count_tokens: returns the tokens of a text; by default `memory.embedding.count_tokens`.
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
        min_confidence: float = 0.02,
        count_tokens: Callable[[str], int] | None = None,
    ) -> None:
        shares = (memory_share, min_confidence)
        if token_budget < 1 or memories < 0 or recent_sessions < 0 or not all(0 <= x <= 1 for x in shares):
            raise InvalidAgentInput(
                f"token_budget {token_budget}, memories {memories}, recent_sessions {recent_sessions}, "
                f"memory_share {memory_share}, min_confidence {min_confidence}: use a budget ≥ 1, "
                "counts ≥ 0, and a share and a confidence from 0 to 1"
            )
        self.system_prompt = system_prompt
        self.token_budget = token_budget
        self.sessions = sessions
        self.memory = memory
        self.tools = ToolRegistry() if tools is None else tools
        self._max_memories = memories
        self._max_sessions = recent_sessions
        self._memory_share = memory_share
        self._min_confidence = min_confidence
        self._count = _default_counter() if count_tokens is None else _cached_counter(count_tokens)
        self._lock = threading.Lock()
        self._cached: dict[str, _CachedSession] = {}
        self._counted_prompt: tuple[str, int] | None = None
        # The note in the system prompt, the tags of the block, and the tokens of one message for the block.
        self._fence_tokens = self._count(NOTE) + self._count(fenced("")) + MESSAGE_TOKENS + 2
        self._counted_tools: tuple[tuple[object, ...], tuple[Tool, ...], int] | None = None
        self._cached_lines: dict[str, tuple[object, _Line]] = {}

    def build(self, session_id: str, agent_id: str | None = None) -> Context:
        """Return the context for the next step of a session, or raise BudgetTooSmall.

        Args:
            agent_id: the agent whose memories are searched; the session's own by default.
        """
        with self._lock:
            cached = self._cached.pop(session_id, None)  # removed, so that no other thread can change it
        cached = self._refresh(session_id, cached)
        context = self._assemble(session_id, agent_id, cached)
        with self._lock:
            while len(self._cached) >= _MAX_CACHED_SESSIONS:
                del self._cached[next(iter(self._cached))]
            self._cached[session_id] = cached  # at the end: the least recently used is dropped first
        return context

    def _assemble(self, session_id: str, agent_id: str | None, cached: _CachedSession) -> Context:
        tools, tool_tokens = self._tools_and_tokens()
        fixed = self._prompt_tokens() + tool_tokens
        groups = [group for group in cached.groups if group.complete]
        required = [cached.question] if cached.question is not None else []
        if groups and groups[-1] is not cached.question:
            required.append(groups[-1])
        required_tokens = sum([group.tokens for group in required])
        room = self.token_budget - fixed - required_tokens
        if room < 0:
            raise BudgetTooSmall(
                f"token_budget is {self.token_budget}, but the system prompt, the tools, the newest "
                f"question and the newest message take {fixed + required_tokens}: raise the budget"
            )
        memories, others = self._memories_and_sessions(session_id, agent_id, cached, groups, room)
        recalled_tokens = memories.tokens + others.tokens
        if recalled_tokens:
            recalled_tokens += self._fence_tokens
        chosen = newest_that_fit(groups, required, room - recalled_tokens, whole_session=not cached.first)
        messages = tuple(chain.from_iterable([group.messages for group in chosen]))
        retrieved = cached.retrieved
        recalled = "\n".join([part for part in (memories.text, others.text) if part])
        return Context(
            system="\n\n".join([part for part in (self.system_prompt, NOTE if recalled else "") if part]),
            messages=messages,
            tools=tools,
            tokens=fixed + recalled_tokens + sum([group.tokens for group in chosen]),
            left_out=LeftOut(
                cached.count - len(messages),
                len(retrieved.memories) - len(memories.lines) if retrieved else 0,
                len(retrieved.sessions) - len(others.lines) if retrieved else 0,
            ),
            memories=tuple([line.source for line in memories.lines]),
            recalled=fenced(recalled) if recalled else "",
        )

    # -- the history --------------------------------------------------------------------------

    def _refresh(self, session_id: str, cached: _CachedSession | None) -> _CachedSession:
        """Return the session with its newest messages. Read it again if the cached copy is stale."""
        if cached is not None:
            created_at, new = self.sessions.news(session_id, cached.count)
            if created_at != cached.created_at or (cached.first and cached.tokens < self.token_budget):
                cached = None  # another session has the same id now, or the budget has grown
            else:
                cached.extend(new, self._message_tokens)
        if cached is None:
            cached = self._read(session_id)
        cached.drop_oldest(self.token_budget)
        return cached

    def _read(self, session_id: str) -> _CachedSession:
        """Read a session backwards, until the budget is full and a message of the user was read."""
        written = self.sessions.just_written(session_id, 0)
        if written is not None:
            cached = _CachedSession(written[0], 0)
            cached.extend(written[1], self._message_tokens)
            return cached
        session = self.sessions.get(session_id)
        first, length = session.message_count, _FIRST_READ
        messages: list[Message] = []
        cached = _CachedSession(session.created_at, first)
        while first and (
            cached.tokens < self.token_budget or cached.question is None or messages[0].role == "tool"
        ):
            start = max(0, first - length)
            messages[:0] = self.sessions.messages(session_id, start=start, stop=first)
            first, length = start, length * 4
            cached = _CachedSession(session.created_at, first)
            cached.extend(messages, self._message_tokens)
        return cached

    def _message_tokens(self, message: Message) -> int:
        tokens = MESSAGE_TOKENS + self._count(message.content)
        for call in message.tool_calls:
            tokens += MESSAGE_TOKENS + self._count(
                f"{call.name} {msgspec.json.encode(call.arguments).decode()}"
            )
        return tokens

    # -- the other parts ----------------------------------------------------------------------

    def _prompt_tokens(self) -> int:
        counted = self._counted_prompt
        if counted is None or counted[0] != self.system_prompt:
            counted = (self.system_prompt, MESSAGE_TOKENS + self._count(self.system_prompt))
            self._counted_prompt = counted
        return counted[1]

    def _tools_and_tokens(self) -> tuple[tuple[Tool, ...], int]:
        state = self.tools.state
        counted = self._counted_tools
        if counted is None or counted[0] != state:
            tools = tuple(self.tools.tools())
            schemas = (
                f"{tool.name} {tool.description} {msgspec.json.encode(tool.parameters).decode()}"
                for tool in tools
            )
            counted = (state, tools, sum(MESSAGE_TOKENS + self._count(schema) for schema in schemas))
            self._counted_tools = counted
        return counted[1], counted[2]

    def _memories_and_sessions(
        self,
        session_id: str,
        agent_id: str | None,
        cached: _CachedSession,
        groups: Sequence[MessageGroup],
        room: int,
    ) -> tuple[_Block, _Block]:
        """Return the memories and the other sessions that fit into their share of the room."""
        uses_memory = self.memory is not None and self._max_memories
        if cached.question is None or not (uses_memory or self._max_sessions):
            cached.retrieved = None
            return _NO_BLOCK, _NO_BLOCK
        share = int(room * self._memory_share)
        question = cached.question.messages[0]
        retrieved = cached.retrieved
        if (
            retrieved is None
            or retrieved.question_id != question.id
            or agent_id not in (None, retrieved.agent_id)
        ):
            agent = agent_id or self.sessions.get(session_id).agent_id
            visible = newest_that_fit(
                groups, [cached.question], room - share, whole_session=not cached.first
            )
            visible_ids = {message.id for group in visible for message in group.messages}
            retrieved = _Retrieved(
                question.id,
                agent,
                self._memory_lines(agent, question.content, visible_ids),
                self._session_lines(agent, session_id),
            )
            cached.retrieved = retrieved
        free = share - self._fence_tokens
        memories = self._block(_MEMORIES, retrieved.memories, free)
        return memories, self._block(_SESSIONS, retrieved.sessions, free - memories.tokens)

    def _memory_lines(self, agent_id: str, question: str, visible_ids: set[str]) -> tuple[_Line, ...]:
        """Return the best memories. Skip repeated texts and messages that the history already shows."""
        wanted = self._max_memories
        if self.memory is None or not wanted or not question.strip():
            return ()
        now = self.memory.clock.now()
        seen = {one_line(question)}
        candidates: list[tuple[float, str, Hit]] = []
        best: list[float] = []  # a heap of the `wanted` highest weights so far
        irrelevant = 0
        for hit in self.memory.iter_search(agent_id, question, wanted * _HITS_PER_MEMORY):
            # Hits come best score first, so no later hit can weigh more than this bound.
            if len(best) == wanted and hit.score + _RECENCY_SHARE + _IMPORTANCE_SHARE < best[0]:
                break
            if hit.confidence is not None and hit.confidence < self._min_confidence:
                irrelevant += 1
                if irrelevant == _MAX_IRRELEVANT:
                    break
                continue
            irrelevant = 0
            text = one_line(hit.entry.content)
            if text not in seen and hit.id not in visible_ids:
                weight = _weight(hit, now)
                candidates.append((weight, text, hit))
                if len(best) < wanted:
                    heappush(best, weight)
                else:
                    heappushpop(best, weight)
            seen.add(text)
        candidates.sort(key=itemgetter(0), reverse=True)
        return tuple([self._line(memory_line(hit.entry), hit) for _, _, hit in candidates[:wanted]])

    def _session_lines(self, agent_id: str, current: str) -> tuple[_Line, ...]:
        """Return the newest message of each of the agent's last used sessions, except the current one."""
        if not self._max_sessions:
            return ()
        rows = self.sessions.recent(agent_id, self._max_sessions + 1)
        others = [row for row in rows if row[0] != current][: self._max_sessions]
        with self._lock:
            cached = [(row, self._cached_lines.get(row[0])) for row in others]
        lines = {row[0]: entry for row, entry in cached if entry is not None and entry[0] == row}
        missing = [row for row in others if row[0] not in lines]
        last = self.sessions.last_messages([row[0] for row in missing]) if missing else {}
        for row in missing:
            id, title, *_ = row
            if id in last:
                lines[id] = (row, self._line(session_line(title or id, last[id]), id))
        with self._lock:
            cache = self._cached_lines
            for id, entry in lines.items():
                cache.pop(id, None)
                cache[id] = entry  # at the end: the least recently used is dropped first
            while len(cache) > max(_MAX_CACHED_SESSIONS, 2 * self._max_sessions):
                del cache[next(iter(cache))]
        return tuple([lines[row[0]][1] for row in others if row[0] in lines])

    def _line(self, text: str, source: Any) -> _Line:
        return _Line(text, self._count(text) + _LINE_TOKENS, source)

    def _block(self, heading: str, lines: Sequence[_Line], room: int) -> _Block:
        """Return a heading with the lines that fit, in order. A line that is too long is skipped."""
        if not lines:
            return _NO_BLOCK
        tokens = self._count(heading) + _LINE_TOKENS
        chosen = []
        for line in lines:
            if tokens + line.tokens <= room:
                tokens += line.tokens
                chosen.append(line)
        if not chosen:
            return _NO_BLOCK
        return _Block("\n".join([heading, *[line.text for line in chosen]]), tokens, tuple(chosen))


def _weight(hit: Hit, now: float) -> float:
    """Return the search score plus up to 0.2 each for recency and importance.

    A good hit scores 1 or more for its words and for its meaning. So recency and importance only decide
    between hits that match about equally well. Importance 5 is the highest of the usual levels.
    """
    recency: float = 0.5 ** (max(now - hit.entry.created_at, 0.0) / _DAY)
    importance = min(hit.entry.importance / 5, 1.0)
    return hit.score + _RECENCY_SHARE * recency + _IMPORTANCE_SHARE * importance


def _cached_counter(count: Callable[[str], int]) -> Callable[[str], int]:
    """Return `count` with a cache: the same texts appear first as messages and later as memories."""
    cached = lru_cache(maxsize=_MAX_CACHED_COUNTS)(count)

    def counted(text: str) -> int:
        return (cached if len(text) <= _MAX_CACHED_CHARACTERS else count)(text)

    return counted


@lru_cache(maxsize=1)
def _default_counter() -> Callable[[str], int]:
    """Return the default counter, whose cache all builders share."""
    from memory.embedding import count_tokens

    return _cached_counter(count_tokens)
