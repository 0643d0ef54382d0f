"""Space that memories take: growth on disk and in RAM, or the reason why it can't be measured."""

from __future__ import annotations

from memory.benchmarking.bench import Bench, not_available
from memory.benchmarking.model.paths import NotAvailable

RAM_RESOLUTION = 3_000_000
"""Growth of resident memory, in bytes, that is not resolved. Without new memories two readings differ by
less than 0.01 MB. The same round repeats within 0.3 MB, and within 0.9 MB for states in stm. And allocators
keep free space of what ran before: 2,000 memories took 2.8 MB less as the fourth workload of a round than
as the first."""


def disk_growth(bench: Bench, grown: int, count: int) -> float | NotAvailable:
    """Return by how many bytes the files grew for each of `count` memories."""
    if grown > 0:
        return grown / count
    if not bench.capabilities.persistence:
        return not_available(f"{bench.system} keeps nothing on disk")
    return not_available(
        f"the files of {bench.system} did not grow with {count:,} memories: use more memories, or it keeps "
        "them elsewhere"
    )


def ram_growth(bench: Bench, grown: int, count: int) -> float | NotAvailable:
    """Return by how many bytes resident memory grew for each of `count` memories, if it is not noise."""
    if grown >= RAM_RESOLUTION:
        return grown / count
    return not_available(
        f"< {RAM_RESOLUTION / count:,.0f} B: the processes of {bench.system} grew by less than "
        f"{RAM_RESOLUTION / 1e6:g} MB with {count:,} memories, which is not resolved"
    )
