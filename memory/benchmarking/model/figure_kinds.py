"""What a figure measured besides its number: what its writes survive, and what its searches compare."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

from memory.benchmarking.model.records import Result, TargetInfo, target_info_of

SURVIVES = {
    "ram": "nothing: a killed process loses acknowledged writes",
    "process": "a killed process, not a power failure",
    "machine": "a power failure",
}
"""What an acknowledged write survives, by durability class."""
COMPARES = {
    "words": "the words of the question with those of the memories",
    "vector": "the vector of the question with those of the memories",
    "both": "words and vectors, in one ranking",
}
"""What a search compares, by `search_by` of the target's capabilities."""


def is_write(result: Result, path: str) -> bool:
    """Return whether a figure measures writes, as its benchmark declared."""
    return _declared(result, "write_figures", path)


def is_search(result: Result, path: str) -> bool:
    """Return whether a figure measures searches by text or by vector, as its benchmark declared."""
    return _declared(result, "search_figures", path) or _declared(result, "vector_figures", path)


def _declared(result: Result, kind: str, path: str) -> bool:
    patterns = result.metadata.get(kind)
    return isinstance(patterns, str) and any(fnmatchcase(path, each) for each in patterns.split("|"))


def durability_of(result: Result, path: str) -> str:
    """Return the durability class of a write figure; empty for other figures and for old results."""
    if not is_write(result, path):
        return ""
    return target_info_of(result).durability


def search_by_of(result: Result, path: str) -> str:
    """Return what the searches of a figure compare; empty for other figures and for old results."""
    if _declared(result, "vector_figures", path):
        return "vector"
    return target_info_of(result).search_by if _declared(result, "search_figures", path) else ""


def kinds_of(result: Result, path: str) -> dict[str, str]:
    """Return what stands beside a figure: `{"durability": "process", "search by": "both"}`, or less."""
    found = {"durability": durability_of(result, path), "search by": search_by_of(result, path)}
    return {name: kind for name, kind in found.items() if kind}


def kinds_text(kinds: Mapping[str, str]) -> str:
    """Return `, durability: process, search by: both` to follow a path; empty without kinds."""
    return "".join(f", {name}: {kind}" for name, kind in kinds.items())


def different_kinds(results: Iterable[Result]) -> list[str]:
    """Return a sentence for each kind in which the targets of these results differ.

    Two durability classes, or two kinds of search, are never shown side by side without these sentences.
    """
    survive: dict[str, dict[str, None]] = {}
    compare: dict[str, dict[str, None]] = {}
    for result in results:
        info = target_info_of(result)
        if result.metadata.get("write_figures") and info.durability in SURVIVES:
            survive.setdefault(info.durability, {})[info.name] = None
        if result.metadata.get("search_figures") and info.search_by in COMPARES:
            compare.setdefault(info.search_by, {})[info.name] = None
    found = []
    if len(survive) > 1:
        found.append(
            "writes do not promise the same: "
            + "; ".join(
                f"those of {', '.join(names)} survive {SURVIVES[kind]} ({kind})"
                for kind, names in survive.items()
            )
        )
    if len(compare) > 1:
        found.append(
            "searches do not compare the same: "
            + "; ".join(
                f"those of {', '.join(names)} compare {COMPARES[kind]} ({kind})"
                for kind, names in compare.items()
            )
        )
    return found


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
