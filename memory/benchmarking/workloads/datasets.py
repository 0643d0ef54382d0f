"""Read public data sets from the user's files. This package contains none of these data sets.

| form | files |
| --- | --- |
| locomo | the JSON of LoCoMo: conversations, and questions with the turns that are their evidence |
| beir | a folder of BEIR: corpus.jsonl, queries.jsonl, qrels/test.tsv or qrels.tsv |
| longmemeval | the JSON of LongMemEval: each question with its own history of sessions |
| conversations | one JSON object a line: passages of a conversation, and questions with their evidence |

The form is detected from the content of the files. The results include a checksum of the files.
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

# LoCoMo has only numbers for its categories; we derived these names from the evidence of their questions.
_LOCOMO_CATEGORIES = {1: "multi_hop", 2: "temporal", 3: "open_domain", 4: "single_hop", 5: "adversarial"}
_TURN = re.compile(r"D:?(\d+):(\d+)")
"""A turn named as evidence. LoCoMo also writes `D30:05` and `D:11:26` for the turns D30:5 and D11:26."""
_WITHOUT_ANSWER = ("abstention", "no_answer")
"""Categories of questions that no passage answers. Another question without evidence is left out."""


@dataclass(frozen=True)
class DataSet:
    """A data set, and the SHA-256 digest of its files."""

    name: str
    form: str
    collections: tuple[Collection, ...]
    sha256: str
    judgements: str | None = None
    """Digest of the document ids and the relevance judgements, independent of names and file formats."""


def name_of(path: Path) -> str:
    """Return the name of a data set in the results."""
    return path.name if path.is_dir() else path.stem


def load_data_set(path: Path) -> DataSet:
    """Read a data set of one of the forms above."""
    try:
        if path.is_dir():
            return _beir(path)
        data = path.read_bytes()
        samples = _json_or_lines(data)
        digest = hashlib.sha256(data).hexdigest()
        first = samples[0] if isinstance(samples, list) and samples else {}
        if isinstance(first, dict) and "conversation" in first and "qa" in first:
            return DataSet(name_of(path), "locomo", tuple(map(_locomo, samples)), digest)
        if isinstance(first, dict) and "haystack_sessions" in first:
            return DataSet(name_of(path), "longmemeval", tuple(map(_longmemeval, samples)), digest)
        if isinstance(first, dict) and "passages" in first and "questions" in first:
            return DataSet(name_of(path), "conversations", tuple(map(_conversation, samples)), digest)
    except InvalidBenchmarkConfig:
        raise
    except OSError as problem:
        raise InvalidBenchmarkConfig(f"{path} can't be read: {problem.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as problem:
        raise InvalidBenchmarkConfig(
            f"{path} can't be read as a data set: {type(problem).__name__}: {problem}"
        ) from problem
    raise InvalidBenchmarkConfig(
        f"{path} is neither JSON of LoCoMo or LongMemEval, nor lines of conversations, nor a folder of BEIR"
    )


def _json_or_lines(data: bytes) -> Any:
    """Return the JSON value in a file, or the list of the values in its lines."""
    try:
        value = json.loads(data)
        return [value] if isinstance(value, dict) else value
    except json.JSONDecodeError as problem:
        if problem.msg != "Extra data":
            raise
    return [json.loads(line) for line in data.decode().splitlines() if line.strip()]


def _conversation(sample: dict[str, Any]) -> Collection:
    """Read one conversation of the general form (docs/quality.md)."""
    passages = []
    sessions: dict[Any, int] = {}
    for entry in sample["passages"]:
        metadata: dict[str, str | int] = {}
        if entry.get("speaker") is not None:
            metadata["speaker"] = str(entry["speaker"])
        if entry.get("session") is not None:
            # A number instead of the set's own name, which could tell what is in the session.
            metadata["session"] = sessions.setdefault(entry["session"], len(sessions) + 1)
        timestamp = None
        if entry.get("time") is not None:
            time = datetime.fromisoformat(entry["time"])
            timestamp = (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
        passages.append(Passage(str(entry["id"]), entry["text"], timestamp, metadata))
    known = {passage.id for passage in passages}
    questions = []
    for entry in sample["questions"]:
        category = str(entry.get("category") or "question")
        evidence = {str(id_) for id_ in entry.get("evidence") or ()} & known
        if evidence or category in _WITHOUT_ANSWER:
            questions.append(Question(entry["text"], category, dict.fromkeys(sorted(evidence), 1)))
    return Collection(str(sample["id"]), tuple(passages), tuple(questions))


def _locomo(sample: dict[str, Any]) -> Collection:
    passages = tuple(_locomo_turns(sample["conversation"]))
    known = {passage.id for passage in passages}
    questions = []
    for entry in sample["qa"]:
        # Some entries hold several ids in one text, and some ids refer to no turn.
        named = _TURN.findall(" ".join(map(str, entry.get("evidence", []))))
        evidence = {f"D{int(session)}:{int(turn)}" for session, turn in named} & known
        if evidence:
            category = _LOCOMO_CATEGORIES.get(entry["category"], f"category_{entry['category']}")
            questions.append(Question(entry["question"], category, dict.fromkeys(sorted(evidence), 1)))
    return Collection(str(sample["sample_id"]), passages, tuple(questions))


def _locomo_turns(conversation: dict[str, Any]) -> Iterator[Passage]:
    number = 1
    while f"session_{number}" in conversation:
        timestamp = _timestamp(conversation[f"session_{number}_date_time"], "%I:%M %p on %d %B, %Y")
        for turn in conversation[f"session_{number}"]:
            metadata = {"speaker": turn["speaker"], "session": number}
            yield Passage(turn["dia_id"], turn["text"], timestamp, metadata)
        number += 1


def _longmemeval(sample: dict[str, Any]) -> Collection:
    """Read one question with its history; the data set marks the turns that hold the answer.

    Session ids such as `answer_…` would show a target where the answer is. In some versions the order of
    the sessions would show it too. So sessions are sorted by time, and a target gets only their numbers.
    """
    passages, relevant = [], {}
    dates = [_timestamp(date, "%Y/%m/%d (%a) %H:%M") for date in sample["haystack_dates"]]
    sessions = zip(sample["haystack_session_ids"], dates, sample["haystack_sessions"], strict=True)
    in_order = sorted(sessions, key=lambda session: session[1])
    for place, (session_id, timestamp, turns) in enumerate(in_order, start=1):
        for number, turn in enumerate(turns):
            id_ = f"{session_id}:{number}"
            metadata = {"speaker": turn["role"], "session": place}
            passages.append(Passage(id_, turn["content"], timestamp, metadata))
            if turn.get("has_answer"):
                relevant[id_] = 1
    category = "no_answer" if str(sample["question_id"]).endswith("_abs") else sample["question_type"]
    question = Question(sample["question"], category, {} if category == "no_answer" else relevant)
    questions = (question,) if relevant or category == "no_answer" else ()
    return Collection(str(sample["question_id"]), tuple(passages), questions)


def _timestamp(date: str, form: str) -> float:
    return datetime.strptime(date, form).replace(tzinfo=UTC).timestamp()


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
        if grade.lstrip("-").isdigit():  # the first line is a header
            grades.setdefault(query, {})[document] = int(grade)
    passages = tuple(
        sorted(
            (
                Passage(_id(document), f"{document.get('title', '')} {document['text']}".strip())
                for document in _lines(folder / "corpus.jsonl")
            ),
            key=_shuffled,
        )
    )
    known = {passage.id for passage in passages}
    questions, judged = [], []
    for entry in _lines(folder / "queries.jsonl"):
        of_query = {id_: grade for id_, grade in grades.get(_id(entry), {}).items() if id_ in known}
        if any(grade > 0 for grade in of_query.values()):
            questions.append(Question(entry["text"], "all", of_query))
            judged += [f"{_id(entry)}\t{id_}\t{grade}" for id_, grade in of_query.items()]
    name = name_of(folder)
    return DataSet(
        name,
        "beir",
        (Collection(name, passages, tuple(questions)),),
        digest.hexdigest(),
        hashlib.sha256("\n".join([*sorted(known), *sorted(judged)]).encode()).hexdigest(),
    )


def _shuffled(passage: Passage) -> bytes:
    """Return a sort key for a neutral order. In SciFact's own order, relevant documents come first."""
    return hashlib.sha256(passage.text.encode(errors="surrogatepass")).digest()


def _id(entry: dict[str, Any]) -> str:
    return str(entry["_id"] if "_id" in entry else entry["id"])


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        for line in file:
            if line.strip():
                yield json.loads(line)
