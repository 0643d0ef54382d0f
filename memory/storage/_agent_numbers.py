"""The numbers that stand for agents in keys and tables."""

from __future__ import annotations

import sqlite3


class AgentNumbers(dict[str, int]):
    """The numbers of agents by name. A process reads each number once, because it never changes."""

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
