"""What a league measures, by profile: the benchmarks, their sizes, and the targets by default."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memory.benchmarking.errors import BenchmarkError
from memory.benchmarking.targets import load_target, target_names
from memory.benchmarking.targets.interpreters import interpreter_of

SUITE = "league"
"""The value of `Run.suite`."""
_QUICK_CHECKS = [
    "a_killed_process_loses_nothing", "the_same_thread_reads_it", "the_same_thread_finds_it",
    "similar_names_stay_apart", "a_small_agent_gets_its_k_hits", "lists_of_texts_do_not_crowd_out_others",
    "deleted_one_by_one_is_gone", "delete_all_deletes_all_of_one_agent", "deleted_text_is_erased_at_once",
    "deleted_text_is_erased_by_maintenance", "old_content_is_not_found", "any_json_is_read_back",
    "any_text_is_read_back", "no_id_is_used_twice", "threads_lose_nothing", "processes_lose_nothing",
    "unknown_ids_are_no_error", "wrong_vectors_are_refused", "a_read_only_folder_refuses_writes",
]  # fmt: skip
"""At least one check of each promise: those that find the most for their time."""


@dataclass(frozen=True)
class Part:
    """A benchmark of the suite, with the parameters that differ from those of its profile."""

    benchmark: str
    params: Mapping[str, Mapping[str, Any]]
    """By profile."""
    profiles: tuple[str, ...] = ("quick", "standard", "full")
    optional: bool = False
    """Whether this version of membench may lack the benchmark."""


_TEXTS = {"contents": ["texts"]}
_PROMISES = (
    "durability", "freshness", "isolation", "hits", "deletion", "erasure", "updates", "exactness", "ids",
    "many_at_once", "bad_input", "failing_disk",
)  # fmt: skip
PARTS = (
    Part(
        "storage.write_throughput",
        {
            "quick": {**_TEXTS, "batch_sizes": [50], "settle_memories": 0},
            "standard": {**_TEXTS, "batch_sizes": [100]},
            "full": {**_TEXTS, "batch_sizes": [100, 1000]},
        },
    ),
    Part(
        "storage.read_latency",
        {
            "quick": {**_TEXTS, "num_samples": 200, "batch_sizes": [50], "settle_memories": 0},
            "standard": {**_TEXTS, "batch_sizes": [100]},
            "full": {**_TEXTS, "batch_sizes": [100]},
        },
    ),
    Part(
        "storage.memory_efficiency",
        {
            "quick": {**_TEXTS, "num_memories": 2000, "settle_memories": 0},
            "standard": _TEXTS,
            "full": _TEXTS,
        },
    ),
    Part("storage.footprint", {}),
    Part("retrieval.search_by_size", {}),
    Part("retrieval.search_large", {}, profiles=("standard", "full")),
    Part("scalability.saturation", {"full": {"clients": ["1x1"]}}, optional=True),
    Part("quality.retrieval_quality", {}),
    *(
        Part(f"promises.{name}", {"quick": {"size": "quick", "checks": _QUICK_CHECKS}})
        for name in _PROMISES
    ),
)
"""The suite."""
ROUNDS = {"quick": 2, "standard": 3, "full": 5}
"""Fresh processes for each benchmark; some need only one."""
TIMEOUTS = {"quick": 240.0, "standard": 1200.0, "full": 7200.0}
"""The most seconds of a round."""
_NOT_BY_DEFAULT = frozenset({"mcp", "http"})
"""They need an address."""


def parts_of(profile: str, known: Sequence[str]) -> list[Part]:
    """Return the parts of a profile. `known` has the benchmarks of this version, as `category.name`."""
    return [
        part
        for part in PARTS
        if profile in part.profiles and (part.benchmark in known or not part.optional)
    ]


def installed_targets() -> Iterator[str]:
    """Yield the targets that can run here without installing anything, our own first."""
    ours = ("agentmemory", "agentmemory-disk", "sqlite-baseline")
    for name in (*ours, *(name for name in target_names() if name not in ours)):
        if name in _NOT_BY_DEFAULT:
            continue
        try:
            load_target(name)
            interpreter_of(name)
        except BenchmarkError:
            continue  # not installed, or not loadable: it can be named with --target, which says why
        yield name


def data_sets_at_hand() -> list[str]:
    """Return the data sets for the quality benchmark: the synthetic one, and those that are downloaded.

    LongMemEval is left out: it has 500 conversations of 115,000 tokens, which would take hours.
    """
    from memory.benchmarking.workloads.downloads import PUBLISHED, data_folder

    found = [each.name for each in PUBLISHED.values() if (data_folder() / each.file).exists()]
    return ["synthetic", *(name for name in found if name != "longmemeval")]
