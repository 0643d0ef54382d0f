"""Verdicts as text: `8.1 % slower (6.9 to 9.4 %), confirmed`."""

from __future__ import annotations

import math
from collections.abc import Sequence

from memory.benchmarking.metrics import is_timed
from memory.benchmarking.text.display import NOTHING, figure_text
from memory.benchmarking.verdicts.records import Comparison, MetricVerdict, Verdict

ORDER: tuple[Verdict, ...] = (
    "regressed", "missing", "incomparable", "improved", "inconclusive", "new", "unchanged",
)  # fmt: skip
"""The verdicts, the most important first."""
BETWEEN_TARGETS: dict[str, str] = {
    "regressed": "worse",
    "improved": "better",
    "unchanged": "no difference",
    "new": "only in this one",
    "missing": "not in this one",
}
"""Names of the verdicts for two systems: neither system is a later version of the other."""
_MOST_PERCENT = 1000
"""Larger changes are shown as "over 1,000 %"."""
_SIZES = ("B", "KB", "MB", "GB", "TB")


def change_text(each: MetricVerdict) -> str:
    """Return the change with its interval; empty where one side has no figure."""
    change = each.change
    if change is None or each.base is None or each.current is None:
        return ""
    if change == 0 and each.low == each.high:
        return "the same"
    text = f"{_size(change, each)} {_word(change, each)}"
    if each.low is not None and each.high is not None and each.low < each.high:
        text += f" ({_interval(each)})"
    if each.confirmed is not None:
        text += ", confirmed" if each.confirmed else ", not confirmed"
    return text


def reasoned_text(each: MetricVerdict) -> str:
    """Return the change and the reason for the verdict."""
    return ", ".join(part for part in (change_text(each), each.reason) if part)


def figures_text(each: MetricVerdict) -> str:
    """Return both figures: `8.10 ms → 8.76 ms`."""
    if each.base is None and each.current is None:
        return NOTHING
    return f"{figure_text(each.base, each.unit)} → {figure_text(each.current, each.unit)}"


def sees_text(each: MetricVerdict) -> str:
    """Return the smallest effect that the comparison would have found, as text."""
    return NOTHING if each.detectable is None else _size(each.detectable, each)


def place_text(each: MetricVerdict, *, with_target: bool) -> str:
    """Return benchmark and path: `storage.read_latency stm/batch_100/p50_ms`."""
    target = f" on {each.target}" if with_target else ""
    return f"{each.name}{target} {each.path}".rstrip()


def sentence(each: MetricVerdict, *, with_target: bool = False) -> str:
    """Return one metric in one line."""
    change = change_text(each) if each.verdict not in ("new", "missing", "incomparable") else each.verdict
    parts = [part for part in (change, each.reason) if part]
    return f"{place_text(each, with_target=with_target)}: {', '.join(parts)}"


def questions_text(comparison: Comparison) -> str:
    """Return how many questions lost, and how many gained, a passage among the first five."""
    lost = sum(each.change < 0 for each in comparison.questions)
    gained = len(comparison.questions) - lost
    return f"questions that changed sides: {lost:,} lost a passage among the first five, {gained:,} gained"


def ranks_text(ranks: Sequence[int]) -> str:
    """Return the ranks of the relevant passages of a question: `1, 4, none`."""
    return ", ".join(str(rank) if rank else "none" for rank in ranks)


def has_targets(comparison: Comparison) -> bool:
    """Whether there are several targets, so that each line has to name its own."""
    return len({each.target for each in comparison.metrics}) > 1


def in_order(comparison: Comparison, verdict: Verdict | None) -> list[MetricVerdict]:
    """Return all metrics with a verdict, the largest effects first."""
    chosen = [each for each in comparison.metrics if each.verdict == verdict]
    return sorted(chosen, key=lambda each: (-_effect(each), each.name, each.path))


def count_text(comparison: Comparison) -> str:
    """Return `2 regressed, 1 improved, 340 unchanged`."""
    counts = [(verdict, len(comparison.of(verdict))) for verdict in ORDER]
    return ", ".join(f"{count:,} {verdict}" for verdict, count in counts if count) or "nothing was judged"


def conclusion(comparison: Comparison, strict: bool = False) -> str:
    """Return the outcome in one line: the reason for the exit code."""
    if not comparison.comparable:
        return "The environments differ, so these runs can't be compared; --force compares them anyway."
    regressed = len(comparison.of("regressed"))
    judged = len(comparison.of("regressed", "improved", "unchanged", "inconclusive"))
    if regressed:
        return f"{regressed:,} of {judged:,} metrics regressed."
    if comparison.problems:
        return f"Not to be trusted: {_and_more(comparison.problems)}."
    if not judged:
        return "Nothing could be compared."
    lost = [] if comparison.between_targets else in_order(comparison, "missing")
    if lost:
        names = [place_text(each, with_target=has_targets(comparison)) for each in lost]
        hint = f"accept it with --allow-missing {lost[0].name!r}"
        return f"Missing, though the base has it: {_and_more(names)}; {hint}."
    other = in_order(comparison, "incomparable")
    if other:
        names = [sentence(each, with_target=has_targets(comparison)) for each in other]
        return f"Not comparable with the base: {_and_more(names)}; set the baseline again."
    undecided = len(comparison.of("inconclusive"))
    if strict and undecided:
        return f"{undecided:,} of {judged:,} metrics could not be decided."
    end = f"; {undecided:,} could not be decided" if undecided else ""
    return f"No regression among {judged:,} metrics{end}."


def _and_more(texts: Sequence[str]) -> str:
    """Return the first text, and how many others there are."""
    return texts[0] if len(texts) == 1 else f"{texts[0]} (and {len(texts) - 1:,} more)"


def _effect(each: MetricVerdict) -> float:
    """Return the size of the effect, to sort by: the logarithm of a ratio, or a difference."""
    if each.scale == "ratio":
        return abs(math.log(each.ratio)) if each.ratio and math.isfinite(each.ratio) else 0.0
    return abs(each.change or 0.0)


def _size(change: float, each: MetricVerdict) -> str:
    """Return how large a change is, in either direction."""
    if each.scale == "difference":
        return figure_text(abs(change), each.unit)
    return f"{_percent(abs(change))} %"


def _percent(share: float) -> str:
    percent = 100 * share
    if percent >= _MOST_PERCENT:
        return f"over {_MOST_PERCENT:,}"
    return f"{percent:.0f}" if percent >= 100 else f"{percent:.1f}"


def _word(change: float, each: MetricVerdict) -> str:
    """Return slower or faster for times, larger or smaller for sizes, higher or lower for the rest."""
    more = change > 0
    if each.scale == "ratio" and is_timed(each.unit) and not each.unit.startswith("/"):
        return "slower" if more else "faster"
    if each.unit in _SIZES:
        return "larger" if more else "smaller"
    return "higher" if more else "lower"


def _interval(each: MetricVerdict) -> str:
    assert each.low is not None
    assert each.high is not None
    low, high = (each.low - 1, each.high - 1) if each.scale == "ratio" else (each.low, each.high)
    if low * high < 0:
        return f"{_size(low, each)} {_word(low, each)} to {_size(high, each)} {_word(high, each)}"
    near, far = sorted((abs(low), abs(high)))
    if each.scale == "difference":
        return f"{figure_text(near, each.unit)} to {figure_text(far, each.unit)}"
    return f"{_percent(near)} to {_percent(far)} %"
