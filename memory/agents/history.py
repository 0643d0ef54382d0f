"""The end of a session's messages as far as a context may hold it, and which of them fit into a budget.

A message is in or out, never cut; a tool's result never stands without its call, nor a call without its
results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from memory.agents.messages import Message


class MessageGroup(msgspec.Struct, frozen=True):
    """Messages that are in or out together: one, or an assistant's tool calls with their results."""

    messages: tuple[Message, ...]
    tokens: int
    whole: bool
    """Each call has its one result; and no result is without its call."""

    @property
    def is_users(self) -> bool:
        return self.messages[0].role == "user"


class History:
    """The end of a session's history, as far back as the budget reaches."""

    def __init__(self, created_at: float, first: int) -> None:
        self.created_at = created_at
        self.first = first
        """The number of the first message that is held."""
        self.known = first
        """How many messages the session had when it was looked at."""
        self.units: list[MessageGroup] = []
        self.tokens = 0
        """Of the units that may be used."""
        self.question: MessageGroup | None = None

    def take(self, messages: Iterable[Message], tokens_of: Callable[[Message], int]) -> None:
        for message in messages:
            unit = _group((message,), tokens_of(message))
            if message.role == "tool" and self.units and self.units[-1].messages[0].tool_calls:
                calls = self.units.pop()
                self.tokens -= calls.tokens if calls.whole else 0
                unit = _group((*calls.messages, message), calls.tokens + unit.tokens)
            self.units.append(unit)
            self.tokens += unit.tokens if unit.whole else 0
            self.known += 1
            if message.role == "user":
                self.question = unit

    def shed(self, budget: int) -> None:
        """Let go of what no context of this size can hold; the question stays."""
        gone = 0
        for unit in self.units:
            tokens = unit.tokens if unit.whole else 0
            if self.tokens - tokens < budget or unit is self.question:
                break
            self.tokens -= tokens
            self.first += len(unit.messages)
            gone += 1
        del self.units[:gone]


def _group(messages: tuple[Message, ...], tokens: int) -> MessageGroup:
    if len(messages) == 1 and not messages[0].tool_calls:
        return MessageGroup(messages, tokens, messages[0].tool_result is None)
    wanted = [call.id for call in messages[0].tool_calls]
    given = [each.tool_result.call_id for each in messages if each.tool_result is not None]
    return MessageGroup(
        messages, tokens, sorted(wanted) == sorted(given) and len(set(wanted)) == len(wanted)
    )


def newest_that_fit(
    usable: Sequence[MessageGroup], must: Sequence[MessageGroup], room: int, *, whole_session: bool
) -> list[MessageGroup]:
    """In their order: those that must be in, and of the others the newest, up to the first without room.

    What stands before the first message of the user then is answers without their question, with which
    some models accept no history: it is left out too, unless the session itself began with it.
    """
    chosen = []
    missing = {id(unit) for unit in must}
    full = False
    for unit in reversed(usable):
        if id(unit) in missing:
            missing.remove(id(unit))
            chosen.append(unit)
        elif not full and unit.tokens <= room:
            room -= unit.tokens
            chosen.append(unit)
        else:
            full = True
            if not missing:
                break
    chosen.reverse()
    if chosen and not (whole_session and chosen[0] is usable[0]):
        start = next((number for number, unit in enumerate(chosen) if unit.is_users), 0)
        del chosen[:start]
    return chosen
