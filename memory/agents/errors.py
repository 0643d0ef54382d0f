"""The errors of the agent loop. They are defined in `memory.errors`."""

from memory.errors import AgentError as AgentError
from memory.errors import BudgetTooSmall as BudgetTooSmall
from memory.errors import InvalidAgentInput as InvalidAgentInput
from memory.errors import ModelError as ModelError
from memory.errors import ModelTimeout as ModelTimeout
from memory.errors import SessionStoreError as SessionStoreError
from memory.errors import UnknownSession as UnknownSession
from memory.errors import UnknownTool as UnknownTool
