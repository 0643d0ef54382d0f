"""Parts of pages: tables of figures, failures, facts and verdicts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from memory.benchmarking.metrics import Metric
from memory.benchmarking.model.figure_kinds import kinds_of
from memory.benchmarking.model.paths import leaf_of, read_path, split_leaf
from memory.benchmarking.model.records import Figure, Run
from memory.benchmarking.report.charts import Chart
from memory.benchmarking.report.gather import GatheredResults, short_name, words
from memory.benchmarking.report.insights import Insight
from memory.benchmarking.report.markup import Child, Markup, element, join, with_code
from memory.benchmarking.report.run_facts import failures_by_error, repeat_lines, run_facts
from memory.benchmarking.report.sources import Source, names
from memory.benchmarking.text.display import NOTHING, figure_text, interval_text, with_interval
from memory.benchmarking.verdicts.records import Comparison, MetricVerdict, Verdict
from memory.benchmarking.verdicts.words import change_text, count_text, in_order

Judged = dict[tuple[str, str], MetricVerdict]
"""The verdicts on one benchmark, by target and path."""
MOST_VERDICTS = 40
"""The largest number of verdicts of one kind that are listed openly; the others are folded."""
MOST_COLUMNS = 3
"""The number of columns of charts on a wide screen."""
UNFOLDED = 3
"""The largest number of different errors that are listed openly; a longer list is folded."""
_BETTER = {"higher": "higher is better", "lower": "lower is better", "neither": ""}
_TONES: dict[Verdict, str] = {"regressed": "bad", "improved": "good", "inconclusive": "warn"}


def table(
    head: Sequence[str],
    rows: Sequence[Markup],
    label: str,
    numbers: Iterable[int] = (),
    kind: str | None = None,
) -> Markup:
    """Return a table that scrolls if it is too wide. For the keyboard and screen readers it has a tab stop.

    - `label`: the name for screen readers.
    - `numbers`: the columns of numbers, which are right-aligned.
    - `kind`: a CSS class of the table.
    """
    right = set(numbers)
    cells = [
        element("th", text, scope="col", class_="n" if place in right else None)
        for place, text in enumerate(head)
    ]
    inner = element("table", element("thead", element("tr", cells)), element("tbody", rows), class_=kind)
    return element("div", inner, class_="wide", tabindex="0", role="region", aria_label=label)


def facts(named: Mapping[str, str]) -> Markup:
    """Return names and values as a list; empty values are left out."""
    pairs = ((element("dt", name), element("dd", value)) for name, value in named.items() if value)
    return element("dl", join(pairs), class_="facts")


def note(*texts: Child, tone: str = "") -> Markup:
    """Return a paragraph that stands out. `tone` is good, warn, bad or empty."""
    return element("p", texts, class_=f"note {tone}".strip())


def mark(text: str, tone: str = "") -> Markup:
    """Return a short status word; see `note` for `tone`."""
    return element("span", text, class_=f"mark {tone}".strip())


def anchor(name: str) -> str:
    """Return an id for a part of the page, safe to use in a link."""
    return "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in name)


def count(number: int, what: str) -> str:
    """Return `1 round`, `2 rounds`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def path_words(path: str, *, tier: bool = True) -> str:
    """Return a path for people: `median: stm, single` for `stm/single/p50_ms`.

    `tier` is whether the tier is shown.
    """
    place = read_path(path)
    names = ("", "", *place.parameters)
    where = words(place.tier if tier else None, place.part, *place.parameters.values(), names=names)
    name = short_name(place.metric)
    return f"{name}: {where}" if where else name


# -- insights and failures --------------------------------------------------------------------


def insight_list(found: Sequence[Insight]) -> Markup | None:
    """Return insights as a list, each with a sign and a link to its benchmark."""
    if not found:
        return None
    signs = {"bad": "✕", "warn": "!", "good": "✓", "": "·"}
    spoken = {"bad": "Bad: ", "warn": "Warning: ", "good": "Good: ", "": ""}
    items = []
    for each in found:
        link = element("a", "show", href=f"#{anchor(each.about)}") if each.about else None
        sign = element("span", signs[each.tone], class_=f"sign {each.tone}", aria_hidden="true")
        prefix = element("span", spoken[each.tone], class_="hidden-text") if each.tone else None
        text = element("span", prefix, with_code(each.text), " " if link else None, link)
        items.append(element("li", sign, text))
    return element("ul", items, class_="insights")


def failures(run: Run) -> Markup | None:
    """Return the errors of a run. Each error is shown once, with the rounds that it caused to fail."""
    if not run.failures:
        return None
    alike = {
        error: [f"{each.case}, round {each.round + 1}" for each in failed]
        for error, failed in failures_by_error(run).items()
    }
    rows = [
        element(
            "tr",
            element("th", element("pre", message), scope="row"),
            element("td", reason),
            element(
                "td", places[0], f" and {count(len(places) - 1, 'more round')}" if places[1:] else None
            ),
        )
        for (reason, message), places in alike.items()
    ]
    shown = table(("message", "reason", "round"), rows, "Failed rounds")
    everywhere = [
        element("li", place)
        for places in alike.values()
        for place in places
        if len(run.failures) > len(alike)
    ]
    return element(
        "div",
        element("p", element("strong", f"{count(len(run.failures), 'round')} failed"), class_="bad"),
        shown if len(alike) <= UNFOLDED else folded("All errors", shown),
        folded("All failed rounds", element("ul", everywhere)) if everywhere else None,
        class_="note bad",
    )


def folded(summary: str, content: Child) -> Markup:
    """Return content that is shown after a click on its summary."""
    return element("details", element("summary", summary), content)


# -- figures ----------------------------------------------------------------------------------


def headlines(
    gathered: Sequence[GatheredResults],
    sources: Sequence[Source],
    leads_to: Callable[[GatheredResults], str] | None = None,
) -> Markup:
    """Return a table of the headline figure of each benchmark, with a column for each source.

    `leads_to` returns the address of a page about a headline, such as its history.
    """
    several = len(sources) > 1
    head = ["Benchmark", *(names(sources) if several else ["Figure", "95 % interval"]), "Metric", ""]
    cells = [
        element("th", text, scope="col", class_="n" if 0 < place < len(head) - 2 else None,
                data_s=place - 1 if several and 0 < place <= len(sources) else None)
        for place, text in enumerate(head)
    ]  # fmt: skip
    rows = []
    category = ""
    for each in gathered:
        if each.category != category:
            category = each.category
            title = element("th", category, class_="group", colspan=len(head), scope="colgroup")
            rows.append(element("tr", title))
        rows.append(_headline_row(each, sources, leads_to))
    inner = element("table", element("thead", element("tr", cells)), element("tbody", rows))
    return element(
        "div", inner, class_="wide headlines", tabindex="0", role="region", aria_label="Headline figures"
    )


def _headline_row(
    each: GatheredResults, sources: Sequence[Source], leads_to: Callable[[GatheredResults], str] | None
) -> Markup:
    path = each.headline
    leaf = leaf_of(path)
    link = element("a", each.benchmark, href=f"#{anchor(each.name)}")
    metric = each.metric(leaf)
    # Use each result's own headline: a target without tiers has the same metric at another path.
    found = {
        number: result.result.metrics.get(result.headline)
        for number, result in each.results
        if leaf_of(result.headline) == leaf
    }
    cells: list[Markup] = []
    if len(sources) > 1:
        for number in range(len(sources)):
            figure = found.get(number)
            cells.append(element("td", _whole(figure, metric), class_="n", data_s=number))
    elif (figure := found.get(0)) is None:
        why = next(
            (why for _, result in each.results for why in result.not_available.values()), "no figures"
        )
        return element(
            "tr",
            element("th", link, scope="row"),
            element("td", "n/a", class_="n"),
            element("td", why, colspan=3),
        )
    else:
        bounds = interval_text(figure.value, figure.low, figure.high, metric.unit)
        cells += [
            element("td", element("strong", figure_text(figure.value, metric.unit)), class_="n"),
            element("td", bounds or NOTHING, class_="n"),
        ]
    what = path_words(path) if path else NOTHING
    kinds: dict[str, dict[str, None]] = {}
    for _, result in each.results:
        for name, kind in kinds_of(result.result, result.headline).items():
            kinds.setdefault(name, {})[kind] = None
    what += "".join(f", {name} {' and '.join(found)}" for name, found in kinds.items())
    if path and leads_to is not None:
        what = element("a", what, href=leads_to(each))
    better = element("td", _BETTER[metric.better], class_="soft")
    return element("tr", element("th", link, scope="row"), cells, element("td", what), better)


def _whole(figure: Figure | None, metric: Metric) -> str:
    if figure is None:
        return NOTHING
    return with_interval(figure.value, figure.low, figure.high, metric.unit)


def all_figures(each: GatheredResults, sources: Sequence[Source], judged: Judged) -> Markup:
    """Return a table of all figures of a benchmark, with a column for each source that has figures."""
    present = sorted({number for number, _ in each.results})
    by_path: dict[str, dict[int, Figure]] = {}
    for row in each.rows:
        by_path.setdefault(row.path, {})[row.source] = row.figure
    if not by_path:
        return element("p", "No figures.", class_="soft")
    several = len(present) > 1
    titles = [sources[number].name for number in present] if several else ["value and 95 % interval"]
    head = ["figure", *titles, *(["since the baseline"] if judged else []), "better"]
    width = len(head)
    rows = []
    group = None
    for path, figures in by_path.items():
        where, leaf = split_leaf(path)
        if where != group:
            group = where
            if where:
                rows.append(
                    element("tr", element("th", where, class_="group", colspan=width, scope="colgroup"))
                )
        metric = each.metric(leaf)
        cells = [
            element(
                "td", _whole(figures.get(number), metric), class_="n", data_s=number if several else None
            )
            for number in present
        ]
        if judged:
            target = sources[next(iter(figures))].target
            cells.append(element("td", _verdict_cell(judged.get((target, path)))))
        better = metric.better if metric.better != "neither" else NOTHING
        rows.append(element("tr", element("th", leaf, scope="row"), cells, element("td", better)))
    shown = table(head, rows, f"All figures of {each.name}", range(1, 1 + len(titles)))
    return folded(f"All {count(len(by_path), 'figure')}" if len(by_path) > 1 else "1 figure", shown)


def span_of(chart: Chart) -> int:
    """Return how many columns of the page a chart takes: one for each panel, up to `MOST_COLUMNS`."""
    return min(MOST_COLUMNS, len(chart.panels))


# -- verdicts ---------------------------------------------------------------------------------


def _verdict_cell(each: MetricVerdict | None) -> list[Child]:
    if each is None:
        return [NOTHING]
    badge = mark(each.verdict, _TONES.get(each.verdict, "")) if each.verdict else None
    return [badge, " " if badge else None, change_text(each)]


def verdict_tables(comparison: Comparison) -> Markup:
    """Return the notes of a comparison, then what regressed and improved, largest changes first."""
    parts: list[Child] = [element("p", element("strong", count_text(comparison)), ".")]
    if not comparison.comparable:
        differences = "; ".join(comparison.environment_differences)
        parts.append(note("The environments differ, so nothing is judged: ", differences, tone="warn"))
    if comparison.notes:
        items = [element("li", with_code(text)) for text in comparison.notes]
        parts.append(element("ul", items, class_="note warn"))
    for verdict in ("regressed", "improved"):
        found = in_order(comparison, verdict)
        if found:
            title = element("h3", f"{count(len(found), 'figure')} {verdict}")
            parts += [title, verdict_table(found[:MOST_VERDICTS], f"Figures that {verdict}")]
            if len(found) > MOST_VERDICTS:
                parts.append(
                    folded(f"{len(found) - MOST_VERDICTS} more",
                            verdict_table(found[MOST_VERDICTS:], f"More figures that {verdict}"))
                )  # fmt: skip
    inconclusive = in_order(comparison, "inconclusive")
    if inconclusive:
        shown = verdict_table(inconclusive[:200], "Inconclusive figures")
        parts.append(folded(f"{count(len(inconclusive), 'figure')} inconclusive", shown))
    return join(parts)


def verdict_table(found: Sequence[MetricVerdict], label: str) -> Markup:
    """Return a table of verdicts. `label` is the name for screen readers."""
    rows = [
        element(
            "tr",
            element("th", element("a", each.name, href=f"#{anchor(each.name)}"), scope="row"),
            element("td", each.path),
            element("td", figure_text(each.base, each.unit), class_="n"),
            element("td", figure_text(each.current, each.unit), class_="n"),
            element("td", _verdict_cell(each)),
        )
        for each in found
    ]
    return table(("benchmark", "figure", "before", "now", "change"), rows, label, (2, 3))


# -- the run ---------------------------------------------------------------------------------


def about_run(run: Run) -> Markup:
    """Return the commands that repeat a run, and the facts about it."""
    known = run_facts(run)
    known.pop("command", "")
    lines = repeat_lines(run)
    repeat = element(
        "div",
        element("p", "To repeat it:", class_="soft"),
        element("pre", element("code", "\n".join(lines), class_="command")),
    )
    changed = None
    if run.environment.git_dirty:
        changed = element(
            "p",
            "It ran with uncommitted changes: the revision alone does not reproduce it.",
            class_="soft",
        )
    return element("div", repeat if lines else None, changed, facts(known))
