"""The differences between runs or targets: verdicts of `compare`, in words that fit."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest
from result_builders import ENVIRONMENT, THROUGHPUT, figure, make_result, make_run

from memory.benchmarking.model.files import read_run
from memory.benchmarking.model.records import Environment, Figure
from memory.benchmarking.report.differences import Difference, compare_sources, differences
from memory.benchmarking.report.gather import gather
from memory.benchmarking.report.sources import sources_of
from memory.benchmarking.results import BenchmarkResults

ROUNDS = 6


def timing(where: str, milliseconds: float, spread: float = 0.005) -> dict[str, Figure]:
    """The figures of one timing, with a little noise."""
    noise = random.Random(f"{where} {milliseconds}")
    found = {}
    for leaf in ("cpu_ms", "p50_ms", THROUGHPUT):
        value = 1000 / milliseconds if leaf == THROUGHPUT else milliseconds
        rounds = [value * (1 + noise.gauss(0, spread)) for _ in range(ROUNDS)]
        found[f"{where}/{leaf}"] = Figure(value=value, low=value, high=value, rounds=rounds, samples=100)
    return found


def compared(
    output_dir: Path,
    *sides: tuple[str, Mapping[str, Figure], str],
    environments: tuple[Environment, ...] = (ENVIRONMENT,),
    contentions: tuple[float, ...] = (1.0,),
    headlines: bool = True,
) -> list[Difference]:
    """The differences between runs, one for each side: target, figures and headline."""
    for day, (target, metrics, headline) in enumerate(sides, 1):
        contention = contentions[(day - 1) % len(contentions)]
        result = make_result(metrics, target=target, headline=headline, wall_to_cpu=[contention] * ROUNDS)
        environment = environments[(day - 1) % len(environments)]
        make_run(output_dir, f"2026080{day}_101500_ab12", [result], environment=environment)
    manager = BenchmarkResults(output_dir)
    loaded = manager.load_results(manager.list_results())
    runs = {folder.name: read_run(folder) for folder in sorted(output_dir.iterdir())}
    sources, numbered = sources_of(loaded, runs)
    gathered = gather(numbered)
    return differences(gathered, compare_sources(gathered, sources), headlines=headlines)


HEADLINE = f"stm/{THROUGHPUT}"


@pytest.mark.parametrize(
    ("milliseconds", "word"), [(0.5, "better"), (2.0, "worse"), (1.001, "no difference")]
)
def test_targets_are_called_better_or_worse(tmp_path: Path, milliseconds: float, word: str) -> None:
    ours = ("agentmemory", timing("stm", 1.0), HEADLINE)
    (found,) = compared(tmp_path, ours, ("peer", timing("stm", milliseconds), HEADLINE))
    assert found.word == word
    assert found.between_targets
    assert found.ratio == pytest.approx(1 / milliseconds, rel=0.02)


@pytest.mark.parametrize(
    ("milliseconds", "word"), [(0.5, "improved"), (2.0, "regressed"), (1.001, "unchanged")]
)
def test_runs_of_one_target_have_the_words_of_compare(
    tmp_path: Path, milliseconds: float, word: str
) -> None:
    sides = [("agentmemory", timing("stm", each), HEADLINE) for each in (1.0, milliseconds)]
    (found,) = compared(tmp_path, *sides)
    assert found.word == word
    assert found.headline.judged_by


def test_a_target_that_waits_is_worse_even_if_its_cpu_time_is_the_same(tmp_path: Path) -> None:
    ours = ("agentmemory", timing("stm", 1.0), HEADLINE)
    waiting = timing("stm", 3.0) | {"stm/cpu_ms": timing("stm", 1.0)["stm/cpu_ms"]}
    (found,) = compared(tmp_path, ours, ("peer", waiting, HEADLINE), contentions=(1.0, 3.0))
    assert (found.word, found.headline.judged_by) == ("worse", ("p50_ms",))


def test_a_target_without_tiers_is_compared_by_its_own_headline(tmp_path: Path) -> None:
    ours = ("agentmemory", timing("stm", 1.0) | timing("ltm", 9.0), HEADLINE)
    (found,) = compared(tmp_path, ours, ("peer", timing("store", 2.0), f"store/{THROUGHPUT}"))
    assert (found.base_path, found.path) == (HEADLINE, f"store/{THROUGHPUT}")
    assert found.word == "worse"


def test_figures_of_one_target_only_are_no_difference(tmp_path: Path) -> None:
    ours = ("agentmemory", timing("stm", 1.0) | timing("im", 2.0), HEADLINE)
    peers = ("peer", timing("stm", 3.0) | timing("other", 2.0), HEADLINE)
    found = compared(tmp_path, ours, peers, headlines=False)
    assert {each.path for each in found} == {"stm/cpu_ms", "stm/p50_ms"}


def test_headlines_at_other_sizes_are_not_compared(tmp_path: Path) -> None:
    sides = [(name, {f"size_{size}/p50_ms": figure(1)}, f"size_{size}/p50_ms") for name, size in
             (("agentmemory", 10), ("peer", 20))]  # fmt: skip
    assert compared(tmp_path, *sides) == []


def test_runs_of_other_environments_are_incomparable(tmp_path: Path) -> None:
    other = msgspec.structs.replace(ENVIRONMENT, fingerprint="beef", cores=64)
    sides = [("agentmemory", timing("stm", each), HEADLINE) for each in (1.0, 3.0)]
    (found,) = compared(tmp_path, *sides, environments=(ENVIRONMENT, other))
    assert found.word == "incomparable"
    assert not found.is_clear
