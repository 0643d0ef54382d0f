"""What is written to disk and passed between processes: plain records, readable without this package.

A run is a folder:

    <run id>/run.json                                   what ran, on what, what failed
    <run id>/<category>/<benchmark>_<timestamp>.json    the specification's format, plus `metrics`
    <run id>/<category>/<benchmark>_<timestamp>.npz     every raw sample
    <run id>/rounds/…                                   finished rounds, while the run is not whole
    <run id>/logs/…                                     what a failed round printed
"""

from __future__ import annotations

import hashlib
from typing import Any, Literal

import msgspec

FORMAT = 1
"""Of the files; a reader refuses a larger one."""

_MOST_LETTERS = 40
"""Of a target's name in a file's name; its end says more than its beginning, which may be a path."""

Status = Literal["running", "interrupted", "failed", "complete"]
Reason = Literal["exception", "crash", "timeout", "memory", "killed", "left processes"]


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One benchmark with its parameters, on one target."""

    category: str
    benchmark: str
    target: str
    params: dict[str, Any]
    source: str | None = None
    """The user's own file that it is in; None for the package's and installed ones."""
    module: str | None = None
    """The module that it is in, where that is not a file of the user."""
    most_rounds: int | None = None
    """Where more rounds would tell nothing new."""

    @property
    def name(self) -> str:
        return f"{self.category}.{self.benchmark}"

    @property
    def key(self) -> str:
        """A file name that no other case of the run has."""
        target = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in self.target)
        if target != self.target or len(target) > _MOST_LETTERS:
            digest = hashlib.sha256(self.target.encode()).hexdigest()[:6]
            target = f"{target[-_MOST_LETTERS:].lstrip('-.')}-{digest}"
        return f"{self.category}.{self.benchmark}@{target}"


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One round, as the worker gets it."""

    case: Case
    number: int
    seed: int
    seconds: float
    scratch: str
    answer: str
    """The file that the worker writes its `Round` to."""


class Samples(msgspec.Struct, frozen=True, kw_only=True):
    """All samples of one timing, as the bytes of little-endian 64-bit integers (nanoseconds)."""

    wall_ns: bytes
    block_samples: bytes
    block_wall_ns: bytes
    block_cpu_ns: bytes
    calls_per_sample: int
    work: int
    turn_blocks: bytes = b""
    """How many blocks each turn holds, in lockstep."""


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """What one round measured, flat: path to figure."""

    number: int
    seed: int
    figures: dict[str, float]
    samples: dict[str, Samples]
    """By the path of the timing."""
    other: dict[str, Any]
    """Leaves that are no figures: texts, lists."""
    not_available: dict[str, str]
    intervals: dict[str, tuple[float, float]] = {}
    """Of figures that know their own, over questions or other units inside the round."""
    started_at: float
    load_seconds: float
    """Importing the benchmark and its target."""
    seconds: float
    """The benchmark itself."""
    peak_rss_bytes: int
    wall_to_cpu: float | None
    """The contention meter: wall ÷ CPU time over all timings."""


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A round that gave no figures."""

    case: str
    """Category, benchmark and target: `storage.read_latency@agentmemory`."""
    round: int
    reason: Reason
    message: str
    log: str | None = None
    """What it printed, as a path inside the run's folder."""


class Figure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One metric over all rounds: the centre, its 95 % interval, and the figure of each round."""

    value: float
    low: float | None = None
    high: float | None = None
    rounds: list[float] = []
    samples: int = 0
    """How many samples stand behind each round's figure; 0 where it is no statistic of samples."""


class Unit(msgspec.Struct, frozen=True, kw_only=True):
    """How to read all metrics of one name."""

    unit: str
    better: Literal["higher", "lower", "neither"]


class Result(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One file of results: the specification's five keys first, ours after them."""

    benchmark: str
    category: str
    timestamp: str
    results: dict[str, Any]
    metadata: dict[str, Any] = {}
    metrics: dict[str, Figure] = {}
    units: dict[str, Unit] = {}
    format: int = FORMAT


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the machine around one round."""

    case: str
    round: int
    started_at: float
    seconds: float
    load_average: float
    busy_percent: float
    """CPU of the whole machine that was in use over the round, the round itself included."""
    wall_to_cpu: float | None


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """What a figure depends on besides the code. `fingerprint` is a digest of the lasting fields."""

    fingerprint: str
    cpu: str
    cores: int
    memory_gb: float
    os: str
    python: str
    packages: dict[str, str]
    file_system: str = ""
    git_revision: str = ""
    git_dirty: bool | None = None


class ResultRef(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a run's table of contents."""

    category: str
    benchmark: str
    target: str
    params_digest: str
    file: str
    rounds: int
    headline: str = ""
    seconds: float = 0.0
    """Of the benchmark in one round, on average."""


class Run(msgspec.Struct, kw_only=True):
    """`run.json`."""

    id: str
    status: Status
    started_at: str
    profile: str
    seed: int
    rounds: int
    seconds: float
    parallel: int
    """Rounds that ran side by side; above 1 the timed figures never gate."""
    targets: list[str]
    cases: list[Case]
    environment: Environment
    config: dict[str, Any]
    command: str = ""
    finished_at: str = ""
    results: list[ResultRef] = []
    failures: list[Failure] = []
    moments: list[Moment] = []
    timings: dict[str, float] = {}
    """Seconds of the whole run by what they were spent on."""
    format: int = FORMAT

    def rounds_of(self, case: Case) -> int:
        return min(self.rounds, case.most_rounds or self.rounds)

    @property
    def gates(self) -> bool:
        """Whether its timed figures may decide anything."""
        return self.parallel == 1
