"""How a timing is divided in lockstep: one plan for both sides, so that their blocks can be paired.

Turns are short, so that what disturbs the machine for a while hits both sides alike. Blocks are shorter
still: the least disturbed block of a turn speaks for it, so a turn needs a few to choose from.
"""

from __future__ import annotations

from collections.abc import Sequence

from memory.benchmarking.measure.pace import Plan, Proposal

BLOCK_NS = 200_000
TURN_NS = 600_000
LEAST_TURNS = 10
"""As far as there are samples for them: the median over turns needs some."""
MOST_TURNS = 100
WANTED_TURNS = 80
"""Of calls that are longer than a turn should be: each is a turn then, and many of them are needed."""
LONGEST_NS = 80_000_000
"""That a timing is made longer to for these."""


def divide(proposals: Sequence[Proposal]) -> list[Plan]:
    """A plan for each side: the same turns, blocks and calls a sample.

    The samples are the same too, unless the benchmark itself calls the operation more often on one of
    the sides; the figures of such sides are compared by process, not by block.
    """
    per_sample = max(each.calls_per_sample for each in proposals)
    # The shorter: being interrupted in the warm-up only ever adds to a call.
    call_ns = min((each.call_ns for each in proposals if each.call_ns is not None), default=None)
    if any(each.fixed for each in proposals):
        samples = [-(-each.samples * each.calls_per_sample // per_sample) for each in proposals]
    else:
        calls = max(each.samples * each.calls_per_sample for each in proposals)
        if call_ns is not None:
            calls = max(calls, min(WANTED_TURNS, int(LONGEST_NS / call_ns)))
        samples = [-(-calls // per_sample)] * len(proposals)
    fewest = min(samples)
    if call_ns is not None:
        total_ns = fewest * per_sample * call_ns
        blocks = min(max(round(total_ns / BLOCK_NS), LEAST_TURNS), fewest)
        turns = min(max(round(total_ns / TURN_NS), LEAST_TURNS), MOST_TURNS, blocks)
    else:
        blocks = fewest
        turns = min(blocks, MOST_TURNS)
    return [
        Plan(calls_per_sample=per_sample, samples=count, blocks=blocks, turns=turns) for count in samples
    ]
