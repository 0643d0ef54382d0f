"""How reliable `ab` and `compare` are on a busy machine: the tables in docs/statistics.md, "Lockstep".

    python scripts/gate.py --minutes 60        measure and print the tables; call it again for more
    python scripts/gate.py --report            print the tables of what was measured so far

Another process loads one core all the time. All raw blocks are kept in a folder (gate_results), so the
script can be stopped, resumed, and its results analysed again. It makes five kinds of comparisons in turns:

    identical     all of storage and retrieval against themselves
    slowed 10, 5  real extra work in the memory's read path, one benchmark at a time
    known         loops that are longer by a known share: does the interval hold the truth?
    run           an ordinary run of storage and retrieval, compared with one at least ten minutes older
"""

from __future__ import annotations

import argparse
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
import numpy as np
from _gate_rules import RULES, timings_of

from memory.benchmarking.config import BenchmarkConfig
from memory.benchmarking.errors import BenchmarkError
from memory.benchmarking.lockstep.calibration import stored_calibration
from memory.benchmarking.lockstep.engine import TIMING_SECONDS, Engine
from memory.benchmarking.lockstep.evidence import evidence_of
from memory.benchmarking.lockstep.pair import Limits, Side
from memory.benchmarking.lockstep.scratch import scratch_below
from memory.benchmarking.lockstep.selftest import Share, slowed_sides
from memory.benchmarking.lockstep.sequence import FIRST_PAIRS, Measured, Rules, Subject
from memory.benchmarking.lockstep.store import blocks_of
from memory.benchmarking.lockstep.subjects import same_cases
from memory.benchmarking.measure.statistics import CONFIDENCE, t_critical
from memory.benchmarking.model.files import encode_json, write_whole
from memory.benchmarking.run.discovery import discover
from memory.benchmarking.run.plan import make_cases
from memory.benchmarking.runner import BenchmarkRunner
from memory.benchmarking.verdicts.noise import load_noise, store_noise, uncalibrated
from memory.benchmarking.verdicts.records import MetricVerdict
from memory.benchmarking.verdicts.thresholds import LOCKSTEP_THRESHOLD, Thresholds

HERE = Path(__file__).parent
TARGET = "agentmemory"
SUITE = ("storage", "retrieval")
READS = ("storage.read_latency", "retrieval.vector_search_latency", "retrieval.cross_tier_retrieval")
RATIOS = (0.0, 2.0, 5.0, 10.0, 20.0)
"""By how many per cent loops are longer."""
CALIBRATING = 4
"""How many runs, the first ones, are used to calibrate and are not judged."""
APART_SECONDS = 600.0
"""The least time between two runs that are compared."""
ROUNDS = 5
"""Rounds of a run."""
RULES_OF_AB = Rules(Thresholds(LOCKSTEP_THRESHOLD), uncalibrated("lockstep"))
CYCLE = ("run", "slowed_10", "slowed_5", "identical", "slowed_10", "slowed_5", "known")


class Trial(msgspec.Struct, kw_only=True):
    """One comparison; its raw blocks are in a file beside it."""

    kind: str
    number: int
    at: float
    seconds: float
    benchmarks: list[str]
    truths: dict[str, float]
    """The true log-ratio of each timing, where it is known."""
    verdicts: list[MetricVerdict]
    intervals: dict[str, tuple[float, float]]
    """The interval of the log-ratio of each timing, from the first pairs only."""


class Gate:
    """The experiment, with all that was measured in its folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.found = discover([HERE / "gate_work.py"])
        self.config = BenchmarkConfig("quick")
        for each in self.found.benchmarks:
            self.config.add_benchmark(each)

    # -- measuring ----------------------------------------------------------------------------

    def measure(self, minutes: float) -> None:
        deadline = time.monotonic() + 60 * minutes
        with load_one_core():
            while time.monotonic() < deadline:
                done = {kind: self.count(kind) for kind in set(CYCLE)}
                # The next kind is the one that is furthest behind its share of the cycle.
                kind = min(set(CYCLE), key=lambda kind: (done[kind] / CYCLE.count(kind), CYCLE.index(kind)))
                start = time.monotonic()
                getattr(self, f"_{kind.partition('_')[0]}")(kind, done[kind])
                print(f"{kind} {done[kind] + 1}: {time.monotonic() - start:.0f} s", flush=True)

    def count(self, kind: str) -> int:
        return len(list((self.folder / kind).glob("[0-9]*")))

    def _identical(self, kind: str, number: int) -> None:
        subjects = self._subjects(SUITE, ())
        self._compare(kind, number, (Side("as it is"), Side("the same")), subjects, lambda path: 0.0)

    def _slowed(self, kind: str, number: int) -> None:
        share = int(kind.partition("_")[2]) / 100
        subjects = self._subjects((), (READS[number % len(READS)],))
        self._compare(kind, number, slowed_sides(TARGET, share), subjects, lambda path: None)

    def _known(self, kind: str, number: int) -> None:
        order = list(RATIOS)
        random.Random(number).shuffle(order)
        (subject,) = self._subjects(("gate_work",), ())
        sides = [
            msgspec.structs.replace(subject.case, params={"longer_percent": percents})
            for percents in ([0.0] * len(order), order)
        ]
        subject = Subject(subject.case, (sides[0], sides[1]), subject.declaration)
        truths = {f"timing_{place}": float(np.log1p(percent / 100)) for place, percent in enumerate(order)}
        self._compare(kind, number, (Side("as it is"), Side("longer")), [subject], truths.get)

    def _run(self, kind: str, number: int) -> None:
        unfinished = self.folder / ".runs"
        shutil.rmtree(unfinished, ignore_errors=True)
        config = self.config
        config.output_dir, config.rounds, config.seed = str(unfinished), ROUNDS, 0
        finished = BenchmarkRunner(config).run_cases(make_cases(self.found.select(SUITE), config))
        if finished.interrupted:
            raise KeyboardInterrupt
        if not finished.succeeded:
            raise BenchmarkError(f"the run in {finished.folder} failed")
        finished.folder.rename(self._place(kind, f"{number:04}_{finished.folder.name}"))

    def _subjects(self, categories: Sequence[str], names: Sequence[str]) -> list[Subject]:
        return same_cases(make_cases(self.found.select(categories, names), self.config))

    def _compare(
        self,
        kind: str,
        number: int,
        sides: tuple[Side, Side],
        subjects: list[Subject],
        truth: Callable[[str], float | None],
    ) -> None:
        at, start = time.time(), time.monotonic()
        measured: dict[str, Measured] = {}
        with scratch_below(self.folder / ".scratch") as scratch:
            engine = Engine(sides, 10_000 + number, TIMING_SECONDS, scratch, Limits(300))
            verdicts = engine.compare(subjects, RULES_OF_AB, measured)
        if engine.failures:
            raise BenchmarkError("; ".join(engine.failures.values()))
        trial = Trial(
            kind=kind,
            number=number,
            at=at,
            seconds=time.monotonic() - start,
            benchmarks=[subject.case.name for subject in subjects],
            truths={},
            verdicts=verdicts,
            intervals={},
        )
        for subject in subjects:
            first = measured[subject.case.key].first
            for each in evidence_of(subject.case, subject.declaration, first, RULES_OF_AB.thresholds):
                timing, _, leaf = each.path.rpartition("/")
                known = truth(timing)
                if leaf == "cpu_ms" and each.error is not None and known is not None:
                    half_width = t_critical(each.freedom, CONFIDENCE) * each.error
                    name = f"{subject.case.key}/{timing}"
                    trial.intervals[name] = (each.log_ratio - half_width, each.log_ratio + half_width)
                    trial.truths[name] = known
        path = self._place(kind, f"{number:04}")
        path.mkdir(parents=True)
        write_whole(path / "blocks.npz", _raw(measured))
        write_whole(path / "trial.json", encode_json(trial))

    def _place(self, kind: str, name: str) -> Path:
        (self.folder / kind).mkdir(parents=True, exist_ok=True)
        return self.folder / kind / name

    # -- the table ----------------------------------------------------------------------------

    def trials(self, kind: str) -> list[tuple[Path, Trial]]:
        found = []
        for path in sorted((self.folder / kind).glob("*/trial.json")):
            found.append((path.parent, msgspec.json.decode(path.read_bytes(), type=Trial)))
        return found

    def report(self) -> str:
        kinds = {kind: self.trials(kind) for kind in ("identical", "slowed_10", "slowed_5", "known")}
        if not any(kinds.values()):
            raise BenchmarkError(f"{self.folder} has no comparison yet: run the script without --report")
        return "\n\n".join(
            part for part in (_rules_table(kinds), _other_table(kinds), self._stored_table()) if part
        )

    def _stored_table(self) -> str:
        from memory.benchmarking.model.files import read_result, read_run
        from memory.benchmarking.verdicts.compare import compare_runs

        folders = sorted((self.folder / "run").glob("[0-9]*"))
        if len(folders) <= CALIBRATING:
            return ""
        results = [
            [read_result(folder / ref.file) for ref in read_run(folder).results]
            for folder in folders[:CALIBRATING]
        ]
        fingerprint = read_run(folders[0]).environment.fingerprint
        store_noise(self.folder, fingerprint, "stored", stored_calibration(results, "gate.py"))
        noise = load_noise(self.folder, fingerprint, "stored")
        judged = folders[CALIBRATING:]
        counts = {"compare after calibrate": [0, 0], "mean > 10 % of any timing": [0, 0]}
        undecided: list[float] = []
        for base, current in _apart(judged):
            comparison = compare_runs(base, current, noise=noise)
            metrics = [each for each in comparison.metrics if each.verdict is not None]
            undecided.append(len(comparison.of("inconclusive")) / max(len(metrics), 1))
            usual = any(
                each.path.endswith("mean_ms") and (each.ratio or 1) > 1.1 for each in comparison.metrics
            )
            for name, flagged in (
                ("compare after calibrate", bool(comparison.of("regressed"))),
                ("mean > 10 % of any timing", usual),
            ):
                counts[name][0] += flagged
                counts[name][1] += 1
        if not undecided:
            return ""
        lines = [
            f"Stored runs at least {APART_SECONDS / 60:.0f} minutes apart, of {len(judged)} runs after "
            f"{CALIBRATING} to calibrate with:",
            "",
            "| rule | suite comparisons with a false alarm |",
            "| --- | --- |",
            *(f"| {name} | {Share(*count)} |" for name, count in counts.items()),
            "",
            f"Inconclusive: {100 * np.mean(undecided):.0f} % of the metrics.",
        ]
        return "\n".join(lines)


def _raw(measured: dict[str, Measured]) -> bytes:
    """Return the blocks of all pairs, and the samples of the first two, which the common rules use."""
    import io

    with np.load(io.BytesIO(blocks_of(measured))) as blocks:
        arrays = dict(blocks)
    for key, each in measured.items():
        for pair in each.first[:2]:
            for side, found in (("base", pair.base), ("current", pair.current)):
                for path, samples in found.samples.items():
                    name = f"{key}/{found.number}/{side}/{path}/wall_ns"
                    arrays[name] = np.frombuffer(samples.wall_ns, "<i8")
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


def _apart(folders: Sequence[Path]) -> Iterator[tuple[Path, Path]]:
    from datetime import datetime

    from memory.benchmarking.model.files import read_run

    at = {folder: datetime.fromisoformat(read_run(folder).started_at).timestamp() for folder in folders}
    for base in folders:
        for current in folders:
            if at[current] - at[base] >= APART_SECONDS:
                yield base, current


Trials = dict[str, list[tuple[Path, Trial]]]


def _rules_table(kinds: Trials) -> str:
    columns = ("identical", "slowed_5", "slowed_10")
    lines = [
        "| rule | false alarm, a suite | a metric | +5 % found, a benchmark | a metric "
        "| +10 % found, a benchmark | a metric |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, rule in RULES.items():
        cells = []
        for kind in columns:
            flagged = [
                [rule(timing) for timing in timings_of(path / "blocks.npz", FIRST_PAIRS)]
                for path, trial in kinds[kind]
            ]
            cells += _cells(flagged)
        lines.append(f"| {name} | {' | '.join(cells)} |")
    cells = []
    for kind in columns:
        flagged = [
            [each.verdict == "regressed" for each in trial.verdicts if each.path.endswith("cpu_ms")]
            for _, trial in kinds[kind]
        ]
        cells += _cells(flagged)
    lines.append(f"| **membench ab** | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cells(flagged: list[list[bool]]) -> list[str]:
    """Return how many comparisons had a flagged metric, and the share of all metrics that were flagged."""
    every = [flag for flags in flagged for flag in flags]
    share = f"{100 * np.mean(every):.1f} %" if every else "–"
    return [str(Share(sum(any(flags) for flags in flagged), len(flagged))), share]


def _other_table(kinds: Trials) -> str:
    held = {}
    for kind, what in (("identical", "1 (identical code)"), ("known", "1 to 1.2 (known loops)")):
        inside = [
            low <= trial.truths[name] <= high
            for _, trial in kinds[kind]
            for name, (low, high) in trial.intervals.items()
        ]
        held[what] = Share(sum(inside), len(inside))
    seconds = {
        what: [trial.seconds / len(trial.benchmarks) for kind in of for _, trial in kinds[kind]]
        for what, of in (
            ("identical code", ("identical",)),
            ("extra work, which is measured again", ("slowed_5", "slowed_10")),
        )
    }
    wrong = [
        [each.verdict in ("regressed", "improved") for each in trial.verdicts]
        for _, trial in kinds["identical"]
    ]
    lines = [
        "| what | measured |",
        "| --- | --- |",
        *(f"| 95 % interval holds the true ratio {what} | {share} |" for what, share in held.items()),
        f"| identical code called regressed or improved, a suite | {_cells(wrong)[0]} |",
        *(
            f"| seconds a benchmark and comparison, {what} | {np.mean(spent):.1f} |"
            for what, spent in seconds.items()
            if spent
        ),
    ]
    for name in READS:
        for kind in ("slowed_5", "slowed_10"):
            mine = [trial for _, trial in kinds[kind] if trial.benchmarks == [name]]
            found = sum(any(each.verdict == "regressed" for each in trial.verdicts) for trial in mine)
            if mine:
                lines.append(f"| +{kind.partition('_')[2]} % in {name} found | {Share(found, len(mine))} |")
    return "\n".join(lines)


@contextmanager
def load_one_core() -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=60.0, help="how long to measure (default 60)")
    parser.add_argument(
        "--folder", type=Path, default=Path("gate_results"), help="where raw blocks are kept"
    )
    parser.add_argument("--report", action="store_true", help="print the tables and measure nothing")
    arguments = parser.parse_args()
    gate = Gate(arguments.folder)
    try:
        if not arguments.report:
            gate.measure(arguments.minutes)
        print(f"\n{gate.report()}")
    except BenchmarkError as problem:
        print(f"gate.py: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("gate.py: stopped; call it again to resume", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
