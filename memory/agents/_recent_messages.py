"""A cache of the messages that this process has just written, so that it need not read them again.

The cache is valid until another connection writes to the file, which changes SQLite's `PRAGMA
data_version`. The caller passes that version to `get`, and holds the store's lock during every call.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from memory.agents.messages import Message

# Limits on RAM: together at most 5 million characters. Round numbers, enough for the sessions in use.
_MAX_SESSIONS = 256
_MAX_MESSAGES = 64  # Messages of one session
_MAX_CHARACTERS = 20_000  # Characters of one session


@dataclass
class SessionTail:
    """The newest messages of one session, in order."""

    created_at: float
    first: int
    """The position, in the session, of `messages[0]`."""
    messages: list[Message] = field(default_factory=list)
    characters: int = 0


class RecentMessages:
    """The tails of the sessions that this process has written to."""

    def __init__(self) -> None:
        self._tails: OrderedDict[str, SessionTail] = OrderedDict()
        self._version: int | None = None

    def get(self, session_id: str, version: int) -> SessionTail | None:
        """Return the session's tail, or None. If the file has a new version, all tails are stale."""
        if version != self._version:
            self._version = version
            self._tails.clear()
        return self._tails.get(session_id)

    def start(self, session_id: str, created_at: float, messages: Sequence[Message]) -> None:
        """Record a new session with its first messages."""
        self._tails[session_id] = SessionTail(created_at, 0)
        while len(self._tails) > _MAX_SESSIONS:
            self._tails.popitem(last=False)
        self.extend(session_id, len(messages), messages)

    def extend(self, session_id: str, count: int, messages: Sequence[Message]) -> None:
        """Record appended messages. `count` is the number of messages that the session has now."""
        tail = self._tails.get(session_id)
        if tail is None:
            return
        tail.messages += messages
        tail.characters += sum(len(message.content) for message in messages)
        too_long = len(tail.messages) > _MAX_MESSAGES or tail.characters > _MAX_CHARACTERS
        if too_long or tail.first + len(tail.messages) != count:
            del self._tails[session_id]

    def drop(self, session_id: str) -> None:
        """Drop the tail of a deleted session."""
        self._tails.pop(session_id, None)
