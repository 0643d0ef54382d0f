"""The memory opens no network connection."""

from __future__ import annotations

from pathlib import Path

from subprocesses import run_python


def test_storing_and_searching_opens_no_connection(tmp_path: Path) -> None:
    """The packages that come with the default embedder contain network clients; they are not used."""
    run_python(
        """
        opened = []
        network = {"socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "urllib.Request"}
        sys.addaudithook(lambda event, _: opened.append(event) if event in network else None)
        from memory import AgentMemorySystem, MemoryConfig

        config = MemoryConfig()
        config.ltm_config.db_path = sys.argv[1]
        with AgentMemorySystem(config) as memory:
            memory.add("ann", "The umbrella is in the cellar.")
            memory.add("ann", {"weather": "rain", "wind": 3})
            assert memory.search("ann", "Where is the umbrella?", 1)
        assert not opened, opened
        clients = {"requests", "huggingface_hub", "hf_xet", "urllib3", "httpx"} & set(sys.modules)
        assert not clients, clients
        """,
        tmp_path / "memory.db",
    )
