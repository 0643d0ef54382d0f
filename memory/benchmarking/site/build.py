"""Builds the site: verifies the bundles, groups what can be compared, and writes the pages.

index.html              the leagues, the systems, the bundles
leagues/<key>.html      the league of one kind of machine, from all bundles of it
systems/<name>.html     one system on all machines
bundles/<name>.html     what a bundle contains, and what its verification found
bundles/<name>.zip      the bundle itself
"""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from memory.benchmarking.bundles.verify import Verification, verify_bundle
from memory.benchmarking.errors import BenchmarkError, NothingMeasured, UnknownName
from memory.benchmarking.league.gather import Source, league_of
from memory.benchmarking.league.model import League
from memory.benchmarking.league.sources import unpacked_runs
from memory.benchmarking.model.files import write_whole
from memory.benchmarking.model.records import Run


@dataclass(frozen=True)
class Bundle:
    """One bundle of the folder, and what its verification found."""

    path: Path
    name: str
    found: Verification
    runs: tuple[Source, ...] = ()
    """Empty if the bundle is wrong: nothing of it is shown but the problems."""


@dataclass(frozen=True)
class Group:
    """Runs that can stand in one table: the same machine, versions, profile, seed and parameters."""

    key: str
    title: str
    sources: tuple[tuple[Bundle, Source], ...]
    league: League


@dataclass
class Site:
    """What was built."""

    bundles: list[Bundle] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)

    @property
    def refused(self) -> list[Bundle]:
        """The bundles that are wrong."""
        return [bundle for bundle in self.bundles if not bundle.found.is_right]


def build_site(folder: Path, out: Path, trusted: Collection[str] | None = None) -> Site:
    """Write the site of all bundles of a folder.

    Args:
        folder: has the bundles, as `*.zip`; folders inside are searched too.
        out: the folder of the site.
        trusted: fingerprints of keys; only bundles that one of them signed are shown. None shows all.
    """
    from memory.benchmarking.site.pages import pages_of

    if not folder.is_dir():
        raise UnknownName(f"there is no folder {folder}")
    paths = sorted(folder.rglob("*.zip"))
    if not paths:
        raise NothingMeasured(f"there are no bundles in {folder}: make one with `membench results bundle`")
    site = Site()
    with tempfile.TemporaryDirectory(prefix="membench-site-") as scratch:
        names = _names(folder, paths)
        for number, path in enumerate(paths):
            site.bundles.append(_read(path, names[number], Path(scratch) / str(number), trusted))
        site.groups = _grouped(site.bundles)
        for name, content in pages_of(site).items():
            write_whole(out / name, content.encode("utf-8", "replace"))
    for bundle in site.bundles:
        if bundle.found.is_right:
            write_whole(out / "bundles" / f"{bundle.name}.zip", bundle.path.read_bytes())
    return site


def slug(text: str) -> str:
    """Return a name for a file."""
    kept = re.sub(r"[^a-zA-Z0-9._-]+", "-", text).strip("-.")[:60]
    return kept or hashlib.sha256(text.encode()).hexdigest()[:8]


def _names(folder: Path, paths: Sequence[Path]) -> list[str]:
    """Return a name for each bundle; two of the same name get their folders in front."""
    stems = [path.stem for path in paths]
    return [
        slug(path.stem if stems.count(path.stem) == 1 else str(path.relative_to(folder).with_suffix("")))
        for path in paths
    ]


def _read(path: Path, name: str, scratch: Path, trusted: Collection[str] | None) -> Bundle:
    try:
        found = verify_bundle(path, trusted)
        runs = tuple(unpacked_runs(path, scratch)) if found.is_right else ()
    except BenchmarkError as problem:
        from memory.benchmarking.bundles.verify import Problem

        return Bundle(path, name, Verification([Problem("", str(problem))]))
    return Bundle(path, name, found, runs)


def _grouped(bundles: Sequence[Bundle]) -> list[Group]:
    """Return the groups, the newest first. Runs that can't be compared are never in the same one."""
    found: dict[str, list[tuple[Bundle, Source]]] = {}
    for bundle in bundles:
        for source in bundle.runs:
            if source[1].suite:
                found.setdefault(_comparable(source[1]), []).append((bundle, source))
    groups = [
        Group(key, _title(sources[0][1][1]), tuple(sources), league_of([source for _, source in sources]))
        for key, sources in found.items()
    ]
    return sorted(groups, key=lambda group: group.league.runs[-1].started_at, reverse=True)


def _comparable(run: Run) -> str:
    """Return a key that is the same for runs whose figures may stand in one table."""
    params = {case.name: case.params for case in run.cases}
    what = [run.environment.fingerprint, run.profile, run.seed, run.rounds, params, run.suite]
    digest = hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:8]
    return f"{slug(run.environment.cpu)}-{run.profile}-{digest}"


def _title(run: Run) -> str:
    where = run.environment
    return f"{where.cpu}, {where.cores} cores, {where.memory_gb:g} GB, {where.os}, {run.profile}"
