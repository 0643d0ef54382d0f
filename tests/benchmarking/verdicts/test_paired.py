"""Quality compared question by question: known drops are found, identical answers are not tested."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from membench import membench, write
from result_builders import make_result, make_run

from memory.benchmarking import Bench
from memory.benchmarking.benchmarks.quality import benchmark_retrieval_quality
from memory.benchmarking.errors import DamagedResult
from memory.benchmarking.measure.ranking import ranking_figures
from memory.benchmarking.model.answers import ANSWERS, answers_path, read_answers, write_answers
from memory.benchmarking.model.files import encode_json, read_result, read_run, write_whole
from memory.benchmarking.model.records import AnsweredQuestion, Figure, Result, Round
from memory.benchmarking.verdicts.compare import compare_runs
from memory.benchmarking.verdicts.formats import render
from memory.benchmarking.verdicts.paired import figures_of, paired_figures, question_changes
from memory.benchmarking.verdicts.records import Comparison, MetricVerdict

BASE, NOW = "20260801_101500_aaaa", "20260802_101500_bbbb"
PLACE = "synthetic/target"
RECALL = f"{PLACE}/all_questions/recall_at_5"
CASE = ("quality", "retrieval_quality", "agentmemory")


def questions(count: int, conversations: int, found: float = 0.8, seed: int = 1) -> list[AnsweredQuestion]:
    """Questions with one relevant passage each, of which a share is found."""
    rng = random.Random(seed)
    return [
        AnsweredQuestion(
            f"conversation {number % conversations}",
            f"Where is {number}?",
            ("fact", "time")[number % 2],
            [rng.randint(1, 5) if rng.random() < found else 0],
            [1],
            1.0,
        )
        for number in range(count)
    ]


def losing(before: Sequence[AnsweredQuestion], share: float, seed: int = 2) -> list[AnsweredQuestion]:
    """The same questions; so many of all lose their passage that the recall drops by `share`."""
    rng = random.Random(seed)
    hits = [number for number, each in enumerate(before) if each.ranks[0]]
    lost = set(rng.sample(hits, round(share * len(before))))
    return [
        msgspec.structs.replace(each, ranks=[0]) if number in lost else each
        for number, each in enumerate(before)
    ]


def stored(folder: Path, run_id: str, answered: Sequence[AnsweredQuestion]) -> Path:
    """Write a run of the quality benchmark, with its answers."""
    metrics = {}
    for group in ("all_questions", "fact", "time"):
        chosen = [figures_of(each) for each in answered if group in ("all_questions", each.category)]
        for name in chosen[0]:
            value = sum(each[name] for each in chosen) / len(chosen)
            metrics[f"{PLACE}/{group}/{name}"] = Figure(
                value=value, low=max(0, value - 0.1), high=min(1, value + 0.1), rounds=[value],
                interval_from="units",
            )  # fmt: skip
    result = make_result(
        metrics, benchmark="retrieval_quality", category="quality", timestamp=run_id[:15], params={},
        seeds=[0], rounds=1,
    )  # fmt: skip
    run = make_run(folder, run_id, [result], rounds=1)
    file = run / read_run(run).results[0].file
    result.metadata[ANSWERS] = answers_path(file).name
    write_whole(file, encode_json(result))
    write_answers(answers_path(file), [a_round(answered)])
    return run


def a_round(answered: Sequence[AnsweredQuestion], number: int = 1) -> Round:
    return Round(
        number=number, seed=0, figures={}, samples={}, other={}, not_available={}, started_at=0.0,
        load_seconds=0.0, seconds=1.0, peak_rss_bytes=1, wall_to_cpu=None, answers={PLACE: list(answered)},
    )  # fmt: skip


def compared(
    folder: Path, before: Sequence[AnsweredQuestion], now: Sequence[AnsweredQuestion]
) -> Comparison:
    return compare_runs(stored(folder, BASE, before), stored(folder, NOW, now))


def by_path(comparison: Comparison) -> Mapping[str, MetricVerdict]:
    return {each.path: each for each in comparison.metrics}


# -- the test ---------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("count", "conversations"), [(2_000, 50), (1_986, 10)])
def test_a_drop_of_one_point_is_found(tmp_path: Path, count: int, conversations: int, seed: int) -> None:
    """On a synthetic set of 2,000 questions, and on a set of the size of LoCoMo."""
    before = questions(count, conversations)
    found = compared(tmp_path, before, losing(before, 0.01, seed))
    recall = by_path(found)[RECALL]
    assert recall.verdict == "regressed", recall
    assert recall.change == pytest.approx(-0.01, abs=0.001)
    assert found.exit_code() == 2
    assert len(found.questions) == round(0.01 * count)


def test_identical_answers_are_exactly_unchanged(tmp_path: Path) -> None:
    found = compared(tmp_path, questions(500, 12), questions(500, 12))
    recall = by_path(found)[RECALL]
    assert (recall.verdict, recall.low, recall.high) == ("unchanged", 0, 0)
    assert found.questions == []
    assert found.exit_code() == 0


def test_as_many_gains_as_losses_are_no_regression(tmp_path: Path) -> None:
    before = questions(1_000, 20)
    now = questions(1_000, 20, seed=9)
    found = compared(tmp_path, before, now)
    assert by_path(found)[RECALL].verdict == "inconclusive"
    assert found.exit_code() == 0


def test_a_few_lost_questions_of_many_are_no_regression(tmp_path: Path) -> None:
    before = questions(1_000, 20)
    found = compared(tmp_path, before, losing(before, 0.002))
    assert by_path(found)[RECALL].verdict in ("unchanged", "inconclusive")
    assert len(found.questions) == 2


def test_a_mirrored_change_has_the_mirrored_verdict(tmp_path: Path) -> None:
    before = questions(1_000, 20)
    now = losing(before, 0.03)
    there, back = compared(tmp_path / "1", before, now), compared(tmp_path / "2", now, before)
    assert by_path(there)[RECALL].verdict == "regressed"
    assert by_path(back)[RECALL].verdict == "improved"
    assert by_path(there)[RECALL].p == by_path(back)[RECALL].p


def test_a_loss_in_one_conversation_of_many_proves_nothing_about_the_others(tmp_path: Path) -> None:
    """All 20 lost questions are of one conversation, so the other 49 say that nothing changed."""
    before = questions(2_000, 50, found=1)
    now = [
        msgspec.structs.replace(each, ranks=[0]) if each.collection == "conversation 7" else each
        for each in before
    ]
    assert by_path(compared(tmp_path, before, now))[RECALL].verdict == "inconclusive"


def test_two_figures_of_all_questions_are_judged_and_the_others_shown(tmp_path: Path) -> None:
    before = questions(500, 12)
    found = compared(tmp_path, before, losing(before, 0.05))
    judged = {each.path.rpartition("/")[2] for each in found.metrics if each.verdict}
    assert judged == {"recall_at_5", "ndcg_at_10"}
    assert {each.path.split("/")[2] for each in found.metrics if each.verdict} == {"all_questions"}
    assert "judged by recall_at_5" in by_path(found)[f"{PLACE}/time/mrr"].reason


def test_other_questions_are_compared_by_their_intervals(tmp_path: Path) -> None:
    found = compared(tmp_path, questions(500, 12), questions(600, 12))
    assert by_path(found)[RECALL].verdict == "inconclusive"
    assert by_path(found)[RECALL].p is not None
    assert found.questions == []


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(1, 3)), min_size=1, max_size=6))
def test_the_figures_follow_from_the_ranks(relevant: list[tuple[int, int]]) -> None:
    ranks, grades = [rank for rank, _ in relevant], [grade for _, grade in relevant]
    taken: set[int] = set()
    for number, rank in enumerate(ranks):  # no two passages have the same rank
        ranks[number] = 0 if rank in taken or rank > 10 else rank
        taken.add(rank)
    ranked = ["?"] * 10
    for number, rank in enumerate(ranks):
        if rank:
            ranked[rank - 1] = f"passage {number}"
    expected = ranking_figures(ranked, {f"passage {number}": grade for number, grade in enumerate(grades)})
    assert figures_of(AnsweredQuestion("c", "q", "k", ranks, grades, 0.0)) == expected


def test_several_rounds_count_by_their_means() -> None:
    one = questions(40, 10)
    now = losing(one, 0.1)
    rounds = [{PLACE: one}, {PLACE: now}]
    figure = paired_figures([{PLACE: one}, {PLACE: one}], rounds)[RECALL]
    assert figure.value == pytest.approx(-0.05)
    assert {each.change for each in question_changes([{PLACE: one}] * 2, rounds, CASE)} == {-0.5}


# -- what is shown ----------------------------------------------------------------------------


def test_the_questions_that_changed_sides_are_listed_worst_first(tmp_path: Path) -> None:
    before = questions(200, 10)
    two = AnsweredQuestion("conversation 0", "Which two?", "hops", [1, 2], [1, 1], 1.0)
    half = AnsweredQuestion("conversation 0", "Which two?", "hops", [1, 0], [1, 1], 1.0)
    now = losing(before, 0.1)
    gained = next(number for number, each in enumerate(before) if not each.ranks[0])
    now[gained] = msgspec.structs.replace(now[gained], ranks=[3])
    found = compared(tmp_path, [two, *before], [half, *now])
    changes = [each.change for each in found.questions]
    assert changes == [-1.0] * 20 + [-0.5, 1.0]
    printed = render(found)
    assert "questions that changed sides: 21 lost a passage among the first five, 1 gained" in printed
    assert "… and 12 more (--all shows them)" in printed
    assert "1, 2 → 1, none" in render(found, show_all=True)
    assert render(found, "markdown").count("Where is ") == 21
    document = json.loads(render(found, "json"))["questions"]
    assert len(document) == 22
    assert document[0]["now"] == [0]
    assert {"text", "kind", "before", "now", "change"} <= set(document[0])


# -- the file ---------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["cut", "gone", "text"])
def test_damaged_answers_fail_the_comparison(tmp_path: Path, damage: str) -> None:
    one, two = stored(tmp_path, BASE, questions(100, 9)), stored(tmp_path, NOW, questions(100, 9))
    file = next(two.glob("quality/*.answers.json.gz"))
    if damage == "gone":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:-40] if damage == "cut" else b"no answers")
    found = compare_runs(one, two)
    assert found.exit_code() == 1
    assert file.name in found.problems[0]


def test_a_run_without_answers_can_be_compared(tmp_path: Path) -> None:
    """A run of version 0.2 and before."""
    one, two = stored(tmp_path, BASE, questions(100, 9)), stored(tmp_path, NOW, questions(100, 9))
    file = one / read_run(one).results[0].file
    old = read_result(file)
    del old.metadata[ANSWERS]
    write_whole(file, encode_json(old))
    found = compare_runs(one, two)
    assert by_path(found)[RECALL].verdict == "unchanged"
    assert found.exit_code() == 0


def test_an_answers_file_of_a_newer_format_is_refused(tmp_path: Path) -> None:
    import gzip

    (tmp_path / "a.gz").write_bytes(gzip.compress(b'{"rounds": [], "format": 99}'))
    result = Result(
        benchmark="b", category="c", timestamp="20260801_101500", results={}, metadata={ANSWERS: "a.gz"}
    )
    with pytest.raises(DamagedResult, match="format 99"):
        read_answers(result, tmp_path)


# -- the benchmark ----------------------------------------------------------------------------


def test_the_benchmark_keeps_the_answer_to_every_question() -> None:
    bench = Bench(target="sqlite-baseline")
    found = benchmark_retrieval_quality(conversations=2, sessions=5, bench=bench)
    (kept,) = bench.answers.values()
    group = found["synthetic"]["target"]["all_questions"]
    asked = [figures_of(each) for each in kept if each.ranks]
    assert len(asked) == group["questions"]
    for name in asked[0]:
        assert sum(each[name] for each in asked) / len(asked) == pytest.approx(group[name].value)
    assert {each.category for each in kept} >= {"fact", "no_answer"}


def test_a_target_that_got_worse_is_found_by_the_command(tmp_path: Path) -> None:
    """Real runs: the second finds nothing for every tenth question."""
    target = write(
        tmp_path / "worse.py",
        """
        from pathlib import Path

        from memory.benchmarking.targets.sqlite_baseline import SQLiteBaselineTarget


        class Worse(SQLiteBaselineTarget):
            def search(self, agent_id, query, k, place=None):
                found = super().search(agent_id, query, k, place)
                is_worse = Path(__file__).with_name("worse").exists()
                return [] if is_worse and sum(map(ord, query)) % 10 == 0 else found
        """,
    )
    command = (
        "run", "--category", "quality", "--target", f"{target}:Worse", "--set", "quality.conversations=9",
        "--set", "quality.sessions=4", "--quiet",
    )  # fmt: skip
    for number in range(3):
        assert membench(*command, cwd=tmp_path).code == 0
        if number == 0:
            assert membench("baseline", "set", "main", cwd=tmp_path).code == 0
        else:
            done = membench("compare", "--baseline", "main", cwd=tmp_path)
            assert done.code == (0 if number == 1 else 2), done.out
            assert ("questions that changed sides" in done.out) == (number == 2)
        if number == 1:
            (tmp_path / "worse").touch()
