"""What a benchmark works with: timing, a fresh target, a seed, scratch folders, and `not_available`.

def benchmark_hello(bench: Bench | None = None, **kwargs: Any) -> dict[str, Any]:
    bench = bench or Bench()
    return {"hello": bench.time(lambda: "hello".upper())}
"""

from __future__ import annotations

import random
import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memory.benchmarking.errors import LostWrites, NotSupported
from memory.benchmarking.measure.timing import Timing, time_calls
from memory.benchmarking.model.paths import NotAvailable
from memory.benchmarking.targets import DEFAULT, load_target, make_target

if TYPE_CHECKING:
    from memory.benchmarking.measure.turn_control import TurnControl
    from memory.benchmarking.model.records import AnsweredQuestion
    from memory.benchmarking.targets.base import Capabilities, Item, Settings, Target
    from memory.embedding import ContentEmbedder


_READ_BACK = 200
"""The most memories that are read back to check one store."""
_HITS_READ_BACK = 10
"""Where a system can't read by id, a memory has to be among so many hits of a search for its content."""
_BATCH = 1000
"""How many memories `Bench.store` passes to the target at a time."""


@dataclass(frozen=True)
class Score:
    """A figure with its own 95 % interval, over questions or other units inside one round."""

    value: float
    low: float | None = None
    high: float | None = None


class Sentence(str):
    """A text with figures of the same group: `{growth_exponent}` in the pattern stands for that leaf.

    The text itself has this round's figures; in a stored result, the figures of all rounds replace them.
    """

    pattern: str

    def __new__(cls, pattern: str, **figures: str) -> Sentence:
        sentence = super().__new__(cls, pattern.format(**figures))
        sentence.pattern = pattern
        return sentence


def not_available(reason: str) -> NotAvailable:
    """Return this in place of a figure that the target can't give; it is shown as `n/a` with the reason."""
    return NotAvailable(reason)


class Acknowledged:
    """A random sample of the memories that a target acknowledged, to be read back later.

    Args:
        seed: for the choice of the sample.
        most: the size of the sample; smaller sets are read back as a whole.
    """

    def __init__(self, seed: int = 0, most: int = _READ_BACK) -> None:
        self.count = 0
        self.sample: list[tuple[str, str, Any]] = []
        """Agent, id and content."""
        self._most = most
        self._rng = random.Random(f"read back {seed}")

    def take(self, target: Target, ids: Sequence[str], items: Sequence[Item]) -> None:
        """Add memories to the sample; every memory has the same chance (Vitter's algorithm R)."""
        if len(ids) != len(items):
            raise LostWrites(f"{target.name} returned {len(ids):,} ids for {len(items):,} memories")
        for id_, item in zip(ids, items, strict=True):
            self.count += 1
            memory = (item.agent_id, id_, item.content)
            if len(self.sample) < self._most:
                self.sample.append(memory)
            elif (place := self._rng.randrange(self.count)) < self._most:
                self.sample[place] = memory

    def check(self, target: Target, when: str = "") -> None:
        """Read the sample back; raise `LostWrites` with the count if a memory is missing or changed."""
        capabilities = target.capabilities
        if not capabilities.get:
            if not capabilities.search:
                raise NotSupported(f"{target.name} can neither read by id nor search: nothing is checked")
            target.flush()
        by_agent: dict[str, list[tuple[str, Any]]] = {}
        for agent, id_, content in self.sample:
            by_agent.setdefault(agent, []).append((id_, content))
        missing = changed = 0
        for agent, memories in by_agent.items():
            if capabilities.get:
                answers = target.get(agent, [id_ for id_, _ in memories])
            else:
                answers = [_found_by_search(target, agent, *memory) for memory in memories]
            for (_, content), answer in zip(memories, answers, strict=True):
                missing += answer is None
                changed += answer is not None and answer != content and capabilities.exact
        if missing or changed:
            lost = [f"{missing:,} missing"] * bool(missing) + [f"{changed:,} changed"] * bool(changed)
            raise LostWrites(
                f"{target.name} acknowledged {self.count:,} memories, but {' and '.join(lost)} of "
                f"{len(self.sample):,} that were read back{f' {when}' if when else ''}: "
                "its figures do not count"
            )


def _found_by_search(target: Target, agent: str, id_: str, content: Any) -> Any:
    """Return the content that a search for `content` finds under this id; None if it does not find it.

    If there are more equal memories than hits, any of them is accepted.
    """
    k = min(_HITS_READ_BACK, target.capabilities.max_k or _HITS_READ_BACK)
    hits = target.search(agent, content, k)
    if len(hits) == k and all(hit.content == content for hit in hits):
        return content
    return next((hit.content for hit in hits if hit.id == id_), None)


def _delete_store(target: str, folder: Path) -> None:
    try:
        make_target(target).discard(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Bench:
    """The environment of one round. `Bench()` is enough to call a benchmark by hand.

    Args:
        target: name of the target under test, as `--target` takes it.
        embedder: for all vectors of the round; None for the default one.
        seed: for the data and the order of calls; each round has another.
        seconds: about how long one timing measures, unless the benchmark fixes the number of calls.
        scratch: folder for stores and files; the system's folder for temporary files by default.
        on_timing: called with the label and the timing after each `time`, for progress.
        turn_control: takes turns with another process, in lockstep.
        embedder_name: the embedder as `--embedder` takes it, for processes that the benchmark starts.
        generators: addresses of load generators on other hosts (`HOST:PORT#SECRET`), for benchmarks that
            send load from several.
    """

    def __init__(
        self,
        *,
        target: str = DEFAULT,
        embedder: ContentEmbedder | None = None,
        seed: int = 0,
        seconds: float = 0.2,
        scratch: Path | None = None,
        on_timing: Callable[[str, Timing], object] | None = None,
        turn_control: TurnControl | None = None,
        embedder_name: str = "",
        generators: Sequence[str] = (),
    ) -> None:
        self.target_name = target
        self.embedder = embedder
        self.embedder_name = embedder_name
        self.generators = tuple(generators)
        self.seed = seed
        self.seconds = seconds
        self._scratch = scratch
        self._on_timing = on_timing
        self._turn_control = turn_control
        self.answers: dict[str, list[AnsweredQuestion]] = {}
        """The answers that were passed to `keep_answers`, by place."""
        self._settled: list[tuple[Sequence[Item], Path]] = []
        self._acknowledged: dict[int, Acknowledged] = {}
        """The memories that each open target has acknowledged, by the `id()` of the target."""

    @property
    def system(self) -> str:
        """The name that the target's class gives to the system, for messages."""
        return load_target(self.target_name).name

    @property
    def capabilities(self) -> Capabilities:
        """What the target under test can do."""
        return load_target(self.target_name).capabilities

    def no_search(self, k: int = 1) -> str:
        """Return why the target can't search for `k` hits; empty if it can."""
        if not self.capabilities.search:
            return f"{self.system} has no search"
        most = self.capabilities.max_k
        if most is not None and k > most:
            return f"{self.system} returns at most {most:,} hits of a search, and this needs {k:,}"
        return ""

    def no_vector_search(self, k: int = 1) -> str:
        """Return why the target can't be searched by a vector for `k` hits; empty if it can."""
        if not self.capabilities.vector_queries:
            return f"{self.system} can't be searched by a vector"
        return self.no_search(k)

    def no_get(self) -> str:
        """Return why the target can't read memories by id; empty if it can."""
        return "" if self.capabilities.get else f"{self.system} can't read memories by id"

    @staticmethod
    def require(reason: str) -> None:
        """Raise `NotSupported`, so that the benchmark is n/a, unless the reason is empty.

        Args:
            reason: what `no_search`, `no_vector_search` or `no_get` returned.
        """
        if reason:
            raise NotSupported(reason)

    @contextmanager
    def target(self, sample: Sequence[Item] = (), settings: Settings | None = None) -> Iterator[Target]:
        """Open an empty target in its own folder; close the target and delete the folder afterwards.

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
        """Make a temporary folder for the target; with a sample, it holds a settled, empty store."""
        with self.folder() as folder:
            if sample and self.capabilities.persistence:
                shutil.copytree(self._settled_on(sample), folder, dirs_exist_ok=True)
            try:
                yield folder
            finally:
                make_target(self.target_name).discard(folder)

    def _settled_on(self, sample: Sequence[Item]) -> Path:
        """Return the folder of a settled store; callers copy it, because settling takes seconds."""
        for settled, folder in self._settled:
            if settled is sample:
                return folder
        folder = Path(tempfile.mkdtemp(prefix="membench-settled-", dir=self._scratch))
        weakref.finalize(self, _delete_store, self.target_name, folder)
        with self.open_target(folder) as target:
            target.settle(sample)
        self._settled.append((sample, folder))
        return folder

    @contextmanager
    def open_target(self, folder: Path, settings: Settings | None = None) -> Iterator[Target]:
        """Open the target in this folder; close it afterwards and keep its files.

        At the end, a sample of what was passed to `acknowledged` is read back. With `persistence` it is
        read once more from a new object, after closing and opening the folder. A loss is an error.
        """
        target = self._opened(folder, settings)
        try:
            yield target
            written = self._acknowledged.pop(id(target), None)
            if written is not None:
                written.check(target)
        finally:
            self._acknowledged.pop(id(target), None)
            target.close()
        if written is not None and target.capabilities.persistence:
            again = self._opened(folder, settings)
            try:
                written.check(again, "after the store was closed and opened again")
            finally:
                again.close()

    def _opened(self, folder: Path, settings: Settings | None) -> Target:
        target = make_target(self.target_name, self.embedder)
        if settings is None:
            target.open(folder)
        else:
            target.open(folder, settings)
        return target

    def store(
        self,
        target: Target,
        items: Sequence[Item],
        place: str | None = None,
        *,
        lasting: bool = True,
    ) -> list[str]:
        """Store items in batches of 1,000, outside of any timing, and return their ids.

        Args:
            target: an open target of this bench.
            items: the memories to store.
            place: a tier, or None for the target's default place.
            lasting: whether a sample is read back when the target is closed (see `acknowledged`). False
                for memories that the benchmark will change, delete or evict: they are read back at once.
        """
        ids: list[str] = []
        for start in range(0, len(items), _BATCH):
            ids += target.add(items[start : start + _BATCH], place)
        if lasting:
            self.acknowledged(target, ids, items)
        else:
            written = Acknowledged(self.seed)
            written.take(target, ids, items)
            written.check(target)
        return ids

    def acknowledged(self, target: Target, ids: Sequence[str], items: Sequence[Item]) -> None:
        """Note what the target has acknowledged; `open_target` reads a sample of it back at the end.

        Call it outside of a timing, with all memories that must still be there when the target is closed.
        Without this call, a target that stores nothing would still get figures.

        Args:
            target: an open target of this bench.
            ids: what `add` or `add_one` returned.
            items: what was stored, in the same order.
        """
        written = self._acknowledged.setdefault(id(target), Acknowledged(self.seed))
        written.take(target, ids, items)

    def read_back(self, target: Target) -> None:
        """Read a sample back now, for benchmarks that can't continue after a loss."""
        written = self._acknowledged.get(id(target))
        if written is not None:
            written.check(target)

    @contextmanager
    def folder(self) -> Iterator[Path]:
        """Make an empty folder and delete it afterwards."""
        folder = Path(tempfile.mkdtemp(prefix="membench-", dir=self._scratch))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def keep_answers(self, place: str, answers: Sequence[AnsweredQuestion]) -> None:
        """Keep the answer to each question, so that two runs can be compared question by question.

        The answers are stored beside the raw samples, not in the results.

        Args:
            place: path of the group that has their figures, such as `synthetic/target`. It must have a
                group `all_questions` with the figures of `measure/ranking.py`.
            answers: one for each question, in the order asked.
        """
        self.answers[place] = list(answers)

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
        """Time an operation. A benchmark measures all its times with this method. See docs/measuring.md.

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
