"""A comparison for a pull request or a job summary, in GitHub's Markdown."""

from __future__ import annotations

import re
from collections.abc import Sequence

from memory.benchmarking.text.display import clean
from memory.benchmarking.verdicts.records import Comparison, MetricVerdict, Verdict
from memory.benchmarking.verdicts.words import (
    conclusion,
    count_text,
    figures_text,
    has_targets,
    in_order,
    questions_text,
    ranks_text,
    reasoned_text,
    sees_text,
)

MOST_ROWS = 50
"""The most rows of one table: GitHub limits a comment to 65,536 characters and a summary to 1 MB."""
_MARKS: dict[Verdict, str] = {
    "regressed": "🔴", "missing": "🔴", "incomparable": "🟠", "improved": "🟢", "inconclusive": "🟡",
}  # fmt: skip
_PLAIN = re.compile(r"[\w .\-→%()≥·,/]")


def as_markdown(comparison: Comparison, *, show_all: bool = False, strict: bool = False) -> str:
    """Return the comparison as Markdown.

    `show_all` lists all rows and the unchanged metrics; `strict` counts undecided metrics as failures.
    """
    parts = [
        f"### {conclusion(comparison, strict)}",
        f"{_code(comparison.base)} → {_code(comparison.current)}: {count_text(comparison)}",
    ]
    if comparison.environment_differences:
        parts.append(_bullets("The environments differ:", comparison.environment_differences))
    if comparison.problems:
        parts.append(_bullets("Not to be trusted:", comparison.problems))
    open_ones: tuple[Verdict, ...] = ("regressed", "missing", "incomparable", "improved")
    for verdict in open_ones:
        found = in_order(comparison, verdict)
        if found:
            parts.append(f"#### {_MARKS[verdict]} {verdict}\n\n{_table(comparison, found, show_all)}")
    folded: tuple[Verdict, ...] = ("inconclusive", "new")
    for verdict in (*folded, "unchanged") if show_all else folded:
        found = in_order(comparison, verdict)
        if found:
            mark = _MARKS.get(verdict, "")
            parts.append(
                f"<details><summary>{mark} {len(found):,} {verdict}</summary>\n\n"
                f"{_table(comparison, found, show_all)}\n\n</details>"
            )
    if comparison.questions:
        parts.append(_questions(comparison))
    if comparison.notes:
        parts.append(_bullets("Notes:", comparison.notes))
    return "\n\n".join(parts) + "\n"


def escaped(text: str) -> str:
    """Return text in which entities replace all special characters of Markdown and HTML."""
    plain = " ".join(clean(text.replace("\n", " ").replace("\r", " ")).split())
    return "".join(
        character if _PLAIN.match(character) and not _is_emphasis(plain, place) else f"&#{ord(character)};"
        for place, character in enumerate(plain)
    )


def _is_emphasis(text: str, place: int) -> bool:
    """Whether an underscore could start emphasis: at the start or end of a word, not inside it."""
    if text[place] != "_":
        return False
    around = text[max(0, place - 1) : place] + text[place + 1 : place + 2]
    return len(around) < 2 or not around.isalnum()


def _code(text: str) -> str:
    return f"<code>{escaped(text)}</code>"


def _table(comparison: Comparison, found: Sequence[MetricVerdict], show_all: bool) -> str:
    shown = found if show_all else found[:MOST_ROWS]
    with_target = has_targets(comparison)
    lines = [
        "| benchmark | metric | base → current | change (95 % interval) | sees from |",
        "| --- | --- | --- | --- | ---: |",
    ]
    for each in shown:
        name = each.name + (f" on {each.target}" if with_target else "")
        cells = (
            _code(name),
            _code(each.path) if each.path else "",
            escaped(figures_text(each)),
            escaped(reasoned_text(each)),
            escaped(sees_text(each)),
        )
        lines.append(f"| {' | '.join(cells)} |")
    if len(found) > len(shown):
        lines.append(f"\n… and {len(found) - len(shown):,} more")
    return "\n".join(lines)


def _questions(comparison: Comparison) -> str:
    """Return all questions that changed sides, the worst first."""
    lines = [
        "| | data set | kind | ranks: base → current | question |",
        "| --- | --- | --- | --- | --- |",
    ]
    for each in comparison.questions:
        cells = (
            "🔴" if each.change < 0 else "🟢",
            _code(each.place),
            escaped(each.kind),
            escaped(f"{ranks_text(each.before)} → {ranks_text(each.now)}"),
            escaped(each.text),
        )
        lines.append(f"| {' | '.join(cells)} |")
    body = "\n".join(lines)
    return f"<details><summary>{questions_text(comparison)}</summary>\n\n{body}\n\n</details>"


def _bullets(title: str, lines: Sequence[str]) -> str:
    return "\n".join([title, "", *(f"- {escaped(line)}" for line in lines)])
