"""`agentmemory move`: the copy has everything, in the same form, and is compared with the source."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from memory import AgentMemorySystem, MemoryConfig
from memory.cli import main

OpenMemory = Callable[..., AgentMemorySystem]


def filled(memory: AgentMemorySystem) -> None:
    """Store memories of several agents in all tiers, with codecs, read counts, updates and deletions."""
    for agent in ("zoe", "ann", "ünal\0x"):
        memory.add_many(
            {
                "agent_id": agent,
                "content": f"submarine number {n} of {agent} dives to {n * 7} metres",
                "id": f"{n}",
                "step": n if n % 3 else None,
                "metadata": {"session_id": f"s{n // 10}", "n": n},
                "importance": n / 10,
            }
            for n in range(150)
        )
    memory.force_transition_to_im(60)
    memory.force_transition_to_ltm(50, "ann")
    memory.maintain()
    memory.update("ann", "7", content="a violin sonata")
    memory.delete("zoe", "3")
    for _ in range(3):
        memory.get("ann", "7")
    memory.search("zoe", "submarine", 5)
    memory.maintain()


def contents(place: str) -> dict[str, list[object]]:
    with AgentMemorySystem(MemoryConfig(url=place, maintenance="manual")) as memory:
        assert memory.check().ok
        return {
            agent: sorted(
                (
                    entry.id,
                    str(entry.content),
                    entry.tier,
                    entry.step,
                    entry.created_at,
                    entry.importance,
                    str(entry.metadata),
                )
                for entry in memory.recent(agent, 1000)
            )
            for agent in memory.agents()
        }


def found(place: str) -> list[tuple[str, float]]:
    with AgentMemorySystem(MemoryConfig(url=place, maintenance="manual")) as memory:
        return [(hit.id, round(hit.score, 6)) for hit in memory.search("ann", "violin submarine 14", 10)]


@pytest.fixture
def source(tmp_path: Path) -> str:
    place = str(tmp_path / "source.db")
    with AgentMemorySystem(MemoryConfig(url=place, maintenance="manual")) as memory:
        filled(memory)
    return place


def test_a_copy_in_another_file_has_everything(
    source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = str(tmp_path / "target.db")
    assert main(["move", source, target]) == 0
    assert "449 memories of 3 agents" in capsys.readouterr().out
    assert contents(target) == contents(source)
    assert found(target) == found(source)


def test_an_interrupted_move_continues_and_a_second_one_changes_nothing(
    source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = str(tmp_path / "target.db")
    assert main(["move", source, target, "--quiet"]) == 0
    with AgentMemorySystem(MemoryConfig(url=target, maintenance="manual")) as memory:
        memory.delete("ünal\0x", "149")  # as if it had stopped before the last one
    assert main(["move", source, target, "--quiet"]) == 0
    assert "; 1 were new, 0 read counts" in capsys.readouterr().out
    assert contents(target) == contents(source)


def test_a_destination_with_other_memories_is_refused_and_not_changed(
    source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = str(tmp_path / "target.db")
    with AgentMemorySystem(MemoryConfig(url=target, maintenance="manual")) as memory:
        memory.add("bob", "already here", id="1")
    before = contents(target)
    assert main(["move", source, target, "--quiet"]) == 1
    assert "move to an empty one" in capsys.readouterr().err
    assert contents(target) == before


def test_a_copy_that_differs_is_an_error(
    source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = str(tmp_path / "target.db")
    assert main(["move", source, target, "--quiet"]) == 0
    with AgentMemorySystem(MemoryConfig(url=target, maintenance="manual")) as memory:
        memory.update("ann", "9", importance=99.0)
    assert main(["move", source, target, "--quiet"]) == 1
    assert "agent 'ann' has 150 memories there and 150 in the copy" in capsys.readouterr().err


def test_a_source_that_does_not_exist_is_one_clear_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["move", str(tmp_path / "nothing.db"), str(tmp_path / "target.db"), "--quiet"]) == 1
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert "does not exist" in message
