"""What a benchmark gets: the clock, a fresh target, a seed, scratch space, and a way to say `n/a`.

def benchmark_hello(bench: Bench | None = None, **kwargs: Any) -> dict[str, Any]:
    bench = bench or Bench()
    return {"hello": bench.time(lambda: "hello".upper())}
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memory.benchmarking.measure.timing import Timing, time_calls
from memory.benchmarking.model.paths import NotAvailable
from memory.benchmarking.targets import DEFAULT, load_target

if TYPE_CHECKING:
    from memory.benchmarking.measure.turn_control import TurnControl
    from memory.benchmarking.targets.base import Capabilities, Item, Settings, Target


@dataclass(frozen=True)
class Score:
    """A figure that knows its own interval: over questions, or other units inside one round."""

    value: float
    low: float | None = None
    high: float | None = None


class Sentence(str):
    """Words about figures beside it: `{growth_exponent}` in them stands for that leaf.

    Called by hand, a benchmark tells its own round's figure; a result tells that of all rounds.
    """

    pattern: str

    def __new__(cls, pattern: str, **figures: str) -> Sentence:
        made = super().__new__(cls, pattern.format(**figures))
        made.pattern = pattern
        return made


def not_available(reason: str) -> NotAvailable:
    """What to return in place of a figure that this target can't give."""
    return NotAvailable(reason)


class Bench:
    """One round's surroundings. Without arguments it serves a benchmark that is called by hand."""

    def __init__(
        self,
        *,
        target: str = DEFAULT,
        seed: int = 0,
        seconds: float = 0.2,
        scratch: Path | None = None,
        on_timing: Callable[[str, Timing], object] | None = None,
        turn_control: TurnControl | None = None,
    ) -> None:
        self.target_name = target
        self.seed = seed
        self.seconds = seconds
        """About how long one timing measures, unless the benchmark says how many calls."""
        self._scratch = scratch
        self._on_timing = on_timing
        self._turn_control = turn_control
        self._settled: list[tuple[Sequence[Item], Path]] = []

    @property
    def capabilities(self) -> Capabilities:
        """What the target under test can do."""
        return load_target(self.target_name).capabilities

    @contextmanager
    def target(self, sample: Sequence[Item] = (), settings: Settings | None = None) -> Iterator[Target]:
        """The target, opened in a folder of its own that is gone afterwards.

        It is empty, and settled on the sample: what it learns from these is in place (see
        `Target.settle`).
        """
        with self.target_folder(sample) as folder, self.open_target(folder, settings) as target:
            if sample and not target.capabilities.persistence:
                target.settle(sample)
            yield target

    @contextmanager
    def target_folder(self, sample: Sequence[Item] = ()) -> Iterator[Path]:
        """A folder for the target that is gone afterwards; holds a settled, empty store for a sample."""
        with self.folder() as folder:
            if sample and self.capabilities.persistence:
                shutil.copytree(self._settled_on(sample), folder, dirs_exist_ok=True)
            yield folder

    def _settled_on(self, sample: Sequence[Item]) -> Path:
        """A settled store. Settling takes seconds, so it is done once a round and sample, and copied."""
        for known, folder in self._settled:
            if known is sample:
                return folder
        folder = Path(tempfile.mkdtemp(prefix="membench-settled-", dir=self._scratch))
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        with self.open_target(folder) as target:
            target.settle(sample)
        self._settled.append((sample, folder))
        return folder

    @contextmanager
    def open_target(self, folder: Path, settings: Settings | None = None) -> Iterator[Target]:
        """The target, opened in this folder; closed afterwards, its files kept."""
        target = load_target(self.target_name)()
        if settings is None:
            target.open(folder)
        else:
            target.open(folder, settings)
        try:
            yield target
        finally:
            target.close()

    @contextmanager
    def folder(self) -> Iterator[Path]:
        """An empty folder that is gone afterwards."""
        folder = Path(tempfile.mkdtemp(prefix="membench-", dir=self._scratch))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def time(
        self,
        operation: Callable[..., object],
        items: Sequence[Any] | None = None,
        *,
        calls: int | None = None,
        work: int = 1,
        warm_up: int | None = None,
        before_block: Callable[[], object] | None = None,
        label: str = "",
    ) -> Timing:
        """Time an operation; the only clock a benchmark uses. See `measure/timing.py`.

        `items` are handed to it one by one, `calls` fixes how often it is called, `work` is how many
        things one call does, `label` is what the progress line shows.
        """
        timing = time_calls(
            operation,
            items,
            calls=calls,
            seconds=self.seconds,
            work=work,
            warm_up=warm_up,
            before_block=before_block,
            # Turns are one side's with the other: threads of one side can't share them.
            turn_control=self._turn_control
            if threading.current_thread() is threading.main_thread()
            else None,
        )
        if self._on_timing is not None:
            self._on_timing(label, timing)
        return timing
