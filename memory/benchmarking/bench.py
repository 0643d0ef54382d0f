"""What a benchmark works with: timing, a fresh target, a seed, scratch folders, and `not_available`.

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
    """A figure with its own 95 % interval, over questions or other units inside one round."""

    value: float
    low: float | None = None
    high: float | None = None


class Sentence(str):
    """A text with figures of the same group: `{growth_exponent}` in the pattern stands for that leaf.

    The text itself has this round's figures; a stored result puts in those of all rounds.
    """

    pattern: str

    def __new__(cls, pattern: str, **figures: str) -> Sentence:
        sentence = super().__new__(cls, pattern.format(**figures))
        sentence.pattern = pattern
        return sentence


def not_available(reason: str) -> NotAvailable:
    """Return this in place of a figure that the target can't give; it is shown as `n/a` with the reason."""
    return NotAvailable(reason)


class Bench:
    """The environment of one round. `Bench()` is enough to call a benchmark by hand.

    Args:
        target: name of the target under test, as `--target` takes it.
        seed: for the data and the order of calls; each round has another.
        seconds: about how long one timing measures, unless the benchmark fixes the number of calls.
        scratch: folder for stores and files; the system's folder for temporary files by default.
        on_timing: called with the label and the timing after each `time`, for progress.
        turn_control: takes turns with another process, in lockstep.
    """

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
        """Open an empty target in a folder of its own; both are gone afterwards.

        Args:
            sample: items for the target to learn from first (see `Target.settle`).
            settings: limits, ages and clock, for targets with transitions.
        """
        with self.target_folder(sample) as folder, self.open_target(folder, settings) as target:
            if sample and not target.capabilities.persistence:
                target.settle(sample)
            yield target

    @contextmanager
    def target_folder(self, sample: Sequence[Item] = ()) -> Iterator[Path]:
        """Make a folder for the target, gone afterwards; with a sample, it holds a settled, empty store."""
        with self.folder() as folder:
            if sample and self.capabilities.persistence:
                shutil.copytree(self._settled_on(sample), folder, dirs_exist_ok=True)
            yield folder

    def _settled_on(self, sample: Sequence[Item]) -> Path:
        """Return the folder of a settled store; callers copy it, because settling takes seconds."""
        for settled, folder in self._settled:
            if settled is sample:
                return folder
        folder = Path(tempfile.mkdtemp(prefix="membench-settled-", dir=self._scratch))
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        with self.open_target(folder) as target:
            target.settle(sample)
        self._settled.append((sample, folder))
        return folder

    @contextmanager
    def open_target(self, folder: Path, settings: Settings | None = None) -> Iterator[Target]:
        """Open the target in this folder; close it afterwards and keep its files."""
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
        """Make an empty folder that is gone afterwards."""
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
        """Time an operation. A benchmark measures all its times by this. See docs/measuring.md.

        Args:
            operation: called without arguments, or with the next of `items`.
            items: passed one at a time, in order, again from the start after the last one.
            calls: how often to call, rounded up to whole samples; by default as often as fits in
                `seconds`, and at least once for every item.
            work: how many items one call handles, for the throughput.
            warm_up: calls before measuring, about a tenth of the measuring by default. They use the first
                items too. For an operation that can't see an item twice, pass 0: then each call is a
                sample, and without `calls` each item is used exactly once.
            before_block: called before each block of calls, not timed.
            label: what the progress line shows.
        """
        timing = time_calls(
            operation,
            items,
            calls=calls,
            seconds=self.seconds,
            work=work,
            warm_up=warm_up,
            before_block=before_block,
            # Only one thread of a side can take turns with the other side.
            turn_control=self._turn_control
            if threading.current_thread() is threading.main_thread()
            else None,
        )
        if self._on_timing is not None:
            self._on_timing(label, timing)
        return timing
