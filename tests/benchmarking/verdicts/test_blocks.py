"""Rounds with the same data are compared with each other."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence

import pytest
from result_builders import make_result

from memory.benchmarking.measure.statistics import Effect, over_rounds, t_critical
from memory.benchmarking.model.records import Figure, Result
from memory.benchmarking.verdicts.blocks import Block, blocks_of, moderated_blocks, one_for_each_seed
from memory.benchmarking.verdicts.decide import Evidence
from memory.benchmarking.verdicts.evidence import CaseResult, gather_evidence
from memory.benchmarking.verdicts.moderation import Prior
from memory.benchmarking.verdicts.thresholds import Thresholds

SEEDS = [11, 12, 13, 14, 15]


def result(seeds: Sequence[int], **figures: Sequence[float]) -> Result:
    metrics = {}
    for name, values in figures.items():
        estimate = over_rounds(values)
        metrics[name] = Figure(
            value=estimate.value, low=estimate.low, high=estimate.high, rounds=list(values)
        )
    return make_result(metrics, params={}, seeds=list(seeds), rounds=len(seeds))


def evidence_of(before: Result, now: Result) -> Evidence:
    case = ("storage", "read_latency", "agentmemory")
    found, _ = gather_evidence({case: CaseResult(before)}, {case: CaseResult(now)}, Thresholds(0.1))
    (each,) = found
    return each


def half_width(each: Evidence) -> float:
    assert each.error is not None
    return t_critical(each.freedom, 0.95) * each.error


def test_what_the_data_cost_cancels_out() -> None:
    """The rounds of one run differ by a factor of eight, those with the same data by 1 %."""
    source = random.Random(3)
    cost = [2.0**number for number in range(4)] + [5.0]
    before, now = ([each * math.exp(source.gauss(0, 0.01)) for each in cost] for _ in range(2))
    same = evidence_of(result(SEEDS, cpu_ms=before), result(SEEDS, cpu_ms=now))
    assert half_width(same) < 0.05
    other = evidence_of(result(SEEDS, cpu_ms=before), result([1, 2, 3, 4, 5], cpu_ms=now))
    assert half_width(other) > 0.5


def test_rounds_are_paired_by_their_seed_not_by_their_place() -> None:
    before, now = (
        result(SEEDS, cpu_ms=[1, 2, 3, 4, 5]),
        result(SEEDS[::-1], cpu_ms=[5.5, 4.4, 3.3, 2.2, 1.1]),
    )
    each = evidence_of(before, now)
    assert each.log_ratio == pytest.approx(math.log(1.1))
    assert half_width(each) < 1e-9


def test_added_rounds_are_averaged_within_their_seed() -> None:
    blocks = blocks_of([1.0, 2.0], {"seeds": [7, 8]}, [1.1, 2.4, 1.3], {"seeds": [7, 8, 7]})
    assert blocks == [Block((1.0,), (1.1, 1.3)), Block((2.0,), (2.4,))]
    assert [block.difference for block in blocks] == pytest.approx([0.2, 0.4])
    assert one_for_each_seed([1.1, 2.4, 1.3], {"seeds": [7, 8, 7]}) == pytest.approx([1.2, 2.4])


def test_repeated_data_are_no_new_data() -> None:
    """Forty rounds with the data of two seeds tell no more of what other data cost than two rounds do."""
    before = result([1, 2, 3, 4], cpu_ms=[1.0, 4.0, 1.0, 4.0])
    now = result([8, 9] * 20, cpu_ms=[1.0, 4.0] * 20)
    assert half_width(evidence_of(before, now)) > 1.0


@pytest.mark.parametrize("metadata", [{}, {"seeds": None}, {"seeds": [1]}, {"seeds": "12"}])
def test_without_known_seeds_there_are_no_blocks(metadata: dict[str, object]) -> None:
    assert blocks_of([1.0, 2.0], metadata, [1.0, 2.0], {"seeds": [1, 2]}) == []
    assert one_for_each_seed([1.0, 2.0], metadata) == [1.0, 2.0]


def test_sizes_that_the_same_data_give_need_no_test() -> None:
    """Also if one run has more rounds than the other."""
    before = result(SEEDS, peak_traced_bytes=[5, 600, 7, 80, 9])
    now = result(SEEDS * 2, peak_traced_bytes=[5, 600, 7, 80, 9] * 2)
    each = evidence_of(before, now)
    assert (each.log_ratio, each.error) == (0.0, 0.0)


@pytest.mark.parametrize(("repeats", "prior"), [(1, Prior()), (4, Prior()), (1, Prior(0.03**2, 10))])
def test_the_interval_holds_the_truth(repeats: int, prior: Prior) -> None:
    """In 95 % of simulated comparisons: identical code, data that differ by 30 %, noise of 3 %."""
    source = random.Random(5)
    held, comparisons = 0, 2000
    for _ in range(comparisons):
        blocks = []
        for _ in SEEDS:
            cost = source.gauss(0, 0.3)
            base, *now = (cost + source.gauss(0, 0.03) for _ in range(1 + repeats))
            blocks.append(Block((base,), tuple(now)))
        effect = moderated_blocks(blocks, prior)
        assert effect.error is not None
        held += abs(effect.value) <= t_critical(effect.freedom, 0.95) * effect.error
    # Three standard deviations of a share of 0.95 in 2,000 comparisons are 0.015.
    assert held / comparisons >= 0.935
    assert prior.freedom or held / comparisons <= 0.965


def test_blocks_that_agree_exactly_need_no_interval() -> None:
    effect = moderated_blocks([Block((1.0,), (1.5,)), Block((2.0,), (2.5,))], Prior())
    assert effect == Effect(statistics.fmean([0.5, 0.5]), 0.0, math.inf)
