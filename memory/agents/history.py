"""The newest messages of a session, and a function that selects the ones that fit into a token budget.

A message is never cut. A tool's result is never shown without its call, nor a call without its results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from memory.agents.messages import Message


class MessageGroup(msgspec.Struct, frozen=True):
    """Messages that are shown together or not at all: one, or tool calls with their results."""

    messages: tuple[Message, ...]
    tokens: int
    complete: bool
    """Whether each call has exactly one result, and each result its call."""

    @property
    def is_from_user(self) -> bool:
        return self.messages[0].role == "user"


class History:
    """The newest messages of a session, as far back as a token budget reaches."""

    def __init__(self, created_at: float, first: int) -> None:
        self.created_at = created_at
        """When the session was created. If this time differs, the id belongs to a new session."""
        self.first = first
        """The position, in the session, of the oldest message in `groups`."""
        self.count = first
        """How many messages the session had when they were last read."""
        self.groups: list[MessageGroup] = []
        self.tokens = 0
        """The tokens of all complete groups."""
        self.question: MessageGroup | None = None
        """The newest message of the user."""

    def extend(self, messages: Iterable[Message], tokens_of: Callable[[Message], int]) -> None:
        """Append the session's next messages. `tokens_of` returns the tokens of a message."""
        for message in messages:
            group = _group((message,), tokens_of(message))
            # A result after all calls were answered stays alone and is dropped. If it made its group
            # incomplete, older groups would fit again, which may have been dropped already.
            is_result = message.role == "tool" and bool(self.groups)
            if is_result and self.groups[-1].messages[0].tool_calls and not self.groups[-1].complete:
                calls = self.groups.pop()
                group = _group((*calls.messages, message), calls.tokens + group.tokens)
            self.groups.append(group)
            self.tokens += group.tokens if group.complete else 0
            self.count += 1
            if message.role == "user":
                self.question = group

    def drop_oldest(self, budget: int) -> None:
        """Drop the oldest groups as long as the others still fill the budget. Keep the question."""
        dropped = 0
        for group in self.groups:
            tokens = group.tokens if group.complete else 0
            if self.tokens - tokens < budget or group is self.question:
                break
            self.tokens -= tokens
            self.first += len(group.messages)
            dropped += 1
        del self.groups[:dropped]


def _group(messages: tuple[Message, ...], tokens: int) -> MessageGroup:
    if len(messages) == 1 and not messages[0].tool_calls:
        return MessageGroup(messages, tokens, messages[0].tool_result is None)
    called = [call.id for call in messages[0].tool_calls]
    answered = [message.tool_result.call_id for message in messages if message.tool_result is not None]
    complete = sorted(called) == sorted(answered) and len(set(called)) == len(called)
    return MessageGroup(messages, tokens, complete)


def newest_that_fit(
    groups: Sequence[MessageGroup], required: Sequence[MessageGroup], room: int, *, whole_session: bool
) -> list[MessageGroup]:
    """Return the required groups and as many of the newest other groups as fit, in order.

    The selection goes back in time and stops at the first group that does not fit. `room` is the number of
    tokens for the groups that are not required. Groups before the first message of the user are dropped:
    they are answers without their question, which some models reject. They are kept only if the session
    itself starts with them; `whole_session` says that `groups` includes the session's start.
    """
    chosen = []
    missing = {id(group) for group in required}
    full = False
    for group in reversed(groups):
        if id(group) in missing:
            missing.remove(id(group))
            chosen.append(group)
        elif not full and group.tokens <= room:
            room -= group.tokens
            chosen.append(group)
        else:
            full = True
            if not missing:
                break
    chosen.reverse()
    if chosen and not (whole_session and chosen[0] is groups[0]):
        start = next((number for number, group in enumerate(chosen) if group.is_from_user), 0)
        del chosen[:start]
    return chosen
