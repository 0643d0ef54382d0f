"""The league as Markdown, for a document: the table, for whom, and where our own memory is not the best."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from memory.benchmarking.league.model import Axis, Cell, League, System
from memory.benchmarking.league.pictures import names_of
from memory.benchmarking.league.situations import SITUATIONS, rule_texts, verdicts_of
from memory.benchmarking.league.text import SIGNS
from memory.benchmarking.text.display import figure_text, interval_text

OURS = ("agentmemory", "agentmemory-disk", "agentmemory-postgres")
_SERVERS = ("pgvector", "pgvector-exact", "langgraph-postgres", "hindsight", "mcp-memory", "mcp", "http")
"""Systems that run as a server; the others are embedded in the process."""


def as_markdown(league: League, level: int = 2) -> str:
    """Return the league as Markdown. `level` is that of its headings."""
    heading = "#" * level
    parts = [
        _facts(league),
        f"{heading} The table",
        _table(league),
        _notes(league),
        f"{heading} For whom",
        *_situations(league),
    ]
    if any(system.target in OURS for system in league.systems):
        parts += [f"{heading} Where another system is better than ours", _losses(league)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _facts(league: League) -> str:
    run = league.runs[-1]
    where = run.environment
    versions = ", ".join(f"{name} ({system.version or 'this package'})" for system, name in _named(league))
    return (
        f"Measured on {run.started_at[:10]}, profile `{run.profile}`, {run.rounds} rounds, on {where.cpu}, "
        f"{where.cores} cores, {where.memory_gb:g} GB, {where.os}, {where.python}, revision "
        f"`{where.git_revision or 'unknown'}`. Command: `{run.command}`.\n\nVersions: {versions}."
    )


def _named(league: League) -> list[tuple[System, str]]:
    return list(zip(league.systems, names_of(league.systems), strict=True))


def _table(league: League) -> str:
    """Return the table with a row an axis: a document is narrow, and there are more systems than axes."""
    reasons = league.reasons
    heads = ["system", "writes survive", *(_head(axis) for axis in league.axes)]
    lines = [f"| {' | '.join(heads)} |", f"|{' --- |' * len(heads)}"]
    for system, name in _named(league):
        cells = [_cell(league.cell(system.target, axis.key), axis, reasons) for axis in league.axes]
        lines.append(f"| {' | '.join([f'`{name}`', system.durability, *cells])} |")
    return "\n".join(lines)


def _head(axis: Axis) -> str:
    arrow = {"higher": " ↑", "lower": " ↓"}.get(axis.better, "")
    return f"{axis.title}{f', {axis.at}' if axis.at else ''}{arrow}"


def _cell(cell: Cell, axis: Axis, reasons: dict[str, int]) -> str:
    if cell.figure is None:
        return f"n/a ({reasons[cell.reason]})"
    bounds = interval_text(cell.figure.value, cell.figure.low, cell.figure.high, axis.unit)
    more = "; ".join(filter(None, (bounds, cell.detail)))
    sign = SIGNS[cell.standing]
    return f"{sign}{figure_text(cell.figure.value, axis.unit)}{f' ({more})' if more else ''}"


def _notes(league: League) -> str:
    lines = [
        "★ is the best of its column, ≈ is not distinguishable from it (95 %, Holm's correction over "
        "the whole table). Writes and load are ranked among systems of the same durability. Without a "
        "figure:",
        *(f"{number}. {reason}" for reason, number in league.reasons.items()),
    ]
    return "\n\n".join((lines[0], "\n".join(lines[1:]))) if len(lines) > 1 else lines[0]


def _situations(league: League) -> Iterator[str]:
    names = {system.target: name for system, name in _named(league)}
    for situation in SITUATIONS:
        rule = "; ".join(rule_texts(league, situation))
        fitting = [each for each in verdicts_of(league, situation) if each.fits]
        listed = [f"- `{names[each.system.target]}`: {'; '.join(each.facts)}" for each in fitting]
        yield f"**{situation.title}.** Rule: {rule}."
        yield "\n".join(listed) or "No measured system meets the rule."


def losses(league: League, ours: str, peers: Sequence[str]) -> Iterator[tuple[Axis, Cell, str, Cell]]:
    """Yield each axis on which our system is worse than the best of the peers, beyond noise.

    Yields the axis, our cell, the name of the best peer and its cell.
    """
    names = {system.target: name for system, name in _named(league)}
    durability = {system.target: system.durability for system in league.systems}
    for axis in league.axes:
        own = league.cell(ours, axis.key)
        if own.figure is None or own.standing != "worse":
            continue
        sign = -1 if axis.better == "higher" else 1
        found = [
            (sign * cell.figure.value, peer, cell)
            for peer in peers
            if (cell := league.cell(peer, axis.key)).figure is not None
            and (not axis.by_durability or durability[peer] == durability[ours])
        ]
        if found and min(found)[0] < sign * own.figure.value:
            _, peer, cell = min(found, key=lambda each: each[0])
            yield axis, own, names[peer], cell


def _losses(league: League) -> str:
    lines = ["| ours | axis | ours | best embedded peer | best of all |", "| --- | --- | --- | --- | --- |"]
    targets = [system.target for system in league.systems]
    embedded = [target for target in targets if target not in (*OURS, *_SERVERS)]
    others = [target for target in targets if target not in OURS]
    for ours in (target for target in OURS if target in targets):
        near = {axis.key: (name, cell) for axis, _, name, cell in losses(league, ours, embedded)}
        for axis, own, name, cell in losses(league, ours, others):
            peer = _peer(*near[axis.key], axis) if axis.key in near else "none is better"
            mine = figure_text(own.figure.value, axis.unit) if own.figure else ""
            lines.append(f"| `{ours}` | {axis.title} | {mine} | {peer} | {_peer(name, cell, axis)} |")
    if len(lines) == 2:
        return "On no axis is another system better beyond noise."
    return "\n".join(lines)


def _peer(name: str, cell: Cell, axis: Axis) -> str:
    figure = figure_text(cell.figure.value, axis.unit) if cell.figure else ""
    return f"`{name}` {figure}"
