"""Facts about a run and a result, as text for the terminal and for pages."""

from __future__ import annotations

from datetime import datetime

from memory.benchmarking.model.loaded_result import LoadedResult
from memory.benchmarking.model.records import Failure, Run


def run_facts(run: Run) -> dict[str, str]:
    """Return the facts about a run, by name; unknown ones are left out."""
    where = run.environment
    facts = {
        "status": run.status,
        "started": started_text(run) + duration_of(run),
        "command": run.command,
        "profile": f"{run.profile}, {run.rounds} rounds, seed {run.seed}",
        "targets": ", ".join(run.targets),
        "revision": revision_text(run),
        "machine": f"{where.cpu}, {where.cores} cores, {where.memory_gb:g} GB, {where.os}",
        "disk": where.file_system,
        "python": where.python,
        "packages": ", ".join(f"{name} {version}" for name, version in where.packages.items()),
        "fingerprint": where.fingerprint,
    }
    if not run.times_count:
        facts["parallel"] = f"{run.parallel} rounds at the same time: the timings can't be compared"
    return {name: text for name, text in facts.items() if text}


def result_facts(each: LoadedResult) -> dict[str, str]:
    """Return the file and the parameters of a result."""
    facts = {"file": str(each.file.path)}
    params = each.result.metadata.get("params")
    if isinstance(params, dict) and params:
        facts["params"] = ", ".join(f"{name} = {value}" for name, value in params.items())
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
    """Return the time between two times of `run.json`; empty if it is unknown."""
    start, end = parse_time(started_at), parse_time(finished_at)
    if start is None or end is None:
        return ""
    try:
        return duration_text((end - start).total_seconds())
    except TypeError:  # only one of them has a time zone
        return ""


def failures_by_error(run: Run) -> dict[tuple[str, str], list[Failure]]:
    """Group the failed rounds by reason and message."""
    found: dict[tuple[str, str], list[Failure]] = {}
    for failure in run.failures:
        found.setdefault((failure.reason, failure.message), []).append(failure)
    return found
