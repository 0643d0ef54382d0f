"""The sources of a page: runs, and the targets of a run if it has several."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from memory.benchmarking.model.loaded_result import LoadedResult
from memory.benchmarking.model.records import Run
from memory.benchmarking.model.tables import time_of

BY_HAND = "saved by hand"


@dataclass(frozen=True)
class Source:
    """A run, or one target of a run. Results saved by hand, outside of any run, are also a source."""

    name: str
    run_id: str
    run: Run | None
    target: str


Numbered = list[tuple[int, LoadedResult]]
"""Results, each with the number of its source."""


def sources_of(results: Iterable[LoadedResult], runs: Mapping[str, Run]) -> tuple[list[Source], Numbered]:
    """Return the sources in the order of the results, and each result with the number of its source.

    Results saved by hand are one source. A second such result of the same benchmark starts another source.
    """
    keys: dict[tuple[str, str, int], int] = {}
    seen: dict[tuple[str, ...], int] = {}
    numbered: Numbered = []
    for each in results:
        again = 0
        if not each.file.run_id:
            case = (each.result.category, each.result.benchmark, each.target)
            again = seen[case] = seen.get(case, -1) + 1
        key = (each.file.run_id, each.target, again)
        numbered.append((keys.setdefault(key, len(keys)), each))
    by_hand = [key for key in keys if not key[0]]
    # Names include the target only if one run has several targets. Results saved by hand may have none.
    run_ids = {run_id for run_id, _, _ in keys}
    several = any(len({key[1] for key in keys if key[0] == run_id}) > 1 for run_id in run_ids)
    sources = []
    for run_id, target, again in keys:
        name = run_id or BY_HAND
        if not run_id and len(by_hand) > 1:
            name = _name_by_time(numbered, keys[run_id, target, again]) or f"{BY_HAND} {again + 1}"
        if several:
            name = target or name if len(run_ids) == 1 else f"{name} · {target}" if target else name
        sources.append(Source(name, run_id, runs.get(run_id), target))
    return sources, numbered


def _name_by_time(numbered: Numbered, number: int) -> str:
    times = {each.result.timestamp for source, each in numbered if source == number}
    time = time_of(times.pop()) if len(times) == 1 else None
    return f"{BY_HAND} {time:%Y-%m-%d %H:%M:%S}" if time else ""


def names(sources: Sequence[Source]) -> list[str]:
    """Return the names of sources."""
    return [source.name for source in sources]
