"""Verdicts from evidence: tests, Holm's correction, floors. Properties, known results and simulations."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.benchmarking.errors import InvalidBenchmarkConfig, InvalidResult
from memory.benchmarking.measure.statistics import one_sample, t_critical, welch
from memory.benchmarking.verdicts.decide import Evidence, decide, holm
from memory.benchmarking.verdicts.formats import as_json
from memory.benchmarking.verdicts.gating import reason_not_judged
from memory.benchmarking.verdicts.noise import NoiseFloor, metric_key, uncalibrated
from memory.benchmarking.verdicts.records import Comparison, MetricVerdict, Verdict, decode
from memory.benchmarking.verdicts.thresholds import Thresholds

QUIET = NoiseFloor("lockstep")
TEN = Thresholds(0.1)
KEY = metric_key("storage", "read_latency", "agentmemory", "stm/p50_ms")
MIRRORED = {"regressed": "improved", "improved": "regressed"}


def make_evidence(
    log_ratio: float = 0.0, error: float | None = 0.01, freedom: float = 8, **changes: Any
) -> Evidence:
    given: dict[str, Any] = {
        "category": "storage",
        "benchmark": "read_latency",
        "target": "agentmemory",
        "path": "stm/p50_ms",
        "unit": "ms",
        "better": "lower",
        "base": 1.0,
        "current": 1.0,
        "log_ratio": log_ratio,
        "error": error,
        "freedom": freedom,
    }
    return Evidence(**(given | changes))


def judged(
    *evidence: Evidence, threshold: Thresholds = TEN, noise: NoiseFloor = QUIET
) -> list[MetricVerdict]:
    return decide(evidence, threshold=threshold, noise=noise)


def verdict_of(each: Evidence, **rules: Any) -> Verdict | None:
    (only,) = judged(each, **rules)
    return only.verdict


evidence = st.builds(
    make_evidence,
    log_ratio=st.floats(-2, 2),
    error=st.one_of(st.none(), st.just(0.0), st.floats(1e-6, 1)),
    freedom=st.floats(1, 50),
    better=st.sampled_from(["lower", "higher"]),
)


# -- the rule ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("log_ratio", "error", "expected"),
    [
        (math.log(1.3), 0.01, "regressed"),
        (math.log(1 / 1.3), 0.01, "improved"),
        (0.0, 0.01, "unchanged"),
        (math.log(1.05), 0.01, "unchanged"),  # clearly slower, but by less than the threshold
        (math.log(1.3), 0.2, "inconclusive"),  # large, but so is the noise
        (0.0, 0.2, "inconclusive"),  # no effect, but the noise would hide one
        (math.log(1.09), 0.01, "inconclusive"),  # it changed; whether by more than 10 % is not known
    ],
)
def test_a_verdict_needs_both_a_clear_test_and_an_effect_beyond_the_floor(
    log_ratio: float, error: float, expected: str
) -> None:
    assert verdict_of(make_evidence(log_ratio, error)) == expected


def test_the_direction_of_the_metric_decides_what_is_worse() -> None:
    assert verdict_of(make_evidence(0.3, better="higher", unit="/s")) == "improved"
    assert verdict_of(make_evidence(-0.3, better="higher", unit="/s")) == "regressed"
    assert verdict_of(make_evidence(0.3, better="neither")) is None


@given(evidence)
def test_a_time_and_its_inverse_rate_get_the_same_verdict(each: Evidence) -> None:
    assert each.log_ratio is not None
    other = "higher" if each.better == "lower" else "lower"
    inverse = replace(each, log_ratio=-each.log_ratio, better=other)
    assert verdict_of(inverse) == verdict_of(each)


@given(st.lists(evidence, min_size=1, max_size=8))
def test_swapping_the_sides_mirrors_every_verdict(each: list[Evidence]) -> None:
    swapped = [
        replace(one, log_ratio=-(one.log_ratio or 0.0), base=one.current, current=one.base) for one in each
    ]
    for there, back in zip(judged(*each), judged(*swapped), strict=True):
        assert back.verdict == MIRRORED.get(there.verdict or "", there.verdict)
        assert back.p == there.p
        assert back.detectable == there.detectable
        if there.low is not None and there.high is not None and back.low and back.high:
            assert back.low * there.high == pytest.approx(1)


@given(evidence)
def test_no_effect_is_never_a_regression(each: Evidence) -> None:
    assert verdict_of(replace(each, log_ratio=0.0)) in ("unchanged", "inconclusive")


@given(evidence, st.floats(0, 0.5), st.floats(0, 0.5))
def test_a_larger_floor_never_makes_a_regression(each: Evidence, floor: float, more: float) -> None:
    small, large = Thresholds(floor), Thresholds(floor + more)
    if verdict_of(each, threshold=small) != "regressed":
        assert verdict_of(each, threshold=large) != "regressed"


def test_a_detectable_effect_is_found_in_four_of_five_comparisons() -> None:
    random_ = random.Random(3)
    error, rounds = 0.02, 6
    (plan,) = judged(make_evidence(0.0, error, 2 * rounds - 2))
    assert plan.detectable is not None
    found = 0
    for _ in range(400):
        spread = error * math.sqrt(rounds / 2)
        now = [random_.gauss(math.log1p(plan.detectable), spread) for _ in range(rounds)]
        before = [random_.gauss(0, spread) for _ in range(rounds)]
        effect = welch(now, before)
        found += verdict_of(make_evidence(effect.value, effect.error, effect.freedom)) == "regressed"
    assert 0.74 < found / 400 < 0.90


def test_one_round_is_never_decided() -> None:
    (only,) = judged(make_evidence(3.0, None, 0, reason="a single round"))
    assert only.verdict == "inconclusive"
    assert (only.low, only.high, only.p, only.detectable) == (None, None, None, None)
    assert only.ratio == pytest.approx(math.exp(3))
    assert only.reason == "a single round"


def test_figures_that_are_the_same_in_every_round_are_decided_by_their_size_alone() -> None:
    assert verdict_of(make_evidence(math.log(1.25), 0.0, math.inf, unit="B")) == "regressed"
    assert verdict_of(make_evidence(math.log(1.05), 0.0, math.inf, unit="B")) == "unchanged"
    assert verdict_of(make_evidence(0.0, 0.0, math.inf, unit="B")) == "unchanged"


def test_a_metric_that_does_not_gate_is_shown_and_not_judged() -> None:
    (only,) = judged(make_evidence(0.5, gates=False, reason="a tail"))
    assert only.verdict is None
    assert only.reason == "a tail"
    assert only.low is not None


@pytest.mark.parametrize("settled", ["new", "missing", "incomparable"])
def test_a_metric_on_one_side_only_keeps_its_settled_verdict(settled: Verdict) -> None:
    (only,) = judged(make_evidence(settled=settled, base=None, current=None, log_ratio=None, error=None))
    assert only.verdict == settled


def test_infinite_effects_and_errors_are_inconclusive() -> None:
    (only,) = judged(make_evidence(math.inf, math.inf, scale="difference"))
    assert only.verdict == "inconclusive"


# -- shares -----------------------------------------------------------------------------------


def test_shares_are_judged_by_points() -> None:
    recall = make_evidence(
        -0.05, 0.005, math.inf, scale="difference", unit="", better="higher", base=0.9, current=0.85
    )
    (only,) = judged(recall)
    assert only.verdict == "regressed"
    assert only.floor == 0.01
    assert only.low == pytest.approx(-0.05 - 1.96 * 0.005, abs=1e-4)
    assert only.high == pytest.approx(-0.05 + 1.96 * 0.005, abs=1e-4)
    assert only.change == pytest.approx(-0.05)
    assert verdict_of(replace(recall, log_ratio=-0.005, error=0.001)) == "unchanged"


# -- many metrics -----------------------------------------------------------------------------


def test_holms_correction_by_hand() -> None:
    # Holm 1979: the smallest times 4, the next times 3 and so on, never below the one before.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []
    assert holm([0.5, 0.9]) == [1.0, 1.0]


@given(st.lists(st.floats(0, 1), max_size=30))
def test_holms_correction_keeps_the_order_and_only_adds(chances: list[float]) -> None:
    adjusted = holm(chances)
    assert all(chance <= corrected <= 1 for chance, corrected in zip(chances, adjusted, strict=True))
    if chances:
        assert min(adjusted) == min(1, len(chances) * min(chances))
    ranked = sorted(zip(chances, adjusted, strict=True))
    assert [corrected for _, corrected in ranked] == sorted(adjusted)


def test_a_larger_number_of_metrics_needs_stronger_evidence() -> None:
    borderline = make_evidence(math.log(1.2), 0.06)
    assert verdict_of(borderline) == "regressed"
    crowd = [make_evidence(0.0, 0.01, path=f"{number}/p50_ms") for number in range(100)]
    assert judged(borderline, *crowd)[0].verdict == "inconclusive"


def test_metrics_that_are_exact_or_not_judged_do_not_count_in_the_correction() -> None:
    borderline = make_evidence(math.log(1.2), 0.06)
    bystanders = [
        make_evidence(0.0, 0.0, math.inf, unit="B"),
        make_evidence(0.3, 0.1, gates=False),
        make_evidence(0.3, None, 0),
        make_evidence(settled="new"),
    ]
    assert judged(borderline, *bystanders * 30)[0].p == judged(borderline)[0].p


def test_identical_code_rarely_raises_an_alarm_over_many_metrics() -> None:
    """Without a floor, with 20 metrics and 5 rounds a side, at most 1 in 20 comparisons has an alarm.

    Without the correction for many metrics it would be 13 in 20.
    """
    random_ = random.Random(11)
    alarms = 0
    for _ in range(150):
        all_seen = []
        for number in range(20):
            sides = [[random_.gauss(0, 0.03) for _ in range(5)] for _ in range(2)]
            effect = welch(*sides)
            all_seen.append(
                make_evidence(effect.value, effect.error, effect.freedom, path=f"{number}/p50_ms")
            )
        found = judged(*all_seen, threshold=Thresholds(0.0))
        alarms += any(each.verdict in ("regressed", "improved") for each in found)
    assert alarms / 150 <= 0.1  # 5 % and three standard errors


# -- intervals --------------------------------------------------------------------------------


@pytest.mark.parametrize(("rounds", "spreads"), [(3, (0.05, 0.05)), (5, (0.02, 0.08)), (10, (0.05, 0.05))])
def test_the_interval_holds_the_true_ratio_in_95_of_100_cases(
    rounds: int, spreads: tuple[float, float]
) -> None:
    random_ = random.Random(rounds)
    true = math.log(1.1)
    held = 0
    for _ in range(2000):
        now = [random_.gauss(true, spreads[0]) for _ in range(rounds)]
        before = [random_.gauss(0.0, spreads[1]) for _ in range(rounds)]
        effect = welch(now, before)
        assert effect.error is not None
        held += abs(effect.value - true) <= t_critical(effect.freedom, 0.95) * effect.error
    assert 0.93 <= held / 2000 <= 0.985


def test_welchs_test_agrees_with_scipy() -> None:
    from scipy import stats

    now, before = [3.1, 2.9, 3.4, 3.3], [2.5, 2.7, 2.2, 2.6, 2.4]
    effect = welch(now, before)
    known = stats.ttest_ind(now, before, equal_var=False)
    assert effect.error is not None
    assert effect.value / effect.error == pytest.approx(known.statistic)
    assert effect.freedom == pytest.approx(known.df)
    (only,) = judged(make_evidence(effect.value, effect.error, effect.freedom))
    assert only.p == pytest.approx(known.pvalue)


def test_the_test_of_pairs_agrees_with_scipy() -> None:
    from scipy import stats

    differences = [0.1, 0.3, -0.05, 0.2]
    effect = one_sample(differences)
    known = stats.ttest_1samp(differences, 0)
    assert effect.error is not None
    assert effect.value / effect.error == pytest.approx(known.statistic)
    assert effect.freedom == known.df


# -- noise ------------------------------------------------------------------------------------


def test_a_change_within_the_noise_of_stored_runs_is_not_a_regression() -> None:
    drift = make_evidence(math.log(1.15), 0.005)
    assert verdict_of(drift) == "regressed"
    assert verdict_of(drift, noise=NoiseFloor("stored", {KEY: 0.2})) == "unchanged"
    # Hardly beyond the noise, so more rounds would not make it clearer.
    assert (
        verdict_of(make_evidence(math.log(1.21), 0.01), noise=NoiseFloor("stored", {KEY: 0.2}))
        == "inconclusive"
    )
    assert (
        verdict_of(make_evidence(math.log(1.3), 0.01), noise=NoiseFloor("stored", {KEY: 0.2}))
        == "regressed"
    )


def test_in_lockstep_noise_raises_the_floor_and_not_the_test() -> None:
    assert (
        verdict_of(make_evidence(math.log(1.21), 0.01), noise=NoiseFloor("lockstep", {KEY: 0.2}))
        == "regressed"
    )
    assert (
        verdict_of(make_evidence(math.log(1.15), 0.01), noise=NoiseFloor("lockstep", {KEY: 0.2}))
        != "regressed"
    )


def test_times_of_an_uncalibrated_machine_are_assumed_to_be_noisy() -> None:
    noise = uncalibrated("stored")
    assert noise.floor("any", "ms") == 0.05
    assert noise.floor("any", "B") == 0
    assert uncalibrated("lockstep").floor("any", "ms") == 0


# -- thresholds -------------------------------------------------------------------------------


def test_a_pattern_sets_the_threshold_of_some_metrics() -> None:
    thresholds = Thresholds(0.1, patterns={"p50_ms": 0.5, "storage.read_latency:stm/*": 0.02})
    assert thresholds.of("storage.read_latency", "stm/p50_ms", "ratio") == 0.02
    assert thresholds.of("storage.read_latency", "im/p50_ms", "ratio") == 0.5
    assert thresholds.of("storage.write", "im/cpu_ms", "ratio") == 0.1
    assert thresholds.of("storage.write", "im/recall", "difference") == 0.01
    assert verdict_of(make_evidence(math.log(1.05), 0.001), threshold=thresholds) == "regressed"


@pytest.mark.parametrize("bad", [-0.1, math.nan, math.inf])
def test_a_negative_or_infinite_threshold_is_refused(bad: float) -> None:
    with pytest.raises(InvalidBenchmarkConfig, match="threshold is"):
        Thresholds(bad)
    with pytest.raises(InvalidBenchmarkConfig, match="p50_ms is"):
        Thresholds(patterns={"p50_ms": bad})


# -- what is judged ---------------------------------------------------------------------------

TIMING = (
    "throughput_ops_per_second", "total_time_seconds", "items_processed", "mean_ms", "p50_ms", "p95_ms",
    "p99_ms", "max_ms", "cpu_ms", "wall_to_cpu",
)  # fmt: skip


def judged_of(kind: Any, **details: Any) -> list[str]:
    from memory.benchmarking.metrics import metric_of

    metrics = {leaf: metric_of(leaf) for leaf in TIMING}
    return [
        leaf
        for leaf, metric in metrics.items()
        if not reason_not_judged(
            f"stm/{leaf}", metric.unit, metric.better, kind=kind, siblings=TIMING, **details
        )
    ]


def test_a_timing_is_judged_by_few_of_its_figures() -> None:
    assert judged_of("stored", samples=10**6) == ["p50_ms", "cpu_ms"]
    assert judged_of("lockstep", samples=10**6) == ["cpu_ms"]
    assert judged_of("stored", times_count=False) == []


def test_a_tail_is_judged_with_a_threshold_of_its_own_and_enough_samples() -> None:
    asked = Thresholds(patterns={"p99_ms": 0.2})
    assert "p99_ms" in judged_of("stored", samples=1000, thresholds=asked)
    assert "p99_ms" not in judged_of("stored", samples=999, thresholds=asked)


@pytest.mark.parametrize(
    ("leaf", "unit", "better", "is_judged"),
    [
        ("recall_at_10", "", "higher", True),
        ("disk_bytes_per_memory", "B", "lower", True),
        ("training_time_seconds", "s", "lower", True),
        ("items_processed", "", "neither", False),
        ("overhead_percent", "%", "lower", False),
        ("im_to_stm_ratio", "×", "lower", False),
        ("growth_exponent", "", "lower", False),
        ("max_ms", "ms", "lower", False),
    ],
)
def test_measured_figures_are_judged_and_derived_ones_are_not(
    leaf: str, unit: str, better: Any, is_judged: bool
) -> None:
    assert (
        not reason_not_judged(f"stm/{leaf}", unit, better, kind="stored", siblings=(leaf,))
    ) is is_judged


def test_shares_are_judged_even_where_rounds_ran_in_parallel() -> None:
    assert not reason_not_judged("recall", "", "higher", kind="stored", times_count=False)
    assert (
        reason_not_judged("p50_ms", "ms", "lower", kind="stored", times_count=False)
        == "rounds ran side by side"
    )


# -- exit codes -------------------------------------------------------------------------------


def comparison(*verdicts: Verdict | None, comparable: bool = True) -> Comparison:
    metrics = [
        MetricVerdict(
            category="c",
            benchmark="b",
            target="t",
            path=f"{n}/p50_ms",
            unit="ms",
            better="lower",
            verdict=v,
        )
        for n, v in enumerate(verdicts)
    ]
    return Comparison(kind="stored", base="a", current="b", metrics=metrics, comparable=comparable)


@pytest.mark.parametrize(
    ("verdicts", "code", "strict_code"),
    [
        (["unchanged", "improved"], 0, 0),
        (["unchanged", "new", None], 0, 0),
        (["unchanged", "regressed", "inconclusive"], 2, 2),
        (["unchanged", "inconclusive"], 0, 4),
        (["unchanged", "missing"], 2, 2),
        (["unchanged", "incomparable"], 3, 3),
        (["unchanged", "missing", "incomparable"], 2, 2),
        (["inconclusive"], 0, 4),
        (["incomparable"], 3, 3),
        (["new", "missing"], 1, 1),
        ([None], 1, 1),
        ([], 1, 1),
    ],
)
def test_the_exit_code_follows_from_the_verdicts(
    verdicts: list[Verdict | None], code: int, strict_code: int
) -> None:
    assert comparison(*verdicts).exit_code() == code
    assert comparison(*verdicts).exit_code(strict=True) == strict_code
    assert comparison(*verdicts, comparable=False).exit_code() == 3


def test_a_comparison_can_be_written_and_read() -> None:
    whole = comparison("regressed", None, "new")
    whole.metrics.append(judged(make_evidence(0.2, 0.01))[0])
    assert decode(as_json(whole).encode()) == whole


def test_a_file_that_is_not_a_comparison_is_refused() -> None:
    from memory.benchmarking.errors import DamagedResult

    with pytest.raises(DamagedResult, match="not a comparison"):
        decode(b"{}")


def test_noise_is_stored_for_each_environment_and_each_way_to_compare(tmp_path: Any) -> None:
    from memory.benchmarking.verdicts.noise import Calibration, load_noise, store_noise

    def calibration(floor: float) -> Calibration:
        return Calibration(made_at="2026-08-01", comparisons=5, floors={KEY: floor}, default=0.07)

    store_noise(tmp_path, "f00d", "stored", calibration(0.2))
    store_noise(tmp_path, "f00d", "lockstep", calibration(0.01))
    assert load_noise(tmp_path, "f00d", "stored").floor(KEY, "ms") == 0.2
    assert load_noise(tmp_path, "f00d", "lockstep").floor(KEY, "ms") == 0.01
    assert load_noise(tmp_path, "f00d", "stored").floor("other", "ms") == 0.07
    assert load_noise(tmp_path, "f00d", "stored").calibrated
    assert not load_noise(tmp_path, "beef", "stored").calibrated
    with pytest.raises(InvalidResult, match="must be a number ≥ 0"):
        store_noise(tmp_path, "f00d", "stored", calibration(-1))
