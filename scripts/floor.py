"""Compares the memory with the simplest code that does the same durable work.

    python scripts/floor.py             about a minute
    python scripts/floor.py --million   also a file of 1,000,000 memories (about three minutes)

The floor is SQLite in WAL mode with the same row, an FTS5 row and a float32 vector, and NumPy for
searching. Texts, embedder and machine are the same. Both sides take turns in short blocks, in random
order, so noise hits both. A ratio is the median over the blocks. Exits with 1 if a goal is missed.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import re
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

import msgspec
import numpy as np

from memory import AgentMemorySystem, MemoryConfig
from memory.benchmarking.workloads.natural_texts import memory_texts, question_texts
from memory.compression.content_codecs import ContentCodecs, train_dictionary
from memory.embedding import WordLlamaEmbedder

AGENT = "agent"
_encode = msgspec.msgpack.encode
_decode = msgspec.msgpack.decode


@dataclass(frozen=True)
class Line:
    """One line of the table."""

    what: str
    floor: str
    ours: str
    ratio: float
    goal: str
    reached: bool | None
    """None where there is no goal."""


class Floor:
    """The simplest memory that SQLite and NumPy allow."""

    def __init__(self, path: Path) -> None:
        self.embedder = WordLlamaEmbedder()
        self.db = sqlite3.connect(path, isolation_level=None)
        self.db.executescript(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;"
            "CREATE TABLE memories (id TEXT PRIMARY KEY, agent TEXT, kind TEXT, created_at REAL,"
            " importance REAL, codec INTEGER, body BLOB, vector BLOB);"
            "CREATE INDEX by_agent ON memories (agent, created_at);"
            "CREATE VIRTUAL TABLE words USING fts5 (text, id UNINDEXED, tokenize = 'porter');"
        )
        self._next = 0
        self.bodies = ContentCodecs()

    def add(self, text: str) -> str:
        return self.add_many([text])[0]

    def add_many(self, texts: Sequence[str]) -> list[str]:
        vectors = self.embedder.embed(texts)
        ids = [f"memory-{self._next + number:012}" for number in range(len(texts))]
        self._next += len(texts)
        now = time.time()
        rows = [
            (id_, AGENT, "text", now, 1.0, 0, _encode([text, {}]), vector.tobytes())
            for id_, text, vector in zip(ids, texts, vectors, strict=True)
        ]
        self.db.execute("BEGIN")
        self.db.executemany("INSERT INTO memories VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
        self.db.executemany("INSERT INTO words (text, id) VALUES (?, ?)", zip(texts, ids, strict=True))
        self.db.execute("COMMIT")
        return ids

    def pack(self, dictionary: bytes) -> None:
        """Compress all bodies as im and ltm do, so that a read does the same decoding."""
        self.bodies.add_dictionary(16, dictionary)
        rows = self.db.execute("SELECT id, body FROM memories").fetchall()
        self.db.executemany(
            "UPDATE memories SET codec = ?, body = ? WHERE id = ?",
            [(*self.bodies.compress(body), id_) for id_, body in rows],
        )

    def get(self, id_: str) -> object:
        row = self.db.execute(
            "SELECT id, agent, kind, created_at, importance, codec, body FROM memories WHERE id = ?",
            (id_,),
        ).fetchone()
        body = self.bodies.decompress(row[5], row[6]) if row[5] else row[6]
        return (*row[:5], _decode(body))

    def words(self, query: str) -> list[tuple[str, float]]:
        terms = " OR ".join(re.findall(r"\w+", query))
        return self.db.execute(
            "SELECT id, bm25(words) FROM words WHERE words MATCH ? ORDER BY 2 LIMIT 10", (terms,)
        ).fetchall()


def scan_product(matrix: np.ndarray, vector: np.ndarray) -> np.ndarray:
    return _top(matrix @ vector)


def scan_vecdot(matrix: np.ndarray, vector: np.ndarray) -> np.ndarray:
    return _top(np.vecdot(matrix, vector))


def _top(scores: np.ndarray) -> np.ndarray:
    best = np.argpartition(scores, -10)[-10:]
    return best[np.argsort(-scores[best])]


def open_memory(path: Path) -> AgentMemorySystem:
    """Open a memory with the default settings: the background moves memories to lower tiers."""
    config = MemoryConfig()
    config.ltm_config.db_path = str(path)
    return AgentMemorySystem(config)


def open_with_fixed_tiers(path: Path) -> AgentMemorySystem:
    """Open a memory in which nothing moves, for figures that name a tier."""
    config = MemoryConfig(maintenance="manual")
    config.ltm_config.db_path = str(path)
    config.stm_config.memory_limit = config.im_config.memory_limit = None
    return AgentMemorySystem(config)


def alternate(blocks: int, *sides: Callable[[int], object], warm_up: bool = True) -> list[list[float]]:
    """Return the seconds of each side's blocks; in a block every side has one turn, in random order."""
    rng = random.Random(7)
    seconds: list[list[float]] = [[] for _ in sides]
    for block in range(-1 if warm_up else 0, blocks):
        order = list(range(len(sides)))
        rng.shuffle(order)
        for side in order:
            gc.collect()
            gc.disable()
            start = time.perf_counter()
            sides[side](block)
            elapsed = time.perf_counter() - start
            gc.enable()
            if block >= 0:
                seconds[side].append(elapsed)
    return seconds


def median_ratio(over: Sequence[float], under: Sequence[float]) -> float:
    return statistics.median(a / b for a, b in zip(over, under, strict=True))


def faster(*sides: Sequence[float]) -> Sequence[float]:
    return min(sides, key=statistics.median)


def rate_line(what: str, floor: Sequence[float], ours: Sequence[float], calls: int, least: float) -> Line:
    ratio = median_ratio(floor, ours)
    rates = [f"{calls / statistics.median(side):,.0f}/s" for side in (floor, ours)]
    return Line(what, *rates, ratio, f"≥ {least} ×", ratio >= least)


def time_line(what: str, floor: Sequence[float], ours: Sequence[float], calls: int, most: float) -> Line:
    ratio = median_ratio(ours, floor)
    times = [f"{statistics.median(side) / calls * 1e3:.3f} ms" for side in (floor, ours)]
    return Line(what, *times, ratio, f"≤ {most} × time", ratio <= most)


def storing(folder: Path) -> Iterator[Line]:
    texts = memory_texts(seed=1)
    floor = Floor(folder / "floor.db")
    with open_memory(folder / "ours.db") as memory:
        calls = 200
        singles = [list(islice(texts, calls)) for _ in range(32)]
        raw, ours = alternate(
            15,
            lambda block: [floor.add(text) for text in singles[block]],
            lambda block: [memory.add(AGENT, text) for text in singles[block + 16]],
        )
        yield rate_line("add, one by one", raw, ours, calls, 0.5)
        batches = [list(islice(texts, 1000)) for _ in range(18)]
        raw, ours = alternate(
            8,
            lambda block: floor.add_many(batches[block]),
            lambda block: memory.add_many(
                [{"agent_id": AGENT, "content": text} for text in batches[block + 9]]
            ),
        )
        yield rate_line("add_many of 1,000", raw, ours, 1000, 0.6)


def reading(folder: Path) -> Iterator[Line]:
    texts = list(islice(memory_texts(seed=2), 10_000))
    plain, packed = Floor(folder / "plain.db"), Floor(folder / "packed.db")
    raw_ids = plain.add_many(texts)
    packed.add_many(texts)
    dictionary = train_dictionary([_encode([text, {}]) for text in texts[:2000]])
    packed.pack(dictionary or b"")
    rng = random.Random(3)
    for tier, floor, least in (("ltm", packed, 0.8), ("im", packed, 0.8), ("stm", plain, 5.0)):
        with open_with_fixed_tiers(folder / f"read-{tier}.db") as memory:
            memory.add_many({"agent_id": "trainer", "content": text} for text in texts[:2000])
            memory.maintain()  # fits the dictionary
            ids = memory.add_many({"agent_id": AGENT, "content": t, "tier": tier} for t in texts)
            picks = [rng.randrange(len(texts)) for _ in range(2000)]
            asked, raw_asked = [ids[pick] for pick in picks], [raw_ids[pick] for pick in picks]

            def read_ours(_: int, asked: list[str] = asked) -> None:
                for id_ in asked:
                    memory.get(AGENT, id_)

            def read_raw(_: int, asked: list[str] = raw_asked, floor: Floor = floor) -> None:
                for id_ in asked:
                    floor.get(id_)

            raw, ours = alternate(21, read_raw, read_ours)
            yield rate_line(f"get by id, {tier}", raw, ours, len(picks), least)


def searching(folder: Path) -> Iterator[Line]:
    texts = list(islice(memory_texts(seed=4), 10_000))
    questions = list(islice(question_texts(seed=5), 50))
    floor = Floor(folder / "floor-search.db")
    floor.add_many(texts)
    matrix = floor.embedder.embed(texts)
    vectors = floor.embedder.embed(questions)
    with open_memory(folder / "search.db") as memory:
        memory.add_many({"agent_id": AGENT, "content": text} for text in texts)
        memory.maintain()  # what filling the store has left to do in the background is not measured
        product, vecdot, ours = alternate(
            21,
            lambda _: [scan_product(matrix, vector) for vector in vectors],
            lambda _: [scan_vecdot(matrix, vector) for vector in vectors],
            lambda _: [memory.retrieve_similar_states(AGENT, vector) for vector in vectors],
        )
        calls = len(questions)
        yield time_line("vector search, 10,000", faster(product, vecdot), ours, calls, 1.5)

        def raw_text(_: int) -> None:
            for question in questions:
                floor.words(question)
                scan_product(matrix, floor.embedder.embed([question])[0])

        raw, ours = alternate(
            11, raw_text, lambda _: [memory.search(AGENT, question) for question in questions]
        )
        yield time_line("text search, 10,000", raw, ours, calls, 1.5)


def searching_all_tiers(folder: Path) -> Iterator[Line]:
    texts = list(islice(memory_texts(seed=6), 100_000))
    questions = list(islice(question_texts(seed=7), 50))
    embedder = WordLlamaEmbedder()
    matrix, vectors = embedder.embed(texts), embedder.embed(questions)
    with open_with_fixed_tiers(folder / "tiers.db") as memory:
        ids = []
        for start in range(0, len(texts), 5000):
            part = texts[start : start + 5000]
            ids += memory.add_many({"agent_id": AGENT, "content": text} for text in part)
        memory.maintain()  # fits the codecs
        memory.force_transition_to_im(90)
        memory.force_transition_to_ltm(67)
        tiers = memory.get_memory_statistics()["tiers"]
        numbers = {id_: number for number, id_ in enumerate(ids)}
        recalls = []
        for vector in vectors:
            exact = set(scan_product(matrix, vector).tolist())
            hits = memory.retrieve_similar_states(AGENT, vector)
            recalls.append(len(exact & {numbers[hit.id] for hit in hits}) / 10)
        recall = statistics.mean(recalls)
        product, vecdot, ours = alternate(
            11,
            lambda _: [scan_product(matrix, vector) for vector in vectors],
            lambda _: [scan_vecdot(matrix, vector) for vector in vectors],
            lambda _: [memory.retrieve_similar_states(AGENT, vector) for vector in vectors],
        )
        spread = ", ".join(f"{count:,} {tier}" for tier, count in tiers.items())
        calls = len(questions)
        yield time_line(f"vector search, 100,000 ({spread})", faster(product, vecdot), ours, calls, 0.6)
        yield Line("… recall@10 against exact", "1.000", f"{recall:.3f}", recall, "≥ 0.95", recall >= 0.95)


def disk(folder: Path) -> Iterator[Line]:
    """Compare file sizes: memories stored in ltm directly, and moved there from stm."""
    texts = list(islice(memory_texts(seed=8), 20_000))
    parts = [texts[start : start + 1000] for start in range(0, len(texts), 1000)]
    floor = Floor(folder / "floor-disk.db")
    for part in parts:
        floor.add_many(part)
    floor.db.close()
    raw = os.path.getsize(folder / "floor-disk.db") / len(texts)
    with open_with_fixed_tiers(folder / "direct.db") as memory:
        memory.add_many({"agent_id": "trainer", "content": text} for text in texts[:2000])
        memory.maintain()  # fits dictionary and codec
        memory.delete_all("trainer")
        for part in parts:
            memory.add_many({"agent_id": AGENT, "content": text, "tier": "ltm"} for text in part)
    direct = os.path.getsize(folder / "direct.db") / len(texts)
    what, ratio = "bytes a memory on disk, stored in ltm", direct / raw
    yield Line(what, f"{raw:,.0f}", f"{direct:,.0f}", ratio, "≤ 0.5 ×", ratio <= 0.5)
    with open_with_fixed_tiers(folder / "moved.db") as memory:
        for part in parts:
            memory.add_many({"agent_id": AGENT, "content": text} for text in part)
        memory.maintain()
        memory.force_consolidation()
        assert memory.get_memory_statistics()["tiers"]["ltm"] == len(texts)
        left = os.path.getsize(folder / "moved.db") / len(texts)
        memory.maintain()  # returns free pages to the system
    used = _bytes_in_use(folder / "moved.db") / len(texts)
    moved = os.path.getsize(folder / "moved.db") / len(texts)
    for what, size in (
        ("… moved down from stm: pages in use", used),
        ("… the file right after the move", left),
    ):
        yield Line(what, f"{raw:,.0f}", f"{size:,.0f}", size / raw, "", None)
    what, ratio = "… the file after the next maintenance", moved / raw
    yield Line(what, f"{raw:,.0f}", f"{moved:,.0f}", ratio, "≤ 0.5 ×", ratio <= 0.5)


def _bytes_in_use(path: Path) -> int:
    db = sqlite3.connect(path)
    pages, free, size = (
        db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
    )
    db.close()
    return int((pages - free) * size)


RESIDENT = """
import os, sys
import numpy
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
before = resident()
from memory import AgentMemorySystem, MemoryConfig
config = MemoryConfig()
config.ltm_config.db_path = sys.argv[1]
memory = AgentMemorySystem(config)
for question in sys.argv[2:]:
    assert len(memory.search("agent", question)) == 10
    assert len(memory.retrieve_similar_states("agent", question)) == 10
print(resident() - before)
"""

OPENING = """
import json, sys, time
import numpy
start = time.perf_counter()
from memory import AgentMemorySystem, MemoryConfig
imported = time.perf_counter()
config = MemoryConfig()
config.ltm_config.db_path = sys.argv[1]
memory = AgentMemorySystem(config)
entry = memory.get(sys.argv[2], sys.argv[3])
end = time.perf_counter()
assert entry is not None and entry.content, entry
print(json.dumps([imported - start, end - imported]))
"""


def resident(folder: Path) -> Iterator[Line]:
    texts = memory_texts(seed=9)
    path = folder / "resident.db"
    with open_memory(path) as memory:
        for _ in range(50):
            memory.add_many({"agent_id": AGENT, "content": t} for t in islice(texts, 2000))
        memory.maintain()
    questions = list(islice(question_texts(seed=10), 20))
    extra = int(_in_fresh_process(RESIDENT, str(path), *questions)) / 1e6
    yield Line("resident MB, 100,000 memories searched", "0", f"{extra:.0f}", extra, "≤ 150", extra <= 150)


def opening(folder: Path) -> Iterator[Line]:
    path = folder / "million.db"
    rng = np.random.default_rng(11)
    texts = memory_texts(seed=12)
    last = ""
    with open_with_fixed_tiers(path) as memory:
        for number in range(200):
            vectors = rng.standard_normal((5000, 256), dtype=np.float32)
            last = memory.add_many(
                {
                    "agent_id": f"agent-{(number * 5000 + row) % 10_000}",
                    "content": next(texts),
                    "tier": "ltm",
                    "vector": vector,
                }
                for row, vector in enumerate(vectors)
            )[-1]
    imported, opened = json.loads(_in_fresh_process(OPENING, str(path), "agent-9999", last))
    size = os.path.getsize(path) / 1e6
    yield Line(
        f"open 1,000,000 memories ({size:,.0f} MB), get one",
        f"import {imported:.2f} s",
        f"{opened:.3f} s",
        imported + opened,
        "< 0.3 s",
        imported + opened < 0.3,
    )


def _in_fresh_process(code: str, *arguments: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], check=True, capture_output=True, text=True
    ).stdout


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--million", action="store_true", help="also open a file of 1,000,000")
    parser.add_argument("--only", help="run only the parts whose name contains this")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the lines to a JSON file")
    arguments = parser.parse_args()
    parts = [storing, reading, searching, searching_all_tiers, disk, resident]
    if arguments.million:
        parts.append(opening)
    lines: list[Line] = []
    print(f"{'what':52} {'floor':>14} {'ours':>14} {'ratio':>8}   goal")
    for part in parts:
        if arguments.only and arguments.only not in part.__name__:
            continue
        with tempfile.TemporaryDirectory() as folder:
            for line in part(Path(folder)):
                lines.append(line)
                mark = {True: "reached", False: "MISSED", None: ""}[line.reached]
                print(
                    f"{line.what:52} {line.floor:>14} {line.ours:>14} {line.ratio:8.2f}   "
                    f"{line.goal:12} {mark}",
                    flush=True,
                )
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(line) for line in lines], indent=1) + "\n")
    return 1 if any(line.reached is False for line in lines) else 0


if __name__ == "__main__":
    sys.exit(main())
