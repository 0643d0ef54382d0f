"""Quality: the target stands beside plain systems, and labels never reach it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from broken_targets import place_of
from data_set_files import write_beir

from memory.benchmarking import Bench
from memory.benchmarking.bench import not_available
from memory.benchmarking.benchmarks import quality
from memory.benchmarking.benchmarks._hit_confidence import ShownPassage, confidence_figures
from memory.benchmarking.benchmarks.quality import _ruler_note, benchmark_retrieval_quality
from memory.benchmarking.errors import InvalidBenchmarkConfig, UnknownName
from memory.benchmarking.workloads.conversations import synthetic_collections
from memory.benchmarking.workloads.datasets import load_data_set
from memory.embedding import count_tokens

FEW = {"conversations": 2, "sessions": 5}


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    return benchmark_retrieval_quality(**FEW)


def test_the_target_beats_chance_and_is_listed_with_the_plain_systems(found: dict[str, Any]) -> None:
    systems = found["synthetic"]
    assert set(systems) == {"target", "bm25", "newest_first", "random", "sha256"}
    recall = {
        name: systems[name]["all_questions"]["recall_at_10"].value for name in systems if name != "sha256"
    }
    assert recall["target"] > recall["random"] + 0.3
    assert recall["target"] > recall["newest_first"] + 0.3
    assert recall["bm25"] > recall["random"] + 0.2


def test_every_figure_lies_in_its_interval(found: dict[str, Any]) -> None:
    for group, figures in found["synthetic"]["target"].items():
        if group == "no_answer_separation":
            assert 0 <= figures <= 1
            continue
        if group == "hit_confidence":
            continue
        for name, score in figures.items():
            if name not in ("questions", "context_tokens"):
                assert 0 <= score.low <= score.value <= score.high <= 1, (group, name)


def test_categories_add_up_to_all_questions(found: dict[str, Any]) -> None:
    groups = {name: group for name, group in found["synthetic"]["bm25"].items() if isinstance(group, dict)}
    total = groups.pop("all_questions")
    assert set(groups) == {"fact", "update", "hops", "time"}
    tokens = sum(group["questions"] * group["context_tokens"] for group in groups.values())
    assert total["context_tokens"] == pytest.approx(tokens / total["questions"])
    assert sum(group["questions"] for group in groups.values()) == total["questions"]
    weighted = sum(group["questions"] * group["mrr"].value for group in groups.values())
    assert total["mrr"].value == pytest.approx(weighted / total["questions"])


def test_the_tokens_are_those_of_the_passages_shown(tmp_path: Path) -> None:
    texts = ["amber", "amber birch cedar", "amber birch cedar dill elder"]
    sample = {
        "id": "c",
        "passages": [{"id": str(number), "text": text} for number, text in enumerate(texts)],
        "questions": [{"text": "elder?", "category": "fact", "evidence": ["2"]}],
    }
    (tmp_path / "chats.jsonl").write_text(json.dumps(sample))
    found = benchmark_retrieval_quality(data_sets=[str(tmp_path / "chats.jsonl")])["chats"]
    newest = found["newest_first"]["fact"]["context_tokens"]
    assert newest == sum(map(count_tokens, texts[1:])), "two of the three passages are shown"
    assert found["target"]["fact"]["context_tokens"] >= count_tokens(texts[2])


def test_confidence_is_judged_on_questions_of_its_own_and_of_other_conversations(
    found: dict[str, Any],
) -> None:
    figures = dict(found["synthetic"]["target"]["hit_confidence"])
    assert figures.pop("confidence_separation") > 0.6
    assert 0 < figures.pop("calibration_error") < 0.2
    assert set(figures) <= {f"bin_{number}" for number in range(10)}
    for name, each in figures.items():
        low = int(name.removeprefix("bin_")) / 10
        assert low <= each["mean_confidence"] <= low + 0.1
    questions = sum(len(each.questions) for each in synthetic_collections(2, 5))
    answered = sum(bool(one.grades) for each in synthetic_collections(2, 5) for one in each.questions)
    assert sum(each["hits"] for each in figures.values()) == quality.DEPTH * (questions + answered)


def test_confidence_is_not_available_without_one_or_without_another_conversation() -> None:
    plain = benchmark_retrieval_quality(**FEW, bench=Bench(target="sqlite-baseline"))
    alone = benchmark_retrieval_quality(conversations=1, sessions=5)
    for figures, reason in (
        (plain, "the hits of sqlite-baseline have no confidence"),
        (alone, "there is no other conversation whose questions could be asked"),
    ):
        assert figures["synthetic"]["target"]["hit_confidence"] == not_available(reason)


def test_confidence_figures_by_hand() -> None:
    def shown(*hits: tuple[str, float]) -> list[ShownPassage]:
        return [ShownPassage(id_, 0.0, "", chance) for id_, chance in hits]

    own = [
        (shown(("a", 0.85), ("b", 0.05)), {"a": 1}),
        (shown(("b", 0.05)), {"a": 1}),
        (shown(("b", 0.95)), {}),  # it has no answer, so it does not count
    ]
    figures = confidence_figures(own, [shown(("a", 0.05)), []], "")
    assert isinstance(figures, dict)
    assert figures["confidence_separation"] == pytest.approx((2 + 1.5) / 4)
    assert figures["bin_0"] == {"hits": 3, "mean_confidence": pytest.approx(0.05), "relevant_share": 0}
    assert figures["bin_8"] == {"hits": 1, "mean_confidence": 0.85, "relevant_share": 1}
    assert figures["calibration_error"] == pytest.approx((3 * 0.05 + 0.15) / 4)


def test_a_bad_ranking_has_a_low_recall(found: dict[str, Any]) -> None:
    bad = benchmark_retrieval_quality(**FEW, bench=Bench(target=place_of("FindsTheWrongOnes")))
    worse = bad["synthetic"]["target"]["all_questions"]["recall_at_5"].value
    assert worse < found["synthetic"]["target"]["all_questions"]["recall_at_5"].value / 3


def test_the_same_conversations_are_asked_whatever_the_seed_of_the_round() -> None:
    one = benchmark_retrieval_quality(**FEW, bench=Bench(target="sqlite-baseline", seed=1))
    two = benchmark_retrieval_quality(**FEW, bench=Bench(target="sqlite-baseline", seed=2))
    assert one == two


def test_the_ruler_note_states_whether_the_figures_can_be_trusted() -> None:
    assert _ruler_note([0.6791]).startswith("right")
    assert _ruler_note([0.66]).startswith("NOT TO BE TRUSTED")
    assert _ruler_note([0.66, 0.6791]) == _ruler_note([0.6791, 0.66]) == _ruler_note([0.66])
    assert "needs the data set scifact" in benchmark_retrieval_quality(conversations=1, sessions=2)["ruler"]


def test_a_search_never_returns_all_passages(tmp_path: Path) -> None:
    """Three passages, ten asked for: everything would be found by giving back everything."""
    turns = [
        {"speaker": "Ann", "dia_id": f"D1:{n}", "text": text} for n, text in enumerate(("a", "b", "c"))
    ]
    sample = {
        "sample_id": "tiny",
        "conversation": {"session_1_date_time": "1:56 pm on 8 May, 2023", "session_1": turns},
        "qa": [{"question": "zzz", "evidence": ["D1:0", "D1:1", "D1:2"], "category": 1}],
    }
    path = tmp_path / "tiny.json"
    path.write_text(json.dumps([sample]))
    found = benchmark_retrieval_quality(data_sets=[str(path)])["tiny"]
    for system in ("target", "bm25", "newest_first", "random"):
        assert found[system]["all_questions"]["recall_at_10"].value <= 2 / 3


def test_a_data_set_that_is_not_there_is_an_error_that_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(InvalidBenchmarkConfig, match="there is no data set"):
        benchmark_retrieval_quality(data_sets=[str(tmp_path / "nothing.json")])


def tiny(path: Path, text: str) -> Path:
    """A LoCoMo of two turns and a question for the first."""
    turns = [{"speaker": "Ann", "dia_id": f"D1:{n}", "text": each} for n, each in enumerate((text, "b"))]
    sample = {
        "sample_id": "tiny",
        "conversation": {"session_1_date_time": "1:56 pm on 8 May, 2023", "session_1": turns},
        "qa": [{"question": text, "evidence": ["D1:0"], "category": 1}],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([sample]))
    return path


def measured(*data_sets: Path | str) -> dict[str, Any]:
    return benchmark_retrieval_quality(
        list(map(str, data_sets)), conversations=1, sessions=2, bench=Bench(target="sqlite-baseline")
    )


def test_data_sets_with_the_same_name_get_the_names_of_their_folders(tmp_path: Path) -> None:
    old, new = tiny(tmp_path / "old" / "talk.json", "cats"), tiny(tmp_path / "new" / "talk.json", "dogs")
    found = measured(old, new, tiny(tmp_path / "other.json", "a"))
    assert set(found) == {"old-talk", "new-talk", "other", "ruler"}
    assert found["old-talk"]["sha256"] == hashlib.sha256(old.read_bytes()).hexdigest()
    assert found["new-talk"]["sha256"] == hashlib.sha256(new.read_bytes()).hexdigest()


@pytest.mark.parametrize("name", ["synthetic", "ruler"])
def test_a_data_set_can_not_replace_a_name_of_the_results(name: str, tmp_path: Path) -> None:
    found = measured("synthetic", tiny(tmp_path / "mine" / f"{name}.json", "cats"))
    assert set(found) == {"synthetic", f"mine-{name}", "ruler"}
    assert isinstance(found["ruler"], str)


def test_a_data_set_given_twice_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    path = tiny(tmp_path / "talk.json", "cats")
    with pytest.raises(
        InvalidBenchmarkConfig, match=r"two of the name '.*-talk' \(.*talk.json and .*talk.json\)"
    ):
        measured(path, path)
    with pytest.raises(InvalidBenchmarkConfig, match="two of the name 'synthetic'"):
        measured("synthetic", "synthetic")


def test_a_misspelt_name_gets_a_suggestion() -> None:
    for wrong, right in (("scifct", "scifact"), ("sintetic", "synthetic")):
        with pytest.raises(UnknownName, match=f"'{wrong}'.*did you mean '{right}'"):
            measured(wrong)


def test_the_current_folder_is_a_data_set_with_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(write_beir(tmp_path / "science"))
    assert set(measured(".")) == {"science", "ruler"}
    monkeypatch.chdir("qrels")
    assert set(measured("..")) == {"science", "ruler"}


def test_scifact_is_recognised_by_its_judgements(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_beir(tmp_path / "science")
    monkeypatch.setattr(quality, "SCIFACT_JUDGEMENTS", load_data_set(folder).judgements)
    assert measured(folder)["ruler"].startswith("NOT TO BE TRUSTED: stemmed BM25 has nDCG@10 1.000")


def test_a_part_of_scifact_does_not_check_the_ruler(tmp_path: Path) -> None:
    found = measured(write_beir(tmp_path / "scifact"))
    assert found["ruler"].startswith("not checked")


def test_a_seed_gives_the_same_conversations_with_their_answers() -> None:
    one, two = synthetic_collections(2, 6, seed=1), synthetic_collections(2, 6, seed=2)
    assert one == synthetic_collections(2, 6, seed=1) != two
    for collection in one:
        texts = {passage.id: passage for passage in collection.passages}
        assert len(texts) == len(collection.passages)
        moments = [passage.timestamp for passage in collection.passages]
        assert moments == sorted(moments, key=lambda moment: moment or 0)
        categories = {question.category for question in collection.questions}
        assert categories == {"fact", "update", "hops", "time", "no_answer"}
        for question in collection.questions:
            assert set(question.grades) <= set(texts)
            assert bool(question.grades) == (question.category != "no_answer")
            if question.category == "hops":
                assert len(question.grades) == 2
