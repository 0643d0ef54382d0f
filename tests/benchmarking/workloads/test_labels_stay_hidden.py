"""A target can't see which passages are relevant: not by ids, order or metadata.

For every form of data set, two sets that differ in their labels alone are put to a target that writes
down what it is given. It must be given the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from recording_target import RECORDING, RecordingTarget

from memory.benchmarking import Bench
from memory.benchmarking.benchmarks.quality import SYNTHETIC, _target_answers, benchmark_retrieval_quality
from memory.benchmarking.workloads.conversations import synthetic_collections

Given = list[tuple[str, Any]]
TEXTS = (
    "I moved to Ghent",
    "The bus was late",
    "Rex is a dog",
    "I like rye bread",
    "It rains",
    "Good night",
)


@pytest.fixture(autouse=True)
def _recorded() -> Iterator[None]:
    RecordingTarget.given.clear()
    yield
    RecordingTarget.given.clear()


def given_for(data_set: Path | str) -> Given:
    RecordingTarget.given.clear()
    few = {"conversations": 2, "sessions": 5}
    benchmark_retrieval_quality(data_sets=[str(data_set)], **few, bench=Bench(target=RECORDING))
    return list(RecordingTarget.given)


def items_of(given: Given) -> list[dict[str, Any]]:
    return [item for verb, what in given if verb == "add" for item in what[0]]


def longmemeval(path: Path, question_id: str, right: int, in_time: bool) -> Path:
    """Make one question over three sessions of two turns; session and turn `right` hold the answer."""
    sessions = [
        {
            "haystack_session_ids": f"answer_{number}" if number == right else f"sharegpt_{number}_0",
            "haystack_dates": f"2023/05/2{number} (Sat) 02:21",
            "haystack_sessions": [
                {"role": "user", "content": TEXTS[2 * number], "has_answer": number == right},
                {"role": "assistant", "content": TEXTS[2 * number + 1]},
            ],
        }
        for number in range(3)
    ]
    if not in_time:
        sessions.sort(key=lambda session: not str(session["haystack_session_ids"]).startswith("answer_"))
    sample: dict[str, Any] = {
        "question_id": question_id,
        "question_type": "single-session-user" if right else "multi-session",
        "question": "Where do I live?",
        "answer": TEXTS[2 * right],
        "answer_session_ids": [f"answer_{right}"],
    }
    sample |= {key: [session[key] for session in sessions] for key in sessions[0]}
    path.write_text(json.dumps([sample]))
    return path


@pytest.mark.parametrize("in_time", [True, False])
def test_the_labels_of_longmemeval(tmp_path: Path, in_time: bool) -> None:
    one = given_for(longmemeval(tmp_path / "one.json", "e47becba", 0, True))
    two = given_for(longmemeval(tmp_path / "two.json", "0862e8bf_abs", 2, in_time))
    assert one == two
    assert [item["content"] for item in items_of(one)] == list(TEXTS)
    assert [item["metadata"]["session"] for item in items_of(one)] == [1, 1, 2, 2, 3, 3]
    said = json.dumps([one, two])
    assert not any(label in said for label in ("answer_", "sharegpt", "_abs", "e47becba", "0862e8bf"))


def locomo(path: Path, sample_id: str, first: int, evidence: int, category: int) -> Path:
    turns = [
        {"speaker": "Ann", "dia_id": f"D1:{first + place}", "text": text}
        for place, text in enumerate(TEXTS)
    ]
    sample = {
        "sample_id": sample_id,
        "conversation": {"session_1_date_time": "1:56 pm on 8 May, 2023", "session_1": turns},
        "qa": [
            {
                "question": "Where does Ann live?",
                "answer": TEXTS[evidence],
                "evidence": [turns[evidence]["dia_id"]],
                "category": category,
            }
        ],
    }
    path.write_text(json.dumps([sample]))
    return path


def test_the_labels_of_locomo(tmp_path: Path) -> None:
    one = given_for(locomo(tmp_path / "one.json", "conv-1", 1, evidence=0, category=4))
    two = given_for(locomo(tmp_path / "two.json", "conv-2", 7, evidence=5, category=5))
    assert one == two
    assert [item["content"] for item in items_of(one)] == list(TEXTS)


def beir(folder: Path, ids: Sequence[str], right: int) -> Path:
    """The relevant document is the first in its file."""
    (folder / "qrels").mkdir(parents=True)
    order = sorted(range(len(TEXTS)), key=lambda place: place != right)
    documents = [{"_id": ids[place], "title": "", "text": TEXTS[place]} for place in order]
    (folder / "corpus.jsonl").write_text("\n".join(map(json.dumps, documents)))
    (folder / "queries.jsonl").write_text(json.dumps({"_id": f"q{right}", "text": "Where is home?"}))
    (folder / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\nq{right}\t{ids[right]}\t1\n")
    return folder


def test_the_labels_of_beir(tmp_path: Path) -> None:
    one = given_for(beir(tmp_path / "one", [f"d{place}" for place in range(6)], right=0))
    two = given_for(beir(tmp_path / "two", [f"right{place}" for place in range(6)], right=3))
    assert one == two
    assert sorted(item["content"] for item in items_of(one)) == sorted(TEXTS)


def test_the_labels_of_synthetic_conversations() -> None:
    given = given_for(SYNTHETIC)
    RecordingTarget.given.clear()
    relabelled = []
    for collection in synthetic_collections(2, 5):
        names = {passage.id: f"other {place}" for place, passage in enumerate(collection.passages)}
        relabelled.append(
            replace(
                collection,
                id=f"other {collection.id}",
                passages=tuple(replace(each, id=names[each.id]) for each in collection.passages),
                questions=tuple(
                    replace(each, category="other", grades={}) for each in collection.questions
                ),
            )
        )
    _target_answers(Bench(target=RECORDING), relabelled)
    assert RecordingTarget.given == given
    assert {frozenset(item["metadata"]) for item in items_of(given)} == {frozenset({"speaker", "session"})}


def test_the_place_in_a_synthetic_session_is_random() -> None:
    places: dict[bool, list[float]] = {True: [], False: []}
    for collection in synthetic_collections(40, 12):
        right = {id_ for question in collection.questions for id_ in question.grades}
        sessions: dict[object, list[str]] = {}
        for passage in collection.passages:
            sessions.setdefault(passage.metadata["session"], []).append(passage.id)
        for ids in sessions.values():
            for place, id_ in enumerate(ids):
                places[id_ in right].append(place / (len(ids) - 1))
    assert len(places[True]) > 1000
    assert fmean(places[True]) == pytest.approx(fmean(places[False]), abs=0.03)


@pytest.mark.parametrize("form", ["longmemeval", "locomo", "beir", SYNTHETIC])
def test_the_agent_of_the_memories_is_the_same_in_every_data_set(form: str, tmp_path: Path) -> None:
    made: dict[str, Path | str] = {
        "longmemeval": longmemeval(tmp_path / "lme.json", "7_abs", 1, True),
        "locomo": locomo(tmp_path / "locomo.json", "conv-1", 1, 0, 4),
        "beir": beir(tmp_path / "science", "abcdef", 2),
        SYNTHETIC: SYNTHETIC,
    }
    given = given_for(made[form])
    asked = {what[0] for verb, what in given if verb == "search"}
    assert asked == {item["agent_id"] for item in items_of(given)} == {"agent"}
