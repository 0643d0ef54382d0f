"""Executes a run: gives jobs to the executor, and writes outcomes to the run's folder.

Every finished round is on disk before the next one begins. A run that ends early, for whatever reason,
loses only the rounds in progress, and can be resumed.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shlex
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

from memory.benchmarking.config import BenchmarkConfig
from memory.benchmarking.errors import BenchmarkError, DamagedResult, InvalidBenchmarkConfig, ResultNotSaved
from memory.benchmarking.model.aggregate import make_result, params_digest
from memory.benchmarking.model.answers import ANSWERS, answers_path, write_answers
from memory.benchmarking.model.benchmark import declaration_of_case, presentation_of_case
from memory.benchmarking.model.environment import MEMBENCH, describe
from memory.benchmarking.model.files import (
    LOCK_FILE,
    LOGS,
    ROUNDS,
    SCRATCH,
    delete_if_empty,
    encode_json,
    new_run_folder,
    read_run,
    samples_path,
    write_run,
    write_samples,
    write_whole,
)
from memory.benchmarking.model.records import (
    Case,
    Environment,
    Failure,
    Job,
    MachineState,
    ResultRef,
    Round,
    Run,
)
from memory.benchmarking.model.regular_files import open_regular, read_regular
from memory.benchmarking.model.rounds_file import rounds_path, write_rounds
from memory.benchmarking.run.checking import lost_writes
from memory.benchmarking.run.executors.base import LOCAL, Callbacks, Executor, Limits, Outcome
from memory.benchmarking.run.executors.local import (
    LARGEST_ROUND,
    LocalExecutor,
    default_memory_limit,
    launch_of,
)
from memory.benchmarking.run.origins import source_paths, target_info
from memory.benchmarking.run.plan import order_of_rounds, round_seed
from memory.benchmarking.targets.embedders import embedder_label
from memory.benchmarking.targets.interpreters import environments_in_use


class Listener:
    """Callbacks of a run's progress. The methods here do nothing; override those you need."""

    def began(self, run: Run, done: int, total: int) -> None:
        """The run begins; `done` of its `total` rounds exist already if it is resumed."""

    def started(self, job: Job) -> None:
        """A round has started."""

    def progressed(self, job: Job, event: Mapping[str, Any]) -> None:
        """A worker sent an event: `loaded`, or `timing` with a label and a figure."""

    def ended(self, outcome: Outcome) -> None:
        """A round has ended."""

    def noted(self, text: str) -> None:
        """Something happened that the user should know, such as the loss of a node."""

    def stopping(self) -> None:
        """The user asked to stop: no new round starts."""

    def close(self) -> None:
        """No callbacks follow."""


def new_run(
    config: BenchmarkConfig,
    cases: Sequence[Case],
    *,
    workers: int = 1,
    command: str | None = None,
    executor: str = LOCAL,
    generators: int = 0,
    suite: str = "",
) -> tuple[Path, Run]:
    """Create the folder and the record of a run that has not started.

    Args:
        config: the settings
        cases: what to run
        workers: how many rounds run at the same time
        command: repeats the run; by default it is the command line of this process
        executor: `local`, `ray`, or `ray=ADDRESS`
        generators: how many load generators on other hosts a round gets
        suite: see `Run.suite`
    """
    output_dir = Path(config.output_dir)
    folder = new_run_folder(output_dir)
    run = Run(
        id=folder.name,
        status="interrupted",
        started_at=now_text(),
        profile=config.profile,
        seed=config.seed,
        rounds=config.rounds,
        seconds=config.seconds,
        parallel=workers,
        targets=list(config.targets),
        cases=list(cases),
        environment=describe(
            output_dir, source_paths(cases, config.targets), embedder_label(config.embedder)
        ),
        config=config.to_dict(),
        command=command or shlex.join(sys.orig_argv),
        folder=str(Path.cwd()),
        target_info={name: target_info(name) for name in config.targets},
        executor=executor,
        generators=generators,
        suite=suite,
    )
    write_run(folder, run)
    return folder, run


def resumable_run(folder: Path) -> Run:
    """Return a run to resume; raise an error if machine, versions or code have changed since."""
    run = read_run(folder)
    if run.status == "complete":
        raise InvalidBenchmarkConfig(f"run {run.id} is complete: there is nothing to resume")
    embedder = embedder_label(str(run.config.get("embedder") or ""))
    now = describe(folder.parent, source_paths(run.cases, run.targets), embedder)
    # The machines of a cluster are compared when it is reached.
    if run.executor == LOCAL and now.fingerprint != run.environment.fingerprint:
        raise InvalidBenchmarkConfig(
            f"run {run.id} was started on another machine or with other versions: start a new run"
        )
    for name, before, revision in _revisions(run, now):
        if before != revision:
            raise InvalidBenchmarkConfig(
                f"run {run.id} was started with revision {before or 'unknown'} of {name}, "
                f"this is {revision or 'unknown'}: start a new run"
            )
    for name, info in run.target_info.items():
        if target_info(name).digest != info.digest:
            raise InvalidBenchmarkConfig(
                f"the target {info.name} has changed since run {run.id} was started: start a new run"
            )
    return run


def _revisions(run: Run, now: Environment) -> Iterator[tuple[str, str, str]]:
    """Yield the name of each source with its revision when the run was started, and now."""
    sources = run.environment.sources
    if not sources:  # before version 0.3 the revision was that of membench
        yield MEMBENCH, run.environment.git_revision, now.sources[MEMBENCH].revision
    for name, source in sources.items():
        if name in now.sources and now.sources[name].path == source.path:
            yield name, source.revision, now.sources[name].revision


class Execution:
    """One run in progress."""

    def __init__(
        self,
        folder: Path,
        run: Run,
        listener: Listener | None = None,
        more: Callable[[Path, Run], Sequence[Case]] | None = None,
    ) -> None:
        """Prepare to execute a run.

        Args:
            folder: the run's folder
            run: its record
            listener: called as the run progresses
            more: called after all rounds; returns the cases that need as many rounds again
        """
        self.folder = folder
        self.run = run
        self.interrupted = False
        self._listener = listener or Listener()
        self._more = more
        self._rounds: dict[str, dict[int, Round]] = {case.key: {} for case in run.cases}
        self._attempted: dict[str, int] = dict.fromkeys(self._rounds, 0)
        self._lost: dict[str, str] = {}
        """By target: what it loses although it declares to keep it. Its rounds fail."""
        self._saved: dict[str, int] = {}
        """How many rounds are in each result that this process has written."""

    def execute(self) -> Run:
        """Run the missing rounds, and save everything."""
        start = time.perf_counter()
        with _exclusive_lock(self.folder):
            self._refuse_links()
            shutil.rmtree(self._scratch, ignore_errors=True)
            _delete_abandoned(self._scratch.parent)
            self._load_finished_rounds()
            jobs = list(self._jobs())
            total = sum(map(self.run.rounds_of, self.run.cases))
            self.run.status = "running"
            write_run(self.folder, self.run)
            self._listener.began(self.run, total - len(jobs), total)
            try:
                infos = self.run.target_info
                measured = dict.fromkeys(job.case.target for job in jobs)
                self._lost = lost_writes({name: infos[name] for name in measured if name in infos})
                with self._executor() as executor, self._signals(executor):
                    self._note_machines(executor)
                    while jobs:
                        for outcome in self._outcomes(executor, jobs):
                            self._save_outcome(outcome)
                        jobs = self._more_jobs()
            finally:
                self._conclude(time.perf_counter() - start)
        return self.run

    def _outcomes(self, executor: Executor, jobs: Sequence[Job]) -> Iterator[Outcome]:
        """Yield the outcomes of jobs. Those of targets that lose writes fail without being run."""
        for job in jobs:
            if problem := self._lost.get(job.case.target):
                self._listener.started(job)
                yield Outcome(job=job, round=None, reason="exception", message=problem)
        left = [job for job in jobs if job.case.target not in self._lost]
        if left:
            yield from executor.run(left)

    @contextmanager
    def _executor(self) -> Iterator[Executor]:
        """Start what runs the rounds; everything of it is ended afterwards."""
        run = self.run
        limit = run.config.get("memory_limit_mb")
        limits = Limits(
            float(run.config.get("timeout_seconds") or 600.0),
            None if limit is None else int(limit) * 1_000_000,
        )
        callbacks = Callbacks(self._listener.started, self._listener.progressed, self._listener.noted)
        if run.executor == LOCAL:
            launches = {name: launch_of(name) for name in run.targets}
            with environments_in_use(run.targets):
                yield LocalExecutor(
                    workers=run.parallel,
                    timeout_seconds=limits.timeout_seconds,
                    memory_limit_bytes=limits.memory_bytes or default_memory_limit(),
                    on_start=callbacks.on_start,
                    on_event=callbacks.on_event,
                    launch=lambda job: launches[job.case.target],
                )
            return
        from memory.benchmarking.run.executors.ray_cluster import RayExecutor

        begun = any(self._rounds.values())
        with RayExecutor(
            run.executor.partition("=")[2],
            run.cases,
            str(run.config.get("embedder") or ""),
            limits,
            callbacks,
            run.generators,
            run.environment.fingerprint if begun else "",
        ) as executor:
            yield executor

    def _note_machines(self, executor: Executor) -> None:
        """Record the machines of a cluster as the run's environment; the code is that of this machine."""
        nodes, here = executor.environment, self.run.environment
        if nodes is not None:
            self.run.environment = msgspec.structs.replace(
                nodes, git_revision=here.git_revision, git_dirty=here.git_dirty, sources=here.sources
            )
            write_run(self.folder, self.run)

    @property
    def _scratch(self) -> Path:
        return (self.folder.parent / SCRATCH / self.folder.name).resolve()

    def _refuse_links(self) -> None:
        """Raise ResultNotSaved if a folder that this run writes to or deletes is a symbolic link.

        The folder may come from elsewhere, and what such a link leads to must not be changed.
        """
        names = {ROUNDS, LOGS, *(case.category for case in self.run.cases)}
        for path in (self.folder.parent / SCRATCH, *(self.folder / name for name in sorted(names))):
            if path.is_symlink():
                raise ResultNotSaved(f"{path} is a symbolic link: delete it")

    # -- jobs ---------------------------------------------------------------------------------

    def _load_finished_rounds(self) -> None:
        """Load the rounds that a previous attempt finished; failed rounds run again."""
        for path in sorted((self.folder / ROUNDS).glob("*.msgpack")):
            key, _, number = path.stem.rpartition(".")
            try:
                finished = msgspec.msgpack.decode(read_regular(path, LARGEST_ROUND), type=Round)
            except (OSError, msgspec.MsgspecError, RecursionError) as problem:
                reason = getattr(problem, "strerror", None) or problem
                raise DamagedResult(f"{path} is damaged: {reason}; delete it and resume again") from None
            if key in self._rounds:
                self._rounds[key][int(number)] = finished
        for key, rounds in self._rounds.items():
            self._attempted[key] = len(rounds)
        self.run.failures = []

    def _jobs(self) -> Iterator[Job]:
        most = max(map(self.run.rounds_of, self.run.cases), default=0)
        for case, number in order_of_rounds(self.run.cases, most, self.run.seed):
            if number < self.run.rounds_of(case) and number not in self._rounds[case.key]:
                yield Job(
                    case=case,
                    number=number,
                    seed=round_seed(self.run.seed, self.run.data_of_round(case, number)),
                    seconds=self.run.seconds,
                    scratch=str(self._scratch / f"{case.key}.{number}"),
                    answer=str((self.folder / ROUNDS / f"{case.key}.{number}.msgpack").resolve()),
                    embedder=str(self.run.config.get("embedder") or ""),
                )

    def _more_jobs(self) -> list[Job]:
        """Return the jobs of the rounds that are added because a comparison is undecided."""
        if self._more is None or self.interrupted or self.run.failures:
            return []
        cases = self._more(self.folder, self.run)
        if not cases:
            return []
        for case in cases:
            extra = self.run.extra_rounds.get(case.key, 0) + self.run.rounds_of(case)
            self.run.extra_rounds[case.key] = extra
        self.run.looks += 1
        write_run(self.folder, self.run)
        jobs = list(self._jobs())
        total = sum(map(self.run.rounds_of, self.run.cases))
        self._listener.began(self.run, total - len(jobs), total)
        return jobs

    # -- outcomes -----------------------------------------------------------------------------

    def _save_outcome(self, outcome: Outcome) -> None:
        """Save one outcome."""
        case = outcome.job.case
        if self.interrupted and outcome.reason == "killed":
            return  # the user stopped it: it did not fail, and can be resumed
        self._attempted[case.key] += 1
        self._listener.ended(outcome)
        spent = {
            "start": outcome.start_seconds,
            "load": outcome.round.load_seconds if outcome.round else 0.0,
            "benchmark": outcome.round.seconds if outcome.round else 0.0,
        }
        spent["save and end"] = max(0.0, outcome.seconds - sum(spent.values()))
        if outcome.round is None:
            spent = {"failed rounds": outcome.seconds}
            self._save_failure(outcome)
        else:
            self._rounds[case.key][outcome.job.number] = outcome.round
            self.run.moments.append(_machine_state(outcome, outcome.round))
        for name, seconds in spent.items():
            self.run.timings[name] = self.run.timings.get(name, 0.0) + seconds
        if self._attempted[case.key] >= self.run.rounds_of(case):
            self._save_case(case)
        write_run(self.folder, self.run)

    def _save_failure(self, outcome: Outcome) -> None:
        log = None
        if outcome.log.strip():
            log = f"{LOGS}/{outcome.job.case.key}.{outcome.job.number}.log"
            write_whole(self.folder / log, outcome.log.encode())
        self.run.failures.append(
            Failure(
                case=outcome.job.case.key,
                round=outcome.job.number,
                reason=outcome.reason or "crash",
                message=outcome.message,
                log=log,
            )
        )

    def _save_case(self, case: Case) -> None:
        rounds = list(self._rounds[case.key].values())
        if not rounds:
            return
        timestamp = self.run.id[:15]
        name = f"{case.benchmark}_{timestamp}"
        if len(self.run.targets) > 1:
            name += f"_{case.key.partition('@')[2]}"
        path = self.folder / case.category / f"{name}.json"
        failures = [failure for failure in self.run.failures if failure.case == case.key]
        metadata: dict[str, Any] = {
            "profile": self.run.profile,
            "run_id": self.run.id,
            "parallel": self.run.parallel > 1,
            "failures": [f"round {failure.round}: {failure.message}" for failure in failures],
        }
        if any(one.answers for one in rounds):
            metadata[ANSWERS] = answers_path(path).name
            write_answers(answers_path(path), rounds)
        presentation = msgspec.to_builtins(presentation_of_case(case))
        if presentation:
            metadata["presentation"] = presentation
        declaration = declaration_of_case(case)
        for kind in ("write_figures", "search_figures", "vector_figures"):
            if patterns := getattr(declaration, kind):
                metadata[kind] = patterns
        info = self.run.target_info.get(case.target)
        if info is not None:
            metadata["target_info"] = msgspec.to_builtins(info)
        result = make_result(case, rounds, declaration, timestamp, metadata)
        write_samples(samples_path(path), rounds)
        write_rounds(rounds_path(path), rounds, declaration)
        write_whole(path, encode_json(result))
        ref = ResultRef(
            category=case.category,
            benchmark=case.benchmark,
            target=case.target,
            params_digest=params_digest(case),
            file=f"{case.category}/{path.name}",
            rounds=len(rounds),
            headline=result.metadata["headline"],
            seconds=sum(one.seconds for one in rounds) / len(rounds),
            fingerprint=result_fingerprint(self.run, case),
        )
        others = [other for other in self.run.results if other.file != ref.file]
        plan = [(one.category, one.benchmark, one.target) for one in self.run.cases]
        self.run.results = sorted(
            [*others, ref], key=lambda one: plan.index((one.category, one.benchmark, one.target))
        )
        self._saved[case.key] = len(rounds)

    def _conclude(self, seconds: float) -> None:
        """Save everything that was measured, however the run ended."""
        try:
            self._save_all(seconds)
        finally:
            shutil.rmtree(self._scratch, ignore_errors=True)
            delete_if_empty(self._scratch.parent)

    def _save_all(self, seconds: float) -> None:
        for case in self.run.cases:
            # This includes cases that a previous attempt finished, but was killed before it saved them.
            if self._saved.get(case.key, 0) < len(self._rounds[case.key]):
                self._save_case(case)
        planned = {case.key: self.run.rounds_of(case) for case in self.run.cases}
        missing = any(len(rounds) < planned[key] for key, rounds in self._rounds.items())
        attempted = all(count >= planned[key] for key, count in self._attempted.items())
        self.run.status = "complete" if not missing else "failed" if attempted else "interrupted"
        self.run.finished_at = now_text()
        timings = self.run.timings
        timings["all"] = timings.get("all", 0.0) + seconds
        write_run(self.folder, self.run)
        if self.run.status == "complete":
            shutil.rmtree(self.folder / ROUNDS, ignore_errors=True)

    @contextmanager
    def _signals(self, executor: Executor) -> Iterator[None]:
        """Handle Ctrl-C: once lets the rounds in progress finish; twice, or SIGTERM, stops at once."""

        def handle(number: int, frame: FrameType | None) -> None:
            if number == signal.SIGTERM or self.interrupted:
                self.interrupted = True
                executor.abort()
            else:
                self.interrupted = True
                executor.finish()
                self._listener.stopping()

        if threading.current_thread() is not threading.main_thread():
            yield  # only the main thread can handle signals
            return
        before: dict[int, Callable[[int, FrameType | None], Any] | int | None] = {
            number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def result_fingerprint(run: Run, case: Case) -> str:
    """Return a digest of the machine and of the version of this case's target."""
    info = run.target_info.get(case.target)
    known = f"{run.environment.fingerprint} {info.digest if info else ''}"
    return hashlib.sha256(known.encode()).hexdigest()[:12]


def _machine_state(outcome: Outcome, record: Round) -> MachineState:
    return MachineState(
        case=outcome.job.case.key,
        round=outcome.job.number,
        started_at=record.started_at,
        seconds=round(outcome.seconds, 3),
        busy_percent=outcome.busy_percent,
        wall_to_cpu=record.wall_to_cpu,
        host=outcome.host,
        fingerprint=outcome.fingerprint,
    )


def now_text() -> str:
    """Return the time now, as `run.json` has it."""
    return datetime.now().astimezone().isoformat(timespec="seconds")


@contextmanager
def _exclusive_lock(folder: Path) -> Iterator[None]:
    """Hold a run's lock, so that one process executes it; FileNotFoundError if there is no such folder."""
    path = folder / LOCK_FILE
    try:
        # Closed below. It is not truncated, and no link is followed: the folder may come from elsewhere.
        lock = open(open_regular(path, os.O_RDWR | os.O_CREAT), "r+b")  # noqa: SIM115
    except FileNotFoundError:
        raise
    except OSError as problem:
        raise ResultNotSaved(f"{path} can't be written: {problem.strerror or problem}") from problem
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_ours = path.exists() and os.path.samestat(os.fstat(lock.fileno()), path.stat())
        except OSError:
            is_ours = False
        if not is_ours:  # another process holds the lock, or has just deleted the file that we locked
            raise BenchmarkError(f"run {folder.name} is in progress in another process")
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def _delete_abandoned(scratch: Path) -> None:
    """Delete the scratch folders of runs that were killed."""
    if not scratch.is_dir():
        return
    for folder in scratch.iterdir():
        try:
            with _exclusive_lock(scratch.parent / folder.name):
                shutil.rmtree(folder, ignore_errors=True)
        except BenchmarkError:
            continue  # that run is in progress
        except FileNotFoundError:
            shutil.rmtree(folder, ignore_errors=True)  # its run was deleted
