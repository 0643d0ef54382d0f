"""Every error of the agent loop: one line that names the value and what to do."""

from __future__ import annotations

from memory.errors import AgentMemoryError


class AgentError(AgentMemoryError):
    """Base of all errors of the agent loop."""


class InvalidAgentInput(AgentError, ValueError):
    """What was given can't be a session, a message, a tool or a setting; nothing was changed."""


class UnknownSession(AgentError, LookupError):
    """There is no session with that id."""


class UnknownTool(AgentError, LookupError):
    """The model asked for a tool that does not exist, or that it may not use."""


class SessionStoreError(AgentError):
    """The sessions' file could not do what was asked; what it had acknowledged is still there."""


class ModelError(AgentError):
    """The model could not be reached or did not answer sensibly, also after trying again."""


class ModelTimeout(ModelError):
    """The model did not answer in time."""


class BudgetTooSmall(AgentError, ValueError):
    """Not even the system prompt and the newest message fit into the token budget."""
