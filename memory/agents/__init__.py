"""A small agent loop on top of the memory: sessions, tools, context, runtime.

Each module is imported when one of its names is used for the first time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory._base.lazy import lazy_names

if TYPE_CHECKING:
    from memory.agents.builder import ContextBuilder as ContextBuilder
    from memory.agents.context import Context as Context
    from memory.agents.messages import Message as Message
    from memory.agents.messages import Session as Session
    from memory.agents.messages import ToolCall as ToolCall
    from memory.agents.messages import ToolResult as ToolResult
    from memory.agents.model import Model as Model
    from memory.agents.model import Reply as Reply
    from memory.agents.model import ScriptedModel as ScriptedModel
    from memory.agents.openai_compatible import OpenAICompatibleModel as OpenAICompatibleModel
    from memory.agents.runtime import AgentRuntime as AgentRuntime
    from memory.agents.runtime import Invocation as Invocation
    from memory.agents.sessions import SessionStore as SessionStore
    from memory.agents.tools import Tool as Tool
    from memory.agents.tools import ToolRegistry as ToolRegistry

_HOMES = {
    "AgentRuntime": "runtime",
    "Context": "context",
    "ContextBuilder": "builder",
    "Invocation": "runtime",
    "Message": "messages",
    "Model": "model",
    "OpenAICompatibleModel": "openai_compatible",
    "Reply": "model",
    "ScriptedModel": "model",
    "Session": "messages",
    "SessionStore": "sessions",
    "Tool": "tools",
    "ToolCall": "messages",
    "ToolRegistry": "tools",
    "ToolResult": "messages",
}

__all__ = sorted(_HOMES)
__getattr__, __dir__ = lazy_names(__name__, _HOMES)
