"""The messages that this process itself has just written, kept so that they need not be read back.

A session's tail is good as long as no other connection has written to the file, which SQLite tells by a
number (`PRAGMA data_version`); the caller asks for it and holds the store's lock.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from memory.agents.messages import Message

_MOST_SESSIONS = 256
_MOST_MESSAGES = 64
_MOST_CHARACTERS = 20_000  # of one session


@dataclass
class SessionTail:
    """The newest messages of one session, in order."""

    created_at: float
    first: int
    """The number of the first one that is here."""
    messages: list[Message] = field(default_factory=list)
    characters: int = 0


class RecentMessages:
    """By session, those that were written last."""

    def __init__(self) -> None:
        self._tails: OrderedDict[str, SessionTail] = OrderedDict()
        self._version: int | None = None

    def get(self, session_id: str, version: int) -> SessionTail | None:
        """The session's tail, if all of it is still so."""
        if version != self._version:
            self._version = version
            self._tails.clear()
        return self._tails.get(session_id)

    def start(self, session_id: str, created_at: float, messages: Sequence[Message]) -> None:
        """A session was created with these messages."""
        self._tails[session_id] = SessionTail(created_at, 0)
        while len(self._tails) > _MOST_SESSIONS:
            self._tails.popitem(last=False)
        self.extend(session_id, len(messages), messages)

    def extend(self, session_id: str, count: int, messages: Sequence[Message]) -> None:
        """These messages were added, and the session has so many now."""
        tail = self._tails.get(session_id)
        if tail is None:
            return
        tail.messages += messages
        tail.characters += sum(len(message.content) for message in messages)
        too_long = len(tail.messages) > _MOST_MESSAGES or tail.characters > _MOST_CHARACTERS
        if too_long or tail.first + len(tail.messages) != count:
            del self._tails[session_id]

    def drop(self, session_id: str) -> None:
        self._tails.pop(session_id, None)
