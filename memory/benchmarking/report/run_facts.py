"""What a run and a result say of themselves, the same on the terminal and on the page."""

from __future__ import annotations

from datetime import datetime

from memory.benchmarking.model.loaded_result import LoadedResult
from memory.benchmarking.model.records import Run


def run_facts(run: Run) -> dict[str, str]:
    """Name to text; what is not known is left out."""
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
    if not run.gates:
        facts["parallel"] = f"{run.parallel} rounds side by side: the times are no measure of speed"
    return {name: text for name, text in facts.items() if text}


def result_facts(each: LoadedResult) -> dict[str, str]:
    facts = {"file": str(each.file.path)}
    params = each.result.metadata.get("params")
    if isinstance(params, dict) and params:
        facts["params"] = ", ".join(f"{name} = {value}" for name, value in params.items())
    return facts


def revision_text(run: Run) -> str:
    where = run.environment
    return where.git_revision and where.git_revision[:12] + (" with changes" if where.git_dirty else "")


def duration_text(seconds: float) -> str:
    """`45 s`, `3 min 20 s`, `2 h 5 min`, `12 days`."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 48 * 3600:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86400} days"


def parse_time(text: str) -> datetime | None:
    """A time of a run's record."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def started_text(run: Run) -> str:
    start = parse_time(run.started_at)
    return start.strftime("%Y-%m-%d %H:%M:%S") if start else run.started_at


def duration_of(run: Run) -> str:
    """`, took 5 min 31 s`; empty while it goes on."""
    start, end = parse_time(run.started_at), parse_time(run.finished_at)
    if start is None or end is None:
        return ""
    try:
        return f", took {duration_text((end - start).total_seconds())}"
    except TypeError:  # one of them has a time zone and the other has none
        return ""
