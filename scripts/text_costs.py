"""Compare what generated and real texts cost a memory: `make text-costs`.

    python scripts/text_costs.py --data ../shared/data

The benchmarks generate their texts (memory/benchmarking/workloads/natural_texts.py). Here the same calls
get these texts, turns of LoCoMo, abstracts of SciFact, and sentences from templates with 1,335 words. All
corpora take turns in short blocks. A figure is the median over the blocks, in CPU time of the process.
"""

from __future__ import annotations

import argparse
import gc
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from memory import AgentMemorySystem, MemoryConfig
from memory.benchmarking.workloads.contents import contents_of
from memory.benchmarking.workloads.datasets import load_data_set
from memory.benchmarking.workloads.natural_texts import document_texts, memory_texts, question_texts

_BLOCK = 100
"""Memories, or questions, of one block."""
_AGENT = "agent"


@dataclass
class Corpus:
    """Texts and questions of one kind, and what they cost."""

    name: str
    texts: Sequence[str]
    questions: Sequence[str]
    costs: dict[str, list[float]] = field(default_factory=dict)
    """CPU microseconds a call, one for each block, by what was called."""


def corpora(data: Path, most: int) -> dict[str, list[Corpus]]:
    """Return the corpora that are compared with each other; the real one is the first."""
    real = {}
    for name, path in (("LoCoMo", data / "locomo" / "locomo_dev.json"), ("SciFact", data / "scifact")):
        collections = load_data_set(path).collections
        texts = [passage.text for each in collections for passage in each.passages]
        asked = [question.text for each in collections for question in each.questions]
        random.Random(1).shuffle(texts)
        random.Random(1).shuffle(asked)
        real[name] = Corpus(name, texts[:most], asked[: 2 * _BLOCK])
    turns, abstracts = real["LoCoMo"], real["SciFact"]

    def made(name: str, of: Corpus, texts: object, asked: object) -> Corpus:
        return Corpus(name, [*islice(texts, len(of.texts))], [*islice(asked, len(of.questions))])  # type: ignore[call-overload]

    return {
        "turns": [
            turns,
            made("generated turns", turns, memory_texts(1), question_texts(2)),
            made("templates", turns, iter(contents_of("dialogue", len(turns.texts), 1)), question_texts(2)),
        ],
        "abstracts": [
            abstracts,
            made("generated documents", abstracts, document_texts(1), question_texts(2)),
        ],
    }


def measure(compared: Sequence[Corpus], folder: Path) -> None:
    """Add and search all corpora, block by block in random order."""
    opened = []
    for number, corpus in enumerate(compared):
        config = MemoryConfig(maintenance="manual")  # nothing else runs on the CPU
        config.ltm_config.db_path = str(folder / f"{number}.db")
        opened.append((corpus, AgentMemorySystem(config)))
    half = len(compared[0].texts) // 2
    rng = random.Random(3)

    def blocks(what: str, count: int, call: Callable[[AgentMemorySystem, Corpus, int], int]) -> None:
        for start in range(0, count, _BLOCK):
            for corpus, memory in rng.sample(opened, len(opened)):
                gc.collect()
                begin = time.process_time()
                calls = call(memory, corpus, start)
                corpus.costs.setdefault(what, []).append((time.process_time() - begin) / calls * 1e6)

    def add(memory: AgentMemorySystem, corpus: Corpus, start: int) -> int:
        part = corpus.texts[start : start + _BLOCK]
        for text in part:
            memory.add(_AGENT, text)
        return len(part)

    def add_many(memory: AgentMemorySystem, corpus: Corpus, start: int) -> int:
        part = corpus.texts[half + start : half + start + _BLOCK]
        memory.add_many({"agent_id": _AGENT, "content": text} for text in part)
        return len(part)

    def search(memory: AgentMemorySystem, corpus: Corpus, start: int) -> int:
        part = corpus.questions[start % len(corpus.questions) :][:_BLOCK]
        for question in part:
            memory.search(_AGENT, question)
        return len(part)

    blocks("add", half, add)
    blocks("add_many", half, add_many)
    blocks("search", 10 * _BLOCK, search)
    for _, memory in opened:
        memory.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="the folder of the sets")
    parser.add_argument("--memories", type=int, default=2900, help="of each corpus, at most")
    parser.add_argument("--repeats", type=int, default=3, help="how often each store is filled")
    given = parser.parse_args()
    print("| texts | `add` µs | `add_many` µs | `search` µs | ÷ real texts |")
    print("| --- | --- | --- | --- | --- |")
    for compared in corpora(given.data, given.memories).values():
        for _ in range(given.repeats):
            with tempfile.TemporaryDirectory() as folder:
                measure(compared, Path(folder))
        found = [
            {what: statistics.median(costs) for what, costs in each.costs.items()} for each in compared
        ]
        for corpus, costs in zip(compared, found, strict=True):
            ratios = " / ".join(f"{cost / found[0][what]:.2f}" for what, cost in costs.items())
            figures = " | ".join(f"{cost:.0f}" for cost in costs.values())
            print(f"| {corpus.name} | {figures} | {'' if corpus is compared[0] else ratios} |")


if __name__ == "__main__":
    main()
