"""Measures the quality of the memory's text search with default settings, on two public data sets.

    python scripts/quality.py --data ../shared/data

LoCoMo (5 conversations): each turn is one memory with its speaker, session and time. A question is searched
in its own conversation. R@k is the share of its evidence turns among the first k hits, averaged over
questions. SciFact (BEIR): nDCG@10. Of the questions the memory only sees their text.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from memory import AgentMemorySystem, MemoryConfig


def open_memory() -> AgentMemorySystem:
    config = MemoryConfig()
    config.ltm_config.db_path = ":memory:"
    return AgentMemorySystem(config)


def turns(conversation: dict[str, Any], captions: bool) -> Iterator[dict[str, Any]]:
    """Yield the turns of one conversation as memories, with the ids of the turns."""
    number = 1
    while f"session_{number}" in conversation:
        when = datetime.strptime(
            conversation[f"session_{number}_date_time"], "%I:%M %p on %d %B, %Y"
        ).replace(tzinfo=UTC)
        for turn in conversation[f"session_{number}"]:
            text = turn["text"]
            if captions and turn.get("blip_caption"):
                text += f" [{turn['blip_caption']}]"
            yield {
                "id": turn["dia_id"],
                "content": text,
                "kind": "message",
                "timestamp": when,
                "metadata": {"speaker": turn["speaker"], "session": number},
            }
        number += 1


class Summary(NamedTuple):
    """The figures of one set of questions."""

    set: str
    questions: int
    figures: dict[str, float]


def locomo(path: Path, captions: bool) -> Summary:
    found: dict[str, list[list[float]]] = defaultdict(list)
    for sample in json.loads(path.read_text()):
        with open_memory() as memory:
            batch = list(turns(sample["conversation"], captions))
            known = {item["id"] for item in batch}
            memory.add_many({"agent_id": sample["sample_id"], **item} for item in batch)
            for question in sample["qa"]:
                evidence = set(re.findall(r"D\d+:\d+", " ".join(question.get("evidence", []))))
                evidence &= known
                if not evidence:
                    continue
                hits = memory.search(sample["sample_id"], question["question"], k=10)
                ids = [hit.id for hit in hits]
                recalls = [len(evidence & set(ids[:k])) / len(evidence) for k in (1, 5, 10)]
                for group in ("all", f"category {question['category']}", sample["sample_id"]):
                    found[group].append(recalls)
    print(f"LoCoMo, {'text and captions' if captions else 'text alone'}")
    print(f"  {'':12} questions   R@1   R@5  R@10")
    for group in sorted(found):
        recalls = found[group]
        means = [sum(column) / len(recalls) for column in zip(*recalls, strict=True)]
        print(f"  {group:12} {len(recalls):9}  " + "  ".join(f"{mean:.3f}" for mean in means))
    everything = found["all"]
    means = [sum(column) / len(everything) for column in zip(*everything, strict=True)]
    name = f"LoCoMo, {'text and captions' if captions else 'text alone'}"
    return Summary(name, len(everything), dict(zip(("R@1", "R@5", "R@10"), means, strict=True)))


def scifact(folder: Path) -> Summary:
    judged: dict[str, dict[str, int]] = defaultdict(dict)
    for line in (folder / "qrels.tsv").read_text().splitlines():
        query, document, grade = line.split("\t")
        if grade.isdigit():
            judged[query][document] = int(grade)
    queries = [json.loads(line) for line in (folder / "queries.jsonl").open()]
    with open_memory() as memory:
        documents = (json.loads(line) for line in (folder / "corpus.jsonl").open())
        memory.add_many(
            {"agent_id": "science", "id": document["id"], "content": document["text"]}
            for document in documents
        )
        gains = []
        for query in queries:
            grades = judged.get(query["id"])
            if not grades:
                continue
            hits = memory.search("science", query["text"], k=10)
            gains.append(
                discounted([grades.get(hit.id, 0) for hit in hits])
                / discounted(sorted(grades.values(), reverse=True)[:10])
            )
    mean = sum(gains) / len(gains)
    print(f"SciFact\n  {len(gains)} questions, nDCG@10 {mean:.3f}")
    return Summary("SciFact", len(gains), {"nDCG@10": mean})


def discounted(grades: list[int]) -> float:
    return sum(grade / math.log2(rank + 2) for rank, grade in enumerate(grades))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to a JSON file")
    arguments = parser.parse_args()
    folder = arguments.data
    conversations, science = folder / "locomo" / "locomo_dev.json", folder / "scifact"
    missing = [str(path) for path in (conversations, science) if not path.exists()]
    if missing:
        print(f"not found: {', '.join(missing)}; pass their folder with --data", file=sys.stderr)
        return 1
    found = [
        locomo(conversations, captions=False),
        locomo(conversations, captions=True),
        scifact(science),
    ]
    if arguments.json:
        arguments.json.write_text(json.dumps([one._asdict() for one in found], indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
