"""Turns, pairs and verdicts of a comparison in lockstep, tested without starting processes."""

from __future__ import annotations

import math
import os
import random
import threading
from array import array
from collections.abc import Callable, Iterator

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.benchmarking.lockstep.calibration import lockstep_calibration, stored_calibration
from memory.benchmarking.lockstep.coordinator import Coordinator, Schedule
from memory.benchmarking.lockstep.evidence import evidence_of, has_other_clocks
from memory.benchmarking.lockstep.pair import Pair
from memory.benchmarking.lockstep.ratios import timing_ratio
from memory.benchmarking.lockstep.sequence import FIRST_PAIRS, Measured, Rules, Subject, compare
from memory.benchmarking.lockstep.timing_plan import common_plans
from memory.benchmarking.lockstep.turn_pipes import PipeTurnControl, SidePipes
from memory.benchmarking.measure.timing import time_calls
from memory.benchmarking.measure.turn_control import TimingPlan, TimingProposal
from memory.benchmarking.metrics import Declaration, Metric
from memory.benchmarking.model.records import Case, Figure, Result, Round, Samples, Unit
from memory.benchmarking.verdicts.noise import uncalibrated
from memory.benchmarking.verdicts.records import MetricVerdict
from memory.benchmarking.verdicts.thresholds import LOCKSTEP_THRESHOLD, Thresholds

CASE = Case(category="made", benchmark="up", target="light", params={})
RULES = Rules(Thresholds(LOCKSTEP_THRESHOLD), uncalibrated("lockstep"))


def proposal(**changes: object) -> TimingProposal:
    usual = {"call_ns": 50_000.0, "calls_per_sample": 1, "samples": 1000, "fixed": False}
    return TimingProposal(**(usual | changes))  # type: ignore[arg-type]


# -- the plan of a timing ---------------------------------------------------------------------

proposals = st.builds(
    TimingProposal,
    call_ns=st.none() | st.floats(1, 1e10),
    calls_per_sample=st.integers(1, 10_000),
    samples=st.integers(1, 100_000),
    fixed=st.booleans(),
)


@given(proposals, proposals)
def test_both_sides_get_the_same_turns_and_blocks(one: TimingProposal, other: TimingProposal) -> None:
    first, second = common_plans([one, other])
    assert (first.turns, first.blocks) == (second.turns, second.blocks)
    assert first.calls_per_sample == second.calls_per_sample
    for plan in (first, second):
        assert 1 <= plan.turns <= plan.blocks <= plan.samples


@given(proposals, proposals)
def test_a_number_of_calls_that_the_benchmark_fixed_is_kept(
    one: TimingProposal, other: TimingProposal
) -> None:
    plans = common_plans([one, other])
    for asked, plan in zip((one, other), plans, strict=True):
        calls = asked.samples * asked.calls_per_sample
        if asked.fixed:
            assert calls <= plan.samples * plan.calls_per_sample < calls + plan.calls_per_sample


def test_a_turn_is_short() -> None:
    plan, _ = common_plans([proposal(), proposal(call_ns=100_000.0)])
    assert plan.samples * 50_000 / plan.turns < 2e6


# -- the coordinator --------------------------------------------------------------------------


class Sides:
    """Two simulated sides that make the given timings, and check which side runs."""

    def __init__(self, timings: tuple[list[int], list[int]], seed: int, *, together: bool = False) -> None:
        self.schedules: list[dict[int, Schedule]] = []
        self._answers: list[tuple[int, Schedule | None]] = []
        self._together = together
        rng = random.Random(seed)
        self.coordinator = Coordinator(
            lambda *answer: self._answers.append(answer), rng, [0, 1], together=together
        )
        self._steps = [self._side(each) for each in timings]

    def _side(self, timings: list[int]) -> Iterator[TimingProposal | None]:
        """What a worker does: each yield is a stop."""
        yield None
        for samples in timings:
            yield proposal(samples=samples)
            yield None  # after the last turn

    def run(self) -> None:
        for side in (1, 0):  # both load at once, and stop in any order
            assert not self._answers, "one side began before the other was ready"
            self.coordinator.stop(side, next(self._steps[side]))
        while self._answers:
            going, self._answers = self._answers, []
            met = {side: schedule for side, schedule in going if schedule is not None}
            if not self._together:
                assert len(going) == 1 or len(met) == len(going), "both sides run outside of turns"
            assert not met or len(met) == len(going), "only one side is in a timing"
            if met:
                self.schedules.append(met)
            for side, _ in going:
                try:
                    stop = next(self._steps[side])
                except StopIteration:
                    self.coordinator.end(side)
                else:
                    self.coordinator.stop(side, stop)


timings = st.lists(st.integers(1, 500), max_size=4)


@given(timings, timings, st.integers(0, 9), st.booleans())
def test_one_side_runs_at_a_time_and_both_sides_finish(
    one: list[int], other: list[int], seed: int, together: bool
) -> None:
    sides = Sides((one, other), seed, together=together)
    sides.run()
    for side, wanted in enumerate((one, other)):
        assert sum(side in met for met in sides.schedules) == len(wanted)
    for met in sides.schedules:
        for side, schedule in met.items():
            assert schedule.order.count(side) == schedule.plan.turns
            assert set(schedule.order) == set(met)


def test_both_sides_take_each_turn_one_after_the_other_in_random_order() -> None:
    sides = Sides(([1000], [1000]), seed=1)
    sides.run()
    ((one, other),) = (met.values() for met in sides.schedules)
    assert (one.order, one.core, one.plan) == (other.order, other.core, other.plan)
    turns = list(zip(one.order[::2], one.order[1::2], strict=True))
    assert all(set(turn) == {0, 1} for turn in turns)
    assert len(turns) > 20
    assert 0.2 < sum(turn[0] for turn in turns) / len(turns) < 0.8


@given(st.lists(st.sampled_from([(0, 1), (1, 0)]), min_size=1, max_size=30))
def test_the_sides_take_turns_in_the_scheduled_order(turns: list[tuple[int, int]]) -> None:
    order = [side for turn in turns for side in turn]
    happened: list[int] = []
    plan = TimingPlan(calls_per_sample=1, samples=len(turns), blocks=len(turns), turns=len(turns))
    to_0, from_1 = os.pipe()
    to_1, from_0 = os.pipe()
    answers = [os.pipe(), os.pipe()]
    controls = []
    for side, pipes in enumerate(((to_0, from_0), (to_1, from_1))):
        schedule = Schedule(plan=plan, side=side, order=order, core=None)
        os.write(answers[side][1], msgspec.json.encode(schedule) + b"\nnull\n")
        controls.append(PipeTurnControl(lambda **event: None, SidePipes(answers[side][0], *pipes)))

    def work(side: int) -> None:
        for _ in range(controls[side].agree(proposal()).turns):
            happened.append(side)
            controls[side].next_turn()

    threads = [threading.Thread(target=work, args=(side,)) for side in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert happened == order
    for descriptor in (to_0, from_1, to_1, from_0, answers[0][1], answers[1][1]):
        os.close(descriptor)
    for control in controls:
        control.close()


# -- turns inside a timing --------------------------------------------------------------------


class OneSide:
    """A `TurnControl` without another side."""

    def __init__(self, plan: Callable[[TimingProposal], TimingPlan]) -> None:
        self.plan = plan
        self.turns = 0

    def begin(self) -> None: ...

    def agree(self, proposal: TimingProposal) -> TimingPlan:
        return self.plan(proposal)

    def next_turn(self) -> None:
        self.turns += 1


def test_a_timing_follows_the_plan_of_its_turn_control() -> None:
    turn_control = OneSide(lambda _: TimingPlan(calls_per_sample=2, samples=10, blocks=5, turns=2))
    calls: list[int] = []
    timing = time_calls(
        lambda: calls.append(turn_control.turns), turn_control=turn_control, seconds=0.001, warm_up=3
    )
    assert timing.turn_blocks == (3, 2)
    assert timing.block_samples == (2, 2, 2, 2, 2)
    assert timing.calls_per_sample == 2
    assert turn_control.turns == 2
    assert calls == [0] * (3 + 12) + [1] * 8  # the warm-up and a turn of three blocks, then one of two


def test_a_fixed_number_of_calls_is_made_in_lockstep_too() -> None:
    turn_control = OneSide(lambda proposal: common_plans([proposal])[0])
    met: list[int] = []
    timing = time_calls(met.append, range(7), calls=7, warm_up=0, turn_control=turn_control)
    assert met == list(range(7))
    assert timing.calls == 7


# -- one pair ---------------------------------------------------------------------------------


def packed(values: list[int]) -> bytes:
    return array("q", values).tobytes()


def samples(cpu_us: list[int], wall_us: list[int] | None = None, turn: int = 2) -> Samples:
    """Return samples with one call a block, and `turn` blocks a turn."""
    turns = [turn] * (len(cpu_us) // turn)
    return Samples(
        wall_ns=packed([1000 * value for value in wall_us or cpu_us]),
        block_samples=packed([1] * len(cpu_us)),
        block_wall_ns=packed([1000 * value for value in wall_us or cpu_us]),
        block_cpu_ns=packed([1000 * value for value in cpu_us]),
        calls_per_sample=1,
        work=1,
        turn_blocks=packed(turns),
    )


def test_a_turn_counts_by_its_fastest_block_and_a_pair_by_its_median_turn() -> None:
    base = samples([100, 900, 100, 100, 100, 100])
    current = samples([110, 110, 700, 110, 800, 800])
    found = timing_ratio(base, current)
    assert found.cpu is not None
    assert found.cpu.log_ratio == pytest.approx(math.log(1.1))
    assert (found.cpu.base, found.cpu.current) == pytest.approx((0.1, 0.11))


def test_sides_with_different_numbers_of_turns_are_compared_by_process() -> None:
    found = timing_ratio(samples([100] * 4), samples([120] * 8))
    assert found.cpu is not None
    assert found.cpu.log_ratio == pytest.approx(math.log(1.2))


# -- evidence ---------------------------------------------------------------------------------


def round_(number: int, figures: dict[str, float] | None = None, timing: Samples | None = None) -> Round:
    return Round(
        number=number,
        seed=number,
        figures=(figures or {}) | ({"read/mean_ms": 1.0} if timing else {}),
        samples={"read": timing} if timing else {},
        other={},
        not_available={},
        started_at=0.0,
        load_seconds=0.0,
        seconds=1.0,
        peak_rss_bytes=1,
        wall_to_cpu=None,
    )


def pairs_of(base: Samples, current: Samples, count: int = FIRST_PAIRS) -> list[Pair]:
    return [Pair(round_(number, timing=base), round_(number, timing=current)) for number in range(count)]


def judged(pairs: list[Pair]) -> dict[str, bool]:
    return {each.path: each.gates for each in evidence_of(CASE, Declaration(), pairs, Thresholds())}


def test_an_operation_that_computes_is_judged_by_its_cpu_time() -> None:
    pairs = pairs_of(samples([100] * 4), samples([100] * 4))
    assert judged(pairs) == {"read/cpu_ms": True, "read/wall_ms": False}


def test_an_operation_that_waits_is_judged_by_its_wall_time_as_well() -> None:
    waits = samples([100] * 4, [400] * 4)
    for pairs in (pairs_of(waits, waits), pairs_of(samples([100] * 4), waits)):
        assert judged(pairs) == {"read/cpu_ms": True, "read/wall_ms": True}


def test_interrupted_blocks_do_not_count_as_waiting() -> None:
    interrupted = samples([100] * 10, [100, 100, *[400] * 8])
    assert judged(pairs_of(interrupted, interrupted))["read/wall_ms"] is False


def test_a_metric_of_one_side_only_is_new_or_missing() -> None:
    pairs = [Pair(round_(0, {"old_ms": 1.0}), round_(0, timing=samples([1] * 2)))]
    found = {each.path: each.settled for each in evidence_of(CASE, Declaration(), pairs, Thresholds())}
    assert found == {"read/cpu_ms": "new", "old_ms": "missing"}


def test_figures_of_processes_are_compared_pair_by_pair() -> None:
    declared = Declaration(metrics={"recall": Metric("", "higher")})
    pairs = [
        Pair(
            round_(n, {"room_bytes": size, "recall": 0.9}),
            round_(n, {"room_bytes": 2 * size, "recall": 0.8}),
        )
        for n, size in enumerate((100.0, 300.0, 500.0))
    ]
    room, recall = evidence_of(CASE, declared, pairs, Thresholds())
    assert (room.log_ratio, room.error) == (math.log(2), 0)
    assert recall.scale == "difference"
    assert recall.log_ratio == pytest.approx(-0.1)


def test_a_time_that_was_not_measured_in_turns_is_detected() -> None:
    in_turns = round_(0, {"room_bytes": 1.0}, samples([1] * 2))
    assert not has_other_clocks(Pair(in_turns, in_turns), Declaration())
    own = round_(0, {"first_start_ms": 1.0}, samples([1] * 2))
    assert has_other_clocks(Pair(in_turns, own), Declaration())
    without_turns = msgspec.structs.replace(samples([1] * 2), turn_blocks=b"")
    assert has_other_clocks(Pair(round_(0, timing=without_turns), in_turns), Declaration())


# -- the sequence -----------------------------------------------------------------------------


def compare_made(
    effect: float, noise: float, seed: int, metrics: int = 8, most_pairs: int = FIRST_PAIRS
) -> tuple[list[MetricVerdict], Measured]:
    """Compare simulated pairs in which every metric has this true effect."""
    rng = random.Random(seed)

    def measure(subject: Subject, number: int) -> Pair:
        base = {f"{name}_ms": 1.0 for name in range(metrics)}
        now = {path: math.exp(rng.gauss(math.log1p(effect), noise)) for path in base}
        return Pair(round_(number, base), round_(number, now))

    measured: dict[str, Measured] = {}
    rules = Rules(RULES.thresholds, RULES.noise, most_pairs)
    verdicts = compare([Subject(CASE, (CASE, CASE))], measure, rules, measured)
    return verdicts, measured[CASE.key]


def regressed(verdicts: list[MetricVerdict]) -> int:
    return sum(each.verdict == "regressed" for each in verdicts)


@pytest.mark.parametrize("most_pairs", [FIRST_PAIRS, 20])
def test_identical_code_is_hardly_ever_called_regressed(most_pairs: int) -> None:
    alarms = sum(
        bool(regressed(compare_made(0.0, 0.06, seed, most_pairs=most_pairs)[0])) for seed in range(100)
    )
    assert alarms <= 5


def test_a_real_change_is_found_and_confirmed() -> None:
    verdicts, measured = compare_made(0.10, 0.01, seed=1)
    assert regressed(verdicts) == len(verdicts)
    assert all(each.confirmed for each in verdicts)
    assert len(measured.first) == FIRST_PAIRS
    assert measured.fresh
    assert not {pair.base.seed for pair in measured.first} & {pair.base.seed for pair in measured.fresh}


def test_a_clearly_unchanged_case_gets_no_more_pairs() -> None:
    verdicts, measured = compare_made(0.0, 0.002, seed=1, most_pairs=20)
    assert {each.verdict for each in verdicts} == {"unchanged"}
    assert (len(measured.first), len(measured.fresh)) == (FIRST_PAIRS, 0)


def test_an_undecided_case_gets_the_most_pairs_and_is_inconclusive() -> None:
    verdicts, measured = compare_made(0.0, 0.3, seed=3, metrics=1, most_pairs=9)
    assert [each.verdict for each in verdicts] == ["inconclusive"]
    assert len(measured.first) == 9


def test_a_change_that_fresh_pairs_do_not_confirm_is_not_called_regressed() -> None:
    def measure(subject: Subject, number: int) -> Pair:
        now = 1.5 if number < FIRST_PAIRS else 1.0
        return Pair(round_(number, {"x_ms": 1.0}), round_(number, {"x_ms": now + number / 1000}))

    (found,) = compare([Subject(CASE, (CASE, CASE))], measure, RULES, {})
    assert (found.verdict, found.confirmed) == ("inconclusive", False)
    assert "not found again" in found.reason


def test_figures_that_depend_on_the_data_alone_need_few_pairs() -> None:
    case = Case(category="made", benchmark="room", target="light", params={}, most_rounds=2)
    measured: dict[str, Measured] = {}

    def measure(subject: Subject, number: int) -> Pair:
        return Pair(round_(number, {"room_bytes": 100.0}), round_(number, {"room_bytes": 130.0}))

    (found,) = compare([Subject(case, (case, case))], measure, RULES, measured)
    assert (found.verdict, found.confirmed) == ("regressed", True)
    assert [len(measured[case.key].first), len(measured[case.key].fresh)] == [2, 2]


def test_a_side_that_fails_loses_its_own_subject_only() -> None:
    other = Case(category="made", benchmark="broken", target="light", params={})

    def measure(subject: Subject, number: int) -> Pair | None:
        if subject.case is other:
            return None
        return Pair(round_(number, {"x_bytes": 1.0}), round_(number, {"x_bytes": 1.0}))

    measured: dict[str, Measured] = {}
    verdicts = compare([Subject(each, (each, each)) for each in (other, CASE)], measure, RULES, measured)
    assert [each.benchmark for each in verdicts] == ["up"]
    assert list(measured) == [CASE.key]


# -- calibration ------------------------------------------------------------------------------


def test_a_noisy_metric_has_a_higher_floor_in_lockstep() -> None:
    rng = random.Random(1)
    pairs = [
        Pair(
            round_(number, {"calm_ms": 1.0, "wild_ms": 1.0}),
            round_(
                number, {"calm_ms": math.exp(rng.gauss(0, 0.01)), "wild_ms": math.exp(rng.gauss(0, 0.2))}
            ),
        )
        for number in range(8)
    ]
    found = lockstep_calibration([Subject(CASE, (CASE, CASE))], {CASE.key: pairs}, "now")
    calm, wild = (found.floors[f"made.up@light:{name}_ms"] for name in ("calm", "wild"))
    assert 0 < calm < wild < 0.5


def result(value: float) -> Result:
    return Result(
        benchmark="up",
        category="made",
        timestamp="",
        results={},
        metadata={"target": "light"},
        metrics={"read/p50_ms": Figure(value=value), "room_bytes": Figure(value=100 * value)},
        units={"p50_ms": Unit(unit="ms", better="lower"), "room_bytes": Unit(unit="B", better="lower")},
    )


def test_runs_that_differ_by_ten_percent_have_a_noise_floor_above_ten_percent() -> None:
    found = stored_calibration([[result(value)] for value in (1.0, 1.1, 1.0, 1.1)], "now")
    assert list(found.floors) == ["made.up@light:read/p50_ms"]  # sizes have no timing noise
    assert 0.1 < found.floors["made.up@light:read/p50_ms"] < 0.3
    assert found.comparisons == 4


def test_two_runs_are_too_few_to_estimate_the_noise() -> None:
    assert stored_calibration([[result(1.0)], [result(1.1)]], "now").floors == {}
