"""Pieces that pages of results are made of: tables of figures, failures, facts, verdicts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from memory.benchmarking.metrics import Metric
from memory.benchmarking.model.paths import leaf_of, read_path, split_leaf
from memory.benchmarking.model.records import Figure, Run
from memory.benchmarking.report.charts import Chart
from memory.benchmarking.report.gather import Gathered, short_name, words
from memory.benchmarking.report.insights import Insight
from memory.benchmarking.report.markup import Child, Markup, element, join, with_code
from memory.benchmarking.report.run_facts import run_facts
from memory.benchmarking.report.sources import Source, names
from memory.benchmarking.text.display import NOTHING, figure_text, interval_text, with_interval
from memory.benchmarking.verdicts.records import Comparison, MetricVerdict, Verdict
from memory.benchmarking.verdicts.words import change_text, count_text, in_order

Judged = dict[tuple[str, str], MetricVerdict]
"""The verdicts on one benchmark, by target and path."""
MOST_VERDICTS = 40
"""Of one kind that are listed at once."""
MOST_COLUMNS = 3
"""Of charts beside each other, on a wide screen."""
UNFOLDED = 3
"""Kinds of failures that are shown at once."""
_BETTER = {"higher": "higher is better", "lower": "lower is better", "neither": ""}
_TONES: dict[Verdict, str] = {"regressed": "bad", "improved": "good", "inconclusive": "warn"}


def table(
    head: Sequence[str],
    rows: Sequence[Markup],
    label: str,
    numbers: Iterable[int] = (),
    kind: str | None = None,
) -> Markup:
    """Scrolls by itself where it is too wide, so it can be reached by key and has a name.

    `kind` is a class of the table, for what a stylesheet does with it.
    """
    right = set(numbers)
    cells = [
        element("th", text, scope="col", class_="n" if place in right else None)
        for place, text in enumerate(head)
    ]
    inner = element("table", element("thead", element("tr", cells)), element("tbody", rows), class_=kind)
    return element("div", inner, class_="wide", tabindex="0", role="region", aria_label=label)


def facts(named: Mapping[str, str]) -> Markup:
    pairs = ((element("dt", name), element("dd", value)) for name, value in named.items() if value)
    return element("dl", join(pairs), class_="facts")


def note(*texts: Child, tone: str = "") -> Markup:
    return element("p", texts, class_=f"note {tone}".strip())


def mark(text: str, tone: str = "") -> Markup:
    return element("span", text, class_=f"mark {tone}".strip())


def anchor(name: str) -> str:
    """An id for a part of the page; what is no letter or digit would be no address."""
    return "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in name)


def count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def path_words(path: str) -> str:
    """`median: stm, single` for `stm/single/p50_ms`; raw paths stand in the tables of all figures."""
    place = read_path(path)
    where = words(
        place.tier, place.part, *place.parameters.values(), names=("", "", *place.parameters)
    )  # fmt: skip
    name = short_name(place.metric)
    return f"{name}: {where}" if where else name


# -- what stands out --------------------------------------------------------------------------


def insight_list(found: Sequence[Insight]) -> Markup | None:
    if not found:
        return None
    signs = {"bad": "✕", "warn": "!", "good": "✓", "": "·"}
    spoken = {"bad": "Wrong: ", "warn": "Mind: ", "good": "Good: ", "": ""}
    items = []
    for each in found:
        link = element("a", "see it", href=f"#{anchor(each.about)}") if each.about else None
        sign = element("span", signs[each.tone], class_=f"sign {each.tone}", aria_hidden="true")
        said = element("span", spoken[each.tone], class_="hidden-text") if each.tone else None
        text = element("span", said, with_code(each.text), " " if link else None, link)
        items.append(element("li", sign, text))
    return element("ul", items, class_="insights")


def failures(run: Run) -> Markup | None:
    """What failed, the same failure once, with the rounds that it cost."""
    if not run.failures:
        return None
    alike: dict[tuple[str, str], list[str]] = {}
    for each in run.failures:
        where = f"{each.case}, round {each.round + 1}"
        alike.setdefault((each.reason, each.message), []).append(where)
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
    shown = table(("message", "why", "where"), rows, "What failed")
    everywhere = [
        element("li", place)
        for places in alike.values()
        for place in places
        if len(run.failures) > len(alike)
    ]
    return element(
        "div",
        element("p", element("strong", f"{count(len(run.failures), 'round')} failed"), class_="bad"),
        shown if len(alike) <= UNFOLDED else _folded("What failed, and why", shown),
        _folded("All of them", element("ul", everywhere)) if everywhere else None,
        class_="note bad",
    )


def _folded(summary: str, content: Child) -> Markup:
    return element("details", element("summary", summary), content)


# -- figures ----------------------------------------------------------------------------------


def headlines(
    gathered: Sequence[Gathered],
    sources: Sequence[Source],
    leads_to: Callable[[Gathered], str] | None = None,
) -> Markup:
    """The figure of each benchmark that says most, a column for each source.

    `leads_to` gives the address of more about a headline, for pages that have more.
    """
    several = len(sources) > 1
    head = ["Benchmark", *(names(sources) if several else ["Figure", "95 % interval"]), "What", ""]
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
    each: Gathered, sources: Sequence[Source], leads_to: Callable[[Gathered], str] | None
) -> Markup:
    path = each.headline
    leaf = leaf_of(path)
    link = element("a", each.benchmark, href=f"#{anchor(each.name)}")
    metric = each.metric(leaf)
    # Each by its own headline: a target without tiers has that figure at another place.
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
    if path and leads_to is not None:
        what = element("a", what, href=leads_to(each))
    better = element("td", _BETTER[metric.better], class_="soft")
    return element("tr", element("th", link, scope="row"), cells, element("td", what), better)


def _whole(figure: Figure | None, metric: Metric) -> str:
    if figure is None:
        return NOTHING
    return with_interval(figure.value, figure.low, figure.high, metric.unit)


def all_figures(each: Gathered, sources: Sequence[Source], judged: Judged) -> Markup:
    """Every figure of a benchmark with its interval, a column for each source that has some."""
    present = sorted({number for number, _ in each.results})
    by_path: dict[str, dict[int, Figure]] = {}
    for row in each.rows:
        by_path.setdefault(row.path, {})[row.source] = row.figure
    if not by_path:
        return element("p", "No figures.", class_="soft")
    several = len(present) > 1
    titles = [sources[number].name for number in present] if several else ["value and 95 % interval"]
    changes = bool(judged)
    head = ["figure", *titles, *(["since the baseline"] if changes else []), "better"]
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
        if changes:
            target = sources[next(iter(figures))].target
            cells.append(element("td", _judged(judged.get((target, path)))))
        better = metric.better if metric.better != "neither" else NOTHING
        rows.append(element("tr", element("th", leaf, scope="row"), cells, element("td", better)))
    shown = table(head, rows, f"All figures of {each.name}", range(1, 1 + len(titles)))
    return _folded(f"All {count(len(by_path), 'figure')}" if len(by_path) > 1 else "1 figure", shown)


def span_of(chart: Chart) -> int:
    """How many columns of the page a chart takes: one for each of its panels, as far as there are any."""
    return min(MOST_COLUMNS, len(chart.panels))


# -- verdicts ---------------------------------------------------------------------------------


def _judged(each: MetricVerdict | None) -> list[Child]:
    if each is None:
        return [NOTHING]
    said = change_text(each)
    word = mark(each.verdict, _TONES.get(each.verdict, "")) if each.verdict else None
    return [word, " " if word else None, said]


def verdict_tables(comparison: Comparison) -> Markup:
    """What a comparison says: its notes, then what regressed and improved, the largest effects first."""
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
            parts += [title, verdict_table(found[:MOST_VERDICTS], f"What {verdict}")]
            if len(found) > MOST_VERDICTS:
                parts.append(
                    _folded(f"{len(found) - MOST_VERDICTS} more",
                            verdict_table(found[MOST_VERDICTS:], f"What else {verdict}"))
                )  # fmt: skip
    undecided = in_order(comparison, "inconclusive")
    if undecided:
        shown = verdict_table(undecided[:200], "What is not decided")
        parts.append(_folded(f"{count(len(undecided), 'figure')} not decided", shown))
    return join(parts)


def verdict_table(found: Sequence[MetricVerdict], label: str) -> Markup:
    rows = [
        element(
            "tr",
            element("th", element("a", each.name, href=f"#{anchor(each.name)}"), scope="row"),
            element("td", each.path),
            element("td", figure_text(each.base, each.unit), class_="n"),
            element("td", figure_text(each.current, each.unit), class_="n"),
            element("td", _judged(each)),
        )
        for each in found
    ]
    return table(("benchmark", "figure", "before", "now", "change"), rows, label, (2, 3))


# -- on what ----------------------------------------------------------------------------------


def about_run(run: Run) -> Markup:
    """The command to repeat it, and on what it ran."""
    known = run_facts(run)
    command = known.pop("command", "")
    revision = run.environment.git_revision
    lines = [f"git checkout {revision}"] if revision and not run.environment.git_dirty else []
    lines += [command] if command else []
    repeat = element(
        "div",
        element("p", "To repeat it:", class_="soft"),
        element("pre", element("code", "\n".join(lines), class_="command")),
    )
    changed = None
    if run.environment.git_dirty:
        changed = element(
            "p",
            "It ran with changes that were not committed: the revision alone does not bring it back.",
            class_="soft",
        )
    return element("div", repeat if lines else None, changed, facts(known))
