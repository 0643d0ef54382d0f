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
from memory.benchmarking.model.presentation import BarChart
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

Seconds = Mapping[str, float]
Function = Callable[..., dict[str, Any]]


_CHART = BarChart("Promises kept, by check", metric="kept", names=["part"], label="kept", share=True)


def _promise(seconds: Seconds, figures: str) -> Callable[[Function], Function]:
    """Declare the benchmark of one promise, with the names of its figures."""
    settings: dict[str, Any] = {
        "headline": "kept_share",
        "rounds": 1,
        "profiles": {name: {"size": name} for name in ("quick", "standard", "full")},
        "expected_seconds": seconds,
        "charts": [_CHART],
        **{name: _METRICS[name] for name in (*_OF_ALL, *figures.split())},
    }
    return declare(**settings)


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


@_promise(
    {"quick": 12.0, "standard": 40.0, "full": 400.0},
    "kills acknowledged lost wrong back doubled not_found reopen_seconds syncs_per_write",
)
def benchmark_durability(
    size: str = "full", checks: Names = (ALL,), bench: Bench | None = None, **kwargs: Any
) -> dict[str, Any]:
    """Whether acknowledged memories survive when the process is killed at a random moment.

    Read `lost` as memories that a user was told are stored, and that are gone. `back` counts deleted ones
    that are there again. `reopen_seconds` is the time until the store can be used again after a kill.

    Args:
        size: how many kills and writes: quick, standard or full
        checks: names of checks, or all
    """
    return _try("acknowledged is durable", bench, size, checks)


@_promise(
    {"quick": 3.0, "standard": 6.0, "full": 15.0}, "writes never_seen seen_late lag_p50_ms lag_p99_ms"
)
def benchmark_freshness(
    size: str = "full", checks: Names = (ALL,), bench: Bench | None = None, **kwargs: Any
) -> dict[str, Any]:
    """Whether the next call after `add` sees the memory: same thread, another thread, another process.

    Args:
        size: how many writes: quick, standard or full
        checks: names of checks, or all
    """
    return _try("read your writes", bench, size, checks)


@_promise({"quick": 5.0, "standard": 12.0, "full": 60.0}, "agents refused foreign missing queries wanted")
def benchmark_isolation(
    size: str = "full", checks: Names = (ALL,), bench: Bench | None = None, **kwargs: Any
) -> dict[str, Any]:
    """Whether an agent sees, finds or misses memories because of other agents.

    Read `foreign` as memories shown to somebody else, and `missing` as own hits that a small agent does not
    get because another agent owns most rows.

    Args:
        size: how many agents and rows: quick, standard or full
        checks: names of checks, or all
    """
    return _try("agents are isolated", bench, size, checks)


@_promise({"quick": 2.0, "standard": 3.0, "full": 5.0}, "wanted missing doubled")
def benchmark_hits(
    size: str = "full", checks: Names = (ALL,), bench: Bench | None = None, **kwargs: Any
) -> dict[str, Any]:
    """Whether a search returns k different memories where the agent has k.

    Read `missing` as hits that a system cut off, for instance because it counts parts of a memory as hits.

    Args:
        size: how many searches: quick, standard or full
        checks: names of checks, or all
    """
    return _try("a search returns k memories", bench, size, checks)


@_promise({"quick": 5.0, "standard": 8.0, "full": 15.0}, "deleted still_found others_gone count_off")
def benchmark_deletion(
    size: str = "full", checks: Names = (ALL,), bench: Bench | None = None, **kwargs: Any
) -> dict[str, Any]:
    """Whether deleted memories are gone, everywhere and for good, and nothing else with them.

    Args:
        size: how many memories: quick, standard or full
        checks: names of checks, or all
    """
    return _try("a delete is final", bench, size, checks)


@_promise({"quick": 2.0, "standard": 3.0, "full": 5.0}, "deleted bytes_left")
def benchmark_erasure(
    size: str = "full", checks: Names = (ALL,), bench: Bench | None = None, **kwargs: Any
) -> dict[str, Any]:
    """Whether the bytes of a deleted text are still in the files of the store.

    Args:
        size: how many memories: quick, standard or full
        checks: names of checks, or all
    """
    return _try("a delete erases", bench, size, checks)


@_promise(
    {"quick": 6.0, "standard": 12.0, "full": 40.0},
    "updates wrong stale count_off growth_per_written_byte memories",
)
def benchmark_updates(
    size: str = "full", checks: Names = (ALL,), bench: Bench | None = None, **kwargs: Any
) -> dict[str, Any]:
    """Whether an update replaces the old content everywhere, and the last write wins.

    Args:
        size: how many updates: quick, standard or full
        checks: names of checks, or all
    """
    return _try("an update replaces", bench, size, checks)


@_promise({"quick": 3.0, "standard": 3.0, "full": 3.0}, "contents changed refused")
def benchmark_exactness(
    size: str = "full", checks: Names = (ALL,), bench: Bench | None = None, **kwargs: Any
) -> dict[str, Any]:
    """Whether any JSON, text and number is read back as it was stored.

    Args:
        size: has no effect here
        checks: names of checks, or all
    """
    return _try("contents are exact", bench, size, checks)


@_promise({"quick": 2.0, "standard": 2.0, "full": 2.0}, "memories repeated doubled")
def benchmark_ids(
    size: str = "full", checks: Names = (ALL,), bench: Bench | None = None, **kwargs: Any
) -> dict[str, Any]:
    """Whether an id names one memory, also after a restart and if the caller gives it twice.

    Args:
        size: has no effect here
        checks: names of checks, or all
    """
    return _try("ids are unique", bench, size, checks)


@_promise({"quick": 4.0, "standard": 10.0, "full": 40.0}, "operations lost wrong")
def benchmark_many_at_once(
    size: str = "full", checks: Names = (ALL,), bench: Bench | None = None, **kwargs: Any
) -> dict[str, Any]:
    """Whether threads and processes that share a store lose updates, get errors or hang.

    Args:
        size: how many operations: quick, standard or full
        checks: names of checks, or all
    """
    return _try("many may use it at once", bench, size, checks)


@_promise({"quick": 4.0, "standard": 4.0, "full": 4.0}, "calls raised nonsense accepted lost")
def benchmark_bad_input(
    size: str = "full", checks: Names = (ALL,), bench: Bench | None = None, **kwargs: Any
) -> dict[str, Any]:
    """Whether wrong arguments get an error or a sensible answer, and never crash the process.

    Args:
        size: has no effect here
        checks: names of checks, or all
    """
    return _try("bad input does no harm", bench, size, checks)


@_promise(
    {"quick": 8.0, "standard": 25.0, "full": 120.0},
    "acknowledged lost wrong unusable accepted flips correct clear_error "
    "silent_wrong silent_missing hung_or_crashed",
)
def benchmark_failing_disk(
    size: str = "full", checks: Names = (ALL,), bench: Bench | None = None, **kwargs: Any
) -> dict[str, Any]:
    """Whether a full disk, a read-only folder or flipped bytes lead to an error or to wrong content.

    Args:
        size: how many flipped bytes: quick, standard or full
        checks: names of checks, or all
    """
    return _try("a failing disk is noticed", bench, size, checks)
