"""The report: one self-contained page about runs. Important findings come first; every figure is there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from memory.benchmarking.model.figure_kinds import different_kinds
from memory.benchmarking.model.loaded_result import LoadedResult
from memory.benchmarking.model.records import Run
from memory.benchmarking.report.benchmark_charts import charts_of, order_of, presentation_of
from memory.benchmarking.report.chart_html import MOST_KEYS, figure
from memory.benchmarking.report.charts import Chart
from memory.benchmarking.report.document import document
from memory.benchmarking.report.gather import GatheredResults, gather
from memory.benchmarking.report.insights import insights
from memory.benchmarking.report.markup import Child, Markup, element, join, with_code
from memory.benchmarking.report.matrix import compares_targets, make_matrix
from memory.benchmarking.report.matrix_html import matrix_table
from memory.benchmarking.report.parts import (
    MOST_COLUMNS,
    Judged,
    about_run,
    all_figures,
    anchor,
    count,
    facts,
    failures,
    folded,
    headlines,
    insight_list,
    note,
    span_of,
    verdict_tables,
)
from memory.benchmarking.report.run_facts import duration_of, result_facts, started_text
from memory.benchmarking.report.sources import Source, names, sources_of
from memory.benchmarking.text.display import TOO_FEW
from memory.benchmarking.text.notes import GROWTH, ResultNote, result_notes
from memory.benchmarking.verdicts.records import Comparison

MANY_TARGETS = 4
"""From this number of targets on, the charts of a benchmark are folded."""
MOST_NOTES = 24
"""The largest number of notes shown for one benchmark; for the others only their number is shown."""


def page(
    results: Sequence[LoadedResult],
    runs: Mapping[str, Run],
    *,
    category: str | None = None,
    problems: Iterable[Exception] = (),
    older_runs: int = 0,
    baseline: Comparison | None = None,
) -> str:
    """Return the whole page. It also shows runs without results, with their failures.

    - `problems`: errors of files that could not be read; the page shows them.
    - `older_runs`: how many runs the page leaves out; a note gives this number.
    - `baseline`: the comparison of the newest run with a baseline.
    """
    title = f"Benchmark results: {category}" if category else "Benchmark results"
    sources, numbered = sources_of(results, runs)
    gathered = sort_benchmarks(gather(numbered))
    body: list[Child] = [
        element("h1", title),
        [run_paragraph(run, sum(each.file.run_id == key for each in results)) for key, run in runs.items()],
        _by_hand_line(results),
        problem_notes(problems, older_runs),
        [failures(run) for run in runs.values()],
        _baseline(baseline),
        insights_section(gathered, sources, [] if baseline is None else [*runs][-1:]),
    ]
    if gathered:
        body += [
            element("h2", "The headline figures", id="headlines"),
            headline_figures(gathered, sources),
            sections(gathered, sources, baseline),
        ]
    body.append(environment_section(runs.values()))
    body.append(how_to_read())
    return document(title, body, links(gathered, runs, has_baseline=baseline is not None))


def headline_figures(
    gathered: Sequence[GatheredResults],
    sources: Sequence[Source],
    leads_to: Callable[[GatheredResults], str] | None = None,
) -> list[Child]:
    """Return the headline figures: as a matrix if there are several targets, else as a list.

    `leads_to` is for the list; see `headlines`.
    """
    if not compares_targets(sources):
        return [switches(sources), headlines(gathered, sources, leads_to)]
    return [
        [note(f"{capitalized(text)}.", tone="warn") for text in kind_differences(gathered)],
        switches(sources),
        matrix_table(make_matrix(gathered, sources)),
        folded("As a list", headlines(gathered, sources, leads_to)),
    ]


def kind_differences(gathered: Sequence[GatheredResults]) -> list[str]:
    """Return sentences on the durability classes and kinds of search that the results mix."""
    return different_kinds(result.result for each in gathered for _, result in each.results)


def capitalized(text: str) -> str:
    """Return a text with a capital first letter, and the rest as it is."""
    return text[:1].upper() + text[1:]


def links(
    gathered: Sequence[GatheredResults], runs: Mapping[str, Run], has_baseline: bool
) -> list[tuple[str, str]]:
    """Return the links of the bar at the top, to the sections of the page."""
    found = [("#baseline", "baseline")] if has_baseline else []
    found += [(f"#{anchor(name)}", name) for name in dict.fromkeys(each.category for each in gathered)]
    return [*found, ("#environment", "environment")] if runs else found


def sort_benchmarks(gathered: Iterable[GatheredResults]) -> list[GatheredResults]:
    """Sort benchmarks: built-in ones in the order of the documentation, then others."""
    return sorted(gathered, key=order_of)


def switches(sources: Sequence[Source]) -> Markup | None:
    """Return a check box for each source, to hide and show the source; charts.js handles the clicks."""
    if len(sources) < 2:
        return None
    boxes = [
        element(
            "label",
            element("input", type="checkbox", checked=True, data_source_switch=number),
            " ",
            source.name,
        )
        for number, source in enumerate(sources[:MOST_KEYS])
    ]
    return element(
        "div", element("span", "Show", class_="soft"), boxes,
        class_="sources no-print", role="group", aria_label="Runs and targets that are shown",
    )  # fmt: skip


def sections(
    gathered: Sequence[GatheredResults], sources: Sequence[Source], baseline: Comparison | None = None
) -> Markup:
    """Return a section for each category: its question, then its benchmarks with charts and figures."""
    judged: dict[str, Judged] = {}
    for each in baseline.metrics if baseline else ():
        judged.setdefault(each.name, {})[each.target, each.path] = each
    parts: list[Child] = []
    for category in dict.fromkeys(each.category for each in gathered):
        members = [each for each in gathered if each.category == category]
        category_summary = presentation_of(members[0]).category
        parts.append(
            element(
                "section",
                element("h2", category),
                element("p", category_summary, class_="soft") if category_summary else None,
                element(
                    "div",
                    [_benchmark(each, sources, judged.get(each.name, {})) for each in members],
                    class_="benchmarks",
                ),
                id=anchor(category),
                class_="category",
            )
        )
    return join(parts)


def _benchmark(each: GatheredResults, sources: Sequence[Source], judged: Judged) -> Markup:
    charts = charts_of(each)
    summary = presentation_of(each).summary
    shown = names(sources)
    figures = [
        element("div", figure(chart, shown), class_=f"cell span{span_of(chart)}") for chart in charts
    ]
    columns = min(MOST_COLUMNS, sum(map(span_of, charts)))
    missing = dict.fromkeys(
        (path or "the whole benchmark", why)
        for _, result in each.results
        for path, why in result.not_available.items()
    )
    reasons = [element("li", element("code", path), ": ", why) for path, why in missing]
    not_available = (element("p", "Not available:"), element("ul", reasons))
    charts_and_notes: list[Child] = [
        element("div", figures, class_="charts") if figures else None,
        _notes(each, shown, charts),
        element("div", not_available, class_="soft missing") if reasons else None,
    ]
    tables = (all_figures(each, sources, judged), _details(each, sources))
    many = len(sources) >= MANY_TARGETS and compares_targets(sources)
    return element(
        "section",
        element("h3", each.benchmark),
        element("p", summary, class_="soft asked") if summary else None,
        # Many targets make long charts and lists. The matrix is the overview; these are to look things up.
        folded("Charts and figures", (charts_and_notes, tables)) if many else (charts_and_notes, tables),
        id=anchor(each.name),
        class_=f"benchmark span{1 if many else max(1, columns)}",
    )


def _notes(each: GatheredResults, sources: Sequence[str], charts: Sequence[Chart]) -> Markup | None:
    """Return the notes of a benchmark, without those that its charts already show as findings."""
    findings = "\n".join(text for chart in charts for text in chart.findings)
    # A chart with fitted lines already states the growth. A note with another interval would confuse.
    has_slope = any(line.drawn == "fit" for chart in charts for line in chart.lines)
    found: dict[ResultNote, list[int]] = {}
    for number, result in each.results:
        for item in result_notes(result.result):
            is_shown = item.text in findings or (has_slope and item.name == GROWTH)
            if not item.is_detail and not is_shown:
                found.setdefault(item, []).append(number)
    if not found:
        return None
    items = []
    for item, numbers in [*found.items()][:MOST_NOTES]:
        of = f" ({', '.join(sources[number] for number in numbers)})" if len(sources) > 1 else None
        words: Child = element("strong", item.short, class_="bad") if item.is_warning else item.short
        items.append(element("li", element("code", item.where), ": ", words, of))
    if len(found) > MOST_NOTES:
        items.append(element("li", f"and {len(found) - MOST_NOTES} more in the result file"))
    return element("div", element("p", "Notes:"), element("ul", items), class_="words")


def _details(each: GatheredResults, sources: Sequence[Source]) -> Markup:
    several = len(sources) > 1
    parts = [
        element(
            "div",
            element("p", sources[number].name) if several else None,
            facts(result_facts(result) | _details_of_notes(result)),
        )
        for number, result in each.results
    ]
    return element("details", element("summary", "Parameters and file"), parts)


def _details_of_notes(result: LoadedResult) -> dict[str, str]:
    """Return the notes that are details, such as checksums."""
    details = [item for item in result_notes(result.result) if item.is_detail]
    return {"notes": "; ".join(f"{item.where}: {item.short}" for item in details)}


# -- the summary ------------------------------------------------------------------------------


def run_paragraph(run: Run, benchmarks: int) -> Markup:
    """Return one paragraph: what ran, on which machine, and when."""
    where = run.environment
    ran = [
        element("strong", f"Run {run.id}"),
        f": {count(benchmarks, 'result')} on {', '.join(run.targets) or 'no target'}, "
        f"{run.profile} profile, {count(run.rounds, 'round')} each in fresh processes. ",
        element("span", started_text(run), class_="nobr"),
        f"{duration_of(run)}, on {where.cpu}, {count(where.cores, 'core')}, "
        f"{where.memory_gb:g} GB, {where.os}; {where.python}. ",
    ]
    status = {"running": "It is still running.", "interrupted": "It was interrupted."}.get(run.status)
    return element("p", ran, element("strong", status) if status else None, class_="lede")


def _by_hand_line(results: Sequence[LoadedResult]) -> Markup | None:
    by_hand = [each for each in results if not each.file.run_id]
    if not by_hand:
        return None
    return element(
        "p", f"{count(len(by_hand), 'result')} saved by hand, outside of any run.", class_="lede"
    )


def problem_notes(problems: Iterable[Exception], older_runs: int) -> list[Child]:
    """Return notes about files that could not be read, and about runs that the page leaves out."""
    parts: list[Child] = [note("Left out: ", str(problem), tone="bad") for problem in problems]
    if older_runs:
        more = f"{older_runs} older run{'s are' if older_runs > 1 else ' is'} not on this page; "
        parts.append(
            element(
                "p", more, element("code", "membench results report RUN"), " shows another.", class_="soft"
            )
        )
    return parts


def _baseline(comparison: Comparison | None) -> Markup | None:
    if comparison is None:
        return None
    return element(
        "section",
        element("h2", "Against the baseline"),
        element("p", f"{comparison.current} against {comparison.base}.", class_="soft"),
        verdict_tables(comparison),
        id="baseline",
    )


def insights_section(
    gathered: Sequence[GatheredResults], sources: Sequence[Source], without: Sequence[str] = ()
) -> Markup | None:
    """Return the insights of the first three sources, except those of the runs in `without`."""
    shown = [(number, source) for number, source in enumerate(sources) if source.run_id not in without]
    parts: list[Child] = []
    seen_runs: set[str] = set()
    for number, source in shown[:3]:
        # Show the insights about a whole run only once, with the first target of the run.
        run = None if source.run_id in seen_runs else source.run
        seen_runs.add(source.run_id)
        listed = insight_list(insights(gathered, run, number))
        if listed is not None:
            parts.append(element("h3", source.name) if len(shown) > 1 else None)
            parts.append(listed)
    if not parts:
        return None
    title = element("h2", "What stands out")
    if len(shown) >= MANY_TARGETS:
        return element("section", title, folded("In the first three targets", parts), id="out")
    return element("section", title, parts, id="out")


def environment_section(runs: Iterable[Run]) -> Markup | None:
    """Return the section with the commands that repeat each run, and the machine of the run."""
    parts = [join((element("h3", f"Run {run.id}"), about_run(run))) for run in runs]
    if not parts:
        return None
    return element("section", element("h2", "Environment and command"), parts, id="environment")


def how_to_read() -> Markup:
    """Return the section that explains figures, intervals and curves."""
    texts = (
        "A figure is the centre over its rounds; each round is a fresh process. The interval is Student's "
        "95 % interval over the rounds. It holds for this code on this machine at this time.",
        f"“{TOO_FEW.capitalize()}” replaces an interval with a bound more than ten times away from the "
        "figure. The rounds differ too much for their number; more --rounds make the interval smaller.",
        "Percentile curves are made from the raw samples. Each point is the centre over the rounds, "
        "and the band is its interval.",
        "All targets get the same data, the same k and the same embedder. They take turns: each round is "
        "made with every target, in random order, before the next round. Embedding the question is inside "
        "the time of every text search, for all targets, and outside the time of every vector search.",
        "Do not judge by eye whether two runs differ: use `membench compare`.",
    )
    items = [element("li", with_code(text)) for text in texts]
    return element(
        "section", element("h2", "How to read this"), element("ul", items, class_="soft"), class_="reading"
    )
