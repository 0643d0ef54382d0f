"""The comparison page: runs, or targets of a run, side by side. It starts with the differences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from memory.benchmarking.model.loaded_result import LoadedResult
from memory.benchmarking.model.records import Figure, Run
from memory.benchmarking.report.chart_html import figure
from memory.benchmarking.report.differences import (
    Compared,
    Difference,
    clear_ones,
    compare_sources,
    differences,
    forest,
    not_compared,
)
from memory.benchmarking.report.document import document
from memory.benchmarking.report.gather import GatheredResults, gather
from memory.benchmarking.report.markup import Child, Markup, element
from memory.benchmarking.report.matrix import compares_targets, make_matrix
from memory.benchmarking.report.matrix_html import matrix_table
from memory.benchmarking.report.page import (
    MANY_TARGETS,
    capitalized,
    environment_section,
    how_to_read,
    kind_differences,
    links,
    problem_notes,
    run_paragraph,
    sections,
    sort_benchmarks,
    switches,
)
from memory.benchmarking.report.parts import (
    anchor,
    count,
    failures,
    folded,
    mark,
    note,
    path_words,
    table,
    verdict_tables,
)
from memory.benchmarking.report.sources import Source, names, sources_of
from memory.benchmarking.text.display import with_interval
from memory.benchmarking.verdicts.records import Comparison

MOST_CLEAR = 40
"""The largest number of differences between targets that are listed."""
_TONES = {"regressed": "bad", "improved": "good", "inconclusive": "warn"}


def comparison_page(
    results: Sequence[LoadedResult],
    runs: Mapping[str, Run],
    *,
    problems: Iterable[Exception] = (),
) -> str:
    """Return the page. The other sources are compared with the first.

    `runs` holds the runs of the results by id; `problems` holds the errors of results that can't be read.
    """
    sources, numbered = sources_of(results, runs)
    gathered = sort_benchmarks(gather(numbered))
    title = f"Comparison: {', '.join(names(sources))}"
    body: list[Child] = [
        element("h1", "Comparison"),
        comparison_body(gathered, sources, results, runs, problems=problems),
        environment_section(runs.values()),
        how_to_read(),
    ]
    first = [("#matrix", "targets")] if compares_targets(sources) else []
    bar = [*first, ("#differences", "differences"), *links(gathered, runs, has_baseline=False)]
    return document(title, body, bar)


def comparison_body(
    gathered: Sequence[GatheredResults],
    sources: Sequence[Source],
    results: Sequence[LoadedResult],
    runs: Mapping[str, Run],
    *,
    problems: Iterable[Exception] = (),
) -> list[Child]:
    """Return the part of the page between the title and the environment."""
    compared = compare_sources(gathered, sources)
    found = differences(gathered, compared, headlines=True)
    shown = names(sources)
    picture = forest(found, shown)
    return [
        element("p", _what(found, shown), class_="lede"),
        [run_paragraph(run, sum(each.file.run_id == key for each in results)) for key, run in runs.items()],
        problem_notes(problems, 0),
        [_other_environment(each.comparison) for each in compared],
        [
            note(f"{capitalized(text)}.", tone="warn")
            for text in _about_targets(gathered, compared, sources)
        ],
        [failures(run) for run in runs.values()],
        _matrix(gathered, sources),
        element("h2", "Differences", id="differences"),
        None if compares_targets(sources) else switches(sources),
        _left_out(gathered, compared, sources),
        _fold_if_many(
            sources,
            [
                element("div", figure(picture, shown), class_="forest") if picture else None,
                _differences_table(found, sources),
            ],
        ),
        [_judged(each.comparison) for each in compared if not each.between_targets],
        _clear(gathered, sources, [each for each in compared if each.between_targets]),
        sections(gathered, sources),
    ]


def _matrix(gathered: Sequence[GatheredResults], sources: Sequence[Source]) -> list[Child]:
    """Return the headline figures of all targets; nothing for runs of one target."""
    if not compares_targets(sources):
        return []
    title = element("h2", "Headline figures of all targets", id="matrix")
    return [title, switches(sources), matrix_table(make_matrix(gathered, sources))]


def _fold_if_many(sources: Sequence[Source], content: list[Child]) -> Child:
    if len(sources) < MANY_TARGETS or not compares_targets(sources):
        return content
    return folded(f"Each target against {sources[0].name}", content)


def _left_out(
    gathered: Sequence[GatheredResults], compared: Sequence[Compared], sources: Sequence[Source]
) -> Markup | None:
    """Return a list of the headline figures that have no difference, with the reason."""
    items = [
        element("li", element("code", name), f", {sources[number].name}: {reason}")
        for name, number, reason in not_compared(gathered, compared)
    ]
    if not items:
        return None
    return folded(count(len(items), "headline figure") + " not compared", element("ul", items))


def _what(found: Sequence[Difference], shown: Sequence[str]) -> str:
    """Return sentences that name each source and its base."""
    if len(shown) > 2 and len({each.base_source for each in found}) == 1:
        first = next(each.base_source for each in found)
        return f"{len(shown) - 1} targets or runs against {shown[first]}."
    pairs = sorted({(each.base_source, each.source) for each in found})
    return " ".join(f"{shown[source]} against {shown[base]}." for base, source in pairs)


def _other_environment(comparison: Comparison) -> Markup | None:
    if comparison.comparable:
        return None
    text = f"{comparison.current} was measured in another environment than {comparison.base}"
    return note(f"{text}: {'; '.join(comparison.environment_differences)}.", tone="warn")


def _about_targets(
    gathered: Sequence[GatheredResults], compared: Sequence[Compared], sources: Sequence[Source]
) -> list[str]:
    """Return the differences between the targets' versions, durability classes and kinds of search."""
    if compares_targets(sources) and len(sources) > 2:
        return kind_differences(gathered)  # one sentence for all, not one for each pair
    return [*dict.fromkeys(text for each in compared for text in each.comparison.target_differences)]


def _differences_table(found: Sequence[Difference], sources: Sequence[Source]) -> Markup:
    """Return the table of headline figures, the largest clear differences first."""
    if not found:
        return element("p", "They have no headline figure in common.", class_="soft")
    clear = clear_ones(found)
    rest = [each for each in found if each not in clear]
    rows = [_row(each, sources) for each in (*clear, *rest)]
    return table(_head(sources), rows, "Headline figures and how they differ", (2, 3))


def _head(sources: Sequence[Source]) -> list[str]:
    if len(sources) == 2:
        return ["Benchmark", "Figure", sources[0].name, sources[1].name, "Change"]
    if compares_targets(sources):
        return ["Benchmark", "Figure", sources[0].name, "Other target", "Its name", "Difference"]
    return ["Benchmark", "Figure", "Base", "Figure", "Of", "Change"]


def _row(each: Difference, sources: Sequence[Source]) -> Markup:
    return element(
        "tr",
        element("th", element("a", each.name, href=f"#{anchor(each.name)}"), scope="row"),
        element("td", _path(each)),
        element("td", _figure(each.base, each.headline.change.unit), class_="n"),
        element("td", _figure(each.other, each.headline.change.unit), class_="n"),
        element("td", sources[each.source].name) if len(sources) > 2 else None,
        element(
            "td",
            mark(each.word, _TONES.get(each.headline.verdict or "", "")),
            " ",
            _factor(each),
            class_="change",
        ),
        data_s=each.source,
    )


def _path(each: Difference) -> str:
    now, before = path_words(each.path), path_words(each.base_path)
    text = now if now == before else f"{before} ⟷ {now.partition(': ')[2] or now}"
    for name in dict.fromkeys((*each.kinds[0], *each.kinds[1])):
        both = dict.fromkeys(side[name] for side in each.kinds if name in side)
        text += f", {name} {' ⟷ '.join(both)}"
    return text


def _figure(found: Figure, unit: str) -> str:
    return with_interval(found.value, found.low, found.high, unit)


def _factor(each: Difference) -> str:
    """Return the change of the figure: `+8.1 % (+6.9 to +9.4)` or `× 2.1 (1.9 to 2.3)`."""
    interval: tuple[float, ...] = each.headline.change.ratio_interval or ()
    if each.ratio == 1 and set(interval) == {1}:
        return ""
    if 0.5 < round(each.ratio, 9) < 2:
        text = f"{(each.ratio - 1) * 100:+.1f} %"
        bounds = [f"{(bound - 1) * 100:+.1f}" for bound in interval]
    else:
        text = f"× {each.ratio:.3g}"
        bounds = [f"{bound:.3g}" for bound in interval]
    return f"{text} ({' to '.join(bounds)})" if bounds and bounds[0] != bounds[1] else text


def _judged(comparison: Comparison) -> Markup:
    return element(
        "section",
        element("h2", f"Judged: {comparison.current} against {comparison.base}"),
        verdict_tables(comparison),
    )


def _clear(
    gathered: Sequence[GatheredResults], sources: Sequence[Source], compared: Sequence[Compared]
) -> Markup | None:
    """Return the largest differences between targets, over all judged figures."""
    found = clear_ones(differences(gathered, compared, headlines=False))
    if not found:
        return None
    rows = [_row(each, sources) for each in found[:MOST_CLEAR]]
    better = sum(each.word == "better" for each in found)
    return element(
        "section",
        element("h2", "All figures that clearly differ"),
        element(
            "p",
            f"{count(better, 'figure')} better and {count(len(found) - better, 'figure')} worse than "
            f"{sources[0].name}; the largest {min(MOST_CLEAR, len(found))} are listed. The verdicts are "
            "corrected for the number of figures: the chance of any false one is below 5 %.",
            class_="soft",
        ),
        element(
            "details",
            element("summary", "The largest differences"),
            table(_head(sources), rows, "Differences", (2, 3)),
        ),
    )
