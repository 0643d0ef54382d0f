"""What the writes of a result survive, for everything that shows write figures."""

from __future__ import annotations

from fnmatch import fnmatchcase

from memory.benchmarking.model.records import Result, TargetInfo, target_info_of

SURVIVES = {
    "ram": "nothing: a killed process loses acknowledged writes",
    "process": "a killed process, not a power failure",
    "machine": "a power failure",
}
"""What an acknowledged write survives, by durability class."""


def is_write(result: Result, path: str) -> bool:
    """Return whether a figure measures writes, as its benchmark declared."""
    patterns = result.metadata.get("write_figures")
    return isinstance(patterns, str) and any(fnmatchcase(path, each) for each in patterns.split("|"))


def durability_of(result: Result, path: str) -> str:
    """Return the durability class of a write figure; empty for other figures and for old results."""
    if not is_write(result, path):
        return ""
    return target_info_of(result).durability


def target_changes(name: str, before: TargetInfo, now: TargetInfo) -> list[str]:
    """Return how a target differs between two results: `chroma: chromadb 1.5.9 → 1.6.0`."""
    found = []
    if before.versions and now.versions:
        for package in dict.fromkeys((*before.versions, *now.versions)):
            old, new = (side.versions.get(package, "none") for side in (before, now))
            if old != new:
                found.append(f"{name}: {package} {old} → {new}")
    if before.sha256 and now.sha256 and before.sha256 != now.sha256:
        found.append(f"{name}: its file has changed ({before.sha256[:8]} → {now.sha256[:8]})")
    return found
