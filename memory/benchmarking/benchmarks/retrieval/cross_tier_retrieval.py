"""One question whose answers are in three tiers."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from memory.benchmarking.bench import Bench, not_available
from memory.benchmarking.metrics import SHARE, TIMED, Metric, declare
from memory.benchmarking.model.parameters import Count
from memory.benchmarking.model.presentation import BarChart, PercentileChart
from memory.benchmarking.targets.base import Item
from memory.benchmarking.workloads.natural_texts import memory_texts

if TYPE_CHECKING:
    pass

AGENT = "benchmark_agent"

_PART = Metric("", "neither")


@declare(
    headline="all/p50_ms",
    search_figures="*",
    expected_seconds={"quick": 0.5, "standard": 1.0, "full": 1.5},
    reports=TIMED,
    stm_related_found_rate=SHARE,
    im_related_found_rate=SHARE,
    ltm_related_found_rate=SHARE,
    cross_tier_to_slowest_tier=Metric("×", "lower"),
    share_from_stm=_PART,
    share_from_im=_PART,
    share_from_ltm=_PART,
    profiles={"quick": {"stm_memories": 100, "im_memories": 50, "ltm_memories": 20, "related_groups": 5}},
    charts=[
        PercentileChart("Time of a search, over all tiers and in each"),
        BarChart(
            "Related memories that were found",
            metric=[f"{tier}_related_found_rate" for tier in ("stm", "im", "ltm")],
            names=["metric"],
            label="share found",
            share=True,
            renamed={f"{tier} related found rate": tier for tier in ("stm", "im", "ltm")},
        ),
    ],
)
def benchmark_cross_tier_retrieval(
    stm_memories: Count = 1000,
    im_memories: Count = 500,
    ltm_memories: Count = 200,
    related_groups: Count = 50,
    k: Count = 20,
    bench: Bench | None = None,
    **kwargs: Any,
) -> dict[str, Any]:
    """Whether one question finds related memories in three tiers, and how fast.

    Read `im_related_found_rate` as the share of the im memories about the question's subject that are among
    the `k` answers. Each memory names the subject in a different sentence. `cross_tier_to_slowest_tier` is
    the median time of a search over all tiers ÷ that of the slowest tier alone. Times include embedding
    the question, for every target that embeds it.

    Args:
        stm_memories: how many memories are in stm
        im_memories: how many in im
        ltm_memories: how many in ltm
        related_groups: how many subjects have memories in all tiers
        k: how many answers each search requests
    """
    bench = bench or Bench()
    bench.require(bench.no_search(k))
    tiers = bench.capabilities.tiers
    sizes = {"stm": stm_memories, "im": im_memories, "ltm": ltm_memories}
    per_tier = _related_per_tier(sizes, related_groups, k)
    texts = memory_texts(bench.seed)
    subjects = _subjects(related_groups, bench.seed)
    rng = random.Random(bench.seed)
    related: dict[str, dict[int, set[str]]] = {}
    with bench.target() as target:
        for tier, size in sizes.items():
            lines: list[tuple[int | None, str]] = [
                (group, rng.choice(_ABOUT).format(subject=subject, rest=next(texts)))
                for group, subject in enumerate(subjects)
                for _ in range(per_tier[tier])
            ]
            lines += [(None, next(texts)) for _ in range(max(0, size - len(lines)))]
            rng.shuffle(lines)
            items = [Item(AGENT, text) for _, text in lines]
            ids = bench.store(target, items, tier if tiers else None)
            related[tier] = {group: set() for group in range(related_groups)}
            for (group, _), id_ in zip(lines, ids, strict=True):
                if group is not None:
                    related[tier][group].add(id_)
        target.flush()
        questions = [f"What do we know about {subject}?" for subject in subjects]
        answers = [{hit.id for hit in target.search(AGENT, question, k)} for question in questions]
        found: dict[str, Any] = _found_rates(related, answers, tiers)
        found["all"] = bench.time(
            lambda question: target.search(AGENT, question, k), questions, label="all tiers"
        )
        for tier in tiers:
            found[tier] = bench.time(
                lambda question, tier=tier: target.search(AGENT, question, k, tier),
                questions,
                label=tier,
            )
    if tiers:
        slowest = max(found[tier]["p50_ms"] for tier in tiers)
        found["cross_tier_to_slowest_tier"] = found["all"]["p50_ms"] / slowest
    else:
        found["cross_tier_to_slowest_tier"] = not_available(f"{bench.system} has no tiers")
    return found


_ABOUT = (
    "Notes on {subject}: {rest}",
    "{rest} That also concerns {subject}.",
    "About {subject}, somebody said: {rest}",
)
_FIRST = (
    "amber", "silver", "hidden", "northern", "quiet", "broken", "golden", "crooked", "frozen", "distant",
)  # fmt: skip
_SECOND = ("falcon", "lighthouse", "orchard", "glacier", "clockwork", "caravan", "viaduct", "monastery")


def _subjects(count: int, seed: int) -> list[str]:
    """Return names of projects, each a pair of words that no other name has."""
    pairs = [f"project {first} {second}" for first in _FIRST for second in _SECOND]
    random.Random(seed).shuffle(pairs)
    numbered = [f"{pair} {number}" for number in range(2, 2 + count // len(pairs)) for pair in pairs]
    return (pairs + numbered)[:count]


def _related_per_tier(sizes: Mapping[str, int], groups: int, k: int) -> dict[str, int]:
    """Return how many memories of a subject each tier gets: at least one, and at most `k` in all."""
    wanted = {"stm": 8, "im": 4, "ltm": 2}
    fitting = {tier: max(1, min(count, sizes[tier] // groups)) for tier, count in wanted.items()}
    while sum(fitting.values()) > k and fitting["stm"] > 1:
        fitting["stm"] -= 1
    return fitting


def _found_rates(
    related: Mapping[str, Mapping[int, set[str]]], answers: Sequence[set[str]], tiers: Sequence[str]
) -> dict[str, Any]:
    rates: dict[str, Any] = {}
    total = sum(len(answer) for answer in answers) or 1
    for tier, groups in related.items():
        there = sum(len(ids) for ids in groups.values())
        found = sum(len(groups[number] & answer) for number, answer in enumerate(answers))
        # Without tiers the memories are in one place, and the rates still count which were found.
        rates[f"{tier}_related_found_rate"] = found / there
        if tiers:
            rates[f"share_from_{tier}"] = found / total
    return rates
