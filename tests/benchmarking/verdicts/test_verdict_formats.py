"""A comparison in every format: its texts, and names that could break a format."""

from __future__ import annotations

import json
import re
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.benchmarking.commands.options import COMPARISON_FORMATS
from memory.benchmarking.text.display import text_width
from memory.benchmarking.verdicts.as_markdown import escaped
from memory.benchmarking.verdicts.formats import render
from memory.benchmarking.verdicts.records import Comparison, MetricVerdict, Verdict, decode
from memory.benchmarking.verdicts.words import change_text, conclusion, sentence

HOSTILE = "a|b`c`<script>&*_x_*[y](z)\n::error::\r%0A\x1b[31m\u202e\ud800\x00"


def metric(verdict: Verdict | None = "regressed", **changes: Any) -> MetricVerdict:
    given: dict[str, Any] = {
        "category": "storage",
        "benchmark": "read_latency",
        "target": "agentmemory",
        "path": "complexity_1/batch_100/stm/p50_ms",
        "unit": "ms",
        "better": "lower",
        "base": 8.1,
        "current": 8.756,
        "ratio": 1.081,
        "low": 1.069,
        "high": 1.094,
        "p": 0.001,
        "threshold": 0.03,
        "floor": 0.03,
        "detectable": 0.021,
        "verdict": verdict,
    }
    return MetricVerdict(**(given | changes))


def comparison(*metrics: MetricVerdict, **changes: Any) -> Comparison:
    return Comparison(
        **({"kind": "stored", "base": "old", "current": "new", "metrics": list(metrics)} | changes)
    )


# -- words ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("each", "expected"),
    [
        (metric(confirmed=True), "8.1 % slower (6.9 to 9.4 %), confirmed"),
        (metric(confirmed=False), "8.1 % slower (6.9 to 9.4 %), not confirmed"),
        (metric(), "8.1 % slower (6.9 to 9.4 %)"),
        (metric(ratio=0.9, low=0.85, high=0.95), "10.0 % faster (5.0 to 15.0 %)"),
        (metric(ratio=1.01, low=0.98, high=1.04), "1.0 % slower (2.0 % faster to 4.0 % slower)"),
        (metric(ratio=0.5, low=0.4, high=0.6, unit="/s", better="higher"), "50.0 % lower (40.0 to 60.0 %)"),
        (metric(ratio=1.2, low=1.2, high=1.2, unit="B"), "20.0 % larger"),
        (metric(ratio=1.0, low=1.0, high=1.0), "the same"),
        (metric(ratio=2.5, low=None, high=None), "150 % slower"),
        (metric(ratio=99.0, low=2.0, high=5000.0), "over 1,000 % slower (100 to over 1,000 %)"),
        (
            metric(scale="difference", unit="", base=0.9, current=0.85, low=-0.06, high=-0.04),
            "0.0500 lower (0.0400 to 0.0600)",
        ),
        (metric(base=None, current=None, ratio=None, low=None, high=None), ""),
    ],
)
def test_a_change_as_text(each: MetricVerdict, expected: str) -> None:
    assert change_text(each) == expected


def test_a_metric_in_one_line() -> None:
    assert sentence(metric(confirmed=True)) == (
        "storage.read_latency complexity_1/batch_100/stm/p50_ms: 8.1 % slower (6.9 to 9.4 %), confirmed"
    )
    gone = metric("missing", path="", base=None, current=None, ratio=None, reason="not in the current run")
    assert sentence(gone) == "storage.read_latency: missing, not in the current run"


def test_the_conclusion_is_one_line() -> None:
    assert conclusion(comparison(metric(), metric("unchanged"))) == "1 of 2 metrics regressed."
    assert conclusion(comparison(metric("unchanged"))) == "No regression among 1 metrics."
    assert "1 could not be decided" in conclusion(comparison(metric("inconclusive")))
    assert conclusion(comparison(metric("new"))) == "Nothing could be compared."
    assert "--force" in conclusion(comparison(metric("incomparable"), comparable=False))


# -- the table --------------------------------------------------------------------------------


def test_changes_come_first_and_unchanged_metrics_are_one_line() -> None:
    many = [metric("unchanged", path=f"{number}/p50_ms") for number in range(300)]
    text = render(
        comparison(*many, metric("improved", ratio=0.5), metric(), metric(ratio=1.5, path="worst"))
    )
    assert text.index("worst") < text.index("complexity_1/batch_100") < text.index("IMPROVED")
    assert "unchanged (300): a change of 2.1 % would have been found in half of them" in text
    assert text.count("\n") < 25
    assert render(comparison(*many), show_all=True).count("\n") > 300


def test_a_long_list_of_inconclusive_metrics_is_cut_and_counted() -> None:
    many = [metric("inconclusive", path=f"{number}/p50_ms") for number in range(30)]
    assert "… and 20 more (--all shows them)" in render(comparison(*many))


@pytest.mark.parametrize("width", [60, 100, 200])
def test_names_are_not_cut_on_a_narrow_screen(width: int) -> None:
    text = render(comparison(metric()), width=width)
    assert "storage.read_latency complexity_1/batch_100/stm/p50_ms" in text
    assert "8.1 % slower (6.9 to 9.4 %)" in text
    if width >= 100:
        assert max(map(text_width, text.splitlines())) <= width


def test_the_target_is_named_where_there_is_more_than_one() -> None:
    both = comparison(metric(), metric(target="sqlite-baseline"))
    assert "storage.read_latency on sqlite-baseline" in render(both)
    assert " on " not in render(comparison(metric()))


# -- names that could break a format ----------------------------------------------------------


def hostile() -> Comparison:
    bad = {"category": HOSTILE, "benchmark": HOSTILE, "target": HOSTILE, "path": HOSTILE, "reason": HOSTILE}
    verdicts: tuple[Verdict | None, ...] = (
        "regressed",
        "improved",
        "inconclusive",
        "missing",
        "unchanged",
        None,
    )
    metrics = [metric(verdict, **bad) for verdict in verdicts]
    return comparison(
        *metrics, base=HOSTILE, current=HOSTILE, notes=[HOSTILE], environment_differences=[HOSTILE]
    )


@pytest.mark.parametrize("format", [name for name in COMPARISON_FORMATS if name != "json"])
@pytest.mark.parametrize("show_all", [False, True])
def test_names_can_not_inject_terminal_codes_or_lines(format: str, show_all: bool) -> None:
    text = render(hostile(), format, show_all=show_all)
    assert all(letter.isprintable() or letter == "\n" for letter in text)
    text.encode()
    assert not any(line.startswith("::error::") for line in text.splitlines())


names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=40)


@given(names, names)
def test_junit_is_valid_xml_with_any_names(path: str, reason: str) -> None:
    each = [
        metric(verdict, path=path, reason=reason, category=path) for verdict in ("regressed", "missing")
    ]
    root = ElementTree.fromstring(render(comparison(*each), "junit"))
    assert len(root.findall(".//testcase")) == 2


@given(names)
def test_a_row_of_markdown_has_five_cells_with_any_names(name: str) -> None:
    text = render(comparison(metric(path=name, benchmark=name, reason=name)), "markdown")
    (row,) = [line for line in text.splitlines() if line.startswith("| <code>storage")]
    assert row.count("|") == 6


@given(names)
def test_markdown_shows_names_as_plain_text(name: str) -> None:
    import html

    text = escaped(name)
    assert not re.search(r"[<>|`*\[\]\\\n\r$~]", text)
    shown = html.unescape(text)
    assert [letter for letter in shown if letter.isalnum()] == [
        letter for letter in name if letter.isalnum() and letter.isprintable()
    ]


@given(names)
def test_an_annotation_is_one_line_and_decodes_to_its_text(name: str) -> None:
    (line,) = [
        line
        for line in render(comparison(metric(path=name)), "github").split("\n")
        if line.startswith("::error ")
    ]
    assert line.startswith("::error title=Benchmark regressed::storage.read_latency")
    message = line.split("::", 2)[2]
    for code, sign in (("%0D", "\r"), ("%0A", "\n"), ("%25", "%")):
        message = message.replace(code, sign)
    assert message.endswith(": 8.1 % slower (6.9 to 9.4 %)")
    assert "\n" not in message


def test_a_percent_sign_is_escaped() -> None:
    assert "100%250A" in render(comparison(metric(path="100%0A")), "github")


# -- machines ---------------------------------------------------------------------------------


def test_json_is_the_comparison_itself() -> None:
    whole = comparison(metric(), metric(None), notes=["x"])
    text = render(whole, "json")
    assert json.loads(text)["exit_code"] == 2
    assert decode(text.encode()) == whole


def test_junit_counts_failures_and_skips() -> None:
    whole = comparison(metric(), metric("inconclusive"), metric("unchanged"), metric(None))
    suite = ElementTree.fromstring(render(whole, "junit")).find("testsuite")
    assert suite is not None
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("3", "1", "1")
    failure = suite.find(".//failure")
    assert failure is not None
    assert failure.get("message") == "8.1 % slower (6.9 to 9.4 %)"
    strict = ElementTree.fromstring(render(whole, "junit", strict=True)).find("testsuite")
    assert strict is not None
    assert (strict.get("failures"), strict.get("skipped")) == ("2", "0")


def test_different_environments_are_a_failed_test() -> None:
    whole = comparison(metric("incomparable"), comparable=False, environment_differences=["cores: 2 → 8"])
    root = ElementTree.fromstring(render(whole, "junit"))
    failure = root.find("testsuite[@name='environment']/testcase/failure")
    assert failure is not None
    assert failure.text == "cores: 2 → 8"


def test_github_gets_ten_annotations_with_the_worst_first_and_the_rest_counted() -> None:
    many = [metric(path=f"number {number}", ratio=1.1 + number / 100) for number in range(30)]
    errors = [
        line for line in render(comparison(*many), "github").splitlines() if line.startswith("::error")
    ]
    assert len(errors) == 10
    assert "number 29" in errors[0]
    assert errors[-1].endswith("and 21 more")
