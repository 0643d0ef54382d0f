"""What a memory promises, tried: durability, freshness, isolation, deletion, exactness and the like.

Each benchmark is one promise, each group of figures one check (memory/benchmarking/promises/). Every check
runs in a process of its own with a time limit. `membench check` runs all of them and prints the evidence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from memory.benchmarking.bench import Bench, not_available
from memory.benchmarking.errors import InvalidBenchmarkConfig, nearest
from memory.benchmarking.metrics import SHARE, Metric, declare
from memory.benchmarking.model.parameters import Names
from memory.benchmarking.model.presentation import BarChart, Goal
from memory.benchmarking.promises.model import Outcome
from memory.benchmarking.promises.suite import PROMISES, checks_of, run_check

_BAD = Metric("", "lower", whole=True)
"""A count of failures."""
_COUNT = Metric("", "neither", whole=True)
_FAILURES = (
    "lost", "wrong", "back", "doubled", "not_found", "never_seen", "seen_late", "foreign", "missing",
    "still_found", "others_gone", "count_off", "stale", "errors", "changed", "repeated", "nonsense",
    "accepted", "unusable", "silent_wrong", "silent_missing", "hung_or_crashed", "hung", "crashed",
)  # fmt: skip
_COUNTS = (
    "kills", "acknowledged", "writes", "agents", "refused", "queries", "wanted", "deleted", "updates",
    "memories", "contents", "operations", "calls", "raised", "flips", "correct", "clear_error",
)  # fmt: skip
_OTHER = {
    "kept": SHARE,
    "kept_share": SHARE,
    "bytes_left": Metric("B", "lower"),
    "growth_per_written_byte": Metric("×", "lower"),
    "ram_growth_bytes": Metric("B", "neither"),
    "syncs_per_write": Metric("", "neither"),
    "reopen_seconds": Metric("s", "lower"),
    "lag_p50_ms": Metric("ms", "lower"),
    "lag_p99_ms": Metric("ms", "lower"),
}
_METRICS = {**dict.fromkeys(_FAILURES, _BAD), **dict.fromkeys(_COUNTS, _COUNT), **_OTHER}
_OF_ALL = ("kept_share", "kept", "errors", "hung", "crashed")
"""Figures that the check of every promise can give."""
ALL = "all"
BENCHMARKS = {
    "acknowledged is durable": "durability",
    "read your writes": "freshness",
    "agents are isolated": "isolation",
    "a search returns k memories": "hits",
    "a delete is final": "deletion",
    "a delete erases": "erasure",
    "an update replaces": "updates",
    "contents are exact": "exactness",
    "ids are unique": "ids",
    "many may use it at once": "many_at_once",
    "bad input does no harm": "bad_input",
    "a failing disk is noticed": "failing_disk",
}
"""The name of the benchmark of each promise."""


def _try(words: str, bench: Bench | None, size: str, checks: Sequence[str]) -> dict[str, Any]:
    """Run the checks of one promise; return their figures by check."""
    bench = bench or Bench()
    known = [check.name for check in checks_of(words)]
    for name in checks:
        if name != ALL and not any(name in {one.name for one in checks_of(each)} for each in PROMISES):
            raise InvalidBenchmarkConfig(f"checks has {name!r}: {nearest(name, known)}")
    found: dict[str, Any] = {}
    judged = []
    with bench.folder() as scratch:
        for check in checks_of(words):
            if ALL in checks or check.name in checks:
                outcome = run_check(check, bench.target_name, scratch, size, bench.seed)
                found[check.name] = _figures(outcome)
                if outcome.status in ("kept", "broken"):
                    judged.append(outcome.status == "kept")
    nothing = not_available(f"{bench.system} promises nothing of this, or it could not be tried here")
    return {**found, "kept_share": sum(judged) / len(judged) if judged else nothing}


def _figures(outcome: Outcome) -> dict[str, Any]:
    is_judged = outcome.status in ("kept", "broken")
    return {
        "kept": float(outcome.status == "kept")
        if is_judged
        else not_available(f"{outcome.status}: {outcome.evidence}"),
        **outcome.figures,
        "status": outcome.status,
        "evidence": outcome.evidence,
        **({"code": outcome.code} if outcome.code else {}),
    }


_CHART = BarChart("Promises kept, by check", metric="kept", names=["part"], label="kept", share=True)
_GOAL = Goal(
    1.0,
    reached="Every promise that was tried was kept.",
    missed="a promise was broken, {figure} of its checks were kept; `membench check` shows the evidence",
)
_ARGUMENTS = """
    Args:
        size: {size}
        checks: names of checks, or all
    """


def _promise(
    words: str, seconds: Mapping[str, float], figures: str, size: str = "has no effect here"
) -> Callable[[Callable[[], None]], Callable[..., dict[str, Any]]]:
    """Make the benchmark of a promise from an empty function: its name, and what it finds out.

    Args:
        words: the promise, one of `PROMISES`.
        seconds: how long a round takes, by profile.
        figures: the names of its figures, besides those of every check.
        size: what the parameter `size` chooses.
    """

    def make(about: Callable[[], None]) -> Callable[..., dict[str, Any]]:
        def benchmark(
            size: str = "full", checks: Names = (ALL,), bench: Bench | None = None, **kwargs: Any
        ) -> dict[str, Any]:
            return _try(words, bench, size, checks)

        benchmark.__name__ = benchmark.__qualname__ = about.__name__
        benchmark.__doc__ = (about.__doc__ or "").rstrip() + "\n" + _ARGUMENTS.format(size=size)
        settings: dict[str, Any] = {
            "headline": "kept_share",
            "rounds": 1,
            "profiles": {name: {"size": name} for name in ("quick", "standard", "full")},
            "expected_seconds": seconds,
            "charts": [_CHART],
            "goals": {"kept_share": _GOAL},
            **{name: _METRICS[name] for name in (*_OF_ALL, *figures.split())},
        }
        return declare(**settings)(benchmark)

    return make


@_promise(
    "acknowledged is durable",
    {"quick": 12.0, "standard": 40.0, "full": 400.0},
    "kills acknowledged lost wrong back doubled not_found reopen_seconds syncs_per_write",
    size="how many kills and writes: quick, standard or full",
)
def benchmark_durability() -> None:
    """Whether acknowledged memories survive when the process is killed at a random moment.

    Read `lost` as memories that a user was told are stored, and that are gone. `back` counts deleted ones
    that are there again. `reopen_seconds` is the time until the store can be used again after a kill.
    """


@_promise(
    "read your writes",
    {"quick": 3.0, "standard": 6.0, "full": 15.0},
    "writes never_seen seen_late lag_p50_ms lag_p99_ms",
    size="how many writes: quick, standard or full",
)
def benchmark_freshness() -> None:
    """Whether the next call after `add` sees the memory: same thread, another thread, another process."""


@_promise(
    "agents are isolated",
    {"quick": 5.0, "standard": 12.0, "full": 60.0},
    "agents refused foreign missing queries wanted",
    size="how many agents and rows: quick, standard or full",
)
def benchmark_isolation() -> None:
    """Whether an agent sees, finds or misses memories because of other agents.

    Read `foreign` as memories shown to somebody else, and `missing` as own hits that a small agent does not
    get because another agent owns most rows.
    """


@_promise(
    "a search returns k memories",
    {"quick": 2.0, "standard": 3.0, "full": 5.0},
    "wanted missing doubled",
    size="how many searches: quick, standard or full",
)
def benchmark_hits() -> None:
    """Whether a search returns k different memories where the agent has k.

    Read `missing` as hits that a system cut off, for instance because it counts parts of a memory as hits.
    """


@_promise(
    "a delete is final",
    {"quick": 5.0, "standard": 8.0, "full": 15.0},
    "deleted still_found others_gone count_off",
    size="how many memories: quick, standard or full",
)
def benchmark_deletion() -> None:
    """Whether deleted memories are gone, everywhere and for good, and nothing else with them."""


@_promise(
    "a delete erases",
    {"quick": 2.0, "standard": 3.0, "full": 5.0},
    "deleted bytes_left",
    size="how many memories: quick, standard or full",
)
def benchmark_erasure() -> None:
    """Whether the bytes of a deleted text are still in the files of the store."""


@_promise(
    "an update replaces",
    {"quick": 6.0, "standard": 12.0, "full": 40.0},
    "updates wrong stale count_off growth_per_written_byte ram_growth_bytes memories",
    size="how many updates: quick, standard or full",
)
def benchmark_updates() -> None:
    """Whether an update replaces the old content everywhere, and the last write wins."""


@_promise("contents are exact", {"quick": 3.0, "standard": 3.0, "full": 3.0}, "contents changed refused")
def benchmark_exactness() -> None:
    """Whether any JSON, text and number is read back as it was stored."""


@_promise("ids are unique", {"quick": 2.0, "standard": 2.0, "full": 2.0}, "memories repeated doubled")
def benchmark_ids() -> None:
    """Whether an id names one memory, also after a restart and if the caller gives it twice."""


@_promise(
    "many may use it at once",
    {"quick": 4.0, "standard": 10.0, "full": 40.0},
    "operations lost wrong",
    size="how many operations: quick, standard or full",
)
def benchmark_many_at_once() -> None:
    """Whether threads and processes that share a store lose updates, get errors or hang."""


@_promise(
    "bad input does no harm",
    {"quick": 4.0, "standard": 4.0, "full": 4.0},
    "calls raised nonsense accepted lost",
)
def benchmark_bad_input() -> None:
    """Whether wrong arguments get an error or a sensible answer, and never crash the process."""


@_promise(
    "a failing disk is noticed",
    {"quick": 8.0, "standard": 25.0, "full": 120.0},
    "acknowledged lost wrong unusable accepted flips correct clear_error "
    "silent_wrong silent_missing hung_or_crashed",
    size="how many flipped bytes: quick, standard or full",
)
def benchmark_failing_disk() -> None:
    """Whether a full disk, a read-only folder or flipped bytes lead to an error or to wrong content."""
