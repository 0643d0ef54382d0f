"""A first look at the memory: store, search, let time pass, search again, print where memories are.

Run it with `make quickstart` or `python examples/quickstart.py`. It leaves no files behind.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from memory import AgentMemorySystem, ManualClock, MemoryConfig

CONVERSATION = [
    ("Ann", "I finally booked the trip: ten days in Lisbon, starting on 3 June."),
    ("Bo", "Lovely! Is Rex coming along?"),
    ("Ann", "No, my sister looks after him. He hates flying anyway."),
    ("Bo", "Then you could take that surf course you keep talking about."),
    ("Ann", "Already signed up. The school rents out boards, so I only pack my wetsuit."),
]
QUESTIONS = ["Where does Ann go on holiday?", "Who looks after Rex?", "What does she pack for surfing?"]
DAY = 24 * 3600


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        clock = ManualClock(time.time())
        config = MemoryConfig(maintenance="manual")
        config.ltm_config.db_path = str(Path(folder) / "memory.db")
        with AgentMemorySystem(config, clock=clock) as memory:
            store(memory)
            search(memory, "New, in the short-term tier")
            clock.advance(2 * DAY)
            memory.maintain()
            clock.advance(30 * DAY)
            memory.maintain()
            search(memory, "A month later, in the long-term tier")
            show_speed(memory)
            show_statistics(memory)


def store(memory: AgentMemorySystem) -> None:
    for speaker, text in CONVERSATION:
        memory.add("assistant", text, kind="message", metadata={"speaker": speaker, "session": "chat-1"})
    state = {"position": {"x": 3.5, "y": 1.0}, "inventory": ["lamp", "rope"], "energy": 80}
    memory.store_agent_state("explorer", state, step_number=1, priority=2.0)


def search(memory: AgentMemorySystem, title: str) -> None:
    print(f"\n{title}")
    for question in QUESTIONS:
        print(f"  {question}")
        for hit in memory.search("assistant", question, k=2):
            print(f"    → {hit.entry.content}\n      {hit.tier}; {hit.why}")
    near = {"position": {"x": 3.4, "y": 1.1}, "inventory": ["rope"], "energy": 75}
    hit = memory.retrieve_similar_states("explorer", near, k=1)[0]
    print(f"  a state near {near}\n    → {hit.entry.content}\n      {hit.tier}; cosine {hit.score:.2f}")


def show_speed(memory: AgentMemorySystem) -> None:
    """Print rough figures of this machine. scripts/floor.py measures with more care."""
    notes = [f"note {number}: the meeting about topic {number % 97} was moved" for number in range(2000)]
    start = time.perf_counter()
    for note in notes[:500]:
        memory.add("writer", note)
    one_by_one = 500 / (time.perf_counter() - start)
    start = time.perf_counter()
    memory.add_many({"agent_id": "writer", "content": note} for note in notes)
    batch = len(notes) / (time.perf_counter() - start)
    memory.search("writer", "which meeting was moved?")  # loads the agent
    start = time.perf_counter()
    for number in range(100):
        memory.search("writer", f"meeting about topic {number}")
    search_ms = (time.perf_counter() - start) / 100 * 1e3
    print(
        f"\nHere: {one_by_one:,.0f} durable writes a second one by one, {batch:,.0f} in batches; "
        f"{search_ms:.2f} ms for a text search over 2,500 memories"
    )


def show_statistics(memory: AgentMemorySystem) -> None:
    statistics = memory.get_memory_statistics()
    tiers = ", ".join(f"{count:,} in {tier}" for tier, count in statistics["tiers"].items())
    print(f"{statistics['total']:,} memories of {statistics['agents']} agents: {tiers}; ", end="")
    print(f"{statistics['bytes_on_disk'] / 1e6:.1f} MB on disk")


if __name__ == "__main__":
    main()
