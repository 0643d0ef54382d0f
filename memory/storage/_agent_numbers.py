"""The numbers that stand for agents in keys and tables."""

from __future__ import annotations

import sqlite3
from hashlib import blake2b


class AgentNumbers(dict[str, int]):
    """The numbers of agents by name. A process reads each number once, because it never changes."""

    _name_key: bytes | None = None

    def look_up(self, connection: sqlite3.Connection, agent: str) -> int | None:
        """Return an agent's number, None for an agent that never stored anything.

        Do not call it between the insertion of a new agent and its commit: the commit may still fail."""
        number = self.get(agent)
        if number is None:
            found = connection.execute("SELECT no FROM agents WHERE name = ?", (agent,)).fetchone()
            if found is None:
                return None
            number = self[agent] = int(found[0])
        return number

    def pseudonym(self, connection: sqlite3.Connection, agent: str) -> bytes:
        """Return the hash of an agent's name under the key of this file: the name of a removed agent."""
        if self._name_key is None:
            found = connection.execute("SELECT value FROM settings WHERE name = 'identity'").fetchone()
            self._name_key = found[0].encode() if found else b""
        return blake2b(agent.encode(), key=self._name_key, digest_size=16).digest()
