"""The search for the knee, on simulated servers whose knee is known."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from memory.benchmarking.measure.knee import (
    MOST_OPTIMISM,
    KneeBelief,
    Outcome,
    expected_knee,
    find_knee,
    optimism,
)

LIMIT = 0.010


def p99(rate: float, service: float, seconds: float, rng: np.random.Generator) -> float:
    """Return the p99 of a queue with random arrivals and equal service times, by Lindley's recursion."""
    gaps = rng.exponential(1 / rate, max(2, rng.poisson(rate * seconds)))
    steps = np.concatenate([[0.0], np.cumsum(service - gaps[1:])])
    waiting = steps - np.minimum.accumulate(steps)
    return float(np.percentile(waiting + service, 99))


def true_knee(service: float) -> float:
    """Return the knee from simulations of two million arrivals each."""
    low, high = 0.05 / service, 1 / service
    for _ in range(14):
        middle = math.sqrt(low * high)
        if p99(middle, service, 2e6 / middle, np.random.default_rng(1)) <= LIMIT:
            low = middle
        else:
            high = middle
    return low


def server(
    service: float, rng: np.random.Generator, disturbed: float = 0.0
) -> tuple[Callable[[float], Outcome], Callable[[], bool]]:
    """Return a probe of a simulated server, and whether 33 simulated seconds are not over yet.

    A share of the probes is `disturbed`: these fail whatever the rate.
    """
    elapsed = 0.0

    def probe(rate: float) -> Outcome:
        nonlocal elapsed
        seconds = min(max(3000 / rate, 1.5), 7.5)
        elapsed += seconds
        is_disturbed = rng.random() < disturbed
        passed = p99(rate, service, seconds, rng) <= LIMIT and not is_disturbed
        return "passed" if passed else "failed"

    return probe, lambda: elapsed < 33.0


@pytest.mark.parametrize("service", [0.0002, 0.0005])
def test_the_knee_of_a_known_server_is_found_within_ten_percent(service: float) -> None:
    truth = true_knee(service)
    for seed in range(20):
        rng = np.random.default_rng(seed)
        probe, may_continue = server(service, rng, disturbed=0.05)
        capacity = rng.uniform(0.7, 1.3) / service  # the closed loop's rate is not exact either
        knee = find_knee(
            probe, expected_knee(capacity, service * 1e3, LIMIT * 1e3, 1), may_continue=may_continue
        )
        assert knee.found
        assert knee.estimate.rate == pytest.approx(truth, rel=0.10)


def test_the_interval_usually_holds_the_truth() -> None:
    service = 0.001
    truth, held = true_knee(service), 0
    for seed in range(30):
        probe, may_continue = server(service, np.random.default_rng(seed))
        estimate = find_knee(probe, 0.8 / service, may_continue=may_continue).estimate
        held += estimate.low <= truth <= estimate.high
    assert held >= 26


def test_short_probes_pass_too_easily_and_the_search_takes_it_off() -> None:
    """Without the correction the mean of these searches is 15 % too high."""
    service, operations = 0.0002, 500
    truth = true_knee(service)
    above = optimism(1 / service, service * 1e3, LIMIT * 1e3, operations)
    assert above == pytest.approx(1.13, abs=0.03)
    assert optimism(1 / service, service * 1e3, LIMIT * 1e3, 4000) < 1.05
    found = []
    for seed in range(15):
        rng = np.random.default_rng(seed)
        probes = 0

        def probe(rate: float) -> Outcome:
            nonlocal probes
            probes += 1
            return "passed" if p99(rate, service, operations / rate, rng) <= LIMIT else "failed"  # noqa: B023

        knee = find_knee(probe, 0.9 / service, may_continue=lambda: probes < 20, optimism=above)  # noqa: B023
        found.append(knee.estimate.rate)
    assert np.mean(found) == pytest.approx(truth, rel=0.04)


def test_the_correction_is_that_of_the_whole_probe_where_the_limit_is_long() -> None:
    """At 20,000 a second a queue takes long to reach a limit of 50 ms: 1,000 service times."""
    capacity, limit_ms = 20_000.0, 50.0
    short, long, longer = (optimism(capacity, 0.05, limit_ms, size) for size in (5_000, 20_000, 60_000))
    assert short == pytest.approx(1.25, abs=0.03)
    assert long == pytest.approx(1.055, abs=0.015)
    assert longer == pytest.approx(1.02, abs=0.01)
    assert optimism(capacity, 0.05, limit_ms, 1_000) > MOST_OPTIMISM

    rng, found = np.random.default_rng(1), []
    for _ in range(6):
        probes = 0

        def probe(rate: float) -> Outcome:
            nonlocal probes
            probes += 1
            return "passed" if p99(rate, 1 / capacity, 20_000 / rate, rng) <= limit_ms / 1e3 else "failed"

        knee = find_knee(probe, 0.98 * capacity, may_continue=lambda: probes < 20, optimism=long)  # noqa: B023
        found.append(knee.estimate.rate)
    assert np.mean(found) == pytest.approx(0.9977 * capacity, rel=0.02)


def test_a_search_that_must_stop_begins_no_probe() -> None:
    probes: list[float] = []

    def probe(rate: float) -> Outcome:
        probes.append(rate)
        return "passed"

    knee = find_knee(probe, 100.0, may_continue=lambda: True, must_stop=lambda: len(probes) >= 2)
    assert len(probes) == 2
    assert not knee.found


def test_one_wrong_failure_does_not_mislead() -> None:
    """A bisection would never come back from a failure far below the knee."""
    probes = 0

    def probe(rate: float) -> Outcome:
        nonlocal probes
        probes += 1
        return "passed" if rate <= 1000 and probes != 1 else "failed"

    knee = find_knee(probe, 300.0, may_continue=lambda: probes < 25)
    assert knee.estimate.rate == pytest.approx(1000, rel=0.05)
    assert knee.estimate.low <= 1000 <= knee.estimate.high


def test_a_guess_that_is_far_off_is_corrected() -> None:
    for guess in (50.0, 5000.0):
        probes = 0

        def probe(rate: float) -> Outcome:
            nonlocal probes
            probes += 1
            return "passed" if rate <= 150 else "failed"

        knee = find_knee(probe, guess, may_continue=lambda: probes < 30)  # noqa: B023 - used in this turn
        assert knee.estimate.rate == pytest.approx(150, rel=0.05)
        assert knee.confirmed


def test_invalid_probes_do_not_count_and_end_the_search() -> None:
    rates: list[float] = []

    def probe(rate: float) -> Outcome:
        rates.append(rate)
        return "invalid"

    knee = find_knee(probe, 100.0, may_continue=lambda: True)
    assert not knee.found
    assert (knee.passed, knee.failed, knee.invalid) == (0, 0, len(rates))
    assert len(set(rates[1:])) == 1, "an invalid probe is repeated"


def test_a_system_that_never_fails_has_no_knee() -> None:
    probes = 0

    def probe(rate: float) -> Outcome:
        nonlocal probes
        probes += 1
        return "passed"

    assert not find_knee(probe, 100.0, may_continue=lambda: probes < 20).found


def test_without_time_the_search_goes_on_until_something_passed_and_failed() -> None:
    def probe(rate: float) -> Outcome:
        return "passed" if rate <= 1000 else "failed"

    knee = find_knee(probe, 300.0, may_continue=lambda: False)
    assert knee.found
    assert knee.passed + knee.failed <= 13  # with the confirmations


def test_each_probe_narrows_the_interval() -> None:
    belief = KneeBelief(100.0)
    before = belief.estimate()
    belief.record(50.0, passed=True)
    belief.record(200.0, passed=False)
    after = belief.estimate()
    assert before.low < after.low <= after.rate <= after.high < before.high


def test_slow_operations_lower_the_expected_knee() -> None:
    assert expected_knee(1000, 0.01, 10, 1) == pytest.approx(1000, rel=0.01)
    assert expected_knee(1000, 1, 10, 1) == pytest.approx(true_knee(0.001), rel=0.03)
    assert expected_knee(1000, 5, 10, 1) < 0.2 * 1000
    assert expected_knee(1000, 5, 10, 8) > expected_knee(1000, 5, 10, 1)
