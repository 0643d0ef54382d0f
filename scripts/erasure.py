"""Delete memories in every way and tier, then look for their bytes in all files: `make erasure`.

    python scripts/erasure.py [--deletions 1000] [--seed 1] [--erase]

Each memory has a random token of its own: in its content, its metadata and its id. Some are tiny, some fill
several pages. They lie in stm, im and ltm. The script deletes by id, by batch and by agent, replaces
content with `update`, and lets ltm evict. Then it calls `maintain()` once. With `--erase` it passes
`erase=True` instead, and does not call `maintain()`.

Then it scans every file in the folder, while the memory is open and after it is closed:

- for 8-byte pieces of the tokens, also in what the remaining memories and the dictionaries say;
- for 16-byte pieces of every form in which a deleted memory was ever stored: content (plain or
  compressed), vector and search terms. Pieces that a remaining memory or a codec also has do not count.

Exit code 0: nothing was found. Exit code 1: something was; the lines say where.
"""

from __future__ import annotations

import argparse
import random
import string
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from _small_memory import open_small
from numpy.typing import NDArray

from memory import AgentMemorySystem

_WAYS = ("delete", "delete_many", "delete_all", "update", "evict")
_TIERS = ("ltm", "im", "stm")
_WORDS = ("weather", "garden", "kitchen", "letter", "morning", "station", "window", "coffee", "winter")


def pieces(data: bytes) -> NDArray[np.uint64]:
    """Return all 8-byte pieces of some bytes, in their order."""
    if len(data) < 8:
        return np.empty(0, np.uint64)
    windows = np.lib.stride_tricks.sliding_window_view(np.frombuffer(data, np.uint8), 8)
    return np.ascontiguousarray(windows).view(np.uint64).ravel()


def long_pieces(data: bytes) -> NDArray[np.uint64]:
    """Return a hash of each 16-byte piece of some bytes, without pieces of few different bytes.

    Shorter pieces of a vector or of search terms are found by chance."""
    if len(data) < 16:
        return np.empty(0, np.uint64)
    ordered = np.sort(np.lib.stride_tricks.sliding_window_view(np.frombuffer(data, np.uint8), 16), axis=1)
    is_varied = (np.diff(ordered, axis=1) != 0).sum(axis=1) >= 6
    halves = pieces(data)
    hashed: NDArray[np.uint64] = halves[:-8] * np.uint64(0x9E3779B97F4A7C15) ^ halves[8:]
    return hashed[is_varied]


class Erasure:
    """One experiment in a folder of its own."""

    def __init__(self, folder: Path, deletions: int, seed: int, *, erase: bool = False) -> None:
        self.random = random.Random(seed)
        self.folder = folder
        self.erase = erase
        ways = [way for way in _WAYS if not (erase and way == "evict")]  # eviction has no `erase`
        self.each = -(-deletions // (len(ways) * len(_TIERS)))
        self.evicted = self.each * len(_TIERS) if "evict" in ways else 0
        self.ways = [way for way in ways if way != "evict"]
        self.memory = self._open()
        self.victims: dict[tuple[str, str], str] = {}
        """Agent and id of the memories to be deleted or replaced, and the way."""
        self.forms: dict[tuple[str, str], list[bytes]] = {}
        """All forms in which a memory was seen."""
        self.tokens: dict[tuple[str, str], list[str]] = {}

    def _open(self) -> AgentMemorySystem:
        return open_small(self.folder / "memory.db", ltm=3 * self.each * len(_WAYS))

    def run(self) -> Counter[str]:
        """Store, delete and scan. Return how many memories were found, by where."""
        for tier in _TIERS:
            self._store(tier)
        self.memory.maintain()
        self._record_forms()
        self._delete()
        if not self.erase:
            self.memory.maintain()
        found = self._scan("open")
        self.memory.close()
        return found + self._scan("closed")

    def _store(self, tier: str) -> None:
        """Store victims and others in a tier; the later tiers are moved there from stm."""
        batch = []
        for way in self.ways:
            agent = f"{self._token()} agent" if way == "delete_all" else "ann"
            for _ in range(self.each):
                batch.append(self._memory(agent, way))
        if tier == "ltm":
            limit = self.memory.config.ltm_config.memory_limit or 0
            batch += [self._memory("full", "evict") for _ in range(self.evicted)]
            batch += [self._memory("full", None) for _ in range(limit)]
        batch += [self._memory("ann", None) for _ in range(2 * self.each)]
        self.random.shuffle(batch)
        self.memory.add_many(batch[::2])
        for one in batch[1::2]:
            self.memory.add(**one)
        self._record_forms()
        if tier == "ltm":
            self.memory.force_consolidation()
        elif tier == "im":
            self.memory.force_transition_to_im()
        self._record_forms()

    def _memory(self, agent: str, way: str | None) -> dict[str, Any]:
        """Return a new memory. `way` is how it will be deleted, None for never."""
        token, id_token = self._token(), self._token()
        words = [self.random.choice(_WORDS) for _ in range(self.random.choice((3, 20, 60, 500)))]
        words.insert(self.random.randrange(len(words)), token)
        id = f"id-{id_token}"
        if way is not None:
            self.victims[agent, id] = way
            # An update keeps the id. An agent's name goes with its last memory.
            self.tokens[agent, id] = [token]
            if way != "update":
                self.tokens[agent, id].append(id_token)
            if way == "delete_all":
                self.tokens[agent, id].append(agent.split()[0])
        return {
            "agent_id": agent,
            "content": " ".join(words),
            "id": id,
            "metadata": {"note": f"{token} once more", "about": self.random.choice(_WORDS)},
            "importance": 0.0 if way == "evict" else 5.0,
        }

    def _token(self) -> str:
        return "".join(self.random.choices(string.ascii_lowercase, k=20))

    def _record_forms(self) -> None:
        for row in self.memory._store.all_rows():
            if (row.agent, row.id) in self.victims:
                parts = (row.body, row.vector, row.terms, row.fine or b"")
                self.forms.setdefault((row.agent, row.id), []).extend(parts)

    def _delete(self) -> None:
        keys = [key for key, way in self.victims.items() if way in self.ways]
        self.random.shuffle(keys)
        by_way = {way: [key for key in keys if self.victims[key] == way] for way in self.ways}
        options = {"erase": True} if self.erase else {}
        for _, id in by_way["delete"]:
            assert self.memory.delete("ann", id)
        for start in range(0, len(by_way["delete_many"]), 20):
            ids = [id for _, id in by_way["delete_many"][start : start + 20]]
            assert self.memory.delete_many("ann", ids) == len(ids)
            self.memory.add(**self._memory("ann", None))  # deleting and storing alternate
        for _, id in by_way["update"]:
            words = " ".join(self.random.choices(_WORDS, k=self.random.choice((3, 20, 60, 500))))
            assert self.memory.update("ann", id, content=words, metadata=None)
        agents = sorted({agent for agent, _ in by_way["delete_all"]})
        for agent in agents[1:]:
            assert self.memory.delete_all(agent)
        assert self.memory.delete_all(agents[0], **options)  # erases what the calls before have deleted too

    def _scan(self, state: str) -> Counter[str]:
        """Return how many memories have left bytes, by file and kind."""
        with self._open() if state == "closed" else nullcontext(self.memory) as memory:
            living, said = [], []
            for row in memory._store.all_rows():
                living.append(row.body + row.terms + row.vector + (row.fine or b""))  # as in the file
                said.append(f"{row.agent} {row.id}".encode())
                said.append(memory._codecs.raw_body(row.body_codec, row.body))
            codecs = [codec.data for codec in memory._store.codecs()]
        files = {
            str(file.relative_to(self.folder)): file.read_bytes()
            for file in sorted(self.folder.rglob("*"))
            if file.is_file()
        }
        found: Counter[str] = Counter()
        tokens, owners = _owned(
            {key: [t.encode() for t in own] for key, own in self.tokens.items()}, pieces
        )
        places = {**files, "a remaining memory": b"\0".join(said), "a codec": b"\0".join(codecs)}
        for place, data in places.items():
            count = len(set(owners[np.isin(tokens, pieces(data))].tolist()))
            if count:
                found[f"{state}: tokens in {place}"] = count
        forms, owners = _owned(self.forms, long_pieces)
        others = np.isin(forms, np.concatenate([long_pieces(part) for part in [*living, *said, *codecs]]))
        forms, owners = forms[~others], owners[~others]
        for place, data in files.items():
            count = len(set(owners[np.isin(forms, long_pieces(data))].tolist()))
            if count:
                found[f"{state}: stored forms in {place}"] = count
        return found


def _owned(
    parts: dict[Any, list[bytes]], split: Callable[[bytes], NDArray[np.uint64]]
) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Return the pieces of all parts, and the number of the memory that each belongs to."""
    arrays = [np.unique(np.concatenate([split(part) for part in own])) for own in parts.values()]
    owners = np.repeat(np.arange(len(arrays)), [len(array) for array in arrays])
    return np.concatenate(arrays), owners


def main() -> None:
    parser = argparse.ArgumentParser(description="delete memories and look for their bytes")
    parser.add_argument("--deletions", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--erase", action="store_true", help="use erase=True, not maintain()")
    options = parser.parse_args()
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        experiment = Erasure(Path(folder), options.deletions, options.seed, erase=options.erase)
        found = experiment.run()
        ways = Counter(experiment.victims.values())
    for place, count in sorted(found.items()):
        print(f"{count} memories left bytes: {place}")
    total = ", ".join(f"{count} by {way}" for way, count in sorted(ways.items()))
    seconds = time.monotonic() - start
    print(f"{sum(ways.values())} deleted ({total}) in {seconds:.0f} s: {sum(found.values())} found")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
