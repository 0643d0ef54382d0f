"""Facts about a run and a result, as text for the terminal and for pages."""

from __future__ import annotations

import shlex
from datetime import datetime
from pathlib import Path

from memory.benchmarking.model.figure_kinds import COMPARES, SURVIVES
from memory.benchmarking.model.loaded_result import LoadedResult
from memory.benchmarking.model.records import Failure, Run, Source, target_info_of


def run_facts(run: Run) -> dict[str, str]:
    """Return the facts about a run, by name; unknown facts are left out."""
    where = run.environment
    facts = {
        "status": run.status,
        "started": started_text(run) + duration_of(run),
        "command": run.command,
        "profile": f"{run.profile}, {run.rounds} rounds, seed {run.seed}",
        "targets": "; ".join(_target_text(run, name) for name in run.targets),
        "revision": revision_text(run),
        **{name: _source_text(source) for name, source in where.sources.items()},
        "machine": f"{where.cpu}, {where.cores} cores, {where.memory_gb:g} GB, {where.os}",
        "disk": where.file_system,
        "python": where.python,
        "packages": ", ".join(f"{name} {version}" for name, version in where.packages.items()),
        "fingerprint": where.fingerprint,
    }
    if not run.times_count:
        facts["parallel"] = f"{run.parallel} rounds at the same time: the timings can't be compared"
    return {name: text for name, text in facts.items() if text}


def _target_text(run: Run, name: str) -> str:
    """Return `chroma (chromadb 1.5.9, durability machine)` and the like; for old runs, only the name."""
    info = run.target_info.get(name)
    if info is None:
        return name
    known = [f"{package} {version}" for package, version in info.versions.items()]
    known += [f"SHA-256 {info.sha256[:12]}"] if info.sha256 else []
    known += [f"durability {info.durability}"] if info.durability else []
    known += [f"search by {info.search_by}"] if info.search_by else []
    known += [f"conformance: {info.conformance}"] if info.conformance else []
    known += [f"environment {info.lock}"] if info.lock else []
    shown = name if name == info.name else f"{info.name} from {name}"
    return f"{shown} ({', '.join(known)})" if known else shown


def _source_text(source: Source) -> str:
    """Return the revision of a source and where it is: `1a2b3c4d5e6f with changes, /home/ann/project`."""
    if not source.revision:
        return f"not in git, {source.path}"
    return f"{source.revision}{' with changes' if source.dirty else ''}, {source.path}"


def repeat_lines(run: Run) -> list[str]:
    """Return the commands that repeat a run: the folder, the revisions, the command itself."""
    if not run.command:
        return []
    lines = [f"cd {shlex.quote(run.folder)}"] if run.folder else []
    where, seen = run.environment, set[str]()
    sources = {name: each for name, each in where.sources.items() if name != "membench"}
    if not sources and where.git_revision and not where.git_dirty:
        lines.append(f"git checkout {where.git_revision}")
    for name in sorted(sources, key=lambda name: name != "current folder"):
        source = sources[name]
        if source.revision and not source.dirty and source.revision not in seen:
            folder = source.path if Path(source.path).suffix != ".py" else str(Path(source.path).parent)
            inside = "" if name == "current folder" else f" -C {shlex.quote(folder)}"
            lines.append(f"git{inside} checkout {source.revision}")
        seen.add(source.revision)
    return [*lines, run.command]


def result_facts(each: LoadedResult) -> dict[str, str]:
    """Return the file and the parameters of a result."""
    facts = {"file": str(each.file.path)}
    params = each.result.metadata.get("params")
    if isinstance(params, dict) and params:
        facts["params"] = ", ".join(f"{name} = {value}" for name, value in params.items())
    info = target_info_of(each.result)
    if info.durability and each.result.metadata.get("write_figures"):
        facts["durability"] = f"{info.durability}: a write survives {SURVIVES.get(info.durability, '?')}"
    if info.search_by and each.result.metadata.get("search_figures"):
        facts["search by"] = f"{info.search_by}: a search compares {COMPARES.get(info.search_by, '?')}"
    return facts


def revision_text(run: Run) -> str:
    """Return the short git revision; empty if there is none."""
    where = run.environment
    return where.git_revision and where.git_revision[:12] + (" with changes" if where.git_dirty else "")


def duration_text(seconds: float) -> str:
    """Return a duration for people: `45 s`, `3 min 20 s`, `2 h 5 min`, `12 days`."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 48 * 3600:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86400} days"


def parse_time(text: str) -> datetime | None:
    """Parse a time of `run.json`; None if it is not in ISO format."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def started_text(run: Run) -> str:
    """Return when a run started, in the time zone of its machine."""
    start = parse_time(run.started_at)
    return start.strftime("%Y-%m-%d %H:%M:%S") if start else run.started_at


def duration_of(run: Run) -> str:
    """Return `, took 5 min 31 s`; empty while the run is in progress."""
    took = time_between(run.started_at, run.finished_at)
    return took and f", took {took}"


def time_between(started_at: str, finished_at: str) -> str:
    """Return the duration between two times of `run.json` as text; empty if it is unknown."""
    start, end = parse_time(started_at), parse_time(finished_at)
    if start is None or end is None:
        return ""
    try:
        return duration_text((end - start).total_seconds())
    except TypeError:  # only one of the two times has a time zone
        return ""


def failures_by_error(run: Run) -> dict[tuple[str, str], list[Failure]]:
    """Group the failed rounds by reason and message."""
    found: dict[tuple[str, str], list[Failure]] = {}
    for failure in run.failures:
        found.setdefault((failure.reason, failure.message), []).append(failure)
    return found
