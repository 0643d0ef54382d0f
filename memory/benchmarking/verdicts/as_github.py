"""A comparison as annotations of GitHub Actions: one command a line on standard output.

GitHub shows at most ten annotations of each kind for a step. The worst come first; the last one gives
the number of the others.
"""

from __future__ import annotations

from memory.benchmarking.text.display import clean
from memory.benchmarking.verdicts.records import Comparison, Verdict
from memory.benchmarking.verdicts.words import conclusion, count_text, has_targets, in_order, sentence

MOST = 10
"""The most annotations of one kind; GitHub shows no more for a step."""
_LOST: tuple[tuple[str, Verdict], ...] = (
    ("Benchmark missing", "missing"),
    ("Benchmark not comparable", "incomparable"),
)


def as_github(comparison: Comparison, *, strict: bool = False) -> str:
    """Return the annotations. With `strict`, an undecided metric is an error and not a warning."""
    with_target = has_targets(comparison)
    regressed = [sentence(each, with_target=with_target) for each in in_order(comparison, "regressed")]
    if not comparison.comparable:
        regressed.insert(0, "the environments differ: " + "; ".join(comparison.environment_differences))
    lines = _annotations("error", "Benchmark regressed", regressed)
    lines += _annotations("error", "Benchmark results not to be trusted", comparison.problems)
    for title, verdict in _LOST:
        lost = [each for each in in_order(comparison, verdict) if comparison.fails(each)]
        if comparison.comparable:
            lines += _annotations(
                "error", title, [sentence(each, with_target=with_target) for each in lost]
            )
    undecided = comparison.of("inconclusive")
    if undecided and not regressed:
        kind = "error" if strict else "warning"
        lines.append(_command(kind, "Benchmark not decided", f"{count_text(comparison)}"))
    improved = [sentence(each, with_target=with_target) for each in in_order(comparison, "improved")]
    lines += _annotations("notice", "Benchmark improved", improved)
    lines.append(_command("notice", "Benchmarks", conclusion(comparison, strict)))
    return "\n".join(lines) + "\n"


def _annotations(kind: str, title: str, texts: list[str]) -> list[str]:
    shown = texts if len(texts) <= MOST else texts[: MOST - 1]
    lines = [_command(kind, title, text) for text in shown]
    if len(texts) > len(shown):
        lines.append(_command(kind, title, f"and {len(texts) - len(shown)} more"))
    return lines


def _command(kind: str, title: str, message: str) -> str:
    return f"::{kind} title={_property(title)}::{_data(message)}"


def _data(text: str) -> str:
    """Return a message with the characters escaped that GitHub's runner decodes."""
    return clean(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
