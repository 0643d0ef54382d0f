"""Memory systems that can't be targets, with the reason: `membench targets` lists them too."""

from __future__ import annotations

NOT_RUNNABLE: dict[str, str] = {
    "cognee": "needs an embedding model that it downloads (746 MB), and a language model to store a memory",
    "graphiti": "needs a language model to extract and resolve what it stores",
    "letta": "needs a server of its own and a language model that decides what is stored",
}
"""By name: why it can't run here, in one line."""
