"""A comparison for the terminal: changes first, unchanged metrics in one line."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence

from memory.benchmarking.text.display import clean, paragraph, table, text_width
from memory.benchmarking.verdicts.records import Comparison, MetricVerdict
from memory.benchmarking.verdicts.words import (
    ORDER,
    conclusion,
    figures_text,
    has_targets,
    in_order,
    place_text,
    questions_text,
    ranks_text,
    reasoned_text,
    sees_text,
)

MOST_QUESTIONS = 10
"""The most questions that changed sides that are listed without `show_all`."""
MOST_UNDECIDED = 10
"""The most inconclusive metrics that are listed without `show_all`."""
_SHOWN_WHOLE = ("regressed", "improved", "missing", "incomparable")


def as_table(
    comparison: Comparison,
    *,
    show_all: bool = False,
    strict: bool = False,
    width: int | None = None,
    heading: Callable[[str], str] = str,
) -> str:
    """Return the comparison as text.

    `show_all` lists every metric; `strict` counts undecided metrics as failures; `width` is the terminal's;
    `heading` marks titles, with colours for example.
    """
    parts = [paragraph(f"{clean(comparison.base)}  →  {clean(comparison.current)}", width)]
    if comparison.environment_differences:
        parts.append("the environments differ:\n" + _bullets(comparison.environment_differences, width))
    if comparison.problems:
        parts.append(heading("NOT TO BE TRUSTED") + "\n" + _bullets(comparison.problems, width))
    for verdict in ORDER:
        found = in_order(comparison, verdict)
        if not found:
            continue
        title = f"{verdict} ({len(found):,})"
        if verdict in ("regressed", "improved"):
            title = heading(title.upper())
        if show_all or verdict in _SHOWN_WHOLE:
            parts.append(f"{title}\n{_lines(comparison, found, width)}")
        elif verdict == "inconclusive":
            shown = found[:MOST_UNDECIDED]
            more = len(found) - len(shown)
            tail = f"\n  … and {more:,} more (--all shows them)" if more else ""
            parts.append(f"{title}\n{_lines(comparison, shown, width)}{tail}")
        elif verdict == "unchanged":
            parts.append(f"{title}{_within(found)}")
        else:
            parts.append(paragraph(f"{title}: {_names(found)}", width))
    rest = in_order(comparison, None)
    if rest:
        text = f"shown, not judged ({len(rest):,})"
        parts.append(f"{text}\n{_lines(comparison, rest, width)}" if show_all else f"{text}: see --all")
    if comparison.questions:
        parts.append(_questions(comparison, show_all))
    if comparison.notes:
        parts.append("notes:\n" + _bullets(comparison.notes, width))
    parts.append(heading(paragraph(conclusion(comparison, strict), width, further="")))
    return "\n\n".join(parts) + "\n"


def _lines(comparison: Comparison, found: Sequence[MetricVerdict], width: int | None) -> str:
    """Return a line for each metric, or several where one would be too wide: words are never cut."""
    with_target = has_targets(comparison)
    rows = [
        (
            place_text(each, with_target=with_target),
            figures_text(each) if each.path else "",
            reasoned_text(each),
            sees_text(each) if each.path else "",
        )
        for each in found
    ]
    headers = ("metric", "base → current", "change (95 % interval)", "sees from")
    one_line_each = table(rows, headers, right=(3,), indent="  ")
    if width is None or max(map(text_width, one_line_each.splitlines())) <= width:
        return one_line_each
    lines = []
    for place, figures, change, sees in rows:
        lines.append(paragraph(clean(place), width, "  "))
        details = [part for part in (figures, change, sees and f"sees from {sees}") if part]
        lines.append(paragraph(clean("; ".join(details)), width, "      "))
    return "\n".join(lines)


def _questions(comparison: Comparison, show_all: bool) -> str:
    """Return the questions that changed sides, the worst first."""
    found = comparison.questions
    shown = found if show_all else found[:MOST_QUESTIONS]
    rows = [
        (
            "lost" if each.change < 0 else "gained",
            each.kind,
            f"{ranks_text(each.before)} → {ranks_text(each.now)}",
            each.text,
        )
        for each in shown
    ]
    more = len(found) - len(shown)
    tail = f"\n  … and {more:,} more (--all shows them)" if more else ""
    lines = table(rows, ("", "kind", "ranks: base → current", "question"), indent="  ")
    return f"{questions_text(comparison)}\n{lines}{tail}"


def _within(found: Sequence[MetricVerdict]) -> str:
    """Return the smallest change that the comparison would have found."""
    shares = [each.detectable for each in found if each.scale == "ratio" and each.detectable is not None]
    if not shares:
        return ""
    return f": a change of {statistics.median(shares):.1%} would have been found in half of them".replace(
        "%", " %"
    )


def _names(found: Iterable[MetricVerdict]) -> str:
    counts: dict[str, int] = {}
    for each in found:
        counts[each.name] = counts.get(each.name, 0) + 1
    return clean(", ".join(f"{name} ({count})" if count > 1 else name for name, count in counts.items()))


def _bullets(lines: Iterable[str], width: int | None) -> str:
    return "\n".join(paragraph(clean(line), width, "  ") for line in lines)
