"""The records that are written to disk and passed between processes, readable without this package.

A run is a folder:

    <run id>/run.json                                   what ran, on which machine, what failed
    <run id>/<category>/<benchmark>_<timestamp>.json    the specification's format, plus `metrics`
    <run id>/<category>/<benchmark>_<timestamp>.npz     every raw sample
    <run id>/<category>/<benchmark>_<timestamp>.rounds.json.gz     the values of each round, unrounded
    <run id>/<category>/<benchmark>_<timestamp>.answers.json.gz    the answer to each question, if any
    <run id>/rounds/…                                   finished rounds, until the run is complete
    <run id>/logs/…                                     the output of failed rounds

`schemas/` has a JSON Schema of each, for every version of the format.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any, Literal

import msgspec

FORMAT = 2
"""The version of the file format. A reader refuses files with a larger one, and reads all before it.

- 1: up to version 0.2.
- 2: a file with the values of each round (`rounds_file.py`), so that every figure can be computed again.
"""

_MOST_LETTERS = 40
"""The longest target name in a file name. The end is kept, because the beginning may be a path."""

Status = Literal["running", "interrupted", "failed", "complete"]
Reason = Literal["exception", "crash", "timeout", "memory", "killed", "left processes"]


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One benchmark with its parameters, on one target."""

    category: str
    benchmark: str
    target: str
    params: dict[str, Any]
    source: str | None = None
    """The user's file that defines it; None for built-in and installed benchmarks."""
    module: str | None = None
    """The module that defines it, where that is not a user's file."""
    most_rounds: int | None = None
    """The most rounds that are useful; None for no limit."""

    @property
    def name(self) -> str:
        return f"{self.category}.{self.benchmark}"

    @property
    def key(self) -> str:
        """A file name that is unique in the run."""
        target = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in self.target)
        if target != self.target or len(target) > _MOST_LETTERS:
            digest = hashlib.sha256(self.target.encode()).hexdigest()[:6]
            target = f"{target[-_MOST_LETTERS:].lstrip('-.')}-{digest}"
        return f"{self.category}.{self.benchmark}@{target}"


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One round, as it is sent to the worker."""

    case: Case
    number: int
    seed: int
    seconds: float
    scratch: str
    answer: str
    """The file that the worker writes its `Round` to."""
    embedder: str = ""
    """As after `--embedder`; empty for the default one."""
    generators: list[str] = []
    """Addresses of load generators on other hosts, as `HOST:PORT#SECRET`."""


class Samples(msgspec.Struct, frozen=True, kw_only=True):
    """All samples of one timing, as the bytes of little-endian 64-bit integers (nanoseconds)."""

    wall_ns: bytes
    block_samples: bytes
    block_wall_ns: bytes
    block_cpu_ns: bytes
    calls_per_sample: int
    work: int
    turn_blocks: bytes = b""
    """In lockstep: the number of blocks in each turn."""


class AnsweredQuestion(msgspec.Struct, frozen=True, array_like=True):
    """One question of a quality benchmark, and what the search returned for it."""

    collection: str
    """The conversation or set of documents that it is about."""
    text: str
    category: str
    ranks: list[int]
    """The rank of each relevant passage, from 1; 0 if it was not found. Empty if there is no answer."""
    grades: list[int]
    """The grade of each relevant passage, in the same order."""
    score: float
    """The score of the first hit; 0 without hits."""
    apart: bool = False
    """Counts for its category only, not for all questions. Answers of older versions do not have this
    field: there, each question counts for all questions."""


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """The measurements of one round, by path."""

    number: int
    seed: int
    figures: dict[str, float]
    samples: dict[str, Samples]
    """By the path of the timing that they belong to."""
    other: dict[str, Any]
    """Leaves that are not figures: texts, lists."""
    not_available: dict[str, str]
    intervals: dict[str, tuple[float, float]] = {}
    """Intervals over units inside the round, such as questions."""
    answers: dict[str, list[AnsweredQuestion]] = {}
    """The questions that were asked and their answers, by the path of the group with their figures."""
    started_at: float
    load_seconds: float
    """The time to import the benchmark and its target."""
    seconds: float
    """The time of the benchmark itself."""
    peak_rss_bytes: int
    wall_to_cpu: float | None
    """Wall ÷ CPU time over all timings: above 1 where other programs took the CPU."""


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A round that failed."""

    case: str
    """Category, benchmark and target: `storage.read_latency@agentmemory`."""
    round: int
    reason: Reason
    message: str
    log: str | None = None
    """The path of its output, inside the run's folder."""


class Figure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One metric over all rounds: the centre, its 95 % interval, and the value of each round."""

    value: float
    low: float | None = None
    high: float | None = None
    rounds: list[float] = []
    steady: list[float] = []
    """The time of the least disturbed block of each round, for `cpu_ms` and `p50_ms` of a timing.

    Comparisons use it in place of `rounds`, because it varies less. Empty in files before version 0.3.
    """
    samples: int = 0
    """The number of samples in a round; 0 where the figure is not a statistic of samples."""
    interval_from: Literal["", "rounds", "units"] = ""
    """What the interval is over: rounds, or units inside a round, such as questions.

    Empty where there is no interval, and in files written before version 0.2.
    """


class Unit(msgspec.Struct, frozen=True, kw_only=True):
    """Unit and direction of all metrics with one name."""

    unit: str
    better: Literal["higher", "lower", "neither"]


class Result(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A file of results: the specification's five keys, then our own.

    It can be read like a dictionary: `result["results"]`, `result.get("metadata")`, `dict(result)`.
    """

    benchmark: str
    category: str
    timestamp: str
    results: dict[str, Any]
    metadata: dict[str, Any] = {}
    metrics: dict[str, Figure] = {}
    units: dict[str, Unit] = {}
    format: int = 1
    """The version of the format. Files of version 1 do not have it; `FORMAT` is written from 2 on."""

    def keys(self) -> tuple[str, ...]:
        return self.__struct_fields__

    def values(self) -> list[Any]:
        return [getattr(self, key) for key in self.keys()]

    def items(self) -> list[tuple[str, Any]]:
        return [(key, getattr(self, key)) for key in self.keys()]

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a key, or `default`."""
        return getattr(self, key) if key in self.keys() else default

    def __getitem__(self, key: str) -> Any:
        if key not in self.keys():
            raise KeyError(key)
        return getattr(self, key)

    def __contains__(self, key: object) -> bool:
        return key in self.keys()

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())


class MachineState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the machine during one round."""

    case: str
    round: int
    started_at: float
    seconds: float
    busy_percent: float
    """CPU use of the whole machine, including the round itself."""
    wall_to_cpu: float | None
    host: str = ""
    """The machine of a cluster that it ran on; empty for the machine that ran membench."""
    fingerprint: str = ""
    """The fingerprint of that machine, in the same form as that of the run."""


class Source(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file or folder with code that a run depends on, and its state in git."""

    path: str
    revision: str = ""
    """Empty where it is not in a git repository, or installed."""
    dirty: bool | None = None
    """Whether it had uncommitted changes; None where there is no revision."""


class TargetInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The system under test: what a figure of this target depends on besides the machine."""

    name: str = ""
    durability: str = ""
    """What an acknowledged write survives: ram, process or machine. Empty in old files."""
    search_by: str = ""
    """What a text search compares: words, vector or both. Empty without search, and in old files."""
    versions: dict[str, str] = {}
    """Distribution to version."""
    sha256: str = ""
    """The hash of the user's file that defines the target."""
    lock: str = ""
    """The digest of everything in the target's environment; empty if it ran where membench runs."""
    packages: dict[str, str] = {}
    """Everything in the target's environment: distribution or npm package to version."""
    conformance: str = ""
    """What `membench targets check` found: kept, "2 of 31 broken" or "not checked". Empty in old files."""

    @property
    def digest(self) -> str:
        """A digest that changes with the version of the system; empty where nothing is known."""
        if not self.versions and not self.sha256 and not self.lock:
            return ""
        known = repr((sorted(self.versions.items()), self.sha256, *([self.lock] if self.lock else [])))
        return hashlib.sha256(known.encode()).hexdigest()[:12]


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """What a figure depends on besides the code. `fingerprint` is a digest of `cpu` … `file_system`."""

    fingerprint: str
    cpu: str
    cores: int
    memory_gb: float
    os: str
    python: str
    packages: dict[str, str]
    file_system: str = ""
    embedder: str = ""
    """The embedder of all targets, as after `--embedder`, with its digest; empty for the default one."""
    git_revision: str = ""
    """Of the current folder, else of the benchmark files, else of the target. In old runs: of membench."""
    git_dirty: bool | None = None
    sources: dict[str, Source] = {}
    """By name: `benchmarks`, `target chroma`, `current folder`, `membench`."""


class ResultRef(msgspec.Struct, frozen=True, kw_only=True):
    """A run's entry for one result."""

    category: str
    benchmark: str
    target: str
    params_digest: str
    file: str
    rounds: int
    headline: str = ""
    seconds: float = 0.0
    """The mean time of the benchmark in one round."""
    fingerprint: str = ""
    """A digest of the machine's fingerprint and the target's version; empty in old files."""


class Run(msgspec.Struct, kw_only=True):
    """The content of `run.json`."""

    id: str
    status: Status
    started_at: str
    profile: str
    seed: int
    rounds: int
    seconds: float
    parallel: int
    """How many rounds ran at the same time. Above 1, times are not judged."""
    targets: list[str]
    cases: list[Case]
    environment: Environment
    config: dict[str, Any]
    command: str = ""
    """A command that repeats the run in `folder`."""
    folder: str = ""
    """The folder in which the run was started; relative paths of the command begin there."""
    target_info: dict[str, TargetInfo] = {}
    """By the target's name in `targets`."""
    finished_at: str = ""
    results: list[ResultRef] = []
    failures: list[Failure] = []
    moments: list[MachineState] = []
    """The state of the machine during each round."""
    timings: dict[str, float] = {}
    """Seconds of the whole run, by what they were spent on."""
    format: int = FORMAT

    executor: str = "local"
    """What ran the rounds: `local`, or `ray`, with the address of the cluster as in `ray=10.0.0.1:6379`."""
    generators: int = 0
    """How many load generators on other hosts a round had."""
    extra_rounds: dict[str, int] = {}
    """By the key of a case: rounds beyond `rounds`, because a comparison was undecided."""
    different_rounds: dict[str, int] = {}
    """By the key of a case: how many rounds have data of their own. Further rounds repeat these, because
    the baseline has no other data to compare with."""
    suite: str = ""
    """`league` for a run of `membench league`, whose cases are the same for every target; else empty."""
    looks: int = 1
    """How often the run was compared to decide whether it needs more rounds, plus 1."""

    def rounds_of(self, case: Case) -> int:
        """Return how many rounds this run makes of a case."""
        planned = min(self.rounds, case.most_rounds or self.rounds)
        return planned + self.extra_rounds.get(case.key, 0)

    def data_of_round(self, case: Case, number: int) -> int:
        """Return which round first had the data of a round; added rounds repeat those of the first ones."""
        return number % max(1, self.different_rounds.get(case.key, number + 1))

    @property
    def times_count(self) -> bool:
        """Whether times are judged: not where rounds ran at the same time."""
        return self.parallel == 1


def target_info_of(result: Result) -> TargetInfo:
    """Return what a result's file says about its target; empty fields where it says nothing."""
    try:
        return msgspec.convert(result.metadata.get("target_info") or {}, TargetInfo)
    except msgspec.ValidationError:
        return TargetInfo()
