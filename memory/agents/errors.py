"""The errors of the agent loop. They are defined in `memory.errors`."""

from memory.errors import (
    AgentError,
    BudgetTooSmall,
    InvalidAgentInput,
    ModelError,
    ModelTimeout,
    SessionStoreError,
    UnknownSession,
    UnknownTool,
)

__all__ = [
    "AgentError",
    "BudgetTooSmall",
    "InvalidAgentInput",
    "ModelError",
    "ModelTimeout",
    "SessionStoreError",
    "UnknownSession",
    "UnknownTool",
]
