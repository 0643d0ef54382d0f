"""One client of a load, without its process."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from memory import MemoryConfig
from memory.benchmarking.bench import Bench
from memory.benchmarking.load.client import Client
from memory.benchmarking.targets.agentmemory import AgentMemoryTarget
from memory.benchmarking.targets.base import Found

AGENTS = ["agent_0", "agent_1", "agent_2"]


@pytest.mark.parametrize(("shares", "expected"), [({"search": 1.0}, AGENTS), ({"add": 1.0}, [])])
def test_a_probe_begins_with_warm_agents(
    shares: dict[str, float], expected: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deleting what the last probe added makes many systems read an agent anew in its next search."""
    searched: list[str] = []
    with ExitStack() as opened:
        client = Client(Bench(target="sqlite-baseline"), opened)
        client.open(str(tmp_path), "seed", shares, zipf=False)
        client.fill(agents=len(AGENTS), memories=2)
        search = client.target.search

        def recorded(agent_id: str, *arguments: Any) -> list[Found]:
            searched.append(agent_id)
            return search(agent_id, *arguments)

        monkeypatch.setattr(client.target, "search", recorded)
        client.clean()
        client.prepare(rate=100.0, seconds=60.0, seed="seed")
        assert searched == expected


def test_warming_ends_when_it_takes_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[str] = []
    with ExitStack() as opened:
        client = Client(Bench(target="sqlite-baseline"), opened)
        client.open(str(tmp_path), "seed", {"search": 1.0}, zipf=False)
        client.fill(agents=len(AGENTS), memories=2)
        monkeypatch.setattr(client.target, "search", lambda agent_id, *_: searched.append(agent_id))
        client.prepare(rate=1e6, seconds=1e-9, seed="seed")
        assert searched == AGENTS[:1]


def test_a_system_with_background_work_has_it_while_it_is_loaded(tmp_path: Path) -> None:
    """Without it, a commit copies the log of `agentmemory` now and then, which its users never wait for."""
    with ExitStack() as opened:
        client = Client(Bench(target="agentmemory"), opened)
        client.open(str(tmp_path), "seed", {"add": 1.0}, zipf=False)
        assert isinstance(client.target, AgentMemoryTarget)
        config = client.target.memory.config
        assert config.maintenance == "background"
        assert config.stm_config == MemoryConfig().stm_config
