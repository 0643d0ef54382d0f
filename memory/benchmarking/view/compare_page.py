"""The page that compares runs metric by metric, with the verdicts of `membench compare`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from urllib.parse import urlencode

from memory.benchmarking.errors import BenchmarkError, UnknownName
from memory.benchmarking.report.markup import Markup, element, join
from memory.benchmarking.report.parts import mark, note, table
from memory.benchmarking.text.display import NOTHING, figure_text
from memory.benchmarking.verdicts.compare import compare_runs
from memory.benchmarking.verdicts.records import UNDECIDED, Comparison, MetricVerdict
from memory.benchmarking.verdicts.words import (
    ORDER,
    conclusion,
    count_text,
    has_targets,
    in_order,
    questions_text,
    ranks_text,
    reasoned_text,
    sees_text,
)
from memory.benchmarking.view.index import RunIndex, RunLine
from memory.benchmarking.view.layout import Page, field, history_address, run_address, select, status_mark
from memory.benchmarking.view.run_filter import LONGEST

MOST_RUNS = 8
"""The largest number of runs that one page compares."""
SHOWN = 100
"""The number of metrics of a comparison that are listed, unless the user asks for all."""
MOST_QUESTIONS = 200
"""The largest number of changed questions that are listed."""
NOT_JUDGED = "not judged"
_TONES = {
    "regressed": "bad",
    "improved": "good",
    "inconclusive": "warn",
    "incomparable": "warn",
    "missing": "bad",
}


@dataclass(frozen=True)
class ChosenRuns:
    """The runs that are compared, and their base."""

    runs: tuple[RunLine, ...]
    base: RunLine

    @property
    def others(self) -> list[RunLine]:
        return [line for line in self.runs if line is not self.base]

    @property
    def fields(self) -> list[tuple[str, str]]:
        """The query fields of an address with the same runs."""
        return [*(("run", line.id) for line in self.runs), ("base", self.base.id)]


def chosen_runs(index: RunIndex, query: Mapping[str, Sequence[str]]) -> ChosenRuns | None:
    """Return the runs of an address; None for too few or too many. The default base is the oldest run."""
    ids = sorted(dict.fromkeys(query.get("run", ())))
    if not 2 <= len(ids) <= MOST_RUNS:
        return None
    runs = tuple(index.line(run_id) for run_id in ids)
    base_id = query.get("base", [ids[0]])[-1]
    base = next((line for line in runs if line.id == base_id), None)
    if base is None:
        raise UnknownName(f"the base {base_id!r} is not one of the runs: choose one of {', '.join(ids)}")
    return ChosenRuns(runs, base)


def choose_first() -> Page:
    """Return the page for an address with too few or too many runs."""
    text = f"Choose from two to {MOST_RUNS} runs in "
    body = (element("h1", "Comparison"), note(text, element("a", "the list", href="/"), "."))
    return Page("Comparison", join(body), here="Runs")


@dataclass(frozen=True)
class _Filter:
    """The values of the form on the page."""

    chosen: ChosenRuns
    text: str
    verdict: str
    everything: bool

    @property
    def address_of_all(self) -> str:
        """The address of the same page with all metrics."""
        fields = [("text", self.text), ("verdict", self.verdict), ("all", "1")]
        query = [*self.chosen.fields, *((name, value) for name, value in fields if value)]
        return f"/compare?{urlencode(query, errors='surrogateescape')}"


def compare_page(index: RunIndex, query: Mapping[str, Sequence[str]]) -> Page:
    """Return the page for the query of an address."""
    chosen = chosen_runs(index, query)
    if chosen is None:
        return choose_first()
    filters = _Filter(
        chosen,
        text=query.get("text", [""])[-1].strip()[:LONGEST],
        verdict=query.get("verdict", [""])[-1],
        everything="all" in query,
    )
    found = element(
        "section",
        _links(chosen),
        [section for line in chosen.others for section in _section(index, filters, line)],
        id="comparison",
        data_live=True,
        aria_label="Verdicts",
    )
    return Page("Comparison", join((element("h1", "Comparison"), _form(filters), found)), here="Runs")


def _links(chosen: ChosenRuns) -> Markup:
    address = f"/side-by-side?{urlencode(chosen.fields, errors='surrogateescape')}"
    return element("p", element("a", "Charts side by side", href=address, class_="button"), class_="ways")


def _form(filters: _Filter) -> Markup:
    search = element(
        "input", type="search", name="text", id="text", value=filters.text, autocomplete="off",
        placeholder="benchmark, metric …",
    )  # fmt: skip
    verdicts = [("", "all that are judged"), *((each, each) for each in ORDER), (NOT_JUDGED, NOT_JUDGED)]
    return element(
        "form",
        [element("input", type="hidden", name="run", value=line.id) for line in filters.chosen.runs],
        select(
            "Base", "base", [(line.id, line.id) for line in filters.chosen.runs], filters.chosen.base.id
        ),
        field("Search", "text", search),
        select("Verdict", "verdict", verdicts, filters.verdict),
        element("button", "Show", data_without_scripts=True),
        method="get",
        action="/compare",
        class_="filters",
        role="search",
        data_filters=True,
    )


def _section(index: RunIndex, filters: _Filter, line: RunLine) -> Iterator[Markup]:
    yield element("h2", _run(line), " against ", _run(filters.chosen.base))
    try:
        comparison = compared(filters.chosen.base.folder, line.folder, index.version)
    except BenchmarkError as problem:
        yield note(f"{problem}.", tone="warn")
        return
    if comparison.environment_differences:
        differing = [element("li", each) for each in comparison.environment_differences]
        text = "The environments differ, so a difference may come from the machine and not from the code:"
        yield element("div", element("p", text), element("ul", differing), class_="note warn")
    # The terminal's text mentions `--force` after a semicolon. The page has no such option: cut it off.
    text = conclusion(comparison) if comparison.comparable else conclusion(comparison).partition(";")[0]
    yield note(element("strong", text), " ", count_text(comparison), ".", tone=tone_of(comparison))
    if comparison.problems:
        yield element("ul", [element("li", each) for each in comparison.problems], class_="note bad")
    if comparison.notes:
        notes = element("ul", [element("li", each) for each in comparison.notes])
        count = f"{len(comparison.notes)} note{'s' if len(comparison.notes) > 1 else ''} on this comparison"
        yield element("details", element("summary", count), notes, id=f"notes-{line.id}")
    if comparison.questions:
        yield _questions(comparison, line)
    metrics = _metrics(comparison, filters)
    shown = metrics if filters.everything else metrics[:SHOWN]
    if not shown:
        yield element("p", "No metric fits.", class_="soft")
        return
    yield _table(shown, with_target=has_targets(comparison))
    if len(shown) < len(metrics):
        link = element("a", f"Show all {len(metrics):,}", href=filters.address_of_all)
        yield element("p", f"{len(shown):,} of {len(metrics):,} metrics. ", link)


def tone_of(comparison: Comparison) -> str:
    """Return `bad`, `warn` or `good`: `good` only if every metric was decided and none regressed."""
    failing = [each for each in comparison.metrics if comparison.fails(each)]
    if comparison.problems or any(each.verdict != "incomparable" for each in failing):
        return "bad"
    if comparison.of(*UNDECIDED) or not comparison.of("improved", "unchanged"):
        return "warn"
    return "good"


def _questions(comparison: Comparison, line: RunLine) -> Markup:
    """Return a folded table of the questions that lost or gained a passage, the worst first."""
    rows = [
        element(
            "tr",
            element("th", each.text, scope="row"),
            element("td", each.kind),
            element("td", mark("lost", "bad") if each.change < 0 else mark("gained", "good")),
            element("td", ranks_text(each.before), class_="n", data_name="Base"),
            element("td", ranks_text(each.now), class_="n", data_name="This run"),
        )
        for each in comparison.questions[:MOST_QUESTIONS]
    ]
    names = ("Question", "Kind", "Change", "Ranks in the base", "Ranks in this run")
    found = table(names, rows, "Questions that changed sides", numbers=(3, 4), kind="cards")
    summary = element("summary", questions_text(comparison).capitalize())
    return element("details", summary, found, id=f"questions-{line.id}")


def _run(line: RunLine) -> Markup:
    link = element("a", line.id, href=run_address(line.id))
    # Show the status only if the run is not complete.
    return link if line.status == "complete" else join((link, " ", status_mark(line)))


@lru_cache(maxsize=MOST_RUNS)
def compared(base: Path, current: Path, version: int) -> Comparison:
    """Compare two runs. The result is cached until a run changes, so that a search on the page is fast."""
    return compare_runs(base, current)


def _metrics(comparison: Comparison, filters: _Filter) -> list[MetricVerdict]:
    """Return the metrics to list, the most important first."""
    verdicts = [each for each in ORDER if filters.verdict in ("", each)]
    found = [each for verdict in verdicts for each in in_order(comparison, verdict)]
    if filters.verdict == NOT_JUDGED:
        found = in_order(comparison, None)
    words = filters.text.casefold().split()
    if not words:
        return found
    return [
        each
        for each in found
        if all(w in f"{each.name} {each.target} {each.path}".casefold() for w in words)
    ]


def _table(metrics: Sequence[MetricVerdict], *, with_target: bool) -> Markup:
    rows = []
    for each in metrics:
        case = (each.category, each.benchmark, each.target)
        benchmark = f"{each.name} on {each.target}" if with_target else each.name
        path = element("a", each.path, href=history_address(case, each.path)) if each.path else None
        rows.append(
            element(
                "tr",
                element("th", element("span", benchmark, class_="soft place"), path, scope="row"),
                element("td", mark(each.verdict or NOT_JUDGED, _TONES.get(each.verdict or "", ""))),
                element("td", reasoned_text(each)),
                _number("Base", figure_text(each.base, each.unit)),
                _number("This run", figure_text(each.current, each.unit)),
                _number("Sees from", sees_text(each)),
            )
        )
    names = ("Metric", "Verdict", "Change (95 % interval)", "Base", "This run", "Sees from")
    return table(names, rows, "Metrics", numbers=(3, 4, 5), kind="cards")


def _number(name: str, text: str) -> Markup:
    return element("td", text, class_="n" if text != NOTHING else "n nothing", data_name=name)
