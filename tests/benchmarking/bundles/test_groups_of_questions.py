"""Questions apart: a bundle's figures follow from its answers, also where an older version grouped them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from memory.benchmarking import Bench
from memory.benchmarking.benchmarks import quality
from memory.benchmarking.bundles.recompute import _judged
from memory.benchmarking.model.records import AnsweredQuestion
from memory.benchmarking.verdicts.paired import by_group, paired_figures

PLACE = "chats/target"
AnswerLists = list[list[Any]]


@pytest.fixture
def chats(tmp_path: Path) -> str:
    """Two conversations, each with two plain questions and an adversarial one about another passage."""
    path = tmp_path / "chats.jsonl"
    lines = []
    for name in ("one", "two"):
        passages = [{"id": str(number), "text": f"note {number} of {name}"} for number in range(20)]
        asked = [(f"note {number} of {name}?", "fact", str(number)) for number in range(2)]
        asked.append((f"note 3 of {name}?", "adversarial", "19"))
        questions = [
            {"text": text, "category": category, "evidence": [id_]} for text, category, id_ in asked
        ]
        lines.append(json.dumps({"id": name, "passages": passages, "questions": questions}))
    path.write_text("\n".join(lines))
    return str(path)


def run(chats: str) -> tuple[dict[str, Any], AnswerLists]:
    """Return the target's figures, and its answers as a file holds them."""
    bench = Bench()
    found = quality.benchmark_retrieval_quality(data_sets=[chats], bench=bench)["chats"]["target"]
    return found, json.loads(msgspec.json.encode(bench.answers[PLACE]))


def decoded(answers: AnswerLists) -> list[AnsweredQuestion]:
    return msgspec.convert(answers, list[AnsweredQuestion])


def check(figures: dict[str, Any], answers: AnswerLists) -> None:
    computed = {path: value for path, value, _ in _judged([{PLACE: decoded(answers)}], 0)}
    groups = ("all_questions", "fact", "adversarial")
    assert computed == {
        f"{PLACE}/{group}/{name}": pytest.approx(score.value)
        for group in groups
        for name, score in figures[group].items()
        if name not in ("questions", "context_tokens")
    }


def test_adversarial_questions_are_a_group_apart(chats: str) -> None:
    figures, answers = run(chats)
    groups = ("all_questions", "fact", "adversarial")
    assert {group: figures[group]["questions"] for group in groups} == {
        "all_questions": 4,
        "fact": 4,
        "adversarial": 2,
    }
    assert figures["all_questions"]["mrr"] == figures["fact"]["mrr"]
    check(figures, answers)


def test_answers_of_older_versions_keep_their_groups(chats: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Older versions had no questions apart, and wrote six values for each question."""
    newer, newer_answers = run(chats)
    monkeypatch.setattr(quality, "APART", frozenset())
    older, answers = run(chats)
    answers = [each[:6] for each in answers]
    assert older["all_questions"]["questions"] == 6
    check(older, answers)
    assert older["all_questions"]["mrr"].value < newer["all_questions"]["mrr"].value
    with pytest.raises(AssertionError):
        check(newer, answers)
    paired = paired_figures([{PLACE: decoded(answers)}], [{PLACE: decoded(newer_answers)}])
    assert len(paired[f"{PLACE}/all_questions/mrr"].differences) == 4, "grouped as the newer run"


def test_only_questions_apart_have_no_group_of_all() -> None:
    apart = AnsweredQuestion("c", "q", "adversarial", [1], [1], 0.5, True)
    assert by_group([apart]) == {"adversarial": [0]}
    assert by_group([]) == {}
