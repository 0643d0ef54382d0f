"""Names of agents for systems that allow only some characters in a name."""

from __future__ import annotations


def hex_name(agent_id: str) -> str:
    """Return a name of letters, digits and one hyphen that no other agent has."""
    return f"agent-{agent_id.encode('utf-8', 'surrogatepass').hex()}"
