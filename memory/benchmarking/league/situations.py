"""For whom which system fits: a few real situations, each with a rule that is shown.

A rule is a list of conditions on figures and promises. A system fits if it meets all of them. There are no
weights and no score: where a system does not fit, the condition that it misses is named, with its figure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from memory.benchmarking.league.axes import QUALITY
from memory.benchmarking.league.model import League, System
from memory.benchmarking.model.figure_kinds import SURVIVES
from memory.benchmarking.text.display import figure_text

Met = bool | None
"""Whether a condition is met; None if it is not known."""
Judge = Callable[[League, System], tuple[Met, str]]
"""Returns whether a system meets a condition, and the figure or fact in words."""


@dataclass(frozen=True)
class Condition:
    """One part of a rule."""

    words: str
    judge: Judge


@dataclass(frozen=True)
class Situation:
    """A user, and what a system needs for them."""

    key: str
    title: str
    who: str
    conditions: tuple[Condition, ...]
    order_by: tuple[str, ...]
    """Axes by which the fitting systems are listed; the first that the league has counts."""


@dataclass(frozen=True)
class Verdict:
    """How one system fits a situation."""

    system: System
    fits: Met
    facts: tuple[str, ...]
    """The figures and facts that meet the conditions."""
    misses: tuple[str, ...]
    """The conditions that are not met, or not known, each with its figure."""


def at_most(axis: str, limit: float, what: str) -> Condition:
    """Return the condition that a figure is not larger than a limit."""

    def judge(league: League, system: System) -> tuple[Met, str]:
        value, text = _figure(league, system, axis)
        return (None if value is None else value <= limit), f"{what} {text}"

    return Condition(f"{what} at most {{{axis}:{limit:g}}}", judge)


def at_least(axis: str, limit: float, what: str) -> Condition:
    """Return the condition that a figure is not smaller than a limit."""

    def judge(league: League, system: System) -> tuple[Met, str]:
        value, text = _figure(league, system, axis)
        return (None if value is None else value >= limit), f"{what} {text}"

    return Condition(f"{what} at least {{{axis}:{limit:g}}}", judge)


def near_the_best_quality(points: float) -> Condition:
    """Return the condition that the recall on every data set is at most so many points below the best."""

    def judge(league: League, system: System) -> tuple[Met, str]:
        found = []
        for axis in league.axes:
            if axis.key.startswith(QUALITY):
                own = league.value(system.target, axis.key)
                best = max(v for s in league.systems if (v := league.value(s.target, axis.key)) is not None)
                if own is None:
                    return None, f"recall on {axis.key.removeprefix(QUALITY)} not known"
                found.append(
                    (best - own, f"recall {own:.3f} on {axis.key.removeprefix(QUALITY)} (best {best:.3f})")
                )
        if not found:
            return None, "quality not measured"
        worst = max(found)
        return worst[0] <= points + 1e-9, worst[1]

    return Condition(f"recall at 5 within {points:g} of the best, on every data set", judge)


def survives(*classes: str) -> Condition:
    """Return the condition that acknowledged writes survive one of these."""

    def judge(league: League, system: System) -> tuple[Met, str]:
        return system.durability in classes, f"writes survive {SURVIVES.get(system.durability, 'unknown')}"

    what = "the end of the process" if "process" in classes else "a power failure"
    return Condition(f"acknowledged writes survive {what}", judge)


def keeps(words: str, *checks: str) -> Condition:
    """Return the condition that a system keeps at least one of these checks, and breaks none."""

    def judge(league: League, system: System) -> tuple[Met, str]:
        outcomes = {one.check: one for one in league.promises.get(system.target, ())}
        tried = [outcomes[check] for check in checks if check in outcomes]
        if not tried:
            return None, f"{words}: not tried"
        broken = [one for one in tried if one.status == "broken"]
        if broken:
            return False, f"{words}: broken ({broken[0].evidence})"
        if any(one.status == "kept" for one in tried):
            return True, words
        return False, f"{words}: {tried[0].status}"

    return Condition(words, judge)


SITUATIONS = (
    Situation(
        "chat",
        "A chat assistant with a few thousand memories",
        "One user or a few, one process. What counts is that the right memory is found, without a pause.",
        (
            near_the_best_quality(0.03),
            at_most("text_search", 20.0, "text search"),
            survives("process", "machine"),
        ),
        (f"{QUALITY}synthetic", "text_search"),
    ),
    Situation(
        "server",
        "Thousands of users on one server",
        "Many agents share one store, and several threads or processes use it at once.",
        (
            keeps("threads or processes lose nothing", "threads_lose_nothing", "processes_lose_nothing"),
            keeps("similar names stay apart", "similar_names_stay_apart"),
            keeps("a small agent gets its hits", "a_small_agent_gets_its_k_hits"),
            at_most("text_search", 50.0, "text search"),
            survives("process", "machine"),
        ),
        ("load", "text_search"),
    ),
    Situation(
        "writer",
        "An agent that writes all the time",
        "Every step is stored at once, and nothing that was acknowledged may be lost by a crash.",
        (
            at_least("write_one", 500.0, "writes"),
            keeps("a killed process loses nothing", "a_killed_process_loses_nothing"),
            survives("process", "machine"),
        ),
        ("write_one",),
    ),
    Situation(
        "device",
        "A device with little RAM",
        "A small computer or a function that starts often: RAM, disk and the time to start count.",
        (
            at_most("open_rss", 150.0, "RAM when open"),
            at_most("installed", 250.0, "installed"),
            at_most("first_open", 1500.0, "start"),
            survives("process", "machine"),
        ),
        ("open_rss",),
    ),
    Situation(
        "erasable",
        "Facts that must be erasable",
        "A user asks to be forgotten: what is deleted must be gone from the answers and from the files.",
        (
            keeps("deleted memories are gone", "deleted_one_by_one_is_gone"),
            keeps("delete_all deletes one agent, and only it", "delete_all_deletes_all_of_one_agent"),
            keeps(
                "no byte of a deleted text is left",
                "deleted_text_is_erased_at_once",
                "deleted_text_is_erased_by_maintenance",
            ),
        ),
        (f"{QUALITY}synthetic", "text_search"),
    ),
)
"""The situations. The limits are round numbers that were set before any league was measured."""


def verdicts_of(league: League, situation: Situation) -> list[Verdict]:
    """Return how each system fits, the fitting ones first and ordered by the situation's axis."""
    found = []
    for system in league.systems:
        facts: list[str] = []
        misses: list[str] = []
        fits: Met = True
        for condition in situation.conditions:
            met, text = condition.judge(league, system)
            (facts if met else misses).append(text)
            fits = fits and met if met is not False else False
        found.append(Verdict(system, fits, tuple(facts), tuple(misses)))
    axis = order_axis(league, situation)
    rank = {True: 0, None: 1, False: 2}

    def key(verdict: Verdict) -> tuple[int, float]:
        value = None if axis is None else league.value(verdict.system.target, axis)
        if value is None:
            return rank[verdict.fits], float("inf")
        chosen = league.axis(axis or "")
        sign = -1.0 if chosen is not None and chosen.better == "higher" else 1.0
        return rank[verdict.fits], sign * value

    return sorted(found, key=key)


def order_axis(league: League, situation: Situation) -> str | None:
    """Return the axis by which the fitting systems are listed."""
    return next((key for key in situation.order_by if league.axis(key) is not None), None)


def rule_texts(league: League, situation: Situation) -> Iterator[str]:
    """Yield the conditions in words, with the units of the axes."""
    for condition in situation.conditions:
        words, brace, rest = condition.words.partition("{")
        if not brace:
            yield words
            continue
        key, _, limit = rest.rstrip("}").rpartition(":")
        axis = league.axis(key)
        yield f"{words}{figure_text(float(limit), axis.unit if axis else '', digits=2)}"


def _figure(league: League, system: System, key: str) -> tuple[float | None, str]:
    axis = league.axis(key)
    cell = league.cell(system.target, key)
    if cell.figure is None or axis is None:
        return None, f"not known ({cell.reason})" if cell.reason else "not known"
    return cell.figure.value, figure_text(cell.figure.value, axis.unit)
