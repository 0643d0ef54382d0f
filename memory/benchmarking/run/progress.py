"""Shows the progress of a run: a live display on a terminal, plain lines anywhere else.

Everything goes to standard error: standard output is for results.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TextIO

from memory.benchmarking.model.environment import available_cores
from memory.benchmarking.model.records import Case, Job, Run
from memory.benchmarking.run.execution import Listener
from memory.benchmarking.run.previous_runs import Estimator
from memory.benchmarking.text.display import clean, figure_text, shorten

if TYPE_CHECKING:
    from rich.console import RenderableType

    from memory.benchmarking.run.executors.base import Outcome

STOPPING = "stopping after the rounds in progress; press Ctrl-C again to stop at once"


def make_progress(estimator: Estimator, stream: TextIO | None = None) -> Listener:
    """Return the display that suits the stream; standard error by default."""
    stream = stream or sys.stderr
    plain = not stream.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return PlainProgress(estimator, stream) if plain else LiveProgress(estimator, stream)


class _Progress(Listener):
    """Counts rounds and estimates the remaining time, for both displays."""

    def __init__(self, estimator: Estimator) -> None:
        self._estimator = estimator
        self._seconds: dict[str, list[float]] = {}
        self._left: dict[str, int] = {}
        self._cases: dict[str, Case] = {}
        self.done = self.total = 0
        self.workers = 1
        self._rounds: dict[str, int] = {}
        self._start = time.perf_counter()

    def began(self, run: Run, done: int, total: int) -> None:
        self.done, self.total, self.workers = done, total, run.parallel
        self._start = time.perf_counter()
        for case in run.cases:
            self._cases[case.key] = case
            # An estimate for a resumed run: about the same share of rounds is left for every case.
            self._left[case.key] = round(run.rounds_of(case) * (total - done) / max(total, 1))
            self._rounds[case.key] = run.rounds_of(case)

    def ended(self, outcome: Outcome) -> None:
        key = outcome.job.case.key
        self.done += 1
        self._left[key] -= 1
        self._seconds.setdefault(key, []).append(outcome.seconds)

    @property
    def elapsed(self) -> float:
        return time.perf_counter() - self._start

    @property
    def remaining(self) -> float | None:
        """Estimated seconds; None as long as there is no estimate for some case."""
        total = 0.0
        for key, left in self._left.items():
            if left <= 0:
                continue
            measured = self._seconds.get(key)
            if measured:  # these times include the load of the other workers
                total += left * sum(measured) / len(measured) / self.workers
                continue
            alone = self._estimator.seconds(self._cases[key])
            if alone is None:
                return None
            total += left * alone / min(self.workers, available_cores())
        return total

    def describe(self, job: Job) -> str:
        """Return the benchmark and the round, with the target if there are several."""
        several = len({case.target for case in self._cases.values()}) > 1
        target = f" on {job.case.target}" if several else ""
        return f"{job.case.name}{target}, round {job.number + 1} of {self._rounds[job.case.key]}"


def clock_text(seconds: float | None) -> str:
    """Return hours, minutes and seconds as text, such as `1:05`; `?` for None."""
    if seconds is None:
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class PlainProgress(_Progress):
    """Prints one line a round; needs no terminal."""

    def __init__(self, estimator: Estimator, stream: TextIO) -> None:
        super().__init__(estimator)
        self._stream = stream

    def began(self, run: Run, done: int, total: int) -> None:
        super().began(run, done, total)
        already = f", {done} of them done already" if done else ""
        rounds = "1 round" if total == 1 else f"{total} rounds"
        self._print(f"run {run.id}: {rounds}{already}, about {clock_text(self.remaining)}")

    def ended(self, outcome: Outcome) -> None:
        super().ended(outcome)
        failure = "" if outcome.round else f"  FAILED: {outcome.message}"
        self._print(
            f"[{self.done}/{self.total}] {self.describe(outcome.job)}: {outcome.seconds:.1f} s{failure}"
            f"  (elapsed {clock_text(self.elapsed)}, left {clock_text(self.remaining)})"
        )

    def noted(self, text: str) -> None:
        self._print(text)

    def stopping(self) -> None:
        self._print(STOPPING)

    def _print(self, text: str) -> None:
        print(clean(text), file=self._stream, flush=True)


class LiveProgress(_Progress):
    """Draws a bar, and one line with the latest figure for each round in progress."""

    def __init__(self, estimator: Estimator, stream: TextIO) -> None:
        super().__init__(estimator)
        from rich.console import Console
        from rich.live import Live

        self._figures: dict[str, tuple[Job, str]] = {}
        self._stopping = False
        self._console = Console(file=stream, highlight=False, markup=False)
        # Only twice a second: drawing takes CPU time away from the benchmarks.
        self._live = Live(
            get_renderable=self._draw, console=self._console, refresh_per_second=2, transient=True
        )

    def began(self, run: Run, done: int, total: int) -> None:
        super().began(run, done, total)
        self._live.start()

    def started(self, job: Job) -> None:
        self._figures[f"{job.case.key}.{job.number}"] = (job, "starting")

    def progressed(self, job: Job, event: Mapping[str, Any]) -> None:
        key = f"{job.case.key}.{job.number}"
        if event["event"] == "loaded":
            self._figures[key] = (job, "running")
        elif event["event"] == "timing":
            # The figure comes first, because long lines are cut at their end.
            figure = figure_text(event["p50_ms"], "ms")
            self._figures[key] = (job, f"{figure}  {event['label']}")

    def ended(self, outcome: Outcome) -> None:
        super().ended(outcome)
        self._figures.pop(f"{outcome.job.case.key}.{outcome.job.number}", None)
        if outcome.round is None:
            self._console.print(clean(f"✗ {self.describe(outcome.job)}: {outcome.message}"), style="red")

    def noted(self, text: str) -> None:
        self._console.print(clean(text), style="yellow")

    def stopping(self) -> None:
        self._stopping = True

    def close(self) -> None:
        self._live.stop()

    def _draw(self) -> RenderableType:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        width = self._console.width
        head = Table.grid(padding=(0, 2))
        head.add_row(
            ProgressBar(total=max(self.total, 1), completed=self.done, width=min(30, width // 3)),
            Text(f"{self.done}/{self.total} rounds"),
            Text(f"{clock_text(self.elapsed)} elapsed"),
            Text(f"{clock_text(self.remaining)} left", style="dim"),
        )
        lines: list[RenderableType] = [head]
        for job, figure in list(self._figures.values()):
            line = Text(shorten(clean(f"  {self.describe(job)}"), width))
            line.append(shorten(clean(f"  {figure}"), max(8, width - line.cell_len)), style="dim")
            lines.append(line)
        if self._stopping:
            lines.append(Text(STOPPING, style="yellow"))
        return Group(*lines)
