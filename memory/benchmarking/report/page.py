"""One self-contained page of results: no script, nothing from the network, every text escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from memory.benchmarking.display import NOTHING, figure_text, interval_text
from memory.benchmarking.records import SEPARATOR, Figure, Run
from memory.benchmarking.report.facts import result_facts, run_facts
from memory.benchmarking.tidy import LoadedResult, time_of

OPEN_UP_TO = 40
"""Figures of a result that are shown unfolded."""

_STYLE = """
:root { color-scheme: light dark; --text: #1b1b1b; --soft: #5c5c5c; --line: #d8d8d8; --back: #fff;
  --band: #f5f5f3; --bad: #a61b1b; }
@media (prefers-color-scheme: dark) { :root { --text: #e8e8e6; --soft: #a3a3a0; --line: #3c3c3a;
  --back: #161616; --band: #20201f; --bad: #ff9d94; } }
body { margin: 0 auto; padding: 1.2rem; max-width: 62rem; font: 15px/1.5 system-ui, sans-serif;
  color: var(--text); background: var(--back); overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.2rem; margin-top: 2.2rem; } h3 { font-size: 1.05rem; }
h2, h3 { border-top: 1px solid var(--line); padding-top: .7rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; margin: 0; }
dt, .soft, caption { color: var(--soft); } dd { margin: 0; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .2rem .7rem .2rem 0; border-bottom: 1px solid var(--line);
  vertical-align: top; font-weight: normal; overflow-wrap: normal; }
thead th { color: var(--soft); } th.group { padding-top: .7rem; font-weight: 600; }
tbody th:not(.group) { padding-left: 1rem; }
td.n, th.n { text-align: right; white-space: nowrap; }
.bad { color: var(--bad); } .headline { font-size: 1.15rem; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; min-width: 14rem; margin: 0; font-size: .85rem; }
summary { cursor: pointer; }
@media (max-width: 36rem) { dl { grid-template-columns: 1fr; } dt { margin-top: .4rem; } }
"""


def page(
    results: Sequence[LoadedResult],
    runs: Mapping[str, Run],
    *,
    category: str | None = None,
    problems: Iterable[Exception] = (),
    older_runs: int = 0,
) -> str:
    """The whole page: the newest run first, then the results that were saved by hand.

    A run without a single result is on it too, with what failed.
    """
    title = f"Benchmark results: {category}" if category else "Benchmark results"
    ids = sorted({*runs, *(each.file.run_id for each in results)}, reverse=True)
    parts = [f"<h1>{escape(title)}</h1>"]
    if older_runs:
        more = f"{older_runs} older run{'s are' if older_runs > 1 else ' is'} not on this page"
        parts.append(f'<p class="soft">{more}; <code>membench results report RUN</code> shows another.</p>')
    for problem in problems:
        parts.append(f'<p class="bad">Left out: {escape(str(problem))}</p>')
    for run_id in ids:
        parts += _run(run_id, runs.get(run_id), [each for each in results if each.file.run_id == run_id])
    body = "\n".join(parts)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _run(run_id: str, run: Run | None, results: Sequence[LoadedResult]) -> list[str]:
    parts = [f"<h2>{escape(f'Run {run_id}' if run_id else 'Saved by hand')}</h2>"]
    if run is not None:
        parts.append(_facts(run_facts(run)))
        if run.failures:
            count = len(run.failures)
            parts.append(f'<h3 class="bad">{count} round{"s" if count > 1 else ""} failed</h3>')
            rows = [
                f"<tr><th scope=row>{escape(each.case)}, round {each.round}</th>"
                f"<td>{escape(each.reason)}</td><td><pre>{escape(each.message)}</pre></td></tr>"
                for each in run.failures
            ]
            parts.append(_table(["what", "why", "message"], rows))
    for result in results:
        parts += _result(result)
    return parts


def _result(each: LoadedResult) -> list[str]:
    name = f"{each.name} on {each.target}" if each.target else each.name
    parts = [f"<h3>{escape(name)}</h3>"]
    headline = each.headline
    if headline:
        figure, metric = each.result.metrics[headline], each.metric(headline)
        bounds = interval_text(figure.value, figure.low, figure.high, metric.unit)
        shown = f"<strong>{escape(figure_text(figure.value, metric.unit))}</strong>"
        parts.append(
            f'<p class="headline">{shown} {escape(f"({bounds})") if bounds else ""} '
            f'<span class="soft">{escape(headline)}</span></p>'
        )
    parts.append(_facts({"saved": str(time_of(each.result.timestamp) or "")} | result_facts(each)))
    if each.not_available:
        rows = [
            f"<tr><th scope=row>{escape(path or 'all of it')}</th><td>{escape(why)}</td></tr>"
            for path, why in each.not_available.items()
        ]
        parts.append(_table(["n/a", "why"], rows))
    metrics = each.result.metrics
    if not metrics:
        parts.append('<p class="soft">No figures.</p>')
        return parts
    is_open = " open" if len(metrics) <= OPEN_UP_TO else ""
    table = _table(
        ["figure", "value", "95 % interval", "rounds", "better"], _metric_rows(each), figures=(1, 2, 3)
    )
    count = "1 figure" if len(metrics) == 1 else f"{len(metrics)} figures"
    parts.append(f"<details{is_open}><summary>{count}</summary>\n{table}\n</details>")
    return parts


def _metric_rows(each: LoadedResult) -> list[str]:
    rows = []
    for where, leaves in each.groups.items():
        if where:
            rows.append(f'<tr><th class="group" colspan="5">{escape(where)}</th></tr>')
        rows += [_metric_row(each, f"{where}{SEPARATOR}{leaf}", leaf, fig) for leaf, fig in leaves.items()]
    return rows


def _metric_row(each: LoadedResult, path: str, leaf: str, figure: Figure) -> str:
    metric = each.metric(path)
    cells = [
        figure_text(figure.value, metric.unit),
        interval_text(figure.value, figure.low, figure.high, metric.unit) or NOTHING,
        str(len(figure.rounds)) if figure.rounds else NOTHING,
    ]
    better = metric.better if metric.better != "neither" else NOTHING
    figures = "".join(f'<td class="n">{escape(cell)}</td>' for cell in cells)
    return f"<tr><th scope=row>{escape(leaf)}</th>{figures}<td>{escape(better)}</td></tr>"


def _facts(facts: Mapping[str, str]) -> str:
    shown = (f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts.items() if value)
    return f"<dl>{''.join(shown)}</dl>"


def _table(headers: Sequence[str], rows: Iterable[str], figures: Sequence[int] = ()) -> str:
    head = "".join(
        f"<th scope=col{' class=n' if number in figures else ''}>{escape(text)}</th>"
        for number, text in enumerate(headers)
    )
    body = "\n".join(rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table></div>'
