"""Public data sets, read from files that the user has: none of them comes with this package.

| form | what is read |
| --- | --- |
| locomo | the JSON of LoCoMo: conversations with questions whose evidence is turns |
| beir | a folder of BEIR: corpus.jsonl, queries.jsonl, qrels/test.tsv or qrels.tsv |
| longmemeval | the JSON of LongMemEval: each question with its own history of sessions |

The form is told from the files themselves. A checksum over what was read goes into the results.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from memory.benchmarking.errors import InvalidBenchmarkConfig
from memory.benchmarking.workloads.collections import Collection, Passage, Question

# LoCoMo numbers its categories; what the numbers mean follows from the evidence.
_LOCOMO_CATEGORIES = {1: "multi_hop", 2: "temporal", 3: "open_domain", 4: "single_hop", 5: "adversarial"}
_TURN = re.compile(r"D\d+:\d+")


@dataclass(frozen=True)
class DataSet:
    """What was read, and the digest of the files it was read from."""

    name: str
    form: str
    collections: tuple[Collection, ...]
    sha256: str
    judgements: str | None = None
    """Digest of which documents there are and which are right, whatever files and folder are called."""


def name_of(path: Path) -> str:
    """What a data set is called in the results, if no other has the same name."""
    return path.name if path.is_dir() else path.stem


def load_data_set(path: Path) -> DataSet:
    """Read a data set; one clear line if it is not one of the forms above."""
    try:
        if path.is_dir():
            return _beir(path)
        data = path.read_bytes()
        samples = json.loads(data)
        digest = hashlib.sha256(data).hexdigest()
        first = samples[0] if isinstance(samples, list) and samples else {}
        if isinstance(first, dict) and "conversation" in first and "qa" in first:
            return DataSet(name_of(path), "locomo", tuple(map(_locomo, samples)), digest)
        if isinstance(first, dict) and "haystack_sessions" in first:
            return DataSet(name_of(path), "longmemeval", tuple(map(_longmemeval, samples)), digest)
    except InvalidBenchmarkConfig:
        raise
    except OSError as problem:
        raise InvalidBenchmarkConfig(f"{path} can't be read: {problem.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as problem:
        raise InvalidBenchmarkConfig(
            f"{path} can't be read as a data set: {type(problem).__name__}: {problem}"
        ) from problem
    raise InvalidBenchmarkConfig(f"{path} is neither LoCoMo's nor LongMemEval's JSON, nor a folder of BEIR")


def _locomo(sample: dict[str, Any]) -> Collection:
    passages = tuple(_locomo_turns(sample["conversation"]))
    known = {passage.id for passage in passages}
    questions = []
    for entry in sample["qa"]:
        # Some entries hold several ids in one text, and some ids name no turn.
        evidence = set(_TURN.findall(" ".join(map(str, entry.get("evidence", []))))) & known
        if evidence:
            category = _LOCOMO_CATEGORIES.get(entry["category"], f"category_{entry['category']}")
            questions.append(Question(entry["question"], category, dict.fromkeys(sorted(evidence), 1)))
    return Collection(str(sample["sample_id"]), passages, tuple(questions))


def _locomo_turns(conversation: dict[str, Any]) -> Iterator[Passage]:
    number = 1
    while f"session_{number}" in conversation:
        spoken = conversation[f"session_{number}_date_time"]
        moment = datetime.strptime(spoken, "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC).timestamp()
        for turn in conversation[f"session_{number}"]:
            yield Passage(
                turn["dia_id"], turn["text"], moment, {"speaker": turn["speaker"], "session": number}
            )
        number += 1


def _longmemeval(sample: dict[str, Any]) -> Collection:
    """One question with its history; a right passage is a turn that the set marks as holding the answer.

    The set calls sessions with an answer `answer_…`, and not all its versions list sessions by time: what a
    target sees of a session is its place in time.
    """
    passages, right = [], {}
    sessions = zip(
        sample["haystack_session_ids"],
        map(_longmemeval_moment, sample["haystack_dates"]),
        sample["haystack_sessions"],
        strict=True,
    )
    in_time = sorted(sessions, key=lambda session: session[1])
    for place, (session_id, moment, turns) in enumerate(in_time, start=1):
        for number, turn in enumerate(turns):
            id_ = f"{session_id}:{number}"
            metadata = {"speaker": turn["role"], "session": place}
            passages.append(Passage(id_, turn["content"], moment, metadata))
            if turn.get("has_answer"):
                right[id_] = 1
    kind = "no_answer" if str(sample["question_id"]).endswith("_abs") else sample["question_type"]
    question = Question(sample["question"], kind, {} if kind == "no_answer" else right)
    questions = (question,) if right or kind == "no_answer" else ()
    return Collection(str(sample["question_id"]), tuple(passages), questions)


def _longmemeval_moment(date: str) -> float:
    return datetime.strptime(date, "%Y/%m/%d (%a) %H:%M").replace(tzinfo=UTC).timestamp()


def _beir(folder: Path) -> DataSet:
    judgements = next(
        (path for path in (folder / "qrels" / "test.tsv", folder / "qrels.tsv") if path.is_file()), None
    )
    missing = [name for name in ("corpus.jsonl", "queries.jsonl") if not (folder / name).is_file()]
    if judgements is None:
        missing.append("qrels/test.tsv")
    if missing or judgements is None:
        raise InvalidBenchmarkConfig(f"{folder} is not a folder of BEIR: {', '.join(missing)} is missing")
    digest = hashlib.sha256()
    for path in (folder / "corpus.jsonl", folder / "queries.jsonl", judgements):
        digest.update(path.read_bytes())
    grades: dict[str, dict[str, int]] = {}
    for line in judgements.read_text().splitlines():
        query, document, grade = line.split("\t")
        if grade.lstrip("-").isdigit():  # the first line is a heading
            grades.setdefault(query, {})[document] = int(grade)
    passages = tuple(
        sorted(
            (
                Passage(_id(document), f"{document.get('title', '')} {document['text']}".strip())
                for document in _lines(folder / "corpus.jsonl")
            ),
            key=_by_nothing,
        )
    )
    known = {passage.id for passage in passages}
    questions, asked = [], []
    for entry in _lines(folder / "queries.jsonl"):
        judged = {id_: grade for id_, grade in grades.get(_id(entry), {}).items() if id_ in known}
        if any(grade > 0 for grade in judged.values()):
            questions.append(Question(entry["text"], "all", judged))
            asked += [f"{_id(entry)}\t{id_}\t{grade}" for id_, grade in judged.items()]
    name = name_of(folder)
    return DataSet(
        name,
        "beir",
        (Collection(name, passages, tuple(questions)),),
        digest.hexdigest(),
        hashlib.sha256("\n".join([*sorted(known), *sorted(asked)]).encode()).hexdigest(),
    )


def _by_nothing(passage: Passage) -> bytes:
    """An order that says nothing: in SciFact's own, the right documents come earlier than others."""
    return hashlib.sha256(passage.text.encode(errors="surrogatepass")).digest()


def _id(entry: dict[str, Any]) -> str:
    return str(entry["_id"] if "_id" in entry else entry["id"])


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        for line in file:
            if line.strip():
                yield json.loads(line)
