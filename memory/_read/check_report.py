"""The result of `AgentMemorySystem.check`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CheckReport:
    """The result of a check of the whole memory. As text, it is one line for each problem."""

    intact: int
    """The number of memories that can be read and decoded, and whose checksum is correct."""
    problems: tuple[str, ...]
    """One line for each problem, in plain words; empty if nothing is wrong."""

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    def __str__(self) -> str:
        if self.ok:
            return f"{self.intact} memories, nothing is damaged"
        lines = [f"{self.intact} memories are intact, {len(self.problems)} problems:", *self.problems]
        return "\n".join([*lines, "export what can be read, or restore a backup"])
