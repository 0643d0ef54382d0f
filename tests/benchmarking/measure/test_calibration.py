"""The bins of a reliability diagram, and the calibration error."""

from __future__ import annotations

import random

import pytest

from memory.benchmarking.measure.calibration import Bin, calibration_bins, calibration_error


def test_estimates_are_put_into_ten_bins_and_the_last_holds_one() -> None:
    bins = calibration_bins([0.0, 0.05, 0.95, 1.0], [False, True, True, True])
    assert bins == [Bin(0, 2, 0.025, 0.5), Bin(9, 2, 0.975, 1.0)]
    assert calibration_error(bins) == pytest.approx((2 * 0.475 + 2 * 0.025) / 4)


def test_chances_that_come_true_have_a_small_error_and_others_do_not() -> None:
    rng = random.Random(0)
    chances = [rng.random() for _ in range(20_000)]
    truths = [rng.random() < chance for chance in chances]
    assert calibration_error(calibration_bins(chances, truths)) < 0.02
    turned = [1 - chance for chance in chances]
    assert calibration_error(calibration_bins(turned, truths)) == pytest.approx(0.5, abs=0.02)
