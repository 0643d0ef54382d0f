"""Small data sets in the published forms."""

from __future__ import annotations

import json
from pathlib import Path


def write_beir(folder: Path, test_folder: bool = True) -> Path:
    (folder / "qrels").mkdir(parents=True)
    documents = [
        {"_id": "1", "title": "Cats", "text": "purr"},
        {"_id": "2", "title": "", "text": "Dogs bark"},
    ]
    (folder / "corpus.jsonl").write_text("\n".join(map(json.dumps, documents)))
    queries = [{"_id": "q1", "text": "who purrs"}, {"_id": "q2", "text": "not judged"}]
    (folder / "queries.jsonl").write_text("\n".join(map(json.dumps, queries)))
    name = "qrels/test.tsv" if test_folder else "qrels.tsv"
    (folder / name).write_text("query-id\tcorpus-id\tscore\nq1\t1\t2\nq1\t2\t0\nq1\tgone\t1\n")
    return folder
